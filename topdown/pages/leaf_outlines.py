"""Outlines of the leaves for a map: reads GeoJSON or TopoJSON, and makes small GeoJSON features."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.tables.readers import require_regular
from topdown.wording import reason, shown, shown_path

_MOST_POINTS = 80_000
"""The most points of a page; outlines are snapped to a grid that is coarse enough for it."""

_FARTHEST = 1e9
_FINEST = 1e-9
"""The finest grid, in the file's unit (degrees or metres): no map shows smaller steps."""

_WITHOUT_AREA = (None, "Point", "MultiPoint", "LineString", "MultiLineString")
"""Types of geometry without an area, which are not drawn; None: a TopoJSON object of a unit without an outline."""

_MALFORMED = (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)

Ring = FloatArray  # (points, 2): longitude, latitude


@dataclass(frozen=True, eq=False)
class Outlines:
    """``leaves`` (features,): the leaf of every outline, counted from the first leaf. ``geometries``: GeoJSON
    MultiPolygons. ``projection``: a projection that Vega knows."""

    leaves: IntArray
    geometries: tuple[dict[str, Any], ...]
    projection: str


def read_outlines(path: Path, geography: Geography, setting: str = "study.geometry") -> Outlines:
    """The outlines of ``geography``'s leaves in the GeoJSON or TopoJSON file at ``path``, on a coarser grid.

    Features are matched to leaves by their id or by the property that matches most of them. ``setting``: the setting or
    option that names the file. Raises `ConfigError` for a file that is neither, or in which no feature is a leaf.
    """
    return outlines_from(_document(path, setting), path, geography, setting)


def outlines_from(document: Any, path: Path, geography: Geography, setting: str) -> Outlines:
    """As `read_outlines`, from the GeoJSON or TopoJSON ``document`` that was read from ``path``."""
    kind = document.get("type") if isinstance(document, dict) else None
    readers = {"FeatureCollection": _features, "Topology": _topology}
    if not isinstance(kind, str) or kind not in readers:
        raise ConfigError(
            f"{shown_path(path)}: {setting} is of type {shown(kind)}; give a GeoJSON FeatureCollection or a TopoJSON"
        )
    features: list[tuple[dict[str, Any], list[list[Ring]]]] = []
    try:
        features.extend(readers[kind](document))
        leaf = _match([one for one, _ in features], geography)
    except _Unknown as error:
        raise ConfigError(
            f"{shown_path(path)}: {setting} has an outline of type {shown(error.kind)}; give Polygon or MultiPolygon"
        ) from None
    except _MALFORMED:
        raise ConfigError(
            f"{shown_path(path)}: {setting} is malformed; give valid GeoJSON or TopoJSON, in which every point "
            "has two finite numbers"
        ) from None
    found = [(index, polygons) for index, (_, polygons) in zip(leaf, features, strict=True) if index >= 0 and polygons]
    if not found:
        raise ConfigError(f"{shown_path(path)}: no feature's id or property is the GEOID of a leaf; correct {setting}")
    points = np.concatenate([ring for _, polygons in found for polygon in polygons for ring in polygon])
    drawn = _snapped([polygons for _, polygons in found], points)
    kept = [(index, one) for (index, _), one in zip(found, drawn, strict=True) if one is not None]
    if not kept:
        raise ConfigError(f"{shown_path(path)}: no unit's outline has an area; correct {setting}")
    return Outlines(
        np.array([index for index, _ in kept], dtype=np.int64), tuple(one for _, one in kept), _projection(points)
    )


def _document(path: Path, setting: str) -> Any:
    try:
        return json.loads(require_regular(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        said = reason(error)
    except RecursionError:
        said = "its brackets are nested too deeply"
    except DataError as error:
        raise ConfigError(f"{setting}: {error}") from None
    except ValueError as error:
        said = f"{error.msg} in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else reason(error)
    raise ConfigError(f"{shown_path(path)}: {setting} cannot be read as JSON: {said}; correct the path or the file")


def _features(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[list[Ring]]]]:
    """The features of a GeoJSON FeatureCollection."""
    for one in document["features"]:
        geometry = one.get("geometry")
        if geometry is None:
            yield one, []
            continue
        polygons = _polygons(geometry["type"], geometry.get("coordinates", []))
        yield one, _with_rings([[_ring(points) for points in _list(polygon)] for polygon in _list(polygons)])


class _Unknown(Exception):
    """An outline of an unknown ``kind``."""

    def __init__(self, kind: object) -> None:
        super().__init__(kind)
        self.kind = kind


def _polygons(kind: Any, value: Any) -> Any:
    """The polygons of a geometry with ``value`` (coordinates or arcs); none of one without an area. Raises `_Unknown`
    for another, which may have one."""
    if kind == "Polygon":
        return [value]
    if kind == "MultiPolygon":
        return value
    if kind in _WITHOUT_AREA:
        return []
    raise _Unknown(kind) if isinstance(kind, str) else TypeError("not a type")


def _with_rings(polygons: list[list[Ring]]) -> list[list[Ring]]:
    """``polygons`` without their empty rings; those whose outer ring is empty are left out."""
    return [[ring for ring in polygon if len(ring)] for polygon in polygons if polygon and len(polygon[0])]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _ring(points: Any) -> Ring:
    """(points, 2); ``points``: lists of two numbers; further numbers, such as heights, are ignored."""
    if not _list(points):
        return np.zeros((0, 2))
    ring = np.array([[0.0 + x, 0.0 + y] for x, y, *_ in points])
    # Not finite, or beyond the range of any coordinate system of the Earth.
    if not (np.abs(ring) <= _FARTHEST).all():
        raise ValueError("a coordinate is not finite")
    return ring


def _topology(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[list[Ring]]]]:
    """The features of the TopoJSON object that has the most; arcs are delta-encoded if there is a transform."""
    transform = document.get("transform")
    arcs = [_ring(arc) for arc in document["arcs"]]
    if transform is not None:
        scale, shift = _ring([transform["scale"]]), _ring([transform["translate"]])
        arcs = [_ring((np.cumsum(arc, axis=0) * scale + shift).tolist()) for arc in arcs]

    def ring(indices: list[int]) -> Ring:
        parts = [arcs[k] if k >= 0 else arcs[~k][::-1] for k in indices]
        # Consecutive arcs share a point.
        return np.concatenate([parts[0], *(part[1:] for part in parts[1:])]) if parts else np.zeros((0, 2))

    collections = [one["geometries"] for one in document["objects"].values() if "geometries" in one]
    for one in max(collections, key=len):
        polygons = _polygons(one["type"], one.get("arcs", []))
        yield one, _with_rings([[ring(indices) for indices in polygon] for polygon in polygons])


def _match(features: list[dict[str, Any]], geography: Geography) -> list[int]:
    """The leaf of every feature, -1 for none, by the label that matches most often."""
    first = geography.tree.leaves.start
    leaves = {geoid: k for k, geoid in enumerate(geography.identifiers[first:].to_pylist())}
    labels = [{"\0id": one.get("id"), **(one.get("properties") or {})} for one in features]
    hits = Counter(key for label in labels for key, value in label.items() if str(value) in leaves)
    if not hits:
        return [-1] * len(features)
    key = hits.most_common(1)[0][0]
    return [leaves.get(str(label.get(key)), -1) for label in labels]


def _snapped(shapes: list[list[list[Ring]]], points: FloatArray) -> Iterator[dict[str, Any] | None]:
    """Every shape with its points on a common grid, so that neighbours still share their border, as a MultiPolygon;
    None for one without an area."""
    low, high = points.min(axis=0), points.max(axis=0)
    extent = float((high - low).max()) or 1.0
    step = max(extent / 100_000.0, _FINEST)
    while sum(len(_on_grid(r, step)) for shape in shapes for polygon in shape for r in polygon) > _MOST_POINTS:
        step *= 1.25
    for shape in shapes:
        kept, finer = _with_area(shape, step), step
        if not kept:  # too small for the grid: its largest ring, finer
            largest = max((polygon[0] for polygon in shape), key=lambda r: abs(_area(r)))
        while not kept and finer > _FINEST:
            finer /= 16.0
            kept = _with_area([[largest]], finer)
        # d3 fills what lies to the right of a ring: outer rings clockwise, holes the other way.
        wound = [[_wound(ring, clockwise=k == 0).tolist() for k, ring in enumerate(polygon)] for polygon in kept]
        yield {"type": "MultiPolygon", "coordinates": wound} if wound else None


def _with_area(shape: list[list[Ring]], step: float) -> list[list[Ring]]:
    """The rings of ``shape`` on a grid, without those that have no area there: with such a ring, d3 may fill the whole
    map.
    """
    found = [[_on_grid(ring, step) for ring in polygon] for polygon in shape]
    return [[ring for ring in polygon if _area(ring)] for polygon in found if _area(polygon[0])]


def _on_grid(ring: Ring, step: float) -> Ring:
    snapped = np.round(ring / step)
    moved = np.concatenate([[True], (np.diff(snapped, axis=0) != 0).any(axis=1)])
    return np.asarray((snapped[moved] * step).round(max(0, int(np.ceil(-np.log10(step))) + 1)))


def _area(ring: Ring) -> float:
    x, y = ring[:, 0], ring[:, 1]
    return float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2.0


def _wound(ring: Ring, *, clockwise: bool) -> Ring:
    return ring if (_area_to_the_right(ring) < 2.0 * np.pi) == clockwise else ring[::-1]


def _area_to_the_right(ring: Ring) -> float:
    """The area of the sphere to the right of a ring, 4 pi in all: that which is filled. The smaller side is a unit's,
    also across the date line and around a pole.

    Source: `geoArea` of d3-geo; every edge has the area between it and the south pole.
    """
    lon, half = np.radians(ring[:, 0]), np.radians(ring[:, 1]) / 2.0 + np.pi / 4.0
    by, product = np.diff(lon), np.sin(half[:-1]) * np.sin(half[1:])
    both = np.cos(half[:-1]) * np.cos(half[1:]) + product * np.cos(by)
    return float(2.0 * np.arctan2(product * np.sin(by), both).sum() % (4.0 * np.pi))


def _projection(points: FloatArray) -> str:
    """The projection of the United States with Alaska and Hawaii inset if the map shows it, otherwise Mercator's."""
    (west, south), (east, north) = np.quantile(points, 0.01, axis=0), np.quantile(points, 0.99, axis=0)
    american = -180.0 < west < -110.0 and -85.0 < east < -64.0 and south > 17.0 and north < 72.0
    return "albersUsa" if american else "mercator"
