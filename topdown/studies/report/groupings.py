"""The groups of leaves whose errors are compared, and the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from topdown.geography.tree import IntArray
from topdown.studies import fairness
from topdown.studies.decisions.rules import Decision, GroupMean
from topdown.studies.errors_table import ErrorTable
from topdown.studies.fairness import SIZE_CLASS


@dataclass(frozen=True)
class Grouping:
    """A label for every leaf.

    ``labels``: those for decisions, and for counts where ``by_cell`` has none of the cell. ``order``: labels in the
    order in which they are shown; others follow as they first appear. ``weights``: by which a group's means are
    weighted, all alike where there are none; ``weighted_by`` says what they are.
    """

    labels: tuple[str, ...] = field(repr=False)
    by_cell: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    order: tuple[str, ...] = ()
    weights: tuple[float, ...] = field(default=(), repr=False)
    weighted_by: str = ""

    def of(self, cell: str) -> tuple[str, ...]:
        """The labels for the counts of ``cell``."""
        return self.by_cell.get(cell, self.labels)

    def in_order(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of ``frame`` by their column ``group``; ``order`` keeps it for the charts."""
        positions = self._positions()
        ranked = frame.assign(order=[positions[group] for group in frame["group"]])
        return ranked.sort_values("order", kind="stable", ignore_index=True)

    def crossed(self, other: Grouping) -> Grouping:
        """The grouping by this and ``other`` together, in the order of this and then of the other."""

        def both(one: Sequence[str], two: Sequence[str]) -> tuple[str, ...]:
            return tuple(f"{a} × {b}" for a, b in zip(one, two, strict=True))

        cells = {*self.by_cell, *other.by_cell}
        return Grouping(
            both(self.labels, other.labels),
            {cell: both(self.of(cell), other.of(cell)) for cell in cells},
            tuple(f"{a} × {b}" for a in self._positions() for b in other._positions()),
            self.weights or other.weights,
            self.weighted_by or other.weighted_by,
        )

    def _positions(self) -> dict[str, int]:
        everywhere = [*self.order, *self.labels, *(label for labels in self.by_cell.values() for label in labels)]
        return {label: k for k, label in enumerate(dict.fromkeys(everywhere))}


__all__ = ["SIZE_CLASS", "SIZE_OF_PLACE", "Grouping", "Groupings", "by_size", "group_means", "grouped_decisions"]

Groupings = Mapping[str, Grouping]
"""Name -> grouping; the first is `SIZE_CLASS`."""


SIZE_OF_PLACE = "size of place"
"""The grouping that every study of queries has: by the total of the unit."""


def by_size(leaves: IntArray, cells: Sequence[str], edges: Sequence[float], totals: IntArray | None = None) -> Grouping:
    """The size classes of ``leaves`` (leaves x cells): by each cell's count, and by ``totals`` (leaves,), the sum over
    cells where they are left out."""
    totals_of = leaves.sum(axis=1) if totals is None else totals
    labels = tuple(fairness.size_classes(totals_of, edges))
    by_cell = {cell: tuple(fairness.size_classes(leaves[:, k], edges)) for k, cell in enumerate(cells)}
    return Grouping(labels, by_cell, order=tuple(fairness.size_class_names(edges)))


def group_means(groupings: Groupings, cells: Sequence[str], funds: Sequence[Decision]) -> list[GroupMean]:
    """The group means that `simulate` follows so that every group's bias has its exact simulation error: of each cell's
    count, and of the payments of the rules ``funds``.
    """
    found: list[GroupMean] = []
    for name, grouping in groupings.items():
        found += [GroupMean(cell, name, grouping.of(cell), grouping.weights) for cell in cells]
        found += [GroupMean(rule, name, grouping.labels, grouping.weights) for rule in funds]
    return found


def grouped_decisions(
    table: ErrorTable, method: str, rule: str, groupings: Groupings, scale: float = 1.0
) -> list[pd.DataFrame]:
    """Errors of ``rule``'s decisions by group, a frame per grouping; none for decisions above the leaves."""
    if rule in table.rule_areas or table.rule_nodes[rule] != table.geography.tree.leaves:
        return []
    frames = []
    for name, grouping in groupings.items():
        frame = fairness.decisions_by_group(
            table, method, rule, grouping.labels, name=name, weights=grouping.weights, scale=scale
        )
        frames.append(grouping.in_order(frame).assign(grouping=name, method=method))
    return frames
