"""An older copy of internal/ beside newer public files: no second noise is drawn, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from support.crash import content, statistic_of
from support.parted import LEDGER, TOML, made
from support.places import RUN_TOML
from topdown.config import load_config, load_project
from topdown.errors import BudgetError, ConfigError
from topdown.measurements.journal import Journal
from topdown.pipeline import run as pipeline
from topdown.pipeline.project_measurements import project_measurements
from topdown.privacy.ledger import Ledger

REFUSED = r"exists, and the record of the noise behind it is not in .*internal, or an older copy of it is; restore the"


@pytest.fixture(params=["ledger", "no ledger"])
def toy(toy_run: Path, request: pytest.FixtureRequest) -> Path:
    """The configuration of a release, with a ledger and without."""
    if request.param == "ledger":
        toy_run.write_text(RUN_TOML + '[ledger]\npath = "ledger.db"\ndataset = "census"\n')
        Ledger(toy_run.parent / "ledger.db").open_account("census", 2)
    return toy_run


def put_back(output: Path, older: Path) -> None:
    shutil.rmtree(output / "internal")
    shutil.copytree(older, output / "internal")


def require_refused(output: Path, again: Callable[[], object]) -> None:
    """``again`` is refused, and what lies beside ``output``, its ledger too, stays as it was."""
    there = [path for path in output.parent.iterdir() if path != output and path.is_file()]
    before = content(output / "public"), content(output / "internal"), [path.read_bytes() for path in there]
    with pytest.raises(ConfigError, match=REFUSED):
        again()
    assert before == (content(output / "public"), content(output / "internal"), [path.read_bytes() for path in there])


def test_the_noise_of_an_earlier_release_is_put_back(toy: Path, tmp_path: Path) -> None:
    config = load_config(toy)
    pipeline.run(config)
    config.output_path.rename(tmp_path / "first")
    pipeline.run(config)
    shutil.rmtree(config.output_path / "internal")
    shutil.copytree(tmp_path / "first" / "internal", config.output_path / "internal")
    require_refused(config.output_path, lambda: pipeline.run(config))
    # Not even where the public files are to be made again.
    (config.output_path / "public" / "release.parquet").unlink()
    require_refused(config.output_path, lambda: pipeline.run(config))


@pytest.mark.parametrize("stopped_at", ["begin", "keep"])
def test_internal_from_before_the_noise_was_drawn_is_put_back(
    toy: Path, tmp_path: Path, stopped_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(toy)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, stopped_at, None)
        with pytest.raises(TypeError):
            pipeline.run(config)
    shutil.copytree(config.output_path / "internal", tmp_path / "older")
    pipeline.run(config)
    put_back(config.output_path, tmp_path / "older")
    require_refused(config.output_path, lambda: pipeline.run(config))


def test_a_ledger_knows_that_noise_was_drawn_of_which_only_the_secret_is_put_back(
    toy_run: Path, tmp_path: Path
) -> None:
    toy_run.write_text(RUN_TOML + '[ledger]\npath = "ledger.db"\ndataset = "census"\n')
    Ledger(tmp_path / "ledger.db").open_account("census", 2)
    config = load_config(toy_run)
    public = pipeline.run(config).public
    (config.output_path / "internal" / "draw.json").unlink()
    public.rename(tmp_path / "away")
    with pytest.raises(BudgetError, match=r"drew its noise, and its record is not here; restore it from a copy"):
        pipeline.run(config)
    assert not public.exists()


def test_records_are_not_made_of_a_release_beside_the_noise_of_another(toy_run: Path, tmp_path: Path) -> None:
    config = load_config(toy_run)
    pipeline.run(config)
    config.output_path.rename(tmp_path / "first")
    public = pipeline.run(config).public
    pipeline.synthesize(config)
    shutil.rmtree(config.output_path / "microdata")
    put_back(config.output_path, tmp_path / "first" / "internal")
    require_refused(config.output_path, lambda: pipeline.synthesize(config))
    assert not (config.output_path / "microdata").exists()
    # Of what was handed on they are made.
    shutil.rmtree(config.output_path / "internal")
    assert pipeline.synthesize(config).directory.parent == public.parent


def test_a_release_in_parts(tmp_path: Path) -> None:
    config = load_config(made(tmp_path, TOML + LEDGER))
    public = pipeline.run(config, part_size=8, workers=1).public
    assert json.loads((public / "manifest.json").read_text())["noise"]
    shutil.copytree(config.output_path / "internal", tmp_path / "older")
    (config.output_path / "internal" / "draw.json").unlink()
    require_refused(config.output_path, lambda: pipeline.run(config, part_size=8, workers=1))
    put_back(config.output_path, tmp_path / "older")
    assert pipeline.run(config, part_size=8, workers=1).already_there


def test_a_statistic(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("income\n" + "".join(f"{k}\n" for k in range(200)))
    Ledger(tmp_path / "ledger.db").open_account("people", 2, neighbours="substitute")
    first = statistic_of(tmp_path, ["income"])
    (tmp_path / "out").rename(tmp_path / "first")
    second = statistic_of(tmp_path, ["income"])
    assert first["noise"] != second["noise"]
    put_back(tmp_path / "out", tmp_path / "first" / "internal")
    with pytest.raises(ConfigError, match=REFUSED):
        statistic_of(tmp_path, ["income"])
    assert json.loads((tmp_path / "out" / "statistic.json").read_text()) == second


def test_what_is_made_of_the_same_noise_says_so(toy: Path, tmp_path: Path) -> None:
    public = pipeline.run(load_config(toy)).public
    (tmp_path / "again.toml").write_text('[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\n')
    again = project_measurements(load_project(tmp_path / "again.toml")).public
    first, second = (json.loads((folder / "manifest.json").read_text()) for folder in (public, again))
    assert first["noise"] == second["noise"]
    assert len(bytes.fromhex(first["noise"])) == 16
    if first["ledger"] is not None:
        assert first["noise"] == first["ledger"]["release"]


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("\n[output]\nwide = true\n", "output.wide"),
        ("\n[output]\nconfidence = 0.95\n", "output.confidence"),
        ('\n[output]\nlanguage = "fr"\n', "output.language"),
        ('\n[catalogue]\npublisher = "Agency"\n', "catalogue.publisher"),
    ],
)
def test_a_release_that_was_written_in_other_forms_is_not_taken_for_what_is_asked(
    toy_run: Path, setting: str, name: str
) -> None:
    public = pipeline.run(load_config(toy_run)).public
    before = (public / "manifest.json").read_bytes()
    toy_run.write_text(toy_run.read_text() + setting)
    with pytest.raises(ConfigError, match=rf"which was written with another {name}; move it away and run again"):
        pipeline.run(load_config(toy_run))
    assert (public / "manifest.json").read_bytes() == before
    counts = pd.read_parquet(public / "release.parquet")["value"].tolist()
    public.rename(public.parent / "before")
    again = pipeline.run(load_config(toy_run))
    assert pd.read_parquet(again.public / "release.parquet")["value"].tolist() == counts
    assert pipeline.run(load_config(toy_run)).already_there
