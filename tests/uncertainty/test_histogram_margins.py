"""Margins where several queries were measured: every answer is covered."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.several_queries import LEAVES, SCHEMA, TREE, measured
from support.trees import geography


def truth(frame: pd.DataFrame) -> np.ndarray:
    there, cells = geography(TREE), TREE.aggregate(LEAVES.T).T
    found = []
    for geoid, query, cell in zip(frame["geoid"], frame["query"], frame["cell"], strict=True):
        asked = td.Query.parse(query, SCHEMA)
        answers = asked.answers(cells[there.index_of([geoid])])[0]
        found.append(answers[asked.labels().index(cell)])
    return np.array(found)


@pytest.mark.system
def test_every_answer_is_covered_as_often_as_stated() -> None:
    times = 80
    first = td.margins(measured(0))
    expected, hits = truth(first), np.zeros(len(first))
    for seed in range(times):
        found = td.margins(measured(seed))
        hits += ((found["lower"] <= expected) & (expected <= found["upper"])).to_numpy()
    assert hits.min() / times >= 0.9 - 5 * np.sqrt(0.09 / times)
    assert (hits[expected > 50] < times).all()
    assert list(first.columns) == ["geoid", "level", "query", "cell", "estimate", "sd", "lower", "upper"]
    keys = [("level 0", "sex"), ("level 0", "total"), ("level 1", "age"), ("level 1", "detailed")]
    assert sorted(set(zip(first["level"], first["query"], strict=True)))[:4] == keys
    assert len(first) == 1 + 2 + 2 * (3 + 6) + 5 * (1 + 6)


def test_estimates_and_deviations_are_those_of_least_squares() -> None:
    found = td.margins(measured(3), confidence=0.95)
    estimate = td.project(measured(3), "gls")
    rows = found[(found["level"] == "level 1") & (found["query"] == "age")]
    expected = estimate.answer("level 1", "age")
    np.testing.assert_allclose(rows["estimate"], expected.values.ravel(), atol=1e-9)
    np.testing.assert_allclose(rows["sd"] ** 2, np.asarray(expected.variance).ravel(), rtol=1e-9)


def test_released_answers_are_within_and_together_they_are_longer() -> None:
    measurements = measured(3)
    release = td.project_whole(measurements, "gls-top-down", source=td.SeededSource(1))
    found = td.margins(measurements, release)
    rows = found[(found["level"] == "level 2") & (found["query"] == "detailed")]
    answers = release.answers("level 2", "detailed").ravel()
    assert ((rows["lower"] <= answers) & (answers <= rows["upper"])).all()
    together = td.margins(measurements, simultaneous=True)
    plain = td.margins(measurements)
    assert (together["upper"] >= plain["upper"]).all()
    assert (together["upper"] > plain["upper"]).mean() > 0.9


def test_under_geometric_noise_every_answer_is_covered_as_often_as_stated() -> None:
    times = 80
    first = td.margins(measured(0, "geometric", epsilon="1"))
    expected, hits = truth(first), np.zeros(len(first))
    for seed in range(times):
        found = td.margins(measured(seed, "geometric", epsilon="1"))
        hits += ((found["lower"] <= expected) & (expected <= found["upper"])).to_numpy()
    assert hits.min() / times >= 0.9 - 5 * np.sqrt(0.09 / times)
    assert hits[expected > 50].mean() / times < 0.97
