"""Killed at any moment, a job that writes microdata leaves the old ones, the new ones or none, and the next succeeds.

As in `test_crash`, every job is a forked process that kills itself at a numbered point, or is killed after some time.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from support.crash import TOML, Server, content, made_place, points_of, require_nothing_torn
from topdown.config import load_config
from topdown.errors import ConfigError, DataError, TopdownError
from topdown.machine import files
from topdown.microdata.leaves import read_leaves
from topdown.microdata.recount import tabulate
from topdown.microdata.written_records import write_microdata
from topdown.pipeline import run as pipeline

OUTPUT = [".microdata.lock", "internal", "microdata", "public"]


def with_microdata(folder: Path, frame: pd.DataFrame) -> Path:
    """A fresh release whose file asks for microdata: the path of its configuration."""
    config = made_place(folder, frame)
    config.write_text(TOML + "[output]\nmicrodata = true\n")
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished release and its microdata, sorted, in several files; to be copied and not changed."""
    folder = tmp_path_factory.mktemp("finished") / "place"
    frame = pd.DataFrame(
        {"county": ["01001", "01003", "02001"], "adults": [900, 20, 300], "children": [100, 2, 30]}, dtype=object
    )
    config = made_place(folder, frame)
    public = pipeline.run(load_config(config)).public
    made = write_microdata(read_leaves(public), public.parent / "microdata", rows_per_file=400)
    assert len(made.files) > 2
    return folder


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
    return copied(finished, tmp_path / "place")


def copied(finished: Path, folder: Path) -> Path:
    shutil.copytree(finished, folder)
    return folder / "run.toml"


def order_found(output: Path) -> str | None:
    """The order of the microdata that a reader finds, None where there are none; never torn ones."""
    folder = output / "microdata"
    if not os.path.lexists(folder):
        return None
    facts = json.loads((folder / "_manifest.json").read_text())
    assert {path.name for path in folder.iterdir()} == {"_manifest.json", *facts["files"]}
    for name, listed in facts["files"].items():
        assert (files.file_digest(folder / name), (folder / name).stat().st_size) == (listed["sha256"], listed["bytes"])
    leaves = read_leaves(output / "public")
    assert facts["release_sha256"] == leaves.digest
    assert (tabulate(folder, leaves.geoids, leaves.cells) == leaves.values).all()
    return str(facts["order"])


def require_order_and_nothing_else(output: Path, order: str) -> None:
    assert order_found(output) == order
    assert sorted(path.name for path in output.iterdir()) == OUTPUT


# -- a run that goes on to microdata --------------------------------------------------------------------------------


def killed_run_and_restarted(server: Server, config: Path, kills: list[dict[str, Any]]) -> int:
    output, met = config.parent / "output", 0
    for kill in [*kills, {}]:
        code, said = server.run(config, **kill)
        assert code == (-signal.SIGKILL if kill else 0) or (kill and code == 0), said
        met += code == -signal.SIGKILL
        require_nothing_torn(config.parent)
        assert order_found(output) in {None, "sorted"}
    require_order_and_nothing_else(output, "sorted")
    return met


@pytest.mark.system
def test_a_run_killed_at_some_points_goes_on_to_its_microdata(
    server: Server, tmp_path: Path, frame: pd.DataFrame
) -> None:
    points = points_of(server, with_microdata(tmp_path / "counting", frame))
    begin = points.index("enter reading the release")
    assert {"before rename", "after rename", "after fsync", "leave tabulating the records"} <= set(points[begin:])
    for k in range(6):
        config = with_microdata(tmp_path / f"killed {k}", frame)
        point = 1 + random.randrange(
            begin + k * (len(points) - begin) // 6, begin + (k + 1) * (len(points) - begin) // 6
        )
        assert killed_run_and_restarted(server, config, [{"point": point}]) == 1, points[point - 1]


@pytest.mark.slow
def test_a_run_killed_at_every_point_goes_on_to_its_microdata(
    server: Server, tmp_path: Path, frame: pd.DataFrame
) -> None:
    points = points_of(server, with_microdata(tmp_path / "counting", frame))
    for k, _ in enumerate(points, start=1):
        config = with_microdata(tmp_path / f"killed {k}", frame)
        assert killed_run_and_restarted(server, config, [{"point": k}]) == 1, points[k - 1]
        shutil.rmtree(config.parent)


def test_a_run_that_is_done_does_nothing_again(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    config = with_microdata(tmp_path / "first", frame)
    assert server.run(config) == (0, "")
    output = config.parent / "output"
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in [output, *output.rglob("*")]}
    again = pipeline.run(load_config(config))
    assert again.already_there
    assert again.microdata is not None
    assert again.microdata.already_there
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in [output, *output.rglob("*")]} == before


def test_a_folder_of_somebody_else_s_is_refused_before_anything_is_drawn(
    server: Server, tmp_path: Path, frame: pd.DataFrame
) -> None:
    config = with_microdata(tmp_path / "first", frame)
    theirs = config.parent / "output" / "microdata" / "notes.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    code, said = server.run(config)
    assert (code, "contains no microdata of Topdown" in said) == (ConfigError.exit_code, True), said
    assert theirs.read_text() == "mine"
    assert not (config.parent / "output" / "internal").exists()


# -- microdata that replace others ----------------------------------------------------------------------------------


def killed_replacement(server: Server, config: Path, kills: list[dict[str, Any]], after: str) -> int:
    """Kill jobs that put shuffled records in place of sorted ones, then write ``after``; how many were at work."""
    output, met = config.parent / "output", 0
    for kill in kills:
        code, said = server.run(config, synthesize="shuffled", **kill)
        assert code in {-signal.SIGKILL, 0}, said
        met += code == -signal.SIGKILL
        found = order_found(output)
        assert found in {None, "sorted", "shuffled"}
        if found is None:  # only for the moment between two renames, and then the old ones lie beside, whole
            shutil.copytree(output / ".microdata.old", output.parent / "aside" / "microdata")
            (output.parent / "aside" / "public").symlink_to(output / "public")
            assert order_found(output.parent / "aside") == "sorted"
            shutil.rmtree(output.parent / "aside")
    assert server.run(config, synthesize=after) == (0, "")
    require_order_and_nothing_else(output, after)
    return met


def replacement_points(server: Server, finished: Path, tmp_path: Path) -> list[str]:
    config = copied(finished, tmp_path / "counting")
    points = points_of(server, config, synthesize="shuffled")
    names = ["leave tabulating the records", "before rename", "after rename", "before rename", "after rename"]
    place_of = iter(points)
    assert all(name in place_of for name in [*names, "after unlink", "before unlink", "after rmdir"]), points
    require_order_and_nothing_else(config.parent / "output", "shuffled")
    return points


@pytest.mark.system
def test_a_replacement_killed_at_some_points(server: Server, finished: Path, tmp_path: Path) -> None:
    points = replacement_points(server, finished, tmp_path)
    first_rename = len(points) - 1 - points[::-1].index("after rename")
    chosen = {1 + random.randrange(k * len(points) // 6, (k + 1) * len(points) // 6) for k in range(6)}
    chosen |= {k + 1 for k, name in enumerate(points) if name.endswith("rename")} | {first_rename + 4, len(points) - 1}
    for k in sorted(chosen):
        config = copied(finished, tmp_path / f"killed {k}")
        after = random.choice(["sorted", "shuffled"])
        assert killed_replacement(server, config, [{"point": k}], after) == 1, points[k - 1]


@pytest.mark.slow
@pytest.mark.parametrize("after", ["sorted", "shuffled"])
def test_a_replacement_killed_at_every_point(server: Server, finished: Path, tmp_path: Path, after: str) -> None:
    for k, name in enumerate(replacement_points(server, finished, tmp_path), start=1):
        config = copied(finished, tmp_path / f"killed {k}")
        assert killed_replacement(server, config, [{"point": k}], after) == 1, name
        shutil.rmtree(config.parent)


@pytest.mark.slow
def test_a_replacement_killed_at_random_moments_again_and_again(server: Server, finished: Path, tmp_path: Path) -> None:
    count = len(replacement_points(server, finished, tmp_path))
    begin = time.perf_counter()
    server.run(copied(finished, tmp_path / "timing"), synthesize="shuffled")
    whole = time.perf_counter() - begin
    met, rounds = 0, 0
    while met < 200:
        rounds += 1
        config = copied(finished, tmp_path / f"killed {rounds}")
        kills = [
            random.choice([{"seconds": random.uniform(0, whole)}, {"point": random.randint(1, count)}])
            for _ in range(random.randint(1, 4))
        ]
        met += killed_replacement(server, config, kills, random.choice(["sorted", "shuffled"]))
        shutil.rmtree(config.parent)
    assert rounds < 1000, "too few kills met a job at work"


def test_what_was_set_aside_comes_back_also_where_the_next_job_fails(server: Server, place: Path) -> None:
    output = place.parent / "output"
    before = content(output / "microdata")
    (output / "microdata").rename(output / ".microdata.old")
    code, said = server.run(place, synthesize="shuffled", bytes=100)
    assert code == DataError.exit_code, said
    assert content(output / "microdata") == before
    assert sorted(path.name for path in output.iterdir()) == OUTPUT


def test_a_second_rename_that_fails_gives_the_old_ones_their_name_back(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, rename = place.parent / "output", Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.name == ".microdata.partial":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    before = content(output / "microdata")
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(DataError, match=r"microdata: cannot be written: .*Input/output error"):
        pipeline.synthesize(load_config(place), order="shuffled")
    assert content(output / "microdata") == before
    assert sorted(path.name for path in output.iterdir()) == OUTPUT


class Failing:
    """Lets operation number ``last`` fail as a broken disk does, and all others be done."""

    def __init__(self, last: int) -> None:
        self.passed = 0
        self.last = last

    def __call__(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def operation(*arguments: Any, **options: Any) -> Any:
            self.passed += 1
            if self.passed == self.last:
                raise OSError(5, "Input/output error")
            return function(*arguments, **options)

        patch.setattr(owner, name, operation)


@pytest.mark.system
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_a_disk_error_at_any_step_leaves_nothing_torn(
    finished: Path, tmp_path: Path, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        *[(os, name) for name in ("fsync", "open", "scandir")],
        *[(Path, name) for name in ("rename", "replace", "mkdir", "unlink", "rmdir", "open", "lstat", "iterdir")],
        (pq.ParquetWriter, "write_batch"),
        (shutil, "disk_usage"),
    ]
    said: list[str] = []
    for k in itertools.count(1):
        config = copied(finished, tmp_path / f"failing {k}")
        output, failing = config.parent / "output", Failing(k)
        leaves = read_leaves(output / "public")
        with monkeypatch.context() as patch:
            for owner, name in steps:
                failing(patch, owner, name)
            try:
                write_microdata(leaves, output / "microdata", order=order)
            except TopdownError as error:
                said.append(str(error))
        if failing.passed < k:
            break
        assert order_found(output) in {None, "sorted", order}, k
        write_microdata(leaves, output / "microdata", order=order)
        require_order_and_nothing_else(output, order)
        shutil.rmtree(config.parent)
    assert len(said) > 20
    assert all("Input/output error" in message for message in said)


# -- the power goes: what is synced before what is renamed or removed -----------------------------------------------


def operations(config: Path, monkeypatch: pytest.MonkeyPatch, order: Any) -> list[tuple[str, str]]:
    """What a job syncs, renames and removes in the output directory, one after the other, by path."""
    done: list[tuple[str, str]] = []
    output = config.parent / "output"
    fsync, rename, unlink = os.fsync, Path.rename, Path.unlink

    def synced(handle: int) -> None:
        done.append(("sync", os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), output)))
        fsync(handle)

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", f"{path.name} {Path(target).name}"))
        return rename(path, target)

    def removed(path: Path, **options: Any) -> None:
        if os.path.lexists(path):
            done.append(("unlink", os.path.relpath(path, output)))
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(Path, "rename", renamed)
        patch.setattr(Path, "unlink", removed)
        pipeline.synthesize(load_config(config), order=order)
    return done


def test_new_microdata_are_on_disk_before_they_have_their_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = place.parent / "output"
    shutil.rmtree(output / "microdata")
    done = operations(place, monkeypatch, "sorted")
    at = done.index(("rename", ".microdata.partial microdata"))
    staging = ".microdata.partial"
    names = {path.name for path in (output / "microdata").iterdir()}
    assert len(names) == 2
    assert {path for what, path in done[:at] if what == "sync"} >= {f"{staging}/{name}" for name in names} | {staging}
    assert done[:at].index(("sync", f"{staging}/part-00000.parquet")) < done[:at].index(("sync", staging))
    assert ("sync", ".") in done[at:]


def test_old_microdata_go_when_the_new_ones_are_on_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {path.name for path in (place.parent / "output" / "microdata").iterdir()}
    done = operations(place, monkeypatch, "shuffled")
    away, here = (
        done.index(("rename", "microdata .microdata.old")),
        done.index(("rename", ".microdata.partial microdata")),
    )
    assert away < here
    assert {".microdata.partial", ".microdata.partial/_manifest.json", "."} <= {
        p for w, p in done[:away] if w == "sync"
    }
    assert done[away - 1] == ("sync", ".")
    assert done[away + 1 : here] == [("sync", ".")]
    assert done[here + 1] == ("sync", ".")
    removed = [path for what, path in done[here + 2 :] if what == "unlink"]
    assert {Path(path).name for path in removed} == old
    assert removed[-1] == ".microdata.old/_manifest.json"
    assert not [path for what, path in done[:here] if what == "unlink" and ".old" in path]


# -- two at once, full disks, closed folders ------------------------------------------------------------------------


def asked(servers: list[Server], config: Path, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of ``servers`` to ``jobs`` at the same time."""
    for one, job in zip(servers, jobs, strict=True):
        assert one.process.stdin is not None
        one.process.stdin.write(json.dumps({"config": str(config), **job}) + "\n")
        one.process.stdin.flush()
    return [json.loads(one.process.stdout.readline()) for one in servers]  # type: ignore[union-attr]


@pytest.mark.system
def test_two_jobs_at_the_same_time_tear_nothing(server: Server, place: Path) -> None:
    other = Server()
    try:
        for jobs in ([{"synthesize": "sorted"}, {"synthesize": "shuffled"}], [{"synthesize": "shuffled"}, {}]) * 4:
            answers = asked([server, other], place, jobs)
            codes = sorted(answer["code"] for answer in answers)
            assert codes in ([0, 0], [0, ConfigError.exit_code]), answers
            assert all(answer["code"] == 0 or "is writing" in answer["said"] for answer in answers), answers
            found = order_found(place.parent / "output")
            require_order_and_nothing_else(place.parent / "output", str(found))
    finally:
        other.process.stdin.close()  # type: ignore[union-attr]
        other.process.wait()


@pytest.mark.system
def test_a_reader_finds_whole_microdata_while_they_are_replaced(server: Server, place: Path) -> None:
    folder = place.parent / "output" / "microdata"
    wanted = read_leaves(place.parent / "output" / "public").records
    over, seen, torn = threading.Event(), set(), []

    def read() -> None:
        while not over.is_set():
            try:
                handle = os.open(folder, os.O_RDONLY)  # what a reader has opened stays the same folder
            except FileNotFoundError:
                continue
            try:
                facts = json.loads(Path(f"/proc/self/fd/{handle}/_manifest.json").read_text())
                rows = [pq.read_metadata(f"/proc/self/fd/{handle}/{name}").num_rows for name in facts["files"]]
            except FileNotFoundError:
                continue  # it was replaced and removed meanwhile
            finally:
                os.close(handle)
            seen.add(facts["order"])
            if sum(rows) != wanted:
                torn.append(rows)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for order in ("shuffled", "sorted") * 10:
            assert server.run(place, synthesize=order) == (0, "")
    finally:
        over.set()
        reader.join()
    assert seen == {"sorted", "shuffled"}
    assert torn == []


def test_one_who_holds_the_directory_keeps_the_others_out(server: Server, place: Path) -> None:
    internal = place.parent / "output" / "internal" / "lock"
    with files.locked(internal):
        code, said = server.run(place, synthesize="shuffled")
    assert (code, "another run is writing here" in said) == (ConfigError.exit_code, True), said
    folder = place.parent / "output" / "microdata"
    with files.locked(folder.with_name(".microdata.lock")):
        code, said = server.run(place, synthesize="shuffled")
        assert (code, "another process is writing these microdata" in said) == (ConfigError.exit_code, True), said
        with pytest.raises(ConfigError, match=r"\.microdata\.lock beside it is held"):
            write_microdata(read_leaves(folder.parent / "public"), folder)
    assert order_found(folder.parent) == "sorted"
    assert server.run(place, synthesize="shuffled") == (0, "")


@pytest.mark.parametrize("limit", [0, 100, 500, 700])
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_a_full_disk_leaves_the_old_ones(server: Server, place: Path, limit: int, order: str) -> None:
    output = place.parent / "output"
    before = content(output / "microdata")
    code, said = server.run(place, synthesize=order, bytes=limit)
    assert (code, "File too large" in said) == (DataError.exit_code, True), said
    assert content(output / "microdata") == before
    assert sorted(path.name for path in output.iterdir()) == OUTPUT
    assert server.run(place, synthesize=order) == (0, "")
    require_order_and_nothing_else(output, order)


@pytest.mark.system
@pytest.mark.parametrize(
    ("closed", "mode", "error"),
    [
        ("microdata", 0, ConfigError),
        ("microdata/_manifest.json", 0, ConfigError),
        ("microdata/part-00000.parquet", 0, ConfigError),
        ("", 0o555, DataError),
        (".microdata.lock", 0, ConfigError),
    ],
)
def test_what_may_not_be_used_is_one_message(
    server: Server, place: Path, closed: str, mode: int, error: type[TopdownError]
) -> None:
    output = place.parent / "output"
    target = output / closed
    usual = target.stat().st_mode
    target.chmod(mode)
    code, said = server.run(place, synthesize="shuffled", rights="none")
    target.chmod(usual)
    assert (code, "Permission denied" in said) == (error.exit_code, True), said
    assert said.count("\n") == 1
    assert order_found(output) == "sorted"
    assert server.run(place, synthesize="shuffled") == (0, "")
    require_order_and_nothing_else(output, "shuffled")
