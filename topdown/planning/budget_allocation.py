"""The smallest budget whose least squares meets bounds of variances: an exact convex program, or local ones for prices
that are not linear.

The precisions that meet a bound v_t <= t form a convex set, since 1 / v_t is concave (`precision`). Every point gives
linear inequalities that all of the set obeys, the tangents of 1 / v_t there; the least price under those that are
known is a lower bound of the least price, and any point can be stretched until it meets the bounds. So both ends are
known and close in on each other (Kelley 1960), with points taken between the two ends (Ben-Ameur and Neto 2007).

Where precision is bought in proportion, as from Gaussian noise, that is all. Laplace noise becomes cheaper by the unit
as more is bought: a concave price over the same convex set, which has local minima. Each is found by prices that are
linear at the last point (the concave-convex procedure), from several starts; the inequalities are kept from one to the
next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.planning.precision import Answered, Precisions, Worst
from topdown.planning.sum_precision import SummedAnswers

GAP = 1e-4
"""The part of the least price by which what is found may be above it."""

_MOST_STEPS = 600
_KEPT = 8
"""Inequalities that are kept for every precision and bound."""

_MOST_STARTS = 16
_MET = 1e-9
_SMALLEST, _LEFT_OUT = 1e-9, 1e-4


@dataclass(frozen=True)
class Bound:
    """The largest variance of ``asked`` shall be ``most`` at most."""

    asked: Answered | SummedAnswers
    most: float


@dataclass(frozen=True, eq=False)
class Found:
    """``precision`` (measured,) that meets every bound, its ``price``, and ``least``, below which no price is, where
    that is known."""

    precision: FloatArray
    price: float
    least: float | None


@dataclass(eq=False)
class _Search:
    """The inequalities slopes x >= levels that every precision obeys which meets the bounds."""

    precisions: Precisions
    bounds: Sequence[Bound]
    slopes: list[FloatArray] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)

    def met(self, precision: FloatArray) -> FloatArray:
        """``precision`` times the number by which it just meets every bound, whose tangents there are taken in.

        Raises `ConfigError` where none does."""
        for _ in range(100):
            found = self.precisions.worst(precision, [bound.asked for bound in self.bounds])
            over = max(one.variance / bound.most for bound, one in zip(self.bounds, found, strict=True))
            if abs(over - 1.0) < _MET:
                self._take(precision, found)
                return precision * (1.0 + _MET)
            precision = precision * over
        raise ConfigError("no budget that is divided so meets the targets; measure what they ask for")

    def _take(self, precision: FloatArray, found: Sequence[Worst]) -> None:
        for bound, (variance, gradient) in zip(self.bounds, found, strict=True):
            # 1/v + d(1/v) (x - p) >= 1/most, in units of 1/most.
            slope = -gradient / variance**2 * bound.most
            self.slopes.append(slope)
            self.levels.append(1.0 - bound.most / variance + float(slope @ precision))

    def _drop(self, precision: FloatArray) -> None:
        """Keep the inequalities that are nearest to ``precision``, once there are many."""
        kept = _KEPT * (len(precision) + len(self.bounds))
        if len(self.slopes) > 2 * kept:
            slack = np.array(self.slopes) @ precision - np.array(self.levels)
            nearest = np.sort(np.argsort(slack, kind="stable")[:kept]).tolist()
            self.slopes = [self.slopes[k] for k in nearest]
            self.levels = [self.levels[k] for k in nearest]

    def cheapest(self, weights: FloatArray, start: FloatArray, gap: float) -> tuple[FloatArray, float]:
        """The precision that meets the bounds at the least price ``weights`` x, to ``gap``, and a price below the
        least; ``start``: one that meets them."""
        from scipy.optimize import linprog

        best, price, least = start, float(weights @ start), 0.0
        for step in range(_MOST_STEPS):
            unit = price / weights
            # In parts of what the whole price would buy of each, so that all numbers are of one size.
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
    """Precisions that meet ``bounds``, at a price, the sum of ``price`` (concave, of each), that no near ones are
    below; the best that several starts lead to. ``slope``: the derivative of ``price``."""
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
    """Equal parts of everything, of each alone, then of ever fewer, up to a number of starts; what is left out gets
    next to nothing."""
    whole = [tuple(range(n)), *((k,) for k in range(n))]
    fewer = itertools.chain.from_iterable(itertools.combinations(range(n), size) for size in range(n - 1, 1, -1))
    chosen = dict.fromkeys(itertools.chain(whole, itertools.islice(fewer, _MOST_STARTS)))
    for kept in itertools.islice(chosen, _MOST_STARTS):
        part = np.full(n, _LEFT_OUT)
        part[list(kept)] = 1.0
        yield part
