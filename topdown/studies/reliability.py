"""The default coefficients of variation from which a published number is called doubtful or unreliable."""

from __future__ import annotations

DOUBTFUL, UNRELIABLE = 0.2, 0.4
"""Above the first, planners mark a number; above the second, they do not use it."""
