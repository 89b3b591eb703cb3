"""`topdown init`: what it writes for tables of many shapes passes `check`, and says what was guessed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support.places import REPOSITORY, SMALL_DATA, Command
from topdown.config import load_config
from topdown.errors import DataError
from topdown.guess.first_configuration import configuration
from topdown.guess.inference import guess
from topdown.pipeline import draw
from topdown.tables.format import PLAIN


def made(path: Path, folder: Path) -> dict[str, Any]:
    """The settings that are guessed for the table at ``path``, after they have passed `check`."""
    text = configuration(guess(path, PLAIN), path.as_posix(), "a title")
    (folder / "made.toml").write_text(text, encoding="utf-8")
    config = load_config(folder / "made.toml")
    # The second solution is another matter, and takes the longest.
    draw.check(config.model_copy(update={"projection": config.projection.model_copy(update={"cross_check": False})}))
    return tomllib.loads(text)


def test_the_counties_are_understood_with_their_names(tmp_path: Path) -> None:
    found = made(REPOSITORY / "data" / "us_counties_labor_force_2009.parquet", tmp_path)
    assert found["geography"]["levels"] == ["nation", "state", "county"]
    assert found["geography"]["names"] == {"state": "state_name", "county": "county_name"}
    assert found["input"]["cells"] == ["employed", "unemployed"]


WITHOUT_COUNTS = {"ri_pl94_2018_blocks.csv", "ri_pl94_2018_facilities.csv"}
"""What is known of units beside their counts."""


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(SMALL_DATA.glob("*.csv")) if path.name not in WITHOUT_COUNTS],
    ids=lambda path: path.stem,
)
def test_real_tables_that_nobody_described_pass(path: Path, tmp_path: Path) -> None:
    try:
        found = made(path, tmp_path)
    except DataError as error:  # a table of codes that are numbers, say: the message is the answer
        pytest.fail(str(error))
    assert found["privacy"]["epsilon"] == 1.0


def blocks() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    codes = [f"44{county:03d}{tract:06d}" for county in (1, 3) for tract in range(20)]
    frame = pd.DataFrame({"GEOID": codes, "male": rng.poisson(900, 40), "female": rng.poisson(950, 40)})
    return frame.assign(everybody=frame["male"] + frame["female"])


def test_codes_alone_give_widths_and_a_total_is_left_out(tmp_path: Path) -> None:
    blocks().to_csv(tmp_path / "blocks.csv", index=False, sep=";")
    found = made(tmp_path / "blocks.csv", tmp_path)
    assert found["geography"]["widths"] == {"county": 5, "tract": 11}
    assert (found["geography"]["root_level"], found["geography"]["root"]) == ("state", "44")
    assert found["input"]["delimiter"] == ";"
    assert found["input"]["cells"] == ["male", "female"]
    assert "Left out, since it is the sum of male, female: everybody" in (tmp_path / "made.toml").read_text()


@pytest.mark.parametrize(("wrong", "said"), [("-3", "negative"), ("2.5", "a fraction")])
def test_a_number_that_is_no_count_is_named_and_its_column_stays_a_cell(
    wrong: str, said: str, tmp_path: Path, topdown: Command
) -> None:
    frame = blocks().drop(columns="everybody").astype(str)
    frame.loc[7, "female"] = wrong
    frame.to_csv(tmp_path / "table.csv", index=False)
    done = topdown("init", tmp_path / "table.csv", "-o", tmp_path / "made.toml")
    assert done.returncode == 0, done.stderr
    assert tomllib.loads((tmp_path / "made.toml").read_text())["input"]["cells"] == ["male", "female"]
    assert f"'44001000007', cell 'female' (line 9): the value is {said}" in done.stdout


def test_records_and_long_tables_get_a_schema(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    persons = pd.DataFrame(
        {"tract_id": rng.choice(["01", "02", "11"], 300), "sex": rng.choice(["f", "m"], 300),
         "age": rng.choice(["0-17", "18+"], 300)}
    )  # fmt: skip
    persons.to_csv(tmp_path / "persons.csv", index=False)
    found = made(tmp_path / "persons.csv", tmp_path)
    assert found["input"]["rows"] == "records"
    assert found["schema"] == {"sex": ["f", "m"], "age": ["0-17", "18+"]}
    long = persons.groupby(["tract_id", "sex", "age"], as_index=False).size()
    long.to_csv(tmp_path / "long.csv", index=False)
    found = made(tmp_path / "long.csv", tmp_path)
    assert (found["input"]["rows"], found["input"]["count"]) == ("long", "size")


def test_of_rows_at_several_levels_the_lowest_are_taken(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    # A district is called as its province, and districts of two provinces alike.
    rows = [(f"p{a}", "east" if b == 0 else f"p{a}" if b == 1 else f"d{a}{b}") for a in range(9) for b in range(8)]
    lowest = pd.DataFrame(rows, columns=["province", "district"])
    lowest = lowest.assign(level="District", men=rng.poisson(900, 72), women=rng.poisson(900, 72))
    higher = lowest.groupby("province", as_index=False)[["men", "women"]].sum()
    higher = higher.assign(level="Province", district=higher["province"])
    pd.concat([higher, lowest]).to_csv(tmp_path / "t.csv", index=False)
    found = made(tmp_path / "t.csv", tmp_path)
    assert found["input"]["where"] == {"level": "District"}
    assert found["input"]["cells"] == ["men", "women"]
    assert found["geography"]["levels"] == ["everything", "province", "district"]


def test_names_under_several_parents_are_told_apart_by_both(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [(f"p{a}", f"d{b}") for a in range(10) for b in range(a, a + 12)]
    frame = pd.DataFrame(rows, columns=["province", "district"])
    frame.assign(men=rng.poisson(900, 120), women=rng.poisson(900, 120)).to_csv(tmp_path / "t.csv", index=False)
    found = made(tmp_path / "t.csv", tmp_path)
    assert found["geography"]["levels"] == ["everything", "province", "district"]
    assert found["geography"]["separator"] == "/"
    assert found["input"]["cells"] == ["men", "women"]


def test_names_of_columns_are_quoted_for_toml(tmp_path: Path) -> None:
    frame = blocks().rename(columns={"male": 'a "quoted" \\ name', "female": "größer\ttab"}).drop(columns="everybody")
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert made(tmp_path / "t.csv", tmp_path)["input"]["cells"] == ['a "quoted" \\ name', "größer\ttab"]


def test_a_table_without_units_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="no column of text or codes tells units apart"):
        guess(tmp_path / "t.parquet", PLAIN)
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="has no rows"):
        guess(tmp_path / "t.csv", PLAIN)


def test_the_command_writes_checks_and_does_not_overwrite(tmp_path: Path, topdown: Command) -> None:
    blocks().to_csv(tmp_path / "blocks.csv", index=False)
    (tmp_path / "sub").mkdir()
    target = tmp_path / "sub" / "release.toml"
    done = topdown("init", tmp_path / "blocks.csv", "-o", target)
    assert (done.returncode, done.stderr) == (0, "")
    assert "next      read it, and choose the budget: topdown check" in done.stdout
    assert tomllib.loads(target.read_text())["input"]["path"] == "../blocks.csv"
    assert topdown("check", target, "-q").returncode == 0
    again = topdown("init", tmp_path / "blocks.csv", "-o", target)
    assert again.returncode == 2
    assert "exists already; give another --output" in again.stderr
    blocks().assign(male=lambda t: t["male"].where(t.index != 3)).to_csv(tmp_path / "wrong.csv", index=False)
    wrong = topdown("init", tmp_path / "wrong.csv", "-o", tmp_path / "wrong.toml")
    assert wrong.returncode == 0
    assert "next      correct it, topdown check" in wrong.stdout


def test_names_with_line_ends_stay_on_their_line(tmp_path: Path, topdown: Command) -> None:
    """As in headings of spreadsheets that are wrapped; a line that a name makes looks like one of the command's."""
    frame = (
        blocks().drop(columns="everybody").rename(columns={"male": "men\nok        all passed", "GEOID": "the\ncode"})
    )
    frame.to_csv(tmp_path / "table.csv", index=False)
    done = topdown("init", tmp_path / "table.csv", "-o", tmp_path / "made.toml")
    assert done.returncode == 0
    checked = topdown("check", tmp_path / "made.toml")
    assert checked.returncode == 0
    said = [line[:10] for one in (done, checked) for line in one.stdout.splitlines()]
    assert said.count("ok        ") == 1
    assert "parts of the codes in the\\ncode\n" in done.stdout
