"""Cells and units that are counted twice are found and named; coincidences in small tables are not taken for them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.places import RUN_TOML
from topdown.confidential import double_counting
from topdown.confidential.double_counting import require_disjoint
from topdown.confidential.entries import Entries
from topdown.config import load_config
from topdown.errors import CountsError
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline

LEVELS = ["nation", "state", "county"]


def a_table(states: int, counties: int, cells: int, seed: int = 1, mean: float = 200.0) -> pd.DataFrame:
    """Counts that vary from county to county by orders of magnitude, as populations do."""
    rng = np.random.default_rng(seed)
    codes = [f"{s:02d}{c:03d}" for s in range(1, states + 1) for c in range(1, counties + 1)]
    size = rng.lognormal(0, 1.5, len(codes))[:, None]
    counts = rng.poisson(mean * size * rng.dirichlet(np.ones(cells)) * cells)
    frame = pd.DataFrame(counts, columns=[f"c{k}" for k in range(cells)])
    return frame.assign(nation="US", state=[code[:2] for code in codes], county=codes)


def counts_of(frame: pd.DataFrame, cells: list[str] | None = None) -> td.Counts:
    geography = td.Geography.from_table(frame, LEVELS)
    cells = [name for name in frame.columns if name not in LEVELS] if cells is None else cells
    return td.Counts.from_table(frame, geography, geoid="county", cells=cells)


SUMS = {
    "a total": (["all"], {"all": [f"c{k}" for k in range(8)]}, ["all"], [f"c{k}" for k in range(8)]),
    "a part of the cells": (["part"], {"part": ["c1", "c4"]}, ["part"], ["c1", "c4"]),
    "the same column twice": (["again"], {"again": ["c3"]}, ["again"], ["c3"]),
}


@pytest.mark.parametrize("case", SUMS)
@pytest.mark.parametrize("seed", range(3))
def test_a_cell_that_is_a_sum_of_others_is_named_with_them(case: str, seed: int) -> None:
    frame = a_table(8, 12, 8, seed)
    for name, parts in SUMS[case][1].items():
        frame.insert(seed, name, frame[parts].sum(axis=1))
    found = double_counting.summed_cells(counts_of(frame))
    assert found is not None
    assert {frozenset(side) for side in found} == {frozenset(SUMS[case][2]), frozenset(SUMS[case][3])}
    with pytest.raises(CountsError, match=r"in every unit, as if they overlapped.*assume_disjoint") as raised:
        double_counting.require_disjoint(counts_of(frame))
    assert not {str(v) for v in frame.select_dtypes("number").to_numpy().ravel() if v > 99} & set(
        re.findall(r"\d+", str(raised.value))
    )


def test_two_ways_to_divide_the_same_people_are_found_without_their_total() -> None:
    frame = a_table(6, 10, 3)
    everybody = frame[["c0", "c1", "c2"]].sum(axis=1)
    frame["female"] = (everybody * 0.51).round().astype(int)
    frame["male"] = everybody - frame["female"]
    found = double_counting.summed_cells(counts_of(frame))
    assert found is not None
    assert {frozenset(side) for side in found} == {frozenset(["female", "male"]), frozenset(["c0", "c1", "c2"])}


def test_sums_are_found_among_many_cells_and_in_many_sparse_leaves() -> None:
    frame = a_table(40, 60, 130, mean=1.5)
    cells = [name for name in frame.columns if name not in LEVELS]
    frame["over 65"] = frame[cells[100:]].sum(axis=1)
    found = double_counting.summed_cells(counts_of(frame))
    assert found is not None
    assert sorted(map(len, found)) == [1, 30]


def test_of_very_many_cells_only_the_sum_of_all_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(double_counting, "MOST_COMPARED", 5)
    frame = a_table(6, 10, 8)
    frame["part"] = frame["c0"] + frame["c1"]
    assert double_counting.summed_cells(counts_of(frame)) is None
    frame = a_table(6, 10, 8)
    frame["all"] = frame[[f"c{k}" for k in range(8)]].sum(axis=1)
    found = double_counting.summed_cells(counts_of(frame))
    assert found is not None
    assert found[0] == ("all",)


@pytest.mark.parametrize("cells", [1, 2, 5, 12])
@pytest.mark.parametrize("states", [1, 20])
def test_disjoint_cells_pass_also_where_there_are_more_of_them_than_leaves(cells: int, states: int) -> None:
    for seed in range(3):
        for mean in (0.3, 3.0, 3000.0):
            double_counting.require_disjoint(counts_of(a_table(states, 3, cells, seed, mean)))


def test_columns_of_zeros_are_nobodys_sum() -> None:
    frame = a_table(6, 10, 3).assign(none=0, nobody=0)
    double_counting.require_disjoint(counts_of(frame))


def test_a_sum_that_holds_in_a_few_leaves_is_a_coincidence() -> None:
    frame = pd.DataFrame({"nation": "US", "state": ["01", "01", "02"], "county": ["01001", "01003", "02001"]})
    double_counting.require_disjoint(counts_of(frame.assign(a=[1, 2, 3], b=[3, 1, 2], c=[4, 3, 5])))


# -- rows -----------------------------------------------------------------------------------------------------------


def with_totals(frame: pd.DataFrame, states: list[str], code: str = "999") -> pd.DataFrame:
    sums = frame[frame["state"].isin(states)].drop(columns="county").groupby(["nation", "state"], as_index=False).sum()
    return pd.concat([frame, sums.assign(county=sums["state"] + code)])


@pytest.mark.parametrize("states", [["01"], [f"{k:02d}" for k in range(1, 21)]])
def test_a_row_of_totals_among_the_units_is_named(states: list[str]) -> None:
    frame = with_totals(a_table(20, 12, 2, mean=30_000), states)
    with pytest.raises(
        CountsError, match=r"county '01999'.*equal to the sum of the other units of the same parent"
    ) as e:
        double_counting.require_disjoint(counts_of(frame))
    assert (" and others: " in str(e.value)) == (len(states) > 2)
    assert "assume_disjoint" in str(e.value)


def test_a_unit_of_totals_is_named_at_its_own_level() -> None:
    frame = a_table(20, 5, 2, mean=30_000)
    everything = {"nation": "US", "state": "99", "county": "99999", **frame[["c0", "c1"]].sum()}
    frame = pd.concat([frame, pd.DataFrame([everything])])
    with pytest.raises(CountsError, match=r"^state '99': equal to"):
        double_counting.require_disjoint(counts_of(frame))


def test_small_families_that_balance_by_chance_pass() -> None:
    """In one family of fifty the largest of three blocks has as many as the other two."""
    rng = np.random.default_rng(5)
    for most in (3, 60, 1000):
        frame = a_table(90, 30, 1)
        frame["state"] = [f"{k // 3:05d}" for k in range(len(frame))]
        counts = counts_of(frame.assign(c0=rng.integers(0, most, len(frame))))
        double_counting.require_disjoint(counts)
    assert double_counting._more_than_chance(np.full(900, 10.0), 900)


def test_twins_and_only_children_pass() -> None:
    twins = pd.DataFrame({"nation": "US", "state": ["01", "01", "02"], "county": ["01001", "01003", "02001"]})
    double_counting.require_disjoint(counts_of(twins.assign(a=[70_000, 70_000, 9_999], b=[70_001, 70_001, 123_456])))


# -- in a run ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def overlapping(tmp_path: Path) -> Path:
    frame = a_table(5, 6, 2).rename(columns={"c0": "adults", "c1": "children"})
    frame.assign(people=frame["adults"] + frame["children"]).to_csv(tmp_path / "table.csv", index=False)
    path = tmp_path / "run.toml"
    path.write_text(RUN_TOML.replace('"children"]', '"children", "people"]'))
    return path


def test_check_and_run_refuse_cells_that_overlap(overlapping: Path) -> None:
    config = load_config(overlapping)
    for job in (draw.check, pipeline.run):
        with pytest.raises(
            CountsError, match=r"cell people equals the sum of '(adults|children)', '(adults|children)'"
        ):
            job(config)
    assert not (overlapping.parent / "output").exists()


def test_cells_that_are_called_disjoint_are_released_and_the_manifest_says_so(overlapping: Path) -> None:
    text = overlapping.read_text()
    overlapping.write_text(text.replace("[input]", "[input]\nassume_disjoint = true"))
    manifest = json.loads((pipeline.run(load_config(overlapping)).public / "manifest.json").read_text())
    assert next(iter(manifest)) == "notices"
    assert "assumed (input.assume_disjoint)" in manifest["notices"][0]
    assert manifest["configuration"]["input"]["assume_disjoint"] is True


def test_counts_kept_by_their_cells_say_of_overlap_what_their_table_says() -> None:
    rng = np.random.default_rng(11)
    schema = td.Schema((td.Attribute("a", tuple(f"{k}" for k in range(80))),))
    geography = td.Geography.from_geoids(
        [f"{c:02d}{t:02d}{b:02d}" for c in range(6) for t in range(5) for b in range(8)],
        {"county": 2, "tract": 4, "block": 6},
    )
    plain = rng.poisson(30, (240, 80)) * (rng.random((240, 80)) < 0.3)
    summed, total = plain.copy(), plain.reshape(6, 5, 8, 80).copy()
    summed[:, 7] = summed[:, [2, 3, 60]].sum(axis=1)
    total[:, :, -1] = total[:, :, :-1].sum(axis=2)
    for leaves in (plain, summed, total.reshape(240, 80)):
        whole = np.ascontiguousarray(geography.tree.aggregate(np.ascontiguousarray(leaves.T)).T)
        keys = np.flatnonzero(leaves)
        entries = Entries.of_leaves(geography.tree, 80, keys, leaves.reshape(-1)[keys])
        said = []
        for held in (whole, entries):
            counts = td.Counts(geography, schema.cells(), held, schema)
            try:
                require_disjoint(counts)
                said.append("")
            except CountsError as error:
                said.append(str(error))
        assert said[0] == said[1]
        assert bool(said[0]) == (leaves is not plain)
