"""The sections of the report, in the order of the page."""

from __future__ import annotations

from topdown.report.section import Section
from topdown.report.sections import (
    bias_by_count,
    bias_map,
    categories,
    coverage,
    family_variance,
    fund,
    groups,
    noise_kinds,
    overview,
    record_quality,
    residuals,
    thresholds,
    unit_table,
    wasserstein_curve,
    what_was_run,
)

SECTIONS: tuple[Section, ...] = (
    what_was_run.SECTION,
    overview.SECTION,
    residuals.SECTION,
    bias_by_count.SECTION,
    bias_map.SECTION,
    family_variance.SECTION,
    wasserstein_curve.SECTION,
    categories.SECTION,
    groups.SECTION,
    fund.SECTION,
    thresholds.SECTION,
    coverage.SECTION,
    noise_kinds.SECTION,
    record_quality.SECTION,
    unit_table.SECTION,
)
