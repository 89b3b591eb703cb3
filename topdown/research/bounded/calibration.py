"""The privacy loss of truncated noise, and the scale that keeps epsilon.

Truncating a law to bounds and normalising it is not post-processing: the normaliser depends on the location, and a
location at a bound loses more than under the untruncated law. (Clipping, as in the boundary-inflated laws, is
post-processing and keeps sensitivity/epsilon.) Two laws, by name:

* ``"laplace"``: :class:`topdown.noise.TruncatedLaplace`; any positive sensitivity.
* ``"geometric"``: :class:`topdown.noise.TruncatedDiscreteLaplace`, pmf proportional to exp(-|k - location|/scale) on
  whole numbers; whole sensitivity and bounds.

Sources: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with
Univariate Bounding Constraints", Definition 2a and Equations 2 and 8; Holohan, Antonatos, Braghin, Mac Aonghusa,
"The Bounded Laplace Mechanism in Differential Privacy", for the repair. The discrete formula is derived here in the
same way.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from topdown.errors import BudgetError, ConfigError
from topdown.neighbours import COUNTS_MOVED, Neighbours
from topdown.noise.parameters import FloatArray, FloatOrArray, as_given, bound, real_numbers, scales

TruncatedLaw = Literal["laplace", "geometric"]
Composition = Literal["sequential", "parallel"]


def privacy_loss(
    scale: ArrayLike,
    sensitivity: ArrayLike,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    *,
    law: TruncatedLaw = "laplace",
) -> FloatOrArray:
    """The exact epsilon of a truncated law of constant ``scale``: sup |ln p_s(x)/p_s'(x)| over |s - s'| <= sensitivity.

    The supremum is at s = x = a finite bound and s' one sensitivity D inside. With W the width of the bounds, b the
    scale, p = exp(-D/b), q = exp(-(W - D)/b) and, for the geometric law, a = exp(-1/b):

        laplace:   D/b + ln(1 +   (1 - p)(1 - q)/(1 -   p q))
        geometric: D/b + ln(1 + a (1 - p)(1 - q)/(1 - a p q))

    q = 0 on a half-line; without any bound it is D/b. A sensitivity beyond the width counts as the width, since
    locations are within the bounds. The arguments broadcast.

    The textbook scale sensitivity/epsilon costs between epsilon (W = D) and ln(2 exp(epsilon) - 1) (half-line), that is
    up to 2 epsilon: Liu's Definition 2a ("epsilon-differentially private") does not hold.

    Args:
        scale: above 0, in units of the statistic.
        sensitivity: above 0, in units of the statistic.
        lower: the lower bound; None or -inf for none.
        upper: the upper bound; None or inf for none.
        law: "laplace", or "geometric", whose sensitivity and bounds are whole numbers.

    Raises ConfigError for arguments that are not positive, ``lower >= upper``, or fractions under ``"geometric"``.

    Examples:
        >>> round(float(td.noise.privacy_loss(1.0, 1.0, lower=0.0)), 3)  # epsilon 1 by the textbook
        1.49
    """
    b = scales(scale)
    reach, rest, bounded = _reach(sensitivity, lower, upper, law)
    return as_given(_loss(reach / b, reach, rest, bounded, law))


def calibrate(
    epsilon: ArrayLike,
    sensitivity: ArrayLike,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    *,
    law: TruncatedLaw = "laplace",
) -> FloatOrArray:
    """The smallest constant scale at which a truncated law keeps epsilon: ``privacy_loss(scale, ...) == epsilon``.

    Half-line, Laplace: sensitivity / ln((1 + exp(epsilon))/2). Half-line, geometric, sensitivity 1: 1 /
    asinh((exp(epsilon) - 1)/2). No bound: sensitivity/epsilon. Otherwise by bisection of the loss, which decreases as
    the scale grows, between once and twice sensitivity/epsilon; the end that keeps epsilon is returned. The arguments
    broadcast.

    Args:
        epsilon: above 0.
        sensitivity: above 0, in units of the statistic.
        lower: the lower bound; None or -inf for none.
        upper: the upper bound; None or inf for none.
        law: "laplace", or "geometric", whose sensitivity and bounds are whole numbers.

    Raises ConfigError as :func:`privacy_loss` does, and BudgetError for an epsilon that is not positive.

    Examples:
        >>> scale = td.noise.calibrate(1.0, 1.0, lower=0.0, upper=10.0)
        >>> round(float(scale), 4), round(float(td.noise.privacy_loss(scale, 1.0, lower=0.0, upper=10.0)), 4)
        (1.6116, 1.0)
    """
    budget = _positive("epsilon", epsilon)
    reach, rest, bounded = _reach(sensitivity, lower, upper, law)
    budget, reach, rest, bounded = np.broadcast_arrays(budget, reach, rest, bounded)
    if law == "laplace" and np.all(np.isinf(rest)):
        small = np.log1p(0.5 * np.expm1(np.minimum(budget, 1.0)))
        half_line = np.where(budget < 1.0, small, np.logaddexp(0.0, budget) - np.log(2.0))
        return as_given(reach / np.where(bounded, half_line, budget))
    # In units of reach/scale, where the answer lies between epsilon/2 and epsilon.
    safe, unsafe = 0.5 * budget, budget.copy()
    met = _loss(unsafe, reach, rest, bounded, law) <= budget
    for _ in range(60):
        middle = 0.5 * (safe + unsafe)
        keeps = _loss(middle, reach, rest, bounded, law) <= budget
        safe, unsafe = np.where(keeps, middle, safe), np.where(keeps, unsafe, middle)
    return as_given(reach / np.where(met, budget, safe))


def uncorrected_scale(epsilon: ArrayLike, sensitivity: ArrayLike) -> FloatOrArray:
    """The textbook scale sensitivity/epsilon: correct for unbounded and clipped noise, NOT for truncated noise.

    A truncated law of this scale must be charged ``privacy_loss(uncorrected_scale(epsilon, sensitivity),
    sensitivity, lower, upper)``, up to twice epsilon; :func:`calibrate` gives the scale that keeps epsilon.

    Args:
        epsilon: above 0.
        sensitivity: above 0, in units of the statistic; broadcasts with epsilon.

    Examples:
        >>> float(td.noise.uncorrected_scale(0.5, 1.0))
        2.0
    """
    return as_given(_positive("sensitivity", sensitivity) / _positive("epsilon", epsilon))


def element_budgets(
    epsilon: float,
    sensitivities: ArrayLike,
    *,
    composition: Composition = "sequential",
    neighbours: Neighbours = "add-remove",
) -> FloatArray:
    """The epsilon of every element of a vector that is released for ``epsilon`` in total.

    ``"sequential"``, where one unit may change every element: epsilon D_j / sum D_j (Liu, Equation 8), the same as one
    scale sum D_j / epsilon for all (Equation 2) when the noise is unbounded. ``"parallel"``, for disjoint cells: one
    unit is in one cell, so that every cell gets the whole epsilon under ``neighbours="add-remove"`` and half of it
    under ``"substitute"``, where a unit may move from one cell to another. Each element needs its own scale from its
    budget, since truncation adds a loss for every element separately.

    Args:
        epsilon: of the whole vector.
        sensitivities: (elements,) of every element.
        composition: "sequential" or "parallel".
        neighbours: "add-remove" or "substitute".

    Raises ConfigError for arguments that are not positive, and for unknown names.

    Examples:
        >>> td.noise.element_budgets(1.0, [1.0, 3.0])
        array([0.25, 0.75])
    """
    budget, parts = _positive("epsilon", epsilon), _positive("sensitivities", sensitivities)
    if composition not in get_args(Composition):
        raise ConfigError(f"composition {composition!r}: give 'sequential' or 'parallel'")
    if neighbours not in get_args(Neighbours):
        raise ConfigError(f"neighbours {neighbours!r}: give 'add-remove' or 'substitute'")
    if composition == "sequential":
        return np.asarray(budget * parts / parts.sum())
    return np.broadcast_to(budget / COUNTS_MOVED[neighbours], parts.shape).copy()


def _loss(ratio: FloatArray, reach: FloatArray, rest: FloatArray, bounded: FloatArray, law: str) -> FloatArray:
    """The loss at ratio = reach/scale; ``rest`` is the width beyond reach; ``bounded``: whether any bound is finite."""
    across = rest * (ratio / reach)
    if law == "laplace":
        excess = np.expm1(-ratio) * np.expm1(-across) / -np.expm1(-ratio - across)
    else:
        step = ratio / reach
        excess = np.exp(-step) * np.expm1(-ratio) * np.expm1(-across) / -np.expm1(-step - ratio - across)
    loss: FloatArray = ratio + np.where(bounded, np.log1p(excess), 0.0)
    return loss


def _reach(
    sensitivity: ArrayLike, lower: ArrayLike | None, upper: ArrayLike | None, law: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(sensitivity cut at the width, width beyond it, whether any bound is finite)."""
    if law not in get_args(TruncatedLaw):
        raise ConfigError(f"law {law!r}: give 'laplace' or 'geometric'")
    reach = _positive("sensitivity", sensitivity)
    low, high = bound("lower", lower, absent=-np.inf), bound("upper", upper, absent=np.inf)
    try:
        reach, low, high = np.broadcast_arrays(reach, low, high)
    except ValueError:
        raise ConfigError("sensitivity, lower and upper do not broadcast: give equal shapes") from None
    if (low >= high).any():
        at = np.flatnonzero(low >= high)[0]
        raise ConfigError(f"bounds [{low.flat[at]!r}, {high.flat[at]!r}]: give lower < upper")
    if law == "geometric":
        for name, values in (("sensitivity", reach), ("lower", low), ("upper", high)):
            finite = values[np.isfinite(values)]
            if (finite != np.rint(finite)).any():
                raise ConfigError(f"{name}: the geometric law is on whole numbers; give whole numbers")
    width = high - low
    reach = np.minimum(reach, width)
    return reach, width - reach, np.asarray(np.isfinite(low) | np.isfinite(high))


def _positive(name: str, values: ArrayLike) -> FloatArray:
    array = real_numbers(name, values)
    wrong = ~((array > 0) & np.isfinite(array))
    if wrong.any():
        error = BudgetError if name == "epsilon" else ConfigError
        raise error(f"{name} {float(array[wrong].flat[0])!r}: give a positive number")
    return array
