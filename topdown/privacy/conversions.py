"""Conversions between measures of privacy loss: pure epsilon, rho-zCDP, (epsilon, delta), and groups.

``sensitivity`` is the L2 sensitivity in units of the statistic, as is ``sigma``; epsilon, rho and delta have no unit.
Budgets are computed elsewhere, in exact fractions; these are the floats that a statement quotes. All raise BudgetError
for arguments outside of their range.

Sources: Bun, Steinke 2016 (zCDP); Canonne, Kamath, Steinke 2020 (the sharper conversion); Balle, Wang 2018
(analytic Gaussian); Dwork, Roth 2014 (classical Gaussian, group privacy).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from typing import TypeAlias, TypeVar

import numpy as np
from scipy.special import erfcx, ndtr

from topdown.errors import BudgetError
from topdown.privacy.budget_numbers import float_or_nan
from topdown.wording import figure

Real: TypeAlias = float | Fraction
Exact = TypeVar("Exact", float, Fraction)

_QUADRATURE_NODES, _QUADRATURE_WEIGHTS = np.polynomial.legendre.leggauss(20)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_LEAST_LOG = -700.0
"""Of the roots that are looked for; 1 divided by exp of it is a double."""
_LARGEST_ORDER = 1e150
"""Squares of larger orders are beyond the range of doubles; rho is then below 700 divided by such a square."""


def pure_to_zcdp(epsilon: Exact) -> Exact:
    """rho = epsilon^2 / 2, which every epsilon-DP mechanism satisfies (Bun, Steinke 2016, Proposition 1.4).

    Args:
        epsilon: 0 or more; a Fraction gives a Fraction.

    Examples:
        >>> td.privacy.pure_to_zcdp(Fraction(1, 2))
        Fraction(1, 8)
    """
    _check("epsilon", epsilon, zero=True)
    return epsilon * epsilon / 2


def group_epsilon(epsilon: Exact, k: int) -> Exact:
    """epsilon for a group of k units, k epsilon (Dwork, Roth 2014, Theorem 2.2).

    Args:
        epsilon: for one unit, 0 or more.
        k: units in the group, 1 or more.

    Examples:
        >>> td.privacy.group_epsilon(Fraction(1, 2), 4)
        Fraction(2, 1)
    """
    _check("epsilon", epsilon, zero=True)
    return _times(epsilon, _group_size(k))


def group_rho(rho: Exact, k: int) -> Exact:
    """rho for a group of k units, k^2 rho (Bun, Steinke 2016, Proposition 1.9).

    Args:
        rho: for one unit, 0 or more.
        k: units in the group, 1 or more.

    Examples:
        >>> td.privacy.group_rho(Fraction(1, 2), 4)
        Fraction(8, 1)
    """
    _check("rho", rho, zero=True)
    return _times(rho, _group_size(k) ** 2)


def group_delta(epsilon: Real, delta: Real, k: int) -> float:
    """delta beside epsilon k for a group of k units: delta (e^(k epsilon) - 1)/(e^epsilon - 1), at most 1.

    Vadhan 2017, The Complexity of Differential Privacy, Lemma 2.2.

    Args:
        epsilon: for one unit, 0 or more.
        delta: for one unit, above 0 and below 1.
        k: units in the group, 1 or more.

    Examples:
        >>> round(td.privacy.group_delta(0.5, 1e-6, 4), 8)
        9.85e-06
    """
    epsilon = _check("epsilon", epsilon, zero=True)
    delta = _check_delta(delta)
    size = _group_size(k)
    # Exactly, since a size may be beyond the range of doubles; no delta is below e^-1000.
    least, reach = size * Fraction(delta), (size - 1) * Fraction(epsilon)
    if least >= 1 or reach > 1000:
        return 1.0
    if epsilon == 0:
        return float(least)
    # log of the geometric sum, (k - 1) epsilon + log((1 - e^(-k epsilon)) / (1 - e^(-epsilon))): no overflow.
    whole = float(reach + Fraction(epsilon))
    log_sum = float(reach) + math.log(math.expm1(-whole) / math.expm1(-epsilon))
    return math.exp(min(0.0, math.log(delta) + log_sum))


def zcdp_divergence(alpha: Real, rho: Exact, xi: Exact | int = 0) -> Exact:
    """The largest Rényi divergence of order ``alpha`` > 1 under (xi, rho)-zCDP: xi + rho alpha.

    rho-zCDP has xi = 0; Gaussian noise is (0, sensitivity^2/(2 sigma^2)), with equality. Pure epsilon is (epsilon, 0)
    and (0, epsilon^2/2) (Bun, Steinke 2016, Definition 1.1, Propositions 1.4 and 1.6).

    Args:
        alpha: the order, above 1.
        rho: 0 or more.
        xi: 0 or more, 0 by default.

    Examples:
        >>> td.privacy.zcdp_divergence(3, 0.25, 0.5)
        1.25
    """
    _check("rho", rho, zero=True)
    _check("xi", xi, zero=True)
    if not alpha > 1:
        raise BudgetError(f"alpha is {figure(alpha)}; give an order above 1")
    return xi + rho * alpha  # type: ignore[return-value]


def zcdp_to_epsilon(rho: Real, delta: Real, method: str = "cks", *, xi: Real = 0) -> float:
    """Smallest epsilon such that (xi, rho)-zCDP implies (epsilon, delta)-DP by the given method; rho-zCDP has xi = 0.

    "cks" (default): inf over alpha > 1 of xi + rho alpha + log(1 - 1/alpha) + (log(1/delta) - log alpha)/(alpha - 1)
    (Canonne, Kamath, Steinke 2020, Proposition 12 with Corollary 13), never below 0.
    "bun-steinke": xi + rho + 2 sqrt(rho log(1/delta)) (Bun, Steinke 2016, Proposition 1.3 and section 3).

    Args:
        rho: 0 or more.
        delta: above 0 and below 1.
        method: "cks" or "bun-steinke".
        xi: 0 or more, 0 by default.

    Examples:
        >>> round(td.privacy.zcdp_to_epsilon(0.1, 1e-6), 3)
        2.142
    """
    rho = _check("rho", rho, zero=True)
    xi = _check("xi", xi, zero=True)
    log_inverse = -math.log(_check_delta(delta))
    if _method(method) == "bun-steinke":
        return xi + rho + 2 * math.sqrt(rho * log_inverse)
    if rho == 0:
        return xi
    # With t = alpha - 1 the derivative vanishes where rho t^2 + log(1 + t) = log(1/delta), whose left side grows.
    high = math.sqrt(log_inverse / rho)
    t = _root_in_log(lambda t: rho * t * t + math.log1p(t) - log_inverse, high)
    return max(0.0, xi + rho * (1 + 2 * t) - math.log1p(1 / t))


def zcdp_to_delta(rho: Real, epsilon: Real, method: str = "cks") -> float:
    """Smallest delta such that rho-zCDP implies (epsilon, delta)-DP by the given method.

    "cks": inf over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1)
    (Canonne, Kamath, Steinke 2020, Corollary 13). "bun-steinke": exp(-(epsilon - rho)^2 / (4 rho)), 1 for
    epsilon <= rho.

    Args:
        rho: 0 or more.
        epsilon: 0 or more.
        method: "cks" or "bun-steinke".

    Examples:
        >>> f"{td.privacy.zcdp_to_delta(0.1, 2.0):.2e}"
        '4.33e-06'
    """
    rho = _check("rho", rho, zero=True)
    epsilon = _check("epsilon", epsilon, zero=True)
    known = _method(method)
    if epsilon > 1e300 * rho or rho == 0:
        return 0.0  # which it is long before, and what follows stays within the range of doubles
    if known == "bun-steinke":
        # No square, which may be beyond the range of doubles.
        return 1.0 if epsilon <= rho else math.exp(-(epsilon - rho) / rho * ((epsilon - rho) / 4))
    # The derivative in t = alpha - 1 vanishes where rho (1 + 2 t) - log(1 + 1/t) = epsilon; the left side grows.
    # The difference comes first: in 1 + 2 t a small t would be lost.
    high = 1 / rho + epsilon / rho
    t = _root_in_log(lambda t: 2 * (rho * t) + (rho - epsilon) - math.log1p(1 / t), high)
    return math.exp(-rho * t * t - math.log1p(t))


def epsilon_to_zcdp(epsilon: Real, delta: Real, method: str = "cks") -> float:
    """Largest rho whose conversion by ``zcdp_to_epsilon`` at ``delta`` stays at epsilon (to rounding).

    Raises BudgetError for an epsilon and a delta so small that the rho is beyond the range of doubles.

    Args:
        epsilon: above 0.
        delta: above 0 and below 1.
        method: "cks" or "bun-steinke", as of `zcdp_to_epsilon`.

    Examples:
        >>> round(td.privacy.epsilon_to_zcdp(1.0, 1e-6), 5)
        0.02436
    """
    epsilon = _check("epsilon", epsilon)
    log_inverse = -math.log(_check_delta(delta))
    if _method(method) == "bun-steinke":
        return (epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))) ** 2
    # Both stationarity equations hold at the answer; rho is eliminated, and the remaining left side grows in t.
    high = math.expm1(min(log_inverse, 700.0))
    t = _root_in_log(
        lambda t: log_inverse - math.log1p(t) - t * t * (epsilon + math.log1p(1 / t)) / (1 + 2 * t), high, sign=-1
    )
    if t > _LARGEST_ORDER:
        raise BudgetError(
            f"at delta {figure(delta)} and epsilon {figure(epsilon)} rho is below 1e-290, too small to be computed; "
            "give a larger epsilon or delta"
        )
    return (epsilon + math.log1p(1 / t)) / (1 + 2 * t)


def conservative_rho(epsilon: Real, delta: Real) -> Fraction:
    """Largest 12-digit decimal rho whose conversion at ``delta`` does not exceed epsilon, as an exact fraction.

    Canonne, Kamath, Steinke 2020; the float conversion of the result is checked to be at or below epsilon.

    Args:
        epsilon: above 0.
        delta: above 0 and below 1.

    Examples:
        >>> float(td.privacy.conservative_rho(1, 1e-6))
        0.0243559703595
    """
    rounding = Context(prec=12, rounding=ROUND_DOWN)
    rho = rounding.create_decimal(Decimal(epsilon_to_zcdp(epsilon, delta)))
    while zcdp_to_epsilon(float(rho), delta) > epsilon:
        rho = rounding.next_minus(rho)
    return Fraction(rho)


def gaussian_delta(epsilon: Real, sigma: Real, sensitivity: Real = 1.0) -> float:
    """Exact delta of the Gaussian mechanism at epsilon: the smallest for which it is (epsilon, delta)-DP.

    Phi(D/(2 sigma) - epsilon sigma/D) - e^epsilon Phi(-D/(2 sigma) - epsilon sigma/D), D the L2 sensitivity
    (Balle, Wang 2018, Theorem 8). Relative accuracy 1e-10 down to delta = 1e-300, 0 below the range of doubles.

    Args:
        epsilon: 0 or more.
        sigma: the standard deviation of the noise, in units of the statistic.
        sensitivity: in the L2 norm, in units of the statistic.

    Examples:
        >>> round(td.privacy.gaussian_delta(1.0, sigma=3.0), 5)
        0.00021
    """
    epsilon = _check("epsilon", epsilon, zero=True)
    return math.exp(_log_gaussian_delta(epsilon, _shift(sensitivity, sigma)))


def gaussian_epsilon(delta: Real, sigma: Real, sensitivity: Real = 1.0) -> float:
    """Exact epsilon of the Gaussian mechanism at delta: the root of ``gaussian_delta``, 0 if none is needed, infinite
    beyond the range of doubles.

    Args:
        delta: above 0 and below 1.
        sigma: the standard deviation of the noise, in units of the statistic.
        sensitivity: in the L2 norm, in units of the statistic.

    Examples:
        >>> round(td.privacy.gaussian_epsilon(1e-6, sigma=3.0), 3)
        1.448
    """
    log_delta = math.log(_check_delta(delta))
    shift = _shift(sensitivity, sigma)
    if _log_gaussian_delta(0.0, shift) <= log_delta:
        return 0.0
    if shift > _LARGEST_ORDER:
        return shift * shift / 2  # to which delta adds less than the rounding
    # delta is at most exp(-x^2/2) with x = epsilon/shift - shift/2 > 0.
    high = shift * (shift / 2 + math.sqrt(-2 * log_delta))
    return _root_in_log(lambda e: log_delta - _log_gaussian_delta(e, shift), high)


def analytic_gaussian_sigma(epsilon: Real, delta: Real, sensitivity: Real = 1.0) -> float:
    """Smallest sigma for which the Gaussian mechanism is (epsilon, delta)-DP (Balle, Wang 2018, Algorithm 1).

    Exact for every epsilon >= 0; rounded so that ``gaussian_delta`` of the answer does not exceed delta.

    Args:
        epsilon: 0 or more.
        delta: above 0 and below 1.
        sensitivity: in the L2 norm, in units of the statistic.

    Examples:
        >>> round(td.privacy.analytic_gaussian_sigma(1.0, 1e-6), 3)
        4.225
    """
    epsilon = _check("epsilon", epsilon, zero=True)
    delta = _check_delta(delta)
    sensitivity = _check("sensitivity", sensitivity)
    log_delta = math.log(delta)

    def excess(log_shift: float) -> float:
        return _log_gaussian_delta(epsilon, math.exp(log_shift)) - log_delta

    low = high = 0.0
    while excess(low) > 0:
        low -= 2.0
    while excess(high) < 0:
        high += 2.0
    sigma = sensitivity / math.exp(_root(excess, low, high, 1e-15, 1e-14))
    if not 0 < sigma < math.inf:
        raise BudgetError(
            f"at sensitivity {figure(sensitivity)} and epsilon {figure(epsilon)} sigma is beyond the range of doubles; "
            "give the statistic in other units"
        )
    while gaussian_delta(epsilon, sigma, sensitivity) > delta:
        sigma *= 1 + 2.0**-50
    return sigma


def classical_gaussian_sigma(epsilon: Real, delta: Real, sensitivity: Real = 1.0) -> float:
    """The textbook sigma = sensitivity sqrt(2 log(1.25/delta)) / epsilon, for 0 < epsilon < 1.

    Dwork, Roth 2014, Theorem A.1, whose proof needs epsilon < 1: at epsilon = 10, delta = 1e-5 the formula gives
    a true delta of 2.3e-5. Raises BudgetError from epsilon = 1 on; ``analytic_gaussian_sigma`` is valid
    everywhere and never larger.

    Args:
        epsilon: above 0 and below 1.
        delta: above 0 and below 1.
        sensitivity: in the L2 norm, in units of the statistic.

    Examples:
        >>> round(td.privacy.classical_gaussian_sigma(0.5, 1e-6), 3)
        10.598
    """
    epsilon = _check("epsilon", epsilon)
    delta = _check_delta(delta)
    if epsilon >= 1:
        raise BudgetError(
            f"the classical Gaussian sigma is proved for epsilon < 1 only, and epsilon is {epsilon:g}: it can be too "
            "small; use analytic_gaussian_sigma"
        )
    return _check("sensitivity", sensitivity) * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def _shift(sensitivity: Real, sigma: Real) -> float:
    """How many standard deviations the Gaussian moves, above 0 and up to 1e300, from which on delta is 1 for every
    epsilon.
    """
    return min(max(_check("sensitivity", sensitivity) / _check("sigma", sigma), math.ulp(0.0)), 1e300)


def _log_gaussian_delta(epsilon: float, shift: float) -> float:
    """log delta of a Gaussian of standard deviation 1 moved by ``shift``.

    With x = epsilon/shift - shift/2 and R the Mills ratio, e^epsilon phi(x + shift) = phi(x), so that
    delta = phi(x) (R(x) - R(x + shift)): no e^epsilon, and no tail probability that underflows.
    """
    x = epsilon / shift - shift / 2
    if x > 1e150:
        return -math.inf
    log_density = -x * x / 2 - _HALF_LOG_TWO_PI
    if shift < 0.5:
        # The two ratios nearly cancel: integrate -R'(u) = 1 - u R(u) over the short interval instead.
        points = x + shift * (1 + _QUADRATURE_NODES) / 2
        slopes = np.array([_mills_slope(float(u)) for u in points])
        return log_density + math.log(shift) + math.log(float(_QUADRATURE_WEIGHTS @ slopes) / 2)
    if x < 0:
        return math.log(float(ndtr(-x)) - math.exp(log_density) * _mills(x + shift))
    return log_density + math.log(max(_mills(x) - _mills(x + shift), math.ulp(0.0)))


def _mills(x: float) -> float:
    """(1 - Phi(x)) / phi(x), for x that is not far below 0."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _mills_slope(x: float) -> float:
    """1 - x R(x), positive; by its asymptotic series where the difference would cancel."""
    if x < 40:
        return 1 - x * _mills(x)
    y = 1 / (x * x)
    return y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y * (1 - 9 * y))))


def _root_in_log(function: Callable[[float], float], high: float, sign: int = 1) -> float:
    """The root t > 0 of an increasing (sign 1) or decreasing (sign -1) function, to full relative accuracy; a root
    below 1e-304 is taken for that."""
    upper = math.log(min(max(high, 1e-300), 1e300))
    while sign * function(math.exp(upper)) < 0:
        upper += 1.0
    lower = upper - 1.0
    while sign * function(math.exp(lower)) > 0:
        if lower == _LEAST_LOG:
            return math.exp(lower)
        lower = max(lower - 2 * (upper - lower), _LEAST_LOG)
    return math.exp(_root(lambda u: function(math.exp(u)), lower, upper, 1e-15, 1e-15))


def _root(function: Callable[[float], float], low: float, high: float, absolute: float, relative: float) -> float:
    """The root between ``low`` and ``high``, to either tolerance, by Brent's method."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=absolute, rtol=relative))


def _check(name: str, value: Real, *, zero: bool = False) -> float:
    number = float_or_nan(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise BudgetError(f"{name} is {figure(value)}; give a finite number {'of 0 or more' if zero else 'above 0'}")
    return number


def _check_delta(delta: Real) -> float:
    number = float_or_nan(delta)
    if not 0 < number < 1:
        raise BudgetError(f"delta is {figure(delta)}; give a number above 0 and below 1, such as 1e-10")
    return number


def _group_size(k: int) -> int:
    try:
        size = 0 if isinstance(k, bool) or k != int(k) else int(k)
    except (OverflowError, TypeError, ValueError):
        size = 0
    if size < 1:
        raise BudgetError(f"the group has {figure(k)} units; give a whole number of 1 or more")
    return size


def _times(loss: Exact, factor: int) -> Exact:
    """``loss`` times ``factor``; of a float beyond the range of doubles infinite."""
    try:
        return loss * factor
    except OverflowError:
        return math.inf  # type: ignore[return-value]


def _method(method: str) -> str:
    if method not in ("cks", "bun-steinke"):
        raise BudgetError(f"unknown method {method!r}; give 'cks' or 'bun-steinke'")
    return method
