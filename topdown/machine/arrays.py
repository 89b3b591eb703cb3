"""Arrays in little memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``values``, whole numbers of 0 or more, in the narrowest integer type. Raises `ValueError` for one below 0."""
    if values.min(initial=0) < 0:
        raise ValueError("narrow takes whole numbers from 0")
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
