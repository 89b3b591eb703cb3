"""The law of errors where several queries were measured: every answer's is a sum of much noise, with one bound."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from topdown.errors import ConfigError
from topdown.measurements.measurements import Measurements
from topdown.noise import DiscreteGaussian, Law
from topdown.privacy.mechanism import EPSILON, MECHANISMS
from topdown.uncertainty.error_law import NORMAL, AnyShape, Envelope, Shape, Term
from topdown.uncertainty.known_noise import fourth_cumulant, require_pivot
from topdown.wording import shown

_NORMAL_EXCESS = 0.02
"""Of the noise's law: a normal law then misses within .0002 of nominal."""
_LARGEST_EXCESS = 3.6
"""Of the noise's law: that of geometric noise of a deviation of 1.3. Narrower noise falls in large steps."""
_LAPLACE_EXCESS = 3.0


def shape_of_answers(measurements: Measurements) -> AnyShape:
    """The shape of the law of every answer's error, as `bounding_shape` has it.

    Raises `ConfigError` as `require_pivot` does, and for noise that falls in steps which no such law covers, naming
    level and query.
    """
    require_pivot(measurements)
    for level, query, law in _laws(measurements):
        if _excess(law) > _LARGEST_EXCESS:
            raise ConfigError(
                f"level {shown(level)}, query {shown(query)}: noise of a standard deviation of {float(law.std):.3g} "
                "counts falls in steps, and where several queries are measured no margin is known for it; measure with "
                "less budget, or the cells alone"
            )
    return bounding_shape(measurements)


def bounding_shape(measurements: Measurements) -> AnyShape:
    """A shape that reaches as far as any sum of the noise of ``measurements``, whose mechanism is known.

    Of Gaussian noise the normal one. Of Laplace and geometric noise the law lies between a normal law, a Laplace law
    and the noise's own: at every point the largest of their tails is taken.
    """
    others = {law: _excess(law) for _, _, law in _laws(measurements) if _excess(law) > _NORMAL_EXCESS}
    if not others:
        return NORMAL
    laplace = Shape((), max(_LAPLACE_EXCESS, *others.values()))
    return Envelope((NORMAL, laplace, *(Shape((Term(law, 1, 1.0),), 0.0) for law in others)))


def _laws(measurements: Measurements) -> Iterator[tuple[str, str, Law]]:
    """The law of every level's query that is noisy; where a mechanism is known and no plan, of its narrowest noise,
    which is the least normal."""
    plan, mechanism = measurements.plan, measurements.mechanism
    if plan is None and MECHANISMS[str(mechanism)].currency == EPSILON:
        raise ConfigError(
            f"the noise is {mechanism}, and its plan is not known: where several queries are measured, margins are "
            "then known for Gaussian noise"
        )
    for level in measurements.geography.levels:
        for query, (_, variance) in measurements.at(level).items():
            if plan is not None:
                law = plan.law(level, query.name)
                if law is not None:
                    yield level, query.name, law
                continue
            narrowest = float(variance[variance > 0].min(initial=np.inf))
            if np.isfinite(narrowest):
                yield level, query.name, DiscreteGaussian.from_variance(narrowest)


def _excess(law: Law) -> float:
    return fourth_cumulant(law) / float(law.variance) ** 2 if law.variance > 0 else 0.0
