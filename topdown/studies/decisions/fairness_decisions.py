"""Fairness of decisions that are taken on released counts: shares of a fund, and thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from topdown.errors import ConfigError, require_probability
from topdown.geography.tree import FloatArray
from topdown.studies.decisions.rules import Decision, shares_of
from topdown.studies.errors_table import ErrorTable
from topdown.studies.unit_groups import Groups
from topdown.wording import listed, shown

PER_MILLION = 1e6
"""The size of the fund in which shares are expressed."""


class Amount(NamedTuple):
    """A quantity with its Monte Carlo standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class ShareErrors:
    """Errors of the shares of a fund of one million.

    Args:
        bias: (units,) of every unit's amount, mean over replicates.
        bias_se: (units,) its standard error.
        moved: the money that goes to another unit than it should: half the sum of absolute errors, mean over
            replicates.

    Examples:
        >>> found = td.fairness.share_errors([[30.0, 70.0], [20.0, 80.0]], [25.0, 75.0])
        >>> found.bias, round(found.moved.value)
        (array([0., 0.]), 50000)
    """

    bias: FloatArray
    bias_se: FloatArray
    moved: Amount


def share_errors(estimates: npt.ArrayLike, truth: npt.ArrayLike) -> ShareErrors:
    """The errors of dividing a fund of one million in proportion to estimates in place of the true counts.

    Where a replicate's sum is not positive the fund is shared equally. Raises `ConfigError` where shapes differ.

    Args:
        estimates: (replicates, units) counts.
        truth: (units,) counts.

    Source: Tran, Fioretto, Van Hentenryck, Yao, "Decision Making with Differential Privacy under a Fairness Lens",
    allotment problems.

    Examples:
        >>> round(td.fairness.share_errors([[30.0, 70.0], [20.0, 80.0]], [25.0, 75.0]).moved.value)  # of a million
        50000
    """
    x, t = _replicates(estimates, truth)
    errors = PER_MILLION * (shares_of(x) - shares_of(t))
    moved = np.abs(errors).sum(axis=1) / 2.0
    amount = Amount(float(moved.mean()), float(_standard_error(moved)))
    return ShareErrors(errors.mean(axis=0), _standard_error(errors), amount)


def flip_probability(estimates: npt.ArrayLike, truth: npt.ArrayLike, cutoff: float) -> FloatArray:
    """How often the decision "count above ``cutoff``" on estimates differs from the one on the true counts; (units,).

    Args:
        estimates: (replicates, units) counts.
        truth: (units,) counts.
        cutoff: the count that has to be passed.

    Source: Tran, Fioretto, Van Hentenryck, Yao, "Decision Making with Differential Privacy under a Fairness Lens",
    decision rules.

    Examples:
        >>> td.fairness.flip_probability([[28.0, 41.0], [31.0, 39.0]], [29.0, 40.0], cutoff=30.0)
        array([0.5, 0. ])
    """
    x, t = _replicates(estimates, truth)
    return np.asarray(((x > cutoff) != (t > cutoff)).mean(axis=0), dtype=np.float64)


def fund(table: ErrorTable, method: str, rule: str | Decision) -> pd.DataFrame:
    """Every leaf's part of a fund of one million under ``method``; one row per leaf.

    Columns ``geoid, name, amount`` (on the true counts), ``bias, bias_se, mean_absolute_error,
    mean_absolute_error_se`` of the amount. Raises `ConfigError` for a rule that was not followed.

    Args:
        table: what `simulate` returned.
        method: the label of one of its methods.
        rule: a `FundShare` (or its label) that the study followed.

    Examples:
        >>> td.fairness.fund(study, "top-down", td.FundShare("unemployed")).columns.tolist()
        ['geoid', 'name', 'amount', 'bias', 'bias_se', 'mean_absolute_error', 'mean_absolute_error_se']
    """
    found = _followed(table, method, rule, table.rules)
    frame = _units(table, rule)
    frame["amount"] = PER_MILLION * found["truth"]
    frame["bias"], frame["bias_se"] = PER_MILLION * found["mean_error"], PER_MILLION * found["mean_error_se"]
    for name in ("mean_absolute_error", "mean_absolute_error_se"):
        frame[name] = PER_MILLION * found[name]
    return frame


def money_moved(table: ErrorTable, method: str, rule: str | Decision) -> Amount:
    """Money that goes to other units than it should, per million: half the sum of absolute errors of the shares, mean
    over replicates. Raises `ConfigError` for a rule that was not followed.

    Args:
        table: what `simulate` returned.
        method: the label of one of its methods.
        rule: a `FundShare` (or its label) that the study followed.

    Examples:
        >>> td.fairness.money_moved(study, "top-down", td.FundShare("unemployed")).value > 0
        True
    """
    found = _followed(table, method, rule, table.rule_totals)
    return Amount(PER_MILLION * found["moved"] / 2.0, PER_MILLION * found["moved_se"] / 2.0)


@dataclass(frozen=True)
class Flipped:
    """How many yes-or-no decisions differ from those on the true counts, mean over replicates.

    Args:
        all: all that differ.
        lost: those that turn from yes to no.
        gained: those that turn from no to yes.

    Examples:
        >>> td.fairness.flipped(study, "top-down", td.Threshold("employed", 30)).all.value
        0.04
    """

    all: Amount
    lost: Amount
    gained: Amount


def flipped(table: ErrorTable, method: str, rule: str | Decision) -> Flipped:
    """How many decisions of a rule flip. Raises `ConfigError` as `flips` does.

    Args:
        table: what `simulate` returned.
        method: the label of one of its methods.
        rule: a `Threshold` (or its label) that the study followed.

    Examples:
        >>> found = td.fairness.flipped(study, "top-down", td.Threshold("employed", 30))
        >>> round(found.all.value - found.lost.value - found.gained.value, 9)
        0.0
    """
    _yes_or_no(table, method, rule)
    found = _followed(table, method, rule, table.rule_totals)
    return Flipped(*(Amount(found[name], found[f"{name}_se"]) for name in ("moved", "lost", "gained")))


def flips(table: ErrorTable, method: str, rule: str | Decision) -> pd.DataFrame:
    """How often a yes-or-no decision differs from the one on the true counts; one row per unit of its level.

    Columns ``geoid, name, decision`` (True or False on the true counts), ``probability`` that it flips,
    ``probability_se``. Raises `ConfigError` for a rule that was not followed or has other outcomes.

    Args:
        table: what `simulate` returned.
        method: the label of one of its methods.
        rule: a `Threshold` (or its label) that the study followed.

    Examples:
        >>> td.fairness.flips(study, "top-down", td.Threshold("employed", 30)).columns[:4].tolist()
        ['geoid', 'name', 'decision', 'probability']
    """
    found = _yes_or_no(table, method, rule)
    frame = _units(table, rule)
    frame["decision"] = found["truth"] > 0
    frame["probability"] = found["mean_absolute_error"]
    frame["probability_se"] = found["mean_absolute_error_se"]
    return frame


def decisions_by_group(
    table: ErrorTable,
    method: str,
    rule: str | Decision,
    groups: Any,
    *,
    name: str = "group",
    weights: Sequence[float] = (),
    scale: float = 1.0,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Errors of a decision rule by group of units: ``group, units, mean_truth`` (the mean outcome on the true counts),
    ``bias, absolute_error``, each of these two with ``_se``, ``_low``, ``_high``.

    These are means over the group's units, weighted by ``weights``, of the rule's mean error and mean absolute error
    (of a threshold: the probability that it flips), times ``scale``. The bias has its exact standard error where
    `simulate` followed a `GroupMean` of this rule, ``name``, grouping and weights; other standard errors take the units
    as uncorrelated. Raises `ConfigError` for a rule that was not followed, or labels that are not one per unit.

    Args:
        table: what `simulate` returned.
        method: the label of one of its methods.
        rule: a rule (or its label) that the study followed.
        groups: a label per unit that the rule decides for, in their order.
        name: of the grouping, as `GroupMean` has it.
        weights: a number of 0 or more per unit, by which means over groups are weighted; all alike where there are
            none.
        scale: by which errors are multiplied, such as the size of the fund.
        confidence: of the intervals, between 0 and 1.

    Examples:
        >>> rule = td.FundShare("unemployed")
        >>> found = td.fairness.decisions_by_group(study, "top-down", rule, ["east", "west", "east", "west"])
        >>> found[["group", "units"]]
          group  units
        0  east      2
        1  west      2
    """
    require_probability(confidence, "confidence")
    found = _followed(table, method, rule, table.rules)
    group = Groups.of(groups, weights, len(found["truth"]))
    z = float(ndtri((1.0 + confidence) / 2.0))
    columns: dict[str, Any] = {"group": group.labels, "units": group.size}
    columns["mean_truth"] = scale * group.mean(found["truth"])
    whole = table.rules.get((method, f"mean {_label(rule)} by {name}"))
    for title, statistic in (("bias", "mean_error"), ("absolute_error", "mean_absolute_error")):
        mean, error = group.mean(found[statistic]), group.pooled(found[f"{statistic}_se"])
        if title == "bias" and whole is not None and np.allclose(whole["mean_error"], mean[group.code], atol=1e-12):
            error = group.of_each(np.asarray(whole["mean_error_se"]))
        value, error = scale * mean, scale * error
        columns |= {title: value, f"{title}_se": error}
        columns |= {f"{title}_low": value - z * error, f"{title}_high": value + z * error}
    return pd.DataFrame(columns)


_Found = TypeVar("_Found")


def _followed(
    table: ErrorTable, method: str, rule: str | Decision, found: Mapping[tuple[str, str], Mapping[str, _Found]]
) -> dict[str, _Found]:
    key = (method, _label(rule))
    if key not in found:
        known = sorted({name for _, name in table.rules}) or ["none"]
        raise ConfigError(
            f"the study did not follow {shown(key[1])} for method {shown(method)}; it has rules {listed(known)} "
            f"and methods {listed(table.methods)}: give the rule to simulate(..., rules=[...])"
        )
    return dict(found[key])


def _yes_or_no(table: ErrorTable, method: str, rule: str | Decision) -> dict[str, FloatArray]:
    found = _followed(table, method, rule, table.rules)
    if not np.isin(found["truth"], (0.0, 1.0)).all():
        raise ConfigError(f"{shown(_label(rule))} is no yes-or-no decision; flips are counted for thresholds")
    return found


def _label(rule: str | Decision) -> str:
    return rule if isinstance(rule, str) else rule.label


def _units(table: ErrorTable, rule: str | Decision) -> pd.DataFrame:
    geoids, names = table.rule_units(_label(rule))
    return pd.DataFrame({"geoid": geoids, "name": names})


def _replicates(estimates: npt.ArrayLike, truth: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    x, t = np.asarray(estimates, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if x.ndim != 2 or t.shape != x.shape[1:] or len(x) == 0:
        raise ConfigError(f"estimates {x.shape} and truth {t.shape}: give (replicates, units) and (units,)")
    return x, t


def _standard_error(values: FloatArray) -> FloatArray:
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))
