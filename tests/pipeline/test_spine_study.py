"""Studies on a spine: errors of published units and of areas, beside the exact variances of these sums."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.command import topdown_command
from support.on_spine import FILES, KINDS, QUERIES, TOTALS, districts, folder_with
from support.places import SMALL_DATA
from topdown.config import load_config
from topdown.geography.geography import Geography
from topdown.geography.unit_sums import SpineGeography
from topdown.pipeline.draw import check
from topdown.studies.followed import Reported
from topdown.studies.report.results import StudyResults
from topdown.studies.report.sections.category_errors import category_error_numbers
from topdown.studies.simulate import simulate

RELEASED = "gls-top-down/rounded"
METHODS = 'methods = ["raw", "gls", "top-down/equality", "gls-top-down/rounded"]\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study of the total."""
    folder = tmp_path_factory.mktemp("study")
    toml = folder_with(folder, TOTALS + f"[study]\nreplicates = 300\nseed = 3\n{METHODS}")
    assert topdown_command("study", toml, "-q") == 0
    return folder


@pytest.fixture(scope="module")
def errors(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "output/internal/errors.parquet")


def truths() -> pd.Series:
    return pd.read_csv(SMALL_DATA / FILES[0], dtype={"block": str}).set_index("block")["persons"]


def test_there_are_rows_for_every_published_unit_and_every_area_with_their_true_counts(errors: pd.DataFrame) -> None:
    gls, blocks = errors[errors["method"] == "gls"], truths()
    assert not gls.duplicated(["geoid", "level"]).any()
    assert gls["level"].unique().tolist() == ["state", "county", "tract", "block group", "block", *KINDS]
    for level, width in {"county": 5, "tract": 11, "block group": 12, "block": 15}.items():
        own = gls[gls["level"] == level].set_index("geoid")["truth"]
        pd.testing.assert_series_equal(own, blocks.groupby(blocks.index.str[:width]).sum(), check_names=False)
    for kind, of in districts().items():
        own = gls[gls["level"] == kind].set_index("geoid")["truth"]
        wanted = blocks.groupby([of.get(block) or "none" for block in blocks.index]).sum()
        pd.testing.assert_series_equal(own, wanted, check_names=False)
        assert set(gls.loc[gls["level"] == kind, "parent"]) == {"44"}


def test_predicted_variances_are_those_that_a_check_expects(folder: Path, errors: pd.DataFrame) -> None:
    (folder / "release.toml").write_text(TOTALS)
    config = load_config(folder / "release.toml")
    said = config.plan().errors(check(config).counts.geography).set_index("level")
    gls = errors[errors["method"] == "gls"]
    for level in ("county", "tract", "block group", *KINDS):
        deviation = np.sqrt(gls.loc[gls["level"] == level, "predicted_variance"])
        assert deviation.mean() == pytest.approx(said.loc[level, "sd_mean"], rel=1e-9), level
        assert deviation.max() == pytest.approx(said.loc[level, "sd_largest"], rel=1e-9), level


def test_errors_are_as_predicted(errors: pd.DataFrame) -> None:
    known = errors[errors["method"].isin(["raw", "gls"]) & errors["predicted_variance"].notna()]
    assert set(known["level"]) == set(errors["level"])
    gls = known[known["method"] == "gls"]
    assert (gls["bias"].abs() <= 5 * gls["bias_se"]).all()
    off = (known["variance"] - known["predicted_variance"]).abs()
    assert (off <= 5 * known["variance_se"]).all()
    by_level = gls.groupby("level")[["variance", "predicted_variance"]].mean()
    assert by_level["variance"].to_numpy() == pytest.approx(by_level["predicted_variance"].to_numpy(), rel=0.2)


def test_errors_of_fifty_releases_are_what_a_check_expects(tmp_path: Path) -> None:
    """Within 5 %, on average over units, where x >= 0 does not bind: at blocks it does."""
    config = load_config(folder_with(tmp_path, TOTALS))
    counts, plan = check(config).counts, config.plan()
    said = plan.errors(counts.geography).set_index("level")["sd_mean"]
    table, released = simulate(counts, plan, [RELEASED], 50, seed=0, distances=False), {}
    for level, own, number in table.by_level:
        mse = own[RELEASED, "mse"][own.geography.tree.level(number), 0]
        released[level] = np.sqrt(mse).mean()
    for level in ("tract", "block group", "senate", "voting"):
        assert released[level] == pytest.approx(said[level], rel=0.05), level
    assert released["block"] < 0.9 * said["block"]


def test_what_has_no_closed_form_predicts_nothing_for_sums_of_several_nodes(errors: pd.DataFrame) -> None:
    of = errors[errors["method"] == "top-down/equality"].groupby("level")["predicted_variance"]
    known, units = of.count(), of.size()
    assert known["block"] == units["block"]
    assert known["senate"] == units["senate"]  # pieces of the spine
    assert known["house"] < units["house"]
    assert errors.loc[errors["method"] == "gls-top-down/rounded", "predicted_variance"].isna().all()


def test_distances_are_from_the_normal_law_of_least_squares(errors: pd.DataFrame) -> None:
    gls, raw = (errors[errors["method"] == name] for name in ("gls", "raw"))
    assert set(errors["reference"]) == {"least squares"}
    # Of its own law: within the simulation's error.
    assert (gls["wasserstein_corrected"] <= 4 * gls["wasserstein_se"] + 0.05 * np.sqrt(gls["variance"])).all()
    # Of wider normal noise: the difference of the standard deviations times E |N(0, 1)|, on average over units.
    apart = np.sqrt(raw["predicted_variance"].to_numpy()) - np.sqrt(gls["predicted_variance"].to_numpy())
    wanted = apart * np.sqrt(2.0 / np.pi)
    far = wanted > 2 * raw["wasserstein_floor"].to_numpy()
    assert far.sum() > 5
    low, high = (raw[name].to_numpy()[far].mean() for name in ("wasserstein_corrected", "wasserstein"))
    assert low <= 1.05 * wanted[far].mean()
    assert high >= 0.95 * wanted[far].mean()
    assert high == pytest.approx(wanted[far].mean(), rel=0.15)


def test_the_report_has_units_and_areas_as_levels(folder: Path, errors: pd.DataFrame) -> None:
    summary = json.loads((folder / "output/internal/summary.json").read_text())
    rows = {row["level"]: row for row in summary["overview"] if row["method"] == "gls"}
    assert list(rows) == [*reversed(KINDS), "block", "block group", "tract", "county", "state"]
    for row in rows.values():
        assert row["sd"] == pytest.approx(row["least_squares_sd"], rel=0.2)
        assert row["units"] > 0
    assert summary["levels"] == ["state", "county", "tract", "block group", "block"]
    assert "senate x county" in " ".join(summary["privacy"].split())
    page = (folder / "output/internal/report.html").read_text(encoding="utf-8")
    found = re.search('id="data">(.*?)</script>', page, re.S)
    assert found is not None
    nodes = json.loads(found[1])["nodes"]
    assert nodes["levels"] == ["state", "county", "tract", "block group", "block", *KINDS]
    assert len(nodes["geoid"]) == nodes["all_rows"] == len(errors) / len(METHODS.split(","))
    gls = errors[errors["method"] == "gls"]
    assert nodes["geoid"] == gls["geoid"].tolist()
    assert [nodes["levels"][level] for level in nodes["level"]] == gls["level"].tolist()
    assert nodes["truth"] == gls["truth"].tolist()
    assert nodes["against"] == "expected"
    assert nodes["methods"]["gls"]["bias"] == pytest.approx(gls["bias"].tolist(), rel=1e-3)
    areas = sum(gls["level"].isin(KINDS))
    assert nodes["published"]["count"][-areas:] == [None] * areas
    assert "W1 to expected" in page
    assert "with the exact variance of least squares" in page
    coverage = pd.read_parquet(folder / "output/internal/coverage.parquet")
    assert set(coverage["level"]) == {"state", "county", "tract", "block group", "block"}
    every = coverage[coverage["by"] == "all"]
    assert every["covered"].mean() == pytest.approx(0.9, abs=0.05)


def test_a_study_on_a_spine_that_is_the_published_geography_is_the_same(tmp_path: Path) -> None:
    blocks = pd.read_csv(SMALL_DATA / FILES[1], dtype=str)["block"]
    widths = {"county": 5, "tract": 11, "block group": 12, "block": 15}
    geography = Geography.from_geoids(blocks, widths=widths, root="44", root_level="state")
    spine = td.Spine(["county", "tract", "block group"], cap=None).geography(geography, {})
    frame = pd.read_csv(SMALL_DATA / FILES[0], dtype={"block": str})
    plan, found = td.Plan("discrete-gaussian", rho=1), []
    for tree in (geography, SpineGeography.of(spine, geography, {})):
        counts = td.Counts.from_table(frame, tree, geoid="block", cells=["persons"])
        table = simulate(counts, plan, ["gls", "top-down", "gls-top-down/rounded"], 20, seed=1).to_frame()
        # What the law is that residuals are compared with differs, and an only child's noise, as it is its parent.
        found.append(table.drop(columns=["reference", "noise_variance", *(c for c in table if "wasserstein" in c)]))
    pd.testing.assert_frame_equal(*found, rtol=1e-9, atol=1e-9)


def test_a_study_of_queries_follows_their_answers_at_units_and_areas(tmp_path: Path) -> None:
    toml = folder_with(tmp_path, QUERIES + '[study]\nreplicates = 30\nseed = 1\nmethods = ["gls", "gls-top-down"]\n')
    assert topdown_command("study", toml, "-q") == 0
    errors = pd.read_parquet(tmp_path / "output/internal/errors.parquet")
    gls = errors[errors["method"] == "gls"]
    assert (gls["bias"].abs() <= 5 * gls["bias_se"]).all()
    mean = gls.groupby(["level", "cell"])[["variance", "predicted_variance"]].mean()
    wide = mean.loc[["block", "block group", "voting"]]
    assert wide["variance"].to_numpy() == pytest.approx(wide["predicted_variance"].to_numpy(), rel=0.5)
    toml.write_text(QUERIES)
    config = load_config(toml)
    geography, schema = check(config).counts.geography, config.schema_of_cells
    expected = config.plan().errors(geography, schema=schema, queries=["votingage"])
    said = expected.set_index("level")["sd_mean"]
    of_query = gls[gls["cell"].str.startswith("votingage")]
    for level in ("tract", *KINDS):
        deviation = np.sqrt(of_query.loc[of_query["level"] == level, "predicted_variance"]).mean()
        assert deviation == pytest.approx(said[level], rel=1e-9), level
    counts, plan = check(config).counts, config.plan()
    table = simulate(counts, plan, ["gls", "gls-top-down"], 2, seed=1, queries=["votingage"])
    results = StudyResults(table, plan, title="", released="gls-top-down", groupings={})
    rows = category_error_numbers(results)["category_levels"]
    units = of_query.groupby("level")["geoid"].nunique()
    assert {row["level"]: row["units"] for row in rows} == units.to_dict()
    for row in rows:
        if row["method"] == "gls":
            assert row["predicted_wasserstein"] == pytest.approx(0.0, abs=1e-9)


def test_rules_groups_and_one_release_are_of_published_units(tmp_path: Path) -> None:
    more = (
        '[study]\nreplicates = 6\nseed = 1\nmethods = ["gls", "gls-top-down/rounded"]\nmetrics = "census"\n'
        '[[study.thresholds]]\ncell = "persons"\ncutoff = 4000\nlevel = "tract"\n'
    )
    toml = folder_with(tmp_path, TOTALS + more)
    assert topdown_command("study", toml, "-q") == 0
    there, blocks = tmp_path / "output/internal", truths()
    rules = pd.read_parquet(there / "rules.parquet")
    above = rules[rules["rule"].str.contains("above") & (rules["method"] == "gls")].set_index("geoid")["truth"]
    tracts = blocks.groupby(blocks.index.str[:11]).sum()
    assert above.index.tolist() == tracts.index.tolist()
    assert above.tolist() == (tracts > 4000).astype(float).tolist()
    records = pd.read_parquet(there / "records.parquet").drop_duplicates("geoid").set_index("geoid")
    assert records["truth"].tolist() == blocks.loc[records.index].tolist()
    assert records.index.tolist() == sorted(blocks.index)
    metrics = pd.read_excel(there / "census_metrics.xlsx")
    assert {"tract", "block"} <= set(metrics["level"])


def test_rows_are_sums_of_the_nodes_that_make_them_up() -> None:
    blocks = pd.read_csv(SMALL_DATA / FILES[1], dtype=str)["block"]
    widths = {"county": 5, "tract": 11, "block": 15}
    geography = Geography.from_geoids(blocks, widths=widths, root="44", root_level="state")
    spine = td.Spine(["house", "pieces x tract"], cap=None).geography(geography, districts())
    of = districts()["house"]
    known = sorted({*of.values()} - {""})
    code = [known.index(of[b]) if of.get(b) else -1 for b in geography.geoid[geography.tree.leaves].tolist()]
    tree = SpineGeography.of(spine, geography, {"house": (known, np.array(code))})
    reported = Reported.of(tree)
    leaf = np.random.default_rng(1).integers(0, 9, (2, tree.n_leaves)).astype(float)
    values = np.zeros((2, tree.n_nodes))
    values[:, tree.tree.leaves] = leaf
    for families in tree.tree.families_up():
        values[:, families.parents] = families.total(values[:, families.children])
    rows = reported.at(values)
    names = tree.geoid[tree.tree.leaves].tolist()
    tracts = pd.DataFrame(leaf.T, index=names).groupby([name[:11] for name in names]).sum()
    assert rows[:, reported.levels["tract"]].T.tolist() == tracts.to_numpy().tolist()
    houses = pd.DataFrame(leaf.T, index=names).groupby([of.get(name) or "none" for name in names]).sum()
    assert rows[:, reported.levels["house"]].T.tolist() == houses.to_numpy().tolist()
    assert replace(reported).n_rows == rows.shape[1]
