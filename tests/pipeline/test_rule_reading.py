"""Rules of a study from its TOML file: columns, areas, presets, and what is refused before anything is simulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from support.command import topdown_command
from topdown.cli.schema_command import answers_of
from topdown.config import load_study
from topdown.errors import ConfigError, TopdownError
from topdown.pipeline.study import study

TABLE = pd.DataFrame(
    {
        "nation": "US",
        "state": ["A"] * 3 + ["B"] * 3,
        "county": [f"{k:02d}" for k in range(6)],
        "children": [9, 60, 300, 800, 20, 7000],
        "others": [90, 600, 1200, 1000, 100, 60000],
    }
)
HEAD = """
[input]
path = "counts.csv"
cells = ["children", "others"]
[geography]
levels = ["nation", "state", "county"]
[privacy]
epsilon = 1
[study]
replicates = 40
"""


def written(folder: Path, rules: str) -> Path:
    TABLE.to_csv(folder / "counts.csv", index=False)
    pd.DataFrame({"county": TABLE["county"], "spending": 9000.0, "national_spending": 10000.0, "prior": 10.0}).to_csv(
        folder / "prices.csv", index=False
    )
    pd.DataFrame({"county": TABLE["county"], "district": ["x", "y"] * 3}).to_csv(folder / "areas.csv", index=False)
    path = folder / "study.toml"
    path.write_text(HEAD + rules + '\n[output]\ndirectory = "out"\n')
    return path


def made(folder: Path, rules: str) -> dict[str, Any]:
    outcome = study(load_study(written(folder, rules)))
    decided = pd.read_parquet(outcome.directory / "rules.parquet")
    page = outcome.report.read_text(encoding="utf-8")
    return {"rules": decided, "page": page, "summary": json.loads((outcome.directory / "summary.json").read_text())}


def truth(found: dict[str, Any], rule: str) -> dict[str, float]:
    rows = found["rules"]
    rows = rows[(rows["rule"] == rule) & (rows["method"] == rows["method"].iloc[0])]
    return dict(zip(rows["geoid"], rows["truth"], strict=True))


def test_a_study_follows_rules_of_every_kind_and_shows_them(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        """
[[study.rules]]
name = "concentrated"
eligible = "children >= 10 and children > 0.15 * school_age"
sums = { school_age = ["children", "others"] }
[[study.rules]]
name = "paid"
amount = "0.4 * spending * children"
columns = "prices.csv"
floor = { column = "prior", share = 0.85 }
total = 1_000_000
[[study.rules]]
name = "largest part"
figure = "highest(children) / nation(children)"
areas = "areas.csv"
[[study.rules]]
preset = "seats"
seats = 9
level = "state"
sums = { population = ["others"] }
""",
    )
    assert truth(found, "concentrated") == {"00": 0, "01": 0, "02": 1, "03": 1, "04": 1, "05": 0}
    paid = truth(found, "paid")
    assert paid["05"] == pytest.approx(7000 / TABLE["children"].sum(), rel=0.01)
    assert sum(paid.values()) == pytest.approx(1)
    assert truth(found, "largest part") == dict.fromkeys(["x", "y"], pytest.approx(7860 / 8189))
    assert sum(truth(found, "seats").values()) == 9
    for text in ("A fund of one million: paid", "concentrated", "largest part", "seats"):
        assert text in found["page"]
    assert [one["rule"] for one in found["summary"]["thresholds"]] == ["concentrated"]


def test_the_preset_of_title_1_holds_harmless(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        """
[[study.rules]]
preset = "title-1"
columns = "prices.csv"
total = 100_000
sums = { school_age = ["others"] }
""",
    )
    assert set(found["rules"]["rule"]) >= {"Title I, basic", "Title I, concentration", "Title I, targeted"}
    assert truth(found, "Title I, basic")["00"] == 0  # nine children


@pytest.mark.parametrize("of", ['areas = "areas.csv"', 'level = "state"'])
def test_rules_above_the_lowest_level_have_their_place_in_the_report(of: str, tmp_path: Path) -> None:
    asked = {
        "paid": 'amount = "children"\neligible = "children > 100"',
        "many": 'eligible = "children > 1000"',
        "part": 'figure = "children / nation(children)"',
        "five": 'figure = "5"',
    }
    rules = 'groups = ["state"]\n' + "".join(f'[[study.rules]]\nname = "{k}"\n{v}\n{of}\n' for k, v in asked.items())
    rules += f"""
[[study.rules]]
preset = "title-1"
{of}
sums = {{ school_age = ["others"] }}
columns = "prices_above.csv"
total = 100_000
"""
    prices = {"spending": 9000.0, "national_spending": 10000.0, "prior": 10.0}
    pd.DataFrame({"unit": ["x", "y", "A", "B"], **prices}).to_csv(tmp_path / "prices_above.csv", index=False)
    found = made(tmp_path, rules)
    assert sum(truth(found, "paid").values()) == pytest.approx(1)
    assert list(truth(found, "five").values()) == [5, 5]
    whole = {one["rule"]: one for one in found["summary"]["funds"]}
    assert {"paid", "Title I, basic", "Title I, concentration", "Title I, targeted"} < set(whole)
    assert (whole["paid"]["units"], whole["paid"]["groups"]) == (2, [])  # groups are of the lowest level's units
    assert 0 < whole["paid"]["moved"][0]["moved"] < 1e6
    section = found["page"].split("A fund of one million: paid")[1].split("<h3>")[0]
    assert "data-pick" not in section
    assert "no groups" in section


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ('[[study.rules]]\nname = "r"\neligible = "kids > 3"', "asks for 'kids'"),
        ('[[study.rules]]\nname = "r"\neligible = "children > "', "cannot be read"),
        ('[[study.rules]]\nname = "r"\neligible = "exec(children)"', "unknown function"),
        ('[[study.rules]]\nname = "r"\namount = "[1, 2, 3]"', "only brackets"),
        ('[[study.rules]]\neligible = "children > 3"', "give the rule a name"),
        ('[[study.rules]]\npreset = "title-9"', "unknown preset"),
        ('[[study.rules]]\npreset = "title-1"', "the preset needs"),
        ('[[study.rules]]\nname = "r"\nfigure = "children"\nlevel = "tract"', "unknown level 'tract'"),
        ('[[study.rules]]\nname = "r"\nfigure = "children"\nareas = "none.csv"', "none.csv"),
        ('[[study.rules]]\nname = "r"\nfigure = "children"\ncolumns = "counts.csv"', "has no row for '00'"),
        (
            '[[study.rules]]\nname = "r"\namount = "children"\nfloor = "prior"\ncolumns = "prices.csv"',
            "a column 'total'",
        ),
        ('[[study.rules]]\nname = "r"\namount = "children"\nfloor = { column = "prior" }', "write an expression"),
        ('[[study.rules]]\nname = "r"\nfigure = "children"\nseats = 4', "of the preset"),
        ('[[study.rules]]\nname = "r"\nfigure = "s"\nsums = { s = ["kids"] }', "names 'kids'"),
        ('[[study.rules]]\nname = "r"\nfigure = "children"\n[[study.rules]]\nname = "r"\nfigure = "others"', "twice"),
        ('[[study.thresholds]]\ncell = "kids"\ncutoff = 3', "names 'kids'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(rules: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, rules)
    with pytest.raises(TopdownError, match=said):
        study(load_study(path))
    assert not (tmp_path / "out" / "internal").exists()


QUERIES = """
[input]
path = "long.csv"
rows = "long"
geoid = "county"
count = "n"
[geography]
levels = ["nation", "county"]
[schema]
race = ["black", "other"]
age = ["minor", "18+"]
[privacy]
mechanism = "discrete-gaussian"
rho = 1
[privacy.shares.nation]
total = "1/2"
[privacy.shares.county]
"race * age" = "1/2"
[study]
replicates = 30
queries = ["race * age", "race"]
"""


def test_answers_are_listed_and_typed_without_a_special_sign(tmp_path: Path, capsys: Any) -> None:
    rows = [
        {"nation": "US", "county": c, "race": r, "age": a, "n": 40 + k}
        for k, (c, r, a) in enumerate((c, r, a) for c in "AB" for r in ("black", "other") for a in ("minor", "18+"))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "long.csv", index=False)
    path = tmp_path / "study.toml"
    rule = '[[study.rules]]\nname = "share"\neligible = "`black * 18+` > 0.4 * `race: black`"\n'
    threshold = '[[study.thresholds]]\ncell = "black * 18+"\ncutoff = 30\n'
    path.write_text(QUERIES + 'fund = "black * 18+"\n' + threshold + rule)
    assert answers_of(path) == (
        *(f"detailed: {r} × {a}" for r in ("black", "other") for a in ("minor", "18+")),
        "race: black",
        "race: other",
    )
    assert topdown_command("schema", "--answers", str(path)) == 0
    assert "detailed: black × 18+" in capsys.readouterr().out
    outcome = study(load_study(path))
    decided = set(pd.read_parquet(outcome.directory / "rules.parquet")["rule"])
    assert {"share of detailed: black × 18+", "detailed: black × 18+ above 30", "share"} <= decided
    path.write_text(QUERIES + 'fund = "purple * 18+"\n')
    with pytest.raises(ConfigError, match=r"purple.*topdown schema --answers"):
        study(load_study(path))
