"""Known systems of hierarchical codes: the pattern of codes, and the number of characters for the unit of each
level.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from topdown.guess.vocabulary import words_of


def _range(first: int, last: int, digits: int = 2) -> frozenset[str]:
    return frozenset(f"{k:0{digits}d}" for k in range(first, last + 1))


_US = _range(1, 56) - {"03", "07", "14", "43", "52"} | {"60", "66", "69", "72", "78"}
_BRAZIL = frozenset(map(str, (*range(11, 18), *range(21, 30), 31, 32, 33, 35, 41, 42, 43, 50, 51, 52, 53)))
_FRANCE = _range(1, 95) - {"20"} | {"2A", "2B", "97", "98"}
_CANADA = frozenset(["10", "11", "12", "13", "24", "35", "46", "47", "48", "59", "60", "61", "62"])
_CHINA = frozenset(
    [
        "11",
        "12",
        "13",
        "14",
        "15",
        "21",
        "22",
        "23",
        "31",
        "32",
        "33",
        "34",
        "35",
        "36",
        "37",
        "41",
        "42",
        "43",
        "44",
        "45",
        "46",
        "50",
        "51",
        "52",
        "53",
        "54",
        "61",
        "62",
        "63",
        "64",
        "65",
    ]
)


@dataclass(frozen=True)
class CodeSystem:
    """A system of codes: the ``pattern`` of a code, ``widths`` by level below the root, the ``tops`` with which codes
    may begin (None: any), the ``words`` in names of such columns, and the ``root``.
    """

    title: str
    root: str
    pattern: str
    widths: dict[str, int]
    tops: frozenset[str] | None
    words: frozenset[str]

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def fits(self, codes: Sequence[str]) -> bool:
        """Whether all ``codes`` can be of this system."""
        top = next(iter(self.widths.values()))
        return all(
            self._expression.fullmatch(code) is not None and (self.tops is None or code[:top] in self.tops)
            for code in codes
        )

    def after(self, head: str) -> CodeSystem:
        """The same system, of codes with ``head`` before each."""
        widths = {level: len(head) + width for level, width in self.widths.items()}
        return replace(self, pattern=re.escape(head) + self.pattern, widths=widths, tops=None)

    def named_by(self, name: str) -> bool:
        parts = words_of(name)
        pairs = {a + b for a, b in itertools.pairwise(parts)}
        return bool(self.words & {*parts, *pairs, "".join(parts), "".join(parts).rstrip("0123456789")})


def _system(
    title: str, root: str, pattern: str, widths: dict[str, int], tops: frozenset[str] | None, words: str
) -> CodeSystem:
    return CodeSystem(title, root, pattern, widths, tops, frozenset(words.split()))


_US_WORDS = "geography geoid fips fipsno fipscode countyfips statefips geo block tract blockgroup blockid geocode bg"
_COUNTY = {"state": 2, "county": 5}
SYSTEMS = (
    _system("US county", "US", r"\d{5}", _COUNTY, _US, _US_WORDS + " county countyfp cnty"),
    _system("US tract", "US", r"\d{11}", {**_COUNTY, "tract": 11}, _US, _US_WORDS),
    _system(
        "US voting district",
        "US",
        r"\d{5}[0-9A-Z]{6}",
        {**_COUNTY, "voting district": 11},
        _US,
        "geoid vtd vtdgeoid vtdst vtdid cntyvtd voting precinct precinctid",
    ),
    _system("US block group", "US", r"\d{12}", {**_COUNTY, "tract": 11, "block group": 12}, _US, _US_WORDS),
    _system("US block", "US", r"\d{15}", {**_COUNTY, "tract": 11, "block group": 12, "block": 15}, _US, _US_WORDS),
    _system(
        "IBGE",
        "BR",
        r"\d{7}",
        {"state": 2, "municipality": 7},
        _BRAZIL,
        "ibge geocodigo municipio mun codmun codibge geocod",
    ),
    _system(
        "IBGE", "BR", r"\d{6}", {"state": 2, "municipality": 6}, _BRAZIL, "ibge geocodigo municipio mun codmun codibge"
    ),
    _system(
        "IBGE sector",
        "BR",
        r"\d{15}",
        {"state": 2, "municipality": 7, "district": 9, "subdistrict": 11, "sector": 15},
        _BRAZIL,
        "setor sector ibge",
    ),
    _system(
        "INSEE",
        "FR",
        r"(\d{2}|2[AB])\d{3}",
        {"department": 2, "commune": 5},
        _FRANCE,
        "insee codgeo com commune depcom codecommune codeinsee codcom",
    ),
    _system("IRIS", "FR", r"(\d{2}|2[AB])\d{7}", {"department": 2, "commune": 5, "iris": 9}, _FRANCE, "iris codeiris"),
    _system(
        "AGS",
        "DE",
        r"\d{5}",
        {"land": 2, "kreis": 5},
        _range(1, 16),
        "ags krs kreis schluessel schlussel kreisschluessel rs landkreis kennziffer",
    ),
    _system(
        "AGS",
        "DE",
        r"\d{8}",
        {"land": 2, "kreis": 5, "gemeinde": 8},
        _range(1, 16),
        "ags gemeinde schluessel schlussel gkz",
    ),
    _system("ARS", "DE", r"\d{12}", {"land": 2, "kreis": 5, "verband": 9, "gemeinde": 12}, _range(1, 16), "ars rs"),
    _system(
        "NUTS 3",
        "EU",
        r"[A-Z]{2}[0-9A-Z]{3}",
        {"country": 2, "nuts 1": 3, "nuts 2": 4, "nuts 3": 5},
        None,
        "nuts geo nutsid",
    ),
    _system("NUTS 2", "EU", r"[A-Z]{2}[0-9A-Z]{2}", {"country": 2, "nuts 1": 3, "nuts 2": 4}, None, "nuts geo nutsid"),
    _system(
        "INE",
        "ES",
        r"\d{5}",
        {"province": 2, "municipality": 5},
        _range(1, 52),
        "ine codmun municipio muni codine cmun",
    ),
    _system(
        "INE section",
        "ES",
        r"\d{10}",
        {"province": 2, "municipality": 5, "district": 7, "section": 10},
        _range(1, 52),
        "cusec seccion ine",
    ),
    _system("ISTAT", "IT", r"\d{6}", {"province": 3, "comune": 6}, _range(1, 111, 3), "istat procom comune"),
    _system("INEGI", "MX", r"\d{5}", {"state": 2, "municipality": 5}, _range(1, 32), "cve cvegeo inegi clave"),
    _system("DIVIPOLA", "CO", r"\d{5}", {"department": 2, "municipality": 5}, None, "divipola dane"),
    _system("UBIGEO", "PE", r"\d{6}", {"department": 2, "province": 4, "district": 6}, _range(1, 25), "ubigeo"),
    _system(
        "SGC",
        "CA",
        r"\d{7}",
        {"province": 2, "division": 4, "subdivision": 7},
        _CANADA,
        "csduid sgc csd geocode codegeographique geographiccode",
    ),
    _system("SGC", "CA", r"\d{4}", {"province": 2, "division": 4}, _CANADA, "cduid sgc"),
    _system("Dissemination area", "CA", r"\d{8}", {"province": 2, "division": 4, "area": 8}, _CANADA, "dauid"),
    _system("ASGS SA2", "AU", r"[1-9]\d{8}", {"state": 1, "sa4": 3, "sa3": 5, "sa2": 9}, None, "sa2 maincode"),
    _system(
        "ASGS SA1", "AU", r"[1-9]\d{10}", {"state": 1, "sa4": 3, "sa3": 5, "sa2": 9, "sa1": 11}, None, "sa1 maincode"
    ),
    _system(
        "SA2", "NZ", r"[1-9]\d{5}", {"sa2": 6}, None, "sa22018 sa22019 sa22020 sa22021 sa22022 sa22023 sa22024 sa22025"
    ),
    _system(
        "REFNIS", "BE", r"[1-9]\d{4}", {"province": 1, "arrondissement": 2, "commune": 5}, None, "refnis nis niscode"
    ),
    _system("BPS", "ID", r"[1-9]\d{3}", {"provinsi": 2, "kabupaten": 4}, _range(11, 94), "kabupaten kabkota bps"),
    _system(
        "BPS", "ID", r"[1-9]\d{6}", {"provinsi": 2, "kabupaten": 4, "kecamatan": 7}, _range(11, 94), "kecamatan bps"
    ),
    _system("JIS", "JP", r"\d{5}", {"prefecture": 2, "municipality": 5}, _range(1, 47), "jis citycode"),
    _system("GB/T 2260", "CN", r"\d{6}", {"province": 2, "prefecture": 4, "county": 6}, _CHINA, "adcode gbcode"),
    _system("TERYT", "PL", r"\d{7}", {"voivodeship": 2, "powiat": 4, "gmina": 7}, _range(2, 32), "teryt kod"),
    _system("TERYT", "PL", r"\d{4}", {"voivodeship": 2, "powiat": 4}, _range(2, 32), "teryt"),
    _system(
        "PSGC", "PH", r"\d{9}", {"region": 2, "province": 4, "municipality": 6, "barangay": 9}, _range(1, 19), "psgc"
    ),
    _system(
        "PSGC", "PH", r"\d{10}", {"region": 2, "province": 5, "municipality": 7, "barangay": 10}, _range(1, 19), "psgc"
    ),
    _system("DICOFRE", "PT", r"\d{6}", {"district": 2, "municipality": 4, "parish": 6}, None, "dicofre dtmnfr"),
)
"""The systems that `topdown init` knows; where two fit the same codes, the column's name and the other columns decide.
"""
