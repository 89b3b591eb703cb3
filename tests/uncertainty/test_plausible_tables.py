"""Plausible tables: add up, are whole, and have the posterior's law, which enumeration says."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import topdown as td
from support.trees import geography
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import Tree
from topdown.noise import DiscreteLaplace
from topdown.uncertainty.plausible_tables import plausible_tables
from topdown.uncertainty.posterior import Likelihood, Posterior
from topdown.uncertainty.splits import Weights, added, merged, tilted

TREE = Tree.from_family_sizes([[2], [2, 1]])
TOWN = Tree.from_family_sizes([[50]])


def measured(tree: Tree, truth: list[int], seed: int, **plan: object) -> td.Measurements:
    there = geography(tree)
    shares = dict.fromkeys(there.levels, f"1/{tree.n_levels}")
    frame = pd.DataFrame({"geoid": list(there.geoid[tree.leaves]), "people": truth})
    counts = td.Counts.from_table(frame, there, geoid="geoid", cells=["people"])
    return td.measure(counts, td.Plan(**{"epsilon": "1", "shares": shares} | plan), source=td.SeededSource(seed))  # type: ignore[arg-type]


def from_exact_law(seen: np.ndarray, tables: np.ndarray, mass: np.ndarray) -> float:
    """The p-value of draws ``seen`` (draws, leaves) under the law ``mass`` of ``tables``, rare ones together."""
    code = {tuple(table): k for k, table in enumerate(tables.tolist())}
    counted = np.bincount([code[tuple(row)] for row in seen.tolist()], minlength=len(tables))
    expected = mass / mass.sum() * len(seen)
    common = expected >= 10
    observed = np.append(counted[common], counted[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    return float(chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1))


def test_tables_have_the_law_that_enumeration_gives() -> None:
    law = DiscreteLaplace(1)
    y = np.array([4.0, 1.0, 3.0, -1.0, 2.0, 1.0])
    likelihood = [Likelihood.of(value, 1.0, law, 40.0) for value in y]
    posterior = Posterior.of(geography(TREE), likelihood, y)
    prior = 0.6 ** np.arange(len(posterior.begins) - 1)
    tables = np.array(list(itertools.product(range(12), repeat=3)))
    nodes = np.concatenate([TREE.aggregate(tables)], axis=1)
    mass = np.prod(law.pmf(y - nodes), axis=1)
    place = np.searchsorted(posterior.begins, tables, side="right") - 1
    mass = mass * np.prod((prior / np.diff(posterior.begins))[place], axis=1)
    rng = np.random.default_rng(5)
    seen = np.array([posterior.draw(prior, rng)[TREE.leaves] for _ in range(4000)])
    assert from_exact_law(seen, tables, mass) > 1e-6
    # The power of it: a law that forgets what was measured above is refused.
    assert from_exact_law(seen, tables, mass / np.prod(law.pmf(y[:3] - nodes[:, :3]), axis=1)) < 1e-6


def test_every_family_adds_up_to_its_parent_and_exact_values_stay() -> None:
    found = plausible_tables(
        measured(TREE, [3, 0, 7], 1, invariants=("level 0",), shares={"level 1": "1/2", "level 2": "1/2"}),
        30,
        td.SeededSource(2),
        burn_in=3,
    )
    leaves = found.values[:, TREE.leaves, 0]
    assert found.values.dtype == np.int64
    assert found.values.min() >= 0
    np.testing.assert_array_equal(TREE.aggregate(leaves), found.values[:, :, 0])
    assert set(found.values[:, 0, 0].tolist()) == {10}
    assert len({tuple(row) for row in leaves.tolist()}) >= 3


@pytest.mark.system
def test_a_town_among_empty_neighbours_is_plausible() -> None:
    """Where a flat prior never covers it: noise of deviation 10, the parent's of 1, 49 empty siblings."""
    plan = {"mechanism": "discrete-gaussian", "epsilon": None, "rho": "0.505",
            "shares": {"level 0": "100/101", "level 1": "1/101"}}  # fmt: skip
    held = 0
    for seed in range(20):
        found = plausible_tables(measured(TOWN, [60, *[0] * 49], seed, **plan), 60, td.SeededSource(seed), burn_in=40)
        rows = found.quantiles(0.9).set_index("geoid")
        held += bool(rows.loc["n01", "lower"] <= 60 <= rows.loc["n01", "upper"])
    assert held >= 10


def test_sums_of_weights_are_convolutions_however_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    a, b = Weights(3, rng.random(40)), Weights(-2, rng.random(25))
    direct = added(a, b)
    monkeypatch.setattr("topdown.uncertainty.splits._DIRECT", 1)
    fast = added(a, b)
    assert (direct.first, fast.first) == (1, 1)
    expected = np.convolve(a.mass, b.mass)
    np.testing.assert_allclose(direct.mass, expected / expected.max(), rtol=1e-12)
    np.testing.assert_allclose(fast.mass, expected / expected.max(), rtol=1e-9)


def test_tilting_moves_the_mean_to_the_target_and_no_draw_given_the_sum() -> None:
    rng = np.random.default_rng(1)
    children = [Weights(0, rng.random(8)) for _ in range(3)]
    moved, rate = tilted(children, 19.0)
    assert rate > 0
    mean = sum(float(one.mass @ np.arange(one.first, one.last + 1)) / one.mass.sum() for one in moved)
    assert abs(mean - 19.0) < 3.0
    uniforms = np.random.default_rng(2).random((200, 2))
    before, after = merged(children), merged(moved)
    for row in uniforms:
        np.testing.assert_array_equal(before.divided(15, row), after.divided(15, row))


@pytest.mark.parametrize(
    ("words", "options", "plan"),
    [
        ("draws = 0", {"draws": 0}, {}),
        ("burn_in = -1", {"burn_in": -1}, {}),
        ("'n3' was not measured.*'level 2'", {}, {"shares": {"level 0": "1/2", "level 1": "1/2", "level 2": "0"}}),
        ("bounded noise", {}, {"bounds": "truncated"}),
    ],
    ids=["no table", "negative", "leaves not measured", "bounded"],
)
def test_what_has_no_posterior_is_refused(words: str, options: dict[str, int], plan: dict[str, object]) -> None:
    asked = {"draws": 2, "burn_in": 1} | options
    with pytest.raises(ConfigError, match=words):
        plausible_tables(
            measured(TREE, [3, 0, 7], 1, **plan), asked["draws"], td.SeededSource(1), burn_in=asked["burn_in"]
        )


def test_exact_values_that_nothing_below_agrees_with_are_named() -> None:
    nodes = geography(TREE)
    likelihood = [Likelihood.of(value, 0.0, None, 0.0) for value in (9, 3, 7, 3, 0, 7)]
    with pytest.raises(ProjectionError, match="n0"):
        Posterior.of(nodes, likelihood, np.zeros(6)).draw(np.ones(9), np.random.default_rng(1))
