"""Attributes, recodes, queries and workloads."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.errors import ConfigError
from topdown.workload import Query, Recode, Schema, Workload

HHGQ = ["household", "correctional", "juvenile", "nursing"]
SCHEMA = Schema.from_mapping(
    {"hhgq": HHGQ, "votingage": ["under18", "18over"], "hispanic": ["no", "yes"]},
    recodes={"hhgq": {"hhinst": {"household": HHGQ[:1], "institution": [HHGQ[3], HHGQ[1], HHGQ[2]]}}},
)


@pytest.mark.parametrize(
    ("text", "name", "shape"),
    [
        ("total", "total", ()),
        ("detailed", "detailed", (4, 2, 2)),
        ("hispanic*votingage", "votingage * hispanic", (2, 2)),
        ("hispanic *  hhinst", "hhinst * hispanic", (2, 2)),
        ("hhgq * votingage * hispanic", "detailed", (4, 2, 2)),
        (" hhgq ", "hhgq", (4,)),
    ],
)
def test_a_query_is_parsed_and_printed(text: str, name: str, shape: tuple[int, ...]) -> None:
    query = Query.parse(text, SCHEMA)
    assert (str(query), query.shape, query.n_answers) == (name, shape, int(np.prod(shape, dtype=int)))
    assert Query.parse(str(query), SCHEMA) == query


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("votinage", "unknown part of query 'votinage'.*did you mean 'votingage'"),
        ("hhgq * hhinst", "'hhgq' and 'hhinst' are both of attribute 'hhgq'"),
        ("hispanic * hispanic", "names 'hispanic' twice"),
        ("total * hispanic", "'total' cannot be joined"),
        ("", "query ''"),
        ("hispanic *", "unknown part of query"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Query.parse(text, SCHEMA)


def every_query(schema: Schema) -> list[Query]:
    options = [
        [None, name, *(recode.name for recode in schema.recodes if recode.attribute == name)] for name in schema.names
    ]
    return [Query(schema, kept) for kept in itertools.product(*options)]


def by_hand(query: Query, histogram: np.ndarray) -> np.ndarray:
    """The answers, cell by cell from the categories' names."""
    groups = {recode.name: recode for recode in query.schema.recodes}
    found = dict.fromkeys(itertools.product(*(factor.categories for factor in query.factors)), 0)
    for cell, place in enumerate(itertools.product(*(a.categories for a in query.schema.attributes))):
        key = []
        for category, part, name in zip(place, query.kept, query.schema.names, strict=True):
            if part == name:
                key.append(category)
            elif part is not None:
                key.append(next(group for group, members in groups[part].groups if category in members))
        found[tuple(key)] += histogram[cell]
    return np.array(list(found.values()))


@pytest.mark.parametrize("query", every_query(SCHEMA), ids=str)
def test_answers_are_sums_of_cells(query: Query) -> None:
    rng = np.random.default_rng(1)
    histogram = rng.integers(0, 100, (3, SCHEMA.n_cells))
    expected = np.stack([by_hand(query, row) for row in histogram])
    np.testing.assert_array_equal(query.answers(histogram), expected)
    assert query.answers(histogram).dtype == histogram.dtype
    np.testing.assert_array_equal(histogram @ query.matrix().toarray().T, expected)
    rows, cells = np.nonzero(histogram)
    np.testing.assert_array_equal(query.sparse_answers(rows, cells, histogram[rows, cells], 3), expected)
    answers = rng.normal(size=(2, query.n_answers))
    np.testing.assert_array_equal(query.spread(answers), answers @ query.matrix().toarray())
    # One record counts in exactly one answer: so a query changes by 1 when one record is added.
    assert (query.matrix().sum(axis=0) == 1).all()
    assert len(query.labels()) == query.n_answers


def test_labels_are_categories_in_the_answers_order() -> None:
    assert Query.parse("hhinst * hispanic", SCHEMA).labels() == (
        "household_no",
        "household_yes",
        "institution_no",
        "institution_yes",
    )
    assert Query.parse("total", SCHEMA).labels() == ("total",)


def test_a_table_of_all_cells_is_never_made() -> None:
    """A histogram of 10^12 cells: the answer of a cell comes from its number."""
    wide = Schema.from_mapping({name: [f"{name}{k}" for k in range(1000)] for name in "abcd"})
    query = Query.parse("b * d", wide)
    cells = np.ravel_multi_index((np.array([7, 999]), [1, 998], [500, 0], [3, 999]), wide.shape)
    assert query.answers_of(cells).tolist() == [1 * 1000 + 3, 998 * 1000 + 999]


def test_a_query_knows_what_it_can_be_summed_from() -> None:
    names = ["total", "hhinst", "hhgq", "hhinst * hispanic", "detailed"]
    queries = [Query.parse(name, SCHEMA) for name in names]
    table = [[mine.is_part_of(other) for other in queries] for mine in queries]
    assert table == [
        [True, True, True, True, True],
        [False, True, True, True, True],
        [False, False, True, False, True],
        [False, False, False, True, True],
        [False, False, False, False, True],
    ]


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"a": HHGQ[:2]}, "'juvenile' of 'hhgq' is in none of its groups"),
        ({"a": HHGQ, "b": HHGQ[:1]}, "'household' is in the groups 'a' and 'b'"),
        ({"a": [*HHGQ, "barracks"]}, "unknown category of 'hhgq' in recode 'r' 'barracks'"),
        ({"a": HHGQ, "b": []}, "no categories"),
        ({"a": "household"}, "give a list of categories"),
    ],
)
def test_a_recode_is_a_partition(groups: dict[str, list[str]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Schema.from_mapping({"hhgq": HHGQ}, recodes={"hhgq": {"r": groups}})


def test_names_are_unambiguous() -> None:
    with pytest.raises(ConfigError, match="attribute 'total'"):
        Schema.from_mapping({"total": ["a"]})
    with pytest.raises(ConfigError, match=r"attribute 'a \* b'"):
        Schema.from_mapping({"a * b": ["a"]})
    with pytest.raises(ConfigError, match="two attributes or recodes are called 'sex'"):
        Schema.from_mapping({"sex": ["f", "m"]}, recodes={"sex": {"sex": {"x": ["f", "m"]}}})
    with pytest.raises(ConfigError, match=r"unknown attribute of recode 'r': 'sexes'.*did you mean 'sex'"):
        Schema(Schema.from_mapping({"sex": ["f", "m"]}).attributes, (Recode("r", "sexes", (("x", ("f", "m")),)),))


def test_a_workload_names_each_query_once() -> None:
    workload = Workload.parse({"state": ["total", "hispanic * hhgq"], "county": ["total"]}, SCHEMA, ["state", "county"])
    assert [str(q) for q in workload["state"]] == ["total", "hhgq * hispanic"]
    assert [str(q) for q in workload.distinct] == ["total", "hhgq * hispanic"]
    assert list(workload) == ["state", "county"]
    with pytest.raises(ConfigError, match=r"level 'state' names query 'hhgq \* hispanic' twice"):
        Workload.parse({"state": ["hhgq * hispanic", "hispanic*hhgq"]}, SCHEMA, ["state"])
    with pytest.raises(ConfigError, match=r"unknown level 'stat'.*did you mean 'state'"):
        Workload.parse({"stat": ["total"]}, SCHEMA, ["state"])


def test_cells_without_a_schema_are_one_attribute(geography: td.Geography) -> None:
    counts = td.Counts.from_table(
        {"county": geography.geoid[geography.tree.leaves], "x": [1, 2, 3], "y": [4, 5, 6]},
        geography,
        geoid="county",
        cells=["x", "y"],
    )
    assert counts.schema == Schema.of_cells(["x", "y"])
    assert Query.parse("cell", counts.schema).name == "detailed"


def test_a_wide_table_is_kept_in_its_schema_s_order(geography: td.Geography) -> None:
    schema = Schema.from_mapping({"sex": ["f", "m"], "age": ["0", "1"]})
    columns = {"m_1": [1, 2, 3], "f_1": [4, 5, 6], "m_0": [7, 8, 9], "f_0": [0, 1, 0]}
    counts = td.Counts.from_table(
        {"county": geography.geoid[geography.tree.leaves], **columns},
        geography,
        geoid="county",
        cells=list(columns),
        schema=schema,
    )
    assert counts.cells == ("f_0", "f_1", "m_0", "m_1")
    assert counts.values[-1].tolist() == [0, 6, 9, 3]


AMBIGUOUS = Schema.from_mapping({"sex": ["f_a", "f"], "age": ["b", "a_b"]}, {"sex": {"both": {"f": ["f_a", "f"]}}})


def test_two_answers_with_one_name_are_refused_before_anything_is_drawn() -> None:
    with pytest.raises(ConfigError, match=r"name 'f_a_b' is made of two combinations .* rename 'f_a' or another"):
        Query.parse("detailed", AMBIGUOUS).require_labels()
    Query.parse("both * age", AMBIGUOUS).require_labels()
    geography = td.Geography.from_table({"nation": ["US", "US"], "state": ["1", "2"]}, ["nation", "state"])
    frame = {"state": ["1", "2"], "sex": ["f", "f_a"], "age": ["a_b", "b"]}
    counts = td.Counts.from_records(pd.DataFrame(frame), geography, geoid="state", schema=AMBIGUOUS)
    shares = {level: {"total": "1/4", "both * age": "1/4"} for level in geography.levels}
    for plan in (td.Plan("geometric", epsilon=1), td.Plan("geometric", epsilon=1, shares=shares)):
        with pytest.raises(ConfigError, match="f_a_b"):  # also where it is the cells of the release alone
            td.measure(counts, plan)
    with pytest.raises(ConfigError, match="f_a_b"):
        td.Measurements.from_answers(geography, AMBIGUOUS, {("nation", "detailed"): (np.zeros((1, 4)), 1.0)})
