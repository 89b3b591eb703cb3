"""The three main jobs as multiples of a peer's processor time, for the gate in tests/system/test_ratios.py.

``python benchmarks/ratios.py`` records them: a county table by the command, beside `import pandas`; a million blocks of
one cell, projected and rounded, beside sorting; a state's histograms, projected and rounded, beside sorting. A job and
its peer are measured in turn, and of several turns the median ratio is kept.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from histograms import WORKLOAD, synthetic_state
from record import save
from startup import PROGRAMS, seconds

import topdown as td
from topdown.workload.redistricting import PERSONS

TURNS = 7
Job = Callable[[], float]
"""Does the work once, and gives its processor seconds."""


def used(work: Callable[[], object]) -> float:
    """Processor seconds of this process in ``work``."""
    began = time.process_time()
    work()
    return time.process_time() - began


@cache
def _blocks() -> td.Measurements:
    geography = td.Geography.from_geoids([f"{k:07}" for k in range(1_000_000)], {"a": 2, "b": 4, "c": 5, "d": 7})
    truth = geography.tree.aggregate(np.random.default_rng(1).poisson(30, (1, 1_000_000)).astype(np.float64))
    noise = np.random.default_rng(2).normal(0, 10, truth.shape)
    return td.Measurements.from_arrays(geography, np.rint(truth + noise).T, 100.0)


def blocks() -> None:
    """A million blocks of one cell, five levels: least squares, non-negative, with certificates, and rounded."""
    td.round_counts(td.project(_blocks(), "gls-top-down"), source=td.SeededSource(3))


@cache
def _state() -> td.Measurements:
    counts = synthetic_state(3_000, PERSONS, np.random.default_rng(1))
    return td.measure(counts, td.preset(WORKLOAD).plan(counts.geography.levels), td.SeededSource(1))


def state() -> None:
    """3,000 blocks x 2,016 cells with production's eleven queries, certified and whole."""
    td.project_whole(_state(), "gls-top-down", source=td.SeededSource(2))


def sorting() -> None:
    """4 million numbers, sorted."""
    np.sort(np.random.default_rng(4).random(4_000_000))


JOBS: dict[str, tuple[Job, Job]] = {
    "a county table": (lambda: seconds(PROGRAMS["a county table"]), lambda: seconds(PROGRAMS["import pandas"])),
    "a million blocks": (lambda: used(blocks), lambda: used(sorting)),
    "a state of histograms": (lambda: used(state), lambda: used(sorting)),
}


def ratios(name: str) -> Iterator[float]:
    """The ratio of a job to its peer, turn by turn; what loads and compiles comes before the first."""
    job, peer = JOBS[name]
    job(), peer()
    while True:
        yield job() / peer()


def main() -> None:
    """Record the median ratio of every job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write here in place of benchmarks/results/ratios.json")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for name in JOBS:
        found = [ratio for ratio, _ in zip(ratios(name), range(TURNS), strict=False)]
        figures[name] = statistics.median(found)
        print(
            f"{name:25s} {figures[name]:6.2f} times its peer   (from {min(found):.2f} to {max(found):.2f})", flush=True
        )
    print(f"kept in {save('ratios', figures, arguments.json)}")


if __name__ == "__main__":
    main()
