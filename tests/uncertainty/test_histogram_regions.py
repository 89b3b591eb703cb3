"""Sums over units where several queries were measured: their variance is that of dense algebra."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.several_queries import LEAVES, SCHEMA, TREE, measured
from support.trees import geography
from topdown.errors import ConfigError
from topdown.geography.tree import Tree
from topdown.uncertainty.histogram_regions import HistogramSums

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


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="margins of shares are not known where several queries"):
        td.region(measured(1), {PLACES[3]: 1}, share_of={PLACES[0]: 1})
    with pytest.raises(ConfigError, match="margins are known for Gaussian noise"):
        td.region(measured(1, "geometric", epsilon="1"), {PLACES[3]: 1})


RECODED = td.Schema.from_mapping(
    {"sex": ["f", "m"], "age": ["young", "old", "oldest"]},
    recodes={"age": {"grown": {"no": ["young"], "yes": ["old", "oldest"]}}},
)
ONE_CHILD = Tree.from_family_sizes([[2], [1, 3]])


def of_groups_and_only_children(seed: int) -> td.Measurements:
    """Groups of unequal sizes, so that a block is no scalar; a unit whose child gave it its share."""
    there = geography(ONE_CHILD)
    frame = pd.DataFrame(LEAVES[:4], columns=list(RECODED.cells()))
    frame["geoid"] = list(there.geoid[ONE_CHILD.leaves])
    counts = td.Counts.from_table(frame, there, geoid="geoid", cells=list(RECODED.cells()), schema=RECODED)
    shares = {
        "level 0": {"grown": "0.1", "sex": "0.1"},
        "level 1": {"grown": "0.2", "detailed": "0.1"},
        "level 2": {"grown * sex": "0.2", "total": "0.1", "detailed": "0.2"},
    }
    plan = td.Plan("discrete-gaussian", rho="0.1", shares=shares, only_child="move-up")
    return td.measure(counts, plan, source=td.SeededSource((7, seed)))


@pytest.mark.parametrize("query", ["total", "grown", "age * sex", "detailed"])
def test_many_sums_at_once_are_each_that_of_dense_algebra(query: str) -> None:
    measurements = of_groups_and_only_children(1)
    asked = td.Query.parse(query, RECODED)
    sums = [({3: 1.0}, 1.0), ({3: 1.0, 4: 1.0}, 1.0), ({4: 1.0, 5: 1.0, 6: 1.0}, 1.0), ({1: 0.5, 6: -2.0, 0: 1.0}, 1.0)]
    rows = [(np.array(list(one)), np.array(list(one.values()))) for one, _ in sums]
    values, variance = HistogramSums(measurements).sums(rows, asked)
    x, spread = dense(measurements, ONE_CHILD, RECODED)
    for row, (nodes, amounts) in enumerate(rows):
        for answer in range(asked.n_answers):
            functional = np.zeros((ONE_CHILD.n_nodes, RECODED.n_cells))
            functional[nodes] = amounts[:, None] * asked.answers(np.eye(RECODED.n_cells))[:, answer]
            flat = functional.ravel()
            assert values[row, answer] == pytest.approx(flat @ x, rel=1e-9, abs=1e-6)
            assert variance[row, answer] == pytest.approx(flat @ spread @ flat, rel=1e-9)


def test_a_sum_that_was_not_measured_is_said_to_be_undetermined() -> None:
    plan = td.Plan(
        "discrete-gaussian", rho="0.1", shares={"level 0": "0", "level 1": {"age": "0.5"}, "level 2": {"total": "0.5"}}
    )
    measurements = measured(3, plan=plan)
    found = td.region(measurements, {PLACES[3]: 1}, query="age", cell="old")
    assert (found.sd, found.note) == (np.inf, "not determined by what was measured")
    family = dict.fromkeys(PLACES[TREE.children(1)], 1)
    assert td.region(measurements, family, query="age", cell="old").sd < np.inf
