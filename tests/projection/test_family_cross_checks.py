"""Families solved again: sound ones agree, a wrong solver's do not."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import topdown as td
from support.histograms import random_tree
from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray
from topdown.projection.check import cross_checks, cvxpy_programs
from topdown.projection.check.cross_checks import cross_check_families
from topdown.projection.histograms.families import (
    LEAST_SQUARES,
    Descent,
    Family,
    Solved,
    Sparse,
    descend,
    solve_compiled,
)
from topdown.projection.method import METHODS, CvxpySolver, Method
from topdown.projection.solver_inputs import descent_of

METHOD = METHODS["gls-top-down"]


@pytest.fixture(scope="module")
def solved() -> tuple[Descent, Method, list[Sparse]]:
    case = random_tree(np.random.default_rng(12), exact=False, orders=2)
    descent = descent_of(case.measurements(), METHOD, "variance")
    return descent, METHOD, descend(descent, LEAST_SQUARES)[0]


def test_a_second_solution_agrees_on_every_family(solved: tuple[Descent, Method, list[Sparse]]) -> None:
    found = cross_check_families(*solved)
    assert found.agrees
    assert found.scope == "every family"
    assert found.nodes == solved[0].tree.n_nodes


def test_a_solution_that_is_off_is_told_apart(solved: tuple[Descent, Method, list[Sparse]]) -> None:
    def wrong(program: Family) -> Solved:
        right = solve_compiled(program)
        x = right.x.copy()
        x[np.unravel_index(np.argmax(x), x.shape)] += 0.05
        return right._replace(x=x)

    descent, _, histograms = solved
    method = dataclasses.replace(METHOD, families=dataclasses.replace(LEAST_SQUARES, solve=wrong))
    found = cross_check_families(descent, method, histograms)
    assert not found.agrees
    assert found.largest_difference == pytest.approx(0.05, rel=0.01)


def test_of_many_families_a_random_part_is_solved(
    solved: tuple[Descent, Method, list[Sparse]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_checks, "_VARIABLES", 60)
    found = cross_check_families(*solved, rng=np.random.default_rng(1))
    assert found == cross_check_families(*solved, rng=np.random.default_rng(1))
    assert re.fullmatch(r"\d of \d+ families, none of more than 1,000 children times cells", found.scope)
    assert found.agrees


def test_a_solver_that_gives_up_is_followed_by_others(
    solved: tuple[Descent, Method, list[Sparse]], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = cvxpy_programs.family_solution

    def moody(program: Family, solver: CvxpySolver) -> FloatArray:
        if solver.name == "OSQP":
            raise ProjectionError("gave up")
        return right(program, solver)

    monkeypatch.setattr(cvxpy_programs, "family_solution", moody)
    assert cross_check_families(*solved).solver == "CLARABEL"

    def sulky(program: Family, solver: CvxpySolver) -> FloatArray:
        raise ProjectionError(f"{solver.name} gave up")

    monkeypatch.setattr(cvxpy_programs, "family_solution", sulky)
    with pytest.raises(ProjectionError, match="OSQP gave up"):
        cross_check_families(*solved)


def test_where_nobody_is_there_is_nothing_to_solve() -> None:
    geography = td.Geography.from_edges(["a", "b"], ["US", "US"])
    schema = td.Schema.from_mapping({"x": ["0", "1"]})
    answers = {
        (level, name): (np.full((nodes, size), -9), 1.0)
        for level, nodes in zip(geography.levels, (1, 2), strict=True)
        for name, size in (("total", 1), ("detailed", 2))
    }
    measurements = td.Measurements.from_answers(geography, schema, answers)
    descent = descent_of(measurements, METHODS["top-down"], "variance")
    found = descend(descent, LEAST_SQUARES).histograms
    assert cross_check_families(descent, METHODS["top-down"], found).agrees


def test_large_families_have_fewer_steps() -> None:
    steps = [cross_checks._bounded("OSQP", numbers).options["max_iter"] for numbers in (0, 200, 400, 100_000)]
    assert steps == [2000, 2000, 1000, 400]
    assert cross_checks._bounded("CLARABEL", 400).options == {}
