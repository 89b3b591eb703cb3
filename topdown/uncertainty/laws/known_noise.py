"""The noise that was drawn at every node for every query, as margins need it; refusals where its law is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.alike import Alike
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.measurements.measurements import Answers, Measurements
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, KeyedSource, Laplace, Law
from topdown.privacy.mechanism import MECHANISMS
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import groups, law_of, levels_taken
from topdown.projection.published_estimates import ONE_CELL
from topdown.projection.solver_inputs import answers_by_level
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema

KindArray = npt.NDArray[np.int32]

_SMALLEST_TERM = 1e-300
_WIDE_GAUSSIAN = 4.0
"""The variance, in squared steps of its lattice, from which a discrete Gaussian's fourth cumulant is below 1e-30."""


@dataclass(frozen=True, eq=False)
class KnownNoise:
    """The ``laws`` of noise; None is the law of exact values."""

    laws: tuple[Law | None, ...]

    @cached_property
    def cumulants(self) -> FloatArray:
        """The fourth cumulant of every law; 0 for exact values."""
        return np.array([0.0 if law is None else fourth_cumulant(law) for law in self.laws])

    @cached_property
    def variances(self) -> FloatArray:
        """The variance of every law; 0 for exact values."""
        return np.array([0.0 if law is None else float(law.variance) for law in self.laws])


@dataclass(frozen=True, eq=False)
class AnswerNoise:
    """The ``laws`` of noise on a ``tree``; by level and query the ``variance`` of every node's answers (nodes of the
    level,) and the ``kind`` of its noise (nodes of the level,), the number of its law, -1 where there is none.

    Where the cells alone were measured ``schema`` has one cell: the noise of all cells is independent and has the same
    laws.
    """

    tree: Tree
    schema: Schema
    laws: tuple[Law, ...]
    variance: list[dict[Query, FloatArray]]
    kind: list[dict[Query, KindArray]]
    _below: dict[tuple[int, Query | None], IntArray] = field(default_factory=dict, repr=False)

    @cached_property
    def known(self) -> KnownNoise:
        """The laws followed by None, so that number -1 is no noise."""
        return KnownNoise((*self.laws, None))

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """All queries that were measured."""
        return tuple(dict.fromkeys(query for level in self.variance for query in level))

    @cached_property
    def most(self) -> list[dict[Query, int]]:
        """By level and query the kind of noise of most nodes; -1 where no node has noise."""
        return [{query: _most(kind) for query, kind in level.items()} for level in self.kind]

    def below(self, level: int, query: Query | None = None) -> IntArray:
        """For every node down to ``level`` (nodes,) how many nodes of ``level`` it has below it, itself included: those
        whose noise on ``query`` is of the most frequent kind, or all.
        """
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
        """The tree in which one leaf replaces the leaves of a family with the same noise, and the noise on it."""
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

    Raises `ConfigError` where neither a plan nor the mechanism determines the law, where noise is bounded (an interval
    then has no pivot), where a law's fourth cumulant is not known, and where the variances are not those of the plan.
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
        fourth_cumulant(law)  # refuses laws whose sums have no known law
    return AnswerNoise(geography.tree, schema, tuple(laws), variance, kind)


def _measured(measurements: Measurements) -> tuple[Schema, list[dict[Query, FloatArray]]]:
    """The schema of the measurements, and by level and query the variance of every node's answers."""
    if measurements.others:
        levels = answers_by_level(measurements)
        return measurements.schema, [{query: one.variance for query, one in level.items()} for level in levels]
    variance, geography = measurements.node_variance, measurements.geography
    if variance.ndim > 1:  # a variance for every cell, which no plan has
        law = None if measurements.plan is None else measurements.plan.law(geography.levels[0])
        raise _other_variance(geography.levels[0], float(variance[0, 0]), 0.0 if law is None else float(law.variance))
    query = Query.parse(DETAILED, ONE_CELL)
    return ONE_CELL, [{query: variance[geography.level_slice(level)]} for level in geography.levels]


def require_replicable(plan: Plan, levels: Sequence[str]) -> None:
    """Refuse replicates, before anything is drawn, where `answer_noise` would refuse the noise of ``plan``. Raises
    `ConfigError` naming the setting.
    """
    for level in levels:
        if plan.bounds.at(level).kind != "none":
            raise ConfigError(
                f"output.replicates: level {shown(level)} has bounded noise, whose law depends on the true count, so "
                'that no tables can be drawn around the estimates; leave replicates out, or set noise.bounds = "none"'
            )
        for query in plan.queries(level):
            law = plan.law(level, query)
            try:
                fourth_cumulant(law) if law is not None else None
            except ConfigError as error:
                raise ConfigError(f"output.replicates: {error}; leave replicates out") from None


def redrawn(measurements: Measurements, noise: AnswerNoise, source: KeyedSource) -> Measurements:
    """``measurements`` with noise of the same laws added once more; exact answers stay what they are.

    Noise is symmetric, so that the differences between least squares of these and of ``measurements`` have the same law
    as the errors of least squares of ``measurements``, for every sum of answers. ``noise``: that of ``measurements``.
    Every level, query and law has a stream of its own under the key of ``source``.
    """
    others = dict(measurements.others)
    cells_measured = bool(np.isfinite(measurements.node_variance).any())
    values = np.array(measurements.values) if cells_measured else measurements.values  # else a view of a single 0
    for level, kinds in zip(measurements.geography.levels, noise.kind, strict=True):
        nodes = measurements.geography.level_slice(level)
        for query, kind in kinds.items():
            is_cells = (level, query.name) not in others  # else they are answers as all others are, read from files
            found = np.array(measurements.values[nodes] if is_cells else others[level, query.name].values)
            for number in np.unique(kind[kind >= 0]).tolist():
                rows = np.flatnonzero(kind == number)
                drawn = noise.laws[number].sample(
                    (len(rows), found.shape[1]), source.spawn(level, query.name, str(number))
                )
                found = found.astype(np.result_type(found, drawn), copy=False)
                found[rows] += drawn
            if is_cells:
                values = values.astype(np.result_type(values, found), copy=False)
                values[nodes] = found
            else:
                others[level, query.name] = Answers(found, others[level, query.name].variance)
    return replace(measurements, values=values, others=others)


def no_margins(measurements: Measurements) -> str | None:
    """Why margins of ``measurements`` cannot be known; None where they can."""
    try:
        answer_noise(measurements)
    except ConfigError as error:
        return str(error)
    return None


def _require_variance(level: str, found: FloatArray, stated: float) -> None:
    # The least and the largest suffice, and need no array of differences.
    if max(stated - found.min(), found.max() - stated) > 1e-6 * stated:
        wrong = np.abs(found - stated) > 1e-6 * stated
        raise _other_variance(level, float(found[wrong][0]), stated)


def _other_variance(level: str, found: float, stated: float) -> ConfigError:
    return ConfigError(
        f"level {shown(level)}: measurements of variance {found:.6g}, where the plan's noise has {stated:.6g}; give "
        "the plan under which they were drawn"
    )


def _require_pivot(measurements: Measurements) -> None:
    """Raises `ConfigError` unless the estimate less the true value is a known combination of noise of known laws."""
    plan = measurements.plan
    if measurements.none_kept:
        raise ConfigError(str(measurements.reason_against(measurements.published.levels)))
    if plan is None and measurements.mechanism is not None:
        return
    if plan is None:
        raise ConfigError(
            "these measurements come without a plan, and a variance alone does not determine the law of the noise; "
            "margins need, beside value and variance, the mechanism and its parameter (scale or sigma2) at every "
            "level: set Measurements.plan to the plan under which they were drawn"
        )
    bounded = [level for level in measurements.geography.levels if plan.bounds.at(level).kind != "none"]
    if bounded:
        raise ConfigError(
            f"level {shown(bounded[0])} has bounded noise, whose law depends on the true count, so that no margin of "
            'error can be computed from measurements; measure with noise.bounds = "none", or study the bounds'
        )


@lru_cache(maxsize=256)
def fourth_cumulant(law: Law) -> float:
    """E X^4 - 3 (E X^2)^2 of a law of noise, in counts^4.

    For the double-sided geometric law with a = exp(-1 / scale): 2a (1 + 4a + a^2) / (1 - a)^4, from the derivatives of
    log cf = 2 log(1 - a) - log(1 - 2a cos t + a^2); for the Laplace law 12 scale^4; for normal laws 0; for narrow
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
