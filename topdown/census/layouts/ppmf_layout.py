"""The Census Bureau's privacy-protected microdata files (PPMF) of 2020: their columns and codes, for writing and
reading.

A file has a row per person, or per housing unit. Source of columns and codes:
`writer/cef_2020/mdf_validator_classes_pl94.py` of uscensusbureau/DAS_2020_Redistricting_Production_Code. Demonstration
files (vintage 20210428 and others) have an older header, which is read too: VINTAGE in place of the first two columns,
TABTRACT and TABBLKGRP. Its source: the readers of the R package ppmf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import DataError
from topdown.geography.tree import IntArray
from topdown.wording import listed, shown
from topdown.workload.redistricting import PERSONS, UNITS
from topdown.workload.schema import Schema

PLACES = {"TABBLKST": (0, 2), "TABBLKCOU": (2, 5), "TABTRACTCE": (5, 11), "TABBLKGRPCE": (11, 12), "TABBLK": (11, 15)}
"""Where each part of a block's code of 15 digits is."""

BLOCK = "block"
"""The name of the column of blocks in records that were read."""

_BLOCK_PARTS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK")


class PpmfKind(NamedTuple):
    """A kind of file: what its rows are (``words``), the ``type_code`` in the first column, all ``columns``, the
    ``schema``, and by column the attribute that it holds and the code of every category (``codes``). ``others``: codes
    of rows that are not counted.
    """

    words: str
    type_code: str
    columns: tuple[str, ...]
    schema: Schema
    codes: Mapping[str, tuple[str, ...]]
    others: Mapping[str, tuple[str, ...]]


_SHARED = ("SCHEMA_TYPE_CODE", "SCHEMA_BUILD_ID", *PLACES)

_PERSON_CODES = {
    "GQTYPE_PL": tuple(str(k) for k in range(8)),
    "VOTING_AGE": ("1", "2"),
    "CENHISP": ("1", "2"),
    "CENRACE": tuple(f"{k:02d}" for k in range(1, 64)),
}
_UNIT_CODES = {"HH_STATUS": ("2", "1")}

PERSON_FILE = PpmfKind("persons", "MPD", (*_SHARED, "EPNUM", "RTYPE", *_PERSON_CODES), PERSONS, _PERSON_CODES, {})
"""A row per person. RTYPE is 3 in households and 5 in group quarters, CENHISP 2 Hispanic."""

UNIT_FILE = PpmfKind(
    "housing units", "MUD", (*_SHARED, "RTYPE", *_UNIT_CODES), UNITS, _UNIT_CODES, {"HH_STATUS": ("0",)}
)
"""A row per housing unit: RTYPE 2, HH_STATUS 1 occupied and 2 vacant. Group quarters (RTYPE 4, HH_STATUS 0) may be
there, and are no housing units."""

MICRODATA_FILES = (PERSON_FILE, UNIT_FILE)


OLDER_NAMES = {"TABTRACT": "TABTRACTCE", "TABBLKGRP": "TABBLKGRPCE"}
"""Columns with other names in older files."""

_VINTAGE = "VINTAGE"
"""The column of older files in place of the type and the build of a file."""


def names_there(file: PpmfKind, columns: Sequence[str]) -> list[str]:
    """The names in a file of those of its ``columns`` that are read."""
    older = {new: old for old, new in OLDER_NAMES.items() if old in columns}
    left_out = {"EPNUM", "SCHEMA_BUILD_ID", *(("SCHEMA_TYPE_CODE",) if _VINTAGE in columns else ())}
    return [older.get(name, name) for name in file.columns if name not in left_out]


def _as_named(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with the current names of an older file's columns."""
    return batch.rename_columns([OLDER_NAMES.get(name, name) for name in batch.schema.names])


def file_of_schema(schema: Schema) -> PpmfKind | None:
    """The kind of file that records of ``schema`` go into, None where there is none."""
    return next((one for one in MICRODATA_FILES if one.schema.attributes == schema.attributes), None)


def file_of_columns(columns: list[str], what: str) -> PpmfKind:
    """The kind of file that has ``columns``. Raises `DataError` naming ``what``, and the columns that are missing."""
    there = {"EPNUM", *(OLDER_NAMES.get(name, name) for name in columns)}
    if _VINTAGE in there:
        there |= {"SCHEMA_TYPE_CODE", "SCHEMA_BUILD_ID"}
    lacking = [(one, [name for name in one.columns if name not in there]) for one in MICRODATA_FILES]
    file, lacks = min(lacking, key=lambda pair: len(pair[1]))
    if lacks:
        raise DataError(
            f"{what}: is no privacy-protected microdata file of 2020: columns {listed(lacks)} are not there; give the "
            "file of persons or of housing units, with its header"
        )
    return file


def coded(file: PpmfKind, cells: IntArray, first: int) -> dict[str, pa.Array]:
    """The columns of records in ``cells`` of the file's schema, of which the first has the number ``first``."""
    places = np.unravel_index(cells, file.schema.shape)
    found = {
        name: pa.array(codes).take(pa.array(place))
        for (name, codes), place in zip(file.codes.items(), places, strict=True)
    }
    found["SCHEMA_TYPE_CODE"] = pa.repeat(file.type_code, len(cells))
    if file is PERSON_FILE:
        found["EPNUM"] = pa.array(np.arange(first, first + len(cells))).cast(pa.string())
        found["RTYPE"] = pa.array(["3", "5"]).take(pa.array((places[0] > 0).astype(np.int8)))
    else:
        found["RTYPE"] = pa.repeat("2", len(cells))
    return found


def records(file: PpmfKind, batches: Iterator[pa.RecordBatch], what: str) -> Iterator[pa.RecordBatch]:
    """Rows of the file as records: the column `BLOCK`, and one per attribute with its category.

    Raises `DataError` naming ``what``, the row and the column of a code that the layout does not have.
    """
    begin = 0
    categories = zip(file.codes.items(), file.schema.attributes, strict=True)
    known = {name: (one.name, pa.array(codes), pa.array(list(one.categories))) for (name, codes), one in categories}
    for batch in map(_as_named, batches):
        columns = {name: batch[name].cast(pa.string()) for name in (*_BLOCK_PARTS, *known)}
        if "SCHEMA_TYPE_CODE" in batch.schema.names:  # the kind of older files is known only from their columns
            kind = batch["SCHEMA_TYPE_CODE"].cast(pa.string())
            _require(kind, pa.array([file.type_code]), f"{what}: column SCHEMA_TYPE_CODE", begin)
        kept = np.ones(batch.num_rows, bool)
        for name, others in file.others.items():
            kept &= ~pc.is_in(columns[name], value_set=pa.array(others)).to_numpy(zero_copy_only=False)
        block = pc.binary_join_element_wise(*(columns[name] for name in _BLOCK_PARTS), "")
        right = pc.match_substring_regex(block, "^[0-9]{15}$").fill_null(False).to_numpy(zero_copy_only=False)
        if not right.all():
            row = begin + int(np.flatnonzero(~right)[0])
            raise DataError(
                f"{what}: row {row + 1:,} has no block of 15 digits in {listed(_BLOCK_PARTS)}; give codes as text, "
                "with their leading zeros"
            )
        found = {BLOCK: block}
        for name, (attribute, codes, names) in known.items():
            place = pc.index_in(columns[name], value_set=codes)
            missing = place.is_null().to_numpy(zero_copy_only=False) & kept
            if missing.any():
                row = begin + int(np.flatnonzero(missing)[0])
                raise DataError(
                    f"{what}: column {name}: row {row + 1:,} has a code that is none of {listed(codes.to_pylist())}; "
                    "correct the file"
                )
            found[attribute] = names.take(place)
        begin += batch.num_rows
        yield pa.RecordBatch.from_pydict(found).filter(pa.array(kept))


def _require(column: pa.Array, codes: pa.Array, what: str, begin: int) -> None:
    wrong = pc.is_null(pc.index_in(column, value_set=codes)).to_numpy(zero_copy_only=False)
    if wrong.any():
        row = begin + int(np.flatnonzero(wrong)[0])
        raise DataError(f"{what}: row {row + 1:,} is not {shown(codes[0].as_py())}; give a file of one kind")
