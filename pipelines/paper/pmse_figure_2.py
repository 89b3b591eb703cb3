"""Figure 2: absolute error of the regression of X2 on X1 by method, bounds and epsilon.

``python pipelines/paper/pmse_figure_2.py [--repeats N] [--candidates K]``. The error is that of the coefficients from
the synthetic data against those from the original data. The pMSE mechanism takes no bounds.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from common import print_table
from pmse_common import EPSILONS, bounds, family, original, pmse_options

from topdown.noise import SeededSource, exact_fraction
from topdown.pmse.comparators import (
    functional_regression,
    noisy_posterior_predictive,
    non_private_synthesis,
    regression_coefficients,
    smooth_histogram,
)
from topdown.pmse.k_norm import NORMS, k_norm_regression
from topdown.pmse.mechanism import ExpectedPMSE, PMSEMechanism
from topdown.pmse.selection import draw_exponential
from topdown.pmse.trees import OptimalTree

FACTORS = (2, 4, 5, 10)
"""Bounds in standard deviations, as in the paper."""


arguments = pmse_options(__doc__, 10)
source = SeededSource((arguments.seed, "figure 2"))
law = family(arguments)
found: dict[tuple[str, object, object], list[np.ndarray]] = defaultdict(list)
for _ in range(arguments.repeats):
    data = original(arguments, source)
    exact = regression_coefficients(data)
    mechanism = PMSEMechanism(
        law, 1, ExpectedPMSE(OptimalTree(2, resolution=0.5), sets=1), candidates=arguments.candidates
    )
    candidates = mechanism.propose(len(data), source)
    exponents = mechanism.exponents(data, candidates)
    for epsilon in EPSILONS:
        factor = exact_fraction(epsilon)
        chosen = candidates.parameters[draw_exponential([factor * x for x in exponents], source)]
        coefficients = {
            ("non-private", "none"): regression_coefficients(non_private_synthesis(data, source=source)),
            ("pMSE mechanism", "none"): regression_coefficients(law.sample(chosen, len(data), source)),
        }
        for times in FACTORS:
            limits = bounds(arguments, times)
            noisy = noisy_posterior_predictive(data, epsilon, limits, source=source)
            smooth = smooth_histogram(data, float(factor), limits, 20, source=source)
            coefficients["noisy posterior", times] = regression_coefficients(noisy)
            coefficients["smooth histogram", times] = regression_coefficients(smooth)
            coefficients["functional", times] = functional_regression(
                data[:, 0], data[:, 1], epsilon, limits, source=source
            )
            for norm in NORMS:
                coefficients[f"K-norm, {norm}", times] = k_norm_regression(
                    data[:, 0], data[:, 1], epsilon, limits, norm=norm, source=source
                )
        for (method, times), value in coefficients.items():
            found[method, times, epsilon].append(np.abs(value - exact))

pairs = list(dict.fromkeys(key[:2] for key in found))
print(f"{arguments.repeats} repeats, n = {arguments.records}, {arguments.candidates} candidates; mean absolute errors")
for which, name in enumerate(("intercept", "slope")):
    print_table(
        [name, "deviations", *(f"epsilon {e}" for e in EPSILONS)],
        [
            (*pair, *(float(np.mean([one[which] for one in found[(*pair, e)]])) for e in EPSILONS))
            for pair in sorted(pairs, key=lambda pair: (pair[0], str(pair[1])))
        ],
    )
