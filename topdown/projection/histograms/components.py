"""Splits the space of a histogram so that least squares with any queries becomes small independent problems.

Every attribute's space is split into the span W of its total and of its measured recodes' groups, and the deviations D
within these. A query that keeps the attribute acts on D as the identity, every other query as 0. So on the part of the
histogram's space that deviates in exactly the attributes T only queries that keep T whole have an effect, and it is the
same for all deviations: there are many copies of one problem, whose size is the product of the sizes of the other
attributes' W. Such a problem splits further wherever the queries' information matrices commute: into scalars, except
for recodes whose groups have unequal sizes.

Where the schema has structural zeros the attributes are those of `workload.product`, which has no impossible cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.wording import shown
from topdown.workload.product import ProductSchema
from topdown.workload.query import Query, design
from topdown.workload.schema import Recode, Schema

_ROUNDING = 1e-10
"""Entries of designs and information matrices below this are 0; they have the size of small whole numbers."""

_SEEN = 1e-9
"""Below this weight an answer does not depend on a component."""
_MOST_CATEGORIES, _MOST_TOGETHER = 1 << 13, 1 << 12
"""The most categories of an attribute, and coordinates of a component: both have square matrices."""


@dataclass(frozen=True, eq=False)
class Split:
    """An attribute's space: orthonormal bases ``within`` (categories x w) of W and ``deviation`` of D."""

    within: FloatArray
    deviation: FloatArray

    @property
    def basis(self) -> FloatArray:
        """Both, W first: an orthogonal matrix (categories x categories)."""
        return np.hstack([self.within, self.deviation])


def split(size: int, recodes: Sequence[FloatArray]) -> Split:
    """The split of an attribute of ``size`` categories for these ``recodes`` of it (groups x size, of 0 and 1)."""
    spanning = np.vstack([np.ones((1, size)), *recodes])
    left, values, _ = np.linalg.svd(spanning.T, full_matrices=True)
    rank = int((values > _ROUNDING * values[0]).sum())
    return Split(left[:, :rank], left[:, rank:])


@dataclass(frozen=True, eq=False)
class Block:
    """One independent problem: its ``basis`` (m x size) in its component's coordinates, and every query's ``rows``.

    ``rows[query]`` (k x size): the query's answers in the component as functions of the block's coordinates; only for
    queries that depend on the block.
    """

    basis: FloatArray
    rows: dict[Query, FloatArray]

    @property
    def size(self) -> int:
        """Number of coordinates; 1 for a scalar."""
        return int(self.basis.shape[1])


@dataclass(frozen=True, eq=False)
class Component:
    """The part of the space that deviates in exactly ``deviating`` (numbers of the product's attributes).

    ``copies``: how many coordinate vectors share every problem. ``queries``: those that depend on the component.
    """

    deviating: tuple[int, ...]
    copies: int
    blocks: tuple[Block, ...]
    queries: tuple[Query, ...]

    @property
    def size(self) -> int:
        """Number of coordinates of a vector."""
        return sum(block.size for block in self.blocks)


class AnswerRows(NamedTuple):
    """How a query's answers depend on a component: ``weight`` (classes,), ``rows`` (classes x m), and every answer's
    class, ``place`` (answers,).
    """

    weight: FloatArray
    rows: FloatArray
    place: npt.NDArray[np.int64]

    @property
    def matters(self) -> bool:
        """Whether any answer depends on the component by more than rounding."""
        return bool((self.weight > _SEEN).any())


class AnswerClasses(NamedTuple):
    """How a query's answers depend on every component (``seen``), one answer of every class (``first``), and the class
    of each answer (``place``, (answers,)): the errors of answers of one class have the same law at every node.
    """

    seen: list[AnswerRows]
    first: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Components:
    """The whole space of histograms over ``schema``, 0 at its structural zeros, for the measured ``queries``.

    Raises `ConfigError` for an attribute of too many categories, and for recodes of too many groups together.
    """

    schema: Schema
    queries: tuple[Query, ...]

    def __post_init__(self) -> None:
        for attribute in self.schema.attributes:
            if len(attribute.categories) > _MOST_CATEGORIES:
                raise ConfigError(
                    f"attribute {shown(attribute.name)} has {len(attribute.categories):,} categories; where several "
                    f"queries are measured, or limits are known, an attribute has at most {_MOST_CATEGORIES:,}: group "
                    "them"
                )

    @cached_property
    def product(self) -> ProductSchema:
        """The schema as a product without zeros; "attributes" here are those of this product."""
        return ProductSchema.of(self.schema)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of categories of every attribute."""
        return self.product.attributes.shape

    def deviating(self, query: Query) -> frozenset[int]:
        """The attributes, by their places, on whose deviations a query's answers depend."""
        parts = zip(design(self.product.asked(query).query), self.splits, strict=True)
        return frozenset(
            place
            for place, (matrix, one) in enumerate(parts)
            if np.abs(matrix @ one.deviation).max(initial=0.0) > _ROUNDING
        )

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """Every attribute's split."""
        found = []
        queries = [self.product.asked(query).query for query in self.queries]
        for place, size in enumerate(self.shape):
            parts = {query.kept[place]: design(query)[place] for query in queries if _recoded(query, place)}
            found.append(split(size, list(parts.values())))
        return tuple(found)

    def __iter__(self) -> Iterator[Component]:
        return iter(self.parts)

    @cached_property
    def parts(self) -> tuple[Component, ...]:
        """The components, of all sets of attributes that can deviate."""
        places = [k for k, one in enumerate(self.splits) if one.deviation.shape[1]]
        subsets = (c for r in range(len(places) + 1) for c in itertools.combinations(places, r))
        return tuple(self._component(subset) for subset in subsets)

    @cached_property
    def blocks(self) -> tuple[tuple[Component, Block], ...]:
        """Every block with its component."""
        return tuple((component, block) for component in self.parts for block in component.blocks)

    def first_block(self, component: Component) -> int:
        """The number of the first block of ``component`` among `blocks`."""
        return sum(len(one.blocks) for one in self.parts[: self.parts.index(component)])

    def _component(self, deviating: tuple[int, ...]) -> Component:
        names = self.product.attributes.names
        queries = tuple(
            q for q in self.queries if all(self.product.asked(q).query.kept[k] == names[k] for k in deviating)
        )
        designs = {query: self.within_design(query, deviating) for query in queries}
        copies = math.prod(self.splits[k].deviation.shape[1] for k in deviating)
        size = math.prod(s.within.shape[1] for k, s in enumerate(self.splits) if k not in deviating)
        if size > _MOST_TOGETHER:
            raise ConfigError(
                f"the groups of the measured recodes have {size:,} combinations, and at most {_MOST_TOGETHER:,} can be "
                "handled; measure recodes of fewer groups, or fewer of them"
            )
        blocks = tuple(
            Block(basis, {q: d @ basis for q, d in designs.items() if np.abs(d @ basis).max() > _ROUNDING})
            for basis in _block_bases(list(designs.values()), size)
        )
        return Component(deviating, copies, blocks, queries)

    def within_design(self, query: Query, deviating: tuple[int, ...]) -> FloatArray:
        """The matrix from the component's coordinates to the rotated answers of ``query``; (rows x size)."""
        found: FloatArray = np.ones((1, 1))
        query = self.product.asked(query).query
        for place, (matrix, one) in enumerate(zip(design(query), self.splits, strict=True)):
            if place in deviating:
                continue
            whole = query.kept[place] == self.product.attributes.names[place]
            found = np.asarray(np.kron(found, np.eye(one.within.shape[1]) if whole else matrix @ one.within))
        return found

    # -- from answers to coordinates and back ---------------------------------------------------------------------

    def rotated(self, query: Query, answers: FloatArray, deviating: Container[int] | None = None) -> FloatArray:
        """``answers`` (nodes x answers) with every attribute that is kept whole in the basis of its split.

        ``deviating``: the places of attributes that may deviate; the others have only W.
        """
        query, possible = self.product.asked(query)
        if len(answers) == 1:  # NumPy adds in another order where a single row is spread out in memory
            answers = np.ascontiguousarray(answers)
        table = (answers if possible is None else answers[:, possible]).reshape(len(answers), *query.shape)
        places = [place for place, part in enumerate(query.kept) if part is not None]
        whole = [(axis, k) for axis, k in enumerate(places, 1) if query.kept[k] == self.product.attributes.names[k]]
        # Factors that make the table smaller come first.
        for axis, place in sorted(whole, key=lambda one: deviating is None or one[1] in deviating):
            table = _turned(table, axis, self._basis(place, deviating).T)
        return table

    def _basis(self, place: int, deviating: Container[int] | None) -> FloatArray:
        one = self.splits[place]
        return one.basis if deviating is None or place in deviating else one.within

    def empty(self, nodes: int, deviating: Container[int]) -> FloatArray:
        """Rotated histograms of 0 of so many ``nodes``, in which only ``deviating`` can deviate."""
        return np.zeros((nodes, *(self._basis(place, deviating).shape[1] for place in range(len(self.splits)))))

    def answered(self, query: Query, rotated: FloatArray, deviating: Container[int]) -> FloatArray:
        """The answers (nodes x answers) to ``query`` of ``rotated`` histograms as `empty` has them."""
        asked = self.product.asked(query)
        for place, matrix in enumerate(design(asked.query)):
            rotated = _turned(rotated, 1 + place, matrix @ self._basis(place, deviating))
        return _placed(rotated.reshape(len(rotated), asked.query.n_answers), asked.answers, query.n_answers)

    def taken(self, query: Query, rotated: FloatArray, component: Component) -> FloatArray:
        """The entries of ``rotated`` answers that are about ``component``: (nodes, copies, rows)."""
        query = self.product.asked(query).query
        places = [k for k, part in enumerate(query.kept) if part is not None]
        where = tuple(self._slice(k, k in component.deviating, _recoded(query, k)) for k in places)
        table = rotated[(slice(None), *where)]
        front = [1 + places.index(k) for k in component.deviating]
        back = [1 + j for j, k in enumerate(places) if k not in component.deviating]
        return table.transpose(0, *front, *back).reshape(len(table), component.copies, -1)

    def put(self, coordinates: FloatArray, component: Component, into: FloatArray) -> None:
        """Write a component's ``coordinates`` (nodes, copies, m) into a rotated histogram (nodes, *shape)."""
        deviating = component.deviating
        rest = [k for k in range(len(self.splits)) if k not in deviating]
        shape = [self.splits[k].deviation.shape[1] for k in deviating] + [self.splits[k].within.shape[1] for k in rest]
        table = coordinates.reshape(len(coordinates), *shape)
        order = [1 + [*deviating, *rest].index(k) for k in range(len(self.splits))]
        where = tuple(self._slice(k, k in deviating, False) for k in range(len(self.splits)))
        into[(slice(None), *where)] = table.transpose(0, *order)

    def back(self, rotated: FloatArray) -> FloatArray:
        """Histograms (nodes x cells) from rotated ones."""
        for place, one in enumerate(self.splits):
            rotated = _turned(rotated, 1 + place, one.basis)
        return _placed(rotated.reshape(len(rotated), math.prod(self.shape)), self.product.cells, self.schema.n_cells)

    def _slice(self, place: int, deviates: bool, recoded: bool) -> slice:
        size = self.splits[place].within.shape[1]
        return slice(None) if recoded else slice(size, None) if deviates else slice(size)

    # -- variances ------------------------------------------------------------------------------------------------

    def answer_rows(self, query: Query, component: Component) -> AnswerRows:
        """How the answers of ``query`` depend on ``component``.

        An answer's variance in the component is its class's weight times row' covariance row: the weight is the squared
        length of the answer's part in the deviations, the row its coordinates in the rest. Answers of one class have
        the same variance; the class of impossible answers has the weight 0.
        """
        asked, possible = self.product.asked(query)
        weight, rows, place = np.ones(1), np.ones((1, 1)), np.zeros(1, np.int64)
        for k, (matrix, one) in enumerate(zip(design(asked), self.splits, strict=True)):
            mine = matrix @ one.within
            lengths = np.maximum((matrix**2).sum(axis=1) - (mine**2).sum(axis=1), 0.0)
            key = lengths[:, None] if k in component.deviating else mine
            _, first, inverse = np.unique(np.round(key, 9), axis=0, return_index=True, return_inverse=True)
            inverse = inverse.reshape(-1)
            place = (place[:, None] * len(first) + inverse[None, :]).reshape(-1)
            if k in component.deviating:
                weight = np.kron(weight, lengths[first])
                rows = np.repeat(rows, len(first), axis=0)
            else:
                weight = np.repeat(weight, len(first))
                rows = np.einsum("ij,kl->ikjl", rows, mine[first]).reshape(len(weight), -1)
        if possible is None:
            return AnswerRows(weight, rows, place)
        of_all = np.full(query.n_answers, len(weight))
        of_all[possible] = place
        return AnswerRows(np.append(weight, 0.0), np.vstack([rows, np.zeros_like(rows[:1])]), of_all)

    def classes(self, query: Query) -> AnswerClasses:
        """The classes of the answers to ``query``."""
        if query not in self._classes:
            seen = [self.answer_rows(query, component) for component in self]
            together = np.stack([one.place for one in seen])
            _, first, place = np.unique(together, axis=1, return_index=True, return_inverse=True)
            self._classes[query] = AnswerClasses(seen, first, place.reshape(-1))
        return self._classes[query]

    @cached_property
    def _classes(self) -> dict[Query, AnswerClasses]:
        """Those that were asked for."""
        return {}


def _placed(table: FloatArray, places: npt.NDArray[np.int64] | None, size: int) -> FloatArray:
    """``table`` (nodes, k) with its columns at their ``places`` among so many, the others 0."""
    if places is None:
        return table
    found = np.zeros((len(table), size))
    found[:, places] = table
    return found


def _turned(table: FloatArray, axis: int, matrix: FloatArray) -> FloatArray:
    """``matrix`` applied along an axis without transposing the table, which would take longer than the product."""
    if matrix.shape == (1, 1):
        return np.asarray(table * matrix[0, 0])
    before, size, after = table.shape[:axis], table.shape[axis], table.shape[axis + 1 :]
    flat = table.reshape(math.prod(before), size, math.prod(after))
    turned = flat[:, :, 0] @ matrix.T if flat.shape[2] == 1 else matrix @ flat
    return np.asarray(turned.reshape(*before, len(matrix), *after))


def applied(table: FloatArray, matrix: FloatArray) -> FloatArray:
    """``table`` (..., k) times ``matrix`` (k, m), all at once: a stack of small products takes far longer."""
    if matrix.shape == (1, 1):
        return np.asarray(table * matrix[0, 0])
    flat = table.reshape(-1, table.shape[-1]) @ matrix
    return np.asarray(flat.reshape(*table.shape[:-1], matrix.shape[1]))


def _recoded(query: Query, place: int) -> bool:
    return isinstance(list(query.parts())[place], Recode)


def _block_bases(designs: list[FloatArray], size: int) -> list[FloatArray]:
    """Orthonormal bases (size x ...) of subspaces between which no design's information matrix has an entry.

    A generic combination of the matrices has its eigenvectors in the blocks of the algebra that they generate: a common
    eigenbasis where they commute.
    """
    information = [d.T @ d for d in designs]
    generic = np.zeros((size, size))
    for number, matrix in enumerate(information):
        generic += math.sqrt(2 + number * math.sqrt(5)) * matrix
    _, vectors = np.linalg.eigh(generic)
    linked = np.eye(size, dtype=bool)
    for matrix in information:
        linked |= np.abs(vectors.T @ matrix @ vectors) > _ROUNDING * max(1.0, np.abs(matrix).max())
    left, found = set(range(size)), []
    while left:
        group, new = set(), {min(left)}
        while new:
            group |= new
            new = {int(k) for j in new for k in np.flatnonzero(linked[j])} - group
        left -= group
        found.append(vectors[:, sorted(group)])
    return found
