"""Arizona and Texas: the same noise, and a variance that depends on how many counties the state has."""

from __future__ import annotations

import time

import numpy as np
from common import SCALE, counties, family, options, print_table, public_total

import topdown as td

PRINTED = {"Arizona": 186.67, "Texas": 199.21}

arguments = options(__doc__, 80_000)
rows = []
began = time.perf_counter()
for mechanism in ("geometric", "laplace"):
    for state, printed in PRINTED.items():
        counts = family(counties(state), "labour_force")
        table = td.simulate(
            counts,
            public_total(mechanism),
            ["top-down/equality", "top-down"],
            arguments.replicates,
            arguments.seed,
            workers=arguments.workers,
            distances=False,
        )
        n = len(counts.values) - 1
        variance = {method: table[method, "variance"][1:, 0] for method in table.methods}
        # Siblings' errors are nearly independent: the mean over counties is sqrt(n) times as sharp.
        error = float(table["top-down/equality", "variance_se"][1:, 0].mean() / np.sqrt(n))
        rows.append(
            (
                mechanism,
                state,
                n,
                f"{variance['top-down/equality'].mean():.3f}",
                f"{error:.3f}",
                f"{td.theory.projected_variance(n, SCALE, mechanism):.3f}",
                f"{variance['top-down'].mean():.3f}",
                f"{printed:.2f}",
            )
        )
print_table(("noise", "state", "counties", "(P)", "standard error", "exact", "(P+)", "printed"), rows)
print(f"{4 * arguments.replicates:,} replicates in {time.perf_counter() - began:.1f} s")
