"""The pMSE mechanism with a guarantee: draws from candidates of the prior, for pmse_table_2.py and pmse_figure_2.py.

A candidate is drawn for every one of l synthetic sets, at its part of epsilon. What is kept says why the error of the
mean coefficients hardly falls with epsilon: from how many candidates the sets are, and what the error of one set is.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from pmse_common import COEFFICIENTS, EPSILONS, family, original, settings_of
from resumable import repeats_of

from topdown.noise import SeededSource, exact_fraction
from topdown.research.pmse.classifiers import CART
from topdown.research.pmse.comparators import regression_coefficients
from topdown.research.pmse.pmse_mechanism import ExpectedPMSE, PMSEMechanism
from topdown.research.pmse.quality import mean_pmse
from topdown.research.pmse.selection import draw_exponential
from topdown.research.pmse.trees import OptimalTree


def chosen(arguments: argparse.Namespace) -> pd.DataFrame:
    """By repeat and epsilon, ``--choices`` times: the mean pMSE of the sets, that of the first, the absolute errors of
    the mean coefficients, the mean absolute error of one set's slope, from how many candidates the sets are, and the
    error of the best candidate's slope; empty for 0 choices."""
    law = family(arguments)

    def repeat(number: int) -> list[dict[str, object]]:
        source = SeededSource((arguments.seed, "candidates", number))
        data = original(arguments, source)
        quality = ExpectedPMSE(OptimalTree(2, resolution=0.5), sets=1)
        mechanism = PMSEMechanism(law, 1, quality, candidates=arguments.candidates)
        candidates = mechanism.propose(len(data), source)
        exponents = mechanism.exponents(data, candidates)  # in proportion to epsilon
        exact = regression_coefficients(data)
        best = candidates.parameters[exponents.index(min(exponents))]
        rows: list[dict[str, object]] = []
        for epsilon in EPSILONS:
            weights = [exact_fraction(epsilon) / arguments.sets * x for x in exponents]
            drawn = [draw_exponential(weights, source) for _ in range(arguments.sets)]
            sets = [law.sample(candidates.parameters[k], len(data), source) for k in drawn]
            found = np.array([regression_coefficients(one) for one in sets])
            pmse = [mean_pmse(data, [one], CART(cp=0.001)) for one in sets]
            rows.append(
                {
                    "epsilon": str(epsilon),
                    "pmse": np.mean(pmse),
                    "single": pmse[0],
                    "candidates": len(set(drawn)),
                    "one slope": np.abs(found[:, 1] - exact[1]).mean(),
                    "best slope": abs(best[3] - exact[1]),
                    **dict(zip(COEFFICIENTS, np.abs(found.mean(axis=0) - exact), strict=True)),
                }
            )
        return rows

    if not arguments.choices:
        return pd.DataFrame(
            columns=["epsilon", "pmse", "single", "candidates", "one slope", "best slope", *COEFFICIENTS]
        )
    return repeats_of(
        "pmse_candidates", arguments.choices, settings_of(arguments, "candidates"), repeat, arguments.results
    )
