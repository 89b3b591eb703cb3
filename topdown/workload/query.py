"""Query: which attributes of a histogram are kept, whole or by a recode; everything else is summed out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, require_known
from topdown.geography.tree import FloatArray, IntArray
from topdown.wording import shown
from topdown.workload.schema import DETAILED, TIMES, TOTAL, Attribute, ProductNames, Recode, Schema

if TYPE_CHECKING:
    from scipy import sparse


_FEW_CELLS = 1 << 16


def normal_name(text: str) -> str:
    """``text`` with single blanks around every "*", so that spellings of a query agree before it is parsed."""
    return f" {TIMES} ".join(part.strip() for part in text.split(TIMES))


@dataclass(frozen=True)
class Query:
    """A marginal of a histogram over ``schema``.

    The answers are the product of what is kept, in the schema's order, the last changing fastest; they partition
    the cells, so one record counts in exactly one of them. Build one with `parse`.

    Args:
        schema: whose cells it is about.
        kept: for every attribute its own name where it is kept whole, a recode's name where it is kept coarsened,
            None where it is summed out.

    Examples:
        >>> query = td.Query.parse("sex * minor", schema)
        >>> query.n_answers, list(query.labels())
        (4, ['female_minor', 'female_of age', 'male_minor', 'male_of age'])
    """

    schema: Schema
    kept: tuple[str | None, ...]

    @classmethod
    def parse(cls, text: str, schema: Schema) -> Query:
        """The query of ``schema`` that ``text`` names: "total", "detailed", or names of attributes and recodes joined
        by "*".

        Raises `ConfigError` with the nearest known name for an unknown one, for an attribute named twice, and for an
        attribute together with its recode or two of its recodes.
        """
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"query {shown(text)}: give {TOTAL!r}, {DETAILED!r}, or names joined by {TIMES!r}")
        if text.strip() == TOTAL:
            return cls(schema, (None,) * len(schema.names))
        if text.strip() == DETAILED:
            return cls(schema, schema.names)
        attribute_of = {name: name for name in schema.names} | {r.name: r.attribute for r in schema.recodes}
        kept: dict[str, str] = {}
        for name in (part.strip() for part in text.split(TIMES)):
            require_known(name, [*attribute_of, TOTAL, DETAILED], f"part of query {shown(text)}:")
            if name not in attribute_of:
                raise ConfigError(f"query {shown(text)}: {shown(name)} cannot be joined with other names")
            other = kept.get(attribute_of[name])
            if other == name:
                raise ConfigError(f"query {shown(text)} names {shown(name)} twice; name it once")
            if other is not None:
                raise ConfigError(
                    f"query {shown(text)}: {shown(other)} and {shown(name)} are both of attribute "
                    f"{shown(attribute_of[name])}; keep one of them, or declare a recode with the groups that "
                    "they make together"
                )
            kept[attribute_of[name]] = name
        return cls(schema, tuple(kept.get(name) for name in schema.names))

    @property
    def name(self) -> str:
        """The query as text, which `parse` reads."""
        if all(part is None for part in self.kept):
            return TOTAL
        if self.kept == self.schema.names:
            return DETAILED
        return f" {TIMES} ".join(part for part in self.kept if part is not None)

    def __hash__(self) -> int:
        return hash(self.kept)  # hashing a schema is slow, and queries that are compared mostly have the same

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Query({self.name!r})"

    def parts(self) -> Iterator[Attribute | Recode | None]:
        """What is kept of every attribute of the schema: the attribute, one of its recodes, or None."""
        return iter(self._parts)

    @cached_property
    def _parts(self) -> tuple[Attribute | Recode | None, ...]:
        recodes = {recode.name: recode for recode in self.schema.recodes}
        return tuple(
            None if part is None else attribute if part == attribute.name else recodes[part]
            for attribute, part in zip(self.schema.attributes, self.kept, strict=True)
        )

    @property
    def factors(self) -> tuple[Attribute | Recode, ...]:
        """The attributes and recodes that are kept, in the schema's order."""
        return tuple(part for part in self.parts() if part is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of categories of everything that is kept."""
        return tuple(len(factor.categories) for factor in self.factors)

    @cached_property
    def n_answers(self) -> int:
        """Number of answers, the product of ``shape``: 1 for "total"."""
        return math.prod(self.shape)

    def labels(self, separator: str = "_") -> Sequence[str]:
        """The answers' names: their categories joined by ``separator``, each made when it is asked for; "total" where
        nothing is kept.
        """
        if not self.factors:
            return (TOTAL,)
        return ProductNames(tuple(factor.categories for factor in self.factors), separator)

    def require_labels(self) -> None:
        """Refuse two answers with the same name. Raises `ConfigError`."""
        names = self.labels()
        if isinstance(names, ProductNames):
            names.require_distinct(f"query {shown(self.name)}: the name")

    def group_codes(self) -> list[IntArray | None]:
        """For every attribute the kept category of each of its categories; None where it is summed out."""
        return self._group_codes

    @cached_property
    def _group_codes(self) -> list[IntArray | None]:
        return [
            None if part is None else part.codes(attribute) if isinstance(part, Recode) else np.arange(size)
            for attribute, part, size in zip(self.schema.attributes, self.parts(), self.schema.shape, strict=True)
        ]

    def answers_of(self, cells: npt.ArrayLike) -> IntArray:
        """The answer in which each of ``cells`` (numbers of cells, any shape) counts.

        Where there are few cells a table of all of them is made once and kept, because this is called very often.
        """
        wanted = np.asarray(cells, dtype=np.int64)
        return self._found_answers(wanted) if self._answer_of_each is None else self._answer_of_each[wanted]

    @cached_property
    def _answer_of_each(self) -> IntArray | None:
        n_cells = self.schema.n_cells
        return self._found_answers(np.arange(n_cells)) if n_cells <= _FEW_CELLS else None

    def _found_answers(self, cells: IntArray) -> IntArray:
        places = np.unravel_index(cells, self.schema.shape)
        answer = np.zeros(cells.shape, np.int64)
        for codes, place, part in zip(self.group_codes(), places, self.parts(), strict=True):
            if part is not None and codes is not None:
                answer = answer * len(part.categories) + codes[place]
        return answer

    def sizes(self) -> IntArray:
        """The number of cells that every answer is the sum of; (answers,)."""
        found = np.ones(1, np.int64)
        for codes, size in zip(self.group_codes(), self.schema.shape, strict=True):
            own = np.array([size]) if codes is None else np.bincount(codes)
            found = (found[:, None] * own).reshape(-1)
        return found

    def examples(self) -> IntArray:
        """For every answer one of the cells that count in it; (answers,)."""
        found = np.zeros(1, np.int64)
        for codes, size in zip(self.group_codes(), self.schema.shape, strict=True):
            first = np.zeros(1, np.int64) if codes is None else np.unique(codes, return_index=True)[1]
            found = (found[:, None] * size + first).reshape(-1)
        return found

    def answers(self, histogram: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The answers (..., answers) of the dense ``histogram`` (..., cells), in the histogram's kind of number."""
        lead = histogram.shape[:-1]
        table = histogram.reshape(*lead, *self.schema.shape)
        axis = len(lead)
        # Sums are taken first, since they make the table smaller for the rest.
        asked = list(zip(self.parts(), self.group_codes(), strict=True))
        summed = tuple(axis + k for k, (part, _) in enumerate(asked) if part is None)
        table = table.sum(axis=summed) if summed else table
        for part, codes in (one for one in asked if one[0] is not None):
            if isinstance(part, Recode) and codes is not None:
                order = np.argsort(codes, kind="stable")
                starts = np.searchsorted(codes[order], np.arange(len(part.categories)))
                ordered = table if np.array_equal(order, np.arange(len(order))) else np.take(table, order, axis=axis)
                table = np.add.reduceat(ordered, starts, axis=axis)
            axis += 1
        return np.asarray(table.reshape(*lead, self.n_answers))

    def sparse_answers(
        self, rows: IntArray, cells: IntArray, counts: npt.NDArray[Any], n_rows: int
    ) -> npt.NDArray[Any]:
        """The answers (``n_rows`` x answers) of a sparse table: ``counts`` of ``cells`` in ``rows``; what is absent is
        0.
        """
        found = np.zeros((n_rows, self.n_answers), np.asarray(counts).dtype)
        # With one index, for which numpy has a fast loop.
        np.add.at(found.reshape(-1), rows * self.n_answers + self.answers_of(cells), counts)
        return found

    def spread(self, answers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The transpose of `answers`: every cell gets the number of its answer; ``answers`` (..., answers) to (...,
        cells).
        """
        lead = answers.shape[:-1]
        table = answers.reshape(*lead, *self.shape)
        axis = len(lead)
        for part, codes in zip(self.parts(), self.group_codes(), strict=True):
            table = np.expand_dims(table, axis) if part is None or codes is None else np.take(table, codes, axis=axis)
            axis += 1
        return np.broadcast_to(table, (*lead, *self.schema.shape)).reshape(*lead, self.schema.n_cells)

    def matrix(self) -> sparse.csr_array:
        """The query as a sparse matrix (answers x cells) of zeros and ones."""
        from scipy import sparse

        cells = np.arange(self.schema.n_cells)
        entries = (np.ones(len(cells)), (self.answers_of(cells), cells))
        return sparse.csr_array(entries, shape=(self.n_answers, len(cells)))

    def is_part_of(self, other: Query) -> bool:
        """Whether every answer is a sum of answers of ``other``."""
        return all(
            mine is None or mine == theirs or theirs == attribute
            for mine, theirs, attribute in zip(self.kept, other.kept, self.schema.names, strict=True)
        )


def design(query: Query) -> list[FloatArray]:
    """For every attribute the matrix (kept x categories) by which ``query`` acts on it; their Kronecker product is
    `matrix`.
    """
    found = []
    for codes, part, size in zip(query.group_codes(), query.parts(), query.schema.shape, strict=True):
        if part is None or codes is None:
            found.append(np.ones((1, size)))
        else:
            found.append((codes == np.arange(len(part.categories))[:, None]).astype(np.float64))
    return found
