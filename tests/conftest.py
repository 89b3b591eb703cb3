"""Fixtures that several test files share: small tables, the full data sets, a small release, the command line."""

from __future__ import annotations

import support.environment  # noqa: F401 # before numpy is loaded

# isort: split
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import settings

import topdown as td
from support.command import topdown_command
from support.crash import Server
from support.examples import examples
from support.places import RUN_TOML, Command, full_data

settings.register_profile("topdown", examples(100))
settings.load_profile("topdown")


COMPILED_FIRST = (("test_families.py", "test_linked_family.py"), ("test_support_descent.py",))
"""Where a whole run's first and second worker begin: with tests of different compiled loops."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Otherwise both workers of a new installation begin with compiling the same loops, at the same time.

    Of two workers, pytest-xdist gives the first eighth of the tests to one, and the second to the other.
    """
    first, second = ([item for item in items if item.path.name in names] for names in COMPILED_FIRST)
    if first and second:
        named = {*first, *second}
        others = [item for item in items if item not in named]
        before = max(0, len(items) // 8 - len(first))
        items[:] = [*first, *others[:before], *second, *others[before:]]


@pytest.fixture
def frame() -> pd.DataFrame:
    """Two states, three counties, two cells, one of them all zero in one state."""
    return pd.DataFrame(
        {
            "nation": ["US"] * 3,
            "state": ["01", "01", "02"],
            "county": ["01001", "01003", "02001"],
            "adults": [10, 20, 0],
            "children": [1, 2, 4],
        }
    )


@pytest.fixture
def geography(frame: pd.DataFrame) -> td.Geography:
    return td.Geography.from_table(frame, levels=["nation", "state", "county"])


@pytest.fixture
def counts(frame: pd.DataFrame, geography: td.Geography) -> td.Counts:
    return td.Counts.from_table(frame, geography, geoid="county", cells=["adults", "children"])


@pytest.fixture
def shared_data() -> Path:
    return full_data()


@pytest.fixture
def toy_run(tmp_path: Path, frame: pd.DataFrame) -> Path:
    """The TOML file of a small release; its table lies beside it."""
    frame.to_csv(tmp_path / "table.csv", index=False)
    path = tmp_path / "run.toml"
    path.write_text(RUN_TOML)
    return path


@pytest.fixture
def topdown(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, called in this process: one of its own takes more than a second to load. It says the same there
    (`test_the_command_says_the_same_in_a_process_of_its_own`)."""
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        code = topdown_command(*arguments)
        return subprocess.CompletedProcess(list(map(str, arguments)), code, *capfd.readouterr())

    return call


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Runs that are killed or refused something, in processes of their own."""
    made = Server()
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait()
