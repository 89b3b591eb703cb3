"""DHC persons on supports: ``python benchmarks/dhc_persons.py BLOCKS [tied] [facilities] [states=8] [COUNTY ...]``;
their records for `pipelines/dhc_persons.toml`: ``python benchmarks/dhc_persons.py make BLOCKS RECORDS [COUNTY ...]``.

BLOCKS is a table of Rhode Island's blocks as `data/small/ri_block_race_2010.csv` has it; only blocks whose code begins
with one of the COUNTY codes ("44001") are taken, all where none is given. Persons are made up from a public seed: of
every block the numbers by race, Hispanic origin and voting age are kept, everything else describes nobody. Measured
with the variances of the preset dhc-2020-us-persons at the state, county, tract subset (as tract), block group and
block, solved from the root down, whole; with "tied" every unit keeps the 2,016 cells of the redistricting file, which
are taken from the made-up persons as if they had been published, and with "facilities" every block has group quarters
of those of the 24 kinds alone that it has, one to three of them. With "states" there are so many such states, with
other persons in the same blocks, below a nation. Prints time and memory, what was drawn, certificates, and errors by
level.
"""

from __future__ import annotations

import csv
import gzip
import io
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import topdown as td
from topdown.confidential.entries import Entries
from topdown.confidential.measure_asked import AskedMeasurements, split_counts
from topdown.noise import KeyedSource
from topdown.noise.key import NoiseKey
from topdown.privacy.presets import preset
from topdown.projection.histograms.open_answers import KnownAnswers
from topdown.projection.histograms.support_descent import OnSupports, SupportDescent, Tied, descend_on_supports
from topdown.projection.limits import OpenAnswers
from topdown.projection.rounding_method import rounding_named
from topdown.workload import Query
from topdown.workload.dhc import DHC_PERSONS, REDISTRICTING

SEED = 2020_04_01
LEVELS = {"county": 5, "tract": 11, "block group": 12, "block": 15}
PRESET_LEVELS = {"tract": "tract subset"}
SHOWN = ("total", "sex * age_38_groups", "hispanic * cenrace", "popSehsdTargetsRelship", "relgq")

_COLUMNS = ("white", "black", "aian", "asian", "nhpi", "other", "two", "hisp")
_HISPANIC_RACES = (0.36, 0.075, 0.015, 0.005, 0.002, 0.463, 0.08)
_QUARTERS, _MOST_KINDS = 0.03, 3
"""Part of the persons of 18 and over in group quarters, in one block of ten; and how many kinds of these it has at
most."""

_ADULTS = (0, 1, 2, 3, 6, 9, 10, 14, 15, 17)
_OF_ADULTS = (0.17, 0.28, 0.27, 0.06, 0.09, 0.02, 0.02, 0.03, 0.03, 0.03)
_CHILDREN = (6, 7, 8, 11, 14, 16, 17)
_OF_CHILDREN = (0.82, 0.02, 0.03, 0.08, 0.03, 0.01, 0.01)


def read(path: Path, counties: list[str]) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The codes of blocks, and persons by race (blocks x 8): minors, and those of 18 and over."""
    raw = path.read_bytes()
    text = gzip.decompress(raw).decode() if path.suffix == ".gz" else raw.decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if not counties or row["GEOID"][:5] in counties]
    everybody, adults = (
        np.array([[int(row[f"{of}_{name}"]) for name in _COLUMNS] for row in rows]) for of in ("pop", "vap")
    )
    return [row["GEOID"] for row in rows], everybody - adults, adults


def cells_of(minors: npt.NDArray[np.int64], adults: npt.NDArray[np.int64]) -> Any:
    """The block and the cell of every person; and of every block the kinds of group quarters that it may have (blocks x
    3, with repetitions), and whether it has any."""
    rng = np.random.default_rng(SEED)
    n_blocks = len(minors)
    some = rng.random(n_blocks) < 0.1
    kinds = np.repeat(rng.choice(np.arange(18, 42), n_blocks)[:, None], _MOST_KINDS, axis=1)
    # In half of the blocks with several kinds these are next to each other, and mostly of one class.
    others = rng.random((n_blocks, _MOST_KINDS)) < 0.3
    near = np.where(rng.random((n_blocks, 1)) < 0.5, kinds + np.arange(_MOST_KINDS), rng.integers(18, 42, kinds.shape))
    kinds[:, 1:] = np.where(others, np.minimum(near, 41), kinds)[:, 1:]
    blocks, cells = [], []
    for is_adult, table in ((False, minors), (True, adults)):
        block, column = (np.repeat(one.ravel(), table.ravel()) for one in np.indices(table.shape))
        n = len(block)
        hispanic = column == 7
        race = np.where(hispanic, rng.choice(7, n, p=_HISPANIC_RACES), column)
        # Two or more: mostly two races, the first of them White or Black.
        two = 6 + np.minimum(rng.geometric(0.25, n) - 1, 56)
        race = np.where(race == 6, two, race)
        sex = rng.integers(0, 2, n)
        if is_adult:
            age = np.minimum(18 + np.floor(62 * rng.beta(1, 1.25, n) + 22 * rng.random(n) ** 3), 115).astype(np.int64)
            relation = rng.choice(_ADULTS, n, p=_OF_ADULTS)
            inside = some[block] & (rng.random(n) < 10 * _QUARTERS)
            relation = np.where(inside, kinds[block, rng.integers(0, _MOST_KINDS, n)], relation)
        else:
            age = rng.integers(0, 18, n)
            relation = rng.choice(_CHILDREN, n, p=_OF_CHILDREN)
        cell = np.ravel_multi_index((relation, sex, age, hispanic.astype(np.int64), race), DHC_PERSONS.shape)
        # Who would be in an impossible cell is some other relative.
        wrong = DHC_PERSONS.excluded(cell)
        cell[wrong] = np.ravel_multi_index(
            (np.full(wrong.sum(), 14), sex[wrong], age[wrong], hispanic[wrong].astype(np.int64), race[wrong]),
            DHC_PERSONS.shape,
        )
        blocks.append(block)
        cells.append(cell)
    return np.concatenate(blocks), np.concatenate(cells), np.where(some[:, None], kinds, -1)


def facilities(codes: list[str], kinds: npt.NDArray[np.int64]) -> dict[str, list[Any]]:
    """The public table of the kinds of group quarters that every block has, as limits. A kind that no block has is
    listed at the first, with none there: where the table is said to be complete, that closes it to all."""
    there = {(code, int(k)) for code, own in zip(codes, kinds, strict=True) for k in own if k >= 0}
    nowhere = {(codes[0], k) for k in set(range(18, 42)) - {k for _, k in there}}
    rows, names = sorted(there | nowhere), DHC_PERSONS.attribute("relgq").categories
    return {
        "geoid": [code for code, _ in rows],
        "query": ["relgq"] * len(rows),
        "answer": [names[k] for _, k in rows],
        "lower": [0] * len(rows),
        "upper": [0 if row in nowhere else None for row in rows],
    }


def make(path: Path, records: Path, counties: list[str]) -> None:
    """Write the made-up persons as a row each into ``records``, a Parquet file, and beside it the codes of all blocks
    and the kinds of group quarters in them, as the file's name with _blocks.csv and _facilities.csv in place of its
    ending."""
    codes, minors, adults = read(path, counties)
    block, cell, kinds = cells_of(minors, adults)
    columns = {"block": pa.DictionaryArray.from_arrays(pa.array(block.astype(np.int32)), pa.array(codes))}
    for one, place in zip(DHC_PERSONS.attributes, np.unravel_index(cell, DHC_PERSONS.shape), strict=True):
        known = pa.array(list(one.categories))
        columns[one.name] = pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), known)
    records.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), records, compression="zstd")
    pacsv.write_csv(pa.table({"block": codes}), records.with_name(f"{records.stem}_blocks.csv"))
    pacsv.write_csv(pa.table(facilities(codes, kinds)), records.with_name(f"{records.stem}_facilities.csv"))
    print(f"{len(cell):,} persons of {len(codes):,} blocks, made up from the seed {SEED}, in {records}")


def plan(levels: list[str]) -> td.Plan:
    """The variances of the preset at these levels."""
    known = preset("dhc-2020-us-persons")
    given = {level: known.shares[PRESET_LEVELS.get(level, level)] for level in levels}
    part = sum(share for queries in given.values() for share in queries.values())
    shares = {level: {q: share / part for q, share in queries.items()} for level, queries in given.items()}
    return td.Plan("discrete-gaussian", rho=known.rho * part, shares=shares, neighbours="substitute")


class Timed:
    """What it asks is passed on, timed and counted."""

    def __init__(self, asked: AskedMeasurements) -> None:
        self.asked, self.seconds, self.answers = asked, 0.0, dict[int, int]()

    def queries(self, index: int) -> Any:
        """As of the measurements."""
        return self.asked.queries(index)

    def measured(self, index: int, query: Query, nodes: slice, answers: Any) -> Any:
        """As of the measurements."""
        begin = time.perf_counter()
        found = self.asked.measured(index, query, nodes, answers)
        self.seconds += time.perf_counter() - begin
        self.answers[index] = self.answers.get(index, 0) + found.size
        return found


def published(table: td.Counts) -> Tied:
    """The redistricting file's cells of all units."""
    query, n_nodes = Query.parse(REDISTRICTING, DHC_PERSONS), table.geography.n_nodes
    rows, cells, counts = table.part(slice(0, n_nodes))
    return Tied.of(query, rows, query.answers_of(cells), counts, n_nodes)


def main(path: Path, counties: list[str], states: int, *, is_tied: bool, has_facilities: bool) -> None:
    """Print what a run takes and how far off it is."""
    codes, minors, adults = read(path, counties)
    levels, root = LEVELS, "state"
    if states > 1:
        codes = [f"{number:02}{code[2:]}" for number in range(1, states + 1) for code in codes]
        minors, adults = np.tile(minors, (states, 1)), np.tile(adults, (states, 1))
        levels, root = {"state": 2, **LEVELS}, "us"
    geography = td.Geography.from_geoids(codes, levels, root_level=root)
    block, cell, kinds = cells_of(minors, adults)
    at = {code: k for k, code in enumerate(geography.identifiers.to_pylist()[geography.tree.leaves.start :])}
    leaf = np.array([at[code] for code in codes])[block]
    keys, counts = np.unique(leaf * DHC_PERSONS.n_cells + cell, return_counts=True)
    held = Entries.of_leaves(geography.tree, DHC_PERSONS.n_cells, keys, counts)
    table = td.Counts(geography, DHC_PERSONS.cells(), held, DHC_PERSONS)
    print(f"{len(codes):,} blocks, {len(cell):,} persons, {len(DHC_PERSONS.possible_cells()):,} possible cells")
    begin, used = time.perf_counter(), time.process_time()
    given = None
    if has_facilities:
        limits = td.AnswerLimits.from_table(facilities(codes, kinds), geography, DHC_PERSONS, closed=["relgq"])
        given = OpenAnswers.of_limits(limits)
    known = KnownAnswers.of(DHC_PERSONS, geography.tree, published(table) if is_tied else None, given)
    measured = table
    if known.split is not None:
        measured = split_counts(table, known.schema, known.split.split)
        print(f"{known.schema.shape[-1]} classes of blocks at most, {len(known.cells):,} cells with them")
    asked = Timed(AskedMeasurements(measured, plan(list(geography.levels)), NoiseKey(bytes(32), "benchmark", "public")))
    nearest = rounding_named("nearest")
    descent = SupportDescent(geography.tree, known.schema, known.cells, asked, nearest, known.tied, known.open)
    found = descend_on_supports(descent, KeyedSource(bytes(32)), 2)
    print(
        f"{time.perf_counter() - begin:.1f} s, {time.process_time() - used:.1f} s of processors, measuring "
        f"{asked.seconds:.1f} s; {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB at most"
    )
    programs = found.programs
    print(
        f"{programs.families:,} families, {programs.variables:,} variables, at most {programs.most_rounds} rounds; "
        f"certificate {'holds' if found.certificate.holds() else 'DOES NOT HOLD'}: {found.certificate}"
    )
    errors(geography, table, known, found, asked.answers)


def errors(
    geography: td.Geography, table: td.Counts, known: KnownAnswers, found: OnSupports, asked: dict[int, int]
) -> None:
    """Print by level the answers that were drawn, and mean absolute errors: of the total, and summed over a query."""
    every = sum(query.n_answers for query in (Query.parse(q, DHC_PERSONS) for q in plan(["state"]).queries("state")))
    print(f"{'level':12} {'nodes':>7} {'drawn a node':>13} of {every:,}; mean error of a node: {', '.join(SHOWN)}")
    for index, level in enumerate(geography.levels):
        nodes = geography.level_slice(level)
        own = found.histograms[nodes]
        count = nodes.stop - nodes.start
        rows = np.repeat(np.arange(count), [len(one.cells) for one in own])
        cells, values = np.concatenate([one.cells for one in own]), np.concatenate([one.values for one in own])
        off = []
        for query in (Query.parse(text, DHC_PERSONS) for text in SHOWN):
            made = query.sparse_answers(rows, cells // (known.schema.n_cells // DHC_PERSONS.n_cells), values, count)
            off.append(np.abs(made - table.answers(query, nodes)).sum(axis=1).mean())
        print(f"{level:12} {count:7,} {asked[index] / count:13,.0f}   " + "  ".join(f"{one:10.2f}" for one in off))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
        sys.exit()
    chosen = sys.argv[2:]
    counts = [int(one.removeprefix("states=")) for one in chosen if one.startswith("states=")]
    counties = [one for one in chosen if one.isdigit()]
    states = counts[0] if counts else 1
    main(Path(sys.argv[1]), counties, states, is_tied="tied" in chosen, has_facilities="facilities" in chosen)
