"""A release of two linked tables: [input], [schemas], [link] and [privacy] of both."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictInt, model_validator

from topdown.config.derivation import DerivationConfig, Output
from topdown.config.privacy import LedgerOptions
from topdown.config.release import RunConfig
from topdown.config.table_settings import GeographyOptions, named_twice
from topdown.config.toml_section import Exact, ExactOfSeveral, TomlSection
from topdown.errors import ConfigError, PlanError, require_known
from topdown.linked.link_text import facts_of, universe_of
from topdown.linked.universe import LinkedQuery, Universe
from topdown.neighbours import MOST_MEMBERS
from topdown.privacy.budget_numbers import exact_number, positive_number
from topdown.privacy.linked_units import HOUSEHOLD, PERSON
from topdown.projection.method import LINKED_METHODS
from topdown.wording import listed, shown
from topdown.workload import DETAILED, Schema

_COLUMNS = ("household", "geoid")
"""Columns of linked microdata that are no attributes."""

_OF_ONE_TABLE = (
    "projection.weights",
    "projection.order",
    "output.replicates",
    "output.exports",
    "output.style",
    "output.page",
    "exports",
    "page",
)
"""Settings of a release of one table that change nothing of two."""

_MOST_CODES, _MOST_DIGITS = 1_000_000, 100
"""How many codes a range may have, and how many digits its numbers."""


class CodedOptions(TomlSection):
    """An attribute whose table has codes."""

    column: str
    """The column of codes."""
    categories: dict[str, str | list[str]]
    """The codes of every category: "20", a range such as "21-24", or a list of these."""

    def codes(self) -> dict[str, tuple[str, ...]]:
        """The codes by category, each once. Raises `ConfigError`."""
        found = {category: tuple(_each_code(own, "input.coded")) for category, own in self.categories.items()}
        seen = set[str]()
        for code in itertools.chain.from_iterable(found.values()):
            if code in seen:
                raise ConfigError(f"input.coded: code {shown(code)} of column {shown(self.column)} stands twice")
            seen.add(code)
        return found


def _each_code(own: str | list[str], setting: str) -> list[str]:
    """The codes of a text or of several, one by one; ``setting``: where they stand."""
    return [code for text in ([own] if isinstance(own, str) else own) for code in _range(text, setting)]


def _range(text: str, setting: str) -> list[str]:
    """The codes of "20" or "21-24", also with blanks or a longer dash; of numbers that begin with 0 all have as many
    digits."""
    first, _, last = (part.strip() for part in text.replace("–", "-").partition("-"))
    if not (first.isdigit() and last.isdigit()):
        return [text]
    if not (first + last).isascii():
        raise ConfigError(f"{setting}: the range {shown(text)} has digits that are not 0 to 9; write these")
    if max(len(first), len(last)) > _MOST_DIGITS:
        raise ConfigError(f"{setting}: the range {shown(text)} has numbers of more than {_MOST_DIGITS} digits")
    if int(first) > int(last):
        raise ConfigError(f"{setting}: the range {shown(text)} has no codes; write the smaller number first")
    if int(last) - int(first) >= _MOST_CODES:
        raise ConfigError(
            f"{setting}: the range {shown(text)} has more than {_MOST_CODES:,} codes; give those that the table has"
        )
    return [str(code).zfill(len(first)) for code in range(int(first), int(last) + 1)]


class LinkedInput(TomlSection):
    """The two confidential tables, and the public one of units."""

    households: str
    """The table of households, a row each. Paths are relative to the TOML file."""
    persons: str
    """The table of persons, a row each."""
    public: str | None = None
    """A public table with a row per unit of the lowest level: how many dwellings it has, and how many facilities of
    every kind. Both are published exactly."""
    rows: Literal["records", "long"] = "records"
    """What rows are: "records", with the household's key, or "long": a row per unit and categories, without keys."""
    geoid: str | None = None
    """The column that identifies the unit of the lowest level, in all of the tables; with geography.levels it is the
    last of these."""
    household: str = "household"
    """The column of the household's key, text or whole numbers; empty for persons in facilities."""
    count: str | None = None
    """The column of counts, where rows = "long"; without, each row is one."""
    units: str | None = None
    """The column of the public table with the number of dwellings; without, how many there are is not told."""
    facilities: dict[str, str] = Field(default_factory=dict)
    """Columns of the public table, by the facility that they count; others are called as their facility is."""
    coded: dict[str, dict[str, CodedOptions]] = Field(default_factory=dict)
    """By table and attribute those that are given by codes, such as the columns of the Census Bureau's microdata files;
    others are columns of their own names with categories as values."""
    where: dict[str, dict[str, str | list[str]]] = Field(default_factory=dict)
    """By table and column the values of the rows that are counted, such as the occupied ones among housing units: "1",
    a range such as "20-38", a list of these; "" is a value that is missing."""

    def rows_counted(self) -> dict[str, dict[str, list[str]]]:
        """The values of ``where``, one by one. Raises `ConfigError`."""
        found: dict[str, dict[str, list[str]]] = {}
        for table, chosen in self.where.items():
            for name, own in chosen.items():
                setting = f"input.where.{table}.{name}"
                values = _each_code(own, setting)
                if not values:
                    raise ConfigError(f"{setting} names no value; name one, or leave it out")
                found.setdefault(table, {})[name] = values
        return found

    @model_validator(mode="after")
    def _meant(self) -> LinkedInput:
        if self.count is not None and self.rows != "long":
            raise ValueError('count names the column of counts of rows = "long"; leave it out')
        if self.units is not None and self.public is None:
            raise ValueError("units names a column of the public table; name that, as public")
        return self


_GAUSSIAN = ("discrete-gaussian", "gaussian")


def _of_squares(mechanism: object) -> object:
    """``mechanism``, if what it costs two linked tables is known."""
    if isinstance(mechanism, str) and mechanism not in _GAUSSIAN:
        raise ValueError(
            f"is {shown(mechanism)}; what neighbours of two linked tables cost is known of Gaussian noise alone, "
            f"with a budget in rho: give {listed(_GAUSSIAN)}"
        )
    return mechanism


class LinkedPrivacy(TomlSection):
    """The budget of both tables, and whom it protects."""

    rho: Exact
    """The budget: the sum of 1/sigma^2 over all queries of both tables, which is what one person costs whose attributes
    change. What other neighbours cost, households among them, follows, and is stated."""
    delta: Exact | None = None
    """The delta of the (epsilon, delta) statement; 1e-10 where it is left out."""
    mechanism: Annotated[Literal["discrete-gaussian", "gaussian"], BeforeValidator(_of_squares)] = "discrete-gaussian"
    """The noise."""
    units: list[str | dict[str, StrictInt]] = Field(default=[PERSON])
    """Who is protected: "person", and { household = 7 } with the number of persons that a household has at most (up to
    1,000), without which nothing is guaranteed to households."""
    shares: dict[str, ExactOfSeveral | dict[str, ExactOfSeveral | dict[str, Exact]]]
    """The part of the budget of each table, or of its levels, or of the queries of a level; all add up to 1."""
    queries: dict[str, list[str]] = Field(default_factory=dict)
    """The queries of a table that a share of it, or of a level, is divided among in equal parts: "detailed" where there
    are none. At every level that is measured "detailed" of both tables must be among them."""
    accept_no_protection: bool = False
    """Release also where the noise of a level is almost always 0, which is refused otherwise."""

    @model_validator(mode="before")
    @classmethod
    def _in_rho(cls, given: Any) -> Any:
        if isinstance(given, dict) and "epsilon" in given:
            raise ValueError(
                "epsilon: two linked tables have a budget in rho, for Gaussian noise; give rho, of which the statement "
                "tells the epsilon at a delta"
            )
        return given

    @model_validator(mode="after")
    def _meant(self) -> LinkedPrivacy:
        names = [one if isinstance(one, str) else next(iter(one), "") for one in self.units]
        for one in self.units:
            if (isinstance(one, str) and one != PERSON) or (isinstance(one, dict) and set(one) != {HOUSEHOLD}):
                raise ValueError(
                    f'units has {shown(one)}; give "person", and {{ household = 7 }} with how many one may have at most'
                )
        if PERSON not in names or len(set(names)) < len(names):
            raise ValueError('units: give "person", once, and { household = 7 } once or not at all')
        if self.most is not None and self.most < 1:
            raise ValueError(f"units: household = {self.most}; give 1 or more")
        if self.most is not None and self.most > MOST_MEMBERS:
            raise ValueError(f"units: household = {shown(self.most)}; give at most {MOST_MEMBERS:,}")
        return self

    @property
    def most(self) -> int | None:
        """How many persons a household has at most, where households are protected."""
        return next((one[HOUSEHOLD] for one in self.units if isinstance(one, dict)), None)


class LinkedOutput(Output):
    """Where the release goes, and which files it has."""

    linked_microdata: bool = False
    """Write every household with its members, as records that tabulate to the release of both tables."""


class LinkedStudyOptions(TomlSection):
    """How `topdown study` compares both tables solved separately and together."""

    replicates: int = Field(default=20, ge=1)
    """How many times the noise is drawn."""
    seed: int = 1
    """The seed of the simulated noise, which makes a study repeatable. No release has it."""
    public_input: bool = False
    """Whether the tables are public already. If not, everything that the study writes is confidential."""


class LinkedConfig(DerivationConfig):
    """A release of households and the persons in them, or of whatever else is nested so."""

    not_in_fingerprint: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            **DerivationConfig.not_in_fingerprint,
            "whether records are made of the numbers afterwards": ("output.linked_microdata",),
            "where the budget is accounted for": ("ledger",),
            "how errors are simulated, which no release is made of": ("study",),
        }
    )

    input: LinkedInput
    geography: GeographyOptions
    privacy: LinkedPrivacy
    schemas: dict[str, dict[str, list[str]]]
    """The attributes of each table, by its name, with their categories."""
    recodes: dict[str, dict[str, dict[str, dict[str, list[str]]]]] = Field(default_factory=dict)
    """Coarser versions of attributes, by table, attribute and name."""
    zeros: dict[str, list[dict[str, str | list[str]]]] = Field(default_factory=dict)
    """Combinations of categories that no record of a table can have."""
    link: dict[str, Any]
    """How persons belong to households; see docs/households.md."""
    output: LinkedOutput = LinkedOutput()
    ledger: LedgerOptions | None = None
    study: LinkedStudyOptions = LinkedStudyOptions()

    @model_validator(mode="after")
    def _meant(self) -> LinkedConfig:
        try:
            universe = self.universe
            facts_of(self.link)
            for name in universe.names:
                self._shares_of(name)
            for given in (
                *(self.recodes, self.zeros, self.privacy.shares, self.privacy.queries),
                *(self.input.coded, self.input.where),
            ):
                for name in given:
                    require_known(name, universe.names, "table:")
            self.input.rows_counted()
            for name in self.input.facilities:
                require_known(name, [one.name for one in universe.facilities], "facility in input.facilities:")
            for name, coded in self.input.coded.items():
                for attribute, own in coded.items():
                    require_known(attribute, self.schemas[name], f"attribute of {name}:")
                    categories = self.schemas[name][attribute]
                    if sorted(own.codes()) != sorted(categories):
                        raise ConfigError(
                            f"input.coded.{name}.{attribute} has codes of {listed(own.categories)}; give each category "
                            f"of the schema some: {listed(categories)}"
                        )
            asked = set[str]()
            for text in self.output.tables:
                query = LinkedQuery.parse(text, universe)
                if query.vacant:
                    raise ConfigError(
                        f"output.tables: {shown(text)} has an answer for vacant units, which no table of a release "
                        "has; leave '+ vacant' out"
                    )
                name = query.name
                if name in asked:
                    raise ConfigError(f"output.tables: {shown(text)} is asked for twice; name it once")
                asked.add(name)
            for schema in (universe.households, universe.persons):
                for name in schema.names:
                    if name in _COLUMNS:
                        raise ConfigError(f"an attribute is called {shown(name)}, as a column of records is; rename it")
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if self.projection.method not in LINKED_METHODS:
            raise ValueError(
                f"projection.method is {shown(self.projection.method)}, and two linked tables are solved by "
                f"{' or '.join(map(repr, LINKED_METHODS))}: write one of these"
            )
        for setting in _OF_ONE_TABLE:
            section, _, name = setting.rpartition(".")
            holder: TomlSection = getattr(self, section) if section else self
            if getattr(holder, name) != type(holder).model_fields[name].get_default(call_default_factory=True):
                raise ValueError(
                    f"{setting}: a release of two linked tables is made without it; leave it out (the folder of each "
                    "table can be given to topdown export and topdown page)"
                )
        if self.units_path is None:
            raise ValueError("geography.units is missing: name a public list of the units, or a public table")
        if self.geography.spine is not None:
            raise ValueError(
                "geography.spine: a release of two linked tables is measured on the published geography; take it out"
            )
        if len(self.schemas) != 2:
            raise ValueError(f"schemas has {listed(self.schemas)}; give two tables")
        return self

    def schema_of(self, name: str) -> Schema:
        """The schema of the table called ``name``."""
        return Schema.from_mapping(self.schemas[name], self.recodes.get(name), self.zeros.get(name, ()))

    @cached_property
    def universe(self) -> Universe:
        """The universe of both tables. Raises `ConfigError`."""
        return universe_of({name: self.schema_of(name) for name in self.schemas}, self.stated_link)

    @property
    def stated_link(self) -> dict[str, Any]:
        """The section [link], with the largest household that there may be in it."""
        total = self.link.get("members_total")
        if not isinstance(total, Mapping):
            return dict(self.link)
        most, own = self.privacy.most, total.get("largest")
        if most is not None and own is not None and own != most:
            raise ConfigError(
                f"link.members_total.largest is {shown(own)}, and privacy.units has household = {most}: give "
                "the same number, for the guarantee speaks of the largest"
            )
        stated = {} if most is None else {"largest": most}
        return {**self.link, "members_total": {**total, **stated}}

    def _shares_of(self, name: str) -> dict[str, dict[str, Fraction]]:
        """The part of the whole budget of every query of every level of a table."""
        given, levels = self.privacy.shares.get(name, "0"), self.geography.level_names
        queries = self.privacy.queries.get(name, [DETAILED])
        if not queries:
            raise ConfigError(f"privacy.queries.{name} is empty; name a query, or leave it out")
        twice = named_twice(queries)
        if twice is not None:
            raise PlanError(f"privacy.queries.{name} names {shown(twice)} twice; name it once")

        def spread(share: Any, where: str) -> dict[str, Fraction]:
            if isinstance(share, Mapping):
                return {query: exact_number(part, f"{where}.{query}") for query, part in share.items()}
            return dict.fromkeys(queries, exact_number(share, where) / len(queries))

        where = f"privacy.shares.{name}"
        if isinstance(given, Mapping):
            for level in given:
                require_known(level, levels, f"level of {where}:")
            return {level: spread(share, f"{where}.{level}") for level, share in given.items()}
        each = exact_number(given, where) / len(levels)
        return {level: spread(each, where) for level in levels}

    def _require_detailed(self, name: str) -> None:
        """Raises `PlanError` where a level is measured, but not every cell of a table: households and their members
        would then be known by the rows that tie them and by little else, and few such programs are solved."""
        measured = {level for table in self.schemas for level, of in self._shares_of(table).items() if any(of.values())}
        for level in self.geography.level_names:
            shares = self._shares_of(name).get(level, {})
            asked = [LinkedQuery.parse(f"{name}: {query}", self.universe) for query, share in shares.items() if share]
            if level in measured and not any(one.query.n_answers == one.query.schema.n_cells for one in asked):
                raise PlanError(
                    f"level {shown(level)}: {shown(DETAILED)} of the table {shown(name)} has no share; both tables "
                    f"are solved together from all of their cells, at every level that is measured: add "
                    f'"{DETAILED}" to privacy.queries.{name}, or give it a share'
                )

    def rho_of(self, name: str) -> Fraction:
        """The part of the budget that a table has: the sum of 1/sigma^2 over its queries. Raises `BudgetError`."""
        shares = {
            one: sum((sum(of.values()) for of in self._shares_of(one).values()), Fraction(0)) for one in self.schemas
        }
        if sum(shares.values()) != 1:
            raise PlanError(
                f"privacy.shares add up to {sum(shares.values())} over both tables, not to exactly 1; correct them"
            )
        return positive_number(self.privacy.rho, "rho") * shares[name]

    def of_table(self, name: str) -> RunConfig:
        """The release of one of both tables, as a configuration of its own: a table of records, whose budget is its
        part. Raises `ConfigError` or `BudgetError` for what cannot be meant."""
        rho, whole = self.rho_of(name), positive_number(self.privacy.rho, "rho")
        if rho == 0:
            raise PlanError(f"privacy.shares: the table {shown(name)} has none; nothing of it would be measured")
        self._require_detailed(name)
        shares = {
            level: {query: str(part * whole / rho) for query, part in parts.items()}
            for level, parts in self._shares_of(name).items()
        }
        settings, words = self.model_dump(mode="json", by_alias=True), self.universe.words
        path, unit = {
            words.households: (self.input.households, words.household),
            words.persons: (self.input.persons, words.person),
        }[name]
        output = {key: value for key, value in settings["output"].items() if key != "linked_microdata"}
        own = [text.partition(":")[2].strip() for text in self.output.tables if text.partition(":")[0].strip() == name]
        rows = {"rows": "long", "count": self.input.count} if self.input.count is not None else {"rows": "records"}
        return RunConfig.model_validate(
            {
                "title": f"{self.title}: {name}" if self.title else name,
                "input": {"path": path, "geoid": self.input.geoid, **rows},
                "geography": {
                    **self.geography.model_dump(mode="json", exclude_unset=True),
                    "units": self.geography.units or self.input.public,
                },
                "privacy": {
                    "mechanism": self.privacy.mechanism,
                    "rho": str(rho),
                    "delta": self.privacy.delta,
                    "shares": shares,
                    "neighbours": "substitute",
                    "unit": unit,
                    "accept_no_protection": self.privacy.accept_no_protection,
                },
                "schema": self.schemas[name],
                "recodes": self.recodes.get(name, {}),
                "zeros": self.zeros.get(name, []),
                "projection": settings["projection"],
                "output": {**output, "tables": own},
                "catalogue": settings["catalogue"],
                "folder": self.folder,
            }
        )

    @property
    def units_path(self) -> Path | None:
        """The path of the public list of units, which the public table may be."""
        listed_in = self.geography.units or self.input.public
        return None if listed_in is None else self.path_of(listed_in)

    @property
    def input_paths(self) -> dict[str, Path]:
        """The tables that are counted, by their settings: both confidential ones, and the public one."""
        named = {
            "input.households": self.input.households,
            "input.persons": self.input.persons,
            "input.public": self.input.public,
        }
        return {name: self.path_of(path) for name, path in named.items() if path is not None}
