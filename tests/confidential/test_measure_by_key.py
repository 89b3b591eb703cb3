"""Measuring by key: the same noise whenever it is asked for, and never the same for two tables or two plans."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

import topdown as td
from topdown.confidential import measure as measuring
from topdown.noise import key as keys
from topdown.noise.key import NoiseKey

SECRET = bytes(range(32))
SCHEMA = td.Schema.from_mapping({"age": ["child", "adult"], "sex": ["f", "m"]})
SHARES = {
    "nation": {"total": "1/8"},
    "state": {"total": "1/8", "age": "1/8"},
    "county": {"detailed": "3/8", "age": "1/4"},
}


def made(counties: list[int], rng: np.random.Generator) -> td.Counts:
    """States of so many counties each."""
    geoids = [f"{s:02}{c:05}" for s, n in enumerate(counties) for c in range(n)]
    geography = td.Geography.from_geoids(geoids, {"state": 2, "county": 7}, root_level="nation")
    cells = list(SCHEMA.cells())
    table = {"county": geoids} | {cell: rng.integers(0, 100, len(geoids)) for cell in cells}
    return td.Counts.from_table(table, geography, geoid="county", cells=cells, schema=SCHEMA)


@pytest.fixture
def counts() -> td.Counts:
    return made([1, 300, 2, 1, 40], np.random.default_rng(1))


def key(configuration: str = "c", input: str = "i", secret: bytes = SECRET) -> NoiseKey:
    return NoiseKey(secret, configuration, input)


def noise(measurements: td.Measurements, counts: td.Counts) -> dict[tuple[str, str], np.ndarray]:
    """What was added to every answer, 0 where nothing was measured."""
    geography = counts.geography
    found = {}
    for level, query in measurements.keys:
        exact = counts.answers(td.Query.parse(query, SCHEMA), geography.level_slice(level))
        one = measurements[level, query]
        found[level, query] = np.where(np.isfinite(one.variance), one.values - exact, 0)
    return found


def plans() -> Iterator[td.Plan]:
    yield td.Plan("discrete-gaussian", rho="1/50", shares=SHARES)
    yield td.Plan("discrete-gaussian", rho="1/50", shares=SHARES, only_child="move-up")
    yield td.Plan("laplace", epsilon="1/10", shares=SHARES)
    yield td.Plan("geometric", epsilon="1/10", invariants=["nation"])
    yield td.Plan("geometric", epsilon="1/10", bounds={"county": "truncated", "state": "boundary-inflated"})


PLANS = list(plans())
NAMES = ["queries", "single children", "on a grid", "cells", "bounds"]


@pytest.mark.parametrize("plan", PLANS, ids=NAMES)
def test_the_same_key_measures_the_same_numbers(counts: td.Counts, plan: td.Plan) -> None:
    first, again = (td.measure(counts, plan, key()) for _ in range(2))
    assert first.fit_for_release
    assert first.keys == again.keys
    for one in first.keys:
        assert first[one].values.tobytes() == again[one].values.tobytes()


@pytest.mark.parametrize("plan", PLANS[:4], ids=NAMES[:4])
@pytest.mark.parametrize(
    "other", [key("d"), key(input="j"), key(secret=bytes(32))], ids=["configuration", "input", "secret"]
)
def test_another_configuration_or_input_never_gets_the_same_noise(
    counts: td.Counts, plan: td.Plan, other: NoiseKey
) -> None:
    """Every answer's two draws are as far apart as independent ones: sum and difference have the same variance."""
    one, two = (noise(td.measure(counts, plan, by), counts) for by in (key(), other))
    pairs = np.array([(a, b) for k in one for a, b in zip(one[k].ravel(), two[k].ravel(), strict=True) if a or b])
    assert len(pairs) > 300
    r = np.corrcoef(pairs.T)[0, 1]
    assert abs(r) < 6 / np.sqrt(len(pairs))
    assert (pairs[:, 0] == pairs[:, 1]).mean() < 0.1


def test_every_chunk_has_the_noise_of_its_own_stream(counts: td.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever computes one chunk alone, from the key and the chunk's counts, gets the very numbers of the whole."""
    monkeypatch.setattr(keys, "DRAWS_PER_STREAM", 90)
    plan = PLANS[0]
    whole = noise(td.measure(counts, plan, key()), counts)
    for (level, query), added in whole.items():
        n_nodes, n_answers = added.shape
        law = plan.law(level, query)
        assert isinstance(law, td.noise.DiscreteGaussian)
        parts = list(enumerate(keys.chunks(n_nodes, n_answers)))
        assert len(parts) > 1 or n_nodes == 1 or level == "state"
        for index, nodes in reversed(parts):
            stream = key().stream(level, query, index, 0)
            alone = law.sample((n_answers, nodes.stop - nodes.start), stream)
            assert np.array_equal(alone.T, added[nodes])


def test_no_two_streams_share_noise(counts: td.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "DRAWS_PER_STREAM", 64)
    found = list(noise(td.measure(counts, PLANS[0], key()), counts).values())
    runs = [tuple(column[k : k + 16]) for added in found for column in added.T for k in range(0, len(added) - 15, 16)]
    assert len(runs) > 100
    assert len(set(runs)) == len(runs)


@pytest.mark.parametrize("size", [7, 1 << 18])
def test_the_noise_follows_the_law(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square over all answers of a state's counties, in streams of a few draws and in one; a law of half as much
    budget more is refused.
    """
    monkeypatch.setattr(keys, "DRAWS_PER_STREAM", size)
    counts = made([3_000 if size == 7 else 30_000], np.random.default_rng(2))
    plan = td.Plan("geometric", epsilon="3/10")
    added = noise(td.measure(counts, plan, key()), counts)["county", "detailed"].ravel()
    p = {}
    for epsilon in (0.1, 0.15):
        law = td.noise.DiscreteLaplace(1 / epsilon)
        edges = np.unique(law.ppf(np.arange(1, 20) / 20))
        cdf = np.concatenate([[0.0], law.cdf(edges), [1.0]])
        seen = np.bincount(np.searchsorted(edges, added), minlength=len(edges) + 1)
        p[epsilon] = stats.chisquare(seen, np.diff(cdf) * added.size).pvalue
    assert p[0.1] > 1e-6
    assert p[0.15] < 1e-12


@pytest.mark.parametrize("size", [10, 1 << 18])
def test_single_children_are_told_apart_in_a_chunk(
    counts: td.Counts, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of one chunk that take other shares have streams of their own, so that none shares its noise with one."""
    monkeypatch.setattr(keys, "DRAWS_PER_STREAM", size)
    plan = PLANS[1]
    added = noise(td.measure(counts, plan, key()), counts)
    single = np.diff(counts.geography.child_offsets)[1:] == 1
    assert single.sum() == 2
    laws = {taken: td.measure(counts, plan, key())["state", "total"].variance[single == taken, 0] for taken in (0, 1)}
    assert laws[1].max() < laws[0].min()
    given = td.measure(counts, plan, key())["county", "age"].values
    only = np.flatnonzero(np.repeat(single, np.diff(counts.geography.child_offsets)[1:]))
    assert not given[only].any()
    assert (given != 0).any(axis=1).sum() > len(given) - len(only) - 3
    assert len(set(itertools.chain(*added["state", "age"].tolist()))) > 5


def test_queries_are_drawn_side_by_side(counts: td.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each has so few answers that they are drawn at once."""
    met, measured = threading.Barrier(2), measuring._measured

    def together(*args):  # type: ignore[no-untyped-def]
        met.wait(20)
        return measured(*args)

    monkeypatch.setattr(measuring, "_measured", together)
    shares = {"nation": {"total": "1/4"}, "state": {"total": "1/4"}, "county": {"total": "1/4", "age": "1/4"}}
    found = td.measure(counts, td.Plan("discrete-gaussian", rho="1/50", shares=shares), key(), workers=2)
    assert len(found.keys) == 4


@pytest.mark.parametrize("plan", list(plans()))
def test_the_noise_does_not_depend_on_who_draws(
    counts: td.Counts, plan: td.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "DRAWS_PER_STREAM", 64)
    alone, together = (td.measure(counts, plan, key(), workers=workers) for workers in (1, 3))
    assert (alone.values == together.values).all()
    for one in alone.keys:
        assert (alone[one].values == together[one].values).all()
