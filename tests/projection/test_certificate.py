"""Certificates: at float rounding for what is optimal, and a refusal of everything else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.trees import Case, cases, measurements, trees, wide_trees
from topdown.geography import tree as tree_module
from topdown.geography.tree import FloatArray, Tree
from topdown.projection import project
from topdown.projection.check.certificate import (
    SOLVER_TOLERANCE,
    TOLERANCE,
    Certificate,
    Residuals,
    certify,
    off_sums,
    worst_of,
)
from topdown.projection.check.optimality import FINE, family_optimality, tree_optimality
from topdown.projection.invariants import lower_bounds, settle
from topdown.projection.method import METHODS as projection_methods
from topdown.projection.project import certified
from topdown.projection.solver_inputs import stated

METHODS = [("top-down", True), ("top-down", False), ("gls", False), ("gls-top-down", True), ("joint", True)]
FAMILY = Tree.from_family_sizes([[2]])


def tree_residual(x: FloatArray, y: FloatArray, v: FloatArray, tree: Tree, *, nonnegative: bool = True) -> float:
    x = np.asarray(x, float)
    return max(float(one.gap.max()) for one in tree_optimality(x, y, v, tree, nonnegative=nonnegative))


def family_residual(x: FloatArray, y: FloatArray, v: FloatArray, tree: Tree, lower: FloatArray | None = None) -> float:
    x = np.asarray(x, float)
    return max(float(one.gap.max()) for one in family_optimality(x, y, v, tree, lower, nonnegative=True))


@pytest.mark.parametrize(("method", "nonnegative"), METHODS)
@examples(80)
@given(case=cases(st.one_of(trees(), wide_trees())))
def test_the_tree_engine_s_certificate_holds_with_room(method: str, nonnegative: bool, case: Case) -> None:
    """Nine orders of magnitude between variances cost digits; a factor of ten below the tolerance is left."""
    certificate = td.project(case.measurements(), method, nonnegative=nonnegative).certificate
    assert certificate.holds(1e-7)


@pytest.mark.parametrize(("method", "nonnegative"), METHODS)
@examples(80)
@given(case=cases(st.one_of(trees(), wide_trees()), wild=False))
def test_the_tree_engine_is_optimal_to_rounding(method: str, nonnegative: bool, case: Case) -> None:
    certificate = td.project(case.measurements(), method, nonnegative=nonnegative).certificate
    largest = max(case.noise, float(np.nanmax(np.abs(case.values))))
    assert certificate.kkt <= 1e-9 * case.noise + 1e-11 * largest
    assert certificate.consistency <= 1e-12 * largest
    assert certificate.most_negative == 0 or not nonnegative
    assert certificate.holds()


@pytest.mark.parametrize("method", ["gls", "joint"])
@examples(80)
@given(case=cases(trees(max_leaves=20), max_cells=1, exact=False, unmeasured=False), seed=st.integers(0, 2**32 - 1))
def test_a_consistent_change_is_seen(method: str, case: Case, seed: int) -> None:
    """Any other consistent, non-negative table has a residual of the size of the change at some node."""
    tree, nonnegative = case.tree, method == "joint"
    x = td.project(case.measurements(), method).values.T
    rng = np.random.default_rng(seed)
    change = rng.normal(size=(1, tree.n_leaves)) * np.sqrt(case.variance.T[:, tree.leaves]).min() / 10
    leaves = x[:, tree.leaves] + change
    wrong = tree.aggregate(np.maximum(leaves, 0.0) if nonnegative else leaves)
    moved = np.abs(wrong - x).max()
    assume(moved > 1e-3 * case.noise)
    # A residual is a node's own move with the others held; the whole's is at most a multiple of the sum of these.
    residual = tree_optimality(wrong, case.values.T, case.variance.T, tree, nonnegative=nonnegative)
    assert sum(float(one.gap.sum()) for one in residual) > 1e-3 * moved / tree.n_levels


def test_an_exchange_between_two_vague_leaves_below_a_precise_parent_is_seen() -> None:
    y, v = np.array([[100.0, 40, 60]]), np.array([1e-3, 1e6, 1e6])
    assert tree_residual([[100, 40, 60]], y, v, FAMILY) < 1e-12
    assert tree_residual([[100, 45, 55]], y, v, FAMILY) > 4
    assert tree_residual([[100, 45, 55]], y, v, FAMILY, nonnegative=False) > 4


def test_a_starved_unmeasured_leaf_is_seen() -> None:
    y, v = np.array([[100.0, 10, 0]]), np.array([0.0, 4, np.inf])
    assert tree_residual([[100, 10, 90]], y, v, FAMILY) == 0
    for wrong in ([[100, 100, 0]], [[100, 50, 50]], [[100, 0, 100]]):
        assert tree_residual(wrong, y, v, FAMILY) > 1
        assert family_residual(wrong, y, v, FAMILY) > 1
    assert family_residual([[100.0, 10, 90]], y, v, FAMILY) == 0


def test_an_unmeasured_leaf_that_takes_what_measured_ones_lack_is_seen() -> None:
    y, v = np.array([[10.0, 8, 6, 0]]), np.array([0.0, 1, 1, np.inf])
    tree = Tree.from_family_sizes([[3]])
    for x, optimal in (([[10.0, 6, 4, 0]], True), ([[10.0, 5, 3, 2]], False)):
        for residual in (
            tree_residual(x, y, v, tree),
            family_residual(x, y, v, tree),
        ):
            assert bool(residual < 1e-12) is optimal


def test_a_state_of_zero_that_should_not_be_is_seen() -> None:
    # The state's own leaves are at 0, so its multiplier has to come from above.
    tree = Tree.from_family_sizes([[2], [2, 1]])
    y, v = np.array([[100.0, 20, 80, 8, 12, 80]]), np.ones(6)
    assert tree_residual(y, y, v, tree) == 0
    assert tree_residual([[100, 0, 100, 0, 0, 100]], y, v, tree) > 1
    assert tree_residual([[80, 0, 80, 0, 0, 80]], y, v, tree) > 1


def test_a_leaf_held_at_zero_beside_an_exact_one_is_seen() -> None:
    tree = Tree.from_family_sizes([[2], [2, 1]])
    y, v = np.array([[20.0, 9, 11, 4, 5, 11]]), np.array([0.0, 1, 1, 0, 1, 1])
    assert tree_residual([[20, 9, 11, 4, 5, 11]], y, v, tree) == 0
    assert tree_residual([[20, 4, 16, 4, 0, 16]], y, v, tree) > 1


@examples(60)
@given(cases(trees(max_leaves=20), exact=False, unmeasured=False, wild=False))
def test_clipping_is_no_projection(case: Case) -> None:
    """gls with the negative leaves set to 0 and added up: consistent, non-negative, and not optimal."""
    tree = case.tree
    plain = td.project(case.measurements(), "gls").values.T
    assume(plain[:, tree.leaves].min() < -0.1 * case.noise)
    assume(plain[:, tree.leaves].max() > 0.1 * case.noise)
    clipped = tree.aggregate(np.maximum(plain[:, tree.leaves], 0.0))
    best = td.project(case.measurements(), "joint").values.T
    assume(np.abs(clipped - best).max() > 1e-2 * case.noise)
    residual = tree_optimality(clipped, case.values.T, case.variance.T, tree, nonnegative=True)
    certificate = certify(residual, case.variance.T, nonnegative=True)
    assert certificate.consistency <= 1e-9 * case.noise
    assert not certificate.holds()


@examples(40)
@given(cases(trees(max_leaves=20), exact=False, unmeasured=False, max_cells=1))
def test_another_method_s_answer_is_refused(case: Case) -> None:
    values, variance, tree = case.values.T, case.variance.T, case.tree
    joint = td.project(case.measurements(), "joint").values.T
    families = td.project(case.measurements(), "top-down").values.T
    apart = np.abs(joint - families).max() > 1e-2 * case.noise
    assume(apart)
    for residual in (
        tree_optimality(families, values, variance, tree, nonnegative=True),
        family_optimality(joint, values, variance, tree, None, nonnegative=True),
    ):
        assert not certify(residual, variance, nonnegative=True).holds()


def test_wrong_weights_are_seen() -> None:
    rng = np.random.default_rng(5)
    tree = Tree.from_family_sizes([[4], [5, 1, 3, 6]])
    variance = rng.uniform(1, 100, tree.n_nodes)
    values = tree.aggregate(rng.poisson(5.0, (1, tree.n_leaves)).astype(float))
    values += rng.laplace(size=values.shape) * 10
    measured = measurements(tree, values[0], variance)
    for method, residual_of in (
        ("joint", lambda x: tree_optimality(x, values, variance, tree, nonnegative=True)),
        ("top-down", lambda x: family_optimality(x, values, variance, tree, None, nonnegative=True)),
    ):
        right = td.project(measured, method).values.T
        wrong = td.project(measured, method, weights="uniform").values.T
        assert certify(residual_of(right), variance, nonnegative=True).holds()
        assert not certify(residual_of(wrong), variance, nonnegative=True).holds()


def none_missing(x: FloatArray, *, nonnegative: bool) -> Residuals:
    """As if every equation of the ``FAMILY`` were met."""
    gap, rounding, deviation = (np.zeros_like(x) for _ in range(3))
    off = off_sums(x, next(FAMILY.families_down()))
    sums = off, np.zeros_like(off), 0
    return Residuals.of(x, 0, (gap, rounding, deviation), nonnegative=nonnegative, sums=sums)


def test_inconsistency_and_negative_values_are_measured() -> None:
    x, v = np.array([[10.0, 14, -3]]), np.full(3, 4.0)
    certificate = certify([none_missing(x, nonnegative=True)], v, nonnegative=True)
    assert certificate == Certificate(
        consistency=1.0, most_negative=-3.0, kkt=3.0, scale=14.0, noise=2.0, deviations=np.inf, worst_node=2
    )
    assert certificate.worst == 3.0
    free = certify([none_missing(x, nonnegative=False)], v, nonnegative=False)
    assert (free.most_negative, free.kkt) == (0.0, 0.0)


@pytest.mark.parametrize(("deviation", "gap", "holds"), [(0.1, 9e-12, True), (0.1, 2e-11, False), (50.0, 4e-9, True)])
def test_residuals_are_judged_in_units_of_the_node_s_own_noise(deviation: float, gap: float, holds: bool) -> None:
    """However large the noise elsewhere is, and beyond what rounding accounts for."""
    x, v = np.array([[24.0, 14, 10]]), np.array([1e10, deviation**2, 1e10])
    for rounding in (0.0, 1e-3):
        lacking = none_missing(x, nonnegative=True)
        lacking.gap[0, 1], lacking.rounding[0, 1] = rounding + gap, rounding
        lacking.deviation[...] = np.sqrt(v)
        certificate = certify([lacking], v, nonnegative=True)
        assert certificate.deviations == pytest.approx(gap / deviation, rel=1e-4)
        assert certificate.holds() is holds
        assert certificate.noise == 1e5


def test_what_is_not_a_number_does_not_hold() -> None:
    x, v = np.array([[24.0, np.nan, 10]]), np.full(3, 4.0)
    assert not certify(tree_optimality(x, x, v, FAMILY, nonnegative=True), v, nonnegative=True).holds()


@examples(80)
@given(cases(wide_trees(), max_cells=1, unmeasured_leaves=False))
def test_an_exchange_between_siblings_is_seen(case: Case) -> None:
    """Top-down, beside exact values and lower bounds: a tenth of a deviation moved from one leaf to its sibling."""
    values, variance = settle(np.nan_to_num(case.values.T), case.variance.T, case.tree, nonnegative=True)
    lower = lower_bounds(values, variance, case.tree)
    x = td.project(case.measurements()).values.T.copy()
    deviation = np.sqrt(variance[0])
    movable = np.flatnonzero(
        (deviation > 0) & (x[0] > deviation) & (np.arange(case.tree.n_nodes) >= case.tree.leaves.start)
    )
    same = np.diff(case.tree.parent[movable]) == 0
    assume(same.any())
    first = int(np.flatnonzero(same)[0])
    a, b = movable[first], movable[first + 1]
    step = 0.1 * min(deviation[a], deviation[b])
    x[0, a] -= step
    x[0, b] += step
    assert family_residual(x, values, variance, case.tree, lower) > 0.3 * step


@pytest.mark.parametrize("method", ["top-down", "gls", "gls-top-down", "joint"])
@examples(60)
@given(case=cases(wide_trees(), max_cells=1), off=st.sampled_from([0.0, 0.5]), place=st.integers(0, 10**6))
def test_what_is_judged_piece_by_piece_is_judged_as_a_whole(method: str, case: Case, off: float, place: int) -> None:
    """With families in pieces of a few children, exact values, and a value that is off somewhere."""
    chosen = projection_methods[method].for_cells()
    with pytest.MonkeyPatch.context() as patched:
        problem = stated(case.measurements(), "variance", nonnegative=projection_methods[method].nonnegative)
        x = chosen.solve(problem).copy()
        x[0, place % case.tree.n_nodes] += off * case.noise
        whole = list(chosen.residuals(problem, x, FINE))
        at_once = certify(whole, problem.variance, nonnegative=problem.nonnegative)
        patched.setattr(tree_module, "_CHILDREN_AT_ONCE", 3)
        pieces = chosen.residuals(problem, x, FINE)
        found = certify(pieces, problem.variance, nonnegative=problem.nonnegative)
    assert found.holds() == at_once.holds()
    assert found.deviations == pytest.approx(at_once.deviations, rel=1e-9, abs=1e-12)
    assert found.kkt == pytest.approx(at_once.kkt, rel=1e-9, abs=1e-12)
    assert (found.most_negative, found.scale) == (at_once.most_negative, at_once.scale)
    if 0 < found.deviations < np.inf:
        at = found.worst_node
        one = next(one for one in whole if one.first <= at < one.first + one.gap.shape[-1])
        gap, rounding, deviation = (column[0, at - one.first] for column in one[:3])
        assert (gap - rounding) / deviation == pytest.approx(found.deviations, rel=1e-6)


@pytest.mark.parametrize("method", ["top-down", "gls", "gls-top-down", "joint"])
@pytest.mark.parametrize("off", [0.0, 0.5])
@pytest.mark.parametrize("solver", [False, True])
def test_cells_together_have_the_certificate_of_the_worst_alone(
    method: str, off: float, solver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one of them is met to a solver's tolerance alone."""
    rng = np.random.default_rng(11)
    tree = Tree.from_family_sizes([[4], [5, 1, 3, 6]])
    values = tree.aggregate(rng.poisson(5.0, (7, tree.n_leaves)).astype(float)) + 5 * rng.laplace(size=(7, 20))
    variance = np.where(np.arange(20) == 2, 0.0, 50.0)
    values[:, 2] = np.rint(np.abs(values[:, 2]))
    own = projection_methods[method].for_cells()
    problem = stated(measurements(tree, values.T, variance), "variance", nonnegative=method != "gls")
    x = own.solve(problem)
    x[3, 10] += off + 1e-6 * solver
    tolerance = SOLVER_TOLERANCE if solver else TOLERANCE
    together = certified(problem, x, own, tolerance)
    monkeypatch.setattr(project, "_VALUES_AT_ONCE", 1)
    alone = certified(problem, x, own, tolerance)
    each = [certified(problem.of_cells(slice(k, k + 1)), x[k : k + 1], own, tolerance) for k in range(7)]
    assert together == alone == worst_of(each)
    assert together.holds() is (off == 0.0 and not solver)


def test_pieces_that_follow_upon_each_other_are_one() -> None:
    x = np.array([[24.0, 14, -1, 3, 11, 2, 1]])
    tree = Tree.from_family_sizes([[2], [2, 2]])
    v = np.full(7, 4.0)
    pieces = list(family_optimality(x, x + 1.0, v, tree, None, nonnegative=True))
    assert certify([Residuals.together(pieces)], v, nonnegative=True) == certify(pieces, v, nonnegative=True)
