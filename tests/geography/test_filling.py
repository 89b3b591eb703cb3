"""Units that are not divided further are leaves, and no count of theirs is lost or counted twice."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from support.places import RUN_TOML
from topdown.config import load_config
from topdown.errors import ConfigError, DataError
from topdown.pipeline import run as pipeline
from topdown.pipeline.input.reading import read_input

LEVELS = RUN_TOML.replace('geoid = "county"\n', "").replace(
    "widths = { state = 2, county = 5 }", 'levels = ["nation", "state", "county"]\nfill = "repeat"'
)
WIDTHS = RUN_TOML.replace("[privacy]", 'fill = "repeat"\n[privacy]')


@pytest.fixture
def uneven() -> pd.DataFrame:
    """Two counties in state 01; state 02 and state 11 are not divided."""
    return pd.DataFrame(
        {
            "nation": "US",
            "state": ["01", "01", "02", "11"],
            "county": ["01001", "01003", None, None],
            "adults": [10, 20, 30, 5],
            "children": [1, 2, 4, 0],
            "label": ["a", "b", "c", "d"],
        }
    )


def read(tmp_path: Path, table: pd.DataFrame, toml: str) -> dict[str, list[int]]:
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(toml)
    geography, counts = read_input(load_config(tmp_path / "run.toml"))
    return dict(zip(geography.identifiers.to_pylist(), counts.values.tolist(), strict=True))


WANTED = {
    "US": [65, 7], "01": [30, 3], "02": [30, 4], "11": [5, 0],
    "01001": [10, 1], "01003": [20, 2], "02/county": [30, 4], "11/county": [5, 0],
}  # fmt: skip


def by_codes(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(county=table["county"].fillna(table["state"])).drop(columns=["nation", "state"])


def test_a_unit_stands_again_below_itself_by_columns_and_by_codes(tmp_path: Path, uneven: pd.DataFrame) -> None:
    assert read(tmp_path, uneven, LEVELS) == WANTED
    assert read(tmp_path, by_codes(uneven), WIDTHS) == WANTED
    shuffled = uneven.sample(frac=1, random_state=3)
    assert (
        read(tmp_path, shuffled.drop(columns="nation"), LEVELS.replace("[privacy]", 'root = "US"\n[privacy]')) == WANTED
    )


def test_without_fill_such_rows_are_refused(tmp_path: Path, uneven: pd.DataFrame) -> None:
    with pytest.raises(DataError, match=r"line 4: level 'county' is missing.*orphan"):
        read(tmp_path, uneven, LEVELS.replace('fill = "repeat"', ""))


def test_two_levels_may_be_missing_and_paths_take_names(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "nation": "K",
            "state": ["A", "A", "B", "C"],
            "county": ["x", "y", "x", ""],
            "town": ["1", "", "1", ""],
            "adults": [1, 2, 3, 4],
            "children": 1,
        }
    )
    toml = LEVELS.replace('"county"]', '"county", "town"]').replace("county = 0.5", "county = 0.4, town = 0.1")
    found = read(tmp_path, table, toml.replace("[privacy]", 'separator = "/"\n[privacy]'))
    assert list(found)[-4:] == ["A/x/1", "A/y/y", "B/x/1", "C/C/C"]
    assert found["C/C"] == found["C"] == [4, 1]
    table["county"], table["town"] = ["Ax", "Ay", "Bx", ""], ["Ax1", "", "Bx1", ""]
    assert list(read(tmp_path, table, toml))[-4:] == ["Ax1", "Ay/town", "Bx1", "C/town"]


@pytest.mark.parametrize("separator", ["", 'separator = "/"'])
def test_a_row_that_may_be_the_sum_of_others_is_refused(tmp_path: Path, uneven: pd.DataFrame, separator: str) -> None:
    uneven.loc[4] = ["US", "01", None, 30, 3, "e"]
    with pytest.raises(DataError, match=r"line 6: state '01' has no unit of level 'county' in this row and has some"):
        read(tmp_path, uneven, LEVELS.replace("[privacy]", f"{separator}\n[privacy]"))
    with pytest.raises(DataError, match=r"line 6: state '01' has no unit of level 'county'"):
        read(tmp_path, by_codes(uneven), WIDTHS)


def test_a_gap_between_levels_is_refused(tmp_path: Path, uneven: pd.DataFrame) -> None:
    uneven.loc[1, "state"] = None
    with pytest.raises(DataError, match=r"line 3: level 'state' is missing, and a unit of level 'county' is there"):
        read(tmp_path, uneven, LEVELS)


def test_codes_of_another_width_are_refused(tmp_path: Path, uneven: pd.DataFrame) -> None:
    with pytest.raises(DataError, match=r"line 2: GEOID '010' has 3 characters"):
        read(tmp_path, by_codes(uneven).replace("01001", "010"), WIDTHS)


def test_a_public_list_is_filled_by_the_same_rule(tmp_path: Path, uneven: pd.DataFrame) -> None:
    by_codes(uneven)[["county", "label"]].to_csv(tmp_path / "units.csv", index=False)
    toml = WIDTHS.replace("[privacy]", 'units = "units.csv"\nnames = "label"\n[privacy]')
    found = read(tmp_path, by_codes(uneven).drop(index=2), toml)
    assert found == WANTED | {"US": [35, 3], "02": [0, 0], "02/county": [0, 0]}


def test_a_release_of_uneven_leaves_is_made_and_adds_up(tmp_path: Path, uneven: pd.DataFrame) -> None:
    uneven.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(LEVELS)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    frame = pd.read_parquet(public / "release.parquet").set_index(["geoid", "cell"])["value"]
    assert (frame["02"] == frame["02/county"]).all()


def test_records_are_not_filled(tmp_path: Path, uneven: pd.DataFrame) -> None:
    toml = WIDTHS.replace('cells = ["adults", "children"]', 'rows = "records"\ncells = ["people"]')
    with pytest.raises(ConfigError, match=r"geography.fill is for tables with a row per leaf"):
        read(tmp_path, by_codes(uneven), toml)
