"""Which noise was drawn at every node for every query, as far as margins need it; refusals where it is not known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.measurements.measurements import Measurements
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Law
from topdown.privacy.mechanism import MECHANISMS
from topdown.privacy.single_child_units import groups, law_of, levels_taken
from topdown.projection.solver_inputs import answers_by_level
from topdown.uncertainty.laws.shared_laws import Alike
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema

KindArray = npt.NDArray[np.int32]

_SMALLEST_TERM = 1e-300
_WIDE_GAUSSIAN = 4.0
"""The variance, in squared steps of its lattice, from which a discrete Gaussian's fourth cumulant is below 1e-30."""
_ONE_CELL = Schema.of_cells(["cell"])


@dataclass(frozen=True, eq=False)
class KnownNoise:
    """The ``laws`` of noise. None is a law of what has no noise."""

    laws: tuple[Law | None, ...]

    @cached_property
    def cumulants(self) -> FloatArray:
        """Of every law the fourth; 0 where there is none."""
        return np.array([0.0 if law is None else fourth_cumulant(law) for law in self.laws])

    @cached_property
    def variances(self) -> FloatArray:
        """Of every law; 0 where there is none."""
        return np.array([0.0 if law is None else float(law.variance) for law in self.laws])


@dataclass(frozen=True, eq=False)
class AnswerNoise:
    """The ``laws`` of noise on a ``tree``; by level and query the ``variance`` of every node's answers (nodes of the
    level,) and the ``kind`` of its noise (nodes of the level,), the number of its law, -1 where there is none.

    Where the cells alone were measured ``schema`` is of one cell: all have noise of the same laws, each its own.
    """

    tree: Tree
    schema: Schema
    laws: tuple[Law, ...]
    variance: list[dict[Query, FloatArray]]
    kind: list[dict[Query, KindArray]]
    _below: dict[tuple[int, Query | None], IntArray] = field(default_factory=dict, repr=False)

    @cached_property
    def known(self) -> KnownNoise:
        """The laws, and None after them, which is so number -1."""
        return KnownNoise((*self.laws, None))

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """All that were measured."""
        return tuple(dict.fromkeys(query for level in self.variance for query in level))

    @cached_property
    def most(self) -> list[dict[Query, int]]:
        """By level and query the kind of noise that most nodes have; -1 where none has any."""
        return [{query: _most(kind) for query, kind in level.items()} for level in self.kind]

    def below(self, level: int, query: Query | None = None) -> IntArray:
        """How many nodes of ``level`` every node down to there (nodes,) is or has below it: of those whose noise on
        ``query`` is of the kind that most have, or of all."""
        if (level, query) not in self._below:
            nodes = self.tree.level(level)
            found = np.zeros(nodes.stop, np.int64)
            found[nodes] = 1 if query is None else (self.kind[level][query] == self.most[level][query])
            for above in range(level - 1, -1, -1):
                families = self.tree.families(above)
                found[families.parents] = families.total(found[families.children])
            self._below[level, query] = found
        return self._below[level, query]

    def alike(self) -> tuple[Alike, AnswerNoise]:
        """The tree with one leaf in place of several of a family whose noise is the same, and the noise on it."""
        alike = Alike.of(self.tree, *self.kind[-1].values(), *self.variance[-1].values())
        own = alike.nodes[alike.tree.leaves] - self.tree.leaves.start
        variance = [*self.variance[:-1], {query: one[own] for query, one in self.variance[-1].items()}]
        kind = [*self.kind[:-1], {query: one[own] for query, one in self.kind[-1].items()}]
        return alike, AnswerNoise(alike.tree, self.schema, self.laws, variance, kind)


def _most(kind: KindArray) -> int:
    there = kind[kind >= 0]
    return int(np.argmax(np.bincount(there))) if len(there) else -1


def answer_noise(measurements: Measurements) -> AnswerNoise:
    """The noise of ``measurements``.

    Raises `ConfigError` where no plan says what the law is and the mechanism does not, where it is bounded (an interval
    then has no pivot), where a law's fourth cumulant is not known, and where the variances are not the plan's.
    """
    _require_pivot(measurements)
    plan, geography = measurements.plan, measurements.geography
    schema, variance = _measured(measurements)
    if plan is None and not MECHANISMS[str(measurements.mechanism)].is_normal():
        raise ConfigError(
            f"the noise is {measurements.mechanism}, and its plan is not known: where several queries are measured, "
            "margins are then known for Gaussian noise"
        )
    drawn_on = measurements.drawn_on or geography
    taken = None if plan is None else levels_taken(plan, drawn_on)
    laws: dict[Law, int] = {}
    kind: list[dict[Query, KindArray]] = []
    for level, of_level in zip(geography.levels, variance, strict=True):
        kind.append({})
        for query, spread in of_level.items():
            noisy = (spread > 0) & np.isfinite(spread)
            found = np.full(len(spread), -1, np.int32)
            if plan is None or taken is None:
                for one in np.unique(spread[noisy]).tolist():
                    found[spread == one] = laws.setdefault(DiscreteGaussian.from_variance(one), len(laws))
            else:
                for number, part in groups(taken, geography.level_slice(level)):
                    law = law_of(plan, drawn_on.levels, level, query.name, number)
                    if not noisy[part].any():
                        continue
                    _require_variance(level, spread[part][noisy[part]], 0.0 if law is None else float(law.variance))
                    if law is not None:
                        found[part] = np.where(noisy[part], laws.setdefault(law, len(laws)), -1)
            kind[-1][query] = found
    for law in laws:
        fourth_cumulant(law)  # refuses those whose errors have no known law
    return AnswerNoise(geography.tree, schema, tuple(laws), variance, kind)


def _measured(measurements: Measurements) -> tuple[Schema, list[dict[Query, FloatArray]]]:
    """What was measured of whom, by level and query the variance of every node's answers."""
    if measurements.others:
        levels = answers_by_level(measurements)
        return measurements.schema, [{query: one.variance for query, one in level.items()} for level in levels]
    variance, geography = measurements.node_variance, measurements.geography
    if variance.ndim > 1:  # of every cell its own, which no plan has
        law = None if measurements.plan is None else measurements.plan.law(geography.levels[0])
        raise _other_variance(geography.levels[0], float(variance[0, 0]), 0.0 if law is None else float(law.variance))
    query = Query.parse(DETAILED, _ONE_CELL)
    return _ONE_CELL, [{query: variance[geography.level_slice(level)]} for level in geography.levels]


def no_margins(measurements: Measurements) -> str | None:
    """Why margins of ``measurements`` cannot be known; None where they can."""
    try:
        answer_noise(measurements)
    except ConfigError as error:
        return str(error)
    return None


def _require_variance(level: str, found: FloatArray, stated: float) -> None:
    # The least and the largest tell, without an array of differences for every node.
    if max(stated - found.min(), found.max() - stated) > 1e-6 * stated:
        wrong = np.abs(found - stated) > 1e-6 * stated
        raise _other_variance(level, float(found[wrong][0]), stated)


def _other_variance(level: str, found: float, stated: float) -> ConfigError:
    return ConfigError(
        f"level {shown(level)}: measurements of variance {found:.6g}, where the plan's noise has {stated:.6g}; give "
        "the plan under which they were drawn"
    )


def _require_pivot(measurements: Measurements) -> None:
    """Raises `ConfigError` unless estimate less truth is a known combination of noise whose law is known."""
    plan = measurements.plan
    if plan is None and measurements.mechanism is not None:
        return
    if plan is None:
        raise ConfigError(
            "these measurements come without a plan, and a variance alone does not say how far noise reaches; margins "
            "need, beside value and variance, the mechanism and its parameter (scale or sigma2) at every level: set "
            "Measurements.plan to the plan under which they were drawn"
        )
    bounded = [level for level in measurements.geography.levels if plan.bounds.at(level).kind != "none"]
    if bounded:
        raise ConfigError(
            f"level {shown(bounded[0])} has bounded noise, whose law depends on the true count, so that no margin of "
            'error can be known from measurements; measure with noise.bounds = "none", or read the bounds\' own study'
        )


@lru_cache(maxsize=256)
def fourth_cumulant(law: Law) -> float:
    """E X^4 - 3 (E X^2)^2 of a law of noise, in counts^4.

    Of the double-sided geometric law with a = exp(-1 / scale): 2a (1 + 4a + a^2) / (1 - a)^4, from the derivatives of
    log cf = 2 log(1 - a) - log(1 - 2a cos t + a^2); of the Laplace law 12 scale^4; of normal laws 0, and of narrow
    discrete Gaussians by summation. Raises `ConfigError` for another law.
    """
    match law:
        case DiscreteLaplace():
            rate = float(1 / (law.scale * (1 << law.grid_bits)))
            a = math.exp(-rate)
            moved = -math.expm1(-rate)
            return 2.0 * a * (1.0 + 4.0 * a + a * a) / moved**4 * 16.0**-law.grid_bits
        case DiscreteGaussian():
            return _gaussian_cumulant(law)
        case Laplace():
            return 12.0 * law.scale**4
        case Gaussian():
            return 0.0
    raise ConfigError(f"the fourth cumulant of {type(law).__name__} is not known; margins need it")


def _gaussian_cumulant(law: DiscreteGaussian) -> float:
    narrow = law.variance * 4.0**law.grid_bits
    if narrow > _WIDE_GAUSSIAN:
        return 0.0
    k = np.arange(1, 100) * 2.0**-law.grid_bits
    mass = law.pmf(k)
    second, fourth = (float(2.0 * (mass * k**power).sum()) for power in (2, 4))
    return max(fourth - 3.0 * second**2, 0.0) if second > _SMALLEST_TERM else 0.0
