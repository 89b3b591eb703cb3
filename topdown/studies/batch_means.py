"""Means over batches of replicates, by which two simulations that share their draws are compared in pairs.

A batch is a run of consecutive replicates. Its means are kept for everything that studies are compared by: errors of
groups, of decisions and of levels. Where two simulations drew the same random numbers, batch b of one is paired with
batch b of the other, and the standard error of a difference is that of the batches' differences, in which common errors
cancel.

Sources: Glasserman, Yao, "Some Guidelines and Guarantees for Common Random Numbers" (1992); Schmeiser, "Batch Size
Effects in the Analysis of Simulation Output" (1982).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from topdown.geography.tree import FloatArray, IntArray

BATCHES = 50
"""Batches of a simulation, or one per replicate where there are fewer."""

BIAS, SQUARE = "bias", "mean squared error"
"""The measures of counts: errors, and their squares."""

NET, ABSOLUTE = "net error", "absolute error"
"""The measures of decisions: errors of the outcome, and their sizes; for yes-or-no decisions, how many are wrong."""

ALL_UNITS = "all units"
"""The group of all units, in the grouping without a name; for a level the group has the level's name."""


class Of(NamedTuple):
    """What a row of batch means describes: a cell or a rule (``of``), by the groups of ``grouping``."""

    method: str
    measure: str
    of: str
    grouping: str


BATCH_COLUMNS = (*Of._fields, "group", "batch", "replicates_in_batch", "mean")
"""The columns of `BatchMeans.frame`."""


def batch_of(replicates: npt.ArrayLike, wanted: int) -> IntArray:
    """The batch of every one of ``replicates``, which are counted from 0, of ``wanted`` in all."""
    return np.asarray(replicates, dtype=np.int64) * min(wanted, BATCHES) // wanted


@dataclass(frozen=True, eq=False)
class BatchMeans:
    """``means``: arrays (batches, groups) by what they describe, ``groups``: the names of their groups; ``sizes``
    (batches,): how many replicates each batch has.
    """

    sizes: FloatArray
    means: Mapping[Of, FloatArray] = field(repr=False)
    groups: Mapping[Of, tuple[str, ...]] = field(repr=False)

    @classmethod
    def of_sums(
        cls, sums: Mapping[Of, FloatArray], groups: Mapping[Of, tuple[str, ...]], done: int, wanted: int
    ) -> BatchMeans:
        """From sums over the first ``done`` of ``wanted`` replicates; a batch that is not finished is left out."""
        whole = np.bincount(batch_of(np.arange(wanted), wanted)).astype(np.float64)
        sizes = whole[: int(np.searchsorted(np.cumsum(whole), done, side="right"))]
        means = {key: one[: len(sizes)] / sizes[:, None] for key, one in sums.items()}
        return cls(sizes, means, {key: groups[key] for key in means})

    def frame(self) -> pd.DataFrame:
        """One row per method, measure, cell or rule, group and batch, with `BATCH_COLUMNS`."""
        batches = np.arange(len(self.sizes))
        frames = [
            pd.DataFrame(
                {name: np.full(values.size, text) for name, text in zip(Of._fields, key, strict=True)}
                | {
                    "group": np.repeat(self.groups[key], len(batches)),
                    "batch": np.tile(batches, values.shape[1]),
                    "replicates_in_batch": np.tile(self.sizes.astype(np.int64), values.shape[1]),
                    "mean": values.T.reshape(-1),
                }
            )
            for key, values in self.means.items()
        ]
        return pd.concat(frames, ignore_index=True)[list(BATCH_COLUMNS)]

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> BatchMeans:
        """From the rows of `frame`. Raises ValueError for others."""
        if frame.empty:
            return cls(np.zeros(0), {}, {})
        sizes = frame.groupby("batch")["replicates_in_batch"].first().to_numpy(dtype=np.float64)
        means, groups = {}, {}
        for key, rows in frame.groupby(list(Of._fields), sort=False):
            of = Of(*map(str, key))
            names = tuple(dict.fromkeys(rows["group"].astype(str)))
            means[of] = rows["mean"].to_numpy(dtype=np.float64).reshape(len(names), len(sizes)).T
            groups[of] = names
        return cls(sizes, means, groups)

    def columns(self, key: Of, groups: Sequence[str]) -> FloatArray:
        """The batch means (batches, groups) of these ``groups``; NaN for those that are not there."""
        known = {name: k for k, name in enumerate(self.groups.get(key, ()))}
        found = np.full((len(self.sizes), len(groups)), np.nan)
        for place, name in enumerate(groups):
            if name in known:
                found[:, place] = self.means[key][:, known[name]]
        return found


class MeanOfBatches(NamedTuple):
    """Means (quantities,) with their standard errors and the degrees of freedom of these."""

    value: FloatArray
    error: FloatArray
    freedom: FloatArray

    def half(self, confidence: npt.ArrayLike) -> FloatArray:
        """Half of the interval by Student's t."""
        return np.asarray(
            self.error * special.stdtrit(np.maximum(self.freedom, 1e-9), (1.0 + np.asarray(confidence)) / 2.0)
        )

    @property
    def t(self) -> FloatArray:
        """How many standard errors each is from 0; infinite without an error, except for rounding errors of 0."""
        endless = np.where(np.abs(self.value) > 1e-12, np.copysign(np.inf, self.value), 0.0)
        start = np.where(np.isnan(self.error), np.nan, endless)
        return np.asarray(np.divide(self.value, self.error, out=start, where=self.error > 0))


def estimate(means: FloatArray, sizes: FloatArray) -> MeanOfBatches:
    """The means over replicates of ``means`` (batches, quantities) of batches of ``sizes``; no error for one batch."""
    total = sizes.sum()
    value = sizes @ means / total
    freedom = np.full(value.shape, len(sizes) - 1.0)
    if len(sizes) < 2:
        return MeanOfBatches(value, np.full(value.shape, np.nan), freedom)
    # The variance of a batch's mean is proportional to 1 / its size, so that this estimates the variance of `value`
    # without bias.
    return MeanOfBatches(value, np.sqrt(sizes @ (means - value) ** 2 / ((len(sizes) - 1.0) * total)), freedom)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The same quantities in two simulations: ``first`` and ``second`` (batches, quantities), with the batches' sizes.

    ``paired``: whether batch b of one has the draws of batch b of the other. ``signed``: whether quantities may be
    negative, so that their sizes are compared.
    """

    first: FloatArray = field(repr=False)
    second: FloatArray = field(repr=False)
    first_sizes: FloatArray = field(repr=False)
    second_sizes: FloatArray = field(repr=False)
    paired: bool
    signed: bool = True

    def contrast(self, of_first: npt.ArrayLike, of_second: npt.ArrayLike) -> MeanOfBatches:
        """``of_second`` times the second less ``of_first`` times the first, (quantities,)."""
        first: FloatArray = self.first * np.asarray(of_first, dtype=np.float64)
        second: FloatArray = self.second * np.asarray(of_second, dtype=np.float64)
        if self.paired:
            return estimate(second - first, self.first_sizes)
        a, b = estimate(first, self.first_sizes), estimate(second, self.second_sizes)
        variance = a.error**2 + b.error**2
        # Welch's degrees of freedom.
        parts = a.error**4 / np.maximum(a.freedom, 1.0) + b.error**4 / np.maximum(b.freedom, 1.0)
        freedom = np.divide(variance**2, parts, out=np.minimum(a.freedom, b.freedom), where=parts > 0)
        return MeanOfBatches(b.value - a.value, np.sqrt(variance), freedom)

    @property
    def each(self) -> tuple[MeanOfBatches, MeanOfBatches]:
        """Both simulations' own means."""
        return estimate(self.first, self.first_sizes), estimate(self.second, self.second_sizes)

    def sizes_of_each(self) -> tuple[FloatArray, FloatArray]:
        """Both simulations' sizes (quantities,) of what is compared."""
        a, b = (one.value for one in self.each)
        return (np.abs(a), np.abs(b)) if self.signed else (a, b)

    def interval(self, confidence: float = 0.95) -> SizeDifference:
        """How much larger the second is than the first.

        For signed quantities sizes are compared. Where a sign is not certain, both signs are considered, at half of the
        error: the size is the larger of the number and its opposite, the difference is the largest over the second's
        sign of the smallest over the first's sign, and so are the ends of its interval; t is the smallest over all
        signs, and 0 where they disagree on which quantity is larger. So two quantities that are only simulation error
        never differ clearly.
        """
        a, b = self.sizes_of_each()
        if not self.signed:
            found = self.contrast(1.0, 1.0)
            half = found.half(confidence)
            return SizeDifference(b - a, found.value - half, found.value + half, found.t)
        (a_signs, a_known), (b_signs, b_known) = (_possible_signs(one) for one in self.each)
        error = np.where(a_known & b_known, 1.0, 0.5) * (1.0 - confidence)
        by_sign = [[self.contrast(first, second) for first in a_signs] for second in b_signs]
        values = np.array([[one.value for one in row] for row in by_sign])
        halves = np.array([[one.half(1.0 - error) for one in row] for row in by_sign])
        # The maximum of the minima equals the minimum of the maxima, except for simulation error: take the wider one.
        low, high = (values - halves).min(axis=1).max(axis=0), (values + halves).max(axis=0).min(axis=0)
        t = np.array([one.t for row in by_sign for one in row])
        agreed = (t > 0).all(axis=0) | (t < 0).all(axis=0) | np.isnan(t).any(axis=0)
        least = np.take_along_axis(t, np.abs(t).argmin(axis=0)[None], axis=0)[0]
        return SizeDifference(b - a, low, high, np.where(agreed, least, 0.0))

    def worst(self, confidence: float = 0.95) -> HardestHit:
        """How much larger the largest of the second is than the largest of the first, whichever they are.

        With f(g) and s(g) the two sizes of group g, and F and S the groups where each is largest, s(S) - f(F) is at
        least s(F) - f(F) and at most s(S) - f(S). These are differences within one group, and so paired. All groups
        that may be F or S are considered, by simultaneous intervals (Bonferroni) with a fifth of the error; the same
        intervals of the largest sizes narrow the ends further.
        """
        # A missing group cannot be the largest.
        there = np.flatnonzero(np.isfinite(self.first).all(axis=0) & np.isfinite(self.second).all(axis=0))
        if not len(there) or min(len(self.first_sizes), len(self.second_sizes)) < 2:
            return HardestHit(-1, -1, *(np.nan,) * 5)
        mine = replace(self, first=self.first[:, there], second=self.second[:, there])
        error = 1.0 - confidence
        sizes, ends = mine.sizes_of_each(), mine.interval(1.0 - 0.8 * error)
        halves = [one.half(1.0 - 0.1 * error / len(there)) for one in mine.each]
        least, most = (
            [float((size + sign * half).max()) for size, half in zip(sizes, halves, strict=True)]
            for sign in (-1.0, 1.0)
        )
        # The groups that may be the largest.
        first, second = (size + half >= one for size, half, one in zip(sizes, halves, least, strict=True))
        low = max(float(ends.low[first].min()), least[1] - most[0])
        high = min(float(ends.high[second].max()), most[1] - least[0])
        a, b = (int(size.argmax()) for size in sizes)
        of_each = float(sizes[0][a]), float(sizes[1][b])
        return HardestHit(int(there[a]), int(there[b]), *of_each, of_each[1] - of_each[0], low, high)


class SizeDifference(NamedTuple):
    """How much larger quantities (quantities,) of a second simulation are, the ends of the interval, and the t
    statistic."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    t: FloatArray


class HardestHit(NamedTuple):
    """The largest quantity of each of two simulations: which it is, its size, and how much larger the second one's is,
    with the interval's ends.
    """

    first: int
    second: int
    first_size: float
    second_size: float
    difference: float
    low: float
    high: float


_CERTAIN = 0.999
"""The confidence at which a sign is taken as known."""


def _possible_signs(one: MeanOfBatches) -> tuple[tuple[FloatArray, FloatArray], npt.NDArray[np.bool_]]:
    """The sign of every estimate twice, or both signs where it is not certain; and where it is."""
    known = np.abs(one.value) > one.half(_CERTAIN)
    sign = np.where(one.value < 0, -1.0, 1.0)
    return (sign, np.where(known, sign, -sign)), known
