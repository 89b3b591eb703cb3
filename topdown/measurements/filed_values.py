"""Measured values that stay in files and are read a range of nodes at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class FiledValues:
    """A table (nodes x answers) in files. ``read`` gives the rows from one node to below another.

    It is indexed by a slice of nodes, or by an array of ascending ones, and gives an array. `numpy.asarray` reads all.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    read: Callable[[int, int], npt.NDArray[Any]] = field(repr=False)

    ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, nodes: Any) -> npt.NDArray[Any]:
        if isinstance(nodes, slice):
            start, stop, step = nodes.indices(self.shape[0])
            return self.read(start, max(start, stop))[::step]
        chosen = np.arange(self.shape[0])[nodes]
        if not len(chosen):
            return self.read(0, 0)
        first = int(chosen[0])
        found: npt.NDArray[Any] = self.read(first, int(chosen[-1]) + 1)[chosen - first]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.read(0, self.shape[0]).astype(dtype or self.dtype, copy=False)
        return found
