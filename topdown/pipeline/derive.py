"""The second half of the job: makes a release from measurements alone. It cannot reach confidential counts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from topdown.config import DerivationConfig
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import Tree
from topdown.geography.unit_sums import area_sums, published_sums
from topdown.machine.allocation import give_back
from topdown.machine.parallel import map_ordered, started, thread_pool
from topdown.machine.progress import Stages
from topdown.measurements.measurements import Measurements
from topdown.microdata.written_records import Microdata
from topdown.noise import KeyedSource, Source
from topdown.pipeline.made_margins import laws_beforehand, made_areas, made_margins, table_intervals
from topdown.privacy.plan import Plan
from topdown.projection.check.cross_checks import CrossCheck, families_again, say_agreement, solved_again
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.linear_answers import LinearAnswers, linear_answers
from topdown.projection.histograms.passes import order_by_level
from topdown.projection.histograms.whole import Histograms, WholeProjection, histograms_down, require_whole
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import method_named
from topdown.projection.project import project
from topdown.projection.published_estimates import error_sums, estimates_at
from topdown.projection.rounding_method import rounding_named
from topdown.release.answer_files import FOLDER
from topdown.release.making import project_whole, release_of, round_counts
from topdown.release.manifest import Description, Origin
from topdown.release.partition import ESTIMATES
from topdown.release.publication import Begun, Made, begun, publish, tables_of
from topdown.release.whole_counts import Release
from topdown.tables.output_formats import names_of
from topdown.uncertainty.intervals import Intervals
from topdown.uncertainty.laws.answer_laws import AnswerLaws
from topdown.uncertainty.laws.known_noise import answer_noise, redrawn
from topdown.wording import shown
from topdown.workload.answer_tables import ESTIMATED, AnswerTable, answer_tables, queries_of, stated_table

_LARGE_TREE, _LARGE_FAMILY = 1 << 22, 1 << 18
"""With more nodes in the tree, or more children in a family, projections are computed one after the other."""


@dataclass(frozen=True)
class Drawn:
    """The input of a release, without the counts: measurements; the stream that breaks ties of rounding; the plan, None
    where it is not known; the ``origin`` that the manifest states; and the public ``limits`` of answers, None where
    there are none.
    """

    measurements: Measurements
    ties: KeyedSource = field(repr=False)
    plan: Plan | None
    origin: Origin
    limits: AnswerLimits | None = None

    @property
    def fit_for_release(self) -> bool:
        """Whether noise and ties were drawn exactly, from operating-system entropy."""
        return self.measurements.fit_for_release and self.ties.fit_for_release


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the directory that may be published, whether it was there before, and its microdata."""

    public: Path
    already_there: bool = False
    microdata: Microdata | None = None


def derive(config: DerivationConfig, drawn: Drawn, public: Path, stages: Stages, *, workers: int | None = None) -> None:
    """Project, solve again, round, and write the release in ``public``, complete or not at all.

    ``workers``: threads, by default one per processor; the release does not depend on it. Raises `ProjectionError`
    where an estimate is not certified or the second solution differs, `DataError` where the release cannot be written.
    """
    measurements, limits = drawn.measurements, drawn.limits
    measurements = measurements.in_memory()
    with thread_pool(workers) as pool, ExitStack() as held:
        folder = held.enter_context(begun(public, measurements, fit_for_release=drawn.fit_for_release, executor=pool))
        laws: list[Future[AnswerLaws | None]] = []
        if pool is not None and finds_laws_early(measurements.geography.tree):
            laws.append(pool.submit(laws_beforehand, measurements, config.output))
        made = projected(config, measurements, drawn.ties, stages, limits, workers=workers, meanwhile=pool)
        held.callback(made.again.cancel)
        write_made(config, drawn, made, folder, stages, held.close, laws, workers=workers)
    say_output(stages, public, made.again.result())


def write_made(
    config: DerivationConfig,
    drawn: Drawn,
    made: Projected,
    folder: Begun,
    stages: Stages,
    give_its_name: Callable[[], object],
    laws: list[Future[AnswerLaws | None]] | None = None,
    written: Mapping[str, Callable[[], object]] = MappingProxyType({}),
    *,
    workers: int | None = None,
) -> None:
    """Compute the margins of error of what was ``made``, write all files of the release into ``folder``, and then call
    ``give_its_name``.

    ``laws``: of errors, if they were computed before; they are removed from the list, so that they are not kept in
    memory while files are written. ``written``: functions that put existing files into the folder. Raises `DataError`
    where something cannot be written.
    """
    measurements, tables = drawn.measurements, answer_tables(config.output.tables, made.release.schema)
    # The other threads may still be working.
    with stages.stage("finding margins of error"), thread_pool(workers) as threads:
        areas = made_areas(measurements, made.estimates, made.release, config.output, tables)
        made = as_published(measurements, made)
        found = made_margins(
            measurements.kept,
            made.estimates,
            made.release,
            config.output,
            tables,
            threads,
            of_tables=made.of_tables,
            laws=laws.pop() if laws else None,
        )
        give_back()
    replicates: list[Release] = []
    if config.output.replicates:
        with stages.stage("drawing replicates"), thread_pool(workers) as threads:
            replicates = drawn_around(config, measurements.in_memory(), drawn.ties, drawn.limits, threads)
    if measurements.not_kept:
        lower = ", ".join(measurements.not_kept)
        statement = f"{found.said['statement']} Of {lower} no measurements were kept, and there are none."
        found = found._replace(said={**found.said, "statement": statement}, wide=None)

    def second_solutions() -> dict[str, CrossCheck]:
        with stages.stage("waiting for the second solution"):
            return made.again.result()

    about = Description(
        config,
        measurements,
        drawn.plan,
        drawn.origin,
        made.estimates,
        made.release.layout,
        made.release.fit_for_release,
        second_solutions,
        tables,
        found.reach,
        found.said,
        areas,
    )
    with stages.stage("writing"):
        all_made = Made(made.release, made.estimates, *found[:2], found.total, found.wide, replicates, areas)
        publish(folder, {**tables_of(folder, all_made, about, drawn.limits), **written}, about)
        give_its_name()


def as_published(measurements: Measurements, made: Projected) -> Projected:
    """What was ``made`` of ``measurements``, at the published units; on a spine these are sums of its nodes."""
    units, known = published_sums(measurements.geography), published_sums(measurements.kept.geography)
    if units is None or known is None:
        return made
    errors = error_sums(measurements.kept)
    estimates = {
        name: one if isinstance(one, WholeProjection) else estimates_at(known, one, errors)
        for name, one in made.estimates.items()
    }
    return made._replace(estimates=estimates, release=made.release.at(units), of_tables=None)


def drawn_around(
    config: DerivationConfig,
    measurements: Measurements,
    ties: KeyedSource,
    limits: AnswerLimits | None = None,
    pool: Executor | None = None,
) -> list[Release]:
    """The replicates: whole tables that are made as the release is, each from the measurements plus noise of the same
    laws drawn once more (Patra, Dunson 2018: draws of least squares' error law, projected).

    They depend only on the measurements and the stream of ties. Raises `ConfigError` where the law of the noise is not
    known, `ProjectionError` where a table is not certified.
    """
    source = KeyedSource(hashlib.sha256(b"topdown replicates" + ties.key).digest())
    noise, units = answer_noise(measurements), published_sums(measurements.geography)

    def table(number: int) -> Release:
        own = source.spawn("replicate", str(number))
        again = redrawn(measurements, noise, own.spawn("noise"))
        by_family = bool(again.others) or limits is not None
        estimate = None if by_family else _non_negative(config, again)
        try:
            found = made_whole(config, again, estimate, own.spawn("ties"), limits, workers=1)
        except ProjectionError as error:
            raise ProjectionError(
                f"output.replicates: {error}; leave replicates out, and run again: the noise will be the same"
            ) from None
        return found if units is None else found.at(units)

    return list(map_ordered(table, list(range(config.output.replicates)), pool))


class Projected(NamedTuple):
    """The release, and the estimates published beside it by name (of all cells, or of its tables alone).

    ``again``: the second solutions, which may still be computed; its result raises `ProjectionError` where they
    disagree, and nothing may be published before that. ``of_tables``: the intervals of tables, if they were computed
    already.
    """

    estimates: dict[str, Estimate | LinearAnswers | WholeProjection]
    again: Future[dict[str, CrossCheck]]
    release: Release
    of_tables: dict[str, Intervals] | None = None


def projected(
    config: DerivationConfig,
    measurements: Measurements,
    ties: KeyedSource,
    stages: Stages,
    limits: AnswerLimits | None = None,
    *,
    workers: int | None = None,
    meanwhile: Executor | None = None,
) -> Projected:
    """Estimates, their second solutions, and whole counts.

    Estimates that are not part of the release are computed only if they are published, because for several queries
    those of all cells take most of the time and memory. ``meanwhile``: an executor that computes the second solutions
    at the same time; None: they are computed before this returns. Raises `ProjectionError`.
    """
    several = bool(measurements.others)
    if not (several and config.output.estimates is not True):
        with thread_pool(workers) as pool, stages.stage("projecting"):
            large = _one_by_one(measurements.geography.tree)
            estimates = estimated(config, measurements, None if large else pool, limits)
            give_back()
        solver = config.projection.solver if config.projection.cross_check else None
        again = started(lambda: solved_again(measurements, estimates, solver, ties, limits), meanwhile)
        with stages.stage("rounding"):
            release = made_whole(config, measurements, estimates["non_negative"], ties, limits, workers=workers)
            give_back()
        return Projected({**estimates}, again, release)
    options, tables = config.projection, answer_tables(config.output.tables, measurements.schema)
    asked = asked_tables(measurements, tables)
    beside: dict[str, Estimate | LinearAnswers | WholeProjection] = {}
    method = method_named(options.method)
    require_whole(measurements)

    def whole_and_again() -> tuple[Histograms, Future[dict[str, CrossCheck]]]:
        rule = rounding_named("nearest"), ties
        found = histograms_down(
            measurements, method, options.weights, limits, options.upward, options.order, whole=rule, workers=workers
        )
        # The second solution uses one processor, while tables are estimated and files are written.
        return found, started(lambda: again_beneath(found), meanwhile)

    def again_beneath(found: Histograms) -> dict[str, CrossCheck]:
        if not options.cross_check:
            return {}
        return {"non_negative": families_again(found.descent, method, found.histograms, options.solver, ties)}

    intervals: dict[str, Intervals] = {}
    with thread_pool(workers) as pool, stages.stage("projecting"):
        solving = started(whole_and_again, pool)
        if asked:
            # Bounded noise is for the detailed query alone, so that least squares is unbiased here.
            estimating = started(lambda: linear_answers(measurements, queries_of(asked)), pool)
            if estimating.exception() is not None:
                # If both fail, the same error is raised, whichever thread was first.
                solving.result()
            linear = estimating.result()
            # Here and not in that thread, so that two tables are computed at once when the families are solved.
            if published_sums(measurements.geography) is None:
                intervals = table_intervals(measurements, linear, config.output, tables, pool)
            beside["unbiased"] = linear
        whole, again = solving.result()
    with stages.stage("rounding"):
        release = release_of(measurements, options.method, whole, ties)
    beside["non_negative"] = WholeProjection(
        options.method,
        options.weights,
        whole.certificate,
        order=order_by_level(measurements.geography.levels, whole.descent.order),
    )
    return Projected(beside, again, release, intervals)


def asked_tables(measurements: Measurements, tables: Sequence[AnswerTable]) -> list[AnswerTable]:
    """The tables whose estimates a release of several queries has: ``tables``, and those that are stated of areas."""
    return [*tables, *([stated_table(None, measurements.schema, tables)] if area_sums(measurements.geography) else [])]


def _one_by_one(tree: Tree) -> bool:
    """Whether a family, or the whole tree, is so large that two projections at the same time would determine the
    memory.
    """
    return tree.n_nodes > _LARGE_TREE or int(np.diff(tree.child_offsets).max(initial=1)) > _LARGE_FAMILY


def finds_laws_early(tree: Tree) -> bool:
    """Whether the laws of errors are computed during the projection: where projections are computed one after the
    other, which leaves a processor idle, and one leaf stands for many in the laws.
    """
    return _one_by_one(tree) and 8 * tree.n_families <= tree.n_nodes


def require_solver(config: DerivationConfig) -> None:
    """Refuse a solver that is not installed, before any noise is drawn."""
    name = config.projection.solver
    if not config.projection.cross_check and name == type(config.projection).model_fields["solver"].default:
        return  # Not asked for, and libraries take time to load.
    from topdown.projection.check.cvxpy_programs import installed_solvers

    installed = installed_solvers(name.upper())
    if name.upper() not in installed:
        raise ConfigError(f"projection.solver = {shown(name)} is not installed; cvxpy has {', '.join(installed)}")


def estimated(
    config: DerivationConfig, measurements: Measurements, pool: Executor | None, limits: AnswerLimits | None = None
) -> dict[str, Estimate]:
    """The least-squares estimate, called "unbiased" where it is (under bounded noise it is not), and the non-negative
    estimate.

    The second satisfies ``limits``; the first would not be unbiased if it did.
    """
    bounded = measurements.plan is not None and measurements.plan.bounds.any
    jobs: dict[str, Callable[[], Estimate]] = {
        "least_squares" if bounded else "unbiased": lambda: project(measurements, "gls"),
        "non_negative": lambda: _non_negative(config, measurements, limits),
    }
    return dict(zip(jobs, map_ordered(lambda job: job(), list(jobs.values()), pool), strict=True))


def _non_negative(config: DerivationConfig, measurements: Measurements, limits: AnswerLimits | None = None) -> Estimate:
    """The non-negative estimate, from which a release of the cells is made."""
    options = config.projection
    return project(
        measurements,
        options.method,
        nonnegative=True,
        weights=options.weights,
        constraints=limits,
        upward=options.upward,
        order=options.order,
    )


def made_whole(
    config: DerivationConfig,
    measurements: Measurements,
    estimate: Estimate | None,
    source: Source,
    limits: AnswerLimits | None = None,
    *,
    workers: int | None = None,
) -> Release:
    """Whole counts from ``estimate``. For several queries, or within ``limits``, where it may be None, they are made
    from the measurements, family by family beneath whole parents.

    Raises `ProjectionError` as `round_counts` and `project_whole` do.
    """
    if estimate is not None and not measurements.others and limits is None:
        with thread_pool(workers) as pool:
            return round_counts(estimate, source=source, executor=pool)
    options = config.projection
    return project_whole(
        measurements,
        options.method,
        weights=options.weights,
        constraints=limits,
        source=source,
        workers=workers,
        upward=options.upward,
        order=options.order,
    )


def say_output(stages: Stages, public: Path, checks: dict[str, CrossCheck]) -> None:
    say_agreement(stages, checks)
    for path in sorted(path for path in public.rglob("*") if path.is_file()):
        stages.say(f"wrote     {path} ({path.stat().st_size:,} bytes)")
    known = (ESTIMATES, names_of(f"{FOLDER}/*{ESTIMATED}")[0])
    estimates = [name for name in known if any(public.glob(name))]
    stages.say(
        f"next      open {public / 'manifest.json'} for what is protected and by how much; release.* for whole counts"
        + "".join(f", {name} for estimates with their variances" for name in estimates[:1])
    )
