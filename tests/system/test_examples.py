"""Every public name of the API pages has an example in its docstring, and all examples run."""

from __future__ import annotations

import doctest
import inspect
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from support import noisy_files
from support.command import topdown_command
from support.places import SMALL_DATA
from support.public_names import API, public_names

RUN = """
title = "Labour force"

[input]
path = "table.csv"
cells = ["employed", "unemployed"]

[geography]
levels = ["nation", "state", "county"]

[privacy]
epsilon = 1
"""
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def shared_names(folder: Path) -> dict[str, Any]:
    """What the examples share, as `docs/api/index.md` says it, and the files that they read, made in ``folder``."""
    page = (API / "index.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "docs/api/index.md", "exec"), names)
    names["table"].to_csv(folder / "table.csv", index=False)
    (folder / "run.toml").write_text(RUN, encoding="utf-8")
    assert topdown_command("run", folder / "run.toml", "--output", folder, "--quiet") == 0
    shutil.copytree(SMALL_DATA / "ri_pl94_2018_prototype", folder / "ri.pl")
    noisy_files.make(folder / "nmf", bypass=False)
    square = [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]
    shape = {"type": "Polygon", "coordinates": square}
    outlines = [
        {"type": "Feature", "id": code, "properties": {"GEOID": code}, "geometry": shape}
        for code in names["table"]["county"]
    ]
    collection = {"type": "FeatureCollection", "features": outlines}
    (folder / "counties.geojson").write_text(json.dumps(collection), encoding="utf-8")
    return names


def examples_of(name: str, shown: Any, names: dict[str, Any]) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(inspect.getdoc(shown) or "", dict(names), name, None, 0)


def test_every_public_name_has_an_example() -> None:
    found = public_names()
    assert len(found) > 200
    assert [name for name, shown in found.items() if not examples_of(name, shown, {}).examples] == []


def test_every_example_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = shared_names(tmp_path)
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    said: list[str] = []
    for name, shown in public_names().items():
        runner.run(examples_of(name, shown, names), out=said.append)
    assert runner.failures == 0, "".join(said)
