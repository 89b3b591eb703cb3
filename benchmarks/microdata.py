"""Records per second of microdata: written to Parquet, and read back and tabulated.

``python benchmarks/microdata.py [--records N] [--leaves N] [--save]``. The counts are made up: 8 cells a leaf, some of
them empty. The check is part of every job, so the rate of the whole job is given too. Seconds are the processor's: the
job has one thread of its own, and a rate by the clock would tell how busy the machine is.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from record import peak_memory, save

from topdown.microdata import written_records as microdata
from topdown.microdata.leaves import Leaves
from topdown.microdata.recount import tabulate
from topdown.noise import SeededSource
from topdown.workload.schema import Schema

SCHEMA = Schema.from_mapping({"sex": ["female", "male"], "age": ["0-17", "18-39", "40-64", "65+"]})


def made_up(records: int, leaves: int) -> Leaves:
    rng = np.random.default_rng(1)
    share = rng.gamma(0.5, size=(leaves, SCHEMA.n_cells))
    values = rng.multinomial(records, (share / share.sum()).reshape(-1)).reshape(share.shape)
    return Leaves.of_values(
        pa.array([f"{k:015d}" for k in range(leaves)]), SCHEMA.cells(), values.astype(np.int64), False
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--leaves", type=int, default=25_000)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results/")
    arguments = parser.parse_args()
    leaves = made_up(arguments.records, arguments.leaves)
    figures: dict[str, float] = {"records": arguments.records, "leaves": arguments.leaves}
    with tempfile.TemporaryDirectory() as folder:
        for order in ("sorted", "shuffled"):
            begin = time.process_time()
            made = microdata.write_microdata(
                leaves, Path(folder) / order, schema=SCHEMA, order=order, source=SeededSource(1)
            )
            whole = time.process_time() - begin
            begin = time.process_time()
            found = tabulate(made.directory, leaves.geoids, leaves.cells, SCHEMA)
            check = time.process_time() - begin
            assert np.array_equal(found, leaves.values)
            size = sum(path.stat().st_size for path in made.files)
            figures |= {
                f"{order}: million records/s, written": arguments.records / (whole - check) / 1e6,
                f"{order}: million records/s, tabulated": arguments.records / check / 1e6,
                f"{order}: million records/s, the whole job": arguments.records / whole / 1e6,
                f"{order}: bytes per record": size / arguments.records,
            }
    figures["peak memory, GiB"] = peak_memory()
    for title, value in figures.items():
        print(f"{title:50s} {value:14,.2f}")
    if arguments.save:
        print(save("microdata", figures))


if __name__ == "__main__":
    main()
