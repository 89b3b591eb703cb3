"""Rows of a table that are sums of others: totals, and larger units among the smaller ones that lie in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import DataError
from topdown.guess import units as nested
from topdown.guess import vocabulary
from topdown.guess.column_evidence import MOST_CATEGORIES, ColumnEvidence
from topdown.guess.found import Choice, Question

BoolArray = npt.NDArray[np.bool_]

_LARGE = 20


@dataclass
class TotalRows:
    """Which rows are sums (``rows``), the values by which they are left out, by column, and questions."""

    rows: BoolArray
    leave_out: dict[str, list[str]] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)


def total_rows(units: Sequence[ColumnEvidence], counts: Sequence[ColumnEvidence], n_rows: int) -> TotalRows:
    """The rows that are totals: those with the name of a total, and those that are the sums of all or some others.
    Raises `DataError` where there are too many of the latter to be left out one by one.
    """
    found = TotalRows(np.zeros(n_rows, bool))
    out = found.rows
    counted = [one for one in counts if np.isfinite(one.numbers).all() and one.numbers.sum() > 0]
    for one in [c for c in units if c.kind == "text"]:
        for place, value in enumerate(one.values.to_pylist()):
            if not vocabulary.names_total(value):
                continue
            rows = one.codes == place
            if rows.all():
                continue
            sums = [c.numbers[rows].sum() == c.numbers[~rows].sum() for c in counted]
            short = len(value) <= 3
            if short and not any(sums):
                continue
            found.leave_out.setdefault(one.name, []).append(value)
            out |= rows
            if counted and not any(sums):
                found.questions.append(_asked(found, one, value))
    blank = [c for c in units if 0 < c.nulls < n_rows / 2]
    for one in blank:
        rows = one.codes < 0
        # Of each column with blanks a level of totals: of regions, say, and of everything.
        times = range(1, len(blank) + 1)
        if any(c.numbers[rows].sum() in [k * c.numbers[~rows].sum() for k in times] for c in counted):
            found.leave_out[one.name] = [*found.leave_out.get(one.name, []), ""]
            out |= rows
    for search in (_sums_by_code, _sum_of_all, _sums_in_order):
        if not out.any() and counted:
            out, left = search(units, counted, n_rows)
            found.leave_out |= left
    found.rows = out
    return found


def _asked(found: TotalRows, one: ColumnEvidence, value: str) -> Question:
    keep = {name: [v for v in values if v != value] for name, values in found.leave_out.items()}
    return Question(
        "leave_out",
        f"are rows with {one.name} = {value} sums of other rows?",
        "yes, they are left out",
        (Choice("no", {"leave_out": {name: values for name, values in keep.items() if values}}),),
    )


Found = tuple[BoolArray, dict[str, list[str]]]
"""Rows that are sums, and the values by which they are left out, by column."""


def _sums_by_code(units: Sequence[ColumnEvidence], counted: Sequence[ColumnEvidence], n_rows: int) -> Found:
    """Rows of larger units among those of smaller ones, whose codes begin with theirs, and one row of everything: their
    counts are the sums of the others'."""
    for one in (c for c in units if c.is_unique and len(c.lengths) > 1):
        lengths = np.asarray(pc.utf8_length(one.text))
        coded = np.asarray(pc.match_substring_regex(one.text, "[0-9]$"))
        lowest = lengths == lengths[coded].max(initial=0)
        codes, upper, are_sums = one.text.filter(pa.array(lowest)), np.zeros(n_rows, bool), True
        for size in sorted({*lengths[lengths < lengths[lowest].max(initial=0)].tolist()}):
            heads = pc.utf8_slice_codeunits(codes, 0, size).dictionary_encode()
            place = np.asarray(pc.fill_null(pc.index_in(one.text, value_set=heads.dictionary), -1))
            here = (place >= 0) & ~lowest
            upper |= here
            for count in counted:
                sums = np.bincount(np.asarray(heads.indices), weights=count.numbers[lowest])
                are_sums &= bool((sums[place[here]] == count.numbers[here]).all())
        rest = ~lowest & ~upper
        everything = [count.numbers[lowest].sum() == count.numbers[rest].sum() for count in counted]
        fits = upper.sum() >= 2 and lowest.sum() >= 2 * upper.sum() and rest.sum() <= 1
        if fits and are_sums and (not rest.any() or all(everything)):
            return ~lowest, {one.name: one.text.filter(pa.array(~lowest)).to_pylist()}
    return np.zeros(n_rows, bool), {}


def _sum_of_all(units: Sequence[ColumnEvidence], counted: Sequence[ColumnEvidence], n_rows: int) -> Found:
    """The row that is the sum of all others in every column of counts, if one is."""
    numbers = np.stack([one.numbers for one in counted])
    half = (2 * numbers == numbers.sum(axis=1, keepdims=True)).all(axis=0)
    named = [one for one in units if one.is_unique and one.kind == "text"]
    if n_rows < 4 or half.sum() != 1 or not named or numbers[:, half].max() < _LARGE:
        return np.zeros(n_rows, bool), {}
    one = max(named, key=nested.score)
    return half, {one.name: one.text.filter(pa.array(half)).to_pylist()}


def _sums_in_order(units: Sequence[ColumnEvidence], counted: Sequence[ColumnEvidence], n_rows: int) -> Found:
    """Rows of larger units, each before or after the rows whose sum it is, if nearly all rows belong to such a sum."""
    named = [one for one in units if one.is_unique and one.kind == "text"]
    found = (
        sums_in_order(np.stack([one.numbers for one in counted])) if named and n_rows > 5 else np.zeros(n_rows, bool)
    )
    if not found.any():
        return found, {}
    one = max(named, key=nested.score)
    values = one.text.filter(pa.array(found)).to_pylist()
    if len(values) > MOST_CATEGORIES:
        raise DataError(
            f"{len(values)} rows of larger units stand among those of the smaller ones whose sums they are; give the "
            "smallest units alone, or a column that says which rows are which (input.where)"
        )
    return found, {one.name: values}


def sums_in_order(numbers: npt.NDArray[np.float64]) -> BoolArray:
    """Which rows of ``numbers`` (columns x rows) are the sums of the rows directly after them, or before them, that are
    no sums themselves; (rows,). None, where more than a tenth of the other rows, plus one, are in no such sum.
    """
    total = numbers.sum(axis=0)
    for step in (1, -1):
        mask, again = np.zeros(len(total), bool), True
        while again:
            rest = np.flatnonzero(~mask)[::step]
            sums = np.cumsum(numbers[:, rest], axis=1)
            wanted = sums + numbers[:, rest]  # what is added up where the rows after one make as much as it
            last = np.minimum(np.searchsorted(sums[0], wanted[0]), len(rest) - 1)
            are_sums = (sums[:, last] == wanted).all(axis=0) & (last > np.arange(len(rest)) + 1)
            are_sums &= total[rest] >= _LARGE
            covered = np.zeros(len(rest) + 1, np.int64)
            np.add.at(covered, np.flatnonzero(are_sums) + 1, 1)
            np.add.at(covered, last[are_sums] + 1, -1)
            again = bool(are_sums.any())
            apart = int((~are_sums & (np.cumsum(covered[:-1]) == 0)).sum())
            if again and apart > 1 + 0.1 * (len(rest) - apart):
                return np.zeros(len(total), bool)
            mask[rest[are_sums]] = True
        if mask.any():
            return mask
    return np.zeros(len(total), bool)
