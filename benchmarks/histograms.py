"""Histograms with several queries: one family beside cvxpy, a synthetic state with production's workload, growth.

python benchmarks/histograms.py family     one family of blocks: the compiled active set, cvxpy with OSQP and Clarabel
python benchmarks/histograms.py state      25,000 blocks x 2,016 cells, 11 queries at 5 levels: measure, project, round
python benchmarks/histograms.py run        the same from a file to a release with tables P1 to P5, by `topdown run`
python benchmarks/histograms.py parts      the same in parts, with margins of error of P1 to P5, and without tables
python benchmarks/histograms.py growth     time per block from 8 to 2,016 cells
python benchmarks/histograms.py accuracy   errors on the 569 blocks of `pipelines/pl94_rhode_island.toml`, ten draws
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from record import command_figures, peak_memory, save, timed

import topdown as td
from topdown.confidential.measure import measurable
from topdown.config import load_config
from topdown.pipeline.input.limit_reading import read_limits
from topdown.pipeline.input.reading import read_input
from topdown.projection.check.cvxpy_programs import solve_family
from topdown.projection.histograms.families import Family, Sparse, solve_compiled
from topdown.projection.method import METHODS, CvxpySolver
from topdown.projection.solver_inputs import descent_of
from topdown.workload.redistricting import PERSONS

LEVELS = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 16}
WORKLOAD = "pl94-2020-us"


def synthetic_state(blocks: int, schema: td.Schema, rng: np.random.Generator) -> td.Counts:
    """Blocks of about 45 persons in about 33 a group, three groups a tract, twenty tracts a county.

    Every tract has its own mixture of about 60 cells, every block a draw from it; a third of the blocks is empty.
    """
    groups = blocks // 33 + 1
    tracts, counties = groups // 3 + 1, groups // 60 + 1
    group = np.sort(rng.integers(groups, size=blocks))
    tract = np.sort(rng.integers(tracts, size=groups))[group]
    county = np.sort(rng.integers(counties, size=tracts))[tract]
    codes = [
        f"44{c:03d}{t:06d}{g % 10}{b % 10_000:04d}"
        for b, (c, t, g) in enumerate(zip(county, tract, group, strict=True))
    ]
    codes, first = np.unique(codes, return_index=True)
    values = np.zeros((schema.n_cells, len(codes)), np.int64)
    possible = schema.possible_cells()
    common = rng.dirichlet(np.full(len(possible), 0.01))
    mixture, of = common, -1
    for place, block in enumerate(first):
        if tract[block] != of:
            of = tract[block]
            mixture = rng.dirichlet(common * 60 + 1e-9)
        size = 0 if rng.random() < 1 / 3 else int(rng.lognormal(3.79, 0.9))
        values[possible, place] = rng.multinomial(size, mixture)
    widths = {level: width for level, width in LEVELS.items() if level != "state"}
    widths["block"] = 16
    geography = td.Geography.from_geoids(list(codes), widths, root="44", root_level="state")
    order = np.argsort(codes)
    whole = geography.tree.aggregate(values[:, order])
    whole.flags.writeable = False
    return td.Counts(geography, schema.cells(), whole.T, schema)


def families_of(counts: td.Counts) -> list[tuple[Family, str]]:
    """The programs of two families with their sizes: of the block group whose children x cells come nearest to 33 x 34,
    and of the tracts of the county with the most cells."""
    plan = td.preset(WORKLOAD).plan(counts.geography.levels)
    measurements = td.measure(counts, plan, td.SeededSource(1))
    release = td.project_whole(measurements, "gls-top-down", source=td.SeededSource(2))
    tree, levels = counts.geography.tree, counts.geography.levels
    descent, found = descent_of(measurements, METHODS["gls-top-down"], "variance"), []
    for index in (len(levels) - 1, levels.index("tract")):
        families = tree.families(index - 1)
        cells = np.diff(release.starts)[families.parents]
        apart = np.abs(families.sizes / 33 - 1) + np.abs(cells / 34 - 1) if index == len(levels) - 1 else -cells
        chosen = int(np.argmin(apart))
        parent = families.parents.start + chosen
        part = slice(int(release.starts[parent]), int(release.starts[parent + 1]))
        nodes = slice(int(families.starts[chosen]), int(families.starts[chosen] + families.sizes[chosen]))
        kept, counted = release.held.entries(part)
        above = Sparse(kept, counted.astype(np.float64))
        found.append(
            (descent.family(index, nodes, above), f"{families.sizes[chosen]} children x {cells[chosen]} cells")
        )
    return found


def family() -> None:
    """One family by the compiled active set and by cvxpy, and a large one by the compiled active set."""
    (program, size), (large, large_size) = families_of(synthetic_state(6_000, PERSONS, np.random.default_rng(1)))
    ours = solve_compiled(program)
    seconds = min(_seconds(lambda: solve_compiled(program)) for _ in range(50))
    print(f"  {size}: compiled {1e3 * seconds:.2f} ms")
    figures: dict[str, float | str] = {"size": size, "compiled, ms": 1e3 * seconds}
    seconds_of_large = min(_seconds(lambda: solve_compiled(large)) for _ in range(10))
    print(f"  {large_size}: compiled {1e3 * seconds_of_large:.1f} ms")
    figures |= {"large, size": large_size, "large, compiled, ms": 1e3 * seconds_of_large}
    unit = np.sqrt(program.known.table[:, np.diagonal(program.pattern)])
    for name in ("OSQP", "CLARABEL"):
        other = solve_family(program, CvxpySolver(name, {}))
        by = min(_seconds(lambda name=name: solve_family(program, CvxpySolver(name, {}))) for _ in range(3))  # type: ignore[misc]
        apart = float(np.abs((other.x - ours.x) * unit).max())
        print(f"  cvxpy with {name}: {1e3 * by:.0f} ms, {by / seconds:.0f} times; apart by {apart:.1e} deviations")
        figures |= {f"cvxpy {name}, ms": 1e3 * by, f"times, {name}": by / seconds, f"apart, {name}": apart}
    save("histograms-family", figures)


def _seconds(job: object) -> float:
    assert callable(job)
    started = time.process_time()
    job()
    return time.process_time() - started


def state(blocks: int) -> None:
    """The synthetic state with production's workload, without files."""
    counts = synthetic_state(blocks, PERSONS, np.random.default_rng(1))
    persons = int(counts.values[0].sum())
    print(f"  {counts.geography!r}, {persons:,} persons, peak memory {peak_memory():.2f} GiB")
    seconds: dict[str, float] = {}
    with timed(seconds, "measuring 11 queries at 5 levels"):
        plan = td.preset(WORKLOAD).plan(counts.geography.levels)
        measurements = td.measure(counts, plan)
    truth = {level: counts.values[counts.geography.level_slice(level)] for level in counts.geography.levels}
    with timed(seconds, "projecting and rounding"):
        release = td.project_whole(measurements)
    for level, true in truth.items():
        gap = release.answers(level, "detailed") - true
        print(
            f"  {level:12s} total {np.abs(gap.sum(axis=1)).mean():.2f}   detailed {np.abs(gap).sum(axis=1).mean():.1f}"
        )
    print(f"  {sum(seconds.values()):.1f} s; certificate {release.certificate.deviations:.1e} standard deviations")
    save("histograms-state", seconds | {"blocks": blocks, "persons": persons, "peak GiB": peak_memory()})


TOML = """title = "A synthetic state"
[input]
path = "records.parquet"
rows = "long"
geoid = "block"
count = "persons"
[geography]
units = "units.parquet"
root = "44"
root_level = "state"
widths = { county = 5, tract = 11, "block group" = 12, block = 16 }
[privacy]
preset = "pl94-2020-us"
[output]
tables = ["P1", "P2", "P3", "P4", "P5"]
"""

PART_SIZE = ["--part-size", "5000"]
NO_TABLES = "tables = []\n"


def write_state(folder: Path, counts: td.Counts) -> np.ndarray:
    """The counts as long rows in records.parquet, and the list of units in units.parquet; gives the rows' counts."""
    leaves = counts.geography.tree.leaves
    codes = counts.geography.geoid[leaves.start :]
    block, cell = np.nonzero(counts.values[leaves])
    rows: dict[str, pa.Array] = {"block": pa.array(codes[block])}
    for attribute, place in zip(PERSONS.attributes, np.unravel_index(cell, PERSONS.shape), strict=True):
        rows[attribute.name] = pa.array(np.array(attribute.categories)[place])
    persons = counts.values[leaves][block, cell]
    pq.write_table(pa.table({**rows, "persons": pa.array(persons)}), folder / "records.parquet")
    pq.write_table(pa.table({"block": pa.array(codes)}), folder / "units.parquet")
    return persons


def run(blocks: int) -> None:
    """The synthetic state from files to files: seconds and peak memory of the command as a whole."""
    topdown = str(Path(sys.executable).with_name("topdown"))
    with tempfile.TemporaryDirectory() as name:
        # What is compiled once is compiled before: loops, and modules.
        small, folder = Path(name) / "small", Path(name) / "state"
        for place, size in ((small, 300), (folder, blocks)):
            place.mkdir()
            counts = synthetic_state(size, PERSONS, np.random.default_rng(1))
            persons = write_state(place, counts)
            (place / "run.toml").write_text(TOML)
            figures = command_figures([topdown, "run", str(place / "run.toml"), "-q"])
        print(f"  {figures['seconds']:.1f} s, {figures['peak GiB']:.2f} GiB")
        save("histograms-run", figures | {"blocks": blocks, "persons": int(persons.sum()), "rows": len(persons)})


def parts(blocks: int) -> None:
    """The synthetic state in parts: seconds, and peak memory of the largest process, with margins of error of five
    tables and without; and how large the public directories are."""
    topdown, figures = str(Path(sys.executable).with_name("topdown")), dict[str, float | str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_state(folder, synthetic_state(blocks, PERSONS, np.random.default_rng(1)))
        tables = TOML[TOML.index("tables = ") :]
        ways = {"at once": (tables, []), "in parts": (tables, PART_SIZE), "in parts, no tables": (NO_TABLES, PART_SIZE)}
        for way, (asked, options) in ways.items():
            (folder / "run.toml").write_text(TOML.replace(tables, asked))
            output = folder / way.replace(" ", "-")
            command = [topdown, "run", str(folder / "run.toml"), "--output", str(output), "--verbose", *options]
            found = command_figures(command)
            found["public MiB"] = sum(one.stat().st_size for one in (output / "public").rglob("*")) / 2**20
            print(f"  {way:24s} {found['seconds']:6.1f} s, {found['peak GiB']:.2f} GiB, {found['public MiB']:.0f} MiB")
            figures |= {f"{way}, {title}": value for title, value in found.items()}
    save("histograms-parts", figures | {"blocks": blocks})


def accuracy(draws: int) -> None:
    """Mean errors per node on a part of Rhode Island, by the preset alone and by the pipeline with its limits.

    Of the total absolute, of the 2,016 cells summed over them; beside each the standard error of the mean of draws.
    """
    config = load_config(Path(__file__).parent.parent / "pipelines" / "pl94_rhode_island.toml")
    geography, counts = read_input(config)
    alone = td.preset(WORKLOAD).plan(geography.levels)
    own = measurable(config.plan(), geography.levels, counts.schema)
    limits = read_limits(config, geography, counts.schema)
    figures: dict[str, float | str] = {}
    for name, plan, held in (("preset", alone, None), ("pipeline", own, limits)):
        for method in ("top-down", "gls-top-down"):
            found: dict[str, list[tuple[float, float]]] = {level: [] for level in geography.levels}
            for _ in range(draws):
                release = td.project_whole(td.measure(counts, plan), method, constraints=held)
                for level in geography.levels:
                    gap = release.answers(level, "detailed") - counts.values[geography.level_slice(level)]
                    found[level].append((np.abs(gap.sum(axis=1)).mean(), np.abs(gap).sum(axis=1).mean()))
            for level, errors in found.items():
                mean, spread = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1) / np.sqrt(draws)
                for kind, value, error in zip(("total", "detailed"), mean, spread, strict=True):
                    figures[f"{name}, {method}, {level}, {kind}"] = float(value)
                    figures[f"{name}, {method}, {level}, {kind}, standard error"] = float(error)
                print(
                    f"  {name:8s} {method:12s} {level:12s} total {mean[0]:6.2f} +- {spread[0]:.2f}   "
                    f"detailed {mean[1]:6.1f} +- {spread[1]:.1f}",
                    flush=True,
                )
    save("histograms-accuracy", figures | {"draws": draws})


def growth() -> None:
    """Seconds per block from 8 to 2,016 cells, for the same records."""
    figures = {}
    for attributes in (("hhgq",), ("votingage", "cenrace"), ("votingage", "hispanic", "cenrace"), PERSONS.names):
        schema = td.Schema(tuple(PERSONS.attribute(name) for name in attributes))
        counts = synthetic_state(3_000, schema, np.random.default_rng(1))
        queries = ["total", *attributes[:1], "detailed"] if len(attributes) > 1 else ["total", "detailed"]
        share = f"1/{len(queries) * len(counts.geography.levels)}"
        plan = td.Plan(
            "discrete-gaussian",
            rho="5/2",
            shares={level: dict.fromkeys(queries, share) for level in counts.geography.levels},
        )
        measurements = td.measure(counts, plan, td.SeededSource(1))
        td.project_whole(measurements, source=td.SeededSource(1))
        taken = _seconds(lambda m=measurements: td.project_whole(m, source=td.SeededSource(1)))  # type: ignore[misc]
        print(f"  {schema.n_cells:5,} cells: {1e3 * taken / counts.geography.n_leaves:.2f} ms a block")
        figures[f"ms a block, {schema.n_cells} cells"] = 1e3 * taken / counts.geography.n_leaves
    save("histograms-growth", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["family", "state", "run", "parts", "growth", "accuracy"])
    parser.add_argument("--blocks", type=int, default=25_000)
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.command == "family":
        family()
    elif arguments.command == "state":
        state(arguments.blocks)
    elif arguments.command == "parts":
        parts(arguments.blocks)
    elif arguments.command == "run":
        run(arguments.blocks)
    elif arguments.command == "accuracy":
        accuracy(arguments.draws)
    else:
        growth()
