"""Synthetic nations of any size, the same on every machine: blocks with GEOIDs of 15 digits, log-normal counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

STATES = 51
COUNTIES = 3_143
TRACTS = 84_414
BLOCK_GROUPS = 239_780
BLOCKS = 8_132_968
POPULATION = 331_449_281
EMPTY = 0.3
"""Part of the blocks without a person."""

WIDTHS = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 15}

_SEED = 2020_04_01

Ints = npt.NDArray[np.int64]


def split(rng: np.random.Generator, total: int, parts: int, limit: int) -> Ints:
    """``parts`` whole numbers from 1 to ``limit`` with log-normal sizes that add up to ``total``."""
    weight = rng.lognormal(0.0, 0.8, parts)
    sizes = np.minimum(1 + np.floor((total - parts) * weight / weight.sum()).astype(np.int64), limit)
    while (left := total - int(sizes.sum())) > 0:
        room = np.flatnonzero(sizes < limit)
        sizes[room[:left]] += 1
    return sizes


def _numbered(sizes: Ints, start: int = 1) -> Ints:
    """start, start + 1, ... within every family."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + start


def nation(blocks: int = BLOCKS, cells: int = 1) -> pa.Table:
    """Blocks with their GEOIDs and counts; fewer ``blocks`` than the real number give a nation in proportion.

    ``cells`` columns of counts, "population" where there is one, else "cell 1", ...; every one of them has its own
    empty blocks. The real number of blocks and one cell have the real total of 331,449,281.
    """
    rng = np.random.Generator(np.random.PCG64(_SEED))
    block = block_codes(rng, blocks)
    titles = ["population"] if cells == 1 else [f"cell {k + 1}" for k in range(cells)]
    total = round(POPULATION * blocks / BLOCKS)
    return pa.table({"geoid": geoids(block), **{title: counts_of(rng, blocks, total) for title in titles}})


def block_codes(rng: np.random.Generator, blocks: int = BLOCKS) -> Ints:
    """The blocks' GEOIDs as whole numbers, in rising order."""
    scale = blocks / BLOCKS
    levels = [STATES] + [max(STATES, round(n * scale)) for n in (COUNTIES, TRACTS, BLOCK_GROUPS)] + [blocks]
    levels = [int(n) for n in np.maximum.accumulate(levels)]
    limits = (999 // 2, 9_999, 9, 999)
    sizes = [split(rng, n, m, limit) for m, n, limit in zip(levels[:-1], levels[1:], limits, strict=True)]
    state = np.repeat(np.arange(1, STATES + 1), sizes[0])
    county = state * 1_000 + 2 * _numbered(sizes[0]) - 1
    tract = np.repeat(county, sizes[1]) * 1_000_000 + _numbered(sizes[1]) * 100
    group = np.repeat(tract, sizes[2]) * 10 + _numbered(sizes[2])
    return np.repeat(group, sizes[3]) * 1_000 + _numbered(sizes[3], 0)


def geoids(codes: Ints) -> pa.Array:
    """Codes as strings of 15 digits, without a Python object for any of them."""
    characters = np.empty((len(codes), 15), np.uint8)
    rest = codes
    for place in range(14, -1, -1):
        rest, digit = np.divmod(rest, 10)
        characters[:, place] = digit + ord("0")
    offsets = (np.arange(len(codes) + 1) * 15).astype(np.int32)
    return pa.StringArray.from_buffers(len(codes), pa.py_buffer(offsets), pa.py_buffer(characters))


def counts_of(rng: np.random.Generator, blocks: int, total: int) -> Ints:
    size = np.where(rng.random(blocks) < EMPTY, 0.0, rng.lognormal(3.0, 1.1, blocks))
    counts = np.floor(size * (total / size.sum())).astype(np.int64)
    populated = np.flatnonzero(size > 0)
    np.add.at(counts, rng.choice(populated, total - int(counts.sum())), 1)
    return counts


def write(path: Path, blocks: int = BLOCKS, cells: int = 1) -> None:
    """`nation` as Parquet at ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(nation(blocks, cells), path, row_group_size=1 << 20, compression="zstd")
