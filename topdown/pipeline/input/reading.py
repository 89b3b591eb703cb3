"""Reads the geography and the confidential counts of a configuration's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from topdown.confidential.counts import Counts
from topdown.confidential.double_counting import require_disjoint
from topdown.config import RunConfig
from topdown.geography.geography import Geography
from topdown.machine.progress import Silent, Stages
from topdown.pipeline.input.leaf_reading import LEAVES
from topdown.pipeline.input.limit_reading import limits_digest
from topdown.pipeline.input.record_reading import RECORDS
from topdown.pipeline.input.redistricting_reading import REDISTRICTING
from topdown.pipeline.input.spine_reading import area_paths, areas_digest, with_spine
from topdown.pipeline.input.unit_reading import (
    Units,
    digest_of,
    identifier_columns,
    listed_units,
    path_columns,
    rows_by_line,
)
from topdown.tables.readers import changed

SHAPES = {"leaves": LEAVES, "records": RECORDS, "long": RECORDS, "pl94": REDISTRICTING}
"""How tables are read, by the kind of their rows (`topdown.config.table_settings.ROWS`)."""


def read_input(
    config: RunConfig,
    stages: Stages | None = None,
    *,
    before_counts: Callable[[Geography, int], object] | None = None,
) -> tuple[Geography, Counts]:
    """The geography and the confidential counts of ``config``'s table.

    If there is a public list of units the geography is made from it, or is the spine that ``config`` makes of it, and a
    unit without a row in the table has counts of 0. Units are read first. ``before_counts``: called before any count is
    read, with the geography and the number of bytes that are in use until the counts are read; it may raise an error.
    Cells that are sums of other cells, and units that are sums of their siblings, are refused unless ``config``
    declares them disjoint. The number of rows is printed only for tables with a row for every published unit; for
    records, and for a table that may lack units of a list, it is confidential. Raises `DataError` (`GeographyError`,
    `CountsError`) with the node, the level, the value and the remedy.
    """
    stages, shape = stages or Silent(), SHAPES[config.input.rows]
    opened = shape.opened(config, stages)
    if config.units_path is None:
        units = shape.units(config, opened)
    else:
        geography = with_spine(listed_units(config.units_path, config, stages), config)
        units = Units(geography, path_columns(config, identifier_columns(config)), pa.table({}))
    if before_counts is not None:
        before_counts(units.geography, units.read.nbytes)
    with rows_by_line(config, of_file=not config.input.kind.known_layout):
        counts = shape.counts(config, units, opened, stages)
    if config.input.kind.may_overlap and not config.input.assume_disjoint:
        require_disjoint(counts)
    return units.geography, counts


def input_digest(config: RunConfig) -> str:
    """SHA-256 of the input file. Raises `DataError` where it cannot be read."""
    return digest_of(config.input_path, "input.path", SHAPES[config.input.rows].digest)


def units_digest(config: RunConfig) -> str | None:
    """SHA-256 of the public list of units, None where there is none. Raises `DataError` where it cannot be read."""
    return None if config.units_path is None else digest_of(config.units_path, "geography.units")


@dataclass(frozen=True)
class InputDigests:
    """SHA-256 of all that a run reads: of the confidential ``table``, the public list of ``units``, what says the
    ``limits`` of answers, and the tables of ``areas`` of a spine; each but the first None where there is none."""

    table: str = field(repr=False)
    units: str | None = None
    limits: str | None = None
    areas: str | None = None

    @classmethod
    def of(cls, config: RunConfig) -> InputDigests:
        """Of what ``config`` names. Raises `DataError` where something cannot be read."""
        return cls(input_digest(config), units_digest(config), limits_digest(config), areas_digest(config))

    def name(self, config: RunConfig) -> tuple[str, str]:
        """What a release is known by: the digest of ``config`` with all that is public, and that of the table."""
        return config.fingerprint(self.units, self.limits, self.areas), self.table

    def require_unchanged(self, config: RunConfig) -> None:
        """Refuse a file that has changed since. Raises `DataError` with its path."""
        now = InputDigests.of(config)
        for before, after, path in (
            (self.table, now.table, config.input_path),
            (self.units, now.units, config.units_path),
            (self.limits, now.limits, config.limits_path or config.ties_path),
            (self.areas, now.areas, next(iter(area_paths(config).values()), None)),
        ):
            if before != after and path is not None:
                raise changed(path)
