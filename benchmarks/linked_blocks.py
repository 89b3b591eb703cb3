"""Households and persons of real blocks, solved together.

``OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests python benchmarks/linked_blocks.py BLOCKS PREFIX``

BLOCKS is a table as `benchmarks/synthetic_households.py` reads it; of its synthetic households those in blocks whose
codes begin with PREFIX (44001 is a county) are tabulated, measured with rho 2.56 for each of both tables, shared out
evenly over the levels, and solved from the root down; every block is dealt into households. Prints what was solved, the
certificate, how many blocks are impossible, and the seconds of one process.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from synthetic_households import FACILITIES, made, read_blocks

from support.linked import rhode_island
from support.linked_families import Tabulated, measured_counts
from topdown.geography.tree import Tree
from topdown.linked.dealing import dealt
from topdown.linked.record_faults import record_faults
from topdown.noise import KeyedSource
from topdown.projection.linked.linked_descent import linked_down
from topdown.workload import Schema

RHO = 2.56
WIDTHS = (5, 11, 12, 15)
"""Digits of the codes of counties, tracts, block groups and blocks."""


def _cells(table: pa.Table, schema: Schema) -> np.ndarray:
    codes = []
    for attribute in schema.attributes:
        place = {category: k for k, category in enumerate(attribute.categories)}
        codes.append(np.array([place[value] for value in table.column(attribute.name).to_pylist()], np.int64))
    return np.ravel_multi_index(codes, schema.shape)


def main(path: str, prefix: str) -> None:
    """Make, measure, solve, deal and print."""
    universe, everything = rhode_island(), made(read_blocks(Path(path)))
    blocks = [row for row in everything.blocks if str(row[0]).startswith(prefix)]
    codes = sorted(str(row[0]) for row in blocks)
    if not codes:
        raise SystemExit(f"no block's code begins with {prefix}")
    number = {code: k for k, code in enumerate(codes)}
    inside = [pa.array([str(g).startswith(prefix) for g in t.column("geoid").to_pylist()]) for t in everything[:2]]
    homes, persons = (table.filter(own) for table, own in zip(everything[:2], inside, strict=True))
    members = persons.filter(pa.compute.not_equal(persons.column("relationship").cast(pa.string()), "householder"))
    public = np.zeros((len(codes), 1 + len(FACILITIES)), np.int64)
    for code, *figures in blocks:
        public[number[str(code)]] = figures
    units, facilities = public[:, 0], public[:, 1:]
    where = [np.array([number[str(g)] for g in t.column("geoid").to_pylist()], np.int64) for t in (homes, members)]
    found = [universe.of_households(_cells(homes, universe.households))]
    found.append(universe.of_persons(_cells(members, universe.persons)))
    empty = units - np.bincount(where[0], minlength=len(codes))
    where.append(np.repeat(np.arange(len(codes)), empty))
    found.append(np.full(int(empty.sum()), universe.vacant))
    leaves = Tabulated.of(np.concatenate(where), np.concatenate(found))
    sizes, above = [], [prefix]
    for width in (one for one in WIDTHS if one > len(prefix)):
        own = sorted({code[:width] for code in codes})
        sizes.append(np.array([sum(one.startswith(parent) for one in own) for parent in above]))
        above = own
    tree = Tree.from_family_sizes(sizes)
    print(f"{len(codes):,} blocks, {len(homes):,} households, {len(persons):,} persons")
    rho = RHO / tree.n_levels
    program = measured_counts(universe, tree, leaves, units, facilities, rho, np.random.default_rng(1))
    started = time.process_time()
    solution = linked_down(program, KeyedSource(bytes(32)), 1)
    solved = time.process_time()
    bottom = tree.leaves.start
    rows = dealt(universe, ((node, solution.nodes[bottom + node]) for node in range(tree.n_leaves)))
    faults = sum(int(fault.wrong.any()) for fault in record_faults(universe, rows))
    print(f"{solution.programs}\n{solution.certificate}\ncertificate holds: {solution.certificate.holds()}")
    print(f"dealt: {len(rows.cell):,} households, {len(rows.person):,} persons, kinds of faults in them: {faults}")
    print(f"seconds of one process: solved {solved - started:.1f}, dealt {time.process_time() - solved:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
