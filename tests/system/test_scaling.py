"""benchmarks/scaling.py: tasks are replayed as the program hands them out."""

from __future__ import annotations

from types import ModuleType

import pytest

from support.benchmark import benchmark_module


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = benchmark_module("scaling")
    monkeypatch.setattr(module, "LATENCY", 0.0)
    return module


def test_equal_tasks_are_shared(benchmark: ModuleType) -> None:
    assert [benchmark.replay([(2.0, 0.0)] * 12, workers) for workers in (1, 2, 3, 12, 50)] == [24, 12, 8, 2, 2]


def test_few_tasks_are_handed_out_ahead_of_one_that_is_not_done(benchmark: ModuleType) -> None:
    """Two workers have four tasks at most: while the first takes ten seconds the other does three, and waits."""
    assert benchmark.replay([(10.0, 0.0)] + [(1.0, 0.0)] * 9, 2) == 13


def test_all_bytes_pass_one_storage(benchmark: ModuleType) -> None:
    assert benchmark.replay([(0.0, benchmark.STORAGE)] * 8, 4) == 8
    assert benchmark.replay([(3.0, benchmark.STORAGE)] * 4, 4) == 4
    assert benchmark.replay([(3.0, benchmark.STORAGE)], 4) == 4


def test_what_a_part_and_a_leaf_cost_is_found_from_the_tasks(benchmark: ModuleType) -> None:
    done = [benchmark.Done("up", k, 2.0 + 0.5 * leaves, 7.0 * leaves, False) for k, leaves in enumerate((10, 20, 40))]
    first = benchmark.Done("up", 0, 99.0, 70.0, True)
    cost = benchmark.Cost.fitted([benchmark.Recorded([*done, first], [10, 20, 40], 0.0, 0.0)], "up")
    assert cost == pytest.approx((2.0, 0.5, 0.0, 7.0))
    assert cost.of(30) == pytest.approx((17.0, 210.0))
