"""How small a number of counts is none: what float64 leaves of a 0 after sums and projections."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray

_OF_THE_NOISE = 1e-6
"""Of the noise's standard deviation: a draw of continuous noise falls so near to 0 about once in a million times."""

_ROUNDINGS = 16
"""Of the tree's largest count, in units of float64's precision: what sums over the tree leave."""


def resolution(noise_variance: FloatArray, truth: npt.ArrayLike) -> FloatArray:
    """(nodes,): how far from 0 an estimate or a bias may be that is 0, in counts.

    ``noise_variance`` (nodes,), in counts squared; of a node that is exact or was not measured the largest of the
    others stands in. ``truth``: the true counts, of which the largest says how fine float64 is in their sums.

    A millionth of the noise's standard deviation: a projection on sums alone puts an estimate on 0 with a probability
    that is not 0 (the noise's numbers are whole), and float64 leaves 1e-14 of it; a millionth is far above that, and
    far below the distance of two values that such an estimate takes.
    """
    noisy = np.isfinite(noise_variance) & (noise_variance > 0)
    largest = float(noise_variance[noisy].max()) if noisy.any() else 0.0
    deviation = np.sqrt(np.where(noisy, noise_variance, largest))
    rounding = _ROUNDINGS * np.finfo(np.float64).eps * float(np.abs(truth).max(initial=0))
    return np.maximum(_OF_THE_NOISE * deviation, rounding)
