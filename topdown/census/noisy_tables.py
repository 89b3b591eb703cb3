"""Collects the rows of noisy measurement files by level and query: measurements, exact answers, limits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from topdown.census.layouts import noisy_layout as layout
from topdown.census.layouts.noisy_partitions import NoisyRows, Partition
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.measurements.measurements import Answers, Measurements
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.projection.conditions import Limits
from topdown.projection.limits import AnswerLimits
from topdown.wording import shown
from topdown.workload import DETAILED, TOTAL, Query


@dataclass(frozen=True)
class NoisyTables:
    """By level and query the ``measured`` answers, and by level, query and sign the ``constrained`` ones; both have a
    variance of inf where there is no row. ``detailed`` (nodes x cells): the values of the detailed query.
    """

    geography: Geography
    product: layout.Product
    detailed: npt.NDArray[np.int64] = field(repr=False)
    measured: dict[tuple[str, Query], Answers] = field(default_factory=dict, repr=False)
    constrained: dict[tuple[str, Query, str], Answers] = field(default_factory=dict, repr=False)

    @classmethod
    def empty(cls, geography: Geography, product: layout.Product) -> NoisyTables:
        """Tables without rows."""
        # One cell after the other, as `Measurements` has them.
        return cls(geography, product, np.zeros((product.schema.n_cells, geography.n_nodes), np.int64).T)

    def take(self, level: str, partition: Partition, rows: NoisyRows) -> None:
        """Add ``rows``. Raises `DataError` naming a unit that is unknown, or has two rows."""
        nodes = self.geography.level_slice(level)
        known = self.geography.identifiers.slice(nodes.start, nodes.stop - nodes.start)
        place = pc.fill_null(pc.index_in(rows.codes, value_set=known), -1).to_numpy(zero_copy_only=False)
        place = np.zeros(len(place), np.int64) if partition.part == "" else place
        if (place < 0).any():
            code = rows.codes[int(np.argmax(place < 0))].as_py()
            raise DataError(
                f"{partition}: unit {shown(code)} is not among the constraints of its level; fetch both again"
            )
        if rows.query is None:
            if rows.values.any():
                code = rows.codes[int(np.argmax(rows.values.any(axis=1)))].as_py()
                raise DataError(f"{partition}: unit {shown(code)}: a structural zero is not 0; fetch it again")
            return
        table = self._table(level, rows.query, rows.sign)
        again = np.isfinite(table.variance[place]) | (np.bincount(place)[place] > 1)
        if again.any():
            code = rows.codes[int(np.argmax(again))].as_py()
            raise DataError(
                f"{partition}: unit {shown(code)} has two rows of query {shown(rows.query.name)}; fetch it again"
            )
        table.values[place], table.variance[place] = rows.values, rows.variance

    def _table(self, level: str, query: Query, sign: str | None) -> Answers:
        nodes = self.geography.level_slice(level)
        count = nodes.stop - nodes.start
        if sign is not None:
            if (level, query, sign) not in self.constrained:
                nothing = Answers(np.zeros((count, query.n_answers), np.int64), np.full(count, np.inf))
                self.constrained[level, query, sign] = nothing
            return self.constrained[level, query, sign]
        if (level, query) not in self.measured:
            is_whole = query.name == DETAILED
            values = self.detailed[nodes] if is_whole else np.zeros((count, query.n_answers), np.int64)
            self.measured[level, query] = Answers(values, np.full(count, np.inf))
        return self.measured[level, query]

    def hold_total(self, total: int) -> None:
        """The root's total is exactly ``total``."""
        schema = self.product.schema
        table = self._table(self.geography.levels[0], Query.parse(TOTAL, schema), layout.EXACT)
        table.values[0], table.variance[0] = total, 0.0

    def measurements(self) -> Measurements:
        """The measurements, with exact answers in their place. Raises `DataError` where there are none."""
        for (level, query, sign), (values, known) in self.constrained.items():
            if sign == layout.EXACT:
                table, rows = self._table(level, query, None), np.isfinite(known)
                table.values[rows], table.variance[rows] = values[rows], 0.0
        schema, levels = self.product.schema, self.geography.levels
        spread = np.full(self.geography.n_nodes, np.inf)
        others: dict[tuple[str, str], Answers] = {}
        for level, query in sorted(self.measured, key=lambda key: levels.index(key[0])):
            if query.name == DETAILED:
                spread[self.geography.level_slice(level)] = self.measured[level, query].variance
            else:
                others[level, query.name] = self.measured[level, query]
        if not self.measured:
            raise DataError("nothing was measured at these levels; read others too")
        return Measurements(self.geography, schema.cells(), self.detailed, spread, attributes=schema, others=others)

    def limits(self, geography: Geography) -> AnswerLimits | None:
        """The limits other than 0 and infinity, on ``geography``, which has the same units, maybe with other names of
        levels.
        """
        found: dict[Query, Limits] = {}
        for (level, query, sign), (values, variance) in self.constrained.items():
            if sign == layout.EXACT:
                continue
            nodes, shape = self.geography.level_slice(level), (geography.n_nodes, query.n_answers)
            own = found.setdefault(query, Limits(np.zeros(shape), np.full(shape, np.inf)))
            known = np.isfinite(variance)[:, None]
            if sign == layout.AT_LEAST:
                own.low[nodes] = np.where(known, np.maximum(values, 0), 0)
            else:
                own.high[nodes] = np.where(known & (values < LARGEST_WHOLE), values, np.inf)
        telling = {q: one for q, one in found.items() if (one.low > 0).any() or np.isfinite(one.high).any()}
        return AnswerLimits(geography, self.product.schema, telling) if telling else None
