"""The rows of a release of several queries: cells that have records, and no others, as they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.tables.tidy import levels_of, numbered
from topdown.wording import shown
from topdown.workload import Query, Schema

_ROWS_AT_ONCE = 1 << 18


class Sparse(Protocol):
    """Histograms as the cells that have records, one entry each.

    ``starts`` (nodes + 1,): the number of every node's first entry.
    """

    @property
    def geography(self) -> Geography: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def starts(self) -> IntArray: ...
    def entries(self, numbers: slice) -> tuple[IntArray, IntArray]:
        """The cells and counts of some entries."""


def row_columns(schema: Schema) -> list[str]:
    """The columns of rows of cells that have records: the unit, the attributes, the count.

    Raises `ConfigError` for an attribute that is called as one of the others.
    """
    for name in schema.names:
        if name in ("level", "count"):
            raise ConfigError(
                f"attribute {shown(name)} is called as a column of the release, whose rows are geoid, level, the "
                "attributes and count; give it another name"
            )
    return ["geoid", "level", *schema.names, "count"]


def row_batches(release: Sparse, nodes: Sequence[slice] | None = None) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, one column per attribute, count`` of ``nodes``, by default of all, node by node.

    Raises `ConfigError` as `row_columns` does.
    """
    row_columns(release.schema)
    starts, none = release.starts, True
    for part in [slice(0, release.geography.n_nodes)] if nodes is None else nodes:
        for begin in range(int(starts[part.start]), int(starts[part.stop]), _ROWS_AT_ONCE):
            none = False
            yield _batch(release, slice(begin, min(begin + _ROWS_AT_ONCE, int(starts[part.stop]))))
    if none:
        yield _batch(release, slice(0, 0))


def answers_of_rows(release: Sparse, nodes: slice, asked: Query) -> IntArray:
    """The answers to ``asked``, of a schema with the same attributes, at ``nodes``; (nodes x answers)."""
    starts = release.starts
    cells, counts = release.entries(slice(int(starts[nodes.start]), int(starts[nodes.stop])))
    rows = np.repeat(np.arange(nodes.stop - nodes.start), np.diff(starts[nodes.start : nodes.stop + 1]))
    return np.asarray(asked.sparse_answers(rows, cells, counts, nodes.stop - nodes.start))


def _batch(release: Sparse, entries: slice) -> pa.RecordBatch:
    """The rows of some entries."""
    geography, schema = release.geography, release.schema
    first = int(np.searchsorted(release.starts, entries.start, side="right")) - 1
    last = max(first, int(np.searchsorted(release.starts, entries.stop, side="left")) - 1)
    bounds: IntArray = np.clip(release.starts[first : last + 2], entries.start, entries.stop)
    sizes = bounds[1:] - bounds[:-1]
    if entries.start == entries.stop:
        first, last, sizes = 0, 0, np.zeros(1, np.int64)
    place = np.repeat(np.arange(last - first + 1, dtype=np.int32), sizes)
    level = levels_of(geography, slice(first, last + 1))
    columns = {
        "geoid": numbered(geography.identifiers.slice(first, last - first + 1), place),
        "level": pa.DictionaryArray.from_arrays(pa.array(level[place]), pa.array(geography.levels)),
    }
    cells, counts = release.entries(entries)
    places = np.unravel_index(cells, schema.shape)
    for attribute, category in zip(schema.attributes, places, strict=True):
        columns[attribute.name] = pa.DictionaryArray.from_arrays(
            pa.array(category.astype(np.int32)), pa.array(list(attribute.categories))
        )
    columns["count"] = pa.array(counts)
    return pa.RecordBatch.from_pydict(columns)
