"""Reads the decisions of a study: funds, thresholds and rules, with the columns and areas that rules name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.config.study_settings import RuleOptions, StudyConfig, ThresholdOptions
from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.labels import as_text
from topdown.geography.tree import FloatArray
from topdown.studies.decisions.expression_rules import Areas, Rule
from topdown.studies.decisions.expressions import Expression
from topdown.studies.decisions.rule_presets import preset_rules, what_a_preset_asks_for
from topdown.studies.decisions.rules import FundShare, Level, Threshold
from topdown.studies.followed import Followed
from topdown.tables.assignments import assignment
from topdown.tables.readers import read_table, separated, table_columns
from topdown.wording import listed, shown, shown_path


def read_fund(config: StudyConfig, followed: Followed) -> FundShare:
    """The fund that is allocated in proportion to a cell. Raises `ConfigError` for an unknown cell."""
    named = config.study.fund
    if named is None:
        return FundShare(None if followed.are_cells else followed.labels[0])
    return FundShare(followed.answer(named, "study.fund"))


def read_thresholds(config: StudyConfig, geography: Geography, followed: Followed) -> list[Threshold]:
    """The thresholds; their cells may be written in any way that `Followed.answer` accepts. Raises `ConfigError` for an
    unknown cell or level.
    """
    return [_threshold(one, geography, followed) for one in config.study.thresholds]


def _threshold(one: ThresholdOptions, geography: Geography, followed: Followed) -> Threshold:
    cell, *others = (followed.answer(name, "study.thresholds") for name in (one.cell, *one.among, *one.per))
    among, per = tuple(others[: len(one.among)]), tuple(others[len(one.among) :])
    return Threshold(cell, one.cutoff, among, per, _level(geography, one.level, "study.thresholds"))


def _level(geography: Geography, name: str | None, where: str) -> Level | None:
    if name is None:
        return None
    try:
        return Level.of(geography, name)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def read_rules(config: StudyConfig, geography: Geography, followed: Followed) -> list[Rule]:
    """The rules of ``study.rules``. Each is tried on zeros in the shape of the counts, so that it does not fail later.

    Raises `ConfigError` for names that are neither cells, sums nor columns, for two rules with one name, and
    `DataError` for columns and areas that do not fit the units.
    """
    found: list[Rule] = []
    for number, options in enumerate(config.study.rules, 1):
        where = f"study.rules, number {number}"
        found += _rules(config.folder, options, geography, followed, where)
    names = [rule.label for rule in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"study.rules: {listed(twice)} is there twice; give every rule a name of its own")
    return found


def _rules(folder: Path, options: RuleOptions, geography: Geography, followed: Followed, where: str) -> list[Rule]:
    level = _level(geography, options.level, where)
    areas = None if options.areas is None else _areas(folder / options.areas, geography)
    given: dict[str, Any] = {
        "level": level,
        "areas": areas,
        "sums": {
            name: tuple(followed.answer(cell, f"{where}: sums") for cell in cells)
            for name, cells in options.sums.items()
        },
        "columns": {} if options.columns is None else _columns(folder / options.columns, geography, level, areas),
    }
    if options.total is not None:
        given["columns"]["total"] = np.array([options.total])
    given |= {name: value for name in ("seats", "least") if (value := getattr(options, name)) is not None}
    written = {"floor": options.floor_expression, "ceiling": options.ceiling}
    own = {name: getattr(options, name) for name in ("eligible", "amount", "figure")}
    given["sums"] |= _typed([*own.values(), *written.values()], followed, {*given["sums"], *given["columns"]})
    try:
        if options.preset is not None:
            rules = preset_rules(options.preset, options.name, **given, **{k: v for k, v in written.items() if v})
        else:
            rules = [Rule(**{"name": options.name, **given, **own, **written})]
        tree = geography.tree
        zeros = np.zeros((len(followed.labels), tree.n_nodes))
        for rule in rules:
            rule.outcome(zeros, followed.labels, tree)
    except ConfigError as error:
        asked = "" if options.preset is None else f"; the preset needs {what_a_preset_asks_for(options.preset)}"
        raise ConfigError(f"{where}: {error}{asked}") from None
    except TypeError:
        raise ConfigError(
            f'{where}: seats is of the preset "seats", and least of "suppression"; leave them out'
        ) from None
    return rules


def _typed(texts: Iterable[str], followed: Followed, known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Names in expressions that stand for an answer but are written differently, as sums of that answer."""
    names = {name for text in texts if text for name in Expression.parse(text).names}
    found: dict[str, tuple[str, ...]] = {}
    for name in names.difference(known, followed.labels):
        # An unknown answer is refused when the rule is tried, with the list of all answers.
        with suppress(ConfigError):
            found[name] = (followed.answer(name, "study.rules"),)
    return found


def _areas(path: Path, geography: Geography) -> Areas:
    """The areas of the lowest level's units in an assignment file."""
    assigned = assignment(path.stem, path, geography)
    if assigned.level != geography.levels[-1]:
        raise DataError(
            f"{shown_path(path)}: assigns units of level {shown(assigned.level)}; give those of the lowest, "
            f"{shown(geography.levels[-1])}"
        )
    code = np.full(geography.n_leaves, -1, np.int64)
    for number, nodes in enumerate(assigned.nodes):
        code[nodes - geography.tree.leaves.start] = number
    return Areas(assigned.districts, code)


def _columns(path: Path, geography: Geography, level: Level | None, areas: Areas | None) -> dict[str, FloatArray]:
    """The numbers of every unit or area in the columns behind the first one, which names it."""
    form = separated(path)
    names = table_columns(path, form)
    if len(names) < 2:
        raise DataError(f"{shown_path(path)}: has one column; give units in the first and numbers in the others")
    table = read_table(path, names, form=form)
    units = as_text(table[names[0]], f"{shown_path(path)}: column {shown(names[0])}").to_pylist()
    if areas is None:
        nodes = geography.level_slice(geography.levels[-1] if level is None else level.name)
        wanted: Sequence[str] = geography.identifiers[nodes.start : nodes.stop].to_pylist()
    else:
        wanted = areas.names
    place = {unit: row for row, unit in enumerate(units)}
    missing = next((unit for unit in wanted if unit not in place), None)
    if missing is not None or len(place) != len(units):
        said = f"has no row for {shown(missing)}" if missing is not None else "names a unit twice"
        raise DataError(f"{shown_path(path)}: {said}; give one row for each of the {len(wanted):,} units of the rule")
    rows = [place[unit] for unit in wanted]
    found = {}
    for name in names[1:]:
        try:
            values = pc.cast(table[name], pa.float64()).to_numpy(zero_copy_only=False)[rows]
        except pa.ArrowException:
            values = np.array([np.nan])
        if not np.isfinite(values).all():
            raise DataError(f"{shown_path(path)}: column {shown(name)} is not all numbers; give one for every unit")
        found[name] = values
    return found
