"""Linked microdata: written, read back, and looked at record by record and unit by unit."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.linked import RHODE_ISLAND_LINK, rhode_island
from support.places import SMALL_DATA, Command
from topdown.confidential.entries import Entries
from topdown.errors import ConfigError, DataError
from topdown.linked.record_faults import LinkedRows
from topdown.machine.files import file_digest
from topdown.microdata.linked_microdata import (
    LinkedDescription,
    LinkedMicrodata,
    check_linked,
    read_linked,
    require_equal,
    tabulated,
    write_linked,
)
from topdown.release.whole_counts import SparseCounts

UNIVERSE = rhode_island()
DATA = SMALL_DATA / "ri_linked"
DESCRIPTION = LinkedDescription(
    {"households": UNIVERSE.households.to_mappings(), "persons": UNIVERSE.persons.to_mappings()},
    {**tomllib.loads(RHODE_ISLAND_LINK), "improbable": {"age": "age", "sex": "sex", "race": "race"}},
    {"persons": "ab", "households": "cd"},
)


@pytest.fixture(scope="module")
def microdata() -> LinkedMicrodata:
    """The synthetic records."""
    blocks = pd.read_csv(DATA / "blocks.csv", dtype={"geoid": str}).set_index("geoid")
    widths = {"state": 2, "county": 5, "tract": 11, "block": 15}
    geography = td.Geography.from_geoids(blocks.index, widths)
    codes = geography.geoid[geography.level_slice("block")]
    place = {code: k for k, code in enumerate(codes)}
    found = {}
    for name, schema in (("households", UNIVERSE.households), ("persons", UNIVERSE.persons)):
        read = pq.read_table(DATA / f"{name}.parquet").to_pandas()
        places = [
            read[one.name].map({category: k for k, category in enumerate(one.categories)}).to_numpy()
            for one in schema.attributes
        ]
        found[name] = read, read["geoid"].map(place).to_numpy(), np.ravel_multi_index(places, schema.shape)
    key = {code: k for k, code in enumerate(found["households"][0]["household"])}
    of = found["persons"][0]["household"].map(key).fillna(-1).to_numpy(np.int64)
    rows = LinkedRows(*found["households"][1:], *found["persons"][1:], of)
    units = blocks["units"].reindex(codes).to_numpy()
    return LinkedMicrodata(DESCRIPTION, geography, rows, units - np.bincount(rows.leaf, minlength=len(codes)))


def test_records_come_back(microdata: LinkedMicrodata, tmp_path: Path) -> None:
    folder = write_linked(tmp_path / "microdata", microdata)
    again = read_linked(folder)
    assert again.geography == microdata.geography
    assert again.description == DESCRIPTION
    assert again.description.universe == UNIVERSE
    assert again.vacant.tolist() == microdata.vacant.tolist()
    for (name, keys, counts), (same, theirs, numbers) in zip(tabulated(microdata), tabulated(again), strict=True):
        assert name == same
        assert np.array_equal(keys, theirs)
        assert np.array_equal(counts, numbers)
    together = [
        sorted(
            zip(one.rows.cell[one.rows.of].tolist(), one.rows.person.tolist(), (one.rows.of < 0).tolist(), strict=True)
        )
        for one in (microdata, again)
    ]
    assert together[0] == together[1]
    assert write_linked(folder, again) == folder  # in place of themselves
    assert not (tmp_path / ".microdata.old").exists()


def test_a_row_is_a_unit_or_a_person(microdata: LinkedMicrodata, tmp_path: Path) -> None:
    folder = write_linked(tmp_path / "microdata", microdata)
    homes, persons = (pq.read_table(folder / name).to_pandas() for name in ("households", "persons"))
    assert list(homes.columns) == ["household", "geoid", *UNIVERSE.households.names]
    assert list(persons.columns) == ["household", "geoid", *UNIVERSE.persons.names]
    assert len(homes) == 2793
    assert homes["size"].isna().sum() == 293
    assert homes["household"].tolist() == [f"{k + 1:04d}" for k in range(2793)]
    assert homes["geoid"].is_monotonic_increasing
    assert persons["household"].isna().sum() == 13
    sizes = persons.groupby("household").size()
    told = homes.dropna(subset="size").set_index("household")["size"]
    assert (sizes.clip(upper=7) == told.str.rstrip("+").astype(int)).all()
    first = persons.dropna(subset="household").groupby("household").head(1)
    assert set(first["relationship"]) == {"householder"}
    assert sorted(path.name for path in folder.iterdir()) == [
        "_manifest.json",
        "geography.parquet",
        "households",
        "persons",
    ]


def test_what_is_true_has_nothing_impossible(microdata: LinkedMicrodata) -> None:
    found = check_linked(microdata)
    assert (found.households, found.persons, found.vacant) == (2500, 6696, 293)
    assert found.faults == {}
    assert found.impossible == 0
    assert set(found.results["level"]) == set(microdata.geography.levels)
    by_level = found.results[
        found.results["result"] == "more households with a householder of one race than persons of it"
    ]
    assert by_level["among"].tolist()[:4] == [1, 1, 2, 2]


Change = Callable[[LinkedRows], LinkedRows]


def changed(rows: LinkedRows, name: str, place: int, value: int) -> LinkedRows:
    column = getattr(rows, name).copy()
    column[place] = value
    return rows._replace(**{name: column})


def of_size(rows: LinkedRows, size: int) -> int:
    codes = np.unravel_index(rows.cell, UNIVERSE.households.shape)[0]
    return int(np.flatnonzero(codes == size - 1)[0])


FAULTS: dict[str, tuple[Change, str]] = {
    "a smaller household": (
        lambda rows: changed(rows, "cell", of_size(rows, 3), int(rows.cell[of_size(rows, 2)])),
        "'size' of one household does not fit its members, who are more",
    ),
    "a person who lives nowhere": (
        lambda rows: changed(rows, "of", 3, -1),
        "is in no household and in no facility",
    ),
    "a person elsewhere": (lambda rows: changed(rows, "whose", 3, 50), "is in one household of another unit"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_changed_is_found_and_not_written(name: str, microdata: LinkedMicrodata, tmp_path: Path) -> None:
    change, said = FAULTS[name]
    other = LinkedMicrodata(DESCRIPTION, microdata.geography, change(microdata.rows), microdata.vacant)
    found = check_linked(other)
    assert found.faults[said] >= 1
    assert found.impossible >= 1
    with pytest.raises(DataError, match="nothing was written"):
        write_linked(tmp_path / "microdata", other)
    assert not (tmp_path / "microdata").exists()


def test_a_folder_of_somebody_else_is_not_replaced(microdata: LinkedMicrodata, tmp_path: Path) -> None:
    folder = write_linked(tmp_path / "microdata", microdata)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files than linked microdata; move it away"):
        write_linked(folder, microdata)
    assert (folder / "notes.txt").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    assert write_linked(other, microdata) == other


def test_nothing_of_somebody_else_stands_where_a_folder_is_kept(microdata: LinkedMicrodata, tmp_path: Path) -> None:
    notes = tmp_path / ".microdata.old" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    with pytest.raises(ConfigError, match=r"\.microdata\.old holds other files than linked microdata; move it away"):
        write_linked(tmp_path / "microdata", microdata)
    assert notes.read_text() == "mine"
    notes.unlink()
    write_linked(notes.parent, microdata)  # as a kill leaves it
    write_linked(tmp_path / "microdata", microdata)
    assert [path.name for path in tmp_path.iterdir()] == ["microdata"]


def test_files_that_are_not_what_was_written(microdata: LinkedMicrodata, tmp_path: Path) -> None:
    folder = write_linked(tmp_path / "microdata", microdata)
    with pytest.raises(DataError, match="does not describe linked microdata of this version"):
        read_linked(tmp_path)
    path = folder / "persons" / "part-00000.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(DataError, match=r"is not the file that _manifest\.json lists"):
        read_linked(folder)
    path.unlink()
    with pytest.raises(DataError, match=r"is not the file that _manifest\.json lists"):
        read_linked(folder)


def rewritten(folder: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """A table changed, and the list of files with it: as somebody would who wants it to pass."""
    path = folder / name / "part-00000.parquet"
    change(pq.read_table(path).to_pandas()).to_parquet(path, index=False)
    manifest = json.loads((folder / "_manifest.json").read_text())
    manifest["files"][f"{name}/part-00000.parquet"]["sha256"] = file_digest(path)
    (folder / "_manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("households", lambda frame: frame.assign(household="1"), "a key is missing, or stands twice"),
        ("persons", lambda frame: frame.assign(household="x"), "a row has a key that none of"),
        ("persons", lambda frame: frame.assign(sex="x"), "'sex' has a value that is not one of its categories"),
        ("persons", lambda frame: frame.assign(geoid="44"), "a unit is no leaf of geography.parquet"),
        ("persons", lambda frame: frame.drop(columns="sex"), "cannot be read as microdata|has not the columns"),
    ],
)
def test_tables_that_are_no_microdata(
    name: str, change: Callable[[pd.DataFrame], pd.DataFrame], message: str, microdata: LinkedMicrodata, tmp_path: Path
) -> None:
    folder = write_linked(tmp_path / "microdata", microdata)
    rewritten(folder, name, change)
    with pytest.raises(DataError, match=message):
        read_linked(folder)


def released(microdata: LinkedMicrodata, change: int = 0) -> dict[str, td.Release]:
    """Both tables as releases; ``change`` is added to a count of persons of the first block that has any, and above."""
    found = {}
    for (name, keys, counts), schema in zip(tabulated(microdata), (UNIVERSE.households, UNIVERSE.persons), strict=True):
        numbers = counts.copy()
        numbers[0] += change * (name == "persons")
        entries = Entries.of_leaves(microdata.geography.tree, schema.n_cells, keys, numbers)
        held = SparseCounts(*(one.astype(np.int64) for one in entries))
        found[name] = td.Release.of_entries(microdata.geography, schema, held, method="top-down", fit_for_release=False)
    return found


def test_records_that_are_not_those_of_the_release(microdata: LinkedMicrodata) -> None:
    require_equal(microdata, released(microdata))
    with pytest.raises(DataError, match=r"block '44\d{13}': the records of persons are not those of the release"):
        require_equal(microdata, released(microdata, change=1))


def test_the_command_looks_at_them(microdata: LinkedMicrodata, tmp_path: Path, topdown: Command) -> None:
    folder = write_linked(tmp_path / "microdata", microdata)
    done = topdown("verify", folder)
    assert done.returncode == 0
    assert "2,500 households and 6,696 persons: all of them fit together, and no unit of nation, state" in done.stdout
    assert (
        "noted     5 men and 5 women of a race, whose median ages are 20 years apart: 9 of 80 units of" in done.stdout
    )

    def larger(frame: pd.DataFrame) -> pd.DataFrame:
        row = frame.index[frame["size"] == "2"][0]
        return frame.assign(size=frame["size"].where(frame.index != row, "3"))

    rewritten(folder, "households", larger)
    done = topdown("verify", folder)
    assert done.returncode == DataError.exit_code
    assert "wrong     1 times: 'size' of one household does not fit its members, who are fewer" in done.stdout
    assert "wrong     fewer persons than the sizes of households need: 1 of " in done.stdout
    assert "records or units are as none can be" in done.stderr
