"""A tree of histograms in pieces gives what it gives whole, wherever it is cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.histograms import SCHEMA, RandomTree, random_tree
from topdown.geography.tree import Tree
from topdown.noise import KeyedSource
from topdown.projection.histograms import subtrees
from topdown.projection.histograms.families import LEAST_SQUARES, Sparse, dense, descend
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.histograms.whole import settler
from topdown.projection.rounding_method import rounding_named
from topdown.projection.solver_inputs import descent_of_answers

TIES = KeyedSource(bytes(32))
NEAREST = rounding_named("nearest")


def patterns_of(case: RandomTree) -> Patterns:
    return Patterns(SCHEMA, tuple(dict.fromkeys(q for level in case.measured for q in level)))


def whole(case: RandomTree, start: int, *, rounded: bool) -> np.ndarray:
    descent = descent_of_answers(case.tree, case.measured, patterns_of(case), start)
    settle = settler(descent, NEAREST, TIES) if rounded else None
    return dense(descend(descent, LEAST_SQUARES, None, settle)[0], SCHEMA.n_cells)


def in_pieces(case: RandomTree, lowest: int, cut: int, rng: np.random.Generator, *, rounded: bool) -> np.ndarray:
    """The same by pieces of siblings of level ``cut``, so many together as chance wants.

    ``lowest``: the level where the upward pass starts.
    """
    tree, patterns = case.tree, patterns_of(case)
    going_up, going_down, numbers = [], [], []
    families = tree.families(cut - 1)
    for start, size in zip(families.starts + families.children.start, families.sizes, strict=True):
        bounds = [0, *np.flatnonzero(rng.random(size - 1) < 0.5) + 1, size]
        for first, stop in itertools.pairwise(bounds):
            piece, nodes = tree.part(slice(int(start + first), int(start + stop)))
            numbers.append(nodes)
            measured = [{}]
            for index in range(1, piece.n_levels):
                own = nodes[piece.level(index)] - tree.level(cut - 1 + index).start
                level = case.measured[cut - 1 + index]
                measured.append({q: type(a)(a.values[own], a.variance[own]) for q, a in level.items()})
            of_piece = piece, measured, patterns, lowest - (cut - 1)
            going_up.append(subtrees.roots_of(*of_piece))
            going_down.append(subtrees.below(*of_piece))
    top = Tree(tree.level_offsets[: cut + 2].copy(), tree.child_offsets[: tree.level_offsets[cut] + 1].copy())
    roots = subtrees.Roots.side_by_side(going_up)
    descent = subtrees.above(top, case.measured[:cut], roots, patterns, lowest)
    settle = settler(descent, NEAREST, TIES) if rounded else None
    found: list[Sparse] = descend(descent, LEAST_SQUARES, None, settle)[0]
    values = np.zeros((tree.n_nodes, SCHEMA.n_cells))
    values[: top.n_nodes] = dense(found, SCHEMA.n_cells)
    for below, nodes in zip(going_down, numbers, strict=True):
        places = [
            (cut - 1 + index, int(nodes[below.tree.level(index).start]) - tree.level(cut - 1 + index).start)
            for index in range(below.tree.n_levels)
        ]
        settle = settler(below, NEAREST, TIES, places) if rounded else None
        mine = [found[node] for node in nodes[below.tree.level(1)]]
        histograms, checks, _ = descend(below, LEAST_SQUARES, None, settle, mine)
        assert len(checks) == below.tree.n_families + 1
        values[nodes[1:]] = dense(histograms, SCHEMA.n_cells)[1:]
    return values


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("height", [0, 1, 2, 3])
def test_pieces_are_the_whole(height: int, exact: bool) -> None:
    tight, rng = 0, np.random.default_rng(1)
    for seed in range(24):
        case = random_tree(np.random.default_rng(seed), exact=exact, orders=3, levels=3 + seed % 2)
        start = max(case.tree.n_levels - 1 - height, 0)
        expected = whole(case, start, rounded=False)
        # What no measurement determines is shared out by a rule of 1e-8 of the precision, which makes rounding larger.
        tells = [one for level in (case.measured[start], case.measured[-1]) for one in level.values()]
        determined = all(np.isfinite(one.variance).all() for one in tells) and all(
            "detailed" in {query.name for query in level} for level in case.measured
        )
        tight += determined
        if not determined and 0 < start < case.tree.n_levels - 1:
            continue
        for cut in range(1, case.tree.n_levels - 1):
            found = in_pieces(case, start, cut, rng, rounded=False)
            np.testing.assert_allclose(found, expected, atol=1e-9 if determined else 1e-5, rtol=1e-9)
    assert tight > 5


@pytest.mark.parametrize("height", [0, 1, 2, 3])
def test_whole_numbers_are_the_same_ones_wherever_the_tree_is_cut(height: int) -> None:
    """``height``: of the level where the upward pass starts, above the leaves."""
    rng = np.random.default_rng(2)
    for seed in range(16):
        case = random_tree(np.random.default_rng(seed), exact=False, orders=3, levels=3 + seed % 2)
        start = max(case.tree.n_levels - 1 - height, 0)
        expected = whole(case, start, rounded=True)
        for cut in range(1, case.tree.n_levels - 1):
            np.testing.assert_array_equal(in_pieces(case, start, cut, rng, rounded=True), expected)


def test_nothing_is_checked_of_roots_that_are_given() -> None:
    case = random_tree(np.random.default_rng(1), exact=False)
    descent = descent_of_answers(case.tree, case.measured, patterns_of(case), 0)
    cells = np.arange(SCHEMA.n_cells)
    roots = [Sparse(cells, np.full(len(cells), 7.0))] * (case.tree.level(1).stop - 1)
    histograms, checks, _ = descend(descent, LEAST_SQUARES, roots=roots)
    assert not len(histograms[0].cells)
    assert histograms[1 : 1 + len(roots)] == roots
    assert not checks[1].off.any()
    assert not checks[1].gap.any()
