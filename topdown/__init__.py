"""Differentially private releases of hierarchical counts: noise, projections that make them add up, what they do."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from topdown import additions

if TYPE_CHECKING:
    from topdown import errors, noise, privacy, synthesis
    from topdown.analysis.geoparquet import write_geoparquet
    from topdown.confidential.counts import Counts
    from topdown.confidential.measure import measure
    from topdown.confidential.pl94 import read_pl94
    from topdown.confidential.ppmf import read_ppmf
    from topdown.geography.geography import Geography
    from topdown.measurements.measurements import Measurements
    from topdown.noise import SecureSource, SeededSource
    from topdown.pipeline.aggregation import Aggregation, aggregate
    from topdown.pipeline.tabulation import tabulate
    from topdown.planning.budget import smallest_budget
    from topdown.planning.expected import expected_errors
    from topdown.privacy.plan import Plan
    from topdown.privacy.presets import preset
    from topdown.projection.estimate import Estimate
    from topdown.projection.limits import AnswerLimits
    from topdown.projection.linear import LinearEstimate, project_linear
    from topdown.projection.project import project
    from topdown.release.making import project_whole, round_counts
    from topdown.release.microdata_file import write_ppmf
    from topdown.release.noisy_read import NoisyMeasurements, read_noisy_measurements
    from topdown.release.noisy_write import write_noisy_measurements
    from topdown.release.published import PublishedRelease, read_release
    from topdown.release.redistricting_file import write_pl94
    from topdown.release.tabulated import tabulated_release
    from topdown.release.verified import verify_release
    from topdown.release.whole_counts import Release
    from topdown.research import theory
    from topdown.research.plausible_tables import PlausibleTables, plausible_tables
    from topdown.research.statistic.measured_statistic import MeasuredStatistic, measure_statistic
    from topdown.research.statistic.statistic_plan import StatisticPlan
    from topdown.simulation import fairness
    from topdown.simulation.errors_table import ErrorTable
    from topdown.simulation.interval_coverage import CoverageOptions
    from topdown.simulation.rules import FundShare, Threshold
    from topdown.simulation.simulate import simulate
    from topdown.tables.noisy_measurements import tabulation_units
    from topdown.uncertainty.margins import margins
    from topdown.uncertainty.regions import region
    from topdown.uncertainty.sum_intervals import Region
    from topdown.workload import Attribute, Query, Recode, Schema, Workload

    __version__: str

__all__ = [
    "Aggregation",
    "AnswerLimits",
    "Attribute",
    "Counts",
    "CoverageOptions",
    "ErrorTable",
    "Estimate",
    "FundShare",
    "Geography",
    "LinearEstimate",
    "MeasuredStatistic",
    "Measurements",
    "NoisyMeasurements",
    "Plan",
    "PlausibleTables",
    "PublishedRelease",
    "Query",
    "Recode",
    "Region",
    "Release",
    "Schema",
    "SecureSource",
    "SeededSource",
    "StatisticPlan",
    "Threshold",
    "Workload",
    "__version__",
    "aggregate",
    "errors",
    "expected_errors",
    "fairness",
    "margins",
    "measure",
    "measure_statistic",
    "noise",
    "plausible_tables",
    "preset",
    "privacy",
    "project",
    "project_linear",
    "project_whole",
    "read_noisy_measurements",
    "read_pl94",
    "read_ppmf",
    "read_release",
    "region",
    "round_counts",
    "simulate",
    "smallest_budget",
    "synthesis",
    "tabulate",
    "tabulated_release",
    "tabulation_units",
    "theory",
    "verify_release",
    "write_geoparquet",
    "write_noisy_measurements",
    "write_pl94",
    "write_ppmf",
]

# Loaded when used. Together they and what they stand on (scipy's statistics, cvxpy) take seconds, which a program that
# asks for a plan, or for --help, need not wait for. For the same reason modules import cvxpy, scipy.stats,
# scipy.optimize and networkx inside the functions that call them.
_MODULES = {
    "errors": "topdown.errors",
    "fairness": "topdown.simulation.fairness",
    "noise": "topdown.noise",
    "privacy": "topdown.privacy",
    "synthesis": "topdown.synthesis",
    "theory": "topdown.research.theory",
}
_HOMES = {
    "Aggregation": "topdown.pipeline.aggregation",
    "AnswerLimits": "topdown.projection.limits",
    "Attribute": "topdown.workload",
    "Counts": "topdown.confidential.counts",
    "CoverageOptions": "topdown.simulation.interval_coverage",
    "ErrorTable": "topdown.simulation.errors_table",
    "Estimate": "topdown.projection.estimate",
    "FundShare": "topdown.simulation.rules",
    "Geography": "topdown.geography.geography",
    "LinearEstimate": "topdown.projection.linear",
    "MeasuredStatistic": "topdown.research.statistic.measured_statistic",
    "Measurements": "topdown.measurements.measurements",
    "NoisyMeasurements": "topdown.release.noisy_read",
    "Plan": "topdown.privacy.plan",
    "PlausibleTables": "topdown.research.plausible_tables",
    "PublishedRelease": "topdown.release.published",
    "Query": "topdown.workload",
    "Recode": "topdown.workload",
    "Region": "topdown.uncertainty.sum_intervals",
    "Release": "topdown.release.whole_counts",
    "Schema": "topdown.workload",
    "SecureSource": "topdown.noise",
    "SeededSource": "topdown.noise",
    "StatisticPlan": "topdown.research.statistic.statistic_plan",
    "Threshold": "topdown.simulation.rules",
    "Workload": "topdown.workload",
    "aggregate": "topdown.pipeline.aggregation",
    "expected_errors": "topdown.planning.expected",
    "margins": "topdown.uncertainty.margins",
    "measure": "topdown.confidential.measure",
    "measure_statistic": "topdown.research.statistic.measured_statistic",
    "plausible_tables": "topdown.research.plausible_tables",
    "preset": "topdown.privacy.presets",
    "project": "topdown.projection.project",
    "project_linear": "topdown.projection.linear",
    "project_whole": "topdown.release.making",
    "read_noisy_measurements": "topdown.release.noisy_read",
    "read_pl94": "topdown.confidential.pl94",
    "read_ppmf": "topdown.confidential.ppmf",
    "read_release": "topdown.release.published",
    "region": "topdown.uncertainty.regions",
    "round_counts": "topdown.release.making",
    "simulate": "topdown.simulation.simulate",
    "smallest_budget": "topdown.planning.budget",
    "tabulate": "topdown.pipeline.tabulation",
    "tabulated_release": "topdown.release.tabulated",
    "tabulation_units": "topdown.tables.noisy_measurements",
    "verify_release": "topdown.release.verified",
    "write_geoparquet": "topdown.analysis.geoparquet",
    "write_noisy_measurements": "topdown.release.noisy_write",
    "write_pl94": "topdown.release.redistricting_file",
    "write_ppmf": "topdown.release.microdata_file",
}

# What research adds to registries, in every process: whatever part of the package is imported, this module is first.
additions.MODULES |= {
    "bounds": "topdown.research.bounded.kinds",
    "noise": "topdown.research.bounded",
    "sections": "topdown.research.sections",
}

if not TYPE_CHECKING:  # a type checker that saw it would let any name pass

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            found = import_module(_MODULES[name])
        elif name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        elif name == "__version__":
            found = import_module("topdown.machine.software").version_of()
        else:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}", name=name, obj=import_module(__name__)
            )
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(set(__all__) | {name for name in globals() if name.startswith("__")})
