"""A release read back whole, by whoever received it: units, counts, estimates, measurements, plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError, TopdownError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.machine.memory import most_at_once, too_large
from topdown.measurements.measurements import Measurements
from topdown.privacy.plan import Plan
from topdown.projection.conditions import Conditions
from topdown.release.histograms import HistogramRelease, table_frame
from topdown.release.manifest import MANIFEST, lists_records, method_of
from topdown.release.partition import RELEASE
from topdown.release.publication import ESTIMATES
from topdown.release.read import read_measurements
from topdown.release.release import Release
from topdown.release.verify import verify_files
from topdown.release.verify_counts import released_histograms
from topdown.release.wide import wide_batches
from topdown.tables.parquet import longest_text, require_texts
from topdown.tables.tidy import tidy_batches, to_arrow, to_frame
from topdown.wording import reason, shown_path

_KEYS = ["geoid", "cell"]
_BYTES_OF_NUMBER, _OF_KEYS = 8, 6
"""Of a number of a table that is read, and so many numbers' room for the texts of its row."""
_BYTES_OF_COUNT = 18
"""Of a cell at a node in a table of counts: the count, whether it is exact, and what adding up takes."""

OF_RELEASE = ("lower", "upper", "moe")
OF_ESTIMATES = ("sd", "lower", "upper")
"""The columns of margins of error that the tables of a release have, if any."""


@dataclass(frozen=True, eq=False)
class PublishedEstimates:
    """Estimates at every node, each (nodes x cells): ``linear`` by least squares, called ``linear_name`` ("unbiased",
    or "least_squares" where noise is bounded), with its ``variance`` (NaN where it is not known), and ``non_negative``.
    ``margins``: the published intervals by column (``sd, lower, upper``), empty where the release has none.
    """

    geography: Geography
    cells: Sequence[str]
    linear_name: str
    linear: FloatArray = field(repr=False)
    variance: FloatArray = field(repr=False)
    non_negative: FloatArray = field(repr=False)
    margins: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)

    def total(self) -> PublishedEstimates:
        """The same of the sum over all cells, whose variances add up: cells have noise of their own.

        Intervals do not add up, so it has none; `topdown.region` gives those of sums.
        """
        summed = (self.linear, self.variance, self.non_negative)
        linear, variance, above = (one.sum(axis=1, keepdims=True) for one in summed)
        return PublishedEstimates(self.geography, ("total",), self.linear_name, linear, variance, above)

    def _columns(self) -> dict[str, FloatArray]:
        known = {self.linear_name: self.linear, "variance": self.variance}
        return {**known, **self.margins, "non_negative": self.non_negative}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The tidy table ``geoid, level, parent, name, cell`` and the columns of estimates.parquet, in batches."""
        return tidy_batches(self.geography, self.cells, self._columns(), units=True)

    def to_arrow(self) -> pa.Table:
        """The table of `batches`."""
        return to_arrow(self.batches())

    def to_frame(self) -> pd.DataFrame:
        """The table of `batches`."""
        return to_frame(self.batches())


@dataclass(frozen=True, eq=False)
class PublishedRelease:
    """A release in the directory ``public``: its parts, on one ``geography``, and its ``manifest``; ``plan`` is None
    where it is not known.

    ``estimates``: of every cell, None where the release has none; ``histograms``: the counts of a release of several
    queries, kept as the cells that have records, else None; ``table_of_counts``: those of any other.
    """

    public: Path
    geography: Geography
    table_of_counts: Release | None
    estimates: PublishedEstimates | None
    measurements: Measurements
    plan: Plan | None
    manifest: dict[str, Any] = field(repr=False)
    histograms: HistogramRelease | None = None

    @cached_property
    def release(self) -> Release:
        """The counts of every cell; of several queries they are made, and kept, when they are asked for.

        Raises `DataError` where they do not fit in memory.
        """
        if self.table_of_counts is not None:
            return self.table_of_counts
        assert self.histograms is not None  # nosec B101 # narrows a type: a release has one of the two
        n_nodes, n_cells, most = self.geography.n_nodes, len(self.measurements.cells), most_at_once()
        needed = _BYTES_OF_COUNT * n_nodes * n_cells
        if most is not None and needed > most:
            size = f"as a table of {n_nodes:,} units x {n_cells:,} cells"
            raise too_large(self.public / RELEASE, size, most)
        answers = [self.measurements.at(level) for level in self.geography.levels]
        return self.histograms.dense(Conditions.of(self.geography.tree, answers).exact(self.measurements.schema))

    def table(self, level: str, query: str) -> pd.DataFrame:
        """The released counts of a query at a level, a row per unit: ``geoid, name`` and a column for every answer.

        ``query``: also a table of the redistricting file or one of its fields ("P1", "P0010003"), where the release is
        of what it is about. Raises `GeographyError` for an unknown level, `ConfigError` with the nearest known name for
        an unknown query.
        """
        if self.histograms is not None:
            return self.histograms.table(level, query)
        nodes = self.geography.level_slice(level)
        values, schema = self.release.values[nodes], self.measurements.schema
        return table_frame(self.geography, nodes, query, schema, lambda asked: asked.answers(values))

    def wide(self) -> pd.DataFrame:
        """The release with one row per unit: ``geoid, level, parent, name, *cells[, total]``."""
        return to_frame(wide_batches(self.release))


def read_release(public: str | Path) -> PublishedRelease:
    """The release in the directory ``public``, after making sure that it is whole and adds up.

    Raises `DataError` as `verify_release` does, and for tables that are not what the manifest describes.
    """
    folder = Path(public)
    manifest = verify_files(folder)
    try:
        with_records = lists_records(manifest)
    except DataError as error:
        raise DataError(f"{shown_path(folder / MANIFEST)}: {error}") from None
    source = read_measurements(folder)
    geography, cells = source.measurements.geography, source.measurements.cells
    method = method_of(folder, manifest)
    linear = next((name for name in manifest["projections"] if name != "non_negative"), "unbiased")
    names = [linear, "variance", "non_negative"]
    estimates = None
    if ESTIMATES in manifest["files"]:
        values = _read(folder / ESTIMATES, geography, cells, names, OF_ESTIMATES)
        margins = {name: values[name] for name in OF_ESTIMATES if name in values}
        estimate, variance, above = (values[name] for name in names)
        estimates = PublishedEstimates(geography, cells, linear, estimate, variance, above, margins)
    if with_records:
        histograms = released_histograms(folder, manifest)
        return PublishedRelease(
            folder, geography, None, estimates, source.measurements, source.plan, manifest, histograms
        )
    released = _read(folder / RELEASE, geography, cells, ["value", "variance"], OF_RELEASE)
    try:
        release = Release(
            geography,
            cells,
            released["value"].astype(np.int64),
            released["variance"] == 0,
            method,
            manifest["fit_for_release"] is True,
            {name: released[name] for name in OF_RELEASE if name in released},
        )
    except (TopdownError, KeyError, TypeError) as error:
        said = error if isinstance(error, TopdownError) else reason(error)
        raise DataError(f"{shown_path(folder / RELEASE)}: is no release: {said}") from None
    return PublishedRelease(folder, geography, release, estimates, source.measurements, source.plan, manifest)


def _read(
    path: Path, geography: Geography, cells: Sequence[str], names: Sequence[str], optional: Sequence[str]
) -> dict[str, FloatArray]:
    """Columns of a tidy table, each (nodes x cells): ``names``, NaN where one is not there, and ``optional`` ones that
    are.
    """
    shape = (geography.n_nodes, len(cells))
    try:
        there, most = pq.read_schema(path).names, most_at_once()
        names = [*names, *(name for name in optional if name in there)]
        if pq.read_metadata(path).num_rows != shape[0] * shape[1]:
            raise ValueError
        needed = shape[0] * shape[1] * _BYTES_OF_NUMBER * (_OF_KEYS + len(names))
        if most is not None and needed > most:
            raise too_large(path, f"as tables of {shape[0]:,} units x {shape[1]:,} cells", most)
        require_texts(path, {"geoid": longest_text(geography.identifiers), "cell": longest_text(cells)})
        table = pq.read_table(path, columns=[*_KEYS, *(name for name in names if name in there)])
        units = pa.array(geography.identifiers.take(pa.array(np.repeat(np.arange(shape[0]), shape[1]))))
        cell = pc.index_in(table["cell"].cast(pa.string()), value_set=pa.array(cells)).to_numpy()
        if not table["geoid"].combine_chunks().equals(units):
            raise ValueError
        if not np.array_equal(cell, np.tile(np.arange(shape[1]), shape[0])):
            raise ValueError
        return {
            name: np.asarray(table[name].to_numpy(), dtype=np.float64).reshape(shape)
            if name in there
            else np.full(shape, np.nan)
            for name in names
        }
    except DataError:
        raise
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise DataError(
            f"{shown_path(path)}: its rows are not the units of {MANIFEST} with their cells: {reason(error)}"
        ) from None
