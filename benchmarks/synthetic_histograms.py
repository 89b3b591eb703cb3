"""A synthetic nation of histograms: persons by residence, voting age, Hispanic origin and race in every block.

Blocks are those of `synthetic`, with as many persons. Every tract has its own mixture of origins and races around the
nation's, which has a heavy tail of rare combinations, so that a block has about seven cells of 2,016 that are not 0, a
third of the blocks none at all. Three blocks of a hundred have a group quarter of one kind. The same on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from synthetic import BLOCKS, EMPTY, POPULATION, STATES, block_codes, geoids

from topdown.workload.redistricting import PERSONS, RACES

WIDTHS = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 15}

QUARTERED = 0.03
"""Part of the blocks that have a group quarter."""
_QUARTERS = np.array([0.24, 0.005, 0.19, 0.006, 0.35, 0.04, 0.169])
"""Of group quarters those of each kind, correctional facilities first."""
_ADULT = np.array([1.0, 0.03, 1.0, 0.6, 0.985, 0.995, 0.85])
"""Part of those who live in each that may vote."""
_QUARTERS_SIZE = (2.7, 1.2)
"""Mean and deviation of the logarithm of their sizes."""

_HISPANIC = 0.187
_ALONE = {False: [0.71, 0.148, 0.0083, 0.073, 0.0023, 0.0063], True: [0.205, 0.019, 0.024, 0.0043, 0.0011, 0.42]}
"""Parts of the six races alone, of those who are not Hispanic and those who are; the rest is of two or more."""
_TAIL = 1.7
"""The k-th most frequent combination of races is k to this power as rare as the first."""
_LIKE_THE_NATION = 32.0
"""How near tracts are to the nation: the sum of the parameters of their Dirichlet law."""
_ADULTS = 0.779

_SEED = 2020_04_01
_PERSONS_AT_ONCE = 1 << 22
_ROWS_PER_GROUP = 1 << 19

Ints = npt.NDArray[np.int64]


def blocks_of(blocks: int = BLOCKS, states: int = STATES) -> Ints:
    """GEOIDs as whole numbers of the first ``states`` of a nation of so many ``blocks``."""
    codes = block_codes(np.random.Generator(np.random.PCG64(_SEED)), blocks)
    return codes[codes // 10**13 <= states]


def write_nation(folder: Path, blocks: int = BLOCKS, states: int = STATES) -> dict[str, int]:
    """Long rows (geoid, four attributes, count) in ``folder``/records, a Parquet file a state in the order of GEOIDs,
    and every block in ``folder``/units.parquet. Returns numbers of blocks, rows and persons."""
    (folder / "records").mkdir(parents=True, exist_ok=True)
    codes = blocks_of(blocks, states)
    pq.write_table(pa.table({"geoid": geoids(codes)}), folder / "units.parquet", row_group_size=1 << 20)
    told = {"blocks": len(codes), "rows": 0, "persons": 0}
    for state in range(1, states + 1):
        first, stop = np.searchsorted(codes, [state * 10**13, (state + 1) * 10**13])
        rng = np.random.Generator(np.random.PCG64([_SEED, state]))
        path = folder / "records" / f"{state:02d}.parquet"
        with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
            for rows in _rows(codes[first:stop], rng):
                writer.write_table(rows, row_group_size=_ROWS_PER_GROUP)
                told["rows"] += rows.num_rows
                told["persons"] += int(np.sum(rows["count"].to_numpy()))
    return told


def write_nation_of(folder: Path, blocks: int, cells: int) -> dict[str, int]:
    """As `write_nation`, the same persons by the attributes that make so many ``cells``: 8 are kinds of residence, 252
    voting age, origin and race."""
    kept = {8: ["hhgq"], 252: ["votingage", "hispanic", "cenrace"]}[cells]
    told = write_nation(folder, blocks)
    told["rows"] = 0
    for path in sorted((folder / "records").glob("*.parquet")):
        table = pq.read_table(path).group_by(["geoid", *kept], use_threads=False).aggregate([("count", "sum")])
        table = table.rename_columns(["count" if name == "count_sum" else name for name in table.column_names])
        pq.write_table(table.sort_by("geoid"), path)
        told["rows"] += table.num_rows
    return told


_SCHEMA = pa.schema(
    [
        ("geoid", pa.string()),
        *((attribute.name, pa.dictionary(pa.int8(), pa.string())) for attribute in PERSONS.attributes),
        ("count", pa.int32()),
    ]
)


def _rows(codes: Ints, rng: np.random.Generator) -> Iterator[pa.Table]:
    """The long rows of a state's blocks, some blocks at a time."""
    populated = rng.random(len(codes)) >= EMPTY
    # With the mean of a nation's occupied blocks, whatever a state's chance.
    mean = POPULATION / BLOCKS / (1 - EMPTY)
    quarters = _quarters(len(codes), rng)
    mean -= quarters.mean() / (1 - EMPTY)
    size = np.where(populated, rng.lognormal(np.log(mean) - 1.1**2 / 2, 1.1, len(codes)), 0.0)
    size = np.floor(size + rng.random(len(codes))).astype(np.int64) * populated
    kind = np.where(quarters > 0, 1 + rng.choice(len(_QUARTERS), len(codes), p=_QUARTERS / _QUARTERS.sum()), 0)
    tracts, tract = np.unique(codes // 10_000, return_inverse=True)
    mixture = np.cumsum(_mixtures(len(tracts), rng), axis=1)
    bounds = np.searchsorted(np.cumsum(size), np.arange(0, size.sum() + _PERSONS_AT_ONCE, _PERSONS_AT_ONCE), "right")
    bounds = np.unique([0, *bounds, len(codes)])
    for first, stop in itertools.pairwise(bounds):
        some = slice(int(first), int(stop))
        at_home = np.repeat(np.arange(stop - first), size[some])
        in_quarters = np.repeat(np.arange(stop - first), quarters[some])
        block = np.concatenate([at_home, in_quarters])
        residence = np.concatenate([np.zeros(len(at_home), np.int64), kind[some][in_quarters]])
        adult = rng.random(len(block)) < np.concatenate([[_ADULTS], _ADULT])[residence]
        both = _drawn(mixture, tract[some][block], rng)
        key = ((block * PERSONS.shape[0] + residence) * 2 + adult) * (2 * len(RACES)) + both
        places, times = np.unique(key, return_counts=True)
        yield _table(codes[some], places, times)


def _quarters(blocks: int, rng: np.random.Generator) -> Ints:
    """How many live in every block's group quarter."""
    size = 1 + np.floor(rng.lognormal(*_QUARTERS_SIZE, blocks)).astype(np.int64)
    return np.where(rng.random(blocks) < QUARTERED, size, 0)


def _mixtures(tracts: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Of every tract the parts of 2 x 63 origins and races, rows that add up to 1."""
    parts = []
    for hispanic, alone in _ALONE.items():
        several = np.arange(1, len(RACES) - 5) ** -_TAIL
        races = np.concatenate([alone, several * (1 - sum(alone)) / several.sum()])
        parts.append(races * (_HISPANIC if hispanic else 1 - _HISPANIC))
    weight = rng.gamma(_LIKE_THE_NATION * np.concatenate(parts), size=(tracts, 2 * len(RACES))) + 1e-12
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _drawn(mixture: npt.NDArray[np.float64], tract: Ints, rng: np.random.Generator) -> Ints:
    """Of every person, who lives in ``tract``, the number of origin and race; ``mixture`` cumulated."""
    n = mixture.shape[1]
    ladder = (mixture + np.arange(len(mixture))[:, None]).reshape(-1)
    found = np.searchsorted(ladder, tract + rng.random(len(tract)), "right") - tract * n
    return np.asarray(np.clip(found, 0, n - 1), np.int64)


def _table(codes: Ints, places: Ints, times: Ints) -> pa.Table:
    block, cell = np.divmod(places, PERSONS.n_cells)
    columns: dict[str, pa.Array] = {"geoid": geoids(codes[block])}
    for attribute, place in zip(PERSONS.attributes, np.unravel_index(cell, PERSONS.shape), strict=True):
        number = pa.array(place.astype(np.int8))
        columns[attribute.name] = pa.DictionaryArray.from_arrays(number, pa.array(attribute.categories))
    return pa.table({**columns, "count": pa.array(times.astype(np.int32))}, _SCHEMA)
