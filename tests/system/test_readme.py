"""What the README shows is what comes out."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from support.places import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_example_prints_what_is_printed_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
    assert found is not None
    monkeypatch.chdir(REPOSITORY)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found[1], "README.md", "exec"), {})
    *table, residuals = printed.getvalue().splitlines()
    *shown, _ = found[2].splitlines()
    assert table == shown
    assert all(float(one) < 1e-7 for one in residuals.split())


NAMED = sorted(set(re.findall(r"[`( ]((?:pipelines|docs|benchmarks|data)/[\w./]+\w)[`) ]", README)))


def test_files_are_named() -> None:
    assert {"docs/index.md", "docs/figures/report.png", "pipelines/us_counties_study.toml"} <= set(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_every_file_that_is_named_is_there(name: str) -> None:
    assert (REPOSITORY / name).exists(), name


def test_the_two_commands_open_it() -> None:
    first = README.index('pip install -e ".[dev]" && topdown run pipelines/us_counties.toml')
    assert first < README.index('pip install -e ".[dev]" && pytest') < README.index("## ")
