"""A synthetic state whose upward pass starts at the blocks, or at the block groups: processor seconds and errors.

python benchmarks/upward.py [--blocks 25000] [--seeds 3]

The same input as `benchmarks/histograms.py run`, released in parts of 5,000 blocks by one process, whose processor
seconds are added up by step; errors of the released counts beside the truth, the mean of a node's in persons, of its
total and of all 2,016 cells together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from histograms import LEVELS, TOML, synthetic_state, write_state
from record import save

import topdown as td
from topdown.config import load_config
from topdown.machine.progress import Silent
from topdown.pipeline import run as pipeline
from topdown.workload.redistricting import PERSONS

PART = 5_000
VARIANTS = {"from block": "", "from block group": 'upward = "from block group"\n'}


class Timed(Silent):
    """An executor that does everything in this process, and what tells of stages: processor seconds of each."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def submit(self, fn: Callable[..., Any], /, *arguments: Any) -> Any:
        """As executors have it."""
        future: Future[Any] = Future()
        before = time.process_time()
        future.set_result(fn(*arguments))
        self.seconds[fn.__name__] += time.process_time() - before
        return future

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """As `Stages` has it."""
        before = time.process_time()
        yield
        self.seconds[title] += time.process_time() - before


def errors(public: Path, counts: td.Counts) -> dict[str, tuple[float, float]]:
    """By level the mean error of a node's total, and the mean sum of those of its cells."""
    table = pq.read_table(public / "release.parquet")
    geography = counts.geography
    nodes = geography.n_nodes
    numbers = dict(zip(pq.read_table(public / "geography.parquet")["geoid"].to_pylist(), range(nodes), strict=True))
    at = np.array([numbers[one] for one in table["geoid"].to_pylist()])
    places = [
        np.array([attribute.categories.index(one) for one in table[attribute.name].to_pylist()])
        for attribute in PERSONS.attributes
    ]
    cells = np.ravel_multi_index(places, PERSONS.shape)
    found = {}
    for level in LEVELS:
        rows = geography.level_slice(level)
        inside = (at >= rows.start) & (at < rows.stop)
        gap = -counts.values[rows].astype(np.int64)
        np.add.at(gap, (at[inside] - rows.start, cells[inside]), table["count"].to_numpy()[inside])
        found[level] = float(np.abs(gap.sum(axis=1)).mean()), float(np.abs(gap).sum(axis=1).mean())
    return found


def main() -> None:
    """Both variants, of which the seeds' noise differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=25_000)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each variant, each with noise of its own")
    arguments = parser.parse_args()
    counts = synthetic_state(arguments.blocks, PERSONS, np.random.default_rng(1))
    figures: dict[str, Any] = {"blocks": arguments.blocks, "runs": arguments.seeds}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_state(folder, counts)
        for variant, upward in VARIANTS.items():
            seconds: dict[str, list[float]] = defaultdict(list)
            apart: dict[str, list[tuple[float, float]]] = defaultdict(list)
            text = TOML.replace('tables = ["P1", "P2", "P3", "P4", "P5"]', "csv = false")
            (folder / "run.toml").write_text(f"{text}[projection]\ncross_check = false\n{upward}")
            for seed in range(arguments.seeds):
                timed = Timed()
                output = folder / f"{variant} {seed}"
                made = pipeline.run(
                    load_config(folder / "run.toml"), output, timed, part_size=PART, executor=timed, workers=1
                )
                timed.seconds["top"] = timed.seconds["projecting above the parts"]
                for step in ("up", "top", "down", "write"):
                    seconds[step].append(timed.seconds[step])
                for level, found in errors(made.public, counts).items():
                    apart[level].append(found)
            for step, each in seconds.items():
                figures[f"{variant}: {step}, processor seconds"] = min(each)
                print(f"  {variant:18s} {step:6s} {min(each):8.2f} s of the processor")
            for level, both in apart.items():
                total, cells = np.mean(both, axis=0)
                figures[f"{variant}: {level}, error of the total"] = float(total)
                figures[f"{variant}: {level}, error of all cells"] = float(cells)
                print(f"  {variant:18s} {level:12s} total {total:.3f}   cells {cells:.2f}", flush=True)
    save("upward", figures)


if __name__ == "__main__":
    main()
