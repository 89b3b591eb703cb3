"""A server of runs that are killed, in a process of its own, and what must hold afterwards.

The server imports everything once and forks a child for every run; the child kills itself at a numbered point.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from support.places import RUN_TOML
from topdown.config import load_config
from topdown.errors import TopdownError
from topdown.machine import files
from topdown.machine.progress import Silent
from topdown.measurements.journal import Journal
from topdown.pipeline import derive, draw
from topdown.pipeline import run as pipeline
from topdown.privacy import ledger_file
from topdown.privacy.ledger import Ledger
from topdown.release import publication
from topdown.research.statistic.released_statistic import release_statistic
from topdown.research.statistic.statistic_plan import StatisticPlan
from topdown.tables import output_formats

TOML = RUN_TOML + '\n[ledger]\npath = "ledger.db"\ndataset = "census"\n[projection]\ncross_check = false\n'
SEAL_LETTERS = 64
PUBLIC = {
    "METHODS.md",
    "README.md",
    "csv-metadata.json",
    "datapackage.json",
    "dcat.jsonld",
    "croissant.json",
    "estimates.parquet",
    "geography.parquet",
    "manifest.json",
    "measurements.parquet",
    "release.csv",
    "release.parquet",
}


def give_up_rights() -> None:
    """Of root, all that lets it write where others may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")


class Points:
    """Counts the points that a run passes, writes their names to ``log``, and kills the process at number ``last``."""

    def __init__(self, last: int | None, log: Path | None) -> None:
        self.passed: list[str] = []
        self.last = last
        self.log = log

    def __call__(self, name: str) -> None:
        self.passed.append(name)
        if len(self.passed) == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:
        """Make the start and the end of ``owner.name`` two points."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self(f"before {name}")
            result = function(*arguments, **options)
            self(f"after {name}")
            return result

        setattr(owner, name, wrapped)


class KilledStages(Silent):
    def __init__(self, points: Points) -> None:
        self.points = points

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        self.points(f"enter {title}")
        yield
        self.points(f"leave {title}")


def _child(job: dict[str, Any]) -> int:
    points = Points(job.get("point"), job.get("log"))
    for owner, name in (
        (Ledger, "reserve"),
        (Ledger, "confirm"),
        (ledger_file.Transaction, "append"),
        (Journal, "begin"),
        (Journal, "keep"),
        (Journal, "release_name"),
        (draw, "measure"),
        (derive, "publish"),
        (publication, "write_json"),
        (output_formats, "write_csv"),
        (pq.ParquetWriter, "write_batch"),
        (os, "fsync"),
        (Path, "replace"),
        (Path, "rename"),
        (Path, "mkdir"),
        (Path, "touch"),
        (Path, "unlink"),
        (Path, "rmdir"),
        (shutil, "rmtree"),
    ):
        points.around(owner, name)
    if "bytes" in job:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["bytes"], job["bytes"]))
    if "rights" in job:
        give_up_rights()
    try:
        if "statistic" in job:
            statistic_of(Path(job["config"]).parent, job["statistic"])
        else:
            config, stages = load_config(job["config"]), KilledStages(points)
            if "synthesize" in job:
                pipeline.synthesize(config, order=job["synthesize"], stages=stages)
            else:
                pipeline.run(config, stages=stages, workers=job.get("workers", 1))
    except TopdownError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    if job.get("log"):
        Path(job["log"]).write_text(json.dumps(points.passed))
    return 0


def statistic_of(folder: Path, columns: list[str], epsilon: str = "1/2") -> dict[str, Any]:
    """The mean, or the covariance, of ``columns`` of the people in ``folder``, released to "out" beside."""

    def plan(records: int) -> StatisticPlan:
        name = "mean" if len(columns) == 1 else "covariance"
        return StatisticPlan(name, ((Fraction(0), Fraction(1000)),) * len(columns), records, Fraction(epsilon))

    table, ledger = folder / "people.csv", folder / "ledger.db"
    return release_statistic(table, columns, plan, folder / "out", ledger=ledger, dataset="people")


def serve() -> None:
    """Read one job per line, run it in a forked child, answer with how the child ended and what it said."""
    for line in sys.stdin:
        job = json.loads(line)
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writable, 2)
            code = 70
            try:
                code = _child(job)
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(code)
        os.close(writable)
        if "seconds" in job:
            time.sleep(job["seconds"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with os.fdopen(readable, encoding="utf-8") as said:
            answer = {"code": os.waitstatus_to_exitcode(status), "said": said.read()}
        print(json.dumps(answer), flush=True)


class Server:
    """Runs in processes of their own, at the price of a fork."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from support import crash; crash.serve()"],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, config: Path, **job: Any) -> tuple[int, str]:
        """How a run of ``config`` ended: its exit code, -9 where it was killed, and its message."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"config": str(config), **job}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["code"], answer["said"]


def made_place(folder: Path, frame: pd.DataFrame) -> Path:
    folder.mkdir()
    frame.to_csv(folder / "table.csv", index=False)
    (folder / "run.toml").write_text(TOML)
    Ledger(folder / "ledger.db").open_account("census", 1)
    return folder / "run.toml"


def require_nothing_torn(folder: Path) -> None:
    """No file under a final name is incomplete, whatever moment the run was killed at."""
    output = folder / "output"
    public, internal = output / "public", output / "internal"
    if public.exists():
        assert {path.name for path in public.iterdir()} == PUBLIC
        manifest = json.loads((public / "manifest.json").read_text())
        for name, file in manifest["files"].items():
            assert files.file_digest(public / name) == file["sha256"]
        assert measured(internal) is not None
    if (internal / "key").exists():
        assert re.fullmatch("[0-9a-f]{128}", (internal / "key").read_text())
    if (internal / "draw.json").exists():
        measured(internal)
        # Noise is never drawn before its budget is set aside.
        assert len(Ledger(folder / "ledger.db").account("census").releases) == 1
    Ledger(folder / "ledger.db").verify()


def measured(internal: Path) -> str | None:
    """The code of what was measured, as the record of the noise has it; None where no run came so far."""
    found = json.loads((internal / "draw.json").read_text()[:-SEAL_LETTERS])["measured"]
    assert found is None or re.fullmatch("[0-9a-f]{64}", found)
    return None if found is None else str(found)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def points_of(server: Server, config: Path, **job: Any) -> list[str]:
    log = config.parent.parent / "points.json"
    assert server.run(config, log=str(log), **job) == (0, "")
    return list(json.loads(log.read_text()))
