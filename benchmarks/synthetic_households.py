"""Synthetic households of real blocks: ``python benchmarks/synthetic_households.py BLOCKS FOLDER [PREFIX]``.

BLOCKS is a table of Rhode Island's blocks as `data/small/ri_block_race_2010.csv` has it: persons by race and Hispanic
origin, and those of 18 and over. These counts are kept in every block; who lives with whom, everybody's age and sex,
tenures, facilities and vacant units are made up, from a public seed, and describe nobody. FOLDER gets

    households.parquet  a row per household: household, geoid, size, type, tenure, hage, hsex, hhispanic, hrace
    persons.parquet     a row per person: household (empty in a facility), geoid, relationship, age, sex, hispanic, race
    blocks.csv          a row per block, all of it public: housing units, and facilities by kind

Every household has one householder of 18 or over, whose age, sex, origin and race are the household's, and at most
`LARGEST` persons; its size and type are those of its members. Every person is in a household, or in a block that has a
facility of its kind. The same on every machine. With PREFIX only blocks whose codes begin with it are written, such as
44001 for a county; what is in them is the same.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SEED = 2010_04_01
LARGEST = 10
"""Persons of the largest households."""

AGES = ("0-4", "5-17", "18-24", "25-34", "35-44", "45-54", "55-59", "60-64", "65-74", "75+")
ADULT_AGES = AGES[2:]
SEXES = ("female", "male")
ORIGINS = ("not Hispanic", "Hispanic")
RACES = ("White", "Black", "AIAN", "Asian", "NHPI", "other", "two or more")
IN_HOUSEHOLDS = ("householder", "spouse", "unmarried partner", "own child under 18", "other in household")
FACILITIES = (
    "correctional",
    "juvenile",
    "nursing",
    "other institutional",
    "college",
    "military",
    "other noninstitutional",
)
RELATIONSHIPS = (*IN_HOUSEHOLDS, *FACILITIES)
SIZES = ("1", "2", "3", "4", "5", "6", "7+")
TYPES = (
    "married, with own children",
    "married, without",
    "cohabiting, with own children",
    "cohabiting, without",
    "other, with own children",
    "other, without",
)
TENURES = ("owner", "renter")

_COLUMNS = ("white", "black", "aian", "asian", "nhpi", "other", "two", "hisp")
"""The table's counts: the seven races of those who are not Hispanic, and all Hispanics."""
_HISPANIC_RACES = (0.36, 0.075, 0.015, 0.005, 0.002, 0.463, 0.08)
_ADULTS_A_HOUSEHOLD = 1.93
_COUPLED, _MARRIED = 0.78, 0.87
_WITH_CHILDREN = 0.31
_LIKE_RACES = 0.9
"""Part of the persons who live with their own race where the block allows it."""
_VACANT = 0.11
_INSTITUTIONS = (0.13, 0.02, 0.25, 0.02, 0.3, 0.03, 0.25)
_SOME_QUARTERS = 0.012
"""Part of the populated blocks where some of the persons live in a facility."""
_LARGE_AND_ADULT = 150, 0.97
"""A block of so many persons, of which more than this part is 18 or over, is most of it a college or a prison."""

HOUSEHOLDER, SPOUSE, PARTNER, CHILD, OTHER = range(5)
Ints = npt.NDArray[np.int64]


class Blocks(NamedTuple):
    """Blocks' codes, and persons (blocks x 2 x 8): below 18 and from 18 on, by `_COLUMNS`."""

    geoid: list[str]
    persons: Ints


class People(NamedTuple):
    """Persons, sorted by block: their block, race, and whether they are Hispanic and 18 or over."""

    block: Ints
    race: Ints
    hispanic: Ints
    adult: npt.NDArray[np.bool_]


class Made(NamedTuple):
    """The three tables."""

    households: pa.Table
    persons: pa.Table
    blocks: list[list[object]]


def read_blocks(path: Path) -> Blocks:
    """The blocks of a table as the repository's small one, compressed or not, in the order of their codes."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = sorted(csv.DictReader(io.StringIO(content.decode("utf-8"))), key=lambda row: row["GEOID"])
    everybody = np.array([[int(row[f"pop_{name}"]) for name in _COLUMNS] for row in rows])
    adults = np.array([[int(row[f"vap_{name}"]) for name in _COLUMNS] for row in rows])
    return Blocks([row["GEOID"] for row in rows], np.stack([everybody - adults, adults], axis=1))


def made(blocks: Blocks, seed: int = SEED) -> Made:
    """Households and persons of ``blocks``. Only uniform numbers are drawn, which are the same in every version."""
    rng = np.random.Generator(np.random.PCG64(seed))
    people = _people(blocks, rng)
    n = len(blocks.geoid)
    facility, facilities = _facilities(people, n, rng)
    home = np.flatnonzero(facility < 0)
    household, relationship = _households(People(*(one[home] for one in people)), n, rng)
    return _tables(blocks, people, facility, facilities, home, household, relationship, rng)


def _people(blocks: Blocks, rng: np.random.Generator) -> People:
    n_columns = blocks.persons.shape[-1]
    cell = np.repeat(np.arange(blocks.persons.size), blocks.persons.reshape(-1))
    block, of_block = np.divmod(cell, 2 * n_columns)
    adult, column = np.divmod(of_block, n_columns)
    hispanic = (column == n_columns - 1).astype(np.int64)
    drawn = np.searchsorted(np.cumsum(_HISPANIC_RACES), rng.random(len(cell))).clip(0, len(RACES) - 1)
    return People(block, np.where(hispanic == 1, drawn, column), hispanic, adult == 1)


def _facilities(people: People, n_blocks: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Of every person the kind of facility, -1 at home; and how many of each there are (blocks x kinds)."""
    total = np.bincount(people.block, minlength=n_blocks)
    adults = np.bincount(people.block, people.adult, n_blocks).astype(np.int64)
    kind = _chosen(_INSTITUTIONS, rng.random(n_blocks))
    size, part = _LARGE_AND_ADULT
    whole = (total >= size) & (adults > part * total)
    some = ~whole & (adults >= 8) & (rng.random(n_blocks) < _SOME_QUARTERS)
    share = np.where(whole, 0.7 + 0.25 * rng.random(n_blocks), np.where(some, 0.05 + 0.4 * rng.random(n_blocks), 0.0))
    of_person = np.where(people.adult & (rng.random(len(people.block)) < share[people.block]), kind[people.block], -1)
    of_person[people.adult & (of_person == FACILITIES.index("juvenile"))] = FACILITIES.index("college")
    # Nobody below 18 lives without an adult.
    left = np.bincount(people.block, people.adult & (of_person < 0), n_blocks)
    minors = np.bincount(people.block, ~people.adult, n_blocks)
    crowded = left * (LARGEST - 1) < minors
    of_person[~people.adult & crowded[people.block]] = FACILITIES.index("juvenile")
    inside = of_person >= 0
    persons = np.bincount(
        people.block[inside] * len(FACILITIES) + of_person[inside], minlength=n_blocks * len(FACILITIES)
    ).reshape(n_blocks, -1)
    return of_person, np.minimum(persons, 1 + (persons > 60) * (1 + (persons > 300)))


def _chosen(weights: tuple[float, ...], uniform: npt.NDArray[np.float64]) -> Ints:
    bounds = np.cumsum(weights) / sum(weights)
    return np.searchsorted(bounds, uniform).clip(0, len(weights) - 1).astype(np.int64)


def _numbered(block: Ints, n_blocks: int) -> Ints:
    """0, 1, ... within each block of a sorted array."""
    sizes = np.bincount(block, minlength=n_blocks)
    return np.arange(len(block)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _households(people: People, n_blocks: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Of every person the household, numbered from 0 by block, and the relationship."""
    n = len(people.block)
    adults = np.bincount(people.block, people.adult, n_blocks).astype(np.int64)
    everybody = np.bincount(people.block, minlength=n_blocks)
    wanted = np.floor(adults / _ADULTS_A_HOUSEHOLD * (0.85 + 0.3 * rng.random(n_blocks)) + rng.random(n_blocks))
    least = -(-everybody // LARGEST)
    number = np.maximum(np.minimum(np.maximum(wanted, adults > 0).astype(np.int64), adults), least)
    first = np.cumsum(number) - number
    # Like live with like: persons of a block in the order of their races, some anywhere.
    apart = rng.random(n) >= _LIKE_RACES
    key = np.where(apart, rng.random(n) * len(RACES), people.race + rng.random(n))
    household, relationship = np.full(n, -1), np.full(n, OTHER)
    rank = np.empty(n, np.int64)
    for adult in (True, False):
        some = np.flatnonzero(people.adult == adult)
        order = some[np.lexsort((rng.random(len(some)), people.block[some]))]
        rank[order] = _numbered(people.block[order], n_blocks)
    heads = people.adult & (rank < number[people.block])
    couples = np.minimum(number, np.floor(_COUPLED * (adults - number) + rng.random(n_blocks)).astype(np.int64))
    partners = people.adult & ~heads & (rank < (number + couples)[people.block])

    def by_race(some: npt.NDArray[np.bool_]) -> Ints:
        places = np.flatnonzero(some)
        return places[np.lexsort((key[places], people.block[places]))]

    ordered = by_race(heads)
    household[ordered] = first[people.block[ordered]] + _numbered(people.block[ordered], n_blocks)
    relationship[ordered] = HOUSEHOLDER
    # Which of a block's households have a couple: as many as there are partners, spread over the order of races.
    ordered = by_race(partners)
    at = _numbered(people.block[ordered], n_blocks)
    of, among = number[people.block[ordered]], couples[people.block[ordered]]
    household[ordered] = first[people.block[ordered]] + at * of // np.maximum(among, 1)
    relationship[ordered] = np.where(rng.random(len(ordered)) < _MARRIED, SPOUSE, PARTNER)
    # Children in some of the households, several in one; the rest of the adults anywhere.
    minors = by_race(~people.adult)
    families = np.maximum(1, np.floor(_WITH_CHILDREN * number + rng.random(n_blocks)).astype(np.int64))
    there = np.bincount(people.block[minors], minlength=n_blocks)
    at, of = _numbered(people.block[minors], n_blocks), people.block[minors]
    family = at * families[of] // np.maximum(there[of], 1)
    household[minors] = first[of] + family * number[of] // families[of]
    relationship[minors] = np.where(rng.random(len(minors)) < 0.94, CHILD, OTHER)
    others = np.flatnonzero(people.adult & (household < 0))
    of = people.block[others]
    household[others] = first[of] + np.floor(rng.random(len(others)) * number[of]).astype(np.int64)
    return _not_too_large(household, relationship, people.block, first, number), relationship


def _not_too_large(household: Ints, relationship: Ints, block: Ints, first: Ints, number: Ints) -> Ints:
    """Members who are too many for a household go to the smallest of their block."""
    sizes = np.bincount(household, minlength=int(number.sum()))
    for large in np.flatnonzero(sizes > LARGEST).tolist():
        members = np.flatnonzero(household == large)
        own = block[members[0]]
        leaving = members[np.isin(relationship[members], (CHILD, OTHER))][: sizes[large] - LARGEST]
        for person in leaving.tolist():
            within = sizes[first[own] : first[own] + number[own]]
            to = int(first[own] + np.argmin(within))
            household[person] = to
            sizes[large] -= 1
            sizes[to] += 1
    return household


def _tables(
    blocks: Blocks,
    people: People,
    facility: Ints,
    facilities: Ints,
    home: Ints,
    household: Ints,
    relationship: Ints,
    rng: np.random.Generator,
) -> Made:
    n, n_homes = len(people.block), int(household.max(initial=-1)) + 1
    of_all, key = np.full(n, OTHER), np.full(n, -1)
    of_all[home], key[home] = relationship, household
    of_all[facility >= 0] = len(IN_HOUSEHOLDS) + facility[facility >= 0]
    has = np.zeros((n_homes, len(IN_HOUSEHOLDS)), bool)
    has[household, relationship] = True
    sex = _sexes(of_all, key, n_homes, rng)
    age = _ages(of_all, key, people.adult, has, rng)
    head = np.empty(n_homes, np.int64)
    heads = np.flatnonzero(of_all == HOUSEHOLDER)
    head[key[heads]] = heads
    couple = np.where(has[:, SPOUSE], 0, np.where(has[:, PARTNER], 1, 2))
    kind = 2 * couple + ~has[:, CHILD]
    size = np.bincount(household, minlength=n_homes)
    owner = rng.random(n_homes) < np.clip(0.12 + 0.075 * age[head] + 0.2 * (couple == 0), 0.05, 0.92)
    geoid = np.array(blocks.geoid)
    names = np.array([f"{k + 1:07d}" for k in range(n_homes)] + [""])

    def column(codes: Ints, categories: tuple[str, ...]) -> pa.Array:
        return pa.array(np.array(categories)[codes])

    households = pa.table(
        {
            "household": pa.array(names[:-1]),
            "geoid": pa.array(geoid[people.block[head]]),
            "size": column(np.minimum(size, len(SIZES)) - 1, SIZES),
            "type": column(kind, TYPES),
            "tenure": column(np.where(owner, 0, 1), TENURES),
            "hage": column(age[head], AGES),
            "hsex": column(sex[head], SEXES),
            "hhispanic": column(people.hispanic[head], ORIGINS),
            "hrace": column(people.race[head], RACES),
        }
    )
    persons = pa.table(
        {
            "household": pa.array(names[key]),
            "geoid": pa.array(geoid[people.block]),
            "relationship": column(of_all, RELATIONSHIPS),
            "age": column(age, AGES),
            "sex": column(sex, SEXES),
            "hispanic": column(people.hispanic, ORIGINS),
            "race": column(people.race, RACES),
        }
    )
    order = pa.array(np.lexsort((of_all, np.where(key < 0, n_homes, key), people.block)))
    lived_in = np.bincount(people.block[head], minlength=len(geoid))
    # Some units in blocks where nobody lives as well.
    vacant = np.floor(_VACANT * (lived_in + 0.3) * 2 * rng.random(len(geoid)) + rng.random(len(geoid)) * 0.6)
    rows: list[list[object]] = [
        [code, int(units), *map(int, kinds)]
        for code, units, kinds in zip(blocks.geoid, lived_in + vacant, facilities, strict=True)
    ]
    return Made(households, persons.take(order), rows)


def _sexes(relationship: Ints, key: Ints, n_homes: int, rng: np.random.Generator) -> Ints:
    sex = (rng.random(len(key)) < 0.487).astype(np.int64)
    of_head = np.empty(n_homes, np.int64)
    heads = relationship == HOUSEHOLDER
    of_head[key[heads]] = sex[heads]
    coupled = (relationship == SPOUSE) | (relationship == PARTNER)
    same = rng.random(int(coupled.sum())) < 0.03
    sex[coupled] = np.where(same, of_head[key[coupled]], 1 - of_head[key[coupled]])
    return sex


def _ages(
    relationship: Ints,
    key: Ints,
    adult: npt.NDArray[np.bool_],
    has: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> Ints:
    """Codes of `AGES`; a householder's by the type of household, a partner's beside it."""
    n = len(key)
    any_adult = 2 + _chosen((0.13, 0.17, 0.17, 0.19, 0.08, 0.07, 0.1, 0.09), rng.random(n))
    parent = 2 + _chosen((0.06, 0.28, 0.38, 0.23, 0.03, 0.01, 0.01, 0.0), rng.random(n))
    student = 2 + _chosen((0.92, 0.06, 0.02), rng.random(n))
    resident = 2 + _chosen((0.0, 0.0, 0.02, 0.05, 0.05, 0.08, 0.2, 0.6), rng.random(n))
    minor = (rng.random(n) < 0.74).astype(np.int64)
    age = np.where(adult, any_adult, minor)
    with_children = np.zeros(n, bool)
    with_children[key >= 0] = has[key[key >= 0], CHILD]
    age = np.where(with_children & (relationship == HOUSEHOLDER), parent, age)
    coupled = (relationship == SPOUSE) | (relationship == PARTNER)
    of_head = np.empty(len(has), np.int64)
    heads = relationship == HOUSEHOLDER
    of_head[key[heads]] = age[heads]
    near = np.zeros(n, np.int64)
    near[coupled] = of_head[key[coupled]]
    step = np.floor(3 * rng.random(n)).astype(np.int64) - 1
    age = np.where(coupled, np.clip(near + step, 2, len(AGES) - 1), age)
    college, nursing = (len(IN_HOUSEHOLDS) + FACILITIES.index(kind) for kind in ("college", "nursing"))
    age = np.where(relationship == college, student, age)
    return np.where((relationship == nursing) & adult, resident, age)


def write(tables: Made, folder: Path) -> None:
    """The three files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("households", tables.households), ("persons", tables.persons)):
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    with (folder / "blocks.csv").open("w", newline="") as output:
        writer = csv.writer(output, lineterminator="\n")
        writer.writerow(["geoid", "units", *FACILITIES])
        writer.writerows(tables.blocks)


def only(tables: Made, prefix: str) -> Made:
    """The tables of the blocks whose codes begin with ``prefix``."""
    kept = [table.filter(pc.starts_with(table["geoid"], prefix)) for table in tables[:2]]
    return Made(*kept, [row for row in tables.blocks if str(row[0]).startswith(prefix)])


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    found = only(made(read_blocks(Path(sys.argv[1]))), "".join(sys.argv[3:]))
    write(found, Path(sys.argv[2]))
    print(
        f"{len(found.blocks):,} blocks, {found.households.num_rows:,} households, {found.persons.num_rows:,} persons, "
        f"{sum(int(row[1]) for row in found.blocks):,} housing units"  # type: ignore[call-overload]
    )
