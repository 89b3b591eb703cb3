"""The results of a study, from which every section of its report takes its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from topdown.config.study_settings import DOUBTFUL, UNRELIABLE, ToleranceOptions
from topdown.pages.leaf_outlines import Outlines
from topdown.privacy.plan import Plan
from topdown.studies.decisions.expression_rules import Rule
from topdown.studies.decisions.rules import Threshold
from topdown.studies.errors_table import ErrorTable
from topdown.studies.methods import StudiedMethod
from topdown.studies.noise_comparison import NoiseVariant
from topdown.studies.one_release import PublishedExample
from topdown.studies.report.groupings import Groupings


# Without a repr, which would show true counts.
@dataclass(frozen=True, eq=False, repr=False)
class StudyResults:
    """The table of errors with the other results of the study.

    ``released``: the projection that the release uses; `primary_method` of it is what the findings are about.
    ``groupings``: the size classes first. ``funds``, ``thresholds`` and ``figures``: rules that the study followed, of
    the first and the last their labels. ``seed`` and ``wanted``: of the simulation, and the replicates that were asked
    for. ``variants``: the study itself and the same under other noise; empty or one where there is nothing to compare.
    ``records``: one release by each method, of `one_release.records_frame`. ``published``: one release by ``released``,
    with its margins of error, where it has them. ``shaded_above``: the coefficients of variation above which its
    numbers are called doubtful, and unreliable. ``census``: the Bureau's metrics, and impossible results, of one
    release. ``tolerance``: from which size an effect matters.
    """

    table: ErrorTable
    plan: Plan
    title: str
    released: str
    groupings: Groupings
    funds: Sequence[str] = ()
    thresholds: Sequence[Threshold | Rule] = ()
    figures: Sequence[str] = ()
    outlines: Outlines | None = None
    seed: int | None = None
    wanted: int | None = None
    variants: Sequence[NoiseVariant] = ()
    records: pd.DataFrame | None = None
    published: PublishedExample | None = None
    shaded_above: tuple[float, float] = (DOUBTFUL, UNRELIABLE)
    census: tuple[pd.DataFrame, pd.DataFrame] | None = None
    tolerance: ToleranceOptions = field(default_factory=ToleranceOptions)

    @property
    def primary(self) -> str:
        """The method that the findings are about."""
        return primary_method(self.table, self.released)


def primary_method(table: ErrorTable, released: str) -> str:
    """The method that the findings are about: the one that would be released, rounded as it would be where the study
    has that; else the last non-negative one, or the last."""
    for label in (StudiedMethod(released, True, True).label, released):
        if label in table.methods:
            return label
    nonnegative = [m for m in table.methods if StudiedMethod.parse(m).nonnegative]
    return (nonnegative or list(table.methods))[-1]
