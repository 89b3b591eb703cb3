"""Killed at any moment, a run that is started again makes the release that it would have made, and spends once.

A server process imports everything once and forks a child for every run; the child kills itself (SIGKILL) at a numbered
point (before and after every stage, synced write, rename and entry in the ledger), or the server kills it after some
milliseconds. No handler runs then and no buffer is flushed: what is on disk is all that is left.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from support.crash import (
    PUBLIC,
    Server,
    content,
    made_place,
    measured,
    points_of,
    require_nothing_torn,
)
from topdown.config import load_config
from topdown.errors import BudgetError, ConfigError, DataError
from topdown.machine.progress import Silent
from topdown.pipeline import derive, draw
from topdown.pipeline import run as pipeline
from topdown.privacy import ledger_file
from topdown.privacy.ledger import Ledger

# -- what must hold -------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, frame: pd.DataFrame) -> Path:
    """A fresh release with a ledger: the path of its configuration."""
    return made_place(tmp_path / "first", frame)


def require_the_same_release(config: Path) -> None:
    """The restarted run's release is, byte for byte, what an undisturbed run makes of the same measurements."""
    folder = config.parent
    output = folder / "output"
    other = folder.parent / f"{folder.name} undisturbed"
    other.mkdir()
    for path in (folder / "run.toml", folder / "table.csv", *folder.glob("ledger.db*")):
        shutil.copy(path, other)
    (other / "output" / "internal").mkdir(parents=True)
    for name in ("draw.json", "key"):
        shutil.copy(output / "internal" / name, other / "output" / "internal")
    pipeline.run(load_config(other / "run.toml"), workers=1)
    assert content(other / "output" / "public") == content(output / "public")
    account = Ledger(folder / "ledger.db").account("census")
    assert (len(account.releases), len(account.confirmed), account.left) == (1, 1, 0)
    assert sorted(path.name for path in output.iterdir()) == ["internal", "public"]
    assert sorted(path.name for path in (output / "internal").iterdir()) == ["draw.json", "key", "lock"]
    shutil.rmtree(other)


def killed_and_restarted(server: Server, config: Path, kills: list[dict[str, Any]]) -> int:
    """Kill a run as ``kills`` say, one after the other, then let it end; how many of them met a run still at work."""
    secret: bytes | None = None
    code: str | None = None
    met = 0
    internal = config.parent / "output" / "internal"
    for kill in [*kills, {}]:
        ended, said = server.run(config, **kill)
        assert ended == (-signal.SIGKILL if kill else 0) or (kill and ended == 0), said
        met += ended == -signal.SIGKILL
        require_nothing_torn(config.parent)
        if secret is not None:
            assert (internal / "key").read_bytes() == secret, "noise was drawn from a second key"
        if code is not None:
            assert measured(internal) == code, "other noise was drawn from the same key"
        secret = (internal / "key").read_bytes() if (internal / "key").exists() else None
        code = measured(internal) if (internal / "draw.json").exists() else None
    require_the_same_release(config)
    return met


def test_the_points_cover_every_step(server: Server, place: Path) -> None:
    points = points_of(server, place)
    stages = ["reading the table", "drawing noise", "keeping what was measured", "projecting", "rounding", "writing"]
    wanted = [f"{way} {stage}" for stage in stages for way in ("enter", "leave")]
    assert [point for point in points if point in wanted] == wanted
    order = [
        "after reserve", "before begin", "after replace", "after begin", "before measure", "after measure",
        "before keep", "after replace", "after keep",
        "before confirm", "after confirm", "enter projecting", "before write_json", "before rename", "after rename",
        "leave writing",
    ]  # fmt: skip
    place_of = iter(points)
    assert all(name in place_of for name in order), points
    assert len(points) > 60
    require_the_same_release(place)


def test_everything_is_on_disk_before_what_depends_on_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    output = place.parent / "output"
    fsync, rename, project, measure = os.fsync, Path.rename, derive.project, draw.measure

    def measuring(*arguments: Any, **options: Any) -> Any:
        done.append(("measure", ""))
        return measure(*arguments, **options)

    def synced(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        done.append(("sync", str(path.relative_to(place.parent))))
        fsync(handle)

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", target.name))
        return rename(path, target)

    def projected(*arguments: Any, **options: Any) -> Any:
        done.append(("project", ""))
        return project(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(Path, "rename", renamed)
        patch.setattr(derive, "project", projected)
        patch.setattr(draw, "measure", measuring)
        pipeline.run(load_config(place), workers=1)
    # The rehearsal projects, too, before anything is drawn.
    first, last = done.index(("project", ""), done.index(("measure", ""))), done.index(("rename", "public"))
    kept = [path for what, path in done[:first] if what == "sync"]
    assert {"output/internal/draw.json.partial", "output/internal", "output", "."} <= set(kept)
    assert kept.index("output/internal/draw.json.partial") < len(kept) - 1 - kept[::-1].index("output/internal")
    # What the noise follows from is there before any is drawn, and its folder's entries too.
    before = [path for what, path in done[: done.index(("measure", ""))] if what == "sync"]
    assert before[-2:] == ["output/internal/draw.json.partial", "output/internal"]
    assert "output/internal/key.partial" in before
    written = {path.removesuffix(".partial") for what, path in done[first:last] if what == "sync"}
    assert written == {f"output/.public.partial/{name}" for name in PUBLIC} | {"output/.public"}
    assert ("sync", "output") in done[last:]
    assert {path.name for path in (output / "public").iterdir()} == PUBLIC


@pytest.mark.system
def test_killed_at_some_points(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    count = len(points_of(server, made_place(tmp_path / "counting", frame)))
    for k in range(8):
        config = made_place(tmp_path / f"killed {k}", frame)
        point = 1 + random.randrange(k * count // 8, (k + 1) * count // 8)
        assert killed_and_restarted(server, config, [{"point": point}]) == 1


@pytest.mark.system
def test_killed_at_some_moments(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    begin = time.perf_counter()
    points_of(server, made_place(tmp_path / "counting", frame))
    whole = time.perf_counter() - begin
    for k in range(4):
        config = made_place(tmp_path / f"killed {k}", frame)
        killed_and_restarted(server, config, [{"seconds": random.uniform(0, whole), "workers": 2}])


@pytest.mark.slow
def test_killed_at_every_point(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    points = points_of(server, made_place(tmp_path / "counting", frame))
    for k, _ in enumerate(points, start=1):
        config = made_place(tmp_path / f"killed {k}", frame)
        assert killed_and_restarted(server, config, [{"point": k}]) == 1, points[k - 1]
        shutil.rmtree(config.parent)


@pytest.mark.slow
def test_killed_at_random_moments_again_and_again(server: Server, tmp_path: Path, frame: pd.DataFrame) -> None:
    begin = time.perf_counter()
    count = len(points_of(server, made_place(tmp_path / "counting", frame)))
    whole = time.perf_counter() - begin
    met, rounds = 0, 0
    while met < 200:
        rounds += 1
        config = made_place(tmp_path / f"killed {rounds}", frame)
        kills = [
            random.choice(
                [{"seconds": random.uniform(0, whole), "workers": 2}, {"point": random.randint(1, max(1, count // 2))}]
            )
            for _ in range(random.randint(1, 3))
        ]
        met += killed_and_restarted(server, config, kills)
        shutil.rmtree(config.parent)
    assert rounds < 1000, "too few kills met a run at work"


# -- full disks, closed folders, other processes --------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize("limit", [0, 100, 1_000, 2_000, 3_000, 4_000, 5_000, 8_000, 20_000])
def test_a_full_disk_is_an_error_and_loses_nothing(server: Server, place: Path, limit: int) -> None:
    # A file that cannot grow beyond ``limit`` bytes fails where a full disk does: in the middle of a write.
    code, said = server.run(place, bytes=limit)
    assert code in {ConfigError.exit_code, DataError.exit_code, BudgetError.exit_code}, said
    assert re.search(r"File too large|cannot be used: (disk I/O error|database or disk is full)", said), said
    require_nothing_torn(place.parent)
    assert not (place.parent / "output" / "public").exists()
    assert not list((place.parent / "output").glob(".*"))
    assert killed_and_restarted(server, place, []) == 0


@pytest.mark.parametrize("closed", ["output", "output/internal", "ledger.db"])
def test_what_may_not_be_written_is_an_error_and_loses_nothing(server: Server, place: Path, closed: str) -> None:
    folder = place.parent
    (folder / "output" / "internal").mkdir(parents=True, mode=0o700)
    target = folder / closed
    if closed == "output":
        (target / "internal").rmdir()
    target.chmod(0o555 if target.is_dir() else 0o444)
    code, said = server.run(place, rights="none")
    if closed == "output/internal":
        assert (code, said) == (0, "")  # the run's own folder, which it opens for itself and closes to others
    else:
        assert code in {ConfigError.exit_code, BudgetError.exit_code}, said
        assert re.search(r"Permission denied|readonly database", said), said
        assert not (folder / "output" / "public").exists()
    target.chmod(0o755 if target.is_dir() else 0o644)
    assert killed_and_restarted(server, place, []) == 0


def test_a_ledger_that_is_held_stops_a_run_before_it_draws(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "PATIENCE_SECONDS", 0.05)
    with ledger_file.transaction(place.parent / "ledger.db"), pytest.raises(BudgetError, match="another process holds"):
        pipeline.run(load_config(place))
    assert sorted(path.name for path in (place.parent / "output" / "internal").iterdir()) == ["key", "lock"]
    pipeline.run(load_config(place))
    require_the_same_release(place)


def test_a_ledger_that_is_held_when_the_noise_is_drawn_loses_no_noise(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file, "PATIENCE_SECONDS", 0.05)
    with monkeypatch.context() as patch:
        confirm = Ledger.confirm

        def locked(self: Ledger, *arguments: Any) -> str:
            with ledger_file.transaction(self.path):
                return confirm(self, *arguments)

        patch.setattr(Ledger, "confirm", locked)
        with pytest.raises(BudgetError, match="another process holds"):
            pipeline.run(load_config(place))
    assert not (place.parent / "output" / "public").exists()
    code = measured(place.parent / "output" / "internal")
    pipeline.run(load_config(place))
    assert code is not None
    assert measured(place.parent / "output" / "internal") == code
    require_the_same_release(place)


class Meddling(Silent):
    """Changes the input when the stage called ``title`` begins."""

    def __init__(self, table: Path, title: str) -> None:
        self.table = table
        self.title = title

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        if title == self.title:
            self.table.write_text(self.table.read_text().replace(",20,", ",21,"))
        yield


def test_an_input_that_changes_while_it_is_read_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.parent / "table.csv"
    read_input = draw.read_input

    def meddled(*arguments: Any, **options: Any) -> Any:
        found = read_input(*arguments, **options)
        table.write_text(table.read_text().replace(",20,", ",21,"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(draw, "read_input", meddled)
        with pytest.raises(DataError, match="changed while it was read; run again"):
            pipeline.run(load_config(place))
    assert Ledger(place.parent / "ledger.db").account("census").spent == 0
    pipeline.run(load_config(place))
    require_the_same_release(place)


def test_an_input_that_grows_between_its_units_and_its_counts_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.parent / "table.csv"
    weigh = draw.weigh

    def meddled(*arguments: Any, **options: Any) -> Any:
        found = weigh(*arguments, **options)
        lines = table.read_text().splitlines()
        table.write_text("\n".join([*lines, lines[-1]]) + "\n")
        return found

    monkeypatch.setattr(draw, "weigh", meddled)
    with pytest.raises(DataError, match="changed while it was read; run again"):
        pipeline.run(load_config(place))
    assert Ledger(place.parent / "ledger.db").account("census").spent == 0


@pytest.mark.parametrize("title", ["drawing noise", "keeping what was measured", "projecting", "writing"])
def test_an_input_that_changes_later_does_not_change_the_release(place: Path, title: str) -> None:
    config = load_config(place)
    table = place.parent / "table.csv"
    before = table.read_text()
    pipeline.run(config, stages=Meddling(table, title))
    assert table.read_text() != before
    with pytest.raises(DataError, match=r"another input file; .*another --output"):
        pipeline.run(config)
    table.write_text(before)
    assert pipeline.run(config).already_there
    require_the_same_release(place)


@pytest.mark.system
def test_two_runs_at_the_same_time_make_one_release(place: Path) -> None:
    servers = [Server(), Server()]
    try:
        for one in servers:
            assert one.process.stdin is not None
            one.process.stdin.write(json.dumps({"config": str(place)}) + "\n")
            one.process.stdin.flush()
        answers = [json.loads(one.process.stdout.readline()) for one in servers]  # type: ignore[union-attr]
    finally:
        for one in servers:
            one.process.stdin.close()  # type: ignore[union-attr]
            one.process.wait()
    codes = sorted(answer["code"] for answer in answers)
    assert codes in ([0, 0], [0, ConfigError.exit_code]), answers
    assert all(answer["code"] == 0 or "another run is writing here" in answer["said"] for answer in answers)
    require_the_same_release(place)
