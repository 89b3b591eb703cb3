"""An attacker's view of the whole release: measure, project, round, on two neighbouring tables, many times.

For every event E of a family, P(E) on one table and P(E) on its neighbour are counted; Clopper-Pearson bounds at a
confidence that is split over all events give a lower bound on the epsilon that the release really has:
ln(lower bound of P(E) / upper bound of P'(E)). It must not pass the claimed epsilon, and it must pass it where a fault
is planted. Replicates are the cells of one wide table: each is measured, projected and rounded on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta

import topdown as td
from topdown.measurements.measurements import Measurements
from topdown.privacy import zcdp_to_delta

QUICK, SHARP, LONG = 16_000, 40_000, 200_000
"""Replicates of each table."""

FALSE_ALARM = 1e-9
"""The probability that any one audit of a sound release fails."""

LEVELS = ["nation", "county"]
FIRST, SECOND = (3, 1), (2, 1)
"""Counts of the two counties: one person less in the first. Small, so that not passing below 0 matters."""


def table(leaves: tuple[int, ...], replicates: int) -> td.Counts:
    geography = td.Geography.from_edges([f"c{k}" for k in range(len(leaves))], ["US"] * len(leaves), levels=LEVELS)
    values = np.array([sum(leaves), *leaves], np.int64)
    whole = np.repeat(values[:, None], replicates, axis=1)
    return td.Counts(geography, tuple(f"cell {k}" for k in range(replicates)), whole)


Released = dict[str, NDArray[Any]]


def released(counts: td.Counts, plan: td.Plan, measure: Callable[..., Measurements], method: str) -> Released:
    """Everything that a run publishes, each (nodes, replicates); of what takes longer than a draw, a part."""
    measurements = measure(counts, plan, td.SecureSource())

    def first(part: int) -> Measurements:
        taken = slice(len(counts.cells) // part)
        return replace(measurements, cells=counts.cells[taken], values=measurements.values[:, taken])

    return {
        "measured": measurements.values,
        "unbiased": td.project(first(4), "gls").values,
        "non-negative": td.project(first(4), method, nonnegative=True).values,
        "released": td.round_counts(td.project(first(10), method, nonnegative=True)).values,
    }


def events(one: Released, other: Released) -> Iterator[tuple[str, NDArray[np.bool_], NDArray[np.bool_]]]:
    """What an attacker may look for: thresholds of values and of linear statistics, and two of them at once."""
    directions = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, -1), (1, 0, -1), (1, -1, 0), (1, -1, -1), (1, 1, 0)]
    for what in one:
        for weights in directions:
            a, b = (np.tensordot(weights, found[what][:3], axes=1) for found in (one, other))
            for cut in np.unique(np.floor(np.quantile(np.concatenate([a, b]), np.linspace(0.02, 0.98, 13)))):
                yield f"{what} {weights} <= {cut}", a <= cut, b <= cut
                yield f"{what} {weights} = {cut}", np.floor(a) == cut, np.floor(b) == cut
        # One person less in the first county: fewer there, and fewer in the nation or more in the other county.
        for first in range(-1, 4):
            for limit in range(-1, 6):
                hit = [(f[what][1] <= first) & (f[what][0] <= limit) for f in (one, other)]
                yield f"{what}: first <= {first}, nation <= {limit}", hit[0], hit[1]
                hit = [(f[what][1] <= first) & (f[what][2] >= limit) for f in (one, other)]
                yield f"{what}: first <= {first}, second >= {limit}", hit[0], hit[1]


def bounds(hits: Any, trials: Any, error: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Clopper-Pearson, elementwise: each of the two is wrong with a probability of at most ``error``."""
    hits = np.asarray(hits)
    lower = np.where(hits == 0, 0.0, beta.ppf(error, np.maximum(hits, 1), trials - hits + 1))
    upper = np.where(hits == trials, 1.0, beta.isf(error, hits + 1, np.maximum(trials - hits, 1)))
    return lower, upper


Bounds = NDArray[np.float64]


def audited(one: Released, other: Released) -> tuple[float, Bounds, Bounds]:
    """The largest epsilon that an event proves; for all events, both ways round, P(E) from below and P'(E) from above.

    The complement of an event is an event too.
    """
    counted = np.array([(a.sum(), b.sum(), len(a)) for _, a, b in events(one, other)])
    hits, trials = counted[:, :2], counted[:, 2:]
    hits, trials = np.concatenate([hits, trials - hits]), np.concatenate([trials, trials])
    lower, upper = bounds(hits, trials, FALSE_ALARM / (2 * hits.size))
    low, high = np.concatenate([lower[:, 0], lower[:, 1]]), np.concatenate([upper[:, 1], upper[:, 0]])
    with np.errstate(divide="ignore"):
        return float(np.log(low / high).max()), low, high


def audit(
    plan: td.Plan,
    replicates: int,
    *,
    measure: Callable[..., Measurements] = td.measure,
    method: str = "gls-top-down",
    neighbour: tuple[int, ...] = SECOND,
) -> float:
    """The epsilon that is proven of a release of two neighbouring tables under ``plan``."""
    one, other = (released(table(leaves, replicates), plan, measure, method) for leaves in (FIRST, neighbour))
    return audited(one, other)[0]


PURE = td.Plan(epsilon=1, shares={"nation": "1/2", "county": "1/2"})
long = pytest.param(LONG, marks=pytest.mark.slow)
both = pytest.mark.parametrize("replicates", [QUICK, long], ids=["quick", "long"])
# For what is only just seen.
sharp = pytest.mark.parametrize("replicates", [SHARP, long], ids=["quick", "long"])


def test_the_bounds_hold() -> None:
    assert bounds(0, 100, 0.05) == (0.0, pytest.approx(1 - 0.05 ** (1 / 100)))
    assert bounds(100, 100, 0.05) == (pytest.approx(0.05 ** (1 / 100)), 1.0)
    lower, upper = bounds(300, 1000, 1e-6)
    assert 0.22 < lower < 0.3 < upper < 0.39


def test_cells_are_replicates() -> None:
    # Each cell of a wide table is projected and rounded as if it were alone.
    counts = table(FIRST, 50)
    measurements = td.measure(counts, PURE, td.SeededSource(1))
    for method in ("top-down", "gls-top-down", "joint"):
        wide = td.project(measurements, method, nonnegative=True).values
        for cell in (0, 17, 49):
            alone = td.Measurements.from_arrays(
                counts.geography, measurements.values[:, cell], measurements.node_variance
            )
            np.testing.assert_allclose(
                td.project(alone, method, nonnegative=True).values[:, 0], wide[:, cell], atol=1e-9
            )


@both
@pytest.mark.parametrize(
    "method", ["gls-top-down", *(pytest.param(other, marks=pytest.mark.slow) for other in ("top-down", "joint"))]
)
def test_a_release_keeps_its_epsilon(replicates: int, method: str) -> None:
    proven = audit(PURE, replicates, method=method)
    assert proven <= 1
    # The attack is worth something: it proves most of what is spent.
    assert proven > (0.7 if replicates == QUICK else 0.88)


@sharp
@pytest.mark.parametrize("mechanism", ["geometric", "laplace"])
def test_a_substitution_keeps_its_epsilon(replicates: int, mechanism: str) -> None:
    plan = td.Plan(mechanism, epsilon=1, shares=PURE.shares, neighbours="substitute", grid_bits=3)
    proven = audit(plan, replicates, neighbour=(2, 2))
    assert 0.3 < proven <= 1
    # The same two tables under the weaker promise: one person who moves is two steps, which the nation does not see.
    weaker = td.Plan(mechanism, epsilon=1, shares=PURE.shares, grid_bits=3)
    assert 0.5 < audit(weaker, replicates, neighbour=(2, 2)) <= 1


@both
def test_a_gaussian_release_keeps_its_delta(replicates: int) -> None:
    plan = td.Plan("discrete-gaussian", rho="1/2", shares=PURE.shares)

    def excess(measure: Callable[..., Measurements]) -> float:
        """The most by which an event proves P(E) - e^epsilon P'(E) to be above the claimed delta, over epsilons."""
        one, other = (released(table(leaves, replicates), plan, measure, "gls-top-down") for leaves in (FIRST, SECOND))
        _, low, high = audited(one, other)
        return max(
            float((low - math.exp(epsilon) * high).max()) - zcdp_to_delta(0.5, epsilon)
            for epsilon in (0.25, 0.5, 1.0, 1.5, 2.0)
        )

    assert excess(td.measure) <= 0
    assert excess(halved_noise) > 0


# -- planted faults -------------------------------------------------------------------------------------------------


def halved_noise(counts: td.Counts, plan: td.Plan, source: Any) -> Measurements:
    """Noise of half the scale that is claimed."""
    spent = {"epsilon": 2 * plan.epsilon} if plan.is_pure else {"rho": 4 * plan.rho}
    stronger = td.Plan(plan.mechanism, shares=plan.shares, **spent)
    return replace(td.measure(counts, stronger, source), plan=plan)


def free_nation(counts: td.Counts, plan: td.Plan, source: Any) -> Measurements:
    """The counties get all of epsilon, and the nation half of it on top, which is charged to nobody."""
    nation = td.Plan(epsilon=plan.epsilon / 2, shares={"nation": 1, "county": 0})
    county = td.Plan(epsilon=plan.epsilon, shares={"nation": 0, "county": 1})
    found = [td.measure(counts, part, source) for part in (nation, county)]
    values = np.concatenate([found[0].values[:1], found[1].values[1:]])
    variance = np.concatenate([found[0].node_variance[:1], found[1].node_variance[1:]])
    return Measurements(counts.geography, counts.cells, values, variance, plan, True)


def reused_noise(counts: td.Counts, plan: td.Plan, source: Any) -> Measurements:
    """One draw for the nation and the first county."""
    found = td.measure(counts, plan, source)
    values = found.values.copy()
    values[1] = counts.values[1] + (found.values[0] - counts.values[0])
    return replace(found, values=values)


def truncated_for_free(counts: td.Counts, plan: td.Plan, source: Any) -> Measurements:
    """Drawn again until it is not negative, and charged as if that told nothing."""
    found = td.measure(counts, plan, source)
    values = found.values.copy()
    while (values < 0).any():
        again = td.measure(counts, plan, source).values
        values = np.where(values < 0, again, values)
    return replace(found, values=values)


def unrepeatable_zero(counts: td.Counts, plan: td.Plan, source: Any) -> Measurements:
    """Zeros are left as they are."""
    found = td.measure(counts, plan, source)
    return replace(found, values=np.where(counts.values == 0, 0, found.values))


@both
@pytest.mark.parametrize("fault", [halved_noise, free_nation, reused_noise])
def test_a_planted_fault_is_caught(replicates: int, fault: Callable[..., Measurements]) -> None:
    # Who subtracts the same noise from itself is left with the second county.
    neighbour = (3, 2) if fault is reused_noise else SECOND
    assert audit(PURE, replicates, measure=fault, neighbour=neighbour) > 1.1


@sharp
def test_truncation_that_is_not_charged_is_caught(replicates: int) -> None:
    # Where counts are near the bound, and the noise small: 1 against 0.
    plan = td.Plan(epsilon=2, shares={"nation": "1/2", "county": "1/2"})
    one, other = (
        released(table(leaves, replicates), plan, truncated_for_free, "gls-top-down") for leaves in ((1, 0), (0, 0))
    )
    assert audited(one, other)[0] > 2.05
    one, other = (released(table(leaves, replicates), plan, td.measure, "gls-top-down") for leaves in ((1, 0), (0, 0)))
    assert audited(one, other)[0] <= 2


@both
def test_zeros_that_stay_zeros_are_caught(replicates: int) -> None:
    one, other = (
        released(table(leaves, replicates), PURE, unrepeatable_zero, "gls-top-down") for leaves in ((1, 0), (0, 0))
    )
    assert audited(one, other)[0] > 3
