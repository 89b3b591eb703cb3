"""GeoPackages (.gpkg): the attributes of one layer, or table, without its outlines."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from topdown.errors import DataError
from topdown.tables.format import Extent, FileKind, Format
from topdown.wording import listed, shown, shown_path

_ROWS_AT_ONCE = 1 << 16
_WIDTH = 16.0


def _header(path: Path, form: Format) -> list[str]:
    with _layer(path, form) as (database, layer):
        return list(_columns(database, layer))


def _batches(path: Path, _: Sequence[str], names: Sequence[str], form: Format) -> Iterator[pa.RecordBatch]:
    with _layer(path, form) as (database, layer):
        kinds = _columns(database, layer)
        schema = pa.schema([(name, kinds[name]) for name in names])
        yield pa.RecordBatch.from_pylist([], schema)
        if not names:
            return
        rows = database.execute(f"SELECT {', '.join(map(_quoted, names))} FROM {_quoted(layer)} ORDER BY rowid")  # nosec B608 # names are quoted
        while found := rows.fetchmany(_ROWS_AT_ONCE):
            columns = [
                pa.array([_value(row[place], field.type) for row in found], field.type)
                for place, field in enumerate(schema)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _value(value: object, kind: pa.DataType) -> object:
    """``value`` as the type of its column; SQLite stores values of any type, whatever the column's type."""
    if value is None or value == "":
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else str(value)
    if not isinstance(value, int | float) or (pa.types.is_integer(kind) and not isinstance(value, int)):
        raise ValueError("a value of another kind")
    return value


def _columns(database: sqlite3.Connection, layer: str) -> dict[str, pa.DataType]:
    """The columns of ``layer``, without the outlines, by name with the kind of their values."""
    outlines = {
        name
        for (name,) in database.execute("SELECT column_name FROM gpkg_geometry_columns WHERE table_name = ?", [layer])
    }
    found: dict[str, pa.DataType] = {}
    for _, name, declared, *_rest in database.execute(f"PRAGMA table_info({_quoted(layer)})"):
        if name in outlines:
            continue
        said = str(declared).upper()
        whole, real = "INT" in said, any(word in said for word in ("REAL", "DOUBLE", "FLOAT"))
        found[name] = pa.int64() if whole else pa.float64() if real else pa.string()
    return found


def _extent(path: Path, columns: Sequence[str], form: Format) -> Extent:
    with _layer(path, form) as (database, layer):
        (rows,) = database.execute(f"SELECT count(*) FROM {_quoted(layer)}").fetchone()  # nosec B608 # a name that is quoted
        return Extent(rows, _WIDTH * len(columns))


@contextmanager
def _layer(path: Path, form: Format) -> Iterator[tuple[sqlite3.Connection, str]]:
    """The database at ``path``, and the layer that ``form`` names as its sheet, or the only one."""
    with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
        query = "SELECT table_name FROM gpkg_contents WHERE data_type IN ('features', 'attributes') ORDER BY 1"
        names = [name for (name,) in database.execute(query)]
        if form.sheet is None and len(names) != 1:
            raise DataError(f"{shown_path(path)}: has {len(names)} layers; say which in input.sheet: {listed(names)}")
        if form.sheet is not None and form.sheet not in names:
            raise DataError(f"{shown_path(path)}: no layer {shown(form.sheet)}; it has {listed(names)}")
        yield database, names[0] if form.sheet is None else form.sheet


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


GEOPACKAGE = FileKind(
    (".gpkg",),
    ("sheet",),
    _header,
    _batches,
    _extent,
    lambda _, row, __: f"row {row + 1:,} of the layer",
    unreadable=(sqlite3.Error, ValueError, OverflowError),
)
