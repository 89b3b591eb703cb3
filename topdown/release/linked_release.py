"""A release of two linked tables: a folder each, and what both say together; written, and verified by a receiver.

``public/`` has a folder for each table, which is a release of its own, ``link.json`` (what measuring both guarantees
to a person and to a household, how persons belong to households, the digest of each table's manifest) and
``units.parquet`` (what is published exactly of every unit).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.linked.impossible import CountedCells, counted_at
from topdown.linked.link_text import facts_of, universe_of
from topdown.linked.universe import PublicFigures, Universe
from topdown.machine.files import file_digest
from topdown.machine.software import version_of
from topdown.measurements.person_moves import linked_guarantee
from topdown.privacy.linked_units import LinkedGuarantee
from topdown.privacy.plan import Plan
from topdown.release.archive import STRAY
from topdown.release.manifest import MALFORMED, described_file
from topdown.release.places import LINK, MANIFEST
from topdown.release.published import read_release
from topdown.release.verified import verify_release
from topdown.release.whole_counts import Release
from topdown.tables.tidy import write_json
from topdown.wording import FETCH, shown, shown_path
from topdown.workload.schema import Schema

UNITS = "units.parquet"
_VERSION = "1.0"


def stated_universe(schemas: Mapping[str, Mapping[str, Any]], link: Mapping[str, Any]) -> Universe:
    """The universe of two tables, from their ``schemas`` by table (arguments of `Schema.from_mapping`) and the ``link``
    as a configuration has it. Raises `ConfigError` for a link that cannot be meant."""
    return universe_of({name: Schema.from_mapping(**given) for name, given in schemas.items()}, link)


def write_link(
    public: Path,
    title: str,
    schemas: Mapping[str, Mapping[str, Any]],
    link: Mapping[str, Any],
    guarantee: LinkedGuarantee,
    noise: str,
    geography: Geography,
    figures: PublicFigures,
) -> None:
    """Write, into the folder of a release whose tables are there, what both say together: how they are linked
    (``schemas`` by table and ``link``, as `stated_universe` takes them), what both guarantee, and the name of their
    ``noise``; and what is public of every node (``figures``)."""
    universe, units = stated_universe(schemas, link), figures.units
    kinds = [one.name for one in universe.facilities if one.counted]
    columns = {"geoid": geography.identifiers, **({} if units is None else {"units": pa.array(units)})}
    columns |= {f"facilities: {name}": pa.array(figures.facilities[:, k]) for k, name in enumerate(kinds)}
    pq.write_table(pa.table(columns), public / UNITS, compression="zstd")
    write_json(
        public / LINK,
        {
            "schema_version": _VERSION,
            "title": title,
            "statement": guarantee.describe(),
            "guarantee": guarantee.to_dict(),
            "invariants": _invariants(columns),
            "schemas": schemas,
            "link": link,
            "noise": noise,
            "tables": {name: {"manifest_sha256": file_digest(public / name / MANIFEST)} for name in universe.names},
            "files": {UNITS: described_file(public / UNITS)},
        },
    )


def _invariants(columns: Iterable[str]) -> list[str]:
    """What is said of the ``columns`` of the table of what is public."""
    return [
        f"{name} of every unit, which is published exactly and not protected" for name in columns if name != "geoid"
    ]


def is_linked_release(public: Path) -> bool:
    """Whether the folder ``public`` says that it holds a release of two linked tables."""
    return (public / LINK).is_file()


@dataclass(frozen=True, eq=False)
class LinkedVerified:
    """A release of two tables that is whole: its ``releases`` by table, the SHA-256 of link.json, and the impossible
    and improbable ``results`` of both tables by level (``level, result, impossible, among, found``)."""

    releases: Mapping[str, Release]
    sha256: str
    results: pd.DataFrame

    @property
    def impossible(self) -> int:
        """At how many nodes a result is impossible."""
        return int(self.results.loc[self.results["impossible"], "found"].sum())


def verify_linked(public: str | Path) -> LinkedVerified:
    """Make sure that ``public`` holds a whole release of two linked tables, as `verify_release` does of each, that they
    are the two that link.json names and of the same units, and that they keep what is public of these; and count
    results that are impossible or improbable.

    Raises `DataError` that names the file, or the unit, at fault. An impossible result is counted, and no error.
    """
    folder = Path(public)
    said = _link_of(folder)
    try:
        universe = stated_universe(said["schemas"], said["link"])
        digests = {name: said["tables"][name]["manifest_sha256"] for name in universe.names}
        units = said["files"][UNITS]["sha256"]
    except MALFORMED as error:
        raise DataError(f"{shown_path(folder / LINK)}: is not what was written: {error}; {FETCH}") from None
    published = {}
    for name, digest in digests.items():
        if verify_release(folder / name).sha256 != digest:
            raise DataError(f"{shown_path(folder / name)}: is not the table that {LINK} names; {FETCH}")
        published[name] = read_release(folder / name)
    if not (folder / UNITS).is_file() or file_digest(folder / UNITS) != units:
        raise DataError(f"{shown_path(folder / UNITS)}: is not the file that {LINK} lists; {FETCH}")
    foreign = sorted({path.name for path in folder.iterdir()} - {LINK, UNITS, *universe.names, *STRAY})
    if foreign:
        raise DataError(f"{shown_path(folder / foreign[0])}: is no file of the release; remove it, or put it elsewhere")
    releases = {name: one.release for name, one in published.items()}
    households, persons = (releases[name] for name in universe.names)
    if households.geography != persons.geography:
        raise DataError(f"{shown_path(folder)}: both tables are of other units; {FETCH}")
    _require_public(folder, universe, households, persons)
    _require_guarantee(folder, universe, said, {name: one.manifest for name, one in published.items()})
    return LinkedVerified(
        releases, file_digest(folder / LINK), linked_results(universe, households, persons, said["link"])
    )


def _require_guarantee(
    folder: Path, universe: Universe, said: Mapping[str, Any], manifests: Mapping[str, dict[str, Any]]
) -> None:
    """Refuse a link.json whose guarantee, or what it calls exact, does not follow from the plans in both ``manifests``
    and the table of what is public: by its numbers, and where this version wrote it, by its sentences too.
    """
    try:
        plans = {name: Plan.from_dict(manifest["privacy"]) for name, manifest in manifests.items()}
        guarantee = linked_guarantee(universe, plans, said["guarantee"]["largest_household"])
        follows: dict[str, Any] = {"guarantee": guarantee.to_dict()}
        if all(manifest["software"]["topdown"] == version_of() for manifest in manifests.values()):
            follows["statement"] = guarantee.describe()
            follows["invariants"] = _invariants(pq.read_schema(folder / UNITS).names)
        wrong = next((name for name, own in follows.items() if _stated(said[name]) != _stated(own)), None)
    except MALFORMED:
        wrong = "guarantee"
    if wrong is not None:
        raise DataError(
            f"{shown_path(folder / LINK)}: its {wrong} does not follow from the budgets of both tables and what is "
            f"public; {FETCH}"
        )


def _stated(said: Any) -> Any:
    """What is ``said`` without the sentence on what differs between neighbours, which another version may word
    differently."""
    if isinstance(said, dict):
        return {name: _stated(value) for name, value in said.items() if name != "differ"}
    return [_stated(value) for value in said] if isinstance(said, list) else said


def linked_results(universe: Universe, households: Release, persons: Release, link: Mapping[str, Any]) -> pd.DataFrame:
    """Impossible and improbable results of the releases of both tables, made together or apart, by level: ``level,
    result, impossible, among, found``."""
    geography, facts, found = households.geography, facts_of(link), []
    for index, level in enumerate(geography.levels):
        nodes = geography.level_slice(level)
        own, theirs = (CountedCells(*release.entries_of(nodes)) for release in (households, persons))
        found += counted_at(universe, geography, index, own, theirs, facts)
    return pd.DataFrame(found)


def public_units(folder: Path, geography: Geography) -> dict[str, IntArray]:
    """What is public of the units of ``geography``, by the columns of the file in ``folder``: numbers (nodes,). Raises
    `DataError` where it is of other units, or a parent's number is not the sum of its children's."""
    try:
        table = pq.read_table(folder / UNITS)
        known = {name: table[name].to_numpy() for name in table.column_names if name != "geoid"}
        same = table["geoid"].combine_chunks().cast(pa.string()).equals(geography.identifiers.cast(pa.string()))
    except (pa.ArrowException, OSError, KeyError):
        raise DataError(f"{shown_path(folder / UNITS)}: is not what was written; {FETCH}") from None
    if not same:
        raise DataError(f"{shown_path(folder / UNITS)}: its rows are not the units of both tables; {FETCH}")
    for name, numbers in known.items():
        wrong = np.flatnonzero(geography.tree.not_sums(numbers))
        if len(wrong):
            where = geography.describe(int(wrong[0]))
            raise DataError(f"{where}: {shown(name)} is not the sum of its children's in {UNITS}; {FETCH}")
    return known


def _require_public(folder: Path, universe: Universe, households: Release, persons: Release) -> None:
    """Refuse tables with more households than units, or persons in facilities where there are none, or fewer than
    facilities."""
    geography = households.geography
    known = public_units(folder, geography)

    def refuse(wrong: np.ndarray[Any, np.dtype[np.bool_]], said: str) -> None:
        at = np.flatnonzero(wrong)
        if len(at):
            raise DataError(f"{geography.describe(int(at[0]))}: {said}; {FETCH}")

    everywhere = slice(0, geography.n_nodes)
    nodes, _, counts = households.entries_of(everywhere)
    lived_in = np.bincount(nodes, counts, geography.n_nodes)
    if "units" in known:
        refuse(lived_in > known["units"], f"has more {universe.names[0]} than units")
    nodes, cells, counts = persons.entries_of(everywhere)
    kinds = universe.facility_of(universe.of_persons(cells))
    for number, facility in enumerate(universe.facilities):
        if facility.counted:
            own = kinds == number
            there = np.bincount(nodes[own], counts[own], geography.n_nodes)
            facilities = known.get(f"facilities: {facility.name}", np.zeros(geography.n_nodes, np.int64))
            refuse(
                (there < facilities) | ((facilities == 0) & (there > 0)),
                f"its {universe.names[1]} in {shown(facility.name)} do not fit its facilities",
            )


def _link_of(public: Path) -> dict[str, Any]:
    path = public / LINK
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["schema_version"].split(".")[0] != _VERSION.split(".")[0]:
            raise ValueError
        _ = found["noise"], found["tables"], found["files"], found["schemas"], found["link"]
    except (OSError, *MALFORMED):
        raise DataError(f"{shown_path(path)}: describes no release of two tables of this version; {FETCH}") from None
    return found
