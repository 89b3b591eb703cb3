"""The report: summary against the table of errors, outlines, page; the page drawn by a browser where there is one."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

import topdown as td
from topdown.errors import ConfigError
from topdown.evaluation.errors_table import ErrorTable
from topdown.evaluation.fairness import GroupMean, size_classes
from topdown.report import words
from topdown.report.charts import charts
from topdown.report.geometry import read_outlines
from topdown.report.page import embedded, render
from topdown.report.residuals import residual_rows, shown_units
from topdown.report.summary import Groupings, rounded, summarise

EVIL = '<b>x</b>&"</script><script>document.title="taken"</script>'
SIZES = {"A": 2, "B": 3, "C": 12}
METHODS = ["raw", "top-down/equality", "top-down", "gls", "gls-top-down", "gls-top-down/rounded"]
PLAN = td.Plan(epsilon="0.5", shares={"nation": "0.2", "state": "0.3", "county": "0.5"})


def nation() -> tuple[td.Geography, td.Counts, tuple[str, ...]]:
    rows = [
        {"nation": "US", "state": s, "county": f"{s}{k:02d}", "name": f"county {s}{k}", "x": 4 * k, "y": 50 + 9 * k}
        for s, n in SIZES.items()
        for k in range(n)
    ]
    rows[0]["name"] = EVIL
    frame = pd.DataFrame(rows)
    geography = td.Geography.from_table(frame, ["nation", "state", "county"], name={"county": "name"})
    counts = td.Counts.from_table(frame, geography, geoid="county", cells=["x", "y"])
    labels = tuple("<i>coast</i>" if k % 3 else "inland" for k in range(len(rows)))
    return geography, counts, labels


def groupings(counts: td.Counts, labels: tuple[str, ...]) -> Groupings:
    leaves = counts.values[counts.geography.tree.leaves]
    return Groupings(
        tuple(size_classes(leaves.sum(axis=1), [100, 150])),
        {cell: tuple(size_classes(leaves[:, k], [10, 100])) for k, cell in enumerate(counts.cells)},
        {"region": labels},
    )


def studied(plan: td.Plan = PLAN, methods: list[str] = METHODS, replicates: int = 3000, **more: Any) -> dict[str, Any]:
    """A small study's table and summary."""
    _, counts, labels = nation()
    grouped = groupings(counts, labels)
    fund, cut = td.FundShare("x"), td.Threshold("x", 10.0)
    means = [
        GroupMean(cell, name, by[cell])
        for name, by in grouped.for_counts(counts.cells).items()
        for cell in counts.cells
    ]
    outlines = more.pop("outlines", None)
    table = td.simulate(counts, plan, methods, replicates, 3, rules=[fund, cut, *means], **more)
    summary = summarise(
        table,
        plan.for_levels(counts.geography.levels),
        title=f"counts of {EVIL}",
        released="gls-top-down",
        groupings=grouped,
        funds=[fund.label],
        thresholds=[cut.label],
        outlines=outlines,
        seed=3,
        wanted=replicates,
    )
    return {"table": table, "summary": summary, "plan": plan}


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    return studied()


def outline_file(tmp_path: Path) -> Path:
    """A square per leaf, in a row, as GeoJSON with counterclockwise rings (RFC 7946)."""
    geography, _, _ = nation()
    first = geography.tree.leaves.start
    features = []
    for k, geoid in enumerate(geography.identifiers[first:].to_pylist()):
        ring = [[k, 0], [k + 1, 0], [k + 1, 1], [k, 1], [k, 0]]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": {"code": geoid, "k": k}, "geometry": geometry})
    path = tmp_path / "outlines.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


# -- summary ----------------------------------------------------------------------------------------------------------


def test_every_number_of_the_overview_comes_from_the_table(study: Mapping[str, Any]) -> None:
    table: ErrorTable = study["table"]
    frame = table.to_frame()
    for row in study["summary"]["overview"]:
        part = frame[(frame.level == row["level"]) & (frame.cell == row["cell"]) & (frame.method == row["method"])]
        assert row["mean_bias"] == pytest.approx(part.bias.mean(), rel=1e-3, abs=1e-12)
        assert row["largest_bias"] == pytest.approx(part.bias.abs().max(), rel=1e-3)
        assert row["rmse"] == pytest.approx(np.sqrt(part.mse.mean()), rel=1e-3)
        assert row["sd"] == pytest.approx(np.sqrt(part.variance.mean()), rel=1e-3)
        assert row["wasserstein"] == pytest.approx(part.wasserstein_corrected.mean(), rel=1e-3)


def test_the_table_of_nodes_is_the_table_of_errors(study: Mapping[str, Any]) -> None:
    table, nodes = study["table"], study["summary"]["nodes"]
    assert nodes["all_rows"] == len(nodes["geoid"]) == table.truth.size
    for method, columns in nodes["methods"].items():
        np.testing.assert_allclose(columns["bias"], table[method, "bias"].reshape(-1), rtol=1e-3)
        np.testing.assert_allclose(columns["rmse"], np.sqrt(table[method, "mse"].reshape(-1)), rtol=1e-3)
        np.testing.assert_allclose(columns["zeros"], table[method, "zeros"].reshape(-1), rtol=1e-3)
    assert nodes["truth"] == table.truth.reshape(-1).tolist()


def test_a_large_table_keeps_the_inner_nodes_and_the_most_biased(
    study: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from topdown.report import summary as module

    monkeypatch.setattr(module, "_MOST_ROWS", 12)
    nodes = module._nodes(study["table"], "gls-top-down")
    assert len(nodes["geoid"]) == 12
    assert nodes["geoid"][:8] == ["US", "US", "A", "A", "B", "B", "C", "C"]
    leaves = study["table"].geography.tree.leaves
    bias = np.sort(np.abs(study["table"]["gls-top-down", "bias"][leaves].reshape(-1)))
    np.testing.assert_allclose(np.sort(np.abs(nodes["methods"]["gls-top-down"]["bias"][8:])), bias[-4:])


def test_the_findings_are_three_sentences_with_the_summary_s_numbers(study: Mapping[str, Any]) -> None:
    summary = study["summary"]
    accuracy, bias, gains = summary["findings"]
    assert all(sentence.endswith(".") and re.search(r"\d", sentence) for sentence in summary["findings"])
    table = study["table"]
    rmse = np.sqrt(table["gls-top-down", "mse"][table.geography.tree.leaves].mean())
    assert accuracy.startswith(f"Over 3,000 replicates, gls-top-down has a root mean squared error of {rmse:.3g} ")
    group = max(
        (g for g in summary["groups"] if g["method"] == "gls-top-down" and g["grouping"] == "size class"),
        key=lambda g: abs(g["bias"]),
    )
    assert f"in the class “{group['group']}” up by {words.number(group['bias'])} on average" in bias
    moved = next(m for m in summary["funds"][0]["moved"] if m["method"] == "gls-top-down")
    assert words.number(moved["moved"]) in gains


def test_without_bias_the_findings_say_so() -> None:
    found = studied(methods=["raw", "gls"], replicates=400)["summary"]
    assert found["primary"] == "gls"
    assert found["findings"][1].startswith("No size class of counts shows a bias")


def test_shown_units_are_the_extremes(study: Mapping[str, Any]) -> None:
    table = study["table"]
    units = {why: u for u in shown_units(table, "gls-top-down") for why in u["why"].split(", ")}
    truth = table.truth[table.geography.tree.leaves]
    assert units["smallest"]["truth"] == truth.min()
    assert units["largest"]["truth"] == truth.max()
    bias = np.abs(table["gls-top-down", "bias"][table.geography.tree.leaves])
    assert abs(units["most biased"]["bias"]) == bias.max()


def test_a_unit_that_is_both_smallest_and_most_biased_is_shown_once(study: Mapping[str, Any]) -> None:
    table = study["table"]
    leaves = table.geography.tree.leaves
    smallest = leaves.start + int(table.truth[leaves, 0].argmin())
    bias = np.zeros(table.truth.shape)
    bias[smallest, 0], bias[-1, 1] = 9.0, 5.0
    changed = {**table.statistics, "top-down": {**table.statistics["top-down"], "bias": bias}}
    units = shown_units(dataclasses.replace(table, statistics=changed), "top-down")
    assert units[0]["why"] == "smallest, most biased"
    assert len({(u["node"], u["cell"]) for u in units}) == len(units)


def test_densities_hold_the_replicates_and_the_noise_law(study: Mapping[str, Any]) -> None:
    rows = residual_rows(study["table"], study["plan"], "gls-top-down")
    raw = rows[rows.method == "raw"]
    law = td.noise.DiscreteLaplace(4)
    for _, part in raw.groupby(["geoid", "cell"]):
        assert part["count"].sum() >= 0.99 * 3000
        assert part["noise_share"].sum() == pytest.approx(1.0, abs=0.02)
        # Bins hold [from, to): each integer's probability lies in one of them.
        expected = [
            sum(float(law.pmf(k)) for k in range(int(np.ceil(a)), int(np.ceil(b))))
            for a, b in zip(part["residual_from"], part["residual_to"], strict=True)
        ]
        np.testing.assert_allclose(part["noise_share"], expected, atol=1e-12)
        # The simulation agrees with the law, and would not were it shifted by a bin.
        share, noise = part["share"].to_numpy(), part["noise_share"].to_numpy()
        limit = len(noise) + 8 * np.sqrt(2 * len(noise))
        assert (3000 * (share - noise) ** 2 / noise).sum() < limit
        assert (3000 * (np.roll(share, 1) - noise) ** 2 / noise).sum() > limit


def test_the_wasserstein_curve_is_the_theory(study: Mapping[str, Any]) -> None:
    curve = study["summary"]["wasserstein"]
    assert curve["lattice"] is True
    for point in curve["theory"]:
        exact = td.theory.wasserstein_to_noise(point["family_size"], 4.0, law="geometric")
        assert point["distance"] == pytest.approx(exact, rel=1e-3)


def test_numbers_are_rounded_and_what_is_not_finite_is_none() -> None:
    given = {"a": np.float64(1.23456), "b": [np.nan, np.inf, np.int64(123456)], "c": np.array([True]), "d": "x"}
    assert rounded(given) == {"a": 1.235, "b": [None, None, 123456], "c": [True], "d": "x"}


def test_words() -> None:
    assert [words.number(x) for x in (None, 0.0, -1234.6, 0.0001234, 12.345)] == [
        "–",
        "0",
        "−1,235",
        "1.2e-04".replace("-", "−"),
        "12.3",
    ]
    assert [words.many(n, one) for n, one in ((1, "county"), (2, "county"), (1200, "state"), (2, "day"))] == [
        "1 county", "2 counties", "1,200 states", "2 days",
    ]  # fmt: skip
    assert [words.percent(x) for x in (0.5, 0.00001, None, 0.0)] == ["50 %", "< 0.01 %", "–", "0 %"]
    assert words.signed(2.0) == "+2"


# -- outlines ---------------------------------------------------------------------------------------------------------


def test_outlines_are_matched_by_property_and_wound_for_the_map(tmp_path: Path) -> None:
    geography, _, _ = nation()
    found = read_outlines(outline_file(tmp_path), geography)
    assert found.leaves.tolist() == list(range(17))
    assert found.projection == "mercator"
    for k, geometry in enumerate(found.geometries):
        ring = np.array(geometry["coordinates"][0][0])
        np.testing.assert_allclose([ring.min(axis=0), ring.max(axis=0)], [[k, 0], [k + 1, 1]], atol=1e-2)
        area = np.sum(ring[:-1, 0] * ring[1:, 1] - ring[1:, 0] * ring[:-1, 1]) / 2
        assert area == pytest.approx(-1, abs=0.05)  # clockwise: counterclockwise, d3 would fill the rest of the globe


def test_topojson_gives_the_same_outlines(tmp_path: Path) -> None:
    geography, _, _ = nation()
    codes = geography.identifiers[geography.tree.leaves.start :].to_pylist()[:2]
    # Two squares that share the arc x = 1; quantised by 0.5 and shifted by 10.
    arcs = [[[2, 0], [0, 2]], [[2, 2], [-2, 0], [0, -2], [2, 0]], [[2, 0], [2, 0], [0, 2], [-2, 0]]]
    topology = {
        "type": "Topology",
        "transform": {"scale": [0.5, 0.5], "translate": [10, 0]},
        "arcs": arcs,
        "objects": {
            "nation": {"type": "GeometryCollection", "geometries": [{"type": "MultiPolygon", "arcs": []}]},
            "counties": {
                "type": "GeometryCollection",
                "geometries": [
                    {"type": "Polygon", "id": codes[0], "arcs": [[0, 1]]},
                    {"type": "MultiPolygon", "id": codes[1], "arcs": [[[2, -1]]]},
                ],
            },
        },
    }
    path = tmp_path / "counties.topojson"
    path.write_text(json.dumps(topology))
    found = read_outlines(path, geography)
    assert found.leaves.tolist() == [0, 1]
    for k, geometry in enumerate(found.geometries):
        ring = np.array(geometry["coordinates"][0][0])
        np.testing.assert_allclose([ring.min(axis=0), ring.max(axis=0)], [[10 + k, 0], [11 + k, 1]], atol=1e-3)
        np.testing.assert_array_equal(ring[0], ring[-1])
        area = np.sum(ring[:-1, 0] * ring[1:, 1] - ring[1:, 0] * ring[:-1, 1]) / 2
        assert area == pytest.approx(-1, abs=0.01)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "cannot be read as JSON"),
        ('{"type": "Feature"}', "give a GeoJSON FeatureCollection or a TopoJSON"),
        ('{"type": "FeatureCollection", "features": []}', "no feature's id or property"),
        ('{"type": "FeatureCollection"}', "malformed"),
        (
            '{"type": "Topology", "arcs": [], "objects": {"a": {"geometries": [{"type": "Polygon", "arcs": [[3]]}]}}}',
            "malformed",
        ),
        ("[]", "give a GeoJSON"),
        ("", "cannot be read as JSON"),
        ("\ud800", "not UTF-8"),
        ("1" * 5000, "cannot be read as JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"type": ["FeatureCollection"]}', "give a GeoJSON"),
        ('{"type": "FeatureCollection", "features": 3}', "malformed"),
        ('{"type": "FeatureCollection", "features": [3]}', "malformed"),
        ('{"type": "FeatureCollection", "features": [{"geometry": 3}]}', "malformed"),
        ('{"type": "FeatureCollection", "features": [{"geometry": null, "properties": 3}]}', "malformed"),
        ('{"type": "Topology"}', "malformed"),
        ('{"type": "Topology", "arcs": [], "objects": {}}', "malformed"),
        ('{"type": "Topology", "arcs": [], "objects": []}', "malformed"),
        ('{"type": "Topology", "arcs": [3], "objects": {"a": {"geometries": []}}}', "malformed"),
        ('{"type": "Topology", "arcs": [], "transform": 3, "objects": {"a": {"geometries": []}}}', "malformed"),
        ('{"type": "Topology", "arcs": [], "transform": {"scale": [1], "translate": [1]}, "objects": {}}', "malformed"),
        ('{"type": "Topology", "arcs": [], "objects": {"a": {"geometries": [{"type": ["Polygon"]}]}}}', "malformed"),
    ],
)
def test_what_is_no_geometry_is_refused(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError, match=match):
        read_outlines(path, nation()[0])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_outlines(tmp_path / "absent.json", nation()[0])


SQUARE = [[0, 0], [0, 1], [1, 1], [1, 0], [0, 0]]


def feature_file(folder: Path, coordinates: str, kind: str = "Polygon") -> Path:
    """One feature that is drawn, and beside it one of ``coordinates``; both are leaves."""
    codes = nation()[0].identifiers[-2:].to_pylist()
    sound = json.dumps({"type": "Feature", "id": codes[0], "geometry": {"type": "Polygon", "coordinates": [SQUARE]}})
    other = f'{{"type": "Feature", "id": "{codes[1]}", "geometry": {{"type": "{kind}", "coordinates": {coordinates}}}}}'
    path = folder / "map.json"
    path.write_text(f'{{"type": "FeatureCollection", "features": [{sound}, {other}]}}')
    return path


@pytest.mark.parametrize(
    ("coordinates", "kind"),
    [
        ("[]", "Polygon"),
        ("[[]]", "Polygon"),
        ("[[], [[0, 0], [1, 1], [0, 1], [0, 0]]]", "Polygon"),
        ("[]", "MultiPolygon"),
        ("[[]]", "MultiPolygon"),
        ("[[[]]]", "MultiPolygon"),
        ("[1, 2]", "Point"),
        ("[[1, 2], [3, 4]]", "LineString"),
    ],
)
def test_parts_without_an_area_are_not_drawn(tmp_path: Path, coordinates: str, kind: str) -> None:
    found = read_outlines(feature_file(tmp_path, coordinates, kind), nation()[0])
    assert len(found.geometries) == 1
    assert found.leaves.tolist() == [nation()[0].n_leaves - 2]


@pytest.mark.parametrize(
    "coordinates",
    ["[[[1, 2, 3]]]", "[[[0, 0]]]", "[[[0, 0], [0, 0]]]", "[[[1e-300, 0], [0, 1e-300], [0, 0]]]",
     "[[[1e8, 0], [0, 1e8], [0, 0]]]"],
)  # fmt: skip
def test_small_and_large_rings_are_drawn(tmp_path: Path, coordinates: str) -> None:
    found = read_outlines(feature_file(tmp_path, coordinates), nation()[0])
    assert len(found.geometries) == 2
    assert np.isfinite([point for g in found.geometries for p in g["coordinates"] for r in p for point in r]).all()


@pytest.mark.parametrize(
    "coordinates",
    ["3", "null", '"x"', "{}", "[3]", "[null]", "[[3]]", "[[[]]]", "[[[1]]]", "[[[1, 2], [3]]]", '[[["1", "2"]]]',
     "[[[1, null]]]", "[[[1, [2]]]]", "[[[1, NaN]]]", "[[[1, Infinity]]]", "[[[1, 1e999]]]", "[[[1, 1e300]]]",
     f"[[[1, {10**400}]]]", "[" * 500 + "]" * 500, '[[{"0": 1, "1": 2}]]'],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["Polygon", "MultiPolygon"])
def test_rings_that_are_none_are_refused(tmp_path: Path, coordinates: str, kind: str) -> None:
    text = coordinates if kind == "Polygon" else f"[{coordinates}]"
    with pytest.raises(ConfigError, match=r"map.json: study.geometry (is malformed|cannot be read)"):
        read_outlines(feature_file(tmp_path, text, kind), nation()[0])


# -- page -------------------------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A study with outlines: its table and summary."""
    outlines = read_outlines(outline_file(tmp_path_factory.mktemp("outlines")), nation()[0])
    return studied(replicates=200, outlines=outlines)


def test_all_sections_have_a_chart(study: Mapping[str, Any], mapped: Mapping[str, Any]) -> None:
    made = charts(study["summary"])
    assert {name for name, spec in made.items() if spec is None} - {"noise"} == {"map"}
    assert None not in charts(mapped["summary"]).values()
    assert mapped["summary"]["map"]["cell"] in ("x", "y")
    bias = study["table"]["gls-top-down", "bias"]
    assert len(mapped["summary"]["map"]["features"]) == 17 == len(bias[study["table"].geography.tree.leaves])


def drawn(summary: Mapping[str, Any], section: str) -> list[tuple[str, dict[str, str]]]:
    """What Vega draws for a section: of every mark its kind and what it says that it shows, without a browser."""
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
    spec: Any = charts(dict(summary))[section]
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
    wanted = dict(zip(names, table["gls-top-down", "bias"][leaves, cell].tolist(), strict=True))
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
    assert {"raw", "top-down/equality", "gls-top-down"} <= {method for method, _ in found}
    assert found == pytest.approx(wanted, rel=2e-3)


def test_every_other_chart_has_as_many_marks_as_it_has_numbers(mapped: Mapping[str, Any]) -> None:
    summary = mapped["summary"]
    marks = {name: [kind for kind, _ in drawn(summary, name)] for name in charts(summary) if name != "map"}
    panels = len(summary["units"])
    assert marks["residuals"].count("area mark") == panels
    assert marks["residuals"].count("line mark") == panels * 3
    assert marks["predicted"].count("point") == marks["predicted"].count("rule mark") == 3 * 3 * len(summary["cells"])
    assert marks["wasserstein"].count("point") == 3 * 3
    assert marks["groups"].count("point") == marks["groups"].count("rule mark") - 4 > 0
    bars = [as_number(shown["moved"]) for kind, shown in drawn(summary, "fund") if kind == "bar"]
    assert len(bars) == len(METHODS)
    assert all(0 < moved < 1e6 for moved in bars)


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
    grouped = Groupings(("a",), {"x": ("a",)}, {})
    summary = summarise(table, td.Plan(epsilon=1).for_levels(["all"]), title="", released="top-down", groupings=grouped)
    assert "What was run" in render(summary)


# -- in a browser -----------------------------------------------------------------------------------------------------

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

PROBE = """<script>
const wait = () => document.body.dataset.drawn ? probe() : setTimeout(wait, 50);
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


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the page is not drawn")
def test_a_browser_draws_the_page(study: Mapping[str, Any], tmp_path: Path) -> None:
    """Every chart is drawn, no console message, and the table of units can be searched, sorted and downloaded."""
    outlines = read_outlines(outline_file(tmp_path), study["table"].geography)
    path = tmp_path / "report.html"
    page = render({**study["summary"], "map": studied(replicates=40, outlines=outlines)["summary"]["map"]})
    before, _, after = page.rpartition("</body>")
    path.write_text(before + PROBE + after, encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --enable-logging=stderr --v=0 --virtual-time-budget=20000"
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    raw = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert raw is not None, done.stdout[-500:]
    found = json.loads(raw.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert found["drawn"] == "yes"
    assert dict(found["charts"]) == dict.fromkeys(
        ["residuals", "bias", "map", "predicted", "families", "wasserstein", "groups", "fund"], 1
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
