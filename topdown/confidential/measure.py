"""Measures: turns confidential counts into protected measurements, the only such function for whole trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.confidential.bound_streams import code_of_counts
from topdown.confidential.counts import Counts
from topdown.confidential.measure_piece import Place, Streams, measure_nodes
from topdown.errors import BudgetError, CountsError, require_type
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.machine.parallel import map_ordered, thread_pool
from topdown.measurements.declared_constraints import Constraints
from topdown.measurements.measurements import Answers, Measurements, none_measured
from topdown.noise import SecureSource, Source
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.noise.key import NoiseKey, chunks
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import LevelsArray, levels_taken
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema

_LARGEST_STANDARD_DEVIATION = 2.0**45
"""Noise of this standard deviation stays below 2^53, except with a negligible probability."""


_DEVIATIONS = 50.0
"""A draw of the laws here is this many standard deviations away only with a negligible probability."""


def measurable(plan: Plan, levels: Iterable[str], schema: Schema) -> Plan:
    """``plan`` for a geography with these levels and this schema, checked to be measurable, with equal shares filled in
    and queries written as `Query.name` writes them.

    Raises `BudgetError` when the plan and the levels or the schema disagree, or when the noise would not fit a float64,
    `ConfigError` for cells, or answers to a query, with the same name.
    """
    plan = plan.for_levels(levels).for_schema(schema)
    for query in dict.fromkeys((DETAILED, *(query for level in plan.levels for query in plan.queries(level)))):
        Query.parse(query, schema).require_labels()
    for level in plan.levels:
        for query in plan.queries(level):
            law = plan.law(level, query)
            if law is not None and law.variance > _LARGEST_STANDARD_DEVIATION**2:
                asked = "" if query == DETAILED else f", query {shown(query)}"
                raise BudgetError(
                    f"level {shown(level)}{asked}: noise with a standard deviation of {law.variance**0.5:.3g} does not "
                    "fit whole numbers up to 2^53; give it a larger budget, or a share of 0 to leave it out"
                )
    return plan


def require_room(counts: Counts, plan: Plan) -> None:
    """Refuse counts so near to 2^53 that their noisy values, or sums of these, might exceed it. ``plan``: `measurable`.

    Raises `CountsError`, before anything is drawn: afterwards, the budget would be spent on numbers that float64 cannot
    represent.
    """
    geography = counts.geography
    one_cell = all(query == DETAILED for level in geography.levels for query in plan.queries(level))
    largest, noise = counts.of_root.max(initial=0) if one_cell else counts.of_root.sum(), _noise_of_all(geography, plan)
    if LARGEST_WHOLE - int(largest) < _DEVIATIONS * noise:
        raise CountsError(
            f"{geography.describe(0)}: the total is so near to 2^53 that with noise (a standard deviation of "
            f"{noise:.3g} in all) it may exceed it; count in larger units or split the table"
        )


def _noise_of_all(geography: Geography, plan: Plan) -> float:
    """The standard deviation of the sum of all that is measured: of every number, at most."""
    variance = 0.0
    for level in geography.levels:
        nodes = geography.level_slice(level)
        for query in plan.queries(level):
            variance += float(plan.variance(level, query)) * (nodes.stop - nodes.start)
    return math.sqrt(variance)


def measure(
    counts: Counts,
    plan: Plan,
    source: Source | NoiseKey | None = None,
    *,
    constraints: Constraints | None = None,
    workers: int | None = None,
) -> Measurements:
    """Every count plus independent noise of its level's law under ``plan``; the counts of invariant levels as they are.

    The measurements are the answers to the queries that the plan names at each level; those of "detailed" are the
    cells. Draws are exact and on the integers (or on a grid of 2^-k for "laplace" and "gaussian"); where the plan
    bounds a level, they depend on the count and stay within its bounds. Raises `BudgetError` as `measurable` does,
    `CountsError` as `Counts.require_sums` and `require_room` do, and for records in a structural zero.

    Args:
        counts: the confidential counts.
        plan: the budget of every level and query, and the mechanism.
        source: where the random bits come from, by default operating-system entropy; a seeded source gives measurements
            that are marked as not fit for release; a key gives every chunk of nodes and answers the noise of its own
            stream, so that ``workers``, threads (by default one per processor), draw the same, and other counts, or
            another plan, independent noise (`code_of_counts`).
        constraints: structural zeros, which the measurements' schema then has; their bounds are for `project`.
        workers: threads that draw, by default one per processor. More than one draw at a time only with a key.

    Examples:
        >>> measurements = td.measure(counts, plan, source=td.SeededSource(1))  # for a release leave the source out
        >>> measurements.values[:2]
        array([[194,  20],
               [167,  22]])
        >>> measurements.fit_for_release
        False
    """
    require_type(Counts, counts, "counts")
    require_type(Plan, plan, "plan")
    if constraints is not None:
        require_type(Constraints, constraints, "constraints")
        counts = counts.with_zeros(constraints)
    source = SecureSource() if source is None else source
    return _measurements(counts, plan, source, np.dtype(np.int64), workers)


def measure_narrow(
    counts: Counts, plan: Plan, source: Source | NoiseKey, *, workers: int | None = None
) -> Measurements:
    """As `measure`, in 32 bits where all whole numbers fit: of a large tree they are the most that is held. ``plan``:
    `measurable`."""
    most = int(counts.of_root.sum()) + _DEVIATIONS * _noise_of_all(counts.geography, plan)
    return _measurements(counts, plan, source, np.dtype(np.int32 if most < 1 << 31 else np.int64), workers)


def _measurements(
    counts: Counts, plan: Plan, source: Source | NoiseKey, whole: np.dtype[Any], workers: int | None
) -> Measurements:
    geography, schema = counts.geography, counts.schema
    plan = measurable(plan, geography.levels, schema)
    counts.require_sums()
    require_room(counts, plan)
    streams: Streams
    if isinstance(source, NoiseKey):
        streams = source.streams(code_of_counts(counts, plan, source))
    else:
        streams = _OneSource(source)
    kind = whole if plan.released_grid_bits == 0 else np.dtype(np.float64)
    some = any(DETAILED in plan.queries(level) for level in geography.levels)
    values = (np.zeros if some else none_measured)((len(counts.cells), geography.n_nodes), kind)
    variance = np.full(geography.n_nodes, np.inf)
    others = {}
    taken = levels_taken(plan, geography)
    draws: list[Callable[[], None]] = []
    for level in geography.levels:
        nodes = geography.level_slice(level)
        for name in plan.queries(level):
            query = Query.parse(name, schema)
            drawn, spread = values[:, nodes], variance[nodes]
            if name != DETAILED:
                drawn, spread = np.empty((query.n_answers, nodes.stop - nodes.start), kind), np.empty_like(spread)
                others[level, name] = Answers(drawn.T, spread)
            draw = partial(_draw, drawn, spread, counts, plan, query, level, taken[nodes], streams)
            draws += (partial(draw, chunk) for chunk in chunks(nodes.stop - nodes.start, query.n_answers))
    # Chunks of all queries together: most queries have a single one, during which other threads would wait.
    with thread_pool(workers if isinstance(source, NoiseKey) else 1) as pool:
        for _ in map_ordered(lambda one: one(), draws, pool):
            pass
    return Measurements(
        geography, counts.cells, values.T, variance, plan, source.fit_for_release, counts.attributes, others
    )


def _draw(
    drawn: npt.NDArray[Any],
    spread: FloatArray,
    counts: Counts,
    plan: Plan,
    query: Query,
    level: str,
    taken: LevelsArray,
    streams: Streams,
    chunk: slice,
) -> None:
    """Write the measurements of a ``chunk`` of a level's nodes into its part of ``drawn`` (answers x nodes of the
    level), and their variances into that of ``spread`` (nodes,)."""
    levels, first = counts.geography.levels, counts.geography.level_slice(level).start
    part, place = counts.part(slice(first + chunk.start, first + chunk.stop)), Place(level, chunk.start, taken)
    drawn[:, chunk], spread[chunk] = measure_nodes(part, chunk.stop - chunk.start, query, plan, streams, place, levels)


class _OneSource(NamedTuple):
    """A source that gives all streams, one after the other."""

    source: Source

    def stream(self, *_: int | str) -> Source:
        return self.source
