"""Whether the counts of a release add up, and its tables are those of its counts, by the public directory alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.geography.tree import IntArray
from topdown.projection.limits import AnswerLimits
from topdown.release.answer_tables import paths_of, table_counts
from topdown.release.histogram_rows import read_histograms
from topdown.release.histograms import HistogramRelease
from topdown.release.manifest import WITH_RECORDS
from topdown.release.partition import RELEASE
from topdown.release.publication import GEOGRAPHY, LIMITS
from topdown.release.release import Release
from topdown.tables.geography_table import read_geography
from topdown.wording import shown, shown_path
from topdown.workload import Schema
from topdown.workload.answer_tables import AnswerTable, answer_tables

FETCH = "get the release again from whoever published it"

_ROWS_AT_ONCE = 1 << 16
"""Of a table, when it is compared with the counts."""


def require_counts(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse counts that do not add up, and tables that are not their sums; `DataError` names the unit at fault."""
    tables, limited = manifest.get("tables", {}), LIMITS in manifest["files"]  # since version 1.5
    release: Release | HistogramRelease
    if manifest.get("release_rows") == WITH_RECORDS:
        release = released_histograms(folder, manifest)
    else:
        _, values = _require_sums(folder, manifest)
        if not (tables or limited):
            return
        cells = tuple(str(cell) for cell in manifest["cells"])
        nothing = np.zeros(values.shape, np.bool_)
        release = Release(read_geography(folder / GEOGRAPHY), cells, values, nothing, "", fit_for_release=False)
    if limited:
        _require_limits(folder / LIMITS, release, schema_of(manifest))
    for table in answer_tables(list(tables), schema_of(manifest)):
        for path, column in zip(paths_of(table), (None, "value"), strict=True):
            if column is not None and f"{path}.parquet" not in manifest["files"]:
                continue  # a release in parts has no estimates beside its tables
            _require_table(folder / f"{path}.parquet", table, release, column)


def schema_of(manifest: dict[str, Any]) -> Schema:
    """What the cells of a release mean, by its manifest."""
    said = manifest["schema"]
    return Schema.of_cells([str(cell) for cell in manifest["cells"]]) if said is None else Schema.from_mapping(**said)


def released_histograms(folder: Path, manifest: dict[str, Any]) -> HistogramRelease:
    """The release of several queries in ``folder``. Raises `DataError` for what is not as the manifest describes it."""
    geography = read_geography(folder / GEOGRAPHY)
    sizes = [(str(level["level"]), int(level["nodes"])) for level in manifest["levels"]]
    if sizes != list(zip(geography.levels, np.diff(geography.level_offsets).tolist(), strict=True)):
        raise DataError(f"{shown_path(folder / GEOGRAPHY)}: its levels are not those of the manifest; {FETCH}")
    method = str(manifest["projections"]["non_negative"]["method"])
    fit = manifest["fit_for_release"] is True
    return read_histograms(folder / RELEASE, geography, schema_of(manifest), method, fit_for_release=fit)


def _require_limits(path: Path, release: Release | HistogramRelease, schema: Schema) -> None:
    """Refuse counts outside the limits that they keep."""
    limits = AnswerLimits.from_table(path, release.geography, schema)
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
    with pq.ParquetFile(path) as file:
        n_rows = file.metadata.num_rows
        begin, wanted = 0, ["geoid", *(names if column is None else ["column", column])]
        # Some rows at a time: of a nation the answers of every unit would fill the memory.
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted):
            _require_rows(path, table, release, column, begin, batch)
            begin += len(batch)
    if n_rows != release.geography.n_nodes * times:
        raise DataError(_not_its_units(path))


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


def _require_sums(folder: Path, manifest: dict[str, Any]) -> tuple[pa.Array, IntArray]:
    """The units and their counts, after refusing what does not add up as far as the tables tell who is in whom."""
    path = folder / RELEASE
    sizes = {str(level["level"]): int(level["nodes"]) for level in manifest["levels"]}
    cells = [str(cell) for cell in manifest["cells"]]
    units, values = _read_counts(path, sizes, cells)
    ends = np.cumsum(list(sizes.values()))
    nodes = {level: slice(int(end) - size, int(end)) for (level, size), end in zip(sizes.items(), ends, strict=True)}
    parent = _parents(folder, manifest, nodes, units)
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
    return units, values


def _parents(folder: Path, manifest: dict[str, Any], nodes: dict[str, slice], units: pa.Array) -> IntArray:
    """The number of every unit's parent; without a table of units this much is known: all of a level are the root."""
    if GEOGRAPHY not in manifest["files"]:
        return np.zeros(len(units), np.int64)
    geography = read_geography(folder / GEOGRAPHY)
    if list(geography.levels) != list(nodes) or not geography.identifiers.equals(units):
        raise DataError(f"{shown_path(folder / GEOGRAPHY)}: its units are not those of {RELEASE}; {FETCH}")
    return geography.tree.parent


def _read_counts(path: Path, sizes: dict[str, int], cells: list[str]) -> tuple[pa.Array, IntArray]:
    """The units, and their counts (units x cells), after making sure that there is every unit with every cell."""
    n_nodes, n_cells = sum(sizes.values()), len(cells)
    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows != n_nodes * n_cells:
            raise DataError(
                f"{shown_path(path)}: has {file.metadata.num_rows:,} rows, and the manifest {n_nodes:,} units x "
                f"{n_cells} cells; {FETCH}"
            )
        table = file.read(columns=["geoid", "level", "cell", "value"]).combine_chunks()
    level, cell = (
        pc.index_in(table[name].cast(pa.string()), value_set=pa.array(titles)).to_numpy()
        for name, titles in (("level", list(sizes)), ("cell", cells))
    )
    geoids = table["geoid"].cast(pa.string()).combine_chunks()
    units = geoids.take(pa.array(np.arange(n_nodes) * n_cells))
    per_level = np.array(list(sizes.values())) * n_cells
    if not (
        pa.types.is_integer(table["value"].type)
        and table["value"].null_count == 0
        and np.array_equal(level, np.repeat(np.arange(len(sizes)), per_level))
        and np.array_equal(cell, np.tile(np.arange(n_cells), n_nodes))
        and units.take(pa.array(np.repeat(np.arange(n_nodes), n_cells))).equals(geoids)
    ):
        raise DataError(
            f"{shown_path(path)}: its rows are not the units of every level with their cells, in whole numbers; {FETCH}"
        )
    values: IntArray = table["value"].to_numpy().astype(np.int64).reshape(n_nodes, n_cells)
    negative = np.argwhere(values < 0)
    if len(negative):
        node, k = (int(j) for j in negative[0])
        raise DataError(
            f"{shown_path(path)}: unit {shown(units[node].as_py())}, cell {shown(cells[k])}: {values[node, k]} is "
            f"negative; {FETCH}"
        )
    return units, values
