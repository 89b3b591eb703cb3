"""The smallest budget under which the variances of least squares meet upper bounds: an exact convex program, and a
local search where the price of precision is not linear.

The precisions that meet a bound v_t <= t form a convex set, since 1 / v_t is concave (`precision`). At every point the
tangent of 1 / v_t gives a linear inequality that the whole set satisfies. The smallest price under the inequalities
found so far is a lower bound; scaling any point until it meets the bounds gives an upper bound. The two converge
(Kelley 1960); points are taken between them (Ben-Ameur and Neto 2007).

This suffices where the price is linear in the precision, as for Gaussian noise. For Laplace noise the price is concave,
so that there are local minima over the same convex set. Each is found by linearising the price at the last point (the
concave-convex procedure), from several starting points; the inequalities found are kept from one to the next.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.planning.precision import Answered, Precisions, Worst
from topdown.planning.sum_precision import SummedAnswers

GAP = 1e-4
"""The relative difference to the smallest price at which the search stops."""

_MOST_STEPS = 600
_KEPT = 8
"""How many inequalities are kept for each precision and bound."""

_MOST_STARTS = 16
_MET = 1e-9
_SMALLEST, _LEFT_OUT = 1e-9, 1e-4


@dataclass(frozen=True)
class Bound:
    """An upper bound ``most`` on the largest variance of ``asked``."""

    asked: Answered | SummedAnswers
    most: float


@dataclass(frozen=True, eq=False)
class Found:
    """The ``precision`` (measured,) that meets every bound, its ``price``, and ``least``, a lower bound of the price
    where one is known.
    """

    precision: FloatArray
    price: float
    least: float | None


@dataclass(eq=False)
class _Search:
    """The inequalities slopes x >= levels that all precisions which meet the bounds satisfy."""

    precisions: Precisions
    bounds: Sequence[Bound]
    slopes: list[FloatArray] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)

    def met(self, precision: FloatArray) -> FloatArray:
        """``precision``, scaled so that it just meets every bound; the tangents there are added to the inequalities.

        Raises `ConfigError` where no scale meets the bounds.
        """
        found = self.precisions.worst(precision, [bound.asked for bound in self.bounds])
        over = max(one.variance / bound.most for bound, one in zip(self.bounds, found, strict=True))
        if not 0 < over < math.inf:
            raise ConfigError("no budget that is divided so meets the targets; measure what they ask for")
        # With the precisions c times as large, every variance is 1/c of what it was.
        precision = precision * over
        self._take(precision, [Worst(one.variance / over, one.gradient / over**2) for one in found])
        return precision * (1.0 + _MET)

    def _take(self, precision: FloatArray, found: Sequence[Worst]) -> None:
        for bound, (variance, gradient) in zip(self.bounds, found, strict=True):
            # 1/v + d(1/v) (x - p) >= 1/most, in units of 1/most.
            slope = -gradient / variance**2 * bound.most
            self.slopes.append(slope)
            self.levels.append(1.0 - bound.most / variance + float(slope @ precision))

    def _drop(self, precision: FloatArray) -> None:
        """Keep only the inequalities closest to ``precision``, if there are too many."""
        kept = _KEPT * (len(precision) + len(self.bounds))
        if len(self.slopes) > 2 * kept:
            slack = np.array(self.slopes) @ precision - np.array(self.levels)
            nearest = np.sort(np.argsort(slack, kind="stable")[:kept]).tolist()
            self.slopes = [self.slopes[k] for k in nearest]
            self.levels = [self.levels[k] for k in nearest]

    def cheapest(self, weights: FloatArray, start: FloatArray, gap: float) -> tuple[FloatArray, float]:
        """The precision that meets the bounds at the smallest price ``weights`` x, to within ``gap``, and a lower bound
        of the price. ``start``: a precision that meets the bounds.
        """
        from scipy.optimize import linprog

        best, price, least = start, float(weights @ start), 0.0
        for step in range(_MOST_STEPS):
            unit = price / weights
            # Scaled by what the whole price would buy of each, so that all numbers have a similar size.
            solved = linprog(
                np.ones(len(unit)),
                A_ub=-np.array(self.slopes) * unit,
                b_ub=-np.array(self.levels),
                bounds=(0.0, None),
                method="highs",
            )
            if solved.status != 0 or solved.fun is None:
                break
            least = max(least, float(solved.fun) * price)
            if price <= least * (1.0 + gap):
                break
            step_length = 0.5 if step % 2 else 0.1
            between = best + step_length * (np.asarray(solved.x) * unit - best)
            found = self.met(np.maximum(between, _SMALLEST * between.max()))
            if weights @ found < price:
                best, price = found, float(weights @ found)
            self._drop(best)
        return best, least


def cheapest(precisions: Precisions, bounds: Sequence[Bound]) -> Found:
    """The precisions with the least sum that meet every one of ``bounds``: the global optimum, to `GAP`."""
    search, ones = _Search(precisions, bounds), np.ones(len(precisions.measured))
    best, least = search.cheapest(ones, search.met(_rough(bounds) * ones), GAP)
    return Found(best, float(best.sum()), least)


def locally_cheapest(
    precisions: Precisions,
    bounds: Sequence[Bound],
    price: Callable[[FloatArray], FloatArray],
    slope: Callable[[FloatArray], FloatArray],
) -> Found:
    """Precisions that meet ``bounds`` with a locally smallest price, the sum of ``price`` (concave, of each precision);
    the best of several starting points. ``slope``: the derivative of ``price``.
    """
    search, n = _Search(precisions, bounds), len(precisions.measured)
    best: Found | None = None
    for start in _starts(n):
        try:
            point = search.met(_rough(bounds) * start)
        except ConfigError:
            continue
        paid = np.inf
        for _ in range(30):
            now = float(price(point).sum())
            if now > paid * (1.0 - GAP):
                break
            paid = now
            if best is None or paid < best.price:
                best = Found(point, paid, None)
            point, _ = search.cheapest(slope(np.maximum(point, 1e-6 * point.max())), point, 10 * GAP)
    if best is None:
        raise ConfigError("no budget meets the targets; measure what they ask for")
    return best


def _rough(bounds: Sequence[Bound]) -> float:
    return 1.0 / min(bound.most for bound in bounds)


def _starts(n: int) -> Iterator[FloatArray]:
    """Starting points: equal parts of all precisions; then each one alone; then equal parts of fewer and fewer, up to a
    number of starting points. The others get nearly nothing.
    """
    whole = [tuple(range(n)), *((k,) for k in range(n))]
    fewer = itertools.chain.from_iterable(itertools.combinations(range(n), size) for size in range(n - 1, 1, -1))
    chosen = dict.fromkeys(itertools.chain(whole, itertools.islice(fewer, _MOST_STARTS)))
    for kept in itertools.islice(chosen, _MOST_STARTS):
        part = np.full(n, _LEFT_OUT)
        part[list(kept)] = 1.0
        yield part
