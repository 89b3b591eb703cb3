"""Time of simulating replicates of measure -> project, beside the same programs solved by cvxpy one by one.

``python benchmarks/simulation.py [--replicates N] [--methods M ...] [--workers W] [--without-cvxpy] [--json FILE]``.
Three parts: all 3,192 nodes of the US counties, two cells, equality and non-negative top-down; the same through cvxpy
and OSQP on a few replicates, one process, and the ratio per replicate; 80,000 replicates of the counties of Arizona and
of Texas. Seconds are of the clock; CPU seconds, the workers' included, tell more on a machine that does other things.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import topdown as td

DATA = Path(__file__).resolve().parent.parent / "data" / "us_counties_labor_force_2009.parquet"
CELLS = ["employed", "unemployed"]
METHODS = ["top-down/equality", "top-down"]
NATIONAL = td.Plan("geometric", epsilon=1, shares={"nation": "0.2", "state": "0.3", "county": "0.5"})
STATE = td.Plan("geometric", epsilon="0.1", shares={"county": 1}, invariants=("state",))


def load(state: str | None = None) -> td.Counts:
    frame = pq.read_table(DATA).to_pandas()
    if state is not None:
        frame = frame[frame["state_name"] == state]
    levels = ["nation", "state", "county"] if state is None else ["state", "county"]
    geography = td.Geography.from_table(frame, levels=levels)
    return td.Counts.from_table(frame, geography, geoid="county", cells=CELLS)


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def timed(work: Callable[[], object]) -> dict[str, float]:
    clock, cpu = time.perf_counter(), cpu_seconds()
    work()
    seconds = time.perf_counter() - clock
    # A worker's CPU seconds are known when it has ended.
    while multiprocessing.active_children():
        time.sleep(0.01)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}


def progress(done: int, total: int) -> None:
    print(f"\r  {done:,} of {total:,}", end="\r" if done < total else "\n", flush=True)


def by_solver(counts: td.Counts, replicates: int) -> None:
    """The same programs, measured and projected one replicate at a time."""
    for replicate in range(replicates):
        measurements = td.measure(counts, NATIONAL, source=td.SeededSource((1, replicate)))
        for nonnegative in (False, True):
            td.project(measurements, "top-down", nonnegative=nonnegative, engine="cvxpy")


def peak_mebibytes() -> dict[str, float]:
    who = {"parent": resource.RUSAGE_SELF, "largest_worker": resource.RUSAGE_CHILDREN}
    return {name: resource.getrusage(which).ru_maxrss / 1024 for name, which in who.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=100_000)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--solver-replicates", type=int, default=3)
    parser.add_argument("--without-cvxpy", action="store_true")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    results: dict[str, object] = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "workers": options.workers,
        "replicates": options.replicates,
    }

    counts = load()
    print(f"{counts}, {' and '.join(options.methods)}, {options.replicates:,} replicates on {options.workers} workers")
    whole = timed(
        lambda: td.simulate(
            counts, NATIONAL, options.methods, options.replicates, 1, workers=options.workers, progress=progress
        )
    )
    whole["replicates_per_second"] = options.replicates / whole["seconds"]
    results["us_counties"] = whole
    results["peak_mebibytes"] = peak_mebibytes()
    print(f"  {whole['seconds']:.1f} s, {whole['cpu_seconds']:.1f} CPU s, load {results['load']:.1f} at the start")
    print("  peak memory: " + ", ".join(f"{k} {v:.0f} MiB" for k, v in peak_mebibytes().items()))

    if not options.without_cvxpy:
        solver = timed(lambda: by_solver(counts, options.solver_replicates))
        per_replicate = solver["cpu_seconds"] / options.solver_replicates
        solver["ratio_of_cpu_seconds"] = per_replicate / (whole["cpu_seconds"] / options.replicates)
        results["cvxpy"] = solver | {"replicates": options.solver_replicates}
        print(
            f"cvxpy and OSQP: {per_replicate:.2f} CPU s a replicate, {solver['ratio_of_cpu_seconds']:,.0f} times ours; "
            f"{options.replicates:,} replicates would take {per_replicate * options.replicates / 3600:,.1f} CPU hours"
        )

    for state in ("Arizona", "Texas"):
        chosen = load(state)
        part = timed(
            lambda chosen=chosen: td.simulate(chosen, STATE, options.methods, 80_000, 1, workers=options.workers)
        )
        results[state] = part
        print(f"{state}, 80,000 replicates: {part['seconds']:.1f} s, {part['cpu_seconds']:.1f} CPU s")

    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
