"""Methods with which the pMSE mechanism is compared: other ways to make synthetic continuous records, and a private
regression.

They are for studies: their noise is drawn in floating point, and their output is not fit for release. Neighbours differ
in one record, values are within public bounds (they are clipped to them), and the number of records is public.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.noise import ExactNumber, Laplace, Source, exact_fraction
from topdown.privacy.sensitivity import covariance_sensitivity, mean_sensitivity
from topdown.research.pmse.columns import FloatArray, as_frame
from topdown.research.pmse.generators import numpy_generator


def non_private_synthesis(original: Any, n: int | None = None, *, source: Source) -> FloatArray:
    """Records from sequential linear regressions fitted by least squares.

    Column j is drawn from N(intercept + slopes x earlier columns, residual variance), with coefficients and variance
    drawn from their posterior under the usual flat prior, as in the R package synthpop. It is not private.

    Args:
        original: the records, (n x columns).
        n: how many records are made; by default as many as there are.
        source: where the random bits come from.

    Examples:
        >>> records = np.array([[0.1, 0.2], [0.4, 0.5], [0.9, 0.7], [0.3, 0.4]])
        >>> td.synthesis.comparators.non_private_synthesis(records, 3, source=td.SeededSource(1)).shape
        (3, 2)
    """
    values, rng = _matrix(original), numpy_generator(source)
    size = len(values) if n is None else n
    drawn = np.empty((size, values.shape[1]))
    for j in range(values.shape[1]):
        design = np.column_stack([np.ones(len(values)), values[:, :j]])
        fitted, inverse, residual = _least_squares(design, values[:, j])
        variance = float(residual @ residual) / float(rng.chisquare(len(values) - j - 1))
        coefficients = rng.multivariate_normal(fitted, variance * inverse)
        mean = np.column_stack([np.ones(size), drawn[:, :j]]) @ coefficients
        drawn[:, j] = mean + math.sqrt(variance) * rng.standard_normal(size)
    return drawn


def noisy_posterior_predictive(
    original: Any, epsilon: ExactNumber, bounds: npt.ArrayLike, n: int | None = None, *, source: Source
) -> FloatArray:
    """Records from the posterior predictive law of a normal model whose statistics have Laplace noise.

    The p means and p (p + 1)/2 covariances of the records clipped to ``bounds`` get an equal part of ``epsilon`` each,
    with the sensitivities of `topdown.privacy.sensitivity`. With the noisy mean m* and covariance S* (moved to the
    nearest matrix with eigenvalues of at least 10^-6 of the bounds' width, squared), Sigma ~ inverse-Wishart(n - 1, (n
    - 1) S*), mu ~ N(m*, Sigma/n), records ~ N(mu, Sigma). Source: Bowen, Liu, "Comparative Study of Differentially
    Private Data Synthesis Methods" (model-based synthesis with sanitised statistics).

    Args:
        original: the records, (n x columns).
        epsilon: the budget.
        bounds: (columns x 2), public.
        n: how many records are made; by default as many as there are.
        source: where the random bits come from.

    Examples:
        >>> records = np.array([[0.1, 0.2], [0.4, 0.5], [0.9, 0.7], [0.3, 0.4]])
        >>> made = td.synthesis.comparators.noisy_posterior_predictive(
        ...     records, 1, [(0, 1), (0, 1)], 3, source=td.SeededSource(1)
        ... )
        >>> made.shape
        (3, 2)
    """
    values, limits = _matrix(original), checked_bounds(bounds, original)
    values, rng = np.clip(values, limits[:, 0], limits[:, 1]), numpy_generator(source)
    size, p = values.shape
    part = exact_fraction(epsilon) / (p + p * (p + 1) // 2)

    def noise(sensitivity: float) -> float:
        scale = exact_fraction(sensitivity) / part
        return float(Laplace(scale).sample(1, source)[0])

    pairs = [(float(low), float(high)) for low, high in limits]
    mean = values.mean(axis=0) + np.array([noise(mean_sensitivity(size, *b, neighbours="substitute")) for b in pairs])
    covariance = np.cov(values.T).reshape(p, p)
    for i in range(p):
        for j in range(i + 1):
            found = covariance[i, j] + noise(covariance_sensitivity(size, pairs[i], pairs[j], neighbours="substitute"))
            covariance[i, j] = covariance[j, i] = found
    widths = limits[:, 1] - limits[:, 0]
    sizes, vectors = np.linalg.eigh(covariance)
    covariance = (vectors * np.maximum(sizes, (1e-6 * widths.min()) ** 2)) @ vectors.T
    # Wishart with size - 1 degrees of freedom by Bartlett's decomposition, inverted.
    freedom = size - 1
    lower = np.tril(rng.standard_normal((p, p)), -1)
    lower += np.diag(np.sqrt(rng.chisquare(freedom - np.arange(p))))
    root = np.linalg.cholesky(covariance * freedom) @ np.linalg.inv(lower).T
    sigma = root @ root.T
    location = rng.multivariate_normal(mean, sigma / size)
    drawn: FloatArray = rng.multivariate_normal(location, sigma, len(values) if n is None else n)
    return drawn


def smooth_histogram_weight(bins: int, n: int, epsilon: float) -> float:
    """The uniform's weight in the smoothed histogram: lambda = K / (K + n (e^(epsilon/n) - 1)).

    With it every one of n draws is epsilon/n-differentially private, all of them together epsilon. Source: Wasserman,
    Zhou, "A Statistical Framework for Differential Privacy", section 4.2.

    Args:
        bins: K, in all.
        n: how many draws there are.
        epsilon: of all draws together.

    Examples:
        >>> round(td.synthesis.comparators.smooth_histogram_weight(20, n=1000, epsilon=1.0), 4)
        0.9524
    """
    if bins < 1 or n < 1 or not epsilon > 0:
        raise ConfigError(f"{bins} bins, {n} records, epsilon {epsilon}: give 1 or more of each, epsilon above 0")
    return bins / (bins + n * math.expm1(float(epsilon) / n))


def smooth_histogram(
    original: Any, epsilon: float, bounds: npt.ArrayLike, bins: int = 20, *, source: Source
) -> FloatArray:
    """As many records as the original from its histogram on ``bounds``, mixed with the uniform law.

    The mixture's weight is `smooth_histogram_weight`, and records are uniform within their bin.

    Args:
        original: the records, (n x columns).
        epsilon: the budget.
        bounds: (columns x 2), public.
        bins: per column, of equal size; so there are bins^columns in all.
        source: where the random bits come from.

    Examples:
        >>> records = np.array([[0.1, 0.2], [0.4, 0.5], [0.9, 0.7], [0.3, 0.4]])
        >>> bounds, source = [(0, 1), (0, 1)], td.SeededSource(1)
        >>> td.synthesis.comparators.smooth_histogram(records, 1.0, bounds, bins=4, source=source).shape
        (4, 2)
    """
    values, limits = _matrix(original), checked_bounds(bounds, original)
    values, rng = np.clip(values, limits[:, 0], limits[:, 1]), numpy_generator(source)
    size, p = values.shape
    widths = limits[:, 1] - limits[:, 0]
    place = np.minimum((values - limits[:, 0]) / widths * bins, bins - 1).astype(np.int64)
    cell = np.ravel_multi_index(tuple(place.T), (bins,) * p)
    uniform = rng.random(size) < smooth_histogram_weight(bins**p, size, epsilon)
    drawn = np.where(uniform, rng.integers(0, bins**p, size), cell[rng.integers(0, size, size)])
    corner = np.stack(np.unravel_index(drawn, (bins,) * p), axis=1)
    records: FloatArray = limits[:, 0] + (corner + rng.random((size, p))) / bins * widths
    return records


def functional_regression(
    design: npt.ArrayLike, response: npt.ArrayLike, epsilon: ExactNumber, bounds: npt.ArrayLike, *, source: Source
) -> FloatArray:
    """Coefficients (intercept first) of the least-squares regression whose objective carries Laplace noise.

    ``design`` and ``response`` are scaled to [-1, 1] by ``bounds``, with the intercept as one more column of ones. The
    polynomial sum (y - x'b)^2 gets Laplace noise of scale D/epsilon in every coefficient, D = 2 (1 + 2 k + k^2) for k
    columns. The quadratic form then gets 4 standard deviations of it on its diagonal, and directions in which it is
    still not positive are left out. Given back in the data's units. Source: Zhang, Zhang, Xiao, Yang, Winslett,
    "Functional Mechanism: Regression Analysis under Differential Privacy", Algorithm 1 and section 6.

    Args:
        design: (rows x d).
        response: (rows,).
        epsilon: the budget.
        bounds: ((d + 1) x 2), public, the response's last.
        source: where the random bits come from.

    Examples:
        >>> records = np.array([[0.1, 0.2], [0.4, 0.5], [0.9, 0.7], [0.3, 0.4]])
        >>> td.synthesis.comparators.functional_regression(
        ...     records[:, :1], records[:, 1], 1, [(0, 1), (0, 1)], source=td.SeededSource(1)
        ... ).shape
        (2,)
    """
    both = np.column_stack([np.asarray(design, dtype=np.float64), np.asarray(response, dtype=np.float64)])
    limits = checked_bounds(bounds, both)
    middle, half = limits.mean(axis=1), (limits[:, 1] - limits[:, 0]) / 2
    scaled = (np.clip(both, limits[:, 0], limits[:, 1]) - middle) / half
    x, y = np.column_stack([np.ones(len(scaled)), scaled[:, :-1]]), scaled[:, -1]
    k = x.shape[1]
    scale = 2 * (1 + 2 * k + k * k) / exact_fraction(epsilon)
    law = Laplace(scale)
    upper = np.triu(law.sample(k * k, source).reshape(k, k))
    # A coefficient of b_i b_j belongs to the pair, so the matrix has half of its noise on either side.
    quadratic = x.T @ x + (upper + upper.T) / 2
    linear = x.T @ y + law.sample(k, source) / 2
    quadratic += 4 * math.sqrt(2) * float(scale) * np.eye(k)
    sizes, vectors = np.linalg.eigh(quadratic)
    kept = sizes > 0
    found = vectors[:, kept] @ ((vectors[:, kept].T @ linear) / sizes[kept])
    slopes = found[1:] * half[-1] / half[:-1]
    intercept = middle[-1] + half[-1] * found[0] - slopes @ middle[:-1]
    coefficients: FloatArray = np.concatenate([[intercept], slopes])
    return coefficients


def regression_coefficients(data: Any) -> FloatArray:
    """Least squares of the last column on the others: (intercept, slopes).

    Args:
        data: (rows x columns).

    Examples:
        >>> records = np.array([[0.1, 0.2], [0.4, 0.5], [0.9, 0.7], [0.3, 0.4]])
        >>> td.synthesis.comparators.regression_coefficients(records).round(3)
        array([0.199, 0.59 ])
    """
    values = _matrix(data)
    return _least_squares(np.column_stack([np.ones(len(values)), values[:, :-1]]), values[:, -1])[0]


def _least_squares(design: FloatArray, response: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    inverse: FloatArray = np.linalg.pinv(design.T @ design).astype(np.float64)
    fitted = inverse @ design.T @ response
    return fitted, inverse, response - design @ fitted


def _matrix(data: Any) -> FloatArray:
    try:
        values: FloatArray = as_frame(data).to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError("the comparators take continuous columns only") from None
    if len(values) <= values.shape[1] + 1:
        raise ConfigError(f"{len(values)} records of {values.shape[1]} columns are too few; give more")
    return values


def checked_bounds(bounds: npt.ArrayLike, data: Any) -> FloatArray:
    """The bounds as an array (columns x 2). Raises ConfigError where they are not (lower, upper) for each column.

    Args:
        bounds: (lower, upper) of every column.
        data: (rows x columns).

    Examples:
        >>> records = np.array([[0.1, 0.2], [0.4, 0.5], [0.9, 0.7], [0.3, 0.4]])
        >>> td.synthesis.comparators.checked_bounds([(0, 1), (0, 1)], records)
        array([[0., 1.],
               [0., 1.]])
    """
    limits = np.asarray(bounds, dtype=np.float64)
    columns = as_frame(data).shape[1]
    if limits.shape != (columns, 2) or not (np.isfinite(limits).all() and (limits[:, 0] < limits[:, 1]).all()):
        raise ConfigError(
            f"bounds {np.asarray(bounds).tolist()}: give (lower, upper) for each of the {columns} columns"
        )
    return limits
