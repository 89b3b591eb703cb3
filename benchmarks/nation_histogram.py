"""A synthetic nation's redistricting file: 8,132,968 blocks x 2,016 cells and production's queries, by `topdown run`.

python benchmarks/nation_histogram.py make build/nation-histogram               long rows, a file a state
python benchmarks/nation_histogram.py make build/small --scale 0.01             a nation of a hundredth of the blocks
python benchmarks/nation_histogram.py make build/two --states 2                 two states of the whole nation
python benchmarks/nation_histogram.py run build/nation-histogram                from these to a release with P1 to P5
python benchmarks/nation_histogram.py run build/nation-histogram --go-on        the same, from where it was stopped
python benchmarks/nation_histogram.py run build/nation-histogram --upward       upward pass from the block groups
python benchmarks/nation_histogram.py accuracy build/small                      errors of a run, and production's
python benchmarks/nation_histogram.py growth build/growth                       time against blocks, cells and workers
python benchmarks/nation_histogram.py engines build/engines --scale 0.04        by processes, and by Dask's workers

A run is the installed command, watched from outside: seconds of every step, and the most memory that its processes held
together and that one of them held. What several starts took is added up.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from record import RESULTS, as_installed, machine, save, step_of
from synthetic import BLOCKS, STATES
from synthetic_histograms import WIDTHS, write_nation, write_nation_of

import topdown as td
from topdown.studies.census_metrics import ALL, TOTAL, census_metrics
from topdown.workload.redistricting import PERSONS

TOML = """title = "A synthetic nation"
[input]
path = "records"
rows = "long"
geoid = "geoid"
count = "count"
[geography]
units = "units.parquet"
root = "US"
root_level = "us"
widths = {{ state = 2, county = 5, tract = 11, "block group" = 12, block = 15 }}
{privacy}
[projection]
method = "{method}"
{upward}
[output]
csv = false
{tables}
"""
PRESET = '[privacy]\npreset = "pl94-2020-us"'
UPWARD = 'upward = "from block group"'
TABLES = 'tables = ["P1", "P2", "P3", "P4", "P5"]'
_EVERY = 1.0
"""Seconds between two looks at the processes' memory: of some gigabytes each takes 50 ms of a processor."""


class Watch:
    """A command at work: the most bytes of memory that its processes hold together (``sum``) and one of them
    (``largest``). Of pages that processes share each has its part.

    Its lines go to ``log`` as they come. It ends with whoever watches it, also where that is killed.
    """

    def __init__(self) -> None:
        self.sum = self.largest = self.processes = 0
        self.seconds = 0.0
        self.steps: dict[str, float] = {}

    def run(self, command: list[str], log: Path) -> bool:
        """Whether the command succeeds."""
        began = time.perf_counter()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        pipe = subprocess.PIPE
        with (
            log.open("a") as kept,
            subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=pipe,
                text=True,
                env=as_installed(),
                preexec_fn=_end_with_us,
            ) as job,
        ):
            looks = threading.Thread(target=self._look, args=(job,))
            looks.start()
            try:
                for line in job.stderr or ():
                    print(line, end="", file=kept, flush=True)
                    self._note(line)
                return job.wait() == 0
            finally:
                job.kill()  # which may still be at work; what is done is on disk, and workers end with it
                job.wait()
                looks.join()
                self.seconds = time.perf_counter() - began

    def _note(self, line: str) -> None:
        """Take the seconds of a step from a line that tells them."""
        step = step_of(line)
        if step is not None:
            self.steps[step[0]] = step[1]

    def _look(self, job: subprocess.Popen[str]) -> None:
        while job.poll() is None:
            held = [_held(process) for process in _with_children(job.pid)]
            self.processes = max(self.processes, len(held))
            self.sum, self.largest = max(self.sum, sum(held)), max(self.largest, *held, 0)
            time.sleep(_EVERY)


def _end_with_us() -> None:
    """Let the system kill this process when its parent ends, however that ends (PR_SET_PDEATHSIG of Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _with_children(root: int) -> list[int]:
    found = [root]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*"):
            try:
                found += [int(one) for one in (task / "children").read_text().split()]
            except OSError:
                continue
    return found


def _held(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def run(
    folder: Path,
    *,
    method: str = "gls-top-down",
    workers: int | None = None,
    privacy: str = PRESET,
    tables: str = TABLES,
    options: tuple[str, ...] = (),
    go_on: bool = False,
    upward: bool = False,
) -> dict[str, Any]:
    """A release of the nation in ``folder``, and what it took; ``go_on``: with what is there of one that was stopped,
    and what that took; ``upward``: with an upward pass from the block groups."""
    start = UPWARD if upward else ""
    (folder / "run.toml").write_text(TOML.format(privacy=privacy, method=method, tables=tables, upward=start))
    output, told_before, log = folder / "out", folder / "took.json", folder / "run.log"
    if not go_on:
        shutil.rmtree(output, ignore_errors=True)
        told_before.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
    command = [str(Path(sys.executable).with_name("topdown")), "run", str(folder / "run.toml"), "--verbose"]
    command += ["--output", str(output), *(["--workers", str(workers)] if workers else []), *options]
    took = _watched(command, log, told_before)
    public = output / "public"
    manifest = json.loads((public / "manifest.json").read_text())
    told = json.loads((folder / "made.json").read_text())
    found: dict[str, Any] = {
        **took,
        "public MB": sum(path.stat().st_size for path in public.rglob("*") if path.is_file()) / 1e6,
        "cells above 0 in the release": _rows(public),
        **{key: told[key] for key in ("blocks", "cells", "rows", "persons")},
        "method": method,
        "upward": manifest["configuration"]["projection"].get("upward") or "from block",
    }
    for name, projection in manifest["projections"].items():
        for part in ("certificate", "programs"):  # A small release is made whole: its programs are not counted.
            found |= {f"{name}, {part}, {key}": value for key, value in projection.get(part, {}).items()}
    return found


def _watched(command: list[str], log: Path, told: Path) -> dict[str, Any]:
    """What ``command`` took, with what earlier starts of it took that are ``told``; kept there, however it ends.

    Seconds are added up, memory is the most of all. Raises `SystemExit` where the command fails.
    """
    took: dict[str, Any] = json.loads(told.read_text()) if told.exists() else {}
    began, watch, succeeded = os.times(), Watch(), False
    try:
        succeeded = watch.run(command, log)
    finally:
        ended = os.times()
        spent = ended.children_user + ended.children_system - began.children_user - began.children_system
        new = {f"seconds, {title}": seconds for title, seconds in watch.steps.items()}
        new |= {"seconds": watch.seconds, "processor seconds": spent, "starts": 1}
        took |= {title: took.get(title, 0) + value for title, value in new.items()}
        most = {
            "peak GiB, all processes together": watch.sum / 2**30,
            "peak GiB, largest process": watch.largest / 2**30,
            "processes": watch.processes,
        }
        took |= {title: max(took.get(title, 0), value) for title, value in most.items()}
        told.write_text(json.dumps(took))
    if not succeeded:
        raise SystemExit("\n".join(log.read_text().splitlines()[-30:]))
    return took


def _rows(public: Path) -> int:
    """Rows of the release, which are a node's cells above 0."""
    whole = public / "release.parquet"
    files = [whole] if whole.is_file() else list(whole.rglob("*.parquet"))
    return sum(pq.read_metadata(file).num_rows for file in files)


def make(folder: Path, blocks: int = BLOCKS, states: int = STATES, cells: int = PERSONS.n_cells) -> None:
    """The input in ``folder``, with what it is in made.json."""
    told = write_nation(folder, blocks, states) if cells == PERSONS.n_cells else write_nation_of(folder, blocks, cells)
    (folder / "made.json").write_text(json.dumps(told | {"cells": cells}) + "\n")
    print(f"{folder}: " + ", ".join(f"{value:,} {name}" for name, value in told.items()))


RACES = ("White", "Black", "AIAN", "Asian", "NHPI", "SOR")
"""The Census Bureau's names, in its figures, of the first categories of race, which are one race alone."""
_SHOWN = ("MAE", "ME", "RMSE", "90 % |d|")


def accuracy(folder: Path) -> None:
    """The Bureau's metrics of the release that `run` made in ``folder``, by level and size class of the true counts:
    persons, those of 18 and over, in households, in group quarters, and Hispanic origin by race alone. Beside them
    production's mean absolute errors on the 2010 data, where it published the same statistic.
    """
    public = folder / "out" / "public"
    units = pq.read_table(folder / "units.parquet", columns=["geoid"])["geoid"]
    geography = td.Geography.from_geoids(units, WIDTHS, root="US", root_level="us")
    released = ds.dataset(public / "release.parquet"), pc.field("level") == "block"
    tables = [_statistics(*rows, geography) for rows in ((ds.dataset(folder / "records"), None), released)]
    found = census_metrics(geography, list(tables[0]), *(np.stack([*one.values()], axis=1) for one in tables))
    figures: dict[str, Any] = {"blocks": geography.n_leaves}
    for row in found.to_dict("records"):
        title = f"{row['level']}, {row['cell']}, {row['size']}"
        figures[f"{title}, units"] = row["units"]
        for metric in (*_SHOWN, "production MAE"):
            if not np.isnan(row[metric]):
                figures[f"{title}, {metric}"] = round(row[metric], 4)
        if row["cell"] == TOTAL or (row["size"] == ALL and row["level"] == "county"):
            print(
                f"  {title:60s} MAE {row['MAE']:8.2f}   ME {row['ME']:8.2f}   production {row['production MAE']:8.2f}"
            )
    save("nation-histogram-accuracy", figures)


def _statistics(rows: ds.Dataset, chosen: Any, geography: td.Geography) -> dict[str, Any]:
    """Of long ``rows`` (geoid, attributes, count) of blocks, the statistics of every node, by the Bureau's names."""
    first, found = geography.n_nodes - geography.n_leaves, dict[str, Any]()
    for fragment in rows.get_fragments():
        some = fragment.to_table(columns=["geoid", *PERSONS.names, "count"], filter=chosen)
        leaves, counts = geography.index_of(some["geoid"]) - first, some["count"].to_numpy()
        begin = int(leaves.min(initial=geography.n_leaves))
        for name, members in _members(some).items():
            at_leaves = found.setdefault(name, np.zeros(geography.n_leaves, np.int64))
            own = np.rint(np.bincount(leaves - begin, counts * members)).astype(np.int64)
            at_leaves[begin : begin + len(own)] += own
    return dict(zip(found, geography.tree.aggregate(np.stack([*found.values()])), strict=True))


def _members(rows: Any) -> dict[str, Any]:
    """Which ``rows`` every statistic counts."""
    is_ = {
        (name, category): pc.equal(rows[name].cast("string"), category).to_numpy()
        for name in PERSONS.names
        for category in PERSONS.attribute(name).categories
    }
    adults = is_["votingage", PERSONS.attribute("votingage").categories[-1]]
    households = is_["hhgq", PERSONS.attribute("hhgq").categories[0]]
    found = {TOTAL: np.ones(rows.num_rows, bool), "18 and over": adults}
    found |= {"in households": households, "in group quarters": ~households}
    races = PERSONS.attribute("cenrace").categories
    for origin, category in zip(
        ("Not Hispanic or Latino", "Hispanic or Latino"), PERSONS.attribute("hispanic").categories, strict=True
    ):
        alone = {f"{name} alone": is_["cenrace", one] for name, one in zip(RACES, races, strict=False)}
        alone["Two or more races"] = ~np.any([*alone.values()], axis=0)
        found |= {f"{origin}, {name}": is_["hispanic", category] & members for name, members in alone.items()}
    return found


VARIANT = "upward from block group, "
"""What the figures of the variant begin with, beside those of the run from the blocks."""


def keep(name: str, figures: dict[str, Any], path: Path, *, upward: bool) -> None:
    """Keep the figures of a run, with their date, at ``path``; those of the other variant stay there."""
    before = json.loads(path.read_text())["figures"] if path.exists() else {}
    others = {title: value for title, value in before.items() if title.startswith(VARIANT) != upward}
    start = VARIANT if upward else ""
    mine = {f"{start}{title}": value for title, value in {"date": machine()["date"], **figures}.items()}
    save(name, others | mine if upward else mine | others, path)


_ALSO_ALONE = 300_000
"""Blocks up to which growth is measured with one worker, too."""


def growth(folder: Path, largest: int) -> None:
    """Seconds against blocks, against workers, and against cells with the total and all cells measured."""
    figures: dict[str, Any] = {}
    for blocks in (n for n in (10_000, 30_000, 100_000, 300_000, 1_000_000, BLOCKS) if n <= largest):
        make(folder, blocks)
        for workers in (1, 2) if blocks <= _ALSO_ALONE else (2,):
            _note(figures, f"{blocks} blocks, 2016 cells, {workers} workers", run(folder, workers=workers), blocks)
    for cells, attributes in ((8, ["hhgq"]), (252, ["votingage", "hispanic", "cenrace"]), (2016, list(PERSONS.names))):
        make(folder, 100_000, cells=cells)
        privacy = _privacy(attributes)
        found = run(folder, privacy=privacy, tables="", options=("--part-size", "25000"))
        _note(figures, f"100000 blocks, {cells} cells, 2 queries", found, 100_000)
    save("nation-histogram-growth", figures)


def engines(folder: Path, blocks: int, runs: int = 3) -> None:
    """Seconds of the same run by two processes of its own and by two Dask workers of one thread each, in turn."""
    from distributed import LocalCluster

    make(folder, blocks)
    seconds: dict[str, list[float]] = {"processes": [], "dask": []}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        dask = ("--engine", "dask", "--scheduler", cluster.scheduler_address)
        for _ in range(runs):
            seconds["processes"].append(run(folder, workers=2)["seconds"])
            seconds["dask"].append(run(folder, options=dask)["seconds"])
            print(", ".join(f"{name} {found[-1]:.1f} s" for name, found in seconds.items()), flush=True)
    figures: dict[str, Any] = {
        f"{name}, seconds, run {k}": value for name, found in seconds.items() for k, value in enumerate(found, 1)
    }
    ratio = statistics.median(seconds["dask"]) / statistics.median(seconds["processes"])
    save("nation-histogram-engines", {"blocks": blocks, **figures, "dask, of the time of processes": ratio})


def _note(figures: dict[str, Any], title: str, found: dict[str, Any], blocks: int) -> None:
    print(f"{title}: {found['seconds']:.1f} s, {found['peak GiB, all processes together']:.2f} GiB", flush=True)
    figures[f"{title}, seconds"] = found["seconds"]
    figures[f"{title}, processor ms a block"] = 1e3 * found["processor seconds"] / blocks
    figures[f"{title}, peak GiB, all processes together"] = found["peak GiB, all processes together"]
    figures[f"{title}, peak GiB, largest process"] = found["peak GiB, largest process"]


def _privacy(attributes: list[str]) -> str:
    """A schema of some of the attributes, whose total and cells are measured at every level."""
    lines = ["[privacy]", 'mechanism = "discrete-gaussian"', 'rho = "5/2"']
    for level in ("us", "state", "county", "tract", "block group", "block"):
        lines += [f'[privacy.shares."{level}"]', 'total = "1/12"', 'detailed = "1/12"']
    schema = [f"{name} = {json.dumps(list(PERSONS.attribute(name).categories))}" for name in attributes]
    return "\n".join(["[schema]", *schema, *lines])


def main() -> None:
    """One of the jobs of this module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["make", "run", "accuracy", "growth", "engines"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--states", type=int, default=STATES)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--method", default="gls-top-down")
    parser.add_argument("--largest", type=int, default=1_000_000, help="growth: the largest number of blocks")
    parser.add_argument("--go-on", action="store_true", help="run: with what is there of a run that was stopped")
    parser.add_argument("--upward", action="store_true", help="run: with an upward pass from the block groups")
    parser.add_argument("--keep", default="nation-histogram", help="the name under which a run's figures are kept")
    arguments = parser.parse_args()
    if arguments.job == "make":
        make(arguments.folder, round(BLOCKS * arguments.scale), arguments.states)
    elif arguments.job == "accuracy":
        accuracy(arguments.folder)
    elif arguments.job == "growth":
        growth(arguments.folder, arguments.largest)
    elif arguments.job == "engines":
        engines(arguments.folder, round(BLOCKS * arguments.scale))
    else:
        figures = run(
            arguments.folder,
            method=arguments.method,
            workers=arguments.workers,
            go_on=arguments.go_on,
            upward=arguments.upward,
        )
        for title, value in figures.items():
            print(f"  {title:50s} {value:,.4g}" if isinstance(value, int | float) else f"  {title:50s} {value}")
        keep(arguments.keep, figures, RESULTS / f"{arguments.keep}.json", upward=arguments.upward)


if __name__ == "__main__":
    main()
