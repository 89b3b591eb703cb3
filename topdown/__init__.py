"""Differentially private releases of hierarchical counts: noise, projections that make them add up, what they do."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from topdown import additions

if TYPE_CHECKING:
    from topdown import errors, noise, privacy, synthesis
    from topdown.analysis.aggregation import Aggregation, aggregate
    from topdown.analysis.geoparquet import write_geoparquet
    from topdown.analysis.ranks import rank
    from topdown.analysis.regions import region
    from topdown.analysis.sum_intervals import Region
    from topdown.analysis.tabulation import tabulate
    from topdown.census.layouts.noisy_layout import tabulation_units
    from topdown.census.noisy_read import NoisyMeasurements, read_noisy_measurements
    from topdown.census.noisy_write import write_noisy_measurements
    from topdown.census.ppmf_counts import read_ppmf
    from topdown.census.ppmf_file import write_ppmf
    from topdown.census.redistricting_counts import read_pl94
    from topdown.census.redistricting_file import write_pl94
    from topdown.census.tabulated import tabulated_release
    from topdown.confidential.counts import Counts
    from topdown.confidential.measure import measure
    from topdown.geography.geography import Geography
    from topdown.measurements.declared_constraints import Constraints
    from topdown.measurements.measurements import Measurements
    from topdown.noise import SecureSource, SeededSource
    from topdown.planning.budget import smallest_budget
    from topdown.planning.expected import expected_errors
    from topdown.planning.spines import Spine
    from topdown.privacy.plan import Plan
    from topdown.privacy.presets import preset
    from topdown.projection.estimate import Estimate
    from topdown.projection.limits import AnswerLimits
    from topdown.projection.linear.project_linear import LinearEstimate, project_linear
    from topdown.projection.project import project
    from topdown.release.making import project_whole, round_counts
    from topdown.release.published import PublishedRelease, read_release
    from topdown.release.verified import verify_release
    from topdown.release.whole_counts import Release
    from topdown.research import theory
    from topdown.research.statistic.measured_statistic import MeasuredStatistic, measure_statistic
    from topdown.research.statistic.statistic_plan import StatisticPlan
    from topdown.studies import fairness
    from topdown.studies.decisions.expression_rules import Rule
    from topdown.studies.decisions.rules import FundShare, Threshold
    from topdown.studies.errors_table import ErrorTable
    from topdown.studies.interval_coverage import CoverageOptions
    from topdown.studies.simulate import simulate
    from topdown.uncertainty.margins import margins
    from topdown.uncertainty.plausible_tables import PlausibleTables, plausible_tables
    from topdown.workload import Attribute, Query, Recode, Schema, Workload

    __version__: str

__all__ = [
    "Aggregation",
    "AnswerLimits",
    "Attribute",
    "Constraints",
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
    "Rule",
    "Schema",
    "SecureSource",
    "SeededSource",
    "Spine",
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
    "rank",
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
    "fairness": "topdown.studies.fairness",
    "noise": "topdown.noise",
    "privacy": "topdown.privacy",
    "synthesis": "topdown.synthesis",
    "theory": "topdown.research.theory",
}
_HOMES = {
    "Aggregation": "topdown.analysis.aggregation",
    "AnswerLimits": "topdown.projection.limits",
    "Attribute": "topdown.workload",
    "Counts": "topdown.confidential.counts",
    "Constraints": "topdown.measurements.declared_constraints",
    "CoverageOptions": "topdown.studies.interval_coverage",
    "ErrorTable": "topdown.studies.errors_table",
    "Estimate": "topdown.projection.estimate",
    "FundShare": "topdown.studies.decisions.rules",
    "Geography": "topdown.geography.geography",
    "LinearEstimate": "topdown.projection.linear.project_linear",
    "MeasuredStatistic": "topdown.research.statistic.measured_statistic",
    "Measurements": "topdown.measurements.measurements",
    "NoisyMeasurements": "topdown.census.noisy_read",
    "Plan": "topdown.privacy.plan",
    "PlausibleTables": "topdown.uncertainty.plausible_tables",
    "PublishedRelease": "topdown.release.published",
    "Query": "topdown.workload",
    "Recode": "topdown.workload",
    "Region": "topdown.analysis.sum_intervals",
    "Release": "topdown.release.whole_counts",
    "Rule": "topdown.studies.decisions.expression_rules",
    "Schema": "topdown.workload",
    "SecureSource": "topdown.noise",
    "SeededSource": "topdown.noise",
    "Spine": "topdown.planning.spines",
    "StatisticPlan": "topdown.research.statistic.statistic_plan",
    "Threshold": "topdown.studies.decisions.rules",
    "Workload": "topdown.privacy.presets",  # which gives it its presets
    "aggregate": "topdown.analysis.aggregation",
    "expected_errors": "topdown.planning.expected",
    "margins": "topdown.uncertainty.margins",
    "measure": "topdown.confidential.measure",
    "measure_statistic": "topdown.research.statistic.measured_statistic",
    "plausible_tables": "topdown.uncertainty.plausible_tables",
    "preset": "topdown.privacy.presets",
    "project": "topdown.projection.project",
    "project_linear": "topdown.projection.linear.project_linear",
    "project_whole": "topdown.release.making",
    "rank": "topdown.analysis.ranks",
    "read_noisy_measurements": "topdown.census.noisy_read",
    "read_pl94": "topdown.census.redistricting_counts",
    "read_ppmf": "topdown.census.ppmf_counts",
    "read_release": "topdown.release.published",
    "region": "topdown.analysis.regions",
    "round_counts": "topdown.release.making",
    "simulate": "topdown.studies.simulate",
    "smallest_budget": "topdown.planning.budget",
    "tabulate": "topdown.analysis.tabulation",
    "tabulated_release": "topdown.census.tabulated",
    "tabulation_units": "topdown.census.layouts.noisy_layout",
    "verify_release": "topdown.release.verified",
    "write_geoparquet": "topdown.analysis.geoparquet",
    "write_noisy_measurements": "topdown.census.noisy_write",
    "write_pl94": "topdown.census.redistricting_file",
    "write_ppmf": "topdown.census.ppmf_file",
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
