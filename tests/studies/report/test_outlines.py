"""Outlines of a map: GeoJSON and TopoJSON, matched to the leaves; what is none is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import topdown as td
from support.reported import nation, outline_file
from topdown.errors import DataError
from topdown.pages import leaf_outlines
from topdown.pages.leaf_outlines import read_outlines


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
        ("{", "cannot be read as outlines in JSON: Expecting property name"),
        ('{"type": "Feature"}', "is of type 'Feature'; give outlines as a GeoJSON FeatureCollection or a TopoJSON"),
        ('{"type": "FeatureCollection", "features": []}', "no outline has the GEOID of a unit"),
        ('{"type": "FeatureCollection"}', "features is missing; give a list of them"),
        (
            '{"type": "Topology", "arcs": [], "objects": {"a": {"geometries": [{"type": "Polygon", "arcs": [[3]]}]}}}',
            "geometry 1 refers to arcs that are not there",
        ),
        (
            '{"type": "Topology", "arcs": [], "objects": {"a": {"geometries": [{"type": "Polygon", "arcs": 7}]}}}',
            "the arcs of geometry 1 are a number; give a list of rings",
        ),
        ("[]", "is a list; give outlines as a GeoJSON"),
        ("5", "is a number; give outlines as a GeoJSON"),
        ("null", "is null; give outlines as a GeoJSON"),
        ("", "cannot be read as outlines in JSON"),
        ("\ud800", "not UTF-8"),
        ("1" * 5000, "cannot be read as outlines in JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"type": ["FeatureCollection"]}', "give outlines as a GeoJSON"),
        ('{"type": "FeatureCollection", "features": 3}', "features is a number; give a list of them"),
        ('{"type": "FeatureCollection", "features": [3]}', "feature 1 is a number; give an object with an outline"),
        ('{"type": "FeatureCollection", "features": [null]}', "feature 1 is null; give an object with an outline"),
        ('{"type": "FeatureCollection", "features": ["x"]}', "feature 1 is text; give an object with an outline"),
        ('{"type": "FeatureCollection", "features": [{"geometry": 3}]}', "the geometry of feature 1 is a number"),
        (
            '{"type": "FeatureCollection", "features": [{"geometry": null, "properties": [1]}]}',
            "the properties of feature 1 are a list; give an object",
        ),
        ('{"type": "FeatureCollection", "features": [], "crs": 3}', "malformed"),
        (
            '{"type": "FeatureCollection", "features": [], "crs": {"properties": {"name": "EPSG:3857"}}}',
            "has the crs EPSG:3857; give outlines in degrees of longitude and latitude",
        ),
        (
            '{"type": "FeatureCollection", "features": [], "crs": {"properties": {"name": "my own"}}}',
            "its crs 'my own' is not known; give outlines in degrees",
        ),
        ('{"type": "Topology"}', "arcs is missing; give a list of them"),
        ('{"type": "Topology", "arcs": []}', "malformed"),
        ('{"type": "Topology", "arcs": [], "objects": {}}', "none of its objects has geometries"),
        ('{"type": "Topology", "arcs": [], "objects": []}', "malformed"),
        ('{"type": "Topology", "arcs": [3], "objects": {"a": {"geometries": []}}}', "arc 1 is no list of points"),
        ('{"type": "Topology", "arcs": [], "transform": 3, "objects": {"a": {"geometries": []}}}', "malformed"),
        ('{"type": "Topology", "arcs": [], "transform": {"scale": [1], "translate": [1]}, "objects": {}}', "malformed"),
        (
            '{"type": "Topology", "arcs": [], "objects": {"a": {"geometries": [{"type": ["Polygon"]}]}}}',
            "geometry 1 has an outline of type",
        ),
    ],
)
def test_what_is_no_geometry_is_refused(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DataError, match=match):
        read_outlines(path, nation()[0])
    with pytest.raises(DataError, match=r"study.geometry: .*absent.json: no such file"):
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


def test_the_polygons_of_a_collection_are_drawn(tmp_path: Path) -> None:
    path = feature_file(tmp_path, '[], "geometries": [{"type": "Point", "coordinates": [0, 0]}]', "GeometryCollection")
    assert len(read_outlines(path, nation()[0]).geometries) == 1
    polygon = json.dumps({"type": "Polygon", "coordinates": [SQUARE]})
    path = feature_file(tmp_path, f'[], "geometries": [{polygon}]', "GeometryCollection")
    found = read_outlines(path, nation()[0]).geometries
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["polygon", "Circle"])
def test_an_outline_of_a_type_that_is_not_known_is_not_left_out(tmp_path: Path, kind: str) -> None:
    """The map would lack a unit, and nobody would know."""
    with pytest.raises(DataError, match=f"has an outline of type '{kind}'; give Polygon or MultiPolygon"):
        read_outlines(feature_file(tmp_path, "[[[0, 0], [0, 1], [1, 1], [0, 0]]]", kind), nation()[0])


@pytest.mark.parametrize("far", ["1e8", "361", "1e300"])
def test_outlines_in_metres_are_refused(tmp_path: Path, far: str) -> None:
    """The map would be one of nothing."""
    with pytest.raises(DataError, match=r"map.json: the outline of county 'C11' .* coordinates that are no degrees"):
        read_outlines(feature_file(tmp_path, f"[[[{far}, 0], [0, 10], [0, 0]]]"), nation()[0])
    with pytest.raises(DataError, match=r"no degrees; give outlines in degrees of longitude and latitude \(WGS 84\)"):
        read_outlines(feature_file(tmp_path, "[[[0, 91], [0, 10], [9, 0], [0, 91]]]"), nation()[0])


def test_two_outlines_of_one_unit_are_refused(tmp_path: Path) -> None:
    path = feature_file(tmp_path, json.dumps([SQUARE]))
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"features": document["features"] * 2}))
    with pytest.raises(DataError, match=r"map.json: two outlines of county 'C10' .*; join them into one"):
        read_outlines(path, nation()[0])


def right_side(ring: list[list[float]]) -> float:
    """The area to the right of a ring that is densely drawn, where it is small: by the distances of its points east of
    the first one, and the areas of their zones."""
    lon, lat = np.radians(np.array(ring, float)).T
    by = (np.diff(lon) + np.pi) % (2 * np.pi) - np.pi
    zone = np.sin((lat[:-1] + lat[1:]) / 2)
    return float((np.sum(by * (zone + 1))) % (4 * np.pi))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("ring", "area"),
    [
        ([[179, 0], [179, 5], [-179, 5], [-179, 0], [179, 0]], 0.003),
        ([[179, 0], [179, 5], [181, 5], [181, 0], [179, 0]], 0.003),
        ([[-170, 60], [170, 60], [170, 50], [-170, 50], [-170, 60]], 0.035),
        ([[-180, -90], *([k, -70] for k in range(-180, 181, 2)), [180, -90], [-180, -90]], 0.379),
        ([[k, 80] for k in range(-180, 181, 2)], 0.095),
    ],
)
def test_outlines_across_the_date_line_and_around_a_pole_are_filled_inside(
    tmp_path: Path, ring: list[list[float]], area: float, turned: bool
) -> None:
    """d3 fills what lies to the right of a ring on the sphere."""
    path = feature_file(tmp_path, json.dumps([ring[::-1] if turned else ring]))
    drawn = read_outlines(path, nation()[0]).geometries[1]["coordinates"][0][0]
    assert right_side(drawn) == pytest.approx(area, rel=0.05)


@pytest.mark.parametrize(
    "coordinates",
    ["[[[1, 2, 3]]]", "[[[0, 0]]]", "[[[0, 0], [0, 0]]]", "[[[1e-300, 0], [0, 1e-300], [0, 0]]]"],
)
def test_rings_without_an_area_are_not_drawn(tmp_path: Path, coordinates: str) -> None:
    assert len(read_outlines(feature_file(tmp_path, coordinates), nation()[0]).geometries) == 1


@pytest.mark.parametrize(
    "coordinates",
    ["3", "null", '"x"', "{}", "[3]", "[null]", "[[3]]", "[[[]]]", "[[[1]]]", "[[[1, 2], [3]]]", '[[["1", "2"]]]',
     "[[[1, null]]]", "[[[1, [2]]]]", "[[[1, NaN]]]", "[[[1, Infinity]]]", "[[[1, 1e999]]]",
     f"[[[1, {10**400}]]]", "[" * 500 + "]" * 500, '[[{"0": 1, "1": 2}]]'],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["Polygon", "MultiPolygon"])
def test_rings_that_are_none_are_refused(tmp_path: Path, coordinates: str, kind: str) -> None:
    text = coordinates if kind == "Polygon" else f"[{coordinates}]"
    with pytest.raises(DataError, match=r"map.json: study.geometry(: .* give .*rings|.* cannot be read|.*malformed)"):
        read_outlines(feature_file(tmp_path, text, kind), nation()[0])


def test_no_outline_has_an_area_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring that the grid leaves no area is drawn by d3 as all that lies beside it: it is drawn finer, and one that
    has no area is not drawn."""
    monkeypatch.setattr(leaf_outlines, "_MOST_POINTS", 30)
    geography = td.Geography.from_geoids([f"{k:02d}" for k in range(12)], widths={"area": 2}, root="US")
    rings = [[[k, 0.0], [k, 0.001 * k], [k + 0.001, 0.001 * k], [k + 0.002, 0.0], [k, 0.0]] for k in range(11)]
    rings.append([[11, 0], [11, 5], [11, 0], [11, 0]])
    features = [
        {"type": "Feature", "id": f"{k:02d}", "geometry": {"type": "Polygon", "coordinates": [ring]}}
        for k, ring in enumerate(rings)
    ]
    (tmp_path / "map.json").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    found = read_outlines(tmp_path / "map.json", geography)
    assert found.leaves.tolist() == list(range(1, 11))  # the first and the last have no area
    for geometry in found.geometries:
        x, y = np.array(geometry["coordinates"][0][0]).T
        assert np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]) < 0  # clockwise
