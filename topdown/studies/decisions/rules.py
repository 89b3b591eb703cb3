"""Decisions on released counts, as functions of counts, which a study evaluates in every replicate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from topdown.errors import ConfigError, require_known
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, Tree
from topdown.studies.decisions.expressions import apart
from topdown.studies.unit_groups import Groups
from topdown.wording import joined, listed, shown, unquoted


class Level(NamedTuple):
    """A level of a geography: its name, and its number from the root, which has 0."""

    name: str
    number: int

    @classmethod
    def of(cls, geography: Geography, name: str) -> Level:
        """The level ``name``. Raises `ConfigError` with the names that there are."""
        require_known(name, geography.levels, "level")
        return cls(name, geography.levels.index(name))


class Decision(Protocol):
    """A decision for every unit of a level. ``label`` names it, ``nodes`` says which units these are; ``outcome`` maps
    values (..., cells, nodes) to (..., units)."""

    @property
    def label(self) -> str:
        """The name under which the study reports it."""
        ...

    def nodes(self, tree: Tree) -> slice:
        """The nodes that are decided for."""
        ...

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """What is decided for every unit."""
        ...


def _cell_index(cell: str, cells: Sequence[str]) -> int:
    if cell not in cells:
        raise ConfigError(
            f"a rule asks for cell {shown(cell)}, and the cells are {joined([unquoted(one) for one in cells])}"
        )
    return list(cells).index(cell)


@dataclass(frozen=True)
class FundShare:
    """Every leaf's share of a fixed fund that is paid out in proportion to a count.

    Where every count is 0 or the sum is not positive, the fund is shared equally.

    Args:
        cell: whose count it is; None for the sum of all cells.

    Examples:
        >>> td.fairness.fund(study, "top-down", td.FundShare("unemployed")).columns[:4].tolist()
        ['geoid', 'name', 'amount', 'bias']
    """

    cell: str | None = None

    @property
    def label(self) -> str:
        """ "share of <cell>"."""
        return f"share of {self.cell or 'all cells'}"

    def nodes(self, tree: Tree) -> slice:
        """The leaves of ``tree``."""
        return tree.leaves

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """Shares that add up to 1 over the leaves; (..., leaves).

        Args:
            values: (..., cells, nodes) counts, true or estimated.
            cells: the names of the cells.
            tree: of the units.
        """
        leaves = values[..., tree.leaves]
        counts = leaves.sum(axis=-2) if self.cell is None else leaves[..., _cell_index(self.cell, cells), :]
        return shares_of(counts)


def shares_of(counts: FloatArray) -> FloatArray:
    """Every unit's part of the sum of ``counts`` (..., units); equal parts where that is not positive."""
    total = counts.sum(axis=-1, keepdims=True)
    equal = np.full_like(counts, 1.0 / counts.shape[-1])
    np.divide(counts, total, out=equal, where=total > 0)
    return equal


@dataclass(frozen=True)
class Threshold:
    """Whether a unit's count of ``cell`` is above ``cutoff``: 1 or 0.

    With ``among`` or ``per``, whether its part of a sum, or its ratio to one, is above ``cutoff``. A part or ratio
    whose sum is 0 is not above any cutoff. What is exactly the cutoff is not above it, however it is rounded.

    Args:
        cell: whose count it is.
        cutoff: what has to be passed: a count, a part from 0 to below 1, or a ratio.
        among: cells, ``cell`` among them; its part of their sum is compared.
        per: cells, ``cell`` not among them; its ratio to their sum is compared.
        level: whose units, the leaves where it is None.

    Raises `ConfigError` for a part of cells that the cell is not among, a ratio to cells that it is among, both at
    once, or a cutoff that no part can pass or fail to pass.

    Examples:
        >>> td.Threshold("unemployed", 0.1, among=("employed", "unemployed")).label
        'unemployed / (employed + unemployed) above 0.1'
    """

    cell: str
    cutoff: float
    among: tuple[str, ...] = ()
    per: tuple[str, ...] = ()
    level: Level | None = None

    def __post_init__(self) -> None:
        if self.among and self.per:
            raise ConfigError(
                f"a threshold of {shown(self.cell)} has among and per; give among for its part of cells, or per "
                "for its ratio to other cells"
            )
        if self.among and self.cell not in self.among:
            raise ConfigError(
                f"a threshold asks for {shown(self.cell)} among {listed(self.among)}, which it is not one of; add "
                "it to among, or give per for a ratio to other cells"
            )
        if self.per and self.cell in self.per:
            raise ConfigError(
                f"a threshold asks for {shown(self.cell)} per {listed(self.per)}, which it is one of; give among "
                "for its part of them"
            )
        if self.among and not 0.0 <= self.cutoff < 1.0:
            raise ConfigError(
                f"a threshold has cutoff {shown(self.cutoff)} for the part of {shown(self.cell)} among "
                f"{listed(self.among)}; a part is from 0 to 1, so give a cutoff from 0 to below 1, such as 0.1 for 10 %"
            )

    @property
    def label(self) -> str:
        """ "<cell> above <cutoff>", with the denominator of a part or ratio, and the level where it is named."""
        base = self.among or self.per
        title = f"{self.cell}{' / (' + ' + '.join(base) + ')' if base else ''} above {self.cutoff:g}"
        return title if self.level is None else f"{title}, by {self.level.name}"

    def nodes(self, tree: Tree) -> slice:
        """The nodes of its level in ``tree``."""
        return tree.leaves if self.level is None else tree.level(self.level.number)

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """1.0 where the unit is above the cutoff, else 0.0; (..., units).

        Args:
            values: (..., cells, nodes) counts, true or estimated.
            cells: the names of the cells.
            tree: of the units.
        """
        count, base = self._parts(values, cells, tree)
        return np.asarray((base > 0) & (apart(count, self.cutoff * base, np.abs(count)) > 0), dtype=np.float64)

    def compared(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """What is compared with the cutoff, (..., units): the count, its part or its ratio; NaN where the sum is 0.

        Args:
            values: (..., cells, nodes) counts, true or estimated.
            cells: the names of the cells.
            tree: of the units.
        """
        count, base = self._parts(values, cells, tree)
        compared: FloatArray = np.full(np.shape(count), np.nan)
        np.divide(count, base, out=compared, where=base > 0)
        return compared

    def _parts(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> tuple[FloatArray, FloatArray]:
        """The count of every unit, and what it is divided by: 1 where it is compared itself."""
        units = values[..., self.nodes(tree)]
        count = units[..., _cell_index(self.cell, cells), :]
        named = self.among or self.per
        base = sum(units[..., _cell_index(cell, cells), :] for cell in named) if named else np.ones_like(count)
        return count, np.asarray(base)


@dataclass(frozen=True, eq=False)
class GroupMean:
    """The mean of something over each leaf's group, so that a group's mean error gets its exact Monte Carlo error,
    correlations between its units included.

    A group without weight has a mean of 0.

    Args:
        of: a cell, whose count is meant, or a rule for the leaves.
        name: what the grouping is called.
        groups: one label per leaf.
        weights: one number of 0 or more per leaf, by which its group's mean is weighted; all alike where there are
            none.

    Examples:
        >>> td.fairness.GroupMean("employed", "region", ("east", "west", "east", "west")).label
        'mean employed by region'
    """

    of: str | Decision
    name: str
    groups: tuple[str, ...] = field(repr=False)
    weights: tuple[float, ...] = field(default=(), repr=False)

    @property
    def label(self) -> str:
        """ "mean <cell or rule> by <name>"."""
        return f"mean {self.of if isinstance(self.of, str) else self.of.label} by {self.name}"

    def nodes(self, tree: Tree) -> slice:
        """The leaves of ``tree``."""
        return tree.leaves

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """(..., leaves): at every leaf the mean over its group.

        Args:
            values: (..., cells, nodes) counts, true or estimated.
            cells: the names of the cells.
            tree: of the units.
        """
        if isinstance(self.of, str):
            leaves = self.at_leaves(values, cells, tree)
        else:
            leaves = self.of.outcome(values, cells, tree)
        return self.means(leaves)[..., self.by.code]

    def at_leaves(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """The values of its cell at the leaves; (..., leaves).

        Args:
            values: (..., cells, nodes) counts, true or estimated.
            cells: the names of the cells.
            tree: of the units.
        """
        return values[..., _cell_index(str(self.of), cells), tree.leaves]

    def means(self, leaves: FloatArray) -> FloatArray:
        """(..., groups): the means of ``leaves`` (..., leaves)."""
        if len(self.groups) != leaves.shape[-1]:
            raise ConfigError(f"{len(self.groups)} group labels for {leaves.shape[-1]} units; give every unit one")
        return self.by.mean(leaves)

    @cached_property
    def by(self) -> Groups:
        """The groups of the leaves."""
        return Groups.of(self.groups, self.weights)
