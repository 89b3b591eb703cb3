"""One leaf in place of several that are alike says of all of them what the whole tree says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.trees import trees, wide_trees
from topdown.geography.alike import Alike
from topdown.geography.tree import Tree
from topdown.uncertainty.intervals import rejected_up_to
from topdown.uncertainty.laws.error_moments import main_terms, moments


@examples(80)
@given(st.one_of(trees(max_leaves=40), wide_trees()), st.integers(0, 2**32 - 1))
def test_moments_and_main_terms_of_every_leaf_are_those_of_the_one_that_stands_for_it(tree: Tree, seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))
    # Two kinds of noise at the leaves, and some that are exact or not measured.
    kind = np.where((levels == tree.n_levels - 1) & (rng.random(tree.n_nodes) < 0.3), tree.n_levels, levels)
    of_kind = 10.0 ** rng.uniform(-1, 3, tree.n_levels + 1)
    variance = of_kind[kind]
    variance[rng.random(tree.n_nodes) < 0.1] = np.inf
    variance[(rng.random(tree.n_nodes) < 0.1) & (levels < tree.n_levels - 1)] = 0.0
    cumulant = np.where(np.isfinite(variance), 3.0 * variance**2, 0.0)
    alike = Alike.of(tree, variance[tree.leaves], kind[tree.leaves])
    expected = moments(variance, cumulant, tree)
    found = moments(variance[alike.nodes], cumulant[alike.nodes], alike.tree)
    for one, other in zip((*expected[:4], *expected.upward), (*found[:4], *found.upward), strict=True):
        np.testing.assert_allclose(alike.everywhere(other), one, rtol=1e-9, atol=1e-9)
    whole = main_terms(expected, variance, of_kind, tree, kind)
    few = main_terms(found, variance[alike.nodes], of_kind, alike.tree, kind[alike.nodes])
    for row in range(3):
        np.testing.assert_allclose(alike.everywhere(few.explained[row]), whole.explained[row], rtol=1e-9, atol=1e-9)


def test_a_family_of_leaves_that_are_alike_is_one_leaf() -> None:
    tree = Tree.from_family_sizes([[2], [5, 3]])
    alike = Alike.of(tree, np.ones(8), np.full(8, 2))
    assert alike.tree.n_leaves == 2
    assert alike.number.tolist() == [1, 1, 1, 5, 3]
    assert alike.everywhere(np.arange(5)).tolist() == [0, 1, 2, 3, 3, 3, 3, 3, 4, 4, 4]


@examples(200)
@given(st.lists(st.integers(0, 60), max_size=150), st.sampled_from([0.01, 0.1, 0.4]))
def test_the_procedure_of_benjamini_and_hochberg_rejects_what_ranks_say(places: list[int], alpha: float) -> None:
    p = np.array(places, np.float64) / 150.0
    order = np.sort(p)
    passed = [one for rank, one in enumerate(order.tolist(), 1) if one <= alpha * rank / len(p)]
    rejected = p <= rejected_up_to(p, alpha, len(p))
    assert rejected.tolist() == (p <= (passed[-1] if passed else -1.0)).tolist()


def test_a_slow_rejection_ends_in_ranks() -> None:
    """Every round leaves one fewer, over more rounds than are made; the first ten are rejected at last."""
    n, alpha = 400, 0.5
    p = alpha * (np.arange(1, n + 1) + 0.5) / n
    assert rejected_up_to(p, alpha, n) == -1.0
    p[:10] = alpha * np.arange(1, 11) / n
    assert rejected_up_to(p, alpha, n) == p[9]
