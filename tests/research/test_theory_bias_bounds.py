"""Lemma 2 and Theorem 4: L1 balls and the bounds on the bias."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.places import GOLDEN
from topdown.errors import ConfigError
from topdown.research.theory import (
    bias_bound,
    l1_ball_probability,
    l1_ball_tail,
    nonnegative_sum_projection,
    nonnegative_sum_projection_laplace,
    sharp_bias_bound,
    tree_bias_bound,
)

BINARY = [-1, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("row", GOLDEN["S2_l1_ball_laplace"]["rows"], ids=lambda r: f"n={r['n']}")
def test_laplace_ball_equals_the_reference(row: dict) -> None:
    assert l1_ball_tail(row["n"], row["r"], row["lam"]) == pytest.approx(row["tail"], rel=1e-10)
    assert l1_ball_probability(row["n"], row["r"], row["lam"]) == pytest.approx(row["prob"], rel=1e-10)


@pytest.mark.parametrize("row", GOLDEN["S2_l1_ball_geometric"]["rows"], ids=lambda r: f"n={r['n']}")
def test_geometric_ball_equals_the_reference(row: dict) -> None:
    scale = 1.0 / row["eps"]
    assert l1_ball_tail(row["n"], row["r"], scale, law="geometric") == pytest.approx(row["tail"], rel=1e-8)
    assert l1_ball_probability(row["n"], row["r"], scale, law="geometric") == pytest.approx(row["prob"], rel=1e-8)


@pytest.mark.parametrize(("n", "scale"), [(1, 1.0), (2, 2.0), (3, 0.4), (6, 1.5)])
def test_geometric_ball_equals_plain_convolution(n: int, scale: float) -> None:
    k = np.arange(math.ceil(60 * scale) + 1)
    size = np.where(k == 0, 1.0, 2.0) * np.exp(-k / scale) * math.tanh(0.5 / scale)
    law = np.ones(1)
    for _ in range(n):
        law = np.convolve(law, size)
    for r in (0, 1, 2, 5, 11):
        assert l1_ball_tail(n, r, scale, "geometric") == pytest.approx(law[r + 1 :].sum(), rel=1e-9)
        assert l1_ball_probability(n, r, scale, "geometric") == pytest.approx(law[: r + 1].sum(), rel=1e-12)
        # between whole numbers nothing changes
        assert l1_ball_tail(n, r + 0.75, scale, "geometric") == l1_ball_tail(n, r, scale, "geometric")
        assert l1_ball_tail(n, Fraction(4 * r + 1, 4), scale, "geometric") == l1_ball_tail(n, r, scale, "geometric")


@pytest.mark.parametrize("scale", [0.5, 3.0, 20.0])
def test_geometric_ball_is_a_power_times_a_polynomial_of_the_radius(scale: float) -> None:
    """The family of polynomials after Lemma 2: the tail is a^(r+1) p_n(r)/(1+a)^n, p_1 = 2, of degree n - 1 in r."""
    a, radii = math.exp(-1 / scale), np.arange(40)
    polynomial = np.full(radii.shape, 2.0)
    for n in range(1, 7):
        tail = a ** (radii + 1) * polynomial / (1 + a) ** n
        found = [l1_ball_tail(n, int(r), scale, "geometric") for r in radii]
        assert found == pytest.approx(tail, rel=1e-9)
        assert np.diff(polynomial, n) == pytest.approx(0.0, abs=1e-6 * polynomial.max())
        below = np.concatenate([[0.0], np.cumsum(polynomial)[:-1]])
        polynomial = 2 * (1 + a) ** n + (1 - a) * (polynomial + 2 * below)


@pytest.mark.parametrize("law", ["laplace", "geometric"])
def test_ball_at_the_ends(law: str) -> None:
    assert l1_ball_tail(3, -1, 1.0, law) == 1.0
    assert l1_ball_probability(3, -1, 1.0, law) == 0.0
    assert l1_ball_tail(3, math.inf, 1.0, law) == 0.0
    assert 0.0 < l1_ball_tail(30, 5000, 10.0, law) < 1e-150  # far below 1 - gammainc
    assert l1_ball_tail(3, 1e300, 10.0, law) == 0.0
    assert l1_ball_probability(3, 1e300, 10.0, law) == pytest.approx(1.0, rel=1e-14)


@given(n=st.integers(1, 60), radius=st.floats(0.0, 500.0), scale=st.floats(0.1, 30.0))
@examples(60)
def test_ball_and_its_complement_add_up(n: int, radius: float, scale: float) -> None:
    for law in ("laplace", "geometric"):
        inside, outside = l1_ball_probability(n, radius, scale, law), l1_ball_tail(n, radius, scale, law)
        assert inside + outside == pytest.approx(1.0, rel=1e-12)
        assert l1_ball_tail(n + 1, radius, scale, law) >= outside * (1.0 - 1e-12)


def test_ball_holds_the_share_of_draws_it_says() -> None:
    generator = np.random.default_rng(11)
    inside = np.mean(np.abs(generator.laplace(scale=2.0, size=(200_000, 4))).sum(axis=1) <= 9.0)
    expected = l1_ball_probability(4, 9.0, 2.0)
    error = math.sqrt(expected * (1.0 - expected) / 200_000)
    assert abs(inside - expected) < 4.0 * error
    for wrong in (1.8, 2.2):
        assert abs(inside - l1_ball_probability(4, 9.0, wrong)) > 6.0 * error


@pytest.mark.parametrize("row", GOLDEN["S2_theorem4_bound"]["rows"], ids=lambda r: f"n={r['n']}")
def test_theorem_4_equals_the_reference(row: dict) -> None:
    values = [row["x_min"]] + [(row["total"] - row["x_min"]) / (row["n"] - 1)] * (row["n"] - 1)
    assert sum(values) - min(values) == row["C"]
    assert bias_bound(values, row["lam"]) == pytest.approx(row["bound"], rel=1e-9)
    assert bias_bound(np.array(values[::-1]), scale=row["lam"], law="laplace") == pytest.approx(row["bound"], rel=1e-9)


@given(values=st.lists(st.integers(0, 25), min_size=2, max_size=6), epsilon=st.sampled_from([0.5, 1.0, 3.0]))
@examples(25)
def test_the_exact_bias_is_below_both_bounds(values: list[int], epsilon: float) -> None:
    bias = np.abs(nonnegative_sum_projection(values, epsilon).bias).max()
    assert bias <= sharp_bias_bound(values, 1.0 / epsilon, law="geometric") + 1e-11
    assert bias <= bias_bound(values, 1.0 / epsilon, law="geometric") + 1e-11


def test_the_sharp_bound_is_sharp_and_still_a_bound() -> None:
    values = [8, 9]
    bias = float(np.abs(nonnegative_sum_projection_laplace(values, 1.0).bias).max())
    sharp = sharp_bias_bound(values, 1.0)
    assert bias <= sharp < 0.01 * bias_bound(values, 1.0)
    # n = 2: C sum 2 P(e > x) = 9 sum (1 + x) exp(-2 x)
    assert sharp == pytest.approx(9.0 * (9.0 * math.exp(-16.0) + 10.0 * math.exp(-18.0)), rel=1e-12)


def test_an_only_child_and_an_empty_family_have_no_bias() -> None:
    for bound in (bias_bound, sharp_bias_bound):
        assert bound([7], 3.0) == 0.0
        assert bound([0, 0, 0], 3.0) == 0.0


def largest_tree_error(values: np.ndarray, parent: list[int]) -> float:
    """max |v_u - x_u| over consistent non-negative tables: a linear form's maximum is at a table with one leaf."""
    leaves = [i for i in range(len(parent)) if i not in parent]
    worst = 0.0
    for leaf in leaves:
        v = np.zeros(len(parent))
        node = leaf
        while node >= 0:
            v[node] = values[0]
            node = parent[node]
        worst = max(worst, float(np.abs(v - values).max()))
    return worst


def test_tree_bound_with_a_public_root() -> None:
    values = np.array([30, 10, 20, 4, 6, 8, 12])
    bound = tree_bias_bound(values, BINARY, 2.0, root_fixed=True)
    assert bound.constant == largest_tree_error(values, BINARY) == 26.0
    assert (bound.radius, bound.dimension, bound.void) == (4.0, 6, False)
    assert float(bound) == pytest.approx(26.0 * l1_ball_tail(6, 4, 2.0), rel=1e-14)
    geometric = tree_bias_bound(values, BINARY, 2.0, "geometric", root_fixed=True)
    assert geometric.tail == pytest.approx(l1_ball_tail(6, 4, 2.0, "geometric"), rel=1e-14)
    # different scales: the widest bounds them all
    mixed = tree_bias_bound(values, BINARY, [1, 1, 1, 2, 1, 1, 1], root_fixed=True)
    assert mixed.bound == bound.bound


@given(data=st.data())
@examples(30)
def test_tree_constant_is_the_largest_error_that_is_possible(data: st.DataObject) -> None:
    leaves = np.array(data.draw(st.lists(st.integers(0, 40), min_size=4, max_size=4)))
    values = np.concatenate(([leaves.sum()], leaves.reshape(2, 2).sum(axis=1), leaves))
    assert tree_bias_bound(values, BINARY, 1.0, root_fixed=True).constant == largest_tree_error(values, BINARY)


def test_nodes_that_only_children_tie_to_the_root_are_left_out() -> None:
    bound = tree_bias_bound([9, 9, 4, 5], [-1, 0, 1, 1], 1.0, root_fixed=True)
    assert (bound.constant, bound.dimension, bound.radius) == (5.0, 2, 4.0)
    assert bound.bound == pytest.approx(bias_bound([4, 5], 1.0), rel=1e-14)
    chain = tree_bias_bound([9, 9, 9], [-1, 0, 1], 1.0, root_fixed=True)
    assert (chain.bound, chain.void) == (0.0, False)


def test_a_noisy_root_makes_the_bound_void_and_it_says_so() -> None:
    bound = tree_bias_bound([30, 10, 20, 4, 6, 8, 12], BINARY, 2.0, root_fixed=False)
    assert bound.void
    assert math.isinf(bound.bound)
    assert math.isinf(float(bound))
    assert "void" in bound.explanation
    assert "root" in bound.explanation


@pytest.mark.parametrize("function", [bias_bound, sharp_bias_bound])
@pytest.mark.parametrize("values", [[], [1, -2], [1, math.nan], [math.inf, 1], [[1, 2], [3, 4]], ["a", "b"]], ids=repr)
def test_values_that_are_no_counts_are_refused(function: object, values: object) -> None:
    with pytest.raises(ConfigError):
        function(values, 1.0)  # type: ignore[operator]


def test_arguments_that_cannot_be_meant_are_named() -> None:
    for bad in itertools.product([bias_bound, sharp_bias_bound], [0.0, -1.0, math.nan, 1e-300, 1e300, 10**400]):
        with pytest.raises(ConfigError, match="scale"):
            bad[0]([1, 2], bad[1])
        for law in ("laplace", "geometric"):
            with pytest.raises(ConfigError, match="scale"):
                td.theory.projected_variance(3, bad[1], law)
    with pytest.raises(ConfigError, match="gauss"):
        bias_bound([1, 2], 1.0, law="gauss")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="nan"):
        l1_ball_tail(3, math.nan, 1.0)
    with pytest.raises(ConfigError, match="add up to"):
        tree_bias_bound([10, 4, 5], [-1, 0, 0], 1.0, root_fixed=True)
    with pytest.raises(ConfigError, match="root"):
        tree_bias_bound([10, 4, 6], [-1, -1, 0], 1.0, root_fixed=True)
