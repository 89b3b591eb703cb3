"""What the 2020 spines follow: American Indian areas, places, county subdivisions, and of the DHC school districts.

Source: `source/programs/geographic_spines/define_spines.py`, `source/etc/AIANNHCE_ranges.csv` and
`source/programs/reader/table_reader.py` of uscensusbureau/DAS_2020_Redistricting_Production_Code; of the Demographic
and Housing Characteristics (DHC) `das_decennial/programs/geographic_spines/` of
uscensusbureau/DAS_2020_DHC_Production_Code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from topdown.census.layouts.noisy_layout import PUERTO_RICO
from topdown.errors import DataError
from topdown.planning.spines import SQRT, capped
from topdown.wording import shown

COLUMNS_OFF_SPINE = {"AIANNHCE": 4, "COUSUBFP": 5, "PLACEFP": 5}
"""The columns of a block's American Indian, Alaska Native or Hawaiian area, county subdivision and place, and how many
digits each has."""
SCHOOL_COLUMNS = {"SDUNILEA": 5, "SDSECLEA": 5, "SDELMLEA": 5}
"""The columns of a block's unified, secondary and elementary school district."""
STATUS_COLUMNS = ("COUSUBFS", "PLACEFS")
"""The columns of the functional status, a letter, of a block's county subdivision and of its place."""
_AIAN_RANGES = (("0001", "4989"), ("5000", "7999"), ("9000", "9499"))
"""The codes of the seven kinds of areas that split a state; not tribal designated (8000 to 8999) and state designated
statistical areas (9500 to 9998), and 9999 is none."""
NO_AIAN_AREA = "9999"
_STRONG_SUBDIVISIONS = frozenset({"09", "23", "25", "26", "27", "33", "34", "36", "42", "44", "50", "55"})
"""The states whose county subdivisions govern, in which groups of blocks follow these in place of places."""
_NOWHERE = "99999"
_GOVERNS, _INCORPORATED = frozenset("ABC"), frozenset("ABF")
"""The functional status of county subdivisions that make a county one with such, and of places that count."""
_ALSO_PLACES = frozenset({("22", "36255"), ("11", "50000"), ("15", "71550"), ("20", "71450")})
"""States' places that count whatever their status."""


class OffSpine(NamedTuple):
    """Of blocks, by GEOID: the ``part`` of their state ("1" in an American Indian area of the kinds that split it, "0"
    elsewhere), that area (``aian``), and the place or subdivision (``place``) that groups of blocks follow."""

    part: dict[str, str]
    aian: dict[str, str]
    place: dict[str, str]


def off_spine(blocks: Sequence[str], columns: Mapping[str, Sequence[str]]) -> OffSpine:
    """What ``blocks`` (GEOIDs) lie in, by the ``columns`` `COLUMNS_OFF_SPINE`, one entry a block.

    Raises `DataError` naming the column and the block for a code that is missing or of another length.
    """
    _require_codes(blocks, columns, COLUMNS_OFF_SPINE)
    found = OffSpine({}, {}, {})
    for block, aian, subdivision, place in zip(blocks, *(columns[name] for name in COLUMNS_OFF_SPINE), strict=True):
        inside = any(low <= aian <= high for low, high in _AIAN_RANGES)
        found.part[block] = "1" if inside else "0"
        found.aian[block] = aian if inside else NO_AIAN_AREA
        found.place[block] = subdivision if block[:2] in _STRONG_SUBDIVISIONS and not inside else place
    return found


class OffDhcSpine(NamedTuple):
    """Of blocks, by GEOID, what the DHC's spine follows beside `OffSpine`: the county subdivision and place that divide
    their county (``mcd_place``), the group of tracts of such a piece that they lie in (``tract_group``), and their
    ``school`` districts, empty where these are not known."""

    mcd_place: dict[str, str]
    tract_group: dict[str, str]
    school: dict[str, str]


def off_dhc_spine(blocks: Sequence[str], columns: Mapping[str, Sequence[str]], part: Mapping[str, str]) -> OffDhcSpine:
    """What ``blocks`` (GEOIDs), each in its ``part`` of a state, lie in by the ``columns``, one entry a block.

    A piece of a county is a county subdivision, in counties with subdivisions that govern, and a place, if it is
    incorporated; of Puerto Rico it is the county. Without `STATUS_COLUMNS` subdivisions govern in the twelve states of
    `OffSpine`, and every place counts. The tracts of a piece are in as few groups of equal size as have at most
    sqrt(tracts) + 12. Raises `DataError` as `off_spine`.
    """
    _require_codes(blocks, columns, {name: w for name, w in SCHOOL_COLUMNS.items() if name in columns})
    status = all(name in columns for name in STATUS_COLUMNS)
    standing = columns["COUSUBFS"] if status else [""] * len(blocks)
    with_subdivisions = {block[:5] for block, one in zip(blocks, standing, strict=True) if one in _GOVERNS}
    mcd_place = {}
    for number, block in enumerate(blocks):
        state, subdivision, place = block[:2], columns["COUSUBFP"][number], columns["PLACEFP"][number]
        governs = block[:5] in with_subdivisions if status else state in _STRONG_SUBDIVISIONS
        if status and columns["PLACEFS"][number] not in _INCORPORATED and (state, place) not in _ALSO_PLACES:
            place = _NOWHERE
        known = state != PUERTO_RICO
        mcd_place[block] = (subdivision if governs and known else _NOWHERE) + (place if known else _NOWHERE)
    pieces = [f"{block[:5]}{part[block]}{mcd_place[block]}" for block in blocks]
    tracts, tract = np.unique([piece + block[5:11] for piece, block in zip(pieces, blocks, strict=True)],
                              return_inverse=True)  # fmt: skip
    piece = np.unique([one[: len(pieces[0])] for one in tracts.tolist()], return_inverse=True)[1].reshape(-1)
    group = capped([piece, piece], SQRT)[tract.reshape(-1)]
    tract_group = dict(zip(blocks, map(str, group.tolist()), strict=True))
    there = [columns[name] for name in SCHOOL_COLUMNS if name in columns]
    school = {block: "".join(codes) for block, *codes in zip(blocks, *there, strict=True)} if there else {}
    return OffDhcSpine(mcd_place, tract_group, school)


def _require_codes(blocks: Sequence[str], columns: Mapping[str, Sequence[str]], widths: Mapping[str, int]) -> None:
    """Refuse a code that is missing or of another length, naming the column and the block."""
    for name, width in widths.items():
        for block, code in zip(blocks, columns[name], strict=True):
            if code is None or len(code) != width or not code.isdecimal():
                raise DataError(
                    f"block {shown(block)}: {name} is {shown(code)}; give {width} digits, with leading zeros, and "
                    "nines where it lies in none"
                )
