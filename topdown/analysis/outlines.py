"""Outlines of units, read in the format that the file's name states and in no other.

GDAL recognises a file by its content, whatever its name: a virtual format (VRT, GDALG, WFS) then opens other files, or
fetches pages. So GDAL reads GeoPackages and shapefiles only, after their first bytes were checked; JSON and Parquet are
read without it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from topdown.errors import ConfigError, DataError
from topdown.pages.outline_file import outline_file
from topdown.tables.readers import require_file
from topdown.wording import reason, shown_path

_GIVE = (
    "give GeoJSON or TopoJSON (.geojson, .json, .topojson), a GeoPackage (.gpkg), a shapefile (.shp) or GeoParquet "
    "(.parquet)"
)


def outlines_in(path: Path) -> Any:
    """The GeoDataFrame in the file at ``path``: a row per outline, with its properties in the other columns.

    Raises `ConfigError` where geopandas is not installed, `DataError` for a file that is not there, of another kind,
    not of the format that its name says, or without outlines.
    """
    geopandas = _geopandas()
    reader = _READERS.get(require_file(path).suffix.lower())
    if reader is None or not path.is_file():
        raise DataError(f"{shown_path(path)}: unknown format of outlines; {_GIVE}")
    try:
        found = reader(geopandas, path)
    except DataError:
        raise
    except Exception as error:  # GDAL, Arrow and geopandas have no common base of their errors
        raise DataError(
            f"{shown_path(path)}: cannot be read as outlines: {reason(error)}; correct the file, or {_GIVE}"
        ) from None
    if not len(found) or not hasattr(found, "geometry") or not found.columns.is_unique:
        raise DataError(f"{shown_path(path)}: holds no outlines; give a file with a geometry for every unit")
    return found


def outline_files(path: Path) -> list[Path]:
    """The files in which the outlines of ``path`` are: of a shapefile, also those of its properties and its system."""
    beside = (".dbf", ".prj", ".cpg") if path.suffix.lower() == ".shp" else ()
    return [
        path,
        *sorted(one for one in path.parent.glob("*") if one.stem == path.stem and one.suffix.lower() in beside),
    ]


def _geopandas() -> Any:
    try:
        return import_module("geopandas")
    except ImportError:
        raise ConfigError("maps need geopandas; install it with pip install topdown[geometry]") from None


def _json(geopandas: Any, path: Path) -> Any:
    """GeoJSON or TopoJSON: the features' ids and properties as columns."""
    shape, found = import_module("shapely.geometry").shape, outline_file(path)
    shapes = [None if one.geometry is None else shape(one.geometry) for one in found.features]
    columns = pd.DataFrame([one.labels for one in found.features])
    return geopandas.GeoDataFrame(columns, geometry=shapes, crs=found.crs)


def _by_gdal(geopandas: Any, path: Path) -> Any:
    """A GeoPackage or a shapefile; its first bytes are checked, so that GDAL reads it in no other format."""
    whole = path.absolute()  # so that it begins neither with the name of a format nor with that of a protocol
    with whole.open("rb") as file:
        head = file.read(72)
    is_package = head.startswith(b"SQLite format 3\0") and head[68:] in (b"GPKG", b"GP10", b"GP11")
    if not (is_package if path.suffix.lower() == ".gpkg" else head.startswith(b"\0\0\x27\x0a")):
        raise DataError(f"{shown_path(path)}: is not of the format that its name says; {_GIVE}")
    if whole.as_posix().startswith("/vsi") or set("!;") & set(str(whole)):
        raise DataError(f"{shown_path(path)}: GDAL gives /vsi, ! and ; in a path a special meaning; rename the file")
    if not all(one.is_file() for one in whole.parent.iterdir() if one.stem == whole.stem):
        raise DataError(
            f"{shown_path(path)}: something beside it has its name and is no file; put the outlines into a folder of "
            "their own"
        )
    return geopandas.read_file(whole, engine="pyogrio")


_READERS: dict[str, Callable[[Any, Path], Any]] = {
    ".geojson": _json,
    ".json": _json,
    ".topojson": _json,
    ".gpkg": _by_gdal,
    ".shp": _by_gdal,
    ".parquet": lambda geopandas, path: geopandas.read_parquet(path.absolute()),
}
