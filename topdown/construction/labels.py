"""Columns of identifiers as Arrow strings, and their codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import GeographyError
from topdown.tree import IntArray


def as_strings(values: Any, what: str, *, allow_integers: bool = False) -> pa.Array:
    """``values`` as one Arrow string array; refuses numbers, which have lost their leading zeros, unless allowed."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise GeographyError(f"{what}: identifiers must all be strings ({error}); convert them first") from error
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    if pa.types.is_null(array.type) or (allow_integers and pa.types.is_integer(array.type)):
        return array.cast(pa.string())
    example = next((x for x in array.slice(0, 100).to_pylist() if x is not None), None)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        raise GeographyError(f"{what} holds bytes, such as {example!r}; decode them to strings first")
    raise GeographyError(
        f"{what} holds numbers ({array.type}, such as {example!r}), and GEOIDs are zero-padded strings: as a number "
        "'01001' becomes 1001 and can no longer be told from another code; read the column as strings "
        '(pandas: dtype={"geoid": str}), or restore the zeros with .astype(str).str.zfill(width)'
    )


def column(frame: Any, name: str) -> Any:
    """The column ``name`` of a DataFrame, an Arrow table or a mapping. Raises `GeographyError` where it is absent."""
    if isinstance(frame, pa.Table):
        times = len(frame.schema.get_all_field_indices(name))
    else:
        times = int((frame.columns == name).sum()) if isinstance(frame, pd.DataFrame) else int(name in frame)
    if not times:
        known = frame.column_names if isinstance(frame, pa.Table) else list(frame)
        raise GeographyError(f"the table has no column {name!r}; it has {', '.join(map(repr, known)) or 'none'}")
    if times > 1:
        raise GeographyError(f"two columns of the table are called {name!r}; rename one of them")
    return frame[name]


def missing(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.or_kleene(pc.is_null(values), pc.fill_null(pc.equal(values, ""), True)))


def encode(values: pa.Array) -> tuple[IntArray, pa.Array]:
    """Codes in the code-point order of what they stand for, and that: neither depends on the order of the rows."""
    # Sorted tables are the common case, and a comparison of neighbours is far cheaper than hashing and than a sort.
    new = rises(values)
    if len(values) and (new | _stays(values)).all():
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
    """Whether every string but the first stands after the one before it, by code points; (values - 1,)."""
    after = pc.greater(values.slice(1), values.slice(0, max(0, len(values) - 1)))
    return np.asarray(pc.fill_null(after, False))


def _stays(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether every string but the first is the one before it; (values - 1,). A missing one is not."""
    same = pc.equal(values.slice(1), values.slice(0, max(0, len(values) - 1)))
    return np.asarray(pc.fill_null(same, False))


def first_repeat(codes: IntArray) -> int:
    return int(np.flatnonzero(pd.Series(codes).duplicated().to_numpy())[0])


def listed(items: Iterable[Any]) -> str:
    return ", ".join(map(repr, items))
