"""Descriptions of a release for catalogues and other programs, by standards of the W3C and MLCommons.

`csv-metadata.json` describes the text tables by CSV on the Web (CSVW, W3C Recommendation of 17 December 2015);
`dcat.jsonld` describes the release as a data set of a catalogue by DCAT (version 3), in JSON-LD that needs no network
to be read; `croissant.json` describes it as a data set for machine learning by Croissant 1.0 (MLCommons), with the
types of all columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from topdown.config.derivation import CatalogueOptions

CSVW = "csv-metadata.json"
"""The name of the file that programs look for beside a CSV file, by the recommendation."""

DCAT = "dcat.jsonld"

CROISSANT = "croissant.json"

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
"""XML Schema's types of a year, a month and a day, by the number of characters."""


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


_CROISSANT_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""The context of Croissant, as its library has it."""

_CROISSANT_KINDS = {"string": "sc:Text", "integer": "sc:Integer", "number": "sc:Float"}
_CROISSANT_MEDIA = {"csv": "text/csv", "parquet": "application/x-parquet"}


def croissant(
    title: str,
    package: Mapping[str, Any],
    files: Mapping[str, Mapping[str, Any]],
    statement: str,
    catalogue: CatalogueOptions,
) -> dict[str, Any]:
    """A release as a Croissant data set: its files with their digests, and a record set for every table, of its Parquet
    file where it has one. Arguments as `dcat` has them. Identifiers are IRIs, without blanks, whatever files and
    columns are called.
    """
    publisher = {"@type": "sc:Organization", "name": catalogue.publisher} if catalogue.publisher else None
    described = {
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": title,
        "description": f"{catalogue.description or package['description']} {statement}",
        "license": catalogue.licence or None,
        "url": catalogue.url or None,
        "datePublished": catalogue.date or None,
        "temporalCoverage": catalogue.period or None,
        "creator": publisher,
        "publisher": publisher,
    }
    distribution, records, named = [], [], {one["name"] for one in package["resources"]}
    for one in package["resources"]:
        paths = [one["path"]] if isinstance(one["path"], str) else list(one["path"])
        media = _CROISSANT_MEDIA[one["format"]]
        distribution += [
            {
                "@type": "cr:FileObject",
                "@id": quote(path),
                "name": path,
                "contentUrl": path,
                "contentSize": f"{files[path]['bytes']} B",
                "encodingFormat": media,
                "sha256": files[path]["sha256"],
            }
            for path in paths
        ]
        source: dict[str, Any] = {"fileObject": {"@id": quote(paths[0])}}
        if not isinstance(one["path"], str):
            name = f"{one['name']}-parts"
            source = {"fileSet": {"@id": quote(name)}}
            includes = sorted({f"{path.rpartition('/')[0]}/*.{one['format']}" for path in paths})
            distribution.append(
                {
                    "@type": "cr:FileSet",
                    "@id": quote(name),
                    "name": name,
                    "encodingFormat": media,
                    "includes": includes,
                }
            )
        if one["format"] == "csv" and f"{one['name'].removesuffix('-csv')}-parquet" in named:
            continue
        records.append(
            {
                "@type": "cr:RecordSet",
                "@id": quote(one["name"]),
                "name": one["name"],
                "description": one["title"],
                "field": [_croissant_field(one["name"], field, source) for field in one["schema"]["fields"]],
            }
        )
    found = {"@context": _CROISSANT_CONTEXT, "@type": "sc:Dataset"}
    return found | {k: v for k, v in described.items() if v} | {"distribution": distribution, "recordSet": records}


def _croissant_field(table: str, field: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{quote(table)}/{quote(field['name'], safe='')}",
        "name": f"{table}/{field['name']}",
        "description": field["description"],
        "dataType": _CROISSANT_KINDS[field["type"]],
        "source": {**source, "extract": {"column": field["name"]}},
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
