"""Plans that were used: the budgets of the 2020 redistricting file, exactly.

Source: uscensusbureau/DAS_2020_Redistricting_Production_Code, the strategies
`ProductionCandidate20210527US_mult8_add02_dsepJune3` and `...PR...`, and the signed certificates of the production
runs; for housing units uscensusbureau/DAS_2020_DHC_Production_Code, `configs/production/pl94/unit_*.ini`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from topdown.errors import BudgetError, ConfigError, require_known
from topdown.privacy.plan import MEASURE, Plan
from topdown.privacy.plan_inputs import invariant_queries
from topdown.wording import listed, shown
from topdown.workload import DETAILED
from topdown.workload.redistricting import PERSONS, SPINE, UNITS, spine_level
from topdown.workload.schema import Schema


@dataclass(frozen=True)
class Preset:
    """A plan that was used. ``shares``: by level and query, of ``rho``; ``unit``: what is protected.

    A record that changes moves two counts ("substitute"); noise is discrete Gaussian.
    """

    name: str
    words: str
    schema: Schema
    rho: Fraction
    shares: Mapping[str, Mapping[str, Fraction]]
    unit: str

    def plan(
        self,
        levels: Iterable[str],
        *,
        invariants: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
        only_child: str = MEASURE,
    ) -> Plan:
        """The plan for a geography with ``levels``, with production's variances at every one of them.

        Where the geography lacks levels, and where queries are exact (``invariants``), rho is less by what these would
        have got, and the other shares are of what is left. Levels may be called as they are usually ("nation",
        "block_group"). Raises `ConfigError` for a level that the preset does not have, `BudgetError` where nothing is
        left to measure.
        """
        named = {level: self._level(level) for level in levels}
        whole, single = invariant_queries(invariants or {})
        exact = {(level, query) for level, query in single} | {(level, DETAILED) for level in whole}
        kept = {
            level: {
                query: share
                for query, share in self.shares[its].items()
                if not {(level, query), (level, DETAILED)} & exact
            }
            for level, its in named.items()
            if its in self.shares
        }
        if not kept:
            raise BudgetError(
                f"preset {shown(self.name)} has none of the levels {listed(list(named))}; it has "
                f"{listed(list(self.shares))}"
            )
        if not any(kept.values()):
            raise BudgetError(
                f"preset {shown(self.name)} measures nothing that is not exact; leave something out of invariants"
            )
        part = sum((share for queries in kept.values() for share in queries.values()), Fraction(0))
        shares = {
            level: {query: share / part for query, share in kept[level].items()} if kept.get(level) else Fraction(0)
            for level in named
        }
        return Plan(
            "discrete-gaussian",
            rho=self.rho * part,
            shares=shares,
            neighbours="substitute",
            unit=self.unit,
            invariants=invariants or (),
            only_child=only_child,
        )

    def says(self, levels: Iterable[str]) -> str:
        """What `plan` leaves out for a geography with ``levels``, and what that saves; "" where it has them all."""
        there = {self._level(level) for level in levels}
        missing = [level for level in self.shares if level not in there]
        if not missing:
            return ""
        saved = self.rho * sum((s for level in missing for s in self.shares[level].values()), Fraction(0))
        return (
            f"preset {self.name} without {listed(missing)}: rho is {float(self.rho - saved):.4f} of its "
            f"{float(self.rho):.4f}, and the other levels have the variances that they had"
        )

    def _level(self, level: str) -> str:
        own = spine_level(level)
        if own not in SPINE:
            raise ConfigError(
                f"level {shown(level)} is none of preset {shown(self.name)}, which has {listed(list(self.shares))}; "
                "call the geography's levels so, or give the shares yourself"
            )
        return own


def preset(name: str) -> Preset:
    """The preset called ``name``. Raises `ConfigError` with the nearest name for any other.

    Examples:
        >>> td.preset("pl94-2020-us").plan(["nation", "state", "county"]).mechanism
        'discrete-gaussian'
    """
    require_known(name, PRESETS, "preset")
    return PRESETS[name]


def _read(levels: Iterable[str], table: str) -> dict[str, dict[str, Fraction]]:
    """Shares of the whole by level and query, from a table of shares of a level, the levels' own in its first row."""
    rows = [[entry.strip() for entry in line.split("|")] for line in table.strip().splitlines()]
    of_level, *queries = rows
    return {
        level: {row[0]: Fraction(of_level[k]) * Fraction(row[k]) for row in queries if row[k] != "-"}
        for k, level in enumerate(levels, 1)
    }


_US_PERSONS = """
level share                    | 104/4099 | 1440/4099 | 447/4099  | 687/4099  | 1256/4099 | 165/4099
total                          | -        | 3773/4097 | 3126/4097 | 1567/4102 | 1705/4099 | 5/4097
cenrace                        | 52/4097  | 6/4097    | 10/4097   | 4/2051    | 3/4099    | 9/4097
hispanic                       | 26/4097  | 6/4097    | 10/4097   | 5/4102    | 3/4099    | 5/4097
votingage                      | 26/4097  | 6/4097    | 10/4097   | 5/4102    | 3/4099    | 5/4097
hhinstlevels                   | 26/4097  | 6/4097    | 10/4097   | 5/4102    | 3/4099    | 5/4097
hhgq                           | 26/4097  | 6/4097    | 10/4097   | 5/4102    | 3/4099    | 5/4097
hispanic * cenrace             | 130/4097 | 12/4097   | 28/4097   | 1933/4102 | 1055/4099 | 21/4097
votingage * cenrace            | 130/4097 | 12/4097   | 28/4097   | 10/2051   | 9/4099    | 21/4097
votingage * hispanic           | 26/4097  | 6/4097    | 10/4097   | 5/4102    | 3/4099    | 5/4097
votingage * hispanic * cenrace | 26/241   | 2/241     | 101/4097  | 67/4102   | 24/4099   | 71/4097
detailed                       | 189/241  | 230/4097  | 754/4097  | 241/2051  | 1288/4099 | 3945/4097
"""

_PR_PERSONS = """
level share                    | 689/4099 | 695/4099  | 772/4099  | 1778/4099 | 165/4099
total                          | -        | 3126/4097 | 1467/4102 | 1876/4103 | 5/4097
cenrace                        | 11/108   | 10/4097   | 13/4102   | 4/4103    | 9/4097
hispanic                       | 11/108   | 10/4097   | 1/586     | 4/4103    | 5/4097
votingage                      | 11/108   | 10/4097   | 1/586     | 4/4103    | 5/4097
hhinstlevels                   | 11/108   | 10/4097   | 1/586     | 4/4103    | 5/4097
hhgq                           | 11/108   | 10/4097   | 1/586     | 4/4103    | 5/4097
hispanic * cenrace             | 53/513   | 28/4097   | 866/2051  | 749/4103  | 21/4097
votingage * cenrace            | 53/513   | 28/4097   | 15/2051   | 10/4103   | 21/4097
votingage * hispanic           | 11/108   | 10/4097   | 1/586     | 4/4103    | 5/4097
votingage * hispanic * cenrace | 56/513   | 101/4097  | 50/2051   | 27/4103   | 71/4097
detailed                       | 25/342   | 754/4097  | 725/4102  | 1417/4103 | 3945/4097
"""

_US_UNITS = """
level share | 1/205 | 1/205 | 7/82 | 364/1025 | 1759/4100 | 99/820
detailed    | 1     | 1     | 1    | 1        | 1         | 1
"""

_PR_UNITS = """
level share | 5047/876580 | 18746/219145 | 94451/262974 | 281911/657435 | 99/820
detailed    | 1           | 1            | 1            | 1             | 1
"""

_PERSONS_RHO, _UNITS_RHO = Fraction(293764, 114921), Fraction(11417641, 152349649)

PRESETS: dict[str, Preset] = {
    one.name: one
    for one in (
        Preset(
            "pl94-2020-us",
            "persons of the 2020 redistricting file, United States",
            PERSONS,
            _PERSONS_RHO,
            _read(SPINE, _US_PERSONS),
            "person",
        ),
        Preset(
            "pl94-2020-pr",
            "persons of the 2020 redistricting file, Puerto Rico",
            PERSONS,
            _PERSONS_RHO,
            _read(SPINE[1:], _PR_PERSONS),
            "person",
        ),
        Preset(
            "pl94-2020-units",
            "housing units of the 2020 redistricting file, United States",
            UNITS,
            _UNITS_RHO,
            _read(SPINE, _US_UNITS),
            "housing unit",
        ),
        Preset(
            "pl94-2020-units-pr",
            "housing units of the 2020 redistricting file, Puerto Rico",
            UNITS,
            _UNITS_RHO,
            _read(SPINE[1:], _PR_UNITS),
            "housing unit",
        ),
    )
}
"""Every preset by its name."""
