"""Who is favoured: errors by family size, by group of units, and in decisions taken on the released counts.

Pure functions of an `ErrorTable` or of arrays of replicates. A projection may be fair on average but not to every unit:
errors depend on the size of the family and on the size of the count, and decisions on released counts inherit this.

Sources: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy" (family size);
Tran, Fioretto, Van Hentenryck, Yao, "Decision Making with Differential Privacy under a Fairness Lens" (alpha-fairness,
allotments and thresholds).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from topdown.errors import ConfigError, require_probability
from topdown.geography.tree import FloatArray
from topdown.studies.decisions.fairness_decisions import (
    PER_MILLION,
    Flipped,
    ShareErrors,
    decisions_by_group,
    flip_probability,
    flipped,
    flips,
    fund,
    money_moved,
    share_errors,
)
from topdown.studies.decisions.rules import GroupMean
from topdown.studies.errors_table import ErrorTable
from topdown.studies.fairness_families import by_family, family_pairs, predicted_variance
from topdown.studies.unit_groups import Groups
from topdown.wording import listed, shown

__all__ = [
    "PER_MILLION",
    "SIZE_CLASS",
    "SIZE_EDGES",
    "Flipped",
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
    "flipped",
    "flips",
    "fund",
    "largest_gap",
    "money_moved",
    "predicted_variance",
    "share_errors",
    "size_class_names",
    "size_classes",
]

SIZE_CLASS = "size class"
"""The name of the grouping that every study has: by the size of the count."""

SIZE_EDGES = (10, 100, 1_000, 10_000, 100_000)
"""Counts at which one size class ends and the next begins."""


def alpha_fairness(bias: npt.ArrayLike, groups: Any = None) -> float:
    """The smallest alpha for which a mechanism with ``bias`` is alpha-fair: max over pairs of |B_i - B_j|.

    In the units of ``bias``; 0 for a single unit.

    Args:
        bias: (units,) the bias of every unit.
        groups: (units,) labels; where they are given, the means of the groups are compared in place of units.

    Raises `ConfigError` where there is no unit, a bias is not finite, or the lengths differ.

    Source: Tran, Fioretto, Van Hentenryck, Yao, "Decision Making with Differential Privacy under a Fairness Lens",
    the definition of alpha-fairness.

    Examples:
        >>> td.fairness.alpha_fairness([0.5, -0.25, 2.0])
        2.25
    """
    values = np.atleast_1d(np.asarray(bias, dtype=np.float64)).reshape(-1)
    if values.size == 0 or not np.isfinite(values).all():
        raise ConfigError(f"bias of {values.size} units must be there and finite; leave out units without a bias")
    if groups is not None:
        values = Groups.of(groups, (), values.size).mean(values)
    return float(values.max() - values.min())


def size_classes(counts: npt.ArrayLike, edges: Sequence[float] = SIZE_EDGES) -> list[str]:
    """The size class of every count, such as "10 to 99".

    Args:
        counts: (units,) counts of 0 or more.
        edges: every class reaches from one of these to below the next; the first class begins at 0.

    Raises `ConfigError` unless ``edges`` are positive and strictly increasing.

    Examples:
        >>> td.fairness.size_classes([3, 12, 140], [10, 100])
        ['below 10', '10 to 99', '100 and more']
    """
    labels = size_class_names(edges)
    values = np.asarray(counts, dtype=np.float64).reshape(-1)
    return [labels[k] for k in np.searchsorted(np.asarray(edges, dtype=np.float64), values, side="right")]


def size_class_names(edges: Sequence[float] = SIZE_EDGES) -> list[str]:
    """The labels of `size_classes`, from small to large. Raises `ConfigError` as it does.

    Args:
        edges: as of `size_classes`.

    Examples:
        >>> td.fairness.size_class_names([10, 100])
        ['below 10', '10 to 99', '100 and more']
    """
    bounds = np.asarray(edges, dtype=np.float64)
    if bounds.size == 0 or not np.isfinite(bounds).all() or not (np.diff(bounds, prepend=0) > 0).all():
        raise ConfigError(f"size classes {list(edges)}: give increasing counts above 0, such as 10, 100, 1000")
    labels = [f"below {bounds[0]:,.10g}"]
    labels += [f"{a:,.10g} to {b - 1:,.10g}" for a, b in itertools.pairwise(bounds)]
    return [*labels, f"{bounds[-1]:,.10g} and more"]


def by_group(
    table: ErrorTable,
    method: str,
    groups: Any,
    *,
    cell: str | None = None,
    name: str = "group",
    weights: Sequence[float] = (),
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Errors of a method by group of leaves, with Monte Carlo confidence intervals; one row per cell and group.

    Columns ``cell, group, units, mean_truth``, and ``bias`` (mean of the units'), ``variance`` (mean), ``rmse``
    (root of the mean squared error over units and replicates), ``relative_error`` (rmse over the mean true count,
    NaN where that is 0), each with ``_se``, ``_low``, ``_high``.

    A group's bias has its exact standard error where `simulate` followed `GroupMean` of this ``name``, cell, grouping
    and weights; otherwise the units' errors are assumed uncorrelated. Errors of siblings are negatively correlated,
    since they add up to the small error of their parent, so that the interval is then too wide.

    Args:
        table: what `simulate` returned.
        method: the label of one of its methods.
        groups: a label per leaf, in the geography's order.
        cell: one cell, by default each.
        name: of the grouping, as `GroupMean` has it.
        weights: a number of 0 or more per leaf, by which the means over its group are weighted, such as how many
            people of a kind live there; all alike where there are none.
        confidence: of the intervals, between 0 and 1.

    Raises `ConfigError` for an unknown method or cell, or labels or weights that are not one per leaf.

    Examples:
        >>> groups = td.fairness.by_group(study, "top-down", ["east", "west", "east", "west"], cell="employed")
        >>> groups[["group", "units", "mean_truth"]]
          group  units  mean_truth
        0  east      2        24.0
        1  west      2        72.5
    """
    titles = table.cells if cell is None else (cell,)
    if cell is not None and cell not in table.cells:
        raise ConfigError(f"no cell {shown(cell)} in the study; it has {listed(table.cells)}")
    group = Groups.of(groups, weights, table.geography.n_leaves)
    leaves = table.geography.tree.leaves
    frames = []
    for title in titles:
        column = table.cells.index(title)

        def leaf(statistic: str, column: int = column) -> FloatArray:
            return table[method, statistic][leaves, column]

        followed = table.rules.get((method, GroupMean(title, name, ()).label))
        bias, bias_se = group.mean(leaf("bias")), group.pooled(leaf("bias_se"))
        if followed is not None and np.allclose(followed["mean_error"], bias[group.code], rtol=1e-6, atol=1e-9):
            bias_se = group.of_each(np.asarray(followed["mean_error_se"]))
        found = _with_intervals(
            group.mean(table.truth[leaves, column]),
            (bias, bias_se),
            (group.mean(leaf("variance")), group.pooled(leaf("variance_se"))),
            (group.mean(leaf("mse")), group.pooled(leaf("mse_se"))),
            confidence,
        )
        frames.append(pd.DataFrame({"cell": title, "group": group.labels, "units": group.size, **found}))
    return pd.concat(frames, ignore_index=True)


def errors_by_group(
    errors: npt.ArrayLike,
    groups: Any,
    *,
    truth: npt.ArrayLike | None = None,
    weights: Sequence[float] = (),
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The table of `by_group` (without ``cell``) from an array of errors.

    Standard errors come from the replicates' own group means, so correlations between units are in them. Raises
    `ConfigError` for fewer than two replicates.

    Args:
        errors: (replicates, units) estimate minus truth.
        groups: a label per unit.
        truth: (units,) the true counts, for ``mean_truth`` and ``relative_error``; without it these are NaN.
        weights: as of `by_group`.
        confidence: of the intervals, between 0 and 1.

    Examples:
        >>> errors = [[1.0, -1.0, 2.0], [3.0, -1.0, 0.0]]  # two replicates, three units
        >>> td.fairness.errors_by_group(errors, ["a", "a", "b"])[["group", "bias"]]
          group  bias
        0     a   0.5
        1     b   1.0
    """
    e = np.asarray(errors, dtype=np.float64)
    if e.ndim != 2 or len(e) < 2:
        raise ConfigError(f"errors have shape {e.shape}; give (replicates, units) with two replicates or more")
    group = Groups.of(groups, weights, e.shape[1])

    def of(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        means = group.mean(values)
        return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(values))

    centred = (e - e.mean(axis=0)) ** 2 * (len(e) / (len(e) - 1.0))
    units = np.full(e.shape[1], np.nan) if truth is None else np.asarray(truth, dtype=np.float64)
    found = _with_intervals(group.mean(units), of(e), of(centred), of(e * e), confidence)
    return pd.DataFrame({"group": group.labels, "units": group.size, **found})


@dataclass(frozen=True)
class LargestGap:
    """The two groups that differ most. The largest of many gaps is partly chosen for its noise: below about 3 standard
    errors it says nothing.

    Args:
        alpha: the value of ``high`` minus the value of ``low``.
        alpha_se: its standard error, taking the two as independent.
        low: the group with the smallest value.
        high: the group with the largest value.

    Examples:
        >>> groups = td.fairness.by_group(study, "top-down", ["east", "west", "east", "west"], cell="employed")
        >>> found = td.fairness.largest_gap(groups)
        >>> {found.low, found.high} == {"east", "west"}
        True
    """

    alpha: float
    alpha_se: float
    low: str
    high: str


def largest_gap(groups: pd.DataFrame, statistic: str = "bias") -> LargestGap:
    """alpha-fairness between groups: max over pairs of |B_i - B_j| of ``statistic``, with the pair.

    Args:
        groups: rows of `by_group` (of one cell) or `decisions_by_group`.
        statistic: the column that is compared, such as "bias" or "variance".

    Raises `ConfigError` for no rows.

    Examples:
        >>> groups = td.fairness.by_group(study, "top-down", ["east", "west", "east", "west"], cell="employed")
        >>> td.fairness.largest_gap(groups).alpha >= 0
        True
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
    require_probability(confidence, "confidence")
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
