"""The simulator against exact theory, with planted faults; reproducibility, memory, interrupts, coverage."""

from __future__ import annotations

import math
import signal
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

import topdown as td
from support.methods import with_cells
from support.places import GOLDEN
from support.simulated import counts_of, family, public_root
from topdown.errors import BudgetError, ConfigError, CountsError
from topdown.geography.tree import FloatArray, Tree
from topdown.machine import parallel
from topdown.projection.method import METHODS, Problem, gls, top_down
from topdown.studies import methods as methods_module
from topdown.studies import replicates
from topdown.studies import simulate as simulate_module
from topdown.studies.errors_table import STATISTICS, ErrorTable
from topdown.studies.residual_bins import BINS, Histogram
from topdown.studies.simulate import simulate

REPLICATES = 300_000


def rows(name: str) -> list[dict]:
    return GOLDEN[name]["rows"]


def worst_deviation(table: ErrorTable, method: str, expected: Mapping[str, tuple[slice, object]]) -> float:
    """The largest |estimate - exact| in standard errors, over statistics and nodes."""
    worst = 0.0
    for statistic, (nodes, exact) in expected.items():
        measured = table[method, statistic][nodes, 0]
        error = table[method, f"{statistic}_se"][nodes, 0]
        assert (error > 0).all()
        worst = max(worst, float((np.abs(measured - np.asarray(exact)) / error).max()))
    return worst


def geometric_family(row: dict) -> float:
    table = simulate(family(row["x"]), public_root(epsilon=row["eps"]), ["top-down"], REPLICATES, 11, distances=False)
    nodes = slice(1, None)
    return worst_deviation(
        table, "top-down", {"bias": (nodes, row["bias"]), "variance": (nodes, row["var"]), "mse": (nodes, row["mse"])}
    )


def two_levels(row: dict) -> float:
    leaves = [count for state in row["tree"] for count in state]
    sizes = [[len(row["tree"])], [len(state) for state in row["tree"]]]
    table = simulate(
        counts_of(leaves, sizes),
        public_root(epsilon=row["eps_per_level"], below=2),
        ["top-down"],
        REPLICATES,
        12,
        distances=False,
    )
    nodes = slice(1, None)
    bias, variance = row["state_bias"] + row["county_bias"], row["state_var"] + row["county_var"]
    return worst_deviation(table, "top-down", {"bias": (nodes, bias), "variance": (nodes, variance)})


def unit_gaussian(*, root_fixed: bool) -> td.Plan:
    """A variance of 1 at every node of three levels."""
    levels = ["1", "2"] if root_fixed else ["0", "1", "2"]
    shares = {level: f"1/{len(levels)}" for level in levels}
    return td.Plan("gaussian", rho=f"{len(levels)}/2", shares=shares, invariants=("0",) if root_fixed else ())


def least_squares_tree(*, root_fixed: bool) -> float:
    table = simulate(
        counts_of([900, 800, 700, 600], [[2], [2, 2]]),
        unit_gaussian(root_fixed=root_fixed),
        ["gls"],
        REPLICATES,
        13,
        distances=False,
    )
    block = np.array(GOLDEN["S2_tree_covariance"]["root_fixed" if root_fixed else "root_noisy"])
    nodes = slice(1, None) if root_fixed else slice(None)
    return worst_deviation(table, "gls", {"bias": (nodes, np.zeros(len(block))), "variance": (nodes, np.diag(block))})


# -- agreement with the exact truth ------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows("S2_nonneg_geometric_exact"), ids=lambda row: str(row["x"]))
def test_geometric_family_equals_the_exact_sums(row: dict) -> None:
    assert geometric_family(row) < 4


@pytest.mark.parametrize("row", rows("S2_topdown_two_level_exact"), ids=lambda row: str(row["tree"]))
def test_two_levels_equal_the_exact_sums(row: dict) -> None:
    assert two_levels(row) < 4


@pytest.mark.parametrize("row", rows("S2_nonneg_laplace") + rows("S2_nonneg_n2_laplace"), ids=lambda row: f"{row['x']}")
def test_laplace_family_equals_the_exact_figures(row: dict) -> None:
    table = simulate(family(row["x"]), public_root("laplace"), ["top-down"], REPLICATES, 14, distances=False)
    nodes = slice(1, None)
    expected = {"bias": (nodes, row["bias"]), "variance": (nodes, row["var"]), "mse": (nodes, row["mse"])}
    assert worst_deviation(table, "top-down", expected) < 4


@pytest.mark.parametrize("mechanism", ["laplace", "geometric"])
@pytest.mark.parametrize("row", rows("S2_marginal_variance"), ids=lambda row: f"n={row['n']}")
def test_equality_variance_is_that_of_theorem_5(row: dict, mechanism: str) -> None:
    replicates = 20_000 if row["n"] < 100 else 4_000
    counts = family([1000] * row["n"])
    table = simulate(counts, public_root(mechanism, row["eps"]), ["top-down/equality"], replicates, 15, distances=False)
    variance = row["var_laplace" if mechanism == "laplace" else "var_geometric"]
    nodes = slice(1, 4)
    exact = {"bias": (nodes, np.zeros(len(table.truth[nodes]))), "variance": (nodes, variance)}
    assert worst_deviation(table, "top-down/equality", exact) < 4


@pytest.mark.parametrize(
    "row", [r for r in rows("S2_marginal_distribution") if r["n"] < 100], ids=lambda r: f"n={r['n']}"
)
def test_residuals_follow_theorem_5(row: dict) -> None:
    replicates = 40_000
    table = simulate(family([1000] * row["n"]), public_root("laplace"), ["top-down/equality"], replicates, 16)
    density, width = table.densities["top-down/equality"][1, 0], table.bin_width[1, 0]
    for x, sf in zip(row["x"], row["sf"], strict=True):
        edge = BINS // 2 + x / width
        if edge == int(edge):
            above = density[int(edge) :].sum() / replicates
            assert abs(above - sf) < 4 * math.sqrt(sf * (1 - sf) / replicates), x


@pytest.mark.parametrize("root_fixed", [True, False])
def test_least_squares_variances_equal_the_dense_formula(root_fixed: bool) -> None:
    assert least_squares_tree(root_fixed=root_fixed) < 4


@pytest.mark.parametrize("root_fixed", [True, False])
def test_top_down_variances_by_level(root_fixed: bool) -> None:
    expected = GOLDEN["S2_tree_covariance"]["topdown_per_level_variances"]["root_fixed" if root_fixed else "root_noisy"]
    table = simulate(
        counts_of([900, 800, 700, 600], [[2], [2, 2]]),
        unit_gaussian(root_fixed=root_fixed),
        ["top-down/equality"],
        REPLICATES,
        17,
        distances=False,
    )
    exact = {"state": slice(1, 3), "county": slice(3, 7), "root": slice(0, 1)}
    for level, variance in expected.items():
        assert worst_deviation(table, "top-down/equality", {"variance": (exact[level], variance)}) < 4, level


def test_raw_noise_is_the_noise() -> None:
    table = simulate(family([0, 3, 50]), public_root(epsilon=0.5), ["raw"], REPLICATES, 18)
    law = td.noise.DiscreteLaplace(2)
    nodes = slice(1, None)
    assert worst_deviation(table, "raw", {"bias": (nodes, 0.0), "variance": (nodes, law.variance)}) < 4
    share = float(law.pmf(0))
    assert abs(table["raw", "zeros"][1, 0] - share) < 4 * table["raw", "zeros_se"][1, 0]
    assert table["raw", "zeros"][3, 0] < 1e-6


@pytest.mark.parametrize("values", [[0, 3], [0, 1, 4], [2, 0, 0]])
def test_zero_shares_equal_enumeration(values: list[int]) -> None:
    law = td.noise.DiscreteLaplace(1)
    n, k = len(values), np.arange(-40, 41)
    noise = np.stack(np.meshgrid(*[k] * n, indexing="ij"), axis=-1).reshape(-1, n)
    mass = np.prod(law.pmf(noise), axis=1)
    ordered = -np.sort(-(noise + values), axis=1)
    # Everything in whole numbers, so that a tie is a tie: x <= tau is x m <= the sum of the m largest less the total.
    sums, m = np.cumsum(ordered, axis=1) - sum(values), np.arange(1, n + 1)
    support = (ordered * m > sums).sum(axis=1) - 1
    at = np.arange(len(noise))
    zero = (noise + values) * (support + 1)[:, None] <= sums[at, support][:, None]
    share = (mass[:, None] * zero).sum(axis=0)
    assert abs(mass.sum() - 1) < 1e-12
    table = simulate(family(values), public_root(), ["top-down"], REPLICATES, 19, distances=False)
    error = np.sqrt(share * (1 - share) / REPLICATES)
    measured = table["top-down", "zeros"][1:, 0]
    assert (np.abs(measured - share) < 4 * error).all()
    np.testing.assert_allclose(
        table["top-down", "zeros_se"][1:, 0], np.sqrt(measured * (1 - measured) / REPLICATES), rtol=1e-12
    )


# -- planted faults ----------------------------------------------------------------------------------------------------


def plant(name: str, fault: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, name, with_cells(METHODS[name], solve=fault))


def wrong_weight(problem: Problem) -> FloatArray:
    variance = problem.variance.copy()
    variance[..., -1] *= 1.5
    return top_down(problem._replace(variance=variance))


def clipping(problem: Problem) -> FloatArray:
    return np.maximum(top_down(problem._replace(nonnegative=False)), 0.0)


def other_total(problem: Problem) -> FloatArray:
    values = problem.values.copy()
    values[..., -1] = 0.0
    return top_down(problem._replace(values=values))


@pytest.mark.parametrize("fault", [wrong_weight, clipping, other_total])
def test_planted_faults_are_found_in_a_family(fault: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    plant("top-down", fault, monkeypatch)
    for row in rows("S2_nonneg_geometric_exact"):
        assert geometric_family(row) > 4, row["x"]


def test_an_off_by_one_family_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shifted = Tree.from_family_sizes([[2], [1, 3]])
    plant("top-down", lambda problem: top_down(problem._replace(tree=shifted)), monkeypatch)
    for row in rows("S2_topdown_two_level_exact"):
        assert two_levels(row) > 4


def test_wrong_weights_are_found_in_least_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    def heavy_states(problem: Problem) -> FloatArray:
        variance = problem.variance.copy()
        variance[1:3] /= 1.5
        return gls(problem._replace(variance=variance))

    plant("gls", heavy_states, monkeypatch)
    assert least_squares_tree(root_fixed=True) > 4
    assert least_squares_tree(root_fixed=False) > 4


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_noise_of_a_wrong_scale_is_found(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows("S2_nonneg_geometric_exact")[1]
    draw = replicates.draw
    truth = family(row["x"]).values.T

    def wrong(study: object, chunk: int) -> FloatArray:
        return truth + factor * (draw(study, chunk) - truth)

    monkeypatch.setattr(replicates, "draw", wrong)
    assert geometric_family(row) > 4


# -- distances ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 15])
def test_distance_of_projected_laplace_noise(n: int) -> None:
    replicates = 200_000
    table = simulate(family([1000] * n), public_root("laplace", 0.1), ["raw", "top-down/equality"], replicates, 21)
    exact = td.theory.wasserstein_to_noise(n, 10)
    floor = td.theory.empirical_wasserstein_floor(replicates, 10)
    nodes = slice(1, None)
    error = table["top-down/equality", "wasserstein_se"][nodes, 0]
    for name in ("wasserstein", "wasserstein_corrected"):
        measured = table["top-down/equality", name][nodes, 0]
        assert (np.abs(measured - exact) < 4 * error + floor / 4).all(), name
    np.testing.assert_allclose(table["raw", "wasserstein_floor"][nodes, 0], floor, rtol=1e-12)


@pytest.mark.parametrize("reference", ["noise", "continuous"])
@pytest.mark.parametrize("mechanism", ["geometric", "laplace", "discrete-gaussian", "gaussian"])
def test_every_distance_has_its_floor_whatever_the_noise(mechanism: str, reference: Any) -> None:
    currency = {"rho": "1/8"} if "gaussian" in mechanism else {"epsilon": "1/2"}
    plan = td.Plan(mechanism, shares={"0": "1/2", "1": "1/2"}, **currency)
    table = td.simulate(family([3, 0, 12, 40]), plan, ["raw", "gls", "top-down"], 2_000, 1, reference=reference)
    for method in table.methods:
        assert (table[method, "wasserstein_floor"] > 0).all()
    if reference != "noise":  # whole numbers are further from a continuous law
        return
    # Draws of the law itself are as far from it as the floor says.
    raw, floor = (table["raw", name].mean() for name in ("wasserstein", "wasserstein_floor"))
    assert raw == pytest.approx(floor, rel=0.5)


def test_plain_and_corrected_distance_bracket_the_truth_where_the_floor_is_as_high() -> None:
    cells, replicates = 200, 4000
    counts = counts_of(np.full((cells, 15), 1000), [[15]])
    table = simulate(counts, public_root("laplace", 0.1), ["top-down/equality"], replicates, 24)
    exact = td.theory.wasserstein_to_noise(15, 10)
    assert exact < 1.2 * td.theory.empirical_wasserstein_floor(replicates, 10)
    plain, corrected = (table["top-down/equality", name][1] for name in ("wasserstein", "wasserstein_corrected"))
    assert plain.mean() > exact + 4 * plain.std() / math.sqrt(cells)
    assert 0 < corrected.mean() < exact - 4 * corrected.std() / math.sqrt(cells)


@pytest.mark.parametrize("n", [3, 15])
def test_the_interval_of_a_mean_distance_holds_it(n: int) -> None:
    """A mean over many nodes has little simulation error; what a sample hides of the distance stays."""
    cells = 300
    counts = counts_of(np.full((cells, n), 1000), [[n]])
    table = simulate(counts, public_root("laplace", 0.1), ["top-down/equality"], 1000, 27)
    exact, leaves = td.theory.wasserstein_to_noise(n, 10), slice(1, None)
    low, high = table.distance_interval(
        "top-down/equality",
        lambda values: values[leaves].mean(),
        lambda errors: np.sqrt((errors[leaves] ** 2).sum()) / errors[leaves].size,
    )
    assert low < exact < high
    # The corrected distance and its own simulation error alone do not hold it.
    corrected, errors = (table["top-down/equality", f"wasserstein_{name}"][leaves] for name in ("corrected", "se"))
    assert corrected.mean() + 1.96 * np.sqrt((errors**2).sum()) / errors.size < exact


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("reference", ["noise", "continuous"])
def test_distance_of_projected_geometric_noise(n: int, reference: str) -> None:
    counts, plan = family([1000] * n), public_root("geometric", 0.1)
    table = simulate(counts, plan, ["top-down/equality"], 40_000, 22, reference=reference)
    law = "noise" if reference == "noise" else "laplace"
    exact = td.theory.wasserstein_to_noise(n, 10, law="geometric", reference=law)
    measured = table["top-down/equality", "wasserstein"][1:, 0]
    error = table["top-down/equality", "wasserstein_se"][1:, 0]
    floor = td.theory.empirical_wasserstein_floor(40_000, 10, law="geometric")
    assert (np.abs(measured - exact) < 4 * error + floor).all()
    assert table.reference == reference


@pytest.mark.parametrize("mechanism", ["geometric", "discrete-gaussian"])
def test_the_continuous_reference_is_the_law_of_the_same_parameter(mechanism: str) -> None:
    if mechanism == "geometric":
        plan, drawn, continuous = public_root(), td.noise.DiscreteLaplace(1), td.noise.Laplace(1)
    else:
        plan = td.Plan(mechanism, rho="1/2", shares={"1": 1}, invariants=("0",))
        drawn, continuous = td.noise.DiscreteGaussian(1), td.noise.Gaussian(1)
    grid = np.arange(-20, 20, 1e-4) + 5e-5
    distance = float(np.abs(np.asarray(drawn.cdf(grid)) - np.asarray(continuous.cdf(grid))).sum() * 1e-4)
    floor = td.theory.empirical_wasserstein_floor(100_000, 1)
    assert distance > 30 * floor
    counts = family([5, 5, 5])
    by_reference = {
        reference: simulate(counts, plan, ["raw"], 100_000, 25, reference=reference)["raw", "wasserstein"][1:, 0]
        for reference in ("noise", "continuous")
    }
    assert (by_reference["noise"] < 3 * floor).all()
    np.testing.assert_allclose(by_reference["continuous"], distance, rtol=0.02)


def test_the_correction_takes_away_the_floor_and_not_the_distance() -> None:
    cells, replicates = 600, 1000
    counts = counts_of(np.full((cells, 2), 1000), [[2]])
    table = simulate(counts, public_root("laplace"), ["raw", "top-down/equality"], replicates, 23)
    floor = td.theory.empirical_wasserstein_floor(replicates, 1, method="exact")
    plain, corrected = (table["raw", name][1] for name in ("wasserstein", "wasserstein_corrected"))
    # E W1(empirical, truth); the histogram's linear reading of a bin smooths a little of it away.
    assert abs(plain.mean() / floor - 1) < 0.03
    error = corrected.std() / math.sqrt(cells)
    assert abs(corrected.mean()) < 4 * error
    assert error < floor / 30
    measured = table["top-down/equality", "wasserstein_corrected"][1]
    assert 0.235 < measured.mean() < 0.25
    # The standard error is that of the spread over repetitions, 30 % off either way excluded.
    ratio = table["top-down/equality", "wasserstein_se"][1].mean() / table["top-down/equality", "wasserstein"][1].std()
    assert 0.85 < ratio < 1.15


def test_exact_levels_have_no_distance() -> None:
    table = simulate(family([1, 2]), public_root(), ["raw"], 100, 1)
    assert np.isnan(table["raw", "wasserstein"][0, 0])
    assert table["raw", "bias"][0, 0] == 0
    assert table["raw", "variance"][0, 0] == 0


# -- standard errors ---------------------------------------------------------------------------------------------------


def coverage(cells: int, replicates: int, seed: int) -> dict[str, float]:
    """How often 95 % intervals hold the exact figures; each cell is a study of its own, with noise of its own."""
    row = rows("S2_nonneg_geometric_exact")[4]
    counts = counts_of(np.tile(row["x"], (cells, 1)), [[len(row["x"])]])
    table = simulate(counts, public_root(epsilon=row["eps"]), ["top-down"], replicates, seed, distances=False)
    exact = {"bias": row["bias"], "variance": row["var"], "mse": row["mse"]}
    return {
        name: float(
            (
                np.abs(table["top-down", name][1:] - np.array(value)[:, None])
                < stats.norm.ppf(0.975) * table["top-down", f"{name}_se"][1:]
            ).mean()
        )
        for name, value in exact.items()
    }


def test_intervals_cover() -> None:
    covered = coverage(1500, 1000, 31)
    assert 0.935 < covered["bias"] < 0.965
    assert 0.92 < covered["variance"] < 0.97
    assert 0.92 < covered["mse"] < 0.97


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say() -> None:
    every = [coverage(4000, 2000, seed) for seed in range(100, 110)]
    for name in ("bias", "variance", "mse"):
        assert 0.94 < np.mean([covered[name] for covered in every]) < 0.96, name


@pytest.mark.slow
def test_intervals_cover_over_seeds() -> None:
    row = rows("S2_nonneg_geometric_exact")[1]
    inside = []
    for seed in range(3000):
        table = simulate(family(row["x"]), public_root(), ["top-down"], 500, seed, distances=False)
        bias, error = (table["top-down", name][1:, 0] for name in ("bias", "bias_se"))
        inside.append(np.abs(bias - row["bias"]) < stats.norm.ppf(0.975) * error)
    assert (np.mean(inside, axis=0) > 0.94).all()
    assert (np.mean(inside, axis=0) < 0.96).all()


# -- reproducibility, memory, interrupts -------------------------------------------------------------------------------


def tables_differ(a: ErrorTable, b: ErrorTable) -> bool:
    same = all(
        np.array_equal(a[method, name], b[method, name], equal_nan=True) for method in a.methods for name in STATISTICS
    )
    same &= all(np.array_equal(a.densities[method], b.densities[method]) for method in a.methods)
    return not same


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> tuple[td.Counts, td.Plan]:
    """A problem cut into many chunks."""
    monkeypatch.setattr(simulate_module, "_LARGEST_CHUNK", 64)
    counts = counts_of([[3, 0, 12, 7, 1], [0, 0, 5, 90, 2]], [[2], [2, 3]])
    return counts, td.Plan(epsilon=1, shares={"0": "0.2", "1": "0.3", "2": "0.5"})


ALL = ["raw", "top-down", "top-down/equality", "top-down/rounded", "gls", "gls-top-down", "joint", "joint/rounded"]


def test_the_result_does_not_depend_on_the_workers(small: tuple[td.Counts, td.Plan]) -> None:
    rules = [td.FundShare("c0"), td.Threshold("c1", 3)]
    one = simulate(*small, ALL, 1200, 5, workers=1, rules=rules)
    two = simulate(*small, ALL, 1200, 5, workers=2, rules=rules)
    assert not tables_differ(one, two)
    assert one.rules_frame().equals(two.rules_frame())
    assert one.to_frame().equals(two.to_frame())


def test_a_seed_repeats_and_another_differs(small: tuple[td.Counts, td.Plan]) -> None:
    first = simulate(*small, ALL, 300, 5)
    assert not tables_differ(first, simulate(*small, ALL, 300, 5))
    other = simulate(*small, ALL, 300, 6)
    for method in ALL:
        assert (first[method, "bias"] != other[method, "bias"]).any()


def test_methods_see_the_same_noise_whoever_else_is_asked(small: tuple[td.Counts, td.Plan]) -> None:
    together, alone = simulate(*small, ALL, 300, 5), simulate(*small, ["joint"], 300, 5)
    np.testing.assert_array_equal(together["joint", "mse"], alone["joint", "mse"])


@pytest.mark.parametrize("replicates", [1, 2, 3, 63, 64, 65, 129])
def test_every_replicate_is_counted_once(small: tuple[td.Counts, td.Plan], replicates: int) -> None:
    table = simulate(*small, ["raw", "joint/rounded"], replicates, 5)
    assert table.replicates == replicates
    for method in table.methods:
        assert (table.densities[method].sum(axis=-1) == replicates).all()
    assert np.isnan(table["raw", "variance"]).all() == (replicates == 1)
    assert np.isnan(table["raw", "wasserstein_corrected"]).all() == (replicates == 1)


def test_distinct_chunks_have_distinct_noise(small: tuple[td.Counts, td.Plan]) -> None:
    study = simulate_module._study(*small, methods_module.parse_methods("raw"), (), 5, 1, None)
    drawn = [replicates.draw(study, chunk) for chunk in range(3)]
    assert (drawn[0] != drawn[1]).mean() > 0.5
    assert (drawn[1] != drawn[2]).mean() > 0.5


def test_moments_and_bins_of_the_same_residuals(small: tuple[td.Counts, td.Plan]) -> None:
    table = simulate(*small, ["raw"], 500, 5)
    # Integer noise falls on the bins' edges, so that the bins hold the residuals themselves.
    edges = (np.arange(BINS) - BINS // 2) * table.bin_width[..., None]
    inside = (table.densities["raw"][..., [0, -1]] == 0).all(axis=-1)
    assert inside.sum() > 10
    bias = (table.densities["raw"] * edges).sum(axis=-1) / 500
    np.testing.assert_allclose(bias[inside], table["raw", "bias"][inside], atol=1e-9)
    second = (table.densities["raw"] * edges**2).sum(axis=-1) / 500
    np.testing.assert_allclose(second[inside], table["raw", "mse"][inside], atol=1e-9)


def peak_memory(replicates: int, counts: td.Counts, plan: td.Plan) -> int:
    tracemalloc.start()
    simulate(counts, plan, ["top-down", "top-down/equality"], replicates, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_replicates(small: tuple[td.Counts, td.Plan]) -> None:
    peak_memory(64, *small)
    few, many = peak_memory(2_000, *small), peak_memory(20_000, *small)
    assert many < 1.3 * few


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_keeps_what_was_finished(small: tuple[td.Counts, td.Plan], workers: int) -> None:
    seen: list[tuple[int, int]] = []

    def stop_half_way(done: int, total: int) -> None:
        seen.append((done, total))
        if done >= total // 2:
            raise KeyboardInterrupt

    table = simulate(*small, ["raw", "top-down"], 3000, 5, progress=stop_half_way, workers=workers)
    done = seen[-1][0]
    assert 1500 <= done < 3000
    assert table.replicates == done
    assert all(total == 3000 for _, total in seen)
    assert (table.densities["raw"].sum(axis=-1) == done).all()
    frame = table.to_frame()
    assert table.to_arrow().to_pandas().equals(frame)
    assert (frame["replicates"] == done).all()
    # They are the first replicates of the whole study, task by task.
    whole = simulate(*small, ["raw", "top-down"], 3000, 5)
    assert (table.densities["raw"] <= whole.densities["raw"]).all()


def test_an_interrupt_never_leaves_sums_half_added(
    small: tuple[td.Counts, td.Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, merge = [], Histogram.merge

    def merge_and_interrupt(self: Histogram, other: Histogram) -> None:
        calls.append(1)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        merge(self, other)

    monkeypatch.setattr(Histogram, "merge", merge_and_interrupt)
    # A shell that runs the tests in the background ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        table = simulate(*small, ["raw", "top-down"], 3000, 5)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert 0 < table.replicates < 3000
    monkeypatch.undo()
    monkeypatch.setattr(simulate_module, "_LARGEST_CHUNK", 64)

    def stop(done: int, total: int) -> None:
        if done == table.replicates:
            raise KeyboardInterrupt

    assert not tables_differ(table, simulate(*small, ["raw", "top-down"], 3000, 5, progress=stop))


def test_an_interrupt_before_anything_was_finished_is_passed_on(
    small: tuple[td.Counts, td.Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(task: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate_module, "run_task", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulate(*small, ["raw"], 3000, 5)


def test_a_study_of_few_blocks_starts_few_processes(
    small: tuple[td.Counts, td.Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, start = [], parallel.ProcessWorkers._start

    def counted(self: parallel.ProcessWorkers) -> Any:
        begun.append(1)
        return start(self)

    monkeypatch.setattr(parallel.ProcessWorkers, "_start", counted)
    table = simulate(*small, ["raw"], 40, 5, workers=300)
    assert table.replicates == 40
    assert 1 < len(begun) <= 2
    assert not tables_differ(table, simulate(*small, ["raw"], 40, 5))


def test_progress_ends_with_all(small: tuple[td.Counts, td.Plan]) -> None:
    seen: list[int] = []
    simulate(*small, ["raw"], 3000, 5, workers=2, progress=lambda done, total: seen.append(done))
    assert seen == sorted(set(seen))
    assert seen[-1] == 3000
    assert len(seen) > 8


# -- other contracts ---------------------------------------------------------------------------------------------------


def test_rounded_methods_are_whole_and_nonnegative(small: tuple[td.Counts, td.Plan]) -> None:
    study = simulate_module._study(*small, methods_module.parse_methods(ALL), (), 5, 1, None)
    values = replicates.draw(study, 0)
    problem = Problem(values, study.variance, study.tree, nonnegative=False, lower=study.lower)
    for method in study.methods:
        x = method.apply(problem, td.SeededSource(1))
        if method.rounded:
            np.testing.assert_array_equal(x, np.rint(x))
        if method.nonnegative:
            assert x.min() >= 0
        if method.label != "raw":
            for families in study.tree.families_down():
                np.testing.assert_allclose(
                    families.total(x[..., families.children]), x[..., families.parents], atol=1e-8
                )


def test_rounding_adds_less_than_it_could(small: tuple[td.Counts, td.Plan]) -> None:
    table = simulate(*small, ["top-down", "top-down/rounded"], 2000, 5)
    difference = np.abs(table["top-down", "bias"] - table["top-down/rounded", "bias"])
    assert 0 < difference.max() < 0.5


def test_what_the_table_says_of_itself(small: tuple[td.Counts, td.Plan]) -> None:
    assert "confidential" in simulate(*small, ["raw"], 5, 1).notice
    assert "public" in simulate(*small, ["raw"], 5, 1, public_input=True).notice
    assert "values" not in repr(simulate(*small, ["raw"], 5, 1))


@pytest.mark.parametrize("replicates", [0, -1, 1.5, True])
def test_impossible_replicates_are_refused(small: tuple[td.Counts, td.Plan], replicates: object) -> None:
    with pytest.raises(ConfigError, match=str(replicates)):
        simulate(*small, ["raw"], replicates, 1)


def test_unknown_names_are_refused(small: tuple[td.Counts, td.Plan]) -> None:
    with pytest.raises(ConfigError, match="reference"):
        simulate(*small, ["raw"], 5, 1, reference="normal")
    with pytest.raises(ConfigError, match="did you mean 'top-down'"):
        simulate(*small, ["topdown"], 5, 1)
    with pytest.raises(BudgetError):
        simulate(small[0], td.Plan(epsilon=1, shares={"0": "0.5", "county": "0.5"}), ["raw"], 5, 1)


def test_distances_can_be_left_out(small: tuple[td.Counts, td.Plan]) -> None:
    table = simulate(*small, ["raw"], 50, 1, distances=False)
    assert np.isnan(table["raw", "wasserstein"]).all()
    assert table.densities == {}
    assert table["raw", "bias"].shape == table.truth.shape


def test_a_level_that_is_not_measured_has_no_raw_error() -> None:
    plan = td.Plan("geometric", 1.0, shares={"0": 1, "1": 0})
    table = td.simulate(family([3, 4]), plan, ["raw", "top-down"], 50, 1)
    assert np.isnan(table["raw", "bias"][1:]).all()
    assert np.isfinite(table["raw", "bias"][0]).all()
    assert np.isfinite(table["top-down", "bias"]).all()


def test_what_measure_refuses_is_refused() -> None:
    counts = family([3, 4])
    second = td.Plan(
        "geometric",
        epsilon=1,
        shares={counts.geography.levels[0]: 0, counts.geography.levels[1]: {"detailed": 0.5, "age": 0.5}},
    )
    with pytest.raises(BudgetError, match="query 'age'"):
        simulate(counts, second, ["raw"], 10, 1)
    near = family([2**53 - 20, 0])
    with pytest.raises(CountsError, match="so near to"):
        simulate(near, td.Plan("geometric", epsilon=1), ["raw"], 10, 1)


# -- several queries --------------------------------------------------------------------------------------------------


def test_several_queries_are_simulated_without_bias_and_with_the_variance_that_is_known(
    geography: td.Geography,
) -> None:
    schema = td.Schema.from_mapping(
        {"sex": ["f", "m"], "age": ["0", "1", "2"]}, {"age": {"minor": {"y": ["0"], "n": ["1", "2"]}}}
    )
    rng = np.random.default_rng(5)
    leaves = geography.geoid[geography.tree.leaves]
    frame = {"county": leaves} | {cell: rng.integers(0, 40, len(leaves)) for cell in schema.cells()}
    counts = td.Counts.from_table(frame, geography, geoid="county", cells=schema.cells(), schema=schema)
    shares = {level: {"total": "1/12", "minor*sex": "1/12", "detailed": "1/6"} for level in geography.levels}
    plan = td.Plan("discrete-gaussian", rho=1, shares=shares)
    methods = ["raw", "gls", "top-down/equality"]
    table = td.simulate(counts, plan, methods, 4000, 2, distances=False)
    for method in methods[1:]:
        estimate = td.project(td.measure(counts, plan), method.removesuffix("/equality"), nonnegative=False)
        assert estimate.variance is not None
        assert np.abs(table[method, "bias"] / table[method, "bias_se"]).max() < 4.5
        score = (table[method, "variance"] - estimate.variance) / table[method, "variance_se"]
        assert np.abs(score).max() < 4.5
        # Wrong by a tenth would be seen.
        assert np.abs(score + 0.1 * estimate.variance / table[method, "variance_se"]).max() > 4.5
    assert (table["gls", "variance"] < table["raw", "variance"]).mean() > 0.95
    with pytest.raises(ConfigError, match=r"method 'joint' .* has no solver of several queries"):
        td.simulate(counts, plan, ["joint"], 10, 1)


# -- zeros and means by level ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0, 10**9])
def test_zeros_of_sums_alone_are_those_of_exact_arithmetic(shift: int) -> None:
    """Estimates are whole multiples of 1/21 here; float64 puts many that are 0 a little beside it."""
    counts = counts_of([0, 1, 2, 0, 0, 3, 1, 0, 2, 0, 1, 0, 4, 0, 1, 0, 2, 0, 1, 0, shift], [[3], [7, 7, 7]])
    plan, labels = td.Plan(epsilon=2).for_levels(counts.geography.levels), ["top-down/equality", "top-down", "raw"]
    table = simulate(counts, plan, labels, 400, 5, distances=False)
    study = simulate_module._study(counts, plan, simulate_module.parse_methods(labels), (), 5, 1, False)
    y = replicates.draw(study, 0)[:400, 0].astype(np.int64)
    state = 3 * y[:, 1:4] + (y[:, :1] - y[:, 1:4].sum(axis=1, keepdims=True))  # times 3
    leaves = y[:, 4:].reshape(400, 3, 7)
    county = 21 * leaves + (state - 3 * leaves.sum(axis=2))[:, :, None]  # times 21
    exact = np.concatenate([y[:, :1], state, county.reshape(400, 21)], axis=1) == 0
    assert 0.004 < exact[:, 4:].mean() < 0.2
    np.testing.assert_allclose(table["top-down/equality", "zeros"][:, 0], exact.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(table["raw", "zeros"][:, 0], (y == 0).mean(axis=0), atol=1e-12)
    assert table["top-down", "zeros"][4:, 0].mean() > exact[:, 4:].mean()


def test_means_by_level_have_the_error_of_the_replicates_own_means() -> None:
    counts = counts_of([[30, 2, 1, 0, 4], [3, 5, 0, 1, 1]], [[2], [2, 3]])
    plan, labels = td.Plan(epsilon=1).for_levels(counts.geography.levels), ["raw", "top-down"]
    table = simulate(counts, plan, labels, 300, 6, distances=False)
    study = simulate_module._study(counts, plan, simulate_module.parse_methods(labels), (), 6, 1, False)
    values = replicates.draw(study, 0)[:300]
    problem = Problem(values, study.variance, study.tree, nonnegative=False, lower=study.lower)
    for method in study.methods:
        x = method.apply(problem, td.SeededSource(1))
        e = x - study.truth
        for number, level in enumerate(counts.geography.levels):
            nodes = counts.geography.level_slice(level)
            for name, part in (("bias", e), ("mse", e * e), ("zeros", x == 0)):
                means = part[..., nodes].mean(axis=2)
                found = table.level_means[method.label]
                np.testing.assert_allclose(found[name][number], means.mean(axis=0), atol=1e-12)
                error = means.std(axis=0, ddof=1) / np.sqrt(300)
                np.testing.assert_allclose(found[f"{name}_se"][number], error, rtol=1e-6, atol=1e-12)
    one = simulate(counts, plan, labels, 1, 6, distances=False)
    assert np.isnan(one.level_means["raw"]["bias_se"]).all()


def test_means_by_level_do_not_depend_on_the_workers() -> None:
    counts = counts_of([[30, 2, 1, 0, 4], [3, 5, 0, 1, 1]], [[2], [2, 3]])
    rules = [td.FundShare("c0"), td.Threshold("c1", 2)]
    found = [simulate(counts, td.Plan(epsilon=1), ["raw", "top-down"], 400, 6, rules=rules, workers=w) for w in (1, 2)]
    for name, values in found[0].level_means["top-down"].items():
        np.testing.assert_array_equal(values, found[1].level_means["top-down"][name])
    assert found[0].rule_totals == found[1].rule_totals


def test_what_was_not_measured_has_no_raw_mean_and_decides_nothing() -> None:
    plan = td.Plan(epsilon=1, shares={"0": "1/2", "1": 0, "2": "1/2"})
    counts, rules = counts_of([3, 2, 1, 0, 4], [[2], [2, 3]]), [td.FundShare("c0"), td.Threshold("c0", 2)]
    table = simulate(counts, plan, ["raw", "gls"], 20, 6, rules=rules, distances=False)
    assert np.isnan(table.level_means["raw"]["bias"][:, 0]).tolist() == [False, True, False]
    assert np.isfinite(table.level_means["gls"]["bias"]).all()
    assert np.isfinite(table.rule_totals["raw", "share of c0"]["moved"])
    leaves = td.Plan(epsilon=1, shares={"0": "1/2", "1": "1/2", "2": 0})
    table = simulate(counts, leaves, ["raw", "gls"], 20, 6, rules=rules, distances=False)
    for rule in rules:
        # Not the true counts' own decisions, which nobody has drawn.
        assert np.isnan(list(table.rule_totals["raw", rule.label].values())).all()
        assert np.isnan(table.rules["raw", rule.label]["mean_absolute_error"]).all()
        assert np.isfinite(table.rules["raw", rule.label]["truth"]).all()
        assert table.rule_totals["gls", rule.label]["moved"] > 0
