"""Laws of noise within bounds (truncated, clipped, or normalised on sets), and the privacy loss of each."""

from __future__ import annotations

from topdown.research.bounded.calibration import calibrate, element_budgets, privacy_loss, uncorrected_scale
from topdown.research.bounded.constraints import uniform_loss, uniform_scale
from topdown.research.bounded.discrete_laplace import BoundaryInflatedDiscreteLaplace, TruncatedDiscreteLaplace
from topdown.research.bounded.generalized_gaussian import (
    BoundaryInflatedGeneralizedGaussian,
    TruncatedGeneralizedGaussian,
)
from topdown.research.bounded.generalized_loss import generalized_gaussian_delta, generalized_gaussian_scale
from topdown.research.bounded.half_line import adjacent_half_line_scale, half_line_delta, half_line_scale
from topdown.research.bounded.laplace import BoundaryInflatedLaplace, TruncatedLaplace
from topdown.research.bounded.normalized import NormalizedLaplace
from topdown.research.bounded.verification import worst_log_ratio
from topdown.research.bounded.whole_sets import NormalizedDiscreteLaplace

__all__ = [
    "BoundaryInflatedDiscreteLaplace",
    "BoundaryInflatedGeneralizedGaussian",
    "BoundaryInflatedLaplace",
    "NormalizedDiscreteLaplace",
    "NormalizedLaplace",
    "TruncatedDiscreteLaplace",
    "TruncatedGeneralizedGaussian",
    "TruncatedLaplace",
    "adjacent_half_line_scale",
    "calibrate",
    "element_budgets",
    "generalized_gaussian_delta",
    "generalized_gaussian_scale",
    "half_line_delta",
    "half_line_scale",
    "privacy_loss",
    "uncorrected_scale",
    "uniform_loss",
    "uniform_scale",
    "worst_log_ratio",
]
