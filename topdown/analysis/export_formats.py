"""The formats of other tools in which a release can be exported, from its public directory alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from topdown.analysis.acs_style import CONFIDENCE as ACS_CONFIDENCE
from topdown.analysis.acs_style import NOTE as ACS_NOTE
from topdown.analysis.acs_style import require_acs, write_acs
from topdown.analysis.geoparquet import require_outlines, write_geopackage, write_geoparquet
from topdown.analysis.sdmx import require_sdmx, write_sdmx
from topdown.analysis.stated_numbers import stated_numbers
from topdown.analysis.workbook import FILE as WORKBOOK
from topdown.analysis.workbook import require_workbook, write_workbook
from topdown.census.layouts.noisy_layout import has_spine_codes, product_of
from topdown.census.noisy_write import write_noisy_measurements
from topdown.census.ppmf_file import require_ppmf, write_ppmf
from topdown.census.redistricting_file import STATES, require_pl94, write_pl94
from topdown.census.spine import spine_of
from topdown.census.tabulated import tabulated_geography, tabulated_release
from topdown.errors import ConfigError, DataError, require_known
from topdown.geography.geography import Geography
from topdown.geography.unit_sums import published
from topdown.machine.files import file_digest, make_folder, whole_folder
from topdown.release.archive import ARCHIVE, write_archive
from topdown.release.linked_release import is_linked_release, verify_linked
from topdown.release.places import MANIFEST, require_outside_releases
from topdown.release.published import PublishedRelease, read_release
from topdown.release.read import read_measurements, require_all
from topdown.release.verified import verify_files
from topdown.release.whole_counts import Release
from topdown.tables.readers import require_encodable
from topdown.tables.tidy import named_failures
from topdown.wording import listed, shown, shown_path
from topdown.workload import Schema
from topdown.workload.redistricting import UNITS, spine_level

_SAME_RECORDS = (
    "both releases are of the same records; give persons, and as units (--units, or exports.units) their housing units"
)


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export: the public directory of the release's housing ``units``, a geographic ``header``,
    outlines (``geometry``), the ``query`` whose answers are written, and which ``state`` of a nation.
    """

    units: Path | None = None
    header: Path | None = None
    geometry: Path | None = None
    query: str | None = None
    state: str | None = None

    @property
    def given(self) -> list[str]:
        """The names of the options that were given."""
        return [one.name for one in fields(self) if getattr(self, one.name) is not None]


@dataclass(frozen=True)
class ExportFormat:
    """A format of export: its ``name``, its description in ``words``, and the ``options`` that it takes. ``write``
    makes the files from a public directory in an output folder, which must not exist, and returns them. ``require``
    checks a geography, a schema and the names of the columns that are stated (of a format without a ``query`` none)
    before there are counts, and refuses what ``write`` would refuse. ``notes``:
    sentences on what the reader of the files has to know. ``of_measurements``: whether it needs the measurements, which
    a release in parts does not keep; ``of_margins``: whether it needs margins of error, which not every release has.
    """

    name: str
    words: str
    write: Callable[[Path, Path, ExportOptions], Sequence[Path]]
    require: Callable[[Geography, Schema, ExportOptions, Sequence[str]], object]
    options: tuple[str, ...] = ()
    notes: Callable[[ExportOptions], Sequence[str]] = lambda options: ()
    of_measurements: bool = False
    of_margins: bool = False


class Exported(NamedTuple):
    """The ``files`` that were written, and ``notes`` on what their reader has to know."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def _noisy_measurements(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    source = read_measurements(public)
    require_all(source)
    _require_codes(source.measurements.geography)
    return write_noisy_measurements(source.measurements, output, limits=source.limits)


def _require_noisy(geography: Geography, schema: Schema, options: ExportOptions, columns: Sequence[str]) -> None:
    product_of(schema)
    _require_codes(geography)
    spine_of(geography)


def _require_codes(geography: Geography) -> None:
    """Refuse units that were made of areas, for which such files have no codes. Raises `DataError`."""
    if published(geography) is not geography:
        level, node = geography.levels[1], int(geography.level_offsets[1])
        raise DataError(
            "noise is measured on a spine of areas (geography.spine), and noisy measurement files lack codes for its "
            f"units, such as {shown(geography.identifiers[node].as_py())} of level {shown(level)}; leave nmf out: "
            "measurements.parquet has what was measured"
        )


def _redistricting(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    units = None if options.units is None else _counts(options.units)
    folder = write_pl94(_counts(public), output, units=units, header=options.header, state=options.state)
    return sorted(folder.iterdir())


def _require_redistricting(
    geography: Geography, schema: Schema, options: ExportOptions, columns: Sequence[str]
) -> None:
    units = None if options.units is None else _counts(options.units)
    require_pl94(_by_geoid(geography), schema, units=units, header=options.header, state=options.state)


def _no_units(options: ExportOptions) -> Sequence[str]:
    if options.units is not None:
        return ()
    return (
        "table H1 and the fields HU100 are 0, which is no count of housing units: this release is of persons; give the "
        "release of their housing units by --units, or exports.units",
    )


def _microdata(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    releases = [_counts(one) for one in (public, options.units) if one is not None]
    named = {_microdata_name(one): one for one in releases}
    if len(named) < len(releases):
        raise ConfigError(_SAME_RECORDS)
    with named_failures(output):
        make_folder(output.parent)
        with whole_folder(output) as staging:
            for name, release in named.items():
                write_ppmf(release, staging / name)
    return [output / name for name in named]


def _require_microdata(geography: Geography, schema: Schema, options: ExportOptions, columns: Sequence[str]) -> None:
    require_ppmf(_by_geoid(geography), schema)
    if options.units is not None and _counts(options.units).schema.attributes == schema.attributes:
        raise ConfigError(_SAME_RECORDS)


def _in_folder(
    write: Callable[[PublishedRelease, Path, ExportOptions], Sequence[Path]],
) -> Callable[[Path, Path, ExportOptions], Sequence[Path]]:
    """A function that writes a release into a new folder, which appears only when it is complete, from one that writes
    into a folder that exists.
    """

    def into(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
        found = read_release(public)
        with named_failures(output):
            make_folder(output.parent)
            with whole_folder(output) as staging:
                names = [path.name for path in write(found, staging, options)]
        return [output / name for name in names]

    return into


def _geoparquet(found: PublishedRelease, folder: Path, options: ExportOptions) -> Sequence[Path]:
    return [write_geoparquet(found, folder / "release.parquet", _geometry(options), query=options.query)]


def _geopackage(found: PublishedRelease, folder: Path, options: ExportOptions) -> Sequence[Path]:
    return [write_geopackage(found, folder / "release.gpkg", _geometry(options), query=options.query)]


def _acs(found: PublishedRelease, folder: Path, options: ExportOptions) -> Sequence[Path]:
    return write_acs(stated_numbers(found, options.query, ACS_CONFIDENCE), folder)


def _sdmx(found: PublishedRelease, folder: Path, options: ExportOptions) -> Sequence[Path]:
    told = found.manifest["configuration"].get("catalogue", {})
    title = found.manifest["title"] or "A release of counts"
    return write_sdmx(stated_numbers(found, options.query), folder, title, told)


def _workbook(found: PublishedRelease, folder: Path, options: ExportOptions) -> Sequence[Path]:
    numbers, manifest = stated_numbers(found, options.query), found.manifest
    margins = f"at {100 * numbers.confidence:.6g} %" if numbers.bounded is not None else f"none: {numbers.reason}"
    told = {name: text for name, text in manifest["configuration"].get("catalogue", {}).items() if text}
    about = {
        "title": manifest["title"] or "A release of counts",
        **told,
        "margins of error": margins,
        "reliability": "by the coefficient of variation: high up to 12 %, medium up to 40 %, low above",
        "what is protected": manifest["privacy"]["statement"],
        "SHA-256 of the manifest": file_digest(found.public / MANIFEST),
    }
    notices = [("notice", notice) for notice in manifest.get("notices", ())]
    return [write_workbook(numbers, folder / WORKBOOK, [*notices, *about.items()])]


def _archive(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    if is_linked_release(public):
        verify_linked(public)
    else:
        verify_files(public)
    with named_failures(output):
        make_folder(output.parent)
        with whole_folder(output) as staging:
            write_archive(public, staging / ARCHIVE)
    return [output / ARCHIVE]


def _require_acs(geography: Geography, schema: Schema, options: ExportOptions, columns: Sequence[str]) -> None:
    require_acs(columns)


def _require_sdmx(geography: Geography, schema: Schema, options: ExportOptions, columns: Sequence[str]) -> None:
    require_sdmx(_by_geoid(geography))


def _require_workbook(geography: Geography, schema: Schema, options: ExportOptions, columns: Sequence[str]) -> None:
    require_workbook(geography)


def _geometry(options: ExportOptions) -> Path:
    if options.geometry is None:
        raise ConfigError("a map needs outlines; name a file of them: --geometry, or exports.geometry")
    return options.geometry


def _require_map(geography: Geography, schema: Schema, options: ExportOptions, columns: Sequence[str]) -> None:
    require_outlines(_by_geoid(geography), columns, _geometry(options), package=False)


def _require_package(geography: Geography, schema: Schema, options: ExportOptions, columns: Sequence[str]) -> None:
    require_outlines(_by_geoid(geography), columns, _geometry(options), package=True)


def _by_geoid(geography: Geography) -> Geography:
    """``geography``; one of the spine's blocks with their GEOIDs as codes."""
    return tabulated_geography(geography) if has_spine_codes(geography) else geography


def _microdata_name(release: Release) -> str:
    """The file name that the Census Bureau uses: 2020_ppmf_person_ri.csv, and _us.csv for several states."""
    geography = release.geography
    level = next((one for one in geography.levels if spine_level(one) == "state"), geography.levels[0])
    nodes = geography.level_slice(level)
    code = geography.identifiers[nodes.start].as_py()
    place = STATES.get(code, "us") if nodes.stop - nodes.start == 1 else "us"
    kind = "unit" if release.schema.attributes == UNITS.attributes else "person"
    return f"2020_ppmf_{kind}_{place.lower()}.csv"


def _counts(public: Path) -> Release:
    """The counts of a release; those of the spine's blocks have their GEOIDs as codes."""
    release = read_release(public).release
    return tabulated_release(release) if has_spine_codes(release.geography) else release


EXPORT_FORMATS: dict[str, ExportFormat] = {
    form.name: form
    for form in (
        ExportFormat(
            "nmf",
            "measurements as the Census Bureau's noisy measurement files",
            _noisy_measurements,
            _require_noisy,
            of_measurements=True,
        ),
        ExportFormat(
            "pl94",
            "persons as the four members of a redistricting file (P.L. 94-171)",
            _redistricting,
            _require_redistricting,
            ("units", "header", "state"),
            _no_units,
        ),
        ExportFormat(
            "ppmf",
            "persons, housing units as privacy-protected microdata, a row per record",
            _microdata,
            _require_microdata,
            ("units",),
        ),
        ExportFormat(
            "geoparquet",
            "counts and margins of error with the outlines of their units, as GeoParquet",
            _in_folder(_geoparquet),
            _require_map,
            ("geometry", "query"),
        ),
        ExportFormat(
            "gpkg",
            "the same as a GeoPackage, which older software reads",
            _in_folder(_geopackage),
            _require_package,
            ("geometry", "query"),
        ),
        ExportFormat(
            "acs",
            "estimates and margins of error at 90 % in the columns of the American Community Survey",
            _in_folder(_acs),
            _require_acs,
            ("query",),
            lambda options: (ACS_NOTE,),
            of_measurements=True,
            of_margins=True,
        ),
        ExportFormat(
            "sdmx",
            "counts and margins of error as SDMX-CSV, with their structure as SDMX-ML",
            _in_folder(_sdmx),
            _require_sdmx,
            ("query",),
        ),
        ExportFormat(
            "xlsx",
            "counts and margins of error as a workbook",
            _in_folder(_workbook),
            _require_workbook,
            ("query",),
        ),
        ExportFormat("zip", "the public directory as one ZIP file", _archive, lambda *_: None),
    )
}
"""Every format by its name."""


def export_release(
    public: str | Path, form: str, output: str | Path, options: ExportOptions = ExportOptions()
) -> Exported:
    """Write the release in the directory ``public`` in another format into the folder ``output``, which is made.

    Raises `ConfigError` for an unknown format, an option that it does not take and an output that exists already,
    `DataError` for a release that is damaged or that the format cannot hold.
    """
    require_known(form, EXPORT_FORMATS, "format")
    chosen = EXPORT_FORMATS[form]
    idle = [name for name in options.given if name not in chosen.options]
    if idle:
        able = [one.name for one in EXPORT_FORMATS.values() if idle[0] in one.options]
        raise ConfigError(f"--{idle[0]} does not apply to --format {form}; it is for {listed(able)}")
    folder = require_encodable(Path(output))
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{shown_path(folder)} exists already; give another --output")
    require_outside_releases(folder)
    return Exported(tuple(chosen.write(Path(public), folder, options)), tuple(chosen.notes(options)))
