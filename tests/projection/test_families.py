"""Non-negative histograms of whole trees: certified, and equal to what other ways find."""

from __future__ import annotations

import numpy as np
import pytest

import topdown as td
from support.histograms import QUERIES, SCHEMA, RandomTree, random_tree
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import Tree
from topdown.measurements.measurements import Answers
from topdown.projection.check.certificate import certify
from topdown.projection.histograms.families import LEAST_SQUARES, Solved, dense, descend, residuals_of, solve_compiled
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.histograms.precision_matrices import Information, known, own
from topdown.projection.histograms.whole import histograms_down
from topdown.projection.method import METHODS
from topdown.projection.solver_inputs import descent_of
from topdown.workload import Query

METHOD_NAMES = ["top-down", "gls-top-down"]


def from_leaves(tree: Tree, measured: list[dict[Query, Answers]], patterns: Patterns) -> list[Information]:
    return known(tree, measured, patterns, tree.n_levels - 1)


def with_several(case: RandomTree) -> bool:
    return any(query.name != "detailed" for level in case.measured for query in level)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_random_trees_are_certified(method: str, exact: bool) -> None:
    for seed in range(60):
        case = random_tree(np.random.default_rng(seed), exact=exact)
        if not with_several(case):
            continue
        estimate = td.project(case.measurements(), method, nonnegative=True)
        assert estimate.certificate.holds()
        assert estimate.certificate.tolerance == 1e-8
        assert (estimate.values >= 0).all()
        for families in case.tree.families_down():
            sums = families.total_rows(estimate.values[families.children])
            np.testing.assert_allclose(sums, estimate.values[families.parents], atol=1e-6, rtol=1e-9)
        for index, level in enumerate(case.measured):
            for query, (values, variance) in level.items():
                known = variance == 0
                found = query.answers(estimate.values[case.tree.level(index)])[known]
                np.testing.assert_allclose(found, values[known], atol=1e-6, rtol=1e-9)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_of_the_detailed_query_alone_they_are_what_every_cell_gives_by_itself(method: str) -> None:
    for seed in range(40):
        case = random_tree(np.random.default_rng(seed), exact=False)
        detailed = Query.parse("detailed", SCHEMA)
        rng = np.random.default_rng(seed)
        measured = []
        for index in range(case.tree.n_levels):
            nodes = case.tree.level(index)
            variance = 10.0 ** rng.uniform(-1, 2, nodes.stop - nodes.start)
            noise = np.sqrt(variance)[:, None] * rng.normal(size=(len(variance), SCHEMA.n_cells))
            measured.append({detailed: Answers(case.truth[nodes] + noise, variance)})
        measurements = case._replace(measured=measured).measurements()
        alone = td.project(measurements, method, nonnegative=True)
        together = histograms_down(measurements, METHODS[method], "variance")
        np.testing.assert_allclose(dense(together.histograms, SCHEMA.n_cells), alone.values, atol=1e-7)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_cvxpy_finds_the_same(method: str) -> None:
    for seed in range(1, 8):
        case = random_tree(np.random.default_rng(seed), exact=seed % 2 == 1, orders=2)
        if not with_several(case):
            continue
        measurements = case.measurements()
        ours = td.project(measurements, method, nonnegative=True)
        other = td.project(measurements, method, nonnegative=True, engine="cvxpy", solver="OSQP")
        assert other.engine == "cvxpy"
        np.testing.assert_allclose(ours.values, other.values, atol=1e-6)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_without_negative_cells_they_are_the_least_squares_histograms(method: str) -> None:
    # Many records everywhere, so that x >= 0 binds nothing.
    rng = np.random.default_rng(8)
    case = random_tree(rng, exact=False, orders=1)
    leaves = rng.poisson(1000, (SCHEMA.n_cells, case.tree.n_leaves))
    truth = case.tree.aggregate(leaves).T.astype(np.float64)
    measured = []
    for index in range(case.tree.n_levels):
        nodes = case.tree.level(index)
        level = {}
        for name in QUERIES:
            query = Query.parse(name, SCHEMA)
            variance = np.full(nodes.stop - nodes.start, rng.uniform(0.5, 4))
            noise = np.sqrt(variance)[:, None] * rng.normal(size=(len(variance), query.n_answers))
            level[query] = Answers(query.answers(truth[nodes]) + noise, variance)
        measured.append(level)
    measurements = RandomTree(case.tree, measured, truth).measurements()
    free = td.project(measurements, "gls" if method == "gls-top-down" else method, nonnegative=False)
    np.testing.assert_allclose(td.project(measurements, method, nonnegative=True).values, free.values, atol=1e-7)


def test_siblings_of_several_variances_and_of_one_agree_where_they_are_the_same() -> None:
    # The short way through the leaves' sums, and the long way leaf by leaf.
    for seed in range(20):
        case = random_tree(np.random.default_rng(seed), exact=seed % 2 == 1)
        alike = [
            {q: Answers(a.values, np.full(len(a.variance), a.variance[0])) for q, a in level.items()}
            for level in case.measured
        ]
        nearly = [dict(level) for level in alike]
        for query, one in nearly[-1].items():
            nearly[-1][query] = Answers(one.values, one.variance * (1 + 1e-13 * np.arange(len(one.variance))))
        queries = tuple(dict.fromkeys(q for level in alike for q in level))
        patterns = Patterns(SCHEMA, queries)
        for one, other in zip(
            from_leaves(case.tree, alike, patterns), from_leaves(case.tree, nearly, patterns), strict=True
        ):
            cells, nodes = np.arange(SCHEMA.n_cells), slice(0, 1)
            mine, theirs = one.gather(nodes, cells), other.gather(nodes, cells)
            np.testing.assert_allclose(mine.table, theirs.table, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(mine.g, theirs.g, rtol=1e-5, atol=1e-6)


def test_a_moved_solution_is_not_certified() -> None:
    for seed in range(8):
        case = random_tree(np.random.default_rng(seed), exact=False, orders=2)
        descent = descent_of(case.measurements(), METHODS["top-down"], "variance")
        found = descend(descent, LEAST_SQUARES).histograms
        index = 1
        nodes = case.tree.level(index)
        family = descent.family(index, slice(0, nodes.stop - nodes.start), found[0])
        solved = solve_compiled(family)
        whole = slice(0, nodes.stop - nodes.start)
        if len(solved.x) < 2 or len(family.cells) < 2:
            continue
        assert (descent.check(index, whole, family, solved).gap < 1e-6).all()
        moved = solved.x.copy()
        child, cell = np.unravel_index(np.argmax(moved), moved.shape)
        moved[child, cell] -= 1e-3
        moved[(child + 1) % len(moved), cell] += 1e-3
        check = descent.check(index, whole, family, solved._replace(x=moved))
        assert ((check.gap - check.rounding) / check.deviation).max() > 1e-6


def test_the_slope_of_what_lies_below_is_that_of_its_table() -> None:
    for seed in range(10):
        case = random_tree(np.random.default_rng(seed), exact=False)
        queries = tuple(dict.fromkeys(q for level in case.measured for q in level))
        patterns = Patterns(SCHEMA, queries)
        cells = np.sort(np.random.default_rng(seed).choice(SCHEMA.n_cells, 9, replace=False))
        for level in (
            *own(case.tree, case.measured, patterns),
            *known(case.tree, case.measured, patterns, case.tree.n_levels - 1),
        ):
            table, g = level.gather(slice(0, 1), cells)
            x = np.random.default_rng(seed).random((1, 9)) * 10
            expected = x @ table[0][patterns.of(cells)] - g
            np.testing.assert_allclose(level.slopes([(x, slice(0, 1), cells)])[0][0], expected, rtol=1e-6, atol=1e-6)


def test_slopes_of_families_together_are_those_of_each_alone() -> None:
    for seed in range(10):
        case, rng = random_tree(np.random.default_rng(seed), exact=False), np.random.default_rng(seed)
        patterns = Patterns(SCHEMA, tuple(dict.fromkeys(q for level in case.measured for q in level)))
        for number, level in enumerate(known(case.tree, case.measured, patterns, case.tree.n_levels - 1)):
            nodes = case.tree.level(number)
            asked = []
            for first in range(0, nodes.stop - nodes.start, 2):  # with gaps, as where a parent has nothing
                cells = np.sort(rng.choice(SCHEMA.n_cells, rng.integers(1, 9), replace=False))
                asked.append((rng.random((1, len(cells))), slice(first, first + 1), cells))
            for one, (slope, size) in zip(asked, level.slopes(asked), strict=True):
                ((alone, its_size),) = level.slopes([one])
                np.testing.assert_allclose(slope, alone, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(size, its_size, rtol=1e-12)


def test_a_child_has_nothing_where_its_parent_has_nothing() -> None:
    case = random_tree(np.random.default_rng(2), exact=False)
    estimate = td.project(case.measurements(), "top-down", nonnegative=True)
    parent = np.where(case.tree.parent < 0, 0, case.tree.parent)
    assert not ((estimate.values > 0) & (estimate.values[parent] == 0)).any()


def test_joint_is_refused_with_what_there_is() -> None:
    case = random_tree(np.random.default_rng(3), exact=False)
    with pytest.raises(
        ConfigError, match=r"'joint' .* has no solver of several queries, .* with x >= 0; take 'top-down' or"
    ):
        td.project(case.measurements(), "joint", nonnegative=True)


def test_exact_answers_that_no_table_has_are_named() -> None:
    case = random_tree(np.random.default_rng(4), exact=False)
    total = Query.parse("total", SCHEMA)
    for index, off in ((0, 7.0), (1, 0.0)):
        nodes = case.tree.level(index)
        exact = np.zeros(nodes.stop - nodes.start)
        case.measured[index][total] = Answers(total.answers(case.truth[nodes]) + off, exact)
    for method in METHOD_NAMES:
        with pytest.raises(ProjectionError, match=r"level 0 '.*exact"):
            td.project(case.measurements(), method, nonnegative=True)


def test_histograms_as_an_array() -> None:
    case = random_tree(np.random.default_rng(5), exact=False)
    found = descend(descent_of(case.measurements(), METHODS["top-down"], "variance"), LEAST_SQUARES).histograms
    values = dense(found, SCHEMA.n_cells)
    for node, (cells, counts) in enumerate(found):
        assert (values[node, cells] == counts).all()
        assert np.isclose(values[node].sum(), counts.sum())


def test_what_is_negative_has_no_certificate_whatever_a_method_says_of_it() -> None:
    """Of a method of one's own, too, that finds nothing lacking."""
    case = random_tree(np.random.default_rng(5), exact=False)
    descent = descent_of(case.measurements(), METHODS["top-down"], "variance")
    family = descent.family(0, slice(0, 1), None)
    x = solve_compiled(family).x
    nothing = np.zeros_like(x), np.zeros_like(x), np.ones_like(x)
    for low, holds in ((0.0, True), (-1e-9, False)):
        x[0, 0] = low
        found = residuals_of(nothing, family, Solved(x, np.zeros(x.shape[1]), np.zeros((1, 0))))
        certificate = certify([found], np.ones(1), nonnegative=True)
        assert certificate.holds() is holds
        assert certificate.most_negative == low
