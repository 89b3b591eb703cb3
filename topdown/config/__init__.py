"""The configuration: TOML files of releases, studies and derivations, validated; one module per part of the file."""

from __future__ import annotations

from topdown.config.derivation import DerivationConfig, Projection
from topdown.config.load import describes_linked, load_any, load_config, load_linked, load_project, load_study
from topdown.config.release import RunConfig
from topdown.config.table_settings import GeographyOptions

__all__ = [
    "DerivationConfig",
    "GeographyOptions",
    "Projection",
    "RunConfig",
    "describes_linked",
    "load_any",
    "load_config",
    "load_linked",
    "load_project",
    "load_study",
]
