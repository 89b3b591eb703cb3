"""The first half of the job: reads confidential counts and measures them. The counts do not leave it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from topdown.confidential.counts import Counts
from topdown.confidential.measure import measurable, measure, require_room
from topdown.confidential.measure_asked import AskedMeasurements, require_askable, split_counts
from topdown.config import RunConfig
from topdown.config.linked_settings import LinkedConfig
from topdown.errors import BudgetError, ConfigError, InternalError
from topdown.geography.geography import Geography
from topdown.machine.allocation import give_back
from topdown.machine.progress import Silent, Stages
from topdown.machine.system import weaker_promises
from topdown.machine.tasks import Submits
from topdown.measurements.journal import MEASUREMENTS, BegunRelease, Journal
from topdown.measurements.measurements import nothing_kept
from topdown.measurements.touched import TOUCHED, write_touched
from topdown.noise.exact.threshold_tables import prepare
from topdown.pipeline.already_released import released
from topdown.pipeline.charging import charged_to, confirm, require_left, reserve
from topdown.pipeline.derive import Drawn, require_solver
from topdown.pipeline.expected_error import USUAL, error_lines
from topdown.pipeline.exports import require_exportable, require_exports
from topdown.pipeline.input.limit_reading import read_limits, require_kept
from topdown.pipeline.input.reading import InputDigests, read_input
from topdown.pipeline.input.tie_reading import known_answers, known_statement
from topdown.pipeline.memory_needed import of_parts, require_disk, weigh
from topdown.pipeline.on_supports import SupportDrawn, SupportSolution, require_on_supports, solved_on_supports
from topdown.pipeline.parts.part_cut import cut
from topdown.pipeline.parts.part_gather import cut_is_whole
from topdown.pipeline.parts.part_job import Record
from topdown.pipeline.parts.part_plan import (
    CutTree,
    folder_of,
    record_of,
    renewed,
    require_parts,
    where_to_cut,
)
from topdown.pipeline.rehearsal import load_loops, rehearse
from topdown.planning.expected import expected_errors
from topdown.privacy import strength
from topdown.privacy.accounting import Event
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import largest_gains
from topdown.projection.histograms.open_answers import KnownAnswers
from topdown.projection.histograms.passes import order_of_plan
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import method_named
from topdown.projection.upward_start import require_start
from topdown.release.layouts import row_columns
from topdown.release.manifest import Origin
from topdown.release.places import require_not_public
from topdown.studies.methods import StudiedMethod
from topdown.tables.geography_table import read_as_written
from topdown.uncertainty.laws.known_noise import require_replicable
from topdown.wording import FAILED, escaped, joined, reason, shown, shown_path


@dataclass(frozen=True)
class Prepared:
    """The input of a release: validated counts, the plan for their levels, the digests of all that was read.

    ``notices``: what a reader of the release has to know first; ``limits``: the public limits, None where there are
    none. ``leaves``: the number of leaves of a part, None where the whole tree is made at once. ``known``: what is
    known of every unit of a release on supports, None for any other.
    """

    counts: Counts
    plan: Plan
    digests: InputDigests
    notices: tuple[str, ...]
    limits: AnswerLimits | None = None
    leaves: int | None = None
    known: KnownAnswers | None = None


def check(config: RunConfig, stages: Stages | None = None) -> Prepared:
    """Validate ``config``, its data and its plan together, and rehearse the run; nothing is drawn or written."""
    stages = stages or Silent()
    if not config.is_study:
        require_directory(config.output_path)
    prepared = _prepare(config, stages)
    if not config.is_released:
        stages.say(f"warning   {config.too_large}: what follows is of the total, as its measurements leave it")
    plan, geography, schema = prepared.plan, prepared.counts.geography, prepared.counts.schema
    if not config.is_study:
        journal = Journal(config.output_path / "internal", *prepared.digests.name(config))
        require_left(charged_to(config), journal, plan.events(geography.levels))
    if not config.asks_queries:  # else there are as many as queries, for whoever asks for them
        for line in error_lines(expected_errors(plan, geography, confidence=USUAL)):
            stages.say(line)
    if not (config.asks_queries and config.is_study):  # which spends nothing
        rehearse(config, geography, plan, stages, schema, prepared.limits, prepared.known)
    return prepared


def draw(
    config: RunConfig,
    directory: Path,
    held: ExitStack,
    stages: Stages,
    *,
    workers: int | None = None,
    part_size: int | None = None,
    executor: Submits | None = None,
) -> Drawn | CutTree | SupportDrawn | None:
    """The measurements of the release that is written to ``directory``; None where it was written before.

    For a release in parts (a large one, or one with a ``part_size``, the leaves of a part) the tree is cut, and its
    parts are measured later, each by itself. Where the schema has too many cells to measure all answers, only the
    answers that the solution needs are measured, and the solution is returned.

    Reads and validates, rehearses, reserves the budget in the ledger if there is one, records what the noise is derived
    from, draws, and confirms. A run that is started again draws the same noise. ``held`` then locks the directory for
    this run. No count is in memory afterwards. ``workers``: the threads of the following steps, on which the memory
    depends; ``executor``: of the parts, None for processes. Raises `ConfigError`, `DataError`, `ProjectionError` or
    `BudgetError`.
    """
    config.require_released()
    require_directory(directory)
    going_on = _going_on(config, directory, held, stages)
    if going_on is not None:
        return going_on
    prepared = _prepare(config, stages, workers, part_size, executor)
    geography, plan = prepared.counts.geography, prepared.plan
    journal, events = Journal(directory / "internal", *prepared.digests.name(config)), plan.events(geography.levels)
    schema, limits, known, leaves = prepared.counts.schema, prepared.limits, prepared.known, prepared.leaves
    where: tuple[int, int] | None = None

    def require(begun: BegunRelease | None) -> None:
        nonlocal where
        if begun is None:
            rehearse(config, geography, plan, stages, schema, limits, known)
        where = where_to_cut(geography.tree, plan, begun, leaves, asked=part_size is not None)
        if where is not None:
            require_disk(directory, of_parts(config, geography, where[1]).disk)

    begun, there = reserved(config, directory, journal, events, held, stages, require)
    if there and begun.measured is not None:
        confirm(charged_to(config), journal, begun.measured)
        return None
    origin = _origin(config, prepared.digests, journal, prepared.notices)
    if where is not None:
        name = journal.configuration, journal.input
        folder, counts = folder_of(directory), prepared.counts
        record = record_of(config, geography, counts.cells, counts.attributes, plan, name, where)
        with stages.stage("cutting the tree"):
            record = cut(counts, record, folder, begun.key, stages.count, limits)
        del prepared, counts  # With it go the counts, whose memory is wanted.
        return CutTree(folder, record, journal, begun, geography, origin, limits)
    solved = None
    if config.on_supports:
        solved, measured = _solved(config, prepared, journal, begun, stages, workers, executor)
        fit = begun.key.fit_for_release
        measurements = nothing_kept(solved.geography, solved.schema, plan, fit_for_release=fit)
    else:
        with stages.stage("drawing noise"):
            measurements = measure(prepared.counts, prepared.plan, begun.key, workers=workers)
        with stages.stage("keeping what was measured"):
            measured = journal.keep(begun, measurements)
    del prepared  # With it go the counts, whose memory is wanted.
    give_back()
    origin = replace(origin, ledger=confirm(charged_to(config), journal, measured))
    drawn = Drawn(measurements, begun.ties, plan, origin, limits=limits)
    return drawn if solved is None else SupportDrawn(solved, drawn)


def reserved(
    config: RunConfig | LinkedConfig,
    directory: Path,
    journal: Journal,
    events: Iterable[Event],
    held: ExitStack,
    stages: Stages,
    require: Callable[[BegunRelease | None], object],
) -> tuple[BegunRelease, bool]:
    """What the noise of the release in ``directory`` follows from, after the budget of ``events`` is reserved, and
    whether the release is there, complete; ``held`` locks ``journal`` from now on. ``require``: refuses, before that,
    what could not be finished; it is given what an earlier run began, None where none did. Raises as `released`, and
    `BudgetError` where too little is left."""
    charged = charged_to(config)
    require_left(charged, journal, events)  # before anything is written
    held.enter_context(journal.locked())
    begun = journal.read()
    there = released(config, directory / "public", journal, begun)
    require(begun)
    reserve(charged, journal, events, begun=begun is not None, title=config.title)
    if begun is not None and not there:
        stages.say("going on with a release that was begun before: its noise is the same, no budget is spent")
    return begun or journal.begin(), there


def _origin(config: RunConfig, digests: InputDigests, journal: Journal, notices: tuple[str, ...]) -> Origin:
    """What the manifest states of where the measurements come from, but for the ledger's record of them."""
    noise = journal.release_name()
    origin = Origin(digests.units, notices=notices, limits=digests.limits, noise=noise, areas=digests.areas)
    return replace(origin, limits_statement=known_statement(config)) if config.on_supports else origin


def _solved(
    config: RunConfig,
    prepared: Prepared,
    journal: Journal,
    begun: BegunRelease,
    stages: Stages,
    workers: int | None,
    executor: Submits | None,
) -> tuple[SupportSolution, str]:
    """Histograms that are solved while they are measured, and the code of all answers that were measured, which is kept
    in the journal.
    """
    geography, known, counts = prepared.counts.geography, prepared.known, prepared.counts
    if known is None:
        raise InternalError("a release on supports without what is known of its units; please report it")
    if known.split is not None:
        counts = split_counts(counts, known.schema, known.split.split)
    asked = AskedMeasurements(counts, prepared.plan, begun.key)
    found = solved_on_supports(config, geography, known, asked, begun.ties, stages, workers=workers, executor=executor)
    with stages.stage("keeping what was measured"):
        write_touched(journal.folder / TOUCHED, found.touched, geography.levels)
        code = begun.key.code(MEASUREMENTS, (array for one in found.touched for array in one.arrays()))
        return found, journal.keep_code(begun, code)


def _going_on(config: RunConfig, directory: Path, held: ExitStack, stages: Stages) -> CutTree | None:
    """A release in parts that was cut and is not finished: its table need not be read again.

    None where there is none, or where the files of the cut, or the input, have changed: the table is then read again.
    """
    folder = folder_of(directory)
    record = Record.read(folder) if os.path.exists(folder.job) else None  # also where a name is too long
    if record is None or os.path.exists(directory / "public"):
        return None
    digests = InputDigests.of(config)
    name = digests.name(config)
    if name != (record.configuration, record.input):
        return None
    journal = Journal(directory / "internal", *name)
    begun = journal.read()
    if begun is None or (begun.measured is not None and begun.cut != (record.level, record.leaves)):
        return None
    if not cut_is_whole(folder, record, begun.key):
        return None
    held.enter_context(journal.locked())
    geography, plan = read_as_written(folder.geography), record.its_plan
    reserve(charged_to(config), journal, plan.events(geography.levels), begun=True, title=config.title)
    stages.say(f"going on with a release in {record.n_parts:,} parts that was begun before: its noise is the same")
    record = renewed(record, config, geography)
    record.write(folder)
    notices = notices_of(config, plan, geography.levels, largest_gains(plan, geography))
    origin, limits = _origin(config, digests, journal, notices), read_limits(config, geography, record.its_schema)
    return CutTree(folder, record, journal, begun, geography, origin, limits)


def _prepare(
    config: RunConfig,
    stages: Stages,
    workers: int | None = None,
    part_size: int | None = None,
    executor: Submits | None = None,
) -> Prepared:
    leaves = None
    config.plan()  # what is wrong with it is said before a table is read
    _require_solvers(config)
    require_exports(config)
    # Solvers take a second to load; meanwhile the units of a large table are read.
    with stages.stage("reading the table"), ThreadPoolExecutor(1) as beside:
        solver = beside.submit(require_solver, config)
        digests = InputDigests.of(config)
        _require_list(config, digests)

        def before_counts(geography: Geography, read: int) -> None:
            nonlocal leaves
            # The memory is estimated when the libraries of the run are loaded.
            solver.result()
            if not config.is_study:
                prepare(geography.n_nodes * len(config.input.cells))
            if config.on_supports:
                load_loops()
                return
            leaves = weigh(config, stages, geography, read, workers=workers, part_size=part_size)

        geography, counts = read_input(config, stages, before_counts=before_counts)
        plan, gains = sound_plan(config, counts)
        if config.on_supports:
            require_on_supports(config, plan, geography.levels, counts.schema)
            require_askable(plan, geography)
        if leaves is not None:
            require_parts(config, plan, geography, counts.schema, executor)
        none = "the noise is within bounds, and its law depends on the true count" if plan.bounds.any else None
        require_exportable(config, geography, counts.schema, none, by_family=config.by_family)
        if config.output.replicates:
            require_replicable(plan, geography.levels)
        limits = read_limits(config, geography, counts.schema)
        known = known_answers(config, geography, counts.schema, limits) if config.on_supports else None
        if limits is not None:
            require_kept(counts, limits)
        digests.require_unchanged(config)
        give_back()
    read = f"read      {nodes_in_words(geography)} x {len(counts.cells)} cells ({joined(counts.cells)})"
    stages.say(escaped(read))  # names of columns may have line ends
    stages.say(plan.describe(geography.levels))
    notices = notices_of(config, plan, geography.levels, gains)
    for notice in notices:
        stages.say(f"warning   {notice}")
    for promise in weaker_promises():
        stages.say(f"warning   {promise}")
    if digests.units is None:
        stages.say(
            "warning   the list of units is taken from the confidential table and is not protected: name a public list "
            "in geography.units"
        )
    return Prepared(counts, plan, digests, notices, limits, leaves, known)


def require_directory(path: Path) -> None:
    """Refuse an output directory whose path, or the path of a folder above it, is a file, or that cannot be one, or
    that would be published with the release's secrets in it."""
    try:
        path.exists()
    except OSError as error:  # a name that is too long
        raise ConfigError(
            f"{shown_path(path)}: cannot be a folder: {reason(error, FAILED)}; give another output.directory, or "
            "another --output"
        ) from None
    there = next((one for one in (path, *path.parents) if os.path.lexists(one)), None)
    if there is not None and not there.is_dir():
        raise ConfigError(
            f"{shown_path(there)}: is no directory, and the output's directory would be it or below it; give another "
            "output.directory, or another --output"
        )
    require_not_public(path, "a run keeps the key of its noise in internal/, beside public/,")


def _require_list(config: RunConfig, digests: InputDigests) -> None:
    """Refuse the confidential table as the public list of units, since the manifest states the list's digest."""
    if digests.units == digests.table:
        raise ConfigError(
            f"geography.units = {shown(config.geography.units)} is the confidential table itself; give a list that is "
            "public whatever the table holds, or leave geography.units out"
        )


def _require_solvers(config: RunConfig) -> None:
    """Refuse a method without a solver for the measured queries, and rows that could not be written, before any noise
    is drawn.
    """
    if config.is_study:
        for label in config.all_methods:
            StudiedMethod.parse(label).require(several=config.by_family)
    elif config.by_family:
        row_columns(config.schema_of_cells)
    method_named(config.projection.method).require(several=config.by_family, nonnegative=True)


def _require_descent(config: RunConfig, plan: Plan, levels: Sequence[str]) -> None:
    """Refuse a level at which the upward pass cannot start, and an order of queries that is not valid, before any noise
    is drawn."""
    options, schema, method = config.projection, config.schema_of_cells, method_named(config.projection.method)
    for name, given in (("upward", options.upward), ("order", options.order or None)):
        if given is not None and not config.by_family:
            raise ConfigError(
                f"projection.{name} = {shown(given)} is for releases of several queries, or within limits, which are "
                "made family by family; the cells alone are measured: leave it out"
            )
    if options.upward is not None:
        require_start(plan, levels, schema, method, options.upward)
    order_of_plan(plan, levels, schema, method, options.order)


def sound_plan(config: RunConfig, counts: Counts) -> tuple[Plan, Mapping[str, Fraction]]:
    """The plan of ``config`` with the shares of the levels of ``counts`` filled in, and the largest gains of parents
    from their children (`largest_gains`). Refused, before any noise is drawn: a level at which the upward pass cannot
    start, a root that is not measured where a method needs it, noise that is almost always 0, and counts too large."""
    geography = counts.geography
    plan = measurable(config.plan(), geography.levels, counts.schema)
    gains = largest_gains(plan, geography)
    _require_descent(config, plan, geography.levels)
    for label in [*config.all_methods, config.projection.method]:
        StudiedMethod.parse(label).require_root(plan, geography.levels, several=config.by_family)
    _require_protection(config, plan, geography.levels, gains)
    require_room(counts, plan)
    return plan, gains


def nodes_in_words(geography: Geography) -> str:
    """How many nodes a geography has, and how many of them are of every level."""
    slices = {level: geography.level_slice(level) for level in geography.levels}
    sizes = ", ".join(f"{nodes.stop - nodes.start:,} {level}" for level, nodes in slices.items())
    return f"{geography.n_nodes:,} nodes ({sizes})"


def _require_protection(config: RunConfig, plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction]) -> None:
    """Refuse a release whose noise is 0 with a large probability, so that true counts would be published, unless this
    is asked for.
    """
    bare = strength.unprotected(plan, levels, gains)
    if bare and not config.privacy.accept_no_protection and not config.is_study:
        level, part = next(iter(bare.items()))
        raise BudgetError(
            f"level {shown(level)}: with its share of the budget the noise is 0 for {part:.4%} of the counts, so that "
            "true counts would be published: take a smaller budget, or a smaller share of it; where nothing is to be "
            "protected, privacy.invariants publishes a level exactly and says so, and privacy.accept_no_protection = "
            "true releases this, which the manifest then states first"
        )


def notices_of(config: RunConfig, plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction]) -> tuple[str, ...]:
    """The notices that a reader of the release has to know first."""
    found = [*strength.in_words(plan, levels, gains), *strength.spent_on_sums(plan, levels)]
    total = plan.guarantee(levels).total
    epsilon = total.epsilon if plan.is_pure else None if total.approx is None else total.approx.epsilon
    large = None if epsilon is None else strength.large_budget(plan, float(epsilon))
    if large is not None:
        found.append(f"{large}.")
    if config.input.assume_disjoint:
        found.append(
            "That every record is counted in one cell and one unit alone is assumed (input.assume_disjoint): the table "
            "was not searched for cells or units that are sums of others, and where there are such, the budget is more "
            "than what is stated here."
        )
    return tuple(found)
