"""A release whose upward pass starts above the leaves: whole and in parts the same, and leaves' noise drawn once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topdown as td
from support.parted import FROM_TRACT, LEDGER, TOML, TRACTS, AtOnce, counts_of, made, place_of_the_same_noise
from topdown.config import load_config
from topdown.errors import ConfigError, DataError, TopdownError
from topdown.noise.key import NoiseStreams
from topdown.pipeline import run as pipeline
from topdown.pipeline.parts import part_steps
from topdown.privacy.ledger import Ledger


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the release of the whole tree in "whole"."""
    folder = tmp_path_factory.mktemp("upward")
    pipeline.run(load_config(made(folder, FROM_TRACT)), folder / "whole")
    return folder


def parted(folder: Path, name: str, size: int, executor: AtOnce, text: str = FROM_TRACT) -> Path:
    (folder / "run.toml").write_text(text)
    there = place_of_the_same_noise(folder, folder / "whole", name)
    return pipeline.run(load_config(folder / "run.toml"), there, part_size=size, executor=executor).public


@pytest.mark.parametrize("size", [1, 8, 1000])
def test_parts_publish_what_the_whole_publishes(folder: Path, size: int) -> None:
    public = parted(folder, f"of {size}", size, AtOnce())
    assert counts_of(public) == counts_of(folder / "whole" / "public")
    td.verify_release(public)
    assert json.loads((public / "manifest.json").read_text())["configuration"]["projection"]["upward"] == "from tract"


def test_another_start_is_another_release(folder: Path, tmp_path: Path) -> None:
    pipeline.run(load_config(made(tmp_path, FROM_TRACT.replace("from tract", "from county"))), tmp_path / "whole")
    for size in (1, 8):
        name = f"county {size}"
        public = parted(tmp_path, name, size, AtOnce(), FROM_TRACT.replace("from tract", "from county"))
        assert counts_of(public) == counts_of(tmp_path / "whole" / "public")
    names = set()
    for text in (TRACTS, FROM_TRACT, FROM_TRACT.replace("from tract", "from county")):
        (tmp_path / "run.toml").write_text(text)
        names.add(load_config(tmp_path / "run.toml").fingerprint())
    assert len(names) == 3


def test_noise_of_leaves_is_drawn_where_it_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, set[str]] = {"up": set(), "down": set(), "write": set()}
    now = ["up"]
    stream = NoiseStreams.stream

    def seen(self: NoiseStreams, level: str, *rest: object) -> object:
        drawn[now[0]].add(level)
        return stream(self, level, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(NoiseStreams, "stream", seen)
    parted(folder, "streams", 3, AtOnce(lambda name, _: now.__setitem__(0, name)))
    assert "block" not in drawn["up"]
    assert "tract" in drawn["up"]
    assert {"tract", "block"} <= drawn["down"]
    assert not drawn["write"]


def test_leaves_that_measure_otherwise_than_before_are_not_released(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of the leaves, going down, nor those above, going up; and the next run measures again."""
    public = parted(folder, "measured anew", 8, AtOnce(), FROM_TRACT + LEDGER)
    first = counts_of(public)
    assert "below" in (public.parent / "internal" / "draw.json").read_text()
    public.rename(folder / "moved")
    measure = part_steps.measure_piece
    config = load_config(folder / "run.toml")
    for level in ("block", "tract"):

        def otherwise(*given: Any, level: str = level) -> Any:
            found = measure(*given)
            for index, place in given[5].items():
                if place.level == level:
                    query, answers = next(iter(found[index].items()))
                    found[index][query] = answers._replace(values=np.asarray(answers.values) + 1)
            return found

        monkeypatch.setattr(part_steps, "measure_piece", otherwise)
        with pytest.raises(DataError, match="this run measured other numbers than the run before it"):
            pipeline.run(config, public.parent, executor=AtOnce())
        assert not public.exists()
        monkeypatch.undo()
        assert counts_of(pipeline.run(config, public.parent, executor=AtOnce()).public) == first
        public.rename(folder / f"moved after {level}")
    account = Ledger(folder / "ledger.db").account("census")
    assert (len(account.releases), len(account.confirmed), account.left) == (1, 1, 0)


@pytest.mark.parametrize("step", ["up", "down", "write"])
def test_an_interrupted_run_goes_on_with_the_same_bytes(folder: Path, step: str) -> None:
    left = [2]

    def stop(name: str, _: object) -> None:
        left[0] -= name == step
        if left[0] < 0:
            raise TopdownError("stopped")

    there = folder / f"stopped {step}"
    with pytest.raises(TopdownError, match="stopped"):
        parted(folder, there.name, 3, AtOnce(stop))
    public = pipeline.run(load_config(folder / "run.toml"), there, executor=AtOnce()).public
    assert counts_of(public) == counts_of(folder / "whole" / "public")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            TOML + '[projection]\nupward = "from tract"\n',
            "'block' measures 'group', which the queries of level 'tract'",
        ),
        (FROM_TRACT.replace("from tract", "from parish"), "unknown level of upward 'parish'"),
        (FROM_TRACT.replace("from tract", "from nation"), "take method 'top-down' instead"),
        (FROM_TRACT.replace("from tract", "from block"), "leave upward out"),
        (FROM_TRACT + 'method = "top-down"\n', "method 'top-down' (family by family from the root) has no upward pass"),
    ],
    ids=["untold", "unknown", "root", "leaves", "method"],
)
@pytest.mark.parametrize("size", [None, 3], ids=["whole", "parts"])
def test_a_start_that_makes_no_sense_is_refused_before_a_draw(
    tmp_path: Path, text: str, said: str, size: int | None
) -> None:
    with pytest.raises(ConfigError) as refused:
        pipeline.run(load_config(made(tmp_path, text)), part_size=size)
    assert said in str(refused.value)
    assert not (tmp_path / "output" / "internal").exists()


def test_the_cells_alone_and_studies_have_no_start(tmp_path: Path) -> None:
    levels = ("nation", "state", "county", "tract", "block")
    alone = TOML[: TOML.index("[privacy]")] + '[privacy]\nmechanism = "discrete-gaussian"\nrho = "1/2"\n'
    alone += "[privacy.shares]\n" + "".join(f'{level} = "1/5"\n' for level in levels)
    config = made(tmp_path, alone + '[projection]\nupward = "from tract"\n')
    with pytest.raises(ConfigError, match="is for releases of several queries, or within limits"):
        pipeline.run(load_config(config))
    config.write_text(FROM_TRACT + "[study]\nreplicates = 10\n")
    from topdown.config import load_any

    with pytest.raises(ConfigError, match="a study simulates methods by name, whose upward pass starts at the leaves"):
        load_any(config)


def test_measurements_are_projected_again_with_another_start(folder: Path, tmp_path: Path) -> None:
    from topdown.config.load import load_project
    from topdown.pipeline.project_measurements import project_measurements

    file = tmp_path / "project.toml"

    def projected(name: str, more: str) -> bytes:
        text = f'[measurements]\npath = "{folder / "whole" / "public"}"\n[output]\ndirectory = "{name}"\n'
        file.write_text(text + f"[projection]\n{more}")
        return (project_measurements(load_project(file)).public / "release.parquet").read_bytes()

    assert projected("tract", 'upward = "from tract"\n') != projected("leaves", "")
    with pytest.raises(ConfigError, match="unknown level of upward"):
        projected("parish", 'upward = "from parish"\n')
    assert not (tmp_path / "parish" / "public").exists()


def test_check_prints_the_errors_of_what_is_released(folder: Path, topdown) -> None:  # type: ignore[no-untyped-def]
    (folder / "run.toml").write_text(FROM_TRACT)
    done = topdown("check", folder / "run.toml", "--errors")
    assert done.returncode == 0, done.stderr
    assert "errors    by least squares from tract upwards, families below it" in done.stdout
    line = next(one for one in done.stdout.splitlines() if "beside that of least squares over all levels" in one)
    ratio = float(line.split(":")[1].split()[0])
    config = load_config(folder / "run.toml")
    geography = td.read_release(folder / "whole" / "public").geography
    tables = [config.plan().errors(geography, config.schema_of_cells, upward=upward) for upward in ("from tract", None)]
    assert ratio == pytest.approx((tables[0]["sd"] / tables[1]["sd"]).max(), abs=6e-4)
    assert ratio > 1.01
    assert (tables[0]["sd"] >= tables[1]["sd"] - 1e-12).all()
