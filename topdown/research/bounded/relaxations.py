"""Two relaxations of differential privacy, computed for Laplace noise within bounds: random and mean-concentrated.

The privacy loss of an output x between two data sets is L(x) = ln(p(x)/p'(x)), p and p' being the laws of what is
released from each. Random differential privacy asks for |L| <= epsilon but on a part gamma of the pairs of neighbours
that the population yields; mean-concentrated differential privacy bounds the mean of L over the noise and how far L
strays from it. (The other two relaxations, (epsilon, delta) and the probabilistic one, are
:mod:`topdown.research.bounded.generalized_loss`.)

Sources: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints", Section 2.1; Hall, Rinaldo, Wasserman 2012, "Random Differential Privacy"; Dwork, Rothblum 2016,
"Concentrated Differential Privacy".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topdown.errors import ConfigError
from topdown.noise.parameters import FloatArray, FloatOrArray, as_given, positive
from topdown.research.bounded.laplace import BoundaryInflatedLaplace, TruncatedLaplace, arrays_of

BoundedLaplace = TruncatedLaplace | BoundaryInflatedLaplace

# Between the locations the loss is linear and the density an exponential: so many nodes integrate them to rounding.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


class Concentration(NamedTuple):
    """Mean-concentrated differential privacy: the loss has ``mean``, and minus it is ``spread``-sub-Gaussian."""

    mean: float
    spread: float


def worst_loss(law: BoundedLaplace, other: BoundedLaplace) -> FloatOrArray:
    """The largest |ln(law/other)| over all outputs, pair by pair, in the shape of the parameters.

    Both laws are of one kind, with the same scale and bounds (none: plain Laplace noise, |s - s'|/scale); the
    locations of a pair are a statistic of two neighbouring data sets. Raises ConfigError for laws of two mechanisms.
    """
    _check_pair(law, other)
    # The loss is linear between the locations and constant beyond, so that its extremes are at the locations.
    ends = [_within(one) for one in (law, other)]
    losses = [*(_log_ratio(law, other, x) for x in ends), *_atom_losses(law, other)]
    return as_given(np.max(np.abs(np.broadcast_arrays(*losses)), axis=0))


def random_dp_gamma(law: BoundedLaplace, other: BoundedLaplace, epsilon: float) -> float:
    """The gamma of random differential privacy: the share of the pairs whose :func:`worst_loss` is above ``epsilon``.

    The locations are the statistic's values at pairs of neighbouring data sets (pairs,) that were drawn as the
    population draws them; a release satisfies (epsilon, gamma)-random differential privacy if, in the limit of many
    pairs, the share is at most gamma. Raises BudgetError for an epsilon that is not positive.
    """
    return float(np.mean(np.asarray(worst_loss(law, other)) > positive("epsilon", epsilon)))


def concentration(law: BoundedLaplace, other: BoundedLaplace) -> Concentration:
    """The mean mu of the loss of one pair, E ln(law/other) under ``law``, and its smallest sub-Gaussian spread tau.

    tau^2 = sup over rates r of 2 ln E exp(r (L - mu))/r^2, so that P(L > mu + t tau) <= exp(-t^2/2). A mechanism is
    (mu, tau)-mean-concentrated if both bound all ordered pairs of neighbours; plain Laplace noise with
    |s - s'|/scale = epsilon has mu = epsilon + exp(-epsilon) - 1. Parameters are one number each; raises ConfigError
    otherwise.
    """
    from scipy.optimize import minimize_scalar

    loss, mass = loss_distribution(law, other)
    loss, mass = loss[mass > 0], mass[mass > 0]
    mean = float(mass @ loss)
    centred, width = loss - mean, float(np.ptp(loss))
    if width == 0.0:
        return Concentration(mean, 0.0)

    def proxy(rate: float) -> float:
        largest = float((rate * centred).max())
        return 2.0 * (largest + float(np.log(mass @ np.exp(rate * centred - largest)))) / rate**2

    grid = np.geomspace(0.01, 1000.0, 121) / width
    best = float(mass @ centred**2)  # the limit at rate 0
    for rates in (grid, -grid):
        at = int(np.argmax([proxy(float(rate)) for rate in rates]))
        one, two = float(rates[max(at - 1, 0)]), float(rates[min(at + 1, rates.size - 1)])
        around = (min(one, two), max(one, two))
        best = max(best, -float(minimize_scalar(lambda rate: -proxy(rate), bounds=around, method="bounded").fun))
    return Concentration(mean, float(np.sqrt(best)))


def gaussian_concentration(sensitivity: float, sigma: float) -> Concentration:
    """The same of Gaussian noise: mu = (sensitivity/sigma)^2/2 and tau = sensitivity/sigma (Dwork, Rothblum 2016).

    Its loss is itself Gaussian. Raises ConfigError for a sensitivity or sigma that is not positive.
    """
    spread = positive("sensitivity", sensitivity) / positive("sigma", sigma)
    return Concentration(spread**2 / 2.0, spread)


def loss_distribution(law: BoundedLaplace, other: BoundedLaplace) -> tuple[FloatArray, FloatArray]:
    """The values that the loss of one pair takes under ``law`` and their probabilities, which add up to 1.

    Exact atoms for the outputs below and above both locations and for the bounds; the outputs between the locations
    as the nodes of a quadrature that integrates smooth functions of the loss to rounding.
    """
    _check_pair(law, other)
    if np.ndim(law.location) or np.ndim(other.location):
        raise ConfigError("location: give one number for each law of a pair")
    low, high = sorted(float(_within(one)) for one in (law, other))
    at = 0.5 * (low + high) + 0.5 * (high - low) * _NODES
    inner = 0.5 * (high - low) * _WEIGHTS * np.asarray(law.pdf(at))
    atoms = np.array(law.atoms if isinstance(law, BoundaryInflatedLaplace) else (0.0, 0.0))
    outer = np.maximum(np.array([float(law.cdf(low)), float(law.sf(high))]) - atoms, 0.0)
    loss = _log_ratio(law, other, np.concatenate([at, [low, high]]))
    at_bounds = [float(one) for one in _atom_losses(law, other)] or [0.0, 0.0]
    return np.concatenate([loss, at_bounds]), np.concatenate([inner, outer, atoms])


def _check_pair(law: BoundedLaplace, other: BoundedLaplace) -> None:
    if type(law) is not type(other) or any(
        np.any(getattr(law, name) != getattr(other, name)) for name in ("scale", "lower", "upper")
    ):
        raise ConfigError("the laws of a pair differ in kind, scale or bounds; give one mechanism at two locations")
    if np.any(law.lower == law.upper):
        raise ConfigError("lower and upper are equal: one possible output tells nothing; give lower < upper")


def _within(law: BoundedLaplace) -> FloatArray:
    location, _, lower, upper = arrays_of(law)
    return np.asarray(np.clip(location, lower, upper))


def _log_ratio(law: BoundedLaplace, other: BoundedLaplace, x: FloatArray) -> FloatArray:
    if isinstance(law, TruncatedLaplace) and isinstance(other, TruncatedLaplace):
        return np.subtract(law.logpdf(x), other.logpdf(x))
    return np.asarray((np.abs(x - other.location) - np.abs(x - law.location)) / law.scale)


def _atom_losses(law: BoundedLaplace, other: BoundedLaplace) -> list[FloatArray]:
    if isinstance(law, TruncatedLaplace):
        return []
    losses = []
    s, scale, lower, upper = arrays_of(law)
    for end, sign in ((lower, 1.0), (upper, -1.0)):
        depths = [sign * (location - end) / scale for location in (s, arrays_of(other)[0])]
        log_tail = [np.where(z >= 0, -np.abs(z), np.log(2.0 - np.exp(-np.abs(z)))) for z in depths]
        # An infinite bound is never reached.
        losses.append(np.where(np.isfinite(end), np.subtract(*np.nan_to_num(log_tail)), 0.0))
    return losses
