from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.places import GOLDEN
from topdown.errors import BudgetError
from topdown.privacy import (
    LaplaceEvent,
    ZCDPAccountant,
    analytic_gaussian_sigma,
    classical_gaussian_sigma,
    conservative_rho,
    epsilon_to_zcdp,
    gaussian_delta,
    gaussian_epsilon,
    group_delta,
    group_epsilon,
    group_rho,
    guarantee,
    pure_to_zcdp,
    zcdp_divergence,
    zcdp_to_delta,
    zcdp_to_epsilon,
)

REFERENCE = GOLDEN
GAUSSIAN, ZCDP = REFERENCE["S4_gaussian"], REFERENCE["S4_zcdp"]


@pytest.mark.parametrize("row", GAUSSIAN["rows"])
def test_gaussian_golden(row: dict[str, float]) -> None:
    close = {"rel": GAUSSIAN["rel_tol"], "abs": 0}
    epsilon, delta, sensitivity = row["eps"], row["delta"], row["Delta2"]
    assert analytic_gaussian_sigma(epsilon, delta, sensitivity) == pytest.approx(row["sigma_analytic"], **close)
    actual = gaussian_delta(epsilon, row["sigma_classical"], sensitivity)
    assert actual == pytest.approx(row["delta_actual_of_classical"], **close)
    assert gaussian_epsilon(delta, row["sigma_analytic"], sensitivity) == pytest.approx(epsilon, **close)
    if epsilon < 1:
        assert classical_gaussian_sigma(epsilon, delta, sensitivity) == pytest.approx(row["sigma_classical"], **close)
    else:
        with pytest.raises(BudgetError, match="analytic_gaussian_sigma"):
            classical_gaussian_sigma(epsilon, delta, sensitivity)


@pytest.mark.parametrize("row", ZCDP["rows"])
def test_zcdp_golden(row: dict[str, float]) -> None:
    close = {"rel": ZCDP["rel_tol"], "abs": 0}
    rho, delta = row["rho"], row["delta"]
    assert zcdp_to_epsilon(rho, delta) == pytest.approx(row["eps_cks"], **close)
    assert zcdp_to_epsilon(rho, delta, method="bun-steinke") == pytest.approx(row["eps_bun_steinke"], **close)
    sigma = math.sqrt(1 / (2 * rho))
    assert gaussian_epsilon(delta, sigma) == pytest.approx(row["eps_exact_single_gaussian"], **close)
    assert zcdp_to_delta(rho, row["eps_cks"]) == pytest.approx(delta, rel=1e-7, abs=0)
    assert zcdp_to_delta(rho, row["eps_bun_steinke"], "bun-steinke") == pytest.approx(delta, rel=1e-7, abs=0)


@pytest.mark.parametrize("row", ZCDP["inverse"])
def test_zcdp_inverse_golden(row: dict[str, float]) -> None:
    close = {"rel": ZCDP["rel_tol"], "abs": 0}
    assert epsilon_to_zcdp(row["eps"], row["delta"]) == pytest.approx(row["rho_cks"], **close)
    assert epsilon_to_zcdp(row["eps"], row["delta"], "bun-steinke") == pytest.approx(row["rho_bun_steinke"], **close)


@pytest.mark.parametrize("row", ZCDP["pure"])
def test_pure_to_zcdp_golden(row: dict[str, float]) -> None:
    assert pure_to_zcdp(row["eps"]) == pytest.approx(row["rho"], rel=ZCDP["rel_tol"], abs=0)


def test_pure_to_zcdp_stays_exact() -> None:
    assert pure_to_zcdp(Fraction(1, 3)) == Fraction(1, 18)


def test_census_bureau_figures() -> None:
    """2020 Census redistricting data: the persons and the housing-unit budgets, at delta = 1e-10."""
    persons = Fraction(293764, 114921)
    assert zcdp_to_epsilon(persons, 1e-10) == pytest.approx(17.14355, abs=5e-6)
    assert zcdp_to_epsilon(persons, 1e-10, "bun-steinke") == pytest.approx(17.90, abs=5e-3)
    assert zcdp_to_epsilon(0.0749437, 1e-10) == pytest.approx(2.47467, abs=5e-6)


@pytest.mark.parametrize("shift", [1e-6, 1e-3, 0.1, 0.49, 0.51, 1.0, 2.5, 100.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.1, 1.0, 17.14, 100.0, 3000.0])
def test_gaussian_delta_beside_high_precision(epsilon: float, shift: float) -> None:
    sigma, sensitivity = 3.0, 3.0 * shift
    with mpmath.workdps(400):
        shift_exact = mpmath.mpf(sensitivity) / sigma
        low, high = epsilon / shift_exact - shift_exact / 2, epsilon / shift_exact + shift_exact / 2
        tail = [mpmath.erfc(x / mpmath.sqrt(2)) / 2 for x in (low, high)]
        exact = tail[0] - mpmath.exp(epsilon) * tail[1]
    if exact < 1e-300:
        assert gaussian_delta(epsilon, sigma, sensitivity) <= 1e-300
    else:
        assert gaussian_delta(epsilon, sigma, sensitivity) == pytest.approx(float(exact), rel=1e-11, abs=0)


@pytest.mark.parametrize("rho", [1e-10, 1e-4, 0.1, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-10, 1e-300])
def test_zcdp_is_the_infimum_over_alpha(rho: float, delta: float) -> None:
    """Beside the printed program, on a fine grid of alpha at high precision: no larger, and attained."""
    with mpmath.workdps(50):
        exponents = [mpmath.mpf(k) / 200 for k in range(-200 * 12, 200 * 14)]
        epsilons = []
        log_delta = mpmath.log(delta)
        for t in (mpmath.mpf(10) ** e for e in exponents[:: 4 if rho < 1 else 8]):
            alpha = 1 + t
            epsilons.append(rho * alpha + mpmath.log(1 - 1 / alpha) - (log_delta + mpmath.log(alpha)) / t)
        grid = float(min(epsilons))
    ours = zcdp_to_epsilon(rho, delta)
    assert ours <= max(0.0, grid) * (1 + 1e-12)
    if grid > 0.1:
        assert ours == pytest.approx(grid, rel=1e-2)
    if ours > 0:
        assert math.log(zcdp_to_delta(rho, ours)) == pytest.approx(math.log(delta), rel=1e-9)
        assert epsilon_to_zcdp(ours, delta) == pytest.approx(rho, rel=1e-8)


budgets = st.floats(1e-6, 1e4)
deltas = st.floats(-300, -0.1).map(lambda exponent: 10.0**exponent)


@given(budgets, deltas)
def test_one_gaussian_below_cks_below_bun_steinke(rho: float, delta: float) -> None:
    exact = gaussian_epsilon(delta, math.sqrt(1 / (2 * rho)))
    cks, loose = zcdp_to_epsilon(rho, delta), zcdp_to_epsilon(rho, delta, "bun-steinke")
    assert exact <= cks * (1 + 1e-9)
    assert cks <= loose


@given(budgets, deltas)
def test_conservative_rho_never_exceeds_the_target(epsilon: float, delta: float) -> None:
    rho = conservative_rho(epsilon, delta)
    assert zcdp_to_epsilon(rho, delta) <= epsilon
    assert float(rho) == pytest.approx(epsilon_to_zcdp(epsilon, delta), rel=1e-10)
    assert float(rho) <= epsilon_to_zcdp(epsilon, delta)
    assert rho.numerator < 10**13 or rho.denominator == 1


@given(st.floats(0, 1e3), deltas, st.floats(1e-3, 1e3))
def test_analytic_sigma_is_the_smallest(epsilon: float, delta: float, sensitivity: float) -> None:
    sigma = analytic_gaussian_sigma(epsilon, delta, sensitivity)
    assert gaussian_delta(epsilon, sigma, sensitivity) <= delta
    assert gaussian_delta(epsilon, sigma * (1 - 1e-9), sensitivity) > delta * (1 - 1e-12)


@given(st.floats(0.01, 0.999), deltas)
def test_analytic_sigma_is_below_the_classical_one(epsilon: float, delta: float) -> None:
    assert analytic_gaussian_sigma(epsilon, delta) < classical_gaussian_sigma(epsilon, delta)


def test_the_classical_sigma_is_too_small_for_a_large_epsilon() -> None:
    sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    assert gaussian_delta(10, sigma) == pytest.approx(2.3e-5, rel=0.02)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0, 8.0, 100.0])
def test_pure_epsilon_is_zcdp_with_xi_and_with_rho(epsilon: float, alpha: float) -> None:
    """Randomised response has the greatest Rényi divergence of all mechanisms of its epsilon."""
    with mpmath.workdps(40):
        e, a = mpmath.mpf(epsilon), mpmath.mpf(alpha)
        p = mpmath.e**e / (1 + mpmath.e**e)
        divergence = float(mpmath.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1))
    assert divergence <= zcdp_divergence(alpha, 0, epsilon) == epsilon
    assert divergence <= zcdp_divergence(alpha, pure_to_zcdp(epsilon))
    assert divergence > min(epsilon - 1 / (alpha - 1), pure_to_zcdp(epsilon) * alpha * 0.9)


def test_the_divergence_of_a_gaussian_is_rho_alpha() -> None:
    sigma, sensitivity, alpha = 2.0, 3.0, 1.7
    found = mpmath.quad(
        lambda x: mpmath.npdf(x, 0, sigma) ** alpha * mpmath.npdf(x, sensitivity, sigma) ** (1 - alpha),
        [-60, -20, 0, 20, 60],
    )
    rho = sensitivity**2 / (2 * sigma**2)
    assert zcdp_divergence(alpha, rho) == pytest.approx(float(mpmath.log(found) / (alpha - 1)), rel=1e-10)
    assert zcdp_divergence(Fraction(3, 2), Fraction(1, 3), Fraction(1, 7)) == Fraction(9, 14)


@pytest.mark.parametrize(
    ("xi", "rho", "delta"), [(0.3, 0.1, 1e-6), (2.0, 0.5, 1e-10), (0.01, 1e-6, 1e-3), (1.5, 0.0, 1e-5)]
)
def test_xi_moves_the_conversion(xi: float, rho: float, delta: float) -> None:
    def at(log_t: float) -> float:
        alpha = 1 + math.exp(log_t)
        tail = math.log1p(-1 / alpha) + (math.log(1 / delta) - math.log(alpha)) / (alpha - 1)
        return zcdp_divergence(alpha, rho, xi) + tail

    least = min(at(-15 + 0.001 * k) for k in range(40_000))
    assert zcdp_to_epsilon(rho, delta, xi=xi) == pytest.approx(max(0.0, least), abs=1e-6 + 2 * delta)
    older = zcdp_to_epsilon(rho, delta, "bun-steinke", xi=xi)
    assert older == pytest.approx(xi + zcdp_to_epsilon(rho, delta, "bun-steinke"))
    assert zcdp_to_epsilon(rho, delta, xi=xi) <= older


def test_groups() -> None:
    assert group_epsilon(Fraction(1, 3), 4) == Fraction(4, 3)
    assert group_rho(Fraction(1, 3), 4) == Fraction(16, 3)
    assert group_epsilon(0.5, 3) == 1.5
    assert group_delta(0.5, 1e-6, 1) == pytest.approx(1e-6, rel=1e-12)
    by_steps = sum(1e-6 * math.exp(0.5 * j) for j in range(4))
    assert group_delta(0.5, 1e-6, 4) == pytest.approx(by_steps, rel=1e-12)
    assert group_delta(0.0, 1e-6, 4) == pytest.approx(4e-6, rel=1e-12)
    assert group_delta(500.0, 1e-6, 10) == 1.0


def test_groups_beyond_the_range_of_doubles() -> None:
    for epsilon in (0, 1e-300, 1):
        assert group_delta(epsilon, 1e-300, 10**400) == 1.0
    assert group_delta(0, 1e-320, 10**310) == pytest.approx(1e-10, rel=1e-3)  # 1e-320 has 11 bits
    assert group_epsilon(1.0, 10**400) == group_rho(1.0, 10**200) == math.inf
    assert group_epsilon(Fraction(1), 10**400) == 10**400
    assert group_delta(9000, 1e-30, 1) == pytest.approx(1e-30, rel=1e-12)
    assert group_delta(1e-20, 1e-30, 10**20) == pytest.approx(1e-10 * math.expm1(1), rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-145, 1e-100, 1e-30, 1e-10, 1e10, 1e100, 1e300])
@pytest.mark.parametrize("delta", [1e-300, 1e-200, 1e-10, 0.5])
def test_conversions_of_extreme_budgets(epsilon: float, delta: float) -> None:
    rho = conservative_rho(epsilon, delta)
    assert zcdp_to_epsilon(float(rho), delta) <= epsilon
    assert zcdp_to_epsilon(float(rho) * (1 + 1e-9), delta) > epsilon
    # The optimum over all orders, by bisection in 400 digits.
    with mpmath.workdps(400):
        exact, log_inverse = mpmath.mpf(rho.numerator) / rho.denominator, -mpmath.log(mpmath.mpf(delta))
        low, high = mpmath.mpf(10) ** -400, mpmath.mpf(10) ** 400
        for _ in range(100):
            t = mpmath.sqrt(low * high)
            low, high = (t, high) if exact * t * t + mpmath.log1p(t) < log_inverse else (low, t)
        true = exact * (1 + 2 * t) - mpmath.log1p(1 / t)
        assert abs(true - epsilon) <= 1e-9 * (epsilon + 1 / t)  # doubles leave no more of a difference of 1/t


@pytest.mark.parametrize("rho", [1e-320, 1e-160, 1e-3, 1e33, 1e160, 1e300, 1e308])
@pytest.mark.parametrize("ratio", [0.5, 1.0 - 2.0**-53, 1.0, 1.0 + 2.0**-52, 1.5, 1e12])
def test_delta_of_extreme_budgets(rho: float, ratio: float) -> None:
    epsilon = min(rho * ratio, 1.7e308)
    # The optimum over all orders, by bisection in 700 digits.
    with mpmath.workdps(700):
        exact, low, high = mpmath.mpf(rho), mpmath.mpf(10) ** -400, mpmath.mpf(10) ** 400
        for _ in range(200):
            t = mpmath.sqrt(low * high)
            less = 2 * exact * t + exact - mpmath.mpf(epsilon) < mpmath.log1p(1 / t)
            low, high = (t, high) if less else (low, t)
        cks = mpmath.exp(-exact * t * t - mpmath.log1p(t))
        above = max(mpmath.mpf(epsilon) - exact, 0)
        bun_steinke = mpmath.exp(-above * above / (4 * exact))
    assert zcdp_to_delta(rho, epsilon) == pytest.approx(float(cks), rel=1e-9, abs=1e-300)
    assert zcdp_to_delta(rho, epsilon, "bun-steinke") == pytest.approx(float(bun_steinke), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("sensitivity", [1e-320, 1e-200, 1.0, 1e200, 1e308])
@pytest.mark.parametrize("sigma", [1e-320, 1e-200, 1.0, 1e200, 1e308])
def test_gaussian_noise_of_extreme_scales(sigma: float, sensitivity: float) -> None:
    shift = mpmath.mpf(sensitivity) / mpmath.mpf(sigma)
    with mpmath.workdps(700):
        none = mpmath.erf(shift / mpmath.sqrt(8))
    assert gaussian_delta(0, sigma, sensitivity) == pytest.approx(float(none), rel=1e-12, abs=1e-310)
    assert gaussian_delta(1e300, sigma, sensitivity) == (1.0 if shift > mpmath.mpf(2e150) else 0.0)
    for delta in (1e-320, 1e-10, 0.5):
        epsilon = gaussian_epsilon(delta, sigma, sensitivity)
        if none <= delta:
            assert epsilon == 0.0
        elif shift > 1e10:
            assert epsilon == pytest.approx(float(shift * shift / 2), rel=1e-8)
        elif epsilon < 1e-300:  # of the least numbers the next larger one is taken
            assert gaussian_delta(epsilon, sigma, sensitivity) <= delta
        else:
            assert gaussian_delta(epsilon, sigma, sensitivity) == pytest.approx(delta, rel=1e-9, abs=1e-322)


def test_zero_budget() -> None:
    assert zcdp_to_epsilon(0, 1e-10) == 0
    assert zcdp_to_epsilon(0, 1e-10, "bun-steinke") == 0
    assert zcdp_to_delta(0, 1.0) == 0
    assert zcdp_to_delta(1.0, 0.5, "bun-steinke") == 1
    assert zcdp_to_epsilon(1e-12, 0.5) == 0
    assert gaussian_epsilon(0.9, 1.0) == 0


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: zcdp_to_epsilon(-1, 1e-10), "rho is -1"),
    (lambda: zcdp_to_epsilon(math.nan, 1e-10), "rho is nan"),
    (lambda: zcdp_to_epsilon(math.inf, 1e-10), "rho is inf"),
    (lambda: zcdp_to_epsilon(Fraction(10**400), 1e-10), "rho is 1000"),
    (lambda: zcdp_to_epsilon(1, 0), "delta is 0"),
    (lambda: zcdp_to_epsilon(1, 1e-10, xi=-1), "xi is -1"),
    (lambda: zcdp_divergence(1, 0.5), "alpha is 1; give an order above 1"),
    (lambda: zcdp_divergence(2, math.inf), "rho is inf"),
    (lambda: zcdp_to_epsilon(1, 1), "delta is 1"),
    (lambda: zcdp_to_epsilon(1, 1e-10, "renyi"), "unknown method 'renyi'"),
    (lambda: zcdp_to_delta(1, -1), "epsilon is -1"),
    (lambda: epsilon_to_zcdp(0, 1e-10), "epsilon is 0"),
    (lambda: gaussian_delta(1, 0), "sigma is 0"),
    (lambda: gaussian_delta(1, 1, -1), "sensitivity is -1"),
    (lambda: analytic_gaussian_sigma(1, 2), "delta is 2"),
    (lambda: classical_gaussian_sigma(1, 1e-5), "epsilon is 1"),
    (lambda: pure_to_zcdp(-0.1), "epsilon is -0.1"),
    (lambda: group_epsilon(1.0, 0), "0 units"),
    (lambda: group_rho(1.0, 1.5), "1.5 units"),  # type: ignore[arg-type]
    (lambda: group_rho(1.0, math.inf), "inf units"),  # type: ignore[arg-type]
    (lambda: group_delta(1.0, 1e-6, "a"), "a units"),  # type: ignore[arg-type]
    (lambda: group_delta(1.0, 10**400, 2), "delta is a whole number of"),
    (lambda: group_delta(1.0, None, 2), "delta is None"),  # type: ignore[arg-type]
    (lambda: conservative_rho(1e-300, 1e-300), "epsilon 1e-300 rho is below 1e-290"),
    (lambda: conservative_rho(1e-200, 1e-300), "epsilon 1e-200 rho is below 1e-290"),
    (lambda: epsilon_to_zcdp(1e-152, 1e-300), "rho is below 1e-290"),
    (lambda: analytic_gaussian_sigma(1, 1e-10, 1e308), "sensitivity 1e\\+308 and epsilon 1.0 sigma is beyond"),
    (lambda: guarantee([LaplaceEvent(level="a", scale=Fraction(1, 10**200))], 1e-10), "rho is 5000"),
    (lambda: ZCDPAccountant([LaplaceEvent(level="a", scale=Fraction(1, 10**200))]).approx(1e-10), "rho is 5000"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        call()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-10), (8.0, 1e-3)])
def test_beside_dp_accounting(epsilon: float, delta: float) -> None:
    oracle = pytest.importorskip("dp_accounting")
    sigma = analytic_gaussian_sigma(epsilon, delta)
    assert sigma == pytest.approx(oracle.get_sigma_gaussian(epsilon, delta), rel=1e-6)
    rho = epsilon_to_zcdp(epsilon, delta)
    orders = [1 + 10 ** (k / 2000) for k in range(-4000, 8000)]
    accountant = oracle.rdp.RdpAccountant(orders=orders)
    accountant.compose(oracle.GaussianDpEvent(math.sqrt(1 / (2 * rho))))
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-6), (2.56, 1e-10), (20.0, 1e-3)])
def test_beside_opendp(rho: float, delta: float) -> None:
    oracle = pytest.importorskip("opendp.prelude")
    oracle.enable_features("contrib")
    space = oracle.atom_domain(T=int), oracle.absolute_distance(T=int)
    noise = oracle.m.make_gaussian(*space, scale=math.sqrt(1 / (2 * rho)))
    assert noise.map(1) == pytest.approx(rho, rel=1e-9)
    profile = oracle.c.make_zCDP_to_approxDP(noise).map(1)
    assert zcdp_to_epsilon(rho, delta) == pytest.approx(profile.epsilon(delta), rel=1e-6)
