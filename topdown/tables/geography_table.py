"""A geography as a table: every unit with its level, its parent and its name; and reading it back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError, GeographyError
from topdown.geography.geography import LONGEST_TEXT, Geography
from topdown.geography.labels import rises, stays
from topdown.geography.tree import Tree
from topdown.geography.unit_sums import PUBLISHED, SPINE, SpineGeography
from topdown.tables.parquet import require_distinct, require_texts
from topdown.tables.tidy import levels_of, parents_of, with_plain_strings
from topdown.wording import reason, shown, shown_path

_ROWS_PER_GROUP = 1 << 18
_ROWS_AT_ONCE = 1 << 16
TREE = "tree"
"""The column that says of which tree a row is, where there are several."""
_COLUMNS = ["geoid", "level", "parent", "name"]
_SIBLINGS = ("geoid", "parent")


def geography_batches(geography: Geography) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, parent, name``, level by level from the root, siblings together; the root has no parent."""
    codes = geography.identifiers
    for begin in range(0, geography.n_nodes, _ROWS_PER_GROUP):
        nodes = slice(begin, min(begin + _ROWS_PER_GROUP, geography.n_nodes))
        level, n_rows = levels_of(geography, nodes), nodes.stop - nodes.start
        yield pa.RecordBatch.from_pydict(
            {
                "geoid": codes.slice(begin, n_rows),
                "level": pa.DictionaryArray.from_arrays(pa.array(level), pa.array(geography.levels)),
                "parent": parents_of(geography, nodes),
                "name": pa.nulls(n_rows, pa.string())
                if geography.names is None
                else geography.names.slice(begin, n_rows),
            }
        )


def tree_batches(geography: Geography) -> Iterator[pa.RecordBatch]:
    """As `geography_batches`; of a spine the rows of every tree, which a column ``tree`` before the others names: what
    is published, the spine, and for every kind of areas the root, the areas and the leaves."""
    if not isinstance(geography, SpineGeography):
        yield from geography_batches(geography)
        return
    for name, tree in {PUBLISHED: geography.published, SPINE: geography, **geography.areas}.items():
        for batch in geography_batches(tree):
            plain = with_plain_strings(batch)
            columns = [pa.repeat(name, len(batch)), *plain.columns]
            yield pa.RecordBatch.from_arrays(columns, [TREE, *plain.schema.names])


def read_geography(path: Path, sizes: Mapping[str, int] | None = None) -> Geography:
    """Read the geography that `geography_batches` wrote, from a Parquet file at ``path``. ``sizes``: the levels, root
    first, with their numbers of units, where they are known. Any other table is refused with `DataError` before much of
    it is read.
    """
    with _as_units(path), pq.ParquetFile(path, read_dictionary=["level", "parent"]) as file:
        _require_rows(file, None if sizes is None else sum(sizes.values()))
        return _geography(pa.Table.from_batches(list(_in_order(file))), sizes)


def read_as_written(path: Path) -> Geography:
    """What `tree_batches` was written of, in a Parquet file at ``path``: a spine, where it has several trees. Raises
    `DataError`."""
    with _as_units(path):
        several = TREE in pq.read_schema(path).names
    return read_trees(path) if several else read_geography(path)


def read_trees(path: Path, sizes: Mapping[str, Mapping[str, int]] | None = None) -> SpineGeography:
    """The spine that `tree_batches` was written of, in a Parquet file at ``path``. ``sizes``: as `read_geography` has
    them, by tree, where they are known. Raises `DataError`."""
    with _as_units(path), pq.ParquetFile(path, read_dictionary=[TREE, "level", "parent"]) as file:
        if sizes is not None:
            _require_rows(file, sum(sum(levels.values()) for levels in sizes.values()))
        table, begin, found = file.read([TREE, *_COLUMNS]), 0, dict[str, Geography]()
        if sizes is None:
            names, counts = _runs(_plain(table[TREE]))
            rows = dict(zip(names, counts.tolist(), strict=True))
        else:
            rows = {name: sum(levels.values()) for name, levels in sizes.items()}
        for name, count in rows.items():
            part = table.slice(begin, count)
            if pc.unique(_plain(part[TREE])).to_pylist() != [name]:
                raise GeographyError(f"the rows of tree {shown(name)} are not where the manifest has them")
            found[name], begin = _geography(part, None if sizes is None else sizes[name]), begin + count
        published, spine = found.pop(PUBLISHED), found.pop(SPINE)
        return SpineGeography(
            spine.levels, spine.tree, spine.identifiers, spine.names, published=published, areas=found
        )


@contextmanager
def _as_units(path: Path) -> Iterator[None]:
    """What comes of a table at ``path`` that is not of units, as a `DataError`."""
    try:
        require_distinct(path, pq.read_metadata(path).num_rows)
        require_texts(path, dict.fromkeys(_COLUMNS, LONGEST_TEXT))
        yield
    except GeographyError as error:
        raise DataError(f"{shown_path(path)}: is not a table of units: {error}") from None
    except DataError:
        raise
    except (OSError, pa.ArrowException, KeyError, ValueError, IndexError) as error:
        raise DataError(f"{shown_path(path)}: cannot be read as a table of units: {reason(error)}") from None


def _require_rows(file: pq.ParquetFile, count: int | None) -> None:
    if count is not None and file.metadata.num_rows != count:
        raise GeographyError(f"it has {file.metadata.num_rows:,} rows, and the manifest {count:,} units")


def _geography(rows: pa.Table, sizes: Mapping[str, int] | None) -> Geography:
    """The geography of rows that are the whole of it."""
    table = rows.combine_chunks()
    level, geoid = _plain(table["level"]), _plain(table["geoid"])
    named = table["name"].null_count < table.num_rows
    levels, counts = _runs(level)
    if sizes is not None and list(zip(levels, counts.tolist(), strict=True)) != list(sizes.items()):
        raise GeographyError("its levels are not those of the manifest")
    offsets = np.concatenate([[0], np.cumsum(counts)])
    parents = _plain(table["parent"])
    if parents[0].is_valid or parents.slice(1).null_count or counts[0] != 1:
        raise GeographyError("the first row, and no other, is the root and has no parent")
    families = []
    for above, (begin, end) in zip(itertools.pairwise(offsets[:-1]), itertools.pairwise(offsets[1:]), strict=True):
        place = pc.index_in(parents.slice(begin, end - begin), value_set=geoid.slice(above[0], above[1] - above[0]))
        if place.null_count:
            raise GeographyError("a unit's parent is not of the level above")
        found = place.to_numpy()
        size = np.bincount(found, minlength=above[1] - above[0])
        if (np.diff(found) < 0).any() or not size.all():
            raise GeographyError("siblings do not stand together in the order of their parents")
        families.append(size)
    return Geography(tuple(levels), Tree.from_family_sizes(families), geoid, _plain(table["name"]) if named else None)


def _in_order(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """The rows in batches; reading stops at the first rows that are not in order, as in a file that repeats its
    rows.
    """
    before: pa.RecordBatch | None = None
    for batch in file.iter_batches(_ROWS_AT_ONCE, columns=_COLUMNS):
        pieces = [batch] if before is None else [before, batch]
        geoid, parent = (pa.concat_arrays([one[name].cast(pa.string()) for one in pieces]) for name in _SIBLINGS)
        if not (rises(geoid) | ~stays(parent)).all():
            raise GeographyError("siblings do not stand in the order of their GEOIDs, each once")
        before = batch.slice(len(batch) - 1)
        yield batch


def _plain(column: pa.ChunkedArray) -> pa.Array:
    flat = column.cast(pa.string())
    return flat.chunk(0) if flat.num_chunks == 1 else pa.concat_arrays(flat.chunks)


def _runs(level: pa.Array) -> tuple[list[str], np.ndarray]:
    """The levels in the order of their first rows, with the number of rows of each, which must be consecutive."""
    encoded = level.dictionary_encode()
    codes = encoded.indices.to_numpy()
    if (np.diff(codes) < 0).any() or (np.diff(codes) > 1).any():
        raise GeographyError("the rows of a level do not stand together")
    return encoded.dictionary.to_pylist(), np.bincount(codes)
