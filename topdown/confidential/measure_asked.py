"""Measures only the answers that are asked for, of a histogram that has too many to measure them all.

Noise by address (`topdown.noise.addressed`) is a function of (level, query, node, answer): measuring an answer later,
or never, changes no other. Which answers are asked for must follow from what was measured before and from what is
public; then everything made of them could have been made of the measurements of all answers, and is protected as
these are (post-processing).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from topdown.confidential.bound_streams import code_of_counts
from topdown.confidential.counts import Counts
from topdown.confidential.measure import measurable, require_room
from topdown.errors import BudgetError, ConfigError, InternalError
from topdown.geography.tree import IntArray
from topdown.noise import DiscreteGaussian, DiscreteLaplace
from topdown.noise.addressed import AddressedNoise, require_addressable
from topdown.noise.key import NoiseKey
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import levels_taken
from topdown.wording import shown
from topdown.workload import Query


class AskedMeasurements:
    """Confidential ``counts``, of which answers are measured under ``plan`` where they are asked for.

    Raises `BudgetError` as `measurable` does, and where a level is exact or bounded, or an only child's share goes to
    its parent; `ConfigError` for a law that is not drawn by address, `CountsError` as `require_room` does.
    """

    def __init__(self, counts: Counts, plan: Plan, key: NoiseKey) -> None:
        self.plan = measurable(plan, counts.geography.levels, counts.schema)
        self._counts = counts
        require_room(counts, self.plan)
        if self.plan.bounds.any:
            raise BudgetError("answers that are measured where they are asked for have no bounds; leave bounds out")
        if levels_taken(self.plan, counts.geography).any():
            raise BudgetError(
                "answers that are measured where they are asked for keep the share of an only child; leave the rule "
                "for only children out"
            )
        for level in counts.geography.levels:
            for name in self.plan.queries(level):
                try:
                    self._law(level, name)
                except ConfigError as error:
                    raise ConfigError(f"level {shown(level)}, query {shown(name)}: {error}") from None
        self._streams = key.streams(code_of_counts(counts, self.plan, key))
        self._noise = lru_cache(maxsize=None)(self._noise_of)

    def queries(self, index: int) -> dict[Query, float]:
        """The queries that are measured at level ``index``, each with the variance of its noise."""
        level = self._counts.geography.levels[index]
        named = self.plan.queries(level)
        return {Query.parse(name, self._counts.schema): self._law(level, name).variance for name in named}

    def measured(self, index: int, query: Query, nodes: slice, answers: IntArray) -> IntArray:
        """The measured ``answers`` (numbers of answers, rising) to ``query`` at ``nodes`` (numbered from the first of
        level ``index``); (nodes x answers), int64.

        Every answer counts all of its records, also those in cells that nobody asks about, and every one gets noise,
        whether it has records or not.
        """
        level, first = self._counts.geography.levels[index], self._counts.geography.tree.level(index).start
        own = slice(first + nodes.start, first + nodes.stop)
        rows, cells, counts = self._counts.part(own)
        found = query.answers_of(cells)
        place = np.searchsorted(answers, found)
        asked = place < len(answers)
        asked[asked] = answers[place[asked]] == found[asked]
        exact = np.zeros((nodes.stop - nodes.start, len(answers)), np.int64)
        np.add.at(exact.reshape(-1), rows[asked] * len(answers) + place[asked], counts[asked])
        noise = self._noise(level, query.name).draw(np.arange(nodes.start, nodes.stop)[:, None], answers)
        if noise.size and np.abs(noise.astype(np.int64)).max() > self._law(level, query.name).reach:
            raise InternalError(
                f"level {shown(level)}, query {shown(query.name)}: a draw is further from 0 than its law reaches: an "
                "internal error of topdown; nothing was released, please report it"
            )
        return np.asarray(exact + noise, np.int64)

    def _law(self, level: str, query: str) -> DiscreteGaussian | DiscreteLaplace:
        law = self.plan.law(level, query)
        if not isinstance(law, (DiscreteGaussian, DiscreteLaplace)):
            raise ConfigError("it is exact or not measured, or its noise is not discrete; give it a share")
        require_addressable(law)
        return law

    def _noise_of(self, level: str, query: str) -> AddressedNoise:
        return AddressedNoise(self._streams.address_key(level, query), self._law(level, query))

    def __repr__(self) -> str:
        return "<AskedMeasurements(hidden)>"
