"""The codebook of a release: what every file and column is, in words (README.md) and for programs (datapackage.json).

The second follows the Data Package standard, version 2 (Frictionless Data), which many tools read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from topdown.geography.geography import Geography
from topdown.machine.files import file_digest
from topdown.machine.software import version_of
from topdown.privacy.plan import Plan
from topdown.wording import escaped

README = "README.md"
DATAPACKAGE = "datapackage.json"

_COUNT = "count"
_SQUARED = "count squared"

FILES = {
    "measurements.parquet": "What was measured: signed counts with their noise, of which all else is computed.",
    "estimates.parquet": "Consistent estimates: by least squares, with their variances, and non-negative.",
    "estimates.csv": "estimates.parquet as text.",
    "release.parquet": "The release: whole, non-negative counts that add up from the leaves to the root.",
    "release.csv": "release.parquet as text.",
    "release_wide.parquet": "The release with one row per unit and one column per cell.",
    "release_wide.csv": "release_wide.parquet as text.",
    "geography.parquet": "Every unit with its level, the unit that it lies in, and its name.",
}
"""Every table that a release may have."""

MEANINGS: dict[str, tuple[str, str | None]] = {
    "geoid": ("the unit's GEOID, a text: leading zeros belong to it", None),
    "level": ("the unit's level", None),
    "parent": ("the GEOID of the unit that this one lies in; missing at the root", None),
    "name": ("what the unit is called; missing where that is not known", None),
    "query": ("the query that was asked", None),
    "cell": ("what was counted", None),
    "unbiased": ("estimate by least squares over all levels, which adds up and is unbiased; may be negative", _COUNT),
    "least_squares": ("estimate by least squares over all levels, which adds up; biased, its noise is bounded", _COUNT),
    "non_negative": ("estimate that adds up and is 0 or more; biased upwards where counts are small", _COUNT),
    "total": ("the sum over all cells", _COUNT),
}
"""What the columns of all tables mean, and their unit."""

_VALUES = {
    "measurements": ("the count with its noise, signed; exact where the variance is 0", _COUNT),
    "release": ("the released count: whole, 0 or more, adding up", _COUNT),
}
_VARIANCES = {
    "measurements": ("of the noise, by its law; independent from row to row, so that variances add up", _SQUARED),
    "estimates": ("of the estimate by least squares, by the law of the noise; estimates of different units depend on "
                  "each other, so that variances of sums do not add up", _SQUARED),
    "release": ("0 where the count is exact; not known, and missing, elsewhere", _SQUARED),
}  # fmt: skip

_TYPES = {"string": "string", "int64": "integer", "double": "number"}


def meaning(file: str, column: str) -> tuple[str, str | None]:
    """What ``column`` of ``file`` means, and its unit, if it has one; a wide table's other columns are its cells."""
    table = file.split(".")[0].split("_")[0]
    if column == "value":
        return _VALUES[table]
    if column == "variance":
        return _VARIANCES[table]
    return MEANINGS.get(column) or (f"released count of {column!r}: whole, 0 or more, adding up", _COUNT)


def data_package(title: str, files: Mapping[str, Path], notices: Sequence[str]) -> dict[str, Any]:
    """The tables in ``files`` (name to path) as a Data Package: paths, digests, and every column with its meaning."""
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": "release",
        "title": title or "A release of counts",
        "description": " ".join([*notices, f"Counts with differential privacy; {README} says what the columns mean."]),
        "resources": [_resource(name, files[name]) for name in FILES if name in files],
    }


def _resource(name: str, path: Path) -> dict[str, Any]:
    is_text = path.suffix == ".csv"
    schema = _text_schema(path) if is_text else pq.read_schema(path)
    fields = []
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        said, unit = meaning(name, field.name)
        fields.append({"name": field.name, "type": _TYPES[str(kind)], "description": said})
        if unit is not None:
            fields[-1]["unit"] = unit
    keys = [field["name"] for field in fields if field["name"] in ("geoid", "query", "cell")]
    return {
        "name": name.replace(".", "-").replace("_", "-"),
        "path": name,
        "title": FILES[name],
        "format": path.suffix.removeprefix("."),
        "mediatype": "text/csv" if is_text else "application/vnd.apache.parquet",
        "bytes": path.stat().st_size,
        "hash": f"sha256:{file_digest(path)}",
        **({"encoding": "utf-8"} if is_text else {}),
        "schema": {"fields": fields, "primaryKey": keys, "missingValues": [""]},
    }


def _text_schema(path: Path) -> pa.Schema:
    """Of a CSV file that Topdown wrote beside its Parquet file, whose kinds are its own."""
    beside = path.with_suffix(".parquet")
    if beside.exists():
        return pq.read_schema(beside)
    with pacsv.open_csv(path) as reader:
        return reader.schema


def in_words(title: str, plan: Plan, geography: Geography, files: Mapping[str, Path], notices: Sequence[str]) -> str:
    """The codebook as Markdown: what has to be known first, the files, their columns, the noise, what is protected."""
    lines = [f"# {_plain(title) or 'A release of counts'}", ""]
    lines += [f"**{_plain(notice)}**\n" for notice in notices]
    lines += [
        f"Counts with differential privacy, made by Topdown {version_of()}. `manifest.json` says how, with the SHA-256 "
        f"of every file; `{DATAPACKAGE}` says for programs what this file says in words.",
        "",
        "| file | what |",
        "|---|---|",
        *(f"| `{name}` | {FILES[name]} |" for name in FILES if name in files),
        "",
        "Which numbers? For one unit, the release. For sums over many small units, the estimates by least squares: the "
        "release is 0 or more everywhere, and what was raised to 0 adds up. To compute something else from the start, "
        "the measurements. Rows go by level from the root and, among siblings, by GEOID, which is text.",
        "",
        "## Columns",
        "",
        "| file | column | meaning | unit |",
        "|---|---|---|---|",
        *_column_rows(files),
        "",
        "## Noise",
        "",
        "| level | query | law of the noise | variance |",
        "|---|---|---|---|",
        *_noise_rows(plan, geography),
        "",
        "Draws are independent from count to count.",
        "",
        "## What is protected",
        "",
        *(_plain(line) for line in plan.describe(geography.levels).split("\n")),
    ]
    return "\n".join(lines) + "\n"


def _column_rows(files: Mapping[str, Path]) -> Iterator[str]:
    for name in FILES:
        if name in files and files[name].suffix == ".parquet":
            for field in pq.read_schema(files[name]):
                said, unit = meaning(name, field.name)
                yield f"| `{name}` | {_cell(field.name)} | {_cell(said)} | {unit or ''} |"


def _noise_rows(plan: Plan, geography: Geography) -> Iterator[str]:
    for level in geography.levels:
        if not plan.queries(level):
            yield f"| {_cell(level)} | | not measured | |"
        for query in plan.queries(level):
            if plan.is_exact(level, query):
                law, variance = "none: published exactly, not protected", "0"
            else:
                law = f"{plan.mechanism}, {plan.noise.parameter} {plan.parameter(level, query)}"
                law += "" if plan.bounds.at(level).kind == "none" else f", {plan.bounds.at(level).in_words()}"
                variance = f"{plan.variance(level, query):.6g}"
            yield f"| {_cell(level)} | {_cell(query)} | {law} | {variance} |"


def _plain(text: str) -> str:
    """Text of the configuration or of names as Markdown that is read as it stands."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#|" else sign for sign in escaped(text))


def _cell(text: str) -> str:
    return _plain(text).replace("\n", " ")
