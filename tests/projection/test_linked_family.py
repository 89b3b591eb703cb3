"""Families of households and persons: the compiled engine against Clarabel, and its certificate."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numba
import numpy as np
import pytest

from support.linked import census
from support.linked_families import SHARES as QUERIES
from support.linked_families import measured_family, noisy, populated
from topdown.errors import ConfigError, ProjectionError
from topdown.linked.universe import LinkedQuery
from topdown.measurements.measurements import Answers
from topdown.projection.check.certificate import FAMILY_TOLERANCE, certify
from topdown.projection.check.cvxpy_programs import CvxpySolver, family_solution
from topdown.projection.histograms.families import solve_compiled
from topdown.projection.histograms.prior import Prior
from topdown.projection.linked import linked_kernel
from topdown.projection.linked.interior import solve_inside
from topdown.projection.linked.linked_family import FamilyRows, LinkedAnswers, LinkedFamily, MeasuredCells

UNIVERSE = census(races=3, ages=3)
LARGE = census()


def _certified(family: LinkedFamily) -> bool:
    solved, residuals = family.solve()
    assert (solved.x >= 0).all()
    return certify([residuals], np.ones(1), nonnegative=True, tolerance=FAMILY_TOLERANCE).holds()


@pytest.mark.parametrize("seed", range(6))
def test_the_engine_finds_what_clarabel_finds(seed: int) -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(seed), children=4, mean=4.0)
    program, (solved, _) = family.centred()
    other = family_solution(program.dense(), CvxpySolver("CLARABEL", {}))
    assert np.abs(solved.x - other).max() < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_every_family_is_solved_with_its_certificate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    universe = LARGE if seed % 4 == 0 else UNIVERSE
    children, mean = int(rng.integers(1, 9)), float(rng.choice([0.5, 3.0, 8.0]))
    family = measured_family(universe, rng, children=children, mean=mean, rho=10 ** rng.uniform(-2, 2))
    assert _certified(family)


def test_multipliers_of_an_only_child_are_exact() -> None:
    """Its cells are the parent's, however little is known of them: what is left of the equations is rounding."""
    for seed in range(5):
        family = measured_family(LARGE, np.random.default_rng(seed), children=1, mean=300.0, rho=0.1)
        solved, _ = family.solve()
        rows = family.rows.conditions().rows
        slope, size = family.measured.slope(solved.x)
        left = np.abs(slope - solved.sums - solved.rows @ rows)[solved.x > 0]
        terms = size + np.abs(solved.sums) + np.abs(solved.rows) @ np.abs(rows)
        assert (left <= 2.0**-48 * terms[solved.x > 0]).all()


def test_a_certificate_sees_what_is_not_optimal() -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(3), children=3, mean=4.0)
    solved, _ = family.solve()
    moved = solved.x.copy()
    moved[[0, 1], 0] += 0.1, -0.1
    residuals = family.check(solved._replace(x=moved))
    assert not certify([residuals], np.ones(1), nonnegative=True, tolerance=FAMILY_TOLERANCE).holds()


def test_rows_hold_of_the_solution() -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(5), children=5, mean=5.0)
    solved, _ = family.solve()
    answers = solved.x @ family.rows.coefficients.T
    assert (answers >= family.rows.low - 1e-6).all()
    assert (answers <= family.rows.high + 1e-6).all()
    assert (solved.x[~family.rows.allowed] == 0).all()


def test_the_programs_information_is_that_of_its_queries() -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(6), children=3, mean=3.0)
    (table, g), pattern = family.measured.gathered()
    x = np.random.default_rng(0).random(g.shape)
    slope, _ = family.measured.slope(x)
    assert np.allclose(slope, np.einsum("nkl,nl->nk", table[:, pattern], x) - g)
    assert np.allclose(family.measured.diagonal(), table[:, np.diagonal(pattern)])


@pytest.mark.parametrize("some", [0.05, 0.9])  # solved by a matrix of the free cells, and by one of the answers
def test_equations_of_free_cells_are_those_of_the_information_and_the_held_rows(some: float) -> None:
    rng = np.random.default_rng(7)
    family = measured_family(LARGE, rng, children=3, mean=3000.0)
    program, (table, _), pattern = family._arrays(), *family.measured.gathered()
    free = program.allowed & (rng.random(program.g.shape) < some)
    side, weight = rng.integers(-1, 2, program.low.shape).astype(np.int8), rng.uniform(1, 100, 3)
    equations = [(np.zeros(0),) * 5] * 3
    assert linked_kernel._refresh.py_func(program, free, side, weight, np.ones(3, np.bool_), equations)
    rows = family.rows.conditions().rows
    for c, child in enumerate(equations):
        assert (child[2].size > 0) == (some > 0.5)
        held = rows[side[c] != 0]
        matrix = table[c][pattern] + weight[c] * held.T @ held
        vector = rng.normal(size=len(matrix))
        right = np.linalg.solve(matrix[np.ix_(free[c], free[c])], vector[free[c]])
        assert np.allclose(linked_kernel._solution(child, vector), right, rtol=1e-9, atol=1e-9 * np.abs(right).max())


def test_without_queries_and_rows_a_parents_cells_are_shared_out_evenly() -> None:
    total, nothing = np.array([3.0, 5.0, 8.0]), np.zeros((2, 0))
    measured = MeasuredCells(np.zeros((0, 3), np.int64), [], nothing, Prior(np.ones(3), 1.0, total / 2))
    rows = FamilyRows(np.zeros((0, 3)), nothing, nothing, np.ones((2, 3), np.bool_), 0)
    solved, _ = LinkedFamily(np.arange(3), measured, total, rows).solve()
    assert np.allclose(solved.x, total / 2)


def test_what_no_query_determines_does_not_move_a_large_total() -> None:
    query, size, cells = LinkedQuery.parse("persons: total", UNIVERSE), 3.3e8, np.arange(UNIVERSE.n_cells)
    measured = LinkedAnswers({query: Answers(np.array([[size]]), np.ones(1))}, 1).on(slice(0, 1), cells, None)
    nothing = np.zeros((1, 0))
    rows = FamilyRows(np.zeros((0, len(cells))), nothing, nothing, np.ones((1, len(cells)), np.bool_), 0)
    solved, _ = LinkedFamily(cells, measured, None, rows).solve()
    assert abs(solved.x[0, query.answers_of(cells) >= 0].sum() - size) < 1e-3


def test_exact_answers_are_refused() -> None:
    query = LinkedQuery.parse("persons: total", UNIVERSE)
    with pytest.raises(ConfigError, match="'persons: total' is exact"):
        LinkedAnswers({query: Answers(np.ones((1, 1)), np.zeros(1))}, 1)


@pytest.mark.parametrize("seed", range(6))
def test_the_engine_of_histograms_finds_the_same(seed: int) -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(seed), children=1 + seed % 4, mean=6.0)
    if seed % 4 == 0:
        family = family._replace(total=None)  # a root
    program, (found, _) = family.centred()
    assert np.abs(found.x - solve_compiled(program.dense()).x).max() < 1e-6
    assert _certified(family)


def test_a_family_of_many_children_needs_few_rounds() -> None:
    """With the narrowest tolerance from the first round on, cells and rows changed sides for more than 90 rounds."""
    family = measured_family(UNIVERSE, np.random.default_rng(1), children=40, mean=3.0, rho=0.1)
    assert family.solve()[0].rounds < 60
    assert _certified(family)


@pytest.mark.parametrize("seed", [1, 2, 3, 6, 7])
def test_a_nations_counts_leave_its_smallest_childs_exact(seed: int) -> None:
    """The first child has a million times as many households and persons as its siblings."""
    rng = np.random.default_rng(seed)
    family = measured_family(UNIVERSE, rng, children=4, mean=8.0, larger=1_000_000)
    assert _certified(family)


@pytest.mark.parametrize("bits", [31, 40, 50])
def test_a_count_at_0_beside_a_large_one_changes_sides_no_more(bits: int) -> None:
    # The second child is 0, and so is its multiplier: which of both is below 0 is rounding of the third child's count.
    rng, cells, none, nothing = np.random.default_rng(6), 6, np.zeros((3, 0)), np.zeros(6)
    rows = FamilyRows(np.zeros((0, cells)), none, none, np.ones((3, cells), np.bool_), 0)
    answers = np.stack([np.arange(cells), np.zeros(cells, np.int64)])
    for number in range(60):
        unit, precision = rng.uniform(0.01, 1, cells), rng.uniform(0.1, 10, 2)
        total = 2.0**bits + number + np.arange(cells)
        known = np.stack([3 * unit, -unit, total - 5 * unit])
        said = [known, np.repeat(known.sum(axis=1)[:, None], cells, axis=1)]
        measured = MeasuredCells(answers, said, np.tile(precision, (3, 1)), Prior(nothing, 1.0, nothing))
        family = LinkedFamily(np.arange(cells), measured, total, rows)
        assert family._solved().rounds <= 6
        assert family.solve()[1].worst < FAMILY_TOLERANCE


def test_a_row_that_the_parent_has_at_its_least_is_at_its_least_in_all_children() -> None:
    """Else the multipliers of such a row may rise for all children at once."""
    family = measured_family(UNIVERSE, np.random.default_rng(1), children=4, mean=0.6)
    rows, total = family.rows, family.total
    assert total is not None
    tight = rows.coefficients @ total == rows.low.sum(axis=0)
    assert (rows.high[:, tight] == rows.low[:, tight]).all()
    assert np.isinf(rows.high[:, ~tight]).all()
    inequalities = ~UNIVERSE.compositions.rows.equal
    assert set(tight[: rows.members][inequalities]) == {False, True}
    assert _certified(family)


def test_a_large_root_meets_its_rows_to_rounding() -> None:
    """A certificate judges what a row lacks by the noise: of a sum of many cells no more than its rounding is left."""
    family = measured_family(LARGE, np.random.default_rng(4), children=1, mean=4000.0)._replace(total=None)
    found, _ = family.solve()
    rows = family.rows.conditions()
    lacks = np.maximum(rows.low - found.x @ rows.rows.T, found.x @ rows.rows.T - rows.high)
    assert lacks.max() < 1e-9


def test_vacant_units_beside_a_hundred_million_households_meet_their_equation() -> None:
    """A cell that is known by little but a row: its equation gave way to those of thousands of other cells."""
    times = 10_000.0
    family = measured_family(LARGE, np.random.default_rng(0), children=4, mean=3000.0)
    assert family.total is not None
    measured, rows = family.measured, family.rows
    said = [own * times for own in measured.said]
    family = family._replace(
        total=family.total * times,
        measured=measured._replace(said=said, prior=measured.prior._replace(centre=measured.prior.centre * times)),
        rows=rows._replace(low=rows.low * times, high=rows.high * times),
    )
    assert family.solve()[1].worst < FAMILY_TOLERANCE / 10


@pytest.mark.parametrize("seed", range(3))
def test_from_inside_it_is_the_same_solution(seed: int) -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(seed), children=5, mean=4.0)
    family, (found, _) = family.centred()
    inside = family._fitted(solve_inside(family))
    assert family.check(inside).worst < FAMILY_TOLERANCE
    assert np.abs(found.x - inside.x).max() < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_from_inside_precisions_may_differ_by_many_orders_of_magnitude(seed: int) -> None:
    """Where households have a thousandth of the budget, many a cell is 0 by little, and rows follow from others."""
    family = measured_family(UNIVERSE, np.random.default_rng(seed), children=12, mean=3.0, rho=0.5)
    of_persons = [text.startswith("persons:") for text in QUERIES]
    precision = family.measured.precision * np.where(of_persons, 1.0, 1e-3)
    measured = family.measured._replace(
        precision=precision, prior=family.prior._replace(precision=family.prior.precision * 1e-3)
    )
    family = family._replace(measured=measured)
    assert family.check(family._fitted(solve_inside(family))).worst < FAMILY_TOLERANCE


def _from_nothing(program: linked_kernel.FamilyArrays) -> tuple[Any, ...]:
    begin = linked_kernel.Begin.from_nothing(program)
    return tuple(linked_kernel.solve_linked(program, begin, np.random.default_rng(0)))


@pytest.mark.parametrize("seed", range(4))
def test_a_prior_that_moves_is_followed_in_few_rounds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solution with another centre is sought from the one before, and is what it is from nothing."""
    family = measured_family(UNIVERSE, np.random.default_rng(seed), children=12, mean=4.0)
    solve, rounds = linked_kernel.solve_linked, []

    def counted(*given: Any) -> Any:
        found = solve(*given)
        rounds.append(found[4])
        return found

    monkeypatch.setattr(linked_kernel, "solve_linked", counted)
    centred, (solved, lacking) = family.centred()
    first, *later = rounds
    assert len(later) >= 1
    assert sum(later) < first
    assert solved.rounds == sum(rounds)
    assert lacking.worst < FAMILY_TOLERANCE
    np.testing.assert_allclose(solved.x, centred._solved().x, atol=1e-8)


def test_a_family_that_goes_round_in_circles_is_solved_from_inside() -> None:
    """Noise far above the counts: more rows are held than there are cells above 0."""
    family = measured_family(UNIVERSE, np.random.default_rng(0), children=20, mean=1.0, rho=1e-3)
    _, _, _, ended, rounds = _from_nothing(family._arrays())
    assert ended == linked_kernel.GIVEN_UP
    solved, lacking = family.solve()
    assert solved.rounds > rounds
    assert lacking.worst < FAMILY_TOLERANCE


def test_a_solution_that_misses_its_certificate_is_solved_again_from_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(0), children=3, mean=4.0)
    solve = linked_kernel.solve_linked

    def inexact(*given: Any) -> Any:
        x, *rest = solve(*given)
        return x + 1e-5 * np.where(x > 0, np.array([[1.0], [-1.0], [0.0]]), 0.0), *rest

    exact = family.solve()[0].x
    monkeypatch.setattr(linked_kernel, "solve_linked", inexact)
    assert family.check(family._solved()).worst > FAMILY_TOLERANCE
    solved, lacking = family.solve()
    assert lacking.worst < FAMILY_TOLERANCE
    np.testing.assert_allclose(solved.x, exact, atol=1e-7)
    failed = ProjectionError("from inside neither")
    monkeypatch.setattr("topdown.projection.linked.interior.solve_inside", Mock(side_effect=failed))
    assert family.solve()[1].worst > FAMILY_TOLERANCE


def test_what_is_no_number_is_no_solution() -> None:
    program = measured_family(UNIVERSE, np.random.default_rng(0), children=3, mean=4.0)._arrays()
    program.g[1, 2] = np.nan
    assert _from_nothing(program)[3] == linked_kernel.GIVEN_UP


def test_a_cell_is_not_covered_by_a_detailed_query_in_which_others_count_with_it() -> None:
    """Householders count in the detailed answers of persons, many kinds of households in one."""
    rng = np.random.default_rng(0)
    counts, _ = populated(UNIVERSE, np.full(3, 30), rng)
    cells = np.unique(counts.cells)
    answers = noisy(UNIVERSE, counts, 3, 0.5, rng).answers
    of_persons = {query: found for query, found in answers.items() if query.name.startswith("persons:")}
    measured = LinkedAnswers(of_persons, 3).on(slice(0, 3), cells, np.ones(len(cells)))
    alone = [np.bincount(own[own >= 0])[own] == 1 for own in measured.answers]
    known = (np.array(alone) & (measured.answers >= 0)).any(axis=0)
    assert known.any()
    assert not known.all()
    np.testing.assert_array_equal(measured.prior.precision > 0, ~known)


def test_what_no_solver_solves_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(0), children=3, mean=4.0)
    nothing = np.zeros_like(family.measured.g())
    given_up = (nothing, nothing[0], nothing, linked_kernel.GIVEN_UP, 600)
    monkeypatch.setattr(linked_kernel, "solve_linked", lambda *_: given_up)
    assert family.solve()[1].worst < FAMILY_TOLERANCE
    failed = ProjectionError("from inside neither")
    monkeypatch.setattr("topdown.projection.linked.interior.solve_inside", Mock(side_effect=failed))
    with pytest.raises(ProjectionError, match="a family's program was not solved in 18000 rounds"):
        family.solve()


def test_the_loops_are_compiled_for_one_memory_layout() -> None:
    # For another one they would be compiled once more, for many seconds: that of a program without some of its cells.
    family = measured_family(UNIVERSE, np.random.default_rng(1), children=4, mean=4.0)
    unit = UNIVERSE.is_unit(family.cells)
    counts = np.zeros((4, len(family.cells)), np.int64)
    assert numba.typeof(family.given(counts, unit)._arrays()) == numba.typeof(family._arrays())
