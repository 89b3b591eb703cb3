"""Questions to a published release: sums, differences and shares of its units, and of districts, with their margins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.pipeline.assignments import assigned_units
from topdown.release.read import read_measurements
from topdown.uncertainty.regions import Regions, Weights
from topdown.wording import shown, shown_path
from topdown.workload.answer_tables import answer_columns

QUERY_COLUMNS = ("region", "query", "cell", "estimate", "sd", "lower", "upper", "note")
_NAMED = 4
"""Regions of no more units are called by these."""


def query_release(
    public: Path,
    *,
    units: Sequence[str] = (),
    districts: Path | None = None,
    query: str = "total",
    cells: Sequence[str] = (),
    minus: Sequence[str] = (),
    share_of: str | None = None,
    confidence: float = 0.9,
) -> pd.DataFrame:
    """One row per region and cell, as `QUERY_COLUMNS`: of the sum of ``units``, and of every district of ``districts``.
    ``region`` says in full what the number is of: "48+06 - 36", "01 of US".

    ``districts``: a table whose first column holds units and whose second the districts to which they are assigned, as
    block assignment files have them. ``share_of``: units separated by commas, or a query. Raises `ConfigError` and
    `DataError` as `td.region` does, and where neither units nor districts are given.
    """
    asked = dict(_asked(units, districts))
    regions = Regions(read_measurements(public).measurements)
    rows = []
    less = f" - {_named(minus)}" if minus else ""
    part = "" if share_of is None else f" of {_named(share_of.split(','))}"
    for name, weights in asked.items():
        for cell in cells or (None,):
            found = regions.region(
                weights,
                query=query,
                cell=cell,
                minus=_each_once(minus) if minus else None,
                share_of=_whole(share_of, regions),
                confidence=confidence,
            )
            twice = _counted_twice(weights, regions.measurements.geography)
            if twice and not found.note:
                found = found._replace(note=twice)
            rows.append((f"{name}{less}{part}", query, cell if cell is not None else query, *found))
    return pd.DataFrame(rows, columns=list(QUERY_COLUMNS))


def _asked(units: Sequence[str], districts: Path | None) -> Iterator[tuple[str, Weights]]:
    if not units and districts is None:
        raise ConfigError("nothing is asked: give units with --sum, or a table of units and districts with --regions")
    if units:
        yield _named(units), _each_once(units)
    if districts is not None:
        yield from _assigned(districts)


def _named(units: Sequence[str]) -> str:
    """The units added up, or how many there are."""
    return "+".join(units) if len(units) <= _NAMED else f"{len(units):,} units"


def _each_once(units: Sequence[str]) -> dict[str, float]:
    if len(set(units)) < len(units):
        repeated = next(unit for unit in units if units.count(unit) > 1)
        raise ConfigError(f"unit {shown(repeated)} is given twice; give it once")
    return dict.fromkeys(units, 1.0)


def _counted_twice(weights: Weights, geography: Geography) -> str:
    """Which unit lies in another one of the same sum, in words; empty where none does."""
    nodes = geography.index_of(list(weights))
    if len(np.unique(np.searchsorted(geography.level_offsets, nodes, side="right"))) < 2:
        return ""
    above, parent = nodes, geography.tree.parent
    for _ in range(len(geography.levels) - 1):
        above = np.where(above > 0, parent[above], -1)
        inside = np.flatnonzero(np.isin(above, nodes))
        if len(inside):
            unit, within = nodes[inside[0]], above[inside[0]]
            names = (shown(str(geography.identifiers[int(node)])) for node in (unit, within))
            return "unit {} lies in {}, and counts twice".format(*names)
    return ""


def _assigned(path: Path) -> Iterator[tuple[str, Weights]]:
    """The districts of an assignment, in the order of their names. A unit without a district is in none."""
    frame = assigned_units(path)
    if not (frame["district"] != "").any():
        raise DataError(f"{shown_path(path)}: has no unit with a district; give a row for every unit")
    for district, members in frame[frame["district"] != ""].groupby("district", sort=True)["unit"]:
        yield str(district), dict.fromkeys(members.tolist(), 1.0)


def _whole(share_of: str | None, regions: Regions) -> Weights | str | None:
    """What a share is of: a query that the release knows, or else units."""
    if share_of is None:
        return None
    try:
        answer_columns(share_of, regions.measurements.schema)
        return share_of
    except ConfigError:
        return _each_once(share_of.split(","))
