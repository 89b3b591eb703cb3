from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import topdown as td
from support.trees import trees
from topdown.confidential.counts import Counts
from topdown.errors import CountsError, DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree

GEOIDS = ["01001", "01003", "02001"]
EXPECTED = [[30, 7], [30, 3], [0, 4], [10, 1], [20, 2], [0, 4]]


def count(geography: Geography, values: Any, geoids: Any = GEOIDS) -> Counts:
    return Counts.from_table({"county": geoids, "people": values}, geography, geoid="county", cells=["people"])


def leaves(counts: Counts) -> list[int]:
    return counts.values[counts.geography.tree.leaves, 0].tolist()


# -- every way in ---------------------------------------------------------------------------------------------------


def as_parquet(frame: pd.DataFrame, folder: Path) -> Path:
    pq.write_table(pa.Table.from_pandas(frame), folder / "t.parquet")
    return folder / "t.parquet"


def as_csv(frame: pd.DataFrame, folder: Path) -> str:
    frame.to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


def as_zipped_csv(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_csv(folder / "t.csv.gz", index=False)
    return folder / "t.csv.gz"


@pytest.mark.parametrize(
    "form",
    [
        lambda frame, _: frame,
        lambda frame, _: pa.Table.from_pandas(frame),
        lambda frame, _: {name: frame[name].tolist() for name in frame},
        lambda frame, _: {name: frame[name].to_numpy() for name in frame},
        lambda frame, _: frame.astype({"adults": "Int64", "children": "float32", "county": "category"}),
        lambda frame, _: frame.astype({"adults": str, "children": "uint8"}),
        lambda frame, _: frame.sample(frac=1.0, random_state=3),
        as_parquet,
        as_csv,
        as_zipped_csv,
    ],
)
def test_every_form_of_table(
    frame: pd.DataFrame, geography: Geography, form: Callable[[pd.DataFrame, Path], Any], tmp_path: Path
) -> None:
    table = form(frame, tmp_path)
    counts = Counts.from_table(table, geography, geoid="county", cells=["adults", "children"])
    assert counts.values.dtype == np.int64
    assert counts.values.tolist() == EXPECTED
    assert counts.cells == ("adults", "children")
    assert counts.geography is geography


@given(trees(), st.randoms(use_true_random=False))
def test_levels_are_aggregated_in_any_order_of_rows(tree: Tree, random: Any) -> None:
    names = [f"n{node:05d}" for node in range(tree.n_nodes)]
    geography = Geography(tuple(f"l{k}" for k in range(tree.n_levels)), tree, pa.array(names))
    rows = [(names[node], random.randrange(10**9)) for node in range(tree.leaves.start, tree.n_nodes)]
    wanted = tree.aggregate(np.array([value for _, value in rows]))
    rows += [(names[node], int(wanted[node])) for node in range(tree.leaves.start) if random.random() < 0.5]
    random.shuffle(rows)
    counts = Counts.from_table(
        {"unit": [name for name, _ in rows], "n": [value for _, value in rows]}, geography, geoid="unit", cells=["n"]
    )
    assert counts.values[:, 0].tolist() == wanted.tolist()


def test_a_path_of_names_identifies_a_row() -> None:
    table = {"state": ["OHIO", "OHIO", "ILLINOIS"], "county": ["LAKE", "ERIE", "LAKE"], "n": ["1", "2", "3"]}
    geography = Geography.from_table(table, ["nation", "state", "county"], root="US", separator="|")
    counts = Counts.from_table(table, geography, geoid=["state", "county"], cells="n", separator="|")
    assert counts.values[:, 0].tolist() == [6, 3, 3, 3, 2, 1]


@pytest.mark.parametrize(
    ("values", "read"),
    [
        (["1,234", " 5 ", "+6"], [1234, 5, 6]),
        (["1,234,567", "007", "5."], [1234567, 7, 5]),
        (["3.0", "0", "12.0000"], [3, 0, 12]),
        (["1,234", 2, 3.0], [1234, 2, 3]),
        ([1.0, 2.0, 3.0], [1, 2, 3]),
        ([Decimal(1), Decimal("2.0"), Decimal(3)], [1, 2, 3]),
        ([2**53 - 3, 1, 2], [2**53 - 3, 1, 2]),
        (["9007199254740989", "1", "2"], [2**53 - 3, 1, 2]),
        (np.array([1, 2, 3], dtype=np.uint64), [1, 2, 3]),
        (np.array(["1", "2", "3"], dtype=np.dtypes.StringDType()), [1, 2, 3]),
        (pa.chunked_array([[1, 2], [3]], type=pa.int8()), [1, 2, 3]),
        (pd.Categorical(["1", "2", "1"]), [1, 2, 1]),
    ],
)
def test_whole_numbers_in_any_writing(geography: Geography, values: Any, read: list[int]) -> None:
    assert leaves(count(geography, values)) == read


# -- what is no table of counts -------------------------------------------------------------------------------------

WRONG = r"county '01003', cell 'people' .row 1.: the value "


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([1, -2, 3], WRONG + "is negative; counts are 0 or more"),
        (["1", "-2", "3"], WRONG + "is negative"),
        ([1.0, -2.0, 3.0], WRONG + "is negative"),
        ([1, -(2**63), 3], WRONG + "is negative"),
        ([1, 2.5, 3], WRONG + "is a fraction; counts are whole"),
        (["1", "2.50", "3"], WRONG + "is a fraction"),
        ([Decimal(1), Decimal("2.5"), Decimal(3)], WRONG + "is a fraction"),
        ([1, None, 3], WRONG + "is missing; .*0 where nothing was counted"),
        ([1.0, float("nan"), 3.0], WRONG + "is missing"),
        (pa.array([1.0, float("nan"), 3.0]), WRONG + "is missing"),
        (["1", None, "3"], WRONG + "is missing"),
        (["1", " ", "3"], WRONG + "is missing"),
        (["1", pd.NA, 3], WRONG + "is missing"),
        ([1.0, float("inf"), 3.0], WRONG + "is infinite"),
        (["1", "Infinity", "3"], WRONG + "'Infinity' is infinite"),
        (["1", "two", "3"], WRONG + "'two' is not a whole number; .*1,234"),
        (["1", "12,34", "3"], WRONG + "is not a whole number"),
        (["1", "1e3", "3"], WRONG + "is not a whole number"),
        ([1, 2**53 + 1, 3], WRONG + r"is more than 2\^53"),
        ([1, 2**63 - 1, 3], WRONG + r"is more than 2\^53"),
        (np.array([1, 2**63 + 1, 3], dtype=np.uint64), WRONG + r"is more than 2\^53"),
        ([1, 2**70, 3], WRONG + r"is more than 2\^53"),
        ([1.0, 2.0**60, 3.0], WRONG + r"is more than 2\^53"),
        (["1", "9007199254740993", "3"], WRONG + r"is more than 2\^53"),
        (["1", "99999999999999999999", "3"], WRONG + r"is more than 2\^53"),
        ([Decimal(1), Decimal(2**53 + 1), Decimal(3)], WRONG + r"is more than 2\^53"),
        ([-1, -2, 3], r"county '01001', cell 'people' .row 0.: the value is negative; counts are 0 or more"),
        ([True, False, True], "column 'people' holds bool"),
        (pd.to_datetime(["2020", "2021", "2022"]), "column 'people' holds timestamp"),
        ([1, 2], "column 'people' has 2 values for 3 GEOIDs"),
    ],
)
def test_what_is_not_a_count_is_refused_by_name(geography: Geography, values: Any, says: str) -> None:
    with pytest.raises(CountsError, match=says):
        count(geography, values)


@pytest.mark.parametrize("values", [[2**53, 1, 0], [2**52, 2**52, 1], [2**53, 2**53, 2**53]])
def test_a_total_beyond_2_to_the_53_is_refused(geography: Geography, values: list[int]) -> None:
    with pytest.raises(CountsError, match=r"nation 'US', cell 'people': the total is more than 2\^53"):
        count(geography, values)


def test_a_total_beyond_2_to_the_63_is_refused_and_does_not_wrap_round() -> None:
    geography = Geography.from_geoids([f"{k:04d}" for k in range(2048)], {"county": 4})
    with pytest.raises(CountsError, match=r"the total is more than 2\^53"):
        count(geography, [2**53] * 2048, [f"{k:04d}" for k in range(2048)])


@pytest.mark.parametrize(
    ("geoids", "says"),
    [
        ([1001, 1003, 2001], "column 'county' holds numbers .*zero-padded strings"),
        (["1001", "01003", "02001"], "row 0: GEOID '1001' is not in the geography.*leading zero was lost: '01001'"),
        (["01001", "01003 ", "02001"], "row 1: GEOID '01003 ' is not in the geography.*remove the blanks"),
        (["01001", "01003", "09009"], "row 2: GEOID '09009' is not in the geography; correct it"),
        (["01001", None, "02001"], "row 1: the GEOID in column 'county' is missing"),
        (["01001", "01001", "02001"], "county '01001': duplicate GEOID, there are several rows"),
        (["01001", "01003", "02"], "county '02001': the table has no row for it; add"),
    ],
)
def test_rows_that_do_not_match_the_geography_are_refused_by_name(
    geography: Geography, geoids: list[Any], says: str
) -> None:
    with pytest.raises(CountsError, match=says):
        count(geography, [1, 2, 3], geoids)


def test_extra_and_absent_rows_are_refused(geography: Geography) -> None:
    with pytest.raises(CountsError, match="row 3: GEOID '03001' is not in the geography"):
        count(geography, [1, 2, 3, 4], [*GEOIDS, "03001"])
    with pytest.raises(CountsError, match=r"county '01003': the table has no row for it; add the row, with zeros"):
        count(geography, [1], GEOIDS[:1])


def test_rows_of_inner_units_must_agree_with_their_leaves(geography: Geography) -> None:
    geoids = ["US", *GEOIDS, "01"]
    assert leaves(count(geography, [6, 1, 2, 3, 3], geoids)) == [1, 2, 3]
    with pytest.raises(CountsError, match=r"state '01', cell 'people': its row contradicts its leaves, it is more"):
        count(geography, [6, 1, 2, 3, 7], geoids)
    with pytest.raises(CountsError, match=r"nation 'US', cell 'people': its row contradicts its leaves, it is less"):
        count(geography, [5, 1, 2, 3, 3], geoids)


def test_columns_that_are_not_there_or_there_twice_are_refused(frame: pd.DataFrame, geography: Geography) -> None:
    for geoid, cells, says in [
        ("county", ["seniors"], "no column 'seniors'; it has .*'adults'"),
        ("fips", ["adults"], "no column 'fips'"),
        ("county", [], "name at least one column"),
        ("county", ["adults", "adults"], "each only once"),
    ]:
        with pytest.raises(CountsError, match=says):
            Counts.from_table(frame, geography, geoid=geoid, cells=cells)
    twice = frame.rename(columns={"children": "adults"})
    with pytest.raises(CountsError, match="two columns of the table are called 'adults'"):
        Counts.from_table(twice, geography, geoid="county", cells=["adults"])
    with pytest.raises(CountsError, match="different lengths"):
        Counts.from_table({"a": ["x"], "b": ["y", "z"], "n": [1]}, geography, geoid=["a", "b"], cells=["n"])


def test_a_csv_names_its_file_and_its_columns(frame: pd.DataFrame, geography: Geography, tmp_path: Path) -> None:
    path = as_csv(frame, tmp_path)
    with pytest.raises(DataError, match=r"t\.csv: no column 'seniors'; it has 'nation'"):
        Counts.from_table(path, geography, geoid="county", cells=["seniors"])


def test_fractions_are_numbers_as_they_are_written(geography: Geography) -> None:
    assert leaves(count(geography, [Fraction(4), Fraction(6, 2), Fraction(0)])) == [4, 3, 0]
    with pytest.raises(CountsError, match="the value is not a whole number"):
        count(geography, [Fraction(4), Fraction(5, 2), Fraction(0)])


# -- confidential ---------------------------------------------------------------------------------------------------


def test_its_repr_shows_no_value(geography: Geography) -> None:
    counts = count(geography, [987654321, 123454321, 555555])
    assert repr(counts) == str(counts) == f"{counts}" == "Counts(6 nodes x 1 cells, confidential)"


def test_it_cannot_be_changed(counts: td.Counts) -> None:
    with pytest.raises(ValueError, match="read-only"):
        counts.values[0, 0] = 1
    with pytest.raises(AttributeError):
        counts.cells = ("a", "b")  # type: ignore[misc]
