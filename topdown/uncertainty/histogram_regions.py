"""Sums over any nodes where several queries were measured with Gaussian noise: their exact variance, by one solve.

Of a functional z'x of the leaves' answers, least squares answers to the measurements y = V z with the covariances of
all estimates with it: x = C A' V^-1 y, C the covariance of the leaves' histograms, and so C A' z.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray
from topdown.measurements.measurements import Answers, Measurements
from topdown.projection.components import Components
from topdown.projection.estimate import Estimate
from topdown.projection.histograms import solve
from topdown.projection.project import project
from topdown.projection.several import answers_by_level
from topdown.uncertainty.combination import Law
from topdown.uncertainty.histogram_margins import NORMAL, require_normal
from topdown.wording import shown
from topdown.workload import Query


@dataclass(frozen=True, eq=False)
class HistogramSums:
    """Sums of one answer over nodes, of measurements of several queries; their errors are normal.

    Raises `ConfigError` as `histogram_margins.require_normal` does.
    """

    measurements: Measurements

    @cached_property
    def _estimate(self) -> Estimate:
        require_normal(self.measurements)
        return project(self.measurements, "gls")

    def sum_of(self, nodes: IntArray, amounts: FloatArray, query: str, answer: int) -> tuple[float, Law]:
        """The sum of the answers with this number to ``query`` at ``nodes``, each times its amount: by least squares,
        and the law of its error.

        One solve over the whole tree. Raises `ConfigError` where no query measured at the lowest level says what a
        unit's answer is.
        """
        asked = Query.parse(query, self.measurements.schema)
        estimate = self._estimate
        # Not certified as an estimate is: where an exact total is 0, rounding is all that there is of it.
        response = self._response(nodes, amounts, asked, answer)
        value = float(amounts @ asked.answers(estimate.values)[nodes, answer])
        variance = float(amounts @ asked.answers(response)[nodes, answer])
        return value, Law(max(variance, 0.0), NORMAL)

    def _response(self, nodes: IntArray, amounts: FloatArray, asked: Query, answer: int) -> FloatArray:
        """The covariances (nodes x cells) of all estimates with the sum."""
        geography, tree = self.measurements.geography, self.measurements.geography.tree
        weight = np.zeros(tree.n_nodes)
        weight[nodes] = amounts
        for families in tree.families_down():  # A unit's answer is the sum of its leaves'.
            weight[families.children] += families.spread(weight[families.parents])
        on_leaves = weight[tree.leaves]
        found: list[dict[Query, Answers]] = []
        spread_out = False
        for index, level in enumerate(answers_by_level(self.measurements)):
            found.append({})
            for query, measured in level.items():
                variance = np.asarray(measured.variance, dtype=np.float64)
                values = np.zeros((len(variance), query.n_answers))
                is_lowest = index == tree.n_levels - 1
                if is_lowest and not spread_out and asked.is_part_of(query) and _known(variance, on_leaves):
                    cells = np.arange(query.schema.n_cells)
                    parts = np.unique(query.answers_of(cells)[asked.answers_of(cells) == answer])
                    values[:, parts] = (np.where(on_leaves != 0, variance, 0.0) * on_leaves)[:, None]
                    spread_out = True
                found[index][query] = Answers(values, variance)
        if not spread_out:
            raise ConfigError(
                f"query {shown(asked.name)} is no sum of answers that were measured at every unit of level "
                f"{shown(geography.levels[-1])} within the region, so that its margin is not known; ask for "
                f"one that is, or for one unit with td.margins"
            )
        components = Components(self.measurements.schema, tuple(dict.fromkeys(q for level in found for q in level)))
        return solve(tree, components, found, upward=True)[0]


def _known(variance: FloatArray, weight: FloatArray) -> bool:
    """Whether every leaf that takes part was measured."""
    return bool(np.isfinite(variance[weight != 0]).all())
