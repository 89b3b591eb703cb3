"""Random households and persons at nodes, their noisy answers, and families of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import IntArray, Tree
from topdown.linked.member_groups import Compositions
from topdown.linked.universe import LinkedQuery, PublicFigures, Universe
from topdown.measurements.measurements import Answers
from topdown.projection.linked.linked_descent import LinkedProgram
from topdown.projection.linked.linked_family import LinkedAnswers, LinkedFamily


class Tabulated(NamedTuple):
    """Counts of cells at nodes, sparse: ``counts`` of ``cells`` at ``nodes``."""

    nodes: IntArray
    cells: IntArray
    counts: IntArray

    @classmethod
    def of(cls, nodes: IntArray, cells: IntArray) -> Tabulated:
        """From one row per record."""
        pairs, counts = np.unique(np.stack([nodes, cells]), axis=1, return_counts=True)
        return cls(pairs[0], pairs[1], counts.astype(np.int64))


def populated(
    universe: Universe,
    households: IntArray,
    rng: np.random.Generator,
    *,
    vacancy: float = 0.1,
    facilities: float = 0.05,
    alike: float = 0.9,
) -> tuple[Tabulated, IntArray]:
    """Random households at every node, so many of each (nodes,), with their members, and vacant units; persons in some
    facilities; and how many facilities of every kind (nodes x kinds) there are.

    Households are smaller rather than larger, and most persons of a node have the categories of a few there: ``alike``
    is how many.
    """
    compositions, nodes, cells = universe.compositions, list[int](), list[int]()
    count = np.zeros((len(households), len(universe.facilities)), np.int64)
    persons = universe.of_persons(np.arange(universe.persons.n_cells))
    persons = persons[universe.possible(persons)]
    in_group = [persons[universe.group_of(persons) == g] for g in range(len(universe.groups))]
    in_facility = [persons[universe.facility_of(persons) == k] for k in range(len(universe.facilities))]
    able = np.flatnonzero(compositions.possible)
    weights = 0.6 ** compositions.total_least[able]
    everywhere = np.arange(universe.n_household_cells)
    everywhere = everywhere[universe.possible(everywhere)]
    of_class = [everywhere[compositions.class_of(everywhere) == kind] for kind in range(compositions.n_classes)]
    for node, n in enumerate(households.tolist()):
        liked: dict[int, IntArray] = {}

        def draw(pool: IntArray, key: int, liked: dict[int, IntArray] = liked) -> int:
            if key not in liked:
                liked[key] = rng.choice(pool, 3)
            return int(rng.choice(liked[key] if rng.random() < alike else pool))

        for _ in range(n):
            kind = int(rng.choice(able, p=weights / weights.sum()))
            cells.append(draw(of_class[kind], kind))
            for g, members in enumerate(_composition(compositions, kind, rng).tolist()):
                cells += [draw(in_group[g], -1 - g) for _ in range(members)]
        cells += [universe.vacant] * int(rng.binomial(n, vacancy))
        for k, pool in enumerate(in_facility):
            count[node, k] = rng.random() < facilities
            if count[node, k]:
                cells += [draw(pool, -100 - k) for _ in range(int(rng.integers(1, 30)))]
        nodes += [node] * (len(cells) - len(nodes))
    return Tabulated.of(np.array(nodes, np.int64), np.array(cells, np.int64)), count


def _composition(compositions: Compositions, kind: int, rng: np.random.Generator) -> IntArray:
    """A random composition of a household of a class."""
    members = compositions.least[kind].copy()
    total = max(int(compositions.total_least[kind]), int(members.sum()))
    while members.sum() < total:
        g = int(rng.choice(np.flatnonzero(members < compositions.most[kind])))
        members[g] += 1
    return members


SHARES = {
    "persons: total": 0.15,
    "persons: relationship": 0.15,
    "persons: age * sex": 0.2,
    "persons: hispanic * race": 0.2,
    "persons: relationship * adulthood": 0.1,
    "persons: detailed": 0.2,
    "households: total": 0.15,
    "households: size": 0.2,
    "households: type": 0.1,
    "households: size * type": 0.1,
    "households: hhispanic * hrace": 0.15,
    "households: tenure * hage": 0.1,
    "households: detailed": 0.2,
}
"""Queries of `census`, and the parts of a table's rho that each has."""


def noisy(universe: Universe, counts: Tabulated, n_nodes: int, rho: float, rng: np.random.Generator) -> LinkedAnswers:
    """The answers at some nodes to the queries of `SHARES`, with ``rho`` for each of both tables."""
    found = {}
    for text, share in SHARES.items():
        query, variance = LinkedQuery.parse(text, universe), 1.0 / (2.0 * rho * share)
        true = query.sparse_answers(counts.nodes, counts.cells, counts.counts, n_nodes)
        values = np.rint(true + rng.normal(0.0, np.sqrt(variance), true.shape))
        found[query] = Answers(values, np.full(n_nodes, variance))
    return LinkedAnswers(found, n_nodes)


def measured_family(
    universe: Universe, rng: np.random.Generator, *, children: int, mean: float, rho: float = 0.5, larger: int = 1
) -> LinkedFamily:
    """A family of so many children with so many random households on average, measured with noise, beneath its true
    sum; the first child has ``larger`` times as many of all."""
    counts, facilities = populated(universe, np.maximum(rng.poisson(mean, children), [1, *[0] * (children - 1)]), rng)
    counts = counts._replace(counts=np.where(counts.nodes == 0, larger, 1) * counts.counts)
    cells, place = np.unique(counts.cells, return_inverse=True)
    dense = np.zeros((children, len(cells)))
    dense[counts.nodes, place] = counts.counts
    figures = PublicFigures(dense[:, universe.is_unit(cells)].sum(axis=1).astype(np.int64), facilities)
    answers = noisy(universe, counts, children, rho, rng)
    return LinkedFamily.of(universe, answers, figures, slice(0, children), cells, dense.sum(axis=0))


def measured_tree(
    universe: Universe, rng: np.random.Generator, *, rho: float, mean: float = 4.0, sizes: tuple[int, ...] = (3, 4)
) -> LinkedProgram:
    """A tree with so many children per node by level, with random households at its leaves, measured with noise."""
    tree = Tree.from_family_sizes([np.full(math.prod(sizes[:k]), size) for k, size in enumerate(sizes)])
    leaves, facilities = populated(universe, rng.poisson(mean, tree.n_leaves), rng, facilities=0.2)
    here = universe.is_unit(leaves.cells)
    units = np.bincount(leaves.nodes[here], leaves.counts[here], tree.n_leaves).astype(np.int64)
    return measured_counts(universe, tree, leaves, units, facilities, rho, rng)


def measured_counts(
    universe: Universe,
    tree: Tree,
    leaves: Tabulated,
    units: IntArray,
    facilities: IntArray,
    rho: float,
    rng: np.random.Generator,
) -> LinkedProgram:
    """The counts of the ``leaves`` of a tree and of all nodes above, measured with noise, with what is public of the
    leaves: ``units`` (leaves,) and ``facilities`` (leaves x kinds)."""
    found, public = list[dict[LinkedQuery, Answers]](), list[IntArray]()
    node, figures = np.arange(tree.n_leaves) + tree.leaves.start, np.concatenate([units[:, None], facilities], axis=1)
    for index in range(tree.n_levels - 1, -1, -1):
        own = tree.level(index)
        count, place = own.stop - own.start, node - own.start
        found.append(dict(noisy(universe, leaves._replace(nodes=place[leaves.nodes]), count, rho, rng).answers))
        table = np.zeros((count, figures.shape[1]), np.int64)
        np.add.at(table, place, figures)
        public.append(table)
        node = tree.parent[node] if index else node
    table = np.concatenate(public[::-1])
    return LinkedProgram(universe, tree, found[::-1], PublicFigures(table[:, 0], table[:, 1:]))
