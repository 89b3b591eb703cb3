"""Noise laws and where their random bits come from."""

from __future__ import annotations

from topdown.noise.bounded.calibration import calibrate, element_budgets, privacy_loss, uncorrected_scale
from topdown.noise.bounded.constraints import uniform_loss, uniform_scale
from topdown.noise.bounded.discrete_laplace import BoundaryInflatedDiscreteLaplace, TruncatedDiscreteLaplace
from topdown.noise.bounded.generalized_gaussian import (
    BoundaryInflatedGeneralizedGaussian,
    TruncatedGeneralizedGaussian,
)
from topdown.noise.bounded.generalized_loss import generalized_gaussian_delta, generalized_gaussian_scale
from topdown.noise.bounded.half_line import adjacent_half_line_scale, half_line_delta, half_line_scale
from topdown.noise.bounded.laplace import BoundaryInflatedLaplace, TruncatedLaplace
from topdown.noise.bounded.normalized import NormalizedLaplace
from topdown.noise.bounded.verification import worst_log_ratio
from topdown.noise.bounded.whole_sets import NormalizedDiscreteLaplace
from topdown.noise.continuous import Gaussian, GeneralizedGaussian, Laplace
from topdown.noise.exact.discrete import DiscreteGaussian, DiscreteLaplace
from topdown.noise.exact_numbers import ExactNumber, exact_fraction
from topdown.noise.law import ContinuousLaw, LatticeLaw, Law
from topdown.noise.randomness import KeyedSource, SecureSource, SeededSource, Source

__all__ = [
    "BoundaryInflatedDiscreteLaplace",
    "BoundaryInflatedGeneralizedGaussian",
    "BoundaryInflatedLaplace",
    "ContinuousLaw",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExactNumber",
    "Gaussian",
    "GeneralizedGaussian",
    "KeyedSource",
    "Laplace",
    "LatticeLaw",
    "Law",
    "NormalizedDiscreteLaplace",
    "NormalizedLaplace",
    "SecureSource",
    "SeededSource",
    "Source",
    "TruncatedDiscreteLaplace",
    "TruncatedGeneralizedGaussian",
    "TruncatedLaplace",
    "adjacent_half_line_scale",
    "calibrate",
    "element_budgets",
    "exact_fraction",
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
