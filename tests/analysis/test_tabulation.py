"""True tabulation units from units of the spine: sums of blocks, with the variance of least squares over the tree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support import noisy_files as files
from support.places import Command
from topdown.config import load_project
from topdown.errors import ConfigError, DataError
from topdown.pipeline.project_measurements import project_measurements


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("spine")
    files.make(found / "nmf", bypass=False)
    return found


@pytest.fixture(scope="module")
def measurements(folder: Path) -> td.Measurements:
    return td.read_noisy_measurements(folder / "nmf", state="44").measurements


def test_units_are_those_of_the_blocks_geoids(measurements: td.Measurements) -> None:
    tracts = td.tabulation_units(measurements.geography, "tract")
    assert tracts[files.BLOCKS[0]] == "44001010100"
    # In both parts of the state.
    assert {tracts[code] for code in files.BLOCKS[5:]} == {"44003020100"}
    groups = td.tabulation_units(measurements.geography, "block_group")
    assert [groups[code] for code in files.BLOCKS[:3]] == ["440010101001", "440010101001", "440010101002"]


def test_estimates_and_deviations_are_those_of_dense_least_squares(folder: Path) -> None:
    """Of totals alone, at every level: unknowns are the nine blocks."""
    rows, values, weights = [], [], []
    answers: dict[tuple[str, str], tuple[list[list[int]], list[float]]] = {}
    there = td.read_noisy_measurements(folder / "nmf", state="44").geography
    for level in files.LEVELS:
        name = level.lower().replace("_", " ")
        measured, spread = [], []
        for part in ("044", "144"):
            frame = files.rows_of(files.place(folder / "nmf", level, "DPQuery", part))
            for row in frame[frame["query_name"] == "total_dpq"].itertuples():
                rows.append([float(block.startswith(row.geocode)) for block in files.BLOCKS])
                values.append(float(row.value[0]))
                weights.append(1.0 / float(row.variance))
                measured.append([int(row.value[0])])
                spread.append(float(row.variance))
        answers[name, "total"] = (measured, spread)
    alone = td.Measurements.from_answers(there, td.Schema.from_mapping({"any": ["all"]}), answers)
    object.__setattr__(alone, "mechanism", "discrete-gaussian")
    design, weight = np.array(rows), np.diag(weights)
    covariance = np.linalg.inv(design.T @ weight @ design)
    estimate = covariance @ design.T @ weight @ np.array(values)
    for level in ("state", "county", "tract", "block group"):
        lies_in = np.array([td.tabulation_units(there, level)[code] for code in files.BLOCKS])
        found = td.tabulate(alone, level).set_index("geoid")
        assert set(found.index) == set(lies_in)
        for geoid, row in found.iterrows():
            sums = (lies_in == geoid).astype(float)
            assert row["blocks"] == sums.sum()
            assert row["estimate"] == pytest.approx(sums @ estimate, rel=1e-9)
            assert row["sd"] == pytest.approx((sums @ covariance @ sums) ** 0.5, rel=1e-9)


def test_a_unit_of_the_spine_that_is_the_same_is_said(measurements: td.Measurements) -> None:
    found = td.tabulate(measurements, "tract").set_index("geoid")
    assert found["spine"].to_dict() == {"44001010100": "0441000111", "44001020100": "0441000112", "44003020100": ""}


def test_margins_are_those_of_regions_of_blocks(measurements: td.Measurements) -> None:
    found = td.tabulate(measurements, "tract", query="hispanic", cells=["hispanic"], confidence=0.95)
    (row,) = found[found["geoid"] == "44003020100"].itertuples()
    region = td.region(
        measurements, dict.fromkeys(files.BLOCKS[5:], 1), query="hispanic", cell="hispanic", confidence=0.95
    )
    assert [row.estimate, row.sd] == pytest.approx([region.estimate, region.sd], rel=1e-9)
    assert [row.lower, row.upper] == [region.lower, region.upper]


def test_a_release_is_summed_by_them(folder: Path, topdown: Command) -> None:
    (folder / "nmf.toml").write_text(
        '[measurements]\npath = "nmf"\nproduct = "pl94-persons"\nstate = "44"\n[projection]\ncross_check = false\n'
    )
    public = project_measurements(load_project(folder / "nmf.toml")).public
    done = topdown("aggregate", public, "--tabulation", "tract", "--tabulation", "county", "--format", "json")
    found = pd.DataFrame(json.loads(done.stdout))
    tracts = found[found["assignment"] == "tract"].set_index("region")
    released = td.read_release(public).table("block", "total").set_index("geoid")["total"]
    assert tracts.loc["44003020100", "value"] == released[list(files.BLOCKS[5:])].sum()
    assert tracts["value"].sum() == found[found["assignment"] == "county"]["value"].sum() == released.sum()
    again = topdown("aggregate", public)
    assert again.returncode == 2
    assert "give either files of units and their districts with --by, or levels with --tabulation" in again.stderr


def test_a_redistricting_file_is_written_of_true_units(folder: Path, tmp_path: Path, topdown: Command) -> None:
    (folder / "file.toml").write_text(
        '[measurements]\npath = "nmf"\nproduct = "pl94-persons"\nstate = "44"\n[projection]\ncross_check = false\n'
        '[output]\ndirectory = "of_the_spine"\n'
    )
    public = project_measurements(load_project(folder / "file.toml")).public
    done = topdown("export", public, "--format", "pl94", "--output", tmp_path / "file")
    assert done.returncode == 0, done.stderr
    written = td.read_pl94(tmp_path / "file")
    assert written.partial == ()
    spine, release = td.read_release(public), written.table("P1", "tract").set_index("geoid")["P0010001"]
    released = spine.table("block", "total").set_index("geoid")["total"]
    assert release["44003020100"] == released[list(files.BLOCKS[5:])].sum()
    blocks = written.table("P1", "block").set_index("geoid")["P0010001"]
    for code, geoid in td.tabulation_units(spine.geography, "block").items():
        assert blocks[geoid] == released[code]
    by_geoid = td.tabulated_release(spine.release)
    assert by_geoid.geography.levels == ("state", "county", "tract", "block group", "block")
    assert (by_geoid.answers("state", "detailed") == spine.release.answers("whole state", "detailed")).all()


def test_a_geography_without_blocks_is_refused(folder: Path) -> None:
    above = td.read_noisy_measurements(folder / "nmf", state="44", levels=["state", "county"]).measurements
    with pytest.raises(DataError, match="the lowest level is 'county'; tabulation units are sums of blocks"):
        td.tabulate(above, "county")


def test_blocks_by_geoid_are_refused() -> None:
    there = td.Geography.from_geoids(["440010101001000"], {"block": 15}, root="44", root_level="state")
    with pytest.raises(DataError, match="the blocks do not have the codes of the spine"):
        td.tabulation_units(there, "tract")


def test_another_level_is_refused(measurements: td.Measurements) -> None:
    with pytest.raises(ConfigError, match="unknown level of tabulation units: 'place'"):
        td.tabulation_units(measurements.geography, "place")
