"""`topdown init` on tables of many shapes: what is taken is right, or it is asked, and never wrong in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guess.corpus import CASES, Case
from guess.published_tables import PUBLISHED
from guess.wild_tables import MORE
from topdown.config import load_config
from topdown.errors import DataError
from topdown.guess.first_configuration import configuration
from topdown.guess.found import Guess
from topdown.guess.inference import guess
from topdown.guess.total_rows import sums_in_order
from topdown.pipeline.input.reading import read_input
from topdown.tables.format import PLAIN


def differences(found: Guess, case: Case) -> dict[str, tuple[Any, Any]]:
    """What was found and is not what was expected: by part, both."""
    named: Any = next(iter(found.names.values()), None) if found.widths else found.names
    pairs = {
        "rows": (found.rows.name, case.rows),
        "levels": (list(found.levels), list(case.levels)),
        "widths": (found.widths, case.widths),
        "geoid": (found.geoid, case.geoid),
        "cells": (sorted(found.cells), sorted(case.cells)),
        "attributes": (sorted(found.attributes), sorted(case.attributes)),
        "count": (found.count, case.count),
        "separator": (found.separator, case.separator),
        "where": (found.where, case.where),
        "leave_out": (found.leave_out, case.leave_out),
        "pad_zeros": (found.pad_zeros, case.pad_zeros),
    }
    if case.names is not None:
        pairs["names"] = (named, case.names)
    if case.root is not None:
        pairs["root"] = ((found.root_level, found.root), case.root)
    for name, value in case.form.items():
        pairs[f"form.{name}"] = (getattr(found.form, name), value)
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("case", [*CASES, *MORE, *PUBLISHED], ids=lambda case: case.name)
def test_what_is_taken_is_what_is_there(case: Case, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    if case.refused:
        with pytest.raises(DataError, match=case.refused):
            guess(path, PLAIN)
        return
    found = guess(path, PLAIN)
    topics = {one.topic for one in found.questions}
    assert differences(found, case) == {}
    assert set(case.asks) <= topics <= {*case.asks, *case.may_ask}
    # Nothing is passed over: every column is used, or left out for a reason.
    (tmp_path / "made.toml").write_text(configuration(found, path.name, "a title"), encoding="utf-8")
    if case.unread:
        with pytest.raises(DataError, match=case.unread):
            read_input(load_config(tmp_path / "made.toml"))
        return
    geography, counts = read_input(load_config(tmp_path / "made.toml"))
    assert geography.n_leaves > 1
    assert counts.values[0].sum() > 0


def test_rows_that_are_sums_of_those_after_or_before_them_are_found() -> None:
    rows = [30, 12, 5, 7, 18, 8, 10]  # all; a part and its two, another part and its two
    numbers = np.array([rows, [2 * one for one in rows]], float) * 10
    expected = [True, True, False, False, True, False, False]
    assert sums_in_order(numbers).tolist() == expected
    assert sums_in_order(numbers[:, ::-1]).tolist() == expected[::-1]
    assert not sums_in_order(np.array([[30.0, 12, 18, 400, 500, 7, 90, 41]])).any()
    assert not sums_in_order(np.random.default_rng(1).poisson(900, (2, 500)).astype(float)).any()


_COUNTIES = [
    (f"{state}{county:03}", 1000 + county * 7, 900 + county * 5) for state in ("01", "06") for county in range(1, 30, 2)
]


def test_a_header_with_unnamed_columns_is_the_header(tmp_path: Path) -> None:
    """Else the first row of data would be: its counts would be published, as names of cells."""
    path = tmp_path / "t.csv"
    rows = [f"{k},{code},{men}" for k, (code, men, _) in enumerate(_COUNTIES)]
    path.write_text("\n".join([",county,people", *rows]) + "\n")
    text = configuration(guess(path, PLAIN), "t.csv", "a title")
    assert 'cells = ["people"]' in text
    assert "1007" not in text
    rows = [f"{k},{code},{men},{women}," for k, (code, men, women) in enumerate(_COUNTIES)]
    path.write_text("\n".join([",county,men,women,", *rows]) + "\n")
    with pytest.raises(DataError, match="two columns have no name; name them"):
        guess(path, PLAIN)


@pytest.mark.parametrize("columns", ["county", "state,county"])
def test_a_total_among_codes_is_left_out(columns: str, tmp_path: Path) -> None:
    both = "," in columns
    rows = [f"{code[:2]},{code},{men},{women}" if both else f"{code},{men},{women}" for code, men, women in _COUNTIES]
    sums = [sum(one[k] for one in _COUNTIES) for k in (1, 2)]
    total = f"{'00,' if both else ''}Total,{sums[0]},{sums[1]}"
    (tmp_path / "t.csv").write_text("\n".join([f"{columns},men,women", *rows, total]) + "\n")
    text = configuration(guess(tmp_path / "t.csv", PLAIN), "t.csv", "a title")
    assert 'leave_out = { county = ["Total"] }' in text
    assert 'cells = ["men", "women"]' in text


@pytest.mark.parametrize("columns", [(1, 2), (0, 1, 2)])
def test_a_table_without_a_row_of_names_is_refused(columns: tuple[int, ...], tmp_path: Path) -> None:
    """The counts of its first unit would be published, as names of cells."""
    rows = [(code, f"unit {code}", str(men)) for code, men, _ in _COUNTIES]
    lines = [",".join([*(row[k] for k in columns), "12"]) for row in rows]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="seems to be data; give it a row of names") as error:
        guess(tmp_path / "t.csv", PLAIN)
    assert "1007" not in str(error.value)


@pytest.mark.parametrize("names", ["2010,2020", "0,5,10,15,20,25"])
def test_years_and_series_are_names_of_columns(names: str, tmp_path: Path) -> None:
    count = names.count(",") + 1
    rows = [",".join([code, *(str(men + k) for k in range(count))]) for code, men, _ in _COUNTIES]
    (tmp_path / "t.csv").write_text("\n".join([f"county,{names}", *rows]) + "\n")
    assert guess(tmp_path / "t.csv", PLAIN).cells


def test_rows_of_delimiters_alone_are_empty(tmp_path: Path) -> None:
    """A spreadsheet program writes the empty row between a table and its notes in this way."""
    rows = [
        "county,men,women",
        *(f"{code},{men},{women}" for code, men, women in _COUNTIES),
        ",,",
        "Notes: preliminary,,",
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    found = guess(tmp_path / "t.csv", PLAIN)
    assert found.form.footer == 2
    (tmp_path / "made.toml").write_text(configuration(found, "t.csv", "a title"), encoding="utf-8")
    geography, _ = read_input(load_config(tmp_path / "made.toml"))
    assert geography.n_leaves == len(_COUNTIES)
