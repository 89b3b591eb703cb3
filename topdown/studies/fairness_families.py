"""Fairness by the size of families: the variance that a projection leaves in each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from topdown.geography.tree import FloatArray
from topdown.projection.linear.linear_covariance import family_variance
from topdown.studies.errors_table import ErrorTable
from topdown.studies.methods import StudiedMethod


def predicted_variance(table: ErrorTable, method: str) -> FloatArray:
    """The variance that theory predicts for every node's estimate, in counts squared; NaN where it is not known.
    (nodes,), since all cells have the same; (nodes x cells) where several queries were measured or are followed, from
    `ErrorTable.theory`.

    "raw": the noise's; otherwise the method's own: of "top-down/equality", level by level,
    v (1 - v / V) + (v / V)^2 var(parent) with V the sum over the family; of "gls" the diagonal of the generalised
    least-squares covariance, which on every tree is that of "joint/equality" and "gls-top-down/equality" too.
    Non-negative and rounded methods have no closed form.

    Args:
        table: what `simulate` returned.
        method: the label of one of its methods.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Theorem 6
    applied down the tree.

    Examples:
        >>> td.fairness.predicted_variance(study, "gls")[:3].round(2)
        array([13.4 ,  7.93,  7.93])
    """
    noise, tree = table.noise_variance, table.geography.tree
    if noise.ndim == 2:
        return table.theory.get(method, np.full(table.truth.shape, np.nan))
    found = StudiedMethod.parse(method).variance(noise, tree)
    return np.full(len(noise), np.nan) if found is None else np.where(np.isfinite(found), found, np.nan)


def by_family(table: ErrorTable, method: str) -> pd.DataFrame:
    """How much variance every family's children keep under a method; one row per family and cell.

    Columns ``geoid, name`` of the parent, ``level`` of the children, ``family_size``, ``cell``, ``noise_variance``
    (mean over the children), ``public_total`` (what the projection on a public total leaves, noise variance times
    (1 - 1/n)), ``predicted`` (`predicted_variance`, mean), ``measured``, ``measured_se`` and ``wasserstein_low``
    and ``wasserstein_high``, the ends of the 95 % interval of the children's mean distance to the noise
    (`ErrorTable.distance_interval`).

    Args:
        table: what `simulate` returned.
        method: the label of one of its methods.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Theorem 6
    and its comparison of Arizona with Texas.

    Examples:
        >>> td.fairness.by_family(study, "top-down").columns[:5].tolist()
        ['geoid', 'name', 'level', 'family_size', 'cell']
    """
    tree, geography = table.geography.tree, table.geography
    predicted = _by_cell(table, predicted_variance(table, method))
    frames = []
    for index, families in enumerate(tree.families_down()):
        n = families.sizes

        def mean(values: FloatArray, families: Any = families, n: Any = n) -> FloatArray:
            return np.asarray(families.total(values[families.children]) / n)

        def pooled(errors: FloatArray, families: Any = families, n: Any = n) -> FloatArray:
            # Siblings' variances and distances are almost uncorrelated: they depend on the sizes of errors alone.
            return np.asarray(np.sqrt(families.total(errors[families.children] ** 2)) / n)

        ends = table.distance_interval(method, partial(_of_columns, mean), partial(_of_columns, pooled))
        parents = np.arange(families.parents.start, families.parents.stop)
        for column, cell in enumerate(table.cells):
            noise = mean(table.noise_variances[:, column])
            frames.append(
                pd.DataFrame(
                    {
                        "geoid": geography.identifiers.take(parents).to_pylist(),
                        "name": _names(table, parents),
                        "level": geography.levels[index + 1],
                        "family_size": n,
                        "cell": cell,
                        "noise_variance": noise,
                        # An only child is its parent, whether it was measured or not.
                        "public_total": family_variance(np.where(n == 1, 0.0, noise), n.astype(np.float64)),
                        "predicted": mean(predicted[:, column]),
                        "measured": mean(table[method, "variance"][:, column]),
                        "measured_se": pooled(table[method, "variance_se"][:, column]),
                        "wasserstein_low": ends[0][:, column],
                        "wasserstein_high": ends[1][:, column],
                    }
                )
            )
    columns = ["geoid", "name", "level", "family_size", "cell", "noise_variance", "public_total", "predicted"]
    columns += ["measured", "measured_se", "wasserstein_low", "wasserstein_high"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def family_pairs(families: pd.DataFrame, pairs: int = 3) -> pd.DataFrame:
    """The pairs of families of one level and cell that are treated most differently, by variance.

    The first row pairs the family with the least variance with the one with the most, the second row the next of
    either, and so on. Where the variance is known exactly (``predicted``) it decides. Elsewhere measured variances do:
    the least by the upper end of its 95 % interval, the most by the lower end, since the extremes of many measured
    variances also have large simulation errors. A pair whose intervals overlap is left out. Columns ``level, cell``,
    and ``geoid, name, family_size, public_total, predicted, measured, measured_se`` with the suffixes ``_low`` and
    ``_high``, and ``ratio`` of the measured ones.

    Args:
        families: of `by_family`.
        pairs: how many pairs of every level and cell.

    Examples:
        >>> families = td.fairness.by_family(study, "top-down")
        >>> len(td.fairness.family_pairs(families, pairs=1))
        1
    """
    shown = ["geoid", "name", "family_size", "public_total", "predicted", "measured", "measured_se"]
    rows = []
    for (level, cell), part in families.groupby(["level", "cell"], sort=False):
        is_known = bool(part["predicted"].notna().all())
        by, half = ("predicted", 0.0) if is_known else ("measured", 1.96 * part["measured_se"].fillna(0.0))
        ends = part.assign(at_most=part[by] + half, at_least=part[by] - half)
        upwards = ends.sort_values("at_most", kind="stable")
        downwards = ends.sort_values("at_least", kind="stable", ascending=False)
        for k in range(min(pairs, len(part) // 2)):
            low, high = upwards.iloc[k], downwards.iloc[k]
            if not low["at_most"] < high["at_least"]:
                break
            row = {"level": level, "cell": cell, **{f"{c}_low": low[c] for c in shown}}
            row |= {f"{c}_high": high[c] for c in shown}
            row["ratio"] = high["measured"] / low["measured"] if low["measured"] > 0 else np.inf
            rows.append(row)
    return pd.DataFrame(rows)


def _of_columns(of_one: Callable[[FloatArray], FloatArray], values: FloatArray) -> FloatArray:
    """What ``of_one`` gives for each column of ``values``, as columns."""
    return np.stack([of_one(column) for column in values.T], axis=1)


def _by_cell(table: ErrorTable, variance: FloatArray) -> FloatArray:
    return np.broadcast_to(variance[:, None] if variance.ndim == 1 else variance, table.truth.shape)


def _names(table: ErrorTable, nodes: npt.NDArray[np.int64]) -> list[str | None]:
    names = table.geography.names
    return [None] * len(nodes) if names is None else list(names.take(nodes).to_pylist())
