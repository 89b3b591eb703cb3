"""Measures only the answers that are asked for, of a histogram that has too many to measure them all.

Noise by address (`topdown.noise.addressed`) is a function of (level, query, node, answer): measuring an answer later,
or never, changes no other. Which answers are asked for must follow from what was measured before and from what is
public; then everything made of them could have been made of the measurements of all answers, and is protected as
these are (post-processing).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from topdown.confidential.bound_streams import code_of_counts
from topdown.confidential.counts import Counts
from topdown.confidential.entries import Entries
from topdown.confidential.measure import measurable, require_room
from topdown.errors import BudgetError, ConfigError, InternalError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.noise import DiscreteGaussian, DiscreteLaplace
from topdown.noise.addressed import AddressedNoise, require_addressable
from topdown.noise.key import NoiseKey
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import levels_taken
from topdown.wording import shown
from topdown.workload import Query, Schema


def require_askable(plan: Plan, geography: Geography) -> None:
    """Refuse a ``plan`` (`measurable`) whose answers cannot be measured one by one. Raises `BudgetError` where a level
    is bounded, or an only child's share goes to its parent; `ConfigError` for an exact answer, and for a law that is
    not drawn by address.
    """
    if plan.bounds.any:
        raise BudgetError("answers that are measured where they are asked for have no bounds; leave bounds out")
    if levels_taken(plan, geography).any():
        raise BudgetError(
            "answers that are measured where they are asked for keep the share of an only child; leave the rule "
            "for only children out"
        )
    for level in geography.levels:
        for name in plan.queries(level):
            try:
                _law(plan, level, name)
            except ConfigError as error:
                raise ConfigError(f"level {shown(level)}, query {shown(name)}: {error}") from None


def _law(plan: Plan, level: str, query: str) -> DiscreteGaussian | DiscreteLaplace:
    law = plan.law(level, query)
    if law is None:
        raise ConfigError(
            "it is an invariant, and answers that are measured where they are asked for all have noise; leave it out "
            "of the invariants and give it a share"
        )
    return require_addressable(law)


def split_counts(counts: Counts, schema: Schema, split: Callable[[IntArray, IntArray], IntArray]) -> Counts:
    """``counts`` by the cells of another ``schema``: ``split`` has that of every leaf and cell, both (entries,)."""
    geography = counts.geography
    leaves, cells, numbers = counts.part(geography.tree.leaves)
    keys = leaves * schema.n_cells + split(leaves, cells)
    return Counts(geography, schema.cells(), Entries.of_leaves(geography.tree, schema.n_cells, keys, numbers), schema)


class AskedMeasurements:
    """Confidential ``counts``, of which answers are measured under ``plan`` where they are asked for.

    Raises as `measurable`, `require_askable` and `require_room` do.
    """

    def __init__(self, counts: Counts, plan: Plan, key: NoiseKey) -> None:
        levels = counts.geography.levels
        self.plan = measurable(plan, levels, counts.schema)
        self._counts = counts
        require_room(counts, self.plan)
        require_askable(self.plan, counts.geography)
        streams = key.streams(code_of_counts(counts, self.plan, key))
        self._laws = {
            (level, name): _law(self.plan, level, name) for level in levels for name in self.plan.queries(level)
        }
        self._noise = {name: AddressedNoise(streams.address_key(*name), law) for name, law in self._laws.items()}

    def queries(self, index: int) -> dict[Query, float]:
        """The queries that are measured at level ``index``, each with the variance of its noise."""
        level = self._counts.geography.levels[index]
        named = self.plan.queries(level)
        return {Query.parse(name, self._counts.schema): self._laws[level, name].variance for name in named}

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
        noise = self._noise[level, query.name].draw(np.arange(nodes.start, nodes.stop)[:, None], answers)
        if noise.size and np.abs(noise.astype(np.int64)).max() > self._laws[level, query.name].reach:
            raise InternalError(
                f"level {shown(level)}, query {shown(query.name)}: a draw is further from 0 than its law reaches: an "
                "internal error of topdown; nothing was released, please report it"
            )
        return np.asarray(exact + noise, np.int64)

    def __repr__(self) -> str:
        return "<AskedMeasurements(hidden)>"
