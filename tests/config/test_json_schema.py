"""Editors are told of every setting that there is, and of no other; every pipeline names its schema."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.places import REPOSITORY, RUN_TOML, Command
from topdown.config import json_schema as schemas
from topdown.errors import ConfigError

PIPELINES = sorted((REPOSITORY / "pipelines").rglob("*.toml"))


def kind_of(settings: dict[str, Any]) -> str:
    if "link" in settings:
        return "linked"
    return "study" if "study" in settings else "project" if "measurements" in settings else "release"


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_every_pipeline_names_its_schema_and_follows_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    settings = tomllib.loads(text)
    named = re.match(r"#:schema (\S+)\n", text)
    assert named is not None
    file = (path.parent / named[1]).resolve()
    assert file == REPOSITORY / "docs" / "schemas" / f"{kind_of(settings)}.json"
    jsonschema.validate(settings, json.loads(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_the_files_are_what_the_command_prints(kind: str, topdown: Command) -> None:
    written = (REPOSITORY / "docs" / "schemas" / f"{kind}.json").read_text(encoding="utf-8")
    jsonschema.Draft202012Validator.check_schema(json.loads(written))
    assert topdown("schema", kind).stdout == written, f"topdown schema {kind} > docs/schemas/{kind}.json"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown kind of configuration 'studi'.*did you mean 'study'"):
        schemas.json_schema("studi")


@pytest.mark.parametrize(
    ("old", "new", "valid"),
    [
        ("epsilon = 1.0", 'epsilon = "1/3"', True),
        ("epsilon = 1.0", "epsilon = 1", True),
        ("county = 0.5", 'county = { total = "1/2" }', True),
        ("[privacy]", '[schema]\nage = ["adults", "children"]\n[privacy]', True),
        ("epsilon = 1.0", "epsilom = 1.0", False),
        ("epsilon = 1.0", "epsilon = true", False),
        ("[geography]", "[geografy]", False),
        ('cells = ["adults", "children"]', 'cells = "adults"', False),
        ("title =", "folder = 'x'\ntitle =", False),
        ("[input]", '[input]\nrows = "persons"', False),
    ],
)
def test_an_editor_marks_what_a_run_would_refuse(old: str, new: str, valid: bool) -> None:
    assert old in RUN_TOML
    found = jsonschema.Draft202012Validator(schemas.json_schema("release")).iter_errors(
        tomllib.loads(RUN_TOML.replace(old, new))
    )
    assert (not list(found)) is valid
