"""A private regression by noise on its sufficient statistics in a chosen norm: the K-norm mechanisms.

For studies, as the other comparators: the noise is drawn in floating point. Neighbours differ in one record, values are
within public bounds, and the number of records is public.

Source: Awan, Slavkovic, "Structure and Sensitivity in Differential Privacy: Comparing K-Norm Mechanisms" (JASA 2021);
Hardt, Talwar, "On the Geometry of Differential Privacy" (2010), for the mechanism.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from topdown.errors import require_known
from topdown.noise import ExactNumber, Laplace, Source, exact_fraction
from topdown.research.pmse.columns import FloatArray
from topdown.research.pmse.comparators import checked_bounds
from topdown.research.pmse.generators import numpy_generator

NORMS = ("l1", "linf")


def k_norm_noise(norm: str, size: int, scale: float, *, source: Source) -> FloatArray:
    """One draw with density proportional to exp(-|v| / scale) in a norm.

    "l1": independent Laplace noise. "linf": a point uniform in the cube [-1, 1]^size, times a Gamma(size + 1) radius:
    the greatest entry is then Gamma(size) of that scale. With scale sensitivity/epsilon, the sensitivity in the same
    norm, the sum is epsilon-private.

    Args:
        norm: "l1" or "linf".
        size: the dimension.
        scale: above 0.
        source: where the random bits come from.

    Examples:
        >>> td.synthesis.k_norm.k_norm_noise("linf", 3, scale=2.0, source=td.SeededSource(1)).shape
        (3,)
    """
    require_known(norm, NORMS, "norm")
    if norm == "l1":
        return np.asarray(Laplace(scale).sample(size, source), dtype=np.float64)
    rng = numpy_generator(source)
    return np.asarray(scale * rng.gamma(size + 1) * rng.uniform(-1.0, 1.0, size), dtype=np.float64)


def k_norm_regression(
    design: npt.ArrayLike,
    response: npt.ArrayLike,
    epsilon: ExactNumber,
    bounds: npt.ArrayLike,
    *,
    norm: str = "linf",
    source: Source,
) -> FloatArray:
    """Coefficients (intercept first) of least squares from its sufficient statistics with K-norm noise.

    ``design`` and ``response`` are scaled to [-1, 1] by ``bounds``. The statistics are the sums over records of the
    scaled values, their products and 2 x^2 - 1 for squares, k in all, each in [-1, 1]: one record moves each by 2, so
    that the sensitivity is 2 in the maximum norm and 2 k in the L1 norm. Directions in which the noisy cross-products
    are not positive are left out. Given back in the data's units.

    Args:
        design: (rows x d).
        response: (rows,).
        epsilon: the budget.
        bounds: ((d + 1) x 2), public, the response's last.
        norm: "l1" or "linf".
        source: where the random bits come from.

    Raises ConfigError for an unknown norm, or invalid bounds.

    Examples:
        >>> records = np.array([[0.1, 0.2], [0.4, 0.5], [0.9, 0.7], [0.3, 0.4]])
        >>> td.synthesis.k_norm.k_norm_regression(
        ...     records[:, :1], records[:, 1], 1, [(0, 1), (0, 1)], source=td.SeededSource(1)
        ... ).shape
        (2,)
    """
    require_known(norm, NORMS, "norm")
    both = np.column_stack([np.asarray(design, dtype=np.float64), np.asarray(response, dtype=np.float64)])
    limits = checked_bounds(bounds, both)
    middle, half = limits.mean(axis=1), (limits[:, 1] - limits[:, 0]) / 2
    scaled = (np.clip(both, limits[:, 0], limits[:, 1]) - middle) / half
    statistics = sufficient_statistics(scaled)
    sensitivity = 2.0 * (1 if norm == "linf" else len(statistics))
    statistics = statistics + k_norm_noise(
        norm, len(statistics), sensitivity / float(exact_fraction(epsilon)), source=source
    )
    gram, cross = _normal_equations(statistics, len(scaled), scaled.shape[1])
    sizes, vectors = np.linalg.eigh(gram)
    kept = sizes > 1e-9 * len(scaled)
    found = vectors[:, kept] @ ((vectors[:, kept].T @ cross) / sizes[kept])
    slopes = found[1:] * half[-1] / half[:-1]
    intercept = middle[-1] + half[-1] * found[0] - slopes @ middle[:-1]
    coefficients: FloatArray = np.concatenate([[intercept], slopes])
    return coefficients


def sufficient_statistics(scaled: FloatArray) -> FloatArray:
    """Sums over records in [-1, 1]^(d + 1) of what least squares of the last column needs: every term within [-1,
    1].

    Args:
        scaled: (rows x (d + 1)), the records scaled to [-1, 1], the response last.

    Examples:
        >>> td.synthesis.k_norm.sufficient_statistics(np.array([[0.5, 1.0], [-0.5, 0.0]]))
        array([ 0. ,  1. ,  0.5, -1. ])
    """
    p = scaled.shape[1]
    terms = [scaled[:, i] for i in range(p)]
    terms += [scaled[:, i] * scaled[:, j] for i in range(p) for j in range(i)]
    terms += [2.0 * scaled[:, i] ** 2 - 1.0 for i in range(p - 1)]
    return np.array([term.sum() for term in terms])


def _normal_equations(statistics: FloatArray, n: int, p: int) -> tuple[FloatArray, FloatArray]:
    """The cross-products of (1, the design), and theirs with the response, from the statistics."""
    whole = np.zeros((p + 1, p + 1))
    whole[0, 0] = n
    whole[0, 1:] = whole[1:, 0] = statistics[:p]
    pairs = [(i, j) for i in range(p) for j in range(i)]
    for (i, j), value in zip(pairs, statistics[p : p + len(pairs)], strict=True):
        whole[i + 1, j + 1] = whole[j + 1, i + 1] = value
    for i, value in enumerate(statistics[p + len(pairs) :]):
        whole[i + 1, i + 1] = (value + n) / 2.0
    return whole[:p, :p], whole[:p, p]
