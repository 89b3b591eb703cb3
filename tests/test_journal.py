from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import numpy as np
import pytest

import topdown as td
from topdown.errors import ConfigError, DataError
from topdown.files import file_digest
from topdown.journal import Journal
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
    assert journal.read(counts.geography, plan) is None
    drawn, ties = td.measure(counts, plan), KeyedSource.fresh()
    journal.write(drawn, ties)
    found = journal.read(counts.geography, plan)
    assert found is not None
    again, again_ties = found
    assert again.values.dtype == drawn.values.dtype
    np.testing.assert_array_equal(again.values, drawn.values)
    np.testing.assert_array_equal(again.variance, drawn.variance)
    assert again.cells == drawn.cells
    assert again.plan == plan
    assert again.fit_for_release is True
    assert again_ties.read(100) == KeyedSource(ties.key).read(100)
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "measurements.arrow"]


def test_seeded_measurements_stay_unfit(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    journal = Journal(folder, "c", "i")
    journal.write(td.measure(counts, plan, td.SeededSource(1)), KeyedSource.fresh())
    found = journal.read(counts.geography, plan)
    assert found is not None
    assert found[0].fit_for_release is False


def test_another_configuration_or_input_is_refused(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    Journal(folder, "c", "i").write(td.measure(counts, plan), KeyedSource.fresh())
    with pytest.raises(ConfigError, match=r"another configuration; .*another --output"):
        Journal(folder, "d", "i").read(counts.geography, plan)
    with pytest.raises(DataError, match=r"another input file; .*another --output"):
        Journal(folder, "c", "j").read(counts.geography, plan)


def test_a_damaged_record_is_refused(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    (folder / "measurements.arrow").write_bytes(b"half")
    with pytest.raises(DataError, match="record of the noise cannot be read"):
        Journal(folder, "c", "i").read(counts.geography, plan)


def test_only_the_owner_can_read_it(counts: td.Counts, folder: Path, plan: td.Plan) -> None:
    Journal(folder, "c", "i").write(td.measure(counts, plan), KeyedSource.fresh())
    assert stat.S_IMODE((folder / "measurements.arrow").stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_nothing_and_says_so(
    counts: td.Counts, folder: Path, plan: td.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("topdown.files.os.fsync", full)
    with pytest.raises(DataError, match=r"No space left on device; free the space.*nothing was released"):
        Journal(folder, "c", "i").write(td.measure(counts, plan), KeyedSource.fresh())
    assert [path.name for path in folder.iterdir()] == ["lock"]


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
