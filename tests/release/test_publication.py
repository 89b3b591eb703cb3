"""The folder of a release, in which measurements are written before the rest is known."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import topdown as td
from topdown.errors import ProjectionError
from topdown.measurements.measurements import Measurements
from topdown.release.partition import GEOGRAPHY, MEASUREMENTS
from topdown.release.publication import begun


@pytest.fixture
def measurements(geography: td.Geography) -> Measurements:
    schema = td.Schema.from_mapping({"age": ["young", "old"]})
    county = (np.arange(6).reshape(3, 2), 1.0)
    return Measurements.from_answers(geography, schema, {("nation", "total"): ([[15]], 1.0), ("county", "age"): county})


@pytest.mark.parametrize("several", [True, False])
def test_measurements_and_units_are_written_meanwhile(
    several: bool, measurements: Measurements, geography: td.Geography, tmp_path: Path
) -> None:
    if not several:
        measurements = Measurements.from_arrays(geography, np.arange(geography.n_nodes), 1.0)
    with ThreadPoolExecutor(1) as pool:
        with begun(tmp_path / "public", measurements, fit_for_release=False, executor=pool) as folder:
            assert folder.writing[MEASUREMENTS].result() is None
            written = pq.read_table(folder.staging / MEASUREMENTS)
            assert written.to_pydict() == measurements.to_arrow().to_pydict()
            assert folder.writing[GEOGRAPHY].result() is None
            assert pq.read_table(folder.staging / GEOGRAPHY)["geoid"].to_pylist() == geography.identifiers.to_pylist()
            assert not (tmp_path / "public").exists()
        assert {path.name for path in (tmp_path / "public").iterdir()} == {MEASUREMENTS, GEOGRAPHY}


def test_where_the_rest_fails_the_writer_ends_and_nothing_is_left(
    measurements: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, failed = threading.Event(), threading.Event()
    writing: list[Future[Exception | None]] = []
    batches = Measurements.batches

    def slow(self: Measurements):  # type: ignore[no-untyped-def]
        for number, batch in enumerate(batches(self)):
            if number:
                reached.set()
                assert failed.wait(60)
            yield batch

    monkeypatch.setattr(Measurements, "batches", slow)
    with ThreadPoolExecutor(1) as pool:

        def fail() -> None:
            with begun(tmp_path / "public", measurements, fit_for_release=False, executor=pool) as folder:
                writing.append(folder.writing[MEASUREMENTS])
                assert reached.wait(60)
                threading.Timer(0.2, failed.set).start()
                raise ProjectionError("not certified")

        with pytest.raises(ProjectionError, match="not certified"):
            fail()
        assert writing[0].done()
    assert list(tmp_path.iterdir()) == []
