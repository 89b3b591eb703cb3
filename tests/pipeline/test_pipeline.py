from __future__ import annotations

import csv
import json
import re
import shutil
import threading
from concurrent.futures import Future
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support import second_solutions
from support.crash import PUBLIC, measured
from support.places import REPOSITORY, RUN_TOML
from support.trees import geography
from topdown.config import RunConfig, load_config
from topdown.config.derivation import Output
from topdown.errors import BudgetError, ConfigError, DataError, ProjectionError
from topdown.geography.tree import Tree
from topdown.machine.files import file_digest
from topdown.pipeline import derive as derivation
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.pipeline.input.reading import read_input
from topdown.pipeline.made_margins import laws_beforehand, made_margins
from topdown.projection.check import cross_checks
from topdown.release import publication
from topdown.release.manifest import SCHEMA_VERSION
from topdown.tables import output_formats
from topdown.tables.spreadsheet import CSV_TEXT_RULE
from topdown.uncertainty.laws.answer_laws import AnswerLaws

FILES = sorted(PUBLIC)


def read(public: Path) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    tables = {
        name: pq.read_table(public / f"{name}.parquet").to_pandas() for name in ("measurements", "estimates", "release")
    }
    return tables, json.loads((public / "manifest.json").read_text(encoding="utf-8"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- the pipelines of the repository --------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["us_counties", "us_counties_zcdp", "us_counties_invariant_states"])
def county_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path]:
    config = load_config(REPOSITORY / "pipelines" / f"{request.param}.toml")
    return config, pipeline.run(config, tmp_path_factory.mktemp(request.param)).public


def test_it_leaves_the_promised_files_and_columns(county_run: tuple[RunConfig, Path]) -> None:
    config, public = county_run
    assert sorted(path.name for path in public.iterdir()) == FILES
    assert sorted(path.name for path in public.parent.iterdir()) == ["internal", "public"]
    tables, _ = read(public)
    known = ["variance"] if config.privacy.invariants else []
    assert list(tables["measurements"]) == ["geoid", "level", "query", "cell", "value", "variance"]
    assert list(tables["estimates"]) == [
        "geoid",
        "level",
        "parent",
        "name",
        "cell",
        "unbiased",
        "variance",
        "sd",
        "lower",
        "upper",
        "non_negative",
    ]
    margins = ["lower", "upper", "moe", "cv", "reliability", "total", "total_lower", "total_upper", "total_moe"]
    assert list(tables["release"]) == ["geoid", "level", "parent", "name", "cell", "value", *known, *margins]
    with (public / "release.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(tables["release"])
    assert len(rows) - 1 == len(tables["release"]) == 2 * 3192
    as_text = tables["release"].astype(object).where(tables["release"].notna(), "")
    assert [row[5] for row in rows[1:]] == [str(value) for value in as_text["value"]]
    assert [row[0] for row in rows[1:]] == as_text["geoid"].tolist()
    named = tables["release"].set_index("geoid")["name"]
    assert set(named["01001"]) == {"Autauga County, AL"}
    assert set(named["04"]) == {"Arizona"}


def test_the_release_is_consistent_nonnegative_and_whole(county_run: tuple[RunConfig, Path]) -> None:
    tables, _ = read(county_run[1])
    assert tables["release"]["value"].dtype == np.int64
    assert tables["release"]["value"].min() >= 0
    assert tables["estimates"]["non_negative"].min() >= 0
    for column, table in (("value", "release"), ("unbiased", "estimates"), ("non_negative", "estimates")):
        frame = tables[table]
        wide = frame.pivot_table(index="geoid", columns="cell", values=column, sort=False, observed=True)
        counties = wide[[len(geoid) == 5 for geoid in wide.index]]
        states = counties.groupby([geoid[:2] for geoid in counties.index]).sum()
        assert len(states) == 51
        np.testing.assert_allclose(states, wide.loc[states.index], atol=1e-6 * (column != "value"), rtol=0)
        np.testing.assert_allclose(states.sum(), wide.loc["US"], atol=1e-5 * (column != "value"), rtol=0)
    rounding = tables["release"]["value"] - tables["estimates"]["non_negative"]
    assert rounding.abs().max() < 3


def test_both_kinds_of_estimate_stand_side_by_side(county_run: tuple[RunConfig, Path]) -> None:
    config, public = county_run
    tables, manifest = read(public)
    estimates = tables["estimates"]
    assert estimates[["unbiased", "variance", "non_negative"]].notna().all().all()
    assert manifest["projections"]["unbiased"]["method"] == "gls"
    assert manifest["projections"]["unbiased"]["non_negative"] is False
    assert manifest["projections"]["unbiased"]["unbiased"] is True
    assert manifest["projections"]["non_negative"]["unbiased"] is False
    assert manifest["projections"]["non_negative"]["method"] == config.projection.method
    for projection in manifest["projections"].values():
        assert projection["cross_check"]["scope"] == "the whole tree"
        assert projection["cross_check"]["largest_difference"] <= projection["cross_check"]["tolerance"]
    if not config.privacy.invariants:
        # The variance of the estimate is at most that of the measurement beside it.
        assert (estimates["variance"] <= tables["measurements"]["variance"] + 1e-9).all()


def test_the_noise_is_of_the_stated_size(county_run: tuple[RunConfig, Path]) -> None:
    config, public = county_run
    measured = read(public)[0]["measurements"]
    _, counts = read_input(config)
    noise = measured["value"].to_numpy() - counts.values.ravel()
    county = (measured["level"] == "county").to_numpy()
    # 6280 draws; at most 6 standard errors of the mean square of a law of kurtosis up to 6.
    ratio = np.mean(noise[county] ** 2) / measured["variance"][county].iloc[0]
    assert abs(ratio - 1) < 6 * np.sqrt(5 / county.sum())
    exact = (measured["variance"] == 0).to_numpy()
    assert not noise[exact].any()
    assert exact.any() == bool(config.privacy.invariants)


def test_the_manifest_accounts_for_everything(county_run: tuple[RunConfig, Path]) -> None:
    config, public = county_run
    _, manifest = read(public)
    assert manifest["schema_version"] == SCHEMA_VERSION
    assert {"python", "topdown", "numpy", "cvxpy"} <= set(manifest["software"])
    assert manifest["configuration"] == config.resolved()
    assert manifest["fit_for_release"] is True
    assert manifest["levels"] == [
        {"level": "nation", "nodes": 1}, {"level": "state", "nodes": 51}, {"level": "county", "nodes": 3140}
    ]  # fmt: skip
    privacy = manifest["privacy"]
    currency = "rho" if privacy["mechanism"] == "discrete-gaussian" else "epsilon"
    spent = [Fraction(entry[currency]) for entry in privacy["budget"]]
    assert sum(spent) == Fraction(privacy["total"]) == config.privacy.plan().total
    assert [(entry["level"], entry["query"]) for entry in privacy["budget"]] == [
        (level, "detailed") for level in ("nation", "state", "county")
    ]
    assert (privacy["unit"], privacy["neighbours"]) == ("person", "add-remove")
    assert "person" in privacy["statement"]
    if config.privacy.invariants:
        assert spent == [0, 0, Fraction(1, 10)]
        assert manifest["invariants"] == [
            f"Every count of level {level!r} is published exactly and is not protected; it costs no budget."
            for level in ("nation", "state")
        ]
    else:
        assert manifest["invariants"] == ["None: every level is protected."]
    assert set(manifest["files"]) == set(FILES) - {"manifest.json"}
    for name, file in manifest["files"].items():
        facts = {"sha256": file_digest(public / name), "bytes": (public / name).stat().st_size}
        assert file == facts | ({"text": CSV_TEXT_RULE} if name == "release.csv" else {})


def test_the_manifest_holds_no_seed_and_no_true_count(county_run: tuple[RunConfig, Path]) -> None:
    config, public = county_run
    text = (public / "manifest.json").read_text(encoding="utf-8")
    assert "seed" not in text.lower()
    assert file_digest(config.input_path) not in text
    assert (public.parent / "internal" / "key").read_text()[:64] not in text
    _, counts = read_input(config)
    # Whole numbers of seven digits and more: hashes and fractions hardly ever hold one of these between other signs.
    large = {str(value) for value in np.unique(counts.values[counts.values > 10**6])}
    assert len(large) > 20
    assert large.isdisjoint(re.findall(r"[0-9]+", text))


def test_invariant_levels_are_released_exactly(tmp_path: Path) -> None:
    config = load_config(REPOSITORY / "pipelines" / "us_counties_invariant_states.toml")
    _, counts = read_input(config)
    tables, _ = read(pipeline.run(config, tmp_path).public)
    upper = tables["release"]["level"] != "county"
    wanted = counts.values[:52].ravel()
    assert tables["release"]["value"][upper].tolist() == wanted.tolist()
    assert (tables["release"]["variance"][upper] == 0).all()
    assert tables["release"]["variance"][~upper].isna().all()
    assert (tables["release"]["value"][~upper].to_numpy() != counts.values[52:].ravel()).any()


# -- run again, change, fail ----------------------------------------------------------------------------------------


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("noise was drawn again")

    monkeypatch.setattr(draw, "measure", refuse)


def test_a_second_run_draws_nothing_and_changes_nothing(toy_run: Path, request: pytest.FixtureRequest) -> None:
    config = load_config(toy_run)
    first = pipeline.run(config)
    assert first.already_there is False
    before = contents(config.output_path)
    request.getfixturevalue("no_noise")
    again = pipeline.run(config)
    assert again.already_there is True
    assert contents(config.output_path) == before


def test_a_run_that_lost_its_public_files_makes_the_same_release(toy_run: Path) -> None:
    config = load_config(toy_run)
    public = pipeline.run(config).public
    before = contents(public)
    shutil.rmtree(public)
    assert pipeline.run(config).already_there is False
    assert contents(public) == before


def test_a_large_release_written_again_is_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 10,000 nodes the second solution looks at a sample, whose choice and findings are in the manifest."""
    chosen: list[list[int]] = []

    def choose(tree: Tree, rng: np.random.Generator) -> list[int]:
        chosen.append(sample_roots(tree, rng))
        return chosen[-1]

    sample_roots = cross_checks._sample_roots
    monkeypatch.setattr(cross_checks, "_sample_roots", choose)
    rng = np.random.default_rng(4)
    codes = [f"{state:02d}{county:03d}" for state in range(1, 41) for county in range(300)]
    table = pd.DataFrame(
        {"county": codes, "adults": rng.poisson(8, len(codes)), "children": rng.poisson(1, len(codes))}
    )
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(RUN_TOML)
    config = load_config(tmp_path / "run.toml")
    public = pipeline.run(config).public
    before = contents(public)
    shutil.rmtree(public)
    assert pipeline.run(config).already_there is False
    assert contents(public) == before
    assert chosen[:2] == chosen[2:]
    assert chosen[0] != chosen[1]
    shutil.rmtree(tmp_path / "output")
    pipeline.run(config)
    assert chosen[4:] != chosen[:2]


def test_rounding_ties_fall_the_same_way_again(tmp_path: Path) -> None:
    # Integer noise under exact states: within a family all remainders are the same, and every one of them is a tie.
    config = load_config(REPOSITORY / "pipelines" / "us_counties_invariant_states.toml")
    released = []
    for _ in range(2):
        public = pipeline.run(config, tmp_path).public
        released.append(read(public)[0]["release"])
        shutil.rmtree(public)
    pd.testing.assert_frame_equal(*released)


def test_public_files_without_the_record_of_their_noise_are_not_touched(toy_run: Path) -> None:
    config = load_config(toy_run)
    public = pipeline.run(config).public
    (config.output_path / "internal" / "draw.json").unlink()
    before = contents(public)
    with pytest.raises(ConfigError, match=r"public exists, and the record of the noise behind it is not in .*--output"):
        pipeline.run(config)
    assert contents(public) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("epsilon = 1.0", "epsilon = 2.0"), ('"adults", ', ""), ("epsilon = 1.0", 'epsilon = 1.0\nunit = "household"')],
)
def test_a_changed_configuration_is_another_release(toy_run: Path, old: str, new: str) -> None:
    pipeline.run(load_config(toy_run))
    before = contents(toy_run.parent / "output")
    toy_run.write_text(RUN_TOML.replace(old, new))
    with pytest.raises(ConfigError, match=r"another configuration; .*another --output"):
        pipeline.run(load_config(toy_run))
    assert contents(toy_run.parent / "output") == before
    assert pipeline.run(load_config(toy_run), toy_run.parent / "other").already_there is False


def test_a_changed_input_is_another_release(toy_run: Path) -> None:
    pipeline.run(load_config(toy_run))
    before = contents(toy_run.parent / "output")
    table = toy_run.parent / "table.csv"
    table.write_text(table.read_text().replace(",20,", ",21,"))
    with pytest.raises(DataError, match=r"another input file; .*another --output"):
        pipeline.run(load_config(toy_run))
    assert contents(toy_run.parent / "output") == before


@pytest.mark.parametrize("writer", ["write_parquet", "write_csv", "write_json"])
def test_a_full_disk_leaves_no_half_release_and_no_second_noise(
    toy_run: Path, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(toy_run)

    def full(path: Path, *_: object, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(publication if writer == "write_json" else output_formats, writer, full)
        with pytest.raises(DataError, match=r"public: cannot be written: .*run again: the noise will be the same"):
            pipeline.run(config)
    assert [path.name for path in config.output_path.iterdir()] == ["internal"]
    code = measured(config.output_path / "internal")
    assert pipeline.run(config).already_there is False
    assert measured(config.output_path / "internal") == code
    assert sorted(path.name for path in (config.output_path / "public").iterdir()) == FILES


def test_the_public_directory_takes_its_name_in_one_step(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(toy_run)

    def refuse(self: Path, _: Path) -> None:
        assert sorted(path.name for path in self.iterdir()) == FILES
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(DataError, match="Input/output error"):
        pipeline.run(config)
    assert [path.name for path in config.output_path.iterdir()] == ["internal"]


def test_an_interrupted_run_leaves_no_half_release(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(toy_run)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publication, "write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(config)
    assert [path.name for path in config.output_path.iterdir()] == ["internal"]


@pytest.mark.parametrize("workers", [1, 2])
def test_disagreement_with_the_second_solution_releases_nothing(
    workers: int, toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(toy_run)
    with monkeypatch.context() as patch:
        second_solutions.let_them_differ(patch)
        patch.setattr(draw, "rehearse", lambda *_: None)
        with pytest.raises(
            ProjectionError, match=r"unbiased: the tree engine and .* differ by 1e\+06 on .*nothing was"
        ):
            pipeline.run(config, workers=workers)
    assert [path.name for path in config.output_path.iterdir()] == ["internal"]
    # Another solver is another check of the same release: it goes on with the same noise.
    code = measured(config.output_path / "internal")
    toy_run.write_text(RUN_TOML + '\n[projection]\nsolver = "CLARABEL"\n')
    public = pipeline.run(load_config(toy_run)).public
    assert measured(config.output_path / "internal") == code
    assert read(public)[1]["projections"]["unbiased"]["cross_check"]["solver"] == "CLARABEL"


def test_an_output_directory_whose_name_is_too_long_is_refused_in_words(toy_run: Path) -> None:
    config = load_config(toy_run)
    long = config.model_copy(update={"output": config.output.model_copy(update={"directory": "9" * 400})})
    with pytest.raises(ConfigError, match=r"cannot be a folder: File name too long; give another output.directory"):
        draw.check(long)


def test_an_output_directory_that_cannot_be_made_is_named(toy_run: Path) -> None:
    (toy_run.parent / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file: is no directory.*--output"):
        pipeline.run(load_config(toy_run), toy_run.parent / "file")


# -- options --------------------------------------------------------------------------------------------------------


def test_without_csv_and_without_a_second_solution(toy_run: Path) -> None:
    toy_run.write_text(RUN_TOML + "\n[output]\ncsv = false\n[projection]\ncross_check = false\n")
    public = pipeline.run(load_config(toy_run)).public
    assert sorted(path.name for path in public.iterdir()) == [name for name in FILES if name != "release.csv"]
    manifest = read(public)[1]
    assert "release.csv" not in manifest["files"]
    assert manifest["projections"]["unbiased"]["cross_check"] is None


def test_rows_can_be_chosen(toy_run: Path) -> None:
    with_where = RUN_TOML.replace('geoid = "county"', 'geoid = "county"\nwhere = { state = "01" }')
    toy_run.write_text(with_where)
    geography, counts = read_input(load_config(toy_run))
    assert geography.identifiers.to_pylist() == ["US", "01", "01001", "01003"]
    assert counts.values[0].tolist() == [30, 3]
    toy_run.write_text(with_where.replace('state = "01" }', 'state = "09" }'))
    with pytest.raises(DataError, match=r"no row has state = '09'; correct input.where"):
        read_input(load_config(toy_run))
    toy_run.write_text(with_where.replace("{ state =", "{ region ="))
    with pytest.raises(DataError, match="no column 'region'"):
        read_input(load_config(toy_run))
    by_levels = with_where.replace("widths = { state = 2, county = 5 }", 'levels = ["nation", "state", "county"]')
    toy_run.write_text(by_levels.replace("{ state =", "{ region ="))
    with pytest.raises(DataError, match=r"no column 'region', by which input.where chooses rows"):
        read_input(load_config(toy_run))


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        ("county = 5 }", "county = 4 }", DataError, "'01001' has 5 characters"),
        ('"adults"', '"seniors"', DataError, "no column 'seniors'; it has .*'adults'"),
        ("table.csv", "gone.csv", DataError, "gone.csv: .*[Nn]o such file"),
        ("county = 0.5 }", "tract = 0.5 }", BudgetError, "'tract', which the geography does not have"),
        (
            "[privacy]",
            '[projection]\nsolver = "OSPQ"\n[privacy]',
            ConfigError,
            "'OSPQ' is not installed; cvxpy has .*OSQP",
        ),
    ],
)
def test_check_finds_what_run_would(toy_run: Path, old: str, new: str, error: type[Exception], says: str) -> None:
    assert old in RUN_TOML
    toy_run.write_text(RUN_TOML.replace(old, new))
    config = load_config(toy_run)
    for job in (draw.check, pipeline.run):
        with pytest.raises(error, match=says):
            job(config)
        assert not (toy_run.parent / "output").exists()


def test_check_draws_and_writes_nothing(toy_run: Path, no_noise: None) -> None:
    before = sorted(toy_run.parent.rglob("*"))
    prepared = draw.check(load_config(toy_run))
    assert prepared.counts.geography.n_nodes == 6
    assert prepared.plan.share("county") == Fraction(1, 2)
    assert sorted(toy_run.parent.rglob("*")) == before


def test_laws_that_are_found_beforehand_change_nothing(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, public = load_config(toy_run), toy_run.parent / "output" / "public"
    pipeline.run(config)
    first = contents(public)
    shutil.rmtree(public)
    asked, is_begun, projected = [], threading.Event(), derivation.projected

    def laws(measurements: td.Measurements, output: Output) -> AnswerLaws | None:
        asked.append(output.confidence)
        is_begun.set()
        return laws_beforehand(measurements, output)

    def projected_meanwhile(*given: Any, **options: Any) -> Any:
        assert is_begun.wait(60)
        return projected(*given, **options)

    monkeypatch.setattr(derivation, "finds_laws_early", lambda _: True)
    monkeypatch.setattr(derivation, "laws_beforehand", laws)
    monkeypatch.setattr(derivation, "projected", projected_meanwhile)
    pipeline.run(config, workers=2)
    assert contents(public) == first
    assert asked == [0.9]


def test_laws_that_nobody_has_begun_to_find_are_found_when_they_are_wanted() -> None:
    tree = Tree.from_family_sizes([[3], [4, 1, 2]])
    there = geography(tree)
    counted = td.Counts(there, ("all",), tree.aggregate(np.arange(7))[:, None])
    plan = td.Plan(epsilon="1", shares={"level 0": "0.5", "level 1": "0.3", "level 2": "0.2"})
    measurements = td.measure(counted, plan, source=td.SeededSource(1))
    estimates = {"unbiased": td.project(measurements, "gls")}
    release = td.round_counts(td.project(measurements), source=td.SeededSource(2))
    waiting: Future[AnswerLaws | None] = Future()
    alone, found = (made_margins(measurements, estimates, release, Output(), laws=laws) for laws in (None, waiting))
    assert waiting.cancelled()
    assert found.margins is not None
    assert alone.margins is not None
    np.testing.assert_array_equal(found.margins.upper, alone.margins.upper)


def test_an_only_child_of_an_exact_unit_is_exact_however_large_the_noise(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("nation,state,county,adults,children\nUS,00,00000,3,4\n")
    (tmp_path / "run.toml").write_text(
        '[input]\npath = "table.csv"\ncells = ["adults", "children"]\n'
        '[geography]\nlevels = ["nation", "state", "county"]\n'
        '[privacy]\nmechanism = "laplace"\nepsilon = "1e-9"\ninvariants = ["nation", "state"]\n'
        "accept_no_protection = true\n"
    )
    public = pipeline.run(load_config(tmp_path / "run.toml"), tmp_path / "out", workers=1).public
    found = pd.read_parquet(public / "release.parquet")
    assert found["total_moe"].tolist() == [0.0] * 6
