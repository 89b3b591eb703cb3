"""Histograms from the root down, family by family, fractional or whole.

Whole histograms are rounded during the descent: every family is projected so that it adds up to its parent's whole
histogram, then rounded. So a child has records only where its parent has some, and a node is stored as its records, not
as all cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray
from topdown.machine.parallel import thread_pool
from topdown.measurements.measurements import Measurements
from topdown.noise import KeyedSource, Source
from topdown.noise.randomness import read_exactly
from topdown.projection.cells.rounding import SNAP
from topdown.projection.check.certificate import FAMILY_TOLERANCE, Certificate
from topdown.projection.histograms.families import Descent, Family, Programs, Settle, Sparse, certificate_of, descend
from topdown.projection.histograms.flow import chain, network
from topdown.projection.histograms.passes import Order
from topdown.projection.invariants import Contradiction, require_zeros
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import Method
from topdown.projection.rounding_method import Rounding
from topdown.projection.solver_inputs import answers_by_level, descent_of, in_words
from topdown.workload import Query


class Histograms(NamedTuple):
    """Histograms, the root's first; the certificate of the families' programs; and the input of these programs."""

    histograms: list[Sparse]
    certificate: Certificate
    descent: Descent


class WholeProjection(NamedTuple):
    """How whole histograms were made non-negative, for the manifest."""

    method: str
    weights: str
    certificate: Certificate
    nonnegative: bool = True
    programs: Programs | None = None
    order: Mapping[str, Sequence[str]] = MappingProxyType({})


def histograms_down(
    measurements: Measurements,
    method: Method,
    weights: str,
    limits: AnswerLimits | None = None,
    upward: str | None = None,
    order: Order | None = None,
    *,
    whole: tuple[Rounding, Source] | None = None,
    workers: int | None = None,
    tolerance: float = FAMILY_TOLERANCE,
) -> Histograms:
    """Non-negative histograms of every node, within ``limits``; every family adds up in every cell.

    Uses what was measured at every node and, where the method has an upward pass, below it, from the level that
    ``upward`` names (`upward_start`); the answers to the queries of ``order`` are made non-negative first (`passes`).
    ``whole``: a rounding and a source, where they are to be whole: a child's total, and its sums along a chain of
    nested queries (`flow.chain`) in which all exact ones are, are then the floor or the ceiling of their values in its
    program's solution, unless no counts of its children fit these (`mending`). A key is drawn from the source, and
    every family's randomness comes from its own stream under that key, so that the result does not depend on the order
    of the work. ``workers``: threads. ``tolerance``: the certificate's. Raises `ConfigError` for a method that has no
    solver of families and a rounding that does not make them whole, `ProjectionError` naming the node where exact
    answers contradict each other.
    """
    own = method.for_families()
    require_zeros(measurements)
    try:
        descent, settle = descent_of(measurements, method, weights, limits, upward, order), None
        if whole is not None:
            rounding, source = whole
            descent = replace(descent, whole_total=rounding.whole_total)
            settle = settler(descent, rounding, KeyedSource(read_exactly(source, 32)))
        with thread_pool(workers) as pool:
            found = descend(descent, own, pool, settle)
    except Contradiction as contradiction:
        raise in_words(measurements.geography, contradiction) from None
    certificate = certificate_of(found.residuals, answers_by_level(measurements), tolerance)
    return Histograms(found.histograms, certificate, descent)


def settler(
    descent: Descent,
    rounding: Rounding,
    ties: KeyedSource,
    places: Sequence[tuple[int, int]] | None = None,
    held: Iterable[Query] = (),
) -> Settle:
    """A function that rounds a family's solution before its children are solved, as `descend` takes it; every family's
    randomness comes from its own stream under the key of ``ties``.

    ``places``: for a piece of a larger tree, level by level, the level's number there and the first node's in it;
    ``held``: the queries that are exact, or have limits, anywhere in that tree. Raises `ConfigError` for a rounding
    that does not make histograms whole.
    """
    solve = rounding.for_families()
    here = (query for level in descent.conditions.limits for query in level)
    groups = chain(descent.patterns.schema, tuple(dict.fromkeys([*here, *held])))

    def settle(index: int, nodes: slice, family: Family, x: FloatArray) -> FloatArray:
        level, first = (index, 0) if places is None else places[index]
        drawn = ties.spawn("rounding", str(level), str(first + nodes.start))
        net = network(x, family.total, [query.answers_of(family.cells) for query in groups])
        return np.asarray(solve(net, drawn), dtype=np.float64)

    return settle


def require_whole(measurements: Measurements) -> None:
    """Refuse exact answers that are not whole, which no whole histograms can have. Raises `ProjectionError`."""
    for level in measurements.geography.levels:
        first = measurements.geography.level_slice(level).start
        for query, (values, variance) in measurements.at(level).items():
            exact = np.flatnonzero((variance == 0).reshape(len(values), -1).any(axis=1))
            known = np.asarray(values[exact])
            wrong = exact[(np.abs(known - np.rint(known)) > SNAP).any(axis=1)]
            if len(wrong):
                raise ProjectionError(
                    f"{measurements.geography.describe(first + int(wrong[0]))}: its exact {query.name!r} is not "
                    "whole, so no consistent whole numbers exist; correct it"
                )
