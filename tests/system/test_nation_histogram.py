"""benchmarks/nation_histogram.py on a small input: what a run makes, and which figures are kept."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from support.benchmark import benchmark_module


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return benchmark_module("nation_histogram")


@pytest.mark.slow
def test_a_small_nation_is_made_and_released_from_the_block_groups(benchmark: ModuleType, tmp_path: Path) -> None:
    benchmark.make(tmp_path, 3_000)
    found = benchmark.run(tmp_path, workers=1, options=("--part-size", "1500"), upward=True)
    assert found["upward"] == "from block group"
    assert found["blocks"] == 3_000
    assert found["cells above 0 in the release"] > 3_000
    assert found["seconds, projecting and rounding"] > 0
    manifest = json.loads((tmp_path / "out" / "public" / "manifest.json").read_text())
    assert manifest["configuration"]["projection"]["upward"] == "from block group"


def test_a_variant_is_kept_beside_the_other(benchmark: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"

    def kept() -> dict[str, object]:
        figures = json.loads(path.read_text())["figures"]
        return {title: value for title, value in figures.items() if not title.endswith("date")}

    variant = benchmark.VARIANT
    benchmark.keep("kept", {"seconds": 9, "starts": 2}, path, upward=False)
    benchmark.keep("kept", {"seconds": 5}, path, upward=True)
    assert kept() == {"seconds": 9, "starts": 2, f"{variant}seconds": 5}
    benchmark.keep("kept", {"seconds": 8}, path, upward=False)
    assert kept() == {"seconds": 8, f"{variant}seconds": 5}
    benchmark.keep("kept", {"rounds": 1}, path, upward=True)
    assert kept() == {"seconds": 8, f"{variant}rounds": 1}
