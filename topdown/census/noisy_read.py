"""Reads the Census Bureau's noisy measurement files as a geography, measurements and limits. These files have only
public numbers. Every unit of a level has constraints, and measurements unless it is its parent's only child: then the
parent was measured in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topdown.census.layouts import noisy_layout as layout
from topdown.census.layouts.noisy_partitions import Partition, chosen_parts, partitions
from topdown.census.noisy_plan import with_plan
from topdown.census.noisy_tables import NoisyTables
from topdown.census.spine import spine_geography
from topdown.errors import ConfigError, DataError, require_known
from topdown.geography.geography import Geography
from topdown.machine.memory import gibibytes, most_at_once
from topdown.measurements.measurements import Measurements
from topdown.projection.limits import AnswerLimits
from topdown.wording import listed, shown, shown_path
from topdown.workload import Query
from topdown.workload.redistricting import SPINE, spine_level


class NoisyMeasurements(NamedTuple):
    """What noisy measurement files say.

    Attributes:
        geography: the units.
        measurements: the noisy answers at these units, with their variances.
        limits: bounds that the true answers keep, None where the files state none.
        files: the files that were read, sorted.

    Examples:
        >>> noisy = td.read_noisy_measurements("nmf", state="44")
        >>> noisy._fields
        ('geography', 'measurements', 'limits', 'files')
    """

    geography: Geography
    measurements: Measurements
    limits: AnswerLimits | None
    files: tuple[Path, ...]


def read_noisy_measurements(
    root: str | Path,
    product: str = "pl94-persons",
    state: str | None = None,
    levels: Iterable[str] | None = None,
    *,
    total: int | None = None,
    incomplete: bool = False,
) -> NoisyMeasurements:
    """The noisy measurement files in the folder ``root``: geography, measurements and limits.

    Units have the spine's codes; a block's last 16 characters are its GEOID with the block group twice, and the
    names of states, counties and blocks are GEOIDs. A state of two parts has a level "whole state" above them.

    Values are whole numbers as they were drawn, negative ones too, variances those of the rows; 0 where a constraint
    gives the answer, inf where a unit was not measured. Where all variances are those of a production run,
    `Measurements.plan` is that run's, else None, unless Topdown wrote the files.

    Args:
        root: the folder that holds the product's (such as US_Person_PL_PROD), or that one itself.
        product: one of `topdown.census.layouts.noisy_layout.PRODUCTS`.
        state: two digits; three, as the files have them, for its AIAN part ("144") or the rest ("044") alone;
            without, the nation.
        levels: us, state, county, tract, block group and block, from the first down and none left out; by default
            all from the state (or the nation) down.
        total: of the root, where it was published exactly elsewhere, as those of states were; it replaces the measured
            one.
        incomplete: whether to read files in which measurements are missing; they are then inf.

    Raises `ConfigError` for an unknown product, state or level, `DataError` naming the partition that is missing,
    damaged or incomplete, with the unit and the query at fault.

    Examples:
        >>> noisy = td.read_noisy_measurements("nmf", state="44")
        >>> noisy.geography.levels
        ('whole state', 'state', 'county', 'tract', 'block group', 'block')
    """
    require_known(product, layout.PRODUCTS, "product")
    if state is not None and not (isinstance(state, str) and state.isdecimal() and len(state) in (2, 3)):
        raise ConfigError(f"state is {shown(state)}; give its two digits as text, such as '44'")
    kind = layout.PRODUCTS[product]
    top = _top(Path(root), kind, state)
    asked = _levels(levels, state, kind, top)
    files = _Files.of(kind, top, asked, state)
    geography = spine_geography(files.codes(), state)
    _require_room(files.top, geography, kind)
    tables = NoisyTables.empty(geography, kind)
    for level in asked:
        for partition in files.of_level(level):
            for rows in partition.rows():
                tables.take(level, partition, rows)
    own = files.own()
    if own is None and not incomplete:
        files.require_complete(tables)
    if total is not None:
        if own is not None:
            raise ConfigError(
                "total is for files of which it is not known; what Topdown wrote holds it, if it is exact"
            )
        tables.hold_total(total)
    measurements = with_plan(tables.measurements(), kind, layout.run_of((state or "")[-2:]), own)
    limits = tables.limits(measurements.geography)
    return NoisyMeasurements(measurements.geography, measurements, limits, files.paths())


def _require_room(top: Path, geography: Geography, product: layout.Product) -> None:
    """Refuse values that do not fit into the memory; beside those of the cells the other queries have a third."""
    size, most = 8 * geography.n_nodes * product.schema.n_cells * 4 // 3, most_at_once()
    if most is not None and size > most:
        raise DataError(
            f"{shown_path(top)}: the values of {geography.n_nodes:,} units take {gibibytes(size)}, more than the "
            f"{gibibytes(most)} that can be given to them here; read one state, or fewer levels"
        )


def _levels(levels: Iterable[str] | None, state: str | None, product: layout.Product, top: Path) -> tuple[str, ...]:
    """The levels to read, as the spine calls them; all, or all that there were when Topdown wrote the files."""
    first = 0 if state is None else 1
    asked = SPINE[first:] if levels is None else tuple(spine_level(str(level)) for level in levels)
    if levels is None:
        there = partitions(product, top, SPINE[first], layout.CONSTRAINED)
        written = next((own["levels"] for one in there.values() if (own := one.own())), None)
        asked = tuple(level for level in asked if written is None or layout.LEVELS[level] in written)
    if not asked or asked != SPINE[first : first + len(asked)]:
        raise ConfigError(
            f"levels are {listed(asked)}; give some of {listed(SPINE[first:])}, from the first down and none left out"
            + ("" if state else ", or a state")
        )
    return asked


def _top(root: Path, product: layout.Product, state: str | None) -> Path:
    """The product's folder."""
    name = product.folder.format(layout.run_of((state or "")[-2:]))
    found = root if root.name == name else root / name
    if not found.is_dir():
        raise DataError(f"{shown_path(root)}: has no folder {name}, in which {product.name} are; give the one that has")
    return found


@dataclass(frozen=True)
class _Files:
    """The partitions of the product's folder ``top`` that are read, by level and part."""

    top: Path
    measured: Mapping[str, Mapping[str, Partition]]
    constrained: Mapping[str, Mapping[str, Partition]]

    @classmethod
    def of(cls, product: layout.Product, top: Path, levels: Sequence[str], state: str | None) -> _Files:
        """Raises `DataError` naming a partition of constraints that is not there."""
        measured, constrained = {}, {}
        parts: list[str] = []
        for level in levels:
            there = partitions(product, top, level, layout.CONSTRAINED)
            known = chosen_parts(list(there), state)
            parts = parts or [part for part in known if part]
            for part in [""] if level == "us" else parts or [f"0{state}" if state and len(state) == 2 else state or ""]:
                if part not in there:
                    folder = top / layout.level_folder(level) / layout.CONSTRAINED
                    raise DataError(
                        f"{shown_path(folder / layout.partition(part))}: is missing; it lists "
                        f"the units of level {shown(level)}: fetch it"
                    )
            if level == "state" and state is None:
                parts = list(there)
            constrained[level] = {part: there[part] for part in known}
            found = partitions(product, top, level, layout.MEASURED)
            measured[level] = {part: found[part] for part in chosen_parts(list(found), state)}
        return cls(top, measured, constrained)

    def of_level(self, level: str) -> list[Partition]:
        """The partitions of a level, of both kinds."""
        return [*self.measured[level].values(), *self.constrained[level].values()]

    def every(self) -> list[Partition]:
        """All partitions."""
        return [partition for level in self.constrained for partition in self.of_level(level)]

    def own(self) -> dict[str, Any] | None:
        """Topdown's metadata; None for files of other programs. Raises `DataError` naming a partition with other
        metadata than the first.
        """
        said = [(one, one.own() or None) for one in self.every()]
        first, own = said[0]
        other = next((one for one, found in said if found != own), None)
        if other is not None:
            raise DataError(f"{other}: is of other measurements than {first}; put those of one export together")
        if own is not None:
            self._require_rows(own.get("rows"))
        return own

    def _require_rows(self, rows: Any) -> None:
        """Refuse partitions that lack rows which Topdown wrote; the first versions did not record their number."""
        there = {layout.place(level, one.kind, layout.partition(one.part)): one
                 for level in self.constrained for one in self.of_level(level)}  # fmt: skip
        parts = {one.part for one in there.values()}
        levels = {layout.level_folder(level) for level in self.constrained}
        for place, number in (rows if isinstance(rows, dict) else {}).items():
            level, _, part = (*str(place).split("/"), "")[:3]
            if level not in levels or part.removeprefix("State=") not in parts:
                continue
            has = there[place].n_rows() if place in there else 0
            if has != number:
                raise DataError(
                    f"{shown_path(self.top / place)}: has {has:,} of the {shown(number)} rows that were written; "
                    "export it again"
                )

    def paths(self) -> tuple[Path, ...]:
        """The files of all partitions, sorted."""
        return tuple(sorted(path for one in self.every() for path in one.files))

    def codes(self) -> dict[str, pa.Array]:
        """The codes of every level's units."""
        return {
            level: pa.concat_arrays([partition.codes() for partition in parts.values()])
            for level, parts in self.constrained.items()
        }

    def require_complete(self, tables: NoisyTables) -> None:
        """Refuse measurements that are missing of a unit that is not its parent's only child."""
        geography = tables.geography
        for level in self.constrained:
            nodes = geography.level_slice(level)
            made = {
                query: np.isfinite(one.variance)
                for (at, query), one in tables.measured.items() if at == level
            }  # fmt: skip
            some = np.any(list(made.values()), axis=0) if made else np.zeros(nodes.stop - nodes.start, np.bool_)
            missing = np.flatnonzero(~some & ~_only_children(geography, nodes))
            for query, has in made.items():
                missing = missing if len(missing) else np.flatnonzero(some & ~has)
                if len(missing):
                    node = nodes.start + int(missing[0])
                    self._refuse(geography, level, node, len(missing), query if some[missing[0]] else None)
            if len(missing):
                self._refuse(geography, level, nodes.start + int(missing[0]), len(missing), None)

    def _refuse(self, geography: Geography, level: str, node: int, count: int, query: Query | None) -> None:
        part = "" if level == "us" else geography.identifiers[node].as_py()[:3]
        folder = self.top / layout.level_folder(level) / layout.MEASURED
        place = shown_path(folder / layout.partition(part))
        if part not in self.measured[level]:
            units = f"{count:,} unit{'' if count == 1 else 's'}"
            raise DataError(f"{place}: is missing; it should have {units} of level {shown(level)}: fetch it")
        asked = "measurements" if query is None else f"measurement of {shown(query.name)}"
        raise DataError(
            f"{place}: is incomplete: {geography.describe(node)} has no {asked}"
            + (f", nor have {count - 1:,} more" if count > 1 else "")
            + "; fetch it again, or read it with incomplete=True"
        )


def _only_children(geography: Geography, nodes: slice) -> npt.NDArray[np.bool_]:
    if nodes.start == 0:
        return np.zeros(1, np.bool_)
    parent = geography.parent[nodes]
    return np.asarray(np.bincount(parent)[parent] == 1)
