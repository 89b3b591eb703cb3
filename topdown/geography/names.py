"""The name of every unit, from rows that may repeat it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import GeographyError
from topdown.geography.labels import code_shown
from topdown.geography.tree import IntArray
from topdown.wording import WITHHELD, may_hold_a_count, shown, unquoted


def only_names(written: pa.Array, codes: IntArray, units: pa.Array, level: str) -> pa.Array:
    """What each of ``units`` is called, where row r calls unit ``codes[r]`` ``written[r]``; null where no row says.

    Raises `GeographyError` for a unit with two names: which of them were published would depend on the rows' order.
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
