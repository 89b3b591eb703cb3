"""Derive us_counties_labor_force_2009.parquet from the package bokeh_sampledata.

    pip install bokeh_sampledata && python data/build_us_counties.py

The source is the Bureau of Labor Statistics' Local Area Unemployment Statistics, annual averages of 2009, by county.
The script checks what it reads (every row's labour force is the sum of its two parts, the totals) and fails where it
differs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.resources
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PUERTO_RICO = "72"
TOTAL_LABOUR_FORCE = 153_616_765  # 50 states and DC

# FIPS codes of the states (ANSI INCITS 38), which the source gives as numbers only.
STATES = dict(
    line.strip().split(" ", 1)
    for line in """
    01 Alabama
    02 Alaska
    04 Arizona
    05 Arkansas
    06 California
    08 Colorado
    09 Connecticut
    10 Delaware
    11 District of Columbia
    12 Florida
    13 Georgia
    15 Hawaii
    16 Idaho
    17 Illinois
    18 Indiana
    19 Iowa
    20 Kansas
    21 Kentucky
    22 Louisiana
    23 Maine
    24 Maryland
    25 Massachusetts
    26 Michigan
    27 Minnesota
    28 Mississippi
    29 Missouri
    30 Montana
    31 Nebraska
    32 Nevada
    33 New Hampshire
    34 New Jersey
    35 New Mexico
    36 New York
    37 North Carolina
    38 North Dakota
    39 Ohio
    40 Oklahoma
    41 Oregon
    42 Pennsylvania
    44 Rhode Island
    45 South Carolina
    46 South Dakota
    47 Tennessee
    48 Texas
    49 Utah
    50 Vermont
    51 Virginia
    53 Washington
    54 West Virginia
    55 Wisconsin
    56 Wyoming
    72 Puerto Rico
    """.strip().splitlines()
)


def read_source() -> list[list[str]]:
    """The rows of the source file, which newer versions of the package ship compressed."""
    folder = importlib.resources.files("bokeh_sampledata") / "_data"
    plain = folder / "unemployment09.csv"
    data = plain.read_bytes() if plain.is_file() else gzip.decompress((folder / (plain.name + ".gz")).read_bytes())
    return list(csv.reader(io.StringIO(data.decode("utf-8"))))


def number(text: str) -> int:
    """A whole number written with padding and thousands commas."""
    return int(text.strip().replace(",", ""))


def build(*, puerto_rico: bool) -> pa.Table:
    """One row per county, in the order of the codes, checked."""
    rows = []
    for _, state, county, name, year, force, employed, unemployed, _ in read_source():
        if year.strip() != "2009":
            raise SystemExit(f"{name}: year {year!r} is not 2009")
        if number(force) != number(employed) + number(unemployed):
            raise SystemExit(f"{name}: labour force {force} is not employed {employed} + unemployed {unemployed}")
        if state == PUERTO_RICO and not puerto_rico:
            continue
        rows.append(("US", state, state + county, name.strip(), STATES[state], number(employed), number(unemployed)))
    rows.sort(key=lambda row: row[2])
    names = ["nation", "state", "county", "county_name", "state_name", "employed", "unemployed"]
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    domestic = sum(row[5] + row[6] for row in rows if row[1] != PUERTO_RICO)
    if domestic != TOTAL_LABOUR_FORCE:
        raise SystemExit(f"the labour force of the states and DC is {domestic:,} and should be {TOTAL_LABOUR_FORCE:,}")
    return table


def main() -> None:
    """Write the file beside this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--puerto-rico", action="store_true", help="with the 78 municipios of Puerto Rico")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "us_counties_labor_force_2009.parquet")
    arguments = parser.parse_args()
    table = build(puerto_rico=arguments.puerto_rico)
    pq.write_table(table, arguments.output, compression="zstd")
    print(f"{arguments.output}: {table.num_rows:,} counties in {len(set(table['state'].to_pylist()))} states")


if __name__ == "__main__":
    main()
