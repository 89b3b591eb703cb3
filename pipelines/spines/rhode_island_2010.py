"""Spines for the 25,181 blocks of Rhode Island: what every spine makes of areas and tracts, and who gains.

``python pipelines/spines/rhode_island_2010.py BLOCKS [--seed N] [--replicates N] [--ratios SEEDS] [--sizes]``

BLOCKS is a table whose first column has the GEOIDs of 2010's blocks (15 digits), and its second one, for replicates of
a release on the chosen spine, their counts. The areas are random, of realistic numbers and shapes: 36 school districts,
60 places (a tenth of the blocks is in none) and 8 districts, runs of blocks whose borders are ragged. The plan is that
of the total in the 2020 production run. First the spines with production's shares, then those of `topdown spine` with
the best ones; then the areas by size, before and after. ``--ratios``: instead, how the spines' errors are to each other
for so many random sets of areas. ``--sizes``: instead, what groups of another size than the best spine's would have.
"""

from __future__ import annotations

import argparse
import time
from fractions import Fraction

import numpy as np
import pandas as pd

import topdown as td
from topdown.planning.spine_search import ComparedSpine, FoundSpine, SpineProblem, search
from topdown.tables.assignments import areas_of

Areas = dict[str, dict[str, str]]
AREAS = {"school": (36, 0.0), "place": (60, 0.1), "district": (8, 0.0)}
"""How many areas of every kind, and which part of the blocks is in none."""
RAGGED, PATCH = 0.35, 2
"""Which part of the patches of so many blocks belongs to the next area."""
LEVELS = ("county", "tract", "block group")
PRODUCTION = {
    "state": Fraction(1440, 4099) * Fraction(3773, 4097),
    "county": Fraction(447, 4099) * Fraction(3126, 4097),
    "tract": Fraction(687, 4099) * Fraction(1567, 4102),
    "block group": Fraction(1256, 4099) * Fraction(1705, 4099),
    "block": Fraction(165, 4099) * Fraction(5, 4097),
}
"""The total's part of rho 2.56 at every level (`topdown/privacy/presets.py`)."""


def areas(blocks: list[str], seed: int) -> Areas:
    """The areas of every kind."""
    rng, n, found = np.random.default_rng(seed), len(blocks), {}
    for kind, (many, nowhere) in AREAS.items():
        cuts = np.sort(rng.choice(n - 1, many - 1, replace=False)) + 1
        patch = np.arange(n) // PATCH
        moved = (rng.random(patch[-1] + 1) < RAGGED)[patch]
        of = np.minimum(np.searchsorted(cuts, np.arange(n), side="right") + moved, many - 1)
        outside = (rng.random(patch[-1] + 1) < nowhere)[patch]
        found[kind] = {block: str(area) for block, area, out in zip(blocks, of, outside, strict=True) if not out}
    return found


def spines() -> list[tuple[str, td.Spine, dict[str, Fraction]]]:
    """The spines to compare, with shares made of production's."""
    own, groups = PRODUCTION, "pieces x tract"
    both = own["tract"] + own["block group"]
    moved = {level: own[level] for level in ("state", "county", "block")}
    follows = {**moved, "tract": own["tract"], groups: own["block group"]}
    return [
        ("census: tract, block group", td.Spine(LEVELS, cap=None), own),
        ("groups follow all areas, sqrt + 12", td.Spine(["county", "tract", groups]), follows),
        ("the same without the cap", td.Spine(["county", "tract", groups], cap=None), follows),
        ("the same, 80 % to the groups", td.Spine(["county", "tract", groups], cap=None),
         {**moved, "tract": both / 5, groups: both * 4 / 5}),
        ("county > pieces (half) > pieces x tract", td.Spine(["county", "pieces", groups], cap=None),
         {**moved, "pieces": both / 2, groups: both / 2}),
        ("county > pieces (.7) > pieces x tract", td.Spine(["county", "pieces", groups], cap=None),
         {**moved, "pieces": both * 7 / 10, groups: both * 3 / 10}),
        ("school > its counties (.3) > pieces (.2) > pieces x tract (.5)",
         td.Spine(["school", "school x county", "pieces", groups], cap=None),
         {"state": own["state"], "block": own["block"], "school": own["county"], "school x county": both * 3 / 10,
          "pieces": both / 5, groups: both / 2}),
    ]  # fmt: skip


def row(one: ComparedSpine) -> dict[str, object]:
    """A row of the table."""
    names = ("school", "place", "district", "county", "tract", "block group")
    return {"spine": one.words, "groups": one.groups, **{name: round(one.errors[name], 2) for name in names}}


PAIRS = [
    ("cap / no cap", 1, 2),
    ("80 % to the groups / half", 3, 2),
    ("pieces above / none", 4, 2),
    ("pieces .7 / half", 5, 4),
    ("school first / pieces first", 6, 4),
]
"""Which spines, by their places in `spines`, have their errors divided."""
COLUMNS = ("school", "place", "district", "tract")


def ratios(geography: td.Geography, plan: td.Plan, seeds: int) -> pd.DataFrame:
    """The ratios of `PAIRS`: their mean over so many sets of areas, the least and the largest."""
    blocks, found = geography.geoid[geography.tree.leaves].tolist(), []
    total = sum(PRODUCTION.values())
    for seed in range(1, seeds + 1):
        problem = SpineProblem.of(plan, geography, None, areas_of(areas(blocks, seed), geography), {"block group": 0})
        errors = [
            problem.candidate(words, spine, {level: float(part / total) for level, part in shares.items()}).errors
            for words, spine, shares in spines()
        ]
        found.append([[errors[one][name] / errors[other][name] for name in COLUMNS] for _, one, other in PAIRS])
    all_seeds = np.array(found)
    mean, low, high = all_seeds.mean(axis=0), all_seeds.min(axis=0), all_seeds.max(axis=0)
    rows = [
        {"errors of": words}
        | {name: f"{mean[k, j]:.3f} ({low[k, j]:.3f} to {high[k, j]:.3f})" for j, name in enumerate(COLUMNS)}
        for k, (words, _, _) in enumerate(PAIRS)
    ]
    return pd.DataFrame(rows)


SIZED = {
    "production's": PRODUCTION,
    "0.4 to blocks": {
        "state": Fraction(1, 10), "county": Fraction(1, 10), "tract": Fraction(1, 5), "block group": Fraction(1, 5),
        "block": Fraction(2, 5),
    },
}  # fmt: skip
"""Shares of the plan for which the sizes of groups are varied."""


def sizes(geography: td.Geography, drawn: Areas) -> pd.DataFrame:
    """The weighted error of the best spine's levels with groups that are cut, or joined, beside its own, in percent."""
    rows = []
    for name, own in SIZED.items():
        total = sum(own.values())
        shares = {level: part / total for level, part in own.items()}
        plan = td.Plan(
            "discrete-gaussian", rho=Fraction(256, 100) * sum(PRODUCTION.values()), shares=shares,
            neighbours="substitute",
        )  # fmt: skip
        for weights in ({"block group": 0.0}, {"block group": 0.0, "tract": 0.1}, {"block group": 0.0, "block": 1.0}):
            problem = SpineProblem.of(plan, geography, None, areas_of(drawn, geography), weights)
            best = search(problem).best
            row: dict[str, object] = {"shares": name, "weights": str(weights), "found": best.spine.size_words or "-"}
            whole = problem.candidate("whole", td.Spine(best.spine.levels, cap=None)).error
            for cap, least in ((128, 1), (64, 1), ("sqrt", 1), (16, 1), (None, 2), (None, 4), (None, 8), (None, 16)):
                error = problem.candidate("sized", td.Spine(best.spine.levels, cap, least)).error
                row[f"cap {cap}" if cap else f"least {least}"] = round(100 * (error / whole - 1), 2)
            rows.append(row)
    return pd.DataFrame(rows)


def replicates(table: pd.DataFrame, found: FoundSpine, tree: td.Geography, areas: Areas, many: int) -> pd.DataFrame:
    """By kind what was expected, and the errors of so many releases on the chosen spine and of least squares."""
    counts = td.Counts.from_table(table, tree, geoid=table.columns[0], cells=[table.columns[1]])
    leaves = tree.tree.leaves
    truth = counts.values[leaves, 0]
    codes = {kind: [of.get(block, "") for block in tree.geoid[leaves]] for kind, of in areas.items()}
    squares: dict[tuple[str, str], pd.Series[float]] = {}
    for seed in range(many):
        measurements = td.measure(counts, found.plan, td.SeededSource(seed))
        made = {
            "released": td.round_counts(td.project(measurements, "gls-top-down", nonnegative=True)),
            "least squares": td.project(measurements, "gls", nonnegative=False),
        }
        for name, one in made.items():
            error = pd.Series(one.values[leaves, 0] - truth)
            for kind, code in codes.items():
                square = error.groupby(code).sum() ** 2 / many
                squares[kind, name] = squares.get((kind, name), 0.0) + square
    said = found.plan.errors(tree, areas=areas).set_index("level")["sd_mean"]
    rows = []
    for kind in areas:
        means = {name: round(np.sqrt(squares[kind, name].drop("", errors="ignore")).mean(), 2) for name in made}
        rows.append({"areas": kind, "expected": round(said[kind], 2), **means})
    return pd.DataFrame(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("blocks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicates", type=int, default=0)
    parser.add_argument("--ratios", type=int, default=0, metavar="SEEDS")
    parser.add_argument("--sizes", action="store_true")
    given = parser.parse_args()
    table = pd.read_csv(given.blocks, dtype={0: str}, usecols=[0, 1])
    column = table.iloc[:, 0].tolist()
    widths = {"county": 5, "tract": 11, "block group": 12, "block": 15}
    geography = td.Geography.from_geoids(column, widths=widths, root="44", root_level="state")
    drawn = areas(geography.geoid[geography.tree.leaves].tolist(), given.seed)
    total = sum(PRODUCTION.values())
    plan = td.Plan(
        "discrete-gaussian",
        rho=Fraction(256, 100) * total,
        shares={level: part / total for level, part in PRODUCTION.items()},
        neighbours="substitute",
    )
    if given.ratios:
        print(ratios(geography, plan, given.ratios).to_string(index=False))
        return
    if given.sizes:
        print(sizes(geography, drawn).to_string(index=False))
        return
    problem = SpineProblem.of(plan, geography, None, areas_of(drawn, geography), {"block group": 0})
    fixed = [
        problem.candidate(words, spine, {level: float(part / total) for level, part in shares.items()})
        for words, spine, shares in spines()
    ]
    print("Mean standard deviations of the total, production's shares\n")
    print(pd.DataFrame([row(one) for one in fixed]).to_string(index=False))
    begin = time.perf_counter()
    found = search(problem)
    print(f"\nThe best shares of the same budget; the search took {time.perf_counter() - begin:.0f} s\n")
    print(pd.DataFrame([row(one) for one in found.candidates]).to_string(index=False))
    print("\nchosen: " + " > ".join(f"{level} ({100 * share:.2g} %)" for level, share in found.best.shares.items()))
    tree = found.best.spine.geography(geography, drawn)
    print("\nWho gains: mean standard deviation by kind and number of blocks, before and after\n")
    rows = []
    for kind, of in drawn.items():
        size = pd.Series(of).value_counts()
        for low, high, words in ((1, 249, "up to 249"), (250, 999, "250 to 999"), (1000, len(of), "1,000 and more")):
            there = [area for area in size.index if low <= size[area] <= high]
            some = {kind: {block: area for block, area in of.items() if area in there}}
            if there:
                before, after = (
                    one.errors(where, areas=some).set_index("level").loc[kind, "sd_mean"]
                    for one, where in ((plan, geography), (found.plan, tree))
                )
                rows.append((kind, words, len(there), round(before, 1), round(after, 2)))
    print(pd.DataFrame(rows, columns=["areas", "blocks", "how many", "before", "after"]).to_string(index=False))
    if given.replicates:
        tracts = {f"the {name}": {block: block[: widths[name]] for block in column} for name in ("tract", "county")}
        print(f"\nRoot mean squared errors of {given.replicates} releases on the chosen spine, mean over areas\n")
        print(replicates(table, found, tree, drawn | tracts, given.replicates).to_string(index=False))


if __name__ == "__main__":
    main()
