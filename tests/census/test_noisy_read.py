"""Noisy measurement files read: those that others made by the layout, those that were exported, and damaged ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topdown as td
from support import noisy_files as files
from support.places import SMALL_DATA
from topdown.errors import ConfigError, DataError
from topdown.privacy.single_child_units import variances
from topdown.workload.redistricting import PERSONS, UNITS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.make(tmp_path_factory.mktemp("nmf"))


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """Files that a test may damage."""
    shutil.copytree(made, tmp_path / "nmf")
    return tmp_path / "nmf"


def test_units_are_those_of_the_spine(made: Path) -> None:
    geography = td.read_noisy_measurements(made, state="44").geography
    assert geography.levels == ("whole state", "state", "county", "tract", "block group", "block")
    assert geography.identifiers.to_pylist()[:6] == ["44", "044", "144", "044100011", "044100031", "144100031"]
    assert geography.identifiers.to_pylist()[-9:] == list(files.BLOCKS)
    assert geography.names is not None
    assert geography.names.to_pylist()[3:7] == ["44001", "44003", "44003", None]
    assert geography.names.to_pylist()[-7] == "440010101002000"


@pytest.mark.parametrize("level", files.LEVELS)
@pytest.mark.parametrize("query", ["total", "hhinstlevels", "votingage * cenrace", "detailed"])
def test_every_number_is_the_files(made: Path, level: str, query: str) -> None:
    found = td.read_noisy_measurements(made, state="44")
    name = level.lower().replace("_", " ")
    one = found.measurements[name, query]
    rows = pd.concat(
        files.rows_of(path) for part in ("044", "144") if (path := files.place(made, level, "DPQuery", part)).exists()
    )
    expected = rows[rows["query_name"] == f"{query}_dpq"].set_index("geocode")
    nodes = found.geography.level_slice(name)
    for row, code in enumerate(found.geography.identifiers[nodes.start : nodes.stop].to_pylist()):
        if code in expected.index:
            assert one.values[row].tolist() == list(expected.loc[code, "value"])
            assert (one.variance[row] == np.float64(expected.loc[code, "variance"])).all()
        else:
            assert files.is_only_child(level, code)
            assert np.isinf(one.variance[row]).all()


def test_constraints_are_limits(made: Path) -> None:
    found = td.read_noisy_measurements(made, state="44")
    assert found.limits is not None
    ((query, (low, high)),) = found.limits.by_query.items()
    assert query.name == "hhgq"
    for code, kinds in (("044", [0, 0, 0, 0, 0, 1, 0, 0]), (files.BLOCKS[6], [0] * 8)):
        node = int(found.geography.index_of([code])[0])
        facilities = np.array(kinds)
        households = sum(1 for block in files.BLOCKS if block.startswith(code) and block != files.BLOCKS[6])
        assert low[node].tolist() == kinds
        assert high[node].tolist() == (99_999 * np.where(np.arange(8) == 0, households, facilities)).tolist()


def test_a_part_of_a_state_and_some_levels_may_be_read_alone(made: Path) -> None:
    found = td.read_noisy_measurements(made / "US_Person_PL_PROD", state="044", levels=["State", "county", "Tract"])
    assert found.geography.levels == ("state", "county", "tract")
    assert found.geography.identifiers.to_pylist()[0] == "044"
    assert found.measurements["tract", "total"].values.shape == (3, 1)
    assert len(found.files) == 6


def test_partitions_may_lack_the_zeros_of_their_names(root: Path) -> None:
    for path in sorted(root.rglob("State=044")):
        path.rename(path.with_name("State=44"))
    assert td.read_noisy_measurements(root, state="44").geography.n_nodes == 24


def test_a_partition_may_have_many_files_and_others_beside(root: Path) -> None:
    path = files.place(root, "Block", "DPQuery")
    rows = files.rows_of(path)
    expected = td.read_noisy_measurements(root, state="44").measurements["block", "hhgq"].values
    for number, part in enumerate((rows[::-2], rows[-2::-2])):
        files.write(path.with_name(f"part-0000{number}-c000.parquet"), {n: part[n].tolist() for n in part})
    path.unlink()
    (path.parent / "_SUCCESS").touch()
    (path.parent / ".part.crc").touch()
    assert np.array_equal(td.read_noisy_measurements(root, state="44").measurements["block", "hhgq"].values, expected)


# -- the plan -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def production(made: Path) -> files.Variance:
    """The production run's own variances, single children's shares moved up, in 32 bits."""
    there = td.read_noisy_measurements(made, state="44").geography
    plan = _with_state_parts(td.preset("pl94-2020-us").plan(there.levels[1:], only_child="move-up"))
    known = cache(lambda level, query: variances(plan, there, level, query))

    def of(level: str, query: str, code: str) -> float:
        name = level.lower().replace("_", " ")
        node = int(there.index_of([code])[0]) - there.level_slice(name).start
        return float(np.float32(known(name, query)[node]))

    return of


def _with_state_parts(plan: td.Plan) -> td.Plan:
    assert plan.shares is not None
    return td.Plan(
        "discrete-gaussian",
        rho=plan.rho,
        shares={("whole state", "detailed"): 0, **dict(plan.shares.items_)},
        neighbours="substitute",
        only_child="move-up",
    )


def test_the_production_run_is_known_by_its_variances(production: files.Variance, tmp_path: Path) -> None:
    found = td.read_noisy_measurements(files.make(tmp_path / "nmf", production), state="44").measurements
    assert found.plan is not None
    assert found.plan.only_child == "move-up"
    assert found.plan.sigma2("block", "detailed") == td.preset("pl94-2020-us").plan(
        ["us", *found.geography.levels[1:]]
    ).sigma2("block", "detailed")
    # Exact, where the file has 32 bits.
    assert float(found["block", "total"].variance[0, 0]) == found.plan.variance("block", "total")


def test_variances_a_little_off_are_not_the_production_runs(production: files.Variance, tmp_path: Path) -> None:
    files.make(tmp_path / "nmf", lambda *asked: 1.00001 * production(*asked))
    assert td.read_noisy_measurements(tmp_path / "nmf", state="44").measurements.plan is None


def test_variances_that_differ_by_row_are_kept(tmp_path: Path) -> None:
    def by_row(level: str, query: str, code: str) -> float:
        return files.rounded_production(level, query, code) * (1.5 if code.endswith("1") else 1.0)

    found = td.read_noisy_measurements(files.make(tmp_path / "nmf", by_row), state="44").measurements
    assert found.plan is None
    spread = found["block", "detailed"].variance[:, 0]
    assert len(set(spread[np.isfinite(spread)])) == 2
    estimate = td.project(found, "gls")
    assert np.isfinite(estimate.answer("block", "total").variance).all()


# -- a round trip ---------------------------------------------------------------------------------------------------


def prototype() -> td.Measurements:
    """The Rhode Island prototype's persons, measured as the production run would."""
    blocks = pd.read_csv(SMALL_DATA / "ri_pl94_2018_blocks.csv", dtype=str)["block"]
    persons = pd.read_csv(SMALL_DATA / "ri_pl94_2018_persons.csv", dtype={"block": str})
    there = td.Geography.from_geoids(
        blocks, {"county": 5, "tract": 11, "block group": 12, "block": 15}, root="44", root_level="state"
    )
    counts = td.Counts.from_long(persons, there, geoid="block", schema=PERSONS, count="persons")
    plan = td.preset("pl94-2020-us").plan(there.levels, invariants={"state": ["total"]}, only_child="move-up")
    return td.measure(counts, plan, td.SeededSource(3))


def require_same(found: td.Measurements, expected: td.Measurements) -> None:
    assert found.keys == expected.keys
    for key in expected.keys:
        measured = np.isfinite(expected[key].variance)
        assert np.array_equal(found[key].variance, expected[key].variance), key
        assert np.array_equal(found[key].values[measured], expected[key].values[measured]), key


def test_a_round_trip_is_exact(tmp_path: Path) -> None:
    expected = prototype()
    limits = td.AnswerLimits.from_table(
        SMALL_DATA / "ri_pl94_2018_facilities.csv", expected.geography, expected.schema, closed=["hhgq"]
    )
    td.write_noisy_measurements(expected, tmp_path / "nmf", limits=limits)
    found = td.read_noisy_measurements(tmp_path / "nmf", state="44")
    require_same(found.measurements, expected)
    assert expected.plan is not None
    assert found.measurements.plan == td.Plan.from_dict(expected.plan.to_dict())
    assert found.measurements.fit_for_release is False
    assert found.limits is not None
    for query, (low, high) in limits.by_query.items():
        assert np.array_equal(found.limits.by_query[query].low, low)
        assert np.array_equal(found.limits.by_query[query].high, high)
    # What is read is written the same again, by the spine's codes.
    td.write_noisy_measurements(found.measurements, tmp_path / "again", limits=found.limits)
    for path in (tmp_path / "nmf").rglob("*.parquet"):
        if path.is_file():
            again = tmp_path / "again" / path.relative_to(tmp_path / "nmf")
            pd.testing.assert_frame_equal(files.rows_of(again), files.rows_of(path))


def test_a_round_trip_without_a_plan_keeps_every_variance(tmp_path: Path) -> None:
    there = td.Geography.from_geoids(
        ["01001", "01003", "02001"], {"state": 2, "county": 5}, root="US", root_level="nation"
    )
    rng = np.random.default_rng(2)
    expected = td.Measurements.from_answers(
        there,
        UNITS,
        {
            ("nation", "total"): ([100], 0),
            ("state", "total"): ([70, 31], [np.pi, np.inf]),
            ("county", "detailed"): (rng.integers(-9, 99, (3, 2)), rng.random(3)),
        },
    )
    td.write_noisy_measurements(expected, tmp_path / "nmf")
    found = td.read_noisy_measurements(tmp_path / "nmf", "pl94-units")
    assert found.geography.levels == ("nation", "state", "county")
    assert found.measurements.plan is None
    require_same(found.measurements, expected)


def test_a_plan_that_is_not_the_variances_is_refused(tmp_path: Path) -> None:
    there = td.Geography.from_geoids(["44001"], {"county": 5}, root="44", root_level="state")
    counts = td.Counts.from_table(
        pd.DataFrame({"county": ["44001"], "vacant": [1], "occupied": [5]}),
        there, geoid="county", cells=["vacant", "occupied"], schema=UNITS,
    )  # fmt: skip
    plan = td.Plan("discrete-gaussian", rho=1, shares={"state": "1/2", "county": "1/2"})
    td.write_noisy_measurements(td.measure(counts, plan, td.SeededSource(1)), tmp_path / "nmf")
    path = next((tmp_path / "nmf").rglob("County.parquet/DPQuery/*/part-0.parquet"))
    table = pq.ParquetFile(path).read()
    place = table.schema.get_field_index("variance")
    pq.write_table(table.set_column(place, "variance", pa.array([2.5], pa.float32())), path)
    with pytest.raises(DataError, match="the variances are not those of the plan in the files' metadata"):
        td.read_noisy_measurements(tmp_path / "nmf", "pl94-units", "44")


# -- damage ---------------------------------------------------------------------------------------------------------


def _set(column: str, value: Any, row: int = 0) -> Callable[[files.Rows], None]:
    def change(rows: files.Rows) -> None:
        rows[column][row] = value

    return change


def _without(column: str) -> Callable[[files.Rows], files.Rows]:
    return lambda rows: {name: values for name, values in rows.items() if name != column}


def _keep(which: Callable[[files.Rows, int], bool]) -> Callable[[files.Rows], files.Rows]:
    return lambda rows: {
        name: [values[k] for k in range(len(rows["geocode"])) if which(rows, k)] for name, values in rows.items()
    }


def _twice(rows: files.Rows) -> None:
    for values in rows.values():
        values.append(values[0])


def _unmeasured(rows: files.Rows, k: int) -> bool:
    return bool(rows["geocode"][k] != files.BLOCKS[0])


DAMAGES: dict[str, tuple[str, str, Callable[[files.Rows], files.Rows | None], str]] = {
    "a column is missing": ("Block", "DPQuery", _without("value"), "has no column 'value'"),
    "signs of constraints are missing": ("Tract", "Constraint", _without("sign"), "has no column 'sign'"),
    "a column is of another type": (
        "County", "DPQuery", lambda rows: rows | {"geocode": None, "query_shape": rows["query_shape"]}, "geocode",
    ),
    "a geocode is missing": ("Block", "DPQuery", _set("geocode", None), "a row has no geocode"),
    "an unknown unit": (
        "Block", "DPQuery", _set("geocode", files.BLOCKS[0][:-1] + "9"),
        f"unit '{files.BLOCKS[0][:-1]}9' is not among the constraints of its level",
    ),
    "a unit of another state": (
        "County", "Constraint", _set("geocode", "050100011"), "unit '050100011' is of another state",
    ),
    "an orphan": (
        "Tract", "Constraint", _set("geocode", "0449999999"),
        "tract '0449999999' lies in no county; the constraints of level 'county' are incomplete",
    ),
    "a parent without children": (
        "Block_Group", "Constraint", _keep(lambda rows, k: rows["geocode"][k] != "044100011201"),
        "tract '0441000112' has no block group; the constraints of level 'block group' are incomplete",
    ),
    "a block whose code ends otherwise": (
        "Block", "Constraint", _set("geocode", "04410001110x"), "block '04410001110x': a block's code ends",
    ),
    "an unknown recode": (
        "State", "DPQuery", _set("hhgq", "hhgq9"), r"query 'total_dpq': unknown recode of 'hhgq': 'hhgq9'",
    ),
    "a name that its columns deny": (
        "State", "DPQuery", _set("query_name", "total_dpq", 1), "column 'cenrace' has several values, '\\*', 'cenrace'",
    ),
    "a name of another query": (
        "State", "DPQuery", _set("query_name", "cenrace * total_dpq"), "query 'cenrace .*, but its columns are "
"those of 'total'",
    ),
    "a wrong shape": (
        "Block", "DPQuery", _set("query_shape", [1, 1, 1, 2]), r"query_shape is \[1, 1, 1, 2\], and its columns say",
    ),
    "too few numbers": ("Block", "DPQuery", _set("value", []), "value has 0 of 1 numbers"),
    "a list is missing": ("Block", "DPQuery", _set("value", None), "value has none of 1 numbers"),
    "a number is missing": ("Block", "DPQuery", _set("value", [None]), "value has a number that is missing"),
    "a number beyond 2^53": ("State", "DPQuery", _set("value", [2**60]), "query 'total_dpq': beyond 2\\^53"),
    "a variance of 0": ("Block", "DPQuery", _set("variance", 0.0), "variance 0.0 is not above 0"),
    "a variance is missing": ("Block", "DPQuery", _set("variance", None), "variance nan is not above 0"),
    "a sign of a measurement": ("County", "DPQuery", _set("sign", "="), "sign '=' of a measurement"),
    "an unknown sign": ("Tract", "Constraint", _set("sign", "<"), "sign '<' of a constraint"),
    "a row twice": ("Block", "DPQuery", _twice, f"unit '{files.BLOCKS[0]}' has two rows of query 'total'"),
    "a unit is missing": (
        "Block", "DPQuery", _keep(_unmeasured),
        f"is incomplete: block '{files.BLOCKS[0]}' has no measurements; fetch",
    ),
    "a query is missing": (
        "Block", "DPQuery", _keep(lambda rows, k: k != 5), "has no measurement of 'hhgq'; fetch it again",
    ),
    "a zero that is none": ("Block", "Constraint", _set("value", [4], 2), "a structural zero is not 0"),
    "no rows": ("Tract", "Constraint", _keep(lambda rows, k: False), "has no rows; fetch it again"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_partition_is_named_in_a_sentence(root: Path, damage: str) -> None:
    level, kind, how, said = DAMAGES[damage]
    path = files.place(root, level, kind)
    if damage == "a column is of another type":
        table = pq.ParquetFile(path).read()
        pq.write_table(table.set_column(0, "geocode", pa.array([1] * len(table))), path)
        said = "column 'geocode' is of type int64"
    else:
        files.change(path, how)
    with pytest.raises(DataError, match=said) as caught:
        td.read_noisy_measurements(root, state="44")
    if "incomplete: fetch them" not in str(caught.value) and "a block's code ends" not in said:
        assert f"{level}.parquet/{kind}/State=044: " in str(caught.value).replace(", unit", ": unit").replace(
            ", query", ": query"
        )
    assert "\n" not in str(caught.value)


def test_a_column_that_stands_twice_is_named(root: Path) -> None:
    path = files.place(root, "Tract", "DPQuery")
    table = pq.ParquetFile(path).read()
    pq.write_table(table.append_column("value", table["value"]), path)
    with pytest.raises(DataError, match=r"Tract.parquet/DPQuery/State=044: has two columns 'value'; fetch it again"):
        td.read_noisy_measurements(root, state="44")


@pytest.mark.parametrize("code", [f"{files.BLOCKS[0]}0", files.BLOCKS[0][:-1]], ids=["longer", "shorter"])
def test_a_blocks_code_is_its_block_groups_and_sixteen_digits(root: Path, code: str) -> None:
    files.change(files.place(root, "Block", "Constraint"), _set("geocode", code))
    with pytest.raises(DataError, match=f"block '{code}' lies in no block group"):
        td.read_noisy_measurements(root, state="44")


def test_whole_numbers_wider_than_any_are_beyond(root: Path) -> None:
    path = files.place(root, "State", "DPQuery")
    table = pq.ParquetFile(path).read()
    wide = pa.array([[2**63 + 5] * len(one) for one in table["value"].to_pylist()], pa.list_(pa.uint64()))
    pq.write_table(table.set_column(table.schema.get_field_index("value"), "value", wide), path)
    with pytest.raises(DataError, match=r"query 'total_dpq': value has a number that is beyond 2\^53"):
        td.read_noisy_measurements(root, state="44")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Our export of measurements without a plan, of which nothing else would show what is missing."""
    there = td.Geography.from_geoids(
        ["44001", "44003", "44005"], {"county": 5}, root="44", root_level="state"
    )  # fmt: skip
    answers = {("state", "total"): ([100], 0.5), ("county", "detailed"): ([[1, 9], [2, 8], [3, 7]], [1.0, 2.0, 3.0])}
    td.write_noisy_measurements(td.Measurements.from_answers(there, UNITS, answers), tmp_path / "own")
    return tmp_path / "own"


def test_what_is_missing_of_an_export_of_our_own_is_named(own: Path) -> None:
    path = next((own / "US_Unit_PL_PROD" / "County.parquet" / "DPQuery").rglob("part-0.parquet"))
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(0, 2), path)
    with pytest.raises(DataError, match=r"DPQuery/State=044: has 2 of the 3 rows that were written; export it again"):
        td.read_noisy_measurements(own, "pl94-units", "44")
    shutil.rmtree(path.parent)
    with pytest.raises(DataError, match=r"DPQuery/State=044: has 0 of the 3 rows that were written"):
        td.read_noisy_measurements(own, "pl94-units", "44")
    assert td.read_noisy_measurements(own, "pl94-units", "44", ["state"]).geography.n_nodes == 1


@pytest.mark.parametrize("said", [None, b'{"levels": {}, "plan": 3}', b"[" * 100_000], ids=["none", "other", "deep"])
def test_partitions_of_others_among_our_own_are_named(own: Path, said: bytes | None) -> None:
    path = next((own / "US_Unit_PL_PROD" / "County.parquet" / "DPQuery").rglob("part-0.parquet"))
    table = pq.ParquetFile(path).read()
    pq.write_table(table.replace_schema_metadata(None if said is None else {"topdown": said}), path)
    with pytest.raises(DataError, match=r"is of other measurements than .*; put those of one export together"):
        td.read_noisy_measurements(own, "pl94-units", "44")


def test_a_file_that_was_cut_off_is_named(root: Path) -> None:
    path = files.place(root, "Block", "DPQuery")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"DPQuery/State=044: a file cannot be read: .*; fetch it again"):
        td.read_noisy_measurements(root, state="44")


def test_bytes_that_were_spoilt_are_named(root: Path) -> None:
    path = files.place(root, "Block", "DPQuery")
    content = bytearray(path.read_bytes())
    content[len(content) // 4 : len(content) // 2] = b"\xff" * (len(content) // 2 - len(content) // 4)
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match="DPQuery/State=044"):
        td.read_noisy_measurements(root, state="44")


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("US_Person_PL_PROD", "has no folder US_Person_PL_PROD, in which pl94-persons are"),
        ("US_Person_PL_PROD/Tract.parquet", r"Constraint/State=044: is missing; it lists the units of level 'tract'"),
        ("US_Person_PL_PROD/County.parquet/Constraint/State=144", r"County.parquet/Constraint/State=144: is missing"),
        ("US_Person_PL_PROD/Block.parquet/DPQuery", r"DPQuery/State=044: is missing; it should have 8 units of "
"level 'block'"),
        ("US_Person_PL_PROD/State.parquet/DPQuery/State=144", r"DPQuery/State=144: is missing; it should have 1 "
"unit of"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(root: Path, gone: str, said: str) -> None:
    shutil.rmtree(root / gone)
    with pytest.raises(DataError, match=said):
        td.read_noisy_measurements(root, state="44")


def test_incomplete_measurements_are_read_where_that_is_asked_for(root: Path) -> None:
    files.change(files.place(root, "Block", "DPQuery"), _keep(_unmeasured))
    found = td.read_noisy_measurements(root, state="44", incomplete=True).measurements
    assert np.isinf(found["block", "total"].variance[0]).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"product": "pl94-person"}, "unknown product 'pl94-person'.*did you mean 'pl94-persons'"),
        ({"state": 44}, "state is 44; give its two digits as text, such as '44'"),
        ({"state": "RI"}, "state is 'RI'; give its two digits as text"),
        ({"state": "44", "levels": ["county"]}, "levels are 'county'; give some of 'state', 'county'"),
        ({"levels": ["state"]}, "levels are 'state'; give some of 'us', 'state'.*, or a state"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(made: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        td.read_noisy_measurements(made, **options)


def test_values_that_do_not_fit_are_refused_before_they_are_read(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topdown.census.noisy_read.most_at_once", lambda: 500_000)
    with pytest.raises(DataError, match=r"the values of 24 units take .* KiB, more than .*; read one state, or fewer"):
        td.read_noisy_measurements(made, state="44")


def test_a_state_that_is_not_there_is_refused(made: Path) -> None:
    with pytest.raises(DataError, match=r"State.parquet/Constraint/State=050: is missing"):
        td.read_noisy_measurements(made, state="50")


def test_what_no_record_can_be_is_exactly_0_in_least_squares_and_margins(tmp_path: Path) -> None:
    """That no minor lives in a nursing facility is a constraint of the files, and holds with variance 0."""
    measurements = td.read_noisy_measurements(files.make(tmp_path), "pl94-persons", state="44").measurements
    query, answer = "hhgq * votingage", "nursing facilities_17 and under"
    estimate = td.project(measurements, "gls").answer("block", query)
    place = td.Query.parse(query, measurements.schema).labels().index(answer)
    assert not estimate.values[:, place].any()
    assert not estimate.variance[:, place].any()
    block = measurements.geography.identifiers[-1].as_py()
    region = td.region(measurements, {block: 1}, query=query, cell=answer)
    assert (region.estimate, region.sd, region.lower, region.upper) == (0, 0, 0, 0)
