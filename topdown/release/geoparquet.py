"""A release with the outlines of its units, as GeoParquet, which geographic information systems open as it is."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.machine.files import whole_file
from topdown.machine.software import version_of
from topdown.release.layouts import EVERY_CELL
from topdown.release.manifest import SCHEMA_VERSION
from topdown.release.outlines import outlines_in
from topdown.release.published import PublishedRelease
from topdown.release.tabulated import tabulated_release
from topdown.release.whole_counts import Release
from topdown.tables.noisy_measurements import has_spine_codes
from topdown.tables.tidy import named_failures
from topdown.wording import shown_path
from topdown.workload import Schema
from topdown.workload.answer_tables import answer_columns

_KEYS = ["geoid", "level", "parent", "name"]


def write_geoparquet(
    found: PublishedRelease, path: str | Path, geometry: str | Path, *, query: str | None = None
) -> Path:
    """Write the released counts of every unit that has an outline, with it, as one GeoParquet file; returns its path.

    ``geometry``: outlines in GeoJSON, a GeoPackage, a shapefile or GeoParquet, as the file's name says, matched to
    units by the column that holds the most GEOIDs, as text. ``query``: the counts are its answers, by default the cells
    and their total, where several queries were measured the total alone. Rows go by level and GEOID: ``geoid, level,
    parent, name``, the counts, ``geometry``. Of a release from noisy measurement files the units are the true ones.

    Raises `ConfigError` where geopandas is not installed, `DataError` for outlines that cannot be read, of which none
    is a unit's or two are of the same, and where the file cannot be written.

    Examples:
        >>> td.write_geoparquet(td.read_release("public"), "release.parquet", "counties.geojson").name
        'release.parquet'
    """
    released = tabulated_release(found.release) if has_spine_codes(found.geography) else found.release
    column, outlines = _outlines_of(released.geography, Path(geometry))
    counts = _counts(released, query)
    shapes = pd.DataFrame({"geoid": outlines[column].astype(str), "geometry": outlines.geometry})
    merged = counts.merge(shapes, on="geoid", how="inner")
    return _write(type(outlines)(merged, geometry="geometry", crs=outlines.crs), Path(path))


def require_outlines(geography: Geography, schema: Schema, geometry: str | Path, query: str | None = None) -> None:
    """Refuse, before there are counts, what `write_geoparquet` would of a release of ``schema`` on ``geography``."""
    answer_columns("total" if query is None else query, schema)
    _outlines_of(geography, Path(geometry))


def _outlines_of(geography: Geography, source: Path) -> tuple[str, Any]:
    """The column of GEOIDs, and the outlines of the units of ``geography``."""
    outlines = outlines_in(source)
    known = set(geography.identifiers.to_pylist())
    columns = [name for name in outlines.columns if name != outlines.geometry.name]
    # Values may be anything, also what cannot be looked up.
    hits = {name: outlines[name].map(lambda one: isinstance(one, str) and one in known) for name in columns}
    best = max(hits, key=lambda name: int(hits[name].sum()), default=None)
    if best is None or not hits[best].any():
        raise DataError(
            f"{shown_path(source)}: no outline's property is the GEOID of a unit; give GEOIDs as text, with their "
            "leading zeros"
        )
    outlines = outlines[hits[best].astype(bool)]
    twice = outlines[best].duplicated()
    if twice.any():
        node = int(geography.index_of([str(outlines[best][twice].iloc[0])])[0])
        raise DataError(f"{shown_path(source)}: two outlines of {geography.describe(node)}; join them into one")
    return best, outlines


def _counts(release: Release, query: str | None) -> pd.DataFrame:
    """A row per unit: `_KEYS` and the counts."""
    if query is None and release.layout is EVERY_CELL:
        return release.wide()
    geography = release.geography
    identifiers = geography.identifiers.to_pylist()
    frames = []
    for level in geography.levels:
        nodes = geography.level_slice(level)
        above = geography.parent[nodes]
        table = release.table(level, query or "total")
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
    with named_failures(path), whole_file(path) as partial:
        pq.write_table(table.replace_schema_metadata(known | marks), partial, compression="zstd")
    return path
