"""Reads the measurements of a release, from which another release can be derived.

Reads the public directory alone. `verify_files` makes sure that the files are those that the manifest lists; nothing
here can show that the manifest is true.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.machine.files import file_digest
from topdown.machine.memory import most_at_once, too_large
from topdown.measurements.filed_values import FiledValues
from topdown.measurements.measurements import Answers, Measurements, none_measured, nothing_kept
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import variances
from topdown.projection.limits import AnswerLimits
from topdown.release.drawing import drawing_of
from topdown.release.manifest import DerivedFrom, Origin
from topdown.release.partition import GEOGRAPHY, LIMITS, MEASUREMENTS
from topdown.release.places import MANIFEST
from topdown.release.released_counts import as_described, released_limits, units_of
from topdown.release.verified import verify_files
from topdown.tables.parquet import longest_text, require_texts
from topdown.wording import FETCH, shown, shown_path
from topdown.workload import DETAILED, TOTAL, Query, Schema

_KEYS = ["level", "query"]
_COLUMNS = ["geoid", "cell", "value", "variance"]
_ROWS_AT_ONCE = 1 << 20
_MOST_HELD = 1 << 26
"""The values of a table with more rows, of several queries, stay in their file."""

_NUMBERS, _WORD = 2, 8
"""The numbers of a row (a value and a variance) and the bytes of each."""


@dataclass(frozen=True)
class Published:
    """The measurements of a release in ``public``, the plan under which they were drawn (None where it is not known),
    where they come from, and the ``limits`` that its numbers keep, if any.
    """

    public: Path
    measurements: Measurements
    plan: Plan | None
    origin: Origin
    limits: AnswerLimits | None = None


def read_measurements(public: str | Path) -> Published:
    """The measurements of the release in the directory ``public``.

    Raises `DataError` naming the file at fault: one that is not what was written or not what the manifest describes, or
    a release of an earlier version, which has no table of units.
    """
    folder = Path(public)
    return measurements_of(folder, verify_files(folder))


def geography_of(folder: Path, manifest: Mapping[str, Any]) -> Geography:
    """The units that were measured of the release in ``folder``, as `units_of` has them. Raises `DataError` where it
    has no table of them."""
    if GEOGRAPHY not in manifest["files"]:
        raise DataError(
            f"{shown_path(folder)}: has no {GEOGRAPHY}, as releases of earlier versions; make it again: the same run "
            "draws no noise"
        )
    return units_of(folder, manifest)


def measurements_of(folder: Path, manifest: Mapping[str, Any]) -> Published:
    """As `read_measurements`, of a release whose files were verified against its ``manifest``."""
    geography, large = geography_of(folder, manifest), manifest["cells"] is None
    if MEASUREMENTS not in manifest["files"] and not large:
        raise DataError(
            f"{shown_path(folder)}: has no {MEASUREMENTS}, as releases in parts of earlier versions; make it again: "
            "the same run draws the same noise"
        )
    drawn = drawing_of(folder, manifest)
    plan, limited = drawn.plan, folder / LIMITS
    if large and drawn.schema is not None:
        nothing = nothing_kept(geography, drawn.schema, plan, fit_for_release=drawn.fit)
        origin = replace(drawn.origin, derived_from=DerivedFrom(file_digest(folder / MANIFEST), ""))
        limits = released_limits(limited, geography, drawn.schema) if LIMITS in manifest["files"] else None
        return Published(folder, nothing, plan, origin, limits)
    with as_described(folder / MEASUREMENTS):
        entries = list(_stated_entries(drawn.measured) if plan is None else _entries_of(plan, geography))
        found = _read(folder / MEASUREMENTS, geography, drawn.cells, drawn.schema, entries)
        names = noise_names(manifest)
        measurements = replace(
            found, plan=plan, fit_for_release=drawn.fit, mechanism=drawn.mechanism, noise_names=names
        )
    derived_from = DerivedFrom(file_digest(folder / MANIFEST), manifest["files"][MEASUREMENTS]["sha256"])
    origin = replace(drawn.origin, derived_from=derived_from)
    limits = None if origin.limits is None else released_limits(limited, geography, measurements.schema)
    return Published(folder, measurements, plan, origin, limits)


def noise_names(manifest: Mapping[str, Any]) -> frozenset[str]:
    """The names by which a release's ``manifest`` knows the noise in its measurements: two releases with one in common
    have the same measurements."""
    known = [manifest.get("noise"), manifest["files"].get(MEASUREMENTS, {}).get("sha256")]
    known.append((manifest.get("derived_from") or {}).get("measurements"))
    return frozenset(name for name in known if isinstance(name, str) and name)


class _Entry(NamedTuple):
    """A query at a level and the nodes that have answers to it; only their number, where no more is known."""

    level: str
    query: str
    nodes: IntArray | int


def _entries_of(plan: Plan, geography: Geography) -> Iterator[_Entry]:
    """The answers that ``plan`` measures or publishes exactly, in the order of the file: the detailed query last in its
    level.
    """
    for level in geography.levels:
        for name in sorted(plan.queries(level), key=DETAILED.__eq__):
            # A single child may have no rows, since its parent was measured in its place.
            there = np.flatnonzero(np.isfinite(variances(plan, geography, level, name)))
            yield _Entry(level, name, geography.level_slice(level).start + there)


def _stated_entries(measured: list[dict[str, Any]]) -> Iterator[_Entry]:
    return (_Entry(str(one["level"]), str(one["query"]), int(one["units"])) for one in measured)


def _read(
    path: Path,
    geography: Geography,
    cells: Sequence[str],
    schema: Schema | None,
    entries: Sequence[_Entry],
) -> Measurements:
    """The table ``geoid, level, query, cell, value, variance`` of ``entries``, in their order.

    The values of a large table of several queries stay in the file: all rows are checked here, and values are read when
    they are asked for.
    """
    meaning, rows = Schema.of_cells(cells) if schema is None else schema, pq.read_metadata(path).num_rows
    described = len(entries)
    entries = _upper_levels(entries, meaning, rows)
    asked = [Query.parse(entry.query, meaning) for entry in entries]
    filed = len(entries) < described or (any(query.name != DETAILED for query in asked) and rows > _MOST_HELD)
    _require_rows(path, geography, cells, entries, asked, filed=filed)
    if filed:
        last = geography.levels.index(entries[-1].level) + 1
        lower = geography.levels[last:] if len(entries) < described else ()
        in_file = _in_file(path, geography, cells, schema, list(zip(entries, asked, strict=True)))
        return replace(in_file, not_kept=lower)
    measured, shape = any(query.name == DETAILED for query in asked), (len(cells), geography.n_nodes)
    with pq.ParquetFile(path, read_dictionary=["level", "query", "cell"]) as file:
        kind = file.schema_arrow.field("value").type
        found = _Entries(path, file)
        rectangle = (np.zeros if measured else none_measured)(shape, kind.to_pandas_dtype()).T
        spread = np.full(shape if measured else shape[1:], np.inf).T
        others: dict[tuple[str, str], Answers] = {}
        for (level, _, known), query in zip(entries, asked, strict=True):
            nodes = geography.level_slice(level)
            labels = cells if query.name == DETAILED else query.labels()
            there, values, variance = found.take(geography, level, query.name, labels, known)
            if query.name == DETAILED:
                rectangle[there], spread[there] = values, variance
                continue
            every = Answers(
                np.zeros((nodes.stop - nodes.start, len(labels)), values.dtype),
                np.full(nodes.stop - nodes.start, np.inf),
            )
            every.values[there - nodes.start], every.variance[there - nodes.start] = values, variance[:, 0]
            others[level, query.name] = every
        found.require_end()
    same = measured and (spread == spread[:, :1]).all()
    own = np.array(spread[:, 0]) if same else spread
    return Measurements(geography, cells, rectangle, own, attributes=schema, others=others)


def _upper_levels(entries: Sequence[_Entry], schema: Schema, rows: int) -> Sequence[_Entry]:
    """The ``entries`` of the upper levels, where these alone have so many ``rows``: a very large release in parts keeps
    only these. Else all entries.
    """
    counted = [one.nodes if isinstance(one.nodes, int) else len(one.nodes) for one in entries]
    described = [n * Query.parse(one.query, schema).n_answers for n, one in zip(counted, entries, strict=True)]
    ends = list(itertools.accumulate(described))
    for place in range(1, len(entries)):
        # A level whose units all gave their shares to their parents has no rows, and lacks none.
        if ends[place - 1] == rows < ends[-1] and entries[place].level != entries[place - 1].level:
            return entries[:place]
    return entries


def require_all(published: Published) -> None:
    """Refuse measurements of which those of lower levels were not kept. Raises `DataError`."""
    reason = published.measurements.reason_against(published.measurements.published.levels)
    if reason is not None:
        raise DataError(
            f"{shown_path(published.public)}: {reason}: nothing can be derived from the other levels alone; make it "
            "again with output.all_measurements = true"
        )


def _in_file(
    path: Path, geography: Geography, cells: Sequence[str], schema: Schema | None, entries: list[tuple[_Entry, Query]]
) -> Measurements:
    """As `_read`, of values that stay in the file."""
    others: dict[tuple[str, str], Answers] = {}
    group = lru_cache(maxsize=4)(partial(_values_of_group, path))  # more than one, because several threads read
    with pq.ParquetFile(path, read_dictionary=["level", "query", "cell"]) as file:
        found, meta = _Entries(path, file), file.metadata
        groups = np.cumsum([0] + [meta.row_group(k).num_rows for k in range(meta.num_row_groups)])
        for (level, _, known), query in entries:
            labels, nodes = cells if query.name == DETAILED else query.labels(), geography.level_slice(level)
            first, count = found.rows_taken, nodes.stop - nodes.start
            there, variance = [np.empty(0, np.int64)], np.full(count, np.inf)
            for some, _, spread in found.parts(geography, level, query.name, labels, known):
                if (spread != spread[:, :1]).any():
                    raise DataError(
                        f"{shown_path(path)}: level {shown(level)}, query {shown(query.name)}: the answers of a unit "
                        "have different variances"
                    )
                there.append(some - nodes.start)
                variance[some - nodes.start] = spread[:, 0]
            rows = _FiledRows(group, groups, first, np.concatenate(there), query.n_answers, np.dtype(found.kind))
            others[level, query.name] = Answers(FiledValues((count, query.n_answers), rows.kind, rows.read), variance)
        found.require_end()
        nothing = none_measured((len(cells), geography.n_nodes), found.kind).T
    return Measurements(geography, cells, nothing, np.full(geography.n_nodes, np.inf), attributes=schema, others=others)


class _FiledRows(NamedTuple):
    """The values of one query at a level in a file. ``group`` reads a row group by its number, and the row groups begin
    at ``groups``. From row ``first`` on there are ``answers`` values for each of the nodes ``there``, numbered within
    the level.
    """

    group: Callable[[int], np.ndarray[Any, Any]]
    groups: IntArray
    first: int
    there: IntArray
    answers: int
    kind: np.dtype[Any]

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """The values of the level's nodes from ``start`` to below ``stop``; 0 where there are none."""
        begin, end = np.searchsorted(self.there, [start, stop]).tolist()
        rows = slice(self.first + begin * self.answers, self.first + end * self.answers)
        found = np.zeros((stop - start, self.answers), self.kind)
        values = []
        number = int(np.searchsorted(self.groups, rows.start, side="right")) - 1
        while begin < end and self.groups[number] < rows.stop:
            own = slice(max(0, rows.start - int(self.groups[number])), rows.stop - int(self.groups[number]))
            values.append(self.group(number)[own])
            number += 1
        if values:
            found[self.there[begin:end] - start] = np.concatenate(values).reshape(-1, self.answers)
        return found


def _values_of_group(path: Path, group: int) -> np.ndarray[Any, Any]:
    """The values in one group of rows."""
    with pq.ParquetFile(path) as file:
        found: np.ndarray[Any, Any] = file.read_row_group(group, columns=["value"])["value"].to_numpy()
    return found


def _require_rows(
    path: Path,
    geography: Geography,
    cells: Sequence[str],
    entries: Sequence[_Entry],
    asked: Sequence[Query],
    *,
    filed: bool,
) -> None:
    """Before it is read, refuse a file that does not have the rows of ``entries``, whose queries are ``asked``, and one
    that needs too much memory; one whose values stay in the file (``filed``) needs none.
    """
    counts = [known if isinstance(known, int) else len(known) for _, _, known in entries]
    sizes = [geography.level_slice(level) for level, _, _ in entries]
    if any(not 0 <= count <= nodes.stop - nodes.start for count, nodes in zip(counts, sizes, strict=True)):
        raise DataError(f"{shown_path(path)}: the manifest describes answers of more units than a level has; {FETCH}")
    rows = sum(count * query.n_answers for count, query in zip(counts, asked, strict=True))
    there = pq.read_metadata(path).num_rows
    if there != rows:
        more = "more" if there > rows else "fewer"
        raise DataError(f"{shown_path(path)}: has {more} rows than the manifest describes")
    measured = any(query.name == DETAILED for query in asked)
    needed = _NUMBERS * _WORD * (rows + measured * len(cells) * geography.n_nodes)
    most = most_at_once()
    if most is not None and not filed and needed > most:
        size = f"{geography.n_nodes:,} units x {len(cells):,} cells"
        raise too_large(path, f"as tables of {size} and other answers", most)
    longest = {"geoid": longest_text(geography.identifiers), "level": longest_text(geography.levels)}
    longest["query"] = max((len(query.name.encode()) for query in asked), default=0)
    longest["cell"] = max([longest_text(cells), *map(_longest_label, set(asked))])
    require_texts(path, longest)


def _longest_label(query: Query) -> int:
    """The bytes of the longest name of an answer."""
    longest = [longest_text(factor.categories) for factor in query.factors]
    return max(len(TOTAL), sum(longest) + len(longest) - 1)


class _Entries:
    """Reads the rows of a measurements file in order, entry by entry; an entry is a level and a query."""

    def __init__(self, path: Path, file: pq.ParquetFile) -> None:
        self.path = path
        self.kind = file.schema_arrow.field("value").type.to_pandas_dtype()
        self.batches = file.iter_batches(columns=[*_KEYS, *_COLUMNS])
        self.rest: pa.Table | None = None
        self.rows_taken = 0

    def take(
        self, geography: Geography, level: str, query: str, labels: Sequence[str], known: IntArray | int
    ) -> tuple[IntArray, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The next entry: all its `parts` together."""
        count, begin = known if isinstance(known, int) else len(known), 0
        nodes, values = np.empty(count, np.int64), np.empty((count, len(labels)), self.kind)
        variance = np.empty((count, len(labels)))
        for some, *numbers in self.parts(geography, level, query, labels, known):
            part = slice(begin, begin + len(some))
            nodes[part], (values[part], variance[part]) = some, numbers
            begin = part.stop
        return nodes, values, variance

    def parts(
        self, geography: Geography, level: str, query: str, labels: Sequence[str], known: IntArray | int
    ) -> Iterator[tuple[IntArray, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Nodes of the next entry with their values and variances (nodes x answers), after making sure that it is the
        one asked for.

        ``known``: the nodes that it has, or their number. They are read in batches, since the cell names of a whole
        level may be more than a column of text can hold.
        """
        count, step = known if isinstance(known, int) else len(known), max(1, _ROWS_AT_ONCE // len(labels))
        for begin in range(0, count, step):
            part = slice(begin, min(begin + step, count))
            table = self._rows((part.stop - begin) * len(labels))
            if isinstance(known, int):
                nodes = self._nodes(geography, table["geoid"], geography.level_slice(level), len(labels))
            else:
                nodes = known[part]
            values, variance = self._checked(table, geography, nodes, level, query, labels)
            yield nodes, values, variance

    def _nodes(self, geography: Geography, geoids: pa.ChunkedArray, level: slice, n_answers: int) -> IntArray:
        """The nodes of a level whose rows, ``n_answers`` each, have these ``geoids``."""
        codes = geoids.take(pa.array(np.arange(0, len(geoids), n_answers)))
        place = pc.index_in(codes, value_set=geography.identifiers[level])
        if place.null_count:
            raise DataError(f"{shown_path(self.path)}: a unit is not in the geography")
        return np.asarray(level.start + place.to_numpy(), dtype=np.int64)

    def _checked(
        self,
        table: pa.Table,
        geography: Geography,
        nodes: IntArray,
        level: str,
        query: str,
        labels: Sequence[str],
    ) -> list[np.ndarray[Any, Any]]:
        """Values and variances (nodes x answers) of rows, after making sure that they are those of ``nodes``."""
        node, answer = np.divmod(np.arange(len(table)), len(labels))
        wanted = {
            "level": pa.array([level]).take(pa.array(np.zeros_like(node))),
            "query": pa.array([query]).take(pa.array(np.zeros_like(node))),
            "geoid": geography.identifiers.take(pa.array(nodes[node])),
            "cell": pa.array(list(labels)).take(pa.array(answer)),
        }
        for name, expected in wanted.items():
            if not table[name].cast(pa.string()).equals(pa.chunked_array([expected.cast(pa.string())])):
                raise DataError(
                    f"{shown_path(self.path)}: level {shown(level)}, query {shown(query)}: column {name} does not "
                    "have the units and answers that the manifest describes"
                )
        values, variance = (table[name].to_numpy().reshape(-1, len(labels)) for name in ("value", "variance"))
        if not (np.isfinite(values).all() and (variance >= 0).all()):
            raise DataError(
                f"{shown_path(self.path)}: level {shown(level)}, query {shown(query)}: a value is not a number, or a "
                "variance is negative"
            )
        return [values, variance]

    def _rows(self, count: int) -> pa.Table:
        parts = [] if self.rest is None else [self.rest]
        held = sum(map(len, parts))
        while held < count:
            batch = next(self.batches, None)
            if batch is None:
                raise DataError(f"{shown_path(self.path)}: has fewer rows than the manifest describes")
            parts.append(pa.Table.from_batches([batch]))
            held += len(batch)
        table = pa.concat_tables(parts)
        self.rest = table.slice(count)
        self.rows_taken += count
        return table.slice(0, count)

    def require_end(self) -> None:
        if (self.rest is not None and len(self.rest)) or next(self.batches, None) is not None:
            raise DataError(f"{shown_path(self.path)}: has more rows than the manifest describes")
