"""The report's sections: each is whole, and one more is a module, a fragment and a line of the registry."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from markupsafe import escape

from support.places import REPOSITORY
from support.reported import EVIL
from topdown.studies.noise_comparison import NoiseVariant
from topdown.studies.report.page import charts, render
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary
from topdown.studies.report.sections import registry
from topdown.studies.report.summary import summarise

PACKAGES = ("topdown.studies.report.sections", "topdown.research.sections")
SECTIONS = registry.sections()


# -- one more ---------------------------------------------------------------------------------------------------------


def largest_numbers(results: StudyResults) -> Summary:
    return {"largest": {"unit": EVIL, "count": results.table.truth.max()}}


def largest_chart(summary: Summary) -> alt.TopLevelMixin | None:
    value = summary["largest"]["count"]
    return alt.Chart(alt.InlineData([{"count": value}])).mark_bar().encode(x="count:Q") if value else None


@pytest.fixture
def one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Section:
    """A section for a while, the last but one."""
    fragment = tmp_path / "largest.html.jinja"
    fragment.write_text(
        '<h2 id="largest">Largest count</h2>\n<p>{{ s.largest.unit }} has {{ s.largest.count | count }}.</p>\n'
        '<div class="chart" data-chart="largest"></div>\n'
    )
    section = Section(
        "largest",
        fragment,
        largest_numbers,
        charts={"largest": Chart("The largest count of every cell", largest_chart)},
        link="Largest",
        data=("largest",),
    )
    monkeypatch.setattr(registry, "SECTIONS", [*SECTIONS[:-1], section, SECTIONS[-1]])
    return section


def embedded_in(page: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def test_one_more_section_is_in_summary_charts_and_page(study: Mapping[str, Any], one_more: Section) -> None:
    summary = summarise(study["results"])
    largest = int(study["table"].truth.max())
    assert summary.pop("largest") == {"unit": EVIL, "count": largest}
    assert summary == study["summary"]
    summary = summarise(study["results"])
    made = charts(summary)
    assert made.keys() == {*charts(study["summary"] | {"largest": {"count": 0}}), "largest"}
    assert made["largest"]["mark"] == {"type": "bar"}
    page = render(summary)
    assert f"<p>{escape(EVIL)} has {largest:,}.</p>" in page
    assert page.index('<h2 id="favoured"') < page.index('<h2 id="largest"') < page.index('<h2 id="appendix"')
    assert '<a href="#largest">Largest</a>' in page
    data = embedded_in(page)
    assert data["charts"]["largest"] == made["largest"]
    assert data["largest"]["count"] == largest


def test_a_section_whose_chart_has_no_data_is_not_on_the_page(study: Mapping[str, Any], one_more: Section) -> None:
    page = render({**study["summary"], "largest": {"unit": "", "count": 0}})
    assert 'id="largest"' not in page
    assert "#largest" not in page


# -- every one --------------------------------------------------------------------------------------------------------


def once(names: list[str]) -> bool:
    return max(Counter(names).values()) == 1


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_a_section_s_fragment_has_a_place_for_each_of_its_charts(section: Section) -> None:
    text = section.template.read_text(encoding="utf-8")
    assert Counter(re.findall(r'data-chart="(\w+)"', text)) == Counter(section.charts.keys())
    assert (f'<h2 id="{section.name}">' in text) or not section.link


def test_every_module_of_a_section_has_its_fragment_and_its_line_in_the_registry() -> None:
    found = []
    for package in PACKAGES:
        folder = Path(importlib.import_module(package).__path__[0])
        modules = sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "registry"))
        here = [importlib.import_module(f"{package}.{name}").SECTION for name in modules]
        assert [section.template.name for section in here] == [f"{name}.html.jinja" for name in modules]
        assert sorted(path.name for path in folder.glob("*.jinja")) == [f"{name}.html.jinja" for name in modules]
        found += here
    assert Counter(map(id, found)) == Counter(map(id, SECTIONS))
    assert once([section.name for section in SECTIONS])
    assert once([name for section in SECTIONS for name in section.charts])


def test_no_number_is_given_by_two_sections(study: Mapping[str, Any]) -> None:
    results: StudyResults = study["results"]
    named = NoiseVariant("other", results.plan, results.table)
    variants = [NoiseVariant("unbounded", results.plan, results.table), named]
    both = dataclasses.replace(results, variants=variants)
    keys = [key for section in SECTIONS for key in section.numbers(both)]
    assert "noise_comparison" in keys
    assert once(keys)
    common = summarise(results).keys() - {key for section in SECTIONS for key in section.numbers(results)}
    assert common == {
        "title",
        "notice",
        "public_input",
        "primary",
        "released",
        "methods",
        "cells",
        "levels",
        "unit",
        "tolerance",
        "cards",
        "comparisons",
    }
    for section in SECTIONS:
        assert set(section.data) <= section.numbers(results).keys()


def test_results_do_not_show_the_counts(study: Mapping[str, Any]) -> None:
    assert repr(study["results"]) == object.__repr__(study["results"])


# -- installed --------------------------------------------------------------------------------------------------------


def test_a_wheel_holds_every_fragment(tmp_path: Path) -> None:
    """Unpacked as an installer does it, the package finds its fragments in itself."""
    pytest.importorskip("hatchling", reason="no build backend on this machine: the wheel is not built")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    read = (
        "import json; from topdown.studies.report.sections import registry;"
        "print(json.dumps([[str(s.template), s.template.read_text(encoding='utf-8')] for s in registry.sections()]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", read], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert all(Path(place).is_relative_to(tmp_path / "site") for place, _ in found)
    assert [text for _, text in found] == [section.template.read_text(encoding="utf-8") for section in SECTIONS]
