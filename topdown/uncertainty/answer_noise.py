"""Which noise was drawn at every node for every query, where several queries were measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.measurements.measurements import Measurements
from topdown.noise import DiscreteGaussian, Law
from topdown.privacy.mechanism import MECHANISMS
from topdown.privacy.only_child import groups, law_of, levels_taken
from topdown.projection.solver_inputs import answers_by_level
from topdown.uncertainty.alike import Alike
from topdown.uncertainty.known_noise import KindArray, KnownNoise, fourth_cumulant, require_pivot, require_variances
from topdown.workload import Query, Schema


@dataclass(frozen=True, eq=False)
class AnswerNoise:
    """The ``laws`` of noise on a ``tree``; by level and query the ``variance`` of every node's answers (nodes of the
    level,) and the ``kind`` of its noise (nodes of the level,), the number of its law, -1 where there is none.
    """

    tree: Tree
    schema: Schema
    laws: tuple[Law, ...]
    variance: list[dict[Query, FloatArray]]
    kind: list[dict[Query, KindArray]]
    _below: dict[tuple[int, Query | None], IntArray] = field(default_factory=dict, repr=False)

    @cached_property
    def known(self) -> KnownNoise:
        """The laws with their cumulants."""
        return KnownNoise(self.laws, np.array([fourth_cumulant(law) for law in self.laws]))

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
        kinds = np.zeros(self.tree.n_nodes, np.int64)
        leaves = np.stack([np.zeros(self.tree.n_leaves, np.int32), *self.kind[-1].values()])
        kinds[self.tree.leaves] = np.unique(leaves, axis=1, return_inverse=True)[1].reshape(-1)
        alike = Alike.of(self.tree, np.zeros(self.tree.n_nodes), kinds)
        own = alike.nodes[alike.tree.leaves] - self.tree.leaves.start
        variance = [*self.variance[:-1], {query: one[own] for query, one in self.variance[-1].items()}]
        kind = [*self.kind[:-1], {query: one[own] for query, one in self.kind[-1].items()}]
        return alike, AnswerNoise(alike.tree, self.schema, self.laws, variance, kind)


def _most(kind: KindArray) -> int:
    there = kind[kind >= 0]
    return int(np.argmax(np.bincount(there))) if len(there) else -1


def answer_noise(measurements: Measurements) -> AnswerNoise:
    """The noise of ``measurements`` of several queries.

    Raises `ConfigError` where no plan says what the law is and the mechanism does not, where it is bounded (an interval
    then has no pivot), where a law's fourth cumulant is not known, and where the variances are not the plan's.
    """
    require_pivot(measurements)
    plan, geography = measurements.plan, measurements.geography
    variance = [{query: one.variance for query, one in level.items()} for level in answers_by_level(measurements)]
    laws: dict[Law, int] = {}
    kind: list[dict[Query, KindArray]] = []
    taken = None if plan is None else levels_taken(plan, geography)
    if plan is None and not MECHANISMS[str(measurements.mechanism)].is_normal():
        raise ConfigError(
            f"the noise is {measurements.mechanism}, and its plan is not known: where several queries are measured, "
            "margins are then known for Gaussian noise"
        )
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
                    law = law_of(plan, geography.levels, level, query.name, number)
                    if law is None or not noisy[part].any():
                        continue
                    require_variances(level, spread[part], np.full(len(spread[part]), float(law.variance)))
                    found[part] = np.where(noisy[part], laws.setdefault(law, len(laws)), -1)
            kind[-1][query] = found
    for law in laws:
        fourth_cumulant(law)  # refuses those whose errors have no known law
    return AnswerNoise(geography.tree, measurements.schema, tuple(laws), variance, kind)
