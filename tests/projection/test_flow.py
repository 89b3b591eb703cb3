"""Whole histograms of a family: sums kept, chains within floor and ceiling, nearest or unbiased."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import topdown as td
from support.histograms import SCHEMA
from topdown.errors import ConfigError
from topdown.projection.histograms.flow import chain, nearest, network, unbiased
from topdown.projection.histograms.flow_kernel import straighten
from topdown.workload import Query, Schema

BOTH = pytest.mark.parametrize("rounding", [nearest, unbiased])


def family(rng: np.random.Generator, children: int, cells: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Fractional histograms with whole sums, some of them whole already, and the chain's groups."""
    places = np.sort(rng.choice(SCHEMA.n_cells, cells, replace=False))
    total = rng.integers(1, 6, cells)
    part = rng.dirichlet(np.full(children, 0.6), cells).T
    part[part < 0.05] = 0
    x = part / part.sum(axis=0) * total
    return x, total.astype(np.float64), [query.answers_of(places) for query in chain(SCHEMA)]


def within(x: np.ndarray, whole: np.ndarray, groups: Sequence[np.ndarray]) -> bool:
    """Whether every group's sum is the floor or the ceiling of what it was."""
    for group in groups:
        for name in np.unique(group):
            was, now = x[:, group == name].sum(axis=1), whole[:, group == name].sum(axis=1)
            if ((now < np.floor(was + 1e-6)) | (now > np.ceil(was - 1e-6))).any():
                return False
    return True


@BOTH
def test_sums_and_chains_are_kept(rounding) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    for seed in range(150):
        x, total, groups = family(rng, int(rng.integers(1, 8)), int(rng.integers(1, 24)))
        whole = rounding(network(x, total, groups), td.SeededSource(seed))
        assert (whole.sum(axis=0) == total).all()
        assert (whole >= 0).all()
        assert within(x, whole, groups)


def test_the_nearest_are_those_that_trying_all_finds() -> None:
    rng = np.random.default_rng(2)
    tried = 0
    while tried < 25:
        x, total, groups = family(rng, 3, 4)
        free = np.argwhere(np.abs(x - np.rint(x)) > 1e-6)
        if not 4 <= len(free) <= 12:
            continue
        tried += 1
        best = np.inf
        for ups in itertools.product((0, 1), repeat=len(free)):
            whole = np.rint(x)
            whole[tuple(free.T)] = np.floor(x[tuple(free.T)]) + ups
            if (whole.sum(axis=0) == total).all() and within(x, whole, groups):
                best = min(best, float(((whole - x) ** 2).sum()))
        found = nearest(network(x, total, groups), td.SeededSource(tried))
        assert ((found - x) ** 2).sum() == pytest.approx(best, abs=1e-4)


def test_unbiased_means_are_the_fractions() -> None:
    x, total, groups = family(np.random.default_rng(3), 4, 10)
    given = network(x, total, groups)
    draws = np.stack([unbiased(given, td.SeededSource(seed)) for seed in range(2000)])
    fraction = x - np.floor(x)
    # 40 cells, each within 5 of its own standard deviations.
    assert (np.abs(draws.mean(axis=0) - x) <= 5 * np.sqrt(fraction * (1 - fraction) / 2000) + 1e-9).all()
    assert (np.abs(nearest(given, td.SeededSource(0)) - x) > 5 * np.sqrt(fraction * (1 - fraction) / 2000)).any()


def test_fresh_bits_break_ties() -> None:
    x = np.full((4, 3), 0.5)
    groups = [np.zeros(3, int), np.arange(3)]
    found = {nearest(network(x, x.sum(axis=0), groups), td.SeededSource(seed)).tobytes() for seed in range(20)}
    assert len(found) > 5


@BOTH
def test_a_root_has_no_sums_to_keep(rounding) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(4)
    for seed in range(30):
        x = rng.gamma(0.5, 3, (1, SCHEMA.n_cells))
        groups = [query.answers_of(np.arange(SCHEMA.n_cells)) for query in chain(SCHEMA)]
        assert within(x, rounding(network(x, None, groups), td.SeededSource(seed)), groups)


def test_whole_numbers_stay() -> None:
    x = np.array([[3.0, 0.0, 2.0000000001], [1.0, 4.0, 1.9999999999]])
    groups = [np.zeros(3, int), np.arange(3)]
    for rounding in (nearest, unbiased):
        whole = rounding(network(x, x.sum(axis=0), groups), td.SeededSource(1))
        assert (whole == [[3, 0, 2], [1, 4, 2]]).all()


def test_the_chain_is_nested_and_holds_what_must_be_held() -> None:
    assert [query.name for query in chain(SCHEMA)] == ["total", "g", "a", "a * b", "detailed"]
    by = Query.parse("b", SCHEMA)
    assert [query.name for query in chain(SCHEMA, [by])] == ["total", "b", "a * b", "detailed"]
    crossed = [Query.parse("b * c", SCHEMA), Query.parse("b", SCHEMA)]
    assert [query.name for query in chain(SCHEMA, crossed)] == ["total", "b", "b * c", "detailed"]
    for one, other in itertools.pairwise(chain(SCHEMA, crossed)):
        assert one.is_part_of(other)
    with pytest.raises(ConfigError, match=r"'b' and 'c' are exact or have limits.*hold 'b \* c'"):
        chain(SCHEMA, [by, Query.parse("c", SCHEMA)])
    assert [query.name for query in chain(Schema.of_cells(["x", "y"]))] == ["total", "detailed"]


def test_where_two_arcs_meet_one_number_decides_on_both() -> None:
    # From 0 by 1 to 2; from 0 to 3, at which an arc from 2 ends too; from 0 to 2; a loop between 4 and 5.
    tail, head = np.array([[0, 1, 0, 2, 0, 4, 5], [1, 2, 3, 3, 2, 5, 4]], np.int32)
    chain, along, first, last, nodes = straighten(tail, head, 6)
    assert chain.tolist() == [0, 0, 1, 1, 2, 3, 3]
    assert along.tolist() == [True, True, True, False, True, True, True]
    assert [first.tolist(), last.tolist(), nodes] == [[0, 0, 0, 2], [1, 1, 1, 2], 3]
