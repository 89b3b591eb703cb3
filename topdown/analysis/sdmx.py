"""A release as SDMX-CSV 2.0 with its structure as SDMX-ML 3.0, in which statistical offices exchange tables.

Source: SDMX 3.0, section 3B (SDMX-ML) and the specification of SDMX-CSV 2.0.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import XMLGenerator  # nosec B406 # writes, and parses nothing
from xml.sax.xmlreader import AttributesImpl  # nosec B406 # writes alone: no XML is read here

import numpy as np
import pyarrow as pa

from topdown.analysis.stated_numbers import StatedNumbers, long_batches
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.machine.files import whole_file
from topdown.release.answer_files import BoundedCounts
from topdown.tables.count_reliability import CLASSES, reliability_of
from topdown.tables.geography_table import geography_batches
from topdown.tables.tidy import write_csv
from topdown.wording import escaped, shown

DATA, STRUCTURE = "data.csv", "structure.xml"

_SDMX = "http://www.sdmx.org/resources/sdmxml/schemas/v3_0"
_SPACES = {"mes": f"{_SDMX}/message", "str": f"{_SDMX}/structure", "com": f"{_SDMX}/common"}
_URN = "urn:sdmx:org.sdmx.infomodel"
_ID = re.compile(r"[A-Za-z0-9_@$\-]+")
_VERSION = "1.0.0"
_FLOW, _DSD, _AREAS, _INDICATORS, _CLASSES = "RELEASE", "DSD_RELEASE", "CL_AREA", "CL_INDICATOR", "CL_RELIABILITY"
_CONCEPTS = {
    "REF_AREA": "Unit",
    "INDICATOR": "What is counted",
    "TIME_PERIOD": "Time that is counted",
    "OBS_VALUE": "Released count: whole, 0 or more, adding up",
    "LEVEL": "Level of the unit",
    "LOWER": "Least true count within the margin of error",
    "UPPER": "Greatest true count within the margin of error; empty where nothing limits it",
    "MOE": "Half of UPPER less LOWER",
    "CV": "Coefficient of variation; empty where the count is 0",
    "RELIABILITY": "Class of the coefficient of variation",
}
_ATTRIBUTES = {"LEVEL": None, "LOWER": None, "UPPER": None, "MOE": None, "CV": None, "RELIABILITY": _CLASSES}
"""The attributes of an observation, each with its code list."""


def require_sdmx(geography: Geography) -> None:
    """Refuse GEOIDs that cannot be SDMX codes. Raises `DataError`."""
    for batch in geography_batches(geography):
        for code in batch["geoid"].to_pylist():
            if _ID.fullmatch(code) is None:
                raise DataError(
                    f"unit {shown(code)} cannot be a code in SDMX, which allows letters, digits and _ @ $ - only; "
                    "choose another format"
                )


def write_sdmx(numbers: StatedNumbers, folder: Path, title: str, catalogue: Mapping[str, Any]) -> list[Path]:
    """Write the data and their structure into ``folder``, which exists. ``catalogue``: publisher and period; a year, a
    month or a day becomes TIME_PERIOD. Raises `DataError` as `require_sdmx` does.
    """
    require_sdmx(numbers.geography)
    agency = re.sub(r"[^A-Za-z0-9_\-]+", "_", str(catalogue.get("publisher") or "")).strip("_-")
    agency = agency if re.match("[A-Za-z]", agency) else f"P_{agency}".rstrip("_")
    said = str(catalogue.get("period") or "")
    period = said if said and "/" not in said else None
    write_csv(folder / DATA, _data(numbers, agency, period))
    with whole_file(folder / STRUCTURE) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        _write_structure(_Writer(file), numbers, agency, period, title)
    return [folder / DATA, folder / STRUCTURE]


def _codes(names: Sequence[str]) -> list[str]:
    """The codes of indicators: their names where these can be codes, else numbers."""
    plain = all(_ID.fullmatch(name) for name in names)
    return list(names) if plain else [f"I{k:0{len(str(len(names)))}d}" for k in range(1, len(names) + 1)]


def _data(numbers: StatedNumbers, agency: str, period: str | None) -> Iterator[pa.RecordBatch]:
    codes = pa.array(_codes(numbers.names))

    def measured(found: BoundedCounts) -> dict[str, Any]:
        cv, classes = reliability_of(found.sd, found.counts)
        ends = {"LOWER": found.lower, "UPPER": found.upper, "MOE": found.moe, "CV": cv}
        finite = {name: pa.array(one.reshape(-1), mask=~np.isfinite(one.reshape(-1))) for name, one in ends.items()}
        return {"OBS_VALUE": found.counts, **finite, "RELIABILITY": classes}

    level = iter(batch["level"] for batch in geography_batches(numbers.geography))
    for rows in long_batches(numbers, measured, ("REF_AREA", "name", "INDICATOR")):
        same = pa.array(np.zeros(rows.num_rows, np.int8))
        fixed = {"STRUCTURE": "dataflow", "STRUCTURE_ID": f"{agency}:{_FLOW}({_VERSION})", "ACTION": "I"}
        columns = {name: pa.DictionaryArray.from_arrays(same, pa.array([text])) for name, text in fixed.items()}
        columns |= {"REF_AREA": rows["REF_AREA"]}
        columns["INDICATOR"] = pa.DictionaryArray.from_arrays(rows["INDICATOR"].indices, codes)
        if period is not None:
            columns["TIME_PERIOD"] = pa.DictionaryArray.from_arrays(same, pa.array([period]))
        columns["OBS_VALUE"] = rows["OBS_VALUE"]
        columns["LEVEL"] = next(level).take(pa.array(np.repeat(np.arange(rows.num_rows // len(codes)), len(codes))))
        columns |= {name: rows[name] for name in _ATTRIBUTES if name != "LEVEL"}
        yield pa.RecordBatch.from_pydict(columns)


class _Writer:
    """Writes XML elements one after the other."""

    def __init__(self, file: Any) -> None:
        self._out = XMLGenerator(file, "utf-8", short_empty_elements=True)
        self._out.startDocument()

    @contextmanager
    def within(self, name: str, **attributes: str) -> Iterator[None]:
        """An element around what is written in the block."""
        self._out.startElement(name, AttributesImpl(attributes))
        yield
        self._out.endElement(name)
        self._out.characters("\n")

    def tell(self, name: str, text: str, **attributes: str) -> None:
        """An element that holds ``text``, without its control characters."""
        with self.within(name, **attributes):
            self._out.characters(escaped(text))


def _write_structure(write: _Writer, numbers: StatedNumbers, agency: str, period: str | None, title: str) -> None:
    said = {"agencyID": agency, "version": _VERSION}
    with write.within("mes:Structure", **{f"xmlns:{short}": space for short, space in _SPACES.items()}):
        with write.within("mes:Header"):
            write.tell("mes:ID", _FLOW)
            write.tell("mes:Test", "false")
            write.tell("mes:Prepared", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            with write.within("mes:Sender", id=agency):
                pass
        with write.within("mes:Structures"):
            with write.within("str:Codelists"):
                _areas(write, numbers.geography, said)
                _codelist(
                    write, _INDICATORS, "What is counted", said, zip(_codes(numbers.names), numbers.names, strict=True)
                )
                _codelist(write, _CLASSES, "Reliability", said, ((one, one) for one in CLASSES))
            with write.within("str:ConceptSchemes"), write.within("str:ConceptScheme", id="CS_RELEASE", **said):
                _name(write, "Concepts of the release")
                for concept, words in _CONCEPTS.items():
                    with write.within("str:Concept", id=concept):
                        _name(write, words)
            with write.within("str:Dataflows"), write.within("str:Dataflow", id=_FLOW, **said):
                _name(write, title)
                write.tell("str:Structure", f"{_URN}.datastructure.DataStructure={agency}:{_DSD}({_VERSION})")
            with write.within("str:DataStructures"), write.within("str:DataStructure", id=_DSD, **said):
                _name(write, title)
                with write.within("str:DataStructureComponents"):
                    _components(write, agency, period)


def _components(write: _Writer, agency: str, period: str | None) -> None:
    """Dimensions, attributes and the measure."""
    with write.within("str:DimensionList", id="DimensionDescriptor"):
        for position, (name, codes) in enumerate({"REF_AREA": _AREAS, "INDICATOR": _INDICATORS}.items(), 1):
            with write.within("str:Dimension", id=name, position=str(position)):
                _represented(write, agency, name, codes)
        if period is not None:
            with write.within("str:TimeDimension", id="TIME_PERIOD"):
                _represented(write, agency, "TIME_PERIOD", None, "ObservationalTimePeriod")
    with write.within("str:AttributeList", id="AttributeDescriptor"):
        for name, listed in _ATTRIBUTES.items():
            with write.within("str:Attribute", id=name, usage="optional"):
                _represented(write, agency, name, listed, "String" if name == "LEVEL" else "Double")
                with write.within("str:AttributeRelationship"), write.within("str:Observation"):
                    pass
    with write.within("str:MeasureList", id="MeasureDescriptor"), write.within("str:Measure", id="OBS_VALUE"):
        _represented(write, agency, "OBS_VALUE", None, "Long")


def _represented(write: _Writer, agency: str, concept: str, codes: str | None, kind: str = "String") -> None:
    write.tell("str:ConceptIdentity", f"{_URN}.conceptscheme.Concept={agency}:CS_RELEASE({_VERSION}).{concept}")
    with write.within("str:LocalRepresentation"):
        if codes is not None:
            write.tell("str:Enumeration", f"{_URN}.codelist.Codelist={agency}:{codes}({_VERSION})")
        else:
            with write.within("str:TextFormat", textType=kind):
                pass


def _name(write: _Writer, text: str) -> None:
    write.tell("com:Name", text, **{"xml:lang": "en"})


def _codelist(write: _Writer, name: str, title: str, said: Mapping[str, str], codes: Iterator[tuple[str, str]]) -> None:
    with write.within("str:Codelist", id=name, **said):
        _name(write, title)
        for code, words in codes:
            with write.within("str:Code", id=code):
                _name(write, words)


def _areas(write: _Writer, geography: Geography, said: Mapping[str, str]) -> None:
    """Every unit with its name and the unit that it lies in."""
    with write.within("str:Codelist", id=_AREAS, **said):
        _name(write, "Units")
        for batch in geography_batches(geography):
            columns = (batch[name].to_pylist() for name in ("geoid", "name", "parent"))
            for code, name, parent in zip(*columns, strict=True):
                with write.within("str:Code", id=code):
                    _name(write, name or code)
                    if parent is not None:
                        write.tell("str:Parent", parent)
