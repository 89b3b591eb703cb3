"""The file of `topdown run`: all sections of a release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import Field, model_validator

from topdown.census.layouts.redistricting_layout import WIDTHS
from topdown.config.derivation import DerivationConfig, OutputWithRecords, Projection
from topdown.config.privacy import LedgerOptions, NoiseOptions, Privacy, budget_errors
from topdown.config.table_settings import ROWS, BoundsOptions, GeographyOptions, Input, RowKind, TiesOptions
from topdown.errors import BudgetError, ConfigError, PlanError, suggest
from topdown.privacy.plan import Plan
from topdown.privacy.presets import PRESETS
from topdown.release.manifest import require_nameable
from topdown.wording import shown
from topdown.workload import DETAILED, Schema
from topdown.workload.answer_tables import answer_tables
from topdown.workload.redistricting import PERSONS


def contradictions(table: Input, geography: GeographyOptions, *, has_attributes: bool) -> list[str]:
    """The contradictions between [input] and [geography], in words."""
    found = []
    taken = geography.columns | ({} if table.geoid is None else {table.geoid: "the column of codes"})
    found += [
        f"input.cells names {shown(cell)}, which is {taken[cell]}: cells are the columns of counts; remove it from one "
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
            f'input.rows = "{table.rows}" needs a section [schema] with the columns that give the category of a row, '
            "and all of their categories; if only the number of records is counted, give cells one name"
        )
    if not table.kind.cells_are_columns and geography.fill is not None:
        found.append("geography.fill is for tables with a row per leaf; give every record its units at all levels")
    if geography.levels is not None and table.geoid not in (None, geography.levels[-1]):
        found.append(
            f"input.geoid is {shown(table.geoid)}, and with geography.levels the leaves are identified by their column "
            f"{shown(geography.levels[-1])}; leave input.geoid out"
        )
    coded = [*(geography.levels or ()), *([] if table.geoid is None else [table.geoid])]
    found += [
        f"input.pad_zeros names {shown(name)}, which is not a column of codes; {suggest(name, coded)}"
        for name in table.pad_zeros
        if name not in coded
    ]
    if geography.widths is not None and table.geoid is None:
        found.append("input.geoid is missing: with widths, name the column that holds the codes")
    return found


def _rows_of(table: dict[str, Any]) -> RowKind:
    """The kind of rows of a section [input]; for an unknown kind, which is refused later, that of units."""
    usual = ROWS["leaves"]
    rows = table.get("rows")
    return ROWS.get(rows, usual) if isinstance(rows, str) else usual


def _with_spine(settings: Any) -> Any:
    """``settings`` with the levels of the redistricting file that they name, if any, and with its attributes unless a
    preset or they themselves have some.
    """
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

    is_study: ClassVar[bool] = False
    """Whether a release is simulated and not made, which spends no budget, and takes no schema with too many cells for
    tables of them."""

    input: Input
    geography: GeographyOptions
    privacy: Privacy
    noise: NoiseOptions = NoiseOptions()
    output: OutputWithRecords = OutputWithRecords()
    ledger: LedgerOptions | None = None
    # "schema" is a method of pydantic's models, so the section [schema] has another name here.
    attributes: dict[str, list[str]] | None = Field(default=None, alias="schema")
    """The attributes of a record, each with its categories. The cells are all combinations of categories."""
    recodes: dict[str, dict[str, dict[str, list[str]]]] = Field(default_factory=dict)
    """Coarser versions of an attribute, by attribute and name: the categories of each group. Queries may name them."""
    zeros: list[dict[str, str | list[str]]] = Field(default_factory=list)
    """Combinations of categories that no record can have (structural zeros). Attributes that are not named may have any
    category.
    """
    bounds: BoundsOptions | None = None
    ties: TiesOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _cells_of_schema(cls, settings: Any) -> Any:
        """If rows are records, the cells are the product of the attributes; for a redistricting file, cells, attributes
        and units are known.
        """
        settings = _with_spine(settings)
        table, attributes = settings.get("input"), settings.get("schema")
        privacy = settings.get("privacy")
        name = privacy.get("preset") if isinstance(privacy, dict) else None
        known = PRESETS.get(name) if isinstance(name, str) else None
        # By a preset with too many cells to list, a table of totals is still planned for, whose one cell is named.
        counted = isinstance(table, dict) and "cells" not in table and not _rows_of(table).cells_are_columns
        if attributes is None and known is not None and (known.released or (counted and not known.beside)):
            attributes = known.schema.to_mappings()["attributes"]
            settings = {**settings, "schema": attributes}
        if not counted or not isinstance(attributes, dict):
            return settings
        try:
            schema = Schema.from_mapping(attributes)
        except (ConfigError, TypeError):
            return settings  # errors in it are reported where it is validated
        if schema.is_large and not cls.is_study:
            schema.require_solvable()
            return {**settings, "input": {**table, "cells": []}}
        schema.require_listable()
        return {**settings, "input": {**table, "cells": list(schema.cells())}}

    @model_validator(mode="after")
    def _meant(self) -> RunConfig:
        require_nameable(self.input.cells)
        found = contradictions(self.input, self.geography, has_attributes=self.attributes is not None)
        if not self.is_released and (self.has_schema or len(self.input.cells) != 1):
            found = [
                f"{self.too_large}: `topdown spine` and `topdown check` are for the total; give a table with a column "
                'of totals, such as cells = ["persons"], and no [schema]'
            ]
        if self.ties is not None and not self.on_supports:
            found.append("[ties] is for a schema of so many cells that there are no tables of them; leave it out")
        if self.on_supports:
            found += self._not_on_supports()
        elif not self.input.cells:
            found.append('input.cells: is empty; give at least one, such as cells = ["persons"]')
        elif self.has_schema:
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
                if self.geography.spine is not None and self.geography.spine.areas:
                    self.output.require_areas(None if self.by_family else self.input.cells, self.schema_of_cells)
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
        attribute "cell". With a preset, they include its recodes and zeros, if the attributes are those of the preset.
        """
        attributes, recodes, zeros = self.attributes or {"cell": self.input.cells}, dict(self.recodes), list(self.zeros)
        if self.privacy.preset is not None and self.is_released:
            known = PRESETS[self.privacy.preset].schema.to_mappings()
            if known["attributes"] == attributes:
                recodes = known["recodes"] | recodes
                zeros = zeros or known.get("zeros", [])
        return Schema.from_mapping(attributes, recodes, zeros)

    @property
    def is_released(self) -> bool:
        """Whether a release can be made by the preset, if there is one: not of a table of totals for a preset with too
        many cells to list, and not of a second histogram."""
        if self.privacy.preset is None:
            return True
        known = PRESETS[self.privacy.preset]
        return known.released or (self.attributes is not None and not self.input.cells and not known.beside)

    @property
    def on_supports(self) -> bool:
        """Whether the schema has too many cells for tables of them, so that histograms are solved on supports."""
        return self.attributes is not None and not self.input.cells and self.schema_of_cells.is_large

    def _not_on_supports(self) -> list[str]:
        """The settings that do not go with a schema of so many cells, in words."""
        unlike = {
            "projection.upward": self.projection.upward is not None,
            "projection.weights": self.projection.weights != Projection().weights,
            "margins of error": self.output.margins is not False,
            "output.estimates": bool(self.output.estimates),
            "output.wide": self.output.wide,
            "output.replicates": self.output.replicates > 0,
            "output.style, output.exports": bool(self.output.forms),
            "output.page": self.output.page,
            "output.microdata": self.output.microdata,
            "geography.spine": self.geography.spine is not None,
        }
        found = [name for name, there in unlike.items() if there]
        if not found:
            return []
        return [
            f"a schema of {self.schema_of_cells.n_cells:,} cells has too many for tables of them, and nothing but "
            f"counts is published of it: write output.margins = false, and leave out {', '.join(found)}"
        ]

    @property
    def too_large(self) -> str:
        """Why no release is made by the preset, in words."""
        known = PRESETS[str(self.privacy.preset)]
        if known.beside:
            return f"privacy.preset = {shown(known.name)} is a plan of two histograms, and a release is of one"
        return (
            f"privacy.preset = {shown(known.name)} is a plan of {known.schema.n_cells:,} cells, and this table has the "
            "total alone"
        )

    def require_released(self) -> None:
        """Refuse a preset by which no release can be made. Raises `ConfigError`."""
        if not self.is_released:
            known = PRESETS[str(self.privacy.preset)]
            remedy = "[privacy.shares] of your own to the levels" if known.beside else "records or a long table of them"
            raise ConfigError(f"{self.too_large}: none is made by it; for a release give {remedy}")

    @property
    def has_schema(self) -> bool:
        """Whether the configuration has attributes for the cells."""
        return self.attributes is not None or bool(self.recodes) or bool(self.zeros)

    @property
    def counted_columns(self) -> list[str]:
        """The columns of the table with counts or attributes."""
        if self.input.kind.cells_are_columns:
            return list(self.input.cells)
        return [*(self.attributes or {}), *([] if self.input.count is None else [self.input.count])]

    @property
    def asks_queries(self) -> bool:
        """Whether other queries than the cells are measured or published exactly, so that the schema matters."""
        if self.privacy.preset is not None:
            return self.is_released
        shares = [part for part in (self.privacy.shares or {}).values() if isinstance(part, dict)]
        return isinstance(self.privacy.invariants, dict) or any(set(part) != {DETAILED} for part in shares)

    @property
    def all_methods(self) -> list[str]:
        """The methods that are simulated; none of a release."""
        return []

    @property
    def by_family(self) -> bool:
        """Whether the non-negative projection is made family by family, as it is with several queries and with
        limits.
        """
        return self.asks_queries or self.bounds is not None

    @property
    def limits_path(self) -> Path | None:
        """The path of the public table of limits, None if there is none."""
        return None if self.bounds is None else self.path_of(self.bounds.path)

    @property
    def ties_path(self) -> Path | None:
        """The directory of the release that every unit is tied to, None if there is none."""
        return None if self.ties is None else self.path_of(self.ties.release)

    @property
    def input_path(self) -> Path:
        """The confidential table's path."""
        return self.path_of(self.input.path)

    @property
    def units_path(self) -> Path | None:
        """The path of the public list of units, None if the units come from the confidential table."""
        listed = self.geography.units
        return None if listed is None else self.path_of(listed)

    def plan(self) -> Plan:
        """The plan of the release, with its bounds; by a preset of which no release is made, that of the total.

        Raises `BudgetError` if it is not well defined, with all errors, including levels that do not exist.
        """
        if self.privacy.preset is not None:
            if self.noise != NoiseOptions():
                raise BudgetError(f"preset {shown(self.privacy.preset)} has its own noise; leave [noise] out")
            if not self.is_released:
                from topdown.planning.totals import plan_of_total

                return plan_of_total(
                    PRESETS[self.privacy.preset],
                    self.geography.measured_names,
                    invariants=self.privacy.invariants,
                    only_child=self.privacy.only_child,
                )
            return self.privacy.preset_plan(self.geography.measured_names)
        found = budget_errors(self.privacy, self.noise, self.geography.measured_names)
        if found:
            # Errors of type are reported first, before those of the budget.
            kind = PlanError if any(isinstance(error, PlanError) for error in found) else BudgetError
            raise kind("; ".join(map(str, found)))
        return Plan(**self.privacy.arguments(), **self.noise.model_dump())
