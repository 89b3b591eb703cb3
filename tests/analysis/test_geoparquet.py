"""A release with outlines: GeoParquet that geopandas reads, by the GEOIDs of whatever column holds them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from shapely.geometry import Polygon, box

import topdown as td
from support.places import Command
from topdown.analysis.geoparquet import write_geoparquet
from topdown.config import load_config
from topdown.errors import ConfigError, DataError
from topdown.pipeline import run as pipeline
from topdown.release.manifest import SCHEMA_VERSION


@pytest.fixture
def public(toy_run: Path) -> Path:
    return pipeline.run(load_config(toy_run)).public


@pytest.fixture
def outlines() -> gpd.GeoDataFrame:
    """Two of the three counties, one state, and a unit of another geography."""
    codes = ["01001", "02001", "01", "99999"]
    return gpd.GeoDataFrame(
        {"NAME": ["a", "b", "c", "d"], "GEOID": codes},
        geometry=[box(k, 0, k + 1, 1) for k in range(4)],
        crs="EPSG:4269",
    )


@pytest.mark.parametrize("kind", ["geojson", "gpkg", "parquet"])
def test_counts_and_outlines_meet_by_geoid(
    public: Path, outlines: gpd.GeoDataFrame, tmp_path: Path, topdown: Command, kind: str
) -> None:
    path = tmp_path / f"outlines.{kind}"
    outlines.to_parquet(path) if kind == "parquet" else outlines.to_file(path)
    done = topdown("export", public, "--format", "geoparquet", "--geometry", path, "-o", tmp_path / "geo")
    assert (done.returncode, done.stderr) == (0, "")
    found = gpd.read_parquet(tmp_path / "geo" / "release.parquet")
    assert found["geoid"].tolist() == ["01", "01001", "02001"]
    assert found.crs == outlines.crs
    columns = found.columns.tolist()
    assert columns[:7] == ["geoid", "level", "parent", "name", "adults", "children", "total"]
    assert columns[7:12] == [f"adults_{end}" for end in ("lower", "upper", "moe", "cv", "reliability")]
    assert (len(columns), columns[-1]) == (23, "geometry")
    wide = td.read_release(public).wide().set_index("geoid")
    assert found["adults"].tolist() == wide.loc[found["geoid"], "adults"].tolist()
    assert found.geometry.iloc[2].bounds == (1.0, 0.0, 2.0, 1.0)
    marks = pq.read_schema(tmp_path / "geo" / "release.parquet").metadata
    assert marks[b"schema version"] == SCHEMA_VERSION.encode()
    assert json.loads(marks[b"geo"])["columns"]["geometry"]["encoding"] == "WKB"


def test_a_query_is_written_for_every_level(public: Path, outlines: gpd.GeoDataFrame, tmp_path: Path) -> None:
    outlines.to_file(tmp_path / "outlines.geojson")
    release = td.read_release(public)
    path = write_geoparquet(release, tmp_path / "out.parquet", tmp_path / "outlines.geojson", query="total")
    found = gpd.read_parquet(path)
    margins = [f"total_{end}" for end in ("lower", "upper", "moe", "cv", "reliability")]
    assert found.columns.tolist() == ["geoid", "level", "parent", "name", "total", *margins, "geometry"]
    assert found["parent"].tolist() == ["US", "01", "02"]
    assert found["total"].tolist() == release.wide().set_index("geoid").loc[found["geoid"], "total"].tolist()


def test_outlines_that_cannot_be_meant_are_refused(public: Path, outlines: gpd.GeoDataFrame, tmp_path: Path) -> None:
    release = td.read_release(public)

    def refused(words: str, name: str) -> None:
        with pytest.raises(DataError, match=words):
            write_geoparquet(release, tmp_path / "out.parquet", tmp_path / name)
        assert not (tmp_path / "out.parquet").exists()

    outlines.assign(GEOID=outlines["GEOID"].str.lstrip("0")).iloc[:3].to_file(tmp_path / "zeros.geojson")
    refused("no outline has the GEOID of a unit among its properties.*leading zeros", "zeros.geojson")
    pd.concat([outlines, outlines.iloc[:1]]).to_file(tmp_path / "twice.geojson")
    refused("two outlines of county '01001'", "twice.geojson")
    outlines.set_geometry([None] * 4, crs=outlines.crs).to_parquet(tmp_path / "none.parquet")
    refused("none.parquet: no unit has an outline", "none.parquet")
    endless = Polygon([(0, 0), (np.inf, 0), (1, 1)])
    outlines.set_geometry([endless, *outlines.geometry[1:]], crs=outlines.crs).to_parquet(tmp_path / "endless.parquet")
    refused("the outline of county '01001' has a point that is not finite", "endless.parquet")

    far = outlines.set_geometry(outlines.geometry.scale(1e5, 1e5)).set_crs(None, allow_override=True)
    far.to_parquet(tmp_path / "far.parquet")
    refused("far.parquet: the outline of county '01001' .* no degrees; give outlines in degrees", "far.parquet")
    far.to_file(tmp_path / "far.geojson")
    refused("far.geojson: the outline of county '01001' .* no degrees; give outlines in degrees", "far.geojson")
    document = json.loads(outlines.to_json())
    document["features"][0]["geometry"]["coordinates"][0][1][0] = float("nan")
    (tmp_path / "nan.geojson").write_text(json.dumps(document))
    refused("nan.geojson: geometry: feature 1 has coordinates that are none", "nan.geojson")

    refused("no such file", "nothing.geojson")
    (tmp_path / "damaged.geojson").write_text("{")
    refused("cannot be read as outlines", "damaged.geojson")
    pd.DataFrame({"GEOID": ["01"]}).to_parquet(tmp_path / "plain.parquet")
    refused("cannot be read as outlines", "plain.parquet")


def test_outlines_in_metres_are_written_where_the_file_says_their_system(
    public: Path, outlines: gpd.GeoDataFrame, tmp_path: Path
) -> None:
    outlines.to_crs(3857).to_file(tmp_path / "metres.gpkg")
    write_geoparquet(td.read_release(public), tmp_path / "out.parquet", tmp_path / "metres.gpkg")
    assert gpd.read_parquet(tmp_path / "out.parquet").crs == "EPSG:3857"


def test_units_without_an_outline_are_left_out(public: Path, outlines: gpd.GeoDataFrame, tmp_path: Path) -> None:
    some = outlines.set_geometry([outlines.geometry[0], None, Polygon(), outlines.geometry[3]], crs=outlines.crs)
    some.to_parquet(tmp_path / "some.parquet")
    write_geoparquet(td.read_release(public), tmp_path / "out.parquet", tmp_path / "some.parquet")
    assert gpd.read_parquet(tmp_path / "out.parquet")["geoid"].tolist() == ["01001"]


def test_without_geopandas_the_extra_is_named(public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = td.read_release(public)
    monkeypatch.setitem(sys.modules, "geopandas", None)
    with pytest.raises(ConfigError, match=r"install it with pip install topdown\[geometry\]"):
        write_geoparquet(found, tmp_path / "out.parquet", tmp_path / "outlines.geojson")


def test_the_command_asks_for_outlines(public: Path, tmp_path: Path, topdown: Command) -> None:
    done = topdown("export", public, "--format", "geoparquet", "-o", tmp_path / "geo")
    assert done.returncode == 2
    assert "needs outlines; name a file of them: --geometry" in done.stderr
