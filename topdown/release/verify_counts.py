"""Whether the counts of a release add up, and its tables are those of its counts, by the public directory alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError, TopdownError
from topdown.geography.geography import LONGEST_TEXT, Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.machine.memory import most_at_once, too_large
from topdown.projection.limits import AnswerLimits
from topdown.release.answer_tables import FOLDER, paths_of, table_counts
from topdown.release.histogram_rows import read_histograms
from topdown.release.histograms import HistogramRelease
from topdown.release.manifest import MALFORMED, MANIFEST, lists_records, method_of
from topdown.release.partition import RELEASE
from topdown.release.publication import GEOGRAPHY, LIMITS
from topdown.release.release import Release
from topdown.tables.geography_table import read_geography
from topdown.tables.parquet import longest_text, require_distinct, require_texts
from topdown.wording import FETCH, shown, shown_path, unquoted
from topdown.workload import DETAILED, Query, Schema
from topdown.workload.answer_tables import AnswerTable, answer_tables, known_columns
from topdown.workload.schema import TIMES

_ROWS_AT_ONCE = 1 << 16
"""Of a table, when it is compared with what it should be."""
_WORD = 8
"""Bytes of a count."""


def require_counts(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse counts that do not add up, and tables that are not their sums; `DataError` names the unit at fault."""
    tables, limited = list(manifest.get("tables", {})), LIMITS in manifest["files"]  # since version 1.5
    schema = schema_of(folder, manifest)
    _require_columns(folder, manifest, tables, schema)
    release: Release | HistogramRelease
    if lists_records(manifest):
        release = released_histograms(folder, manifest)
        _require_possible(folder / RELEASE, release)
    else:
        geography, values = _require_sums(folder, manifest, schema)
        if not (tables or limited):
            _require_named(folder, manifest, ())
            return
        if geography is None:
            raise KeyError(GEOGRAPHY)
        cells = tuple(str(cell) for cell in manifest["cells"])
        nothing = np.broadcast_to(np.zeros((), np.bool_), values.shape)
        release = Release(geography, cells, values, nothing, "", fit_for_release=False)
    if limited:
        _require_limits(folder / LIMITS, release, schema)
    asked = answer_tables(tables, schema)
    _require_named(folder, manifest, asked)
    for table in asked:
        for path, column in zip(paths_of(table), (None, "value"), strict=True):
            if column is not None and f"{path}.parquet" not in manifest["files"]:
                continue  # a release in parts has no estimates beside its tables
            _require_table(folder / f"{path}.parquet", table, release, column)


def _require_named(folder: Path, manifest: Mapping[str, Any], asked: Sequence[AnswerTable]) -> None:
    """Refuse files of tables that the manifest does not name: nobody would compare them with the counts."""
    named = {path for table in asked for path in paths_of(table)}
    tables = [name for name in manifest["files"] if name.startswith(f"{FOLDER}/")]
    others = [name for name in tables if name.rpartition(".")[0] not in named]
    if others:
        raise DataError(f"{shown_path(folder)}: {unquoted(others[0])} is of no table that the manifest names; {FETCH}")


def level_sizes(folder: Path, manifest: Mapping[str, Any]) -> dict[str, int]:
    """The levels of a release, root first, each with its number of units, by its manifest. Raises `DataError`."""
    try:
        found = {str(level["level"]): level["nodes"] for level in manifest["levels"]}
        if len(found) == len(manifest["levels"]) > 0 and all(type(one) is int and one > 0 for one in found.values()):
            return found
    except MALFORMED:
        pass
    raise DataError(f"{shown_path(folder / MANIFEST)}: does not say how many units every level has; {FETCH}")


def schema_of(folder: Path, manifest: Mapping[str, Any]) -> Schema:
    """What the cells of a release mean, by its manifest. Raises `DataError` where it lists others."""
    said, cells = manifest["schema"], manifest["cells"]
    try:
        schema = Schema.of_cells([str(cell) for cell in cells]) if said is None else Schema.from_mapping(**said)
    except MALFORMED as error:
        why = f": {error}" if isinstance(error, TopdownError) else ""
        raise DataError(f"{shown_path(folder / MANIFEST)}: its schema is none{why}; {FETCH}") from None
    if schema.n_cells != len(cells):
        raise DataError(
            f"{shown_path(folder / MANIFEST)}: its schema has {schema.n_cells:,} cells, and it lists {len(cells):,}; "
            f"{FETCH}"
        )
    return schema


def released_histograms(folder: Path, manifest: dict[str, Any]) -> HistogramRelease:
    """The release of several queries in ``folder``. Raises `DataError` for what is not as the manifest describes it."""
    schema = schema_of(folder, manifest)
    geography = read_geography(folder / GEOGRAPHY, level_sizes(folder, manifest))
    method = method_of(folder, manifest)
    fit = manifest["fit_for_release"] is True
    return read_histograms(folder / RELEASE, geography, schema, method, fit_for_release=fit)


def _require_columns(folder: Path, manifest: Mapping[str, Any], tables: Sequence[str], schema: Schema) -> None:
    """Refuse tables of more columns than their files can have, before the columns are named."""
    size = sum(facts["bytes"] for name, facts in manifest["files"].items() if name.startswith(f"{FOLDER}/"))
    queries = [Query.parse(name, schema) for name in tables if known_columns(name, schema) is None]
    if sum(query.n_answers for query in queries) > size:
        raise DataError(f"{shown_path(folder / MANIFEST)}: names tables of more columns than {FOLDER}/ has; {FETCH}")


def released_limits(path: Path, geography: Geography, schema: Schema) -> AnswerLimits:
    """The limits that a release keeps, in the table at ``path``. Raises `DataError` for one that is not of its units
    and answers.
    """
    told = [[one.name, *one.categories] for one in schema.attributes]
    told += [[one.name, *one.categories] for one in schema.recodes]
    longest = max(len(DETAILED), sum(longest_text(names) + len(f" {TIMES} ") for names in told))
    require_texts(path, {"geoid": longest_text(geography.identifiers), "query": longest, "answer": longest})
    return AnswerLimits.from_table(path, geography, schema)


def _require_limits(path: Path, release: Release | HistogramRelease, schema: Schema) -> None:
    """Refuse counts outside the limits that they keep."""
    limits = released_limits(path, release.geography, schema)
    for query, (low, high) in limits.by_query.items():
        answers = release.answers_of(slice(0, release.geography.n_nodes), query)
        wrong = np.argwhere((answers < low) | (answers > high))
        if len(wrong):
            node, answer = (int(k) for k in wrong[0])
            raise DataError(
                f"{shown_path(path)}: {release.geography.describe(node)}, query {shown(query.name)}, answer "
                f"{shown(query.labels()[answer])}: {RELEASE} has {answers[node, answer]}, outside its limits; {FETCH}"
            )


def _require_table(path: Path, table: AnswerTable, release: Release | HistogramRelease, column: str | None) -> None:
    """Refuse a table that is not of the release's counts; ``column``: where they stand, None where each has its own."""
    names = [one.name for one in table.columns]
    times = 1 if column is None else len(names)
    longest = {"geoid": longest_text(release.geography.identifiers)}
    require_texts(path, longest | ({} if column is None else {"column": longest_text(names)}))
    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows != release.geography.n_nodes * times:
            raise DataError(_not_its_units(path))
        begin, wanted = 0, ["geoid", *(names if column is None else ["column", column])]
        # Some rows at a time: of a nation the answers of every unit would fill the memory.
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted):
            _require_rows(path, table, release, column, begin, batch)
            begin += len(batch)


def _require_rows(
    path: Path,
    table: AnswerTable,
    release: Release | HistogramRelease,
    column: str | None,
    begin: int,
    rows: pa.RecordBatch,
) -> None:
    """`_require_table` of consecutive ``rows``, of which ``begin`` is the first's number."""
    geography, names = release.geography, [one.name for one in table.columns]
    times = 1 if column is None else len(names)
    numbers = np.arange(begin, begin + len(rows))
    if begin + len(rows) > geography.n_nodes * times:
        raise DataError(_not_its_units(path))
    first, stop = begin // times, -(-(begin + len(rows)) // times)
    units = geography.identifiers.take(pa.array(numbers // times))
    same = rows["geoid"].cast(pa.string()).equals(units.cast(pa.string()))
    if same and column is not None:
        same = rows["column"].cast(pa.string()).equals(pa.array(names).take(pa.array(numbers % times)))
    if not same:
        raise DataError(_not_its_units(path))
    expected = table_counts(table, release, slice(first, stop))
    if column is None:
        given = np.stack([rows[name].to_numpy(zero_copy_only=False) for name in names], axis=1)
    else:
        given, expected = rows[column].to_numpy(zero_copy_only=False), expected.reshape(-1)[numbers - first * times]
    wrong = np.argwhere(given != expected)
    if len(wrong):
        place = tuple(int(one) for one in wrong[0])
        row, k = begin + place[0], place[1] if column is None else (begin + place[0]) % times
        raise DataError(
            f"{shown_path(path)}: {geography.describe(row // times)}, column {shown(names[k])}: it has {given[place]}, "
            f"and the cells of {RELEASE} add up to {expected[place]}; {FETCH}"
        )


def _not_its_units(path: Path) -> str:
    return f"{shown_path(path)}: its rows are not the units of {RELEASE}; {FETCH}"


def _require_possible(path: Path, release: HistogramRelease) -> None:
    """Refuse records in a cell that the schema's zeros exclude."""
    seen = np.unique(release.cells)
    wrong = np.flatnonzero(np.isin(release.cells, seen[release.schema.excluded(seen)]))
    if len(wrong):
        entry = int(wrong[0])
        node = int(np.searchsorted(release.starts, entry, side="right")) - 1
        raise DataError(_impossible(path, release.described(node, int(release.cells[entry])), release.counts[entry]))


def _impossible(path: Path, place: str, count: int) -> str:
    return f"{shown_path(path)}: {place}: it has {count}, and no record can be in this cell (structural zero); {FETCH}"


def _require_sums(folder: Path, manifest: dict[str, Any], schema: Schema) -> tuple[Geography | None, IntArray]:
    """The geography, None without its table, and the counts, after refusing counts in the ``schema``'s zeros, and what
    does not add up as far as the tables tell who is in whom: without one this much is known, that all units of a level
    are in the root.
    """
    path, sizes = folder / RELEASE, level_sizes(folder, manifest)
    cells = [str(cell) for cell in manifest["cells"]]
    there = GEOGRAPHY in manifest["files"]
    geography = read_geography(folder / GEOGRAPHY, sizes) if there else None
    units, values = _read_counts(path, sizes, cells, None if geography is None else geography.identifiers)
    empty = schema.impossible_cells()
    counted = np.argwhere(values[:, empty])
    if len(counted):
        node, cell = int(counted[0, 0]), int(empty[counted[0, 1]])
        place = f"unit {shown(units[node].as_py())}, cell {shown(cells[cell])}"
        raise DataError(_impossible(path, place, values[node, cell]))
    parent = np.zeros(len(units), np.int64) if geography is None else geography.tree.parent
    ends = np.cumsum(list(sizes.values()))
    nodes = {level: slice(int(end) - size, int(end)) for (level, size), end in zip(sizes.items(), ends, strict=True)}
    for level, children in itertools.islice(nodes.items(), 1, None):
        above = parent[children]
        first, last = int(above.min()), int(above.max()) + 1
        sums = np.zeros_like(values[first:last])
        np.add.at(sums, above - first, values[children])
        wrong = np.argwhere(sums != values[first:last])
        if len(wrong):
            node, cell = (int(k) for k in wrong[0])
            raise DataError(
                f"{shown_path(path)}: unit {shown(units[first + node].as_py())}, cell {shown(cells[cell])}: it has "
                f"{values[first + node, cell]}, and its units of level {shown(level)} add up to {sums[node, cell]}; "
                f"{FETCH}"
            )
    return geography, values


def _read_counts(
    path: Path, sizes: Mapping[str, int], cells: Sequence[str], known: pa.Array | None
) -> tuple[pa.Array, IntArray]:
    """The units, and their counts (units x cells), after making sure that there is every unit with every cell.

    ``known``: the units, where there is a table of them. Rows are compared some at a time, so that a file that repeats
    its rows is not read to its end.
    """
    n_nodes, n_cells = sum(sizes.values()), len(cells)
    rows, most = n_nodes * n_cells, most_at_once()
    texts = [LONGEST_TEXT if known is None else longest_text(known), longest_text(sizes), longest_text(cells)]
    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows != rows:
            raise DataError(
                f"{shown_path(path)}: has {file.metadata.num_rows:,} rows, and the manifest {n_nodes:,} units x "
                f"{n_cells:,} cells; {FETCH}"
            )
        if most is not None and rows * _WORD > most:
            raise too_large(path, f"as a table of {n_nodes:,} units x {n_cells:,} cells", most)
        require_distinct(path, n_nodes)
        require_texts(path, dict(zip(("geoid", "level", "cell"), texts, strict=True)))
        torn = f"{shown_path(path)}: its rows are not the units of every level with their cells, in whole numbers"
        if not pa.types.is_integer(file.schema_arrow.field("value").type):
            raise DataError(f"{torn}; {FETCH}")
        titles, named, ends = pa.array(list(sizes)), pa.array(cells), np.cumsum(list(sizes.values()))
        values, begin, units, last = np.empty(rows, np.int64), 0, list[pa.Array](), pa.array([], pa.string())
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["geoid", "level", "cell", "value"]):
            node, cell = np.divmod(np.arange(begin, begin + len(batch)), n_cells)
            geoid, level, title = (batch[name].cast(pa.string()) for name in ("geoid", "level", "cell"))
            if known is None:
                units.append(geoid.filter(pa.array(cell == 0)))
                # The first unit may have begun in the rows before.
                here = units[-1] if cell[0] == 0 else pa.concat_arrays([last, units[-1]])
                expected, last = here.take(pa.array(node - node[0])), here.slice(len(here) - 1)
            else:
                expected = known.take(pa.array(node))
            whole = (
                batch["value"].null_count == 0
                and np.array_equal(_numbers(level, titles), np.searchsorted(ends, node, side="right"))
                and np.array_equal(_numbers(title, named), cell)
            )
            if not whole or (known is None and not expected.equals(geoid)):
                raise DataError(f"{torn}; {FETCH}")
            if not expected.equals(geoid):
                raise DataError(
                    f"{shown_path(path.with_name(GEOGRAPHY))}: its units are not those of {RELEASE}; {FETCH}"
                )
            found = batch["value"].to_numpy().astype(np.int64)
            negative = np.flatnonzero(found < 0)
            if len(negative):
                at = int(negative[0])
                raise DataError(
                    f"{shown_path(path)}: unit {shown(geoid[at].as_py())}, cell {shown(cells[cell[at]])}: {found[at]} "
                    f"is negative; {FETCH}"
                )
            values[begin : begin + len(batch)] = found
            begin += len(batch)
    return known if known is not None else pa.concat_arrays(units), values.reshape(n_nodes, n_cells)


def _numbers(texts: pa.Array, known: pa.Array) -> FloatArray:
    """The place of every text among those that are ``known``, NaN where it is none of them."""
    return np.asarray(pc.index_in(texts, value_set=known).to_numpy(zero_copy_only=False), dtype=np.float64)
