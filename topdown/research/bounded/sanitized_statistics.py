"""What a sanitised statistic says of the statistic, of a function of it, and of the population's parameter.

Source: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints": back-transformation (Section 2.2), Remark 1, Definition 3, Proposition 3. The location of a
law is the statistic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from topdown.errors import ConfigError
from topdown.noise.parameters import FloatArray, FloatOrArray, as_given, probabilities, real_numbers
from topdown.noise.randomness import Source
from topdown.noise.sampling import Size
from topdown.research.bounded.laplace import BoundaryInflatedLaplace, arrays_of
from topdown.research.bounded.relaxations import BoundedLaplace


def exceedance(law: BoundedLaplace, distance: ArrayLike) -> FloatOrArray:
    """P(|s* - s| > distance), in the shape of the law's parameters.

    A sanitised statistic is consistent for the original if this tends to 0 with the number of records for every
    distance above 0 (Liu, Definition 3); with a scale that tends to 0 it does, at any bounds (Proposition 2).
    """
    reach = real_numbers("distance", distance)
    s = np.asarray(law.location)
    # An output at s - distance itself is not farther than the distance.
    below = np.asarray(law.cdf(np.nextafter(s - reach, -np.inf)))
    return as_given(below + np.asarray(law.sf(s + reach)))


class ParameterError(NamedTuple):
    """Of a sanitised statistic as an estimator of a population's parameter."""

    bias: float
    variance: float
    mse: float


def about_parameter(law: BoundedLaplace | BackTransformed, parameter: float, weights: ArrayLike) -> ParameterError:
    """Bias, variance and mean squared error of s* as an estimator of ``parameter``, over data and noise together.

    The law's locations (values,) are the values that the statistic can take, ``weights`` (values,) their
    probabilities in the population, which are divided by their sum; by the laws of total expectation and variance
    (Liu, proof of Proposition 3). Raises ConfigError for weights that are negative, all 0, or of another shape.
    """
    s, w = np.asarray(law.location), real_numbers("weights", weights)
    if w.shape != s.shape or s.ndim != 1 or (w < 0).any() or not 0.0 < w.sum() < np.inf:
        raise ConfigError(f"weights of shape {w.shape}: give one of at least 0 for each of {s.shape} locations")
    w = w / w.sum()
    mean = s + np.asarray(law.bias)
    bias = float(w @ (mean - parameter))
    variance = float(w @ np.asarray(law.variance) + w @ (mean - w @ mean) ** 2)
    return ParameterError(bias, variance, variance + bias**2)


@dataclass(frozen=True, slots=True)
class BackTransformed:
    """The law of inverse(X), X being noise around a transform of the statistic whose sensitivity is known.

    Where the sensitivity of s is hard to find or large and that of a function g(s) is not, g(s) is sanitised and
    g^-1 of it released: post-processing (Liu, Section 2.2; a standard deviation as the root of a variance).
    ``inverse`` is g^-1, increasing on the bounds of ``law`` and vectorised. Moments by quadrature.
    """

    law: BoundedLaplace
    inverse: Callable[[FloatArray], FloatArray]

    @property
    def location(self) -> FloatOrArray:
        """The statistic itself, without noise."""
        return as_given(self.inverse(np.asarray(self.law.location)))

    @property
    def bias(self) -> FloatOrArray:
        """E s* - s."""
        return as_given(self._integral(lambda error: error))

    @property
    def mse(self) -> FloatOrArray:
        """E (s* - s)^2."""
        return as_given(self._integral(np.square))

    @property
    def variance(self) -> FloatOrArray:
        """E (s* - E s*)^2."""
        return as_given(np.asarray(self.mse) - np.asarray(self.bias) ** 2)

    def ppf(self, q: ArrayLike) -> FloatOrArray:
        """The quantile: that of the transformed statistic, transformed back."""
        return as_given(self.inverse(np.asarray(self.law.ppf(probabilities(q)))))

    def sample(self, size: Size | None, source: Source) -> FloatOrArray:
        """Draws, as the law's own `sample`; for studies, not for releases."""
        return as_given(self.inverse(np.asarray(self.law.sample(size, source))))

    def _integral(self, of: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """E of(s* - s): the atoms, and tanh-sinh quadrature from the location to either bound or 45 scales out."""
        law, truth = self.law, np.asarray(self.location)
        s, scale, low, high = arrays_of(law)
        s = np.clip(s, low, high)
        step = np.linspace(-4.2, 4.2, 401)
        part, rest, weight = (
            one.reshape((-1,) + (1,) * s.ndim)
            for one in (
                expit(np.pi * np.sinh(step)),
                expit(-np.pi * np.sinh(step)),
                np.gradient(step) * np.pi * np.cosh(step),
            )
        )
        total = np.zeros(s.shape)
        for end in (np.maximum(low, s - 45.0 * scale), np.minimum(high, s + 45.0 * scale)):
            # Measured from the end that is nearer, so that neither loses digits.
            x = np.clip(np.where(part < 0.5, s + (end - s) * part, end - (end - s) * rest), low, high)
            density = np.asarray(law.pdf(x)) * np.abs(end - s) * part * rest * weight
            total += (density * of(self.inverse(x) - truth)).sum(axis=0)
        if isinstance(law, BoundaryInflatedLaplace):
            for end, atom in zip((low, high), law.atoms, strict=True):
                at = np.where(np.isfinite(end), end, s)
                total += np.asarray(atom) * of(self.inverse(at) - truth)
        return total


def bounds_within_sum(
    lower: ArrayLike, upper: ArrayLike, total: float, weights: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """The bounds that statistics have of which each is in its own bounds and the weighted sum is ``total``.

    Bounds (statistics,), infinities allowed; ``weights`` (statistics,), 1 if not given. Statistic i is within
    (total - the others' largest and smallest sums)/weight_i as well as in its own bounds. All but one may then be
    sanitised within these bounds, one after the other with the rest of the total, and the last one is what is left:
    for two statistics, s2* = total - s1* lies within its bounds (Liu, Remark 1). Raises ConfigError for bounds and a
    total that contradict each other, and for a weight of 0.
    """
    low, high = real_numbers("lower", lower), real_numbers("upper", upper)
    w = np.ones(low.shape) if weights is None else real_numbers("weights", weights)
    if low.ndim != 1 or not low.shape == high.shape == w.shape or (low > high).any() or (w == 0).any():
        raise ConfigError(
            f"lower {low.tolist()}, upper {high.tolist()}, weights {w.tolist()}: give lower <= upper and a weight "
            "other than 0 for each statistic"
        )
    ends = np.sort(np.stack([w * low, w * high]), axis=0)
    # The others' sums, so that an infinity is not taken away from itself.
    others = ~np.eye(w.size, dtype=bool)
    least, most = (np.array([end[row].sum() for row in others]) for end in ends)
    parts = np.stack([np.maximum(ends[0], total - most), np.minimum(ends[1], total - least)])
    # A total at the very end of what is possible may be beyond it by rounding.
    room = 1e-12 * float(np.abs(np.append(ends[np.isfinite(ends)], total)).max())
    if (parts[0] > parts[1] + room).any():
        raise ConfigError(
            f"total {total!r}: statistics within lower {low.tolist()}, upper {high.tolist()} cannot add up to it"
        )
    found = np.clip(np.sort(parts / w, axis=0), low, high)
    return found[0], found[1]
