"""A release in parts is the same, byte for byte, whatever dies or tears while it is made; its budget is spent once."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from support.killed import Killing
from support.parted import LEDGER, TOML, AtOnce, counts_of, made, place_of_the_same_noise
from topdown.config import load_config
from topdown.errors import DataError
from topdown.machine.engines import executor_of
from topdown.machine.files import file_digest
from topdown.machine.parallel import ProcessWorkers
from topdown.pipeline import run as pipeline
from topdown.pipeline.input import reading
from topdown.pipeline.parts import part_steps, part_store
from topdown.pipeline.parts.part_files import Written, write
from topdown.pipeline.parts.part_steps import At
from topdown.privacy.ledger import Ledger

pytestmark = pytest.mark.system

SIZE = 3
STEPS = ("up", "down", "write")


class Stopped(Exception):
    """Ends a run as a kill would: nobody tidies up after it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the release of the whole tree in "whole", and in "parts" that in parts, undisturbed."""
    folder = tmp_path_factory.mktemp("faults")
    config = load_config(made(folder))
    pipeline.run(config, folder / "whole")
    pipeline.run(config, place_of_the_same_noise(folder, folder / "whole", "parts"), part_size=SIZE, executor=AtOnce())
    return folder


def same_place(folder: Path, name: str) -> Path:
    return place_of_the_same_noise(folder, folder / "whole", name)


def content(public: Path) -> dict[str, bytes]:
    return {str(path.relative_to(public)): path.read_bytes() for path in public.rglob("*") if path.is_file()}


def run(folder: Path, there: Path, executor: Any, **options: Any) -> None:
    pipeline.run(load_config(folder / "run.toml"), there, part_size=SIZE, executor=executor, **options)


def require_the_same(folder: Path, there: Path) -> None:
    assert content(there / "public") == content(folder / "parts" / "public")
    assert (there / "internal" / "draw.json").read_bytes() == (folder / "parts/internal/draw.json").read_bytes()
    assert sorted(path.name for path in (there / "internal").iterdir()) == ["draw.json", "key", "lock"]


def stopped(folder: Path, there: Path, step: str, number: int = 0) -> None:
    """A run that ends before it does ``step`` for the time ``number``."""
    left = [number]

    def stop(name: str, _: object) -> None:
        if name == step:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

    class Here(AtOnce):
        def submit(self, fn: Any, /, *arguments: Any) -> Any:
            stop(fn.__name__, arguments)
            return super().submit(fn, *arguments)

    with pytest.raises(KeyboardInterrupt):
        run(folder, there, Here())


@pytest.mark.parametrize(
    ("step", "number"), [("up", 0), ("up", 5), ("down", 0), ("down", 5), ("write", 0), ("write", 2)]
)
def test_an_interrupted_run_goes_on_where_it_was(folder: Path, step: str, number: int) -> None:
    there = same_place(folder, f"stopped {step} {number}")
    stopped(folder, there, step, number)
    executor = AtOnce()
    run(folder, there, executor)
    again = [task for task in executor.done if task[0] == step]
    whole = {"up": 13, "down": 13, "write": 6}[step]
    # Files that are written are looked at again, and found to be there.
    assert len(again) == (whole if step == "write" else whole - number)
    assert not [task for task in executor.done if STEPS.index(task[0]) < STEPS.index(step)]
    require_the_same(folder, there)


def test_parts_that_outlive_their_release_go_with_the_next_run(folder: Path) -> None:
    """A run was killed between naming public/ and removing the last of them."""
    there = same_place(folder, "outlived")
    run(folder, there, AtOnce(), keep_parts=True)
    (there / "internal" / "parts" / "job").unlink()
    assert (there / "internal" / "parts").is_dir()
    run(folder, there, AtOnce())
    require_the_same(folder, there)


def test_parts_that_cannot_be_removed_are_said_to_be_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = same_place(folder, "kept")

    rmtree = shutil.rmtree

    def failing(path: Any, **options: Any) -> None:
        if Path(path) == there / "internal" / "parts" and (there / "public").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rmtree(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", failing)
        with pytest.raises(
            DataError, match=r"internal/parts: cannot be removed: .*confidential counts.*run again, which"
        ):
            run(folder, there, AtOnce())
    assert content(there / "public") == content(folder / "parts" / "public")
    run(folder, there, AtOnce())
    require_the_same(folder, there)


TORN = {
    "job": "cut off", "geography.parquet": "cut off", "cut/0001": "changed", "cut/above": "gone",
    "cut/taken": "changed", "up/0002": "cut off", "top/above": "changed", "top/0003": "gone", "down/0004": "cut off",
    "starts": "cut off", "public/release.parquet": "changed", "public/release.csv": "cut off",
    "public/tables/total.parquet": "gone", "written/release.csv": "changed",
}  # fmt: skip


@pytest.mark.parametrize(("name", "tear"), TORN.items(), ids=[name.replace("/", " ") for name in TORN])
def test_a_torn_file_is_made_again(folder: Path, name: str, tear: str) -> None:
    there = same_place(folder, f"torn {name.replace('/', ' ')} {tear}")
    stopped(folder, there, "write", 5)
    path = there / "internal" / "parts" / name
    content = path.read_bytes()
    if tear == "gone":
        path.unlink()
    elif tear == "cut off":
        path.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    run(folder, there, AtOnce())
    require_the_same(folder, there)


def test_a_part_whose_counts_are_anothers_is_cut_again(folder: Path) -> None:
    """Each file is whole, and of this release: in another's place, its counts would get the other's noise."""
    there = same_place(folder, "exchanged")
    stopped(folder, there, "up", 5)
    cut = there / "internal" / "parts" / "cut"
    shutil.copy(cut / "0001", cut / "0007")
    run(folder, there, AtOnce())
    require_the_same(folder, there)


def test_parts_of_other_counts_are_cut_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under the same secret and the same digests, as where another version counts otherwise."""
    other = same_place(folder, "counted otherwise")
    table, digest = folder / "table.parquet", file_digest(folder / "table.parquet")
    counted = table.read_bytes()
    frame = pd.read_parquet(table)
    frame.loc[0, "n"] += 1
    frame.to_parquet(table)
    with monkeypatch.context() as patch:
        patch.setattr(reading, "input_digest", lambda _: digest)
        stopped(folder, other, "up", 5)
    table.write_bytes(counted)
    for name in ("0001", "above"):
        there = same_place(folder, f"counted {name}")
        stopped(folder, there, "up", 5)
        path = Path("internal/parts/cut") / name
        shutil.copy(other / path, there / path)
        executor = AtOnce()
        run(folder, there, executor)
        assert len([task for task in executor.done if task[0] == "up"]) == 13  # all anew
        require_the_same(folder, there)


def test_a_file_that_tears_while_others_work_is_made_again(folder: Path) -> None:
    there = same_place(folder, "torn meanwhile")
    torn: list[str] = []

    def tear(name: str, task: Any) -> None:
        path = {"down": "top/0002", "write": "down/0001"}.get(name)
        if path is not None and path not in torn:
            torn.append(path)
            (there / "internal" / "parts" / path).write_bytes(b"torn")

    run(folder, there, AtOnce(tear))
    assert len(torn) == 2
    require_the_same(folder, there)


def test_two_workers_at_one_part_give_the_same_bytes(folder: Path) -> None:
    there = same_place(folder, "twice")
    stopped(folder, there, "write", 5)
    root = there / "internal" / "parts"
    steps = [(part_steps.up, At(root, 1), root / "up/0001"), (part_steps.down, At(root, 1), root / "down/0001")]
    with ThreadPoolExecutor(4) as pool:
        for work, at, path in steps:
            before = path.read_bytes()
            path.unlink()
            for future in [pool.submit(work, at) for _ in range(4)]:
                future.result()
            assert path.read_bytes() == before
            assert [one.name for one in path.parent.iterdir() if one.name.startswith("0001")] == ["0001"]
        written = root / "public" / "release.csv"
        (root / "written" / "release.csv").unlink()
        for future in [pool.submit(write, Written(root, "release.csv")) for _ in range(3)]:
            future.result()
        assert written.exists()
    run(folder, there, AtOnce())
    require_the_same(folder, there)


@pytest.mark.parametrize("step", ["up", "top", "down", "starts", "written"])
def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(
    folder: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = same_place(folder, f"full {step}")
    whole_file = part_store.whole_file

    def full(path: Path, **options: Any) -> Any:
        if path.parent.name == step or path.name.startswith(step):
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole_file(path, **options)

    monkeypatch.setattr(part_store, "whole_file", full)
    with pytest.raises(DataError, match="No space left on device; free the space and run again"):
        run(folder, there, AtOnce())
    assert not (there / "public").exists()
    monkeypatch.undo()
    run(folder, there, AtOnce())
    require_the_same(folder, there)


@pytest.mark.parametrize(
    "step", ["up", pytest.param("down", marks=pytest.mark.slow), pytest.param("write", marks=pytest.mark.slow)]
)
def test_a_worker_that_is_killed_is_replaced(folder: Path, step: str, tmp_path: Path) -> None:
    there = same_place(folder, f"killed {step}")
    pool = ProcessWorkers(2, fresh=True)
    try:
        run(folder, there, Killing(pool, step, tmp_path / "flag", 0.3), workers=2)
    finally:
        pool.shutdown()
    assert (tmp_path / "flag").exists()
    require_the_same(folder, there)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [4.0, 6.0, 8.0, 10.0, 13.0])
def test_a_client_that_is_killed_goes_on(tmp_path: Path, seconds: float) -> None:
    config = made(tmp_path, TOML + LEDGER)
    command = [sys.executable, "-c", "from topdown.entry import main; main()", "run", str(config), "--part-size", "3"]
    first = subprocess.Popen([*command, "-q"])
    time.sleep(seconds)
    first.send_signal(signal.SIGKILL)
    first.wait()
    internal = tmp_path / "output" / "internal"
    key = (internal / "key").read_bytes() if (internal / "key").exists() else None
    subprocess.run([*command, "-q"], check=True)
    assert key in (None, (internal / "key").read_bytes())
    whole = place_of_the_same_noise(tmp_path, tmp_path / "output", "whole")
    (tmp_path / "run.toml").write_text(TOML)
    pipeline.run(load_config(config), whole)
    assert counts_of(tmp_path / "output" / "public") == counts_of(whole / "public")
    account = Ledger(tmp_path / "ledger.db").account("census")
    assert (len(account.releases), len(account.confirmed), account.left) == (1, 1, 0)


# -- a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as made:
        yield made


@pytest.mark.slow
def test_dask_publishes_the_same(folder: Path, cluster: Any) -> None:
    there = same_place(folder, "dask")
    command = [sys.executable, "-c", "from topdown.entry import main; main()", "run", str(folder / "run.toml"), "-q"]
    asked = ["--engine", "dask", "--scheduler", cluster.scheduler_address, "--part-size", str(SIZE), "-o", str(there)]
    subprocess.run([*command, *asked], check=True)
    require_the_same(folder, there)


@pytest.mark.slow
def test_workers_of_a_cluster_take_memory_as_processes_of_this_computer_do(cluster: Any) -> None:
    with executor_of("dask", cluster.scheduler_address) as executor:
        assert executor is not None
        assert executor.submit(sys.getswitchinterval).result() < 0.001
        assert executor.submit(os.getenv, "ARROW_DEFAULT_MEMORY_POOL").result() == "system"


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_worker_of_a_cluster_that_is_killed_is_replaced(
    folder: Path, cluster: Any, step: str, tmp_path: Path
) -> None:
    from distributed import Client

    there = same_place(folder, f"killed in a cluster {step}")
    with Client(cluster) as client:
        executor = client.get_executor(pure=False)
        run(folder, there, Killing(executor, step, tmp_path / "flag", 0.2), workers=2)
    assert (tmp_path / "flag").exists()
    require_the_same(folder, there)


@pytest.mark.slow
def test_a_scheduler_that_is_killed_ends_the_run_which_goes_on_with_another(folder: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    there = same_place(folder, "scheduler")
    command = [sys.executable, "-c", "from topdown.entry import main; main()", "run", str(folder / "run.toml"), "-q"]

    def begun(cluster: Any) -> subprocess.Popen[str]:
        asked = ["--engine", "dask", "--scheduler", cluster.scheduler_address]
        return subprocess.Popen(
            [*command, *asked, "--part-size", str(SIZE), "-o", str(there)], stderr=subprocess.PIPE, text=True
        )

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        first = begun(cluster)
        up = there / "internal" / "parts" / "up"
        while first.poll() is None and not (up.exists() and any(up.iterdir())):
            time.sleep(0.02)
    _, said = first.communicate(timeout=120)
    assert first.returncode in (0, 3)
    if first.returncode:
        assert "the scheduler of the cluster is lost" in said or "failed 4 times" in said
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster:
            assert begun(cluster).wait(timeout=120) == 0
    require_the_same(folder, there)
