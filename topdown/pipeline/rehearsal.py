"""The rehearsal: all steps after the draw are run on stand-ins for the measurements before any budget is spent.

Stand-ins are made from the geography and the plan, which are public, and never from the counts: whether a rehearsal on
the counts succeeds would reveal something about them that no budget covers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from topdown.config import DerivationConfig
from topdown.errors import ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.machine.progress import Silent, Stages
from topdown.measurements.measurements import Measurements
from topdown.noise import KeyedSource, SeededSource
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.pipeline.derive import projected
from topdown.pipeline.on_supports import solved_on_supports
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import variances
from topdown.projection.histograms.open_answers import KnownAnswers
from topdown.projection.histograms.support_descent import Tied
from topdown.projection.limits import AnswerLimits, OpenAnswers
from topdown.release.making import project_whole
from topdown.workload import DETAILED, Query, Schema

CELLS = ("no counts", "large counts")
REHEARSED_WHOLE = 4_000
"""Geographies with at most so many nodes are rehearsed as a whole."""

_LEAVES = 800
HISTOGRAM_CELLS = 40_000
"""Leaves times cells of stand-in histograms, about."""

OCCUPIED_CELLS = 64
"""So many cells of a stand-in histogram have records; in real histograms most cells are empty."""
_LEAVES_ON_SUPPORTS, _CELLS_ON_SUPPORTS = 40, 2_000
"""The numbers of leaves, and of cells, for a schema with too many cells for tables."""

_DEVIATIONS = 50.0
SEED = 2020


def rehearse(
    config: DerivationConfig,
    geography: Geography,
    plan: Plan,
    stages: Stages,
    schema: Schema,
    limits: AnswerLimits | None = None,
    known: KnownAnswers | None = None,
) -> None:
    """Project, certify, solve again and round stand-ins, so that failures are found before anything is drawn.

    ``schema``: of the cells. ``limits``: of answers, which the numbers satisfy; ``known``: what is known of a release
    on supports. Whether it succeeds depends on public facts, not on the counts. Raises `ProjectionError`, and
    `ConfigError` for exact queries that cannot be rounded together.
    """
    with stages.stage("rehearsing on stand-in counts"):
        several = any(set(plan.queries(level)) - {DETAILED} for level in geography.levels)
        try:
            if known is not None:
                _on_supports(config, geography, plan, schema, limits, known)
                return
            if several or limits is not None:
                measurements, limits = stand_ins_of_queries(geography, plan, schema, limits)
            else:
                measurements = stand_ins(geography, plan)
            projected(config, measurements, KeyedSource(bytes(32)), Silent(), limits)
        except ProjectionError as error:
            raise ProjectionError(
                f"rehearsed on stand-in counts, before anything was drawn: {error}. Take another projection.method or "
                "projection.solver, or shares that differ less from level to level"
            ) from None


class _AskedStandIns:
    """Stand-in measurements, made when they are asked for: for every node some records in the same few ``cells``
    (``counts``, nodes x cells), and noise; an answer does not depend on what was asked before.
    """

    def __init__(self, geography: Geography, plan: Plan, schema: Schema, cells: IntArray, counts: IntArray) -> None:
        self._geography, self._cells, self._counts = geography, cells, counts
        self._queries = [
            {Query.parse(name, schema): float(plan.variance(level, name)) for name in plan.queries(level)}
            for level in geography.levels
        ]

    def queries(self, index: int) -> dict[Query, float]:
        """As `Asked` has it."""
        return self._queries[index]

    def measured(self, index: int, query: Query, nodes: slice, answers: IntArray) -> IntArray:
        """As `Asked` has it."""
        first = self._geography.tree.level(index).start
        found = query.answers_of(self._cells)
        place = np.minimum(np.searchsorted(answers, found), len(answers) - 1)
        there = answers[place] == found
        exact = np.zeros((nodes.stop - nodes.start, len(answers)))
        for row, counts in zip(exact, self._counts[first + nodes.start : first + nodes.stop], strict=True):
            np.add.at(row, place[there], counts[there])
        rng = np.random.default_rng([SEED, index, list(self._queries[index]).index(query), nodes.start])
        noise = rng.laplace(size=exact.shape) * (self._queries[index][query] / 2) ** 0.5
        return np.asarray(np.rint(exact + noise), np.int64)


def _on_supports(
    config: DerivationConfig,
    geography: Geography,
    plan: Plan,
    schema: Schema,
    limits: AnswerLimits | None,
    known: KnownAnswers,
) -> None:
    """Rehearse on a part of the geography, and on some of the cells, since the root's program has all of them."""
    part, rng = part_of(geography, _LEAVES_ON_SUPPORTS), np.random.default_rng(SEED)
    tree, n_leaves = part.tree, part.tree.n_leaves
    cells = np.sort(rng.permutation(schema.possible_cells())[:_CELLS_ON_SUPPORTS])
    occupied = cells[:: max(1, len(cells) // OCCUPIED_CELLS)]
    leaves = rng.poisson(rng.dirichlet(np.full(len(occupied), 0.2)), (n_leaves, len(occupied)))
    leaves *= rng.integers(0, 200, (n_leaves, 1))
    given = None
    if limits is not None:
        given = OpenAnswers.of_limits(limits.of_leaves(part))
        leaves *= given.there[tree.leaves][:, given.query.answers_of(occupied)]
    nodes = tree.aggregate(np.ascontiguousarray(leaves.T)).T
    tied = None
    if known.tied is not None:
        query = Query(schema, known.tied.query.kept[: len(schema.names)])
        node, place = np.nonzero(nodes)
        tied = Tied.of(query, node, query.answers_of(occupied[place]), nodes[node, place], part.n_nodes)
    of_part = KnownAnswers.of(schema, tree, tied, given, cells)
    if of_part.split is not None:
        leaf, place = np.nonzero(leaves)
        split = of_part.split.split(leaf, occupied[place])
        occupied, column = np.unique(split, return_inverse=True)
        table = np.zeros((n_leaves, len(occupied)), np.int64)
        table[leaf, column.reshape(-1)] = leaves[leaf, place]
        nodes = tree.aggregate(np.ascontiguousarray(table.T)).T
    asked = _AskedStandIns(part, plan, of_part.schema, occupied, nodes)
    solved_on_supports(config, part, of_part, asked, KeyedSource(bytes(32)), Silent())


def load_loops() -> None:
    """Solve two small families of two queries, so that their loops are compiled, or loaded if they were compiled
    before.

    This is for estimates of memory: compiling takes three times as much as loading, and neither is returned.
    """
    geography = Geography(("root", "leaf"), Tree.from_family_sizes([[2]]), pa.array(["r", "a", "b"]))
    schema = Schema.of_cells(["a", "b"])
    answers = {}
    for level, nodes in (("root", 1), ("leaf", 2)):
        answers[level, DETAILED] = (np.ones((nodes, 2), np.int64), 1.0)
        answers[level, "total"] = (np.full((nodes, 1), 2, np.int64), 1.0)
    project_whole(Measurements.from_answers(geography, schema, answers), source=SeededSource(("loops",)), workers=1)


def stand_ins(geography: Geography, plan: Plan) -> Measurements:
    """Measurements as ``plan`` would draw them, of the same variances and kind of numbers, with two cells.

    Noise alone, which leaves many nodes below 0, and noise on counts from 0 to as many as there may be, which differ by
    as much as counts can. Exact levels are exact. Of more than 4,000 nodes a part of as many levels. Always the same
    for the same geography and plan. ``plan``: with its shares filled in, as
    `topdown.confidential.measure.measurable` gives it.
    """
    part = part_of(geography)
    tree, rng = part.tree, np.random.default_rng(SEED)
    variance = np.empty(tree.n_nodes)
    for level in part.levels:
        variance[part.level_slice(level)] = variances(plan, part, level)
    deviation = np.sqrt(np.where(np.isfinite(variance), variance, 0.0))
    grid = 2.0**plan.released_grid_bits
    truth = tree.aggregate(np.stack([np.zeros(tree.n_leaves), _counts(tree, _most(part, plan, deviation), rng)]))
    noise = np.rint(rng.laplace(size=truth.shape) * deviation * (grid / np.sqrt(2.0))) / grid
    values = np.where(np.isinf(variance), 0.0, np.clip(truth + noise, -LARGEST_WHOLE, LARGEST_WHOLE))
    for level in part.levels:
        bounds, nodes = plan.bounds.at(level), part.level_slice(level)
        if bounds.kind != "none":
            values[:, nodes] = bounds.nearest(np.rint(values[:, nodes]).astype(np.int64))
    whole = plan.released_grid_bits == 0
    return Measurements(part, CELLS, (values.astype(np.int64) if whole else values).T, variance, plan)


def stand_ins_of_queries(
    geography: Geography, plan: Plan, schema: Schema, limits: AnswerLimits | None = None
) -> tuple[Measurements, AnswerLimits | None]:
    """As `stand_ins`, of the queries that ``plan`` asks: noise on histograms of which half of the leaves are empty, and
    the others have a few records to many; of a part of the geography with some 40,000 leaves times cells.

    With the ``limits`` of the part, within which the histograms are. Raises `ProjectionError` where none can be.
    """
    part = part_of(geography, max(20, HISTOGRAM_CELLS // schema.n_cells))
    held = limits if limits is None or part is geography else limits.of_leaves(part)
    tree, rng = part.tree, np.random.default_rng(SEED)
    possible = np.sort(rng.permutation(schema.possible_cells())[:OCCUPIED_CELLS])
    leaves = np.zeros((schema.n_cells, tree.n_leaves))
    sizes = np.where(rng.random(tree.n_leaves) < 0.5, 0, 2.0 ** rng.uniform(0, 12, tree.n_leaves)).astype(np.int64)
    mixture = rng.dirichlet(np.full(len(possible), 0.05))
    leaves[possible] = rng.multinomial(sizes, mixture).T
    truth = tree.aggregate(leaves).T
    if held is not None:
        nearby = {(level, DETAILED): (truth[part.level_slice(level)], 1.0) for level in part.levels}
        whole = project_whole(
            Measurements.from_answers(part, schema, nearby), constraints=held, source=SeededSource(("stand-ins",))
        )
        truth = np.concatenate([whole.answers(level, DETAILED) for level in part.levels])
    return noisy(part, plan, schema, lambda level, query: query.answers(truth[part.level_slice(level)]), rng), held


def noisy(
    geography: Geography,
    plan: Plan,
    schema: Schema,
    answers_of: Callable[[str, Query], FloatArray | IntArray],
    rng: np.random.Generator,
) -> Measurements:
    """Stand-ins of what ``plan`` asks of ``schema``: noise of its variances on ``answers_of`` a level to a query (nodes
    x answers)."""
    answers = {}
    grid = 2.0**plan.released_grid_bits
    for level in geography.levels:
        for name in plan.queries(level):
            query, variance = Query.parse(name, schema), variances(plan, geography, level, name)
            true = answers_of(level, query)
            deviation = np.sqrt(np.where(np.isfinite(variance), variance, 0.0) / 2.0)[:, None]
            noise = np.rint(rng.laplace(size=true.shape) * deviation * grid) / grid
            values = true + noise
            answers[level, name] = (values.astype(np.int64) if grid == 1 else values, variance)
    return replace(Measurements.from_answers(geography, schema, answers), plan=plan)


def _most(geography: Geography, plan: Plan, deviation: FloatArray) -> float:
    """The largest total of stand-ins: such that noise, also on sums, stays below 2^53, and within public bounds."""
    room = LARGEST_WHOLE - _DEVIATIONS * float(np.sqrt(np.square(deviation).sum()))
    bounds = [plan.bounds.at(level) for level in geography.levels]
    uppers = [one.pieces[-1][1] for one in bounds if one.kind != "none"]
    return max(0.0, min([room / 2, *(float(upper) for upper in uppers if upper is not None)]))


def _counts(tree: Tree, most: float, rng: np.random.Generator) -> FloatArray:
    """Leaves' counts of all sizes, with uniform logarithms; one has half of everything; together at most ``most``."""
    each = most / (2 * tree.n_leaves)
    leaves: FloatArray = np.floor(2.0 ** (rng.random(tree.n_leaves) * np.log2(max(each, 1.0))))
    leaves *= each >= 1
    leaves[int(rng.integers(tree.n_leaves))] += np.floor(most / 2)
    return leaves


def part_of(geography: Geography, leaves: int = _LEAVES) -> Geography:
    """The geography; of a large one, a few children of every node, down to about ``leaves`` leaves."""
    if geography.n_nodes <= leaves * (REHEARSED_WHOLE // _LEAVES):
        return geography
    tree = geography.tree
    kept: list[IntArray] = [np.zeros(1, np.int64)]
    sizes = []
    for level in range(tree.n_levels - 1):
        parents = kept[-1]
        first, stop = tree.child_offsets[parents], tree.child_offsets[parents + 1]
        branching = max(1, round((leaves / len(parents)) ** (1 / (tree.n_levels - 1 - level))))
        size = np.minimum(stop - first, branching)
        below = np.repeat(first - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))
        sizes.append(size)
        kept.append(below)
    nodes = np.concatenate(kept)
    return Geography(
        geography.levels, Tree.from_family_sizes(sizes), pa.array(geography.identifiers.take(pa.array(nodes)))
    )
