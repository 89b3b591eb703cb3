"""README.md of a release: two pages in plain words, a number read aloud, in four languages."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config
from topdown.errors import ConfigError
from topdown.pipeline import run as pipeline
from topdown.release.readme import LANGUAGES

CATALOGUE = """
[catalogue]
publisher = "Office of *Counts*"
contact = "counts@example.org"
date = "2027-01-31"
period = "2020"
"""
LINES_OF_TWO_PAGES, SIGNS_OF_TWO_PAGES = 90, 6000


def readme(folder: Path, text: str) -> tuple[str, Path]:
    (folder / "run.toml").write_text(text)
    public = pipeline.run(load_config(folder / "run.toml")).public
    return (public / "README.md").read_text(encoding="utf-8"), public


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_number_is_read_with_its_interval(toy_run: Path, language: str) -> None:
    text, public = readme(toy_run.parent, RUN_TOML + f'[output]\nlanguage = "{language}"\nconfidence = 0.95\n')
    release = pd.read_csv(public / "release.csv", dtype={"geoid": str})
    row = release[(release["level"] == "state") & (release["value"] > 0)].iloc[0]
    (sentence,) = re.findall(r"^> .*", text, re.MULTILINE)
    assert re.findall(r"\*\*([^*]+)\*\*", sentence) == [str(int(row[name])) for name in ("value", "lower", "upper")]
    assert "95 %" in sentence
    assert sentence.startswith(f"> {row['geoid']}, {row['cell']}")
    assert text.count("\n") < LINES_OF_TWO_PAGES
    assert len(text) < SIGNS_OF_TWO_PAGES
    assert text.count("\n## ") == 5
    assert text.count(LANGUAGES[language].not_stated) == 7


def test_large_numbers_have_the_marks_of_the_language(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.assign(adults=[1_000_000] * 3).to_csv(tmp_path / "table.csv", index=False)
    for language, mark in (("en", ","), ("fr", "\u202f"), ("es", "."), ("pt", ".")):
        text, public = readme(tmp_path, RUN_TOML + f'[output]\nlanguage = "{language}"\n')
        value = pd.read_csv(public / "release.csv").loc[2, "value"]
        assert f"**{value:,}**".replace(",", mark) in text
        (tmp_path / "output").rename(tmp_path / language)


def test_what_is_known_is_told_and_what_is_not_is_said(toy_run: Path) -> None:
    text, _ = readme(toy_run.parent, RUN_TOML + CATALOGUE)
    assert "| Publisher | Office of \\*Counts\\* |" in text
    assert "| Published on | 2027-01-31 |" in text
    assert "| Questions to | counts@example.org |" in text
    assert "| Licence | not stated |" in text
    assert "epsilon = 1;" in text


def test_of_several_queries_a_number_of_a_table_is_read(toy_run: Path) -> None:
    text, public = readme(toy_run.parent, SEVERAL_TOML + '[output]\ntables = ["age"]\n')
    table = pd.read_parquet(public / "tables" / "age_estimates.parquet")
    row = table[(table["level"] == "state") & (table["value"] > 0)].iloc[0]
    assert f"**{row['value']}**" in text
    assert f"**{int(row['lower'])}** and **{int(row['upper'])}**" in text
    assert "| `tables/` | tables with a row per unit: age |" in text


def test_without_margins_none_is_read(toy_run: Path) -> None:
    text, _ = readme(toy_run.parent, RUN_TOML + "[output]\nmargins = false\n")
    assert "no margin of error is stated beside it" in text
    assert "confidence" not in text


def test_an_unknown_language_and_a_day_that_is_none_are_refused(toy_run: Path) -> None:
    for more, words in (('[output]\nlanguage = "de"\n', "output.language"), ('[catalogue]\ndate = "2027"\n', "a day")):
        toy_run.write_text(RUN_TOML + more)
        with pytest.raises(ConfigError, match=words):
            load_config(toy_run)


def test_every_language_says_the_same() -> None:
    for words in LANGUAGES.values():
        assert words.about.keys() == LANGUAGES["en"].about.keys()
        assert words.what.keys() == LANGUAGES["en"].what.keys()
        for name, text in vars(LANGUAGES["en"]).items():
            if isinstance(text, str):
                assert set(re.findall(r"\{\w+\}", getattr(words, name))) == set(re.findall(r"\{\w+\}", text)), name
