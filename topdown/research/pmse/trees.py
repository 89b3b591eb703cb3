"""Globally optimal classification trees of depth 1 and 2, exactly, and the sensitivity of their pMSE.

A tree is optimal when no tree of its depth has a smaller Gini impurity, which is the same as a greater pMSE: with m_i
rows in leaf i, a_i of them synthetic, the impurity is 1/2 - 2 pMSE for data sets of one size.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.research.pmse.classifiers import Fit
from topdown.research.pmse.columns import Columns, FloatArray

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cut:
    """A question: is ``feature`` at most ``threshold``?

    Args:
        feature: the number of the feature.
        threshold: the largest value for which the answer is yes.

    Examples:
        >>> td.synthesis.trees.Cut(feature=0, threshold=2.5).threshold
        2.5
    """

    feature: int
    threshold: float


@dataclass(frozen=True, slots=True)
class OptimalTree:
    """The best tree over all features and all thresholds between their values.

    With N rows, d features and at most K distinct values each, depth 1 takes O(d N log N) by sorted prefix sums; depth
    2 takes O(d^2 (N + K^2)) time, by prefix sums over pairs of features, and O(N + K) memory. Ties go to the first
    feature and the lowest threshold. A node whose records no cut divides stays a leaf. A category is split off one
    against the rest.

    The family of trees stays fixed, so that the sensitivity holds.

    Args:
        depth: 1 or 2.
        resolution: a public number, of which the thresholds of continuous features are then whole multiples; it
            makes K small, and depth 2 quick, for any number of records.

    Examples:
        >>> tree = td.synthesis.trees.OptimalTree(depth=1)
        >>> original, synthetic = np.array([[1.0], [2.0], [3.0]]), np.array([[2.0], [3.0], [4.0]])
        >>> round(td.synthesis.pmse.pmse(original, synthetic, tree, null=None).value, 4)
        0.05
    """

    depth: int = 1
    resolution: float | None = None
    known_null: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.depth not in (1, 2):
            raise ConfigError(f"depth {self.depth!r}: exact optimal trees have depth 1 or 2; use CART for deeper ones")
        if self.resolution is not None and not 0 < self.resolution < math.inf:
            raise ConfigError(
                f"resolution {self.resolution!r}: give a number above 0, in the units of the data, or None"
            )

    def fit(self, columns: Columns, labels: IntArray) -> Fit:
        """The optimal tree's probabilities for rows of ``columns`` with ``labels`` of 0 or 1."""
        matrix = columns.matrix
        if self.resolution is not None:
            # x <= t for a multiple t exactly when the next multiple above x is.
            matrix = np.where(columns.continuous, np.ceil(matrix / self.resolution) * self.resolution, matrix)
        leaf, cuts = optimal_partition(matrix, labels, self.depth)
        rows = np.bincount(leaf, minlength=len(cuts))
        share = np.bincount(leaf, weights=labels, minlength=len(cuts)) / np.maximum(rows, 1)
        return Fit(share[leaf], leaf, tuple(_words(path, columns.features) for path in cuts), len(cuts))


def optimal_partition(
    matrix: FloatArray, labels: IntArray, depth: int
) -> tuple[IntArray, list[list[tuple[Cut, bool]]]]:
    """(leaf of every row, by leaf the questions that lead to it and whether the answer is no).

    Args:
        matrix: (rows x features).
        labels: (rows,) 0 or 1.
        depth: 1 or 2.

    Examples:
        >>> matrix, labels = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([0, 0, 1, 1])
        >>> leaf, paths = td.synthesis.trees.optimal_partition(matrix, labels, 1)
        >>> leaf
        array([0, 0, 1, 1])
    """
    share = float(labels.mean())
    labels = labels.astype(np.int64)
    coded = [np.unique(column, return_inverse=True) for column in matrix.T]
    values = [one[0] for one in coded]
    codes = [one[1].astype(np.int64) for one in coded]
    root = _best_stump(codes, values, labels, share) if depth == 1 else _best_root(codes, values, labels, share)
    if root is None:
        return np.zeros(len(labels), dtype=np.int64), [[]]
    above = matrix[:, root.feature] > root.threshold
    if depth == 1:
        return above.astype(np.int64), [[(root, False)], [(root, True)]]
    leaf = np.zeros(len(labels), dtype=np.int64)
    paths: list[list[tuple[Cut, bool]]] = []
    for side in (False, True):
        rows = np.flatnonzero(above == side)
        part = [np.unique(column, return_inverse=True) for column in matrix[rows].T]
        cut = _best_stump([p[1] for p in part], [p[0] for p in part], labels[rows], share)
        if cut is None:
            leaf[rows] = len(paths)
            paths.append([(root, side)])
        else:
            leaf[rows] = len(paths) + (matrix[rows, cut.feature] > cut.threshold)
            paths.extend([[(root, side), (cut, False)], [(root, side), (cut, True)]])
    return leaf, paths


def _gain(rows: npt.NDArray[Any], synthetic: npt.NDArray[Any], share: float) -> FloatArray:
    """What a leaf adds to N pMSE: (a - c m)^2 / m, 0 for an empty one."""
    found: FloatArray = (synthetic - share * rows) ** 2 / np.maximum(rows, 1)
    return found


def _best_stump(codes: list[IntArray], values: list[FloatArray], labels: IntArray, share: float) -> Cut | None:
    """The one cut of greatest pMSE; None where no feature has two values."""
    total, synthetic = len(labels), float(labels.sum())
    best, cut = -1.0, None
    for feature, (code, known) in enumerate(zip(codes, values, strict=True)):
        if len(known) < 2:
            continue
        m = np.cumsum(np.bincount(code, minlength=len(known)))[:-1].astype(np.float64)
        a = np.cumsum(np.bincount(code, weights=labels, minlength=len(known)))[:-1]
        gain = _gain(m, a, share) + _gain(total - m, synthetic - a, share)
        at = int(np.argmax(gain))
        if gain[at] > best:
            best, cut = float(gain[at]), Cut(feature, _between(known[at], known[at + 1]))
    return cut


def _between(low: float, high: float) -> float:
    """A threshold that is at least ``low`` and below ``high``, also where they are neighbouring floats."""
    middle = low + (high - low) / 2
    return float(middle) if low <= middle < high else float(low)


def _best_root(codes: list[IntArray], values: list[FloatArray], labels: IntArray, share: float) -> Cut | None:
    """The first cut of a best tree of depth 2: its gain is the best stump's below plus the best stump's above."""
    from topdown.research.pmse.tree_kernel import improve

    best, cut = -1.0, None
    for feature, (code, known) in enumerate(zip(codes, values, strict=True)):
        if len(known) < 2:
            continue
        below, above = np.full((2, len(known) - 1), -1.0)
        rows = np.argsort(code, kind="stable")
        for other, other_values in zip(codes, values, strict=True):
            improve(below, above, code[rows], other[rows], labels[rows], len(other_values), share)
        gain = below + above
        at = int(np.argmax(gain))
        if gain[at] > best:
            best, cut = float(gain[at]), Cut(feature, _between(known[at], known[at + 1]))
    return cut


def _words(path: list[tuple[Cut, bool]], features: tuple[str, ...]) -> str:
    return (
        " and ".join(f"{features[cut.feature]} {'>' if no else '<='} {cut.threshold:.6g}" for cut, no in path)
        or "everything"
    )


def optimal_tree_sensitivity(n: int, n_synthetic: int | None = None) -> Fraction:
    """How far one original record can move the pMSE of an optimal tree: 1/(2 (n + 1)) where there are as many synthetic
    ones.

    For substitution, and any fixed family of partitions over which the greatest pMSE is taken, such as all trees of a
    depth. A record that changes its leaf carries label 0, so that of a leaf's m rows at most m - 1 are synthetic, and
    one partition's pMSE moves by at most s/((s + 1)(n + s)) with s synthetic records. It is attained for every n and s,
    by a leaf with all synthetic records and one original. The source's Theorem 4.1 gives 1/n: see `paper_sensitivity`.

    Args:
        n: the number of original records.
        n_synthetic: the number of synthetic records; n by default.

    Examples:
        >>> td.synthesis.trees.optimal_tree_sensitivity(99)
        Fraction(1, 200)
    """
    size = _records(n)
    s = size if n_synthetic is None else _records(n_synthetic)
    return Fraction(s, (s + 1) * (size + s))


def paper_sensitivity(n: int) -> Fraction:
    """The bound of the source, 1/n (Theorem 4.1).

    Args:
        n: the number of original records.

    Examples:
        >>> td.synthesis.trees.paper_sensitivity(100)
        Fraction(1, 100)
    """
    return Fraction(1, _records(n))


def _records(n: int) -> int:
    try:
        size = operator.index(n)
    except TypeError:
        raise ConfigError(f"n {n!r}: give a whole number of records") from None
    if size < 1:
        raise ConfigError(f"n is {size}; give 1 or more")
    return size
