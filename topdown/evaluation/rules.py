"""Decisions that are taken on released counts, as functions of values: what a study follows beside the errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from topdown.errors import ConfigError
from topdown.tree import FloatArray, Tree
from topdown.wording import joined, shown, unquoted


class Rule(Protocol):
    """A decision for every leaf. ``label`` names it; ``outcome`` maps values (..., cells, nodes) to (..., leaves)."""

    @property
    def label(self) -> str:
        """The name under which the study reports it."""
        ...

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """What is decided for every leaf."""
        ...


def _cell_index(cell: str, cells: Sequence[str]) -> int:
    if cell not in cells:
        raise ConfigError(
            f"a rule asks for cell {shown(cell)}, and the cells are {joined([unquoted(one) for one in cells])}"
        )
    return list(cells).index(cell)


@dataclass(frozen=True)
class FundShare:
    """Every leaf's share of a fixed fund that is paid out in proportion to a cell's count (all cells where None).

    Where every count is 0 or the sum is not positive, the fund is shared equally.
    """

    cell: str | None = None

    @property
    def label(self) -> str:
        """ "share of <cell>"."""
        return f"share of {self.cell or 'all cells'}"

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """Shares that add up to 1 over the leaves."""
        leaves = values[..., tree.leaves]
        counts = leaves.sum(axis=-2) if self.cell is None else leaves[..., _cell_index(self.cell, cells), :]
        total = counts.sum(axis=-1, keepdims=True)
        equal = np.full_like(counts, 1.0 / counts.shape[-1])
        np.divide(counts, total, out=equal, where=total > 0)
        return equal


@dataclass(frozen=True)
class Threshold:
    """Whether a leaf's count of ``cell``, or with ``among`` its part of these cells' sum, is above ``cutoff``: 1 or 0.

    A rate among nobody is not above any cutoff.
    """

    cell: str
    cutoff: float
    among: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """ "<cell> above <cutoff>", with the denominator of a rate."""
        return f"{self.cell}{' / (' + ' + '.join(self.among) + ')' if self.among else ''} above {self.cutoff:g}"

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """1.0 where the leaf is above the cutoff, else 0.0."""
        leaves = values[..., tree.leaves]
        count = leaves[..., _cell_index(self.cell, cells), :]
        if not self.among:
            return (count > self.cutoff).astype(np.float64)
        base = sum(leaves[..., _cell_index(cell, cells), :] for cell in self.among)
        return ((base > 0) & (count > self.cutoff * base)).astype(np.float64)
