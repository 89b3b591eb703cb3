"""Arguments of Python's functions that cannot be meant: one sentence each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import topdown as td
from topdown.errors import TopdownError

Given = dict[str, Any]


@pytest.fixture
def given(frame: pd.DataFrame, geography: td.Geography, counts: td.Counts) -> Given:
    plan = td.Plan(epsilon=1)
    measurements = td.measure(counts, plan, source=td.SeededSource(1))
    estimate = td.project(measurements, "gls-top-down")
    release = td.round_counts(estimate, source=td.SeededSource(2))
    return {"frame": frame, "geography": geography, "counts": counts, "plan": plan, "measurements": measurements,
            "estimate": estimate, "release": release}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda g: td.measure(g["frame"], g["plan"]), "counts: give Counts, not DataFrame"),
        (lambda g: td.measure(g["counts"], None), "plan: give Plan, not NoneType"),
        (lambda g: td.project(g["counts"], "gls"), "measurements: give Measurements, not Counts"),
        (lambda g: td.round_counts(g["measurements"]), "estimate: give Estimate, not Measurements"),
        (lambda g: td.margins(g["release"], g["measurements"]), "measurements: give Measurements, not Release"),
        (lambda g: td.region(g["estimate"], {"01": 1}), "measurements: give Measurements, not Estimate"),
        (lambda g: td.region(g["measurements"], {"01": 1}, before=1), "before: give Measurements, not int"),
        (lambda g: td.simulate(g["measurements"], g["plan"], ["gls"], 2, 1), "counts: give Counts, not Measurements"),
        (lambda g: td.simulate(g["counts"], g["counts"], ["gls"], 2, 1), "plan: give Plan, not Counts"),
        (lambda g: g["geography"].index_of("01001"), "geoids: give a list, .'01001'., and not the text '01001'"),
        (lambda g: td.Geography.from_geoids("01", widths={"state": 2}), "geoids: give a list"),
        (lambda g: td.Geography.from_table(g["frame"], levels="county"), "levels: give a list, .'county'."),
        (lambda g: td.smallest_budget(g["plan"], g["geography"], "county: 5 at 90 %"), "targets: give a list"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: Given, call: Callable[[Given], object], says: str) -> None:
    with pytest.raises(TopdownError, match=says):
        call(given)
