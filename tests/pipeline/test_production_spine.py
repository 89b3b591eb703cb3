"""The 2020 production run's spine from a block's area, subdivision and place, against a plain statement of it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.command import topdown_command
from support.parted import AtOnce, place_of_the_same_noise
from topdown.census.off_spine import off_dhc_spine
from topdown.config import load_config
from topdown.machine.progress import Silent
from topdown.pipeline.input.spine_reading import with_spine
from topdown.pipeline.input.unit_reading import listed_units
from topdown.pipeline.run import run
from topdown.workload.redistricting import PERSONS, VOTERS

AREAS = ("0001", "4800", "5000", "5999", "7999", "9499", "4990", "8500", "9500", "9999")
INSIDE = {"0001", "4800", "5000", "5999", "7999", "9499"}
STRONG = "44"
WEAK = "01"


def listed(states: list[str], seed: int = 3) -> pd.DataFrame:
    """Blocks of these states with random areas, subdivisions and places."""
    rng = np.random.default_rng(seed)
    codes = [
        f"{state}{county}{tract}{group}{block:03}"
        for state, county, tract, group in itertools.product(states, ("001", "003"), ("000100", "000200"), "12")
        for block in range(20)
    ]
    return pd.DataFrame(
        {
            "block": codes,
            "AIANNHCE": rng.choice(AREAS, len(codes), p=[0.04] * 9 + [0.64]),
            "COUSUBFP": rng.choice(["10000", "20000"], len(codes)),
            "PLACEFP": rng.choice(["11111", "99999"], len(codes)),
        }
    ).astype(str)


def written(folder: Path, blocks: pd.DataFrame, *, nation: bool) -> Path:
    """A configuration of these blocks with a preset."""
    blocks.to_csv(folder / "blocks.csv", index=False)
    units = blocks["block"]
    records = pd.DataFrame({"block": units, "h1": "occupied", "units": np.arange(1, len(units) + 1)})
    records.to_csv(folder / "units.csv", index=False)
    widths = "state = 2, county = 5, tract = 11" if nation else "county = 5, tract = 11"
    root = 'root = "US"\nroot_level = "nation"' if nation else 'root = "44"\nroot_level = "state"'
    path = folder / "release.toml"
    path.write_text(
        '[input]\npath = "units.csv"\nrows = "long"\ngeoid = "block"\ncount = "units"\n'
        '[geography]\nunits = "blocks.csv"\n'
        f'{root}\nwidths = {{ {widths}, "block group" = 12, block = 15 }}\n'
        '[privacy]\npreset = "pl94-2020-units"\ninvariants = { state = ["total"] }\n[output]\ndirectory = "out"\n'
    )
    return path


def spine_units(folder: Path) -> pd.DataFrame:
    """Of every block the unit of every level of the spine that was written."""
    config = load_config(folder / "release_spine.toml")
    assert config.units_path is not None
    tree = with_spine(listed_units(config.units_path, config, Silent()), config)
    units, found = np.arange(tree.tree.leaves.start, tree.n_nodes), {}
    for level in reversed(tree.levels):
        found[level] = tree.identifiers.take(units).to_pylist()
        units = tree.parent[units]
    return pd.DataFrame(found).set_index("block")


@pytest.mark.parametrize("states", [[STRONG], [WEAK, STRONG]])
def test_the_spine_is_production_s(tmp_path: Path, states: list[str]) -> None:
    blocks = listed(states)
    path = written(tmp_path, blocks, nation=len(states) > 1)
    assert topdown_command("spine", path, "-q") == 0
    table = spine_units(tmp_path).loc[blocks["block"]]
    rows = blocks.set_index("block")
    inside = rows["AIANNHCE"].isin(INSIDE)
    code = rows.index.to_series()
    # What a unit of every level is of: the state's part, its county and its tract.
    wanted = {"state": (2, inside), "county": (5, inside), "tract": (11, inside)}
    for level, (width, part) in wanted.items():
        meant = code.str[:width] + part.astype(str)
        assert (table.groupby(level).ngroup().nunique(), meant.nunique()) == (meant.nunique(), meant.nunique())
        assert meant.groupby(table[level]).nunique().max() == 1, level
    governs = (code.str[:2] == STRONG) & ~inside
    entity = rows["COUSUBFP"].where(governs, rows["PLACEFP"]) + rows["AIANNHCE"].where(inside, "9999")
    size = table.groupby("tract")["state"].transform("size")
    for _, group in table.groupby("block group"):
        members = group.index
        assert len(set(entity[members])) == 1
        assert len(set(group["tract"])) == 1
        assert len(members) <= math.isqrt(int(size[members[0]])) + 12
    same = table.groupby([table["tract"], entity])["block group"].nunique()
    many = table.groupby([table["tract"], entity]).size()
    most = table.groupby([table["tract"], entity])["tract"].first().map(table.groupby("tract").size())
    assert (same == [-(-n // (math.isqrt(int(m)) + 12)) for n, m in zip(many, most, strict=True)]).all()
    if len(states) > 1:
        assert table["whole state"].tolist() == code.str[:2].tolist()
    config = load_config(tmp_path / "release_spine.toml")
    assert config.geography.measured_names == [
        *(["nation"] if len(states) > 1 else []), "whole state", "state", "county", "tract", "block group", "block",
    ]  # fmt: skip
    plan = config.plan()
    assert plan.is_exact("whole state", "total")
    assert not plan.is_exact("state", "total")
    assert plan.variance("tract", "detailed") == td.preset("pl94-2020-units").plan(
        [*(["nation"] if len(states) > 1 else []), "state", "county", "tract", "block group", "block"]
    ).variance("tract", "detailed")


def test_a_release_on_it_has_exact_states_and_adds_up(tmp_path: Path) -> None:
    path = written(tmp_path, listed([STRONG]), nation=False)
    assert topdown_command("spine", path, "-q") == 0
    assert topdown_command("run", tmp_path / "release_spine.toml", "-q") == 0
    assert topdown_command("verify", tmp_path / "out/public") == 0
    found = td.read_release(tmp_path / "out/public")
    assert found.release.values[0].sum() == pd.read_csv(tmp_path / "units.csv")["units"].sum()
    assert found.geography.levels == ("state", "county", "tract", "block group", "block")
    assert found.measurements.geography.levels[:2] == ("whole state", "state")
    # Of every place, or subdivision, that groups follow the count is the sum of its blocks.
    place = pd.read_parquet(tmp_path / "release_spine_areas.parquet").set_index("block")["place"].fillna("none")
    leaves = found.geography.tree.leaves
    counts = pd.Series(found.release.values[leaves].sum(axis=1), found.geography.geoid[leaves].tolist())
    own = found.areas["place"]
    sums = pd.Series(own.values.sum(axis=1), own.geography.geoid.tolist())
    pd.testing.assert_series_equal(sums[1:], counts.groupby(place).sum(), check_names=False, check_index_type=False)


def persons_on_it(folder: Path, form: str) -> Path:
    """A configuration on production's spine of persons of a redistricting file, exported as ``form``."""
    blocks, rng = listed([STRONG]), np.random.default_rng(1)
    written(folder, blocks, nation=False)
    rows = pd.DataFrame({"block": np.repeat(blocks["block"].to_numpy(), 6)})
    for one in PERSONS.attributes:
        rows[one.name] = rng.choice(one.categories[:2], len(rows)) if one.name != "hhgq" else one.categories[0]
    rows = rows.drop_duplicates()
    rows.assign(n=rng.integers(1, 9, len(rows))).to_csv(folder / "persons.csv", index=False)
    text = (folder / "release.toml").read_text().replace("pl94-2020-units", "pl94-2020-us")
    text = text.replace('"units.csv"', '"persons.csv"').replace('count = "units"', 'count = "n"')
    text += f'exports = ["{form}"]\n[projection]\ncross_check = false\n'
    (folder / "release.toml").write_text(text)
    assert topdown_command("spine", folder / "release.toml", "-q") == 0
    return folder / "release_spine.toml"


def test_persons_on_it_are_a_redistricting_file_of_tabulated_blocks(tmp_path: Path) -> None:
    """Also where the release is made in parts: the same members."""
    config, members = load_config(persons_on_it(tmp_path, "pl94")), []
    run(config, tmp_path / "out")
    for name, size in (("out", None), ("parts", 60)):
        there = tmp_path / name
        if size is not None:
            there = place_of_the_same_noise(tmp_path, tmp_path / "out", name)
            run(config, there, part_size=size, executor=AtOnce())
        assert topdown_command("verify", there / "public") == 0
        members.append({path.name: path.read_bytes() for path in (there / "exports/pl94").iterdir()})
    assert len(members[0]) == 4
    assert members[0] == members[1]
    release = td.read_release(tmp_path / "out/public").release
    read = td.read_pl94(tmp_path / "out/exports/pl94").counts
    assert read.geography.identifiers.equals(release.geography.identifiers)
    voters = " * ".join(one.name for one in VOTERS.attributes)
    for level in ("state", "tract", "block"):
        assert (read.values[read.geography.level_slice(level)] == release.answers(level, voters)).all()


def test_noisy_measurement_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is drawn: they have no codes for a spine's units."""
    path = persons_on_it(tmp_path, "nmf")
    assert topdown_command("run", path, "-q") == 3
    said = capsys.readouterr().err
    assert "output.exports, nmf: noise is measured on a spine of areas (geography.spine)" in said
    assert "such as '44~1' of level 'state'; leave nmf out" in said
    assert not (tmp_path / "out").exists()
    path.write_text(path.read_text().replace('"nmf"', '"zip"'))
    assert topdown_command("run", path, "-q") == 0
    assert topdown_command("export", tmp_path / "out/public", "--format", "nmf", "-o", tmp_path / "nmf") == 3
    assert "noise is measured on a spine of areas" in capsys.readouterr().err
    assert not (tmp_path / "nmf").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.drop(columns="PLACEFP"), "PLACEFP"),
        (lambda t: t.assign(AIANNHCE=t["AIANNHCE"].str.lstrip("0")), "AIANNHCE is '1'; give 4 digits"),
        (lambda t: t.assign(COUSUBFP=t["COUSUBFP"].where(t.index != 5, None)), "COUSUBFP is"),
        (lambda t: pd.concat([t, t.iloc[:1]]), "duplicate GEOID"),
    ],
)
def test_a_list_that_does_not_say_it_is_refused(
    tmp_path: Path, change: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = listed([STRONG])
    path = written(tmp_path, blocks, nation=False)
    change(blocks).to_csv(tmp_path / "blocks.csv", index=False)  # type: ignore[operator]
    assert topdown_command("spine", path) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "release_spine.toml").exists()
    assert not (tmp_path / "release_spine_areas.parquet").exists()


DHC_LEVELS = ["state", "county", "prim", "tract subset group", "tract subset", "block group", "block"]


def of_dhc(folder: Path, blocks: pd.DataFrame, run: str = "us", *, nation: bool) -> Path:
    """A configuration of these blocks' totals with a preset of the DHC."""
    path = written(folder, blocks, nation=nation)
    totals = pd.read_csv(folder / "units.csv", dtype=str)[["block", "units"]]
    totals.to_csv(folder / "units.csv", index=False)
    text = path.read_text().replace('rows = "long"\n', "").replace('count = "units"', 'cells = ["units"]')
    path.write_text(text.replace("pl94-2020-units", f"dhc-2020-{run}-persons").replace('["total"]', '["detailed"]'))
    return path


def more_columns(blocks: pd.DataFrame) -> pd.DataFrame:
    """``blocks`` with school districts and functional status."""
    rng = np.random.default_rng(5)
    known = blocks.assign(
        SDUNILEA=rng.choice(["00001", "00002"], len(blocks)),
        SDSECLEA="99997",
        SDELMLEA="99997",
        COUSUBFS=np.where(blocks["block"].str[2:5] == "001", "A", "N"),
        PLACEFS=rng.choice(["A", "S"], len(blocks)),
    )
    return known.assign(PLACEFS=np.where(known["PLACEFP"] == "99999", None, known["PLACEFS"]))


@pytest.mark.system
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("states", [[STRONG], [WEAK, STRONG]])
def test_the_dhc_s_spine_is_production_s(
    tmp_path: Path, states: list[str], more: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = more_columns(listed(states)) if more else listed(states)
    path = of_dhc(tmp_path, blocks, nation=len(states) > 1)
    assert topdown_command("spine", path) == 0
    said = capsys.readouterr().out
    assert ("school districts" in said, "which subdivisions govern" in said) == (not more, not more)
    table = spine_units(tmp_path).loc[blocks["block"]]
    rows = blocks.set_index("block")
    inside = rows["AIANNHCE"].isin(INSIDE)
    code = rows.index.to_series()
    governs = code.str[2:5] == "001" if more else code.str[:2] == STRONG
    place = rows["PLACEFP"].where((rows["PLACEFS"] == "A") | (not more), "99999") if more else rows["PLACEFP"]
    prim = code.str[:5] + inside.astype(str) + rows["COUSUBFP"].where(governs, "99999") + place
    subset = prim + code.str[5:11]
    wanted = {
        "state": code.str[:2] + inside.astype(str),
        "county": code.str[:5] + inside.astype(str),
        "prim": prim,
        "tract subset": subset,
    }
    for level, meant in wanted.items():
        assert table[level].groupby(meant).nunique().max() == 1, level
        assert meant.groupby(table[level]).nunique().max() == 1, level
    entity = subset + rows["AIANNHCE"].where(inside, "9999") + code.str[11]
    if more:
        entity += rows["SDUNILEA"]
    for _, group in table.groupby("block group"):
        assert len(set(entity[group.index])) == 1
        assert len(group) <= math.isqrt(int((subset == subset[group.index[0]]).sum())) + 12
    for above, below in itertools.pairwise(DHC_LEVELS[:-1]):
        assert table[above].groupby(table[below]).nunique().max() == 1
    assert load_config(tmp_path / "release_spine.toml").geography.measured_names == [
        *(["nation"] if len(states) > 1 else []), "whole state", *DHC_LEVELS,
    ]  # fmt: skip


def test_tracts_of_a_piece_of_a_county_are_in_few_groups_of_equal_size() -> None:
    blocks = [f"44001{tract:06}1{block:03}" for tract in range(40) for block in range(2)]
    columns = {"AIANNHCE": ["9999"] * 80, "COUSUBFP": ["10000"] * 80, "PLACEFP": ["99999"] * 80}
    group = pd.Series(off_dhc_spine(blocks, columns, dict.fromkeys(blocks, "0")).tract_group)
    tract = group.index.str[5:11]
    assert group.groupby(tract).nunique().max() == 1
    # 40 tracts, of which at most 6 + 12 are in a group: three of them.
    assert sorted(pd.Series(tract).groupby(group.to_numpy()).nunique()) == [13, 13, 14]


def test_puerto_rico_s_counties_are_not_divided() -> None:
    blocks = [f"72001{tract:06}1000" for tract in range(4)]
    columns = {"AIANNHCE": ["9999"] * 4, "COUSUBFP": ["10000", "20000"] * 2, "PLACEFP": ["11111"] * 4}
    assert set(off_dhc_spine(blocks, columns, dict.fromkeys(blocks, "0")).mcd_place.values()) == {"9" * 10}


@pytest.mark.system
def test_a_preset_with_too_many_cells_for_tables_of_them_is_for_the_total_of_a_table_of_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = of_dhc(tmp_path, listed([STRONG]), nation=False)
    assert topdown_command("spine", path) == 0
    assert "topdown run" not in capsys.readouterr().out
    spine = tmp_path / "release_spine.toml"
    assert topdown_command("check", spine, "--errors") == 0
    said = capsys.readouterr().out
    assert "is a plan of 1,227,744 cells, and this table has the total alone" in said
    assert "tract subset group" in said
    for command in ("run", "study"):
        if command == "study":
            spine.write_text(spine.read_text() + "\n[study]\nreplicates = 2\n")
        assert topdown_command(command, spine) == 2
        assert "1,227,744 cells" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    assert topdown_command("check", path) == 2
    assert "`topdown spine FILE` makes these" in capsys.readouterr().err
    path.write_text(path.read_text().replace('cells = ["units"]', 'cells = ["units", "persons"]'))
    assert topdown_command("spine", path, "-o", tmp_path / "other.toml") == 2
    assert 'give a table with a column of totals, such as cells = ["persons"]' in capsys.readouterr().err


def test_other_levels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, listed([STRONG]), nation=False)
    path.write_text(path.read_text().replace("tract = 11, ", ""))
    assert topdown_command("spine", path) == 2
    assert "production's spine is for" in capsys.readouterr().err
