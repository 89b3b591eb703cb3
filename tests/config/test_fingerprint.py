"""What names a release: everything that its configuration says, but for a list of what decides no number."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, Field

from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import RunConfig, load_config, load_project
from topdown.config.derivation import DerivationConfig
from topdown.config.project_settings import ProjectConfig
from topdown.config.table_settings import TiesOptions

FULL = (
    RUN_TOML.replace("[geography]\n", '[geography]\nunits = "units.csv"\n')
    + '[geography.spine]\nlevels = ["state"]\n'
    + '[bounds]\npath = "limits.csv"\n[ledger]\npath = "ledger.db"\ndataset = "census"\n'
)
PROJECT = '[measurements]\npath = "public"\n'


def run_config(folder: Path, text: str) -> RunConfig:
    (folder / "run.toml").write_text(text)
    return load_config(folder / "run.toml")


def project_config(folder: Path) -> ProjectConfig:
    (folder / "project.toml").write_text(PROJECT)
    return load_project(folder / "project.toml")


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, also where it may be left out."""
    kinds = [annotation, *get_args(annotation)]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def settings(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Every setting of ``model``, by the names of its fields, section by section."""
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        yield from [(name,)] if section is None else [(name, *inner) for inner in settings(section)]


def changed(config: BaseModel, names: tuple[str, ...], value: Any) -> Any:
    """``config`` with another value of one setting, whatever it may be."""
    if names[1:]:
        value = changed(getattr(config, names[0]), names[1:], value)
    return config.model_copy(update={names[0]: value})


def as_written(model: type[BaseModel], names: tuple[str, ...]) -> str:
    """A setting as the file has it."""
    alias = model.model_fields[names[0]].alias or names[0]
    return ".".join([alias, *names[1:]])


@pytest.mark.parametrize("kind", [RunConfig, ProjectConfig])
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_every_setting_names_the_release_or_is_left_out_with_a_reason(
    tmp_path: Path, kind: type[DerivationConfig]
) -> None:
    config = run_config(tmp_path, FULL) if kind is RunConfig else project_config(tmp_path)
    if kind is RunConfig:  # ties do not go with bounds
        config = config.model_copy(update={"ties": TiesOptions(release="before/public")})
    left_out = {name for reason, names in kind.not_in_fingerprint.items() for name in names if reason}
    known = {as_written(kind, names): names for names in settings(kind)}
    sections = {written.partition(".")[0] for written in known}
    assert left_out <= set(known) | sections, "the list names what there is not"
    assert len(known) > (50 if kind is RunConfig else 20)
    for written, names in known.items():
        value = Path("another") if names == ("folder",) else "another value"
        same = changed(config, names, value).fingerprint() == config.fingerprint()
        assert same == bool({written, written.partition(".")[0]} & left_out), written


def test_a_new_setting_names_the_release_unless_it_is_left_out(tmp_path: Path) -> None:
    class Longer(RunConfig):
        weather: str = ""
        hidden: str = Field(default="", exclude=True)

    (tmp_path / "run.toml").write_text(FULL)
    given = {**tomllib.loads(FULL), "folder": tmp_path}
    config = Longer.model_validate(given)
    assert config.fingerprint() != config.model_copy(update={"weather": "rain"}).fingerprint()
    assert config.fingerprint() != load_config(tmp_path / "run.toml").fingerprint()
    # What is kept out of every dump would not be seen: then the test above fails for it.
    assert config.fingerprint() == config.model_copy(update={"hidden": "x"}).fingerprint()


@pytest.mark.parametrize("rows", ["leaves", "records", "long"])
@pytest.mark.parametrize("text", [RUN_TOML, SEVERAL_TOML], ids=["cells alone", "several queries"])
def test_the_schema_names_the_release(tmp_path: Path, rows: str, text: str) -> None:
    """It says which columns are counted, and what the cells mean."""
    text = re.sub(r"\[schema\]\n.*\n", "", text)
    asked = {"leaves": "", "records": 'rows = "records"\n', "long": 'rows = "long"\ncount = "n"\n'}[rows]
    cells = 'cells = ["adults", "children"]\n'
    text = text.replace(cells, cells + asked)
    more = '[recodes.{0}]\ng = {{ old = ["adults"], young = ["children"] }}\n'
    found = set()
    for name in ("age", "years"):
        schema = f'[schema]\n{name} = ["adults", "children"]\n'
        for extra in ("", more.format(name), f'[[zeros]]\n{name} = "children"\n'):
            found.add(run_config(tmp_path, text.replace("age =", f"{name} =") + schema + extra).fingerprint())
    assert len(found) == 6


def test_the_order_in_which_categories_are_named_counts(tmp_path: Path) -> None:
    """Answers stand in that order: in another, the same noise would fall on other answers."""
    recode = "[recodes.age]\ng = {{ {0} }}\n"
    groups = ['old = ["adults"]', 'young = ["children"]']
    prints = {
        run_config(tmp_path, SEVERAL_TOML + recode.format(", ".join(order))).fingerprint()
        for order in (groups, groups[::-1])
    }
    assert len(prints) == 2


def test_the_public_tables_name_the_release(tmp_path: Path) -> None:
    for config in (run_config(tmp_path, FULL), project_config(tmp_path)):
        asked = [(), ("a",), ("b",), (None, "a"), ("a", "a"), ("a", "b")]
        assert len({config.fingerprint(*one) for one in asked}) == len(asked)
