"""`[projection] order` from file to manifest: what is settled first is said, and refused before anything is drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.parted import TOML, made
from topdown.config import load_config
from topdown.errors import ConfigError
from topdown.pipeline import run as pipeline

NOISY = TOML.replace('invariants = { nation = ["total"] }\n', "").replace(
    '[privacy.shares.nation]\ndetailed = "1/10"', '[privacy.shares.nation]\ntotal = "1/20"\ndetailed = "1/20"'
)


def order_of(folder: Path, text: str, part_size: int | None = None) -> object:
    folder.mkdir()
    public = pipeline.run(load_config(made(folder, text)), part_size=part_size).public
    return json.loads((public / "manifest.json").read_text())["projections"]["non_negative"].get("order")


def test_the_manifest_says_what_was_settled_first(tmp_path: Path) -> None:
    alone = "\n[projection]\ncross_check = false\n"
    assert order_of(tmp_path / "usual", NOISY + alone) == {"nation": ["total"]}
    assert order_of(tmp_path / "parts", NOISY + alone, 20) == {"nation": ["total"]}
    assert order_of(tmp_path / "exact", TOML + alone) is None
    assert order_of(tmp_path / "at once", NOISY + alone + "order = []\n") is None
    by_level = NOISY + "\n[projection]\norder = { county = ['total', 'age * race'] }\n"
    assert order_of(tmp_path / "by level", by_level) == {"county": ["total", "age * race"]}


@pytest.mark.parametrize("order", ["['totl']", "['race']", "['total', 'total']", "{ region = ['total'] }"])
def test_what_makes_no_sense_is_refused_before_anything_is_drawn(tmp_path: Path, order: str) -> None:
    config = load_config(made(tmp_path, NOISY + f"\n[projection]\norder = {order}\n"))
    with pytest.raises(ConfigError, match=r"order|query"):
        pipeline.run(config)
    assert not list(tmp_path.rglob("key"))
