"""A second opinion on histograms: families solved again by cvxpy, all of a small tree, some of a large one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.tree import Tree
from topdown.measurements.measurements import Measurements
from topdown.projection.crosscheck import ROBUST, CrossCheck
from topdown.projection.estimate import Estimate
from topdown.projection.families import Descent, Family, Sparse
from topdown.projection.family_reference import solve_by_cvxpy
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import Method, method_named
from topdown.projection.passes import in_order
from topdown.projection.several import descent_of
from topdown.workload import Query

TOLERANCE = 1e-3
"""The largest difference of a child's histogram that is accepted, as a distance in standard deviations: the root of
d' P d, in which directions count that were measured."""

_MOST_VARIABLES = 3_000
_LARGEST_FAMILY = 1_500
"""Children times cells of all families that are solved again, and of one."""


def cross_check_families(
    descent: Descent,
    method: Method,
    histograms: Sequence[Sparse],
    *,
    solver: str = "OSQP",
    rng: np.random.Generator | None = None,
) -> CrossCheck:
    """Solve families of ``method`` again by cvxpy with ``solver``, each beneath its parent's of ``histograms``, and
    compare; of a family in which some queries are settled first every pass, beneath what those before it fixed.

    In random order as many as have 3,000 variables together, none of more than 1,500 (children times cells); the root
    alone counts as a family. Where the
    solver gives up or disagrees others are asked, Clarabel and SCS; the result names the one that came nearest. Raises
    `ConfigError` for a method that cannot state its program, `ProjectionError` when all fail.
    """
    seed = np.random.default_rng() if rng is None else rng
    programs, total = _programs(descent, histograms, seed)
    scope = f"{len(programs):,} of {total:,} families" if len(programs) < total else "every family"
    nodes = sum(len(program.known.g) for program, _ in programs)
    best: CrossCheck | None = None
    nearest = np.inf
    failed: ProjectionError | None = None
    for name in dict.fromkeys([solver.upper(), *ROBUST]):
        try:
            apart = [_apart(program, first, descent.whole_total, method, name) for program, first in programs]
        except ProjectionError as error:
            failed = failed or error
            continue
        distance, counts = max(apart, default=(0.0, 0.0))
        accepted = counts * TOLERANCE / distance if distance > 0 else 0.0
        found = CrossCheck(name, scope, nodes, counts, accepted)
        if distance < nearest:
            best, nearest = found, distance
        if found.agrees:
            break
    if best is None:
        assert failed is not None  # nosec B101 # narrows a type: every solver that finds no difference fails
        raise failed
    return best


def cross_check_histograms(
    measurements: Measurements,
    estimate: Estimate,
    *,
    limits: AnswerLimits | None = None,
    solver: str = "OSQP",
    rng: np.random.Generator | None = None,
) -> CrossCheck:
    """`cross_check_families` beneath the histograms of a non-negative ``estimate`` of several queries, or within
    ``limits``.
    """
    method = method_named(estimate.method)
    descent = descent_of(measurements, method, estimate.weights, limits, estimate.upward, estimate.order)
    inner = estimate.values[: descent.tree.n_families]
    above = [Sparse(np.flatnonzero(row), row[row > 0]) for row in inner]
    return cross_check_families(descent, method, above, solver=solver, rng=rng)


_Program = tuple[Family, tuple[Query, ...]]
"""A family's program, and the queries that are settled first in it."""


def _programs(descent: Descent, histograms: Sequence[Sparse], rng: np.random.Generator) -> tuple[list[_Program], int]:
    """Programs of families in random order, and how many families there are with records, with the root alone."""
    tree = descent.tree
    sizes = np.diff(tree.child_offsets)
    cells = np.array([len(one.cells) for one in histograms[: tree.n_families]], np.int64)
    there = np.flatnonzero(cells)
    able = there[(sizes * cells)[there] <= _LARGEST_FAMILY]
    found: list[_Program] = []
    left = _MOST_VARIABLES
    # A tree that is a part of another has no root of its own.
    roots = int(len(histograms) > 0 and len(histograms[0].cells) > 0)
    if roots and len(descent.cells) <= _LARGEST_FAMILY:
        left -= len(descent.cells)
        found.append((descent.family(0, slice(0, 1), None), descent.first(0)))
    for parent in rng.permutation(able):
        if sizes[parent] * cells[parent] <= left:
            left -= int(sizes[parent] * cells[parent])
            found.append(_program(descent, tree, int(parent), histograms[parent]))
    return found, len(there) + roots


def _program(descent: Descent, tree: Tree, parent: int, above: Sparse) -> _Program:
    index = tree.level_of(parent) + 1
    children, first = tree.children(parent), tree.level(index).start
    return descent.family(index, slice(children.start - first, children.stop - first), above), descent.first(index)


def _apart(
    family: Family, first: Sequence[Query], whole_total: bool, method: Method, solver: str
) -> tuple[float, float]:
    """The largest distance of a child's two solutions in standard deviations, and its largest difference in counts, in
    the pass where that is largest."""
    own = method.for_families()
    passes, last, solved = in_order(family, first, own.solve, whole_total=whole_total)
    found = []
    for program, x in [*((classes.program, one.x) for classes, one in passes), (last, solved.x)]:
        difference = solve_by_cvxpy(method.stated(own.program, program), solver=solver, options={}).x - x
        information = program.known.table[:, program.pattern]
        distance = np.sqrt(np.maximum(np.einsum("ck,ckl,cl->c", difference, information, difference), 0.0))
        worst = int(np.argmax(distance))
        found.append((float(distance[worst]), float(np.abs(difference[worst]).max())))
    return max(found)
