"""What is said of a group's bias in words, with its uncertainty."""

from __future__ import annotations

from typing import Any

import pandas as pd

from topdown.studies.discoveries import discoveries
from topdown.studies.report.words import number, within


def with_verdicts(groups: pd.DataFrame, replicates: int, what: str, unit: str, resolution: float = 0.0) -> pd.DataFrame:
    """``groups`` with ``clear``, whether a group's bias is more than simulation error at the false discovery rate over
    all the rows, and ``verdict``, that in words.

    ``groups``: with ``bias, bias_se, bias_low, bias_high`` and, for the part of the count that it is, ``mean_truth``.
    ``what``: whose bias it is, such as "counts"; ``unit``: of what, such as "persons".
    """
    clear = discoveries(groups["bias"], groups["bias_se"], replicates, resolution=resolution)
    words = [_verdict(row, bool(one), what, unit) for row, one in zip(groups.to_dict("records"), clear, strict=True)]
    return groups.assign(clear=clear, verdict=words)


def _verdict(row: dict[Any, Any], clear: bool, what: str, unit: str) -> str:
    bias, error = row["bias"], row["bias_se"]
    if bias != bias:
        return "not measured"
    if error != error:
        return "one replicate cannot tell"
    if not clear:
        # The farther end of the interval, whichever side it is on.
        high = max(abs(row["bias_low"]), abs(row["bias_high"]))
        return f"no clear bias: if there is one, it is at most {float(f'{high:.2g}'):g} {unit}"
    return f"{what} are {'raised' if bias > 0 else 'lowered'} by {within(abs(bias), error)} {unit}{_relative(row)}"


def _relative(row: dict[Any, Any]) -> str:
    """The bias as a part of the mean count, where there is one."""
    truth = row.get("mean_truth")
    if not truth or not truth > 0:
        return ""
    part = abs(row["bias"]) / truth
    return f", {number(100.0 * part)} % of the mean count" if part >= 0.001 else ", below 0.1 % of the mean count"
