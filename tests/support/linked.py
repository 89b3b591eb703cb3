"""Universes of households and persons, small and as large as a census."""

from __future__ import annotations

import shutil
from pathlib import Path

import topdown as td
from support.places import REPOSITORY, SMALL_DATA
from topdown.linked.member_groups import MemberGroup, MembersTotal
from topdown.linked.universe import Facility, Householder, Universe
from topdown.workload.schema import Zero

SIZES = ("1", "2", "3", "4", "5", "6", "7+")
TYPES = ("married_children", "married", "cohabiting_children", "cohabiting", "other_children", "other")


def _type(*parts: str) -> Zero:
    """The condition on types of households that have one of ``parts`` in their name's words."""
    return (("type", tuple(kind for kind in TYPES if set(parts) & set(kind.split("_")))),)


def census(races: int = 7, ages: int = 8, largest: int = 12) -> Universe:
    """Size x type x tenure x the householder's age, sex, Hispanic origin and race; persons by relationship, age, sex,
    Hispanic origin and race."""
    adult = tuple(f"adult {k + 1}" for k in range(ages))
    race = tuple(f"race {k + 1}" for k in range(races))
    sexes, hispanic = ("male", "female"), ("not hispanic", "hispanic")
    households = td.Schema.from_mapping(
        {
            "size": SIZES,
            "type": TYPES,
            "tenure": ("owned", "rented"),
            "hage": adult,
            "hsex": sexes,
            "hhispanic": hispanic,
            "hrace": race,
        },
    )
    persons = td.Schema.from_mapping(
        {
            "relationship": ("householder", "spouse", "partner", "child", "other", "prison", "dormitory"),
            "age": ("minor", *adult),
            "sex": sexes,
            "hispanic": hispanic,
            "race": race,
        },
        recodes={"age": {"adulthood": {"under 18": ("minor",), "18 and over": adult}}},
        zeros=[{"relationship": ("householder", "spouse", "partner", "prison"), "age": "minor"}],
    )
    groups = (
        MemberGroup("spouse", ((("relationship", ("spouse",)),),), ((_type("married"), 1, 1),)),
        MemberGroup("partner", ((("relationship", ("partner",)),),), ((_type("cohabiting"), 1, 1),)),
        MemberGroup(
            "own child under 18",
            ((("relationship", ("child",)), ("adulthood", ("under 18",))),),
            ((_type("children"), 1, None),),
        ),
        MemberGroup(
            "other",
            ((("relationship", ("other",)),), (("relationship", ("child",)), ("adulthood", ("18 and over",)))),
            (((), 0, None),),
        ),
    )
    facilities = tuple(Facility(kind, ((("relationship", (kind,)),),)) for kind in ("prison", "dormitory"))
    same = (("age", "hage"), ("sex", "hsex"), ("hispanic", "hhispanic"), ("race", "hrace"))
    return Universe(
        households,
        persons,
        groups,
        MembersTotal("size", tuple(range(7)), (*range(6), largest)),
        Householder((("relationship", ("householder",)),), same),
        facilities,
    )


def schools() -> Universe:
    """Schools and their pupils: nobody's attributes are the school's."""
    return Universe(
        td.Schema.from_mapping({"kind": ["primary", "secondary"], "size": ["0", "1", "2+"]}),
        td.Schema.from_mapping({"grade": ["low", "high"], "sex": ["female", "male"]}),
        (
            MemberGroup("low", ((("grade", ("low",)),),), (((("kind", ("primary",)),), 0, None),)),
            MemberGroup("high", ((("grade", ("high",)),),), (((), 0, None),)),
        ),
        MembersTotal("size", (0, 1, 2), (0, 1, 900)),
        names=("schools", "pupils"),
    )


RHODE_ISLAND_FACILITIES = (
    "correctional",
    "juvenile",
    "nursing",
    "other institutional",
    "college",
    "military",
    "other noninstitutional",
)
RHODE_ISLAND_LINK = """
facilities = [FACILITIES]

[householder]
persons = 'relationship = "householder"'
same = { age = "hage", sex = "hsex", hispanic = "hhispanic", race = "hrace" }

[[members]]
group = "spouse"
per = { "type in [married*]" = 1 }

[[members]]
group = "unmarried partner"
persons = "relationship = unmarried partner"
per = { "type in [cohabiting*]" = [1, 1] }

[[members]]
group = "own child under 18"

[members.per]
'type in ["married, with own children", "cohabiting, with own children", "other, with own children"]' = [1, "rest"]

[[members]]
group = "other in household"

[members_total]
size = "size - 1"
open = "7+"
largest = 10
""".replace("FACILITIES", ", ".join(f'{{ name = "{kind}" }}' for kind in RHODE_ISLAND_FACILITIES))  # fmt: skip
"""The section [link] of the universe of `rhode_island`."""


def rhode_island(largest: int = 10) -> Universe:
    """The universe of the synthetic households of `data/small/ri_linked`, as `benchmarks/synthetic_households.py` makes
    them."""
    ages = ("0-4", "5-17", "18-24", "25-34", "35-44", "45-54", "55-59", "60-64", "65-74", "75+")
    sexes, origins = ("female", "male"), ("not Hispanic", "Hispanic")
    races = ("White", "Black", "AIAN", "Asian", "NHPI", "other", "two or more")
    married, cohabiting = (
        ("married, with own children", "married, without"),
        (
            "cohabiting, with own children",
            "cohabiting, without",
        ),
    )
    others = ("other, with own children", "other, without")
    kinds = RHODE_ISLAND_FACILITIES
    households = td.Schema.from_mapping(
        {
            "size": SIZES,
            "type": (*married, *cohabiting, *others),
            "tenure": ("owner", "renter"),
            "hage": ages[2:],
            "hsex": sexes,
            "hhispanic": origins,
            "hrace": races,
        },
        recodes={"size": {"alone": {"alone": SIZES[:1], "several": SIZES[1:]}}},
    )
    adults = ("householder", "spouse", "unmarried partner")
    persons = td.Schema.from_mapping(
        {
            "relationship": (*adults, "own child under 18", "other in household", *kinds),
            "age": ages,
            "sex": sexes,
            "hispanic": origins,
            "race": races,
        },
        recodes={"age": {"adulthood": {"under 18": ages[:2], "18 and over": ages[2:]}}},
        zeros=[
            {"relationship": adults, "adulthood": "under 18"},
            {"relationship": "own child under 18", "adulthood": "18 and over"},
        ],
    )

    def group(name: str, kinds: tuple[str, ...], least: int, most: int | None) -> MemberGroup:
        condition: Zero = (("type", kinds),) if kinds else ()
        return MemberGroup(name, ((("relationship", (name,)),),), ((condition, least, most),))

    return Universe(
        households,
        persons,
        (
            group("spouse", married, 1, 1),
            group("unmarried partner", cohabiting, 1, 1),
            group("own child under 18", (married[0], cohabiting[0], others[0]), 1, None),
            group("other in household", (), 0, None),
        ),
        MembersTotal("size", tuple(range(7)), (*range(6), largest - 1)),
        Householder(
            (("relationship", ("householder",)),),
            (("age", "hage"), ("sex", "hsex"), ("hispanic", "hhispanic"), ("race", "hrace")),
        ),
        tuple(Facility(kind, ((("relationship", (kind,)),),)) for kind in kinds),
    )


SMALL_LINKED = REPOSITORY / "pipelines" / "persons_and_households_small.toml"


def configured(folder: Path, *changes: tuple[str, str]) -> Path:
    """The small pipeline's file in ``folder``, its tables beside it, with texts replaced."""
    for name in ("households.parquet", "persons.parquet", "blocks.csv"):
        if not (folder / name).exists():
            shutil.copy(SMALL_DATA / "ri_linked" / name, folder / name)
    text = SMALL_LINKED.read_text().replace("../data/small/ri_linked/", "").replace("../output/", "")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / "run.toml"
    path.write_text(text)
    return path
