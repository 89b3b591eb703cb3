"""Expected errors of areas: seconds and memory for a nation's blocks with 30,000 areas, by a plan alone.

``python benchmarks/areas.py [--blocks N] [--areas N] [--json FILE]``

Areas are runs of blocks of random lengths, some blocks of which belong to the next run, so that they cut tracts and
block groups; one block in twenty belongs to none. They are read from a block assignment file, as of the command.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
from nation import PLAN
from record import peak_memory, save, timed
from synthetic import BLOCKS, WIDTHS, nation

import topdown as td
from topdown.tables.assignments import assignments

_SEED, _STRAY, _NONE = 7, 0.02, 0.05


def assigned(blocks: pa.Array, areas: int) -> pa.Table:
    """The table of blocks and their areas."""
    rng = np.random.Generator(np.random.PCG64(_SEED))
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


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--areas", type=int, default=30_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    save("areas", errors(given.blocks, given.areas), given.json)


if __name__ == "__main__":
    main()
