"""Plans that nobody thought of: random queries, shares, budgets and exact answers all end in a verified release.

Nothing may fail after the noise is drawn, whatever the plan, so that each of these runs a whole release of real data.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.places import REPOSITORY, SMALL_DATA, Command
from topdown.workload import redistricting
from topdown.workload.schema import MOST_CELLS

pytestmark = pytest.mark.slow

LEVELS = ("state", "county", "tract", "block group", "block")
QUERIES = (
    "total",
    "hhgq",
    "votingage",
    "hispanic",
    "cenrace",
    "hhgq * votingage",
    "votingage * hispanic",
    "hispanic * cenrace",
    "votingage * cenrace",
    "votingage * hispanic * cenrace",
)
EXACT: tuple[dict[str, list[str]], ...] = (
    {},
    {"state": ["total"]},
    {"state": ["hhgq"]},
    {"block": ["hhgq"]},
    {"block": ["total"]},
    {"state": ["total"], "tract": ["total"]},
    {"state": ["votingage"], "block": ["total"]},
)
PERSONS = ("total", "relationship", "hispanic", "race", "hispanic * race", "relationship * race")
HOUSEHOLDS = ("total", "size", "type", "hhispanic", "hrace", "size * type", "hhispanic * hrace")
JOBS = ("total", "position", "sex", "pay", "sex * pay", "position * pay")
FIRMS = ("total", "sector", "size", "training", "sector * size", "msex")


def _table(name: str, settings: dict[str, object]) -> str:
    """A section of a TOML file."""
    return f"[{name}]\n" + "".join(f"{json.dumps(key)} = {_value(value)}\n" for key, value in settings.items())


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_value(own)}" for key, own in value.items()) + " }"
    return json.dumps(value)


def _source(name: str) -> str:
    """A pipeline's file, that can be read from any folder."""
    return (REPOSITORY / "pipelines" / f"{name}.toml").read_text("utf-8").replace('"../data/small', f'"{SMALL_DATA}')


def _released(topdown: Command, text: str, folder: Path, *options: str) -> None:
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    found = topdown("run", folder / "plan.toml", "--output", folder / "release", "--quiet", *options)
    assert found.returncode == 0, found.stderr
    assert topdown("verify", folder / "release" / "public").returncode == 0


@pytest.mark.parametrize("seed", range(24))
def test_histograms(seed: int, tmp_path: Path, topdown: Command) -> None:
    rng = random.Random(seed)
    exact = rng.choice(EXACT)
    shares: dict[str, dict[str, int]] = {}
    for level in LEVELS:
        known = set(exact.get(level, ())) | {"total"} if level in exact else set()
        asked = [one for one in rng.sample(QUERIES, rng.randint(1, 4)) if one not in known]
        asked += ["detailed"] if not asked or rng.random() < 0.85 else []
        shares[level] = {query: rng.choice([1, 1, 2, 5, 20]) for query in asked}
    whole = sum(sum(of.values()) for of in shares.values())
    projection: dict[str, object] = {"method": rng.choice(["top-down", "gls-top-down"])}
    if rng.random() < 0.3:
        projection["weights"] = "uniform"
    source = _source("pl94_rhode_island")
    text = source[: source.index("[privacy]")]
    schema = {one.name: list(one.categories) for one in redistricting.PERSONS.attributes}
    text += _table("schema", schema) + _table(
        "privacy",
        {
            "mechanism": rng.choice(["discrete-gaussian", "gaussian"]),
            "rho": f"{10 ** rng.uniform(-3, 0):.6f}",
            "only_child": rng.choice(["measure", "move-up"]),
            "invariants": exact,
            "shares": {level: {query: f"{part}/{whole}" for query, part in of.items()} for level, of in shares.items()},
        },
    )
    if exact.get("state") != ["votingage"] and rng.random() < 0.5:
        text += source[source.index("[bounds]") : source.index("[output]")]
    text += _table("projection", projection) + _table("output", {"tables": ["hhgq", "hispanic * cenrace"]})
    _released(topdown, text, tmp_path, *rng.choice([(), ("--part-size", "100")]))


@pytest.mark.parametrize("seed", range(12))
def test_two_linked_tables(seed: int, tmp_path: Path, topdown: Command) -> None:
    rng = random.Random(seed)
    name, of_persons, of_households = rng.choice(
        [
            ("persons_and_households_small", ("persons", PERSONS), ("households", HOUSEHOLDS)),
            ("firms_and_jobs", ("jobs", JOBS), ("firms", FIRMS)),
        ]
    )
    part = rng.choice([1, 10, 500, 999])
    text = re.sub(r'rho = "[^"]*"', f'rho = "{10 ** rng.uniform(-3, 1):.6f}"', _source(name))
    text = re.sub(
        "shares = .*",
        f'shares = {{ {of_persons[0]} = "{part}/1000", {of_households[0]} = "{1000 - part}/1000" }}',
        text,
    )
    for table, queries in (of_persons, of_households):
        asked = [*rng.sample(queries, rng.randint(1, 4)), "detailed"]
        text = re.sub(rf'^{table} = \["total".*$', f"{table} = {json.dumps(asked)}", text, flags=re.MULTILINE)
    text = text.replace('method = "top-down"', f'method = "{rng.choice(["top-down", "gls-top-down"])}"')
    _released(topdown, text, tmp_path)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", [*range(8), 30])
def test_more_cells_than_tables_hold(seed: int, tied: bool, tmp_path: Path, topdown: Command) -> None:
    """Made-up persons in 103 real blocks; the cells may be measured much less precisely than other queries. A second
    release is tied to one of some attributes."""
    rng, draws, sizes = random.Random(seed), np.random.default_rng(seed), [0]
    while not MOST_CELLS < np.prod(sizes) < 4 * MOST_CELLS:
        sizes = [rng.choice([2, 2, 3, 4, 6, 8, 10, 24, 42, 63, 116]) for _ in range(rng.randint(3, 6))]
    names = [f"attribute {number}" for number in range(len(sizes))]
    blocks = pd.read_csv(SMALL_DATA / "ri_block_race_2010.csv", dtype=str)["GEOID"]
    inhabitants = np.minimum(draws.zipf(1.5, len(blocks)), rng.choice([30, 300, 3000]))
    persons = pd.DataFrame({"block": np.repeat(blocks, inhabitants)})
    for name, size in zip(names, sizes, strict=True):
        persons[name] = draws.choice(size, len(persons), p=draws.dirichlet(np.full(size, rng.choice([0.3, 3])))).astype(
            str
        )
    persons.to_parquet(tmp_path / "persons.parquet")
    blocks.to_frame("block").to_csv(tmp_path / "blocks.csv", index=False)
    shares = {}
    for level in ("state", "tract", "block"):
        asked = {" * ".join(rng.sample(names, rng.randint(1, 2))) for _ in range(rng.randint(0, 3))}
        distinct = {frozenset(one.split(" * ")): one for one in sorted(asked)}
        shares[level] = {one: rng.choice([1, 1, 20, 200]) for one in [*distinct.values(), "total", "detailed"]}
    whole = sum(sum(of.values()) for of in shares.values())
    every = {name: [str(k) for k in range(size)] for name, size in zip(names, sizes, strict=True)}
    units = _table("input", {"path": str(tmp_path / "persons.parquet"), "rows": "records", "geoid": "block"})
    units += _table(
        "geography",
        {"root_level": "state", "widths": {"tract": 11, "block": 15}, "units": str(tmp_path / "blocks.csv")},
    )
    privacy: dict[str, object] = rng.choice(
        [
            {"mechanism": "discrete-gaussian", "rho": f"{10 ** rng.uniform(-0.5, 0.5):.6f}"},
            {"mechanism": "geometric", "epsilon": f"{10 ** rng.uniform(0.3, 0.7):.6f}"},
        ]
    )
    parts = {level: {query: f"{part}/{whole}" for query, part in of.items()} for level, of in shares.items()}
    text = _table("privacy", {**privacy, "shares": parts})
    text = units + _table("schema", every) + text + _table("projection", {"method": "top-down"})
    if tied:
        kept = sorted(rng.sample(names, rng.randint(1, 2)))
        first = units + _table("schema", {name: every[name] for name in kept})
        first += _table("privacy", {"mechanism": "discrete-gaussian", "rho": f"{10 ** rng.uniform(-1, 1):.6f}"})
        (tmp_path / "first").mkdir()
        _released(topdown, first + _table("output", {"margins": False}), tmp_path / "first")
        text += _table("ties", {"release": str(tmp_path / "first" / "release" / "public")})
    _released(topdown, text + _table("output", {"margins": False}), tmp_path)
