"""The steps of a release of histograms in parts, each a pure function of measurements and of the steps before it.

Up: what a part's measurements say of its uppermost nodes. Top: what lies above the cut, down to whole histograms of the
parts' uppermost nodes. Down: a part goes down from these. Nothing depends on where the tree is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import Tree
from topdown.machine.parallel import thread_pool
from topdown.machine.system import processors
from topdown.measurements.measurements import Answers
from topdown.noise import KeyedSource
from topdown.privacy.plan import Plan
from topdown.projection.check.certificate import Residuals
from topdown.projection.conditions import Limits
from topdown.projection.histograms import subtrees
from topdown.projection.histograms.families import Descent, Programs, Sparse, descend
from topdown.projection.histograms.passes import Order, order_of_plan
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.histograms.vector_least_squares import PARTS, Known
from topdown.projection.histograms.whole import settler
from topdown.projection.method import Method, method_named
from topdown.projection.rounding_method import rounding_named
from topdown.projection.solver_inputs import weighted_answers
from topdown.projection.upward_start import start_of
from topdown.workload import Query, Schema

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Job:
    """What all parts have in common: what is measured, how it is projected, and the key that breaks ties."""

    schema: Schema
    levels: tuple[str, ...]
    plan: Plan
    method: str
    ties: KeyedSource = field(repr=False)
    upward: str | None = None
    order: Order | None = None
    weights: str = "variance"

    @cached_property
    def its_method(self) -> Method:
        """The method by its name. Raises `ConfigError` for one that is unknown where this is asked."""
        return method_named(self.method)

    @cached_property
    def start(self) -> int:
        """The number of the level where the upward pass starts."""
        return start_of(self.levels, self.its_method, self.upward)

    @cached_property
    def settled_first(self) -> tuple[tuple[Query, ...], ...]:
        """The queries that are settled first, by level. Raises `ConfigError` for an order that makes no sense."""
        return order_of_plan(self.plan, self.levels, self.schema, self.its_method, self.order)

    @cached_property
    def exact(self) -> tuple[Query, ...]:
        """The queries that are published exactly at any level."""
        asked = dict.fromkeys((level, name) for level in self.levels for name in self.plan.queries(level))
        return tuple(Query.parse(name, self.schema) for level, name in asked if self.plan.is_exact(level, name))

    @cached_property
    def patterns(self) -> Patterns:
        """The patterns of all queries that are measured at any level."""
        names = dict.fromkeys(query for level in self.levels for query in self.plan.queries(level))
        return Patterns(self.schema, tuple(Query.parse(name, self.schema) for name in names))


class Part(NamedTuple):
    """A part of the tree: some siblings, their parent in the place of the root, and all below them.

    ``top``: the number of its root's level in the whole tree. ``firsts``: by level of the part, the number of its first
    node in the whole level.
    """

    tree: Tree
    top: int
    firsts: tuple[int, ...]

    @property
    def places(self) -> list[tuple[int, int]]:
        """As `settler` takes them."""
        return [(self.top + k, first) for k, first in enumerate(self.firsts)]


NO_LIMITS: Mapping[Query, Limits] = MappingProxyType({})

Measured = list[dict[Query, Answers]]
"""What was measured of a part's nodes, level by level, with one variance per node; nothing of its root's level."""

GivenLimits = Mapping[Query, Limits]
"""The limits of a part's nodes, (nodes x answers) each, by query; of none but those that have any."""


class Whole(NamedTuple):
    """Whole histograms of a part's nodes, the root's first, what its families lack, how many programs were solved, and
    what these were made of."""

    histograms: list[Sparse]
    residuals: list[Residuals]
    programs: Programs
    descent: Descent


def lowest_going_up(job: Job, part: Part, *, limited: bool = False) -> int:
    """The lowest level of a part of which `up` needs what was measured: that where the upward pass starts, or the
    part's uppermost where that is higher. What is published exactly below it limits what is above, and so do limits,
    where the part is ``limited``: then the leaves'.
    """
    last = part.tree.n_levels - 1
    if limited:
        return last
    lowest = min(max(job.start - part.top, 1), last)
    below = [(level, query) for level in job.levels[part.top + lowest + 1 :] for query in job.plan.queries(level)]
    return last if any(job.plan.is_exact(level, query) for level, query in below) else lowest


def up(job: Job, part: Part, measured: Measured, limits: GivenLimits = NO_LIMITS) -> subtrees.Roots:
    """What a part's measurements, down to `lowest_going_up` at least, and ``limits`` say of its uppermost nodes. Raises
    `Contradiction`."""
    lowest = lowest_going_up(job, part, limited=bool(limits))
    tree, stated = part.tree.above(lowest), _weighted(job, measured[: lowest + 1])
    found = subtrees.roots_of(tree, stated, job.patterns, _start_in(job, part), limits)
    return found._replace(
        answers=measured[1] if found.answers else {}, leaves=part.tree.leaf_counts[part.tree.level(1)]
    )


FAMILIES_AT_ONCE = 2
"""Families above the parts that are solved at the same time, at most: each may take gigabytes."""


def top(job: Job, tree: Tree, measured: Measured, roots: subtrees.Roots, limits: GivenLimits = NO_LIMITS) -> Whole:
    """Whole histograms above the cut and of the parts' uppermost nodes, ``roots``, which are the leaves of ``tree``.

    ``measured``: of the levels above the leaves, ``limits``: of all nodes. Some families are solved at once, by
    threads. Raises `Contradiction`.
    """
    *stated, answers = _weighted(job, [*measured, roots.answers])
    roots = roots._replace(answers=answers)
    descent = subtrees.above(tree, stated, roots, job.patterns, job.start, limits, job.settled_first)
    with thread_pool(min(FAMILIES_AT_ONCE, processors())) as pool:
        return _whole(job, Part(tree, 0, (0,) * tree.n_levels), descent, None, pool)


def down(
    job: Job, part: Part, measured: Measured, histograms: Sequence[Sparse], limits: GivenLimits = NO_LIMITS
) -> Whole:
    """Whole histograms of a part, from those of its uppermost nodes. Raises `Contradiction`."""
    start, order = _start_in(job, part), job.settled_first[part.top :]
    descent = subtrees.below(part.tree, _weighted(job, measured), job.patterns, start, limits, order)
    return _whole(job, part, descent, histograms)


def _weighted(job: Job, measured: Measured) -> Measured:
    """``measured`` with the variances that the job's weights are the inverses of."""
    return [{query: weighted_answers(one, job.weights) for query, one in level.items()} for level in measured]


def _start_in(job: Job, part: Part) -> int:
    """The level of a part where the upward pass starts; of a method without one that is the root, above every part."""
    return job.start - part.top


def _whole(
    job: Job, part: Part, descent: Descent, roots: Sequence[Sparse] | None, executor: Executor | None = None
) -> Whole:
    descent = replace(descent, whole_total=True)
    settle = settler(descent, rounding_named("nearest"), job.ties, part.places, job.exact)
    return Whole(*descend(descent, job.its_method.for_families(), executor, settle, roots), descent)


def limits_as_arrays(limits: GivenLimits) -> Arrays:
    """``limits`` as arrays by name."""
    return {f"{side} {q.name}": getattr(one, side) for q, one in limits.items() for side in Limits._fields}


def limits_of_arrays(arrays: Arrays, schema: Schema) -> dict[Query, Limits]:
    """What `limits_as_arrays` made, among other arrays."""
    found = [name.partition(" ")[2] for name in arrays if name.startswith("low ")]
    return {Query.parse(text, schema): Limits(arrays[f"low {text}"], arrays[f"high {text}"]) for text in found}


def roots_as_arrays(roots: subtrees.Roots) -> Arrays:
    """``roots`` as arrays by name."""
    found: Arrays = {"leaves": roots.leaves}
    for number, known in enumerate(roots.known):
        found |= {f"known {number} {part}": getattr(known, part) for part in PARTS}
    for query, answers in roots.answers.items():
        found |= {f"values {query.name}": np.asarray(answers.values), f"variance {query.name}": answers.variance}
    return found | limits_as_arrays(roots.limits)


def roots_of_arrays(arrays: Arrays, schema: Schema) -> subtrees.Roots:
    """What `roots_as_arrays` made."""
    count = sum(name.startswith("known ") for name in arrays) // len(PARTS)
    known = [Known(*(arrays[f"known {k} {part}"] for part in PARTS)) for k in range(count)]
    asked = [name.partition(" ")[2] for name in arrays if name.startswith("values ")]
    answers = {
        Query.parse(text, schema): Answers(arrays[f"values {text}"], arrays[f"variance {text}"]) for text in asked
    }
    return subtrees.Roots(known, answers, limits_of_arrays(arrays, schema), arrays["leaves"])
