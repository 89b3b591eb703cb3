"""The resolution of counts: how large a 0 may be in float64 after sums and projections."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray

_OF_THE_NOISE = 1e-6
"""This part of the noise's standard deviation: continuous noise is so close to 0 about once in a million draws."""

_ROUNDINGS = 16
"""So many units of float64's precision, relative to the tree's largest count: the rounding of sums over the tree."""


def resolution(noise_variance: FloatArray, truth: npt.ArrayLike) -> FloatArray:
    """(nodes,): how far from 0 an estimate or a bias may be that is 0, in counts.

    ``noise_variance`` (nodes,), in counts squared; of a node that is exact or was not measured the largest of the
    others stands in. ``truth``: the true counts, of which the largest says how fine float64 is in their sums.

    It is a millionth of the noise's standard deviation: with integer noise a projection on sums alone gives exact zeros
    with positive probability, which float64 represents with an error of about 1e-14. A millionth is far above that
    error, and far below the distance between two possible values of such an estimate.
    """
    noisy = np.isfinite(noise_variance) & (noise_variance > 0)
    largest = float(noise_variance[noisy].max()) if noisy.any() else 0.0
    deviation = np.sqrt(np.where(noisy, noise_variance, largest))
    rounding = _ROUNDINGS * np.finfo(np.float64).eps * float(np.abs(truth).max(initial=0))
    return np.maximum(_OF_THE_NOISE * deviation, rounding)
