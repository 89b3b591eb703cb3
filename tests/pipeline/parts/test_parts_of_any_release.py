"""A release of any kind may be made in parts, and is the one that is made of the whole tree at once."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import topdown as td
from support.command import topdown_command
from support.methods import shrunken
from support.parted import AtOnce, place_of_the_same_noise, tables_of
from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config
from topdown.errors import ConfigError
from topdown.pipeline import run as pipeline
from topdown.privacy.mechanism import MECHANISMS
from topdown.projection.method import METHODS

TWO_LEVELS = SEVERAL_TOML.replace("state = 2, ", "").replace(
    "state = { age = 0.3 }, county = { total = 0.2", "county = { total = 0.5"
)
LIMITS = """geoid,query,answer,lower,upper
01003,cell,children,0,3
01003,total,total,20,
"""
KINDS = {
    "cells": RUN_TOML,
    "cells, jointly": RUN_TOML + '[projection]\nmethod = "joint"\n',
    "cells of attributes": RUN_TOML + '[schema]\nage = ["children", "adults"]\n',
    "cells of two levels": RUN_TOML.replace("state = 2, ", "").replace("state = 0.3, county = 0.5", "county = 0.8"),
    "cells with an exact level": RUN_TOML.replace("nation = 0.2, state = 0.3", "state = 0.5")
    + 'invariants = ["nation"]\n',
    "cells within limits": RUN_TOML + '[bounds]\npath = "limits.csv"\n',
    "cells, only children": RUN_TOML + 'only_child = "move-up"\n',
    "cells with everything": RUN_TOML + "[output]\nreplicates = 2\nwide = true\nestimates_csv = true\n",
    "on a grid": RUN_TOML.replace("epsilon", 'mechanism = "laplace"\nepsilon'),
    "truncated": RUN_TOML + '[noise]\nbounds = "truncated"\n',
    "normalized": RUN_TOML + '[noise]\nbounds = { state = "normalized" }\nupper = { state = 70 }\n',
    "boundary-inflated": RUN_TOML + '[noise]\nbounds = "boundary-inflated"\n',
    "histograms": SEVERAL_TOML + "[output]\nreplicates = 2\n",
    "histograms of two levels": TWO_LEVELS,
    "histograms on a grid": SEVERAL_TOML.replace('"discrete-gaussian"', '"gaussian"'),
    "histograms within limits": SEVERAL_TOML + '[bounds]\npath = "limits.csv"\n[output]\nreplicates = 2\n',
}


def parted(path: Path, name: str, size: int | None, executor: AtOnce | None = None) -> Path:
    """The public directory of the release at ``path`` in parts of so many leaves, of the noise of "whole"."""
    there = place_of_the_same_noise(path.parent, path.parent / "whole", name)
    return pipeline.run(load_config(path), there, part_size=size, executor=executor, workers=2).public


def whole(path: Path) -> dict[str, bytes]:
    return tables_of(pipeline.run(load_config(path), path.parent / "whole").public)


@pytest.mark.parametrize("kind", KINDS)
def test_any_release_in_parts_is_that_of_the_whole(toy_run: Path, kind: str) -> None:
    toy_run.write_text(KINDS[kind])
    age = KINDS[kind].startswith(SEVERAL_TOML)
    (toy_run.parent / "limits.csv").write_text(LIMITS.replace("cell,", "age,") if age else LIMITS)
    expected = whole(toy_run)
    assert ("replicates.parquet" in expected) == ("replicates" in KINDS[kind])
    for size in (1, 2, 1000):
        worked = AtOnce()
        public = parted(toy_run, f"of {size}", size, worked)
        assert tables_of(public) == expected
        assert {at.part for step, at in worked.done if step == "up"}
        td.verify_release(public)


@pytest.mark.system
@pytest.mark.parametrize("kind", ["cells", "truncated", "histograms"])
def test_processes_make_it_too(toy_run: Path, kind: str) -> None:
    toy_run.write_text(KINDS[kind])
    assert whole(toy_run) == tables_of(parted(toy_run, "by processes", 2))


@pytest.mark.system
def test_steps_one_by_one_make_it_too(toy_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    toy_run.write_text(KINDS["cells"])
    expected = whole(toy_run)
    there = place_of_the_same_noise(toy_run.parent, toy_run.parent / "whole", "there")

    def part(step: str, *more: object) -> int:
        return topdown_command("part", step, toy_run, "-o", there, *more)

    assert part("cut", "--part-size", 2, "-q") == 0
    numbers = [f"{k:04d}" for k in range(len(list((there / "internal" / "parts" / "cut").glob("0*"))))]
    assert len(numbers) > 1
    assert part("up", "--part", numbers[0]) == 0
    capfd.readouterr()
    assert part("list") == 0
    assert capfd.readouterr().out.splitlines() == [f"{numbers[0]} up down", *numbers[1:]]
    assert part("gather") == 2
    assert all(part("up", "--part", number) == 0 for number in numbers[1:])
    assert part("top") == 0
    assert all(part("down", "--part", number) == 0 for number in numbers)
    assert part("gather", "-q") == 0
    assert tables_of(there / "public") == expected


def test_cells_that_are_measured_in_parts_go_on_where_a_run_was_stopped(toy_run: Path) -> None:
    toy_run.write_text(KINDS["cells"])
    expected = whole(toy_run)

    def stop(step: str, at: object) -> None:
        if step == "up" and at.part == 1:  # type: ignore[attr-defined]
            raise ConfigError("stopped")

    with pytest.raises(ConfigError, match="stopped"):
        parted(toy_run, "stopped", 1, AtOnce(stop))
    there = toy_run.parent / "stopped"
    damaged = there / "internal" / "parts" / "measured" / "0000"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    worked = AtOnce()
    public = pipeline.run(load_config(toy_run), there, part_size=1, executor=worked, workers=2).public
    assert tables_of(public) == expected
    assert 0 in {at.part for step, at in worked.done if step == "up"}
    assert not (there / "internal" / "parts").exists()


def test_what_a_program_added_is_made_by_workers_that_have_it(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "shrunken", shrunken())
    monkeypatch.setitem(MECHANISMS, "own", dataclasses.replace(MECHANISMS["discrete-gaussian"], name="own"))
    text = SEVERAL_TOML.replace('"discrete-gaussian"', '"own"')
    toy_run.write_text(f'{text}[projection]\nmethod = "shrunken"\ncross_check = false\n')
    assert whole(toy_run) == tables_of(parted(toy_run, "in parts", 2, AtOnce()))


ADDS = """
import dataclasses
from topdown.privacy.mechanism import MECHANISMS
from topdown.projection.method import METHODS
METHODS["own-method"] = dataclasses.replace(METHODS["top-down"], name="own-method")
MECHANISMS["own-noise"] = dataclasses.replace(MECHANISMS["discrete-gaussian"], name="own-noise")
"""
ENTRY_POINTS = "[topdown.methods]\nown = adds_to_topdown\n[topdown.mechanisms]\nown = adds_to_topdown\n"


@pytest.mark.system
def test_what_an_installed_package_adds_is_had_by_processes(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(toy_run.parent)
    info = toy_run.parent / "adds_to_topdown-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: adds-to-topdown\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (toy_run.parent / "adds_to_topdown.py").write_text(ADDS)
    text = SEVERAL_TOML.replace('"discrete-gaussian"', '"own-noise"')
    toy_run.write_text(f'{text}[projection]\nmethod = "own-method"\n')
    try:
        assert whole(toy_run) == tables_of(parted(toy_run, "by processes", 2))
    finally:
        METHODS.pop("own-method", None)
        MECHANISMS.pop("own-noise", None)
        sys.modules.pop("adds_to_topdown", None)
