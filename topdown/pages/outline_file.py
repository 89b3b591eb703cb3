"""Outlines of units in GeoJSON or TopoJSON: reads their features, and refuses what is none.

What draws outlines and what writes them to other files read them here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.tables.readers import require_file
from topdown.wording import reason, shown, shown_path

ID = "\0id"
"""What a feature's id is called among its properties, which may have one of their own."""

_DEGREES = 4326
"""The EPSG number of WGS 84, in degrees: the system of GeoJSON, of which OGC:CRS84 is another name."""

_CRS = re.compile(r"(?:urn:ogc:def:crs:)?(EPSG|OGC):(?:[\w.]*:)?(\w+)")

_MOST_LONGITUDE, _MOST_LATITUDE = 360.0, 90.0
"""Longitudes may be counted on beyond 180, as for a unit across the date line."""

_WITHOUT_AREA = (None, "Point", "MultiPoint", "LineString", "MultiLineString")
"""Types of geometry without an area, which are not drawn; None: a TopoJSON object of a unit without an outline."""

_MALFORMED = (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)

_KINDS: dict[type, str] = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}

Ring = FloatArray  # (points, 2): longitude, latitude


class Feature(NamedTuple):
    """A feature: its id and properties (``labels``, the id by the name `ID`), its ``geometry`` as GeoJSON, None where
    it has none, and its ``polygons``, the outer ring of each first.
    """

    labels: dict[str, Any]
    geometry: dict[str, Any] | None
    polygons: list[list[Ring]]


class OutlineFile(NamedTuple):
    """The ``features`` of a file, and the EPSG number of the system of their coordinates (``crs``)."""

    features: list[Feature]
    crs: int


def outline_file(path: Path, setting: str = "geometry") -> OutlineFile:
    """The features of the GeoJSON or TopoJSON file at ``path``; ``setting``: the setting or option that names it.

    Raises `DataError` for a file that is neither, and for features that are none.
    """
    try:
        document = json.loads(require_file(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        said = reason(error)
    except RecursionError:
        said = "its brackets are nested too deeply"
    except DataError as error:
        raise DataError(f"{setting}: {error}") from None
    except ValueError as error:
        said = f"{error.msg} in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else reason(error)
    else:
        return outlines_of(document, path, setting)
    raise DataError(
        f"{shown_path(path)}: {setting} cannot be read as outlines in JSON: {said}; correct the path or the file"
    )


def outlines_of(document: Any, path: Path, setting: str) -> OutlineFile:
    """As `outline_file`, of the ``document`` that was read from ``path``."""
    kind = document.get("type") if isinstance(document, dict) else None
    readers = {"FeatureCollection": _features, "Topology": _topology}
    begin = f"{shown_path(path)}: {setting}"
    if not isinstance(kind, str) or kind not in readers:
        what = f"is of type {shown(kind)}" if isinstance(document, dict) else f"is {_what(document)}"
        raise DataError(f"{begin} {what}; give outlines as a GeoJSON FeatureCollection or a TopoJSON")
    try:
        return OutlineFile(list(readers[kind](document)), _crs(document))
    except _Wrong as error:
        raise DataError(f"{begin}: {error}") from None
    except _MALFORMED:
        raise DataError(f"{begin} is malformed; give outlines as valid GeoJSON or TopoJSON") from None


def require_in_degrees(path: Path, geography: Geography, nodes: IntArray, points: list[FloatArray]) -> None:
    """Refuse outlines of units (``nodes``) that have ``points`` (points x 2) beyond all degrees. Raises `DataError`."""
    for node, own in zip(nodes.tolist(), points, strict=True):
        if not (np.abs(own) <= (_MOST_LONGITUDE, _MOST_LATITUDE)).all():
            raise DataError(
                f"{shown_path(path)}: the outline of {geography.describe(node)} has coordinates that are no degrees; "
                "give outlines in degrees of longitude and latitude (WGS 84)"
            )


def unit_of_each(
    path: Path, labels: Mapping[str, Sequence[Any]], geography: Geography, setting: str, level: int | None = None
) -> IntArray:
    """The node of every feature (features,), -1 for none, by what is its GEOID: of ``labels``, which are its id and
    properties, that with the most different GEOIDs as text. ``level``: the only one whose units are looked for.

    Raises `DataError` where no label has one, and where two have as many and of different units.
    """
    within = geography.tree.level(level) if level is not None else slice(0, geography.tree.n_nodes)
    node_of = {
        geoid: within.start + k for k, geoid in enumerate(geography.identifiers[within.start : within.stop].to_pylist())
    }
    found = {
        name: np.array([node_of.get(one, -1) if isinstance(one, str) else -1 for one in values], dtype=np.int64)
        for name, values in labels.items()
    }
    many = {name: len(np.unique(nodes[nodes >= 0])) for name, nodes in found.items()}
    most = max(many.values(), default=0)
    if not most:
        raise DataError(
            f"{shown_path(path)}: {setting}: no outline has the GEOID of a unit among its properties or as its id; "
            "give GEOIDs as text, with their leading zeros"
        )
    first, *others = (name for name, number in many.items() if number == most)
    for name in others:
        if (found[name] != found[first]).any():
            raise DataError(
                f"{shown_path(path)}: {setting} has as many GEOIDs of units by {_named(first)} as by {_named(name)}, "
                "and of different units; leave one of them out"
            )
    return found[first]


def _named(label: str) -> str:
    return "the features' id" if label == ID else f"property {shown(label)}"


def require_once(path: Path, geography: Geography, nodes: IntArray) -> None:
    """Refuse two outlines of the same of units (``nodes``). Raises `DataError`."""
    found, times = np.unique(nodes, return_counts=True)
    if (times > 1).any():
        unit = geography.describe(int(found[np.argmax(times > 1)]))
        raise DataError(f"{shown_path(path)}: two outlines of {unit}; join them into one")


class _Wrong(Exception):
    """What is wrong with a file, and the remedy, in words."""


def _what(value: Any) -> str:
    """What kind of JSON ``value`` is, in words."""
    return "null" if value is None else _KINDS.get(type(value), "an object")


def _crs(document: dict[str, Any]) -> int:
    """The EPSG number of a document's system of coordinates, as older GeoJSON may name it ("crs")."""
    named = str(((document.get("crs") or {}).get("properties") or {}).get("name") or f"EPSG:{_DEGREES}")
    found = _CRS.fullmatch(named)
    if found is None or not (found[1] == "OGC" or found[2].isdecimal()):
        raise _Wrong(f"its crs {shown(named)} is not known; give outlines in degrees (WGS 84) without it")
    # Among OGC's own systems is the one of GeoJSON; GDAL calls it by the EPSG number of the same coordinates.
    return _DEGREES if found[1] == "OGC" else int(found[2])


def _features(document: dict[str, Any]) -> Iterator[Feature]:
    """The features of a GeoJSON FeatureCollection."""
    for number, one in enumerate(_members(document, "features"), 1):
        labels, geometry = _labels(one, f"feature {number:,}"), one.get("geometry")
        if geometry is not None and not isinstance(geometry, dict):
            raise _Wrong(f"the geometry of feature {number:,} is {_what(geometry)}; give an outline, or null")
        polygons = [] if geometry is None else _polygons(geometry, "coordinates", f"feature {number:,}")
        try:
            rings = [[_ring(points) for points in _list(polygon)] for polygon in polygons]
        except _MALFORMED:
            raise _Wrong(
                f"feature {number:,} has coordinates that are none; give rings of points, every point of two finite "
                "numbers"
            ) from None
        yield Feature(labels, geometry, _with_rings(rings))


def _topology(document: dict[str, Any]) -> Iterator[Feature]:
    """The features of the TopoJSON object that has the most; arcs are delta-encoded if there is a transform."""
    transform = document.get("transform")
    arcs = [_arc(arc, number) for number, arc in enumerate(_members(document, "arcs"), 1)]
    if transform is not None:
        scale, shift = _ring([transform["scale"]]), _ring([transform["translate"]])
        arcs = [_ring((np.cumsum(arc, axis=0) * scale + shift).tolist()) for arc in arcs]

    def ring(indices: list[int]) -> Ring:
        parts = [arcs[k] if k >= 0 else arcs[~k][::-1] for k in indices]
        # Consecutive arcs share a point.
        return np.concatenate([parts[0], *(part[1:] for part in parts[1:])]) if parts else np.zeros((0, 2))

    collections: list[list[Any]] = [
        _members(one, "geometries") for one in document["objects"].values() if "geometries" in one
    ]
    if not collections:
        raise _Wrong("none of its objects has geometries; give a TopoJSON with one GeometryCollection of outlines")
    largest = max(collections, key=len)
    for number, one in enumerate(largest, 1):
        labels = _labels(one, f"geometry {number:,}")
        polygons = _polygons(one, "arcs", f"geometry {number:,}")
        try:
            rings = _with_rings([[ring(indices) for indices in polygon] for polygon in polygons])
        except _MALFORMED:
            raise _Wrong(f"geometry {number:,} refers to arcs that are not there; give all arcs") from None
        shape = {"type": "MultiPolygon", "coordinates": [[part.tolist() for part in polygon] for polygon in rings]}
        yield Feature(labels, shape if rings else None, rings)


def _members(whole: dict[str, Any], name: str) -> list[Any]:
    """The list that an object has by this name."""
    found = whole.get(name)
    if not isinstance(found, list):
        raise _Wrong(f"{name} is {_what(found) if name in whole else 'missing'}; give a list of them")
    return found


def _labels(one: Any, called: str) -> dict[str, Any]:
    """The properties and the id of a feature."""
    if not isinstance(one, dict):
        raise _Wrong(f"{called} is {_what(one)}; give an object with an outline and its unit's code")
    properties = one.get("properties")
    if properties is not None and not isinstance(properties, dict):
        raise _Wrong(f"the properties of {called} are {_what(properties)}; give an object of names and values")
    return {ID: one.get("id"), **(properties or {})}


def _polygons(geometry: dict[str, Any], values: str, called: str) -> list[Any]:
    """The polygons of a geometry, by its ``values`` (coordinates or arcs); none of one without an area."""
    kind = geometry.get("type")
    if kind == "GeometryCollection":
        parts = [] if geometry.get("geometries") is None else _list(geometry["geometries"])
        return [polygon for part in parts for polygon in _polygons(part, values, called)]
    if kind in ("Polygon", "MultiPolygon"):
        found = geometry.get(values, [])
        if not isinstance(found, list):
            raise _Wrong(f"the {values} of {called} are {_what(found)}; give a list of rings")
        return [found] if kind == "Polygon" else found
    if kind is None or (isinstance(kind, str) and kind in _WITHOUT_AREA):
        return []
    raise _Wrong(f"{called} has an outline of type {shown(kind)}; give Polygon or MultiPolygon")


def _with_rings(polygons: list[list[Ring]]) -> list[list[Ring]]:
    """``polygons`` without their empty rings; those whose outer ring is empty are left out."""
    return [[ring for ring in polygon if len(ring)] for polygon in polygons if polygon and len(polygon[0])]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _arc(points: Any, number: int) -> Ring:
    try:
        return _ring(points)
    except _MALFORMED:
        raise _Wrong(f"arc {number:,} is no list of points, every point of two finite numbers; correct it") from None


def _ring(points: Any) -> Ring:
    """(points, 2); ``points``: lists of two numbers; further numbers, such as heights, are ignored."""
    if not _list(points):
        return np.zeros((0, 2))
    ring = np.array([[0.0 + x, 0.0 + y] for x, y, *_ in points])
    if not np.isfinite(ring).all():
        raise ValueError("a coordinate is not finite")
    return ring
