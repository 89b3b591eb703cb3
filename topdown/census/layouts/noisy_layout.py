"""The layout of the Census Bureau's noisy measurement files of 2020: folders and names. Only this module has the
Bureau's names. A product is a folder; in it a folder per level of the spine, in that measurements ("DPQuery") and
public constraints ("Constraint"), each by hive partitions of states. A row is one query at one unit. Units have codes
of the spine and not GEOIDs; the last 16 characters of a block's are its GEOID with the block group said twice. Source:
the registry entries of census-2020-pl94-nmf, the readers in google-research/census-bluedown, and `geographic_spines/`
of uscensusbureau/DAS_2020_DHC_Production_Code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topdown.census.layouts.redistricting_layout import WIDTHS
from topdown.errors import ConfigError, DataError, require_known
from topdown.geography.geography import Geography
from topdown.wording import listed, shown
from topdown.workload import Query, Schema
from topdown.workload.redistricting import PERSONS, SPINE, UNITS, spine_level

MEASURED, CONSTRAINED = "DPQuery", "Constraint"
"""The two kinds of partitions."""

MEASURED_ENDING, CONSTRAINED_ENDING = "_dpq", "_con"
"""The endings of their queries' names."""

GEOCODE, NAME, SHAPE, VALUE, VARIANCE, SIGN = "geocode", "query_name", "query_shape", "value", "variance", "sign"
EXACT, AT_LEAST, AT_MOST = "=", ">=", "<="

SUMMED_OUT, WHOLE = "*", "detailed"
"""The value of an attribute's column where it is summed out, and in the detailed query; else its own name or that of a
recode.
"""

LEVELS = dict(zip(SPINE, ("US", "State", "County", "Tract", "Block_Group", "Block"), strict=True))
"""The levels of the spine, root first, and their folders' names."""

MECHANISM = "discrete-gaussian"
"""The mechanism of all measurements."""

PUERTO_RICO = "72"


@dataclass(frozen=True)
class Product:
    """The product for one kind of record.

    ``folder``: the product's folder, with "{}" for the run's name, "US" or "PR". ``listing``: the query that lists
    units without a constraint of their own. ``constraints``: names of constraints by query and sign that are exceptions
    to the rule. ``presets``: the plan of every run. ``zero``: name and columns of the constraint that states the
    structural zeros.
    """

    name: str
    folder: str
    schema: Schema
    listing: str
    constraints: Mapping[tuple[str, str], str]
    presets: Mapping[str, str]
    zero: tuple[str, Mapping[str, str]] | None = None

    def constraint(self, query: str, sign: str) -> str:
        """The name of a constraint."""
        rule = {EXACT: "", AT_LEAST: "_lb", AT_MOST: "_ub"}[sign]
        return self.constraints.get((query, sign), f"{query}{rule}{CONSTRAINED_ENDING}")

    def axes(self, query: Query) -> dict[str, str]:
        """The values of the attributes' columns for ``query``."""
        if query.kept == self.schema.names:
            return dict.fromkeys(self.schema.names, WHOLE)
        return {name: part or SUMMED_OUT for name, part in zip(self.schema.names, query.kept, strict=True)}

    def query(self, axes: Mapping[str, str]) -> Query:
        """The query whose attributes' columns have the values ``axes``. Raises `ConfigError` for unknown ones."""
        kept = []
        for name, said in axes.items():
            own = [name, *(recode.name for recode in self.schema.recodes if recode.attribute == name)]
            require_known(said, [*own, WHOLE, SUMMED_OUT], f"recode of {name!r}:")
            kept.append(None if said == SUMMED_OUT else name if said == WHOLE else said)
        return Query(self.schema, tuple(kept))

    def shape(self, query: Query) -> list[int]:
        """The shape of the answers to ``query`` with 1 for what is summed out."""
        return [1 if part is None else len(part.categories) for part in query.parts()]


PRODUCTS: dict[str, Product] = {
    product.name: product
    for product in (
        Product(
            "pl94-persons",
            "{}_Person_PL_PROD",
            PERSONS,
            "hhgq",
            {("hhgq", AT_LEAST): "hhgq_total_lb_con", ("hhgq", AT_MOST): "hhgq_total_ub_con"},
            {"US": "pl94-2020-us", "PR": "pl94-2020-pr"},
            (
                "nurse_nva_0_con",
                {"hhgq": "gqNursingTotal", "votingage": "nonvoting", "hispanic": SUMMED_OUT, "cenrace": SUMMED_OUT},
            ),
        ),
        Product(
            "pl94-units",
            "{}_Unit_PL_PROD",
            UNITS,
            "total",
            {},
            {"US": "pl94-2020-units", "PR": "pl94-2020-units-pr"},
        ),
    )
}
"""Every product by its name."""


def product_of(schema: Schema) -> Product:
    """The product with the attributes of ``schema``. Raises `ConfigError` where there is none."""
    for product in PRODUCTS.values():
        if product.schema.attributes == schema.attributes:
            return product
    raise ConfigError(
        f"the attributes are {listed(schema.names)}, and a noisy measurement file is made of "
        + " or of ".join(f"{listed(one.schema.names)} (topdown.workload.redistricting)" for one in PRODUCTS.values())
    )


def run_of(state: str | None) -> str:
    """The run, "US" or "PR", of a state's two digits."""
    return "PR" if state == PUERTO_RICO else "US"


def level_folder(level: str) -> str:
    """The folder of a level of the spine."""
    return f"{LEVELS[level]}.parquet"


def partition(part: str) -> str:
    """The folder of a part of a state, "0" or "1" and the state's two digits; "" of the nation, which has none."""
    return f"State={part}" if part else ""


def place(level: str, kind: str, part: str) -> str:
    """The folder, beneath the product's, of a level's partition called ``part``; "" of the nation."""
    return "/".join(name for name in (level_folder(level), kind, part) if name)


def county_geoid(geocode: str) -> str | None:
    """The GEOID, 5 digits, of a county of the spine, or that it is a part of; None where it is no county's."""
    return geocode[1:3] + geocode[5:8] if geocode[3:5] == "10" else None


def block_geoid(geocode: str) -> str:
    """The GEOID, 15 digits, of a block of the spine."""
    geocode16 = geocode[-16:]
    return geocode16[:11] + geocode16[12:]


def has_spine_codes(geography: Geography) -> bool:
    """Whether the lowest units are blocks with the spine's codes, and not with GEOIDs."""
    codes = (geography.identifiers[node].as_py() for node in (geography.tree.leaves.start, -1))
    return spine_level(geography.levels[-1]) == SPINE[-1] and all(
        len(code) > 16 and code[-16:].isdecimal() for code in codes
    )


def tabulation_units(geography: Geography, level: str) -> dict[str, str]:
    """The GEOID of the tabulation unit in which every block of the spine lies, by the block's code.

    The spine has other tracts and block groups, and parts of states and counties; tabulation units are sums of blocks.
    Raises `ConfigError` for another level, `DataError` for a geography that does not end with the spine's blocks.

    Args:
        geography: of noisy measurement files, down to the spine's blocks.
        level: which tabulation units: "state", "county", "tract", "block group" or "block".

    Examples:
        >>> noisy = td.read_noisy_measurements("nmf", state="44")
        >>> sorted(set(td.tabulation_units(noisy.geography, "tract").values()))
        ['44001010100', '44001020100', '44003020100']
    """
    name = spine_level(level)
    require_known(name, WIDTHS, "level of tabulation units:")
    if spine_level(geography.levels[-1]) != SPINE[-1]:
        raise DataError(
            f"the lowest level is {shown(geography.levels[-1])}; tabulation units are sums of blocks: read them too"
        )
    codes = geography.identifiers.slice(geography.tree.leaves.start).to_pylist()
    if not has_spine_codes(geography):
        raise DataError(
            "the blocks do not have the codes of the spine, whose last 16 characters are the GEOID with the block "
            "group twice; the levels above blocks with GEOIDs are tabulation units already"
        )
    return {code: block_geoid(code)[: WIDTHS[name]] for code in codes}


def with_block_group_twice(geoid: str) -> str:
    """The last 16 characters of the spine's code of the block ``geoid``, 15 digits: its first digit is its group's."""
    return geoid[:11] + geoid[11] + geoid[11:]
