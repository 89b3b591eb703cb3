"""Structural zeros: a cell in which no record can be is 0 at every node, whatever was measured, by every method."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import topdown as td
from support.methods import PROGRAMS
from support.zeros import IMPOSSIBLE, POSSIBLE, SCHEMA, TREE, measured
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import Tree
from topdown.measurements.measurements import Answers
from topdown.projection.check import cross_checks
from topdown.projection.check.cross_checks import cross_check
from topdown.projection.histograms.linear_answers import linear_answers
from topdown.uncertainty.margins import margins_of
from topdown.workload import Query


def of_possible_cells(measurements: td.Measurements) -> td.Measurements:
    """What was measured of the cells that can have records, as a table that has no others."""
    cells = tuple(np.array(measurements.cells)[POSSIBLE].tolist())
    return dataclasses.replace(
        measurements, cells=cells, values=np.asfortranarray(measurements.values[:, POSSIBLE]), attributes=None
    )


@pytest.mark.parametrize("engine", ["tree", "cvxpy"])
@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
def test_of_the_cells_alone_they_are_0_and_the_others_as_if_there_were_no_more(
    method: str, nonnegative: bool, engine: str
) -> None:
    measurements = measured(1)
    assert (measurements.values[:, IMPOSSIBLE] != 0).any()
    estimate = td.project(measurements, method, nonnegative=nonnegative, engine=engine)
    others = td.project(of_possible_cells(measurements), method, nonnegative=nonnegative, engine=engine)
    assert (estimate.values[:, IMPOSSIBLE] == 0).all()
    np.testing.assert_allclose(estimate.values[:, POSSIBLE], others.values, atol=0 if engine == "tree" else 1e-6)
    assert estimate.exact[:, IMPOSSIBLE].all()
    assert not estimate.exact[:, POSSIBLE].any()
    assert estimate.attributes == SCHEMA
    if not nonnegative:
        assert estimate.variance is not None
        assert others.variance is not None
        assert (estimate.variance[:, IMPOSSIBLE] == 0).all()
        assert (estimate.variance[:, POSSIBLE] == others.variance).all()
        spread = estimate.answer("level 2", "total").variance
        assert spread is not None
        np.testing.assert_allclose(spread[:, 0], others.variance[TREE.leaves].sum(axis=1))
    else:
        release = td.round_counts(estimate, source=td.SeededSource(2))
        assert (release.values[:, IMPOSSIBLE] == 0).all()
        joint = td.round_counts(estimate, method="joint", source=td.SeededSource(2))
        assert (joint.values[:, IMPOSSIBLE] == 0).all()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
def test_the_second_solution_knows_them(
    method: str, nonnegative: bool, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        monkeypatch.setattr(cross_checks, "WHOLE", 5)
    measurements = measured(2)
    estimate = td.project(measurements, method, nonnegative=nonnegative)
    assert cross_check(measurements, estimate, rng=np.random.default_rng(1)).agrees


def test_an_exact_number_where_there_is_none_is_refused() -> None:
    measurements = measured(3)
    values, variance = measurements.values.astype(np.float64), np.ones(TREE.n_nodes)
    variance[TREE.leaves] = 0
    values[TREE.leaves] = 0
    values[TREE.n_nodes - 2, IMPOSSIBLE[1]] = 4
    impossible = dataclasses.replace(measurements, values=values, node_variance=variance, plan=None)
    with pytest.raises(
        ProjectionError, match=r"level 2 'n11', .*'0-17_nursing_m': its exact answer is 4, .*structural zero"
    ):
        td.project(impossible)


def test_many_cells_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = measured(4)
    at_once = td.project(measurements, "gls")
    monkeypatch.setattr(Tree, "blocks", lambda self, n: (slice(k, min(k + 2, n)) for k in range(0, n, 2)))
    in_blocks = td.project(measurements, "gls")
    for name in ("values", "variance", "exact"):
        assert (getattr(at_once, name) == getattr(in_blocks, name)).all()
    assert (margins_of(measurements).upper[:, IMPOSSIBLE] == 0).all()


# -- margins ----------------------------------------------------------------------------------------------------------


def test_their_margins_are_0() -> None:
    for seed in range(5):
        measurements = measured(seed)
        frame = td.margins(measurements)
        names = np.array(measurements.cells)[IMPOSSIBLE]
        impossible = frame[frame["cell"].isin(names)]
        assert len(impossible) == TREE.n_nodes * len(names)
        assert (impossible[["estimate", "sd", "lower", "upper"]] == 0).all(axis=None)
        others = td.margins(of_possible_cells(measurements))
        possible = frame[~frame["cell"].isin(names)].reset_index(drop=True)
        assert possible.equals(others.assign(cell=possible["cell"]))


def test_margins_of_sums_count_the_cells_that_there_are() -> None:
    measurements = measured(6)
    possible = of_possible_cells(measurements)
    mine = td.margins(measurements, queries=["total", "age * home"])
    total = mine[mine["query"] == "total"].reset_index(drop=True)
    alone = td.margins(possible, queries=["total"])
    assert np.allclose(total[["estimate", "sd", "lower", "upper"]], alone[["estimate", "sd", "lower", "upper"]])
    closed = mine[mine["cell"].isin(["0-17_nursing", "0-17_barracks", "65+_barracks"])]
    assert len(closed) == 3 * TREE.n_nodes
    assert (closed[["estimate", "sd", "lower", "upper"]] == 0).all(axis=None)
    units = {"n04": 1, "n05": 1, "n07": 1}
    assert td.region(measurements, units) == td.region(possible, units)
    assert td.region(measurements, units, query="detailed", cell="0-17_nursing_f") == (0, 0, 0, 0, "exact")
    assert td.region(measurements, units, query="age * home", cell="65+_barracks", minus={"n06": 1})[:4] == (0, 0, 0, 0)
    share = td.region(measurements, units, query="age * home", cell="65+_barracks", share_of="total")
    assert share == (0, 0, 0, 0, "exact")
    nothing = td.region(
        measurements, {"n06": 1}, query="age * home", cell="65+_barracks", share_of={"n05": 1, "n06": 1}
    )
    assert nothing.note != "exact"  # nobody of nobody


def test_plausible_tables_have_nobody_there() -> None:
    tables = td.plausible_tables(measured(7), 3, td.SeededSource(1), burn_in=2)
    assert (tables.values[..., IMPOSSIBLE] == 0).all()
    assert (tables.values[..., POSSIBLE] > 0).any()


# -- several queries ---------------------------------------------------------------------------------------------------

METHODS = ["top-down", "gls", "gls-top-down", "joint"]


def dense_least_squares(measurements: td.Measurements) -> tuple[np.ndarray, np.ndarray]:
    """Whole-tree least squares in the possible cells of the leaves, by dense algebra: histograms, and covariances of
    every node's (nodes x cells x cells)."""
    geography, width = measurements.geography, len(POSSIBLE)
    below = TREE.aggregate(np.eye(TREE.n_leaves)).T
    eye = np.eye(SCHEMA.n_cells)[:, POSSIBLE]
    rows, values, weights = [], [], []
    for level in geography.levels:
        for query, (answers, variance) in measurements.at(level).items():
            nodes = below[geography.level_slice(level)]
            for node, said, spread in zip(nodes, answers, variance, strict=True):
                rows.append(np.kron(node, query.matrix().toarray() @ eye))
                values.append(said)
                weights.append(np.full(len(said), 1 / spread))
    design, weight = np.concatenate(rows), np.concatenate(weights)
    covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
    leaves = covariance @ (design.T @ (weight * np.concatenate(values)))
    x, spreads = np.zeros((TREE.n_nodes, SCHEMA.n_cells)), np.zeros((TREE.n_nodes, SCHEMA.n_cells, SCHEMA.n_cells))
    for node in range(TREE.n_nodes):
        summed = np.kron(below[node], np.eye(width))
        x[node, POSSIBLE] = summed @ leaves
        spreads[node][np.ix_(POSSIBLE, POSSIBLE)] = summed @ covariance @ summed.T
    return x, spreads


def test_least_squares_of_several_queries_is_that_of_the_possible_cells() -> None:
    measurements = measured(11, several=True)
    x, spreads = dense_least_squares(measurements)
    estimate = td.project(measurements, "gls")
    np.testing.assert_allclose(estimate.values, x, atol=1e-9)
    assert (estimate.values[:, IMPOSSIBLE] == 0).all()
    for text in ("total", "age", "adult * home", "age * home", "sex * home", "detailed"):
        query = Query.parse(text, SCHEMA)
        matrix = query.matrix().toarray()
        expected = np.einsum("ki,nij,kj->nk", matrix, spreads, matrix)
        for level in measurements.geography.levels:
            nodes = measurements.geography.level_slice(level)
            answer = estimate.answer(level, text)
            np.testing.assert_allclose(answer.variance, expected[nodes], atol=1e-9 * spreads.max())
            np.testing.assert_allclose(answer.values, query.answers(x)[nodes], atol=1e-9)
            linear = linear_answers(measurements, [query]).answers_of(nodes, query)
            np.testing.assert_allclose(linear.values, query.answers(x)[nodes], atol=1e-9)
            np.testing.assert_allclose(linear.variance, expected[nodes], atol=1e-9 * spreads.max())
    amounts = {"n04": 1, "n05": 1, "n09": 1, "n02": 1}
    region = td.region(measurements, amounts, query="adult * home", cell="grown_barracks")
    below = np.array([int(name[1:]) for name in amounts])
    assert region.estimate == pytest.approx(Query.parse("adult * home", SCHEMA).answers(x)[below, 5].sum())


@pytest.mark.parametrize("engine", ["tree", "cvxpy"])
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_of_several_queries_they_are_0_by_every_method(method: str, nonnegative: bool, engine: str) -> None:
    measurements = measured(12, several=True)
    if nonnegative and method in ("gls", "joint"):
        with pytest.raises(ConfigError):
            td.project(measurements, method, nonnegative=nonnegative, engine=engine)
        return
    estimate = td.project(measurements, method, nonnegative=nonnegative, engine=engine)
    assert (estimate.values[:, IMPOSSIBLE] == 0).all()
    assert estimate.exact[:, IMPOSSIBLE].all()
    assert not estimate.exact[:, POSSIBLE].any()
    if engine == "cvxpy":
        again = td.project(measurements, method, nonnegative=nonnegative)
        np.testing.assert_allclose(estimate.values, again.values, atol=1e-5)


def test_margins_of_impossible_answers_to_several_queries_are_0() -> None:
    measurements = measured(13, several=True)
    frame = td.margins(measurements, td.project_whole(measurements, source=td.SeededSource(3)))
    cells = [*np.array(measurements.cells)[IMPOSSIBLE], "0-17_nursing", "0-17_barracks", "65+_barracks"]
    impossible = frame[frame["cell"].isin(cells)]
    assert len(impossible) > 80
    assert (impossible[["estimate", "sd", "lower", "upper"]] == 0).all(axis=None)
    assert (frame[~frame["cell"].isin(cells)]["sd"] > 0).all()
    nobody = td.region(measurements, {"n04": 1}, query="age * home", cell="65+_barracks")
    assert nobody[:4] == (0, 0, 0, 0)
    share = td.region(measurements, {"n04": 1}, query="age * home", cell="65+_barracks", share_of="total")
    assert share[:4] == (0, 0, 0, 0)


def test_exact_answers_of_several_queries_where_there_is_none_are_refused() -> None:
    measurements = measured(14, several=True)
    exact = np.zeros((3, 9), np.int64)
    exact[1, 1] = 2
    others = {**measurements.others, ("level 1", "age * home"): Answers(exact, np.zeros(3))}
    impossible = dataclasses.replace(measurements, others=others, plan=None)
    for method in ("gls", "top-down"):
        with pytest.raises(
            ProjectionError, match=r"level 1 'n02', query 'age \* home', '0-17_nursing': its exact answer is 2"
        ):
            td.project(impossible, method)
    with pytest.raises(ProjectionError, match=r"'0-17_nursing': its exact answer is 2"):
        td.project_whole(impossible)
