"""`topdown export`: a release in other people's forms, and refusals in a sentence each."""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
import pytest

import topdown as td
from support.places import RUN_TOML, Command
from topdown.config import load_config
from topdown.pipeline import run as pipeline
from topdown.workload.redistricting import PERSONS

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
    assert "unknown format 'nmv': give 'nmf', 'pl94', 'ppmf', 'geoparquet'" in done.stderr


def test_an_output_that_is_there_is_refused(public: Path, topdown: Command) -> None:
    done = topdown("export", public, "--format", "nmf", "--output", public)
    assert done.returncode == 2
    assert "exists already; give another --output" in done.stderr


def test_a_release_without_a_product_of_its_attributes_is_refused(
    toy_run: Path, topdown: Command, tmp_path: Path
) -> None:
    public = pipeline.run(load_config(toy_run)).public
    done = topdown("export", public, "--format", "nmf", "--output", tmp_path / "nmf")
    assert done.returncode == 2
    assert "the attributes are 'cell', and a noisy measurement file is made of" in done.stderr
    assert not (tmp_path / "nmf").exists()


PERSONS_TOML = """
[input]
path = "persons.parquet"
rows = "long"
geoid = "block"
count = "n"

[geography]
root = "44"
root_level = "state"
widths = { county = 5, tract = 11, "block group" = 12, block = 15 }

[privacy]
preset = "pl94-2020-us"

[projection]
cross_check = false
"""


@pytest.mark.system
def test_persons_and_their_housing_units_are_exported_as_redistricting_file_and_microdata(
    tmp_path: Path, topdown: Command
) -> None:
    blocks = ["440070001011000", "440070001011001", "440090001001000"]
    places = [(0, 1, 0, 0), (0, 0, 1, 3), (3, 1, 0, 1)]
    rows = [
        {"block": block, "n": 10 + k}
        | {one.name: one.categories[p] for one, p in zip(PERSONS.attributes, place, strict=True)}
        for k, (block, place) in enumerate(itertools.product(blocks, places))
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "persons.parquet")
    (tmp_path / "persons.toml").write_text(PERSONS_TOML)
    units = [{"block": block, "h1": kind, "n": 5} for block in blocks for kind in ("vacant", "occupied")]
    pd.DataFrame(units).to_parquet(tmp_path / "units.parquet")
    of_units = PERSONS_TOML.replace("persons.parquet", "units.parquet").replace("94-2020-us", "94-2020-units")
    (tmp_path / "units.toml").write_text(of_units)
    persons = pipeline.run(load_config(tmp_path / "persons.toml"), tmp_path / "p").public
    homes = pipeline.run(load_config(tmp_path / "units.toml"), tmp_path / "h").public

    done = topdown("export", persons, "--format", "pl94", "--units", homes, "-o", tmp_path / "pl94")
    assert (done.returncode, done.stderr) == (0, "")
    read = td.read_pl94(tmp_path / "pl94")
    released = td.read_release(persons)
    for level in read.geography.levels:
        assert read.table("P1", level)["P0010001"].tolist() == released.table(level, "total")["total"].tolist()
        assert (
            read.table("H1", level)["H0010001"].tolist()
            == td.read_release(homes).table(level, "H1")["H0010001"].tolist()
        )

    done = topdown("export", persons, "--format", "ppmf", "--units", homes, "-o", tmp_path / "ppmf")
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(path.name for path in (tmp_path / "ppmf").iterdir())
    assert names == ["2020_ppmf_person_ri.csv", "2020_ppmf_unit_ri.csv"]
    for name, public in zip(names, (persons, homes), strict=True):
        counts = td.read_ppmf(tmp_path / "ppmf" / name, released.geography)
        expected = td.read_release(public).table("county", "detailed").iloc[:, 2:].to_numpy()
        assert (counts.values[counts.geography.level_slice("county")] == expected).all()

    done = topdown("export", homes, "--format", "ppmf", "--units", homes, "-o", tmp_path / "twice")
    assert (done.returncode, (tmp_path / "twice").exists()) == (2, False)
    assert "both releases are of the same records" in done.stderr


def test_an_option_of_another_format_is_refused(public: Path, topdown: Command, tmp_path: Path) -> None:
    done = topdown("export", public, "--format", "ppmf", "--header", "geo.pl", "--output", tmp_path / "out")
    assert done.returncode == 2
    assert "--header does not apply to --format ppmf; it is for 'pl94'" in done.stderr
