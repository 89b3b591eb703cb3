"""Which law the noise of every level has, as far as margins need it; and refusals where it is not known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, Tree
from topdown.measurements.measurements import Measurements
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Law
from topdown.privacy.only_child import groups, law_of, levels_taken
from topdown.wording import shown
from topdown.workload import DETAILED

KindArray = npt.NDArray[np.int32]

_SMALLEST_TERM = 1e-300
_WIDE_GAUSSIAN = 4.0
"""The variance, in squared steps of its lattice, from which a discrete Gaussian's fourth cumulant is below 1e-30."""


@dataclass(frozen=True, eq=False)
class KnownNoise:
    """The noise of the detailed query: its ``laws``, first level by level (None: exact, or not measured), then of nodes
    that have others, and their fourth ``cumulants``. ``kind`` (nodes,): which of them is whose; None where all have
    their level's.
    """

    laws: tuple[Law | None, ...]
    cumulants: FloatArray
    kind: KindArray | None = None

    def kinds(self, tree: Tree) -> KindArray:
        """The number of every node's law (nodes,)."""
        return level_of_nodes(tree) if self.kind is None else self.kind

    @cached_property
    def variances(self) -> FloatArray:
        """Of every law; 0 where there is none."""
        return np.array([0.0 if law is None else float(law.variance) for law in self.laws])


def known_noise(measurements: Measurements) -> KnownNoise:
    """The laws under which ``measurements`` of the cells were drawn.

    Raises `ConfigError` where no plan says what the law is, where it is bounded (an interval then has no pivot), or
    where the variances are not the plan's.
    """
    require_pivot(measurements)
    if measurements.others:
        raise ConfigError(
            "several queries were measured: td.margins and td.region have their margins under Gaussian noise, and "
            "files have none"
        )
    plan = measurements.plan
    assert plan is not None  # nosec B101 # narrows a type: `require_pivot` refuses
    geography = measurements.geography
    drawn = [DETAILED in plan.queries(level) and not plan.is_exact(level) for level in geography.levels]
    laws = [plan.law(level) if has else None for level, has in zip(geography.levels, drawn, strict=True)]
    taken = levels_taken(plan, geography)
    kind = None
    for index, level in enumerate(geography.levels):
        if not drawn[index]:
            continue
        nodes = geography.level_slice(level)
        for number, part in groups(taken, nodes):
            if number > 0:
                kind = level_of_nodes(geography.tree) if kind is None else kind
                kind[nodes][part] = len(laws)
                laws.append(law_of(plan, geography.levels, level, DETAILED, number))
    found = KnownNoise(tuple(laws), np.array([0.0 if law is None else fourth_cumulant(law) for law in laws]), kind)
    _require_variances(measurements, found)
    return found


def level_of_nodes(tree: Tree) -> KindArray:
    """The number of every node's level (nodes,)."""
    return np.repeat(np.arange(tree.n_levels, dtype=np.int32), np.diff(tree.level_offsets))


def _require_variances(measurements: Measurements, noise: KnownNoise) -> None:
    variance, known, geography = measurements.node_variance, noise.variances, measurements.geography
    # Level by level, so that nothing is made for every node where a level has one law.
    for index, level in enumerate(geography.levels):
        nodes = geography.tree.level(index)
        expected = known[[index]] if noise.kind is None else known[noise.kind[nodes]]
        expected = np.broadcast_to(expected, nodes.stop - nodes.start)
        if variance.ndim > 1:  # of every cell its own, which no plan has
            raise _other_variance(level, float(variance[nodes][0, 0]), float(expected[0]))
        require_variances(level, variance[nodes], expected)


def require_variances(level: str, found: FloatArray, stated: FloatArray) -> None:
    """Raises `ConfigError` where measurements with noise, whose variances were ``found`` (nodes,), have not those
    ``stated``."""
    other = np.flatnonzero(found != stated)
    found, stated = found[other], stated[other]
    wrong = (found > 0) & np.isfinite(found) & (np.abs(found - stated) > 1e-6 * stated)
    if wrong.any():
        raise _other_variance(level, float(found[wrong][0]), float(stated[wrong][0]))


def _other_variance(level: str, found: float, stated: float) -> ConfigError:
    return ConfigError(
        f"level {shown(level)}: measurements of variance {found:.6g}, where the plan's noise has {stated:.6g}; give "
        "the plan under which they were drawn"
    )


def no_margins(measurements: Measurements) -> str | None:
    """Why margins of ``measurements`` cannot be known; None where they can."""
    try:
        known_noise(measurements)
    except ConfigError as error:
        return str(error)
    return None


def require_pivot(measurements: Measurements) -> None:
    """Raises `ConfigError` unless estimate less truth is a known combination of noise whose law is known."""
    plan = measurements.plan
    if plan is None and measurements.mechanism is not None:
        return
    if plan is None:
        raise ConfigError(
            "these measurements come without a plan, and a variance alone does not say how far noise reaches; margins "
            "need, beside value and variance, the mechanism and its parameter (scale or sigma2) at every level: set "
            "Measurements.plan to the plan under which they were drawn"
        )
    bounded = [level for level in measurements.geography.levels if plan.bounds.at(level).kind != "none"]
    if bounded:
        raise ConfigError(
            f"level {shown(bounded[0])} has bounded noise, whose law depends on the true count, so that no margin of "
            'error can be known from measurements; measure with noise.bounds = "none", or read the bounds\' own study'
        )


@lru_cache(maxsize=256)
def fourth_cumulant(law: Law) -> float:
    """E X^4 - 3 (E X^2)^2 of a law of noise, in counts^4.

    Of the double-sided geometric law with a = exp(-1 / scale): 2a (1 + 4a + a^2) / (1 - a)^4, from the derivatives of
    log cf = 2 log(1 - a) - log(1 - 2a cos t + a^2); of the Laplace law 12 scale^4; of normal laws 0, and of narrow
    discrete Gaussians by summation. Raises `ConfigError` for another law.
    """
    match law:
        case DiscreteLaplace():
            rate = float(1 / (law.scale * (1 << law.grid_bits)))
            a = math.exp(-rate)
            moved = -math.expm1(-rate)
            return 2.0 * a * (1.0 + 4.0 * a + a * a) / moved**4 * 16.0**-law.grid_bits
        case DiscreteGaussian():
            return _gaussian_cumulant(law)
        case Laplace():
            return 12.0 * law.scale**4
        case Gaussian():
            return 0.0
    raise ConfigError(f"the fourth cumulant of {type(law).__name__} is not known; margins need it")


def _gaussian_cumulant(law: DiscreteGaussian) -> float:
    narrow = law.variance * 4.0**law.grid_bits
    if narrow > _WIDE_GAUSSIAN:
        return 0.0
    k = np.arange(1, 100) * 2.0**-law.grid_bits
    mass = law.pmf(k)
    second, fourth = (float(2.0 * (mass * k**power).sum()) for power in (2, 4))
    return max(fourth - 3.0 * second**2, 0.0) if second > _SMALLEST_TERM else 0.0
