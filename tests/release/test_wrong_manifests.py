"""A release that was received with a manifest of any shape: every command that reads it ends, with a code of ours."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command import topdown_command
from support.ends import must_end
from topdown.config import load_config
from topdown.pipeline import run as pipeline

QUICK, LONG = 50, 2_000
TABLE = """nation,state,county,name,adults,children
US,01,01001,Autauga,10,1
US,01,01003,Baldwin,20,2
US,02,02001,Anchorage,0,4
US,02,02003,Nome,7,4
"""
LONG_ROWS = """nation,state,county,name,age,race,n
US,01,01001,Autauga,minor,a,10
US,01,01001,Autauga,adult,c,3
US,01,01003,Baldwin,adult,b,20
US,02,02001,Anchorage,minor,b,4
US,02,02003,Nome,adult,a,7
"""
GEOGRAPHY = '[geography]\nlevels = ["nation", "state", "county"]\nnames = "name"\n'
CELLS = f"""
[input]
path = "table.csv"
cells = ["adults", "children"]
{GEOGRAPHY}
[privacy]
epsilon = 1.0
[output]
estimates = true
"""
BOUNDED = CELLS + '[noise]\nbounds = "truncated"\nupper = 1000\n'
QUERIES = f"""
[input]
path = "long.csv"
rows = "long"
geoid = "county"
count = "n"
[schema]
age = ["minor", "adult"]
race = ["a", "b", "c"]
[[zeros]]
age = "minor"
race = "c"
{GEOGRAPHY}
[privacy]
mechanism = "discrete-gaussian"
rho = 1
[privacy.shares.nation]
total = "1/8"
[privacy.shares.state]
race = "1/8"
[privacy.shares.county]
race = "1/4"
detailed = "1/2"
[output]
tables = ["race"]
"""
WRONG: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**30, float("nan"), float("inf"), "", "x", "1/0", "-1", "1e999", "0/1", "\ud800",
    "x" * 10_000, [], [None], ["x"], [[]], {}, {"x": None}, {"": {"": []}}, [[[[[]]]]],
]  # fmt: skip
COMMANDS = {
    "verify": ["verify", "public"],
    "query": ["query", "public", "--sum", "01001,02001"],
    "aggregate": ["aggregate", "public", "--by", "districts.csv"],
    "project": ["project", "again.toml", "-o", "again"],
    "export": ["export", "public", "--format", "nmf", "-o", "exported"],
}


def places(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all that a manifest holds."""
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for name, value in inside:
        yield (*path, name)
        yield from places(value, (*path, name))


def replaced(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of ``found`` with another ``value`` at a path."""
    copy = json.loads(json.dumps(found))
    inside = copy
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    return copy


@pytest.mark.parametrize("cases", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])
@pytest.mark.parametrize("config", [CELLS, BOUNDED, QUERIES], ids=["cells", "bounded", "queries"])
def test_a_manifest_with_a_wrong_value_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, cases: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text(TABLE)
    Path("long.csv").write_text(LONG_ROWS)
    Path("districts.csv").write_text("unit,district\n01001,east\n01003,west\n02001,east\n02003,\n")
    Path("run.toml").write_text(config)
    Path("again.toml").write_text('[measurements]\npath = "public"\n')
    public = pipeline.run(load_config(Path("run.toml")), Path("out"), workers=1).public
    shutil.copytree(public, "public")
    manifest = json.loads(Path("public/manifest.json").read_text(encoding="utf-8"))
    every = [(path, value, command) for path in places(manifest) for value in WRONG for command in COMMANDS]
    chosen = random.Random(len(config)).sample(every, cases)
    found = []
    for path, value, command in chosen:
        Path("public/manifest.json").write_text(json.dumps(replaced(manifest, path, value)), encoding="utf-8")
        out, err = io.StringIO(), io.StringIO()
        with must_end(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = topdown_command(*COMMANDS[command])
            except Exception as error:  # said with the case that it is of
                code, err = 1, io.StringIO(repr(error))
        if code not in (0, 2, 3, 4, 5):
            found.append((command, path, value, code, err.getvalue()[-300:]))
        for name in ("again", "exported"):
            if Path(name).exists():
                assert code == 0, (command, path, value)
                shutil.rmtree(name)
    assert not found, f"{len(found)} of {len(chosen)}: {found[:20]}"


@pytest.mark.parametrize("config", [CELLS, QUERIES], ids=["cells", "queries"])
def test_a_manifest_without_one_of_its_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text(TABLE)
    Path("long.csv").write_text(LONG_ROWS)
    Path("run.toml").write_text(config)
    public = pipeline.run(load_config(Path("run.toml")), Path("out"), workers=1).public
    manifest = json.loads((public / "manifest.json").read_text(encoding="utf-8"))
    commands = (
        ["query", public, "--sum", "01"],
        ["rank", public, "--level", "state"],
        ["page", public, "-o", "p.html"],
    )
    for field in manifest:
        rest = {name: value for name, value in manifest.items() if name != field}
        (public / "manifest.json").write_text(json.dumps(rest), encoding="utf-8")
        for command in commands:
            assert topdown_command(*command) in (0, 3), (field, command)
            Path("p.html").unlink(missing_ok=True)
