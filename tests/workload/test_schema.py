from __future__ import annotations

import numpy as np
import pytest

import topdown as td
from topdown.errors import ConfigError, CountsError
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


# -- structural zeros -----------------------------------------------------------------------------------------------

AGES = Schema.from_mapping(
    {"age": ["0-17", "18-64", "65+"], "home": ["house", "nursing", "barracks"]},
    {"age": {"adult": {"minor": ["0-17"], "grown": ["18-64", "65+"]}}},
    [{"home": "nursing", "adult": "minor"}, {"home": ["barracks"], "age": ["0-17", "65+"]}],
)


def test_zeros_leave_the_cells_that_can_occur() -> None:
    names = AGES.cells()
    assert [names[k] for k in AGES.possible_cells()] == [
        "0-17_house",
        "18-64_house",
        "18-64_nursing",
        "18-64_barracks",
        "65+_house",
        "65+_nursing",
    ]
    assert (SCHEMA.possible_cells() == np.arange(SCHEMA.n_cells)).all()
    assert Schema.from_mapping(**AGES.to_mappings()) == AGES
    assert "zeros" not in SCHEMA.to_mappings()


@pytest.mark.parametrize(
    ("zero", "says"),
    [
        ({"hom": "house"}, r"unknown attribute of a zero: 'hom'.*did you mean 'home'"),
        ({"home": "hous"}, r"unknown category of 'home' in a zero: 'hous'.*did you mean 'house'"),
        ({}, "a zero is empty"),
        ({"home": ["house", "nursing", "barracks"]}, "exclude every cell"),
    ],
)
def test_zeros_that_mean_nothing_are_refused(zero: dict[str, str], says: str) -> None:
    shape = AGES.to_mappings()
    with pytest.raises(ConfigError, match=says):
        Schema.from_mapping(shape["attributes"], zeros=[zero])


def test_a_record_where_none_can_be_is_refused_without_its_number() -> None:
    columns = {name: [3, 5] for name in AGES.cells()}
    columns["0-17_nursing"] = [0, 987_654]
    columns["0-17_barracks"] = columns["65+_barracks"] = [0, 0]
    geography = td.Geography.from_edges(["a", "b"], ["US", "US"])
    with pytest.raises(CountsError, match=r"'b'.*has records in cell '0-17_nursing'.*structural zero") as refused:
        td.Counts.from_table(
            {"geoid": ["a", "b"], **columns}, geography, geoid="geoid", cells=list(columns), schema=AGES
        )
    assert "987" not in str(refused.value)
    columns["0-17_nursing"] = [0, 0]
    counts = td.Counts.from_table(
        {"geoid": ["a", "b"], **columns}, geography, geoid="geoid", cells=list(columns), schema=AGES
    )
    plan = td.Plan(epsilon="1/10", shares={level: {"total": "1/4", "detailed": "1/4"} for level in geography.levels})
    measurements = td.measure(counts, plan, td.SeededSource(1))
    closed = np.setdiff1d(np.arange(AGES.n_cells), AGES.possible_cells())
    assert (measurements.values[:, closed] > 0).any()
    assert (td.project(measurements, "gls-top-down", nonnegative=True).values[:, closed] == 0).all()
    release = td.project_whole(measurements, source=td.SeededSource(1))
    assert not np.isin(release.cells, closed).any()
