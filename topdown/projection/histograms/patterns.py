"""Information matrices of histograms, stored as one number per pattern of agreement between two cells.

An information matrix (cells x cells) that comes from queries has few different entries: that of the cells k and l
depends, attribute by attribute, only on the groups of the measured recodes in which their categories are, and on
whether the categories are the same. The redistricting file has 96 such patterns, and 2,016 x 2,016 pairs of cells.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray
from topdown.machine.memory import available_memory, gibibytes
from topdown.projection.histograms.components import Block, Component, Components
from topdown.workload.query import Query, design
from topdown.workload.schema import DETAILED, Recode, Schema

_MOST_PATTERNS = 1 << 20
_MANY_CELLS, _PAIR = 1 << 14, 4
"""With more cells than this the memory is checked before all pairs are formed; and the bytes of a pair."""


@dataclass(frozen=True, eq=False)
class Patterns:
    """The patterns of pairs of cells of ``schema`` for ``queries``; structural zeros add no patterns.

    Raises `ConfigError` for a schema that no release can be made of, and for recodes that make too many patterns.
    """

    schema: Schema
    queries: tuple[Query, ...]

    @cached_property
    def components(self) -> Components:
        """The whole space, cells that are impossible included."""
        return Components(replace(self.schema, zeros=()), self.queries)

    def __post_init__(self) -> None:
        self.components.schema.require_listable()
        if self.count > _MOST_PATTERNS:
            raise ConfigError(
                f"the measured recodes distinguish {self.count:,} kinds of pairs of cells, and at most "
                f"{_MOST_PATTERNS:,} can be handled; measure recodes of fewer groups, or fewer of them"
            )

    @cached_property
    def _members(self) -> list[IntArray]:
        """For every attribute the class of its categories: those in the same groups of all measured recodes."""
        found = []
        for place, size in enumerate(self.schema.shape):
            groups = [np.zeros(size, np.int64)]
            for query in self.queries:
                codes = query.group_codes()[place]
                if codes is not None and isinstance(list(query.parts())[place], Recode):
                    groups.append(codes)
            found.append(np.unique(np.stack(groups), axis=1, return_inverse=True)[1].reshape(-1))
        return found

    @cached_property
    def _sizes(self) -> list[int]:
        """For every attribute the number of its patterns: two classes in their order, or one category of a class."""
        return [(int(m.max()) + 1) * (int(m.max()) + 2) for m in self._members]

    @property
    def count(self) -> int:
        """Number of patterns; some may have no pair of cells."""
        return math.prod(self._sizes)

    def of(self, cells: IntArray) -> npt.NDArray[np.int32]:
        """The pattern (k, k) of every pair of ``cells``. Raises `ConfigError` where the pairs do not fit in memory."""
        free = available_memory() if len(cells) >= _MANY_CELLS else None
        if free is not None and _PAIR * len(cells) ** 2 > free:
            raise ConfigError(
                f"a table of {len(cells):,} cells x cells takes {gibibytes(_PAIR * len(cells) ** 2)} of memory, and "
                f"{gibibytes(free)} are free; leave an attribute out, or group its categories"
            )
        from topdown.projection.histograms.precision_kernel import patterns_of

        places, groups, classes = self._of_cells
        return np.asarray(patterns_of(places.take(cells, axis=1), groups.take(cells, axis=1), classes))

    @cached_property
    def _of_cells(self) -> tuple[IntArray, IntArray, IntArray]:
        """The categories of every cell and their classes (attributes x cells), and how many classes there are."""
        places = np.stack(np.unravel_index(np.arange(self.schema.n_cells), self.schema.shape))
        groups = np.stack([members[place] for members, place in zip(self._members, places, strict=True)])
        return places, groups, np.array([members.max() + 1 for members in self._members])

    @cached_property
    def _examples(self) -> list[tuple[IntArray, IntArray]]:
        """For every attribute two categories of every pattern; where there are none, -1."""
        found = []
        for members in self._members:
            classes = int(members.max()) + 1
            first = np.full(classes * (classes + 1), -1)
            second = np.full(classes * (classes + 1), -1)
            for a, b in itertools.product(range(classes), repeat=2):
                one, other = np.flatnonzero(members == a), np.flatnonzero(members == b)
                if a != b or len(one) > 1:
                    first[a * classes + b], second[a * classes + b] = one[0], other[-1]
            for a in range(classes):
                first[classes * classes + a] = second[classes * classes + a] = np.flatnonzero(members == a)[0]
            found.append((first, second))
        return found

    def of_query(self, query: Query) -> FloatArray:
        """The entries (patterns,) of A'A: 1 where both cells count in the same answer."""
        found: FloatArray = np.ones(1)
        for (first, second), matrix in zip(self._examples, design(query), strict=True):
            agree = (matrix[:, first] * matrix[:, second]).sum(axis=0)
            found = np.asarray(np.kron(found, np.where(first < 0, 0.0, agree)))
        return found

    @cached_property
    def same(self) -> FloatArray:
        """The entries (patterns,) of the identity."""
        return self.of_query(Query.parse(DETAILED, self.schema))

    def of_block(self, component: Component, block: Block) -> FloatArray:
        """The entries (m, m, patterns) to which every entry of a block's precision (m x m) contributes."""
        outer = np.ones((1, 1, 1))
        lengths = np.ones(1)
        for place, ((first, second), one) in enumerate(zip(self._examples, self.components.splits, strict=True)):
            inside = np.where(first < 0, 0.0, 1.0)
            if place in component.deviating:
                apart = (first == second).astype(np.float64) - (one.within[first] * one.within[second]).sum(axis=1)
                lengths = np.kron(lengths, apart * inside)
                outer = np.repeat(outer, len(first), axis=2)
            else:
                pairs = np.einsum("pi,pj,p->ijp", one.within[first], one.within[second], inside)
                outer = np.einsum("abp,ijq->aibjpq", outer, pairs).reshape(
                    outer.shape[0] * pairs.shape[0], outer.shape[1] * pairs.shape[1], -1
                )
                lengths = np.repeat(lengths, len(first))
        return np.asarray(np.einsum("ai,abp,bj->ijp", block.basis, outer * lengths, block.basis))
