"""Writes a release in the format of the Census Bureau's privacy-protected microdata: a row per person, or per housing
unit. The records are synthetic; tabulated, they give the release.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from topdown.census.layouts.ppmf_layout import (
    BLOCK,
    PERSON_FILE,
    PLACES,
    UNIT_FILE,
    PpmfKind,
    coded,
    file_of_schema,
    records,
)
from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.machine.files import whole_file
from topdown.machine.software import version_of
from topdown.release.whole_counts import Release
from topdown.tables.tidy import named_failures
from topdown.wording import listed, shown_path
from topdown.workload import Schema

_LARGEST_NUMBER = 999_999_999
_ROWS_AT_ONCE = 1 << 18


def write_ppmf(release: Release, path: str | Path) -> Path:
    """Write a release of blocks as a privacy-protected microdata file; returns its path.

    Comma-separated text with a header, a row per record, by block and cell. Persons are numbered from 0 (EPNUM); RTYPE
    is 3 in households and 5 in group quarters, GQTYPE_PL 0 to 7 the kind of residence, VOTING_AGE 1 below 18, CENHISP 2
    Hispanic, CENRACE 01 to 63. Of housing units RTYPE is 2, HH_STATUS 1 occupied and 2 vacant. The file appears when
    its records, read back and tabulated, equal the release. Raises `ConfigError` for another schema, `DataError` for
    leaves that are no blocks of 15 digits, and where it cannot be written.

    Args:
        release: of persons or of housing units, by the attributes of the redistricting file, with blocks as leaves.
        path: the file to write.

    Examples:
        >>> blocks = {"county": ["44001"], "tract": ["44001030100"], "block": ["440010301001000"]}
        >>> geography = td.Geography.from_table(blocks, levels=["county", "tract", "block"])
        >>> units = td.Schema.from_mapping({"h1": ["vacant", "occupied"]})
        >>> homes = td.Release.of_values(
        ...     geography, units.cells(), np.array([[1, 3]] * 3), method="joint", fit_for_release=False, schema=units
        ... )
        >>> len(td.write_ppmf(homes, "units.csv").read_text().splitlines())  # a header, and a line a unit
        5
    """
    path = Path(path)
    file, blocks = require_ppmf(release.geography, release.schema)
    block, cells, counts = release.entries_of(release.geography.tree.leaves)
    if counts.sum() > _LARGEST_NUMBER + 1:
        raise DataError(f"{int(counts.sum()):,} {file.words} are more than the file's numbers reach; write it by state")
    with named_failures(path), whole_file(path) as partial:
        schema = pa.schema([(name, pa.string()) for name in file.columns])
        options = pacsv.WriteOptions(include_header=False, quoting_style="none")
        with partial.open("wb") as stream:
            stream.write((",".join(file.columns) + "\n").encode())  # Arrow would quote the names
            with pacsv.CSVWriter(stream, schema, write_options=options) as writer:
                for batch in _batches(file, blocks, block, cells, counts):
                    writer.write_batch(batch)
        keys = block * file.schema.n_cells + cells
        _require_equal(file, partial, path, blocks, keys, counts)
    return path


def require_ppmf(geography: Geography, schema: Schema) -> tuple[PpmfKind, pa.Array]:
    """The file that a release of ``schema`` is written as, and its blocks; raises, before there are counts, what
    `write_ppmf` does for another schema and other leaves."""
    file = file_of_schema(schema)
    if file is None:
        raise ConfigError(
            f"the release's attributes are {listed(schema.names)}, and such a file is made of "
            f"{listed(PERSON_FILE.schema.names)} (persons) or {listed(UNIT_FILE.schema.names)} (housing units), with "
            "their categories (topdown.workload.redistricting)"
        )
    leaves = geography.tree.leaves
    blocks = geography.identifiers[leaves.start :]
    right = pc.match_substring_regex(blocks, r"^[0-9]{15}$").to_numpy(zero_copy_only=False)
    if not right.all():
        node = leaves.start + int(np.flatnonzero(~right)[0])
        raise DataError(f"{geography.describe(node)}: blocks of this file have codes of 15 digits")
    return file, blocks


def _batches(
    file: PpmfKind, blocks: pa.Array, block: IntArray, cells: IntArray, counts: IntArray
) -> Iterator[pa.RecordBatch]:
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for begin in range(0, total, _ROWS_AT_ONCE):
        number = np.arange(begin, min(begin + _ROWS_AT_ONCE, total))
        entry = np.searchsorted(ends, number, side="right")
        code = blocks.take(pa.array(block[entry]))
        columns = {name: pc.utf8_slice_codeunits(code, *place) for name, place in PLACES.items()}
        columns |= {"SCHEMA_BUILD_ID": pa.repeat(version_of(), len(number))}
        columns |= coded(file, cells[entry], begin)
        yield pa.RecordBatch.from_pydict({name: columns[name] for name in file.columns})


def _require_equal(
    file: PpmfKind, partial: Path, path: Path, blocks: pa.Array, keys: IntArray, counts: IntArray
) -> None:
    """Refuse records that, read back, are others than the entries ``keys`` (block * cells + cell) with their counts."""
    kinds = pacsv.ConvertOptions(column_types=dict.fromkeys(file.columns, pa.string()))
    found = np.zeros(len(keys), np.int64)
    with pacsv.open_csv(partial, convert_options=kinds) as reader:
        for batch in records(file, iter(reader), shown_path(path)):
            place = pc.index_in(batch[BLOCK], value_set=blocks)
            cell = np.zeros(batch.num_rows, np.int64)
            for attribute in file.schema.attributes:
                among = pa.array(list(attribute.categories))
                cell = cell * len(among) + pc.index_in(batch[attribute.name], value_set=among).to_numpy()
            key = place.to_numpy(zero_copy_only=False) * file.schema.n_cells + cell
            entry = np.minimum(np.searchsorted(keys, key), max(0, len(keys) - 1))
            if place.null_count or not np.array_equal(keys[entry], key):
                raise DataError(f"{shown_path(path)}: the records read back are not those of the release")
            found += np.bincount(entry, minlength=len(keys))
    if not np.array_equal(found, counts):
        raise DataError(f"{shown_path(path)}: the records read back do not add up to the release; nothing was written")
