"""The scripts that redo the pMSE paper, at a small size: what they write, and that they go on where they stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from support.places import REPOSITORY

pytestmark = pytest.mark.system

RESULTS = REPOSITORY / "docs" / "results"


def run(name: str, folder: Path, *options: str) -> str:
    """What a script prints, with its results and figures in ``folder``."""
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(REPOSITORY / "pipelines" / "paper" / f"{name}.py"), "--records", "400", *options]
    command += ["--results", str(folder), "--figures", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_table_1_and_figure_1(tmp_path: Path) -> None:
    printed = run("pmse_table_1", tmp_path, "--repeats", "1000")
    assert "1,000 pairs of neighbours, n = 400" in printed
    (kept,) = tmp_path.glob("pmse_table_1-*.parquet")
    rows = pd.read_parquet(kept)
    assert rows.groupby(["depth", "cp"])["pairs"].sum().eq(1000).all()
    stumps = rows[rows["depth"] == 1]
    assert (stumps["beyond_exact"] == 0).all()
    assert 0 < stumps["largest"].max() <= 1 / (2 * 401) * (1 + 1e-9)
    assert rows[rows["depth"] == 30]["largest"].max() > 1 / 400
    assert len(rows["changes"].dropna().iloc[0]) == 1000
    assert (tmp_path / "pmse_figure_1.png").stat().st_size > 5000


def test_table_2_goes_on_where_it_was(tmp_path: Path) -> None:
    walks = ["--steps", "12", "--walks", "1", "--kinds", "steps", "near"]
    first = run("pmse_table_2", tmp_path, "--repeats", "2", "--choices", "1", "--candidates", "20", *walks)
    (kept,) = tmp_path.glob("pmse_table_2-*.parquet")
    two = pd.read_parquet(kept)
    run("pmse_table_2", tmp_path, "--repeats", "3")
    three = pd.read_parquet(kept)
    pd.testing.assert_frame_equal(three.iloc[: len(two)].reset_index(drop=True), two)
    assert set(three["repeat"]) == {0, 1, 2}
    assert "largest R-hat" in first
    assert len(list(tmp_path.glob("pmse_walk_*.parquet"))) == 6


def test_figures_2_and_4(tmp_path: Path) -> None:
    run("pmse_figure_2", tmp_path, "--repeats", "2", "--steps", "12", "--kinds", "steps", "--depth", "1", "30")
    for name in ("pmse_figure_2", "pmse_figure_4"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_the_columns_that_do_not_come_out(tmp_path: Path) -> None:
    printed = run("pmse_table_2_columns", tmp_path, "--repeats", "2")
    assert "Laplace noise on the counts" in printed


def test_the_page_s_table_1_is_that_of_the_kept_pairs() -> None:
    (kept,) = RESULTS.glob("pmse_table_1-*.parquet")
    (smallest,) = RESULTS.glob("pmse_table_1_leaf_1-*.parquet")
    sums = pd.read_parquet(kept).groupby(["depth", "cp"])[["pairs", "beyond_paper"]].sum()
    page = (REPOSITORY / "docs" / "pmse.md").read_text(encoding="utf-8")
    assert f"{sums['pairs'].min():,} pairs of neighbours" in page
    for depth, name in ((2, "2"), (5, "5"), (30, "unlimited")):
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} | "))
        for cp in (0.01, 0.001):
            one = sums.loc[(depth, cp)]
            assert f"{100 * one['beyond_paper'] / one['pairs']:.3f} %" in row
    leaves = pd.read_parquet(smallest).groupby(["depth", "cp"])[["pairs", "beyond_paper"]].sum()
    assert (leaves["pairs"] == 100_000).all()
    for depth in (5, 30):
        assert f"{100 * leaves.loc[(depth, 0.001), 'beyond_paper'] / 100_000:.3f} ±" in page
