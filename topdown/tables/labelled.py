"""Files of Stata and SPSS (.dta, .sav, .zsav, .por): the rows as text, values by their labels.

A number without a label is written as it is, a whole one without a point: zeros before a code are lost in such a
column, as in every column of numbers (input.pad_zeros puts them back). Needs pyreadstat, the extra ``labelled``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from topdown.errors import DataError
from topdown.tables.format import Extent, FileKind, Format
from topdown.wording import DAMAGED, shown_path

_ROWS_AT_ONCE = 1 << 16
_WIDTH = 16.0
_READERS = {".dta": "read_dta", ".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por"}


def _header(path: Path, _: Format) -> list[str]:
    return [str(name) for name in _read(path, metadataonly=True)[1].column_names]


def _batches(path: Path, _: Sequence[str], names: Sequence[str], __: Format) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([], pa.schema([(name, pa.string()) for name in names]))
    offset = 0
    while names:
        frame, _meta = _read(
            path,
            usecols=list(names),
            row_offset=offset,
            row_limit=_ROWS_AT_ONCE,
            apply_value_formats=True,
            formats_as_category=False,
        )
        if not len(frame):
            return
        columns = [pa.array([_text(value) for value in frame[name]], pa.string()) for name in names]
        yield pa.RecordBatch.from_arrays(columns, names=list(names))
        if len(frame) < _ROWS_AT_ONCE:
            return
        offset += len(frame)


def _text(value: Any) -> str | None:
    if value is None or value != value or value == "":  # NaN is not equal to itself
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _extent(path: Path, columns: Sequence[str], _: Format) -> Extent:
    return Extent(int(_read(path, metadataonly=True)[1].number_rows or 0), _WIDTH * len(columns))


def _read(path: Path, **options: Any) -> Any:
    try:
        import pyreadstat
    except ImportError:
        raise DataError(
            f"{shown_path(path)}: to read {path.suffix} files needs pyreadstat; install topdown[labelled], or save "
            "it as CSV (UTF-8)"
        ) from None
    try:
        return getattr(pyreadstat, _READERS[path.suffix.lower()])(path, **options)
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, UnicodeError, ValueError):
        pass
    raise DataError(f"{shown_path(path)}: cannot be read as {path.suffix.lstrip('.')}: {DAMAGED}")


LABELLED = FileKind(
    tuple(_READERS), (), _header, _batches, _extent, lambda _, row, __: f"row {row + 1:,} (counted from 1)"
)
