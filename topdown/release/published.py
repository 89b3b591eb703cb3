"""A release that is read by whoever received it: units, counts, estimates, measurements, plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.geography.unit_sums import published_sums
from topdown.measurements.measurements import Measurements
from topdown.privacy.plan import Plan
from topdown.release.making import exact_cells
from topdown.release.partition import ESTIMATES, RELEASE
from topdown.release.read import measurements_of
from topdown.release.released_counts import areas_of_release, as_described, level_sizes, read_cells, read_counts
from topdown.release.verified import verify_files
from topdown.release.whole_counts import Release
from topdown.tables.tidy import ArrowTable, tidy_batches, to_arrow, to_frame
from topdown.workload import TOTAL
from topdown.workload.answer_tables import margin_names

OF_RELEASE, OF_TOTALS = ("lower", "upper", "moe", "cv"), margin_names(TOTAL)
OF_ESTIMATES = ("sd", "lower", "upper")
"""The columns of margins of error that the tables of a release have, if any."""


@dataclass(frozen=True, eq=False)
class PublishedEstimates(ArrowTable):
    """The published estimates of every cell at every node; arrays are (nodes x cells).

    Args:
        geography: the units.
        cells: the names of the cells, in order.
        linear_name: "unbiased", or "least_squares" where noise is bounded.
        linear: the estimates by least squares.
        variance: of the estimates by least squares; NaN where it is not known.
        non_negative: the non-negative estimates, from which the counts were rounded.
        margins: the published intervals by column (``sd, lower, upper``); empty where the release has none.

    Examples:
        >>> found = td.read_release("public")
        >>> found.estimates.to_frame().columns[:6].tolist()
        ['geoid', 'level', 'parent', 'name', 'cell', 'unbiased']
    """

    geography: Geography
    cells: Sequence[str]
    linear_name: str
    linear: FloatArray = field(repr=False)
    variance: FloatArray = field(repr=False)
    non_negative: FloatArray = field(repr=False)
    margins: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)

    def total(self) -> PublishedEstimates:
        """The same for the sum over all cells; the variances add up, since cells have independent noise.

        It has no intervals, since these do not add up; `topdown.region` gives the intervals of sums.
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
    """A release that was read from its directory.

    Args:
        public: the directory.
        geography: the units, of all that follows.
        release: the released counts.
        estimates: of every cell; None where the release has none.
        measurements: the noisy values; of a very large release in parts those of its upper levels. Where noise was
            measured on a spine, they are of its units.
        plan: the plan; None where it is not known.
        manifest: manifest.json.
        areas: by kind the counts of the root, of the areas, and of what lies in none of them ("none"), where noise was
            measured on a spine that is made of areas.

    Examples:
        >>> found = td.read_release("public")
        >>> found.wide().columns.tolist()
        ['geoid', 'level', 'parent', 'name', 'employed', 'unemployed', 'total']
        >>> found.plan.total
        Fraction(1, 1)
    """

    public: Path
    geography: Geography
    release: Release
    estimates: PublishedEstimates | None
    measurements: Measurements
    plan: Plan | None
    manifest: dict[str, Any] = field(repr=False)
    areas: Mapping[str, Release] = field(default_factory=dict, repr=False)

    def table(self, level: str, query: str) -> pd.DataFrame:
        """The released counts of a query at a level, a row per unit: ``geoid, name`` and a column for every answer.

        Args:
            level: whose units the rows are.
            query: a query, or a table of the redistricting file or one of its fields ("P1", "P0010003"), where the
                release has the attributes of that table.

        Raises `GeographyError` for an unknown level, `ConfigError` with the nearest known name for an unknown query.
        """
        return self.release.table(level, query)

    def wide(self) -> pd.DataFrame:
        """The release with one row per unit: ``geoid, level, parent, name, *cells[, total]``."""
        return self.release.wide()


def read_release(public: str | Path) -> PublishedRelease:
    """Read a release, after making sure that it is whole and adds up.

    Args:
        public: the directory of the release.

    Raises `DataError` as `verify_release` does, and for tables that are not what the manifest describes.

    Examples:
        >>> found = td.read_release("public")
        >>> found.geography.levels, found.release.to_frame().columns[:6].tolist()
        (('nation', 'state', 'county'), ['geoid', 'level', 'parent', 'name', 'cell', 'value'])
    """
    folder = Path(public)
    manifest = verify_files(folder)
    source = measurements_of(folder, manifest)
    measured, plan = source.measurements, source.plan
    geography, cells = measured.published, measured.cells
    estimates = None
    if ESTIMATES in manifest["files"]:
        linear = next((name for name in manifest["projections"] if name != "non_negative"), "unbiased")
        names, sizes = [linear, "non_negative"], level_sizes(folder, manifest)
        with as_described(folder / ESTIMATES):
            known, more = geography.identifiers, ("variance", *OF_ESTIMATES)
            values = read_cells(folder / ESTIMATES, sizes, cells, known, names, more).columns
        margins = {name: values[name] for name in OF_ESTIMATES if name in values}
        variance = values["variance"] if "variance" in values else np.full(values[linear].shape, np.nan)
        above = values["non_negative"]
        estimates = PublishedEstimates(geography, cells, linear, values[linear], variance, above, margins)
    with as_described(folder / RELEASE):
        units = published_sums(measured.geography)

        def exact() -> npt.NDArray[np.bool_]:
            found = exact_cells(measured)
            return found if units is None else units.all_of(found)

        release = read_counts(folder, manifest, geography, ("variance", *OF_RELEASE), OF_TOTALS, exact)
    areas = areas_of_release(release, measured.geography)
    return PublishedRelease(folder, geography, release, estimates, measured, plan, manifest, areas)
