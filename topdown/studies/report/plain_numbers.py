"""Numbers of the summary: rounded, and plain values for JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from topdown.geography.tree import FloatArray


class Verbatim(dict[str, Any]):
    """A value that `rounded` leaves alone."""


def rounded(value: Any) -> Any:
    """``value`` with every number at 4 significant digits, or whole where it has more, and None for what is not
    finite."""
    if isinstance(value, float | np.floating):  # first, since most values are
        plain = float(value)
        if not math.isfinite(plain):
            return None
        # 4 digits of a large sum may be fewer than its interval has: 255,800 for 255,763 ± 73.
        return float(round(plain)) if 1e4 <= abs(plain) < 1e15 else float(f"{plain:.4g}")
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
    return value


def whole(values: FloatArray) -> list[int | None]:
    """Whole ``values`` (n,) as integers, so that `rounded` keeps all digits; None for an infinite one."""
    return [int(one) if math.isfinite(one) else None for one in values.tolist()]


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of ``frame``, each column -> value."""
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
