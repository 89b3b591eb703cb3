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
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from pmse_common import COEFFICIENTS, TRUTH, flat_family, judge, original, settings_of, spread_of
from resumable import repeats_of

from topdown.noise import SeededSource, exact_fraction
from topdown.research.pmse.chains import Chains, Jumps, estimated_log_density, metropolis
from topdown.research.pmse.comparators import regression_coefficients
from topdown.research.pmse.generators import numpy_generator
from topdown.research.pmse.pmse_mechanism import ExpectedPMSE
from topdown.research.pmse.quality import mean_pmse

WALKS = {"steps": "walk of steps", "near": "walk with jumps, pMSE < 0.2", "jumps": "walk with jumps"}
"""Their names in tables, by kind."""

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
"""How often l sets from points of a walk's later halves are measured."""


def walked(arguments: argparse.Namespace) -> pd.DataFrame:
    """By kind, depth, repeat, epsilon and group of l sets: the walk's R-hat, the mean pMSE of the sets, that of the
    first alone, the absolute errors of the sets' mean regression coefficients; empty where ``--steps`` is 0.

    Four chains of thousands of trees take minutes: every kind, depth and epsilon is a file of its own.
    """
    if not arguments.steps:
        return pd.DataFrame(columns=["kind", "depth", "epsilon", "rhat", "pmse", "single", *COEFFICIENTS])
    found = []
    for depth in arguments.depth:
        walks = _Walks(arguments, depth)
        for kind in arguments.kinds:
            for epsilon in arguments.epsilon:

                def repeat(number: int, kind=kind, walks=walks, epsilon=epsilon) -> list[dict[str, object]]:
                    return walks.rows(kind, number, epsilon)

                settings = settings_of(arguments, "steps", "cp") | {"depth": depth, "epsilon": epsilon}
                frame = repeats_of(f"pmse_walk_{kind}", arguments.walks, settings, repeat, arguments.results)
                found.append(frame.assign(kind=kind, depth=depth))
    return pd.concat(found)


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


@dataclass(frozen=True)
class _Near(ExpectedPMSE):
    """The mean pMSE where it is below `_NEAR`, and infinite elsewhere, where a chain does not go."""

    def value(self, original: Any, synthetic_sets: tuple[Any, ...]) -> float:
        found = ExpectedPMSE.value(self, original, synthetic_sets)
        return found if found < _NEAR else math.inf


class _Walks:
    """The walks of a depth; where records fit is found once for a data set, and used by all of its walks with jumps."""

    def __init__(self, arguments: argparse.Namespace, depth: int) -> None:
        self.arguments, self.tree = arguments, judge(arguments, depth)
        self.fitting = cache(self._fitting)

    def source(self, *names: object) -> SeededSource:
        """Of one use of random numbers; the data sets are the same at all depths."""
        return SeededSource((self.arguments.seed, *names))

    def _fitting(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(medians, covariances) of the parameters whose records fit, from a walk of steps at epsilon 1."""
        data = original(self.arguments, self.source("walk", number))
        quality = ExpectedPMSE(self.tree, sets=1, bound="paper")
        source = self.source("walk", number, "fitting")
        walk = _later_halves(self.arguments, data, 1, source, quality, _FIRST_STEPS)
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

    def rows(self, kind: str, number: int, epsilon: Any) -> list[dict[str, object]]:
        """What is kept of a walk: `_JUDGED` groups of l sets from points of all its chains."""
        arguments, law = self.arguments, flat_family(self.arguments)
        data = original(arguments, self.source("walk", number))
        source = self.source(kind, self.tree.depth, number, str(epsilon))
        rng = numpy_generator(source)
        jumps, n_sets = None, 1
        if kind != "steps":
            n_sets = _SETS.get(str(epsilon), 1)
        quality = (_Near if kind == "near" else ExpectedPMSE)(self.tree, sets=n_sets, bound="paper")
        if kind != "steps":
            part = exact_fraction(epsilon) / arguments.sets
            density = estimated_log_density(law, data, part, source=source, quality=quality)
            jumps = self.jumps(number, epsilon).adapted(density, _ADAPTING, rng)
        walk = _later_halves(arguments, data, epsilon, source, quality, arguments.steps, jumps)
        points = walk.parameters.reshape(-1, len(TRUTH))
        exact = regression_coefficients(data)
        known = {
            "epsilon": str(epsilon),
            "rhat": float(walk.rhat.max()),
            "accepted": walk.accepted,
            "effective": float(walk.effective_samples.min()),
        }
        found = []
        for _ in range(_JUDGED):
            sets = [law.sample(points[k], len(data), source) for k in rng.integers(len(points), size=arguments.sets)]
            errors = np.abs(np.mean([regression_coefficients(one) for one in sets], axis=0) - exact)
            pmse = [mean_pmse(data, [one], judge(arguments)) for one in sets]
            found.append(
                known | {"pmse": np.mean(pmse), "single": pmse[0]} | dict(zip(COEFFICIENTS, errors, strict=True))
            )
        return found
