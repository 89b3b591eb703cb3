"""Killed at any moment, a run that is started again makes the release that it would have made, and spends once.

A server process imports everything once and forks a child for every run; the child kills itself (SIGKILL) at a numbered
point (before and after every stage, synced write, rename and entry in the ledger), or the server kills it after some
milliseconds. No handler runs then and no buffer is flushed: what is on disk is all that is left.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import random
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
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import RUN_TOML

from topdown import files, pipeline, publication
from topdown.config import load_config
from topdown.errors import BudgetError, ConfigError, DataError, TopdownError
from topdown.journal import Journal
from topdown.privacy import ledger_file
from topdown.privacy.ledger import Ledger
from topdown.progress import Silent

TOML = RUN_TOML + '\n[ledger]\npath = "ledger.db"\ndataset = "census"\n[projection]\ncross_check = false\n'
SEAL_BYTES = 32
PUBLIC = {"estimates.parquet", "manifest.json", "measurements.parquet", "release.csv", "release.parquet"}

# -- the server of runs (another process) ---------------------------------------------------------------------------


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
        (Journal, "write"),
        (Journal, "release_name"),
        (pipeline, "measure"),
        (pipeline, "publish"),
        (publication, "write_json"),
        (publication, "write_csv"),
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
            [sys.executable, "-c", "import test_crash; test_crash.serve()"],
            cwd=Path(__file__).parent,
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


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait()


# -- what must hold -------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, frame: pd.DataFrame) -> Path:
    """A fresh release with a ledger: the path of its configuration."""
    return made_place(tmp_path / "first", frame)


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
        assert (internal / "measurements.arrow").exists()
    if (internal / "key").exists():
        assert re.fullmatch("[0-9a-f]{128}", (internal / "key").read_text())
    if (internal / "measurements.arrow").exists():
        sealed = (internal / "measurements.arrow").read_bytes()
        assert pa.ipc.open_file(sealed[:-SEAL_BYTES]).read_all().num_rows == 6
        # Noise is never drawn before its budget is set aside.
        assert len(Ledger(folder / "ledger.db").account("census").releases) == 1
    Ledger(folder / "ledger.db").verify()


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def require_the_same_release(config: Path) -> None:
    """The restarted run's release is, byte for byte, what an undisturbed run makes of the same measurements."""
    folder = config.parent
    output = folder / "output"
    other = folder.parent / f"{folder.name} undisturbed"
    other.mkdir()
    for path in (folder / "run.toml", folder / "table.csv", *folder.glob("ledger.db*")):
        shutil.copy(path, other)
    (other / "output" / "internal").mkdir(parents=True)
    for name in ("measurements.arrow", "key"):
        shutil.copy(output / "internal" / name, other / "output" / "internal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "measure", None)
        pipeline.run(load_config(other / "run.toml"), workers=1)
    assert content(other / "output" / "public") == content(output / "public")
    account = Ledger(folder / "ledger.db").account("census")
    assert (len(account.releases), len(account.confirmed), account.left) == (1, 1, 0)
    assert sorted(path.name for path in output.iterdir()) == ["internal", "public"]
    assert sorted(path.name for path in (output / "internal").iterdir()) == ["key", "lock", "measurements.arrow"]
    shutil.rmtree(other)


def killed_and_restarted(server: Server, config: Path, kills: list[dict[str, Any]]) -> int:
    """Kill a run as ``kills`` say, one after the other, then let it end; how many of them met a run still at work."""
    kept: bytes | None = None
    met = 0
    record = config.parent / "output" / "internal" / "measurements.arrow"
    for kill in [*kills, {}]:
        code, said = server.run(config, **kill)
        assert code == (-signal.SIGKILL if kill else 0) or (kill and code == 0), said
        met += code == -signal.SIGKILL
        require_nothing_torn(config.parent)
        if kept is not None:
            assert record.read_bytes() == kept, "noise was drawn a second time"
        kept = record.read_bytes() if record.exists() else None
    require_the_same_release(config)
    return met


def points_of(server: Server, config: Path, **job: Any) -> list[str]:
    log = config.parent.parent / "points.json"
    assert server.run(config, log=str(log), **job) == (0, "")
    return list(json.loads(log.read_text()))


def test_the_points_cover_every_step(server: Server, place: Path) -> None:
    points = points_of(server, place)
    stages = ["reading the table", "drawing noise", "keeping the measurements", "projecting", "rounding", "writing"]
    wanted = [f"{way} {stage}" for stage in stages for way in ("enter", "leave")]
    assert [point for point in points if point in wanted] == wanted
    order = [
        "after reserve", "before measure", "after measure", "before write", "after replace", "after write",
        "before confirm", "after confirm", "enter projecting", "before write_json", "before rename", "after rename",
        "leave writing",
    ]  # fmt: skip
    place_of = iter(points)
    assert all(name in place_of for name in order), points
    assert len(points) > 60
    require_the_same_release(place)


def test_everything_is_on_disk_before_what_depends_on_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    output = place.parent / "output"
    fsync, rename, project, measure = os.fsync, Path.rename, pipeline.project, pipeline.measure

    def measured(*arguments: Any, **options: Any) -> Any:
        done.append(("measure", ""))
        return measure(*arguments, **options)

    def synced(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        done.append(("sync", str(path.relative_to(place.parent))))
        fsync(handle)

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", target.name))
        return rename(path, target)

    def projected(*arguments: Any, **options: Any) -> Any:
        done.append(("project", ""))
        return project(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(Path, "rename", renamed)
        patch.setattr(pipeline, "project", projected)
        patch.setattr(pipeline, "measure", measured)
        pipeline.run(load_config(place), workers=1)
    # The rehearsal projects, too, before anything is drawn.
    first, last = done.index(("project", ""), done.index(("measure", ""))), done.index(("rename", "public"))
    kept = [path for what, path in done[:first] if what == "sync"]
    assert {"output/internal/measurements.arrow.partial", "output/internal", "output", "."} <= set(kept)
    assert kept.index("output/internal/measurements.arrow.partial") < len(kept) - 1 - kept[::-1].index(
        "output/internal"
    )
    written = {path.removesuffix(".partial") for what, path in done[first:last] if what == "sync"}
    assert written == {f"output/.public.partial/{name}" for name in PUBLIC} | {"output/.public"}
    assert ("sync", "output") in done[last:]
    assert {path.name for path in (output / "public").iterdir()} == PUBLIC


def test_killed_at_some_points(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    count = len(points_of(server, made_place(tmp_path / "counting", frame)))
    for k in range(8):
        config = made_place(tmp_path / f"killed {k}", frame)
        point = 1 + random.randrange(k * count // 8, (k + 1) * count // 8)
        assert killed_and_restarted(server, config, [{"point": point}]) == 1


def test_killed_at_some_moments(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    begin = time.perf_counter()
    points_of(server, made_place(tmp_path / "counting", frame))
    whole = time.perf_counter() - begin
    for k in range(4):
        config = made_place(tmp_path / f"killed {k}", frame)
        killed_and_restarted(server, config, [{"seconds": random.uniform(0, whole), "workers": 2}])


@pytest.mark.slow
def test_killed_at_every_point(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    points = points_of(server, made_place(tmp_path / "counting", frame))
    for k, _ in enumerate(points, start=1):
        config = made_place(tmp_path / f"killed {k}", frame)
        assert killed_and_restarted(server, config, [{"point": k}]) == 1, points[k - 1]
        shutil.rmtree(config.parent)


@pytest.mark.slow
def test_killed_at_random_moments_again_and_again(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    begin = time.perf_counter()
    count = len(points_of(server, made_place(tmp_path / "counting", frame)))
    whole = time.perf_counter() - begin
    met, rounds = 0, 0
    while met < 200:
        rounds += 1
        config = made_place(tmp_path / f"killed {rounds}", frame)
        kills = [
            random.choice(
                [{"seconds": random.uniform(0, whole), "workers": 2}, {"point": random.randint(1, max(1, count // 2))}]
            )
            for _ in range(random.randint(1, 3))
        ]
        met += killed_and_restarted(server, config, kills)
        shutil.rmtree(config.parent)
    assert rounds < 1000, "too few kills met a run at work"


# -- full disks, closed folders, other processes --------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 100, 1_000, 2_000, 3_000, 4_000, 5_000, 8_000, 20_000])
def test_a_full_disk_is_an_error_and_loses_nothing(server: Server, place: Path, limit: int) -> None:
    # A file that cannot grow beyond ``limit`` bytes fails where a full disk does: in the middle of a write.
    code, said = server.run(place, bytes=limit)
    assert code in {ConfigError.exit_code, DataError.exit_code, BudgetError.exit_code}, said
    assert re.search(r"File too large|cannot be used: (disk I/O error|database or disk is full)", said), said
    require_nothing_torn(place.parent)
    assert not (place.parent / "output" / "public").exists()
    assert not list((place.parent / "output").glob(".*"))
    assert killed_and_restarted(server, place, []) == 0


@pytest.mark.parametrize("closed", ["output", "output/internal", "ledger.db"])
def test_what_may_not_be_written_is_an_error_and_loses_nothing(server: Server, place: Path, closed: str) -> None:
    folder = place.parent
    (folder / "output" / "internal").mkdir(parents=True, mode=0o700)
    target = folder / closed
    if closed == "output":
        (target / "internal").rmdir()
    target.chmod(0o555 if target.is_dir() else 0o444)
    code, said = server.run(place, rights="none")
    if closed == "output/internal":
        assert (code, said) == (0, "")  # the run's own folder, which it opens for itself and closes to others
    else:
        assert code in {ConfigError.exit_code, BudgetError.exit_code}, said
        assert re.search(r"Permission denied|readonly database", said), said
        assert not (folder / "output" / "public").exists()
    target.chmod(0o755 if target.is_dir() else 0o644)
    assert killed_and_restarted(server, place, []) == 0


def test_a_ledger_that_is_held_stops_a_run_before_it_draws(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "PATIENCE_SECONDS", 0.05)
    with ledger_file.transaction(place.parent / "ledger.db"), pytest.raises(BudgetError, match="another process holds"):
        pipeline.run(load_config(place))
    assert sorted(path.name for path in (place.parent / "output" / "internal").iterdir()) == ["key", "lock"]
    pipeline.run(load_config(place))
    require_the_same_release(place)


def test_a_ledger_that_is_held_when_the_noise_is_drawn_loses_no_noise(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file, "PATIENCE_SECONDS", 0.05)
    with monkeypatch.context() as patch:
        confirm = Ledger.confirm

        def locked(self: Ledger, *arguments: Any) -> str:
            with ledger_file.transaction(self.path):
                return confirm(self, *arguments)

        patch.setattr(Ledger, "confirm", locked)
        with pytest.raises(BudgetError, match="another process holds"):
            pipeline.run(load_config(place))
    assert not (place.parent / "output" / "public").exists()
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "measure", None)
        pipeline.run(load_config(place))
    require_the_same_release(place)


class Meddling(Silent):
    """Changes the input when the stage called ``title`` begins."""

    def __init__(self, table: Path, title: str) -> None:
        self.table = table
        self.title = title

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        if title == self.title:
            self.table.write_text(self.table.read_text().replace(",20,", ",21,"))
        yield


def test_an_input_that_changes_while_it_is_read_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.parent / "table.csv"
    read_input = pipeline.read_input

    def meddled(config: Any) -> Any:
        found = read_input(config)
        table.write_text(table.read_text().replace(",20,", ",21,"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "read_input", meddled)
        with pytest.raises(DataError, match="changed while it was read; run again"):
            pipeline.run(load_config(place))
    assert Ledger(place.parent / "ledger.db").account("census").spent == 0
    pipeline.run(load_config(place))
    require_the_same_release(place)


@pytest.mark.parametrize("title", ["drawing noise", "keeping the measurements", "projecting", "writing"])
def test_an_input_that_changes_later_does_not_change_the_release(place: Path, title: str) -> None:
    config = load_config(place)
    table = place.parent / "table.csv"
    before = table.read_text()
    pipeline.run(config, stages=Meddling(table, title))
    assert table.read_text() != before
    with pytest.raises(DataError, match=r"another input file; .*another --output"):
        pipeline.run(config)
    table.write_text(before)
    assert pipeline.run(config).already_there
    require_the_same_release(place)


def test_two_runs_at_the_same_time_make_one_release(place: Path) -> None:
    servers = [Server(), Server()]
    try:
        for one in servers:
            assert one.process.stdin is not None
            one.process.stdin.write(json.dumps({"config": str(place)}) + "\n")
            one.process.stdin.flush()
        answers = [json.loads(one.process.stdout.readline()) for one in servers]  # type: ignore[union-attr]
    finally:
        for one in servers:
            one.process.stdin.close()  # type: ignore[union-attr]
            one.process.wait()
    codes = sorted(answer["code"] for answer in answers)
    assert codes in ([0, 0], [0, ConfigError.exit_code]), answers
    assert all(answer["code"] == 0 or "another run is writing here" in answer["said"] for answer in answers)
    require_the_same_release(place)
