"""simulate(): replicates of measure -> project against the truth, streaming, the same for any number of workers."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor

import numpy as np
import numpy.typing as npt

from topdown.confidential.counts import Counts
from topdown.confidential.measure import measurable, require_room
from topdown.errors import ConfigError, require_type
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.machine.interrupts import held_back
from topdown.machine.parallel import map_ordered, thread_pool, worker_pool
from topdown.privacy.plan import MEASURE, Plan
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.passes import order_of_plan
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.invariants import lower_bounds, settle
from topdown.projection.limits import AnswerLimits
from topdown.studies.batch_means import ABSOLUTE, ALL_UNITS, BIAS, NET, SQUARE, BatchMeans
from topdown.studies.decisions.expression_rules import Rule
from topdown.studies.decisions.rules import Decision, GroupMean
from topdown.studies.draws import asked_queries
from topdown.studies.errors_table import ErrorTable
from topdown.studies.followed import Followed, Reported, compared_law, drawn_law, followed_noise
from topdown.studies.interval_coverage import CoverageOptions, FollowedIntervals, planned
from topdown.studies.linear_variances import bin_widths, linear_variances, summed_variances, widths_by_deviation
from topdown.studies.methods import RAW, StudiedMethod, parse_methods
from topdown.studies.moments import (
    Accumulated,
    error_statistics,
    level_statistics,
    rule_statistics,
    rule_totals,
)
from topdown.studies.replicates import Simulation, run_task
from topdown.studies.residual_bins import BINS
from topdown.studies.resolution import resolution
from topdown.wording import shown
from topdown.workload import DETAILED

REFERENCES = ("noise", "continuous")
LEAST_SQUARES = "least squares"
"""The law that residuals are compared with on a spine: the normal one with the exact variance of least squares. A sum
of nodes has no noise of its own."""

_VALUES_AT_ONCE = 1 << 21
"""Values (replicates x cells x nodes) in one array; decides how many replicates are drawn together."""

_LARGEST_CHUNK = 8192
_TASKS = 16
_CHUNKS_PER_TASK = 12
"""The most chunks of a task: a long study has more tasks, so that progress is shown and an interrupt loses little."""

_ROWS_WITH_DISTANCES = 100_000
"""Distances are computed by default up to so many nodes x cells; a row of bins takes 6 KiB per method."""


def simulate(
    counts: Counts,
    plan: Plan,
    methods: Iterable[str | StudiedMethod],
    replicates: int,
    seed: int,
    *,
    reference: str = "noise",
    rules: Sequence[Decision] = (),
    distances: bool | None = None,
    workers: int | None = 1,
    public_input: bool = False,
    progress: Callable[[int, int], None] | None = None,
    queries: Sequence[str] | None = None,
    limits: AnswerLimits | None = None,
    coverage: CoverageOptions | None = None,
) -> ErrorTable:
    """Errors of projection methods over replicates of drawing noise and projecting.

    Where the counts are of a spine, the errors are of the published units, and of areas (`ErrorTable.areas`).
    Memory does not grow with ``replicates``. The result compares with the truth and is confidential unless the counts
    were declared public. Raises `ConfigError` for an argument of another type, an unknown method, query or reference, a
    method that has no solver of what is measured, or no replicates; `BudgetError` and `CountsError` where `measure`
    refuses the plan or the counts.

    Args:
        counts: the true counts.
        plan: under which noise is drawn.
        methods: labels such as "raw", "top-down", "top-down/equality", "joint/rounded", "gls" (see
            `methods.names`). Mechanisms "laplace" and "gaussian" are drawn from the continuous laws, the others
            exactly and within the plan's bounds.
        replicates: how many.
        seed: of the random numbers; the same seed gives the same table.
        reference: the law that residuals are compared with, "noise" (the law that is drawn) or "continuous" (the
            Laplace or Gaussian of the same parameter). On a spine it is always the normal law with the exact variance
            of least squares.
        rules: decisions to follow.
        distances: whether to compute Wasserstein distances, by default for up to 100,000 nodes x cells.
        workers: processes, None for one per processor; the result does not depend on it.
        public_input: whether the counts are public, such as a published census.
        progress: ``progress(done, replicates)`` is called as replicates are finished; a KeyboardInterrupt keeps what is
            finished, and the table says how many replicates that is.
        queries: whose answers the errors are of, at every level; the cells themselves where it is left out. The label
            of an answer is "sex: female", that of the total "total".
        limits: of answers, within which the counts are and non-negative histograms stay.
        coverage: the published intervals whose coverage is computed.

    Examples:
        >>> study = td.simulate(counts, plan, ["gls", "top-down"], 200, seed=1)
        >>> study["top-down", "bias"].shape
        (7, 2)
    """
    if reference not in REFERENCES:
        raise ConfigError(f"unknown reference {shown(reference)}: give {' or '.join(map(repr, REFERENCES))}")
    if isinstance(replicates, bool) or int(replicates) != replicates or replicates < 1:
        raise ConfigError(f"replicates is {shown(replicates)}; give a whole number of 1 or more")
    require_type(Counts, counts, "counts")
    require_type(Plan, plan, "plan")
    # Refuse what `measure` would refuse.
    plan = measurable(plan, counts.geography.levels, counts.schema)
    require_room(counts, plan)
    followed = Followed.of(counts.schema, counts.cells, queries)
    parsed = parse_methods(methods)
    study = _study(
        counts, plan, parsed, tuple(rules), seed, int(replicates), distances, followed, limits, coverage
    )  # fmt: skip
    tasks = [(study, first, last) for first, last in _ranges(int(replicates), study.chunk)]
    total, done = Accumulated(), 0
    try:
        with worker_pool(workers, len(tasks)) as pool:
            for index, part in enumerate(map_ordered(run_task, tasks, pool)):
                with held_back():  # so that sums are complete
                    total.merge(part, half=index % 2)
                    done = tasks[index][2]
                if progress is not None:
                    progress(done, int(replicates))
    except KeyboardInterrupt:
        if done == 0:
            raise
    with thread_pool(workers) as threads:
        return _table(counts, plan, study, total, done, reference, public_input, threads)


def _study(
    counts: Counts,
    plan: Plan,
    methods: tuple[StudiedMethod, ...],
    rules: tuple[Decision, ...],
    seed: int,
    replicates: int,
    distances: bool | None,
    followed: Followed | None = None,
    limits: AnswerLimits | None = None,
    coverage: CoverageOptions | None = None,
) -> Simulation:
    if plan.only_child != MEASURE:
        raise ConfigError(
            "only_child = 'move-up' is not simulated: a study has one law of noise per level; leave it out"
        )
    followed = Followed.of(counts.schema, counts.cells, None) if followed is None else followed
    geography, tree = counts.geography, counts.geography.tree
    asked = asked_queries(counts.geography, counts.schema, plan, limited=limits is not None)
    for method in (*methods, *(() if coverage is None else (coverage.method,))):
        method.require(several=bool(asked))
        method.require_root(plan, geography.levels, several=bool(asked))
    laws = tuple(drawn_law(plan, level, DETAILED) for level in geography.levels)
    variance = np.empty(geography.n_nodes)
    for level, law in zip(geography.levels, laws, strict=True):
        is_exact = plan.is_exact(level)
        variance[geography.level_slice(level)] = (
            np.inf if law is None and not is_exact else plan.variance(level, continuous=True)
        )
    truth = np.ascontiguousarray(counts.values.T, dtype=np.float64)
    truth, settled = settle(truth, variance, tree, nonnegative=True)
    settled = settled[0] if settled.ndim == 2 else settled
    reported = Reported.of(geography)
    answers = reported.at(followed.answers(truth))
    noise = reported.at(followed_noise(plan, geography, followed)[1])
    squares = np.empty((0, len(answers)))
    if reported.node is not None:
        squares = summed_variances(reported, planned(plan, geography, counts.schema), followed.queries)
    wanted = answers.size <= _ROWS_WITH_DISTANCES if distances is None else distances
    queries = tuple(dict.fromkeys(one.query for one in asked))
    decisions = [rule for rule in rules if not isinstance(rule, GroupMean)]
    within = [one.of for one in rules if isinstance(one, GroupMean) and not isinstance(one.of, str)]
    return Simulation(
        tree=tree,
        truth=truth,
        followed=followed,
        reported=reported,
        answers=answers,
        variance=settled,
        lower=lower_bounds(truth, settled, tree),
        resolution=resolution(noise.min(axis=0) if asked or reported.node is not None else variance, truth),
        laws=laws,
        bounds=tuple(plan.bounds.at(level) for level in geography.levels),
        methods=methods,
        rules=rules,
        decided={
            rule.label: rule.outcome(answers, followed.labels, reported.units.tree) for rule in (*decisions, *within)
        },
        width=None
        if not wanted
        else bin_widths(geography, plan, followed, asked).reshape(-1)
        if reported.node is None
        else widths_by_deviation(_deviation(squares, plan), noise).reshape(-1),
        least_squares=squares,
        seed=seed,
        replicates=replicates,
        chunk=int(np.clip(_VALUES_AT_ONCE // truth.size, 1, _LARGEST_CHUNK)),
        queries=asked,
        components=Components(counts.schema, queries) if asked else None,
        patterns=Patterns(counts.schema, queries) if asked else None,
        limits=limits,
        order={
            method.projection: order_of_plan(plan, geography.levels, counts.schema, method.its_method, None)
            for method in (*methods, *(() if coverage is None else (coverage.method,)))
            if not method.is_raw
        },
        impossible=counts.schema.impossible_cells(),
        intervals=None
        if coverage is None
        else FollowedIntervals.of(coverage, plan, geography, followed, answers[:, : reported.units.n_nodes]),
    )


def _deviation(squares: FloatArray, plan: Plan) -> FloatArray:
    """The standard deviations (answers, rows) of exact variances; not known of noise within bounds."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.where(plan.bounds.any, np.nan, squares).T)


def _ranges(replicates: int, chunk: int) -> list[tuple[int, int]]:
    """Ranges of replicates for the tasks; a function of the problem alone, never of the workers."""
    chunks = -(-replicates // chunk)
    if chunks == 1:
        # At least two tasks: distances are corrected by comparing two halves of the replicates.
        middle = replicates // 2
        return [(0, middle), (middle, replicates)] if middle else [(0, replicates)]
    per_task = min(-(-chunks // _TASKS), _CHUNKS_PER_TASK)
    bounds = [*range(0, chunks, per_task), chunks]
    return [(a * chunk, min(b * chunk, replicates)) for a, b in itertools.pairwise(bounds)]


def _table(
    counts: Counts,
    plan: Plan,
    study: Simulation,
    total: Accumulated,
    done: int,
    reference: str,
    public_input: bool,
    threads: Executor | None,
) -> ErrorTable:
    geography, followed, reported = counts.geography, study.followed, study.reported
    on_spine = reported.node is not None
    drawn, noise = followed_noise(plan, geography, followed)
    if study.components is None and followed.are_cells:  # exact nodes may imply others
        noise = np.broadcast_to(study.variance, noise.shape)
    noise = reported.at(noise)
    laws = [
        [compared_law(law, plan, level, query, reference) for law, query in zip(row, followed.of_query, strict=True)]
        for level, row in zip(geography.levels, drawn, strict=True)
    ]
    deviation = _deviation(study.least_squares, plan) if on_spine else None
    slices, tree = list(reported.levels.values()), reported.units.tree
    shape = study.answers.shape
    labels = [method.label for method in study.methods]

    def of_method(label: str) -> dict[str, FloatArray]:
        found = error_statistics(
            total, label, done, laws, slices, shape, None if deviation is None else deviation.reshape(-1)
        )
        return {name: values.reshape(shape).T for name, values in found.items()}

    statistics = dict(zip(labels, map_ordered(of_method, labels, threads), strict=True))
    levels = {label: level_statistics(total, label, done) for label in labels}
    # Unmeasured nodes have no raw value, and so no error.
    unmeasured = np.isinf(noise).T
    for values in statistics.get(RAW, {}).values():
        values[unmeasured] = np.nan
    for values in levels.get(RAW, {}).values():
        values[np.stack([unmeasured[nodes].any(axis=0) for nodes in slices])] = np.nan
    decided = {
        rule.label: study.decided[rule.label]
        if rule.label in study.decided
        else rule.outcome(study.answers, followed.labels, tree)
        for rule in study.rules
    }
    rules = {
        (method.label, rule.label): {
            "truth": decided[rule.label],
            **rule_statistics(total.rules[method.label, rule.label], done),
        }
        for method in study.methods
        for rule in study.rules
    }
    totals = {
        (method.label, rule.label): rule_totals(total.rules[method.label, rule.label], done)
        for method in study.methods
        for rule in study.rules
    }
    for rule in study.rules:
        if RAW in labels and unmeasured[rule.nodes(tree)].any():
            mine = rules[RAW, rule.label]
            rules[RAW, rule.label] = {k: v if k == "truth" else np.full_like(v, np.nan) for k, v in mine.items()}
            totals[RAW, rule.label] = dict.fromkeys(totals[RAW, rule.label], np.nan)
    table = ErrorTable(
        geography=reported.units,
        cells=followed.labels,
        methods=tuple(method.label for method in study.methods),
        replicates=done,
        reference=LEAST_SQUARES if on_spine else reference,
        truth=np.rint(study.answers).astype(np.int64).T if on_spine or not followed.are_cells else counts.values,
        noise_variance=noise.T
        if on_spine or study.components is not None or not followed.are_cells
        else study.variance,
        of_query=followed.of_query,
        theory=linear_variances(study, plan, geography, noise),
        statistics=statistics,
        level_means=levels,
        rules=rules,
        rule_nodes={rule.label: rule.nodes(tree) for rule in study.rules},
        rule_areas={
            rule.label: rule.areas.names for rule in study.rules if isinstance(rule, Rule) and rule.areas is not None
        },
        rule_totals=totals,
        densities={
            label: np.moveaxis(histogram.counts.reshape(*shape, BINS), 1, 0)
            for label, histogram in total.both_halves().items()
        },
        bin_width=study.width.reshape(shape).T if study.width is not None else np.empty(0),
        public_input=public_input,
        batch_means=_batches(study, list(reported.levels), total, done, unmeasured),
        draws=_draws(study, geography),
        coverage=None
        if study.intervals is None or total.coverage is None
        else study.intervals.frame(total.coverage, done),
        measured_levels=geography.levels,
        reference_sd=None if deviation is None else deviation.T,
    )
    return table.split(reported) if on_spine else table


def _batches(
    study: Simulation, levels: Sequence[str], total: Accumulated, done: int, unmeasured: npt.NDArray[np.bool_]
) -> BatchMeans:
    """The means of batches; without raw noise where something is not measured."""
    names = {(measure, cell, ""): tuple(levels) for measure in (BIAS, SQUARE) for cell in study.followed.labels}
    for rule in study.rules:
        if not isinstance(rule, GroupMean):
            names[ABSOLUTE, rule.label, ""] = (ALL_UNITS,)
        elif isinstance(rule.of, str):
            names[BIAS, rule.of, rule.name] = rule.by.labels
        else:
            names |= {(measure, rule.of.label, rule.name): rule.by.labels for measure in (NET, ABSOLUTE)}
    groups = {key: names[key[1:]] for key in total.batches}
    known = {key: sums for key, sums in total.batches.items() if key.method != RAW or not unmeasured.any()}
    return BatchMeans.of_sums(known, groups, done, study.replicates)


def _draws(study: Simulation, geography: Geography) -> dict[str, str]:
    """What decides, beside the seed, which random numbers are drawn: digests of the units, and of what is drawn for
    them.
    """
    units = [geography.levels, geography.identifiers.to_pylist()]
    queries = [(one.level, one.query.name) for one in study.queries]
    parts = {"units": units, "queries": [queries, len(study.truth), study.chunk]}
    return {name: hashlib.sha256(repr(part).encode()).hexdigest() for name, part in parts.items()}
