"""The errors of groups beside their bias, and the largest gaps: for who compares methods."""

from __future__ import annotations

from topdown.studies.report.section import Section, fragment

SECTION = Section(name="group_errors", template=fragment("group_errors"), link="Groups", appendix=True)
