"""Histograms of residuals: exact sums in any order, and the distances that they give."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import topdown as td
from support.places import GOLDEN
from topdown.geography.tree import FloatArray
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from topdown.studies import residual_bins as histogram_module
from topdown.studies.residual_bins import BINS, Histogram, Law, bin_width, distances, floor_integral, integrated_cdf

UNIT = 1 << histogram_module._FIXED_POINT
LAWS: list[Law] = [
    Laplace(3),
    Gaussian(2.5),
    DiscreteLaplace(3),
    DiscreteGaussian("5/2"),
    DiscreteLaplace(3, grid_bits=2),
    DiscreteGaussian("3/2", grid_bits=3),
]


def filled(residuals: FloatArray, width: FloatArray) -> Histogram:
    histogram = Histogram.empty(width)
    histogram.add(residuals)
    return histogram


def same(a: Histogram, b: Histogram) -> bool:
    return np.array_equal(a.counts, b.counts) and np.array_equal(a.offsets, b.offsets)


def one_by_one(residuals: FloatArray, width: FloatArray) -> Histogram:
    """What a histogram holds, residual by residual in Python's integers."""
    histogram = Histogram.empty(width)
    for row, line in enumerate(residuals):
        for residual in line:
            position = residual / width[row] + BINS // 2
            index = min(max(math.floor(position), 0), BINS - 1)
            offset = 1.0 - position if index == 0 else position - index
            histogram.counts[row, index] += 1
            histogram.offsets[row, index] += round(offset * UNIT)
    return histogram


@st.composite
def samples(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    """Residuals (rows, replicates) with values far beyond the bins, and widths."""
    rows, replicates = draw(st.integers(1, 5)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width = 2.0 ** rng.integers(-5, 3, rows)
    residuals = rng.laplace(size=(rows, replicates)) * draw(st.sampled_from([1.0, 60.0, 1e6]))
    if draw(st.booleans()):
        residuals = np.rint(residuals)
    return residuals, width


@given(samples())
def test_counts_and_offsets_are_exact(sample: tuple[FloatArray, FloatArray]) -> None:
    assert same(filled(*sample), one_by_one(*sample))


@given(samples(), st.randoms(use_true_random=False))
def test_neither_order_nor_division_matters(sample: tuple[FloatArray, FloatArray], random: object) -> None:
    residuals, width = sample
    columns = list(range(residuals.shape[1]))
    random.shuffle(columns)  # type: ignore[attr-defined]
    cut = len(columns) // 2
    first, second = filled(residuals[:, columns[:cut]], width), filled(residuals[:, columns[cut:]], width)
    whole = filled(residuals, width)
    assert same(first + second, whole)
    assert same(second + first, whole)
    first.merge(second.filled())
    assert same(first, whole)


def test_filled_bins_are_the_histogram_in_few_bytes() -> None:
    rng = np.random.default_rng(2)
    width = np.full(300, 0.25)
    for residuals in (rng.normal(0.0, 4.0, (300, 300)), np.full((300, 2), 1e6), np.zeros((300, 0))):
        one, other = filled(residuals, width), Histogram.empty(width)
        packed = one.filled()
        other.merge(packed)
        assert same(other, one)
        assert sum(part.nbytes for part in (packed.filled, packed.counts, packed.offsets)) < 2 * one.counts.nbytes / 10


def test_sums_of_many_residuals_are_exact() -> None:
    residuals = np.full((1, 40_000), 1.0 - 2.0**-30)
    histogram = filled(residuals, np.array([1.0]))
    assert histogram.counts[0, BINS // 2] == 40_000
    assert histogram.offsets[0, BINS // 2] == 40_000 * UNIT


def test_overflow_bins_keep_the_sums() -> None:
    residuals = np.array([[-1000.0, -300.5, 255.0, 900.25, 0.0]])
    histogram = filled(residuals, np.array([1.0]))
    assert histogram.counts[0, [0, -1]].tolist() == [2, 2]
    assert histogram.offsets[0, 0] == (1000.0 - 255.0 + 300.5 - 255.0) * UNIT
    assert histogram.offsets[0, -1] == (0.0 + 645.25) * UNIT


@given(st.floats(1e-3, 1e9))
def test_widths_are_powers_of_two_and_reach_five_deviations(deviation: float) -> None:
    width = bin_width(deviation)
    assert math.frexp(width)[0] == 0.5
    assert deviation / 48 < width <= deviation / 24
    assert width * BINS / 2 > 5 * deviation


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_integrated_cdf_is_the_integral_of_the_cdf(law: Law) -> None:
    points = np.array([-12.3, -4.0, -0.125, 0.0, 0.3, 1.0, 7.7])
    step = 1 / 64
    # The cdfs of the lattice laws are constant between multiples of a 64th at the latest, so that midpoints are exact.
    grid = np.arange(-110, 8, step) + step / 2
    exact_steps = np.cumsum(np.asarray(law.cdf(grid))) * step
    for x in points:
        if isinstance(law, Laplace | Gaussian):
            expected = integrate.quad(lambda t: float(law.cdf(t)), -110, x, points=[min(x, 0.0)], epsabs=1e-12)[0]
        else:
            below = np.floor(x / step) * step
            at = round((below + 110) / step)
            expected = (exact_steps[at - 1] if at else 0.0) + float(law.cdf(below)) * (x - below)
        assert integrated_cdf(law, np.array([x]))[0] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def exact_distance(sample: FloatArray, law: Law, step: float) -> float:
    """The integral of |F_empirical - F| by midpoints of a grid much finer than the bins."""
    reach = 60.0 * law.std
    grid = np.arange(-reach, reach, step) + step / 2
    empirical = np.searchsorted(np.sort(sample), grid, side="right") / len(sample)
    return float(np.abs(empirical - np.asarray(law.cdf(grid))).sum() * step)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_distances_equal_a_fine_integral(law: Law, shift: float) -> None:
    rng = np.random.default_rng(5)
    replicates = 20_000
    drawn = np.asarray(law.sample(2 * replicates, td.SeededSource(3)), dtype=np.float64)
    sample = drawn[:replicates] + shift * (rng.random(replicates) < 0.5)
    width = np.array([bin_width(law.std)])
    measured = distances(filled(sample[None], width), Histogram.empty(width), law)
    exact = exact_distance(sample, law, 1 / 256)
    assert measured.plain[0] == pytest.approx(exact, rel=0.02)
    second = np.asarray(law.ppf((np.arange(400_000) + 0.5) / 400_000))
    assert exact == pytest.approx(stats.wasserstein_distance(sample, second), abs=2e-4 * law.std)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_scale_that_is_ten_percent_off_is_seen(factor: float) -> None:
    # W1 of two Laplace laws is the difference of their scales.
    replicates, width = 100_000, np.array([bin_width(14.1)])
    sample = np.asarray(Laplace(10 * factor).sample(replicates, td.SeededSource(4)))
    half = replicates // 2
    measured = distances(filled(sample[None, :half], width), filled(sample[None, half:], width), Laplace(10))
    for value in (measured.plain[0], measured.corrected[0]):
        assert abs(value - 1.0) < 4 * measured.standard_error[0]
    assert measured.corrected[0] > 10 * measured.standard_error[0]


def test_standard_errors_are_the_spread_over_samples() -> None:
    width = np.full(400, bin_width(1.3 * math.sqrt(2)))
    sample = np.asarray(Laplace("1.3").sample((400, 2000), td.SeededSource(9)))
    measured = distances(filled(sample[:, :1000], width), filled(sample[:, 1000:], width), Laplace(1))
    assert 0.85 < measured.standard_error.mean() / measured.plain.std() < 1.15


def exact_histogram(law: td.theory.ProjectedGeometric, width: float) -> Histogram:
    """The bins of the exact law, 1e13 replicates of it: what is left is the error of the linear reading."""
    x = law.support(1e-18)
    counts = np.rint(law.pmf(x) * 1e13).astype(np.int64)
    position = x / width + BINS // 2
    index = np.clip(position, 0, BINS - 1).astype(np.int64)
    offset = np.where(index == 0, 1.0 - position, position - index)
    histogram = Histogram.empty(np.array([width]))
    np.add.at(histogram.counts[0], index, counts)
    offsets = np.zeros((1, BINS))
    np.add.at(offsets[0], index, counts * offset * UNIT)
    return Histogram(histogram.width, histogram.counts, offsets)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1, 4, 10, 20])
@pytest.mark.parametrize("n", [2, 3, 5, 30, 254])
def test_error_of_the_linear_reading_on_lattice_laws(n: int, scale: int) -> None:
    """Residuals live on Z/n and the noise on Z: the distance is read off within 1.1 %, and 3.5 % from Laplace."""
    histogram = exact_histogram(td.theory.projected_geometric(n, scale), bin_width(DiscreteLaplace(scale).std))
    nothing = Histogram.empty(histogram.width)
    to_noise = distances(histogram, nothing, DiscreteLaplace(scale)).plain[0]
    to_laplace = distances(histogram, nothing, Laplace(scale)).plain[0]
    assert to_noise == pytest.approx(td.theory.wasserstein_to_noise(n, scale, law="geometric"), rel=0.011)
    exact = td.theory.wasserstein_to_noise(n, scale, law="geometric", reference="laplace")
    assert to_laplace == pytest.approx(exact, rel=0.035)


@pytest.mark.parametrize("row", GOLDEN["S2_wasserstein1_geometric"]["rows"], ids=lambda r: f"{r['eps']}-{r['n']}")
def test_tables_of_geometric_distances_are_met(row: dict) -> None:
    scale = 1 / row["eps"]
    histogram = exact_histogram(td.theory.projected_geometric(row["n"], scale), bin_width(DiscreteLaplace(scale).std))
    nothing = Histogram.empty(histogram.width)
    to_noise = distances(histogram, nothing, DiscreteLaplace(scale)).plain[0]
    assert to_noise == pytest.approx(row["w1_vs_double_geometric"], rel=0.011)
    to_laplace = distances(histogram, nothing, Laplace(scale)).plain[0]
    assert to_laplace == pytest.approx(row["w1_vs_laplace"], rel=0.035)


@pytest.mark.parametrize("replicates", [100, 1000, 10_000])
def test_the_floor_is_what_samples_of_the_law_show(replicates: int) -> None:
    rows = 400_000 // replicates
    law, width = Laplace(1), np.full(400_000 // replicates, bin_width(math.sqrt(2)))
    sample = np.asarray(law.sample((rows, replicates), td.SeededSource(6)))
    half = replicates // 2
    measured = distances(filled(sample[:, :half], width), filled(sample[:, half:], width), law)
    exact = GOLDEN["S2_empirical_w1_floor"]["exact_finite_N"][str(replicates)]
    tolerance = 4 * measured.plain.std() / math.sqrt(rows)
    # Within a bin the linear reading smooths a crossing away: 1.5 % of the floor at the most.
    assert abs(measured.plain.mean() - exact) < tolerance + 0.015 * exact
    np.testing.assert_allclose(
        measured.floor, GOLDEN["S2_empirical_w1_floor"]["const"] / math.sqrt(replicates), rtol=1e-12
    )
    assert abs(measured.corrected.mean()) < 4 * measured.corrected.std() / math.sqrt(rows)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_spread_is_the_integral_of_the_deviation(law: Law) -> None:
    step = 1 / 512
    x = np.arange(-60 * law.std, 60 * law.std, step) + step / 2
    below = np.asarray(law.cdf(x))
    assert floor_integral(law) == pytest.approx(float(np.sqrt(below * (1 - below)).sum() * step), rel=1e-3)


def test_spread_of_wide_and_fine_laws() -> None:
    assert floor_integral(DiscreteLaplace(1000)) == pytest.approx(floor_integral(Laplace(1000)), rel=1e-3)
    assert floor_integral(DiscreteLaplace(100, grid_bits=10)) == pytest.approx(floor_integral(Laplace(100)), rel=1e-3)
    assert floor_integral(DiscreteGaussian(1000)) == pytest.approx(floor_integral(Gaussian(1000)), rel=1e-3)
    exact = td.theory.empirical_wasserstein_floor(1, 3, law="geometric") / math.sqrt(2 / math.pi)
    assert floor_integral(DiscreteLaplace(3)) == pytest.approx(exact, rel=1e-9)


def test_halves_may_be_unequal_and_empty() -> None:
    law, width = Laplace(1), np.array([bin_width(math.sqrt(2))])
    sample = np.asarray(law.sample((1, 1000), td.SeededSource(7)))
    whole, nothing = filled(sample, width), Histogram.empty(width)
    parts = distances(filled(sample[:, :10], width), filled(sample[:, 10:], width), law)
    assert parts.plain[0] == distances(whole, nothing, law).plain[0] == distances(nothing, whole, law).plain[0]
    assert np.isfinite(distances(nothing, nothing, law).plain).all()


def test_rows_of_different_widths_are_read_alike() -> None:
    law, width = Laplace(1), np.array([2.0**-5, 2.0**-4, 2.0**-5, 2.0**-6])
    sample = np.asarray(law.sample((1, 3000), td.SeededSource(8)))
    histogram = filled(np.repeat(sample, 4, axis=0), width)
    together = distances(histogram, Histogram.empty(width), law).plain
    for row in range(4):
        alone = filled(sample, width[row : row + 1])
        assert together[row] == distances(alone, Histogram.empty(alone.width), law).plain[0]
    assert np.ptp(together) < 0.06 * together.mean()


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A continuous law of which nothing is known but what the protocol asks."""

    law: Laplace | Gaussian

    @property
    def std(self) -> float:
        return self.law.std

    def cdf(self, x: object) -> object:
        return self.law.cdf(x)

    def sf(self, x: object) -> object:
        return self.law.sf(x)


@pytest.mark.parametrize("law", [Laplace(3.0), Laplace(0.01), Gaussian(2.0)])
def test_a_law_without_a_formula_is_integrated_numerically(law: Laplace | Gaussian) -> None:
    x = np.linspace(-30.0, 30.0, 1001) * law.std
    expected, found = integrated_cdf(law, x), integrated_cdf(Unknown(law), x)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, expected, atol=1e-6 * law.std)
    assert floor_integral(Unknown(law)) == pytest.approx(floor_integral(law), rel=1e-4)  # type: ignore[arg-type]
