"""A release and its measurements in the files of its parts. Each file is read when its numbers are needed, a few at a
time.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray, Tree
from topdown.geography.unit_sums import SpineGeography, UnitSums, published_sums
from topdown.machine.arrays import narrow
from topdown.machine.files import file_digest
from topdown.measurements.filed_values import FiledValues
from topdown.measurements.measurements import Answers, Measurements, none_measured
from topdown.pipeline.parts.array_steps import Arrays
from topdown.pipeline.parts.part_job import Folder, Record, Torn, held
from topdown.pipeline.parts.part_store import part_of, put_durably, take
from topdown.privacy.single_child_units import variances
from topdown.projection.histograms.families import Sparse
from topdown.release.layouts import WITH_RECORDS
from topdown.release.whole_counts import Release, sum_runs, summed
from topdown.tables.geography_table import read_as_written
from topdown.wording import shown_path
from topdown.workload import DETAILED, Query


class _Block(NamedTuple):
    """Consecutive entries in one file: the number of the first, that after the last, and the name of their arrays."""

    start: int
    stop: int
    path: Path
    name: str


@dataclass(frozen=True, eq=False)
class FiledEntries:
    """Entries in files, with what `topdown.release.whole_counts.Held` has. The parts were checked when they were made.

    ``starts`` (nodes + 1,): the number of every node's first entry. ``blocks``: where entries are. ``sums``: finds
    those of units that are sums of the nodes, where there are such.
    """

    starts: IntArray
    blocks: Sequence[_Block]
    sums: Callable[[UnitSums], FiledEntries] | None = None
    _last: dict[Path, Arrays] = field(default_factory=dict, repr=False)
    _asked: dict[tuple[int, int], tuple[IntArray, IntArray]] = field(default_factory=dict, repr=False)
    dense = None

    def fault(self, tree: Tree, n_cells: int) -> None:
        """None: every part was checked when it was made."""

    def at(self, units: UnitSums, n_cells: int) -> FiledEntries:
        """The entries of ``units``, which `add_up` wrote. Raises `Torn`."""
        assert self.sums is not None  # nosec B101 # narrows a type: units are sums on a spine alone
        return self.sums(units)

    def entries(self, numbers: slice) -> tuple[IntArray, IntArray]:
        """The cells and counts of some entries. Raises `Torn`."""
        # A table asks for the same entries once for every query that it has.
        asked = numbers.start, numbers.stop
        found = self._asked.get(asked)
        if found is None:
            found = self._read(numbers)
            self._asked.clear()  # one at a time, also where several threads read
            self._asked[asked] = found
        return found

    def _read(self, numbers: slice) -> tuple[IntArray, IntArray]:
        first = int(np.searchsorted(self._stops, numbers.start, side="right"))
        found = []
        for block in self.blocks[first:]:
            if block.start >= numbers.stop:
                break
            if block.stop > block.start:
                part = slice(max(0, numbers.start - block.start), min(block.stop, numbers.stop) - block.start)
                arrays = self._of(block.path)
                found.append([arrays[f"{kind} {block.name}"][part] for kind in ("cells", "counts")])
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        cells, counts = (np.concatenate([one[k] for one in found]).astype(np.int64) for k in range(2))
        return cells, counts

    @cached_property
    def _stops(self) -> IntArray:
        return np.array([block.stop for block in self.blocks])

    def _of(self, path: Path) -> Arrays:
        found = self._last.get(path)
        if found is None:
            found = held(path)
            self._last.clear()  # one at a time, also where several threads read
            self._last[path] = found
        return found


def filed_release(folder: Folder, record: Record, geography: Geography) -> Release:
    """The release of measured units in ``folder``, all of whose parts are made; parts draw by key. Raises `Torn`."""
    starts = held(folder.starts)["starts"]
    sums = partial(_filed_sums, folder, geography.every_sum) if isinstance(geography, SpineGeography) else None
    entries = FiledEntries(starts, _blocks(folder, record, geography.tree, starts), sums)
    return Release(geography, record.its_schema, entries, WITH_RECORDS, record.method, fit_for_release=True)


def published_release(release: Release) -> Release:
    """The published units' counts, of a ``release`` of the measured ones. Raises `Torn`."""
    units = published_sums(release.geography)
    return release if units is None else release.at(units)


class Summed(NamedTuple):
    """Units of a published ``tree`` of a release on a spine, from ``first`` to before ``stop``, whose sums are found at
    once; ``root``: the folder of the release's parts, known by ``name``."""

    root: Path
    name: str
    tree: str
    first: int
    stop: int


def asked_sums(folder: Folder, release: Release) -> list[Summed]:
    """The sums of measured units that are published, in runs, of a ``release`` of the measured ones; none without a
    spine."""
    if not isinstance(release.geography, SpineGeography):
        return []
    name = release_name(folder)
    return [
        Summed(folder.root, name, tree, run.start, run.stop)
        for tree, units in release.geography.every_sum.items()
        for run in sum_runs(release.held, units)
    ]


def add_up(asked: Summed) -> None:
    """The released counts of some published units, from the files of the parts, to a file."""
    folder = Folder(asked.root)
    path = folder.summed(asked.tree, asked.first)
    if take(path) is not None:
        return
    release = measured_release(asked.root, asked.name)
    assert isinstance(release.geography, SpineGeography)  # nosec B101 # narrows a type: of others nothing is asked
    units, run = release.geography.every_sum[asked.tree], slice(asked.first, asked.stop)
    found = summed(release.held, units, release.schema.n_cells, run)
    sizes = narrow(np.diff(found.starts))
    put_durably(path, {"sizes": sizes, "cells summed": narrow(found.cells), "counts summed": narrow(found.counts)})


def write_sum_starts(folder: Folder, sums: Sequence[Summed]) -> None:
    """Write the number of every published unit's first entry, from the files of `add_up`. Raises `Torn`."""
    for tree in dict.fromkeys(one.tree for one in sums):
        firsts = [one.first for one in sums if one.tree == tree]
        sizes = np.concatenate([held(folder.summed(tree, first))["sizes"].astype(np.int64) for first in firsts])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        put_durably(folder.sum_starts(tree), {"starts": starts, "firsts": np.array(firsts)})


def _filed_sums(folder: Folder, known: Mapping[str, UnitSums], units: UnitSums) -> FiledEntries:
    """The entries of ``units``, which are those of one of the trees that are ``known``. Raises `Torn`."""
    tree = next(name for name, one in known.items() if one.geography is units.geography)
    found = held(folder.sum_starts(tree))
    starts, firsts = found["starts"], found["firsts"].tolist()
    ends = [*firsts[1:], len(starts) - 1]
    return FiledEntries(
        starts,
        [
            _Block(int(starts[first]), int(starts[stop]), folder.summed(tree, first), "summed")
            for first, stop in zip(firsts, ends, strict=True)
        ],
    )


def release_name(folder: Folder) -> str:
    """A name for the release in ``folder``, which no other release that is written there later has."""
    return file_digest(folder.job) + file_digest(folder.starts)


@lru_cache(maxsize=1)
def measured_release(root: Path, name: str) -> Release:
    """The release of the measured units called ``name`` (`release_name`), whose parts are all made. It is remembered,
    since a worker writes several of its files."""
    folder = Folder(root)
    return filed_release(folder, Record.whole(folder), read_as_written(folder.geography))


def measured_as_arrays(measured: Sequence[Mapping[Query, Answers]], top: int) -> Arrays:
    """What was measured of a piece, whose root is of level ``top``, as arrays by name."""
    return {
        f"{top + k} {query.name}": np.asfortranarray(answers.values)
        for k, level in enumerate(measured)
        for query, answers in level.items()
    }


def filed_measurements(folder: Folder, record: Record, geography: Geography) -> Measurements:
    """The measurements of the whole tree that are kept, read from the files of its pieces; parts draw by key."""
    plan, schema = record.its_plan, record.its_schema
    below = _nodes_of_parts(record, geography.tree)
    above = [[(folder.measured_above, nodes)] for nodes in map(geography.tree.level, range(record.level))]
    pieces = [*above, *([(folder.measured(part), one) for part, one in enumerate(level)] for level in below)]
    array, others = lru_cache(maxsize=4)(_array_of), {}  # several are remembered, as several threads read
    kind = np.dtype(np.int64 if plan.released_grid_bits == 0 else np.float64)
    for index, level in enumerate(geography.levels[: record.keeps]):
        # The detailed query comes last, as `Measurements.at` has it.
        for name in sorted(plan.queries(level), key=DETAILED.__eq__):
            values = _FiledAnswers(tuple(pieces[index]), f"{index} {name}", geography.tree.level(index), kind, array)
            shape = values.nodes.stop - values.nodes.start, Query.parse(name, schema).n_answers
            known = variances(plan, geography, level, name)
            others[level, name] = Answers(FiledValues(shape, kind, values.read), known)
    cells, nodes, attributes = record.cells, geography.n_nodes, schema if record.attributed else None
    table, spread = none_measured((len(cells), nodes), kind), np.full(nodes, np.inf)
    if record.at_once:  # by the solvers of the cells alone, which take one table
        table = np.zeros((len(cells), nodes), kind)
        for (level, _), one in others.items():
            table.T[geography.level_slice(level)], spread[geography.level_slice(level)] = one
        others = {}
    lower = geography.levels[record.keeps :]
    return Measurements(geography, cells, table.T, spread, plan, True, attributes, others, not_kept=lower)


class _FiledAnswers(NamedTuple):
    """One query's answers at the ``nodes`` of a level, of type ``kind``: the array ``name`` of each of ``pieces``,
    files with the nodes that they have; ``array`` gives it by file and name."""

    pieces: tuple[tuple[Path, slice], ...]
    name: str
    nodes: slice
    kind: np.dtype[Any]
    array: Callable[[Path, str], npt.NDArray[Any]]

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Those from one node of the level up to another. Raises `Torn`."""
        first, last = self.nodes.start + start, self.nodes.start + stop
        stops = [nodes.stop for _, nodes in self.pieces]
        found: list[npt.NDArray[Any]] = []
        for path, nodes in self.pieces[int(np.searchsorted(stops, first, side="right")) :]:
            if found and nodes.start >= last:
                break
            part = slice(max(0, first - nodes.start), max(0, min(nodes.stop, last) - nodes.start))
            found.append(self.array(path, self.name)[part])
        return np.asfortranarray(np.concatenate(found), dtype=self.kind)


def _array_of(path: Path, name: str) -> npt.NDArray[Any]:
    """One array in a file. Raises `Torn`."""
    try:
        return part_of(path, name)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        raise Torn(shown_path(path)) from None


def histograms_as_arrays(name: str, histograms: Sequence[Sparse]) -> Arrays:
    """Whole histograms as arrays by name."""
    none: list[npt.NDArray[Any]] = [np.zeros(0, np.int64)]
    cells = np.concatenate([*none, *(one.cells for one in histograms)])
    counts = np.rint(np.concatenate([*none, *(one.values for one in histograms)])).astype(np.int64)
    sizes = np.array([len(one.cells) for one in histograms], np.int64)
    return {f"sizes {name}": narrow(sizes), f"cells {name}": narrow(cells), f"counts {name}": narrow(counts)}


def histograms_of_arrays(name: str, found: Arrays) -> list[Sparse]:
    """What `histograms_as_arrays` made."""
    cells, counts = found[f"cells {name}"].astype(np.int64), found[f"counts {name}"].astype(np.float64)
    ends = np.cumsum(found[f"sizes {name}"], dtype=np.int64)
    return [
        Sparse(cells[end - size : end], counts[end - size : end])
        for size, end in zip(found[f"sizes {name}"].tolist(), ends.tolist(), strict=True)
    ]


def write_starts(folder: Folder, record: Record) -> IntArray:
    """The number of every node's first entry, from the parts' files; also written to ``folder``. Raises `Torn`."""
    levels = [[held(folder.top)["sizes above"]], *([] for _ in record.levels[record.level + 1 :])]
    for part in range(record.n_parts):
        found = held(folder.down(part))
        for k, sizes in enumerate(levels[1:]):
            sizes.append(found[f"sizes {k + 2}"])
    starts = np.zeros(record.offsets[-1] + 1, np.int64)
    np.cumsum(np.concatenate([sizes for level in levels for sizes in level]), dtype=np.int64, out=starts[1:])
    put_durably(folder.starts, {"starts": starts})
    return starts


def _blocks(folder: Folder, record: Record, tree: Tree, starts: IntArray) -> list[_Block]:
    """Where all entries are, level by level, and in a level part by part: in the order of their nodes."""
    found = [_Block(0, int(starts[record.offsets[record.level + 1]]), folder.top, "above")]
    for k, level in enumerate(_nodes_of_parts(record, tree)[1:], 2):
        for part, nodes in enumerate(level):
            found.append(_Block(int(starts[nodes.start]), int(starts[nodes.stop]), folder.down(part), str(k)))
    return found


def _nodes_of_parts(record: Record, tree: Tree) -> list[list[slice]]:
    """By level, from the parts' uppermost nodes on, the nodes of every part."""
    found = [[slice(first, stop) for first, stop in record.siblings]]
    for _ in record.levels[record.level + 1 :]:
        found.append([tree.children_of(nodes) for nodes in found[-1]])
    return found
