"""Lets upper rooms add entries to registries of lower rooms, without the lower rooms importing them.

A module that adds an entry to a registry when it is imported is named here when the package is imported; the registry
imports it at its first use. So nothing is loaded before it is needed.
"""

from __future__ import annotations

from importlib import import_module

MODULES: dict[str, str] = {}
"""The module that completes a registry, by the registry's name."""


def load(registry: str) -> None:
    """Import what completes ``registry``, if anything does."""
    if registry in MODULES:
        import_module(MODULES[registry])
