from __future__ import annotations

from fractions import Fraction
from time import perf_counter

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from topdown.errors import ConfigError, TopdownError, require_known
from topdown.geography.labels import code_shown
from topdown.wording import (
    LONGEST_MESSAGE,
    WITHHELD,
    column_name,
    column_names,
    escaped,
    figure,
    joined,
    listed,
    may_hold_a_count,
    of_the_value,
    passes_as_name,
    reason,
    shown,
    shown_path,
    type_name,
    unquoted,
)

NASTY = ["\x1b[31m", "a\nb", "a\r", "\x9b", "\u202eabc", "\u2028", "\ud800", "\0", "\ufeff", "\u200f", "\x7f", "\t"]


@pytest.mark.parametrize("text", NASTY)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    for said in (escaped(text), shown(text), listed([text]), shown_path(text), unquoted(text), figure(text)):
        assert said.isprintable()
    assert str(TopdownError(text)).isprintable()
    assert not passes_as_name(f"name{text}")
    assert text not in column_names([f"name{text}", "b"])


@given(st.text(max_size=300))
def test_a_piece_is_short_whatever_it_is(text: str) -> None:
    assert shown(text).count("'") >= 2 or '"' in shown(text)
    for said, most in ((shown(text), 40), (unquoted(text), 40), (listed([text] * 9), 80), (shown_path(text), 170)):
        assert said.isprintable()
        # An escaped character takes up to ten.
        assert len(said) <= 10 * most + 40
        if text.isprintable() and "'" not in text and "\\" not in text:
            assert len(said) <= most + 60


def test_what_is_long_is_cut_and_what_is_short_is_whole() -> None:
    assert shown("x" * 40) == repr("x" * 40)
    assert shown("x" * 41) == repr("x" * 40) + "..."
    assert shown(10**5000) == "a whole number of 16,610 bits"
    assert shown([1] * 1000).startswith("[1, 1")
    assert len(shown([1] * 1000)) < 50
    assert listed(["a", "b"]) == "'a', 'b'"
    assert listed([]) == "none"
    assert listed([f"name {k}" for k in range(100)]).endswith(" and 92 more")
    assert joined(["a 1", "b 2"]) == "a 1, b 2"
    assert shown_path("a/b.csv") == "a/b.csv"
    assert shown_path("x" * 500) == "x" * 80 + "..." + "x" * 80
    assert figure("0.1") == "0.1"
    assert figure(Fraction(1, 3)) == "1/3"
    assert figure(10**5000) == "a whole number of 16,610 bits"
    assert len(str(ConfigError("x" * 10**6))) == LONGEST_MESSAGE + 3
    with pytest.raises(ConfigError) as error:
        require_known("y" * 10**5, ["a", "b"], "thing")
    assert len(str(error.value)) < 150


@pytest.mark.parametrize(
    "text",
    ["1234567", "1,234,567", "1 234 567", "1.234.567", "1'234'567", "1_234_567", "x 1234", "n=1234567", "x,1234567",
     "-1234", "1234567 people", "Autauga1234567", "1.234567e6", "12-34567", "\u0661\u0662\u0663\u0664",
     "１２３４５６７"],
)  # fmt: skip
def test_numbers_are_seen_however_they_are_written(text: str) -> None:
    assert may_hold_a_count(text)
    assert not passes_as_name(text)
    assert text not in column_names([text, "county"])
    assert of_the_value(text) == ""


@pytest.mark.parametrize(
    "name",
    ["county", "adults", "P0010001", "B01001_001E", "H1_002N", "AV0AA1990", "pop2010", "under18", "18over", "2nd",
     "voting age", "Estimate!!Total", "Doña Ana", "北京", "R&D"],
)  # fmt: skip
def test_names_of_columns_pass(name: str) -> None:
    assert passes_as_name(name)
    assert column_name(name) == repr(name)


@pytest.mark.parametrize(
    "name", ["", "12", "01001", "89", "a 12", "x" * 41, "a\nb", "...", None, 7, ("a", "b"), "x1234567", "E12000007"]
)
def test_what_is_no_name_does_not_pass(name: object) -> None:
    assert not passes_as_name(name)
    assert "12" not in column_name(name)


def test_columns_are_listed_without_those_that_do_not_read_as_names() -> None:
    assert column_names([]) == "none"
    assert column_names(["a", "b"]) == "'a', 'b'"
    assert column_names(["01", "89"]).startswith("2 whose names do not look like names; is its first line a header")
    assert column_names(["US", "89"]).startswith("'US', and 1 whose names do not look like names; is its first line")
    assert len(column_names([f"column_{'x' * 20}{k}" for k in range(9)])) < 120
    assert column_names([f"c{k}" for k in range(100_000)]).endswith(" more")


@pytest.mark.parametrize(("value", "said"), [("many", " 'many'"), ("inf", " 'inf'"), ("½", ""), ("x1", ""), ("", "")])
def test_a_value_is_shown_where_it_is_a_word(value: str, said: str) -> None:
    assert of_the_value(value) == said
    assert of_the_value(12) == of_the_value(1.5) == of_the_value(None) == ""


def test_identifiers_are_shown_where_they_are_codes_like_the_others() -> None:
    codes = pa.array(["01001", "01003", "48301", "1234567"])
    assert code_shown("48301", codes) == "'48301'"
    assert code_shown("48301", codes, "48") == "'48301'"
    assert code_shown("48301", codes, "01") == WITHHELD
    assert code_shown("1001", codes, "01") == "'1001'"
    assert code_shown("1234567", codes) == code_shown("1234567", codes, "01") == WITHHELD
    assert code_shown("1,234,567", codes) == WITHHELD
    assert code_shown("1234567", pa.array(["1234567", "7654321"])) == WITHHELD
    assert code_shown("Autauga", codes) == "'Autauga'"
    assert code_shown("n=1234567", pa.array(["n=1234567", "n=7654321"])) == WITHHELD
    assert code_shown("01", pa.array(["01"])) == "'01'"


def test_reasons_come_from_the_kind_of_error_and_not_from_its_text() -> None:
    assert reason(OSError(28, "1234567")) == "No space left on device"
    assert "1234567" not in reason(ValueError("1234567")) + reason(pa.ArrowInvalid("row 1234567"))
    assert "UTF-8" in reason(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"))
    assert reason(MemoryError()) == reason(pa.ArrowMemoryError("x")) == "out of memory"


def test_types_are_named_without_their_fields() -> None:
    assert type_name(pa.struct([("1234567", pa.int64())])) == "struct"
    assert type_name(pa.list_(pa.int64())) == "list"
    assert type_name(pa.decimal128(38, 2)) == "decimal128(38, 2)"


@pytest.mark.parametrize(
    "text", ["x" * 10**7, "x1" * 10**6, "1," * 10**6, "1 " * 10**6, "a_" * 10**6, "x" * 10**6 + "1" * 10**6]
)
def test_no_text_takes_long_to_look_at(text: str) -> None:
    """What a quote that is not closed makes of a table is one name of its size."""
    begin = perf_counter()
    may_hold_a_count(text)
    for say in (shown, unquoted, column_name, of_the_value, shown_path):
        assert len(say(text)) < 200
    assert len(column_names([text] * 100)) < 200
    assert perf_counter() - begin < 5.0


def test_a_number_that_the_cut_would_hide_in_part_is_seen() -> None:
    assert may_hold_a_count("x" * 37 + " 1234567")
    assert may_hold_a_count("x" * 36 + "1234567")
