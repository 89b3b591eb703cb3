"""How messages quote input: only a little of it, without control characters, and without anything that may be a count.

Every message that quotes input (a table, TOML, GeoJSON, a manifest, the journal, the ledger) uses a function of this
module. A piece has at most `LONGEST_PIECE` characters and a list `LONGEST_LIST`, so that a message has at most 200
characters of its input besides the paths of files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

LONGEST_PIECE = 40
LONGEST_LIST = 80
LONGEST_PATH = 160
LONGEST_MESSAGE = 1_500
_NO_HEADER = "; is its first line a header, with every quote closed?"

_FEW = 8

WITHHELD = "(not shown: it may be a count)"

# Groups of digits as people write them: 1,234,567, 1 234 567, 1'234'567, 1.234.567, 1_234_567.
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\s,.'’_-]+(?=\d)")
# Digits after a few letters belong to a code, as in "P0010001" or "E12000007"; after a longer word they may be the next
# field, whose separator was lost.
_NUMBER = re.compile(r"(?<![^\W\d_])(?<!\d)\d{4,}|(?<![^\W\d_])[^\W\d_]{4,}_?[1-9]\d{4,}")
_LONE_NUMBER = re.compile(r"(?<!\w)\d+(?!\w)")
# Digits after a single letter; in names of variables they begin with a zero, or are fewer.
_LETTER_AND_COUNT = re.compile(r"(?<![^\W_])[^\W\d_][1-9]\d{5,}")


def escaped(text: str) -> str:
    r"""``text`` with every character that does not print as itself (ESC, line ends, bidi marks, surrogates) as \x1b."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escaped_lines(text: str) -> str:
    """``text`` of several lines, each of them `escaped`."""
    return text if text.isprintable() else "\n".join(map(escaped, text.split("\n")))


def escaped_json(text: str) -> str:
    r"""JSON, with every character of its strings that does not print as itself as \u001b, which means the same."""
    return "\n".join(
        line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
        for line in text.split("\n")
    )


def shown(value: object, most: int = LONGEST_PIECE) -> str:
    """The repr of ``value``, at most ``most`` characters of it: for settings and names, not for a table's values."""
    if isinstance(value, str):
        return repr(value) if len(value) <= most else repr(value[:most]) + "..."
    if isinstance(value, int) and value.bit_length() > 3 * most:
        return f"a whole number of {value.bit_length():,} bits"
    try:
        text = escaped(repr(value))
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return f"a {type(value).__name__} that is too long to be written"
    return text if len(text) <= most else text[:most] + "..."


def unquoted(name: str, most: int = LONGEST_PIECE) -> str:
    """``name`` without quotes, for names that the configuration gives."""
    text = escaped(name)
    return text if len(text) <= most else f"{text[:most]}..."


def figure(value: object) -> str:
    """A number of the configuration, as it is written there."""
    return shown(value) if isinstance(value, int) else unquoted(str(value))


def joined(pieces: Sequence[str], most: int = LONGEST_LIST) -> str:
    """The first few of ``pieces``, of at most about ``most`` characters, and how many more there are."""
    kept: list[str] = []
    for piece in pieces[:_FEW]:
        if kept and sum(map(len, kept)) + len(piece) > most:
            break
        kept.append(piece)
    return ", ".join(kept) + (f" and {len(pieces) - len(kept):,} more" if len(kept) < len(pieces) else "")


def listed(values: Iterable[object], most: int = LONGEST_LIST) -> str:
    """The first few of ``values``, as `shown`, and how many more there are; "none" where there is none."""
    return joined([shown(value) for value in values], most) or "none"


def shown_path(path: str | Path) -> str:
    """``path``, escaped; a very long one is shortened to its beginning and end."""
    text, half = escaped(str(path)), LONGEST_PATH // 2
    return text if len(text) <= LONGEST_PATH else f"{text[:half]}...{text[-half:]}"


def may_hold_a_count(text: str) -> bool:
    """Whether the part of ``text`` that a message would show has a number of four digits or more, however written."""
    return _NUMBER.search(_BETWEEN_DIGITS.sub("", text[: 2 * LONGEST_PIECE])) is not None


def may_hold_a_marked_count(text: str) -> bool:
    """As `may_hold_a_count`, where a letter may precede a count, since no code and no name of a variable is
    expected.
    """
    return may_hold_a_count(text) or _LETTER_AND_COUNT.search(text[: 2 * LONGEST_PIECE]) is not None


def passes_as_name(name: object) -> bool:
    """Whether the name of a column may be shown: short, on one line, with a letter, without a number in it. Values in
    the first line of a table without a header, or after a quote that is not closed, are not shown.
    """
    return (
        isinstance(name, str)
        and len(name) <= LONGEST_PIECE
        and name.isprintable()
        and any(c.isalpha() for c in name)
        and _LONE_NUMBER.search(name) is None
        and not may_hold_a_marked_count(name)
    )


def column_names(names: Iterable[object]) -> str:
    """The columns of a table, to follow "it has": a few that `passes_as_name`, and how many others."""
    known = list(names)
    passed = [repr(name) for name in known if passes_as_name(name)]
    others = len(known) - len(passed)
    if not known:
        return "none"
    if not passed:
        return f"{others:,} whose names do not look like names{_NO_HEADER}"
    return joined(passed) + (f", and {others:,} whose names do not look like names{_NO_HEADER}" if others else "")


def column_name(name: object) -> str:
    """One column's name, or a replacement if it does not look like a name."""
    return repr(name) if passes_as_name(name) else "(not shown: it does not look like a name)"


def of_the_value(value: object) -> str:
    """ " 'many'", to follow "the value", if it is text without digits; otherwise nothing, since it may be a count."""
    is_word = isinstance(value, str) and value.strip() != "" and not any(c.isnumeric() for c in value)
    return f" {shown(value)}" if is_word else ""


def type_name(kind: object) -> str:
    """An Arrow type without the names of its fields: "list", "struct", "decimal128(38, 2)"."""
    return escaped(str(kind).split("<")[0])[:LONGEST_PIECE]


DAMAGED = "its content is damaged, or of another kind"
NOT_UTF8 = "it is not UTF-8 text; save it as UTF-8"
FAILED = "input or output failed"
FETCH = "get the release again from whoever published it"
"""The remedy if a release was changed after it was written."""


def reason(error: BaseException, otherwise: str = DAMAGED) -> str:
    """The cause of ``error``, from its type: never from its text, which may contain input."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    # Two of Arrow's messages, which contain nothing of the file.
    if "Empty CSV file" in str(error):
        return "it has no rows, or a quote in it is not closed"
    if isinstance(error, UnicodeError) or "UTF8" in str(error):
        return NOT_UTF8
    return otherwise


class LinkedWords(NamedTuple):
    """What messages call the records of two linked tables: several of each, as their tables are called, one of each,
    and the person whom a household's own attributes describe (None: there is none)."""

    households: str = "households"
    persons: str = "persons"
    household: str = "household"
    person: str = "person"
    householder: str | None = "householder"


CENSUS_WORDS = LinkedWords()
