"""How near to each other two correct solutions of a program lie: what float64 resolves at every node, and a solver.

Both are carried through the tree as the projection carries errors: up into the estimates of parents, down as shares of
what a family has too much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, Tree
from topdown.projection.equality import measured_or_zero
from topdown.projection.multipliers import EPS
from topdown.projection.optimality import own_variance, pooled_variance


class Resolution(NamedTuple):
    """``rounding``: what of a value rounding may account for, in counts; ``deviation``: the standard deviation in which
    a solver's inexactness is to be counted: the node's own, and its share of its parent's. Both (..., nodes).
    """

    rounding: FloatArray
    deviation: FloatArray


def resolution(x: FloatArray, values: FloatArray, variance: FloatArray, tree: Tree, *, by_family: bool) -> Resolution:
    """The resolution of ``x`` (..., nodes), the projection of ``values`` with ``variance``.

    ``by_family``: whether children were projected by their own measurements alone, and not by all that is below them.
    """
    variance = np.broadcast_to(variance, x.shape)
    size = np.abs(x) + np.abs(measured_or_zero(values, variance))
    unit = own_variance(variance, tree) if by_family else np.concatenate(pooled_variance(variance, tree), axis=-1)
    error, lost = 4 * EPS * size, np.zeros((*x.shape[:-1], tree.n_families))
    for families in tree.families_up():
        c, p = families.children, families.parents
        # numpy adds in pairs, and variances carry the rounding of the levels below.
        adding = EPS * (8.0 + tree.n_levels + np.log2(families.sizes))
        lost[..., p] = adding * (size[..., p] + families.total(size[..., c])) + families.total(error[..., c])
        if not by_family:
            error[..., p] += _part(unit[..., p], families.total(unit[..., c])) * lost[..., p]
    deviation = np.sqrt(unit)
    for families in tree.families_down():
        c, p = families.children, families.parents
        share = _part(unit[..., c], families.spread(families.total(unit[..., c])))
        error[..., c] += share * families.spread(error[..., p] + lost[..., p])
        deviation[..., c] += share * families.spread(deviation[..., p])
    return Resolution(error, deviation)


def _part(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)
