"""The lock files hold what pyproject.toml asks for, pinned, hashed, within its bounds, and no address."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.places import REPOSITORY

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
LOCKS = ("build", "cluster", "dev", "run")


def text_of(lock: str) -> str:
    return (REPOSITORY / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")


def entries(text: str) -> list[tuple[Requirement, list[str]]]:
    """The requirements of a lock file, each with its hashes."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    found = [
        line.split(" --hash=") for line in lines if line.strip() and not line.lstrip().startswith(("#", "--only-"))
    ]
    return [(Requirement(name), [one.strip() for one in hashes]) for name, *hashes in found]


def versions(text: str) -> dict[str, Version]:
    return {canonicalize_name(one.name): Version(str(one.specifier)[2:]) for one, _ in entries(text)}


def asked(requirements: list[str]) -> list[Requirement]:
    """``requirements`` with the project's own extras replaced by what they ask for."""
    found = []
    for one in map(Requirement, requirements):
        if one.name != PROJECT["project"]["name"]:
            found.append(one)
        for extra in one.extras if one.name == PROJECT["project"]["name"] else ():
            found += asked(EXTRAS[extra])
    return found


ASKED = {
    "build": asked(PROJECT["build-system"]["requires"]),
    "cluster": asked(PROJECT["project"]["dependencies"] + EXTRAS["cluster"]),
    "dev": asked(PROJECT["project"]["dependencies"] + EXTRAS["dev"]),
    "run": asked(PROJECT["project"]["dependencies"]),
}


def missing(requirements: list[Requirement], locked: dict[str, Version]) -> list[str]:
    """What of ``requirements`` is not locked, or locked at a version out of bounds."""
    return [
        f"{one}: {locked.get(canonicalize_name(one.name), 'not locked')}"
        for one in requirements
        if (version := locked.get(canonicalize_name(one.name))) is None or version not in one.specifier
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_what_is_asked_for_within_its_bounds(lock: str) -> None:
    assert missing(ASKED[lock], versions(text_of(lock))) == [], "run .ci/lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_is_pinned_and_hashed(lock: str) -> None:
    found = entries(text_of(lock))
    assert len(found) >= len(ASKED[lock])
    for one, hashes in found:
        assert re.fullmatch(r"==[\w.!+]+", str(one.specifier)), one
        assert one.url is None
        assert hashes, one
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes), one
    names = [one.name for one, _ in found]
    assert len(names) == len(set(names)), "one version for every Python"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_address_and_takes_wheels_only(lock: str) -> None:
    text = text_of(lock)
    assert re.findall(r"://|http|--(?:extra-)?index-url|--find-links|--trusted-host", text) == []
    assert [line for line in text.splitlines() if line.startswith("-")] == ["--only-binary :all:"]


def test_what_is_released_is_what_was_tested() -> None:
    tested = versions(text_of("dev"))
    for lock in ("run", "cluster"):
        assert {name: version for name, version in versions(text_of(lock)).items() if tested.get(name) != version} == {}
    assert {n: v for n, v in versions(text_of("build")).items() if n in tested and tested[n] != v} == {}


@pytest.mark.parametrize("lock", ["cluster", "dev", "run"])
def test_a_lock_holds_what_its_packages_ask_for(lock: str) -> None:
    """By the metadata of those that are installed at the locked version, which in CI are all of them."""
    locked = versions(text_of(lock))
    lacking = {}
    for name, version in locked.items():
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # a package of another platform
            continue
        needs = [Requirement(line) for line in installed.requires or ()]
        here = [one for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
        if Version(installed.version) == version and (found := missing(here, locked)):
            lacking[name] = found
    assert lacking == {}


def test_workers_of_a_cluster_have_what_a_run_has_and_dask() -> None:
    run, cluster = versions(text_of("run")), versions(text_of("cluster"))
    assert {name: version for name, version in run.items() if cluster.get(name) != version} == {}
    assert {"dask", "distributed"} <= set(cluster) - set(run)


def test_a_lock_that_lags_behind_is_found() -> None:
    locked = versions(text_of("run"))
    assert missing([Requirement("numpy<1")], locked) == [f"numpy<1: {locked['numpy']}"]
    assert missing([Requirement("a-new-one>=2")], locked) == ["a-new-one>=2: not locked"]
    assert [str(one) for one in asked(["topdown[oracles]"])] == [str(Requirement(one)) for one in EXTRAS["oracles"]]
