"""From a release to records: microdata, how well records mimic others (pMSE), and a mechanism that samples by it."""

from __future__ import annotations

from topdown.synthesis import comparators, generators, mechanism, microdata, pmse, trees

__all__ = ["comparators", "generators", "mechanism", "microdata", "pmse", "trees"]
