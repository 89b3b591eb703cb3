"""`topdown spine`: chooses a spine for a configuration and tables of areas, and writes files to run it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pyarrow as pa
import vl_convert

from topdown.config import RunConfig, load_config
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.unit_sums import require_areas
from topdown.machine.progress import Stages
from topdown.machine.software import version_of
from topdown.pages.chart_style import GREY, INK, styled
from topdown.pipeline.expected_error import lined_up, number_text
from topdown.pipeline.input.spine_reading import require_not_confidential
from topdown.pipeline.input.unit_reading import listed_units
from topdown.planning.plan_toml import key, plan_lines, text
from topdown.planning.spine_search import ComparedSpine, FoundSpine, SpineProblem, search, weighed_otherwise
from topdown.planning.spines import Spine, require_kinds
from topdown.tables.assignments import areas_of, kind_of
from topdown.tables.tidy import write_parquet, write_text
from topdown.wording import shown, shown_path, unquoted

_FACTORS = (1 / 64, 1 / 16, 1 / 4, 1, 4, 16, 64)
"""The factors by which the weights of areas are multiplied for the line of the chart."""


@dataclass(frozen=True, eq=False)
class ChosenSpine:
    """The result of a search (``found``) for a ``problem``: the published ``geography``, the ``tables`` of its areas by
    kind; ``otherwise``: the same spine with optimal shares for larger and smaller weights of areas.
    """

    problem: SpineProblem
    geography: Geography
    tables: Mapping[str, Path]
    found: FoundSpine
    otherwise: list[ComparedSpine]


def choose(config: RunConfig, areas: Sequence[Path], weights: Mapping[str, float], stages: Stages) -> ChosenSpine:
    """The best spine for the public list of units of ``config``, with areas of several kinds, a file each. No count is
    read.

    Raises `ConfigError` where the units, or the areas, are those of the confidential table, for kinds and areas whose
    names are taken, for a preset, whose shares are given, and as `SpineProblem.of`; `DataError` as `areas_of`.
    """
    require_public(config, areas)
    _require_kinds(areas)
    if config.privacy.preset is not None:
        raise ConfigError(
            f"privacy.preset = {shown(config.privacy.preset)} has its own shares; for its own spine leave --areas out, "
            "for another name its attributes in [schema] and the queries to measure in [privacy.shares]"
        )
    assert config.units_path is not None  # nosec B101 # narrows a type: what is not public was refused
    with stages.stage("reading the units"):
        geography = listed_units(config.units_path, config, stages)
        given = areas_of(list(areas), geography)
    for one in given:
        require_areas(one.name, one.districts)
    schema = config.schema_of_cells if config.has_schema or config.asks_queries else None
    problem = SpineProblem.of(config.plan(), geography, schema, given, weights)
    with stages.stage("searching for a spine"):
        found = search(problem, stages)
        otherwise = weighed_otherwise(problem, found.best, _FACTORS)
    tables = dict(zip((one.name for one in given), areas, strict=True))
    return ChosenSpine(problem, geography, tables, found, otherwise)


def require_public(config: RunConfig, areas: Sequence[Path]) -> None:
    """Refuse facts that are not declared public, and a configuration that has a spine."""
    if config.geography.spine is not None:
        raise ConfigError(
            "the configuration has a spine already, in geography.spine; take that section out, and give shares to the "
            "levels of [geography]"
        )
    if config.units_path is None:
        raise ConfigError(
            "a spine is made of public facts, and the units are taken from the confidential table; name a public list "
            "of units in geography.units"
        )
    for name, path in (("geography.units", config.units_path), *(("--areas", path) for path in areas)):
        require_not_confidential(config, name, path)


def _require_kinds(areas: Sequence[Path]) -> None:
    """Refuse tables of areas whose kinds no configuration can name. Raises `ConfigError`, with the table."""
    kinds = [kind_of(path) for path in areas]
    for number, path in enumerate(areas, 1):
        try:
            require_kinds(kinds[:number])
        except ConfigError as error:
            raise ConfigError(f"{shown_path(path)}: {error}") from None


def lines(chosen: ChosenSpine) -> Iterator[str]:
    """The candidates and their errors as a table, and the choice."""
    found, facts = chosen.found, chosen.problem.facts
    kinds = [*facts.kinds, *facts.level_names]
    weights = chosen.problem.weights
    yield "spines    mean standard deviation of the total of areas and units, each spine at the same total budget"
    rows = [("spine", "groups", *map(unquoted, kinds), "weighted")]
    for one in found.candidates:
        errors = (number_text(one.errors[kind]) for kind in kinds)
        rows.append((unquoted(one.words), f"{one.groups:,}", *errors, number_text(one.error)))
    yield from lined_up(rows)
    said = ", ".join(f"{unquoted(kind)} {weights[kind]:g}" for kind in (*kinds, chosen.geography.levels[0]))
    yield f"          weights: {said}"
    best = found.best
    yield "chosen    " + " > ".join(f"{unquoted(level)} ({100.0 * best.shares[level]:.2g} %)" for level in best.shares)
    if best.spine.size_words:
        yield f"          at its last level {best.spine.size_words}"


def chart(chosen: ChosenSpine) -> str:
    """An SVG chart of the errors: those of areas against those of the lowest published level that has a weight."""
    facts, weights = chosen.problem.facts, chosen.problem.weights
    told = [level for level in facts.level_names if weights[level]] or facts.level_names or [chosen.geography.levels[0]]
    level = told[-1]

    def rows(candidates: Sequence[ComparedSpine]) -> list[dict[str, Any]]:
        return [
            {"areas": kind, "spine": one.words, "x": one.errors[level], "y": one.errors[kind], "number": number}
            for number, one in enumerate(candidates)
            for kind in facts.kinds
        ]

    scale = alt.Scale(type="log", nice=False, padding=12)
    axes = {
        "x": alt.X("x:Q", title=f"mean standard deviation, {level}", scale=scale),
        "y": alt.Y("y:Q", title="mean standard deviation, areas", scale=scale),
        "color": alt.Color("areas:N", title="areas"),
    }
    words = list(dict.fromkeys(one.words for one in chosen.found.candidates))
    line = alt.Chart(pd.DataFrame(rows(chosen.otherwise))).mark_line(strokeWidth=2, opacity=0.6)
    line = line.encode(**axes, order=alt.Order("number:Q"))  # as weights grow
    points = (
        alt.Chart(pd.DataFrame(rows(chosen.found.candidates)))
        .mark_point(filled=True, size=70, stroke=INK, strokeWidth=0.4)
        .encode(**axes, shape=alt.Shape("spine:N", title="spine", scale=alt.Scale(domain=words)))
    )
    title = alt.TitleParams(
        "Spines at one total budget", subtitle="line: the chosen spine, areas weighing more or less", subtitleColor=GREY
    )
    # Text is as wide as the reader's font makes it; leave room on the right.
    room = {"left": 5, "top": 5, "right": 70, "bottom": 5}
    both = alt.layer(line, points).properties(width=420, height=340, title=title, padding=room)
    spec = styled(both, f"mean standard deviation of areas against that of {level}, by spine") | {"background": "white"}
    return str(vl_convert.vegalite_to_svg(spec))


def files_of(path: Path) -> tuple[Path, Path, Path]:
    """The paths of the configuration, the table of areas and the chart for a spine of the configuration at ``path``."""
    return path, path.with_name(f"{path.stem}_areas.parquet"), path.with_name(f"{path.stem}.svg")


def require_place(given: Path, output: Path) -> None:
    """Refuse an ``output`` whose files exist already, or that is in another folder than the configuration ``given``.
    Raises `ConfigError`.
    """
    there = next((one for one in files_of(output) if one.exists()), None)
    if there is not None:
        raise ConfigError(f"{shown_path(there)}: is there already; give another --output")
    if output.absolute().parent != given.absolute().parent:
        raise ConfigError(
            f"{shown_path(output)}: paths in a configuration are those from its folder; give an --output beside "
            f"{shown_path(given)}"
        )


def write(chosen: ChosenSpine, config: RunConfig, given: Path, output: Path) -> None:
    """Write a configuration ``output`` that measures on the spine, otherwise equal to ``given``, and the chart. Raises
    `ConfigError` as `write_spine`.
    """
    spine = chosen.found.best.spine
    tables = {kind: os.path.relpath(path, output.parent).replace(os.sep, "/") for kind, path in chosen.tables.items()}
    own = plan_lines(chosen.found.plan)
    if config.privacy.accept_no_protection:
        own.insert(1, "accept_no_protection = true")
    write_spine(given, output, [*spine_section(spine, tables), "", *own], picture=chart(chosen))


def spine_section(spine: Spine, tables: Mapping[str, str], names: Sequence[str] = ()) -> list[str]:
    """The section [geography.spine] of a file for ``spine``, made of the ``tables`` of areas of every kind; ``names``:
    the names of its levels, including the root's and the lowest, where they differ from the default.
    """
    cap = spine.cap if isinstance(spine.cap, int) else text("none" if spine.cap is None else spine.cap)
    return [
        "[geography.spine]",
        "# The tree that noise is measured on, of public facts. Published are the units of [geography], and the areas.",
        f"levels = [{', '.join(map(text, spine.levels))}]",
        *([f"names = [{', '.join(map(text, names))}]"] if names else []),
        f"areas = {{ {', '.join(f'{key(kind)} = {text(path)}' for kind, path in tables.items())} }}",
        f"cap = {cap}",
        *([] if spine.least == 1 else [f"least = {spine.least}"]),
    ]


def write_spine(
    given: Path, output: Path, sections: Sequence[str], table: pa.Table | None = None, picture: str | None = None
) -> None:
    """Write a configuration ``output`` with these ``sections``, otherwise equal to ``given``, and, if given, the public
    ``table`` of areas and the ``picture``.

    Raises `ConfigError` for settings that name unknown levels.
    """
    toml, areas, drawn = files_of(output)
    named = {tuple(header_of(line)) for line in sections if header_of(line)}
    written = "\n".join([_without(given, named), *sections]) + "\n"
    try:
        if table is not None:
            write_parquet(areas, iter(table.combine_chunks().to_batches()), {"software": f"topdown {version_of()}"})
        write_text(toml, written)
        load_config(toml).plan()
        if picture is not None:
            write_text(drawn, picture)
    except BaseException:
        for one in (toml, areas, drawn):
            one.unlink(missing_ok=True)
        raise


def header_of(line: str) -> list[str]:
    """The keys of the header of a section, if ``line`` is one."""
    found = re.match(r"^\s*\[+([^\[\]]+)\]+\s*(#.*)?$", line)
    return [] if found is None else [part.strip(" \t\"'") for part in found.group(1).split(".")]


def _without(given: Path, named: Collection[tuple[str, ...]]) -> str:
    """The configuration ``given`` without the sections that are ``named`` and their subsections."""
    whole = given.read_text(encoding="utf-8-sig")
    settings, kept, ours = tomllib.loads(whole), [], False
    for line in whole.splitlines():
        header = header_of(line)
        if header:
            ours = any(tuple(header[: len(one)]) == one for one in named)
        if not ours:
            kept.append(line)
    for one in named:
        section = settings
        for part in one[:-1]:
            section = section.get(part, {})
        section.pop(one[-1], None)
    found = "\n".join(kept).rstrip() + "\n"
    if settings != tomllib.loads(found):
        sections = " and ".join(f"[{'.'.join(one)}]" for one in sorted(named))
        raise ConfigError(
            f"the sections {sections} of the configuration cannot be told apart from what is around them; give each a "
            "header of its own"
        )
    return found
