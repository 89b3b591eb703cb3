from __future__ import annotations

from fractions import Fraction
from itertools import combinations, combinations_with_replacement, pairwise, product
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from support.examples import examples
from topdown.errors import ConfigError
from topdown.research.pmse.classifiers import CART
from topdown.research.pmse.quality import pmse
from topdown.research.pmse.trees import (
    OptimalTree,
    optimal_partition,
    optimal_tree_sensitivity,
    paper_sensitivity,
)


def exact_pmse(leaf: np.ndarray, labels: np.ndarray) -> Fraction:
    """The pMSE of a partition as an exact fraction, from whole numbers."""
    rows = np.bincount(leaf)
    synthetic = np.bincount(leaf[labels == 1], minlength=len(rows))
    n_rows, ones = len(labels), int(synthetic.sum())
    share = Fraction(ones, n_rows)
    parts = (Fraction(int(a), int(m)) - share for m, a in zip(rows, synthetic, strict=True) if m)
    return sum((int(m) * part**2 for m, part in zip(rows[rows > 0], parts, strict=True)), Fraction(0)) / n_rows


def exact_gain(labels: np.ndarray, share: Fraction) -> Fraction:
    """N times what a leaf adds to pMSE."""
    return (int(labels.sum()) - share * len(labels)) ** 2 / Fraction(len(labels)) if len(labels) else Fraction(0)


def best_by_trying(matrix: np.ndarray, labels: np.ndarray, depth: int, share: Fraction) -> Fraction:
    """N times the greatest pMSE of any tree, by trying every one."""
    best = exact_gain(labels, share)
    if depth == 0:
        return best
    for column in matrix.T:
        for cut in np.unique(column)[:-1]:
            sides = (column <= cut, column > cut)
            best = max(best, sum(best_by_trying(matrix[s], labels[s], depth - 1, share) for s in sides))
    return best


@st.composite
def data(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    rows, features = draw(st.integers(2, 9)), draw(st.integers(1, 3))
    values = st.lists(st.integers(0, 4), min_size=rows * features, max_size=rows * features)
    matrix = np.array(draw(values), dtype=float).reshape(rows, features)
    labels = np.array(draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)))
    labels[:2] = (0, 1)
    return matrix, labels


@examples(120)
@given(data(), st.sampled_from([1, 2]))
def test_no_tree_of_the_depth_is_better(given_data: tuple[np.ndarray, np.ndarray], depth: int) -> None:
    matrix, labels = given_data
    leaf, paths = optimal_partition(matrix, labels, depth)
    share = Fraction(int(labels.sum()), len(labels))
    assert exact_pmse(leaf, labels) == best_by_trying(matrix, labels, depth, share) / len(labels)
    assert leaf.max() < len(paths) <= 2**depth
    for number, path in enumerate(paths):
        inside = np.ones(len(labels), dtype=bool)
        for cut, no in path:
            inside &= (matrix[:, cut.feature] > cut.threshold) == no
        assert (inside == (leaf == number)).all()


@pytest.mark.system
def test_depth_2_finds_what_greedy_splits_miss() -> None:
    # Exclusive or: no single cut tells anything apart, two do.
    a = np.array([[0.0, 0.0], [1.0, 1.0]] * 10)
    b = np.array([[0.0, 1.0], [1.0, 0.0]] * 10)
    greedy = pmse(a, b, CART(depth=2, cp=0.0, min_leaf=1, min_split=2), null=None)
    assert pmse(a, b, OptimalTree(1), null=None).value == pytest.approx(0.0)
    best = pmse(a, b, OptimalTree(2), null=None)
    assert best.value == pytest.approx(0.25)
    assert best.value >= greedy.value
    assert best.contributions["part"][0].count(" and ") == 1


def test_optimal_trees_are_at_least_as_good_as_greedy_ones() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        a = pd.DataFrame({"x": rng.normal(size=40), "y": rng.normal(size=40)})
        b = pd.DataFrame({"x": rng.normal(size=40), "y": rng.normal(size=40)})
        values = []
        for depth in (1, 2):
            greedy = pmse(a, b, CART(depth=depth, cp=0.0, min_leaf=1, min_split=2), null=None).value
            values.append((pmse(a, b, OptimalTree(depth), null=None).value, greedy))
            assert values[-1][0] >= greedy - 1e-12
        assert values[0][0] == pytest.approx(values[0][1], rel=1e-9)  # one greedy split is optimal
        assert values[1][0] >= values[0][0]


def test_data_without_a_cut_is_one_leaf() -> None:
    found = pmse(np.ones(5), np.ones(5), OptimalTree(2), null=None)
    assert found.value == 0
    assert found.parameters == 1
    assert found.contributions["part"].tolist() == ["everything"]
    # Neighbouring floats have no number between them; the threshold still divides them.
    low = 1.0
    for _ in range(2):  # the middle of one of the two pairs rounds up
        near = np.nextafter(low, 2.0)
        assert pmse(np.full(5, low), np.full(5, near), OptimalTree(1), null=None).value == 0.25
        third = np.nextafter(near, 2.0)
        assert pmse([low] * 3 + [third] * 3, [near] * 6, OptimalTree(2), null=None).value == 0.25
        low = near


@pytest.mark.parametrize("depth", [1, 2])
def test_thresholds_of_a_resolution_are_its_multiples(depth: int) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(0, 2, (60, 2)), rng.normal(0.5, 2, (60, 2))
    labels = np.repeat([0, 1], 60)
    both = np.vstack([a, b])
    grid = [np.unique(np.floor(column / 0.5) * 0.5) for column in both.T]
    best = Fraction(0)
    for feature in (0, 1):
        for cut in grid[feature]:
            side = both[:, feature] <= cut
            if depth == 1:
                best = max(best, exact_pmse(side.astype(np.int64), labels))
            else:
                ends = [[inside & (both[:, f] <= c) for f in (0, 1) for c in grid[f]] for inside in (side, ~side)]
                gains = [
                    max(
                        exact_gain(labels[e], Fraction(1, 2)) + exact_gain(labels[s & ~e], Fraction(1, 2)) for e in some
                    )
                    for s, some in zip((side, ~side), ends, strict=True)
                ]
                best = max(best, sum(gains, Fraction(0)) / 120)
    found = pmse(a, b, OptimalTree(depth, resolution=0.5), null=None).value
    assert found == pytest.approx(float(best), rel=1e-12)
    assert found < pmse(a, b, OptimalTree(depth), null=None).value
    with pytest.raises(ConfigError, match="resolution 0"):
        OptimalTree(depth, resolution=0)


@pytest.mark.parametrize("depth", [0, 3, None])
def test_other_depths_are_refused(depth: object) -> None:
    with pytest.raises(ConfigError, match="depth 1 or 2"):
        OptimalTree(depth)  # type: ignore[arg-type]


# -- sensitivity -----------------------------------------------------------------------------------------------------


def pmse_by_histogram(original: np.ndarray, synthetic: np.ndarray, cuts: int) -> np.ndarray:
    """N pMSE of the best partition of a line into cuts + 1 intervals: (originals x synthetics), from histograms."""
    places = original.shape[1]
    ones, share = synthetic.sum(axis=1)[0], 0.5
    assert original.sum(axis=1)[0] == ones
    zero = np.pad(original.cumsum(axis=1), ((0, 0), (1, 0)))[:, None]
    one = np.pad(synthetic.cumsum(axis=1), ((0, 0), (1, 0)))[None]
    best = np.zeros((len(original), len(synthetic)))
    for inner in combinations(range(1, places), cuts):
        bounds = (0, *inner, places)
        total = np.zeros_like(best)
        for low, high in pairwise(bounds):
            a = one[..., high] - one[..., low]
            m = a + zero[..., high] - zero[..., low]
            total += np.where(m > 0, (a - share * m) ** 2 / np.maximum(m, 1), 0)
        best = np.maximum(best, total)
    return best


def histograms(n: int, places: int) -> np.ndarray:
    rows = list(combinations_with_replacement(range(places), n))
    return np.array([np.bincount(row, minlength=places) for row in rows])


@pytest.mark.parametrize(("n", "cuts"), [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 3), (3, 2)])
def test_the_sensitivity_is_the_largest_change_over_all_small_data_sets(n: int, cuts: int) -> None:
    """All data sets of n records on a line, all synthetic ones, all substitutions: 2 n + 1 places hold every order."""
    places = 2 * n + 1
    every = histograms(n, places)
    value = pmse_by_histogram(every, every, cuts) / (2 * n)
    index = {tuple(row): k for k, row in enumerate(every.tolist())}
    largest = 0.0
    for k, row in enumerate(every.tolist()):
        for gone, come in product(range(places), repeat=2):
            if row[gone] and gone != come:
                other = row.copy()
                other[gone] -= 1
                other[come] += 1
                largest = max(largest, float(np.abs(value[k] - value[index[tuple(other)]]).max()))
    assert largest == pytest.approx(float(optimal_tree_sensitivity(n)), rel=1e-12)
    assert largest < float(paper_sensitivity(n))


def test_the_enumeration_s_values_are_the_trees_own() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        a, b = rng.integers(0, 6, 4), rng.integers(0, 6, 4)
        h = [np.bincount(one, minlength=6)[None] for one in (a, b)]
        for depth, cuts in ((1, 1), (2, 3)):
            value = pmse(a.astype(float), b.astype(float), OptimalTree(depth), null=None).value
            assert value == pytest.approx(pmse_by_histogram(*h, cuts)[0, 0] / 8, abs=1e-12)


@given(st.integers(1, 6), st.integers(1, 6))
def test_the_sensitivity_with_another_number_of_synthetic_records_is_attained(n: int, s: int) -> None:
    # One original record leaves the leaf that holds every synthetic one.
    labels = np.repeat([0, 1], [n, s])
    before = exact_pmse(np.r_[[1], np.zeros(n - 1, int), np.ones(s, int)], labels)
    after = exact_pmse(np.r_[np.zeros(n, int), np.ones(s, int)], labels)
    assert after - before == optimal_tree_sensitivity(n, s)


def test_the_bounds_and_what_is_no_number_of_records() -> None:
    assert optimal_tree_sensitivity(4) == Fraction(1, 10)
    assert paper_sensitivity(4) == Fraction(1, 4)
    for wrong in (0, 1.5, "3"):
        with pytest.raises(ConfigError, match="n "):
            optimal_tree_sensitivity(wrong)  # type: ignore[arg-type]
