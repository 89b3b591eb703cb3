"""Neighbouring tables: the change of one unit's record to which the privacy guarantee refers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Neighbours = Literal["add-remove", "substitute"]

COUNTS_MOVED: Mapping[str, int] = {"add-remove": 1, "substitute": 2}
"""How many disjoint counts of a level differ between neighbours, each by 1: the level's L1 sensitivity, and its squared
L2 sensitivity.
"""

MOST_MEMBERS = 1_000
"""How many persons a household, or another group whose records are protected together, has at most: what such a group
is guaranteed is said for every number of persons up to the largest, and costs its square."""

IN_WORDS: Mapping[str, str] = {
    "add-remove": "one is the other with the record of one {unit} added or removed",
    "substitute": "they have the same number of records and differ in the record of one {unit}",
}
"""The definition of neighbouring tables, to follow "two tables are neighbours if"."""
