"""A release of histograms in parts is the one that is made of the whole tree at once, to the last number."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import topdown as td
from support.methods import shrunken
from topdown.confidential.bound_streams import code_of_counts
from topdown.confidential.entries import Entries
from topdown.confidential.measure_piece import Place, measure_piece
from topdown.geography.tree import Tree
from topdown.noise import KeyedSource
from topdown.noise import key as keys
from topdown.noise.key import NoiseKey, NoiseStreams
from topdown.pipeline.parts import array_steps
from topdown.pipeline.parts.cut_points import level_to_cut, parts_of
from topdown.pipeline.parts.part_store import part_of, put, take
from topdown.privacy.single_child_units import levels_taken
from topdown.projection.histograms.subtrees import Roots
from topdown.projection.histograms.whole import histograms_down
from topdown.projection.method import METHODS
from topdown.projection.rounding_method import rounding_named

SCHEMA = td.Schema.from_mapping(
    {"sex": ["f", "m"], "age": ["0", "1", "2", "3"], "race": list("abcdef")},
    {"age": {"adult": {"minor": ["0"], "adult": ["1", "2", "3"]}}},
)
LEVELS = ("nation", "state", "county", "tract", "block")
SHARES = {
    "nation": {"total": "1/20", "detailed": "1/20"},
    "state": {"adult * sex": "1/10", "detailed": "1/10"},
    "county": {"race": "1/10", "detailed": "1/10"},
    "tract": {"total": "1/10", "sex * race": "1/10", "detailed": "1/10"},
    "block": {"total": "1/10", "detailed": "1/10"},
}
NOISE = NoiseKey(bytes(32), "configuration", "input")
NEAREST = rounding_named("nearest")
TIES = KeyedSource(bytes(range(32)))


@pytest.fixture(autouse=True)
def short_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of a few nodes each, so that parts begin and end within one."""
    monkeypatch.setattr(keys, "DRAWS_PER_STREAM", 250)


def made(rng: np.random.Generator) -> tuple[td.Geography, Entries]:
    """A tree of five levels, some units with one child, and its confidential entries."""
    geoids = []
    for state in range(3):
        for county in range(int(rng.integers(1, 5))):
            for tract in range(int(rng.integers(1, 4))):
                blocks = range(int(rng.integers(1, 6)))
                geoids += [f"{state:02}{county:03}{tract:02}{block:02}" for block in blocks]
    geography = td.Geography.from_geoids(geoids, {"state": 2, "county": 5, "tract": 7, "block": 9}, root_level="nation")
    leaves, cells = geography.n_leaves, SCHEMA.n_cells
    keys = np.sort(rng.choice(leaves * cells, leaves * 5, replace=False))
    return geography, Entries.of_leaves(geography.tree, cells, keys, rng.poisson(6, len(keys)).astype(np.int64))


def job_of(
    only_child: str, method: str, upward: str | None = None, order: dict[str, list[str]] | list[str] | None = None
) -> array_steps.Job:
    plan = td.Plan("discrete-gaussian", rho="2", shares=SHARES, only_child=only_child).for_levels(LEVELS)
    return array_steps.Job(SCHEMA, LEVELS, plan.for_schema(SCHEMA), method, TIES, upward, order)


def streams_of(geography: td.Geography, entries: Entries, job: array_steps.Job) -> NoiseStreams:
    """The streams for the whole counts."""
    return NOISE.streams(code_of_counts(td.Counts(geography, SCHEMA.cells(), entries, SCHEMA), job.plan, NOISE))


def parts(tree: Tree, level: int, leaves: int) -> list[tuple[array_steps.Part, np.ndarray]]:
    found = []
    for siblings in parts_of(tree, level, leaves):
        piece, nodes = tree.part(siblings)
        firsts = [int(nodes[piece.level(k)][0]) - tree.level(level - 1 + k).start for k in range(piece.n_levels)]
        found.append((array_steps.Part(piece, level - 1, tuple(firsts)), nodes))
    return found


def measured(
    geography: td.Geography, entries: Entries, job: array_steps.Job, part: array_steps.Part, nodes: np.ndarray
) -> array_steps.Measured:
    """What `counts` gives of a part, whose entries are those of its leaves."""
    leaves = nodes[part.tree.leaves]
    rows, cells, counts = entries.part(slice(int(leaves[0]), int(leaves[-1]) + 1))
    own = Entries.of_leaves(part.tree, SCHEMA.n_cells, rows * SCHEMA.n_cells + cells, counts)
    taken = levels_taken(job.plan, geography)
    places = {
        k: Place(LEVELS[level], first, taken[geography.tree.level(level)])
        for k, (level, first) in enumerate(part.places)
        if k > 0
    }
    return measure_piece(own, part.tree, SCHEMA, job.plan, streams_of(geography, entries, job), places, LEVELS)


def in_parts(geography: td.Geography, entries: Entries, job: array_steps.Job, level: int, leaves: int) -> np.ndarray:
    """All histograms (nodes x cells), by way of arrays as they lie between steps."""
    tree, cut = geography.tree, parts(geography.tree, level, leaves)
    roots = []
    for part, nodes in cut:
        # What lies lower is not there when a part goes up.
        own = measured(geography, entries, job, part, nodes)[: array_steps.lowest_going_up(job, part) + 1]
        said = array_steps.up(job, part, [*own, *[{}] * (part.tree.n_levels - len(own))])
        roots.append(array_steps.roots_of_arrays(array_steps.roots_as_arrays(said), SCHEMA))
    upper = geography.top(LEVELS[level]).tree
    taken = levels_taken(job.plan, geography)
    places = {k: Place(LEVELS[k], 0, taken[tree.level(k)]) for k in range(level)}
    above = measure_piece(entries, upper, SCHEMA, job.plan, streams_of(geography, entries, job), places, LEVELS)
    found = array_steps.top(job, upper, above[:-1], Roots.side_by_side(roots))
    values = np.zeros((tree.n_nodes, SCHEMA.n_cells))
    for node, one in enumerate(found.histograms):
        values[node, one.cells] = one.values
    for part, nodes in cut:
        mine = [found.histograms[node] for node in nodes[part.tree.level(1)]]
        below = array_steps.down(job, part, measured(geography, entries, job, part, nodes), mine)
        for node, one in list(zip(nodes, below.histograms, strict=True))[1:]:
            values[node, one.cells] = one.values
    return values


@pytest.mark.parametrize("only_child", ["measure", "move-up"])
@pytest.mark.parametrize(
    ("method", "upward"),
    [("gls-top-down", None), ("top-down", None)]
    + [("gls-top-down", f"from {level}") for level in ("state", "county", "tract")],
)
def test_parts_are_the_whole(method: str, upward: str | None, only_child: str) -> None:
    for seed in range(2 if upward is None else 1):
        geography, entries = made(np.random.default_rng(seed))
        job = job_of(only_child, method, upward)
        counts = td.Counts(geography, SCHEMA.cells(), entries, SCHEMA)
        measurements = td.measure(counts, job.plan, NOISE)
        whole = histograms_down(
            measurements,
            METHODS[method],
            "variance",
            whole=(NEAREST, _Fixed(TIES.key)),
            upward=upward,
        )
        expected = np.zeros((geography.n_nodes, SCHEMA.n_cells))
        for node, one in enumerate(whole.histograms):
            expected[node, one.cells] = one.values
        for level in (1, 2, 3):
            for leaves in (1, 12, 10_000):
                np.testing.assert_array_equal(in_parts(geography, entries, job, level, leaves), expected)


@pytest.mark.parametrize("order", [[], ["total"], {"county": ["race", "total"], "block": ["total"]}])
@pytest.mark.parametrize("method", ["gls-top-down", "top-down"])
def test_in_any_order_parts_are_the_whole(method: str, order: dict[str, list[str]] | list[str]) -> None:
    geography, entries = made(np.random.default_rng(1))
    job = job_of("measure", method, order=order)
    measurements = td.measure(td.Counts(geography, SCHEMA.cells(), entries, SCHEMA), job.plan, NOISE)
    whole = histograms_down(measurements, METHODS[method], "variance", whole=(NEAREST, _Fixed(TIES.key)), order=order)
    expected = np.zeros((geography.n_nodes, SCHEMA.n_cells))
    for node, one in enumerate(whole.histograms):
        expected[node, one.cells] = one.values
    for level in (1, 3):
        np.testing.assert_array_equal(in_parts(geography, entries, job, level, 12), expected)


def test_parts_by_a_method_of_ones_own_are_its_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "shrunken", shrunken())
    geography, entries = made(np.random.default_rng(2))
    found = {}
    for method in ("shrunken", "top-down"):
        job = job_of("measure", method)
        measurements = td.measure(td.Counts(geography, SCHEMA.cells(), entries, SCHEMA), job.plan, NOISE)
        whole = histograms_down(measurements, METHODS[method], "variance", whole=(NEAREST, _Fixed(TIES.key)))
        found[method] = np.zeros((geography.n_nodes, SCHEMA.n_cells))
        for node, one in enumerate(whole.histograms):
            found[method][node, one.cells] = one.values
        np.testing.assert_array_equal(in_parts(geography, entries, job, 2, 12), found[method])
    assert (found["shrunken"] != found["top-down"]).any()


class _Fixed:
    """A source whose first bytes are a key that is known."""

    fit_for_release = True

    def __init__(self, key: bytes) -> None:
        self._key = key

    def read(self, nbytes: int) -> bytes:
        assert nbytes == len(self._key)
        return self._key


def test_a_part_goes_up_from_where_the_upward_pass_starts() -> None:
    geography, _ = made(np.random.default_rng(1))
    part, _ = parts(geography.tree, 2, 10_000)[0]  # counties, tracts and blocks
    found = [
        array_steps.lowest_going_up(job_of("measure", *how), part)
        for how in [
            ("gls-top-down", None), ("top-down", None), ("gls-top-down", "from state"), ("gls-top-down", "from county"),
            ("gls-top-down", "from tract"),
        ]
    ]  # fmt: skip
    assert found == [3, 1, 1, 1, 2]
    exact = td.Plan("discrete-gaussian", rho="2", shares=SHARES, invariants={"block": ["sex"]})
    plan = exact.for_levels(LEVELS).for_schema(SCHEMA)
    assert (
        array_steps.lowest_going_up(array_steps.Job(SCHEMA, LEVELS, plan, "gls-top-down", TIES, "from tract"), part)
        == 3
    )


@pytest.mark.parametrize("only_child", ["measure", "move-up"])
def test_a_part_measures_what_the_whole_measures_there(only_child: str) -> None:
    geography, entries = made(np.random.default_rng(7))
    job = job_of(only_child, "gls-top-down")
    whole = td.measure(td.Counts(geography, SCHEMA.cells(), entries, SCHEMA), job.plan, NOISE)
    for part, nodes in parts(geography.tree, 2, 15):
        for k, level in enumerate(measured(geography, entries, job, part, nodes)):
            name = LEVELS[part.top + k]
            assert {query.name for query in level} == (set(job.plan.queries(name)) if k else set())
            rows = slice(part.firsts[k], part.firsts[k] + part.tree.level(k).stop - part.tree.level(k).start)
            for query, (values, variance) in level.items():
                expected = whole[name, query.name]
                assert values.dtype == np.int16
                np.testing.assert_array_equal(variance, expected.variance[rows].reshape(len(variance), -1)[:, 0])
                np.testing.assert_array_equal(values, np.where(np.isinf(variance)[:, None], 0, expected.values[rows]))


@pytest.mark.parametrize("seed", range(6))
def test_any_other_count_gives_every_part_independent_noise(seed: int) -> None:
    """Also the parts in which nothing changed, with the secret and every digest held fixed."""
    rng = np.random.default_rng(seed)
    geography, entries = made(rng)
    job = job_of("measure", "gls-top-down")
    rows, cells, numbers = entries.part(geography.tree.leaves)
    changed = numbers.copy()
    changed[rng.integers(len(numbers))] += int(rng.integers(1, 5))
    other = Entries.of_leaves(geography.tree, SCHEMA.n_cells, rows * SCHEMA.n_cells + cells, changed)
    for part, nodes in parts(geography.tree, 2, 15):
        noise: list[np.ndarray] = []
        for held in (entries, other):
            counts = td.Counts(geography, SCHEMA.cells(), held, SCHEMA)
            added = [
                np.asarray(answers.values) - counts.answers(query, slice(own[0], own[-1] + 1))
                for k, level in enumerate(measured(geography, held, job, part, nodes))
                for own in [nodes[part.tree.level(k)].tolist()]
                for query, answers in level.items()
            ]
            noise.append(np.concatenate([one.ravel() for one in added]))
        one, two = noise
        assert len(one) > 100
        assert abs(np.corrcoef(one, two)[0, 1]) < 6 / np.sqrt(len(one))
        assert (one == two).mean() < 0.4  # many draws are of a few values


def test_large_counts_take_wider_numbers() -> None:
    geography, entries = made(np.random.default_rng(7))
    large = entries._replace(counts=entries.counts * 10_000)
    job = job_of("measure", "gls-top-down")
    whole = td.measure(td.Counts(geography, SCHEMA.cells(), large, SCHEMA), job.plan, NOISE)
    states = measured(geography, large, job, *parts(geography.tree, 1, 10_000)[0])[1]
    values = next(one for query, one in states.items() if query.name == "detailed").values
    np.testing.assert_array_equal(values, whole["state", "detailed"].values)
    assert values.dtype == np.int32


def test_parts_take_siblings_up_to_what_a_part_holds() -> None:
    tree = Tree.from_family_sizes([[3], [2, 4, 1], [5, 1, 2, 2, 2, 30, 1], np.ones(43, np.int64)])
    assert parts_of(tree, 2, 4) == [slice(4, 5), slice(5, 6), slice(6, 8), slice(8, 9), slice(9, 10), slice(10, 11)]
    assert parts_of(tree, 1, 100) == [slice(1, 4)]


def test_a_tree_is_cut_as_high_as_its_largest_subtree_lets_it() -> None:
    tree = Tree.from_family_sizes([[3], [2, 4, 1], [5, 1, 2, 2, 2, 30, 1], np.ones(43, np.int64)])
    assert [level_to_cut(tree, leaves) for leaves in (36, 35, 30, 29, 1)] == [1, 2, 2, 3, 3]


def test_a_torn_file_is_no_file(tmp_path) -> None:
    path = tmp_path / "one"
    assert take(path) is None
    put(path, {"a b": np.arange(5), "c": np.ones((2, 3))})
    found = take(path)
    np.testing.assert_array_equal(found["a b"], np.arange(5))
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    for damaged in (content[:-1], content[:40], b"", content[:100] + bytes([content[100] ^ 1]) + content[101:]):
        path.write_bytes(damaged)
        assert take(path) is None


def test_threads_read_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "1.npz"
    put(path, {"counts": np.arange(5)})
    found: list[object] = []

    def read(depth: int) -> None:
        if depth:
            return read(depth - 1)  # threads at different depths of the stack disagree where the parser counts it
        try:
            for _ in range(100):
                found.extend((part_of(path, "counts").sum(), take(path)["counts"].sum()))
        except SystemError as error:
            found.append(error)

    def another_thread(phase: str, info: dict[str, int]) -> None:
        time.sleep(0.0005)

    often = gc.get_threshold()
    gc.callbacks.append(another_thread)
    gc.set_threshold(50)
    try:
        threads = [threading.Thread(target=read, args=(7 * one,)) for one in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*often)
        gc.callbacks.remove(another_thread)
    assert found == [10] * 800
