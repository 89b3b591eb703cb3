"""Guesses the structure of a table from all of its columns together."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import DataError
from topdown.guess import units as nested
from topdown.guess import vocabulary
from topdown.guess.column_evidence import (
    MOST_CATEGORIES,
    OLDEST,
    ColumnEvidence,
    columns_of,
    is_function,
    joined_codes,
)
from topdown.guess.divisions import divided
from topdown.guess.found import LEAVES, LONG, RECORDS, Choice, Guess, Question, TakenRows, some
from topdown.guess.sorted_columns import SortedColumns
from topdown.guess.total_rows import TotalRows, total_rows
from topdown.guess.written_form import completed, marks_of, without_notes
from topdown.tables.format import Format
from topdown.tables.number_marks import without_marks
from topdown.tables.readers import read_table
from topdown.wording import shown_path

_AGES = [str(age) for age in range(116)]
_SMALL = 30
_SURE_UNIT, _MOSTLY = 2.0, 0.7
_FEW_TIMES = 12
"""Records of so many times at most may be of the same people again; of more, they have dates of their own."""


def guess(path: Path, form: Format) -> Guess:
    """The guess about the table at ``path``, with ``form`` completed from the file. Raises `DataError` with a remedy
    for a table without rows, without a column that identifies units, without counts, or with a layout that `topdown`
    does not read.
    """
    given, form = form, completed(path, form)
    table, form = without_notes(path, read_table(path, form=form), form)
    if table.num_rows == 0:
        raise DataError(f"{shown_path(path)}: has no rows to guess by")
    columns = columns_of(table)
    decimal, thousands, unclear = marks_of([one.text for one in columns])
    decimal, thousands = form.decimal or decimal, form.thousands or thousands
    marked = replace(form, decimal=decimal, thousands=thousands)
    columns = [_unmarked(one, marked) for one in columns]
    if (decimal, thousands) != (None, ","):  # which is how numbers are read anyway
        form = marked
    try:
        found = _Table(columns, form).guess()
    except DataError as error:
        raise DataError(f"{shown_path(path)}: {error}") from None
    counted = {*found.cells, *found.sums, found.count}
    doubt = [columns[place].name for place in unclear if columns[place].name in counted]
    if doubt and given.decimal is None and given.thousands is None:
        other = Choice("no, it is a decimal point: 12.000 is 12", {"form": replace(form, decimal=".", thousands=None)})
        found = found.asking(
            Question(
                "thousands",
                f"does the point in {some(doubt)} set thousands apart, so that 12.000 is 12000?",
                "yes",
                (other,),
            )
        )
    if form.encoding != given.encoding and form.codec != "utf-16":
        found = found.asking(
            Question(
                "encoding",
                "the file is not UTF-8: is it windows-1252, as spreadsheets write in western countries?",
                "yes; look at names with accents",
                (),
            )
        )
    return found


_NUMBER_WITH_MARKS = re.compile(r"[-+]?\d[\d., '\u00a0\u202f]*")
_YEARS, _MANY_NUMBERS = range(1800, 2101), 6


def _unmarked(column: ColumnEvidence, form: Format) -> ColumnEvidence:
    """``column`` with its numbers as digits, where it is one of numbers with marks."""
    if column.stored_number:
        return column
    text = without_marks(column.text, form)
    other = ColumnEvidence(column.name, column.place, text)
    return other if other.kind in ("whole", "fraction") and not column.is_digits else column


def _as_number(name: str) -> float | None:
    """A name that is a number, with or without marks between its digits; None for any other."""
    return float("".join(filter(str.isdigit, name))) if _NUMBER_WITH_MARKS.fullmatch(name.strip()) else None


def _is_series(numbers: Sequence[float]) -> bool:
    """Whether the names of columns, all of them numbers, are years, or so many that they rise by chance in one table of
    hundreds: ages, or codes in order.
    """
    if all(number in _YEARS for number in numbers):
        return True
    return len(numbers) >= _MANY_NUMBERS and bool((np.diff(numbers) > 0).all())


class _Table:
    """The columns of a table, sorted by what each seems to be."""

    def __init__(self, columns: Sequence[ColumnEvidence], form: Format) -> None:
        self.form, self.columns, self.rows = form, list(columns), len(columns[0])
        self.ignored: dict[str, str] = {}
        self.questions: list[Question] = []
        self.leave_out: dict[str, list[str]] = {}
        self.where: dict[str, str] = {}
        self._sort()

    def _sort(self) -> None:
        self.sorted = SortedColumns.of(self.columns)
        self.ignored |= {one.name: "has no values" for one in self.sorted.empty}

    # -- the whole --------------------------------------------------------------------------------------------------

    def guess(self) -> Guess:
        self._require_names()
        sliced = self._sliced()
        if sliced is not None:
            return sliced
        whole = self._whole_of_crossed()
        if whole is not None:
            return self._part(*whole)
        self._leave_out(total_rows(self.sorted.units, self.sorted.counts, self.rows))
        return self._kind()

    def _require_names(self) -> None:
        """Refuse names that are numbers above columns of numbers, unless these are years or a series: they may be the
        first row of data, whose counts would be published as names. Raises `DataError`.
        """
        counted = [one for one in self.columns if one.kind in ("whole", "fraction")]
        numbers = [number for one in counted if (number := _as_number(one.name)) is not None]
        if numbers and not _is_series(numbers):
            raise DataError(
                "its first row has numbers where the names of columns of numbers should stand, and seems to be data; "
                "give it a row of names, with a letter in each"
            )

    def _kind(self) -> Guess:
        if all(one.name.strip().isdigit() for one in self.columns):
            raise DataError(
                "its first row holds numbers only, where the names of the columns should stand; give it a row of names"
            )
        single = [one for one in self.sorted.units if one.is_unique]
        single = [one for one in single if nested.score(one) > -2] or single
        counts = self.sorted.counts
        if not single and any(one.largest > OLDEST for one in counts):
            # A unit that is in the table twice by mistake; `topdown check` names it.
            single = [one for one in self.sorted.units if one.distinct >= 0.9 * self.rows and nested.score(one) >= 1]
        if single and counts and not self._are_persons(single):
            leaf = max(single, key=_as_leaf)
            codes = [
                one
                for one in self.sorted.units
                if one.is_digits and (one.has_zeros or vocabulary.level_rank(one.name) is not None)
            ]
            path = None if leaf.is_digits or leaf.is_coded_text else nested.path_to(self.rows, codes)
            return self._leaves(path or [leaf])
        if not single and counts:
            # A number that is repeated only a few times is a category of records, or of rows of a long table.
            likely = [one for one in self.sorted.units if nested.score(one) > -2]
            coded = [one for one in likely if one.is_digits and nested.score(one) >= 1]
            path = nested.path_to(self.rows, coded) or nested.path_to(self.rows, likely)
            long = self._long()
            if path is not None and (long is None or len(counts) > 1 or len(path) < len(long) or self._of_units(long)):
                categories = [one for one in self.sorted.units if vocabulary.says(one.name, vocabulary.CATEGORY)]
                if not any(one in path for one in categories):
                    return self._leaves(path)
            if long is not None:
                times = [one for one in self._categories(long, [self._count_column()]) if one in self.sorted.years]
                return self._at_last(times[0]) if times else self._long_table(long)
            if self._crossed():
                by, counted = some([one.name for one in self._crossed()]), some([one.name for one in counts])
                raise DataError(
                    f"has a row for every unit and {by}, and several columns of counts ({counted}): make a column for "
                    "every combination, or a long table with one column of counts and one row for every unit and "
                    "category"
                )
        if single and not counts and not self.sorted.ages and not self._are_persons(single):
            raise DataError(
                "no column of whole numbers is left that could be counts of records: this looks like a list of "
                "units; name the table with their counts"
            )
        return self._records(single)

    def _are_persons(self, single: Sequence[ColumnEvidence]) -> bool:
        """Whether rows with a number of their own are persons: there are units, and nothing is counted."""
        if any(one.largest > OLDEST or vocabulary.says(one.name, vocabulary.POPULATION) for one in self.sorted.counts):
            return False
        places = [
            one
            for one in self.sorted.units
            if not one.is_unique and nested.repeats(self.rows, one) >= 2 and nested.score(one) >= _SURE_UNIT
        ]
        best = max(map(nested.score, single))
        of_records = any(vocabulary.says(one.name, vocabulary.RECORD) or one.is_numbering for one in single)
        if not places:
            return False
        if of_records or best < 1:
            return True
        categories = [
            one
            for one in self.sorted.units
            if one not in single
            and one.distinct <= _SMALL
            and vocabulary.level_rank(one.name) is None
            and not is_function(places[0], one)
        ]
        if len(categories) >= 2:
            self.questions.append(
                Question(
                    "rows",
                    f"is every row a record, and {some([one.name for one in single])} only a number of it?",
                    "yes",
                )
            )
        return len(categories) >= 2

    # -- rows of several kinds --------------------------------------------------------------------------------------

    def _sliced(self) -> Guess | None:
        """The guess of one kind of rows, where they are of several levels or years; None where they are not."""
        years = [one for one in self.sorted.years if one.distinct > 1]
        for one in years:
            unit_columns = [c for c in self.sorted.units if not vocabulary.says(c.name, vocabulary.CATEGORY)]
            if not any(self._stands_again(c, one) for c in unit_columns):
                continue
            return self._at_last(one)
        levels = [
            one
            for one in (*self.sorted.units, *self.sorted.counts)
            if 1 < one.distinct <= 12 and not one.nulls and vocabulary.says(one.name, vocabulary.SLICE)
        ]
        for one in levels:
            found = self._lowest_of(one)
            if found is not None:
                return found
        return None

    def _at_last(self, times: ColumnEvidence) -> Guess:
        """The guess of the rows at the last of several ``times``."""
        in_order = _in_order(times)
        part = self._part(times, in_order[-1])
        return part.asking(
            Question(
                "where",
                f"the table has several times in {times.name}, in which people may stand again: which is released?",
                f"{times.name} {in_order[-1]}",
                tuple(
                    Choice(f"{times.name} {value}", {"where": {**part.where, times.name: value}})
                    for value in in_order[-4:-1][::-1]
                ),
            )
        )

    @staticmethod
    def _stands_again(unit: ColumnEvidence, time: ColumnEvidence) -> bool:
        """Whether most units appear at most of the times, equally often; records with dates have few of these pairs, or
        some more often than others.
        """
        codes, pairs = joined_codes([unit, time])
        often = np.bincount(np.bincount(codes))
        return bool(
            pairs > max(1.5 * unit.distinct, 0.5 * unit.distinct * time.distinct) and often.max() > _MOSTLY * pairs
        )

    def _lowest_of(self, one: ColumnEvidence) -> Guess | None:
        """The guess from the rows with the value of ``one`` that most units have, where other rows are their sums."""
        sizes = np.bincount(one.codes, minlength=one.distinct)
        most = int(sizes.argmax())
        value = one.values[most].as_py()
        chosen = one.codes == most
        sums = False
        for count in self.sorted.counts:
            if count is one or not np.isfinite(count.numbers).all():
                continue
            below = count.numbers[chosen].sum()
            sums |= below > 0 and any(
                count.numbers[one.codes == k].sum() == below for k in range(one.distinct) if k != most
            )
        if not sums:
            return None
        try:
            part = self._part(one, value)
        except DataError:
            return None
        return part if part.rows.may_be_sums else None

    def _part(self, by: ColumnEvidence, value: str) -> Guess:
        chosen = pa.array(by.codes == pc.index(by.values, value).as_py())
        columns = [
            ColumnEvidence(one.name, one.place, one.text.filter(chosen), one.stored_number)
            for one in self.columns
            if one is not by
        ]
        part = _Table(columns, self.form).guess()
        return replace(part, where={by.name: value, **part.where})

    def _leave_out(self, totals: TotalRows) -> None:
        """Go on without rows that are sums of others."""
        self.questions += totals.questions
        self.leave_out |= totals.leave_out
        if totals.rows.any():
            kept = pa.array(~totals.rows)
            self.columns = [ColumnEvidence(c.name, c.place, c.text.filter(kept), c.stored_number) for c in self.columns]
            self.rows = len(self.columns[0])
            self._sort()

    # -- rows with a column for every cell --------------------------------------------------------------------------

    def _leaves(self, path: list[ColumnEvidence]) -> Guess:
        others = [one for one in self.sorted.units if one not in path]
        found = nested.nesting(path, others, self.sorted.constants, records=False)
        levels = [one for one in self.sorted.units if one.name in found.used]
        above = [one for one in levels if not one.is_unique]
        counts, flags = [], []
        for one in self.sorted.counts:
            level = nested.constant_within(above, one)
            if level is not None and one.distinct > 1:
                self.ignored[one.name] = f"is the same in all rows of a unit of {level.name}"
            elif self._is_flag(one):
                flags.append(one)
            elif (one.numbers < 0).sum() > max(1, 0.02 * self.rows):
                self.ignored[one.name] = "has negative numbers"
            else:
                counts.append(one)
        for one in flags:
            self.ignored[one.name] = "is a yes or no, or a category, in small numbers"
        if not counts:
            raise DataError(
                "no column of whole numbers is left that could be counts of records; name them in input.cells of a "
                "TOML file of your own (`topdown schema`, docs/tutorial.md)"
            )
        weak = [one.name for one in path if nested.score(one) < 1] if len(path) > 1 else []
        if weak:
            self.questions.append(
                Question(
                    "units",
                    f"are {some([one.name for one in path])} units within units, so that only together they name one?",
                    "yes",
                )
            )
        division = divided(counts)
        question = []
        if division.doubt:
            # An answer that removes or adds columns does not change the sums.
            others_ = tuple(Choice(label, {"cells": tuple(cells)}) for label, cells in division.others)
            question = [Question("cells", division.doubt, f"cells = {some(division.cells)}", others_)]
        self.ignored |= dict.fromkeys(division.rest, "may count the same records again")
        return self._finished(
            found,
            rows=LEAVES,
            cells=tuple(division.cells),
            sums=division.totals,
            questions=question,
        )

    def _is_flag(self, one: ColumnEvidence) -> bool:
        """Whether whole numbers are a yes or no, or a category of units, beside true counts."""
        if vocabulary.says(one.name, vocabulary.COUNTED):
            return False
        large = any(other.largest > 20 * max(1.0, one.largest) for other in self.sorted.counts)
        if one.distinct <= 2 and one.largest <= 2 and self.rows >= 8:
            return large
        return large and vocabulary.says(one.name, vocabulary.CATEGORY) and one.distinct <= _SMALL and one.largest <= 99

    # -- long tables ------------------------------------------------------------------------------------------------

    def _categories(
        self, path: Sequence[ColumnEvidence], counted: Sequence[ColumnEvidence | None] = ()
    ) -> list[ColumnEvidence]:
        """Columns that may be attributes beside what is ``counted``: of few values, and no functions of the units in
        ``path``, wherever they have a value.
        """
        codes, _ = joined_codes(path)
        unit = ColumnEvidence("", 0, pa.array(codes.astype(str)))
        few = [
            one
            for one in (*self.sorted.units, *self.sorted.counts, *self.sorted.ages, *self.sorted.years)
            if one not in path
            and one not in counted
            and 1 < one.distinct <= (OLDEST + 1 if one in self.sorted.ages else MOST_CATEGORIES)
            and (
                one not in self.sorted.counts or one.largest <= _SMALL or vocabulary.says(one.name, vocabulary.CATEGORY)
            )
        ]
        kept: list[ColumnEvidence] = []
        for one in sorted(
            (c for c in few if not is_function(unit, c, known=True)), key=lambda c: (-c.distinct, c.is_digits, c.place)
        ):
            source = next((other for other in kept if is_function(other, one)), None)
            if source is None:
                kept.append(one)
            else:
                self.ignored[one.name] = f"follows from {source.name}"
        return sorted(kept, key=lambda one: one.place)

    def _long(self) -> list[ColumnEvidence] | None:
        """The path of units of a long table: one column of counts, and a row for every unit and category."""
        count = self._count_column()
        if count is None:
            return None
        for path in self._places(count):
            some_of = self._categories(path, [count])
            if some_of and joined_codes([*path, *some_of])[1] == self.rows and nested.repeats(self.rows, path[-1]) > 1:
                return path
        return None

    def _of_units(self, path: Sequence[ColumnEvidence]) -> bool:
        """Whether the supposed categories of a long table have names of units."""
        count = self._count_column()
        return all(nested.score(one) >= 1 for one in self._categories(path, [count]))

    def _whole_of_crossed(self) -> tuple[ColumnEvidence, str] | None:
        """The category that is the sum of all others, in a table with rows for every unit and category, if there is
        one.
        """
        for one in self._crossed():
            others, n_groups = joined_codes([c for c in self.sorted.units if c is not one])
            for place, value in enumerate(one.values.to_pylist()):
                sums = [
                    (
                        np.bincount(others, weights=count.numbers, minlength=n_groups),
                        np.bincount(others, weights=count.numbers * (one.codes == place), minlength=n_groups),
                    )
                    for count in self.sorted.counts
                ]
                if all(whole.sum() > 0 and np.array_equal(whole, 2 * part) for whole, part in sums):
                    return one, value
        return None

    def _count_column(self) -> ColumnEvidence | None:
        named = [one for one in self.sorted.counts if vocabulary.says(one.name, vocabulary.COUNTED)]
        if len(named) == 1:
            rest = [one for one in self.sorted.counts if one is not named[0]]
            return named[0] if all(one.distinct <= MOST_CATEGORIES for one in rest) else None
        return self.sorted.counts[0] if len(self.sorted.counts) == 1 else None

    def _places(self, count: ColumnEvidence | None = None) -> list[list[ColumnEvidence]]:
        """Columns, or paths of them, that may be the units of rows that are not single units; the best first."""
        candidates = [one for one in self.sorted.units if not one.is_unique and one is not count and one.distinct > 1]
        if not candidates:
            return []
        good = [one for one in candidates if nested.score(one) >= 1] or [
            one for one in candidates if nested.score(one) > -2
        ]
        if not good:
            return []
        ranked = nested.by_fineness([one for one in good if vocabulary.level_rank(one.name) is not None])
        codes = sorted(good, key=lambda one: (nested.score(one), one.distinct), reverse=True)
        found: list[list[ColumnEvidence]] = []
        finest = max(good, key=lambda one: (nested.score(one) >= _SURE_UNIT, one.distinct))
        uppers = [one for one in ranked if one is not finest and not is_function(finest, one)]
        if uppers and finest in ranked:
            path = nested.path_to(self.rows, [*uppers, finest], of_rows=False)
            whole = [one for one in ranked if one in uppers or one is finest]
            kept: list[ColumnEvidence] = []
            for one in whole:
                kept = [other for other in kept if not is_function(one, other)] + [one]
            # Names that appear under all others in the same way are crossed, not nested.
            is_crossed = joined_codes(kept)[1] == math.prod(one.distinct for one in kept)
            coded = kept[-1].is_digits or kept[-1].is_coded_text
            if path is not None and finest in kept and (coded or not is_crossed):
                found.append(kept)
        found += [[finest], *([one] for one in codes if one is not finest)]
        return found

    def _ask_places(self, path: list[ColumnEvidence], places: Sequence[list[ColumnEvidence]]) -> None:
        """Ask which column has the units, where neither a name nor a code confirms the assumption."""
        leaf = path[-1]
        plain = not leaf.is_digits and not leaf.is_coded_text
        finer = [one for one in self.sorted.units if plain and leaf.distinct < one.distinct <= MOST_CATEGORIES]
        if nested.score(leaf) < 1 or any(not is_function(one, leaf) for one in finer):
            others = tuple(
                Choice(one[-1].name, {"levels": ("everything", one[-1].name)}) for one in places[1:4] if len(one) == 1
            )
            self.questions.append(Question("units", "which column says where each row is?", path[-1].name, others))

    def _long_table(self, path: list[ColumnEvidence]) -> Guess:
        self._ask_places(path, self._places())
        count = self._count_column()
        assert count is not None  # nosec B101 # narrows a type: the caller has found one
        attributes = self._categories(path, [count])
        totals = [
            one
            for one in attributes
            if self._holds_totals(one, count, [*path, *[a for a in attributes if a is not one]])
        ]
        if totals:
            kept = np.ones(self.rows, bool)
            for one in totals:
                for value in self.leave_out[one.name]:
                    kept &= one.codes != pc.index(one.values, value).as_py()
            names = {one.name for one in (*path, *attributes, count)}
            self.columns = [
                ColumnEvidence(c.name, c.place, c.text.filter(pa.array(kept)), c.stored_number) for c in self.columns
            ]
            self.rows = int(kept.sum())
            by_name = {one.name: one for one in self.columns if one.name in names}
            path, count = [by_name[one.name] for one in path], by_name[count.name]
            attributes = [by_name[one.name] for one in attributes if by_name[one.name].distinct > 1]
            self._sort()
        return self._with_attributes(path, attributes, rows=LONG, count=count.name)

    def _holds_totals(self, one: ColumnEvidence, count: ColumnEvidence, others: Sequence[ColumnEvidence]) -> bool:
        """Whether one value of ``one`` is the sum of its other values, in every unit; it is then left out."""
        if one.distinct < 3:
            return False
        groups, n_groups = joined_codes(others)
        numbers = np.nan_to_num(count.numbers)
        whole = np.bincount(groups, weights=numbers, minlength=n_groups)
        for place in range(one.distinct):
            part = np.bincount(groups[one.codes == place], weights=numbers[one.codes == place], minlength=n_groups)
            if whole.sum() > 0 and np.array_equal(2 * part, whole):
                self.leave_out.setdefault(one.name, []).append(one.values[place].as_py())
                return True
        return False

    def _crossed(self) -> list[ColumnEvidence]:
        """The category of a table with a row for every unit and category, and several columns of counts."""
        for path in self._places():
            for one in self._categories(path):
                named = one in self.sorted.units or vocabulary.says(one.name, vocabulary.CATEGORY)
                if (
                    named
                    and len(self.sorted.counts) > 1 + (one in self.sorted.counts)
                    and joined_codes([*path, one])[1] == self.rows
                ):
                    return [one]
        return []

    # -- records ----------------------------------------------------------------------------------------------------

    def _records(self, single: Sequence[ColumnEvidence]) -> Guess:
        places = self._places()
        if not places:
            raise DataError(
                "no column of text or codes tells units apart; give one whose rows say where each unit is, as text "
                "with the zeros of its codes"
            )
        path = places[0]
        parts = [
            one
            for one in self.sorted.measures
            if one.kind == "fraction" and vocabulary.says(one.name, vocabulary.COUNTED)
        ]
        if parts and joined_codes([*path, *self._categories(path)])[1] == self.rows:
            raise DataError(
                f"column {some([one.name for one in parts])} has decimals, and counts are whole numbers: where it "
                "holds thousands, give the counts themselves"
            )
        categories = self._categories(path)
        counted = [
            one
            for one in self.sorted.counts
            if (one.largest > _SMALL and not (one in categories and vocabulary.says(one.name, vocabulary.CATEGORY)))
            or (
                vocabulary.says(one.name, vocabulary.COUNTED)
                and one.largest > 1
                and vocabulary.words_of(one.name)[-1] in ("count", "n", "freq", "cases", "value", "population", "pop")
            )
        ]
        attributes = [
            one
            for one in self._categories(path, counted)
            if one not in self.sorted.years or not vocabulary.says(one.name, vocabulary.YEAR)
        ]
        for one in self.sorted.years:
            if 1 < one.distinct <= _FEW_TIMES and one not in attributes:
                self.questions.append(
                    Question(
                        "where",
                        f"the records are of several times in {one.name}, in which people may stand again: are all "
                        "counted?",
                        "yes, all",
                        tuple(
                            Choice(f"only {one.name} {value}", {"where": {one.name: value}})
                            for value in _in_order(one)[-3:][::-1]
                        ),
                    )
                )
        if counted:
            self.questions.append(
                Question(
                    "rows",
                    f"rows of one unit and category stand several times, and {some([one.name for one in counted])} "
                    "holds numbers: is every row one record?",
                    "yes, and these numbers are not used",
                    (
                        Choice(
                            "no, it says how many records a row stands for: sum the rows of a unit and category first",
                            {"rows": LONG, "count": counted[0].name},
                        ),
                    ),
                )
            )
            self.ignored |= {one.name: "is no category of a record" for one in counted}
        self._ask_places(path, places)
        for one in (*self.sorted.measures, *self.sorted.counts):
            if vocabulary.says(one.name, vocabulary.WEIGHT):
                self.questions.append(
                    Question(
                        "rows",
                        f"{one.name} looks like a sample's weight: a release counts every record once. Is that meant?",
                        "yes",
                    )
                )
        for one in single:
            if one not in path:
                self.ignored[one.name] = "tells records apart"
        return self._with_attributes(path, attributes, rows=RECORDS, count=None)

    def _with_attributes(
        self, path: list[ColumnEvidence], attributes: Sequence[ColumnEvidence], *, rows: TakenRows, count: str | None
    ) -> Guess:
        others = [one for one in self.sorted.units if one not in path and one not in attributes]
        found = nested.nesting(path, others, self.sorted.constants, records=True)
        known = {**{one.name: _categories_of(one, self.sorted.ages) for one in attributes}}
        for one in (*self.sorted.units, *self.sorted.counts):
            if one.name not in known and one.name not in found.used and one.name != count:
                many = one.distinct > MOST_CATEGORIES
                self.ignored.setdefault(
                    one.name, "has too many values for an attribute" if many else "says something of units"
                )
        return self._finished(
            found, rows=rows, count=count, attributes=known, cells=() if known else ("records",), questions=[]
        )

    def _finished(self, found: nested.Nesting, *, questions: list[Question], **changes: object) -> Guess:
        used = {*found.used, *changes.get("attributes", {})}  # type: ignore[misc]
        ignored = found.ignored | self.ignored
        reasons = (
            (self.sorted.constants, "is the same in every row"),
            (self.sorted.numberings, "tells rows or records apart"),
            (self.sorted.measures, "holds no whole counts: areas, shares, means or the like"),
            (self.sorted.years, "holds years"),
            (self.sorted.ages, "holds ages"),
            (self.sorted.mixed, "holds numbers with signs beside them"),
        )
        for columns, why in reasons:
            for one in columns:
                if one.name not in used:
                    ignored.setdefault(one.name, why)
        if self.sorted.mixed:
            mixed = some([one.name for one in self.sorted.mixed])
            text = f"{mixed} has numbers with other signs beside them: are they counts?"
            self.questions.append(
                Question("cells", text, "no; if they are, write them as numbers alone, and start again")
            )
        taken = {*used, *changes.get("cells", ()), *changes.get("sums", {}), changes.get("count")}  # type: ignore[misc]
        ignored = {name: why for name, why in ignored.items() if name not in taken}
        return Guess(
            form=self.form,
            ignored=ignored,
            leave_out=self.leave_out,
            questions=(*found.questions, *self.questions, *questions),
            **found.changes,
            **changes,  # type: ignore[arg-type]
        )


def _in_order(times: ColumnEvidence) -> list[str]:
    """The distinct ``times``, the last one last."""
    return sorted(times.values.to_pylist(), key=_as_time)


def _as_time(text: str) -> tuple[int, ...]:
    """A year or a date as numbers in its order; a date that ends with its year is reversed."""
    parts = [int(part) for part in re.findall("[0-9]+", text)]
    return tuple(parts if len(str(parts[0])) == 4 else reversed(parts))


def _as_leaf(one: ColumnEvidence) -> tuple[bool, float, int]:
    """A score of how well a column with distinct values serves as the lowest level: codes before names."""
    likely = nested.score(one)
    likely -= 3.0 * nested.is_postal(one)  # a place may have several offices, and an office several places
    return (one.is_digits or one.is_coded_text) and likely >= 1, likely, -one.place


def _categories_of(one: ColumnEvidence, ages: Sequence[ColumnEvidence]) -> list[str]:
    """All categories of an attribute: for ages in single years all possible ages, for small whole numbers also those in
    between.
    """
    values = [str(value) for value in one.values.to_pylist() if value is not None]
    if one in ages and one.is_digits and one.distinct > _SMALL:
        return _AGES if one.largest < len(_AGES) else [str(age) for age in range(OLDEST + 1)]
    if one.is_digits and not one.has_zeros:
        return sorted(values, key=int)
    return sorted(values)
