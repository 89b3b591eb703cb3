"""Sums over any nodes against the dense covariance and the dense map of least squares."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.trees import trees
from topdown.geography.tree import Tree
from topdown.noise import DiscreteLaplace
from topdown.projection.equality import least_squares
from topdown.uncertainty.combination import Pivots, combination, covariance, law_of
from topdown.uncertainty.error_law import Shape
from topdown.uncertainty.known_noise import KnownNoise, fourth_cumulant
from topdown.uncertainty.moments import moments


def pivots_of(tree: Tree, rng: np.random.Generator, *, holes: bool) -> Pivots:
    """A law per level; with ``holes`` inner nodes that are exact or were not measured."""
    laws = tuple(DiscreteLaplace(str(round(10.0 ** rng.uniform(-0.3, 1.5), 3))) for _ in range(tree.n_levels))
    levels = np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))
    noise = KnownNoise(laws, np.array([fourth_cumulant(law) for law in laws]))
    variance = np.array([law.variance for law in laws])[levels]
    if holes:
        inner = (rng.random(tree.n_nodes) < 0.3) & (levels < tree.n_levels - 1)
        variance[inner] = np.where(rng.random(inner.sum()) < 0.5, 0.0, np.inf)
    noisy = (variance > 0) & np.isfinite(variance)
    found = moments(variance, np.where(noisy, noise.cumulants[levels], 0.0), tree)
    return Pivots.of(tree, noise, variance, found)


@settings(max_examples=150, deadline=None)
@given(trees(max_leaves=40), st.integers(0, 2**32 - 1), st.booleans())
def test_sums_have_the_moments_of_the_dense_map(tree: Tree, seed: int, holes: bool) -> None:
    rng = np.random.default_rng(seed)
    pivots = pivots_of(tree, rng, holes=holes)
    nodes = np.flatnonzero(rng.random(tree.n_nodes) < rng.choice([0.1, 0.5, 1.0]))
    nodes = rng.permutation(nodes if len(nodes) else [tree.n_nodes - 1])
    weights = rng.integers(-2, 3, (2, len(nodes))).astype(float)
    found = combination(nodes, weights, pivots)

    dense = least_squares(np.eye(tree.n_nodes), np.broadcast_to(pivots.variance, (tree.n_nodes,) * 2), tree).T
    rows = weights @ dense[nodes]
    noisy = (pivots.variance > 0) & np.isfinite(pivots.variance)
    spread = np.where(noisy, pivots.variance, 0.0)
    expected = (rows * spread) @ rows.T
    scale = max(1e-12, float(np.abs(expected).max()))
    np.testing.assert_allclose(covariance(found, pivots), expected, rtol=1e-9, atol=1e-9 * scale)

    levels = np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))
    mix = np.array([1.0, -0.5])
    law = law_of(found, pivots, mix, copies=3)
    of_noise = mix @ rows
    np.testing.assert_allclose(law.variance, 3 * float(of_noise**2 @ spread), rtol=1e-9, atol=1e-9 * scale)
    cumulant = 3 * float(of_noise**4 @ np.where(noisy, pivots.noise.cumulants[levels], 0.0))
    if law.variance > 1e-6 * scale:
        np.testing.assert_allclose(cumulant_of(law.shape) * law.variance**2, cumulant, rtol=5e-3, atol=1e-6 * cumulant)


def cumulant_of(shape: Shape) -> float:
    """The fourth cumulant of a shape, in units of its variance squared: of its terms and its rest."""
    terms = sum(term.number * term.coefficient**4 * fourth_cumulant(term.law) for term in shape.terms)
    return terms + shape.excess * max(1.0 - sum(term.part for term in shape.terms), 0.0) ** 2


def test_the_difference_of_a_family_and_its_parent_is_certain() -> None:
    tree = Tree.from_family_sizes([[3], [2, 4, 1]])
    pivots = pivots_of(tree, np.random.default_rng(0), holes=False)
    found = combination(np.array([1, 4, 5]), np.array([[1.0, -1.0, -1.0]]), pivots)
    assert abs(covariance(found, pivots)[0, 0]) < 1e-12


def test_what_is_undetermined_has_no_variance_but_its_family_has() -> None:
    tree = Tree.from_family_sizes([[2], [2, 2]])
    pivots = pivots_of(tree, np.random.default_rng(0), holes=False)
    variance = pivots.variance.copy()
    variance[3:5] = np.inf
    noisy = np.isfinite(variance)
    levels = np.repeat(np.arange(3), np.diff(tree.level_offsets))
    found = moments(variance, np.where(noisy, pivots.noise.cumulants[levels], 0.0), tree)
    pivots = Pivots.of(tree, pivots.noise, variance, found)
    one = combination(np.array([3]), np.ones((1, 1)), pivots)
    both = combination(np.array([3, 4]), np.ones((1, 2)), pivots)
    assert np.isinf(covariance(one, pivots)[0, 0])
    np.testing.assert_allclose(covariance(both, pivots)[0, 0], found.variance[1], rtol=1e-12)
