"""Cut the small tables of this folder out of the full ones: ``python data/small/derive.py FOLDER [OUTPUT]``.

FOLDER holds the full tables under the names that README.md gives. Rows are copied as they are, but for the tables
that are computed from the whole redistricting file: its persons, its blocks, and what is public about these. What the
tables add up to is checked in tests/system/test_data.py.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

import topdown as td

HERE = Path(__file__).parent
STATES = ("10", "11", "15", "33", "44")  # Delaware, the District of Columbia, Hawaii, New Hampshire, Rhode Island
OF_THE_PAPER = ("04", "35", "48")  # Arizona, New Mexico, Texas
BY_AGE = ("10", "44")
TRACTS = ("44003021200", "44007000500")
KENYAN_COUNTY = "MOMBASA"
PROTOTYPE = "ri_pl94_2018_prototype"
PERSONS, BLOCKS, FACILITIES = "ri_pl94_2018_persons", "ri_pl94_2018_blocks", "ri_pl94_2018_facilities"
TOTALS = "ri_pl94_2018_totals"
PROTOTYPE_TRACT = "44007000500"
GEOCODE, SUMMARY_LEVEL, RECORD = 9, 2, 7
DISTRICTS = {"senate": 67, "house": 72, "voting": 77}
"""The fields of the geographic header that say which districts a block lies in."""


def rows_of(path: Path, keep: Callable[[dict[str, str]], bool], into: Path) -> None:
    """The rows of a CSV that ``keep`` keeps, in their order and with all of their columns, uncompressed."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    with into.open("w", newline="") as output:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
        writer = csv.DictWriter(output, reader.fieldnames or [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in reader if keep(row))


def prototype(folder: Path, into: Path) -> None:
    """One tract's records of the redistricting file, with those of its state and county, in all four members."""
    into.mkdir(exist_ok=True)
    geography = (folder / "rigeo2018_2020Style.pl").read_text(encoding="latin-1").splitlines(keepends=True)
    kept = set()
    for line in geography:
        fields = line.split("|")
        if fields[SUMMARY_LEVEL] in ("040", "050") or fields[GEOCODE].startswith(PROTOTYPE_TRACT):
            kept.add(fields[RECORD])
    for path in sorted(folder.glob("*.pl")):
        at = RECORD if "geo" in path.name else 4
        lines = path.read_text(encoding="latin-1").splitlines(keepends=True)
        (into / path.name).write_text(
            "".join(line for line in lines if line.rstrip("\n").split("|")[at] in kept), encoding="latin-1"
        )


def written(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A CSV of ``rows``."""
    with path.open("w", newline="") as output:
        writer = csv.writer(output, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def redistricting(folder: Path, output: Path) -> None:
    """The redistricting file's persons by block and category (group quarters spread by the rule of
    `topdown.census.redistricting_counts.Redistricting.persons`), its blocks with their names, and the kinds of
    residence that every block has: households where it has housing units, group quarters where table P5 has people in
    them.
    """
    file = td.read_pl94(folder)
    counts = file.persons()
    schema, leaves = counts.schema, counts.geography.tree.leaves
    codes = counts.geography.identifiers[leaves.start :].to_pylist()
    values = counts.values[leaves]
    block, cell = np.nonzero(values)
    places = zip(*np.unravel_index(cell, schema.shape), strict=True)
    rows = (
        (codes[unit], *(a.categories[k] for a, k in zip(schema.attributes, place, strict=True)), values[unit, number])
        for unit, number, place in zip(block, cell, places, strict=True)
    )
    written(output / f"{PERSONS}.csv", ["block", *schema.names, "persons"], rows)
    written(output / f"{TOTALS}.csv", ["block", "persons"], zip(codes, values.sum(axis=1).tolist(), strict=True))
    homes = file.table("H1", "block")
    units, quarters = homes["H0010001"].to_numpy(), file.table("P5", "block")
    names = homes["name"].tolist()
    written(output / f"{BLOCKS}.csv", ["block", "name"], zip(codes, names, strict=True))
    kinds = dict(zip(schema.attributes[0].categories[1:], [2, 3, 4, 5, 7, 8, 9], strict=True))
    nowhere = [kind for kind, field in kinds.items() if not quarters.iloc[:, 2 + field].any()]
    # A kind that has no row at all would be one of which nothing is known.
    there: list[tuple[str, str, str, int, str]] = [(codes[0], "hhgq", kind, 0, "0") for kind in nowhere]
    for unit, code in enumerate(codes):
        if units[unit]:
            there.append((code, "hhgq", "household", 0, ""))
        for kind, field in kinds.items():
            if quarters.iloc[unit, 2 + field]:
                there.append((code, "hhgq", kind, 1, ""))
    written(output / f"{FACILITIES}.csv", ["geoid", "query", "answer", "lower", "upper"], there)


def districts(folder: Path, into: Path) -> None:
    """The districts of every kind that the redistricting file's blocks lie in, a table each."""
    into.mkdir(exist_ok=True)
    lines = (folder / "rigeo2018_2020Style.pl").read_text(encoding="latin-1").splitlines()
    blocks = [fields for line in lines if (fields := line.split("|"))[SUMMARY_LEVEL] == "750"]
    for kind, field in DISTRICTS.items():
        rows = sorted((fields[GEOCODE], fields[field]) for fields in blocks)
        written(into / f"{kind}.csv", ["block", "district"], rows)


def derive(source: Path, output: Path = HERE) -> None:
    """Write all small tables to ``output`` from the full ones in ``source``."""
    output.mkdir(parents=True, exist_ok=True)
    rows_of(
        source / "us_county2010_pop.csv",
        lambda row: row["geoid"].startswith(STATES),
        output / "us_county2010_pop.csv",
    )
    rows_of(
        source / "us_county2010_pop.csv",
        lambda row: row["geoid"].startswith(OF_THE_PAPER),
        output / "us_county2010_pop_of_the_paper.csv",
    )
    rows_of(
        source / "us_county_pop_housingunits_2010.csv",
        lambda row: row["geoid"].startswith(STATES),
        output / "us_county_pop_housingunits_2010.csv",
    )
    rows_of(
        source / "us_county_age_sex_2010.csv.gz",
        lambda row: row["geoid"].startswith(BY_AGE),
        output / "us_county_age_sex_2010.csv",
    )
    rows_of(
        source / "ri_block_race_2010.csv.gz",
        lambda row: row["GEOID"].startswith(TRACTS),
        output / "ri_block_race_2010.csv",
    )
    rows_of(
        source / "kenya_2019_households.csv",
        lambda row: row["county"] == KENYAN_COUNTY,
        output / "kenya_2019_households.csv",
    )
    prototype(source / PROTOTYPE, output / PROTOTYPE)
    redistricting(source / PROTOTYPE, output)
    districts(source / PROTOTYPE, output / "ri_pl94_2018_districts")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    derive(Path(sys.argv[1]), *map(Path, sys.argv[2:]))
