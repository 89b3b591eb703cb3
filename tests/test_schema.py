from __future__ import annotations

import numpy as np
import pytest

from topdown.errors import ConfigError
from topdown.workload.schema import Attribute, Schema

SCHEMA = Schema.from_mapping({"sex": ["female", "male"], "age": ["child", "adult", "old"]})


def test_cells_are_the_product_and_the_last_attribute_runs_fastest() -> None:
    assert SCHEMA.names == ("sex", "age")
    assert SCHEMA.shape == (2, 3)
    assert SCHEMA.n_cells == 6
    assert SCHEMA.cells() == ("female_child", "female_adult", "female_old", "male_child", "male_adult", "male_old")
    assert SCHEMA.cells(" x ")[1] == "female x adult"


def test_cells_of_other_names_stand_in_the_product_s_order() -> None:
    codes = SCHEMA.codes(list("abcdef"))
    assert codes.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert codes.dtype == np.int32


@pytest.mark.parametrize("separator", ["_", "-", " ", "/", " x "])
def test_cells_named_by_their_categories_are_found_in_any_order(separator: str) -> None:
    names = SCHEMA.cells(separator)
    shuffled = [names[k] for k in (4, 0, 5, 1, 3, 2)]
    assert SCHEMA.codes(shuffled).tolist() == [[1, 1], [0, 0], [1, 2], [0, 1], [1, 0], [0, 2]]


def test_cells_that_are_no_products_are_one_attribute() -> None:
    schema = Schema.of_cells(["employed", "unemployed"])
    assert schema.names == ("cell",)
    assert schema.codes(["unemployed", "employed"]).tolist() == [[1], [0]]


def test_a_schema_of_another_size_is_refused_with_both_sizes() -> None:
    with pytest.raises(ConfigError, match="2 sex x 3 age = 6 cells and the table has 5"):
        SCHEMA.codes(list("abcde"))


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({}, "needs an attribute"),
        ({"sex": []}, "no categories"),
        ({"sex": ["a", "a"]}, "category 'a' twice"),
        ({"sex": ["a", ""]}, "category ''"),
        ({"": ["a"]}, "attribute ''"),
        ({"geoid": ["a"]}, "attribute 'geoid'"),
        ({"sex": "ab"}, "give a list of categories, not the text 'ab'"),
    ],
)
def test_what_cannot_be_meant_is_refused(attributes: dict[str, list[str]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Schema.from_mapping(attributes)


def test_two_attributes_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two attributes or recodes are called 'sex'"):
        Schema((Attribute("sex", ("a",)), Attribute("sex", ("b",))))
