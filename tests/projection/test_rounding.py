"""Whole numbers family by family: brute force, fair ties, exact values, bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.trees import Case, cases, measurements, trees, wide_trees
from topdown.errors import ConfigError
from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.machine.parallel import thread_pool
from topdown.noise import KeyedSource, SecureSource, SeededSource
from topdown.projection.cells import rounding
from topdown.projection.cells.rounding import _Floored, round_top_down


def brute_force(x: FloatArray, total: int, lower: IntArray) -> float:
    """The least sum of squares over whole r >= lower with the total."""
    choices = [
        range(int(low), max(int(low), int(np.ceil(value))) + total + 1) for low, value in zip(lower, x, strict=True)
    ]
    return min(
        float(((np.array(r) - x) ** 2).sum())
        for r in itertools.product(*choices[:-1])
        for r in [(*r, total - sum(r))]
        if r[-1] >= lower[-1]
    )


@examples(150)
@given(
    st.lists(st.floats(0, 3), min_size=1, max_size=4),
    st.integers(0, 6),
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
    st.sampled_from([None, 2, 4]),
)
def test_a_family_equals_brute_force(values: list[float], total: int, bounds: list[int], grid: int | None) -> None:
    x = np.array(values) if grid is None else np.rint(np.array(values) * grid) / grid
    lower = np.minimum(np.array(bounds[: len(x)]), np.floor(x).astype(int))
    total = max(total, int(lower.sum()))
    tree = Tree.from_family_sizes([[len(x)]])
    whole = round_top_down(
        np.array([[total, *x]]), tree, SecureSource(), np.array([[lower.sum(), *lower]], float), None
    )[0]
    assert whole[0] == total == whole[1:].sum()
    assert (whole[1:] >= lower).all()
    best = brute_force(x, total, lower)
    # Fractions that differ by less than 2^-20 count as a tie.
    assert ((whole[1:] - x) ** 2).sum() <= best + 1e-5 * len(x)


@examples(80)
@given(cases(st.one_of(trees(), wide_trees()), wild=False))
def test_a_release_is_whole_consistent_and_near(case: Case) -> None:
    estimate = td.project(case.measurements(), "joint")
    release = td.round_counts(estimate)
    assert release.values.dtype == np.int64
    assert release.values.min() >= 0
    leaves = release.values[case.tree.leaves].T
    np.testing.assert_array_equal(case.tree.aggregate(leaves), release.values.T)
    exact = case.variance == 0
    np.testing.assert_array_equal(release.values[exact], case.truth[exact])
    # A level moves its nodes by less than a unit beyond the move of their parents.
    moved = np.abs(release.values - estimate.values).max(axis=1)
    for families in case.tree.families_down():
        assert (moved[families.children] < 1 + families.spread(moved[families.parents]) + 1e-6).all()


def test_whole_estimates_stay_as_they_are() -> None:
    tree = Tree.from_family_sizes([[3], [2, 1, 4]])
    table = tree.aggregate(np.array([3.0, 0, 7, 1, 1, 0, 2]))
    hair = table + np.array([1, -1, 1, 1, -1, 1, 1, 1, 1, -1, 1]) * 1e-9
    whole = round_top_down(hair[None], tree, SecureSource(), None, None)
    np.testing.assert_array_equal(whole[0], table)


def test_a_million_hairs_below_a_whole_number_add_up() -> None:
    # Floors that forgave each its hair would hand out two units too many.
    n = 1 << 22
    leaves = np.full(n, 1 - 5e-7)
    total = np.rint(leaves.sum())
    assert total == n - 2
    whole = round_top_down(np.array([[total, *leaves]]), Tree.from_family_sizes([[n]]), SeededSource(1), None, None)[0]
    assert whole[0] == whole[1:].sum() == total
    assert set(np.unique(whole[1:])) == {0, 1}


@pytest.mark.parametrize("units", [1, 3])
def test_ties_are_broken_evenly_and_not_by_position(units: int) -> None:
    """Each of 8 equal children gets a unit with chance units/8; 20,000 families, six deviations to either side."""
    families, n = 20_000, 8
    tree = Tree.from_family_sizes([[families], [n] * families])
    leaves = np.full(families * n, units / n)
    x = tree.aggregate(leaves)
    whole = round_top_down(x[None], tree, SeededSource(11), None, None)[0]
    shares = whole[tree.leaves].reshape(families, n).mean(axis=0)
    p = units / n
    deviation = np.sqrt(p * (1 - p) / families)
    assert (np.abs(shares - p) < 6 * deviation).all()
    # A coin that is 10 % off is told apart, on both sides.
    assert (np.abs(shares - 0.9 * p) > 3 * deviation).all()
    assert (np.abs(shares - 1.1 * p) > 3 * deviation).all()


def test_a_root_halfway_goes_both_ways_and_anew_each_time() -> None:
    tree = Tree.from_family_sizes([[2]])
    x = np.array([[2.5, 1.25, 1.25]])
    source = SeededSource(4)
    roots = [int(round_top_down(x, tree, source, None, None)[0, 0]) for _ in range(400)]
    assert 140 < roots.count(2) < 260
    assert set(roots) == {2, 3}


def test_largest_remainders_get_the_units() -> None:
    x = np.array([[4.0, 0.6, 1.7, 0.9, 0.8]])
    whole = round_top_down(x, Tree.from_family_sizes([[4]]), SecureSource(), None, None)
    np.testing.assert_array_equal(whole, [[4, 0, 2, 1, 1]])


def test_refusals() -> None:
    tree = Tree.from_family_sizes([[2]])
    estimate = td.project(measurements(tree, [3.0, 1, 1], 4.0), "joint")
    with pytest.raises(ConfigError, match=r"'famly'.*'family'"):
        td.round_counts(estimate, method="famly")
    with pytest.raises(ValueError, match="may be negative"):
        td.round_counts(td.project(measurements(tree, [3.0, 1, 1], 4.0), "gls"))
    with pytest.raises(ValueError, match=r"'n1'.*1\.5 is not whole"):
        td.round_counts(td.project(measurements(tree, [3.0, 1.5, 1], [1.0, 0.0, 1.0]), "joint"))


def test_a_release_is_fit_only_when_noise_and_ties_are() -> None:
    estimate = td.project(measurements(Tree.from_family_sizes([[2]]), [3.0, 1, 1], 4.0), "joint")
    assert not td.round_counts(estimate).fit_for_release
    secure = td.Estimate(
        **{**{f: getattr(estimate, f) for f in estimate.__dataclass_fields__}, "fit_for_release": True}
    )
    assert td.round_counts(secure).fit_for_release
    assert not td.round_counts(secure, source=SeededSource(1)).fit_for_release


@examples(300)
@given(seed=st.integers(0, 2**32 - 1), off=st.integers(-60, 60), exact=st.booleans())
def test_families_whose_floors_are_units_off_add_up(seed: int, off: int, exact: bool) -> None:
    """Beyond 2^51 sums of float64 are some units off, which no remainder tells: they go somewhere, and not to what is
    exact.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, 5)
    x = np.floor(2.0 ** (rng.random(int(sizes.sum())) * 52))
    starts = np.cumsum(sizes) - sizes
    x[starts] = 2.0**51 + 0.5
    free = None
    if exact:
        free = rng.random(len(x)) < 0.5
        free[starts] = True
    totals = np.add.reduceat(np.floor(x).astype(np.int64), starts) + off
    families = Families(slice(0, len(sizes)), slice(0, len(x)), starts, sizes)
    floored = _Floored.of(families, None, x, totals, free)
    floored.give_units(np.frombuffer(SeededSource(1).read(4 * floored.n_coins), np.uint32))
    whole = floored.base
    np.testing.assert_array_equal(np.add.reduceat(whole, starts), totals)
    assert whole.min() >= 0
    assert np.abs(whole - x).max() <= abs(off) + 1
    if free is not None:
        np.testing.assert_array_equal(whole[~free], x[~free])


@pytest.mark.parametrize("bounds", [False, True])
def test_the_numbers_do_not_depend_on_who_works_on_which_families(
    bounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounding, "_CHILDREN_AT_ONCE", 64)
    rng = np.random.default_rng(3)
    tree = Tree.from_family_sizes([[40], rng.integers(1, 30, 40)])
    x = tree.aggregate(rng.integers(0, 9, tree.n_leaves) / 2.0)[None]
    lower = np.floor(x) * 0.0 if bounds else None
    exact = np.zeros(x.shape, bool) if bounds else None
    alone = round_top_down(x, tree, KeyedSource(bytes(32)), lower, exact)
    with thread_pool(3) as pool:
        np.testing.assert_array_equal(round_top_down(x, tree, KeyedSource(bytes(32)), lower, exact, pool), alone)
    monkeypatch.setattr(rounding, "_CHILDREN_AT_ONCE", 1 << 19)
    np.testing.assert_array_equal(round_top_down(x, tree, KeyedSource(bytes(32)), lower, exact), alone)


@pytest.mark.parametrize("bounds", [False, True])
@pytest.mark.parametrize("at_once", [2, 7, 50])
def test_cells_rounded_together_are_those_rounded_one_by_one_where_nothing_is_tied(bounds: bool, at_once: int) -> None:
    rng = np.random.default_rng(5)
    tree = Tree.from_family_sizes([[4], rng.integers(1, 9, 4)])
    x = tree.aggregate(rng.gamma(0.4, 9.0, (50, tree.n_leaves)))
    lower = np.floor(x / 2.0) if bounds else None
    if lower is not None:  # of a parent at most what its children must have
        lower = np.minimum(lower, tree.aggregate(np.floor(x[:, tree.leaves] / 2.0)))
    exact = np.zeros(x.shape, bool) if bounds else None
    if exact is not None:  # one leaf of every fifth cell is whole already, and stays
        exact[::5, -1] = True
        x[::5] = tree.aggregate(np.where(exact[::5], np.rint(x[::5]), x[::5])[:, tree.leaves])
    one_by_one = round_top_down(x, tree, KeyedSource(bytes(32)), lower, exact)
    together = round_top_down(x, tree, KeyedSource(bytes(32)), lower, exact, at_once=at_once)
    np.testing.assert_array_equal(together, one_by_one)
    np.testing.assert_array_equal(tree.aggregate(together[:, tree.leaves]), together)


def test_ties_of_cells_rounded_together_are_broken_at_random_in_each() -> None:
    halves = np.tile([[1.0, 0.5, 0.5]], (4000, 1))
    whole = round_top_down(halves, Tree.from_family_sizes([[2]]), SeededSource(3), None, None, at_once=300)
    assert (whole.sum(axis=1) == 2).all()
    first = whole[:, 1]
    assert abs(first.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(first))
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 4 / np.sqrt(len(first))
    roots = round_top_down(halves - 0.5, Tree.from_family_sizes([[2]]), SeededSource(4), None, None, at_once=300)[:, 0]
    assert abs(roots.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(roots))
