"""Sums over any nodes where several queries were measured, many at once, with the laws of their errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray, runs
from topdown.measurements.measurements import Measurements
from topdown.projection.linear_answers import LinearAnswers, linear_answers
from topdown.uncertainty.answer_errors import AnswerErrors, Mix
from topdown.uncertainty.answer_noise import answer_noise
from topdown.uncertainty.error_law import Shape
from topdown.uncertainty.fieller import Ratio
from topdown.uncertainty.sum_errors import Weighted
from topdown.wording import shown
from topdown.workload import Query

_NUMBERS_AT_ONCE = 1 << 22


class Part(NamedTuple):
    """The sum of one answer to a query: ``sum``, its nodes and amounts."""

    sum: tuple[IntArray, FloatArray]
    query: Query
    answer: int


class Sums(NamedTuple):
    """Of sums the ``values`` of one answer by least squares, the ``variance`` of their errors, inf where they are not
    determined, both (sums,), and the ``shapes`` of the laws of these."""

    values: FloatArray
    variance: FloatArray
    shapes: list[Shape]

    def row(self, number: int) -> tuple[float, float, Shape]:
        """Those of one sum."""
        return float(self.values[number]), float(self.variance[number]), self.shapes[number]


@dataclass(frozen=True, eq=False)
class HistogramSums:
    """Sums of answers over nodes, of measurements of several queries.

    Raises `ConfigError` as `answer_noise` does.
    """

    measurements: Measurements
    _estimates: dict[Query, LinearAnswers] = field(default_factory=dict, repr=False)

    @cached_property
    def errors(self) -> AnswerErrors:
        """Their errors."""
        return AnswerErrors.of(answer_noise(self.measurements))

    def sums(
        self, sums: Sequence[tuple[IntArray, FloatArray]], query: Query, answers: Sequence[int]
    ) -> dict[int, Sums]:
        """Some ``answers`` to ``query`` of all ``sums`` (nodes, amounts)."""
        asked = Weighted.many(sums)
        values, variances = self._values(asked, query), self.errors.variances(asked, query)
        place = self.errors.components.classes(query).place
        alike = {int(place[answer]): answer for answer in answers}
        mixes = [Mix.of(query, answer) for answer in alike.values()]
        shapes = self.errors.shapes(asked, mixes, variances[:, list(alike.values())].T)
        of_class = dict(zip(alike, shapes, strict=True))
        return {k: Sums(values[:, k], variances[:, k], of_class[int(place[k])]) for k in dict.fromkeys(answers)}

    def share(self, part: Part, whole: Part) -> tuple[Ratio, Callable[[float], Shape]]:
        """``part`` beside ``whole``: two sums of answers, by least squares, with their variances and covariance; and,
        of a share, the shape of the law of the error of the part less that share of the whole.

        Raises `ConfigError` unless both are of one answer of one query, or the whole is of all cells.
        """
        same = (part.query, part.answer) == (whole.query, whole.answer)
        if not same and not (whole.query.n_answers == 1 and np.array_equal(whole.sum[0], part.sum[0])):
            raise ConfigError(
                f"query {shown(part.query.name)}: a share is of the same answer at other units, or of the total at the "
                f"same units; ask for the two sums"
            )
        (a, of_a), (b, of_b) = (self._sum(one) for one in (part, whole))
        if same:
            together, apart = (_combined(part.sum, whole.sum, sign) for sign in (1.0, -1.0))
            of_both = 0.25 * (self._sum(part._replace(sum=together))[1] - self._sum(part._replace(sum=apart))[1])
        else:
            of_both = self._with_total(part, whole)
        ratio = Ratio(a, b, of_a, of_b, of_both)

        def shape(share: float) -> Shape:
            mix, nodes = Mix.of(part.query, part.answer), part.sum
            if same:
                nodes = _combined(part.sum, whole.sum, -share)
            else:
                mix = Mix([*mix.answers, (whole.query, whole.answer)], np.array([1.0, -share]))
            variance = ratio.of_part - 2.0 * share * ratio.of_both + share**2 * ratio.of_whole
            return self.errors.shapes(Weighted.many([nodes]), [mix], np.array([[variance]]))[0][0]

        return ratio, shape

    def _sum(self, part: Part) -> tuple[float, float]:
        asked = Weighted.many([part.sum])
        values, variances = self._values(asked, part.query), self.errors.variances(asked, part.query)
        return float(values[0, part.answer]), float(variances[0, part.answer])

    def _with_total(self, part: Part, whole: Part) -> float:
        """The covariance of an answer with the sum of all cells over the same nodes, with the same amounts.

        The sum of all cells deviates in no attribute, so that no other component has any of it.
        """
        asked = Weighted.many([part.sum])
        largest = float(asked.largest[0])
        components = self.errors.components
        found = 0.0
        for component in (one for one in components if not one.deviating):
            of_part, of_whole = (components.answer_rows(one.query, component) for one in (part, whole))
            known = self.errors.covariances(asked._replace(amount=asked.amount / largest), component)
            for block, spread in zip(component.blocks, known, strict=True):
                a = of_part.rows[of_part.place[part.answer]] @ block.basis
                b = of_whole.rows[of_whole.place[whole.answer]] @ block.basis
                found += float(a @ spread.finite[0] @ b)
        return found * largest**2

    def _values(self, asked: Weighted, query: Query) -> FloatArray:
        if query not in self._estimates:
            self.errors  # noqa: B018 # refuses what has no margin
            self._estimates[query] = linear_answers(self.measurements, [query])
        found = np.zeros((asked.number, query.n_answers))
        order = np.argsort(asked.node, kind="stable")
        nodes = asked.node[order]
        step = max(1, _NUMBERS_AT_ONCE // query.n_answers)
        for here in runs(slice(0, self.measurements.geography.n_nodes), step):
            part = order[slice(*np.searchsorted(nodes, [here.start, here.stop]))]
            if len(part):
                values = self._estimates[query].answers_of(here, query).values[asked.node[part] - here.start]
                np.add.at(found, asked.of[part], asked.amount[part, None] * values)
        return found


def _combined(
    one: tuple[IntArray, FloatArray], other: tuple[IntArray, FloatArray], sign: float
) -> tuple[IntArray, FloatArray]:
    """One sum and ``sign`` times the other, each node once."""
    nodes, place = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    amounts = np.zeros(len(nodes))
    np.add.at(amounts, place.reshape(-1), np.concatenate([one[1], sign * other[1]]))
    return nodes, amounts
