"""The configuration as JSON Schema, with which editors complete and check a TOML file."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from topdown.config.linked_settings import LinkedConfig
from topdown.config.project_settings import ProjectConfig
from topdown.config.reference import descriptions, sections_of
from topdown.config.release import RunConfig
from topdown.config.study_settings import StudyConfig
from topdown.errors import require_known

MODELS: dict[str, type[BaseModel]] = {"release": RunConfig, "study": StudyConfig, "project": ProjectConfig}
"""What a file may describe of one table."""

KINDS: dict[str, type[BaseModel]] = {**MODELS, "linked": LinkedConfig}
"""What a file may describe; of two linked tables docs/households.md has the settings."""


def json_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of the files that describe a ``kind`` of `KINDS`.

    Raises `ConfigError` for another kind.
    """
    require_known(kind, KINDS, "kind of configuration")
    schema = KINDS[kind].model_json_schema(by_alias=True)
    found: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Topdown, the TOML file: {kind}",
        **{name: value for name, value in schema.items() if name != "title"},
    }
    found["properties"].pop("folder", None)
    _tidied(found)
    _described(found, KINDS[kind])
    if "Input" in found["$defs"]:
        # Where rows are records, the cells follow from [schema].
        found["$defs"]["Input"]["required"].remove("cells")
    return found


def _tidied(node: Any) -> None:
    """The schema without pydantic's titles of properties, and with descriptions on one line."""
    if isinstance(node, list):
        for one in node:
            _tidied(one)
    if not isinstance(node, dict):
        return
    for name, one in node.items():
        if name == "properties":
            for setting in one.values():
                setting.pop("title", None)
        if name == "description" and isinstance(one, str):
            node[name] = re.sub(r"\s+", " ", one.replace("``", ""))
        else:
            _tidied(one)


def _described(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """The schema with the description of every setting, from the text below its definition."""
    for section in sections_of(model):
        known = schema if section is model else schema["$defs"].get(section.__name__, {})
        for name, said in descriptions(section).items():
            field = section.model_fields.get(name)
            setting = known.get("properties", {}).get(name if field is None else field.alias or name)
            if setting is not None:
                setting["description"] = said
