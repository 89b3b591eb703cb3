"""Assignments of units to districts: block assignment files, as the Census Bureau and mapping programs write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from topdown.errors import ConfigError, DataError
from topdown.geography.construction import as_text
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.tables.readers import read_table, separated, table_columns
from topdown.wording import column_names, joined, shown, shown_path

Given = str | Path | Mapping[str, str]
"""A file, or the district of every unit."""


class Assignment(NamedTuple):
    """Which district every unit of one ``level`` is in: the ``districts`` by name and the ``nodes`` of each, the nodes
    of the level that are ``unassigned``, and how many units of the file are ``unknown`` to the release.
    """

    name: str
    level: str
    districts: tuple[str, ...]
    nodes: tuple[IntArray, ...]
    unassigned: IntArray
    unknown: int

    def notes(self, n_units: int) -> list[str]:
        """What has to be known of it, in sentences; ``n_units``: how many the level has."""
        found = []
        if len(self.unassigned):
            found.append(
                f"{self.name}: {len(self.unassigned):,} of {n_units:,} units of level {shown(self.level)} are assigned "
                "to no district; their sum is the row without a region"
            )
        if self.unknown:
            found.append(f"{self.name}: units that are not in the release and were left out: {self.unknown:,}")
        return found


def assigned_units(path: Path, district: Sequence[str] = ()) -> pd.DataFrame:
    """The columns ``unit`` and ``district`` of an assignment: of the first column, and of the second, or of a table of
    more columns those called ``district``, joined. Units without a district have "".

    Text may be separated by "|", commas, tabs or semicolons. Raises `DataError` for a table of one column, of more than
    two where none is named, and for a unit that is given twice.
    """
    form = separated(path)
    columns = table_columns(path, form)
    # Files of two columns leave no choice, whatever the others are told.
    wanted = list(district) if district and len(columns) > 2 else columns[1:2]
    if len(columns) < 2:
        raise DataError(f"{shown_path(path)}: has one column; give units in the first and districts in the second")
    if len(columns) > 2 and not district:
        raise DataError(
            f"{shown_path(path)}: has {column_names(columns)}, and which of them says the district is not clear; name "
            "it with --district, or several that do so together, such as --district COUNTYFP --district DISTRICT"
        )
    table = read_table(path, [columns[0], *wanted], form=form)
    unit, *parts = (as_text(table[name], f"{shown_path(path)}: column {shown(name)}") for name in [columns[0], *wanted])
    named = _stripped(parts[0].to_pandas())
    for part in parts[1:]:
        named = named + _stripped(part.to_pandas())
    found = pd.DataFrame({"unit": _stripped(unit.to_pandas()), "district": named})
    repeated = found["unit"].duplicated().to_numpy()
    if repeated.any():
        unit = str(found["unit"].iloc[int(np.argmax(repeated))])
        raise DataError(f"{shown_path(path)}: unit {shown(unit)} is assigned twice; assign every unit once")
    return found


def _stripped(column: pd.Series[str]) -> pd.Series[str]:
    return column.astype(object).where(column.notna(), "").astype(str).str.strip()


def assignment(
    name: str, given: Given, geography: Geography, *, district: Sequence[str] = (), skip_unknown: bool = False
) -> Assignment:
    """The assignment ``given`` of units of one level of ``geography``; a unit without a district is unassigned.

    Raises `DataError` as `assigned_units`, and naming one for units that are not in the geography, unless
    ``skip_unknown``, and for units of several levels.
    """
    if isinstance(given, Mapping):
        frame = pd.DataFrame({"unit": list(given), "district": list(given.values())}, dtype=object)
        frame["district"] = _stripped(frame["district"])
        where = f"assignment {shown(name)}"
    else:
        frame = assigned_units(Path(given), district)
        where = shown_path(Path(given))
    nodes = geography.index_of(frame["unit"].tolist()) if len(frame) else np.empty(0, np.int64)
    missing = nodes < 0
    if missing.all() or (missing.any() and not skip_unknown):
        if not len(frame):
            raise DataError(f"{where}: has no units; give a row for every unit")
        unit = shown(str(frame["unit"].iloc[int(np.argmax(missing))]))
        if missing.all():
            raise DataError(
                f"{where}: none of its units, such as {unit}, is in the release; give its GEOIDs, as text with their "
                "leading zeros"
            )
        raise DataError(
            f"{where}: {int(missing.sum()):,} of {len(frame):,} units are not in the release, such as {unit}; correct "
            "the file, or leave them out by --skip-unknown"
        )
    kept, districts = nodes[~missing], frame["district"].to_numpy(dtype=object)[~missing]
    levels = np.searchsorted(geography.level_offsets, kept, side="right") - 1
    if (levels != levels[0]).any():
        among = joined([geography.levels[k] for k in np.unique(levels)])
        raise DataError(f"{where}: its units are of several levels ({among}); assign those of one level")
    level = geography.levels[int(levels[0])]
    has = districts != ""
    names, place = np.unique(districts[has].astype(str), return_inverse=True)
    order = np.argsort(place, kind="stable")
    cuts = np.searchsorted(place[order], np.arange(1, len(names)))
    members = np.split(kept[has][order], cuts) if len(names) else []
    part = geography.level_slice(level)
    rest = np.setdiff1d(np.arange(part.start, part.stop), kept[has])
    return Assignment(name, level, tuple(map(str, names)), tuple(members), rest, int(missing.sum()))


def assignments(
    given: str | Path | Sequence[str | Path] | Mapping[str, Given],
    geography: Geography,
    *,
    district: Sequence[str] = (),
    skip_unknown: bool = False,
) -> list[Assignment]:
    """One `assignment` or several, by their names; files are called as they are without their suffix.

    Raises `ConfigError` where none is given, or two would be called alike.
    """
    if isinstance(given, Mapping):
        named = list(given.items())
    else:
        files = [given] if isinstance(given, str | Path) else list(given)
        named = [(Path(one).name.split(".")[0], one) for one in files]
    if not named:
        raise ConfigError("no assignment is given; name at least one file of units and their districts")
    names = [name for name, _ in named]
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise ConfigError(f"two assignments are called {shown(twice)}; rename one of the files")
    return [assignment(name, one, geography, district=district, skip_unknown=skip_unknown) for name, one in named]
