"""Two linked tables in, protected measurements of both out. The counts end here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from topdown.confidential.linked_counts import LinkedCounts
from topdown.confidential.linked_records import (
    CodedAttribute,
    LinkedColumns,
    count_linked_records,
    count_linked_tables,
)
from topdown.confidential.measure import measure_narrow
from topdown.config import RunConfig
from topdown.config.linked_settings import LinkedConfig
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.machine.progress import Silent, Stages
from topdown.machine.system import weaker_promises
from topdown.measurements.journal import MEASUREMENTS, BegunRelease, Journal
from topdown.measurements.measurements import Measurements
from topdown.measurements.person_moves import linked_guarantee
from topdown.pipeline.charging import charged_to, confirm, require_left
from topdown.pipeline.derive import Drawn
from topdown.pipeline.draw import nodes_in_words, notices_of, require_directory, reserved, sound_plan
from topdown.pipeline.input.unit_reading import digest_of, identifier_columns, listed_units, path_columns
from topdown.pipeline.linked.linked_derive import LinkedDrawn
from topdown.pipeline.linked.linked_rehearsal import rehearse_linked
from topdown.privacy.accounting import Event
from topdown.privacy.ledger import Ledger
from topdown.privacy.linked_units import PERSON, LinkedGuarantee
from topdown.privacy.plan import Plan
from topdown.release.layouts import row_columns
from topdown.release.manifest import LedgerEntry, Origin
from topdown.tables.readers import changed


@dataclass(frozen=True)
class LinkedPrepared:
    """What a release of two tables starts from: validated counts, by table the plan and the notices that a reader has
    to know first, what both guarantee together, and the digests of the tables and of the public list of units."""

    counts: LinkedCounts
    plans: Mapping[str, Plan]
    notices: Mapping[str, tuple[str, ...]]
    guarantee: LinkedGuarantee
    digest: str = field(repr=False)
    units: str


def check_linked_tables(config: LinkedConfig, stages: Stages | None = None) -> LinkedPrepared:
    """Validate ``config``, its tables and its plans together, and rehearse; draw nothing and write nothing."""
    stages = stages or Silent()
    require_directory(config.output_path)
    prepared = prepare_linked(config, stages)
    journal = Journal(config.output_path / "internal", config.fingerprint(prepared.units), prepared.digest)
    require_left(charged_to(config), journal, _events(config, prepared))
    _rehearse(config, prepared, stages)
    return prepared


def _rehearse(config: LinkedConfig, prepared: LinkedPrepared, stages: Stages) -> None:
    counts = prepared.counts
    rehearse_linked(config, counts.geography, prepared.plans, counts.figures, prepared.guarantee, stages)


def draw_linked(config: LinkedConfig, directory: Path, held: ExitStack, stages: Stages) -> tuple[LinkedDrawn, bool]:
    """The measurements of both tables of the release that is written to ``directory``, and whether it is there already.

    As `topdown.pipeline.draw.draw`: reads and validates, rehearses, reserves the budget, keeps what the noise follows
    from, draws, and confirms it; a run that is started again draws the same noise.
    """
    require_directory(directory)
    prepared = prepare_linked(config, stages)
    journal = Journal(directory / "internal", config.fingerprint(prepared.units), prepared.digest)

    def require(begun: BegunRelease | None) -> None:
        if begun is None:
            _rehearse(config, prepared, stages)

    begun, there = reserved(config, directory, journal, _events(config, prepared), held, stages, require)
    with stages.stage("drawing noise"):
        measured = {
            name: measure_narrow(prepared.counts.of_table(name), plan, begun.key.of_table(name))
            for name, plan in prepared.plans.items()
        }
    with stages.stage("keeping what was measured"):
        code = journal.keep_code(begun, begun.key.code(MEASUREMENTS, _all_of(measured)))
    entry, noise = confirm(charged_to(config), journal, code), journal.release_name()
    tables = {
        name: Drawn(measured[name], begun.ties, plan, _origin(prepared, name, entry, noise))
        for name, plan in prepared.plans.items()
    }
    return LinkedDrawn(tables, prepared.counts.figures, prepared.guarantee, noise, begun.ties), there


def _all_of(measured: Mapping[str, Measurements]) -> Iterator[tuple[tuple[str, str], npt.NDArray[Any]]]:
    """All numbers that were measured, by table and level, and query."""
    for table, one in measured.items():
        yield (table, ""), one.values
        for (level, query), answers in sorted(one.others.items()):
            yield (f"{table}: {level}", query), answers.values


def _origin(prepared: LinkedPrepared, name: str, entry: LedgerEntry | None, noise: str) -> Origin:
    other = next(one for one in prepared.counts.universe.names if one != name)
    together = prepared.guarantee.describe()[1].partition(" By what differs")[0]
    notice = (
        f"This table was counted from the same records as that of {other}, and both cost together what link.json "
        f"beside this folder states; what is said of the budget here is this table's part alone. {together}"
    )
    return Origin(prepared.units, entry, notices=(notice, *prepared.notices[name]), noise=noise)


def prepare_linked(config: LinkedConfig, stages: Stages) -> LinkedPrepared:
    """Validate ``config``, its tables and its plans together, without asking what budget is left."""
    names = config.universe.names
    configs = {name: config.of_table(name) for name in names}
    with stages.stage("reading the tables"):
        digest, units = _digests(config)
        assert config.units_path is not None  # nosec B101 # narrows a type: the configuration asks for it
        first = configs[names[0]]
        geography = listed_units(config.units_path, first, stages)
        counts = _counts(config, first, geography)
        plans, notices = dict[str, Plan](), dict[str, tuple[str, ...]]()
        for name, one in configs.items():
            table = counts.of_table(name)
            row_columns(table.schema)  # refuses rows that could not be written
            plans[name], gains = sound_plan(one, table)
            notices[name] = notices_of(one, plans[name], geography.levels, gains)
        if _digests(config) != (digest, units):
            raise changed(config.input_paths["input.households"])
    guarantee = linked_guarantee(config.universe, plans, config.privacy.most)
    stages.say(f"read      {nodes_in_words(geography)}, {' and '.join(names)}")
    for line in guarantee.describe():
        stages.say(line)
    for promise in weaker_promises():
        stages.say(f"warning   {promise}")
    return LinkedPrepared(counts, plans, notices, guarantee, digest, units)


def _counts(config: LinkedConfig, first: RunConfig, geography: Geography) -> LinkedCounts:
    separator = config.geography.separator
    columns = LinkedColumns(
        geoid=tuple(path_columns(first, identifier_columns(first))),
        separator="/" if separator is None else separator,
        household=config.input.household,
        count=config.input.count,
        units=config.input.units,
        facilities=config.input.facilities,
        coded={
            table: {name: CodedAttribute(one.column, one.codes()) for name, one in coded.items()}
            for table, coded in config.input.coded.items()
        },
        where=config.input.rows_counted(),
    )
    paths = config.input_paths
    read = count_linked_records if config.input.rows == "records" else count_linked_tables
    return read(
        config.universe,
        geography,
        paths["input.households"],
        paths["input.persons"],
        paths.get("input.public"),
        columns,
    )


def _digests(config: LinkedConfig) -> tuple[str, str]:
    """SHA-256 of the counted tables together, and of the public list of units."""
    assert config.units_path is not None  # nosec B101 # narrows a type: the configuration asks for it
    paths = {**config.input_paths, "geography.units": config.units_path}
    found = {name: digest_of(path, name) for name, path in paths.items()}
    units = found.pop("geography.units")
    if units in (found["input.households"], found["input.persons"]):
        raise ConfigError("the public list of units is a confidential table itself; give a list that is public")
    return hashlib.sha256("\n".join(f"{name} {one}" for name, one in found.items()).encode()).hexdigest(), units


def _events(config: LinkedConfig, prepared: LinkedPrepared) -> list[Event]:
    """The events of both tables as the ledger's unit is charged for them: a person, or a household."""
    guarantee, names = prepared.guarantee, prepared.counts.universe.names
    unit, charged = PERSON, charged_to(config)
    if charged is not None:
        accounted = Ledger(charged.path).account(charged.dataset).unit
        unit = PERSON if accounted == PERSON or guarantee.most is None else "household"
    households, persons = (
        [replace(event, query=f"{name}: {event.query}") for event in prepared.plans[name].events()] for name in names
    )
    return guarantee.events(unit, persons, households)
