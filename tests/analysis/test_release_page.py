"""The page of a release: its numbers beside `td.region`, in a browser; names that would be code; what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
import secrets
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from shapely.geometry import box

import topdown as td
from support.browser import browsed, data_of, in_a_browser, told
from support.parted import AtOnce, made, place_of_the_same_noise
from support.places import REPOSITORY, RUN_TOML, SEVERAL_TOML, Command
from topdown.analysis.page import page_numbers
from topdown.analysis.page.release_page import PageOptions, write_page
from topdown.analysis.release_query import query_release
from topdown.config import load_config
from topdown.errors import ConfigError, DataError
from topdown.pages.shell import with_policy
from topdown.pipeline.parts import part_plan
from topdown.pipeline.run import run
from topdown.studies.followed import Followed
from topdown.tables.count_reliability import reliability_of

HOSTILE = "</script>&<img src=x onerror=document.title='run'>"
NAMES = {
    "10": HOSTILE, "10001": "Ålesund, Møre", "10003": "=2+3", "10005": "東京都", "11001": 'O"Brien, "the" County',
    "11003": "<!--<script>", "11005": "a\nb",
}  # fmt: skip
FINISHED = """
const found = document.createElement("pre");
found.id = "found";
found.textContent = JSON.stringify(result);
document.body.append(found);
"""
"""The end of a script that leaves its ``result``."""

ASK = """
const result = ASKED.map(q => topdownPage.ask(q.kind, q.a, q.b, q.table, q.column))
  .map(r => [r.estimate, r.sd, r.lower, r.upper].map(String));
"""
"""What the page finds for many questions."""


def run_with_known_noise(toml: Path) -> None:
    """A run whose noise is the same whenever it is made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", lambda size: bytes(range(size)))
        run(load_config(toml))


def released(folder: Path, text: str, frame: pd.DataFrame | None = None) -> Path:
    """The public directory of a release of a small table."""
    rng = np.random.default_rng(3)
    if frame is None:
        units = [f"{state}{county:03d}" for state in (10, 11, 12) for county in range(1, 12, 2)]
        frame = pd.DataFrame({"county": units, "adults": rng.integers(0, 400, len(units))})
        frame["children"] = rng.integers(0, 90, len(units))
    frame.to_csv(folder / "table.csv", index=False)
    (folder / "run.toml").write_text(text, encoding="utf-8")
    run_with_known_noise(folder / "run.toml")
    return folder / "output" / "public"


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("cells"), RUN_TOML)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of several queries, of which one level measures two."""
    return released(tmp_path_factory.mktemp("several"), SEVERAL_TOML)


@pytest.fixture(scope="module")
def coarse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of so much noise that the law of the errors is seen beside the rounding to whole numbers."""
    return released(tmp_path_factory.mktemp("coarse"), RUN_TOML.replace("epsilon = 1.0", "epsilon = 0.01"))


@pytest.fixture(scope="module")
def coarse_several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of several queries, with noise that is far from normal."""
    text = SEVERAL_TOML.replace('mechanism = "discrete-gaussian"\nrho = 1', 'mechanism = "geometric"\nepsilon = 0.01')
    assert "geometric" in text
    return released(tmp_path_factory.mktemp("coarse_several"), text)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five levels, some units with a single child, zeros, an exact total, and answers that nothing determines."""
    folder = tmp_path_factory.mktemp("deep")
    run_with_known_noise(made(folder))
    return folder / "output" / "public"


@pytest.fixture(scope="module")
def on_spine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of noise that was measured on a spine of two kinds of areas, which cut states."""
    folder, rng = tmp_path_factory.mktemp("spine"), np.random.default_rng(5)
    units = [f"{state}{county:03d}" for state in (10, 11, 12) for county in range(1, 18, 2)]
    pd.DataFrame({"county": units}).to_csv(folder / "units.csv", index=False)
    for kind, many in (("school", 4), ("water", 3)):
        areas = pd.DataFrame({"county": units, "area": [f"a{k}" for k in rng.integers(0, many, len(units))]})
        areas[1:].to_csv(folder / f"{kind}.csv", index=False)
    text = SEVERAL_TOML.replace("[geography]\n", '[geography]\nunits = "units.csv"\n')
    spine = (
        '[geography.spine]\nlevels = ["school", "pieces x state"]\n'
        'areas = { school = "school.csv", water = "water.csv" }\ncap = "none"\n'
    )
    shares = (
        'shares = { nation = { total = 0.1 }, "school areas" = { age = 0.3 }, '
        '"pieces x state" = { age = 0.2, total = 0.1 }, county = { age = 0.3 } }'
    )
    text = text[: text.index("shares = ")] + shares + "\n"
    frame = pd.DataFrame({"county": units, "adults": rng.integers(0, 400, len(units))})
    return released(folder, text + spine, frame.assign(children=rng.integers(0, 90, len(units))))


def probed(page: Path, script: str, folder: Path) -> Any:
    """What ``script``, which leaves a ``result``, finds in the page when it is ready."""
    copy = folder / "probed.html"
    before, _, after = page.read_text(encoding="utf-8").rpartition("</body>")
    wait = "while (!document.body.dataset.ready) await new Promise(go => setTimeout(go, 20));"
    probe = f'<script type="module">{wait}\n{script}\n{FINISHED}</script></body>'
    copy.write_text(with_policy(before + probe + after), encoding="utf-8")
    return told(browsed(copy, folder / "profile", "--dump-dom"))


def questions(data: dict[str, Any], number: int, seed: int) -> list[dict[str, Any]]:
    """Random selections of every kind."""
    rng, found = np.random.default_rng(seed), []
    units = len(data["geoid"])
    for k in range(number):
        table = int(rng.integers(len(data["tables"])))
        column = int(rng.integers(len(data["tables"][table]["columns"])))
        kind = ["sum", "difference", "share", "total"][k % 4]
        some = int(rng.choice([1, 3, 10]))
        a, b = (rng.choice(units, min(size, units), replace=False).tolist() for size in (some, 2 * some))
        if kind == "total" and data["tables"][table]["columns"][column]["meaning"] == "everybody":
            kind = "sum"
        if kind == "share":
            b = [*a, *(unit for unit in b if unit not in a)]  # a whole holds its part
        found.append({"kind": kind, "a": a, "b": b, "table": table, "column": column})
    return found


def by_command(public: Path, data: dict[str, Any], asked: dict[str, Any]) -> list[float]:
    """The same by `topdown query`."""
    table = data["tables"][asked["table"]]
    a, b = ([data["geoid"][i] for i in asked[key]] for key in "ab")
    more: dict[str, Any] = {
        "sum": {},
        "difference": {"minus": b},
        "share": {"share_of": ",".join(b)},
        "total": {"share_of": "total"},
    }[asked["kind"]]
    cell = table["columns"][asked["column"]]["name"]
    cells = [cell] if len(table["columns"]) > 1 else []
    found = query_release(public, units=a, query=table["name"], cells=cells, **more)
    return [float(found[name].iloc[0]) for name in ("estimate", "sd", "lower", "upper")]


def agree(told: list[str], wanted: list[float], asked: dict[str, Any]) -> None:
    """A page has estimates to some thousandths of their deviation; the others are those of the command."""
    got = [float(x.replace("Infinity", "inf")) for x in told]
    near = 1e-3 * wanted[1] if 0 < wanted[1] < np.inf else 1e-3
    assert got[0] == pytest.approx(wanted[0], rel=1e-6, abs=near, nan_ok=True), asked
    assert got[1:] == pytest.approx(wanted[1:], rel=1e-3, abs=1e-6, nan_ok=True), asked


@in_a_browser
@pytest.mark.parametrize("of", ["public", "several", "deep", "coarse", "coarse_several", "on_spine"])
def test_sums_in_the_page_are_those_of_the_command(of: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """20 random selections each: the same estimate, deviation and ends."""
    folder: Path = request.getfixturevalue(of)
    page = write_page(folder, tmp_path / "page.html").output
    data = data_of(page.read_text(encoding="utf-8"))
    asked = questions(data, 20, 1)
    found = probed(page, ASK.replace("ASKED", json.dumps(asked)), tmp_path)
    for one, got in zip(asked, found, strict=True):
        agree(got, by_command(folder, data, one), one)


@in_a_browser
@pytest.mark.system
def test_all_counties_are_one_page_below_5_mb_with_the_sums_of_the_command(tmp_path: Path) -> None:
    """The release of the pipeline, with its states and the nation, and an outline for every county."""
    public = run(load_config(REPOSITORY / "pipelines" / "us_counties.toml"), tmp_path / "counties").public
    geography = td.read_release(public).geography
    counties = geography.geoid[geography.level_slice("county")].tolist()
    page = write_page(public, tmp_path / "page.html", PageOptions(outlines(tmp_path / "map.geojson", counties))).output
    assert page.stat().st_size < 5_000_000
    data = data_of(page.read_text(encoding="utf-8"))
    assert (len(data["geoid"]), len(data["outlines"])) == (3192, 3140)
    asked = questions(data, 20, 8)
    asked[0]["a"] = [data["geoid"].index(county) for county in counties]
    found = probed(page, ASK.replace("ASKED", json.dumps(asked)), tmp_path)
    for one, got in zip(asked, found, strict=True):
        agree(got, by_command(public, data, one), one)


def test_the_page_holds_the_release_and_no_other_number(public: Path, tmp_path: Path) -> None:
    """Counts, ends and deviations are those of the public files."""
    data = data_of(write_page(public, tmp_path / "page.html").output.read_text(encoding="utf-8"))
    release = td.read_release(public)
    assert release.estimates is not None
    found, spread = (one.to_frame().set_index(["geoid", "cell"]) for one in (release.release, release.estimates))
    (detailed,) = (one for one in data["tables"] if one["name"] == "detailed")
    for column in detailed["columns"]:
        for i, geoid in enumerate(data["geoid"]):
            row = found.loc[geoid, column["name"]]
            count = column["count"][i]
            assert (count, count - column["down"][i], count + column["up"][i]) == (
                row["value"],
                row["lower"],
                row["upper"],
            )
            assert column["sd"][i] == pytest.approx(np.sqrt(spread.loc[geoid, column["name"]]["variance"]), rel=1e-5)


@in_a_browser
@pytest.mark.parametrize("of", ["public", "deep"])
def test_reliability_is_that_of_the_files(of: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """What nothing determines is of low reliability; what is exact of high."""
    page = write_page(request.getfixturevalue(of), tmp_path / "page.html").output
    tables = data_of(page.read_text(encoding="utf-8"))["tables"]
    script = """
const {data, reliability} = topdownPage;
const result = data.tables.map((table, k) => table.columns.map((_, l) => reliability(k, l)));
"""
    classes = set()
    for table, found in zip(tables, probed(page, script, tmp_path), strict=True):
        for column, got in zip(table["columns"], found, strict=True):
            spread = np.array([np.inf if one is None else one for one in column["sd"]])
            assert got == reliability_of(spread, np.array(column["count"])).reliability.to_pylist()
            classes |= {(one, bool(np.isinf(sd))) for one, sd in zip(got, spread, strict=True)}
    assert {("high", False), ("medium", False), ("low", False)} <= classes
    assert (("low", True) in classes) == (of == "deep")


def test_answers_are_called_as_schema_calls_them(several: Path, tmp_path: Path) -> None:
    data = data_of(write_page(several, tmp_path / "page.html").output.read_text(encoding="utf-8"))
    schema = td.read_release(several).measurements.schema
    labels = [one["label"] for table in data["tables"] for one in table["columns"]]
    assert labels == [*Followed.of(schema, schema.cells(), [table["name"] for table in data["tables"]]).labels]
    assert len(labels) == 3


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Units whose names would be code, markup, formulas and lines."""
    folder = tmp_path_factory.mktemp("named")
    units = [code for code in NAMES if len(code) == 5]
    frame = pd.DataFrame({"nation": "US", "state": [unit[:2] for unit in units], "county": units})
    frame["state_name"] = [NAMES["10"] if unit[:2] == "10" else "plain" for unit in units]
    frame["county_name"] = [NAMES[unit] for unit in units]
    frame["people"] = [100, 200, 300, 50, 60, 1000]
    text = """
title = "</title><script>alert(1)</script>"
[input]
path = "table.csv"
cells = ["people"]
[geography]
levels = ["nation", "state", "county"]
names = { state = "state_name", county = "county_name" }
[privacy]
epsilon = 1.0
shares = { nation = 0.2, state = 0.3, county = 0.5 }
"""
    return released(folder, text, frame)


@in_a_browser
def test_names_are_names_in_the_page_and_in_the_file_it_saves(named: Path, tmp_path: Path) -> None:
    """No name becomes markup; commas, quotes, formulas and line breaks come back from the CSV as text."""
    page = write_page(named, tmp_path / "page.html").output
    script = """
const texts = [], make = URL.createObjectURL;
URL.createObjectURL = blob => { texts.push(blob.text()); return "about:blank#"; };
HTMLAnchorElement.prototype.click = () => {};
document.getElementById("paste-a").value = "10\\nÅlesund, Møre, 10003\\n東京都; 11001,11003\\n11005";
document.querySelector("[data-add=paste-a]").click();
document.getElementById("download").click();
const result = {images: document.images.length,
  scripts: document.querySelectorAll("#rows script, .chips script").length,
  chosen: topdownPage.state.a.size, said: document.getElementById("said").textContent, csv: await texts[0],
  cells: [...document.querySelectorAll("#rows tbody td")].map(td => td.textContent), title: document.title};
"""
    found = probed(page, script, tmp_path)
    assert (found["images"], found["scripts"], found["chosen"]) == (0, 0, 7), found["said"]
    assert HOSTILE in found["cells"]
    assert found["title"] == "</title><script>alert(1)</script>"  # no script of a name has set another
    rows = list(csv.DictReader(io.StringIO(found["csv"])))
    names = {row["geoid"]: row["name"] for row in rows if row["what"] == "unit"}
    assert names["10001"] == "Ålesund, Møre"
    assert names["11001"] == NAMES["11001"]
    assert names["10003"] == "'=2+3"  # as in the files of a release
    assert names["11005"] == "a\\nb"
    (asked,) = (row for row in rows if row["what"] == "sum")
    wanted = query_release(named, units=["10", *(code for code in NAMES if len(code) == 5)])
    assert float(asked["estimate"]) == pytest.approx(wanted["estimate"].iloc[0], abs=1e-3)
    assert [float(asked[end]) for end in ("lower", "upper")] == wanted[["lower", "upper"]].iloc[0].tolist()


def outlines(path: Path, codes: list[str]) -> Path:
    """A square of one degree for every unit, a hundred beside each other."""
    squares = []
    for k, code in enumerate(codes):
        x, y = k % 100, 40 + k // 100
        ring = [[x, y], [x, y + 1], [x + 1, y + 1], [x + 1, y], [x, y]]
        squares.append({"type": "Feature", "id": code, "geometry": {"type": "Polygon", "coordinates": [ring]}})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": squares}))
    return path


@in_a_browser
def test_a_share_is_of_units_that_hold_the_part(public: Path, tmp_path: Path) -> None:
    page = write_page(public, tmp_path / "page.html").output
    script = """
const $ = id => document.getElementById(id), {state, data} = topdownPage;
const result = [["10001", "10"], ["10", "10001"], ["10001", "11"], ["10001,10003", "10001,10003,11"]].map(pair => {
  const [a, b] = pair.map(units => new Map(units.split(",").map(unit => [data.geoid.indexOf(unit), 1])));
  Object.assign(state, {a, b});
  document.querySelector("input[value=share]").click();
  document.querySelector("input[value=share]").dispatchEvent(new Event("input"));
  return $("answer").textContent;
});
"""
    found = probed(page, script, tmp_path)
    assert ["choose units to compare with that hold the others" in said for said in found] == [False, True, True, False]
    assert [said.startswith("The share") for said in found] == [True, False, False, True]


@in_a_browser
def test_units_are_chosen_on_map_table_list_and_by_district(public: Path, tmp_path: Path) -> None:
    """Each way adds to the selection, its answer is said aloud, and table and cell change what is asked."""
    (tmp_path / "wards.csv").write_text("unit,ward\n10001,east\n10003,east\n12011,west\n")
    codes = [f"{state}{county:03d}" for state in (10, 11) for county in range(1, 12, 2)]
    options = PageOptions(outlines(tmp_path / "map.geojson", codes), (tmp_path / "wards.csv",))
    page = write_page(public, tmp_path / "page.html", options).output
    script = """
const $ = id => document.getElementById(id), result = {};
const choose = (id, value, type = "input") => {
  $(id).value = value;
  $(id).dispatchEvent(new Event(type, {bubbles: true}));
};
const chosen = () => [...topdownPage.state.a.keys()].map(i => topdownPage.data.geoid[i]).sort();
while (document.body.dataset.drawn !== "yes") await new Promise(go => setTimeout(go, 50));
const canvas = document.querySelector("[data-chart=map] canvas"), box = canvas.getBoundingClientRect();
result.drawn = [canvas.width > 200, box.width <= document.documentElement.clientWidth];
document.querySelector("#rows button[data-node]").click();
result.table = chosen();
choose("list-a", "10005"); document.querySelector("[data-add=list-a]").click();
result.list = chosen();
$("paste-a").value = "nowhere, 10007"; document.querySelector("[data-add=paste-a]").click();
result.said = $("said").textContent;
choose("area-a", "0");
result.area = chosen();
result.answer = $("answer").textContent;
choose("query", "1"); choose("cell", "1");
result.children = $("answer").textContent;
document.querySelector("input[value=total]").click();
result.share = $("answer").textContent;
choose("level", "1");
result.rows = document.querySelectorAll("#rows tbody tr").length;
choose("level", "2"); choose("within", "11", "change");
result.within = [...document.querySelectorAll("#rows tbody tr td:nth-child(2)")].map(td => td.textContent);
choose("within", "", "change"); choose("cells", "all");
result.both = new Set([...document.querySelectorAll("#rows tbody tr td:nth-child(5)")].map(td => td.textContent)).size;
result.keys = [...document.querySelectorAll("#rows thead th")].filter(th => th.textContent.trim() !== "Choose")
  .map(th => th.querySelector("[tabindex='0']") !== null || th.tabIndex === 0);
result.sorted = document.querySelectorAll("#rows thead th[aria-sort]").length;
result.folded = [...document.querySelectorAll("main details")].filter(one => !one.closest(".chart"))
  .map(one => [one.open, one.querySelector("summary").getClientRects().length]);
result.live = [$("answer").getAttribute("aria-live"), $("said").getAttribute("role")];
result.unnamed = [...document.querySelectorAll("input, select, textarea, button")].filter(one =>
  !(one.labels && one.labels.length) && !one.getAttribute("aria-label") && !one.textContent.trim())
  .map(one => one.outerHTML);
"""
    found = probed(page, script, tmp_path)
    assert found["drawn"] == [True, True]
    assert len(found["table"]) == 1
    assert found["list"] == sorted([*found["table"], "10005"])
    assert "No unit nowhere" in found["said"]
    assert found["area"] == ["10001", "10003"]
    wanted = query_release(public, units=["10001", "10003"]).iloc[0]
    assert f"between {wanted['lower']:,.0f} and {wanted['upper']:,.0f}." in found["answer"]
    wanted = query_release(public, units=["10001", "10003"], cells=["children"]).iloc[0]
    assert f"between {wanted['lower']:,.0f} and {wanted['upper']:,.0f}." in found["children"]
    assert "The share of the total, children" in found["share"]
    assert (found["rows"], found["both"]) == (3, 2)
    assert found["within"] == [f"11{county:03d}" for county in range(1, 12, 2)]
    assert found["live"] == ["polite", "status"]
    assert found["unnamed"] == []
    assert all(found["keys"])
    assert found["folded"] == [[False, 1]] * 3
    assert found["sorted"] == 1


FRAME = """<body><iframe id="f" src="page.html" style="border:0;width:WIDTHpx;height:900px"></iframe>
<script type="module">
const f = document.getElementById("f"), drawn = () => f.contentDocument?.body?.dataset.drawn === "yes";
while (!drawn()) await new Promise(go => setTimeout(go, 50));
const d = f.contentDocument, scroll = d.documentElement.scrollWidth;
const result = {scroll, map: d.querySelector("canvas").getBoundingClientRect().width};
FINISHED</script></body>"""


@in_a_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_screen(public: Path, width: int, tmp_path: Path) -> None:
    codes = [f"{state}{county:03d}" for state in (10, 11) for county in range(1, 12, 2)]
    write_page(public, tmp_path / "page.html", PageOptions(outlines(tmp_path / "map.geojson", codes)))
    frame = FRAME.replace("WIDTH", str(width)).replace("FINISHED", FINISHED)
    (tmp_path / "frame.html").write_text(frame, encoding="utf-8")
    found = told(browsed(tmp_path / "frame.html", tmp_path / "profile", "--dump-dom", "--window-size=1500,1000"))
    assert found["scroll"] <= width
    assert 200 < found["map"] <= width


@in_a_browser
def test_paper_has_what_was_chosen_and_found_and_no_controls(public: Path, tmp_path: Path) -> None:
    page = write_page(public, tmp_path / "page.html").output
    browsed(page, tmp_path / "printed", "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'page.pdf'}")
    pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "page.pdf").read_bytes()))
    assert 1 <= pages <= 6
    page.write_text(page.read_text(encoding="utf-8").replace("@media print", "@media all"), encoding="utf-8")
    script = """
document.getElementById("paste-a").value = "10001, 10003";
document.querySelector("[data-add=paste-a]").click();
const seen = query => [...document.querySelectorAll(query)].filter(one => one.getClientRects().length);
const controls = seen("input, select, textarea, button").filter(one => !one.closest(".chips"));
const result = {controls: controls.map(one => one.outerHTML),
  chips: seen(".chips button").map(one => one.textContent), answer: seen("#answer b").length,
  rows: seen("#rows tbody tr").length};
"""
    found = probed(page, script, tmp_path)
    assert found["controls"] == []
    assert found["chips"] == ["10001 ×", "10003 ×"]
    assert (found["answer"], found["rows"]) == (3, 15)


def test_a_large_release_is_an_index_and_a_page_per_unit(
    deep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page is whole by itself: what it holds of its part is what the one page holds of it."""
    one = data_of(write_page(deep, tmp_path / "one.html").output.read_text(encoding="utf-8"))
    monkeypatch.setattr(page_numbers, "MOST_NUMBERS", 300)
    pages = write_page(deep, tmp_path / "many.html")
    assert [path.name for path in pages.files] == ["index.html", "1.html", "2.html", "3.html"]
    index = (pages.output / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<a href="(\d\.html)">(\w+)</a>', index) == [
        ("1.html", "00"),
        ("2.html", "01"),
        ("3.html", "02"),
    ]
    assert "topdown query" in index
    seen: set[str] = set()
    for path in pages.files[1:]:
        text = path.read_text(encoding="utf-8")
        assert "Sums with units of other pages" in text
        part = data_of(text)
        assert not seen & set(part["geoid"][1:])
        seen |= set(part["geoid"][1:])
        for i, geoid in enumerate(part["geoid"]):
            k = one["geoid"].index(geoid)
            for name in ("count", "down", "up", "sd", "more"):
                assert part["tables"][0]["columns"][0][name][i] == one["tables"][0]["columns"][0][name][k]
    assert seen == set(one["geoid"][1:])


@in_a_browser
@pytest.mark.parametrize("name", ["index.html", "2.html"])
def test_sums_in_a_page_of_a_part_are_those_of_the_command(
    deep: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has the upper levels alone, a page what lies in one unit."""
    monkeypatch.setattr(page_numbers, "MOST_NUMBERS", 300)
    page = write_page(deep, tmp_path / "many.html").output / name
    data = data_of(page.read_text(encoding="utf-8"))
    asked = questions(data, 12, 4)
    found = probed(page, ASK.replace("ASKED", json.dumps(asked)), tmp_path)
    for one, got in zip(asked, found, strict=True):
        agree(got, by_command(deep, data, one), one)


def test_a_release_in_parts_has_the_page_of_the_whole_one(deep: Path, tmp_path: Path) -> None:
    """Of the same noise: every number is the same. The command reads both by one way."""
    there = place_of_the_same_noise(tmp_path, deep.parent, "parts")
    parts = run(load_config(deep.parent.parent / "run.toml"), there, part_size=4, executor=AtOnce()).public
    pages = [write_page(one, tmp_path / f"{one.parent.name}.html").output for one in (deep, parts)]
    assert data_of(pages[0].read_text(encoding="utf-8")) == data_of(pages[1].read_text(encoding="utf-8"))


@in_a_browser
def test_levels_without_measurements_have_counts_and_no_margins(
    deep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release in parts that did not keep the measurements of its lowest level."""
    monkeypatch.setattr(part_plan, "LARGEST_KEPT", 100)
    there = place_of_the_same_noise(tmp_path, deep.parent, "parts")
    public = run(load_config(deep.parent.parent / "run.toml"), there, part_size=4, executor=AtOnce()).public
    found = td.read_release(public)
    missing = found.measurements.not_kept
    assert missing
    page = write_page(public, tmp_path / "page.html").output
    data = data_of(page.read_text(encoding="utf-8"))
    known = sum(data["sizes"][: -len(missing)])
    column = data["tables"][0]["columns"][0]
    assert set(column["sd"][known:]) == {None}
    assert None not in column["sd"][:known]
    last = len(data["geoid"]) - 1
    script = f"const result = [[1, 2], [{last}]].map(some => topdownPage.ask('sum', some, [], 0, 0));"
    upper, lower = probed(page, script, tmp_path)
    wanted = query_release(public, units=[data["geoid"][i] for i in (1, 2)]).iloc[0]
    assert [upper[name] for name in ("estimate", "lower", "upper")] == pytest.approx(
        [wanted[name] for name in ("estimate", "lower", "upper")], abs=1e-3
    )
    assert (lower["count"], lower["estimate"], lower["note"]) == (
        column["count"][last],
        None,
        "released count, no margin",
    )


def test_a_release_without_margins_says_so_and_shows_its_counts(tmp_path: Path) -> None:
    bounded = RUN_TOML + '\n[noise]\nbounds = "truncated"\nupper = 5000\n'
    public = released(tmp_path, bounded)
    text = write_page(public).output.read_text(encoding="utf-8")
    data = data_of(text)
    assert "This release has no margins of error" in text
    assert data["errors"] is None
    assert set(data["tables"][0]["columns"][0]["up"]) == {None}


def test_it_lies_beside_the_release_which_stays_valid(public: Path, tmp_path: Path, topdown: Command) -> None:
    """The page is beside public/, is not written twice, and does not take another's place."""
    first = write_page(public)
    try:
        assert first.output == public.parent.resolve() / "page.html"
        assert write_page(public).already_there
        with pytest.raises(ConfigError, match="is not this page; move it away"):
            write_page(public, options=PageOptions(None, (_wards(tmp_path),)))
        assert topdown("verify", public).returncode == 0
    finally:
        first.output.unlink()


def _wards(folder: Path, text: str = "unit,ward\n10001,east\n") -> Path:
    (folder / "wards.csv").write_text(text)
    return folder / "wards.csv"


def test_what_is_not_there_is_named_and_nothing_is_written(public: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    with pytest.raises(DataError, match="cannot be read as a release"):
        write_page(tmp_path / "nowhere", target)
    with pytest.raises(DataError, match="no outline has the GEOID of a unit"):
        write_page(public, target, PageOptions(outlines(tmp_path / "map.geojson", ["99999"])))
    with pytest.raises(DataError, match="has one column"):
        write_page(public, target, PageOptions(None, (_wards(tmp_path, "unit\n10001\n"),)))
    with pytest.raises(DataError, match="none of its units, such as '99999', is in the geography"):
        write_page(public, target, PageOptions(None, (_wards(tmp_path, "unit,ward\n99999,east\n"),)))
    assert not list(tmp_path.glob("page*"))


def test_a_run_writes_it_and_refuses_its_files_before_it_draws(tmp_path: Path) -> None:
    _wards(tmp_path, "unit,ward\n99999,east\n")
    asked = '\n[output]\npage = true\n[page]\nareas = ["wards.csv"]\n'
    with pytest.raises(DataError, match=r"output\.page: .*99999"):
        released(tmp_path, RUN_TOML + asked)
    _wards(tmp_path)
    (tmp_path / "output").mkdir(exist_ok=True)
    (tmp_path / "output" / "page.html").write_text("of something else")
    with pytest.raises(ConfigError, match=r"page\.html exists already, for another release; move it away"):
        released(tmp_path, RUN_TOML + asked)
    assert not (tmp_path / "output" / "public").exists()
    (tmp_path / "output" / "page.html").unlink()
    public = released(tmp_path, RUN_TOML + asked)
    assert data_of((public.parent / "page.html").read_text(encoding="utf-8"))["areas"] == [
        {"name": "wards", "districts": [{"name": "east", "units": [4]}]}
    ]
    run(load_config(tmp_path / "run.toml"))  # again: nothing is left to do
    with pytest.raises(ConfigError, match=r"set output\.page = true"):
        released(tmp_path, RUN_TOML + '\n[page]\nareas = ["wards.csv"]\n')


@pytest.mark.parametrize("suffix", [".geojson", ".gpkg", ".parquet"])
def test_outlines_in_metres_are_turned_into_degrees_or_refused(
    public: Path, tmp_path: Path, topdown: Command, suffix: str
) -> None:
    frame = gpd.read_file(outlines(tmp_path / "map.geojson", ["10001", "10003"])).to_crs(3857)
    known, unknown = tmp_path / f"known{suffix}", tmp_path / f"unknown{suffix}"
    for path, one in ((known, frame), (unknown, frame.set_crs(None, allow_override=True))):
        one.to_parquet(path) if suffix == ".parquet" else one.to_file(path)
    refused = topdown("page", public, "-o", tmp_path / "p.html", "--geometry", unknown)
    assert (refused.returncode, "no degrees; give outlines in degrees" in refused.stderr) == (3, True)
    if suffix == ".geojson":
        refused = topdown("page", public, "-o", tmp_path / "p.html", "--geometry", known)
        assert (refused.returncode, "has the crs EPSG:3857; give outlines in degrees" in refused.stderr) == (3, True)
        return
    done = topdown("page", public, "-o", tmp_path / "p.html", "--geometry", known)
    assert done.returncode == 0
    assert (
        "16 of 18 units of level 'county' have no outline with an area and are not on the map, such as '10005'"
        in done.stderr
    )


TOWN_TOML = """
[input]
path = "table.csv"
cells = ["adults", "children"]
[geography]
levels = ["town", "ward"]
[privacy]
epsilon = 1.0
shares = { town = 0.5, ward = 0.5 }
"""


@pytest.mark.parametrize("suffix", [".geojson", ".gpkg", ".shp", ".parquet"])
def test_outlines_are_those_of_units_by_their_codes_in_whatever_order_they_are(
    tmp_path: Path, topdown: Command, suffix: str
) -> None:
    """Neither the number of a row, which formats without ids have, nor a column of numbers is a code."""
    wards = pd.DataFrame({"town": "T", "ward": [str(k) for k in range(1, 7)], "adults": range(6), "children": 0})
    public = released(tmp_path, TOWN_TOML, wards)
    lake_first = ["99", "6", "5", "4", "3", "2", "1"]
    squares = [box(10 * k, 40, 10 * k + 5, 45) for k in (9, 6, 5, 4, 3, 2, 1)]
    frame = gpd.GeoDataFrame({"OBJECTID": range(7), "ward": lake_first}, geometry=squares, crs=4326)
    path = tmp_path / f"wards{suffix}"

    def page(frame: gpd.GeoDataFrame) -> str:
        frame.to_parquet(path) if suffix == ".parquet" else frame.to_file(path)
        target = tmp_path / f"{len(list(tmp_path.glob('*.html')))}.html"
        done = topdown("page", public, "-o", target, "--geometry", path)
        return done.stderr if done.returncode else target.read_text(encoding="utf-8")

    drawn = data_of(page(frame))
    west = {
        drawn["geoid"][one["unit"]]: np.min(one["geometry"]["coordinates"][0][0], axis=0)[0]
        for one in drawn["outlines"]
    }
    assert west == pytest.approx({str(k): 10 * k for k in range(1, 7)}, abs=1e-2)
    again = data_of(page(frame.assign(ward=lake_first[::-1])))  # the codes of a shapefile are in a file of their own
    assert again["outlines"] != drawn["outlines"]
    assert "no outline has the GEOID of a unit" in page(frame[["OBJECTID", "geometry"]])
    assert "no unit's outline has an area" in page(frame.set_geometry(frame.centroid))
    refused = page(frame.assign(other=[*lake_first[1:], "99"]))
    assert "as many GEOIDs of units by property 'ward' as by property 'other', and of different units" in refused


def test_the_command_says_what_it_wrote(public: Path, tmp_path: Path, topdown: Command) -> None:
    done = topdown("page", public, "-o", tmp_path / "p.html")
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["wrote"])
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert not re.search(
        r'(?:src|href)="(?!#|data:|index\.html)', page.rpartition("<script>")[0].partition("<script>")[0]
    )
    assert len(page) < 5_000_000
