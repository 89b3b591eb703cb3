"""Redistricting files: what is written is read back, subtotals are checked, the prototype is what is known of it."""

from __future__ import annotations

import dataclasses
import errno
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import topdown as td
from support.places import REPOSITORY, SHARED_DATA
from support.redistricting import BLOCKS, histograms, released
from topdown.census.layouts.redistricting_layout import HEADER, read_header, sums_within
from topdown.confidential.counts import Counts
from topdown.errors import ConfigError, CountsError, DataError
from topdown.workload.redistricting import PERSONS, RACE_FIELDS, RACES, TABLES, UNITS, field_names


@pytest.fixture(scope="module")
def persons() -> td.Release:
    return released(PERSONS, histograms(PERSONS, 0.05))


@pytest.fixture(scope="module")
def written(persons: td.Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    units = released(UNITS, histograms(UNITS, 5))
    return td.write_pl94(persons, tmp_path_factory.mktemp("pl") / "out", units=units)


def test_a_release_that_is_written_is_read_back(persons: td.Release, written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == [
        "ri000012020.pl",
        "ri000022020.pl",
        "ri000032020.pl",
        "rigeo2020.pl",
    ]
    read = td.read_pl94(written)
    assert read.partial == ()
    assert read.geography.identifiers.equals(persons.geography.identifiers)
    assert read.geography.names.equals(persons.geography.names)
    for index, level in enumerate(persons.geography.levels):
        nodes = persons.geography.level_slice(level)
        voters = persons.answers(level, "votingage * hispanic * cenrace")
        assert (read.counts.values[nodes] == voters).all(), index
        assert (read.table("P5", level).iloc[:, 2].to_numpy() == voters.sum(axis=1) - household(persons, level)).all()
    assert read.table("H1", "state").iloc[0, 2] == read.table("H1", "block").iloc[:, 2].sum() > 0


def household(release: td.Release, level: str) -> np.ndarray:
    return release.answers(level, "hhgq")[:, 0]


def test_group_quarters_are_filled_by_the_rule(persons: td.Release, written: Path) -> None:
    counts = td.read_pl94(written).persons()
    leaves = counts.geography.level_slice("block")
    found = counts.values[leaves].reshape(-1, 8, 2, 2, 63)
    assert (found.sum(axis=(2, 3, 4)) == persons.answers("block", "hhgq")).all()
    assert (
        found.sum(axis=1).reshape(len(found), -1) == persons.answers("block", "votingage * hispanic * cenrace")
    ).all()
    assert found[:, 3, 0].sum() == 0
    assert counts.schema == PERSONS


def test_the_same_file_in_an_archive(written: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ri2020.pl.zip", "w") as archive:
        for path in written.iterdir():
            archive.write(path, path.name)
    assert (td.read_pl94(tmp_path / "ri2020.pl.zip").counts.values == td.read_pl94(written).counts.values).all()


def test_a_damaged_archive_is_named_wherever_the_damage_is(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "ri2020.pl.zip"
    for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(path, "w", kind) as archive:
            archive.write(written / "rigeo2020.pl", "rigeo2020.pl")
            end = 42 + archive.infolist()[0].compress_size
        whole = path.read_bytes()
        for place in range(52, end, end // 20):  # behind what says how it is packed
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
            for read in (td.read_pl94, read_header):
                with pytest.raises(DataError, match=r"ri2020.pl.zip"):
                    read(path)


def test_a_member_that_cannot_be_read_is_named(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_header(written / "rigeo2020.pl").equals(read_header(written))

    def refused(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "")

    monkeypatch.setattr(Path, "read_bytes", refused)
    for path in (written / "rigeo2020.pl", written):
        with pytest.raises(DataError, match=r"cannot be read: Permission denied; give the folder"):
            read_header(path)


def test_subtotals_name_every_field_of_a_table_once_as_a_whole_or_a_part() -> None:
    for table, count in TABLES.items():
        named = {k for whole, parts in sums_within(table) for k in (whole, *parts)}
        assert named == set(range(1, count + 1)), table
    assert len(RACE_FIELDS) == 71
    assert RACES[len(RACES) - 1].count("+") == 5
    assert field_names("P1")[0] == "P0010001"


def spoilt(written: Path, into: Path, member: str, change: Callable[[list[str]], None]) -> Path:
    """A copy whose ``member`` has one record changed, the last."""
    shutil.copytree(written, into)
    lines = (into / member).read_text(encoding="latin-1").splitlines()
    fields = lines[-1].split("|")
    change(fields)
    (into / member).write_text("\n".join([*lines[:-1], "|".join(fields)]) + "\n", encoding="latin-1")
    return into


def add_one(place: int) -> Callable[[list[str]], None]:
    def change(fields: list[str]) -> None:
        fields[place] = str(int(fields[place]) + 1)

    return change


def set_to(place: int, text: str) -> Callable[[list[str]], None]:
    def change(fields: list[str]) -> None:
        fields[place] = text

    return change


@pytest.mark.parametrize(
    ("member", "change", "said"),
    [
        ("ri000012020.pl", add_one(7), r"record \d+ \(GEOCODE .*P0010001 is not the sum of P0010003 to P0010071"),
        ("ri000012020.pl", add_one(5 + 71), r"P0020001 is not the sum of P0020002 to P0020003"),
        ("ri000022020.pl", add_one(5 + 71 + 73), r"H0010001 is not the sum of H0010002 to H0010003"),
        ("ri000032020.pl", add_one(6), r"P0050001 is not the sum of P0050002 to P0050007"),
        ("rigeo2020.pl", add_one(90), r"POP100 of the geographic header is not the total of table P1"),
        ("ri000012020.pl", set_to(8, "x"), r"field P0010004: line \d+ has no whole number"),
        ("ri000012020.pl", set_to(8, "9" * 5000), r"field P0010004: line \d+ has no whole number"),
        ("ri000012020.pl", set_to(4, "999"), r"segment 01 does not have the records of the geographic header"),
        ("ri000012020.pl", set_to(3, "02"), r"has the fields of segment 01 and records of others"),
        ("rigeo2020.pl", set_to(9, "440110001001000"), r"county .44011.: has no record of its own"),
    ],
)
def test_what_does_not_add_up_or_fit_is_named(
    written: Path, tmp_path: Path, member: str, change: Callable[[list[str]], None], said: str
) -> None:
    with pytest.raises((DataError, CountsError), match=said):
        td.read_pl94(spoilt(written, tmp_path / "wrong", member, change))


def test_missing_members_and_files_are_named(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "part")
    (tmp_path / "part" / "ri000022020.pl").unlink()
    with pytest.raises(DataError, match=r"the members '02' are missing"):
        td.read_pl94(tmp_path / "part")
    (tmp_path / "part" / "ri000022020.pl").write_text("a|b\n")
    with pytest.raises(DataError, match=r"its records have 2 fields; those of the layout of 2020 have 97"):
        td.read_pl94(tmp_path / "part")
    with pytest.raises(DataError, match=r"no such folder or file"):
        td.read_pl94(tmp_path / "nothing")
    (tmp_path / "no.zip").write_text("no archive")
    with pytest.raises(DataError, match=r"cannot be read.*four .pl files"):
        td.read_pl94(tmp_path / "no.zip")


def test_what_is_no_redistricting_release_is_not_written(persons: td.Release, tmp_path: Path) -> None:
    other = released(UNITS, histograms(UNITS, 5))
    with pytest.raises(ConfigError, match=r"the release's attributes are 'h1'"):
        td.write_pl94(other, tmp_path / "a")
    with pytest.raises(ConfigError, match=r"table H1 is made of 'h1'"):
        td.write_pl94(persons, tmp_path / "b", units=persons)
    assert not list(tmp_path.iterdir())


def test_unknown_tables_are_refused(written: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown table 'P6'"):
        td.read_pl94(written).table("P6", "block")


def test_a_part_that_is_larger_than_the_whole_is_refused(written: Path, tmp_path: Path) -> None:
    # More adults of one race than people: consistent within every table, and not between them.
    def more_adults(fields: list[str]) -> None:
        for place in (5, 6, 7, 5 + 71, 5 + 71 + 2, 5 + 71 + 3, 5 + 71 + 4):
            fields[place] = str(int(fields[place]) + 1000)

    found = td.read_pl94(spoilt(written, tmp_path / "wrong", "ri000022020.pl", more_adults))
    with pytest.raises(CountsError, match=r"block .*a part of its population is larger than the whole"):
        _ = found.counts


# -- a round trip of others' files -------------------------------------------------------------------------------------


def without_noise(counts: Counts) -> td.Release:
    """A release of the counts as they are, which no run makes."""
    values = np.asarray(counts.values)
    return td.Release.of_values(
        counts.geography, counts.cells, values, method="none", fit_for_release=False, schema=counts.schema
    )


def fields_of(folder: Path) -> dict[str, list[list[bytes]]]:
    """Every member's records by kind, field by field as bytes."""
    kinds = {97: "geo", 149: "01", 152: "02", 15: "03"}
    found = {}
    for path in folder.glob("*.pl"):
        records = [line.split(b"|") for line in path.read_bytes().splitlines()]
        assert len({len(record) for record in records}) == 1, path
        found[kinds[len(records[0])]] = records
    return found


PROTOTYPES = [
    REPOSITORY / "data" / "small" / "ri_pl94_2018_prototype",
    pytest.param(
        SHARED_DATA / "ri_pl94_2018_prototype",
        marks=pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="the Census Bureau's prototype is not here"),
    ),
]


@pytest.mark.parametrize("prototype", PROTOTYPES, ids=["a tract", "all that was published"])
def test_the_prototype_comes_out_as_it_went_in_field_by_field(prototype: Path, tmp_path: Path) -> None:
    read = td.read_pl94(prototype)
    persons, units = without_noise(read.persons()), without_noise(read.units())
    written = td.write_pl94(persons, tmp_path / "out", units=units, header=prototype, year=2018)
    before, after = fields_of(prototype), fields_of(written)
    assert sorted(after) == ["01", "02", "03", "geo"]
    assert {kind: len(records[0]) for kind, records in after.items()} == {"geo": 97, "01": 149, "02": 152, "03": 15}
    levels = [record[2] for record in before["geo"]]
    # The file holds a part of the county's tracts, and so the records of county and state are not their sums.
    partial = {k for k, level in enumerate(levels) if level in (b"040", b"050")}
    pop100, hu100 = HEADER.index("POP100"), HEADER.index("HU100")
    assert {kind: len(records) for kind, records in after.items()} == {k: len(v) for k, v in before.items()}
    for kind, records in before.items():
        for row, (theirs, ours) in enumerate(zip(records, after[kind], strict=True)):
            counts = {hu100} | ({pop100} if row in partial else set()) if kind == "geo" else set()
            if kind != "geo" and row in partial:
                assert theirs[:5] == ours[:5]
                continue
            assert [k for k, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b and k not in counts] == []
    # Of housing units the header of the test file says more than table H1.
    h1 = [record[-3] for record in after["02"]]
    assert [record[hu100] for record in after["geo"]] == h1
    assert td.read_pl94(written).partial == ()


def test_a_unit_that_the_header_lacks_is_named(persons: td.Release, tmp_path: Path) -> None:
    header = REPOSITORY / "data" / "small" / "ri_pl94_2018_prototype"
    with pytest.raises(DataError, match=r"(county|tract|block).* has no record of it; give the header"):
        td.write_pl94(persons, tmp_path / "out", header=header)
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match="no geographic header is there"):
        td.write_pl94(persons, tmp_path / "out", header=next(header.glob("ri00001*.pl")))


@pytest.mark.parametrize("name", ["a|b", "a\nb", "Łódź"], ids=["bar", "line end", "not Latin-1"])
def test_a_name_that_no_field_can_hold_is_refused(persons: td.Release, tmp_path: Path, name: str) -> None:
    there = persons.geography
    named = td.Geography(there.levels, there.tree, there.identifiers, pa.array([name] * there.n_nodes))
    with pytest.raises(DataError, match=r"name .* a redistricting file has Latin-1 text"):
        td.write_pl94(dataclasses.replace(persons, geography=named), tmp_path / "out")


def test_names_beyond_ascii_are_latin_1(persons: td.Release, tmp_path: Path) -> None:
    there = persons.geography
    named = td.Geography(there.levels, there.tree, there.identifiers, pa.array(["Cañón"] * there.n_nodes))
    written = td.write_pl94(dataclasses.replace(persons, geography=named), tmp_path / "out")
    assert b"|Ca\xf1\xf3n|" in (written / "rigeo2020.pl").read_bytes()
    assert td.read_pl94(written).geography.names[0].as_py() == "Cañón"


def test_one_state_of_a_nation_is_written_where_it_is_named(tmp_path: Path) -> None:
    codes = [*BLOCKS, "090010001001000"]
    levels = {"us": 0, "state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
    frame = {level: [code[:width] or "US" for code in codes] for level, width in levels.items()}
    leaves = np.zeros((6, PERSONS.n_cells), np.int64)
    leaves[:, 300] = np.arange(1, 7)
    counts = Counts.from_table(
        pd.DataFrame(leaves, columns=list(PERSONS.cells())).assign(**frame),
        td.Geography.from_table(frame, [*levels]),
        geoid="block",
        cells=list(PERSONS.cells()),
        schema=PERSONS,
    )
    release = without_noise(counts)
    with pytest.raises(DataError, match="has 2 states, and a redistricting file is of one"):
        td.write_pl94(release, tmp_path / "out")
    with pytest.raises(DataError, match="no state '01'; it has '09', '44'"):
        td.write_pl94(release, tmp_path / "out", state="01")
    read = td.read_pl94(td.write_pl94(release, tmp_path / "out", state="44"))
    assert read.geography.identifiers.to_pylist()[-5:] == BLOCKS
    assert read.table("P1", "block")["P0010001"].tolist() == [1, 2, 3, 4, 5]


def test_tables_and_their_fields_are_known_by_name(persons: td.Release, written: Path) -> None:
    read = td.read_pl94(written)
    for table in ("P1", "P2", "P3", "P4", "P5"):
        pd.testing.assert_frame_equal(persons.table("tract", table), read.table(table, "tract"))
    alone = persons.table("county", "P0010003")
    assert alone.columns.tolist() == ["geoid", "name", "P0010003"]
    assert alone["P0010003"].tolist() == read.table("P1", "county")["P0010003"].tolist()
    with pytest.raises(ConfigError, match=r"P1000001|unknown"):
        persons.table("county", "P1000001")


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="the Census Bureau's prototype is not here")
def test_the_prototype() -> None:
    read = td.read_pl94(SHARED_DATA / "ri_pl94_2018_prototype")
    assert [len(read.table("P1", level)) for level in read.geography.levels] == [1, 1, 7, 28, 569]
    assert len(read.partial) == 1
    assert "level 'tract' do not add up to those of level 'county'" in read.partial[0]
    counts = read.counts
    leaves = counts.geography.level_slice("block")
    assert counts.values[leaves].sum() == 29_225
    assert (counts.values[leaves] > 0).sum() / 569 == pytest.approx(1.75, abs=0.005)
    assert read.table("P5", "block").iloc[:, 2].sum() == 995
    assert read.table("H1", "block").iloc[:, 2].sum() == 11_425
    persons = read.persons()
    assert isinstance(persons, Counts)
    assert persons.values[0].reshape(8, -1)[1:].sum() == 995
    assert repr(read) == f"Redistricting({read.geography!r}, confidential)"


def test_the_example_in_the_documentation_runs(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(written, tmp_path / "ri2020.pl")
    monkeypatch.chdir(tmp_path)
    text = (REPOSITORY / "docs" / "redistricting.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    assert td.read_pl94(tmp_path / "released").partial == ()
