"""How a release in parts grows with its workers: a replay of recorded tasks on more workers than this machine has.

python benchmarks/scaling.py run build/scaling                 measures a small nation, three times, and replays it
python benchmarks/scaling.py predict                           the nation by 2 to 256 workers, from records

``run`` makes a nation of 100,000 blocks (`nation_histogram.py make --scale`) and its release by one worker, by two, and
by two in parts of half the size. Every task of a worker is recorded: its step, its part, its processor seconds, and the
bytes that it reads and writes. A step's tasks take ``a`` seconds a part and ``b`` a leaf, fitted to the first two runs;
what is outside of the tasks is serial. The replay hands the tasks out as `topdown.machine.tasks.each_done` does, and
adds to each the time of its bytes on a storage that all workers share. The third run is predicted and compared.

``predict`` takes the nation's own seconds (results/nation-histogram.json), divides those of each step among its parts
as unevenly as the recorded tasks are, and replays them. Processor seconds are compared, as machines are seldom idle.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from nation_histogram import PRESET, TABLES, TOML, make
from record import RESULTS, save
from synthetic import BLOCKS

from topdown.config import load_config
from topdown.machine.parallel import ProcessWorkers
from topdown.machine.progress import Silent
from topdown.pipeline.parts.part_job import Folder
from topdown.pipeline.parts.part_plan import folder_of
from topdown.pipeline.parts.part_store import part_of
from topdown.pipeline.run import run

STORAGE, LATENCY = 1.25e9, 0.005
"""What is assumed of a cluster: bytes a second of the storage that all share (10 Gbit/s), and seconds to hand out a
task."""
WORKERS = (2, 4, 8, 16, 32, 64, 128, 256)
_AHEAD = 2
"""Tasks a worker that are handed out before the first of them is done (`topdown.pipeline.parts.in_parts`)."""
STEPS = {"measuring and going up": "up", "projecting and rounding": "down", "writing the parts": "write"}


class Done(NamedTuple):
    """A task that was done: the name of its step, its part (-1: none), processor seconds, bytes, and whether its
    process had done no other before."""

    step: str
    part: int
    seconds: float
    bytes: float
    first: bool


_DONE: set[str] = set()


def recorded(step: Callable[[Any], Any], task: Any) -> tuple[Any, Done]:
    """What ``step`` of ``task`` gives, and what it took; runs in a worker."""
    began, moved = time.process_time(), _moved()
    result = step(task)
    name, first = step.__name__, not _DONE
    _DONE.add(name)
    return result, Done(name, getattr(task, "part", -1), time.process_time() - began, _moved() - moved, first)


def _moved() -> float:
    """Bytes that this process has read and written."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return float(lines["rchar"]) + float(lines["wchar"])


class Recorder:
    """Workers whose tasks are recorded."""

    def __init__(self, count: int) -> None:
        self.count, self.pool = count, ProcessWorkers(count, fresh=True)
        self.done: list[Done] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """As executors have it."""
        future, done = self.pool.submit(recorded, fn, *args), self.done

        class Awaited:
            def result(self) -> Any:
                """Wait for the task, and record it."""
                result, took = future.result()
                done.append(took)
                return result

        return Awaited()


class Recorded(NamedTuple):
    """A run: its tasks, its parts' leaves, the processor seconds outside of tasks, the seconds of the whole run, and
    the bytes of the measurements of all levels, which a small release keeps, and a nation's does not."""

    tasks: list[Done]
    leaves: list[int]
    serial: float
    wall: float
    kept: float = 0.0

    @property
    def processor(self) -> float:
        """Processor seconds of all processes."""
        return self.serial + sum(task.seconds for task in self.tasks)


def record(folder: Path, workers: int, part_size: int) -> Recorded:
    """Make the release of the nation in ``folder``."""
    file = folder / "run.toml"
    file.write_text(TOML.format(privacy=PRESET, method="gls-top-down", tables=TABLES, upward=""))
    recorder = Recorder(workers)
    began, wall = time.process_time(), time.perf_counter()
    output = folder / f"out-{workers}-{part_size}-{os.getpid()}"
    try:
        run(
            load_config(file),
            output,
            Silent(),
            workers=workers,
            part_size=part_size,
            executor=recorder,
            keep_parts=True,
        )
    finally:
        recorder.pool.shutdown()
    serial, wall = time.process_time() - began, time.perf_counter() - wall
    parts = Folder(folder_of(output).root)
    n_parts = 1 + max(task.part for task in recorder.done)
    leaves = [len(part_of(parts.counts(part), "sizes")) for part in range(n_parts)]
    return Recorded(recorder.done, leaves, serial, wall, kept_bytes(parts, n_parts))


def kept_bytes(parts: Folder, count: int) -> float:
    """Bytes of the measurements that are kept of so many parts."""
    return float(sum(parts.measured(part).stat().st_size for part in range(count) if parts.measured(part).exists()))


class Cost(NamedTuple):
    """Of the tasks of a step: processor seconds a part and a leaf, and bytes a part and a leaf."""

    part: float
    leaf: float
    bytes_part: float
    bytes_leaf: float

    @classmethod
    def fitted(cls, runs: Sequence[Recorded], step: str) -> Cost:
        """Least squares over the tasks of ``runs``; of a process's first task only the bytes, as it loads libraries."""
        found = [(one.leaves[task.part], task) for one in runs for task in one.tasks if task.step == step]
        of_time = [(leaves, task.seconds) for leaves, task in found if not task.first]
        return cls(*_line(of_time), *_line([(leaves, task.bytes) for leaves, task in found]))

    def of(self, leaves: int) -> tuple[float, float]:
        """Seconds and bytes of a part with so many leaves."""
        return self.part + self.leaf * leaves, self.bytes_part + self.bytes_leaf * leaves


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope, neither below 0."""
    x, y = np.array(points, dtype=np.float64).T
    slope = max(float(np.polyfit(x, y, 1)[0]), 0.0) if np.ptp(x) > 0 else 0.0
    intercept = float(y.mean() - slope * x.mean())
    return (intercept, slope) if intercept >= 0 else (0.0, float(y.sum() / x.sum()))


def replay(tasks: Sequence[tuple[float, float]], workers: int) -> float:
    """Seconds until all ``tasks`` (seconds, bytes) are done, handed out in order, so many ahead of the oldest that is
    not done. Where all workers' bytes together exceed what the storage gives, they wait for it.
    """
    free = [0.0] * workers
    heapq.heapify(free)
    waiting: deque[float] = deque()
    now = 0.0
    for seconds, size in tasks:
        if len(waiting) == _AHEAD * workers:
            now = max(now, waiting.popleft())
        begin = max(heapq.heappop(free), now)
        end = begin + LATENCY + seconds + size / STORAGE
        heapq.heappush(free, end)
        waiting.append(end)
    together = sum(size for _, size in tasks) / STORAGE
    return max(now, *waiting, together)


def measure(folder: Path, blocks: int, part_size: int) -> None:
    """The three runs, the model, and how far its prediction of the third is off."""
    make(folder, blocks)
    first, second = (record(folder, workers, part_size) for workers in (1, 2))
    third = record(folder, 2, part_size // 2)
    costs = {step: Cost.fitted([first, second], step) for step in ("up", "down")}
    loading = [task.seconds - costs[task.step].of(first.leaves[task.part])[0] for task in first.tasks if task.first]
    rest = sum(task.seconds for task in second.tasks if task.step not in costs)
    told: dict[str, Any] = {"blocks": blocks, "part size": part_size}
    for name, one in (("1 worker", first), ("2 workers", second), ("2 workers, half parts", third)):
        told |= {f"{name}, parts": len(one.leaves), f"{name}, seconds": one.wall, f"{name}, serial": one.serial}
        told[f"{name}, processor seconds"] = one.processor
    for step, cost in costs.items():
        told |= {f"{step}, {field}": value for field, value in cost._asdict().items()}
        spread = [
            task.seconds / cost.of(one.leaves[task.part])[0]
            for one in (first, second)
            for task in one.tasks
            if task.step == step and not task.first
        ]
        told[f"{step}, spread"] = [round(one, 3) for one in sorted(spread)]
    told["down, bytes_kept"] = second.kept / sum(second.leaves)
    tasks = sum(cost.of(leaves)[0] for cost in costs.values() for leaves in third.leaves)
    told["loading a worker"] = float(np.mean(loading))
    told["predicted processor seconds"] = second.serial + rest + tasks + 2 * told["loading a worker"]
    told["measured, of predicted"] = third.processor / told["predicted processor seconds"]
    for title, value in told.items():
        print(f"  {title:45s} {value}")
    save("scaling", told)


class Nation(NamedTuple):
    """What the nation's release takes: serial seconds by step, and the tasks (seconds, bytes) of what workers share."""

    serial: dict[str, float]
    shared: dict[str, list[tuple[float, float]]]

    @classmethod
    def recorded(cls, upward: str = "") -> Nation:
        """The recorded run by two workers; ``upward``: what its titles begin with."""
        told = json.loads((RESULTS / "nation-histogram.json").read_text())["figures"]
        model = json.loads((RESULTS / "scaling.json").read_text())["figures"]
        steps = {
            title.removeprefix(f"{upward}seconds, "): value
            for title, value in told.items()
            if title.startswith(f"{upward}seconds, ")
        }
        writing = steps.pop("writing the parts", None) or steps.pop("writing")
        shared = {step: 2 * steps.pop(title) for title, step in STEPS.items() if title in steps}
        parts, rng = round(BLOCKS / 21_500), np.random.default_rng(1)
        tasks = {}
        for step, seconds in shared.items():
            spread = rng.choice(model[f"{step}, spread"], parts)
            leaf = model[f"{step}, bytes_leaf"] - model.get(f"{step}, bytes_kept", 0.0)
            size = model[f"{step}, bytes_part"] + leaf * BLOCKS / parts
            tasks[step] = [(float(one) * seconds / spread.sum(), size) for one in spread]
        files = 52  # one a state and one of all
        tasks["write"] = [(2 * writing / files, told["public MB"] * 1e6 / files)] * files
        steps["start and end"] = told[f"{upward}seconds"] - sum(steps.values()) - sum(shared.values()) / 2 - writing
        return cls(steps, tasks)

    def seconds(self, workers: int) -> float:
        """Of a whole run."""
        return sum(self.serial.values()) + sum(replay(tasks, workers) for tasks in self.shared.values())


def predict() -> None:
    """The nation's seconds by workers, from blocks and from block groups, and what is serial."""
    told: dict[str, Any] = json.loads((RESULTS / "scaling.json").read_text())["figures"]
    for name, upward in (("from block", ""), ("from block group", "upward from block group, ")):
        nation = Nation.recorded(upward)
        print(f"{name}: serial " + ", ".join(f"{step} {value:.0f} s" for step, value in nation.serial.items()))
        told[f"nation {name}, serial seconds"] = sum(nation.serial.values())
        for workers in WORKERS:
            told[f"nation {name}, {workers} workers, seconds"] = nation.seconds(workers)
            print(f"  {workers:4d} workers {nation.seconds(workers):8.1f} s")
    save("scaling", told)


def main() -> None:
    """One of the jobs of this module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["run", "predict"])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/scaling"))
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--part-size", type=int, default=10_000)
    arguments = parser.parse_args()
    if arguments.job == "run":
        measure(arguments.folder, arguments.blocks, arguments.part_size)
    predict()


if __name__ == "__main__":
    main()
