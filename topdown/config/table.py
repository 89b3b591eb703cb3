"""[input], [geography] and [bounds]: the confidential table, how its units nest, what is known of them publicly."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictInt, model_validator

from topdown.config.section import Section
from topdown.errors import suggest
from topdown.tables.format import PLAIN, Format
from topdown.wording import shown


class Input(Section):
    """The confidential table: a file, or a folder of Parquet files, with one row per leaf, and its columns of counts.

    ``rows``: "records" where every row is a person (or whatever the unit of privacy is), and "long" where every row has
    a ``count`` of one leaf and category; the columns that [schema] names say which, and ``cells`` follow from it.
    "pl94": a redistricting file (P.L. 94-171), its folder or ZIP, whose units and attributes are known.
    ``delimiter``, ``encoding``, ``sheet``: how the file is written, as `topdown.tables.format.Format` has it.
    ``assume_disjoint``: that every record is in one cell and one unit is then taken on trust, and the manifest says so.
    """

    path: str
    delimiter: str | None = None
    encoding: str = "utf-8"
    sheet: str | None = None
    rows: Literal["leaves", "records", "long", "pl94"] = "leaves"
    count: str | None = None
    cells: list[str] = Field(min_length=1)
    geoid: str | None = None
    where: dict[str, str] = Field(default_factory=dict)
    assume_disjoint: bool = False

    @model_validator(mode="after")
    def _readable(self) -> Input:
        self.form  # noqa: B018  # raises where it is none
        if (self.rows == "long") != (self.count is not None):
            raise ValueError('count names the column of counts of rows = "long", and of no others; give both, or none')
        if self.rows == "pl94" and (self.where or self.form != PLAIN):
            raise ValueError('a redistricting file (rows = "pl94") is read as it is: leave where and the form out')
        return self

    @property
    def form(self) -> Format:
        """What the table's file does not say of itself."""
        return Format(self.delimiter, self.encoding, self.sheet)


class GeographyOptions(Section):
    """How the units nest: ``levels`` (one column each, root first) or ``widths`` (of hierarchical codes).

    ``root``: what the root is called where no column says so; left out it is "US" with ``widths``, and with ``levels``
    a column has to say it. ``fill``: "repeat" lets units that are not divided further stand again at the levels below,
    where their rows have none. ``units``: a public table that lists the leaves, with the columns that identify and name
    them. Without it the list is taken from the confidential table, and is not protected.
    """

    units: str | None = None
    levels: list[str] | None = Field(default=None, min_length=1)
    separator: str | None = None
    widths: dict[str, StrictInt] | None = None
    root: str | None = None
    root_level: str = "nation"
    names: str | dict[str, str] | None = None
    fill: Literal["repeat"] | None = None

    @model_validator(mode="after")
    def _meant(self) -> GeographyOptions:
        found = []
        if (self.levels is None) == (self.widths is None):
            found.append("give either levels (the columns, root first) or widths (characters per level)")
        if self.widths is not None and (self.separator is not None or isinstance(self.names, dict)):
            found.append("separator and names by level belong to levels; with widths, names is one column")
        if self.separator == "":
            found.append("separator is empty; give what stands between the parts of a path ('/'), or leave it out")
        levels = self.levels
        if isinstance(self.names, dict) and levels is not None:
            unknown = [level for level in self.names if level not in levels]
            found += [f"names of level {shown(one)}, which is not there; {suggest(one, levels)}" for one in unknown]
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


class BoundsOptions(Section):
    """Limits of queries' answers at units that everybody knows, and that the release keeps.

    ``path``: a public table with the columns geoid, query, answer, lower and upper (`topdown.AnswerLimits.from_table`).
    ``closed``: queries of which it lists all that there is: where a unit has no row for an answer that others of its
    level have one for, that answer is 0.
    """

    path: str
    closed: list[str] = Field(default_factory=list)
