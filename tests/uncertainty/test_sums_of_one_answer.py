"""Sums over any nodes against the dense covariance and the dense map of least squares."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.trees import trees
from topdown.geography.tree import Tree
from topdown.noise import DiscreteLaplace
from topdown.projection.cells.equality import least_squares, least_squares_variance
from topdown.projection.sum_errors import Weighted
from topdown.uncertainty.laws.answer_errors import AnswerErrors, Mix
from topdown.uncertainty.laws.error_law import Shape
from topdown.uncertainty.laws.known_noise import AnswerNoise, fourth_cumulant
from topdown.workload import Query, Schema

SCHEMA = Schema.of_cells(["people"])
QUERY = Query.parse("detailed", SCHEMA)
MIX = Mix.of(QUERY, 0)


def errors_of(tree: Tree, variance: np.ndarray, laws: tuple[DiscreteLaplace, ...]) -> AnswerErrors:
    """The errors where noise of a law per level, exact values and such as were not measured have this variance."""
    noisy = (variance > 0) & np.isfinite(variance)
    nodes = [tree.level(level) for level in range(tree.n_levels)]
    kind = [{QUERY: np.where(noisy[part], level, -1).astype(np.int32)} for level, part in enumerate(nodes)]
    return AnswerErrors(AnswerNoise(tree, SCHEMA, laws, [{QUERY: variance[part]} for part in nodes], kind))


def drawn(tree: Tree, rng: np.random.Generator, *, holes: bool) -> tuple[np.ndarray, tuple[DiscreteLaplace, ...]]:
    """Variances (nodes,), and a law per level; with ``holes`` inner nodes that are exact or were not measured."""
    laws = tuple(DiscreteLaplace(str(round(10.0 ** rng.uniform(-0.3, 1.5), 3))) for _ in range(tree.n_levels))
    levels = np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))
    variance = np.array([law.variance for law in laws])[levels]
    if holes:
        inner = (rng.random(tree.n_nodes) < 0.3) & (levels < tree.n_levels - 1)
        variance[inner] = np.where(rng.random(inner.sum()) < 0.5, 0.0, np.inf)
    return variance, laws


def variance_of(errors: AnswerErrors, nodes: list[int], weights: list[float]) -> float:
    asked = Weighted.many([(np.array(nodes), np.array(weights))])
    return float(errors.sums.variances(asked, QUERY)[0, 0])


@examples(150)
@given(trees(max_leaves=40), st.integers(0, 2**32 - 1), st.booleans())
def test_sums_have_the_moments_of_the_dense_map(tree: Tree, seed: int, holes: bool) -> None:
    rng = np.random.default_rng(seed)
    variance, laws = drawn(tree, rng, holes=holes)
    errors = errors_of(tree, variance, laws)
    nodes = np.flatnonzero(rng.random(tree.n_nodes) < rng.choice([0.1, 0.5, 1.0]))
    nodes = rng.permutation(nodes if len(nodes) else [tree.n_nodes - 1])
    both = rng.integers(-2, 3, (2, len(nodes))).astype(float)
    weights = np.stack([*both, both[0] - 0.5 * both[1]])
    asked = Weighted.many([(nodes, one) for one in weights])

    dense = least_squares(np.eye(tree.n_nodes), np.broadcast_to(variance, (tree.n_nodes,) * 2), tree).T
    rows = weights @ dense[nodes]
    noisy = (variance > 0) & np.isfinite(variance)
    expected = rows**2 @ np.where(noisy, variance, 0.0)
    scale = max(1e-12, float(np.abs(expected).max()))
    found = errors.sums.variances(asked, QUERY)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * scale)

    levels = np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))
    of_noise = np.array([fourth_cumulant(law) for law in laws])[levels]
    cumulant = 3 * rows**4 @ np.where(noisy, of_noise, 0.0)
    (made,) = errors.made(asked, [MIX])
    together = made.times(3)
    assert together.cumulant is not None
    np.testing.assert_allclose(together.cumulant, cumulant, rtol=1e-9, atol=1e-9 * max(1e-12, cumulant.max()))
    shape, spread = errors.shapes_of(together, 3 * found)[-1], 3 * found[-1]
    if spread > 1e-6 * scale:
        of_shape = cumulant_of(shape) * spread**2
        # The excess e of a rest is rounded to steps of 1e-3 in log(1 + e).
        rounding = 0.5e-3 * (1.0 + shape.excess) * rest_of(shape) ** 2 * spread**2
        np.testing.assert_allclose(of_shape, cumulant[-1], rtol=5e-3, atol=rounding)


def cumulant_of(shape: Shape) -> float:
    """The fourth cumulant of a shape, in units of its variance squared: of its terms and its rest."""
    terms = sum(term.number * term.coefficient**4 * fourth_cumulant(term.law) for term in shape.terms)
    return terms + shape.excess * rest_of(shape) ** 2


def rest_of(shape: Shape) -> float:
    """The part of a shape's variance that no term explains."""
    return max(1.0 - sum(term.part for term in shape.terms), 0.0)


def test_parts_beside_nodes_without_measurements_are_not_larger_than_the_error() -> None:
    tree = Tree.from_family_sizes([[1], [2], [1, 1]])
    laws = tuple(DiscreteLaplace(scale) for scale in ("23.975", "8.491", "2.502", "5.988"))
    variance = np.array([law.variance for law in laws])[[0, 1, 2, 2, 3, 3]]
    variance[3] = np.inf
    errors, asked = errors_of(tree, variance, laws), Weighted.each(np.array([0]))
    (made,) = errors.made(asked, [MIX])
    assert made.cumulant is not None
    found = errors.sums.variances(asked, QUERY)[:, 0]
    (shape,) = errors.shapes_of(made, found)
    np.testing.assert_allclose(cumulant_of(shape), made.cumulant[0] / found[0] ** 2, rtol=5e-3)


def test_the_difference_of_a_family_and_its_parent_is_certain() -> None:
    tree = Tree.from_family_sizes([[3], [2, 4, 1]])
    errors = errors_of(tree, *drawn(tree, np.random.default_rng(0), holes=False))
    assert variance_of(errors, [1, 4, 5], [1.0, -1.0, -1.0]) < 1e-12


def test_what_is_undetermined_has_no_variance_but_its_family_has() -> None:
    tree = Tree.from_family_sizes([[2], [2, 2]])
    variance, laws = drawn(tree, np.random.default_rng(0), holes=False)
    variance[3:5] = np.inf
    errors = errors_of(tree, variance, laws)
    assert np.isinf(variance_of(errors, [3], [1.0]))
    expected = least_squares_variance(variance, tree)[1]
    np.testing.assert_allclose(variance_of(errors, [3, 4], [1.0, 1.0]), expected, rtol=1e-12)
