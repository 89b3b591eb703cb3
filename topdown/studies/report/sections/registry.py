"""The sections of the report, in the order of the page."""

from __future__ import annotations

from topdown import additions
from topdown.studies.report.section import Section
from topdown.studies.report.sections import (
    bias_by_count,
    bias_map,
    categories,
    category_errors,
    census,
    coverage,
    family_variance,
    favoured,
    figures,
    fund,
    group_errors,
    noise_kinds,
    overview,
    residuals,
    thresholds,
    unit_table,
    what_was_run,
)

SECTIONS: list[Section] = [
    categories.SECTION,
    favoured.SECTION,
    fund.SECTION,
    thresholds.SECTION,
    figures.SECTION,
    coverage.SECTION,
    bias_map.SECTION,
    census.SECTION,
    unit_table.SECTION,
    what_was_run.SECTION,
    overview.SECTION,
    residuals.SECTION,
    bias_by_count.SECTION,
    family_variance.SECTION,
    category_errors.SECTION,
    group_errors.SECTION,
    noise_kinds.SECTION,
]


def add(section: Section, after: Section) -> None:
    """Insert ``section`` after the section ``after``."""
    SECTIONS.insert(SECTIONS.index(after) + 1, section)


def sections() -> tuple[Section, ...]:
    """All sections in the order of the page, with those that other rooms add."""
    additions.load("sections")
    return tuple(SECTIONS)
