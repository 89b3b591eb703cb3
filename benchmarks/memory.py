"""How much memory a run takes, beside what was estimated before anything was drawn.

``python benchmarks/memory.py``: fixed shapes, one of them 1,000,000 rows x 60 cells; then ``--random N`` shapes drawn
from ``--seed``. Every run is the installed command in a process of its own. Printed and kept: estimate / peak, which is
to lie from 1/2 to 2, and for the largest table peak / limit, the limit being 6 GiB.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from record import save

LIMIT = 6 << 30
"""The most that a run on 1,000,000 rows x 60 cells may take."""

_RUN = """
import atexit, sys
from pathlib import Path

def keep():
    Path(sys.argv[-1] + ".peak").write_text(Path("/proc/self/status").read_text())

atexit.register(keep)
from topdown.machine.memory import held_memory
from topdown.pipeline import memory_needed
of_whole = memory_needed.of_whole

def told(config, geography, extent=None):
    found = of_whole(config, geography, extent)
    if extent is not None:  # what is said to others is estimated from public sizes alone
        Path(sys.argv[-1] + ".estimate").write_text(str(held_memory() + found))
    return found

memory_needed.of_whole = told
from topdown.entry import main
main()
"""


@dataclass(frozen=True)
class Shape:
    """A table of ``rows`` leaves with ``cells`` columns, below ``depth`` levels, and what a run is asked to do with it.

    ``tree``: "even" (levels grow by the same factor), "chain" (every level but the root has all rows), "family" (all
    leaves are one family). ``letters``: length of the identifiers. ``kind``: of the file. ``mechanism`` may carry the
    bounds of its noise after a colon. ``exact``: an invariant level, ``skipped``: a level that is not measured,
    ``chosen``: rows that ``where`` leaves out, as many as stay.
    """

    rows: int
    cells: int
    depth: int = 4
    tree: str = "even"
    letters: int = 12
    kind: str = "parquet"
    method: str = "gls-top-down"
    mechanism: str = "geometric"
    csv: bool = True
    cross_check: bool = True
    names: bool = False
    sorted: bool = True
    exact: bool = False
    skipped: bool = False
    chosen: bool = False

    def __str__(self) -> str:
        given = [f"{self.rows:,} x {self.cells}, {self.depth} levels"]
        for one in fields(self)[3:]:
            value = getattr(self, one.name)
            if value != one.default:
                given.append(value if isinstance(value, str) else f"{one.name} {value}")
        return ", ".join(given)


FIXED = [
    Shape(1_000, 1, 2),
    Shape(100_000, 1, 2),
    Shape(100_000, 10, 4, method="joint", kind="csv"),
    Shape(100_000, 60, 3, letters=100, cross_check=False),
    Shape(100_000, 3, 30, "chain"),
    Shape(150_000, 2, 18, "even", kind="csv.gz", method="top-down"),
    Shape(200_000, 8, 5, mechanism="geometric:truncated", names=True),
    Shape(300_000, 1, 12, letters=140, sorted=False),
    Shape(300_000, 20, 2, "family", mechanism="gaussian", csv=False),
    Shape(500_000, 4, 6, exact=True, method="joint", cross_check=False),
    Shape(500_000, 3, 4, skipped=True),
    Shape(400_000, 2, 4, chosen=True, kind="csv"),
    Shape(1_000_000, 1, 4),
    Shape(1_000_000, 10, 6, mechanism="discrete-gaussian", cross_check=False),
    Shape(1_000_000, 1, 2, "family", method="joint", csv=False),
    Shape(1_000_000, 1, 30, letters=20, csv=False),
]
LARGEST = Shape(1_000_000, 60, 4, cross_check=False)


def random_shapes(count: int, seed: int) -> list[Shape]:
    """Shapes from 10^5 to 10^6 rows and from 1 to 60 cells, of up to 12 million values."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        rows = int(10 ** rng.uniform(5, 6))
        depth = int(rng.integers(2, 31))
        tree = str(rng.choice(["even", "even", "even", "chain", "family"]))
        nodes = rows * (depth - 1) if tree == "chain" else 2 * rows
        if nodes > 6_000_000:
            rows = rows * 6_000_000 // nodes
            nodes = 6_000_000
        cells = int(min(60, max(1, 12_000_000 // nodes), 10 ** rng.uniform(0, np.log10(60.99))))
        # Solving again takes minutes where there are many cells, and as much memory as where there are few.
        csv, check, names, is_sorted, exact, skipped, chosen = rng.random(7) < [0.5, 0.5, 0.2, 0.7, 0.2, 0.2, 0.1]
        found.append(
            Shape(
                rows,
                cells,
                depth,
                tree,
                int(10 ** rng.uniform(np.log10(9), 2)),
                str(rng.choice(["parquet", "parquet", "csv", "csv.gz"])),
                str(rng.choice(["top-down", "gls-top-down", "joint"])),
                str(rng.choice(["geometric", "discrete-gaussian", "gaussian", "laplace", "geometric:truncated"])),
                *map(bool, (csv, check and cells <= 6, names, is_sorted, exact, skipped, chosen)),
            )
        )
    return found


def make(shape: Shape, folder: Path) -> Path:
    """The table of ``shape`` and the configuration of its run, in ``folder``; returns the latter's path."""
    rng = np.random.default_rng(shape.rows)
    leaf = np.arange(shape.rows)
    order = leaf if shape.sorted else rng.permutation(shape.rows)
    levels = [f"level {level}" for level in range(shape.depth)]
    columns, number, units = {}, leaf, shape.rows
    for level in reversed(range(shape.depth)):
        below, units = units, _units(shape, level)
        number = number * units // below
        columns[levels[level]] = _texts(f"{level:02d}", number, shape.letters).take(pa.array(order))
    if shape.names:
        columns["name"] = _texts("Unit ", leaf, 20).take(pa.array(order))
    table = pa.table(columns)
    cells = [f"cell {k}" for k in range(shape.cells)]
    for cell in cells:
        table = table.append_column(cell, pa.array(rng.integers(0, 1000, shape.rows)))
    where = ""
    if shape.chosen:
        other = table.append_column("year", pa.array(["2010"] * shape.rows))
        table = pa.concat_tables([table.append_column("year", pa.array(["2020"] * shape.rows)), other])
        where = 'where = { year = "2020" }'
    path = folder / f"table.{shape.kind}"
    if shape.kind == "parquet":
        pq.write_table(table, path, row_group_size=1 << 20, compression="zstd")
    else:
        with pa.output_stream(path) as sink:  # by its name Arrow packs a .gz file
            pacsv.write_csv(table, sink)
    mechanism, _, bounds = shape.mechanism.partition(":")
    exact = [levels[0]] if shape.exact else []
    skipped = [levels[-2]] if shape.skipped and shape.depth > 2 else []
    shares = {level: "0" if level in skipped else "1" for level in levels if level not in exact}
    total = len(shares) - len(skipped)
    shares = {level: share if share == "0" else f"1/{total}" for level, share in shares.items()}
    file = folder / "run.toml"
    file.write_text(f"""
[input]
path = {json.dumps(path.name)}
cells = {json.dumps(cells)}
{where}
[geography]
levels = {json.dumps(levels)}
{'names = "name"' if shape.names else ""}
[privacy]
mechanism = "{mechanism}"
{"rho" if "gaussian" in mechanism else "epsilon"} = "1"
invariants = {json.dumps(exact)}
[privacy.shares]
{"".join(f'"{level}" = "{share}"' + chr(10) for level, share in shares.items())}
[noise]
bounds = "{bounds or "none"}"
[projection]
method = "{shape.method}"
cross_check = {json.dumps(shape.cross_check)}
[output]
csv = {json.dumps(shape.csv)}
""")
    return file


def _units(shape: Shape, level: int) -> int:
    if level == 0:
        return 1
    if shape.tree == "chain" or level == shape.depth - 1:
        return shape.rows
    return 1 if shape.tree == "family" else max(1, round(shape.rows ** (level / (shape.depth - 1))))


def _texts(prefix: str, numbers: np.ndarray, letters: int) -> pa.Array:
    digits = max(letters - len(prefix), len(str(int(numbers.max(initial=0)))))
    padded = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), digits, "0")
    return pc.binary_join_element_wise(pa.scalar(prefix), padded, "")


class Measured(NamedTuple):
    """Bytes: what a run weighed before it read a count, and the most that its process held."""

    estimate: int
    peak: int

    @property
    def ratio(self) -> float:
        """estimate / peak"""
        return self.estimate / self.peak


def measured(file: Path) -> Measured:
    """The run of the configuration ``file`` in a process of its own."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", _RUN, "run", str(file)], check=True, capture_output=True)
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path(f"{file}.peak").read_text())
    if peak is None:
        raise SystemExit("the system does not say how much memory the run took")
    return Measured(int(Path(f"{file}.estimate").read_text()), int(peak[1]) << 10)


def measure(shape: Shape) -> Measured:
    """A run on a table of ``shape``, which is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return measured(make(shape, Path(folder)))


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=10)
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--json", type=Path, help="write here in place of benchmarks/results/memory.json")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    ratios = []
    for shape in [LARGEST, *FIXED, *random_shapes(arguments.random, arguments.seed)]:
        found = measure(shape)
        ratios.append(found.ratio)
        figures |= {f"{shape}: estimate / peak": found.ratio, f"{shape}: peak GiB": found.peak / 2**30}
        print(f"estimate / peak {found.ratio:5.2f}   peak {found.peak / 2**30:6.2f} GiB   {shape}", flush=True)
        if shape == LARGEST:
            figures["largest table: peak / limit of 6 GiB"] = found.peak / LIMIT
            print(f"peak / limit    {found.peak / LIMIT:5.2f}")
    figures |= {"least estimate / peak": min(ratios), "greatest estimate / peak": max(ratios)}
    print(f"estimate / peak from {min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} shapes")
    print(f"kept in {save('memory', figures, arguments.json)}")


if __name__ == "__main__":
    main()
