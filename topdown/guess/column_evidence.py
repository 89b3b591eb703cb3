"""The evidence in a single column of a table: its values as text and as numbers, and what kind of column it may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.geography.labels import as_text, without_decimals
from topdown.guess import vocabulary

IntArray = npt.NDArray[np.int64]

MISSING = pa.array(
    [
        "",
        "NA",
        "N/A",
        "n/a",
        "na",
        "nan",
        "NaN",
        "null",
        "NULL",
        "None",
        "-",
        "--",
        ".",
        "..",
        "...",
        ":",
        "x",
        "X",
        "*",
        "**",
        "(X)",
        "c",
        "D",
        "S",
        "#",
        "/",
        "<NA>",
        "n.a.",
        "nd",
        "s",
    ]
)
"""Signs for missing or withheld numbers in tables."""

_WHOLE = r"^[-+]?[0-9]+(\.0*)?$"
_NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
_PERCENT = r"^[-+]?[0-9]+([.,][0-9]+)? ?%$"
_MOSTLY = 0.9
_FEW_MISTAKES = 0.97
MOST_CATEGORIES = 60
OLDEST = 130


@dataclass(frozen=True, eq=False)
class ColumnEvidence:
    """A column called ``name``, the ``place``-th of its table: its ``text``, and whether it is kept as numbers
    (``stored_number``), so that zeros before a code are lost."""

    name: str
    place: int
    text: pa.Array
    stored_number: bool = False

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def _encoded(self) -> tuple[IntArray, pa.Array]:
        found = self.text.dictionary_encode()
        return np.asarray(pc.fill_null(found.indices, -1)).astype(np.int64), found.dictionary

    @property
    def codes(self) -> IntArray:
        """A number for every value, -1 where it is missing."""
        return self._encoded[0]

    @property
    def values(self) -> pa.Array:
        """The distinct values."""
        return self._encoded[1]

    @cached_property
    def distinct(self) -> int:
        return len(self.values)

    @cached_property
    def nulls(self) -> int:
        return int(self.text.null_count)

    @property
    def is_unique(self) -> bool:
        return self.nulls == 0 and self.distinct == len(self)

    @cached_property
    def _share(self) -> tuple[float, float, float]:
        """Of the values that are not missing, the shares of numbers, of whole ones and of percentages."""
        if self.nulls == len(self):
            return 0.0, 0.0, 0.0
        weight = np.bincount(self.codes[self.codes >= 0], minlength=self.distinct).astype(float)
        weight *= ~np.asarray(pc.is_in(self.values, value_set=MISSING))
        if not weight.sum():
            return 0.0, 0.0, 0.0
        return tuple(  # type: ignore[return-value]
            float((weight * np.asarray(pc.match_substring_regex(self.values, of))).sum() / weight.sum())
            for of in (_NUMBER, _WHOLE, _PERCENT)
        )

    @property
    def _names_a_total(self) -> bool:
        """Whether some value is the name of a total, which stands among codes, and never among counts."""
        return any(len(value) > 3 and vocabulary.names_total(value) for value in self.values.to_pylist())

    @cached_property
    def kind(self) -> str:
        """ "empty", "whole" (numbers, whole but for a few mistakes), "fraction" (numbers), "percent", or "text"."""
        number, whole, percent = self._share
        if self.distinct == 0 or pc.all(pc.is_in(self.values, value_set=MISSING)).as_py():
            return "empty"
        if percent > _MOSTLY:
            return "percent"
        if number < _MOSTLY or (number < 1 and (vocabulary.says(self.name, vocabulary.CODE) or self._names_a_total)):
            return "text"
        return "whole" if whole >= _FEW_MISTAKES * number else "fraction"

    @cached_property
    def numbers(self) -> npt.NDArray[np.float64]:
        """The values as numbers, NaN where they are none."""
        readable = pc.match_substring_regex(self.values, _NUMBER)
        each = np.asarray(pc.if_else(readable, self.values, None).cast(pa.float64())).astype(float)
        return np.where(self.codes >= 0, np.append(each, np.nan)[self.codes], np.nan)

    @cached_property
    def largest(self) -> float:
        return float(np.nanmax(self.numbers)) if np.isfinite(self.numbers).any() else 0.0

    @cached_property
    def smallest(self) -> float:
        return float(np.nanmin(self.numbers)) if np.isfinite(self.numbers).any() else 0.0

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths that values have, in rising order."""
        return sorted(set(pc.utf8_length(self.values).to_pylist()))

    @cached_property
    def is_digits(self) -> bool:
        return self.distinct > 0 and bool(pc.all(pc.match_substring_regex(self.values, r"^[0-9]+$")).as_py())

    @cached_property
    def has_zeros(self) -> bool:
        """Whether numbers of one length begin with 0, as codes do and counts do not."""
        return (
            self.is_digits
            and len(self.lengths) == 1
            and self.lengths[0] > 1
            and bool(pc.any(pc.match_substring_regex(self.values, r"^0")).as_py())
        )

    @cached_property
    def is_coded_text(self) -> bool:
        """Whether these are codes of capital letters and digits, of few forms: E06000001, DE111, 2A004."""
        pattern = r"^[0-9A-Z][0-9A-Z._:/-]*$"
        if self.kind != "text" or not pc.all(pc.match_substring_regex(self.values, pattern)).as_py():
            return False
        digits = pc.match_substring_regex(self.values, r"[0-9]")
        return bool(pc.mean(digits.cast(pa.float64())).as_py() > 0.7) and len(self.lengths) <= 4

    @cached_property
    def runs(self) -> int:
        """How often the value changes from one row to the next, and one."""
        return 1 + int((np.diff(self.codes) != 0).sum()) if len(self) else 0

    @property
    def stands_together(self) -> bool:
        """Whether rows with the same value follow each other, as in a table that is sorted by units."""
        return self.runs == self.distinct + (self.nulls > 0)

    @cached_property
    def is_numbering(self) -> bool:
        """Whether rows are numbered one after the other: 1, 2, 3 (or P0001, P0002) in their order."""
        if not self.is_unique or len(self) < 3:
            return False
        tails = pc.replace_substring_regex(self.values, r"^[^0-9]*", "")
        if not pc.all(pc.match_substring_regex(tails, r"^[0-9]{1,15}$")).as_py():
            return False
        heads = pc.unique(pc.replace_substring_regex(self.values, r"[0-9]+$", ""))
        steps = np.diff(np.asarray(tails.take(pa.array(self.codes)).cast(pa.int64())))
        return len(heads) == 1 and bool((steps == 1).all())

    @cached_property
    def is_year(self) -> bool:
        if self.kind == "whole" and self.largest <= 53 and vocabulary.says(self.name, vocabulary.YEAR):
            return self.distinct < len(self) / 2  # weeks, months, quarters
        few = self.kind == "whole" and self.smallest >= 1500 and self.largest <= 2150
        if not few or self.has_zeros:
            return False
        return vocabulary.says(self.name, vocabulary.YEAR) or (
            self.smallest >= 1850 and self.distinct <= 40 and self.distinct < len(self) / 2
        )

    @cached_property
    def is_mixed(self) -> bool:
        """Whether numbers have other signs beside them: 1,234 (45%), 12*."""
        signs = r"^[<>~]?[0-9][0-9., ]*[ ]*[(\[%*†‡±+<>~].*$|^[<>~][0-9]+$|^[0-9][0-9., ]* [a-z]{1,3}$"
        share = pc.mean(pc.match_substring_regex(self.values, signs + r"|^[0-9][0-9., ]*$").cast(pa.float64())).as_py()
        return (
            self.kind == "text"
            and share is not None
            and share > _MOSTLY
            and bool(pc.any(pc.match_substring_regex(self.values, signs)).as_py())
        )

    @cached_property
    def is_numeric(self) -> bool:
        """Whether most values are numbers, possibly with a sign or a letter, and so are no names."""
        numbers = pc.match_substring_regex(self.values, r"^[-+<>~]?[0-9][0-9., ]*([ ]?[a-zA-Z*%]{1,2})?$")
        return bool((pc.mean(numbers.cast(pa.float64())).as_py() or 0.0) > 0.5)

    @cached_property
    def is_date(self) -> bool:
        """Whether the values are dates, months or years of two numbers: 2021-03-01, 01.03.2021, 2020/21, 2021Q3."""
        pattern = (
            r"^((1[89]|20)[0-9]{2}[-/.][0-9]{1,2}([-/.][0-9]{1,2})?([T ][0-9:.Z]*)?"
            r"|[0-9]{1,2}[-/.][0-9]{1,2}[-/.](1[89]|20)[0-9]{2}"
            r"|(1[89]|20)[0-9]{2}[-/ ]?[QMS][0-9]{1,2})$"
        )
        return self.kind == "text" and bool(pc.all(pc.match_substring_regex(self.values, pattern)).as_py())

    @property
    def is_age(self) -> bool:
        return self.kind == "whole" and self.largest <= OLDEST and vocabulary.says(self.name, vocabulary.AGE)

    @cached_property
    def is_measure(self) -> bool:
        """Whether the values, or else the name, show areas, percentages, densities and the like."""
        if self.kind in ("fraction", "percent"):
            return True
        return self.kind == "whole" and vocabulary.is_measure(self.name) and not self.has_zeros


def columns_of(table: pa.Table) -> list[ColumnEvidence]:
    """The columns of ``table``, with blanks around values taken away. Raises `DataError` for nested kinds."""
    found = []
    for place, name in enumerate(table.column_names):
        values = table[name]
        kind = values.type
        text = pc.utf8_trim_whitespace(as_text(values, name))
        text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
        stored = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if pc.all(pc.match_substring_regex(text, r"^[0-9]+\.0+$"), min_count=1).as_py():  # whole numbers as decimals
            text, stored = without_decimals(text), True
        found.append(
            ColumnEvidence(name, place, text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text, stored)
        )
    return found


def joined_codes(columns: Sequence[ColumnEvidence]) -> tuple[IntArray, int]:
    """A number for every combination of the values of ``columns``, and how many combinations there are."""
    codes = np.zeros(len(columns[0]), np.int64)
    count = 1
    for column in columns:
        pair = codes * (column.distinct + 1) + column.codes + 1
        _, codes = np.unique(pair, return_inverse=True)
        count = int(codes.max(initial=-1)) + 1
    return codes, count


def is_function(of: ColumnEvidence, value: ColumnEvidence, *, known: bool = False) -> bool:
    """Whether ``value`` is a function of ``of``: rows with the same ``of`` have the same ``value``; with ``known``,
    among the rows that have one.
    """
    if known and value.nulls > 0:
        there = value.text.is_valid()
        of, value = (ColumnEvidence(one.name, one.place, one.text.filter(there)) for one in (of, value))
    return joined_codes([of, value])[1] == of.distinct + (of.nulls > 0)


def one_for_one(a: ColumnEvidence, b: ColumnEvidence) -> bool:
    return a.distinct == b.distinct and is_function(a, b) and is_function(b, a)
