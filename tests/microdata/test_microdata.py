from __future__ import annotations

import json
import shutil
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.command import topdown_command
from support.places import RUN_TOML, SMALL_DATA, Command, full_data
from topdown.config import load_config
from topdown.errors import ConfigError, DataError
from topdown.machine import files
from topdown.microdata import record_blocks
from topdown.microdata.leaves import Leaves, leaves_of, read_leaves
from topdown.microdata.record_blocks import Occupied, parts_in_order, parts_shuffled
from topdown.microdata.recount import tabulate
from topdown.microdata.written_records import synthesize, write_microdata
from topdown.noise import SeededSource
from topdown.pipeline import run as pipeline
from topdown.workload.schema import Schema

SCHEMA = Schema.from_mapping({"sex": ["female", "male"], "age": ["child", "adult"]})


def leaves_with(values: object) -> Leaves:
    counts = np.array(values, dtype=np.int64)
    return Leaves.of_values(pa.array([f"{k:03d}" for k in range(len(counts))]), SCHEMA.cells(), counts, False)


LEAVES = leaves_with([[3, 0, 1, 2], [0, 0, 0, 0], [5, 1, 0, 0]])


@pytest.fixture
def public(toy_run: Path) -> Path:
    return pipeline.run(load_config(toy_run)).public


# -- records from counts -------------------------------------------------------------------------------------------


def joined(parts: object) -> list[int]:
    return [int(k) for blocks in parts for block in blocks for k in block]  # type: ignore[attr-defined]


@given(
    counts=st.lists(st.lists(st.integers(0, 7), min_size=4, max_size=4), min_size=1, max_size=6),
    part=st.integers(1, 9),
)
def test_blocks_in_order_are_every_cell_as_often_as_it_counts(counts: list[list[int]], part: int) -> None:
    cells = Occupied.of(leaves_with(counts), SCHEMA)
    wanted = np.repeat(np.arange(len(cells.count)), cells.count).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_blocks, "BLOCK", 2)
        blocks = [list(blocks) for blocks in parts_in_order(cells, part)]
    assert joined(blocks) == wanted
    assert all(sum(map(len, one)) <= part and max(map(len, one), default=0) <= 2 for one in blocks)


def test_every_order_of_shuffled_records_is_equally_likely(tmp_path: Path) -> None:
    # Three records of different cells in files of one record each: six orders, wherever the file bounds fall.
    cells = Occupied.of(leaves_with([[1, 1, 1, 0]]), SCHEMA)
    source = SeededSource(1)
    draws = [tuple(joined(parts_shuffled(cells, source, tmp_path / "scratch", 1))) for _ in range(1200)]
    seen = pd.Series(draws).value_counts()
    assert len(seen) == 6
    chi_square = float(((seen - 200) ** 2 / 200).sum())
    assert chi_square < 60  # p = 1e-11 at 5 degrees of freedom
    assert not (tmp_path / "scratch").exists()


# -- the files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_tabulating_the_files_gives_back_the_release(order: str, tmp_path: Path) -> None:
    made = write_microdata(LEAVES, tmp_path / "m", schema=SCHEMA, order=order, source=SeededSource(3), rows_per_file=5)
    assert made.records == 12
    assert len(made.files) == 3
    frame = pd.read_parquet(tmp_path / "m")
    assert list(frame.columns) == ["geoid", "sex", "age"]
    assert len(frame) == 12
    assert frame.value_counts(["geoid", "sex", "age"]).to_dict() == {
        ("000", "female", "child"): 3,
        ("000", "male", "child"): 1,
        ("000", "male", "adult"): 2,
        ("002", "female", "child"): 5,
        ("002", "female", "adult"): 1,
    }
    assert (tabulate(tmp_path / "m", LEAVES.geoids, LEAVES.cells, SCHEMA) == LEAVES.values).all()
    # Neither the dictionaries nor the bounds of a file name a unit without records.
    assert not any(b"001" in path.read_bytes() for path in made.files)


def test_sorted_is_by_geoid_and_shuffled_is_not(tmp_path: Path) -> None:
    leaves = Leaves.of_values(pa.array(["9", "10", "1"]), ("a",), np.array([[50], [40], [30]]), False)
    write_microdata(leaves, tmp_path / "sorted")
    found = pd.read_parquet(tmp_path / "sorted")["geoid"].tolist()
    assert found == ["1"] * 30 + ["10"] * 40 + ["9"] * 50
    write_microdata(leaves, tmp_path / "shuffled", order="shuffled")
    found = pd.read_parquet(tmp_path / "shuffled")["geoid"].tolist()
    assert sorted(found) == ["1"] * 30 + ["10"] * 40 + ["9"] * 50
    assert sum(a != b for a, b in pairwise(found)) > 40


def test_columns_carry_no_identifier_of_a_record(tmp_path: Path) -> None:
    made = write_microdata(LEAVES, tmp_path / "m", schema=SCHEMA)
    file = pq.ParquetFile(made.files[0])
    assert file.schema_arrow.names == ["geoid", "sex", "age"]
    assert all(kind == pa.string() for kind in file.schema_arrow.types)
    assert set(file.metadata.metadata) == {b"statement", b"fit for release", b"schema version"}


def test_a_release_without_records_is_a_file_without_rows(tmp_path: Path) -> None:
    for order in ("sorted", "shuffled"):
        made = write_microdata(leaves_with(np.zeros((2, 4))), tmp_path / order, schema=SCHEMA, order=order)  # type: ignore[arg-type]
        assert made.records == 0
        assert pd.read_parquet(tmp_path / order).empty
        assert not tabulate(tmp_path / order, ["000", "001"], SCHEMA.cells(), SCHEMA).any()


def test_row_groups_cut_a_cell_that_is_larger_than_one(tmp_path: Path) -> None:
    leaves = leaves_with([[record_blocks.BLOCK + 7, 0, 0, 2]])
    made = write_microdata(leaves, tmp_path / "m", schema=SCHEMA)
    file = pq.ParquetFile(made.files[0])
    assert [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)] == [record_blocks.BLOCK, 9]
    assert (tabulate(tmp_path / "m", leaves.geoids, leaves.cells, SCHEMA) == leaves.values).all()


def test_memory_does_not_grow_with_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_blocks, "BLOCK", 1 << 12)

    def peak(each: int, order: str) -> int:
        leaves = leaves_with(np.full((4, 4), each))
        tracemalloc.start()
        write_microdata(leaves, tmp_path / f"{each}-{order}", schema=SCHEMA, order=order, rows_per_file=1 << 14)  # type: ignore[arg-type]
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    for order in ("sorted", "shuffled"):
        peak(1 << 12, order)  # what is imported and cached on the way
        assert peak(1 << 16, order) < 1.5 * peak(1 << 13, order), order


def test_three_attributes_of_different_sizes_keep_their_places(tmp_path: Path) -> None:
    schema = Schema.from_mapping({"a": ["p", "q"], "b": ["x", "y", "z"], "c": ["1", "2", "3", "4"]})
    values = np.arange(48).reshape(2, 24)
    write_microdata(
        Leaves.of_values(pa.array(["u", "v"]), schema.cells(), values, False), tmp_path / "m", schema=schema
    )
    found = pd.read_parquet(tmp_path / "m").value_counts(["geoid", "a", "b", "c"])
    assert found["u", "p", "x", "3"] == 2
    assert found["u", "p", "z", "1"] == 8
    assert found["v", "q", "y", "4"] == 24 + 12 + 4 + 3
    assert (tabulate(tmp_path / "m", ["u", "v"], schema.cells(), schema) == values).all()


def test_a_few_records_far_apart_are_counted(tmp_path: Path) -> None:
    values = np.zeros((1000, 4), dtype=np.int64)
    values[0, 0], values[999, 3] = 3, 2
    leaves = leaves_with(values)
    write_microdata(leaves, tmp_path / "m", schema=SCHEMA)
    assert (tabulate(tmp_path / "m", leaves.geoids, leaves.cells, SCHEMA) == values).all()


def test_what_does_not_read_back_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Occupied.between

    def one_record_twice(self: Occupied, begin: int, end: int) -> np.ndarray:
        return np.append(whole(self, begin, end)[:-1], whole(self, begin, end)[:1])

    monkeypatch.setattr(Occupied, "between", one_record_twice)
    with pytest.raises(DataError, match="unit '000', cell 'female_child': the records read back are 4, the release"):
        write_microdata(LEAVES, tmp_path / "m", schema=SCHEMA)
    assert [path.name for path in tmp_path.iterdir()] == [".m.lock"]


def test_a_directory_of_somebody_else_s_is_left_alone_and_ours_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="contains no microdata of Topdown"):
        write_microdata(LEAVES, tmp_path / "other")
    write_microdata(LEAVES, tmp_path / "m", rows_per_file=2)
    made = write_microdata(LEAVES, tmp_path / "m")
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["_manifest.json", "part-00000.parquet"]
    assert len(made.files) == 1


def test_unknown_values_in_the_files_are_named(tmp_path: Path) -> None:
    write_microdata(LEAVES, tmp_path / "m", schema=SCHEMA)
    with pytest.raises(DataError, match="'geoid' has a value that does not occur in the release"):
        tabulate(tmp_path / "m", ["000", "001"], LEAVES.cells, SCHEMA)
    with pytest.raises(DataError, match=r"contains no part-\*"):
        tabulate(tmp_path, ["000"], LEAVES.cells, SCHEMA)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order": "random"}, "order 'random': give 'sorted'"),
        ({"rows_per_file": 0}, "rows_per_file is 0"),
        ({"schema": {"sex": ["a", "b"]}}, "2 sex = 2 cells and the table has 4"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        write_microdata(LEAVES, tmp_path / "m", **options)  # type: ignore[arg-type]


# -- from a finished run -------------------------------------------------------------------------------------------


def test_records_of_a_run_are_its_release(public: Path, tmp_path: Path) -> None:
    made = synthesize(public, tmp_path / "m", schema={"age": ["adults", "children"]}, order="shuffled")
    released = pd.read_parquet(public / "release.parquet").query("level == 'county' and value > 0")
    frame = pd.read_parquet(tmp_path / "m")
    assert frame.value_counts(["geoid", "age"]).to_dict() == {
        (row.geoid, row.cell): row.value for row in released.itertuples()
    }
    facts = json.loads((tmp_path / "m" / "_manifest.json").read_text())
    assert facts["records"] == made.records == len(frame)
    assert (
        facts["release_sha256"]
        == json.loads((public / "manifest.json").read_text())["files"]["release.parquet"]["sha256"]
    )
    assert facts["cells"] == {"adults": {"age": "adults"}, "children": {"age": "children"}}
    assert facts["fit_for_release"] is True
    assert "spend no budget" in facts["statement"]
    assert list(facts["files"]) == ["part-00000.parquet"]


def test_only_the_public_directory_is_needed(public: Path, tmp_path: Path) -> None:
    for path in [*(public.parent / "internal").iterdir(), public / "estimates.parquet", public / "release.csv"]:
        if path.is_file():
            path.unlink()
    (public.parent.parent / "table.csv").unlink()
    assert synthesize(public, tmp_path / "m").records >= 0


def test_a_release_in_memory_gives_the_same_records(counts: td.Counts, tmp_path: Path) -> None:
    release = td.round_counts(td.project(td.measure(counts, td.Plan(epsilon=1)), "top-down"))
    write_microdata(release, tmp_path / "m")
    leaves = leaves_of(release)
    assert leaves.geoids.to_pylist() == ["01001", "01003", "02001"]
    assert (tabulate(tmp_path / "m", leaves.geoids, leaves.cells) == release.values[3:]).all()


@pytest.mark.parametrize("name", ["release.parquet", "manifest.json"])
def test_a_release_that_lacks_a_file_is_not_complete(name: str, public: Path, tmp_path: Path) -> None:
    (public / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing, so the release is not complete"):
        synthesize(public, tmp_path / "m")


def test_a_release_that_was_changed_is_refused(public: Path, tmp_path: Path) -> None:
    table = public / "release.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"is not the file that manifest\.json describes"):
        synthesize(public, tmp_path / "m")


def test_rows_that_lack_are_found_even_where_the_manifest_agrees(public: Path, tmp_path: Path) -> None:
    table = public / "release.parquet"
    rows = pq.read_table(table)
    for lacking in (1, 2):
        pq.write_table(rows.slice(0, len(rows) - lacking), table)
        _sign(public)
        with pytest.raises(DataError, match=f"has {12 - lacking} rows, and the manifest 6 units x 2 cells"):
            read_leaves(public)
    order = [*range(len(rows) - 2), len(rows) - 1, len(rows) - 2]
    pq.write_table(rows.take(order), table)
    _sign(public)
    with pytest.raises(DataError, match="its rows are not the units of every level with their cells"):
        read_leaves(public)


def test_a_manifest_of_something_else_is_refused(public: Path) -> None:
    (public / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(DataError, match="is not a release's manifest"):
        read_leaves(public)


def _sign(public: Path) -> None:
    facts = json.loads((public / "manifest.json").read_text())
    facts["files"]["release.parquet"]["sha256"] = files.file_digest(public / "release.parquet")
    (public / "manifest.json").write_text(json.dumps(facts))


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command_writes_beside_public_and_says_what_it_made(
    toy_run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    toy_run.write_text(RUN_TOML + '\n[schema]\nage = ["adults", "children"]\n')
    assert topdown_command("synthesize", toy_run) == 3
    assert "make it with `topdown run` first" in capfd.readouterr().err
    assert topdown_command("run", toy_run, "--quiet") == 0
    assert not (toy_run.parent / "output" / "microdata").exists()
    assert topdown_command("synthesize", toy_run, "--order", "shuffled") == 0
    out = capfd.readouterr().out
    assert "schema    adults: age = adults" in out
    assert "equal the release" in out
    assert "shuffled" in out
    frame = pd.read_parquet(toy_run.parent / "output" / "microdata")
    assert list(frame.columns) == ["geoid", "age"]
    assert topdown_command("synthesize", toy_run, "--order", "random") == 2
    assert "order 'random': give 'sorted'" in capfd.readouterr().err
    assert (topdown_command("synthesize", toy_run, "-q"), capfd.readouterr().out) == (0, "")


def test_a_run_goes_on_to_microdata_where_its_output_says_so(toy_run: Path) -> None:
    toy_run.write_text(RUN_TOML + "\n[output]\nmicrodata = true\n")
    there = toy_run.parent / "there"
    assert topdown_command("run", toy_run, "--output", there, "--quiet") == 0
    assert (there / "microdata" / "part-00000.parquet").is_file()
    assert len(list((there / "public").iterdir())) == 12


def test_a_release_that_was_handed_on_without_its_internal_gets_none(toy_run: Path) -> None:
    output = pipeline.run(load_config(toy_run)).public.parent
    shutil.rmtree(output / "internal")
    assert topdown_command("synthesize", toy_run, "--quiet") == 0
    assert sorted(path.name for path in output.iterdir()) == [".microdata.lock", "microdata", "public"]


def test_a_place_without_a_release_stays_empty(toy_run: Path) -> None:
    assert topdown_command("synthesize", toy_run, "--quiet") == 3
    assert not (toy_run.parent / "output").exists()


def test_the_command_again_says_that_nothing_was_written(toy_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    toy_run.write_text(RUN_TOML + "\n[output]\nmicrodata = true\n")
    for wanted in (["wrote", "checked"], ["holds this release already", "holds these microdata already, complete"]):
        assert topdown_command("run", toy_run) == 0
        out = capfd.readouterr().out
        assert all(words in out for words in wanted), out
    (toy_run.parent / "output" / "microdata" / "notes.txt").write_text("mine")
    assert topdown_command("run", toy_run) == 2
    assert "contains 'notes.txt', which its _manifest.json does not list; nothing was deleted" in capfd.readouterr().err


def test_a_schema_may_follow_a_release_for_its_records(toy_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Records are made of what is published; a run with another schema is another release."""
    assert topdown_command("run", toy_run) == 0
    toy_run.write_text(RUN_TOML + '\n[schema]\nage = ["old", "young"]\n')
    assert topdown_command("synthesize", toy_run) == 0
    assert "age = old" in capfd.readouterr().out
    assert topdown_command("run", toy_run) == 2
    assert "was drawn under another configuration" in capfd.readouterr().err


def test_a_schema_that_does_not_fit_the_cells_is_a_configuration_error(toy_run: Path) -> None:
    toy_run.write_text(RUN_TOML + '\n[schema]\nage = ["old", "young", "middle"]\n')
    with pytest.raises(ConfigError, match="3 age = 3 cells and the table has 2"):
        load_config(toy_run)
    toy_run.write_text(RUN_TOML + "\n[shema]\nage = []\n")
    with pytest.raises(ConfigError, match="did you mean 'schema'"):
        load_config(toy_run)


# -- real blocks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_rhode_island_s_blocks_come_back_exactly(whole: bool, tmp_path: Path) -> None:
    """Measured, projected and rounded: 25,181 blocks x 8 cells (or 103 of two tracts), many zero in the release."""
    path = full_data() / "ri_block_race_2010.csv.gz" if whole else SMALL_DATA / "ri_block_race_2010.csv"
    frame = pd.read_csv(path, dtype={"GEOID": str})
    cells = [name for name in frame.columns if name.startswith("pop_")]
    widths = {"county": 5, "tract": 11, "block": 15}
    geography = td.Geography.from_geoids(frame["GEOID"], widths, root="44", root_level="state")
    counts = td.Counts.from_table(frame, geography, geoid="GEOID", cells=cells)
    shares = {"state": 0.2, "county": 0.2, "tract": 0.2, "block": 0.4}
    measurements = td.measure(counts, td.Plan(epsilon=4, shares=shares), td.SeededSource(1))
    release = td.round_counts(td.project(measurements, "gls-top-down"), source=td.SeededSource(2))
    leaves = leaves_of(release)
    assert leaves.values.shape == (25_181 if whole else 103, 8)
    assert (leaves.values == 0).sum() > (10_000 if whole else 100)
    wanted = {
        (geoid, cell): count
        for geoid, row in zip(leaves.geoids.to_pylist(), leaves.values.tolist(), strict=True)
        for cell, count in zip(cells, row, strict=True)
        if count
    }
    for order in ("sorted", "shuffled"):
        made = write_microdata(release, tmp_path / order, order=order)  # type: ignore[arg-type]
        assert made.records == release.values[0].sum()
        table = pq.read_table(tmp_path / order).group_by(["geoid", "cell"]).aggregate([([], "count_all")])
        found = {(g, c): k for g, c, k in zip(*(column.to_pylist() for column in table.columns), strict=True)}
        assert found == wanted


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"age": ["old", "young"], "sex": ["f", "m"]}, "the schema has 'age', 'sex', and the release 'sex', 'age'"),
        (
            {"sex": ["f", "x"], "age": ["young", "old"]},
            "attribute 'sex' of the schema has 'f', 'x', and that of the rel",
        ),
        ({"cell": ["a", "b", "c", "d"]}, "the schema has 'cell', and the release 'sex', 'age'"),
    ],
)
def test_another_schema_than_the_release_s_is_refused(
    tmp_path: Path, topdown: Command, schema: dict[str, list[str]], says: str
) -> None:
    """Its columns would be filled in another order, and the records tabulated in it too."""
    own = 'sex = ["f", "m"]\nage = ["young", "old"]\n'
    cells = [f"{sex}_{age}" for sex in "fm" for age in ("young", "old")]
    (tmp_path / "table.csv").write_text(f"county,{','.join(cells)}\n01001,1,2,3,4\n01003,50,60,70,80\n")
    toml = RUN_TOML.replace('["adults", "children"]', json.dumps(cells)) + f"\n[schema]\n{own}"
    (tmp_path / "run.toml").write_text(toml)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    with pytest.raises(ConfigError, match=says):
        synthesize(public, tmp_path / "m", schema=schema)
    assert list(pd.read_parquet(synthesize(public, tmp_path / "m").directory)) == ["geoid", "sex", "age"]
    other = "".join(f"{name} = {json.dumps(categories)}\n" for name, categories in schema.items())
    (tmp_path / "run.toml").write_text(toml.replace(own, other))
    done = topdown("synthesize", tmp_path / "run.toml")
    assert done.returncode == 2
    assert says in done.stderr
    assert not (public.parent / "microdata").exists()
