"""A task of a simulation: draws and projects replicates chunk by chunk, and sums up their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.noise import KeyedSource, Law, SeededSource
from topdown.privacy.bounds import NONE, LevelBounds
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.families import descend
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.histograms.whole import settler
from topdown.projection.invariants import Contradiction
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import Problem
from topdown.projection.rounding_method import rounding_named
from topdown.projection.solver_inputs import descent_of_answers
from topdown.studies.batch_means import ABSOLUTE, BATCHES, BIAS, NET, SQUARE, Of, batch_of
from topdown.studies.decisions.rules import Decision, GroupMean
from topdown.studies.draws import DrawnQuery, aligned_draws, draw_answers, measured_answers
from topdown.studies.followed import Followed, Reported
from topdown.studies.interval_coverage import FollowedIntervals
from topdown.studies.methods import StudiedMethod
from topdown.studies.moments import Accumulated
from topdown.workload import Query


@dataclass(frozen=True, eq=False)
class Simulation:
    """The input of every task: the problem, the laws by level, what to follow; ``chunk``: replicates that are drawn
    together.
    """

    tree: Tree
    truth: FloatArray  # (cells, nodes), of the histograms
    followed: Followed
    reported: Reported  # the rows of the table: these nodes, or sums of them
    answers: FloatArray  # (answers, rows), those that are followed of the truth
    variance: FloatArray  # (nodes,)
    lower: FloatArray | None
    resolution: FloatArray  # (rows,), at most which an estimate is 0
    laws: tuple[Law | None, ...]
    bounds: tuple[LevelBounds, ...]
    methods: tuple[StudiedMethod, ...]
    rules: tuple[Decision, ...]
    decided: Mapping[str, FloatArray]  # by rule but for means of groups what is decided on the truth, (units,)
    width: FloatArray | None  # (answers * rows,), None without distances
    least_squares: FloatArray  # (rows x answers), exact variances of sums of nodes; empty without such
    queries: tuple[DrawnQuery, ...]  # where more than the cells are measured: everything that is
    components: Components | None
    patterns: Patterns | None
    limits: AnswerLimits | None
    order: Mapping[str, tuple[tuple[Query, ...], ...]]  # by projection the queries that it settles first, by level
    seed: int
    chunk: int
    replicates: int  # of the whole study
    impossible: IntArray  # (cells,), those in which no record can be
    intervals: FollowedIntervals | None = None


def run_task(task: tuple[Simulation, int, int]) -> Accumulated:
    """Replicates ``first`` to ``last`` of a study, chunk by chunk."""
    study, first, last = task
    linear = StudiedMethod.parse("gls")
    found = Accumulated()
    while first < last:
        chunk, start = divmod(first, study.chunk)
        rows = slice(start, min(start + last - first, study.chunk))
        if study.components is None:
            estimated = _of_cells(study, chunk, rows)
        else:
            estimated = _of_answers(study, study.components, chunk, rows)
        needed = () if study.intervals is None else (linear, study.intervals.method)
        kept: dict[StudiedMethod, FloatArray] = {}
        for method in dict.fromkeys([*study.methods, *needed]):
            x = estimated(method)
            if method in needed:
                kept[method] = x
            if method in study.methods:
                _follow(study, method, x, first, found)
        if study.intervals is not None:
            found.add_coverage(_covered(study, study.intervals, *(kept[method] for method in needed)))
        first += rows.stop - rows.start
    return found.packed()


Estimated = Callable[[StudiedMethod], FloatArray]
"""By a method the answers (replicates, answers, nodes) that are followed, of some replicates."""


def _of_cells(study: Simulation, chunk: int, rows: slice) -> Estimated:
    """The estimates of the replicates ``rows`` of a chunk where the cells alone are measured; every method breaks ties
    by a stream of its own."""
    raw = draw(study, chunk)[rows]
    values = np.array(raw) if len(study.impossible) else raw
    values[:, study.impossible] = 0.0  # at every node, so that every method gives 0 there
    problem = Problem(values, study.variance, study.tree, nonnegative=False, lower=study.lower)

    def estimated(method: StudiedMethod) -> FloatArray:
        ties = SeededSource((study.seed, chunk, rows.start, "ties", method.label))
        x = method.apply(problem._replace(values=raw) if method.is_raw else problem, ties)
        return np.asarray(study.followed.answers(x))

    return estimated


def _covered(study: Simulation, intervals: FollowedIntervals, linear: FloatArray, released: FloatArray) -> FloatArray:
    """What `FollowedIntervals.counted` counts of estimates at the nodes, at the units that are published."""
    units = slice(0, study.reported.units.n_nodes)
    x, whole = (study.reported.at(one)[..., units] for one in (linear, released))
    return intervals.counted(x, whole, study.answers[:, units])


def _of_answers(study: Simulation, components: Components, chunk: int, rows: slice) -> Estimated:
    """The estimates of the replicates ``rows`` of a chunk where several queries are measured."""
    measured = draw_answers(study.queries, study.tree, study.truth, study.chunk, (study.seed, chunk), rows)

    def estimated(method: StudiedMethod) -> FloatArray:
        if method.is_raw:
            return measured_answers(measured, study.tree, study.followed, rows.stop - rows.start)
        if method.nonnegative:
            ties = SeededSource((study.seed, chunk, rows.start, "ties", method.label))
            keys = [ties.read(32) for _ in range(rows.stop - rows.start)]
            return np.stack([_by_families(study, method, measured, row, key) for row, key in enumerate(keys)])
        histograms = method.its_method.for_histograms().solve(study.tree, components, measured)[0]
        return np.asarray(study.followed.answers(histograms.swapaxes(1, 2)))

    return estimated


def _by_families(
    study: Simulation, method: StudiedMethod, measured: list[dict[Query, Answers]], row: int, key: bytes
) -> FloatArray:
    """The answers (answers, nodes) of one replicate's non-negative histograms; whole ones where the method rounds, with
    ties broken by ``key``."""
    if study.patterns is None:  # not where more than the cells are measured
        raise ValueError("families of histograms need the patterns of their queries")
    mine = [{q: Answers(one.values[row], one.variance) for q, one in level.items()} for level in measured]
    start = study.tree.n_levels - 1 if method.upward else 0
    order = () if method.at_once else study.order[method.projection]
    descent = descent_of_answers(study.tree, mine, study.patterns, start, study.limits, order)
    descent = replace(descent, whole_total=method.rounded)
    settle = settler(descent, rounding_named("nearest"), KeyedSource(key)) if method.rounded else None
    try:
        histograms = descend(descent, method.its_method.for_families(), settle=settle).histograms
    except Contradiction as contradiction:
        raise ProjectionError(f"in a replicate, node {contradiction.node}: {contradiction}") from None
    return study.followed.sparse_answers(histograms)


def draw(study: Simulation, chunk: int) -> FloatArray:
    """The measurements (replicates, cells, nodes) of one chunk; each level has streams of its own."""
    values = np.empty((study.chunk, *study.truth.shape))
    for level, law in enumerate(study.laws):
        nodes = study.tree.level(level)
        values[..., nodes] = study.truth[:, nodes]
        if law is not None and (study.variance[nodes] > 0).any():
            key = (study.seed, chunk, level)
            size = (study.chunk, len(study.truth), nodes.stop - nodes.start)
            if study.bounds[level].kind != NONE:
                exact = study.truth[:, nodes].astype(np.int64)
                values[..., nodes] = study.bounds[level].sample(exact, law, size, SeededSource(key))
            else:
                values[..., nodes] += aligned_draws(law, size, key)
    return values


def _follow(study: Simulation, method: StudiedMethod, x: FloatArray, first: int, found: Accumulated) -> None:
    """Add the errors of estimates (replicates, answers, nodes), and of decisions taken on them; ``first``: the number
    of the first replicate."""
    labels, label, tree = study.followed.labels, method.label, study.reported.units.tree
    x = study.reported.at(x)
    by_replicate = x - study.answers
    errors = np.ascontiguousarray(by_replicate.reshape(len(x), -1).T)
    zero = np.abs(x) <= study.resolution
    found.add_errors(label, errors, np.count_nonzero(zero, axis=0).reshape(-1))
    means = _level_means(errors.reshape(*study.answers.shape, len(x)), zero, list(study.reported.levels.values()))
    found.add_level_means(label, means)
    if study.width is not None:
        found.add_histogram(label, errors, study.width)
    batches = batch_of(first + np.arange(len(x)), study.replicates)

    def keep(measure: str, of: str, grouping: str, values: FloatArray) -> None:
        found.add_to_batches(Of(label, measure, of, grouping), values, batches, min(study.replicates, BATCHES))

    for number, measure in enumerate((BIAS, SQUARE)):
        for cell, name in enumerate(labels):
            keep(measure, name, "", means[number, cell].T)
    wrong: dict[str, FloatArray] = {}

    def error_of(rule: Decision) -> FloatArray:
        if rule.label not in wrong:
            wrong[rule.label] = rule.outcome(x, labels, tree) - study.decided[rule.label]
        return wrong[rule.label]

    for rule in study.rules:
        if not isinstance(rule, GroupMean):
            found.add_rule((label, rule.label), error_of(rule))
            keep(ABSOLUTE, rule.label, "", np.abs(error_of(rule)).mean(axis=1, keepdims=True))
            continue
        if isinstance(rule.of, str):
            of_groups = rule.means(rule.at_leaves(by_replicate, labels, tree))
            keep(BIAS, rule.of, rule.name, of_groups)
        else:
            of_groups = rule.means(error_of(rule.of))
            keep(NET, rule.of.label, rule.name, of_groups)
            keep(ABSOLUTE, rule.of.label, rule.name, rule.means(np.abs(error_of(rule.of))))
        found.add_rule((label, rule.label), of_groups[:, rule.by.code])


def _level_means(errors: FloatArray, zero: npt.NDArray[np.bool_], levels: Sequence[slice]) -> FloatArray:
    """(3, cells, levels, replicates): means of `LEVEL_QUANTITIES` over the rows of every one of ``levels``.

    ``errors`` (cells, rows, replicates); ``zero`` (replicates, cells, rows).
    """
    found = np.empty((3, len(errors), len(levels), errors.shape[-1]))
    for level, nodes in enumerate(levels):
        part = errors[:, nodes]
        found[0, :, level] = part.mean(axis=1)
        found[1, :, level] = np.einsum("cnr,cnr->cr", part, part) / part.shape[1]
        found[2, :, level] = zero[:, :, nodes].mean(axis=2).T
    return found
