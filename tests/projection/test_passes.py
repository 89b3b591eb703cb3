"""Queries that are settled first: every pass against its statement in cvxpy, its certificate, and what it gains."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

import cvxpy
import numpy as np
import pytest

import topdown as td
from support.histograms import SCHEMA, random_tree
from support.several_queries import measured
from support.trees import geography
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import FloatArray, Tree
from topdown.projection.check.cross_checks import cross_check, cross_check_families
from topdown.projection.histograms import families
from topdown.projection.histograms.families import LEAST_SQUARES, Family, Solved, Sparse, descend, solve_compiled
from topdown.projection.histograms.passes import in_order
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import METHODS
from topdown.projection.solver_inputs import descent_of
from topdown.workload import Query

cp: Any = cvxpy

METHOD_NAMES = ["top-down", "gls-top-down"]
PRECISE: dict[str, dict[str, Any]] = {"CLARABEL": {}, "SCS": {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iters": 200_000}}
ORDERS = [["total"], ["g"], ["total", "b * c"], ["b * c", "a"], ["g", "a", "a * c"]]


def told_apart(family: Family, queries: list[Query]) -> FloatArray:
    """The zero-one matrix (classes x cells) of the classes of cells, found cell by cell."""
    kept = {}
    for place, cell in enumerate(family.cells):
        answers = tuple(int(query.answers_of(cell)) for query in queries)
        conditions = (*family.conditions.rows[:, place].tolist(), *family.conditions.allowed[:, place].tolist())
        kept.setdefault((answers, conditions), []).append(place)
    matrix = np.zeros((len(kept), len(family.cells)))
    for number, places in enumerate(kept.values()):
        matrix[number, places] = 1.0
    return matrix


def stated(family: Family, classes: FloatArray, held: list[tuple[Query, FloatArray]]) -> FloatArray:
    """The x (children x cells) of one pass: the family's least squares, x >= 0 and the sums for its ``classes`` alone,
    the answers that passes before it ``held``.
    """
    (table, g), conditions = family.known, family.conditions
    count, cells = g.shape
    x = cp.Variable((count, cells))
    terms = []
    for c in range(count):
        values, vectors = np.linalg.eigh(table[c][family.pattern])
        root = np.sqrt(values)
        terms.append(cp.sum_squares(cp.multiply(root, vectors.T @ x[c]) - (vectors.T @ g[c]) / root))
    u = x @ classes.T
    asked = [u >= 0]
    if family.total is not None:
        asked.append(cp.sum(u, axis=0) == classes @ family.total)
    for c in range(count):
        closed = (classes @ ~conditions.allowed[c]) > 0
        asked += [u[c, int(k)] == 0 for k in np.flatnonzero(closed)]
        for row, low, high in zip(conditions.rows, conditions.low[c], conditions.high[c], strict=True):
            asked += [x[c] @ row == low] if low == high else []
            asked += [x[c] @ row >= low] if np.isfinite(low) and low < high else []
            asked += [x[c] @ row <= high] if np.isfinite(high) and low < high else []
    for query, answers in held:
        place = query.answers_of(family.cells)
        asked += [x[:, np.flatnonzero(place == k)].sum(axis=1) == answers[:, k] for k in np.unique(place)]
    for solver in ("CLARABEL", "SCS"):
        problem = cp.Problem(cp.Minimize(cp.sum(terms)), asked)
        with suppress(cp.error.SolverError):
            problem.solve(solver=solver, **PRECISE[solver])
        # Where answers are held that others determine, Clarabel may take their rounding for a contradiction.
        if problem.status == cp.OPTIMAL:
            return np.asarray(x.value)
    raise AssertionError("no solver solves the statement")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_pass_solves_its_statement(method: str, order: list[str]) -> None:
    checked = 0
    for seed in range(1, 5):
        case = random_tree(np.random.default_rng(seed), exact=seed == 2, orders=1.5)
        asked = [name for name in order if any(q.name == name for level in case.measured for q in level)]
        descent = descent_of(case.measurements(), METHODS[method], "variance", order=asked)
        histograms = descend(descent, LEAST_SQUARES).histograms
        for parent in [None, *range(min(case.tree.n_families, 4))]:
            index, nodes, above = 0, slice(0, 1), None
            if parent is not None:
                index = case.tree.level_of(parent) + 1
                children, first = case.tree.children(parent), case.tree.level(index).start
                nodes, above = slice(children.start - first, children.stop - first), histograms[parent]
                if not len(above.cells):
                    continue
            family = descent.family(index, nodes, above)
            passes, _, solved = in_order(family, descent.first(index), solve_compiled)
            held: list[tuple[Query, FloatArray]] = []
            for number, (classes, one) in enumerate(passes):
                queries = list(descent.first(index)[: number + 1])
                query, matrix = queries[-1], told_apart(family, queries)
                assert len(matrix) <= one.x.shape[1]
                said = query.answers_of(classes.program.cells)
                answers = np.stack([np.bincount(said, row, query.n_answers) for row in one.x])
                again = stated(family, matrix, held)
                place = query.answers_of(family.cells)
                other = np.stack([np.bincount(place, row, query.n_answers) for row in again])
                np.testing.assert_allclose(answers, other, atol=2e-4 * np.sqrt(1 + np.abs(other).max()))
                held.append((query, answers))
                checked += 1
            last = stated(family, np.eye(len(family.cells)), held)
            np.testing.assert_allclose(solved.x, last, atol=2e-3 * np.sqrt(1 + last.max()))
            for query, answers in held:
                place = query.answers_of(family.cells)
                kept = np.stack([np.bincount(place, row, query.n_answers) for row in solved.x])
                np.testing.assert_allclose(kept, answers, atol=1e-7 * (1 + answers.max()))
    assert checked >= 4


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_they_are_certified_and_solved_again_on_nasty_trees(method: str) -> None:
    for seed in range(1, 9):
        case = random_tree(np.random.default_rng(seed), exact=seed % 3 == 0)
        names = list(dict.fromkeys(q.name for level in case.measured for q in level))
        for order in (names[:1], names[:2], names):
            estimate = td.project(case.measurements(), method, nonnegative=True, order=order)
            assert estimate.certificate.holds()
            assert all(list(first) == order for first in estimate.order.values())
    estimate = td.project(case.measurements(), method, nonnegative=True, order=names[:2])
    assert cross_check(case.measurements(), estimate, rng=np.random.default_rng(1)).agrees


def test_a_wrong_pass_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_tree(np.random.default_rng(12), exact=False, orders=2)
    whole = len(SCHEMA.possible_cells())
    method = METHODS["top-down"]
    right = descend(descent_of(case.measurements(), method, "variance", order=["total"]), LEAST_SQUARES)[0]

    def wrong(program: Family) -> Solved:
        """Every pass a tenth of a person off, the last one right."""
        solved = solve_compiled(program)
        if len(program.cells) > 1:
            return solved
        x = solved.x.copy()
        x[0] += 0.1
        if program.total is not None:
            x[1] -= 0.1
        return solved._replace(x=x)

    assert whole > 1
    monkeypatch.setitem(
        METHODS, "top-down", dataclasses.replace(method, families=dataclasses.replace(LEAST_SQUARES, solve=wrong))
    )
    for order in ({"level 0": ["total"]}, {"level 1": ["total"]}):
        with pytest.raises(ProjectionError, match="the certificate does not hold"):
            td.project(case.measurements(), "top-down", nonnegative=True, order=order)
    descent = descent_of(case.measurements(), METHODS["top-down"], "variance", order=["total"])
    assert not cross_check_families(descent, METHODS["top-down"], right).agrees


# -- what it gains ----------------------------------------------------------------------------------------------------


def mostly_empty(seed: int) -> tuple[td.Measurements, float]:
    """Answers of two levels to the total, an attribute and 96 cells, nearly all of them empty; and the true total."""
    tree = Tree.from_family_sizes([[4]])
    schema = td.Schema.from_mapping({"age": [f"{k}" for k in range(12)], "home": [f"{k}" for k in range(8)]})
    leaves = np.zeros((4, schema.n_cells))
    leaves[:, :3] = [[30, 9, 2], [50, 1, 0], [12, 7, 7], [3, 0, 1]]
    truth = tree.aggregate(leaves.T).T
    rng, answers = np.random.default_rng(seed), {}
    there = geography(tree)
    for level in there.levels:
        for name, deviation in (("total", 2.0), ("age", 4.0), ("detailed", 3.0)):
            value = td.Query.parse(name, schema).answers(truth[there.level_slice(level)])
            answers[level, name] = (value + np.rint(deviation * rng.normal(size=value.shape)), deviation**2)
    return td.Measurements.from_answers(there, schema, answers), float(truth[0].sum())


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_the_total_of_a_noisy_root_is_as_good_as_measured(method: str) -> None:
    errors = []
    for seed in range(60):
        measurements, truth = mostly_empty(seed)
        alone = measurements.at("level 0")[td.Query.parse("total", measurements.schema)].values[0, 0]
        first, at_once = (
            td.project_whole(measurements, method, order=order, source=td.SeededSource(seed)).answers(
                "level 0", "total"
            )[0, 0]
            for order in (None, [])
        )
        errors.append([alone - truth, first - truth, at_once - truth])
    measured_alone, first, at_once = np.array(errors, dtype=float).T
    assert abs(first.mean()) < 3 * first.std() / np.sqrt(60)
    assert np.sqrt((first**2).mean()) < 1.05 * np.sqrt((measured_alone**2).mean())
    assert at_once.mean() > 5 * at_once.std() / np.sqrt(60)


# -- what may be asked ------------------------------------------------------------------------------------------------


def test_the_total_goes_first_at_a_noisy_root_alone() -> None:
    measurements = measured(1)
    usual = td.project(measurements, "top-down", nonnegative=True)
    assert usual.order == {"level 0": ("total",)}
    assert (
        td.project(measurements, "top-down", nonnegative=True, order={"level 0": ["total"]}).values == usual.values
    ).all()
    at_once = td.project(measurements, "top-down", nonnegative=True, order=[])
    assert at_once.order == {}
    assert (at_once.values != usual.values).any()
    everywhere = td.project(measurements, "top-down", nonnegative=True, order=["total"])
    assert set(everywhere.order) == {"level 0", "level 1", "level 2"}
    assert (everywhere.values[0] == usual.values[0]).all()
    exact = measured(
        1, plan=td.Plan("discrete-gaussian", rho="0.1", shares=SHARES_BELOW, invariants={"level 0": ["total"]})
    )
    assert td.project(exact, "top-down", nonnegative=True).order == {}


SHARES_BELOW = {
    "level 0": {"sex": "0.2"},
    "level 1": {"age": "0.2", "detailed": "0.1"},
    "level 2": {"total": "0.2", "detailed": "0.3"},
}


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (["totl"], "unknown part of query 'totl'"),
        (["detailed", "sex"], "unknown query of order, which is not measured: 'sex'"),
        (["total", "age", "total"], "names 'total' twice"),
        ({"level 7": ["total"]}, "unknown level of order 'level 7'"),
        ("total", r"give a list of queries, such as \['total'\]"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(order: Any, says: str) -> None:
    measurements = measured(
        1, plan=td.Plan("discrete-gaussian", rho="0.1", shares={**SHARES_BELOW, "level 0": {"total": "0.2"}})
    )
    with pytest.raises(ConfigError, match=says):
        td.project(measurements, "top-down", nonnegative=True, order=order)
    with pytest.raises(ConfigError, match=says):
        td.project_whole(measurements, "top-down", order=order)


def test_a_method_or_a_release_that_takes_no_order_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"'gls' .* makes all queries|is for non-negative histograms"):
        td.project(measured(1), "gls", order=["total"])
    own = dataclasses.replace(
        METHODS["top-down"], name="mine", families=dataclasses.replace(LEAST_SQUARES, check_pass=None)
    )
    monkeypatch.setitem(METHODS, "mine", own)
    with pytest.raises(ConfigError, match=r"method 'mine' .* makes all queries non-negative at once; leave order out"):
        td.project(measured(1), "mine", nonnegative=True, order=["total"])
    assert td.project(measured(1), "mine", nonnegative=True).order == {}
    alone = td.Measurements.from_arrays(
        geography(Tree.from_family_sizes([[3]])), np.ones((4, 2)), 1.0, cells=["a", "b"]
    )
    with pytest.raises(ConfigError, match="is for non-negative histograms of several queries"):
        td.project(alone, "top-down", nonnegative=True, order=["detailed"])
    td.project(alone, "top-down", nonnegative=True, order=[])


def test_limits_are_kept_in_every_pass() -> None:
    measurements = measured(2)
    rows = {
        "geoid": [str(measurements.geography.geoid[-1])],
        "query": ["sex"],
        "answer": ["f"],
        "lower": [50],
        "upper": [60],
    }
    limits = AnswerLimits.from_table(rows, measurements.geography, measurements.schema)
    for order in (["total"], ["total", "age"], ["age", "sex"]):
        estimate = td.project(measurements, "gls-top-down", nonnegative=True, order=order, constraints=limits)
        assert 50 - 1e-9 <= estimate.answer("level 2", "sex").values[-1, 0] <= 60 + 1e-9
        assert cross_check(measurements, estimate, limits=limits).agrees


def test_where_a_parent_has_nothing_no_pass_is_made() -> None:
    case = random_tree(np.random.default_rng(3), exact=False)
    descent = descent_of(case.measurements(), METHODS["top-down"], "variance", order=["total"])
    nothing = Sparse(np.zeros(0, np.int64), np.zeros(0))
    ((found, lacking, programs),) = families._several(descent, LEAST_SQUARES, None, 1, [(slice(0, 1), nothing)])
    assert len(found[0].cells) == 0
    assert programs.variables == 0
    assert not lacking.gap.any()
