"""Checks and steps that the constructors of `Geography` share."""

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ROW, GeographyError
from topdown.geography.codes import checked_lengths, from_geoids
from topdown.geography.edges import from_edges, from_networkx
from topdown.geography.labels import (
    as_frame,
    as_strings,
    as_text,
    code_shown,
    column,
    in_one_piece,
    missing,
    plain,
    rises,
    with_rows,
)
from topdown.geography.table import from_table
from topdown.wording import shown, unquoted

__all__ = [
    "as_frame",
    "as_strings",
    "as_text",
    "checked_lengths",
    "code_shown",
    "column",
    "from_edges",
    "from_geoids",
    "from_networkx",
    "from_table",
    "in_one_piece",
    "plain",
    "repeat_down",
    "rises",
    "with_rows",
]


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
