"""What is loaded when, and which names the package shows."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from types import ModuleType

import pytest

import topdown as td
from support.places import REPOSITORY

HEAVY = {"cvxpy", "numba", "osqp", "scipy.stats", "sklearn", "altair", "jinja2", "networkx", "matplotlib", "vl_convert"}

RELEASE = """
import pandas as pd, topdown as td
frame = pd.DataFrame({"nation": ["US"] * 3, "county": ["1", "2", "3"], "x": [3, 0, 5]})
geography = td.Geography.from_table(frame, levels=["nation", "county"])
counts = td.Counts.from_table(frame, geography, geoid="county", cells=["x"])
for plan in (td.Plan(epsilon=1), td.Plan("discrete-gaussian", rho=1), td.Plan(epsilon=1, bounds="truncated")):
    measurements = td.measure(counts, plan)
    td.round_counts(td.project(measurements, "gls-top-down")).to_frame()
td.project(measurements, "gls").to_frame()
"""


def loaded_by(program: str) -> set[str]:
    """The modules that a new process has loaded after ``program``."""
    told = f"{program}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("program", "more"),
    [
        ("import topdown", {"pandas", "pyarrow", "scipy", "topdown.confidential.counts"}),
        (
            "import topdown.cli.app",
            {"pandas", "pyarrow", "scipy", "topdown.pipeline.run", "topdown.confidential.counts"},
        ),
        (RELEASE, set()),
        ("import topdown\nfor name in topdown.__all__: getattr(topdown, name)", set()),
        ("import topdown.config, topdown.pipeline.input.reading", set()),
    ],
    ids=["import", "command line", "a release", "every public name", "a configuration"],
)
def test_what_is_heavy_is_loaded_when_it_is_used(program: str, more: set[str]) -> None:
    assert loaded_by(program) & (HEAVY | more) == set()


def test_a_second_solution_by_osqp_loads_no_cvxpy() -> None:
    again = (
        "measurements = td.measure(counts, td.Plan(epsilon=1))\n"
        "from topdown.projection.check.cross_checks import cross_check\n"
        "assert cross_check(measurements, td.project(measurements, 'gls')).solver == 'OSQP'"
    )
    loaded = loaded_by(RELEASE + again)
    assert "osqp" in loaded
    assert not loaded & {"cvxpy", "scipy.stats"}


PLAIN = """
import topdown as td, topdown.pipeline.run, topdown.pipeline.study
from topdown.noise import DiscreteLaplace
td.Plan(epsilon=1, shares={"nation": 1}).charged_total
"""


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        (PLAIN, set()),
        (f"{PLAIN}td.Plan(epsilon=1, bounds='truncated')", {"topdown.research.bounded.kinds"}),
        (f"{PLAIN}td.noise.TruncatedLaplace", {"topdown.research.bounded"}),
        ("from topdown.noise import TruncatedLaplace", {"topdown.research.bounded"}),
        (
            "from topdown.studies.report.sections import registry\nregistry.sections()",
            {"topdown.research.sections", "topdown.research.pmse.quality"},
        ),
    ],
    ids=["a plan", "a bounded plan", "a bounded law", "a bounded law by name", "a report"],
)
def test_research_is_loaded_when_it_is_used(program: str, loaded: set[str]) -> None:
    found = {name for name in loaded_by(program) if name.startswith("topdown.research")}
    assert loaded <= found
    assert bool(loaded) == bool(found)


def test_the_search_for_modules_finds_them() -> None:
    assert {"scipy.stats", "topdown.research.theory", "cvxpy"} & loaded_by("import scipy.stats, cvxpy") == {
        "scipy.stats",
        "cvxpy",
    }


# -- names ------------------------------------------------------------------------------------------------------------


def test_the_package_shows_its_public_names_alone() -> None:

    shown = {name for name in dir(td) if not name.startswith("__")}
    assert shown == set(td.__all__) - {"__version__"}
    assert {"errors", "measure", "theory"} <= shown
    assert "version" not in vars(td)


def test_every_public_name_is_what_it_says() -> None:
    for name in td.__all__:
        found = getattr(td, name)
        if isinstance(found, ModuleType):
            assert found.__name__.rpartition(".")[2] == name
        elif name != "__version__":
            assert found.__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'mesure'"):
        td.mesure  # noqa: B018


def test_type_checkers_are_told_the_same_names() -> None:
    source = (REPOSITORY / "topdown" / "__init__.py").read_text(encoding="utf-8")
    typed = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    told = {alias.name: node.module for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(told) == set(td.__all__) - {"__version__"}
    for name, module in told.items():
        home = __import__(module, fromlist=[name])
        assert getattr(home, name) is getattr(td, name), name


def test_no_module_hides_behind_a_public_name() -> None:
    """`import topdown.measure as m` would give the function, and a module of that name could not be reached."""
    modules = {path.stem for path in (REPOSITORY / "topdown").glob("*.py")}
    assert not {name for name in td.__all__ if not inspect.ismodule(getattr(td, name))} & (modules - {"__init__"})
