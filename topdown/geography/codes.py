"""The tree of hierarchical codes, whose prefixes are the units above."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ROW, GeographyError
from topdown.geography.labels import as_strings, code_shown, encode, first_repeat, in_one_piece, require_stripped
from topdown.geography.table import Assembled, Parts, assemble
from topdown.geography.tree import IntArray, Tree
from topdown.wording import LONGEST_LIST, WITHHELD, joined, may_hold_a_marked_count, shown, unquoted

_ROWS_AT_ONCE = 1 << 18
_WORD = 8
"""Characters that are compared at once."""


def from_geoids(geoids: Any, widths: dict[str, int], root: str, root_level: str, names: Any) -> Parts:
    levels = (root_level, *widths)
    steps = list(widths.values())
    if not steps or any(b <= a for a, b in zip([0, *steps], steps, strict=False)):
        raise GeographyError(f"widths must increase level by level from above 0, and are {shown(widths, LONGEST_LIST)}")
    values = as_strings(geoids, "geoids")
    if len(values) == 0:
        raise GeographyError("no GEOIDs; a geography needs at least one leaf")
    lengths = checked_lengths(values, widths)
    require_stripped(values, "the column of GEOIDs")
    is_leaf = lengths == steps[-1]
    labels = as_strings(names, "names") if names is not None else None
    if labels is not None and len(labels) != len(values):
        raise GeographyError(f"{len(labels)} names for {len(values)} GEOIDs; give one name for every GEOID")
    leaves, leaf_names = values, labels
    if not is_leaf.all():
        leaves = values.filter(pa.array(is_leaf))
        leaf_names = labels.filter(pa.array(is_leaf)) if labels is not None else None
    if len(leaves) == 0:
        raise GeographyError(
            f"no GEOID has the width of a leaf ({unquoted(levels[-1])}, {steps[-1]} characters); correct the widths"
        )
    parts = _sorted_codes(leaves, steps, root)
    leaf_rows: IntArray | None = None
    if parts is None:
        order = pc.array_sort_indices(leaves)
        parts, leaf_rows = _sorted_codes(leaves.take(order), steps, root), order.to_numpy()
    if parts is None:
        coded = [encode(pc.utf8_slice_codeunits(leaves, 0, width)) for width in steps]
        codes = [np.zeros(len(leaves), np.int64), *(c for c, _ in coded)]
        try:
            parts = assemble(levels, codes, [pa.array([root]), *(units for _, units in coded)])
        except GeographyError as error:
            if error.row is None:
                raise
            raise error.of_row(int(np.flatnonzero(is_leaf)[error.row])) from None
        leaf_rows = parts.first_row[-1]
    tree, identifiers = parts.tree, parts.identifiers
    if pc.index(identifiers.slice(1), root).as_py() >= 0:
        raise GeographyError(f"duplicate GEOID {shown(root)}: it names the root and a unit below it; name another root")
    if not is_leaf.all():
        _require_leaves_below(values.filter(pa.array(~is_leaf)), lengths[~is_leaf], identifiers, widths)
    if labels is None:
        return levels, tree, identifiers, None
    if is_leaf.all() and leaf_names is not None:
        ordered = leaf_names if leaf_rows is None else leaf_names.take(pa.array(leaf_rows))
        return (
            levels,
            tree,
            identifiers,
            pa.concat_arrays([pa.nulls(len(identifiers) - len(ordered), pa.string()), ordered]),
        )
    return levels, tree, identifiers, labels.take(pc.index_in(identifiers, value_set=values))


def checked_lengths(values: pa.Array, widths: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """The lengths of the codes, every one of which is some level's width."""
    if values.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(values)))[0])
        raise GeographyError(f"{ROW}: the GEOID is missing; give every row its GEOID", row=row)
    lengths = np.asarray(pc.utf8_length(values))
    known = np.zeros(lengths.shape, bool)
    for width in widths.values():
        known |= lengths == width
    wrong = np.flatnonzero(~known)
    if len(wrong):
        row, code = int(wrong[0]), values[int(wrong[0])].as_py()
        wanted = joined([f"{unquoted(level)} {width}" for level, width in widths.items()])
        said = min(_code_shown(code, widths), code_shown(code, values), key=lambda text: text == WITHHELD)
        hint = "correct the code or the widths"
        if code.isdigit() and len(code) + 1 in widths.values():
            meant = f": {shown('0' + code)} is meant" if said != WITHHELD else ""
            hint = f"a leading zero was lost, probably when the column was read as numbers{meant}"
        elif code != code.strip():
            hint = "remove the blanks around it"
        raise GeographyError(
            f"{ROW}: GEOID {said} has {len(code)} characters, and the widths are {wanted}; {hint}",
            row=row,
        )
    return lengths


def _characters(values: pa.Array, width: int) -> npt.NDArray[np.uint8] | None:
    """The codes as a (rows, width) array of bytes without a copy, or None where they are not plain ASCII."""
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1]
    if offsets[-1] - offsets[0] != width * len(values):
        return None
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].reshape(len(values), width)


def _words(characters: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Rows of characters (rows, width) as whole numbers (rows, words), which are in the same order."""
    rows, width = characters.shape
    padded = np.zeros((rows, -(-width // _WORD) * _WORD), np.uint8)
    padded[:, :width] = characters
    return padded.view(">u8").astype(np.uint64)


def _sorted_codes(codes: pa.Array, widths: list[int], root: str) -> Assembled | None:
    """The tree of strictly increasing ASCII codes by comparing neighbours, or None where they are not that."""
    characters = _characters(codes, widths[-1])
    if characters is None:
        return None
    rows, width = characters.shape
    new_at = np.zeros((len(widths), rows), bool)
    new_at[:, 0] = True
    for begin in range(1, rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, rows)
        words = _words(characters[begin - 1 : end])
        rises = np.zeros(end - begin, bool)
        differs = np.zeros((len(widths), end - begin), bool)
        for place in range(words.shape[1]):
            before, here = words[:-1, place], words[1:, place]
            # An earlier word that differs decides; otherwise this word does.
            rises |= (here > before) & ~differs[-1]
            changed = here ^ before
            for level, size in enumerate(widths):
                seen = size - _WORD * place
                if seen > 0:
                    differs[level] |= changed >= np.uint64(1 << 8 * max(0, _WORD - seen))
        if not rises.all():
            return None
        new_at[:, begin:end] = differs
    starts = [np.flatnonzero(mask) for mask in new_at]
    identifiers = [pa.array([root])]
    for level, size in enumerate(widths):
        units = np.ascontiguousarray(characters[starts[level], :size] if size < width else characters)
        offsets = np.arange(len(units) + 1, dtype=np.int32) * np.int32(size)
        identifiers.append(pa.StringArray.from_buffers(len(units), pa.py_buffer(offsets), pa.py_buffer(units)))
    sizes: list[IntArray] = [np.array([len(starts[0])])]
    for upper, lower in itertools.pairwise(starts):
        sizes.append(np.diff(np.searchsorted(lower, upper), append=len(lower)))
    return Assembled(Tree.from_family_sizes(sizes), in_one_piece(identifiers), [])


def _require_leaves_below(
    inner: pa.Array, lengths: npt.NDArray[np.int32], identifiers: pa.Array, widths: Mapping[str, int]
) -> None:
    """Refuse a code of an inner level that no leaf's code begins with, and one that stands there twice."""
    if pc.count_distinct(inner).as_py() != len(inner):
        row = first_repeat(encode(inner)[0])
        raise GeographyError(f"duplicate GEOID {_code_shown(inner[row].as_py(), widths)}; give every unit one row")
    childless = np.flatnonzero(~np.asarray(pc.is_in(inner, value_set=identifiers)))
    if len(childless):
        row = int(childless[0])
        level = next(name for name, width in widths.items() if width == lengths[row])
        last = list(widths)[-1]
        code = inner[row].as_py()
        lost = f", or restore its leading zero if {shown('0' + code)} is meant"
        raise GeographyError(
            f"{unquoted(level)} {_code_shown(code, widths)} has no {unquoted(last)} below it: a leaf above the leaf "
            f"level; add its leaves or leave it out{lost if lengths[row] + 1 in widths.values() else ''}"
        )


def _code_shown(code: str, widths: Mapping[str, int]) -> str:
    """``code`` as a message may show it: a long number only where it has a code's width, or has it with its lost zero.

    In a row that is shifted by a field a count may stand where the code should.
    """
    length = len(code.strip())
    as_code = length in widths.values() or length + 1 in widths.values()
    return shown(code) if as_code or not may_hold_a_marked_count(code) else WITHHELD
