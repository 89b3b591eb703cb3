from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from inspect import getdoc
from pathlib import Path

import pytest

from support import second_solutions
from support.command import topdown_command
from support.places import REPOSITORY, RUN_TOML, Command
from topdown.cli.app import app


@pytest.fixture
def main(capfd: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """`topdown ARGUMENTS` in this process: its exit code and what it printed, (code, out, err)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = topdown_command(*arguments)
        out, err = capfd.readouterr()
        return code, out, err

    return call


def alone(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`topdown ARGUMENTS` in a process of its own, as a user meets it."""
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-c", "from topdown.entry import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_command_says_the_same_in_a_process_of_its_own(topdown: Command, toy_run: Path) -> None:
    """Most tests call it in theirs."""
    for arguments in (["check", toy_run], ["check", toy_run.parent], ["chek"]):
        there, here = alone(*arguments), topdown(*arguments)
        assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)


def test_run_says_what_it_read_spends_and_wrote_and_where_to_look(main, toy_run: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = main("run", toy_run)
    assert code == 0
    assert err == ""
    for line in (
        "read      6 nodes (1 nation, 2 state, 3 county) x 2 cells (adults, children)",
        "Total: epsilon = 1",
        "checked   unbiased: solved again by OSQP, apart by ",
        "wrote     ",
        "release.csv",
        "next      open ",
    ):
        assert line in out
    assert (toy_run.parent / "output" / "public" / "manifest.json").is_file()
    code, out, _ = main("run", toy_run)
    assert code == 0
    assert "complete; nothing was drawn or written" in out


@pytest.mark.parametrize(
    ("study", "first"),
    [
        ("us_counties_study", ["employed", "unemployed"]),
        ("pl94_rhode_island_study", ["total", "hispanic: not hispanic", "hispanic: hispanic"]),
    ],
)
def test_the_answers_of_a_study_are_listed_a_line_each(main, study: str, first: list[str]) -> None:  # type: ignore[no-untyped-def]
    """Of units in columns, and of those whose codes begin with their parents'."""
    code, out, err = main("schema", "--answers", REPOSITORY / "pipelines" / f"{study}.toml")
    assert (code, err) == (0, "")
    assert out.splitlines()[: len(first)] == first


def test_output_goes_where_it_is_told(main, toy_run: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert main("run", toy_run, "--output", tmp_path / "there")[0] == 0
    assert (tmp_path / "there" / "public" / "release.csv").is_file()
    assert not (tmp_path / "output").exists()


def test_quiet_prints_nothing_and_verbose_tells_the_stages(toy_run: Path, topdown: Command) -> None:
    verbose = alone("run", toy_run, "--verbose")  # here pytest takes what is logged
    assert verbose.returncode == 0
    assert "drawing noise: done in" in verbose.stderr
    quiet = topdown("run", toy_run, "--quiet", "-o", toy_run.parent / "again")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert (toy_run.parent / "again" / "public" / "manifest.json").is_file()
    toy_run.write_text(RUN_TOML.replace("epsilon", "epsilom"))
    failed = topdown("check", toy_run, "--quiet")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: ")
    assert "did you mean 'epsilon'" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(("option", "said"), [("--quiet", False), ("--verbose", True)])
def test_what_a_solver_warns_of_stays_off_the_terminal(toy_run: Path, option: str, said: bool) -> None:
    warning = (
        "import sys, warnings\n"
        "from topdown.projection.check import cvxpy_programs\n"
        "solve = cvxpy_programs._DIRECT['OSQP']\n"
        "def warned(*given):\n"
        "    warnings.warn('Solution may be inaccurate.')\n"
        "    return solve(*given)\n"
        "cvxpy_programs._DIRECT['OSQP'] = warned\n"
        "from topdown.cli import app\n"
        f"sys.argv = ['topdown', 'run', {str(toy_run)!r}, {option!r}]\n"
        "app.main()\n"
    )
    done = subprocess.run([sys.executable, "-W", "always", "-c", warning], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("may be inaccurate" in done.stderr) == said
    if not said:
        assert (done.stdout, done.stderr) == ("", "")


def test_check_writes_nothing(main, toy_run: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = main("check", toy_run)
    assert (code, err) == (0, "")
    assert "read      6 nodes" in out
    assert "ok        configuration, data and plan agree; nothing was drawn or written" in out
    assert sorted(path.name for path in toy_run.parent.iterdir()) == ["run.toml", "table.csv"]
    assert main("check", toy_run, "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ("epsilon =", "epsilom =", 2, "unknown key privacy.epsilom; did you mean 'epsilon'"),
        ("epsilon = 1.0", "epsilon = 1.0\nseed = 1", 2, "has no seed"),
        ("table.csv", "gone.csv", 3, "o such file"),
        ("county = 5", "county = 4", 3, "has 5 characters"),
        ("county = 0.5", "county = 0.4", 2, "add up to 0.9"),
        ("county = 0.5", "county = -0.5", 2, "a share is 0 or more"),
        ("county = 0.5", 'county = "half"', 2, "give a finite number or a fraction"),
        ("county = 0.5", "count = 0.5", 2, "names level 'count', which the geography does not have"),
        ("state = 0.3, ", "", 2, "add up to 0.7"),
        ("epsilon = 1.0", 'mechanism = "geometrical"\nepsilon = 1.0', 2, "unknown mechanism 'geometrical'"),
        ("epsilon = 1.0", 'neighbours = "substitution"\nepsilon = 1.0', 2, "unknown neighbours 'substitution'"),
        (
            "epsilon = 1.0",
            'invariants = ["nations"]\nepsilon = 1.0',
            2,
            "names level 'nations', which the geography does not have",
        ),
        ("epsilon = 1.0", "epsilon = 0", 5, "above 0"),
    ],
)
def test_exit_codes_of_both_commands(main, toy_run: Path, old: str, new: str, code: int, says: str) -> None:  # type: ignore[no-untyped-def]
    toy_run.write_text(RUN_TOML.replace(old, new))
    for command in ("check", "run"):
        found, out, err = main(command, toy_run)
        assert found == code
        assert says in err.replace("\n", " ")
        assert "wrote" not in out
        assert not (toy_run.parent / "output").exists()


def test_exit_code_of_a_projection_that_fails(main, toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    second_solutions.let_them_differ(monkeypatch)
    code, _, err = main("run", toy_run)
    assert code == 4
    assert "nothing was released" in err


def test_exit_code_of_wrong_usage(main, toy_run: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert main("run")[0] == 2
    assert main("release", toy_run)[0] == 2
    assert main("run", toy_run, "--seed", "1")[0] == 2
    code, _, err = main("run", tmp_path / "gone.toml")
    assert code == 2
    assert "gone.toml: cannot be read" in err


def test_a_mark_and_other_line_ends_in_the_file(main, toy_run: Path) -> None:  # type: ignore[no-untyped-def]
    toy_run.write_bytes(RUN_TOML.replace("\n", "\r\n").encode("utf-8-sig"))
    assert main("check", toy_run)[0] == 0


def test_help_teaches(main) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = main("--help")
    assert code == 0
    codes = "Exit codes: 0 ok, 2 configuration, 3 data, 4 projection, 5 budget"
    for words in ("topdown run FILE", "topdown check FILE", codes):
        assert words in " ".join(out.split())
    code, out, _ = main("run", "--help")
    assert code == 0
    for words in ("FILE", "--output", "--quiet", "--verbose", "release.parquet", "Noise is drawn once"):
        assert words in " ".join(out.split())
    assert "No noise is drawn" in " ".join(main("check", "--help")[1].split())


def test_help_shows_the_sections_that_it_names(main) -> None:  # type: ignore[no-untyped-def]
    """A name in brackets is taken for a style unless it is escaped, and is not shown."""
    named = 0
    for command in app.registered_commands:
        text = getdoc(command.callback)
        sections = re.findall(r"\[[a-z._]+\]", (text or "").replace("\\", ""))
        if sections:
            shown = main(command.name or command.callback.__name__, "--help")[1]
            assert [section for section in sections if section not in shown] == [], command.name
            named += len(sections)
    assert named > 5


def test_version(main) -> None:  # type: ignore[no-untyped-def]
    assert main("version")[:2] == (0, version("topdown") + "\n")


def test_check_tells_how_far_from_the_truth_a_release_will_be(main, toy_run: Path) -> None:  # type: ignore[no-untyped-def]
    """P(|X| > k) = 2 a^(k + 1) / (1 + a) for double geometric noise, a = exp(-epsilon); here of 0.2, 0.3 and 0.5."""
    from math import exp

    def within(epsilon: float) -> int:
        a = exp(-epsilon)
        return next(k for k in range(100) if 2 * a ** (k + 1) / (1 + a) <= 0.05)

    _, out, _ = main("check", toy_run)
    for level, epsilon in (("nation", 0.2), ("state", 0.3), ("county", 0.5)):
        assert (
            f"error     {level}: 95 % of measured counts within {within(epsilon)} of the truth; by least squares" in out
        )
    toy_run.write_text(RUN_TOML.replace("nation = 0.2, state = 0.3", "nation = 0, state = 0.5"))
    assert "error     nation: not measured; by least squares within " in main("check", toy_run)[1]
    toy_run.write_text(RUN_TOML.replace("nation = 0.2, state = 0.3", "state = 0.5") + 'invariants = ["nation"]\n')
    assert "error     nation: none, published exactly" in main("check", toy_run)[1]


def test_commands_and_options_are_completed_by_the_shell() -> None:
    """As bash asks, of the installed command."""
    program = "import sys; sys.argv = ['topdown']; from topdown.cli import main; main()"
    asked = {"_TOPDOWN_COMPLETE": "complete_bash", "COMP_WORDS": "topdown ch", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **asked}, check=False
    )
    assert done.stdout.split() == ["check"]


def test_what_reads_and_prepares_a_run_loads_no_solver_no_charts_and_no_tests_of_hypotheses() -> None:
    program = (
        "import sys\n"
        "import topdown.pipeline.run\n"
        "from topdown.config import load_config\n"
        "loaded = {'altair', 'cvxpy', 'networkx', 'scipy.optimize', 'scipy.stats'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
