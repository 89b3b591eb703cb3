"""The configuration as JSON Schema, by which editors complete and check a TOML file while it is written."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from topdown.config.project_settings import ProjectConfig
from topdown.config.reference import descriptions, sections_of
from topdown.config.release import RunConfig
from topdown.config.study_settings import StudyConfig
from topdown.errors import require_known

MODELS: dict[str, type[BaseModel]] = {"release": RunConfig, "study": StudyConfig, "project": ProjectConfig}
"""What a file may describe."""


def json_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of the files that describe a ``kind`` of `MODELS`.

    Raises `ConfigError` for another kind.
    """
    require_known(kind, MODELS, "kind of configuration")
    schema = MODELS[kind].model_json_schema(by_alias=True)
    found: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Topdown, the TOML file: {kind}",
        **{name: value for name, value in schema.items() if name != "title"},
    }
    found["properties"].pop("folder", None)
    _tidied(found)
    _described(found, MODELS[kind])
    if kind != "project":
        # Where rows are records, the cells follow from [schema].
        found["$defs"]["Input"]["required"].remove("cells")
    return found


def _tidied(node: Any) -> None:
    """Without pydantic's titles of properties, and descriptions as running text."""
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
    """Every setting with what the text below it says."""
    for section in sections_of(model):
        known = schema if section is model else schema["$defs"].get(section.__name__, {})
        for name, said in descriptions(section).items():
            field = section.model_fields.get(name)
            setting = known.get("properties", {}).get(name if field is None else field.alias or name)
            if setting is not None:
                setting["description"] = said
