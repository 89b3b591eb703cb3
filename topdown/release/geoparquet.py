"""A release with the outlines of its units, as GeoParquet, which geographic information systems open as it is."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from topdown.errors import ConfigError, DataError
from topdown.machine.files import whole_file
from topdown.machine.software import version_of
from topdown.release.manifest import SCHEMA_VERSION
from topdown.release.published import PublishedRelease
from topdown.wording import FAILED, reason, shown_path

_KEYS = ["geoid", "level", "parent", "name"]


def write_geoparquet(
    found: PublishedRelease, path: str | Path, geometry: str | Path, *, query: str | None = None
) -> Path:
    """Write the released counts of every unit that has an outline, with it, as one GeoParquet file; returns its path.

    ``geometry``: outlines in any form that GDAL reads (GeoJSON, GeoPackage, a shapefile) or GeoParquet, matched to
    units by the column that holds the most GEOIDs, as text. ``query``: the counts are its answers, by default the cells
    and their total, where several queries were measured the total alone. Rows go by level and GEOID: ``geoid, level,
    parent, name``, the counts, ``geometry``.

    Raises `ConfigError` where geopandas is not installed, `DataError` for outlines that cannot be read, of which none
    is a unit's or two are of the same, and where the file cannot be written.
    """
    geopandas = _geopandas()
    path, source = Path(path), Path(geometry)
    outlines = _outlines(geopandas, source)
    counts = _counts(found, query)
    column = _key(outlines, set(counts["geoid"]), source)
    outlines = outlines[outlines[column].isin(counts["geoid"])]
    twice = outlines[column].duplicated()
    if twice.any():
        node = int(found.geography.index_of([str(outlines[column][twice].iloc[0])])[0])
        raise DataError(f"{shown_path(source)}: two outlines of {found.geography.describe(node)}; join them into one")
    shapes = pd.DataFrame({"geoid": outlines[column].astype(str), "geometry": outlines.geometry})
    merged = counts.merge(shapes, on="geoid", how="inner")
    return _write(geopandas.GeoDataFrame(merged, geometry="geometry", crs=outlines.crs), path)


def _geopandas() -> Any:
    try:
        return import_module("geopandas")
    except ImportError:
        raise ConfigError("GeoParquet needs geopandas; install it with pip install topdown[geometry]") from None


def _outlines(geopandas: Any, path: Path) -> Any:
    try:
        found = geopandas.read_parquet(path) if path.suffix.lower() == ".parquet" else geopandas.read_file(path)
    except Exception as error:  # GDAL, Arrow and geopandas each have their own, without a common one
        said = "no such file" if not path.exists() else reason(error)
        raise DataError(
            f"{shown_path(path)}: cannot be read as outlines: {said}; correct the path, or give GeoJSON"
        ) from None
    if not len(found) or not hasattr(found, "geometry"):
        raise DataError(f"{shown_path(path)}: holds no outlines; give a file with a geometry for every unit")
    return found


def _key(outlines: Any, geoids: set[str], path: Path) -> str:
    """The column that holds the most GEOIDs."""
    columns = [name for name in outlines.columns if name != outlines.geometry.name]
    hits = {name: int(outlines[name].isin(geoids).sum()) for name in columns}
    best = max(hits, key=lambda name: hits[name], default=None)
    if best is None or hits[best] == 0:
        raise DataError(
            f"{shown_path(path)}: no outline's property is the GEOID of a unit; give GEOIDs as text, with their "
            "leading zeros"
        )
    return str(best)


def _counts(found: PublishedRelease, query: str | None) -> pd.DataFrame:
    """A row per unit: `_KEYS` and the counts."""
    if query is None and found.histograms is None:
        return found.wide()
    geography = found.geography
    identifiers = geography.identifiers.to_pylist()
    frames = []
    for level in geography.levels:
        nodes = geography.level_slice(level)
        above = geography.parent[nodes]
        table = found.table(level, query or "total")
        table.insert(1, "level", level)
        table.insert(2, "parent", [identifiers[one] if one >= 0 else None for one in above.tolist()])
        frames.append(table)
    return pd.concat(frames, ignore_index=True)


def _write(frame: Any, path: Path) -> Path:
    import pyarrow.parquet as pq

    content = io.BytesIO()
    frame.to_parquet(content, index=False)
    table = pq.read_table(content)
    known = dict(table.schema.metadata)
    marks = {"software": f"topdown {version_of()}", "schema version": SCHEMA_VERSION}
    try:
        with whole_file(path) as partial:
            pq.write_table(table.replace_schema_metadata(known | marks), partial, compression="zstd")
    except OSError as error:
        raise DataError(
            f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path"
        ) from None
    return path
