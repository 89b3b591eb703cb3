"""What lies where microdata shall go: ours is replaced, and nothing else is deleted, changed or followed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from topdown.errors import ConfigError, DataError
from topdown.microdata import written_records as microdata
from topdown.microdata.leaves import Leaves
from topdown.microdata.previous_output import INVENTORY
from topdown.microdata.written_records import synthesize, write_microdata
from topdown.noise import SeededSource

LEAVES = Leaves.of_values(pa.array(["1", "2"]), ("a", "b"), np.array([[3, 1], [0, 5]]), False, digest="d" * 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Microdata in three files."""
    assert len(write_microdata(LEAVES, tmp_path / "m", rows_per_file=3).files) == 3
    return tmp_path / "m"


def everything(folder: Path) -> dict[str, object]:
    """All that lies in ``folder`` except locks: links as where they lead, files as what they hold."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.is_dir() or path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_dir() or (path.is_file() and not path.name.endswith(".lock"))
    }


def refused(folder: Path, error: type[Exception], says: str) -> None:
    before = everything(folder.parent)
    for order in ("sorted", "shuffled"):
        with pytest.raises(error, match=says) as found:
            write_microdata(LEAVES, folder, order=order)  # type: ignore[arg-type]
        assert "\n" not in str(found.value)
    assert everything(folder.parent) == before


# -- other people's files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["notes.txt", "part-00003.parquet", ".hidden", "part-00000.parquet.bak", "_notes"])
def test_a_file_that_the_manifest_does_not_list_is_named_and_stays(folder: Path, name: str) -> None:
    (folder / name).write_text("mine")
    refused(folder, ConfigError, rf"contains '{name}', which its _manifest\.json does not list; nothing was deleted")


def test_a_folder_in_it_is_named_and_stays(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "thesis.tex").write_text("mine")
    refused(folder, ConfigError, "contains 'sub', which")


def test_a_link_in_it_is_named_and_what_it_leads_to_stays(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.parquet").write_bytes((folder / "part-00001.parquet").read_bytes())
    (folder / "part-00001.parquet").unlink()
    (folder / "part-00001.parquet").symlink_to(tmp_path / "theirs.parquet")
    refused(folder, ConfigError, r"contains 'part-00001\.parquet', which")


def test_a_file_put_in_while_the_new_ones_are_written_is_named_and_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, before = microdata.write_json, sorted(path.name for path in folder.iterdir())

    def meddled(path: Path, facts: object) -> None:
        (folder / "notes.txt").write_text("mine")
        write(path, facts)

    monkeypatch.setattr(microdata, "write_json", meddled)
    with pytest.raises(ConfigError, match=r"contains 'notes\.txt'"):
        write_microdata(LEAVES, folder, order="shuffled")
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "notes.txt"])
    assert sorted(path.name for path in folder.parent.iterdir()) == [".m.lock", "m"]


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"files": [], "release_sha256": null}',
        '{"files": {"part-00000.parquet": 1}, "release_sha256": null}',
        '{"files": {"../theirs": {"sha256": "0"}}, "release_sha256": null}',
        '{"files": {"notes.txt": {"sha256": "0"}}, "release_sha256": null}',
        '{"files": {}}',
        "[" * 100_000,
        "\udcff",
    ],
    ids=range(12),
)
def test_a_manifest_that_is_not_ours_lists_nothing_that_may_go(tmp_path: Path, manifest: str) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / INVENTORY).write_bytes(manifest.encode(errors="surrogateescape"))
    (folder / "notes.txt").write_text("mine")
    refused(
        folder,
        ConfigError,
        r"contains no microdata of Topdown \(_manifest\.json is of another program, or incomplete\)",
    )


def test_a_manifest_without_end_is_not_read(folder: Path) -> None:
    os.truncate(folder / INVENTORY, 1 << 40)  # sparse
    with pytest.raises(ConfigError, match="larger than any manifest of Topdown"):
        write_microdata(LEAVES, folder)
    os.truncate(folder / INVENTORY, 0)


def in_its_place(make: Callable[[Path, Path], object]) -> Callable[[Path, Path], None]:
    def replaced(folder: Path, other: Path) -> None:
        shutil.rmtree(folder)
        make(folder, other)

    return replaced


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (in_its_place(lambda folder, _: folder.write_text("mine")), "exists and is not a folder"),
        (in_its_place(lambda folder, _: os.mkfifo(folder)), "exists and is not a folder"),
        (in_its_place(lambda folder, _: folder.symlink_to(folder)), "is a link"),
        (in_its_place(lambda folder, _: folder.symlink_to("nowhere")), "is a link"),
        (in_its_place(lambda folder, other: folder.symlink_to(other)), "is a link"),
        (in_its_place(lambda folder, _: folder.mkdir()), r"no file _manifest\.json"),
        (
            lambda folder, _: ((folder / INVENTORY).unlink(), (folder / INVENTORY).mkdir()),
            r"no file _manifest\.json",
        ),
        (
            lambda folder, _: ((folder / INVENTORY).unlink(), os.mkfifo(folder / INVENTORY)),
            r"no file _manifest\.json",
        ),
        (
            lambda folder, other: (
                (folder / INVENTORY).unlink(),
                (folder / INVENTORY).symlink_to(other / INVENTORY),
            ),
            r"no file _manifest\.json",
        ),
    ],
    ids=range(9),
)
def test_what_is_no_folder_of_ours_stays(
    folder: Path, plant: Callable[[Path, Path], object], says: str, tmp_path: Path
) -> None:
    write_microdata(LEAVES, tmp_path / "other", rows_per_file=3)
    plant(folder, tmp_path / "other")
    refused(folder, ConfigError, says)


@pytest.mark.parametrize("name", ["", ".", "/", "..", "a/..", "a\0b", "x" * 250])
def test_a_directory_that_cannot_be_meant_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"give a directory with a name|cannot be written"):
        write_microdata(LEAVES, name)
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_microdata(LEAVES, tmp_path / "file" / "m")
    assert everything(tmp_path) == {"file": b"mine"}


# -- torn ones -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["part-00000.parquet", "part-00002.parquet"])
def test_torn_microdata_are_named(folder: Path, name: str) -> None:
    path = folder / name
    kept = path.read_bytes()
    for torn in (b"", kept[:-1], kept[:100] + bytes([kept[100] ^ 1]) + kept[101:]):
        path.write_bytes(torn)
        refused(folder, DataError, rf"{name} is not the file that _manifest\.json lists: .*; remove {folder}, and they")
    path.unlink()
    refused(folder, DataError, rf"{name} is not the file that")
    shutil.rmtree(folder)
    write_microdata(LEAVES, folder)


# -- what killed jobs left -----------------------------------------------------------------------------------------


def test_leftovers_of_a_killed_job_go(folder: Path) -> None:
    staging = folder.with_name(".m.partial")
    (staging / ".scattered").mkdir(parents=True)
    for name in (".scattered/0", ".scattered/17", "part-00000.parquet", "_manifest.json.partial", INVENTORY):
        (staging / name).write_text("torn")
    old = folder.with_name(".m.old")
    shutil.copytree(folder, old)
    (old / "part-00001.parquet").unlink()  # killed while it removed them
    made = write_microdata(LEAVES, folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == [".m.lock", "m"]
    assert sorted(path.name for path in folder.iterdir()) == [INVENTORY, *(path.name for path in made.files)]


def test_what_was_set_aside_gets_its_name_back_and_an_empty_one_goes(folder: Path) -> None:
    before = everything(folder)
    folder.rename(folder.with_name(".m.old"))
    microdata.require_replaceable(folder)
    assert everything(folder) == before
    folder.with_name(".m.old").mkdir()
    microdata.require_replaceable(folder)
    assert everything(folder) == before
    assert not folder.with_name(".m.old").exists()


def test_torn_ones_that_were_set_aside_get_no_name_back(folder: Path) -> None:
    old = folder.rename(folder.with_name(".m.old"))
    (old / "part-00000.parquet").unlink()
    microdata.require_replaceable(folder)
    assert not folder.exists()
    assert not old.exists()


@pytest.mark.parametrize("beside", [".m.partial", ".m.old"])
def test_a_file_of_somebody_else_s_under_our_names_stays(folder: Path, beside: str) -> None:
    other = folder.with_name(beside)
    shutil.copytree(folder, other)
    (other / "notes.txt").write_text("mine")
    refused(folder, ConfigError, rf"{beside} contains 'notes\.txt', which .*; nothing was deleted")
    shutil.rmtree(other)
    other.write_text("mine")
    refused(folder, ConfigError, "move it away")


def test_a_file_that_was_changed_after_it_was_set_aside_stays(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name(".m.old"))
    (folder.with_name(".m.old") / "part-00000.parquet").write_text("mine")
    refused(folder, ConfigError, r"part-00000\.parquet was changed after it was written; nothing was deleted")


def test_links_under_our_names_are_not_followed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "other"
    write_microdata(LEAVES, other)
    before = everything(other)
    folder.with_name(".m.partial").symlink_to(other)
    write_microdata(LEAVES, folder)
    assert not folder.with_name(".m.partial").is_symlink()
    folder.with_name(".m.old").symlink_to(other)
    refused(folder, ConfigError, r"\.m\.old is a link")
    assert everything(other) == before


# -- the same again ------------------------------------------------------------------------------------------------


@pytest.fixture
def public(toy_run: Path) -> Path:
    from topdown.config import load_config
    from topdown.pipeline import run as pipeline

    return pipeline.run(load_config(toy_run)).public


def test_the_same_microdata_are_not_written_again(public: Path, tmp_path: Path) -> None:
    schemas = [None, {"age": ["x", "y"]}, {"cell": ["adults", "children"]}]
    for order in ("sorted", "shuffled"):
        made = synthesize(public, tmp_path / "m", order=order)  # type: ignore[arg-type]
        assert not made.already_there
        before = {path: path.stat().st_ino for path in [tmp_path / "m", *made.files]}
        again = synthesize(public, tmp_path / "m", order=order)  # type: ignore[arg-type]
        assert again.already_there
        assert (again.records, again.files, again.schema) == (made.records, made.files, made.schema)
        assert {path: path.stat().st_ino for path in [tmp_path / "m", *made.files]} == before
    assert not synthesize(public, tmp_path / "m", order="shuffled", source=SeededSource(1)).already_there
    there = [synthesize(public, tmp_path / "m", order="shuffled", schema=schema).already_there for schema in schemas]
    assert there == [True, False, False]


def test_another_release_replaces_the_microdata(public: Path, tmp_path: Path) -> None:
    synthesize(public, tmp_path / "m")
    manifest = json.loads((public / "manifest.json").read_text())
    table = public / "release.parquet"
    pd.read_parquet(table).to_parquet(table)  # the same counts in other bytes: another digest
    import hashlib

    manifest["files"]["release.parquet"]["sha256"] = hashlib.sha256(table.read_bytes()).hexdigest()
    (public / "manifest.json").write_text(json.dumps(manifest))
    assert not synthesize(public, tmp_path / "m").already_there
    assert synthesize(public, tmp_path / "m").already_there


def test_microdata_of_a_release_in_memory_are_always_written(tmp_path: Path) -> None:
    leaves = Leaves.of_values(LEAVES.geoids, LEAVES.cells, LEAVES.values, False)
    write_microdata(leaves, tmp_path / "m")
    assert not write_microdata(leaves, tmp_path / "m").already_there


def test_torn_microdata_are_no_reason_to_do_nothing(public: Path, tmp_path: Path) -> None:
    made = synthesize(public, tmp_path / "m")
    made.files[0].write_bytes(b"")
    with pytest.raises(DataError, match=r"part-00000\.parquet is not the file that"):
        synthesize(public, tmp_path / "m")
