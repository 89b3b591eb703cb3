from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from topdown.errors import BudgetError, ConfigError
from topdown.noise import SecureSource, SeededSource
from topdown.privacy import PureAccountant
from topdown.research.pmse import selection
from topdown.research.pmse.chains import Jumps, metropolis, random_walk
from topdown.research.pmse.classifiers import CART, Logistic
from topdown.research.pmse.generators import GaussianRegressions, LogLinear
from topdown.research.pmse.pmse_mechanism import Candidates, ExpectedPMSE, PMSEMechanism
from topdown.research.pmse.selection import (
    draw_exponential,
    draw_permute_and_flip,
    exponential_probabilities,
)
from topdown.research.pmse.trees import OptimalTree
from topdown.workload.schema import Schema

pytestmark = pytest.mark.system

EXPONENTS = [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(7, 2), Fraction(1, 2)]
GAUSSIAN = GaussianRegressions(2, prior_variance=10.0)


# -- exact selection -------------------------------------------------------------------------------------------------


def counts(draw: object, exponents: list[Fraction], times: int) -> np.ndarray:
    source = SeededSource(1)
    return np.bincount([draw(exponents, source) for _ in range(times)], minlength=len(exponents))  # type: ignore[operator]


def p_value(seen: np.ndarray, law: np.ndarray) -> float:
    return float(chisquare(seen, law * seen.sum()).pvalue)


def test_the_exponential_law_is_drawn_and_others_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_BATCH", 8)
    seen = counts(draw_exponential, EXPONENTS, 6000)
    law = exponential_probabilities(EXPONENTS)
    weights = np.exp([0, -0.5, -1, -3.5, -0.5])
    np.testing.assert_allclose(law, weights / weights.sum(), rtol=1e-14)
    assert p_value(seen, law) > 1e-9
    for factor in (0.8, 1.25):
        wrong = exponential_probabilities([x * Fraction(factor) for x in EXPONENTS])
        assert p_value(seen, wrong) < 1e-3


def permute_and_flip_law(exponents: list[Fraction]) -> np.ndarray:
    """By going through all orders."""
    law = np.zeros(len(exponents))
    for order in permutations(range(len(exponents))):
        left = 1.0
        for k in order:
            law[k] += left * math.exp(-exponents[k])
            left *= 1 - math.exp(-exponents[k])
    return law / math.factorial(len(exponents))


def test_permute_and_flip_has_the_law_of_its_definition_and_is_never_worse() -> None:
    law = permute_and_flip_law(EXPONENTS)
    assert law.sum() == pytest.approx(1)
    seen = counts(draw_permute_and_flip, EXPONENTS, 6000)
    assert p_value(seen, law) > 1e-9
    assert p_value(seen, exponential_probabilities(EXPONENTS)) < 1e-9
    x = np.array([float(e) for e in EXPONENTS])
    assert law @ x < exponential_probabilities(EXPONENTS) @ x
    # e^(2 times the largest change) bounds the ratio, as for the exponential mechanism.
    moved = [Fraction(1, 4), Fraction(1, 4), Fraction(5, 4), Fraction(13, 4), Fraction(3, 4)]
    least = min(moved)
    ratio = permute_and_flip_law([m - least for m in moved]) / law
    assert max(ratio.max(), (1 / ratio).max()) <= math.exp(0.5)


class Words:
    """A source of given 64-bit words."""

    fit_for_release = False

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def read(self, nbytes: int) -> bytes:
        return b"".join(self.words.pop(0).to_bytes(8, "little") for _ in range(nbytes // 8))


def test_coins_fetch_more_bits_where_64_do_not_decide() -> None:
    exponents = [Fraction(1, 3)]
    edge = math.floor(2**64 * Fraction(math.exp(-1 / 3)))
    coins = selection._Enclosures(exponents)
    low, high = coins._bounds(0, 64)
    assert low <= edge + 2**12
    assert high - low < 2**8
    assert coins.bernoulli(0, Words(low - 1))
    assert not coins.bernoulli(0, Words(high))
    undecided = Words(low, 0)
    assert coins.bernoulli(0, undecided) == (low << 64 < coins._bounds(0, 128)[0])
    assert undecided.words == []


def test_uniform_indices_refuse_the_last_incomplete_round() -> None:
    limit = 2**64 - 2**64 % 10
    assert selection._uniform(10, 1, Words(limit, 23)).tolist() == [3]
    assert selection._uniform(10, 1, Words(limit - 1)).tolist() == [9]
    assert selection._uniform(8, 1, Words(2**64 - 1)).tolist() == [7]


def test_exponents_that_cannot_be_are_refused() -> None:
    for wrong in ([], [Fraction(-1)]):
        with pytest.raises(ConfigError, match="at least one candidate"):
            draw_exponential(wrong, SeededSource(1))
    with pytest.raises(ConfigError, match="subtract the least"):
        draw_permute_and_flip([Fraction(1)], SeededSource(1))


# -- the mechanism ---------------------------------------------------------------------------------------------------


def toy(n: int = 4, candidates: int = 6) -> tuple[PMSEMechanism, Candidates]:
    mechanism = PMSEMechanism(GAUSSIAN, "1/2", ExpectedPMSE(sets=2), candidates=candidates)
    return mechanism, mechanism.propose(n, SeededSource(2))


@pytest.mark.parametrize("bound", ["exact", "paper"])
@pytest.mark.parametrize("depth", [1, 2])
def test_neighbours_probabilities_differ_by_at_most_e_to_the_epsilon(depth: int, bound: str) -> None:
    quality = ExpectedPMSE(OptimalTree(depth), sets=2, bound=bound)  # type: ignore[arg-type]
    mechanism = PMSEMechanism(GAUSSIAN, 3, quality, candidates=6)
    candidates = mechanism.propose(4, SeededSource(2))
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(40):
        original = rng.normal(0, 4, (4, 2))
        neighbour = original.copy()
        neighbour[rng.integers(4)] = rng.normal(0, 40, 2)
        first, second = (mechanism.probabilities(one, candidates) for one in (original, neighbour))
        worst = max(worst, float(np.abs(np.log(first / second)).max()))
    assert worst <= 3
    assert worst > 0.3  # neighbours that matter are among them; the next test attains the bound


def test_the_ratio_comes_near_to_e_to_the_epsilon_where_the_sensitivity_is_attained() -> None:
    # Two candidates: one original record leaves the side of the first's synthetic records, for the second's.
    sets = (np.full((4, 1), 0.0),), (np.full((4, 1), 10.0),)
    mechanism = PMSEMechanism(GaussianRegressions(1), 2, ExpectedPMSE(sets=1), candidates=2)
    candidates = Candidates(np.zeros((2, 2)), sets)
    first = mechanism.exponents(np.array([0.0, 5, 5, 5]), candidates)
    second = mechanism.exponents(np.array([10.0, 5, 5, 5]), candidates)
    assert first[1] - first[0] == second[0] - second[1]
    change = (first[1] - first[0]) - (second[1] - second[0])
    assert 2 - Fraction(1, 10**9) < change <= 2


def test_exponents_are_the_quality_s_excess_over_twice_the_sensitivity() -> None:
    mechanism, candidates = toy()
    original = np.random.default_rng(4).normal(size=(4, 2))
    quality = np.array([mechanism.quality.value(original, sets) for sets in candidates.synthetic_sets])
    exponents = mechanism.exponents(original, candidates)
    assert all(isinstance(x, Fraction) for x in exponents)
    assert min(exponents) == 0
    wanted = 0.5 * (quality - quality.min()) / (2 / 10)
    np.testing.assert_allclose([float(x) for x in exponents], wanted, rtol=1e-9, atol=1e-11)
    law = np.exp(-wanted)
    np.testing.assert_allclose(mechanism.probabilities(original, candidates), law / law.sum(), rtol=1e-9)


@pytest.mark.parametrize("option", ["exponential", "permute-and-flip"])
def test_releases_follow_the_law_of_the_candidates(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = PMSEMechanism(GAUSSIAN, 2, ExpectedPMSE(sets=1), candidates=4, selection=option)  # type: ignore[arg-type]
    candidates = mechanism.propose(6, SeededSource(9))
    monkeypatch.setattr(PMSEMechanism, "propose", lambda *_: candidates)
    original = np.random.default_rng(5).normal(size=(6, 2))
    made = mechanism.release(original, releases=2000, source=SeededSource(6))
    which = [int(np.flatnonzero((candidates.parameters == p).all(axis=1))[0]) for p in made.parameters]
    exponents = mechanism.exponents(original, candidates)
    laws = [exponential_probabilities(exponents), permute_and_flip_law(exponents)]
    right, wrong = laws if option == "exponential" else laws[::-1]
    seen = np.bincount(which, minlength=4)
    assert p_value(seen, right) > 1e-9
    assert p_value(seen, wrong) < 1e-9
    assert p_value(seen, np.full(4, 0.25)) < 1e-9


def test_candidates_do_not_depend_on_the_data() -> None:
    mechanism, candidates = toy()
    again = mechanism.propose(4, SeededSource(2))
    assert (candidates.parameters == again.parameters).all()
    assert candidates.parameters.shape == (6, 5)
    assert all(len(sets) == 2 and sets[0].shape == (4, 2) for sets in candidates.synthetic_sets)


def test_a_large_epsilon_finds_the_better_parameters() -> None:
    truth = np.array([2.0, 3.0, -2.5, 0.5, 2.0])
    original = GAUSSIAN.sample(truth, 200, SeededSource(7))
    sets = tuple((GAUSSIAN.sample(p, 200, SeededSource(8)),) for p in (truth, truth + 6, truth - 6))
    mechanism = PMSEMechanism(GAUSSIAN, 4, ExpectedPMSE(sets=1), candidates=3)
    law = mechanism.probabilities(original, Candidates(np.zeros((3, 5)), sets))
    assert law[0] > 0.999
    weak = PMSEMechanism(GAUSSIAN, "1/1000", ExpectedPMSE(sets=1), candidates=3)
    assert weak.probabilities(original, Candidates(np.zeros((3, 5)), sets)).max() < 0.35


# -- what it costs and what it says ----------------------------------------------------------------------------------


def test_releases_cost_epsilon_each_and_are_charged_first() -> None:
    original = np.random.default_rng(1).normal(size=(10, 2))
    accountant = PureAccountant(limit=2)
    mechanism = PMSEMechanism(GAUSSIAN, "1/2", ExpectedPMSE(sets=1), candidates=5)
    made = mechanism.release(original, releases=3, accountant=accountant)
    assert accountant.total == Fraction(3, 2)
    assert made.events == accountant.events
    assert [e.epsilon for e in made.events] == [Fraction(1, 2)] * 3
    assert {e.neighbours for e in made.events} == {"substitute"}
    assert len(made.parameters) == len(made.data) == 3
    assert all(one.shape == (10, 2) for one in made.data)
    assert made.fit_for_release
    assert "epsilon = 3/2 in all, 1/2 for each of 3 releases" in made.guarantee
    with pytest.raises(BudgetError, match="beyond the limit of 2"):
        mechanism.release(original, releases=2, accountant=accountant, source=Words())
    assert accountant.total == Fraction(3, 2)


def test_a_seed_is_not_fit_for_release() -> None:
    mechanism = PMSEMechanism(GAUSSIAN, 1, ExpectedPMSE(sets=1), candidates=2)
    assert not mechanism.release(np.zeros((5, 2)), source=SeededSource(1)).fit_for_release
    assert mechanism.release(np.zeros((5, 2)), source=SecureSource()).fit_for_release


def test_greedy_trees_carry_no_guarantee_and_say_so() -> None:
    quality = ExpectedPMSE(CART(depth=2), sets=1, bound="paper")
    assert not quality.pure
    mechanism = PMSEMechanism(GAUSSIAN, 1, quality, candidates=3)
    made = mechanism.release(np.random.default_rng(1).normal(size=(30, 2)))
    assert made.events == ()
    assert made.guarantee.startswith("No pure guarantee")
    assert not made.fit_for_release
    with pytest.raises(BudgetError, match="No pure guarantee"):
        mechanism.release(np.zeros((30, 2)), accountant=PureAccountant())


def test_categorical_records_go_through_too() -> None:
    schema = Schema.from_mapping({"sex": ["f", "m"], "age": ["young", "old"]})
    family = LogLinear(schema)
    original = family.sample(np.array([0.5, 1.0, 0.3]), 60, SeededSource(1))
    made = PMSEMechanism(family, 1, ExpectedPMSE(OptimalTree(2), sets=1), candidates=4).release(original)
    assert list(made.data[0].columns) == ["sex", "age"]
    assert len(made.data[0]) == 60


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: PMSEMechanism(GAUSSIAN, 0), BudgetError, "epsilon is 0"),
        (lambda: PMSEMechanism(GAUSSIAN, "x"), BudgetError, "epsilon is 'x'"),
        (lambda: PMSEMechanism(GAUSSIAN, 1, candidates=0), ConfigError, "0 candidates"),
        (lambda: PMSEMechanism(GAUSSIAN, 1, selection="best"), ConfigError, "selection 'best'"),  # type: ignore[arg-type]
        (lambda: ExpectedPMSE(Logistic()), ConfigError, "give OptimalTree"),  # type: ignore[arg-type]
        (lambda: ExpectedPMSE(sets=0), ConfigError, "0 sets"),
        (lambda: PMSEMechanism(GAUSSIAN, 1).release(np.zeros((3, 2)), releases=0), ConfigError, "releases is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()  # type: ignore[operator]


# -- chains ----------------------------------------------------------------------------------------------------------


def test_a_random_walk_draws_from_its_density() -> None:
    # Density of N(1, 0.5^2): a toy whose limit is known.
    rng = np.random.default_rng(1)
    path, values, accepted = random_walk(lambda x: float(-((x[0] - 1) ** 2) / 0.5), np.array([1.0]), 1.2, 20_000, rng)
    assert path[:, 0].mean() == pytest.approx(1.0, abs=0.05)
    assert path[:, 0].std() == pytest.approx(0.5, rel=0.06)
    assert 0.3 < accepted / 20_000 < 0.7
    np.testing.assert_allclose(values, -((path[:, 0] - 1) ** 2) / 0.5)
    assert (np.diff(path[:, 0]) != 0).sum() == pytest.approx(accepted, abs=1)


def far_and_near(x: np.ndarray) -> float:
    """The log density of N((3, -2), C), C of correlation 0.8, with 0.3 of the mass, and N(0, 10^6 I) with the rest."""
    near = x - [3, -2]
    narrow = -0.5 * near @ np.linalg.solve(NARROW, near) - 0.5 * math.log(np.linalg.det(NARROW))
    return float(np.logaddexp(math.log(0.3) + narrow, math.log(0.7) - 0.5 * (x @ x) / 1e6 - math.log(1e6)))


NARROW = np.array([[0.04, 0.016], [0.016, 0.01]])
MIXTURE = Jumps(
    np.array([0.4, 0.6]), np.array([[2.9, -2.0], [0.0, 0.0]]), np.array([np.diag([0.05, 0.02]), np.diag([9e5, 2e6])])
)


def test_jumps_are_drawn_from_the_density_that_is_said() -> None:
    from scipy.stats import kstest, multivariate_t

    x = np.array([2.7, -2.2])
    laws = [multivariate_t(m, c, df=5) for m, c in zip(MIXTURE.means, MIXTURE.scales, strict=True)]
    assert MIXTURE.log_density(x) == pytest.approx(math.log(0.4 * laws[0].pdf(x) + 0.6 * laws[1].pdf(x)), rel=1e-12)
    oblique = Jumps(np.array([1.0]), np.array([[1.0, 2.0]]), np.array([[[2.0, 0.9], [0.9, 1.0]]]), freedom=3.0)
    rng = np.random.default_rng(4)
    drawn = np.array([oblique.draw(rng) for _ in range(4000)])
    # A t law is one in every direction, wider by the square root of the scale's quadratic form.
    for direction in ([1.0, 0.0], [1.0, -1.0], [0.6, 0.8]):
        along = (drawn - [1, 2]) @ direction / math.sqrt(direction @ oblique.scales[0] @ direction)
        assert kstest(along, "t", args=(3.0,)).pvalue > 1e-4


def test_with_jumps_a_walk_finds_what_is_narrow_and_what_is_wide_in_their_shares() -> None:
    rng = np.random.default_rng(5)
    width = np.array([0.1, 0.05])
    path, values, _ = random_walk(far_and_near, np.array([900.0, 0.0]), width, 20_000, rng, MIXTURE)
    near = np.hypot(*(path - [3, -2]).T) < 2
    assert near.mean() == pytest.approx(0.3, abs=0.03)
    assert (np.diff(near.astype(int)) != 0).sum() > 1000
    np.testing.assert_allclose(np.cov(path[near].T), NARROW, rtol=0.1)
    np.testing.assert_allclose(path[~near].std(axis=0), 1000, rtol=0.08)
    np.testing.assert_allclose(values[:50], [far_and_near(x) for x in path[:50]])


def test_a_density_that_is_estimated_without_bias_leaves_the_limit_as_it_is() -> None:
    rng = np.random.default_rng(6)
    noise = 0.8

    def estimated(x: np.ndarray) -> float:
        return far_and_near(x) + noise * rng.standard_normal() - noise**2 / 2

    path, *_ = random_walk(estimated, np.array([3.0, -2.0]), np.array([0.1, 0.05]), 20_000, rng, MIXTURE)
    near = np.hypot(*(path - [3, -2]).T) < 2
    assert near.mean() == pytest.approx(0.3, abs=0.04)
    np.testing.assert_allclose(np.cov(path[near].T), NARROW, rtol=0.15)


def test_shares_of_jumps_go_where_the_mass_is() -> None:
    rng = np.random.default_rng(7)
    adapted = MIXTURE.adapted(far_and_near, 4000, rng)
    np.testing.assert_allclose(adapted.shares, [(0.4 + 0.3) / 2, (0.6 + 0.7) / 2], atol=0.02)
    np.testing.assert_array_equal(adapted.means, MIXTURE.means)
    assert MIXTURE.adapted(lambda _: -math.inf, 5, rng) is MIXTURE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shares": np.array([0.5, 0.6])}, "add up to 1"),
        ({"shares": np.array([1.5, -0.5])}, "above 0"),
        ({"shares": np.array([1.0])}, "by component"),
        ({"means": np.zeros(2)}, "by component"),
        ({"freedom": 0.0}, "freedom 0.0"),
        ({"often": 0.0}, "often 0.0"),
        ({"scales": np.array([np.eye(2), -np.eye(2)])}, "not positive definite"),
    ],
    ids=["too much", "negative", "too few", "one mean", "no freedom", "never", "not definite"],
)
def test_what_is_no_mixture_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(MIXTURE, **change).log_density(np.zeros(2))


def test_chains_with_jumps_agree_from_starts_far_apart() -> None:
    original = np.random.default_rng(2).normal(3, 1, (60, 1))
    family = GaussianRegressions(1, prior_variance=1e4)
    signs = np.array([[3.0, 1.0], [3.0, -1.0]])
    wide = np.array([np.eye(2) * 2] * 2 + [np.eye(2) * 1e4])
    jumps = Jumps(np.array([0.3, 0.3, 0.4]), np.vstack([signs, np.zeros(2)]), wide)
    starts = np.array([[3, 1], [90, 1], [-90, 10], [0, 50.0]])
    one = ExpectedPMSE(sets=1, bound="paper")
    made, apart = (
        metropolis(family, original, 1, source=SeededSource(1), quality=one, steps=400, starts=starts, jumps=these)
        for these in (jumps, None)
    )
    assert made.rhat[0] < 1.1 < 2 < apart.rhat[0]


def test_chains_report_how_far_they_agree_and_that_they_are_approximate() -> None:
    rng = np.random.default_rng(2)
    original = rng.normal(3, 1, (60, 1))
    family = GaussianRegressions(1)
    made = metropolis(family, original, 20, source=SeededSource(1), steps=150, starts=np.array([3.0, 1.0]))
    assert made.parameters.shape == (4, 150, 2)
    assert made.rhat.shape == made.effective_samples.shape == (2,)
    assert 0 < made.accepted < 1
    assert made.statement.startswith("Approximate")
    assert made.draw(SeededSource(3)).shape == (2,)
    apart = metropolis(
        family,
        original,
        20,
        source=SeededSource(1),
        steps=20,
        step=1e-3,
        starts=np.array([[3, 1], [9, 1], [-9, 1], [0, 5.0]]),
    )
    assert apart.rhat[0] > 2 > made.rhat[0]
    with pytest.raises(ConfigError, match="1 chains of"):
        metropolis(family, original, 1, source=SeededSource(1), chains=1)


def test_a_chain_s_density_is_the_mechanism_s(monkeypatch: pytest.MonkeyPatch) -> None:
    # One chain's first values: log prior minus epsilon n u / 2, with the source's sensitivity 1/n.
    original = np.random.default_rng(3).normal(size=(20, 1))
    monkeypatch.setattr(ExpectedPMSE, "value", lambda *_: 0.2)
    family = GaussianRegressions(1)
    made = metropolis(family, original, 3, source=SeededSource(1), steps=10)
    for chain in range(4):
        for k in range(10):
            wanted = family.log_prior(made.parameters[chain, k]) - 3 * 20 * 0.2 / 2
            assert made.log_density[chain, k] == pytest.approx(wanted)


def test_the_pure_draw_needs_neither_library(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, numpy as np\n"
        "from topdown.research.pmse.pmse_mechanism import *\nfrom topdown.research.pmse.generators import *\n"
        "PMSEMechanism(GaussianRegressions(1), 1, candidates=2).release(np.zeros((5, 1)))\n"
        "assert not {'sklearn', 'arviz'} & set(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
