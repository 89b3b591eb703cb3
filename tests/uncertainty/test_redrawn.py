"""Noise that is added once more: of the same laws, on what has noise, and the same under the same key."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.noise import KeyedSource
from topdown.uncertainty.laws.known_noise import answer_noise, redrawn

KEY = KeyedSource(bytes(32))
SCHEMA = td.Schema.from_mapping({"age": ["minor", "adult"], "sex": ["f", "m"]})


def several(**plan: object) -> td.Measurements:
    rows = [
        (f"{s}{k:03d}", a, b, 5)
        for s in "ab"
        for k in range(400)
        for a in SCHEMA.attributes[0].categories
        for b in "fm"
    ]
    frame = pd.DataFrame(rows, columns=["leaf", "age", "sex", "n"])
    frame["state"] = frame["leaf"].str[0]
    geography = td.Geography.from_table(
        frame[["state", "leaf"]].drop_duplicates(), ["nation", "state", "leaf"], root="x"
    )
    counts = td.Counts.from_long(frame, geography, geoid="leaf", schema=SCHEMA, count="n")
    shares = {"nation": {"total": "1/4"}, "state": {"sex": "1/4"}, "leaf": {"sex": "1/4", "detailed": "1/4"}}
    return td.measure(counts, td.Plan("discrete-gaussian", shares=shares, **plan), source=td.SeededSource(3))  # type: ignore[arg-type]


@pytest.mark.parametrize("plan", [{"rho": "1/10"}, {"rho": "1/10", "invariants": {"state": ["total"]}}])
def test_of_several_queries_every_answer_gets_noise_of_its_law(plan: dict[str, object]) -> None:
    first = several(**plan)
    again = redrawn(first, answer_noise(first), KEY)
    for level, query in first.keys:
        before, after = first[level, query], again[level, query]
        added = after.values - before.values
        assert (after.variance == before.variance).all()
        assert added.dtype == np.int64
        if (before.variance == 0).all():
            assert not added.any()
        elif level == "leaf":
            assert added.var() == pytest.approx(before.variance.mean(), rel=0.2)
            assert abs(added.mean()) < 5 * (before.variance.mean() / added.size) ** 0.5
    assert again.keys == first.keys
    # Neither two queries nor two units share their noise.
    one, other = (again["leaf", q].values - first["leaf", q].values for q in ("sex", "detailed"))
    assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < 0.2
    assert abs(np.corrcoef(one[:-1, 0], one[1:, 0])[0, 1]) < 0.2


@pytest.mark.parametrize("mechanism", ["geometric", "laplace"])
def test_of_the_cells_alone_too_on_the_grid_that_they_were_drawn_on(mechanism: str) -> None:
    frame = pd.DataFrame({"state": ["a"] * 500 + ["b"] * 500, "leaf": [f"{k:03d}" for k in range(1000)], "n": 4})
    geography = td.Geography.from_table(frame, ["nation", "state", "leaf"], root="x")
    counts = td.Counts.from_table(frame, geography, geoid="leaf", cells=["n"])
    shares = {"state": "1/2", "leaf": "1/2"}
    first = td.measure(
        counts, td.Plan(mechanism, epsilon=1, shares=shares, invariants=["nation"]), source=td.SeededSource(1)
    )
    again = redrawn(first, answer_noise(first), KEY)
    added = again.values - first.values
    assert again.values.dtype == first.values.dtype
    assert added[0] == 0
    assert added[3:].var() == pytest.approx(first.node_variance[-1], rel=0.25)
    assert (again.values == redrawn(first, answer_noise(first), KeyedSource(bytes(32))).values).all()
    assert (again.values != redrawn(first, answer_noise(first), KeyedSource(b"1" * 32)).values).any()
