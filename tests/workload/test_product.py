"""Schemas with structural zeros as products without: the same cells, and queries with the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from support.zeros import IMPOSSIBLE, POSSIBLE, SCHEMA
from topdown.workload import Query, Schema
from topdown.workload.product import ProductSchema
from topdown.workload.redistricting import PERSONS

QUERIES = ["total", "detailed", "adult", "age", "home", "sex", "age * home", "adult * home * sex", "home * sex"]


def test_the_cells_are_the_possible_ones() -> None:
    found = ProductSchema.of(SCHEMA)
    assert found.cells is not None
    assert sorted(found.cells.tolist()) == POSSIBLE.tolist()
    assert found.attributes.shape == (6, 2)  # age and home together, and sex
    assert not found.attributes.zeros


@pytest.mark.parametrize("text", QUERIES)
def test_queries_have_the_same_answers_there(text: str) -> None:
    found, query = ProductSchema.of(SCHEMA), Query.parse(text, SCHEMA)
    histogram = np.random.default_rng(1).integers(0, 99, SCHEMA.n_cells)
    histogram[IMPOSSIBLE] = 0
    asked = found.asked(query)
    assert asked is found.asked(Query.parse(text, SCHEMA))
    there = np.zeros(query.n_answers, np.int64)
    there[asked.answers] = asked.query.answers(histogram[found.cells])
    np.testing.assert_array_equal(there, query.answers(histogram))
    impossible = np.setdiff1d(np.arange(query.n_answers), query.answers_of(POSSIBLE))
    assert not np.isin(asked.answers, impossible).any()
    assert len(asked.answers) == query.n_answers - len(impossible)


def test_what_keeps_all_there_is_keeps_the_attribute_whole() -> None:
    found = ProductSchema.of(SCHEMA)
    names = found.attributes.names
    assert found.asked(Query.parse("age * home", SCHEMA)).query.kept == (names[0], None)
    assert found.asked(Query.parse("detailed", SCHEMA)).query.kept == names
    assert found.asked(Query.parse("sex", SCHEMA)).query.kept == (None, names[1])


def test_attributes_apart_and_of_one_category() -> None:
    schema = Schema.from_mapping(
        {"a": ["0", "1"], "b": ["x", "y", "z"], "c": ["p", "q"]}, zeros=[{"c": "p", "a": "1"}, {"b": ["y", "z"]}]
    )
    found = ProductSchema.of(schema)
    assert found.places == ((0, 2), (1,))
    assert found.attributes.shape == (3, 1)
    assert [schema.cells()[k] for k in found.cells] == ["0_x_p", "0_x_q", "1_x_q"]
    b = found.asked(Query.parse("b", schema))
    assert b.query.kept == (None, None)
    assert b.answers.tolist() == [0]


def test_without_zeros_nothing_is_another() -> None:
    schema = Schema.from_mapping({"a": ["0", "1"]})
    found, query = ProductSchema.of(schema), Query.parse("a", schema)
    assert found.attributes is schema
    assert found.cells is None
    assert found.asked(query) == (query, None)


def test_that_of_the_redistricting_file() -> None:
    found = ProductSchema.of(PERSONS)
    assert found.attributes.shape == (15, 2, 63)
    assert len(found.cells) == len(PERSONS.possible_cells())
