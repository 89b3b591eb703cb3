"""Estimate: consistent values, their variance where it is known, and a certificate that they solve their program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.projection.check.certificate import Certificate
from topdown.projection.histograms.least_squares import Covariance
from topdown.tables.tidy import ArrowTable, tidy_batches, to_arrow, to_frame
from topdown.workload import Query, Schema


class Answer(NamedTuple):
    """A query's answers at a level's nodes: ``values`` (nodes x answers) and their ``variance``, None if unknown."""

    values: FloatArray
    variance: FloatArray | None


@dataclass(frozen=True, eq=False)
class Estimate(ArrowTable):
    """Consistent values at every node, made from measurements alone.

    Args:
        geography: the units.
        cells: the names of the cells, in order.
        values: (nodes x cells) every family adds up, to rounding.
        variance: (nodes x cells) the variance of every value given the truth, or None where it is not known (every
            non-negative projection).
        method: of the projection, as `project` takes it.
        nonnegative: whether x >= 0 was asked for.
        engine: "tree" or "cvxpy".
        weights: "variance" or "uniform".
        certificate: the residuals of its program.
        exact: (nodes x cells) which values are exact (invariants, and what they imply).
        fit_for_release: whether the measurements were drawn exactly, from operating-system entropy.
        attributes: the schema of the cells, None where they are one attribute.
        covariance: of all answers together, where several queries were measured.
        upward: where the upward pass started; None for the leaves.
        order: the queries that were made non-negative first, by level.

    Examples:
        >>> estimate.method, estimate.nonnegative
        ('gls-top-down', True)
        >>> bool(abs(estimate.values[0] - estimate.values[1:3].sum(axis=0)).max() < 1e-9)
        True
    """

    geography: Geography
    cells: Sequence[str]
    values: FloatArray = field(repr=False)
    variance: FloatArray | None = field(repr=False)
    method: str
    nonnegative: bool
    engine: str
    weights: str
    certificate: Certificate
    exact: npt.NDArray[np.bool_] = field(repr=False)
    fit_for_release: bool = False
    attributes: Schema | None = None
    covariance: Covariance | None = field(default=None, repr=False)
    upward: str | None = None
    order: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The schema of the cells."""
        return Schema.of_cells(self.cells) if self.attributes is None else self.attributes

    def answer(self, level: str, query: str) -> Answer:
        """The answers to any ``query``, measured or not, at every node of ``level``, with their variances where known.

        Raises `GeographyError` for an unknown level, `ConfigError` with the nearest known name for an unknown query.
        """
        return self.answers_of(self.geography.level_slice(level), Query.parse(query, self.schema))

    def answers_of(self, nodes: slice, asked: Query) -> Answer:
        """The answers to ``asked``, of a schema with the same attributes, at ``nodes``, with their variances."""
        values = asked.answers(self.values[nodes])
        if self.covariance is not None:
            return Answer(values, self.covariance.variance(asked, nodes))
        # Where only the detailed query was measured the cells are independent, so that variances add up.
        return Answer(values, None if self.variance is None else asked.answers(self.variance[nodes]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The tidy table ``geoid, level, cell, value[, variance]`` in Arrow batches."""
        known = {} if self.variance is None else {"variance": self.variance}
        return tidy_batches(self.geography, self.cells, {"value": self.values, **known})

    def to_frame(self) -> pd.DataFrame:
        """The tidy table ``geoid, level, cell, value[, variance]``."""
        return to_frame(self.batches())

    def to_arrow(self) -> pa.Table:
        """The tidy table ``geoid, level, cell, value[, variance]``."""
        return to_arrow(self.batches())
