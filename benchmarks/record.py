"""Results of benchmarks as JSON with the facts of the machine, and the ratio of two of them."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """What a figure depends on beside the code."""
    facts = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":", 1)[1].strip() for line in facts if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def save(name: str, figures: Mapping[str, Any], path: Path | None = None) -> Path:
    """Keep ``figures`` (flat: title -> number or text) as the last result of the benchmark called ``name``."""
    path = path or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"benchmark": name, "machine": machine(), "figures": dict(figures)}, indent=2) + "\n")
    return path


def peak_memory() -> float:
    """The most memory that this process has held so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@contextmanager
def timed(into: dict[str, float], title: str) -> Iterator[None]:
    """Seconds of the block, under ``title``; printed with the processor's seconds and the peak memory."""
    wall, processor = time.perf_counter(), time.process_time()
    yield
    into[title] = time.perf_counter() - wall
    used = time.process_time() - processor
    print(f"  {title:40s} {into[title]:8.2f} s   processor {used:8.2f} s   peak memory {peak_memory():5.2f} GiB")


def as_installed() -> dict[str, str]:
    """The environment for a command whose modules are kept compiled, as they are where it is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def command_figures(command: list[str]) -> dict[str, float]:
    """Seconds of a command, from its start to its end, of the processors that it used, and of the steps that it tells
    (`--verbose`), and the most memory that it, or a worker, held."""
    script = (
        "import resource, sys, time, subprocess\n"
        "began = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], check=True)\n"
        "seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)\n"
    )
    program = [sys.executable, "-c", script, *command]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=as_installed())
    seconds, processor, peak = map(float, done.stdout.split()[-3:])
    steps = {f"seconds, {step[0]}": step[1] for step in map(step_of, done.stderr.splitlines()) if step is not None}
    return {**steps, "seconds": seconds, "processor seconds": processor, "peak GiB": peak}


def step_of(line: str) -> tuple[str, float] | None:
    """The step of a run whose end ``line`` tells, and its seconds."""
    found = re.search(r"ms +(\S[^:]*): done in ([0-9.]+) s", line)
    return None if found is None else (found[1].strip(), float(found[2]))


def compare(before: Path, after: Path) -> None:
    """Print every figure of two results and their ratio."""
    first, second = (json.loads(path.read_text()) for path in (before, after))
    for title, value in second["figures"].items():
        old = first["figures"].get(title)
        if isinstance(value, int | float) and isinstance(old, int | float) and old:
            print(f"{title:60s} {old:12.4g} {value:12.4g} {value / old:8.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python benchmarks/record.py BEFORE.json AFTER.json")
    compare(Path(sys.argv[1]), Path(sys.argv[2]))
