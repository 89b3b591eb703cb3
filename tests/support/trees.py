"""Hypothesis strategies for trees, variances and measurements, and exact solutions of small programs."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from scipy.optimize import nnls

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, Tree
from topdown.measurements.measurements import Measurements


class Case(NamedTuple):
    """Noisy values and variances, both (nodes, cells), on a tree; a true table lies under the exact values."""

    tree: Tree
    values: FloatArray
    variance: FloatArray
    truth: FloatArray

    def measurements(self) -> Measurements:
        return measurements(self.tree, self.values, self.variance)

    @property
    def noise(self) -> float:
        """The largest standard deviation, at least 1: the unit of tolerances."""
        return float(np.sqrt(np.where(np.isfinite(self.variance), self.variance, 0.0).max(initial=1.0)))


def geography(tree: Tree) -> Geography:
    """A geography of that shape, its nodes called n0, n1, ..., with leading zeros where there are more than ten."""
    levels, digits = tuple(f"level {k}" for k in range(tree.n_levels)), len(str(tree.n_nodes - 1))
    return Geography(levels, tree, pa.array([f"n{k:0{digits}d}" for k in range(tree.n_nodes)]))


def leaves_below(tree: Tree) -> FloatArray:
    """Which leaves (nodes x leaves) lie at or below every node, 1 or 0."""
    found = np.zeros((tree.n_nodes, tree.n_leaves))
    for leaf, node in enumerate(range(tree.leaves.start, tree.n_nodes)):
        while node >= 0:
            found[node, leaf] = 1
            node = int(tree.parent[node])
    return found


def measurements(tree: Tree, values: object, variance: object) -> Measurements:
    return Measurements.from_arrays(geography(tree), values, variance)


@st.composite
def family_sizes(draw: st.DrawFn, max_levels: int = 6, max_family: int = 4, max_leaves: int = 60) -> list[list[int]]:
    """Numbers of children per node, level by level, of a tree of 1 to ``max_levels`` levels; families of one, chains
    and the single node among them.
    """
    sizes: list[list[int]] = []
    nodes = 1
    for _ in range(draw(st.integers(0, max_levels - 1))):
        widest = max(1, min(max_family, max_leaves // nodes))
        family = st.one_of(st.just(1), st.integers(1, widest))
        sizes.append(draw(st.lists(family, min_size=nodes, max_size=nodes)))
        nodes = sum(sizes[-1])
    return sizes


def trees(max_levels: int = 6, max_family: int = 4, max_leaves: int = 60) -> st.SearchStrategy[Tree]:
    return family_sizes(max_levels, max_family, max_leaves).map(Tree.from_family_sizes)


@st.composite
def wide_trees(draw: st.DrawFn) -> Tree:
    """Two or three levels with one large family of up to 300 among small ones."""
    large = draw(st.integers(100, 300))
    if draw(st.booleans()):
        return Tree.from_family_sizes([[large]])
    return Tree.from_family_sizes([[3], draw(st.permutations([large, 1, draw(st.integers(1, 9))]))])


@st.composite
def cases(
    draw: st.DrawFn,
    shapes: st.SearchStrategy[Tree] | None = None,
    *,
    max_cells: int = 3,
    exact: bool = True,
    unmeasured: bool = True,
    unmeasured_leaves: bool = True,
    wild: bool = True,
    far: bool = True,
) -> Case:
    """Measurements of a random table: zero parents, values far below 0 (``far``), variances from 1e-3 to 1e6 (0.1 to
    1000 unless ``wild``), exact values at any node (always the truth, so that they never contradict each other),
    unmeasured nodes.
    """
    tree = draw(trees() if shapes is None else shapes)
    cells = draw(st.integers(1, max_cells))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    leaves = rng.poisson(draw(st.sampled_from([0.3, 3.0, 1000.0])), (cells, tree.n_leaves))
    if draw(st.booleans()):
        leaves *= rng.random(tree.n_leaves) < 0.5
    truth = tree.aggregate(leaves).T.astype(np.float64)
    shape = truth.shape
    spread = draw(st.sampled_from(["equal", "by level", "mild", "wild" if wild else "mild"]))
    if spread == "equal":
        variance = np.full(shape, 100.0)
    elif spread == "by level":
        levels = np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))
        variance = np.repeat((10.0 ** rng.uniform(-1, 3, tree.n_levels))[levels][:, None], cells, axis=1)
    else:
        low, high = (-1, 2) if spread == "mild" else (-3, 6)
        variance = 10.0 ** rng.uniform(low, high, shape)
    values = truth + np.sqrt(variance) * rng.laplace(size=shape)
    if draw(st.booleans()):
        values = np.rint(values)
    if far and draw(st.integers(0, 9)) == 0:
        values[tree.leaves] -= 100.0 * np.sqrt(variance[tree.leaves])
    if unmeasured and draw(st.booleans()):
        hidden = rng.random(shape) < draw(st.sampled_from([0.1, 0.5]))
        if not unmeasured_leaves:
            hidden[tree.leaves] = False
        hidden[0] &= tree.n_nodes > 1
        variance[hidden], values[hidden] = np.inf, np.nan
    if exact and draw(st.booleans()):
        known = rng.random(shape) < draw(st.sampled_from([0.1, 0.4]))
        if draw(st.booleans()):
            known[:] = False
            known[tree.level(draw(st.integers(0, tree.n_levels - 1)))] = True
        variance[known], values[known] = 0.0, truth[known]
    if np.isinf(variance).all():
        variance[0], values[0] = 1.0, truth[0]
    return Case(tree, values, variance, truth)


def membership(tree: Tree) -> FloatArray:
    """M (nodes x leaves) with M x_leaves = x."""
    return tree.aggregate(np.eye(tree.n_leaves)).T.copy()


def _solve(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Gauss-Jordan in fractions; redundant consistent rows are dropped, free unknowns are 0."""
    rows = [[*line, b] for line, b in zip(matrix, right, strict=True)]
    n = len(matrix[0])
    pivots: list[int] = []
    for column in range(n):
        at = len(pivots)
        pivot = next((k for k in range(at, len(rows)) if rows[k][column]), None)
        if pivot is None:
            continue
        rows[at], rows[pivot] = rows[pivot], rows[at]
        inverse = 1 / rows[at][column]
        rows[at] = [inverse * a for a in rows[at]]
        for k, line in enumerate(rows):
            if k != at and line[column]:
                factor = line[column]
                rows[k] = [a - factor * b for a, b in zip(line, rows[at], strict=True)]
        pivots.append(column)
    solution = [Fraction(0)] * n
    for row, column in enumerate(pivots):
        solution[column] = rows[row][-1]
    return solution


def nnls_tree(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    """The whole-tree program in the leaves' coordinates, by Lawson and Hanson's active sets."""
    measured = np.isfinite(v)
    root = np.sqrt(1.0 / v[measured])
    leaves, _ = nnls(membership(tree)[measured] * root[:, None], y[measured] * root, maxiter=10_000)
    return tree.aggregate(leaves)


LARGE = Fraction(10) ** 30
"""What stands for an infinite variance at a leaf: its limit, and so the solution of least norm."""


def exact_least_squares(y: FloatArray, v: FloatArray, tree: Tree, zero: frozenset[int] = frozenset()) -> list[Fraction]:
    """argmin sum (x_i - y_i)^2 / v_i over consistent x with the leaves ``zero`` at 0, in fractions; (nodes,).

    In the leaves' coordinates: H x = b with multipliers for the exact nodes.
    """
    first, n = tree.leaves.start, tree.n_leaves
    member = [[int(a) for a in line] for line in membership(tree)]
    hessian = [[Fraction(0)] * n for _ in range(n)]
    right = [Fraction(0)] * n
    constraints: list[tuple[list[int], Fraction]] = []
    for node, line in enumerate(member):
        below = [k for k in range(n) if line[k]]
        if v[node] == 0:
            constraints.append((line, Fraction(float(y[node]))))
            continue
        if np.isinf(v[node]):
            if node < first:
                continue
            weight, value = 1 / LARGE, Fraction(0)
        else:
            weight, value = 1 / Fraction(float(v[node])), Fraction(float(y[node]))
        for i in below:
            right[i] += weight * value
            for j in below:
                hessian[i][j] += weight
    constraints += [([int(k == leaf) for k in range(n)], Fraction(0)) for leaf in sorted(zero)]
    m = len(constraints)
    system = [hessian[i] + [Fraction(line[i]) for line, _ in constraints] for i in range(n)]
    system += [[*map(Fraction, line), *[Fraction(0)] * m] for line, _ in constraints]
    leaves = _solve(system, right + [value for _, value in constraints])[:n]
    return [sum((x for x, inside in zip(leaves, line, strict=True) if inside), Fraction(0)) for line in member]


def exact_variance(v: FloatArray, tree: Tree) -> list[Fraction]:
    """Variance of every node of `exact_least_squares`: the columns of its linear map, squared, in fractions."""
    total = [Fraction(0)] * tree.n_nodes
    for node in np.flatnonzero((v > 0) & np.isfinite(v)):
        unit = np.zeros(tree.n_nodes)
        unit[node] = 1.0
        column = exact_least_squares(unit, v, tree)
        scale = Fraction(float(v[node]))
        total = [t + scale * c * c for t, c in zip(total, column, strict=True)]
    return total


def extreme(seed: int) -> Case:
    """One cell whose variances differ by up to 12 orders of magnitude, with values of up to 2^52.

    By level, by node, or two kinds; whole or not; values far below 0, unmeasured nodes, exact ones (the truth).
    """
    rng = np.random.default_rng(seed)
    tree = _shape(rng)
    n, leaves = tree.n_nodes, tree.n_leaves
    size = 2.0 ** rng.uniform(0, 52) / leaves
    kinds = [
        lambda: np.floor(size * rng.random(leaves)),
        lambda: np.floor(2.0 ** (rng.random(leaves) * np.log2(max(size, 1)))),
        lambda: np.floor(size * (rng.random(leaves) < 0.1)),
        lambda: rng.poisson(0.5, leaves).astype(np.float64),
    ]
    truth = tree.aggregate(kinds[rng.integers(len(kinds))]())
    levels = np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))
    spreads = [
        lambda: 10.0 ** rng.uniform(-6, 6, n),
        lambda: (10.0 ** rng.uniform(-6, 6, tree.n_levels))[levels],
        lambda: 10.0 ** rng.uniform(-2, 10, n),
        lambda: np.where(rng.random(n) < 0.5, 1e-6, 1e6),
    ]
    variance = spreads[rng.integers(len(spreads))]()
    values = truth + np.sqrt(variance) * rng.laplace(size=n)
    if rng.random() < 0.5:
        values = np.rint(values)
    if rng.random() < 0.1:
        values[tree.leaves] -= 100.0 * np.sqrt(variance[tree.leaves])
    values = np.clip(values, -(2.0**53), 2.0**53)
    if rng.random() < 0.4:
        hidden = rng.random(n) < rng.choice([0.1, 0.5])
        hidden[0] &= n > 1
        variance[hidden], values[hidden] = np.inf, np.nan
    if rng.random() < 0.4:
        known = rng.random(n) < rng.choice([0.1, 0.4])
        variance[known], values[known] = 0.0, truth[known]
    if np.isinf(variance).all():
        variance[0], values[0] = 1.0, truth[0]
    return Case(tree, values[:, None], variance[:, None], truth[:, None])


def _shape(rng: np.random.Generator) -> Tree:
    kind = rng.integers(4)
    if kind == 0:
        return Tree.from_family_sizes([[int(rng.integers(1, 400))]])
    if kind == 1:
        return Tree.from_family_sizes([[3], [int(rng.integers(1, 300)), 1, int(rng.integers(1, 9))]])
    sizes: list[np.ndarray] = []
    for _ in range(int(rng.integers(1, 6))):
        family = rng.integers(1, 5, int(sizes[-1].sum()) if sizes else 1)
        if family.sum() > 200:
            break
        sizes.append(family)
    return Tree.from_family_sizes(sizes)
