"""The tree of a table with one column per level, and units for the levels that its rows lack."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ROW, GeographyError, disagreement
from topdown.geography.labels import (
    as_frame,
    as_strings,
    code_shown,
    column,
    encode,
    first_repeat,
    missing,
    require_stripped,
)
from topdown.geography.tree import IntArray, Tree
from topdown.wording import WITHHELD, may_hold_a_count, shown, unquoted

Parts = tuple[tuple[str, ...], Tree, pa.Array, pa.Array | None]
"""``(levels, tree, identifiers, names)``, the fields of a `Geography`."""


def from_table(
    frame: Any,
    levels: tuple[str, ...],
    root: str | None,
    name: str | Mapping[str, str] | None,
    separator: str | None,
) -> Parts:
    if not levels:
        raise GeographyError("no levels: name the columns of the table from the root to the leaves")
    frame = as_frame(frame)
    known = list(frame.column_names) if isinstance(frame, pa.Table) else list(frame)
    for level in name if isinstance(name, Mapping) else ():
        if level not in levels:
            raise GeographyError(f"names of level {shown(level)}, which does not exist; {disagreement(level, levels)}")
    rows = len(frame) if not isinstance(frame, Mapping) else max(map(len, frame.values()), default=0)
    if rows == 0:
        raise GeographyError("the table has no rows; a geography needs at least one leaf")

    def identifiers(level: str) -> pa.Array:
        if level == levels[0] and level not in known and root is not None:
            return pa.array([root]).take(pa.array(np.zeros(rows, np.int64)))
        values = as_strings(column(frame, level), f"column {shown(level)}")
        if len(values) != rows:
            raise GeographyError(f"column {shown(level)} has {len(values)} rows, and the table has {rows}")
        require_stripped(values, f"level {shown(level)}")
        if level == levels[0] and root is not None and not pc.all(pc.equal(values, root)).as_py():
            raise GeographyError(
                f"the root is given as {shown(root)}, but column {shown(level)} has another; leave root out, or "
                "correct one of them"
            )
        return values

    plain, coded = [], []
    above: pa.Array | None = None
    # One level after the other, so that only the codes are kept, which are shorter than most identifiers.
    for index, level in enumerate(levels):
        values = identifiers(level)
        if values.null_count or pc.any(pc.equal(values, "")).as_py():
            row = int(np.flatnonzero(missing(values))[0])
            columns = (identifiers(name) for name in reversed(levels))
            below = next((code_shown(c[row].as_py(), c) for c in columns if c[row].as_py()), "the row")
            raise GeographyError(
                f"{ROW}: level {shown(level)} is missing, so {below} is an orphan; give every unit its unit at "
                "every level",
                row=row,
            )
        if separator is not None:
            if separator == "" and index:
                _require_one_length(values, level)
            plain.append(values)
            values = pc.binary_join_element_wise(above, values, separator) if index > 1 else values
        elif above is not None:
            _refuse_lost_zero(levels[index - 1], level, above, values)
        coded.append(encode(values))
        above = values
    del above, values
    parts = assemble(levels, [codes for codes, _ in coded], [labels for _, labels in coded])
    names = _table_names(frame, levels, name, plain if separator is not None else None, coded, parts)
    return levels, parts.tree, parts.identifiers, names


def _require_one_length(codes: pa.Array, level: str) -> None:
    """Refuse codes of different lengths where they are joined without a separator: 1 and 23 would be 12 and 3."""
    lengths = np.asarray(pc.utf8_length(codes))
    short = np.flatnonzero(lengths != lengths.max(initial=0))
    if len(short):
        row, width = int(short[0]), int(lengths.max())
        raise GeographyError(
            f"{ROW}: level {shown(level)} has codes of {lengths[row]} and of {width} characters, which cannot be "
            f"joined without a separator; give them their zeros (input.pad_zeros = {{ {level} = {width} }}), or "
            'separator = "/"',
            row=row,
        )


def _refuse_lost_zero(upper: str, lower: str, parents: pa.Array, codes: pa.Array) -> None:
    """Refuse codes of digits that begin with their parent's code only after a leading zero is restored in one of them
    or in both. Codes that are not built in this way are not checked, since their width is not known.
    """
    digits = r"^[0-9]+$"
    if not pc.all(pc.and_(pc.match_substring_regex(parents, digits), pc.match_substring_regex(codes, digits))).as_py():
        return
    (short_parent, whole_parents), (short_code, whole_codes) = _with_zero(parents), _with_zero(codes)
    lost = short_parent | short_code
    if not lost.any() or whole_parents is None or whole_codes is None:
        return
    width = len(whole_parents[0].as_py())
    if not pc.all(pc.equal(pc.utf8_slice_codeunits(whole_codes, 0, width), whole_parents)).as_py():
        return
    row = int(np.flatnonzero(lost)[0])
    # Since all others are built in this way, these are codes, too.
    level, code = (lower, codes[row].as_py()) if short_code[row] else (upper, parents[row].as_py())
    within = f" lies in {unquoted(upper)} {shown(parents[row].as_py())} and" if short_code[row] else ""
    raise GeographyError(
        f"{ROW}: {unquoted(level)} {shown(code)}{within} lost its leading zero, probably when the column was read as "
        f"numbers: {shown('0' + code)} is meant; read the column as strings, or "
        "where codes are meant to be of different lengths, identify units by their path (separator='/')",
        row=row,
    )


def _with_zero(codes: pa.Array) -> tuple[npt.NDArray[np.bool_], pa.Array | None]:
    """Which codes are one character shorter than the longest, and all with a zero before those; None where some are
    shorter still.
    """
    length = np.asarray(pc.utf8_length(codes))
    short = length == length.max() - 1
    if (length < length.max() - 1).any():
        return short, None
    return short, pc.if_else(pa.array(short), pc.binary_join_element_wise("0", codes, ""), codes)


def _table_names(
    frame: Any,
    levels: tuple[str, ...],
    name: str | Mapping[str, str] | None,
    plain: list[pa.Array] | None,
    coded: list[tuple[IntArray, pa.Array]],
    parts: Assembled,
) -> pa.Array | None:
    """Names in node order from columns of the table, or from the bare identifiers where paths are joined."""
    if name is None and plain is None:
        return None
    columns = {levels[-1]: name} if isinstance(name, str) else dict(name or {})
    found = []
    for index, (level, (codes, units)) in enumerate(zip(levels, coded, strict=True)):
        rows = pa.array(parts.first_row[index])
        if level in columns:
            what = f"column {shown(columns[level])}"
            written = as_strings(column(frame, columns[level]), what)
            if len(written) != len(codes):
                raise GeographyError(f"{what} has {len(written)} rows, and the table has {len(codes)}")
            found.append(only_names(written, codes, units, level).take(pa.array(codes[parts.first_row[index]])))
        elif plain is not None:
            found.append(plain[index].take(rows))
        else:
            found.append(pa.nulls(len(rows), pa.string()))
    return pa.concat_arrays(found)


class Assembled(NamedTuple):
    """A tree with its identifiers; ``first_row[level]`` is the first row of each of the level's nodes."""

    tree: Tree
    identifiers: pa.Array
    first_row: list[IntArray]


def assemble(levels: Sequence[str], codes: list[IntArray], labels: list[pa.Array]) -> Assembled:
    """The tree in which row r lies in unit ``codes[level][r]`` at every level, siblings in the order of their codes."""
    rows = len(codes[0])
    if len(labels[0]) != 1:
        some = ", ".join(code_shown(label, labels[0]) for label in labels[0].slice(0, 3).to_pylist())
        raise GeographyError(
            f"level {shown(levels[0])} has {len(labels[0])} units ({some}), so more than one root; add a level above "
            'it with one unit (in a TOML file root_level = "nation" and root = "US")'
        )
    order = np.zeros(1, np.int64)
    position = np.zeros(1, np.int64)
    sizes, identifiers, first_rows = [], [labels[0]], [np.zeros(1, np.int64)]
    for level in range(1, len(levels)):
        units = len(labels[level])
        first_row = np.full(units, rows, np.int64)
        np.minimum.at(first_row, codes[level], np.arange(rows))
        parent = codes[level - 1][first_row]
        torn = np.flatnonzero(parent[codes[level]] != codes[level - 1])
        if len(torn):
            row = int(torn[0])
            unit = int(codes[level][row])
            above = labels[level - 1]
            first, second = (above[int(p)].as_py() for p in (parent[unit], codes[level - 1][row]))
            said = code_shown(labels[level][unit].as_py(), labels[level], first)
            raise GeographyError(
                f"{unquoted(levels[level])} {said} has two parents at level {shown(levels[level - 1])}: "
                f"{code_shown(first, above)} and {code_shown(second, above)} ({ROW}); correct the row, or where "
                "names repeat under different parents identify units by their path (separator='/')",
                row=row,
            )
        sizes.append(np.bincount(position[parent], minlength=len(order)))
        order = np.argsort(position[parent], kind="stable")
        position = np.empty(units, np.int64)
        position[order] = np.arange(units)
        identifiers.append(labels[level].take(pa.array(order)))
        first_rows.append(first_row[order])
    if len(labels[-1]) != rows:
        row = first_repeat(codes[-1])
        within = labels[-2][int(codes[-2][row])].as_py() if len(levels) > 1 else None
        said = code_shown(labels[-1][int(codes[-1][row])].as_py(), labels[-1], within)
        raise GeographyError(
            f"{unquoted(levels[-1])} {said}: duplicate GEOID ({ROW}); the table must have one row per leaf",
            row=row,
        )
    together = pa.concat_arrays(identifiers)
    _refuse_reuse(levels, identifiers, together)
    return Assembled(Tree.from_family_sizes(sizes), together, first_rows)


def _refuse_reuse(levels: Sequence[str], per_level: list[pa.Array], together: pa.Array) -> None:
    """Refuse an identifier that names units at two levels, since tables have the GEOID as their key."""
    inner, leaves = together.slice(0, len(together) - len(per_level[-1])), per_level[-1]
    # Without a table of all leaves, which would take hundreds of bytes for each of many.
    if pc.count_distinct(inner).as_py() == len(inner) and not pc.any(pc.is_in(leaves, value_set=inner)).as_py():
        return
    for upper in range(len(levels)):
        for lower in range(upper + 1, len(levels)):
            shared = np.flatnonzero(np.asarray(pc.is_in(per_level[lower], value_set=per_level[upper])))
            if len(shared):
                said = code_shown(per_level[lower][int(shared[0])].as_py(), per_level[lower])
                raise GeographyError(
                    f"duplicate GEOID {said}: it names a unit at level {shown(levels[upper])} and one at level "
                    f"{shown(levels[lower])}; make identifiers unique, for example by their path (separator='/')"
                )


def only_names(written: pa.Array, codes: IntArray, units: pa.Array, level: str) -> pa.Array:
    """The name of each of ``units``, where row r gives unit ``codes[r]`` the name ``written[r]``; null where no row has
    one. Raises `GeographyError` for a unit with two names, since the published one would depend on the order of rows.
    """
    encoded = written.dictionary_encode()
    name = np.asarray(pc.fill_null(encoded.indices, -1), dtype=np.int64)
    rows = np.flatnonzero(name >= 0)
    found = np.full(len(units), -1, np.int64)
    found[codes[rows]] = name[rows]
    contradicted = found[codes] != name
    contradicted[name < 0] = False
    if contradicted.any():
        row = int(np.flatnonzero(contradicted)[0])
        unit = int(codes[row])
        both = sorted(encoded.dictionary[int(k)].as_py() for k in (name[row], found[unit]))
        raise GeographyError(
            f"{unquoted(level)} {code_shown(units[unit].as_py(), units)} has two names: {_shown(both[0])} "
            f"and {_shown(both[1])}; give it one in all of its rows, or leave the names of this level out"
        )
    return encoded.dictionary.take(pa.array(found, mask=found < 0))


def _shown(name: str) -> str:
    return WITHHELD if may_hold_a_count(name) else shown(name)


def repeat_down(codes: Sequence[pa.Array], levels: Sequence[str], *, by_path: bool) -> list[pa.Array]:
    """``codes`` of every level, root first, with what is missing below a unit filled in by the unit itself.

    A county 01001 without tracts gets the tract "01001/tract", or, where units are identified ``by_path``, one with its
    own name. In a row only the lowest levels may be missing. Raises `GeographyError` for a unit that has a row without
    a unit at the level below and others with one: that row may be their sum.
    """
    filled = [codes[0]]
    base, lowest = codes[0], np.zeros(len(codes[0]), np.int64)
    for index, (level, below) in enumerate(zip(levels[1:], codes[1:], strict=True), start=1):
        lacks = missing(below)
        again = np.flatnonzero(~lacks & (lowest < index - 1))
        if len(again):
            row = int(again[0])
            above = levels[int(lowest[row]) + 1]
            raise GeographyError(
                f"{ROW}: level {shown(above)} is missing, and a unit of level {shown(level)} is there: what is not "
                "divided further ends at one level; give it its unit, or leave the lower ones out",
                row=row,
            )
        lowest[~lacks] = index
        base = pc.if_else(pa.array(lacks), base, below)
        name = base if by_path else pc.binary_join_element_wise(base, level, "/")
        filled.append(pc.if_else(pa.array(lacks), name, below))
    unit = codes[0]
    for index, (level, below) in enumerate(itertools.pairwise(levels)):
        # Names repeat under other parents, so that units are identified by their path.
        unit = pc.binary_join_element_wise(unit, codes[index], "\0") if by_path else codes[index]
        ends = lowest == index
        divided = pc.is_in(unit, value_set=pc.unique(unit.filter(pa.array(lowest > index))))
        torn = np.flatnonzero(ends & np.asarray(pc.fill_null(divided, False)))
        if len(torn):
            row = int(torn[0])
            said = code_shown(codes[index][row].as_py(), codes[index])
            raise GeographyError(
                f"{ROW}: {unquoted(level)} {said} has no unit of level {shown(below)} in this row and has some in "
                "others, so that the row may be their sum; leave it out (input.where), or give it a unit of its own",
                row=row,
            )
    return filled
