from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.errors import ConfigError, DataError
from topdown.machine.files import file_digest
from topdown.measurements.journal import Journal
from topdown.noise import KeyedSource


@pytest.fixture
def plan(geography: td.Geography) -> td.Plan:
    return td.Plan(epsilon=1, shares={"state": 0, "county": 1}, invariants=["nation"]).for_levels(geography.levels)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "out" / "internal"
    with Journal(path, "c", "i").locked():
        pass
    return path


@pytest.mark.parametrize("mechanism", ["geometric", "laplace"])
def test_what_was_measured_comes_back(counts: td.Counts, folder: Path, mechanism: str) -> None:
    levels = counts.geography.levels
    plan = td.Plan(mechanism, epsilon=1, shares={"state": 0, "county": 1}, invariants=["nation"]).for_levels(levels)
    journal = Journal(folder, "c", "i")
    assert journal.read(counts.geography, plan, counts.cells) is None
    drawn, ties = td.measure(counts, plan), KeyedSource.fresh()
    journal.write(drawn, ties)
    found = journal.read(counts.geography, plan, counts.cells)
    assert found is not None
    again, again_ties = found
    assert again.values.dtype == drawn.values.dtype
    np.testing.assert_array_equal(again.values, drawn.values)
    np.testing.assert_array_equal(again.variance, drawn.variance)
    assert again.cells == drawn.cells
    assert again.plan == plan
    assert again.fit_for_release is True
    assert again_ties.read(100) == KeyedSource(ties.key).read(100)
    assert sorted(path.name for path in folder.iterdir()) == ["key", "lock", "measurements.arrow"]


def test_seeded_measurements_stay_unfit(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    journal = Journal(folder, "c", "i")
    journal.write(td.measure(counts, plan, td.SeededSource(1)), KeyedSource.fresh())
    found = journal.read(counts.geography, plan, counts.cells)
    assert found is not None
    assert found[0].fit_for_release is False


def test_another_configuration_or_input_is_refused(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    Journal(folder, "c", "i").write(td.measure(counts, plan), KeyedSource.fresh())
    with pytest.raises(ConfigError, match=r"another configuration; .*another --output"):
        Journal(folder, "d", "i").read(counts.geography, plan, counts.cells)
    with pytest.raises(DataError, match=r"another input file; .*another --output"):
        Journal(folder, "c", "j").read(counts.geography, plan, counts.cells)


def test_a_damaged_record_is_refused(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    Journal(folder, "c", "i").write(td.measure(counts, plan), KeyedSource.fresh())
    (folder / "measurements.arrow").write_bytes(b"half")
    with pytest.raises(DataError, match=r"record of the noise is not what was written.*restore the folder from a copy"):
        Journal(folder, "c", "i").read(counts.geography, plan, counts.cells)


def test_only_the_owner_can_read_it(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    Journal(folder, "c", "i").write(td.measure(counts, plan), KeyedSource.fresh())
    for name in ("measurements.arrow", "key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_nothing_and_says_so(
    counts: td.Counts, folder: Path, plan: td.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    journal = Journal(folder, "c", "i")
    journal.release_name()
    monkeypatch.setattr("topdown.machine.files.os.fsync", full)
    with pytest.raises(DataError, match=r"No space left on device; free the space.*nothing was released.*is forgotten"):
        journal.write(td.measure(counts, plan), KeyedSource.fresh())
    assert sorted(path.name for path in folder.iterdir()) == ["key", "lock"]
    monkeypatch.undo()
    assert Journal(folder, "c", "i").read(counts.geography, plan, counts.cells) is None


def test_two_runs_do_not_write_at_once(tmp_path: Path) -> None:
    first, second = (Journal(tmp_path / "out" / "internal", name, "i") for name in "cd")
    with first.locked(), pytest.raises(ConfigError, match="another run is writing here"), second.locked():
        pass
    with second.locked():
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with (
        pytest.raises(ConfigError, match=r"out/internal: cannot be written: .*--output"),
        Journal(tmp_path / "out" / "internal", "c", "i").locked(),
    ):
        pass


def test_its_repr_hides_the_digest_of_the_confidential_table(tmp_path: Path) -> None:
    assert "secretdigest" not in repr(Journal(tmp_path, "c", "secretdigest"))


def test_a_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"abc")
    assert file_digest(tmp_path / "t") == hashlib.sha256(b"abc").hexdigest()


def test_a_write_that_fails_when_the_record_has_its_name_keeps_the_noise_and_says_so(
    counts: td.Counts, folder: Path, plan: td.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder, "c", "i")
    journal.release_name()
    drawn = td.measure(counts, plan)

    def failing(_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("topdown.measurements.journal.sync_folder", failing)
        with pytest.raises(DataError, match="nothing was released, and the noise that was drawn is kept, and the next"):
            journal.write(drawn, KeyedSource.fresh())
    found = journal.read(counts.geography, plan, counts.cells)
    assert found is not None
    np.testing.assert_array_equal(found[0].values, drawn.values)


def test_another_releases_record_is_refused(counts: td.Counts, tmp_path: Path, plan: td.Plan) -> None:
    """Also one of the same configuration and input, which would be another draw."""
    journals = [Journal(tmp_path / name / "internal", "c", "i") for name in "ab"]
    for journal in journals:
        with journal.locked():
            journal.write(td.measure(counts, plan), KeyedSource.fresh())
    first, second = (journal.folder / "measurements.arrow" for journal in journals)
    second.write_bytes(first.read_bytes())
    with pytest.raises(DataError, match="not what was written: it is damaged, or another release's"):
        journals[1].read(counts.geography, plan, counts.cells)


def test_nothing_is_parsed_before_its_seal_is_right(
    counts: td.Counts, folder: Path, plan: td.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder, "c", "i")
    journal.write(td.measure(counts, plan), KeyedSource.fresh())
    monkeypatch.setattr("topdown.measurements.journal.pa.ipc.open_file", None)
    with pytest.raises(TypeError):
        journal.read(counts.geography, plan, counts.cells)
    path = folder / "measurements.arrow"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="not what was written"):
        journal.read(counts.geography, plan, counts.cells)


def test_a_record_that_is_far_too_large_is_not_even_read(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    journal = Journal(folder, "c", "i")
    journal.write(td.measure(counts, plan), KeyedSource.fresh())
    os.truncate(folder / "measurements.arrow", 1 << 40)  # a hole, which takes no space and minutes to read
    with pytest.raises(DataError, match=r"has 1,099,511,627,776 bytes, and this release's has at most"):
        journal.read(counts.geography, plan, counts.cells)


@pytest.mark.parametrize("cells", [1, 300])
def test_the_largest_size_holds_any_record(folder: Path, cells: int) -> None:
    frame = pd.DataFrame({"nation": ["US"], "state": ["01"]} | {f"é{k}" * 60: [1] for k in range(cells)})
    geography = td.Geography.from_table(frame, levels=["nation", "state"])
    names = list(frame.columns[2:])
    counts = td.Counts.from_table(frame, geography, geoid="state", cells=names)
    plan = td.Plan(epsilon=1).for_levels(geography.levels)
    journal = Journal(folder, "c", "i")
    journal.write(td.measure(counts, plan), KeyedSource.fresh())
    assert journal.read(geography, plan, counts.cells) is not None


@pytest.mark.parametrize("left", ["release", "measurements.arrow"])
def test_a_release_that_an_earlier_version_began_is_refused(
    counts: td.Counts, folder: Path, plan: td.Plan, left: str
) -> None:
    (folder / left).write_text("0" * 32)
    journal = Journal(folder, "c", "i")
    for call in (journal.release_name, lambda: journal.write(td.measure(counts, plan), KeyedSource.fresh())):
        with pytest.raises(DataError, match=r"secret is missing; if an earlier version.*finish it with that version"):
            call()
    assert sorted(path.name for path in folder.iterdir()) == sorted(["lock", left])


def test_its_name_tells_nothing_of_its_secret_and_stays(folder: Path) -> None:
    journal = Journal(folder, "c", "i")
    name = journal.release_name()
    assert len(bytes.fromhex(name)) == 16
    assert name not in (folder / "key").read_text()
    assert Journal(folder, "d", "j").release_name() == name


def test_every_query_is_kept(tmp_path: Path) -> None:
    """Answers of every level and query come back to the bit; what a plan does not ask for is not there."""
    schema = td.Schema.from_mapping({"age": ["child", "adult"], "sex": ["f", "m"]})
    cells = list(schema.cells())
    frame = pd.DataFrame(np.arange(12).reshape(3, 4) * 10**6, columns=cells)
    frame["county"] = ["01001", "01003", "02001"]
    geography = td.Geography.from_geoids(frame["county"], {"state": 2, "county": 5})
    counts = td.Counts.from_table(frame, geography, geoid="county", cells=cells, schema=schema)
    plan = td.Plan(
        "laplace",
        epsilon=1,
        shares={"state": {"total": "1/4", "age": "1/4"}, "county": {"detailed": "1/4", "age": "1/4"}},
        invariants={"nation": ["sex"]},
    )
    measurements = td.measure(counts, plan)
    assert measurements.plan is not None
    journal = Journal(tmp_path / "internal", "configuration", "input")
    with journal.locked():
        journal.write(measurements, KeyedSource.fresh())
        found = journal.read(geography, measurements.plan, counts.cells, schema)
    assert found is not None
    read = found[0]
    assert read.keys == measurements.keys
    assert {key for key in read.keys if key[0] == "nation"} == {("nation", "sex")}
    for key in read.keys:
        np.testing.assert_array_equal(read[key].values, measurements[key].values)
        np.testing.assert_array_equal(read[key].variance, measurements[key].variance)
    assert read.attributes == schema
    assert read.fit_for_release
    fewer = td.Plan("laplace", epsilon=1, shares={"nation": 0, "state": {"total": "1/2"}, "county": "1/2"})
    with journal.locked(), pytest.raises(DataError, match="numbers each"):
        journal.read(geography, fewer, counts.cells, schema)
