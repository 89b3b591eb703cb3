"""Measuring by key: the same noise whenever it is asked for, and never the same for two tables or two plans."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given
from scipy import stats

import topdown as td
from support.examples import examples
from topdown.confidential import bound_streams
from topdown.confidential import measure as measuring
from topdown.confidential.entries import Entries
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
    require_independent(*(noise(td.measure(counts, plan, by), counts) for by in (key(), other)))


def require_independent(one: dict[tuple[str, str], np.ndarray], two: dict[tuple[str, str], np.ndarray]) -> None:
    """Every answer's two draws are as far apart as independent ones: sum and difference have the same variance."""
    pairs = np.array([(a, b) for k in one for a, b in zip(one[k].ravel(), two[k].ravel(), strict=True) if a or b])
    assert len(pairs) > 300
    r = np.corrcoef(pairs.T)[0, 1]
    assert abs(r) < 6 / np.sqrt(len(pairs))
    assert (pairs[:, 0] == pairs[:, 1]).mean() < 0.1


def of_leaves(geography: td.Geography, values: np.ndarray, *, sparse: bool) -> td.Counts:
    """The counts (leaves x cells) as the cells that have any, or as a table."""
    cells = list(SCHEMA.cells())
    if sparse:
        places = np.flatnonzero(values.ravel())
        held = Entries.of_leaves(geography.tree, len(cells), places, values.ravel()[places])
        return td.Counts(geography, tuple(cells), held, SCHEMA)
    leaves = geography.identifiers.to_pylist()[geography.tree.leaves]
    table = {"county": leaves} | {cell: values[:, k] for k, cell in enumerate(cells)}
    return td.Counts.from_table(table, geography, geoid="county", cells=cells, schema=SCHEMA)


@pytest.mark.parametrize("sparse", [False, True], ids=["table", "cells with records"])
@pytest.mark.parametrize("plan", PLANS[:4], ids=NAMES[:4])
@given(data=st.data())
@examples(15, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_other_count_gives_independent_noise(
    counts: td.Counts, plan: td.Plan, sparse: bool, data: st.DataObject
) -> None:
    """With the secret and every digest held fixed: also where totals stay as they were."""
    geography = counts.geography
    values = counts.values[geography.tree.leaves].copy()
    n_leaves, n_cells = values.shape
    places = st.tuples(st.integers(0, n_leaves - 1), st.integers(0, n_cells - 1))
    changed = values.copy()
    to, more = data.draw(places), data.draw(st.integers(1, 2**40))
    changed[to] += more
    if data.draw(st.booleans()):  # the records come from elsewhere
        of = data.draw(places.filter(lambda place: place != to))
        values[of] += more
        changed[of] = values[of] - more
    one, two = (of_leaves(geography, held, sparse=sparse) for held in (values, changed))
    require_independent(*(noise(td.measure(held, plan, key()), held) for held in (one, two)))


@pytest.mark.parametrize("plan", PLANS[:2], ids=NAMES[:2])
def test_another_tree_gives_independent_noise(plan: td.Plan) -> None:
    """Of the same counts at the same leaves: a county that goes to another state changes what is counted above."""
    values = np.random.default_rng(1).integers(0, 100, (344, 4))
    found = []
    for sizes in ([1, 300, 2, 1, 40], [1, 300, 1, 2, 40]):
        one = of_leaves(made(sizes, np.random.default_rng(1)).geography, values, sparse=False)
        found.append(noise(td.measure(one, plan, key()), one))
    require_independent(*found)


def test_another_meaning_of_the_same_counts_gives_independent_noise(counts: td.Counts) -> None:
    """A recode whose groups stand in another order, and a plan: what is asked, not what it is called."""
    groups = {"young": ["child"], "old": ["adult"]}
    attributes = {"age": ["child", "adult"], "sex": ["f", "m"]}
    orders = [dict(order) for order in (groups.items(), reversed(groups.items()))]
    shares = {"nation": {"total": "1/8"}, "state": {"total": "1/8"}, "county": {"grown": "3/4"}}
    found = []
    for order, rho in itertools.product(orders, ("1/50", "1/51")):
        schema = td.Schema.from_mapping(attributes, {"age": {"grown": order}})
        one = td.Counts(counts.geography, counts.cells, counts.held, schema)
        measured = td.measure(one, td.Plan("discrete-gaussian", rho=rho, shares=shares), key())["county", "grown"]
        exact = one.answers(td.Query.parse("grown", schema), one.geography.level_slice("county"))
        found.append({("county", "grown"): measured.values - exact})
    for one, two in itertools.combinations(found, 2):
        require_independent(one, two)
        require_independent({k: values[:, ::-1] for k, values in one.items()}, two)


@pytest.mark.parametrize("few", [0, 1 << 10], ids=["cells with records", "tables"])
@pytest.mark.parametrize("plan", PLANS[:4], ids=NAMES[:4])
def test_the_same_counts_have_the_same_noise(
    counts: td.Counts, plan: td.Plan, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are held, and in whatever order their rows stood."""
    monkeypatch.setattr(bound_streams, "FEW_CELLS", few)
    monkeypatch.setattr(bound_streams, "LEAVES_AT_ONCE", 100)
    geography = counts.geography
    values = counts.values[geography.tree.leaves].copy()
    values[10:250] = 0
    rows = np.random.default_rng(3).permutation(len(values))
    leaves = np.array(geography.identifiers.to_pylist()[geography.tree.leaves])
    table = {"county": leaves[rows]} | {cell: values[rows, k] for k, cell in enumerate(counts.cells)}
    permuted = td.Counts.from_table(table, geography, geoid="county", cells=list(counts.cells), schema=SCHEMA)
    held = [of_leaves(geography, values, sparse=sparse) for sparse in (False, True)]
    first, *others = (td.measure(one, plan, key()) for one in [permuted, *held])
    for other, one in itertools.product(others, first.keys):
        assert (first[one].values == other[one].values).all()


def test_every_chunk_has_the_noise_of_its_own_stream(counts: td.Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever computes one chunk alone, from the key and the chunk's counts, gets the very numbers of the whole."""
    monkeypatch.setattr(keys, "DRAWS_PER_STREAM", 90)
    plan = PLANS[0]
    whole = noise(td.measure(counts, plan, key()), counts)
    streams = key().streams(bound_streams.code_of_counts(counts, plan, key()))
    for (level, query), added in whole.items():
        n_nodes, n_answers = added.shape
        law = plan.law(level, query)
        assert isinstance(law, td.noise.DiscreteGaussian)
        parts = list(enumerate(keys.chunks(n_nodes, n_answers)))
        assert len(parts) > 1 or n_nodes == 1 or level == "state"
        for index, nodes in reversed(parts):
            stream = streams.stream(level, query, index, 0)
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
    met, measured = threading.Barrier(2), measuring.measure_nodes

    def together(*args):  # type: ignore[no-untyped-def]
        met.wait(20)
        return measured(*args)

    monkeypatch.setattr(measuring, "measure_nodes", together)
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


@pytest.mark.parametrize(("few", "code"), [(0, "193f334e70c5"), (1 << 10, "823040004a3c")])
def test_the_code_of_counts_is_pinned(few: int, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another code would be a second noise on the same counts: then STREAMS_VERSION is another."""
    monkeypatch.setattr(bound_streams, "FEW_CELLS", few)
    counts = made([2, 3], np.random.default_rng(1))
    assert bound_streams.code_of_counts(counts, td.Plan("geometric", epsilon="1/10"), key())[:12] == code


@pytest.mark.parametrize(("largest", "bits"), [(1000, 32), ((1 << 31) - 200_000, 32), ((1 << 31) - 20, 64)])
def test_narrow_measurements_are_the_same_numbers(counts: td.Counts, largest: int, bits: int) -> None:
    geography, cells = counts.geography, list(SCHEMA.cells())
    table = {"county": geography.geoid[geography.tree.leaves]} | dict.fromkeys(
        cells, np.zeros(geography.n_leaves, np.int64)
    )
    table[cells[0]] = np.where(np.arange(geography.n_leaves) == 0, largest, 0)
    large = td.Counts.from_table(table, geography, geoid="county", cells=cells, schema=SCHEMA)
    plan = measuring.measurable(td.Plan("discrete-gaussian", rho="1/50", shares=SHARES), geography.levels, SCHEMA)
    narrow, wide = (measure(large, plan, key()) for measure in (measuring.measure_narrow, td.measure))
    assert {one.values.dtype.itemsize * 8 for one in (narrow[k] for k in narrow.keys)} == {bits}
    for level, query in wide.keys:
        assert (narrow[level, query].values == wide[level, query].values).all()
