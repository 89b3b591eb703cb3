"""The tree engine beside cvxpy (OSQP) on the same programs: the same answers, and the ratio of the times.

    python benchmarks/projection.py [--sizes 75000 ...] [--methods top-down joint ...] [--shapes] [--json FILE]

The first tree is the 3,140 counties of data/us_counties_labor_force_2009.parquet; each of ``--sizes`` is a made tree of
four levels with so many leaves. ``--shapes`` adds what could hide a quadratic step, by the tree engine alone: a family
of a million, chains, families of 1 beside families of 100,000, each at two sizes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import record

import topdown as td
from topdown.errors import ProjectionError
from topdown.geography.tree import Tree

DATA = Path(__file__).resolve().parent.parent / "data" / "us_counties_labor_force_2009.parquet"
VARIANCE = 200.0
METHODS = ("top-down", "gls", "gls-top-down", "joint")


def noisy(geography: td.Geography, truth: Any, rng: np.random.Generator) -> td.Measurements:
    noise = np.rint(rng.laplace(scale=np.sqrt(VARIANCE / 2), size=truth.shape))
    return td.Measurements.from_arrays(geography, truth + noise, VARIANCE)


def counties(rng: np.random.Generator) -> td.Measurements:
    frame = pd.read_parquet(DATA)
    geography = td.Geography.from_table(frame, levels=["nation", "state", "county"])
    counts = td.Counts.from_table(frame, geography, geoid="county", cells=["employed", "unemployed"])
    return noisy(geography, counts.values.astype(np.float64), rng)


def on_tree(tree: Tree, rng: np.random.Generator) -> td.Measurements:
    leaves = rng.lognormal(3.0, 1.2, tree.n_leaves).astype(np.int64) * (rng.random(tree.n_leaves) < 0.7)
    levels = tuple(f"level {k}" for k in range(tree.n_levels))
    names = pa.array([f"{node:08d}" for node in range(tree.n_nodes)])
    truth = tree.aggregate(leaves)[:, None].astype(np.float64)
    return noisy(td.Geography(levels, tree, names), truth, rng)


def made_tree(n_leaves: int, rng: np.random.Generator) -> Tree:
    """51 states, counties of some 25 leaves."""
    counties = max(51, n_leaves // 25)
    sizes = [[51], split(51, counties, rng), split(counties, max(n_leaves, counties), rng)]
    return Tree.from_family_sizes(sizes)


def split(parents: int, children: int, rng: np.random.Generator) -> Any:
    weights = rng.gamma(1.5, size=parents)
    return 1 + rng.multinomial(children - parents, weights / weights.sum())


def solve(measurements: td.Measurements, method: str, engine: str, repeats: int) -> tuple[td.Estimate, float]:
    """The estimate, and the least wall time of the repeats in seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        estimate = td.project(measurements, method, engine=engine)
        seconds.append(time.perf_counter() - start)
    return estimate, min(seconds)


def beside(title: str, measurements: td.Measurements, method: str, figures: dict[str, Any]) -> None:
    ours, seconds = solve(measurements, method, "tree", 3)
    figures[f"{title}, {method}: tree, seconds"] = seconds
    line = f"{title:18s} {method:13s} {seconds:10.4f}"
    try:
        theirs, slow = solve(measurements, method, "cvxpy", 1)
    except ProjectionError as error:
        print(f"{line}   cvxpy: {error}", flush=True)
        return
    difference = float(np.abs(ours.values - theirs.values).max())
    figures[f"{title}, {method}: cvxpy, seconds"] = slow
    figures[f"{title}, {method}: ratio"] = slow / seconds
    figures[f"{title}, {method}: largest difference"] = difference
    print(
        f"{line} {slow:10.3f} {slow / seconds:9.0f} {difference:12.2e} {ours.certificate.kkt:12.2e} "
        f"{theirs.certificate.kkt:12.2e}",
        flush=True,
    )


def odd_shapes(figures: dict[str, Any], rng: np.random.Generator) -> None:
    print(f"\n{'shape':34s} {'leaves':>9s} {'method':13s} {'seconds':>9s} {'ns/node':>9s} {'kkt':>9s}")
    shapes = {
        "one family": lambda n: [[n]],
        "20 levels, families of one": lambda n: [[n], *[[1] * n] * 18],
        "families of 1 and of 100,000": lambda n: [[n // 100], [1] * (n // 100 - n // 10**5) + [10**5] * (n // 10**5)],
    }
    sizes = {"20 levels, families of one": (10**4, 10**5)}
    for title, shape in shapes.items():
        for n in sizes.get(title, (10**5, 10**6)):
            tree = Tree.from_family_sizes(shape(n))
            measurements = on_tree(tree, rng)
            for method in METHODS:
                estimate, seconds = solve(measurements, method, "tree", 2)
                per_node = seconds / tree.n_nodes * 1e9
                figures[f"{title}, {n} leaves, {method}: ns a node"] = per_node
                kkt = estimate.certificate.kkt
                print(
                    f"{title:34s} {tree.n_leaves:9d} {method:13s} {seconds:9.4f} {per_node:9.0f} {kkt:9.1e}", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[75_000], help="leaves of made trees beside the counties"
    )
    parser.add_argument("--methods", nargs="*", default=["top-down", "gls", "joint"], choices=METHODS)
    parser.add_argument("--shapes", action="store_true", help="also very large families, chains, mixed families")
    parser.add_argument("--json", type=Path, help="where the figures go; by default benchmarks/results/projection.json")
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    figures: dict[str, Any] = {}
    print(
        f"{'tree':18s} {'method':13s} {'tree [s]':>10s} {'cvxpy [s]':>10s} {'ratio':>9s} {'difference':>12s} "
        f"{'kkt tree':>12s} {'kkt cvxpy':>12s}"
    )
    trees = [("counties", counties(rng))] + [(f"{n} leaves", on_tree(made_tree(n, rng), rng)) for n in arguments.sizes]
    for title, measurements in trees:
        for method in arguments.methods:
            beside(title, measurements, method, figures)
    if arguments.shapes:
        odd_shapes(figures, rng)
    print(f"\nwrote {record.save('projection', figures, arguments.json)}")


if __name__ == "__main__":
    main()
