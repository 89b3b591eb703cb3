from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import topdown as td
from topdown.machine.files import whole_file
from topdown.tables import tidy as tables
from topdown.tables.tidy import tidy_batches, to_arrow, to_frame, write_csv, write_parquet


def test_tidy_rows_node_by_node_and_cell_by_cell(geography: td.Geography) -> None:
    values = np.arange(12).reshape(6, 2)
    half = np.where(values % 2, np.nan, values / 2.0)
    frame = to_frame(tidy_batches(geography, ["a", "b"], {"query": "detailed", "value": values, "half": half}))
    assert list(frame) == ["geoid", "level", "query", "cell", "value", "half"]
    assert frame["geoid"].tolist() == [g for g in geography.geoid.tolist() for _ in "ab"]
    assert frame["level"].tolist() == ["nation"] * 2 + ["state"] * 4 + ["county"] * 6
    assert frame["cell"].tolist() == ["a", "b"] * 6
    assert frame["value"].tolist() == list(range(12))
    assert frame["half"].isna().tolist() == [False, True] * 6
    some = to_frame(tidy_batches(geography, ["a", "b"], {"value": values}, rows=np.arange(6) == 4, units=True))
    assert list(some) == ["geoid", "level", "parent", "name", "cell", "value"]
    assert some["geoid"].tolist() == ["01003"] * 2
    assert some["parent"].tolist() == ["01"] * 2
    assert some["value"].tolist() == [8, 9]
    assert some["name"].isna().all()


def test_batches_cut_between_nodes(geography: td.Geography, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(12).reshape(6, 2)
    whole = to_frame(tidy_batches(geography, ["a", "b"], {"value": values}))
    monkeypatch.setattr(tables, "_ROWS_PER_GROUP", 5)
    batches = list(tidy_batches(geography, ["a", "b"], {"value": values}))
    assert [batch.num_rows for batch in batches] == [4, 4, 4]
    pd.testing.assert_frame_equal(to_frame(iter(batches)), whole)


def test_both_kinds_of_file_hold_the_same_rows(geography: td.Geography, tmp_path: Path) -> None:
    def rows() -> list[pa.RecordBatch]:
        values = np.arange(12).reshape(6, 2)
        return list(tidy_batches(geography, ["a, b", 'c"d'], {"value": values}, units=True))

    write_parquet(tmp_path / "t.parquet", iter(rows()), {"software": "x"})
    write_csv(tmp_path / "t.csv", iter(rows()))
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.schema.metadata[b"software"] == b"x"
    types = dict.fromkeys(("geoid", "level", "parent", "name", "cell"), pa.string()) | {"value": pa.int64()}
    options = pacsv.ConvertOptions(column_types=types, strings_can_be_null=True)
    back = pacsv.read_csv(tmp_path / "t.csv", convert_options=options)
    assert back.to_pydict() == table.to_pydict()
    assert table["parent"].to_pylist() == [None] * 2 + ["US"] * 4 + ["01", "01", "01", "01", "02", "02"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.parquet"]


def test_identifiers_and_names_are_text_to_readers_though_a_unit_of_many_rows_is_kept_as_a_number(
    geography: td.Geography, tmp_path: Path
) -> None:
    named = dataclasses.replace(geography, names=pa.array(["all", None, "two", "", None, "five"]))
    values = np.arange(12).reshape(6, 2)
    (batch,) = tidy_batches(named, ["a", "b"], {"value": values}, units=True)
    assert pa.types.is_dictionary(batch["geoid"].type)
    assert pa.types.is_dictionary(batch["name"].type)
    write_parquet(tmp_path / "t.parquet", iter([batch]), {})
    table = pq.read_table(tmp_path / "t.parquet")
    assert [table.schema.field(name).type for name in ("geoid", "name")] == [pa.string()] * 2
    assert pa.types.is_dictionary(table.schema.field("level").type)
    assert table.equals(to_arrow(iter([batch])))
    assert table["geoid"].to_pylist() == [code for code in geography.geoid.tolist() for _ in "ab"]
    assert table["name"].to_pylist() == ["all"] * 2 + [None] * 2 + ["two"] * 2 + [""] * 2 + [None] * 2 + ["five"] * 2


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("old")

    def half_written() -> None:
        with whole_file(path) as partial:
            partial.write_text("half")
            assert path.read_text() == "old"
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        half_written()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with whole_file(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_midway_leaves_nothing(geography: td.Geography, tmp_path: Path) -> None:
    def failing():  # type: ignore[no-untyped-def]
        yield from tidy_batches(geography, ["a"], {"value": np.zeros((6, 1))})
        raise OSError("disk full")

    for write in (lambda p: write_parquet(p, failing(), {}), lambda p: write_csv(p, failing())):
        with pytest.raises(OSError, match="disk full"):
            write(tmp_path / "t")
        assert list(tmp_path.iterdir()) == []


def test_a_dictionary_that_repeats_a_name_is_written_with_each_once(tmp_path: Path) -> None:
    # Where it repeats one, Arrow leaves part of the dictionary's page as the process's memory was.
    names = pa.array(["Lake", "Lake", "Clay", "Lake"])
    places = pa.array([0, 1, 2, None, 3, 1], pa.int32())
    batch = pa.RecordBatch.from_pydict({"name": pa.DictionaryArray.from_arrays(places, names), "n": pa.array(range(6))})
    write_parquet(tmp_path / "t.parquet", iter([batch]), {})
    assert pq.read_table(tmp_path / "t.parquet")["name"].to_pylist() == ["Lake", "Lake", "Clay", None, "Lake", "Lake"]
    column = pq.ParquetFile(tmp_path / "t.parquet").metadata.row_group(0).column(0)
    assert "RLE_DICTIONARY" in column.encodings  # and not plain text, which it falls back to behind such a page
