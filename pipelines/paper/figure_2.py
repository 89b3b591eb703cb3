"""Figure 2, a drawing: the hierarchy of the United States, states and counties, and what the constraints say of it.

``python pipelines/paper/figure_2.py``. Two states with three of their counties each, named and with their labour force
of 2009; dots stand for the others. A node's value is the sum of its children's, and none is negative.
"""

from __future__ import annotations

from common import counties, options, print_table, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STATES = ("Arizona", "Texas")
SHOWN = 3

arguments = options(__doc__, 1)
frame = counties()
figure = Figure(figsize=(9, 3.4))
axis = figure.subplots()
axis.set_axis_off()


def node(axis: Axes, x: float, y: float, label: str, value: int, symbol: str) -> None:
    """A unit as a box: its name, its value, and the value's symbol."""
    axis.text(
        x, y, f"{label}\n{symbol} = {value:,}", ha="center", va="center", fontsize=7.5,
        bbox={"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": "0.4"},
    )  # fmt: skip


rows = [("United States", "", int(frame["labour_force"].sum()))]
root, top, middle, bottom = 0.5, 0.92, 0.55, 0.12
for k, state in enumerate(STATES):
    part = frame[frame["state_name"] == state].sort_values("labour_force", ascending=False)
    x = 0.22 + 0.56 * k
    axis.plot([root, x], [top, middle], color="0.6", lw=1, zorder=0)
    places = [x + 0.15 * (j - (SHOWN - 1) / 2) for j in range(SHOWN)]
    for j, (at, (_, county)) in enumerate(zip(places, part.head(SHOWN).iterrows(), strict=True)):
        axis.plot([x, at], [middle, bottom], color="0.6", lw=1, zorder=0)
        label = county["county_name"].split(",")[0].replace(" County", "")
        node(axis, at, bottom, label, county["labour_force"], f"$x_{{{k + 1}{j + 1}}}$")
        rows.append((state, label, int(county["labour_force"])))
    others = len(part) - SHOWN
    axis.text(places[-1] + 0.075, bottom, f"...\n{others} more", ha="left", va="center", fontsize=7)
    node(axis, x, middle, state, int(part["labour_force"].sum()), f"$x_{k + 1}$")
    rows.append((state, f"and {others} more, in all", int(part["labour_force"].sum())))
axis.text(root, middle, f"...  {frame['state_name'].nunique() - len(STATES)} more  ...", ha="center", fontsize=7)
node(axis, root, top, *rows[0][::2], "$x_0$")
axis.text(0.5, -0.08, r"$x_0=\sum_s x_s$,   $x_s=\sum_j x_{sj}$,   every $x\geq 0$", ha="center", fontsize=9)
axis.set(xlim=(-0.03, 1.08), ylim=(-0.14, 1.02))
print_table(("unit", "county", "labour force 2009"), rows)
save(figure, "figure_2", arguments.figures)
