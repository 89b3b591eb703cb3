"""Estimates at units that are sums of measured nodes: of the published geography, and areas, where noise is measured on
a spine.

Sums of consistent estimates are consistent, and of least squares' they are least squares'. Their variances are those of
sums over nodes (`sum_errors`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.geography.unit_sums import UnitSums
from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.least_squares import BlockCovariance, Covariance, queries_of
from topdown.projection.histograms.linear_answers import LinearAnswers
from topdown.projection.solver_inputs import answers_by_level
from topdown.projection.sum_errors import SumErrors, Weighted, touched
from topdown.workload import DETAILED, Query, Schema

ONE_CELL = Schema.of_cells(["cell"])
"""Of the cells where these alone were measured: all have noise of the same laws, each its own."""


def error_sums(measurements: Measurements) -> SumErrors:
    """The errors of sums over nodes by least squares of ``measurements``, in which every node has one variance; of a
    cell where the cells alone were measured."""
    geography, schema = measurements.geography, measurements.schema
    if measurements.others:
        measured = answers_by_level(measurements)
        variance = [{query: one.variance for query, one in level.items()} for level in measured]
        return SumErrors(geography.tree, Components(schema, queries_of(measured)), variance)
    query = Query.parse(DETAILED, ONE_CELL)
    of_levels = [{query: measurements.node_variance[geography.level_slice(level)]} for level in geography.levels]
    return SumErrors(geography.tree, Components(ONE_CELL, (query,)), of_levels)


def estimates_at(units: UnitSums, linear: Estimate | LinearAnswers, errors: SumErrors) -> Estimate | LinearAnswers:
    """``linear`` estimates of the measured nodes at ``units``; ``errors``: of sums over the nodes."""
    if isinstance(linear, LinearAnswers):
        coordinates = tuple(one._replace(values=units.summed(one.values)) for one in linear.coordinates)
        covariance = _covariance(units, linear.covariance, errors)
        return replace(linear, geography=units.geography, coordinates=coordinates, covariance=covariance)
    known = None if linear.covariance is None else _covariance(units, linear.covariance, errors)
    return replace(
        linear,
        geography=units.geography,
        values=units.summed(linear.values),
        variance=_variance(units, linear, known, errors),
        exact=units.all_of(linear.exact),
        covariance=known,
    )


def _variance(units: UnitSums, linear: Estimate, known: Covariance | None, errors: SumErrors) -> FloatArray | None:
    """The variances (units x cells), None where they are not known."""
    if linear.variance is None:
        return None
    if known is not None:
        found = known.variance(Query.parse(DETAILED, linear.schema), slice(0, units.geography.n_nodes))
        return np.where(found < errors.negligible, 0.0, found)
    several, found = np.flatnonzero(units.alone < 0), linear.variance[units.alone]
    if len(several):
        found[several] = errors.variances(Weighted.over(units, several), Query.parse(DETAILED, ONE_CELL))
    found[:, linear.schema.impossible_cells()] = 0.0
    return found


def _covariance(units: UnitSums, known: Covariance, errors: SumErrors) -> Covariance:
    """The covariances at ``units`` where ``known`` are those at the nodes."""
    blocks = [[BlockCovariance(*(table[units.alone] for table in one)) for one in blocks] for blocks in known.blocks]
    several = np.flatnonzero(units.alone < 0)
    entries = touched(Weighted.over(units, several), errors.tree)
    for component, of_units in zip(errors.components, blocks, strict=True) if len(several) else ():
        for into, own in zip(of_units, errors.of_component(entries, component, len(several)), strict=True):
            into.finite[several], into.diffuse[several] = own
    return Covariance(known.components, tuple(map(tuple, blocks)))
