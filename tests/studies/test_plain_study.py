"""The numbers that a study's page prints, against a simulation of the same in plain numpy (`support.plain_study`)."""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support.plain_study import PlainStudy
from topdown.config import load_study
from topdown.pipeline.study import study

REPOSITORY = Path(__file__).parents[2]
TABLE = REPOSITORY / "data" / "us_counties_labor_force_2009.parquet"
STATES = ["Nebraska", "North Dakota", "South Dakota"]
RELEASED = "gls-top-down/rounded"
METHODS = ["raw", "top-down/equality", "top-down", "gls", "gls-top-down", RELEASED]
CELLS, CUTOFF, EDGES = ["employed", "unemployed"], 0.04, [10, 100, 1_000, 10_000, 100_000]
PAGE, PLAIN = 4_000, 20_000
"""Replicates of the study, and of the simulation that it is compared with."""

TOML = f"""
[input]
path = "table.csv"
cells = {json.dumps(CELLS)}
[geography]
levels = ["nation", "state", "county"]
[privacy]
mechanism = "geometric"
epsilon = 0.1
shares = {{ nation = 0.2, state = 0.3, county = 0.5 }}
[projection]
method = "gls-top-down"
[study]
replicates = {PAGE}
seed = 5
methods = {json.dumps(METHODS)}
fund = "unemployed"
thresholds = [{{ cell = "unemployed", among = {json.dumps(CELLS)}, cutoff = {CUTOFF} }}]
groups = ["state_name"]
[output]
directory = "out"
"""


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The counties of three states: 212, with 7 to 260,000 persons in a cell."""
    frame = pd.read_parquet(TABLE)
    return frame[frame["state_name"].isin(STATES)].sort_values("county", ignore_index=True)


@pytest.fixture(scope="module")
def page(table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    here = tmp_path_factory.mktemp("study")
    table.to_csv(here / "table.csv", index=False)
    (here / "study.toml").write_text(TOML)
    return html.unescape(study(load_study(here / "study.toml"), workers=1).report.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def plain(table: pd.DataFrame) -> PlainStudy:
    leaves = table[CELLS].to_numpy().T.astype(float)
    families = table.groupby("state", sort=True).size().tolist()
    return PlainStudy(leaves, families, [0.02, 0.03, 0.05]).run(PLAIN, 77, follow(table))


def groups_of(table: pd.DataFrame) -> dict[tuple[str, str, str], Any]:
    """(grouping, cell or "" for all, group) -> which counties."""
    names = [
        "below 10",
        *(f"{a:,} to {b - 1:,}" for a, b in itertools.pairwise(EDGES)),
        "100,000 and more",
    ]
    found = {}
    for cell, counts in [*((one, table[one]) for one in CELLS), ("", table[CELLS].sum(axis=1))]:
        size = np.searchsorted(EDGES, counts, side="right")
        found |= {("size class", cell, names[k]): np.flatnonzero(size == k) for k in np.unique(size)}
        found |= {("state_name", cell, s): np.flatnonzero(table["state_name"] == s) for s in STATES}
    return found


def follow(table: pd.DataFrame) -> Any:
    """What is added up of the released method beside the errors: by group, of the fund, and of decisions."""
    groups, u = groups_of(table), CELLS.index("unemployed")

    def add(plain: PlainStudy, method: str, x: Any) -> None:
        if method != RELEASED:
            return
        leaves, truth = x[..., plain.level["leaf"]], plain.leaves
        amounts = 1e6 * leaves[:, u] / leaves[:, u].sum(axis=1, keepdims=True)
        money = amounts - 1e6 * truth[u] / truth[u].sum()
        wrong = (leaves[:, u] > CUTOFF * leaves.sum(axis=1)) * 1.0 - (truth[u] > CUTOFF * truth.sum(axis=0))
        for (grouping, cell, group), counties in groups.items():
            if cell:
                error = leaves[:, CELLS.index(cell), counties] - truth[CELLS.index(cell), counties]
                plain.mean("count", grouping, cell, group).add(error.mean(axis=1))
            else:
                plain.mean("paid", grouping, group).add(money[:, counties].sum(axis=1))
                plain.mean("wrong", grouping, group).add(np.abs(wrong[:, counties]).mean(axis=1))
        plain.mean("moved").add(np.abs(money).sum(axis=1) / 2)
        plain.mean("flips").add(np.abs(wrong).sum(axis=1))
        plain.mean("lost").add(np.maximum(-wrong, 0).sum(axis=1))
        plain.mean("gained").add(np.maximum(wrong, 0).sum(axis=1))
        plain.mean("units").add(np.abs(wrong))

    return add


def tables(page: str, section: str) -> list[list[list[str]]]:
    """The tables of a section, as rows of what stands in their cells; the head comes first."""
    part = page[page.index(f'id="{section}"') :]
    part = part[: part.find("<h2 ", 10)]
    found = []
    for one in re.findall(r"<table.*?</table>", part, re.DOTALL):
        rows = re.findall(r"<tr[^>]*>(.*?)</tr>", one, re.DOTALL)
        found.append([[re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[dh].*?</t[dh]>", r)] for r in rows])
    return found


def number(text: str) -> tuple[float, float | None, float]:
    """What is printed as "−1,234.5 ± 6.7 %": the number, half of its interval, and half of a unit of its last digit."""
    plain = text.replace("\u00a0", " ").replace("−", "-").replace(",", "").replace("+", "")
    value, _, half = plain.removesuffix(" %").partition(" ± ")
    digits = len(value.split("e")[0].partition(".")[2]) if "e" not in value else 12
    unit = 10.0**-digits
    return float(value), float(half) if half else None, 0.6 * unit


Check = tuple[str, str, float, float]
"""What is printed: its name, its text, and what the plain simulation has, with the standard error of that."""


def of_levels(page: str, plain: PlainStudy) -> Iterator[Check]:
    level, cell = "", ""
    names = {"county": "leaf", "state": "middle", "nation": "root"}
    for row in tables(page, "overview")[0][1:]:
        level, cell, method = row[0] or level, row[1] or cell, row[2]
        k, here = CELLS.index(cell), names[level]
        mean, square, zeros = (plain.means[method, here, one] for one in ("mean", "square", "zeros"))
        rms = float(np.sqrt(square.value[k]))
        bias = plain.means[method, "nodes"].value[k, plain.level[here]]
        sd = float(np.sqrt(square.value[k] - (bias**2).mean()))
        where = f"{level} {cell} {method}"
        yield f"{where} mean bias", row[3], mean.value[k], mean.error[k]
        yield f"{where} standard deviation", row[6], sd, square.error[k] / (2 * rms)
        yield f"{where} RMSE", row[7], rms, square.error[k] / (2 * rms)
        if method in ("top-down", "gls-top-down", RELEASED):
            yield f"{where} zeros", row[9].removeprefix("< "), 100 * zeros.value[k], 100 * zeros.error[k]


def of_groups(page: str, plain: PlainStudy, table: pd.DataFrame) -> Iterator[Check]:
    for grouping, cell, group, units, mean_count, bias, _ in tables(page, "favoured")[0][1:]:
        found, counties = plain.means["count", grouping, cell, group], groups_of(table)[grouping, cell, group]
        assert int(units) == len(counties)
        yield f"{grouping} {group} mean {cell}", mean_count, table[cell].iloc[counties].mean(), 0.0
        yield f"{grouping} {group} bias of {cell}", bias, found.value, found.error
    for grouping, group, _, due, paid, _ in tables(page, "money")[0][1:]:
        counties, unemployed = groups_of(table)[grouping, "", group], table["unemployed"]
        owed = 1e6 * unemployed.iloc[counties].sum() / unemployed.sum()
        found = plain.means["paid", grouping, group]
        yield f"{grouping} {group} due", due, owed, 0.0
        yield f"{grouping} {group} paid", paid, owed + found.value, found.error


def of_decisions(page: str, plain: PlainStudy) -> Iterator[Check]:
    all_of_them, by_group, *_ = tables(page, "decisions")
    for name, text in zip(("flips", "lost", "gained"), all_of_them[1][2:5], strict=True):
        yield f"decisions {name}", text, plain.means[name,].value, plain.means[name,].error
    for grouping, group, _, wrong, _, _ in by_group[1:]:
        found = plain.means["wrong", grouping, group]
        yield f"{grouping} {group} wrong", wrong, 100 * found.value, 100 * found.error


def of_cards(page: str, plain: PlainStudy) -> Iterator[Check]:
    cards = re.sub("<[^>]*>", "", page[page.index('id="cards"') : page.index("<nav")]).replace("\u00a0", " ")
    worst = re.search(r"Size class “(.*?)” of (\w+): counts are (raised|lowered) by (.*?) persons \((.*?) %\)", cards)
    assert worst is not None
    found = plain.means["count", "size class", worst[2], worst[1]]
    yield "card: bias of the worst group", worst[4], abs(float(found.value)), found.error
    assert (worst[3] == "raised") == (found.value > 0)
    (moved,) = re.findall(r"([0-9.,]+ ± [0-9.,]+) goes elsewhere", cards)
    yield "card: money", moved, plain.means["moved",].value, plain.means["moved",].error
    ((wrong, lost, gained),) = re.findall(r"”: (\S+ ± \S+) of 212 decisions .*? \((\S+) lost, (\S+) gained\)", cards)
    for name, text in (("flips", wrong), ("lost", lost), ("gained", gained)):
        yield f"card: {name}", text, plain.means[name,].value, plain.means[name,].error
    (rmse,) = re.findall(r"root mean squared error of (\S+ ± \S+) for", cards)
    square = plain.means[RELEASED, "leaf", "square"]
    root = float(np.sqrt(square.value.mean()))
    yield "card: RMSE", rmse, root, np.sqrt((square.error**2).sum()) / 2 / (2 * root)
    (noise,) = re.findall(r"than the (\S+) of the noise itself", cards)
    yield "card: noise", noise, float(np.sqrt(plain.variance[-1])), 0.0


@pytest.mark.slow
def test_every_printed_number_is_that_of_a_simulation_in_plain_numpy(
    page: str, plain: PlainStudy, table: pd.DataFrame
) -> None:
    """Some 200 numbers, each within four standard errors (the page's and the plain simulation's together)."""
    checks = [
        *of_levels(page, plain), *of_groups(page, plain, table), *of_decisions(page, plain), *of_cards(page, plain)
    ]  # fmt: skip
    assert len(checks) > 150
    wrong = []
    for name, text, own, error in checks:
        printed, half, rounding = number(text)
        # Where no interval is printed the page's own error is as much larger as it has fewer replicates.
        pages = half / 1.96 if half is not None else error * np.sqrt(PLAIN / PAGE)
        # Of what hardly ever happens the page may have seen none.
        once = 1.0 / PAGE if "zeros" in name or "wrong" in name else 0.0
        if abs(printed - own) > 4.0 * np.hypot(pages, error) + rounding + once:
            wrong.append((name, text, own, error))
    assert wrong == []


@pytest.mark.slow
def test_printed_intervals_are_as_wide_as_the_spread_of_replicates(
    page: str, plain: PlainStudy, table: pd.DataFrame
) -> None:
    compared = 0
    for name, text, _, error in (*of_groups(page, plain, table), *of_levels(page, plain)):
        _, half, rounding = number(text)
        if half is None or "zeros" in name:
            continue
        expected = 1.96 * float(error) * np.sqrt(PLAIN / PAGE)
        assert abs(half - expected) <= 0.15 * expected + 2 * rounding, (name, text, expected)
        compared += 1
    assert compared > 100


@pytest.mark.slow
def test_printed_distances_hold_those_of_a_simulation_in_plain_numpy(page: str, plain: PlainStudy) -> None:
    names, level, cell, compared = {"county": "leaf", "state": "middle", "nation": "root"}, "", "", 0
    found, floor = plain.wasserstein(RELEASED), plain.wasserstein("raw")
    for row in tables(page, "overview")[0][1:]:
        level, cell = row[0] or level, row[1] or cell
        if row[2] != RELEASED:
            continue
        here = CELLS.index(cell), plain.level[names[level]]
        most, too_much = found[here].mean(), floor[here].mean()
        ends = re.findall(r"[0-9.]+", row[8])
        low, high = (0.0, float(ends[0])) if row[8].startswith("at most") else (float(ends[0]), float(ends[1]))
        assert low - 0.01 <= most, (level, cell, row[8], most, too_much)
        assert high + 0.01 >= most - too_much, (level, cell, row[8], most, too_much)
        compared += 1
    assert compared == 6


@pytest.mark.slow
def test_the_chart_of_wrong_decisions_is_that_of_a_simulation_in_plain_numpy(
    page: str, plain: PlainStudy, table: pd.DataFrame
) -> None:
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    chart = json.loads(data[1])["charts"]["distance"]
    points = next(rows for rows in chart["datasets"].values() if rows and "distance" in rows[0])
    assert len(points) == len(table)
    place = {geoid: k for k, geoid in enumerate(table["county"])}
    share = table["unemployed"] / table[CELLS].sum(axis=1)
    for point in points:
        k = place[point["geoid"]]
        assert point["distance"] == pytest.approx(100 * (share.iloc[k] / CUTOFF - 1), rel=1e-3)
        own = float(plain.means["units",].value[k])
        error = np.sqrt(own * (1 - own) * (1 / PAGE + 1 / PLAIN))
        assert abs(point["probability"] - own) <= 4.5 * error + 1 / PAGE, (point, own)
    assert sum(point["probability"] > 0.05 for point in points) > 10


@pytest.mark.slow
def test_the_printed_coverage_is_that_of_intervals_by_the_law_of_least_squares(page: str, plain: PlainStudy) -> None:
    """Of large counts the interval is the estimate give or take a quantile of its error: it misses as often as is
    stated, and a miss of the interval holds the truth all the same where the released number is the truth."""
    rng, held, drawn = np.random.default_rng(3), 0, 6_000
    noise = rng.geometric(1 - plain.alpha, (drawn, len(plain.alpha))) - rng.geometric(
        1 - plain.alpha, (drawn, len(plain.alpha))
    )
    errors = (noise @ plain.least_squares.T)[:, plain.level["leaf"]]
    own = (np.abs(errors[drawn // 2 :]) <= np.quantile(np.abs(errors[: drawn // 2]), 0.9, axis=0)).mean()
    rows = tables(page, "coverage")[0][1:]
    for level, _, by, group, _, covered, _, _ in rows:
        if (level, by) == ("county", "true count") and group in ("1,000 to 9,999", "10,000 to 99,999"):
            value, half, _ = number(covered)
            assert half is not None
            assert abs(value / 100 - own) <= 4 * half / 196 + 0.004, (group, covered, own)
            held += 1
    assert held >= 3
