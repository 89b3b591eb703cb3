from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from support.places import GOLDEN
from topdown.errors import ConfigError, DataError
from topdown.research.pmse.classifiers import CART, Cells, Logistic
from topdown.research.pmse.columns import side_by_side
from topdown.research.pmse.quality import (
    mean_pmse,
    null_of_logistic,
    null_of_partition,
    pmse,
    pmse_of_counts,
)
from topdown.research.pmse.trees import OptimalTree

REFERENCE = GOLDEN["S3_pmse"]


def pmse_of_leaves(rows: Sequence[int] | np.ndarray, synthetic: Sequence[int] | np.ndarray) -> float:
    """The pMSE of a partition with ``rows`` m_i, of which ``synthetic`` a_i: (1/N) sum m_i (a_i/m_i - c)^2.

    It equals c (1 - c) chi^2 / N with Pearson's statistic of (part x label), and chi^2 / (4 N) for two data sets of one
    size (equation 10 of the source, whose last sign is a plus).
    """
    m, a = np.asarray(rows, dtype=float), np.asarray(synthetic, dtype=float)
    return float((m * (a / m - a.sum() / m.sum()) ** 2).sum() / m.sum())


def mixed(rng: np.random.Generator, n: int, shift: float = 0.0) -> pd.DataFrame:
    return pd.DataFrame({"x": rng.normal(shift, 1, n), "y": rng.normal(0, 2, n), "group": rng.choice(list("abc"), n)})


def categorical(rng: np.random.Generator, n: int, share: float = 0.5) -> pd.DataFrame:
    return pd.DataFrame({"a": rng.random(n) < share, "b": rng.choice(["p", "q", "r"], n)})


# -- the identities --------------------------------------------------------------------------------------------------


def test_the_reference_s_tree_and_nulls() -> None:
    tree = REFERENCE["tree_example"]
    assert pmse_of_leaves(tree["leaves_m"], tree["leaves_a"]) == pytest.approx(tree["pmse"], rel=1e-14)
    for row in REFERENCE["null_fixed_partition"]:
        assert null_of_partition(row["splits"], row["N"]) == pytest.approx(row["mean"], rel=1e-14)
    row = REFERENCE["logistic_null"]
    assert null_of_logistic(row["k_params"], row["N"]) == pytest.approx(row["mean_two_independent_samples"], rel=1e-14)
    fitted = null_of_logistic(row["k_params"], row["N"], synthesis="fitted")
    assert fitted == pytest.approx(row["mean_synthesis_from_fitted_model"], rel=1e-14)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda p: sum(p) > 0), min_size=2, max_size=6
    ).filter(lambda rows: all(sum(r[k] for r in rows) > 0 for k in (0, 1)))
)
def test_pmse_of_a_partition_is_pearson_s_chi_square(parts: list[tuple[int, int]]) -> None:
    zero, one = np.array(parts).T
    rows = zero + one
    share = one.sum() / rows.sum()
    statistic = chi2_contingency(np.array([zero, one]), correction=False).statistic
    value = pmse_of_leaves(rows, one)
    assert value == pytest.approx(share * (1 - share) * statistic / rows.sum(), rel=1e-10, abs=1e-15)
    assert 0 <= value <= 0.25
    frame = lambda counts: pd.DataFrame({"part": np.repeat([f"p{k}" for k in range(len(parts))], counts)})  # noqa: E731
    found = pmse(frame(zero), frame(one), "cells")
    assert found.value == pytest.approx(value, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("classifier", ["cart", "logistic", "cells", CART(cp=0.0, min_leaf=1, min_split=2)])
def test_the_extremes_are_0_and_a_quarter(classifier: object) -> None:
    one = pd.DataFrame({"a": ["x", "y"] * 40, "b": ["u"] * 80})
    other = pd.DataFrame({"a": ["z", "w"] * 40, "b": ["u"] * 80})
    assert pmse(one, one, classifier, null=None).value == pytest.approx(0, abs=1e-12)  # type: ignore[arg-type]
    assert pmse(one, other, classifier, null=None).value == pytest.approx(0.25, abs=1e-6)  # type: ignore[arg-type]


# -- classifiers -----------------------------------------------------------------------------------------------------


def test_logistic_regression_is_scikit_learn_s_without_a_penalty() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    columns = side_by_side(mixed(rng, 300), mixed(rng, 200, 0.4))
    names = columns.features
    assert names == ("x", "y", "group = a", "group = b", "group = c")
    design = columns.matrix
    pairs = [(0, 1), *((i, j) for i in (0, 1) for j in (2, 3, 4))]
    for interactions in (False, True):
        full = np.column_stack([design, *(design[:, i] * design[:, j] for i, j in pairs)]) if interactions else design
        theirs = LogisticRegression(C=1e9, tol=1e-10, max_iter=100_000).fit(full, columns.labels)
        ours = Logistic(interactions=interactions).fit(columns, columns.labels)
        np.testing.assert_allclose(ours.probability, theirs.predict_proba(full)[:, 1], atol=2e-5)
        assert ours.parameters == (10 if interactions else 5)


def test_cp_is_rpart_s_on_a_tree_worked_by_hand() -> None:
    # Two splits of 100 + 100 records: x at 0 gives (90, 10) and (10, 90); then y within the right part gives (10, 40)
    # and (0, 50). Misclassified: root 100, after the first split 20, after the second still 20; so class risk prunes
    # the second at any cp, while Gini risk keeps it while its gain 2/200 (18 - 16)/.. exceeds cp times the root's.
    zero = pd.DataFrame({"x": [-1.0] * 90 + [1.0] * 10, "y": [0.0] * 100})
    one = pd.DataFrame({"x": [-1.0] * 10 + [1.0] * 90, "y": [0.0] * 10 + [0.0] * 40 + [1.0] * 50})
    leaves = lambda **o: pmse(zero, one, CART(**o), null=None).parameters  # noqa: E731
    assert leaves(cp=0.0) == 2
    assert leaves(cp=0.79) == 2
    assert leaves(cp=0.81) == 1
    # Gini risk, the sum of 2 a b / m: root 100; (90, 10) 18; (10, 90) 18; (10, 40) 16; (0, 50) 0: gains 64 and 2.
    assert leaves(cp=0.019, pruning="gini") == 3
    assert leaves(cp=0.021, pruning="gini") == 2
    assert leaves(cp=0.63, pruning="gini") == 2
    assert leaves(cp=0.65, pruning="gini") == 1


@pytest.mark.parametrize("cp", [0.0, 0.002, 0.005, 0.02])
def test_gini_pruning_is_scikit_learn_s_at_half_of_cp(cp: float) -> None:
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(2)
    columns = side_by_side(mixed(rng, 400), mixed(rng, 400, 0.3))
    ours = CART(cp=cp, pruning="gini")
    theirs = DecisionTreeClassifier(
        min_samples_split=20, min_samples_leaf=7, max_depth=30, random_state=0, ccp_alpha=ours.ccp_alpha
    ).fit(columns.matrix, columns.labels)
    found = ours.fit(columns, columns.labels)
    assert found.parameters == theirs.get_n_leaves()
    np.testing.assert_allclose(found.probability, theirs.predict_proba(columns.matrix)[:, 1], atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_trees_are_scikit_learn_s_to_the_last_bit(seed: int) -> None:
    """Numbers, few values, indicators and constants, whose order of looking at them decides between equal splits."""
    from sklearn.tree import DecisionTreeClassifier

    from topdown.research.pmse.cart_kernel import grow

    rng = np.random.default_rng(seed)
    n = int(rng.integers(40, 1500))
    first = rng.normal(size=n)
    kinds = [first, rng.normal(size=n) * 1e6, rng.integers(0, 4, n), (first > 0) * rng.integers(0, 2, n), np.ones(n)]
    matrix = np.column_stack([kinds[k] for k in rng.integers(0, len(kinds), 6)])
    labels = (rng.random(n) < 1 / (1 + np.exp(-0.5 * first))).astype(np.int64)
    depth, min_split, min_leaf = (int(k) for k in rng.integers([1, 2, 1], [31, 30, 12]))
    theirs = DecisionTreeClassifier(
        max_depth=depth, min_samples_split=min_split, min_samples_leaf=min_leaf, random_state=0
    ).fit(matrix, labels)
    tree = theirs.tree_
    values = np.ascontiguousarray(matrix.T, dtype=np.float32)
    left, right, feature, threshold, rows, synthetic, leaf = grow(
        values, np.argsort(values, axis=1), labels, depth, min_split, min_leaf, -1.0
    )
    inner = tree.children_left >= 0
    assert tree.node_count > 1
    np.testing.assert_array_equal(left, tree.children_left)
    np.testing.assert_array_equal(right, tree.children_right)
    np.testing.assert_array_equal(feature[inner], tree.feature[inner])
    np.testing.assert_array_equal(threshold[inner], tree.threshold[inner])
    np.testing.assert_array_equal(rows, tree.n_node_samples)
    np.testing.assert_array_equal(synthetic, np.rint(tree.value[:, 0, 1] * rows))
    np.testing.assert_array_equal(leaf, theirs.apply(matrix))


@pytest.mark.parametrize("seed", range(4))
def test_one_tree_gives_the_pmse_of_every_depth_and_price(seed: int) -> None:
    """The same as trees that are grown for each, through frames; and so is the short way of `mean_pmse` for arrays."""
    from topdown.research.pmse.cart_kernel import pruned_pmse, sorted_order

    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(600, 3)), rng.normal(0.3, 1.5, size=(400, 3))
    values = np.ascontiguousarray(np.vstack([a, b]).T, dtype=np.float32)
    labels = np.repeat([0, 1], [600, 400])
    depths, cps = (1, 2, 5, 30), (0.05, 0.01, 0.001)
    found = pruned_pmse(values, sorted_order(values), labels, np.array(depths), 400 * np.array(cps), 20, 7)
    for i, depth in enumerate(depths):
        for j, cp in enumerate(cps):
            rule = CART(depth=depth, cp=cp)
            expected = pmse(a, b, rule, null=None).value
            assert found[i, j] == pytest.approx(expected, abs=1e-14)
            assert mean_pmse(a, [b, b], rule) == pytest.approx(expected, abs=1e-14)
    assert len(np.unique(found)) > 5


def test_records_are_sorted_as_numpy_sorts_them() -> None:
    from topdown.research.pmse.cart_kernel import sorted_order

    rng = np.random.default_rng(4)
    columns = [rng.normal(size=3000), rng.integers(-3, 3, 3000), rng.standard_cauchy(3000) * 1e30, np.zeros(3000)]
    columns.append(np.where(rng.random(3000) < 0.5, -0.0, 0.0))
    values = np.array(columns, dtype=np.float32)
    np.testing.assert_array_equal(sorted_order(values), np.argsort(values, axis=1, kind="stable"))


def test_depth_limits_a_tree() -> None:
    rng = np.random.default_rng(3)
    a, b = mixed(rng, 500), mixed(rng, 500)
    sizes = [pmse(a, b, CART(depth=d, cp=0.0), null=None).parameters for d in (1, 2, 5, None)]
    assert sizes[0] <= 2
    assert sizes[1] <= 4
    assert sizes == sorted(sizes)
    assert sizes[-1] > 20


@pytest.mark.parametrize("options", [{"depth": 0}, {"cp": -1}, {"cp": 1.0}, {"pruning": "x"}, {"min_leaf": 0}])
def test_trees_that_cannot_be_meant_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="give"):
        CART(**options)  # type: ignore[arg-type]


# -- the null --------------------------------------------------------------------------------------------------------


def test_the_null_of_a_partition_is_the_mean_over_permutations() -> None:
    rng = np.random.default_rng(4)
    a, b = categorical(rng, 300), categorical(rng, 100)
    known = pmse(a, b, "cells")
    drawn = pmse(a, b, "cells", null="permutation", permutations=1000)
    assert (known.null, drawn.null) == ("partition", "permutation")
    assert known.null_standard_error == 0
    assert drawn.null_standard_error == pytest.approx(drawn.null_deviation / math.sqrt(1000))
    error = drawn.null_standard_error
    assert abs(drawn.null_expectation - known.null_expectation) < 6 * error
    assert abs(1.1 * drawn.null_expectation - known.null_expectation) > 2 * error
    assert drawn.null_deviation == pytest.approx(known.null_deviation, rel=0.15)


@pytest.mark.parametrize(("synthesis", "wrong"), [("independent", "fitted"), ("fitted", "independent")])
def test_the_null_of_a_regression_holds_where_it_should(synthesis: str, wrong: str) -> None:
    rng = np.random.default_rng(5)
    values = []
    for _ in range(200):
        original = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 400)
        if synthesis == "fitted":
            new = rng.multivariate_normal(original.mean(axis=0), np.cov(original.T), 400)
        else:
            new = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 400)
        values.append(pmse(original, new, Logistic(interactions=False), null=None).value)
    error = np.std(values) / math.sqrt(len(values))
    right = null_of_logistic(3, 800, synthesis=synthesis)  # type: ignore[arg-type]
    other = null_of_logistic(3, 800, synthesis=wrong)  # type: ignore[arg-type]
    assert abs(np.mean(values) - right) < 5 * error
    assert abs(np.mean(values) - other) > 6 * error


def test_the_ratio_is_near_1_for_one_law_and_large_for_two() -> None:
    rng = np.random.default_rng(6)
    for classifier in ("logistic", CART(cp=0.001), "cart"):
        same = pmse(mixed(rng, 500), mixed(rng, 500), classifier, permutations=20)
        assert same.verdict == "not told apart"
        other = pmse(mixed(rng, 500), mixed(rng, 500, 2.0), classifier, permutations=20)
        assert other.verdict == "told apart"
        assert other.ratio > 2
        assert other.standardised > 10
        assert 0 <= same.value < other.value <= 0.25


@pytest.mark.parametrize("classifier", ["logistic", "cart", CART(cp=0.001), "cells"])
def test_a_generator_that_copies_the_data_is_too_good_to_be_private(classifier: object) -> None:
    rng = np.random.default_rng(7)
    if classifier == "cells":
        original = pd.DataFrame({"a": rng.integers(0, 12, 600).astype(str), "b": rng.integers(0, 5, 600).astype(str)})
    else:
        original = mixed(rng, 600)
    copy = original.sample(frac=1, random_state=1)
    found = pmse(original, copy, classifier, permutations=20)  # type: ignore[arg-type]
    assert found.verdict == "too good to be private"
    assert found.copies == 1.0
    if classifier != "cells":
        shuffled = original.assign(**{name: rng.permutation(column) for name, column in original.items()})
        assert pmse(original, shuffled, classifier, permutations=20).copies < 1  # type: ignore[arg-type]


def test_an_independent_sample_of_few_categories_is_no_copy() -> None:
    rng = np.random.default_rng(8)
    found = pmse(categorical(rng, 500), categorical(rng, 500), "cells")
    assert found.copies == 1.0
    assert found.verdict == "not told apart"


def test_contributions_name_the_parts_that_differ_most() -> None:
    rng = np.random.default_rng(9)
    found = pmse(mixed(rng, 500), mixed(rng, 500, 2.0), CART(depth=2), null=None)
    table = found.contributions
    assert table["contribution"].sum() == pytest.approx(found.value, rel=1e-12)
    assert table["contribution"].is_monotonic_decreasing
    assert table["records"].sum() == 1000
    assert table["part"][0].startswith("x ")
    few = pmse(pd.DataFrame({"g": list("aab")}), pd.DataFrame({"g": list("abb")}), "cells").contributions
    assert set(few["part"]) == {"g = a", "g = b"}
    assert few["synthetic"].tolist() in ([1, 2], [2, 1])


# -- data ------------------------------------------------------------------------------------------------------------


def test_frames_tables_mappings_and_arrays_are_the_same_data() -> None:
    rng = np.random.default_rng(10)
    a, b = mixed(rng, 200), mixed(rng, 200, 0.5)
    wanted = pmse(a, b, null=None).value
    assert wanted > 0
    assert pmse(pa.Table.from_pandas(a), pa.Table.from_pandas(b), null=None).value == wanted
    assert pmse(dict(a), dict(b), null=None).value == wanted
    assert pmse(a, b[["group", "y", "x"]], null=None).value == wanted
    values = pmse(a[["x", "y"]].to_numpy(), b[["x", "y"]].to_numpy(), null=None).value
    assert values == pmse(a[["x", "y"]], b[["x", "y"]], null=None).value
    assert pmse(a["x"].to_numpy(), b["x"].to_numpy(), null=None).value > 0


def test_missing_values_are_a_property_too() -> None:
    full = pd.DataFrame({"x": np.arange(100.0), "g": ["a"] * 100})
    gaps = full.assign(x=np.where(np.arange(100) % 2, np.nan, full["x"]), g=["a", None] * 50)
    assert side_by_side(full, gaps).features == ("x", "x is missing", "g = a", "g = missing")
    assert pmse(full, gaps, null=None).value > 0.05
    # Where half of the values are gone, the gaps alone tell: a leaf of 150 records, 50 synthetic, and one of 50.
    zeros = pd.DataFrame({"x": np.zeros(100)})
    half = pd.DataFrame({"x": [np.nan, 0.0] * 50})
    assert pmse(zeros, half, OptimalTree(1), null=None).value == pytest.approx(pmse_of_leaves([150, 50], [50, 50]))


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ({"x": [1.0]}, {"y": [1.0]}, "has the columns 'x', the synthetic data 'y'"),
        ({"x": [1.0]}, {"x": ["a"]}, "number in one of the data sets only"),
        ({"x": [np.inf]}, {"x": [1.0]}, "infinite"),
        ({"x": []}, {"x": [1.0]}, "0 original and 1 synthetic records"),
    ],
)
def test_data_that_cannot_be_compared_is_refused(a: object, b: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        pmse(a, b)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"classifier": "forest"}, "give 'cart'"),
        ({"classifier": CART}, "give one such as"),
        ({"classifier": "cart", "null": "fitted"}, "known for logistic regression"),
        ({"null": "other"}, "null 'other'"),
        ({"permutations": 1}, "permutations is 1"),
        ({"classifier": Cells(("z",))}, "no column 'z'; there are 'x1'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        pmse([1.0, 2.0], [1.0, 3.0], **options)  # type: ignore[arg-type]


def test_the_mean_over_several_synthetic_sets() -> None:
    rng = np.random.default_rng(11)
    original, sets = mixed(rng, 100), [mixed(rng, 100, s) for s in (0.0, 1.0)]
    values = [pmse(original, one, null=None).value for one in sets]
    assert mean_pmse(original, sets) == pytest.approx(sum(values) / 2)
    with pytest.raises(ConfigError, match="no synthetic data sets"):
        mean_pmse(original, [])


# -- tables of counts ------------------------------------------------------------------------------------------------


def test_counts_have_the_pmse_of_their_records() -> None:
    rng = np.random.default_rng(12)
    first, second = rng.integers(0, 5, (6, 3)), rng.integers(0, 5, (6, 3))
    first[0, 0] = second[0, 0] = 0
    first[1, 1], second[1, 1] = 30, 0
    names = [f"unit {i}, cell {j}" for i in range(6) for j in range(3)]
    records = [pd.DataFrame({"part": np.repeat(names, one.ravel())}) for one in (first, second)]
    by_records, by_counts = pmse(*records, "cells"), pmse_of_counts(first, second, names)
    fields = (
        "value",
        "null",
        "null_expectation",
        "null_deviation",
        "n_original",
        "n_synthetic",
        "parameters",
        "copies",
    )
    for name in fields:
        assert getattr(by_counts, name) == pytest.approx(getattr(by_records, name)), name
    assert by_counts.contributions["part"][0] == "unit 1, cell 1"
    assert len(by_counts.contributions) == by_counts.parameters < 18
    assert by_counts.verdict == by_records.verdict == "told apart"


def test_a_release_that_copies_the_counts_is_too_good_to_be_private() -> None:
    rng = np.random.default_rng(13)
    truth = rng.poisson(20, (40, 4))
    assert pmse_of_counts(truth, truth).verdict == "too good to be private"
    assert pmse_of_counts(truth, rng.poisson(20, (40, 4))).verdict == "not told apart"
    assert pmse_of_counts(truth, rng.poisson(30, (40, 4)) + 20 * (np.arange(4) == 1)).verdict == "told apart"


@pytest.mark.parametrize(
    ("first", "second"), [([1, 2], [1]), ([1.0, 2.0], [1, 2]), ([-1, 2], [1, 2]), ([0, 0], [1, 2]), ([1, 2], [0, 0])]
)
def test_what_is_no_table_of_counts_is_refused(first: list[int], second: list[int]) -> None:
    with pytest.raises(DataError, match="counts"):
        pmse_of_counts(first, second)


def test_a_classifier_with_a_null_that_is_not_known_is_not_taken_for_a_regression() -> None:
    class Forest(Logistic):
        known_null = "forest"  # type: ignore[assignment]

    frame = pd.DataFrame({"a": np.arange(40) % 7, "b": np.arange(40) % 3})
    with pytest.raises(ConfigError, match="unknown known_null of the classifier 'forest'"):
        pmse(frame, frame, Forest())
