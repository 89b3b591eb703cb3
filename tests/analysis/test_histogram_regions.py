"""Sums over units where several queries were measured: their variance is that of dense algebra."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

import topdown as td
from support.several_queries import LEAVES, SCHEMA, TREE, measured
from support.trees import geography
from topdown.analysis.regions import AnswerSum, Regions
from topdown.errors import ConfigError
from topdown.geography.tree import Tree

PLACES = geography(TREE).geoid


def dense(
    measurements: td.Measurements, tree: Tree = TREE, schema: td.Schema = SCHEMA
) -> tuple[np.ndarray, np.ndarray]:
    """Least squares (nodes x cells, flat) from all leaves' cells and its covariance, by matrices."""
    there, n_cells = measurements.geography, schema.n_cells
    leaves = tree.leaves
    below = tree.aggregate(np.eye(leaves.stop - leaves.start))  # (leaves, nodes): which leaf is below which node
    rows, values, weights = [], [], []
    for level, name in measurements.keys:
        query, one = td.Query.parse(name, schema), measurements[level, name]
        matrix = query.answers(np.eye(n_cells)).T  # (answers, cells)
        for k, node in enumerate(range(*there.level_slice(level).indices(there.n_nodes))):
            rows.append(np.kron(below[:, node], matrix))
            values.append(one.values[k])
            weights.append(1.0 / np.broadcast_to(one.variance[k], len(matrix)))
    a, y, w = np.concatenate(rows), np.concatenate(values), np.concatenate(weights)
    spread = np.linalg.inv(a.T @ (w[:, None] * a))
    every = np.kron(below.T, np.eye(n_cells))
    return every @ (spread @ (a.T @ (w * y))), every @ spread @ every.T


@pytest.mark.parametrize(
    ("weights", "minus", "query", "cell"),
    [
        ({3: 1, 5: 1, 7: 1}, {}, "total", None),
        ({1: 1, 6: 2}, {}, "age", "old"),
        ({4: 1}, {7: 1}, "sex", "f"),
        ({2: 1, 3: 1, 4: 1}, {}, "detailed", "m.young"),
        ({0: 1}, {}, "total", None),
    ],
)
def test_a_sum_has_the_variance_of_dense_algebra(
    weights: dict[int, float], minus: dict[int, float], query: str, cell: str | None
) -> None:
    measurements = measured(1)
    asked = td.Query.parse(query, SCHEMA)
    labels = asked.labels()
    label = cell if cell is None or cell in labels else labels[3]
    answer = 0 if label is None else labels.index(label)
    row = asked.answers(np.eye(SCHEMA.n_cells))[:, answer]
    functional = np.zeros((TREE.n_nodes, SCHEMA.n_cells))
    for node, weight in weights.items():
        functional[node] += weight * row
    for node, weight in minus.items():
        functional[node] -= weight * row
    x, spread = dense(measurements)
    found = td.region(
        measurements,
        {PLACES[node]: weight for node, weight in weights.items()},
        query=query,
        cell=label,
        minus={PLACES[node]: weight for node, weight in minus.items()} or None,
    )
    flat = functional.ravel()
    assert found.estimate == pytest.approx(flat @ x, rel=1e-9, abs=1e-6)
    assert found.sd**2 == pytest.approx(flat @ spread @ flat, rel=1e-9)
    assert found.lower <= (found.estimate if minus else max(found.estimate, 0.0)) <= found.upper


def test_one_unit_has_the_deviation_of_its_margin() -> None:
    measurements = measured(2)
    margins = td.margins(measurements).query("level == 'level 1' and query == 'age' and cell == 'old'")
    for _, row in margins.iterrows():
        found = td.region(measurements, {row["geoid"]: 1}, query="age", cell="old")
        assert found.estimate == pytest.approx(row["estimate"])
        assert found.sd == pytest.approx(row["sd"])


def test_what_is_exact_above_takes_no_part_in_the_error() -> None:
    plan = td.Plan(
        "discrete-gaussian",
        rho="0.1",
        shares={"level 1": {"age": "0.5"}, "level 2": {"detailed": "0.5"}},
        invariants={"level 0": ["total"]},
    )
    measurements = measured(3, plan=plan)
    whole = td.region(measurements, dict.fromkeys(PLACES[TREE.leaves], 1))
    assert (whole.sd, whole.note) == (0, "exact")
    assert whole.estimate == LEAVES.sum()
    rest = td.region(measurements, dict.fromkeys(PLACES[TREE.leaves][1:], 1))
    first = td.region(measurements, {PLACES[TREE.leaves.start]: 1})
    assert rest.sd == pytest.approx(first.sd)
    assert rest.estimate == pytest.approx(LEAVES.sum() - first.estimate)


@pytest.mark.parametrize(
    ("part", "query", "cell", "whole"),
    [
        ({3: 1, 5: 1}, "age", "old", "total"),
        ({1: 1}, "detailed", "m.young", "total"),
        ({4: 1, 3: 1}, "sex", "f", {1: 1}),
        ({3: 1}, "total", None, {0: 1}),
        ({6: 1}, "detailed", "f.old", {6: 1, 7: 1, 3: 2}),
    ],
)
def test_a_share_has_fiellers_set_of_dense_algebra(
    part: dict[int, float], query: str, cell: str | None, whole: str | dict[int, float]
) -> None:
    measurements = measured(1)
    x, spread = dense(measurements)
    query_of_whole, of_whole = ("total", part) if isinstance(whole, str) else (query, whole)
    functionals = []
    for name, label, weights in ((query, cell, part), (query_of_whole, cell, of_whole)):
        asked = td.Query.parse(name, SCHEMA)
        label = asked.labels()[3] if name == "detailed" else label
        row = asked.answers(np.eye(SCHEMA.n_cells))[:, asked.labels().index(label) if asked.n_answers > 1 else 0]
        functional = np.zeros((TREE.n_nodes, SCHEMA.n_cells))
        for node, weight in weights.items():
            functional[node] += weight * row
        functionals.append(functional.ravel())
    both = np.stack(functionals)
    (a, b), errors = both @ x, both @ spread @ both.T
    label = td.Query.parse(query, SCHEMA).labels()[3] if query == "detailed" else cell
    found = td.region(
        measurements,
        {PLACES[node]: weight for node, weight in part.items()},
        query=query,
        cell=label,
        share_of=whole if isinstance(whole, str) else {PLACES[node]: weight for node, weight in whole.items()},
        confidence=0.95,
    )
    assert found.estimate == pytest.approx(a / b, rel=1e-8)
    shares = np.linspace(0.0, 1.0, 200_001)
    sd = np.sqrt(errors[0, 0] - 2.0 * shares * errors[0, 1] + shares**2 * errors[1, 1])
    kept = shares[np.abs(a - shares * b) <= NormalDist().inv_cdf(0.975) * sd]
    assert 0 < len(kept) < len(shares)
    assert [found.lower, found.upper] == pytest.approx([kept.min(), kept.max()], abs=2e-4)


@pytest.mark.parametrize("shares", [None, {"level 0": "0.1", "level 1": "0.5", "level 2": "0.4"}])
@pytest.mark.parametrize(("part", "whole"), [(("detailed", 4), ("sex", 1)), (("sex", 0), ("total", 0))])
def test_a_share_may_be_of_any_answer_that_holds_the_part(
    shares: dict[str, str] | None, part: tuple[str, int], whole: tuple[str, int]
) -> None:
    plan = None if shares is None else td.Plan("discrete-gaussian", rho="0.1", shares=shares)
    measurements = measured(4, plan=plan)
    x, spread = dense(measurements)
    nodes, amounts = np.array([1, 5, 6]), np.array([1.0, 2.0, 1.0])
    asked = [AnswerSum((nodes, amounts), td.Query.parse(query, SCHEMA), answer) for query, answer in (part, whole)]
    functionals = np.zeros((2, TREE.n_nodes, SCHEMA.n_cells))
    for functional, one in zip(functionals, asked, strict=True):
        functional[nodes] = amounts[:, None] * one.query.answers(np.eye(SCHEMA.n_cells))[:, one.answer]
    both = functionals.reshape(2, -1)
    errors = both @ spread @ both.T
    ratio, shapes = Regions(measurements).share(*asked)
    assert ratio == pytest.approx([*(both @ x), errors[0, 0], errors[1, 1], errors[0, 1]], rel=1e-8)
    assert len(shapes(np.array([0.0, 0.3, 1.0]))) == 3


def test_a_share_of_what_it_is_no_part_of_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="a share is of the same answer at other units, or, at the same units, of the total"
    ):
        Regions(measured(1)).share(*(
            AnswerSum((np.array([node]), np.ones(1)), td.Query.parse(query, SCHEMA), 1)
            for node, query in ((3, "age"), (3, "sex"))
        ))  # fmt: skip


def test_noise_that_is_nearly_never_there_has_a_margin() -> None:
    """Its law has its steps: the interval is of whole numbers beside the estimate, and narrow."""
    found = td.region(measured(1, "geometric", epsilon="30"), {PLACES[3]: 1})
    assert found.lower - 1 < found.estimate < found.upper + 1
    assert found.upper - found.lower <= 4
