"""Measurements: noisy values with their variances. Whatever is computed from them alone stays protected.

All later steps depend on this module and never on the confidential counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.errors import ConfigError, DataError, GeographyError, require_known
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.geography.unit_sums import published
from topdown.machine.memory import gibibytes, most_at_once
from topdown.measurements.filed_values import FiledValues
from topdown.noise.exact_numbers import LARGEST_WHOLE, rounds_whole_numbers
from topdown.privacy.plan import Plan
from topdown.tables.tidy import ArrowTable, tidy_batches, to_arrow, to_frame, with_plain_strings
from topdown.wording import listed, shown
from topdown.workload import DETAILED, Query, Schema


class Measurement(NamedTuple):
    """One query at one level: ``values`` and ``variance``, both (nodes of the level x answers)."""

    level: str
    query: str
    values: npt.NDArray[Any]
    variance: FloatArray


class Answers(NamedTuple):
    """The measured answers to a query at the nodes of a level: ``values`` (nodes x answers), which may be in files, and
    the ``variance`` (nodes,) of each answer of a node, 0 for exact ones and inf where a node was not measured.
    """

    values: Any
    variance: FloatArray


@dataclass(frozen=True, eq=False)
class Measurements(ArrowTable):
    """Noisy values with their variances, keyed by (level, query).

    Args:
        geography: the units.
        cells: the names of the cells, in order.
        values: (nodes x cells) the answers to the detailed query, all levels one after another; whole numbers where the
            mechanism gives them; 0 where not measured.
        node_variance: their variances, (nodes,) or (nodes x cells); 0 for an exact value (an invariant), inf for a node
            that was not measured.
        plan: the plan under which they were drawn, None when they came from elsewhere.
        fit_for_release: whether they were drawn exactly, from operating-system entropy.
        attributes: the schema of the cells; None where they are one attribute.
        others: what was measured of other queries, by level and query.
        mechanism: which noise was drawn with these variances, where it is known without a plan.
        drawn_on: the units for which the plan's noise was drawn, where these are not all of them.
        not_kept: the lower levels whose measurements a very large release in parts did not keep; all levels of a
            release on supports (`topdown.projection.histograms.support_descent`), which has none.
        noise_names: by which names the noise in them is known, as a release states them; empty in memory.

    Examples:
        >>> by_level = [8.0, 4.0, 2.0]
        >>> mine = td.Measurements.from_arrays(geography, [200, 170, 35, 45, 130, 9, 20], variance=by_level)
        >>> mine.values.shape
        (7, 1)
        >>> measurements.node_variance[:3].round(2)
        array([49.83, 22.06, 22.06])
    """

    geography: Geography
    cells: Sequence[str]
    values: npt.NDArray[Any] = field(repr=False)
    node_variance: FloatArray = field(repr=False)
    plan: Plan | None = None
    fit_for_release: bool = False
    attributes: Schema | None = None
    others: Mapping[tuple[str, str], Answers] = field(default_factory=dict, repr=False)
    mechanism: str | None = None
    drawn_on: Geography | None = None
    not_kept: tuple[str, ...] = ()
    noise_names: frozenset[str] = frozenset()

    @property
    def schema(self) -> Schema:
        """The schema of the cells."""
        return Schema.of_cells(self.cells) if self.attributes is None else self.attributes

    @property
    def published(self) -> Geography:
        """The units that are published: those measured, unless these are a spine's."""
        return published(self.geography)

    def blocks(self) -> Iterator[slice]:
        """The cells that can have records, in blocks as `Tree.blocks` has them; an impossible cell ends a block.

        An impossible cell is 0 at every node whatever was measured of it, so nothing is solved for it.
        """
        closed = self.schema.impossible_cells()
        for block in self.geography.tree.blocks(len(self.cells)):
            inside = closed[(closed >= block.start) & (closed < block.stop)].tolist()
            for last, stop in itertools.pairwise([block.start - 1, *inside, block.stop]):
                if last + 1 < stop:
                    yield slice(last + 1, stop)

    @classmethod
    def from_answers(
        cls, geography: Geography, schema: Schema, answers: Mapping[tuple[str, str], tuple[Any, Any]]
    ) -> Measurements:
        """Measurements of any queries that were made elsewhere.

        Levels and queries may be missing. Raises `DataError` naming level, query and node as `from_arrays` does,
        `ConfigError` for an unknown level or query, for one that is given twice, and for two answers with one name.

        Args:
            geography: the units.
            schema: the cells, of which the queries are.
            answers: (level, query) to values (nodes of the level x answers) and their variance: one number, or one per
                node; 0 = exact, inf = not measured.
        """
        found: dict[tuple[str, str], Answers] = {}
        for key, (values, variance) in answers.items():
            level, text = _level_and_query(key)
            require_known(level, geography.levels, "level")
            query = Query.parse(text, schema)
            query.require_labels()
            if (level, query.name) in found:
                raise ConfigError(f"level {shown(level)}: query {shown(query.name)} is given twice; give it once")
            found[level, query.name] = _answers(geography, level, query, values, variance)
        if not any(np.isfinite(one.variance).any() for one in found.values()):
            raise DataError("no node was measured: give at least one answer with a finite variance")
        detailed = {level: one for (level, name), one in found.items() if name == DETAILED}
        kind = np.result_type(np.int64, *(one.values.dtype for one in detailed.values()))
        rectangle = (np.zeros if detailed else none_measured)((schema.n_cells, geography.n_nodes), kind).T
        spread = np.full(geography.n_nodes, np.inf)
        for level, one in detailed.items():
            rectangle[geography.level_slice(level)], spread[geography.level_slice(level)] = one
        others = {key: one for key, one in found.items() if key[1] != DETAILED}
        return cls(geography, schema.cells(), rectangle, spread, attributes=schema, others=others)

    @classmethod
    def from_arrays(
        cls, geography: Geography, values: npt.ArrayLike, variance: Any, *, cells: Sequence[str] | None = None
    ) -> Measurements:
        """Measurements from noisy numbers that were made elsewhere.

        Args:
            geography: the units.
            values: (nodes,) or (nodes x cells) in the geography's order; NaN only where not measured.
            variance: one number, one per level (a sequence of L, or a mapping from level to number), one per node, or
                (nodes x cells); inf = not measured, 0 = exact.
            cells: the names of the cells; by default "count" for one, else "cell 0", "cell 1", ...

        Raises `DataError` naming the node for a value that is not finite or beyond 2^53, a variance that is negative or
        not a number, a shape that does not fit.
        """
        if np.ma.is_masked(values) or np.ma.is_masked(variance):  # as an array, what the mask hides would be read
            raise DataError("values or variances are masked; give numbers, and variance inf where nothing was measured")
        array = _array(values, "the measurements")
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or len(array) != geography.n_nodes or not array.shape[1]:
            raise DataError(
                f"values have shape {np.shape(values)}; give ({geography.n_nodes},) or ({geography.n_nodes}, cells)"
            )
        if array.dtype.kind not in "iuf":
            raise DataError(f"values have dtype {array.dtype}; give whole or floating-point numbers")
        titles = _titles(cells, array.shape[1])
        spread = _node_variance(geography, variance, array.shape)
        array = np.where(_as_rows(np.isinf(spread), array), np.zeros((), array.dtype), array)
        # In the array's own type: as a float, 2^53 + 1 would equal 2^53.
        limit = float(LARGEST_WHOLE) if array.dtype.kind == "f" else LARGEST_WHOLE
        wrong = np.argwhere(~((array <= limit) & (array >= -limit)))
        if len(wrong):
            node, cell = (int(k) for k in wrong[0])
            raise DataError(
                f"{geography.describe(node)}, cell {shown(titles[cell])}: value {array[node, cell]} is not a finite "
                "number of at most 2^53; correct it, or give variance inf if it was not measured"
            )
        return cls(geography, titles, np.asfortranarray(array), spread)

    @property
    def variance(self) -> FloatArray:
        """Variance of every value; (nodes x cells), a read-only view."""
        return np.broadcast_to(_as_rows(self.node_variance, self.values), self.values.shape)

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The (level, query) pairs that were measured, level by level."""
        return tuple((level, query.name) for level in self.geography.levels for query in self.at(level))

    def at(self, level: str) -> dict[Query, Answers]:
        """What was measured at ``level``: the answers by query. Those of the detailed query have their variances node
        by node.
        """
        nodes = self.geography.level_slice(level)
        found = {Query.parse(query, self.schema): one for (where, query), one in self.others.items() if where == level}
        if np.isfinite(self.node_variance[nodes]).any():
            found[Query.parse(DETAILED, self.schema)] = Answers(self.values[nodes], self.node_variance[nodes])
        return found

    def top(self, level: str) -> Measurements:
        """The measurements of several queries from the root down to ``level``."""
        geography, whole = self.geography.top(level), self.drawn_on or self.geography
        others = {key: one for key, one in self.others.items() if key[0] in geography.levels}
        nodes = geography.n_nodes
        return replace(
            self,
            geography=geography,
            values=self.values[:nodes],
            node_variance=self.node_variance[:nodes],
            others=others,
            drawn_on=whole,
            not_kept=(),
        )

    @property
    def none_kept(self) -> bool:
        """Whether the measurements of no level were kept."""
        return len(self.not_kept) == len(self.geography.levels)

    @property
    def kept(self) -> Measurements:
        """The measurements of the levels that were kept; these themselves, where none or every one was left out."""
        if not self.not_kept or self.none_kept:
            return self
        return self.top(self.geography.levels[-len(self.not_kept) - 1])

    def reason_against(self, levels: Iterable[str]) -> str | None:
        """Why the errors of answers at published ``levels`` are not known; None where their measurements were kept, on
        a spine those of nodes that they are sums of."""
        known, asked = self.kept.published.levels if self.not_kept else self.published.levels, {*levels}
        known = () if self.none_kept else known
        missing = [level for level in self.published.levels[len(known) :] if level in asked]
        return f"the release is so large that its measurements of {listed(missing)} were not kept" if missing else None

    def in_memory(self) -> Measurements:
        """The same measurements with all values in memory. Raises `DataError` where they take too much."""
        filed = [one.values for one in self.others.values() if isinstance(one.values, FiledValues)]
        size, most = sum(8 * math.prod(values.shape) for values in filed), most_at_once()
        if most is not None and size > most:
            raise DataError(
                f"the measurements take {gibibytes(size)} of memory, more than the {gibibytes(most)} that can be given "
                "to them here; use a larger machine"
            )
        others = {key: Answers(np.asarray(one.values), one.variance) for key, one in self.others.items()}
        return replace(self, others=others)

    def __getitem__(self, key: tuple[str, str]) -> Measurement:
        level, text = _level_and_query(key)
        try:
            query = Query.parse(text, self.schema)
            one = self.at(level)[query]
        except (KeyError, ConfigError, GeographyError):
            raise KeyError(f"no query {shown(text)} at level {shown(level)}; there is {listed(self.keys)}") from None
        variance = np.broadcast_to(_as_rows(one.variance, one.values), one.values.shape)
        return Measurement(level, query.name, np.asarray(one.values), variance)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The tidy table ``geoid, level, query, cell, value, variance`` of what was measured, in Arrow batches.

        ``cell``: the answer's name, its categories joined. Where several queries were measured every batch has a
        dictionary of names of its own.
        """
        measured = np.isfinite(self.node_variance).reshape(self.geography.n_nodes, -1)
        rows: npt.NDArray[np.bool_] = np.asarray(measured.any(axis=1))
        if not self.others:
            columns = {"query": DETAILED, "value": lambda nodes: _wide(self.values[nodes]), "variance": self.variance}
            yield from tidy_batches(self.geography, self.cells, columns, rows=rows)
            return
        for level in self.geography.levels:
            for query, one in self.at(level).items():
                labels = self.cells if query.name == DETAILED else query.labels()
                yield from self._level_batches(level, query.name, labels, one)

    def _level_batches(self, level: str, query: str, labels: Sequence[str], one: Answers) -> Iterator[pa.RecordBatch]:
        nodes = self.geography.level_slice(level)
        spread = np.broadcast_to(_as_rows(one.variance, one.values), one.values.shape)
        rows = np.zeros(self.geography.n_nodes, bool)
        rows[nodes] = np.isfinite(spread).any(axis=1)

        def of_level(values: npt.NDArray[Any]) -> Any:
            return lambda chosen: _wide(values[np.arange(self.geography.n_nodes)[chosen] - nodes.start])

        columns = {"query": query, "value": of_level(one.values), "variance": of_level(spread)}
        return tidy_batches(self.geography, labels, columns, rows=rows, numbered_texts=True)

    def to_frame(self) -> pd.DataFrame:
        """The tidy table ``geoid, level, query, cell, value, variance`` of what was measured."""
        return to_frame(self._plain_batches())

    def to_arrow(self) -> pa.Table:
        """The tidy table ``geoid, level, query, cell, value, variance`` of what was measured."""
        return to_arrow(self._plain_batches())

    def _plain_batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, with text in place of each batch's own dictionary."""
        return map(with_plain_strings, self.batches()) if self.others else self.batches()


def nothing_kept(geography: Geography, schema: Schema, plan: Plan | None, *, fit_for_release: bool) -> Measurements:
    """What stands for the measurements of a release of which none are published."""
    nothing = none_measured((schema.n_cells, geography.n_nodes), np.int64).T
    unknown = np.full(geography.n_nodes, np.inf)
    return Measurements(
        geography,
        schema.cells(),
        nothing,
        unknown,
        plan,
        fit_for_release,
        attributes=schema,
        not_kept=geography.levels,
    )


def none_measured(shape: tuple[int, int], kind: Any) -> npt.NDArray[Any]:
    """The table (cells x nodes) of `Measurements` where no cells were measured: a read-only view of a single 0."""
    return np.broadcast_to(np.zeros((), kind), shape)


def _level_and_query(key: tuple[str, str]) -> tuple[str, str]:
    """``key``, which must be the names of a level and of a query. Raises `ConfigError`."""
    if not (isinstance(key, tuple) and len(key) == 2):
        raise ConfigError(f"{shown(key)}: name a level and a query, such as ('county', 'total')")
    return key


def _array(values: Any, what: str) -> npt.NDArray[Any]:
    """``values`` as an array. Raises `DataError` for rows of different lengths, and where digits would be lost."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{what}: the rows of values have different lengths; give every node its own") from None
    if rounds_whole_numbers(values, array):
        raise DataError(f"{what}: values beyond 2^53 are mixed with floats, which cannot hold them; correct them")
    return array


def _answers(geography: Geography, level: str, query: Query, values: Any, variance: Any) -> Answers:
    """One entry of `Measurements.from_answers`, checked."""
    nodes = geography.level_slice(level)
    shape = (nodes.stop - nodes.start, query.n_answers)
    what = f"level {shown(level)}, query {shown(query.name)}"
    array = _array(values, what)
    array = array[:, None] if array.ndim == 1 and shape[1] == 1 else array
    if array.shape != shape or array.dtype.kind not in "iuf":
        raise DataError(f"{what}: values have shape {np.shape(values)} and dtype {array.dtype}; give numbers {shape}")
    spread = np.asarray(variance, dtype=np.float64)
    if spread.shape == shape and (spread == spread[:, :1]).all():  # as `Measurement.variance` has them
        spread = spread[:, 0]
    if spread.shape not in ((), (shape[0],), (shape[0], 1)):
        raise DataError(f"{what}: variance has shape {spread.shape}; give one number, or one per node ({shape[0]},)")
    spread = np.array(np.broadcast_to(spread.reshape(-1) if spread.ndim else spread, shape[:1]))
    wrong = np.flatnonzero(~(spread >= 0))
    if len(wrong):
        raise DataError(
            f"{geography.describe(nodes.start + int(wrong[0]))}, query {shown(query.name)}: variance "
            f"{spread[wrong[0]]} is not a number from 0 to inf; 0 means exact, inf not measured"
        )
    array = np.where(np.isinf(spread)[:, None], np.zeros((), array.dtype), array)
    limit = float(LARGEST_WHOLE) if array.dtype.kind == "f" else LARGEST_WHOLE
    beyond = np.argwhere(~((array <= limit) & (array >= -limit)))
    if len(beyond):
        node, answer = (int(k) for k in beyond[0])
        raise DataError(
            f"{geography.describe(nodes.start + node)}, query {shown(query.name)}, {shown(query.labels()[answer])}: "
            f"value {array[node, answer]} is not a finite number of at most 2^53; correct it, or give variance inf"
        )
    return Answers(array, spread)


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whole numbers in 64 bits, as tables have them."""
    return values.astype(np.int64, copy=False) if values.dtype.kind in "iu" else values


def _titles(cells: Sequence[str] | None, count: int) -> tuple[str, ...]:
    numbered = ("count",) if count == 1 else tuple(f"cell {k}" for k in range(count))
    titles = numbered if cells is None else tuple(cells)
    if len(titles) != count or len(set(titles)) != count:
        raise DataError(f"{count} columns of values and the cells {list(titles)}; give every column its own name")
    return titles


def _as_rows(per_node: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return per_node[:, None] if per_node.ndim < like.ndim else per_node


def _node_variance(geography: Geography, variance: Any, shape: tuple[int, ...]) -> FloatArray:
    """``variance`` in any of the accepted forms as (nodes,) or (nodes x cells)."""
    if isinstance(variance, Mapping):
        unnamed = [level for level in geography.levels if level not in variance]
        unknown = [level for level in variance if level not in geography.levels]
        if unnamed or unknown:
            raise DataError(
                f"variance names {listed(variance)}, and the levels are {listed(geography.levels)}; "
                "give every level one"
            )
        variance = [variance[level] for level in geography.levels]
    try:
        given = np.asarray(variance, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"variance is {shown(variance)}; give numbers of 0 or more, or inf where not measured"
        ) from None
    sizes = np.diff(geography.level_offsets)
    if given.ndim == 0:
        spread = np.full(geography.n_nodes, float(given))
    elif given.shape == (len(sizes),):
        spread = np.repeat(given, sizes)
    elif given.shape in ((geography.n_nodes,), shape):
        spread = np.array(given)
    elif given.shape == (geography.n_nodes, 1):
        spread = np.array(given[:, 0])
    else:
        raise DataError(
            f"variance has shape {given.shape}; give one number, {len(sizes)} (per level), {geography.n_nodes} (per "
            f"node) or {shape} (per node and cell)"
        )
    wrong = np.argwhere(~(spread >= 0))
    if len(wrong):
        node = int(wrong[0][0])
        raise DataError(
            f"{geography.describe(node)}: variance {spread[tuple(wrong[0])]} is not a number from 0 to inf; 0 means "
            "exact, inf not measured"
        )
    if np.isinf(spread).all():
        raise DataError("no node was measured: every variance is inf")
    return spread
