"""Release: whole, non-negative, consistent counts, checked when it is made; and rounding, which makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.errors import ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.noise import SecureSource, Source
from topdown.projection.estimate import Estimate
from topdown.projection.method import nonnegative_methods
from topdown.projection.rounding_method import rounding_named
from topdown.tables.tidy import tidy_batches, to_arrow, to_frame
from topdown.wording import shown
from topdown.workload import Query


@dataclass(frozen=True, eq=False)
class Release:
    """Counts fit to be published: whole, non-negative, every family adding up.

    ``values`` (nodes x cells) int64. ``exact`` (nodes x cells): which of them are published exactly (invariants and
    what they imply). ``method``: the projection that they come from. ``fit_for_release``: whether the noise was drawn
    exactly, from operating-system entropy. ``margins``: the published intervals by column (``lower, upper, moe``, each
    (nodes x cells)), of a release that was read from files which have them. Raises `ProjectionError` naming the node
    where this does not hold.
    """

    geography: Geography
    cells: Sequence[str]
    values: IntArray = field(repr=False)
    exact: npt.NDArray[np.bool_] = field(repr=False)
    method: str
    fit_for_release: bool
    margins: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.values.dtype != np.int64 or self.values.shape != (self.geography.n_nodes, len(self.cells)):
            raise ProjectionError(
                f"a release holds int64 values of shape {(self.geography.n_nodes, len(self.cells))}, and got "
                f"{self.values.dtype} of shape {self.values.shape}"
            )
        if self.values.min(initial=0) < 0:
            node, cell = (int(k) for k in np.argwhere(self.values < 0)[0])
            raise ProjectionError(
                f"{self.geography.describe(node)}, cell {shown(self.cells[cell])}: {self.values[node, cell]} is "
                "negative"
            )
        tree = self.geography.tree
        for cells in tree.blocks(len(self.cells)):
            by_cell = self.values.T[cells]
            for families in tree.families_down():
                gap = families.total(by_cell[..., families.children]) - by_cell[..., families.parents]
                wrong = np.argwhere(gap != 0)
                if len(wrong):
                    cell, family = (int(k) for k in wrong[0])
                    raise ProjectionError(
                        f"{self.geography.describe(families.parents.start + family)}, "
                        f"cell {shown(self.cells[cells.start + cell])}: its children add up to "
                        f"{int(gap[cell, family])} more than it has"
                    )

    @property
    def variance(self) -> npt.NDArray[np.float64] | None:
        """Marks the exact values: 0 there, NaN (not known) elsewhere, (nodes x cells); None where nothing is exact.

        Non-negative and rounded values have no variance in closed form, so that this says what is exact (what
        invariants give and imply) and nothing of the others: a variance is known of the estimates by least squares.
        """
        return np.where(self.exact, 0.0, np.nan) if self.exact.any() else None

    def answers_of(self, nodes: slice, asked: Query) -> IntArray:
        """The answers to ``asked``, of a schema with the same cells, at ``nodes``; (nodes x answers)."""
        return np.asarray(asked.answers(self.values[nodes]))

    def batches(self, more: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
        """The tidy table ``geoid, level, parent, name, cell, value[, variance][, lower, upper, moe]`` in Arrow batches,
        with ``more`` columns (nodes x cells) after these.
        """
        columns: dict[str, Any] = {"value": self.values}
        if self.exact.any():
            columns["variance"] = lambda nodes: np.where(self.exact[nodes], 0.0, np.nan)
        columns |= {**self.margins, **(more or {})}
        return tidy_batches(self.geography, self.cells, columns, units=True)

    def to_frame(self) -> pd.DataFrame:
        """The tidy table ``geoid, level, parent, name, cell, value[, variance][, lower, upper, moe]``."""
        return to_frame(self.batches())

    def to_arrow(self) -> pa.Table:
        """The tidy table ``geoid, level, parent, name, cell, value[, variance][, lower, upper, moe]``."""
        return to_arrow(self.batches())


def round_counts(
    estimate: Estimate, *, method: str = "family", source: Source | None = None, executor: Executor | None = None
) -> Release:
    """The whole numbers nearest to ``estimate`` with which every family still adds up.

    ``method``: "family", the root to the nearest whole number, then in every family argmin sum (r_c - x_c)^2 over whole
    r_c >= 0 with the parent's sum (exact, by largest remainders); "joint", argmin of the sum of (r_i - x_i)^2 over all
    nodes at once, every node weighing the same. ``source`` breaks ties, by default operating-system entropy.
    ``executor``: threads that may work on it; the counts do not depend on them. Raises `ConfigError` for an unknown
    method, `ProjectionError` for an estimate that may be negative, or whose exact values are not whole.
    """
    rounding = rounding_named(method).for_cells()
    if not estimate.nonnegative:
        raise ProjectionError(
            f"the estimate by {shown(estimate.method)} may be negative, and a release may not; project with "
            f"nonnegative=True (method {' or '.join(map(repr, nonnegative_methods()))})"
        )
    _require_whole(estimate)
    source = SecureSource() if source is None else source
    exact = estimate.exact.T if estimate.exact.any() else None
    values = rounding(np.ascontiguousarray(estimate.values.T), estimate.geography.tree, source, exact, executor)
    return Release(
        geography=estimate.geography,
        cells=estimate.cells,
        values=values.T,
        exact=estimate.exact,
        method=estimate.method,
        fit_for_release=estimate.fit_for_release and source.fit_for_release,
    )


def _require_whole(estimate: Estimate) -> None:
    for cell in range(len(estimate.cells)):
        exact = np.flatnonzero(estimate.exact[:, cell])
        values = estimate.values[exact, cell]
        wrong = np.flatnonzero(np.abs(values - np.rint(values)) > 1e-6)
        if len(wrong):
            node = int(exact[wrong[0]])
            raise ProjectionError(
                f"{estimate.geography.describe(node)}, cell {shown(estimate.cells[cell])}: its exact value "
                f"{values[wrong[0]]} is not whole, so no consistent whole numbers exist; correct it"
            )
