"""The run's own record: the key that a release's noise follows from, what it belongs to, and what was measured."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.errors import ConfigError, DataError
from topdown.machine.files import file_digest
from topdown.measurements import journal as journals
from topdown.measurements.journal import BegunRelease, Journal
from topdown.measurements.measurements import Answers, Measurements


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "out" / "internal"
    with Journal(path, "c", "i").locked():
        pass
    return path


def measurements(*numbers: float, kind: str = "<i8") -> Measurements:
    geography = td.Geography.from_geoids(["01", "02"], {"state": 2})
    values = np.array(numbers, kind).reshape(3, 1)
    return td.Measurements.from_arrays(geography, values, 1.0)


def test_what_was_begun_comes_back(folder: Path) -> None:
    journal = Journal(folder, "c", "i")
    assert journal.read() is None
    begun = journal.begin()
    again = journal.read()
    assert isinstance(again, BegunRelease)
    assert again.measured is None
    assert again.key.derive("x") == begun.key.derive("x")
    assert again.ties.read(100) == begun.ties.read(100)
    code = journal.keep(begun, measurements(3, 1, 2))
    found = journal.read()
    assert found is not None
    assert found.measured == code
    assert journal.keep(found, measurements(3, 1, 2)) == code
    assert sorted(path.name for path in folder.iterdir()) == ["draw.json", "key", "lock"]


def test_other_numbers_of_the_same_noise_are_refused(folder: Path) -> None:
    """Of the same release: whatever drew them otherwise, no second noise on the same counts comes out."""
    journal = Journal(folder, "c", "i")
    journal.keep(journal.begin(), measurements(3, 1, 2))
    begun = journal.read()
    assert begun is not None
    one = Answers(np.array([[1]]), np.ones(1))
    others = {("nation", "total"): one}
    whole = measurements(3, 1, 2)
    for other in (
        measurements(3, 2, 1),
        measurements(3, 1, 3),
        measurements(3, 1, 2, kind="<f8"),
        Measurements(whole.geography, whole.cells, whole.values, whole.node_variance, others=others),
    ):
        with pytest.raises(DataError, match=r"measured other numbers than the run before it.*nothing was released"):
            journal.keep(begun, other)


def test_the_code_of_what_was_measured_tells_nothing_of_it(tmp_path: Path) -> None:
    """Two releases of the same numbers have different codes: whoever guesses the numbers cannot check the guess."""
    codes = set()
    for name in ("a", "b"):
        journal = Journal(tmp_path / name, "c", "i")
        with journal.locked():
            codes.add(journal.keep(journal.begin(), measurements(3, 1, 2)))
    assert len(codes) == 2


def test_every_query_counts_in_the_code(tmp_path: Path) -> None:
    schema = td.Schema.from_mapping({"age": ["child", "adult"], "sex": ["f", "m"]})
    frame = pd.DataFrame(np.arange(12).reshape(3, 4) * 10**6, columns=list(schema.cells()))
    frame["county"] = ["01001", "01003", "02001"]
    geography = td.Geography.from_geoids(frame["county"], {"state": 2, "county": 5})
    counts = td.Counts.from_table(frame, geography, geoid="county", cells=list(schema.cells()), schema=schema)
    plan = td.Plan("laplace", epsilon=1, shares={"nation": 0, "state": {"total": "1/4", "age": "1/4"}, "county": "1/2"})
    whole = td.measure(counts, plan)
    journal = Journal(tmp_path / "internal", "c", "i")
    with journal.locked():
        journal.keep(journal.begin(), whole)
        begun = journal.read()
        assert begun is not None
        journal.keep(begun, whole)
        for key, answers in whole.others.items():
            moved = answers.values.copy()
            moved[-1, -1] += 1
            changed = dict(whole.others) | {key: Answers(moved, answers.variance)}
            other = Measurements(geography, whole.cells, whole.values, whole.node_variance, others=changed)
            with pytest.raises(DataError, match="measured other numbers"):
                journal.keep(begun, other)


def test_another_configuration_or_input_is_refused(folder: Path) -> None:
    Journal(folder, "c", "i").begin()
    with pytest.raises(ConfigError, match=r"another configuration; .*another --output"):
        Journal(folder, "d", "i").read()
    with pytest.raises(DataError, match=r"another input file; .*another --output"):
        Journal(folder, "c", "j").read()


def test_another_versions_streams_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a later version, and of the earlier one, whose streams were not bound to the counts: never drawn anew."""
    for version in (1, 3):
        with monkeypatch.context() as patch:
            patch.setattr(journals, "STREAMS_VERSION", version)
            Journal(folder, "c", "i").begin()
        for configuration in "cd":  # whose fingerprint is another too
            with pytest.raises(DataError, match=r"begun by another version of Topdown, .*finish it with that version"):
                Journal(folder, configuration, "i").read()


def test_a_damaged_record_is_refused(folder: Path) -> None:
    Journal(folder, "c", "i").begin()
    (folder / "draw.json").write_bytes(b"half")
    with pytest.raises(DataError, match=r"record of the noise is not what was written.*restore the folder from a copy"):
        Journal(folder, "c", "i").read()


def test_only_the_owner_can_read_it(folder: Path) -> None:
    Journal(folder, "c", "i").begin()
    for name in ("draw.json", "key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_nothing_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    journal = Journal(folder, "c", "i")
    journal.release_name()
    with monkeypatch.context() as patch:
        patch.setattr("topdown.machine.files.os.fsync", full)
        with pytest.raises(DataError, match=r"No space left on device; free the space.*nothing was released, and the "):
            journal.begin()
    assert sorted(path.name for path in folder.iterdir()) == ["key", "lock"]
    assert Journal(folder, "c", "i").read() is None
    begun = journal.begin()
    with monkeypatch.context() as patch:
        patch.setattr("topdown.machine.files.os.fsync", full)
        with pytest.raises(DataError, match="the next run draws the same noise"):
            journal.keep(begun, measurements(3, 1, 2))
    found = journal.read()
    assert found is not None
    assert (found.measured, found.key.derive("x")) == (None, begun.key.derive("x"))


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


def test_its_repr_hides_the_digest_of_the_confidential_table_and_the_secret(folder: Path) -> None:
    assert "secretdigest" not in repr(Journal(folder, "c", "secretdigest"))
    begun = Journal(folder, "c", "i").begin()
    assert (folder / "key").read_text()[:64] not in repr(begun)
    assert begun.key.derive("ties").hex() not in repr(begun)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(begun)


def test_a_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"abc")
    assert file_digest(tmp_path / "t") == hashlib.sha256(b"abc").hexdigest()


def test_another_releases_record_is_refused(tmp_path: Path) -> None:
    """Also one of the same configuration and input, which would be another draw."""
    two = [Journal(tmp_path / name / "internal", "c", "i") for name in "ab"]
    for journal in two:
        with journal.locked():
            journal.keep(journal.begin(), measurements(3, 1, 2))
    first, second = (journal.folder / "draw.json" for journal in two)
    second.write_bytes(first.read_bytes())
    with pytest.raises(DataError, match="not what was written: it is damaged, or another release's"):
        two[1].read()


def test_nothing_is_parsed_before_its_seal_is_right(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(folder, "c", "i").begin()

    def parsed(*_: object) -> None:
        raise AssertionError("it was parsed")

    path = folder / "draw.json"
    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", parsed)
        with pytest.raises(AssertionError):
            Journal(folder, "c", "i").read()
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(DataError, match="not what was written"):
            Journal(folder, "c", "i").read()


def test_a_record_that_is_far_too_large_is_not_read_to_its_end(folder: Path) -> None:
    Journal(folder, "c", "i").begin()
    os.truncate(folder / "draw.json", 1 << 40)  # a hole, which takes no space and minutes to read
    with pytest.raises(DataError, match="not what was written"):
        Journal(folder, "c", "i").read()


@pytest.mark.parametrize("left", ["release", "measurements.arrow"])
@pytest.mark.parametrize("with_key", [False, True])
def test_a_release_that_an_earlier_version_began_is_refused(folder: Path, left: str, with_key: bool) -> None:
    journal = Journal(folder, "c", "i")
    if with_key:
        journal.release_name()
    (folder / left).write_text("0" * 32)
    for call in [journal.read] if with_key else [journal.read, journal.release_name, journal.begin]:
        with pytest.raises(DataError, match=r"an earlier version.*kept its noise; finish it with that version"):
            call()
    assert sorted(path.name for path in folder.iterdir()) == sorted(["key"] * with_key + ["lock", left])


def test_its_name_tells_nothing_of_its_secret_and_stays(folder: Path) -> None:
    journal = Journal(folder, "c", "i")
    name = journal.release_name()
    assert len(bytes.fromhex(name)) == 16
    assert name not in (folder / "key").read_text()
    assert Journal(folder, "d", "j").release_name() == name
