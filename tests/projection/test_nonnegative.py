"""Non-negative projections: families by their optimality conditions, the clamp against NNLS, fractions and limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.places import GOLDEN
from support.trees import Case, cases, exact_least_squares, nnls_tree, trees, wide_trees
from topdown.geography.tree import FloatArray, Tree
from topdown.projection.cells.nonnegative import downward_nonnegative, project_families, project_tree
from topdown.projection.invariants import settle


def by_sorting(y: FloatArray, total: float) -> FloatArray:
    """The projection on a simplex by the sort of Held, Wolfe, Crowder; one family, equal weights."""
    if total == 0:
        return np.zeros(len(y))
    ordered = np.sort(y)[::-1]
    taus = (np.cumsum(ordered) - total) / np.arange(1, len(y) + 1)
    return np.maximum(y - taus[np.flatnonzero(ordered > taus)[-1]], 0.0)


@examples(100)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(0, 2**32 - 1), st.booleans())
def test_families_equal_the_sort(sizes: list[int], seed: int, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    y = rng.laplace(size=sum(sizes)) * 10 + rng.choice([0.0, 50.0, -200.0], size=sum(sizes))
    totals = rng.poisson(rng.choice([0.0, 1.0, 1e5], size=len(sizes))).astype(float)
    y = np.rint(y) if whole else y
    x = project_families(y, totals, np.array(sizes))
    ends = np.cumsum(sizes)
    for end, size, total in zip(ends, sizes, totals, strict=True):
        family = slice(end - size, end)
        np.testing.assert_allclose(x[family], by_sorting(y[family], total), atol=1e-9, rtol=1e-12)


@examples(100)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_weighted_families_are_optimal(sizes: list[int], seed: int) -> None:
    """x = max(0, y - v tau) with one tau a family, and the sums: necessary and sufficient."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    v = 10.0 ** rng.uniform(-3, 4, n)
    y = np.sqrt(v) * rng.laplace(size=n) * 3
    totals = np.where(rng.random(len(sizes)) < 0.3, 0.0, rng.exponential(100.0, len(sizes)))
    x = project_families(y, totals, np.array(sizes), v)
    starts = np.cumsum(sizes) - sizes
    np.testing.assert_allclose(np.add.reduceat(x, starts), totals, rtol=1e-12, atol=1e-12)
    assert x.min() >= 0
    for start, size in zip(starts, sizes, strict=True):
        at, own, var = x[start : start + size], y[start : start + size], v[start : start + size]
        taus = (own - at) / var
        if at.sum() > 0:
            tau = taus[at > 0].mean()
            np.testing.assert_allclose(np.maximum(0, own - var * tau), at, atol=1e-9 * np.sqrt(var.max()))


def test_a_child_without_variance_keeps_its_value() -> None:
    x = project_families(np.array([5.0, 9, 1]), np.array([8.0]), np.array([3]), np.array([0.0, 1, 3]))
    np.testing.assert_allclose(x, [5, 3, 0])


@pytest.mark.parametrize("total", [0.0, 1e-300, 5e-17, 1.0, 2.0**52])
@pytest.mark.parametrize("y", [[-5.0], [-1e9, -1e9], [0.0, 0.0, 0.0], [1e15, 1.0, -1e15]])
def test_extreme_families_add_up(total: float, y: list[float]) -> None:
    x = project_families(np.array(y), np.array([total]), np.array([len(y)]))
    assert x.min() >= 0
    assert x.sum() == pytest.approx(total, rel=1e-12, abs=1e-16 * max(map(abs, y)))


def test_a_total_of_zero_gives_zeros_and_nothing_near() -> None:
    rng = np.random.default_rng(4)
    v = 10.0 ** rng.uniform(-3, 3, 4000)
    y = 1e6 * rng.normal(size=4000)
    np.testing.assert_array_equal(project_families(y, np.zeros(500), np.full(500, 8), v), np.zeros(4000))


def test_sums_keep_their_digits_under_large_values() -> None:
    y = 1e12 + np.random.default_rng(4).normal(size=4000)
    x = project_families(y, np.full(500, 1.0), np.full(500, 8))
    np.testing.assert_allclose(x.reshape(500, 8).sum(axis=1), 1.0, rtol=1e-12)


@examples(150)
@given(cases(st.one_of(trees(), wide_trees()), exact=False, unmeasured_leaves=False))
def test_the_clamp_equals_a_dense_quadratic_program(case: Case) -> None:
    values, variance = np.nan_to_num(case.values.T), case.variance.T
    x = project_tree(values, variance, case.tree)
    for row in range(len(x)):
        np.testing.assert_allclose(x[row], nnls_tree(values[row], variance[row], case.tree), atol=1e-7 * case.noise)


@examples(60)
@given(cases(trees(max_leaves=8), max_cells=1))
def test_the_clamp_equals_fractions_on_its_support(case: Case) -> None:
    """Given the leaves at 0 the rest is least squares; in fractions that decides the signs that make it optimal."""
    values, variance = settle(np.nan_to_num(case.values.T), case.variance.T, case.tree, nonnegative=True)
    tree = case.tree
    x = project_tree(values, variance, tree)[0]
    zero = frozenset(k for k in range(tree.n_leaves) if x[tree.leaves][k] == 0 and variance[0, tree.leaves][k] != 0)
    expected = np.array([float(k) for k in exact_least_squares(values[0], variance[0], tree, zero)])
    np.testing.assert_allclose(x, expected, atol=1e-9 * max(case.noise, np.abs(values).max()))


@examples(60)
@given(cases(trees(max_leaves=12), max_cells=2))
def test_unmeasured_leaves_are_the_limit_of_large_variances(case: Case) -> None:
    values, variance = settle(np.nan_to_num(case.values.T), case.variance.T, case.tree, nonnegative=True)
    leaves = case.tree.leaves
    wide = variance.copy()
    wide[..., leaves] = np.where(np.isinf(variance[..., leaves]), 1e12 * case.noise**2, variance[..., leaves])
    limit = project_tree(np.where(np.isinf(variance), 0.0, values), wide, case.tree)
    scale = max(case.noise, float(np.abs(values).max()))
    np.testing.assert_allclose(project_tree(values, variance, case.tree), limit, atol=1e-5 * scale)


@examples(40)
@given(cases(trees(max_leaves=20)))
def test_nearly_exact_is_the_limit_of_small_variances(case: Case) -> None:
    values, variance = settle(np.nan_to_num(case.values.T), case.variance.T, case.tree, nonnegative=True)
    if np.isinf(variance[..., case.tree.leaves]).any():
        return
    least = float(variance.min(where=variance > 0, initial=1.0))
    near = project_tree(values, np.where(variance == 0, 1e-9 * least, variance), case.tree)
    scale = max(case.noise, float(np.abs(values).max()))
    np.testing.assert_allclose(project_tree(values, variance, case.tree), near, atol=1e-5 * scale)


def test_unmeasured_siblings_share_in_proportion_to_their_open_leaves() -> None:
    # 100 less the measured 10 goes to siblings with 1 and 3 unmeasured leaves below them, the second with 8 known.
    tree = Tree.from_family_sizes([[3]])
    values, variance = np.array([[100.0, 10, 0, 8]]), np.array([[1.0, 1, np.inf, np.inf]])
    x = downward_nonnegative(values, variance, tree, None, np.array([[0.0, 0, 1, 3]]))
    np.testing.assert_allclose(x, [[100, 10, 20.5, 69.5]])
    np.testing.assert_allclose(downward_nonnegative(values, variance, tree), [[100, 10, 41, 49]])


def test_measured_siblings_that_exceed_the_total_leave_nothing_to_the_unmeasured() -> None:
    tree = Tree.from_family_sizes([[3]])
    x = downward_nonnegative(np.array([[10.0, 8, 6, 0]]), np.array([[1.0, 1, 1, np.inf]]), tree)
    np.testing.assert_allclose(x, [[10, 6, 4, 0]])


@pytest.mark.parametrize("row", GOLDEN["S2_topdown_two_level_exact"]["rows"])
def test_two_levels_exactly_by_enumeration(row: dict[str, object]) -> None:
    """Published bias and variance of a 2 x 2 tree with a public total: every noise of any weight, projected."""
    counties, eps = np.array(row["tree"], float), float(row["eps_per_level"])  # type: ignore[arg-type]
    reach = int(28 / eps)
    noise = np.arange(-reach, reach + 1)
    a = np.exp(-eps)
    mass = (1 - a) / (1 + a) * a ** np.abs(noise)
    states = counties.sum(axis=1)
    # A pair's projection on a known sum depends on the difference of its noises alone.
    differences = np.arange(-2 * reach, 2 * reach + 1)
    chance = np.convolve(mass, mass)
    pairs = np.full(len(differences), 2)

    def pair(first: float, second: float, totals: FloatArray, gaps: FloatArray) -> FloatArray:
        y = np.stack([np.full(len(totals), first) + gaps, np.full(len(totals), second)], axis=1)
        return project_families(y.reshape(-1), totals, np.full(len(totals), 2)).reshape(-1, 2)

    above = pair(*states, np.full(len(pairs), states.sum()), differences)
    tolerance = GOLDEN["S2_topdown_two_level_exact"]["abs_tol"]
    bias = chance @ above - states
    np.testing.assert_allclose(bias, row["state_bias"], atol=tolerance)
    np.testing.assert_allclose(chance @ above**2 - (chance @ above) ** 2, row["state_var"], atol=tolerance)
    both = np.outer(chance, chance).reshape(-1)
    for state in range(2):
        totals = np.repeat(above[:, state], len(differences))
        below = pair(*counties[state], totals, np.tile(differences, len(differences)))
        mean = both @ below
        part = slice(2 * state, 2 * state + 2)
        np.testing.assert_allclose(mean - counties[state], row["county_bias"][part], atol=tolerance)  # type: ignore[index]
        np.testing.assert_allclose(both @ below**2 - mean**2, row["county_var"][part], atol=tolerance)  # type: ignore[index]


def test_rounding_does_not_let_dropped_children_in_again() -> None:
    """Beside a number of 6e13 the last excess rounds to 0; without care the threshold fell back with it."""
    values = np.array([0.0003745553403052808, 2135.849346163522, 59620291782536.0, 1525.1351698514932])
    total = np.array([59620291782536.0])
    x = project_families(values, total, np.array([4]), np.array([1e-6, 1e6, 1e-6, 1e6]))
    assert x.sum() == pytest.approx(total[0], abs=0.05)
    assert x[3] == 0.0
    assert x[1] < 0.05
