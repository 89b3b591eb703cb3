"""Differentially private releases of hierarchical counts: noise, projections that make them add up, what they do."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("topdown")

from topdown import noise, privacy, synthesis
from topdown.counts import Counts
from topdown.evaluation import fairness, theory
from topdown.evaluation.errors_table import ErrorTable
from topdown.evaluation.rules import FundShare, Threshold
from topdown.evaluation.simulate import simulate
from topdown.geography import Geography
from topdown.measure import measure
from topdown.measurements import Measurements
from topdown.noise import SecureSource, SeededSource
from topdown.privacy.plan import Plan
from topdown.projection.estimate import Estimate
from topdown.projection.project import project
from topdown.release import Release, round_counts
from topdown.schema import Attribute, Schema

__all__ = [
    "Attribute",
    "Counts",
    "ErrorTable",
    "Estimate",
    "FundShare",
    "Geography",
    "Measurements",
    "Plan",
    "Release",
    "Schema",
    "SecureSource",
    "SeededSource",
    "Threshold",
    "__version__",
    "fairness",
    "measure",
    "noise",
    "privacy",
    "project",
    "round_counts",
    "simulate",
    "synthesis",
    "theory",
]
