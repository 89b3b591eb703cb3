"""Tables of answers: their columns, and the tables of the redistricting file against the file's own sums."""

from __future__ import annotations

import numpy as np
import pytest

from topdown.errors import ConfigError
from topdown.workload import Attribute, Schema
from topdown.workload.answer_tables import AnswerTable, answer_column, answer_tables
from topdown.workload.redistricting import (
    PERSONS,
    TABLES,
    UNITS,
    VOTERS,
    field_names,
    hispanic_table,
    quarters_table,
    race_table,
)

AGES = Schema((Attribute("age", ("young", "old")), Attribute("sex", ("f", "m"))))


def filled(table: AnswerTable, histograms: np.ndarray) -> np.ndarray:
    """The table's columns of histograms (units x cells)."""
    return np.stack([one.query.answers(histograms)[:, one.answer] for one in table.columns], axis=1)


def test_a_query_has_a_column_for_every_answer_and_their_total() -> None:
    (table,) = answer_tables(["age * sex"], AGES)
    assert [one.name for one in table.columns] == ["young_f", "young_m", "old_f", "old_m", "total"]
    assert [one.meaning for one in table.columns][2:] == ["age = old, sex = f", "age = old, sex = m", "everybody"]
    assert filled(table, np.array([[1, 2, 3, 4]])).tolist() == [[1, 2, 3, 4, 10]]
    assert [one.name for one in answer_tables(["total"], AGES)[0].columns] == ["total"]


@pytest.mark.parametrize("schema", [PERSONS, Schema(PERSONS.attributes[::-1])], ids=["order", "reversed"])
def test_the_tables_of_the_redistricting_file_are_its_sums(schema: Schema) -> None:
    counts = np.random.default_rng(1).integers(0, 9, (3, PERSONS.n_cells))
    ordered = counts.reshape(3, *PERSONS.shape)
    both, residence = ordered.sum(axis=1), ordered.sum(axis=(2, 3, 4))
    expected = {
        "P1": race_table(both.sum(axis=(1, 2))),
        "P2": hispanic_table(both.sum(axis=1)),
        "P3": race_table(both[:, 1].sum(axis=1)),
        "P4": hispanic_table(both[:, 1]),
        "P5": quarters_table(residence),
    }
    given = counts if schema is PERSONS else ordered.transpose(0, 4, 3, 2, 1).reshape(3, -1)
    for table in answer_tables(list(expected), schema):
        assert len(table.columns) == TABLES[table.name]
        assert [one.name for one in table.columns] == field_names(table.name)
        assert (filled(table, given) == expected[table.name]).all()


def test_a_table_of_the_file_asks_for_its_own_attributes_alone() -> None:
    assert [one.name for one in answer_tables(["P1", "P4"], VOTERS)] == ["P1", "P4"]
    with pytest.raises(ConfigError, match="P5"):
        answer_tables(["P5"], VOTERS)
    with pytest.raises(ConfigError, match="P1"):
        answer_tables(["P1"], AGES)
    (units,) = answer_tables(["H1"], UNITS)
    assert filled(units, np.array([[2, 5]])).tolist() == [[7, 5, 2]]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["age * sec"], "'sec'.*did you mean 'sex'"),
        (["age", "age"], "'age' is asked for twice"),
        (["age * sex", "age*sex"], "asked for twice"),
    ],
)
def test_what_is_no_table_is_refused(names: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        answer_tables(names, AGES)


def test_columns_that_would_be_called_alike_are_refused() -> None:
    schema = Schema(
        (Attribute("kind", ("level", "other")), Attribute("size", ("a", "a_b")), Attribute("more", ("b_c", "c")))
    )
    with pytest.raises(ConfigError, match="two columns 'level'"):
        answer_tables(["kind"], schema)
    with pytest.raises(ConfigError, match="two columns 'a_b_c'"):
        answer_tables(["size * more"], schema)


def test_files_have_names_of_their_own() -> None:
    schema = Schema((Attribute("a b", ("x", "y")), Attribute("a", ("x", "y")), Attribute("b", ("x", "y"))))
    assert [one.stem for one in answer_tables(["a b", "a * b", "total"], schema)] == ["a_b", "a_b_", "total"]


@pytest.mark.parametrize(
    ("names", "stems"),
    [(["a", "a_estimates"], ["a", "a_estimates_"]), (["A_Estimates", "a"], ["A_Estimates", "a_"])],
)
def test_no_table_is_called_as_the_estimates_of_another(names: list[str], stems: list[str]) -> None:
    schema = Schema(tuple(Attribute(name, ("x", "y")) for name in names))
    assert [one.stem for one in answer_tables(names, schema)] == stems


def test_a_cell_of_another_query_is_refused_with_that_query() -> None:
    with pytest.raises(ConfigError, match="query 'total' has no cell 'old'; it is an answer of 'age': ask that query"):
        answer_column("total", "old", AGES)
