"""Text in CSV files that no spreadsheet takes for a formula, and the way back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CSV_TEXT_RULE = (
    "Text that begins with =, +, -, @, a tab or a line break (or with one of these after blanks or apostrophes) has "
    "one more apostrophe in front, so that no spreadsheet takes it for a formula. Without that apostrophe it is the "
    "text that the Parquet file has; numbers are as they are."
)
"""What `as_csv_text` does, in words."""

_PLAIN = np.array([chr(k).isascii() and chr(k).isalnum() for k in range(256)])

# The last four are the full-width forms of the first ones, which some spreadsheets take for them. Before them blanks,
# marks that do not print and apostrophes, which are skipped or taken for a mark of text.
_FORMULA = "[\\s\\p{Z}\\p{C}']*[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]"


def as_csv_text(text: pa.StringArray) -> pa.StringArray:
    """``text`` by `CSV_TEXT_RULE`: an apostrophe before what may begin a formula.

    Source: OWASP, "CSV Injection".
    """
    if _begins_with_letters_and_digits(text):
        return text
    return pc.replace_substring_regex(text, f"^({_FORMULA})", r"'\1", max_replacements=1)


def _begins_with_letters_and_digits(text: pa.StringArray) -> bool:
    """Whether all of ``text`` begins with plain letters and digits, as codes do; far cheaper than to match."""
    _, offsets_buffer, data = text.buffers()
    if not len(text) or data is None:
        return True
    offsets = np.frombuffer(offsets_buffer, np.int32)[text.offset : text.offset + len(text) + 1]
    first = np.frombuffer(data, np.uint8)[offsets[:-1][np.diff(offsets) > 0]]
    return bool(_PLAIN[first].all())


def from_csv_text(text: pa.StringArray) -> pa.StringArray:
    """The strings of which `as_csv_text` made ``text``."""
    return pc.replace_substring_regex(text, f"^'({_FORMULA})", r"\1", max_replacements=1)


def as_plain_table(table: pa.Table) -> pa.Table:
    """``table`` with its text by `CSV_TEXT_RULE`, and without dictionaries, as CSV has it."""
    columns = {}
    for name in table.column_names:
        pieces = [_plain(piece) for piece in table[name].chunks]
        columns[name] = pa.chunked_array(pieces, None if pieces else table[name].type)
    return pa.table(columns)


def _plain(piece: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(piece.type):
        # A dictionary's few texts are looked at, and not its many rows.
        return _plain(piece.dictionary).take(piece.indices)
    return as_csv_text(piece) if pa.types.is_string(piece.type) else piece
