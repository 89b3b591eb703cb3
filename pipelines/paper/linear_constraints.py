"""The paper's own setting: constraints that are no tree, here both margins of a table of counties by employment.

The counties of a state by employed and unemployed. Public: every county's labour force, and both of the state's totals.
No tree has these constraints; ``td.project_linear`` projects on them. What the theorems say is checked on the draws.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp
from common import SCALE, counties, options, print_table

import topdown as td


def margins(units: int) -> sp.csr_array:
    """A of both margins of a table of ``units`` rows and two columns, row by row."""
    rows = sp.kron(sp.eye_array(units), np.ones((1, 2)))
    columns = sp.kron(np.ones((1, units)), sp.eye_array(2))
    return sp.csr_array(sp.vstack([rows, columns]))


def main() -> None:
    arguments = options(__doc__, 500)
    rows = []
    for state in ("Arizona", "New Mexico", "Texas"):
        frame = counties(state)
        truth = frame[["employed", "unemployed"]].to_numpy(np.float64).ravel()
        both = margins(len(frame))
        noise = td.noise.Laplace(SCALE).sample((truth.size, arguments.replicates), td.SeededSource(arguments.seed))
        variance = 2.0 * SCALE**2
        began = time.perf_counter()
        found, mirrored = (
            td.project_linear(truth[:, None] + sign * noise, both, both @ truth, variance=variance) for sign in (1, -1)
        )
        errors = found.values - truth[:, None]
        positive = td.project_linear(truth[:, None] + noise, both, both @ truth, variance=variance, nonnegative=True)
        seconds = time.perf_counter() - began
        assert found.variance is not None
        signed = positive.values - truth[:, None]
        rows.append(
            (
                state,
                len(frame),
                float(np.abs(errors + mirrored.values - truth[:, None]).max()),
                float(errors.var(axis=1).mean()),
                float(found.variance.mean()),
                float(np.abs(errors.mean(axis=1)).max()),
                float(np.abs(signed.mean(axis=1)).max()),
                float(positive.certificate.deviations),
                f"{seconds:.1f}",
            )
        )
    print_table(
        ("", "counties", "mirror", "variance", "exact", "bias (P)", "bias (P+)", "certificate", "seconds"),
        rows,
    )
    small = np.array([3.0, 40, 5, 60, 9, 80])
    both = margins(3)
    noise = td.noise.Laplace(1).sample((small.size, 10 * arguments.replicates), td.SeededSource(arguments.seed))
    found = td.project_linear(small[:, None] + noise, both, both @ small, nonnegative=True)
    bound = td.theory.linear_bias_bound(small, both, 1)
    bias = (found.values - small[:, None]).mean(axis=1)
    print(f"three counties, scale 1: largest |bias| of (P+) {np.abs(bias).max():.3f}")
    print(f"Theorem 4: {float(bound):.3f}; {bound.explanation}")


main()
