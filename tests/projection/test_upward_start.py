"""An upward pass that starts above the leaves: against dense least squares, level by level, and as a limit."""

from __future__ import annotations

import numpy as np
import pytest

import topdown as td
from support.histograms import SCHEMA, RandomTree
from topdown.errors import ConfigError
from topdown.geography.tree import Tree
from topdown.measurements.measurements import Answers
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.least_squares import covariance, solve
from topdown.projection.method import METHODS
from topdown.projection.upward_start import start_of
from topdown.workload import Query

LEVELS = ("nation", "state", "county", "block")
CELLS = SCHEMA.n_cells


def case(seed: int, *, records: float = 5000.0, unmeasured: bool = False) -> RandomTree:
    """A tree of four levels with the detailed query at each and others, variances by node."""
    rng = np.random.default_rng(seed)
    sizes = [[int(rng.integers(1, 3))]]
    for _ in range(2):
        sizes.append([int(k) for k in rng.integers(1, 4, sum(sizes[-1]))])
    tree = Tree.from_family_sizes(sizes)
    truth = tree.aggregate(rng.poisson(records, (CELLS, tree.n_leaves))).T.astype(np.float64)
    measured = []
    for index in range(tree.n_levels):
        nodes = tree.level(index)
        level = {}
        for name in ["detailed", *(name for name in ("total", "g", "g * b", "a * c") if rng.random() < 0.5)]:
            query = Query.parse(name, SCHEMA)
            variance = rng.uniform(1, 100, nodes.stop - nodes.start)
            if unmeasured and name != "detailed":
                variance[rng.random(len(variance)) < 0.3] = np.inf
            spread = np.sqrt(np.where(np.isfinite(variance), variance, 0.0))
            noise = spread[:, None] * rng.normal(size=(len(variance), query.n_answers))
            level[query] = Answers(query.answers(truth[nodes]) + noise, variance)
        measured.append(level)
    return RandomTree(tree, measured, truth)


def weighed(one: RandomTree, node: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of what was measured of a node (made x cells), over their deviations; the numbers over theirs."""
    index = one.tree.level_of(node)
    k = node - one.tree.level(index).start
    rows, values = [np.zeros((0, CELLS))], [np.zeros(0)]
    for query, answers in one.measured[index].items():
        if np.isfinite(answers.variance[k]):
            deviation = np.sqrt(answers.variance[k])
            rows.append(query.matrix().toarray() / deviation)
            values.append(answers.values[k] / deviation)
    return np.concatenate(rows), np.concatenate(values)


def dense(one: RandomTree, start: int) -> np.ndarray:
    """How the histograms (nodes x cells) follow from all that was measured, over deviations: nodes, cells, numbers.

    Least squares of the tree down to level ``start``, whose unknowns are the nodes of that level; then every family
    below by least squares of its own numbers with the sum as an equation.
    """
    tree, upper = one.tree, one.tree.above(start)
    own = [weighed(one, node)[0] for node in range(tree.n_nodes)]
    first = np.concatenate([[0], np.cumsum([len(rows) for rows in own])])
    follows = np.zeros((tree.n_nodes, CELLS, first[-1]))
    below = upper.aggregate(np.eye(upper.n_leaves)).T
    design = np.concatenate([np.kron(below[node], own[node]) for node in range(upper.n_nodes)])
    leaves = np.linalg.pinv(design).reshape(upper.n_leaves, CELLS, -1)
    follows[: upper.n_nodes, :, : len(design)] = np.einsum("nl,lcm->ncm", below, leaves)
    for index in range(start, tree.n_levels - 1):
        nodes = tree.level(index)
        for parent in range(nodes.start, nodes.stop):
            children = range(tree.child_offsets[parent], tree.child_offsets[parent + 1])
            n = len(children)
            sums = np.kron(np.ones(n), np.eye(CELLS))
            system = np.zeros(((n + 1) * CELLS, (n + 1) * CELLS))
            right = np.zeros(((n + 1) * CELLS, first[-1]))
            for k, child in enumerate(children):
                at = slice(k * CELLS, (k + 1) * CELLS)
                system[at, at] = own[child].T @ own[child]
                right[at, first[child] : first[child + 1]] = own[child].T
            system[n * CELLS :, : n * CELLS], system[: n * CELLS, n * CELLS :] = sums, sums.T
            right[n * CELLS :] = follows[parent]
            solved = np.linalg.solve(system, right)[: n * CELLS]
            for k, child in enumerate(children):
                follows[child] = solved[k * CELLS : (k + 1) * CELLS]
    return follows


def named(one: RandomTree) -> td.Measurements:
    return one.measurements()


@pytest.mark.parametrize("start", [1, 2])
def test_it_is_least_squares_down_to_the_level_and_families_of_their_own_numbers_below(start: int) -> None:
    for seed in range(6):
        one = case(seed, unmeasured=seed % 2 == 1)
        values = np.concatenate([weighed(one, node)[1] for node in range(one.tree.n_nodes)])
        expected = dense(one, start) @ values
        assert (expected > 100).all()  # x >= 0 changes nothing
        found = td.project(named(one), "gls-top-down", nonnegative=True, upward=f"from level {start}")
        np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-6)
        assert found.upward == f"from level {start}"
        whole = td.project(named(one), "gls-top-down", nonnegative=True)
        assert np.abs(whole.values - found.values).max() > 0.1


@pytest.mark.parametrize("start", [1, 2])
def test_its_covariance_is_that_of_the_dense_estimate(start: int) -> None:
    for seed in range(6):
        one = case(seed, unmeasured=seed % 2 == 1)
        follows = dense(one, start)
        queries = tuple(dict.fromkeys(query for level in one.measured for query in level))
        variances = [{query: answers.variance for query, answers in level.items()} for level in one.measured]
        found = covariance(one.tree, Components(SCHEMA, queries), variances, upward=True, start=start)
        for name in ("total", "detailed", "g", "b * c"):
            query = Query.parse(name, SCHEMA)
            expected = (np.einsum("ac,ncm->nam", query.matrix().toarray(), follows) ** 2).sum(axis=2)
            np.testing.assert_allclose(found.variance(query, slice(0, one.tree.n_nodes)), expected, rtol=1e-9)


def test_it_is_the_limit_of_whole_tree_least_squares_as_what_lies_below_gets_worse() -> None:
    one = case(3)
    queries = tuple(dict.fromkeys(query for level in one.measured for query in level))
    worse = [
        {query: Answers(a.values, a.variance * (1e6 if index == 3 else 1.0)) for query, a in level.items()}
        for index, level in enumerate(one.measured)
    ]
    limit = solve(one.tree, Components(SCHEMA, queries), worse, upward=True)[0]
    found = td.project(named(one), "gls-top-down", nonnegative=True, upward="from level 2")
    np.testing.assert_allclose(found.values, limit, rtol=0, atol=2e-3)


@pytest.mark.parametrize("start", [1, 2])
def test_where_counts_are_small_the_second_engine_agrees(start: int) -> None:
    for seed in range(3):
        one = case(seed, records=1.0)
        found = td.project(named(one), nonnegative=True, method="gls-top-down", upward=f"from level {start}")
        again = td.project(
            named(one), nonnegative=True, method="gls-top-down", upward=f"from level {start}", engine="cvxpy",
            solver="CLARABEL",
        )  # fmt: skip
        assert (found.values == 0).any()
        np.testing.assert_allclose(found.values, again.values, atol=1e-3)


def test_whole_histograms_come_from_it() -> None:
    one = case(1, records=2.0)
    found = td.project_whole(named(one), upward="from level 2", source=td.SeededSource(1))
    whole = td.project_whole(named(one), source=td.SeededSource(1))
    assert (found.answers("level 3", "detailed") != whole.answers("level 3", "detailed")).any()


@pytest.mark.parametrize(
    ("method", "upward", "said"),
    [
        ("gls-top-down", "county", 'write "from" before it, such as "from county"'),
        ("gls-top-down", "from parish", "unknown level of upward 'parish'"),
        ("gls-top-down", "from nation", "take method 'top-down' instead"),
        ("gls-top-down", "from block", "'block' is the lowest level, which is the default; leave upward out"),
        ("top-down", "from county", "method 'top-down' (family by family from the root) has no upward pass"),
        ("joint", "from county", "take method 'gls-top-down', or leave upward out"),
        ("gls", "from county", "take method 'gls-top-down', or leave upward out"),
    ],
)
def test_a_start_that_makes_no_sense_is_refused(method: str, upward: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        start_of(LEVELS, METHODS[method], upward)
    assert said in str(refused.value)


def test_the_start_is_the_leaves_or_without_an_upward_pass_the_root() -> None:
    assert start_of(LEVELS, METHODS["gls-top-down"]) == 3
    assert start_of(LEVELS, METHODS["top-down"]) == 0
    assert start_of(LEVELS, METHODS["gls-top-down"], "from state") == 1


def test_a_level_that_tells_nothing_of_what_is_measured_below_is_refused() -> None:
    one = case(1)
    total = Query.parse("total", SCHEMA)
    count = len(one.truth[one.tree.level(2)])
    one.measured[2] = {total: Answers(np.zeros((count, 1)), np.ones(count))}
    with pytest.raises(
        ConfigError, match=r"level 'level 3' measures 'g', which the queries of level 'level 2' do not determine"
    ):
        td.project_whole(named(one), upward="from level 2")


def test_one_query_alone_and_estimates_below_zero_have_no_start() -> None:
    one = case(1)
    with pytest.raises(ConfigError, match="is for non-negative histograms of several queries"):
        td.project(named(one), "gls-top-down", nonnegative=False, upward="from level 2")
    detailed = Query.parse("detailed", SCHEMA)
    alone = one._replace(measured=[{detailed: level[detailed]} for level in one.measured])
    with pytest.raises(ConfigError, match="is for non-negative histograms of several queries"):
        td.project(named(alone), "gls-top-down", upward="from level 2")
