"""Makes a released covariance matrix positive semidefinite: the nearest correlations, with the released variances.

Source: Higham 2002, "Computing the Nearest Correlation Matrix: A Problem from Finance", Algorithm 3.3 (alternating
projections with Dykstra's correction).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError

FloatArray = NDArray[np.float64]

_MOST_STEPS = 2_000
_SETTLED = 1e-8
_POSSIBLE = 1e-12


def nearest_covariance(matrix: ArrayLike) -> FloatArray:
    """The positive semidefinite matrix with the same variances whose correlations are nearest (in the Frobenius norm)
    to those of ``matrix``.

    A variable with variance 0 has covariances of 0. A matrix that is positive semidefinite is returned unchanged. This
    is post-processing and costs no budget.

    Args:
        matrix: (p, p), symmetric, with variances of 0 or more.

    Raises ConfigError for a matrix that is not symmetric, or has a negative variance.

    Examples:
        >>> from topdown.research.covariances import nearest_covariance
        >>> nearest_covariance([[1.0, 1.2], [1.2, 1.0]]).round(3)
        array([[1., 1.],
               [1., 1.]])
    """
    given = np.asarray(matrix, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not np.isfinite(given).all():
        raise ConfigError(f"a matrix of shape {given.shape} is no covariance; give a square one of finite numbers")
    if np.abs(given - given.T).max(initial=0.0) > 1e-9 * np.abs(given).max(initial=0.0) or (np.diag(given) < 0).any():
        raise ConfigError("a covariance is symmetric and has variances of 0 or more; correct it")
    size = np.sqrt(np.diag(given))
    scale = np.where(size > 0, size, 1.0)
    correlation = np.where(np.outer(size, size) > 0, given / np.outer(scale, scale), 0.0)
    np.fill_diagonal(correlation, 1.0)
    if np.linalg.eigvalsh(correlation)[0] >= -_POSSIBLE:
        return np.where(np.outer(size, size) > 0, given, 0.0)
    near, correction = correlation, np.zeros_like(correlation)
    for _ in range(_MOST_STEPS):
        shifted = near - correction
        values, vectors = np.linalg.eigh(shifted)
        projected = (vectors * np.maximum(values, 0.0)) @ vectors.T
        correction = projected - shifted
        moved = projected.copy()
        np.fill_diagonal(moved, 1.0)
        change, near = float(np.abs(moved - near).max()), moved
        if change <= _SETTLED:
            break
    # The last step set the diagonal to 1, a change within rounding; the result of the projection has no negative
    # eigenvalue.
    spread = np.sqrt(np.diag(projected))
    return np.asarray(projected / np.outer(spread, spread) * np.outer(size, size), dtype=np.float64)
