"""Methods as values: one that is added works everywhere; what it lacks it says, and borrows from no other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import topdown as td
from support.trees import Case, cases
from topdown.cli import main
from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.projection import crosscheck
from topdown.projection.method import METHODS, Method
from topdown.projection.problem import Problem
from topdown.simulation.methods import NAMES, StudiedMethod
from topdown.theory import topdown_equality_variance


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Method:
    """ "joint" under another name, which cannot state its program and has no closed form of its variance."""
    method = dataclasses.replace(METHODS["joint"], name="mine", words="as joint", program=None, variance=None)
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
        crosscheck.cross_check(measurements, td.project(measurements, "mine"))


def test_a_wrong_solution_of_an_added_method_is_not_certified(
    added: Method, counts: td.Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(problem: Problem) -> FloatArray:
        return np.asarray(METHODS["top-down"].solve(problem))

    monkeypatch.setitem(METHODS, "mine", dataclasses.replace(added, solve=wrong))
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
    assert [StudiedMethod.parse(name).label for name in NAMES] == list(NAMES)
    assert {name for name in NAMES if StudiedMethod.parse(name).sums_alone} == {
        "gls",
        "top-down/equality",
        "gls-top-down/equality",
        "joint/equality",
    }


@given(cases(exact=False, unmeasured=False, max_cells=1, wild=False))  # 1 - g loses digits where v differ by 1e9
def test_the_methods_variance_is_the_theorys(case: Case) -> None:
    noise, tree = case.variance[:, 0], case.tree
    own = METHODS["top-down"].variance
    assert own is not None
    np.testing.assert_allclose(own(noise, tree), topdown_equality_variance(tree.parent, noise), rtol=1e-9)


def test_every_method_has_words() -> None:
    assert len({method.words for method in METHODS.values()}) == len(METHODS)
