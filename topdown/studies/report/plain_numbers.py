"""Numbers as the summary holds them: plain values that JSON knows, rounded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from topdown.geography.tree import FloatArray


class Verbatim(dict[str, Any]):
    """A value that `rounded` leaves alone."""


def rounded(value: Any) -> Any:
    """``value`` with every number at 4 significant digits, and None for what is not finite."""
    if isinstance(value, Verbatim):
        return dict(value)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value


def whole(values: FloatArray) -> list[int | None]:
    """Whole ``values`` (n,) with all their digits, which `rounded` keeps of integers alone; None for no end."""
    return [int(one) if math.isfinite(one) else None for one in values.tolist()]


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of ``frame``, each column -> value."""
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
