"""A release in the forms of other people's tools, from its public directory alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from topdown.analysis.geoparquet import require_outlines, write_geoparquet
from topdown.census.layouts.noisy_layout import has_spine_codes, product_of
from topdown.census.noisy_write import write_noisy_measurements
from topdown.census.ppmf_file import require_ppmf, write_ppmf
from topdown.census.redistricting_file import STATES, require_pl94, write_pl94
from topdown.census.spine import spine_of
from topdown.census.tabulated import tabulated_geography, tabulated_release
from topdown.errors import ConfigError, DataError, require_known
from topdown.geography.geography import Geography
from topdown.machine.files import make_folder, whole_folder
from topdown.release.published import read_release
from topdown.release.read import read_measurements
from topdown.release.whole_counts import Release
from topdown.tables.readers import require_encodable
from topdown.tables.tidy import named_failures
from topdown.wording import listed, shown_path
from topdown.workload import Schema
from topdown.workload.redistricting import UNITS, spine_level

_SAME_RECORDS = (
    "both releases are of the same records; give persons, and as units (--units, or exports.units) their housing units"
)


@dataclass(frozen=True)
class ExportOptions:
    """What a form may be told beside the release: the public directory of its housing ``units``, a geographic
    ``header``, outlines (``geometry``), the ``query`` whose answers are written, and which ``state`` of a nation.
    """

    units: Path | None = None
    header: Path | None = None
    geometry: Path | None = None
    query: str | None = None
    state: str | None = None

    @property
    def given(self) -> list[str]:
        """The names of those that are there."""
        return [one.name for one in fields(self) if getattr(self, one.name) is not None]


@dataclass(frozen=True)
class ExportFormat:
    """A form that a release can be written in: its ``name``, what it is in ``words``, the ``options`` that it takes,
    and what ``write`` makes of a public directory in an output folder, which must not exist; it returns the files.
    ``require`` refuses what ``write`` would of a release on a geography, of a schema, before there are counts.
    ``notes``: what has to be known of what is written, in sentences. ``of_measurements``: whether it is of these, which
    a release in parts does not keep.
    """

    name: str
    words: str
    write: Callable[[Path, Path, ExportOptions], Sequence[Path]]
    require: Callable[[Geography, Schema, ExportOptions], object]
    options: tuple[str, ...] = ()
    notes: Callable[[ExportOptions], Sequence[str]] = lambda options: ()
    of_measurements: bool = False


class Exported(NamedTuple):
    """The ``files`` that were written, and in ``notes`` what has to be known of them."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def _noisy_measurements(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    source = read_measurements(public)
    return write_noisy_measurements(source.measurements, output, limits=source.limits)


def _require_noisy(geography: Geography, schema: Schema, options: ExportOptions) -> None:
    product_of(schema)
    spine_of(geography)


def _redistricting(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    units = None if options.units is None else _counts(options.units)
    folder = write_pl94(_counts(public), output, units=units, header=options.header, state=options.state)
    return sorted(folder.iterdir())


def _require_redistricting(geography: Geography, schema: Schema, options: ExportOptions) -> None:
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
        raise DataError(_SAME_RECORDS)
    with named_failures(output):
        make_folder(output.parent)
        with whole_folder(output) as staging:
            for name, release in named.items():
                write_ppmf(release, staging / name)
    return [output / name for name in named]


def _require_microdata(geography: Geography, schema: Schema, options: ExportOptions) -> None:
    require_ppmf(_by_geoid(geography), schema)
    if options.units is not None and _counts(options.units).schema.attributes == schema.attributes:
        raise DataError(_SAME_RECORDS)


def _geoparquet(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    geometry = _geometry(options)
    found = read_release(public)
    with named_failures(output):
        make_folder(output.parent)
        with whole_folder(output) as staging:
            write_geoparquet(found, staging / "release.parquet", geometry, query=options.query)
    return [output / "release.parquet"]


def _geometry(options: ExportOptions) -> Path:
    if options.geometry is None:
        raise ConfigError("format geoparquet needs outlines; name a file of them: --geometry, or exports.geometry")
    return options.geometry


def _require_geoparquet(geography: Geography, schema: Schema, options: ExportOptions) -> None:
    require_outlines(_by_geoid(geography), schema, _geometry(options), options.query)


def _by_geoid(geography: Geography) -> Geography:
    """``geography``, of the spine's blocks by GEOID."""
    return tabulated_geography(geography) if has_spine_codes(geography) else geography


def _microdata_name(release: Release) -> str:
    """As the Census Bureau calls its own: 2020_ppmf_person_ri.csv, and _us.csv of several states."""
    geography = release.geography
    level = next((one for one in geography.levels if spine_level(one) == "state"), geography.levels[0])
    nodes = geography.level_slice(level)
    code = geography.identifiers[nodes.start].as_py()
    place = STATES.get(code, "us") if nodes.stop - nodes.start == 1 else "us"
    kind = "unit" if release.schema.attributes == UNITS.attributes else "person"
    return f"2020_ppmf_{kind}_{place.lower()}.csv"


def _counts(public: Path) -> Release:
    """The counts of a release; of the spine's blocks, by GEOID."""
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
            "counts with the outlines of their units",
            _geoparquet,
            _require_geoparquet,
            ("geometry", "query"),
        ),
    )
}
"""Every form by its name: the only place where a name becomes one."""


def export_release(
    public: str | Path, form: str, output: str | Path, options: ExportOptions = ExportOptions()
) -> Exported:
    """Write the release in the directory ``public`` in another form into ``output``, which is made.

    Raises `ConfigError` for an unknown form, an option that it does not take and an output that is there already,
    `DataError` for a release that is not what was written or that the form has no place for.
    """
    require_known(form, EXPORT_FORMATS, "format")
    chosen = EXPORT_FORMATS[form]
    idle = [name for name in options.given if name not in chosen.options]
    if idle:
        able = [one.name for one in EXPORT_FORMATS.values() if idle[0] in one.options]
        raise ConfigError(f"--{idle[0]} does not apply to --format {form}; it is for {listed(able)}")
    folder = require_encodable(Path(output))
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{shown_path(folder)} is there already; give another --output")
    return Exported(tuple(chosen.write(Path(public), folder, options)), tuple(chosen.notes(options)))
