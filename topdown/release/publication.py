"""The public directory of a release: all of its files, which appear together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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

from topdown.machine.files import make_folder, whole_folder
from topdown.machine.parallel import map_ordered
from topdown.machine.software import version_of
from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.whole import WholeProjection
from topdown.projection.limits import AnswerLimits
from topdown.release.answer_files import (
    AreaCounts,
    Bounded,
    BoundedCounts,
    area_paths,
    estimate_batches,
    margin_columns,
    paths_of,
    table_batches,
    table_counts,
)
from topdown.release.catalogue import CROISSANT, CSVW, DCAT, croissant, csvw, dcat
from topdown.release.codebook import data_package, in_words, own_tables
from topdown.release.layouts import EVERY_CELL, wide_batches
from topdown.release.manifest import SCHEMA_VERSION, Description, Projection, describe_release, described_file
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
from topdown.release.places import MANIFEST
from topdown.release.readme import DATAPACKAGE, METHODS, README, in_plain_words
from topdown.release.whole_counts import Release
from topdown.tables.count_reliability import Reliability, reliability_of
from topdown.tables.geography_table import tree_batches
from topdown.tables.output_formats import format_of, names_of
from topdown.tables.tidy import named_failures, tidy_batches, write_json, write_text
from topdown.workload import TOTAL
from topdown.workload.answer_tables import ESTIMATED, MARGIN_ENDS, AnswerTable, margin_names, wide_table

_AGAIN = "free the space or correct the path, and run again: the noise will be the same"

if TYPE_CHECKING:
    from topdown.uncertainty.intervals import Intervals
    from topdown.uncertainty.margins import Margins


@dataclass(frozen=True)
class Begun:
    """A folder ``staging`` beside ``public`` in which the files are being written: for each file the task that writes
    it. ``marks``: metadata of every table.
    """

    public: Path
    staging: Path
    marks: Mapping[str, str]
    writing: Mapping[str, Future[Exception | None]]
    executor: Executor | None

    def writes(self, name: str, batches: Callable[[], Iterator[pa.RecordBatch]]) -> Callable[[], None]:
        """A function that writes what ``batches`` gives as the file ``name``, in the format of its ending."""
        return lambda: format_of(name).write(self.staging / name, batches(), self.marks, False)


def marks_of(*, fit_for_release: bool) -> dict[str, str]:
    """The metadata of every table of a release."""
    return {
        "software": f"topdown {version_of()}",
        "schema version": SCHEMA_VERSION,
        "fit for release": str(fit_for_release),
    }


@contextmanager
def begun(
    public: Path, measurements: Measurements, *, fit_for_release: bool, executor: Executor | None = None
) -> Iterator[Begun]:
    """A folder for a release, which gets the name ``public`` when the block ends, and is removed when it fails.

    ``measurements`` and units are known already and are written by ``executor`` in the meantime, since solving leaves
    processors idle. ``fit_for_release``: whether the release will be. Raises `DataError` when something cannot be
    written; no file then has its final name.
    """
    writing: dict[str, Future[Exception | None]] = {}
    abandoned = Event()

    def leave() -> None:
        abandoned.set()
        for future in writing.values():
            future.cancel()
        wait(writing.values())  # before the folder is removed, while a writer is still at work

    with ExitStack() as held:
        with named_failures(public, _AGAIN):
            staging = held.enter_context(whole_folder(public))
        held.callback(leave)
        found = Begun(public, staging, marks_of(fit_for_release=fit_for_release), writing, executor)
        if executor is not None:
            known = {GEOGRAPHY: tree_batches(measurements.geography)}
            if measurements.keys:
                known[MEASUREMENTS] = measurements.batches()
            for name, batches in known.items():
                wanted = partial(takewhile, lambda _: not abandoned.is_set(), batches)
                writing[name] = executor.submit(_failure, found.writes(name, wanted))
        yield found
        with named_failures(public, _AGAIN):
            held.pop_all().close()


class Made(NamedTuple):
    """Everything that is made from measurements: the ``release``; the ``estimates`` by their names, of all cells or of
    its tables; the ``margins`` of all cells, if there are any; the ``intervals`` of the columns of tables, by the
    tables' names; the margins of the ``total`` in release.* and of the ``wide`` table, if they have any; the
    ``replicates``, tables drawn around the estimates, if they were asked for; and the ``areas``, by kind.
    """

    release: Release
    estimates: Mapping[str, Projection]
    margins: Margins | None
    intervals: Mapping[str, Intervals]
    total: Bounded | None = None
    wide: Bounded | None = None
    replicates: Sequence[Release] = ()
    areas: Sequence[AreaCounts] = ()


def publish(folder: Begun, files: Mapping[str, Callable[[], object]], about: Description) -> None:
    """Write the ``files`` of a release into ``folder``, each by its function, and the files that describe them.

    Raises `DataError` when something cannot be written.
    """
    with named_failures(folder.public, _AGAIN):
        for name in files:
            make_folder((folder.staging / name).parent)
        begun_before = {name: future.result for name, future in folder.writing.items()}
        # The longest first, so that none of them is written by one thread after all the others are finished.
        left = sorted((name for name in files if name not in begun_before), key=lambda name: ESTIMATED not in name)
        # All writers end before the folder is removed.
        by_now = map_ordered(lambda name: _failure(files[name]), left, folder.executor, at_once=True)
        ended = [*by_now, *(result() for result in begun_before.values())]
        for error in ended:
            if error is not None:
                raise error
        write_books(folder.staging, {name: folder.staging / name for name in files}, about, folder.executor)


def tables_of(
    folder: Begun, made: Made, about: Description, limits: AnswerLimits | None = None
) -> dict[str, Callable[[], None]]:
    """Functions that write the tables of a release, by their paths in ``folder``; ``limits``: those that its numbers
    keep, if any.
    """
    release, margins, output, files = made.release, made.margins, about.config.output, dict[str, Callable[[], None]]()

    def add(names: Sequence[str], batches: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any) -> None:
        for name in names:
            files[name] = folder.writes(name, partial(batches, *arguments))

    def counts_of(nodes: list[slice] | None) -> Iterator[pa.RecordBatch]:
        beside = {} if margins is None or release.layout is not EVERY_CELL else _beside_cells(made, margins)
        return release.batches(nodes, beside)

    of_cells = {name: one for name, one in made.estimates.items() if isinstance(one, Estimate)}
    if of_cells:
        add([ESTIMATES, *[ESTIMATES_CSV] * output.estimates_csv], _estimate_batches, of_cells, margins)
    if about.measurements.keys:
        add([MEASUREMENTS], about.measurements.batches)
    for name, nodes in nodes_of_files(release).items():
        add([name], counts_of, nodes)
    add([RELEASE_CSV] * output.csv, counts_of, None)
    add([GEOGRAPHY], tree_batches, about.measurements.geography)
    if limits is not None:
        add([LIMITS], limits.batches)
    if output.wide:
        beside_wide = partial(_beside_wide, wide_table(release.cells, release.schema, about.tables), made)
        add([WIDE, *[WIDE_CSV] * output.csv], wide_batches, release, beside_wide)
    if made.replicates:
        add([REPLICATES, *[REPLICATES_CSV] * output.csv], release.layout.replicates, release, made.replicates)

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
        add(names_of(counts, text=output.csv), table_batches, table, release)
        if about.linear_name in made.estimates:  # a release without measurements has none
            add(names_of(estimates, text=output.estimates_csv), beside, table)
    for one in made.areas:
        counts, estimates = area_paths(one.kind)
        add(names_of(counts, text=output.csv), table_batches, one.table, one.release, one.bounded)
        add(names_of(estimates, text=output.estimates_csv), _beside_areas, one, about.linear_name)
    return files


def _beside_areas(one: AreaCounts, linear_name: str) -> Iterator[pa.RecordBatch]:
    """The estimates of areas of one kind."""
    intervals = None if one.bounded is None else one.bounded.intervals
    return estimate_batches(one.table, one.release, linear_name, one.linear, one.reach, intervals, one.levels)


def write_books(staging: Path, written: Mapping[str, Path], about: Description, executor: Executor | None) -> None:
    """Write into ``staging`` the files that describe the tables ``written`` there, by their paths: the codebook, for
    people and for programs, and the manifest. ``executor``: threads that may read the tables for it. Raises `OSError`.
    """
    whole, own, catalogue = whole_tables(written), own_tables(about), about.config.catalogue
    package = data_package(about, whole, own)
    write_json(staging / DATAPACKAGE, package)
    write_json(staging / CSVW, csvw(package["title"], package, catalogue))
    levels = about.measurements.published.levels
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
    without the other; the columns have the names of the estimates.
    """
    (linear_name, linear), (name, non_negative) = estimates.items()
    columns: dict[str, Any] = {linear_name: linear.values, "variance": linear.variance}
    if margins is not None:
        columns |= {name: margins.everywhere(getattr(margins, name)) for name in ("sd", "lower", "upper")}
    columns[name] = non_negative.values
    return tidy_batches(linear.geography, linear.cells, columns, units=True)


def _beside_cells(made: Made, margins: Margins) -> dict[str, Any]:
    """The columns of release.* after the counts: the margin of each, its reliability, and the unit's total with its
    margin; computed for some nodes at a time.
    """
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
            # The number of a unit is repeated for each of its cells.
            known[name] = lambda nodes, what=what: np.repeat(
                getattr(total_at(nodes.start, nodes.stop), what), times, axis=1
            )
    return {**margins.columns, **known}


def _beside_wide(table: AnswerTable, made: Made, nodes: slice) -> dict[str, pa.Array]:
    """The columns of the wide table after the cells and their total: those of other tables, and the margins of all
    columns that have one.
    """
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
