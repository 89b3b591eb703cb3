"""The report's summary against the table of errors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import topdown as td
from support.reported import METHODS, studied
from topdown.config.study_settings import ToleranceOptions
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report import words
from topdown.studies.report.cards import cards
from topdown.studies.report.page import charts, render
from topdown.studies.report.plain_numbers import rounded
from topdown.studies.report.results import StudyResults
from topdown.studies.report.sections import unit_table
from topdown.studies.report.sections.residuals import residual_rows, shown_units
from topdown.studies.report.summary import summarise


def test_every_number_of_the_overview_comes_from_the_table(study: Mapping[str, Any]) -> None:
    table: ErrorTable = study["table"]
    frame = table.to_frame()
    for row in study["summary"]["overview"]:
        part = frame[(frame.level == row["level"]) & (frame.cell == row["cell"]) & (frame.method == row["method"])]
        assert row["mean_bias"] == pytest.approx(part.bias.mean(), rel=1e-3, abs=1e-12)
        sure = (part.bias.abs() - 1.959964 * part.bias_se).clip(lower=0)
        assert row["largest_bias"] == pytest.approx(part.bias[sure.idxmax()], rel=1e-3)
        assert row["largest_bias_se"] == pytest.approx(part.bias_se[sure.idxmax()], rel=1e-3)
        assert row["units"] == len(part) >= row["biased"]
        assert row["rmse"] == pytest.approx(np.sqrt(part.mse.mean()), rel=1e-3)
        assert row["sd"] == pytest.approx(np.sqrt(part.variance.mean()), rel=1e-3)
        half = 1.96 * np.sqrt((part.wasserstein_se**2).sum()) / len(part)
        low, high = part.wasserstein_corrected.mean() - half, part.wasserstein.mean() + half
        assert row["wasserstein_low"] == pytest.approx(max(low, 0.0), rel=1e-3, abs=1e-9)
        assert row["wasserstein_high"] == pytest.approx(high, rel=1e-3)
        means = table.level_means[row["method"]]
        at = table.geography.levels.index(row["level"]), table.cells.index(row["cell"])
        assert row["mean_bias_se"] == pytest.approx(means["bias_se"][at], rel=1e-3)
        assert row["rmse_se"] == pytest.approx(means["mse_se"][at] / (2 * row["rmse"]), rel=1e-2)
        assert row["zeros_se"] == pytest.approx(means["zeros_se"][at], rel=1e-3)


def test_the_table_of_nodes_is_the_table_of_errors(study: Mapping[str, Any]) -> None:
    table, nodes = study["table"], study["summary"]["nodes"]
    assert nodes["all_rows"] == len(nodes["geoid"]) == table.truth.size
    for method, columns in nodes["methods"].items():
        np.testing.assert_allclose(columns["bias"], table[method, "bias"].reshape(-1), rtol=1e-3)
        np.testing.assert_allclose(columns["rmse"], np.sqrt(table[method, "mse"].reshape(-1)), rtol=1e-3)
        np.testing.assert_allclose(columns["zeros"], table[method, "zeros"].reshape(-1), rtol=1e-3)
    assert nodes["truth"] == table.truth.reshape(-1).tolist()


def test_a_large_table_keeps_the_inner_nodes_and_the_most_biased(
    study: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_table, "_MOST_ROWS", 12)
    nodes = unit_table.node_numbers(study["results"])["nodes"]
    assert len(nodes["geoid"]) == 12
    assert nodes["geoid"][:8] == ["US", "US", "A", "A", "B", "B", "C", "C"]
    leaves = study["table"].geography.tree.leaves
    kept = nodes["methods"]["gls-top-down/rounded"]
    bias, error = (study["table"]["gls-top-down/rounded", name][leaves].reshape(-1) for name in ("bias", "bias_se"))
    sure = np.sort(np.abs(bias) - 1.959964 * error)
    np.testing.assert_allclose(np.sort(np.abs(kept["bias"][8:]) - 1.959964 * kept["bias_se"][8:]), sure[-4:])


def test_the_cards_answer_with_the_summary_s_numbers(study: Mapping[str, Any]) -> None:
    """Of the method that would be released, rounded as it would be, and of no other."""
    summary, released = study["summary"], "gls-top-down/rounded"
    assert summary["primary"] == released
    counts, money, decisions = summary["cards"]
    assert [card["name"] for card in summary["cards"]] == ["Counts", "Money", "Decisions"]
    sentences = [one for card in summary["cards"] for one in (card["headline"], *card["more"])]
    assert all(one.endswith(".") for one in sentences)
    table = study["table"]
    rmse = np.sqrt(table[released, "mse"][table.geography.tree.leaves].mean())
    told = re.match(
        r"Over 3,000 replicates, gls-top-down/rounded has a root mean squared error of (\S+) ± (\S+) ",
        counts["more"][-1],
    )
    assert told is not None
    assert float(told[1]) == pytest.approx(rmse, rel=1e-2)
    assert 0.001 < float(told[2]) / rmse < 0.05
    group = max(
        (g for g in summary["groups"] if g["method"] == released and g["matters"]),
        key=lambda g: (abs(g["bias"]) - 1.96 * g["bias_se"]) / g["mean_truth"],
    )
    verb = "raised" if group["bias"] > 0 else "lowered"
    amount = words.within(abs(group["bias"]), group["bias_se"])
    assert counts["status"] == "matters"
    assert f"“{group['group']}” of {group['cell']}: counts are {verb} by {amount} persons" in counts["headline"]
    moved = next(m for m in summary["funds"][0]["moved"] if m["method"] == released)
    assert f"{words.within(moved['moved'], moved['moved_se'])} goes elsewhere" in money["headline"]
    flips = next(m for m in summary["thresholds"][0]["methods"] if m["method"] == released)
    assert f"{words.within(flips['flips'], flips['flips_se'])} of 17 decisions are wrong" in decisions["headline"]
    for other in set(METHODS) - {released}:
        assert not re.search(rf"(?<![\w-]){other}(?![\w/-])", " ".join(sentences))


def test_what_matters_is_what_the_study_says(study: Mapping[str, Any]) -> None:
    """The same numbers under another tolerance: clear all the same, and small."""
    results: StudyResults = study["results"]
    lenient = ToleranceOptions(bias=10.0, count=1e3, money=1.0, decisions=1.0)
    summary = summarise(dataclasses.replace(results, tolerance=lenient))
    assert {card["status"] for card in summary["cards"]} == {"clear, but small"}
    assert not any(g["matters"] for g in summary["groups"])
    assert any(g["clear"] and g["verdict"].endswith(": clear, but small") for g in summary["groups"])
    strict = summarise(dataclasses.replace(results, tolerance=ToleranceOptions(bias=0, count=0, money=0, decisions=0)))
    assert all(g["matters"] == g["clear"] for g in strict["groups"])


def test_an_effect_that_is_no_part_of_a_person_is_small(study: Mapping[str, Any]) -> None:
    """A bias may be clear and 1 % of a tiny mean count, and yet be nothing: the tolerance in counts holds too."""
    rows = [g for g in study["summary"]["groups"] if g["clear"] and abs(g["bias"]) < 0.1]
    assert not any(g["matters"] for g in rows)


@pytest.mark.parametrize(
    ("biased", "told"),
    [
        ([7, 0, 30], "30 of 50 counties in c; 7 of 50 counties in a"),
        ([7, 8, 30, 1], "30 of 50 counties in c; 8 of 50 counties in b; 7 of 50 counties in a; 1 of 50 counties in d"),
        (
            [7, 8, 30, 1, 7, 0, 9],
            "30 of 50 counties in c; 9 of 50 counties in g; 8 of 50 counties in b; at most 7 in each of 3 others",
        ),
    ],
    ids=["two", "four", "six"],
)
def test_of_many_cells_the_card_names_those_with_most_biased_units(
    biased: list[int], told: str, study: Mapping[str, Any]
) -> None:
    summary, released = study["summary"], "gls-top-down/rounded"
    rows = [
        {"level": "county", "method": released, "cell": cell, "units": 50, "biased": count, "rmse": None}
        for cell, count in zip("abcdefg", biased, strict=False)
    ]
    others = [row for row in summary["overview"] if row["level"] != "county" or row["method"] != released]
    changed = {**summary, "overview": [*others, *rows], "headline": ["a"]}
    counts, *_ = cards(study["table"], released, "gls-top-down", changed)
    assert f"Of single units, {told} have a clear bias." in counts["more"]


def test_other_methods_are_spoken_of_apart_and_by_name(study: Mapping[str, Any]) -> None:
    summary = study["summary"]
    assert [sentence.split(":")[0] for sentence in summary["comparisons"]] == [m for m in METHODS if "rounded" not in m]
    page = render(summary)
    assert (
        page.index(words.unbroken(summary["cards"][1]["headline"]))
        < page.index('id="theory"')
        < page.index("Other methods, which")
    )
    moved = next(m for m in summary["funds"][0]["moved"] if m["method"] == "raw")
    assert words.within(moved["moved"], moved["moved_se"]) in summary["comparisons"][0]


@pytest.mark.parametrize(
    ("methods", "begin"),
    [
        (
            ["raw", "gls-top-down"],
            "The release would be gls-top-down, rounded to whole numbers; this is before rounding.",
        ),
        (
            ["raw", "top-down"],
            "The release would be made by gls-top-down, which was not studied; these findings are about top-down",
        ),
    ],
)
def test_a_study_without_what_would_be_released_says_so(methods: list[str], begin: str) -> None:
    assert studied(methods=methods, replicates=40)["summary"]["cards"][0]["more"][-1].startswith(begin)


def test_a_level_that_was_not_measured_is_spoken_of_so() -> None:
    plan = td.Plan(epsilon=1, shares={"nation": "1/2", "state": "1/2", "county": 0})
    summary = studied(plan=plan, replicates=60)["summary"]
    assert summary["cards"][0]["more"][-1].endswith("for a county's count, which was not measured itself.")
    assert summary["comparisons"][0].startswith("top-down/equality: ")
    page = render(summary)
    assert re.search(r'<td class="t">raw</td><td>–</td><td>–</td>', page)  # of the fund
    assert "not measured" in {g["verdict"] for g in summary["groups"] if g["method"] == "raw"}


def test_exact_counts_have_no_bias_to_speak_of() -> None:
    plan = td.Plan(epsilon=1, invariants=["nation", "county"], shares={"state": 1})
    summary = studied(plan=plan, replicates=60, distances=False)["summary"]
    rows = [r for r in summary["overview"] if r["level"] == "county"]
    assert {r["biased"] for r in rows} == {0}
    assert not any(g["clear"] for g in summary["groups"])
    assert not any(g["clear"] for fund in summary["funds"] for g in fund["groups"])


def test_without_bias_the_card_says_so() -> None:
    found = studied(methods=["raw", "gls"], replicates=400, seed=5)["summary"]
    assert found["primary"] == "gls"
    assert found["cards"][0]["status"] == "no clear effect"
    assert found["cards"][0]["headline"].startswith("No group's counts show a bias")


def test_every_group_has_a_verdict_with_its_uncertainty(study: Mapping[str, Any]) -> None:
    rows = [g for g in study["summary"]["groups"] if g["method"] == "gls-top-down/rounded"]
    assert {g["clear"] for g in rows} == {True, False}
    assert not any(g["matters"] and not g["clear"] for g in rows)
    for g in rows:
        if g["clear"]:
            verb = "raised" if g["bias"] > 0 else "lowered"
            # The verdict is made from all digits, the summary keeps 4.
            assert re.match(rf"counts are {verb} by [0-9.]+ ± [0-9.]+ persons", g["verdict"])
            assert float(g["verdict"].split()[4]) == pytest.approx(abs(g["bias"]), rel=0.05)
        else:
            assert g["verdict"].startswith("no clear bias: if there is one, it is at most ")
            high = max(abs(g["bias_low"]), abs(g["bias_high"]))
            assert float(g["verdict"].split()[-2]) == pytest.approx(high, rel=0.06)
    page = render(study["summary"])
    shown = re.findall(r'<tr( class="primary")?>(?:(?!</tr>).)*<td class="t words">(counts|no clear)', page)
    assert {(True, "counts"), (False, "no clear")} <= {(bool(bold), word) for bold, word in shown}
    assert sum(bool(bold) for bold, _ in shown) == sum(g["matters"] for g in rows)


def test_the_fund_s_groups_have_a_verdict(study: Mapping[str, Any]) -> None:
    rows = [g for g in study["summary"]["funds"][0]["groups"] if g["method"] == "gls-top-down/rounded"]
    assert [g["group"] for g in rows if g["grouping"] == "region"] == ["inland", "<i>coast</i>"]
    assert all(" of each million" in g["verdict"] for g in rows)
    assert sum(g["due"] for g in rows if g["grouping"] == "region") == pytest.approx(1e6, rel=1e-3)
    assert sum(g["paid"] for g in rows if g["grouping"] == "region") == pytest.approx(1e6, rel=1e-3)


def test_no_unit_is_called_at_risk_that_is_never_decided_wrongly(study: Mapping[str, Any]) -> None:
    worst = study["summary"]["thresholds"][0]["worst"]
    assert worst
    assert all(unit["probability"] > 0 for unit in worst)
    plan = td.Plan(epsilon=1, invariants=["nation", "county"], shares={"state": 1})
    page = render(studied(plan=plan, replicates=40, distances=False)["summary"])
    assert "was wrong in any replicate" in page


def test_no_distance_is_negative(study: Mapping[str, Any]) -> None:
    """Where there is no distance its lower end scatters about 0, and the interval says that it may be none."""
    table, summary = study["table"], study["summary"]
    assert (table["raw", "wasserstein_corrected"] < 0).any()
    assert all(r["wasserstein_low"] >= 0 for r in summary["overview"])
    raw = [
        words.distance(r["wasserstein_low"], r["wasserstein_high"]) for r in summary["overview"] if r["method"] == "raw"
    ]
    assert any(said.startswith("at most ") for said in raw)
    assert all(f"<td>{said}</td>" in render(summary) for said in raw)
    short = charts(studied(replicates=60)["summary"])["wasserstein"]
    points = [row for rows in short["datasets"].values() for row in rows if "middle" in row]
    assert all(0 <= row["low"] <= row["middle"] <= row["high"] for row in points)
    assert any(row["low"] == 0 for row in points)


def test_shown_units_are_the_extremes(study: Mapping[str, Any]) -> None:
    table = study["table"]
    units = {why: u for u in shown_units(table, "gls-top-down") for why in u["why"].split(", ")}
    truth = table.truth[table.geography.tree.leaves]
    assert units["smallest"]["truth"] == truth.min()
    assert units["largest"]["truth"] == truth.max()
    leaves = table.geography.tree.leaves
    sure = np.abs(table["gls-top-down", "bias"][leaves]) - 1.959964 * table["gls-top-down", "bias_se"][leaves]
    assert abs(units["most biased"]["bias"]) - 1.959964 * units["most biased"]["bias_se"] == pytest.approx(sure.max())


def test_a_unit_that_is_both_smallest_and_most_biased_is_shown_once(study: Mapping[str, Any]) -> None:
    table = study["table"]
    leaves = table.geography.tree.leaves
    smallest = leaves.start + int(table.truth[leaves, 0].argmin())
    bias = np.zeros(table.truth.shape)
    bias[smallest, 0], bias[-1, 1] = 9.0, 5.0
    changed = {**table.statistics, "top-down": {**table.statistics["top-down"], "bias": bias}}
    units = shown_units(dataclasses.replace(table, statistics=changed), "top-down")
    assert units[0]["why"] == "smallest, most biased"
    assert len({(u["node"], u["cell"]) for u in units}) == len(units)


def test_no_panel_is_empty_where_most_counts_are_0_and_some_have_no_noise(study: Mapping[str, Any]) -> None:
    """As of a redistricting file: an answer without noise of its own has no law, and the median is not another 0."""
    table = study["table"]
    leaves = table.geography.tree.leaves
    truth, noise = table.truth.copy(), table.noise_variances.copy()
    truth[leaves, 0] = [0] * 12 + [4, 5, 6, 7, 8]
    noise[leaves, 1] = np.inf  # y is not measured there
    sparse = dataclasses.replace(table, truth=truth, noise_variance=noise)
    units = shown_units(sparse, "gls-top-down")
    assert {u["cell"] for u in units} == {"x"}
    by_why = {u["why"].split(",")[0]: u["truth"] for u in units}
    assert (by_why["smallest"], by_why["median of those above 0"], by_why["largest"]) == (0, 6, 8)
    unmeasured = dataclasses.replace(table, noise_variance=np.full(noise.shape, np.inf))
    assert len(shown_units(unmeasured, "gls-top-down")) == 4


def test_every_panel_of_residuals_is_as_high_as_its_own_noise(study: Mapping[str, Any]) -> None:
    summary = {**study["summary"]}
    narrow = summary["units"][1]["geoid"], summary["units"][1]["cell"]
    summary["residuals"] = [
        {**row, "residual_from": row["residual_from"] / 50, "residual_to": row["residual_to"] / 50}
        if (row["geoid"], row["cell"]) == narrow else row
        for row in summary["residuals"]
    ]  # fmt: skip
    panels = charts(summary)["residuals"]["concat"]
    tops = [panel["layer"][0]["encoding"]["y"]["scale"]["domain"][1] for panel in panels]
    assert tops[1] > 20 * max(top for k, top in enumerate(tops) if k != 1)


def test_densities_hold_the_replicates_and_the_noise_law(study: Mapping[str, Any]) -> None:
    rows = residual_rows(study["table"], study["plan"], "gls-top-down")
    raw = rows[rows.method == "raw"]
    law = td.noise.DiscreteLaplace(4)
    for _, part in raw.groupby(["geoid", "cell"]):
        assert part["count"].sum() >= 0.99 * 3000
        assert part["noise_share"].sum() == pytest.approx(1.0, abs=0.02)
        # Bins hold [from, to): each integer's probability lies in one of them.
        expected = [
            sum(float(law.pmf(k)) for k in range(int(np.ceil(a)), int(np.ceil(b))))
            for a, b in zip(part["residual_from"], part["residual_to"], strict=True)
        ]
        np.testing.assert_allclose(part["noise_share"], expected, atol=1e-12)
        # The simulation agrees with the law, and would not were it shifted by a bin.
        share, noise = part["share"].to_numpy(), part["noise_share"].to_numpy()
        limit = len(noise) + 8 * np.sqrt(2 * len(noise))
        assert (3000 * (share - noise) ** 2 / noise).sum() < limit
        assert (3000 * (np.roll(share, 1) - noise) ** 2 / noise).sum() > limit


def test_the_wasserstein_curve_is_the_theory(study: Mapping[str, Any]) -> None:
    curve = study["summary"]["wasserstein"]
    assert curve["lattice"] is True
    for point in curve["theory"]:
        exact = td.theory.wasserstein_to_noise(point["family_size"], 4.0, law="geometric")
        assert point["distance"] == pytest.approx(exact, rel=1e-3)


def test_numbers_are_rounded_and_what_is_not_finite_is_none() -> None:
    given = {"a": np.float64(1.23456), "b": [np.nan, np.inf, np.int64(123456)], "c": np.array([True]), "d": "x"}
    assert rounded(given) == {"a": 1.235, "b": [None, None, 123456], "c": [True], "d": "x"}


def test_words() -> None:
    assert [words.number(x) for x in (None, 0.0, -1234.6, 0.0001234, 12.345)] == [
        "–",
        "0",
        "−1,235",
        "1.2e-04".replace("-", "−"),
        "12.3",
    ]
    assert [words.many(n, one) for n, one in ((1, "county"), (2, "county"), (1200, "state"), (2, "day"))] == [
        "1 county", "2 counties", "1,200 states", "2 days",
    ]  # fmt: skip
    assert [words.percent(x) for x in (0.5, 0.00001, None, 0.0)] == ["50 %", "< 0.01 %", "–", "0 %"]
    assert words.signed(2.0) == "+2"
    assert [words.many_of(one) for one in ("fips", "county")] == ["fips", "counties"]
    long = "black / (" + " + ".join(f"cell {k}" for k in range(40)) + ") above 0.5"
    assert words.shortened(long) == "black / (cell 0 + cell 1 + cell 2 + cel…+ cell 39) above 0.5"
    assert len(words.shortened(long)) <= 60
    assert words.shortened("x above 10") == "x above 10"
    assert words.unbroken("6.0 ± 1.0 persons (12 %)") == "6.0\u00a0±\u00a01.0 persons (12\u00a0%)"


def test_a_large_number_keeps_the_digits_that_its_interval_leaves() -> None:
    found = rounded({"paid": 255763.4, "paid_se": 37.2193, "small": 12.34567, "none": float("nan"), "far": -1e20})
    assert found == {"paid": 255763.0, "paid_se": 37.22, "small": 12.35, "none": None, "far": -1e20}
    assert words.within(found["paid"], found["paid_se"]) == "255,763 ± 73"  # not 255,800


def test_words_with_an_interval() -> None:
    assert words.within(12.3456, 0.2) == "12.35 ± 0.39"
    assert words.within(27.98, 0.019) == "27.98 ± 0.04"  # no more digits than the summary has
    assert words.within(12345.0, 600.0) == "12,345 ± 1,176"
    assert words.within(0.0, 0.5) == "0.00 ± 0.98"
    assert [words.within(x, 1e-13) for x in (3e-11, 2.0)] == ["0", "2"]  # what float64 leaves of an exact number
    assert [words.within(x, e) for x, e in ((None, 1.0), (2.0, None), (2.0, 0.0), (2.0, float("nan")))] == [
        "–",
        "2",
        "2",
        "2",
    ]
    assert words.signed_within(2.0, 0.5) == "+2.00 ± 0.98"
    assert words.signed_within(3e-13, 1e-13) == "0"
    assert [words.signed_within(x, 0.0046) for x in (-0.00002, 0.00002)] == ["0.0000 ± 0.0090", "0.0000 ± 0.0090"]
    assert words.percent_within(0.25, 0.01) == "25.0 ± 2.0 %"
    assert [words.distance(*ends) for ends in ((3.81, 4.148), (0.0, 0.12), (None, None))] == [
        "3.81 to 4.15",
        "at most 0.12",
        "–",
    ]
