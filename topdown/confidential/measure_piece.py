"""Measures some nodes of a tree, for whole trees and for pieces of them: adds noise of each law to their counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from topdown.confidential.entries import Entries
from topdown.confidential.within_law import Counted, reach_of, require_within_law
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.noise import Source
from topdown.noise.key import chunks_of
from topdown.noise.law import Law, is_lattice_law
from topdown.privacy.bounds import NONE
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import LevelsArray, groups, law_of
from topdown.workload import Query, Schema


class Place(NamedTuple):
    """Where some nodes of a level are among the level's nodes in the whole tree.

    ``level``: its name. ``first``: the place there of the first node. ``taken`` (nodes of the whole level,): the shares
    of how many levels each has, besides its own (`only_child.levels_taken`).
    """

    level: str
    first: int
    taken: LevelsArray


class Streams(Protocol):
    """Where the random bits of noise come from, by the level, the query, the chunk of nodes and the shares of how many
    levels the nodes took."""

    def stream(self, level: str, query: str, chunk: int, taken: int, /) -> Source: ...


def measure_piece(
    entries: Entries,
    tree: Tree,
    schema: Schema,
    plan: Plan,
    streams: Streams,
    places: Mapping[int, Place],
    levels: Sequence[str],
) -> list[dict[Query, Answers]]:
    """The measurements of a piece's nodes, level by level, in narrow types; nothing at levels without a place.

    ``levels``: of the whole tree. ``plan``: `measurable`. ``streams``: those of the counts of the whole tree. Noise
    within bounds depends on the counts of all nodes of its chunk, so that a piece must then have every chunk whole.
    """
    found: list[dict[Query, Answers]] = []
    for index in range(tree.n_levels):
        measured: dict[Query, Answers] = {}
        if index in places:
            nodes = tree.level(index)
            part, count = entries.part(nodes), nodes.stop - nodes.start
            for name in plan.queries(places[index].level):
                query = Query.parse(name, schema)
                values, variance = measure_nodes(part, count, query, plan, streams, places[index], levels)
                measured[query] = Answers(values.T, variance)
        found.append(measured)
    return found


def measure_nodes(
    part: tuple[IntArray, IntArray, IntArray],
    n_nodes: int,
    query: Query,
    plan: Plan,
    streams: Streams,
    place: Place,
    levels: Sequence[str],
) -> tuple[npt.NDArray[Any], FloatArray]:
    """The measured answers (answers x nodes) to a ``query`` at some nodes of a level, and their variances (nodes,).

    ``part``: the nodes' rows, cells and counts, as `Entries.part` gives them; the rest as `measure_piece` takes it. The
    noise of a chunk of nodes comes from the chunk's own stream; of a chunk that extends beyond the nodes, only their
    part is used.
    """
    rows, cells, counts = part
    level, first, taken = place
    law = cache(partial(law_of, plan, levels, level, query.name))
    answers, bounds = query.answers_of(cells), plan.bounds.at(level)
    exact = None if bounds.kind == NONE else query.sparse_answers(rows, cells, counts, n_nodes).T
    noise, variance = _noise(query, n_nodes, plan, streams, place, law, exact)
    counted = Counted(rows, answers, np.where(np.isfinite(variance)[rows], counts, 0))
    values = _added(noise, counted)
    require_within_law(values, counted, reach_of(law, taken[first : first + n_nodes]), level, query.name, bounds)
    return values, variance


def _noise(
    query: Query,
    n_nodes: int,
    plan: Plan,
    streams: Streams,
    place: Place,
    law: Callable[[int], Law | None],
    exact: IntArray | None,
) -> tuple[npt.NDArray[Any], FloatArray]:
    """The noise (answers x nodes) of a level's nodes, and its variances (nodes,); ``exact``: the true answers, where
    the noise is within bounds.
    """
    level, first, taken = place
    variance = np.empty(n_nodes)
    if plan.is_exact(level, query.name):
        variance[:] = 0.0
        return np.zeros((query.n_answers, n_nodes), np.int16), variance
    kinds = {kind: law(kind) for kind in np.unique(taken[first : first + n_nodes]).tolist()}
    usual = np.dtype(np.int64 if plan.released_grid_bits == 0 else np.float64)
    types = [one.narrowest if is_lattice_law(one) and exact is None else usual for one in kinds.values() if one]
    noise = np.zeros((query.n_answers, n_nodes), np.result_type(np.int16, *types))
    for chunk, nodes in chunks_of(len(taken), query.n_answers, first, first + n_nodes):
        for kind, members in groups(taken[nodes], slice(0, nodes.stop - nodes.start)):
            own, drawn = _within(members, nodes.start - first, n_nodes)
            if not variance[own].size:
                continue
            mine = kinds[kind]
            variance[own] = np.inf if mine is None else mine.variance
            if mine is not None:
                count = members.stop if isinstance(members, slice) else len(members)
                true: npt.NDArray[Any] = np.zeros((), np.int16) if exact is None else exact[:, own]
                stream = streams.stream(level, query.name, chunk, kind)
                values = plan.bounds.at(level).sample(true, mine, (query.n_answers, count), stream)
                noise[:, own] = (values - true)[:, drawn]
    return noise, variance


def _within(members: slice | IntArray, begin: int, n_nodes: int) -> tuple[slice | IntArray, slice | IntArray]:
    """Which of a piece's ``n_nodes`` nodes are ``members`` of a chunk, and their places among the members. The chunk
    begins at the piece's node ``begin``, negative if before its first.
    """
    if isinstance(members, slice):
        low, high = max(0, begin), min(n_nodes, begin + int(members.stop))
        return slice(low, high), slice(low - begin, high - begin)
    own = members + begin
    places = np.flatnonzero((own >= 0) & (own < n_nodes))
    return own[places], places


def _added(noise: npt.NDArray[Any], counted: Counted) -> npt.NDArray[Any]:
    """``noise`` (answers x nodes) plus the counts ``counted``, in a type that holds every sum."""
    rows, answers, counts = counted
    if not len(counts):
        return noise
    n_nodes = noise.shape[1]
    at = answers * n_nodes + rows
    if not (at[1:] > at[:-1]).all():
        order = np.argsort(at, kind="stable")
        at = at[order]
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        counts, at = np.add.reduceat(counts[order], starts), at[starts]
    sums = counts + noise.reshape(-1)[at]
    if noise.dtype.kind == "f":
        noise.reshape(-1)[at] = sums
        return noise
    least, most = int(sums.min()), int(sums.max())
    kinds = (noise.dtype, np.dtype(np.int32), np.dtype(np.int64))
    kind = next(kind for kind in kinds if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max)
    held = noise.astype(kind, copy=False)
    held.reshape(-1)[at] = sums
    return held
