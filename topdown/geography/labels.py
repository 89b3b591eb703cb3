"""Columns of identifiers as Arrow strings, and their codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ROW, DataError, GeographyError, require_list
from topdown.geography.tree import IntArray
from topdown.wording import WITHHELD, column_names, may_hold_a_count, reason, shown, type_name

_BYTES_AT_ONCE = 1 << 24


def as_frame(frame: Any) -> Any:
    """``frame`` as it is where it is a DataFrame, an Arrow table or a mapping of columns; as an Arrow table where it
    offers itself as one (``__arrow_c_stream__``: polars, relations of DuckDB, and others).

    Raises `DataError` for a stream that is no table.
    """
    if isinstance(frame, pa.Table | pd.DataFrame | Mapping) or not hasattr(frame, "__arrow_c_stream__"):
        return frame
    try:
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError):
        pass
    raise DataError(f"a {type(frame).__name__} is not a table in Arrow; give a DataFrame or an Arrow table")


def plain(values: Any, what: str) -> pa.Array:
    """``values`` as one plain Arrow array, without dictionaries, run-ends and views. An extension type is kept, since
    its storage (such as a number of months) need not be its meaning. Raises `DataError` for values that Arrow cannot
    convert to one array.
    """
    try:
        if isinstance(values, pa.ChunkedArray):
            # A chunk at a time: not every type can be concatenated before it is undone.
            chunks = [_undone(chunk) for chunk in values.chunks]
            if len(chunks) == 1:
                return chunks[0]
            if chunks and pa.types.is_string(chunks[0].type):
                return in_one_piece(chunks)
            return pa.concat_arrays(chunks) if chunks else pa.array([], _undone(pa.array([], values.type)).type)
        if isinstance(values, pa.Array):
            array = values
        elif hasattr(values, "__arrow_c_stream__") and not isinstance(values, pd.Series | pd.Index):
            array = pa.chunked_array(values)
        else:
            array = pa.array(values, from_pandas=True)
        return plain(array, what) if isinstance(array, pa.ChunkedArray) else _undone(array)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        said = reason(error, "its values are not of one kind")
    # Out of reach of that error, which may hold the data.
    raise DataError(f"{what} cannot be read: {said}; give every row a text, or every row a number")


def _undone(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _undone(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return _undone(pc.run_end_decode(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        array.validate(full=True)  # Arrow makes strings of any bytes, and stops at them later
    return array


def in_one_piece(pieces: Sequence[pa.StringArray]) -> pa.StringArray:
    """``pieces`` of text, one after the other, as one array.

    Its memory is allocated by numpy, which uses huge pages for large arrays: for a nation's codes this takes a fifth of
    the time of Arrow's pages of 4 KiB.
    """
    pieces = [piece for piece in pieces if len(piece)]
    bounds = [np.frombuffer(p.buffers()[1], np.int32)[p.offset : p.offset + len(p) + 1] for p in pieces]
    sizes = [int(bound[-1]) - int(bound[0]) for bound in bounds]
    if not pieces or sum(sizes) > np.iinfo(np.int32).max or any(piece.null_count for piece in pieces):
        return pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())
    offsets, letters = np.empty(sum(map(len, pieces)) + 1, np.int32), np.empty(sum(sizes), np.uint8)
    offsets[0] = row = place = 0
    for piece, bound, size in zip(pieces, bounds, sizes, strict=True):
        np.add(bound[1:], np.int32(place - int(bound[0])), out=offsets[row + 1 : row + 1 + len(piece)])
        if size:
            letters[place : place + size] = np.frombuffer(piece.buffers()[2], np.uint8)[bound[0] : bound[-1]]
        row, place = row + len(piece), place + size
    return pa.StringArray.from_buffers(row, pa.py_buffer(offsets), pa.py_buffer(letters))


def as_strings(values: Any, what: str, *, allow_integers: bool = False) -> pa.Array:
    """``values`` as one Arrow string array; refuses numbers, which have lost their leading zeros, unless allowed."""
    require_list(values, what)
    try:
        array = plain(values, what)
    except DataError as error:
        raise GeographyError(f"{error} (identifiers must all be strings)") from None
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_large_string(array.type):
        return array.cast(pa.string())
    if pa.types.is_null(array.type) or (allow_integers and pa.types.is_integer(array.type)):
        return array.cast(pa.string())
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        raise GeographyError(f"{what} holds bytes; decode them to strings first")
    if pa.types.is_nested(array.type) or isinstance(array.type, pa.BaseExtensionType):
        raise GeographyError(f"{what} holds {type_name(array.type)}, and identifiers are strings; give every row one")
    raise GeographyError(
        f"{what} holds numbers ({type_name(array.type)}), and GEOIDs are zero-padded strings: as a number "
        "'01001' becomes 1001 and can no longer be told from another code; read the column as strings "
        '(pandas: dtype={"geoid": str}), or restore the zeros with .astype(str).str.zfill(width)'
    )


def as_text(values: Any, what: str) -> pa.Array:
    """``values`` of any plain kind as Arrow strings, to be compared with text. Raises `DataError` for nested kinds."""
    array = plain(values, what)
    try:
        return array.cast(pa.string())
    except pa.ArrowException:
        kind = type_name(array.type)
    raise DataError(f"{what} holds {kind}, which cannot be read as text; give a column of text or numbers")


def without_decimals(text: pa.Array) -> pa.Array:
    """``text`` in which "2020.0" is 2020: so programs write whole numbers in a column that lacks some."""
    return pc.replace_substring_regex(text, r"^([0-9]+)\.0+$", r"\1")


def places_among(text: pa.Array, known: Sequence[str]) -> pa.Array:
    """Where every value of ``text``, if need be `without_decimals`, stands among the ``known`` ones; null where it does
    not.
    """
    values = pa.array(known, pa.string())
    found = pc.index_in(text, value_set=values)
    if found.null_count == text.null_count:
        return found
    return pc.coalesce(found, pc.index_in(without_decimals(text), value_set=values))


def with_rows(table: pa.Table, chosen: pa.Array) -> pa.Table:
    """The rows of ``table`` that are ``chosen`` (booleans). Raises `DataError` for a column of which none can be."""
    try:
        return table.filter(chosen)
    except pa.ArrowException:
        pass
    # A layout from which Arrow cannot choose rows, such as a view: convert one column after the other.
    kept = {}
    for name in table.column_names:
        values = plain(table[name], f"column {shown(name)}")
        try:
            kept[name] = values.filter(chosen)
        except pa.ArrowException:
            kept[name] = None
        if kept[name] is None:
            kind = type_name(values.type)
            raise DataError(f"column {shown(name)} holds {kind}, of which rows cannot be chosen; leave the column out")
    return pa.table(kept)


def column(frame: Any, name: str) -> Any:
    """The column ``name`` of a DataFrame, an Arrow table or a mapping. Raises `GeographyError` where it is absent."""
    if isinstance(frame, pa.Table):
        times = len(frame.schema.get_all_field_indices(name))
    else:
        times = int((frame.columns == name).sum()) if isinstance(frame, pd.DataFrame) else int(name in frame)
    if not times:
        known = frame.column_names if isinstance(frame, pa.Table) else list(frame)
        raise GeographyError(f"the table has no column {shown(name)}; it has {column_names(known)}")
    if times > 1:
        raise GeographyError(f"two columns of the table are called {shown(name)}; rename one of them")
    return frame[name]


def code_shown(code: str, others: pa.Array, parent: str | None = None) -> str:
    """The identifier ``code``, one of ``others``, as a message may show it.

    Identifiers are public, but a row that is shifted by a field has a count where a code should be. So a long number is
    shown only where it looks like a code: it is as long as most of ``others`` (or one digit shorter, where its zero was
    lost), and begins with its ``parent``'s code or is in a column of zero-padded codes.
    """
    if not may_hold_a_count(code):
        return shown(code)
    lengths = pc.mode(pc.utf8_length(others), 1)
    usual = lengths[0]["mode"].as_py() if len(lengths) else None
    if parent and parent.isdecimal():
        is_code = any(len(c) == usual and c.startswith(parent) for c in (code, "0" + code))
    else:
        padded = pc.and_(pc.starts_with(others, "0"), pc.equal(pc.utf8_length(others), usual))
        is_code = len(code) == usual and pc.any(padded).as_py()
    return shown(code) if is_code and code.isdecimal() else WITHHELD


def require_stripped(values: pa.Array, what: str) -> None:
    """Refuse identifiers with blanks before or after them, which differ from those without."""
    if _without_blanks(values):
        return
    blank = pc.not_equal(values, pc.utf8_trim_whitespace(values))
    if pc.any(blank).as_py():
        row = int(np.flatnonzero(np.asarray(pc.fill_null(blank, False)))[0])
        raise GeographyError(
            f"{ROW}: {what} has a blank before or after the code {code_shown(values[row].as_py(), values)}; take "
            "the blanks out of the table",
            row=row,
        )


def _without_blanks(values: pa.Array) -> bool:
    """Whether all characters of ``values`` are printable ASCII; far cheaper than searching for blanks."""
    _, offsets_buffer, data = values.buffers()
    if not len(values) or data is None:
        return True
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(data, np.int8)[offsets[0] : offsets[-1]]
    return all(bool((part > ord(" ")).all()) for part in np.array_split(text, 1 + len(text) // _BYTES_AT_ONCE))


def missing(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.or_kleene(pc.is_null(values), pc.fill_null(pc.equal(values, ""), True)))


def encode(values: pa.Array) -> tuple[IntArray, pa.Array]:
    """Numbers for values, in the code-point order of the values, and the distinct values; neither depends on the order
    of rows.
    """
    # Sorted tables are the common case, and a comparison of neighbours is far cheaper than hashing and than a sort.
    new = rises(values)
    if len(values) and (new | stays(values)).all():
        starts = np.concatenate([[True], new])
        return np.cumsum(starts) - 1, values if new.all() else values.filter(pa.array(starts))
    encoded = values.dictionary_encode()
    codes, labels = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    if rises(labels).all():
        return codes, labels
    order = pc.array_sort_indices(labels)
    rank = np.empty(len(labels), np.int64)
    rank[order.to_numpy()] = np.arange(len(labels))
    return rank[codes], labels.take(order)


def rises(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether every string but the first is greater than the one before it, by code points; (values - 1,)."""
    after = pc.greater(values.slice(1), values.slice(0, max(0, len(values) - 1)))
    return np.asarray(pc.fill_null(after, False))


def stays(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether every string but the first equals the one before it; (values - 1,). A missing one does not."""
    same = pc.equal(values.slice(1), values.slice(0, max(0, len(values) - 1)))
    return np.asarray(pc.fill_null(same, False))


def first_repeat(codes: IntArray) -> int:
    return int(np.flatnonzero(pd.Series(codes).duplicated().to_numpy())[0])
