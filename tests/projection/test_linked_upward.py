"""What was measured below a node tells about it: against least squares of all leaves at once, by numpy."""

from __future__ import annotations

import numpy as np
import pytest

from support.linked import census
from support.linked_families import measured_tree
from topdown.geography.tree import FloatArray, Tree
from topdown.linked.universe import LinkedQuery
from topdown.measurements.measurements import Answers
from topdown.noise import KeyedSource
from topdown.projection.linked.linked_descent import LinkedProgram, linked_down
from topdown.projection.linked.linked_upward import from_below

UNIVERSE = census(races=1, ages=2)
TREE = Tree.from_family_sizes([np.array([3]), np.array([1, 2, 4])])
QUERIES = [LinkedQuery.parse(text, UNIVERSE) for text in ("persons: detailed", "persons: age", "households: detailed")]
CELLS = np.flatnonzero(UNIVERSE.possible(np.arange(UNIVERSE.n_cells)))
CELLS = CELLS[np.stack([query.answers_of(CELLS) >= 0 for query in QUERIES]).any(axis=0)]
CELLS = np.sort(np.random.default_rng(1).choice(CELLS, 60, replace=False))  # so that least squares by numpy is quick


def _measured(variances: list[dict[int, FloatArray]]) -> list[dict[LinkedQuery, Answers]]:
    rng = np.random.default_rng(0)
    return [
        {QUERIES[k]: Answers(np.rint(rng.normal(0, 9, (len(v), QUERIES[k].n_answers))), v) for k, v in level.items()}
        for level in variances
    ]


def _rows(query: LinkedQuery) -> FloatArray:
    answer = query.answers_of(CELLS)
    return (answer == np.arange(query.n_answers)[:, None]).astype(np.float64)


def _least_squares(measured: list[dict[LinkedQuery, Answers]], among: list[LinkedQuery]) -> FloatArray:
    """The root's cells by least squares over the leaves' cells of all measured answers ``among`` some queries."""
    under = np.zeros((TREE.n_nodes, TREE.n_leaves))
    for leaf, node in enumerate(range(TREE.leaves.start, TREE.n_nodes)):
        while node >= 0:
            under[node, leaf], node = 1, int(TREE.parent[node]) if node else -1
    rows, values = [], []
    for index, level in enumerate(measured):
        for query, (said, variance) in level.items():
            for place, node in enumerate(range(TREE.level(index).start, TREE.level(index).stop)):
                if query in among and np.isfinite(variance[place]):
                    rows.append(np.kron(under[node], _rows(query)) / np.sqrt(variance[place]))
                    values.append(said[place] / np.sqrt(variance[place]))
    found = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0]
    return np.asarray(found.reshape(TREE.n_leaves, -1).sum(axis=0))


def _of_root(estimated: dict[LinkedQuery, Answers]) -> FloatArray:
    rows = np.concatenate([_rows(query) / np.sqrt(variance[0]) for query, (_, variance) in estimated.items()])
    values = np.concatenate([said[0] / np.sqrt(variance[0]) for said, variance in estimated.values()])
    return np.asarray(np.linalg.lstsq(rows, values, rcond=None)[0])


def test_with_the_same_shares_at_every_level_it_is_least_squares_of_all_queries() -> None:
    shares, levels = [1.0, 3.0, 0.7], [2.0, 5.0, 1.5]
    sizes = np.diff(TREE.level_offsets)
    measured = _measured(
        [
            {k: np.full(n, share * level) for k, share in enumerate(shares)}
            for n, level in zip(sizes, levels, strict=True)
        ]
    )
    assert np.abs(_of_root(from_below(TREE, measured, 2)[0]) - _least_squares(measured, QUERIES)).max() < 1e-9
    assert np.abs(_of_root(measured[0]) - _least_squares(measured, QUERIES)).max() > 1


def test_a_query_alone_is_least_squares_of_it_whatever_is_measured_where() -> None:
    half = np.array([2.0, np.inf, 1.0])  # of the second node nothing was measured but below
    measured = _measured([{1: np.ones(1)}, {0: half, 1: 2 * half}, {0: np.full(7, 3.0), 1: np.full(7, 0.5)}])
    root = from_below(TREE, measured, 2)[0]
    for query in QUERIES[:2]:
        (said, variance), rows = root[query], _rows(query)
        counted = rows.any(axis=1)  # some answers no possible cell counts in
        assert np.abs((said[0] - rows @ _least_squares(measured, [query]))[counted]).max() < 1e-9
        assert np.isfinite(variance).all()
    unknown = _measured([{1: np.ones(1)}, {0: half}, {}])
    assert from_below(TREE, unknown, 2)[0].keys() == {QUERIES[0], QUERIES[1]}
    assert np.isinf(from_below(TREE, unknown, 2)[0][QUERIES[0]].variance).all()


def test_a_later_start_uses_nothing_from_below_it() -> None:
    measured = _measured([{0: np.ones(1)}, {0: np.full(3, 2.0)}, {0: np.full(7, 3.0)}])
    assert from_below(TREE, measured, 0) == measured
    found = from_below(TREE, measured, 1)
    assert found[1:] == measured[1:]
    values = measured[0][QUERIES[0]].values * 6 / 7 + measured[1][QUERIES[0]].values.sum(axis=0) / 7
    assert np.abs(found[0][QUERIES[0]].values - values).max() < 1e-12
    assert found[0][QUERIES[0]].variance == pytest.approx([6 / 7])


def test_families_are_solved_with_it_and_are_nearer_to_the_truth() -> None:
    universe, off = census(races=2, ages=2), np.zeros(2)
    for seed in range(4):
        program = measured_tree(universe, np.random.default_rng(seed), rho=0.05, sizes=(2, 3, 3))
        exact = measured_tree(universe, np.random.default_rng(seed), rho=1e9, sizes=(2, 3, 3))
        for way, start in enumerate((0, 3)):
            said = from_below(program.tree, program.measured, start)
            solution = linked_down(
                LinkedProgram(universe, program.tree, said, program.figures), KeyedSource(bytes(32)), 1
            )
            assert solution.certificate.holds()
            for node in range(program.tree.level(2).start):
                for query, (true, _) in exact.measured[int(node > 0)].items():
                    cells, counts = solution.nodes[node]
                    own = query.sparse_answers(np.zeros(len(cells), np.int64), cells, counts, 1)[0]
                    off[way] += np.abs(own - true[node - int(node > 0)]).sum()
    assert off[1] < 0.9 * off[0]
