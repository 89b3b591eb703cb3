"""Redistricting files that a configuration names: their units and histograms, without a table made of them before."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import topdown as td
from support.redistricting import BLOCKS, histograms, released
from topdown.config import load_config
from topdown.errors import ConfigError, CountsError, DataError
from topdown.machine.progress import Silent
from topdown.pipeline.input.reading import input_digest, read_input
from topdown.pipeline.input.redistricting_reading import counts_of, file_of, units_of
from topdown.pipeline.memory_needed import of_reading
from topdown.pipeline.run import run
from topdown.workload.redistricting import PERSONS, VOTERS

PRESET = """
[input]
path = "file"
rows = "pl94"
[privacy]
preset = "pl94-2020-us"
"""

WITHOUT_PRESET = """
[input]
path = "file"
rows = "pl94"
[privacy]
mechanism = "discrete-gaussian"
rho = 4
[privacy.shares]
state = {{ total = "1/5" }}
county = {{ "{query}" = "1/5" }}
tract = {{ detailed = "1/5" }}
"block group" = {{ detailed = "1/5" }}
block = {{ detailed = "1/5" }}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return td.write_pl94(released(PERSONS, histograms(PERSONS, 0.05)), tmp_path_factory.mktemp("pl94") / "file")


def configured(file: Path, folder: Path, text: str) -> Path:
    shutil.copytree(file, folder / "file")
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def test_its_units_and_all_of_its_cells_are_those_of_the_file(file: Path, tmp_path: Path) -> None:
    config = load_config(configured(file, tmp_path, PRESET))
    _, counts = read_input(config)
    expected = td.read_pl94(file).persons()
    assert counts.geography.identifiers.equals(expected.geography.identifiers)
    assert counts.geography.names is not None
    assert counts.geography.names.equals(expected.geography.names)
    assert counts.schema == PERSONS
    assert (counts.values == expected.values).all()


def test_without_a_preset_recodes_and_zeros_are_known_too(file: Path, tmp_path: Path) -> None:
    text = WITHOUT_PRESET.format(query="hhinstlevels * hispanic")
    config = load_config(configured(file, tmp_path, text))
    assert config.schema_of_cells == PERSONS
    public = run(config, tmp_path / "out").public
    release = td.read_release(public)
    assert release.table("county", "hhinstlevels * hispanic").shape == (2, 8)
    assert release.geography.names is not None


def test_with_the_attributes_of_voters_it_is_their_histogram(file: Path, tmp_path: Path) -> None:
    lists = "".join(f"{a.name} = {list(a.categories)}\n" for a in VOTERS.attributes)
    text = WITHOUT_PRESET.format(query="votingage") + "[schema]\n" + lists
    _, counts = read_input(load_config(configured(file, tmp_path, text)))
    assert (counts.values == td.read_pl94(file).counts.values).all()


def test_a_public_list_may_have_units_that_the_file_lacks_and_not_the_other_way_round(
    file: Path, tmp_path: Path
) -> None:
    text = PRESET + '[geography]\nunits = "units.csv"\nroot = "44"\n'
    path = configured(file, tmp_path, text)
    (tmp_path / "units.csv").write_text("\n".join(["block", *BLOCKS, "440090001001999"]) + "\n")
    _, counts = read_input(load_config(path))
    assert counts.geography.identifiers.to_pylist()[-1] == "440090001001999"
    assert counts.values[-1].sum() == 0
    known = td.read_pl94(file).persons()
    assert (counts.values[0] == known.values[0]).all()
    (tmp_path / "units.csv").write_text("\n".join(["block", *BLOCKS[1:], "440090001001999"]) + "\n")
    with pytest.raises(CountsError, match=BLOCKS[0]):
        read_input(load_config(path))


def test_what_does_not_fit_the_file_is_refused(file: Path, tmp_path: Path) -> None:
    path = configured(file, tmp_path, PRESET + "[geography]\nwidths = { county = 5, tract = 11 }\n")
    with pytest.raises(DataError, match=r"it has the levels .*block.*geography.widths"):
        read_input(load_config(path))
    path.write_text(WITHOUT_PRESET.format(query="age") + '[schema]\nage = ["young", "old"]\n')
    with pytest.raises(ConfigError, match=r"leave .schema. out"):
        read_input(load_config(path))
    path.write_text(PRESET.replace('rows = "pl94"', 'rows = "pl94"\nwhere = { state = "44" }'))
    with pytest.raises(ConfigError, match="read as it is"):
        load_config(path)
    path.write_text(PRESET.replace('"file"', '"nowhere"'))
    with pytest.raises(DataError, match="nowhere"):
        read_input(load_config(path))


def test_what_making_its_histograms_takes_is_weighed_before(file: Path, tmp_path: Path) -> None:
    config = load_config(configured(file, tmp_path, PRESET))
    held = file_of(config, Silent())
    held.persons()  # what is kept from the first time on
    tracemalloc.start()
    try:
        counts_of(config, units_of(config, held), held, Silent())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / 2 <= of_reading(config, held.geography, None) <= 2 * peak


def test_what_is_said_last_names_files_that_are_there(file: Path, tmp_path: Path) -> None:
    path = configured(file, tmp_path, PRESET)
    for more, named in (
        ("", ""),
        ('tables = ["P5"]', ", tables/*_estimates.parquet for"),
        ("estimates = true", ", estim"),
    ):
        path.write_text(f"{PRESET}[output]\n{more}\n")
        said = Said()
        run(load_config(path), tmp_path / f"out{len(more)}", said)
        assert said.lines[-1].partition("release.* for whole counts")[2].startswith(named)
        assert named or said.lines[-1].endswith("whole counts")


class Said(Silent):
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_the_digest_is_of_all_members_and_of_an_archive_its_own(file: Path, tmp_path: Path) -> None:
    path = configured(file, tmp_path, PRESET)
    first = input_digest(load_config(path))
    member = tmp_path / "file" / "ri000032020.pl"
    lines = member.read_text(encoding="latin-1").splitlines(keepends=True)
    member.write_text("".join(np.roll(lines, 1)), encoding="latin-1")
    assert input_digest(load_config(path)) != first
    shutil.make_archive(str(tmp_path / "file"), "zip", file)
    path.write_text(PRESET.replace('"file"', '"file.zip"'))
    assert (read_input(load_config(path))[1].values == td.read_pl94(file).persons().values).all()
