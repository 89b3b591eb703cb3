"""`topdown part`: the steps one by one; what is refused before a tree is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import topdown_command
from support.parted import AtOnce, counts_of, made, place_of_the_same_noise
from topdown.config import load_config
from topdown.errors import DataError
from topdown.pipeline import memory_needed
from topdown.pipeline import run as pipeline
from topdown.pipeline.parts.part_job import Record
from topdown.pipeline.parts.part_plan import folder_of


@pytest.mark.system
def test_steps_one_by_one_publish_what_the_whole_publishes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = made(tmp_path)
    whole = pipeline.run(load_config(config), tmp_path / "whole").public
    there = place_of_the_same_noise(tmp_path, tmp_path / "whole", "there")

    def part(step: str, *more: object) -> int:
        return topdown_command("part", step, config, "-o", there, *more)

    assert part("list") == 2
    assert "topdown part cut makes them" in capfd.readouterr().err
    assert part("cut", "--part-size", 8, "-q") == 0
    capfd.readouterr()
    assert part("list") == 0
    assert capfd.readouterr().out.split() == ["0000", "0001", "0002"]
    for number in ("0002", "0000"):
        assert part("up", "--part", number) == 0
    assert part("top") == 2
    assert part("up", "--part", "0003") == 2
    said = capfd.readouterr().err
    assert "1 of 3 parts have not done topdown part up, 0001 first" in said
    assert "give one from 0000 to 0002" in said
    assert part("up", "--part", "0001") == 0
    assert part("top") == 0
    assert part("gather") == 2
    for number in ("0000", "0001", "0002"):
        assert part("down", "--part", number) == 0
    capfd.readouterr()
    assert part("list") == 0
    assert capfd.readouterr().out.splitlines() == [f"000{k} up down" for k in range(3)]
    assert part("gather", "-q") == 0
    assert counts_of(there / "public") == counts_of(whole)


def test_the_record_of_a_cut_comes_back_as_it_was(tmp_path: Path) -> None:
    config = load_config(made(tmp_path))
    known: list[Record] = []

    def look(*_: object) -> None:
        found = Record.read(folder_of(tmp_path / "output"))
        assert found is not None
        known.append(found)

    pipeline.run(config, tmp_path / "output", part_size=8, executor=AtOnce(look))
    record = known[0]
    plan = config.plan().for_levels(record.levels).for_schema(config.schema_of_cells)
    assert record.its_plan.to_dict() == plan.to_dict()
    assert record.its_schema == config.schema_of_cells
    assert record.input not in repr(record)


def test_what_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(made(tmp_path))
    monkeypatch.setattr(memory_needed, "available_memory", lambda: 1 << 20)
    with pytest.raises(DataError, match=r"takes more than there is of memory, and 1\.00 MiB are free"):
        pipeline.run(config, part_size=8, executor=AtOnce())
    monkeypatch.undo()
    usage = memory_needed.shutil.disk_usage("/")
    monkeypatch.setattr(memory_needed.shutil, "disk_usage", lambda _: usage._replace(free=1 << 10))
    with pytest.raises(DataError, match=r"takes more disk until it is made than the 1\.00 KiB that are free"):
        pipeline.run(config, part_size=8, executor=AtOnce())
    assert not (tmp_path / "output" / "public").exists()
    assert not (tmp_path / "output" / "internal" / "draw.json").exists()
