"""Commands in small places, what they leave when nothing disturbs them, and what must hold when something does."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from support.command import topdown_command
from support.crash import TOML
from support.parted import LEDGER, TRACTS, AtOnce, made
from support.redistricting import UNITS_TOML
from topdown.privacy import ledger_file
from topdown.privacy.ledger import Ledger

FINAL = ("output/public", "output/exports", "output/microdata", "out/statistic.json", "exported")
"""What has its final name only when it is whole."""

EXPORTED = (
    UNITS_TOML
    + """
[output]
exports = ["nmf", "ppmf"]
microdata = true

[ledger]
path = "ledger.db"
dataset = "census"
"""
)


@dataclass(frozen=True)
class Job:
    """A command that is disturbed: what makes its place, and the command itself (arguments in that place).

    ``before``: commands that are done there first, undisturbed. ``or_says``: what the command may say instead of
    ending well when it is given again.
    """

    made: Callable[[Path], Any]
    command: Callable[[Path], list[Any]]
    before: Callable[[Path], list[list[Any]]] = lambda place: []
    or_says: str | None = None


def _toy(place: Path) -> None:
    frame = pd.DataFrame(
        {
            "nation": ["US"] * 3,
            "state": ["01", "01", "02"],
            "county": ["01001", "01003", "02001"],
            "adults": [10, 20, 0],
            "children": [1, 2, 4],
        }
    )
    frame.to_csv(place / "table.csv", index=False)
    (place / "run.toml").write_text(TOML)
    Ledger(place / "ledger.db").open_account("census", 1)


def _units(place: Path) -> None:
    rows = [("440070001011000", 0, 3), ("440070001011001", 1, 2), ("440090001001000", 2, 1)]
    pd.DataFrame(rows, columns=["block", "vacant", "occupied"]).to_csv(place / "table.csv", index=False)
    (place / "run.toml").write_text(EXPORTED)
    ledger = Ledger(place / "ledger.db")
    ledger.open_account("census", 10, currency="rho", unit="housing unit", neighbours="substitute")


def _people(place: Path) -> None:
    (place / "people.csv").write_text("income\n" + "".join(f"{k}\n" for k in range(200)))
    Ledger(place / "ledger.db").open_account("people", 1, neighbours="substitute")


def _parted(place: Path) -> None:
    made(place, TRACTS + LEDGER + "\n[projection]\ncross_check = false\n")


def _run(place: Path) -> list[Any]:
    return ["run", place / "run.toml", "--workers", "1", "--quiet"]


JOBS = {
    "run": Job(_toy, _run),
    "run with exports and microdata": Job(_units, _run),
    "run in parts": Job(_parted, lambda place: [*_run(place), "--part-size", "8"]),
    "synthesize": Job(_toy, lambda place: ["synthesize", place / "run.toml", "--quiet"], lambda place: [_run(place)]),
    "statistic": Job(
        _people,
        lambda place: [
            *("statistic", place / "people.csv", "--column", "income", "--bounds", "0:1000", "--epsilon", "0.5"),
            *("--ledger", place / "ledger.db", "--dataset", "people", "--output", place / "out", "--quiet"),
        ],
    ),
    "export": Job(
        _units,
        lambda place: [
            *("export", place / "output" / "public", "--format", "ppmf", "-o", place / "exported", "--quiet"),
        ],
        lambda place: [_run(place)],
    ),
    "ledger init": Job(
        lambda place: None,
        lambda place: ["ledger", "init", place / "books" / "ledger.db", "--dataset", "census", "--total", "1"],
        or_says="data set 'census' has this account already; nothing was changed",
    ),
}


class _Frozen(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime(2026, 1, 1, tzinfo=UTC)


class _InThisProcess(AtOnce):
    """In place of processes, in which nothing would be watched."""

    def __init__(self, count: int, *, fresh: bool) -> None:
        super().__init__()

    def shutdown(self) -> None:
        """There is nothing to end."""


@dataclass
class Disturbed:
    """The places of one job below ``folder``. Secrets come one after the other, and the clock of ledgers stands."""

    job: Job
    folder: Path
    capsys: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    clean: dict[str, dict[str, Any]] = field(default_factory=dict)
    secrets: int = 0

    def __post_init__(self) -> None:
        self.patch.setattr(ledger_file, "datetime", _Frozen)
        self.patch.setattr("topdown.machine.tasks.ProcessWorkers", _InThisProcess)
        self.patch.setattr("topdown.measurements.journal.secrets.token_bytes", self._secret)
        template = self.folder / "template"
        template.mkdir()
        self.job.made(template)
        for command in self.job.before(template):
            assert topdown_command(*command) == 0

    def _secret(self, nbytes: int) -> bytes:
        self.secrets += 1
        return hashlib.sha256(str(self.secrets).encode()).digest()[:nbytes]

    def place(self, name: str = "place") -> Path:
        """A fresh place, in which nothing was done but what comes before the command."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder / "template", place)
        return place

    def done(self, place: Path) -> tuple[int, str]:
        """The exit code of the command in ``place``, and what it said of errors."""
        self.capsys.readouterr()
        code = topdown_command(*self.job.command(place))
        return code, self.capsys.readouterr().err

    def undisturbed(self, secret: str) -> dict[str, Any]:
        """What lies in a place in which the command was done from a ``secret``, empty where there is none."""
        if secret not in self.clean:
            place = self.place(f"undisturbed {len(self.clean)}")
            key = key_of(place)
            if secret and not key.exists():
                key.parent.mkdir(parents=True, mode=0o700)
                key.write_text(secret)
            assert self.done(place)[0] == 0
            self.clean[secret] = lies_in(place)
            assert secret_of(place) == secret
        return self.clean[secret]

    def require_whole_or_absent(self, place: Path) -> None:
        """What has a final name is what an undisturbed command makes."""
        wanted, there = None, lies_in(place)
        for name in FINAL:
            found = _below(there, name)
            if found and found != _below(lies_in(self.folder / "template"), name):
                wanted = wanted or self.undisturbed(secret_of(place))
                assert found == _below(wanted, name), name

    def require_done(self, place: Path) -> None:
        """Everything is as an undisturbed command leaves it, the ledger and temporary names too."""
        wanted, found = self.undisturbed(secret_of(place)), lies_in(place)
        assert sorted(found) == sorted(wanted)
        assert [name for name in wanted if found[name] != wanted[name]] == []


def require_one_message(said: str) -> None:
    """One line says what is wrong."""
    assert said.count("error:") == 1, said
    assert "Traceback" not in said, said
    assert "fault of topdown" not in said, said


def key_of(place: Path) -> Path:
    return place / ("out" if (place / "people.csv").exists() else "output") / "internal" / "key"


def secret_of(place: Path) -> str:
    path = key_of(place)
    return path.read_text() if path.exists() else ""


def lies_in(place: Path) -> dict[str, Any]:
    """By its path the content of every file, None of a folder; of ledgers their records."""
    found: dict[str, Any] = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.name == "ledger.db":
            found[name] = records_of(path)
        elif not path.name.startswith("ledger.db"):
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


def records_of(ledger: Path) -> list[Any]:
    try:
        return [(one.dataset, one.kind, one.release, one.hash) for one in ledger_file.read_records(ledger)]
    except Exception as error:
        return [str(error)]


def _below(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {path: content for path, content in found.items() if path == name or path.startswith(f"{name}/")}
