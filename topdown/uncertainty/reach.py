"""How many standard deviations an answer's error stays within: one number for tables that have one margin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.privacy.plan import Plan
from topdown.uncertainty.laws.answer_laws import AnswerLaws
from topdown.uncertainty.laws.error_law import NORMAL, Shape, quantile
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.workload import Query

_NORMAL = "by the normal law"
_GAUSSIAN = f"{_NORMAL}; by the law of its error where that falls in steps, as sums of few draws of narrow noise do"
_UNKNOWN = "not known, and missing, as the law of the noise is not known"
_OWN = "by the law of its error, which has a number of its own for every unit and column"


@dataclass(frozen=True, eq=False)
class Reach:
    """``alpha``: how often errors may go beyond. ``laws``: theirs; None where they are taken to be normal, or are not
    known (``is_known``).

    Under noise within bounds the normal law is an assumption and no known law: that noise's depends on the true count,
    and no coverage is promised.
    """

    alpha: float
    laws: AnswerLaws | None = None
    is_gaussian: bool = False
    is_known: bool = True

    @classmethod
    def of(cls, measurements: Measurements, confidence: float, laws: AnswerLaws | None = None) -> Reach:
        """Of least squares of ``measurements``, with the ``laws`` of its errors where they are known beforehand; normal
        where noise is within bounds, or comes without a plan."""
        alpha, plan = 1.0 - confidence, measurements.plan
        if laws is None and no_margins(measurements) is not None:
            return cls(alpha, is_known=plan is None or plan.bounds.any or _is_normal(plan))
        return cls(alpha, laws or AnswerLaws.of(measurements), is_gaussian=plan is None or not plan.is_pure)

    def multiples(self, nodes: slice, columns: list[tuple[Query, int]]) -> FloatArray:
        """Standard deviations (nodes x columns) of the errors at ``nodes`` of these answers to queries."""
        found = np.full((nodes.stop - nodes.start, len(columns)), self._quantile(NORMAL))
        if self.laws is not None:
            known = np.broadcast_to(self.laws.group[nodes, None] >= 0, found.shape)
            for shape, places in self.laws.of_columns(columns).places(nodes, known):
                found.reshape(-1)[places] = self._quantile(shape)
        return found

    @property
    def in_words(self) -> str:
        """By which law."""
        if self.laws is not None and not self.is_gaussian:
            return _OWN
        if not self.is_known:
            return _UNKNOWN
        return f"{self._quantile(NORMAL):.4g} sd, {_NORMAL if self.laws is None else _GAUSSIAN}"

    def _quantile(self, shape: Shape) -> float:
        return quantile(shape, self.alpha / 2.0) if self.is_known else float("nan")


def _is_normal(plan: Plan) -> bool:
    """Whether the noise of a plan is Gaussian; not where its law is not known."""
    try:
        return bool(plan.noise.is_normal())
    except ConfigError:
        return False
