"""What it takes to bind noise to a nation's counts: the code of all of them, beside drawing their noise once.

python benchmarks/counts_code.py
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown import Counts, Plan
from topdown.confidential.bound_streams import code_of_counts
from topdown.confidential.entries import Entries
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree
from topdown.noise import DiscreteLaplace
from topdown.noise.key import NoiseKey, chunks
from topdown.workload.redistricting import PERSONS

BLOCKS = 8_130_000
RECORDS = 6.8
"""Cells with records in a block, on average."""


def main() -> None:
    rng, key, plan = np.random.default_rng(1), NoiseKey(os.urandom(32), "", ""), Plan("geometric", epsilon=1)
    sizes = [np.array([51]), np.full(51, 62), np.full(51 * 62, 27), np.full(51 * 62 * 27, 3)]
    groups = int(sizes[-1].sum())
    sizes.append(np.bincount(np.arange(BLOCKS) % groups))
    tree = Tree.from_family_sizes(sizes)
    names = pc.utf8_lpad(pa.array(np.arange(tree.n_nodes)).cast(pa.string()), 8, "0")
    geography = Geography(("nation", "state", "county", "tract", "block group", "block"), tree, names)

    people = np.zeros((1, tree.n_nodes), np.int64)
    people[0, tree.leaves] = rng.poisson(40, BLOCKS)
    one_cell = Counts(geography, ("people",), people.T)
    law, streams = DiscreteLaplace(5), key.streams("")
    drawing = seconds(lambda: [law.sample(c.stop - c.start, streams.stream(c.start)) for c in chunks(BLOCKS, 1)])
    report("one cell", BLOCKS, seconds(lambda: code_of_counts(one_cell, plan, key)), drawing)

    starts = np.zeros(tree.n_nodes + 1, np.int64)
    starts[tree.leaves.start + 1 :] = np.cumsum(rng.poisson(RECORDS, BLOCKS))
    cells = rng.integers(0, PERSONS.n_cells, starts[-1]).astype(np.int16)
    entries = Entries(starts, cells, rng.integers(1, 9, starts[-1]).astype(np.int32))
    several = Counts(geography, PERSONS.cells(), entries, PERSONS)
    took = seconds(lambda: code_of_counts(several, plan, key))
    report(f"{PERSONS.n_cells:,} cells", int(starts[-1]), took, drawing)


def seconds(work: Callable[[], object]) -> float:
    """Of one thread, the median of five."""
    found = []
    for _ in range(5):
        begun = time.thread_time()
        work()
        found.append(time.thread_time() - begun)
    return statistics.median(found)


def report(name: str, counts: int, took: float, drawing: float) -> None:
    print(f"{name:12}{counts:12,} counts above 0: {took:6.3f} s, {took / drawing:.1f} of drawing noise for every block")


if __name__ == "__main__":
    main()
