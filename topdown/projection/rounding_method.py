"""The ways from consistent fractions to consistent whole numbers, as values."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.noise.randomness import Source
from topdown.projection.integer_optimum import round_whole_tree
from topdown.projection.invariants import lower_bounds
from topdown.projection.rounding import round_top_down

Exact: TypeAlias = npt.NDArray[np.bool_] | None


@dataclass(frozen=True)
class Rounding:
    """A way to round. ``words``: what it minimises.

    ``solve``: whole numbers >= 0 (cells x nodes) near consistent values (cells x nodes), with which every family adds
    up; the source breaks ties; values marked exact (cells x nodes, or None) are whole already and stay. An executor's
    threads, where there is one, may work on it.
    """

    name: str
    words: str
    solve: Callable[[FloatArray, Tree, Source, Exact, Executor | None], IntArray]


def _by_family(
    values: FloatArray, tree: Tree, source: Source, exact: Exact, executor: Executor | None = None
) -> IntArray:
    result = np.empty(values.shape, np.int64)
    # Cell by cell, for the sake of memory.
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
        Rounding("family", "the nearest whole numbers family by family from the root", _by_family),
        Rounding("joint", "the whole numbers nearest over all nodes at once", _whole_tree),
    )
}
"""Every rounding by its name: the only place where a name becomes one."""
