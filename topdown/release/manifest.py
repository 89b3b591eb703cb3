"""The manifest of a release: where its numbers come from and what they protect, in JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.unit_sums import SpineGeography
from topdown.machine.files import file_digest
from topdown.machine.software import version_of
from topdown.measurements.measurements import Measurements
from topdown.privacy.plan import Plan
from topdown.projection.check.cross_checks import CrossCheck
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.linear_answers import LinearAnswers
from topdown.projection.histograms.whole import WholeProjection
from topdown.release.answer_files import AreaCounts, paths_of
from topdown.release.known_variances import STATEMENT, exact_in_words, privacy_record
from topdown.release.layouts import EVERY_CELL, LAYOUTS, Layout
from topdown.release.places import MANIFEST
from topdown.tables.output_formats import CSV, names_of
from topdown.tables.spreadsheet import CSV_TEXT_RULE
from topdown.wording import FETCH, shown, shown_path
from topdown.workload import DETAILED, Schema
from topdown.workload.answer_tables import AnswerTable

if TYPE_CHECKING:
    from topdown.config import DerivationConfig
    from topdown.uncertainty.margins import Reach

Projection: TypeAlias = Estimate | LinearAnswers | WholeProjection

SCHEMA_VERSION = "1.7"

FIELDS = frozenset(
    (
        "notices", "schema_version", "title", "software", "configuration", "configuration_sha256", "levels", "units",
        "cells", "schema", "privacy", "invariants", "limits", "projections", "fit_for_release", "release_rows",
        "tables", "margins", "ledger", "noise", "derived_from", "spine", "files",
    )
)  # fmt: skip
"""The fields of a manifest."""

_LARGEST, _MOST_VALUES, _LARGEST_UNKNOWN = 1 << 25, 1 << 21, 1 << 20
"""At most so many bytes of a manifest, values in it, and bytes of fields that this version does not know."""

LIMITS_STATEMENT = (
    "The limits of answers in limits.parquet are public knowledge and were not computed from the confidential table. "
    "Every non-negative and every released number keeps them, and they cost no budget."
)

NO_MARGINS: dict[str, Any] = {"confidence": None, "statement": "There are no margins of error.", "rule": []}
"""The entry on margins of a release without any."""

_SOFTWARE = ("topdown", "numpy", "scipy", "pyarrow", "pandas", "numba", "cvxpy", "osqp")


@dataclass(frozen=True)
class LedgerEntry:
    """Where a release stands in its ledger: ``record`` is the hash of the record that confirms it.

    With it one can check later that the ledger was neither cut off nor rewritten up to this record. It reveals nothing:
    it covers the release's random name and the hash of a file with a secret key.
    """

    dataset: str
    release: str
    record: str


@dataclass(frozen=True)
class DerivedFrom:
    """The release whose measurements another one was derived from: SHA-256 of its manifest, and of the measurements.
    For noisy measurement files: SHA-256 of the files and of the configuration, and of the files alone.
    """

    manifest: str
    measurements: str


@dataclass(frozen=True)
class Origin:
    """Where a release's measurements come from.

    ``units``, ``limits`` and ``areas``: SHA-256 of the public list of units, of the public table of limits (None where
    there is none) and of the tables of areas of a spine. ``ledger``: the record that confirms their budget. ``noise``:
    the name of their noise, None where it is not known. The name is computed from the secret and reveals nothing about
    it: a run compares it with the secret that it holds, and a ledger calls the release by it. ``derived_from``: the
    release that they were drawn for, None where it is this one. ``notices``: sentences that a reader has to know before
    anything else.
    """

    units: str | None = None
    ledger: LedgerEntry | None = None
    derived_from: DerivedFrom | None = None
    notices: tuple[str, ...] = ()
    limits: str | None = None
    limits_statement: str = LIMITS_STATEMENT
    noise: str | None = None
    areas: str | None = None


def require_version(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest of another major version: its fields may have another meaning. Raises `DataError`."""
    version = str(manifest["schema_version"])
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise DataError(f"is of version {shown(version[:20])}, and this version of Topdown knows {SCHEMA_VERSION}")


def layout_of(manifest: Mapping[str, Any]) -> Layout:
    """The layout of a release's counts, by its manifest. Raises `DataError` for an unknown layout."""
    said = manifest.get("release_rows", EVERY_CELL.name)  # before version 1.4 there were no others
    found = LAYOUTS.get(said) if isinstance(said, str) else None
    if found is None:
        raise DataError(
            f"the rows of its counts are {shown(said)}, which is not known here; a newer Topdown wrote it: update"
        )
    return found


@dataclass(frozen=True)
class Description:
    """What a manifest describes: the ``config`` of the release; its ``measurements`` and where they come from
    (``origin``); their ``plan``, None where it is not known; the ``projections`` by their names, with ``checks`` that
    solve them a second time; the ``layout`` of the counts; whether it is fit for release; its ``tables`` of answers;
    the margins of the estimates beside these (``reach``; None where there are no estimates); the entry on ``margins``
    of error; and its ``areas``, by kind.
    """

    config: DerivationConfig
    measurements: Measurements
    plan: Plan | None
    origin: Origin
    projections: Mapping[str, Projection]
    layout: Layout
    fit_for_release: bool
    checks: Callable[[], Mapping[str, CrossCheck]] = dict
    tables: Sequence[AnswerTable] = ()
    reach: Reach | None = None
    margins: Mapping[str, Any] = field(default_factory=lambda: NO_MARGINS)
    areas: Sequence[AreaCounts] = ()

    @property
    def linear_name(self) -> str:
        """The name of the estimate by least squares."""
        return next(
            (name for name, one in self.projections.items() if not isinstance(one, WholeProjection)), "unbiased"
        )

    @property
    def schema(self) -> Schema:
        """The schema of the cells."""
        known, cells = self.measurements.attributes, self.measurements.cells
        return Schema.of_cells(cells) if known is None else known

    @property
    def statement(self) -> str:
        """What is protected, in words."""
        return STATEMENT if self.plan is None else self.plan.describe(self.measurements.geography.levels)


def describe_release(about: Description, files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest as a JSON-able value: notices, schema version, software, the configuration with all defaults, what
    is protected and how much of the budget every level and query takes (exact fractions), invariants in words,
    projections with their certificates, whether it is fit for release, where its measurements come from, the layout of
    its counts, the path of every table, its margins of error, and the SHA-256 and size of its ``files``
    (`described_file`). Never a seed or a true count.
    """
    config, measurements, plan, origin = about.config, about.measurements, about.plan, about.origin
    checks = about.checks()
    geography = measurements.geography
    return {
        "notices": list(origin.notices),
        "schema_version": SCHEMA_VERSION,
        "title": config.title,
        "software": software_versions(),
        "configuration": config.resolved(),
        "configuration_sha256": config.fingerprint(origin.units, origin.limits, origin.areas),
        "levels": _levels(measurements.published),
        "units": describe_units(origin.units),
        "cells": None if about.schema.is_large else list(measurements.cells),
        "schema": None if measurements.attributes is None else measurements.attributes.to_mappings(),
        "privacy": privacy_of(plan, geography.levels) if plan is not None else privacy_record(measurements),
        "invariants": invariants_in_words(plan, geography) if plan is not None else exact_in_words(measurements),
        "limits": None if origin.limits is None else {"sha256": origin.limits, "statement": origin.limits_statement},
        "projections": {
            name: {
                "method": estimate.method,
                "non_negative": estimate.nonnegative,
                "unbiased": not estimate.nonnegative and not (plan is not None and plan.bounds.any),
                "weights": estimate.weights,
                **_order(estimate),
                "certificate": _residuals(estimate),
                "cross_check": asdict(checks[name]) if name in checks else None,
                **_programs(estimate),
            }
            for name, estimate in about.projections.items()
        },
        "fit_for_release": about.fit_for_release,
        "release_rows": about.layout.name,
        "tables": {table.name: names_of(paths_of(table)[0])[0] for table in about.tables},
        "margins": dict(about.margins),
        "ledger": None if origin.ledger is None else asdict(origin.ledger),
        "noise": origin.noise,
        "derived_from": None if origin.derived_from is None else asdict(origin.derived_from),
        "spine": describe_spine(geography, origin.areas),
        "files": {name: dict(facts) for name, facts in files.items()},
    }


def _levels(geography: Geography) -> list[dict[str, Any]]:
    """The levels, root first, with their numbers of units."""
    sizes = np.diff(geography.level_offsets).tolist()
    return [{"level": level, "nodes": size} for level, size in zip(geography.levels, sizes, strict=True)]


def describe_spine(geography: Geography, digest: str | None) -> dict[str, Any] | None:
    """The tree that noise was measured on, where it is not the published one: its levels, and the numbers of areas of
    every kind; ``digest``: SHA-256 of their tables."""
    if not isinstance(geography, SpineGeography):
        return None
    return {
        "levels": _levels(geography),
        "areas": {kind: units.geography.n_leaves for kind, units in geography.area_units.items()},
        "areas_sha256": digest,
        "statement": (
            "Noise was measured on another tree than the published one, the spine: privacy and measurements.parquet "
            "are about its units. It is made of public facts alone. Published units and areas are sums of its lowest "
            "units, and so are their counts and estimates; geography.parquet has all trees."
        ),
    }


def privacy_of(plan: Plan, levels: Sequence[str]) -> dict[str, Any]:
    """The ``plan`` of the measurements at ``levels``, what it charges at each, and what is protected in words."""
    return {
        **plan.to_dict(),
        "total": str(plan.charged_total),
        "budget": [
            {"level": level, "query": query, plan.noise.currency: str(plan.charged(level, query))}
            for level in levels
            for query in plan.queries(level) or (DETAILED,)
        ],
        "statement": plan.describe(levels),
    }


def describe_units(digest: str | None) -> dict[str, Any]:
    """Where the list of units comes from, and whether it is protected; ``digest``: SHA-256 of the public list,
    if any.
    """
    if digest is None:
        return {
            "source": "the confidential table",
            "sha256": None,
            "statement": (
                "The list of units was taken from the confidential table: a unit is listed because it has a row there. "
                "Which units are listed is published exactly and is not protected."
            ),
        }
    return {
        "source": "a public list",
        "sha256": digest,
        "statement": (
            "The list of units is a public table of its own. A unit without a row in the confidential table has counts "
            "of 0, like one whose row says 0, so that the list says nothing about the table."
        ),
    }


def manifest_at(path: Path) -> Any:
    """The content of the manifest at ``path``; only its size is checked.

    Raises `DataError`, without the path, for more than any manifest has, and `OSError`, `ValueError`, `TypeError` and
    `RecursionError` where it is no JSON object.
    """
    size = path.stat().st_size
    if size > _LARGEST:
        raise DataError(f"has {size:,} bytes, more than any manifest")
    text = path.read_text(encoding="utf-8")
    if sum(map(text.count, "[{,")) > _MOST_VALUES:
        raise DataError(f"has more than {_MOST_VALUES:,} values, more than any manifest")
    found = json.loads(text)
    if len(json.dumps({name: found[name] for name in set(found) - FIELDS})) > _LARGEST_UNKNOWN:
        raise DataError(f"has more than {_LARGEST_UNKNOWN:,} bytes in fields that this version does not know")
    return found


def require_nameable(cells: Sequence[str]) -> None:
    """Refuse cells whose names are too long for a manifest, which has them twice. Raises `ConfigError`."""
    names = json.dumps(list(cells), indent=4, ensure_ascii=False)
    size, values = len(names.encode()), sum(map(names.count, "[{,"))
    if 4 * size > _LARGEST or 4 * values > _MOST_VALUES:
        raise ConfigError(
            f"the names of the {len(cells):,} cells take {size:,} bytes and have {values:,} commas and brackets, too "
            "many for a manifest; shorten the names of categories"
        )


MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors that a malformed manifest causes: a budget of 1/0, a list in place of a name, deeply nested brackets."""


def method_of(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The method by which the counts in ``folder`` were made. Raises `DataError`."""
    try:
        return str(manifest["projections"]["non_negative"]["method"])
    except MALFORMED:
        raise DataError(f"{shown_path(folder / MANIFEST)}: does not say by which method; {FETCH}") from None


def described_file(path: Path) -> dict[str, Any]:
    """SHA-256 and size of a file, and for a CSV file how its text is to be read."""
    facts = {"sha256": file_digest(path), "bytes": path.stat().st_size}
    return facts | {"text": CSV_TEXT_RULE} if path.suffix == CSV.ending else facts


def _programs(estimate: Projection) -> dict[str, Any]:
    """How many families' programs were solved, where that was counted."""
    programs = estimate.programs if isinstance(estimate, WholeProjection) else None
    return {} if programs is None else {"programs": programs._asdict()}


def _order(estimate: Projection) -> dict[str, Any]:
    """The queries that were made non-negative first, by level, where there are any."""
    order = {} if isinstance(estimate, LinearAnswers) else estimate.order
    return {"order": {level: list(first) for level, first in order.items()}} if order else {}


def _residuals(estimate: Projection) -> dict[str, Any]:
    """The certificate without the largest value, which under an invariant is a true count."""
    return {name: value for name, value in asdict(estimate.certificate).items() if name != "scale"}


def invariants_in_words(plan: Plan, geography: Geography) -> list[str]:
    """One sentence per invariant level, and one for what it implies above."""
    sentences = [
        f"Every count of level {level!r} is published exactly and is not protected; it costs no budget."
        for level in plan.invariants
    ] + [
        f"The answers to query {query!r} at level {level!r} are published exactly and are not protected; they cost no "
        "budget. So are their sums at the levels above."
        for level, query in plan.exact_queries
    ]
    if plan.invariants:
        lowest = max(geography.levels.index(level) for level in plan.invariants)
        implied = [level for level in geography.levels[:lowest] if level not in plan.invariants]
        if implied:
            sentences.append(
                f"The counts of {', '.join(map(repr, implied))} are sums of these, and so they are exact too."
            )
    return sentences or ["None: every level is protected."]


def software_versions() -> dict[str, str]:
    """Versions of Python and of the packages that the numbers depend on."""
    return {"python": platform.python_version()} | {name: version_of(name) for name in _SOFTWARE}
