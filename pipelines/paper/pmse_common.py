"""What the scripts on the pMSE mechanism share: the source's data and its family of laws.

Snoke, Slavkovic, "pMSE Mechanism: Differentially Private Synthetic Data with Maximal Distributional Similarity":
X1 ~ N(2, 10), X2 ~ N(-2.5 + 0.5 X1, 3). The paper does not say whether the second number is a variance or a standard
deviation; ``--spread`` chooses. Each script prints a table; what it means is written in docs/pmse.md.
"""

from __future__ import annotations

import argparse

import numpy as np

from topdown.noise import SeededSource
from topdown.pmse.generators import GaussianRegressions

TRUTH = np.array([2.0, 10.0, -2.5, 0.5, 3.0])
EPSILONS = ("1/4", "1/2", 1, 2, 4)


def pmse_options(description: str | None, repeats: int) -> argparse.Namespace:
    """The command line: the defaults take a few minutes, the paper's own numbers of repeats some hours."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--candidates", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=0, help="of a random walk as in the paper; 0 leaves it out")
    parser.add_argument("--spread", choices=("variance", "deviation"), default="variance")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def family(arguments: argparse.Namespace) -> GaussianRegressions:
    """The laws X1 ~ N(t1, t2), X2 ~ N(t3 + t4 X1, t5), each t with the prior N(0, 10)."""
    return GaussianRegressions(2, spread=arguments.spread)


def original(arguments: argparse.Namespace, source: SeededSource) -> np.ndarray:
    """One confidential data set."""
    return family(arguments).sample(TRUTH, arguments.records, source)


def bounds(factor: float) -> list[tuple[float, float]]:
    """Public bounds of both columns, ``factor`` times a range that holds nearly every record."""
    return [(2 - 12 * factor, 2 + 12 * factor), (-1.5 - 10 * factor, -1.5 + 10 * factor)]
