"""Which published intervals a study follows: those of the cells or answers that it studies, where they are known."""

from __future__ import annotations

from topdown.config import StudyConfig
from topdown.geography.geography import Geography
from topdown.privacy.plan import Plan
from topdown.report.groupings import SIZE_CLASS, Groupings, group_means
from topdown.simulation.coverage import CoverageOptions, no_coverage
from topdown.simulation.followed import Followed


def followed_margins(
    config: StudyConfig,
    geography: Geography,
    followed: Followed,
    groupings: Groupings,
    plan: Plan,
) -> CoverageOptions | None:
    """The intervals of the release that ``config`` describes, told apart by the study's size classes and groups.

    None where noise has a law that no margins are known for.
    """
    if no_coverage(plan, geography, followed.queries[0].schema) is not None:
        return None
    grouped = {name: one for name, one in groupings.items() if name != SIZE_CLASS}
    return CoverageOptions(
        config.projection.method,
        config.output.confidence,
        tuple(config.study.size_classes),
        group_means(grouped, followed.labels, []),
    )
