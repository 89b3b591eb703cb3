"""Least squares of the answers to some queries, without computing the histograms.

A query's answers depend on few of the components of the histograms' space (`components`): on those that deviate only in
attributes which it keeps. So a table by race of a nation's blocks needs memory and time for its own answers, not for
all cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Answers, Measurements
from topdown.projection.check.certificate import Certificate, certify, require_certificate, worst_of
from topdown.projection.check.histogram_certificate import component_optimality, largest_of
from topdown.projection.estimate import Answer
from topdown.projection.histograms.components import Component, Components
from topdown.projection.histograms.least_squares import (
    Covariance,
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


@dataclass(frozen=True, eq=False)
class LinearAnswers:
    """Least squares over the whole tree of some queries' answers at every node: unbiased where the noise is.

    ``coordinates`` (nodes, copies, m) of every component that the queries depend on; ``covariance``: of the errors.
    ``certificate``: the residuals of the normal equations.
    """

    method: ClassVar[str] = "gls"
    nonnegative: ClassVar[bool] = False
    weights: ClassVar[str] = "variance"

    geography: Geography
    schema: Schema
    queries: tuple[Query, ...]
    coordinates: tuple[tuple[Component, FloatArray], ...] = field(repr=False)
    covariance: Covariance = field(repr=False)
    certificate: Certificate

    def answers_of(self, nodes: slice, asked: Query) -> Answer:
        """The answers to ``asked`` at ``nodes``, with their variances.

        Raises `ConfigError` for a query that depends on attributes which none of ``queries`` keeps together.
        """
        components = self.covariance.components
        kept = components.kept(asked)
        if not any(kept <= components.kept(query) for query in self.queries):
            raise ConfigError(
                f"query {shown(asked.name)} has attributes that no solved query keeps together; solve for it too"
            )
        turned = components.empty(nodes.stop - nodes.start, kept)
        for component, coordinates in self.coordinates:
            if kept.issuperset(component.deviating):
                components.put(coordinates[nodes], component, turned)
        return Answer(components.answered(asked, turned, kept), self.covariance.variance(asked, nodes))


def linear_answers(measurements: Measurements, queries: Iterable[Query]) -> LinearAnswers:
    """Least squares over all levels of the answers to ``queries``, whose schemas have the measurements' attributes.

    Raises `ProjectionError` naming the node where exact answers contradict each other, or where the normal equations do
    not hold.
    """
    require_zeros(measurements)
    asked = tuple(dict.fromkeys(queries))
    measured = answers_by_level(measurements)
    geography, tree = measurements.geography, measurements.geography.tree
    components = Components(measurements.schema, queries_of(measured))
    largest = largest_of(measured)
    sets = dict.fromkeys(components.kept(query) for query in asked)
    found: dict[tuple[int, ...], tuple[Component, FloatArray]] = {}
    certificates = []
    try:
        for kept in (one for one in sets if not any(one < other for other in sets)):
            wanted = [c for c in components if kept.issuperset(c.deviating) and c.deviating not in found]
            taken = [{q: _taken(components, q, a, wanted, kept) for q, a in level.items()} for level in measured]
            for place, component in enumerate(wanted):
                own = [{q: level[q][place] for q in level if q in component.queries} for level in taken]
                coordinates, _ = solve_blocks(tree, component, component.copies, own, measured, upward=True)
                residuals = component_optimality(coordinates, component, own, measured, largest, components, tree)
                certificates.append(certify([residuals], variances_of(measured), nonnegative=False))
                found[component.deviating] = component, coordinates
    except Contradiction as contradiction:
        raise in_words(geography, contradiction) from None
    certificate = worst_of(certificates)
    require_certificate(certificate, geography, LinearAnswers.method, "tree")
    spread = covariance(
        tree, components, [{q: a.variance for q, a in level.items()} for level in measured], upward=True
    )
    return LinearAnswers(geography, measurements.schema, asked, tuple(found.values()), spread, certificate)


def _taken(
    components: Components, query: Query, answers: Answers, wanted: list[Component], kept: frozenset[int]
) -> list[FloatArray]:
    """The ``answers`` in the coordinates of every ``wanted`` component, (nodes, copies, rows); None where they do not
    depend on it. In batches of nodes, so that no other table is as large as the answers.
    """
    step = max(1, _NUMBERS_AT_ONCE // query.n_answers)
    pieces: list[list[FloatArray]] = [[] for _ in wanted]
    for begin in range(0, len(answers.values), step):
        part = slice(begin, begin + step)
        turned = components.rotated(query, finite(Answers(answers.values[part], answers.variance[part])), kept)
        for place, component in enumerate(wanted):
            if query in component.queries:
                pieces[place].append(np.array(components.taken(query, turned, component)))
    return [np.concatenate(one) if one else np.empty((len(answers.values), 0, 0)) for one in pieces]
