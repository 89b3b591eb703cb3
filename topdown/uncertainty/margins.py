"""td.margins(): an interval for every count, from measurements alone, that covers what it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.projection.equality import least_squares
from topdown.projection.solver_inputs import stated
from topdown.tables.tidy import tidy_batches, to_frame
from topdown.uncertainty.known_noise import known_noise
from topdown.uncertainty.laws import NodeLaws, laws_of_nodes
from topdown.uncertainty.node_intervals import Bounds, node_intervals
from topdown.wording import shown
from topdown.workload import DETAILED

if TYPE_CHECKING:
    from topdown.release.whole_counts import Release


@dataclass(frozen=True, eq=False)
class Margins:
    """Intervals of every node and cell, each (nodes x cells): the least-squares ``estimate``, its standard deviation
    ``sd``, and ``lower`` and ``upper``, whole numbers, at ``confidence`` each, or together where ``simultaneous``.
    """

    geography: Geography
    cells: Sequence[str]
    estimate: FloatArray = field(repr=False)
    sd: FloatArray = field(repr=False)
    lower: FloatArray = field(repr=False)
    upper: FloatArray = field(repr=False)
    confidence: float
    simultaneous: bool

    @property
    def columns(self) -> dict[str, Any]:
        """``lower``, ``upper`` and ``moe``, half the length, as a release has them, for `tidy_batches`: the last is
        computed row by row as it is written."""
        return {"lower": self.lower, "upper": self.upper, "moe": lambda nodes: self._lengths(nodes) / 2.0}

    def _lengths(self, nodes: Any) -> FloatArray:
        return np.asarray(self.upper[nodes] - self.lower[nodes])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The tidy table ``geoid, level, query, cell, estimate, sd, lower, upper`` in Arrow batches."""
        columns: dict[str, Any] = {"query": DETAILED, "estimate": self.estimate, "sd": self.sd}
        return tidy_batches(self.geography, self.cells, columns | {"lower": self.lower, "upper": self.upper})


def margins(
    measurements: Measurements,
    release: Release | None = None,
    *,
    confidence: float = 0.9,
    simultaneous: bool = False,
    queries: Sequence[str] | None = None,
) -> pd.DataFrame:
    """An interval for the true count of every node and cell: ``geoid, level, query, cell, estimate, sd, lower, upper``.

    ``estimate``: by least squares over the whole tree, unbiased, with its standard deviation ``sd``. ``lower`` and
    ``upper`` are whole numbers, 0 or more: for every truth, each interval covers it with probability ``confidence`` at
    least, up to the error of the law's approximation, whatever is projected or rounded later. With ``release`` they
    hold the released count as well. ``simultaneous``: all intervals together cover with that probability. Estimate +-
    1.645 sd is no such interval: noise is not normal, and counts are not negative. Where several queries were measured
    there is a row for every answer at the levels where it was; ``queries``: whose answers there are instead, at all
    levels, measured or not ("sex * age", "total").

    Source of the test: Pratt 1961; Yu and Hoff, Biometrika 105:319; see docs/margins.md. Raises `ConfigError` for a
    confidence outside of (0.5, 1), for measurements without a plan, for bounded noise, and for an unknown query;
    `DataError` for a release of other units or cells.
    """
    if measurements.others or queries is not None:
        from topdown.uncertainty.answer_margins import answer_margins  # with a compiler

        alpha = 1.0 - require_confidence(confidence)
        asked = [queries] if isinstance(queries, str) else queries
        return answer_margins(measurements, release, alpha, simultaneous=simultaneous, queries=asked)
    found = node_margins(measurements, release, confidence=confidence, simultaneous=simultaneous)
    return to_frame(found.batches())


def node_margins(
    measurements: Measurements,
    release: Release | None = None,
    *,
    confidence: float = 0.9,
    simultaneous: bool = False,
    linear: FloatArray | None = None,
    executor: Executor | None = None,
    laws: NodeLaws | None = None,
) -> Margins:
    """What `margins` gives, as arrays; ``linear`` (nodes x cells): least squares' values, ``laws``: those of
    `laws_of_nodes`, both where they are known. ``executor``: threads that may work on it."""
    alpha = 1.0 - require_confidence(confidence)
    noise = known_noise(measurements)
    geography, cells = measurements.geography, measurements.cells
    if release is not None and (release.geography != geography or tuple(release.cells) != tuple(cells)):
        raise DataError("the release has other units or cells than the measurements; give the one made of them")
    shape = (len(cells), geography.n_nodes)
    estimate = np.zeros(shape) if linear is None else linear.T
    variance, law = laws_of_nodes(measurements, noise) if laws is None else laws
    del noise  # It may have a number for every node.
    lower, upper = (np.zeros(shape) for _ in range(2))
    impossible = measurements.schema.impossible_cells()
    if simultaneous:
        alpha /= max(1, int((variance > 0).sum()) * (len(cells) - len(impossible)))
    for block in measurements.blocks():  # of an impossible cell all is 0
        if linear is None:
            problem = stated(measurements, "variance", nonnegative=False, cells=block)
            estimate[block] = least_squares(problem.values, problem.variance, geography.tree)
        released = None if release is None else release.values.T[block]
        found = Bounds(lower[block], upper[block])
        node_intervals(estimate[block], variance, law, geography.tree, alpha, released, executor, found)
    sd = np.broadcast_to(np.sqrt(variance)[:, None], shape[::-1])
    if len(impossible):
        sd = np.array(sd)
        sd[:, impossible] = 0.0
    return Margins(geography, cells, estimate.T, sd, lower.T, upper.T, confidence, simultaneous)


def require_confidence(confidence: float) -> float:
    """``confidence``; raises `ConfigError` unless it is above 1/2 and below 1."""
    is_number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not is_number or not 0.5 < confidence < 1.0:
        raise ConfigError(f"confidence {shown(confidence)}: give a number above 0.5 and below 1, such as 0.9")
    return float(confidence)
