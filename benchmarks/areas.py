"""Expected errors of areas: seconds and memory for a nation's blocks with 30,000 areas, by a plan alone, and of the
commands.

``python benchmarks/areas.py [--blocks N] [--areas N] [--json FILE]``

``topdown check --areas`` is run on all blocks, with one kind of areas, and on those of a small state with three kinds,
for which ``topdown spine`` is run, too. Areas are runs of blocks of random lengths, some blocks of which belong to the
next run, so that they cut tracts and block groups; one block in twenty belongs to none. They are read from block
assignment files, as of the command.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from nation import PLAN
from record import command_figures, peak_memory, save, timed
from synthetic import BLOCKS, WIDTHS, nation

import topdown as td
from topdown.tables.assignments import assignments

_SEED, _STRAY, _NONE = 7, 0.02, 0.05
_STATE, _KINDS = 25_000, {"school": 36, "place": 60, "district": 8}
"""Blocks of a small state, and the numbers of its areas."""
_TOML = """
[input]
path = "counts.parquet"
geoid = "geoid"
cells = ["population"]
[geography]
units = "units.parquet"
widths = {{ state = 2, county = 5, tract = 11, "block group" = 12, block = 15 }}
[privacy]
mechanism = "discrete-gaussian"
rho = "2.56"
[privacy.shares]
{shares}
"""


def assigned(blocks: pa.Array, areas: int, seed: int = _SEED) -> pa.Table:
    """The table of blocks and their areas."""
    rng = np.random.Generator(np.random.PCG64(seed))
    cuts = np.sort(rng.choice(len(blocks) - 1, areas - 1, replace=False)) + 1
    of = np.searchsorted(cuts, np.arange(len(blocks)), side="right")
    of = np.where(rng.random(len(of)) < _STRAY, np.minimum(of + 1, areas - 1), of)
    names = np.char.zfill(of.astype(str), 5).astype(object)
    names[rng.random(len(of)) < _NONE] = ""
    return pa.table({"BLOCKID": blocks, "DISTRICT": pa.array(names, pa.string())})


def errors(blocks: int, areas: int) -> dict[str, float]:
    """Seconds of reading the file and of the errors of all levels and areas, and the peak of memory."""
    figures: dict[str, float] = {"blocks": float(blocks), "areas": float(areas)}
    geoids = nation(blocks)["geoid"].combine_chunks()
    geography = td.Geography.from_geoids(geoids, WIDTHS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "district.txt"
        pc.write_csv(assigned(geoids, areas), path, pc.WriteOptions(delimiter="|"))
        with timed(figures, "reading the file of areas"):
            read = assignments(path, geography)
        del read
        figures["peak GiB before"] = peak_memory()
        with timed(figures, "errors of the levels"):
            PLAN.errors(geography)
        with timed(figures, "errors of the levels and areas, the file read"):
            table = PLAN.errors(geography, areas=path)
    figures["peak GiB"] = peak_memory()
    print(table[["level", "units", "sd_mean", "sd", "sd_90", "sd_largest"]].to_string())
    return figures


def commands(blocks: int, kinds: Mapping[str, int], names: Sequence[str]) -> dict[str, float]:
    """The figures of ``topdown check --areas``, and of ``topdown spine`` where it is among ``names``."""
    figures: dict[str, float] = {}
    table = nation(blocks)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(table, folder / "counts.parquet")
        pq.write_table(table.select(["geoid"]), folder / "units.parquet")
        shares = "\n".join(f'"{level}" = "{PLAN.share(level)}"' for level in ("nation", *WIDTHS))
        (folder / "run.toml").write_text(_TOML.format(shares=shares))
        geoids, more = table["geoid"].combine_chunks(), []
        for number, (kind, areas) in enumerate(kinds.items()):
            file = folder / f"{kind}.txt"
            pc.write_csv(assigned(geoids, areas, _SEED + number), file, pc.WriteOptions(delimiter="|"))
            more += ["--areas", str(file)]
        del table, geoids
        topdown = Path(sys.executable).parent / "topdown"
        for name in names:
            found = command_figures([str(topdown), name, str(folder / "run.toml"), *more, "-q"])
            titled = f"topdown {name}, {blocks:,} blocks, {len(kinds)} kinds of {sum(kinds.values()):,} areas"
            print(f"  {titled}: " + ", ".join(f"{figure} {value:.2f}" for figure, value in found.items()))
            figures |= {f"{titled}: {figure}": value for figure, value in found.items()}
    return figures


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--areas", type=int, default=30_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures = commands(_STATE, _KINDS, ["check", "spine"])
    figures |= commands(given.blocks, {"district": given.areas}, ["check"])
    save("areas", {**errors(given.blocks, given.areas), **figures}, given.json)


if __name__ == "__main__":
    main()
