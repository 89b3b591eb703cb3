"""Global sensitivities against the reference table and against brute force on small data sets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from support.places import GOLDEN
from topdown.errors import ConfigError
from topdown.privacy import sensitivity as s

BOTH = ("substitute", "add-remove")


@pytest.mark.parametrize("row", GOLDEN["S0_sensitivities"]["rows"])
def test_reference_rows(row):
    tolerance = GOLDEN["S0_sensitivities"]["rel_tol"]
    if row["stat"] == "pooled_variance":
        got = {
            "def1": s.pooled_variance_sensitivity(row["cells"], 0, row["R"], neighbours="substitute"),
            "def2_exact": s.pooled_variance_sensitivity(row["cells"], 0, row["R"]),
            "def2_paper": s.pooled_variance_sensitivity(row["cells"], 0, row["R"], form="printed"),
        }
    else:
        width = row.get("R")
        function = {
            "mean": lambda how: s.mean_sensitivity(row["n"], -1, width - 1, neighbours=how),
            "proportion": lambda how: s.proportion_sensitivity(row["n"], neighbours=how),
            "variance_ddof0": lambda how: s.variance_sensitivity(row["n"], 2, 2 + width, ddof=0, neighbours=how),
        }[row["stat"]]
        got = {"def1": function("substitute"), "def2": function("add-remove")}
    for name, value in got.items():
        if row[name] is not None:
            assert abs(value - row[name]) <= tolerance * row[name]


def test_covariance_release_reference():
    for row in GOLDEN["S0_covariance_release"]["rows"]:
        n, r1, r2, epsilon = row["n"], row["range1"], row["range2"], row["eps_each"]
        assert s.largest_variance(n, 0, r1) == pytest.approx(row["var1_bounds"][1], rel=1e-12)
        assert s.largest_variance(n, 0, r2) == pytest.approx(row["var2_bounds"][1], rel=1e-12)
        assert s.largest_variance(n, 0, r1, form="printed") == pytest.approx(row["var1_bound_paper"], rel=1e-12)
        assert s.variance_sensitivity(n, 0, r1) / epsilon == pytest.approx(row["scale_var1"], rel=1e-12)
        assert s.covariance_sensitivity(n, (0, r1), (0, r2)) / epsilon == pytest.approx(row["scale_cov"], rel=1e-12)


def largest_change(statistic, n, values, neighbours):
    """Over all data sets of n records from ``values``: change one record, or drop it."""
    worst = 0.0
    for rest in itertools.combinations_with_replacement(values, n - 1):
        here = [statistic([v, *rest]) for v in values]
        if neighbours == "substitute":
            worst = max(worst, max(np.max(np.abs(np.subtract(a, b)).sum()) for a in here for b in here))
        else:
            without = statistic(list(rest))
            worst = max(worst, max(np.abs(np.subtract(a, without)).sum() for a in here))
    return worst


@pytest.mark.parametrize("neighbours", BOTH)
@pytest.mark.parametrize("n", [3, 4, 5])
def test_statistics_of_one_variable_by_brute_force(n, neighbours):
    low, high = -1.0, 2.0
    grid = np.linspace(low, high, 7)
    for statistic, expected in (
        (np.mean, s.mean_sensitivity(n, low, high, neighbours=neighbours)),
        (np.var, s.variance_sensitivity(n, low, high, ddof=0, neighbours=neighbours)),
        (lambda x: np.var(x, ddof=1), s.variance_sensitivity(n, low, high, neighbours=neighbours)),
        (np.sum, s.sum_sensitivity(low, high, neighbours=neighbours)),
        (lambda x: np.mean(np.array(x) > 0), s.proportion_sensitivity(n, neighbours=neighbours)),
        (lambda x: np.sum(np.array(x) > 0), s.count_sensitivity(neighbours=neighbours)),
    ):
        assert largest_change(statistic, n, grid, neighbours) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("neighbours", BOTH)
def test_vectors_of_counts_and_proportions_by_brute_force(neighbours):
    def counts(x):
        return np.bincount(x, minlength=3).astype(float)

    for n in (2, 3, 4):
        worst = largest_change(counts, n, range(3), neighbours)
        assert worst == s.histogram_sensitivity(neighbours=neighbours)
        worst = largest_change(lambda x: counts(x) / len(x), n, range(3), neighbours)
        assert worst == pytest.approx(s.proportion_vector_sensitivity(n, neighbours=neighbours), rel=1e-12)
        fixed = largest_change(lambda x, n=n: counts(x) / n, n, range(3), "add-remove")
        assert fixed == pytest.approx(s.proportion_vector_sensitivity(n, form="printed"), rel=1e-12)
    assert s.proportion_vector_sensitivity(4, neighbours="substitute", form="printed") == 0.5
    assert s.histogram_sensitivity(norm=2) == 1.0
    assert s.histogram_sensitivity(neighbours="substitute", norm=2) == math.sqrt(2)


@pytest.mark.parametrize("neighbours", BOTH)
@pytest.mark.parametrize("n", [3, 4, 5])
def test_covariance_by_brute_force(n, neighbours):
    # The covariance is linear in every coordinate of every record: corners are enough.
    corners = list(itertools.product((0.0, 2.0), (-1.0, 0.5)))
    for ddof in (0, 1):

        def covariance(records, ddof=ddof):
            return np.cov(np.array(records).T, ddof=ddof)[0, 1]

        expected = s.covariance_sensitivity(n, (0, 2), (-1, 0.5), ddof=ddof, neighbours=neighbours)
        assert largest_change(covariance, n, corners, neighbours) == pytest.approx(expected, rel=1e-12)


def pooled(cells):
    """Sum over cells of the cross products about the cell means, over n - K, for cells of (x, y) pairs."""
    total = sum(((c - c.mean(axis=0)).prod(axis=1)).sum() for c in cells)
    return total / (sum(len(c) for c in cells) - len(cells))


def largest_pooled_change(sizes, records, neighbours):
    worst = 0.0
    choices = [list(itertools.combinations_with_replacement(records, m)) for m in sizes]
    for drawn in itertools.product(*choices):
        cells = [np.array(c) for c in drawn]
        here = pooled(cells)
        for j, cell in enumerate(cells):
            for i in range(len(cell)):
                if neighbours == "add-remove":
                    other = [*cells[:j], np.delete(cell, i, axis=0), *cells[j + 1 :]]
                    worst = max(worst, abs(pooled(other) - here))
                    continue
                for record in records:
                    changed = cell.copy()
                    changed[i] = record
                    worst = max(worst, abs(pooled([*cells[:j], changed, *cells[j + 1 :]]) - here))
    return worst


@pytest.mark.parametrize("neighbours", BOTH)
@pytest.mark.parametrize("sizes", [[2, 2], [3, 2], [4, 2], [3, 3], [2, 2, 2]])
def test_pooled_statistics_by_brute_force(sizes, neighbours):
    same = [(v, v) for v in (0.0, 0.5, 1.0)]
    expected = s.pooled_variance_sensitivity(sizes, 0, 1, neighbours=neighbours)
    assert largest_pooled_change(sizes, same, neighbours) == pytest.approx(expected, rel=1e-12)
    if sum(sizes) <= 5:
        corners = list(itertools.product((0.0, 2.0), (0.0, 3.0)))
        expected = s.pooled_covariance_sensitivity(sizes, (0, 2), (0, 3), neighbours=neighbours)
        assert largest_pooled_change(sizes, corners, neighbours) == pytest.approx(expected, rel=1e-12)


def test_the_printed_pooled_forms_are_upper_bounds():
    for sizes in ([2, 2], [2, 2, 2], [3, 2], [5, 2, 2], [6, 4], [10, 20, 30], [4]):
        exact = s.pooled_variance_sensitivity(sizes, 0, 1)
        printed = s.pooled_variance_sensitivity(sizes, 0, 1, form="printed")
        assert (printed > exact * 1.01) if set(sizes) == {2} else (printed == exact)
        exact = s.pooled_covariance_sensitivity(sizes, (0, 1), (0, 1))
        assert s.pooled_covariance_sensitivity(sizes, (0, 1), (0, 1), form="printed") >= exact * (1 - 1e-12)


def test_a_clipped_sum_brings_its_whole_value_along():
    assert s.sum_sensitivity(6, 10) == 10.0
    assert s.sum_sensitivity(6, 10, neighbours="substitute") == 4.0
    assert s.sum_sensitivity(-7, 3) == 7.0
    assert s.count_sensitivity() == 1.0


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_the_largest_variance_by_brute_force(n):
    grid = (0.0, 1.0, 2.0)
    for ddof in (0, 1):
        worst = max(np.var(x, ddof=ddof) for x in itertools.combinations_with_replacement(grid, n))
        assert s.largest_variance(n, 0, 2, ddof=ddof) == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize("bounds", [(0, math.inf), (-math.inf, 0), (-math.inf, math.inf)])
@pytest.mark.parametrize("neighbours", ["add-remove", "substitute"])
def test_a_sum_without_a_bound_has_an_infinite_sensitivity(
    bounds: tuple[float, float], neighbours: s.Neighbours
) -> None:
    assert s.sum_sensitivity(*bounds, neighbours=neighbours) == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: s.mean_sensitivity(1, 0, 1), "n 1"),
        (lambda: s.mean_sensitivity(2.5, 0, 1), r"n 2\.5"),
        (lambda: s.mean_sensitivity(5, 1, 1), "lower < upper"),
        (lambda: s.sum_sensitivity(math.inf, math.inf), "finite"),
        (lambda: s.sum_sensitivity(0, math.nan), "finite"),
        (lambda: s.mean_sensitivity(5, 0, math.inf), "finite"),
        (lambda: s.sum_sensitivity(0, 1, neighbours="swap"), "neighbours 'swap'"),
        (lambda: s.variance_sensitivity(2, 0, 1), "3 records"),
        (lambda: s.variance_sensitivity(5, 0, 1, ddof=2), "ddof 2"),
        (lambda: s.pooled_variance_sensitivity([2, 1], 0, 1), "n 1"),
        (lambda: s.pooled_variance_sensitivity([2], 0, 1), "must be 2 or more"),
        (lambda: s.pooled_variance_sensitivity([], 0, 1, neighbours="substitute"), "must be 1 or more"),
        (lambda: s.pooled_covariance_sensitivity([3, 3], (0, 1), (0, 1), form="exakt"), "form 'exakt'"),
        (lambda: s.histogram_sensitivity(norm=3), "norm 3"),
        (lambda: s.sum_sensitivity(0, 10**400), r"bounds \[0, a whole number of .* bits\]: give finite"),
        (lambda: s.sum_sensitivity(None, 1), r"bounds \[None, 1\]: give finite"),
        (lambda: s.mean_sensitivity(10, None, 1), r"bounds \[None, 1\]: give finite"),
        (lambda: s.mean_sensitivity(10, 0, [1]), "give finite"),
        (lambda: s.mean_sensitivity(10**400, 0, 1), "n a whole number of .* bits: give at most 1e150"),
        (lambda: s.variance_sensitivity(10**400, 0, 1), "at most 1e150"),
        (lambda: s.covariance_sensitivity(10**200, (0, 1), (0, 1), ddof=0), "at most 1e150"),
        (lambda: s.pooled_variance_sensitivity([10**400, 3], 0, 1), "at most 1e150"),
        (lambda: s.largest_variance(10**400, 0, 1), "at most 1e150"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_squares_of_wide_bounds_are_infinite():
    assert s.largest_variance(10, 0, 1e200) == s.variance_sensitivity(10, 0, 1e200) == math.inf
    assert s.pooled_variance_sensitivity([10, 10], 0, 1e200) == math.inf
    assert s.variance_sensitivity(10**150, 0, 1, ddof=0) == pytest.approx(1e-150)
