"""Other errors of groups than bias, and the largest gaps, for a comparison of methods."""

from __future__ import annotations

from topdown.studies.report.section import Section, fragment

SECTION = Section(name="group_errors", template=fragment("group_errors"), link="Groups", appendix=True)
