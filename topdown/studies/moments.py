"""Sums over replicates, and the statistics with standard errors that they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from topdown.geography.tree import FloatArray, IntArray
from topdown.noise import Gaussian, Law
from topdown.studies.batch_means import Of
from topdown.studies.residual_bins import FilledBins, Histogram, distances

LEVEL_QUANTITIES = ("bias", "mse", "zeros")
"""The quantities averaged over the nodes of a level in every replicate: e, e^2, and whether the estimate is 0."""

TOTALS = ("moved", "lost", "gained")
"""The quantities summed over units in every replicate: |e|, and e where it is below and above 0."""


@dataclass(frozen=True, eq=False)
class RuleSums:
    """Sums over replicates of a rule's errors by unit: of e, e^2 and |e|; ``totals`` (3, 2): of `TOTALS`, and of their
    squares."""

    error: FloatArray
    square: FloatArray
    absolute: FloatArray
    totals: FloatArray

    @classmethod
    def of(cls, errors: FloatArray) -> RuleSums:
        """Of the ``errors`` (replicates, units) of a rule's outcomes."""
        lost, gained = np.maximum(-errors, 0.0).sum(axis=1), np.maximum(errors, 0.0).sum(axis=1)
        totals = np.stack([lost + gained, lost, gained])
        return cls(
            errors.sum(axis=0),
            np.einsum("ij,ij->j", errors, errors),
            np.abs(errors).sum(axis=0),
            np.stack([totals.sum(axis=1), (totals * totals).sum(axis=1)], axis=1),
        )

    def __add__(self, other: RuleSums) -> RuleSums:
        return RuleSums(
            self.error + other.error,
            self.square + other.square,
            self.absolute + other.absolute,
            self.totals + other.totals,
        )


def _add(sums: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Add ``more`` to the ``sums`` by the same names, in place; a name that they do not have yet is new."""
    for name, one in more.items():
        sums[name] = sums[name] + one if name in sums else one


@dataclass(eq=False)
class Accumulated:
    """Sums over replicates. Rows are cells x nodes, cell by cell.

    ``powers``: label -> (4, rows), sums of e, e^2, e^3, e^4. ``zeros``: label -> (rows,), how many estimates were 0.
    ``coverage``: sums of `FollowedIntervals.counted`, None where intervals are not followed. ``levels``: label ->
    (quantities of `LEVEL_QUANTITIES`, 2, cells, levels), sums of a level's means and of their squares. ``batches``:
    sums (batches, groups) for `batch_means.BatchMeans`. ``halves``: label -> histograms of two halves of the replicates
    (a task fills the first). ``filled``: label -> the filled bins of a task's histograms, when it is done.
    """

    powers: dict[str, FloatArray] = field(default_factory=dict)
    zeros: dict[str, IntArray] = field(default_factory=dict)
    levels: dict[str, FloatArray] = field(default_factory=dict)
    halves: dict[str, list[Histogram | None]] = field(default_factory=dict)
    filled: dict[str, FilledBins] = field(default_factory=dict)
    rules: dict[tuple[str, str], RuleSums] = field(default_factory=dict)
    batches: dict[Of, FloatArray] = field(default_factory=dict)
    coverage: FloatArray | None = None

    def add_errors(self, label: str, errors: FloatArray, zeros: IntArray) -> None:
        """Add ``errors`` (rows, replicates) and how many of each row's estimates were 0."""
        squares = errors * errors
        sums = np.stack(
            [
                errors.sum(axis=1),
                squares.sum(axis=1),
                np.einsum("ij,ij->i", squares, errors),
                np.einsum("ij,ij->i", squares, squares),
            ]
        )
        _add(self.powers, {label: sums})
        _add(self.zeros, {label: zeros})

    def add_level_means(self, label: str, means: FloatArray) -> None:
        """Add the ``means`` over every level's nodes (quantities, cells, levels, replicates) of `LEVEL_QUANTITIES`."""
        sums = np.stack([means.sum(axis=-1), np.einsum("qclr,qclr->qcl", means, means)], axis=1)
        _add(self.levels, {label: sums})

    def add_histogram(self, label: str, errors: FloatArray, width: FloatArray) -> None:
        """Add ``errors`` (rows, replicates) to the rows' bins."""
        halves = self.halves.setdefault(label, [Histogram.empty(width), None])
        assert halves[0] is not None  # nosec B101 # narrows a type: the first half is made on the line before
        halves[0].add(errors)

    def add_rule(self, key: tuple[str, str], errors: FloatArray) -> None:
        """Add the errors (replicates, units) of a rule's outcomes."""
        _add(self.rules, {key: RuleSums.of(errors)})

    def add_to_batches(self, key: Of, values: FloatArray, batches: IntArray, count: int) -> None:
        """Add ``values`` (replicates, groups), each to its one of the ``count`` ``batches`` (replicates,), rising."""
        sums = self.batches.setdefault(key, np.zeros((count, values.shape[1])))
        starts = np.flatnonzero(np.diff(batches, prepend=-1))
        sums[batches[starts]] += np.add.reduceat(values, starts, axis=0)

    def add_coverage(self, sums: FloatArray) -> None:
        """Add the ``sums`` of `FollowedIntervals.counted`."""
        self.coverage = sums if self.coverage is None else self.coverage + sums

    def packed(self) -> Accumulated:
        """The same sums of a task, of its histograms the filled bins."""
        filled = {label: halves[0].filled() for label, halves in self.halves.items() if halves[0] is not None}
        return replace(self, halves={}, filled=filled)

    def merge(self, part: Accumulated, half: int) -> None:
        """Take in the sums of a task that is done (`packed`), its histograms into half 0 or 1."""
        if part.coverage is not None:
            self.add_coverage(part.coverage)
        _add(self.powers, part.powers)
        _add(self.zeros, part.zeros)
        _add(self.levels, part.levels)
        _add(self.batches, part.batches)
        _add(self.rules, part.rules)
        for label, found in part.filled.items():
            mine = self.halves.setdefault(label, [None, None])
            here = mine[half] = mine[half] or Histogram.empty(found.width)
            here.merge(found)

    def two_halves(self, label: str) -> tuple[Histogram, Histogram]:
        """Both halves' histograms; the second is empty where there was only one task."""
        first, second = self.halves[label]
        assert first is not None  # nosec B101 # narrows a type: the first task fills every first half
        return first, Histogram.empty(first.width) if second is None else second

    def both_halves(self) -> dict[str, Histogram]:
        """Each label's histogram of all replicates."""
        result = {}
        for label in self.halves:
            first, second = self.two_halves(label)
            result[label] = first + second
        return result


def error_statistics(
    total: Accumulated,
    label: str,
    replicates: int,
    laws: Sequence[Sequence[Law | None]],
    levels: Sequence[slice],
    shape: tuple[int, ...],
    deviation: FloatArray | None = None,
) -> dict[str, FloatArray]:
    """The statistics (rows,) of `errors_table.STATISTICS` with their Monte Carlo standard errors.

    The variance has divisor R - 1; its standard error is sqrt((m4 - (R - 3)/(R - 1) m2^2) / R) with central moments m2,
    m4; those of the other means are sqrt(sample variance / R). The variance and all standard errors are NaN for one
    replicate. ``laws``: by level and cell, those that residuals are compared with; or normal laws, of the standard
    ``deviation`` (rows,) of each row.
    """
    r = float(replicates)
    first, second, third, fourth = total.powers[label] / r
    bias = first
    m2 = np.maximum(second - bias**2, 0.0)
    m4 = np.maximum(fourth - 4 * bias * third + 6 * bias**2 * second - 3 * bias**4, 0.0)
    many = replicates > 1
    variance = m2 * r / (r - 1) if many else np.full_like(m2, np.nan)
    of_variance = m4 - m2**2 * (r - 3) / (r - 1) if many else np.full_like(m2, np.nan)
    zeros = total.zeros[label] / r
    rows = len(bias)
    found = {
        "bias": bias,
        "bias_se": np.sqrt(variance / r),
        "variance": variance,
        "variance_se": np.sqrt(np.maximum(of_variance, 0.0) / r),
        "mse": second,
        "mse_se": np.sqrt(np.maximum(fourth - second**2, 0.0) / max(r - 1, 1)) if many else np.full(rows, np.nan),
        "zeros": zeros,
        "zeros_se": np.sqrt(zeros * (1.0 - zeros) / r) if many else np.full(rows, np.nan),
    }
    names = ("wasserstein", "wasserstein_se", "wasserstein_floor", "wasserstein_corrected")
    found |= {name: np.full(rows, np.nan) for name in names}
    if label in total.halves:
        halves = total.two_halves(label)
        if deviation is None:
            _add_distances(found, *halves, laws, levels, shape)
        else:
            _add_normal_distances(found, *halves, deviation)
    return found


def _add_distances(
    found: dict[str, FloatArray],
    first: Histogram,
    second: Histogram,
    laws: Sequence[Sequence[Law | None]],
    levels: Sequence[slice],
    shape: tuple[int, ...],
) -> None:
    nodes = shape[1]
    for of_cells, level in zip(laws, levels, strict=True):
        for law in dict.fromkeys(of_cells):
            if law is None:
                continue
            mine = [cell for cell, other in enumerate(of_cells) if other == law]
            rows = np.concatenate([np.arange(level.start, level.stop) + cell * nodes for cell in mine])
            _add_from_law(found, first, second, rows, law, np.ones(len(rows)))


def _add_normal_distances(
    found: dict[str, FloatArray], first: Histogram, second: Histogram, deviation: FloatArray
) -> None:
    rows = np.flatnonzero(np.isfinite(deviation) & (deviation > 0))
    # In units of the row's own deviation all are compared with one law, and rows with bins alike together.
    rows = rows[np.argsort((first.width / deviation)[rows], kind="stable")]
    if len(rows):
        _add_from_law(found, first, second, rows, Gaussian(1), deviation[rows])


def _add_from_law(
    found: dict[str, FloatArray], first: Histogram, second: Histogram, rows: IntArray, law: Law, unit: FloatArray
) -> None:
    """Add the distances of ``rows`` from ``law``, in which a residual of ``unit`` (rows,) counts is 1."""
    halves_are_there = bool(second.counts.any())
    # A few thousand rows at a time: the differences by bin are several arrays of (rows, bins).
    for place in np.array_split(np.arange(len(rows)), -(-len(rows) // 2048)):
        part, counts = rows[place], unit[place]
        measured = distances(_rows(first, part, counts), _rows(second, part, counts), law)
        found["wasserstein"][part] = measured.plain * counts
        found["wasserstein_se"][part] = measured.standard_error * counts
        found["wasserstein_floor"][part] = measured.floor * counts
        if halves_are_there:
            found["wasserstein_corrected"][part] = measured.corrected * counts


def _rows(histogram: Histogram, rows: IntArray, unit: FloatArray) -> Histogram:
    return Histogram(histogram.width[rows] / unit, histogram.counts[rows], histogram.offsets[rows])


def level_statistics(total: Accumulated, label: str, replicates: int) -> dict[str, FloatArray]:
    """Means over every level's nodes (levels, cells) of `LEVEL_QUANTITIES`, with Monte Carlo standard errors ``_se``.

    The standard error is that of the replicates' own level means, so that correlations between nodes are in it.
    """
    found = {}
    for name, (first, second) in zip(LEVEL_QUANTITIES, total.levels[label], strict=True):
        found[name], found[f"{name}_se"] = _mean(first.T, second.T, replicates)
    return found


def rule_totals(sums: RuleSums, replicates: int) -> dict[str, float]:
    """Means over replicates of `TOTALS` over all units, with Monte Carlo standard errors ``_se``."""
    mean, error = _mean(sums.totals[:, 0], sums.totals[:, 1], replicates)
    found = dict(zip(TOTALS, mean.tolist(), strict=True))
    return found | {f"{name}_se": one for name, one in zip(TOTALS, error.tolist(), strict=True)}


def _mean(first: FloatArray, second: FloatArray, replicates: int) -> tuple[FloatArray, FloatArray]:
    """Mean and its standard error from sums of values and of squares; no error for one replicate."""
    r = float(replicates)
    mean = first / r
    if replicates < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, np.sqrt(np.maximum(second / r - mean**2, 0.0) / (r - 1.0))


def rule_statistics(sums: RuleSums, replicates: int) -> dict[str, FloatArray]:
    """Means over replicates of a rule's error and absolute error by unit, with Monte Carlo standard errors (NaN for one
    replicate).
    """
    mean, error = _mean(sums.error, sums.square, replicates)
    absolute, of_absolute = _mean(sums.absolute, sums.square, replicates)
    return {
        "mean_error": mean,
        "mean_error_se": error,
        "mean_absolute_error": absolute,
        "mean_absolute_error_se": of_absolute,
    }
