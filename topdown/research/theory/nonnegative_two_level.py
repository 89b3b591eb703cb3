"""The exact bias and variance of the top-down non-negative projection of a small tree of two levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError
from topdown.research.theory.noise_laws import checked_scale
from topdown.research.theory.nonnegative_exact import checked_whole_counts, family_moments

Array = NDArray[np.float64]

_TAIL_EXPONENT = 40.0
_MOST_OUTCOMES = 4_000_000


@dataclass(frozen=True, slots=True)
class TwoLevelMoments:
    """Bias and variance of every state and, in the order of the tree, of every county.

    Args:
        state_bias: (states,) in counts.
        state_variance: (states,) in counts^2.
        county_bias: (counties,) in counts.
        county_variance: (counties,) in counts^2.

    Examples:
        >>> found = td.theory.nonnegative_top_down_two_level([[6, 100], [40, 60]], 0.5)
        >>> found.county_bias.round(3)
        array([ 0.008, -0.008,  0.   , -0.   ])
    """

    state_bias: Array
    state_variance: Array
    county_bias: Array
    county_variance: Array


def nonnegative_top_down_two_level(
    tree: Sequence[ArrayLike], epsilon: float | Fraction | SupportsFloat
) -> TwoLevelMoments:
    """Exact moments of the top-down projection with x >= 0: states to the public total, counties to their state.

    Every state and every county is measured with independent double geometric noise, a = exp(-epsilon). The law of a
    state's estimate is summed over all noises of the states; given the estimate, its counties are one family whose
    total differs from the sum of their true counts. Feasible for small trees only: up to about 4 million joint
    outcomes of the states' noise, that is, one or two states at any epsilon >= 0.01, three at epsilon >= 0.5, four
    at epsilon >= 2.

    Args:
        tree: one sequence of true county counts per state, whole numbers >= 0; the sum of all is public.
        epsilon: budget of each level, for counts of sensitivity 1.

    Raises:
        ConfigError: a count or ``epsilon`` is invalid, or the tree is too large to enumerate.

    Source: the programs of Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential
    Privacy", family by family down the tree.

    Examples:
        >>> found = td.theory.nonnegative_top_down_two_level([[6, 100], [40, 60]], 0.5)
        >>> abs(found.state_bias).round(4)
        array([0., 0.])
    """
    scale = 1.0 / checked_scale(epsilon, "epsilon")
    counties = [checked_whole_counts(state) for state in tree]
    if not counties:
        raise ConfigError("the tree has no state; give one sequence of county counts per state")
    states = np.array([state.sum() for state in counties])
    outcomes, mass = _projected_states(states, scale)
    state_bias = np.zeros(states.size)
    state_variance = np.zeros(states.size)
    county_bias: list[Array] = []
    county_variance: list[Array] = []
    for i, x in enumerate(counties):
        error = outcomes[:, i] - states[i]
        state_bias[i] = mass @ error
        state_variance[i] = mass @ error**2 - state_bias[i] ** 2
        totals, probability = _law_of(outcomes[:, i], mass, states.size)
        bias = np.zeros(x.size)
        second = np.zeros(x.size)
        for total, p in zip(totals.tolist(), probability.tolist(), strict=True):
            given = family_moments(x, total, scale)
            bias += p * given.bias
            second += p * given.mse
        county_bias.append(bias)
        county_variance.append(second - bias**2)
    return TwoLevelMoments(state_bias, state_variance, np.concatenate(county_bias), np.concatenate(county_variance))


def _projected_states(x: Array, scale: float) -> tuple[Array, Array]:
    """Every outcome of the states' projection on x >= 0, sum v = sum x, with its probability."""
    total = float(x.sum())
    if x.size == 1 or total == 0.0:
        return np.broadcast_to(x, (1, x.size)), np.ones(1)
    reach = math.ceil(_TAIL_EXPONENT * scale)
    if (2 * reach + 1) ** x.size > _MOST_OUTCOMES * (1 if x.size > 2 else 25):
        raise ConfigError(
            f"{x.size} states at scale {scale:g} have {2 * reach + 1}^{x.size} joint noises, too many to enumerate; "
            "use a larger epsilon, fewer states, or simulation"
        )
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    single = np.exp(-np.abs(k) / scale)
    single /= single.sum()
    mass, noise = np.ones(1), np.zeros((1, 0))
    for _ in range(x.size):
        mass = (mass[:, None] * single).ravel()
        noise = np.hstack((np.repeat(noise, k.size, axis=0), np.tile(k, noise.shape[0])[:, None]))
        likely = mass > math.exp(-_TAIL_EXPONENT)
        mass, noise = mass[likely], noise[likely]
    mass /= mass.sum()
    measured = noise + x
    ordered = -np.sort(-measured, axis=1)
    active = np.arange(1, x.size + 1)
    threshold = (np.cumsum(ordered, axis=1) - total) / active
    last = np.count_nonzero(ordered > threshold, axis=1) - 1
    tau = threshold[np.arange(mass.size), last]
    return np.maximum(measured - tau[:, None], 0.0), mass


def _law_of(outcome: Array, mass: Array, states: int) -> tuple[Array, Array]:
    """Distinct values and their probabilities; values are multiples of 1 / lcm(1 .. states)."""
    unit = math.lcm(*range(1, states + 1))
    keys, inverse = np.unique(np.rint(outcome * unit).astype(np.int64), return_inverse=True)
    probability = np.asarray(np.bincount(inverse, weights=mass), dtype=np.float64)
    likely = probability > 1e-17
    return keys[likely].astype(np.float64) / unit, probability[likely]
