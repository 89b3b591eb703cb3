"""The Census Bureau's metrics of one release, and how many units have impossible results."""

from __future__ import annotations

from topdown.studies.census_metrics import METRICS
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment


def census_numbers(results: StudyResults) -> Summary:
    """``census``: the rows of `census_metrics` and of `impossible_results`, and the names of the metrics; None where
    they were not asked for."""
    if results.census is None:
        return {"census": None}
    metrics, impossible = results.census
    return {"census": {"metrics": rows_of(metrics), "impossible": rows_of(impossible), "columns": list(METRICS)}}


SECTION = Section(
    name="census", template=fragment("census"), numbers=census_numbers, link="The Bureau's metrics", key="census"
)
