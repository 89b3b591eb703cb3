"""project(): names, arguments, equivariances, edge cases, odd shapes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.methods import PROGRAMS
from support.places import REPOSITORY
from support.trees import Case, cases, exact_least_squares, measurements, trees, wide_trees
from topdown.config import Projection
from topdown.errors import ConfigError, DataError, ProjectionError
from topdown.geography import tree
from topdown.geography.tree import FloatArray, Tree
from topdown.projection.method import METHODS, nonnegative_methods

TREE = Tree.from_family_sizes([[2], [3, 1]])
NOISY = [12.0, 7, 3, 5, -4, 2, 4]


def values(case: Case, method: str, nonnegative: bool, **options: str) -> FloatArray:
    return td.project(case.measurements(), method, nonnegative=nonnegative, **options).values  # type: ignore[arg-type]


def test_defaults() -> None:
    estimate = td.project(measurements(TREE, NOISY, 4.0))
    assert (estimate.method, estimate.nonnegative, estimate.engine) == ("top-down", True, "tree")
    assert estimate.variance is None
    assert td.project(measurements(TREE, NOISY, 4.0), "gls").nonnegative is False


def test_top_down_by_hand() -> None:
    # Root 12; states (7, 3) + 1 each = (8, 4); counties (5, -4, 2) on 8: the second at 0, (5, 2) + 1/2 each.
    x = td.project(measurements(TREE, NOISY, 4.0)).values[:, 0]
    np.testing.assert_allclose(x, [12, 8, 4, 5.5, 0, 2.5, 4])
    x = td.project(measurements(TREE, NOISY, 4.0), "top-down", nonnegative=False).values[:, 0]
    np.testing.assert_allclose(x, [12, 8, 4, 5 + 5 / 3, -4 + 5 / 3, 2 + 5 / 3, 4])


@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
@examples(40)
@given(case=cases(max_cells=5))
def test_columns_do_not_depend_on_each_other(method: str, nonnegative: bool, case: Case) -> None:
    together = values(case, method, nonnegative)
    for cell in range(together.shape[1]):
        column = slice(cell, cell + 1)
        variance = case.variance[:, column]
        if np.isinf(variance).all():
            continue
        alone = measurements(case.tree, case.values[:, column], variance)
        # Equal up to the order in which numpy adds.
        np.testing.assert_allclose(
            td.project(alone, method, nonnegative=nonnegative).values[:, 0],
            together[:, cell],
            atol=1e-10 * case.noise,
            rtol=1e-12,
        )


@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
@examples(30)
@given(case=cases(st.one_of(trees(), wide_trees())), seed=st.integers(0, 2**32 - 1))
def test_order_of_siblings_does_not_matter(method: str, nonnegative: bool, case: Case, seed: int) -> None:
    order = shuffled(case.tree, np.random.default_rng(seed))
    sizes = np.diff(case.tree.child_offsets)
    levels = [order[case.tree.level(k)] for k in range(case.tree.n_levels - 1)]
    tree = Tree.from_family_sizes([sizes[nodes] for nodes in levels])
    moved = measurements(tree, case.values[order], case.variance[order])
    np.testing.assert_allclose(
        td.project(moved, method, nonnegative=nonnegative).values,
        values(case, method, nonnegative)[order],
        atol=1e-8 * case.noise,
        rtol=1e-12,
    )


def shuffled(tree: Tree, rng: np.random.Generator) -> np.ndarray:
    """Node numbers in another order of siblings."""
    order, level = [0], [0]
    for _ in range(tree.n_levels - 1):
        level = [
            int(child)
            for node in level
            for child in rng.permutation(np.arange(tree.children(node).start, tree.children(node).stop))
        ]
        order += level
    return np.array(order)


@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
@examples(30)
@given(case=cases(unmeasured=False, exact=False, wild=False), factor=st.sampled_from([0.125, 3.0, 1e4]))
def test_scaling(method: str, nonnegative: bool, case: Case, factor: float) -> None:
    """Counts and deviations in other units give the estimate in these units; all variances alike give the same."""
    x = values(case, method, nonnegative)
    scaled = measurements(case.tree, case.values * factor, case.variance * factor**2)
    again = td.project(scaled, method, nonnegative=nonnegative).values
    np.testing.assert_allclose(again, x * factor, atol=1e-9 * case.noise * factor)
    vaguer = measurements(case.tree, case.values, case.variance * factor)
    np.testing.assert_allclose(td.project(vaguer, method, nonnegative=nonnegative).values, x, atol=1e-9 * case.noise)


@pytest.mark.parametrize("method", ["top-down", "gls", "joint"])
@examples(40)
@given(case=cases(unmeasured=False, wild=False))
def test_reflection_in_the_truth(method: str, case: Case) -> None:
    """Lemma 1 of Zhu, Van Hentenryck, Fioretto: P(2 x - y) = 2 x - P(y), so errors cancel and P is unbiased."""
    mirrored = measurements(case.tree, 2 * case.truth - case.values, case.variance)
    x = td.project(mirrored, method, nonnegative=False).values
    np.testing.assert_allclose(x, 2 * case.truth - values(case, method, False), atol=1e-8 * case.noise)


@examples(30)
@given(case=cases(wild=False))
def test_consistent_nonnegative_measurements_stay(case: Case) -> None:
    true = measurements(case.tree, case.truth, np.where(np.isinf(case.variance), 1.0, case.variance))
    for method, nonnegative in PROGRAMS:
        x = td.project(true, method, nonnegative=nonnegative).values
        np.testing.assert_allclose(x, case.truth, atol=1e-9 * case.noise)


def test_without_nonnegativity_the_whole_tree_methods_are_one() -> None:
    measured = measurements(TREE, NOISY, [9.0, 4, 4, 1, 2, 3, 4])
    gls = td.project(measured, "gls")
    for method in ("joint", "gls-top-down"):
        other = td.project(measured, method, nonnegative=False)
        np.testing.assert_array_equal(other.values, gls.values)
        np.testing.assert_array_equal(other.variance, gls.variance)


def test_uniform_weights_weigh_alike() -> None:
    variance = [9.0, 4, np.inf, 0, 2, 3, 4]
    noisy = [*NOISY[:3], 5, *NOISY[4:]]
    uniform = td.project(measurements(TREE, noisy, variance), "joint", weights="uniform")
    ones = td.project(measurements(TREE, noisy, [1.0, 1, np.inf, 0, 1, 1, 1]), "joint")
    np.testing.assert_array_equal(uniform.values, ones.values)
    assert uniform.weights == "uniform"
    assert td.project(measurements(TREE, noisy, variance), "gls", weights="uniform").variance is None
    known = td.project(measurements(TREE, noisy, 4.0), "gls", weights="uniform").variance
    np.testing.assert_array_equal(known, td.project(measurements(TREE, noisy, 4.0), "gls").variance)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "gsl"}, "unknown method 'gsl'.*did you mean 'gls'"),
        ({"method": "gls", "nonnegative": True}, "'gls-top-down' or 'joint'"),
        ({"engine": "cvxpyy"}, "unknown engine 'cvxpyy'.*did you mean 'cvxpy'"),
        ({"weights": "equal"}, "unknown weights 'equal'.*'variance', 'uniform'"),
    ],
)
def test_unknown_names(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        td.project(measurements(TREE, NOISY, 4.0), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [2.0**53 + 2, -(2.0**54), np.inf, np.nan])
def test_what_floats_cannot_hold_is_refused(value: float) -> None:
    with pytest.raises(DataError, match=r"'n3'.*2\^53"):
        measurements(TREE, np.array([*NOISY[:3], value, *NOISY[4:]]), 4.0)


def test_whole_numbers_that_floats_cannot_hold_are_refused() -> None:
    whole = np.array([1, 1, 0, 2**53 + 1, 0, 0, 0])
    with pytest.raises(DataError, match=r"'n3'.*9007199254740993"):
        measurements(TREE, whole, 4.0)


def test_a_total_beyond_what_floats_hold_is_refused() -> None:
    big = measurements(TREE, [0.0, 0, 0, *[2.0**53] * 4], [np.inf, np.inf, np.inf, 1, 1, 1, 1])
    with pytest.raises(ProjectionError):
        td.project(big, "joint")


@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
def test_a_single_node(method: str, nonnegative: bool) -> None:
    for value in (-3.5, 7.25):
        estimate = td.project(measurements(Tree.from_family_sizes([]), [value], 4.0), method, nonnegative=nonnegative)
        assert estimate.values.tolist() == [[max(value, 0.0) if nonnegative else value]]
        assert estimate.certificate.holds()
    assert td.round_counts(td.project(measurements(Tree.from_family_sizes([]), [7.25], 4.0))).values[0, 0] == 7


@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
def test_all_children_negative_and_zero_parents(method: str, nonnegative: bool) -> None:
    below = np.array([-5.0, -2, 0, -9, -1, -2, -8])
    x = td.project(measurements(TREE, below, 4.0), method, nonnegative=nonnegative).values
    if nonnegative:
        np.testing.assert_array_equal(x, np.zeros((7, 1)))
    elif method == "top-down":
        # States (-2, 0) - 3/2 each; the first state's counties (-9, -1, -2) + 17/6 each.
        np.testing.assert_allclose(x[:, 0], [-5, -3.5, -1.5, -9 + 17 / 6, -1 + 17 / 6, -2 + 17 / 6, -1.5], atol=1e-12)
    else:
        exact = [float(one) for one in exact_least_squares(below, np.full(7, 4.0), TREE)]
        np.testing.assert_allclose(x[:, 0], exact, atol=1e-12)
    x = td.project(
        measurements(TREE, [6.0, 6, 0, -9, -1, -2, -8], [0.0, 0, 0, 1, 1, 1, 1]), method, nonnegative=nonnegative
    )
    np.testing.assert_allclose(x.values[[0, 1, 2, 6], 0], [6, 6, 0, 0], atol=1e-12)


@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
def test_a_chain_of_a_thousand_single_children(method: str, nonnegative: bool) -> None:
    rng = np.random.default_rng(1)
    noisy = 50 + rng.normal(size=1000)
    estimate = td.project(measurements(Tree.from_family_sizes([1] * 999), noisy, 1.0), method, nonnegative=nonnegative)
    expected = noisy[0] if method == "top-down" else noisy.mean()
    np.testing.assert_allclose(estimate.values[:, 0], expected)
    if method == "gls":
        assert estimate.variance is not None
        np.testing.assert_allclose(estimate.variance, 1 / 1000)
    if nonnegative:
        for rounding in ("family", "joint"):
            assert (td.round_counts(estimate, method=rounding).values == round(expected)).all()


@pytest.mark.parametrize(
    "sizes",
    [
        [[1_000_000]],
        [[1]] * 18 + [[2], [200_000, 1]],
        [[1000], [1] * 999 + [100_000], [1] * 100_998 + [3]],
    ],
    ids=["a million children", "20 levels", "families of 1 and 100,000"],
)
@pytest.mark.parametrize("method", ["top-down", "gls", "gls-top-down", "joint"])
def test_odd_shapes_have_the_same_certificates(sizes: list[list[int]], method: str) -> None:
    tree = Tree.from_family_sizes(sizes)
    rng = np.random.default_rng(2)
    truth = tree.aggregate(rng.poisson(0.7, tree.n_leaves).astype(np.float64))
    noisy = truth + np.rint(rng.laplace(size=tree.n_nodes) * 10)
    estimate = td.project(measurements(tree, noisy, 200.0), method)
    certificate = estimate.certificate
    assert certificate.kkt < 1e-7
    assert certificate.consistency < 1e-13 * tree.n_nodes * max(1.0, certificate.scale)
    if method == "joint":
        for rounding in ("family", "joint"):
            assert td.round_counts(estimate, method=rounding).values.min() >= 0


def test_arguments_after_the_second_go_by_keyword_alone() -> None:
    with pytest.raises(TypeError):
        td.project(measurements(TREE, NOISY, 4.0), "joint", True)  # type: ignore[misc]


def test_the_tidy_table() -> None:
    frame = td.project(measurements(TREE, NOISY, 4.0), "gls").to_frame()
    assert list(frame.columns) == ["geoid", "level", "cell", "value", "variance"]
    assert len(frame) == 7
    assert "variance" not in td.project(measurements(TREE, NOISY, 4.0), "joint").to_frame().columns


def test_every_method_is_tested_offered_and_explained() -> None:
    assert {method for method, _ in PROGRAMS} == set(METHODS)
    releasable = {method for method, nonnegative in PROGRAMS if nonnegative}
    assert set(nonnegative_methods()) == releasable
    assert Projection().method in releasable
    explained = (REPOSITORY / "docs" / "mathematics.md").read_text(encoding="utf-8")
    assert [method for method in METHODS if f"`{method}`" not in explained] == []


# -- many cells, block by block -------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_cell", [False, True])
@pytest.mark.parametrize(
    ("method", "nonnegative", "weights"),
    [
        ("gls", False, "variance"),
        ("gls", False, "uniform"),
        ("top-down", True, "variance"),
        ("top-down", False, "variance"),
        ("gls-top-down", True, "variance"),
        ("joint", True, "variance"),
    ],
)
def test_blocks_of_cells_change_nothing(
    per_cell: bool, method: str, nonnegative: bool, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    codes = [f"{a:02d}{b:03d}" for a in range(5) for b in range(40)]
    geography = td.Geography.from_geoids(codes, {"state": 2, "county": 5})
    leaves = np.floor(rng.lognormal(1.0, 1.5, (7, geography.n_leaves)))
    truth = geography.tree.aggregate(leaves).T
    by_node = np.repeat([4.0, 9.0, 1.0], np.diff(geography.level_offsets))
    by_node[3] = 0.0
    variance = by_node if not per_cell else by_node[:, None] * rng.choice([1.0, 2.0], 7)
    noise = np.rint(rng.normal(size=truth.shape) * np.sqrt(variance.reshape(len(truth), -1)))
    measured = td.Measurements.from_arrays(geography, truth + noise, variance)
    whole = td.project(measured, method, nonnegative=nonnegative, weights=weights)
    monkeypatch.setattr(tree, "_VALUES_AT_ONCE", 3 * geography.n_nodes)
    assert [block.stop - block.start for block in geography.tree.blocks(7)] == [3, 3, 1]
    parts = td.project(measured, method, nonnegative=nonnegative, weights=weights)
    np.testing.assert_array_equal(parts.values, whole.values)
    np.testing.assert_array_equal(parts.exact, whole.exact)
    assert parts.exact.any()
    assert (parts.variance is None) == (whole.variance is None)
    if parts.variance is not None and whole.variance is not None:
        np.testing.assert_array_equal(parts.variance, whole.variance)
    assert parts.certificate == whole.certificate
    if nonnegative:
        releases = [td.round_counts(estimate, source=td.SeededSource(1)).values for estimate in (parts, whole)]
        np.testing.assert_array_equal(*releases)


def test_a_projection_of_many_cells_holds_a_block_beside_its_result() -> None:
    rng = np.random.default_rng(5)
    shape = tree.Tree.from_family_sizes([[100], [200] * 100])
    codes = pa.array(
        ["US", *(f"{a:02d}" for a in range(100)), *(f"{a:02d}{b:03d}" for a in range(100) for b in range(200))]
    )
    geography = td.Geography(("nation", "state", "county"), shape, codes)
    values = shape.aggregate(np.floor(rng.lognormal(1.0, 1.5, (300, shape.n_leaves)))).T
    measured = td.Measurements.from_arrays(geography, values, 2.0)
    tracemalloc.start()
    try:
        for method in ("gls", "gls-top-down"):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            td.project(measured, method)
            peak = tracemalloc.get_traced_memory()[1] - before
            # Ten times what it was given, before cells were taken in blocks.
            assert peak < 1.2 * values.nbytes + 16 * 8 * tree._VALUES_AT_ONCE
            assert peak > values.nbytes
    finally:
        tracemalloc.stop()


def test_what_is_no_flag_is_not_taken_as_one() -> None:
    geography = td.Geography.from_table({"nation": ["US", "US"], "state": ["1", "2"]}, ["nation", "state"])
    measurements = td.Measurements.from_arrays(geography, [3, -1, 2], 1.0)
    with pytest.raises(ConfigError, match="nonnegative is 'no'; give True or False"):
        td.project(measurements, "gls-top-down", nonnegative="no")  # type: ignore[arg-type]


def test_what_has_another_type_is_named_with_the_right_form() -> None:
    geography = td.Geography.from_table({"nation": ["US", "US"], "state": ["1", "2"]}, ["nation", "state"])
    with pytest.raises(DataError, match="variance is 'x'; give numbers of 0 or more"):
        td.Measurements.from_arrays(geography, [3, -1, 2], "x")
    with pytest.raises(DataError, match="weights are '1'; give a mapping from GEOID to weight"):
        td.region(td.Measurements.from_arrays(geography, [3, -1, 2], 1.0), "1")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"'sex' is no Attribute; Schema\.from_mapping makes"):
        td.Schema({"sex": ["f", "m"]})  # type: ignore[arg-type]
