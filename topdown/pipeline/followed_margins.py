"""Which published intervals a study follows: those of the cells, where the release would have them."""

from __future__ import annotations

from topdown.config import StudyConfig
from topdown.geography.geography import Geography
from topdown.privacy.plan import Plan
from topdown.projection.limits import AnswerLimits
from topdown.report.groupings import SIZE_CLASS, Groupings, group_means
from topdown.simulation.coverage import CoverageOptions, no_coverage
from topdown.simulation.followed import Followed


def followed_margins(
    config: StudyConfig,
    geography: Geography,
    followed: Followed,
    groupings: Groupings,
    plan: Plan,
    limits: AnswerLimits | None,
) -> CoverageOptions | None:
    """The intervals of the release that ``config`` describes, told apart by the study's size classes and groups.

    None where the study is of queries, within limits, or of noise whose release has no margins.
    """
    if not followed.are_cells or limits is not None or no_coverage(plan, geography, followed.labels) is not None:
        return None
    grouped = {name: one for name, one in groupings.items() if name != SIZE_CLASS}
    return CoverageOptions(
        config.projection.method,
        config.output.confidence,
        tuple(config.study.size_classes),
        group_means(grouped, followed.labels, []),
    )
