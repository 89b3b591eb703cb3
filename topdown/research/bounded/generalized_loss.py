"""What generalised Gaussian noise costs: the probability of a privacy loss beyond epsilon, exactly, bounded or not.

The loss of an output x between locations s and s + D is (|x - s - D|^p - |x - s|^p)/scale^p, for truncated laws plus
the logarithm of the ratio of the masses kept. As |.|^p is convex the loss falls as x grows, so that where it passes
epsilon is one point, and the probability is that of a tail.

Two guarantees, by name. ``"probabilistic"``: P(|loss| > epsilon) <= delta for every pair of neighbours
(Machanavajjhala, Kifer, Abowd, Gehrke, Vilhuber 2008; Liu's pDP). ``"approximate"``: the usual (epsilon, delta), the
supremum of P(S) - e^epsilon P'(S), which is never larger and, unlike the first, is kept by post-processing.

Source: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints", Equation 3 and what follows it. How the paper bounds the scale could not be recovered; what is
here is the exact probability, from which the smallest scale follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from topdown.errors import BudgetError, ConfigError, require_known
from topdown.noise.continuous import checked_power
from topdown.noise.parameters import bound, positive
from topdown.research.bounded.generalized_gaussian import (
    BoundaryInflatedGeneralizedGaussian,
    BoundedGeneralizedGaussian,
    TruncatedGeneralizedGaussian,
)

Bounding = Literal["truncated", "boundary-inflated"]
Tail = Literal["probabilistic", "approximate"]

_LOCATIONS = 25
"""Locations of the grid on which the worst pair is looked for; around the worst it is refined."""

LAWS: dict[str, type[TruncatedGeneralizedGaussian] | type[BoundaryInflatedGeneralizedGaussian]] = {
    "truncated": TruncatedGeneralizedGaussian,
    "boundary-inflated": BoundaryInflatedGeneralizedGaussian,
}


def generalized_gaussian_delta(
    epsilon: float,
    scale: float,
    power: float,
    sensitivity: float,
    *,
    lower: float | None = None,
    upper: float | None = None,
    bounding: Bounding = "boundary-inflated",
    guarantee: Tail = "probabilistic",
) -> float:
    """The smallest delta for which a statistic with generalised Gaussian noise keeps epsilon.

    Without bounds exact for every pair, the worst being ``sensitivity`` apart. Within bounds the pair matters; the
    worst is looked for over locations ``sensitivity`` apart (or at both ends of a narrower interval) on a grid, and
    around the worst again. At power 2 and without bounds, "approximate" is the analytic Gaussian of sigma = scale/sqrt
    2; at power 1 the delta is 0 from epsilon = sensitivity/scale on.

    Clipping keeps the approximate delta. It can raise the probabilistic one: an atom's loss is that of all outputs that
    it gathers, and may lie beyond epsilon where most of theirs did not.

    Args:
        epsilon: above 0.
        scale: of the noise, above 0, in units of the statistic.
        power: of the noise, from 1 to 100.
        sensitivity: above 0, in units of the statistic.
        lower: the lower bound; None for none.
        upper: the upper bound; None for none.
        bounding: "boundary-inflated" (clipped) or "truncated" (conditioned on the bounds).
        guarantee: "probabilistic", delta bounds the probability that the loss passes epsilon, or "approximate",
            (epsilon, delta)-differential privacy.

    Raises ConfigError for a scale, sensitivity, power or bounds that cannot be, BudgetError for such an epsilon.

    Examples:
        >>> round(td.noise.generalized_gaussian_delta(1.0, scale=5.0, power=2, sensitivity=1.0), 6)
        0.000462
    """
    require_known(bounding, LAWS, "bounding")
    require_known(guarantee, get_args(Tail), "guarantee")
    budget, reach, b, p = _checked(epsilon, sensitivity, scale, power)
    low, high = float(bound("lower", lower, absent=-np.inf)), float(bound("upper", upper, absent=np.inf))
    if low >= high:
        raise ConfigError(f"bounds [{low!r}, {high!r}]: give lower < upper")

    def worst(location: float) -> float:
        law = LAWS[bounding]
        other = min(location + reach, high)
        pair = law(location, b, p, low, high), law(other, b, p, low, high)
        return max(pair_delta(*pair, budget, guarantee), pair_delta(*pair[::-1], budget, guarantee))

    if math.isinf(low) and math.isinf(high):
        return worst(0.0)
    # Far from a bound the laws are the unbounded ones; a power below 1 + 1/100 has Laplace's tails, at most 40 scales.
    span = min(high - low, reach + 60.0 * b)
    starts = [(low, low + span)] if math.isfinite(low) else []
    starts += [(high - span, high)] if math.isfinite(high) else []
    best = 0.0
    for first, last in starts:
        best = max(best, _highest(worst, first, max(first, last - min(reach, span))))
    return best


def generalized_gaussian_scale(
    epsilon: float,
    delta: float,
    power: float,
    sensitivity: float,
    *,
    lower: float | None = None,
    upper: float | None = None,
    bounding: Bounding = "boundary-inflated",
    guarantee: Tail = "probabilistic",
) -> float:
    """The smallest scale at which :func:`generalized_gaussian_delta` is at most ``delta``, to 1e-9 of it, rounded up.

    At power 1 without bounds it is sensitivity/epsilon whatever delta below 1/2 is, since a smaller Laplace scale
    passes epsilon with probability 1/2. Raises BudgetError for a delta outside of (0, 1).

    Args:
        epsilon: as of `generalized_gaussian_delta`, and so are all arguments but ``delta``.
        delta: above 0 and below 1.
        power: of the noise, from 1 to 100.
        sensitivity: above 0, in units of the statistic.
        lower: the lower bound; None for none.
        upper: the upper bound; None for none.
        bounding: "boundary-inflated" or "truncated".
        guarantee: "probabilistic" or "approximate".

    Examples:
        >>> scale = td.noise.generalized_gaussian_scale(1.0, 0.01, power=2, sensitivity=1.0)
        >>> round(scale / 2**0.5, 3)  # sigma
        2.621
    """
    if not 0.0 < delta < 1.0:
        raise BudgetError(f"delta {delta!r}: give a number above 0 and below 1")

    def kept(scale: float) -> bool:
        found = generalized_gaussian_delta(
            epsilon, scale, power, sensitivity, lower=lower, upper=upper, bounding=bounding, guarantee=guarantee
        )
        return found <= delta

    high = positive("sensitivity", sensitivity) / positive("epsilon", epsilon)
    while not kept(high):
        high *= 2.0
    low = high / 2.0
    while kept(low) and low > 1e-6 * high:
        high, low = low, low / 2.0
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def pair_delta(
    law: BoundedGeneralizedGaussian,
    other: BoundedGeneralizedGaussian,
    epsilon: float,
    guarantee: Tail = "probabilistic",
) -> float:
    """delta of one ordered pair of laws of the same scale, power and bounds, one location each, exactly.

    "probabilistic": the probability under ``law`` that |ln(law/other)| passes ``epsilon``, atoms included.
    "approximate": the supremum over sets of law(S) - e^epsilon other(S). Raises ConfigError for an unknown guarantee.
    """
    require_known(guarantee, get_args(Tail), "guarantee")
    upward = float(other.location) >= float(law.location)
    delta = 0.0
    for above in (True, False) if guarantee == "probabilistic" else (True,):
        # With other's location above law's the loss falls in x: it is above epsilon on the left, below -epsilon on the
        # right.
        cut, left = _cut(law, other, epsilon, above=above, upward=upward), upward == above
        delta += _continuous(law, cut, left)
        if guarantee == "approximate":
            delta -= _times_exp(_continuous(other, cut, left), epsilon)
    if isinstance(law, BoundaryInflatedGeneralizedGaussian) and isinstance(other, BoundaryInflatedGeneralizedGaussian):
        for mass, opposite in zip(law.atoms, other.atoms, strict=True):
            one, two = float(mass), float(opposite)
            if guarantee == "approximate":
                delta += max(0.0, one - _times_exp(two, epsilon))
            elif one > 0.0 and (two == 0.0 or abs(math.log(one / two)) > epsilon):
                delta += one
    return min(1.0, max(0.0, delta))


def _times_exp(mass: float, epsilon: float) -> float:
    """exp(epsilon) mass, where exp(epsilon) alone may be beyond the range of doubles."""
    return math.exp(min(epsilon + math.log(mass), 700.0)) if mass > 0.0 else 0.0


def _continuous(law: BoundedGeneralizedGaussian, cut: float, left: bool) -> float:
    """The mass of a law's density on one side of a point; atoms apart."""
    low, high = float(np.asarray(law.lower)), float(np.asarray(law.upper))
    cut = min(max(cut, low), high)
    if isinstance(law, TruncatedGeneralizedGaussian):
        return float(law.cdf(cut)) if left else float(law.sf(cut))
    below, above = (float(atom) for atom in law.atoms)
    unbounded = BoundaryInflatedGeneralizedGaussian(law.location, law.scale, law.power)
    return max(0.0, float(unbounded.cdf(cut)) - below) if left else max(0.0, float(unbounded.sf(cut)) - above)


def _cut(
    law: BoundedGeneralizedGaussian, other: BoundedGeneralizedGaussian, epsilon: float, *, above: bool, upward: bool
) -> float:
    """Where the loss of the densities passes epsilon (``above``) or -epsilon: the end of the set where it is beyond
    it."""
    s, t, b, p = float(law.location), float(other.location), law.scale, law.power
    target = epsilon if above else -epsilon
    if isinstance(law, TruncatedGeneralizedGaussian) and isinstance(other, TruncatedGeneralizedGaussian):
        # law = density/kept: its loss has the logarithm of the other's mass over its own.
        target -= math.log(float(other._kept()) / float(law._kept()))
    none, all_ = (-math.inf, math.inf) if upward == above else (math.inf, -math.inf)
    if s == t:
        return all_ if (target < 0.0) == above and target != 0.0 else none

    def loss(x: float) -> float:
        return float(abs((x - t) / b) ** p - abs((x - s) / b) ** p - target)

    # The loss is monotone, unbounded for a power above 1; for Laplace it is constant beyond both locations.
    low, high = min(s, t), max(s, t)
    if p == 1.0:
        top, wanted = (high - low) / b, target if above else -target
        if abs(wanted) >= top:
            return none if wanted > 0 else all_
        return 0.5 * (s + t) + (-0.5 if upward else 0.5) * b * target
    sign = 1.0 if upward else -1.0
    step = max(high - low, b)
    while sign * loss(low) < 0.0 and step < 1e100:
        low, step = low - step, 2.0 * step
    step = max(high - low, b)
    while sign * loss(high) > 0.0 and step < 1e100:
        high, step = high + step, 2.0 * step
    if sign * loss(low) < 0.0:
        return -math.inf
    if sign * loss(high) > 0.0:
        return math.inf
    from scipy.optimize import brentq

    return float(brentq(loss, low, high, xtol=1e-14 * b, rtol=1e-15))


def _highest(function: Callable[[float], float], first: float, last: float) -> float:
    """The greatest value of a function on [first, last], on a grid that is laid again around the greatest."""
    best = -math.inf
    for _ in range(4):
        grid = np.linspace(first, last, _LOCATIONS)
        values = [float(function(float(x))) for x in grid]
        at = int(np.argmax(values))
        best = max(best, values[at])
        first, last = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, _LOCATIONS - 1)])
        if last <= first:
            break
    return best


def _checked(epsilon: float, sensitivity: float, scale: float, power: float) -> tuple[float, float, float, float]:
    return (
        positive("epsilon", epsilon),
        positive("sensitivity", sensitivity),
        positive("scale", scale),
        checked_power(power),
    )
