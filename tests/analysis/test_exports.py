"""[output] exports: other people's forms after a run, refused before anything is drawn where they cannot be made."""

from __future__ import annotations

import json
from pathlib import Path

import geopandas as gpd
import pytest
from shapely.geometry import box

import topdown as td
from support.parted import AtOnce, place_of_the_same_noise
from support.places import RUN_TOML, Command
from support.redistricting import UNITS_TOML, histograms, released
from topdown.config import load_config, load_project
from topdown.errors import ConfigError, DataError, TopdownError
from topdown.pipeline import draw
from topdown.pipeline import project_measurements as projecting
from topdown.pipeline import run as pipeline
from topdown.release import read
from topdown.workload.redistricting import PERSONS

BLOCKS = ("440070001011000", "440070001011001", "440090001001000")


def of_units(folder: Path, exports: list[str], options: str = "") -> Path:
    """The file of a release of housing units with these exports."""
    rows = "".join(f"{block},{k},{40 + k}\n" for k, block in enumerate(BLOCKS))
    (folder / "table.csv").write_text("block,vacant,occupied\n" + rows)
    (folder / "run.toml").write_text(f"{UNITS_TOML}\n[output]\nexports = {json.dumps(exports)}\n{options}")
    return folder / "run.toml"


def outlines(folder: Path, codes: tuple[str, ...] = BLOCKS) -> Path:
    shapes = [box(k, 0, k + 1, 1) for k in range(len(codes))]
    gpd.GeoDataFrame({"GEOID": list(codes)}, geometry=shapes, crs="EPSG:4269").to_file(folder / "blocks.geojson")
    return folder / "blocks.geojson"


def test_a_run_writes_the_forms_that_its_file_asks_for(tmp_path: Path, topdown: Command) -> None:
    outlines(tmp_path)
    told = '\n[exports]\ngeometry = "blocks.geojson"\nquery = "h1"\n'
    file = of_units(tmp_path, ["nmf", "ppmf", "geoparquet"], told)
    done = topdown("run", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "(nmf, ppmf, geoparquet: " in done.stdout
    exports, public = tmp_path / "output" / "exports", tmp_path / "output" / "public"
    released = td.read_release(public)
    found = td.read_noisy_measurements(exports / "nmf", "pl94-units", "44").measurements
    assert (found["block", "detailed"].values == released.measurements["block", "detailed"].values).all()
    counts = td.read_ppmf(exports / "ppmf" / "2020_ppmf_unit_ri.csv", released.geography)
    expected = released.table("block", "detailed")[["vacant", "occupied"]].to_numpy()
    assert (counts.values[counts.geography.level_slice("block")] == expected).all()
    frame = gpd.read_parquet(exports / "geoparquet" / "release.parquet")
    assert frame[["vacant", "occupied"]].to_numpy().tolist() == expected.tolist()

    before = {path: path.stat().st_mtime_ns for path in exports.rglob("*")}
    done = topdown("run", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "exports holds these exports already, complete; nothing was written" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in exports.rglob("*")} == before


def test_the_same_release_takes_other_exports_once_the_first_are_away(tmp_path: Path) -> None:
    public = pipeline.run(load_config(of_units(tmp_path, ["ppmf"]))).public
    manifest = (public / "manifest.json").read_bytes()
    config = load_config(of_units(tmp_path, ["nmf"]))
    with pytest.raises(ConfigError, match=r"exports holds other exports than output.exports and .* ask for; move"):
        pipeline.run(config)
    (tmp_path / "output" / "exports").rename(tmp_path / "away")
    assert pipeline.run(config).already_there
    assert (public / "manifest.json").read_bytes() == manifest
    assert [path.name for path in (tmp_path / "output" / "exports").iterdir() if path.is_dir()] == ["nmf"]


def test_an_export_that_was_changed_is_named(tmp_path: Path) -> None:
    config = load_config(of_units(tmp_path, ["ppmf"]))
    pipeline.run(config)
    (tmp_path / "output" / "exports" / "ppmf" / "2020_ppmf_unit_ri.csv").write_text("")
    with pytest.raises(DataError, match=r"2020_ppmf_unit_ri.csv is not the file that was written; move .* away"):
        pipeline.run(config)


def test_another_projection_is_exported_too(tmp_path: Path) -> None:
    pipeline.run(load_config(of_units(tmp_path, [])))
    (tmp_path / "again.toml").write_text(
        '[measurements]\npath = "output/public"\n[projection]\ncross_check = false\n'
        '[output]\ndirectory = "again"\nexports = ["ppmf"]\n'
    )
    config = load_project(tmp_path / "again.toml")
    projecting.project_measurements(config)
    assert (tmp_path / "again" / "exports" / "ppmf" / "2020_ppmf_unit_ri.csv").is_file()
    assert projecting.project_measurements(config).already_there


REFUSED: dict[str, tuple[list[str], str, str]] = {
    "an unknown form": (["ppmd"], "", "unknown form in output.exports: 'ppmd'.*did you mean 'ppmf'"),
    "a form twice": (["ppmf", "ppmf"], "", "output.exports names 'ppmf' twice"),
    "an option of a form that is not asked for": (
        ["ppmf"], '[exports]\nheader = "table.csv"', "exports.header is for 'pl94', and output.exports has none",
    ),
    "a file that is not there": (
        ["geoparquet"], '[exports]\ngeometry = "no.geojson"', "exports.geometry = .*no.geojson: no such file or folder",
    ),
    "no outlines": (["geoparquet"], "", "output.exports, geoparquet: a map needs outlines"),
    "outlines of nobody": (
        ["geoparquet"], '[exports]\ngeometry = "blocks.geojson"',
        "output.exports, geoparquet: .*no outline has the GEOID of a unit among its properties",
    ),
    "an unknown query": (
        ["geoparquet"], '[exports]\ngeometry = "blocks.geojson"\nquery = "h2"', "geoparquet: unknown part of",
    ),
    "records of another kind": (["pl94"], "", "output.exports, pl94: the release's attributes are 'h1'"),
    "units of the same records": (
        ["ppmf"], '[exports]\nunits = "earlier/public"', "output.exports, ppmf: both releases are of the same records",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    pipeline.run(load_config(of_units(folder, [])))
    return folder / "output"


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_refused_before_anything_is_drawn(tmp_path: Path, earlier: Path, case: str) -> None:
    exports, options, said = REFUSED[case]
    outlines(tmp_path, ("999",))
    (tmp_path / "earlier").symlink_to(earlier)
    config = load_config(of_units(tmp_path, exports, options))
    for job in (pipeline.run, draw.check):
        with pytest.raises(TopdownError, match=said) as caught:
            job(config)
        assert caught.value.exit_code == (3 if case == "outlines of nobody" else 2)
        assert "\n" not in str(caught.value)
    left = [path.name for path in (tmp_path / "output").rglob("*")] if (tmp_path / "output").exists() else []
    assert not {"public", "exports", "measurements.parquet"} & set(left)


def test_exports_of_another_release_are_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "output" / "exports").mkdir(parents=True)
    (tmp_path / "output" / "exports" / "made.json").write_text("{}")
    with pytest.raises(ConfigError, match="exports exists already, for another release; move it away"):
        pipeline.run(load_config(of_units(tmp_path, ["ppmf"])))
    assert [path.name for path in (tmp_path / "output").iterdir()] == ["exports"]


def test_units_that_a_form_has_no_place_for_are_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    text = RUN_TOML.replace('["adults", "children"]', '["vacant", "occupied"]')
    (tmp_path / "table.csv").write_text("county,vacant,occupied\n01001,3,40\n02001,5,90\n")
    (tmp_path / "run.toml").write_text(
        text + '\n[schema]\nh1 = ["vacant", "occupied"]\n[output]\nexports = ["nmf", "ppmf"]\n'
    )
    with pytest.raises(DataError, match=r"output.exports, ppmf: county '01001': blocks of this file have codes"):
        pipeline.run(load_config(tmp_path / "run.toml"))
    assert not (tmp_path / "output" / "public").exists()


def test_exports_do_not_make_another_release(tmp_path: Path) -> None:
    without, asked = (load_config(of_units(tmp_path, exports)).fingerprint() for exports in ([], ["ppmf"]))
    assert without == asked


OF_PERSONS = """
[input]
path = "file"
rows = "pl94"

[privacy]
mechanism = "discrete-gaussian"
rho = 4
[privacy.shares]
state = { total = "1/5" }
county = { hhgq = "1/5" }
tract = { detailed = "1/5" }
"block group" = { detailed = "1/5" }
block = { detailed = "1/5" }

[projection]
cross_check = false

[output]
exports = ["pl94", "ppmf", "geoparquet"]

[exports]
geometry = "blocks.geojson"
query = "P1"
"""


@pytest.mark.system
def test_the_forms_of_a_release_in_parts_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    td.write_pl94(released(PERSONS, histograms(PERSONS, 0.05)), tmp_path / "file")
    outlines(tmp_path)
    (tmp_path / "run.toml").write_text(OF_PERSONS.replace('"geoparquet"]', '"geoparquet", "nmf"]'))
    config = load_config(tmp_path / "run.toml")
    pipeline.run(config, tmp_path / "whole")
    monkeypatch.setattr(read, "_MOST_HELD", 100)  # measurements stay in their file
    there = place_of_the_same_noise(tmp_path, tmp_path / "whole", "parts")
    made = pipeline.run(config, there, part_size=2, executor=AtOnce()).public
    assert (made / "measurements.parquet").read_bytes() == (
        tmp_path / "whole" / "public" / "measurements.parquet"
    ).read_bytes()
    found, expected = (
        {path.relative_to(of).as_posix(): path.read_bytes() for path in of.rglob("*") if path.is_file()}
        for of in (there / "exports", tmp_path / "whole" / "exports")
    )
    assert {name.split("/")[0] for name in expected} == {"pl94", "ppmf", "geoparquet", "nmf", "made.json"}
    del found["made.json"], expected["made.json"]  # of which release they are
    assert found == expected
