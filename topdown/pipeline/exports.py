"""[output] exports and page: writes the release in other formats to the folder exports/ beside public/, and as a page,
page.html.

What a format needs is checked before anything is drawn. The folder appears complete, after the release; made.json
states from which release and with which options it was made, so that a run that is started again recognises it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from topdown.analysis.export_formats import EXPORT_FORMATS, ExportFormat, ExportOptions, export_release
from topdown.analysis.page.release_page import FILE as PAGE
from topdown.analysis.page.release_page import PageOptions, require_page, write_page
from topdown.analysis.stated_numbers import stated_columns
from topdown.config import DerivationConfig
from topdown.errors import ConfigError, DataError, TopdownError, require_known
from topdown.geography.geography import Geography
from topdown.geography.unit_sums import published
from topdown.machine.files import file_digest, make_folder, whole_folder
from topdown.machine.progress import Stages
from topdown.release.layouts import EVERY_CELL, WITH_RECORDS
from topdown.release.manifest import MALFORMED
from topdown.release.places import MANIFEST
from topdown.tables.tidy import named_failures, write_json
from topdown.wording import listed, reason, shown, shown_path
from topdown.workload import Schema

FOLDER = "exports"
_MADE = "made.json"
_SCHEMA_VERSION = "1.0"


def require_exports(config: DerivationConfig, directory: Path | None = None) -> None:
    """Refuse exports that cannot be made whatever the table holds: unknown formats, options of other formats, missing
    files, and, where ``directory`` is given, a directory with exports of another release.

    Raises `ConfigError` naming the setting.
    """
    chosen = _chosen(config)
    given = _options(config)
    for option in given.given:
        if not any(option in form.options for form in chosen):
            able = [form.name for form in EXPORT_FORMATS.values() if option in form.options]
            raise ConfigError(f"exports.{option} is for {listed(able)}, and output.exports has none of them")
    for name in ("units", "header", "geometry"):
        path = getattr(given, name)
        if path is not None and not os.path.exists(path):
            raise ConfigError(f"exports.{name} = {shown_path(path)}: no such file or folder; correct the path")
    _require_page_files(config)
    if directory is not None and not _holds(directory / "public"):
        made = [FOLDER] if chosen else []
        made += [PAGE, Path(PAGE).stem] if config.output.page else []
        for name in made:
            if _holds(directory / name):
                raise ConfigError(f"{shown_path(directory / name)} exists already, for another release; move it away")


def require_exportable(
    config: DerivationConfig,
    geography: Geography,
    schema: Schema,
    no_margins: str | None = None,
    *,
    by_family: bool,
) -> None:
    """Refuse, before anything is drawn, units, levels and attributes that a format of ``config`` cannot represent.
    ``geography``: of the measured units; ``by_family``: whether the release is made family by family, on the cells that
    it has.

    ``no_margins``: why the release has no margins of error; None where it has some. Raises `ConfigError` and
    `DataError` naming the format.
    """
    layout = WITH_RECORDS if by_family else EVERY_CELL
    for form in _chosen(config):
        try:
            if form.of_margins and no_margins is not None:
                raise ConfigError(f"it states margins of error, and there are none: {no_margins}")
            units = geography if form.of_measurements else published(geography)
            options = _of_form(form, _options(config))
            states = "query" in form.options
            columns = stated_columns(schema, layout, options.query, config.output.tables) if states else []
            form.require(units, schema, options, columns)
        except TopdownError as error:
            raise type(error)(f"output.exports, {form.name}: {error}") from None
    if config.output.page:
        try:
            require_page(published(geography), _page_options(config))
        except TopdownError as error:
            raise type(error)(f"output.page: {error}") from None


def write_exports(config: DerivationConfig, directory: Path, stages: Stages) -> None:
    """Write the release in ``directory``/public in the formats that ``config`` asks for to ``directory``/exports, and
    its page beside them.

    Raises `ConfigError` where that folder has other content, `DataError` where something cannot be written.
    """
    if config.output.page:
        _write_page(config, directory, stages)
    chosen = _chosen(config)
    if not chosen:
        return
    folder, public = directory / FOLDER, directory / "public"
    asked = {
        "schema_version": _SCHEMA_VERSION,
        "release_sha256": file_digest(public / MANIFEST),
        "formats": sorted(form.name for form in chosen),
        "options": {name: _told(getattr(_options(config), name)) for name in _options(config).given},
    }
    if _holds(folder):
        _require_same(folder, asked)
        stages.say(f"{folder} holds these exports already, complete; nothing was written")
        return
    with named_failures(folder, "free the space or correct the path, and run again: the release stays as it is"):
        make_folder(directory)
        with stages.stage("exporting"), whole_folder(folder) as staging:
            for form in chosen:
                made = export_release(public, form.name, staging / form.name, _of_form(form, _options(config)))
                for note in made.notes:
                    stages.say(f"note      {form.name}: {note}")
            files = {
                one.relative_to(staging).as_posix(): file_digest(one)
                for one in sorted(staging.rglob("*"))
                if one.is_file()
            }
            write_json(staging / _MADE, {**asked, "files": files})
    stages.say(f"wrote     {folder} ({', '.join(form.name for form in chosen)}: {len(files):,} files)")


def _require_page_files(config: DerivationConfig) -> None:
    """Refuse files of a page that are missing, or given without a page. Raises `ConfigError` naming the setting."""
    options = _page_options(config)
    if not config.output.page and options != PageOptions():
        raise ConfigError("section [page] is for the page of the release; set output.page = true, or leave it out")
    for name, path in [("geometry", options.geometry), *(("areas", path) for path in options.areas)]:
        if path is not None and not os.path.exists(path):
            raise ConfigError(f"page.{name} = {shown_path(path)}: no such file; correct the path")


def _page_options(config: DerivationConfig) -> PageOptions:
    told = config.page
    geometry = None if told.geometry is None else config.path_of(told.geometry)
    return PageOptions(geometry, tuple(config.path_of(path) for path in told.areas))


def _write_page(config: DerivationConfig, directory: Path, stages: Stages) -> None:
    with stages.stage("making the page"):
        made = write_page(directory / "public", directory / PAGE, _page_options(config))
    for note in made.notes:
        stages.say(f"note      page: {note}")
    if made.already_there:
        stages.say(f"{made.output} is this release's page already; nothing was written")
    else:
        stages.say(f"wrote     {made.output} ({made.size})")


def _chosen(config: DerivationConfig) -> list[ExportFormat]:
    names = config.output.forms
    for k, name in enumerate(names):
        require_known(name, EXPORT_FORMATS, "form in output.exports:")
        if name in names[:k]:
            raise ConfigError(f"output.exports names {shown(name)} twice; name it once")
    return [EXPORT_FORMATS[name] for name in names]


def _options(config: DerivationConfig) -> ExportOptions:
    """The options of section [exports], with paths relative to the file."""
    told = config.exports
    paths = {name: getattr(told, name) for name in ("units", "header", "geometry")}
    resolved = {name: None if path is None else config.path_of(path) for name, path in paths.items()}
    return ExportOptions(**resolved, query=told.query, state=told.state)


def _of_form(form: ExportFormat, options: ExportOptions) -> ExportOptions:
    """Those of ``options`` that ``form`` takes."""
    return replace(options, **{name: None for name in options.given if name not in form.options})


def _told(option: Path | str) -> str:
    """An option for the record: its text, or the digest of the file at its path."""
    if isinstance(option, str):
        return option
    if not option.is_dir():
        return file_digest(option)
    if (option / MANIFEST).is_file():
        return file_digest(option / MANIFEST)
    inside = sorted(one for one in option.rglob("*") if one.is_file())
    told = "".join(f"{one.relative_to(option).as_posix()}\0{file_digest(one)}\n" for one in inside)
    return hashlib.sha256(told.encode()).hexdigest()


def _holds(folder: Path) -> bool:
    try:
        return folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
    except OSError as error:
        raise ConfigError(f"{shown_path(folder)}: cannot be read: {reason(error)}; correct the permissions") from None


def _require_same(folder: Path, asked: dict[str, Any]) -> None:
    """Refuse a folder whose exports are not those that are ``asked`` for, or are incomplete."""
    try:
        there = json.loads((folder / _MADE).read_text(encoding="utf-8"))
        files = {str(name): str(digest) for name, digest in there.pop("files").items()}
    except (OSError, *MALFORMED):
        there, files = None, {}
    if there != asked:
        raise ConfigError(
            f"{shown_path(folder)} holds other exports than output.exports and [exports] ask for; move it away and run "
            "again: the release stays as it is"
        )
    for name, digest in files.items():
        if not (folder / name).is_file() or file_digest(folder / name) != digest:
            raise DataError(
                f"{shown_path(folder / name)} is not the file that was written; move {shown_path(folder)} away and run "
                "again: the release stays as it is"
            )
