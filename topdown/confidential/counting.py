"""Counts rows batch by batch, in any order, into a table or into only those cells that have rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.confidential.count_values import occupied_zero, refuse_zeros, total_of
from topdown.confidential.entries import Entries, Run
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.workload import Schema


class Dense:
    """Counts of all leaves and cells as a table."""

    def __init__(self, n_leaves: int, n_cells: int) -> None:
        self.shape = n_leaves, n_cells
        self.bottom = np.zeros(n_leaves * n_cells, np.int64)
        self.seen = np.zeros(0, bool)

    def add(self, place: IntArray, numbers: IntArray | None) -> int | None:
        """Count rows at their places (leaf * cells + cell).

        With ``numbers``, every place may have one row at most; returns the first row that repeats a place.
        """
        leaf, cell = np.divmod(place, self.shape[1])
        place = cell * self.shape[0] + leaf
        if numbers is None:
            places, times = np.unique(place, return_counts=True)
            self.bottom[places] += times
            return None
        if not len(self.seen):
            self.seen = np.zeros(len(self.bottom), bool)
        again = _repeated(place) | self.seen[place]
        if again.any():
            return int(np.flatnonzero(again)[0])
        self.seen[place] = True
        self.bottom[place] += numbers
        return None

    @property
    def total(self) -> int:
        return total_of(self.bottom)

    def held(self, geography: Geography, cells: Sequence[str], schema: Schema | None) -> IntArray:
        values = geography.tree.aggregate(self.bottom.reshape(self.shape[::-1]))
        values.flags.writeable = False
        if schema is not None:
            refuse_zeros(values, schema, geography)
        return values.T


class SparseTally:
    """Counts of the leaves' cells that have a row.

    They are kept in sorted runs. Rows in the order of their places give runs that follow each other and are never
    changed again. From rows in another order a place may be in several runs; runs are merged as they grow, each row
    about as often as the logarithm of the number of runs.
    """

    def __init__(self, n_leaves: int, n_cells: int) -> None:
        self.n_cells = n_cells
        self.runs: list[Run] = []
        self.total = 0

    def add(self, place: IntArray, numbers: IntArray | None) -> int | None:
        """As `Dense.add`."""
        if not len(place):
            return None
        if numbers is None:
            places, times = np.unique(place, return_counts=True)
            run = Run(places, times.astype(np.int64))
        else:
            rises = bool((place[1:] > place[:-1]).all())
            again = np.zeros(len(place), bool) if rises else _repeated(place)
            for held in self.runs:
                again |= _is_in(place, held.keys)
            if again.any():
                return int(np.flatnonzero(again)[0])
            order: Any = slice(None) if rises else np.argsort(place)
            run = Run(place[order], numbers[order])
        self.total += total_of(run.counts)
        self.runs.append(_narrowed(run))
        while len(self.runs) > 1 and not _follow(*self.runs[-2:]) and _alike_long(*self.runs[-2:]):
            self.runs[-2:] = [_merged(*self.runs[-2:])]
        return None

    def held(self, geography: Geography, cells: Sequence[str], schema: Schema | None) -> Entries:
        if not all(_follow(*self.runs[k : k + 2]) for k in range(len(self.runs) - 1)):
            while len(self.runs) > 1:
                self.runs[-2:] = [_merged(*self.runs[-2:])]
        if schema is not None and schema.zeros:
            for keys, counts in self.runs:
                wrong = np.flatnonzero(schema.excluded(keys % self.n_cells) & (counts > 0))
                if len(wrong):
                    leaf, cell = divmod(int(keys[wrong[0]]), self.n_cells)
                    raise occupied_zero(geography, geography.tree.leaves.start + leaf, cells[cell])
        return Entries.of_runs(geography.tree, self.n_cells, self.runs)


def _narrowed(run: Run) -> Run:
    """``run`` with its counts in 32 bits, where they fit."""
    return run if run.counts.max() >= 1 << 31 else Run(run.keys, run.counts.astype(np.int32))


def _follow(before: Run, after: Run) -> bool:
    return bool(before.keys[-1] < after.keys[0])


def _alike_long(before: Run, after: Run) -> bool:
    return len(before.keys) <= 2 * len(after.keys)


def _merged(one: Run, other: Run) -> Run:
    """The counts of both runs; the counts of a place in both are added up."""
    keys = np.concatenate([one.keys, other.keys])
    order = np.argsort(keys, kind="stable")  # which finds the two runs
    keys = keys[order]
    counts = np.concatenate([one.counts, other.counts], dtype=np.int64)[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] > keys[:-1]]))
    return _narrowed(Run(keys[first], np.add.reduceat(counts, first)))


def _is_in(place: IntArray, keys: IntArray) -> npt.NDArray[np.bool_]:
    """Which of ``place`` are among ``keys``, which rise."""
    if place.min() > keys[-1] or place.max() < keys[0]:
        return np.zeros(len(place), bool)
    found = np.minimum(np.searchsorted(keys, place), len(keys) - 1)
    return np.asarray(keys[found] == place)


def _repeated(place: IntArray) -> npt.NDArray[np.bool_]:
    """Which rows follow another row of the same place."""
    order: Any = np.argsort(place, kind="stable")
    again = np.zeros(len(place), bool)
    again[order[1:]] = place[order[1:]] == place[order[:-1]]
    return again
