"""The codebook of a release: the meaning of every file and column, in words (METHODS.md) and for programs
(datapackage.json).

The second follows the Data Package standard, version 2 (Frictionless Data), which many tools read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from topdown.geography.geography import Geography
from topdown.geography.unit_sums import NOWHERE
from topdown.machine.files import file_digest
from topdown.measurements.measurements import Measurements
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import gain, groups, law_of, levels_taken
from topdown.release.answer_files import AreaCounts, area_paths, paths_of
from topdown.release.known_variances import measured_queries
from topdown.release.layouts import WITH_RECORDS
from topdown.release.manifest import Description
from topdown.release.partition import (
    ESTIMATES,
    ESTIMATES_CSV,
    GEOGRAPHY,
    LIMITS,
    MEASUREMENTS,
    RELEASE,
    RELEASE_CSV,
    WIDE,
    WIDE_CSV,
)
from topdown.release.readme import METHODS, README, in_cell, plain
from topdown.tables.output_formats import PARQUET, format_of, names_of
from topdown.tables.parquet_folder import parts_of
from topdown.tables.spreadsheet import as_csv_names, from_csv_text
from topdown.workload import Schema
from topdown.workload.answer_tables import MARGIN_ENDS, AnswerTable, margin_names, wide_table

if TYPE_CHECKING:
    from topdown.uncertainty.margins import Reach


class Described(NamedTuple):
    """The description of a table: its ``title``, and the meaning of its ``columns`` with their unit."""

    title: str
    columns: Mapping[str, tuple[str, str | None]]


Own = Mapping[str, Described]
"""The descriptions of the tables that only this release has, by file."""

_COUNT = "count"
_SQUARED = "count squared"
_ONE = "1"

FILES = {
    MEASUREMENTS: "The measurements: counts with noise, which may be negative. All other files are computed from them.",
    ESTIMATES: "Consistent estimates: by least squares, with their variances, and non-negative.",
    ESTIMATES_CSV: f"{ESTIMATES} as text.",
    RELEASE: "The release: whole, non-negative counts that add up from the leaves to the root.",
    RELEASE_CSV: f"{RELEASE} as text.",
    WIDE: "The release with one row per unit, a column per count, and then their margins of error.",
    WIDE_CSV: f"{WIDE} as text.",
    LIMITS: "Public limits of answers: the least and the most that each can be.",
    GEOGRAPHY: "Every unit with its level, the unit that it lies in, and its name.",
}
"""The title of every table that a release may have."""

MEANINGS: dict[str, tuple[str, str | None]] = {
    "tree": (
        "the tree of the row: the published one, the spine on which the measurements were made, or a kind of "
        "areas; all "
        "have the same leaves",
        None,
    ),
    "geoid": ("the unit's GEOID, as text with its leading zeros", None),
    "level": ("the unit's level", None),
    "parent": ("the GEOID of the unit that this one lies in; missing at the root", None),
    "name": ("the name of the unit; missing where it is not known", None),
    "query": ("the query", None),
    "cell": ("what was counted", None),
    "answer": ("the answer's categories, joined", None),
    "lower": ("the least that the answer can be", _COUNT),
    "upper": ("the most that the answer can be; missing where no such limit is known", _COUNT),
    "unbiased": ("estimate by least squares over all levels, which adds up and is unbiased; may be negative", _COUNT),
    "least_squares": ("estimate by least squares over all levels, which adds up; biased, its noise is bounded", _COUNT),
    "non_negative": ("estimate that adds up and is 0 or more; biased upwards where counts are small", _COUNT),
    "total": ("the sum over all cells", _COUNT),
    "total_lower": ("the least true total within the margin of error of the total", _COUNT),
    "total_upper": ("the greatest true total within the margin of error of the total", _COUNT),
    "total_moe": ("half of total_upper less total_lower", _COUNT),
    "cv": (
        "coefficient of variation: sd of the estimate by least squares over the count; missing where that is 0",
        _ONE,
    ),
    "reliability": (
        "of the coefficient of variation: high up to .12, medium up to .40, low above (Esri's classes for the American "
        "Community Survey)",
        None,
    ),
}
"""The meaning and the unit of the columns of all tables."""

_VALUES = {
    "measurements": ("the count with its noise, which may be negative; exact where the variance is 0", _COUNT),
    "release": ("the released count: whole, 0 or more, adding up", _COUNT),
}
_VARIANCES = {
    "measurements": ("of the noise, by its law; independent from row to row, so that variances add up", _SQUARED),
    "estimates": ("of the estimate by least squares, by the law of the noise; estimates of different units depend on "
                  "each other, so that variances of sums do not add up", _SQUARED),
    "release": ("0 where the count is exact; not known, and missing, elsewhere", _SQUARED),
}  # fmt: skip

_MARGINS = {
    "sd": ("the standard deviation of the estimate by least squares", _COUNT),
    "lower": ("the least true count within the margin of error, see below", _COUNT),
    "upper": ("the greatest true count within the margin of error", _COUNT),
    "moe": ("half of upper less lower: the margin as one number; lower and upper are the exact statement", _COUNT),
}

_NO_KEYS = ("level", "parent", "name", "reliability")
"""Columns of text that are no part of a row's key."""

_TYPES = {"string": "string", "int64": "integer", "double": "number"}


def meaning(file: str, column: str, own: Own) -> tuple[str, str | None]:
    """The meaning of ``column`` of ``file``, and its unit, if it has one."""
    if file in own:
        return own[file].columns.get(column) or MEANINGS[column]
    table = file.split(".")[0].split("_")[0]
    if column == "value":
        return _VALUES[table]
    if column == "variance":
        return _VARIANCES[table]
    if column in _MARGINS and table in ("release", "estimates"):
        return _MARGINS[column]
    return MEANINGS[column]


def own_tables(about: Description) -> Own:
    """The descriptions of tables that not every release has: of counts by attribute, and of answers."""
    found = dict(_with_records(about.schema) if about.layout is WITH_RECORDS else {})
    if about.config.output.wide:
        found |= _wide(wide_table(about.measurements.cells, about.schema, about.tables))
    if about.config.output.replicates:
        found |= _replicates(about)
    for table in about.tables:
        counted: dict[str, tuple[str, str | None]] = {one.name: (one.meaning, _COUNT) for one in table.columns}
        title = f"The released counts of table {table.name}, a row per unit."
        found |= _described(paths_of(table)[0], title, counted)
        if about.reach is not None:
            paths = paths_of(table)
            found |= _estimated_table(paths, table.name, about.linear_name, about.config.output.confidence, about.reach)
    for areas in about.areas:
        found |= _of_areas(areas, about.linear_name, about.config.output.confidence)
    return found


def _described(stem: str, title: str, columns: Mapping[str, tuple[str, str | None]]) -> dict[str, Described]:
    """The description of the files of one table, whose names begin with ``stem``."""
    first, text = names_of(stem)
    return {first: Described(title, columns), text: Described(f"{first} as text.", columns)}


def _of_areas(areas: AreaCounts, linear_name: str, confidence: float) -> Own:
    """What the files of areas of one kind are."""
    paths, columns = area_paths(areas.kind), _wide(areas.table)[WIDE].columns
    title = (
        f"The released counts of the areas of kind {areas.kind}, and of what lies in none ({NOWHERE}), a row per area."
    )
    return {
        **_described(paths[0], title, columns),
        **_estimated_table(paths, areas.kind, linear_name, confidence, areas.reach),
    }


def _with_records(schema: Schema) -> Own:
    """The description of the rows of a release of several queries."""
    columns: dict[str, tuple[str, str | None]] = {
        attribute.name: (f"the records' category, one of {len(attribute.categories)}", None)
        for attribute in schema.attributes
    }
    columns["count"] = ("how many records the unit has in these categories: whole, above 0, adding up", _COUNT)
    title = "The release: whole counts that add up from the leaves to the root; a cell without a row is 0."
    return _described("release", title, columns)


def _wide(table: AnswerTable) -> Own:
    """The description of all columns that the wide table may have."""
    columns: dict[str, tuple[str, str | None]] = {}
    for name in (column.name for column in table.columns):
        columns[name] = f"released count of {name!r}: whole, 0 or more, adding up", _COUNT
        for end, called in zip(MARGIN_ENDS, margin_names(name), strict=True):
            columns[called] = f"of {name!r}: {_MARGINS[end][0]}", _COUNT
    return _described("release_wide", FILES[WIDE], columns)


def _replicates(about: Description) -> Own:
    """The description of the columns of the replicates."""
    said = "a whole table drawn around the estimates, adding up; not a margin of error, and no release"
    numbers = range(1, about.config.output.replicates + 1)
    columns: dict[str, tuple[str, str | None]] = {f"rep{k}": (said, _COUNT) for k in numbers}
    columns["value"] = _VALUES["release"]
    title = "Whole tables drawn around the estimates, a column each, for statistics without a formula for their margin."
    if about.layout is WITH_RECORDS:
        columns |= _with_records(about.schema)[RELEASE].columns
        columns["count"] = ("the released count in these categories; 0 where a table alone has records", _COUNT)
        title += " A cell without a row is 0 in all of them."
    return _described("replicates", title, columns)


def _estimated_table(paths: tuple[str, str], called: str, linear_name: str, confidence: float, reach: Reach) -> Own:
    """The description of the files of the estimates of a table, at ``paths``, with margins of error at ``confidence``,
    as ``reach`` says.
    """
    counts, estimates = paths
    beside: dict[str, tuple[str, str | None]] = {
        "column": (f"the column of {names_of(counts)[0]} that the row is about", None),
        "value": ("the released count: whole, 0 or more, adding up", _COUNT),
        linear_name: MEANINGS[linear_name],
        "sd": ("the standard deviation of the estimate by least squares; missing where it is not known", _COUNT),
        "moe": (
            f"the margin of error of {linear_name}, not of value, at {100.0 * confidence:.6g} %: {reach.in_words}",
            _COUNT,
        ),
        **{end: _MARGINS[end] for end in ("lower", "upper")},
    }
    return _described(estimates, f"The estimates of table {called}, beside its released counts.", beside)


def _titles(files: Mapping[str, Path], own: Own) -> dict[str, str]:
    """The tables among ``files`` with their titles, those that only this release has last."""
    known = {name: title for name, title in FILES.items() if name in files}
    return known | {name: one.title for name, one in own.items() if name in files}


def data_package(about: Description, files: Mapping[str, Path], own: Own) -> dict[str, Any]:
    """The tables in ``files`` (name to path) as a Data Package: paths, digests, and every column with its meaning."""
    said = f"Counts with differential privacy; {METHODS} says what the columns mean."
    titles = _titles(files, own)
    called = _resource_names(titles)
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": "release",
        "title": about.config.title or "A release of counts",
        "description": " ".join([*about.origin.notices, said]),
        "resources": [_resource(name, called[name], said, files[name], own) for name, said in titles.items()],
    }


def _resource_names(files: Iterable[str]) -> dict[str, str]:
    """The name of the resource of each of ``files``; tables whose names would be the same are told apart by dashes."""
    parts = {name: name.rpartition(".") for name in files}
    called: dict[str, str] = {}
    for stem in dict.fromkeys(stem for stem, _, _ in parts.values()):
        one = re.sub("[./_]", "-", stem).lower()
        while one in called.values():
            one += "-"
        called[stem] = one
    return {name: f"{called[stem]}-{ending}" for name, (stem, _, ending) in parts.items()}


def _resource(name: str, called: str, title: str, path: Path, own: Own) -> dict[str, Any]:
    written = format_of(path)
    is_text = not written.typed
    schema = _text_schema(path) if is_text else _kinds(path)
    fields = []
    for field, column in zip(schema, as_csv_names(schema.names) if is_text else schema.names, strict=True):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        said, unit = meaning(name, field.name, own)
        fields.append({"name": column, "type": _TYPES[str(kind)], "description": said})
        if unit is not None:
            fields[-1]["unit"] = unit
    keys = [one["name"] for one in fields if "unit" not in one and one["name"] not in _NO_KEYS]
    return {
        "name": called,
        "path": [f"{name}/{part.name}" for part in parts_of(path)] if path.is_dir() else name,
        "title": title,
        "format": written.ending.removeprefix("."),
        "mediatype": written.media_type,
        # The Frictionless library counts no bytes of Parquet files, and would call these wrong; the manifest has them.
        **(
            {"bytes": path.stat().st_size, "hash": f"sha256:{file_digest(path)}", "encoding": "utf-8"}
            if is_text
            else {}
        ),
        "schema": {"fields": fields, "primaryKey": keys, "missingValues": [""]},
    }


def _kinds(path: Path) -> pa.Schema:
    """The columns of a Parquet file, or of those in a folder."""
    return pq.read_schema(parts_of(path)[0])


def _text_schema(path: Path) -> pa.Schema:
    """The columns of a CSV file that Topdown wrote; the Parquet file beside it has their types."""
    beside = path.with_suffix(PARQUET.ending)
    if beside.exists():
        return _kinds(beside)
    with pacsv.open_csv(path) as reader:
        names = from_csv_text(pa.array(reader.schema.names)).to_pylist()
        return pa.schema(field.with_name(name) for field, name in zip(reader.schema, names, strict=True))


def in_words(about: Description, files: Mapping[str, Path], own: Own) -> str:
    """The codebook as Markdown: first notices, then the files, their columns, margins of error, the noise, and what is
    protected.
    """
    plan, measurements = about.plan, about.measurements
    margins = [about.margins["statement"], *about.margins["rule"]]
    title = about.config.title
    lines = [f"# {f'{plain(title)}: methods' if title else 'Methods'}", ""]
    lines += [f"**{plain(notice)}**\n" for notice in about.origin.notices]
    lines += [
        "The meaning of every column of the release, how its margins of error are made, and the law of its noise. "
        f"`{README}` introduces the release in plain words. Rows are in the order of levels from the root and, "
        "among siblings, of GEOIDs, which are text.",
        "",
        "| file | what |",
        "|---|---|",
        *(f"| `{name}` | {in_cell(said)} |" for name, said in _titles(files, own).items()),
        "",
        "## Columns",
        "",
        "| file | column | meaning | unit |",
        "|---|---|---|---|",
        *_column_rows(files, own),
        "",
        "## Margins of error",
        "",
        *(f"{plain(one)}\n" for one in margins),
        "## Noise",
        "",
        "| level | query | law of the noise | variance |",
        "|---|---|---|---|",
        *(_noise_rows(plan, measurements.geography) if plan is not None else _stated_rows(measurements)),
        "",
        "Draws are independent from count to count.",
        "",
        "## What is protected",
        "",
        *(plain(line) for line in about.statement.split("\n")),
    ]
    return "\n".join(lines) + "\n"


def _column_rows(files: Mapping[str, Path], own: Own) -> Iterator[str]:
    for name in _titles(files, own):
        if format_of(files[name]).typed:
            for field in _kinds(files[name]):
                said, unit = meaning(name, field.name, own)
                yield f"| `{name}` | {in_cell(field.name)} | {in_cell(said)} | {unit or ''} |"


def _stated_rows(measurements: Measurements) -> Iterator[str]:
    law = measurements.mechanism or "not known"
    for one in measured_queries(measurements):
        variance = f"{one.least_variance:.6g}"
        variance += "" if one.least_variance == one.largest_variance else f" to {one.largest_variance:.6g}"
        yield f"| {in_cell(one.level)}, {one.units:,} units | {in_cell(one.query)} | {law} | {variance} |"


def _noise_rows(plan: Plan, geography: Geography) -> Iterator[str]:
    taken = levels_taken(plan, geography)
    for level in geography.levels:
        if not plan.queries(level):
            yield f"| {in_cell(level)} | | not measured | |"
        for query in plan.queries(level):
            if plan.is_exact(level, query):
                yield f"| {in_cell(level)} | {in_cell(query)} | none: published exactly, not protected | 0 |"
                continue
            for kind, _ in groups(taken, geography.level_slice(level)):
                yield _noise_row(plan, geography, level, query, kind)


def _noise_row(plan: Plan, geography: Geography, level: str, query: str, taken: int) -> str:
    """The row for the units of a level that have taken the shares of single children of so many levels."""
    noise = law_of(plan, geography.levels, level, query, taken)
    if noise is None:
        return f"| {in_cell(level)}, single children | {in_cell(query)} | not measured: their parent is | |"
    parameter = plan.parameter(level, query) / gain(plan, geography.levels, level, taken)
    law = f"{plan.mechanism}, {plan.noise.parameter} {parameter}"
    law += "" if plan.bounds.at(level).kind == "none" else f", {plan.bounds.at(level).in_words()}"
    units = in_cell(level) + (f", with single children down {taken} levels" if taken else "")
    return f"| {units} | {in_cell(query)} | {law} | {noise.variance:.6g} |"
