"""[projection] and [output]: what becomes of measurements, and where it is written."""

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
from topdown.workload.answer_tables import CELLS, answer_tables, wide_table


def _non_negative(method: str) -> str:
    """``method``, where it is a projection whose values may be released."""
    try:
        require_known(method, nonnegative_methods(), "method")
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return method


class Projection(TomlSection):
    """How the measurements are made consistent, non-negative and whole."""

    method: Annotated[str, AfterValidator(_non_negative)] = "gls-top-down"
    """The non-negative method whose whole numbers are released: "top-down", "gls-top-down" or "joint"."""
    weights: Literal["variance", "uniform"] = "variance"
    """"variance" weighs measurements by 1 / variance, "uniform" all alike."""
    upward: str | None = None
    """"from LEVEL": of "gls-top-down" and several queries the level where the upward pass starts. What is measured
    below it shares out its counts and tells nothing of them. By default it starts at the leaves."""
    order: list[str] | dict[str, list[str]] | None = None
    """Of "top-down" and "gls-top-down" and several queries those that are settled first, one after the other, at every
    level, or by level: x >= 0 is asked of a query's answers alone, and these are kept when the next is settled. []
    settles all at once. By default the total goes first at the root, where it is measured there and not exact."""
    cross_check: bool = True
    """Solve the program, or a sample of it, a second time by cvxpy, and refuse a release where the two differ."""
    solver: str = "OSQP"
    """The solver of the second solution: any that cvxpy finds installed."""


def _choice(margins: Any) -> Any:
    """``margins``, where it is true, false, or names levels, tables or both."""
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
            raise ValueError(f"give {key} as a list of one name at least; margins = false writes none")
    return margins


class Output(TomlSection):
    """Where the release goes, and which files it has."""

    directory: str = "output"
    """The folder in which public/ and internal/ are made."""
    csv: bool = True
    """Write CSV files beside the Parquet files."""
    wide: bool = False
    """Add the release with a row per unit and a column per cell, the total and the columns of output.tables, and of
    each lower, upper and moe, where it has a margin of error."""
    estimates: bool | None = None
    """Publish the estimates of every cell of every unit; by default where the cells alone are measured."""
    estimates_csv: bool = False
    """Write the estimates as CSV, too."""
    tables: list[str] = Field(default_factory=list)
    """Queries, or "P1" to "P5" of the redistricting file, that get a table with a row per unit, and one of their
    estimates beside it."""
    confidence: float = Field(default=0.9, gt=0.5, lt=1.0)
    """The confidence of the margins of error, above 0.5 and below 1."""
    margins: Annotated[bool | dict[Literal["levels", "tables"], list[str]], BeforeValidator(_choice)] = True
    """Write margins of error: true for all, false for none, or at some levels and for some tables alone, of those in
    output.tables and "cells" (of release.* and estimates.*). What is left out of the two is all. At other levels the
    columns are empty, other tables have none, and neither takes time. `td.margins` and `topdown query` tell all of them
    from the measurements, whatever is written."""
    language: Literal["en", "fr", "es", "pt"] = "en"
    """The language of README.md: English, French, Spanish or Portuguese."""
    replicates: int = Field(default=0, ge=0, le=1000)
    """So many whole tables drawn around the estimates, as the columns rep1, rep2, ... of replicates.*: for medians,
    ratios and rankings. Where the cells alone are measured. What their middle covers is no promise."""
    style: Literal["plain", "acs"] = "plain"
    """"acs": write the release, as the form "acs" of output.exports, in the columns of the American Community Survey
    too, with margins of error at 90 %."""
    exports: list[str] = Field(default_factory=list)
    """Other forms in which the release is written, as `topdown export` does, into the folder exports/ beside public/.
    Section [exports] says what they need."""

    @property
    def forms(self) -> list[str]:
        """The other forms that are written: those in ``exports``, and that of the ``style``."""
        return [*self.exports, *({self.style} - {"plain", *self.exports})]

    def with_margins(self, key: Literal["levels", "tables"], known: Iterable[str]) -> tuple[str, ...]:
        """Those of the ``known`` levels or tables that have margins of error."""
        chosen = {} if self.margins is True else self.margins or {key: []}
        return tuple(name for name in known if name in chosen.get(key, [name]))

    def require_margins(self, levels: Sequence[str], *, cells: bool) -> None:
        """Refuse margins of error at levels that there are not, and of tables that are not written; ``cells``: whether
        there may be some of all cells. Raises `ConfigError`."""
        known = {"levels": levels, "tables": [*self.tables, *([CELLS] if cells else [])]}
        for key, names in self.margins.items() if isinstance(self.margins, dict) else ():
            for name in names:
                try:
                    require_known(name, known[key], key[:-1])
                except ConfigError as error:
                    raise ConfigError(f"output.margins.{key}: {error}") from None

    def require_wide(self, cells: Sequence[str], schema: Schema) -> None:
        """Refuse columns of the wide table that would be called alike. Raises `ConfigError`."""
        if self.wide:
            wide_table(cells, schema, answer_tables(self.tables, schema), margins=self.margins is not False)


class OutputWithRecords(Output):
    """Where the release goes, and which files it has."""

    all_measurements: bool = False
    """Whether a release in parts has the measurements of all levels, however many: by default those of as many levels,
    from the root down, as have at most 268 million numbers together, and margins of error at these. A release that is
    made at once has all."""
    microdata: bool = False
    """Write the release as one record per person or household, too."""
    microdata_order: Literal["sorted", "shuffled"] = "sorted"
    """The order of these records: by unit and cell, or at random."""


def _moment(text: str) -> str:
    """A year, a month or a day as ISO 8601 writes it, or two with "/" between."""
    found = [re.fullmatch(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?", part) for part in text.split("/", 1)] if text else []
    try:
        days = [date(int(one[1]), int(one[2] or 1), int(one[3] or 1)) for one in found if one is not None]
    except ValueError:
        days = []
    if len(days) < len(found) or days != sorted(days):
        raise ValueError('give a year, a month or a day, or two: "2020", "2020-04-01", "2019/2020"')
    return text


def _day(text: str) -> str:
    """A day as ISO 8601 writes it, or nothing."""
    if text and (len(text) != len("2020-04-01") or "/" in text):
        raise ValueError('give a day: "2020-04-01"')
    return _moment(text)


def _address(text: str) -> str:
    """An address on the web, or nothing."""
    if text and re.fullmatch(r"https?://\S+", text) is None:
        raise ValueError('give an address, such as "https://example.org/release"')
    return text


class CatalogueOptions(TomlSection):
    """What a reader and catalogues are told of the release, in README.md, dcat.jsonld, croissant.json and
    csv-metadata.json. What is left out is said to be."""

    publisher: str = ""
    """Who publishes it."""
    licence: str = ""
    """Its licence, by address or name."""
    period: Annotated[str, AfterValidator(_moment)] = ""
    """The time that is counted: "2020", "2020-04-01" or "2019/2020"."""
    description: str = ""
    """What it is; by default what the codebook says."""
    url: Annotated[str, AfterValidator(_address)] = ""
    """Where it is found on the web."""
    contact: str = ""
    """Whom to ask about it: an address, a name."""
    date: Annotated[str, AfterValidator(_day)] = ""
    """The day on which it is published: "2027-01-31"."""


class ExportsOptions(TomlSection):
    """What the forms in output.exports need, by the names of the options of `topdown export`."""

    units: str | None = None
    """pl94, ppmf: the public directory of the release of the housing units."""
    header: str | None = None
    """pl94: a file whose geographic header is taken."""
    geometry: str | None = None
    """geoparquet, gpkg: the file of the units' outlines."""
    query: str | None = None
    """acs, geoparquet, gpkg, sdmx, xlsx: the query whose answers are written, by default all that the release has."""
    state: str | None = None
    """pl94: the state of a nation's release that is written."""


class DerivationConfig(TomlSection):
    """What follows the draw, whatever the measurements come from: how they are projected, where the release is written.

    ``folder``: the configuration file's, against which paths are resolved. ``not_in_fingerprint``: settings, and whole
    sections, that decide no number of the release, by the reason why; every other one is in its `fingerprint`.
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
                "output.replicates",
                "output.style",
                "output.language",
                "exports",
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
    """What the release is called, in its codebook and manifest."""
    projection: Projection = Projection()
    output: Output = Output()
    catalogue: CatalogueOptions = CatalogueOptions()
    exports: ExportsOptions = ExportsOptions()
    folder: Path = Field(default=Path(), exclude=True)

    @property
    def output_path(self) -> Path:
        """The output directory's path."""
        return self.path_of(self.output.directory)

    def path_of(self, written: str) -> Path:
        """A path as it is written in the file, relative to the file."""
        return Path(os.path.normpath(self.folder / written))

    def resolved(self) -> dict[str, Any]:
        """Every setting, defaults filled in, as JSON-able values."""
        return self.model_dump(mode="json", by_alias=True)

    def fingerprint(self, units: str | None = None, limits: str | None = None) -> str:
        """SHA-256 of everything that decides what is released but the numbers that it is made from: of every setting,
        without ``not_in_fingerprint``. ``units``: the digest of the public list of units, ``limits``: that of the
        public table of limits.

        What a table names in another order is another configuration: answers have the order of their categories.
        """
        settled = self.resolved()
        for names in self.not_in_fingerprint.values():
            for name in names:
                section, _, setting = name.rpartition(".")
                (settled[section] if section else settled).pop(setting, None)
        return hashlib.sha256(json.dumps([settled, units, limits]).encode()).hexdigest()
