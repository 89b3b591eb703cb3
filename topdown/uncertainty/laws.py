"""The laws of the errors of a tree's nodes where the cells alone were measured: their moments, and their shapes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.projection.solver_inputs import stated
from topdown.uncertainty.alike import Alike
from topdown.uncertainty.groups import Groups, groups
from topdown.uncertainty.known_noise import KnownNoise
from topdown.uncertainty.moments import Moments, Upward, main_terms, moments

NO_NOISE = 1e-20
"""A variance in counts^2 so small that noise which moves a whole number is never met: what it is on counts as exact."""


NodeLaws: TypeAlias = tuple[FloatArray, Groups]
"""The variance of every node's estimate (nodes,), the same in every cell, and the shapes of their laws."""


def laws_of_nodes(measurements: Measurements, noise: KnownNoise) -> NodeLaws:
    """The laws of the errors of least squares of one query's ``measurements``."""
    alike, found, own = _pivots(measurements, noise)
    terms = main_terms(found, own, noise.variances, alike.tree, noise.kinds(measurements.geography.tree)[alike.nodes])
    laws = groups(found, terms, noise)
    return alike.everywhere(found.variance), laws._replace(group=alike.everywhere(laws.group))


def pivots(measurements: Measurements, noise: KnownNoise) -> tuple[Moments, FloatArray]:
    """The moments of every node's error, and the variances (nodes,) of the measurements, exact ones settled."""
    alike, found, variance = _pivots(measurements, noise)
    upward = Upward(*(alike.everywhere(column) for column in found.upward))
    spread, cumulant, inner, parent = (
        alike.everywhere(column) for column in (found.variance, found.cumulant, found.inner, found.parent)
    )
    return Moments(spread, cumulant, inner, parent, upward), alike.everywhere(variance)


def _pivots(measurements: Measurements, noise: KnownNoise) -> tuple[Alike, Moments, FloatArray]:
    """As `pivots`, with one leaf in place of several that are alike."""
    tree = measurements.geography.tree
    variance = measurements.node_variance
    if (variance == 0).any():  # what is above exact values alone is exact itself
        variance = stated(measurements, "variance", nonnegative=False, cells=slice(0, 1)).variance.reshape(-1)
    kind = noise.kinds(tree)
    alike = Alike.of(tree, variance, kind)
    variance, cumulant = variance[alike.nodes], noise.cumulants[kind[alike.nodes]]
    cumulant = np.where((variance > 0) & np.isfinite(variance), cumulant, 0.0)
    found = moments(variance, cumulant, alike.tree)
    return alike, found._replace(variance=np.where(found.variance <= NO_NOISE, 0.0, found.variance)), variance
