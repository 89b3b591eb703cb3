"""Measurements in the layout of noisy measurement files: what the tools that read these find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.trees import geography
from topdown.census.layouts import noisy_layout as layout
from topdown.census.noisy_write import write_noisy_measurements
from topdown.errors import ConfigError, DataError
from topdown.geography.tree import Tree
from topdown.release.manifest import SCHEMA_VERSION
from topdown.workload.redistricting import PERSONS, RESIDENCES, UNITS

BLOCKS = ["440010101001000", "440010101001001", "440010101002000", "440030201001000"]
WIDTHS = {"county": 5, "tract": 11, "block group": 12, "block": 15}


def units(variance: object = 4.5) -> td.Measurements:
    """Housing units of four blocks: exact totals, and occupancy measured at the blocks but the last."""
    there = td.Geography.from_geoids(BLOCKS, WIDTHS, root="44", root_level="state")
    values = np.array([[1, 10], [-2, 7], [0, 3], [5, 5]])
    spread = np.array([variance, variance, variance, np.inf], dtype=np.float64)
    return td.Measurements.from_answers(
        there, UNITS, {("block", "detailed"): (values, spread), ("block", "total"): ([11, 5, 3, 10], 0)}
    )


def rows(root: Path, level: str, kind: str, part: str = "State=044") -> pd.DataFrame:
    return pd.read_parquet(root / "US_Unit_PL_PROD" / f"{level}.parquet" / kind / part)


def test_a_row_is_a_query_at_a_unit(tmp_path: Path) -> None:
    write_noisy_measurements(units(), tmp_path / "nmf")
    found = rows(tmp_path / "nmf", "Block", "DPQuery")
    # State, county, running numbers of tract and block group, and the block with its group said twice.
    assert list(found["geocode"]) == [
        f"0441000111{number}4400101010{digits}"
        for number, digits in (("01", "011000"), ("01", "011001"), ("02", "022000"))
    ]
    assert list(found["query_name"]) == ["detailed_dpq"] * 3
    assert list(found["h1"]) == ["detailed"] * 3
    assert [list(one) for one in found["query_shape"]] == [[2]] * 3
    assert [list(one) for one in found["value"]] == [[1, 10], [-2, 7], [0, 3]]
    assert found["variance"].dtype == np.float32
    assert found["sign"].isna().all()


def test_a_unit_that_was_not_measured_is_among_the_constraints(tmp_path: Path) -> None:
    write_noisy_measurements(units(), tmp_path / "nmf")
    found = rows(tmp_path / "nmf", "Block", "Constraint")
    assert list(found["query_name"]) == ["total_con"] * 4
    assert list(found["sign"]) == ["="] * 4
    assert [list(one) for one in found["value"]] == [[11], [5], [3], [10]]
    above = rows(tmp_path / "nmf", "County", "Constraint")
    assert list(above["geocode"]) == ["044100011", "044100031"]
    assert list(above["sign"]) == [">="] * 2


def test_persons_have_a_greatest_count_by_residence_at_every_unit(tmp_path: Path) -> None:
    """BlueDown looks it up, and the zero of minors in nursing facilities, where nothing is known too."""
    there = td.Geography.from_geoids(BLOCKS, WIDTHS, root="44", root_level="state")
    values = np.zeros((len(BLOCKS), PERSONS.n_cells))
    measurements = td.Measurements.from_answers(there, PERSONS, {("block", "detailed"): (values, 4)})
    limits = td.AnswerLimits.from_table(
        pd.DataFrame({"geoid": BLOCKS[:1], "query": "hhgq", "answer": RESIDENCES[3], "lower": 0, "upper": 0}),
        there,
        PERSONS,
    )
    for known in (None, limits):
        root = tmp_path / ("limits" if known else "none")
        write_noisy_measurements(measurements, root, limits=known)
        for level in ("State", "County", "Tract", "Block_Group", "Block"):
            folder = root / "US_Person_PL_PROD" / f"{level}.parquet"
            found = pd.read_parquet(folder / "Constraint" / "State=044")
            assert len(list((folder / "Constraint" / "State=044").iterdir())) == 1
            for name in ("hhgq_total_ub_con", "hhgq_total_lb_con", "nurse_nva_0_con"):
                assert (found["query_name"] == name).sum() == found["geocode"].nunique(), (level, name)
        greatest = np.stack(found.loc[found["query_name"] == "hhgq_total_ub_con", "value"])
        assert (greatest == 0).sum() == (0 if known is None else 1)
        back = td.read_noisy_measurements(root, "pl94-persons", state="44")
        assert (back.limits is None) == (known is None)


def test_a_variance_that_32_bits_do_not_hold_has_64(tmp_path: Path) -> None:
    write_noisy_measurements(units(0.1), tmp_path / "nmf")
    assert list(rows(tmp_path / "nmf", "Block", "DPQuery")["variance"]) == [0.1] * 3


def test_blocks_are_named_with_and_without_their_group_twice() -> None:
    assert layout.with_block_group_twice("440010101002003") == "4400101010022003"
    assert layout.block_geoid("04410001" + "4400101010022003") == "440010101002003"


def test_another_geography_is_refused(tmp_path: Path) -> None:
    other = geography(Tree.from_family_sizes([[2]]))
    measurements = td.Measurements.from_answers(other, UNITS, {("level 0", "total"): ([3], 1)})
    with pytest.raises(DataError, match="the levels are 'level 0', 'level 1'; a noisy measurement file has 'us'"):
        write_noisy_measurements(measurements, tmp_path / "nmf")


def test_a_code_of_another_width_is_refused_by_unit(tmp_path: Path) -> None:
    there = td.Geography.from_geoids(["440", "441"], {"county": 3}, root="44", root_level="state")
    measurements = td.Measurements.from_answers(there, UNITS, {("state", "total"): ([3], 1)})
    with pytest.raises(DataError, match="county '440': a county has a GEOID of 5 digits"):
        write_noisy_measurements(measurements, tmp_path / "nmf")


def test_another_schema_is_refused(tmp_path: Path) -> None:
    there = td.Geography.from_geoids(BLOCKS, WIDTHS, root="44", root_level="state")
    schema = td.Schema.from_mapping({"sex": ["f", "m"]})
    measurements = td.Measurements.from_answers(there, schema, {("state", "total"): ([3], 1)})
    with pytest.raises(ConfigError, match="the attributes are 'sex', and a noisy measurement file is made of 'hhgq'"):
        write_noisy_measurements(measurements, tmp_path / "nmf")


def test_values_that_are_not_whole_are_refused_by_unit(tmp_path: Path) -> None:
    there = td.Geography.from_geoids(BLOCKS, WIDTHS, root="44", root_level="state")
    measurements = td.Measurements.from_answers(there, UNITS, {("block", "detailed"): (np.full((4, 2), 0.5), 1)})
    with pytest.raises(DataError, match="block '440010101001000', query 'detailed': a value is not whole"):
        write_noisy_measurements(measurements, tmp_path / "nmf")


def test_every_file_says_its_schema_version(tmp_path: Path) -> None:
    for path in write_noisy_measurements(units(), tmp_path / "nmf"):
        marks = pq.read_schema(path).metadata
        assert marks[b"schema version"] == SCHEMA_VERSION.encode()
        assert marks[b"software"].startswith(b"topdown ")
