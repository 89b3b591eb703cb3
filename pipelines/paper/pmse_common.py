"""What the scripts on the pMSE mechanism share: the source's data and its family of laws.

Snoke, Slavkovic, "pMSE Mechanism: Differentially Private Synthetic Data with Maximal Distributional Similarity":
X1 ~ N(2, 10), X2 ~ N(-2.5 + 0.5 X1, 3). The second numbers are read as standard deviations, with which the noisy
posterior's printed column comes out; ``--spread variance`` reads them as variances, in the data, the prior and the
shift alike. Each script prints a table; what it means is written in docs/pmse.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import FIGURES
from resumable import RESULTS

from topdown.noise import SeededSource
from topdown.research.pmse.classifiers import CART
from topdown.research.pmse.generators import GaussianRegressions

TRUTH = np.array([2.0, 10.0, -2.5, 0.5, 3.0])
EPSILONS = ("1/4", "1/2", 1, 2, 4)

TABLE_2 = {
    "non-private": [
        (0.0066, 8.681e-7),
        (0.00663, 8.929e-7),
        (0.00661, 8.342e-7),
        (0.0066, 8.342e-7),
        (0.0066, 8.671e-7),
    ],
    "pMSE mechanism": [
        (0.09281, 1.347e-3),
        (0.0361, 8.020e-5),
        (0.02107, 1.648e-5),
        (0.01459, 1.648e-5),
        (0.01161, 3.329e-6),
    ],
    "noisy posterior": [
        (0.20509, 3.079e-3),
        (0.17876, 5.914e-3),
        (0.14372, 8.579e-3),
        (0.11177, 8.579e-3),
        (0.07919, 9.087e-3),
    ],
    "smooth histogram": [
        (0.08206, 2.826e-5),
        (0.05398, 1.809e-5),
        (0.03278, 1.069e-5),
        (0.01892, 1.069e-5),
        (0.01129, 5.964e-6),
    ],
}
"""The printed (mean, variance) of the pMSE by method and epsilon. The variances of epsilon 1 and 2 are the same in all
columns, a slip of copying."""


COEFFICIENTS = ("intercept", "slope")

DEPTHS = (1, 2, 5, 30)
"""Of the paper's trees; 30, rpart's limit, is what it calls unlimited."""


def depth_name(depth: int) -> str:
    """A depth as the paper writes it."""
    return "unlimited" if depth == 30 else str(depth)


def pmse_options(description: str | None, repeats: int, cp: float = 0.001, depth: tuple[int, ...] = (30,)) -> Any:
    """The command line: the defaults take a few minutes, the paper's own numbers of repeats some hours."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--candidates", type=int, default=1500)
    parser.add_argument("--choices", type=int, default=0, help="repeats of the draw from candidates; 0 leaves it out")
    parser.add_argument("--steps", type=int, default=0, help="of a random walk as in the paper; 0 leaves it out")
    parser.add_argument("--walks", type=int, default=1, help="repeats of the walk, far slower than the others")
    parser.add_argument("--kinds", nargs="+", default=["steps", "near"], help="of the walk: steps, near, jumps")
    parser.add_argument("--spread", choices=("variance", "deviation"), default="deviation")
    parser.add_argument("--sets", type=int, default=10, help="l, of synthetic sets, each for a part of epsilon")
    parser.add_argument("--measured", type=int, default=1, help="how many of the sets are judged")
    parser.add_argument("--epsilon", nargs="+", default=["1/4", "1/2", "1"], help="of the walks")
    parser.add_argument("--depth", type=int, nargs="+", default=depth, help="of the trees of the walk's quality")
    parser.add_argument("--cp", type=float, default=cp, help="of the trees that judge, rpart's")
    parser.add_argument("--leaf", type=int, help="Table 1: the fewest records of a leaf; as rpart if left out")
    parser.add_argument("--bounds", type=float, default=4.0, help="in standard deviations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where repeats are kept")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="where the figure goes")
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


def settings_of(arguments: argparse.Namespace, *more: str) -> dict[str, object]:
    """What the results of a repeat depend on; ``more`` names of options beside those that all have in common."""
    return {name: getattr(arguments, name) for name in ("records", "spread", "seed", "sets", *more)}


def bounds(arguments: argparse.Namespace, deviations: float) -> list[tuple[float, float]]:
    """Public bounds of both columns, so many of their standard deviations on either side of their means."""
    first, rest = spread_of(arguments, TRUTH[1]), spread_of(arguments, TRUTH[4])
    second = float(np.hypot(TRUTH[3] * first, rest))
    middle = TRUTH[2] + TRUTH[3] * TRUTH[0]
    return [
        (TRUTH[0] - deviations * first, TRUTH[0] + deviations * first),
        (middle - deviations * second, middle + deviations * second),
    ]


def judge(arguments: argparse.Namespace, depth: int = 30) -> CART:
    """The tree that tells synthetic from original records, by which the paper measures."""
    return CART(depth=depth, cp=arguments.cp)
