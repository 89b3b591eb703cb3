"""A release for catalogues and other people's programs, by the standards of the W3C.

`csv-metadata.json` describes the text tables by CSV on the Web (CSVW, W3C Recommendation of 17 December 2015);
`dcat.jsonld` the release as a data set of a catalogue by DCAT (version 3), as JSON-LD that needs no network to be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topdown.config.derivation import CatalogueOptions

CSVW = "csv-metadata.json"
"""What programs look for beside a CSV file, by the recommendation."""

DCAT = "dcat.jsonld"

_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "spdx": "http://spdx.org/rdf/terms#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}

_MEDIA_TYPES = "https://www.iana.org/assignments/media-types/"
_SHA256 = "http://spdx.org/rdf/terms#checksumAlgorithm_sha256"
_KINDS = {"string": "string", "integer": "integer", "number": "double"}
_XSD = {4: "gYear", 7: "gYearMonth", 10: "date"}
"""XML Schema's types of a year, a month and a day, by how many signs they are written in."""


def csvw(title: str, package: Mapping[str, Any], catalogue: CatalogueOptions) -> dict[str, Any]:
    """The text tables of a Data Package as a CSVW table group."""
    tables = [_table(one) for one in package["resources"] if one["format"] == "csv"]
    return {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "dc:title": title,
        **({"dc:publisher": catalogue.publisher} if catalogue.publisher else {}),
        **({"dc:license": _reference(catalogue.licence)} if catalogue.licence else {}),
        "tables": tables,
    }


def _table(resource: Mapping[str, Any]) -> dict[str, Any]:
    schema = resource["schema"]
    return {
        "url": resource["path"],
        "dc:title": resource["title"],
        "tableSchema": {
            "columns": [
                {
                    "name": _variable(field["name"]),
                    "titles": field["name"],
                    "datatype": _KINDS[field["type"]],
                    "null": "",
                    "dc:description": field["description"],
                }
                for field in schema["fields"]
            ],
            "primaryKey": [_variable(name) for name in schema["primaryKey"]],
        },
    }


def _variable(name: str) -> str:
    """``name`` as CSVW allows it: letters, digits, "_" not at the beginning, "." and percent signs for all others."""
    text = re.sub(r"[^A-Za-z0-9_.]", lambda found: "".join(f"%{b:02X}" for b in found[0].encode()), name)
    return f"%5F{text[1:]}" if text.startswith("_") else text


def dcat(
    title: str,
    package: Mapping[str, Any],
    files: Mapping[str, Mapping[str, Any]],
    statement: str,
    levels: Sequence[str],
    catalogue: CatalogueOptions,
) -> dict[str, Any]:
    """A release as a `dcat:Dataset`: title, publisher, period, licence, what is protected and how (``statement``), and
    its tables as distributions.

    ``package``: the Data Package; ``files``: ``sha256`` and ``bytes`` of every table.
    """
    described = {
        "dcterms:title": title,
        "dcterms:description": catalogue.description or package["description"],
        "dcterms:publisher": {"@type": "foaf:Agent", "foaf:name": catalogue.publisher} if catalogue.publisher else None,
        "dcterms:license": _licence(catalogue.licence),
        "dcterms:temporal": _period(catalogue.period),
        "dcat:landingPage": {"@id": catalogue.url} if catalogue.url else None,
        "dcterms:provenance": {"@type": "dcterms:ProvenanceStatement", "rdfs:label": statement},
        "dcat:keyword": ["differential privacy", "counts", *levels],
        "dcat:distribution": [
            _distribution({**one, "path": path}, files[path])
            for one in package["resources"]
            for path in ([one["path"]] if isinstance(one["path"], str) else one["path"])
        ],
    }
    return {"@context": _CONTEXT, "@type": "dcat:Dataset"} | {k: v for k, v in described.items() if v is not None}


def _distribution(resource: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "@type": "dcat:Distribution",
        "dcterms:title": resource["title"],
        "dcterms:identifier": resource["path"],
        "dcat:mediaType": {"@id": f"{_MEDIA_TYPES}{resource['mediatype']}"},
        "dcat:byteSize": {"@type": "xsd:nonNegativeInteger", "@value": str(file["bytes"])},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": _SHA256},
            "spdx:checksumValue": {"@type": "xsd:hexBinary", "@value": file["sha256"]},
        },
    }


def _reference(text: str) -> str | dict[str, str]:
    return {"@id": text} if _is_address(text) else text


def _licence(text: str) -> dict[str, str] | None:
    if not text:
        return None
    if _is_address(text):
        return {"@id": text}
    return {"@type": "dcterms:LicenseDocument", "rdfs:label": text}


def _is_address(text: str) -> bool:
    return re.fullmatch(r"https?://\S+", text) is not None


def _period(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    first, _, last = text.partition("/")
    return {
        "@type": "dcterms:PeriodOfTime",
        "dcat:startDate": {"@type": f"xsd:{_XSD[len(first)]}", "@value": first},
        "dcat:endDate": {"@type": f"xsd:{_XSD[len(last or first)]}", "@value": last or first},
    }
