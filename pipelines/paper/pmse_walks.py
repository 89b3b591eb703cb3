"""The pMSE mechanism's random walks: the paper's, and two with proposals anywhere, whose chains agree.

All have the flat prior N(0, 100000) of the paper, four chains that start away from the true parameters, by two of their
own sizes, and a deviation's size for its sign: a deviation and its negative are the same law.

* ``steps``: normal steps alone, as wide as the law at its epsilon; one synthetic set a step.
* ``jumps``: three quarters of the proposals come from a mixture (`topdown.research.pmse.chains.Jumps`): the place where
  records fit, as a walk at epsilon 1 found it, the same wider, and wider until the prior. So a chain passes from
  records that fit to the prior's tails and back, as often as either has its share.
* ``near``: the same among parameters whose records fit, with a pMSE below 0.2, and nowhere else; for epsilon up to 1.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from pmse_common import EPSILONS, TRUTH, flat_family, judge, original, settings_of, spread_of
from resumable import repeats_of

from topdown.noise import SeededSource, exact_fraction
from topdown.research.pmse.chains import Chains, Jumps, estimated_log_density, metropolis
from topdown.research.pmse.comparators import regression_coefficients
from topdown.research.pmse.generators import numpy_generator
from topdown.research.pmse.pmse_mechanism import ExpectedPMSE
from topdown.research.pmse.quality import mean_pmse

WALKS = {"steps": "random walk", "near": "walk with jumps, pMSE < 0.2", "jumps": "walk with jumps"}
"""Their names in tables."""

_DEVIATIONS = [1, 4]
"""Which of the parameters are deviations."""

_WIDTH = np.array([0.5, 0.5, 0.3, 0.05, 0.3])
"""Of a step at epsilon 4."""

_SETS = {"4": 8, "2": 2}
"""Of how many sets a walk with jumps takes the mean at a step: of one, at epsilon 4, the estimate's noise would be 2.6
in the log of the density, so that a chain stays for hundreds of steps where one came out low."""

_NEAR = 0.2

_FIRST_STEPS, _ADAPTING = 1000, 400
"""Steps of the walk at epsilon 1 that finds where records fit, and draws that decide the shares of the jumps."""

_STRETCHES = (
    (0.35, (1, 1, 1, 1, 1)),
    (0.1, (3, 3, 3, 3, 3)),
    (0.05, (9, 9, 9, 9, 9)),
    (0.05, (12, 12, 2, 2, 2)),
    (0.05, (2, 2, 12, 12, 12)),
    (0.05, (2, 2, 2, 2, 12)),
)
"""Shares of the jumps, and how much wider than where records fit: in all parameters, in a column's, in the second
deviation alone, which at epsilon 1/4 reaches ten times its true value."""

_JUDGED = 20
"""How often l sets from other points of a walk with jumps are measured."""


def walked(arguments: argparse.Namespace) -> pd.DataFrame:
    """By method, repeat and epsilon: the walk's R-hat, the mean pMSE of synthetic sets from it, and the mean absolute
    errors of their mean regression coefficients; empty where ``--steps`` is 0.

    Four chains of thousands of trees take many minutes: they are kept by epsilon.
    """
    if not arguments.steps:
        return pd.DataFrame({name: [] for name in ("method", "epsilon", "rhat", "pmse", "intercept", "slope")})
    settings = settings_of(arguments) | {"steps": arguments.steps}
    del settings["candidates"]
    jumping = _Jumping(arguments)
    plans: list[tuple[str, Any, Callable[[int, Any], list[dict[str, object]]]]] = [
        ("pmse_walk", EPSILONS[::-1], lambda number, epsilon: _by_steps(arguments, number, epsilon)),
        ("pmse_walk_near", EPSILONS[:3], lambda number, epsilon: jumping.row("near", number, epsilon)),
        ("pmse_walk_jumps", EPSILONS, lambda number, epsilon: jumping.row("jumps", number, epsilon)),
    ]
    found = []
    for method, (name, epsilons, row) in zip(WALKS.values(), plans, strict=True):

        def repeat(number: int, epsilons=epsilons, row=row) -> list[dict[str, object]]:
            walk_number, position = divmod(number, len(epsilons))
            return row(walk_number, epsilons[position])

        found.append(repeats_of(name, arguments.walks * len(epsilons), settings, repeat).assign(method=method))
    return pd.concat(found)


def _by_steps(arguments: argparse.Namespace, number: int, epsilon: Any) -> list[dict[str, object]]:
    """The row of the paper's random walk; l sets from its chains' ends."""
    data = original(arguments, SeededSource((arguments.seed, "walk", number)))
    source = SeededSource((arguments.seed, "walk", number, str(epsilon)))
    quality = ExpectedPMSE(judge(arguments), sets=1, bound="paper")
    walk = _later_halves(arguments, data, epsilon, source, quality, arguments.steps)
    sets = [flat_family(arguments).sample(walk.draw(source), len(data), source) for _ in range(arguments.sets)]
    return [_row(arguments, data, epsilon, walk, [sets])]


def _later_halves(
    arguments: argparse.Namespace,
    data: np.ndarray,
    epsilon: Any,
    source: SeededSource,
    quality: ExpectedPMSE,
    steps: int,
    jumps: Jumps | None = None,
) -> Chains:
    """The later halves of four chains for one set's part of epsilon, with the deviations' sizes for their signs."""
    rng = np.random.default_rng(int.from_bytes(source.read(8), "little"))
    factor = exact_fraction(epsilon)
    walk = metropolis(
        flat_family(arguments),
        data,
        factor / arguments.sets,
        source=source,
        quality=quality,
        steps=steps,
        starts=TRUTH + rng.choice([-2.0, 2.0], (4, len(TRUTH))) * np.abs(TRUTH),
        step=_WIDTH * np.sqrt(4 / float(factor)),
        jumps=jumps,
    )
    later = walk.parameters[:, steps // 2 :].copy()
    later[..., _DEVIATIONS] = np.abs(later[..., _DEVIATIONS])
    return replace(walk, parameters=later, log_density=walk.log_density[:, steps // 2 :])


def _row(
    arguments: argparse.Namespace, data: np.ndarray, epsilon: Any, walk: Chains, groups: list[list[np.ndarray]]
) -> dict[str, object]:
    """What is kept of a walk; ``groups`` of l synthetic sets, whose mean coefficients are compared with the data's."""
    exact = regression_coefficients(data)
    found = [np.mean([regression_coefficients(one) for one in sets], axis=0) for sets in groups]
    intercept, slope = np.mean(np.abs(np.array(found) - exact), axis=0).tolist()
    return {
        "epsilon": str(epsilon),
        "rhat": float(walk.rhat.max()),
        "pmse": float(np.mean([mean_pmse(data, sets, judge(arguments)) for sets in groups])),
        "intercept": intercept,
        "slope": slope,
    }


@dataclass(frozen=True)
class _Near(ExpectedPMSE):
    """The mean pMSE where it is below `_NEAR`, and infinite elsewhere, where a chain does not go."""

    def value(self, original: Any, synthetic_sets: tuple[Any, ...]) -> float:
        found = ExpectedPMSE.value(self, original, synthetic_sets)
        return found if found < _NEAR else math.inf


class _Jumping:
    """The walks with jumps; what the first of them finds of a data set, the others take over."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.fitting = cache(self._fitting)

    def _fitting(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(medians, covariances) of the parameters whose records fit, from a walk of steps at epsilon 1."""
        arguments = self.arguments
        data = original(arguments, SeededSource((arguments.seed, "walk", number)))
        quality = ExpectedPMSE(judge(arguments), sets=1, bound="paper")
        source = SeededSource((arguments.seed, "walk", number, "fitting"))
        walk = _later_halves(arguments, data, 1, source, quality, _FIRST_STEPS)
        points = walk.parameters.reshape(-1, len(TRUTH))
        return np.median(points, axis=0), np.cov(points.T)

    def jumps(self, number: int, epsilon: Any) -> Jumps:
        """The mixture before its shares are adapted: where records fit, in all signs of the deviations, and wider."""
        middle, covariances = self.fitting(number)
        scaled = covariances / float(exact_fraction(epsilon))
        shares, means, scales = [], [], []
        for share, stretch in _STRETCHES:
            for signs in product((1, -1), repeat=len(_DEVIATIONS)):
                mirror = np.ones(len(TRUTH))
                mirror[_DEVIATIONS] = signs
                shares.append(share / 4)
                means.append(middle * mirror)
                scales.append(scaled * np.outer(mirror * stretch, mirror * stretch))
        widest = spread_of(self.arguments, 100_000.0)
        for share, width in ((0.05, 10.0), (0.05, 100.0), (0.025, 1e3), (0.025, 1e4), (0.2, widest)):
            shares.append(share)
            means.append(np.zeros(len(TRUTH)))
            scales.append(min(width, widest) ** 2 * np.eye(len(TRUTH)))
        return Jumps(np.array(shares), np.array(means), np.array(scales))

    def row(self, kind: str, number: int, epsilon: Any) -> list[dict[str, object]]:
        """What is kept of a walk; its sets come from points of all its chains."""
        arguments = self.arguments
        data = original(arguments, SeededSource((arguments.seed, "walk", number)))
        source = SeededSource((arguments.seed, kind, number, str(epsilon)))
        made = _Near if kind == "near" else ExpectedPMSE
        quality = made(judge(arguments), sets=_SETS.get(str(epsilon), 1), bound="paper")
        rng = numpy_generator(source)
        law = flat_family(arguments)
        part = exact_fraction(epsilon) / arguments.sets
        density = estimated_log_density(law, data, part, source=source, quality=quality)
        jumps = self.jumps(number, epsilon).adapted(density, _ADAPTING, rng)
        walk = _later_halves(arguments, data, epsilon, source, quality, arguments.steps, jumps)
        points = walk.parameters.reshape(-1, len(TRUTH))
        groups = [
            [law.sample(points[k], len(data), source) for k in rng.integers(len(points), size=arguments.sets)]
            for _ in range(_JUDGED)
        ]
        row = _row(arguments, data, epsilon, walk, groups)
        return [row | {"accepted": walk.accepted, "effective": float(walk.effective_samples.min())}]
