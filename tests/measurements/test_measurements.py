from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import topdown as td
from topdown.errors import DataError
from topdown.measurements.measurements import Measurements

VALUES = [30.0, 29.5, 1.0, 9.0, 21.0, -2.0]


@pytest.mark.parametrize(
    ("variance", "per_node"),
    [
        (2, [2, 2, 2, 2, 2, 2]),
        ([1, 2, 3], [1, 2, 2, 3, 3, 3]),
        ({"nation": 0, "state": 2, "county": 3.5}, [0, 2, 2, 3.5, 3.5, 3.5]),
        ({"county": 3, "nation": math.inf, "state": 2}, [math.inf, 2, 2, 3, 3, 3]),
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]),
        (np.arange(6)[:, None], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_every_form_of_variance(geography: td.Geography, variance: Any, per_node: list[float]) -> None:
    measurements = Measurements.from_arrays(geography, VALUES, variance)
    assert measurements.values.shape == measurements.variance.shape == (6, 1)
    assert measurements.variance[:, 0].tolist() == per_node
    assert measurements.cells == ("count",)
    assert measurements.fit_for_release is False
    assert measurements.plan is None


def test_a_variance_per_node_and_cell(geography: td.Geography) -> None:
    spread = np.arange(12.0).reshape(6, 2)
    measurements = Measurements.from_arrays(geography, np.ones((6, 2)), spread, cells=["a", "b"])
    assert measurements.variance.tolist() == spread.tolist()
    assert measurements.cells == ("a", "b")


def test_measurements_are_keyed_by_level_and_query(geography: td.Geography) -> None:
    measurements = Measurements.from_arrays(geography, VALUES, [1, 2, 3])
    assert measurements.keys == (("nation", "detailed"), ("state", "detailed"), ("county", "detailed"))
    level, query, values, variance = measurements["state", "detailed"]
    assert (level, query) == ("state", "detailed")
    assert values[:, 0].tolist() == [29.5, 1.0]
    assert variance[:, 0].tolist() == [2.0, 2.0]
    with pytest.raises(KeyError, match="no query 'age'"):
        measurements["state", "age"]


def test_the_tidy_table_leaves_out_what_was_not_measured(geography: td.Geography) -> None:
    measurements = Measurements.from_arrays(geography, [np.nan, *VALUES[1:]], [np.inf, 0, 3])
    frame = measurements.to_frame()
    assert list(frame) == ["geoid", "level", "query", "cell", "value", "variance"]
    assert frame["geoid"].tolist() == geography.geoid.tolist()[1:]
    assert frame["value"].tolist() == VALUES[1:]
    assert frame["variance"].tolist() == [0.0, 0.0, 3.0, 3.0, 3.0]
    assert set(frame["query"]) == {"detailed"}


def test_whole_numbers_stay_whole(geography: td.Geography) -> None:
    assert Measurements.from_arrays(geography, [1, 2, 3, 4, 5, 6], 1.0).values.dtype.kind == "i"


@pytest.mark.parametrize(
    ("values", "variance", "says"),
    [
        ([1, 2, 3], 1, r"values have shape \(3,\); give \(6,\) or \(6, cells\)"),
        (np.ones((2, 6)), 1, r"values have shape \(2, 6\)"),
        (["a"] * 6, 1, "dtype"),
        ([*VALUES[:5], np.nan], 1, "county '02001', cell 'count': value nan is not a finite number"),
        ([*VALUES[:4], np.inf, 0], 1, "county '01003', cell 'count': value inf is not a finite number"),
        ([*VALUES[:5], 2.0**54], 1, r"county '02001'.*at most 2\^53"),
        ([0, 0, 0, 0, 0, 2**53 + 1], 1, r"county '02001'.*9007199254740993.*at most 2\^53"),
        ([0.0, 0, 0, 0, 0, 2**53 + 1], 1, r"values beyond 2\^53 are mixed with floats"),
        ([[0]] * 5 + [[0, 0]], 1, "rows of values have different lengths"),
        ([0, 0, 0, 0, 0, -(2**63)], 1, r"county '02001'.*-9223372036854775808.*at most 2\^53"),
        (VALUES, -1, "nation 'US': variance -1.0 is not a number from 0 to inf"),
        (VALUES, [1, 1, np.nan], "county '01001': variance nan"),
        (VALUES, [1, 2], r"variance has shape \(2,\); give one number, 3 .per level., 6 .per node. or \(6, 1\)"),
        (VALUES, {"nation": 1, "state": 1}, "variance names 'nation', 'state', and the levels are .*county"),
        (VALUES, {"nation": 1, "state": 1, "county": 1, "tract": 1}, "variance names .*'tract'"),
        (VALUES, np.inf, "no node was measured"),
    ],
)  # fmt: skip
def test_what_is_no_measurement_is_refused_by_name(
    geography: td.Geography, values: Any, variance: Any, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        Measurements.from_arrays(geography, values, variance)


@pytest.mark.parametrize("cells", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_every_column_has_its_own_name(geography: td.Geography, cells: list[str]) -> None:
    with pytest.raises(DataError, match="2 columns of values"):
        Measurements.from_arrays(geography, np.ones((6, 2)), 1.0, cells=cells)


def test_the_callers_arrays_are_not_shared(geography: td.Geography) -> None:
    values, variance = np.array(VALUES), np.ones(6)
    measurements = Measurements.from_arrays(geography, values, variance)
    values[:], variance[:] = 0.0, 9.0
    assert measurements.values[:, 0].tolist() == VALUES
    assert measurements.variance[:, 0].tolist() == [1.0] * 6


def test_narrow_numbers_are_wide_in_the_table(geography: td.Geography) -> None:
    narrow = td.Measurements.from_arrays(geography, np.arange(geography.n_nodes, dtype=np.int32), 1.0)
    assert narrow.to_arrow().schema.field("value").type == "int64"
    schema = td.Schema.from_mapping({"sex": ["f", "m"]})
    leaf = geography.levels[-1]
    answers = {
        (leaf, query): (np.zeros((geography.tree.n_leaves, n), np.int16), 1.0)
        for query, n in (("total", 1), ("sex", 2))
    }
    assert td.Measurements.from_answers(geography, schema, answers).to_arrow().schema.field("value").type == "int64"


@pytest.mark.parametrize("which", ["values", "variance"])
def test_what_a_mask_hides_is_not_read(geography: td.Geography, which: str) -> None:
    given = {"values": VALUES, "variance": np.ones(len(VALUES))}
    masked = np.ma.array(given[which], mask=np.arange(len(VALUES)) == 1)
    with pytest.raises(DataError, match=r"masked; give numbers, and variance inf where nothing was measured"):
        Measurements.from_arrays(geography, **given | {which: masked})
    whole = Measurements.from_arrays(geography, **given | {which: np.ma.array(given[which])})
    assert whole.values[:, 0].tolist() == list(VALUES)
