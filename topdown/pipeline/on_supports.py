"""A release whose schema has too many cells for tables of them: solved on supports while it is measured, and published.

No confidential count is within its reach: what is measured is asked for (`Asked`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from topdown.config import RunConfig
from topdown.config.derivation import DerivationConfig
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.geography import Geography
from topdown.machine.parallel import started, thread_pool
from topdown.machine.progress import Stages
from topdown.machine.tasks import Submits
from topdown.measurements.touched import TouchedAnswers
from topdown.noise import KeyedSource
from topdown.pipeline.derive import Drawn, Projected, say_output, write_made
from topdown.privacy.plan import Plan
from topdown.projection.check.certificate import require_certificate
from topdown.projection.check.cross_checks import CrossCheck, families_again
from topdown.projection.histograms.open_answers import KnownAnswers
from topdown.projection.histograms.passes import order_of_plan
from topdown.projection.histograms.support_descent import Asked, SupportDescent, descend_on_supports
from topdown.projection.histograms.whole import WholeProjection
from topdown.projection.invariants import Contradiction
from topdown.projection.method import Method, method_named, nonnegative_methods
from topdown.projection.rounding_method import rounding_named
from topdown.release.publication import begun
from topdown.release.whole_counts import Release, SparseCounts
from topdown.wording import shown
from topdown.workload import DETAILED, Schema


@dataclass(frozen=True)
class SupportSolution:
    """Whole histograms of every node as ``entries``, how they were made, what a second solution of them found, and all
    answers that were asked for (``touched``)."""

    geography: Geography
    schema: Schema
    entries: SparseCounts = field(repr=False)
    projection: WholeProjection
    checks: dict[str, CrossCheck]
    touched: list[TouchedAnswers] = field(repr=False)


class SupportDrawn(NamedTuple):
    """What a release is written from: what was ``solved``, and what was ``drawn``, of which no measurements are
    kept."""

    solved: SupportSolution
    drawn: Drawn


def require_on_supports(config: DerivationConfig, plan: Plan, levels: tuple[str, ...], schema: Schema) -> None:
    """Refuse, before anything is drawn, what is not solved on supports. ``plan``: `measurable`. Raises
    `ConfigError`."""
    method = method_named(config.projection.method)
    if not _solves(method):
        able = [name for name in nonnegative_methods() if _solves(method_named(name))]
        raise ConfigError(
            f"a schema of {schema.n_cells:,} cells is solved from the root down, with what was measured at the node "
            f"alone: write projection.method = {' or '.join(map(shown, able))}"
        )
    order = config.projection.order
    if order is not None and any(order_of_plan(plan, levels, schema, method, order)):
        raise ConfigError(
            f"a schema of {schema.n_cells:,} cells is solved at once, and no query is made non-negative first: leave "
            "projection.order out"
        )
    for level in levels:
        if DETAILED not in plan.queries(level):
            raise ConfigError(
                f"level {shown(level)} does not measure {DETAILED!r}, and a histogram of so many cells is solved only "
                f"where it is measured: give {DETAILED!r} a share there"
            )


def _solves(method: Method) -> bool:
    return method.families is not None and not method.upward


def solved_on_supports(
    config: DerivationConfig,
    geography: Geography,
    known: KnownAnswers,
    asked: Asked,
    ties: KeyedSource,
    stages: Stages,
    *,
    workers: int | None = None,
    executor: Submits | None = None,
) -> SupportSolution:
    """Measure and solve from the root down, family by family; the same whoever works.

    ``asked``: of the schema of what is ``known``. Raises `ProjectionError` naming the node where a program is not
    solved, a certificate does not hold, or a second solution differs.
    """
    nearest = rounding_named("nearest")
    descent = SupportDescent(geography.tree, known.schema, known.cells, asked, nearest, known.tied, known.open)
    try:
        with stages.stage("measuring and solving"):
            found = descend_on_supports(descent, ties.spawn("supports"), workers, executor)
    except Contradiction as unsolved:
        raise ProjectionError(f"{geography.describe(unsolved.node)}: {unsolved}; please report this") from None
    options = config.projection
    require_certificate(found.certificate, geography, options.method, "tree")
    checks = {}
    if options.cross_check:
        with stages.stage("solving again by cvxpy"):
            method = method_named(options.method)
            again = families_again(descent, method, found.histograms, options.solver, ties)
        if again.nodes:  # where every family is too large for cvxpy, nothing was checked
            checks["non_negative"] = again
    entries, schema = SparseCounts.of_nodes(found.histograms), known.schema
    if known.split is not None:
        joined = known.split.joined(entries.starts, entries.cells, entries.counts)
        entries, schema = SparseCounts(*joined), known.split.given
    made = WholeProjection(options.method, options.weights, found.certificate, programs=found.programs)
    return SupportSolution(geography, schema, entries, made, checks, found.touched)


def derive_on_supports(
    config: RunConfig, made_of: SupportDrawn, public: Path, stages: Stages, *, workers: int | None = None
) -> None:
    """Write the release of what was solved in ``public``, complete or not at all. Raises `DataError` where it cannot be
    written."""
    solved, drawn = made_of
    fit = drawn.fit_for_release
    with stages.stage("rounding"):
        release = Release.of_entries(
            solved.geography,
            solved.schema,
            solved.entries,
            method=solved.projection.method,
            fit_for_release=fit,
            certificate=solved.projection.certificate,
        )
    made = Projected({"non_negative": solved.projection}, started(lambda: solved.checks, None), release)
    with (
        thread_pool(workers) as pool,
        begun(public, drawn.measurements, fit_for_release=fit, executor=pool) as folder,
    ):
        write_made(config, drawn, made, folder, stages, lambda: None, workers=workers)
    say_output(stages, public, solved.checks)
