"""A release with the outlines of its units, as GeoParquet or a GeoPackage, for geographic information systems."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd

from topdown.analysis.outlines import outlines_in
from topdown.analysis.stated_numbers import stated_numbers
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.machine.files import whole_file
from topdown.machine.software import version_of
from topdown.release.manifest import SCHEMA_VERSION
from topdown.release.published import PublishedRelease
from topdown.tables.tidy import named_failures, to_frame, with_plain_strings
from topdown.wording import shown_path
from topdown.workload import Schema
from topdown.workload.answer_tables import answer_columns

_VERSION = "1.2"
"""Of GeoPackages: what software of the last years reads without a warning."""


def write_geoparquet(
    found: PublishedRelease, path: str | Path, geometry: str | Path, *, query: str | None = None
) -> Path:
    """Write the released counts of every unit that has an outline, with it, as one GeoParquet file; returns its path.

    Rows go by level and GEOID: ``geoid, level, parent, name``, the counts, of each where there are margins its
    ``_lower, _upper, _moe, _cv, _reliability``, and ``geometry``. Of a release from noisy measurement files the
    units are the true ones.

    Args:
        geometry: outlines in GeoJSON, a GeoPackage, a shapefile or GeoParquet, as the file's name says, matched to
            units by the column that holds the most GEOIDs, as text.
        query: the counts are its answers, by default the cells and their total, where several queries were measured
            the total, and the columns of the release's tables.

    Raises `ConfigError` where geopandas is not installed, `DataError` for outlines that cannot be read, of which none
    is a unit's or two are of the same, and where the file cannot be written.

    Examples:
        >>> td.write_geoparquet(td.read_release("public"), "release.parquet", "counties.geojson").name
        'release.parquet'
    """
    return _write(_with_outlines(found, Path(geometry), query), Path(path))


def write_geopackage(
    found: PublishedRelease, path: str | Path, geometry: str | Path, *, query: str | None = None
) -> Path:
    """Write what `write_geoparquet` does as the layer "release" of a GeoPackage, which every GDAL reads."""
    target = Path(path)
    frame = _with_outlines(found, Path(geometry), query)
    with named_failures(target), whole_file(target) as partial:
        # GDAL goes by the name, and a file that is not there yet has another.
        content = io.BytesIO()
        frame.to_file(content, layer="release", driver="GPKG", engine="pyogrio", VERSION=_VERSION)
        partial.write_bytes(content.getvalue())
    return target


def _with_outlines(found: PublishedRelease, geometry: Path, query: str | None) -> Any:
    """A GeoDataFrame: the numbers of the units that have an outline, with it."""
    numbers = stated_numbers(found, query)
    column, outlines = _outlines_of(numbers.geography, geometry)
    counts = to_frame(map(with_plain_strings, numbers.wide_batches()))
    shapes = pd.DataFrame({"geoid": outlines[column].astype(str), "geometry": outlines.geometry})
    merged = counts.merge(shapes, on="geoid", how="inner")
    return type(outlines)(merged, geometry="geometry", crs=outlines.crs)


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
