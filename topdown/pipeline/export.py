"""A release in the forms of other people's tools, from its public directory alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from topdown.errors import ConfigError, require_known
from topdown.release.noisy_write import write_noisy_measurements
from topdown.release.read import read_measurements
from topdown.tables.readers import require_encodable
from topdown.wording import shown_path


@dataclass(frozen=True)
class ExportFormat:
    """A form that a release can be written in: its ``name``, what it is in ``words``, and what ``write`` makes of a
    public directory in an output folder, which must not exist; it returns the files.
    """

    name: str
    words: str
    write: Callable[[Path, Path], Sequence[Path]]


def _noisy_measurements(public: Path, output: Path) -> Sequence[Path]:
    source = read_measurements(public)
    return write_noisy_measurements(source.measurements, output, limits=source.limits)


EXPORT_FORMATS: dict[str, ExportFormat] = {
    form.name: form
    for form in (
        ExportFormat("nmf", "measurements as the Census Bureau's noisy measurement files", _noisy_measurements),
    )
}
"""Every form by its name: the only place where a name becomes one."""


def export_release(public: str | Path, form: str, output: str | Path) -> Sequence[Path]:
    """Write the release in the directory ``public`` in another form into ``output``, which is made; returns the files.

    Raises `ConfigError` for an unknown form and an output that is there already, `DataError` for a release that is not
    what was written or that the form has no place for.
    """
    require_known(form, EXPORT_FORMATS, "format")
    folder = require_encodable(Path(output))
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{shown_path(folder)} is there already; give another --output")
    return EXPORT_FORMATS[form].write(Path(public), folder)
