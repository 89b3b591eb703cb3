"""simulate(): replicates of measure -> project against the truth, streaming, the same for any number of workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor

import numpy as np

from topdown.confidential.counts import Counts
from topdown.confidential.measure import measurable, require_room
from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.machine.interrupts import held_back
from topdown.machine.parallel import map_ordered, thread_pool, worker_pool
from topdown.noise import Law
from topdown.privacy.plan import MEASURE, Plan
from topdown.projection.components import Components
from topdown.projection.invariants import lower_bounds, settle
from topdown.simulation.draws import asked_queries, drawn_law
from topdown.simulation.errors_table import ErrorTable
from topdown.simulation.histogram import BINS, bin_width
from topdown.simulation.methods import RAW, StudiedMethod, parse_methods
from topdown.simulation.moments import (
    Accumulated,
    error_statistics,
    level_statistics,
    rule_statistics,
    rule_totals,
)
from topdown.simulation.replicates import Simulation, run_task
from topdown.simulation.resolution import resolution
from topdown.simulation.rules import Rule
from topdown.wording import shown
from topdown.workload import DETAILED

REFERENCES = ("noise", "continuous")

_VALUES_AT_ONCE = 1 << 21
"""Values (replicates x cells x nodes) in one array; decides how many replicates are drawn together."""

_LARGEST_CHUNK = 8192
_TASKS = 16
_CHUNKS_PER_TASK = 12
"""A long study is cut finer, so that progress is seen and an interrupt loses little."""

_ROWS_WITH_DISTANCES = 100_000
"""Nodes x cells up to which distances are computed unless they are asked for: a row of bins takes 6 KiB a method."""


def simulate(
    counts: Counts,
    plan: Plan,
    methods: Iterable[str | StudiedMethod],
    replicates: int,
    seed: int,
    *,
    reference: str = "noise",
    rules: Sequence[Rule] = (),
    distances: bool | None = None,
    workers: int | None = 1,
    public_input: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ErrorTable:
    """Errors of ``methods`` over ``replicates`` replicates of drawing noise under ``plan`` and projecting.

    ``methods``: labels such as "raw", "top-down", "top-down/equality", "joint/rounded", "gls" (see `methods.NAMES`).
    Mechanisms "laplace" and "gaussian" are drawn from the continuous laws, the others exactly and within the plan's
    bounds. ``reference``: the law
    that residuals are compared with, "noise" (the law that is drawn) or "continuous" (the Laplace or Gaussian of the
    same parameter). ``rules``: decisions to follow. ``distances``: whether to compute Wasserstein distances, by default
    for up to 100,000 nodes x cells. ``workers``: processes, None for one per processor; the result does not depend on
    it. ``progress(done, replicates)`` is called as replicates are finished; a KeyboardInterrupt keeps what is finished,
    and the table says how many replicates that is.

    Memory does not grow with ``replicates``. The result compares with the truth and is confidential unless the counts
    were declared public. Raises `ConfigError` for an unknown method or reference, or no replicates; `BudgetError` and
    `CountsError` where `measure` refuses the plan or the counts.
    """
    if reference not in REFERENCES:
        raise ConfigError(f"unknown reference {shown(reference)}: give {' or '.join(map(repr, REFERENCES))}")
    if isinstance(replicates, bool) or int(replicates) != replicates or replicates < 1:
        raise ConfigError(f"replicates is {shown(replicates)}; give a whole number of 1 or more")
    # What `measure` would refuse has no release whose errors could be asked for.
    plan = measurable(plan, counts.geography.levels, counts.schema)
    require_room(counts, plan)
    study = _study(counts, plan, parse_methods(methods), tuple(rules), seed, distances)
    tasks = [(study, first, last) for first, last in _ranges(int(replicates), study.chunk)]
    total, done = Accumulated.empty(), 0
    try:
        with worker_pool(workers, len(tasks)) as pool:
            for index, part in enumerate(map_ordered(run_task, tasks, pool)):
                with held_back():  # so that sums are never half added up
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
    rules: tuple[Rule, ...],
    seed: int,
    distances: bool | None,
) -> Simulation:
    if plan.only_child != MEASURE:
        raise ConfigError(
            "only_child = 'move-up' is not simulated: a study has one law of noise per level; leave it out"
        )
    geography, tree = counts.geography, counts.geography.tree
    asked = asked_queries(counts.geography, counts.schema, plan, methods)
    laws = tuple(drawn_law(plan, level, DETAILED) for level in geography.levels)
    variance = np.empty(geography.n_nodes)
    deviation = np.empty(geography.n_nodes)
    widest = 0.0
    for level, law in zip(geography.levels, laws, strict=True):
        nodes = geography.level_slice(level)
        variance[nodes] = np.inf if law is None and not plan.is_exact(level) else plan.variance(level, continuous=True)
        for one in asked:
            if geography.levels[one.level] == level and np.isfinite(one.variance):
                widest = max(widest, one.variance**0.5)
        # A non-negative projection may hand a parent's whole error to one child.
        widest = max(widest, float(np.sqrt(law.variance)) if law is not None else 0.0)
        deviation[nodes] = float(np.sqrt(law.variance)) if law is not None else widest
    truth = np.ascontiguousarray(counts.values.T, dtype=np.float64)
    truth, settled = settle(truth, variance, tree, nonnegative=True)
    settled = settled[0] if settled.ndim == 2 else settled
    rows = truth.size
    wanted = rows <= _ROWS_WITH_DISTANCES if distances is None else distances
    width = np.array([bin_width(d) for d in np.unique(deviation)])
    width = width[np.searchsorted(np.unique(deviation), deviation)]
    return Simulation(
        tree=tree,
        truth=truth,
        variance=settled,
        lower=lower_bounds(truth, settled, tree),
        resolution=resolution(variance, truth),
        laws=laws,
        bounds=tuple(plan.bounds.at(level) for level in geography.levels),
        methods=methods,
        rules=rules,
        cells=counts.cells,
        width=np.tile(width, len(counts.cells)) if wanted else None,
        seed=seed,
        chunk=int(np.clip(_VALUES_AT_ONCE // rows, 1, _LARGEST_CHUNK)),
        queries=asked,
        components=Components(counts.schema, tuple(dict.fromkeys(one.query for one in asked))) if asked else None,
    )


def _ranges(replicates: int, chunk: int) -> list[tuple[int, int]]:
    """Ranges of replicates for the tasks; a function of the problem alone, never of the workers."""
    chunks = -(-replicates // chunk)
    if chunks == 1:
        # Two tasks all the same: distances are corrected by comparing two halves of the replicates.
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
    geography = counts.geography
    laws = [
        _reference_law(law, plan, level, reference) for level, law in zip(geography.levels, study.laws, strict=True)
    ]
    slices = [geography.level_slice(level) for level in geography.levels]
    shape = study.truth.shape
    labels = [method.label for method in study.methods]

    def of_method(label: str) -> dict[str, FloatArray]:
        found = error_statistics(total, label, done, laws, slices, shape)
        return {name: values.reshape(shape).T for name, values in found.items()}

    statistics = dict(zip(labels, map_ordered(of_method, labels, threads), strict=True))
    levels = {label: level_statistics(total, label, done) for label in labels}
    # What was not measured has no raw value, and so no error.
    for values in statistics.get(RAW, {}).values():
        values[np.isinf(study.variance)] = np.nan
    for values in levels.get(RAW, {}).values():
        values[[np.isinf(study.variance[nodes]).any() for nodes in slices]] = np.nan
    rules = {
        (method.label, rule.label): {
            "truth": rule.outcome(study.truth, study.cells, study.tree),
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
        if RAW in labels and np.isinf(study.variance[rule.nodes(study.tree)]).any():
            decided = rules[RAW, rule.label]
            rules[RAW, rule.label] = {k: v if k == "truth" else np.full_like(v, np.nan) for k, v in decided.items()}
            totals[RAW, rule.label] = dict.fromkeys(totals[RAW, rule.label], np.nan)
    return ErrorTable(
        geography=geography,
        cells=counts.cells,
        methods=tuple(method.label for method in study.methods),
        replicates=done,
        reference=reference,
        truth=counts.values,
        noise_variance=study.variance,
        statistics=statistics,
        level_means=levels,
        rules=rules,
        rule_nodes={rule.label: rule.nodes(study.tree) for rule in study.rules},
        rule_totals=totals,
        densities={
            label: np.moveaxis(histogram.counts.reshape(*shape, BINS), 1, 0)
            for label, histogram in total.both_halves().items()
        },
        bin_width=study.width.reshape(shape).T if study.width is not None else np.empty(0),
        public_input=public_input,
    )


def _reference_law(law: Law | None, plan: Plan, level: str, reference: str) -> Law | None:
    if law is None or reference == "noise":
        return law
    return plan.smooth_law(level)
