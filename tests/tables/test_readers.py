from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topdown as td
from topdown.errors import DataError, GeographyError
from topdown.geography.labels import column
from topdown.machine import memory
from topdown.tables import parquet, readers
from topdown.tables.format import PLAIN, Extent, FileKind, Format
from topdown.tables.readers import read_table, table_batches, table_columns


def test_a_csv_is_read_as_strings_whatever_its_line_ends_and_mark(tmp_path: Path) -> None:
    text = 'geoid,name,n\n01001,"Doña Ana, NM","1,234"\nNA,,\n'
    for data in (
        text.encode(),
        text.encode("utf-8-sig"),
        text.replace("\n", "\r\n").encode(),
        gzip.compress(text.encode()),
    ):
        path = tmp_path / ("t.csv.gz" if data[:2] == b"\x1f\x8b" else "t.csv")
        path.write_bytes(data)
        table = read_table(path)
        assert table.to_pydict() == {
            "geoid": ["01001", "NA"],
            "name": ["Doña Ana, NM", None],
            "n": ["1,234", None],
        }
        assert read_table(path, ["n", "geoid"]).column_names == ["n", "geoid"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("t.csv", b"", "the file is empty"),
        ("t.csv", b"a,a\n1,2\n", "two columns are called 'a'"),
        ("t.csv", b"a,b\n1,2,3\n", "line 2 has 3 columns, and the header 2; .*quotes"),
        ("t.csv", b"a,b\n1,\xff\xfe\n", "cannot be read as csv"),
        ("t.csv.gz", b"a,b\n", "cannot be read as gz"),
        ("t.parquet", b"a,b\n", "cannot be read as parquet"),
        ("t.xlsx", b"PK", "cannot be read as xlsx"),
        (
            "t.ods",
            b"PK",
            f"unknown kind of file: give {', '.join(readers.ENDINGS)}, or save it as CSV",
        ),
        ("t.xls", b"", "unknown kind of file: an old Excel's; save it as .xlsx, or save it as CSV"),
        ("t.csv", b"a,b\n1,2\n", "no column 'c'; it has 'a', 'b'"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}: .*{says}"):
        read_table(tmp_path / name, ["c"] if "'c'" in says else None)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv: no such file; correct the path"):
        read_table(tmp_path / "gone.csv")
    with pytest.raises(DataError, match="it is a directory"):
        read_table(tmp_path)


# -- only what is named ---------------------------------------------------------------------------------------------


def test_only_the_columns_that_are_named_are_decoded(tmp_path: Path) -> None:
    wide = pa.table({"a": ["x", "y"], "b": [1, 2], "c.d": ["p", "q"], "c": [3, 4]})
    pq.write_table(wide, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet", ["c", "a"])
    assert read.to_pydict() == {"c": [3, 4], "a": ["x", "y"]}
    assert table_columns(tmp_path / "t.parquet") == ["a", "b", "c.d", "c"]
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert read_table(tmp_path / "t.csv", ["b"]).to_pydict() == {"b": ["2"]}
    assert table_columns(tmp_path / "t.csv") == ["a", "b"]


def test_many_columns_are_checked_in_linear_time(tmp_path: Path) -> None:
    names = [f"c{k}" for k in range(100_000)]
    (tmp_path / "commas.csv").write_text("," * 100_000 + "\n")
    (tmp_path / "names.csv").write_text(",".join(names) + "\n")
    started = time.process_time()
    with pytest.raises(DataError, match="two columns have no name"):
        read_table(tmp_path / "commas.csv")
    with pytest.raises(DataError, match="no column 'x'"):
        read_table(tmp_path / "names.csv", [*names, "x"])
    frame = {name: ["1"] for name in names}
    with pytest.raises(GeographyError, match="no column 'x'"):
        td.Geography.from_table(frame, [*names[:2], "x"])
    columns = pa.table({name: pa.nulls(1) for name in names[:20_000]})
    assert all(column(columns, name).null_count == 1 for name in columns.column_names)
    # 37 seconds when every name was compared with every other.
    assert time.process_time() - started < 10.0


@pytest.mark.parametrize("cautious", [False, True])
def test_a_parquet_table_is_the_same_however_it_is_read(
    tmp_path: Path, cautious: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    kinds = pd.Categorical(rng.choice(["one", "two", "three"], 5000))
    frame = pd.DataFrame({"id": [f"{k:06d}" for k in range(5000)], "few": rng.choice(["a", "bb", ""], 5000)})
    frame["kind"], frame["n"], frame["holes"] = kinds, rng.integers(0, 9, 5000), [None, "x"] * 2500
    table = pa.Table.from_pandas(frame)
    for k, options in enumerate(
        [{}, {"use_dictionary": False}, {"use_dictionary": False, "column_encoding": {"id": "DELTA_BYTE_ARRAY"}}]
    ):
        pq.write_table(table, tmp_path / f"{k}.parquet", row_group_size=1500, **options)
        if cautious:
            monkeypatch.setattr(parquet, "most_at_once", lambda: 400_000)
        read = read_table(tmp_path / f"{k}.parquet", ["n", "kind", "id", "few", "holes"])
        wanted = table.select(["n", "kind", "id", "few", "holes"]).to_pydict()
        assert read.to_pydict() == wanted
        assert not any(pa.types.is_dictionary(kind) for kind in read.schema.types)


# -- files that are small on disk and nowhere else ------------------------------------------------------------------

LITTLE = 64 << 20


def repeated(path: Path, *, stored: bool) -> None:
    """One text of 10,000 characters, 500,000 times: 5 GB."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500_000, np.int32)), pa.array(["x" * 10_000]))
    pq.write_table(pa.table({"id": column}), path, compression="zstd", store_schema=stored)


def squeezed(path: Path) -> None:
    """Ten texts of 50 million zeros, which zstd makes next to nothing of."""
    pq.write_table(pa.table({"id": ["\0" * 50_000_000] * 10}), path, use_dictionary=False, compression="zstd")


def one_number(path: Path) -> None:
    """The same number, a hundred million times."""
    batch = pa.table({"n": np.zeros(10_000_000, np.int64)})
    with pq.ParquetWriter(path, batch.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(batch)


def shared(path: Path) -> None:
    """Texts as what they share with the one before, which is everything: 2 GB."""
    texts = pa.table({"id": ["x" * 100_000] * 20_000})
    pq.write_table(texts, path, use_dictionary=False, column_encoding={"id": "DELTA_BYTE_ARRAY"}, compression="zstd")


def lists(path: Path) -> None:
    """Lists of a text that stands there once: 2 GB."""
    once = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 100_000]))
    column = pa.ListArray.from_arrays(pa.array(np.arange(0, 20_001, 1000), pa.int32()), once)
    pq.write_table(pa.table({"id": column}), path, store_schema=False, compression="zstd")


def rows_of_text(path: Path) -> None:
    with gzip.open(path, "wb") as file:
        file.write(b"id,n\n" + b"x,0\n" * 30_000_000)


def nothing_at_all(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"id,n\n" + b"\n" * 150_000_000)


def one_line(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"id,n\n" + b"x" * 120_000_000)


BOMBS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "repeated": ("parquet", lambda path: repeated(path, stored=False)),
    "repeated, by its schema": ("parquet", lambda path: repeated(path, stored=True)),
    "squeezed": ("parquet", squeezed),
    "one number": ("parquet", one_number),
    "shared": ("parquet", shared),
    "lists": ("parquet", lists),
    "rows of text": ("csv.gz", rows_of_text),
    "nothing at all": ("csv.gz", nothing_at_all),
    "one line": ("csv.gz", one_line),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_is_stopped_before_it_fills_the_memory(
    bomb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, make = BOMBS[bomb]
    path = tmp_path / f"t.{kind}"
    make(path)
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * LITTLE)
    monkeypatch.setattr("topdown.tables.text.available_memory", lambda: 2 * LITTLE)
    before = pa.total_allocated_bytes()
    highest, kept = 0, list[pa.RecordBatch]()

    def read() -> None:
        nonlocal highest
        for batch in table_batches(path):
            kept.append(batch)
            highest = max(highest, pa.total_allocated_bytes() - before)

    with pytest.raises(DataError) as error:
        read()
    assert highest < 2 * LITTLE
    if bomb.startswith("repeated"):  # weighed as numbers, before anything is written out
        assert highest < LITTLE // 4
    if bomb == "one line":
        assert "the row that begins in line 2 does not end" in str(error.value)
    else:
        assert str(path) in str(error.value)
        assert "that can be given to it here when" in str(error.value)
        assert "more than the" in str(error.value)
        assert "use a larger machine" in str(error.value)
    assert error.value.exit_code == 3


def test_a_kind_of_file_that_is_added_is_read_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the recipe: a value and a line."""

    def batches(path: Path, _: Sequence[str], names: Sequence[str], form: Format) -> Iterator[pa.RecordBatch]:
        table = pa.ipc.open_file(path).read_all().select(list(names))
        yield pa.RecordBatch.from_pylist([], table.schema)
        yield from table.to_batches()

    arrow = FileKind(
        (".arrow",),
        (),
        lambda path, _: list(pa.ipc.open_file(path).schema.names),
        batches,
        lambda path, columns, _: Extent(pa.ipc.open_file(path).read_all().num_rows, 8.0 * len(columns)),
        lambda _, row, __: f"row {row + 1} of the Arrow file",
    )
    table = pa.table({"geoid": ["01", "02"], "n": [1, 2]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match="unknown kind of file"):
        readers.read_table(tmp_path / "t.arrow")
    monkeypatch.setattr(readers, "FILE_KINDS", (*readers.FILE_KINDS, arrow))
    assert readers.read_table(tmp_path / "t.arrow", ["n"]).to_pydict() == {"n": [1, 2]}
    assert readers.extent_of(tmp_path / "t.arrow", ["n"], PLAIN) == (2, 8.0)
    assert readers.row_named(tmp_path / "t.arrow", 1) == "row 2 of the Arrow file"
    with pytest.raises(DataError, match=r"input.delimiter does not apply to a \.arrow file"):
        readers.read_table(tmp_path / "t.arrow", form=Format(delimiter=";"))
