"""The rehearsal of two linked tables: what follows the draw is done on invented households before a budget is spent.

They are invented from what is public: the units and facilities of every leaf, the universe and the plans.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from topdown.config.linked_settings import LinkedConfig
from topdown.errors import ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.linked.universe import LinkedQuery, PublicFigures, Universe
from topdown.machine.progress import Silent, Stages
from topdown.noise import KeyedSource
from topdown.pipeline.derive import Drawn
from topdown.pipeline.linked.linked_derive import LinkedDrawn, solved_together
from topdown.pipeline.rehearsal import HISTOGRAM_CELLS, OCCUPIED_CELLS, SEED, noisy, part_of
from topdown.privacy.linked_units import LinkedGuarantee
from topdown.privacy.plan import Plan
from topdown.release.manifest import Origin
from topdown.workload import Query

_FEWEST_LEAVES = 20
_MOST_BITS = 6.0
"""A leaf has up to 2^6 households of different kinds or members; one of these may be many."""

_MORE_PERSONS = 20
"""So many more persons than facilities at most."""


def rehearse_linked(
    config: LinkedConfig,
    geography: Geography,
    plans: Mapping[str, Plan],
    figures: PublicFigures,
    guarantee: LinkedGuarantee,
    stages: Stages,
) -> None:
    """Solve invented households and persons together, certify them, make them whole and deal them, so that what cannot
    be done is found before anything is drawn.

    ``figures``: what is public of all nodes, which the invented keep. Whether it succeeds depends on what is public,
    not on the counts. Raises `ProjectionError`, and `ConfigError` for a universe that is not solved.
    """
    universe, rng = config.universe, np.random.default_rng(SEED)
    with stages.stage(f"rehearsing on invented {universe.names[0]}"):
        part = part_of(geography, max(_FEWEST_LEAVES, HISTOGRAM_CELLS // universe.n_cells))
        node = pc.index_in(part.identifiers[part.tree.leaves.start :], geography.identifiers).to_numpy()
        leaves = figures.at(node)
        leaf, cells, times = invented(universe, leaves, rng)
        at_level, places = {}, leaf + part.tree.leaves.start
        for level in reversed(part.levels):
            at_level[level] = places - part.level_slice(level).start
            places = np.asarray(part.tree.parent[places], np.int64)
        tables, ties = {}, KeyedSource(bytes(32))
        for name, plan in plans.items():
            of_persons = name == universe.names[1]

            def true(level: str, query: Query, of_persons: bool = of_persons) -> IntArray:
                nodes = part.level_slice(level)
                asked = LinkedQuery(universe, query, of_persons)
                return asked.sparse_answers(at_level[level], cells, times, nodes.stop - nodes.start)

            schema = universe.persons if of_persons else universe.households
            tables[name] = Drawn(noisy(part, plan, schema, true, rng), ties, plan, Origin())
        try:
            drawn = LinkedDrawn(tables, leaves.added_up(part.tree), guarantee, "", ties)
            solved_together(config, drawn, Silent(), workers=1)
        except ProjectionError as error:
            raise ProjectionError(
                f"rehearsed on invented {universe.names[0]}, before anything was drawn: {error}. Take shares "
                "that differ less from level to level and from query to query"
            ) from None


def invented(
    universe: Universe, figures: PublicFigures, rng: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Households and persons of leaves with these public ``figures``: leaves, tagged cells, and how many of each.

    Half of the leaves have no household, the others from one to as many as they have units, some of which are one kind
    many times; every household has members that it can have. In facilities there are persons where there are any.
    """
    cells = np.arange(universe.n_cells)
    cells = cells[universe.possible(cells)]
    kinds = rng.permutation(cells[universe.is_household(cells)])[:OCCUPIED_CELLS]
    n = len(figures.facilities)
    several = np.where(rng.random(n) < 0.5, 0, 2.0 ** rng.uniform(0, _MOST_BITS, n)).astype(np.int64)
    several = several if figures.units is None else np.minimum(several, figures.units)
    leaf = np.repeat(np.arange(n), several)
    times = np.ones(len(leaf), np.int64)
    first = np.flatnonzero(np.diff(leaf, prepend=-1))
    more = 2.0 ** rng.uniform(0, 2 * _MOST_BITS, n) if figures.units is None else (figures.units - several) * 0.9
    times[first] += (more[leaf[first]] * rng.random(len(first)) ** 4).astype(np.int64)
    household = rng.choice(kinds, len(leaf))
    found = [(leaf, household, times)]
    if figures.units is not None:
        lived_in = np.bincount(leaf, times, n).astype(np.int64)
        found.append((np.arange(n), np.full(n, universe.vacant), figures.units - lived_in))
    members = _members(universe, household, rng)
    group = universe.group_of(cells)
    for number in range(len(universe.groups)):
        able = cells[group == number]
        there = np.flatnonzero(members[:, number])
        if len(there):
            found.append((leaf[there], rng.choice(able, len(there)), members[there, number] * times[there]))
    facility, column = universe.facility_of(cells), 0
    for number, one in enumerate(universe.facilities):
        able = cells[facility == number]
        least = figures.facilities[:, column] if one.counted else np.asarray(rng.random(n) < 0.1, np.int64)
        column += one.counted
        there = np.flatnonzero(least)
        if len(there) and len(able):
            persons = least[there] + rng.integers(0, _MORE_PERSONS, len(there))
            found.append((there, rng.choice(able, len(there)), persons))
    leaves, cells, counts = (np.concatenate(one) for one in zip(*found, strict=True))
    return leaves[counts > 0], cells[counts > 0], counts[counts > 0]


def _members(universe: Universe, households: IntArray, rng: np.random.Generator) -> IntArray:
    """The members (households x groups) of each, as it can have them: of some groups more than it must."""
    compositions = universe.compositions
    kind = compositions.class_of(households)
    members, most = compositions.least[kind].copy(), compositions.most[kind]
    least_of_all = np.maximum(compositions.total_least[kind], members.sum(axis=1))
    most_of_all = np.minimum(compositions.total_most[kind], most.sum(axis=1))
    total = least_of_all + ((most_of_all - least_of_all) * rng.random(len(kind)) ** 4).astype(np.int64)
    left: IntArray = total - members.sum(axis=1)
    for part in (rng.random(len(kind)), np.ones(len(kind))):
        for g in rng.permutation(members.shape[1]):
            added = np.rint(np.minimum(most[:, g] - members[:, g], left) * part).astype(np.int64)
            members[:, g] += added
            left -= added
    return members
