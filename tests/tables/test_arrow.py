"""Whatever speaks Arrow goes in where a DataFrame does, and comes out as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import topdown as td
from topdown.errors import DataError
from topdown.research.pmse.columns import as_frame

LEVELS = ["nation", "state", "county"]


class Stream:
    """A table of which nothing is known but that it speaks Arrow."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.table(frame)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def relation(frame: pd.DataFrame) -> Any:
    return duckdb.connect().from_arrow(pa.table(frame))


TABLES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": pl.from_pandas, "duckdb": relation, "a stream": Stream, "arrow": pa.table, "pandas": lambda f: f
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_any_table_that_speaks_arrow_gives_the_same_geography_and_counts(kind: str, frame: pd.DataFrame) -> None:
    table = TABLES[kind](frame)
    geography = td.Geography.from_table(table, LEVELS, name="county")
    assert geography == td.Geography.from_table(frame, LEVELS)
    counts = td.Counts.from_table(TABLES[kind](frame), geography, geoid="county", cells=["adults", "children"])
    assert counts.values[0].tolist() == [30, 7]
    assert as_frame(TABLES[kind](frame)).shape == frame.shape


def test_a_column_of_polars_is_a_column_of_codes(frame: pd.DataFrame) -> None:
    codes = pl.Series(frame["county"].tolist())
    geography = td.Geography.from_geoids(codes, {"state": 2, "county": 5}, names=codes)
    assert geography.identifiers.to_pylist() == ["US", "01", "02", "01001", "01003", "02001"]
    assert geography.index_of(codes).tolist() == [3, 4, 5]


def test_what_speaks_arrow_and_is_no_table_is_refused() -> None:
    with pytest.raises(DataError, match=r"a Series is not a table in Arrow"):
        td.Geography.from_table(pl.Series(["a"]), LEVELS)


def test_results_come_out_as_arrow_with_the_columns_of_the_frame(counts: td.Counts) -> None:
    measurements = td.measure(counts, td.Plan(epsilon=1), td.SeededSource(1))
    estimate = td.project(measurements)
    for thing in (measurements, estimate, td.round_counts(td.project(measurements, "joint"))):
        table = thing.to_arrow()
        assert table.column_names == list(thing.to_frame())
        assert table.to_pandas().equals(thing.to_frame())
        assert pl.from_arrow(table).height == table.num_rows
        assert pl.DataFrame(thing).to_arrow().equals(pl.from_arrow(table).to_arrow())
        assert pa.table(thing).equals(table)
        count = duckdb.connect().from_arrow(thing).aggregate("count(*)").fetchall()
        assert count == [(table.num_rows,)]
