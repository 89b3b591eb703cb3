"""What a new user writes wrongly, and asks for first: one sentence with the right form, before anything is drawn."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import RUN_TOML, Command
from topdown.config import load_config
from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.lookup import units_meant
from topdown.pipeline.input.reading import read_input


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("epsilon = 1.0", "epsilon = 1,5"), r"not TOML: .*line \d+.*write decimals with a point: 1.5"),
        (("epsilon = 1.0", 'epsilon = "1,5"'), "decimals have a point: 1.5"),
        (("epsilon = 1.0", "epsilon = 1.0\nepsilon = 2.0"), "given twice: keep one of the two"),
        (('cells = ["adults", "children"]', 'cells = "men"'), r'input.cells: give a list: cells = \["men"\]'),
        (('cells = ["adults", "children"]', 'cells = ["adults", "adults"]'), "input.cells names 'adults' twice"),
        (('cells = ["adults", "children"]', "cells = []"), r"input.cells: is empty; give at least one, such as cells"),
        (("[privacy]", "[output]\nconfidence = 95\n[privacy]"), "give a number below 1, such as 0.95 for 95 %"),
        (("[privacy]", "[output]\nwide = []\n[privacy]"), "output.wide: give true or false"),
        (("[privacy]", '[input.labels]\nsex = "men"\n[privacy]'), r"such as \[input.labels.sex\] and below it"),
        (("[privacy]", "[privacy]\nschema = 3"), r"schema is a section of its own; write it below a line \[schema\]"),
        (("[geography]", "[geography]\nsensitivity = 1"), "unknown key geography.sensitivity"),
        (("widths = { state = 2, county = 5 }", "widths = [2, 5]"), "geography.widths: give a table, such as"),
    ],
)  # fmt: skip
def test_a_wrong_line_gets_the_right_form(change: tuple[str, str], says: str, tmp_path: Path, topdown: Command) -> None:
    assert change[0] in RUN_TOML
    (tmp_path / "table.csv").write_text("county,adults,children\n01001,5,6\n01003,7,8\n02001,1,2\n")
    (tmp_path / "run.toml").write_text(RUN_TOML.replace(*change, 1))
    found = topdown("check", tmp_path / "run.toml")
    assert found.returncode in (2, 5)
    assert found.stderr.count("\n") == 1
    assert "(is {" not in found.stderr

    assert "Input should" not in found.stderr

    assert re.search(says, found.stderr), found.stderr


def test_a_file_that_is_not_utf8_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(('title = "x"\n# für\n' + RUN_TOML).encode("latin-1"))
    with pytest.raises(ConfigError, match="line 2 is not UTF-8, which TOML requires"):
        load_config(tmp_path / "run.toml")


def test_check_finds_what_run_would_refuse(toy_run: Path, topdown: Command) -> None:
    text = toy_run.read_text()
    toy_run.write_text(text + '\n[ledger]\npath = "l.db"\ndataset = "toy"\n')
    found = topdown("check", toy_run)
    assert (found.returncode, "there is no ledger; make one with" in found.stderr) == (5, True)
    ledger = toy_run.parent / "l.db"
    assert topdown("ledger", "init", ledger, "--dataset", "toy", "--total", "0.1").returncode == 0
    assert "beyond the total of 1/10" in topdown("check", toy_run).stderr
    assert topdown("ledger", "init", ledger, "--dataset", "toy", "--total", "9", "--unit", "home").returncode == 0
    assert "is accounted for one home" in topdown("check", toy_run).stderr
    assert topdown("ledger", "init", ledger, "--dataset", "toy", "--total", "9").returncode == 0
    assert topdown("check", toy_run).returncode == 0
    (toy_run.parent / "afile").write_text("x")
    toy_run.write_text(text.replace('directory = "output"', 'directory = "afile/x"') if "directory" in text else
                       text + '\n[output]\ndirectory = "afile/x"\n')  # fmt: skip
    found = topdown("check", toy_run)
    assert found.returncode == 2
    assert "afile: is no directory" in found.stderr


def test_a_delta_and_an_exact_level_below_noise_are_spoken_of(toy_run: Path, topdown: Command) -> None:
    text = toy_run.read_text()
    gaussian = text.replace('"geometric"', '"discrete-gaussian"').replace("epsilon = 1.0", "rho = 0.5\ndelta = 0.5")
    toy_run.write_text(gaussian if "delta" in gaussian else text)
    found = topdown("check", toy_run)
    assert found.returncode == 5
    assert "delta is 0.5" in found.stderr
    exact = re.sub("shares = .*", 'shares = { nation = "1/2", state = "1/2" }\ninvariants = ["county"]', text)
    toy_run.write_text(exact)
    found = topdown("check", toy_run)
    assert "level 'state' lies above level 'county', which is published exactly" in found.stdout


def test_the_version_and_the_help(topdown: Command) -> None:
    version = topdown("--version").stdout
    assert version == topdown("version").stdout
    as_module = [sys.executable, "-m", "topdown", "--version"]
    assert subprocess.run(as_module, capture_output=True, text=True, check=True).stdout == version
    alone = topdown()
    assert (alone.returncode, alone.stderr) == (0, "")
    assert "Usage" in alone.stdout


UNITS = Geography.from_geoids(
    ["13075", "17031", "17033"],
    {"state": 2, "county": 5},
    names=["Cook County, GA", "Cook County, IL", "Crawford County, IL"],
)


def test_units_are_named_by_codes_and_names() -> None:
    assert units_meant(["13075, 17"], UNITS) == ["13075", "17"]
    assert units_meant(["cook county, il,13", "Crawford County"], UNITS) == ["17031", "13", "17033"]
    with pytest.raises(
        DataError, match=r"2 units are called 'Cook County': '13075' \(county Cook County, GA\), '17031'"
    ):
        units_meant(["Cook County"], UNITS)
    with pytest.raises(DataError, match=r"no unit 'Crowford' in this geography.*did you mean 'Crawford County, IL'"):
        units_meant(["Crowford"], UNITS)


def test_names_of_inner_levels_with_widths(tmp_path: Path) -> None:
    rows = "01001,Autauga,Alabama,5,6\n01003,Baldwin,Alabama,7,8\n02001,Xyz,Alaska,1,2\n"
    (tmp_path / "table.csv").write_text("county,name,state_name,adults,children\n" + rows)
    named = RUN_TOML.replace("[privacy]", 'names = { county = "name", state = "state_name" }\n[privacy]', 1)
    (tmp_path / "run.toml").write_text(named)
    geography = read_input(load_config(tmp_path / "run.toml"))[0]
    assert geography.names is not None
    assert geography.names.to_pylist() == [None, "Alabama", "Alaska", "Autauga", "Baldwin", "Xyz"]
    (tmp_path / "table.csv").write_text(
        "county,name,state_name,adults,children\n" + rows.replace("Baldwin,Alabama", "B,A")
    )
    with pytest.raises(DataError, match="state '01' has two names in column 'state_name'"):
        read_input(load_config(tmp_path / "run.toml"))
