"""Exact values among the measurements: what they imply for the nodes above them, and contradictions among them or with
a schema.

An exact value is one with variance 0. Kernels take measurements for which `settle` has been called.
"""

from __future__ import annotations

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, Tree
from topdown.measurements.measurements import Measurements
from topdown.wording import shown


class Contradiction(ValueError):
    """Exact values that no consistent (and, where required, non-negative) table has; ``node``: where the contradiction
    was found.
    """

    def __init__(self, node: int, reason: str) -> None:
        super().__init__(reason)
        self.node = node


def settle(values: FloatArray, variance: FloatArray, tree: Tree, *, nonnegative: bool) -> tuple[FloatArray, FloatArray]:
    """``values`` (..., nodes) and ``variance`` (the same or (nodes,)), where every parent whose children are all exact
    is made exact.

    Raises `Contradiction` where an exact value is not what its exact children add up to, and with ``nonnegative``
    where one is negative or less than the exact values below it.
    """
    if not (variance == 0).any():
        return values, variance
    y, v = np.array(values), np.array(variance)
    if nonnegative:
        _refuse(v == 0, y < 0, "its exact value is negative, and the projection is to be non-negative")
    for families in tree.families_up():
        exact = v[..., families.children] == 0
        settled = families.total((~exact).astype(np.int64)) == 0
        known = families.total(np.where(exact, y[..., families.children], 0.0))
        at = np.zeros(y.shape, bool)
        own = (v[..., families.parents] == 0) & settled
        at[..., families.parents] = own & (np.abs(y[..., families.parents] - known) > _rounding(known))
        _refuse(at, True, "its exact value is not the sum of its children's, which are all exact")
        y[..., families.parents] = np.where(settled, known, y[..., families.parents])
        v[..., families.parents] = np.where(settled, 0.0, v[..., families.parents])
    if nonnegative:
        _refuse(
            v == 0,
            y < _below(y, v, tree) - _rounding(y),
            "its exact value is less than the exact values below it add up to",
        )
    return y, v


def require_zeros(measurements: Measurements) -> None:
    """Refuse exact answers other than 0 of impossible cells alone. Raises `ProjectionError` naming node and answer."""
    schema, geography = measurements.schema, measurements.geography
    if not schema.zeros:
        return
    possible = schema.possible_cells()
    for level in geography.levels:
        first = geography.level_slice(level).start
        for query, (values, variance) in measurements.at(level).items():
            is_exact = (variance == 0).reshape(len(values), -1)
            nodes = np.flatnonzero(is_exact.any(axis=1))
            if not len(nodes):
                continue
            empty = np.setdiff1d(np.arange(query.n_answers), query.answers_of(possible))
            said = np.asarray(values[nodes], dtype=np.float64)[:, empty]
            exact = np.broadcast_to(is_exact[nodes], (len(nodes), query.n_answers))[:, empty]
            wrong = np.argwhere(exact & (np.abs(said) > _rounding(said)))
            if len(wrong):
                row, answer = (int(k) for k in wrong[0])
                label = shown(query.labels()[empty[answer]])
                raise ProjectionError(
                    f"{geography.describe(first + int(nodes[row]))}, query {query.name!r}, {label}: its exact answer "
                    f"is {said[row, answer]:.12g}, but it is a structural zero of the schema; correct one of them"
                )


def _rounding(values: FloatArray) -> FloatArray:
    """The rounding error of sums; less than any difference of two whole numbers."""
    return np.minimum(1e-6 + 1e-12 * np.abs(values), 0.5)


def _refuse(where: np.ndarray, wrong: np.ndarray | bool, reason: str) -> None:
    found = np.argwhere(where & wrong)
    if len(found):
        raise Contradiction(int(found[0][-1]), reason)


def _below(values: FloatArray, variance: FloatArray, tree: Tree) -> FloatArray:
    """What the exact values strictly below every node add up to; 0 at the leaves."""
    bound = np.zeros(values.shape)
    for families in tree.families_up():
        children = variance[..., families.children] == 0
        best = np.where(children, values[..., families.children], bound[..., families.children])
        bound[..., families.parents] = families.total(best)
    return bound


def lower_bounds(values: FloatArray, variance: FloatArray, tree: Tree) -> FloatArray | None:
    """The least that every node can be in a non-negative table with these exact values; None where that is 0 for all.

    A family-by-family projection needs it: a family whose parent is less than the exact values below it has no
    solution.
    """
    exact = variance == 0
    if not exact.any():
        return None
    exact = np.broadcast_to(exact, values.shape)
    return np.where(exact, values, _below(values, np.broadcast_to(variance, values.shape), tree))
