"""Draw the diagrams of the documentation: docs/figures/architecture.svg, tree.svg, study.svg and parts.svg.

pip install -e ".[docs]" && python pipelines/figures/diagrams.py

Text and lines are dark on a light page and light on a dark one, as the reader's system asks for.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import topdown as td

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
INK, LINE = "#5b6b86", "#8a96ab"
SECRET, OPEN = "#c2410c", "#0f8a5f"
"""What is confidential, and what may be published."""
_DARK = {INK: "#c9d3e6", LINE: "#8a96ab", SECRET: "#fb8a5c", OPEN: "#4cc79a"}


def main() -> None:
    """Draws all of them."""
    mpl.rcParams |= {"svg.hashsalt": "topdown", "text.color": INK, "svg.fonttype": "path"}
    for name, draw in (("architecture", architecture), ("tree", tree), ("study", study), ("parts", parts)):
        save(draw(), name)


def save(figure: Figure, name: str) -> None:
    """Writes docs/figures/NAME.svg, whose colours follow the reader's choice of light or dark."""
    path = FIGURES / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None}, transparent=True)
    text = path.read_text(encoding="utf-8")
    light, dark = "", ""
    for number, (colour, on_dark) in enumerate(_DARK.items()):
        light += f" --c{number}: {colour};"
        dark += f" --c{number}: {on_dark};"
        text = text.replace(colour, f"var(--c{number})")
    style = f"<style>:root {{{light} }} @media (prefers-color-scheme: dark) {{ :root {{{dark} }} }}</style>\n <defs>"
    path.write_text(text.replace("<defs>", style, 1), encoding="utf-8")
    print(path)


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of ``width`` x ``height`` inches whose coordinates are inches."""
    figure = plt.figure(figsize=(width, height))
    panel = figure.add_axes((0, 0, 1, 1))
    panel.set_axis_off()
    panel.set_xlim(0, width)
    panel.set_ylim(0, height)
    return figure, panel


def box(panel: Axes, x: float, y: float, title: str, below: str = "", colour: str = LINE, width: float = 1.45) -> None:
    """A box around (x, y) with a title and a line or two of text."""
    panel.add_patch(
        plt.Rectangle((x - width / 2, y - 0.34), width, 0.68, facecolor=f"{colour}22", edgecolor=colour, lw=1.3)
    )
    panel.text(x, y + (0.12 if below else 0), title, ha="center", va="center", size=10, weight="bold")
    if below:
        panel.text(x, y - 0.15, below, ha="center", va="center", size=7.5, linespacing=1.15)


def arrow(panel: Axes, start: tuple[float, float], end: tuple[float, float], said: str = "") -> None:
    """An arrow with a word above its middle."""
    panel.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": LINE, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    )
    if said:
        panel.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.09, said, ha="center", size=8, style="italic")


def architecture() -> Figure:
    """The steps of a release, from the table to public/, and the wall between them."""
    figure, panel = canvas(11.0, 2.7)
    steps = [
        (0.9, "Table", "units or records", SECRET, ""),
        (2.85, "Counts", "a tree of units\nx cells", SECRET, "read"),
        (5.0, "Measurements", "count + noise", OPEN, "measure"),
        (6.95, "Estimate", "adds up, x >= 0,\ncertified", OPEN, "project"),
        (8.65, "Release", "whole counts", OPEN, "round"),
        (10.35, "public/", "files, manifest", OPEN, "publish"),
    ]
    widths = [1.3, 1.3, 1.5, 1.3, 1.1, 1.1]
    for (x, title, below, colour, _), width in zip(steps, widths, strict=True):
        box(panel, x, 1.45, title, below, colour, width)
    for k in range(1, len(steps)):
        start, end = steps[k - 1][0] + widths[k - 1] / 2, steps[k][0] - widths[k] / 2
        arrow(panel, (start, 1.45), (end, 1.45), steps[k][4])
    wall = (steps[1][0] + widths[1] / 2 + steps[2][0] - widths[2] / 2) / 2
    panel.plot([wall, wall], [0.35, 1.2], color=SECRET, lw=2.5)
    panel.plot([wall, wall], [1.85, 2.3], color=SECRET, lw=2.5)
    panel.text(wall, 2.4, "the wall", ha="center", size=9, weight="bold", color=SECRET)
    panel.text(wall - 0.15, 0.52, "draw(): knows the counts", ha="right", size=9, color=SECRET)
    panel.text(
        wall + 0.15, 0.52, "derive(): knows the measurements alone, and the public files", ha="left", size=9, color=OPEN
    )
    panel.text(wall, 0.12, "topdown run = draw, then derive.   topdown project = derive alone.", ha="center", size=8.5)
    return figure


def tree() -> Figure:
    """A tree of three levels, the share of the budget and the noise of each level."""
    figure, panel = canvas(9.0, 3.3)
    shares = {"nation": "1/5", "state": "3/10", "county": "1/2"}
    plan = td.Plan(mechanism="geometric", epsilon=1, shares=shares)
    heights = {"nation": 2.75, "state": 1.75, "county": 0.75}
    places = {"nation": [2.9], "state": [1.6, 4.4], "county": [0.75, 1.65, 2.55, 3.95, 4.85]}
    names = {"nation": ["US"], "state": ["01", "02"], "county": ["01001", "01003", "01005", "02013", "02016"]}
    parents = {"state": [0, 0], "county": [0, 0, 0, 1, 1]}
    for level, above in (("state", "nation"), ("county", "state")):
        for x, parent in zip(places[level], parents[level], strict=True):
            top, low = heights[above] - 0.22, heights[level] + 0.22
            middle = (top + low) / 2
            px = places[above][parent]
            panel.plot([px, px, x, x], [top, middle, middle, low], color=LINE, lw=1.2)
    for level, height in heights.items():
        for x, name in zip(places[level], names[level], strict=True):
            panel.add_patch(
                plt.Rectangle((x - 0.38, height - 0.22), 0.76, 0.44, facecolor=f"{LINE}22", edgecolor=LINE, lw=1.2)
            )
            panel.text(x, height, name, ha="center", va="center", size=9.5, family="monospace")
        deviation = plan.variance(level) ** 0.5
        said = f"{level}: share {shares[level]}, epsilon {float(plan.budget(level)):g}"
        panel.text(5.6, height + 0.08, said, size=9.5, va="center", weight="bold")
        panel.text(5.6, height - 0.15, f"standard deviation of the noise {deviation:.1f}", size=8.5, va="center")
    panel.text(
        0.4, 0.22, "Every count of a level gets noise of its own. Shares add up to 1; epsilon is 1 in all.", size=9
    )
    return figure


def study() -> Figure:
    """What topdown study does: the release simulated many times, and compared with the true counts."""
    figure, panel = canvas(9.6, 2.5)
    box(panel, 0.95, 1.25, "True counts", "known here alone", SECRET, 1.5)
    box(panel, 3.2, 1.25, "Noise", "drawn anew", LINE, 1.3)
    box(panel, 5.15, 1.25, "Projection", "every method", LINE, 1.4)
    box(panel, 7.2, 1.25, "Errors", "estimate - truth,\nby unit and method", SECRET, 1.5)
    box(panel, 8.85, 1.25, "Report", "report.html", SECRET, 1.1)
    for start, end in ((1.7, 2.55), (3.85, 4.45), (5.85, 6.45), (7.95, 8.3)):
        arrow(panel, (start, 1.25), (end, 1.25))
    panel.annotate(
        "",
        (3.2, 1.66),
        (7.2, 1.66),
        arrowprops={"arrowstyle": "-|>", "color": LINE, "lw": 1.3, "connectionstyle": "arc3,rad=0.22"},
    )
    panel.text(5.2, 2.28, "again, replicates times", ha="center", size=8.5, style="italic")
    panel.annotate(
        "",
        (7.2, 0.84),
        (0.95, 0.84),
        arrowprops={"arrowstyle": "-|>", "color": LINE, "lw": 1.3, "connectionstyle": "arc3,rad=0.12"},
    )
    panel.text(4.1, 0.2, "compared with", ha="center", size=8.5, style="italic")
    return figure


def parts() -> Figure:
    """A tree that is cut into parts: what goes up, what is settled above the parts, what comes down."""
    figure, panel = canvas(9.6, 3.1)
    xs = [1.1, 2.9, 4.7, 6.5]
    box(panel, 3.8, 2.6, "top", "above the parts", LINE, 2.2)
    for number, x in enumerate(xs):
        panel.add_patch(
            plt.Polygon([(x, 1.55), (x - 0.75, 0.5), (x + 0.75, 0.5)], facecolor=f"{LINE}22", edgecolor=LINE)
        )
        panel.text(x, 0.8, f"part {number:04d}", ha="center", size=9, family="monospace")
        to = 3.8 + (x - 3.8) * 0.35
        panel.annotate(
            "", (to - 0.08, 2.25), (x - 0.08, 1.6), arrowprops={"arrowstyle": "-|>", "color": SECRET, "lw": 1.2}
        )
        panel.annotate(
            "", (x + 0.08, 1.6), (to + 0.08, 2.25), arrowprops={"arrowstyle": "-|>", "color": OPEN, "lw": 1.2}
        )
    panel.plot([0.25, 7.4], [1.57, 1.57], color=LINE, lw=1, ls=(0, (4, 3)))
    panel.text(7.45, 1.53, "the level of the cut", size=8.5)
    panel.text(7.45, 2.7, "1  cut: counts of every part", size=8.5)
    panel.text(7.45, 2.48, "2  up: what was measured", size=8.5, color=SECRET)
    panel.text(7.45, 2.26, "3  top: whole counts above", size=8.5)
    panel.text(7.45, 2.04, "4  down: whole counts below", size=8.5, color=OPEN)
    panel.text(7.45, 1.82, "5  gather: public/", size=8.5)
    panel.text(3.8, 0.15, "A worker holds one part at a time; parts of a step may run at once.", ha="center", size=9)
    return figure


if __name__ == "__main__":
    main()
