"""The reliability of a count as one number: its coefficient of variation, and the class of it.

Source of the classes: Esri's for the American Community Survey, high up to 12 %, medium up to 40 %, low above (Esri,
"The American Community Survey", white paper J-9869).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topdown.geography.tree import FloatArray, IntArray

CLASSES = {"high": 0.12, "medium": 0.40, "low": np.inf}
"""The classes, each with the largest coefficient of variation in it."""

_DIGITS = 4


class Reliability(NamedTuple):
    """The coefficient of variation ``cv``, and its class (``reliability``, an array of the same numbers in one row)."""

    cv: FloatArray
    reliability: pa.DictionaryArray


def reliability_of(sd: FloatArray, counts: FloatArray | IntArray) -> Reliability:
    """The reliability of ``counts`` whose estimates have the standard deviations ``sd``: sd / count to 4 decimals, and
    its class. Exact counts have 0. A count of 0 that is not exact has no coefficient (NaN) and is in the last class;
    both are missing where the standard deviation is.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(sd == 0.0, 0.0, np.round(sd / np.abs(counts), _DIGITS))
    cv = np.where(np.isfinite(found), found, np.nan)
    return Reliability(cv, classes_of(cv, ~np.isnan(sd)))


def classes_of(cv: FloatArray, known: npt.NDArray[np.bool_]) -> pa.DictionaryArray:
    """The classes of coefficients, one after the other, of those that have a deviation that is ``known``."""
    place = np.searchsorted([*CLASSES.values()][:-1], cv.reshape(-1)).astype(np.int8)  # NaN goes last
    return pa.DictionaryArray.from_arrays(pa.array(place, mask=~known.reshape(-1)), pa.array([*CLASSES]))
