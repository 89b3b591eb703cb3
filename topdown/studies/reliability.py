"""From which coefficient of variation on a published number is called unreliable, where nothing else is said."""

from __future__ import annotations

DOUBTFUL, UNRELIABLE = 0.2, 0.4
"""Above the first planners grey a number out, above the second they leave it out."""
