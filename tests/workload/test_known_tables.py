"""The DHC's tables by their own names: every field counts whom the list of variables says."""

from __future__ import annotations

import string

import numpy as np
import numpy.typing as npt
import pytest

from topdown.errors import ConfigError
from topdown.workload import Query
from topdown.workload.answer_tables import answer_column, answer_tables, known_columns
from topdown.workload.dhc import DHC_PERSONS
from topdown.workload.redistricting import PERSONS

RNG = np.random.default_rng(7)
CELLS = np.sort(RNG.permutation(DHC_PERSONS.possible_cells())[:40_000])
COUNTS = RNG.integers(1, 9, len(CELLS))
PLACES = dict(zip(DHC_PERSONS.names, np.unravel_index(CELLS, DHC_PERSONS.shape), strict=True))
RACES = DHC_PERSONS.attribute("cenrace").categories


def table(name: str) -> npt.NDArray[np.int64]:
    """The fields of a table, of the persons above."""
    (found,) = answer_tables([name], DHC_PERSONS)
    answers: dict[Query, npt.NDArray[np.int64]] = {}
    rows = np.zeros(len(CELLS), np.int64)
    for query in found.queries:
        answers[query] = query.sparse_answers(rows, CELLS, COUNTS, 1)[0]
    return np.array([answers[column.query][column.answer] for column in found.columns])


def counted(**chosen: npt.NDArray[np.bool_] | int) -> int:
    """How many persons have all of these categories, by number or as a choice among all."""
    inside = np.ones(len(CELLS), np.bool_)
    for name, one in chosen.items():
        inside &= PLACES[name] == one if isinstance(one, int) else one[PLACES[name]]
    return int(COUNTS[inside].sum())


def ages(first: int, last: int) -> npt.NDArray[np.bool_]:
    every = np.arange(len(DHC_PERSONS.attribute("age").categories))
    return np.asarray((every >= first) & (every <= last))


def kinds(*codes: str) -> npt.NDArray[np.bool_]:
    return np.array([name.split()[-1] in codes for name in DHC_PERSONS.attribute("relgq").categories])


def test_tables_have_as_many_fields_as_were_published_with_their_names() -> None:
    sizes = {"P1": 1, "P3": 8, "P4": 3, "P5": 17, "P8": 71, "P9": 73, "P10": 71, "P11": 73, "P12": 49, "P18": 63}
    sizes |= {f"P12{letter}": 49 for letter in string.ascii_uppercase[:22]}
    sizes |= {f"PCT12{letter}": 209 for letter in ("", *string.ascii_uppercase[:15])}
    for name, size in sizes.items():
        (found,) = answer_tables([name], DHC_PERSONS)
        assert [column.name for column in found.columns] == [f"{name}_{k:03d}N" for k in range(1, size + 1)]


def test_fields_count_whom_the_list_of_variables_says() -> None:
    everybody = int(COUNTS.sum())
    white, several = RACES.index("white"), np.array(["+" in race for race in RACES])
    p12, pct12, p18 = table("P12"), table("PCT12"), table("P18")
    expected = {
        ("P1", 1): everybody,
        ("P3", 2): counted(cenrace=white),
        ("P3", 8): counted(cenrace=several),
        ("P4", 2): counted(hispanic=0),
        ("P5", 3): counted(hispanic=0, cenrace=white),
        ("P5", 10): counted(hispanic=1),
        ("P5", 17): counted(hispanic=1, cenrace=several),
        ("P8", 3): counted(cenrace=white),
        ("P9", 2): counted(hispanic=1),
        ("P10", 1): counted(age=ages(18, 115)),
        ("P10", 9): counted(age=ages(18, 115), cenrace=several),
        ("P11", 5): counted(age=ages(18, 115), hispanic=0, cenrace=white),
        ("P12", 3): counted(sex=0, age=ages(0, 4)),
        ("P12", 6): counted(sex=0, age=ages(15, 17)),
        ("P12", 8): counted(sex=0, age=20),
        ("P12", 18): counted(sex=0, age=ages(60, 61)),
        ("P12", 25): counted(sex=0, age=ages(85, 115)),
        ("P12", 26): counted(sex=1),
        ("P12", 49): counted(sex=1, age=ages(85, 115)),
        ("P12B", 27): counted(sex=1, age=ages(0, 4), cenrace=RACES.index("black")),
        ("P12H", 1): counted(hispanic=1),
        ("P12J", 1): counted(hispanic=0, cenrace=RACES.index("black")),
        ("P12N", 1): counted(hispanic=0, cenrace=RACES.index("sor")),
        ("P12P", 1): counted(hispanic=1, cenrace=white),
        ("P12V", 1): counted(hispanic=1, cenrace=several),
        ("PCT12", 3): counted(sex=0, age=0),
        ("PCT12", 102): counted(sex=0, age=99),
        ("PCT12", 103): counted(sex=0, age=ages(100, 104)),
        ("PCT12", 107): counted(sex=1, age=0),
        ("PCT12", 209): counted(sex=1, age=ages(110, 115)),
        ("PCT12O", 1): counted(hispanic=0, cenrace=several),
        ("P18", 5): counted(sex=0, age=ages(0, 17), relgq=kinds("101", "102", "103", "104", "105", "106")),
        ("P18", 15): counted(sex=0, age=ages(18, 64), relgq=kinds("101", "102", "103", "104", "105", "106")),
        ("P18", 27): counted(sex=0, age=ages(65, 115), relgq=kinds("301")),
        ("P18", 63): counted(
            sex=1, age=ages(65, 115), relgq=kinds("701", "801", "802", "900", "901", "997")
        ),
    }  # fmt: skip
    for (name, field), count in expected.items():
        assert table(name)[field - 1] == count, (name, field)
        assert count > 0 or name == "P12B"
    assert p12[0] == p12[1] + p12[25] == everybody
    assert p12[1] == p12[2:25].sum()
    assert pct12[105] == pct12[106:].sum()
    assert p18[0] == p18[1] + p18[32]
    assert p18[2] == p18[3] + p18[8]
    assert p18[3] == p18[4:8].sum()
    assert np.array_equal(sum(table(f"P12{letter}") for letter in "ABCDEFG"), p12)
    assert np.array_equal(sum(table(f"P12{letter}") for letter in "HIJKLMNO"), p12)
    assert np.array_equal(sum(table(f"P12{letter}") for letter in "PQRSTUV"), table("P12H"))


def test_one_name_means_the_table_of_the_schema_s_own_publication() -> None:
    of_dhc, of_file = answer_tables(["P1"], DHC_PERSONS), answer_tables(["P1"], PERSONS)
    assert len(of_dhc[0].columns) == 1
    assert len(of_file[0].columns) == 71
    assert known_columns("P0010003", DHC_PERSONS) is None
    assert answer_column("total", "P12_003N", DHC_PERSONS).meaning == "sex = male, age group = 0 to 4"
    assert answer_column("P12_003N", None, DHC_PERSONS).name == "P12_003N"
    with pytest.raises(ConfigError, match="P12_003N"):
        answer_column("P12", "P12_3N", DHC_PERSONS)
    with pytest.raises(ConfigError, match="unknown"):
        answer_tables(["P12W"], DHC_PERSONS)
