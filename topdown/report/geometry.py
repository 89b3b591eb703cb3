"""Outlines of the leaves for a map: GeoJSON or TopoJSON in, small GeoJSON features out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topdown.errors import ConfigError
from topdown.geography import Geography
from topdown.tree import FloatArray, IntArray

_MOST_POINTS = 80_000
"""Points that a page can hold; outlines are snapped to a grid coarse enough for it."""

Ring = FloatArray  # (points, 2): longitude, latitude


@dataclass(frozen=True, eq=False)
class Outlines:
    """``leaves`` (features,): the leaf of every outline, counted from the first leaf. ``geometries``: GeoJSON
    MultiPolygons. ``projection``: a projection that Vega knows."""

    leaves: IntArray
    geometries: tuple[dict[str, Any], ...]
    projection: str


def read_outlines(path: Path, geography: Geography) -> Outlines:
    """The outlines of ``geography``'s leaves in the GeoJSON or TopoJSON file at ``path``, on a coarser grid.

    Features are matched to leaves by their id or by the property that fits most of them. Raises `ConfigError` for a
    file that is neither, or in which no feature is a leaf.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: study.geometry cannot be read as JSON: {error}; correct the path") from error
    kind = document.get("type") if isinstance(document, dict) else None
    try:
        if kind == "FeatureCollection":
            features = [(one, _polygons(one.get("geometry"))) for one in document["features"]]
        elif kind == "Topology":
            features = list(_topology(document))
        else:
            raise ConfigError(f"{path}: study.geometry is {kind!r}; give a GeoJSON FeatureCollection or a TopoJSON")
        leaf = _match([one for one, _ in features], geography)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: study.geometry is malformed: {error!r}; give valid GeoJSON or TopoJSON") from error
    found = [(index, polygons) for index, (_, polygons) in zip(leaf, features, strict=True) if index >= 0 and polygons]
    if not found:
        raise ConfigError(f"{path}: no feature's id or property is the GEOID of a leaf; correct study.geometry")
    points = np.concatenate([ring for _, polygons in found for polygon in polygons for ring in polygon])
    return Outlines(
        np.array([index for index, _ in found], dtype=np.int64),
        tuple(_snapped([polygons for _, polygons in found], points)),
        _projection(points),
    )


def _polygons(geometry: Any) -> list[list[Ring]]:
    if geometry is None:
        return []
    kind, coordinates = geometry["type"], geometry.get("coordinates", [])
    polygons = {"Polygon": [coordinates], "MultiPolygon": coordinates}.get(kind, [])
    return [[np.array([p[:2] for p in ring], dtype=np.float64) for ring in polygon] for polygon in polygons]


def _topology(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[list[Ring]]]]:
    """The features of the TopoJSON object that has the most; arcs are delta-encoded where there is a transform."""
    transform = document.get("transform")
    arcs = []
    for arc in document["arcs"]:
        points = np.array([p[:2] for p in arc], dtype=np.float64)
        if transform is not None:
            points = np.cumsum(points, axis=0) * transform["scale"] + transform["translate"]
        arcs.append(points)

    def ring(indices: list[int]) -> Ring:
        parts = [arcs[k] if k >= 0 else arcs[~k][::-1] for k in indices]
        # Consecutive arcs share a point.
        return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])

    collections = [one["geometries"] for one in document["objects"].values() if "geometries" in one]
    for one in max(collections, key=len):
        polygons = {"Polygon": [one.get("arcs", [])], "MultiPolygon": one.get("arcs", [])}.get(one["type"], [])
        yield one, [[ring(indices) for indices in polygon] for polygon in polygons]


def _match(features: list[dict[str, Any]], geography: Geography) -> list[int]:
    """The leaf of every feature, -1 where it is none, by the label that matches most often."""
    first = geography.tree.leaves.start
    leaves = {geoid: k for k, geoid in enumerate(geography.identifiers[first:].to_pylist())}
    labels = [{"\0id": one.get("id"), **(one.get("properties") or {})} for one in features]
    hits = Counter(key for label in labels for key, value in label.items() if str(value) in leaves)
    if not hits:
        return [-1] * len(features)
    key = hits.most_common(1)[0][0]
    return [leaves.get(str(label.get(key)), -1) for label in labels]


def _snapped(shapes: list[list[list[Ring]]], points: FloatArray) -> Iterator[dict[str, Any]]:
    """Every shape with its points on a common grid, so that neighbours still share their border, as a MultiPolygon."""
    low, high = points.min(axis=0), points.max(axis=0)
    extent = float((high - low).max()) or 1.0
    step = extent / 100_000.0
    while sum(len(_on_grid(r, step)) for shape in shapes for polygon in shape for r in polygon) > _MOST_POINTS:
        step *= 1.25
    digits = max(0, int(np.ceil(-np.log10(step))) + 1)
    for shape in shapes:
        kept = [[ring for r in polygon if len(ring := _on_grid(r, step)) > 3] for polygon in shape]
        kept = [polygon for polygon in kept if polygon]
        if not kept:  # too small for the grid: its largest ring, finer
            largest = max((polygon[0] for polygon in shape), key=lambda r: abs(_area(r)))
            kept = [[_on_grid(largest, step / 16.0)]]
        yield {
            "type": "MultiPolygon",
            "coordinates": [
                # d3 fills what lies to the right of a ring: outer rings clockwise, holes the other way.
                [_wound(ring, clockwise=k == 0).round(digits).tolist() for k, ring in enumerate(polygon)]
                for polygon in kept
            ],
        }


def _on_grid(ring: Ring, step: float) -> Ring:
    snapped = np.round(ring / step)
    moved = np.concatenate([[True], (np.diff(snapped, axis=0) != 0).any(axis=1)])
    return np.asarray(snapped[moved] * step)


def _area(ring: Ring) -> float:
    x, y = ring[:, 0], ring[:, 1]
    return float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2.0


def _wound(ring: Ring, *, clockwise: bool) -> Ring:
    return ring[::-1] if (_area(ring) > 0) == clockwise else ring


def _projection(points: FloatArray) -> str:
    """The United States with Alaska and Hawaii moved in where that is what the map shows, else Mercator's."""
    (west, south), (east, north) = np.quantile(points, 0.01, axis=0), np.quantile(points, 0.99, axis=0)
    american = -180.0 < west < -110.0 and -85.0 < east < -64.0 and south > 17.0 and north < 72.0
    return "albersUsa" if american else "mercator"
