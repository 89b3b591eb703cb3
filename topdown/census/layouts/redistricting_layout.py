"""The redistricting file (P.L. 94-171) in its layout of 2020: reads and writes its four members.

Text without a header, "|" between fields, a record per unit of every summary level; segments 1 to 3 hold the tables and
join to the geographic header by record number. Members are recognised by their number of fields, so that the file names
of any vintage are accepted. Source: the layout in the R package PL94171 and the Census Bureau's documentation of the
2020 file.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from topdown.errors import DataError
from topdown.machine.files import file_digest
from topdown.machine.memory import most_at_once, too_large
from topdown.tables.readers import require_regular
from topdown.wording import listed, reason, shown, shown_path
from topdown.workload.redistricting import RACE_FIELDS, TABLES, field_names

_FIELDS = """
FILEID STUSAB SUMLEV GEOVAR GEOCOMP CHARITER CIFSN LOGRECNO GEOID GEOCODE REGION DIVISION STATE STATENS COUNTY
COUNTYCC COUNTYNS COUSUB COUSUBCC COUSUBNS SUBMCD SUBMCDCC SUBMCDNS ESTATE ESTATECC ESTATENS CONCIT CONCITCC
CONCITNS PLACE PLACECC PLACENS TRACT BLKGRP BLOCK AIANHH AIHHTLI AIANHHFP AIANHHCC AIANHHNS AITS AITSFP AITSCC
AITSNS TTRACT TBLKGRP ANRC ANRCCC ANRCNS CBSA MEMI CSA METDIV NECTA NMEMI CNECTA NECTADIV CBSAPCI NECTAPCI UA
UATYPE UR CD116 CD118 CD119 CD120 CD121 SLDU18 SLDU22 SLDU24 SLDU26 SLDU28 SLDL18 SLDL22 SLDL24 SLDL26 SLDL28
VTD VTDI ZCTA SDELM SDSEC SDUNI PUMA AREALAND AREAWATR BASENAME NAME FUNCSTAT GCUNI POP100 HU100 INTPTLAT
INTPTLON LSADC PARTFLAG UGA
"""

HEADER = tuple(_FIELDS.split())
"""The geographic header's 97 fields."""

SEGMENTS: dict[str, tuple[str, ...]] = {"01": ("P1", "P2"), "02": ("P3", "P4", "H1"), "03": ("P5",)}
"""The tables of every segment, by the number that its records carry."""

LINK = ("FILEID", "STUSAB", "CHARITER", "CIFSN", "LOGRECNO")
"""The first fields of a segment's records."""

LEVELS = {"040": "state", "050": "county", "140": "tract", "150": "block group", "750": "block"}
"""The summary levels of the spine, in its order."""

WIDTHS = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 15}
"""How many characters of a block's GEOCODE identify its unit of every level."""

_ENCODING = "latin-1"
_SUFFIX = ".pl"

_UNREADABLE = (OSError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""The errors for a missing file, and for an archive that is damaged or compressed in an unknown way."""


def segment_columns(segment: str) -> list[str]:
    """The names of the fields of a segment's records."""
    return [*LINK, *(name for table in SEGMENTS[segment] for name in field_names(table))]


def read_members(path: Path) -> dict[str, pa.Table]:
    """The four members of the file in a folder or a ZIP archive, "geo" and "01" to "03", every field as text.

    Raises `DataError` naming the path for a member that is missing, there twice, or not of the layout.
    """
    found: dict[str, pa.Table] = {}
    for name, content in _members(path):
        kind, table = _parsed(content, f"{shown_path(path)}, member {shown_path(name)}")
        if kind in found:
            raise DataError(
                f"{shown_path(path)}: two members are of the kind {kind!r}; give the file of one state, as it is "
                "delivered"
            )
        found[kind] = table
    missing = [kind for kind in ("geo", *SEGMENTS) if kind not in found]
    if missing:
        raise DataError(
            f"{shown_path(path)}: the members {listed(missing)} are missing ('geo' is the geographic header, the "
            "others are segments); give the folder or the ZIP with all four .pl files"
        )
    return found


def read_header(path: Path) -> pa.Table:
    """The geographic header of the file in a folder or a ZIP archive, or of the member itself, every field as text.

    Raises `DataError` naming the path where there is none.
    """
    for name, content in _members(path):
        kind, table = _parsed(content, f"{shown_path(path)}, member {shown_path(name)}")
        if kind == "geo":
            return table
    raise DataError(f"{shown_path(path)}: no geographic header is there; give the folder, the ZIP or the header's file")


def digest(path: Path) -> str:
    """SHA-256 of a ZIP's content; of a folder that of its members' names and digests. Raises `OSError`, and `DataError`
    for what is no file.
    """
    if not path.is_dir():
        return file_digest(require_regular(path))
    told = "".join(f"{one.name}\0{file_digest(one)}\n" for one in _in_folder(path))
    return hashlib.sha256(told.encode()).hexdigest()


def _in_folder(path: Path) -> list[Path]:
    return sorted(require_regular(one) for one in path.iterdir() if one.suffix == _SUFFIX)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The members of a folder or a ZIP archive, or the one that ``path`` is, with their names."""
    try:
        require_regular(path)
        if path.is_dir() or path.suffix == _SUFFIX:
            names = _in_folder(path) if path.is_dir() else [path]
            _require_room(path, sum(one.stat().st_size for one in names))
            for one in names:
                yield one.name, one.read_bytes()
            return
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(_SUFFIX)]
            _require_room(path, sum(entry.file_size for entry in entries))
            for entry in entries:
                with archive.open(entry) as member:
                    # At most as much as the archive states, for which memory was checked.
                    yield entry.filename, member.read(entry.file_size)
    except _UNREADABLE as error:
        raise DataError(
            f"{shown_path(path)}: cannot be read: {reason(error)}; give the folder or the ZIP with the four .pl files"
        ) from None


def _require_room(path: Path, size: int) -> None:
    most = most_at_once()
    if most is not None and 4 * size > most:
        raise too_large(path, "when its text is read", most)


def _parsed(content: bytes, what: str) -> tuple[str, pa.Table]:
    first = content.split(b"\n", 1)[0].rstrip(b"\r")
    width = first.count(b"|") + 1
    # Segments end with a "|" in some vintages.
    kinds = {len(HEADER): ("geo", list(HEADER))} | {len(segment_columns(s)): (s, segment_columns(s)) for s in SEGMENTS}
    kinds |= {count + 1: (kind, [*names, ""]) for count, (kind, names) in list(kinds.items()) if kind != "geo"}
    if width not in kinds:
        raise DataError(
            f"{what}: its records have {width} fields; those of the layout of 2020 have {len(HEADER)} (geographic "
            f"header) or {', '.join(str(len(segment_columns(s))) for s in SEGMENTS)} (segments)"
        )
    kind, names = kinds[width]
    try:
        table = pacsv.read_csv(
            pa.BufferReader(content),
            pacsv.ReadOptions(column_names=names, encoding=_ENCODING),
            pacsv.ParseOptions(delimiter="|", quote_char=False),
            pacsv.ConvertOptions(column_types={name: pa.string() for name in names}, strings_can_be_null=False),
        )
    except pa.ArrowException as error:
        raise DataError(f"{what}: cannot be read: {reason(error)}; give the file as it is delivered") from None
    if kind != "geo" and set(table["CIFSN"].unique().to_pylist()) != {kind}:
        raise DataError(f"{what}: has the fields of segment {kind} and records of others; give it as it is delivered")
    return kind, table


def sums_within(table: str) -> list[tuple[int, list[int]]]:
    """What must add up inside a table: fields (from 1) and the fields of which each is the sum."""
    if table == "H1":
        return [(1, [2, 3])]
    if table == "P5":
        return [(1, [2, 7]), (2, [3, 4, 5, 6]), (7, [8, 9, 10])]
    shift = TABLES[table] - len(RACE_FIELDS)
    found = [(1, [2, 3])] if shift else []
    single = RACE_FIELDS.sum(axis=1)
    for field, row in enumerate(RACE_FIELDS):
        if single[field] > 1:
            members = [k for k in range(len(RACE_FIELDS)) if single[k] == 1 and row[RACE_FIELDS[k] == 1][0]]
            # Of the fields that count the same combination of races the last.
            members = sorted({RACE_FIELDS[k].tobytes(): k for k in members}.values())
            found.append((field + 1 + shift, [k + 1 + shift for k in members]))
    # Six single races, and the one combination of all six.
    return [*found, (len(RACE_FIELDS) - 1 + shift, [len(RACE_FIELDS) + shift])]


def numbers(table: pa.Table, columns: list[str], what: str) -> npt.NDArray[np.int64]:
    """Some fields of all records as whole numbers (records x fields).

    Raises `DataError` naming the field and the line for one that is none.
    """
    found = np.empty((len(columns), table.num_rows), np.int64)
    for row, name in enumerate(columns):
        try:
            found[row] = table[name].cast(pa.int64()).to_numpy()
        except pa.ArrowException:
            texts = table[name].to_pylist()
            wrong = next(k for k, text in enumerate(texts) if not text.isdecimal() or len(text.lstrip("0")) > 18)
            raise DataError(
                f"{what}, field {name}: line {wrong + 1} has no whole number there; correct the file"
            ) from None
    return found.T


def write_member(path: Path, columns: Iterable[Mapping[str, pa.Array]]) -> None:
    """Write a member as records of ``columns``, text and whole numbers, batch by batch. Raises `OSError`.

    Texts must be in the file's encoding and have no separators of fields or records (`require_text`).
    """
    options = pacsv.WriteOptions(include_header=False, delimiter="|", quoting_style="none")
    with path.open("wb") as file:
        for batch in columns:
            table = pa.table({name: array.cast(pa.string()) for name, array in batch.items()})
            with io.BytesIO() as content:
                pacsv.write_csv(table, content, options)
                file.write(content.getvalue().decode().encode(_ENCODING))


def require_text(texts: pa.Array, what: str) -> None:
    """Refuse texts that no field can hold. Raises `DataError` quoting the first, a ``what``."""
    for text in pc.unique(texts.drop_null()).to_pylist():
        if not text.isprintable() or "|" in text or '"' in text or not _encodes(text):
            raise DataError(
                f"{what} {shown(text)}: a redistricting file has Latin-1 text without '|', quotes and line ends; "
                "rename it"
            )


def _encodes(text: str) -> bool:
    try:
        return bool(text.encode(_ENCODING)) or not text
    except UnicodeEncodeError:
        return False
