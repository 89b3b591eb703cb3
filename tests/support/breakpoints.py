"""The whole-tree non-negative program a second way: exact, by merging breakpoints up the tree.

Independent of the clamp (nonnegative.py) in everything but the data, and therefore its check; slower by an order of
magnitude. With price lambda for a unit, node i's best value x_i(lambda) is piecewise linear: a leaf's is
max(0, y + v lambda), siblings' add up, and a node's own measurement moves each breakpoint by (x_i - y_i) / v_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.tree import Families, FloatArray, IntArray, Tree


@dataclass(frozen=True, eq=False)
class _Lines:
    """One increasing piecewise-linear function per node: constant at ``base``, then from breakpoint to breakpoint.

    ``node`` of every breakpoint, ``price`` and ``value`` there, ``slope`` from there on; sorted by node, then price.
    """

    base: FloatArray
    node: IntArray
    price: FloatArray
    value: FloatArray
    slope: FloatArray

    def last_below(self, at: FloatArray, bounds: FloatArray) -> tuple[IntArray, IntArray]:
        """Nodes with a breakpoint whose ``at`` is below the node's bound, and the last such breakpoint of each."""
        count = np.bincount(self.node[at < bounds[self.node]], minlength=len(self.base))
        first = np.searchsorted(self.node, np.arange(len(self.base)))
        some = np.flatnonzero(count)
        return some, (first + count - 1)[some]

    def value_at(self, price: FloatArray) -> FloatArray:
        """Every node's value at its price."""
        nodes, k = self.last_below(self.price, price)
        x = self.base.copy()
        x[nodes] = self.value[k] + self.slope[k] * (price[nodes] - self.price[k])
        return x

    def price_of(self, value: FloatArray) -> FloatArray:
        """Every node's highest price at which it has the value; the first breakpoint's where it never has less."""
        first = np.searchsorted(self.node, np.arange(len(self.base)))
        price = np.zeros(len(self.base))
        some = np.bincount(self.node, minlength=len(self.base)) > 0
        price[some] = self.price[first[some]]
        nodes, k = self.last_below(self.value, value)
        price[nodes] = self.price[k] + (value[nodes] - self.value[k]) / self.slope[k]
        return price


def project_tree_by_breakpoints(values: FloatArray, variance: FloatArray, tree: Tree) -> FloatArray:
    """argmin of sum over the whole tree of (x_i - y_i)^2 / v_i with x >= 0 and every family adding up; (..., nodes).

    The same program and arguments as `nonnegative.project_tree`, in O(nodes log nodes) for each level. A variance of 0
    is an exact value, infinity a node that was not measured; raises `ProjectionError` where that is a leaf, since the
    program then has more than one solution.

    Prices are of the size y / v and cost a leaf v times their rounding: where variances differ by orders of
    magnitude it has about that many digits fewer than the clamp.
    """
    variance = np.broadcast_to(variance, values.shape)
    if np.isinf(variance[..., tree.leaves]).any():
        raise ProjectionError("merging breakpoints needs a measurement at every leaf; use topdown.project")
    x = np.empty(values.shape)
    for row in np.ndindex(*values.shape[:-1]):
        x[row] = _project(values[row], variance[row], tree)
    return x


def _project(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    y = np.where(np.isinf(v), 0.0, y)
    weight = np.divide(1.0, v, out=np.zeros(len(v)), where=v > 0)
    exact = v == 0
    own = _leaf_lines(y[tree.leaves], v[tree.leaves])
    sums, owns = [], [own]
    for families in tree.families_up():
        total = _add_siblings(own, families)
        parents = families.parents
        own = _measure(total, y[parents], weight[parents], exact[parents])
        sums.append(total)
        owns.append(own)
    x = np.empty(len(y))
    price = np.zeros(1)  # A unit more or less costs nothing at the optimum of the whole.
    for level in range(tree.n_levels):
        nodes = tree.level(level)
        x[nodes] = owns.pop().value_at(price)
        if sums:
            inner = sums.pop()
            inside = np.where(exact[nodes], inner.price_of(y[nodes]), price - weight[nodes] * (x[nodes] - y[nodes]))
            price = tree.families(level).spread(inside)
    return tree.aggregate(x[tree.leaves])


def _leaf_lines(y: FloatArray, v: FloatArray) -> _Lines:
    free = np.flatnonzero(v > 0)
    slope = v[free]
    return _Lines(np.where(v == 0, y, 0.0), free, -y[free] / slope, np.zeros(len(free)), slope)


def _add_siblings(lines: _Lines, families: Families) -> _Lines:
    """The sums of every family's functions."""
    base = families.total(lines.base)
    family = np.repeat(np.arange(len(families.sizes)), families.sizes)[lines.node]
    first_of_node = np.diff(lines.node, prepend=-1) != 0
    rise = lines.slope - np.where(first_of_node, 0.0, np.concatenate([[0.0], lines.slope[:-1]]))
    order = np.lexsort((lines.price, family))
    family, price, rise = family[order], lines.price[order], rise[order]
    first = np.diff(family, prepend=-1) != 0
    slope = _running_sums(rise, first)
    before = np.concatenate([[0.0], slope[:-1]])
    step = np.where(first, 0.0, before * np.diff(price, prepend=0.0))
    return _Lines(base, family, price, base[family] + _running_sums(step, first), slope)


def _measure(lines: _Lines, y: FloatArray, weight: FloatArray, exact: np.ndarray) -> _Lines:
    """The functions once the nodes' own measurements are added; a constant where these are exact."""
    kept = ~exact[lines.node]
    node, value, slope = lines.node[kept], lines.value[kept], lines.slope[kept]
    w = weight[node]
    price = lines.price[kept] + w * (value - y[node])
    return _Lines(np.where(exact, y, lines.base), node, price, value, slope / (1.0 + w * slope))


def _running_sums(terms: FloatArray, first: np.ndarray) -> FloatArray:
    """Running sums of ``terms`` that start again at every ``first``, without carrying the nation's total along."""
    if len(terms) == 0:
        return terms
    starts = np.flatnonzero(first)
    again = terms.copy()
    again[starts[1:]] -= np.add.reduceat(terms, starts)[:-1]
    # The nation's own sum has as many terms as there are leaves: longer numbers where the machine has them.
    return np.cumsum(again, dtype=np.longdouble).astype(np.float64)
