"""topdown project from noisy measurement files: estimates, margins and whole counts, with and without a known plan."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import geopandas as gpd
import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from shapely.geometry import box

import topdown as td
from support import noisy_files as files
from support.places import REPOSITORY, Command
from topdown.config import load_project
from topdown.errors import ConfigError
from topdown.pipeline.project_measurements import project_measurements
from topdown.release.manifest import SCHEMA_VERSION
from topdown.workload.redistricting import UNITS

SCHEMA = json.loads((REPOSITORY / "docs" / "schemas" / f"manifest-{SCHEMA_VERSION}.json").read_text(encoding="utf-8"))

TOML = """
title = "a state"
[measurements]
path = "nmf"
product = "pl94-persons"
state = "44"
total = 160
[output]
tables = ["total", "hhgq"]
"""


def by_row(level: str, query: str, code: str) -> float:
    """Variances that no plan has: larger at units whose code ends with 1."""
    return files.rounded_production(level, query, code) * (1.5 if code.endswith("1") else 1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noisy measurement files, and the release that was made from them."""
    found = tmp_path_factory.mktemp("noisy")
    files.make(found / "nmf", by_row)
    (found / "nmf.toml").write_text(TOML)
    project_measurements(load_project(found / "nmf.toml"))
    return found


def manifest_of(public: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((public / "manifest.json").read_text(encoding="utf-8"))
    return found


def test_a_release_is_made_that_keeps_total_and_limits(folder: Path) -> None:
    td.verify_release(folder / "output" / "public")
    found = td.read_release(folder / "output" / "public")
    assert found.plan is None
    assert int(found.table("whole state", "total")["total"].iloc[0]) == 160
    limits = td.read_noisy_measurements(folder / "nmf", state="44").limits
    assert limits is not None
    for query, (low, high) in limits.by_query.items():
        counts = np.concatenate([found.release.answers(level, query.name) for level in found.geography.levels])
        assert (counts >= low).all()
        assert (counts <= high).all()
    # No minor lives in a nursing facility.
    assert not found.release.values[:, 3 * 252 : 3 * 252 + 126].any()


def test_the_manifest_says_variances_and_promises_nothing(folder: Path) -> None:
    manifest = manifest_of(folder / "output" / "public")
    jsonschema.validate(manifest, SCHEMA)
    assert manifest["privacy"]["mechanism"] == "discrete-gaussian"
    block = next(
        one for one in manifest["privacy"]["measured"] if (one["level"], one["query"]) == ("block", "detailed")
    )
    assert (block["units"], block["exact"]) == (8, 0)
    assert block["largest_variance"] == pytest.approx(1.5 * block["least_variance"])
    assert "Whoever drew them has to state what they protect" in manifest["notices"][1]
    assert manifest["invariants"] == [
        "The answers to query 'total' at 1 of 1 units of level 'whole state' are exact and are not protected."
    ]
    said = (folder / "output" / "public" / "METHODS.md").read_text(encoding="utf-8")
    assert "| block, 8 units | detailed | discrete-gaussian | 10.1124 to 15.1686 |" in said


def test_what_was_measured_is_published_with_every_rows_variance(folder: Path) -> None:
    expected = td.read_noisy_measurements(folder / "nmf", state="44", total=160).measurements
    found = td.read_release(folder / "output" / "public").measurements
    assert (found.plan, found.mechanism) == (None, "discrete-gaussian")
    # Only children have no answers.
    assert dict.fromkeys(found.keys) == dict.fromkeys(expected.keys)
    for key in expected.keys:
        measured = np.isfinite(expected[key].variance)
        assert np.array_equal(found[key].variance, expected[key].variance), key
        assert np.array_equal(found[key].values[measured], expected[key].values[measured]), key


def test_what_was_published_is_read_some_units_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = td.read_release(folder / "output" / "public").measurements
    # The names of a state's cells do not fit into one column of text.
    monkeypatch.setattr("topdown.release.read._ROWS_AT_ONCE", 5000)
    found = td.read_release(folder / "output" / "public").measurements
    for key in expected.keys:
        assert np.array_equal(found[key].values, expected[key].values), key
        assert np.array_equal(found[key].variance, expected[key].variance), key


def test_estimates_have_margins_of_the_files_variances(folder: Path) -> None:
    measurements = td.read_noisy_measurements(folder / "nmf", state="44", total=160).measurements
    beside = pd.read_parquet(folder / "output" / "public" / "tables" / "total_estimates.parquet")
    code = files.BLOCKS[0]
    region = td.region(measurements, {code: 1})
    row = beside[beside["geoid"] == code].iloc[0]
    assert row["unbiased"] == pytest.approx(region.estimate)
    assert row["moe"] == pytest.approx(1.6448536 * region.sd)


def test_the_release_is_derived_from_again(folder: Path) -> None:
    (folder / "again.toml").write_text('[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\n')
    project_measurements(load_project(folder / "again.toml"))
    first, again = (td.read_release(folder / name / "public") for name in ("output", "again"))
    assert np.abs(first.release.values - again.release.values).max() <= 1
    manifest = manifest_of(folder / "again" / "public")
    jsonschema.validate(manifest, SCHEMA)
    assert "that the noisy measurement files publish" in manifest["limits"]["statement"]


def test_the_same_files_elsewhere_give_the_same_release(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "nmf", tmp_path / "copy")
    (tmp_path / "nmf.toml").write_text(TOML.replace('"nmf"', '"copy"'))
    project_measurements(load_project(tmp_path / "nmf.toml"))
    for name in ("release.parquet", "measurements.parquet", "tables/total_estimates.parquet"):
        one, other = (at / "output" / "public" / name for at in (folder, tmp_path))
        assert one.read_bytes() == other.read_bytes(), name
    first, second = (manifest_of(at / "output" / "public") for at in (folder, tmp_path))
    assert first["derived_from"] == second["derived_from"]


def test_made_again_it_is_known(folder: Path, topdown: Command) -> None:
    done = topdown("project", folder / "nmf.toml")
    assert done.returncode == 0
    assert "holds this release already" in done.stdout


def test_another_total_is_another_release(folder: Path) -> None:
    (folder / "other.toml").write_text(TOML.replace("160", "161"))
    with pytest.raises(ConfigError, match="holds another release"):
        project_measurements(load_project(folder / "other.toml"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('product = "pl94-persons"\n', "", "state is for noisy measurement files; give product too"),
        ("total = 160", "total = -1", "measurements.total: "),
        ("pl94-persons", "pl94-people", "unknown product 'pl94-people'"),
        ("total = 160", 'levels = ["tract"]', "levels are 'tract'; give some of 'state', 'county'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    folder: Path, tmp_path: Path, topdown: Command, old: str, new: str, said: str
) -> None:
    (tmp_path / "nmf.toml").write_text(TOML.replace('"nmf"', f'"{folder / "nmf"}"').replace(old, new))
    done = topdown("project", tmp_path / "nmf.toml")
    assert done.returncode == 2
    assert said in done.stderr


def test_a_damaged_partition_ends_with_the_exit_code_of_data(folder: Path, tmp_path: Path, topdown: Command) -> None:
    shutil.copytree(folder / "nmf", tmp_path / "nmf")
    files.place(tmp_path / "nmf", "Tract", "DPQuery").write_bytes(b"PAR1")
    (tmp_path / "nmf.toml").write_text(TOML)
    done = topdown("project", tmp_path / "nmf.toml")
    assert done.returncode == 3
    assert "DPQuery/State=044: a file cannot be read" in done.stderr
    assert not (tmp_path / "output").exists()


def test_housing_units_have_exact_totals_and_the_production_runs_plan(tmp_path: Path) -> None:
    blocks = [f"7200100{tract}0{group}{number:03d}" for tract in (101, 102) for group in (1, 2) for number in range(3)]
    widths = {"county": 5, "tract": 11, "block group": 12, "block": 15}
    there = td.Geography.from_geoids(blocks, widths, root="72", root_level="state")
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"block": blocks, "vacant": rng.integers(0, 9, 12), "occupied": rng.integers(0, 40, 12)})
    counts = td.Counts.from_table(frame, there, geoid="block", cells=["vacant", "occupied"], schema=UNITS)
    plan = td.preset("pl94-2020-units-pr").plan(
        there.levels, invariants={level: ["total"] for level in there.levels}, only_child="move-up"
    )
    measured = td.measure(counts, plan, td.SeededSource(2))
    for path in td.write_noisy_measurements(measured, tmp_path / "nmf"):
        # As others write them: nothing of ours in the metadata.
        pq.write_table(pq.ParquetFile(path).read().replace_schema_metadata(None), path)
    assert {path.name for path in (tmp_path / "nmf").iterdir()} == {"PR_Unit_PL_PROD"}
    found = td.read_noisy_measurements(tmp_path / "nmf", "pl94-units", "72")
    assert found.measurements.plan is not None
    assert found.measurements.plan.to_dict() == plan.to_dict()
    (tmp_path / "nmf.toml").write_text(
        '[measurements]\npath = "nmf"\nproduct = "pl94-units"\nstate = "72"\n[output]\ntables = ["h1"]\n'
    )
    public = project_measurements(load_project(tmp_path / "nmf.toml")).public
    jsonschema.validate(manifest_of(public), SCHEMA)
    release = td.read_release(public)
    released = release.table("block", "total")["total"].to_numpy()
    assert (released == frame.sort_values("block")[["vacant", "occupied"]].sum(axis=1).to_numpy()).all()
    # What is vacant and what is occupied are off by the same.
    beside = pd.read_parquet(public / "tables" / "h1_estimates.parquet")
    deviations = beside.pivot_table(index="geoid", columns="column", values="sd")
    assert (deviations["total"] == 0).all()
    assert deviations["vacant"].min() > 1
    assert deviations["vacant"].to_numpy() == pytest.approx(deviations["occupied"].to_numpy())


def test_its_map_is_of_the_true_units(folder: Path, topdown: Command, tmp_path: Path) -> None:
    tracts = ["44001010100", "44003020100"]
    shapes = gpd.GeoDataFrame({"GEOID": tracts}, geometry=[box(k, 0, k + 1, 1) for k in range(2)], crs="EPSG:4269")
    shapes.to_file(tmp_path / "tracts.geojson")
    public = folder / "output" / "public"
    told = ("--format", "geoparquet", "--geometry", tmp_path / "tracts.geojson", "-o", tmp_path / "map")
    done = topdown("export", public, *told)
    assert (done.returncode, done.stderr) == (0, "")
    found = gpd.read_parquet(tmp_path / "map" / "release.parquet")
    assert found["geoid"].tolist() == tracts
    codes = td.tabulation_units(td.read_release(public).geography, "tract")
    blocks = td.read_release(public).table("block", "total").assign(tract=lambda t: t["geoid"].map(codes))
    assert found["total"].tolist() == blocks.groupby("tract")["total"].sum()[tracts].tolist()


def test_a_redistricting_file_without_housing_units_says_what_its_zeros_are(
    folder: Path, topdown: Command, tmp_path: Path
) -> None:
    done = topdown("export", folder / "output" / "public", "--format", "pl94", "-o", tmp_path / "pl94")
    assert done.returncode == 0
    assert "note: table H1 and the fields HU100 are 0, which is no count of housing units" in done.stderr


def test_fields_of_the_redistricting_file_are_asked_for_by_name(folder: Path, topdown: Command, tmp_path: Path) -> None:
    release = td.read_release(folder / "output" / "public")
    schema = release.measurements.schema
    institutional = td.Query.parse("hhinstlevels", schema).labels()[1]
    white = td.Query.parse("cenrace", schema).labels()[0]
    weights = {files.BLOCKS[0]: 1.0, files.BLOCKS[3]: 1.0}
    for field, query, cell in (
        ("P0050002", "hhinstlevels", institutional),
        ("P0010003", "cenrace", white),
        ("P0030001", "votingage", "18 and over"),
    ):
        same = td.region(release.measurements, weights, query=query, cell=cell)
        for asked in ({"cell": field}, {"query": field}, {"query": field[:1] + field[3], "cell": field}):
            found = td.region(release.measurements, weights, **asked)  # type: ignore[arg-type]
            assert found == pytest.approx((*same[:4], same.note)), (field, asked)

    done = topdown("query", release.public, "--sum", ",".join(weights), "--cell", "P0010003", "--share-of", "P0010001")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "cd.txt").write_text("BLOCKID|DISTRICT\n" + "".join(f"{code}|1\n" for code in weights))
    out = tmp_path / "districts.csv"
    done = topdown("aggregate", release.public, "--by", tmp_path / "cd.txt", "--query", "P1", "-o", out)
    assert done.returncode == 0
    table = pd.read_csv(out, dtype={"region": str})
    own = table[table["region"] == "1"].set_index("cell")
    counted = release.table("block", "P1").set_index("geoid").loc[list(weights)].iloc[:, 1:].sum()
    assert own["value"].to_dict() == counted.to_dict()
    assert own.loc["P0010003", "sd"] == pytest.approx(td.region(release.measurements, weights, cell="P0010003").sd)
    assert td.tabulate(release.measurements, "tract", query="P0010003")["query"].tolist() == ["P0010003"] * 3


def test_a_field_that_is_not_there_is_refused_with_those_there_are(folder: Path, topdown: Command) -> None:
    public = folder / "output" / "public"
    done = topdown("query", public, "--sum", files.BLOCKS[0], "--query", "P5", "--cell", "P0050011")
    assert done.returncode == 2
    assert "query 'P5' has no cell 'P0050011'; known: 'P0050001', " in done.stderr


def test_a_query_without_cells_is_answered_whole(folder: Path, topdown: Command) -> None:
    public = folder / "output" / "public"
    done = topdown("query", public, "--sum", files.BLOCKS[0], "--query", "P5", "--format", "csv")
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert len(rows) == 1 + 10
    one = topdown("query", public, "--sum", files.BLOCKS[0], "--query", "P5", "--cell", "P0050010", "--format", "csv")
    assert one.stdout.splitlines() == [rows[0], rows[10]]
