"""Versions of installed packages, for manifests and messages."""

from __future__ import annotations

import importlib.metadata


def version_of(package: str = "topdown") -> str:
    """The installed version of ``package``, this one's by default."""
    return importlib.metadata.version(package)
