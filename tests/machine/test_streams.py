"""Standard output and error that are full, closed, cut off or without letters: no release is lost, nothing fails."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import REPOSITORY, RUN_TOML
from topdown.machine.streams import Lasting

TOPDOWN = f"{shlex.quote(sys.executable)} -c 'from topdown.cli import main; main()'"
pytestmark = [pytest.mark.system, pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")]


def shell(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``script`` in a shell in ``folder``, where TOPDOWN is the command."""
    return subprocess.run(
        ["bash", "-c", script.replace("TOPDOWN", TOPDOWN)],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "NO_COLOR": "1",
            "TERM": "dumb",
            "COLUMNS": "200",
            **environment,
        },
    )


def is_whole(folder: Path) -> bool:
    manifest = folder / "output" / "public" / "manifest.json"
    return manifest.is_file() and bool(json.loads(manifest.read_text())["files"])


@pytest.mark.parametrize(
    "script",
    [
        "TOPDOWN run run.toml >/dev/full",
        "TOPDOWN run run.toml --verbose >/dev/full 2>/dev/full",
        "TOPDOWN run run.toml | true; exit ${PIPESTATUS[0]}",
        "TOPDOWN run run.toml | head -c 1; exit ${PIPESTATUS[0]}",
        "TOPDOWN run run.toml >&-",
        "TOPDOWN run run.toml 2>&-",
        "TOPDOWN run run.toml <&- >&- 2>&-",
    ],
)
def test_a_release_is_made_although_nobody_can_read_the_progress(toy_run: Path, script: str) -> None:
    found = shell(toy_run.parent, script)
    assert found.returncode == 0, found.stderr
    assert is_whole(toy_run.parent)
    assert "Traceback" not in found.stderr
    assert "Exception" not in found.stderr
    assert found.stderr.count("\n") <= 1
    if ">/dev/full" in script and "2>" not in script:
        assert found.stderr.startswith("warning: standard output cannot be written (No space left on device); what the")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("TOPDOWN check run.toml >/dev/full", 74),
        ("TOPDOWN check run.toml >/dev/full 2>&1", 74),
        ("TOPDOWN check run.toml >&-", 74),
        ("TOPDOWN check run.toml --quiet >&-", 0),
        ("TOPDOWN check run.toml | true; exit ${PIPESTATUS[0]}", 0),
        ("TOPDOWN version >/dev/full", 74),
        ("TOPDOWN --help >/dev/full", 74),
        ("TOPDOWN ledger init l.db --dataset x --total 1 >/dev/full", 0),
        ("TOPDOWN ledger init l.db --dataset x --total 1 && TOPDOWN ledger show l.db >/dev/full", 74),
        ("TOPDOWN check gone.toml >/dev/full", 2),
        ("TOPDOWN check gone.toml 2>/dev/full", 2),
        ("TOPDOWN check gone.toml 2>&-", 2),
        ("TOPDOWN check gone.toml 2>&1 | true; exit ${PIPESTATUS[0]}", 2),
        ("TOPDOWN run run.toml --nope >/dev/full 2>/dev/full", 2),
    ],
)
def test_the_code_says_whether_what_was_asked_for_could_be_printed(toy_run: Path, script: str, code: int) -> None:
    found = shell(toy_run.parent, script)
    assert found.returncode == code, found.stderr
    assert "Traceback" not in found.stderr
    assert "Exception" not in found.stderr
    assert found.stderr.count("\n") <= 1
    if code == 74 and "2>&1" not in script:
        assert found.stderr.startswith("error: standard output cannot be written: ")


@pytest.mark.parametrize("encoding", ["ascii", "ascii:strict", "latin-1:strict"])
def test_letters_that_the_output_lacks_are_written_otherwise(toy_run: Path, encoding: str) -> None:
    table = toy_run.parent / "table.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("adults", "ädülts北"), encoding="utf-8")
    toy_run.write_text(RUN_TOML.replace("adults", "ädülts北"), encoding="utf-8")
    found = shell(toy_run.parent, "TOPDOWN run run.toml && TOPDOWN --help", PYTHONIOENCODING=encoding)
    assert (found.returncode, found.stderr) == (0, "")
    assert "\\u5317" in found.stdout
    toy_run.write_text(RUN_TOML.replace("adults", "ädülts东"), encoding="utf-8")
    found = shell(toy_run.parent, "TOPDOWN check run.toml", PYTHONIOENCODING=encoding)
    assert found.returncode == 3
    assert "\\u4e1c" in found.stderr
    assert is_whole(toy_run.parent)


def test_no_file_takes_the_place_of_a_closed_stream(toy_run: Path) -> None:
    """The first file that is opened would be given number 1, and what a library prints would go into it."""
    found = shell(toy_run.parent, f"{shlex.quote(sys.executable)} -c '{_PRINTS_BELOW_PYTHON}' 0<&- 1>&- 2>&-")
    assert found.returncode == 0
    assert (toy_run.parent / "first").read_text() == ""


_PRINTS_BELOW_PYTHON = """
import os, sys
from topdown.cli import app as cli
cli._outcome = lambda: (open("first", "w") and (os.write(1, b"noise") and 0), False)
cli.main()
"""


class _Failing:
    encoding = "utf-8"

    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    def write(self, text: str) -> int:
        self.calls += 1
        raise self.error

    def flush(self) -> None:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("error", [OSError(28, "x"), BrokenPipeError(32, "x"), ValueError("closed"), OSError("x")])
def test_a_stream_fails_once_and_is_left_alone(error: Exception) -> None:
    below = _Failing(error)
    stream = Lasting(below)  # type: ignore[arg-type]
    assert stream.failure is None
    assert stream.write("abc") == 3
    assert stream.failure
    assert stream.write("def") == 3
    stream.flush()
    assert below.calls == 1
    assert stream.encoding == "utf-8"


def test_a_fault_of_ours_is_one_line_without_a_value(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from topdown.cli import app as cli
    from topdown.pipeline import draw

    def fault(*_: object) -> None:
        confidential = 1234567
        raise KeyError(confidential)

    monkeypatch.setattr(draw, "check", fault)
    monkeypatch.setattr("sys.argv", ["topdown", "check", str(toy_run)])
    monkeypatch.delenv("TOPDOWN_TRACEBACK", raising=False)
    for shows in (False, True):
        if shows:
            monkeypatch.setenv("TOPDOWN_TRACEBACK", "1")
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 70
        err = capfd.readouterr().err
        assert err.startswith("error: KeyError: internal error of topdown")
        assert "1234567" not in err.replace("confidential = 1234567", "")
        assert ("in fault" in err) == shows
        assert (err.count("\n") == 1) != shows
