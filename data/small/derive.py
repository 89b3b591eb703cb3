"""Cut the small tables of this folder out of the full ones: ``python data/small/derive.py FOLDER [OUTPUT]``.

FOLDER holds the full tables under the names that README.md gives. Rows are copied as they are; nothing is computed, and
what the tables add up to is checked in tests/system/test_data.py.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
STATES = ("10", "11", "15", "33", "44")  # Delaware, the District of Columbia, Hawaii, New Hampshire, Rhode Island
OF_THE_PAPER = ("04", "35", "48")  # Arizona, New Mexico, Texas
BY_AGE = ("10", "44")
TRACTS = ("44003021200", "44007000500")
KENYAN_COUNTY = "MOMBASA"
PROTOTYPE = "ri_pl94_2018_prototype"
PROTOTYPE_TRACT = "44007000500"
GEOCODE, SUMMARY_LEVEL, RECORD = 9, 2, 7


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


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    derive(Path(sys.argv[1]), *map(Path, sys.argv[2:]))
