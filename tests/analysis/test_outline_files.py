"""Outlines are read by the format that a file's name says: nothing in them opens other files or asks for pages."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import geopandas as gpd
import pytest
from shapely.geometry import box

import topdown as td
from topdown.analysis.export_formats import ExportOptions, export_release
from topdown.analysis.outlines import outlines_in
from topdown.config import load_config
from topdown.errors import DataError
from topdown.pipeline import run as pipeline

SQUARES = gpd.GeoDataFrame({"GEOID": ["01001", "01003"]}, geometry=[box(0, 0, 1, 1), box(1, 0, 2, 1)], crs="EPSG:4269")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """The address of a web server of this computer, and what it was asked."""
    seen: list[str] = []

    class Heard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.command} {self.path}")
            self.send_error(404)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Heard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


def vrt(source: str) -> str:
    layer = f'<OGRVRTLayer name="other"><SrcDataSource>{source}</SrcDataSource></OGRVRTLayer>'
    return f"<OGRVRTDataSource>{layer}</OGRVRTDataSource>"


def gdalg(source: str) -> str:
    steps = f"gdal vector pipeline ! read {source} ! write --output-format stream streamed_dataset"
    return json.dumps({"type": "gdal_streamed_alg", "command_line": steps})


LEADING: dict[str, Callable[[str, Path], str]] = {
    "a VRT of a page": lambda url, _: vrt(f"{url}/x.geojson"),
    "a VRT of a page as a file": lambda url, _: vrt(f"/vsicurl/{url}/x.geojson"),
    "a VRT of a file": lambda _, other: vrt(str(other)),
    "GDALG of a page": lambda url, _: gdalg(f"{url}/x.geojson"),
    "GDALG of a file": lambda _, other: gdalg(str(other)),
    "a WFS": lambda url, _: f"<OGRWFSDataSource><URL>{url}/wfs</URL></OGRWFSDataSource>",
    "a CSW": lambda url, _: f"<OGRCSWDataSource><URL>{url}/csw</URL></OGRCSWDataSource>",
    "an address": lambda url, _: f"{url}/x.geojson",
}


@pytest.mark.parametrize("suffix", [".geojson", ".json", ".gpkg", ".shp", ".parquet", ".vrt", ".gdalg.json"])
@pytest.mark.parametrize("what", LEADING)
def test_what_leads_elsewhere_is_refused_and_not_followed(
    asked: tuple[str, list[str]], tmp_path: Path, what: str, suffix: str
) -> None:
    url, seen = asked
    SQUARES.to_file(other := tmp_path / "other.geojson")
    given = tmp_path / f"given{suffix}"
    given.write_text(LEADING[what](url, other))
    with pytest.raises(DataError, match=r"outlines|format that its name says"):
        outlines_in(given)
    assert not seen


def test_the_command_follows_nothing_and_leaves_nothing(
    asked: tuple[str, list[str]], toy_run: Path, tmp_path: Path
) -> None:
    url, seen = asked
    public = pipeline.run(load_config(toy_run)).public
    (tmp_path / "map.geojson").write_text(vrt(f"{url}/x.geojson"))
    with pytest.raises(DataError, match=r"map\.geojson: geometry cannot be read as outlines"):
        export_release(public, "geoparquet", tmp_path / "geo", ExportOptions(geometry=tmp_path / "map.geojson"))
    assert not seen
    assert not (tmp_path / "geo").exists()
    assert td.read_release(public).geography.n_leaves == 3


@pytest.mark.parametrize("suffix", [".geojson", ".gpkg", ".shp", ".parquet"])
def test_a_file_is_read_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    (made := tmp_path / "made").mkdir()
    SQUARES.to_parquet(made / "units.parquet") if suffix == ".parquet" else SQUARES.to_file(made / f"units{suffix}")
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "zip:", "http:", "a!b", "a;b", "GPKG:x", "vsicurl", "x.zip", "a?b#c"):
        shutil.copytree(made, name)
        path = Path(name) / f"units{suffix}"
        if set("!;") & set(name) and suffix in (".gpkg", ".shp"):
            with pytest.raises(DataError, match=r"GDAL gives .* in a path a special meaning; rename the file"):
                outlines_in(path)
            continue
        found = outlines_in(path)
        assert found["GEOID"].tolist() == ["01001", "01003"]
        assert found.geometry.bounds.to_numpy().tolist() == [[0, 0, 1, 1], [1, 0, 2, 1]]
        assert found.crs == "EPSG:4269"


@pytest.mark.parametrize("suffix", [".geojson", ".gpkg", ".shp", ".parquet", ".dbf"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    SQUARES.to_file(tmp_path / "units.shp")
    path = tmp_path / f"units{suffix}"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(DataError, match=r"pipe or a device|beside it has its name and is no file"):
        outlines_in(tmp_path / "units.shp" if suffix == ".dbf" else path)


def test_ids_and_text_of_geojson_are_its_properties_and_other_values_are_none(toy_run: Path, tmp_path: Path) -> None:
    public = pipeline.run(load_config(toy_run)).public
    document = json.loads(SQUARES.to_json())
    first, second = document["features"]
    document["features"] = [
        {**first, "id": "01001", "properties": {"GEOID": ["01001"], "other": {"a": 1}}},
        {**second, "id": "01003", "properties": None},
        {"type": "Feature", "id": "02001", "geometry": None},
    ]
    document.pop("crs", None)
    (tmp_path / "map.json").write_text(json.dumps(document), encoding="utf-8-sig")
    export_release(public, "geoparquet", tmp_path / "geo", ExportOptions(geometry=tmp_path / "map.json"))
    found = gpd.read_parquet(tmp_path / "geo" / "release.parquet")
    assert found["geoid"].tolist() == ["01001", "01003"]  # the third has no outline
    assert found.geometry.notna().all()
    assert found.crs == "EPSG:4326"


@pytest.mark.parametrize(
    "document",
    ["[]", "{}", '{"features": 1}', '{"features": [1]}', '{"features": []}', '{"crs": 1, "features": []}', "[" * 99_999,
     '{"features": [{"geometry": {"type": "Polygon", "coordinates": 1}}]}',
     '{"features": [{"geometry": {"type": "?", "coordinates": []}}]}',
     '{"crs": {"properties": {"name": "/etc/passwd"}}, "features": [{"geometry": null}]}',
     '{"crs": {"properties": {"name": "EPSG:999999"}}, "features": [{"geometry": null}]}'],
)  # fmt: skip
def test_json_that_is_no_outlines_is_refused_in_words(tmp_path: Path, document: str) -> None:
    (tmp_path / "map.geojson").write_text(document)
    with pytest.raises(DataError, match="outlines"):
        outlines_in(tmp_path / "map.geojson")


def test_a_database_that_is_no_package_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.gpkg") as database:
        database.execute("CREATE TABLE t (GEOID TEXT)")
    with pytest.raises(DataError, match="not of the format that its name says"):
        outlines_in(tmp_path / "x.gpkg")
