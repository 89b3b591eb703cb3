"""td.region(): a sum over any nodes, a difference, a share, each with its margin of error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topdown.errors import ConfigError, DataError, ProjectionError, suggest
from topdown.geography.tree import FloatArray, IntArray
from topdown.measurements.measurements import Measurements
from topdown.projection.equality import least_squares
from topdown.projection.invariants import Contradiction, settle
from topdown.uncertainty.combination import Combination, Law, Pivots, combination, covariance, joined, law_of
from topdown.uncertainty.error_law import tail
from topdown.uncertainty.interval import interval
from topdown.uncertainty.known_noise import known_noise
from topdown.uncertainty.margins import pivots, require_confidence
from topdown.wording import shown
from topdown.workload import DETAILED, Query

if TYPE_CHECKING:
    from topdown.uncertainty.histogram_regions import HistogramSums

UNDETERMINED = "undetermined: every share from 0 to 1 is within the margin"
_SHARES = 2001
_LAWS_OF_SHARES = 9
_NEAR = 12.0
_ROUNDING = 1e-9

Weights = Mapping[str, float]


class Region(NamedTuple):
    """A number with its margin: the unbiased ``estimate``, its standard deviation ``sd``, ``lower`` and ``upper``, and
    in words what has to be known of it (``note``, empty where nothing has).
    """

    estimate: float
    sd: float
    lower: float
    upper: float
    note: str = ""


def region(
    measurements: Measurements,
    weights: Weights,
    *,
    query: str = "total",
    cell: str | None = None,
    minus: Weights | None = None,
    share_of: Weights | str | None = None,
    confidence: float = 0.9,
) -> Region:
    """A weighted sum over any nodes, at mixed levels, with a margin of error: {GEOID: weight}.

    ``query`` and ``cell``: which answer is summed, by default all that is counted. ``minus``: nodes whose sum is taken
    away. ``share_of``: nodes, or a query of one answer, of which the sum is a part; the share's margin is Fieller's
    set: a share rho is kept where |A - rho B| is within the margin of A - rho B. Variance and fourth cumulant are
    exact, so that regions of neighbours have the short margins that they deserve. Of counts with weights of 0 or more
    ``lower`` and ``upper`` are 0 or more; with whole weights they are whole. The interval covers with probability
    ``confidence``. Where several queries were measured, under Gaussian noise, sums and differences take one solve over
    the whole tree each, and shares are refused. Raises `ConfigError` as `margins` does, and `DataError` for units that
    are not there.

    Source: docs/margins.md; Fieller 1954 for shares.
    """
    return Regions(measurements).region(
        weights, query=query, cell=cell, minus=minus, share_of=share_of, confidence=confidence
    )


@dataclass(frozen=True, eq=False)
class Regions:
    """Many regions of the same measurements: what all have in common is computed once."""

    measurements: Measurements

    @cached_property
    def pivots(self) -> Pivots:
        """The moments of every node's error."""
        noise = known_noise(self.measurements)
        found, variance = pivots(self.measurements, noise)
        return Pivots.of(self.measurements.geography.tree, noise, variance, found)

    @cached_property
    def _estimates(self) -> dict[tuple[int, ...], FloatArray]:
        return {}

    def estimates(self, cells: IntArray) -> FloatArray:
        """Least squares of the sum over ``cells`` at every node (nodes,)."""
        key = tuple(cells.tolist())
        if key not in self._estimates:
            tree = self.measurements.geography.tree
            values = self.measurements.values[:, cells].sum(axis=1).astype(np.float64)
            node_variance = self.measurements.node_variance
            try:
                values, variance = settle(values, node_variance, tree, nonnegative=False)
            except Contradiction as contradiction:
                place = self.measurements.geography.describe(contradiction.node)
                raise ProjectionError(f"{place}: {contradiction}; correct the exact values") from None
            self._estimates[key] = least_squares(values, variance, tree)
        return self._estimates[key]

    def region(
        self,
        weights: Weights,
        *,
        query: str = "total",
        cell: str | None = None,
        minus: Weights | None = None,
        share_of: Weights | str | None = None,
        confidence: float = 0.9,
    ) -> Region:
        """As the function `region`."""
        alpha = 1.0 - require_confidence(confidence)
        cells = self.cells(query, cell)
        whole = dict(weights)
        for geoid, weight in ({} if minus is None else minus).items():
            whole[geoid] = whole.get(geoid, 0.0) - weight
        nodes, amounts = self._nodes(whole)
        if self.measurements.others:
            if share_of is not None:
                raise ConfigError(
                    "margins of shares are not known where several queries were measured; ask for the two sums"
                )
            answer = self._answer(query, cell)
            value, normal = self._histograms.sum_of(nodes, amounts, *answer)
            return _sum(value, normal, amounts, alpha, signed=minus is not None)
        if share_of is not None:
            return self._share(nodes, amounts, cells, share_of, alpha)
        found = combination(nodes, amounts[None], self.pivots)
        law = law_of(found, self.pivots, np.ones(1), len(cells))
        return _sum(float(amounts @ self.estimates(cells)[nodes]), law, amounts, alpha, signed=minus is not None)

    def cells(self, query: str, cell: str | None) -> IntArray:
        """The cells that the answer ``cell`` of ``query`` is the sum of.

        Raises `ConfigError` for an unknown query or cell, and where a query of several answers comes without a cell.
        """
        if cell in self.measurements.cells and query == "total":
            return np.array([self.measurements.cells.index(str(cell))])
        asked = Query.parse(query, self.measurements.schema)
        labels = asked.labels()
        if cell is None and asked.n_answers != 1:
            raise ConfigError(f"query {shown(asked.name)} has {asked.n_answers} answers; name one of them as the cell")
        if cell is not None and cell not in labels:
            known = labels if asked.n_answers > 1 else self.measurements.cells
            raise ConfigError(f"query {shown(asked.name)} has no cell {shown(cell)}; {suggest(cell, known)}")
        answers = asked.answers_of(np.arange(len(self.measurements.cells)))
        return np.flatnonzero(answers == (0 if cell is None else labels.index(cell)))

    @cached_property
    def _histograms(self) -> HistogramSums:
        from topdown.uncertainty.histogram_regions import HistogramSums  # with a compiler

        return HistogramSums(self.measurements)

    def _answer(self, query: str, cell: str | None) -> tuple[str, int]:
        """The query and the number of its answer that ``query`` and ``cell``, which are known, mean."""
        if cell in self.measurements.cells and query == "total":
            return DETAILED, self.measurements.cells.index(str(cell))
        labels = Query.parse(query, self.measurements.schema).labels()
        return query, 0 if cell is None else labels.index(cell)

    def _nodes(self, weights: Mapping[str, float]) -> tuple[IntArray, FloatArray]:
        geography = self.measurements.geography
        nodes = geography.index_of(list(weights))
        missing = [geoid for geoid, node in zip(weights, nodes.tolist(), strict=True) if node < 0]
        if missing or not len(nodes):
            raise DataError(
                f"no unit {shown(missing[0])} in this geography; give GEOIDs as text, with their leading zeros"
                if missing
                else "a region without units; give at least one GEOID"
            )
        amounts = np.array([float(weight) for weight in weights.values()])
        if not np.isfinite(amounts).all():
            raise DataError("a weight is not a finite number; give every unit one")
        return nodes, amounts

    def _share(
        self, nodes: IntArray, amounts: FloatArray, cells: IntArray, share_of: Weights | str, alpha: float
    ) -> Region:
        """Fieller's set of the share A / B, cut to [0, 1].

        Errors of different cells are independent with the same law, so that A - rho B splits into the cells of both,
        of A alone and of B alone.
        """
        other, others = (nodes, amounts) if isinstance(share_of, str) else self._nodes(share_of)
        of_whole = self.cells(share_of, None) if isinstance(share_of, str) else cells
        union = np.union1d(nodes, other)
        both = np.zeros((2, len(union)))
        both[0, np.searchsorted(union, nodes)] = amounts
        both[1, np.searchsorted(union, other)] = others
        found = combination(union, both, self.pivots)
        part = float(amounts @ self.estimates(cells)[nodes])
        whole = float(others @ self.estimates(of_whole)[other])
        common = len(np.intersect1d(cells, of_whole))
        numbers = (common, len(cells) - common, len(of_whole) - common)
        return _fieller(found, self.pivots, part, whole, numbers, alpha)


def _sum(estimate: float, law: Law, weights: FloatArray, alpha: float, *, signed: bool) -> Region:
    if np.isinf(law.variance) or np.isnan(law.variance):
        return Region(estimate, np.inf, -np.inf if signed else 0.0, np.inf, "not determined by what was measured")
    sd = float(np.sqrt(max(law.variance, 0.0)))
    if sd <= _ROUNDING * max(1.0, abs(estimate)):
        exact = float(np.rint(estimate)) if _whole(weights) else estimate
        return Region(exact, 0.0, exact, exact, "exact")
    rule = interval(law.shape, alpha)
    if signed or (weights < 0).any():
        lower, upper = estimate - rule.symmetric * sd, estimate + rule.symmetric * sd
    else:
        lower = float(rule.lower(np.array(estimate / sd))) * sd
        upper = float(rule.upper(np.array(estimate / sd))) * sd
    if _whole(weights):
        slack = _ROUNDING * max(1.0, abs(estimate))
        inward = float(np.ceil(lower - slack)), float(np.floor(upper + slack))
        lower, upper = inward if inward[0] <= inward[1] else (float(np.rint(estimate)),) * 2
    return Region(estimate, sd, lower, upper)


def _whole(weights: FloatArray) -> bool:
    return bool((weights == np.rint(weights)).all())


def _fieller(
    found: Combination, known: Pivots, part: float, whole: float, numbers: tuple[int, int, int], alpha: float
) -> Region:
    spread = covariance(found, known)
    in_both, in_part, in_whole = numbers
    of_part, of_whole, of_both = (in_both + in_part) * spread[0, 0], (in_both + in_whole) * spread[1, 1], spread[0, 1]
    estimate = part / whole if whole > 0 else float("nan")
    if not np.isfinite(spread).all():
        return Region(estimate, np.inf, 0.0, 1.0, UNDETERMINED)
    sd_of_share = float("inf")
    if whole > 0:
        sd_of_share = max(of_part - 2.0 * estimate * in_both * of_both + estimate**2 * of_whole, 0.0) ** 0.5 / whole
    shares = np.linspace(0.0, 1.0, _SHARES)
    if np.isfinite(sd_of_share):
        near = estimate + sd_of_share * np.linspace(-_NEAR, _NEAR, _SHARES)
        shares = np.unique(np.concatenate([shares, near[(near >= 0.0) & (near <= 1.0)]]))
    sd = np.sqrt(np.maximum(of_part - 2.0 * shares * in_both * of_both + shares**2 * of_whole, 0.0))
    some = np.linspace(0.0, 1.0, _LAWS_OF_SHARES)
    reach = np.interp(shares, some, [_reach(found, known, share, numbers, alpha) for share in some])
    kept = np.abs(part - shares * whole) <= reach * sd + _ROUNDING
    if kept.all():
        return Region(estimate, sd_of_share, 0.0, 1.0, UNDETERMINED)
    if not kept.any():
        nearest = float(np.clip(estimate, 0.0, 1.0)) if whole > 0 else 0.0
        return Region(estimate, sd_of_share, nearest, nearest, "no share from 0 to 1 is within the margin")
    # The hull of what is kept, to the next point of the grid on either side.
    places = np.flatnonzero(kept)
    lower, upper = max(places[0] - 1, 0), min(places[-1] + 1, len(shares) - 1)
    ends = [_crossing(shares, np.abs(part - shares * whole) - reach * sd, k, m) for k, m in
            ((lower, places[0]), (upper, places[-1]))]  # fmt: skip
    return Region(estimate, sd_of_share, ends[0], ends[1])


def _crossing(shares: FloatArray, beyond: FloatArray, out: int, within: int) -> float:
    """Where what is ``beyond`` the margin passes 0 between two neighbouring shares."""
    if out == within:
        return float(shares[within])
    part = beyond[within] / (beyond[within] - beyond[out])
    return float(shares[within] + np.clip(part, 0.0, 1.0) * (shares[out] - shares[within]))


def _reach(found: Combination, known: Pivots, share: float, numbers: tuple[int, int, int], alpha: float) -> float:
    """The upper alpha / 2 quantile of A - share x B in its standard deviations."""
    mixes = np.array([[1.0, -share], [1.0, 0.0], [0.0, -share]])
    laws = [law_of(found, known, mix, number) for mix, number in zip(mixes, numbers, strict=True) if number]
    law = joined(laws)
    return float(tail(law.shape).quantile(np.array([alpha / 2.0]))[0]) if law.variance > 0 else 0.0
