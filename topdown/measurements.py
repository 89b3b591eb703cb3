"""Measurements: the protected numbers. Whatever is computed from them alone stays protected.

Everything after the door depends on this module and never on the confidential counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.errors import DataError
from topdown.geography import Geography
from topdown.noise.exact import LARGEST_WHOLE
from topdown.privacy.plan import Plan
from topdown.privacy.shares import DETAILED
from topdown.tables import tidy_batches, to_frame
from topdown.tree import FloatArray
from topdown.wording import listed, shown


class Measurement(NamedTuple):
    """One query at one level: ``values`` and ``variance``, both (nodes of the level x cells)."""

    level: str
    query: str
    values: npt.NDArray[Any]
    variance: FloatArray


@dataclass(frozen=True, eq=False)
class Measurements:
    """Noisy values with their variances at every node, keyed by (level, query).

    ``values`` (nodes x cells): the answers to the detailed query, all levels one after another; whole numbers where the
    mechanism gives them; 0 where not measured. ``node_variance``: (nodes,) or (nodes x cells); 0 for an exact value
    (an invariant), inf for a node that was not measured. ``plan``: the plan under which they were drawn, None when they
    came from elsewhere. ``fit_for_release``: whether they were drawn exactly, from operating-system entropy.
    """

    geography: Geography
    cells: tuple[str, ...]
    values: npt.NDArray[Any] = field(repr=False)
    node_variance: FloatArray = field(repr=False)
    plan: Plan | None = None
    fit_for_release: bool = False

    @classmethod
    def from_arrays(
        cls, geography: Geography, values: npt.ArrayLike, variance: Any, *, cells: Sequence[str] | None = None
    ) -> Measurements:
        """Measurements from noisy numbers that were made elsewhere.

        ``values``: (nodes,) or (nodes x cells) in the geography's order; NaN only where not measured. ``variance``: one
        number, one per level (a sequence of L, or a mapping from level to number), one per node, or (nodes x cells);
        inf = not measured, 0 = exact. Raises `DataError` naming the node for a value that is not finite or beyond 2^53,
        a variance that is negative or not a number, a shape that does not fit.
        """
        array = np.asarray(values)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or len(array) != geography.n_nodes or not array.shape[1]:
            raise DataError(
                f"values have shape {np.shape(values)}; give ({geography.n_nodes},) or ({geography.n_nodes}, cells)"
            )
        if array.dtype.kind not in "iuf":
            raise DataError(f"values have dtype {array.dtype}; give whole or floating-point numbers")
        titles = _titles(cells, array.shape[1])
        spread = _node_variance(geography, variance, array.shape)
        array = np.where(_as_rows(np.isinf(spread), array), np.zeros((), array.dtype), array)
        # In the array's own kind: as a float, 2^53 + 1 would pass for 2^53.
        limit = float(LARGEST_WHOLE) if array.dtype.kind == "f" else LARGEST_WHOLE
        wrong = np.argwhere(~((array <= limit) & (array >= -limit)))
        if len(wrong):
            node, cell = (int(k) for k in wrong[0])
            raise DataError(
                f"{geography.describe(node)}, cell {shown(titles[cell])}: value {array[node, cell]} is not a finite "
                "number of at most 2^53; correct it, or give variance inf if it was not measured"
            )
        return cls(geography, titles, np.asfortranarray(array), spread)

    @property
    def variance(self) -> FloatArray:
        """Variance of every value; (nodes x cells), a read-only view."""
        return np.broadcast_to(_as_rows(self.node_variance, self.values), self.values.shape)

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The (level, query) pairs that were measured."""
        return tuple((level, DETAILED) for level in self.geography.levels)

    def __getitem__(self, key: tuple[str, str]) -> Measurement:
        level, query = key
        if query != DETAILED:
            raise KeyError(f"no query {shown(query)} at level {shown(level)}; there is {shown(DETAILED)}")
        nodes = self.geography.level_slice(level)
        return Measurement(level, query, self.values[nodes], self.variance[nodes])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The tidy table ``geoid, level, query, cell, value, variance`` of what was measured, in Arrow batches."""
        measured = np.isfinite(self.node_variance).reshape(self.geography.n_nodes, -1)
        rows: npt.NDArray[np.bool_] = np.asarray(measured.any(axis=1))
        columns = {"query": DETAILED, "value": self.values, "variance": self.variance}
        return tidy_batches(self.geography, self.cells, columns, rows=rows)

    def to_frame(self) -> pd.DataFrame:
        """The tidy table ``geoid, level, query, cell, value, variance`` of what was measured."""
        return to_frame(self.batches())


def _titles(cells: Sequence[str] | None, count: int) -> tuple[str, ...]:
    numbered = ("count",) if count == 1 else tuple(f"cell {k}" for k in range(count))
    titles = numbered if cells is None else tuple(cells)
    if len(titles) != count or len(set(titles)) != count:
        raise DataError(f"{count} columns of values and the cells {list(titles)}; give every column its own name")
    return titles


def _as_rows(per_node: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return per_node[:, None] if per_node.ndim < like.ndim else per_node


def _node_variance(geography: Geography, variance: Any, shape: tuple[int, ...]) -> FloatArray:
    """``variance`` in any of the accepted forms as (nodes,) or (nodes x cells)."""
    if isinstance(variance, Mapping):
        unnamed = [level for level in geography.levels if level not in variance]
        unknown = [level for level in variance if level not in geography.levels]
        if unnamed or unknown:
            raise DataError(
                f"variance names {listed(variance)}, and the levels are {listed(geography.levels)}; "
                "give every level one"
            )
        variance = [variance[level] for level in geography.levels]
    given = np.asarray(variance, dtype=np.float64)
    sizes = np.diff(geography.level_offsets)
    if given.ndim == 0:
        spread = np.full(geography.n_nodes, float(given))
    elif given.shape == (len(sizes),):
        spread = np.repeat(given, sizes)
    elif given.shape in ((geography.n_nodes,), shape):
        spread = np.array(given)
    elif given.shape == (geography.n_nodes, 1):
        spread = np.array(given[:, 0])
    else:
        raise DataError(
            f"variance has shape {given.shape}; give one number, {len(sizes)} (per level), {geography.n_nodes} (per "
            f"node) or {shape} (per node and cell)"
        )
    wrong = np.argwhere(~(spread >= 0))
    if len(wrong):
        node = int(wrong[0][0])
        raise DataError(
            f"{geography.describe(node)}: variance {spread[tuple(wrong[0])]} is not a number from 0 to inf; 0 means "
            "exact, inf not measured"
        )
    if np.isinf(spread).all():
        raise DataError("no node was measured: every variance is inf")
    return spread
