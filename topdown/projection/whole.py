"""Whole histograms from the root down: every family is projected beneath its parent's whole histogram, then rounded.

So a child has records only where its parent has some, and what is kept of a node is its records and not its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray
from topdown.machine.parallel import thread_pool
from topdown.measurements.measurements import Measurements
from topdown.noise import KeyedSource, Source
from topdown.noise.randomness import read_exactly
from topdown.projection.certificate import Certificate
from topdown.projection.families import Descent, Family, Programs, Sparse, descend
from topdown.projection.flow import Network, chain, nearest, network, unbiased
from topdown.projection.invariants import Contradiction, require_zeros
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import Method
from topdown.projection.passes import Order
from topdown.projection.rounding import SNAP
from topdown.projection.several import certificate_of, descent_of, in_words


@dataclass(frozen=True)
class FamilyRounding:
    """A way to make a family's histograms whole. ``words``: what it gives. ``solve``: from a network, with a source."""

    name: str
    words: str
    solve: Callable[[Network, Source], np.ndarray]


FAMILY_ROUNDINGS: dict[str, FamilyRounding] = {
    rounding.name: rounding
    for rounding in (
        FamilyRounding("nearest", "the nearest whole numbers between floors and ceilings", nearest),
        FamilyRounding("unbiased", "random whole numbers whose expectation is the fractional ones", unbiased),
    )
}
"""Every rounding of families by its name: the only place where a name becomes one."""


class Whole(NamedTuple):
    """Whole histograms, the root's first, the certificate of the families' programs that they were rounded from, and
    what these programs were made of."""

    histograms: list[Sparse]
    certificate: Certificate
    descent: Descent


class WholeProjection(NamedTuple):
    """How whole histograms were made non-negative, for whoever describes them."""

    method: str
    weights: str
    certificate: Certificate
    nonnegative: bool = True
    programs: Programs | None = None
    order: Mapping[str, Sequence[str]] = MappingProxyType({})


def whole_histograms(
    measurements: Measurements,
    method: Method,
    rounding: FamilyRounding,
    weights: str,
    source: Source,
    limits: AnswerLimits | None = None,
    workers: int | None = None,
    upward: str | None = None,
    order: Order | None = None,
) -> Whole:
    """Non-negative whole histograms of every node, within ``limits``; every family adds up in every cell.

    A child's total, and its sums along a chain of nested queries (`flow.chain`) in which all exact ones are, are the
    floor or the ceiling of what its program says. ``source``: a key is drawn from it, and every family's randomness
    comes from its own stream under that key, so that nothing depends on who works when. ``workers``: threads.
    ``upward``: where the upward pass starts (`upward_start`). ``order``: the queries that are settled first (`passes`).
    Raises `ConfigError` for a method that has no solver of
    families, `ProjectionError` naming the node where exact answers contradict each other.
    """
    own = method.for_families()
    require_zeros(measurements)
    geography = measurements.geography
    ties = KeyedSource(read_exactly(source, 32))
    try:
        descent = descent_of(measurements, method, weights, limits, upward, order)
        descent = replace(descent, whole_total=rounding.name == "nearest")
        with thread_pool(workers) as pool:
            found, checks = descend(descent, own, pool, settler(descent, rounding, ties))
    except Contradiction as contradiction:
        raise in_words(geography, contradiction) from None
    most = max((float(one.values.max(initial=0.0)) for one in found), default=0.0)
    return Whole(found, certificate_of(checks, measurements, most), descent)


def settler(
    descent: Descent, rounding: FamilyRounding, ties: KeyedSource, places: Sequence[tuple[int, int]] | None = None
) -> Callable[[int, slice, Family, FloatArray], FloatArray]:
    """What makes a family's solution whole before its children are solved, as `descend` takes it; every family's
    randomness comes from its own stream under the key of ``ties``.

    ``places``: for a piece of a larger tree, level by level, the level's number there and the first node's in it.
    """
    held = dict.fromkeys(query for level in descent.conditions.limits for query in level)
    groups = chain(descent.patterns.schema, tuple(held))

    def settle(index: int, nodes: slice, family: Family, x: FloatArray) -> FloatArray:
        level, first = (index, 0) if places is None else places[index]
        drawn = ties.spawn("rounding", str(level), str(first + nodes.start))
        net = network(x, family.total, [query.answers_of(family.cells) for query in groups])
        return np.asarray(rounding.solve(net, drawn), dtype=np.float64)

    return settle


def require_whole(measurements: Measurements) -> None:
    """Refuse exact answers that are not whole: no whole histograms have them. Raises `ProjectionError`."""
    for level in measurements.geography.levels:
        first = measurements.geography.level_slice(level).start
        for query, (values, variance) in measurements.at(level).items():
            exact = np.flatnonzero((variance == 0).reshape(len(values), -1).any(axis=1))
            known = np.asarray(values)[exact]
            wrong = exact[(np.abs(known - np.rint(known)) > SNAP).any(axis=1)]
            if len(wrong):
                raise ProjectionError(
                    f"{measurements.geography.describe(first + int(wrong[0]))}: its exact {query.name!r} is not "
                    "whole, so no consistent whole numbers exist; correct it"
                )
