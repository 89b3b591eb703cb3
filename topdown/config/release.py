"""A release: the sections of a run's file together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import Field, model_validator

from topdown.census.layouts.redistricting_layout import WIDTHS
from topdown.config.derivation import DerivationConfig, OutputWithRecords
from topdown.config.privacy import LedgerOptions, NoiseOptions, Privacy, budget_errors
from topdown.config.table_settings import ROWS, BoundsOptions, GeographyOptions, Input, RowKind
from topdown.errors import BudgetError, ConfigError, PlanError, suggest
from topdown.privacy.plan import Plan
from topdown.privacy.presets import PRESETS
from topdown.release.manifest import require_nameable
from topdown.wording import shown
from topdown.workload import DETAILED, Schema
from topdown.workload.answer_tables import answer_tables
from topdown.workload.redistricting import PERSONS


def contradictions(table: Input, geography: GeographyOptions, *, has_attributes: bool) -> list[str]:
    """What is wrong with [input] and [geography] taken together, in words."""
    found = []
    taken = geography.columns | ({} if table.geoid is None else {table.geoid: "the column of codes"})
    found += [
        f"input.cells names {shown(cell)}, which is {taken[cell]}: cells are the columns of counts; take it out of one "
        "of the two"
        for cell in table.cells
        if cell in taken
    ]
    found += [
        f"input.cells names {shown(cell)} twice; name every column once"
        for cell in dict.fromkeys(table.cells)
        if table.kind.cells_are_columns and table.cells.count(cell) > 1
    ]
    if not (table.kind.cells_are_columns or has_attributes) and (table.kind.counted or len(table.cells) > 1):
        found.append(
            f'input.rows = "{table.rows}" needs a section [schema] with the columns that say which category a row is '
            "of, and all of their categories; where nothing but records is counted, give cells one name"
        )
    if not table.kind.cells_are_columns and geography.fill is not None:
        found.append("geography.fill is for tables with a row per leaf; give records their units at every level")
    if geography.levels is not None and table.geoid not in (None, geography.levels[-1]):
        found.append(
            f"input.geoid is {shown(table.geoid)}, and with geography.levels the leaves are identified by their column "
            f"{shown(geography.levels[-1])}; leave input.geoid out"
        )
    coded = [*(geography.levels or ()), *([] if table.geoid is None else [table.geoid])]
    found += [
        f"input.pad_zeros names {shown(name)}, which is no column of codes; {suggest(name, coded)}"
        for name in table.pad_zeros
        if name not in coded
    ]
    if geography.widths is not None and table.geoid is None:
        found.append("input.geoid is missing: with widths, name the column that holds the codes")
    return found


def _rows_of(table: dict[str, Any]) -> RowKind:
    """What the rows of a section [input] are; of an unknown kind, which is refused later, as of units."""
    usual = ROWS["leaves"]
    rows = table.get("rows")
    return ROWS.get(rows, usual) if isinstance(rows, str) else usual


def _with_spine(settings: Any) -> Any:
    """``settings`` with the levels and, where neither a preset nor they themselves have some, the attributes of the
    redistricting file that they name, if they do."""
    table = settings.get("input")
    if not isinstance(table, dict) or not _rows_of(table).known_layout:
        return settings
    own = settings.get("geography", {})
    if isinstance(own, dict) and "levels" not in own:
        widths = {level: width for level, width in WIDTHS.items() if level != "state"}
        own = {"root_level": "state", "widths": widths, **own}
    lowest = list(own.get("widths") or ["block"])[-1] if isinstance(own, dict) else "block"
    found = {**settings, "input": {"geoid": lowest, **table}, "geography": own}
    privacy = settings.get("privacy")
    if "schema" in settings or not isinstance(privacy, dict) or privacy.get("preset") is not None:
        return found
    known = PERSONS.to_mappings()
    recodes = {**known["recodes"], **settings.get("recodes", {})}
    return {**found, "schema": known["attributes"], "recodes": recodes, "zeros": settings.get("zeros", known["zeros"])}


class RunConfig(DerivationConfig):
    """A release, from the confidential table to the public directory."""

    not_in_fingerprint: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            **DerivationConfig.not_in_fingerprint,
            "whether records are made of the numbers afterwards": ("output.microdata", "output.microdata_order"),
            "which measurements a release in parts has beside what is made of them": ("output.all_measurements",),
            "where the budget is accounted for": ("ledger",),
        }
    )

    input: Input
    geography: GeographyOptions
    privacy: Privacy
    noise: NoiseOptions = NoiseOptions()
    output: OutputWithRecords = OutputWithRecords()
    ledger: LedgerOptions | None = None
    # "schema" is a method of pydantic's models, so the section [schema] has another name here.
    attributes: dict[str, list[str]] | None = Field(default=None, alias="schema")
    """The attributes of a record with their categories. The cells are the product of the attributes."""
    recodes: dict[str, dict[str, dict[str, list[str]]]] = Field(default_factory=dict)
    """Coarser versions of an attribute, by attribute and name: which categories make up each group. Queries may name
    them."""
    zeros: list[dict[str, str | list[str]]] = Field(default_factory=list)
    """Combinations of categories that no record can have (structural zeros). What is not named may be any."""
    bounds: BoundsOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _cells_of_schema(cls, settings: Any) -> Any:
        """Where rows are records, the cells are the product of the attributes; of a redistricting file both are known,
        and so are its units."""
        settings = _with_spine(settings)
        table, attributes = settings.get("input"), settings.get("schema")
        privacy = settings.get("privacy")
        if attributes is None and isinstance(privacy, dict) and privacy.get("preset") in PRESETS:
            attributes = PRESETS[privacy["preset"]].schema.to_mappings()["attributes"]
            settings = {**settings, "schema": attributes}
        if not isinstance(table, dict) or "cells" in table or not isinstance(attributes, dict):
            return settings
        if _rows_of(table).cells_are_columns:
            return settings
        try:
            schema = Schema.from_mapping(attributes)
        except (ConfigError, TypeError):
            return settings  # what is wrong with it is said where it is looked at
        schema.require_listable()
        return {**settings, "input": {**table, "cells": list(schema.cells())}}

    @model_validator(mode="after")
    def _meant(self) -> RunConfig:
        require_nameable(self.input.cells)
        found = contradictions(self.input, self.geography, has_attributes=self.attributes is not None)
        if self.has_schema:
            try:
                self.schema_of_cells.codes(self.input.cells)
            except ConfigError as error:
                found.append(str(error))
        if not found:
            try:
                answer_tables(self.output.tables, self.schema_of_cells)
            except ConfigError as error:
                found.append(f"output.tables: {error}")
            else:
                self.output.require_wide(self.input.cells, self.schema_of_cells)
            try:
                cells = not self.asks_queries or self.output.estimates is True
                self.output.require_margins(self.geography.level_names, cells=cells)
            except ConfigError as error:
                found.append(str(error))
        if found:
            raise ValueError("; ".join(found))
        return self

    @property
    def schema_of_cells(self) -> Schema:
        """The attributes whose product the cells are, from [schema], [recodes] and [[zeros]]; without a schema, the
        attribute "cell". With a preset its recodes and zeros are there too, where the attributes are its own.
        """
        attributes, recodes, zeros = self.attributes or {"cell": self.input.cells}, dict(self.recodes), list(self.zeros)
        if self.privacy.preset is not None:
            known = PRESETS[self.privacy.preset].schema.to_mappings()
            if known["attributes"] == attributes:
                recodes = known["recodes"] | recodes
                zeros = zeros or known.get("zeros", [])
        return Schema.from_mapping(attributes, recodes, zeros)

    @property
    def has_schema(self) -> bool:
        """Whether the configuration says what the cells mean."""
        return self.attributes is not None or bool(self.recodes) or bool(self.zeros)

    @property
    def counted_columns(self) -> list[str]:
        """The columns of the table that say what is counted."""
        if self.input.kind.cells_are_columns:
            return list(self.input.cells)
        return [*(self.attributes or {}), *([] if self.input.count is None else [self.input.count])]

    @property
    def asks_queries(self) -> bool:
        """Whether anything but the cells themselves is measured or published exactly, so that the schema matters."""
        if self.privacy.preset is not None:
            return True
        shares = [part for part in (self.privacy.shares or {}).values() if isinstance(part, dict)]
        return isinstance(self.privacy.invariants, dict) or any(set(part) != {DETAILED} for part in shares)

    @property
    def by_family(self) -> bool:
        """Whether non-negative numbers are made family by family, as several queries and limits ask for."""
        return self.asks_queries or self.bounds is not None

    @property
    def limits_path(self) -> Path | None:
        """The path of the public table of limits, None where there is none."""
        return None if self.bounds is None else self.path_of(self.bounds.path)

    @property
    def input_path(self) -> Path:
        """The confidential table's path."""
        return self.path_of(self.input.path)

    @property
    def units_path(self) -> Path | None:
        """The path of the public list of units, None where the confidential table is the list."""
        listed = self.geography.units
        return None if listed is None else self.path_of(listed)

    def plan(self) -> Plan:
        """The plan of the release, with its bounds. Raises `BudgetError` where it is not well defined, with all that is
        wrong, the levels that it names included.
        """
        if self.privacy.preset is not None:
            if self.noise != NoiseOptions():
                raise BudgetError(f"preset {shown(self.privacy.preset)} has its own noise; leave [noise] out")
            return self.privacy.preset_plan(self.geography.level_names)
        found = budget_errors(self.privacy, self.noise, self.geography.level_names)
        if found:
            # What is written wrongly is corrected first, whatever is wrong with the budget beside it.
            kind = PlanError if any(isinstance(error, PlanError) for error in found) else BudgetError
            raise kind("; ".join(map(str, found)))
        return Plan(**self.privacy.arguments(), **self.noise.model_dump())
