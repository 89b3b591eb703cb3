"""The study of a table with several attributes: what is followed, the groups, the page, limits, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from topdown.config import load_study
from topdown.errors import ConfigError, CountsError
from topdown.machine.progress import Silent
from topdown.pipeline.study import study
from topdown.studies.report.groupings import SIZE_OF_PLACE

HEAD = """
[input]
path = "table.csv"
geoid = "county"
cells = ["f_0", "f_1", "f_2", "m_0", "m_1", "m_2"]
[geography]
widths = { state = 2, county = 4 }
root_level = "us"
[schema]
sex = ["f", "m"]
age = ["0", "1", "2"]
[recodes.age]
minor = { y = ["0"], n = ["1", "2"] }
[privacy]
mechanism = "discrete-gaussian"
rho = "1/20"
[privacy.shares]
us = { total = 0.1, detailed = 0.1 }
state = { total = 0.1, sex = 0.1, "sex * age" = 0.1 }
county = { minor = 0.1, "sex * age" = 0.4 }
"""
STUDY = """
[study]
replicates = 20
methods = ["raw", "gls", "gls-top-down", "gls-top-down/rounded"]
size_classes = [20, 40]
"""


def written(folder: Path, more: str = "", options: str = "") -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{s:02d}{c:02d}," + ",".join(str(n) for n in rng.poisson([2, 8, 1, 2, 9, 0.5]))
        for s in range(3)
        for c in range(2 + 2 * s)
    ]
    (folder / "table.csv").write_text("county,f_0,f_1,f_2,m_0,m_1,m_2\n" + "\n".join(rows) + "\n")
    path = folder / "study.toml"
    path.write_text(HEAD + more + STUDY + options)
    return path


@pytest.mark.system
def test_a_study_of_queries_leaves_errors_by_answer_and_says_who_is_favoured(tmp_path: Path) -> None:
    outcome = study(load_study(written(tmp_path, options='queries = ["total", "sex", "sex * age"]\n')), workers=1)
    errors = pq.read_table(outcome.directory / "errors.parquet").to_pandas()
    pairs = [f"detailed: {s} × {a}" for s in "fm" for a in "012"]
    assert list(dict.fromkeys(errors["cell"])) == ["total", "sex: f", "sex: m", *pairs]
    table = pd.read_csv(tmp_path / "table.csv", dtype={"county": str}).set_index("county")
    truth = errors[(errors["method"] == "gls") & (errors["level"] == "county")].pivot_table(
        index="geoid", columns="cell", values="truth"
    )
    np.testing.assert_array_equal(truth["total"], table.sum(axis=1))
    np.testing.assert_array_equal(truth["sex: m"], table[["m_0", "m_1", "m_2"]].sum(axis=1))
    linear = errors["method"].isin(["raw", "gls"]) & np.isfinite(errors["bias"])
    assert (errors[linear]["predicted_variance"] > 0).all()
    assert errors[~errors["method"].isin(["raw", "gls"])]["predicted_variance"].isna().all()
    page = outcome.report.read_text(encoding="utf-8")
    assert "Who is favoured, by category" in page
    assert SIZE_OF_PLACE in page

    queries = re.findall(
        r'<td class="t">([^<]*)</td><td class="t">[^<]*</td>(?=<td>[^<]*</td><td>[^<]*</td><td class="t w)', page
    )
    assert queries[0] == "sex"  # the total, which is alone, has nothing to compare
    assert "for a county&#39;s total" in page
    assert sorted(path.name for path in outcome.directory.iterdir()) == [
        "batches.parquet", "coverage.parquet", "densities.parquet", "errors.parquet", "report.html", "rules.parquet",
        "summary.json",
    ]  # fmt: skip
    coverage = pd.read_parquet(outcome.directory / "coverage.parquet")
    assert set(coverage["cell"]) == set(errors["cell"])
    assert {"all", "true count", "published count"} <= set(coverage["by"])
    every = coverage[coverage["by"] == "all"]
    assert (every["covered"] > 0.8).all()
    assert "The intervals that the release would publish" in page


def test_without_a_choice_the_total_and_single_attributes_are_studied(tmp_path: Path) -> None:
    config = load_study(written(tmp_path))
    schema, plan = config.schema_of_cells, config.plan()
    assert config.studied_queries(schema, plan) == ["total", "sex", "minor"]
    plain = HEAD[: HEAD.index("[privacy.shares]")] + "shares = { us = 0.2, state = 0.3, county = 0.5 }\n" + STUDY
    (tmp_path / "plain.toml").write_text(plain)
    config = load_study(tmp_path / "plain.toml")
    assert config.studied_queries(schema, config.plan()) is None


@pytest.mark.system
def test_a_table_of_cells_alone_can_be_studied_by_queries_too(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = HEAD[: HEAD.index("[privacy.shares]")] + "shares = { us = 0.2, state = 0.3, county = 0.5 }\n" + STUDY
    path.write_text(text + 'queries = ["total", "sex"]\n')
    errors = pq.read_table(study(load_study(path), workers=1).directory / "errors.parquet").to_pandas()
    least = errors[(errors["method"] == "gls") & (errors["cell"] == "sex: f")]
    score = (least["variance"] - least["predicted_variance"]) / least["variance_se"]
    assert np.abs(score).max() < 6


def test_too_many_answers_and_unknown_cells_are_refused(tmp_path: Path) -> None:
    config = load_study(written(tmp_path, options='queries = ["total"]\nfund = "sex: f"\n'))
    with pytest.raises(ConfigError, match=r"study.fund names 'sex: f'; there are 'total'"):
        study(config, workers=1)
    wide = HEAD.replace('age = ["0", "1", "2"]', f"age = {[str(k) for k in range(31)]}".replace("'", '"'))
    wide = wide.replace('cells = ["f_0", "f_1", "f_2", "m_0", "m_1", "m_2"]', 'rows = "records"')
    wide = wide.replace('n = ["1", "2"]', f"n = {[str(k) for k in range(1, 31)]}".replace("'", '"'))
    (tmp_path / "wide.toml").write_text(wide + STUDY + 'queries = ["sex * age"]\n')
    config = load_study(tmp_path / "wide.toml")
    with pytest.raises(ConfigError, match=r"has 62 answers, more than the 60 that a report shows"):
        config.studied_queries(config.schema_of_cells, config.plan())


@pytest.mark.system
def test_a_study_keeps_limits_and_refuses_counts_outside_them(tmp_path: Path) -> None:
    path = written(tmp_path, more='[bounds]\npath = "limits.csv"\n', options='queries = ["sex"]\n')
    first = pd.read_csv(tmp_path / "table.csv", dtype={"county": str}).iloc[0]
    women = int(first[["f_0", "f_1", "f_2"]].sum())
    limits = "geoid,query,answer,lower,upper\n{},sex,f,{},{}\n"
    (tmp_path / "limits.csv").write_text(limits.format(first["county"], women, women))
    errors = pq.read_table(study(load_study(path), workers=1).directory / "errors.parquet").to_pandas()
    at = errors[(errors["geoid"] == first["county"]) & (errors["cell"] == "sex: f")].set_index("method")["mse"]
    assert at["gls-top-down/rounded"] == 0
    assert at["gls"] > 0
    (tmp_path / "limits.csv").write_text(limits.format(first["county"], women + 1, women + 2))
    with pytest.raises(CountsError, match="below its lower limit"):
        study(load_study(path), workers=1)


class Said(Silent):
    """Keeps the lines for the user."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_a_study_says_what_it_is_of(tmp_path: Path) -> None:
    said = Said()
    study(load_study(written(tmp_path, options='queries = ["total"]\n')), stages=said, workers=1)
    assert "studies   1 answer to total" in said.lines
