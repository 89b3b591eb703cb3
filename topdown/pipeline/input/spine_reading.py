"""Makes the tree on which noise is measured from public tables of areas."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.unit_sums import SpineGeography
from topdown.pipeline.input.unit_reading import digest_of
from topdown.planning.spines import facts_of
from topdown.tables.assignments import Assignment, areas_in
from topdown.wording import shown, shown_path


def with_spine(geography: Geography, config: RunConfig) -> Geography:
    """The tree on which noise is measured for the published ``geography``: ``geography`` itself, or the spine that
    ``config`` describes.

    Raises `ConfigError` for levels that do not nest or are not known, and for a spine of the confidential table,
    `DataError` for an invalid table of areas: with an unknown unit, one in two areas, or without an area.
    """
    options = config.geography.spine
    if options is None:
        return geography
    areas = read_areas(config, geography)
    facts = facts_of(geography, areas)
    spine = options.spine.geography(geography, areas)
    if options.names is not None:
        spine = replace(spine, levels=tuple(options.names))
    return SpineGeography.of(spine, geography, {kind: (facts.names[kind], facts.codes[kind]) for kind in facts.kinds})


def read_areas(config: RunConfig, geography: Geography) -> list[Assignment]:
    """The areas of the spine that ``config`` describes. Raises as `with_spine` does."""
    for kind, path in area_paths(config).items():
        require_not_confidential(config, f"geography.spine.areas: the table of {shown(kind)},", path)
    return areas_in(area_paths(config), geography)


def area_paths(config: RunConfig) -> dict[str, Path]:
    """The paths of the tables of areas of the spine that ``config`` describes, by kind."""
    options = config.geography.spine
    return {} if options is None else {kind: config.path_of(path) for kind, path in options.areas.items()}


def require_not_confidential(config: RunConfig, name: str, path: Path) -> None:
    """Refuse the confidential table as the public one at ``path``, which ``name`` sets. Raises `ConfigError`."""
    if path.exists() and config.input_path.exists() and path.samefile(config.input_path):
        raise ConfigError(
            f"{name} {shown_path(path)} is the confidential table, and a spine is made of public facts; give a table "
            "that is public whatever the confidential one holds"
        )


def areas_digest(config: RunConfig) -> str | None:
    """SHA-256 of all tables of areas of a spine, None where there are none. Raises `DataError`."""
    paths = sorted(area_paths(config).items())
    found = [f"{digest_of(path, 'geography.spine.areas')} {kind}\n" for kind, path in paths]
    return hashlib.sha256("".join(found).encode()).hexdigest() if found else None
