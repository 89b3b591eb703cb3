"""Classifiers that distinguish synthetic from original records: trees, logistic regression, a fixed partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from topdown.errors import ConfigError
from topdown.research.pmse.columns import Columns, FloatArray
from topdown.wording import column_names, shown

IntArray = npt.NDArray[np.int64]

KnownNull = Literal["partition", "regression"]
"""The names of the formulas for the expected pMSE of two samples of one law."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a classifier: for every record the ``probability`` of being synthetic.

    ``leaf``: the part of a partition in which every record lies, None where there is no partition; ``describe`` has a
    text for each part. ``parameters``: for a fixed partition its parts, for a regression the coefficients with the
    intercept.
    """

    probability: FloatArray = field(repr=False)
    leaf: IntArray | None = field(default=None, repr=False)
    describe: tuple[str, ...] = field(default=(), repr=False)
    parameters: int = 0


class Classifier(Protocol):
    """A rule that learns the labels of records and predicts their probabilities."""

    @property
    def known_null(self) -> KnownNull | None:
        """The formula for the expected pMSE of two samples of one law; None where only permutation gives it."""
        ...

    def fit(self, columns: Columns, labels: IntArray) -> Fit:
        """Learn ``labels`` (1 synthetic, 0 original) from ``columns``."""
        ...


@dataclass(frozen=True, slots=True)
class CART:
    """A classification tree grown greedily by Gini impurity, with probabilities from its leaves' proportions.

    ``depth``: the most splits on a path, None for rpart's limit of 30. ``cp``: rpart's complexity parameter: with the
    root's risk R, the tree is the smallest that minimises risk + cp R x (number of leaves). ``pruning`` says which
    risk: "class" is rpart's, the share of misclassified records (root: 1/2 for data sets of one size); "gini" is
    scikit-learn's, the mean Gini impurity, with ``ccp_alpha`` = cp R (root: 1/2 as well, so ccp_alpha = cp / 2).
    ``min_split`` and ``min_leaf``: records that a node needs to be split, and that a leaf keeps; rpart's 20 and 7.
    A category is split off one against the rest, where rpart would group categories.

    Greedy trees are not globally optimal, and their pMSE has no proven sensitivity below 1/4: see `PMSEMechanism`.

    Source: Breiman, Friedman, Olshen, Stone, "Classification and Regression Trees"; Therneau, Atkinson, "An
    Introduction to Recursive Partitioning Using the RPART Routines", section 4; scikit-learn's DecisionTreeClassifier.
    """

    depth: int | None = None
    cp: float = 0.01
    pruning: Literal["class", "gini"] = "class"
    min_split: int = 20
    min_leaf: int = 7
    known_null: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise ConfigError(f"depth {self.depth}: give 1 or more, or None for no limit")
        if not 0 <= self.cp < 1:
            raise ConfigError(f"cp {self.cp}: give a share of the root's risk, at least 0 and below 1")
        if self.pruning not in ("class", "gini"):
            raise ConfigError(f"pruning {self.pruning!r}: give 'class' (rpart's) or 'gini' (scikit-learn's)")
        if self.min_split < 2 or self.min_leaf < 1:
            raise ConfigError(f"min_split {self.min_split}, min_leaf {self.min_leaf}: give at least 2 and 1")

    @property
    def ccp_alpha(self) -> float:
        """``cp`` in scikit-learn's terms, for data sets of one size: cp times the root's risk of 1/2."""
        return self.cp / 2

    def fit(self, columns: Columns, labels: IntArray) -> Fit:
        """Grow on all records and prune; a leaf's probability is its share of synthetic records."""
        from topdown.research.pmse.cart_kernel import grow, sorted_order

        values = np.ascontiguousarray(columns.matrix.T, dtype=np.float32)
        labels = np.asarray(labels, dtype=np.int64)
        n_synthetic = int(labels.sum())
        price = self.cp * min(n_synthetic, len(labels) - n_synthetic) if self.pruning == "class" else -1.0
        left, right, feature, threshold, n_rows, synthetic_rows, leaf_of = grow(
            values, sorted_order(values), labels, self.depth or 30, self.min_split, self.min_leaf, price
        )
        rows, synthetic = n_rows.astype(np.float64), synthetic_rows.astype(np.float64)
        risk = np.minimum(synthetic, rows - synthetic)
        if self.pruning == "gini":
            risk = 2 * synthetic * (rows - synthetic) / rows
        above = prune_tree(left, right, risk, self.cp * risk[0])
        is_end = np.zeros(len(above), dtype=bool)
        is_end[above[leaf_of]] = True
        ends = np.flatnonzero(is_end)
        leaf: IntArray = (np.cumsum(is_end) - 1)[above[leaf_of]]
        paths = _paths(np.where(is_end, -1, left), right, feature, threshold, columns.features)
        return Fit(synthetic[ends][leaf] / rows[ends][leaf], leaf, tuple(paths[int(k)] for k in ends), len(ends))

    def pmse_of_arrays(self, original: FloatArray, synthetic: FloatArray) -> float:
        """The pMSE of two arrays (records x columns) of finite numbers by class pruning; no leaf is described."""
        from topdown.research.pmse.cart_kernel import pruned_pmse, sorted_order

        values = np.ascontiguousarray(np.concatenate([original, synthetic]).T, dtype=np.float32)
        labels = np.repeat([0, 1], [len(original), len(synthetic)])
        prices = np.array([self.cp * min(len(original), len(synthetic))])
        depths = np.array([self.depth or 30])
        found = pruned_pmse(values, sorted_order(values), labels, depths, prices, self.min_split, self.min_leaf)
        return float(found[0, 0])


def prune_tree(left: IntArray, right: IntArray, risk: FloatArray, price: float) -> IntArray:
    """For every node the leaf that it is part of in the smallest subtree of least risk + price x leaves."""
    n_nodes = len(left)
    cost = risk + price
    is_leaf = left < 0
    # Children have larger numbers than their parent. A split must gain more than the rounding of the sums.
    for node in range(n_nodes - 1, -1, -1):
        if left[node] >= 0:
            split = cost[left[node]] + cost[right[node]]
            if split < cost[node] * (1 - 1e-12):
                cost[node] = split
            else:
                is_leaf[node] = True
    above = np.arange(n_nodes)
    for node in range(n_nodes):
        if left[node] >= 0 and (is_leaf[node] or above[node] != node):
            above[left[node]] = above[right[node]] = above[node]
    return above


def _paths(
    left: IntArray, right: IntArray, feature: IntArray, threshold: FloatArray, features: tuple[str, ...]
) -> dict[int, str]:
    """The conditions that lead to every node, in words, but to none below a node without children."""
    words = {0: ""}
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if left[node] >= 0:
            name, cut = features[feature[node]], threshold[node]
            both = (f"not {name}", name) if " = " in name else (f"{name} <= {cut:.6g}", f"{name} > {cut:.6g}")
            for child, word in zip((int(left[node]), int(right[node])), both, strict=True):
                words[child] = f"{words[node]} and {word}" if words[node] else word
                waiting.append(child)
    return {node: word or "everything" for node, word in words.items()}


@dataclass(frozen=True, slots=True)
class Logistic:
    """Logistic regression by maximum likelihood on an intercept and every column, without a penalty.

    ``interactions``: whether the products of the features of every two columns take part. Continuous columns are
    centred and scaled, which changes no probability; directions that depend on others are left out, so that ``k`` is
    the rank.
    """

    interactions: bool = True
    known_null: ClassVar[KnownNull] = "regression"

    def fit(self, columns: Columns, labels: IntArray) -> Fit:
        """Fit by Newton's method on an orthonormal basis of the design."""
        design = self._design(columns)
        left, sizes, _ = np.linalg.svd(design, full_matrices=False)
        basis = left[:, sizes > sizes[0] * 1e-9]
        return Fit(_newton(basis, labels), parameters=basis.shape[1])

    def _design(self, columns: Columns) -> FloatArray:
        deviation = columns.matrix.std(axis=0)
        scaled = (columns.matrix - columns.matrix.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
        pieces = [np.ones(len(scaled)), *scaled.T]
        if self.interactions:
            pairs = [(i, j) for i in range(scaled.shape[1]) for j in range(i) if columns.source[i] != columns.source[j]]
            pieces.extend(scaled[:, i] * scaled[:, j] for i, j in pairs)
        return np.column_stack(pieces)


def _newton(basis: FloatArray, labels: IntArray) -> FloatArray:
    """Probabilities of the logistic regression with the greatest likelihood; under separation, nearly 0 and 1."""
    sign = 2.0 * labels - 1.0
    weights = np.zeros(basis.shape[1])

    def loss(at: FloatArray) -> float:
        return float(np.logaddexp(0.0, -sign * (basis @ at)).sum())

    value = loss(weights)
    for _ in range(60):
        probability = 1.0 / (1.0 + np.exp(-np.clip(basis @ weights, -35.0, 35.0)))
        gradient = basis.T @ (labels - probability)
        curvature = (basis * (probability * (1 - probability))[:, None]).T @ basis
        step = np.linalg.solve(curvature + 1e-12 * np.eye(len(weights)), gradient)
        length = 1.0
        while length > 1e-6 and loss(weights + length * step) > value:
            length /= 2
        weights = weights + length * step
        before, value = value, loss(weights)
        if before - value <= 1e-12 * len(labels):
            break
    fitted: FloatArray = 1.0 / (1.0 + np.exp(-np.clip(basis @ weights, -35.0, 35.0)))
    return fitted


@dataclass(frozen=True, slots=True)
class Cells:
    """A fixed partition: every combination of the values of ``columns`` (by default all) is a part.

    It does not depend on the labels, so that its pMSE is Pearson's chi-square in other units. For categorical columns.
    """

    columns: tuple[str, ...] | None = None
    known_null: ClassVar[KnownNull] = "partition"

    def fit(self, columns: Columns, labels: IntArray) -> Fit:
        """The share of synthetic records in every combination that occurs."""
        chosen = list(columns.frame.columns) if self.columns is None else list(self.columns)
        for name in chosen:
            if name not in columns.frame.columns:
                raise ConfigError(f"no column {shown(name)}; there are {column_names(columns.frame.columns)}")
        frame = columns.frame[chosen].astype("string").fillna("missing")
        codes: IntArray = frame.groupby(chosen, sort=True).ngroup().to_numpy().astype(np.int64)
        rows = np.bincount(codes)
        synthetic = np.bincount(codes, weights=labels)
        first = frame.iloc[pd.Series(codes).drop_duplicates().index]
        words = {
            code: ", ".join(f"{n} = {v}" for n, v in zip(chosen, row, strict=True))
            for code, row in zip(codes[first.index], first.itertuples(index=False), strict=True)
        }
        share: FloatArray = synthetic / rows
        return Fit(share[codes], codes, tuple(words[k] for k in range(len(rows))), len(rows))
