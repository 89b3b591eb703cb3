"""What a run takes of memory: the estimate beside real processes, refusals before anything is drawn, few addresses."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.benchmark import benchmark_module
from support.places import REPOSITORY
from topdown.config import load_config
from topdown.errors import DataError
from topdown.geography.tree import Tree
from topdown.machine.allocation import LARGE
from topdown.pipeline import reading
from topdown.pipeline import run as pipeline
from topdown.pipeline.draw import check
from topdown.pipeline.memory_estimate import Work, needed_by_stage, peak_memory

BENCHMARK = benchmark_module("memory")
SHAPES = [*BENCHMARK.FIXED, *BENCHMARK.random_shapes(12, 331_449_281)]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_run_takes_what_was_estimated(shape: object) -> None:
    found = BENCHMARK.measure(shape)
    assert found.peak <= found.estimate <= 1.25 * found.peak


@pytest.mark.slow
def test_a_million_rows_and_sixty_cells_take_six_gibibytes_at_most() -> None:
    found = BENCHMARK.measure(BENCHMARK.LARGEST)
    assert found.peak <= BENCHMARK.LIMIT
    assert found.peak <= found.estimate <= 1.25 * found.peak


def test_a_run_on_a_small_table_takes_what_was_estimated() -> None:
    found = BENCHMARK.measure(BENCHMARK.Shape(2_000, 3, 3))
    assert found.peak <= found.estimate <= 1.25 * found.peak


# -- the estimate ---------------------------------------------------------------------------------------------------


def work(**changes: object) -> Work:
    usual = {
        "rows": 10_000, "row_bytes": 24.0, "cells": 4, "units_text": 200_000, "names_text": 0, "method": "top-down",
        "csv": False, "bounds": ("none",), "on_grid": False, "invariants": False, "unmeasured": False, "margins": False,
        "threads": 2,
    }  # fmt: skip
    return Work(**{**usual, **changes})  # type: ignore[arg-type]


TREE = Tree.from_family_sizes([[100], [100] * 100])
FAMILY = Tree.from_family_sizes([[100_000]])
CHAINS = Tree.from_family_sizes([[20_000], *([1] * 20_000 for _ in range(4))])


@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        ("reading", {"rows": 100_000}),
        ("reading", {"row_bytes": 200.0}),
        ("drawing noise", {"bounds": ("none", "truncated")}),
        ("drawing noise", {"on_grid": True}),
        ("projecting", {"cells": 8}),
        ("projecting", {"method": "gls-top-down"}),
        ("projecting", {"invariants": True}),
        ("projecting", {"unmeasured": True}),
        ("rounding", {"invariants": True}),
        ("writing", {"csv": True, "threads": 4}),
        ("writing", {"units_text": 2_000_000}),
        ("writing", {"names_text": 2_000_000}),
    ],
)
def test_more_work_needs_more_memory(stage: str, changes: dict[str, object]) -> None:
    assert needed_by_stage(TREE, work(**changes))[stage] > needed_by_stage(TREE, work())[stage]


def test_leaves_that_are_not_measured_need_more_than_units_above_them() -> None:
    above, leaves = (needed_by_stage(TREE, work(unmeasured=True, open_leaves=one)) for one in (False, True))
    assert above["projecting"] < leaves["projecting"]


def test_every_thread_draws_a_chunk_of_its_own() -> None:
    one, two = (needed_by_stage(TREE, work(cells=60, threads=threads))["drawing noise"] for threads in (1, 2))
    assert one < two


def test_leaves_that_are_alike_need_less_for_their_margins_than_as_many_units_above_them() -> None:
    wide, deep = (needed_by_stage(tree, work(margins=True, cells=1)) for tree in (FAMILY, CHAINS))
    assert 1.2 * wide["margins of error"] < deep["margins of error"]


def test_texts_that_are_found_by_a_dictionary_need_more_in_files_the_more_of_them_there_are() -> None:
    """In chains every unit has a parent of its own."""
    wide, deep = (needed_by_stage(tree, work(cells=1)) for tree in (FAMILY, CHAINS))
    assert wide["writing"] + (10 << 20) < deep["writing"]


def test_a_single_thread_projects_one_estimate_after_the_other() -> None:
    one, two = (needed_by_stage(TREE, work(threads=threads))["projecting"] for threads in (1, 2))
    assert one < two < 2 * one


def test_a_large_family_is_projected_by_one_method_at_a_time() -> None:
    large = Tree.from_family_sizes([[300_000]])
    one, two = (needed_by_stage(large, work(threads=threads))["projecting"] for threads in (1, 2))
    assert one == two


def test_what_an_idle_thread_writes_is_counted_beside_the_projection() -> None:
    large = Tree.from_family_sizes([[1_000_000]])
    one, two = (peak_memory(large, work(threads=threads), held=0, most=0) for threads in (1, 2))
    stages = needed_by_stage(large, work(threads=2))
    assert max(stages.values()) != stages["writing"]
    assert two > one


def test_the_peak_is_never_less_than_what_was_held_already() -> None:
    assert peak_memory(TREE, work(), held=0, most=1 << 40) >= 1 << 40
    assert peak_memory(TREE, work(), held=1 << 40, most=0) > 1 << 40


def test_projections_of_arrays_with_pages_of_their_own_hold_what_they_use() -> None:
    """From 8 bytes times 2^21 nodes on; below that the heap has gaps."""
    fewer, more = (
        peak_memory(Tree.from_family_sizes([[nodes - 1]]), work(cells=1, threads=1, rows=0), held=0, most=0)
        for nodes in (LARGE // 8 - 1, LARGE // 8)
    )
    assert 1.05 * more < fewer


def test_tables_of_many_columns_need_more_to_be_written() -> None:
    none, some = (needed_by_stage(TREE, work(by_family=True, columns=one)) for one in ((), (60, 12)))
    assert some["writing"] - none["writing"] > TREE.n_nodes * (60 * 170 + 72 * 16) - 2
    assert some["projecting"] - none["projecting"] == 16 * 72 * TREE.n_nodes


def test_a_family_of_many_cells_needs_them_squared() -> None:
    large, few = (
        needed_by_stage(TREE, work(cells=400, by_family=one, rows=100_000))["projecting"] for one in (True, False)
    )
    assert large - few > 100 * 2 * 8 * 200**2


def test_loops_are_loaded_before_memory_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled or read from disk, they take what is then known."""
    done: list[str] = []
    real = reading.held_memory
    monkeypatch.setattr(reading, "load_loops", lambda: done.append("loops"))
    monkeypatch.setattr(reading, "held_memory", lambda: done.append("weighed") or real())
    check(load_config(REPOSITORY / "pipelines" / "age_by_sex.toml"))
    assert done == ["loops", "weighed"]


def test_nothing_is_compiled_where_a_compiler_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "load_loops", lambda: pytest.fail("a compiler that has no room ends the process"))
    monkeypatch.setattr(reading, "available_memory", lambda: 300 << 20)
    with pytest.raises(
        DataError, match=r"several queries takes, for its compiler alone, .* of memory, and .* are free"
    ):
        check(load_config(REPOSITORY / "pipelines" / "age_by_sex.toml"))


def test_every_whole_table_is_counted() -> None:
    """At the end there are the measurements, two estimates and the release."""
    many, few = (needed_by_stage(TREE, work(cells=cells))["writing"] for cells in (3_000, 2_000))
    assert abs((many - few) / (4 * 8 * TREE.n_nodes * 1_000) - 1) < 0.05


# -- too little of it -----------------------------------------------------------------------------------------------


def test_counts_are_not_read_where_the_run_will_not_fit(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    real = reading.read_table

    def watched(path: Path, columns: list[str], **options: Any) -> Any:
        read.extend(columns)
        return real(path, columns, **options)

    monkeypatch.setattr("topdown.pipeline.reading.read_table", watched)
    monkeypatch.setattr("topdown.pipeline.reading.available_memory", lambda: 1 << 20)
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
