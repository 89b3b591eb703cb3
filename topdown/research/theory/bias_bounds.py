"""Lemma 2 and Theorem 4: bounds on the bias of the non-negative projection.

As long as the noise is inside the L1 ball whose radius is the smallest count, the projection with x >= 0 equals the
projection without it, which is unbiased; the bias is at most the largest possible error times the probability of
leaving the ball.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from topdown.errors import ConfigError
from topdown.research.theory.noise_laws import (
    NoiseLaw,
    Scale,
    checked_count,
    checked_law,
    checked_scale,
    geometric_ratio,
)
from topdown.research.theory.projected_geometric import ProjectedGeometric
from topdown.research.theory.projected_laplace import ProjectedLaplace

Array = NDArray[np.float64]


def l1_ball_tail(
    n: SupportsIndex | SupportsFloat,
    radius: float | Fraction | SupportsFloat,
    scale: Scale,
    law: NoiseLaw = "laplace",
) -> float:
    """P(||eta||_1 > radius) for n independent draws of the noise.

    Laplace: the regularised upper incomplete gamma function Q(n, radius / scale), accurate down to 1e-300. Double
    geometric (scale = 1/epsilon): the number of non-zero draws is Binomial(n, 2a / (1 + a)) and their excess
    negative binomial; a radius between whole numbers counts as the one below.

    Args:
        n: the number of draws.
        radius: in counts, 0 or more.
        scale: sensitivity / epsilon, in counts.
        law: "laplace" or "geometric".

    Raises:
        ConfigError: ``n``, ``radius``, ``scale`` or ``law`` is invalid.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Lemma 2
    (Laplace) and Corollary 2 (double geometric).

    Examples:
        >>> round(td.theory.l1_ball_tail(3, 20.0, 10.0), 4)
        0.6767
    """
    return _l1_ball(n, radius, scale, law)[0]


def l1_ball_probability(
    n: SupportsIndex | SupportsFloat,
    radius: float | Fraction | SupportsFloat,
    scale: Scale,
    law: NoiseLaw = "laplace",
) -> float:
    """P(||eta||_1 <= radius): the complement of :func:`l1_ball_tail`, accurate when it is small.

    Args:
        n: the number of draws.
        radius: in counts, 0 or more.
        scale: sensitivity / epsilon, in counts.
        law: "laplace" or "geometric".

    Raises:
        ConfigError: ``n``, ``radius``, ``scale`` or ``law`` is invalid.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Lemma 2.

    Examples:
        >>> round(td.theory.l1_ball_probability(3, 20.0, 10.0), 4)
        0.3233
    """
    return _l1_ball(n, radius, scale, law)[1]


def _l1_ball(
    n: SupportsIndex | SupportsFloat,
    radius: float | Fraction | SupportsFloat,
    scale: Scale,
    law: NoiseLaw,
) -> tuple[float, float]:
    draws, b, noise = checked_count(n, "dimension n"), checked_scale(scale), checked_law(law)
    r = float(radius)
    if math.isnan(r):
        raise ConfigError("radius is nan; give a number of counts")
    if r < 0.0:
        return 1.0, 0.0
    if r == math.inf:
        return 0.0, 1.0
    if noise == "laplace":
        return float(special.gammaincc(draws, r / b)), float(special.gammainc(draws, r / b))
    from scipy import stats

    a = geometric_ratio(b)
    whole = float(math.floor(radius) if isinstance(radius, Fraction) else math.floor(r))
    nonzero = 2.0 * a / (1.0 + a)
    within = int(min(draws, whole))
    k = np.arange(1, within + 1)
    weight = stats.binom.pmf(k, draws, nonzero)
    tail = float((weight * special.betainc(whole - k + 1.0, k, a)).sum())
    tail += float(stats.binom.sf(within, draws, nonzero))
    inside = float((weight * special.betaincc(whole - k + 1.0, k, a)).sum())
    inside += float(stats.binom.pmf(0, draws, nonzero))
    return min(tail, 1.0), min(inside, 1.0)


def bias_bound(values: ArrayLike, scale: Scale, law: NoiseLaw = "laplace") -> float:
    """Upper bound on every child's |bias| after projecting one family, total public, on x >= 0.

    C P(||eta||_1 > min values) with C = total - min values, the largest error that any point of
    {v >= 0, sum v = total} can make in one coordinate.

    Args:
        values: the family's true counts (children), at least one, each >= 0; their sum is the public total.
        scale: the noise scale of one count (1/epsilon for ``law="geometric"``).
        law: the noise.

    Raises:
        ConfigError: no values, or one that is negative, missing or infinite; ``scale`` or ``law`` is invalid.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy",
    Theorem 4. :func:`sharp_bias_bound` is usually 100 to 1000 times smaller.

    Examples:
        >>> f"{td.theory.bias_bound([300.0, 400.0], 10.0):.1e}"
        '1.2e-09'
    """
    counts = _checked_counts(values)
    constant = _largest_family_error(counts)
    return constant * l1_ball_tail(counts.size, float(counts.min()), scale, law)


def sharp_bias_bound(values: ArrayLike, scale: Scale, law: NoiseLaw = "laplace") -> float:
    """Upper bound on every child's |bias| by the exact marginals: C sum_i P(|e_i| > x_i).

    The projection with x >= 0 differs from the unbiased one only if some projected coordinate x_i + e_i is
    negative, and the reflected draw (Lemma 1) makes the event symmetric; a union bound over the children uses the
    exact law of e_i (Theorem 5) instead of the L1 ball. Typically hundreds of times below ``bias_bound``; where counts
    are as small as the noise the union bound says nothing (the sum passes 1), and the smaller of the two holds.

    Args:
        values: the family's true counts (children), at least one, each >= 0; their sum is the public total.
        scale: the noise scale of one count (1/epsilon for ``law="geometric"``).
        law: the noise.

    Raises:
        ConfigError: no values, or one that is negative, missing or infinite; ``scale`` or ``law`` is invalid.

    Source: the proof of Theorem 4 of Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in
    Differential Privacy", with Theorem 5 in the place of Lemma 2.

    Examples:
        >>> f"{td.theory.sharp_bias_bound([300.0, 400.0], 10.0):.1e}"
        '1.1e-22'
    """
    counts = _checked_counts(values)
    noise, b = checked_law(law), checked_scale(scale)
    residual: ProjectedLaplace | ProjectedGeometric
    residual = ProjectedLaplace(counts.size, b) if noise == "laplace" else ProjectedGeometric(counts.size, b)
    return _largest_family_error(counts) * float(2.0 * np.sum(residual.sf(counts)))


def _largest_family_error(counts: Array) -> float:
    # math.fsum: the same total whatever the order of the children
    return math.fsum(counts) - float(counts.min())


def _checked_counts(values: ArrayLike) -> Array:
    try:
        counts = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise ConfigError("values are not numbers; give one count of at least 0 per unit") from None
    if counts.ndim != 1 or counts.size == 0:
        raise ConfigError(f"values have shape {counts.shape}; give one count per unit, at least one")
    bad = np.flatnonzero(~(np.isfinite(counts) & (counts >= 0.0)))
    if bad.size:
        raise ConfigError(f"value {counts[bad[0]]} at position {bad[0]} is not a count; give finite numbers >= 0")
    return counts


@dataclass(frozen=True, slots=True)
class BiasBound:
    """Theorem 4 on a whole tree, or under any linear constraints: bound = constant * tail.

    Args:
        bound: of the bias, in counts.
        constant: of the theorem, in counts.
        tail: the probability that noise leaves the ball.
        radius: the smallest count of the program.
        dimension: the number of its noisy nodes or entries.
        void: whether the bound is infinite and so says nothing.
        explanation: in words why it is void, or what was bounded.

    Examples:
        >>> found = td.theory.tree_bias_bound([300.0, 100.0, 200.0], [-1, 0, 0], 2.0, root_fixed=True)
        >>> found.dimension, found.void
        (2, False)
    """

    bound: float
    constant: float
    tail: float
    radius: float
    dimension: int
    void: bool
    explanation: str

    def __float__(self) -> float:
        return self.bound


def tree_bias_bound(
    values: ArrayLike,
    parent: ArrayLike,
    scale: Scale | ArrayLike,
    law: NoiseLaw = "laplace",
    *,
    root_fixed: bool,
) -> BiasBound:
    """Upper bound on every node's |bias| after projecting a whole tree on consistency and x >= 0 at once.

    With a public root N the feasible set is bounded: C = max over the nodes u below the root of max(x_u, N - x_u).
    Nodes that a chain of only children ties to the root are constants; they are left out of C, of the smallest
    count and of the noise. Where the root is noisy, the feasible set is unbounded, C is infinite and the bound is
    void: the result says so.

    Args:
        values: (nodes,) true counts; every inner node is the sum of its children.
        parent: (nodes,) position of each node's parent, -1 at the root.
        scale: one noise scale, or one per node; different scales are bounded by the largest, since a wider
            Laplace is stochastically larger in absolute value.
        law: the noise.
        root_fixed: whether the root's count is public.

    Raises:
        ConfigError: the arrays do not describe one tree with consistent counts.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Theorem 4.

    Examples:
        >>> found = td.theory.tree_bias_bound([300.0, 100.0, 200.0], [-1, 0, 0], 2.0, root_fixed=True)
        >>> f"{found.bound:.1e}"
        '2.0e-18'
    """
    counts = _checked_counts(values)
    up = np.asarray(parent, dtype=np.int64)
    roots = np.flatnonzero(up < 0)
    if up.shape != counts.shape or roots.size != 1 or np.any(up >= counts.size):
        raise ConfigError("parent must hold one position per node, and -1 at exactly one root")
    root = int(roots[0])
    below = np.flatnonzero(up >= 0)
    sums = np.zeros(counts.size)
    np.add.at(sums, up[below], counts[below])
    children = np.bincount(up[below], minlength=counts.size)
    torn = np.flatnonzero((children > 0) & (np.abs(sums - counts) > 1e-9 * np.maximum(1.0, counts)))
    if torn.size:
        node = int(torn[0])
        raise ConfigError(f"node {node} counts {counts[node]}, its children add up to {sums[node]}; make them agree")
    largest_scale = max(checked_scale(b) for b in np.atleast_1d(np.asarray(scale, dtype=np.float64)).tolist())
    if not root_fixed:
        return BiasBound(
            bound=math.inf,
            constant=math.inf,
            tail=l1_ball_tail(counts.size, float(counts.min()), largest_scale, law),
            radius=float(counts.min()),
            dimension=counts.size,
            void=True,
            explanation="void: the root's count is noisy, so the consistent non-negative tables are unbounded and "
            "Theorem 4 bounds nothing; publish the root's total, or measure the bias by simulation",
        )
    forced = np.zeros(counts.size, dtype=bool)
    node = root
    forced[node] = True
    while children[node] == 1:
        node = int(np.flatnonzero(up == node)[0])
        forced[node] = True
    free = counts[~forced]
    if free.size == 0:
        return BiasBound(
            0.0, 0.0, 0.0, float(counts.min()), 0, False, "every node is fixed by the public root through only children"
        )
    total = float(counts[root])
    constant = float(np.maximum(free, total - free).max())
    radius = float(free.min())
    tail = l1_ball_tail(free.size, radius, largest_scale, law)
    return BiasBound(
        bound=constant * tail,
        constant=constant,
        tail=tail,
        radius=radius,
        dimension=free.size,
        void=False,
        explanation=f"the noise of {free.size} nodes leaves the L1 ball of radius {radius:g} with probability "
        f"{tail:.3g}; no consistent table errs by more than {constant:g}",
    )
