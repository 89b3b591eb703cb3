"""Figure 5: Wasserstein-1 distance of the projected residual from the noise, against the family's size."""

from __future__ import annotations

import numpy as np
import pandas as pd
from common import SCALE, counties, options, print_table, save
from matplotlib.figure import Figure

import topdown as td

arguments = options(__doc__, 100_000)
frame = counties()
geography = td.Geography.from_table(frame, levels=["nation", "state", "county"])
counts = td.Counts.from_table(frame, geography, geoid="county", cells=["labour_force"])
sizes = np.diff(geography.child_offsets)[1:]
nodes = geography.level_slice("county")
size = np.repeat(sizes, sizes)


def measured(mechanism: str, reference: str, replicates: int) -> pd.DataFrame:
    """Distances of every county's residual after (P), the states' totals public, averaged over families of a size."""
    plan = td.Plan(mechanism, epsilon=f"1/{SCALE}", shares={"county": 1}, invariants=("nation", "state"))
    table = td.simulate(
        counts,
        plan,
        ["top-down/equality"],
        replicates,
        arguments.seed,
        reference=reference,
        workers=arguments.workers,
    )
    columns = {
        name: table["top-down/equality", name][nodes, 0]
        for name in ("wasserstein", "wasserstein_corrected", "wasserstein_floor")
    }
    return pd.DataFrame({"n": size, **columns}).query("n > 1").groupby("n").mean()


few, many = (measured("laplace", "noise", replicates) for replicates in (100, arguments.replicates))
geometric = measured("geometric", "noise", arguments.replicates)
continuous = measured("geometric", "continuous", arguments.replicates)
exact = {
    "laplace": [td.theory.wasserstein_to_noise(n, SCALE) for n in many.index],
    "noise": [td.theory.wasserstein_to_noise(n, SCALE, law="geometric") for n in many.index],
    "continuous": [td.theory.wasserstein_to_noise(n, SCALE, law="geometric", reference="laplace") for n in many.index],
}
shown = [n for n in (3, 5, 15, 33, 62, 100, 254) if n in many.index]
rows = [
    (
        n,
        *(few.loc[n, name] for name in ("wasserstein", "wasserstein_floor")),
        *(many.loc[n, name] for name in ("wasserstein", "wasserstein_corrected", "wasserstein_floor")),
        exact["laplace"][many.index.get_loc(n)],
        geometric.loc[n, "wasserstein"],
        exact["noise"][many.index.get_loc(n)],
        continuous.loc[n, "wasserstein"],
        exact["continuous"][many.index.get_loc(n)],
    )
    for n in shown
]
print(f"Laplace noise of scale {SCALE}, 100 and {arguments.replicates:,} replicates; geometric noise of the same scale")
print_table(
    ("n", "W1 at 100", "floor", "W1", "corrected", "floor", "exact", "geometric", "exact", "to Laplace", "exact"), rows
)

figure = Figure(figsize=(5.8, 3.4))
axis = figure.subplots()
n = np.unique(np.geomspace(2, 1000, 60).astype(int))
curve = [[td.theory.wasserstein_to_noise(int(k), SCALE, law=law) for k in n] for law in ("laplace", "geometric")]
axis.loglog(n, curve[0], color="tab:blue", label="Laplace noise, exact")
axis.loglog(n, curve[1], "--", color="tab:green", label="geometric noise, to its own law, exact")
above = many["wasserstein_corrected"].clip(lower=1e-3)
axis.loglog(few.index, few["wasserstein"], "^", color="0.6", markersize=3, label="100 replicates")
axis.loglog(many.index, many["wasserstein"], "o", color="tab:orange", markersize=3, label=f"{arguments.replicates:,}")
axis.loglog(many.index, above, "+", color="tab:red", markersize=5, label="the same, corrected")
for table in (few, many):
    axis.axhline(table["wasserstein_floor"].mean(), color="0.5", linewidth=0.7, linestyle=":")
axis.set(xlabel="children in the family", ylabel="Wasserstein-1 distance, persons", ylim=(5e-3, 10))
axis.legend(fontsize=7)
save(figure, "figure_5", arguments.figures)
