"""What a run takes of memory: the estimate beside real processes, refusals before anything is drawn, few addresses."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.benchmark import benchmark_module
from support.places import REPOSITORY
from topdown.config import load_config
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree
from topdown.pipeline import memory_needed
from topdown.pipeline import run as pipeline
from topdown.pipeline.draw import check
from topdown.pipeline.input import unit_reading
from topdown.pipeline.parts import part_plan

BENCHMARK = benchmark_module("memory")
SHAPES = [*BENCHMARK.FIXED, *BENCHMARK.random_shapes(12, 331_449_281)]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_run_takes_about_what_was_estimated(shape: object) -> None:
    found = BENCHMARK.measure(shape)
    assert found.peak / 2 <= found.estimate <= 2 * found.peak


@pytest.mark.slow
def test_a_million_rows_and_sixty_cells_take_six_gibibytes_at_most() -> None:
    found = BENCHMARK.measure(BENCHMARK.LARGEST)
    assert found.peak <= BENCHMARK.LIMIT
    assert found.peak / 2 <= found.estimate <= 2 * found.peak


def test_a_run_on_a_small_table_takes_about_what_was_estimated() -> None:
    found = BENCHMARK.measure(BENCHMARK.Shape(2_000, 3, 3))
    assert found.peak / 2 <= found.estimate <= 2 * found.peak


# -- the estimate, and what follows from it ---------------------------------------------------------------------------

HISTOGRAMS = load_config(REPOSITORY / "pipelines" / "pl94_rhode_island.toml")


def geography(blocks: int) -> Geography:
    """Of ten counties with ten tracts, these with two block groups, and these with so many blocks each."""
    tree = Tree.from_family_sizes([[10], [10] * 10, [2] * 100, [blocks] * 200])
    levels = ("state", "county", "tract", "block group", "block")
    return Geography(levels, tree, pa.array([f"{k:015}" for k in range(tree.n_nodes)]))


def weighed(monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, part_size: int | None = None) -> int | None:
    config = HISTOGRAMS.model_copy(update={"bounds": None})
    monkeypatch.setattr(memory_needed, "available_memory", lambda: free)
    monkeypatch.setattr(memory_needed, "held_memory", lambda: memory_needed._held_before(config))
    return memory_needed._leaves_of_a_part(config, geography(blocks), part_size, 1)


def test_several_queries_that_do_not_fit_go_in_parts_and_these_become_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    assert weighed(monkeypatch, 150, 1 << 40) is None
    assert weighed(monkeypatch, 150, 1 << 40, part_size=77) == 77
    config = HISTOGRAMS.model_copy(update={"bounds": None})
    parts = memory_needed.of_parts(config, geography(150), part_plan.LEAVES_OF_A_PART).memory(0, 1)
    whole = memory_needed.of_whole(config, geography(150))
    assert parts < whole
    assert weighed(monkeypatch, 150, parts) == part_plan.LEAVES_OF_A_PART
    smaller = weighed(monkeypatch, 150, parts - (200 << 20))
    assert smaller is not None
    assert smaller < part_plan.LEAVES_OF_A_PART


def test_cells_alone_which_parts_do_not_make_smaller_stay_whole_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_needed, "available_memory", lambda: 1 << 20)
    assert memory_needed._leaves_of_a_part(HISTOGRAMS, geography(150), None, 2) is not None  # also with bounds
    shares = {level: {"detailed": "1/5"} for level in geography(150).levels}
    alone = HISTOGRAMS.privacy.model_copy(update={"preset": None, "shares": shares, "invariants": []})
    config = HISTOGRAMS.model_copy(update={"privacy": alone})
    assert not config.asks_queries
    assert memory_needed._leaves_of_a_part(config, geography(150), None, 2) is None
    assert memory_needed._leaves_of_a_part(config, geography(150), 50, 2) == 50


def test_loops_are_loaded_before_memory_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled or read from disk, they take what is then known."""
    done: list[str] = []
    real = memory_needed.held_memory
    monkeypatch.setattr(memory_needed, "load_loops", lambda: done.append("loops"))
    monkeypatch.setattr(memory_needed, "held_memory", lambda: done.append("weighed") or real())
    check(load_config(REPOSITORY / "pipelines" / "age_by_sex.toml"))
    assert done[-2:] == ["loops", "weighed"]


def test_nothing_is_compiled_where_a_compiler_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_needed, "load_loops", lambda: pytest.fail("the process would end"))
    monkeypatch.setattr(memory_needed, "available_memory", lambda: 300 << 20)
    with pytest.raises(
        DataError, match=r"several queries takes, for its compiler alone, .* of memory, and .* are free"
    ):
        check(load_config(REPOSITORY / "pipelines" / "age_by_sex.toml"))


# -- too little of it -----------------------------------------------------------------------------------------------


def test_counts_are_not_read_where_the_run_will_not_fit(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    real = unit_reading.read_table

    def watched(path: Path, columns: list[str], **options: Any) -> Any:
        read.extend(columns)
        return real(path, columns, **options)

    monkeypatch.setattr("topdown.pipeline.input.unit_reading.read_table", watched)
    monkeypatch.setattr("topdown.pipeline.memory_needed.available_memory", lambda: 1 << 20)
    with pytest.raises(
        DataError,
        match=r"table.csv: a run on 6 units x 2 cells takes more than there is of memory, and 1.00 MiB are free",
    ):
        pipeline.run(load_config(toy_run))
    assert read == ["nation", "county"]
    assert not (toy_run.parent / "output").exists()


@pytest.mark.parametrize("gibibytes", [0.3, 0.38, 0.6, 0.7, 1.0, 1.5, 2.0, 3.0])
def test_few_addresses_are_enough_or_refused_at_once(gibibytes: float, tmp_path: Path) -> None:
    """As under ``ulimit -v``: the release is made, or nothing is drawn and one line says why; nothing waits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (int(gibibytes * 2**30), int(gibibytes * 2**30)))

    done = subprocess.run(
        [sys.executable, "-c", "from topdown.entry import main; main()", "run",
         str(REPOSITORY / "pipelines" / "us_counties.toml"), "--output", str(tmp_path / "out")],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    if done.returncode == 0:
        assert (tmp_path / "out" / "public" / "manifest.json").exists()
        return
    assert not (tmp_path / "out").exists()
    assert re.fullmatch(r"error: .+\n", done.stderr), done.stderr
