"""The main job, readable as prose: from a table of counts to a consistent, publishable release."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from topdown.config import RunConfig, StudyConfig
from topdown.counts import Counts
from topdown.door import measurable, measure, require_room
from topdown.errors import BudgetError, ConfigError, DataError, ProjectionError
from topdown.geography import Geography
from topdown.journal import Journal
from topdown.manifest import LedgerEntry, describe_release
from topdown.measurements import Measurements
from topdown.memory import give_back
from topdown.noise import KeyedSource, SecureSource, SeededSource
from topdown.parallel import map_ordered, thread_pool
from topdown.privacy.ledger import Ledger
from topdown.privacy.plan import Plan
from topdown.progress import Silent, Stages
from topdown.projection.crosscheck import CrossCheck, cross_check
from topdown.projection.estimate import Estimate
from topdown.projection.project import project
from topdown.publication import publish
from topdown.readers import require_encodable
from topdown.reading import input_digest, read_input, units_digest
from topdown.rehearsal import stand_ins
from topdown.release import round_counts
from topdown.synthesis import microdata
from topdown.synthesis.microdata import Microdata
from topdown.synthesis.records import Order
from topdown.verify import MANIFEST, verify_files
from topdown.wording import reason, shown, shown_path

STAGES = 8
"""How many stages `run` has, for a progress bar."""
RECORDS_STAGES = 3
"""How many `synthesize` has, and `run` more than ``STAGES`` where it goes on to microdata."""


@dataclass(frozen=True)
class Outcome:
    """What a run left: the directory that may be published, whether it was there already, and its microdata if any."""

    public: Path
    already_there: bool = False
    microdata: Microdata | None = None


@dataclass(frozen=True)
class Prepared:
    """What a release starts from: validated counts, the plan for their levels, the digest of their file.

    ``units``: the digest of the public list of units, None without one.
    """

    counts: Counts
    plan: Plan
    digest: str = field(repr=False)
    units: str | None = None


def check(config: RunConfig, stages: Stages | None = None) -> Prepared:
    """Validate ``config``, its data and its plan together, and rehearse; draw nothing and write nothing."""
    stages = stages or Silent()
    prepared = _prepare(config, stages)
    if not config.asks_queries:  # else it is a study's, and a study spends nothing
        _rehearse(config, prepared.counts.geography, prepared.plan, stages)
    return prepared


def _prepare(config: RunConfig, stages: Stages) -> Prepared:
    plan = config.plan()
    _require_solver(config)
    _require_non_negative(config)
    with stages.stage("reading the table"):
        digest, units = input_digest(config), units_digest(config)
        _require_list(config, digest, units)
        geography, counts = read_input(config)
        plan = measurable(plan, geography.levels, counts.schema)
        require_room(counts, plan)
        if input_digest(config) != digest:
            raise _changed(config.input_path)
        if config.units_path is not None and units_digest(config) != units:
            raise _changed(config.units_path)
        give_back()
    _say_input(stages, geography, counts.cells)
    stages.say(plan.describe(geography.levels))
    if units is None:
        stages.say(
            "warning   the list of units is taken from the confidential table and is not protected: name a public list "
            "in geography.units"
        )
    return Prepared(counts, plan, digest, units)


def _changed(path: Path) -> DataError:
    return DataError(f"{shown_path(path)}: it changed while it was read; run again when it is complete")


def _rehearse(config: RunConfig, geography: Geography, plan: Plan, stages: Stages) -> None:
    """Project, certify, solve again and round stand-ins, so that what cannot be done is found before anything is drawn.

    Whether it succeeds depends on what is public, not on the counts. Raises `ProjectionError`.
    """
    with stages.stage("rehearsing on stand-in counts"):
        measurements = stand_ins(geography, plan)
        try:
            estimates = _estimates(config, measurements, None)
            _cross_checks(config, measurements, estimates, KeyedSource(bytes(32)))
            round_counts(estimates["non_negative"], source=SeededSource(("rehearsal",)))
        except ProjectionError as error:
            raise ProjectionError(
                f"rehearsed on stand-in counts, before anything was drawn: {error}. Take another projection.method or "
                "projection.solver, or shares that differ less from level to level"
            ) from None


def _require_list(config: RunConfig, digest: str, units: str | None) -> None:
    """Refuse the confidential table as the public list of units, whose digest the manifest states."""
    if units == digest:
        raise ConfigError(
            f"geography.units = {shown(config.geography.units)} is the confidential table itself; give a list that is "
            "public whatever the table holds, or leave geography.units out"
        )


def _require_non_negative(config: RunConfig) -> None:
    """Refuse a release of several queries, whose counts could not be made non-negative, before any noise is drawn."""
    if config.asks_queries and not isinstance(config, StudyConfig):
        raise ConfigError(
            "privacy.shares or privacy.invariants name queries, and a release projects with x >= 0, which is there "
            "where the cells alone are measured (query 'detailed'); measure them in Python (td.measure, td.project "
            "with nonnegative=False), or study them with `topdown study`"
        )


def _require_solver(config: RunConfig) -> None:
    """Refuse a solver that is not installed, before any noise is drawn."""
    if not config.projection.cross_check:
        return
    import cvxpy

    installed: list[str] = cvxpy.installed_solvers()  # type: ignore[no-untyped-call]
    if config.projection.solver.upper() not in installed:
        raise ConfigError(
            f"projection.solver = {shown(config.projection.solver)} is not installed; cvxpy has {', '.join(installed)}"
        )


def run(
    config: RunConfig, output: Path | None = None, stages: Stages | None = None, *, workers: int | None = None
) -> Outcome:
    """Read, measure, project, round and write the release that ``config`` describes to ``output``/public.

    Noise is drawn once: started again with the same configuration and input, a run goes on from its own measurements.
    With a ledger the budget is reserved before the first draw. The public directory appears complete or not at all.
    Where ``config.output.microdata`` says so, its records follow, as `synthesize` writes them.
    ``workers``: threads, by default one per processor; the release does not depend on it. Raises `ConfigError`,
    `DataError`, `ProjectionError` or `BudgetError`; nothing is then left half-written.
    """
    stages = stages or Silent()
    directory = require_encodable(config.output_path if output is None else output)
    prepared = _prepare(config, stages)
    journal = Journal(directory / "internal", config.fingerprint(prepared.units), prepared.digest)
    with journal.locked():
        if config.output.microdata:
            microdata.require_replaceable(directory / "microdata")
        drawn = _drawn(config, journal, prepared, directory / "public", stages)
        del prepared  # With it go the counts: nothing from here on may know them, and their memory is wanted.
        give_back()
        outcome = _release(config, journal, drawn, directory / "public", stages, workers)
        del drawn
        if config.output.microdata:
            made = _records(config, directory, config.output.microdata_order, stages)
            outcome = replace(outcome, microdata=made)
    return outcome


@dataclass(frozen=True)
class Drawn:
    """What a release is made of once its noise is drawn, without the counts; ``released``: whether it is made."""

    measurements: Measurements
    ties: KeyedSource = field(repr=False)
    plan: Plan
    units: str | None
    released: bool


def _drawn(config: RunConfig, journal: Journal, prepared: Prepared, public: Path, stages: Stages) -> Drawn:
    found = journal.read(prepared.counts.geography, prepared.plan, prepared.counts.cells)
    released = _released(config, public, recorded=found is not None)
    measurements, ties = _measurements(config, journal, prepared, found, stages)
    return Drawn(measurements, ties, prepared.plan, prepared.units, released)


def _release(
    config: RunConfig, journal: Journal, drawn: Drawn, public: Path, stages: Stages, workers: int | None
) -> Outcome:
    """Make the release in ``public``, or find it there complete; the journal is held."""
    measurements = drawn.measurements
    with thread_pool(workers) as pool:
        entry = _confirm(config, journal)
        if drawn.released:
            stages.say(f"{public} holds this release already, complete; nothing was drawn or written")
            return Outcome(public, already_there=True)
        with stages.stage("projecting"):
            estimates = _estimates(config, measurements, pool)
            give_back()
        with stages.stage("solving again by cvxpy"):
            checks = _cross_checks(config, measurements, estimates, drawn.ties)
        with stages.stage("rounding"):
            release = round_counts(estimates["non_negative"], source=drawn.ties)
            give_back()
        with stages.stage("writing"):
            publish(
                public,
                measurements,
                estimates,
                release,
                lambda files: describe_release(
                    config, measurements, drawn.plan, estimates, checks, release, files, entry, drawn.units
                ),
                csv=config.output.csv,
                executor=pool,
            )
    _say_output(stages, public, checks)
    return Outcome(public)


def synthesize(
    config: RunConfig, output: Path | None = None, order: Order | None = None, stages: Stages | None = None
) -> Microdata:
    """The records of the release that `run` made of ``config``, in ``order`` (by default the configuration's).

    They lie in microdata/ beside public/ and are post-processing of it alone. Meanwhile no `run` works in the same
    directory. Raises `ConfigError` and `DataError` as `topdown.synthesis.microdata.synthesize` does.
    """
    directory = require_encodable(config.output_path if output is None else output)
    with ExitStack() as held:
        # Where a release was handed on without its internal/, no run can be at work.
        if os.path.isdir(directory / "internal"):  # no error where the directory cannot be read: that comes later
            held.enter_context(Journal(directory / "internal", config.fingerprint(), "").locked())
        return _records(config, directory, order or config.output.microdata_order, stages or Silent())


def _records(config: RunConfig, directory: Path, order: Order, stages: Stages) -> Microdata:
    schema = config.schema_of_cells
    made = microdata.synthesize(
        directory / "public", directory / "microdata", schema=schema, order=order, stages=stages
    )
    if made.already_there:
        stages.say(f"{made.directory} holds these microdata already, complete; nothing was written")
        return made
    for cell, meaning in zip(config.input.cells, microdata.cell_meanings(config.input.cells, schema), strict=True):
        stages.say(f"schema    {cell}: " + ", ".join(f"{name} = {category}" for name, category in meaning.items()))
    stages.say("checked   the records, read back and tabulated, equal the release")
    stages.say(f"wrote     {made.directory} ({made.records:,} records, {made.order}, in {len(made.files)} files)")
    return made


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
    again = f"move {shown_path(public)} away and run again: the same release is made from the noise that was kept"
    entry = verify_files(public, remedy=again)["ledger"]
    if config.ledger is not None and entry is not None:
        Ledger(config.folder / config.ledger.path).require_record(str(entry["record"]), public / MANIFEST)
    return True


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False  # what is wrong with it is for whoever reads it to say


def _measurements(
    config: RunConfig,
    journal: Journal,
    prepared: Prepared,
    found: tuple[Measurements, KeyedSource] | None,
    stages: Stages,
) -> tuple[Measurements, KeyedSource]:
    """The measurements that this run drew before, or new ones, kept before anything is derived from them."""
    if found is None:
        _rehearse(config, prepared.counts.geography, prepared.plan, stages)
    _reserve(config, journal, prepared, drawn=found is not None)
    if found is not None:
        stages.say("going on from the measurements that were drawn before: no noise is drawn, no budget is spent")
        return found
    with stages.stage("drawing noise"):
        found = measure(prepared.counts, prepared.plan, SecureSource()), KeyedSource.fresh()
    with stages.stage("keeping the measurements"):
        journal.write(*found)
    return found


def _exists(public: Path) -> bool:
    try:
        return public.exists()
    except OSError as error:
        raise _unreadable(public, error) from None


def _unreadable(public: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{shown_path(public)}: cannot be read: {reason(error)}; correct the permissions, or give another --output"
    )


def _reserve(config: RunConfig, journal: Journal, prepared: Prepared, *, drawn: bool) -> None:
    """Set the release's budget aside in the ledger, where there is one. Raises `BudgetError` if too little is left.

    ``drawn``: whether its measurements are kept. If they are not although the ledger knows of them, they were lost, and
    drawing others would be a second release on the budget of one.
    """
    if config.ledger is None:
        return
    ledger = Ledger(config.folder / config.ledger.path)
    release = journal.release_name()
    account = ledger.reserve(config.ledger.dataset, release, prepared.plan.events(prepared.counts.geography.levels))
    if not drawn and release in account.confirmed:
        raise BudgetError(
            f"{shown_path(journal.folder)}: the ledger {shown_path(ledger.path)} says that release {release} drew its "
            "noise, and its record is not here; restore it from a copy: a new release in another --output spends its "
            "budget anew"
        )


def _confirm(config: RunConfig, journal: Journal) -> LedgerEntry | None:
    """Tell the ledger, where there is one, what was measured."""
    if config.ledger is None:
        return None
    release = journal.release_name()
    ledger = Ledger(config.folder / config.ledger.path)
    record = ledger.confirm(config.ledger.dataset, release, journal.digest)
    return LedgerEntry(config.ledger.dataset, release, record)


def _estimates(config: RunConfig, measurements: Measurements, pool: Executor | None) -> dict[str, Estimate]:
    """Least squares, called "unbiased" where it is (under bounded noise it is not), and the non-negative estimate."""
    options = config.projection
    bounded = measurements.plan is not None and measurements.plan.bounds.any
    jobs: dict[str, Callable[[], Estimate]] = {
        "least_squares" if bounded else "unbiased": lambda: project(measurements, "gls"),
        "non_negative": lambda: project(measurements, options.method, nonnegative=True, weights=options.weights),
    }
    return dict(zip(jobs, map_ordered(lambda job: job(), list(jobs.values()), pool), strict=True))


def _cross_checks(
    config: RunConfig, measurements: Measurements, estimates: dict[str, Estimate], ties: KeyedSource
) -> dict[str, CrossCheck]:
    """A second solution of every program by cvxpy. Raises `ProjectionError` where they disagree.

    What is looked at in a large tree is drawn from streams of their own under the key of ``ties``, so that the same
    release, written again, is the same bytes, and the bits that break ties are no others than before.
    """
    if not config.projection.cross_check:
        return {}
    checks = {
        name: cross_check(
            measurements, estimate, solver=config.projection.solver, rng=_generator(ties.spawn("cross-check", name))
        )
        for name, estimate in estimates.items()
    }
    for name, found in checks.items():
        if not found.agrees:
            raise ProjectionError(
                f"{name}: the tree engine and cvxpy with {found.solver} differ by {found.largest_difference:.3g} on "
                f"{found.scope}, more than {found.tolerance:.3g}; nothing was released. Try another projection.solver"
            )
    return checks


def _generator(source: KeyedSource) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(int.from_bytes(source.read(32), "little")))


def _say_input(stages: Stages, geography: Geography, cells: tuple[str, ...]) -> None:
    sizes = ", ".join(
        f"{geography.level_slice(level).stop - geography.level_slice(level).start:,} {level}"
        for level in geography.levels
    )
    stages.say(f"read      {geography.n_nodes:,} nodes ({sizes}) x {len(cells)} cells ({', '.join(cells)})")


def _say_output(stages: Stages, public: Path, checks: dict[str, CrossCheck]) -> None:
    for name, found in checks.items():
        stages.say(
            f"checked   {name.replace('_', '-')}: cvxpy agrees to {found.largest_difference:.1e} on {found.scope}"
        )
    for path in sorted(public.iterdir()):
        stages.say(f"wrote     {path} ({path.stat().st_size:,} bytes)")
    stages.say(
        f"next      open {public / 'manifest.json'} for what is protected and by how much; release.* for whole counts, "
        "estimates.parquet for estimates with their variances"
    )
