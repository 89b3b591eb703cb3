"""What a table seems to be, guessed from its columns."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from topdown.confidential.counts import Counts
from topdown.confidential.double_counting import summed_cells
from topdown.errors import DataError
from topdown.geography.construction import as_text
from topdown.geography.geography import Geography
from topdown.tables.format import PLAIN, Format
from topdown.tables.readers import read_table, table_columns
from topdown.wording import shown_path

_MOST_CATEGORIES = 60
_MOST_LEVELS = 8
_NUMBER = r"^[ ]*(0|[1-9][0-9]*|[1-9][0-9]{0,2}(,[0-9]{3})+)(\.0*)?[ ]*$"
_ANY_NUMBER = r"^[ ]*[-+]?(0|[1-9][0-9,]*)(\.[0-9]*)?[ ]*$"
_MOSTLY = 0.9
_CODE = re.compile(r"(?i)(geo_?id|fips|code|_id|^id|block|tract|bg$|nuts|ags|ibge|ons)")
_US_WIDTHS = {2: "state", 5: "county", 11: "tract", 12: "block group", 15: "block"}


@dataclass
class Guess:
    """What a table seems to be: ``levels`` (columns, root first) or ``widths`` of the codes in ``geoid``, the columns
    with ``names``, the ``cells``, and the ``sums`` among the columns, which are left out; ``separator`` of paths, where
    levels share names; ``attributes`` of records; ``where``: a column of several levels' names, and that of the leaves.
    """

    form: Format = PLAIN
    rows: str = "leaves"
    count: str | None = None
    levels: list[str] = field(default_factory=list)
    root: str | None = None
    separator: str | None = None
    geoid: str | None = None
    widths: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    cells: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)
    attributes: dict[str, list[str]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)

    @property
    def level_names(self) -> list[str]:
        return self.levels or ["nation", *self.widths]


def guess(path: Path, form: Format) -> Guess:
    """What the table at ``path`` seems to be. Raises `DataError` where no column tells its units apart."""
    table = read_table(path, form=form)
    if table.num_rows == 0:
        raise DataError(f"{shown_path(path)}: has no rows to guess by")
    return _guess_of(table, form, path)


def _guess_of(table: pa.Table, form: Format, path: Path) -> Guess:
    text = {name: as_text(table[name], name) for name in table.column_names}
    distinct = {name: pc.count_distinct(values, mode="all").as_py() for name, values in text.items()}
    counts = [name for name in text if _is_count(name, table[name], text[name])]
    units = [name for name in text if name not in counts]
    found = Guess(form)
    leaf = _leaf(units, text, distinct, table.num_rows)
    # Numbers of few values may be categories of records.
    many = min(_MOST_CATEGORIES, table.num_rows // 2)
    if leaf is None and sum(distinct[name] > many for name in counts) > 1:
        path_to_leaf = _path_to_leaf(units, text, distinct, table.num_rows)
        if path_to_leaf is not None:
            found.cells = counts
            found.root, found.levels, found.separator = "ALL", ["everything", *path_to_leaf], "/"
            _leave_out_sums(found, table)
            return found
        for name in (one for one in units if 1 < distinct[one] <= _MOST_LEVELS):
            most = max(pc.value_counts(text[name].drop_null()).to_pylist(), key=lambda one: one["counts"])["values"]
            part = _guess_of(table.filter(pc.equal(text[name], most)).drop_columns(name), form, path)
            if part.rows == "leaves":
                part.where = {name: most, **part.where}
                return part
    if leaf is None:
        _guess_records(found, units, counts, text, distinct, path)
        leaf = found.geoid or ""
        units = [name for name in units if name not in found.attributes]
    else:
        found.cells = counts
    _guess_levels(found, leaf, units, text, distinct)
    if found.rows == "leaves":
        _leave_out_sums(found, table)
    return found


def _is_count(name: str, column: pa.ChunkedArray, text: pa.Array) -> bool:
    """Whether a column holds numbers, most of them whole, and neither codes nor texts."""
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return True
    known = text.drop_null()
    if not len(known) or not pc.all(pc.match_substring_regex(known, _ANY_NUMBER)).as_py():
        return False
    # A few numbers that are no counts are mistakes, which `topdown check` names; of many it is another column.
    if pc.mean(pc.match_substring_regex(known, _NUMBER)).as_py() < _MOSTLY:
        return False
    one_width = pc.count_distinct(pc.utf8_length(known)).as_py() == 1 and pc.utf8_length(known)[0].as_py() > 1
    return not (_CODE.search(name) and one_width)


def _leaf(units: list[str], text: dict[str, pa.Array], distinct: dict[str, int], rows: int) -> str | None:
    """The column of codes, or of names, in which every row has a value of its own."""
    single = [name for name in units if distinct[name] == rows and text[name].null_count == 0]
    return min(single, key=lambda name: (not _CODE.search(name), not _all_codes(text[name]), name), default=None)


def _path_to_leaf(units: list[str], text: dict[str, pa.Array], distinct: dict[str, int], rows: int) -> list[str] | None:
    """Two columns, coarsest first, which together tell all rows apart: names that stand under several parents."""
    whole = sorted((name for name in units if text[name].null_count == 0), key=lambda name: (distinct[name], name))
    for coarse, fine in itertools.combinations(whole, 2):
        pairs = pa.table({"coarse": text[coarse], "fine": text[fine]}).group_by(["coarse", "fine"]).aggregate([])
        if pairs.num_rows == rows:
            return [coarse, fine]
    return None


def _all_codes(text: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(text, r"^[0-9A-Z]+$")).as_py())


def _is_function(of: pa.Array, value: pa.Array) -> bool:
    """Whether ``value`` is the same wherever ``of`` is."""
    pairs = pa.table({"of": of, "value": value}).group_by(["of", "value"]).aggregate([])
    return bool(pairs.num_rows == pc.count_distinct(of, mode="all").as_py())


def _guess_records(
    found: Guess,
    units: list[str],
    counts: list[str],
    text: dict[str, pa.Array],
    distinct: dict[str, int],
    path: Path,
) -> None:
    """Rows of which many are of one unit: records, or with a column of counts a long table."""
    found.geoid = max(units, key=lambda name: (bool(_CODE.search(name)), distinct[name]), default=None)
    if found.geoid is None:
        raise DataError(
            f"{shown_path(path)}: no column of text tells units apart; codes have to be text, with their zeros"
        )
    codes = text[found.geoid]
    for name in [*units, *counts]:
        few = distinct[name] <= _MOST_CATEGORIES and name != found.geoid
        if few and (name in units or len(counts) > 1) and not _is_function(codes, text[name]):
            found.attributes[name] = sorted(str(one) for one in pc.unique(text[name].drop_null()).to_pylist())
    rest = [name for name in counts if name not in found.attributes]
    found.rows, found.count = ("long", rest[0]) if len(rest) == 1 else ("records", None)
    found.cells = [] if found.attributes else ["records"]


def _guess_levels(
    found: Guess, leaf: str, units: list[str], text: dict[str, pa.Array], distinct: dict[str, int]
) -> None:
    """The columns that nest around ``leaf``, coarsest first, and what only names them; else widths of its codes."""
    chain = [leaf]
    for name in sorted((one for one in units if one != leaf), key=lambda one: (-distinct[one], one)):
        if text[name].null_count or not _is_function(text[chain[-1]], text[name]):
            continue
        if not _is_function(text[name], text[chain[-1]]):
            chain.append(name)
            continue
        # One for one: the one is the code, the other the name.
        code, called = sorted((chain[-1], name), key=lambda one: (not _all_codes(text[one]), one == name))
        if chain[-1] != leaf or code == leaf:
            chain[-1] = code
            found.names.setdefault(code, called)
    chain.reverse()
    if len(chain) == 1:
        _guess_widths(found, leaf, text[leaf])
        return
    found.geoid = None
    found.levels = chain
    below = [pc.unique(text[level]) for level in chain]
    if any(pc.any(pc.is_in(a, value_set=b)).as_py() for k, a in enumerate(below) for b in below[k + 1 :]):
        found.separator = "/"
    if distinct[chain[0]] > 1:
        found.root = "ALL"
        found.levels = ["everything", *chain]


def _guess_widths(found: Guess, leaf: str, codes: pa.Array) -> None:
    lengths = pc.unique(pc.utf8_length(codes)).to_pylist()
    width = max(lengths)
    found.geoid = leaf
    us = [w for w in _US_WIDTHS if w <= width and not (w == 12 and width == 15)]
    if width in _US_WIDTHS and _CODE.search(leaf) and _all_codes(codes) and len(lengths) == 1 and width > 2:
        found.widths = {_US_WIDTHS[w]: w for w in us}
    elif len(lengths) == 1:
        found.widths = {"unit": width}
        found.root = "ALL"
    else:
        found.geoid, found.root = None, "ALL"
        found.levels = ["everything", leaf]


def _leave_out_sums(found: Guess, table: pa.Table) -> None:
    """Take cells that are sums of the others out, one by one."""
    columns = [found.geoid] if found.geoid else found.levels[-2:] if found.separator else found.levels[-1:]
    # Every row is a unit of its own, and its code only tells it from the others.
    codes = pc.binary_join_element_wise(*(as_text(table[name], name) for name in columns), "\0")
    geography = Geography.from_edges(codes, pa.array(["\0"]).take(pa.array([0] * len(codes))))
    cells = {"unit": codes} | {name: table[name] for name in found.cells}
    try:
        counts = Counts.from_table(pa.table(cells), geography, geoid="unit", cells=found.cells)
    except DataError:
        return  # what is wrong with the counts is for `check` to say, with the line
    while len(found.cells) > 1:
        sums = summed_cells(counts)
        if sums is None:
            return
        taken = sums[0][0]
        found.sums.append(taken)
        keep = [k for k, name in enumerate(counts.cells) if name != taken]
        counts = Counts(geography, tuple(counts.cells[k] for k in keep), counts.values[:, keep])
        found.cells = list(counts.cells)


def likely_form(path: Path, form: Format) -> Format:
    """``form``, with the delimiter that the first line of a text file shows where none was given."""
    if form.delimiter is not None or not path.name.lower().endswith((".csv", ".csv.gz")):
        return form
    header = table_columns(path, form)
    other = next((sign for sign in ";\t|" if len(header) == 1 and sign in header[0]), None)
    return form if other is None else Format(other, form.encoding, form.sheet)
