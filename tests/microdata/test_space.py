from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from topdown.errors import ConfigError, DataError
from topdown.microdata import record_blocks
from topdown.microdata import space as room
from topdown.microdata import written_records as microdata
from topdown.microdata.leaves import Leaves
from topdown.microdata.record_blocks import RecordLayout
from topdown.microdata.written_records import as_schema, write_microdata


def leaves_of_blocks(units: int, total: int, cells: int = 4) -> Leaves:
    rng = np.random.default_rng(1)
    share = rng.dirichlet(np.full(units * cells, 0.3))
    values = rng.multinomial(total, share).reshape(units, cells)
    geoids = pa.array([f"{44 * 10**13 + 7919 * k:015d}" for k in range(units)])
    return Leaves.of_values(geoids, tuple("abcdefgh"[:cells]), values, False)


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize("count", [1 << 53, 1 << 62, 100_000 * record_blocks.PART])
def test_more_records_than_fit_are_refused_before_anything_is_made(order: str, count: int, tmp_path: Path) -> None:
    leaves = Leaves.of_values(pa.array(["1", "2"]), ("a",), np.array([[count], [1]]), False)
    with pytest.raises(ConfigError, match=rf"^{count + 1:,} records are more than .*{order}.*nothing was written"):
        write_microdata(leaves, tmp_path / "a" / "m", order=order)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_counts_are_added_beyond_64_bits() -> None:
    leaves = Leaves.of_values(pa.array(["1"]), ("a", "b", "c"), np.array([[2**63 - 1, 2**63 - 1, 5]]), False)
    assert leaves.records == 2**64 + 3


def test_files_are_numbered_by_five_digits(tmp_path: Path) -> None:
    leaves = Leaves.of_values(pa.array(["1"]), ("a",), np.array([[100_001]]), False)
    with pytest.raises(
        ConfigError, match="100,001 records are more than 100,000, the most that 100,000 files of 1 hold"
    ):
        write_microdata(leaves, tmp_path / "m", rows_per_file=1)


class Usage(NamedTuple):
    free: int


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_too_little_disk_is_refused_with_the_numbers_before_anything_is_made(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = leaves_of_blocks(2000, 300_000)
    needed = room.disk_needed(RecordLayout.of(leaves, as_schema(None, leaves.cells), order, record_blocks.PART))  # type: ignore[arg-type]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(needed - 1))
    with pytest.raises(
        DataError, match=rf"300,000 records \({order}\) need about [\d.]+ MiB of disk, and [\d.]+ MiB are"
    ):
        write_microdata(leaves, tmp_path / "a" / "m", order=order)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(needed))
    write_microdata(leaves, tmp_path / "a" / "m", order=order)  # type: ignore[arg-type]
    # Also what is there takes its space until the new ones are there.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1000))
    before = {path: path.stat().st_ino for path in (tmp_path / "a" / "m").iterdir()}
    with pytest.raises(DataError, match="nothing was written"):
        write_microdata(leaves, tmp_path / "a" / "m", order=order)  # type: ignore[arg-type]
    assert {path: path.stat().st_ino for path in (tmp_path / "a" / "m").iterdir()} == before


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize(("units", "total"), [(10, 3_000_000), (20_000, 3_000_000), (200_000, 1_000_000)])
def test_the_estimate_is_what_the_records_take(
    order: str, units: int, total: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_blocks, "BLOCK", 1 << 17)  # several row groups, of which some are sampled
    leaves = leaves_of_blocks(units, total)
    layout = RecordLayout.of(leaves, as_schema(None, leaves.cells), order, 1 << 20)  # type: ignore[arg-type]
    most = 0

    def watched(function: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object, **options: object) -> object:
            nonlocal most
            most = max(most, sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
            return function(*arguments, **options)

        return called

    monkeypatch.setattr(np, "fromfile", watched(np.fromfile))  # all are scattered when the first ones are read
    monkeypatch.setattr(microdata, "write_json", watched(microdata.write_json))
    write_microdata(leaves, tmp_path / "m", order=order, rows_per_file=1 << 20)  # type: ignore[arg-type]
    needed = room.disk_needed(layout)
    assert most <= needed * 1.05
    assert needed <= 1.4 * most + 4 * 4096
