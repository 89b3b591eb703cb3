"""GeoPackages, and files of Stata and SPSS with their labels."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from topdown.errors import DataError
from topdown.guess.inference import guess
from topdown.tables.format import PLAIN, Format
from topdown.tables.readers import read_table, row_named, table_columns

ROWS = [("01001", "Ä-Stadt", 5, 0.5), ("01003", None, 7, 1.5), ("02001", "C", 11, 2.0)]


def geopackage(path: Path, layers: tuple[str, ...] = ("towns",)) -> Path:
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE gpkg_contents (table_name TEXT, data_type TEXT)")
        made.execute("CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT)")
        for layer in layers:
            made.execute("INSERT INTO gpkg_contents VALUES (?, 'features')", [layer])
            made.execute("INSERT INTO gpkg_geometry_columns VALUES (?, 'geom')", [layer])
            made.execute(
                f'CREATE TABLE "{layer}" (fid INTEGER PRIMARY KEY, geom BLOB, code TEXT(5), "na""me" TEXT, '
                "men MEDIUMINT, area REAL)"
            )
            made.executemany(
                f'INSERT INTO "{layer}" (geom, code, "na""me", men, area) VALUES (x\'47\', ?, ?, ?, ?)', ROWS
            )
    made.close()
    return path


def test_a_layer_is_read_without_its_outlines(tmp_path: Path) -> None:
    path = geopackage(tmp_path / "ü 1.gpkg")
    assert table_columns(path) == ["fid", "code", 'na"me', "men", "area"]
    assert read_table(path, ["code", 'na"me', "men", "area"]).to_pylist() == [
        {"code": a, 'na"me': b, "men": c, "area": d} for a, b, c, d in ROWS
    ]
    assert row_named(path, 1) == "row 2 of the layer"


def test_of_several_layers_one_is_named(tmp_path: Path) -> None:
    path = geopackage(tmp_path / "t.gpkg", ("towns", "counties"))
    with pytest.raises(DataError, match=r"has 2 layers; say which in input.sheet: 'counties', 'towns'"):
        read_table(path)
    assert read_table(path, form=Format(sheet="towns")).num_rows == 3
    with pytest.raises(DataError, match="no layer 'town'; it has"):
        read_table(path, form=Format(sheet="town"))


def test_what_is_no_geopackage_is_refused_without_a_value(tmp_path: Path) -> None:
    (tmp_path / "t.gpkg").write_bytes(b"SQLite format 3\0 987654321" * 90)
    with pytest.raises(DataError, match=r"t.gpkg: cannot be read as gpkg: its content is damaged") as caught:
        read_table(tmp_path / "t.gpkg")
    assert "987654321" not in str(caught.value)
    path = geopackage(tmp_path / "u.gpkg")
    with sqlite3.connect(path) as made:
        made.execute("UPDATE towns SET men = 'many 987654321' WHERE fid = 2")
    made.close()
    with pytest.raises(DataError, match="cannot be read as gpkg") as caught:
        read_table(path, ["men"])
    assert "987654321" not in str(caught.value)


@pytest.mark.parametrize("ending", [".dta", ".sav"])
def test_labels_are_read_in_place_of_values(ending: str, tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    frame = pd.DataFrame({"ward": [101, 102, 102], "sex": [1, 2, 2], "age": [5.0, 70.0, None], "name": ["é", "b", ""]})
    write = pyreadstat.write_dta if ending == ".dta" else pyreadstat.write_sav
    path = tmp_path / f"t{ending}"
    write(frame, path, variable_value_labels={"sex": {1: "men", 2: "women"}})
    assert table_columns(path) == ["ward", "sex", "age", "name"]
    assert read_table(path).to_pydict() == {
        "ward": ["101", "102", "102"],
        "sex": ["men", "women", "women"],
        "age": ["5", "70", None],
        "name": ["é", "b", None],
    }
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="cannot be read as"):
        read_table(path)


def test_init_knows_a_survey_with_labels(tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    frame = pd.DataFrame(
        {
            "district": [k % 9 + 1 for k in range(200)],
            "sexo": [(k // 80) % 2 + 1 for k in range(200)],
            "edad": [k % 80 for k in range(200)],
        }
    )
    pyreadstat.write_sav(frame, tmp_path / "t.sav", variable_value_labels={"sexo": {1: "hombre", 2: "mujer"}})
    found = guess(tmp_path / "t.sav", PLAIN)
    assert (found.rows.name, found.levels) == ("records", ("everything", "district"))
    assert found.attributes["sexo"] == ["hombre", "mujer"]
