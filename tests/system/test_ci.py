"""What CI does cannot be undone by half: locked packages first, every linter, exceptions with a reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

from support.places import REPOSITORY

RUN = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")


def test_every_package_is_installed_by_hash_before_the_readmes_command() -> None:
    commands = re.findall(r"^(?!test_command=)\S*pip\"? install .*$", RUN, re.MULTILINE)
    assert len(commands) == 3
    assert all("--require-hashes" in command or "--no-deps --no-index" in command for command in commands)
    assert RUN.index("requirements/dev.lock") < RUN.index("test_command=")
    assert RUN.index("PIP_NO_BUILD_ISOLATION=0") < RUN.index("bash -c")


def test_all_tests_but_the_slow_ones_are_run_with_the_same_examples_every_time() -> None:
    lines = RUN.splitlines()
    assert 'pytest -m "system and not slow"' in lines
    assert RUN.index("export CI=true") < RUN.index('bash -c "$test_command"') < RUN.index("\npytest -m")
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"][
        "ini_options"
    ]
    assert "-m 'not slow and not system'" in settings["addopts"]
    assert [mark.split(":")[0] for mark in settings["markers"]] == ["system", "slow"]
    program = (
        "from support.examples import examples; print(*(examples(n).max_examples for n in (100, 12, 200)), "
        "examples(9).derandomize)"
    )
    tried = {}
    for ci, asked in (("", ""), ("true", ""), ("", "all")):
        environment = {**os.environ, "CI": ci, "TOPDOWN_EXAMPLES": asked, "PYTHONPATH": str(REPOSITORY / "tests")}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        tried[ci, asked] = done.stdout.split()
    assert tried == {
        ("", ""): ["25", "10", "50", "False"],
        ("true", ""): ["25", "10", "50", "True"],
        ("", "all"): ["100", "12", "200", "False"],
    }


def test_every_linter_runs_and_none_is_excused() -> None:
    lines = [line.strip() for line in RUN.splitlines()]
    assert 'wait "$linting" || { cat "$environment/lint" >&2; exit 1; }' in lines
    site = (REPOSITORY / "tests" / "system" / "test_site.py").read_text(encoding="utf-8")
    assert "@pytest.mark.system\ndef test_the_site_builds" in site
    assert '[REPOSITORY / ".ci" / "docs", ' in site
    assert "mkdocs build --strict " in (REPOSITORY / ".ci" / "docs").read_text(encoding="utf-8")
    assert {"ruff check .", "ruff format --check .", "mypy"} <= set(lines)
    assert "bandit --quiet --configfile pyproject.toml --recursive topdown" in lines
    assert "--exit-zero" not in RUN


def test_a_page_that_could_be_drawn_is_drawn() -> None:
    assert RUN.index("chromium") < RUN.index("TOPDOWN_BROWSER=required") < RUN.index('bash -c "$test_command"')
    tests = REPOSITORY / "tests"
    report = tests / "studies" / "report"
    pages = [report / "test_page.py", report / "test_published_margins.py"]
    page = "\n\n\n".join(path.read_text(encoding="utf-8") for path in pages)
    browsing = [test for test in re.split(r"\n\n\n", page) if "def test_" in test and "browsed(" in test]
    assert len(browsing) >= 4
    assert all(test.startswith("@in_a_browser\n") for test in browsing)
    assert "skipif" not in page
    browser = (tests / "support" / "browser.py").read_text(encoding="utf-8")
    assert browser.count("skipif") == 1


def test_an_exception_from_the_security_lint_names_its_test_and_its_reason() -> None:
    marked = [
        f"{path.name}: {line.strip()}"
        for path in sorted((REPOSITORY / "topdown").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"#\s*nosec", line, re.IGNORECASE)
    ]
    assert [line for line in marked if not re.search(r"# nosec B\d{3}(, B\d{3})* # \w.{15,}", line)] == []
