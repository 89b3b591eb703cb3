"""The roundings from consistent fractions to consistent whole numbers, as values."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, require_known
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.noise.randomness import Source
from topdown.projection.cells.integer_optimum import round_whole_tree
from topdown.projection.cells.rounding import round_top_down
from topdown.projection.histograms.flow import Network, nearest, unbiased
from topdown.projection.invariants import lower_bounds

Exact: TypeAlias = npt.NDArray[np.bool_] | None
OfCells: TypeAlias = Callable[[FloatArray, Tree, Source, Exact, Executor | None], IntArray]
OfFamilies: TypeAlias = Callable[[Network, Source], IntArray]
Taken = TypeVar("Taken")

_SHAPES = {"cells": "estimates of cells", "families": "histograms family by family"}


@dataclass(frozen=True)
class Rounding:
    """A rounding; a shape of workload that it does not take is None. ``words``: a description.

    ``cells``: whole numbers >= 0 (cells x nodes) near consistent values (cells x nodes), with which every family adds
    up; the source breaks ties; values marked exact (cells x nodes, or None) are whole already and stay. An executor's
    threads, where there is one, may work on it. ``families``: the whole histograms of a family from its network;
    ``whole_total``: whether a root's total is rounded before the rest (`passes.in_order`).
    """

    name: str
    words: str
    cells: OfCells | None = None
    families: OfFamilies | None = None
    whole_total: bool = False

    def for_cells(self) -> OfCells:
        """``cells``. Raises `ConfigError` with the roundings that have it where this one does not."""
        return self._taken(self.cells, "cells")

    def for_families(self) -> OfFamilies:
        """``families``. Raises `ConfigError` as `for_cells` does."""
        return self._taken(self.families, "families")

    def _taken(self, solve: Taken | None, shape: str) -> Taken:
        if solve is None:
            able = [repr(one.name) for one in ROUNDINGS.values() if getattr(one, shape) is not None]
            raise ConfigError(
                f"rounding {self.name!r} ({self.words}) does not round {_SHAPES[shape]}; take {' or '.join(able)}"
            )
        return solve


def _by_family(
    values: FloatArray, tree: Tree, source: Source, exact: Exact, executor: Executor | None = None
) -> IntArray:
    result = np.empty(values.shape, np.int64)
    # Cell by cell, to save memory.
    for cell in range(len(values)):
        whole, lower, kept = values[cell][None], None, None
        if exact is not None:
            kept = exact[cell][None]
            whole = np.where(kept, np.rint(whole), whole)
            lower = lower_bounds(whole, np.where(kept, 0.0, 1.0), tree)
        result[cell] = round_top_down(whole, tree, source, lower, kept, executor)[0]
    return result


def _whole_tree(
    values: FloatArray, tree: Tree, source: Source, exact: Exact, executor: Executor | None = None
) -> IntArray:
    return round_whole_tree(values, tree, source, exact)


ROUNDINGS: dict[str, Rounding] = {
    rounding.name: rounding
    for rounding in (
        Rounding("family", "the nearest whole numbers family by family from the root", cells=_by_family),
        Rounding("joint", "the whole numbers nearest over all nodes at once", cells=_whole_tree),
        Rounding(
            "nearest", "the nearest whole numbers between floors and ceilings", families=nearest, whole_total=True
        ),
        Rounding("unbiased", "random whole numbers whose expectation is the fractional ones", families=unbiased),
    )
}
"""Every rounding by its name."""


def rounding_named(name: str) -> Rounding:
    """The rounding called ``name``. Raises `ConfigError` with the nearest name for an unknown one."""
    require_known(name, ROUNDINGS, "rounding")
    return ROUNDINGS[name]
