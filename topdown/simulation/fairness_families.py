"""Fairness by the size of families: how much variance a projection leaves to whom."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from topdown.geography.tree import FloatArray
from topdown.projection.linear_covariance import family_variance
from topdown.simulation.errors_table import ErrorTable
from topdown.simulation.methods import StudiedMethod


def predicted_variance(table: ErrorTable, method: str) -> FloatArray:
    """The variance that theory gives every node's estimate, in counts squared; NaN where none is known. (nodes,), since
    cells are alike; (nodes x cells) where several queries were measured or are followed, from `ErrorTable.theory`.

    "raw": the noise's; otherwise the method's own: of "top-down/equality", level by level,
    v (1 - v / V) + (v / V)^2 var(parent) with V the sum over the family; of "gls" the diagonal of the generalised
    least-squares covariance, which on every tree is that of "joint/equality" and "gls-top-down/equality" too.
    Non-negative and rounded methods have no closed form.

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
    """How much variance every family's children keep under ``method``; one row per family and cell.

    Columns ``geoid, name`` of the parent, ``level`` of the children, ``family_size``, ``cell``, ``noise_variance``
    (mean over the children), ``public_total`` (what the projection on a public total leaves, noise variance times
    (1 - 1/n)), ``predicted`` (`predicted_variance`, mean), ``sums_alone`` (that of the same projection without
    non-negativity and rounding, mean), ``measured``, ``measured_se`` and ``wasserstein``,
    ``wasserstein_floor`` (means over the children; the distance corrected for the floor where that is known, which
    scatters about 0 where there is none) and ``wasserstein_se``.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Theorem 6
    and its comparison of Arizona with Texas.

    Examples:
        >>> td.fairness.by_family(study, "top-down").columns[:5].tolist()
        ['geoid', 'name', 'level', 'family_size', 'cell']
    """
    tree, geography = table.geography.tree, table.geography
    predicted = _by_cell(table, predicted_variance(table, method))
    sums_alone = _by_cell(table, predicted_variance(table, StudiedMethod.parse(method).on_sums_alone.label))
    corrected = table[method, "wasserstein_corrected"]
    distance = np.where(np.isfinite(corrected), corrected, table[method, "wasserstein"])
    frames = []
    for index, families in enumerate(tree.families_down()):
        n, children = families.sizes, families.children

        def mean(values: FloatArray, families: Any = families, n: Any = n) -> FloatArray:
            return np.asarray(families.total(values[families.children]) / n)

        parents = np.arange(families.parents.start, families.parents.stop)
        for column, cell in enumerate(table.cells):
            noise = mean(table.noise_variances[:, column])
            # Siblings' sample variances are almost uncorrelated: their correlation is that of the errors, squared.
            squared_se = table[method, "variance_se"][children, column] ** 2
            distance_se = table[method, "wasserstein_se"][children, column] ** 2
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
                        "predicted": mean(predicted[:, column]),
                        "sums_alone": mean(sums_alone[:, column]),
                        "measured": mean(table[method, "variance"][:, column]),
                        "measured_se": np.sqrt(families.total(squared_se)) / n,
                        "wasserstein": mean(distance[:, column]),
                        "wasserstein_se": np.sqrt(families.total(distance_se)) / n,
                        "wasserstein_floor": mean(table[method, "wasserstein_floor"][:, column]),
                    }
                )
            )
    columns = ["geoid", "name", "level", "family_size", "cell", "noise_variance", "public_total", "predicted"]
    columns += ["sums_alone", "measured", "measured_se", "wasserstein", "wasserstein_se", "wasserstein_floor"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def family_pairs(families: pd.DataFrame, pairs: int = 3) -> pd.DataFrame:
    """The ``pairs`` of families of one level and cell that are treated most differently, by variance.

    The first row sets the family with the least variance beside the one with the most, the second the next of
    either, and so on; columns ``level, cell``, and ``geoid, name, family_size, public_total, predicted, measured,
    measured_se`` with the suffixes ``_low`` and ``_high``, and ``ratio`` of the measured ones.

    Args:
        families: of `by_family`; ranked by predicted variance, or where there is none by that of the same
            projection on sums alone, or where there is none either by measured.

    Examples:
        >>> families = td.fairness.by_family(study, "top-down")
        >>> len(td.fairness.family_pairs(families, pairs=1))
        2
    """
    shown = ["geoid", "name", "family_size", "public_total", "predicted", "measured", "measured_se"]
    rows = []
    for (level, cell), part in families.groupby(["level", "cell"], sort=False):
        # Ranked by what is measured, the extremes would be chosen for their simulation error.
        known = (by for by in ("predicted", "sums_alone") if by in part and part[by].notna().all())
        ranked = part.sort_values(next(known, "measured"), kind="stable")
        for k in range(min(pairs, len(ranked) // 2)):
            low, high = ranked.iloc[k], ranked.iloc[-1 - k]
            row = {"level": level, "cell": cell, **{f"{c}_low": low[c] for c in shown}}
            row |= {f"{c}_high": high[c] for c in shown}
            row["ratio"] = high["measured"] / low["measured"] if low["measured"] > 0 else np.inf
            rows.append(row)
    return pd.DataFrame(rows)


def _by_cell(table: ErrorTable, variance: FloatArray) -> FloatArray:
    return np.broadcast_to(variance[:, None] if variance.ndim == 1 else variance, table.truth.shape)


def _names(table: ErrorTable, nodes: npt.NDArray[np.int64]) -> list[str | None]:
    names = table.geography.names
    return [None] * len(nodes) if names is None else list(names.take(nodes).to_pylist())
