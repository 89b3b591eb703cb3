"""A release with the outlines of its units, as GeoParquet or a GeoPackage, for geographic information systems."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topdown.analysis.outlines import outlines_in
from topdown.analysis.stated_numbers import STATED_ENDS, stated_numbers
from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.machine.files import whole_file
from topdown.machine.software import version_of
from topdown.pages.outline_file import require_in_degrees, require_once, unit_of_each
from topdown.release.manifest import SCHEMA_VERSION
from topdown.release.published import PublishedRelease
from topdown.tables.tidy import named_failures, to_frame, with_plain_strings
from topdown.wording import shown, shown_path

_VERSION = "1.2"
"""The version of GeoPackages that are written: recent software reads it without a warning."""


def write_geoparquet(
    found: PublishedRelease, path: str | Path, geometry: str | Path, *, query: str | None = None
) -> Path:
    """Write the released counts and the outline of every unit that has one as a GeoParquet file; returns its path.

    Rows are in the order of level and GEOID. Columns: ``geoid, level, parent, name``; the counts, each with its
    ``_lower, _upper, _moe, _cv, _reliability`` where there are margins; and ``geometry``. The blocks of a release from
    noisy measurement files have their GEOIDs.

    Args:
        found: the release, as `read_release` gives it.
        path: the file to write.
        geometry: outlines in GeoJSON, TopoJSON, a GeoPackage, a shapefile or GeoParquet, as the file's name says,
            matched to units by the column that holds the most different GEOIDs, as text.
        query: whose answers are written. By default the cells and their total (only the total where several queries
            were measured), and the columns of the release's tables.

    Raises `ConfigError` where geopandas is not installed, `DataError` for outlines that cannot be read, where no
    outline belongs to a unit or two belong to the same, and where the file cannot be written.

    Examples:
        >>> td.write_geoparquet(td.read_release("public"), "release.parquet", "counties.geojson").name
        'release.parquet'
    """
    return _write(_with_outlines(found, Path(geometry), query), Path(path))


def write_geopackage(
    found: PublishedRelease, path: str | Path, geometry: str | Path, *, query: str | None = None
) -> Path:
    """Write the same as `write_geoparquet` as the layer "release" of a GeoPackage, which every version of GDAL
    reads.
    """
    target = Path(path)
    frame = _with_outlines(found, Path(geometry), query, package=True)
    with named_failures(target), whole_file(target) as partial:
        # GDAL chooses the format by the file's name, and the file that is being written has a temporary one.
        content = io.BytesIO()
        frame.to_file(content, layer="release", driver="GPKG", engine="pyogrio", VERSION=_VERSION)
        partial.write_bytes(content.getvalue())
    return target


def _with_outlines(found: PublishedRelease, geometry: Path, query: str | None, *, package: bool = False) -> Any:
    """A GeoDataFrame with the numbers and the outline of every unit that has one."""
    numbers = stated_numbers(found, query)
    _require_called(numbers.names, package=package)
    nodes, outlines = _outlines_of(numbers.geography, geometry)
    counts = to_frame(map(with_plain_strings, numbers.wide_batches()))
    shapes = pd.DataFrame({"geoid": numbers.geography.geoid[nodes], "geometry": outlines.to_numpy()})
    merged = counts.merge(shapes, on="geoid", how="inner")
    return import_module("geopandas").GeoDataFrame(merged, geometry="geometry", crs=outlines.crs)


def require_outlines(geography: Geography, columns: Sequence[str], geometry: str | Path, *, package: bool) -> None:
    """Refuse, before there are counts, what `write_geoparquet`, or for a ``package`` `write_geopackage`, would of a
    release on ``geography`` whose counts are called ``columns``.
    """
    _require_called(columns, package=package)
    _outlines_of(geography, Path(geometry))


def _require_called(columns: Sequence[str], *, package: bool) -> None:
    """Refuse columns that are called as others of a map: in a GeoPackage those that differ in case alone are one.
    Raises `ConfigError`.
    """
    known = {"geometry", "fid", "geom"} if package else {"geometry"}
    known |= {"geoid", "level", "parent", "name"}
    for column in columns:
        every = [column, *(f"{column}_{end}" for end in STATED_ENDS)]
        own = {_as_in_sqlite(name) for name in every} if package else set(every)
        if not known.isdisjoint(own):
            raise ConfigError(
                f"cell {shown(column)} has the same name as another column of the map"
                + (" but for upper and lower case, which a GeoPackage does not tell apart" if package else "")
                + "; rename it, or choose another --query (exports.query)"
            )
        known |= own


def _as_in_sqlite(name: str) -> str:
    """``name`` as SQLite compares names: only of the letters A to Z are upper and lower case the same."""
    return name.encode().lower().decode()


def _outlines_of(geography: Geography, source: Path) -> tuple[IntArray, Any]:
    """The units of ``geography`` that have an outline, as nodes, and the outlines, as a GeoSeries."""
    read = outlines_in(source)
    labels = {name: read[name].tolist() for name in read.columns if name != read.geometry.name}
    of_each, shapes = unit_of_each(source, labels, geography, "geometry"), read.geometry
    kept = (of_each >= 0) & ~(shapes.isna() | shapes.is_empty).to_numpy()
    if not kept.any():
        raise DataError(f"{shown_path(source)}: no unit has an outline; give one with polygons")
    nodes, outlines = of_each[kept], shapes[kept]
    require_once(source, geography, nodes)
    shapely = import_module("shapely")
    points = [shapely.get_coordinates(one) for one in outlines]
    endless = np.array([not np.isfinite(own).all() for own in points])
    if endless.any():
        unit = geography.describe(int(nodes[np.argmax(endless)]))
        raise DataError(f"{shown_path(source)}: the outline of {unit} has a point that is not finite; correct it")
    if outlines.crs is None or not outlines.crs.is_projected:
        require_in_degrees(source, geography, nodes, points)
    return nodes, outlines


def _write(frame: Any, path: Path) -> Path:
    import pyarrow.parquet as pq

    content = io.BytesIO()
    frame.to_parquet(content, index=False)
    table = pq.read_table(content)
    known = dict(table.schema.metadata)
    marks = {"software": f"topdown {version_of()}", "schema version": SCHEMA_VERSION}
    with named_failures(path), whole_file(path) as partial:
        pq.write_table(table.replace_schema_metadata(known | marks), partial, compression="zstd")
    return path
