"""Schema: the cells of a table as a product of attributes, and the recodes that coarsen these."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, require_known
from topdown.wording import listed, shown, unquoted

SEPARATORS = ("_", "-", " ", ".", ":", "/", ",", ", ", "|", "*", " x ")
"""Separators of the categories in a cell's name."""

TOTAL = "total"
DETAILED = "detailed"
TIMES = "*"
"""Separator of the names of a query's attributes."""

RESERVED = ("geoid", TOTAL, DETAILED)

MOST_CELLS = 1 << 18
"""The most cells of a schema of which tables are held and whose cells are named one by one; of a larger one a release
is made on supports (`topdown.projection.histograms.support_descent`)."""

_MOST_SOLVABLE = 1 << 22
"""The most cells of a schema of which a release is made: the root's program has them all."""

_CELLS_AT_ONCE = 1 << 18
_MOST_STATES = 1 << 16
"""The most sets of zeros that are examined to find whether they leave a cell."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A property that every record has, such as sex or age.

    Args:
        name: the name, such as "sex".
        categories: the values that a record may have, in order.

    Raises `ConfigError` for an empty name or category, for no category, for one given twice, and for a name that has a
    meaning of its own ("geoid", "total", "detailed", or one with "*").

    Examples:
        >>> td.Attribute("sex", ("female", "male")).categories
        ('female', 'male')
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
    """A named coarsening of an attribute: groups of its categories.

    Groups may be of any size; they stand in the order given. Raises `ConfigError` as `Attribute` does for names, and
    for a group without categories.

    Args:
        name: the name, by which queries ask for it.
        attribute: the name of the attribute.
        groups: each a name with its categories; together they partition the attribute's categories.

    Examples:
        >>> recode = td.Recode("minor", "age", (("minor", ("child",)), ("of age", ("adult", "old"))))
        >>> recode.attribute, len(recode.groups)
        ('age', 2)
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
                if category not in place:
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
"""A structural zero: attributes or recodes, each with categories; no record has one of the given categories in all of
them.
"""


@dataclass(frozen=True, eq=False)
class ProductNames(Sequence[str]):
    """The names of the cells of a product, in order; each is made when it is asked for, and none is kept.

    ``categories``: of every attribute. It equals any sequence of the same texts.
    """

    categories: tuple[tuple[str, ...], ...]
    separator: str

    def __len__(self) -> int:
        return math.prod(map(len, self.categories))

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self[k] for k in range(len(self))[place])
        rest, found = range(len(self))[place], list[str]()
        for categories in reversed(self.categories):
            rest, k = divmod(rest, len(categories))
            found.append(categories[k])
        return self.separator.join(reversed(found))

    def __iter__(self) -> Iterator[str]:
        return map(self.separator.join, itertools.product(*self.categories))

    def require_distinct(self, what: str) -> None:
        """Refuse two names that are the same text, joined of other categories. ``what``: of what they are names. Raises
        `ConfigError`.
        """
        within = [one for categories in self.categories for one in categories if self.separator in one]
        if len(self.categories) < 2 or not within:
            return
        seen = set[str]()
        for name in self:
            if name in seen:
                raise ConfigError(
                    f"{what} {shown(name)} is made of two combinations of categories, joined by {self.separator!r}; "
                    f"rename {shown(within[0])} or another category with {self.separator!r} in it"
                )
            seen.add(name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ProductNames) and (self.categories, self.separator) == (other.categories, other.separator):
            return True
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"ProductNames({len(self):,}: {listed(self[:3])})"


@dataclass(frozen=True, slots=True)
class Schema:
    """The cells of a table as the product of ``attributes``: the last attribute's category changes fastest.

    Args:
        attributes: in the order in which the cells are numbered.
        recodes: named coarsenings of single attributes, by which queries may ask.
        zeros: structural zeros: combinations of categories that no record can have, publicly so.

    Raises `ConfigError` for no attribute, for two attributes or recodes of one name, for a recode that does not
    partition its attribute, for a zero of unknown names, and where no cell is left.

    Examples:
        >>> schema = td.Schema.from_mapping(
        ...     {"sex": ["female", "male"], "age": ["child", "adult", "old"]},
        ...     recodes={"age": {"minor": {"minor": ["child"], "of age": ["adult", "old"]}}},
        ... )
        >>> schema.n_cells, schema.cells()[:2]
        (6, ('female_child', 'female_adult'))
    """

    attributes: tuple[Attribute, ...]
    recodes: tuple[Recode, ...] = ()
    zeros: tuple[Zero, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        object.__setattr__(self, "zeros", tuple(self.zeros))
        for one in self.attributes:
            if not isinstance(one, Attribute):
                raise ConfigError(
                    f"attribute {shown(one)} is no Attribute; Schema.from_mapping makes a schema of names and their "
                    "categories"
                )
        if not self.attributes:
            raise ConfigError("a schema needs an attribute; give its name and categories")
        object.__setattr__(self, "recodes", tuple(self.recodes))
        seen = set()
        for name in (*self.names, *(recode.name for recode in self.recodes)):
            if name in seen:
                raise ConfigError(f"two attributes or recodes are called {shown(name)}; rename one of them")
            seen.add(name)
        for recode in self.recodes:
            require_known(recode.attribute, self.names, f"attribute of recode {shown(recode.name)}:")
            recode.codes(self.attribute(recode.attribute))
        if self.n_cells >= 2**63:
            raise ConfigError(
                f"the schema has {self.n_cells} cells, and a cell's number has 63 bits; drop an attribute"
            )
        if self.zeros and not self._leaves_a_cell():
            raise ConfigError("the zeros exclude every cell; drop one of them")

    @classmethod
    def from_mapping(
        cls,
        attributes: Mapping[str, Sequence[str]],
        recodes: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]] | None = None,
        zeros: Sequence[Mapping[str, str | Sequence[str]]] = (),
    ) -> Schema:
        """The schema of mappings, as a configuration has them.

        Args:
            attributes: name to categories, in the order in which the cells are numbered.
            recodes: attribute to recode's name to group to the categories in it.
            zeros: for each, attributes or recodes to the category or categories that do not occur together.
        """
        found = [
            Recode(name, attribute, tuple((group, _listed(members, group)) for group, members in groups.items()))
            for attribute, named in (recodes or {}).items()
            for name, groups in named.items()
        ]
        return cls(
            tuple(Attribute(name, _listed(given, name)) for name, given in attributes.items()),
            tuple(found),
            cls.zeros_of(zeros),
        )

    @staticmethod
    def zeros_of(zeros: Sequence[Mapping[str, str | Sequence[str]]]) -> tuple[Zero, ...]:
        """``zeros`` of mappings, as `from_mapping` takes them, in the form that a schema has."""
        return tuple(
            tuple((name, (given,) if isinstance(given, str) else tuple(given)) for name, given in zero.items())
            for zero in zeros
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
        """The schema of cells that are no product of attributes: one attribute, whose categories they are.

        Args:
            cells: the names of the cells.
            name: the name of the attribute.
        """
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

    @property
    def is_large(self) -> bool:
        """Whether it has more than `MOST_CELLS` cells, too many for tables of them."""
        return self.n_cells > MOST_CELLS

    def require_listable(self) -> None:
        """Refuse more than `MOST_CELLS` cells, too many for tables of them. Raises `ConfigError`."""
        self._require_at_most(MOST_CELLS, "here, where there are tables of them, are")

    def require_solvable(self) -> None:
        """Refuse more cells than any release has. Raises `ConfigError`."""
        self._require_at_most(_MOST_SOLVABLE, "a release has")

    def _require_at_most(self, most: int, who: str) -> None:
        if self.n_cells > most:
            raise ConfigError(
                f"the schema has {self._in_words()} cells, and {who} at most {most:,}; leave an attribute out, or "
                "group its categories"
            )

    def _in_words(self) -> str:
        """The product of the attributes: "2 sex x 3 age = 6"."""
        product = " x ".join(f"{len(a.categories)} {unquoted(a.name)}" for a in self.attributes[:3])
        return f"{product}{' x ...' if len(self.attributes) > 3 else ''} = {self.n_cells:,}"

    def attribute(self, name: str) -> Attribute:
        """The attribute called ``name``. Raises `ConfigError` with the nearest name where there is none."""
        require_known(name, self.names, "attribute")
        return self.attributes[self.names.index(name)]

    def possible_cells(self) -> npt.NDArray[np.int64]:
        """The numbers of the cells that no zero excludes, in order."""
        if not self.zeros:
            return np.arange(self.n_cells)
        return self._where(impossible=False)

    def impossible_cells(self) -> npt.NDArray[np.int64]:
        """The numbers of the cells that a zero excludes, in order."""
        return self._where(impossible=True) if self.zeros else np.zeros(0, np.int64)

    def _where(self, *, impossible: bool) -> npt.NDArray[np.int64]:
        """The numbers of the cells that a zero excludes, or of the others, in order; found in batches."""
        starts = range(0, self.n_cells, _CELLS_AT_ONCE)
        parts = (np.arange(start, min(start + _CELLS_AT_ONCE, self.n_cells)) for start in starts)
        return np.concatenate([part[self.excluded(part) == impossible] for part in parts])

    def excluded(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of ``cells`` (numbers of cells) one of the ``zeros`` excludes."""
        found = np.zeros(len(cells), np.bool_)
        for zero in self.zeros:
            found |= self._within(cells, self._closed(zero))
        return found

    def holds(self, cells: npt.NDArray[np.int64], condition: Zero) -> npt.NDArray[np.bool_]:
        """Which of ``cells`` (numbers of cells) have one of the categories of every attribute or recode that
        ``condition`` names; () names none. Raises `ConfigError` for unknown names in it."""
        return self._within(cells, self._chosen(condition, "a condition"))

    def named(self, conditions: Sequence[Zero]) -> list[int]:
        """The places of the attributes that ``conditions`` name, themselves or by a recode, in order."""
        attribute_of = {name: name for name in self.names} | {r.name: r.attribute for r in self.recodes}
        return sorted({self.names.index(attribute_of[name]) for condition in conditions for name, _ in condition})

    def _within(
        self, cells: npt.NDArray[np.int64], chosen: Mapping[int, npt.NDArray[np.bool_]]
    ) -> npt.NDArray[np.bool_]:
        places = np.unravel_index(cells, self.shape)
        found = np.ones(len(cells), np.bool_)
        for number, categories in chosen.items():
            found &= categories[places[number]]
        return found

    def _closed(self, zero: Zero) -> dict[int, npt.NDArray[np.bool_]]:
        if not zero:
            raise ConfigError("a zero is empty; give it attributes and their categories")
        return self._chosen(zero, "a zero")

    def _chosen(self, condition: Zero, what: str) -> dict[int, npt.NDArray[np.bool_]]:
        """For every attribute that ``condition`` names, by the attribute's number, which categories it names;
        (categories,).
        """
        recodes = {recode.name: recode for recode in self.recodes}
        found: dict[int, npt.NDArray[np.bool_]] = {}
        for name, given in condition:
            require_known(name, [*self.names, *recodes], f"attribute of {what}:")
            attribute = self.attribute(recodes[name].attribute if name in recodes else name)
            known = recodes[name].categories if name in recodes else attribute.categories
            place = {category: k for k, category in enumerate(known)}
            for category in given:
                if category not in place:
                    require_known(category, known, f"category of {shown(name)} in {what}:")
            codes = recodes[name].codes(attribute) if name in recodes else np.arange(len(known))
            chosen = np.isin(codes, [place[category] for category in given])
            number = self.names.index(attribute.name)
            found[number] = chosen & found[number] if number in found else chosen
        return found

    def _leaves_a_cell(self) -> bool:
        """Whether the zeros leave a cell, found attribute by attribute without a table of all cells.

        After a choice of categories some zeros can still exclude the cell (kept as bits of a number); where none can,
        every cell with these categories is possible. Raises `ConfigError` where too many such sets would have to be
        examined.
        """
        held = [[(1 << len(self.zeros)) - 1] * size for size in self.shape]
        for bit, zero in enumerate(self.zeros):
            for number, chosen in self._closed(zero).items():
                for k in np.flatnonzero(~chosen).tolist():
                    held[number][k] &= ~(1 << bit)
        ways = [set(one) for one in held]
        begin = (0, (1 << len(self.zeros)) - 1)
        seen, open_ends = {begin}, [begin]
        while open_ends:
            number, left = open_ends.pop()
            if not left:
                return True
            if number == len(ways):
                continue
            if len(seen) > _MOST_STATES:
                raise ConfigError(
                    f"the schema has {len(self.zeros)} zeros, too many to find out whether they leave a cell; join some"
                )
            # The choice that leaves the fewest zeros is examined first.
            further = {(number + 1, left & one) for one in ways[number]} - seen
            seen |= further
            open_ends += sorted(further, key=lambda one: -one[1].bit_count())
        return False

    def cells(self, separator: str = "_") -> Sequence[str]:
        """The cells' names, categories joined by ``separator``, the last attribute's changing fastest; each is made
        when it is asked for.
        """
        return ProductNames(tuple(attribute.categories for attribute in self.attributes), separator)

    def codes(self, cells: Sequence[str]) -> npt.NDArray[np.int32]:
        """(cells x attributes): the category of every one of a table's ``cells`` in every attribute.

        Cells whose names are their categories joined by one and the same separator (``SEPARATORS``) are found by name,
        in any order; any others are assumed to be in the product's order, the last attribute's category changing
        fastest. Raises `ConfigError` where the numbers of cells differ.
        """
        if len(cells) != self.n_cells:
            raise ConfigError(
                f"the schema has {self._in_words()} cells and the table has {len(cells):,}; give every attribute all "
                "of its categories, and the table every combination"
            )
        place = np.arange(self.n_cells)
        given = {cell: k for k, cell in enumerate(cells)}
        for separator in SEPARATORS:
            # The first name that is missing shows that the cells do not have this separator.
            found = list(itertools.takewhile(lambda k: k >= 0, (given.get(one, -1) for one in self.cells(separator))))
            if len(found) == self.n_cells == len(set(found)):
                place[found] = np.arange(self.n_cells)
                break
        return np.stack(np.unravel_index(place, self.shape), axis=1).astype(np.int32)


def _listed(categories: Sequence[str], name: str) -> tuple[str, ...]:
    if isinstance(categories, str):
        raise ConfigError(f"{shown(name)}: give a list of categories, not the text {shown(categories)}")
    return tuple(categories)
