"""The Dockerfile, read as text: what it installs is locked, what it runs is the main job, and not as root."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import PurePosixPath

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from support.places import REPOSITORY

Instruction = tuple[str, str]


def instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines()]


def stages(text: str) -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for keyword, rest in instructions(text):
        if keyword == "FROM":
            found.append([])
        if found:
            found[-1].append((keyword, rest))
    return found


def values(stage: list[Instruction], keyword: str) -> list[str]:
    return [rest for name, rest in stage if name == keyword]


DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
BUILD, FINAL = stages(DOCKERFILE)
PIPELINE = "pipelines/us_counties.toml"


def installs(text: str) -> list[str]:
    """The pip commands of ``text`` that fetch, build or install, without what stands before pip."""
    commands = [part for keyword, rest in instructions(text) if keyword == "RUN" for part in rest.split("&&")]
    return [
        command[command.index("pip") :]
        for command in commands
        if re.search(r"\bpip\b.* (install|wheel|download)\b", command)
    ]


def unlocked(command: str) -> bool:
    """Whether a pip command may take in something that no hash of a lock file vouches for."""
    locked = "--require-hashes" in command and set(re.findall(r"-r (\S+)", command)) <= {
        f"requirements/{name}.lock" for name in ("build", "run")
    }
    alone = "--no-deps" in command and ("--no-index" in command or "--no-build-isolation" in command)
    return not ((locked and "-r " in command) or alone)


def test_every_package_comes_from_a_lock_file_with_its_hash() -> None:
    found = installs(DOCKERFILE)
    assert len(found) == 4
    assert [command for command in found if unlocked(command)] == []
    assert [command for command in found if "--no-cache-dir" not in command] == []


@pytest.mark.parametrize(
    "command",
    [
        "pip install topdown",
        "pip install -r requirements/run.lock",
        "pip install --require-hashes .",
        "pip wheel --no-deps .",
    ],
)
def test_an_install_without_hashes_would_be_found(command: str) -> None:
    assert [unlocked(one) for one in installs(f"RUN true && {command}")] == [True]


def test_the_user_is_not_root_and_given_by_number() -> None:
    assert values(FINAL, "USER") == ["10001:10001"]
    users = " ".join(values(FINAL, "RUN"))
    assert "groupadd --gid 10001 topdown" in users
    assert "useradd --uid 10001 --gid topdown" in users
    after = FINAL[FINAL.index(("USER", "10001:10001")) + 1 :]
    assert [keyword for keyword, _ in after] == ["ENTRYPOINT", "CMD"]


def test_it_runs_the_main_job_into_the_volume() -> None:
    assert values(FINAL, "ENTRYPOINT") == ['["topdown"]']
    assert values(FINAL, "CMD") == [f'["run", "{PIPELINE}"]']
    (work,) = values(FINAL, "WORKDIR")
    (volume,) = values(FINAL, "VOLUME")
    output = tomllib.loads((REPOSITORY / PIPELINE).read_text(encoding="utf-8"))["output"]["directory"]
    assert output.startswith("../")
    assert PurePosixPath(volume) in (PurePosixPath(work) / output.removeprefix("../")).parents
    assert f"--owner topdown --group topdown --mode 0700 {volume}" in " ".join(values(FINAL, "RUN"))


def test_nothing_that_builds_or_installs_goes_into_the_image() -> None:
    assert [command for command in values(FINAL, "RUN") if re.search(r"\b(pip|apt|apt-get|curl|wget)\b", command)] == []
    assert "--without-pip /opt/topdown" in " ".join(values(BUILD, "RUN"))
    assert [rest for rest in values(FINAL, "COPY") if rest.startswith("--from")] == [
        "--from=build /opt/topdown /opt/topdown"
    ]
    assert re.findall(r"^ADD\b", DOCKERFILE, re.MULTILINE) == []


def test_the_base_is_a_slim_debian_by_digest_with_a_python_that_the_project_takes() -> None:
    (base,) = [rest for keyword, rest in instructions(DOCKERFILE) if keyword == "ARG"]
    found = re.fullmatch(r"PYTHON=python:(3\.\d+)-slim-(bookworm|trixie)@sha256:[0-9a-f]{64}", base)
    assert found is not None
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert Version(found[1]) in SpecifierSet(project["requires-python"])
    assert [values(stage, "FROM")[0].split()[0] for stage in (BUILD, FINAL)] == ["${PYTHON}"] * 2


def sent(path: str) -> bool:
    """Whether .dockerignore lets ``path`` into the build: its last pattern that fits decides."""
    result = True
    for line in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if not line or line.startswith("#"):
            continue
        names = [path, *map(str, PurePosixPath(path).parents)] + ([*PurePosixPath(path).parts] if "**/" in line else [])
        if any(fnmatch(name, pattern) for name in names):
            result = line.startswith("!")
    return result


def test_what_is_copied_is_sent_and_nothing_else_is() -> None:
    for stage in (BUILD, FINAL):
        for rest in values(stage, "COPY"):
            *sources, _ = rest.split()
            for source in sources if not rest.startswith("--from") else ():
                path = REPOSITORY / source
                inside = [one for one in path.glob("*") if one.is_file()] if path.is_dir() else [path]
                assert any(sent(one.relative_to(REPOSITORY).as_posix()) for one in inside), source
    table = tomllib.loads((REPOSITORY / PIPELINE).read_text(encoding="utf-8"))["input"]["path"].removeprefix("../")
    assert sent(table)
    assert sent(PIPELINE)
    assert sent("topdown/studies/report/page.html.jinja")
    for path in (
        "data/mine.parquet",
        "output/us_counties/internal/a",
        "ledger.db",
        ".git/config",
        "tests/conftest.py",
        "table.csv",
    ):
        assert not sent(path), path
    assert not sent("topdown/__pycache__/cli.cpython-313.pyc")
