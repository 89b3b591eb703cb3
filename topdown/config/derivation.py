"""[projection] and [output]: what becomes of measurements, and where it is written."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from topdown.config.section import Section
from topdown.errors import ConfigError, require_known
from topdown.projection.method import nonnegative_methods


def _non_negative(method: str) -> str:
    """``method``, where it is a projection whose values may be released."""
    try:
        require_known(method, nonnegative_methods(), "method")
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return method


class Projection(Section):
    """The non-negative method whose whole numbers are released. ``upward`` = "from LEVEL": of "gls-top-down" and
    several queries the level where the upward pass starts; what is measured below it shares out its counts and tells
    nothing of them. By default it starts at the leaves.
    """

    method: Annotated[str, AfterValidator(_non_negative)] = "gls-top-down"
    weights: Literal["variance", "uniform"] = "variance"
    upward: str | None = None
    cross_check: bool = True
    solver: str = "OSQP"


class Output(Section):
    """Where the release goes; ``csv`` = false leaves out the CSV beside the Parquet files, ``wide`` adds the release
    with a row per unit and a column per cell, ``tables`` a table for every query that it names (or "P1" to "P5" of the
    redistricting file), with a row per unit and its estimates beside. ``estimates``: of every cell of every unit, by
    default where the cells alone are measured; ``estimates_csv`` the same as CSV. ``confidence``: of the margins of
    error, above 0.5 and below 1. ``exports``: other people's forms in which the release is written too, as `topdown
    export` does, into the folder exports/ beside public/; section [exports] says what they need.
    """

    directory: str = "output"
    csv: bool = True
    wide: bool = False
    estimates: bool | None = None
    estimates_csv: bool = False
    tables: list[str] = Field(default_factory=list)
    confidence: float = Field(default=0.9, gt=0.5, lt=1.0)
    exports: list[str] = Field(default_factory=list)


class OutputWithRecords(Output):
    """``microdata``: whether `topdown run` goes on to write one record per person or household; ``microdata_order``."""

    microdata: bool = False
    microdata_order: Literal["sorted", "shuffled"] = "sorted"


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


def _address(text: str) -> str:
    """An address on the web, or nothing."""
    if text and re.fullmatch(r"https?://\S+", text) is None:
        raise ValueError('give an address, such as "https://example.org/release"')
    return text


class CatalogueOptions(Section):
    """What catalogues are told of the release (dcat.jsonld, csv-metadata.json): its ``publisher``, its ``licence`` by
    address or name, the ``period`` that is counted ("2020", "2020-04-01", "2019/2020"), a ``description``, by default
    the codebook's, and the ``url`` where it is found.
    """

    publisher: str = ""
    licence: str = ""
    period: Annotated[str, AfterValidator(_moment)] = ""
    description: str = ""
    url: Annotated[str, AfterValidator(_address)] = ""


class ExportsOptions(Section):
    """What the forms in output.exports are told, by the names of the options of `topdown export`: of the redistricting
    file (pl94) and microdata (ppmf) the public directory of the release of the housing ``units``; of pl94 a file of
    which the geographic ``header`` is taken, and which ``state`` of a nation; of geoparquet the file of outlines
    (``geometry``) and the ``query`` whose answers are written.
    """

    units: str | None = None
    header: str | None = None
    geometry: str | None = None
    query: str | None = None
    state: str | None = None


class DerivationConfig(Section, ABC):
    """What follows the draw, whatever the measurements come from: how they are projected, where the release is written.

    ``folder``: the configuration file's, against which paths are resolved.
    """

    title: str = ""
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

    @abstractmethod
    def fingerprint(self, units: str | None = None, limits: str | None = None) -> str:
        """SHA-256 of what decides, beside the numbers, what is released; ``units``: that of a public list of units,
        ``limits``: that of a public table of limits.
        """
