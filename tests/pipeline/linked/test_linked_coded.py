"""The two layouts of the Census Bureau's microdata files of 2020 as linked tables: codes in columns of their names."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.places import SMALL_DATA, Command
from topdown.config import load_linked
from topdown.config.linked_settings import CodedOptions
from topdown.errors import ConfigError
from topdown.linked.universe import LinkedQuery
from topdown.pipeline.linked.linked_draw import check_linked_tables
from topdown.release.linked_release import verify_linked

DHC_TOML = """
[input]
rows = "long"
households = "units.txt"
persons = "persons.txt"
public = "blocks.csv"
units = "units"

[input.where.households]
RTYPE = "2"
VACS = "0"

[input.coded.households]
size = { column = "HHSIZE", categories = { 1 = "1", 2 = "2", 3 = "3", "4+" = "4-7" } }
couple = { column = "CPLT", categories = { married = ["1", "2"], cohabiting = "3-4", none = "0" } }
origin = { column = "HHSPAN", categories = { other = "1", Hispanic = "2" } }

[input.coded.persons]
relationship = { column = "RELSHIP", categories = { householder = "20", spouse = ["21", "23"], partner = ["22", "24"], other = "25-36", institutional = "37", noninstitutional = "38" } }
origin = { column = "CENHISP", categories = { other = "1", Hispanic = "2" } }
age = { column = "QAGE", categories = { minor = "0-17", adult = "18-115" } }

[geography]
units = "blocks.csv"
levels = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
separator = ""

[schemas.households]
size = ["1", "2", "3", "4+"]
couple = ["married", "cohabiting", "none"]
origin = ["other", "Hispanic"]

[schemas.persons]
relationship = ["householder", "spouse", "partner", "other", "institutional", "noninstitutional"]
origin = ["other", "Hispanic"]
age = ["minor", "adult"]

[[zeros.persons]]
relationship = ["householder", "spouse", "partner"]
age = "minor"

[link]
facilities = [{ name = "institutional", counted = false }, { name = "noninstitutional", counted = false }]

[link.householder]
persons = "relationship = householder and age = adult"
same = { origin = "origin" }

[[link.members]]
group = "spouse"
per = { "couple = married" = 1 }

[[link.members]]
group = "partner"
per = { "couple = cohabiting" = 1 }

[[link.members]]
group = "other"

[link.members_total]
size = "size - 1"
open = "4+"

[privacy]
rho = "4"
units = ["person", { household = 10 }]
shares = { persons = "1/2", households = "1/2" }

[projection]
method = "top-down"

[output]
directory = "out"
"""  # noqa: E501 # lines of TOML


def geography(codes: pd.Series) -> dict[str, pd.Series]:
    """The columns of blocks, as the files have them."""
    places = {
        "TABBLKST": (0, 2),
        "TABBLKCOU": (2, 5),
        "TABTRACTCE": (5, 11),
        "TABBLKGRPCE": (11, 12),
        "TABBLK": (11, 15),
    }
    return {name: codes.str[slice(*place)] for name, place in places.items()}


@pytest.fixture
def dhc(tmp_path: Path) -> Path:
    """The small synthetic tables in the layout of the DHC's microdata: a TOML file, and beside it both files."""
    rng = np.random.default_rng(3)
    homes, people = (
        pd.read_parquet(SMALL_DATA / "ri_linked" / f"{name}.parquet") for name in ("households", "persons")
    )
    blocks = pd.read_csv(SMALL_DATA / "ri_linked" / "blocks.csv", dtype={"geoid": str})
    couple = homes["type"].str.split(",").str[0].map({"married": "1", "cohabiting": "3", "other": "0"})
    units = pd.DataFrame(
        {
            **geography(homes["geoid"]),
            **{"RTYPE": "2", "GQTYPE": "000", "VACS": "0", "HHSIZE": homes["size"].str[0], "CPLT": couple},
            "HHSPAN": homes["hhispanic"].map({"not Hispanic": "1", "Hispanic": "2"}),
        }
    )
    vacant = units.head(9).assign(VACS="1", HHSIZE="0", HHSPAN="0")
    quarters = units.head(3).assign(RTYPE="4", GQTYPE="301", HHSIZE="0", HHSPAN="0")
    pd.concat([vacant, units, quarters]).to_csv(tmp_path / "units.txt", sep="|", index=False)
    relationship = people["relationship"].map(
        {"householder": "20", "spouse": "21", "unmarried partner": "22", "own child under 18": "25"}
        | {"other in household": "34", "other noninstitutional": "38"}
    )
    minor = people["age"].isin(["0-4", "5-17"])
    age = np.where(minor, rng.integers(0, 18, len(people)), rng.integers(18, 116, len(people)))
    persons = pd.DataFrame(
        {
            **geography(people["geoid"]),
            **{"RTYPE": "3", "GQTYPE": "000", "RELSHIP": relationship, "QSEX": "1", "QAGE": age},
            "CENHISP": people["hispanic"].map({"not Hispanic": "1", "Hispanic": "2"}),
            "CENRACE": "01",
        }
    )
    persons.to_csv(tmp_path / "persons.txt", sep="|", index=False)
    pd.DataFrame({**geography(blocks["geoid"]), "units": blocks["units"]}).to_csv(tmp_path / "blocks.csv", index=False)
    path = tmp_path / "run.toml"
    path.write_text(DHC_TOML)
    return path


def test_the_layout_of_the_dhc_is_read(dhc: Path, topdown: Command) -> None:
    config = load_linked(dhc)
    counts = check_linked_tables(config).counts
    homes, people = (
        pd.read_parquet(SMALL_DATA / "ri_linked" / f"{name}.parquet") for name in ("households", "persons")
    )

    def answered(text: str) -> list[int]:
        found = counts.answers(LinkedQuery.parse(text, config.universe), slice(0, 1))
        return [int(one) for one in found[0]]

    sizes = homes["size"].str[0].clip(upper="4").value_counts().sort_index().tolist()
    assert answered("households: size") == sizes
    origin = homes["hhispanic"].value_counts()
    assert answered("households: origin") == [origin["not Hispanic"], origin["Hispanic"]]
    relationship = people["relationship"].value_counts()
    inside = relationship["own child under 18"] + relationship["other in household"]
    assert answered("persons: relationship") == [
        *(relationship[name] for name in ("householder", "spouse", "unmarried partner")),
        *(inside, 0, relationship["other noninstitutional"]),
    ]
    minors = int(people["age"].isin(["0-4", "5-17"]).sum())
    assert answered("persons: age") == [minors, len(people) - minors]
    done = topdown("run", dhc, "--quiet")
    assert done.returncode == 0, done.stderr
    assert verify_linked(dhc.parent / "out" / "public").impossible == 0


def test_rows_are_chosen_by_ranges_and_by_missing_codes(dhc: Path) -> None:
    def answered(where: str) -> list[int]:
        dhc.write_text(DHC_TOML.replace("[input.where.households]", f"{where}\n[input.where.households]"))
        config = load_linked(dhc)
        query = LinkedQuery.parse("persons: total", config.universe)
        return [int(one) for one in check_linked_tables(config).counts.answers(query, slice(0, 1))[0]]

    everybody = answered("")
    assert answered('[input.where.persons]\nRELSHIP = "20-38"') == everybody
    assert answered('[input.where.persons]\nRELSHIP = ["20-25", "26-38"]') == everybody
    persons = pd.read_csv(dhc.parent / "persons.txt", sep="|", dtype=str)
    persons.loc[persons.index % 2 == 0, "CENRACE"] = ""
    persons.to_csv(dhc.parent / "persons.txt", sep="|", index=False)
    assert answered('[input.where.persons]\nCENRACE = ["01", ""]') == everybody


def test_the_layout_of_the_redistricting_file_is_read_alike(dhc: Path) -> None:
    """Its persons say their residence, and no householder: every household has one person at least."""
    text = DHC_TOML[: DHC_TOML.index("[input.where")]
    text += """
[input.where.households]
HH_STATUS = "1"

[input.coded.households]
persons = { column = "HH_STATUS", categories = { "1+" = "1" } }

[input.coded.persons]
residence = { column = "GQTYPE_PL", categories = { household = "0", quarters = "1-7" } }
race = { column = "CENRACE", categories = { white = "01", black = "02", other = "03-63" } }
"""
    text += DHC_TOML[DHC_TOML.index("\n[geography]") : DHC_TOML.index("[schemas.households]")]
    text += """
[schemas.households]
persons = ["1+"]

[schemas.persons]
residence = ["household", "quarters"]
race = ["white", "black", "other"]

[link]
facilities = [{ name = "quarters", persons = "residence = quarters", counted = false }]

[[link.members]]
group = "in households"
persons = "residence = household"

[link.members_total]
size = "persons"
open = "1+"
"""
    text += DHC_TOML[DHC_TOML.index("\n[privacy]") :]
    dhc.write_text(text)
    folder = dhc.parent
    units = pd.read_csv(folder / "units.txt", sep="|", dtype=str)
    status = np.where(units["RTYPE"] == "4", "0", np.where(units["VACS"] == "0", "1", "2"))
    units[[*geography(units["TABBLK"])]].assign(RTYPE=units["RTYPE"], HH_STATUS=status).to_csv(
        folder / "units.txt", index=False
    )
    persons = pd.read_csv(folder / "persons.txt", sep="|", dtype=str)
    quarters = np.where(persons["RELSHIP"] == "38", "7", "0")
    races = np.resize(["01", "02", "03", "63"], len(persons))
    persons[[*geography(persons["TABBLK"])]].assign(GQTYPE_PL=quarters, CENRACE=races).to_csv(
        folder / "persons.txt", index=False
    )
    config = load_linked(dhc)
    counts = check_linked_tables(config).counts
    found = counts.answers(LinkedQuery.parse("persons: race", config.universe), slice(0, 1))[0]
    assert found.tolist() == [(races == "01").sum(), (races == "02").sum(), np.isin(races, ["03", "63"]).sum()]
    assert counts.answers(LinkedQuery.parse("households: total", config.universe), slice(0, 1)).tolist() == [[2500]]


def coded(*given: str) -> list[str]:
    """The codes of a category of which ``given`` is written."""
    return list(CodedOptions(column="code", categories={"some": list(given)}).codes()["some"])


@pytest.mark.parametrize("written", ["08-11", "08–11", "08 - 11", " 08 –11 "])
def test_two_numbers_with_a_dash_between_them_are_a_range(written: str) -> None:
    assert coded(written) == ["08", "09", "10", "11"]


@pytest.mark.parametrize("written", ["1-2-3", "A-B", "1 A", "21-", "-5", "4-7+", "1—2", " 20", "²"])
def test_any_other_text_is_a_code(written: str) -> None:
    assert coded(written) == [written]


def test_many_codes_are_read_at_once() -> None:
    """In a time that grows with their number, and not with its square."""
    began = time.process_time()
    assert len(coded("21-36", "1000-100999")) == 100_016
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("0-1000000", "the range '0-1000000' has more than 1,000,000 codes"),
        (f"1-1{'0' * 5000}", "more than 100 digits"),
        ("1-²", "has digits that are not 0 to 9"),
    ],
)
def test_ranges_that_cannot_be_meant(written: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^input.coded: .*{said}"):
        coded(written)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('other = "25-36"', 'other = "25-35"'), "(row .*): column 'RELSHIP' has a code that no category of"),
        (('other = "25-36"', 'other = "20-36"'), "code '20' of column 'RELSHIP' stands twice"),
        (('other = "25-36"', 'other = "36-25"'), "the range '36-25' has no codes"),
        (('none = "0"', 'nobody = "0"'), "give each category of the schema some: 'married', 'cohabiting', 'none'"),
        (("[input.coded.persons]", "[input.coded.people]"), "unknown table: 'people'"),
        (('column = "QAGE"', 'column = "AGE"'), "AGE"),
        (("VACS = ", "VACANT = "), "VACANT"),
        (('VACS = "0"', "VACS = []"), "input.where.households.VACS names no value"),
        (('VACS = "0"', 'VACS = "9-3"'), "the range '9-3' has no codes"),
        (('VACS = "0"', 'VACS = "5-7"'), "households: no row of those that are looked at has a value in column 'VACS'"),
        (('units = "units"', 'units = "units"\nfacilities = { nursing = "nh" }'), "unknown facility in input"),
    ],
)  # fmt: skip
def test_codes_that_cannot_be_meant(change: tuple[str, str], said: str, dhc: Path, topdown: Command) -> None:
    import re

    assert change[0] in DHC_TOML
    text = DHC_TOML.replace(*change)
    dhc.write_text(text)
    if said.startswith("(row"):
        persons = pd.read_csv(dhc.parent / "persons.txt", sep="|", dtype=str)
        persons.loc[4, "RELSHIP"] = "36"
        persons.to_csv(dhc.parent / "persons.txt", sep="|", index=False)
        said = "row 4 of persons: column 'RELSHIP' has a code that no category of 'relationship' has"
    done = topdown("run", dhc, "--quiet")
    assert done.returncode in (ConfigError.exit_code, 3)
    assert re.search(re.escape(said), " ".join(done.stderr.split())), done.stderr
    assert not (dhc.parent / "out").exists()
