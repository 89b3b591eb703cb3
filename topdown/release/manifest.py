"""The manifest of a release: where its numbers come from and what they protect, in JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.machine.files import file_digest
from topdown.machine.software import version_of
from topdown.measurements.measurements import Measurements
from topdown.privacy.plan import Plan
from topdown.projection.check.cross_checks import CrossCheck
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.linear_answers import LinearAnswers
from topdown.projection.histograms.whole import WholeProjection
from topdown.release.answer_files import paths_of
from topdown.release.known_variances import STATEMENT, exact_in_words, privacy_record
from topdown.release.layouts import EVERY_CELL, LAYOUTS, Layout
from topdown.tables.spreadsheet import CSV_TEXT_RULE
from topdown.wording import FETCH, shown, shown_path
from topdown.workload import DETAILED, Schema
from topdown.workload.answer_tables import AnswerTable

if TYPE_CHECKING:
    from topdown.config import DerivationConfig
    from topdown.uncertainty.margins import Reach

Projection: TypeAlias = Estimate | LinearAnswers | WholeProjection

MANIFEST = "manifest.json"
SCHEMA_VERSION = "1.6"

FIELDS = frozenset(
    (
        "notices", "schema_version", "title", "software", "configuration", "configuration_sha256", "levels", "units",
        "cells", "schema", "privacy", "invariants", "limits", "projections", "fit_for_release", "release_rows",
        "tables", "margins", "ledger", "noise", "derived_from", "files",
    )
)  # fmt: skip
"""What a manifest has."""

_LARGEST, _MOST_VALUES, _LARGEST_UNKNOWN = 1 << 25, 1 << 21, 1 << 20
"""Bytes of a manifest, values in it, and bytes of what this version does not know of it, at most."""

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

    Whoever holds it can tell later that the ledger was not cut off or rewritten up to there. It reveals nothing: it
    covers the release's random name and the hash of a file with a secret key.
    """

    dataset: str
    release: str
    record: str


@dataclass(frozen=True)
class DerivedFrom:
    """The release whose measurements another one was derived from: SHA-256 of its manifest, and of the measurements. Of
    noisy measurement files: of them and of what was asked for, and of them alone.
    """

    manifest: str
    measurements: str


@dataclass(frozen=True)
class Origin:
    """Where a release's measurements come from.

    ``units``: SHA-256 of the public list of units, ``limits``: of the public table of limits, None where there is none,
    and what is said of these. ``ledger``: where their budget stands. ``noise``: the name of the noise in them, by which
    a run knows whether it holds what it follows from, None where that is not known; it follows from the secret and
    tells nothing of it, and a ledger calls the release by it.
    ``derived_from``: the release that they were drawn for, None where it is this one. ``notices``: what a reader has to
    know before anything else, in sentences.
    """

    units: str | None = None
    ledger: LedgerEntry | None = None
    derived_from: DerivedFrom | None = None
    notices: tuple[str, ...] = ()
    limits: str | None = None
    limits_statement: str = LIMITS_STATEMENT
    noise: str | None = None


def require_version(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest of a major version that is not this one's: what it says may mean something else. Raises
    `DataError`."""
    version = str(manifest["schema_version"])
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise DataError(f"is of version {shown(version[:20])}, and this version of Topdown knows {SCHEMA_VERSION}")


def layout_of(manifest: Mapping[str, Any]) -> Layout:
    """The layout of a release's counts, by its manifest. Raises `DataError` for rows of a kind that is not known."""
    said = manifest.get("release_rows", EVERY_CELL.name)  # before version 1.4 there were no others
    found = LAYOUTS.get(said) if isinstance(said, str) else None
    if found is None:
        raise DataError(
            f"the rows of its counts are {shown(said)}, which is not known here; a newer Topdown wrote it: update"
        )
    return found


@dataclass(frozen=True)
class Description:
    """What describes a release: the ``config`` that it was made with, its ``measurements`` and where they come from
    (``origin``), their ``plan``, None where it is not known, the ``projections`` by their names with what finds their
    second solutions (``checks``), the ``layout`` of its counts, whether it is fit for release, its ``tables`` of
    answers, how far the errors of the estimates beside these reach (None: there are none beside them), and the
    manifest's entry on its ``margins`` of error.
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

    @property
    def linear_name(self) -> str:
        """What the estimate by least squares is called."""
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
    """The manifest as a JSON-able value: what has to be known before anything else, schema version, software,
    configuration as resolved, what is protected and how much of the budget every level and query takes (exact
    fractions), invariants in words, projections with their certificates, whether it is fit for release, where its
    measurements come from, what the rows of its counts are, the path of every one of its tables, its margins of error,
    and the SHA-256 and size of its ``files`` (`described_file`). Never a seed or a true count.
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
        "configuration_sha256": config.fingerprint(origin.units, origin.limits),
        "levels": [
            {"level": level, "nodes": geography.level_slice(level).stop - geography.level_slice(level).start}
            for level in geography.levels
        ],
        "units": describe_units(origin.units),
        "cells": list(measurements.cells),
        "schema": None if measurements.attributes is None else measurements.attributes.to_mappings(),
        "privacy": _privacy(plan, geography) if plan is not None else privacy_record(measurements),
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
        "tables": {table.name: f"{paths_of(table)[0]}.parquet" for table in about.tables},
        "margins": dict(about.margins),
        "ledger": None if origin.ledger is None else asdict(origin.ledger),
        "noise": origin.noise,
        "derived_from": None if origin.derived_from is None else asdict(origin.derived_from),
        "files": {name: dict(facts) for name, facts in files.items()},
    }


def _privacy(plan: Plan, geography: Geography) -> dict[str, Any]:
    return {
        **plan.to_dict(),
        "total": str(plan.charged_total),
        "budget": [
            {"level": level, "query": query, plan.noise.currency: str(plan.charged(level, query))}
            for level in geography.levels
            for query in plan.queries(level) or (DETAILED,)
        ],
        "statement": plan.describe(geography.levels),
    }


def describe_units(digest: str | None) -> dict[str, Any]:
    """Where the list of units comes from, and what that protects; ``digest``: SHA-256 of the public list, if any."""
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
    """What the manifest at ``path`` says, of which nothing is checked but how much it is.

    Raises `DataError` for more than any manifest says, without its path, and `OSError`, `ValueError`, `TypeError` and
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
    """Refuse cells whose names, which a manifest has twice, leave it no room for the rest. Raises `ConfigError`."""
    names = json.dumps(list(cells), indent=4, ensure_ascii=False)
    size, values = len(names.encode()), sum(map(names.count, "[{,"))
    if 4 * size > _LARGEST or 4 * values > _MOST_VALUES:
        raise ConfigError(
            f"the names of the {len(cells):,} cells take {size:,} bytes and have {values:,} commas and brackets, too "
            "many for a manifest; shorten the names of categories"
        )


MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of a value of another kind or shape than a manifest has: of a budget of 1/0, a list in place of a name,
brackets within brackets."""


def method_of(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The method by which the counts in ``folder`` were made. Raises `DataError`."""
    try:
        return str(manifest["projections"]["non_negative"]["method"])
    except MALFORMED:
        raise DataError(f"{shown_path(folder / MANIFEST)}: does not say by which method; {FETCH}") from None


def described_file(path: Path) -> dict[str, Any]:
    """SHA-256 and size of a file, and of a CSV file how its text is to be read."""
    facts = {"sha256": file_digest(path), "bytes": path.stat().st_size}
    return facts | {"text": CSV_TEXT_RULE} if path.suffix == ".csv" else facts


def _programs(estimate: Projection) -> dict[str, Any]:
    """How many programs of families were solved, where that was counted."""
    programs = estimate.programs if isinstance(estimate, WholeProjection) else None
    return {} if programs is None else {"programs": programs._asdict()}


def _order(estimate: Projection) -> dict[str, Any]:
    """The queries that were settled first, by level, where any were."""
    order = {} if isinstance(estimate, LinearAnswers) else estimate.order
    return {"order": {level: list(first) for level, first in order.items()}} if order else {}


def _residuals(estimate: Projection) -> dict[str, Any]:
    """The certificate without the size of the largest value, which under an invariant is a true count."""
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
