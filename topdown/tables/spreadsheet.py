"""Text in CSV files that no spreadsheet reads as a formula, and reading it back."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CSV_TEXT_RULE = (
    "In text and in the names of columns a backslash is written twice and a control character (a tab, a line break, an "
    "escape) as \\t, \\n, \\r or \\x1b. What then begins with =, +, - or @ (or with one of these after blanks or "
    "apostrophes) has one more apostrophe in front, so that no spreadsheet takes it for a formula. Without that "
    "apostrophe, and with the backslashes read back, it is the text that the Parquet file has; numbers are as they are."
)
"""What `as_csv_text` does, in words."""

_SUSPECT = np.array([k < 32 or k in (ord("\\"), 127, 0xC2) for k in range(256)])
"""Bytes of UTF-8 of which a control character or a backslash has at least one; 0xC2 begins characters 128 to 159."""
_CONTROL = "[\\x00-\\x1f\\x7f-\u009f\\\\]"
_ESCAPED = re.compile(r"\\(\\|[tnr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_PLAIN = np.array([chr(k).isascii() and chr(k).isalnum() for k in range(256)])

# The last four are full-width forms of the first ones, which some spreadsheets treat the same. Blanks, non-printing
# marks and apostrophes before them are skipped by spreadsheets, or mark text.
_FORMULA = "[\\s\\p{Z}\\p{C}']*[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]"


def as_csv_text(text: pa.StringArray) -> pa.StringArray:
    """``text`` by `CSV_TEXT_RULE`: control characters escaped, an apostrophe before what may begin a formula.

    Source: OWASP, "CSV Injection".
    """
    text = _replaced(text, _CONTROL, _escape) if _SUSPECT[_bytes_of(text)].any() else text
    if _begins_with_letters_and_digits(text):
        return text
    return pc.replace_substring_regex(text, f"^({_FORMULA})", r"'\1", max_replacements=1)


def _escape(text: str) -> str:
    return re.sub(_CONTROL, lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def _replaced(text: pa.StringArray, pattern: str, change: Callable[[str], str]) -> pa.StringArray:
    """``text`` with those of its texts changed in which ``pattern`` is found, which are few."""
    has = pc.fill_null(pc.match_substring_regex(text, pattern), False)
    changed = [change(one) for one in text.filter(has).to_pylist()]
    return pc.replace_with_mask(text, has, pa.array(changed, pa.string())) if changed else text


def _begins_with_letters_and_digits(text: pa.StringArray) -> bool:
    """Whether all of ``text`` begins with ASCII letters and digits, as codes do; far cheaper than matching a
    pattern.
    """
    content, offsets = _bytes_of(text), _offsets_of(text)
    first = content[offsets[:-1][np.diff(offsets) > 0] - offsets[0]]
    return bool(_PLAIN[first].all())


def _offsets_of(text: pa.StringArray) -> npt.NDArray[np.int32]:
    offsets = text.buffers()[1]
    return np.frombuffer(offsets or bytes(4), np.int32)[text.offset : text.offset + len(text) + 1]


def _bytes_of(text: pa.StringArray) -> npt.NDArray[np.uint8]:
    """The UTF-8 of all of ``text`` in one piece."""
    offsets = _offsets_of(text)
    return np.frombuffer(text.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]


def from_csv_text(text: pa.StringArray) -> pa.StringArray:
    """The strings of which `as_csv_text` made ``text``."""
    plain = pc.replace_substring_regex(text, f"^'({_FORMULA})", r"\1", max_replacements=1)
    return _replaced(plain, r"\\", _unescape)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: found[0].encode("ascii").decode("unicode_escape"), text)


def as_csv_names(names: Sequence[str]) -> list[str]:
    """The ``names`` of columns as they stand in the header of a CSV file, by `CSV_TEXT_RULE`."""
    written: list[str] = as_csv_text(pa.array(names, pa.string())).to_pylist()
    return written


def as_plain_table(table: pa.Table) -> pa.Table:
    """``table`` with its text and its columns' names by `CSV_TEXT_RULE`, and without dictionaries, as CSV has it."""
    columns = [pa.chunked_array(list(map(_plain, one.chunks)), _kind(one.type)) for one in table.columns]
    return pa.table(columns, as_csv_names(table.column_names))


def _kind(kind: pa.DataType) -> pa.DataType:
    """The type of a column of ``kind`` in CSV: all text has the same type."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


def _plain(piece: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(piece.type):
        # Only the few texts of the dictionary are examined, not the many rows.
        return _plain(piece.dictionary).take(piece.indices)
    plain = piece.cast(_kind(piece.type))
    return as_csv_text(plain) if pa.types.is_string(plain.type) else plain
