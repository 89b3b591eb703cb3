"""Records of a release in the columns of the Census Bureau's privacy-protected microdata file (PPMF) of 2020, persons.

A record per person: who is described is made up, and tabulated the records give back the release. Source of the columns
and codes: `writer/cef_2020/mdf_validator_classes_pl94.py` of uscensusbureau/DAS_2020_Redistricting_Production_Code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from topdown.errors import DataError
from topdown.geography.tree import IntArray
from topdown.machine.files import whole_file
from topdown.machine.software import version_of
from topdown.release.histograms import HistogramRelease
from topdown.wording import FAILED, listed, reason, shown_path
from topdown.workload.redistricting import PERSONS

PPMF_COLUMNS = (
    "SCHEMA_TYPE_CODE",
    "SCHEMA_BUILD_ID",
    "TABBLKST",
    "TABBLKCOU",
    "TABTRACTCE",
    "TABBLKGRPCE",
    "TABBLK",
    "EPNUM",
    "RTYPE",
    "GQTYPE_PL",
    "VOTING_AGE",
    "CENHISP",
    "CENRACE",
)
"""The file's columns, of which the second says who wrote it."""

_PLACES = {"TABBLKST": (0, 2), "TABBLKCOU": (2, 5), "TABTRACTCE": (5, 11), "TABBLKGRPCE": (11, 12), "TABBLK": (11, 15)}
"""Where each part of a block's code of 15 digits is."""

_LARGEST_NUMBER = 999_999_999
_ROWS_AT_ONCE = 1 << 18


def write_ppmf(release: HistogramRelease, path: str | Path) -> Path:
    """Write ``release``, of persons by the redistricting file's attributes in blocks, as one file; returns its path.

    Comma-separated text with a header, a row per person, by block and cell, numbered from 0 (EPNUM). RTYPE is 3 in
    households and 5 in group quarters, GQTYPE_PL 0 to 7 the kind of residence, VOTING_AGE 1 below 18, CENHISP 2
    Hispanic, CENRACE 01 to 63. The file appears when its records, read back and tabulated, equal the release. Raises
    `DataError` for another schema, for leaves that are no blocks of 15 digits, and where it cannot be written.
    """
    path = Path(path)
    if release.schema.attributes != PERSONS.attributes:
        raise DataError(
            f"the release's attributes are {listed(release.schema.names)}, and this file is made of "
            f"{listed(PERSONS.names)} with their categories (topdown.workload.redistricting.PERSONS)"
        )
    geography, leaves = release.geography, release.geography.tree.leaves
    blocks = geography.identifiers[leaves.start :]
    right = pc.match_substring_regex(blocks, r"^[0-9]{15}$").to_numpy(zero_copy_only=False)
    if not right.all():
        node = leaves.start + int(np.flatnonzero(~right)[0])
        raise DataError(f"{geography.describe(node)}: a block of this file has a code of 15 digits")
    begin = int(release.starts[leaves.start])
    counts = release.counts[begin:]
    if counts.sum() > _LARGEST_NUMBER + 1:
        raise DataError(f"{int(counts.sum()):,} persons are more than the file's numbers reach; write it by state")
    block = np.repeat(np.arange(geography.n_leaves), np.diff(release.starts[leaves.start :]))
    try:
        with whole_file(path) as partial:
            schema = pa.schema([(name, pa.string()) for name in PPMF_COLUMNS])
            options = pacsv.WriteOptions(include_header=False, quoting_style="none")
            with partial.open("wb") as file:
                file.write((",".join(PPMF_COLUMNS) + "\n").encode())  # Arrow would quote the names
                with pacsv.CSVWriter(file, schema, write_options=options) as writer:
                    for batch in _batches(blocks, block, release.cells[begin:], counts):
                        writer.write_batch(batch)
            _require_equal(partial, blocks, block * PERSONS.n_cells + release.cells[begin:], counts)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path"
        ) from None
    return path


def _batches(blocks: pa.Array, block: IntArray, cells: IntArray, counts: IntArray) -> Iterator[pa.RecordBatch]:
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for begin in range(0, total, _ROWS_AT_ONCE):
        number = np.arange(begin, min(begin + _ROWS_AT_ONCE, total))
        entry = np.searchsorted(ends, number, side="right")
        kind, age, hispanic, race = np.unravel_index(cells[entry], PERSONS.shape)
        code = blocks.take(pa.array(block[entry]))
        columns = {name: pc.utf8_slice_codeunits(code, *place) for name, place in _PLACES.items()}
        columns |= {
            "SCHEMA_TYPE_CODE": pa.repeat("MPD", len(number)),
            "SCHEMA_BUILD_ID": pa.repeat(version_of(), len(number)),
            "EPNUM": _text(number),
            "RTYPE": _text(np.where(kind == 0, 3, 5)),
            "GQTYPE_PL": _text(kind),
            "VOTING_AGE": _text(age + 1),
            "CENHISP": _text(hispanic + 1),
            "CENRACE": pc.utf8_lpad(_text(race + 1), 2, "0"),
        }
        yield pa.RecordBatch.from_pydict({name: columns[name] for name in PPMF_COLUMNS})


def _text(numbers: IntArray) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _require_equal(path: Path, blocks: pa.Array, keys: IntArray, counts: IntArray) -> None:
    """Refuse records that, read back, are others than the entries ``keys`` (block * cells + cell) with their counts."""
    kinds = pacsv.ConvertOptions(column_types=dict.fromkeys(PPMF_COLUMNS, pa.string()))
    found = np.zeros(len(keys), np.int64)
    with pacsv.open_csv(path, convert_options=kinds) as reader:
        for batch in reader:
            parts = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK")
            code = pc.binary_join_element_wise(*(batch[name] for name in parts), "")
            place = pc.index_in(code, value_set=blocks)
            cell = np.zeros(batch.num_rows, np.int64)
            for name, size, first in zip(PPMF_COLUMNS[9:], PERSONS.shape, (0, 1, 1, 1), strict=True):
                cell = cell * size + batch[name].cast(pa.int64()).to_numpy() - first
            key = place.to_numpy(zero_copy_only=False) * PERSONS.n_cells + cell
            entry = np.minimum(np.searchsorted(keys, key), max(0, len(keys) - 1))
            if place.null_count or not np.array_equal(keys[entry], key):
                raise DataError(f"{shown_path(path)}: the records read back are not those of the release")
            found += np.bincount(entry, minlength=len(keys))
    if not np.array_equal(found, counts):
        raise DataError(f"{shown_path(path)}: the records read back do not add up to the release; nothing was written")
