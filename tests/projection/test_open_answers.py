"""Histograms on supports where answers are closed: every block has records in its open answers alone, and every unit
above it as many in any set of answers as its blocks can and must have."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import topdown as td
from topdown.confidential.measure_asked import AskedMeasurements, split_counts
from topdown.errors import ConfigError, InternalError
from topdown.noise import KeyedSource
from topdown.noise.key import NoiseKey
from topdown.projection.histograms import support_family
from topdown.projection.histograms.open_answers import OPEN, KnownAnswers, SplitCells
from topdown.projection.histograms.support_descent import OnSupports, SupportDescent, Tied, descend_on_supports
from topdown.projection.invariants import Contradiction
from topdown.projection.limits import AnswerLimits, OpenAnswers
from topdown.projection.rounding_method import rounding_named
from topdown.workload import Query

KINDS = ("home", "prison", "college", "dormitory", "shelter")
OTHER = KINDS[2:]
SCHEMA = td.Schema.from_mapping(
    {"kind": KINDS, "age": [str(k) for k in range(8)], "race": [str(k) for k in range(6)]},
    recodes={
        "kind": {"class": {"home": ["home"], "prison": ["prison"], "other": list(OTHER)}},
        "age": {"adult": {"minor": [str(k) for k in range(3)], "adult": [str(k) for k in range(3, 8)]}},
    },
    zeros=[{"kind": "prison", "age": ["0", "1", "2"]}],
)
KEPT = "class * adult * race"
QUERIES = {"total": "1/12", "kind * adult": "1/12", "race": "1/12", "detailed": "1/12"}
LEVELS = ("state", "county", "block")


def populated(seed: int) -> tuple[td.Counts, AnswerLimits]:
    """Blocks with some kinds each, and persons in these; the limits close the others."""
    rng = np.random.default_rng(seed)
    geoids = [f"{c:02}{b:03}" for c in range(4) for b in range(2 + 5 * c)]
    geography = td.Geography.from_geoids(geoids, {"county": 2, "block": 5}, root_level="state")
    there = rng.random((len(geoids), len(KINDS))) < 0.5
    there[:, 0] = True
    people = 2500
    where = rng.integers(0, len(geoids), people)
    weights = there[where] * rng.random((people, len(KINDS)))
    kind = weights.argmax(axis=1)
    age = rng.integers(0, 8, people)
    age[kind == 1] = rng.integers(3, 8, (kind == 1).sum())
    frame = {
        "block": np.array(geoids)[where],
        "kind": np.array(KINDS)[kind],
        "age": age.astype(str),
        "race": np.minimum(rng.geometric(0.5, people) - 1, 5).astype(str),
    }
    counts = td.Counts.from_records(frame, geography, geoid="block", schema=SCHEMA)
    rows = [(geoid, KINDS[k]) for geoid, own in zip(geoids, there, strict=True) for k in np.flatnonzero(own)]
    table = {
        "geoid": [geoid for geoid, _ in rows],
        "query": ["kind"] * len(rows),
        "answer": [kind for _, kind in rows],
        "lower": [0] * len(rows),
        "upper": [None] * len(rows),
    }
    return counts, AnswerLimits.from_table(table, geography, SCHEMA, closed=["kind"])


def published(counts: td.Counts) -> Tied:
    query, n_nodes = Query.parse(KEPT, SCHEMA), counts.geography.n_nodes
    rows, cells, values = counts.part(slice(0, n_nodes))
    return Tied.of(query, rows, query.answers_of(cells), values, n_nodes)


def made(counts: td.Counts, known: KnownAnswers, *, split: bool = True) -> tuple[OnSupports, npt.NDArray[np.int64]]:
    """The release, and the whole histogram of every node; (nodes x cells)."""
    if known.split is not None:
        counts = split_counts(counts, known.schema, known.split.split)
    plan = td.Plan("discrete-gaussian", rho=2, shares=dict.fromkeys(LEVELS, QUERIES))
    asked = AskedMeasurements(counts, plan, NoiseKey(bytes(range(32)), "configuration", "input"))
    tree = counts.geography.tree
    nearest = rounding_named("nearest")
    descent = SupportDescent(tree, known.schema, known.cells, asked, nearest, known.tied, known.open)
    found = descend_on_supports(descent, KeyedSource(bytes(32)), 1)
    sizes = [len(one.cells) for one in found.histograms]
    entries: Any = (
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([one.cells for one in found.histograms]),
        np.concatenate([one.values for one in found.histograms]).astype(np.int64),
    )
    if known.split is not None:
        entries = known.split.joined(*entries)
    starts, cells, values = entries
    whole = np.zeros((tree.n_nodes, SCHEMA.n_cells), np.int64)
    np.add.at(whole, (np.repeat(np.arange(tree.n_nodes), np.diff(starts)), cells), values)
    return found, whole


def leaves_below(tree: Any, node: int) -> npt.NDArray[np.int64]:
    at = np.arange(tree.leaves.start, tree.n_nodes)
    above = at.copy()
    while (above > node).any():
        above = np.where(above > node, tree.parent[above], above)
    return np.asarray(at[above == node] - tree.leaves.start)


def sets_broken(counts: td.Counts, limits: AnswerLimits, whole: npt.NDArray[np.int64]) -> int:
    """How many sets of kinds of a node have fewer or more records in a total than its blocks allow."""
    tree = counts.geography.tree
    opened = OpenAnswers.of_limits(limits).there[tree.leaves]
    kept, kind = Query.parse(KEPT, SCHEMA), Query.parse("kind", SCHEMA)
    totals = counts.answers(kept, tree.leaves)
    cells = np.arange(SCHEMA.n_cells)
    of_total, of_kind = kept.answers_of(cells), kind.answers_of(cells)
    broken = 0
    for node in range(tree.n_nodes):
        below = leaves_below(tree, node)
        for size in range(1, len(KINDS) + 1):
            for chosen in itertools.combinations(range(len(KINDS)), size):
                inside = np.isin(np.arange(len(KINDS)), chosen)
                for answer in np.unique(of_total):
                    mine = (of_total == answer) & (whole[node] > 0)
                    has = whole[node, mine & inside[of_kind]].sum()
                    able = np.isin(np.arange(len(KINDS)), of_kind[of_total == answer])
                    rest = opened[below] & able
                    total = totals[below, answer]
                    least = total[(rest <= inside).all(axis=1)].sum()
                    most = total[(rest & inside).any(axis=1)].sum()
                    broken += not least <= has <= most
    return broken


@pytest.mark.parametrize("by_gradients", [False, True])
def test_every_unit_has_as_many_in_any_set_of_answers_as_its_blocks_can_and_must_have(
    by_gradients: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_gradients:
        monkeypatch.setattr(support_family, "DENSE_CELLS", 0)
    counts, limits = populated(1)
    tree, tied = counts.geography.tree, published(counts)
    known = KnownAnswers.of(SCHEMA, tree, tied, OpenAnswers.of_limits(limits))
    found, whole = made(counts, known)
    assert found.certificate.holds()
    query = Query.parse(KEPT, SCHEMA)
    assert np.array_equal(np.stack([query.answers(row) for row in whole]), counts.answers(query, slice(0, len(whole))))
    for index in range(tree.n_levels - 1):
        families = tree.families(index)
        assert (families.total_rows(whole[families.children]) == whole[families.parents]).all()
    assert sets_broken(counts, limits, whole) == 0
    without, other = made(counts, KnownAnswers.of(SCHEMA, tree, tied))
    assert without.certificate.holds()
    assert sets_broken(counts, limits, other) > 100


def test_without_totals_nobody_is_in_a_closed_answer_and_what_the_parent_has_is_possible_below() -> None:
    counts, limits = populated(2)
    opened = OpenAnswers.of_limits(limits)
    known = KnownAnswers.of(SCHEMA, counts.geography.tree, None, opened)
    found, whole = made(counts, known)
    assert found.certificate.holds()
    kind = Query.parse("kind", SCHEMA)
    answers = np.stack([kind.answers(row) for row in whole])
    assert not answers[~opened.there].any()
    _, other = made(counts, KnownAnswers.of(SCHEMA, counts.geography.tree))
    assert np.stack([kind.answers(row) for row in other])[~opened.there].any()


def test_where_every_block_has_the_same_open_answers_the_release_is_that_without_closed_ones() -> None:
    counts, _ = populated(3)
    tree, n_nodes = counts.geography.tree, counts.geography.n_nodes
    opened = OpenAnswers(Query.parse("kind", SCHEMA), np.ones((n_nodes, len(KINDS)), np.bool_))
    tied = published(counts)
    known = KnownAnswers.of(SCHEMA, tree, tied, opened)
    assert known.schema.shape == (*SCHEMA.shape, 1)
    assert np.array_equal(known.cells, SCHEMA.possible_cells())
    assert known.tied is not None
    assert np.array_equal(known.tied.cells, tied.cells)
    assert np.array_equal(known.tied.counts, tied.counts)


def test_a_record_counts_in_one_split_cell_and_the_split_is_undone() -> None:
    counts, limits = populated(4)
    tree = counts.geography.tree
    cells, total = SCHEMA.possible_cells(), Query.parse(KEPT, SCHEMA)
    split = SplitCells.of(SCHEMA, cells, OpenAnswers.of_limits(limits), tree, total)
    # All kinds but prisons and homes share totals: their classes are the sets of them that a block has.
    assert len(set(split.component[2:])) == 1
    assert len(set(split.component)) == 3
    there = OpenAnswers.of_limits(limits).there[tree.leaves][:, 2:]
    assert split.schema.shape[-1] == len({tuple(row) for row in there.tolist() if any(row)})
    parted = split_counts(counts, split.schema, split.split)
    assert parted.of_root.sum() == counts.of_root.sum()
    assert len(parted.of_root) > len(counts.of_root)
    everything = slice(0, tree.n_nodes)
    rows, cells, values = parted.part(everything)
    starts = np.searchsorted(rows, np.arange(tree.n_nodes + 1))
    _, joined, sums = split.joined(starts, cells, values)
    assert np.array_equal(joined, counts.part(everything)[1])
    assert np.array_equal(sums, counts.part(everything)[2])
    closed = Query.parse("kind", SCHEMA).answers_of(np.arange(SCHEMA.n_cells)) > 1
    without = np.flatnonzero(~there.any(axis=1))
    with pytest.raises(InternalError, match="records where there can be none"):
        split.split(without[:1], np.flatnonzero(closed)[:1])


def test_totals_that_no_open_answer_can_have_are_refused_with_the_block() -> None:
    counts, limits = populated(5)
    tree, tied = counts.geography.tree, published(counts)
    opened = OpenAnswers.of_limits(limits)
    homes = counts.answers(Query.parse("class", SCHEMA), tree.leaves)
    leaf = int(np.flatnonzero(homes[:, 2] > 0)[0])
    opened.there[tree.leaves.start + leaf, 2:] = False
    with pytest.raises(
        Contradiction, match=r"has records in 'other_\w+_\d', and no answer to 'kind' that is open"
    ) as of:
        KnownAnswers.of(SCHEMA, tree, tied, opened)
    assert of.value.node == tree.leaves.start + leaf


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [("00000", "kind", "prison", 1, None)],
            "block '00000', 'prison': in a schema of so many cells a limit says only where there are no records",
        ),
        ([("00000", "kind", "prison", 0, 5)], "leave lower 0 or empty, and upper 0 or empty"),
        ([("00000", "kind", "prison", 0, 0), ("00000", "race", "1", 0, 0)], "the limits are of 'kind', 'race', and"),
    ],
)
def test_limits_that_say_more_than_where_there_are_no_records_are_refused(rows: Any, said: str) -> None:
    counts, _ = populated(6)
    table = dict(zip(("geoid", "query", "answer", "lower", "upper"), zip(*rows, strict=True), strict=True))
    with pytest.raises(ConfigError, match=said):
        OpenAnswers.of_limits(AnswerLimits.from_table({k: list(v) for k, v in table.items()}, counts.geography, SCHEMA))


def test_a_limit_of_a_unit_closes_the_answer_to_all_of_its_blocks() -> None:
    counts, _ = populated(7)
    tree = counts.geography.tree
    table = {"geoid": ["01"], "query": ["kind"], "answer": ["prison"], "lower": [None], "upper": [0]}
    there = OpenAnswers.of_limits(AnswerLimits.from_table(table, counts.geography, SCHEMA)).there
    closed = np.flatnonzero(~there.all(axis=1)).tolist()
    assert closed == [2, *(tree.leaves.start + leaves_below(tree, 2)).tolist()]
    assert not there[closed, 1].any()


def test_an_answer_that_is_closed_to_all_blocks_is_closed_to_every_unit_above() -> None:
    counts, _ = populated(7)
    tree = counts.geography.tree
    blocks = counts.geography.identifiers.to_pylist()[tree.leaves.start :]
    n = len(blocks)
    table = {"geoid": blocks, "query": ["kind"] * n, "answer": ["prison"] * n, "lower": [0] * n, "upper": [0] * n}
    there = OpenAnswers.of_limits(AnswerLimits.from_table(table, counts.geography, SCHEMA)).there
    assert not there[:, 1].any()
    assert there[:, [0, 2, 3, 4]].all()


def test_an_attribute_of_the_name_of_the_classes_is_refused() -> None:
    schema = td.Schema.from_mapping({OPEN: ["a", "b"], "age": ["0", "1"]})
    counts, _ = populated(8)
    opened = OpenAnswers(Query.parse("age", schema), np.ones((counts.geography.n_nodes, 2), np.bool_))
    with pytest.raises(ConfigError, match="has a meaning of its own"):
        KnownAnswers.of(schema, counts.geography.tree, None, opened)
