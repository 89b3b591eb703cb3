"""Questions to a published release: sums, differences and shares of its units, and of districts, with their margins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from topdown.analysis.regions import Regions, Weights, less, nodes_of, require_part
from topdown.analysis.sum_intervals import Region
from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.lookup import units_meant
from topdown.geography.tree import IntArray, runs
from topdown.measurements.measurements import Measurements
from topdown.release.partition import RELEASE
from topdown.release.places import MANIFEST
from topdown.release.read import measurements_of, noise_names
from topdown.release.released_counts import as_described, read_counts
from topdown.release.verified import verify_files
from topdown.release.whole_counts import Release
from topdown.tables.assignments import assigned_units
from topdown.uncertainty.margins import require_confidence
from topdown.wording import listed, shown, shown_path
from topdown.workload import Query
from topdown.workload.answer_tables import Column, answer_column, answer_columns

QUERY_COLUMNS = ("region", "query", "cell", "estimate", "sd", "lower", "upper", "note")
_NAMED = 4
"""A region of no more units is named by listing them."""
_NUMBERS_AT_ONCE = 1 << 22


def is_release(path: Path) -> bool:
    """Whether ``path`` is a release; else `--minus` names units."""
    return any((path / name).is_file() for name in (MANIFEST, f"public/{MANIFEST}"))


def query_release(
    public: Path,
    *,
    units: Sequence[str] = (),
    districts: Path | None = None,
    query: str = "total",
    cells: Sequence[str] = (),
    minus: Sequence[str] = (),
    share_of: str | None = None,
    before: Path | None = None,
    confidence: float = 0.9,
) -> pd.DataFrame:
    """One row per region and cell, with the columns `QUERY_COLUMNS`: the sum of ``units``, and the sum of every
    district of ``districts``. The column ``region`` states what the number is of: "48+06 - 36", "01 of US".

    Units are named by GEOIDs or names, with commas between several in one text (`units_meant`).

    ``districts``: a table whose first column holds units and whose second the districts to which they are assigned, as
    block assignment files have them. ``cells``: by default every answer of ``query``. ``share_of``: units separated by
    commas, or a query. ``before``: the directory of an earlier release, with noise of its own; the change of the sum is
    then given. For units whose measurements a very large release has not kept the estimates are released counts without
    margins, and the note says so. ``attrs`` of the result has as "outside" how many of the smallest units are in no
    district, a sentence that is empty where all are in one. Raises `ConfigError` and `DataError` as `td.region` does,
    and where neither units nor districts are given.
    """
    if before is not None and share_of is not None:
        raise ConfigError("the change of a share has no margin here; ask for the change, or for the two shares")
    now, then = _Opened.of(public), None if before is None else _Opened.of(before)
    if then is not None:
        _require_other_noise(now, then)
    units, minus = (units_meant(some, now.measured.published) for some in (units, minus))
    if not units and districts is None:
        raise ConfigError("no units are given: give them with --sum, or a table of units and districts with --regions")
    assigned = {} if districts is None else dict(_assigned(districts, now.measured.published))
    asked = ({_named(units): _each_once(units)} if units else {}) | assigned
    columns = answer_columns(query, now.measured.schema)
    if len({*cells}) < len(cells):
        raise ConfigError(f"cells {listed(cells)}: name each once")
    names = cells or ([one.name for one in columns] if len(columns) > 1 else (None,))
    rows = []
    less = f" - {_named(minus)}" if minus else ""
    part = "" if share_of is None else f" of {_named(share_of.split(','))}"
    whole = _whole(share_of, now.measured)
    for name, weights in asked.items():
        every = [*weights, *minus, *(() if whole is None or isinstance(whole, str) else whole)]
        why = now.why(every) or (None if then is None else then.why(every))
        for cell in names:
            less_units = _each_once(minus) if minus else None
            asked_for: Any = {"query": query, "cell": cell, "minus": less_units, "confidence": confidence}
            if then is not None:
                found = _change(now.regions(why), then.regions(why), weights, asked_for)
            else:
                found = now.regions(why).region(weights, share_of=whole, **asked_for)
            twice = _counted_twice(weights, now.measured.published)
            if twice and found.note in ("", _note(why)):
                found = found._replace(note="; ".join(filter(None, (found.note, twice))))
            since = "" if before is None else f", change since {before.as_posix()}"
            rows.append((f"{name}{less}{part}{since}", query, cell if cell is not None else query, *found))
    answers = pd.DataFrame(rows, columns=list(QUERY_COLUMNS))
    answers.attrs["outside"] = _outside(assigned.values(), now.measured.published) if assigned else ""
    return answers


@dataclass(frozen=True, eq=False)
class _Released:
    """Sums of the counts of a ``release``, without margins, because its measurements were not kept; ``note``
    says so.
    """

    release: Release
    note: str
    _counts: dict[tuple[Query, int], IntArray] = field(default_factory=dict, repr=False)

    def region(
        self,
        weights: Weights,
        *,
        query: str,
        cell: str | None,
        minus: Weights | None,
        confidence: float,
        share_of: Weights | str | None = None,
    ) -> Region:
        """As `topdown.region`, but of released counts; a share of a whole of 0 is NaN."""
        require_confidence(confidence)
        column, own = answer_column(query, cell, self.release.schema), less(weights, minus)
        found = self._sum(own, column)
        if share_of is not None:
            part, whole = (
                (nodes_of(some, self.release.geography), np.array(list(some.values())))
                for some in (own, own if isinstance(share_of, str) else share_of)
            )
            require_part(part, whole, self.release.geography)
        if isinstance(share_of, str):
            found = _ratio(found, self._sum(own, answer_column(share_of, None, self.release.schema)))
        elif share_of is not None:
            found = _ratio(found, self._sum(share_of, column))
        return Region(found, np.nan, np.nan, np.nan, self.note)

    def _sum(self, weights: Weights, column: Column) -> float:
        nodes = nodes_of(weights, self.release.geography)
        known = self._counts.get((column.query, column.answer))
        if known is None:
            every = runs(slice(0, self.release.geography.n_nodes), max(1, _NUMBERS_AT_ONCE // column.query.n_answers))
            some = [self.release.answers_of(here, column.query)[:, column.answer] for here in every]
            known = self._counts[column.query, column.answer] = np.concatenate(some)
        return float(np.array(list(weights.values())) @ known[nodes])


def _change(
    now: Regions | _Released, then: Regions | _Released, weights: Weights, asked_for: Mapping[str, Any]
) -> Region:
    """The change of a sum between two releases, from the measurements of both or from the counts of both."""
    try:
        if isinstance(now, Regions) and isinstance(then, Regions):
            return now.change(then, weights, **asked_for)
        found = [one.region(weights, **asked_for) for one in (now, then)]
    except (ConfigError, DataError) as error:
        raise type(error)(f"{error} (units and cells of a change are those of both releases)") from None
    return found[0]._replace(estimate=found[0].estimate - found[1].estimate)


def _require_other_noise(now: _Opened, then: _Opened) -> None:
    """Refuse two releases of the same measurements: their difference shows how they were projected, and no change in
    time. Raises `ConfigError`.
    """
    if noise_names(now.manifest) & noise_names(then.manifest):
        raise ConfigError(
            f"{shown_path(then.public)} has the same measurements as {shown_path(now.public)}: a change needs two "
            "releases with independent noise; give the release of another time"
        )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else np.nan


@dataclass(frozen=True, eq=False)
class _Opened:
    """The release in ``public``: its ``manifest``, and the measurements that were kept (``measured``)."""

    public: Path
    manifest: Mapping[str, Any]
    measured: Measurements

    @classmethod
    def of(cls, public: Path) -> _Opened:
        """The release, after making sure that it is complete."""
        manifest = verify_files(public)
        return cls(public, manifest, measurements_of(public, manifest).measurements)

    def why(self, units: Sequence[str]) -> str | None:
        """Why one of ``units`` has no margin; None where all have one."""
        geography = self.measured.published
        nodes = geography.index_of(list(units))
        levels = np.searchsorted(geography.level_offsets, nodes[nodes >= 0], side="right") - 1
        return self.measured.reason_against({geography.levels[int(level)] for level in levels})

    def regions(self, why: str | None) -> Regions | _Released:
        """Regions of its measurements; of its counts where ``why`` says that there are no margins."""
        return self._known if why is None else _Released(self._counts, _note(why))

    @cached_property
    def _known(self) -> Regions:
        return Regions(self.measured.kept)

    @cached_property
    def _counts(self) -> Release:
        with as_described(self.public / RELEASE):
            return read_counts(self.public, self.manifest)


def _note(why: str | None) -> str:
    return "" if why is None else f"released count, no margin: {why}"


def _named(units: Sequence[str]) -> str:
    """The units joined by "+", or how many there are."""
    return "+".join(units) if len(units) <= _NAMED else f"{len(units):,} units"


def _each_once(units: Sequence[str]) -> dict[str, float]:
    if len(set(units)) < len(units):
        repeated = next(unit for unit in units if units.count(unit) > 1)
        raise ConfigError(f"unit {shown(repeated)} is given twice; give it once")
    return dict.fromkeys(units, 1.0)


def _counted_twice(weights: Weights, geography: Geography) -> str:
    """A note on a unit that lies in another unit of the same sum; empty where none does."""
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
            return "unit {} lies in {} and is counted twice".format(*names)
    return ""


def _assigned(path: Path, geography: Geography) -> Iterator[tuple[str, Weights]]:
    """The districts of an assignment, in the order of their names. A unit without a district is in none."""
    units, districts = map(pa.Array.to_pylist, assigned_units(path, geography))
    frame = pd.DataFrame({"unit": units, "district": districts})
    if not (frame["district"] != "").any():
        raise DataError(f"{shown_path(path)}: has no unit with a district; give a row for every unit")
    for district, members in frame[frame["district"] != ""].groupby("district", sort=True)["unit"]:
        yield str(district), dict.fromkeys(members.tolist(), 1.0)


def _outside(districts: Iterable[Weights], geography: Geography) -> str:
    """How many of the smallest units lie in none of ``districts``, which may have units of any level."""
    inside, tree = np.zeros(geography.n_nodes, bool), geography.tree
    for members in districts:
        inside[geography.index_of(list(members))] = True
    for level in geography.levels[1:]:
        nodes = geography.level_slice(level)
        inside[nodes] |= inside[tree.parent[nodes]]
    among = inside[tree.leaves.start :]
    if among.all():
        return ""
    return f"{np.sum(~among):,} of {len(among):,} units of level {shown(geography.levels[-1])} are in no district"


def _whole(share_of: str | None, regions: Measurements) -> Weights | str | None:
    """What a share is of: a query that the release knows, or else units."""
    if share_of is None:
        return None
    try:
        answer_columns(share_of, regions.schema)
        return share_of
    except ConfigError:
        return _each_once(units_meant([share_of], regions.published))
