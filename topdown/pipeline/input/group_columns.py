"""Reads a label and a weight for every leaf from the columns by which a study groups its units."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.config.study_settings import GroupOptions, StudyConfig
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.labels import as_strings, as_text
from topdown.geography.tree import IntArray
from topdown.pipeline.input.unit_reading import input_table
from topdown.studies.report.groupings import SIZE_CLASS, SIZE_OF_PLACE, Grouping, Groupings, by_size
from topdown.tables.readers import table_columns
from topdown.wording import column_names, listed, shown, shown_path

MISSING = "missing"
"""The label of a leaf without a value in the table."""

MOST_GROUPS = 60
"""The largest number of distinct labels of a grouping."""


def read_groupings(
    config: StudyConfig,
    geography: Geography,
    cells: tuple[str, ...],
    leaf_counts: IntArray,
    totals: IntArray | None = None,
) -> Groupings:
    """The size classes of ``leaf_counts`` (leaves x cells), and the groupings of ``study.groups``, in its order.

    ``totals`` (leaves,): given where the cells are answers to queries, which do not add up to the totals; there is then
    a grouping "size of place", too.

    Raises `ConfigError` for a column that the table does not have, one with too many values to group by, a label or an
    order of values that the column does not hold, and weights that are not numbers of 0 or more.
    """
    sizes = by_size(leaf_counts, cells, config.study.size_classes, totals)
    found = {SIZE_CLASS: sizes}
    if totals is not None:
        found[SIZE_OF_PLACE] = Grouping(sizes.labels, order=sizes.order)
    if not config.study.groups:
        return found
    columns = _Columns(config, geography)
    single = {SIZE_CLASS: sizes}
    for group in config.study.groups:
        if len(group.columns) == 1:
            single.setdefault(group.columns[0], columns.grouping(group))
    for group in config.study.groups:
        parts = [
            single[name] if name in single else columns.grouping(GroupOptions(columns=[name])) for name in group.columns
        ]
        grouping = parts[0] if len(parts) > 1 else columns.grouping(group)
        for other in parts[1:]:
            grouping = grouping.crossed(other)
        groups = {label for cell in cells for label in grouping.of(cell)}
        if len(groups) > MOST_GROUPS:
            raise ConfigError(
                f"study.groups: {shown(group.title)} has {len(groups):,} distinct groups, more than "
                f"{MOST_GROUPS}; give columns of a few classes, such as quartiles"
            )
        found[group.title] = columns.weighted(grouping, group.weight)
    return found


class _Columns:
    """The columns of the study's table that its groups name, by leaf."""

    def __init__(self, config: StudyConfig, geography: Geography) -> None:
        options = config.geography
        levels = options.levels or [config.input.geoid or ""]
        known = table_columns(config.input_path, config.input.form)
        wanted = list(dict.fromkeys(_named(config.study.groups)))
        for name in wanted:
            if name not in known:
                raise ConfigError(
                    f"study.groups names {shown(name)}; {shown_path(config.input_path)} has {column_names(known)}"
                )
        # Where units are identified by their path, the identifiers join the levels below the root.
        path = [c for c in levels[1:] if c in known] if options.separator is not None else levels[-1:]
        table = input_table(config, [*path, *wanted, *config.input.chosen_by])
        parts = [as_strings(table[name], f"column {shown(name)}") for name in path]
        joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, options.separator)
        self._table = table
        self._leaf = geography.index_of(joined) - geography.tree.leaves.start
        self._leaves = geography.n_leaves

    def grouping(self, group: GroupOptions) -> Grouping:
        """The grouping by a single column."""
        (name,) = group.columns
        values = as_text(self._table[name], f"study.groups: column {shown(name)}").to_pylist()
        there = list(dict.fromkeys(MISSING if value is None else value for value in values))
        if len(there) > MOST_GROUPS:
            raise ConfigError(
                f"study.groups: column {shown(name)} has {len(there):,} distinct values, more than {MOST_GROUPS}; "
                "give a column of a few classes, such as quartiles"
            )
        self._require(name, "labels", [value for value in group.labels if value not in there], there)
        said = {value: group.labels.get(value, value) for value in there}
        order = [said.get(value, value) for value in group.order]
        self._require(name, "order", [one for one in order if one not in said.values()], there)
        labels = [said.get(MISSING, MISSING)] * self._leaves
        for leaf, value in zip(self._leaf.tolist(), values, strict=True):
            if leaf >= 0:
                labels[leaf] = said[MISSING if value is None else value]
        # Not in the order of their first rows, so that the order of the table reveals nothing.
        rest = [said[value] for value in sorted(there, key=_by_number_and_letter)]
        return Grouping(tuple(labels), order=tuple(dict.fromkeys([*order, *rest])))

    def weighted(self, grouping: Grouping, name: str | None) -> Grouping:
        """``grouping`` with the weights of the column ``name``; a leaf that is not in the table has no weight."""
        if name is None:
            return grouping
        try:
            given = pc.cast(self._table[name], pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowException:
            given = np.array([np.nan])
        if not (np.isfinite(given) & (given >= 0)).all():
            raise ConfigError(
                f"study.groups: the weights in column {shown(name)} are not all numbers of 0 or more; give a "
                "column of such numbers, such as how many people of a kind live in each unit"
            )
        weights = np.zeros(self._leaves)
        weights[self._leaf[self._leaf >= 0]] = given[self._leaf >= 0]
        return Grouping(grouping.labels, grouping.by_cell, grouping.order, tuple(weights.tolist()), name)

    @staticmethod
    def _require(column: str, what: str, unknown: list[str], there: list[str]) -> None:
        if unknown:
            raise ConfigError(
                f"study.groups: {what} of column {shown(column)} names {listed(unknown)}, which is none of its values; "
                f"they are {listed(there)}"
            )


def _by_number_and_letter(text: str) -> tuple[bool, list[tuple[bool, int, str]]]:
    """A key that sorts "2" before "10", and `MISSING` last."""
    parts = [part for part in re.split(r"([0-9]+)", text) if part]
    return text == MISSING, [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts]


def _named(groups: Iterable[GroupOptions]) -> Iterable[str]:
    """The columns of the table that ``groups`` name."""
    for group in groups:
        yield from (name for name in group.columns if name != SIZE_CLASS)
        if group.weight is not None:
            yield group.weight
