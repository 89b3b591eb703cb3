"""Laplace and Gaussian sanitizers: a statistic plus noise, with the parameters of the noise.

Sources: Dwork, Roth 2014, Definition 3.3 and Theorem 3.6 (Laplace), Theorem A.1 (classical Gaussian); Balle, Wang 2018
(analytic Gaussian); Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism
with Univariate Bounding Constraints", Section 2. The noise is continuous and drawn in floating point, whose gaps
between numbers leak information: it is for studies and teaching. A release of counts draws from the integer laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from topdown.errors import ConfigError
from topdown.neighbours import Neighbours
from topdown.noise.continuous import Gaussian, Laplace
from topdown.noise.parameters import FloatOrArray, as_given, positive, real_numbers
from topdown.noise.randomness import Source
from topdown.privacy.conversions import analytic_gaussian_sigma, classical_gaussian_sigma
from topdown.privacy.sensitivity import mean_sensitivity, sum_sensitivity

GaussianCalibration = Literal["analytic", "classical"]


@dataclass(frozen=True, slots=True, eq=False)
class Sanitized:
    """A sanitised statistic, its noise and what it cost.

    Args:
        value: the protected statistic.
        noise: the law of the noise that was added to each element.
        sensitivity: of the whole statistic, in units of the statistic.
        epsilon: what it cost.
        delta: of (epsilon, delta); 0 for Laplace noise.

    Examples:
        >>> source = td.SeededSource(1)
        >>> found = td.privacy.sanitizers.laplace_sanitizer(100.0, sensitivity=1.0, epsilon=0.5, source=source)
        >>> found.noise.scale, found.epsilon
        (2.0, 0.5)
    """

    value: FloatOrArray
    noise: Laplace | Gaussian
    sensitivity: float
    epsilon: float
    delta: float = 0.0


def laplace_sanitizer(statistic: ArrayLike, sensitivity: float, epsilon: float, source: Source) -> Sanitized:
    """``statistic`` plus independent Laplace noise of scale sensitivity/epsilon in every element (Liu, Equation 2).

    The release is epsilon-differentially private. Raises ConfigError for a sensitivity and BudgetError for an epsilon
    that is not positive.

    Args:
        statistic: a number or an array.
        sensitivity: of the whole vector in the L1 norm.
        epsilon: the budget.
        source: where the random bits come from.

    Examples:
        >>> source = td.SeededSource(1)
        >>> found = td.privacy.sanitizers.laplace_sanitizer([100.0, 20.0], 1.0, epsilon=0.5, source=source)
        >>> found.value.round(1)
        array([98.6, 20.2])
    """
    noise = Laplace(positive("sensitivity", sensitivity) / positive("epsilon", epsilon))
    return Sanitized(_add(statistic, noise, source), noise, float(sensitivity), float(epsilon))


def gaussian_sanitizer(
    statistic: ArrayLike,
    sensitivity: float,
    epsilon: float,
    delta: float,
    source: Source,
    *,
    calibration: GaussianCalibration = "analytic",
) -> Sanitized:
    """``statistic`` plus independent Gaussian noise in every element, (epsilon, delta)-differentially private.

    Args:
        statistic: a number or an array.
        sensitivity: of the whole vector in the L2 norm.
        epsilon: the budget.
        delta: above 0 and below 1.
        source: where the random bits come from.
        calibration: "analytic", the smallest sigma, valid for every epsilon, or "classical", sensitivity sqrt(2
            ln(1.25/delta))/epsilon, proved for epsilon below 1 only; it raises BudgetError from there on.

    Examples:
        >>> source = td.SeededSource(1)
        >>> found = td.privacy.sanitizers.gaussian_sanitizer(100.0, 1.0, epsilon=1.0, delta=1e-6, source=source)
        >>> round(float(found.noise.sigma), 3)
        4.225
    """
    if calibration not in ("analytic", "classical"):
        raise ConfigError(f"calibration {calibration!r}: give 'analytic' or 'classical'")
    sigma_of = analytic_gaussian_sigma if calibration == "analytic" else classical_gaussian_sigma
    noise = Gaussian(sigma_of(positive("epsilon", epsilon), float(delta), positive("sensitivity", sensitivity)))
    return Sanitized(_add(statistic, noise, source), noise, float(sensitivity), float(epsilon), float(delta))


def sanitized_sum(
    values: ArrayLike,
    lower: float,
    upper: float,
    epsilon: float,
    source: Source,
    *,
    delta: float = 0.0,
    neighbours: Neighbours = "add-remove",
    calibration: GaussianCalibration = "analytic",
) -> Sanitized:
    """The sum of the values clipped to [lower, upper], sanitised: Laplace noise, or Gaussian where ``delta`` is
    positive.

    Clipping bounds are public and chosen without looking at the data. The sensitivity is
    :func:`topdown.privacy.sensitivity.sum_sensitivity`. Raises ConfigError for values that are nan, for bounds out of
    order and for infinite ones.

    Args:
        values: confidential numbers.
        lower: public lower bound of a value, finite.
        upper: public upper bound of a value, finite.
        epsilon: the budget.
        source: where the random bits come from.
        delta: 0 for Laplace noise; above 0 for Gaussian noise, (epsilon, delta)-differentially private.
        neighbours: "add-remove" or "substitute".
        calibration: of Gaussian noise, as of `gaussian_sanitizer`.

    Examples:
        >>> ages, source = [20.0, 35.0, 50.0], td.SeededSource(1)
        >>> found = td.privacy.sanitizers.sanitized_sum(ages, lower=0, upper=60, epsilon=1.0, source=source)
        >>> found.sensitivity, round(float(found.value), 1)
        (60.0, 62.3)
    """
    sensitivity = sum_sensitivity(lower, upper, neighbours=neighbours)
    if math.isinf(sensitivity):
        raise ConfigError(
            f"bounds [{lower!r}, {upper!r}]: without both, one value can move the sum by any amount; give two"
        )
    total = float(_clipped(values, lower, upper).sum())
    return _sanitized(total, sensitivity, epsilon, source, delta, calibration)


def sanitized_mean(
    values: ArrayLike,
    lower: float,
    upper: float,
    epsilon: float,
    source: Source,
    *,
    delta: float = 0.0,
    neighbours: Neighbours = "substitute",
    calibration: GaussianCalibration = "analytic",
) -> Sanitized:
    """The mean of the values clipped to [lower, upper], sanitised: Laplace noise, or Gaussian where ``delta`` is
    positive.

    The number of values is taken as public, since it sets the scale
    (:func:`topdown.privacy.sensitivity.mean_sensitivity`). So neighbours are tables with the same number of values, of
    which one differs ("substitute"). Under "add-remove" the sensitivity holds for neighbours with one value less, and
    the scale reveals how many there are: use it only where that is public. Where n is not public, release a sum and a
    count and divide the budget; the quotient of their sensitivities is no sensitivity of a mean. Raises ConfigError for
    values that are nan, too few of them, and bounds out of order.

    Args:
        values: confidential numbers; how many there are is public.
        lower: public lower bound of a value, finite.
        upper: public upper bound of a value, finite.
        epsilon: the budget.
        source: where the random bits come from.
        delta: 0 for Laplace noise; above 0 for Gaussian noise, (epsilon, delta)-differentially private.
        neighbours: "substitute", or "add-remove".
        calibration: of Gaussian noise, as of `gaussian_sanitizer`.

    Examples:
        >>> ages, source = [20.0, 35.0, 50.0], td.SeededSource(1)
        >>> found = td.privacy.sanitizers.sanitized_mean(ages, lower=0, upper=60, epsilon=1.0, source=source)
        >>> found.sensitivity, round(float(found.value), 1)
        (20.0, 20.8)
    """
    clipped = _clipped(values, lower, upper)
    sensitivity = mean_sensitivity(clipped.size, lower, upper, neighbours=neighbours)
    return _sanitized(float(clipped.mean()), sensitivity, epsilon, source, delta, calibration)


def _sanitized(
    statistic: float,
    sensitivity: float,
    epsilon: float,
    source: Source,
    delta: float,
    calibration: GaussianCalibration,
) -> Sanitized:
    if delta == 0.0:
        return laplace_sanitizer(statistic, sensitivity, epsilon, source)
    return gaussian_sanitizer(statistic, sensitivity, epsilon, delta, source, calibration=calibration)


def _add(statistic: ArrayLike, noise: Laplace | Gaussian, source: Source) -> FloatOrArray:
    exact = real_numbers("statistic", statistic, shown=False)
    return as_given(exact + np.asarray(noise.sample(exact.shape, source)).reshape(exact.shape))


def _clipped(values: ArrayLike, lower: float, upper: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.clip(real_numbers("values", values, shown=False), float(lower), float(upper))
