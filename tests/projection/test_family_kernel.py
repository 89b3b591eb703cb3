"""The compiled active set: every family solved, by conditions that are computed here and by another solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.histograms import RandomFamily, random_family
from topdown.projection.check.cvxpy_programs import solve_family
from topdown.projection.conditions import Rows
from topdown.projection.histograms import family_kernel
from topdown.projection.histograms.families import Family, optimality_of, solve_compiled
from topdown.projection.histograms.precision_matrices import Gathered
from topdown.projection.method import CvxpySolver

ONE = np.zeros((1, 1), np.int32)
"""The pattern of a single cell."""


def solve(family: RandomFamily, rows: Rows | None = None) -> tuple[Any, Any, Any, int, int]:
    n, cells = family.g.shape
    if rows is None:
        rows = Rows(family.allowed, np.zeros((0, cells)), np.zeros((n, 0)), np.zeros((n, 0)))
    table, pattern, g, total, _ = family
    found: tuple[Any, Any, Any, int, int] = family_kernel.solve_family(
        table, pattern, g, total, True, rows.allowed, rows.rows.astype(np.float64), rows.low, rows.high
    )
    return found


def lacking(family: RandomFamily, x: np.ndarray, multipliers: np.ndarray) -> float:
    """The largest violation of the program's conditions, in units of the noise."""
    worst = 0.0
    for c in range(len(x)):
        information = family.table[c][family.pattern]
        unit = np.sqrt(np.diag(information))
        slope = (information @ x[c] - family.g[c] - multipliers) / unit
        own = family.allowed[c]
        assert (x[c][~own] == 0).all()
        at_zero, inside = np.maximum(-slope[own & (x[c] <= 0)], 0), np.abs(slope[own & (x[c] > 0)])
        worst = max(worst, at_zero.max(initial=0), inside.max(initial=0), float((-x[c] * unit).max()))
    return max(worst, float(np.abs(x.sum(axis=0) - family.total).max() / max(1.0, family.total.max()) * 1e3))


def solved(seed: int, count: int) -> list[int]:
    """The rounds that ``count`` random families took, all of them solved."""
    rng = np.random.default_rng(seed)
    rounds = []
    while len(rounds) < count:
        family = random_family(rng)
        if family is not None:
            x, multipliers, _, ended, taken = solve(family)
            assert ended == family_kernel.SOLVED
            assert lacking(family, x, multipliers) < 1e-8
            rounds.append(taken)
    return rounds


def test_random_families_are_solved() -> None:
    assert np.median(solved(1, 1000)) < 5


@pytest.mark.slow
def test_ten_thousand_random_families_are_solved() -> None:
    rounds = np.array(solved(2, 10_000))
    # Some do cycle, and the primal active set ends them.
    assert 1 <= (rounds > 150).sum() < 100
    assert np.quantile(rounds, 0.95) <= 10


def test_a_family_that_cycles_goes_on_by_falling_objectives() -> None:
    # The whole way by the primal active set, where the primal-dual one is given no round.
    rng = np.random.default_rng(3)
    tried = 0
    while tried < 40:
        family = random_family(rng, children=5, cells=12)
        if family is None:
            continue
        tried += 1
        table, pattern, g, total, allowed = family
        none = np.zeros((0, len(total))), np.zeros((len(g), 0), np.int8), np.zeros((len(g), 0))
        x, multipliers, free = np.zeros_like(g), np.zeros(len(total)), allowed.copy()
        information = family_kernel._information(table, pattern)
        ended, _ = family_kernel._primal(
            information, g, total, allowed, *none, none[2], np.zeros(len(g)), none[2], free, x, multipliers
        )
        assert ended == family_kernel.SOLVED
        assert lacking(family, x, multipliers) < 1e-8


@pytest.mark.parametrize("bits", [20, 31, 40, 50])
def test_a_count_at_0_beside_a_large_one_is_solved(bits: int) -> None:
    # The second child is 0, and so is its multiplier: which of both is below 0 is rounding of the third child's count.
    rng = np.random.default_rng(6)
    none = np.zeros((0, 1), np.bool_), np.zeros((3, 0)), np.zeros((3, 0))
    for number in range(500):
        unit, strength = rng.uniform(0.01, 1), rng.uniform(0.1, 10)
        total = np.array([2.0**bits + number])
        known = np.array([[3 * unit], [-unit], [total[0] - 5 * unit]])
        rows = Rows(np.ones((3, 1), np.bool_), *none)
        family = Family(np.zeros(1, np.int64), Gathered(np.full((3, 1), strength), strength * known), ONE, total, rows)
        found = solve_compiled(family)
        slope = strength * (found.x - known), strength * (np.abs(found.x) + np.abs(known))
        assert optimality_of(slope, np.full((3, 1), strength), family, found).worst < 1e-8
        assert found.x.min() >= 0
        assert np.abs(found.x - [[4 * unit], [0], [total[0] - 4 * unit]]).max() < 1e-15 * total[0]


def test_matrices_that_are_made_when_they_are_needed_are_those_that_are_held() -> None:
    rng = np.random.default_rng(7)
    # So many differing siblings that their matrices are more than is held.
    cells = 40
    children = family_kernel._HELD // cells**2 + 1
    table, pattern = rng.normal(size=(children, 5)), rng.integers(0, 5, (cells, cells), dtype=np.int32)
    alike = np.repeat(rng.normal(size=(3, 5)), [4, 1, 2], axis=0)
    for each, room in ((table, 1), (alike, 3)):
        information = family_kernel._information(each, pattern)
        assert len(information[3]) == room
        for child in rng.permutation(len(each))[:20]:
            assert (family_kernel._matrix(information, child) == each[child][pattern]).all()
            assert family_kernel._diagonal(information, child, 3) == each[child][pattern][3, 3]


def test_another_solver_finds_the_same() -> None:
    rng = np.random.default_rng(4)
    tried = 0
    while tried < 15:
        family = random_family(rng, children=5, cells=12)
        if family is None or np.ptp(np.log10(family.table[family.table > 0])) > 2:
            continue
        tried += 1
        table, pattern, g, total, allowed = family
        n, cells = g.shape
        rows = Rows(allowed, np.zeros((0, cells), np.bool_), np.zeros((n, 0)), np.zeros((n, 0)))
        program = Family(np.arange(cells), Gathered(table, g), pattern, total, rows)
        other = solve_family(program, CvxpySolver("CLARABEL", {}))
        unit = np.sqrt(table[:, np.diagonal(pattern)])
        assert np.abs((solve(family)[0] - other.x) * unit).max() < 1e-5


def test_rows_are_held_between_their_limits() -> None:
    rng = np.random.default_rng(5)
    tried = held = 0
    while tried < 60:
        family = random_family(rng, children=6, cells=12)
        if family is None or family.g.shape[0] < 2 or np.ptp(np.log10(family.table[family.table > 0])) > 3:
            continue
        tried += 1
        cells = len(family.total)
        # Every child's total, and that of its first half, in a range about its share; the sums leave room for both.
        rows = np.stack([np.ones(cells, np.bool_), np.arange(cells) < (cells + 1) // 2])
        share = np.where(family.allowed, family.total / family.allowed.sum(axis=0), 0.0) @ rows.T
        low, high = share * rng.uniform(0.7, 1, share.shape), share * rng.uniform(1, 1.3, share.shape)
        low[0] = high[0] = share[0]
        x, multipliers, others, ended, _ = solve(family, Rows(family.allowed, rows, low, high))
        assert ended == family_kernel.SOLVED
        answers = x @ rows.T
        size = 1e-8 * (1 + np.abs(answers))
        assert ((answers >= low - size) & (answers <= high + size)).all()
        assert lacking(family._replace(g=family.g + others @ rows), x, multipliers) < 1e-6
        assert (np.where(others > 0, answers - low, 0) * others <= 1e-6 * (1 + others**2)).all()
        assert (np.where(others < 0, answers - high, 0) * others <= 1e-6 * (1 + others**2)).all()
        held += int((np.abs(others) > 1e-6).sum())
    assert held > 60


def test_rows_that_contradict_the_sums_are_given_up() -> None:
    family = random_family(np.random.default_rng(6))
    assert family is not None
    n, cells = family.g.shape
    rows = np.ones((1, cells), np.bool_)
    most = np.full((n, 1), family.total.sum() / (2 * n))
    ended = solve(family, Rows(family.allowed, rows, np.full((n, 1), -np.inf), most))[3]
    assert ended == family_kernel.GIVEN_UP


def test_loops_are_compiled_for_one_type_and_memory_layout() -> None:
    """Each other one takes many seconds of every user's first run."""
    family = random_family(np.random.default_rng(6))
    assert family is not None
    n, cells = family.g.shape
    least, signatures = np.zeros((n, 2)), set()
    for kind in (np.bool_, np.float64):
        rows = Rows(family.allowed, np.ones((2, cells), kind), least, least + np.inf)
        known, others = Gathered(family.table, family.g), Rows(*map(np.asfortranarray, rows))
        for program in (
            Family(np.arange(cells), known, family.pattern, family.total, rows),
            Family(np.arange(cells), known._replace(g=np.asfortranarray(family.g)), family.pattern, None, others),
        ):
            before = set(family_kernel.solve_family.signatures)
            solve_compiled(program)
            signatures |= set(family_kernel.solve_family.signatures) - before
    assert len(signatures) <= 1  # none where another test has had it compiled


def test_a_large_matrix_is_inverted_by_halves() -> None:
    rng = np.random.default_rng(4)
    size = 2 * family_kernel._LARGE + 101
    roots = rng.normal(size=(size, size + 50)) * 10.0 ** rng.uniform(-3, 3, size)[:, None]
    matrix = roots @ roots.T
    unit = np.sqrt(np.diag(matrix))
    found = matrix.copy()
    assert family_kernel.invert(found)
    assert np.abs(found @ matrix * (unit[:, None] / unit) - np.eye(size)).max() < 1e-8
    assert (np.abs(found - found.T) * np.outer(unit, unit)).max() < 1e-10
    for gone in (3, size - 3):
        flat = matrix.copy()
        flat[gone, :] = flat[:, gone] = 0.0
        assert not family_kernel.invert(flat)


def test_a_large_matrix_is_factored_in_panels() -> None:
    rng = np.random.default_rng(8)
    size, follows = 2 * family_kernel._LARGE + 37, family_kernel._LARGE + 5
    roots = rng.normal(size=(size, size + 50)) * 10.0 ** rng.uniform(-3, 3, size)[:, None]
    # One row of the second panel follows from one of the first and one of its own.
    roots[follows] = roots[3] - 2 * roots[family_kernel._LARGE]
    matrix = roots @ roots.T
    found, kept = matrix.copy(), np.zeros(size, np.bool_)
    family_kernel.factor(found, kept)
    assert np.flatnonzero(~kept).tolist() == [follows]
    lower = np.tril(found) * kept
    unit = np.sqrt(np.diag(matrix))
    assert np.abs((lower @ lower.T - matrix) / np.outer(unit, unit)).max() < 1e-11
    aim = matrix @ rng.normal(size=size)
    solution = aim.copy()
    family_kernel.substitute(found, kept, solution)
    assert np.abs((matrix @ solution - aim) / unit).max() < 1e-6 * np.abs(aim / unit).max()


def test_rows_of_matrices_that_are_not_held_are_made_where_they_are_wanted() -> None:
    rng = np.random.default_rng(9)
    cells = 40
    children = family_kernel._HELD // cells**2 + 1
    table, pattern = rng.normal(size=(children, 5)), rng.integers(0, 5, (cells, cells), dtype=np.int32)
    information = family_kernel._information(table, pattern)
    for child in rng.permutation(children)[:20]:
        wanted = rng.random(cells) < 0.3
        rows = family_kernel._some_rows(information, child, wanted)
        assert (rows[wanted] == table[child][pattern][wanted]).all()
        if child % 2:  # the whole matrix is not taken for what is there of it
            assert (family_kernel._matrix(information, child) == table[child][pattern]).all()


@pytest.mark.parametrize(("removed", "added"), [(0, 3), (4, 0), (5, 4), (1, 1)])
def test_an_inverse_is_updated_where_few_cells_change(removed: int, added: int) -> None:
    rng = np.random.default_rng(removed + 10 * added)
    root = rng.normal(size=(120, 150))
    whole = root @ root.T + np.eye(120)
    order = rng.permutation(120)
    old, new = np.sort(order[:90]), np.sort(order[removed : 90 + added])
    own, free = np.ascontiguousarray(whole[np.ix_(new, new)]), np.isin(np.arange(120), new)
    found, is_updated = family_kernel._updated(own, new, free, old, np.linalg.inv(whole[np.ix_(old, old)]))
    assert is_updated
    np.testing.assert_allclose(found, np.linalg.inv(own), rtol=1e-9, atol=1e-12)


def test_an_inverse_is_made_afresh_where_many_cells_change() -> None:
    whole, free = np.eye(120), np.arange(120) >= 20
    index, old = np.flatnonzero(free), np.arange(100)
    assert not family_kernel._updated(np.eye(100), index, free, old, whole[:100, :100].copy())[1]
    before = old, np.eye(100), np.full((100, 100), 7.0), 0
    side = np.zeros(0, np.bool_)
    _, _, inverse, age, definite = family_kernel._response(whole, free, np.zeros((0, 120)), side, 1.0, before)
    assert definite
    assert age == 0
    np.testing.assert_array_equal(inverse, np.eye(100))


def test_an_inverse_is_updated_so_many_times_at_most() -> None:
    free = np.arange(120) >= 1
    before = np.arange(120), np.eye(120), np.full((120, 120), 7.0), family_kernel._MOST_UPDATES
    side = np.zeros(0, np.bool_)
    _, _, inverse, age, _ = family_kernel._response(np.eye(120), free, np.zeros((0, 120)), side, 1.0, before)
    assert age == 0
    np.testing.assert_array_equal(inverse, np.eye(119))
