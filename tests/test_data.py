"""The repository's own table, and real tables of other shapes through `topdown run` with nothing but a TOML file."""

from __future__ import annotations

import importlib.util
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import REPOSITORY

from topdown import pipeline
from topdown.config import load_config
from topdown.reading import read_input

COUNTIES = REPOSITORY / "data" / "us_counties_labor_force_2009.parquet"


def test_the_counties_are_all_there() -> None:
    table = pq.read_table(COUNTIES)
    assert table.column_names == ["nation", "state", "county", "county_name", "state_name", "employed", "unemployed"]
    assert table.num_rows == 3140
    assert len(table["state"].unique()) == 51
    assert "72" not in table["state"].to_pylist()
    assert pc.sum(table["employed"]).as_py() + pc.sum(table["unemployed"]).as_py() == 153_616_765
    assert [county[:2] for county in table["county"].to_pylist()] == table["state"].to_pylist()
    assert table["county"].to_pylist()[0] == "01001"


@pytest.mark.skipif(importlib.util.find_spec("bokeh_sampledata") is None, reason="needs the package bokeh_sampledata")
def test_the_counties_are_derived_again_the_same() -> None:
    script = runpy.run_path(str(REPOSITORY / "data" / "build_us_counties.py"))
    assert script["build"](puerto_rico=False).equals(pq.read_table(COUNTIES))
    with_puerto_rico = script["build"](puerto_rico=True)
    assert with_puerto_rico.num_rows == 3140 + 78
    assert len(with_puerto_rico["state"].unique()) == 52


def release(folder: Path, toml: str) -> tuple[pd.DataFrame, dict[str, Any], np.ndarray]:
    """The release of the run that ``toml`` describes, its manifest, and the true counts of all nodes."""
    path = folder / "run.toml"
    path.write_text(toml)
    config = load_config(path)
    public = pipeline.run(config).public
    _, counts = read_input(config)
    frame = pq.read_table(public / "release.parquet").to_pandas()
    assert frame["value"].min() >= 0
    return frame, json.loads((public / "manifest.json").read_text()), counts.values


def nodes(manifest: dict[str, Any]) -> list[int]:
    return [level["nodes"] for level in manifest["levels"]]


def test_kenyan_households_by_name(shared_data: Path, tmp_path: Path) -> None:
    frame, manifest, counts = release(tmp_path, f"""
        [input]
        path = "{shared_data}/kenya_2019_households.csv"
        cells = ["conventional", "group_quarters"]
        where = {{ level = "SubCounty" }}
        [geography]
        levels = ["nation", "county", "subcounty"]
        root = "Kenya"
        separator = "/"
        [privacy]
        epsilon = 1
        unit = "household"
    """)  # fmt: skip
    assert nodes(manifest) == [1, 47, 345]
    assert counts[0].sum() == 12_143_913
    assert "household" in manifest["privacy"]["statement"]
    names = frame.set_index("geoid")["name"]
    assert set(names["MOMBASA/CHANGAMWE"]) == {"CHANGAMWE"}
    assert set(names["MOMBASA"]) == {"MOMBASA"}
    # Scale 3 at every level: beyond 1000 with a probability below 1e-140.
    assert np.abs(frame["value"].to_numpy() - counts.ravel()).max() < 1000


def test_rhode_island_blocks_with_eight_cells_and_five_levels(shared_data: Path, tmp_path: Path) -> None:
    cells = [f"pop_{c}" for c in ("aian", "asian", "black", "hisp", "nhpi", "other", "two", "white")]
    frame, manifest, counts = release(tmp_path, f"""
        [input]
        path = "{shared_data}/ri_block_race_2010.csv.gz"
        geoid = "GEOID"
        cells = {cells}
        [geography]
        root = "44"
        root_level = "state"
        widths = {{ county = 5, tract = 11, "block group" = 12, block = 15 }}
        [privacy]
        mechanism = "discrete-gaussian"
        rho = 1
        shares = {{ state = 0.1, county = 0.1, tract = 0.2, "block group" = 0.2, block = 0.4 }}
    """)  # fmt: skip
    assert nodes(manifest) == [1, 5, 244, 815, 25_181]
    assert counts[0].sum() == 1_052_567
    assert len(frame) == 8 * sum(nodes(manifest))
    assert manifest["cells"] == cells
    assert "random sample" in manifest["projections"]["unbiased"]["cross_check"]["scope"]
    assert np.abs(frame["value"].to_numpy()[:8] - counts[0]).max() < 100


@pytest.mark.slow
def test_block_groups_of_the_nation(shared_data: Path, tmp_path: Path) -> None:
    frame, manifest, counts = release(tmp_path, f"""
        [input]
        path = "{shared_data}/us_blockgroup_pop_2010.parquet"
        geoid = "geoid"
        cells = ["population"]
        [geography]
        widths = {{ state = 2, county = 5, tract = 11, "block group" = 12 }}
        [privacy]
        epsilon = 1
    """)  # fmt: skip
    assert nodes(manifest)[0] == 1
    assert nodes(manifest)[1] == 52  # 50 states, DC and Puerto Rico
    assert nodes(manifest)[4] == 220_334
    domestic = [geoid for geoid in frame["geoid"] if len(geoid) == 12 and not geoid.startswith("72")]
    assert len(domestic) == 217_740
    truth = dict(zip(frame["geoid"], counts[:, 0], strict=True))
    assert counts[0, 0] - truth["72"] == 308_745_538
    assert abs(frame["value"][0] - counts[0, 0]) < 1000


def test_counties_by_age_and_sex_need_a_wide_table_first(shared_data: Path, tmp_path: Path) -> None:
    long = pd.read_csv(shared_data / "us_county_age_sex_2010.csv.gz", dtype={"geoid": str})
    wide = long.pivot_table(index="geoid", columns=["sex", "age"], values="population", aggfunc="sum").astype(int)
    wide.columns = [f"{sex} {age}" for sex, age in wide.columns]
    wide.reset_index().to_parquet(tmp_path / "wide.parquet")
    _, manifest, counts = release(tmp_path, f"""
        [input]
        path = "wide.parquet"
        geoid = "geoid"
        cells = {list(wide.columns)}
        [geography]
        widths = {{ state = 2, county = 5 }}
        [privacy]
        epsilon = 1
        [projection]
        cross_check = false
    """)  # fmt: skip
    assert nodes(manifest) == [1, 51, 3143]
    assert len(manifest["cells"]) == 26
    assert counts[0].sum() == 309_349_689
