"""Families that are hard in float64: ill-conditioned information, many cells beside few, noise far above the counts."""

from __future__ import annotations

import numpy as np
import pytest

from topdown.geography.tree import FloatArray, IntArray
from topdown.projection.conditions import Rows
from topdown.projection.histograms.families import Family, Solved, optimality_of, solve_compiled
from topdown.projection.histograms.family_kernel import invert
from topdown.projection.histograms.precision_matrices import Gathered

CELLS = 400
SAME_CLASS: IntArray = np.where(
    np.eye(CELLS, dtype=bool), 0, np.where(np.arange(CELLS)[:, None] % 2 == np.arange(CELLS) % 2, 1, 2)
)
"""Which of three numbers is the entry of two cells: the diagonal's, that of a class of every second cell, and 0."""


def root(precision: float, prior: float, g: FloatArray, held: FloatArray) -> Family:
    """A root of 400 cells: the sums over every second cell measured with a ``precision``, beside a weak ``prior``; each
    quarter of the cells has exactly the number ``held``."""
    rows = np.kron(np.eye(4, dtype=bool), np.ones(CELLS // 4, bool))
    conditions = Rows(np.ones((1, CELLS), np.bool_), rows, held[None], held[None])
    known = Gathered(np.array([[precision + prior, precision, 0.0]]), g[None])
    return Family(np.arange(CELLS), known, SAME_CLASS, None, conditions)


def missed(family: Family, solved: Solved) -> float:
    """By how much the solution misses a row, or its equation where it is not 0, in standard deviations."""
    x, matrix = solved.x, [entries[family.pattern] for entries in family.known.table]
    deviation = 1 / np.sqrt([np.diag(one) for one in matrix])
    slope = np.stack([one @ mine for one, mine in zip(matrix, x, strict=True)]) - family.known.g
    slope -= solved.sums + solved.rows @ family.conditions.rows
    answers = x @ family.conditions.rows.T
    short = np.maximum(family.conditions.low - answers, answers - family.conditions.high)
    assert ((slope * deviation)[x == 0] > -1e-8).all()
    return max(float(np.abs(slope * deviation)[x > 0].max()), float((short / deviation.min()).max()))


def test_an_ill_conditioned_matrix_is_inverted_where_halves_are_lost_in_rounding() -> None:
    parts = np.kron(np.eye(4), np.ones((CELLS // 4, CELLS // 4)))
    matrix = np.where(SAME_CLASS < 2, 3e-4, 0.0) + 3e-2 * parts + 3e-10 * np.eye(CELLS)
    inverse, vector = matrix.copy(), np.linspace(-1, 1, CELLS)
    assert invert(inverse)
    np.testing.assert_allclose(matrix @ (inverse @ vector), vector, atol=1e-2)
    assert not invert(matrix - 1e-3 * np.eye(CELLS))


def test_a_root_of_which_little_was_measured_is_solved() -> None:
    """Only the prior tells the cells of a class apart, and the exact numbers contradict the measured answers."""
    g = np.where(np.arange(CELLS) % 2, 4.25, 5.7)
    family = root(3e-4, 3e-10, g, np.array([28_230.0, 171.0, 821.0, 3.0]))
    solved = solve_compiled(family)
    assert missed(family, solved) < 1e-8
    assert solved.rounds < 50


def test_exact_answers_of_many_cells_are_met_as_well_as_those_of_few() -> None:
    """A large cell among hundreds of small ones does not excuse what the others' sums lack."""
    g = 3.0 * np.random.default_rng(1).normal(size=CELLS)
    g[0] += 3e6
    family = root(1e-2, 3.0, g, np.array([900_000.0, 171.0, 821.0, 3.0]))
    assert missed(family, solve_compiled(family)) < 1e-8


def test_exact_counts_far_below_the_noise_are_met() -> None:
    """Three children of one cell, the second without records: their counts follow from the exact ones alone."""
    conditions = Rows(
        np.array([[True], [False], [True]]),
        np.ones((1, 1), np.bool_),
        np.array([[2.0], [-np.inf], [1.0]]),
        np.array([[2.0], [np.inf], [1.0]]),
    )
    known = Gathered(np.full((3, 1), 5.0), np.array([[124_000.0], [57_000.0], [23_000.0]]))
    family = Family(np.arange(1), known, np.zeros((1, 1), np.int64), np.array([3.0]), conditions)
    np.testing.assert_allclose(solve_compiled(family).x, [[2.0], [0.0], [1.0]], atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_exact_answers_of_a_nation_leave_no_rounding_in_the_multipliers(scale: float) -> None:
    """What rows lack is known to the rounding of their answers; times a weight it is more than a certificate allows."""
    g = np.random.default_rng(2).normal(size=CELLS) + np.where(np.arange(CELLS) % 2, 40.0, 57.0) * scale
    family = root(0.5, 1e-6, g, scale * np.array([28_230.0, 171.0, 821.0, 3.0]))
    solved = solve_compiled(family)
    matrix = family.known.table[0][family.pattern]
    slope = solved.x @ matrix - g, np.abs(solved.x) @ np.abs(matrix) + np.abs(g)
    residuals = optimality_of(slope, np.diagonal(matrix)[None], family, solved)
    assert residuals.worst < 1e-9


ONE_TOTAL: IntArray = np.where(np.eye(4, dtype=bool), 0, 1)
"""Four cells, measured themselves and by their total."""


@pytest.mark.parametrize("bits", [24, 28, 31, 40, 50])
def test_one_large_cell_leaves_the_cells_beside_it_exact(bits: int) -> None:
    """The large cell's rounding is, through the total, that of its child's other cells, and through their multipliers
    that of the siblings; signs of values that are 0 turned with it without end."""
    rng = np.random.default_rng(bits)
    every = Rows(np.ones((3, 4), np.bool_), np.zeros((0, 4), np.bool_), np.zeros((3, 0)), np.zeros((3, 0)))
    for _ in range(3000):
        total = rng.integers(1, 4, 4).astype(np.float64)
        total[1] = 2.0**bits
        own, of_total = np.rint(rng.laplace(0, 1, (3, 4))), np.rint(rng.laplace(0, 1, 3))
        own[2, 1] += total[1]
        of_total[2] += total[1]
        table = np.tile([1.3, 0.3], (3, 1))
        family = Family(np.arange(4), Gathered(table, own + 0.3 * of_total[:, None]), ONE_TOTAL, total, every)
        solved = solve_compiled(family)
        x, of_x = solved.x, solved.x.sum(axis=1)
        slope = x - own + 0.3 * (of_x - of_total)[:, None]
        size = x + np.abs(own) + 0.3 * (of_x + np.abs(of_total))[:, None]
        assert optimality_of((slope, size), np.full((3, 4), 1.3), family, solved).worst < 1e-8
