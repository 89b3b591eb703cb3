"""Measures: turns confidential counts into protected measurements, the only such function for whole trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.confidential.bound_streams import code_of_counts
from topdown.confidential.counts import Counts
from topdown.confidential.within_law import Counted, reach_of, require_within_law
from topdown.errors import BudgetError, CountsError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.machine.parallel import map_ordered, thread_pool
from topdown.measurements.measurements import Answers, Measurements, none_measured
from topdown.noise import Law, SecureSource, Source
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.noise.key import NoiseKey, NoiseStreams, chunks
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import GIVEN, LevelsArray, groups, law_of, levels_taken, variances
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema

_LARGEST_STANDARD_DEVIATION = 2.0**45
"""Noise of this standard deviation stays below 2^53, except with a negligible probability."""


_DEVIATIONS = 50.0
"""A draw of the laws here is this many standard deviations away only with a negligible probability."""


def measurable(plan: Plan, levels: Iterable[str], schema: Schema) -> Plan:
    """``plan`` for a geography with these levels and this schema, checked to be measurable, with equal shares filled in
    and queries written as `Query.name` writes them.

    Raises `BudgetError` when the plan and the levels or the schema disagree, or when the noise would not fit a float64.
    """
    plan = plan.for_levels(levels).for_schema(schema)
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
    counts: Counts, plan: Plan, source: Source | NoiseKey | None = None, *, workers: int | None = None
) -> Measurements:
    """Every count plus independent noise of its level's law under ``plan``; the counts of invariant levels as they are.

    The measurements are the answers to the queries that the plan names at each level; those of "detailed" are the
    cells. Draws are exact and on the integers (or on a grid of 2^-k for "laplace" and "gaussian"); where the plan
    bounds a level, they depend on the count and stay within its bounds. Raises `BudgetError` as `measurable` does,
    `CountsError` as `require_room` does.

    Args:
        counts: the confidential counts.
        plan: the budget of every level and query, and the mechanism.
        source: where the random bits come from, by default operating-system entropy; a seeded source gives measurements
            that are marked as not fit for release; a key gives every chunk of nodes and answers the noise of its own
            stream, so that ``workers``, threads (by default one per processor), draw the same, and other counts, or
            another plan, independent noise (`code_of_counts`).
        workers: threads that draw, by default one per processor. More than one draw at a time only with a key.

    Examples:
        >>> measurements = td.measure(counts, plan, source=td.SeededSource(1))  # for a release leave the source out
        >>> measurements.values[:2]
        array([[194,  20],
               [167,  22]])
        >>> measurements.fit_for_release
        False
    """
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
    require_room(counts, plan)
    bits = source.streams(code_of_counts(counts, plan, source)) if isinstance(source, NoiseKey) else source
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
            spread = variances(plan, geography, level, name)
            if name == DETAILED:
                drawn = values[:, nodes]
                variance[nodes] = spread
            else:
                drawn = np.empty((query.n_answers, nodes.stop - nodes.start), kind)
                others[level, name] = Answers(drawn.T, spread)
            law = cache(partial(law_of, plan, geography.levels, level, name))
            draw = partial(_draw, drawn, counts, plan, level, query, law, taken)
            draws += (partial(draw, piece) for piece in _pieces(bits, geography, level, query))
    # Pieces of all queries together: most queries have a single piece, during which other threads would wait.
    with thread_pool(workers if isinstance(source, NoiseKey) else 1) as pool:
        for _ in map_ordered(lambda one: one(), draws, pool):
            pass
    return Measurements(
        geography, counts.cells, values.T, variance, plan, source.fit_for_release, counts.attributes, others
    )


def _draw(
    drawn: npt.NDArray[Any],
    counts: Counts,
    plan: Plan,
    level: str,
    query: Query,
    law: Callable[[int], Law | None],
    taken: LevelsArray,
    piece: _Piece,
) -> None:
    """Write the measurements of a piece into its part of ``drawn`` (answers x nodes of the level)."""
    first = counts.geography.level_slice(level).start
    own = slice(first + piece.nodes.start, first + piece.nodes.stop)
    exact = counts.block(piece.answers, own) if query.name == DETAILED else counts.answers(query, own).T
    is_exact = plan.is_exact(level, query.name)
    laws = _laws(law, taken[own], exact=is_exact)
    drawn[piece.answers, piece.nodes] = _measured(exact, laws, plan, level, piece.source)
    counted = _counted(counts, query, own, piece.answers, is_exact | (taken[own] != GIVEN))
    reach = reach_of(law, taken[own])
    require_within_law(drawn[piece.answers, piece.nodes], counted, reach, level, query.name, plan.bounds.at(level))


def _counted(counts: Counts, query: Query, nodes: slice, asked: slice, measured: npt.NDArray[np.bool_]) -> Counted:
    """Some of the true answers to ``query`` at ``nodes`` where they are ``measured``, counted again from the cells."""
    rows, cells, numbers = counts.part(nodes)
    answers = query.answers_of(cells)
    wanted = (answers >= asked.start) & (answers < asked.stop) & measured[rows]
    return Counted(rows[wanted], answers[wanted] - asked.start, numbers[wanted])


class _Piece(NamedTuple):
    """What is drawn at once: nodes of a level, counted from its first, some answers, and the source of random bits for
    nodes that took the shares of so many levels.
    """

    nodes: slice
    answers: slice
    source: Callable[[int], Source]


def _pieces(source: Source | NoiseStreams, geography: Geography, level: str, query: Query) -> Iterator[_Piece]:
    """A level's answers to ``query`` in the pieces that are drawn one after the other.

    Under a key, a piece has its own stream, so that its noise depends on nothing else; with another source, pieces only
    limit the memory in use.
    """
    where = geography.level_slice(level)
    n_nodes = where.stop - where.start
    if isinstance(source, NoiseStreams):
        for index, nodes in enumerate(chunks(n_nodes, query.n_answers)):
            yield _Piece(nodes, slice(0, query.n_answers), partial(source.stream, level, query.name, index))
        return
    whole = [slice(0, query.n_answers)]
    for answers in geography.tree.blocks(query.n_answers) if query.name == DETAILED else whole:
        yield _Piece(slice(0, n_nodes), answers, lambda _: source)


class _Part(NamedTuple):
    """Nodes of a piece, counted from its first, and the ``law`` of their noise; without a law they are ``unmeasured``
    or exact.

    ``taken``: the shares of how many levels they took, which distinguishes the parts of a piece.
    """

    nodes: slice | IntArray
    taken: int
    law: Law | None
    unmeasured: bool


def _laws(law: Callable[[int], Law | None], taken: LevelsArray, *, exact: bool) -> list[_Part]:
    """The nodes of a level by the ``law`` of their measurement of a query, which depends on ``taken``."""
    return [
        _Part(nodes, kind, None if exact else law(kind), kind == GIVEN and not exact)
        for kind, nodes in groups(taken, slice(0, len(taken)))
    ]


def _measured(
    exact: IntArray, parts: list[_Part], plan: Plan, level: str, source: Callable[[int], Source]
) -> npt.NDArray[Any]:
    """``exact`` (answers x nodes) plus noise of every node's law, within the level's bounds; unchanged for an
    invariant, 0 where nothing is measured.
    """
    found = []
    for nodes, taken, law, unmeasured in parts:
        mine = exact[:, nodes]
        if unmeasured:
            mine = np.zeros_like(mine)
        found.append(mine if law is None else plan.bounds.at(level).sample(mine, law, mine.shape, source(taken)))
    if len(found) == 1:
        return found[0]
    together = np.zeros(exact.shape, np.result_type(*found))
    for part, values in zip(parts, found, strict=True):
        together[:, part.nodes] = values
    return together
