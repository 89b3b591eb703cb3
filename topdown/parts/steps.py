"""The steps of a release of histograms in parts, each a pure function of what the steps before it gave.

Up: a part's counts are measured, and what that says of its uppermost nodes is kept. Top: what lies above the cut, down
to whole histograms of the parts' uppermost nodes. Down: a part is measured again, which gives the same numbers, and
goes down from these. Nothing depends on where the tree is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.confidential.entries import Entries
from topdown.confidential.measure_piece import Place, measure_piece
from topdown.geography.tree import IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.noise import KeyedSource
from topdown.noise.key import NoiseKey
from topdown.privacy.plan import Plan
from topdown.projection import diffuse, subtrees
from topdown.projection.components import Components
from topdown.projection.conditions import Limits
from topdown.projection.families import Check, Descent, Sparse, descend, solve_compiled
from topdown.projection.method import METHODS
from topdown.projection.patterns import Patterns
from topdown.projection.whole import FAMILY_ROUNDINGS, settler
from topdown.workload import Query, Schema

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Job:
    """What all parts have in common: what is measured, how, under which key, and how it is made whole."""

    schema: Schema
    levels: tuple[str, ...]
    plan: Plan
    method: str
    key: NoiseKey = field(repr=False)
    ties: KeyedSource = field(repr=False)

    @cached_property
    def patterns(self) -> Patterns:
        """The patterns of all queries that are measured at any level."""
        names = dict.fromkeys(query for level in self.levels for query in self.plan.queries(level))
        return Patterns(Components(self.schema, tuple(Query.parse(name, self.schema) for name in names)))


class Part(NamedTuple):
    """A part of the tree: some siblings, their parent in the place of the root, and all below them.

    ``top``: the number of its root's level in the whole tree. ``firsts``: by level of the part, the number of its first
    node in the whole level; ``taken``: by level of the part, of the whole level (`measure_piece.Place`).
    """

    tree: Tree
    top: int
    firsts: tuple[int, ...]
    taken: tuple[IntArray, ...]

    def places(self, levels: Sequence[str], measured: range) -> dict[int, Place]:
        """Where the levels that are ``measured`` in the part stand in the whole tree."""
        return {k: Place(levels[self.top + k], self.firsts[k], self.taken[k]) for k in measured}

    @property
    def numbered(self) -> list[tuple[int, int]]:
        """As `settler` takes it."""
        return [(self.top + k, first) for k, first in enumerate(self.firsts)]


class Whole(NamedTuple):
    """Whole histograms of a part's nodes, the root's first, and the checks of its families."""

    histograms: list[Sparse]
    checks: list[Check]


def up(job: Job, part: Part, entries: Entries) -> subtrees.Roots:
    """What a part's measurements say of its uppermost nodes. Raises `Contradiction`."""
    return _climbed(job, part, entries).roots


def top(job: Job, part: Part, entries: Entries, roots: subtrees.Roots) -> Whole:
    """Whole histograms above the cut and of the ``roots``, which are the leaves of ``part``. Raises `Contradiction`."""
    tree = part.tree
    places = part.places(job.levels, range(tree.n_levels - 1))
    measured = measure_piece(entries, tree, job.schema, job.plan, job.key, places, job.levels)
    descent = subtrees.above(tree, measured[:-1], roots, job.patterns, METHODS[job.method])
    return _whole(job, part, descent, None)


def down(job: Job, part: Part, entries: Entries, histograms: Sequence[Sparse]) -> Whole:
    """Whole histograms of a part, from those of its uppermost nodes. Raises `Contradiction`."""
    return _whole(job, part, _climbed(job, part, entries).descent, histograms)


def _climbed(job: Job, part: Part, entries: Entries) -> subtrees.Climbed:
    places = part.places(job.levels, range(1, part.tree.n_levels))
    measured = measure_piece(entries, part.tree, job.schema, job.plan, job.key, places, job.levels)
    return subtrees.climb(part.tree, measured, job.patterns, METHODS[job.method])


def _whole(job: Job, part: Part, descent: Descent, roots: Sequence[Sparse] | None) -> Whole:
    settle = settler(descent, FAMILY_ROUNDINGS["nearest"], job.ties, part.numbered)
    return Whole(*descend(descent, solve_compiled, None, settle, roots))


def roots_as_arrays(roots: subtrees.Roots) -> Arrays:
    """``roots`` as arrays by name."""
    found: Arrays = {"leaves": roots.leaves}
    for number, known in enumerate(roots.known):
        found |= {f"known {number} {part}": getattr(known, part) for part in diffuse.PARTS}
    for query, answers in roots.answers.items():
        found |= {f"values {query.name}": np.asarray(answers.values), f"variance {query.name}": answers.variance}
    for query, limits in roots.limits.items():
        found |= {f"low {query.name}": limits.low, f"high {query.name}": limits.high}
    return found


def roots_of_arrays(arrays: Arrays, schema: Schema) -> subtrees.Roots:
    """What `roots_as_arrays` made."""
    count = sum(name.startswith("known ") for name in arrays) // len(diffuse.PARTS)
    known = [diffuse.Known(*(arrays[f"known {k} {part}"] for part in diffuse.PARTS)) for k in range(count)]
    answers, limits = {}, {}
    for name in arrays:
        kind, _, text = name.partition(" ")
        if kind == "values":
            answers[Query.parse(text, schema)] = Answers(arrays[name], arrays[f"variance {text}"])
        elif kind == "low":
            limits[Query.parse(text, schema)] = Limits(arrays[name], arrays[f"high {text}"])
    return subtrees.Roots(known, answers, limits, arrays["leaves"])
