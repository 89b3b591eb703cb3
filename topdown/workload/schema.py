"""Schema: what the cells of a table mean, as products of attributes, and the recodes that coarsen these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, require_known
from topdown.wording import shown, unquoted

SEPARATORS = ("_", "-", " ", ".", ":", "/", ",", ", ", "|", "*", " x ")
"""What may join the categories in a cell's name."""

TOTAL = "total"
DETAILED = "detailed"
TIMES = "*"
"""What joins the names of a query's attributes."""

RESERVED = ("geoid", TOTAL, DETAILED)


@dataclass(frozen=True, slots=True)
class Attribute:
    """A property of every record: its ``name`` and its ``categories``, in order.

    Raises `ConfigError` for an empty name or category, for no category, for one given twice, and for a name that has a
    meaning of its own ("geoid", "total", "detailed", or one with "*").
    """

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(self.categories))
        _require_name(self.name, "attribute")
        if not self.categories:
            raise ConfigError(f"attribute {shown(self.name)} has no categories; give at least one")
        seen = set()
        for category in self.categories:
            if not isinstance(category, str) or not category:
                raise ConfigError(
                    f"attribute {shown(self.name)}, category {shown(category)}: give a text that is not empty"
                )
            if category in seen:
                raise ConfigError(
                    f"attribute {shown(self.name)} has the category {shown(category)} twice; name each once"
                )
            seen.add(category)


def _require_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.strip() or name in RESERVED or TIMES in name:
        raise ConfigError(
            f"{what} {shown(name)}: give it a name of its own, without {TIMES!r} (not "
            f"{', '.join(map(repr, RESERVED))}, which have a meaning)"
        )


@dataclass(frozen=True, slots=True)
class Recode:
    """A named coarsening of an attribute: ``groups``, each a name with its categories, which partition the attribute's.

    Groups may be of any size; they stand in the order given. Raises `ConfigError` as `Attribute` does for names, and
    for a group without categories.
    """

    name: str
    attribute: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]

    def __post_init__(self) -> None:
        _require_name(self.name, "recode")
        object.__setattr__(self, "groups", tuple((group, tuple(members)) for group, members in self.groups))
        Attribute(self.name, self.categories)  # the groups are categories, and are checked as such
        for group, members in self.groups:
            if not members:
                raise ConfigError(
                    f"recode {shown(self.name)}, group {shown(group)}: no categories; give it one, or drop it"
                )

    @property
    def categories(self) -> tuple[str, ...]:
        """The groups' names."""
        return tuple(group for group, _ in self.groups)

    def codes(self, attribute: Attribute) -> npt.NDArray[np.int64]:
        """(categories of ``attribute``,): the group of each. Raises `ConfigError` where the groups are no partition."""
        place = {category: k for k, category in enumerate(attribute.categories)}
        codes = np.full(len(place), -1, np.int64)
        for number, (group, members) in enumerate(self.groups):
            for category in members:
                require_known(category, place, f"category of {shown(attribute.name)} in recode {shown(self.name)}")
                if codes[place[category]] >= 0:
                    other = self.groups[int(codes[place[category]])][0]
                    raise ConfigError(
                        f"recode {shown(self.name)}: category {shown(category)} is in the groups {shown(other)} and "
                        f"{shown(group)}; a recode is a partition: name it in one"
                    )
                codes[place[category]] = number
        left = np.flatnonzero(codes < 0)
        if len(left):
            raise ConfigError(
                f"recode {shown(self.name)}: category {shown(attribute.categories[int(left[0])])} of "
                f"{shown(attribute.name)} is in none of its groups "
                f"({len(left)} such); a recode is a partition: put every category into a group"
            )
        return codes


Zero = tuple[tuple[str, tuple[str, ...]], ...]
"""A structural zero: attributes or recodes, each with categories; no record is in one of these of every one named."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The cells of a table as the product of ``attributes``: the last attribute's category changes fastest.

    ``recodes``: named coarsenings of single attributes, by which queries may ask. ``zeros``: what no record can be,
    anywhere and publicly so. Raises `ConfigError` for no attribute, for two attributes or recodes of one name, for a
    recode that does not partition its attribute, for a zero of unknown names, and where no cell is left.
    """

    attributes: tuple[Attribute, ...]
    recodes: tuple[Recode, ...] = ()
    zeros: tuple[Zero, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        object.__setattr__(self, "zeros", tuple(self.zeros))
        if not self.attributes:
            raise ConfigError("a schema needs an attribute; give its name and categories")
        object.__setattr__(self, "recodes", tuple(self.recodes))
        named = [*self.names, *(recode.name for recode in self.recodes)]
        for name in named:
            if named.count(name) > 1:
                raise ConfigError(f"two attributes or recodes are called {shown(name)}; rename one of them")
        for recode in self.recodes:
            require_known(recode.attribute, self.names, f"attribute of recode {shown(recode.name)}:")
            recode.codes(self.attribute(recode.attribute))
        if self.n_cells >= 2**63:
            raise ConfigError(
                f"the schema has {self.n_cells} cells, and a cell's number has 63 bits; drop an attribute"
            )
        if self.zeros and not len(self.possible_cells()):
            raise ConfigError("the zeros leave no cell in which a record could be; drop one")

    @classmethod
    def from_mapping(
        cls,
        attributes: Mapping[str, Sequence[str]],
        recodes: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]] | None = None,
        zeros: Sequence[Mapping[str, str | Sequence[str]]] = (),
    ) -> Schema:
        """The schema of ``attributes``, name to categories, in the mapping's order.

        ``recodes``: attribute to recode's name to group to the categories in it. ``zeros``: for each, attributes or
        recodes to the category or categories that do not occur together.
        """
        found = [
            Recode(name, attribute, tuple((group, _listed(members, group)) for group, members in groups.items()))
            for attribute, named in (recodes or {}).items()
            for name, groups in named.items()
        ]
        return cls(
            tuple(Attribute(name, _listed(given, name)) for name, given in attributes.items()),
            tuple(found),
            tuple(
                tuple((name, (given,) if isinstance(given, str) else tuple(given)) for name, given in zero.items())
                for zero in zeros
            ),
        )

    def to_mappings(self) -> dict[str, Any]:
        """The arguments of `from_mapping`, JSON-able: ``attributes``, ``recodes``, and ``zeros`` if there are any."""
        recodes: dict[str, dict[str, dict[str, list[str]]]] = {}
        for recode in self.recodes:
            groups = {group: list(members) for group, members in recode.groups}
            recodes.setdefault(recode.attribute, {})[recode.name] = groups
        return {
            "attributes": {attribute.name: list(attribute.categories) for attribute in self.attributes},
            "recodes": recodes,
            **({"zeros": [{name: list(given) for name, given in zero} for zero in self.zeros]} if self.zeros else {}),
        }

    @classmethod
    def of_cells(cls, cells: Sequence[str], name: str = "cell") -> Schema:
        """The schema of cells that are no products: one attribute whose categories they are."""
        return cls((Attribute(name, tuple(cells)),))

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes' names."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of categories of every attribute."""
        return tuple(len(attribute.categories) for attribute in self.attributes)

    @property
    def n_cells(self) -> int:
        """Number of cells, the product of ``shape``."""
        return math.prod(self.shape)

    def attribute(self, name: str) -> Attribute:
        """The attribute called ``name``. Raises `ConfigError` with the nearest name where there is none."""
        require_known(name, self.names, "attribute")
        return self.attributes[self.names.index(name)]

    def possible_cells(self) -> npt.NDArray[np.int64]:
        """The numbers of the cells that are no ``zeros``, in order."""
        closed = np.zeros(self.n_cells, np.bool_)
        for zero in self.zeros:
            closed |= self.is_zero(np.arange(self.n_cells), zero)
        return np.flatnonzero(~closed)

    def is_zero(self, cells: npt.NDArray[np.int64], zero: Zero) -> npt.NDArray[np.bool_]:
        """Which of ``cells`` (numbers of cells) ``zero`` excludes. Raises `ConfigError` for unknown names in it."""
        places = np.unravel_index(cells, self.shape)
        found = np.ones(len(cells), np.bool_)
        if not zero:
            raise ConfigError("a zero names nothing; give it attributes and their categories")
        recodes = {recode.name: recode for recode in self.recodes}
        for name, given in zero:
            require_known(name, [*self.names, *recodes], "attribute of a zero:")
            attribute = self.attribute(recodes[name].attribute if name in recodes else name)
            known = recodes[name].categories if name in recodes else attribute.categories
            for category in given:
                require_known(category, known, f"category of {shown(name)} in a zero:")
            codes = recodes[name].codes(attribute) if name in recodes else np.arange(len(known))
            chosen = np.isin(codes, [known.index(category) for category in given])
            found &= chosen[places[self.names.index(attribute.name)]]
        return found

    def cells(self, separator: str = "_") -> tuple[str, ...]:
        """The cells' names, categories joined by ``separator``, the last attribute's changing fastest."""
        rows = np.indices(self.shape).reshape(len(self.shape), -1).T
        return tuple(
            separator.join(a.categories[k] for a, k in zip(self.attributes, row, strict=True)) for row in rows.tolist()
        )

    def codes(self, cells: Sequence[str]) -> npt.NDArray[np.int32]:
        """(cells x attributes): the category of every one of a table's ``cells`` in every attribute.

        Cells whose names are their categories joined by one and the same separator (``SEPARATORS``) are found by name,
        in whatever order they stand; any others are taken to stand in the product's order, the last attribute's
        category changing fastest. Raises `ConfigError` where the numbers of cells differ.
        """
        if len(cells) != self.n_cells:
            product = " x ".join(f"{len(a.categories)} {unquoted(a.name)}" for a in self.attributes[:3])
            product += " x ..." if len(self.attributes) > 3 else ""
            raise ConfigError(
                f"the schema has {product} = {self.n_cells} cells and the table has {len(cells)}; give every attribute "
                "all of its categories, and the table every combination"
            )
        place = np.arange(self.n_cells)
        for separator in SEPARATORS:
            names = self.cells(separator)
            if len(set(names)) == len(names) and set(names) == set(cells):
                place = np.array([names.index(cell) for cell in cells])
                break
        return np.stack(np.unravel_index(place, self.shape), axis=1).astype(np.int32)


def _listed(categories: Sequence[str], name: str) -> tuple[str, ...]:
    if isinstance(categories, str):
        raise ConfigError(f"{shown(name)}: give a list of categories, not the text {shown(categories)}")
    return tuple(categories)
