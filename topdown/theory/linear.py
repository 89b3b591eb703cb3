"""The paper's own setting: any linear constraints A v = b. The projection's matrix, its covariance, Theorem 4.

A tree is the special case in which A states that families add up. Dense and for moderate sizes: O(rows^2 entries). The
estimates themselves, for sparse constraints too, come from :func:`topdown.project_linear`.

Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError
from topdown.theory.bias_bounds import BiasBound, l1_ball_tail
from topdown.theory.noise_laws import NoiseLaw, Scale

Array = NDArray[np.float64]

_FORCED = 1e-9
"""An entry whose range over the feasible set is below this part of its size is a constant of the constraints."""


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
    """
    matrix = checked_constraints(constraints)
    sigma = checked_variances(variance, matrix.shape[1])
    size = np.sqrt(sigma)
    scaled = matrix * size
    # Rows in units of their own size: what counts as rank 0 must not depend on the units of a row.
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
    unbiased linear estimate has; ``noise_variance`` (entries,) or one number is for weights that are not, such as the
    paper's unit weights, and is ``variance`` unless given.

    Returns:
        (entries, entries), in the units of the variances.

    Raises:
        ConfigError: A is no finite matrix, or a variance is negative or not finite.

    Source: Theorem 5's covariance for the sum, here for any A.
    """
    matrix = checked_constraints(constraints)
    sigma = checked_variances(variance, matrix.shape[1])
    projection = linear_projection_matrix(matrix, sigma)
    noise = sigma if noise_variance is None else checked_variances(noise_variance, matrix.shape[1])
    covariance = (projection * noise) @ projection.T
    return np.asarray(0.5 * (covariance + covariance.T), dtype=np.float64)


def linear_bias_bound(values: ArrayLike, constraints: Any, scale: Scale, law: NoiseLaw = "laplace") -> BiasBound:
    """Theorem 4 as the paper states it: a bound on every |bias| of (P+) onto {v >= 0: A v = A values}.

    C P(||noise||_1 > r): r is the smallest true value and C the largest error that any feasible point makes in one
    entry, both over the entries that the constraints leave free; C by two linear programs an entry (HiGHS). Where the
    feasible set is unbounded C is infinite, the bound void, and the result says so. The theorem is about the projection
    with unit weights.

    Args:
        values: (entries,) true values, each finite and at least 0.
        constraints: A (rows, entries), an array or a scipy sparse matrix.
        scale: the noise scale of every entry.
        law: the noise.

    Raises:
        ConfigError: A is no finite matrix, or a value is negative or not finite.

    Source: Theorem 4 with Lemma 2.
    """
    matrix = checked_constraints(constraints)
    truth = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if truth.shape != matrix.shape[1:] or not (np.isfinite(truth) & (truth >= 0)).all():
        raise ConfigError(f"values must be {matrix.shape[1]} finite numbers >= 0, one for every column of A")
    low, high = _range_of_entries(matrix, truth)
    free = high - low > _FORCED * np.maximum(1.0, truth)
    if not free.any():
        return BiasBound(0.0, 0.0, 0.0, float(truth.min()), 0, False, "the constraints leave no entry free")
    constant = float(np.maximum(high - truth, truth - low)[free].max())
    # The noise of an entry that the constraints fix has no effect on the others' marginals: (P) there is M noise.
    radius, dimension = float(truth[free].min()), int(free.sum())
    tail = l1_ball_tail(dimension, radius, scale, law)
    if math.isinf(constant):
        words = "void: the constraints leave an entry without an upper bound, so that Theorem 4 bounds nothing"
        return BiasBound(math.inf, math.inf, tail, radius, dimension, True, words)
    words = (
        f"the noise of {dimension} entries leaves the L1 ball of radius {radius:g} with probability {tail:.3g}; no "
        f"feasible point errs by more than {constant:g}"
    )
    return BiasBound(constant * tail, constant, tail, radius, dimension, False, words)


def _range_of_entries(matrix: Array, truth: Array) -> tuple[Array, Array]:
    """The least and the greatest value of every entry over {v >= 0: A v = A truth}."""
    from scipy.optimize import linprog

    total, unit = matrix @ truth, np.eye(truth.size)
    low, high = np.empty(truth.size), np.empty(truth.size)
    for entry in range(truth.size):
        for ends, sign in ((low, 1.0), (high, -1.0)):
            found: Any = linprog(sign * unit[entry], A_eq=matrix, b_eq=total, method="highs")
            # The truth is feasible, so that what is not solved has no end.
            ends[entry] = sign * found.fun if found.status == 0 else -sign * math.inf
    return np.minimum(low, truth), np.maximum(high, truth)


def checked_constraints(constraints: Any) -> Array:
    """A as a dense float64 matrix. Raises ConfigError where it is none."""
    dense = constraints.toarray() if hasattr(constraints, "toarray") else constraints
    try:
        matrix = np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError("A does not read as a matrix of numbers; give an array or a scipy sparse matrix") from None
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
