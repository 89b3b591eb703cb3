"""Outlines of the leaves for a map: made of GeoJSON or TopoJSON, as small GeoJSON features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.pages.outline_file import OutlineFile, Ring, outline_file, require_in_degrees, require_once, unit_of_each
from topdown.wording import shown_path

_MOST_POINTS = 80_000
"""The most points of a page; outlines are snapped to a grid that is coarse enough for it."""

_FINEST = 1e-9
"""The finest grid, in degrees: no map shows smaller steps."""

_IN_DEGREES = (4326, 4258, 4269)
"""The EPSG numbers of systems in degrees that are drawn as they are: WGS 84, ETRS89, NAD83."""


@dataclass(frozen=True, eq=False)
class Outlines:
    """``leaves`` (features,): the leaf of every outline, counted from the first leaf. ``geometries``: GeoJSON
    MultiPolygons. ``projection``: a projection that Vega knows."""

    leaves: IntArray
    geometries: tuple[dict[str, Any], ...]
    projection: str


def read_outlines(path: Path, geography: Geography, setting: str = "study.geometry") -> Outlines:
    """The outlines of ``geography``'s leaves in the GeoJSON or TopoJSON file at ``path``, on a coarser grid.

    Features are matched to leaves by their id or the property that has the most GEOIDs of leaves, as text.
    ``setting``: the setting or option that names the file. Raises `DataError` for a file that is neither, in which no
    feature is a leaf, or two are the same, or which is not in degrees.
    """
    return drawable(outline_file(path, setting), path, geography, setting)


def drawable(given: OutlineFile, path: Path, geography: Geography, setting: str) -> Outlines:
    """As `read_outlines`, of outlines that were read from ``path``."""
    if given.crs not in _IN_DEGREES:
        raise DataError(
            f"{shown_path(path)}: {setting} has the crs EPSG:{given.crs}; give outlines in degrees of longitude and "
            "latitude (WGS 84)"
        )
    names = dict.fromkeys(name for one in given.features for name in one.labels)
    labels = {name: [one.labels.get(name) for one in given.features] for name in names}
    of_each = unit_of_each(path, labels, geography, setting, geography.tree.n_levels - 1)
    found = [
        (node, one.polygons) for node, one in zip(of_each, given.features, strict=True) if node >= 0 and one.polygons
    ]
    if not found:
        raise _without_area(path, setting)
    nodes = np.array([node for node, _ in found], dtype=np.int64)
    require_once(path, geography, nodes)
    of_units = [np.concatenate([ring for polygon in polygons for ring in polygon]) for _, polygons in found]
    require_in_degrees(path, geography, nodes, of_units)
    points = np.concatenate(of_units)
    drawn = _snapped([polygons for _, polygons in found], points)
    kept = [(node, one) for node, one in zip(nodes, drawn, strict=True) if one is not None]
    if not kept:
        raise _without_area(path, setting)
    leaves = np.array([node for node, _ in kept], dtype=np.int64) - geography.tree.leaves.start
    return Outlines(leaves, tuple(one for _, one in kept), _projection(points))


def _without_area(path: Path, setting: str) -> DataError:
    return DataError(f"{shown_path(path)}: no unit's outline has an area; correct {setting}")


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
