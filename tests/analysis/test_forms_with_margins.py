"""Forms of export that state margins of error: the American Community Survey's columns, SDMX, workbooks, maps."""

from __future__ import annotations

import json
from pathlib import Path

import geopandas as gpd
import numpy as np
import openpyxl
import pandas as pd
import pytest
import sdmx
from shapely.geometry import box

import topdown as td
from support.parted import AtOnce
from support.places import RUN_TOML, SEVERAL_TOML, Command
from topdown.analysis.export_formats import ExportOptions, export_release
from topdown.config import load_config
from topdown.errors import ConfigError, DataError, TopdownError
from topdown.pipeline import run as pipeline
from topdown.pipeline.parts import part_plan

SEVERAL = SEVERAL_TOML + '[output]\ntables = ["age"]\n'
PERIOD = '[catalogue]\npublisher = "Office of Counts"\nperiod = "2020"\n'


@pytest.fixture(params=["cells alone", "several queries"])
def public(request: pytest.FixtureRequest, toy_run: Path) -> Path:
    text = RUN_TOML if request.param == "cells alone" else SEVERAL
    toy_run.write_text(text + PERIOD)
    return pipeline.run(load_config(toy_run)).public


def expected(public: Path, confidence: float = 0.9) -> pd.DataFrame:
    """Released counts and intervals by GEOID and cell, from the measurements."""
    found = td.read_release(public)
    queries = ["detailed" if not found.measurements.others else "age", "total"]
    margins = td.margins(found.measurements, found.release, confidence=confidence, queries=queries)
    margins = margins.set_index(["geoid", "cell"])[["sd", "lower", "upper"]]
    counts = found.wide().melt(["geoid", "level", "parent", "name"], var_name="cell")
    return margins.join(counts.set_index(["geoid", "cell"])[["value"]])


def test_the_survey_s_columns_hold_every_interval(public: Path, tmp_path: Path) -> None:
    export_release(public, "acs", tmp_path / "acs")
    long = pd.read_csv(tmp_path / "acs" / "acs.csv", dtype={"GEOID": str})
    assert list(long) == ["GEOID", "NAME", "variable", "estimate", "moe"]
    want = expected(public)
    assert len(long) == len(want) == 18
    mine = want.loc[pd.MultiIndex.from_frame(long[["GEOID", "variable"]])]
    assert long["estimate"].tolist() == mine["value"].tolist()
    assert (long["estimate"] - long["moe"]).to_numpy() == pytest.approx(
        np.minimum(mine["lower"], 2 * mine["value"] - mine["upper"]).to_numpy()
    )
    wide = pd.read_csv(tmp_path / "acs" / "acs_wide.csv", dtype={"GEOID": str}).set_index("GEOID")
    assert list(wide) == ["NAME", *(f"{one}{end}" for one in long["variable"].unique() for end in "EM")]
    for row in long.itertuples():
        assert (wide.loc[row.GEOID, f"{row.variable}E"], wide.loc[row.GEOID, f"{row.variable}M"]) == row[4:6]


def test_the_style_is_written_after_a_run_at_90_percent(toy_run: Path, topdown: Command) -> None:
    toy_run.write_text(RUN_TOML + '[output]\nstyle = "acs"\nconfidence = 0.99\n')
    done = topdown("run", toy_run)
    assert (done.returncode, done.stderr) == (0, "")
    assert "note      acs: moe is the distance from estimate" in done.stdout
    output = toy_run.parent / "output"
    long = pd.read_csv(output / "exports" / "acs" / "acs.csv", dtype={"GEOID": str})
    want = expected(output / "public", 0.9).loc[pd.MultiIndex.from_frame(long[["GEOID", "variable"]])]
    reach = np.maximum(want["upper"] - want["value"], want["value"] - want["lower"])
    assert long["moe"].tolist() == reach.tolist()


def test_without_margins_the_style_is_refused_before_anything_is_drawn(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_run.write_text(RUN_TOML + '[output]\nstyle = "acs"\n[noise]\nbounds = "truncated"\n')
    with pytest.raises(ConfigError, match=r"output.exports, acs: it states margins of error, and there are none"):
        pipeline.run(load_config(toy_run))
    assert not (toy_run.parent / "output" / "public").exists()
    toy_run.write_text(SEVERAL.replace("[output]", '[output]\nstyle = "acs"'))
    with monkeypatch.context() as patch:
        patch.setattr(part_plan, "LARGEST_KEPT", 1)  # so that the lowest level's measurements are not kept
        with pytest.raises(
            ConfigError, match=r"does not keep the measurements of 'state', 'county', and output\.exports asks for them"
        ):
            pipeline.run(load_config(toy_run), few := toy_run.parent / "few", part_size=1, executor=AtOnce())
    assert not (few / "public").exists()
    pipeline.run(load_config(toy_run), all_kept := toy_run.parent / "parts", part_size=1, executor=AtOnce())
    written = pd.read_csv(all_kept / "exports" / "acs" / "acs.csv", dtype={"GEOID": str})
    assert written["moe"].notna().all()


def test_other_forms_of_a_release_without_margins_have_counts_alone(toy_run: Path, tmp_path: Path) -> None:
    toy_run.write_text(RUN_TOML + '[noise]\nbounds = "truncated"\n')
    public = pipeline.run(load_config(toy_run)).public
    export_release(public, "xlsx", tmp_path / "book")
    about, numbers = openpyxl.load_workbook(tmp_path / "book" / "release.xlsx").worksheets
    assert [one.value for one in numbers[1]] == [*td.read_release(public).wide()]
    assert ("margins of error", "none: level 'nation' has bounded noise") in [
        (row[0].value, row[1].value[:38]) for row in about.rows
    ]
    with pytest.raises(ConfigError, match="this release has none: level 'nation' has bounded noise"):
        export_release(public, "acs", tmp_path / "acs")
    assert not (tmp_path / "acs").exists()


def test_sdmx_is_read_by_its_library_with_every_number(public: Path, tmp_path: Path) -> None:
    export_release(public, "sdmx", tmp_path / "sdmx")
    structure = sdmx.read_sdmx(tmp_path / "sdmx" / "structure.xml")
    flow = structure.dataflow["RELEASE"]
    assert [one.id for one in flow.structure.dimensions] == ["REF_AREA", "INDICATOR", "TIME_PERIOD"]
    areas = structure.codelist["CL_AREA"]
    assert {code.id: getattr(code.parent, "id", None) for code in areas} == {
        "US": "CL_AREA", "01": "US", "02": "US", "01001": "01", "01003": "01", "02001": "02"
    }  # fmt: skip
    message = sdmx.read_sdmx(tmp_path / "sdmx" / "data.csv", structure=flow)
    found = sdmx.to_pandas(message.data[0], attributes="o").reset_index()
    want = expected(public).loc[pd.MultiIndex.from_frame(found[["REF_AREA", "INDICATOR"]])]
    assert found["value"].astype(int).tolist() == want["value"].tolist()
    for name in ("LOWER", "UPPER"):
        assert found[name].map(lambda one: float(str(one))).tolist() == want[name.lower()].tolist()
    assert set(found["TIME_PERIOD"]) == {"2020"}


def test_codes_that_sdmx_has_no_place_for_are_refused_before_anything_is_drawn(
    tmp_path: Path, frame: pd.DataFrame
) -> None:
    frame.assign(county=["01 001", "01003", "02001"]).to_csv(tmp_path / "table.csv", index=False)
    text = RUN_TOML.replace('geoid = "county"\n', "").replace(
        "widths = { state = 2, county = 5 }", 'levels = ["nation", "state", "county"]'
    )
    (tmp_path / "run.toml").write_text(text + '[output]\nexports = ["sdmx"]\n')
    with pytest.raises(DataError, match=r"output.exports, sdmx: unit '01 001' cannot be a code in SDMX"):
        pipeline.run(load_config(tmp_path / "run.toml"))
    assert not (tmp_path / "output" / "public").exists()


def test_a_workbook_has_codes_and_formulas_as_text(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.assign(title=["=1+1", "b", "c"]).to_csv(tmp_path / "table.csv", index=False)
    text = RUN_TOML.replace("[geography]", '[geography]\nnames = "title"').replace('"toy"', '"=HYPERLINK(1)"')
    (tmp_path / "run.toml").write_text(text)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    export_release(public, "xlsx", tmp_path / "book")
    about, numbers = openpyxl.load_workbook(tmp_path / "book" / "release.xlsx").worksheets
    rows = [[one.value for one in row] for row in numbers.rows]
    assert rows[0][:8] == ["geoid", "level", "parent", "name", "adults", "children", "total", "adults_lower"]
    assert rows[4][:4] == ["01001", "county", "01", "=1+1"]
    assert {one.data_type for sheet in (about, numbers) for row in sheet.rows for one in row} == {"s", "n"}
    want = expected(public)
    for row in (dict(zip(rows[0], row, strict=True)) for row in rows[1:]):
        for cell in ("adults", "children", "total"):
            mine = want.loc[(row["geoid"], cell)]
            assert [row[f"{cell}{end}"] for end in ("", "_lower", "_upper")] == mine[
                ["value", "lower", "upper"]
            ].tolist()
            cv = round(mine["sd"] / mine["value"], 4) if mine["value"] else None
            assert row[f"{cell}_cv"] == cv


def test_names_that_would_make_two_columns_of_one_name_are_refused(tmp_path: Path, frame: pd.DataFrame) -> None:
    for cell, form, words in (
        ("adults_cv", "xlsx", "'adults' has the same name as another column"),
        ("NAM", "acs", "column 'NAM' would be called NAME"),
    ):
        frame.rename(columns={"children": cell}).to_csv(tmp_path / "table.csv", index=False)
        text = RUN_TOML.replace('"children"', f'"{cell}"') + f'[output]\nexports = ["{form}"]\n'
        (tmp_path / "run.toml").write_text(text)
        with pytest.raises(TopdownError, match=words):
            pipeline.run(load_config(tmp_path / "run.toml"))
        assert not (tmp_path / "output" / "public").exists()


@pytest.mark.parametrize("form", ["acs", "sdmx", "xlsx", "geoparquet"])
def test_columns_of_tables_that_would_be_called_alike_are_refused_before_anything_is_drawn(
    tmp_path: Path, frame: pd.DataFrame, form: str
) -> None:
    frame.to_csv(tmp_path / "table.csv", index=False)
    gpd.GeoDataFrame({"GEOID": ["01001"]}, geometry=[box(0, 0, 1, 1)], crs=4326).to_file(tmp_path / "o.geojson")
    recodes = "".join(f'[recodes.age.{name}]\nall = ["adults", "children"]\n' for name in "xy")
    text = RUN_TOML + f'[schema]\nage = ["adults", "children"]\n{recodes}[output]\ntables = ["x", "y"]\n'
    outlines = '[exports]\ngeometry = "o.geojson"\n' if form == "geoparquet" else ""
    (tmp_path / "run.toml").write_text(f'{text}exports = ["{form}"]\n{outlines}')
    with pytest.raises(ConfigError, match=f"output.exports, {form}: cell 'all' has the same name as another column"):
        pipeline.run(load_config(tmp_path / "run.toml"))
    assert not (tmp_path / "output" / "public").exists()


@pytest.mark.parametrize(
    ("form", "cell"),
    [("geoparquet", "geometry"), ("gpkg", "geometry"), ("gpkg", "fid"), ("gpkg", "Adults"), ("gpkg", "GEOID")],
)
def test_cells_that_are_called_as_columns_of_a_map_are_refused(
    tmp_path: Path, frame: pd.DataFrame, form: str, cell: str
) -> None:
    frame.rename(columns={"children": cell}).to_csv(tmp_path / "table.csv", index=False)
    gpd.GeoDataFrame({"GEOID": ["01001"]}, geometry=[box(0, 0, 1, 1)], crs=4326).to_file(tmp_path / "o.geojson")
    text, said = RUN_TOML.replace('"children"', f'"{cell}"'), f"cell '{cell}' has the same name as another column of"
    asked = f'[output]\nexports = ["{form}"]\n[exports]\ngeometry = "o.geojson"\n'
    (tmp_path / "run.toml").write_text(text + asked)
    with pytest.raises(ConfigError, match=f"output.exports, {form}: {said}"):
        pipeline.run(load_config(tmp_path / "run.toml"))
    assert not (tmp_path / "output").exists()
    (tmp_path / "run.toml").write_text(text)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    with pytest.raises(ConfigError, match=said):
        export_release(public, form, tmp_path / "map", ExportOptions(geometry=tmp_path / "o.geojson"))
    assert not (tmp_path / "map").exists()


@pytest.mark.parametrize("form", ["geoparquet", "gpkg"])
def test_maps_have_margins_and_classes(public: Path, tmp_path: Path, form: str) -> None:
    shapes = gpd.GeoDataFrame({"GEOID": ["01001", "02"]}, geometry=[box(k, 0, k + 1, 1) for k in range(2)], crs=4326)
    shapes.to_file(tmp_path / "o.geojson")
    (path,) = export_release(public, form, tmp_path / "map", ExportOptions(geometry=tmp_path / "o.geojson")).files
    found = gpd.read_parquet(path) if form == "geoparquet" else gpd.read_file(path, layer="release")
    want = expected(public)
    assert found["geoid"].tolist() == ["02", "01001"]
    assert found.geometry.iloc[1].bounds == (0, 0, 1, 1)
    assert found.crs.to_epsg() == 4326
    for row in found.to_dict("records"):
        mine = want.loc[(row["geoid"], "total")]
        assert [row["total"], row["total_lower"], row["total_upper"]] == mine[["value", "lower", "upper"]].tolist()
        cv = mine["sd"] / mine["value"] if mine["value"] else np.inf
        assert row["total_reliability"] == ("high" if cv <= 0.12 else "medium" if cv <= 0.4 else "low")


def test_the_record_of_exports_knows_the_style(toy_run: Path) -> None:
    toy_run.write_text(RUN_TOML + '[output]\nstyle = "acs"\nexports = ["xlsx"]\n')
    config = load_config(toy_run)
    pipeline.run(config)
    made = json.loads((toy_run.parent / "output" / "exports" / "made.json").read_text(encoding="utf-8"))
    assert made["formats"] == ["acs", "xlsx"]
    assert pipeline.run(config).already_there
