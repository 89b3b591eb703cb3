"""Pieces of Laplace laws between bounds, as sums of positive terms: nothing cancels, whatever the scale."""

from __future__ import annotations

import numpy as np
from scipy.special import gammainc

from topdown.noise.parameters import FloatArray

# exp(-FAR) is 0 in double precision, so a distance of FAR scales is as good as infinite, and 0 * FAR is not nan.
FAR = 1e4
# At a scale of so many widths the laws differ from their limit (infinite scale) by less than one rounding.
WIDE = 1e20


def lower_gamma(k: int, z: FloatArray) -> FloatArray:
    """Regularised lower incomplete gamma function P(k, z)."""
    values: FloatArray = -np.expm1(-z) if k == 1 else gammainc(k, z)
    return values


def laplace_tail(z: FloatArray) -> FloatArray:
    """P(Laplace > z scales)."""
    return np.where(z >= 0, 0.5 * np.exp(-np.abs(z)), -0.5 * np.expm1(-np.abs(z)) + 0.5)


def scaled_distances(
    s: FloatArray, lam: FloatArray, c0: FloatArray, c1: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(s - c0) / lam, (c1 - s) / lam, cut at FAR, and their difference (second minus first) to full precision."""
    a, a_error = _difference(s, c0)
    c, c_error = _difference(c1, s)
    with np.errstate(invalid="ignore"):
        d = np.nan_to_num(((c - a) + (c_error - a_error)) / lam, nan=0.0, posinf=FAR, neginf=-FAR)
    return np.minimum(a / lam, FAR), np.minimum(c / lam, FAR), np.clip(d, -FAR, FAR)


def _difference(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """x - y rounded, and its rounding error (Knuth's two-sum), 0 where an infinity takes part."""
    with np.errstate(invalid="ignore"):
        rounded = x - y
        shift = rounded - x
        error = (x - (rounded - shift)) - (y + shift)
    return rounded, np.where(np.isfinite(rounded), error, 0.0)


def lower_quantile(outer: FloatArray, inner: FloatArray, s: FloatArray, lam: FloatArray, c0: FloatArray) -> FloatArray:
    """The x <= s with exp((x - s) / lam) = outer + exp((c0 - s) / lam) = 1 - inner.

    ``outer`` and ``inner`` are the masses between c0 and x, and between x and s, in units of 1/2.
    """
    at_bound = np.exp(-(s - c0) / lam)
    # Every form keeps its digits where it is used: towards the location, towards the bound, in between.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(
            inner < outer,
            s + lam * np.log1p(-np.maximum(inner, 0.0)),
            np.where(outer < at_bound, c0 + lam * np.log1p(outer / at_bound), s + lam * np.log(outer + at_bound)),
        )


def second_moment(reach: FloatArray, lam: FloatArray) -> FloatArray:
    """E min(N, reach)^2 of one side of the noise, lam^2 P(2, reach / lam), where the ratio's square may underflow."""
    z = np.minimum(reach / lam, FAR)
    tiny = z < 1.0 / WIDE
    return np.where(tiny, 0.5 * np.where(tiny, reach, 0.0) ** 2, lam * lam * gammainc(2, z))
