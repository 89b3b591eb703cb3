"""Sorts the columns of a table by what each seems to be, given the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from topdown.guess import units as nested
from topdown.guess import vocabulary
from topdown.guess.column_evidence import ColumnEvidence, one_for_one

Columns = list[ColumnEvidence]


@dataclass(frozen=True, eq=False)
class SortedColumns:
    """Columns that are ``empty``, of one value (``constants``), that number rows (``numberings``), that hold
    ``measures``, times (``years``), ``ages``, ``units`` or categories, ``counts``, or numbers with signs beside them
    (``mixed``)."""

    empty: Columns = field(default_factory=list)
    constants: Columns = field(default_factory=list)
    numberings: Columns = field(default_factory=list)
    measures: Columns = field(default_factory=list)
    years: Columns = field(default_factory=list)
    ages: Columns = field(default_factory=list)
    units: Columns = field(default_factory=list)
    counts: Columns = field(default_factory=list)
    mixed: Columns = field(default_factory=list)

    @classmethod
    def of(cls, columns: Sequence[ColumnEvidence]) -> SortedColumns:
        """``columns`` of one table, each in its place."""
        found = cls()
        for one in columns:
            found._place(one, columns).append(one)
        return found

    def _place(self, one: ColumnEvidence, columns: Sequence[ColumnEvidence]) -> Columns:
        if one.kind == "empty":
            return self.empty
        may_count = one.kind == "whole" and vocabulary.says(one.name, vocabulary.COUNTED)
        if one.distinct == 1 and not one.nulls and len(one) > 1 and not may_count:
            return self.constants
        if one.is_date:
            return self.years
        if one.is_mixed:
            return self.mixed
        if one.kind == "text" or _is_dotted_code(one):
            return self.numberings if _numbers_rows(one) else self.units
        if one.is_measure or _is_margin(one, columns):
            return self.measures
        if one.is_year:
            return self.years
        if one.is_age:
            return self.ages
        if _numbers_rows(one):
            return self.numberings
        return self.units if _is_code(one, columns) else self.counts


def _is_dotted_code(one: ColumnEvidence) -> bool:
    """Whether apparent fractions are codes with a point: 11.01, or the tract 101.02."""
    named = vocabulary.says(one.name, vocabulary.CODE) or vocabulary.level_rank(one.name) is not None
    return one.kind == "fraction" and named and not one.stored_number and not vocabulary.is_measure(one.name)


def _is_margin(one: ColumnEvidence, columns: Sequence[ColumnEvidence]) -> bool:
    """Whether a column is the margin of error of another one: B01001_001M beside B01001_001E."""
    return one.name.endswith("M") and any(other.name == one.name[:-1] + "E" for other in columns)


def _numbers_rows(one: ColumnEvidence) -> bool:
    """Whether a column numbers rows or records: consecutive whole numbers, or a name that says so."""
    rank = vocabulary.level_rank(one.name)
    named = vocabulary.says(one.name, vocabulary.RECORD) or one.name.strip() == ""
    if one.is_numbering:
        # Codes of neighbouring units may follow one another, too, and do not begin with 1.
        coded = rank is not None or vocabulary.says(one.name, vocabulary.CODE)
        return named or (one.kind == "whole" and not (coded and one.smallest > 1) and not one.has_zeros)
    if not named or rank is not None or one.kind != "whole":
        return False
    counts = vocabulary.says(one.name, vocabulary.COUNTED)
    return not counts and not any(map(str.isdigit, one.name))


def _is_code(one: ColumnEvidence, columns: Sequence[ColumnEvidence]) -> bool:
    """Whether a column of whole numbers holds codes rather than counts."""
    if one.has_zeros:
        return True
    if not one.is_digits and not one.stored_number:
        return False
    counts = vocabulary.says(one.name, vocabulary.COUNTED)
    if vocabulary.says(one.name, vocabulary.CODE) and not counts:
        return True
    if vocabulary.says(one.name, vocabulary.AGE):
        return False
    texts = [other for other in columns if other.kind == "text" and other.distinct > 1]
    repeats = one.distinct <= 0.9 * len(one)
    if not counts and repeats and any(one.distinct > 2 and one_for_one(one, t) for t in texts):
        return True
    finer = [other for other in columns if other.is_digits and other.distinct > one.distinct]
    if not counts and one.distinct < len(one) and any(nested.begins_with(other, one) for other in finer):
        return True
    rank = vocabulary.level_rank(one.name)
    if rank is not None and not counts and not vocabulary.says(one.name, vocabulary.STRONG_TOTAL):
        return True
    others = [other for other in columns if other.is_digits or other.kind == "text"]
    ascends = bool((np.diff(one.numbers) > 0).all())
    width = max(one.lengths)
    near = set(one.lengths) <= {width, width - 1}
    if counts or not one.is_unique or not near or width < 3 or len(one) < 5:
        return False
    begins = any(nested.begins_with(one, other) for other in others if other.distinct > 1)
    named_by_parts = any(other.distinct * 2 <= len(one) and nested.prefix_of(one, other) is not None for other in texts)
    return ascends or begins or named_by_parts
