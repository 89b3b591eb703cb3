"""The first half of the job: confidential counts in, protected measurements out. The counts end here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from topdown.confidential.counts import Counts
from topdown.confidential.measure import measurable, measure, require_room
from topdown.config import RunConfig, StudyConfig
from topdown.errors import BudgetError, ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.machine.memory import give_back
from topdown.machine.progress import Silent, Stages
from topdown.machine.system import weaker_promises
from topdown.measurements.journal import Journal
from topdown.pipeline.derive import Drawn, require_solver
from topdown.pipeline.expected_error import USUAL, error_lines
from topdown.pipeline.exports import require_exportable, require_exports
from topdown.pipeline.limit_reading import limits_digest, read_limits, require_kept
from topdown.pipeline.reading import input_digest, read_input, units_digest
from topdown.pipeline.rehearsal import rehearse
from topdown.planning.expected import expected_errors
from topdown.privacy import strength
from topdown.privacy.ledger import Ledger
from topdown.privacy.only_child import largest_gains
from topdown.privacy.plan import Plan
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import METHODS
from topdown.release.histograms import row_columns
from topdown.release.manifest import LedgerEntry, Origin
from topdown.release.verify import MANIFEST, verify_files
from topdown.wording import joined, reason, shown, shown_path

_LARGEST_HISTOGRAMS = 1 << 26
"""Nodes times cells of a run of several queries at most."""


@dataclass(frozen=True)
class Prepared:
    """What a release starts from: validated counts, the plan for their levels, the digest of their file.

    ``units``: the digest of the public list of units, ``limits`` the public limits and ``limits_digest`` the digest of
    their table, None without one.
    """

    counts: Counts
    plan: Plan
    digest: str = field(repr=False)
    units: str | None = None
    limits: AnswerLimits | None = None
    limits_digest: str | None = None


def check(config: RunConfig, stages: Stages | None = None) -> Prepared:
    """Validate ``config``, its data and its plan together, and rehearse; draw nothing and write nothing."""
    stages = stages or Silent()
    prepared = _prepare(config, stages)
    plan, geography, schema = prepared.plan, prepared.counts.geography, prepared.counts.schema
    if not config.asks_queries:  # else there are as many as queries, for whoever asks for them
        for line in error_lines(plan, expected_errors(plan, geography, confidence=USUAL)):
            stages.say(line)
    if not (config.asks_queries and isinstance(config, StudyConfig)):  # which spends nothing
        rehearse(config, geography, plan, stages, schema, prepared.limits)
    return prepared


def draw(
    config: RunConfig, directory: Path, held: ExitStack, stages: Stages, *, workers: int | None = None
) -> Drawn | None:
    """The measurements of the release that is written to ``directory``; None where it was written before.

    Reads and validates, rehearses, reserves the budget in the ledger where there is one, keeps what the noise follows
    from, draws, and confirms it. A run that is started again draws the same noise. ``held`` then holds the directory
    for this run alone. No count outlives this function. ``workers``: threads of what follows, on which its memory
    depends. Raises `ConfigError`, `DataError`, `ProjectionError` or `BudgetError`.
    """
    prepared = _prepare(config, stages, workers)
    fingerprint = config.fingerprint(prepared.units, prepared.limits_digest)
    journal = Journal(directory / "internal", fingerprint, prepared.digest)
    held.enter_context(journal.locked())
    begun = journal.read()
    released = _released(config, directory / "public", recorded=begun is not None)
    if begun is None:
        rehearse(config, prepared.counts.geography, prepared.plan, stages, prepared.counts.schema, prepared.limits)
    _reserve(config, journal, prepared, begun=begun is not None)
    if released and begun is not None and begun.measured is not None:
        _confirm(config, journal, begun.measured)
        return None
    if begun is not None:
        stages.say("going on with a release that was begun before: its noise is the same, no budget is spent")
    else:
        begun = journal.begin()
    with stages.stage("drawing noise"):
        measurements = measure(prepared.counts, prepared.plan, begun.key, workers=workers)
    with stages.stage("keeping what was measured"):
        measured = journal.keep(begun, measurements)
    plan, units, levels = prepared.plan, prepared.units, prepared.counts.geography.levels
    gains = largest_gains(plan, prepared.counts.geography)
    limits, limits_digest = prepared.limits, prepared.limits_digest
    del prepared  # With it go the counts, whose memory is wanted.
    give_back()
    notices = _notices(config, plan, levels, gains)
    origin = Origin(units, _confirm(config, journal, measured), notices=notices, limits=limits_digest)
    return Drawn(measurements, begun.ties, plan, origin, limits=limits)


def _prepare(config: RunConfig, stages: Stages, workers: int | None = None) -> Prepared:
    plan = config.plan()
    require_solver(config)
    _require_families(config)
    require_exports(config)
    with stages.stage("reading the table"):
        digest, units, limits_table = input_digest(config), units_digest(config), limits_digest(config)
        _require_list(config, digest, units)
        geography, counts = read_input(config, stages, workers=workers)
        plan = measurable(plan, geography.levels, counts.schema)
        gains = largest_gains(plan, geography)
        _require_protection(config, plan, geography.levels, gains)
        require_room(counts, plan)
        _require_size(config, counts)
        require_exportable(config, geography, counts.schema)
        limits = read_limits(config, geography, counts.schema)
        if limits is not None:
            require_kept(counts, limits)
        if input_digest(config) != digest:
            raise _changed(config.input_path)
        if config.units_path is not None and units_digest(config) != units:
            raise _changed(config.units_path)
        if config.limits_path is not None and limits_digest(config) != limits_table:
            raise _changed(config.limits_path)
        give_back()
    _say_input(stages, geography, counts.cells)
    stages.say(plan.describe(geography.levels))
    for notice in _notices(config, plan, geography.levels, gains):
        stages.say(f"warning   {notice}")
    for promise in weaker_promises():
        stages.say(f"warning   {promise}")
    if units is None:
        stages.say(
            "warning   the list of units is taken from the confidential table and is not protected: name a public list "
            "in geography.units"
        )
    return Prepared(counts, plan, digest, units, limits, limits_table)


def _require_protection(config: RunConfig, plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction]) -> None:
    """Refuse a release that would publish true counts for noisy ones, unless that is what is asked for."""
    bare = strength.unprotected(plan, levels, gains)
    if bare and not config.privacy.accept_no_protection and not isinstance(config, StudyConfig):
        level, part = next(iter(bare.items()))
        raise BudgetError(
            f"level {shown(level)}: with its share of the budget the noise is 0 for {part:.4%} of the counts, so that "
            "true counts would be published: take a smaller budget, or a smaller share of it; where nothing is to be "
            "protected, privacy.invariants publishes a level exactly and says so, and privacy.accept_no_protection = "
            "true releases this, which the manifest then states first"
        )


def _notices(config: RunConfig, plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction]) -> tuple[str, ...]:
    """What whoever reads the release has to know before anything else."""
    found = strength.in_words(plan, levels, gains)
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


def _changed(path: Path) -> DataError:
    return DataError(f"{shown_path(path)}: it changed while it was read; run again when it is complete")


def _require_list(config: RunConfig, digest: str, units: str | None) -> None:
    """Refuse the confidential table as the public list of units, whose digest the manifest states."""
    if units == digest:
        raise ConfigError(
            f"geography.units = {shown(config.geography.units)} is the confidential table itself; give a list that is "
            "public whatever the table holds, or leave geography.units out"
        )


def _require_families(config: RunConfig) -> None:
    """Refuse a release of several queries by a method that has no x >= 0 for them, or whose rows could not be written,
    before any noise is drawn.
    """
    method = config.projection.method
    if not config.by_family or isinstance(config, StudyConfig):
        return
    row_columns(config.schema_of_cells)
    if not METHODS[method].by_family:
        able = " or ".join(repr(one.name) for one in METHODS.values() if one.by_family)
        raise ConfigError(
            f"projection.method = {shown(method)} has x >= 0 where the cells alone are measured (query 'detailed') "
            f"without limits, and privacy names other queries, or bounds limits; take {able}"
        )


def _require_size(config: RunConfig, counts: Counts) -> None:
    """Refuse tables of several queries that are too large to be held as tables of nodes x cells."""
    size = counts.geography.n_nodes * len(counts.cells)
    if config.by_family and size > _LARGEST_HISTOGRAMS:
        raise ConfigError(
            f"{counts.geography.n_nodes:,} nodes x {len(counts.cells):,} cells are {size:,} numbers, and a run of "
            f"several queries or with limits holds several tables of these: up to {_LARGEST_HISTOGRAMS:,} it does; "
            "beyond, take td.measure and td.project_whole in Python, which hold records and not cells"
        )


def _released(config: RunConfig, public: Path, *, recorded: bool) -> bool:
    """Whether ``public`` holds this release already, after making sure that it is whole.

    Raises `ConfigError` where the noise behind it is not ``recorded``, `DataError` naming a file that is not what was
    written, `BudgetError` where the ledger lacks the record that the manifest names.
    """
    if _exists(public) and not recorded:
        raise ConfigError(
            f"{shown_path(public)} exists, and the record of the noise behind it does not; give another --output "
            "directory"
        )
    if not _exists(public) or _is_empty(public):
        return False
    again = f"move {shown_path(public)} away and run again: the same release is made of the same noise"
    entry = verify_files(public, remedy=again)["ledger"]
    if config.ledger is not None and entry is not None:
        Ledger(config.folder / config.ledger.path).require_record(str(entry["record"]), public / MANIFEST)
    return True


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False  # what is wrong with it is for whoever reads it to say


def _exists(public: Path) -> bool:
    try:
        return public.exists()
    except OSError as error:
        raise _unreadable(public, error) from None


def _unreadable(public: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{shown_path(public)}: cannot be read: {reason(error)}; correct the permissions, or give another --output"
    )


def _reserve(config: RunConfig, journal: Journal, prepared: Prepared, *, begun: bool) -> None:
    """Set the release's budget aside in the ledger, where there is one. Raises `BudgetError` if too little is left.

    ``begun``: whether there is a record of what its noise follows from. If there is none although the ledger knows that
    it was drawn, it was lost, and drawing other noise would be a second release on the budget of one.
    """
    if config.ledger is None:
        return
    ledger = Ledger(config.folder / config.ledger.path)
    release = journal.release_name()
    account = ledger.reserve(config.ledger.dataset, release, prepared.plan.events(prepared.counts.geography.levels))
    if not begun and release in account.confirmed:
        raise BudgetError(
            f"{shown_path(journal.folder)}: the ledger {shown_path(ledger.path)} says that release {release} drew its "
            "noise, and its record is not here; restore it from a copy: a new release in another --output spends its "
            "budget anew"
        )


def _confirm(config: RunConfig, journal: Journal, measured: str) -> LedgerEntry | None:
    """Tell the ledger, where there is one, the code of what was measured."""
    if config.ledger is None:
        return None
    release = journal.release_name()
    ledger = Ledger(config.folder / config.ledger.path)
    record = ledger.confirm(config.ledger.dataset, release, measured)
    return LedgerEntry(config.ledger.dataset, release, record)


def _say_input(stages: Stages, geography: Geography, cells: tuple[str, ...]) -> None:
    sizes = ", ".join(
        f"{geography.level_slice(level).stop - geography.level_slice(level).start:,} {level}"
        for level in geography.levels
    )
    stages.say(f"read      {geography.n_nodes:,} nodes ({sizes}) x {len(cells)} cells ({joined(cells)})")
