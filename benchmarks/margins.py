"""Margins of error of a nation: seconds per node, and of regions of it beside that.

``python benchmarks/margins.py [nodes | regions] [--blocks N] [--json FILE]``

nodes      every interval of a nation of 8,132,968 blocks and one cell, stage by stage, with the peak of memory
regions    sums over 10, 1,000 and 10,000 blocks of 9 million, random and in a row, once what all share is known
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
from nation import PLAN
from record import peak_memory, save, timed
from synthetic import BLOCKS, WIDTHS, nation

import topdown as td
from topdown.analysis.regions import Regions
from topdown.uncertainty.laws.answer_laws import AnswerLaws
from topdown.uncertainty.margins import margins_of

REGION_BLOCKS = 9_000_000
SIZES = (10, 1_000, 10_000)


def measured(blocks: int) -> td.Measurements:
    """Measurements of a nation under the plan of the main job."""
    table = nation(blocks)
    geography = td.Geography.from_geoids(table["geoid"], WIDTHS)
    counts = td.Counts.from_table(table, geography, geoid="geoid", cells=["population"])
    return td.measure(counts, PLAN)


def nodes(blocks: int) -> dict[str, float]:
    """Seconds of all intervals, of the laws alone, and the memory that they take beside what is there."""
    figures: dict[str, float] = {}
    measurements = measured(blocks)
    release = td.round_counts(td.project(measurements, "gls-top-down"))
    before = peak_memory()
    with timed(figures, "laws of all nodes"):
        laws = AnswerLaws.of(measurements)
    print(f"  {len(laws.of_cells):,} shapes of laws")
    figures["shapes"] = float(len(laws.of_cells))
    del laws
    begun = time.process_time()
    with timed(figures, "all margins"):
        margins_of(measurements, release)
    figures["processor seconds, all margins"] = time.process_time() - begun
    figures["seconds per million nodes"] = figures["all margins"] / measurements.geography.n_nodes * 1e6
    figures["peak GiB before"], figures["peak GiB"] = before, peak_memory()
    return figures


def regions(blocks: int) -> dict[str, float]:
    """Milliseconds of one region, the median of several."""
    figures: dict[str, float] = {}
    measurements = measured(blocks)
    geography = measurements.geography
    leaves, rng = geography.tree.leaves, np.random.default_rng(1)
    regions = Regions(measurements)
    with timed(figures, "what all regions share"):
        regions.region({geography.geoid[0]: 1.0})
    for size in SIZES:
        for kind in ("random", "in a row"):
            times = []
            for _ in range(7):
                first = int(rng.integers(leaves.start, leaves.stop - size))
                random = rng.choice(geography.tree.n_leaves, size, replace=False) + leaves.start
                asked = random if kind == "random" else np.arange(first, first + size)
                weights = dict.fromkeys(geography.identifiers.take(asked).to_pylist(), 1.0)
                begin = time.perf_counter()
                regions.region(weights)
                times.append(1e3 * (time.perf_counter() - begin))
            figures[f"ms, {size:,} blocks {kind}"] = statistics.median(times)
            print(f"  {size:6,} blocks {kind:10s} {statistics.median(times):10.2f} ms (first {times[0]:.2f})")
    return figures


def main() -> None:
    """One of the two jobs of this module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["nodes", "regions"])
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--json", type=Path, help="write here in place of benchmarks/results")
    arguments = parser.parse_args()
    if arguments.job == "nodes":
        figures = nodes(arguments.blocks or BLOCKS)
    else:
        figures = regions(arguments.blocks or REGION_BLOCKS)
    save(f"margins-{arguments.job}", figures, arguments.json)


if __name__ == "__main__":
    main()
