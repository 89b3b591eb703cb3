"""Figure 6: the projected residual's variance against the family's size, and how fast estimates of it settle."""

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
plan = td.Plan("geometric", epsilon=f"1/{SCALE}", shares={"county": 1}, invariants=("nation", "state"))

found = {}
for replicates in (100, 1000, 10_000, arguments.replicates):
    table = td.simulate(
        counts,
        plan,
        ["top-down/equality"],
        replicates,
        arguments.seed,
        workers=arguments.workers,
        distances=False,
    )
    columns = {name: table["top-down/equality", name][nodes, 0] for name in ("variance", "variance_se")}
    found[replicates] = pd.DataFrame({"n": size, **columns}).query("n > 1")

last = found[arguments.replicates].groupby("n").agg(variance=("variance", "mean"), counties=("n", "size"))
geometric, laplace = (
    np.array([td.theory.projected_variance(n, SCALE, law) for n in last.index]) for law in ("geometric", "laplace")
)
shown = [n for n in (3, 5, 15, 33, 62, 100, 254) if n in last.index]
print_table(
    ("n", "measured", "geometric", "Laplace", "Cov/Var of siblings"),
    [
        (n, *(f"{v:.3f}" for v in (last.loc[n, "variance"], geometric[i], laplace[i])), -1 / (n - 1))
        for n in shown
        for i in [last.index.get_loc(n)]
    ],
)
rows = []
for replicates, part in found.items():
    truth = td.theory.projected_variance(2, SCALE, "geometric") * 2 * (1 - 1 / part["n"])
    rows.append(
        (
            f"{replicates:,}",
            float((part["variance"] / truth - 1).std()),
            float((part["variance_se"] / truth).mean()),
            float(np.sqrt(5 / replicates)),
        )
    )
print_table(("replicates", "spread of estimate / exact", "its standard error", "sqrt(5 / replicates)"), rows)

figure = Figure(figsize=(8, 2.9))
left, right = figure.subplots(1, 2)
left.semilogx(last.index, laplace, color="tab:blue", label="Laplace: 2 scale² (1 - 1/n)")
left.semilogx(last.index, geometric, "--", color="tab:green", label="geometric, exact")
left.semilogx(last.index, last["variance"], "o", color="tab:orange", markersize=3, label="measured")
left.set(xlabel="counties of the state", ylabel="variance, persons²")
left.legend(fontsize=7)
spread = np.array([[float(str(row[0]).replace(",", "")), row[1], row[3]] for row in rows]).T
right.loglog(spread[0], spread[2], color="0.5", label="sqrt(5 / replicates)")
right.loglog(spread[0], spread[1], "o", color="tab:orange", label="spread over counties")
right.set(xlabel="replicates", ylabel="relative error of a variance")
right.legend(fontsize=7)
figure.tight_layout()
save(figure, "figure_6", arguments.figures)
