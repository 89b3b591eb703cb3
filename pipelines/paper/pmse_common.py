"""What the scripts on the pMSE mechanism share: the source's data and its family of laws.

Snoke, Slavkovic, "pMSE Mechanism: Differentially Private Synthetic Data with Maximal Distributional Similarity":
X1 ~ N(2, 10), X2 ~ N(-2.5 + 0.5 X1, 3). The second numbers are read as standard deviations, with which the noisy
posterior's printed column comes out; ``--spread variance`` reads them as variances, in the data, the prior and the
shift alike. Each script prints a table; what it means is written in docs/pmse.md.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import pandas as pd
from resumable import repeats_of

from topdown.noise import SeededSource, exact_fraction
from topdown.pmse.chains import Chains, metropolis
from topdown.pmse.classifiers import CART
from topdown.pmse.comparators import regression_coefficients
from topdown.pmse.generators import GaussianRegressions
from topdown.pmse.mechanism import ExpectedPMSE
from topdown.pmse.quality import mean_pmse

TRUTH = np.array([2.0, 10.0, -2.5, 0.5, 3.0])
_DEVIATIONS = [1, 4]
"""Which of the parameters are deviations."""

EPSILONS = ("1/4", "1/2", 1, 2, 4)


def pmse_options(description: str | None, repeats: int) -> argparse.Namespace:
    """The command line: the defaults take a few minutes, the paper's own numbers of repeats some hours."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--candidates", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=0, help="of a random walk as in the paper; 0 leaves it out")
    parser.add_argument("--walks", type=int, default=1, help="repeats of the walk, far slower than the others")
    parser.add_argument("--spread", choices=("variance", "deviation"), default="deviation")
    parser.add_argument("--sets", type=int, default=10, help="l, of synthetic sets, each for a part of epsilon")
    parser.add_argument("--depth", type=int, default=30, help="of the tree that judges; the paper has 1, 2, 5 and none")
    parser.add_argument("--bounds", type=float, default=4.0, help="in standard deviations")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def spread_of(arguments: argparse.Namespace, second: float) -> float:
    """The standard deviation that a normal law's second number means."""
    return second if arguments.spread == "deviation" else float(np.sqrt(second))


def family(arguments: argparse.Namespace) -> GaussianRegressions:
    """The laws X1 ~ N(t1, t2), X2 ~ N(t3 + t4 X1, t5), each t with the prior N(0, 10)."""
    return GaussianRegressions(2, spread=arguments.spread, prior_variance=spread_of(arguments, 10.0) ** 2)


def flat_family(arguments: argparse.Namespace) -> GaussianRegressions:
    """The same laws with the flat prior N(0, 100000) of the paper's random walk."""
    return GaussianRegressions(2, spread=arguments.spread, prior_variance=spread_of(arguments, 100_000.0) ** 2)


def original(arguments: argparse.Namespace, source: SeededSource) -> np.ndarray:
    """One confidential data set."""
    return family(arguments).sample(TRUTH, arguments.records, source)


def settings_of(arguments: argparse.Namespace) -> dict[str, object]:
    """What the results of a repeat depend on."""
    names = ["records", "spread", "seed", "sets", "bounds", "candidates"]
    settings = {name: getattr(arguments, name) for name in names}
    if arguments.depth != 30:
        settings["depth"] = arguments.depth
    return settings


def bounds(arguments: argparse.Namespace, deviations: float) -> list[tuple[float, float]]:
    """Public bounds of both columns, so many of their standard deviations on either side of their means."""
    first, rest = spread_of(arguments, TRUTH[1]), spread_of(arguments, TRUTH[4])
    second = float(np.hypot(TRUTH[3] * first, rest))
    middle = TRUTH[2] + TRUTH[3] * TRUTH[0]
    return [
        (TRUTH[0] - deviations * first, TRUTH[0] + deviations * first),
        (middle - deviations * second, middle + deviations * second),
    ]


def walked(arguments: argparse.Namespace) -> pd.DataFrame:
    """The paper's random walk: by repeat and epsilon its R-hat, the mean pMSE of its synthetic sets, and the absolute
    errors of their mean regression coefficients; empty where ``--steps`` is 0.

    Four chains of thousands of trees take many minutes: they are kept by epsilon, the largest first.
    """
    if not arguments.steps:
        return pd.DataFrame({name: [] for name in ("epsilon", "rhat", "pmse", "intercept", "slope")})

    def repeat(number: int) -> list[dict[str, object]]:
        walk_number, position = divmod(number, len(EPSILONS))
        epsilon = EPSILONS[::-1][position]
        data = original(arguments, SeededSource((arguments.seed, "walk", walk_number)))
        source = SeededSource((arguments.seed, "walk", walk_number, str(epsilon)))
        walk = random_walk(arguments, data, epsilon, source)
        sets = [family(arguments).sample(walk.draw(source), len(data), source) for _ in range(arguments.sets)]
        found = np.mean([regression_coefficients(one) for one in sets], axis=0)
        intercept, slope = np.abs(found - regression_coefficients(data)).tolist()
        return [
            {
                "epsilon": str(epsilon),
                "rhat": float(walk.rhat.max()),
                "pmse": mean_pmse(data, sets, judge(arguments)),
                "intercept": intercept,
                "slope": slope,
            }
        ]

    settings = settings_of(arguments) | {"steps": arguments.steps}
    del settings["candidates"]
    return repeats_of("pmse_walk", arguments.walks * len(EPSILONS), settings, repeat)


def judge(arguments: argparse.Namespace) -> CART:
    """The tree that tells synthetic from original records, by which the paper measures."""
    return CART(depth=arguments.depth, cp=0.001)


def random_walk(arguments: argparse.Namespace, data: np.ndarray, epsilon: object, source: SeededSource) -> Chains:
    """The later halves of four chains for one set's part of epsilon, with the deviations' sizes for their signs.

    They start away from the truth, by two of the parameters' own sizes; a step's width goes with 1/sqrt(epsilon), as
    the law's does. A deviation and its negative are the same law, so that chains agree in its size alone.
    """
    rng = np.random.default_rng(int.from_bytes(source.read(8), "little"))
    factor = exact_fraction(epsilon)
    walk = metropolis(
        flat_family(arguments),
        data,
        factor / arguments.sets,
        source=source,
        quality=ExpectedPMSE(judge(arguments), sets=1, bound="paper"),
        steps=arguments.steps,
        starts=TRUTH + rng.choice([-2.0, 2.0], (4, len(TRUTH))) * np.abs(TRUTH),
        step=np.array([0.5, 0.5, 0.3, 0.05, 0.3]) * np.sqrt(4 / float(factor)),
    )
    later = walk.parameters[:, arguments.steps // 2 :].copy()
    later[..., _DEVIATIONS] = np.abs(later[..., _DEVIATIONS])
    return replace(walk, parameters=later, log_density=walk.log_density[:, arguments.steps // 2 :])
