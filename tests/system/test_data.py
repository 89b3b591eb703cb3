"""The repository's own tables, and real tables of other shapes through `topdown run` with nothing but a TOML file.

Every one is there in a small cut, which is tested everywhere, and in full, where the full tables are.
"""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import REPOSITORY, SMALL_DATA, full_data
from topdown.config import load_config, load_study
from topdown.pipeline import run as pipeline
from topdown.pipeline import study
from topdown.pipeline.input.reading import read_input

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


LINKED = SMALL_DATA / "ri_linked"


def test_the_synthetic_households_are_made_again_the_same(tmp_path: Path) -> None:
    script = runpy.run_path(str(REPOSITORY / "benchmarks" / "synthetic_households.py"))
    script["write"](script["made"](script["read_blocks"](SMALL_DATA / "ri_block_race_2010.csv")), tmp_path)
    for name in ("households.parquet", "persons.parquet"):
        assert pq.read_table(tmp_path / name).equals(pq.read_table(LINKED / name)), name
    assert (tmp_path / "blocks.csv").read_text() == (LINKED / "blocks.csv").read_text()


def test_the_synthetic_firms_are_made_again_the_same(tmp_path: Path) -> None:
    runpy.run_path(str(REPOSITORY / "benchmarks" / "synthetic_firms.py"))["write"](tmp_path)
    for name in ("firms.csv", "jobs.csv", "towns.csv"):
        assert (tmp_path / name).read_text() == (SMALL_DATA / "firms_and_jobs" / name).read_text()


def test_synthetic_households_and_persons_agree_and_are_as_many_as_the_census_counted() -> None:
    households, persons = (pq.read_table(LINKED / f"{name}.parquet").to_pandas() for name in ("households", "persons"))
    blocks = pd.read_csv(LINKED / "blocks.csv", dtype={"geoid": str}).set_index("geoid")
    census = pd.read_csv(SMALL_DATA / "ri_block_race_2010.csv", dtype={"GEOID": str}).set_index("GEOID")
    lived_in = census.index[census["pop"] > 0]
    by_block = persons.groupby("geoid")
    assert by_block.size().equals(census.loc[lived_in, "pop"].rename_axis("geoid"))
    hispanic = (persons["hispanic"] == "Hispanic").groupby(persons["geoid"]).sum()
    assert (hispanic == census.loc[lived_in, "pop_hisp"]).all()
    adult = (~persons["age"].isin(["0-4", "5-17"])).groupby(persons["geoid"]).sum()
    assert (adult == census.loc[lived_in, "vap"]).all()
    there = persons[persons["household"] != ""]
    inside = there.groupby("household")
    assert list(inside.groups) == sorted(households["household"])
    assert len(there[["household", "geoid"]].drop_duplicates()) == len(households)
    assert inside.size().clip(upper=7).map(lambda n: "7+" if n == 7 else str(n)).tolist() == list(households["size"])
    heads = there[there["relationship"] == "householder"].set_index("household").loc[households["household"]]
    same = {"geoid": "geoid", "age": "hage", "sex": "hsex", "hispanic": "hhispanic", "race": "hrace"}
    for person, household in same.items():
        assert heads[person].tolist() == households[household].tolist()
    assert len(heads) == len(households)
    kinds = inside["relationship"].agg(set).tolist()
    for kind, found in zip(households["type"], kinds, strict=True):
        assert ("spouse" in found) == kind.startswith("married")
        assert ("unmarried partner" in found) == kind.startswith("cohabiting")
        assert ("own child under 18" in found) == kind.endswith("children")
    elsewhere = persons[persons["household"] == ""].groupby(["geoid", "relationship"]).size()
    facilities = blocks.drop(columns="units").reset_index().melt("geoid")
    there = facilities[facilities["value"] > 0]
    assert set(elsewhere.index) == set(zip(there["geoid"], there["variable"], strict=True))
    assert (blocks["units"].sub(households.groupby("geoid").size(), fill_value=0) >= 0).all()


@pytest.mark.skipif(importlib.util.find_spec("bokeh_sampledata") is None, reason="needs the package bokeh_sampledata")
def test_the_counties_are_derived_again_the_same() -> None:
    script = runpy.run_path(str(REPOSITORY / "data" / "build_us_counties.py"))
    assert script["build"](puerto_rico=False).equals(pq.read_table(COUNTIES))
    with_puerto_rico = script["build"](puerto_rico=True)
    assert with_puerto_rico.num_rows == 3140 + 78
    assert len(with_puerto_rico["state"].unique()) == 52


def test_the_course_s_tables_are_all_there() -> None:
    penguins = pd.read_csv(REPOSITORY / "data" / "course_penguins.csv")
    assert penguins["species"].value_counts().to_dict() == {"Adelie": 146, "Gentoo": 119, "Chinstrap": 68}
    assert not penguins.isna().any().any()
    diamonds = pd.read_csv(REPOSITORY / "data" / "course_diamonds.csv")
    by_size = diamonds.groupby(np.ceil(diamonds["carat"]))["diamonds"].sum()
    assert by_size.to_dict() == {1: 36438, 2: 15613, 3: 1857, 4: 27, 5: 4, 6: 1}
    assert by_size.sum() == 53_940


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("palmerpenguins", "plotnine")),
    reason="needs the packages palmerpenguins and plotnine",
)
def test_the_course_s_tables_are_derived_again_the_same(tmp_path: Path) -> None:
    runpy.run_path(str(REPOSITORY / "data" / "build_course_tables.py"))["build"](tmp_path)
    for name in ("course_penguins.csv", "course_diamonds.csv"):
        assert (tmp_path / name).read_bytes() == (REPOSITORY / "data" / name).read_bytes()


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


def source(whole: bool, name: str) -> Path:
    """The full table called ``name``, or the repository's cut of it, which is not compressed."""
    return full_data() / name if whole else SMALL_DATA / name.removesuffix(".gz")


def sums(manifest: dict[str, Any], counts: np.ndarray) -> tuple[list[int], int]:
    """Number of nodes by level, and the root's count over all cells."""
    return [level["nodes"] for level in manifest["levels"]], int(counts[0].sum())


def test_the_small_tables_are_the_full_ones_cut(tmp_path: Path) -> None:
    runpy.run_path(str(SMALL_DATA / "derive.py"))["derive"](full_data(), tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert len(made) == 17
    for name in made:
        assert (tmp_path / name).read_bytes() == (SMALL_DATA / name).read_bytes(), name


def test_every_small_table_has_its_source_and_licence() -> None:
    told = (SMALL_DATA / "README.md").read_text(encoding="utf-8")
    names = {path.relative_to(SMALL_DATA).parts[0] for path in SMALL_DATA.rglob("*") if path.suffix in (".csv", ".pl")}
    lines = {name: line for line in told.splitlines() for name in names if line.startswith(f"| `{name}")}
    assert set(lines) == names
    assert all("public domain" in line or "MIT" in line for line in lines.values())
    assert "CC BY-SA" in lines["ri_block_race_2010.csv"]


@pytest.mark.parametrize("whole", [False, True])
def test_kenyan_households_by_name(whole: bool, tmp_path: Path) -> None:
    frame, manifest, counts = release(tmp_path, f"""
        [input]
        path = "{source(whole, "kenya_2019_households.csv")}"
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
    assert sums(manifest, counts) == (([1, 47, 345], 12_143_913) if whole else ([1, 1, 6], 378_422))
    assert "household" in manifest["privacy"]["statement"]
    names = frame.set_index("geoid")["name"]
    assert set(names["MOMBASA/CHANGAMWE"]) == {"CHANGAMWE"}
    assert set(names["MOMBASA"]) == {"MOMBASA"}
    # Scale 3 at every level: beyond 1000 with a probability below 1e-140.
    assert np.abs(frame["value"].to_numpy() - counts.ravel()).max() < 1000


@pytest.mark.system
@pytest.mark.parametrize("whole", [False, True])
def test_rhode_island_blocks_with_eight_cells_and_five_levels(whole: bool, tmp_path: Path) -> None:
    cells = [f"pop_{c}" for c in ("aian", "asian", "black", "hisp", "nhpi", "other", "two", "white")]
    frame, manifest, counts = release(tmp_path, f"""
        [input]
        path = "{source(whole, "ri_block_race_2010.csv.gz")}"
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
    nodes, total = sums(manifest, counts)
    assert (nodes, total) == (([1, 5, 244, 815, 25_181], 1_052_567) if whole else ([1, 2, 2, 6, 103], 6_696))
    assert len(frame) == 8 * sum(nodes)
    assert manifest["cells"] == cells
    assert ("random sample" in manifest["projections"]["unbiased"]["cross_check"]["scope"]) == whole
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
    nodes, _ = sums(manifest, counts)
    assert nodes[:2] == [1, 52]  # 50 states, DC and Puerto Rico
    assert nodes[4] == 220_334
    domestic = [geoid for geoid in frame["geoid"] if len(geoid) == 12 and not geoid.startswith("72")]
    assert len(domestic) == 217_740
    truth = dict(zip(frame["geoid"], counts[:, 0], strict=True))
    assert counts[0, 0] - truth["72"] == 308_745_538
    assert abs(frame["value"][0] - counts[0, 0]) < 1000


@pytest.mark.parametrize("whole", [False, True])
def test_counties_by_age_and_sex_need_a_wide_table_first(whole: bool, tmp_path: Path) -> None:
    long = pd.read_csv(source(whole, "us_county_age_sex_2010.csv.gz"), dtype={"geoid": str})
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
    assert sums(manifest, counts) == (([1, 51, 3143], 309_349_689) if whole else ([1, 2, 8], 1_952_655))
    assert len(manifest["cells"]) == 26


@pytest.mark.system
def test_the_redistricting_file_again_by_one_command(tmp_path: Path) -> None:
    config = load_config(REPOSITORY / "pipelines" / "pl94_rhode_island.toml")
    public = pipeline.run(config, tmp_path).public
    verified = td.verify_release(public)
    assert {f"tables/P{k}.csv" for k in range(1, 6)} <= set(verified.files)
    _, counts = read_input(config)
    assert [level["nodes"] for level in json.loads((public / "manifest.json").read_text())["levels"]] == [
        1,
        1,
        7,
        28,
        569,
    ]
    assert counts.values[0].sum() == 29_225
    tables = {
        name: pd.read_csv(public / "tables" / f"{name}.csv", dtype={"geoid": str}) for name in ("P1", "P2", "P3", "P5")
    }
    people, quarters = tables["P1"].set_index("geoid"), tables["P5"].set_index("geoid")
    assert people.loc["44", "P0010001"] == 29_225  # the state's total is exact
    assert (people["P0010001"] == people["P0010002"] + people["P0010009"]).all()
    assert (tables["P2"].set_index("geoid")["P0020001"] == people["P0010001"]).all()
    assert (tables["P3"].set_index("geoid")["P0030001"] <= people["P0010001"]).all()
    for level in ("tract", "block group", "block"):
        assert people.loc[people["level"] == level].iloc[:, 2:].sum().equals(people.loc["44"].iloc[2:].astype(int))
    facilities = pd.read_csv(config.path_of("../data/small/ri_pl94_2018_facilities.csv"), dtype=str)
    there = set(facilities.loc[facilities["lower"] == "1", "geoid"])
    blocks = quarters.loc[quarters["level"] == "block", "P0050001"]
    assert (blocks[sorted(there)] >= 1).all()
    assert blocks.drop(sorted(there)).sum() == 0
    tracts = people.loc[people["level"] == "tract", "P0010001"]
    truth = dict(zip(counts.geography.identifiers.to_pylist(), counts.values.sum(axis=1), strict=True))
    # Errors of some 2 persons in sketches: beyond 60 with a probability that cannot be met.
    assert max(abs(count - truth[geoid]) for geoid, count in tracts.items()) < 60


def test_counties_by_age_and_sex_by_one_command(tmp_path: Path) -> None:
    config = load_config(REPOSITORY / "pipelines" / "age_by_sex.toml")
    public = pipeline.run(config, tmp_path).public
    td.verify_release(public)
    _, counts = read_input(config)
    assert (counts.values.shape, counts.values[0].sum()) == ((11, 26), 1_952_655)
    both = pd.read_csv(public / "tables" / "age_sex.csv", dtype={"geoid": str}).set_index("geoid")
    stages = pd.read_csv(public / "tables" / "stage_sex.csv", dtype={"geoid": str}).set_index("geoid")
    minors = both[[f"{age}_Female" for age in ("[0,5)", "[5,10)", "[10,15)", "[15,20)")]].sum(axis=1)
    assert (stages["minors_Female"] == minors).all()
    assert (both["total"] == stages["total"]).all()
    assert both.loc[["10", "44"], "total"].sum() == both.loc["US", "total"]
    # Standard deviations of the nation's total are below 10: beyond 200 with a probability that cannot be met.
    assert abs(both.loc["US", "total"] - 1_952_655) < 200


def test_counties_of_five_states(tmp_path: Path) -> None:
    frame, manifest, counts = release(tmp_path, f"""
        [input]
        path = "{SMALL_DATA}/us_county_pop_housingunits_2010.csv"
        geoid = "geoid"
        cells = ["population", "housing_units"]
        [geography]
        widths = {{ state = 2, county = 5 }}
        names = "name"
        [privacy]
        epsilon = 1
        invariants = ["nation"]
    """)  # fmt: skip
    assert sums(manifest, counts) == ([1, 5, 24], 5_228_995 + 2_300_254)
    assert frame["value"].tolist()[:2] == [5_228_995, 2_300_254]
    assert "Kent County" in frame["name"].to_list()
    true = dict(zip(frame["geoid"][frame["cell"] == "population"], counts[:, 0], strict=True))
    other = pd.read_csv(SMALL_DATA / "us_county2010_pop.csv", dtype={"geoid": str}).set_index("geoid")["POPULATION"]
    assert {geoid: count for geoid, count in true.items() if len(geoid) == 5} == other.to_dict()


def test_the_redistricting_file_s_members_join_and_its_blocks_add_up() -> None:
    folder = SMALL_DATA / "ri_pl94_2018_prototype"
    geo, first, second, third = (
        [line.split("|") for line in (folder / f"ri{member}2018_2020Style.pl").read_text("latin-1").splitlines()]
        for member in ("geo", "00001", "00002", "00003")
    )
    assert [{len(row) for row in rows} for rows in (geo, first, second, third)] == [{97}, {149}, {152}, {15}]
    records = [row[7] for row in geo]
    assert len(set(records)) == len(records) == 54
    assert all([row[4] for row in rows] == records for rows in (first, second, third))
    people = {row[9]: int(row[90]) for row in geo}
    assert list(people.values()) == [int(row[5]) for row in first]
    blocks = {geocode: count for geocode, count in people.items() if len(geocode) == 15}
    assert len(blocks) == 48
    for level in (11, 12):
        above = {geocode: count for geocode, count in people.items() if len(geocode) == level}
        assert above == {
            unit: sum(count for block, count in blocks.items() if block.startswith(unit)) for unit in above
        }
    assert people["44007000500"] == 2_940


# -- outlines and suggestions ------------------------------------------------------------------------------------------


def wound(ring: list[list[float]]) -> float:
    """Twice the signed area of a ring by its trapezoids, positive for counterclockwise."""
    points = np.array(ring)
    return -float(np.sum(np.diff(points[:, 0]) * (points[1:, 1] + points[:-1, 1])))


def test_outlines_are_wound_one_way_and_slivers_without_area_are_left_out() -> None:
    rings = runpy.run_path(str(REPOSITORY / "data" / "build_us_county_shapes.py"))["rings"]
    nan = float("nan")
    clockwise = [(-86.82, 32.24), (-86.80, 32.28), (-86.78, 32.24), (-86.82, 32.24)]
    sliver = [(-105.09, 39.96), (-105.10, 39.96), (-105.11, 39.96), (-105.10, 39.96)]
    parts = [*clockwise, (nan, nan), *clockwise[::-1], (nan, nan), *sliver]
    found = rings(np.array([x for x, _ in parts]), np.array([y for _, y in parts]))
    assert [wound(ring) < 0 for (ring,) in found] == [True, True]
    assert all(ring[0] == ring[-1] for (ring,) in found)


def test_what_the_study_suggests_in_comments_is_there() -> None:
    path = REPOSITORY / "pipelines" / "us_counties_study.toml"
    text = re.sub(r"^# (\w+ = )", r"\1", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    suggested = tomllib.loads(text)["study"]
    columns = pq.read_schema(COUNTIES).names
    assert all(one["columns"] in columns and one["weight"] in columns for one in suggested["groups"])
    assert (path.parent / suggested["geometry"]).resolve() == REPOSITORY / "data" / "us_counties.geojson"


@pytest.mark.slow
def test_what_the_study_suggests_in_comments_works_when_it_is_uncommented(tmp_path: Path) -> None:
    text = (REPOSITORY / "pipelines" / "us_counties_study.toml").read_text(encoding="utf-8")
    assert re.findall(r"^# (\w+) = ", text, re.MULTILINE) == ["groups", "geometry"]
    text = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    for folder in ("pipelines", "data"):
        (tmp_path / folder).mkdir()
    table = pq.read_table(COUNTIES)
    pq.write_table(table, tmp_path / "data" / COUNTIES.name)
    features = []
    for k, county in enumerate(table["county"].to_pylist()):
        x, y = -120 + k % 60, 20 + k // 60
        square = [[x, y], [x, y + 1], [x + 1, y + 1], [x + 1, y], [x, y]]
        features.append({"type": "Feature", "id": county, "geometry": {"type": "Polygon", "coordinates": [square]}})
    outlines = json.dumps({"type": "FeatureCollection", "features": features})
    (tmp_path / "data" / "us_counties.geojson").write_text(outlines)
    (tmp_path / "pipelines" / "study.toml").write_text(text, encoding="utf-8")
    config = load_study(tmp_path / "pipelines" / "study.toml")
    done = study.study(config, tmp_path / "out", workers=1, replicates=2)
    assert done.report.is_file()
