"""What study 2 releases and how it is combined, by the library's names."""

from __future__ import annotations

from topdown.research.pmse.combining import Combined, combine
from topdown.research.proportions import nonnegative_histogram, rescaled, universal_histogram

__all__ = ["Combined", "combine", "nonnegative_histogram", "rescaled", "universal_histogram"]
