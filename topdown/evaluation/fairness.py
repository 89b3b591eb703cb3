"""Who is favoured: errors by family size, by group of units, and in decisions taken on the released counts.

Pure functions of an `ErrorTable` or of arrays of replicates. A projection may be fair on average and not to everybody:
it treats units by the size of their family and by how small their counts are, and decisions that are taken on the
counts pass this on.

Sources: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy" (family size);
Tran, Fioretto, Van Hentenryck, Yao, "Decision Making with Differential Privacy under a Fairness Lens" (alpha-fairness,
allotments and thresholds).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from topdown.errors import ConfigError
from topdown.evaluation.errors_table import ErrorTable
from topdown.evaluation.fairness_decisions import (
    PER_MILLION,
    ShareErrors,
    decisions_by_group,
    flip_probability,
    flips,
    fund,
    money_moved,
    share_errors,
)
from topdown.evaluation.noise_laws import family_variance
from topdown.evaluation.tree_variance import topdown_equality_variance
from topdown.projection.equality import least_squares_variance
from topdown.tree import FloatArray, Tree
from topdown.wording import listed, shown

__all__ = [
    "PER_MILLION",
    "SIZE_EDGES",
    "GroupMean",
    "LargestGap",
    "ShareErrors",
    "alpha_fairness",
    "by_family",
    "by_group",
    "decisions_by_group",
    "errors_by_group",
    "family_pairs",
    "flip_probability",
    "flips",
    "fund",
    "largest_gap",
    "money_moved",
    "predicted_variance",
    "share_errors",
    "size_classes",
]

SIZE_EDGES = (10, 100, 1_000, 10_000, 100_000)
"""Counts at which one size class ends and the next begins."""


def alpha_fairness(bias: npt.ArrayLike, groups: Any = None) -> float:
    """The smallest alpha for which a mechanism with ``bias`` is alpha-fair: max over pairs of |B_i - B_j|.

    ``bias`` (units,): the bias of every unit, or with ``groups`` (units,) labels, of which the means by group are then
    compared. In the units of ``bias``; 0 for a single unit.

    Raises `ConfigError` where there is no unit, a bias is not finite, or the lengths differ.

    Source: Tran, Fioretto, Van Hentenryck, Yao, "Decision Making with Differential Privacy under a Fairness Lens",
    the definition of alpha-fairness.
    """
    values = np.atleast_1d(np.asarray(bias, dtype=np.float64)).reshape(-1)
    if values.size == 0 or not np.isfinite(values).all():
        raise ConfigError(f"bias of {values.size} units must be there and finite; leave out units without a bias")
    if groups is not None:
        _, code = _codes(groups, values.size)
        values = np.bincount(code, values) / np.bincount(code)
    return float(values.max() - values.min())


def size_classes(counts: npt.ArrayLike, edges: Sequence[float] = SIZE_EDGES) -> list[str]:
    """The size class of every one of ``counts``, as "10 to 99", a class from each of ``edges`` to below the next.

    Raises `ConfigError` unless ``edges`` are positive and strictly increasing.
    """
    bounds = np.asarray(edges, dtype=np.float64)
    if bounds.size == 0 or (bounds <= 0).any() or (np.diff(bounds) <= 0).any():
        raise ConfigError(f"size classes {list(edges)}: give increasing counts above 0, such as 10, 100, 1000")
    labels = [f"below {bounds[0]:,.10g}"]
    labels += [f"{a:,.10g} to {b - 1:,.10g}" for a, b in itertools.pairwise(bounds)]
    labels.append(f"{bounds[-1]:,.10g} and more")
    return [labels[k] for k in np.searchsorted(bounds, np.asarray(counts, dtype=np.float64).reshape(-1), side="right")]


@dataclass(frozen=True, eq=False)
class GroupMean:
    """A rule for `simulate`: the mean count of ``cell`` over each leaf's group, so that a group's bias gets its exact
    Monte Carlo error, correlations between its units included.

    ``groups``: one label per leaf. ``name``: what the grouping is called.
    """

    cell: str
    name: str
    groups: tuple[str, ...] = field(repr=False)

    @property
    def label(self) -> str:
        """ "mean <cell> by <name>"."""
        return f"mean {self.cell} by {self.name}"

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """(..., leaves): at every leaf the mean over its group."""
        if self.cell not in cells:
            raise ConfigError(f"a group mean asks for cell {shown(self.cell)}, and the cells are {listed(cells)}")
        _, code = _codes(self.groups, tree.n_leaves)
        leaves = values[..., list(cells).index(self.cell), tree.leaves]
        order = np.argsort(code, kind="stable")
        size = np.bincount(code)
        sums = np.add.reduceat(leaves[..., order], np.concatenate([[0], np.cumsum(size)[:-1]]), axis=-1)
        return np.asarray((sums / size)[..., code])


def predicted_variance(table: ErrorTable, method: str) -> FloatArray:
    """The variance (nodes,) that theory gives every node's estimate, in counts squared; NaN where none is known.

    "raw": the noise's. "top-down/equality": level by level, v (1 - v / V) + (v / V)^2 var(parent) with V the sum over
    the family. "gls": the diagonal of the generalised least-squares covariance. Non-negative and rounded methods have
    no closed form.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Theorem 6
    applied down the tree.
    """
    noise, tree = table.noise_variance, table.geography.tree
    unknown = np.full(len(noise), np.nan)
    if method == "raw":
        return np.where(np.isfinite(noise), noise, np.nan)
    if method == "top-down/equality" and np.isfinite(noise).all():
        return topdown_equality_variance(tree.parent, noise)
    # On every tree the equality projection of the gls estimates is the gls estimate itself.
    if method in ("gls", "gls-top-down/equality", "joint/equality"):
        known = least_squares_variance(noise, tree)
        return np.where(np.isfinite(known), known, np.nan)
    return unknown


def by_family(table: ErrorTable, method: str) -> pd.DataFrame:
    """How much variance every family's children keep under ``method``; one row per family and cell.

    Columns ``geoid, name`` of the parent, ``level`` of the children, ``family_size``, ``cell``, ``noise_variance``
    (mean over the children), ``public_total`` (what the projection on a public total leaves, noise variance times
    (1 - 1/n)), ``predicted`` (`predicted_variance`, mean), ``measured``, ``measured_se`` and ``wasserstein``,
    ``wasserstein_floor`` (means over the children; the distance corrected for the floor where that is known).

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Theorem 6
    and its comparison of Arizona with Texas.
    """
    tree, geography = table.geography.tree, table.geography
    predicted = predicted_variance(table, method)
    corrected = table[method, "wasserstein_corrected"]
    distance = np.where(np.isfinite(corrected), corrected, table[method, "wasserstein"])
    frames = []
    for index, families in enumerate(tree.families_down()):
        n, children = families.sizes, families.children

        def mean(values: FloatArray, families: Any = families, n: Any = n) -> FloatArray:
            return np.asarray(families.total(values[families.children]) / n)

        noise = mean(table.noise_variance)
        parents = np.arange(families.parents.start, families.parents.stop)
        for column, cell in enumerate(table.cells):
            # Siblings' sample variances are almost uncorrelated: their correlation is that of the errors, squared.
            squared_se = table[method, "variance_se"][children, column] ** 2
            frames.append(
                pd.DataFrame(
                    {
                        "geoid": geography.identifiers.take(parents).to_pylist(),
                        "name": _names(table, parents),
                        "level": geography.levels[index + 1],
                        "family_size": n,
                        "cell": cell,
                        "noise_variance": noise,
                        "public_total": family_variance(noise, n.astype(np.float64)),
                        "predicted": mean(predicted),
                        "measured": mean(table[method, "variance"][:, column]),
                        "measured_se": np.sqrt(families.total(squared_se)) / n,
                        "wasserstein": mean(distance[:, column]),
                        "wasserstein_floor": mean(table[method, "wasserstein_floor"][:, column]),
                    }
                )
            )
    columns = ["geoid", "name", "level", "family_size", "cell", "noise_variance", "public_total", "predicted"]
    columns += ["measured", "measured_se", "wasserstein", "wasserstein_floor"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def family_pairs(families: pd.DataFrame, pairs: int = 3) -> pd.DataFrame:
    """The ``pairs`` of families of one level and cell that are treated most differently, by variance.

    ``families``: of `by_family`; ranked by predicted variance, or where there is none by measured. The first row
    sets the family with the least variance beside the one with the most, the second the next of either, and so on;
    columns ``level, cell``, and ``geoid, name, family_size, public_total, predicted, measured, measured_se`` with the
    suffixes ``_low`` and ``_high``, and ``ratio`` of the measured ones.
    """
    shown = ["geoid", "name", "family_size", "public_total", "predicted", "measured", "measured_se"]
    rows = []
    for (level, cell), part in families.groupby(["level", "cell"], sort=False):
        # Ranked by what is measured, the extremes would be chosen for their simulation error.
        ranked = part.sort_values("measured" if part["predicted"].isna().any() else "predicted", kind="stable")
        for k in range(min(pairs, len(ranked) // 2)):
            low, high = ranked.iloc[k], ranked.iloc[-1 - k]
            row = {"level": level, "cell": cell, **{f"{c}_low": low[c] for c in shown}}
            row |= {f"{c}_high": high[c] for c in shown}
            row["ratio"] = high["measured"] / low["measured"] if low["measured"] > 0 else np.inf
            rows.append(row)
    return pd.DataFrame(rows)


def by_group(
    table: ErrorTable,
    method: str,
    groups: Any,
    *,
    cell: str | None = None,
    name: str = "group",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Errors of ``method`` by group of leaves, with Monte Carlo confidence intervals; one row per cell and group.

    ``groups``: a label per leaf, in the geography's order. ``cell``: one cell, by default each. Columns ``cell, group,
    units, mean_truth``, and ``bias`` (mean of the units'), ``variance`` (mean), ``rmse`` (root of the mean squared
    error over units and replicates), ``relative_error`` (rmse over the mean true count, NaN where that is 0), each with
    ``_se``, ``_low``, ``_high``.

    A group's bias has its exact standard error where `simulate` followed `GroupMean` of this ``name``, cell and
    grouping; otherwise the units' errors are taken as uncorrelated, which siblings' are not: they add up to their
    parent's error, mostly far less than if they were, and the interval is then too wide.

    Raises `ConfigError` for an unknown method or cell, or labels that are not one per leaf.
    """
    titles = table.cells if cell is None else (cell,)
    if cell is not None and cell not in table.cells:
        raise ConfigError(f"no cell {shown(cell)} in the study; it has {listed(table.cells)}")
    labels, code = _codes(groups, table.geography.n_leaves)
    leaves, size = table.geography.tree.leaves, np.bincount(code)
    frames = []
    for title in titles:
        column = table.cells.index(title)

        def mean(values: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(code, values) / size)

        def leaf(statistic: str, column: int = column) -> FloatArray:
            return table[method, statistic][leaves, column]

        def pooled(statistic: str) -> FloatArray:
            return np.asarray(np.sqrt(np.bincount(code, leaf(statistic) ** 2)) / size)

        followed = table.rules.get((method, GroupMean(title, name, ()).label))
        bias, bias_se = mean(leaf("bias")), pooled("bias_se")
        if followed is not None and np.allclose(followed["mean_error"], bias[code], rtol=1e-6, atol=1e-9):
            bias_se = np.asarray(followed["mean_error_se"])[_first_of_each(code)]
        mse, mse_se = mean(leaf("mse")), pooled("mse_se")
        found = _with_intervals(
            mean(table.truth[leaves, column].astype(np.float64)),
            (bias, bias_se),
            (mean(leaf("variance")), pooled("variance_se")),
            (mse, mse_se),
            confidence,
        )
        frames.append(pd.DataFrame({"cell": title, "group": labels, "units": size, **found}))
    return pd.concat(frames, ignore_index=True)


def errors_by_group(
    errors: npt.ArrayLike, groups: Any, *, truth: npt.ArrayLike | None = None, confidence: float = 0.95
) -> pd.DataFrame:
    """The table of `by_group` (without ``cell``) from ``errors`` (replicates, units), estimate minus truth.

    ``truth`` (units,) gives mean_truth and relative_error. Standard errors come from the replicates' own group means,
    so correlations between units are in them. Raises `ConfigError` for fewer than two replicates.
    """
    e = np.asarray(errors, dtype=np.float64)
    if e.ndim != 2 or len(e) < 2:
        raise ConfigError(f"errors have shape {e.shape}; give (replicates, units) with two replicates or more")
    labels, code = _codes(groups, e.shape[1])
    size = np.bincount(code)
    member = np.zeros((e.shape[1], len(labels)))
    member[np.arange(e.shape[1]), code] = 1.0 / size[code]

    def of(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        means = values @ member
        return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(values))

    centred = (e - e.mean(axis=0)) ** 2 * (len(e) / (len(e) - 1.0))
    units = np.full(e.shape[1], np.nan) if truth is None else np.asarray(truth, dtype=np.float64)
    found = _with_intervals(units @ member, of(e), of(centred), of(e * e), confidence)
    return pd.DataFrame({"group": labels, "units": size, **found})


@dataclass(frozen=True)
class LargestGap:
    """The two groups that differ most: ``alpha`` = value of ``high`` minus value of ``low``, ``alpha_se`` its standard
    error taking the two as independent. The largest of many gaps is chosen for its noise too: below about 3 standard
    errors it says nothing."""

    alpha: float
    alpha_se: float
    low: str
    high: str


def largest_gap(groups: pd.DataFrame, statistic: str = "bias") -> LargestGap:
    """alpha-fairness between groups: max over pairs of |B_i - B_j| of ``statistic``, with the pair.

    ``groups``: rows of `by_group` (of one cell) or `decisions_by_group`. Raises `ConfigError` for no rows.
    """
    if len(groups) == 0:
        raise ConfigError("there is no group to compare; give a table with one row per group")
    ranked = groups.sort_values(statistic, kind="stable")
    low, high = ranked.iloc[0], ranked.iloc[-1]
    error = float(np.hypot(low[f"{statistic}_se"], high[f"{statistic}_se"])) if len(groups) > 1 else 0.0
    return LargestGap(alpha_fairness(groups[statistic].to_numpy()), error, str(low["group"]), str(high["group"]))


def _with_intervals(
    truth: FloatArray,
    bias: tuple[FloatArray, FloatArray],
    variance: tuple[FloatArray, FloatArray],
    mse: tuple[FloatArray, FloatArray],
    confidence: float,
) -> dict[str, FloatArray]:
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence is {shown(confidence)}; give a number between 0 and 1")
    z = float(ndtri((1.0 + confidence) / 2.0))
    root = np.sqrt(np.maximum(mse[0], 0.0))
    # d sqrt(m) = dm / (2 sqrt(m)).
    rmse = (root, np.divide(mse[1], 2.0 * root, out=np.zeros_like(root), where=root > 0))
    inverse = np.divide(1.0, truth, out=np.full_like(truth, np.nan), where=truth > 0)
    found = {"mean_truth": truth}
    named = {"bias": bias, "variance": variance, "rmse": rmse, "relative_error": (root * inverse, rmse[1] * inverse)}
    for name, (value, error) in named.items():
        found |= {name: value, f"{name}_se": error, f"{name}_low": value - z * error, f"{name}_high": value + z * error}
    return found


def _codes(groups: Any, units: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The labels in the order of their first appearance, and every unit's position among them."""
    given = [str(label) for label in groups]
    if len(given) != units:
        raise ConfigError(f"{len(given)} group labels for {units} units; give every unit one")
    labels = list(dict.fromkeys(given))
    position = {label: k for k, label in enumerate(labels)}
    return labels, np.array([position[label] for label in given], dtype=np.int64)


def _first_of_each(code: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.asarray(np.unique(code, return_index=True)[1], dtype=np.int64)


def _names(table: ErrorTable, nodes: npt.NDArray[np.int64]) -> list[str | None]:
    names = table.geography.names
    return [None] * len(nodes) if names is None else list(names.take(nodes).to_pylist())
