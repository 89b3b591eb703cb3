"""A state's noisy measurement files: reading them, and a release from them by `topdown project`.

python benchmarks/noisy_measurements.py make FOLDER     files of 25,000 blocks with the production run's variances
python benchmarks/noisy_measurements.py read FOLDER     seconds and peak memory of td.read_noisy_measurements
python benchmarks/noisy_measurements.py project FOLDER  the same of the command, with tables P1 to P5
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from histograms import synthetic_state
from record import command_figures, save, timed

import topdown as td
from topdown.workload.redistricting import PERSONS

TOML = """title = "A synthetic state"
[measurements]
path = "nmf"
product = "pl94-persons"
state = "44"
[output]
tables = ["P1", "P2", "P3", "P4", "P5"]
"""


def make(folder: Path, blocks: int) -> None:
    """Files as the Census Bureau's: without what Topdown writes into their metadata."""
    counts = synthetic_state(blocks, PERSONS, np.random.default_rng(1))
    plan = td.preset("pl94-2020-us").plan(counts.geography.levels, only_child="move-up")
    measurements = td.measure(counts, plan)
    for path in td.write_noisy_measurements(measurements, folder / "nmf"):
        table = pq.ParquetFile(path).read().replace_schema_metadata(None)
        pq.write_table(table, path, compression="zstd")
    (folder / "nmf.toml").write_text(TOML)
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet") if path.is_file())
    print(f"  {counts.geography!r}, {size / 2**20:.0f} MiB")


def read(folder: Path) -> None:
    """Reading alone."""
    seconds: dict[str, float] = {}
    with timed(seconds, "reading"):
        found = td.read_noisy_measurements(folder / "nmf", state="44")
    assert found.measurements.plan is not None
    numbers = sum(found.measurements[key].values.size for key in found.measurements.keys)
    print(f"  {found.geography!r}, {numbers:,} numbers")


def project(folder: Path, blocks: int) -> None:
    """From files to a release."""
    topdown = str(Path(sys.executable).with_name("topdown"))
    figures = command_figures([topdown, "project", str(folder / "nmf.toml"), "-q"])
    print(f"  {figures['seconds']:.1f} s, {figures['peak GiB']:.2f} GiB")
    save("noisy-measurements-project", figures | {"blocks": blocks})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "read", "project"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--blocks", type=int, default=25_000)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.command == "make":
        make(arguments.folder, arguments.blocks)
    elif arguments.command == "read":
        read(arguments.folder)
    else:
        project(arguments.folder, arguments.blocks)
