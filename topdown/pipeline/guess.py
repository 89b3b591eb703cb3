"""A first configuration for a table, guessed from its columns: to be read, corrected, and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from topdown.confidential.counts import Counts
from topdown.confidential.overlap import summed_cells
from topdown.errors import DataError
from topdown.geography.construction import as_text
from topdown.geography.geography import Geography
from topdown.tables.format import PLAIN, Format, kind_of
from topdown.tables.readers import read_table
from topdown.wording import shown_path, unquoted

_MOST_CATEGORIES = 60
_NUMBER = r"^[ ]*(0|[1-9][0-9]*|[1-9][0-9]{0,2}(,[0-9]{3})+)(\.0*)?[ ]*$"
_CODE = re.compile(r"(?i)(geo_?id|fips|code|_id|^id|block|tract|bg$|nuts|ags|ibge|ons)")
_US_WIDTHS = {2: "state", 5: "county", 11: "tract", 12: "block group", 15: "block"}


@dataclass
class Guess:
    """What a table seems to be: ``levels`` (columns, root first) or ``widths`` of the codes in ``geoid``, the columns
    with ``names``, the ``cells``, and the ``sums`` among the columns, which are left out; ``separator`` of paths, where
    levels share names; ``attributes`` of records.
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

    @property
    def level_names(self) -> list[str]:
        return self.levels or ["nation", *self.widths]


def guess(path: Path, form: Format) -> Guess:
    """What the table at ``path`` seems to be. Raises `DataError` where no column tells its units apart."""
    table = read_table(path, form=form)
    if table.num_rows == 0:
        raise DataError(f"{shown_path(path)}: has no rows to guess by")
    text = {name: as_text(table[name], name) for name in table.column_names}
    distinct = {name: pc.count_distinct(values, mode="all").as_py() for name, values in text.items()}
    counts = [name for name in text if _is_count(name, table[name], text[name])]
    units = [name for name in text if name not in counts]
    found = Guess(form)
    leaf = _leaf(units, text, distinct, table.num_rows)
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
    """Whether a column holds whole numbers, and neither codes nor texts."""
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return True
    known = text.drop_null()
    if not len(known) or not pc.all(pc.match_substring_regex(known, _NUMBER)).as_py():
        return False
    one_width = pc.count_distinct(pc.utf8_length(known)).as_py() == 1 and pc.utf8_length(known)[0].as_py() > 1
    return not (_CODE.search(name) and one_width)


def _leaf(units: list[str], text: dict[str, pa.Array], distinct: dict[str, int], rows: int) -> str | None:
    """The column of codes, or of names, in which every row has a value of its own."""
    single = [name for name in units if distinct[name] == rows and text[name].null_count == 0]
    return min(single, key=lambda name: (not _CODE.search(name), not _all_codes(text[name]), name), default=None)


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
    codes = as_text(table[found.geoid or found.levels[-1]], "codes")
    geography = Geography.from_edges(codes, pa.array(["\0"]).take(pa.array([0] * len(codes))))
    columns = {"unit": codes} | {name: table[name] for name in found.cells}
    try:
        counts = Counts.from_table(pa.table(columns), geography, geoid="unit", cells=found.cells)
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


def configuration(found: Guess, path: str, title: str) -> str:
    """``found`` as a commented TOML file, for a table at ``path`` as the file's folder sees it."""
    levels = found.level_names
    share = f'"1/{len(levels)}"'
    lines = [
        "#:schema release.json",
        f"# Guessed from the columns of {_comment(path)}. Read every line: a table does not say what it means.",
        "# `topdown check` says, before anything is drawn, what is protected and how large the errors will be;",
        "# `topdown schema > release.json` lets an editor complete this file.",
        "",
        f"title = {_quoted(title)}",
        "",
        "[input]",
        f"path = {_quoted(path)}",
    ]
    lines += [f"{name} = {_quoted(value)}" for name, value in (
        ("delimiter", found.form.delimiter), ("sheet", found.form.sheet),
        ("encoding", None if found.form.encoding == "utf-8" else found.form.encoding),
    ) if value is not None]  # fmt: skip
    if found.rows != "leaves":
        what = "every row is a record" if found.count is None else "every row is a unit and its categories"
        lines.append(f'rows = "{found.rows}"                      # {what}')
        lines += [] if found.count is None else [f"count = {_quoted(found.count)}"]
    if found.cells:
        lines.append("# Disjoint columns of counts: every record is in one of them." if len(found.cells) > 1 else "")
        lines.append(f"cells = [{', '.join(map(_quoted, found.cells))}]")
    lines += [f"# Left out, since it is the sum of others: {_comment(name)}" for name in found.sums]
    if found.widths:
        lines.append(f"geoid = {_quoted(found.geoid or '')}")
    if found.attributes:
        lines += [
            "",
            "# All categories that there may be, also those that no row has: they are published.",
            "[schema]",
            *(f"{_key(name)} = [{', '.join(map(_quoted, some))}]" for name, some in found.attributes.items()),
        ]
    lines += ["", "[geography]"]
    if found.widths:
        widths = ", ".join(f"{_key(level)} = {width}" for level, width in found.widths.items())
        lines.append(f"widths = {{ {widths} }}            # characters of the code that name the unit at each level")
    else:
        lines.append(f"levels = [{', '.join(map(_quoted, found.levels))}]       # one column per level, root first")
    if found.root is not None:
        lines.append(f"root = {_quoted(found.root)}                          # what everything together is called")
    if found.separator is not None:
        lines.append(f"separator = {_quoted(found.separator)}   # levels share names: paths tell units apart")
    named = {level: called for level, called in found.names.items() if level in levels}
    if named and found.levels:
        lines.append(f"names = {{ {', '.join(f'{_key(k)} = {_quoted(v)}' for k, v in named.items())} }}")
    lines += [
        '# units = "units.csv"                    # a public list of the units, where the table is not to be the list',
        "",
        "[privacy]",
        'mechanism = "geometric"                  # or "discrete-gaussian", with rho in place of epsilon',
        "epsilon = 1.0                            # the whole budget: choose it",
        f"shares = {{ {', '.join(f'{_key(level)} = {share}' for level in levels)} }}   # of the budget, level by level",
        'neighbours = "add-remove"                # or "substitute", where the number of records is public',
        'unit = "person"                          # what a record is',
        "",
        "[output]",
        'directory = "output"',
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    written = (escapes.get(sign, sign if sign.isprintable() else f"\\U{ord(sign):08x}") for sign in text)
    return '"' + "".join(written) + '"'


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _comment(text: str) -> str:
    return unquoted(text, 200)


def likely_form(path: Path, form: Format) -> Format:
    """``form``, with the delimiter that the first line of a text file shows where none was given."""
    if form.delimiter is not None or not kind_of(path).startswith(".csv"):
        return form
    from topdown.tables.text import text_header

    header = text_header(path, form)
    other = next((sign for sign in ";\t|" if len(header) == 1 and sign in header[0]), None)
    return form if other is None else Format(other, form.encoding, form.sheet)
