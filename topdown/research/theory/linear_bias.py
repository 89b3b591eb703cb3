"""The paper's general setting, any linear constraints A v = b: where (P+) equals (P), Lemma 3; a bound on its bias,
Theorem 4.

The projection's matrix and covariance are in :mod:`topdown.projection.linear.linear_covariance`.

Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError
from topdown.projection.linear.linear_covariance import Array, checked_constraints
from topdown.research.theory.bias_bounds import BiasBound, l1_ball_tail
from topdown.research.theory.noise_laws import NoiseLaw, Scale

_FORCED = 1e-9
"""An entry whose range over the feasible set is below this fraction of its size is constant under the constraints."""


def in_safe_ball(values: ArrayLike, noisy: ArrayLike) -> NDArray[np.bool_]:
    """Whether noisy tables are so close to the truth that the projection with x >= 0 equals the one without, (P+) =
    (P).

    Those with ||noisy - values||_1 <= r, the smallest true value: no projection onto constraints that the truth meets
    moves farther from it in the L2 norm, so that no entry of (P)'s falls below 0. The set is its own mirror image about
    the truth, so that (P+) has no bias on it.

    Args:
        values: (entries,) true values, each finite and at least 0.
        noisy: (entries,) or (entries, tables), noise of one table a column.

    Returns: a bool, or one for each table.

    Raises:
        ConfigError: a value is negative or not finite, or the shapes differ.

    Source: Lemma 3.

    Examples:
        >>> td.theory.in_safe_ball([6.0, 20.0], [[3.0, 9.0], [22.0, 19.0]])  # a table a column
        array([ True,  True])
    """
    truth, drawn = np.atleast_1d(np.asarray(values, dtype=np.float64)), np.asarray(noisy, dtype=np.float64)
    if truth.ndim != 1 or drawn.shape[:1] != truth.shape or not (np.isfinite(truth) & (truth >= 0)).all():
        raise ConfigError(
            f"values of shape {truth.shape} and noisy of {drawn.shape}: give finite true values >= 0, and as many noisy"
        )
    return np.asarray(np.abs(drawn.T - truth).sum(axis=-1) <= truth.min())


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

    Examples:
        >>> found = td.theory.linear_bias_bound([300.0, 400.0], [[1.0, 1.0]], 10.0)
        >>> f"{found.bound:.1e}"
        '1.2e-09'
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
            # The truth is feasible, so that a program without a solution is unbounded.
            ends[entry] = sign * found.fun if found.status == 0 else -sign * math.inf
    return np.minimum(low, truth), np.maximum(high, truth)
