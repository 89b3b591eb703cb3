"""Runs on a spine: noise on it, a release of the published geography and of areas, on 569 real blocks."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shapely.geometry import box

import topdown as td
from support.browser import data_of
from support.command import topdown_command
from support.on_spine import FILES, KINDS, LEVELS, QUERIES, TOTALS, districts, folder_with
from support.places import SMALL_DATA
from topdown.config import load_config
from topdown.errors import DataError, GeographyError, TopdownError
from topdown.geography.unit_sums import SpineGeography
from topdown.machine.files import file_digest
from topdown.pipeline.run import run
from topdown.privacy.ledger import Ledger
from topdown.uncertainty.margins import linear_of


@pytest.fixture(scope="module")
def totals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(load_config(folder_with(tmp_path_factory.mktemp("totals"), TOTALS))).public


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(load_config(folder_with(tmp_path_factory.mktemp("queries"), QUERIES))).public


@pytest.fixture(params=["totals", "queries"])
def public(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


def published_geography() -> td.Geography:
    blocks = pd.read_csv(SMALL_DATA / FILES[1], dtype=str)
    widths = {"county": 5, "tract": 11, "block group": 12, "block": 15}
    names = blocks["name"]
    return td.Geography.from_geoids(blocks["block"], widths=widths, root="44", root_level="state", names=names)


def test_what_is_released_are_the_published_units_and_areas_and_all_adds_up(public: Path) -> None:
    found = td.read_release(public)
    assert found.geography == published_geography()
    assert found.geography.names is not None
    assert found.measurements.geography.levels == ("state", "county", "senate x county", "pieces x tract", "block")
    assert found.measurements.geography.n_leaves == found.geography.n_leaves == 569
    assert topdown_command("verify", public) == 0
    leaves = found.geography.tree.leaves
    blocks = pd.DataFrame(found.release.values[leaves], index=found.geography.geoid[leaves])
    assert set(found.areas) == set(KINDS)
    for kind, of in districts().items():
        by_area = blocks.groupby(blocks.index.map(lambda block, of=of: of.get(block) or "none")).sum()
        own = found.areas[kind]
        assert own.geography.geoid[1:].tolist() == by_area.index.tolist()
        assert (own.values[1:] == by_area.to_numpy()).all()
        assert (own.values[0] == found.release.values[0]).all()
        file = pd.read_parquet(public / f"areas/{kind}.parquet")
        total = "persons" if "persons" in file else "total"
        assert file["geoid"].tolist() == own.geography.geoid.tolist()
        assert (file[total] == own.values.sum(axis=1)).all()
        assert ((file[f"{total}_lower"] <= file[total]) & (file[total] <= file[f"{total}_upper"])).all()


def dense(found: td.PublishedRelease) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least squares of the leaves' counts of cells, from all rows of measurements.parquet by dense algebra, with its
    covariance; both leaf by leaf, in the order of the spine, and cell by cell; and how far it is from rounding."""
    measured, schema = found.measurements, found.measurements.schema
    tree, cells = measured.geography.tree, schema.n_cells
    member = np.zeros((tree.n_nodes, tree.n_leaves))
    member[tree.leaves] = np.eye(tree.n_leaves)
    for families in tree.families_up():
        member[families.parents] = np.add.reduceat(member[families.children], families.starts, axis=0)
    rows, values, weights = [], [], []
    for level in measured.geography.levels:
        nodes = measured.geography.level_slice(level)
        for query, answers in measured.at(level).items():
            of_cells = query.answers(np.eye(cells))  # (cells x answers)
            for node, value, variance in zip(member[nodes], answers.values, answers.variance, strict=True):
                for answer in range(query.n_answers):
                    rows.append(np.kron(node, of_cells[:, answer]))
                    values.append(value[answer])
                    weights.append(1.0 / variance)
    design, weight = np.array(rows), np.array(weights)
    information = (design * weight[:, None]).T @ design
    covariance = np.linalg.inv(information)
    return covariance @ (design.T @ (weight * np.array(values))), covariance, member


@pytest.mark.parametrize("of", ["totals", "queries"])
def test_estimates_and_margins_are_those_of_dense_least_squares(of: str, request: pytest.FixtureRequest) -> None:
    public: Path = request.getfixturevalue(of)
    found = td.read_release(public)
    spine = found.measurements.geography
    assert isinstance(spine, SpineGeography)
    cells = found.measurements.schema.n_cells
    estimate, covariance, member = dense(found)
    every = [("published", spine.units, None), *((kind, units, kind) for kind, units in spine.area_units.items())]
    linear = linear_of(found.measurements, [td.Query.parse("total", found.measurements.schema)])
    for name, units, kind in every:
        weights = units.summed(member)  # (units x leaves)
        total = np.kron(weights, np.ones((1, cells)))
        wanted, deviation = total @ estimate, np.sqrt(np.einsum("ij,jk,ik->i", total, covariance, total))
        if kind is None:
            answer = linear.answers_of(slice(0, units.geography.n_nodes), td.Query.parse("total", linear.schema))
            assert answer.variance is not None
            got = answer.values[:, 0], np.sqrt(answer.variance[:, 0])
        else:
            table = pd.read_parquet(public / f"areas/{kind}_estimates.parquet")
            table = table[table["column"] == ("persons" if of == "totals" else "total")]
            assert table["geoid"].tolist() == units.geography.geoid.tolist()
            got = table["unbiased"].to_numpy(), table["sd"].to_numpy()
        np.testing.assert_allclose(got[0], wanted, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(got[1], deviation, rtol=1e-8, err_msg=name)


def test_margins_of_published_units_and_areas_are_those_of_their_sums(public: Path) -> None:
    """By `td.region` and `topdown aggregate`, of a release that they know nothing of but its units."""
    found = td.read_release(public)
    by_area = td.aggregate(found, districts()).table
    for kind in KINDS:
        table = pd.read_parquet(public / f"areas/{kind}_estimates.parquet")
        table = table[table["column"].isin(["persons", "total"])].set_index("geoid")
        own = by_area[(by_area["assignment"] == kind) & by_area["region"].notna()].set_index("region")
        for column, other in (("value", "value"), ("unbiased", "estimate"), ("sd", "sd")):
            np.testing.assert_allclose(table.loc[own.index, column], own[other], rtol=1e-8, atol=1e-6)
    margins = td.margins(found.measurements, found.release, queries=["total"])
    for geoid in ("44", "44007000101", "440070001011"):
        region = td.region(found.measurements, {geoid: 1})
        row = margins[margins["geoid"] == geoid].iloc[0]
        assert (row["estimate"], row["sd"]) == pytest.approx((region.estimate, region.sd), rel=1e-8)
    tract, group = {"44007000101": 1}, {"440070001011": 1}
    less = td.region(found.measurements, tract, minus=group)
    parts = {unit: 1 for unit in found.geography.geoid.tolist() if unit[:11] in tract and unit[:12] not in group}
    parts = {unit: 1 for unit in parts if len(unit) == 12}
    assert td.region(found.measurements, parts)[:2] == pytest.approx(less[:2], rel=1e-8)
    share = td.region(found.measurements, group, share_of=tract)
    assert share.lower <= share.estimate <= share.upper


def test_a_projection_of_the_measurements_is_the_same_release(public: Path, tmp_path: Path) -> None:
    (tmp_path / "again.toml").write_text(
        f'[measurements]\npath = "{public}"\n[output]\ndirectory = "again"\ntables = ["total"]\n'
    )
    assert topdown_command("project", tmp_path / "again.toml", "-q") == 0
    again = tmp_path / "again/public"
    assert topdown_command("verify", again) == 0
    ours, theirs = td.read_release(public), td.read_release(again)
    assert ours.geography == theirs.geography
    assert ours.measurements.geography == theirs.measurements.geography
    leaves = ours.geography.tree.leaves  # where ties are broken otherwise
    assert np.abs(ours.release.values[leaves] - theirs.release.values[leaves]).max() <= 2
    stated = ours.release.cells[0] if len(ours.release.cells) == 1 else "total"
    for kind in KINDS:
        files = [pd.read_parquet(folder / f"areas/{kind}_estimates.parquet") for folder in (public, again)]
        tables = [one[one["column"] == stated] for one in files]
        np.testing.assert_allclose(tables[0]["unbiased"], tables[1]["unbiased"], atol=1e-9)
        np.testing.assert_allclose(tables[0]["sd"], tables[1]["sd"], rtol=1e-12)


def test_a_spine_that_is_the_published_geography_changes_no_number() -> None:
    geography = published_geography()
    spine = td.Spine(["county", "tract", "block group"], cap=None).geography(geography, {})
    frame = pd.read_csv(SMALL_DATA / FILES[0], dtype={"block": str})
    plan, found = td.Plan("geometric", epsilon=1), []
    for tree in (geography, SpineGeography.of(spine, geography, {})):
        counts = td.Counts.from_table(frame, tree, geoid="block", cells=["persons"])
        measured = td.measure(counts, plan, td.SeededSource(1))
        release = td.round_counts(td.project(measured, "gls-top-down"), source=td.SeededSource(2))
        release = release.at(tree.units) if isinstance(tree, SpineGeography) else release
        found.append(td.margins(measured, release).assign(value=release.values[:, 0]))
    pd.testing.assert_frame_equal(*found, rtol=1e-12)


def test_errors_of_published_units_and_areas_are_what_is_expected(tmp_path: Path) -> None:
    """Root mean squares of 800 draws, over the units of a kind."""
    config = load_config(folder_with(tmp_path, TOTALS))
    assert config.geography.spine is not None
    areas, geography = districts(), published_geography()
    spine = config.geography.spine.spine.geography(geography, areas)
    known = {kind: sorted({*of.values()} - {""}) for kind, of in areas.items()}
    blocks = geography.geoid[geography.tree.leaves].tolist()
    codes = {
        kind: np.array([known[kind].index(of[block]) if of.get(block) else -1 for block in blocks])
        for kind, of in areas.items()
    }
    tree = SpineGeography.of(spine, geography, {kind: (known[kind], codes[kind]) for kind in areas})
    frame = pd.read_csv(tmp_path / FILES[0], dtype={"block": str})
    counts = td.Counts.from_table(frame, tree, geoid="block", cells=["persons"])
    plan, draws = config.plan(), 800
    said = plan.errors(tree).set_index("level")
    every = {"tract": tree.units, "block group": tree.units, **{kind: tree.area_units[kind] for kind in KINDS}}
    squares = {kind: np.zeros(units.geography.n_nodes) for kind, units in every.items()}
    for seed in range(draws):
        measured = td.project(td.measure(counts, plan, td.SeededSource(seed)), "gls")
        for kind, units in every.items():
            squares[kind] += units.summed(measured.values - counts.values)[:, 0] ** 2 / draws
    for kind, units in every.items():
        here = units.geography.level_slice(kind)
        # Of a single unit a root mean square of 800 draws is known to 2.5 %.
        assert np.sqrt(squares[kind][here]).mean() == pytest.approx(said.loc[kind, "sd_mean"], rel=0.05), kind


# -- what was changed is found ----------------------------------------------------------------------------------------


def received(public: Path, folder: Path) -> Path:
    return Path(shutil.copytree(public, folder / "received"))


def again_in_the_manifest(public: Path, name: str) -> None:
    manifest = json.loads((public / "manifest.json").read_text())
    path = public / name
    manifest["files"][name] |= {"sha256": file_digest(path), "bytes": path.stat().st_size}
    (public / "manifest.json").write_text(json.dumps(manifest))


def rewritten(public: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """A file changed, and the manifest made to vouch for it."""
    table = pq.read_table(public / name)
    changed = pa.Table.from_pandas(change(table.to_pandas()), preserve_index=False)
    fields = [changed[one.name].cast(one.type) for one in table.schema]
    pq.write_table(pa.table(fields, schema=table.schema.with_metadata(table.schema.metadata)), public / name)
    again_in_the_manifest(public, name)


def with_count(table: pd.DataFrame) -> pd.DataFrame:
    column = "persons" if "persons" in table else "total"
    return table.assign(**{column: table[column] + (table.index == 1)})


def with_value(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(value=table["value"] + (table.index == 2))


def with_leaf_elsewhere(table: pd.DataFrame) -> pd.DataFrame:
    """Two blocks of different districts in each other's place."""
    mine = table.index[(table["tree"] == "senate") & (table["level"] == "block")]
    parents = table.loc[mine, "parent"]
    first, other = mine[0], mine[(parents != parents.iloc[0]).argmax()]
    one, two = table.loc[first, "geoid"], table.loc[other, "geoid"]
    table.loc[[first, other], "geoid"] = [two, one]
    table.loc[mine] = table.loc[mine].sort_values(["parent", "geoid"]).to_numpy()
    return table


def with_other_leaf(table: pd.DataFrame) -> pd.DataFrame:
    last = table.index[(table["tree"] == "spine") & (table["level"] == "block")][-1]
    table.loc[last, "geoid"] = table.loc[last, "geoid"] + "x"
    return table


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("areas/senate.parquet", with_count, "senate '002'.*cells of release.parquet add up to"),
        ("areas/house_estimates.parquet", with_value, "house_estimates.*cells of release.parquet add up to"),
        ("geography.parquet", with_other_leaf, "are not those of level 'block'"),
    ],
)
def test_verify_finds_what_does_not_add_up(
    public: Path, tmp_path: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame], said: str
) -> None:
    there = received(public, tmp_path)
    rewritten(there, name, change)
    with pytest.raises(DataError, match=said):
        td.verify_release(there)


def test_a_spine_has_every_published_leaf_once() -> None:
    tree = td.Geography.from_geoids(["0101", "0102", "0201"], widths={"tract": 2, "block": 4}, root="x")
    spine = td.Spine(["tract"], cap=None).geography(tree, {})
    twice = replace(spine, identifiers=pa.array(["x", "01", "02", "0101", "0102", "0102"]))
    with pytest.raises(GeographyError, match="are not those of level 'block'"):
        SpineGeography.of(twice, tree, {})


def test_verify_finds_a_block_in_another_area(totals: Path, tmp_path: Path) -> None:
    there = received(totals, tmp_path)
    rewritten(there, "geography.parquet", with_leaf_elsewhere)
    with pytest.raises(DataError, match=r"areas/senate.parquet: .*cells of release.parquet add up to"):
        td.verify_release(there)


def test_verify_finds_tables_of_areas_that_the_manifest_does_not_name(totals: Path, tmp_path: Path) -> None:
    there = received(totals, tmp_path)
    manifest = json.loads((there / "manifest.json").read_text())
    shutil.copy(there / "areas/house.csv", there / "areas/water.csv")
    manifest["files"]["areas/water.csv"] = dict(manifest["files"]["areas/house.csv"])
    (there / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"areas/water.csv belongs to no table"):
        td.verify_release(there)


# -- what is refused before anything is drawn -------------------------------------------------------------------------


def refused(folder: Path, text: str, *more: object) -> None:
    """A run with a ledger that leaves it, and the folder, as they were."""
    toml = folder_with(folder, text) if not (folder / "run.toml").exists() else folder / "run.toml"
    toml.write_text(text + '[ledger]\npath = "ledger.db"\ndataset = "blocks"\n')
    ledger = Ledger(folder / "ledger.db")
    if not (folder / "ledger.db").exists():
        ledger.open_account("blocks", 100)
    assert topdown_command("run", toml, *more) != 0
    assert not ledger.account("blocks").releases
    assert not (folder / "output").exists()


Tables = dict[str, pd.DataFrame]


def two_areas(tables: Tables) -> None:
    tables["house"] = pd.concat([tables["house"], tables["house"].iloc[:1].assign(district="099")])


def unknown_block(tables: Tables) -> None:
    tables["house"] = pd.concat([tables["house"], pd.DataFrame({"block": ["1"], "district": ["099"]})])


def without_areas(tables: Tables) -> None:
    tables["house"] = tables["house"].assign(district="")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (two_areas, "unit '440070001011000' is assigned twice; assign every unit once"),
        (unknown_block, "1 of 570 units are not in the geography, such as '1'"),
        (without_areas, "areas 'house': has no unit with an area; give a row for every unit"),
    ],
)
def test_tables_of_areas_that_are_none_are_refused(
    tmp_path: Path, change: Callable[[Tables], None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_with(tmp_path, TOTALS)
    tables = {"house": pd.read_csv(tmp_path / "house.csv", dtype=str)}
    change(tables)
    tables["house"].to_csv(tmp_path / "house.csv", index=False)
    refused(tmp_path, TOTALS)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (LEVELS, 'levels = ["house", "tract"]', "level 'tract' does not nest in 'house'"),
        (LEVELS, 'levels = ["pieces x ward"]', "published level or areas 'ward'"),
        (LEVELS, 'levels = ["pieces", "pieces"]', "names level 'pieces' twice"),
        ('house = "house.csv"', 'house = "ri_pl94_2018_totals.csv"', "is the confidential table, and a spine is made"),
        ('house = "house.csv"', 'house = "nothing.csv"', "nothing.csv"),
        ('house = "house.csv"', 'tract = "house.csv"', "areas 'tract' are called as a level is"),
        ('house = "house.csv"', '"a/b" = "house.csv"', "give the kind a name of letters"),
        ('house = "house.csv"', '"a x b" = "house.csv"', "areas 'a x b': ' x ' joins what divides a level of a spine"),
        ('house = "house.csv"', 'spine = "house.csv"', "not 'published' or 'spine'"),
        ('house = "house.csv"', 'Senate = "house.csv"', "two kinds have one name but for upper and lower case"),
        ('units = "ri_pl94_2018_blocks.csv"\n', "", "name their public list in units"),
        ('cap = "none"', "cap = 0", "cap is 0"),
        ('cap = "none"', 'names = ["a", "b", "b"]', "names has 2 different ones; give 5: one for the root's level"),
        (
            'cap = "none"',
            'names = ["a", "", "c", "d", "e"]',
            "geography.spine: names has an empty one; give every level",
        ),
        (
            'cap = "none"',
            'names = ["a", " ", "c", "d", "e"]',
            "geography.spine: names has an empty one; give every level",
        ),
        ('cap = "none"', 'cap = "huge"', "geography.spine.cap: give a whole number or 'sqrt' or 'none' (is 'huge')"),
        ('cap = "none"', 'cap = "none"\nlimit = 3', "unknown key geography.spine.limit"),
        ("county = 0\n", "county = 0\ntract = 0\n", "tract"),
    ],
)
def test_spines_that_make_no_sense_are_refused(
    tmp_path: Path, old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in TOTALS
    text = TOTALS.replace(old, new)
    if "levels" in new:  # as the plan has these
        text = text[: text.index("[privacy.shares]")] + "[output]\n"
    refused(tmp_path, text)
    assert said in capsys.readouterr().err


def test_an_area_that_is_called_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder_with(tmp_path, TOTALS)
    houses = (tmp_path / "house.csv").read_text()
    (tmp_path / "house.csv").write_text(houses.replace(",012", ",none"))
    refused(tmp_path, TOTALS)
    assert "an area is called 'none', as what lies in none is" in capsys.readouterr().err


def test_tables_of_areas_that_change_while_they_are_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml, digests = folder_with(tmp_path, TOTALS), itertools.count()
    monkeypatch.setattr("topdown.pipeline.input.reading.areas_digest", lambda config: str(next(digests)))
    with pytest.raises(TopdownError, match="changed while"):
        run(load_config(toml))


def test_another_table_of_areas_is_another_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toml = folder_with(tmp_path, TOTALS)
    assert topdown_command("run", toml, "-q") == 0
    assert topdown_command("run", toml, "-q") == 0  # which holds it already
    houses = pd.read_csv(tmp_path / "house.csv", dtype=str)
    houses[:-1].to_csv(tmp_path / "house.csv", index=False)
    assert topdown_command("run", toml, "-q") != 0
    assert "another" in capsys.readouterr().err


# -- what reads it -----------------------------------------------------------------------------------------------------


def test_exports_and_the_page_are_of_the_published_units(totals: Path, tmp_path: Path) -> None:
    for form in ("xlsx", "acs", "sdmx"):
        assert topdown_command("export", totals, "--format", form, "--output", tmp_path / form) == 0, form
    assert topdown_command("page", totals, "--output", tmp_path / "page.html") == 0
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [one["name"] for one in data["areas"]] == list(KINDS)
    for one in data["areas"]:
        for district in one["districts"]:
            blocks = {data["geoid"][place] for place in district["units"]}
            assert blocks == {block for block, name in districts()[one["name"]].items() if name == district["name"]}
    tracts = sorted({geoid[:11] for geoid in published_geography().geoid.tolist() if len(geoid) > 11})
    outlines = gpd.GeoDataFrame({"GEOID": tracts}, geometry=[box(k, 0, k + 1, 1) for k in range(len(tracts))], crs=4269)
    outlines.to_parquet(tmp_path / "tracts.parquet")
    for form, read in (("geoparquet", gpd.read_parquet), ("gpkg", gpd.read_file)):
        more = ("--geometry", tmp_path / "tracts.parquet", "--output", tmp_path / form)
        assert topdown_command("export", totals, "--format", form, *more) == 0, form
        (file,) = (tmp_path / form).iterdir()
        drawn, known = read(file).set_index("geoid"), td.read_release(totals).table("tract", "total").set_index("geoid")
        assert drawn["persons"].tolist() == known.loc[drawn.index, "total"].tolist()
        assert sorted(drawn.index) == tracts
        assert ((drawn["persons_lower"] <= drawn["persons"]) & (drawn["persons"] <= drawn["persons_upper"])).all()
    ranks = td.rank(td.read_release(totals).measurements, td.read_release(totals).release, "tract")
    tracts = published_geography()
    assert len(ranks) == tracts.level_slice("tract").stop - tracts.level_slice("tract").start
    replicates = pd.read_parquet(totals / "replicates.parquet")
    own = td.read_release(totals).release
    assert replicates["geoid"].tolist() == own.geography.geoid.tolist()
    leaves = replicates[replicates["level"] == "block"]
    assert leaves["rep1"].sum() == replicates["rep1"].iloc[0]


def test_what_describes_it_is_described(public: Path) -> None:
    manifest: dict[str, Any] = json.loads((public / "manifest.json").read_text())
    assert [one["level"] for one in manifest["levels"]] == ["state", "county", "tract", "block group", "block"]
    assert [one["level"] for one in manifest["spine"]["levels"]][2:4] == ["senate x county", "pieces x tract"]
    assert manifest["spine"]["areas"] == {kind: len(set(of.values())) for kind, of in districts().items()}
    trees = pd.read_parquet(public / "geography.parquet")
    assert trees["tree"].unique().tolist() == ["published", "spine", *KINDS]
    leaves = trees[trees["level"] == "block"].groupby("tree")["geoid"].apply(lambda one: frozenset(one))
    assert len(set(leaves)) == 1
    readme = (public / "README.md").read_text()
    assert "`areas/`" in readme
    methods = (public / "METHODS.md").read_text()
    assert "areas/senate.parquet" in methods


@pytest.mark.system
def test_limits_chosen_margins_replicates_and_the_page_go_with_a_spine(tmp_path: Path) -> None:
    more = 'estimates = true\nwide = true\nreplicates = 1\npage = true\nmargins = { levels = ["tract"] }\n'
    toml = folder_with(tmp_path, QUERIES + more + '[bounds]\npath = "limits.csv"\n')
    known = pd.read_csv(tmp_path / FILES[2], dtype={"block": str}).groupby("block")["persons"].sum()[:5]
    limits = pd.DataFrame({"geoid": known.index, "query": "total", "answer": "total", "lower": 0, "upper": known + 50})
    limits.to_csv(tmp_path / "limits.csv", index=False)
    public = run(load_config(toml)).public
    assert topdown_command("verify", public) == 0
    assert (tmp_path / "output/page.html").exists()
    table = pd.read_parquet(public / "tables/votingage_estimates.parquet")
    assert set(table.loc[table["lower"].notna(), "level"]) == {"tract"}
    found = td.read_release(public)
    assert found.estimates is not None
    assert len(found.estimates.linear) == found.geography.n_nodes
    rewritten(received(public, tmp_path), "limits.parquet", lambda limits: limits.assign(upper=0))
    with pytest.raises(DataError, match="outside its limits"):
        td.verify_release(tmp_path / "received")


# -- units that are named otherwise ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named() -> pd.DataFrame:
    """A few towns of districts of two regions, and a region that is not divided."""
    rows = [
        (region, district, town)
        for region, district, towns in (("n", "a", 3), ("n", "b", 2), ("s", "a", 4), ("w", None, 0))
        for town in ([*"123456"][:towns] or [None])
    ]
    named = pd.DataFrame(rows, columns=["region", "district", "town"])
    return named.assign(country="x")


def test_units_by_their_paths_and_short_branches_may_be_measured_on_a_spine(
    named: pd.DataFrame, tmp_path: Path
) -> None:
    """`separator`: codes that repeat within a region; `fill`: a region that ends above the towns."""
    named.to_csv(tmp_path / "units.csv", index=False)
    counted = named.assign(persons=np.arange(10, 10 + len(named)))
    counted.to_csv(tmp_path / "table.csv", index=False)
    config = """
[input]
path = "table.csv"
cells = ["persons"]
[geography]
units = "units.csv"
levels = ["country", "region", "district", "town"]
separator = "/"
fill = "repeat"
[geography.spine]
levels = ["region", "water"]
areas = { water = "water.csv" }
cap = "none"
[privacy]
mechanism = "discrete-gaussian"
rho = 1
[privacy.shares]
country = "1/4"
region = "1/4"
water = "1/4"
town = "1/4"
"""
    spine = config[config.index("[geography.spine]") : config.index("[privacy]")]
    (tmp_path / "plain.toml").write_text(config.replace(spine, "").replace("water", "district"))
    assert topdown_command("run", tmp_path / "plain.toml", "-q", "-o", tmp_path / "plain") == 0
    plain = td.read_release(tmp_path / "plain/public").geography
    towns = plain.geoid[plain.tree.leaves].tolist()
    assert any("/" in town for town in towns)
    water = {town: str(number % 2) for number, town in enumerate(towns)}
    pd.DataFrame(water.items(), columns=["town", "water"]).to_csv(tmp_path / "water.csv", index=False)
    config = config.replace('levels = ["region", "water"]', 'levels = ["region", "water x region"]')
    (tmp_path / "run.toml").write_text(config.replace('water = "1/4"', '"water x region" = "1/4"'))
    assert topdown_command("run", tmp_path / "run.toml", "-q", "-o", tmp_path / "out") == 0
    assert topdown_command("verify", tmp_path / "out/public") == 0
    found = td.read_release(tmp_path / "out/public")
    assert found.geography == plain
    leaves = pd.Series(found.release.values[found.geography.tree.leaves, 0], towns)
    own = pd.Series(found.areas["water"].values[:, 0], found.areas["water"].geography.geoid.tolist())
    assert own[1:].to_dict() == leaves.groupby(water).sum().to_dict()
