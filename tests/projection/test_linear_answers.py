"""Answers by least squares without the histograms: what the histograms' answers are, and no more than is asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from test_histograms import case

import topdown as td
from support.trees import geography
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import Tree
from topdown.machine.parallel import thread_pool
from topdown.measurements.measurements import Measurements
from topdown.projection.histograms import linear_answers
from topdown.projection.histograms.components import Components
from topdown.workload import Query, Schema


def measurements(seed: int, *, unmeasured: float = 0.0, exact: float = 0.0, by_node: bool = True) -> Measurements:
    one = case(seed, unmeasured=unmeasured, exact=exact, by_node=by_node)
    levels = tuple(f"level {k}" for k in range(one.tree.n_levels))
    geography = td.Geography(levels, one.tree, pa.array([f"{k:03d}" for k in range(one.tree.n_nodes)]))
    found = {
        (level, query.name): (answers.values, answers.variance)
        for level, known in zip(levels, one.measured, strict=True)
        for query, answers in known.items()
    }
    return Measurements.from_answers(geography, one.schema, found)


def every(found: Measurements) -> slice:
    return slice(0, found.geography.n_nodes)


@pytest.mark.parametrize("seed", range(40))
def test_they_are_the_answers_of_the_histograms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = measurements(seed, unmeasured=0.2 * (seed % 3 == 1), exact=0.15 * (seed % 3 == 2), by_node=seed % 2 == 0)
    estimate = td.project(found, "gls")
    names = [n for n in found.schema.names if rng.random() < 0.6]
    asked = [Query.parse(" * ".join(names) or "total", found.schema), Query.parse("total", found.schema)]
    made = linear_answers.linear_answers(found, asked)
    assert made.certificate.holds()
    for query in asked:
        ours, theirs = made.answers_of(every(found), query), estimate.answers_of(every(found), query)
        assert ours.variance is not None
        assert theirs.variance is not None
        np.testing.assert_allclose(ours.values, theirs.values, atol=1e-8)
        np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-9, atol=1e-12)
        part = slice(found.geography.n_nodes // 2, found.geography.n_nodes)
        np.testing.assert_allclose(made.answers_of(part, query).values, ours.values[part], rtol=1e-12)


def test_recodes_that_were_not_measured_are_sums_of_answers() -> None:
    found = measurements(0)
    attribute = max(found.schema.attributes, key=lambda one: len(one.categories))
    groups = {"first": [attribute.categories[0]], "others": list(attribute.categories[1:])}
    own = Schema.from_mapping(
        {a.name: list(a.categories) for a in found.schema.attributes}, {attribute.name: {"g": groups}}
    )
    made = linear_answers.linear_answers(found, [Query.parse("g", own)])
    whole = td.project(found, "gls").answers_of(every(found), Query.parse(attribute.name, found.schema)).values
    ours = made.answers_of(every(found), Query.parse("g", own)).values
    np.testing.assert_allclose(ours, np.stack([whole[:, 0], whole[:, 1:].sum(axis=1)], axis=1), atol=1e-9)


def test_only_what_was_asked_for_is_solved_and_answered() -> None:
    schema = Schema.from_mapping({"a": ["x", "y"], "b": ["u", "v", "w"]})
    geography = td.Geography.from_geoids(["a1", "a2", "b1"], {"area": 1, "place": 2}, root="all")
    rng = np.random.default_rng(1)
    found = Measurements.from_answers(
        geography, schema, {(level, "detailed"): (rng.normal(9, 1, (n, 6)), 1.0) for level, n in
                            zip(geography.levels, (1, 2, 3), strict=True)},
    )  # fmt: skip
    made = linear_answers.linear_answers(found, [Query.parse("a", schema)])
    assert {one.component.deviating for one in made.coordinates} == {(), (0,)}
    with pytest.raises(ConfigError, match="query 'b' asks for more than the solved queries do"):
        made.answers_of(every(found), Query.parse("b", schema))


def test_of_measured_recodes_only_those_asked_for_are_kept_and_answered() -> None:
    recodes = {"b": {"g": {"first": ["u"], "rest": ["v", "w", "z"]}, "h": {"last": ["z"], "before": ["u", "v", "w"]}}}
    schema = Schema.from_mapping({"a": ["x", "y"], "b": ["u", "v", "w", "z"]}, recodes=recodes)
    geography = td.Geography.from_geoids(["a1", "a2", "b1"], {"area": 1, "place": 2}, root="all")
    rng, answers = np.random.default_rng(1), {}
    for level, n in zip(geography.levels, (1, 2, 3), strict=True):
        for query in ("detailed", "g", "h"):
            width = Query.parse(query, schema).n_answers
            answers[level, query] = rng.normal(9, 1, (n, width)), 1.0
    found = Measurements.from_answers(geography, schema, answers)
    whole = td.project(found, "gls")
    made = linear_answers.linear_answers(found, [Query.parse("g", schema)])
    assert sum(one.values.shape[1] * one.values.shape[2] for one in made.coordinates) == 2
    for name in ("g", "total"):
        query = Query.parse(name, schema)
        expected = whole.answers_of(every(found), query).values
        np.testing.assert_allclose(made.answers_of(every(found), query).values, expected, atol=1e-9)
    for name in ("h", "b", "a", "a * g"):
        with pytest.raises(ConfigError, match="asks for more than the solved queries do; solve for it too"):
            made.answers_of(every(found), Query.parse(name, schema))


def test_copies_solved_some_at_a_time_by_threads_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measurements(5)
    asked = [Query.parse("detailed", found.schema)]
    whole = linear_answers.linear_answers(found, asked)
    monkeypatch.setattr(linear_answers, "_SOLVED_AT_ONCE", 1)
    pieces: list[slice] = []
    solved = linear_answers._solved
    monkeypatch.setattr(linear_answers, "_solved", lambda *more: pieces.append(more[-1]) or solved(*more))
    with thread_pool(2) as threads:
        made = linear_answers.linear_answers(found, asked, threads)
    assert len(pieces) > len(made.coordinates)
    assert {one.stop - one.start for one in pieces} == {1}
    np.testing.assert_allclose(
        made.answers_of(every(found), asked[0]).values, whole.answers_of(every(found), asked[0]).values, atol=1e-9
    )
    assert made.certificate.holds()


def test_the_certificate_sees_one_wrong_number(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measurements(11)
    solved = linear_answers.solve_blocks

    def wrong(*arguments: object, **more: object) -> object:
        coordinates, blocks = solved(*arguments, **more)  # type: ignore[arg-type]
        coordinates[-1, 0, 0] += 0.01
        return coordinates, blocks

    monkeypatch.setattr(linear_answers, "solve_blocks", wrong)
    with pytest.raises(ProjectionError, match="the certificate does not hold"):
        linear_answers.linear_answers(found, [Query.parse("total", found.schema)])


def test_exact_answers_that_no_table_has_are_named() -> None:
    schema = Schema.from_mapping({"a": ["x", "y"]})
    geography = td.Geography.from_geoids(["a1", "a2", "b1"], {"area": 1, "place": 2}, root="all")
    answers = {("area", "a"): (np.array([[1, 2], [3, 4]]), 0.0), ("place", "total"): (np.array([[1], [1], [7]]), 0.0)}
    found = Measurements.from_answers(geography, schema, {key: answers[key] for key in answers})
    with pytest.raises(ProjectionError, match=r"area '[ab]'"):
        linear_answers.linear_answers(found, [Query.parse("total", schema)])


EMPTY = Tree.from_family_sizes([[4], [4, 3, 3, 3]])
OF_AGES = Schema.from_mapping(
    {"sex": ["f", "m"], "age": ["young", "old", "oldest"]},
    recodes={"age": {"grown": {"no": ["young"], "yes": ["old", "oldest"]}}},
)


@pytest.mark.parametrize("exact", [{"level 0": ["age"]}, {"level 0": ["total"], "level 1": ["total"]}])
def test_beneath_an_exact_total_of_0_rounding_is_that_of_what_was_measured(exact: dict[str, list[str]]) -> None:
    """An empty place: what is exactly 0 is the sum of small noise, and is off by the rounding of that."""
    there = geography(EMPTY)
    table = {"geoid": list(there.geoid[EMPTY.leaves]), **dict.fromkeys(OF_AGES.cells(), [0] * EMPTY.n_leaves)}
    counts = td.Counts.from_table(table, there, geoid="geoid", cells=list(OF_AGES.cells()), schema=OF_AGES)
    shares = {
        "level 0": {"sex": "2/8"},
        "level 1": {"sex * grown": "1/8", "age": "1/8"},
        "level 2": {"sex * grown": "1/8", "detailed": "3/8"},
    }
    plan = td.Plan("discrete-gaussian", rho="20", shares=shares, invariants=exact)
    for seed in range(25):
        measured = td.measure(counts, plan, source=td.SeededSource(seed))
        estimate = td.project(measured, "gls")
        assert np.abs(estimate.values[0].sum()) < 1e-12
        queries = [Query.parse(query, OF_AGES) for query in ("total", "age", "detailed")]
        assert linear_answers.linear_answers(measured, queries).certificate.holds()


def test_a_single_row_gives_the_same_bits_however_it_lies_in_memory() -> None:
    """The root's measurements are a row by itself, or one that is spread out between others' (releases in parts)."""
    schema = Schema.from_mapping({"x": ["a", "b"], "y": ["c", "d"]})
    queries = tuple(Query.parse(text, schema) for text in ("x", "total", "detailed"))
    components, rng = Components(schema, queries), np.random.default_rng(5)
    for _ in range(100):
        rows = np.asfortranarray(rng.normal(0, 1e3, (7, 4)))
        spread, alone = (components.rotated(queries[2], one, {0}) for one in (rows[:1], rows[:1].copy()))
        np.testing.assert_array_equal(spread, alone)
