"""A release in the forms of other people's tools, from its public directory alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from topdown.errors import ConfigError, DataError, require_known
from topdown.machine.files import make_folder, whole_folder
from topdown.release.geoparquet import write_geoparquet
from topdown.release.histograms import HistogramRelease
from topdown.release.noisy_write import write_noisy_measurements
from topdown.release.pl94 import STATES, write_pl94
from topdown.release.ppmf import write_ppmf
from topdown.release.published import read_release
from topdown.release.read import read_measurements
from topdown.release.tabulated import tabulated_release
from topdown.tables.noisy_measurements import has_spine_codes
from topdown.tables.readers import require_encodable
from topdown.wording import FAILED, listed, reason, shown_path
from topdown.workload.redistricting import UNITS, spine_level


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
    """

    name: str
    words: str
    write: Callable[[Path, Path, ExportOptions], Sequence[Path]]
    options: tuple[str, ...] = ()


def _noisy_measurements(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    source = read_measurements(public)
    return write_noisy_measurements(source.measurements, output, limits=source.limits)


def _redistricting(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    units = None if options.units is None else _histograms(options.units)
    folder = write_pl94(_histograms(public), output, units=units, header=options.header, state=options.state)
    return sorted(folder.iterdir())


def _microdata(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    releases = [_histograms(one) for one in (public, options.units) if one is not None]
    named = {_microdata_name(one): one for one in releases}
    if len(named) < len(releases):
        raise DataError("both releases are of the same records; give persons, and their housing units with --units")
    try:
        make_folder(output.parent)
        with whole_folder(output) as staging:
            for name, release in named.items():
                write_ppmf(release, staging / name)
    except OSError as error:
        raise DataError(
            f"{shown_path(output)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path"
        ) from None
    return [output / name for name in named]


def _geoparquet(public: Path, output: Path, options: ExportOptions) -> Sequence[Path]:
    if options.geometry is None:
        raise ConfigError("format geoparquet needs outlines; name a file of them with --geometry")
    found = read_release(public)
    try:
        make_folder(output.parent)
        with whole_folder(output) as staging:
            write_geoparquet(found, staging / "release.parquet", options.geometry, query=options.query)
    except OSError as error:
        raise DataError(
            f"{shown_path(output)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path"
        ) from None
    return [output / "release.parquet"]


def _microdata_name(release: HistogramRelease) -> str:
    """As the Census Bureau calls its own: 2020_ppmf_person_ri.csv, and _us.csv of several states."""
    geography = release.geography
    level = next((one for one in geography.levels if spine_level(one) == "state"), geography.levels[0])
    nodes = geography.level_slice(level)
    code = geography.identifiers[nodes.start].as_py()
    place = STATES.get(code, "us") if nodes.stop - nodes.start == 1 else "us"
    kind = "unit" if release.schema.attributes == UNITS.attributes else "person"
    return f"2020_ppmf_{kind}_{place.lower()}.csv"


def _histograms(public: Path) -> HistogramRelease:
    """The counts of a release by cell, of one query as of several; of the spine's blocks, by GEOID."""
    found = read_release(public)
    release = found.histograms
    if release is None:
        release = HistogramRelease.of_release(found.release, found.measurements.schema)
    return tabulated_release(release) if has_spine_codes(release.geography) else release


EXPORT_FORMATS: dict[str, ExportFormat] = {
    form.name: form
    for form in (
        ExportFormat("nmf", "measurements as the Census Bureau's noisy measurement files", _noisy_measurements),
        ExportFormat(
            "pl94",
            "persons as the four members of a redistricting file (P.L. 94-171)",
            _redistricting,
            ("units", "header", "state"),
        ),
        ExportFormat(
            "ppmf", "persons, housing units as privacy-protected microdata, a row per record", _microdata, ("units",)
        ),
        ExportFormat("geoparquet", "counts with the outlines of their units", _geoparquet, ("geometry", "query")),
    )
}
"""Every form by its name: the only place where a name becomes one."""


def export_release(
    public: str | Path, form: str, output: str | Path, options: ExportOptions = ExportOptions()
) -> Sequence[Path]:
    """Write the release in the directory ``public`` in another form into ``output``, which is made; returns the files.

    Raises `ConfigError` for an unknown form, an option that it does not take and an output that is there already,
    `DataError` for a release that is not what was written or that the form has no place for.
    """
    require_known(form, EXPORT_FORMATS, "format")
    chosen = EXPORT_FORMATS[form]
    idle = [name for name in options.given if name not in chosen.options]
    if idle:
        able = [one.name for one in EXPORT_FORMATS.values() if idle[0] in one.options]
        raise ConfigError(f"--{idle[0]} says nothing to format {form}; it is for {listed(able)}")
    folder = require_encodable(Path(output))
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{shown_path(folder)} is there already; give another --output")
    return chosen.write(Path(public), folder, options)
