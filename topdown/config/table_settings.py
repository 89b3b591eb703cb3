"""[input], [geography] and [bounds]: the confidential table, how its units nest, what is known of them publicly."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, StrictInt, field_validator, model_validator

from topdown.config.toml_section import TomlSection
from topdown.errors import disagreement, require_known
from topdown.tables.format import PLAIN, Format
from topdown.wording import shown


class RowKind(NamedTuple):
    """What the rows of a confidential table are.

    ``of_leaf``: how many stand for a unit of the lowest level, about, where that is public; None where it is
    confidential. ``cells_are_columns``: whether there is a column of counts for every cell; elsewhere the cells follow
    from the attributes. ``counted``: whether one column says how many records a row stands for. ``known_layout``:
    whether units and attributes are those of the file's kind. ``may_overlap``: whether a record may be in two cells or
    units, as counts of sums beside their parts are.
    """

    of_leaf: int | None
    cells_are_columns: bool = False
    counted: bool = False
    known_layout: bool = False
    may_overlap: bool = False


ROWS = {
    "leaves": RowKind(1, cells_are_columns=True, may_overlap=True),
    "records": RowKind(None),
    "long": RowKind(None, counted=True, may_overlap=True),
    "pl94": RowKind(7, known_layout=True),
}
"""What a row of the confidential table may be; how each is read `topdown.pipeline.input.reading` knows."""


class Input(TomlSection):
    """The confidential table and its columns of counts."""

    path: str
    """The table: a file, or a folder of Parquet files. Paths are relative to the TOML file."""
    delimiter: str | None = None
    """The character between the columns of a text file; found by itself where it is left out."""
    encoding: str = "utf-8"
    """The encoding of a text file, such as "cp1252"."""
    sheet: str | None = None
    """The sheet of a workbook, or the layer of a GeoPackage, that has several."""
    header: StrictInt = 1
    """The number of the row with the columns' names, from 1, where a title or notes stand above it."""
    decimal: str | None = None
    """The decimal mark of numbers that are written as text: "." or ","."""
    thousands: str | None = None
    """The mark between thousands of numbers that are written as text: ",", ".", " " or "'"."""
    rows: str = Field(default="leaves", json_schema_extra={"enum": [*ROWS]})
    """What a row is. "leaves": a unit of the lowest level, with a column for every cell. "records": a person, or
    whatever the unit of privacy is. "long": a unit and a category, with a column of counts. "pl94": the table is a
    redistricting file (P.L. 94-171), its folder or ZIP, whose units and attributes are known."""
    count: str | None = None
    """The column of counts, where rows = "long"."""
    cells: list[str] = Field(min_length=1)
    """The columns of counts, where rows = "leaves". Elsewhere the cells follow from [schema]."""
    geoid: str | None = None
    """The column that identifies the units of the lowest level; with geography.levels it is the last of these."""
    where: dict[str, str] = Field(default_factory=dict)
    """Takes only the rows that have these values in these columns."""
    leave_out: dict[str, str | list[str]] = Field(default_factory=dict)
    """Leaves out the rows that have these values in these columns, such as a row "Total"; "" is what is empty."""
    pad_zeros: dict[str, StrictInt] = Field(default_factory=dict)
    """Columns of codes whose leading zeros were lost, each with the number of characters that its codes have."""
    labels: dict[str, dict[str, str]] = Field(default_factory=dict)
    """What values of a column mean, by column: sex = { 1 = "male", 2 = "female" }. [schema] names the labels then."""
    assume_disjoint: bool = False
    """Take it on trust that every record is in one cell and one unit. The manifest says so."""

    @field_validator("rows")
    @classmethod
    def _known(cls, rows: str) -> str:
        require_known(rows, ROWS, "kind of rows")
        return rows

    @model_validator(mode="after")
    def _readable(self) -> Input:
        self.form  # noqa: B018  # raises where it is none
        if self.kind.counted != (self.count is not None):
            raise ValueError('count names the column of counts of rows = "long", and of no others; give both, or none')
        if self.kind.known_layout and (self.chosen_by or self.form != PLAIN):
            raise ValueError('a redistricting file (rows = "pl94") is read as it is: leave where and the form out')
        for name, values in self.labels.items():
            if len(set(values.values())) < len(values):
                raise ValueError(f"labels of {shown(name)}: two values have one label; give every value its own")
        return self

    @property
    def kind(self) -> RowKind:
        """What a row is."""
        return ROWS[self.rows]

    @property
    def form(self) -> Format:
        """What the table's file does not say of itself."""
        return Format(self.delimiter, self.encoding, self.sheet, self.header, self.decimal, self.thousands)

    @property
    def chosen_by(self) -> list[str]:
        """The columns by which rows are taken or left out."""
        return [*dict.fromkeys([*self.where, *self.leave_out])]


class GeographyOptions(TomlSection):
    """How the units nest: by ``levels``, one column each, or by ``widths`` of hierarchical codes."""

    units: str | None = None
    """A public table that lists the units of the lowest level, with the columns that identify and name them. Without it
    the list is taken from the confidential table, and is not protected."""
    levels: list[str] | None = Field(default=None, min_length=1)
    """The columns that identify the units, the root's first."""
    separator: str | None = None
    """Joins the columns of the levels into identifiers, where codes are unique within their parent alone: with "/" the
    county 001 of the state 48 is 48/001, and with "", for codes of one length, 48001."""
    widths: dict[str, StrictInt] | None = None
    """How many characters of the code in input.geoid identify a unit of each level below the root, the upper ones
    first."""
    root: str | None = None
    """What identifies the root where no column does: "US" with widths; with levels a column has to say it."""
    root_level: str = "nation"
    """What the root's level is called, with widths."""
    names: str | dict[str, str] | None = None
    """The column of the names of the lowest level's units, or one for every level that has names."""
    fill: Literal["repeat"] | None = None
    """"repeat": units that are not divided further stand again at the levels below, where their rows have none."""

    @model_validator(mode="after")
    def _meant(self) -> GeographyOptions:
        found = []
        if (self.levels is None) == (self.widths is None):
            found.append("give either levels (the columns, root first) or widths (characters per level)")
        if self.widths is not None and self.separator is not None:
            found.append("separator belongs to levels; the codes of widths are whole")
        if self.levels is not None and "root_level" in self.model_fields_set:
            found.append("root_level belongs to widths; with levels, the first of them is the root's")
        levels = self.levels if self.levels is not None else list(self.widths or {})
        if isinstance(self.names, dict):
            unknown = [level for level in self.names if level not in levels]
            found += [
                f"names of level {shown(one)}, which is not there; {disagreement(one, levels)}" for one in unknown
            ]
        if found:
            raise ValueError("; ".join(found))
        return self

    @property
    def level_names(self) -> list[str]:
        """The levels, root first."""
        return [self.root_level, *(self.widths or {})] if self.levels is None else self.levels

    @property
    def columns(self) -> dict[str, str]:
        """The columns that identify and name units, each with what it is."""
        named = self.names.values() if isinstance(self.names, dict) else () if self.names is None else (self.names,)
        return dict.fromkeys(named, "a column of names") | dict.fromkeys(self.levels or (), "a level")


class BoundsOptions(TomlSection):
    """Limits of queries' answers at units that everybody knows, and that the release keeps."""

    path: str
    """A public table with the columns geoid, query, answer, lower and upper."""
    closed: list[str] = Field(default_factory=list)
    """Queries of which the table lists all that there is: where a unit has no row for an answer that other units of its
    level have a row for, that answer is 0."""
