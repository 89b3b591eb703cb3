"""No two inputs share noise: not by two configurations that differ in what they count, and not by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.parted import TOML, AtOnce, counts_of, made, place_of_the_same_noise
from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config
from topdown.errors import ConfigError
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.pipeline.input import reading
from topdown.pipeline.parts import part_steps

COUNTIES = [f"{state:02}{county:03}" for state in range(1, 6) for county in range(1, 13)]
CHEAP = "\n[projection]\ncross_check = false\n"

Noise = dict[Any, np.ndarray]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Noise]:
    """The noise of every release that is made, whole or by its parts, by what it was added to."""
    found: list[Noise] = []
    measure, measure_piece = draw.measure, part_steps.measure_piece

    def whole(counts: td.Counts, *arguments: Any, **options: Any) -> Any:
        measurements = measure(counts, *arguments, **options)
        found.append({})
        for level, query in measurements.keys:
            exact = counts.answers(td.Query.parse(query, counts.schema), counts.geography.level_slice(level))
            found[-1][level, query] = of_measured(measurements[level, query].values, exact)
        return measurements

    def piece(entries: Any, tree: Any, *arguments: Any) -> Any:
        measured, places = measure_piece(entries, tree, *arguments), arguments[3]
        for k, place in places.items():
            rows, cells, counts = entries.part(tree.level(k))
            for query, (values, variance) in measured[k].items():
                exact, drawn = query.sparse_answers(rows, cells, counts, len(values)), np.isfinite(variance)
                found[-1][place.level, place.first, query.name] = of_measured(values[drawn], exact[drawn])
        return measured

    def run(*arguments: Any, **options: Any) -> Any:
        if options.get("part_size"):
            found.append({})
        return made_by(*arguments, **options)

    made_by = pipeline.run
    monkeypatch.setattr(draw, "measure", whole)
    monkeypatch.setattr(part_steps, "measure_piece", piece)
    monkeypatch.setattr(pipeline, "run", run)
    return found


def of_measured(values: Any, exact: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float64) - np.asarray(exact)


def require_independent(one: Noise, two: Noise) -> None:
    """What was added is not the same, and neither is a part of it."""
    assert one.keys() == two.keys()
    pairs = np.concatenate([np.stack([one[name].ravel(), two[name].ravel()]) for name in one], axis=1)
    assert pairs.shape[1] > 60
    assert abs(np.corrcoef(pairs)[0, 1]) < 6 / np.sqrt(pairs.shape[1])
    assert (pairs[0] == pairs[1]).mean() < 0.5
    for name in one:
        if one[name].size > 30:
            assert len(np.unique(one[name] - two[name])) > 3, name


def people(rows: str) -> pd.DataFrame:
    """Counties with a column x and another y, which call the categories of the same people the other way round."""
    table = pd.DataFrame({"county": np.repeat(COUNTIES, 2)})
    table["x"], table["y"] = ["a", "b"] * len(COUNTIES), ["b", "a"] * len(COUNTIES)
    table["n"] = np.random.default_rng(5).integers(1, 100, len(table))
    return table if rows == "long" else table.loc[table.index.repeat(table["n"])].drop(columns="n")


@pytest.mark.parametrize("rows", ["records", "long"])
def test_two_configurations_that_differ_in_their_schema(tmp_path: Path, rows: str, drawn: list[Noise]) -> None:
    """The cells alone are measured, and called the same; the schema says of which column they are."""
    people(rows).to_csv(tmp_path / "table.csv", index=False)
    text = RUN_TOML.replace('cells = ["adults", "children"]', f'rows = "{rows}"\n' + 'count = "n"\n' * (rows == "long"))
    configs = {}
    for column in "xy":
        (tmp_path / "run.toml").write_text(f'{text}{CHEAP}[schema]\n{column} = ["a", "b"]\n')
        configs[column] = load_config(tmp_path / "run.toml")
    pipeline.run(configs["x"], tmp_path / "x", workers=1)
    with pytest.raises(ConfigError, match="holds noise that was drawn under another configuration"):
        pipeline.run(configs["y"], tmp_path / "x", workers=1)
    pipeline.run(configs["y"], place_of_the_same_noise(tmp_path, tmp_path / "x", "y"), workers=1)
    require_independent(*drawn)


def releases(folder: Path, name: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A release, and another of a changed table under the same secret, fingerprint and digest."""
    if name == "parts":
        config, table, cells = made(folder, TOML + CHEAP), folder / "table.parquet", "n"
        frame = pd.read_parquet(table)
    else:
        text = (RUN_TOML if name == "cells alone" else SEVERAL_TOML).replace("epsilon = 1.0", "epsilon = 0.5")
        config, table, cells = folder / "run.toml", folder / "table.csv", "adults"
        config.write_text(text + CHEAP)
        rng = np.random.default_rng(6)
        frame = pd.DataFrame({"county": COUNTIES})
        frame["adults"], frame["children"] = (rng.integers(1, 100, len(frame)) for _ in range(2))
    monkeypatch.setattr(reading, "input_digest", lambda _: "0" * 64)
    for number in range(2):
        if number:
            frame = change(frame, cells)
        frame.to_parquet(table) if table.suffix == ".parquet" else frame.to_csv(table, index=False)
        there = folder / "0" if not number else place_of_the_same_noise(folder, folder / "0", "1")
        options = {"part_size": 8, "executor": AtOnce()} if name == "parts" else {"workers": 1}
        yield pipeline.run(load_config(config), there, **options).public


@pytest.mark.parametrize("name", ["cells alone", "several queries", "parts"])
def test_one_count_more_with_every_digest_held_fixed(
    tmp_path: Path, name: str, drawn: list[Noise], monkeypatch: pytest.MonkeyPatch
) -> None:
    def more(frame: pd.DataFrame, cells: str) -> pd.DataFrame:
        frame.loc[3, cells] += 1
        return frame

    for _ in releases(tmp_path, name, more, monkeypatch):
        pass
    require_independent(*drawn)


@pytest.mark.parametrize("name", ["cells alone", "several queries", "parts"])
def test_rows_in_another_order_with_every_digest_held_fixed(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def permuted(frame: pd.DataFrame, _: str) -> pd.DataFrame:
        return frame.sample(frac=1, random_state=1)

    one, two = (counts_of(public) for public in releases(tmp_path, name, permuted, monkeypatch))
    assert one == two
