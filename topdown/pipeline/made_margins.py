"""Computes the margins of error of a release, and the manifest's statement on them.

Every released count has an interval if zeros have rows, too: in release.* where the cells alone were measured, in
estimates.* and in the tables. For several queries the rows of release.* are the cells with records; cells without a row
would have no interval, although theirs says the most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, NamedTuple

from topdown.config.derivation import Output
from topdown.errors import ConfigError
from topdown.geography.unit_sums import area_sums
from topdown.machine.parallel import map_ordered
from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.linear_answers import LinearAnswers
from topdown.projection.published_estimates import error_sums, estimates_at
from topdown.release.answer_files import AreaCounts, Bounded, estimated
from topdown.release.layouts import EVERY_CELL
from topdown.release.whole_counts import Release
from topdown.uncertainty.interval import interval
from topdown.uncertainty.intervals import Intervals
from topdown.uncertainty.laws.answer_laws import AnswerLaws
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.uncertainty.margin_words import OF_CELLS, OF_QUERIES, describe_margins
from topdown.uncertainty.margins import Margins, Reach, margins_of
from topdown.workload.answer_tables import CELLS, AnswerTable, stated_table, total_table, wide_table

_ELSEWHERE = (
    "several queries were measured, and neither the estimates of all cells (output.estimates) nor tables "
    "(output.tables) are published, in which what has no records has a row; td.margins and topdown query compute "
    "margins from the measurements"
)
_NOT_WRITTEN = "output.margins = false; td.margins and topdown query compute margins from the measurements"


class MadeMargins(NamedTuple):
    """``margins`` of every cell, if any; ``of_tables``: those of tables, by name; ``reach``: of the answers in tables;
    ``said``: the manifest's entry on margins; ``total``: the margins of the total, beside the cells; ``wide``: those of
    the columns of the wide table.
    """

    margins: Margins | None
    of_tables: dict[str, Intervals]
    reach: Reach
    said: dict[str, Any]
    total: Bounded | None = None
    wide: Bounded | None = None


def made_margins(
    measurements: Measurements,
    estimates: Mapping[str, object],
    release: Release,
    output: Output,
    tables: Sequence[AnswerTable] = (),
    executor: Executor | None = None,
    *,
    of_tables: dict[str, Intervals] | None = None,
    laws: Future[AnswerLaws | None] | None = None,
) -> MadeMargins:
    """The margins that ``output`` asks for, of what was made of ``measurements`` with or without ``tables``, by threads
    of ``executor``; ``of_tables``: the result of `table_intervals`, ``laws``: the future result of `laws_beforehand`,
    if they were computed before.

    There are none where the law of the noise is not known. There are none of cells where several queries were measured
    and the estimates of all cells are not published.
    """
    # If no thread has begun, this is computed here, and does not wait for other tasks.
    found = None if laws is None or laws.cancel() else laws.result()
    confidence, linear = output.confidence, estimates.get("unbiased")
    reason = None if found is not None else no_margins(measurements) if output.margins else _NOT_WRITTEN
    if reason is not None:
        reach = Reach.of(measurements, confidence) if tables and output.margins else Reach(1.0 - confidence)
        return MadeMargins(None, {}, reach, describe_margins(confidence, reason))
    known = _laws(measurements, output) if found is None else found
    reach = Reach.of(measurements, confidence, known) if tables else Reach(1.0 - confidence)
    if of_tables is None:
        of_tables = table_intervals(measurements, linear, output, tables, executor, known)
    several = bool(measurements.others)
    cells, margins = linear if isinstance(linear, Estimate) else None, None
    if output.with_margins("tables", [CELLS]) and not (several and (cells is None or cells.variance is None)):
        margins = margins_of(
            measurements,
            release,
            confidence=confidence,
            linear=cells,
            laws=known,
            executor=executor,
            levels=None if output.margins is True else _levels(measurements, output),
        )
    total, wide = _beside_cells(measurements, linear, output, tables, known)
    reason = _ELSEWHERE if margins is None and not of_tables else None
    where = _where(measurements, output, [*of_tables, *([] if margins is None else [CELLS])])
    said = describe_margins(confidence, reason, OF_QUERIES if several else OF_CELLS, where)
    return MadeMargins(margins, of_tables, reach, said, total, wide)


def _beside_cells(
    measurements: Measurements, linear: object, output: Output, tables: Sequence[AnswerTable], laws: AnswerLaws
) -> tuple[Bounded | None, Bounded | None]:
    """The bounds of the total in release.* and of the columns of release_wide.*, where margins are asked for there."""
    if not output.with_margins("tables", [CELLS]) or not isinstance(linear, Estimate | LinearAnswers):
        return None, None
    levels, tree, schema = _levels(measurements, output), measurements.published.tree, measurements.schema

    def bounded(table: AnswerTable) -> Bounded:
        columns = laws.of_columns([(column.query, column.answer) for column in table.columns])
        alpha = 1.0 - output.confidence
        return Bounded(
            table, linear, Intervals.of(partial(estimated, table, linear), columns, tree, alpha, levels), levels
        )

    total = bounded(total_table(schema)) if len(measurements.cells) > 1 and not measurements.others else None
    if not output.wide:
        return total, None
    if isinstance(linear, Estimate):
        return total, bounded(wide_table(measurements.cells, schema, tables))
    # For several queries: the columns that were estimated for other tables, and the total.
    asked = [column for table in (total_table(schema), *tables) for column in table.columns]
    return total, bounded(AnswerTable(CELLS, CELLS, tuple(dict.fromkeys(asked))))


def made_areas(
    measurements: Measurements,
    estimates: Mapping[str, object],
    release: Release,
    output: Output,
    tables: Sequence[AnswerTable] = (),
) -> list[AreaCounts]:
    """The published areas of every kind, from the ``release`` and the ``estimates`` of the nodes of a spine, with or
    without ``tables``.
    """
    sums, known_sums = area_sums(measurements.geography), area_sums(measurements.kept.geography)
    measurements = measurements.kept
    linear = next((one for one in estimates.values() if isinstance(one, Estimate | LinearAnswers)), None)
    if not sums or linear is None:
        return []
    known = output.margins is not False and no_margins(measurements) is None
    errors, found = error_sums(measurements), list[AreaCounts]()
    table = stated_table(release.cells if release.layout is EVERY_CELL else None, release.schema, tables)
    columns = [(column.query, column.answer) for column in table.columns]
    for kind, all_units in sums.items():
        # The levels whose measurements were kept.
        units = known_sums[kind]
        own, at = estimates_at(units, linear, errors), range(units.geography.tree.n_levels)
        laws, bounded = AnswerLaws.of(measurements, units) if known else None, None
        reach = Reach.of(measurements, output.confidence, laws) if output.margins else Reach(1.0 - output.confidence)
        if laws is not None and units is all_units:
            find, of_columns, alpha = partial(estimated, table, own), laws.of_columns(columns), 1.0 - output.confidence
            bounded = Bounded(table, own, Intervals.of(find, of_columns, units.geography.tree, alpha), at)
        levels = at if output.margins else ()
        found.append(AreaCounts(kind, table, release.at(all_units), own, reach, bounded, levels))
    return found


def _levels(measurements: Measurements, output: Output) -> list[int]:
    """The numbers of the levels that have margins, root first."""
    levels = measurements.published.levels
    return [levels.index(level) for level in output.with_margins("levels", levels)]


def _laws(measurements: Measurements, output: Output) -> AnswerLaws:
    """The laws of errors down to the last level that has margins."""
    last = measurements.published.tree.level(_levels(measurements, output)[-1]).stop
    return AnswerLaws.of(measurements).of_first(last)


def _where(measurements: Measurements, output: Output, tables: Sequence[str]) -> str:
    """States which margins a release has, where it does not have all."""
    if output.margins is True:
        return ""
    levels = output.with_margins("levels", measurements.published.levels)
    return (
        f" Of these tables alone there are margins: {', '.join(tables)} ({CELLS}: release.* and estimates.*); at these "
        f"levels alone: {', '.join(levels)}. td.margins and topdown query compute others from the measurements."
    )


def laws_beforehand(measurements: Measurements, output: Output) -> AnswerLaws | None:
    """The laws of the cells' errors, with the tables by which their intervals are computed. They depend on variances
    alone, so that they can be computed before there is an estimate. None where the cells alone were not measured, or
    there are no margins.
    """
    if measurements.others or not output.margins:
        return None
    try:
        laws = _laws(measurements, output)
    except ConfigError:
        # The reason is stated where the margins are made.
        return None
    for shape in laws.of_cells:
        interval(shape, 1.0 - output.confidence)
    return laws


def table_intervals(
    measurements: Measurements,
    linear: object,
    output: Output,
    tables: Sequence[AnswerTable],
    executor: Executor | None = None,
    laws: AnswerLaws | None = None,
) -> dict[str, Intervals]:
    """The intervals that ``output`` asks for of ``tables`` around the estimates ``linear``, by the tables' names,
    computed by threads of ``executor``; none where there are no margins. ``laws``: of the errors, if they are known
    already.
    """
    tables = [table for table in tables if output.with_margins("tables", [table.name])]
    if not (tables and _levels(measurements, output) and isinstance(linear, Estimate | LinearAnswers)):
        return {}
    if laws is None and no_margins(measurements) is not None:
        return {}
    known, tree = _laws(measurements, output) if laws is None else laws, measurements.published.tree
    levels = _levels(measurements, output)

    def found(table: AnswerTable) -> Intervals:
        columns = known.of_columns([(column.query, column.answer) for column in table.columns])
        return Intervals.of(partial(estimated, table, linear), columns, tree, 1.0 - output.confidence, levels)

    return {table.name: one for table, one in zip(tables, map_ordered(found, tables, executor), strict=True)}
