"""The law of the threshold of a non-negative sum projection under integer noise.

v = argmin ||v - y||_2 s.t. sum v = c, v >= 0 is v_i = max(y_i - tau, 0). For integer noise the threshold satisfies
k <= tau < k + 1 exactly when D = sum_j (y_j - k)_+ - c lies in 0 <= D < m, m the number of y_j above k, and then
tau = k + D / m. So the moments are sums, over k, over the joint law of (D, m), and one child.

The joint law is a product over independent children, hence taken through its characteristic function
E exp(i theta D) w^r, with r = n - m the number of children at or below k, on a grid fine enough that what wraps
around is below 1e-20. Three facts make that quick: children far above the noise are never clipped, and share one
factor in closed form; r takes few values; and a product of many characteristic functions vanishes away from theta = 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]

_TAIL_EXPONENT = 46.0  # exp(-46) = 1e-20: probability left out at each cut
_PERIOD_GRID = 1.2
_MOST_STEPS = 20_000
_SIGNS = np.array([1.0, -1.0, 1.0])[:, None, None]  # of (-i)^q
_CELLS = 400_000  # complex numbers per block of work


def sum_projection_moments(x: Array, total: float, scale: float) -> Array:
    """Mass accounted for, E(v - x) and E(v - x)^2 of every child: (3, n), for v the projection of x + noise on
    {v >= 0, sum v = total}, total > 0, under double geometric noise with a = exp(-1 / scale)."""
    distinct, group, size = np.unique(x, return_inverse=True, return_counts=True)
    surplus = math.fsum(x) - total
    first, last = _threshold_range(distinct, size, surplus, scale)
    if last - first > _MOST_STEPS:
        raise ConfigError(
            f"scale {scale:g} (1/epsilon) with {x.size} children needs {last - first} thresholds, more than "
            f"{_MOST_STEPS}: this would take many minutes; use a larger epsilon, or simulation"
        )
    # a child this far above the last threshold is clipped with probability below exp(-46)
    clipped = distinct < last + _TAIL_EXPONENT * scale + 1.0
    family = _Family(
        small=distinct[clipped],
        copies=size[clipped].astype(np.int64),
        large=int(size[~clipped].sum()),
        surplus=surplus,
        scale=scale,
    )
    sums = np.zeros((3, family.small.size + 1))
    steps = sorted((family.step(k) for k in range(first, last + 1)), key=lambda step: step.period)
    for _, same_period in itertools.groupby(steps, key=lambda step: step.period):
        family.accumulate(list(same_period), sums)
    order = np.empty(distinct.size, dtype=np.int64)
    order[clipped] = np.arange(family.small.size)
    order[~clipped] = family.small.size
    return sums[:, order[group]]


# --- how far to sum: Chernoff's bound on D = sum_j max(k_j - k, -x_j) + surplus ---------------------------------


def _log_mgf(k: float, x: Array, size: NDArray[np.int64], surplus: float, scale: float, t: Array) -> Array:
    """log E exp(t D) for |t| < 1/scale."""
    eps = 1.0 / scale
    b = k - x[:, None]  # a child is clipped when its noise is at or below b
    unit = -math.expm1(-eps) / (1.0 + math.exp(-eps))
    up = -np.expm1(t - eps)
    down = -np.expm1(-t - eps)
    # an overflow makes the bound useless, not wrong: it counts as infinite
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        low = np.where(
            b >= 0.0,
            np.exp(-t * x[:, None]) * (1.0 - np.exp(-eps * np.maximum(b + 1.0, 0.0)) / (1.0 + math.exp(-eps))),
            np.exp(np.minimum(b, 0.0) * eps - t * x[:, None]) / (1.0 + math.exp(-eps)),
        )
        start = np.maximum(b + 1.0, 0.0)
        high = np.exp(-t * k + (t - eps) * start) / up
        inner = np.exp(-t * k - t - eps) * -np.expm1(-(t + eps) * np.maximum(-b - 1.0, 0.0)) / down
        log_factor = np.log(low + unit * (high + inner))
        bound = size.astype(np.float64) @ log_factor + t * surplus
    return np.where(np.isnan(bound), np.inf, bound)


def _chernoff_grid(scale: float) -> Array:
    return np.concatenate((np.geomspace(1e-4, 0.1, 24), np.linspace(0.12, 0.98, 30))) / scale


def _threshold_range(x: Array, size: NDArray[np.int64], surplus: float, scale: float) -> tuple[int, int]:
    """The whole numbers k outside of which k <= tau < k + 1 has probability below exp(-46) on either side."""
    t = _chernoff_grid(scale)

    def surely_above(k: int) -> bool:  # P(tau < k) = P(D_k < 0)
        return float(np.min(_log_mgf(k, x, size, surplus, scale, -t))) < -_TAIL_EXPONENT

    def surely_below(k: int) -> bool:  # P(tau >= k) = P(D_k >= 0), which needs some y_j > k
        if float(size @ np.exp(-np.maximum(k + 1.0 - x, 0.0) / scale)) < math.exp(-_TAIL_EXPONENT):
            return True
        return float(np.min(_log_mgf(k, x, size, surplus, scale, t))) < -_TAIL_EXPONENT

    return _outermost(surely_above, -1, scale), _outermost(surely_below, 1, scale)


def _outermost(outside_range: Callable[[int], bool], direction: int, scale: float) -> int:
    """The first whole number in ``direction`` for which ``outside_range`` holds; it is monotone."""
    first_step = max(1, round(scale))
    inside, step = 0, first_step
    while outside_range(inside):
        inside -= direction * step
        step *= 2
    outside, step = inside + direction, first_step
    while not outside_range(outside):
        outside += direction * step
        step *= 2
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (inside, middle) if outside_range(middle) else (middle, outside)
    return outside


# --- the joint law of (D, r) for one k --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """One k: the clipping probability of each small child, the window of values of r, the period that D needs."""

    k: int
    clipped: Array
    fewest_clipped: int
    window: int
    period: int


@dataclass(frozen=True, slots=True)
class _Family:
    """Distinct ``small`` counts with their ``copies``, ``large`` children never clipped; total = sum - surplus."""

    small: Array
    copies: NDArray[np.int64]
    large: int
    surplus: float
    scale: float

    @property
    def n(self) -> int:
        return self.large + int(self.copies.sum())

    def step(self, k: int) -> _Step:
        a = math.exp(-1.0 / self.scale)
        b = k - self.small
        clipped = np.where(
            b >= 0.0,
            1.0 - np.exp(-(np.maximum(b, 0.0) + 1.0) / self.scale) / (1.0 + a),
            np.exp(np.minimum(b, 0.0) / self.scale) / (1.0 + a),
        )
        law = np.ones(1)
        for p, copies in zip(clipped.tolist(), self.copies.tolist(), strict=True):
            for _ in range(copies):
                law = np.convolve(law, (1.0 - p, p))
        probable = np.flatnonzero(
            (np.cumsum(law) > math.exp(-_TAIL_EXPONENT)) & (np.cumsum(law[::-1])[::-1] > math.exp(-_TAIL_EXPONENT))
        )
        t = _chernoff_grid(self.scale)
        far = np.array([k + 2.0 * _TAIL_EXPONENT * self.scale + 10.0])  # stands for a child that is never clipped
        x = np.concatenate((self.small, far)) if self.large else self.small
        size = np.concatenate((self.copies, [self.large])) if self.large else self.copies
        upper = np.min((_log_mgf(k, x, size, self.surplus, self.scale, t) + _TAIL_EXPONENT) / t)
        lower = np.min((_log_mgf(k, x, size, self.surplus, self.scale, -t) + _TAIL_EXPONENT) / t)
        # a period from a coarse grid is shared by many steps; odd: no angle is its own conjugate but 0
        needed = max(float(upper), self.n + float(lower), float(self.n)) + 2.0
        period = math.ceil(_PERIOD_GRID ** math.ceil(math.log(needed) / math.log(_PERIOD_GRID)))
        return _Step(k, clipped, int(probable[0]), probable.size, period + 1 - period % 2)

    def factors(self, step: _Step, angles: _Angles) -> tuple[ComplexArray, ComplexArray, ComplexArray]:
        """E (k_j - k)^q exp(i theta (k_j - k)) on the event "not clipped", q = 0, 1, 2, for every small child and,
        last, a large one: (3, groups + 1, angles); the clipped part; exp(i theta surplus)."""
        a, k, theta = math.exp(-1.0 / self.scale), step.k, angles.theta
        unit = -math.expm1(-1.0 / self.scale) / (1.0 + a)
        x = self.small[:, None]
        rotate = np.exp(1j * theta)
        # the noise at 0 and above, then below 0: there the sums run over exp(-i theta), the conjugate
        never = np.exp(-1j * theta * k) * angles.power_sums(-float(k))
        never += _SIGNS[:, 0] * (a * np.exp(-1j * theta * (k + 1.0)) * angles.power_sums(1.0 + k).conj())
        active = np.empty((3, x.size + 1, theta.size), dtype=np.complex128)
        active[:, -1] = never
        at_zero = np.exp(-1j * theta * x)
        cut = self.small > k
        # x > k: what a large child has, without the part that is clipped; x <= k: what is left above the cut
        lost = np.exp((k - x[cut]) / self.scale) * at_zero[cut]
        active[:, :-1][:, cut] = never[:, None] - _SIGNS * lost * angles.power_sums(x[cut]).conj()
        left = np.exp((x[~cut] - k - 1.0) / self.scale) * at_zero[~cut] * rotate
        active[:, :-1][:, ~cut] = left * angles.power_sums(1.0 - x[~cut])
        active *= unit
        return active, step.clipped[:, None] * at_zero, np.exp(1j * theta * math.floor(self.surplus))

    def last_angle(self, step: _Step) -> int:
        """The last multiple of 2 pi / period at which the characteristic function can still be seen."""
        half = (step.period - 1) // 2
        a = math.exp(-1.0 / self.scale)
        least = 2.0 * (self.n - 1) * math.log(-math.expm1(-1.0 / self.scale) / (1.0 + a))
        if least > -_TAIL_EXPONENT - 8.0:  # a few children's product is seen up to theta = pi
            return half
        coarse = np.unique(
            np.concatenate((np.arange(min(half, 64) + 1), np.geomspace(1, half + 1, 200).astype(int) - 1))
        )
        active, clipped, _ = self.factors(step, _angles(2.0 * np.pi / step.period * coarse, self.scale))
        size = np.abs(active[0])
        size[:-1] += np.abs(clipped)
        with np.errstate(divide="ignore"):
            log_size = np.log(np.minimum(size, 1.0))
        copies = np.concatenate((self.copies, [self.large]))
        present = log_size[copies > 0]
        # without the child whose moments are taken
        bound = copies[copies > 0].astype(np.float64) @ present - present.min(axis=0)
        seen = np.flatnonzero(bound > -_TAIL_EXPONENT - 8.0)
        return int(coarse[min(int(seen[-1]) + 1, coarse.size - 1)])

    def accumulate(self, steps: list[_Step], sums: Array) -> None:
        """Add the parts of some k of one period to the mass and to E(v - x), E(v - x)^2, per distinct count."""
        period = steps[0].period
        lasts = [self.last_angle(step) for step in steps]
        remainder = self.surplus - math.floor(self.surplus)
        fewest = min(step.fewest_clipped for step in steps)
        most = max(step.fewest_clipped + step.window for step in steps)
        block = max(1, _CELLS // (max(step.window for step in steps) * (self.small.size + 1) + 3 * (most - fewest)))
        for start in range(0, max(lasts) + 1, block):
            index = np.arange(start, min(start + block, max(lasts) + 1))
            theta = np.asarray(2.0 * np.pi / period * index, dtype=np.float64)
            weights = _final_weights(self.n, remainder, theta, fewest, most)
            angles = _angles(theta, self.scale)
            for step, last in zip(steps, lasts, strict=True):
                if last >= start:
                    lowest = step.fewest_clipped - fewest
                    used = weights[:, : last + 1 - start, lowest : lowest + step.window]
                    self.add_angles(step, angles.first_ones(last + 1 - start), start == 0, used, sums)

    def add_angles(self, step: _Step, angles: _Angles, with_zero: bool, weights: ComplexArray, sums: Array) -> None:
        """Parseval's sum over some angles: the law's transform against that of (D / m)^q, 0 <= D < m."""
        window, groups = step.window, self.small.size
        share = np.full(angles.theta.size, 2.0 / (float(step.period) * window))  # theta and -theta are conjugates
        if with_zero:
            share[0] *= 0.5
        active, clipped, common = self.factors(step, angles)
        w = np.exp(2j * np.pi * np.arange(window) / window)
        f = np.fft.fft(weights, axis=2) * w ** (-float(step.fewest_clipped))
        factor = active[0, :groups, :, None] + w * clipped[:, :, None]
        powers = [_integer_power(factor[g], int(self.copies[g])) for g in range(groups)]
        large = common[:, None] * _integer_power(active[0, -1], self.large)[:, None]
        before = [np.broadcast_to(large, (angles.theta.size, window))]
        for power in powers:
            before.append(before[-1] * power)
        after = np.ones((angles.theta.size, window), dtype=np.complex128)
        for g in range(groups - 1, -1, -1):
            others = before[g] * after * _integer_power(factor[g], int(self.copies[g]) - 1)
            u = np.einsum("tw,qtw->qt", others, f)
            v = np.einsum("tw,w,tw->t", others, w, f[0]) * clipped[g]
            sums[:, g] += _moments_of_child(active[:, g], u, v, float(self.small[g]), share)
            after = after * powers[g]
        if self.large:
            others = common[:, None] * _integer_power(active[0, -1], self.large - 1)[:, None] * after
            u = np.einsum("tw,qtw->qt", others, f)
            sums[:, groups] += _moments_of_child(active[:, -1], u, np.zeros(angles.theta.size), 0.0, share)


def _moments_of_child(active: ComplexArray, u: ComplexArray, v: ArrayLike, x: float, share: Array) -> Array:
    """Mass, E(v - x), E(v - x)^2: (k_j - k) - D / m where the child is not clipped, -x where it is."""
    below = np.asarray(v, dtype=np.complex128)
    mass = active[0] * u[0] + below
    first = active[1] * u[0] - active[0] * u[1] - x * below
    second = active[2] * u[0] - 2.0 * active[1] * u[1] + active[0] * u[2] + x * x * below
    return np.array([float(np.real(part) @ share) for part in (mass, first, second)])


def _final_weights(n: int, remainder: float, theta: Array, fewest: int, most: int) -> ComplexArray:
    """sum over 0 <= D < m of ((D + remainder) / m)^q exp(-i theta D), m = n - r: (3, angles, fewest <= r < most)."""
    m = n - np.arange(fewest, most)
    active = m[m > 0]
    result = np.zeros((3, theta.size, m.size), dtype=np.complex128)
    d = np.arange(active.max(initial=0), dtype=np.float64)
    block = max(1, _CELLS // max(1, d.size))
    for start in range(0, theta.size, block):
        part = slice(start, min(start + block, theta.size))
        wave = np.exp(-1j * theta[part, None] * d)
        for q in range(3):
            partial = np.cumsum(wave * (d + remainder) ** q, axis=1)
            result[q, part, : active.size] = partial[:, active - 1] / active.astype(np.float64) ** q
    return result


@dataclass(frozen=True, slots=True)
class _Angles:
    """theta, and sum over i >= 0 of i^q z^i, z = exp(-1/scale + i theta), q = 0, 1, 2, shared by every k."""

    theta: Array
    zeroth: ComplexArray
    first: ComplexArray
    second: ComplexArray

    def first_ones(self, count: int) -> _Angles:
        return _Angles(self.theta[:count], self.zeroth[:count], self.first[:count], self.second[:count])

    def power_sums(self, s: Array | float) -> ComplexArray:
        """sum over i >= 0 of z^i (i + s)^q, q = 0, 1, 2: (3, ..., angles), for s as a column or a number."""
        column = np.asarray(s, dtype=np.float64)
        once = column * self.zeroth
        shape = (3, *once.shape)
        result = np.empty(shape, dtype=np.complex128)
        result[0] = self.zeroth
        result[1] = self.first + once
        result[2] = self.second + 2.0 * column * self.first + column * once
        return result


def _angles(theta: Array, scale: float) -> _Angles:
    z = np.exp(-1.0 / scale + 1j * theta)
    zeroth = -1.0 / np.expm1(-1.0 / scale + 1j * theta)
    return _Angles(theta, zeroth, z * zeroth**2, z * (1.0 + z) * zeroth**3)


def _integer_power(base: ComplexArray, exponent: int) -> ComplexArray:
    """Repeated squaring: numpy's complex power goes through a logarithm."""
    result = np.ones_like(base)
    square = base
    while exponent > 0:
        if exponent & 1:
            result = result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return result
