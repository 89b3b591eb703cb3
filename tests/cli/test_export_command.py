"""`topdown export`: a release in other people's forms, and refusals in a sentence each."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.places import RUN_TOML, Command
from topdown.config import load_config
from topdown.pipeline import run as pipeline

UNITS_TOML = RUN_TOML.replace('["adults", "children"]', '["vacant", "occupied"]') + (
    '\n[schema]\nh1 = ["vacant", "occupied"]\n'
)


@pytest.fixture
def public(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text("county,vacant,occupied\n01001,3,40\n01003,0,7\n02001,5,90\n")
    (tmp_path / "run.toml").write_text(UNITS_TOML)
    return pipeline.run(load_config(tmp_path / "run.toml")).public


def test_a_release_is_exported_as_noisy_measurement_files(public: Path, topdown: Command, tmp_path: Path) -> None:
    done = topdown("export", public, "--format", "nmf", "--output", tmp_path / "nmf")
    assert done.returncode == 0
    assert done.stdout.startswith("wrote 10 files into ")
    found = [path.relative_to(tmp_path / "nmf").parts[:3] for path in (tmp_path / "nmf").rglob("part-0.parquet")]
    levels = {(f"{level}.parquet", kind) for level in ("US", "State", "County") for kind in ("DPQuery", "Constraint")}
    assert {parts[1:] for parts in found} == levels
    assert {parts[0] for parts in found} == {"US_Unit_PL_PROD"}


def test_an_unknown_format_is_refused_with_those_there_are(public: Path, topdown: Command, tmp_path: Path) -> None:
    done = topdown("export", public, "--format", "nmv", "--output", tmp_path / "nmf")
    assert done.returncode == 2
    assert "unknown format 'nmv': give 'nmf'" in done.stderr


def test_an_output_that_is_there_is_refused(public: Path, topdown: Command) -> None:
    done = topdown("export", public, "--format", "nmf", "--output", public)
    assert done.returncode == 2
    assert "is there already; give another --output" in done.stderr


def test_a_release_without_a_product_of_its_attributes_is_refused(
    toy_run: Path, topdown: Command, tmp_path: Path
) -> None:
    public = pipeline.run(load_config(toy_run)).public
    done = topdown("export", public, "--format", "nmf", "--output", tmp_path / "nmf")
    assert done.returncode == 3
    assert "the attributes are 'cell', and a noisy measurement file is made of" in done.stderr
    assert not (tmp_path / "nmf").exists()
