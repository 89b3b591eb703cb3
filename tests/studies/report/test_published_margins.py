"""The part of the report on margins: what a release would publish, and how often it holds the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topdown as td
from support.browser import browsed, in_a_browser, told
from support.reported import PLAN, nation, studied
from topdown.pages.shell import with_policy
from topdown.studies.one_release import one_release
from topdown.studies.report.page import charts, render

OPTIONS = td.CoverageOptions("gls-top-down", 0.9, (10, 100, 150))


@pytest.fixture(scope="module")
def followed() -> dict[str, Any]:
    return studied(replicates=200, methods=["raw", "gls-top-down", "gls-top-down/rounded"], coverage=OPTIONS)


def test_the_example_is_the_release_of_the_records_with_its_margins(followed: dict[str, Any]) -> None:
    _, counts, _ = nation()
    plan = PLAN.for_levels(counts.geography.levels)
    released = one_release(counts, plan, ["gls-top-down"], 3)["gls-top-down"]
    nodes = followed["summary"]["nodes"]
    published = nodes["published"]
    assert published["count"] == released.reshape(-1).tolist()
    measurements = td.measure(counts, plan, td.SeededSource((3, "one release")))
    release = td.round_counts(
        td.project(measurements, "gls-top-down"), source=td.SeededSource((3, "ties", "gls-top-down"))
    )
    margins = td.margins(measurements, release, confidence=0.9)
    assert published["lower"] == margins["lower"].tolist()
    assert published["upper"] == margins["upper"].tolist()
    with np.errstate(divide="ignore"):
        variation = margins["sd"].to_numpy() / released.reshape(-1)
    shown = np.array([np.inf if one is None else one for one in published["cv"]])
    np.testing.assert_allclose(shown, variation, rtol=1e-3)


def test_the_ends_of_intervals_keep_all_their_digits() -> None:
    from topdown.studies.report.plain_numbers import rounded, whole

    assert rounded(whole(np.array([14_537_980.0, np.inf]))) == [14_537_980, None]


def test_units_are_called_unreliable_by_their_coefficient_of_variation(followed: dict[str, Any]) -> None:
    units = followed["summary"]["one_release"]["units"]
    assert {one["cell"] for one in units} == {"x", "y"}
    truths = [one["truth"] for one in units if one["cell"] == "x"]
    assert truths == sorted(truths)
    for one in units:
        cv = np.inf if one["cv"] is None else one["cv"]
        assert one["reliability"] == ("at most 20 %" if cv <= 0.2 else "above 20 %" if cv <= 0.4 else "above 40 %")
        assert one["lower"] <= one["published"] <= one["upper"]
    assert {one["reliability"] for one in units} >= {"at most 20 %", "above 40 %"}


def test_what_is_unreliable_is_as_the_study_says() -> None:
    made = studied(replicates=20, methods=["gls-top-down/rounded"], coverage=OPTIONS, shaded_above=(0.05, 0.6))
    summary = made["summary"]
    for one in summary["one_release"]["units"]:
        cv = np.inf if one["cv"] is None else one["cv"]
        assert one["reliability"] == ("at most 5 %" if cv <= 0.05 else "above 5 %" if cv <= 0.6 else "above 60 %")
    page = render(summary)
    assert 'id="doubtful" type="number" min="0" step="5" value="5"' in page
    assert 'id="unreliable" type="number" min="0" step="5" value="60"' in page
    assert "coefficient of variation above 5 %, hollow one above 60 %" in page


def test_without_margins_there_is_no_section_and_no_column(study: dict[str, Any], followed: dict[str, Any]) -> None:
    page = render(study["summary"])
    assert 'id="coverage"' not in page
    assert 'id="unreliable"' not in page
    page = render(followed["summary"])
    assert 'id="coverage"' in page
    assert 'id="unreliable"' in page
    assert {"coverage", "one_release"} <= charts(followed["summary"]).keys()
    assert any("intervals that the release would publish" in one for one in followed["summary"]["trust"])


PROBE = """<script>
const wait = () => document.body.dataset.drawn ? probe() : setTimeout(wait, 50);
const shaded = kind => document.querySelectorAll("#nodes td." + kind).length;
const probe = () => {
  const found = {drawn: document.body.dataset.drawn, unreliable: shaded("unreliable"), doubtful: shaded("doubtful"),
    charts: [...document.querySelectorAll("[data-chart]")]
      .map(c => [c.dataset.chart, c.querySelectorAll("svg.marks, canvas.marks").length])};
  const change = (id, to) => {
    const e = document.getElementById(id);
    e.value = to; e.dispatchEvent(new Event("input"));
  };
  change("unreliable", "1e9");
  found.infinite = shaded("unreliable");
  change("doubtful", "1e9");
  found.later = shaded("doubtful");
  const out = document.createElement("pre");
  out.id = "found"; out.textContent = JSON.stringify(found);
  document.body.append(out);
};
wait();
</script></body>"""


@in_a_browser
def test_a_browser_shades_what_is_unreliable_from_where_the_reader_says(
    followed: dict[str, Any], tmp_path: Path
) -> None:
    before, _, after = render(followed["summary"]).rpartition("</body>")
    path = tmp_path / "report.html"
    path.write_text(with_policy(before + PROBE + after), encoding="utf-8")
    found = told(browsed(path, tmp_path / "profile", "--dump-dom"))
    assert found["drawn"] == "yes"
    assert (dict(found["charts"])["coverage"], dict(found["charts"])["one_release"]) == (1, 1)
    assert found["unreliable"] > 0
    assert found["unreliable"] % 4 == 0  # published, lower, upper, CV
    assert found["infinite"] <= found["unreliable"]  # where 0 was published, whatever the reader says
    assert found["later"] == 0
