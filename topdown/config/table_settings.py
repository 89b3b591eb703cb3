"""[input], [geography] and [bounds]: the confidential table, how its units nest, and public limits of their counts."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import Field, StrictInt, field_validator, model_validator

from topdown.config.toml_section import TomlSection
from topdown.errors import ConfigError, disagreement, require_known
from topdown.planning.spines import Spine, require_kinds
from topdown.tables.format import PLAIN, Format
from topdown.wording import shown


class RowKind(NamedTuple):
    """What the rows of a confidential table are.

    ``of_leaf``: about how many rows a unit of the lowest level has, if that is public; None if it is confidential.
    ``cells_are_columns``: whether there is a column of counts for every cell; otherwise the cells follow from the
    attributes. ``counted``: whether one column says how many records a row stands for. ``known_layout``: whether units
    and attributes follow from the kind of file. ``may_overlap``: whether a record may be in two cells or units, as with
    sums beside their parts.
    """

    of_leaf: int | None
    cells_are_columns: bool = False
    counted: bool = False
    known_layout: bool = False
    may_overlap: bool = False


_LONGEST_CODE = 100

ROWS = {
    "leaves": RowKind(1, cells_are_columns=True, may_overlap=True),
    "records": RowKind(None),
    "long": RowKind(None, counted=True, may_overlap=True),
    "pl94": RowKind(7, known_layout=True),
}
"""The kinds of rows of a confidential table; `topdown.pipeline.input.reading` reads each."""


class Input(TomlSection):
    """The confidential table and its columns of counts."""

    path: str
    """The table: a file, or a folder of Parquet files. Paths are relative to the TOML file."""
    delimiter: str | None = None
    """The character between the columns of a text file; detected by default."""
    encoding: str = "utf-8"
    """The encoding of a text file, such as "cp1252"."""
    sheet: str | None = None
    """The sheet of a workbook, or the layer of a GeoPackage, that has several."""
    header: StrictInt = 1
    """The number of the row with the columns' names, from 1, where a title or notes stand above it."""
    footer: StrictInt = 0
    """How many lines, empty ones not counted, are below the table: notes, a source."""
    decimal: str | None = None
    """The decimal mark of numbers in text: "." or ","."""
    thousands: str | None = None
    """The mark between thousands of numbers in text: ",", ".", " " or "'"."""
    rows: str = Field(default="leaves", json_schema_extra={"enum": [*ROWS]})
    """What a row is. "leaves": a unit of the lowest level, with a column for every cell. "records": a person, or
    whatever the unit of privacy is. "long": a unit and a category, with a column of counts. "pl94": the table is a
    redistricting file (P.L. 94-171), its folder or ZIP, whose units and attributes are known."""
    count: str | None = None
    """The column of counts, if rows = "long"."""
    cells: list[str]
    """The columns of counts, if rows = "leaves". Otherwise the cells follow from [schema]."""
    geoid: str | None = None
    """The column that identifies the units of the lowest level; with geography.levels it is the last of these."""
    where: dict[str, str] = Field(default_factory=dict)
    """Reads only the rows that have these values in these columns."""
    leave_out: dict[str, str | list[str]] = Field(default_factory=dict)
    """Leaves out the rows that have these values in these columns, such as a row "Total"; "" stands for an empty value.
    """
    pad_zeros: dict[str, StrictInt] = Field(default_factory=dict)
    """Columns of codes whose leading zeros were lost, each with the number of characters of its codes; codes that are
    written as decimals (1001.0) lose the point and what follows it.
    """
    labels: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The meaning of a column's values, by column: sex = { 1 = "male", 2 = "female" }. [schema] then names the labels.
    """
    assume_disjoint: bool = False
    """Assume, without the usual check, that every record is in one cell and one unit. The manifest states this."""

    @field_validator("rows")
    @classmethod
    def _known(cls, rows: str) -> str:
        require_known(rows, ROWS, "kind of rows")
        return rows

    @model_validator(mode="after")
    def _readable(self) -> Input:
        self.form  # noqa: B018  # raises where it is none
        if self.kind.counted != (self.count is not None):
            raise ValueError('count names the column of counts for rows = "long" only; give both, or neither')
        if self.kind.known_layout and (self.chosen_by or self.form != PLAIN):
            raise ValueError('a redistricting file (rows = "pl94") is read as it is: leave out where and the form')
        if not self.path.strip():
            raise ValueError("path is empty; give the table's path")
        if not all(cell.strip() for cell in self.cells):
            raise ValueError("cells has an empty name; give the names of columns of counts")
        for name, width in self.pad_zeros.items():
            if not 1 <= width <= _LONGEST_CODE:
                raise ValueError(
                    f"pad_zeros of {shown(name)} is {width}; give the number of characters of its codes, 1 to "
                    f"{_LONGEST_CODE}"
                )
        for name, values in self.labels.items():
            if len(set(values.values())) < len(values):
                raise ValueError(f"labels of {shown(name)}: two values have the same label; give every value its own")
        return self

    @property
    def kind(self) -> RowKind:
        """The kind of rows."""
        return ROWS[self.rows]

    @property
    def form(self) -> Format:
        """The form of the table's file, which the file itself does not state."""
        return Format(self.delimiter, self.encoding, self.sheet, self.header, self.decimal, self.thousands, self.footer)

    @property
    def chosen_by(self) -> list[str]:
        """The columns by which rows are selected or left out."""
        return [*dict.fromkeys([*self.where, *self.leave_out])]


class SpineOptions(TomlSection):
    """The tree that noise is measured on, where it is not the published one: `topdown spine` chooses one. Its lowest
    units are the published ones; counts of published units, and of areas, are sums of these. [privacy] gives shares to
    its levels: the root's, those named here, and the lowest."""

    levels: list[str] = Field(min_length=1)
    """What divides the units, level by level from the root down: a level of the geography, a kind of areas, "pieces"
    (units in the same area of every kind), or several of these, as "pieces x tract". A level that is a kind of areas
    alone is called "KIND areas"."""
    names: list[str] | None = None
    """What the levels are called, the root's and the lowest included, where not by what divides them."""
    areas: dict[str, str] = Field(default_factory=dict)
    """Public tables of areas, by the name of their kind: units of the lowest level in the first column, and their areas
    in the second; of a table of more columns in the one that is called as the kind. A unit may be in none."""
    cap: StrictInt | Literal["sqrt", "none"] = "sqrt"
    """Into groups of at most so many of the lowest units the last level is cut; "sqrt": the root of how many there are
    in the unit above, and 12; "none": it is not cut."""
    least: StrictInt = 1
    """Before that, units of the last level with fewer of the lowest units are joined with such that come next, about
    so many of the lowest together."""

    @model_validator(mode="after")
    def _meant(self) -> SpineOptions:
        if self.names is not None and not all(name.strip() for name in self.names):
            raise ValueError("names has an empty one; give every level a name")
        if self.names is not None and len({*self.names}) != len(self.levels) + 2:
            raise ValueError(
                f"names has {len({*self.names})} different ones; give {len(self.levels) + 2}: one for the root's "
                "level, one for each of levels, one for the lowest"
            )
        try:
            require_kinds([*self.areas])
            self.spine  # noqa: B018 # refuses what is none
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def spine(self) -> Spine:
        """The levels as a value."""
        return Spine(self.levels, None if self.cap == "none" else self.cap, self.least)


class GeographyOptions(TomlSection):
    """How the units nest: by ``levels``, one column each, or by ``widths`` of hierarchical codes."""

    units: str | None = None
    """A public table that lists the units of the lowest level, with the columns that identify and name them. Without
    it, the list of units comes from the confidential table and is published unprotected.
    """
    levels: list[str] | None = Field(default=None, min_length=1)
    """The columns that identify the units, the root's first."""
    separator: str | None = None
    """Joins the columns of the levels into identifiers, if codes are unique only within their parent: with "/", county
    001 of state 48 is 48/001, and with "", for codes of one length, 48001.
    """
    widths: dict[str, StrictInt] | None = None
    """How many characters of the code in input.geoid identify a unit of each level below the root, the upper ones
    first."""
    root: str | None = None
    """The identifier of the root: "US" by default with widths; with levels it comes from a column."""
    root_level: str = "nation"
    """The name of the root's level, with widths, or with levels that do not name it. The root's identifier is that of a
    column of this name, or `root`.
    """
    names: str | dict[str, str] | None = None
    """The column with the names of the lowest level's units, or one column for every level that has names."""
    fill: Literal["repeat"] | None = None
    """"repeat": units that are not divided further are repeated at the levels below, where their rows are empty."""
    spine: SpineOptions | None = None
    """The tree that noise is measured on, where it is not the published one; then give units, too."""

    @model_validator(mode="before")
    @classmethod
    def _with_root(cls, given: Any) -> Any:
        """With levels, the root's level is the first of them, whether `levels` or `root_level` names it."""
        if not isinstance(given, dict) or not isinstance(given.get("levels"), list) or "root_level" not in given:
            return given
        own = {name: value for name, value in given.items() if name != "root_level"}
        levels, root = own["levels"], given["root_level"]
        if root in levels[1:]:
            raise ValueError(f"root_level is {shown(root)}, which is below another of the levels; put it first")
        return own | {"levels": levels if root in levels else [root, *levels]}

    @model_validator(mode="after")
    def _meant(self) -> GeographyOptions:
        found = []
        if (self.levels is None) == (self.widths is None):
            found.append("give either levels (the columns, root first) or widths (characters per level)")
        if self.widths is not None and self.separator is not None:
            found.append("separator is for levels; with widths, codes are complete")
        if self.spine is not None and self.units is None:
            found.append(
                "a spine is made of public facts, and so are its lowest units; name their public list in units"
            )
        if self.root is not None and not self.root.strip():
            found.append("root is empty; give the root's name, or leave it out")
        levels = self.levels if self.levels is not None else list(self.widths or {})
        if not all(name.strip() for name in self.level_names):
            found.append("a level has an empty name; give every one a name in levels, or in widths and root_level")
        twice = named_twice(self.level_names)
        if twice is not None:
            found.append(f"two levels are called {shown(twice)}; give every level its own name")
        twice = None if self.spine is None else named_twice(self.measured_names)
        if twice is not None:
            found.append(f"two levels of the spine are called {shown(twice)}; name them apart in geography.spine.names")
        if isinstance(self.names, dict):
            unknown = [level for level in self.names if level not in levels]
            found += [
                f"names of level {shown(one)}, which does not exist; {disagreement(one, levels)}" for one in unknown
            ]
        if found:
            raise ValueError("; ".join(found))
        return self

    @property
    def level_names(self) -> list[str]:
        """The levels, root first."""
        return [self.root_level, *(self.widths or {})] if self.levels is None else self.levels

    @property
    def measured_names(self) -> list[str]:
        """The levels that noise is measured at, root first: of the spine, where there is one."""
        if self.spine is None:
            return self.level_names
        if self.spine.names is not None:
            return self.spine.names
        levels = self.spine.spine.level_names(self.spine.areas)
        return [self.level_names[0], *levels, self.level_names[-1]]

    @property
    def columns(self) -> dict[str, str]:
        """The columns that identify and name units, each with its role."""
        named = self.names.values() if isinstance(self.names, dict) else () if self.names is None else (self.names,)
        return dict.fromkeys(named, "a column of names") | dict.fromkeys(self.levels or (), "a level")


def named_twice(names: list[str]) -> str | None:
    """The first of ``names`` that comes again; None where none does."""
    return next((name for name in names if names.count(name) > 1), None)


class TiesOptions(TomlSection):
    """A release that was published before, whose counts every unit keeps exactly. Only with a schema of so many cells
    that there are no tables of them."""

    release: str
    """The directory public/ of that release, which has the same units. Its attributes are attributes or recodes of the
    schema, with the same categories."""


class BoundsOptions(TomlSection):
    """Publicly known limits of the answers to queries at units, which the release respects."""

    path: str
    """A public table with the columns geoid, query, answer, lower and upper. In a schema with too many cells for tables
    of them, of one query, and of limits of 0 alone."""
    closed: list[str] = Field(default_factory=list)
    """Queries for which the table lists everything that exists: if a unit has no row for an answer, but other units of
    its level do, that answer is 0.
    """
