"""A section of the report, as a value: its numbers, its charts and its fragment of the page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import altair as alt

from topdown.studies.report.results import StudyResults

Summary = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart of the report: ``make`` makes it from the summary, or returns None where there is no data for it;
    ``label`` is its text alternative.
    """

    label: str
    make: Callable[[Summary], alt.TopLevelMixin | None]


def fragment(name: str, package: str = "topdown.studies.report.sections") -> Traversable:
    """The template ``name``.html.jinja beside the sections' modules in ``package``."""
    return files(package) / f"{name}.html.jinja"


@dataclass(frozen=True)
class Section:
    """A section of the report, with a place in `registry.sections`.

    ``name``: its anchor in the page, for the list of links. ``template``: the Jinja fragment of the page, in which
    ``s`` is the summary and ``charts`` holds the charts that have data. ``numbers``: its part of the summary, by keys
    that no other section has; without entries for what the study does not have. ``charts``: by the names of their
    places in the page. ``link``: its name in the list of links; empty where it is not in the list. ``data``: the
    numbers that the page's script reads. ``appendix``: whether it is about the methods' theory and is folded at the end
    of the page. ``key``: of the number without which there is nothing to show; where it is empty the charts decide.
    """

    name: str
    template: Traversable
    numbers: Callable[[StudyResults], Summary] = lambda results: {}
    charts: Mapping[str, Chart] = field(default_factory=dict)
    link: str = ""
    data: tuple[str, ...] = ()
    appendix: bool = False
    key: str = ""

    def shown(self, summary: Summary, drawn: Collection[str]) -> bool:
        """Whether the page of ``summary`` has it, where the charts ``drawn`` have data."""
        if self.key:
            return bool(summary[self.key])
        return not self.charts or any(name in drawn for name in self.charts)
