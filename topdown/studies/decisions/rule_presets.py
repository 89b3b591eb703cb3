"""Rules of existing laws and funds, by name, for a study's ``preset``.

A preset needs names (`RulePreset.asks`), which the user gives as cells, sums or columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from topdown.errors import ConfigError, require_known
from topdown.geography.tree import FloatArray, Tree
from topdown.studies.decisions.expression_rules import Rule
from topdown.wording import listed, shown


@dataclass(frozen=True, eq=False)
class Seats(Rule):
    """Seats of a parliament by equal proportions (Huntington and Hill): one to every unit, then one by one to the unit
    with the largest population / sqrt(s (s + 1)), s being its seats so far; the first of equal ones.

    ``figure``: the population. ``seats``: how many there are in all. Raises `ConfigError` for fewer seats than units.
    Source: 2 U.S.C. 2a.
    """

    seats: int = 435

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """(..., units): seats of every unit."""
        people = super().outcome(values, cells, tree)
        units = people.shape[-1]
        if self.seats < units:
            raise ConfigError(
                f"rule {shown(self.name)} has {self.seats} seats for {units:,} units; give one to each at least"
            )
        rows = np.maximum(people.reshape(-1, units), 0.0)
        found = np.ones_like(rows)
        every = np.arange(len(rows))
        for _ in range(self.seats - units):
            found[every, np.argmax(rows / np.sqrt(found * (found + 1.0)), axis=1)] += 1.0
        return found.reshape(people.shape)


@dataclass(frozen=True, eq=False)
class Suppression(Rule):
    """Suppression of small counts: 1 for every unit whose ``figure`` is above 0 and below ``least``. Where that is only
    one unit under its parent, the smallest other count above 0 is suppressed, too, since the parent's count would
    reveal the first.
    """

    least: float = 10.0

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """(..., units): 1 where the count is suppressed."""
        count = super().outcome(values, cells, tree)
        hidden = (count > 0) & (count < self.least)
        units = self.nodes(tree)
        if self.areas is not None or units.start == 0:
            return hidden.astype(np.float64)
        parent = tree.parent[units] - tree.parent[units.start]
        first = np.searchsorted(parent, np.arange(int(parent[-1]) + 1))
        alone = np.add.reduceat(hidden.astype(np.float64), first, axis=-1) == 1
        rest = np.where(hidden | (count <= 0), np.inf, count)
        smallest = np.minimum.reduceat(rest, first, axis=-1)
        second = alone[..., parent] & (rest == smallest[..., parent]) & np.isfinite(rest)
        # Of equal ones the first.
        before = np.cumsum(second, axis=-1)
        offset = np.concatenate([np.zeros((*count.shape[:-1], 1)), before], axis=-1)[..., first]
        second &= before - offset[..., parent] == 1
        return np.asarray(hidden | second, dtype=np.float64)


@dataclass(frozen=True)
class RulePreset:
    """``rules``: arguments of a `Rule`, or of the class ``kind``, for each; ``asks``: the names that they need, with
    their meaning; ``source``: in the law.
    """

    rules: tuple[Mapping[str, Any], ...]
    asks: Mapping[str, str]
    source: str
    kind: type[Rule] = field(default=Rule)


_CHILDREN = {
    "children": "children in formula",
    "school_age": "population of 5 to 17 years",
}
_PAID = {
    **_CHILDREN,
    "spending": "the state's expenditure per pupil (a column)",
    "national_spending": "that of the nation (a column)",
    "prior": "what was paid before (a column)",
}
_RATE = "0.4 * min(max(spending, 0.8 * national_spending), 1.2 * national_spending)"
_HARMLESS = "(0.95 if children / school_age >= 0.30 else 0.90 if children / school_age >= 0.15 else 0.85) * prior"
_BASIC = "children >= 10 and children > 0.02 * school_age"
_BY_SHARE = "brackets(children / school_age, [0.1558, 0.2211, 0.3016, 0.3824], [1, 1.75, 2.5, 3.25, 4]) * school_age"
_BY_NUMBER = "brackets(children, [691, 2262, 7851, 35514], [1, 1.5, 2, 2.5, 3])"

RULE_PRESETS: Mapping[str, RulePreset] = {
    "title-1": RulePreset(
        (
            {"name": "Title I, basic", "eligible": _BASIC, "amount": f"{_RATE} * children"},
            {
                "name": "Title I, concentration",
                "eligible": f"{_BASIC} and (children > 6500 or children > 0.15 * school_age)",
                "amount": f"{_RATE} * children",
            },
            {
                "name": "Title I, targeted",
                "eligible": "children >= 10 and children >= 0.05 * school_age",
                "amount": f"{_RATE} * max({_BY_SHARE}, {_BY_NUMBER})",
            },
        ),
        _PAID,
        "20 U.S.C. 6333 to 6335, 6332(c)",
    ),
    "section-203": RulePreset(
        (
            {
                "name": "Voting Rights Act, section 203",
                "eligible": "(limited_english > 0.05 * voting_age_citizens or limited_english > 10000) and "
                "illiterate / limited_english > national_illiteracy",
            },
        ),
        {
            "limited_english": "citizens of voting age of a language minority with limited English",
            "voting_age_citizens": "citizens of voting age",
            "illiterate": "those with limited English and less than five years of school",
            "national_illiteracy": "the nation's illiteracy rate (a column)",
        },
        "28 CFR 55",
    ),
    "redistricting": RulePreset(
        (
            {
                "name": "range of the districts",
                "figure": "(highest(population) - lowest(population)) / mean(population)",
            },
            {
                "name": "range above 10 %",
                "eligible": "(highest(population) - lowest(population)) / mean(population) > 0.1",
            },
            {"name": "deviation of a district", "figure": "population / mean(population) - 1"},
            {"name": "majority", "eligible": "minority > 0.5 * voting_age"},
        ),
        {
            "population": "everybody",
            "minority": "the minority's voting age population",
            "voting_age": "all of voting age",
        },
        "Brown v. Thomson, 462 U.S. 835; Bartlett v. Strickland, 556 U.S. 1",
    ),
    "seats": RulePreset(
        ({"name": "seats", "figure": "population"},), {"population": "everybody"}, "2 U.S.C. 2a", Seats
    ),
    "cohesion": RulePreset(
        (
            {
                "name": "less developed region",
                "eligible": "product / population < 0.75 * (nation(product) / nation(population))",
            },
            {
                "name": "transition region",
                "eligible": "product / population >= 0.75 * (nation(product) / nation(population)) and "
                "product / population < nation(product) / nation(population)",
            },
        ),
        {"product": "gross domestic product (a column)", "population": "everybody"},
        "Regulation (EU) 2021/1060, article 108",
    ),
    "suppression": RulePreset(
        ({"name": "small counts", "figure": "count"},), {"count": "what is counted"}, "cell suppression", Suppression
    ),
}


def preset_rules(preset: str, name: str = "", **given: Any) -> list[Rule]:
    """The rules of ``preset`` with what is ``given`` to each (``level``, ``areas``, ``columns``, ``sums``, ``seats`` or
    ``least``); called "``name``: ..." where there is one.

    Where the preset pays a fund and there is a column "total", a column "prior" (the earlier payment) gives a
    hold-harmless floor. Raises `ConfigError` for an unknown preset and for names that it needs but that are not given.
    """
    require_known(preset, RULE_PRESETS, "preset")
    found = RULE_PRESETS[preset]
    rules = []
    for one in found.rules:
        arguments = {**one, **given}
        columns = given.get("columns", {})
        if "amount" in one and "prior" in columns and "total" in columns:
            arguments.setdefault("floor", _HARMLESS)
        if name:
            arguments["name"] = f"{name}: {one['name']}" if len(found.rules) > 1 else name
        rules.append(found.kind(**arguments))
    return rules


def what_a_preset_asks_for(preset: str) -> str:
    """The names that a preset needs, with their meaning."""
    return listed([f"{name} ({what})" for name, what in RULE_PRESETS[preset].asks.items()])
