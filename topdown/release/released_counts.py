"""Reads the counts of a release, in any layout, and the other columns of its tables of cells.

Reads the public directory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError, TopdownError
from topdown.geography.geography import LONGEST_TEXT, Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.geography.unit_sums import PUBLISHED, SPINE, SpineGeography, published
from topdown.machine.memory import most_at_once, too_large
from topdown.projection.limits import AnswerLimits
from topdown.release.layouts import WITH_RECORDS, row_columns
from topdown.release.manifest import MALFORMED, layout_of, method_of
from topdown.release.partition import GEOGRAPHY, RELEASE
from topdown.release.places import MANIFEST
from topdown.release.whole_counts import Release, SparseCounts
from topdown.tables.geography_table import read_geography, read_trees
from topdown.tables.parquet import longest_text, require_distinct, require_texts
from topdown.tables.parquet_folder import parts_of
from topdown.wording import FETCH, reason, shown_path
from topdown.workload import DETAILED, Schema
from topdown.workload.schema import TIMES

_ROWS_AT_ONCE, _CELLS_AT_ONCE = 1 << 17, 1 << 16
_WORD = 8
"""Bytes of a count."""
_NOT_IN_ORDER = "the rows are not in the order of units and cells, each once"


@contextmanager
def as_described(path: Path) -> Iterator[None]:
    """Turns the errors of files that are not as the manifest describes them into a `DataError` that names ``path``."""
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, OSError, *MALFORMED) as error:
        said = error if isinstance(error, TopdownError) else reason(error)
        raise DataError(f"{shown_path(path)}: cannot be read as the manifest describes it: {said}; {FETCH}") from None


@contextmanager
def as_release(path: Path) -> Iterator[None]:
    """Turns the errors of counts that are no release into a `DataError` that names ``path``."""
    try:
        yield
    except DataError:
        raise
    except TopdownError as error:
        raise DataError(f"{shown_path(path)}: {error}; {FETCH}") from None


def read_counts(
    folder: Path,
    manifest: Mapping[str, Any],
    geography: Geography | None = None,
    also: Sequence[str] = (),
    of_units: Sequence[str] = (),
    exact: Callable[[], npt.NDArray[np.bool_]] | None = None,
) -> Release:
    """The release in ``folder``, which its ``manifest`` describes, on its ``geography``, which is read where it is
    None. ``also``: optional columns beside the counts; ``of_units``: optional columns with a number of the unit;
    ``exact``: finds which cells are published exactly, where no column says it.

    Raises `DataError` naming the file, and the unit where there is one, for rows that are not those of its units and
    cells, each once and in order, for counts that are not whole, and where a family does not add up.
    """
    path, schema, sizes = folder / RELEASE, schema_of(folder, manifest), level_sizes(folder, manifest)
    try:
        layout = layout_of(manifest)
    except DataError as error:
        raise DataError(f"{shown_path(folder / MANIFEST)}: {error}") from None
    if geography is None:
        geography = published(units_of(folder, manifest))
    method, fit = method_of(folder, manifest), manifest["fit_for_release"] is True
    if layout is WITH_RECORDS:
        entries = _read_entries(path, geography, schema)
        with as_release(path):
            return Release.of_entries(geography, schema, entries, method=method, fit_for_release=fit, exact=exact)
    cells = tuple(str(cell) for cell in manifest["cells"])
    found = read_cells(path, sizes, cells, geography.identifiers, ["value"], also, of_units).columns
    margins = {name: values for name, values in found.items() if name not in ("value", "variance")}
    with as_release(path):
        return Release.of_values(
            geography,
            cells,
            found["value"],
            found["variance"] == 0 if "variance" in found else None,
            method=method,
            fit_for_release=fit,
            schema=None if manifest["schema"] is None else schema,
            margins=margins,
        )


def units_of(folder: Path, manifest: Mapping[str, Any]) -> Geography:
    """The units that were measured of the release in ``folder``, by its table of units: where that is not what is
    published, a spine that knows it. Raises `DataError`."""
    path, sizes, spine = folder / GEOGRAPHY, level_sizes(folder, manifest), manifest.get("spine")  # since version 1.7
    if spine is None:
        return read_geography(path, sizes)
    measured = level_sizes(folder, spine)
    root, leaf = next(iter(sizes)), next(reversed(sizes))
    try:
        areas = {str(kind): {root: 1, str(kind): int(n), leaf: sizes[leaf]} for kind, n in spine["areas"].items()}
    except MALFORMED:
        raise DataError(f"{shown_path(folder / MANIFEST)}: does not say how many areas there are; {FETCH}") from None
    return read_trees(path, {PUBLISHED: sizes, SPINE: measured, **areas})


def areas_of_release(release: Release, geography: Geography) -> dict[str, Release]:
    """The counts of areas of every kind, where those that are measured (``geography``) are a spine's."""
    known = geography.turned.area_units if isinstance(geography, SpineGeography) else {}
    return {kind: release.at(units) for kind, units in known.items()}


class CellTable(NamedTuple):
    """A table of every unit and cell: the ``units``, and ``columns`` by their names, each (units x cells), or (units x
    1) for a number of the unit.
    """

    units: pa.Array
    columns: dict[str, npt.NDArray[Any]]


def read_cells(
    path: Path,
    sizes: Mapping[str, int],
    cells: Sequence[str],
    known: pa.Array | None,
    names: Sequence[str],
    optional: Sequence[str] = (),
    of_units: Sequence[str] = (),
) -> CellTable:
    """Columns of the table of cells at ``path``: those of ``names``, and those of ``optional`` that it has; counts are
    whole. Every unit has every cell. ``of_units``: optional columns with a number of the unit, (units x 1).

    ``sizes``: units of every level; ``known``: the units, where there is a table of them. Rows are compared in batches,
    so that reading stops early in a file that repeats its rows. Raises `DataError`.
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
        of_units = [name for name in of_units if name in file.schema_arrow.names]
        names = [*names, *(name for name in optional if name in file.schema_arrow.names)]
        if most is not None and rows * _WORD * len(names) > most:
            raise too_large(path, f"as a table of {n_nodes:,} units x {n_cells:,} cells", most)
        require_distinct(path, n_nodes)
        require_texts(path, dict(zip(("geoid", "level", "cell"), texts, strict=True)))
        torn = f"{shown_path(path)}: its rows are not the units of every level with their cells, in whole numbers"
        if "value" in names and not pa.types.is_integer(file.schema_arrow.field("value").type):
            raise DataError(f"{torn}; {FETCH}")
        titles, named, ends = pa.array(list(sizes)), pa.array(list(cells)), np.cumsum(list(sizes.values()))
        found = {name: np.empty(rows, np.int64 if name == "value" else np.float64) for name in names}
        once = {name: np.empty(n_nodes) for name in of_units}
        begin, units, last = 0, list[pa.Array](), pa.array([], pa.string())
        for batch in file.iter_batches(_CELLS_AT_ONCE, columns=["geoid", "level", "cell", *names, *once]):
            node, cell = np.divmod(np.arange(begin, begin + len(batch)), n_cells)
            geoid, level, title = (batch[name].cast(pa.string()) for name in ("geoid", "level", "cell"))
            if known is None:
                units.append(geoid.filter(pa.array(cell == 0)))
                # The first unit may have begun in the batch before.
                here = units[-1] if cell[0] == 0 else pa.concat_arrays([last, units[-1]])
                expected, last = here.take(pa.array(node - node[0])), here.slice(len(here) - 1)
            else:
                expected = known.take(pa.array(node))
            whole = np.array_equal(_numbers(level, titles), np.searchsorted(ends, node, side="right"))
            whole = whole and np.array_equal(_numbers(title, named), cell)
            if "value" in names:
                whole = whole and batch["value"].null_count == 0
            if not whole or (known is None and not expected.equals(geoid)):
                raise DataError(f"{torn}; {FETCH}")
            if not expected.equals(geoid):
                raise DataError(
                    f"{shown_path(path.with_name(GEOGRAPHY))}: its units are not those of {path.name}; {FETCH}"
                )
            for name, column in found.items():
                column[begin : begin + len(batch)] = batch[name].to_numpy(zero_copy_only=False)
            for name, column in once.items():
                column[node[cell == 0]] = batch[name].to_numpy(zero_copy_only=False)[cell == 0]
            begin += len(batch)
    there = known if known is not None else pa.concat_arrays(units)
    if known is None and (there.null_count or len(pc.unique(there)) < n_nodes):
        raise DataError(f"{torn}; {FETCH}")
    return CellTable(there, {name: column.reshape(n_nodes, -1) for name, column in (found | once).items()})


def _numbers(texts: pa.Array, known: pa.Array) -> FloatArray:
    """The place of every text in ``known``, NaN where it is not among them."""
    return np.asarray(pc.index_in(texts, value_set=known).to_numpy(zero_copy_only=False), dtype=np.float64)


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
    """The schema of a release's cells, by its manifest, which does not list them where they are too many. Raises
    `DataError` where it lists other cells."""
    said, cells = manifest["schema"], manifest["cells"]
    try:
        schema = Schema.of_cells([str(cell) for cell in cells]) if said is None else Schema.from_mapping(**said)
        schema.require_solvable()
    except MALFORMED as error:
        why = f": {error}" if isinstance(error, TopdownError) else ""
        raise DataError(f"{shown_path(folder / MANIFEST)}: its schema cannot be read{why}; {FETCH}") from None
    if cells is None and schema.is_large:
        return schema
    if cells is None or schema.n_cells != len(cells):
        raise DataError(
            f"{shown_path(folder / MANIFEST)}: its schema has {schema.n_cells:,} cells, and it lists "
            f"{len(cells or ()):,}; {FETCH}"
        )
    return schema


def released_limits(path: Path, geography: Geography, schema: Schema) -> AnswerLimits:
    """The limits that a release keeps, from the table at ``path``. Raises `DataError` for limits of other units or
    answers.
    """
    told = [[one.name, *one.categories] for one in schema.attributes]
    told += [[one.name, *one.categories] for one in schema.recodes]
    longest = max(len(DETAILED), sum(longest_text(names) + len(f" {TIMES} ") for names in told))
    require_texts(path, {"geoid": longest_text(geography.identifiers), "query": longest, "answer": longest})
    return AnswerLimits.from_table(path, geography, schema)


def _read_entries(path: Path, geography: Geography, schema: Schema) -> SparseCounts:
    """The cells that have records, from a Parquet file at ``path``, or a folder of its parts. Raises `DataError`."""
    if geography.n_nodes * schema.n_cells >= 1 << 63:
        raise DataError(
            f"{shown_path(path)}: {geography.n_nodes:,} units x {schema.n_cells:,} cells are more than 2^63"
        )
    with as_described(path):
        parts = [_Rows.read(part, geography, schema) for part in parts_of(path)]
        texts = pa.concat_arrays([part.units for part in parts])
        places = _places(texts, geography.identifiers, "a unit that the release does not have")
        nodes = np.repeat(places, np.concatenate([part.sizes for part in parts]))
        cells = np.concatenate([part.cells for part in parts]).astype(np.int64)
        counts = np.concatenate([part.counts for part in parts])
        del parts
        key = nodes * schema.n_cells + cells
        if path.is_dir():  # every part has the rows of its own units, level by level
            order = np.argsort(key)
            nodes, cells, counts, key = nodes[order], cells[order], counts[order], key[order]
            del order
        if (np.diff(key) <= 0).any():
            raise ValueError(_NOT_IN_ORDER)
        del key
    return SparseCounts(np.searchsorted(nodes, np.arange(geography.n_nodes + 1)), cells, counts)


class _Rows(NamedTuple):
    """The rows of one file: its ``units``, how many consecutive rows each has (``sizes``), and every row's cell and
    count.
    """

    units: pa.Array
    sizes: IntArray
    cells: npt.NDArray[Any]
    counts: IntArray

    @classmethod
    def read(cls, path: Path, geography: Geography, schema: Schema) -> _Rows:
        """Read rows in batches, so that reading stops early in a file that repeats its rows.

        Raises `ValueError` for a category that is not the schema's, for counts that are not whole, and for rows that
        are not in order.
        """
        texts = ["geoid", *schema.names]
        known = {attribute.name: pa.array(list(attribute.categories)) for attribute in schema.attributes}
        require_texts(
            path, {"geoid": longest_text(geography.identifiers)} | {k: longest_text(v) for k, v in known.items()}
        )
        n_units = 0
        units, sizes, cells, counts = list[pa.Array](), list[IntArray](), list[npt.NDArray[Any]](), list[IntArray]()
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            kind = file.schema_arrow.field("count").type
            if not pa.types.is_integer(kind):
                raise ValueError(f"count has type {kind}; it must be whole numbers")
            row_columns(schema)
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["geoid", *schema.names, "count"]):
                coded = {name: _coded(batch[name]) for name in texts}
                if any(code.null_count for code in coded.values()) or batch["count"].null_count:
                    raise ValueError("a row without its unit, a category or its count")
                cell = np.zeros(len(batch), np.int64)
                for name, categories in known.items():
                    places = _places(coded[name].dictionary, categories, f"a category that {name!r} does not have")
                    cell = cell * len(categories) + places[coded[name].indices.to_numpy()]
                unit = coded["geoid"].indices.to_numpy()
                begins = np.concatenate([[0], 1 + np.flatnonzero(np.diff(unit))])
                rises = np.diff(cell) > 0
                rises[begins[1:] - 1] = True
                if not rises.all() or len(np.unique(unit[begins])) < len(begins):
                    raise ValueError(_NOT_IN_ORDER)
                units.append(coded["geoid"].dictionary.take(pa.array(unit[begins])))
                sizes.append(np.diff(begins, append=len(batch)))
                cells.append(cell.astype(np.int32 if schema.n_cells < 1 << 31 else np.int64))
                counts.append(batch["count"].to_numpy().astype(np.int64))
                n_units += len(begins)
                if n_units > geography.n_nodes + len(units):  # a unit's rows may go on in the next batch
                    raise ValueError(_NOT_IN_ORDER)
        none = np.zeros(0, np.int64)
        return cls(
            pa.concat_arrays([pa.array([], pa.string()), *units]),
            np.concatenate([none, *sizes]),
            np.concatenate([none.astype(np.int32), *cells]),
            np.concatenate([none, *counts]),
        )


def _coded(column: pa.Array) -> pa.DictionaryArray:
    """A column as a dictionary array, which has each of its texts once."""
    if not pa.types.is_dictionary(column.type):
        return column.cast(pa.string()).dictionary_encode()
    return column.cast(pa.dictionary(pa.int32(), pa.string()))


def _places(texts: pa.Array, known: pa.Array, otherwise: str) -> IntArray:
    place = pc.index_in(texts, value_set=known.cast(pa.string()))
    if place.null_count:
        raise ValueError(otherwise)
    return np.asarray(place.to_numpy(), dtype=np.int64)
