"""The public directory of a release: all of its files, which appear together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topdown.errors import DataError
from topdown.machine.files import make_folder, whole_folder
from topdown.machine.parallel import map_ordered
from topdown.machine.software import version_of
from topdown.measurements.measurements import Measurements, NotKept
from topdown.privacy.plan import Plan
from topdown.projection.conditions import Conditions
from topdown.projection.estimate import Estimate
from topdown.projection.limits import AnswerLimits
from topdown.projection.linear_answers import LinearAnswers
from topdown.projection.whole import WholeProjection
from topdown.release.answer_tables import ESTIMATED, FOLDER, Intervals, Reach, estimate_batches, paths_of, table_batches
from topdown.release.catalogue import CSVW, DCAT, UNKNOWN, Catalogue, csvw, dcat
from topdown.release.codebook import DATAPACKAGE, README, Own, answer_table, data_package, in_words, sparse_release
from topdown.release.histograms import HistogramRelease
from topdown.release.known_variances import STATEMENT
from topdown.release.manifest import SCHEMA_VERSION, described_file
from topdown.release.partition import RELEASE, is_part, parts_of_release, whole_tables
from topdown.release.release import Release
from topdown.release.wide import wide_batches
from topdown.tables.geography_table import geography_batches
from topdown.tables.tidy import tidy_batches, write_csv, write_json, write_parquet, write_text
from topdown.wording import FAILED, reason, shown_path
from topdown.workload.answer_tables import AnswerTable

if TYPE_CHECKING:
    from topdown.uncertainty.margins import Margins

Manifest: TypeAlias = Callable[[Mapping[str, Mapping[str, Any]]], dict[str, Any]]
"""What makes the manifest of what is said of every file, by its path."""

GEOGRAPHY = "geography.parquet"
MEASUREMENTS = "measurements.parquet"
ESTIMATES = "estimates.parquet"
RELEASE_CSV = "release.csv"
WIDE = "release_wide.parquet"
WIDE_CSV = "release_wide.csv"
ESTIMATES_CSV = "estimates.csv"
LIMITS = "limits.parquet"


@dataclass(frozen=True)
class Begun:
    """A folder ``staging`` beside ``public`` in which what was measured is being written, or will be: by file, what
    writes it or is writing it. ``marks``: what every table says of itself.
    """

    public: Path
    staging: Path
    measurements: Measurements
    marks: Mapping[str, str]
    limits: AnswerLimits | None
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
    public: Path,
    measurements: Measurements,
    limits: AnswerLimits | None = None,
    *,
    fit_for_release: bool,
    executor: Executor | None = None,
) -> Iterator[Begun]:
    """A folder for a release of ``measurements`` and ``limits``, which takes the name ``public`` when the block ends,
    and vanishes when it fails.

    Measurements and units, which are known, are written by ``executor`` in the meantime: the solution leaves processors
    idle. ``fit_for_release``: whether the release will be. Raises `DataError` when something cannot be written; nothing
    then has a final name.
    """
    writing: dict[str, Future[Exception | None]] = {}
    abandoned = Event()

    def leave() -> None:
        abandoned.set()
        for future in writing.values():
            future.cancel()
        wait(writing.values())  # before the folder goes away beneath one that is still at work

    with ExitStack() as held:
        with named_failures(public):
            staging = held.enter_context(whole_folder(public))
        held.callback(leave)
        found = Begun(
            public, staging, measurements, marks_of(fit_for_release=fit_for_release), limits, writing, executor
        )
        if executor is not None:
            known = {MEASUREMENTS: measurements.batches(), GEOGRAPHY: geography_batches(measurements.geography)}
            for name, batches in known.items():
                wanted = takewhile(lambda _: not abandoned.is_set(), batches)
                writing[name] = executor.submit(_failure, found.parquet(name, wanted))
        yield found
        with named_failures(public):
            held.pop_all().close()


@contextmanager
def named_failures(public: Path) -> Iterator[None]:
    """What the system refuses, as a `DataError` that names ``public``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{shown_path(public)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path, "
            "and run again: the noise will be the same"
        ) from None


def publish(
    folder: Begun,
    estimates: Mapping[str, Estimate | LinearAnswers | WholeProjection],
    release: Release | HistogramRelease,
    manifest: Manifest,
    *,
    title: str,
    plan: Plan | None,
    notices: Sequence[str],
    reach: Reach,
    catalogue: Catalogue = UNKNOWN,
    csv: bool,
    wide: bool = False,
    estimates_csv: bool = False,
    tables: Sequence[AnswerTable] = (),
    confidence: float = 0.9,
    margins: Margins | None = None,
    margins_in_words: Sequence[str] = (),
    intervals: Mapping[str, Intervals] | None = None,
) -> None:
    """Write the tables, what describes them, and the ``manifest`` into ``folder``.

    ``title``, ``plan`` and ``notices`` are for the codebook that lies beside them, ``catalogue`` for catalogues;
    ``csv``, ``wide``, ``estimates_csv`` and ``tables`` say which tables there are beside the others. ``confidence`` and
    ``reach``: of the margins in ``tables``; ``margins``: the intervals in release.* and estimates.*, if any;
    ``intervals``: those in ``tables``, by name; ``margins_in_words``: what the codebook says of them. Raises
    `DataError` when something cannot be written.
    """
    measurements, staging = folder.measurements, folder.staging
    linear = {name: one for name, one in estimates.items() if not isinstance(one, WholeProjection)}
    linear_name = next(iter(linear), "unbiased")
    of_cells = {name: one for name, one in estimates.items() if isinstance(one, Estimate)}
    own = sparse_release(release.schema) if isinstance(release, HistogramRelease) else {}
    for table in tables:
        own = {**own, **answer_table(table, linear_name, confidence, reach)}
    of_tables = intervals or {}

    def beside_table(table: AnswerTable) -> Iterator[pa.RecordBatch]:
        return estimate_batches(table, release, linear_name, linear[linear_name], reach, of_tables.get(table.name))

    def released() -> Iterator[pa.RecordBatch]:
        if margins is None or isinstance(release, HistogramRelease):
            return release.batches()
        return release.batches(margins.columns)

    def in_files() -> dict[str, Iterator[pa.RecordBatch]]:
        return parts_of_release(release) if isinstance(release, HistogramRelease) else {RELEASE: released()}

    parquet, text = folder.parquet, folder.csv
    with named_failures(folder.public):
        writers = {
            MEASUREMENTS: parquet(MEASUREMENTS, measurements.batches()),
            **{name: parquet(name, batches) for name, batches in in_files().items()},
            GEOGRAPHY: parquet(GEOGRAPHY, geography_batches(release.geography)),
        }
        if of_cells:
            writers = {ESTIMATES: parquet(ESTIMATES, _estimate_batches(of_cells, margins)), **writers}
        if folder.limits is not None:
            writers[LIMITS] = parquet(LIMITS, folder.limits.batches())
        if csv:
            writers[RELEASE_CSV] = text(RELEASE_CSV, released())
        if wide:
            dense = release if isinstance(release, Release) else release.dense(_exact(measurements, of_cells))
            writers[WIDE] = parquet(WIDE, wide_batches(dense))
            if csv:
                writers[WIDE_CSV] = text(WIDE_CSV, wide_batches(dense))
        if of_cells and estimates_csv:
            writers[ESTIMATES_CSV] = text(ESTIMATES_CSV, _estimate_batches(of_cells, margins))
        if tables:
            make_folder(staging / FOLDER)
        if any(map(is_part, writers)):
            make_folder(staging / RELEASE)
        for table in tables:
            counts, beside = paths_of(table)
            writers[f"{counts}.parquet"] = parquet(f"{counts}.parquet", table_batches(table, release))
            writers[f"{beside}.parquet"] = parquet(f"{beside}.parquet", beside_table(table))
            if csv:
                writers[f"{counts}.csv"] = text(f"{counts}.csv", table_batches(table, release))
            if estimates_csv:
                writers[f"{beside}.csv"] = text(f"{beside}.csv", beside_table(table))
        begun_before = {name: future.result for name, future in folder.writing.items()}
        # The longest first, so that none of them is left to one thread when all the others are written.
        left = sorted((name for name in writers if name not in begun_before), key=lambda name: ESTIMATED not in name)
        # Every writer ends before the folder goes away beneath one that is still at work.
        by_now = map_ordered(lambda name: _failure(writers[name]), left, folder.executor, at_once=True)
        ended = [*by_now, *(result() for result in begun_before.values())]
        for error in ended:
            if error is not None:
                raise error
        written = {name: staging / name for name in writers}
        write_books(
            staging,
            written,
            manifest,
            title,
            plan,
            measurements,
            notices,
            catalogue,
            own,
            margins_in_words,
            folder.executor,
        )


def write_books(
    staging: Path,
    written: Mapping[str, Path],
    manifest: Manifest,
    title: str,
    plan: Plan | None,
    measurements: Measurements | NotKept,
    notices: Sequence[str],
    catalogue: Catalogue,
    own: Own,
    margins_in_words: Sequence[str],
    executor: Executor | None = None,
) -> None:
    """Write into ``staging`` what describes the tables that are ``written`` there, by their paths: the codebook, for
    people and for programs, and the ``manifest``, of what `described_file` says of each. ``executor``: threads that may
    read the tables for it. Raises `OSError`."""
    whole = whole_tables(written)
    package = data_package(title, whole, notices, own)
    write_json(staging / DATAPACKAGE, package)
    write_json(staging / CSVW, csvw(package["title"], package, catalogue))
    levels = measurements.geography.levels
    statement = STATEMENT if plan is None else plan.describe(levels)
    known = dict(zip(written, map_ordered(described_file, list(written.values()), executor), strict=True))
    write_json(staging / DCAT, dcat(package["title"], package, known, statement, levels, catalogue))
    write_text(staging / README, in_words(title, plan, measurements, whole, notices, own, margins_in_words))
    books = {name: described_file(staging / name) for name in (DATAPACKAGE, CSVW, DCAT, README)}
    write_json(staging / "manifest.json", manifest({**known, **books}))


def _exact(measurements: Measurements, of_cells: Mapping[str, Estimate]) -> npt.NDArray[np.bool_]:
    """Which cells (nodes x cells) are published exactly."""
    if "non_negative" in of_cells:
        return of_cells["non_negative"].exact
    geography = measurements.geography
    held = Conditions.of(geography.tree, [measurements.at(level) for level in geography.levels])
    return held.exact(measurements.schema)


def _failure(write: Callable[[], None]) -> Exception | None:
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
        columns |= {"sd": margins.sd, "lower": margins.lower, "upper": margins.upper}
    columns[name] = non_negative.values
    return tidy_batches(linear.geography, linear.cells, columns, units=True)
