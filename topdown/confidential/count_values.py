"""Checks counts: reads whole numbers from columns of any type, and refuses records in structural zeros of the
schema.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ROW, CountsError, DataError
from topdown.geography.geography import Geography
from topdown.geography.labels import plain
from topdown.geography.tree import IntArray
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.tables.number_marks import AMBIGUOUS
from topdown.wording import of_the_value, shown, type_name
from topdown.workload import Schema

_NO_NUMBER = ["", "na", "n/a", "nan", "null", "none"]
"""How files write a missing number."""


def whole_numbers(values: Any, title: str, nodes: IntArray | range, geography: Geography) -> IntArray:
    """A column of counts as int64, exactly; refuses what is not a count with the node, the level and the row.

    The message shows the value only if it is a word: a number, however written, may be a true count.
    """
    what = f"column {shown(title)}"
    array = _one_kind(values, what)
    if len(array) != len(nodes):
        raise CountsError(f"{what} has {len(array)} values for {len(nodes)} GEOIDs; give every row its value")

    def refuse(wrong: npt.NDArray[np.bool_], what: str, remedy: str) -> None:
        rows = np.flatnonzero(wrong)
        if len(rows):
            row = int(rows[0])
            raise CountsError(
                f"{geography.describe(int(nodes[row]))}, cell {shown(title)} ({ROW}): the value"
                f"{of_the_value(array[row].as_py())} {what}; {remedy}",
                row=row,
            )

    kind = array.type
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        raise CountsError(f"{what} holds {type_name(kind)}; give whole numbers")
    refuse(np.asarray(pc.is_null(array)), "is missing", "give a whole number, 0 where nothing was counted")
    if pa.types.is_integer(kind):
        numbers = array
    elif pa.types.is_floating(kind):
        real = np.asarray(array.cast(pa.float64(), safe=False))
        refuse(np.isnan(real), "is missing", "give a whole number, 0 where nothing was counted")
        refuse(np.isinf(real), "is infinite", "give a whole number")
        refuse(real < 0, "is negative", "counts are 0 or more: correct it")
        refuse(real != np.floor(real), "is a fraction", "counts are whole: correct it or round it deliberately")
        refuse(real > LARGEST_WHOLE, "is more than 2^53", "count in larger units")
        numbers = pa.array(real.astype(np.int64))
    elif pa.types.is_decimal(kind):
        # Arrow's decimals have a known scale: their point cannot separate thousands.
        numbers = _from_text(pc.replace_substring_regex(array.cast(pa.string()), r"\.0+$", ""), refuse)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        numbers = _from_text(array, refuse)
    else:
        raise CountsError(f"{what} holds {type_name(kind)}; give whole numbers")
    whole = np.asarray(numbers)
    refuse(whole < 0, "is negative", "counts are 0 or more: correct it")
    refuse(whole > LARGEST_WHOLE, "is more than 2^53", "count in larger units")
    return whole.astype(np.int64, copy=False)


def _one_kind(values: Any, what: str) -> pa.Array:
    """``values`` as one plain array; numbers among strings, and integers beyond 64 bits, become their text."""
    try:
        return plain(values, what)
    except DataError:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            raise
    try:
        return pa.array([None if _is_missing(value) else str(value) for value in values], pa.string())
    except (pa.ArrowException, TypeError, ValueError):
        pass
    raise CountsError(f"{what} holds values that cannot be read as numbers; give whole numbers")


_WITHHELD = r"^([<>≤≥] *[0-9]+|\.{1,3}|\*{1,3}|-{1,2}|[a-zA-Z:#/]|\([a-zA-Z]\))$"
"""How published tables mark a suppressed or unknown count: <5, .., *, -, x, (X)."""


def _is_missing(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _from_text(array: pa.Array, refuse: Any) -> pa.Array:
    text = pc.utf8_trim_whitespace(array)
    grouped = pc.match_substring_regex(text, r"^[+-]?[0-9]{1,3}(,[0-9]{3})+(\.0*)?$")
    text = pc.if_else(grouped, pc.replace_substring(text, ",", ""), text)
    whole = r"^[+-]?[0-9]+(\.0*)?$"
    none = pc.is_in(pc.utf8_lower(text), value_set=pa.array(_NO_NUMBER))
    refuse(np.asarray(none), "is missing", "give a whole number, 0 where nothing was counted")
    refuse(
        np.asarray(pc.match_substring_regex(text, r"(?i)^[+-]?(inf|infinity)$")), "is infinite", "give a whole number"
    )
    refuse(
        np.asarray(pc.match_substring_regex(text, AMBIGUOUS)),
        "has three digits after a point, which may be a decimal mark or separate thousands",
        'write it with digits only, or say which: input.thousands = "." or input.decimal = "."',
    )
    refuse(
        np.asarray(pc.match_substring_regex(text, r"^[+-]?[0-9]*\.[0-9]*[1-9][0-9]*$")),
        "is a fraction",
        "counts are whole: correct it or round it deliberately",
    )
    refuse(
        np.asarray(pc.match_substring_regex(text, _WITHHELD)),
        "marks a count that is suppressed or unknown",
        "a release is made from the true counts: give a table that has them, with 0 where nothing was counted",
    )
    readable = np.asarray(pc.match_substring_regex(text, whole))
    refuse(~readable, "is not a whole number", "write it with digits only, as 1234 or 1,234")
    digits = pc.replace_substring_regex(text, r"(\.0*)$|^\+", "")
    significant = pc.utf8_length(pc.replace_substring_regex(digits, r"^-?0*", ""))
    refuse(np.asarray(pc.greater(significant, 18)), "is more than 2^53", "count in larger units")
    return digits.cast(pa.int64())


def total_of(counts: IntArray) -> int:
    """The sum of ``counts`` of at most 2^53 each: exact up to 2^54, above that to the precision of float64."""
    about = float(counts.sum(dtype=np.float64))
    return int(counts.sum()) if about <= 2 * LARGEST_WHOLE else int(about)


def refuse_zeros(values: IntArray, schema: Schema, geography: Geography) -> None:
    """Refuse records in the structural zeros of the schema; ``values`` (cells x nodes)."""
    closed = np.flatnonzero(schema.excluded(np.arange(schema.n_cells)))
    for cell in closed[values[closed, 0] > 0][:1]:
        leaves = geography.tree.leaves
        node = leaves.start + int(np.flatnonzero(values[cell, leaves] > 0)[0])
        raise occupied_zero(geography, node, schema.cells()[int(cell)])


def occupied_zero(geography: Geography, node: int, cell: str) -> CountsError:
    """The error for a unit with records in a structural zero of the schema."""
    return CountsError(
        f"{geography.describe(node)}: has records in cell {shown(cell)}, which is a structural zero of the schema; "
        "correct the table, or remove the zero"
    )
