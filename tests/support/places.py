"""Where things lie: the repository, its small tables, the full ones; the papers' values; a small release's TOML."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL_DATA = REPOSITORY / "data" / "small"
SHARED_DATA = REPOSITORY.parent / "shared" / "data"
"""The full tables of which SMALL_DATA holds cuts; not everybody has them."""
REFERENCE_VALUES = REPOSITORY / "tests" / "golden" / "reference_values.json"
GOLDEN: dict[str, Any] = json.loads(REFERENCE_VALUES.read_text(encoding="utf-8"))
"""Values of the papers' formulas, computed apart from this code."""


def full_data() -> Path:
    """Where the full tables are; skips the test where they are not."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the data sets in {SHARED_DATA}, which are not there; the cuts in {SMALL_DATA} are tested")
    return SHARED_DATA


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

SEVERAL_TOML = (
    RUN_TOML.split("[privacy]", maxsplit=1)[0]
    + """
[schema]
age = ["adults", "children"]

[privacy]
mechanism = "discrete-gaussian"
rho = 1
shares = { nation = { total = 0.2 }, state = { age = 0.3 }, county = { total = 0.2, age = 0.3 } }
"""
)
"""The same table, of which several queries are measured."""

Command = Callable[..., subprocess.CompletedProcess[str]]
