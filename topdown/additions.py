"""What the top of the program adds to registries of rooms below it, without these knowing the modules that are added.

A module that adds an entry to a registry when it is imported is named here by the package itself, whatever part of it
is used first; the registry loads it when it is read. So nothing is loaded before it is needed.
"""

from __future__ import annotations

from importlib import import_module

MODULES: dict[str, str] = {}
"""The module that completes a registry, by the registry's name."""


def load(registry: str) -> None:
    """Import what completes ``registry``, if anything does."""
    if registry in MODULES:
        import_module(MODULES[registry])
