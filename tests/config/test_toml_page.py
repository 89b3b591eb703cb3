"""The page of the TOML file says every setting, and its examples are right."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import get_origin

import pytest
from pydantic import BaseModel, ValidationError

from support.command import topdown_command
from support.places import REPOSITORY, RUN_TOML
from topdown.config import load_config
from topdown.config.json_schema import MODELS
from topdown.config.reference import EXAMPLES, descriptions, reference, sections_of
from topdown.errors import ConfigError

SECTIONS = list(dict.fromkeys(section for model in MODELS.values() for section in sections_of(model)))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_setting_is_described(section: type[BaseModel]) -> None:
    said = descriptions(section)
    for name, field in section.model_fields.items():
        is_section = name == "folder" or any(
            one.__name__ in str(field.annotation) and get_origin(field.annotation) is not list for one in SECTIONS
        )
        assert is_section or said.get(name, "").endswith("."), f"{section.__name__}.{name}"


def test_every_section_of_a_file_is_on_the_page_with_an_example() -> None:
    page = reference(MODELS)
    for model in MODELS.values():
        for name, field in model.model_fields.items():
            if name not in ("folder", "title"):
                path = field.alias or name
                assert path in EXAMPLES
                assert f"## [{path}]" in page or f"## [[{path}]]" in page
    for example in EXAMPLES.values():
        assert example in page


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert topdown_command("schema", "--page") == 0
    written = (REPOSITORY / "docs" / "toml.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out == written, "topdown schema --page > docs/toml.md"


LEVELS = "\n".join(EXAMPLES[path] for path in ("input", "geography", "privacy"))
WIDTHS = RUN_TOML.replace("[geography]\nwidths = { state = 2, county = 5 }", EXAMPLES["geography.widths"])
RECORDS = "\n".join(['[input]\npath = "persons.csv"\nrows = "records"', EXAMPLES["geography"], EXAMPLES["schema"]])
RECORDS += '\n[recodes.age]\ngroup = { minors = ["under 5", "5 to 17"], adults = ["18 to 64", "65 and over"] }'
RECORDS += "\n" + EXAMPLES["privacy"]
LISTED = LEVELS.replace("[geography]\n", '[geography]\nunits = "units.csv"\n')
# Of so many cells that there are no tables of them.
LARGE = "\n".join(['[input]\npath = "persons.csv"\nrows = "records"', EXAMPLES["geography"]])
LARGE += '\n[privacy]\npreset = "dhc-2020-us-persons"\n[output]\nmargins = false'
FILES = [tomllib.loads(text) for text in (LEVELS, WIDTHS, RECORDS, LISTED, LARGE)]


@pytest.mark.parametrize("path", EXAMPLES)
def test_every_example_is_accepted_in_a_file(path: str) -> None:
    example = tomllib.loads(EXAMPLES[path])
    model = next(model for model in MODELS.values() if path.split(".")[0] in names_of(model))
    refused = []
    for file in FILES:
        whole = {**file, "study": {}, "measurements": {"path": "output/public"}}
        settings = {name: one for name, one in whole.items() if name in names_of(model)}
        for name, value in example.items():
            inner = "." in path and isinstance(value, dict)
            settings[name] = {**settings.get(name, {}), **value} if inner else value
        try:
            model.model_validate(settings)
        except ValidationError as error:
            refused.append(str(error))
    assert len(refused) < len(FILES), "\n".join(refused)


def names_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ('recodes = "x"', r"recodes: give a table, such as \[recodes.age\] and below it adult = \{"),
        ("recodes = {age = {adult = ['a']}}", r"recodes.age.adult: give a table, such as adult = \{ minors"),
        ("zeros = {age = 'x'}", r"zeros: give a list, such as \[\[zeros\]\] and below it home = "),
        (
            "projection = {order = 'total'}",
            r"projection.order: give a list or a table: order = \[.total.\]",
        ),
        ("bounds = 'f.parquet'", r"bounds: give a table, such as \[bounds\] and below it path = "),
        ("schema = {age = 'a'}", r"schema.age: give a list: age = \[.a.\]"),
        ("catalogue = {period = 3}", r"catalogue.period: give a text in quotes \(is 3\)"),
        ("output = {csv = 'maybe'}", r"output.csv: give true or false"),
        ("output = {confidence = 'x'}", r"output.confidence: give a number"),
    ],
)
def test_a_wrong_guess_at_a_table_is_told_the_right_form(wrong: str, right: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f"{wrong}\n{RUN_TOML}")
    with pytest.raises(ConfigError, match=right):
        load_config(path)
