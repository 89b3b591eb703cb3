"""Schema: what the cells of a table mean, as products of attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.wording import shown, unquoted

SEPARATORS = ("_", "-", " ", ".", ":", "/", ",", ", ", "|", "*", " x ")
"""What may join the categories in a cell's name."""

RESERVED = ("geoid",)


@dataclass(frozen=True, slots=True)
class Attribute:
    """A property of every record: its ``name`` and its ``categories``, in order.

    Raises `ConfigError` for an empty name or category, for no category, for one given twice, and for the name "geoid",
    which is the unit's.
    """

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", tuple(self.categories))
        if not isinstance(self.name, str) or not self.name or self.name in RESERVED:
            raise ConfigError(
                f"attribute {shown(self.name)}: give it a name of its own (not 'geoid', which is the unit's)"
            )
        if not self.categories:
            raise ConfigError(f"attribute {shown(self.name)} has no categories; give at least one")
        for category in self.categories:
            if not isinstance(category, str) or not category:
                raise ConfigError(
                    f"attribute {shown(self.name)}, category {shown(category)}: give a text that is not empty"
                )
            if self.categories.count(category) > 1:
                raise ConfigError(
                    f"attribute {shown(self.name)} has the category {shown(category)} twice; name each once"
                )


@dataclass(frozen=True, slots=True)
class Schema:
    """The cells of a table as the product of ``attributes``: the last attribute's category changes fastest.

    Raises `ConfigError` for no attribute and for two of one name.
    """

    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if not self.attributes:
            raise ConfigError("a schema needs an attribute; give its name and categories")
        for name in self.names:
            if self.names.count(name) > 1:
                raise ConfigError(f"two attributes are called {shown(name)}; rename one of them")

    @classmethod
    def from_mapping(cls, attributes: Mapping[str, Sequence[str]]) -> Schema:
        """The schema of ``attributes``, name to categories, in the mapping's order."""
        for name, categories in attributes.items():
            if isinstance(categories, str):
                raise ConfigError(
                    f"attribute {shown(name)}: give a list of categories, not the text {shown(categories)}"
                )
        return cls(tuple(Attribute(name, tuple(categories)) for name, categories in attributes.items()))

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
