"""Residuals of many replicates in bounded memory, from which the integral of |F_empirical - F_law| is computed.

Each node and cell has a row of bins; a bin keeps how many residuals it holds and their sum. From these the integral of
the empirical cdf over every bin is exact, and so is that of the law, so that their absolute difference is exact in
every bin in which the two cdfs do not cross; where they do, the difference is taken as linear with the right integral.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from topdown.geography.tree import FloatArray, IntArray
from topdown.noise import DiscreteLaplace, Gaussian, Laplace, LatticeLaw, Law
from topdown.noise.law import is_lattice_law

BINS = 512
"""Bins of a row; they reach at least 5 standard deviations to each side, and the outermost hold all beyond."""

_FIXED_POINT = 20
"""Residuals are summed as whole multiples of 2^-20 of a bin, so that sums do not depend on their order."""


def bin_width(standard_deviation: float) -> float:
    """The width of a row's bins: a power of 2, so that whole numbers fall on edges, from 1/48 to 1/24 deviation."""
    return float(2.0 ** np.floor(np.log2(standard_deviation / 24.0))) if standard_deviation > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts and sums of residuals by bin.

    ``width`` (rows,): of the bins, which are centred on 0. ``counts`` (rows, BINS) and ``offsets`` (rows, BINS): the
    sum of (residual - the bin's left edge) in units of 2^-20 width; in the first bin, which has no left edge, of (right
    edge - residual).
    """

    width: FloatArray
    counts: IntArray
    offsets: IntArray

    @classmethod
    def empty(cls, width: FloatArray) -> Histogram:
        """No residuals yet."""
        shape = (len(width), BINS)
        return cls(width, np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def add(self, residuals: FloatArray) -> None:
        """Count ``residuals`` (rows, replicates) in place."""
        from topdown.studies.residual_kernel import add_residuals  # with a compiler

        add_residuals(residuals, self.width, float(1 << _FIXED_POINT), self.counts, self.offsets)

    def merge(self, other: FilledBins) -> None:
        """Take in ``other``'s residuals."""
        places = np.flatnonzero(np.unpackbits(other.filled))
        self.counts.reshape(-1)[places] += other.counts
        self.offsets.reshape(-1)[places] += other.offsets

    def filled(self) -> FilledBins:
        """Its bins that hold residuals, for another process."""
        there = self.counts.reshape(-1) > 0
        counts, offsets = (_narrow(values.reshape(-1)[there]) for values in (self.counts, self.offsets))
        return FilledBins(self.width, np.packbits(there), counts, offsets)

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.width, self.counts + other.counts, self.offsets + other.offsets)


@dataclass(frozen=True, eq=False)
class FilledBins:
    """A `Histogram` without its empty bins, in as few bytes as its numbers allow: a tenth to a twentieth of it.

    ``filled`` (rows x BINS / 8,): a bit for every bin; ``counts`` and ``offsets`` (filled bins,), of few bytes each.
    """

    width: FloatArray
    filled: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.integer[Any]]
    offsets: npt.NDArray[np.integer[Any]]


def _narrow(values: IntArray) -> npt.NDArray[np.integer[Any]]:
    """``values`` as the narrowest signed whole numbers that hold them."""
    largest = int(max(values.max(initial=0), -values.min(initial=0)))
    return values.astype(np.min_scalar_type(-largest - 1))


def integrated_cdf(law: Law, x: FloatArray) -> FloatArray:
    """E (x - X)+ = the integral of the law's cdf from -inf to x."""
    # All laws are symmetric: E (x - X)+ = max(x, 0) + E (-|x| - X)+, and the second term has no cancellation.
    below = -np.abs(x)
    if isinstance(law, Laplace):
        part = law.scale / 2.0 * np.exp(below / float(law.scale))
    elif isinstance(law, Gaussian):
        z = below / float(law.sigma)
        part = float(law.sigma) * (z * special.ndtr(z) + np.exp(-z * z / 2.0) / np.sqrt(2.0 * np.pi))
    elif is_lattice_law(law):
        part = _integrated_lattice_cdf(law, below)
    else:
        part = _summed_cdf(law, below)
    return np.maximum(x, 0.0) + np.asarray(part, dtype=np.float64)


def _summed_cdf(law: Law, x: FloatArray) -> FloatArray:
    """The integral of a continuous cdf for which there is no formula here, by the trapezoidal rule; x <= 0."""
    points = np.linspace(min(float(x.min(initial=0.0)), -60.0 * law.std), 0.0, 1 << 17)
    heights = np.asarray(law.cdf(points), dtype=np.float64)
    sums = np.concatenate([[0.0], np.cumsum((heights[1:] + heights[:-1]) / 2.0 * (points[1] - points[0]))])
    return np.asarray(np.interp(x, points, sums), dtype=np.float64)


def _integrated_lattice_cdf(law: LatticeLaw, x: FloatArray) -> FloatArray:
    """The integral of a step function: the cdf summed over the lattice points below x, and a part of the last step."""
    step = 2.0**-law.grid_bits
    cell = np.floor(x / step)
    rest = x - cell * step
    at = np.asarray(law.cdf(cell * step), dtype=np.float64)
    if isinstance(law, DiscreteLaplace):
        # Below 0 the cdf falls by the factor a from one lattice point to the next: a geometric series.
        ratio = np.exp(-step / float(law.scale))
        return np.asarray(step * at * ratio / -np.expm1(-step / float(law.scale)) + at * rest)
    lowest = min(float(cell.min()), 0.0) - np.ceil(40.0 * law.std / step) - 1.0
    points = np.arange(lowest, float(cell.max()) + 1.0)
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(law.cdf(points * step), dtype=np.float64))])
    return np.asarray(step * sums[(cell - lowest).astype(np.int64)] + at * rest)


@lru_cache(maxsize=256)
def floor_integral(law: Law) -> float:
    """The integral of sqrt(F (1 - F)); times sqrt(2 / (pi R)) it is the expected distance of R draws from their own
    law.
    """
    if isinstance(law, Laplace):
        return float(law.scale) * (1.0 + np.pi / 2.0)
    if isinstance(law, Gaussian):
        step = float(law.sigma) / 512.0
        x = (np.arange(512 * 40) + 0.5) * step
    else:
        # F is constant between lattice points; on a fine lattice a few thousand points suffice.
        lattice = 2.0**-law.grid_bits if is_lattice_law(law) else law.std / 4096.0
        step = lattice * max(1.0, np.floor(law.std / lattice / 4096.0))
        x = np.arange(np.ceil(60.0 * law.std / step) + 2.0) * step
    tail = np.asarray(law.sf(x), dtype=np.float64)
    return 2.0 * step * float(np.sqrt(tail * (1.0 - tail)).sum())


@dataclass(frozen=True, eq=False)
class Distances:
    """Wasserstein-1 distances of every row's residuals from a law; each (rows,), in counts.

    ``plain``: of the empirical cdf, which no sample brings below about ``floor``, the expected distance from ``law`` of
    a sample of this size that comes from ``law`` itself. ``corrected``: without that floor: one half of the replicates
    determines which cdf is larger, the other half by how much, and vice versa; 0 on average where there is no distance.
    On average ``corrected`` is never above the distance and ``plain`` never below it; both are close to it where it is
    far above the floor. ``standard_error``: of ``plain``, by its influence function; NaN for one replicate.

    Within a bin in which the cdfs cross, both read a linear difference. Against the exact distance of a projected
    geometric law from the noise that is at most 1.1 % too little, from the continuous Laplace law 3.5 %; whole-number
    residuals against a law on the whole numbers of scale 1 or more never cross inside a bin, and are read exactly.
    """

    plain: FloatArray
    floor: FloatArray
    corrected: FloatArray
    standard_error: FloatArray


@dataclass(frozen=True, eq=False)
class _Difference:
    """F_empirical - F_law by bin: its integral, and its values at the bin's two ends in the linear reading."""

    integral: FloatArray
    left: FloatArray
    right: FloatArray
    tails: FloatArray  # (rows, 2): integrals of F below the first inner edge, and of 1 - F beyond the last


def _difference(histogram: Histogram, law: Law) -> _Difference:
    width = histogram.width[:, None]
    total = np.maximum(histogram.counts.sum(axis=1, keepdims=True), 1)
    offsets = histogram.offsets * (width / float(1 << _FIXED_POINT))
    below = np.cumsum(histogram.counts, axis=1)
    inner = histogram.counts[:, 1:-1]
    integral = (below[:, :-2] * width + inner * width - offsets[:, 1:-1]) / total
    right = below[:, 1:-1] / total
    outer = offsets[:, [0, -1]] / total
    # The law's part depends on a row only by its width, which is the same for a level.
    for shared in np.unique(histogram.width):
        rows = histogram.width == shared
        edges = (np.arange(1, BINS) - BINS // 2) * shared
        expected = integrated_cdf(law, edges)
        integral[rows] -= np.diff(expected)
        right[rows] -= np.asarray(law.cdf(np.nextafter(edges[1:], -np.inf)))
        # The integral of 1 - F beyond the last edge is, by the law's symmetry, that of F below its mirror image.
        beyond = np.array([expected[0], integrated_cdf(law, -edges[-1:])[0]])
        outer[rows] = (outer[rows] - beyond) * np.array([1.0, -1.0])
    return _Difference(integral, 2.0 * integral / width - right, right, outer)


def _crossing(difference: _Difference) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    """Bins in which the linear difference changes sign, and where in them (0 to 1)."""
    crosses = difference.left * difference.right < 0
    slope = np.where(crosses, difference.left - difference.right, 1.0)
    return crosses, np.where(crosses, difference.left / slope, 0.0)


def _paired(signs: _Difference, sizes: _Difference, width: FloatArray) -> FloatArray:
    """The integral of sign(first difference) times the second; of one with itself, of its absolute value."""
    crosses, at = _crossing(signs)
    sign = np.where(crosses, np.sign(signs.right), np.sign(signs.integral))
    before = width[:, None] * at * (sizes.left + at * (sizes.right - sizes.left) / 2.0)
    inner = sign * (sizes.integral - 2.0 * np.where(crosses, before, 0.0))
    result: FloatArray = inner.sum(axis=1) + (np.sign(signs.tails) * sizes.tails).sum(axis=1)
    return result


def distances(first: Histogram, second: Histogram, law: Law) -> Distances:
    """Distances from ``law`` of the residuals of two halves of the replicates, and of both together."""
    both = first + second
    width, total = both.width, both.counts.sum(axis=1)
    whole, one, other = (_difference(half, law) for half in (both, first, second))
    replicates = np.maximum(total, 1)
    # Influence of a residual at t: minus the integral of the sign up to t.
    crosses, at = _crossing(whole)
    sign = np.where(crosses, np.sign(whole.right) * (1.0 - 2.0 * at), np.sign(whole.integral))
    reach = np.concatenate([np.zeros((len(width), 1)), np.cumsum(sign, axis=1)], axis=1) * width[:, None]
    mass = both.counts[:, 1:] / replicates[:, None]
    mean = (mass * reach).sum(axis=1)
    variance = np.maximum((mass * reach * reach).sum(axis=1) - mean * mean, 0.0)
    return Distances(
        plain=_paired(whole, whole, width),
        floor=np.sqrt(2.0 / (np.pi * replicates)) * floor_integral(law),
        corrected=(_paired(one, other, width) + _paired(other, one, width)) / 2.0,
        standard_error=np.where(total > 1, np.sqrt(variance / replicates), np.nan),
    )
