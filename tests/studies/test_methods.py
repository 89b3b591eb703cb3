"""The methods that a study compares: their names, and that each is the projection that it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from support.trees import Case, cases
from topdown.errors import ConfigError
from topdown.geography.tree import Tree
from topdown.noise import SeededSource
from topdown.projection.cells.rounding import round_top_down
from topdown.projection.invariants import lower_bounds, settle
from topdown.projection.method import Problem
from topdown.projection.project import project
from topdown.studies.methods import StudiedMethod, names, parse_methods


def test_the_names() -> None:
    assert set(names()) == {
        "raw",
        "gls",
        *(f"{name}{kind}" for name in ("top-down", "gls-top-down", "joint") for kind in ("", "/equality", "/rounded")),
        *(f"{name}/at-once{kind}" for name in ("top-down", "gls-top-down") for kind in ("", "/rounded")),
    }


@pytest.mark.parametrize("label", names())
def test_labels_and_methods_correspond(label: str) -> None:
    method = StudiedMethod.parse(label)
    assert method.label == label
    assert method.nonnegative == (label not in ("raw", "gls") and not label.endswith("/equality"))
    assert method.rounded == label.endswith("/rounded")


@pytest.mark.parametrize(
    ("label", "hint"), [("topdown", "'top-down'"), ("gls/rounded", "gls"), ("raw/equality", "raw"), ("", "raw")]
)
def test_unknown_labels_are_refused(label: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        StudiedMethod.parse(label)


def test_lists_of_methods() -> None:
    joint = StudiedMethod("joint", True, False)
    assert parse_methods("raw") == (StudiedMethod.parse("raw"),)
    assert parse_methods(["raw", joint]) == (StudiedMethod.parse("raw"), joint)
    assert parse_methods(name for name in names()) == tuple(map(StudiedMethod.parse, names()))
    with pytest.raises(ConfigError, match="once"):
        parse_methods(["joint", joint])
    with pytest.raises(ConfigError, match="at least one"):
        parse_methods([])


def problem_of(case: Case) -> Problem:
    values, variance = settle(case.values.T.copy(), case.variance.T.copy(), case.tree, nonnegative=True)
    return Problem(values, variance, case.tree, False, lower_bounds(values, variance, case.tree))


@given(cases())
def test_methods_are_the_projections_of_project(case: Case) -> None:
    problem, measurements = problem_of(case), case.measurements()
    for label in names():
        method = StudiedMethod.parse(label)
        if label == "raw" or method.rounded or method.at_once:
            continue
        estimate = project(measurements, method.projection, nonnegative=method.nonnegative)
        x = method.apply(problem, SeededSource(1))
        np.testing.assert_allclose(x, estimate.values.T, atol=1e-6 * case.noise, rtol=1e-9, err_msg=label)


def test_raw_is_what_was_measured() -> None:
    values = np.array([[3.0, -1.0, 5.5]])
    case = problem_tree(values)
    np.testing.assert_array_equal(StudiedMethod.parse("raw").apply(case, SeededSource(1)), values)


def problem_tree(values: np.ndarray) -> Problem:
    return Problem(values, np.ones(values.shape[-1]), Tree.from_family_sizes([[values.shape[-1] - 1]]), False, None)


def test_rounding_is_that_of_a_release() -> None:
    problem = problem_tree(np.array([[7.3, 2.4, 4.1], [0.2, -3.0, 1.4]]))
    whole = StudiedMethod.parse("joint/rounded").apply(problem, SeededSource(2))
    x = StudiedMethod.parse("joint").apply(problem, SeededSource(2))
    np.testing.assert_array_equal(whole, round_top_down(x, problem.tree, SeededSource(2), None, None))
    assert (np.abs(whole - x) <= 1).all()


@given(cases(max_cells=2))
def test_replicates_are_projected_like_single_problems(case: Case) -> None:
    problem = problem_of(case)
    stacked = problem._replace(values=np.stack([problem.values, problem.values + (problem.variance > 0)]))
    for label in ("top-down", "gls", "gls-top-down", "joint", "top-down/rounded"):
        x = StudiedMethod.parse(label).apply(stacked, SeededSource(1))
        assert x.shape == stacked.values.shape
        alone = StudiedMethod.parse(label).apply(problem, SeededSource(1))
        if not label.endswith("rounded"):
            np.testing.assert_allclose(x[0], alone, atol=1e-7 * case.noise, rtol=1e-10, err_msg=label)
