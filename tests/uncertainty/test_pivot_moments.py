"""The pivot's moments in two passes, against the coefficients of the whole linear map."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.trees import trees, wide_trees
from topdown.geography.tree import FloatArray, Tree
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Law
from topdown.projection.cells.equality import least_squares, least_squares_variance
from topdown.uncertainty.laws.error_moments import main_terms, moments
from topdown.uncertainty.laws.known_noise import fourth_cumulant


def coefficients(variance: FloatArray, tree: Tree) -> FloatArray:
    """(nodes x nodes): what every node's estimate is of every measurement."""
    return least_squares(np.eye(tree.n_nodes), np.broadcast_to(variance, (tree.n_nodes,) * 2), tree).T


@examples(80)
@given(st.one_of(trees(max_leaves=40), wide_trees()), st.integers(0, 2**32 - 1), st.booleans())
def test_moments_are_those_of_the_linear_map(tree: Tree, seed: int, holes: bool) -> None:
    rng = np.random.default_rng(seed)
    variance = 10.0 ** rng.uniform(-1, 2, tree.n_nodes)
    inner = rng.random(tree.n_nodes) < 0.3
    inner[tree.leaves] = False
    if holes:
        variance[inner] = np.where(rng.random(inner.sum()) < 0.5, 0.0, np.inf)
    noisy = np.isfinite(variance)
    cumulant = np.where(noisy, 3.0 * variance**2, 0.0)
    found = moments(variance, cumulant, tree)
    weights = coefficients(variance, tree)
    spread = np.where(noisy, variance, 0.0)
    np.testing.assert_allclose(found.variance, weights**2 @ spread, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.cumulant, weights**4 @ cumulant, rtol=1e-8, atol=1e-10)
    own = found.inner * found.upward.own
    kept = (found.variance > 0) & noisy & (variance > 0)
    np.testing.assert_allclose(own[kept], np.diag(weights)[kept], rtol=1e-9, atol=1e-12)


@examples(40)
@given(trees(max_leaves=20), st.integers(0, 2**32 - 1))
def test_the_variance_is_that_of_least_squares_where_leaves_are_not_measured(tree: Tree, seed: int) -> None:
    rng = np.random.default_rng(seed)
    variance = np.where(rng.random(tree.n_nodes) < 0.4, np.inf, rng.uniform(1, 5, tree.n_nodes))
    variance[0] = 2.0
    found = moments(variance, np.zeros(tree.n_nodes), tree)
    np.testing.assert_allclose(found.variance, least_squares_variance(variance, tree), rtol=1e-10)


@examples(60)
@given(trees(max_leaves=30), st.integers(0, 2**32 - 1))
def test_the_main_terms_are_parts_of_the_linear_map(tree: Tree, seed: int) -> None:
    rng = np.random.default_rng(seed)
    of_level = 10.0 ** rng.uniform(-1, 3, tree.n_levels)
    levels = np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))
    variance = of_level[levels]
    found = moments(variance, 3.0 * variance**2, tree)
    terms = main_terms(found, variance, of_level, tree)
    weights = np.abs(coefficients(variance, tree))
    for node in range(tree.n_nodes):
        of = node
        while of and np.diff(tree.child_offsets)[tree.parent[of]] == 1:
            of = tree.parent[of]
        sets = [[of]] if of == 0 else [[of], [tree.parent[of]], sorted(family(tree, of) - {of})]
        below = {of}
        while below := {child for one in below for child in range(*tree.children(one).indices(tree.n_nodes))}:
            sets.append(sorted(below))
        expected = sorted(
            (
                (len(one) * weights[of, one].mean() ** 2 * of_level[levels[one[0]]], levels[one[0]], len(one))
                for one in sets
                if one
            ),
            reverse=True,
        )
        for k, (explained, level, number) in enumerate(expected[:3]):
            assert terms.explained[k, node] == pytest.approx(explained, rel=1e-7, abs=1e-12)
            if explained > 1e-9 and all(
                abs(explained - other[0]) > 1e-9 for other in expected if other[1:] != (level, number)
            ):
                assert (terms.kind[k, node], terms.number[k, node]) == (level, number)
        assert terms.explained[:, node].sum() <= found.variance[node] * (1 + 1e-9)


def family(tree: Tree, node: int) -> set[int]:
    return set(range(*tree.children(int(tree.parent[node])).indices(tree.n_nodes)))


def test_an_only_child_has_its_parents_terms() -> None:
    tree = Tree.from_family_sizes([[2], [1, 3]])
    of_level = np.array([1000.0, 1.0, 1000.0])
    variance = np.repeat(of_level, np.diff(tree.level_offsets))
    terms = main_terms(moments(variance, 3.0 * variance**2, tree), variance, of_level, tree)
    assert terms.kind[0].tolist() == [1, 1, 1, 1, 2, 2, 2]
    assert terms.number[0, 0] == 2
    assert terms.number[1, 4] == 2
    assert terms.coefficient[0, 3] == terms.coefficient[0, 1] > 0.99


@pytest.mark.parametrize(
    "law",
    [DiscreteLaplace("0.3"), DiscreteLaplace(3), DiscreteLaplace(2, grid_bits=2), DiscreteGaussian("0.5"),
     DiscreteGaussian(3), DiscreteGaussian("0.4", grid_bits=1)],
    ids=repr,
)  # fmt: skip
def test_the_fourth_cumulant_is_that_of_the_masses(law: DiscreteLaplace | DiscreteGaussian) -> None:
    k = np.arange(-400, 401) * 2.0**-law.grid_bits
    mass = law.pmf(k)
    expected = float((mass * k**4).sum() - 3.0 * (mass * k**2).sum() ** 2)
    assert fourth_cumulant(law) == pytest.approx(expected, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize(("law", "expected"), [(Laplace(2.0), 192.0), (Gaussian(3.0), 0.0)])
def test_the_fourth_cumulant_of_continuous_laws(law: Law, expected: float) -> None:
    assert fourth_cumulant(law) == expected
