"""From a TOML file to a configuration; unknown keys are refused with the nearest known one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from topdown.config.privacy import NoiseOptions, Privacy, budget_errors
from topdown.config.project_settings import ProjectConfig
from topdown.config.reference import FORMS, right_form
from topdown.config.release import RunConfig, contradictions
from topdown.config.study_settings import StudyConfig
from topdown.config.table_settings import GeographyOptions, Input
from topdown.errors import ConfigError, nearest
from topdown.wording import LONGEST_LIST, may_hold_a_count, reason, shown, shown_path, unquoted

_MOST_ERRORS = 10
_LONGEST_SETTING = 25
"""A message quotes at most so many settings, and so much of each."""

_LARGEST = 1 << 26
"""Characters of a configuration; some devices have no end."""

_BACKSLASH = (
    r" (a backslash begins an escape: write paths as C:/data/table.csv, or 'C:\data\table.csv' in single quotes)"
)

Model = TypeVar("Model", bound=BaseModel)


def load_config(path: str | Path) -> RunConfig:
    """The release that the TOML file at ``path`` describes.

    Raises `ConfigError` naming the file and the key: a file that is not there or not TOML, an unknown key (with the
    nearest known one), a value of the wrong kind, a seed, a section [study] or [measurements].
    """
    settings = _settings(path)
    if "measurements" in settings:
        raise ConfigError(
            f"{shown_path(path)}: names measurements that were drawn before (it has a section [measurements]), not a "
            "confidential table: use `topdown project FILE`, or take the section out"
        )
    if "study" in settings:
        raise ConfigError(
            f"{shown_path(path)}: describes a study (it has a section [study]), not a release: use `topdown study "
            "FILE`, or take the section out"
        )
    return _validated(RunConfig, settings, Path(path))


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
    return _validated(StudyConfig, settings, Path(path))


def load_any(path: str | Path) -> RunConfig:
    """The release or the study that the TOML file at ``path`` describes, by whether it has a section [study]."""
    return load_study(path) if "study" in _settings(path) else load_config(path)


def load_project(path: str | Path) -> ProjectConfig:
    """What the TOML file at ``path`` derives from measurements alone.

    Raises `ConfigError` as `load_config` does, and for a file without a section [measurements].
    """
    settings = _settings(path)
    if "measurements" not in settings:
        raise ConfigError(
            f"{shown_path(path)}: names no measurements; add a section [measurements] with the path of a release's "
            "public directory, or use `topdown run FILE` for a confidential table"
        )
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
            f"{shown_path(path)}: line {line:,} is not UTF-8, as TOML has to be; save the file again with the encoding "
            "UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{shown_path(path)}: cannot be read: {reason(error)}; give the path of a TOML file"
        ) from None
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        # Also for a number of thousands of digits, and for brackets within thousands of others.
        raise ConfigError(
            f"{shown_path(path)}: not TOML: {unquoted(str(error), LONGEST_LIST)}{_hint(error, text)}"
        ) from None


def _hint(error: Exception, text: str) -> str:
    """What may be meant where TOML cannot be read, to end the sentence."""
    said = str(error)
    if "\\" in said or "hex" in said:
        return _BACKSLASH
    found = re.search(r"at line ([0-9]+)", said)
    lines = text.splitlines()
    line = lines[int(found[1]) - 1] if found is not None and int(found[1]) <= len(lines) else ""
    if re.search(r"=\s*[0-9]+,[0-9]+\s*([,}].*|#.*)?$", line):
        return " (decimals have a point: 1.5)"
    if "Cannot overwrite" in said or "Cannot declare" in said:
        return " (a key or section that was given before: keep one of the two)"
    if re.search(r"=\s*[^\s\"'\[{0-9tf+-]", line):
        return ' (a text stands in quotes: name = "value")'
    return ""


def _validated(model: type[Model], settings: dict[str, Any], path: Path) -> Model:
    if "folder" in settings:
        raise ConfigError(
            f"{shown_path(path)}: unknown key folder; paths are relative to the file, output.directory among them"
        )
    try:
        return model.model_validate({**settings, "folder": path.parent})
    except ValidationError as error:
        found = _by_setting(error.errors(), model)
    found += [said for said in _in_other_sections(settings) if not any(said in one for one in found)]
    more = f"; and {len(found) - _MOST_ERRORS} more" if len(found) > _MOST_ERRORS else ""
    raise ConfigError(f"{shown_path(path)}: " + "; ".join(found[:_MOST_ERRORS]) + more)


def _by_setting(errors: list[Any], model: type[BaseModel]) -> list[str]:
    """What is wrong, one sentence for every setting: what is wrong in many places of it is shown at the first."""
    grouped: dict[Any, list[Any]] = {}
    for one in errors:
        unknown = one["type"] == "extra_forbidden"
        grouped.setdefault(one["loc"] if unknown else one["loc"][:2], []).append(one)
    return [_of_one_setting(group, model) for group in grouped.values()]


def _of_one_setting(group: list[Any], model: type[BaseModel]) -> str:
    """What is wrong with a setting: of one that has several forms, all that it may have; of many faults the first."""
    forms = [one for one in group if one["type"] in FORMS and str(one["loc"][-1]) in ("str", *_names_of_forms(one))]
    if len(forms) == len(group) > 1:
        return _in_words({**group[0], "forms": [one["type"] for one in group]}, model)
    return _in_words(group[0], model) + (f" (and {len(group) - 1} more like it)" if len(group) > 1 else "")


def _names_of_forms(error: Any) -> tuple[str, ...]:
    """How pydantic calls the form that it tried last, at the end of a setting's path."""
    last = str(error["loc"][-1])
    return (last,) if last.startswith(_ALTERNATIVES) else ()


def _in_other_sections(settings: dict[str, Any]) -> list[str]:
    """What is wrong beside what keeps sections from being read: between those that can be, and in the budget."""
    table, geography = _section_of(Input, settings, "input"), _section_of(GeographyOptions, settings, "geography")
    privacy, noise = _section_of(Privacy, settings, "privacy"), _section_of(NoiseOptions, settings, "noise")
    found = (
        []
        if table is None or geography is None
        else contradictions(table, geography, has_attributes="schema" in settings)
    )
    if privacy is not None:
        levels = None if geography is None else geography.level_names
        found += map(str, budget_errors(privacy, NoiseOptions() if noise is None else noise, levels))
    return found


def _section_of(model: type[Model], settings: dict[str, Any], name: str) -> Model | None:
    try:
        return model.model_validate(settings[name])
    except (ValidationError, KeyError):
        return None


_ALTERNATIVES = ("function-", "list[", "dict[", "literal[", "constrained-")
"""How pydantic calls, in the path of a setting, one of the forms that it may have."""


def _in_words(error: Any, model: type[BaseModel]) -> str:
    """One of pydantic's errors as a sentence that names the key and what to do."""
    parts = [str(part) for part in error["loc"] if not str(part).startswith(_ALTERNATIVES)]
    parts = parts[:-1] if len(parts) > 2 and parts[-1] == "str" else parts
    # Where a table was given for a configuration, its counts are keys.
    where = unquoted(".".join("(not shown)" if may_hold_a_count(part) else part for part in parts))
    if error["type"] == "missing":
        return f"{where} is missing; give it"
    if not parts:  # what sections say together: its value would be the whole file
        return str(error["msg"].removeprefix("Value error, "))
    if error["type"] != "extra_forbidden":
        said = right_form(parts, error) or error["msg"].removeprefix("Value error, ")
        given = error["input"]
        # What a section says together, and what would be its whole text, is not quoted.
        is_whole = isinstance(given, dict) or (isinstance(given, list) and any(isinstance(one, dict) for one in given))
        return f"{where}: {said}" + ("" if is_whole else f" (is {shown(given, _LONGEST_SETTING)})")
    key = str(error["loc"][-1])
    if "seed" in key.lower() and issubclass(model, StudyConfig):
        return f"unknown key {where}: a study's seed is study.seed"
    if "seed" in key.lower():
        return (
            f"{where}: a release draws from the operating system's entropy and takes no seed, which would publish the "
            "noise; seeds exist in studies only"
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
    """The model of the section to which a path of keys leads."""
    for key in keys:
        field = model.model_fields.get(str(key))
        if field is None:
            continue
        # Of a section that may be left out the annotation names None too.
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                model = kind
    return model
