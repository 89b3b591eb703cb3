"""The report's charts: what Vega draws is what the table of errors holds."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import vl_convert
from altair.vegalite.v6.schema.core import Root
from jsonschema import ValidationError

from support.reported import METHODS
from topdown.studies.discoveries import biased
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.chart_parts import LIGHTNESS
from topdown.studies.report.page import charts, render
from topdown.studies.report.sections import bias_map


def test_all_sections_have_a_chart(study: Mapping[str, Any], mapped: Mapping[str, Any]) -> None:
    everywhere = {"residuals", "bias", "predicted", "families", "wasserstein", "groups", "fund_groups", "distance"}
    assert charts(study["summary"]).keys() == everywhere
    assert charts(mapped["summary"]).keys() == {*everywhere, "map"}
    assert mapped["summary"]["map"]["cell"] in ("x", "y")
    bias = study["table"]["gls-top-down/rounded", "bias"]
    assert len(mapped["summary"]["map"]["features"]) == 17 == len(bias[study["table"].geography.tree.leaves])


def drawn(
    summary: Mapping[str, Any], section: str, made: Mapping[str, Any] | None = None
) -> list[tuple[str, dict[str, str]]]:
    """What Vega draws for a section: of every mark its kind and what it says that it shows, without a browser.
    ``made``: the charts of the summary, where there are some."""
    nodes, lowest = summary["nodes"], len(summary["levels"]) - 1
    # As the page's own script does: two charts take their rows from the table of nodes and from the map.
    leaves = [
        {"method": method, "geoid": nodes["geoid"][i], "cell": summary["cells"][nodes["cell"][i]]}
        | {
            "truth": nodes["truth"][i],
            "bias": found["bias"][i],
            "low": -found["bias_se"][i],
            "high": found["bias_se"][i],
        }
        for method, found in nodes["methods"].items()
        for i, level in enumerate(nodes["level"])
        if level == lowest
    ]
    spec: Any = (made or charts(dict(summary)))[section]
    given = {"leaves": leaves, "outlines": summary["map"]["features"]}
    svg = vl_convert.vegalite_to_svg({**spec, "datasets": {**spec.get("datasets", {}), **given}})
    marks = re.findall(r'aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="([^"]*)"', svg)
    return [(kind, dict(part.split(": ", 1) for part in says.split("; ") if ": " in part)) for says, kind in marks]


def as_number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def test_the_scatter_of_bias_shows_every_leaf_as_the_table_has_it(mapped: Mapping[str, Any]) -> None:
    table: ErrorTable = mapped["table"]
    points = [shown for kind, shown in drawn(mapped["summary"], "bias") if kind == "point"]
    found = sorted((p["geoid"], p["cell"], as_number(p["truth"]), as_number(p["bias (counts)"])) for p in points)
    leaves = range(table.geography.tree.leaves.start, table.geography.n_nodes)
    wanted = sorted(
        (table.geography.identifiers[node].as_py(), cell, float(table.truth[node, k]), table[method, "bias"][node, k])
        for method in METHODS
        for node in leaves
        for k, cell in enumerate(table.cells)
    )
    assert [one[:3] for one in found] == [one[:3] for one in wanted]
    assert [one[3] for one in found] == pytest.approx([one[3] for one in wanted], abs=1e-3, rel=1e-3)


def test_the_map_shows_every_leaf_s_bias(mapped: Mapping[str, Any]) -> None:
    table, cell = mapped["table"], mapped["table"].cells.index(mapped["summary"]["map"]["cell"])
    shapes = {
        shown["geoid"]: as_number(shown["bias"])
        for kind, shown in drawn(mapped["summary"], "map")
        if kind == "geoshape"
    }
    leaves = table.geography.tree.leaves
    names = table.geography.identifiers[leaves.start :].to_pylist()
    wanted = dict(zip(names, table["gls-top-down/rounded", "bias"][leaves, cell].tolist(), strict=True))
    assert shapes == pytest.approx(wanted, abs=1e-3, rel=1e-3)


def test_the_chart_of_families_shows_their_mean_variance(mapped: Mapping[str, Any]) -> None:
    table: ErrorTable = mapped["table"]
    points = [shown for kind, shown in drawn(mapped["summary"], "families") if kind == "point"]
    found = {(p["method"], p["geoid"]): as_number(p["measured"]) for p in points}
    wanted = {}
    for method in {method for method, _ in found}:
        for state in range(1, 4):
            counties = table.geography.tree.children(state)
            name = table.geography.identifiers[state].as_py()
            wanted[method, name] = float(table[method, "variance"][counties].mean())
    assert {"raw", "top-down/equality", "gls-top-down/rounded"} <= {method for method, _ in found}
    assert found == pytest.approx(wanted, rel=2e-3)


def test_every_other_chart_has_as_many_marks_as_it_has_numbers(mapped: Mapping[str, Any]) -> None:
    summary = mapped["summary"]
    made = charts(summary)
    marks = {name: [kind for kind, _ in drawn(summary, name, made)] for name in made if name != "map"}
    panels = len(summary["units"])
    assert marks["residuals"].count("area mark") == panels
    assert marks["residuals"].count("line mark") == panels * 3
    assert marks["predicted"].count("point") == marks["predicted"].count("rule mark") == 3 * 3 * len(summary["cells"])
    assert marks["wasserstein"].count("point") == 3 * 3
    assert marks["groups"].count("point") == marks["groups"].count("rule mark") - 1 > 0
    assert marks["fund_groups"].count("point") == marks["fund_groups"].count("rule mark") - 1 > 0
    assert marks["distance"].count("point") == 17


def test_the_chart_of_groups_shows_their_bias_in_percent(mapped: Mapping[str, Any]) -> None:
    summary = mapped["summary"]
    points = [shown for kind, shown in drawn(summary, "groups") if kind == "point"]
    found = {(p["group"], p["cell"]): as_number(p["bias, % of the mean count"]) for p in points}
    wanted = {
        (g["group"], g["cell"]): 100 * g["bias"] / g["mean_truth"]
        for g in summary["groups"]
        if g["method"] == summary["primary"] and g["grouping"] == "size class" and g["mean_truth"]
    }
    assert found == pytest.approx(wanted, rel=2e-3, abs=1e-3)


def test_the_chart_of_decisions_shows_every_unit_s_distance_from_the_cutoff(mapped: Mapping[str, Any]) -> None:
    table, summary = mapped["table"], mapped["summary"]
    points = [shown for kind, shown in drawn(summary, "distance") if kind == "point"]
    leaves = range(table.geography.tree.leaves.start, table.geography.n_nodes)
    truth = {table.geography.identifiers[node].as_py(): table.truth[node, 0] for node in leaves}
    found = {p["geoid"]: next(as_number(v) for k, v in p.items() if k.startswith("distance")) for p in points}
    assert found == pytest.approx({geoid: 100 * (count - 10) / 10 for geoid, count in truth.items()}, abs=0.1)


def test_every_chart_says_what_it_shows_and_is_of_vega_lites_schema(mapped: Mapping[str, Any]) -> None:
    for name, spec in charts(mapped["summary"]).items():
        assert len(spec["description"]) > 20, name
        Root.validate(spec)
        with pytest.raises(ValidationError, match="3 is not of type"):
            Root.validate({**spec, "config": {"title": 3}})


def test_colours_stand_out_on_white() -> None:
    """A contrast of 3 at least, by the rule of the W3C for what is not text."""
    for colour in LIGHTNESS:
        luminance = ((lightness(colour) + 16) / 116) ** 3
        assert 1.05 / (luminance + 0.05) >= 3


def lightness(colour: str) -> float:
    """CIE L* of a colour "#rrggbb": what is left of it in grey."""
    linear = [
        u / 12.92 if (u := int(colour[k : k + 2], 16) / 255) <= 0.04045 else ((u + 0.055) / 1.055) ** 2.4
        for k in (1, 3, 5)
    ]
    return float(116 * (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]) ** (1 / 3) - 16)


def test_colours_are_told_apart_in_grey() -> None:
    assert lightness("#ffffff") == pytest.approx(100)
    assert lightness("#777777") == pytest.approx(50, abs=0.5)
    series = sorted(map(lightness, LIGHTNESS))
    assert min(b - a for a, b in itertools.pairwise(series)) > 9
    shades = list(map(lightness, bias_map.SHADES))
    assert min(a - b for a, b in itertools.pairwise(shades)) > 6


def test_the_map_colours_only_what_is_clear(mapped: Mapping[str, Any]) -> None:
    found, table = mapped["summary"]["map"], mapped["table"]
    leaves, column = table.geography.tree.leaves, table.cells.index(found["cell"])
    clear = biased(table, found["method"], leaves, column)
    assert found["biased"] == clear.sum()
    assert [one["class"] != "no clear bias" for one in found["features"]] == clear.tolist()
    assert {one["class"] for one in found["features"]} <= set(found["classes"])
    assert found["classes"][3] == "no clear bias"
    assert len(found["classes"]) == len(set(found["classes"])) == len(bias_map.SHADES)
    for one in found["features"]:
        verb = one["class"].split()[0]
        assert verb in ("no", "raised" if one["bias"] > 0 else "lowered")
    page = render(mapped["summary"])
    assert f"{clear.sum()} of 17 counties have a bias that simulation error does not explain" in page
    assert "the false discovery rate is held at 5 % (Benjamini and Hochberg)" in page


def test_classes_of_the_map_hold_their_biases() -> None:
    steps = bias_map._steps(np.array([1.04, 2.0, 3.0, 4.0, 9.0, 10.0]))
    classes = bias_map._classes(steps)
    sizes = [-steps[1], -steps[0], -steps[0] / 2, None, steps[0] / 2, steps[0], steps[1]]
    assert [c for c, size in zip(classes, sizes, strict=True) if size is not None] == [
        bias_map._class(size, steps) for size in sizes if size is not None
    ]
