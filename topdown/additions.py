"""Lets upper rooms, and other packages, add entries to registries, without the registries importing them.

A module that adds an entry to a registry when it is imported is named here when the package is imported; the registry
imports it at its first use. So nothing is loaded before it is needed. An installed package names such a module as an
entry point of the group "topdown.REGISTRY" ("topdown.methods", "topdown.mechanisms"): every process that loads topdown
then has its entries, also the workers of a release in parts.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

MODULES: dict[str, str] = {}
"""The module that completes a registry, by the registry's name."""


def load(registry: str) -> None:
    """Import what completes ``registry``, if anything does: of topdown, and of installed packages."""
    if registry in MODULES:
        import_module(MODULES[registry])
    _load_packages(registry)


@cache
def _load_packages(registry: str) -> None:
    # Once a process: every search goes through all installed packages.
    for one in entry_points(group=f"topdown.{registry}"):
        one.load()
