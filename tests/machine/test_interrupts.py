"""Ctrl-C and SIGTERM, sent to real processes: one line, 130 or 143, what was finished is kept, nobody waits."""

from __future__ import annotations

import importlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.crash import measured
from topdown.cli import app as cli
from topdown.machine.interrupts import held_back, one_line
from topdown.projection.check import cvxpy_programs
from topdown.release.verified import verify_release

pytestmark = pytest.mark.system

LINE = "run the command again"
PATIENCE = 120.0
"""Seconds after which a process is taken to hang. An interrupt takes less than 5 where nothing else is at work."""

STUDY = """
[input]
path = "table.parquet"
cells = ["people"]
[geography]
levels = ["nation", "state", "county"]
[privacy]
epsilon = 1.0
[study]
replicates = 100_000
seed = 1
workers = 2
methods = ["raw", "top-down"]
"""

# Every block of replicates that was added up is told on standard output.
COUNTED = """
from topdown.machine.progress import Shown
count = Shown.count
def told(self, done, total):
    count(self, done, total)
    print("finished", done, flush=True)
Shown.count = told
from topdown.cli import main
main()
"""

# Every module is told on standard error before it is loaded, in one piece, as two threads load.
IMPORTED = """
import sys
class Told:
    @staticmethod
    def find_spec(name, path=None, target=None):
        sys.stderr.write(f"loading {name}\\n")
sys.meta_path.insert(0, Told)
from topdown.entry import main
main()
"""

# The signal comes as a stage begins (or ends, "leave").
AT_STAGE = """
import signal, sys
from contextlib import contextmanager
from topdown.machine.progress import Shown
stage = Shown.stage
number, way, wanted = int(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)
@contextmanager
def told(self, title):
    with stage(self, title):
        if title == wanted and way == "enter":
            signal.raise_signal(number)
        yield
    if title == wanted and way == "leave":
        signal.raise_signal(number)
Shown.stage = told
from topdown.cli import main
main()
"""


def start(driver: str, *arguments: object) -> subprocess.Popen[str]:
    """``driver`` as the first process of a group, as a shell starts a command."""
    return subprocess.Popen(
        [sys.executable, "-c", driver, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background ignores interrupts, and so would what is started from here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(stream: IO[str] | None, word: str) -> None:
    assert stream is not None
    for line in stream:
        if word in line:
            return
    raise AssertionError(f"ended before it said {word!r}")


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How a process ended, and that nothing of its group is left."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise AssertionError("it hangs") from None
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return process.returncode, out, err
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    raise AssertionError("it left processes behind")


def require_one_line(err: str) -> None:
    assert "Traceback" not in err, err
    assert [line for line in err.splitlines() if "loading" not in line and LINE not in line] == []
    assert err.count(LINE) == 1


@pytest.fixture
def long_study(tmp_path: Path) -> Path:
    """A study of 16 blocks, whose every result is too long to be sent at once."""
    counties = [f"{state:02}{county:03}" for state in range(8) for county in range(40)]
    frame = pd.DataFrame({"nation": "US", "state": [c[:2] for c in counties], "county": counties})
    frame.assign(people=np.arange(len(frame)) % 23).to_parquet(tmp_path / "table.parquet")
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


SLOW_MOMENTS = [pytest.param(k / 20, marks=pytest.mark.slow) for k in range(1, 9)]


@pytest.mark.parametrize("moment", [0.0, 0.22, *SLOW_MOMENTS])
def test_an_interrupted_study_ends_and_keeps_what_is_finished(long_study: Path, moment: float) -> None:
    process = start(COUNTED, "study", long_study)
    wait_for(process.stdout, "finished")
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does, to the workers too
    code, out, err = end(process)
    assert code == 130, err
    require_one_line(err)
    assert "of 100,000 replicates, which are kept" in out
    kept = pd.read_parquet(long_study.parent / "output" / "internal" / "errors.parquet")
    assert 0 < kept.replicates.iloc[0] < 100_000


def test_a_study_that_is_told_to_terminate_keeps_what_is_finished(long_study: Path) -> None:
    process = start(COUNTED, "study", long_study)
    wait_for(process.stdout, "finished")
    process.terminate()
    code, _, err = end(process)
    assert code == 143, err
    require_one_line(err)
    assert (long_study.parent / "output" / "internal" / "report.html").is_file()


def test_a_study_that_is_interrupted_before_its_first_block_leaves_nothing(long_study: Path) -> None:
    process = start(AT_STAGE, int(signal.SIGINT), "enter", "reading the table", "study", long_study)
    code, _, err = end(process)
    assert code == 130, err
    require_one_line(err)
    assert sorted(path.name for path in long_study.parent.iterdir()) == ["study.toml", "table.parquet"]


def test_the_workers_of_a_study_that_is_killed_end_too(long_study: Path) -> None:
    process = start(COUNTED, "study", long_study)
    wait_for(process.stdout, "finished")
    process.kill()
    assert end(process)[0] == -signal.SIGKILL


@pytest.mark.parametrize("module", ["numpy", "pandas", "topdown.cli.ledger_command"])
def test_an_interrupt_while_the_libraries_load(toy_run: Path, module: str) -> None:
    process = start(IMPORTED, "run", toy_run)
    wait_for(process.stderr, f"loading {module}\n")
    process.send_signal(signal.SIGINT)
    code, _, err = end(process)
    assert code == 130, err
    require_one_line(err)
    assert not (toy_run.parent / "output").exists()


def test_a_termination_while_the_libraries_load(toy_run: Path) -> None:
    process = start(IMPORTED, "run", toy_run)
    wait_for(process.stderr, "loading scipy\n")
    process.terminate()
    code, _, err = end(process)
    assert code == 143, err
    require_one_line(err)


@pytest.mark.parametrize(
    ("number", "way", "stage"),
    [
        (signal.SIGINT, "enter", "drawing noise"),
        (signal.SIGINT, "leave", "keeping what was measured"),
        (signal.SIGTERM, "enter", "projecting"),
        (signal.SIGINT, "leave", "writing"),
    ],
)
def test_an_interrupted_run_goes_on(toy_run: Path, number: signal.Signals, way: str, stage: str) -> None:
    code, _, err = end(start(AT_STAGE, int(number), way, stage, "run", toy_run))
    assert code == 128 + number, err
    require_one_line(err)
    public = toy_run.parent / "output" / "public"
    internal = toy_run.parent / "output" / "internal"
    assert public.exists() == (stage == "writing")
    assert not [left for left in toy_run.parent.rglob("*") if ".partial" in left.name]
    kept = measured(internal)
    assert (kept is None) == (stage == "drawing noise")
    code, _, err = end(start("from topdown.cli import main; main()", "run", toy_run))
    assert code == 0, err
    verify_release(public)
    assert kept in (None, measured(internal))


@pytest.fixture
def python_handles_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_handles_interrupts")
def test_an_interrupt_that_the_solver_takes_is_not_a_failed_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    geography = td.Geography.from_geoids([f"{k:05}" for k in range(500)], widths={"a": 2, "b": 5})
    values = np.random.default_rng(1).normal(0, 10, geography.n_nodes)
    measurements = td.Measurements.from_arrays(geography, values, 1.0)
    # It never ends by itself.
    monkeypatch.setitem(
        cvxpy_programs._TIGHT, "OSQP", {"eps_abs": 0.0, "eps_rel": 1e-300, "max_iter": 2**31 - 1, "polishing": False}
    )
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        td.project(measurements, "joint", nonnegative=True, engine="cvxpy", solver="OSQP")
    timer.join()


def _raised_and_held_back(number: signal.Signals, done: list[int]) -> None:
    with held_back():
        signal.raise_signal(number)
        done.append(1)


@pytest.mark.usefixtures("python_handles_interrupts")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_must_not_be_torn_holds_signals_back(number: signal.Signals) -> None:
    done: list[int] = []

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            _raised_and_held_back(number, done)
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
    assert done == [1]


def test_the_command_leaves_the_handlers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr("sys.argv", ["topdown", "version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def _interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", [_interrupted, lambda: sys.exit(130)])
def test_an_interrupt_that_no_signal_brought(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: Callable[[], None]
) -> None:
    monkeypatch.setattr(cli, "_outcome", command)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 130
    require_one_line(capsys.readouterr().err)


class Pieces(io.StringIO):
    """Standard error of which another thread gets to say something after every write."""

    def write(self, text: str) -> int:
        return super().write(text) + super().write("<another thread>\n")


def test_the_line_and_its_end_are_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Pieces()
    monkeypatch.setattr(sys, "stderr", said)
    with pytest.raises(SystemExit), one_line():
        _interrupted()
    assert said.getvalue() == "stopped: nothing is half-written; run the command again\n<another thread>\n"


class AtItsFinder:
    """Called by Python's import machinery, in the main thread, from where it sends an interrupt as if it came there."""

    def __init__(self) -> None:
        self.returned = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        assert callable(handler)
        handler(signal.SIGINT, sys._getframe(1))
        self.returned = True


def _import_and_wait(module: str) -> None:
    with suppress(ModuleNotFoundError):
        importlib.import_module(module)
    threading.Event().wait(PATIENCE)
    pytest.fail("the interrupt was lost")


def test_an_interrupt_within_an_import_waits_until_its_locks_are_free(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finder = AtItsFinder()
    monkeypatch.setattr(sys, "meta_path", [finder])
    with pytest.raises(SystemExit) as stop, one_line():
        _import_and_wait("no_such_module")
    assert finder.returned
    assert stop.value.code == 130
    require_one_line(capsys.readouterr().err)


SWALLOWS = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    pass
"""


def test_an_interrupt_that_a_loading_library_would_swallow_waits_until_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "swallows_interrupts.py").write_text(SWALLOWS)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as stop, one_line():
        _import_and_wait("swallows_interrupts")
    assert "swallows_interrupts" in sys.modules
    assert stop.value.code == 130
    require_one_line(capsys.readouterr().err)
