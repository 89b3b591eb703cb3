"""Numbers written with marks: separators of thousands, a decimal comma. Numbers without marks need no settings."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from topdown.tables.format import Format

_SIGNS = {" ": "[ \u00a0\u202f\u2009]", "'": "['\u2019]"}
"""The characters of a mark, as a pattern."""

AMBIGUOUS = r"^[+-]?[1-9][0-9]{0,2}\.[0-9]{3}(\.[0-9]{3})*$"
"""A number whose point may be a decimal mark or a separator of thousands: 12.000."""


def without_marks(text: pa.Array, form: Format) -> pa.Array:
    """``text`` with its numbers as digits and a point, by the marks in ``form``; other text is unchanged. Where only
    the decimal point is given, 12.000 becomes 12.
    """
    if form.decimal is None and form.thousands is None:
        return text
    found = text
    if form.thousands is not None:
        mark = _SIGNS.get(form.thousands, re.escape(form.thousands))
        other = "" if form.decimal is None else f"({re.escape(form.decimal)}[0-9]*)?"
        grouped = pc.match_substring_regex(found, rf"^\s*[+-]?[0-9]{{1,3}}({mark}[0-9]{{3}})+{other}\s*$")
        found = pc.if_else(grouped, pc.replace_substring_regex(found, mark, ""), found)
    if form.decimal is not None:
        mark = re.escape(form.decimal)
        number = pc.match_substring_regex(found, rf"^\s*[+-]?[0-9]+{mark}[0-9]*\s*$")
        found = pc.if_else(number, pc.replace_substring(found, form.decimal, "."), found)
        found = pc.if_else(number, pc.replace_substring_regex(found, r"\.0*(\s*)$", r"\1"), found)
        # A number with decimals must not be read with the other mark.
        found = pc.if_else(
            pc.and_(number, pc.match_substring_regex(found, AMBIGUOUS)),
            pc.binary_join_element_wise(found, "0", ""),
            found,
        )
    return found
