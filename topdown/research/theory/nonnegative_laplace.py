"""The bias and variance of the non-negative sum projection under continuous Laplace noise.

Two children have a closed form. For more, the moments are computed on lattices of step h, where the noise is double
geometric with a = exp(-h / scale), and extrapolated to h = 0: they are even functions of h.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError
from topdown.research.theory.noise_laws import Scale, checked_scale
from topdown.research.theory.nonnegative_exact import ProjectionMoments, family_moments

Array = NDArray[np.float64]

# Pieces of the first lattice. The expansion's higher coefficients depend on total / h modulo 2, 3 and 4 (a child meets
# the threshold of m others on a lattice m times finer): no 3 and no 6 keeps the class modulo 3 up to its sign.
_REFINEMENTS = (1, 2, 4, 5, 7)
_FINE_REFINEMENTS = (1, 2, 3, 4)  # from scale / h = 8 on those coefficients no longer matter
_COARSEST = 4.0  # scale / h
_FINEST = 45.0  # scale / h; the work grows with its square
_TOLERANCE = 1e-10  # change at which to stop; the error is smaller by orders. In units of the scale


def nonnegative_sum_projection_laplace(values: ArrayLike, scale: Scale) -> ProjectionMoments:
    """Bias and variance of v = argmin ||v - y||_2 s.t. sum v = sum x, v >= 0 under Laplace(scale) noise.

    n = 2: closed form. With be = scale / 2,
    h(c) = [3 be/2 - (3 be/2 + c/2) exp(-c/be)] / 2 and q(c) = 2 be^2 - (2 be^2 + 2 be c + c^2/2) exp(-c/be):
    bias_1 = h(x_2) - h(x_1) = -bias_2, mean squared error q(x_1) + q(x_2) for both.
    n >= 3: exact sums on lattices of step h and polynomial extrapolation in h^2; ``.error`` is the last change, in
    counts (or counts squared, the larger).

    Args:
        values: (n,) true counts x of one family, >= 0; their sum is the public total. For n >= 3 they must be
            fractions with denominators up to 1000.
        scale: Laplace scale, sensitivity / epsilon.

    Returns:
        ``bias, variance = ...`` per child; also ``.mse`` and ``.error``.

    Raises:
        ConfigError: a value is negative, missing or infinite; ``scale`` is not positive and finite; or the lattice
            of the values is too fine for the scale.

    Source: the program (P+) of Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential
    Privacy", on one family.

    Examples:
        >>> found = td.theory.nonnegative_sum_projection_laplace([6.0, 30.0], 2.0)
        >>> found.bias.round(3)
        array([ 0.006, -0.006])
    """
    b = checked_scale(scale)
    try:
        x = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise ConfigError("values are not numbers; give one count of at least 0 per child") from None
    if x.ndim != 1 or x.size == 0 or np.any(~(np.isfinite(x) & (x >= 0.0))):
        raise ConfigError(f"values {x.tolist()[:10]} are not one family's counts; give finite numbers >= 0")
    if x.size == 1 or not np.any(x):
        return ProjectionMoments(np.zeros(x.size), np.zeros(x.size))
    return _pair(x, b) if x.size == 2 else _extrapolated(x, b)


def _pair(x: Array, scale: float) -> ProjectionMoments:
    be = 0.5 * scale
    decay = np.exp(-x / be)
    h = 0.5 * (1.5 * be - (1.5 * be + 0.5 * x) * decay)
    # an impossible child loses nothing: -expm1 keeps the digits at small x
    q = -2.0 * be * be * np.expm1(-x / be) - (2.0 * be * x + 0.5 * x * x) * decay
    bias = h[::-1] - h
    return ProjectionMoments(bias, np.full(2, q.sum()) - bias**2)


def _extrapolated(x: Array, scale: float) -> ProjectionMoments:
    unit = _common_unit(x)
    ratio = scale / unit
    base = max(1, math.ceil(_COARSEST / ratio))
    refinements: tuple[int, ...] = _FINE_REFINEMENTS
    if ratio * base < 2.0 * _COARSEST:
        refinements = _REFINEMENTS
        fourths = 4 // math.gcd(4, round(x.sum() / unit))
        base = -(-base // fourths) * fourths
    if ratio * base * refinements[1] > 4.0 * _FINEST:
        raise ConfigError(
            f"scale {scale} is {ratio:.0f} times the values' common unit {unit}: the lattice is too fine; "
            "geometric noise (nonnegative_sum_projection) is within 1e-4 of Laplace noise there"
        )
    diagonals: list[Array] = []
    error, nodes = math.inf, []
    best = np.zeros((2, x.size))
    for i, refinement in enumerate(refinements):
        pieces = base * refinement
        if i >= 2 and ratio * pieces > _FINEST:
            break
        h = unit / pieces
        on_lattice = family_moments(np.rint(x / h), float(np.rint(x / h).sum()), scale / h)
        nodes.append(h * h)
        # Neville's scheme at h = 0, in h^2
        row = [np.stack((on_lattice.bias * h, on_lattice.mse * h * h))]
        for j, previous in enumerate(diagonals):
            row.append(row[j] + (row[j] - previous) / (nodes[i - 1 - j] / nodes[i] - 1.0))
        if i > 0:
            change = float(np.abs(row[-1] - best).max())
            if i >= 2 and change > error:
                break  # rounding has taken over
            error = change
        best, diagonals = row[-1], row
        if error <= _TOLERANCE * max(scale, scale * scale):
            break
    bias, second = best
    return ProjectionMoments(bias, np.maximum(second - bias**2, 0.0), error)


def _common_unit(x: Array) -> float:
    """The largest unit of which every value is a whole multiple."""
    fractions = [Fraction(value).limit_denominator(1000) for value in x.tolist()]
    if any(abs(float(f) - value) > 1e-12 * max(1.0, value) for f, value in zip(fractions, x.tolist(), strict=True)):
        raise ConfigError("three or more values must be fractions with denominators up to 1000; round them")
    denominator = math.lcm(*(f.denominator for f in fractions))
    return math.gcd(*(int(f * denominator) for f in fractions)) / denominator
