"""Least squares of the answers to some queries, without computing the histograms.

A query's answers depend on few of the components of the histograms' space (`components`): on those that deviate only in
attributes which it keeps, and of these on few of their coordinates. So a table by race of a nation's blocks needs
memory and time for its own answers, not for all cells. Copies of a component are solved some at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, Tree
from topdown.machine.parallel import map_ordered
from topdown.measurements.measurements import Answers, Measurements
from topdown.projection.check.certificate import Certificate, certify, require_certificate, worst_of
from topdown.projection.check.histogram_certificate import component_optimality, largest_of
from topdown.projection.estimate import Answer
from topdown.projection.histograms.components import Component, Components, applied
from topdown.projection.histograms.least_squares import (
    Covariance,
    Measured,
    covariance,
    finite,
    queries_of,
    solve_blocks,
    variances_of,
)
from topdown.projection.invariants import Contradiction, require_zeros
from topdown.projection.solver_inputs import answers_by_level, in_words
from topdown.wording import shown
from topdown.workload import Query, Schema

_NUMBERS_AT_ONCE = 1 << 18
"""Answers that are transformed to coordinates at once; larger tables would spend most time on new memory pages."""


_SOLVED_AT_ONCE = 1 << 23
"""Coordinates of a component that are solved at once: the solution takes several times their memory."""

_OUTSIDE = 1e-9
"""What a query asks is known where at most this part of it is outside of what was kept."""


class Coordinates(NamedTuple):
    """Of a ``component`` the coordinates on which answers depend: ``values`` (nodes, copies, r) along the orthonormal
    ``basis`` (m, r)."""

    component: Component
    basis: FloatArray
    values: FloatArray


@dataclass(frozen=True, eq=False)
class LinearAnswers:
    """Least squares over the whole tree of some queries' answers at every node: unbiased where the noise is.

    ``coordinates``: of every component that the queries depend on; ``covariance``: of the errors. ``certificate``: the
    residuals of the normal equations.
    """

    method: ClassVar[str] = "gls"
    nonnegative: ClassVar[bool] = False
    weights: ClassVar[str] = "variance"

    geography: Geography
    schema: Schema
    queries: tuple[Query, ...]
    coordinates: tuple[Coordinates, ...] = field(repr=False)
    covariance: Covariance = field(repr=False)
    certificate: Certificate

    def answers_of(self, nodes: slice, asked: Query) -> Answer:
        """The answers to ``asked`` at ``nodes``, with their variances.

        Raises `ConfigError` for a query that depends on more than ``queries`` do.
        """
        components = self.covariance.components
        deviating = components.deviating(asked)
        known = {one.component.deviating: one for one in self.coordinates}
        turned = components.empty(nodes.stop - nodes.start, deviating)
        for component in components:
            if not deviating.issuperset(component.deviating):
                continue
            one, design = known.get(component.deviating), components.within_design(asked, component.deviating)
            rest = design if one is None else design - design @ one.basis @ one.basis.T
            if one is None or np.abs(rest).max() > _OUTSIDE * np.abs(design).max():
                name = shown(asked.name)
                raise ConfigError(f"query {name} asks for more than the solved queries do; solve for it too")
            components.put(applied(one.values[nodes], one.basis.T), component, turned)
        return Answer(components.answered(asked, turned, deviating), self.covariance.variance(asked, nodes))


def linear_answers(
    measurements: Measurements, queries: Iterable[Query], executor: Executor | None = None
) -> LinearAnswers:
    """Least squares over all levels of the answers to ``queries``, whose schemas have the measurements' attributes.

    ``executor``: threads, which do not change the result. Raises `ProjectionError` naming the node where exact answers
    contradict each other, or where the normal equations do not hold.
    """
    require_zeros(measurements)
    asked = tuple(dict.fromkeys(queries))
    measured = answers_by_level(measurements)
    geography, tree = measurements.geography, measurements.geography.tree
    components = Components(measurements.schema, queries_of(measured))
    largest = largest_of(measured)
    sets = dict.fromkeys(components.deviating(query) for query in asked)
    found: dict[tuple[int, ...], Coordinates] = {}
    certificates: list[Certificate] = []
    try:
        for kept in (one for one in sets if not any(one < other for other in sets)):
            wanted = [c for c in components if kept.issuperset(c.deviating) and c.deviating not in found]
            taken = [{q: _taken(components, q, a, wanted, kept) for q, a in level.items()} for level in measured]
            for component in wanted:
                # Removed there, so that no more than is still to be solved remains in memory.
                own = [{q: level[q].pop(component) for q in level if component in level[q]} for level in taken]
                basis = _asked_of(components, component, asked)
                solve = partial(_solved, tree, components, component, basis, own, measured, largest)
                values = np.empty((tree.n_nodes, component.copies, basis.shape[1]))
                step = max(1, _SOLVED_AT_ONCE // (tree.n_nodes * component.size))
                copies = [slice(k, min(k + step, component.copies)) for k in range(0, component.copies, step)]
                for some, (solution, certificate) in zip(copies, map_ordered(solve, copies, executor), strict=True):
                    values[:, some] = solution
                    certificates.append(certificate)
                found[component.deviating] = Coordinates(component, basis, values)
    except Contradiction as contradiction:
        raise in_words(geography, contradiction) from None
    certificate = worst_of(certificates)
    require_certificate(certificate, geography, LinearAnswers.method, "tree")
    spread = covariance(
        tree, components, [{q: a.variance for q, a in level.items()} for level in measured], upward=True
    )
    return LinearAnswers(geography, measurements.schema, asked, tuple(found.values()), spread, certificate)


def _solved(
    tree: Tree,
    components: Components,
    component: Component,
    basis: FloatArray,
    taken: list[dict[Query, FloatArray]],
    measured: Measured,
    largest: list[dict[Query, FloatArray]],
    copies: slice,
) -> tuple[FloatArray, Certificate]:
    """The coordinates (nodes, copies, r) of some ``copies`` of a ``component`` along a ``basis`` (m, r), and the
    certificate of all of theirs."""
    own = [{query: values[:, copies] for query, values in level.items()} for level in taken]
    coordinates, _ = solve_blocks(tree, component, copies.stop - copies.start, own, measured, upward=True)
    residuals = component_optimality(coordinates, component, own, measured, largest, components, tree)
    return applied(coordinates, basis), certify([residuals], variances_of(measured), nonnegative=False)


def _asked_of(components: Components, component: Component, asked: Sequence[Query]) -> FloatArray:
    """An orthonormal basis (m, r) of the coordinates of a ``component`` on which the answers to ``asked`` depend."""
    designs = [
        components.within_design(query, component.deviating)
        for query in asked
        if components.deviating(query).issuperset(component.deviating)
    ]
    _, lengths, directions = np.linalg.svd(
        np.concatenate([np.zeros((1, component.size)), *designs]), full_matrices=False
    )
    return np.asarray(directions[lengths > _OUTSIDE * lengths.max(initial=1.0)].T)


def _taken(
    components: Components, query: Query, answers: Answers, wanted: list[Component], kept: frozenset[int]
) -> dict[Component, FloatArray]:
    """The ``answers`` in the coordinates of every ``wanted`` component on which they depend, (nodes, copies, rows). In
    batches of nodes, so that no other table is as large as the answers.
    """
    step = max(1, _NUMBERS_AT_ONCE // query.n_answers)
    pieces: dict[Component, list[FloatArray]] = {c: [] for c in wanted if query in c.queries}
    for begin in range(0, len(answers.values), step):
        part = slice(begin, begin + step)
        turned = components.rotated(query, finite(Answers(answers.values[part], answers.variance[part])), kept)
        for component, found in pieces.items():
            found.append(np.array(components.taken(query, turned, component)))
    return {component: np.concatenate(found) for component, found in pieces.items()}
