"""Plans that were used: the budgets of the 2020 redistricting file and of the Demographic and Housing Characteristics.

Exactly. Source: uscensusbureau/DAS_2020_Redistricting_Production_Code, the strategies
`ProductionCandidate20210527US_mult8_add02_dsepJune3` and `...PR...`, and the signed certificates of the production
runs; for housing units uscensusbureau/DAS_2020_DHC_Production_Code, `configs/production/pl94/unit_*.ini`. Of the DHC
the same repository's `configs/production/dhc/` and the strategies that they name, `test_strategy_dhcp_20220922_exp_
iteration_23_1`, `test_strategy_dhch_...` and both `..._pr_...`, whose numbers are rho and not shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from topdown.errors import BudgetError, ConfigError
from topdown.privacy.plan import MEASURE, Plan
from topdown.privacy.plan_inputs import invariant_queries
from topdown.wording import listed, shown
from topdown.workload import DETAILED, Workload
from topdown.workload.dhc import BESIDE_HOUSEHOLDS, DHC_HOUSEHOLDS, DHC_PERSONS
from topdown.workload.redistricting import PERSONS, SPINE, UNITS, WHOLE_STATE, spine_level
from topdown.workload.schema import MOST_CELLS, Schema
from topdown.workload.workload import PRESETS as PRESETS


@dataclass(frozen=True)
class Preset:
    """A plan of an earlier production run. ``shares``: by level and query, of ``rho``; ``unit``: what is protected.
    ``beside``: queries of a second histogram, which do not belong to ``schema``.

    Neighbours are "substitute" (a changed record changes two counts); noise is discrete Gaussian.
    """

    name: str
    words: str
    schema: Schema
    rho: Fraction
    shares: Mapping[str, Mapping[str, Fraction]]
    unit: str
    beside: tuple[str, ...] = ()

    @property
    def released(self) -> bool:
        """Whether a release can be made by it: all its queries are of one schema, of no more cells than releases have.
        Of others the total's errors are known (`planning.totals`)."""
        return not self.beside and self.schema.n_cells <= MOST_CELLS

    def plan(
        self,
        levels: Iterable[str],
        *,
        invariants: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
        only_child: str = MEASURE,
    ) -> Plan:
        """The plan for a geography with ``levels``, with production's variances at every one of them.

        Levels that the geography lacks, and queries that are exact (``invariants``), get nothing: rho is smaller by
        their part, and the other shares are of the rest. Levels may have their usual names ("nation", "block_group"); a
        level called "whole state", above the parts of states, is not measured. Raises `ConfigError` for a level that
        the preset does not have, `BudgetError` where nothing is left to measure.
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
                f"preset {shown(self.name)}: everything that it measures is in invariants; leave something out of them"
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
        """A sentence on the levels that `plan` leaves out for a geography with ``levels``, and what that saves; ""
        where there are none.
        """
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
        if own not in (SPINE[0], *self.shares, WHOLE_STATE):
            known = f"level {shown(level)} is not in preset {shown(self.name)}, which has {listed(list(self.shares))}; "
            if own in SPINE:
                raise ConfigError(
                    f"{known}`topdown spine FILE` makes these from blocks and the areas that contain them"
                )
            raise ConfigError(f"{known}give the geography's levels these names, or give the shares yourself")
        return own


def preset(name: str) -> Preset:
    """The preset called ``name``. Raises `ConfigError` with the nearest name for any other.

    Args:
        name: such as "pl94-2020-us".

    Examples:
        >>> td.preset("pl94-2020-us").plan(["nation", "state", "county"]).mechanism
        'discrete-gaussian'
    """
    found: Preset = Workload.preset(name)
    return found


def _read(levels: Iterable[str], table: str) -> dict[str, dict[str, Fraction]]:
    """Shares of the total by level and query, from a table whose first row has the levels' shares and whose other rows
    have the queries' shares of their level.
    """
    rows = [[entry.strip() for entry in line.split("|")] for line in table.strip().splitlines()]
    of_level, *queries = rows
    return {
        level: {row[0]: Fraction(of_level[k]) * Fraction(row[k]) for row in queries if row[k] != "-"}
        for k, level in enumerate(levels, 1)
    }


def _of_rho(queries: Iterable[str], table: str, rho: Fraction) -> dict[str, dict[str, Fraction]]:
    """Shares of the whole by level and query, from a table of what the queries of each level have of ``rho``, in parts
    of 10,000."""
    rows = [[entry.strip() for entry in line.split("|")] for line in table.strip().splitlines()]
    return {
        level: {query: Fraction(int(entry), 10_000) / rho for query, entry in zip(queries, entries, strict=True)}
        for level, *entries in rows
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

_DHC_PERSON_QUERIES = (
    "age_18_64_116 * relgq_4_groups",
    "age_18_64_116 * sex",
    "age_38_groups * sex",
    "hispanic * sex",
    "sex * relgq_4_groups",
    "gq_constr_groups * age_10_groups",
    "popSehsdTargetsRelship",
    "hispanic * sex * age_40_groups * relship_and_eight_level_GQ * cenrace",
    "relgq * age_40_groups * hispanic * cenrace * sex",
    "detailed",
)
_DHC_HOUSEHOLD_QUERIES = (
    "multig * hisp * hhtenshort_2lev",
    "hisp * hhtenshort_2lev",
    "hisp * hhtenshort_2lev * race",
    "partner_type_detailed_own_child_status * sex * hhtenshort_2lev",
    "coupled_hh_type * hisp * hhtenshort_2lev",
    "sex * hisp * hhtenshort_3lev * race * DetailedCoupleTypeMultGenDetOwnChildSize",
    "sex * hisp * hhtenshort_3lev * race * hhage * DetailedCoupleTypeMultGenDetOwnChildSize",
    "hhtenshort_3lev * hhage * DetailedCoupleTypeMultGenDetOwnChildSize",
    "detailed",
    BESIDE_HOUSEHOLDS,
)

_US_DHC_PERSONS = """
us                 |   73 |   73 |   73 |   73 |   73 |  292 |   73 |   73 |   73 |   73
state              |  999 |  999 |  999 |  999 |  999 | 3996 |  999 |  999 |  999 |  999
county             |  310 |  310 |  310 |  310 |  310 | 1240 | 1240 |  310 |  310 |  310
prim               |  478 |  478 |  478 |  478 |  478 | 1912 |  478 |  478 |  478 |  478
tract subset group |  478 |  478 |  478 |  478 |  478 | 1912 |  478 |  478 |  478 |  478
tract subset       |  868 |  868 |  868 |  868 |  868 | 3472 | 3472 |  868 |  868 |  868
block group        |  430 |  430 |  430 |  430 |  430 |  430 |  430 |  430 |  430 |  430
block              |   11 |   11 |   11 |   11 |   11 |   11 |   11 |   11 |   11 |   11
"""

_PR_DHC_PERSONS = """
state              | 1009 | 1011 | 1011 | 1011 | 1011 | 4045 | 1011 | 1011 | 1011 | 1011
county             |  320 |  320 |  320 |  320 |  320 | 1280 | 1280 |  320 |  320 |  320
prim               |  490 |  490 |  490 |  490 |  490 | 1961 |  490 |  490 |  490 |  490
tract subset group |  490 |  490 |  490 |  490 |  490 | 1961 |  490 |  490 |  490 |  490
tract subset       |  878 |  878 |  878 |  878 |  878 | 3512 | 3512 |  878 |  878 |  878
block group        |  446 |  446 |  446 |  446 |  446 |  446 |  446 |  446 |  446 |  446
block              |   11 |   11 |   11 |   11 |   11 |   11 |   11 |   11 |   11 |   11
"""

_US_DHC_HOUSEHOLDS = """
us                 |  792 |  212 |  212 |  792 |  792 |  257 |  257 |  212 | 1049 |  259
state              |  714 |  193 |  191 | 1428 |  714 | 3216 | 3216 |  193 | 3931 | 3216
county             |  986 |  266 | 1500 | 1972 | 3944 | 1380 | 1380 |  266 | 1380 | 1380
prim               |  973 |  214 | 1500 | 1946 |  973 |  973 |  973 |  214 |  973 |  973
tract subset group |  973 |  214 | 1500 | 1946 |  973 |  973 |  973 |  214 |  973 |  973
tract subset       | 1150 |  310 | 1750 | 2300 | 4601 | 1610 | 1610 |  310 | 1610 | 1610
block group        |  291 |   78 |  442 |  581 | 1162 |  407 |  407 |   78 |  407 |  407
block              |   11 |    3 |   17 |   22 |   44 |   15 |   15 |    3 |   15 |   15
"""

_PR_DHC_HOUSEHOLDS = """
state              |  748 |  202 |  200 | 1496 |  748 | 3368 | 3368 |  202 | 4117 | 3364
county             | 1041 |  281 | 1584 | 2082 | 4164 | 1457 | 1457 |  281 | 1457 | 1457
prim               | 1054 |  232 | 1624 | 2107 | 1054 | 1054 | 1054 |  232 | 1054 | 1054
tract subset group | 1054 |  232 | 1624 | 2107 | 1054 | 1054 | 1054 |  232 | 1054 | 1054
tract subset       | 1205 |  325 | 1833 | 2410 | 4820 | 1687 | 1687 |  325 | 1687 | 1687
block group        |  346 |   93 |  526 |  691 | 1382 |  484 |  484 |   93 |  484 |  484
block              |   11 |    3 |   17 |   22 |   44 |   15 |   15 |    3 |   15 |   15
"""

_PERSONS_RHO, _UNITS_RHO = Fraction(293764, 114921), Fraction(11417641, 152349649)
_DHC_PERSONS_RHO, _DHC_HOUSEHOLDS_RHO = Fraction(24811, 5000), Fraction(15401, 2000)

PRESETS.update(
    (one.name, one)
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
        *(
            Preset(
                f"dhc-2020-{run}-persons",
                f"persons of the Demographic and Housing Characteristics of 2020, {where}",
                DHC_PERSONS,
                _DHC_PERSONS_RHO,
                _of_rho(_DHC_PERSON_QUERIES, table, _DHC_PERSONS_RHO),
                "person",
            )
            for run, where, table in (("us", "United States", _US_DHC_PERSONS), ("pr", "Puerto Rico", _PR_DHC_PERSONS))
        ),
        *(
            Preset(
                f"dhc-2020-{run}-units",
                f"households and housing units of the Demographic and Housing Characteristics of 2020, {where}",
                DHC_HOUSEHOLDS,
                _DHC_HOUSEHOLDS_RHO,
                _of_rho(_DHC_HOUSEHOLD_QUERIES, table, _DHC_HOUSEHOLDS_RHO),
                "housing unit",
                (BESIDE_HOUSEHOLDS,),
            )
            for run, where, table in (
                ("us", "United States", _US_DHC_HOUSEHOLDS),
                ("pr", "Puerto Rico", _PR_DHC_HOUSEHOLDS),
            )
        ),
    )
)
"""Every preset by its name."""
