"""Parquet files with damage: what they say of themselves ends in an exception, never in the end of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from topdown.tables import parquet

READ_EACH = """
import sys
from contextlib import suppress
from pathlib import Path
from topdown.tables.parquet import parquet_batches

folder, names = Path(sys.argv[1]), sys.argv[2].split(",")
whole = (folder / "whole.parquet").read_bytes()
footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
read = 0
for place in range(footer, len(whole) - 8):
    for flipped in (1, 2, 8, 64):
        damaged = bytearray(whole)
        damaged[place] ^= flipped
        (folder / "damaged.parquet").write_bytes(damaged)
        with suppress(Exception):
            list(parquet_batches(folder / "damaged.parquet", names))
            read += 1
print(read)
"""
"""Reads every file that differs from a whole one in one of four bits of one byte of its footer."""


def test_no_bit_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    # Of one byte Arrow makes a kind of column that the sizes beside it cannot be true of.
    table = pa.table({"geoid": ["a", "b", "c"], "n": [1, 2, 3], "list": [[1], [2], [3]]})
    pq.write_table(table, tmp_path / "whole.parquet")
    done = subprocess.run(
        [sys.executable, "-c", READ_EACH, str(tmp_path), "geoid,n,list"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_all_metadata_are_looked_at_and_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.parquet"
    table = pa.table({"a": [1, 2, 3], "b": [{"c": 1, "d": "x"}] * 3})
    pq.write_table(table, path, row_group_size=2)
    asked: list[int] = []
    read = parquet._FooterOnly.read

    def count(self: parquet._FooterOnly, size: int = -1) -> bytes:
        if self.shut:
            asked.append(size)
        return read(self, size)

    monkeypatch.setattr(parquet._FooterOnly, "read", count)
    list(parquet.parquet_batches(path, ["a", "b"]))
    assert len(asked) == 2 * 3
