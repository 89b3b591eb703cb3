"""td.plausible_tables(): consistent, whole, non-negative tables that the measurements leave plausible. Experimental."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.geography.unit_sums import published_sums
from topdown.measurements.measurements import Measurements
from topdown.noise.randomness import Source, read_exactly
from topdown.projection.cells.equality import least_squares
from topdown.projection.solver_inputs import stated
from topdown.tables.tidy import tidy_batches, to_frame
from topdown.uncertainty.laws.error_law import reach_of
from topdown.uncertainty.laws.known_noise import answer_noise
from topdown.uncertainty.margins import require_confidence
from topdown.uncertainty.posterior import Likelihood, Posterior
from topdown.wording import shown
from topdown.workload import DETAILED

CONCENTRATION = 1.0
"""The total of the Dirichlet parameters of the prior's weights, in equal parts over its bins (Perks): the weight of one
leaf.
"""
BURN_IN = 60
"""Rounds before the first table is kept."""
_MOST_VALUES = 1 << 28
_OF_CELLS = "several queries were measured: plausible tables need measurements of the cells alone"


def _not_measured(geography: Geography, leaf: int) -> ConfigError:
    return ConfigError(
        f"{geography.describe(geography.tree.leaves.start + leaf)} was not measured; plausible tables need a share of "
        f"the budget at level {shown(geography.levels[-1])}"
    )


def _require_reach(geography: Geography, reach: float) -> None:
    if reach > _MOST_VALUES:
        raise DataError(
            f"{geography.n_leaves:,} leaves whose noise extends over {reach:,.0f} numbers in all are too many for "
            "plausible tables; take a part of the geography, or measurements with less noise"
        )


@dataclass(frozen=True, eq=False)
class PlausibleTables:
    """Tables of counts in which every family adds up, drawn by a Markov chain, so that consecutive tables are
    correlated.

    Args:
        geography: the units.
        cells: the names of the cells, in order.
        values: (draws x nodes x cells) whole numbers of 0 or more.

    Examples:
        >>> tables = td.plausible_tables(measurements, 20, td.SeededSource(3))
        >>> states = tables.values[:, 1:3].sum(axis=1)
        >>> bool((states == tables.values[:, 0]).all())
        True
    """

    geography: Geography
    cells: Sequence[str]
    values: IntArray = field(repr=False)

    def quantiles(self, confidence: float = 0.9) -> pd.DataFrame:
        """For every node and cell the median of the tables and the interval that holds their middle part
        ``confidence``: ``geoid, level, query, cell, median, lower, upper``. How often it holds the true count depends
        on the prior, unlike the margins of `margins`.
        """
        alpha = 1.0 - require_confidence(confidence)
        order = np.sort(self.values, axis=0)
        ends = [order[_rank(part, len(order))] for part in (0.5, alpha / 2.0, 1.0 - alpha / 2.0)]
        columns = dict(zip(("median", "lower", "upper"), ends, strict=True))
        return to_frame(tidy_batches(self.geography, self.cells, {"query": DETAILED, **columns}))


def plausible_tables(
    measurements: Measurements, draws: int, source: Source, *, burn_in: int = BURN_IN
) -> PlausibleTables:
    """Tables from the posterior of the counts under a stated prior. Experimental.

    The prior, for each cell: the counts of all leaves are independent draws from one law, a histogram with a bin for
    each count up to 9 and then bins that are each a quarter wider than the one before; its weights have a Dirichlet law
    with parameters 1 / (number of bins). A round of the chain draws a table given the histogram, exactly, and then the
    histogram given the table. The chain begins at the histogram of the least-squares estimates, and ``burn_in`` rounds
    are discarded.

    The tables are post-processing of protected numbers. The middle 90 % of them is *no* margin of error: where leaves
    are not alike, or noise is larger than the counts, it may cover far less often. For margins use `margins`.

    Args:
        measurements: of one query, the cells, drawn under a plan.
        draws: how many tables.
        source: where the random bits come from.
        burn_in: rounds of the chain that are discarded before the first table.

    Raises `ConfigError` as `margins` does, where several queries were measured or a leaf was not; `ProjectionError`
    where exact values contradict each other, or the measurements.

    Examples:
        >>> tables = td.plausible_tables(measurements, 20, td.SeededSource(3))
        >>> tables.values.shape  # draws, nodes, cells
        (20, 7, 2)
    """
    for name, number, least in (("draws", draws, 1), ("burn_in", burn_in, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise ConfigError(f"{name} = {shown(number)}: give a whole number of at least {least}")
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(read_exactly(source, 32), "little")))
    possible = measurements.schema.possible_cells()
    posteriors = _posteriors(measurements, possible)
    geography, cells = measurements.geography, measurements.cells
    values = np.zeros((draws, geography.n_nodes, len(cells)), np.int64)
    for cell, posterior in zip(possible.tolist(), posteriors, strict=True):
        leaves = geography.tree.leaves
        table = np.maximum(np.rint(posterior.estimate), 0.0).astype(np.int64)
        for number in range(-burn_in, draws):
            table = posterior.draw(_prior(table[leaves], posterior.begins, rng), rng)
            if number >= 0:
                values[number, :, cell] = table
    units = published_sums(geography)
    if units is not None:
        values = np.stack([units.summed(table) for table in values])
    return PlausibleTables(measurements.published, cells, values)


def _prior(leaves: IntArray, begins: IntArray, rng: np.random.Generator) -> FloatArray:
    """The weights of the bins (bins,), drawn given the counts of the leaves."""
    place = np.clip(np.searchsorted(begins, leaves, side="right") - 1, 0, len(begins) - 2)
    return rng.dirichlet(np.bincount(place, minlength=len(begins) - 1) + CONCENTRATION / (len(begins) - 1))


def _posteriors(measurements: Measurements, cells: IntArray) -> list[Posterior]:
    """The posteriors of some ``cells``, in order."""
    if measurements.others:
        raise ConfigError(_OF_CELLS)
    noise = answer_noise(measurements)
    geography = measurements.geography
    tree, kind = geography.tree, np.concatenate([of_query for level in noise.kind for of_query in level.values()])
    problem = stated(measurements, "variance", nonnegative=True, cells=cells)
    variance = np.broadcast_to(problem.variance, problem.values.shape)
    open_leaf = np.flatnonzero(np.isinf(variance[0, tree.leaves]))
    if len(open_leaf):
        raise _not_measured(geography, int(open_leaf[0]))
    laws = noise.known.laws
    reach = np.array([0.0 if law is None else reach_of(law) for law in laws])
    _require_reach(geography, 2.0 * float(reach[kind[tree.leaves]].sum()))
    estimate = least_squares(problem.values, problem.variance, tree)
    found = []
    for y, v, x in zip(problem.values, variance, estimate, strict=True):
        likelihood = [
            Likelihood.of(value, spread, laws[law], reach[law])
            for value, spread, law in zip(y.tolist(), v.tolist(), kind.tolist(), strict=True)
        ]
        found.append(Posterior.of(geography, likelihood, x))
    return found


def _rank(part: float, number: int) -> int:
    return min(int(np.floor(part * number)), number - 1)
