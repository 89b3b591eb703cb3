"""What several test files share: a strategy for trees, small tables, the shared data sets, the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pandas as pd
import pytest
from hypothesis import settings

import topdown as td
from topdown.tree import Tree

# Examples are small; what makes one slow is another process on the same cores.
settings.register_profile("topdown", deadline=None)
settings.load_profile("topdown")

REPOSITORY = Path(__file__).resolve().parent.parent
SMALL_DATA = REPOSITORY / "data" / "small"
SHARED_DATA = REPOSITORY.parent / "shared" / "data"
"""The full tables of which SMALL_DATA holds cuts; not everybody has them."""


@st.composite
def family_sizes(draw: Any, max_levels: int = 5, max_family: int = 4) -> list[list[int]]:
    """Numbers of children per node, level by level, of a tree of 1 to ``max_levels`` levels."""
    sizes: list[list[int]] = []
    width = 1
    for _ in range(draw(st.integers(0, max_levels - 1))):
        sizes.append(draw(st.lists(st.integers(1, max_family), min_size=width, max_size=width)))
        width = sum(sizes[-1])
    return sizes


def trees(max_levels: int = 5, max_family: int = 4) -> st.SearchStrategy[Tree]:
    return family_sizes(max_levels, max_family).map(Tree.from_family_sizes)


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


def full_data() -> Path:
    """Where the full tables are; skips the test where they are not."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the data sets in {SHARED_DATA}, which are not there; the cuts in {SMALL_DATA} are tested")
    return SHARED_DATA


@pytest.fixture
def shared_data() -> Path:
    return full_data()


RUN_TOML = """
title = "toy"

[input]
path = "table.csv"
geoid = "county"
cells = ["adults", "children"]

[geography]
widths = { state = 2, county = 5 }

[privacy]
epsilon = 1.0
shares = { nation = 0.2, state = 0.3, county = 0.5 }
"""


@pytest.fixture
def toy_run(tmp_path: Path, frame: pd.DataFrame) -> Path:
    """The TOML file of a small release; its table lies beside it."""
    frame.to_csv(tmp_path / "table.csv", index=False)
    path = tmp_path / "run.toml"
    path.write_text(RUN_TOML)
    return path


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def topdown() -> Command:
    """The installed command in a process of its own, as a user meets it."""

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from topdown.cli import main; main()", *map(str, arguments)],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
            check=False,
        )

    return call
