"""Noisy measurement files of a tiny state, made from the description of the layout alone, by nothing of topdown's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

LEVELS = ("State", "County", "Tract", "Block_Group", "Block")
LENGTHS = dict(zip(LEVELS, (3, 9, 10, 12, 28), strict=True))

BLOCKS = tuple(
    group + geocode16
    for group, geocode16 in (
        ("044100011101", "4400101010011000"),
        ("044100011101", "4400101010011001"),
        ("044100011102", "4400101010022000"),
        ("044100011201", "4400102010011000"),
        ("044100011201", "4400102010022000"),
        ("044100031101", "4400302010011002"),
        ("044100031101", "4400302010011003"),
        ("144100031101", "4400302010011000"),
        ("144100031101", "4400302010011001"),
    )
)
"""A part outside of AIAN areas, with a tract of two block groups, and one inside, with single children down to the
block group; the tract 44003020100 lies in both, the blocks inside first by GEOID."""

SHAPE = (8, 2, 2, 63)
AXES = ("hhgq", "votingage", "hispanic", "cenrace")

QUERIES: dict[str, tuple[str, str, str, str]] = {
    "total": ("*", "*", "*", "*"),
    "cenrace": ("*", "*", "*", "cenrace"),
    "hispanic": ("*", "*", "hispanic", "*"),
    "votingage": ("*", "votingage", "*", "*"),
    "hhinstlevels": ("hhinstlevels", "*", "*", "*"),
    "hhgq": ("hhgq", "*", "*", "*"),
    "hispanic * cenrace": ("*", "*", "hispanic", "cenrace"),
    "votingage * cenrace": ("*", "votingage", "*", "cenrace"),
    "votingage * hispanic": ("*", "votingage", "hispanic", "*"),
    "votingage * hispanic * cenrace": ("*", "votingage", "hispanic", "cenrace"),
    "detailed": ("detailed", "detailed", "detailed", "detailed"),
}

SIGMA: dict[str, tuple[float, ...]] = {
    "total": (1.10, 2.17, 2.47, 1.75, 89.24),
    "cenrace": (27.57, 38.34, 34.59, 41.77, 66.51),
    "hispanic": (27.57, 38.34, 43.76, 41.77, 89.24),
    "votingage": (27.57, 38.34, 43.76, 41.77, 89.24),
    "hhinstlevels": (27.57, 38.34, 43.76, 41.77, 89.24),
    "hhgq": (27.57, 38.34, 43.76, 41.77, 89.24),
    "hispanic * cenrace": (19.50, 22.91, 2.23, 2.23, 43.54),
    "votingage * cenrace": (19.50, 22.91, 21.88, 24.11, 43.54),
    "votingage * hispanic": (27.57, 38.34, 43.76, 41.77, 89.24),
    "votingage * hispanic * cenrace": (11.58, 12.06, 11.95, 14.77, 23.68),
    "detailed": (4.45, 4.42, 4.46, 2.02, 3.18),
}
"""Standard deviations of the production run, rounded to two digits."""

Rows = dict[str, list[Any]]
Variance = Callable[[str, str, str], float]
"""The variance of a level's query at a unit."""


def rounded_production(level: str, query: str, code: str) -> float:
    """The variance of the table `SIGMA`."""
    del code
    return SIGMA[query][LEVELS.index(level)] ** 2


def truth() -> dict[str, np.ndarray]:
    """Persons of every block, (8, 2, 2, 63)."""
    rng = np.random.default_rng(4)
    found = {}
    for code in BLOCKS:
        table = np.zeros(SHAPE, np.int64)
        table[0, :, :, :3] = rng.poisson(4, (2, 2, 3))
        found[code] = table
    found[BLOCKS[3]][5, 1, 0, 0] = 30  # A college.
    found[BLOCKS[6]][:] = 0
    return found


def units(level: str) -> list[str]:
    """The codes of a level's units."""
    return sorted({code[: LENGTHS[level]] for code in BLOCKS})


def is_only_child(level: str, code: str) -> bool:
    """Whether a unit is its parent's only child."""
    if level == "State":
        return False
    above = code[: LENGTHS[LEVELS[LEVELS.index(level) - 1]]]
    return len([one for one in units(level) if one.startswith(above)]) == 1


def answers(table: np.ndarray, query: str) -> np.ndarray:
    """What is asked for of a table (8, 2, 2, 63)."""
    if query == "detailed":
        return table
    if query == "hhinstlevels":
        by_kind = table.sum(axis=(1, 2, 3))
        return np.array([by_kind[0], by_kind[1:5].sum(), by_kind[5:].sum()]).reshape(3, 1, 1, 1)
    kept = [name in query.split(" * ") for name in AXES]
    return table.sum(axis=tuple(k for k, keep in enumerate(kept) if not keep), keepdims=True)


def measured(level: str, part: str, variance: Variance, rng: np.random.Generator, bypass: bool = True) -> Rows:
    """The rows of a partition of measurements: the queries of every unit that is no only child."""
    tables = truth()
    rows: Rows = {name: [] for name in ("geocode", "query_name", *AXES, "query_shape", "value", "variance")}
    for code in units(level):
        if code[:3] != part or (bypass and is_only_child(level, code)):
            continue
        table = sum((one for block, one in tables.items() if block.startswith(code)), np.zeros(SHAPE, np.int64))
        for query, axes in QUERIES.items():
            own = answers(table, query)
            spread = variance(level, query, code)
            rows["geocode"].append(code)
            rows["query_name"].append(f"{query}_dpq")
            for name, said in zip(AXES, axes, strict=True):
                rows[name].append(said)
            rows["query_shape"].append(list(own.shape))
            rows["value"].append(np.rint(own + rng.normal(0, spread**0.5, own.shape)).astype(int).ravel().tolist())
            rows["variance"].append(spread)
    return rows


def constrained(level: str, part: str) -> Rows:
    """The rows of a partition of constraints: persons of every kind of residence between the facilities and 99,999
    times as many, and no minor in a nursing facility."""
    tables = truth()
    rows: Rows = {name: [] for name in ("geocode", "query_name", *AXES, "query_shape", "value", "variance", "sign")}
    for code in units(level):
        if code[:3] != part:
            continue
        there = [(one.sum(axis=(1, 2, 3)) > 0).astype(int) for block, one in tables.items() if block.startswith(code)]
        facilities = np.sum(there, axis=0)
        least = facilities.copy()
        least[0] = 0
        for name, sign, first, second, value in (
            ("hhgq_total_lb_con", ">=", "hhgq", "*", least.tolist()),
            ("hhgq_total_ub_con", "<=", "hhgq", "*", (99_999 * facilities).tolist()),
            ("nurse_nva_0_con", "=", "gqNursingTotal", "nonvoting", [0]),
        ):
            rows["geocode"].append(code)
            rows["query_name"].append(name)
            for axis, said in zip(AXES, (first, second, "*", "*"), strict=True):
                rows[axis].append(said)
            rows["query_shape"].append([len(value), 1, 1, 1])
            rows["value"].append(value)
            rows["variance"].append(0.0)
            rows["sign"].append(sign)
    return rows


def write(path: Path, rows: Mapping[str, list[Any]], whole: pa.DataType | None = None) -> None:
    """A partition's file, whose whole numbers are of the type ``whole``."""
    whole = whole or pa.int64()
    kinds = {"query_shape": pa.list_(pa.int32()), "value": pa.list_(whole), "variance": pa.float32()}
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: pa.array(rows[name], kinds.get(name, pa.string())) for name in rows})
    pq.write_table(table, path)


def place(root: Path, level: str, kind: str, part: str = "044") -> Path:
    """The file of a partition."""
    top = root / "US_Person_PL_PROD" / f"{level}.parquet" / kind
    return top / f"State={part}" / "part-00000-c000.snappy.parquet"


def make(root: Path, variance: Variance = rounded_production, seed: int = 1, bypass: bool = True) -> Path:
    """The files of both parts of the state under ``root``, which is returned: widths of whole numbers and the column of
    signs as they come."""
    rng = np.random.default_rng(seed)
    for number, level in enumerate(LEVELS):
        for part in ("044", "144"):
            rows = measured(level, part, variance, rng, bypass)
            if number % 2:
                rows["sign"] = [None] * len(rows["geocode"])
            if rows["geocode"]:
                write(place(root, level, "DPQuery", part), rows, pa.int32() if number % 2 else pa.int64())
            write(place(root, level, "Constraint", part), constrained(level, part))
    return root


def rows_of(path: Path) -> pd.DataFrame:
    """A partition's file as a frame."""
    return pq.ParquetFile(path).read().to_pandas()


def change(path: Path, how: Callable[[Rows], Rows | None]) -> None:
    """Write a partition's file again, changed: ``how`` changes its columns, or gives others."""
    table = pq.ParquetFile(path).read()
    rows: Rows = {name: table[name].to_pylist() for name in table.column_names}
    write(path, how(rows) or rows)
