"""The configuration: TOML files of releases, studies and derivations, validated; one module per part of the file."""

from __future__ import annotations

from topdown.config.derivation import DerivationConfig, Projection
from topdown.config.linked_settings import LinkedConfig
from topdown.config.load import describes_linked, load_any, load_config, load_linked, load_project, load_study
from topdown.config.project_settings import ProjectConfig
from topdown.config.release import RunConfig
from topdown.config.study_settings import StudyConfig
from topdown.config.table_settings import GeographyOptions

__all__ = [
    "DerivationConfig",
    "GeographyOptions",
    "LinkedConfig",
    "ProjectConfig",
    "Projection",
    "RunConfig",
    "StudyConfig",
    "describes_linked",
    "load_any",
    "load_config",
    "load_linked",
    "load_project",
    "load_study",
]
