"""The report's page: escaped, without a network, for every plan; drawn by a browser where there is one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import topdown as td
from support.browser import browsed, in_a_browser, told
from support.reported import EVIL, METHODS, OBEYED, outline_file, studied
from topdown.pages.leaf_outlines import read_outlines
from topdown.pages.shell import embedded, with_policy
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.groupings import SIZE_CLASS, Grouping
from topdown.studies.report.page import charts, render
from topdown.studies.report.results import StudyResults
from topdown.studies.report.summary import summarise
from topdown.tables.spreadsheet import from_csv_text


@pytest.fixture(scope="module")
def page(study: Mapping[str, Any]) -> str:
    return render(study["summary"])


def _without_libraries(page: str) -> str:
    return re.sub(r"<script>\(\(\) => \{.*?\}\)\(\);</script>", "", page, count=1, flags=re.DOTALL)


def test_names_are_escaped_wherever_they_stand(page: str) -> None:
    written = _without_libraries(page)
    assert "<b>x" not in written
    assert "<i>coast" not in written
    assert 'document.title="taken"' not in written.replace("&#34;", "'")
    assert "&lt;b&gt;x&lt;/b&gt;&amp;" in written
    assert "\\u003cb\\u003ex" in written
    assert written.count("</script>") == 3 - 1  # the data and the page's own script


def test_embedded_json_cannot_end_its_script() -> None:
    value = {"a": "</script><!-- & \u2028"}
    text = str(embedded(value))
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == value


def test_the_page_asks_for_nothing_from_a_network(page: str) -> None:
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", _without_libraries(page))
    assert "default-src 'none'" in page
    assert len(page.encode()) < 6_000_000


def test_the_page_says_what_it_is(page: str) -> None:
    assert page.count("onfidential comparison with the true counts") >= 2
    assert "not for release" in page
    assert "Comparison with public counts" not in page
    public = render(studied(methods=["raw", "top-down"], replicates=40, public_input=True)["summary"])
    assert "Comparison with public counts" in public
    assert "onfidential" not in re.sub(
        r"errors-confidential.csv|startsWith\(\"confidential\"\)", "", _without_libraries(public)
    )


@pytest.mark.parametrize(
    ("plan", "more"),
    [
        (td.Plan(epsilon=1, shares={"nation": 0, "state": "1/2", "county": "1/2"}), {}),
        (td.Plan(epsilon=1, shares={"nation": "1/2", "state": "1/2", "county": 0}), {}),
        (td.Plan(epsilon=1, invariants=["nation", "state"], shares={"county": 1}), {}),
        (td.Plan(mechanism="gaussian", rho="0.1"), {}),
        (td.Plan(mechanism="discrete-gaussian", rho="0.1"), {"reference": "continuous"}),
        (td.Plan(mechanism="laplace", epsilon=1), {}),
        (td.Plan(epsilon=1, bounds={"county": "truncated"}), {}),
        (td.Plan(epsilon=20), {"distances": False}),
        (td.Plan(epsilon=1), {"replicates": 1}),
    ],
)
def test_every_plan_gets_a_page(plan: td.Plan, more: dict[str, Any]) -> None:
    found = studied(plan=plan, **{"replicates": 50, "methods": ["raw", "top-down/equality", "gls-top-down"], **more})
    page = render(found["summary"])
    assert "NaN" not in re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1)  # type: ignore[union-attr]


def test_a_single_node_gets_a_page() -> None:
    frame = pd.DataFrame({"all": ["US"], "x": [3]})
    geography = td.Geography.from_table(frame, ["all"])
    counts = td.Counts.from_table(frame, geography, geoid="all", cells=["x"])
    table = td.simulate(counts, td.Plan(epsilon=1), ["raw", "top-down"], 30, 1)
    grouped = {SIZE_CLASS: Grouping(("a",))}
    plan = td.Plan(epsilon=1).for_levels(["all"])
    summary = summarise(StudyResults(table, plan, title="", released="top-down", groupings=grouped))
    assert "What was run" in render(summary)


def test_a_page_says_how_many_groups_its_chart_leaves_out() -> None:
    """48 groups: the chart shows 40, and the page says so, on paper too; the table has all."""
    rows = [{"nation": "US", "state": f"S{k % 4}", "county": f"S{k % 4}C{k:02d}", "x": 3 + k} for k in range(96)]
    frame = pd.DataFrame(rows)
    geography = td.Geography.from_table(frame, ["nation", "state", "county"])
    counts = td.Counts.from_table(frame, geography, geoid="county", cells=["x"])
    labels = tuple(f"group {k % 48:02d}" for k in range(96))
    grouped = {SIZE_CLASS: Grouping(("all",) * 96), "pair": Grouping(labels)}
    plan, fund = td.Plan(epsilon=1), td.FundShare("x")
    table = td.simulate(counts, plan, ["gls-top-down"], 40, 1, rules=[fund])
    levels = plan.for_levels(geography.levels)
    results = StudyResults(table, levels, "", released="gls-top-down", groupings=grouped, funds=[fund.label])
    page = render(summarise(results))
    said = (
        '<p class="small">Where there are more than 40 groups the chart shows 40, those whose intervals begin at the '
        "largest biases: of “pair” 48. The table has all.</p>"  # and of no class that paper leaves out
    )
    assert page.count(said) == 2  # of counts, and of money
    chart = charts(summarise(results))["groups"]
    shown = {row["group"] for rows in chart["datasets"].values() for row in rows if row.get("grouping") == "pair"}
    assert len(shown) == 40
    assert len(set(re.findall(r'<td class="t">(group \d\d)</td>', page))) == 48


# -- in a browser -----------------------------------------------------------------------------------------------------

PROBE = """<script>
document.getElementById("theory").open = true;
const places = () => [...document.querySelectorAll("[data-chart]")];
const undrawn = () => places().some(c => !c.querySelector("svg.marks, canvas.marks"));
const wait = () => document.body.dataset.drawn && !undrawn() ? probe() : setTimeout(wait, 50);
const all = (where, from = document) => [...from.querySelectorAll(where)];
const rows = () => all("#nodes tbody tr").map(tr => all("td", tr).map(td => td.textContent));
const probe = () => {
  const found = {drawn: document.body.dataset.drawn, first: rows()[0], title: document.title,
    charts: all("[data-chart]").map(c => [c.dataset.chart, all("svg.marks, canvas.marks", c).length])};
  document.getElementById("search").value = "c07";
  document.getElementById("search").dispatchEvent(new Event("input"));
  found.searched = rows().map(r => r[0]);
  document.getElementById("search").value = "";
  document.getElementById("level").value = "2";
  document.getElementById("level").dispatchEvent(new Event("input"));
  const header = all("#nodes th button").find(b => b.textContent === "true count");
  header.click(); found.falling = rows().map(r => r[4]);
  header.click(); found.rising = rows().map(r => r[4]);
  const keep = URL.createObjectURL;
  URL.createObjectURL = blob => { blob.text().then(t => { found.csv = t; finish(); }); return keep(blob); };
  const finish = () => {
    const out = document.createElement("pre");
    out.id = "found"; out.textContent = JSON.stringify(found);
    document.body.append(out);
  };
  document.getElementById("download").click();
};
wait();
</script></body>"""


@in_a_browser
def test_a_browser_draws_the_page(study: Mapping[str, Any], tmp_path: Path) -> None:
    """Every chart is drawn, no console message, and the table of units can be searched, sorted and downloaded."""
    outlines = read_outlines(outline_file(tmp_path), study["table"].geography)
    path = tmp_path / "report.html"
    page = render({**study["summary"], "map": studied(replicates=40, outlines=outlines)["summary"]["map"]})
    before, _, after = page.rpartition("</body>")
    path.write_text(with_policy(before + PROBE + after), encoding="utf-8")
    found = told(browsed(path, tmp_path / "profile", "--dump-dom"))
    assert found["drawn"] == "yes"
    assert dict(found["charts"]) == dict.fromkeys(
        ["residuals", "bias", "map", "predicted", "families", "wasserstein", "groups", "fund_groups", "distance"], 1
    )
    assert found["title"].startswith("counts of <b>x</b>")
    assert found["searched"] == ["C07", "C07"]
    values = [int(v) for v in found["falling"]]
    assert values == sorted(values, reverse=True)
    assert [int(v) for v in found["rising"]] == sorted(int(v) for v in found["rising"])
    downloaded = pd.read_csv(pd.io.common.StringIO(found["csv"]))
    table: ErrorTable = study["table"]
    assert len(downloaded) == table.truth.size * len(METHODS)
    assert (downloaded["notice"] == table.notice).all()
    raw_rows = downloaded[downloaded["method"] == "gls-top-down"]
    np.testing.assert_allclose(raw_rows["bias"], table["gls-top-down", "bias"].reshape(-1), rtol=1e-3)
    assert EVIL in downloaded["name"].tolist()
    assert "'=1+1 \\x1b]0;taken\\x07" in downloaded["name"].tolist()
    assert {EVIL, OBEYED} <= set(from_csv_text(pa.array(downloaded["name"].dropna().tolist())).to_pylist())


FOR_A_SCREEN = ".controls, nav, .vega-bindings, .unit-table, #theory"

FRAME = """<!doctype html><body style="margin: 0">
<iframe id="frame" src="report.html" style="width: WIDTHpx; height: 9000px; border: 0"></iframe>
<script>
const frame = document.getElementById("frame");
let tall = 0, cards = [], folded = 0;
const places = () => [...frame.contentDocument.querySelectorAll("[data-chart]")];
const undrawn = () => places().some(c => !c.querySelector("svg.marks, canvas.marks"));
const open = () => {
  if (!tall) {
    tall = frame.contentDocument.body.offsetHeight;
    const told = where => [...frame.contentDocument.querySelectorAll(where)];
    cards = told(".card").map(card => card.getBoundingClientRect().bottom);
    folded = told(".card details:not([open])").length;
  }
  if (OPEN) frame.contentDocument.querySelectorAll("details").forEach(one => { one.open = true; });
  return !OPEN || !undrawn();
};
const wait = () => frame.contentDocument?.body?.dataset.drawn && open() ? probe() : setTimeout(wait, 50);
const probe = () => {
  const page = frame.contentDocument, all = where => [...page.querySelectorAll(where)];
  const found = {drawn: page.body.dataset.drawn, width: page.documentElement.clientWidth,
    scrolled: page.documentElement.scrollWidth,
    tall, cards, folded, charts: all("[data-chart]").filter(place => place.querySelector(".marks")).map(place => {
      const mark = place.querySelector("svg.marks, canvas.marks"), box = mark.getBoundingClientRect();
      const whole = mark.viewBox ? mark.viewBox.baseVal.width : +mark.style.width.replace("px", "");
      return {name: place.dataset.chart, right: box.right, width: box.width, whole};
    }),
    tables: all("table").filter(one => one.id !== "nodes")
      .map(one => [one.getBoundingClientRect().right, one.textContent.slice(0, 60)]),
    wide: all("*").filter(one => one.getBoundingClientRect().right > page.documentElement.clientWidth + 1)
      .map(one => [one.tagName, one.className, one.textContent.slice(0, 40)]).slice(0, 9),
    picked: all("table.pick").filter(t => t.closest("main > details") === null).map(t => [t.rows.length - 1,
      [...t.rows].filter(r => !r.hidden).length - 1]),
    controls: all("CONTROLS").map(one => frame.contentWindow.getComputedStyle(one).display)};
  const out = document.createElement("pre");
  out.id = "found"; out.textContent = JSON.stringify(found);
  document.body.append(out);
};
wait();
</script></body>"""


@pytest.fixture(scope="module")
def whole_page(mapped: Mapping[str, Any]) -> str:
    """A page with every chart that there is."""
    return render(mapped["summary"])


@in_a_browser
def test_a_phone_shows_all_of_it(whole_page: str, tmp_path: Path) -> None:
    """At 390 px nothing is wider than the screen but tables in their own scroll; charts are redrawn, not shrunk."""
    (tmp_path / "report.html").write_text(whole_page, encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", "390").replace("OPEN", "true").replace("CONTROLS", FOR_A_SCREEN))
    found = told(browsed(frame, tmp_path / "profile", "--dump-dom"))
    assert (found["drawn"], found["width"]) == ("yes", 390)
    assert found["scrolled"] <= 390, found["wide"]
    assert {one["name"] for one in found["charts"]} >= {"residuals", "bias", "map", "groups", "fund_groups", "distance"}
    for one in found["charts"]:
        assert one["right"] <= 390, one
        assert one["width"] > 200, one
        assert one["width"] >= 0.9 * one["whole"], one  # shrunk text could not be read
    assert found["tall"] < 15_000
    # The three answers are on the first screen, with a sentence each; what else there is to say is folded.
    assert (len(found["cards"]), found["folded"]) == (3, 2)  # one card has no more to say
    assert max(found["cards"]) <= 844


@in_a_browser
def test_a_desktop_shows_the_answer_in_6000_pixels_and_rows_that_the_reader_picks(
    whole_page: str, tmp_path: Path
) -> None:
    (tmp_path / "report.html").write_text(whole_page, encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", "1400").replace("OPEN", "false").replace("CONTROLS", FOR_A_SCREEN))
    found = told(browsed(frame, tmp_path / "profile", "--dump-dom", "--window-size=1500,1000"))
    assert (found["drawn"], found["width"]) == ("yes", 1400)
    assert found["tall"] < 6_000
    assert found["folded"] == 0
    assert len(found["cards"]) == 3
    assert max(found["cards"]) <= 900
    assert found["scrolled"] <= 1400, found["wide"]
    assert any(0 < shown < rows for rows, shown in found["picked"])


@in_a_browser
def test_paper_holds_the_answer_and_says_what_it_leaves_out(whole_page: str, tmp_path: Path) -> None:
    """An A4 page is 680 px wide between its margins: charts and tables fit, what is for a screen is not there."""
    path = tmp_path / "report.html"
    path.write_text(whole_page, encoding="utf-8")
    browsed(path, tmp_path / "profile", "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'report.pdf'}")
    pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "report.pdf").read_bytes()))
    assert 3 < pages < 25
    assert "Not printed: " in whole_page
    path.write_text(whole_page.replace("@media print", "@media all"), encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", "680").replace("OPEN", "false").replace("CONTROLS", FOR_A_SCREEN))
    found = told(browsed(frame, tmp_path / "profile", "--dump-dom"))
    assert (found["drawn"], found["width"]) == ("yes", 680)
    assert set(found["controls"]) == {"none"}
    assert max(one["right"] for one in found["charts"]) <= 680
    assert max(right for right, _ in found["tables"]) <= 680, max(found["tables"])
    assert found["scrolled"] <= 680, found["wide"]
