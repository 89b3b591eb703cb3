"""Identifiers that are not what they seem: blanks, lost zeros, roots of another name, names of no level."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.places import RUN_TOML
from topdown.config import load_config
from topdown.errors import ConfigError, DataError, GeographyError
from topdown.geography.labels import in_one_piece
from topdown.pipeline.input.reading import read_input

LEVELS = ["nation", "state", "county"]
BY_LEVELS = RUN_TOML.replace('geoid = "county"\n', "").replace(
    "widths = { state = 2, county = 5 }", 'levels = ["nation", "state", "county"]'
)


@pytest.mark.parametrize("code", [" 01001", "01001 ", "\u00a001001", "01001\t"])
def test_a_blank_around_a_code_is_refused_with_the_row(frame: pd.DataFrame, code: str) -> None:
    frame.loc[0, "county"] = code
    with pytest.raises(GeographyError, match=r"row 0: level 'county' has a blank before or after "):
        td.Geography.from_table(frame, LEVELS)
    with pytest.raises(GeographyError, match=r"row 0: .*(blank|strip)"):
        td.Geography.from_geoids(frame["county"], {"state": 2, "county": 5})
    with pytest.raises(GeographyError, match=r"row 0: the column of GEOIDs has a blank"):
        td.Geography.from_geoids([" 1001"], {"state": 2, "county": 5})


def test_letters_beyond_ascii_are_no_blanks(frame: pd.DataFrame) -> None:
    frame["county"] = ["Åland", "Doña Ana", "東京"]
    assert td.Geography.from_table(frame, LEVELS).n_leaves == 3


@pytest.mark.parametrize(
    ("states", "counties", "says"),
    [
        (
            ["1", "1", "10"],
            ["1001", "1003", "10001"],
            "row 0: county '1001' lies in state '1' and lost .*'01001' is meant",
        ),
        (
            ["1", "1", "10"],
            ["01001", "01003", "10001"],
            "row 0: state '1' lost its leading zero, probably [^0-9]*'01' is meant",
        ),
        (["01", "01", "10"], ["1001", "1003", "10001"], "row 0: county '1001' lies in state '01' and lost"),
    ],
)
def test_zeros_that_were_lost_at_one_level_or_at_both(states: list[str], counties: list[str], says: str) -> None:
    table = {"nation": ["US"] * 3, "state": states, "county": counties}
    with pytest.raises(GeographyError, match=says):
        td.Geography.from_table(table, LEVELS)
    assert td.Geography.from_table(table, LEVELS, separator="/").n_leaves == 3


@pytest.mark.parametrize("counties", [["11", "12", "105"], ["1", "2", "10"], ["7", "12", "100"]])
def test_numbers_that_are_not_built_from_their_parents_lost_nothing(counties: list[str]) -> None:
    table = {"nation": ["US"] * 3, "state": ["3", "3", "14"], "county": [f"9{c}" for c in counties]}
    assert td.Geography.from_table(table, LEVELS).n_leaves == 3


def test_names_of_a_level_that_is_not_there_are_refused(frame: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(
        GeographyError, match=r"names of level 'conty', which does not exist; .*write 'conty' and 'county' alike"
    ):
        td.Geography.from_table(frame, LEVELS, name={"conty": "county"})
    (tmp_path / "run.toml").write_text(BY_LEVELS.replace("[privacy]", 'names = { conty = "county" }\n[privacy]'))
    with pytest.raises(ConfigError, match=r"geography: names of level 'conty'.*write 'conty' and 'county' alike"):
        load_config(tmp_path / "run.toml")


def test_codes_of_one_length_are_joined_without_a_separator_and_others_refused(tmp_path: Path) -> None:
    codes = pd.DataFrame({"state": ["48", "48", "01"], "county": ["001", "003", "001"], "men": [5, 7, 9]})
    units = td.Geography.from_table(codes, ("nation", "state", "county"), root="US", separator="")
    assert units.geoid[units.level_slice("county")].tolist() == ["01001", "48001", "48003"]
    wrong = codes.assign(county=["1", "003", "001"])
    with pytest.raises(GeographyError, match=r"row 0: level 'county' has codes of 1 and of 3 characters.*pad_zeros"):
        td.Geography.from_table(wrong, ("nation", "state", "county"), root="US", separator="")
    wrong.to_csv(tmp_path / "t.csv", index=False)
    text = """
        [input]
        path = "t.csv"
        cells = ["men"]
        pad_zeros = { county = 3 }
        [geography]
        levels = ["nation", "state", "county"]
        root = "US"
        separator = ""
        [privacy]
        epsilon = 1
        shares = { nation = "1/3", state = "1/3", county = "1/3" }
    """
    (tmp_path / "run.toml").write_text(text)
    geography, counts = read_input(load_config(tmp_path / "run.toml"))
    assert geography.geoid[geography.level_slice("county")].tolist() == ["01001", "48001", "48003"]
    assert counts.values[:, 0].tolist() == [21, 9, 12, 9, 5, 7]


@pytest.mark.parametrize(
    ("toml", "cell", "what"),
    [
        (BY_LEVELS, "state", "a level"),
        (BY_LEVELS.replace("[privacy]", 'names = "label"\n[privacy]'), "label", "a column of names"),
        (RUN_TOML, "county", "the column of codes"),
    ],
)
def test_a_column_of_units_is_no_cell(tmp_path: Path, toml: str, cell: str, what: str) -> None:
    (tmp_path / "run.toml").write_text(toml.replace('"adults"', f'"{cell}"'))
    with pytest.raises(ConfigError, match=f"input.cells names '{cell}', which is {what}"):
        load_config(tmp_path / "run.toml")


def test_codes_that_are_written_as_decimals_get_their_zeros(tmp_path: Path) -> None:
    table = pd.DataFrame({"county": [1001.0, 1003.0, 48001.0], "adults": [1, 2, 3], "children": [4, 5, 6]})
    toml = RUN_TOML.replace("[geography]", "pad_zeros = { county = 5 }\n[geography]")
    for name in ("table.csv", "table.parquet"):
        table.to_csv(tmp_path / name, index=False) if name.endswith("csv") else table.to_parquet(tmp_path / name)
        (tmp_path / "run.toml").write_text(toml.replace("table.csv", name))
        units = read_input(load_config(tmp_path / "run.toml"))[0]
        assert units.geoid[units.level_slice("county")].tolist() == ["01001", "01003", "48001"]


# -- the root's name --------------------------------------------------------------------------------------------------


def root_of(tmp_path: Path, table: pd.DataFrame, toml: str) -> str:
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(toml)
    return str(read_input(load_config(tmp_path / "run.toml"))[0].identifiers[0])


@pytest.mark.parametrize("toml", [RUN_TOML, BY_LEVELS], ids=["widths", "levels"])
def test_the_root_is_called_what_its_column_says(tmp_path: Path, frame: pd.DataFrame, toml: str) -> None:
    assert root_of(tmp_path, frame.assign(nation="BR"), toml) == "BR"
    assert root_of(tmp_path, frame.assign(nation="BR"), toml.replace("[privacy]", 'root = "BR"\n[privacy]')) == "BR"
    with pytest.raises(DataError, match=r"'US'.*column 'nation' has another value"):
        root_of(tmp_path, frame.assign(nation="BR"), toml.replace("[privacy]", 'root = "US"\n[privacy]'))


def test_without_a_column_codes_lie_in_the_us_and_levels_in_what_is_said(tmp_path: Path, frame: pd.DataFrame) -> None:
    table = frame.drop(columns="nation")
    assert root_of(tmp_path, table, RUN_TOML) == "US"
    with pytest.raises(
        DataError, match=r"no column 'nation', which geography.levels names for the root.*geography.root"
    ):
        root_of(tmp_path, table, BY_LEVELS)
    assert root_of(tmp_path, table, BY_LEVELS.replace("[privacy]", 'root = "KE"\n[privacy]')) == "KE"


def test_a_column_of_many_values_does_not_name_the_root(tmp_path: Path, frame: pd.DataFrame) -> None:
    table = frame.assign(nation=["FR", "DE", "FR"])
    with pytest.raises(DataError, match=r"column 'nation' is of the root's level and has 2 values"):
        root_of(tmp_path, table, RUN_TOML)
    assert root_of(tmp_path, table, RUN_TOML.replace("[privacy]", 'root = "US"\n[privacy]')) == "US"


ONE_STATE = """
[input]
path = "table.csv"
cells = ["births"]
[geography]
{geography}
[privacy]
epsilon = 1
shares = {{ state = "1/2", county = "1/2" }}
"""
IN_CODES = ONE_STATE.replace("cells", 'geoid = "fips"\ncells').replace(
    "{geography}", 'widths = {{ county = 5 }}\nroot_level = "state"\n{geography}'
)


def one_state(state: object) -> pd.DataFrame:
    """Counties of North Carolina beside a column of what they all lie in."""
    return pd.DataFrame(
        {
            "state": state,
            "county": ["Ashe", "Bladen", "Wake"],
            "fips": ["37009", "37017", "37183"],
            "births": [9, 8, 70],
        }
    )


@pytest.mark.parametrize(
    "geography",
    [
        'levels = ["state", "county"]',
        'levels = ["state", "county"]\nroot_level = "state"',
        'levels = ["county"]\nroot_level = "state"',
    ],
)
@pytest.mark.parametrize(("state", "root"), [("NC", "NC"), ("North Carolina", "North Carolina"), (37, "37")])
def test_a_column_of_one_value_beside_the_roots_level_names_the_root(
    tmp_path: Path, geography: str, state: object, root: str
) -> None:
    assert root_of(tmp_path, one_state(state), ONE_STATE.format(geography=geography)) == root
    assert root_of(tmp_path, one_state(state), ONE_STATE.format(geography=f'{geography}\nroot = "{root}"')) == root
    with pytest.raises(DataError, match=r"column 'state' has another value.*give its level another name"):
        root_of(tmp_path, one_state(state), ONE_STATE.format(geography=f'{geography}\nroot = "US"'))


@pytest.mark.parametrize(("state", "name"), [("NC", "NC"), ("North Carolina", "North Carolina"), (37.0, "37")])
def test_where_all_codes_begin_with_the_root_its_column_has_its_name(tmp_path: Path, state: object, name: str) -> None:
    toml = IN_CODES.format(geography='root = "37"\nnames = "county"')
    assert root_of(tmp_path, one_state(state), toml) == "37"
    units = read_input(load_config(tmp_path / "run.toml"))[0]
    assert units.names is not None
    assert units.names.to_pylist() == [name, "Ashe", "Bladen", "Wake"]
    by_levels = ONE_STATE.format(geography='levels = ["state", "fips"]\nroot = "37"').replace("county =", "fips =")
    assert root_of(tmp_path, one_state(state), by_levels) == "37"
    with pytest.raises(DataError, match=r"geography.root is '45', but column 'state' has another value"):
        root_of(tmp_path, one_state(state), toml.replace('"37"', '"45"'))


def test_a_root_above_the_only_state_has_a_level_of_its_own(tmp_path: Path) -> None:
    toml = ONE_STATE.format(geography='levels = ["state", "county"]\nroot_level = "nation"\nroot = "US"')
    toml = toml.replace('state = "1/2"', 'nation = "1/4", state = "1/4"')
    assert root_of(tmp_path, one_state("NC"), toml) == "US"
    assert root_of(tmp_path, one_state(["NC", "NC", "SC"]), toml) == "US"


@pytest.mark.parametrize("geography", ['levels = ["state", "county"]', 'levels = ["county"]\nroot_level = "state"'])
def test_a_column_of_the_root_with_several_values_or_none_is_refused(tmp_path: Path, geography: str) -> None:
    toml = ONE_STATE.format(geography=geography)
    with pytest.raises(DataError, match=r"level 'state' has 2 units.*add a level above it.*root_level"):
        root_of(tmp_path, one_state(["NC", "NC", "SC"]), toml)
    with pytest.raises(DataError, match=r"line 4: level 'state' is missing"):
        root_of(tmp_path, one_state(["NC", "NC", None]), toml)
    with pytest.raises(DataError, match=r"column 'state' is of the root's level and has rows in which it is missing"):
        root_of(tmp_path, one_state(["NC", "NC", None]), IN_CODES.format(geography=""))
    with pytest.raises(DataError, match=r"column 'state' is of the root's level and has 2 values"):
        root_of(tmp_path, one_state(["NC", "NC", "SC"]), IN_CODES.format(geography=""))


@examples(200)
@given(
    pieces=st.lists(st.lists(st.text(max_size=4), max_size=6), max_size=5),
    cut=st.integers(0, 3),
    missing=st.booleans(),
)
def test_pieces_of_text_are_joined_as_arrow_joins_them(pieces: list[list[str]], cut: int, missing: bool) -> None:
    """Slices of arrays, empty ones, texts that are longer in bytes than in letters, and missing ones."""
    arrays = [pa.array([*piece, *[None] * missing], pa.string()).slice(cut) for piece in pieces]
    joined = in_one_piece(arrays)
    joined.validate(full=True)
    assert joined.to_pylist() == [text for piece in arrays for text in piece.to_pylist()]
    assert joined.type == pa.string()
