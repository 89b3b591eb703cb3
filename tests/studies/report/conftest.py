"""Studies that several tests of the report read."""

from __future__ import annotations

from typing import Any

import pytest

from support.reported import nation, outline_file, studied
from topdown.pages.leaf_outlines import read_outlines


@pytest.fixture(scope="session")
def study() -> dict[str, Any]:
    return studied()


@pytest.fixture(scope="session")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A study with outlines: its table and summary."""
    outlines = read_outlines(outline_file(tmp_path_factory.mktemp("outlines")), nation()[0])
    return studied(replicates=200, outlines=outlines)
