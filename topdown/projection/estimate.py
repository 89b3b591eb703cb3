"""Estimate: consistent values their variance where it is known, and a certificate that they solve their program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.geography import Geography
from topdown.projection.certificate import Certificate
from topdown.tables import tidy_batches, to_frame
from topdown.tree import FloatArray


@dataclass(frozen=True, eq=False)
class Estimate:
    """Consistent values at every node, made from measurements alone.

    ``values`` (nodes x cells): every family adds up, to rounding. ``variance`` (nodes x cells): the variance of every
    value given the truth, or None where it is not known (every non-negative projection). ``method``,
    ``nonnegative``, ``engine``, ``weights``: how it was made. ``certificate``: the residuals of its program. ``exact``
    (nodes x cells): which values are exact (invariants, and what they imply).
    """

    geography: Geography
    cells: tuple[str, ...]
    values: FloatArray = field(repr=False)
    variance: FloatArray | None = field(repr=False)
    method: str
    nonnegative: bool
    engine: str
    weights: str
    certificate: Certificate
    exact: npt.NDArray[np.bool_] = field(repr=False)
    fit_for_release: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The tidy table ``geoid, level, cell, value[, variance]`` in Arrow batches."""
        known = {} if self.variance is None else {"variance": self.variance}
        return tidy_batches(self.geography, self.cells, {"value": self.values, **known})

    def to_frame(self) -> pd.DataFrame:
        """The tidy table ``geoid, level, cell, value[, variance]``."""
        return to_frame(self.batches())
