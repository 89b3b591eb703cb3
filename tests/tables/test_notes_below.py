"""Lines below a table, such as notes and a source: how many there are is said, and they are no rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from topdown.errors import ConfigError, DataError
from topdown.guess.written_form import completed, notes_below
from topdown.tables.format import PLAIN, Format
from topdown.tables.readers import read_table

ROWS = "ward,men,women\nA,1,2\nB,3,4\nC,5,6\nD,7,8\nE,9,10\n"
NOTES = ["\n\nSource: the office\n* provisional\n\n", "Source: the office,,\r\n* provisional,,", "a\nb"]


@pytest.mark.parametrize("notes", NOTES)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_lines_below_a_text_are_left_out(tmp_path: Path, notes: str, ending: str) -> None:
    path = tmp_path / f"t{ending}"
    content = (ROWS + notes).encode()
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    found = read_table(path, form=Format(footer=2))
    assert found.to_pydict() == {"ward": [*"ABCDE"], "men": [*"13579"], "women": ["2", "4", "6", "8", "10"]}


def test_lines_below_a_long_table_are_left_out(tmp_path: Path) -> None:
    rows = "".join(f"W{k},{k},{k}\n" for k in range(200_000))
    (tmp_path / "t.csv").write_text(f"ward,men,women\n{rows}\nSource: the office\n")
    found = read_table(tmp_path / "t.csv", form=Format(footer=1))
    assert found.num_rows == 200_000
    assert found["ward"][-1].as_py() == "W199999"


def test_lines_below_a_sheet_are_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ward": [*"ABCDE"], "men": [1, 3, 5, 7, 9]})
    notes = pd.DataFrame({"ward": [None, "Source: the office", "* provisional"]})
    pd.concat([frame, notes]).to_excel(tmp_path / "t.xlsx", index=False)
    found = read_table(tmp_path / "t.xlsx", form=Format(footer=2))
    assert found["ward"].drop_null().to_pylist() == [*"ABCDE"]
    assert read_table(tmp_path / "t.xlsx", form=Format(footer=3)).num_rows == 4


def test_rows_of_another_width_at_the_end_may_be_notes_and_the_message_says_so(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ROWS + "Source: the office\nof statistics, 2021\n")
    with pytest.raises(
        DataError, match=r"line 7 has 1 columns, and the header 3; .*say in input.footer how many lines they are$"
    ):
        read_table(tmp_path / "t.csv")
    # With a delimiter at the end of every line they are all of the table's rows, whose number is confidential.
    (tmp_path / "t.csv").write_text("geoid,sex\n" + "11,f,\n" * 1234)
    with pytest.raises(DataError) as error:
        read_table(tmp_path / "t.csv")
    assert "line 2 has 3 columns" in str(error.value)
    assert "1234" not in str(error.value).replace(",", "")
    (tmp_path / "t.csv").write_text(ROWS.replace("B,3", "B,x,3"))
    with pytest.raises(DataError, match=r"line 3 has 4 columns, and the header 3; [^;]*quotes$"):
        read_table(tmp_path / "t.csv")


def test_how_many_notes_there_are_is_seen(tmp_path: Path) -> None:
    for notes in NOTES[:2]:
        (tmp_path / "t.csv").write_text(ROWS + notes)
        assert completed(tmp_path / "t.csv", PLAIN).footer == 2
    assert notes_below([line.split(",") for line in ROWS.splitlines()]) == 0


@pytest.mark.parametrize("last", ["Washington,D.C.,12,13", "F,..,..", "F,,", "F,11,12", "F,x,*"])
def test_the_last_unit_is_no_note(tmp_path: Path, last: str) -> None:
    (tmp_path / "t.csv").write_text(ROWS + last + "\n")
    assert completed(tmp_path / "t.csv", PLAIN).footer == 0


@pytest.mark.parametrize("number", [-1, 101])
def test_a_number_that_is_none_is_refused(number: int) -> None:
    with pytest.raises(ConfigError, match=r"footer .*give the number of lines below the table, 0 to 100"):
        Format(footer=number)
