"""Turns a release into records, and measures how well records resemble others: the public interface of `microdata` and
`research.pmse`.
"""

from __future__ import annotations

from topdown.microdata import written_records as microdata
from topdown.research.pmse import combining, comparators, generators, k_norm, trees
from topdown.research.pmse import pmse_mechanism as mechanism
from topdown.research.pmse import quality as pmse

__all__ = ["combining", "comparators", "generators", "k_norm", "mechanism", "microdata", "pmse", "trees"]
