from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from support.trees import family_sizes, trees
from topdown.errors import GeographyError
from topdown.geography.tree import Tree


def test_numbers_nodes_level_by_level_with_contiguous_families() -> None:
    tree = Tree.from_family_sizes([[2], [1, 3]])
    assert tree.level_offsets.tolist() == [0, 1, 3, 7]
    assert tree.child_offsets.tolist() == [1, 3, 4, 7]
    assert tree.parent.tolist() == [-1, 0, 0, 1, 2, 2, 2]
    assert (tree.n_nodes, tree.n_levels, tree.n_families, tree.n_leaves) == (7, 3, 3, 4)
    assert tree.leaves == slice(3, 7)
    assert [tree.level(k) for k in (0, 1, 2, -1)] == [slice(0, 1), slice(1, 3), slice(3, 7), slice(3, 7)]
    assert tree.children(2) == slice(4, 7)
    assert [tree.level_of(node) for node in range(7)] == [0, 1, 1, 2, 2, 2, 2]
    families = tree.families(1)
    assert (families.parents, families.children) == (slice(1, 3), slice(3, 7))
    assert families.starts.tolist() == [0, 1]
    assert families.sizes.tolist() == [1, 3]


def test_a_single_node_is_a_tree() -> None:
    tree = Tree.from_family_sizes([])
    assert (tree.n_nodes, tree.n_levels, tree.n_families, tree.n_leaves) == (1, 1, 0, 1)
    assert tree.parent.tolist() == [-1]
    assert list(tree.families_down()) == []
    assert tree.aggregate(np.array([[5]])).tolist() == [[5]]


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(IndexError):
        Tree.from_family_sizes([[2]]).level(2)


@pytest.mark.parametrize(
    ("levels", "children"),
    [
        ([0, 2, 4], [2, 3, 4]),  # two roots
        ([0, 1, 3], [1, 2]),  # a node that no family holds
        ([0, 1, 3, 5], [1, 3, 3, 5]),  # an inner node without children: a leaf above the leaf level
        ([0, 1, 3, 5], [1, 3, 5]),  # a family missing
        ([0, 1, 3, 6], [1, 4, 5, 6]),  # a family that reaches over its level
        ([0, 1, 1], [1]),  # an empty level
        ([1, 2, 3], [2, 3]),  # not from 0
    ],
)
def test_offsets_that_describe_no_tree_are_refused(levels: list[int], children: list[int]) -> None:
    with pytest.raises(GeographyError, match="constructors"):
        Tree(np.array(levels), np.array(children))


def test_its_arrays_cannot_be_written() -> None:
    tree = Tree.from_family_sizes([[2]])
    for array in (tree.level_offsets, tree.child_offsets, tree.parent):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


@given(family_sizes())
def test_sizes_come_back(sizes: list[list[int]]) -> None:
    tree = Tree.from_family_sizes(sizes)
    assert [families.sizes.tolist() for families in tree.families_down()] == sizes
    assert [families.sizes.tolist() for families in tree.families_up()] == sizes[::-1]


@given(trees())
def test_parents_children_and_levels_agree(tree: Tree) -> None:
    for node in range(tree.n_nodes):
        below = range(tree.n_nodes)[tree.children(node)]
        assert list(below) == np.flatnonzero(tree.parent == node).tolist()
        assert bool(len(below)) == (node < tree.n_families)
        assert all(tree.level_of(child) == tree.level_of(node) + 1 for child in below)


@given(trees())
def test_aggregation_is_the_sum_over_the_leaves_below(tree: Tree) -> None:
    leaves = np.random.default_rng(tree.n_nodes).integers(0, 1000, (2, tree.n_leaves))
    expected = np.zeros((2, tree.n_nodes), np.int64)
    for leaf in range(tree.n_leaves):
        node = tree.leaves.start + leaf
        while node >= 0:
            expected[:, node] += leaves[:, leaf]
            node = int(tree.parent[node])
    found = tree.aggregate(leaves)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@given(trees())
def test_totals_and_spreads_of_families(tree: Tree) -> None:
    values = np.arange(tree.n_nodes, dtype=float)
    for families in tree.families_down():
        parents = range(tree.n_nodes)[families.parents]
        assert families.total(values[families.children]).tolist() == [values[tree.children(p)].sum() for p in parents]
        assert families.spread(values[families.parents]).tolist() == tree.parent[families.children].tolist()


@given(trees())
def test_subtrees(tree: Tree) -> None:
    for node in range(tree.n_nodes):
        part, nodes = tree.subtree(node)
        assert nodes[0] == node
        assert part.n_levels == tree.n_levels - tree.level_of(node)
        assert nodes[part.parent[1:]].tolist() == tree.parent[nodes[1:]].tolist()
        covered = {node}
        for other in range(node, tree.n_nodes):
            if tree.parent[other] in covered:
                covered.add(other)
        assert set(nodes.tolist()) == covered


def test_the_nodes_that_are_not_their_childrens_sums_are_found() -> None:
    tree = Tree.from_family_sizes([np.array([2]), np.array([1, 3])])
    right = np.array([[10, 1, 9, 1, 2, 3, 4], [5, 0, 5, 0, 5, 0, 0]])
    assert not tree.not_sums(right).any()
    wrong = right + np.array([[0, 0, 1, 0, 0, 0, 0], [0] * 7])
    assert tree.not_sums(wrong).tolist() == [[True, False, True], [False, False, False]]
    assert tree.not_sums(wrong[0]).tolist() == [True, False, True]
