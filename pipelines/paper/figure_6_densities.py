"""Figure 6 as in the paper: the density of a projected residual, which tends to that of the noise as the family grows.

``python pipelines/paper/figure_6_densities.py [--replicates N]``: exact densities of (P) with Laplace noise of scale 10
(Theorem 5's law) for families of 2 to 254, residuals that were drawn beside them, and the noise itself (Theorem 7's
limit).
"""

from __future__ import annotations

import numpy as np
from common import SCALE, options, print_table, save
from matplotlib.figure import Figure

import topdown as td

SIZES = (2, 3, 5, 15, 33, 254)

arguments = options(__doc__, 20_000)
at = np.linspace(-45, 45, 901)
noise_density = td.noise.Laplace(SCALE).pdf(at)
figure = Figure(figsize=(9, 4.2))
rows = []
for axis, n in zip(figure.subplots(2, 3, sharex=True, sharey=True).ravel(), SIZES, strict=True):
    law = td.theory.projected_laplace(n, SCALE)
    noise = td.noise.Laplace(SCALE).sample((n, arguments.replicates), td.SeededSource(arguments.seed))
    residual = (noise - noise.mean(axis=0))[0]
    axis.hist(residual, bins=np.arange(-45, 46, 2.5), density=True, color="tab:orange", alpha=0.5)
    axis.plot(at, law.pdf(at), color="tab:blue", label="exact")
    axis.plot(at, noise_density, "--", color="0.4", label="noise")
    axis.set_title(f"n = {n}")
    rows.append(
        (
            n,
            float(law.pdf(0.0)),
            float(np.abs(law.pdf(at) - noise_density).max()),
            float(law.variance),
            float(residual.var()),
            td.theory.wasserstein_to_noise(n, SCALE),
        )
    )
    axis.legend(fontsize=7)
print_table(("n", "density at 0", "farthest from the noise's", "variance", "measured", "Wasserstein"), rows)
figure.tight_layout()
save(figure, "figure_6_densities", arguments.figures)
