"""Least squares on histograms with any queries, against dense algebra that knows nothing of components."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from topdown.errors import ConfigError, DataError, ProjectionError
from topdown.geography.tree import Tree
from topdown.measurements.measurements import Answers
from topdown.projection.check.certificate import certify
from topdown.projection.check.histogram_certificate import histogram_optimality
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.least_squares import solve
from topdown.workload import Query, Schema


@dataclass
class Case:
    """A tree, a schema, and what was measured where, with the dense system that says the same."""

    tree: Tree
    schema: Schema
    queries: list[Query]
    measured: list[dict[Query, Answers]]
    below: np.ndarray  # (nodes x leaves)
    design: np.ndarray
    values: np.ndarray
    variance: np.ndarray


def case(seed: int, *, unmeasured: float, exact: float, by_node: bool) -> Case:
    rng = np.random.default_rng(seed)
    names = "abc"[: rng.integers(1, 4)]
    attributes = {n: [f"{n}{k}" for k in range(rng.integers(1, 5))] for n in names}
    recodes: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name, categories in attributes.items():
        if len(categories) > 2 and rng.random() < 0.7:
            groups: dict[str, list[str]] = {}
            for category in categories:
                groups.setdefault(f"g{rng.integers(0, 2)}", []).append(category)
            recodes[name] = {f"{name}g": groups}
        if len(categories) == 4 and rng.random() < 0.5:
            halves = {"x": categories[:2], "y": categories[2:]}
            recodes.setdefault(name, {})[f"{name}h"] = halves
    schema = Schema.from_mapping(attributes, recodes)
    sizes, width = [], 1
    for _ in range(rng.integers(0, 3)):
        sizes.append(rng.integers(1, 4, width))
        width = int(sizes[-1].sum())
    tree = Tree.from_family_sizes(sizes)
    below = tree.aggregate(np.eye(tree.n_leaves)).T
    truth = below @ rng.integers(0, 30, (tree.n_leaves, schema.n_cells))
    options = [[None, n, *recodes.get(n, {})] for n in names]
    queries = [Query(schema, kept) for kept in itertools.product(*options)]
    asked = [query for query in queries if rng.random() < 0.5]
    measured, rows, values, variances = [], [], [], []
    for index in range(tree.n_levels):
        nodes = tree.level(index)
        count = nodes.stop - nodes.start
        use = [query for query in asked if rng.random() < 0.7]
        if rng.random() < 0.8:
            use.append(Query.parse("detailed", schema))
        level = {}
        for query in dict.fromkeys(use):
            spread = rng.uniform(0.3, 30, count if by_node else 1) * np.ones(count)
            spread[rng.random(count) < unmeasured] = np.inf
            spread = np.zeros(count) if rng.random() < exact else spread
            true = query.answers(truth[nodes])
            noise = rng.normal(size=true.shape) * np.sqrt(np.where(np.isfinite(spread), spread, 0.0))[:, None]
            level[query] = Answers(true + noise, spread)
            for k in np.flatnonzero(np.isfinite(spread)):
                rows.append(np.kron(below[nodes.start + k], query.matrix().toarray()))
                values.append((true + noise)[k])
                variances.append(np.full(query.n_answers, spread[k]))
        measured.append(level)
    n = tree.n_leaves * schema.n_cells
    return Case(
        tree,
        schema,
        queries,
        measured,
        below,
        np.vstack([np.zeros((0, n)), *rows]),
        np.concatenate([np.zeros(0), *values]),
        np.concatenate([np.zeros(0), *variances]),
    )


def dense(one: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least-squares leaves' cells, their covariance, and a basis of what is determined, with exact answers met."""
    exact = one.variance == 0
    noisy = one.design[~exact] / np.sqrt(one.variance[~exact])[:, None]
    aim = one.values[~exact] / np.sqrt(one.variance[~exact])
    fixed = one.design[exact]
    start, free = np.zeros(one.design.shape[1]), np.eye(one.design.shape[1])
    if len(fixed):
        start = np.linalg.lstsq(fixed, one.values[exact], rcond=None)[0]
        _, size, right = np.linalg.svd(fixed)
        free = right[(size > 1e-9).sum() :].T
    reduced = noisy @ free
    reduced[np.abs(reduced) < 1e-12] = 0.0  # where exact answers determine all, rounding is all that is left
    covariance = np.linalg.pinv(reduced.T @ reduced, rcond=1e-11)
    found = start + free @ (covariance @ (reduced.T @ (aim - noisy @ start)))
    _, size, right = np.linalg.svd(one.design, full_matrices=False)
    return found, free @ covariance @ free.T, right[size > 1e-9 * max(size.max(initial=0.0), 1.0)]


def require_equal(one: Case) -> None:
    components = Components(one.schema, tuple(dict.fromkeys(q for level in one.measured for q in level)))
    x, covariance = solve(one.tree, components, one.measured, upward=True)
    leaves, spread, determined = dense(one)
    scale = max(1.0, float(one.variance.max(initial=0.0)))
    for query, index in itertools.product(one.queries, range(one.tree.n_levels)):
        nodes = one.tree.level(index)
        values, variances = query.answers(x[nodes]), covariance.variance(query, nodes)
        for k in range(nodes.stop - nodes.start):
            rows = np.kron(one.below[nodes.start + k], query.matrix().toarray())
            known = np.linalg.norm(rows - rows @ determined.T @ determined, axis=1) < 1e-7
            np.testing.assert_array_equal(np.isfinite(variances[k]), known, err_msg=f"{query} {index} {k}")
            assert (variances[k] >= 0).all()
            np.testing.assert_allclose(values[k][known], (rows @ leaves)[known], atol=1e-8)
            true = np.einsum("ij,jk,ik->i", rows, spread, rows)
            np.testing.assert_allclose(variances[k][known], true[known], rtol=1e-7, atol=1e-9 * scale)
    for families in one.tree.families_down():
        sums = np.add.reduceat(x[families.children], families.starts, axis=0)
        np.testing.assert_allclose(sums, x[families.parents], atol=1e-8)
    for upward in (True, False):
        found = solve(one.tree, components, one.measured, upward=upward)[0]
        residuals = histogram_optimality(found, one.measured, components, one.tree, upward=upward)
        assert residuals.gap.max() < 1e-6
        assert certify([residuals], one.variance, nonnegative=False).holds()


@pytest.mark.parametrize("seed", range(30))
def test_one_variance_per_level_and_query(seed: int) -> None:
    require_equal(case(seed, unmeasured=0.0, exact=0.0, by_node=False))


@examples(30)
@given(seed=st.integers(0, 2**32), unmeasured=st.sampled_from([0.0, 0.2]), exact=st.sampled_from([0.0, 0.15]))
def test_heterogeneous_unmeasured_and_exact(seed: int, unmeasured: float, exact: float) -> None:
    require_equal(case(seed, unmeasured=unmeasured, exact=exact, by_node=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1600))
def test_many_more(seed: int) -> None:
    nasty = seed % 2 == 0
    require_equal(case(seed, unmeasured=0.15 * nasty, exact=0.1 * nasty, by_node=nasty))


def test_pl94_falls_into_scalars_and_one_block() -> None:
    """The queries of the redistricting file: 2,013 scalar problems and one of 3 x 3 at every node."""
    hhgq = [f"kind {k}" for k in range(8)]
    schema = Schema.from_mapping(
        {"hhgq": hhgq, "votingage": ["0", "1"], "hispanic": ["0", "1"], "cenrace": [f"race {k}" for k in range(63)]},
        recodes={"hhgq": {"hhinstlevels": {"household": hhgq[:1], "institution": hhgq[1:5], "other": hhgq[5:]}}},
    )
    workload = [
        "total",
        "cenrace",
        "hispanic",
        "votingage",
        "hhinstlevels",
        "hhgq",
        "hispanic * cenrace",
        "votingage * cenrace",
        "votingage * hispanic",
        "votingage * hispanic * cenrace",
        "detailed",
    ]
    components = Components(schema, tuple(Query.parse(text, schema) for text in workload))
    sizes = [block.size for part in components for block in part.blocks for _ in range(part.copies)]
    assert (sizes.count(1), sizes.count(3), len(sizes)) == (2013, 1, 2014)


@pytest.fixture
def measurements(geography: td.Geography) -> td.Measurements:
    schema = Schema.from_mapping(
        {"sex": ["f", "m"], "age": ["0", "1", "2"]}, {"age": {"minor": {"y": ["0"], "n": ["1", "2"]}}}
    )
    rng = np.random.default_rng(3)
    answers = {}
    for level in geography.levels:
        nodes = geography.level_slice(level)
        for text, variance in {"total": 1.0, "sex * minor": 2.0, "detailed": 9.0}.items():
            shape = (nodes.stop - nodes.start, Query.parse(text, schema).n_answers)
            answers[level, text] = (rng.integers(0, 50, shape), variance)
    return td.Measurements.from_answers(geography, schema, answers)


@pytest.mark.parametrize("method", ["top-down", "gls", "gls-top-down"])
def test_both_engines_agree(measurements: td.Measurements, method: str) -> None:
    tree = td.project(measurements, method, nonnegative=False)
    solver = td.project(measurements, method, nonnegative=False, engine="cvxpy", solver="CLARABEL")
    np.testing.assert_allclose(tree.values, solver.values, atol=1e-5)
    assert tree.certificate.worst < 1e-9
    assert tree.variance is not None


@pytest.mark.parametrize("solver", ["OSQP", "CLARABEL", "SCS"])
@pytest.mark.parametrize("size", [1e5, 1e8])
@pytest.mark.parametrize("at_root", [{"total": "1/4", "sex": "1/4"}, {"total": "1/2"}])
def test_both_engines_agree_on_large_counts(at_root: dict[str, str], size: float, solver: str) -> None:
    geography = td.Geography.from_edges(["a", "b"], ["US", "US"], levels=["nation", "state"])
    schema = Schema.from_mapping({"sex": ["f", "m"]})
    frame = {"state": ["a", "a", "b", "b"], "sex": ["f", "m"] * 2, "n": (size * np.array([6, 5, 4, 3])).astype(int)}
    counts = td.Counts.from_long(frame, geography, geoid="state", schema=schema, count="n")
    plan = td.Plan("discrete-gaussian", rho=1, shares={"nation": at_root, "state": {"total": "1/4", "sex": "1/4"}})
    measurements = td.measure(counts, plan, source=td.SeededSource(1))
    found = td.project(measurements, "top-down", engine="cvxpy", solver=solver)
    ours = td.project(measurements, "top-down")
    for level in geography.levels:
        total = found.answer(level, "total").values - ours.answer(level, "total").values
        np.testing.assert_allclose(total, 0, atol=1e-5 + 1e-15 * size)
    np.testing.assert_allclose(found.values, ours.values, rtol=1e-9)


def test_a_wrong_solution_has_no_certificate(measurements: td.Measurements) -> None:
    schema, tree = measurements.schema, measurements.geography.tree
    measured = [measurements.at(level) for level in measurements.geography.levels]
    components = Components(schema, tuple(measured[0]))
    x, _ = solve(tree, components, measured, upward=True)
    assert histogram_optimality(x, measured, components, tree, upward=True).gap.max() < 1e-9
    moved = np.array(x[tree.leaves])
    moved[0, 0] += 1e-3
    moved[0, 1] -= 1e-3
    wrong = tree.aggregate(moved.T).T
    assert histogram_optimality(wrong, measured, components, tree, upward=True).gap.max() > 1e-4
    family, _ = solve(tree, components, measured, upward=False)
    assert histogram_optimality(family, measured, components, tree, upward=True).gap.max() > 1e-2


def test_exact_answers_that_contradict_are_named(measurements: td.Measurements, geography: td.Geography) -> None:
    county = geography.level_slice("county")
    answers = {key: (measurements[key].values, measurements[key].variance[:, 0]) for key in measurements.keys}
    answers["county", "total"] = (np.full((county.stop - county.start, 1), 5), 0.0)
    answers["state", "total"] = (np.full((2, 1), 1000), 0.0)
    wrong = td.Measurements.from_answers(geography, measurements.schema, answers)
    with pytest.raises(ProjectionError, match=r"state '.*exact"):
        td.project(wrong, "gls")


def test_what_does_not_fit_is_refused_by_name(geography: td.Geography) -> None:
    schema = Schema.from_mapping({"sex": ["f", "m"]})
    good = np.zeros((2, 2))
    make = td.Measurements.from_answers
    with pytest.raises(ConfigError, match=r"unknown level 'stat'.*did you mean 'state'"):
        make(geography, schema, {("stat", "sex"): (good, 1)})
    with pytest.raises(DataError, match=r"level 'state', query 'total': values have shape \(2, 2\)"):
        make(geography, schema, {("state", "total"): (good, 1)})
    with pytest.raises(DataError, match=r"variance -1\.0 is not a number from 0 to inf"):
        make(geography, schema, {("state", "sex"): (good, -1)})
    with pytest.raises(DataError, match="query 'detailed', 'f': value nan"):
        make(geography, schema, {("state", "sex"): (good * np.nan, 1)})
    with pytest.raises(ConfigError, match="query 'detailed' is given twice"):
        make(geography, schema, {("state", "sex"): (good, 1), ("state", "detailed"): (good, 1)})
    with pytest.raises(DataError, match="no node was measured"):
        make(geography, schema, {("state", "sex"): (good, np.inf)})


SEX_AND_AGE = Schema.from_mapping({"sex": ["f", "m"], "age": ["child", "adult", "old"]})


@pytest.mark.parametrize("method", ["top-down", "gls-top-down"])
@pytest.mark.parametrize("size", [1e2, 1e5, 3.3e8])
def test_what_no_measurement_determines_does_not_move_what_was_measured(method: str, size: float) -> None:
    geography = td.Geography.from_edges(["a", "b"], ["US", "US"], levels=["nation", "state"])
    asked = {
        ("nation", "total"): (size * np.array([[10.0]]), 1.0),
        ("state", "sex"): (size * np.array([[3.0, 1.0], [4.0, 2.0]]), 4.0),
        ("state", "age"): (size * np.array([[1.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), 9.0),
    }
    # All of it fits together, and no cell of its own is measured. From the root alone the sexes are not known.
    found = td.project(td.Measurements.from_answers(geography, SEX_AND_AGE, asked), method)
    for (level, query), (values, variance) in asked.items():
        if method == "gls-top-down" or level == "nation":
            apart = found.answer(level, query).values - values
            np.testing.assert_allclose(apart / np.sqrt(variance), 0, atol=max(1e-6, 1e-15 * 10 * size))


@pytest.mark.parametrize(("precise", "rough"), [(1.0, 1e2), (1.0, 1e8), (1e-4, 1e6), (1e-6, 1e4)])
def test_the_least_of_what_was_measured_counts_where_cells_are_not_determined(precise: float, rough: float) -> None:
    geography = td.Geography.from_edges(["a"], ["US"], levels=["nation", "state"])
    asked = {("nation", "total"): ([[3.3e6]], precise), ("nation", "sex"): ([[2.2e6, 1e6]], rough)}
    found = td.project(td.Measurements.from_answers(geography, SEX_AND_AGE, asked), "top-down")
    # Least squares of two numbers and their sum.
    excess = 1e5 / (2 * rough + precise)
    np.testing.assert_allclose(
        found.answer("nation", "sex").values[0], np.array([2.2e6, 1e6]) + rough * excess, rtol=1e-5
    )
    np.testing.assert_allclose(found.answer("nation", "total").values[0, 0], 3.3e6 - precise * excess, atol=1e-2)


def test_a_variance_that_rounding_puts_below_zero_is_zero() -> None:
    """As that of an exact answer may come out, by whose root it would then be published as missing."""
    one = case(1, unmeasured=0.0, exact=0.0, by_node=False)
    components = Components(one.schema, tuple(dict.fromkeys(q for level in one.measured for q in level)))
    found = solve(one.tree, components, one.measured, upward=True)[1]
    blocks = tuple(
        tuple(
            block._replace(finite=np.broadcast_to(-1e-17 * np.eye(len(block.finite[0])), block.finite.shape))
            for block in of
        )
        for of in found.blocks
    )
    below = replace(found, blocks=blocks)
    for query in one.queries:
        assert (below.variance(query, slice(0, one.tree.n_nodes)) == 0).all()
