"""A synthetic nation of the real size, and how long the main job takes on it.

python benchmarks/nation.py make build/nation.parquet      8,132,968 blocks with 15-digit GEOIDs
python benchmarks/nation.py run build/nation.parquet       stage by stage; the ratio to what pyarrow alone needs
python benchmarks/nation.py kernels build/nation.parquet   noise, each projection, rounding, without files
python benchmarks/nation.py accuracy build/nation.parquet  errors by level and size class, method by method
python benchmarks/nation.py growth                         time per node and cell from 10^4 leaves to 8 x 10^6
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from record import command_figures, save, timed
from synthetic import BLOCKS, WIDTHS, write

import topdown as td
from topdown.projection.cells import equality, nonnegative
from topdown.projection.cells.rounding import round_top_down

PLAN = td.Plan(
    mechanism="discrete-gaussian",
    rho="2.56",
    shares={
        "nation": "1/10",
        "state": "2/10",
        "county": "2/10",
        "tract": "2/10",
        "block group": "2/10",
        "block": "1/10",
    },
)

PRODUCTION_LIKE = td.Plan(
    mechanism="discrete-gaussian",
    rho="1/2",
    shares={
        "nation": "0.127",
        "state": "0.127",
        "county": "0.226",
        "tract": "0.174",
        "block group": "0.3455",
        "block": "0.0005",
    },
)
"""Standard deviations of 2.8, 2.8, 2.1, 2.4, 1.7 and 45: most of the budget above the blocks, as a census has it."""

CONFIGURATION = """
[input]
path = {path}
geoid = "geoid"
cells = {cells}
[geography]
widths = {{ state = 2, county = 5, tract = 11, "block group" = 12, block = 15 }}
[privacy]
mechanism = "discrete-gaussian"
rho = "2.56"
shares = {{ nation = "1/10", state = "2/10", county = "2/10", tract = "2/10", "block group" = "2/10", block = "1/10" }}
[projection]
method = "{method}"
[output]
csv = false
"""


def run(path: Path, method: str) -> None:
    """The main job from the leaf table to all public outputs, by the command, beside pyarrow's reading and writing."""
    topdown = str(Path(sys.executable).with_name("topdown"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nation.toml"
        cells = [name for name in pq.read_schema(path).names if name != "geoid"]
        file.write_text(
            CONFIGURATION.format(path=json.dumps(str(path.resolve())), cells=json.dumps(cells), method=method)
        )
        output = Path(folder) / "out"
        figures = command_figures([topdown, "run", str(file), "--output", str(output), "--verbose"])
        by_arrow = _arrow_alone(path, output / "public")
    for title, value in figures.items():
        print(f"  {title:50s} {value:6.2f}")
    total = figures["seconds"]
    print(f"  pyarrow alone, reading and writing the same tables: {by_arrow:.2f} s; ratio {total / by_arrow:.2f}")
    save("nation", figures | {"ratio to pyarrow": total / by_arrow})


def _arrow_alone(source: Path, public: Path) -> float:
    """Seconds that pyarrow needs to read the input and the outputs' tables, and to write these again as they are."""
    tables = {file.name: pq.read_table(file) for file in public.glob("*.parquet")}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        pq.read_table(source)
        for name, table in tables.items():
            pq.write_table(table, Path(folder) / name, compression="zstd", row_group_size=1 << 20)
        return time.perf_counter() - started


def _prepared(path: Path) -> td.Counts:
    table = pq.read_table(path)
    cells = [name for name in table.column_names if name != "geoid"]
    geography = td.Geography.from_geoids(table["geoid"], WIDTHS)
    return td.Counts.from_table(table, geography, geoid="geoid", cells=cells)


def kernels(path: Path) -> dict[str, float]:
    """Seconds of the kernels alone: arrays in, arrays out."""
    seconds: dict[str, float] = {}
    counts = _prepared(path)
    tree = counts.geography.tree
    with timed(seconds, "noise, and adding it"):
        measurements = td.measure(counts, PLAN)
    y = np.ascontiguousarray(measurements.values.T, dtype=np.float64)
    v = measurements.node_variance
    with timed(seconds, "gls"):
        equality.least_squares(y, v, tree)
    with timed(seconds, "gls, variances"):
        equality.least_squares_variance(v, tree)
    with timed(seconds, "top-down, non-negative"):
        x = nonnegative.downward_nonnegative(y, v, tree)
    with timed(seconds, "joint, non-negative"):
        nonnegative.project_tree(y, v, tree)
    with timed(seconds, "rounding"):
        round_top_down(x, tree, td.SecureSource(), None, None)
    save("nation-kernels", seconds)
    return seconds


def accuracy(path: Path) -> None:
    """Mean absolute error and bias by level, and by size class of blocks, of every method; one draw."""
    counts = _prepared(path)
    geography, truth = counts.geography, counts.values.astype(np.float64)
    measurements = td.measure(counts, PRODUCTION_LIKE)
    values = {"raw": measurements.values.astype(np.float64), "gls": td.project(measurements, "gls").values}
    for method in ("top-down", "gls-top-down", "joint"):
        estimate = td.project(measurements, method)
        values[method] = estimate.values
        values[method + ", rounded"] = td.round_counts(estimate).values.astype(np.float64)
    rows = {level: geography.level_slice(level) for level in geography.levels}
    leaves = rows.pop(geography.levels[-1])
    size = truth[leaves].sum(axis=1)
    classes = {"block": np.full(len(size), True), "block of 0": size == 0, "block of 1 to 9": (size > 0) & (size < 10)}
    classes |= {"block of 10 to 99": (size >= 10) & (size < 100), "block of 100 or more": size >= 100}
    figures = {}
    for kind in ("mean absolute error", "bias"):
        print(f"\n{kind:24s}" + "".join(f"{method:>23s}" for method in values))
        parts = {name: (nodes, slice(None)) for name, nodes in rows.items()}
        parts |= {name: (leaves, mask) for name, mask in classes.items()}
        for name, (nodes, mask) in parts.items():
            line = []
            for method, x in values.items():
                error = (x[nodes] - truth[nodes])[mask]
                line.append(float(np.abs(error).mean() if kind != "bias" else error.mean()))
                figures[f"{kind}, {name}, {method}"] = line[-1]
            print(f"{name:24s}" + "".join(f"{value:23.3f}" for value in line))
    save("nation-accuracy", figures)


def growth(largest: int) -> None:
    """Seconds per node and cell of the whole job, in a process of its own for every size."""
    sizes = [(n, 1) for n in (10_000, 100_000, 1_000_000, BLOCKS) if n <= largest]
    sizes += [(100_000, cells) for cells in (4, 16, 64)]
    figures = {}
    for blocks, cells in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            write(path, blocks, cells)
            code = "import sys; from nation import kernels; from pathlib import Path; kernels(Path(sys.argv[1]))"
            command = [sys.executable, "-c", code, str(path)]
            started = time.perf_counter()
            subprocess.run(command, cwd=Path(__file__).parent, check=True, stdout=subprocess.DEVNULL)
            whole = time.perf_counter() - started
            seconds = json.loads((Path(__file__).parent / "results" / "nation-kernels.json").read_text())["figures"]
        each = 1e9 * sum(seconds.values()) / (blocks * cells)
        figures[f"{blocks} leaves x {cells} cells, nanoseconds per leaf and cell"] = each
        print(
            f"{blocks:10,d} leaves x {cells:3d} cells: {whole:7.2f} s in all; kernels {each:8.1f} ns per leaf and cell"
        )
    save("nation-growth", figures)


def main() -> None:
    """One of the five jobs of this module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["make", "run", "kernels", "accuracy", "growth"])
    parser.add_argument("path", type=Path, nargs="?", default=Path("build/nation.parquet"))
    parser.add_argument("--method", default="gls-top-down")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    arguments = parser.parse_args()
    if arguments.job == "make":
        write(arguments.path, arguments.blocks)
        table = pq.read_table(arguments.path)
        print(f"{arguments.path}: {table.num_rows:,} blocks, {pc.sum(table['population']).as_py():,} persons")
    elif arguments.job == "run":
        run(arguments.path, arguments.method)
    elif arguments.job == "kernels":
        kernels(arguments.path)
    elif arguments.job == "accuracy":
        accuracy(arguments.path)
    else:
        growth(arguments.blocks)


if __name__ == "__main__":
    main()
