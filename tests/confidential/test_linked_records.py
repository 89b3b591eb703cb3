"""Linked tables as counts: against tables made by pandas, and everything that is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.linked import rhode_island, schools
from support.places import SMALL_DATA
from topdown.confidential.linked_counts import LinkedCounts
from topdown.confidential.linked_records import (
    CodedAttribute,
    LinkedColumns,
    count_linked_records,
    count_linked_tables,
    read_public_units,
)
from topdown.errors import ConfigError, CountsError
from topdown.linked.member_groups import MemberGroup
from topdown.linked.universe import LinkedQuery

DATA = SMALL_DATA / "ri_linked"
UNIVERSE = rhode_island()
WIDTHS = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 15}


class Tables(NamedTuple):
    households: pd.DataFrame
    persons: pd.DataFrame
    blocks: pd.DataFrame

    def copies(self) -> Tables:
        return Tables(*(table.copy() for table in self))


@pytest.fixture(scope="module")
def tables() -> Tables:
    households, persons = (pq.read_table(DATA / f"{name}.parquet").to_pandas() for name in ("households", "persons"))
    return Tables(households, persons, pd.read_csv(DATA / "blocks.csv", dtype={"geoid": str}))


@pytest.fixture(scope="module")
def geography(tables: Tables) -> td.Geography:
    return td.Geography.from_geoids(tables.blocks["geoid"], WIDTHS)


@pytest.fixture(scope="module")
def counts(tables: Tables, geography: td.Geography) -> LinkedCounts:
    return count_linked_records(UNIVERSE, geography, *tables)


def answered(counts: LinkedCounts, text: str, level: str = "block") -> np.ndarray:
    return counts.answers(LinkedQuery.parse(text, UNIVERSE), counts.geography.level_slice(level))


def test_records_are_counted_as_pandas_counts_them(
    counts: LinkedCounts, tables: Tables, geography: td.Geography
) -> None:
    blocks = pd.Index(geography.geoid[geography.level_slice("block")])

    def expected(table: pd.DataFrame, attribute: str, categories: tuple[str, ...]) -> np.ndarray:
        found = pd.crosstab(table["geoid"], table[attribute])
        return found.reindex(index=blocks, columns=list(categories), fill_value=0).to_numpy()

    for attribute in UNIVERSE.persons.attributes:
        assert (
            answered(counts, f"persons: {attribute.name}")
            == expected(tables.persons, attribute.name, attribute.categories)
        ).all()
    for attribute in UNIVERSE.households.attributes:
        assert (
            answered(counts, f"households: {attribute.name}")
            == expected(tables.households, attribute.name, attribute.categories)
        ).all()
    categories = [list(UNIVERSE.persons.attribute(name).categories) for name in ("sex", "race")]
    both = pd.crosstab(tables.persons["sex"], tables.persons["race"]).loc[*categories]
    assert answered(counts, "persons: sex * race", "state")[0].tolist() == both.to_numpy().ravel().tolist()


def test_vacant_units_and_facilities_are_the_public_ones(
    counts: LinkedCounts, tables: Tables, geography: td.Geography
) -> None:
    units = tables.blocks.set_index("geoid")["units"].reindex(geography.geoid[geography.level_slice("block")])
    assert (answered(counts, "households: total + vacant").sum(axis=1) == units).all()
    assert answered(counts, "households: total + vacant", "state").tolist() == [[2500, 293]]
    assert counts.public.units is not None
    assert counts.public.units.sum() == 2793
    assert counts.public.facilities.sum(axis=0).tolist() == [0, 0, 0, 0, 0, 0, 1]


def test_files_are_read_as_frames_are(counts: LinkedCounts, geography: td.Geography) -> None:
    paths = (DATA / "households.parquet", DATA / "persons.parquet", DATA / "blocks.csv")
    again = count_linked_records(UNIVERSE, geography, *paths)
    for one, other in zip(again.held, counts.held, strict=True):
        assert np.array_equal(one, other)


def numbered(tables: Tables, first: int = 1) -> Tables:
    """The tables with whole numbers as keys, missing (0) for persons in facilities."""
    number = {key: first + k for k, key in enumerate(tables.households["household"])}
    households = tables.households.assign(household=tables.households["household"].map(number))
    return tables._replace(
        households=households, persons=tables.persons.assign(household=tables.persons["household"].map(number))
    )


def same(counts: LinkedCounts, geography: td.Geography, *given: object) -> bool:
    again = count_linked_records(UNIVERSE, geography, *given)
    return all(np.array_equal(one, other) for one, other in zip(again.held, counts.held, strict=True))


@pytest.mark.parametrize("kind", ["Int64", "int64 and missing as float", "UInt32", "float32", "text in one table"])
def test_keys_may_be_whole_numbers(
    kind: str, counts: LinkedCounts, tables: Tables, geography: td.Geography, tmp_path: Path
) -> None:
    given = numbered(tables)
    assert given.persons["household"].dtype == float  # pandas makes them so, since facilities have none
    if kind == "text in one table":
        given.households["household"] = given.households["household"].astype(str)
    elif not kind.endswith("as float"):
        for table in (given.households, given.persons):
            table["household"] = table["household"].astype(kind)
    assert same(counts, geography, *given)
    paths = [tmp_path / f"{name}.parquet" for name in ("households", "persons")]
    for table, path in zip(given, paths, strict=False):
        table.to_parquet(path, index=False)
    assert same(counts, geography, *paths, given.blocks)


def test_keys_of_csv_that_pandas_wrote_as_decimals(
    counts: LinkedCounts, tables: Tables, geography: td.Geography, tmp_path: Path
) -> None:
    given, paths = numbered(tables), [tmp_path / f"{name}.csv" for name in ("households", "persons")]
    for table, path in zip(given, paths, strict=False):
        table.to_csv(path, index=False)
    assert ".0" in paths[1].read_text(encoding="utf-8")
    assert same(counts, geography, *paths, given.blocks)
    given.households.assign(household=given.households["household"].astype(float)).to_csv(paths[0], index=False)
    given.persons.assign(household=given.persons["household"].astype("Int64")).to_csv(paths[1], index=False)
    assert same(counts, geography, *paths, given.blocks)
    # Households that are called so themselves have these keys.
    given.persons.to_csv(paths[1], index=False)
    given.households.assign(household=given.households["household"].astype(float)).to_csv(paths[0], index=False)
    assert same(counts, geography, *paths, given.blocks)


@pytest.mark.parametrize("written", ["decimals", "numbers"])
def test_keys_of_two_households_never_become_one(
    written: str, tables: Tables, geography: td.Geography, tmp_path: Path
) -> None:
    given = numbered(tables)
    text = given.households["household"].astype(str)
    text.iloc[1] = "01"  # of the persons of both, a table of numbers says 1
    households = given.households.assign(household=text)
    persons = given.persons.assign(household=given.persons["household"].replace(2, 1))
    if written == "decimals":
        for name, table in (("households", households), ("persons", persons)):
            table.to_csv(tmp_path / f"{name}.csv", index=False)
        households, persons = tmp_path / "households.csv", tmp_path / "persons.csv"
    with pytest.raises(CountsError, match="keys are numbers, and two of the table of households differ in leading"):
        count_linked_records(UNIVERSE, geography, households, persons, given.blocks)


@pytest.mark.parametrize(("first", "kind"), [(2**53 - 5, float), (2**24 - 5, "float32")])
def test_numbers_that_may_stand_for_two_keys_are_refused(
    first: int, kind: type | str, tables: Tables, geography: td.Geography
) -> None:
    given = numbered(tables, first)
    for name in ("households", "persons"):
        frame = getattr(given, name)
        said = rf"row \d+ of {name}: the key in column 'household' is a number with decimals, or one so large"
        changed = given._replace(**{name: frame.assign(household=frame["household"].astype(kind))})
        with pytest.raises(CountsError, match=said) as raised:
            count_linked_records(UNIVERSE, geography, *changed)
        assert str(first)[:6] not in str(raised.value)


def test_long_keys_of_csv_are_no_decimals(tables: Tables, geography: td.Geography, tmp_path: Path) -> None:
    given = numbered(tables, 2**53)
    text = given.persons["household"].map(lambda key: "" if np.isnan(key) else f"{key:.1f}")
    with pytest.raises(CountsError, match="a key that is not in the table of households"):
        count_linked_records(
            UNIVERSE,
            geography,
            given.households.assign(household=given.households["household"].astype(str)),
            given.persons.assign(household=text),
            given.blocks,
        )


def test_keys_with_lost_zeros_are_said_to_be_numbers(tables: Tables, geography: td.Geography) -> None:
    given = numbered(tables)
    households = given.households.assign(household=given.households["household"].map("{:05}".format))
    said = "persons: a key that is not in the table of households; keys are numbers in one table and text in the other"
    with pytest.raises(CountsError, match=said):
        count_linked_records(UNIVERSE, geography, households, given.persons, given.blocks)


def test_long_tables_are_counted_as_records_are(counts: LinkedCounts, tables: Tables, geography: td.Geography) -> None:
    households, persons = (
        table.groupby([name for name in table.columns if name != "household"]).size().rename("n").reset_index()
        for table in tables[:2]
    )
    again = count_linked_tables(UNIVERSE, geography, households, persons, tables.blocks, LinkedColumns(count="n"))
    without = count_linked_tables(UNIVERSE, geography, *tables)
    for held in (again.held, without.held):
        for one, other in zip(held, counts.held, strict=True):
            assert np.array_equal(one, other)


def test_nothing_of_the_counts_is_in_the_repr(counts: LinkedCounts) -> None:
    assert repr(counts) == "LinkedCounts(households and persons, 115 nodes, confidential)"
    assert not re.search(r"\d{4}", repr(counts))


def first_block(tables: Tables, least: int = 2) -> tuple[str, str]:
    """A household of so many persons, and its block."""
    sizes = tables.persons.groupby("household").size()
    own = tables.households[tables.households["household"].map(sizes) >= least].iloc[0]
    return own["household"], own["geoid"]


Change = Callable[[Tables], Tables]


def of(table: str, rows: Callable[[pd.DataFrame], pd.Series], **values: object) -> Change:
    """``values`` in place of what ``rows`` of a table have; of the rows that are chosen only the first."""

    def changed(tables: Tables) -> Tables:
        frame = getattr(tables, table)
        row = frame.index[rows(frame)][0]
        for name, value in values.items():
            frame.loc[row, name] = value
        return tables

    return changed


def in_household(persons: pd.DataFrame) -> pd.Series:
    return persons["household"] != ""


def head_of_two(persons: pd.DataFrame) -> pd.Series:
    sizes = persons.groupby("household")["sex"].transform("size")
    return (persons["relationship"] == "householder") & (sizes == 2)


def other_adult(persons: pd.DataFrame) -> pd.Series:
    return (persons["relationship"] == "other in household") & ~persons["age"].isin(["0-4", "5-17"])


def without_rows(table: str, rows: Callable[[pd.DataFrame], pd.Series]) -> Change:
    def changed(tables: Tables) -> Tables:
        frame = getattr(tables, table)
        return tables._replace(**{table: frame.drop(index=frame.index[rows(frame)][0]).reset_index(drop=True)})

    return changed


UNIT = r"block '44\d{13}'"
WRONG: dict[str, tuple[Change, str]] = {
    "no householder": (
        of("persons", head_of_two, relationship="other in household"),
        rf"{UNIT}: one household has no householder \(row \d+ of households\); give it one",
    ),
    "two householders": (
        of("persons", other_adult, relationship="householder"),
        rf"{UNIT}: one household has more than one householder \(row \d+ of households\); leave it one",
    ),
    "another householder": (
        of("persons", head_of_two, race="NHPI"),
        rf"{UNIT}: the householder is not whom the attributes of the household describe \(row \d+ of persons\)",
    ),
    "too few for the size": (
        of("households", lambda frame: frame["size"] == "2", size="3"),
        rf"{UNIT}: 'size' of one household does not fit its members, who are fewer \(row \d+ of households\)",
    ),
    "too many for the size": (
        of("households", lambda frame: frame["size"] == "3", size="2"),
        rf"{UNIT}: 'size' of one household does not fit its members, who are more \(row \d+ of households\)",
    ),
    "a composition that it cannot hold": (
        of("households", lambda frame: frame["type"] == "married, without", type="other, without"),
        rf"{UNIT}: one household has more members 'spouse' than its attributes allow \(row \d+ of households\); "
        "a composition that it cannot hold",
    ),
    "a composition that lacks somebody": (
        of("households", lambda frame: frame["type"] == "cohabiting, without", type="cohabiting, with own children"),
        rf"{UNIT}: one household has fewer members 'own child under 18' than its attributes allow",
    ),
    "in no household and no facility": (
        of("persons", other_adult, household=""),
        rf"{UNIT}: is in no household and in no facility \(row \d+ of persons\)",
    ),
    "a facility's person in a household": (
        of("persons", other_adult, relationship="nursing"),
        rf"{UNIT}: has the key of one household, and attributes that no household has among its members \(row \d+ of",
    ),
    "a key that is not there": (
        of("persons", in_household, household="9999999"),
        r"row 0 of persons: a key that is not in the table of households",
    ),
    "a second key": (
        of("households", lambda frame: frame["household"] == "0000002", household="0000001"),
        r"row 1 of households: a second one with the same key",
    ),
    "no key": (
        of("households", lambda frame: frame["household"] == "0000002", household=""),
        r"row 1 of households: the key in column 'household' is missing",
    ),
    "elsewhere": (
        of("persons", in_household, geoid="440070005001001"),
        r"block '440070005001001': is in one household of another unit \(row 0 of persons\)",
    ),
    "an unknown unit": (
        of("persons", in_household, geoid="999999999999999"),
        r"row 0 of persons: unit \(not shown: it may be a count\) is not in the geography",
    ),
    "an unknown category": (
        of("persons", in_household, race="martian"),
        r"row 0 of persons: 'race' has a value 'martian' that is not one of its categories",
    ),
    "a zero": (
        of("persons", lambda frame: frame["relationship"] == "own child under 18", age="75+"),
        rf"{UNIT}: has records in 'persons: own child under 18, 75\+, .*', which cannot be",
    ),
    "more households than units": (
        of("blocks", lambda frame: frame["units"] > 20, units=1),
        rf"{UNIT}: has more households than units in the table of what is public",
    ),
    "no such facility": (
        of("blocks", lambda frame: frame["other noninstitutional"] > 0, **{"other noninstitutional": 0}),
        rf"{UNIT}: has persons in 'other noninstitutional', and in the table of what is public it has no 'other n",
    ),
    "an empty facility": (
        of("blocks", lambda frame: frame["nursing"] == 0, nursing=3),
        rf"{UNIT}: has fewer persons in 'nursing' than facilities of it in the table of what is public",
    ),
    "a second row of a block": (
        of("blocks", lambda frame: frame.index == 1, geoid="440030212001000"),
        rf"{UNIT}: a second row \(row 1 of the table of what is public\)",
    ),
    "no number of units": (
        of("blocks", lambda frame: frame.index == 1, units=-1),
        rf"{UNIT}, cell 'units' \(row 1 of the table of what is public\): the value is negative",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_sentence_with_the_unit(
    name: str, tables: Tables, geography: td.Geography
) -> None:
    change, message = WRONG[name]
    with pytest.raises(CountsError, match=message) as caught:
        count_linked_records(UNIVERSE, geography, *change(tables.copies()))
    assert "\n" not in str(caught.value)
    assert not re.search(r"\b0{3}\d{4}\b", str(caught.value))  # no household's key


def test_a_household_larger_than_any_may_be(tables: Tables, geography: td.Geography) -> None:
    with pytest.raises(CountsError, match=r"one household has more members than any may have \(row \d+ of househ"):
        count_linked_records(rhode_island(largest=7), geography, *tables)


LONG_WRONG: dict[str, tuple[Change, str]] = {
    "householders who differ": (
        of("persons", head_of_two, race="NHPI"),
        rf"{UNIT}: among its persons, each householder is not that of one of its households, with the same",
    ),
    "members who do not fit": (
        of("persons", lambda frame: frame["relationship"] == "spouse", relationship="other in household"),
        rf"{UNIT}: its persons cannot be dealt into its households: of some groups of members they are too few or too",
    ),
    "too few members": (
        without_rows("persons", other_adult),
        rf"{UNIT}: its persons cannot be dealt into its households",
    ),
    "households that cannot be": (
        of("households", lambda frame: frame["size"] == "2", size="1"),
        rf"{UNIT}: has records in 'households: 1, .*', which cannot be",
    ),
}


@pytest.mark.parametrize("name", LONG_WRONG)
def test_what_is_wrong_with_tables_without_keys(name: str, tables: Tables, geography: td.Geography) -> None:
    change, message = LONG_WRONG[name]
    with pytest.raises(CountsError, match=message):
        count_linked_tables(UNIVERSE, geography, *change(tables.copies()))


def test_counts_that_are_none(tables: Tables, geography: td.Geography) -> None:
    persons = tables.persons.assign(n="many")
    with pytest.raises(CountsError, match=r"cell 'n' \(row 0 of persons\): the value 'many' is not a whole number"):
        count_linked_tables(
            UNIVERSE, geography, tables.households.assign(n=1), persons, tables.blocks, LinkedColumns(count="n")
        )


def test_a_column_of_counts_is_no_attribute(tables: Tables, geography: td.Geography) -> None:
    """As a column of codes it would be taken for the counts."""
    given = tables.copies()
    households, persons = given.households.assign(sex=1), given.persons.assign(code="1", sex=1)
    for coded in ({}, {"persons": {"sex": CodedAttribute("code", {"female": ["1"], "male": ["2"]})}}):
        columns = LinkedColumns(count="sex", coded=coded)
        with pytest.raises(ConfigError, match="persons: 'sex' is an attribute, and a column of counts, keys or GEOIDs"):
            count_linked_tables(UNIVERSE, geography, households, persons, given.blocks, columns)


def test_a_row_of_no_records_may_be_of_an_impossible_cell(
    tables: Tables, geography: td.Geography, counts: LinkedCounts
) -> None:
    """Long tables are often written with all cells, also those that cannot be."""
    households, persons = tables.households.assign(n=1), tables.persons.assign(n=1)
    alone = households[households["size"] == "1"].head(1).assign(n=0, type="married, with own children")
    found = count_linked_tables(
        UNIVERSE, geography, pd.concat([alone, households]), persons, tables.blocks, LinkedColumns(count="n")
    )
    for one, other in zip(found.held, counts.held, strict=True):
        assert np.array_equal(one, other)


def test_facilities_that_are_counted_need_a_table(tables: Tables, geography: td.Geography) -> None:
    with pytest.raises(ConfigError, match="the number of facilities such as 'correctional' is public"):
        count_linked_records(UNIVERSE, geography, tables.households, tables.persons)


def test_more_cells_than_numbers(tables: Tables, geography: td.Geography) -> None:
    wide = td.Schema.from_mapping({f"a{k}": [str(n) for n in range(1000)] for k in range(6)})
    universe = replace(
        UNIVERSE, persons=wide, householder=None, facilities=(), groups=(MemberGroup("all", ((),), (((), 0, None),)),)
    )
    with pytest.raises(CountsError, match="are more than 2\\^63"):
        count_linked_records(universe, geography, *tables)


def test_schools_and_pupils() -> None:
    geography = td.Geography.from_table({"town": ["a", "b"]}, ["land", "town"], root="land")
    own = pd.DataFrame(
        {
            "school": ["x", "y", "z"],
            "town": ["a", "a", "b"],
            "kind": ["primary", "secondary", "primary"],
            "size": ["2+", "1", "0"],
        }
    )
    pupils = pd.DataFrame(
        {
            "school": ["x", "x", "y"],
            "town": ["a", "a", "a"],
            "grade": ["low", "high", "high"],
            "sex": ["male", "female", "male"],
        }
    )
    columns = LinkedColumns(geoid=("town",), household="school")
    found = count_linked_records(schools(), geography, own, pupils, columns=columns)
    query = LinkedQuery.parse("pupils: grade", schools())
    assert found.answers(query, geography.level_slice("town")).tolist() == [[1, 2], [0, 0]]
    assert found.public.units is None
    said = "town 'a': one entry of schools has more members 'low' than its attributes allow"
    with pytest.raises(CountsError, match=said):
        count_linked_records(schools(), geography, own, pupils.assign(grade="low"), columns=columns)


def test_public_units_of_a_block_without_a_row_are_none(tables: Tables, geography: td.Geography) -> None:
    found = read_public_units(tables.blocks.iloc[:0], UNIVERSE, geography)
    assert found.units is not None
    assert not found.units.any()
    assert found.facilities.shape == (103, 7)
