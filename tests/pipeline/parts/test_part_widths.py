"""Releases whose counties have counts where a kind of integer ends, of the whole tree and in parts: the same counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.command import topdown_command
from support.parted import AtOnce, counts_of, place_of_the_same_noise
from support.widths import EDGES
from topdown.confidential import measure_piece
from topdown.config import load_config
from topdown.errors import InternalError
from topdown.pipeline import run as pipeline
from topdown.privacy.bounds import LevelBounds

FITTING = [edge for edge in EDGES if edge < 1 << 52]
"""A total of 2^53 is refused."""

TOML = """
[input]
path = "table.parquet"
rows = "long"
geoid = "block"
count = "n"

[schema]
sex = ["f", "m"]
age = ["minor", "adult"]

[geography]
units = "units.csv"
widths = {{ state = 2, county = 4, block = 6 }}

[privacy]
mechanism = "{mechanism}"
{budget}

[privacy.shares.nation]
total = "1/10"
[privacy.shares.state]
total = "2/10"
[privacy.shares.county]
total = "2/10"
sex = "1/10"
[privacy.shares.block]
total = "1/10"
detailed = "3/10"

[projection]
cross_check = false

[output]
tables = ["total", "sex"]
csv = true
"""

BUDGETS = {"discrete-gaussian": 'rho = "5"', "geometric": 'epsilon = "10"'}
"""By mechanism: about half of the counties' totals have a noise of 0."""


def made(folder: Path, mechanism: str) -> Path:
    """A state for every edge: all of the first county is in one cell, or in several, and the second has few."""
    rng = np.random.default_rng(4)
    rows = []
    for state, edge in enumerate(FITTING):
        for county in range(2):
            for block in range(3):
                counts = rng.integers(0, 9, 4)
                if county == 0:
                    counts = np.zeros(4, np.int64)
                    if state % 2:
                        counts[:] = edge // 12
                        counts[0] += (edge - 12 * (edge // 12)) * (block == 1)
                    elif block == 2:
                        counts[1] = edge
                rows += [
                    (f"{state:02}{county:02}{block:02}", sex, age, counts[2 * s + a])
                    for s, sex in enumerate("fm")
                    for a, age in enumerate(["minor", "adult"])
                ]
    table = pd.DataFrame(rows, columns=["block", "sex", "age", "n"])
    table.to_parquet(folder / "table.parquet")
    table[["block"]].drop_duplicates().to_csv(folder / "units.csv", index=False)
    (folder / "run.toml").write_text(TOML.format(mechanism=mechanism, budget=BUDGETS[mechanism]))
    return folder / "run.toml"


def county_totals(public: Path) -> np.ndarray:
    (table,) = public.rglob("total.parquet")
    read = pq.read_table(table).to_pandas()
    return read[read["level"] == "county"]["total"].to_numpy()


@pytest.mark.parametrize("mechanism", list(BUDGETS))
def test_counts_at_the_end_of_a_kind_are_released_as_others(tmp_path: Path, mechanism: str) -> None:
    config = load_config(made(tmp_path, mechanism))
    whole = pipeline.run(config, tmp_path / "whole").public
    apart = county_totals(whole)[::2] - np.array(FITTING)
    assert np.abs(apart).max() < 60
    assert (apart == 0).any()
    for size in (1, 8, 1000):
        there = place_of_the_same_noise(tmp_path, tmp_path / "whole", f"of {size}")
        public = pipeline.run(config, there, part_size=size, executor=AtOnce()).public
        found, expected = counts_of(public), counts_of(whole)
        assert found.keys() == expected.keys()
        assert [name for name in expected if found[name] != expected[name]] == []
        td.verify_release(public)


def test_what_wraps_around_is_never_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same fault in parts and in the whole: numbers that do not fit are cut off, as a narrow integer cuts them."""
    path = made(tmp_path, "discrete-gaussian")
    in_parts, in_whole = measure_piece._added, LevelBounds.sample
    monkeypatch.setattr(measure_piece, "_added", lambda *of: in_parts(*of).astype(np.int16))
    monkeypatch.setattr(LevelBounds, "sample", lambda *of: in_whole(*of).astype(np.int16))
    with pytest.raises(InternalError, match="a measured value is further from its count than its noise can be"):
        pipeline.run(load_config(path), tmp_path / "parts", part_size=8, executor=AtOnce())
    assert topdown_command("run", path, "--output", tmp_path / "whole") == 70
    said = capfd.readouterr().err
    assert "nothing was released, please report it" in said
    assert not any(str(edge) in said for edge in FITTING)
    for name in ("parts", "whole"):
        assert not (tmp_path / name / "public").exists()
