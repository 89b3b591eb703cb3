"""The spine of the 2020 production run for the units of a configuration with one of its presets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from topdown.census.off_spine import (
    COLUMNS_OFF_SPINE,
    SCHOOL_COLUMNS,
    STATUS_COLUMNS,
    off_dhc_spine,
    off_spine,
)
from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.geography.labels import as_text
from topdown.machine.progress import Stages
from topdown.pipeline.chosen_spine import files_of, require_public, spine_section, write_spine
from topdown.pipeline.input.unit_reading import identifier_columns, listed_units
from topdown.planning.plan_toml import key, text
from topdown.planning.spines import AND, SQRT, Spine
from topdown.privacy.plan import MOVE_UP
from topdown.privacy.presets import preset
from topdown.tables.assignments import areas_of
from topdown.tables.readers import read_table, table_columns
from topdown.wording import listed, shown
from topdown.workload.redistricting import SPINE, WHOLE_STATE, spine_level


class _Layout(NamedTuple):
    """The spine of a product. ``levels``: those below whole states, each with the kinds of area that divide its units.
    ``optional``: columns that a list of units may have beside `COLUMNS_OFF_SPINE`, each with what does not divide units
    without it."""

    levels: Mapping[str, tuple[str, ...]]
    optional: Mapping[str, str]


_REDISTRICTING = _Layout(
    {
        "state": ("part", "state"),
        "county": ("part", "county"),
        "tract": ("part", "tract"),
        "block group": ("part", "aian", "place", "tract"),
    },
    {},
)
_DHC = _Layout(
    {
        "state": ("part", "state"),
        "county": ("part", "county"),
        "prim": ("mcd_place", "county"),
        "tract subset group": ("tract_group", "county"),
        "tract subset": ("mcd_place", "tract"),
        "block group": ("aian", "school", "block group"),
    },
    dict.fromkeys(SCHOOL_COLUMNS, "school districts")
    | dict.fromkeys(STATUS_COLUMNS, "which subdivisions govern and which places are incorporated"),
)


class ProductionSpine(NamedTuple):
    """A ``spine``, with the ``names`` of its levels, root and lowest included. ``table``: the public areas of every
    lowest unit, a column for each kind. ``sizes``: the number of units of each level. ``missing``: what divides the
    units of production's spine, and not of this one."""

    spine: Spine
    names: list[str]
    table: pa.Table
    sizes: list[int]
    missing: list[str]


def production_spine(config: RunConfig, stages: Stages) -> ProductionSpine:
    """The spine of the product whose preset ``config`` has.

    Its last level is cut into groups of at most sqrt(blocks of the unit above) + 12. Of the redistricting file: every
    state in its part in American Indian, Alaska Native and Hawaiian areas and the rest, with counties and tracts in it,
    and groups of a tract's blocks in one such area and one place, or county subdivision where these govern. Of the DHC:
    parts of states and counties, a county's pieces of subdivision and place (`off_dhc_spine`), groups of the tracts in
    these, the tracts in these, and groups of their blocks in one such area, the same school districts and one census
    block group. Kinds of group quarters, which divide production's groups too, are in no column.

    Raises `ConfigError` where units are not public or have other levels, `DataError` where the list of units lacks one
    of the columns AIANNHCE, COUSUBFP and PLACEFP, or a code in them.
    """
    require_public(config, [])
    assert config.units_path is not None  # nosec B101 # narrows a type: what is not public was refused
    shares = preset(str(config.privacy.preset)).shares
    layout = next(one for one in (_REDISTRICTING, _DHC) if shares.keys() <= {SPINE[0], *one.levels, SPINE[-1]})
    lowest = identifier_columns(config)[-1]
    with stages.stage("reading the units"):
        geography = listed_units(config.units_path, config, stages)
        there = [name for name in table_columns(config.units_path) if name in layout.optional]
        columns = read_table(config.units_path, [lowest, *COLUMNS_OFF_SPINE, *there])
    called = {spine_level(level): level for level in geography.levels}
    if tuple(called) not in (SPINE, SPINE[1:]) or lowest != geography.levels[-1]:
        raise ConfigError(
            f"the levels are {listed(geography.levels)} and the column of codes is {shown(lowest)}; production's "
            f"spine is for {listed(SPINE)}, from the nation or a state down, called so"
        )
    texts = {name: as_text(columns[name], f"column {shown(name)}").to_pylist() for name in columns.column_names}
    blocks = texts.pop(lowest)
    upper = [geography.levels[0]] if len(called) == len(SPINE) else []
    with stages.stage("building the spine"):
        found = off_spine(blocks, texts)
        facts = found._asdict() | (off_dhc_spine(blocks, texts, found.part)._asdict() if layout is _DHC else {})
        known = {kind: of for kind, of in facts.items() if of}
        parts = [[called.get(one, one) for one in told if one in known | called] for told in layout.levels.values()]
        spine = Spine([*([called["state"]] if upper else []), *map(AND.join, parts)], SQRT)
        sizes = np.diff(spine.geography(geography, areas_of(known, geography)).level_offsets).tolist()
    names = [*upper, WHOLE_STATE, *layout.levels, SPINE[-1]]
    table = pa.table({lowest: blocks} | {kind: [of.get(block) for block in blocks] for kind, of in known.items()})
    missing = ["kinds of group quarters", *(words for name, words in layout.optional.items() if name not in there)]
    return ProductionSpine(spine, names, table, sizes, [*dict.fromkeys(missing)])


def spine_lines(found: ProductionSpine) -> Iterator[str]:
    """The spine in words: its levels, and what it lacks."""
    units = (f"{number:,} {level}" for number, level in zip(found.sizes, found.names, strict=True))
    yield "spine     of the 2020 production run: " + " > ".join(units)
    yield f"          without what the list of units does not have: {'; '.join(found.missing)}"


def write_production(found: ProductionSpine, config: RunConfig, given: Path, output: Path) -> None:
    """Write the table of areas and the configuration ``output``, in which all else is as in ``given``. Invariants of
    states become invariants of whole states, not of their parts, as in production. Raises `ConfigError` as
    `write_spine`."""
    exact = config.privacy.invariants
    by_level = {level: ["detailed"] for level in exact} if isinstance(exact, list) else exact
    lines = ["[privacy]", f"preset = {text(str(config.privacy.preset))}", f"only_child = {text(MOVE_UP)}"]
    if config.privacy.accept_no_protection:
        lines.append("accept_no_protection = true")
    if by_level:
        lines += ["", "[privacy.invariants]"]
    for level, queries in by_level.items():
        own = WHOLE_STATE if spine_level(level) == "state" else spine_level(level)
        lines.append(f"{key(own)} = [{', '.join(map(text, queries))}]")
    tables = dict.fromkeys(found.table.column_names[1:], files_of(output)[1].name)
    write_spine(given, output, [*spine_section(found.spine, tables, found.names), "", *lines], found.table)
