"""ErrorTable: errors over replicates of measuring and projecting, by node, cell and method. Confidential: it has the
true counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.machine.software import version_of
from topdown.studies.batch_means import BatchMeans
from topdown.studies.followed import Reported
from topdown.studies.moments import LEVEL_QUANTITIES, TOTALS
from topdown.studies.resolution import resolution
from topdown.tables.tidy import ArrowTable, tidy_batches, to_frame, with_plain_strings, write_parquet
from topdown.wording import listed, shown
from topdown.workload import DETAILED

SCHEMA_VERSION = "1.0"
"""The version of the tables of a study."""

STATISTICS = (
    "bias",
    "bias_se",
    "variance",
    "variance_se",
    "mse",
    "mse_se",
    "wasserstein",
    "wasserstein_se",
    "wasserstein_floor",
    "wasserstein_corrected",
    "zeros",
    "zeros_se",
)
"""The columns of a table of errors: estimates from the replicates, ``_se`` their Monte Carlo standard errors."""

RULE_STATISTICS = ("truth", "mean_error", "mean_error_se", "mean_absolute_error", "mean_absolute_error_se")
"""The columns for a decision rule: the outcome on the true counts, and how the outcome on the estimates differs."""

LEVEL_STATISTICS = tuple(name + end for name in LEVEL_QUANTITIES for end in ("", "_se"))
RULE_TOTALS = tuple(name + end for name in TOTALS for end in ("", "_se"))


@dataclass(frozen=True, eq=False)
class ErrorTable(ArrowTable):
    """Errors of every node, cell and method over ``replicates`` replicates.

    Args:
        geography: the units.
        cells: the names of the cells, or of the answers that errors are of.
        methods: the labels of the methods.
        replicates: how many were finished.
        reference: "noise" or "continuous", the law that residuals are compared with; on a spine "least squares", the
            normal law with the exact variance of least squares.
        truth: (nodes x cells) the true counts.
        noise_variance: of the measurements, (nodes,), or (nodes x cells) where the cells are answers to queries,
            each with its noise (infinite where it is not measured).
        statistics: method label -> name of `STATISTICS` -> (nodes x cells), in counts (variance and mse in counts
            squared, zeros a share); wasserstein is the distance of the residual's law from ``reference``; NaN where
            it was not computed.
        level_means: method label -> name of `LEVEL_STATISTICS` -> (levels x cells): means over a level's nodes,
            with the standard errors of these means, correlations between nodes included.
        rules: (method label, rule label) -> name of `RULE_STATISTICS` -> (units,), of the units or areas that the rule
            decides for.
        rule_nodes: rule label -> the nodes that the rule decides for.
        rule_areas: rule label -> the names of the areas, of a rule for areas.
        rule_totals: (method label, rule label) -> name of `RULE_TOTALS` -> a sum over units, mean over replicates.
        densities: method label -> counts of residuals (nodes x cells, bins), the bins centred on 0; empty where
            distances were not computed.
        bin_width: (nodes x cells,) the width of these bins, in counts.
        public_input: whether the counts were declared public; if not, everything here is confidential.
        of_query: (cells,) the query that every cell is an answer of.
        theory: method label -> the exact variance (nodes x cells) of those that are linear, NaN where it is
            undetermined.
        coverage: how often the published intervals hold the truth, by level, cell and class, with the columns of
            `interval_coverage.COLUMNS`; None where they were not followed.
        batch_means: means over batches of replicates, by which two studies are compared.
        draws: digests of everything beside the seed that decides which random numbers are drawn.
        measured_levels: the levels that noise was drawn at, root first: those of ``geography``, or a spine's.
        reference_sd: on a spine the standard deviation (nodes x cells) of the law that residuals are compared with;
            noise_variance is then that of a sum of measurements.
        areas: on a spine by kind the same of the root and of the areas; without rules.

    Examples:
        >>> study["top-down", "bias"][0].round(2)  # of the nation, by cell
        array([-0.2 ,  0.76])
        >>> study.methods, study.replicates
        (('gls', 'top-down'), 200)
    """

    geography: Geography
    cells: Sequence[str]
    methods: tuple[str, ...]
    replicates: int
    reference: str
    truth: IntArray = field(repr=False)
    noise_variance: FloatArray = field(repr=False)
    statistics: Mapping[str, Mapping[str, FloatArray]] = field(repr=False)
    level_means: Mapping[str, Mapping[str, FloatArray]] = field(repr=False)
    rules: Mapping[tuple[str, str], Mapping[str, FloatArray]] = field(repr=False)
    rule_nodes: Mapping[str, slice] = field(repr=False)
    rule_areas: Mapping[str, tuple[str, ...]] = field(repr=False)
    rule_totals: Mapping[tuple[str, str], Mapping[str, float]] = field(repr=False)
    densities: Mapping[str, IntArray] = field(repr=False)
    bin_width: FloatArray = field(repr=False)
    public_input: bool = False
    of_query: tuple[str, ...] = ()
    theory: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    coverage: pd.DataFrame | None = field(default=None, repr=False)
    batch_means: BatchMeans = field(default_factory=lambda: BatchMeans(np.zeros(0), {}, {}), repr=False)
    draws: Mapping[str, str] = field(default_factory=dict, repr=False)
    measured_levels: tuple[str, ...] = ()
    reference_sd: FloatArray | None = field(default=None, repr=False)
    areas: Mapping[str, ErrorTable] = field(default_factory=dict, repr=False)

    def split(self, reported: Reported) -> ErrorTable:
        """The table of the units of ``reported`` with those of its areas, from one that has all rows."""
        levels = list(reported.levels)
        of_units = len(reported.units.levels)
        areas = {}
        for number, (kind, geography) in enumerate(reported.areas.items(), of_units):
            here = reported.levels[levels[number]]
            rows = np.concatenate([[0], np.arange(here.start, here.stop)])  # the root and the areas
            own = self._chosen(geography, rows, [0, number])
            areas[kind] = replace(own, rules={}, rule_nodes={}, rule_areas={}, rule_totals={}, coverage=None)
        units = self._chosen(reported.units, np.arange(reported.units.n_nodes), list(range(of_units)))
        return replace(units, areas=areas)

    def _chosen(self, geography: Geography, rows: IntArray, levels: Sequence[int]) -> ErrorTable:
        """The table of some ``rows`` and ``levels``, which are those of ``geography``."""
        return replace(
            self,
            geography=geography,
            truth=self.truth[rows],
            noise_variance=self.noise_variance[rows],
            statistics={
                method: {name: values[rows] for name, values in of.items()} for method, of in self.statistics.items()
            },
            level_means={
                method: {name: values[levels] for name, values in of.items()} for method, of in self.level_means.items()
            },
            densities={method: counts[rows] for method, counts in self.densities.items()},
            bin_width=self.bin_width[rows] if len(self.bin_width) else self.bin_width,
            theory={method: variance[rows] for method, variance in self.theory.items()},
            reference_sd=None if self.reference_sd is None else self.reference_sd[rows],
        )

    @property
    def by_level(self) -> Iterator[tuple[str, ErrorTable, int]]:
        """Every level, root first, and every kind of areas: its name, the table that has it, and its number there."""
        for number, level in enumerate(self.geography.levels):
            yield level, self, number
        for kind, table in self.areas.items():
            yield kind, table, 1

    def __getitem__(self, key: tuple[str, str]) -> FloatArray:
        """``table[method, statistic]``: (nodes x cells). Raises `ConfigError` naming what there is."""
        method, statistic = key
        if method not in self.statistics:
            raise ConfigError(f"no method {shown(method)} in the study; it has {listed(self.methods)}")
        if statistic not in STATISTICS:
            raise ConfigError(f"no statistic {shown(statistic)}; there are {', '.join(STATISTICS)}")
        return self.statistics[method][statistic]

    def distance_interval(
        self,
        method: str,
        mean: Callable[[FloatArray], FloatArray] = lambda values: values,
        pooled: Callable[[FloatArray], FloatArray] = lambda errors: errors,
    ) -> tuple[FloatArray, FloatArray]:
        """95 % intervals (lower ends, upper ends) for means of the Wasserstein-1 distances of the residuals' laws from
        ``reference``, in counts; NaN where distances were not computed.

        On average over simulations ``wasserstein_corrected`` is never above the distance and ``wasserstein`` never
        below it (`residual_bins.Distances`), so the lower end is the mean of the first less 1.96 standard errors, and 0
        at least, and the upper end the mean of the second with 1.96 standard errors. Over many nodes the standard error
        becomes small; what is left is the gap between the two, which more replicates close.

        Args:
            method: the label of one of the methods.
            mean: (nodes x cells) -> the means that are asked for, by default every node's own distance.
            pooled: the standard errors of single nodes -> those of such means.
        """
        corrected, plain = self[method, "wasserstein_corrected"], self[method, "wasserstein"]
        half = 1.96 * pooled(self[method, "wasserstein_se"])
        # One block of replicates has no second half, and so no lower bound.
        least = np.where(np.isfinite(corrected) | ~np.isfinite(plain), corrected, 0.0)
        return np.maximum(mean(least) - half, 0.0), mean(plain) + half

    @property
    def resolution(self) -> FloatArray:
        """(nodes,): the rounding error of a 0 in float64, in counts; from `resolution.resolution`."""
        if self.noise_variance.ndim == 1:
            return resolution(self.noise_variance, self.truth)
        # Of the finest noise at a node, which is the nearest to none.
        return resolution(self.noise_variances.min(axis=1), self.truth)

    @property
    def noise_variances(self) -> FloatArray:
        """The variance (nodes x cells) of the noise on every number that was measured; infinite where it was not."""
        noise = self.noise_variance
        return np.broadcast_to(noise[:, None] if noise.ndim == 1 else noise, self.truth.shape)

    @property
    def headline(self) -> slice:
        """The cells that summary numbers are computed from: the answers to the first query; all cells where there are
        no queries.
        """
        return slice(0, self.of_query.count(self.of_query[0]) if self.of_query else len(self.cells))

    @property
    def follows_queries(self) -> bool:
        """Whether the cells are answers to queries, and not the cells of the table."""
        return any(query != DETAILED for query in self.of_query)

    @property
    def notice(self) -> str:
        """The notice on everything that is written from this table."""
        return "comparison with public counts" if self.public_input else "confidential comparison with the true counts"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The tidy table of `to_frame` in Arrow batches; after the units the areas of every kind, as a level."""
        yield from self._batches(np.ones(self.geography.n_nodes, np.bool_))
        for table in self.areas.values():
            yield from table._batches(np.arange(table.geography.n_nodes) > 0)

    def _batches(self, nodes: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
        for method in self.methods:
            columns = {
                "method": method,
                "truth": self.truth,
                "noise_variance": self.noise_variances,
                "predicted_variance": self.theory.get(method, np.full(self.truth.shape, np.nan)),
                **{name: self.statistics[method][name] for name in STATISTICS},
                "replicates": np.full(self.truth.shape, self.replicates),
                "reference": self.reference,
                "notice": self.notice,
            }
            for batch in tidy_batches(self.geography, self.cells, columns, rows=nodes, units=True):
                yield with_plain_strings(batch)

    def to_arrow(self) -> pa.Table:
        """The table of `to_frame` as an Arrow table."""
        return pa.Table.from_batches(list(self.batches()))

    def to_frame(self) -> pd.DataFrame:
        """Rows ``geoid, level, parent, name, cell, method, truth, noise_variance, predicted_variance, <statistics>,
        replicates, reference, notice``."""
        return to_frame(self.batches())

    def rules_frame(self) -> pd.DataFrame:
        """One row per unit that is decided for, method and rule: ``geoid, method, rule, <RULE_STATISTICS>``."""
        frames = [
            pd.DataFrame({"geoid": self.rule_units(rule)[0], "method": method, "rule": rule, **columns})
            for (method, rule), columns in self.rules.items()
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["geoid", "method", "rule"])

    def rule_units(self, rule: str) -> tuple[list[str], list[str | None] | None]:
        """The GEOIDs and the names of the units that ``rule`` decides for; for areas their names."""
        if rule in self.rule_areas:
            return list(self.rule_areas[rule]), None
        nodes, names = self.rule_nodes[rule], self.geography.names
        geoids = self.geography.identifiers[nodes.start : nodes.stop].to_pylist()
        return geoids, None if names is None else names[nodes.start : nodes.stop].to_pylist()

    def write(self, path: Path) -> None:
        """Write the tidy table as Parquet to ``path``, marked with `notice` and readable by its owner alone."""
        write_parquet(path, self.batches(), self.marks, private=True)

    @property
    def marks(self) -> dict[str, str]:
        """The metadata of every Parquet file of a study."""
        return {
            "software": f"topdown {version_of()}",
            "schema version": SCHEMA_VERSION,
            "notice": self.notice,
            "replicates": str(self.replicates),
        }
