"""The same study under several kinds of noise: unbounded, and within bounds by several laws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa

from topdown.errors import ConfigError
from topdown.privacy.plan import Plan
from topdown.studies import fairness
from topdown.studies.errors_table import ErrorTable
from topdown.studies.methods import RAW
from topdown.studies.unit_groups import Groups

UNBOUNDED = "unbounded"


@dataclass(frozen=True, eq=False)
class NoiseVariant:
    """One kind of noise: its ``name``, the ``plan`` (for the geography's levels) that drew it, and the errors made."""

    name: str
    plan: Plan
    table: ErrorTable = field(repr=False)

    @property
    def charged(self) -> Fraction:
        """The true cost of the plan; a comparison is fair between variants of equal cost."""
        return self.plan.charged_total


def errors_by_noise(variants: Sequence[NoiseVariant]) -> Iterator[pa.RecordBatch]:
    """The tidy tables of all variants in Arrow batches, with the columns ``noise`` and ``charged`` in front."""
    for variant in variants:
        for batch in variant.table.batches():
            names = pa.array([variant.name] * batch.num_rows, pa.string())
            charged = pa.array(np.full(batch.num_rows, float(variant.charged)))
            yield pa.RecordBatch.from_arrays(
                [names, charged, *batch.columns], ["noise", "charged", *batch.schema.names]
            )


def by_noise_and_size(variants: Sequence[NoiseVariant], size_classes: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Errors of the leaves by cell, size class, kind of noise and method.

    ``size_classes``: of every cell the label of every leaf. Columns ``cell, group, order`` (size classes from small to
    large), ``noise, charged, method, units, mean_truth``; ``bias`` (mean over the units), ``bias_se, variance, rmse,
    rmse_se`` as in `fairness.by_group`; ``wasserstein_low`` and ``wasserstein_high``: the ends of the 95 %
    interval of the residuals' mean distance from unbounded noise of the variant's own scale
    (`ErrorTable.distance_interval`), distances taken as uncorrelated.

    Raises `ConfigError` for no variants or two of one name.
    """
    names = [variant.name for variant in variants]
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"variants {names}: give at least one, and each a name of its own")
    frames = []
    for cell, labels in size_classes.items():
        for variant in variants:
            distance = _distances(variant.table, cell, labels)
            for method in variant.table.methods:
                frame = fairness.by_group(variant.table, method, labels, cell=cell, name="size class")
                frame = frame.sort_values("mean_truth", kind="stable", ignore_index=True)
                frames.append(
                    frame.assign(
                        order=np.arange(len(frame)),
                        noise=variant.name,
                        charged=float(variant.charged),
                        method=method,
                        wasserstein_low=[distance[method][group][0] for group in frame["group"]],
                        wasserstein_high=[distance[method][group][1] for group in frame["group"]],
                    )
                )
    columns = ["cell", "group", "order", "noise", "charged", "method", "units", "mean_truth", "bias", "bias_se"]
    return pd.concat(frames, ignore_index=True)[
        [*columns, "variance", "rmse", "rmse_se", "wasserstein_low", "wasserstein_high"]
    ]


def best_noise(rows: pd.DataFrame, baseline: tuple[str, str]) -> pd.DataFrame:
    """For every cell and size class the noise and method with the least rmse and those with the least bias.

    ``rows``: of `by_noise_and_size`. ``baseline``: (noise, method) to compare with; variants that cost more, and "raw",
    whose numbers do not add up, are not considered. Columns ``cell, group, order, units, baseline_rmse,
    baseline_bias``, ``rmse_noise, rmse_method, rmse, clear`` (whether the difference from the baseline exceeds 3
    standard errors of the simulation) and ``bias_noise, bias_method, bias``, each with ``_se``. The least biased is the
    one with the smallest upper limit of the bias's size.

    Raises `ConfigError` where the baseline is not among the rows.
    """
    given = rows[(rows["noise"] == baseline[0]) & (rows["method"] == baseline[1])]
    if given.empty:
        raise ConfigError(f"baseline {baseline}: not among the rows; give the noise and method of one of them")
    allowed = rows[(rows["method"] != RAW) & (rows["charged"] <= float(given["charged"].iloc[0]) * (1 + 1e-9))]
    base = {(row["cell"], row["order"]): row for row in given.to_dict("records")}
    found = []
    for key, reference in base.items():
        part = [row for row in allowed.to_dict("records") if (row["cell"], row["order"]) == key]
        least = min(part, key=lambda row: row["rmse"])
        flat = min(part, key=lambda row: abs(row["bias"]) + 1.96 * row["bias_se"])
        difference_se = float(np.hypot(least["rmse_se"], reference["rmse_se"]))
        found.append(
            {name: reference[name] for name in ("cell", "group", "order", "units")}
            | {f"baseline_{name}": reference[name] for name in ("rmse", "rmse_se", "bias", "bias_se")}
            | {"rmse_noise": least["noise"], "rmse_method": least["method"]}
            | {"rmse": least["rmse"], "rmse_se": least["rmse_se"]}
            | {"clear": bool(reference["rmse"] - least["rmse"] > 3.0 * difference_se)}
            | {"bias_noise": flat["noise"], "bias_method": flat["method"]}
            | {"bias": flat["bias"], "bias_se": flat["bias_se"]}
        )
    return pd.DataFrame(found)


def _distances(table: ErrorTable, cell: str, labels: Sequence[str]) -> dict[str, dict[str, tuple[float, float]]]:
    """Method -> size class -> the interval of the mean Wasserstein distance."""
    leaves, column = table.geography.tree.leaves, table.cells.index(cell)
    group, found = Groups.of(labels), {}
    for method in table.methods:
        low, high = table.distance_interval(
            method,
            lambda values: group.mean(values[leaves, column]),
            lambda errors: group.pooled(errors[leaves, column]),
        )
        found[method] = dict(zip(group.labels, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    return found
