"""Counts and measured values where a kind of integer ends: the same numbers in narrow kinds and in wide ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.widths import EDGES
from topdown.confidential.bound_streams import code_of_counts
from topdown.confidential.counting import SparseTally
from topdown.confidential.entries import Entries, Run
from topdown.confidential.measure_piece import Place, _added, measure_piece
from topdown.confidential.within_law import Counted
from topdown.errors import CountsError
from topdown.machine.arrays import narrow
from topdown.noise.key import NoiseKey
from topdown.pipeline.parts.filed_release import histograms_as_arrays, histograms_of_arrays
from topdown.pipeline.parts.part_store import put, take
from topdown.privacy.single_child_units import levels_taken
from topdown.projection.histograms.families import Sparse as Histogram

KINDS = (np.int16, np.int32, np.int64)
SCHEMA = td.Schema.from_mapping({"sex": ["f", "m"], "age": ["0", "1"]})
LEVELS = ("nation", "state", "county", "block")
FITTING = [edge for edge in EDGES if edge < 1 << 52]
"""A total of 2^53 is refused."""


@pytest.mark.parametrize("kind", KINDS)
def test_noise_and_counts_are_added_in_a_kind_that_holds_the_sums(kind: type) -> None:
    for edge, drawn, other in itertools.product(EDGES, (-1, 0, 1), (None, 0, 7, 255, 256, 1 << 16, 1 << 31, 1 << 32)):
        counts = np.array([edge] if other is None else [edge, other])
        noise = np.array([[drawn, -3, 4], [0, 0, -5]], kind)
        expected = noise.astype(np.int64)
        expected[0, : len(counts)] += counts
        found = _added(noise, Counted(np.arange(len(counts)), np.zeros(len(counts), np.int64), counts))
        assert found.dtype.kind == "i", (edge, drawn, other)
        np.testing.assert_array_equal(found, expected, err_msg=f"{edge} {drawn} {other}")


NEAR = st.builds(lambda edge, step: edge + step, st.sampled_from([0, *EDGES]), st.integers(-2, 2)).map(abs)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), NEAR), min_size=1, max_size=12), st.sampled_from(KINDS))
def test_several_counts_of_one_answer_are_added_up(entries: list[tuple[int, int, int]], kind: type) -> None:
    answers, rows, counts = np.array(entries).T
    noise = np.random.default_rng(1).integers(-9, 9, (3, 4)).astype(kind)
    expected = noise.astype(np.int64)
    np.add.at(expected, (answers, rows), counts)
    found = _added(noise, Counted(rows, answers, counts))
    assert found.dtype.kind == "i"
    np.testing.assert_array_equal(found, expected)


def tree_of(states: int) -> td.Geography:
    geoids = [
        f"{state:02}{county:02}{block:02}" for state in range(states) for county in range(2) for block in range(2)
    ]
    return td.Geography.from_geoids(geoids, {"state": 2, "county": 4, "block": 6}, root_level="nation")


def pieces(geography: td.Geography, held: Entries, plan: td.Plan, key: NoiseKey) -> dict[tuple[str, str], np.ndarray]:
    """What is measured below the nation, state by state."""
    tree = geography.tree
    streams = key.streams(code_of_counts(td.Counts(geography, SCHEMA.cells(), held, SCHEMA), plan, key))
    taken = levels_taken(plan, geography)
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for state in range(*tree.level(1).indices(tree.n_nodes)):
        part, nodes = tree.part(slice(state, state + 1))
        leaves = nodes[part.leaves]
        rows, cells, counts = held.part(slice(int(leaves[0]), int(leaves[-1]) + 1))
        own = Entries.of_leaves(part, SCHEMA.n_cells, rows * SCHEMA.n_cells + cells, counts)
        places = {
            k: Place(LEVELS[k], int(nodes[part.level(k)][0]) - tree.level(k).start, taken[tree.level(k)])
            for k in range(1, part.n_levels)
        }
        for k, level in enumerate(measure_piece(own, part, SCHEMA, plan, streams, places, LEVELS)):
            for query, one in level.items():
                found.setdefault((LEVELS[k], query.name), []).append(one.values)
    return {name: np.concatenate(values) for name, values in found.items()}


@pytest.mark.parametrize("budget", ["2", "50"], ids=["noise", "little noise"])
@pytest.mark.parametrize("mechanism", ["geometric", "discrete-gaussian"])
@pytest.mark.parametrize("spread", ["one cell", "all cells"])
def test_pieces_measure_what_the_whole_measures(mechanism: str, budget: str, spread: str) -> None:
    """Every state's largest county is at an edge, all of it in one cell of one block, or in all; others have few."""
    geography = tree_of(len(FITTING))
    cells = geography.n_leaves * SCHEMA.n_cells
    leaves = np.random.default_rng(2).integers(0, 9, cells).reshape(len(FITTING), 8, 2)
    for state, edge in enumerate(FITTING):
        own = leaves[state].reshape(-1)[:8]  # a county
        own[:] = 0
        if spread == "one cell":
            own[3] = edge
        else:
            own[:] = edge // 8
            own[0] += edge % 8
    shares = {
        "nation": 0,
        "state": {"total": "2/10"},
        "county": {"total": "2/10", "sex": "1/10"},
        "block": {"total": "2/10", "age": "1/10", "detailed": "2/10"},
    }
    pure = {"geometric": {"epsilon": budget}, "discrete-gaussian": {"rho": budget}}[mechanism]
    plan = td.Plan(mechanism, shares=shares, **pure).for_levels(LEVELS).for_schema(SCHEMA)
    held = Entries.of_leaves(geography.tree, SCHEMA.n_cells, np.arange(cells), leaves.reshape(-1))
    key = NoiseKey(bytes(32), "configuration", "input")
    dense = geography.tree.aggregate(np.ascontiguousarray(leaves.reshape(-1, SCHEMA.n_cells).T)).T
    for counts in (held, dense):
        whole = td.measure(td.Counts(geography, SCHEMA.cells(), counts, SCHEMA), plan, key)
        for (level, query), values in pieces(geography, held, plan, key).items():
            assert values.dtype.kind == "i"
            np.testing.assert_array_equal(values, whole[level, query].values)
    widest = pieces(geography, held, plan, key)["county", "total"][::2, 0]
    assert np.abs(widest - np.array(FITTING)).max() < 200


@pytest.mark.parametrize("edge", FITTING)
def test_entries_add_up_to_what_a_table_adds_up_to(edge: int) -> None:
    tree = tree_of(1).tree
    for counts in ([edge, 0, 7], [edge - 3, 3, 0], [edge // 2, edge - edge // 2, 1]):
        keys = np.array([1, 5, 9])
        found = Entries.of_leaves(tree, SCHEMA.n_cells, keys, np.array(counts))
        table = np.zeros(tree.n_leaves * SCHEMA.n_cells, np.int64)
        table[keys] = counts
        expected = tree.aggregate(np.ascontiguousarray(table.reshape(-1, SCHEMA.n_cells).T))
        np.testing.assert_array_equal(found.table(slice(0, tree.n_nodes), SCHEMA.n_cells), expected.T)


@pytest.mark.parametrize("edge", FITTING)
def test_rows_add_up_in_runs(edge: int) -> None:
    tally = SparseTally(4, SCHEMA.n_cells)
    assert tally.add(np.array([0, 3]), np.array([edge, 1])) is None
    assert tally.add(np.array([7, 2]), np.array([edge, 5])) is None
    assert sum(int(run.counts.sum(dtype=np.int64)) for run in tally.runs) == 2 * edge + 6
    again = SparseTally(4, SCHEMA.n_cells)
    again.runs = [Run(np.array([0]), np.array([edge - 1])), Run(np.array([9]), np.array([4]))]
    again.add(np.array([0]), None)
    assert [run.counts.tolist() for run in again.runs] == [[edge - 1], [4], [1]] or sum(
        int(run.counts.sum(dtype=np.int64)) for run in again.runs
    ) == edge + 4


@pytest.mark.parametrize("edge", EDGES)
def test_files_hold_what_was_written(edge: int, tmp_path) -> None:
    values = np.array([0, 1, edge])
    put(tmp_path / "one", {"values": narrow(values)})
    found = take(tmp_path / "one")["values"].astype(np.int64)
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("edge", FITTING)
def test_whole_histograms_lie_in_files_as_they_are(edge: int) -> None:
    made = [Histogram(np.array([0, 3]), np.array([edge, 1.0])), Histogram(np.array([2]), np.array([2.0]))]
    found = histograms_of_arrays("roots", histograms_as_arrays("roots", made))
    for mine, theirs in zip(found, made, strict=True):
        np.testing.assert_array_equal(mine.cells, theirs.cells)
        np.testing.assert_array_equal(mine.values, theirs.values)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float64"])
def test_columns_of_any_kind_are_added_up_in_wide_numbers(kind: str) -> None:
    """As large a number as the column's kind holds, in several leaves of one parent."""
    largest = min(2**50, np.iinfo(kind).max) if np.dtype(kind).kind in "iu" else 2**50
    geography = tree_of(1)
    leaves = geography.geoid[geography.tree.leaves]
    column = np.full(4, largest, kind)
    cells = SCHEMA.cells()
    table = {"block": leaves, **dict.fromkeys(cells, column)}
    wide = td.Counts.from_table(table, geography, geoid="block", cells=cells, schema=SCHEMA)
    assert wide.values[0].tolist() == [4 * largest] * 4
    f, m = [one.repeat(4) for one in (np.array(["f"]), np.array(["m"]))]
    long = {"block": [*leaves, *leaves], "sex": [*f, *m], "age": ["0"] * 8, "n": np.full(8, largest, kind)}
    counts = td.Counts.from_long(long, geography, geoid="block", schema=SCHEMA, count="n")
    assert counts.values[0].tolist() == [4 * largest, 0, 4 * largest, 0]


@pytest.mark.parametrize("edge", [(1 << 53) - 1, 1 << 53, (1 << 53) + 1])
def test_totals_near_2_53_are_refused_before_a_draw(edge: int) -> None:
    geography = tree_of(1)
    table = {"block": geography.geoid[geography.tree.leaves], "n": [edge, 0, 0, 0]}

    def measured() -> None:
        td.measure(td.Counts.from_table(table, geography, geoid="block", cells=["n"]), td.Plan(epsilon=1))

    with pytest.raises(CountsError, match=r"2\^53"):
        measured()


@pytest.mark.parametrize("cells", [1, 70], ids=["a table", "entries"])
def test_a_total_of_2_53_is_the_largest_that_is_read(cells: int) -> None:
    """Also where float64 no longer tells it from one more."""
    geography = tree_of(1)
    schema = td.Schema.from_mapping({"cell": [f"c{k}" for k in range(cells)]})
    blocks = list(geography.geoid[geography.tree.leaves])[:3]

    def total(numbers: list[int]) -> int:
        table = {"block": blocks, "cell": ["c0"] * 3, "n": numbers}
        counts = td.Counts.from_long(table, geography, geoid="block", schema=schema, count="n")
        assert isinstance(counts.held, Entries) == (cells > 1)
        return int(counts.values[0, 0])

    def of_a_wide_table(numbers: list[int]) -> int:
        table = {"block": [*blocks, geography.geoid[-1]], "n": [*numbers, 0]}
        return int(td.Counts.from_table(table, geography, geoid="block", cells=["n"]).values[0, 0])

    for counted in (total, of_a_wide_table):
        for numbers in ([1 << 53, 0, 0], [(1 << 53) - 2, 1, 1], [1 << 52, 0, 1 << 52]):
            assert counted(numbers) == 1 << 53
        for numbers in ([1 << 53, 1, 0], [1, (1 << 53) - 1, 1], [1 << 53] * 3):
            with pytest.raises(CountsError, match=r"the total is more than 2\^53"):
                counted(numbers)
