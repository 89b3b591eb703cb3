"""Nothing is written into a folder that is published: not by those who read a release, and no secret of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import topdown as td
from support.places import RUN_TOML, Command
from topdown.config import load_config
from topdown.pipeline import run as pipeline
from topdown.release.places import LINK, MANIFEST, beside

OUTPUT = '\n[output]\ndirectory = "{}"\n'


@pytest.fixture
def public(toy_run: Path) -> Path:
    return pipeline.run(load_config(toy_run)).public


@pytest.mark.parametrize(
    "command",
    [
        ("aggregate", "{public}", "--by", "units.csv", "-o", "{public}/sums.csv"),
        ("page", "{public}", "-o", "{public}/page.html"),
        ("export", "{public}", "--format", "xlsx", "-o", "{public}/exports/xlsx"),
        ("project", "again.toml", "-o", "{public}"),
        ("run", "run.toml", "-o", "{public}/more"),
        ("study", "study.toml", "-o", "{public}/more"),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("name", ["public", "release"])
def test_whoever_reads_a_release_does_not_write_into_it(
    public: Path, topdown: Command, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(public.parents[1])
    there = public.rename(public.parent / name)
    Path("units.csv").write_text("unit,area\n01001,a\n01003,b\n02001,b\n")
    Path("again.toml").write_text(f'title = "again"\n[measurements]\npath = "{there}"\n')
    Path("study.toml").write_text(RUN_TOML + "\n[study]\nreplicates = 10\nseed = 1\n")
    done = topdown(*(one.format(public=there) for one in command))
    assert done.returncode == 2
    assert "give another --output" in done.stderr
    assert "lies in the release" in done.stderr or name == "public"
    td.verify_release(there)


@pytest.mark.parametrize("directory", ["public", "a/Public/b"])
@pytest.mark.parametrize("command", ["check", "run"])
def test_the_key_of_the_noise_is_not_kept_where_the_release_is_published(
    toy_run: Path, topdown: Command, command: str, directory: str
) -> None:
    toy_run.write_text(RUN_TOML + OUTPUT.format(directory))
    done = topdown(command, toy_run)
    assert done.returncode == 2
    assert "not written under a directory called public; give another" in done.stderr
    assert not (toy_run.parent / directory).exists()


def test_a_statistic_is_not_released_beside_its_key_in_a_public_folder(
    tmp_path: Path, topdown: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("age\n30\n40\n50\n")
    arguments = ("table.csv", "--column", "age", "--bounds", "0:100", "--epsilon", "1")
    done = topdown("statistic", *arguments, "--output", "public")
    assert done.returncode == 2, done.stderr
    assert "not written under a directory called public" in done.stderr
    assert not Path("public").exists()


def test_beside_a_table_of_two_is_beside_the_release_of_both(tmp_path: Path) -> None:
    persons = tmp_path / "public" / "persons"
    persons.mkdir(parents=True)
    (persons / MANIFEST).write_text('{"schema_version": "1.0", "software": {"topdown": "0.2.0"}}')
    (persons.parent / LINK).write_text('{"schema_version": "1.0", "statement": []}')
    assert beside(persons) == tmp_path
    (persons.parent / LINK).write_text("{}")
    assert beside(persons) == persons.parent


def test_a_manifest_of_another_program_is_no_release(toy_run: Path, topdown: Command) -> None:
    (toy_run.parent / MANIFEST).write_text('{"name": "a web page", "manifest_version": 3, "schema_version": "2.0"}')
    assert topdown("run", toy_run).returncode == 0
