"""What is known of every node's histogram before its parent's is: a precision and what it says, level by level.

From the node's own answers alone (`own`), or with all that was measured below it (`upward`): the upward pass of least
squares, component by component. Exact answers are no information but conditions, see `conditions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.projection import diffuse
from topdown.projection.components import Block, Component, Components
from topdown.projection.patterns import Patterns
from topdown.workload import DETAILED, Query

_PRIOR_OF_LEAST, _PRIOR_OF_GREATEST = 1e-6, 1e-8
"""The precision, as a part of the least and of the greatest that was measured, of the rule for what no measurement
determines: the parent's cells are shared out by the numbers of leaves. The second keeps float64 enough digits."""


def _prior(strengths: list[FloatArray]) -> float:
    """The precision of the rule, where the positive ``strengths`` were measured; 1 where nothing was."""
    positive = np.concatenate([np.ravel(one)[np.ravel(one) > 0] for one in strengths] or [np.ones(1)])
    if not len(positive):
        return 1.0
    return max(_PRIOR_OF_LEAST * float(positive.min()), _PRIOR_OF_GREATEST * float(positive.max()))


class Gathered(NamedTuple):
    """What is known of the histograms of some nodes on some cells: 1/2 x' P x - g' x, P[k, l] = table[pattern[k, l]].

    ``table`` (nodes x patterns); ``g`` (nodes x cells).
    """

    table: FloatArray
    g: FloatArray


@dataclass(frozen=True, eq=False)
class Own:
    """What the answers at the nodes of one level say of them; ``prior``: the precision of the rule for what they leave
    open, 0 where they leave nothing open."""

    answers: Mapping[Query, Answers]
    precision: Mapping[Query, FloatArray]
    entries: Mapping[Query, FloatArray]
    patterns: Patterns
    prior: float

    @classmethod
    def of(cls, answers: Mapping[Query, Answers], patterns: Patterns) -> Own:
        """From a level's ``answers``; exact ones and those that were not made are left out."""
        precision = {}
        for query, (_, variance) in answers.items():
            made = (variance > 0) & np.isfinite(variance)
            if made.any():
                precision[query] = np.divide(1.0, variance, out=np.zeros_like(variance), where=made)
        detailed = next((p for q, p in precision.items() if q.name == DETAILED), None)
        is_open = detailed is None or not (detailed > 0).all()
        entries = {query: patterns.of_query(query) for query in precision}
        return cls(answers, precision, entries, patterns, _prior(list(precision.values())) if is_open else 0.0)

    def gather(self, nodes: slice, cells: IntArray) -> Gathered:
        """For ``nodes`` of the level, numbered from its first, and some ``cells``."""
        count = nodes.stop - nodes.start
        table, g = np.zeros((count, self.patterns.count)), np.zeros((count, len(cells)))
        for query, precision in self.precision.items():
            here = precision[nodes, None]
            table += here * self.entries[query]
            g += here * self.answers[query].values[nodes][:, query.answers_of(cells)]
        return Gathered(table, g)

    def slope(self, x: FloatArray, nodes: slice, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        """P x - g at ``x`` (nodes x cells), from the queries themselves, and the sum of its terms' sizes."""
        found, size = np.zeros_like(x), np.zeros_like(x)
        for query, precision in self.precision.items():
            answer, place = np.unique(query.answers_of(cells), return_inverse=True)
            place = place.reshape(-1)
            order = np.argsort(place, kind="stable")
            summed = np.add.reduceat(x[:, order], np.searchsorted(place[order], np.arange(len(answer))), axis=1)
            said = self.answers[query].values[nodes][:, answer]
            found += (precision[nodes, None] * (summed - said))[:, place]
            size += (precision[nodes, None] * (summed + np.abs(said)))[:, place]
        return found, size


class _Part(NamedTuple):
    """One block of a level's nodes: precision (nodes, m, m) and mean (nodes, copies, m)."""

    component: Component
    block: Block
    precision: FloatArray
    mean: FloatArray


@dataclass(frozen=True, eq=False)
class FromBelow:
    """What was measured at and below the nodes of one level says of them."""

    components: Components
    patterns: Patterns
    parts: tuple[_Part, ...]
    g: FloatArray
    table: FloatArray
    prior: float

    @classmethod
    def of(cls, parts: list[_Part], components: Components, patterns: Patterns, *, is_open: bool) -> FromBelow:
        """From a level's blocks; ``is_open``: whether a direction of some node is not determined."""
        strengths = [np.diagonal(part.precision, axis1=1, axis2=2) for part in parts]
        table = np.zeros((len(parts[0].mean), patterns.count))
        for component, block, precision, _ in parts:
            table += np.einsum("nij,ijp->np", precision, patterns.of_block(component, block))
        g = _in_cells(components, [(part.component, part.mean @ part.precision @ part.block.basis.T) for part in parts])
        prior = _prior(strengths) if is_open else 0.0
        return cls(components, patterns, tuple(parts), g, table, prior)

    def gather(self, nodes: slice, cells: IntArray) -> Gathered:
        """As `Own.gather`."""
        return Gathered(self.table[nodes], self.g[nodes][:, cells])

    def slope(self, x: FloatArray, nodes: slice, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        """As `Own.slope`, by the components' coordinates of ``x``."""
        whole = np.zeros((len(x), self.components.schema.n_cells))
        whole[:, cells] = x
        detailed = Query.parse(DETAILED, self.components.schema)
        turned = self.components.rotated(detailed, whole)
        steps = []
        for component, block, precision, mean in self.parts:
            gap = self.components.taken(detailed, turned, component) @ block.basis - mean[nodes]
            steps.append((component, gap @ precision[nodes] @ block.basis.T))
        found = _in_cells(self.components, steps)[:, cells]
        size = np.abs(self.g[nodes]).max(axis=1, keepdims=True) + self.table[nodes].max(axis=1, keepdims=True) * x.sum(
            axis=1, keepdims=True
        )
        return found, np.broadcast_to(size, found.shape)


def _in_cells(components: Components, steps: list[tuple[Component, FloatArray]]) -> FloatArray:
    """Histograms (nodes x cells) from the coordinates (nodes, copies, m) of every block in its component."""
    rotated = np.zeros((len(steps[0][1]), *components.schema.shape))
    for component in components:
        components.put(np.asarray(sum(step for its, step in steps if its is component)), component, rotated)
    return components.back(rotated)


Information = Own | FromBelow


def own(measured: list[dict[Query, Answers]], patterns: Patterns) -> list[Information]:
    """What every level's own answers say of its nodes, root first."""
    return [Own.of(level, patterns) for level in measured]


def upward(tree: Tree, measured: list[dict[Query, Answers]], patterns: Patterns) -> list[Information]:
    """What was measured at and below the nodes of every level says of them, root first. Leaves have their own alone.

    Raises `Contradiction` for exact answers that no table has.
    """
    found: list[Information] = [Own.of(measured[-1], patterns)]
    components = patterns.components
    blocks = [(component, block) for component in components for block in component.blocks]
    state: list[diffuse.Known] = []
    for index in range(tree.n_levels - 2, -1, -1):
        families, first = tree.families(index), tree.level(index).start
        here = _rotated(measured[index], components)
        sums = _Leaves.of(measured[-1], families, components) if not state else None
        totals = [
            sums.total(component, block, components)
            if sums is not None
            else diffuse.Known(*(families.total_rows(getattr(state[number], part)) for part in diffuse.PARTS))
            for number, (component, block) in enumerate(blocks)
        ]
        parts, is_open = [], False
        for (component, block), known in zip(blocks, totals, strict=True):
            _take(known, here, component, block, components, first)
            precision, left_open = _precision(known)
            is_open |= left_open
            parts.append(_Part(component, block, precision, known.mean))
        state = totals
        found.append(FromBelow.of(parts, components, patterns, is_open=is_open))
    return found[::-1]


_Rotated = dict[Query, Answers]
"""Answers in their split bases: (nodes, ...) for every query, with their variance."""


def _rotated(level: Mapping[Query, Answers], components: Components) -> _Rotated:
    return {
        query: Answers(components.rotated(query, np.where(np.isfinite(a.variance)[:, None], a.values, 0.0)), a.variance)
        for query, a in level.items()
    }


class _Leaves(NamedTuple):
    """What the leaves say of their families' sums.

    Where siblings have one variance per query, the sum of what is best known of them is what is best known of the sums
    of their answers: these are added up as they are. Else every leaf's is found by itself.
    """

    rotated: _Rotated
    families: Families
    alike: bool

    @classmethod
    def of(cls, level: Mapping[Query, Answers], families: Families, components: Components) -> _Leaves:
        alike = all((families.largest(a.variance) == families.smallest(a.variance)).all() for a in level.values())
        if alike:
            level = {q: Answers(families.total_rows(a.values), families.total(a.variance)) for q, a in level.items()}
        return cls(_rotated(level, components), families, alike)

    def total(self, component: Component, block: Block, components: Components) -> diffuse.Known:
        families = self.families
        if self.alike:
            known = diffuse.Known.nothing(len(families.sizes), component.copies, block.size)
            known.diffuse *= families.sizes[:, None, None]
            _take(known, self.rotated, component, block, components, families.parents.start)
            return known
        known = diffuse.Known.nothing(int(families.sizes.sum()), component.copies, block.size)
        _take(known, self.rotated, component, block, components, families.children.start)
        return diffuse.Known(*(families.total_rows(getattr(known, part)) for part in diffuse.PARTS))


def _take(
    known: diffuse.Known, answers: _Rotated, component: Component, block: Block, components: Components, first: int
) -> None:
    """Take what ``answers`` say of a block into ``known``, whose first node is ``first``."""
    for query, (table, variance) in answers.items():
        if query in block.rows:
            taken = components.taken(query, table, component)
            diffuse.update(known, diffuse.independent(block.rows[query], taken, variance), first)


def _precision(known: diffuse.Known) -> tuple[FloatArray, bool]:
    """The precision (nodes, m, m) in the directions that are known; whether any is not.

    An exact direction has some precision, whatever it is: `Conditions` hold it, and matrices stay positive definite.
    """
    is_open = bool(known.diffuse.any())
    closed = np.broadcast_to(np.eye(known.finite.shape[-1]), known.finite.shape)
    if is_open:
        _, closed = diffuse.inverse(known.diffuse)
    precision, nothing = diffuse.inverse(closed @ known.finite @ closed, known.scale)
    usual = np.divide(1.0, known.scale, out=np.ones_like(known.scale), where=known.scale > 0)
    return precision + usual[:, None, None] * (closed @ nothing @ closed), is_open
