"""Methods as values: one that is added works everywhere; what it lacks it says, and borrows from no other."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

import topdown as td
from support.methods import of_cells_alone, pulled, shrunken, with_cells
from support.places import SEVERAL_TOML, Command
from support.several_queries import LEAVES, SCHEMA, SHARES, TREE, measured
from support.trees import Case, cases, geography
from topdown.cli import main
from topdown.config import load_any, load_config
from topdown.config.study_settings import StudyConfig
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import FloatArray, Tree
from topdown.noise import KeyedSource
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.pipeline.input.reading import read_input
from topdown.pipeline.parts import array_steps
from topdown.pipeline.study import study
from topdown.projection.check import cross_checks
from topdown.projection.check.cross_checks import cross_check
from topdown.projection.histograms.families import Family, Solved, solve_compiled
from topdown.projection.histograms.subtrees import Roots
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import METHODS, Method, Problem
from topdown.research.theory import topdown_equality_variance
from topdown.studies.methods import StudiedMethod, names


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Method:
    """ "joint" under another name, which cannot state its program and has no closed form of its variance."""
    method = dataclasses.replace(
        with_cells(METHODS["joint"], program=None, variance=None), name="mine", words="as joint"
    )
    monkeypatch.setitem(METHODS, "mine", method)
    return method


def test_a_method_that_is_added_projects_and_is_certified_as_itself(added: Method, counts: td.Counts) -> None:
    measurements = td.measure(counts, td.Plan(epsilon=1), source=td.SeededSource(1))
    estimate = td.project(measurements, "mine")
    np.testing.assert_array_equal(estimate.values, td.project(measurements, "joint").values)
    assert estimate.method == "mine"
    assert estimate.certificate.holds()
    assert td.project(measurements, "mine", nonnegative=False).variance is None
    assert td.round_counts(estimate).method == "mine"


def test_a_method_without_a_program_says_so(added: Method, counts: td.Counts) -> None:
    measurements = td.measure(counts, td.Plan(epsilon=1), source=td.SeededSource(1))
    with pytest.raises(ConfigError, match="'mine' cannot be stated"):
        td.project(measurements, "mine", engine="cvxpy")
    with pytest.raises(ConfigError, match="'mine' cannot be stated"):
        cross_checks.cross_check(measurements, td.project(measurements, "mine"))


def test_a_wrong_solution_of_an_added_method_is_not_certified(
    added: Method, counts: td.Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(problem: Problem) -> FloatArray:
        return np.asarray(METHODS["top-down"].for_cells().solve(problem))

    monkeypatch.setitem(METHODS, "mine", with_cells(added, solve=wrong))
    measurements = td.measure(counts, td.Plan(epsilon="1/10"), source=td.SeededSource(1))
    with pytest.raises(td.errors.ProjectionError, match="mine by tree: the certificate does not hold"):
        td.project(measurements, "mine")


def test_a_run_whose_method_has_no_second_solution_is_refused_before_anything_is_drawn(
    added: Method, toy_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_run.write_text(toy_run.read_text() + '[projection]\nmethod = "mine"\n')
    monkeypatch.setattr("sys.argv", ["topdown", "run", str(toy_run)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == ConfigError.exit_code
    assert "'mine' cannot be stated" in capsys.readouterr().err
    assert not (toy_run.parent / "output" / "public").exists()
    assert not list((toy_run.parent / "output").rglob("measurements*"))
    toy_run.write_text(toy_run.read_text() + "cross_check = false\n")
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert (toy_run.parent / "output" / "public" / "release.csv").exists()


def test_labels_are_read_as_they_are_written() -> None:
    assert [StudiedMethod.parse(name).label for name in names()] == names()
    equality = {f"{one.name}/equality" for one in METHODS.values() if one.nonnegative}
    assert {"gls", "top-down/equality", "gls-top-down/equality", "joint/equality"} <= {"gls", *equality}
    assert {name for name in names() if StudiedMethod.parse(name).sums_alone} == {"gls", *equality}


@given(cases(exact=False, unmeasured=False, max_cells=1, wild=False))  # 1 - g loses digits where v differ by 1e9
def test_the_methods_variance_is_the_theorys(case: Case) -> None:
    noise, tree = case.variance[:, 0], case.tree
    own = METHODS["top-down"].for_cells().variance
    assert own is not None
    np.testing.assert_allclose(own(noise, tree), topdown_equality_variance(tree.parent, noise), rtol=1e-9)


def test_every_method_has_words() -> None:
    assert len({method.words for method in METHODS.values()}) == len(METHODS)


# -- a method that lacks a solver is refused, whoever asks ------------------------------------------------------------

REFUSED = r"method 'mine' \(as .*\) has no solver of {}; take "
WITH_LIMITS = REFUSED.format("several queries, or answers within limits, with x >= 0") + "'top-down' or 'gls-top-down'"


@pytest.fixture(params=["top-down", "gls-top-down"])
def of_cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Method:
    """A method of one's own that solves where the cells alone are measured, as many others do."""
    method = of_cells_alone(request.param)
    monkeypatch.setitem(METHODS, "mine", method)
    return method


def test_a_method_of_the_cells_alone_is_refused_several_queries(of_cells: Method) -> None:
    measurements = measured(1)
    with pytest.raises(ConfigError, match=WITH_LIMITS):
        td.project(measurements, "mine")
    with pytest.raises(ConfigError, match=REFUSED.format("several queries without x >= 0") + "'top-down'"):
        td.project(measurements, "mine", nonnegative=False)
    with pytest.raises(ConfigError, match=WITH_LIMITS):
        td.project_whole(measurements, "mine")


def test_a_method_of_the_cells_alone_is_refused_limits(of_cells: Method, counts: td.Counts) -> None:
    measurements = td.measure(counts, td.Plan(epsilon=1), source=td.SeededSource(1))
    limits = AnswerLimits(counts.geography, counts.schema, {})
    assert td.project(measurements, "mine").certificate.holds()
    with pytest.raises(ConfigError, match=WITH_LIMITS):
        td.project(measurements, "mine", constraints=limits)


@pytest.mark.parametrize("command", [draw.check, pipeline.run])
def test_a_release_of_several_queries_is_refused_before_the_draw(
    command: Callable[..., object], of_cells: Method, toy_run: Path
) -> None:
    toy_run.write_text(SEVERAL_TOML + '[projection]\nmethod = "mine"\n')
    config = load_config(toy_run)
    with pytest.raises(ConfigError, match=WITH_LIMITS):
        command(config)
    assert not list(config.output_path.rglob("*.*"))
    assert not (config.output_path / "public").exists()


def test_a_rehearsal_of_several_queries_is_refused(
    of_cells: Method, toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody looked before."""
    toy_run.write_text(SEVERAL_TOML + '[projection]\nmethod = "mine"\n')
    monkeypatch.setattr(draw, "_require_solvers", lambda _: None)
    with pytest.raises(ConfigError, match=WITH_LIMITS):
        draw.check(load_config(toy_run))


@pytest.mark.parametrize("methods", [["mine/rounded"], ["mine"], ["gls", "mine/equality"], None])
def test_a_study_of_several_queries_is_refused(methods: list[str] | None, of_cells: Method, toy_run: Path) -> None:
    named = "" if methods is None else f"methods = {methods}\n"
    own = '[projection]\nmethod = "mine"\n' if methods is None else ""
    toy_run.write_text(SEVERAL_TOML + f"{own}[study]\nreplicates = 10\npublic_input = true\n{named}")
    config = load_any(toy_run)
    with pytest.raises(ConfigError, match=r"'mine' .* has no solver of several queries"):
        draw.check(config)
    assert isinstance(config, StudyConfig)
    with pytest.raises(ConfigError, match=r"'mine' .* has no solver of several queries"):
        study(config)


def test_a_study_is_refused_whose_released_method_has_no_solver(of_cells: Method, toy_run: Path) -> None:
    """Its intervals are followed, whichever methods are."""
    options = '[projection]\nmethod = "mine"\n[study]\nreplicates = 10\npublic_input = true\nmethods = ["gls"]\n'
    toy_run.write_text(SEVERAL_TOML + options)
    config = load_any(toy_run)
    assert isinstance(config, StudyConfig)
    with pytest.raises(ConfigError, match=WITH_LIMITS):
        study(config)


def test_parts_are_refused(of_cells: Method) -> None:
    plan = td.Plan("discrete-gaussian", rho=1, shares={"a": {"total": 1}})
    job = array_steps.Job(td.Schema.of_cells(["x", "y"]), ("a", "b"), plan, "mine", KeyedSource(bytes(32)))
    with pytest.raises(ConfigError, match=WITH_LIMITS):
        array_steps.top(job, Tree.from_family_sizes([[2]]), [{}], Roots([], {}, {}, np.ones(2, np.int64)))
    with pytest.raises(ConfigError, match="unknown method 'nobody'"):
        _ = dataclasses.replace(job, method="nobody").start


def test_workers_that_have_another_method_are_refused_before_anything_is_drawn(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, words in (("shrunken", "do not have it"), ("top-down", "have another under this name")):
        monkeypatch.setitem(METHODS, name, shrunken(name))
        toy_run.write_text(f'{SEVERAL_TOML}[projection]\nmethod = "{name}"\n')
        with pytest.raises(ConfigError, match=f"method '{name}' was added to topdown, and the workers .* {words}"):
            pipeline.run(load_config(toy_run), part_size=2)
        monkeypatch.undo()
    assert not (toy_run.parent / "output" / "internal" / "key").exists()


def test_a_method_of_several_queries_alone_is_refused_the_cells(
    counts: td.Counts, toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "shrunken", shrunken())
    refused = REFUSED.replace("mine", "shrunken").replace("as .*", ".*").format("measurements of the cells alone")
    measurements = td.measure(counts, td.Plan(epsilon=1), source=td.SeededSource(1))
    with pytest.raises(ConfigError, match=refused):
        td.project(measurements, "shrunken")
    with pytest.raises(ConfigError, match=refused):
        td.simulate(counts, td.Plan(epsilon=1), ["shrunken"], 2, 1)
    toy_run.write_text(toy_run.read_text() + '[projection]\nmethod = "shrunken"\n')
    with pytest.raises(ConfigError, match=refused):
        draw.check(load_config(toy_run))


# -- a method with solvers of its own works everywhere as itself ------------------------------------------------------


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Method:
    method = shrunken()
    monkeypatch.setitem(METHODS, "shrunken", method)
    return method


def test_a_method_with_its_own_solver_of_families_is_projected_certified_and_checked(own: Method) -> None:
    measurements = measured(1)
    estimate = td.project(measurements, "shrunken")
    other = td.project(measurements, "top-down")
    assert np.abs(estimate.values - other.values).max() > 1
    assert (estimate.method, estimate.certificate.holds()) == ("shrunken", True)
    again = td.project(measurements, "shrunken", engine="cvxpy", solver="CLARABEL")
    np.testing.assert_allclose(again.values, estimate.values, atol=1e-3)
    assert cross_check(measurements, estimate).agrees


def test_another_methods_solution_is_not_certified_under_its_name(own: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(own, families=dataclasses.replace(own.for_families(), solve=solve_compiled))
    monkeypatch.setitem(METHODS, "shrunken", wrong)
    with pytest.raises(ProjectionError, match="shrunken by tree: the certificate does not hold"):
        td.project(measured(1), "shrunken")
    with pytest.raises(ProjectionError, match="shrunken by tree: the certificate does not hold"):
        td.project_whole(measured(1), "shrunken", source=td.SeededSource(1))


def test_another_program_than_it_solves_is_found_by_the_cross_check(
    own: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurements = measured(1)
    estimate = td.project(measurements, "shrunken")
    families = dataclasses.replace(own.for_families(), program=lambda family: pulled(pulled(family)))
    monkeypatch.setitem(METHODS, "shrunken", dataclasses.replace(own, families=families))
    assert not cross_check(measurements, estimate).agrees


def test_a_method_with_its_own_solver_of_histograms_that_knows_no_variance(own: Method) -> None:
    measurements = measured(1)
    estimate = td.project(measurements, "shrunken", nonnegative=False)
    known = td.project(measurements, "top-down", nonnegative=False)
    np.testing.assert_array_equal(estimate.values, known.values)
    np.testing.assert_array_equal(estimate.exact, known.exact)
    assert (estimate.variance, estimate.covariance) == (None, None)
    assert estimate.answer("level 1", "sex").variance is None
    with pytest.raises(ConfigError, match="'shrunken' cannot be stated"):
        td.project(measurements, "shrunken", nonnegative=False, engine="cvxpy")


def test_a_run_by_a_method_with_its_own_solvers(own: Method, toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families: list[Family] = []

    def solve(family: Family) -> Solved:
        families.append(family)
        return own.for_families().solve(family)

    counted = dataclasses.replace(own, families=dataclasses.replace(own.for_families(), solve=solve))
    toy_run.write_text(SEVERAL_TOML + '[projection]\nmethod = "shrunken"\n')
    config = load_config(toy_run)
    draw.check(config)
    monkeypatch.setattr(draw, "rehearse", lambda *_: None)
    monkeypatch.setitem(METHODS, "shrunken", counted)
    public = pipeline.run(config).public
    td.verify_release(public)
    said = json.loads((public / "manifest.json").read_text())["projections"]["non_negative"]
    assert said["method"] == "shrunken"
    assert said["cross_check"] is not None
    # The root and three families (one has an only child), for the release and for its second solution.
    assert {len(family.known.g) for family in families} == {1, 2}
    assert len(families) >= 4


@pytest.mark.parametrize("estimates", ["true", "false"])
def test_a_run_whose_families_have_no_second_solution_is_refused_before_the_draw(
    estimates: str, own: Method, toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = dataclasses.replace(own, families=dataclasses.replace(own.for_families(), program=None))
    monkeypatch.setitem(METHODS, "shrunken", method)
    toy_run.write_text(f'{SEVERAL_TOML}[output]\nestimates = {estimates}\n[projection]\nmethod = "shrunken"\n')
    config = load_config(toy_run)
    with pytest.raises(ConfigError, match="'shrunken' cannot be stated"):
        pipeline.run(config)
    assert not (config.output_path / "public").exists()
    assert not list(config.output_path.rglob("measurements*"))
    toy_run.write_text(toy_run.read_text() + "cross_check = false\n")
    assert pipeline.run(load_config(toy_run)).public.exists()


def test_a_study_follows_a_methods_own_solvers(own: Method) -> None:
    there = geography(TREE)
    frame = pd.DataFrame(LEAVES, columns=list(SCHEMA.cells())).assign(geoid=list(there.geoid[TREE.leaves]))
    counts = td.Counts.from_table(frame, there, geoid="geoid", cells=list(SCHEMA.cells()), schema=SCHEMA)
    plan = td.Plan("discrete-gaussian", rho="0.1", shares=SHARES)
    labels = ["shrunken", "shrunken/equality", "top-down", "top-down/equality"]
    table = td.simulate(counts, plan, labels, 40, 1, queries=["total", "sex"])
    assert np.abs(table["shrunken", "bias"] - table["top-down", "bias"]).max() > 1
    np.testing.assert_array_equal(table["shrunken/equality", "bias"], table["top-down/equality", "bias"])
    assert "shrunken/equality" not in table.theory
    assert "top-down/equality" in table.theory


# -- from the root down, without the root ------------------------------------------------------------------------------


NOT_MEASURED = [(0,), (0, 1), (0, 1, 2)]


@pytest.mark.parametrize("unmeasured", NOT_MEASURED)
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("engine", ["tree", "cvxpy"])
def test_top_down_takes_from_below_what_the_root_has(
    counts: td.Counts, unmeasured: tuple[int, ...], nonnegative: bool, engine: str
) -> None:
    units = counts.geography
    values = np.array([np.nan, np.nan, np.nan, 10.0, -4.0, 7.0])
    values[1:3] = np.where(np.isin([1, 2], unmeasured), np.nan, [5.0, 8.0])
    variance = np.where(np.isin(np.arange(6), unmeasured), np.inf, 2.0)
    measurements = td.Measurements.from_arrays(units, values, variance)
    found = td.project(measurements, "top-down", nonnegative=nonnegative, engine=engine)
    leaves = np.maximum(values[3:], 0) if nonnegative else values[3:]
    states = np.where(np.isnan(values[1:3]), [leaves[:2].sum(), leaves[2]], values[1:3])
    np.testing.assert_allclose(found.values[:3, 0], [states.sum(), *states], atol=1e-6)
    assert found.variance is None
    # Families whose parent is measured keep their program.
    stated = np.where(np.arange(6) < 3, np.concatenate([[states.sum()], states, np.zeros(3)]), values)
    alone = td.project(td.Measurements.from_arrays(units, stated, 2.0), nonnegative=nonnegative)
    np.testing.assert_allclose(found.values, alone.values, atol=1e-6)


@pytest.mark.parametrize("nonnegative", [True, False])
def test_top_down_of_several_queries_is_refused_where_the_root_is_not_measured(nonnegative: bool) -> None:
    units = td.Geography.from_edges(["a", "b"], ["r", "r"], levels=["nation", "state"])
    schema = td.Schema.from_mapping({"sex": ["f", "m"]})
    below = {("state", "total"): ([[3], [5]], 1.0), ("state", "sex"): ([[1, 2], [3, 2]], 1.0)}
    measurements = td.Measurements.from_answers(units, schema, below)
    with pytest.raises(ConfigError, match=r"nation 'r' is not measured, and method 'top-down' .* take 'gls-top-down'"):
        td.project(measurements, "top-down", nonnegative=nonnegative)
    assert td.project(measurements, "gls-top-down").values[0].sum() == pytest.approx(8)
    exact = {("state", "total"): ([[3], [5]], 0.0), ("state", "sex"): ([[1, 2], [3, 2]], 1.0)}
    found = td.project(td.Measurements.from_answers(units, schema, exact), "top-down", nonnegative=nonnegative)
    assert found.values[0].sum() == pytest.approx(8)


def test_top_down_of_several_queries_is_refused_where_the_root_has_no_share(toy_run: Path, topdown: Command) -> None:
    shares = "shares = { nation = 0, state = { age = 0.5 }, county = { total = 0.2, age = 0.3 } }"
    toy_run.write_text(re.sub("shares = .*", shares, SEVERAL_TOML) + '[projection]\nmethod = "top-down"\n')
    for command in ("check", "run"):
        done = topdown(command, toy_run)
        assert done.returncode == 2
        assert "level 'nation' has no share of the budget, and method 'top-down' goes from the root down" in done.stderr
    assert not list(toy_run.parent.glob("**/public"))
    counts = read_input(load_config(toy_run))[1]
    plan = load_config(toy_run).plan()
    with pytest.raises(ConfigError, match="level 'nation' has no share"):
        td.simulate(counts, plan, ["gls", "top-down"], 2, seed=1)
    td.simulate(counts, plan, ["gls", "gls-top-down"], 2, seed=1)


def test_a_study_takes_from_below_what_the_root_has(counts: td.Counts) -> None:
    plan = td.Plan("geometric", epsilon=1, shares={"nation": 0, "state": "1/2", "county": "1/2"})
    study = td.simulate(counts, plan, ["gls", "top-down", "top-down/equality"], 2000, seed=1)
    assert abs(study["top-down/equality", "bias"][0]).max() < 1
    assert abs(study["top-down", "bias"][0]).max() < 3
