"""Public knowledge of where an answer can have records, such as the kinds of group quarters that a block has, and what
follows from it for the units above.

A block has records only in its open answers. Of a unit above them this says more than which answers are open: where
its blocks have known totals over several answers (`Tied`: residents of all group quarters of a class), blocks with the
same open answers lay claim to these answers together, and no others may take their place: the sums over a set A of
answers lie between the totals of the blocks with all of their open answers in A and of those with some in it (Hall
1935). That is a condition for each of the sets.

Here it is made one of sums that are known. The answers that share a total are a component; the blocks with the same
open answers of a component are a class; and a cell of the component is split into one for every class. Then each total
is known by class, a cell is closed to every child without blocks of its class, and a family's program is one with known
sums and zeros, whose whole solutions exist. The split cells are the cells of a schema with one more attribute, by which
`DETAILED` is measured; a record has one class, that of its block, so that its protection is that of any partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from topdown.errors import ConfigError, InternalError
from topdown.geography.tree import IntArray, Tree
from topdown.projection.histograms.support_descent import Tied
from topdown.projection.invariants import Contradiction
from topdown.projection.limits import OpenAnswers
from topdown.wording import shown
from topdown.workload import Attribute, Query, Schema

OPEN = "open answers"
"""The attribute of `SplitCells.schema`: the number of a cell's class in its component."""

_CELLS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class SplitCells:
    """The cells of a schema, split by the classes of leaves.

    Args:
        given: the schema.
        query: of which some answers are closed.
        component: (answers,), the component of each of them.
        classes: (leaves x components), the number of a leaf's class, -1 where none of the component is open.
        members: by component (classes x answers), which answers are open in a class.
    """

    given: Schema
    query: Query
    component: IntArray
    classes: IntArray
    members: list[npt.NDArray[np.bool_]]

    @classmethod
    def of(
        cls, schema: Schema, cells: IntArray, given: OpenAnswers, tree: Tree, total: Query | None = None
    ) -> SplitCells:
        """By the leaves of ``tree``. ``cells``: those in which there can be records; ``total``: the query whose answers
        are known of every node, None where none is.

        Raises `ConfigError` for a schema that has an attribute or recode called `OPEN`.
        """
        if OPEN in (*schema.names, *(recode.name for recode in schema.recodes)):
            raise ConfigError(f"{shown(OPEN)} has a meaning of its own here; give the attribute another name")
        n = given.query.n_answers
        component = np.arange(n)
        if total is not None:
            ends = np.unique(np.stack([total.answers_of(cells) + n, given.query.answers_of(cells)]), axis=1)
            size = n + total.n_answers
            _, labels = connected_components(coo_array((np.ones(ends.shape[1]), tuple(ends)), shape=(size, size)))
            component = np.unique(labels[:n], return_inverse=True)[1].reshape(-1)
        count, there = int(component.max()) + 1, given.there[tree.leaves]
        classes, members = np.full((len(there), count), -1), []
        for number in range(count):
            own = there & (component == number)
            some = own.any(axis=1)
            found, place = np.unique(own[some], axis=0, return_inverse=True)
            classes[some, number] = place.reshape(-1)
            members.append(found)
        return cls(schema, given.query, component, classes, members)

    @cached_property
    def schema(self) -> Schema:
        """The schema of the split cells: that which was given, and the class in the cell's component."""
        classes = Attribute(OPEN, tuple(str(k) for k in range(self._most)))
        return Schema((*self.given.attributes, classes), self.given.recodes, self.given.zeros)

    @property
    def _most(self) -> int:
        """The most classes of a component."""
        return max(1, *(len(found) for found in self.members))

    def split(self, leaves: IntArray, cells: IntArray) -> IntArray:
        """The split cells of ``cells`` at ``leaves``, both (entries,). Raises `InternalError` where one is closed."""
        answers = self.query.answers_of(cells)
        found: IntArray = self.classes[leaves, self.component[answers]]
        if (found < 0).any():
            raise InternalError("records where there can be none; nothing was released, please report it")
        return cells * self._most + found

    def joined(self, starts: IntArray, cells: IntArray, counts: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """The entries (`SparseCounts`) of the cells, from those of the split cells."""
        cells, node = cells // self._most, np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        first = np.ones(len(cells), np.bool_)
        first[1:] = (cells[1:] != cells[:-1]) | (node[1:] != node[:-1])
        begins = np.flatnonzero(first)
        sums = np.add.reduceat(counts, begins) if len(begins) else counts
        return np.searchsorted(node[begins], np.arange(len(starts))), cells[begins], sums

    def possible(self, cells: IntArray) -> IntArray:
        """The split cells of ``cells`` in which a leaf can have records, rising."""
        found = []
        for first in range(0, len(cells), _CELLS_AT_ONCE):
            own = cells[first : first + _CELLS_AT_ONCE]
            answers = self.query.answers_of(own)
            able = np.zeros((len(own), self._most), np.bool_)
            for number, classes in enumerate(self.members):
                mine = self.component[answers] == number
                able[mine, : len(classes)] = classes.T[answers[mine]]
            place, own_class = np.nonzero(able)
            found.append(own[place] * self._most + own_class)
        return np.concatenate([np.zeros(0, np.int64), *found])

    def tied(self, tied: Tied, tree: Tree, cells: IntArray) -> Tied:
        """The totals by class of what every node has by ``tied``, of the query of this schema's `SplitCells.of`;
        ``cells``: the split cells that are `possible`.

        Raises `Contradiction` naming the leaf where a total is above 0 and no open answer counts in it.
        """
        sizes = np.diff(tied.starts[tree.leaves.start :])
        leaves = np.repeat(np.arange(tree.n_leaves), sizes)
        within = slice(int(tied.starts[tree.leaves.start]), int(tied.starts[-1]))
        answers, counts = tied.cells[within], tied.counts[within]
        query = Query(self.schema, (*tied.query.kept, OPEN))
        # A total's cells are all of one component.
        of_answer, given = np.full(tied.query.n_answers, -1), cells // self._most
        of_answer[tied.query.answers_of(given)] = self.component[self.query.answers_of(given)]
        classes = self.classes[leaves, of_answer[answers]]
        able = np.zeros(query.n_answers, np.bool_)
        able[query.answers_of(cells)] = True
        wrong = np.flatnonzero((counts > 0) & ((classes < 0) | ~able[answers * self._most + classes]))
        if len(wrong):
            label = tied.query.labels()[int(answers[wrong[0]])]
            raise Contradiction(
                tree.leaves.start + int(leaves[wrong[0]]),
                f"the release that it is tied to has records in {label!r}, and no answer to {self.query.name!r} "
                "that is open there can have them",
            )
        nodes, at = [], tree.leaves.start + leaves
        for _ in range(tree.n_levels):
            nodes.append(at)
            at = tree.parent[at]
        split = np.tile(answers * self._most + classes, tree.n_levels)
        return Tied.of(query, np.concatenate(nodes), split, np.tile(counts, tree.n_levels), tree.n_nodes)


class KnownAnswers(NamedTuple):
    """What is known of every node before it is measured, for `SupportDescent`: the ``schema`` and its possible
    ``cells``, which answers are ``tied`` and which ``open``, and by which ``split`` the cells are those of another
    schema."""

    schema: Schema
    cells: IntArray
    tied: Tied | None = None
    open: OpenAnswers | None = None
    split: SplitCells | None = None

    @classmethod
    def of(
        cls,
        schema: Schema,
        tree: Tree,
        tied: Tied | None = None,
        given: OpenAnswers | None = None,
        cells: IntArray | None = None,
    ) -> KnownAnswers:
        """Of the ``cells``, by default all possible ones. Raises as `SplitCells.of` and `SplitCells.tied` do."""
        cells = schema.possible_cells() if cells is None else cells
        if given is None:
            return cls(schema, cells, tied)
        split = SplitCells.of(schema, cells, given, tree, None if tied is None else tied.query)
        possible = split.possible(cells)
        if tied is not None:  # a total of 0 says where an answer is closed
            return cls(split.schema, possible, split.tied(tied, tree, possible), None, split)
        there = OpenAnswers(Query(split.schema, (*given.query.kept, None)), given.there)
        return cls(split.schema, possible, None, there, split)
