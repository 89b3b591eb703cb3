"""A schema with structural zeros as a product of attributes without any, and its queries in that product, as least
squares needs them.

Attributes that a zero names together become one attribute of the product; its categories are the combinations that can
occur. A query that keeps some of them keeps a recode of it: a partition of these combinations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import IntArray
from topdown.workload.query import Query
from topdown.workload.schema import Attribute, Recode, Schema


class ProductQuery(NamedTuple):
    """A query in the product, and to which of the ``answers`` of the original query its answers belong (impossible
    answers have none); None where they are all of them in order.
    """

    query: Query
    answers: IntArray | None


@dataclass(frozen=True, eq=False)
class ProductSchema:
    """``schema`` as the product of the attributes of ``attributes``, a schema without zeros.

    ``cells``: for every cell of the product its number in ``schema``, None where the numbers are the same. ``places``:
    for every attribute of the product the places in ``schema`` of the attributes that it combines. ``codes``
    (categories x places): for every category of the product's attribute the categories that it combines.
    """

    schema: Schema
    attributes: Schema
    cells: IntArray | None = None
    places: tuple[tuple[int, ...], ...] = ()
    codes: tuple[IntArray, ...] = ()
    _asked: dict[Query, ProductQuery] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, schema: Schema) -> ProductSchema:
        """The product for a schema; a schema without zeros is its own product."""
        if not schema.zeros:
            return cls(schema, schema)
        places, codes, attributes = [], [], []
        for number, (linked, part) in enumerate(_parts(schema)):
            places.append(linked)
            codes.append(np.stack(np.unravel_index(part.possible_cells(), part.shape), axis=1))
            attributes.append(Attribute(str(number), tuple(map(str, range(len(codes[-1]))))))
        product = Schema(tuple(attributes))
        own = np.empty((len(schema.shape), product.n_cells), np.int64)
        at = np.unravel_index(np.arange(product.n_cells), product.shape)
        for linked, code, place in zip(places, codes, at, strict=True):
            own[list(linked)] = code[place].T
        cells = np.asarray(np.ravel_multi_index(tuple(own), schema.shape))
        return cls(schema, product, cells, tuple(places), tuple(codes))

    def asked(self, query: Query) -> ProductQuery:
        """``query``, of a schema with the same attributes, as a query of the product."""
        if self.cells is None:
            return ProductQuery(query, None)
        if query not in self._asked:
            self._asked[query] = self._in_product(query, self.cells)
        return self._asked[query]

    def _in_product(self, query: Query, cells: IntArray) -> ProductQuery:
        recodes, kept = list[Recode](), list[str | None]()
        for attribute, places, codes in zip(self.attributes.attributes, self.places, self.codes, strict=True):
            of_each = [
                own[codes[:, k]] for k, place in enumerate(places) if (own := query.group_codes()[place]) is not None
            ]
            group = np.unique(np.stack([codes[:, 0] * 0, *of_each]), axis=1, return_inverse=True)[1].reshape(-1)
            members = [np.flatnonzero(group == k) for k in range(int(group.max()) + 1)]
            if len(members) in (1, len(codes)):
                kept.append(attribute.name if len(members) > 1 else None)
                continue
            name = f"{attribute.name}: {' and '.join(str(query.kept[place]) for place in places)}"
            groups = tuple((str(k), tuple(map(str, some.tolist()))) for k, some in enumerate(members))
            recodes.append(Recode(name, attribute.name, groups))
            kept.append(name)
        found = Query(Schema(self.attributes.attributes, tuple(recodes)), tuple(kept))
        answers = np.empty(found.n_answers, np.int64)
        answers[found.answers_of(np.arange(len(cells)))] = query.answers_of(cells)
        return ProductQuery(found, answers)


def _parts(schema: Schema) -> Iterator[tuple[tuple[int, ...], Schema]]:
    """Groups of attributes that zeros name together, directly or through others, as their places, each group with the
    schema of these attributes alone; every other attribute is a group by itself.
    """
    attribute_of = {name: name for name in schema.names} | {r.name: r.attribute for r in schema.recodes}
    named = [{schema.names.index(attribute_of[name]) for name, _ in zero} for zero in schema.zeros]
    left = set(range(len(schema.names)))
    while left:
        linked = {min(left)}
        while grown := [one for one in named if one & linked and not one <= linked]:
            linked = linked.union(*grown)
        left -= linked
        attributes = tuple(schema.attributes[k] for k in sorted(linked))
        names = [attribute.name for attribute in attributes]
        recodes = tuple(recode for recode in schema.recodes if recode.attribute in names)
        zeros = tuple(zero for zero, of_zero in zip(schema.zeros, named, strict=True) if of_zero <= linked)
        yield tuple(sorted(linked)), Schema(attributes, recodes, zeros)
