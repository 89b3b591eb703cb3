"""Releases of histograms: whole, non-negative, consistent, kept as the cells that have records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.errors import ProjectionError, require_known
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.measurements.measurements import Measurements
from topdown.noise import SecureSource, Source
from topdown.projection.certificate import Certificate, require_certificate
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import method_named
from topdown.projection.passes import Order
from topdown.projection.project import WEIGHTS
from topdown.projection.rounding_method import rounding_named
from topdown.projection.whole import Histograms, histograms_down, require_whole
from topdown.release.release import Release
from topdown.release.sparse_rows import answers_of_rows, row_batches
from topdown.tables.tidy import to_arrow, to_frame
from topdown.wording import shown
from topdown.workload import Query, Schema
from topdown.workload.answer_tables import answer_columns


@dataclass(frozen=True, eq=False)
class HistogramRelease:
    """Histograms fit to be published: whole, non-negative, every family adding up in every cell.

    ``starts`` (nodes + 1,), ``cells`` and ``counts`` (entries,) int64: the node k has ``counts[starts[k]:starts[k+1]]``
    records in the cells beside, in rising order; in all others none. ``schema``: what a cell's number means.
    ``method``: the projection that they come from. ``certificate``: of the programs that they were rounded from, None
    where the release was read from files.
    ``fit_for_release``: whether noise and rounding were drawn exactly, from operating-system entropy. Raises
    `ProjectionError` naming the node where this does not hold.
    """

    geography: Geography
    schema: Schema
    starts: IntArray = field(repr=False)
    cells: IntArray = field(repr=False)
    counts: IntArray = field(repr=False)
    method: str
    certificate: Certificate | None
    fit_for_release: bool

    @classmethod
    def of_release(cls, release: Release, schema: Schema) -> HistogramRelease:
        """The same counts as a release of the cells; ``schema``: what these mean."""
        nodes, cells = np.nonzero(release.values)
        starts = np.searchsorted(nodes, np.arange(release.geography.n_nodes + 1))
        counts = release.values[nodes, cells]
        return cls(release.geography, schema, starts, cells, counts, release.method, None, release.fit_for_release)

    def __post_init__(self) -> None:
        nodes = self._nodes()
        wrong = np.flatnonzero((self.counts <= 0) | (self.cells < 0) | (self.cells >= self.schema.n_cells))
        if len(wrong):
            raise ProjectionError(
                f"{self.described(int(nodes[wrong[0]]), int(self.cells[wrong[0]]))}: {self.counts[wrong[0]]} records; "
                "a release has at least one in each of its cells, which are of the schema"
            )
        tree = self.geography.tree
        for families in tree.families_down():
            mine = (nodes >= families.parents.start) & (nodes < families.parents.stop)
            below = (nodes >= families.children.start) & (nodes < families.children.stop)
            keys = (
                np.concatenate([nodes[mine], tree.parent[nodes[below]]]),
                np.concatenate([self.cells[mine], self.cells[below]]),
            )
            owed = np.concatenate([self.counts[mine], -self.counts[below]])
            order = np.lexsort((keys[1], keys[0]))
            begins = np.flatnonzero(
                np.diff(keys[0][order], prepend=-1).astype(bool) | np.diff(keys[1][order], prepend=-1).astype(bool)
            )
            gap = np.add.reduceat(owed[order], begins) if len(begins) else np.zeros(0, np.int64)
            if gap.any():
                place = order[begins[int(np.flatnonzero(gap)[0])]]
                raise ProjectionError(
                    f"{self.described(int(keys[0][place]), int(keys[1][place]))}: its children add up to "
                    f"{-int(gap[gap != 0][0])} more than it has"
                )

    def described(self, node: int, cell: int) -> str:
        """A node and a cell in words, for messages."""
        if not 0 <= cell < self.schema.n_cells:
            return f"{self.geography.describe(node)}, cell number {cell}"
        places = np.unravel_index(cell, self.schema.shape)
        name = "_".join(a.categories[int(k)] for a, k in zip(self.schema.attributes, places, strict=True))
        return f"{self.geography.describe(node)}, cell {shown(name)}"

    def __repr__(self) -> str:
        size = f"{self.geography.n_nodes:,} nodes x {self.schema.n_cells:,} cells, {len(self.counts):,} with records"
        return f"HistogramRelease({size}, {self.method})"

    def _nodes(self) -> IntArray:
        """The node of every entry."""
        return np.repeat(np.arange(self.geography.n_nodes), np.diff(self.starts))

    def answers(self, level: str, query: str) -> IntArray:
        """The answers to any query at every node of ``level``; (nodes of the level x answers).

        Raises `GeographyError` for an unknown level, `ConfigError` with the nearest known name for an unknown query.
        """
        return self.answers_of(self.geography.level_slice(level), Query.parse(query, self.schema))

    def answers_of(self, nodes: slice, asked: Query) -> IntArray:
        """The answers to ``asked``, of a schema with the same attributes, at ``nodes``; (nodes x answers)."""
        return answers_of_rows(self, nodes, asked)

    def table(self, level: str, query: str) -> pd.DataFrame:
        """The answers to a query at a level as a wide table: ``geoid, name`` and a column for every answer.

        ``query``: also a table of the redistricting file or one of its fields ("P1", "P0010003"), where the schema has
        what it is about. Raises as `answers` does.
        """
        nodes = self.geography.level_slice(level)
        return table_frame(self.geography, nodes, query, self.schema, lambda asked: self.answers_of(nodes, asked))

    def dense(self, exact: npt.NDArray[np.bool_]) -> Release:
        """The same counts as a table of nodes x cells; ``exact`` (nodes x cells): which are published exactly."""
        values = np.zeros((self.schema.n_cells, self.geography.n_nodes), np.int64)
        values[self.cells, self._nodes()] = self.counts
        return Release(self.geography, self.schema.cells(), values.T, exact, self.method, self.fit_for_release)

    def batches(self, nodes: Sequence[slice] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows ``geoid, level, one column per attribute, count`` of every cell that has records, node by node.

        ``nodes``: those that are asked for, by default all. Raises `ConfigError` as `row_columns` does.
        """
        return row_batches(self, nodes)

    def entries(self, numbers: slice) -> tuple[IntArray, IntArray]:
        """The cells and counts of some entries, which are numbered from the first of the root."""
        return self.cells[numbers], self.counts[numbers]

    def to_arrow(self) -> pa.Table:
        """The rows of `batches` as one Arrow table."""
        return to_arrow(self.batches())

    def to_frame(self) -> pd.DataFrame:
        """The rows of `batches` as one table."""
        return to_frame(self.batches())


def table_frame(
    geography: Geography, nodes: slice, query: str, schema: Schema, answers_of: Callable[[Query], IntArray]
) -> pd.DataFrame:
    """A query's answers at ``nodes``, or a table of the redistricting file, as a wide table: ``geoid, name`` and a
    column for every answer. ``answers_of``: gives those (nodes x answers) to a query. Raises `ConfigError`.
    """
    columns = answer_columns(query, schema)
    known = {asked: answers_of(asked) for asked in dict.fromkeys(column.query for column in columns)}
    names = geography.names
    count = nodes.stop - nodes.start
    units = {
        "geoid": geography.identifiers.slice(nodes.start, count).to_pandas(),
        "name": pa.nulls(count, pa.string()).to_pandas()
        if names is None
        else names.slice(nodes.start, count).to_pandas(),
    }
    values = np.stack([known[column.query][:, column.answer] for column in columns], axis=1)
    return pd.concat([pd.DataFrame(units), pd.DataFrame(values, columns=[c.name for c in columns])], axis=1)


def project_whole(
    measurements: Measurements,
    method: str = "gls-top-down",
    *,
    rounding: str = "nearest",
    weights: str = "variance",
    limits: AnswerLimits | None = None,
    source: Source | None = None,
    workers: int | None = None,
    upward: str | None = None,
    order: Order | None = None,
) -> HistogramRelease:
    """Whole, non-negative, consistent histograms from the root down, from what was measured of any queries.

    Every family is projected beneath its parent's whole histogram and then rounded: its cells to their floor or
    ceiling, and so the child's total and its sums along a chain of nested queries in which every exact query is.
    ``method``: "gls-top-down" (with what was measured below each node) or "top-down" (with what was measured at it).
    ``rounding``: "nearest" (least sum of squares; ties by ``source``) or "unbiased" (random, with the mean of the
    fractional solution). ``limits``: of queries' answers by node, kept exactly. ``source``: operating-system entropy
    where it is left out. ``workers``: threads, by default one per processor; the release does not depend on it.
    ``upward``: "from LEVEL", where the upward pass of "gls-top-down" starts: what is measured below that level shares
    out its counts and tells nothing of them; from the leaves where it is left out. ``order``: the names of the queries
    that are settled first, as `project` takes them.

    Raises `ConfigError` for an unknown name or a method that has no solver of families, `ProjectionError` naming the
    node where exact answers contradict each other or are not whole, or a certificate does not hold.
    """
    chosen = method_named(method)
    rule = rounding_named(rounding)
    require_known(weights, WEIGHTS, "weights")
    source = SecureSource() if source is None else source
    require_whole(measurements)
    whole = histograms_down(measurements, chosen, weights, limits, upward, order, whole=(rule, source), workers=workers)
    return release_of(measurements, method, whole, source)


def release_of(measurements: Measurements, method: str, whole: Histograms, source: Source) -> HistogramRelease:
    """Whole histograms that were made by ``method`` and rounded by ``source``, as a release.

    Raises `ProjectionError` where their certificate does not hold.
    """
    histograms, certificate, _ = whole
    require_certificate(certificate, measurements.geography, method, "tree")
    return HistogramRelease(
        measurements.geography,
        measurements.schema,
        np.concatenate([[0], np.cumsum([len(one.cells) for one in histograms])]),
        np.concatenate([one.cells for one in histograms]),
        np.concatenate([np.rint(one.values).astype(np.int64) for one in histograms]),
        method,
        certificate,
        measurements.fit_for_release and source.fit_for_release,
    )
