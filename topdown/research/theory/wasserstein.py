"""Wasserstein-1 distance between laws: the projected residual against the noise, and what a sample can show.

In one dimension W1 is the integral of |F - G|. All laws here are symmetric, so it is twice the integral over x >= 0
of the difference of the survival functions.
"""

from __future__ import annotations

import math
from typing import Literal, SupportsFloat, SupportsIndex, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import special

from topdown.errors import ConfigError
from topdown.research.theory.noise_laws import (
    NoiseLaw,
    Scale,
    checked_count,
    checked_law,
    checked_scale,
    geometric_ratio,
    noise_mean_abs,
)
from topdown.research.theory.projected_geometric import ProjectedGeometric
from topdown.research.theory.projected_laplace import ProjectedLaplace

Array = NDArray[np.float64]
Reference = Literal["noise", "laplace"]
FloorMethod = Literal["asymptotic", "exact"]

_CHUNK = 1_000_000
_TAIL_EXPONENT = 60.0  # exp(-60): below what a sum of order 1 can show


def wasserstein_to_noise(
    n: SupportsIndex | SupportsFloat, scale: Scale, law: NoiseLaw = "laplace", *, reference: Reference = "noise"
) -> float:
    """W1 between one coordinate of the sum-projected residual of ``n`` draws and the noise law, in counts.

    Args:
        n: family size. ``n = 1`` leaves the residual 0, whose distance is E|noise|.
        scale: the noise scale; 1/epsilon for ``law="geometric"``.
        law: the noise that was drawn.
        reference: ``"noise"`` measures to the law that was drawn. ``"laplace"`` measures geometric noise to the
            continuous Laplace(scale): the projected residual lives on Z/n and the geometric law on Z, so the
            distance to the geometric law itself stays near 1/4 count until n is far above scale^2.

    Returns:
        For Laplace noise scale times a number that is 1/4 at n = 2 and falls to 0 like (2/e) / n; the survival
        functions cross once on x > 0 for n >= 3, and both pieces are integrated in closed form. For geometric
        noise the exact sum over the lattice.

    Raises:
        ConfigError: ``n``, ``scale``, ``law`` or ``reference`` is invalid.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy",
    Theorem 7 and Figure 5.

    Examples:
        >>> round(td.theory.wasserstein_to_noise(15, 10.0), 3)
        0.374
    """
    size, b, drawn = checked_count(n, "family size n"), checked_scale(scale), checked_law(law)
    if reference not in get_args(Reference):
        raise ConfigError(f'reference {reference!r} is not known; use reference="noise" or "laplace"')
    if size == 1:
        return noise_mean_abs(b, drawn if reference == "noise" else "laplace")
    if drawn == "laplace":
        return b * _laplace_distance(size)
    return _geometric_distance(size, b, reference)


def _laplace_distance(n: int) -> float:
    from scipy.optimize import brentq

    residual = ProjectedLaplace(n, 1.0)
    if n == 2:
        return 0.25  # the survival function lies below the noise's for every x > 0

    def difference(x: float) -> float:
        return float(residual.sf(x)) - 0.5 * math.exp(-x)

    crossing = float(brentq(difference, 0.05, 3.0, xtol=1e-14))
    before = float(residual.excess(0.0)) - float(residual.excess(crossing)) + 0.5 * math.expm1(-crossing)
    after = 0.5 * math.exp(-crossing) - float(residual.excess(crossing))
    return 2.0 * (before + after)


def _geometric_distance(n: int, scale: float, reference: Reference) -> float:
    residual = ProjectedGeometric(n, scale)
    a = geometric_ratio(scale)
    last = n * (math.ceil(_TAIL_EXPONENT * scale) + 1)
    pieces = []
    for start in range(0, last, _CHUNK):
        z = np.arange(start, min(start + _CHUNK, last), dtype=np.int64)
        survival = residual.lattice_sf(z)  # on [z/n, (z + 1)/n)
        if reference == "noise":
            k = z // n
            noise = np.exp(-(k + 1.0) / scale) / (1.0 + a)
            pieces.append(float(np.abs(survival - noise).sum()) / n)
        else:
            pieces.append(float(_step_against_laplace(survival, z / n, (z + 1) / n, scale).sum()))
    return 2.0 * math.fsum(pieces)


def _step_against_laplace(level: Array, left: Array, right: Array, scale: float) -> Array:
    """Integral over [left, right] of |level - exp(-x / scale) / 2|, exact, for a constant level in (0, 1/2]."""
    with np.errstate(divide="ignore"):
        crossing = np.clip(-scale * np.log(2.0 * level), left, right)

    def laplace_integral(low: Array, high: Array) -> Array:
        return -0.5 * scale * np.exp(-low / scale) * np.expm1((low - high) / scale)

    above = laplace_integral(left, crossing) - level * (crossing - left)
    below = level * (right - crossing) - laplace_integral(crossing, right)
    return above + below


def empirical_wasserstein_floor(
    replicates: SupportsIndex | SupportsFloat,
    scale: Scale,
    law: NoiseLaw = "laplace",
    *,
    method: FloorMethod = "asymptotic",
) -> float:
    """Expected W1 between the empirical law of N independent draws and the very law they come from, in counts.

    A measured distance below this floor is no distance at all. E|F_N(x) - F(x)| is a binomial mean absolute
    deviation; integrated over x it is

    - ``method="asymptotic"``: sqrt(2 / (pi N)) times the integral of sqrt(F (1 - F)), which for Laplace noise is
      scale sqrt(2 / (pi N)) (1 + pi/2), about 2.0512 scale / sqrt(N);
    - ``method="exact"``: De Moivre's closed form of the deviation, integrated (Laplace; N/2 incomplete betas) or
      summed over the integers (geometric).

    Args:
        replicates: N, the number of draws.
        scale: sensitivity / epsilon, in counts.
        law: "laplace" or "geometric".
        method: "asymptotic" or "exact".

    Raises:
        ConfigError: ``replicates`` is not a whole number of at least 1, or ``scale``, ``law`` or ``method``
            is invalid.

    Source: De Moivre's mean absolute deviation of the binomial law; the floor under the curves of Figure 5 of
    Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy".

    Examples:
        >>> round(td.theory.empirical_wasserstein_floor(100, 10.0), 3)
        2.051
    """
    draws, b, noise = checked_count(replicates, "replicates"), checked_scale(scale), checked_law(law)
    if method not in get_args(FloorMethod):
        raise ConfigError(f'method {method!r} is not known; use method="asymptotic" or "exact"')
    if noise == "laplace":
        if method == "asymptotic":
            return b * math.sqrt(2.0 / (math.pi * draws)) * (1.0 + math.pi / 2.0)
        return b * _exact_laplace_floor(draws)
    # Symmetric law: twice the sum over k >= 0 of the deviation of P(K > k).
    tail_exponent = _TAIL_EXPONENT + 2.0 * math.log(draws)
    k = np.arange(math.ceil(tail_exponent * b) + 2, dtype=np.float64)
    survival = np.exp(-(k + 1.0) / b) / (1.0 + math.exp(-1.0 / b))
    if method == "asymptotic":
        deviation = math.sqrt(2.0 / (math.pi * draws)) * np.sqrt(survival * (1.0 - survival))
    else:
        deviation = _binomial_deviation(draws, survival)
    return 2.0 * float(deviation.sum())


def _binomial_deviation(draws: int, p: Array) -> Array:
    """E|B/N - p| for B ~ Binomial(N, p): 2 p (1 - p) P(Binomial(N - 1, p) = floor(N p)) (De Moivre)."""
    from scipy import stats

    mode = np.minimum(np.floor(draws * p), draws - 1)
    return np.asarray(2.0 * p * (1.0 - p) * stats.binom.pmf(mode, draws - 1, p), dtype=np.float64)


def _exact_laplace_floor(draws: int) -> float:
    """2 times the integral over p in (0, 1/2) of the deviation / p (dx = scale dp / p), cell by cell of floor(N p)."""
    total = []
    cells = (draws + 1) // 2
    for start in range(1, cells + 1, _CHUNK):
        v = np.arange(start, min(start + _CHUNK, cells + 1), dtype=np.float64)
        high = np.minimum(v / draws, 0.5)
        share = special.betainc(v, draws - v + 2.0, high) - special.betainc(v, draws - v + 2.0, (v - 1.0) / draws)
        total.append(float(((draws - v + 1.0) / (draws + 1.0) * share).sum()))
    return 4.0 / draws * math.fsum(total)
