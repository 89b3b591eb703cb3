"""Verdicts: whether an effect on a group is clear, and whether it matters, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from topdown.config.study_settings import ToleranceOptions
from topdown.studies.discoveries import discoveries
from topdown.studies.report.words import number, within

MATTERS, SMALL, NONE, UNKNOWN = "matters", "clear, but small", "no clear effect", "cannot be told"


@dataclass(frozen=True)
class Effect:
    """The words for a group's bias: "{raised} 0.6 ± 0.1 {unit}, 3 % of {whole}". ``least``: the size in that unit below
    which it does not matter.
    """

    raised: str
    lowered: str
    unit: str
    whole: str
    least: float


def on_counts(units: str, tolerance: ToleranceOptions, what: str = "counts") -> Effect:
    """The effect on ``what``, counted in ``units`` such as "persons"."""
    return Effect(f"{what} are raised by", f"{what} are lowered by", units, "the mean count", tolerance.count)


ON_AMOUNTS = Effect(
    "a unit is paid too much by", "a unit is paid too little by", "of each million", "what it is due", 0.0
)
"""The effect on what units are paid by a fund of one million."""


def with_verdicts(
    groups: pd.DataFrame, replicates: int, effect: Effect, tolerance: ToleranceOptions, resolution: float = 0.0
) -> pd.DataFrame:
    """``groups`` with ``clear``: whether a group's bias is more than simulation error, at the false discovery rate over
    all the rows; ``matters``: whether it is clear and at least as large as ``tolerance`` says; ``verdict``: that in
    words.

    ``groups``: with ``bias, bias_se, bias_low, bias_high`` and ``mean_truth``, the mean count or amount.
    """
    clear = discoveries(groups["bias"], groups["bias_se"], replicates, resolution=resolution)
    size = groups["bias"].abs()
    matters = clear & (size >= effect.least) & (size >= tolerance.bias * groups["mean_truth"])
    judged = groups.assign(clear=clear, matters=np.asarray(matters))
    return judged.assign(verdict=[_verdict(row, effect) for row in judged.to_dict("records")])


def _verdict(row: dict[Any, Any], effect: Effect) -> str:
    bias, error = row["bias"], row["bias_se"]
    if bias != bias:
        return "not measured"
    if error != error:
        return "one replicate is not enough"
    if not row["clear"]:
        # The end of the interval that is farther from 0.
        high = max(abs(row["bias_low"]), abs(row["bias_high"]))
        return f"no clear bias: if there is one, it is at most {float(f'{high:.2g}'):g} {effect.unit}"
    said = f"{in_words(row, effect)}{_relative(row, effect)}"
    return said if row["matters"] else f"{said}: clear, but small"


def in_words(row: dict[Any, Any], effect: Effect) -> str:
    """The bias of ``row`` with its 95 % interval: "counts are raised by 0.60 ± 0.10 persons"."""
    verb = effect.raised if row["bias"] > 0 else effect.lowered
    return f"{verb} {within(abs(row['bias']), row['bias_se'])} {effect.unit}"


def _relative(row: dict[Any, Any], effect: Effect) -> str:
    """The bias as a part of the mean count or amount, where there is one."""
    truth = row["mean_truth"]
    if not truth > 0:
        return ""
    part = abs(row["bias"]) / truth
    return f", {number(100.0 * part)} % of {effect.whole}" if part >= 0.001 else f", below 0.1 % of {effect.whole}"
