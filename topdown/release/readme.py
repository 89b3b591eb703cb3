"""README.md of a release, in plain words and two pages at most: who publishes what, how a number is read, which number
to use, what is protected. METHODS.md has the rest.

It is in the language that `[output] language` asks for; names and texts of the publisher stay as they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.machine.software import version_of
from topdown.privacy.plan import Plan
from topdown.release.answer_files import AREAS, FOLDER, paths_of
from topdown.release.catalogue import CROISSANT, CSVW, DCAT
from topdown.release.manifest import Description
from topdown.release.partition import RELEASE
from topdown.release.places import MANIFEST
from topdown.tables.output_formats import names_of
from topdown.tables.parquet_folder import parts_of
from topdown.wording import escaped

README, METHODS, DATAPACKAGE = "README.md", "METHODS.md", "datapackage.json"

_ROWS_LOOKED_AT = 1 << 14
"""So many rows are searched for a number as an example."""


@dataclass(frozen=True)
class Words:
    """The sentences of a language, with placeholders in braces; ``thousands``: the separator of thousands in
    numbers.
    """

    thousands: str
    untitled: str
    not_stated: str
    about: Mapping[str, str]
    """The labels of the settings in [catalogue]."""
    reading: str
    read: str
    no_margin: str
    margins: str
    files: str
    file: str
    what: Mapping[str, str]
    """A description of every file."""
    tables: str
    areas: str
    choosing: str
    choice: str
    protection: str
    noise: str
    budget: str
    nothing_exact: str
    exact: str
    plan_unknown: str
    more: str
    rest: str


_FILES = ("release", "release_wide", "estimates", "measurements", "geography", "limits")
"""The tables in the order in which they are described."""

_SAID = tomllib.loads((files("topdown.release") / "readme_words.toml").read_text(encoding="utf-8"))
LANGUAGES = {language: Words(**said) for language, said in _SAID.items()}
"""Every language by its code."""


class _Number(NamedTuple):
    """A released number as an example, its ends missing where it has no margin."""

    place: str
    cell: str
    value: int
    lower: float | None
    upper: float | None


def plain(text: str) -> str:
    """Text of the configuration or a name, escaped so that Markdown shows it unchanged."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#|" else sign for sign in escaped(text))


def in_plain_words(about: Description, files: Mapping[str, Path]) -> str:
    """README.md of the release that ``about`` describes, whose tables are ``files`` by name."""
    words = LANGUAGES[about.config.output.language]
    told = {"title": about.config.title, **about.config.catalogue.model_dump()}
    number = _read_aloud(about, files)
    confidence = about.margins["confidence"]
    lines = [f"# {plain(told['title']) or words.untitled}", ""]
    lines += [f"**{plain(notice)}**\n" for notice in about.origin.notices]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {said} | {in_cell(told[name]) or words.not_stated} |" for name, said in words.about.items()]
    kept = bool(about.measurements.keys)
    lines += ["", f"## {words.reading}", ""] if kept or number is not None else [""]
    if number is not None:
        sentence = words.no_margin if number.lower is None or confidence is None else words.read
        figures = {
            name: f"{int(one):,}".replace(",", words.thousands)
            for name, one in (("value", number.value), ("lower", number.lower), ("upper", number.upper))
            if one is not None
        }
        shown_confidence = "" if confidence is None else f"{100.0 * confidence:.6g}"
        names = {"place": plain(number.place), "cell": plain(number.cell), "confidence": shown_confidence}
        lines += [f"> {sentence.format(**names, **figures)}", ""]
    lines += [words.margins, ""] if kept else []
    lines += [f"## {words.files}", "", f"| {words.file} | |", "|---|---|"]
    for name in _FILES:
        there = [f"`{one}`" for one in names_of(name) if one in files]
        if there:
            lines.append(f"| {', '.join(there)} | {words.what[name]} |")
    if about.tables:
        called = ", ".join(plain(table.name) for table in about.tables)
        lines.append(f"| `{FOLDER}/` | {words.tables.format(names=called)} |")
    if about.areas:
        called = ", ".join(plain(one.kind) for one in about.areas)
        lines.append(f"| `{AREAS}/` | {words.areas.format(names=called)} |")
    # Without measurements there are neither margins of error nor estimates to choose from.
    lines += ["", f"## {words.choosing}", "", words.choice] if kept else []
    lines += [
        "",
        f"## {words.protection}",
        "",
        "\n\n".join(protection(about.plan, words)),
    ]
    rest = words.rest.format(
        methods=METHODS, manifest=MANIFEST, package=DATAPACKAGE, csvw=CSVW, dcat=DCAT, croissant=CROISSANT,
        version=version_of(),
    )  # fmt: skip
    lines += ["", f"## {words.more}", "", rest]
    return "\n".join(lines) + "\n"


def in_cell(text: str) -> str:
    """`plain` text for the cell of a table, on one line."""
    return plain(text).replace("\n", " ")


def protection(plan: Plan | None, words: Words, quoted: Callable[[str], str] = plain) -> list[str]:
    """What is protected, and by how much, in sentences; ``quoted``: how names are written in them."""
    if plan is None:
        return [words.plan_unknown]
    exact = [*plan.invariants, *(f"{query} ({level})" for level, query in plan.exact_queries)]
    said = words.exact.format(names=", ".join(map(quoted, exact))) if exact else words.nothing_exact
    budget = f"{plan.noise.currency} = {float(plan.charged_total):.6g}"
    if plan.delta:
        budget += f", delta = {float(plan.delta):.6g}"
    return [words.noise.format(unit=quoted(plan.unit)), f"{words.budget.format(budget=budget)} {said}"]


def _read_aloud(about: Description, files: Mapping[str, Path]) -> _Number | None:
    """A number of the release as an example, if possible of a unit below the root: of a cell, or of a table's
    column.
    """
    estimates = [names_of(paths_of(table)[1])[0] for table in about.tables]
    found = [files[name] for name in (*estimates, RELEASE) if name in files]
    geography = about.measurements.published
    level = geography.levels[min(1, len(geography.levels) - 1)]
    for path in found:
        schema = pq.read_schema(parts_of(path)[0])
        column = "column" if "column" in schema.names else "cell"
        if column not in schema.names or "value" not in schema.names:
            continue
        wanted = [one for one in ("geoid", "level", "name", column, "value", "lower", "upper") if one in schema.names]
        with pq.ParquetFile(parts_of(path)[0]) as file:
            rows = next(file.iter_batches(_ROWS_LOOKED_AT, columns=wanted), None)
        if rows is None or not rows.num_rows:
            continue
        there = np.asarray(pc.equal(rows["level"].cast("string"), level)) & (np.asarray(rows["value"]) > 0)
        place = int(np.argmax(there))
        row = rows.slice(place, 1).to_pylist()[0]
        ends = [row.get(end) for end in ("lower", "upper")]
        bounded = all(one is not None and np.isfinite(one) for one in ends)
        return _Number(row.get("name") or row["geoid"], row[column], row["value"], *(ends if bounded else (None, None)))
    return None
