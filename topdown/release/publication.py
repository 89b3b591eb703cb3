"""The public directory of a release: all of its files, which appear together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from topdown.geography.tree import IntArray
from topdown.machine.files import make_folder, whole_folder
from topdown.machine.parallel import map_ordered
from topdown.machine.software import version_of
from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.whole import WholeProjection
from topdown.projection.limits import AnswerLimits
from topdown.release.answer_files import (
    ESTIMATED,
    Bounded,
    BoundedCounts,
    estimate_batches,
    margin_columns,
    paths_of,
    table_batches,
    table_counts,
)
from topdown.release.catalogue import CROISSANT, CSVW, DCAT, croissant, csvw, dcat
from topdown.release.codebook import data_package, in_words, own_tables
from topdown.release.layouts import EVERY_CELL, wide_batches
from topdown.release.manifest import (
    MANIFEST,
    SCHEMA_VERSION,
    Description,
    Projection,
    describe_release,
    described_file,
)
from topdown.release.partition import (
    ESTIMATES,
    ESTIMATES_CSV,
    GEOGRAPHY,
    LIMITS,
    MEASUREMENTS,
    RELEASE_CSV,
    REPLICATES,
    REPLICATES_CSV,
    WIDE,
    WIDE_CSV,
    nodes_of_files,
    whole_tables,
)
from topdown.release.readme import DATAPACKAGE, METHODS, README, in_plain_words
from topdown.release.whole_counts import Release
from topdown.tables.count_reliability import Reliability, reliability_of
from topdown.tables.geography_table import geography_batches
from topdown.tables.tidy import named_failures, tidy_batches, write_csv, write_json, write_parquet, write_text
from topdown.workload import TOTAL
from topdown.workload.answer_tables import MARGIN_ENDS, AnswerTable, margin_names, wide_table

_AGAIN = "free the space or correct the path, and run again: the noise will be the same"

if TYPE_CHECKING:
    from topdown.uncertainty.intervals import Intervals
    from topdown.uncertainty.margins import Margins


@dataclass(frozen=True)
class Begun:
    """A folder ``staging`` beside ``public`` in which what was measured is being written, or will be: by file, what
    writes it or is writing it. ``marks``: what every table says of itself.
    """

    public: Path
    staging: Path
    marks: Mapping[str, str]
    writing: Mapping[str, Future[Exception | None]]
    executor: Executor | None

    def parquet(self, name: str, batches: Iterator[pa.RecordBatch]) -> Callable[[], None]:
        """What writes ``batches`` as the Parquet file ``name``."""
        return lambda: write_parquet(self.staging / name, batches, self.marks)

    def csv(self, name: str, batches: Iterator[pa.RecordBatch]) -> Callable[[], None]:
        """What writes ``batches`` as the CSV file ``name``."""
        return lambda: write_csv(self.staging / name, batches)


def marks_of(*, fit_for_release: bool) -> dict[str, str]:
    """What every table of a release says of itself."""
    return {
        "software": f"topdown {version_of()}",
        "schema version": SCHEMA_VERSION,
        "fit for release": str(fit_for_release),
    }


@contextmanager
def begun(
    public: Path, measurements: Measurements, *, fit_for_release: bool, executor: Executor | None = None
) -> Iterator[Begun]:
    """A folder for a release, which takes the name ``public`` when the block ends, and vanishes when it fails.

    ``measurements`` and units, which are known, are written by ``executor`` in the meantime: the solution leaves
    processors idle. ``fit_for_release``: whether the release will be. Raises `DataError` when something cannot be
    written; nothing then has a final name.
    """
    writing: dict[str, Future[Exception | None]] = {}
    abandoned = Event()

    def leave() -> None:
        abandoned.set()
        for future in writing.values():
            future.cancel()
        wait(writing.values())  # before the folder goes away beneath one that is still at work

    with ExitStack() as held:
        with named_failures(public, _AGAIN):
            staging = held.enter_context(whole_folder(public))
        held.callback(leave)
        found = Begun(public, staging, marks_of(fit_for_release=fit_for_release), writing, executor)
        if executor is not None:
            known = {MEASUREMENTS: measurements.batches(), GEOGRAPHY: geography_batches(measurements.geography)}
            for name, batches in known.items():
                wanted = takewhile(lambda _: not abandoned.is_set(), batches)
                writing[name] = executor.submit(_failure, found.parquet(name, wanted))
        yield found
        with named_failures(public, _AGAIN):
            held.pop_all().close()


class Made(NamedTuple):
    """What is made of measurements: the ``release``, the ``estimates`` of all cells or of its tables by their names,
    the ``margins`` of all cells if there are any, and the ``intervals`` of the columns of tables, by the tables' names;
    what bounds the ``total`` in release.* and the columns of the ``wide`` table, where they have margins; tables that
    are plausible as ``replicates`` (draws x nodes x cells), where they are asked for.
    """

    release: Release
    estimates: Mapping[str, Projection]
    margins: Margins | None
    intervals: Mapping[str, Intervals]
    total: Bounded | None = None
    wide: Bounded | None = None
    replicates: IntArray | None = None


def publish(folder: Begun, files: Mapping[str, Callable[[], object]], about: Description) -> None:
    """Write the ``files`` of a release into ``folder``, each by what writes it, and what describes them.

    Raises `DataError` when something cannot be written.
    """
    with named_failures(folder.public, _AGAIN):
        for name in files:
            make_folder((folder.staging / name).parent)
        begun_before = {name: future.result for name, future in folder.writing.items()}
        # The longest first, so that none of them is left to one thread when all the others are written.
        left = sorted((name for name in files if name not in begun_before), key=lambda name: ESTIMATED not in name)
        # Every writer ends before the folder goes away beneath one that is still at work.
        by_now = map_ordered(lambda name: _failure(files[name]), left, folder.executor, at_once=True)
        ended = [*by_now, *(result() for result in begun_before.values())]
        for error in ended:
            if error is not None:
                raise error
        write_books(folder.staging, {name: folder.staging / name for name in files}, about, folder.executor)


def tables_of(
    folder: Begun, made: Made, about: Description, limits: AnswerLimits | None = None
) -> dict[str, Callable[[], None]]:
    """What writes every table of a release that is made at once, by its path in ``folder``; ``limits``: which its
    numbers keep, if any.
    """
    release, margins, output, parquet, text = (
        made.release,
        made.margins,
        about.config.output,
        folder.parquet,
        folder.csv,
    )

    def more() -> dict[str, Any]:
        return {} if margins is None or release.layout is not EVERY_CELL else _beside_cells(made, margins)

    of_cells = {name: one for name, one in made.estimates.items() if isinstance(one, Estimate)}
    files = {
        MEASUREMENTS: parquet(MEASUREMENTS, about.measurements.batches()),
        **{name: parquet(name, release.batches(nodes, more())) for name, nodes in nodes_of_files(release).items()},
        GEOGRAPHY: parquet(GEOGRAPHY, geography_batches(release.geography)),
    }
    if of_cells:
        files = {ESTIMATES: parquet(ESTIMATES, _estimate_batches(of_cells, margins)), **files}
    if limits is not None:
        files[LIMITS] = parquet(LIMITS, limits.batches())
    if output.csv:
        files[RELEASE_CSV] = text(RELEASE_CSV, release.batches(None, more()))
    if output.wide:
        beside_wide = partial(_beside_wide, wide_table(release.cells, release.schema, about.tables), made)
        files[WIDE] = parquet(WIDE, wide_batches(release, beside_wide))
        if output.csv:
            files[WIDE_CSV] = text(WIDE_CSV, wide_batches(release, beside_wide))
    if of_cells and output.estimates_csv:
        files[ESTIMATES_CSV] = text(ESTIMATES_CSV, _estimate_batches(of_cells, margins))

    if made.replicates is not None:
        files[REPLICATES] = parquet(REPLICATES, _replicates(release, made.replicates))
        if output.csv:
            files[REPLICATES_CSV] = text(REPLICATES_CSV, _replicates(release, made.replicates))

    def beside(table: AnswerTable) -> Iterator[pa.RecordBatch]:
        linear, reach = made.estimates[about.linear_name], about.reach
        assert reach is not None  # nosec B101 # narrows a type: tables are made with one
        assert not isinstance(linear, WholeProjection)  # nosec B101 # narrows a type: it has a name of its own
        intervals, levels = made.intervals.get(table.name), linear.geography.levels
        at = [levels.index(one) for one in output.with_margins("levels", levels)]
        at = at if output.with_margins("tables", [table.name]) else []
        return estimate_batches(table, release, about.linear_name, linear, reach, intervals, at)

    for table in about.tables:
        counts, estimates = paths_of(table)
        files[f"{counts}.parquet"] = parquet(f"{counts}.parquet", table_batches(table, release))
        if output.csv:
            files[f"{counts}.csv"] = text(f"{counts}.csv", table_batches(table, release))
        files[f"{estimates}.parquet"] = parquet(f"{estimates}.parquet", beside(table))
        if output.estimates_csv:
            files[f"{estimates}.csv"] = text(f"{estimates}.csv", beside(table))
    return files


def write_books(staging: Path, written: Mapping[str, Path], about: Description, executor: Executor | None) -> None:
    """Write into ``staging`` what describes the tables that are ``written`` there, by their paths: the codebook, for
    people and for programs, and the manifest. ``executor``: threads that may read the tables for it. Raises `OSError`.
    """
    whole, own, catalogue = whole_tables(written), own_tables(about), about.config.catalogue
    package = data_package(about, whole, own)
    write_json(staging / DATAPACKAGE, package)
    write_json(staging / CSVW, csvw(package["title"], package, catalogue))
    levels = about.measurements.geography.levels
    known = dict(zip(written, map_ordered(described_file, list(written.values()), executor), strict=True))
    write_json(staging / DCAT, dcat(package["title"], package, known, about.statement, levels, catalogue))
    write_json(staging / CROISSANT, croissant(package["title"], package, known, about.statement, catalogue))
    write_text(staging / METHODS, in_words(about, whole, own))
    write_text(staging / README, in_plain_words(about, whole))
    books = {name: described_file(staging / name) for name in (DATAPACKAGE, CSVW, DCAT, CROISSANT, METHODS, README)}
    write_json(staging / MANIFEST, describe_release(about, {**known, **books}))


def _failure(write: Callable[[], object]) -> Exception | None:
    try:
        write()
    except Exception as error:
        return error
    return None


def _estimate_batches(estimates: Mapping[str, Estimate], margins: Margins | None = None) -> Iterator[pa.RecordBatch]:
    """Linear estimates (unbiased unless noise is bounded) with their variances beside the non-negative ones, never one
    without the other; the columns are called as the estimates are."""
    (linear_name, linear), (name, non_negative) = estimates.items()
    columns: dict[str, Any] = {linear_name: linear.values, "variance": linear.variance}
    if margins is not None:
        columns |= {name: margins.everywhere(getattr(margins, name)) for name in ("sd", "lower", "upper")}
    columns[name] = non_negative.values
    return tidy_batches(linear.geography, linear.cells, columns, units=True)


def _replicates(release: Release, tables: IntArray) -> Iterator[pa.RecordBatch]:
    """The released counts with a column for every table."""
    columns = {"value": release.values, **{f"rep{k}": table for k, table in enumerate(tables, 1)}}
    return tidy_batches(release.geography, release.cells, columns, units=True)


def _beside_cells(made: Made, margins: Margins) -> dict[str, Any]:
    """The columns of release.* after the counts: the margin of each, how reliable it is, and the total of the unit with
    its margin, each found for some nodes at a time."""
    release, total, times = made.release, made.total, len(made.release.cells)
    known: dict[str, Any] = {}

    @lru_cache(maxsize=1)
    def cells_at(start: int, stop: int) -> Reliability:
        sd = margins.everywhere(margins.sd)
        nodes = slice(start, stop)
        return reliability_of(sd(nodes) if callable(sd) else sd[nodes], release.values_of(nodes))

    known["cv"] = lambda nodes: cells_at(nodes.start, nodes.stop).cv
    known["reliability"] = lambda nodes: cells_at(nodes.start, nodes.stop).reliability
    if total is not None:

        @lru_cache(maxsize=1)
        def total_at(start: int, stop: int) -> BoundedCounts:
            return total.at(release, slice(start, stop))

        names = zip((TOTAL, *margin_names(TOTAL)), ("counts", *MARGIN_ENDS), strict=True)
        for name, what in names:
            # A number of every unit, as often as it has cells.
            known[name] = lambda nodes, what=what: np.repeat(
                getattr(total_at(nodes.start, nodes.stop), what), times, axis=1
            )
    return {**margins.columns, **known}


def _beside_wide(table: AnswerTable, made: Made, nodes: slice) -> dict[str, pa.Array]:
    """The columns of the wide table after the cells and their total: those of other tables, and the margins of all that
    have some."""
    release = made.release
    first = len(wide_table(release.cells, release.schema).columns)
    counts = table_counts(table, release, nodes)
    found = {one.name: pa.array(counts[:, k]) for k, one in enumerate(table.columns) if k >= first}
    if made.wide is None:
        return found
    places = {one: k for k, one in enumerate(made.wide.table.columns)}
    known = [one for one in table.columns if one in places]
    names = [one.name for one in known]
    return found | margin_columns(made.wide.at(release, nodes), names, [places[one] for one in known])
