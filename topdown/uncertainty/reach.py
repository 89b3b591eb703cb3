"""How many standard deviations an answer's error stays within: one number for tables that have one margin."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.uncertainty.answer_intervals import copies_of, sum_of
from topdown.uncertainty.error_law import NORMAL, AnyShape, tail
from topdown.uncertainty.groups import Groups
from topdown.uncertainty.histogram_margins import bounding_shape
from topdown.uncertainty.known_noise import known_noise, no_margins
from topdown.uncertainty.laws import laws_of_nodes
from topdown.workload import Query

_NORMAL = "by the normal law, which is exact under Gaussian noise"
_BETWEEN = "the largest by the normal law, the Laplace law and the noise's own, between which its law lies"
_OWN = "by the law of its error, which has a number of its own for every unit and column"


@dataclass(frozen=True, eq=False)
class Reach:
    """``alpha``: how often errors may go beyond. All have one ``shape``, or every node its own in ``laws``."""

    alpha: float
    shape: AnyShape
    laws: Groups | None = None

    @classmethod
    def of(cls, measurements: Measurements, confidence: float) -> Reach:
        """Of least squares of ``measurements``; normal where their law is not known."""
        alpha = 1.0 - confidence
        if measurements.plan is None or measurements.plan.bounds.any:
            return cls(alpha, NORMAL)
        if measurements.others:
            return cls(alpha, bounding_shape(measurements))
        if no_margins(measurements) is not None or not measurements.plan.is_pure:
            return cls(alpha, NORMAL)
        return cls(alpha, NORMAL, laws_of_nodes(measurements, known_noise(measurements))[1])

    def multiples(self, nodes: slice, columns: list[tuple[Query, int]]) -> FloatArray:
        """Standard deviations (nodes x columns) of the errors at ``nodes`` of these answers to queries."""
        size = (nodes.stop - nodes.start, len(columns))
        if self.laws is None:
            return np.full(size, self._quantile(self.shape))
        cells = copies_of(columns)
        group = self.laws.group[nodes]
        found = np.zeros(size)
        for number in np.unique(group[group >= 0]).tolist():
            for many in np.unique(cells).tolist():
                here = np.ix_(group == number, cells == many)
                found[here] = self._quantile(sum_of(self.laws.shapes[number], many))
        return found

    @property
    def in_words(self) -> str:
        """By which law."""
        if self.laws is not None:
            return _OWN
        return f"{self._quantile(self.shape):.4g} sd, {_NORMAL if self.shape == NORMAL else _BETWEEN}"

    def _quantile(self, shape: AnyShape) -> float:
        if shape == NORMAL:
            return NormalDist().inv_cdf(1.0 - self.alpha / 2.0)
        return float(tail(shape).quantile(np.array([self.alpha / 2.0]))[0])
