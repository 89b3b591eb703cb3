"""The errors of a projection onto linear constraints A v = b: its matrix, its covariance, and the variance in a family.

Dense and for moderate sizes: O(rows^2 entries). A tree is the special case in which A states that families add up. The
estimates themselves, for sparse constraints too, come from :func:`topdown.project_linear`.

Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy".
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError

Array = NDArray[np.float64]
FloatOrArray = TypeVar("FloatOrArray", float, NDArray[np.float64])


def family_variance(noise: FloatOrArray, n: FloatOrArray) -> FloatOrArray:
    """Variance of one of n children after projecting on a public total, from the variance of the noise: noise (1 -
    1/n).
    """
    return noise * (1.0 - 1.0 / n)


def linear_projection_matrix(constraints: Any, variance: ArrayLike = 1.0) -> Array:
    """M = I - Sigma A'(A Sigma A')^+ A, by which the projection (P) turns noise into error: x^ - x = M noise.

    M is the projection onto {d: A d = 0} that is orthogonal in the inner product of Sigma^-1, Sigma = diag(variance),
    whose weights are 1/variance: M M = M, A M = 0, and M d = d wherever A d = 0. Rows of A may depend on each other.

    Args:
        constraints: A (rows, entries), an array or a scipy sparse matrix.
        variance: (entries,) or one number, each finite and at least 0; 0 means that the entry is exact.

    Returns:
        (entries, entries), no unit.

    Raises:
        ConfigError: A is no finite matrix, or a variance is negative or not finite.

    Source: the solution of program (P), with weights; its Lemma 1 follows from M's being linear.

    Examples:
        >>> td.theory.linear_projection_matrix([[1.0, 1.0]])
        array([[ 0.5, -0.5],
               [-0.5,  0.5]])
    """
    matrix = checked_constraints(constraints)
    sigma = checked_variances(variance, matrix.shape[1])
    size = np.sqrt(sigma)
    scaled = matrix * size
    # Rows are scaled to their own size, so that the rank does not depend on the units of a row.
    norm = np.sqrt((scaled**2).sum(axis=1))
    scaled = scaled[norm > 0] / norm[norm > 0, None]
    gain = np.linalg.pinv(scaled @ scaled.T, hermitian=True, rcond=1e-13)
    inner = scaled.T @ gain @ (matrix[norm > 0] / norm[norm > 0, None])
    return np.asarray(np.eye(sigma.size) - size[:, None] * inner, dtype=np.float64)


def linear_projection_covariance(
    constraints: Any, variance: ArrayLike = 1.0, *, noise_variance: ArrayLike | None = None
) -> Array:
    """Covariance M diag(noise) M' of the projection (P) onto A v = b, whatever b is.

    With weights 1/variance of the noise's own variance it is Sigma - Sigma A'(A Sigma A')^+ A Sigma, the least that an
    unbiased linear estimate has; ``noise_variance`` is for weights that are not, such as the paper's unit weights.

    Args:
        constraints: A, (rows, entries), an array or a scipy sparse matrix.
        variance: one number or (entries,); the weights are 1/variance.
        noise_variance: one number or (entries,), the variance of the noise; ``variance`` by default.

    Returns:
        (entries, entries), in the units of the variances.

    Raises:
        ConfigError: A is no finite matrix, or a variance is negative or not finite.

    Source: Theorem 5's covariance for the sum, here for any A.

    Examples:
        >>> td.theory.linear_projection_covariance([[1.0, 1.0]], 2.0)
        array([[ 1., -1.],
               [-1.,  1.]])
    """
    matrix = checked_constraints(constraints)
    sigma = checked_variances(variance, matrix.shape[1])
    projection = linear_projection_matrix(matrix, sigma)
    noise = sigma if noise_variance is None else checked_variances(noise_variance, matrix.shape[1])
    covariance = (projection * noise) @ projection.T
    return np.asarray(0.5 * (covariance + covariance.T), dtype=np.float64)


def checked_constraints(constraints: Any) -> Array:
    """A as a dense float64 matrix. Raises ConfigError where it is none."""
    dense = constraints.toarray() if hasattr(constraints, "toarray") else constraints
    try:
        matrix = np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError("A is not a matrix of numbers; give an array or a scipy sparse matrix") from None
    if matrix.ndim != 2 or matrix.shape[1] == 0 or not np.isfinite(matrix).all():
        raise ConfigError(f"A has shape {matrix.shape}; give a matrix of finite numbers, a row for every constraint")
    return matrix


def checked_variances(variance: ArrayLike, entries: int) -> Array:
    """One variance for every entry. Raises ConfigError for one that is negative or not finite."""
    values = np.asarray(variance, dtype=np.float64)
    if values.ndim == 0:
        values = np.full(entries, float(values))
    if values.shape != (entries,):
        raise ConfigError(
            f"variance has shape {values.shape}; give one number, or one for each of the {entries} entries"
        )
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0.0)))
    if wrong.size:
        raise ConfigError(
            f"the variance of entry {wrong[0]} is {values[wrong[0]]:g}; give finite variances >= 0 (0: the entry is "
            "exact)"
        )
    return values
