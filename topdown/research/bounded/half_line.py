"""One infinite constraint: a scale that depends on the location, what is left of its privacy, and the sound scale.

Source: Croft, Sack, Shi, "Differential Privacy Via a Truncated and Normalized Laplace Mechanism", Formulae 25 to 33.
Theorem 1 there does not hold as pure differential privacy: two Laplace tails of different scales have an unbounded
ratio on a half-line, and any scale that varies with the location fails in this way. What remains is approximate
differential privacy, with the delta of :func:`half_line_delta`. Use :func:`adjacent_half_line_scale`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import ArrayLike
from scipy.special import lambertw

from topdown.errors import ConfigError
from topdown.noise.parameters import LARGEST, FloatArray, FloatOrArray, as_given, positive, real_numbers
from topdown.research.bounded.calibration import calibrate
from topdown.research.bounded.laplace import TruncatedLaplace

# Scales in units of sensitivity/epsilon: at the border (Formula 32), and where the branches meet, at a distance
# of one such unit.
_LAMBERT = float(lambertw(-0.5 / math.e).real)
AT_BORDER = -1.0 / (math.e * _LAMBERT)
AT_BRANCHES = 1.0 / (1.0 + _LAMBERT)
# Around the meeting of the branches the root is double, and found to half the digits only.
_NEAR_BRANCHES = 0.1


def half_line_scale(distance: ArrayLike, epsilon: float, sensitivity: float) -> FloatOrArray:
    """The location-dependent scale of Formulae 32 and 33 for a location at ``distance`` from the border of a
    half-line.

    NOT pure epsilon-differential privacy, whatever Theorem 1 says: see :func:`half_line_delta`. The root b of

        b (2 exp(distance/b) - 1) = b_0 exp(distance epsilon/sensitivity),   b_0 = 1.58595... sensitivity/epsilon

    on the branch that falls from b_0 at the border through 1.30202 sensitivity/epsilon at distance sensitivity/epsilon
    towards sensitivity/epsilon; by bracketed bisection, since the paper's Lambert function leaves the reals by rounding
    where its branches meet and underflows far out. Raises ConfigError for a negative distance.

    Args:
        distance: of the location from the border, 0 or more, any shape; this and the result are in units of the
            statistic.
        epsilon: above 0.
        sensitivity: above 0, in units of the statistic.

    Examples:
        >>> round(float(td.noise.half_line_scale(0.0, epsilon=1.0, sensitivity=1.0)), 5)
        1.58595
    """
    x = real_numbers("distance", distance, shown=False)
    if ((x < 0) | (x > LARGEST)).any():
        raise ConfigError(
            f"distance: give numbers from 0 to {LARGEST:g}; a location is on the feasible side of the border"
        )
    unit = positive("sensitivity", sensitivity) / positive("epsilon", epsilon)
    y = x / unit
    # The scale is analytic in the distance there, although its equation degenerates: interpolate.
    # (An odd degree has no node at y = 1 itself.)
    bridge = Chebyshev.interpolate(_bisect, 11, domain=[1.0 - _NEAR_BRANCHES, 1.0 + _NEAR_BRANCHES])
    near = np.abs(y - 1.0) < _NEAR_BRANCHES
    return as_given(unit * np.where(near, bridge(np.where(near, y, 1.0)), _bisect(y)))


class LambertBranches(NamedTuple):
    """One number for each branch of the Lambert function: Z = -1, and Z = 0 (the principal one)."""

    lower: FloatOrArray
    principal: FloatOrArray


def lambert_input(
    distance: ArrayLike, epsilon: float, sensitivity: float, *, border_scale: float | None = None
) -> FloatOrArray:
    """-2 tau exp(-tau), tau = distance exp(-distance epsilon/sensitivity)/b_0: what Formula 33 gives the Lambert
    function.

    0 at the border, falls to its only turn at distance sensitivity/epsilon, and rises towards 0 (Lemma 5). The turn is
    at -1/e for the ``border_scale`` b_0 of Formula 32, which is taken if none is given, and below it, where no real
    scale is left, for a smaller one.
    """
    tau = _tau(distance, epsilon, sensitivity, border_scale)
    return as_given(-2.0 * tau * np.exp(-tau))


def lambert_scales(
    distance: ArrayLike, epsilon: float, sensitivity: float, *, border_scale: float | None = None
) -> LambertBranches:
    """Formula 33 by both branches: b = -distance/(W_Z(-2 tau exp(-tau)) + tau) at a location ``distance`` > 0 away.

    * With the scale b_0 = ``border_scale`` at the border: what keeps the guarantee of Formula 25 between the border
      and the location are the scales from ``lower`` (Formula 29) to ``principal`` (Formula 28); nan if there are none.
    * With b_0 of Formula 32, as it comes: a location whose scale is up to ``lower`` (Formula 31) or from ``principal``
      on (Formula 30) leaves a scale to every location beyond it; one in between does not. Both together leave the two
      numbers themselves, of which :func:`half_line_scale` takes the falling one.

    ``principal`` falls and then rises, ``lower`` rises and then falls, both turning at sensitivity/epsilon, where
    they meet (Lemmas 4 and 6; half of the digits are lost there).
    """
    x, tau = real_numbers("distance", distance, shown=False), _tau(distance, epsilon, sensitivity, border_scale)
    given = -2.0 * tau * np.exp(-tau)
    if border_scale is None:
        given = np.maximum(given, -np.exp(-1.0))  # beyond by rounding alone
    return LambertBranches(*(as_given(-x / (_real_branch(given, z) + tau)) for z in (-1, 0)))


def lambert_slopes(distance: ArrayLike, epsilon: float, sensitivity: float) -> tuple[LambertBranches, LambertBranches]:
    """Numerator and denominator of the derivative of Formula 33 by the distance, of each branch.

    -(W_Z + distance epsilon/sensitivity) and (1 + W_Z)(W_Z + tau). The denominator is below 0 on the principal branch
    and above 0 on the other one (Lemma 3); the numerator is above 0 up to distance sensitivity/epsilon and below it
    from there on (Lemmas 4 and 6).
    """
    x, tau = real_numbers("distance", distance, shown=False), _tau(distance, epsilon, sensitivity, None)
    given = np.maximum(-2.0 * tau * np.exp(-tau), -np.exp(-1.0))
    w = [_real_branch(given, z) for z in (-1, 0)]
    rate = positive("epsilon", epsilon) / positive("sensitivity", sensitivity)
    return (
        LambertBranches(*(as_given(-(one + x * rate)) for one in w)),
        LambertBranches(*(as_given((1.0 + one) * (one + tau)) for one in w)),
    )


def adjacent_half_line_scale(epsilon: ArrayLike, sensitivity: ArrayLike) -> FloatOrArray:
    """sensitivity / ln((1 + exp(epsilon))/2): the smallest constant scale that keeps epsilon between adjacent
    locations.

    Pure epsilon-differential privacy on a half-line (the ``"adjacent"`` guarantee), for epsilon beyond 1.095 even
    below the b_0 of Formula 32. The sound default in place of :func:`half_line_scale`.

    Args:
        epsilon: above 0, any shape.
        sensitivity: above 0, in units of the statistic; broadcasts with epsilon.

    Examples:
        >>> round(float(td.noise.adjacent_half_line_scale(1.0, 1.0)), 4)
        1.6126
    """
    return calibrate(epsilon, sensitivity, 0.0, None)


@lru_cache(maxsize=256)
def half_line_delta(epsilon: float) -> float:
    """The smallest delta at which :func:`half_line_scale` is (epsilon, delta)-differentially private.

    The supremum of :func:`pair_delta` over locations at most one sensitivity apart; it does not depend on the
    sensitivity. It is reached with one location at the border, where scales differ most, and the other one a whole
    sensitivity away, or less from epsilon of about 2.5 on: two thirds of one at epsilon 4.

    Args:
        epsilon: the one that the scale was computed for; above 0.

    Examples:
        >>> round(td.noise.half_line_delta(1.0), 4)
        0.0002
    """
    from scipy.optimize import minimize_scalar

    budget = positive("epsilon", epsilon)
    if budget > 700.0:
        return 0.0  # below the range of doubles
    distances = np.linspace(1.0 / 64, 1.0, 64)
    best = int(np.argmax([pair_delta(0.0, float(t), budget) for t in distances]))
    around = (float(distances[max(best - 1, 0)]), float(distances[min(best + 1, 63)]))
    refined = minimize_scalar(
        lambda t: -pair_delta(0.0, float(t), budget), bounds=around, method="bounded", options={"xatol": 1e-9}
    )
    return max(-float(refined.fun), pair_delta(0.0, float(distances[best]), budget))


def pair_delta(location: float, other: float, epsilon: float) -> float:
    """Integral of (p_location - exp(epsilon) p_other)+ over the half-line x >= 0, in closed form.

    The densities are those of the normalised law with :func:`half_line_scale`; distances in units of the sensitivity.
    """
    s, other, epsilon = float(location), float(other), positive("epsilon", epsilon)
    p = TruncatedLaplace(s, half_line_scale(s, epsilon, 1.0), 0.0, None)
    r = TruncatedLaplace(other, half_line_scale(other, epsilon, 1.0), 0.0, None)

    def ratio(x: float) -> float:
        return float(p.logpdf(x)) - float(r.logpdf(x)) - epsilon

    # The logarithms of both densities are linear between these points, and beyond the last one.
    knots = sorted({0.0, s, other})
    total = 0.0
    for low, high in zip(knots, [*knots[1:], np.inf], strict=True):
        steps = [(1.0 if high <= place else -1.0) / float(law.scale) for law, place in ((p, s), (r, other))]
        slope = steps[0] - steps[1]
        at_low, at_high = ratio(low), ratio(high) if np.isfinite(high) else np.inf * slope
        # At the border the ratio is 0 (Formula 25), or what rounding makes of it.
        if max(at_low, at_high) <= 1e-13 * (1.0 + epsilon):
            continue
        crossing = low - at_low / slope
        start, stop = (low if at_low > 0.0 else crossing), (high if at_high > 0.0 else crossing)
        # From the end where p is larger, so that nothing overflows.
        end, sign = (start, 1.0) if steps[0] < 0.0 else (stop, -1.0)
        own, others = (_grown(sign * step, stop - start) for step in steps)
        total += float(p.pdf(end)) * (own - math.exp(-max(ratio(end), 0.0)) * others)
    return total


def _grown(slope: float, width: float) -> float:
    """Integral of exp(slope x) from 0 to ``width``."""
    return math.expm1(slope * width) / slope if np.isfinite(width) else -1.0 / slope


def _tau(distance: ArrayLike, epsilon: float, sensitivity: float, border_scale: float | None) -> FloatArray:
    x = real_numbers("distance", distance, shown=False)
    unit = positive("sensitivity", sensitivity) / positive("epsilon", epsilon)
    if ((x <= 0) | (x > 700 * unit)).any():
        raise ConfigError(
            "distance: give numbers above 0, where the scale is that of Formula 32, and up to 700 sensitivity/epsilon, "
            "beyond which the Lambert function's argument underflows"
        )
    border = AT_BORDER * unit if border_scale is None else positive("border_scale", border_scale)
    return np.asarray(x * np.exp(-x / unit) / border)


def _real_branch(given: FloatArray, branch: int) -> FloatArray:
    """A branch of the Lambert function, nan where it is not real."""
    at_turn = given == -np.exp(-1.0)  # of which scipy says nan
    real = np.where(at_turn, -1.0, lambertw(given, branch).real)
    return np.where(given >= -np.exp(-1.0), real, np.nan)


def _bisect(y: FloatArray) -> FloatArray:
    """The root in units of sensitivity/epsilon, the distance in the same units; half the digits near y = 1."""
    y = np.asarray(y, dtype=np.float64)
    outer = y > 1.0
    low, high = np.where(outer, 1.0, AT_BRANCHES), np.where(outer, AT_BRANCHES, AT_BORDER)
    for _ in range(60):
        b = 0.5 * (low + high)
        # Rises with b within distance 1 of the border, falls beyond.
        rest = y * (1.0 - b) / b + np.log(2.0 - np.exp(-y / b)) + np.log(b / AT_BORDER)
        up = (rest < 0.0) ^ outer
        low, high = np.where(up, b, low), np.where(up, high, b)
    return np.asarray(0.5 * (low + high))
