"""A release in the columns of the American Community Survey: an estimate and a margin of error at 90 %.

The columns are those that tidycensus and the Census Bureau's own tables have: long, GEOID, NAME, variable, estimate,
moe; wide, each variable with E and M after its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from topdown.analysis.stated_numbers import StatedNumbers, long_batches
from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.release.answer_files import BoundedCounts
from topdown.tables.tidy import write_csv

CONFIDENCE = 0.9
"""Of every margin of error of the American Community Survey."""

LONG, WIDE = "acs.csv", "acs_wide.csv"

NOTE = (
    "moe is the distance from estimate, the released count, to the farther end of its interval at 90 %: estimate plus "
    "or minus moe holds the interval, and so the true count at least as often; release.* has both ends"
)


def write_acs(numbers: StatedNumbers, folder: Path) -> list[Path]:
    """Write both tables into ``folder``, which is there. Raises `ConfigError` where there are no margins."""
    numbers.require_margins("the style of the American Community Survey")
    require_acs(numbers.names)
    write_csv(folder / LONG, _long(numbers))
    write_csv(folder / WIDE, _wide(numbers))
    return [folder / LONG, folder / WIDE]


def require_acs(names: Sequence[str]) -> None:
    """Refuse a column whose estimates would have the same name as the column of unit names. Raises `ConfigError`."""
    if "NAM" in names:
        raise ConfigError(
            "the estimates of column 'NAM' would be called NAME, which is the column of unit names; give the "
            "column another name"
        )


def _moe(found: BoundedCounts) -> FloatArray:
    """The distance from the count to the farther end of the interval; missing where the interval has no upper end."""
    reach = np.maximum(found.upper - found.counts, found.counts - found.lower)
    return np.where(np.isfinite(reach), reach, np.nan)


def _long(numbers: StatedNumbers) -> Iterator[pa.RecordBatch]:
    return long_batches(
        numbers, lambda found: {"estimate": found.counts, "moe": _moe(found)}, ("GEOID", "NAME", "variable")
    )


def _wide(numbers: StatedNumbers) -> Iterator[pa.RecordBatch]:
    for units, found in numbers.by_unit():
        columns, moe = {"GEOID": units["geoid"], "NAME": units["name"]}, _moe(found)
        for k, name in enumerate(numbers.names):
            columns[f"{name}E"] = pa.array(found.counts[:, k])
            columns[f"{name}M"] = pa.array(moe[:, k], from_pandas=True)
        yield pa.RecordBatch.from_pydict(columns)
