"""Who gains from a spine, on the 569 blocks of a redistricting file: areas by kind and size, before and after.

``python pipelines/spines/who_gains.py [--replicates N] [--figure FILE]``

The plan is that of `rhode_island.toml`, the areas are the legislative and voting districts of the file's own header.
Three trees at the same budget are studied (`td.simulate`): the tree of the census with the shares of the plan and with
the best ones, and the spine that `topdown spine` chooses, where census block groups have no weight. Printed are root
mean squared errors of released totals, beside the exact standard deviations of least squares. The figure has a point
for every area, tract and block group.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

import topdown as td
from topdown.config import load_config
from topdown.geography.unit_sums import SpineGeography
from topdown.pages.chart_style import INK, styled
from topdown.planning.spine_search import SpineProblem, search
from topdown.planning.spines import facts_of
from topdown.tables.assignments import areas_of

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "data" / "small"
KINDS = ("senate", "house", "voting")
LEVELS = ("county", "tract", "block group")
EDGES = (0, 1_000, 2_000, 5_000, 1_000_000)
CLASSES = ("up to 999", "1,000 to 1,999", "2,000 to 4,999", "5,000 and more")
BEFORE, BEST, AFTER = "census tree", "census tree, best shares", "spine"
RELEASED = "gls-top-down/rounded"


def units() -> td.Geography:
    """The blocks and all above them."""
    blocks = pd.read_csv(DATA / "ri_pl94_2018_blocks.csv", dtype=str)["block"]
    widths = {"county": 5, "tract": 11, "block group": 12, "block": 15}
    return td.Geography.from_geoids(blocks, widths=widths, root="44", root_level="state")


def studied(replicates: int) -> pd.DataFrame:
    """A row for every area and published unit: its persons, and by tree the expected and the released error."""
    geography, plan = units(), load_config(HERE / "rhode_island.toml").plan()
    given = areas_of([DATA / "ri_pl94_2018_districts" / f"{kind}.csv" for kind in KINDS], geography)
    facts = facts_of(geography, given)
    found = search(SpineProblem.of(plan, geography, None, given, {"block group": 0}))
    best_shares = {level: Fraction(part) for level, part in found.candidates[1].shares.items()}
    left = 1 - sum(list(best_shares.values())[:-1])
    best_shares[geography.levels[-1]] = left  # shares are exact
    same = td.Plan("discrete-gaussian", rho=plan.total, shares=best_shares)
    census = td.Spine(list(LEVELS), cap=None)
    print("spine: " + " > ".join(f"{level} ({share:.3f})" for level, share in found.best.shares.items()))
    totals = pd.read_csv(DATA / "ri_pl94_2018_totals.csv", dtype={"block": str})
    frames = []
    for name, spine, own in ((BEFORE, census, plan), (BEST, census, same), (AFTER, found.best.spine, found.plan)):
        tree = SpineGeography.of(
            spine.geography(geography, given),
            geography,
            {kind: (facts.names[kind], facts.codes[kind]) for kind in KINDS},
        )
        counts = td.Counts.from_table(totals, tree, geoid="block", cells=["persons"])
        errors = td.simulate(counts, own, ["gls", RELEASED], replicates, seed=1, distances=False, public_input=True)
        rows = errors.to_frame().set_index(["level", "geoid", "truth"])
        expected = rows.loc[rows["method"] == "gls", "predicted_variance"]
        released = rows.loc[rows["method"] == RELEASED, "mse"]
        frames.append(pd.DataFrame({f"expected, {name}": np.sqrt(expected), f"released, {name}": np.sqrt(released)}))
    return pd.concat(frames, axis=1).reset_index()


def by_size(rows: pd.DataFrame) -> pd.DataFrame:
    """Means by kind and size class, and of how many units the released error is less than with the best shares."""
    kept = rows[rows["level"].isin([*KINDS, *LEVELS]) & (rows["geoid"] != "none")].copy()
    kept["persons"] = pd.cut(kept["truth"], EDGES, right=False, labels=CLASSES)
    kept["gain"] = kept[f"released, {AFTER}"] < kept[f"released, {BEST}"]
    found = []
    for (level, size), some in kept.groupby(["level", "persons"], observed=True, sort=False):
        means = {
            f"{what}, {tree}": round(some[f"{what}, {tree}"].mean(), 2)
            for what in ("expected", "released")
            for tree in (BEFORE, BEST, AFTER)
        }
        found.append({"areas": level, "persons": size, "how many": len(some), **means, "gain": int(some["gain"].sum())})
    order = {level: place for place, level in enumerate((*KINDS, *LEVELS))}
    place = {size: number for number, size in enumerate(CLASSES)}
    return pd.DataFrame(found).sort_values(
        ["areas", "persons"], key=lambda one: one.map(order if one.name == "areas" else place).astype(int)
    )


def figure(rows: pd.DataFrame) -> str:
    """An SVG picture: the released error of every unit, before and after."""
    kept = rows[rows["level"].isin([*KINDS, *LEVELS[1:]]) & (rows["geoid"] != "none")]
    frame = pd.DataFrame(
        {
            "units": kept["level"].to_numpy(),
            "persons": kept["truth"].to_numpy(),
            "x": kept[f"released, {BEST}"].to_numpy(),
            "y": kept[f"released, {AFTER}"].to_numpy(),
        }
    )
    ends = [0.0, float(np.ceil(frame[["x", "y"]].to_numpy().max()))]
    axis = alt.Scale(domain=ends)
    line = alt.Chart(pd.DataFrame({"x": ends, "y": ends})).mark_line(color=INK, opacity=0.5, strokeDash=[4, 4])
    points = alt.Chart(frame).mark_point(filled=True, opacity=0.8, stroke=INK, strokeWidth=0.4)
    points = points.encode(
        x=alt.X("x:Q", title="error on the tree of the census, best shares", scale=axis),
        y=alt.Y("y:Q", title="error on the chosen spine", scale=axis),
        color=alt.Color("units:N", title="units", sort=[*KINDS, *LEVELS[1:]]),
        size=alt.Size("persons:Q", title="persons", scale=alt.Scale(range=[20, 300])),
    )
    title = alt.TitleParams("Who gains", subtitle="released totals, root mean squared errors; below the line: gains")
    room = {"left": 5, "top": 5, "right": 70, "bottom": 5}
    both = alt.layer(line.encode(x="x:Q", y="y:Q"), points).properties(width=400, height=400, title=title, padding=room)
    spec = styled(both, "error of every area on the chosen spine against that on the tree of the census")
    return str(vl_convert.vegalite_to_svg(spec | {"background": "white"}))


def main() -> None:
    """Print the table, and draw the figure where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    rows = studied(given.replicates)
    print(by_size(rows).to_string(index=False))
    if given.figure is not None:
        given.figure.write_text(figure(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
