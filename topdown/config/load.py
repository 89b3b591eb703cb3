"""Reads and validates a TOML file; unknown keys are refused with the nearest known one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from topdown.config.privacy import NoiseOptions, Privacy, budget_errors
from topdown.config.reference import form_of, right_form
from topdown.config.release import RunConfig, contradictions
from topdown.config.table_settings import GeographyOptions, Input
from topdown.errors import ConfigError, nearest
from topdown.wording import LONGEST_LIST, may_hold_a_count, reason, shown, shown_path, unquoted

if TYPE_CHECKING:
    # Loaded where such a file is read: their modules take as long to load as a tenth of a small release.
    from topdown.config.linked_settings import LinkedConfig
    from topdown.config.project_settings import ProjectConfig
    from topdown.config.study_settings import StudyConfig

_MOST_ERRORS = 10
_LONGEST_SETTING = 25
"""A message quotes at most so many settings, and so much of each."""

_LARGEST = 1 << 26
"""The most characters of a configuration; a device such as /dev/zero has no end."""

_BACKSLASH = (
    r" (a backslash begins an escape: write paths as C:/data/table.csv, or 'C:\data\table.csv' in single quotes)"
)

Model = TypeVar("Model", bound=BaseModel)


def load_config(path: str | Path) -> RunConfig:
    """The release that the TOML file at ``path`` describes.

    Raises `ConfigError` naming the file and the key: a file that does not exist or is not TOML, an unknown key (with
    the nearest known one), a value of the wrong kind, a seed, a section [study] or [measurements].
    """
    settings = _settings(path)
    if "measurements" in settings:
        raise ConfigError(
            f"{shown_path(path)}: names existing measurements (it has a section [measurements]), not a "
            "confidential table: use `topdown project FILE`, or remove the section"
        )
    if "study" in settings:
        raise ConfigError(
            f"{shown_path(path)}: describes a study (it has a section [study]), not a release: use `topdown study "
            "FILE`, or remove the section"
        )
    if "link" in settings:
        raise ConfigError(
            f"{shown_path(path)}: describes two linked tables (it has a section [link]), of which `topdown run`, "
            "`topdown check` and `topdown study` know; nothing else does yet"
        )
    return _validated(RunConfig, settings, Path(path))


def describes_linked(path: str | Path) -> bool:
    """Whether the TOML file at ``path`` describes two linked tables: it has a section [link]."""
    return "link" in _settings(path)


def load_linked(path: str | Path) -> LinkedConfig:
    """The release of two linked tables that the TOML file at ``path`` describes.

    Raises `ConfigError` as `load_config` does, and for a file without a section [link].
    """
    settings = _settings(path)
    if "link" not in settings:
        raise ConfigError(f"{shown_path(path)}: describes one table (it has no section [link]), not two linked ones")
    from topdown.config.linked_settings import LinkedConfig

    return _validated(LinkedConfig, settings, Path(path))


def load_study(path: str | Path) -> StudyConfig:
    """The study that the TOML file at ``path`` describes.

    Raises `ConfigError` as `load_config` does, and for a file without a section [study].
    """
    settings = _settings(path)
    if "study" not in settings:
        raise ConfigError(
            f"{shown_path(path)}: describes a release, not a study: use `topdown run FILE`, or add a section [study], "
            "such as one line `replicates = 1000` below it"
        )
    from topdown.config.study_settings import StudyConfig

    return _validated(StudyConfig, settings, Path(path))


def load_any(path: str | Path) -> RunConfig:
    """The release or the study that the TOML file at ``path`` describes; a study has a section [study]."""
    return load_study(path) if "study" in _settings(path) else load_config(path)


def load_project(path: str | Path) -> ProjectConfig:
    """The projection of existing measurements that the TOML file at ``path`` describes.

    Raises `ConfigError` as `load_config` does, and for a file without a section [measurements].
    """
    settings = _settings(path)
    if "measurements" not in settings:
        raise ConfigError(
            f"{shown_path(path)}: names no measurements; add a section [measurements] with the path of a release's "
            "public directory, or use `topdown run FILE` for a confidential table"
        )
    from topdown.config.project_settings import ProjectConfig

    return _validated(ProjectConfig, settings, Path(path))


def _settings(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ConfigError(f"{shown_path(path)}: is longer than any configuration; give the path of a TOML file")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{shown_path(path)}: line {line:,} is not UTF-8, which TOML requires; save the file again with the "
            "encoding UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{shown_path(path)}: cannot be read: {reason(error)}; give the path of a TOML file"
        ) from None
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        # Also for a number of thousands of digits, and for brackets nested thousands deep.
        raise ConfigError(
            f"{shown_path(path)}: not TOML: {unquoted(str(error), LONGEST_LIST)}{_hint(error, text)}"
        ) from None


def _hint(error: Exception, text: str) -> str:
    """A likely cause of an error in the TOML text, as the end of the sentence."""
    said = str(error)
    if "\\" in said or "hex" in said:
        return _BACKSLASH
    found = re.search(r"at line ([0-9]+)", said)
    lines = text.splitlines()
    line = lines[int(found[1]) - 1] if found is not None and int(found[1]) <= len(lines) else ""
    if re.search(r"=\s*[0-9]+,[0-9]+\s*([,}].*|#.*)?$", line):
        return " (write decimals with a point: 1.5)"
    if "Cannot overwrite" in said or "Cannot declare" in said:
        return " (a key or section was given twice: keep one of the two)"
    if re.search(r"=\s*[^\s\"'\[{0-9tf+-]", line):
        return ' (write a text in quotes: name = "value")'
    return ""


def _validated(model: type[Model], settings: dict[str, Any], path: Path) -> Model:
    if "folder" in settings:
        raise ConfigError(
            f"{shown_path(path)}: unknown key folder; paths, including output.directory, are relative to the file"
        )
    try:
        return model.model_validate({**settings, "folder": path.parent})
    except ValidationError as error:
        found = _by_setting(error.errors(), model)
    from topdown.config.linked_settings import LinkedConfig

    others = [] if model is LinkedConfig else _in_other_sections(settings)
    found += [said for said in others if not any(said in one for one in found)]
    more = f"; and {len(found) - _MOST_ERRORS} more" if len(found) > _MOST_ERRORS else ""
    raise ConfigError(f"{shown_path(path)}: " + "; ".join(found[:_MOST_ERRORS]) + more)


def _by_setting(errors: list[Any], model: type[BaseModel]) -> list[str]:
    """The errors, one sentence for every setting; of errors in many places of a setting, the first is shown."""
    grouped: dict[Any, list[Any]] = {}
    for one in errors:
        unknown = one["type"] == "extra_forbidden"
        grouped.setdefault(one["loc"] if unknown else one["loc"][:2], []).append(one)
    return [_of_one_setting(group, model) for group in grouped.values()]


def _of_one_setting(group: list[Any], model: type[BaseModel]) -> str:
    """The error of a setting. If the setting has several allowed forms, the sentence names them all; of several errors
    it shows the first of those that are furthest inside, since a table has the form of a table, and something in it is
    wrong.
    """
    told = [(form, str(one["loc"][-1])) for one in group if (form := form_of(one)) is not None]
    forms = [form for form, last in told if last in _SCALARS or last.startswith(_ALTERNATIVES)]
    if len(forms) == len(group) > 1:
        return _in_words({**group[0], "loc": group[0]["loc"][:-1], "forms": forms}, model)
    inmost = max(group, key=lambda one: len(one["loc"]))
    return _in_words(inmost, model) + (f" (and {len(group) - 1} more like it)" if len(group) > 1 else "")


def _in_other_sections(settings: dict[str, Any]) -> list[str]:
    """Further errors, if some sections cannot be read: contradictions between those that can, and errors of the
    budget.
    """
    table, geography = _section_of(Input, settings, "input"), _section_of(GeographyOptions, settings, "geography")
    privacy, noise = _section_of(Privacy, settings, "privacy"), _section_of(NoiseOptions, settings, "noise")
    found = (
        []
        if table is None or geography is None
        else contradictions(table, geography, has_attributes="schema" in settings)
    )
    if privacy is not None and privacy.preset is None:
        levels = None if geography is None else geography.measured_names
        found += map(str, budget_errors(privacy, NoiseOptions() if noise is None else noise, levels))
    return found


def _section_of(model: type[Model], settings: dict[str, Any], name: str) -> Model | None:
    try:
        return model.model_validate(settings[name])
    except (ValidationError, KeyError):
        return None


_SCALARS = ("str", "int", "float", "bool")
_ALTERNATIVES = ("function-", "list[", "dict[", "literal[", "constrained-")
"""How pydantic's path of a setting names one of the forms that it may have."""


def _in_words(error: Any, model: type[BaseModel]) -> str:
    """One of pydantic's errors as a sentence that names the key and what to do."""
    parts = [str(part) for part in error["loc"] if not str(part).startswith(_ALTERNATIVES)]
    parts = parts[:-1] if len(parts) > 2 and parts[-1] == "str" else parts
    # Where a table of counts was given as the configuration, keys may be counts.
    where = unquoted(".".join("(not shown)" if may_hold_a_count(part) else part for part in parts))
    if error["type"] == "missing":
        return f"{where} is missing; give it"
    if not parts:  # a contradiction between sections: the value would be the whole file
        return str(error["msg"].removeprefix("Value error, "))
    if error["type"] != "extra_forbidden":
        said = right_form(parts, error) or error["msg"].removeprefix("Value error, ")
        given = error["input"]
        # For a contradiction within a section, the value would be the whole section, and is not quoted.
        is_whole = isinstance(given, dict) or (isinstance(given, list) and any(isinstance(one, dict) for one in given))
        return f"{where}: {said}" + ("" if is_whole else f" (is {shown(given, _LONGEST_SETTING)})")
    key = str(error["loc"][-1])
    if "seed" in key.lower() and issubclass(model, RunConfig) and model.is_study:
        return f"unknown key {where}: a study's seed is study.seed"
    if "seed" in key.lower():
        return (
            f"{where}: a release draws from the operating system's entropy and has no seed, which would reveal the "
            "noise; only studies have seeds"
        )
    fields = _section(model, error["loc"][:-1]).model_fields
    known = [field.alias or name for name, field in fields.items() if name != "folder"]
    top = {field.alias or name: field for name, field in model.model_fields.items() if name != "folder"}
    if len(parts) > 1 and key in top:
        return f"unknown key {where}: {key} is a section of its own; write it below a line [{key}]"
    homes = [
        name for name in top if key in _section(model, (name,)).model_fields and _section(model, (name,)) is not model
    ]
    if homes and key not in known and not nearest(key, known):
        return f"unknown key {where}: {unquoted(key)} belongs to [{homes[0]}]"
    return f"unknown key {where}{nearest(key, known)} (known: {', '.join(known)})"


def _section(model: type[BaseModel], keys: tuple[Any, ...]) -> type[BaseModel]:
    """The model of the section at a path of keys."""
    for key in keys:
        field = model.model_fields.get(str(key))
        if field is None:
            continue
        # The annotation of an optional section includes None.
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                model = kind
    return model
