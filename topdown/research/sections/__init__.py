"""Sections of a study's report that rest on research: distances from the noise law, and the similarity of records.

Importing this adds them to the registry of sections.
"""

from __future__ import annotations

from topdown.research.sections import record_quality, wasserstein_curve
from topdown.studies.report.sections import family_variance, noise_kinds, registry

registry.add(wasserstein_curve.SECTION, after=family_variance.SECTION)
registry.add(record_quality.SECTION, after=noise_kinds.SECTION)
