"""[projection], [output] and what describes a release: how measurements are projected, and what is written where."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from topdown.config.toml_section import TomlSection
from topdown.errors import ConfigError, require_known
from topdown.projection.method import nonnegative_methods
from topdown.workload import Schema
from topdown.workload.answer_tables import CELLS, answer_tables, stated_table, wide_table


def _non_negative(method: str) -> str:
    """``method``, if it is a non-negative projection, whose values may be released."""
    try:
        require_known(method, nonnegative_methods(method), "method")
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return method


class Projection(TomlSection):
    """How the measurements are made consistent, non-negative and whole."""

    method: Annotated[str, AfterValidator(_non_negative)] = "gls-top-down"
    """The non-negative method whose whole numbers are released: "top-down", "gls-top-down" or "joint"."""
    weights: Literal["variance", "uniform"] = "variance"
    """"variance" weights measurements by 1 / variance, "uniform" weights all equally."""
    upward: str | None = None
    """"from LEVEL": with "gls-top-down" and several queries, the level at which the upward pass starts. Measurements
    below that level only distribute its counts among the units below it, and do not change them. By default it starts
    at the leaves.
    """
    order: list[str] | dict[str, list[str]] | None = None
    """With "top-down" and "gls-top-down" and several queries: the queries that are fixed first, one after the other, at
    every level, or by level. When a query is fixed, only its own answers must be non-negative, and they are kept when
    the next one is fixed. [] fixes all at once. By default the total is fixed first at the root, if it is measured
    there and not exact; in a schema with too many cells for tables of them all queries are fixed at once.
    """
    cross_check: bool = True
    """Solve the optimization problem, or a sample of it, a second time with cvxpy, and refuse the release if the two
    solutions differ.
    """
    solver: str = "OSQP"
    """The solver of the second solution: any solver that is installed for cvxpy."""


def _choice(margins: Any) -> Any:
    """``margins``, if it is true, false, or names levels, tables or both."""
    if isinstance(margins, bool):
        return margins
    if not isinstance(margins, dict) or not margins:
        raise ValueError('give true, false, or levels and tables, such as { levels = ["county"] }')
    for key, names in margins.items():
        try:
            require_known(key, ("levels", "tables"), "key")
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError(f"give {key} as a list of at least one name; margins = false writes none")
    return margins


class Output(TomlSection):
    """Where the release is written, and which files it has."""

    directory: str = "output"
    """The folder in which public/ and internal/ are made."""
    csv: bool = True
    """Write CSV files beside the Parquet files."""
    wide: bool = False
    """Add the release with a row per unit and a column per cell, the total and the columns of output.tables, and for
    each of these lower, upper and moe, if it has a margin of error.
    """
    estimates: bool | None = None
    """Publish the estimates of every cell of every unit; by default if only the cells are measured."""
    estimates_csv: bool = False
    """Write the estimates as CSV, too."""
    tables: list[str] = Field(default_factory=list)
    """Queries, or tables by their own names: "P1" to "P5" of the redistricting file, of the DHC's persons "P1", "P3" to
    "P5", "P8" to "P12" with "P12A" to "P12V", "P18" and "PCT12" with "PCT12A" to "PCT12O". Their answers are written as
    a table with a row per unit, with a second table of their estimates.
    """
    confidence: float = Field(default=0.9, gt=0.5, lt=1.0)
    """The confidence of the margins of error, above 0.5 and below 1."""
    margins: Annotated[bool | dict[Literal["levels", "tables"], list[str]], BeforeValidator(_choice)] = True
    """Write margins of error: true for all, false for none, or only at some levels and for some tables, namely those in
    output.tables and "cells" (of release.* and estimates.*). If levels or tables are left out, all are meant. At other
    levels the columns are empty, other tables have none, and neither takes time. `td.margins` and `topdown query`
    compute all of them from the measurements, whatever is written.
    """
    language: Literal["en", "fr", "es", "pt"] = "en"
    """The language of README.md: English, French, Spanish or Portuguese."""
    replicates: int = Field(default=0, ge=0, le=1000)
    """The number of tables of whole numbers that are drawn around the estimates, as the columns rep1, rep2, ... of
    replicates.*: for medians, ratios and rankings. Each takes as long as the projection. Intervals from their quantiles
    have no guaranteed coverage.
    """
    style: Literal["plain", "acs"] = "plain"
    """"acs": write the release also in the columns of the American Community Survey, as the format "acs" of
    output.exports, with margins of error at 90 %.
    """
    exports: list[str] = Field(default_factory=list)
    """Other formats in which the release is written, as by `topdown export`, into the folder exports/ beside public/.
    Section [exports] has the options that they need.
    """

    page: bool = False
    """Write page.html beside public/, as `topdown page` does: a map, a table, and sums with their margins of error.
    Section [page] has its options.
    """

    @property
    def forms(self) -> list[str]:
        """The other formats that are written: those in ``exports``, and that of the ``style``."""
        return [*self.exports, *({self.style} - {"plain", *self.exports})]

    def with_margins(self, key: Literal["levels", "tables"], known: Iterable[str]) -> tuple[str, ...]:
        """The ``known`` levels or tables that have margins of error."""
        chosen = {} if self.margins is True else self.margins or {key: []}
        return tuple(name for name in known if name in chosen.get(key, [name]))

    def require_margins(self, levels: Sequence[str], *, cells: bool) -> None:
        """Refuse margins of error at levels that do not exist, and of tables that are not written; ``cells``: whether
        all cells may have some. Raises `ConfigError`.
        """
        known = {"levels": levels, "tables": [*self.tables, *([CELLS] if cells else [])]}
        for key, names in self.margins.items() if isinstance(self.margins, dict) else ():
            for name in names:
                try:
                    require_known(name, known[key], key[:-1])
                except ConfigError as error:
                    raise ConfigError(f"output.margins.{key}: {error}") from None

    def require_wide(self, cells: Sequence[str], schema: Schema) -> None:
        """Refuse columns of the wide table that would have the same name. Raises `ConfigError`."""
        if self.wide:
            wide_table(cells, schema, answer_tables(self.tables, schema), margins=self.margins is not False)

    def require_areas(self, cells: Sequence[str] | None, schema: Schema) -> None:
        """Refuse columns of the tables of areas that would be called alike; ``cells``: None where these are not stated.
        Raises `ConfigError`."""
        stated_table(cells, schema, answer_tables(self.tables, schema))


class OutputWithRecords(Output):
    """Where the release is written, and which files it has."""

    all_measurements: bool = False
    """Whether a release in parts has the measurements of all levels, however many. By default it has those of as many
    levels, from the root down, as have at most 268 million numbers together, and margins of error at these. A release
    that is not made in parts has all.
    """
    microdata: bool = False
    """Write the release also as one record per person or household."""
    microdata_order: Literal["sorted", "shuffled"] = "sorted"
    """The order of these records: by unit and cell, or at random."""


def _moment(text: str) -> str:
    """A year, a month or a day in ISO 8601, or an interval of two with "/" between."""
    found = [re.fullmatch(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?", part) for part in text.split("/", 1)] if text else []
    try:
        days = [date(int(one[1]), int(one[2] or 1), int(one[3] or 1)) for one in found if one is not None]
    except ValueError:
        days = []
    if len(days) < len(found) or days != sorted(days):
        raise ValueError('give a year, a month or a day, or two: "2020", "2020-04-01", "2019/2020"')
    return text


def _day(text: str) -> str:
    """A day in ISO 8601, or nothing."""
    if text and (len(text) != len("2020-04-01") or "/" in text):
        raise ValueError('give a day: "2020-04-01"')
    return _moment(text)


def _address(text: str) -> str:
    """A web address, or nothing."""
    if text and re.fullmatch(r"https?://\S+", text) is None:
        raise ValueError('give an address, such as "https://example.org/release"')
    return text


class CatalogueOptions(TomlSection):
    """The description of the release for readers and catalogues, in README.md, dcat.jsonld, croissant.json and
    csv-metadata.json. README.md says which of these are not given.
    """

    publisher: str = ""
    """Who publishes it."""
    licence: str = ""
    """Its licence, as a web address or a name."""
    period: Annotated[str, AfterValidator(_moment)] = ""
    """The time to which the counts refer: "2020", "2020-04-01" or "2019/2020"."""
    description: str = ""
    """What it is; by default the text of the codebook."""
    url: Annotated[str, AfterValidator(_address)] = ""
    """Its web address."""
    contact: str = ""
    """Whom to ask about it: an address or a name."""
    date: Annotated[str, AfterValidator(_day)] = ""
    """The day on which it is published: "2027-01-31"."""


class ExportsOptions(TomlSection):
    """Options of the formats in output.exports, named as the options of `topdown export`."""

    units: str | None = None
    """pl94, ppmf: the public directory of the release of the housing units."""
    header: str | None = None
    """pl94: a redistricting file whose geographic header is used."""
    geometry: str | None = None
    """geoparquet, gpkg: the file of the units' outlines."""
    query: str | None = None
    """acs, geoparquet, gpkg, sdmx, xlsx: the query whose answers are written; by default all queries of the release."""
    state: str | None = None
    """pl94: the state to write from the release of a nation."""


class PageSettings(TomlSection):
    """Options of the page of a release, named as the options of `topdown page`."""

    geometry: str | None = None
    """The file of the smallest units' outlines, for a map."""
    areas: list[str] = Field(default_factory=list)
    """Tables of units and the districts that they are in; the page can then show these districts."""


class DerivationConfig(TomlSection):
    """What a release and a projection have in common: how measurements are projected, and where the release is written.

    ``folder``: the configuration file's, relative to which paths are resolved. ``not_in_fingerprint``: settings, and
    whole sections, that determine no number of the release, by the reason why; every other one is in its `fingerprint`.
    """

    not_in_fingerprint: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            "paths are relative to it, and the files that they lead to are known by their digests": ("folder",),
            "where the release is written": ("output.directory",),
            "in which forms the same numbers are written": (
                "output.csv",
                "output.wide",
                "output.estimates",
                "output.estimates_csv",
                "output.tables",
                "output.exports",
                "output.page",
                "output.replicates",
                "output.style",
                "output.language",
                "exports",
                "page",
            ),
            "how likely the margins of error beside the numbers hold, and which are written": (
                "output.confidence",
                "output.margins",
            ),
            "what catalogues are told": ("catalogue",),
            "how the numbers are checked: a check that failed may be repeated by another solver": (
                "projection.cross_check",
                "projection.solver",
            ),
        }
    )

    title: str = ""
    """The title of the release, in its codebook and manifest."""
    projection: Projection = Projection()
    output: Output = Output()
    catalogue: CatalogueOptions = CatalogueOptions()
    exports: ExportsOptions = ExportsOptions()
    page: PageSettings = PageSettings()
    folder: Path = Field(default=Path(), exclude=True)

    @property
    def output_path(self) -> Path:
        """The output directory's path."""
        return self.path_of(self.output.directory)

    def path_of(self, written: str) -> Path:
        """The path that is ``written`` in the file, resolved relative to the file's folder."""
        return Path(os.path.normpath(self.folder / written))

    def resolved(self) -> dict[str, Any]:
        """Every setting, with defaults filled in, as values for JSON."""
        return self.model_dump(mode="json", by_alias=True)

    def fingerprint(self, units: str | None = None, limits: str | None = None, areas: str | None = None) -> str:
        """SHA-256 of everything that determines the release, except the input numbers: of every setting, without
        ``not_in_fingerprint``. ``units``: the digest of the public list of units, ``limits``: that of the public table
        of limits, ``areas``: that of the tables of areas that a spine is made of.

        Another order of the keys of a table is another configuration: answers have the order of their categories.
        """
        settled = self.resolved()
        for names in self.not_in_fingerprint.values():
            for name in names:
                section, _, setting = name.rpartition(".")
                (settled[section] if section else settled).pop(setting, None)
        tables = [units, limits, *([] if areas is None else [areas])]
        return hashlib.sha256(json.dumps([settled, *tables]).encode()).hexdigest()
