"""A tree of histograms in pieces gives what it gives whole, wherever it is cut."""

from __future__ import annotations

import numpy as np
import pytest

from support.histograms import SCHEMA, RandomTree, random_tree
from topdown.geography.tree import Tree
from topdown.noise import KeyedSource
from topdown.projection import subtrees
from topdown.projection.components import Components
from topdown.projection.families import Check, Sparse, descend, solve_compiled
from topdown.projection.method import METHODS, Method
from topdown.projection.patterns import Patterns
from topdown.projection.several import dense, descent_of_answers
from topdown.projection.whole import FAMILY_ROUNDINGS, settler

TIES = KeyedSource(bytes(32))
NEAREST = FAMILY_ROUNDINGS["nearest"]


def patterns_of(case: RandomTree) -> Patterns:
    return Patterns(Components(SCHEMA, tuple(dict.fromkeys(q for level in case.measured for q in level))))


def whole(case: RandomTree, method: Method, *, rounded: bool) -> np.ndarray:
    descent = descent_of_answers(case.tree, case.measured, patterns_of(case), method)
    settle = settler(descent, NEAREST, TIES) if rounded else None
    return dense(descend(descent, solve_compiled, None, settle)[0], SCHEMA.n_cells)


def in_pieces(case: RandomTree, method: Method, cut: int, *, rounded: bool) -> np.ndarray:
    """The same by subtrees whose roots stand at level ``cut``."""
    tree, patterns = case.tree, patterns_of(case)
    climbed, numbers = [], []
    for node in range(tree.level(cut).start, tree.level(cut).stop):
        piece, nodes = tree.subtree(node)
        numbers.append(nodes)
        measured = []
        for index in range(piece.n_levels):
            own = nodes[piece.level(index)] - tree.level(cut + index).start
            level = case.measured[cut + index]
            measured.append({q: type(a)(a.values[own], a.variance[own]) for q, a in level.items()})
        climbed.append(subtrees.climb(piece, measured, patterns, method))
    top = Tree(tree.level_offsets[: cut + 2].copy(), tree.child_offsets[: tree.level_offsets[cut] + 1].copy())
    roots = subtrees.Root.side_by_side([one.root for one in climbed])
    descent = subtrees.above(top, case.measured[:cut], roots, patterns, method)
    settle = settler(descent, NEAREST, TIES) if rounded else None
    found: list[Sparse] = descend(descent, solve_compiled, None, settle)[0]
    values = np.zeros((tree.n_nodes, SCHEMA.n_cells))
    values[: top.n_nodes] = dense(found, SCHEMA.n_cells)
    for (below, _), nodes, root in zip(climbed, numbers, found[tree.level(cut).start :], strict=True):
        places = [
            (cut + index, int(nodes[below.tree.level(index).start]) - tree.level(cut + index).start)
            for index in range(below.tree.n_levels)
        ]
        settle = settler(below, NEAREST, TIES, places) if rounded else None
        histograms, checks = descend(below, solve_compiled, None, settle, root)
        assert len(checks) == below.tree.n_families + 1
        values[nodes] = dense(histograms, SCHEMA.n_cells)
    return values


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ["top-down", "gls-top-down"])
def test_pieces_are_the_whole(name: str, exact: bool) -> None:
    tight = 0
    for seed in range(60):
        case = random_tree(np.random.default_rng(seed), exact=exact, orders=3)
        expected = whole(case, METHODS[name], rounded=False)
        # What no measurement determines is shared out by a rule of 1e-8 of the precision, which makes rounding larger.
        determined = all(np.isfinite(one.variance).all() for one in case.measured[-1].values()) and all(
            "detailed" in {query.name for query in level} for level in case.measured
        )
        tight += determined
        for cut in range(case.tree.n_levels - 1):
            found = in_pieces(case, METHODS[name], cut, rounded=False)
            np.testing.assert_allclose(found, expected, atol=1e-9 if determined else 1e-5, rtol=1e-9)
    assert tight > 5


@pytest.mark.parametrize("name", ["top-down", "gls-top-down"])
def test_whole_numbers_are_the_same_ones_wherever_the_tree_is_cut(name: str) -> None:
    for seed in range(40):
        case = random_tree(np.random.default_rng(seed), exact=False, orders=3)
        expected = whole(case, METHODS[name], rounded=True)
        for cut in range(case.tree.n_levels - 1):
            np.testing.assert_array_equal(in_pieces(case, METHODS[name], cut, rounded=True), expected)


def test_nothing_is_checked_of_a_root_that_is_given() -> None:
    case = random_tree(np.random.default_rng(1), exact=False)
    descent = descent_of_answers(case.tree, case.measured, patterns_of(case), METHODS["top-down"])
    cells = np.arange(SCHEMA.n_cells)
    _, checks = descend(descent, solve_compiled, root=Sparse(cells, np.full(len(cells), 7.0)))
    assert checks[0].off == 0 and not checks[0].gap.any() and isinstance(checks[0], Check)
