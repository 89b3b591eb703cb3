"""Noise laws and where their random bits come from."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from topdown import additions
from topdown.noise.continuous import Gaussian, GeneralizedGaussian, Laplace
from topdown.noise.exact.discrete import DiscreteGaussian, DiscreteLaplace
from topdown.noise.exact_numbers import ExactNumber, exact_fraction
from topdown.noise.law import ContinuousLaw, LatticeLaw, Law
from topdown.noise.randomness import KeyedSource, SecureSource, SeededSource, Source

if TYPE_CHECKING:  # at run time `__getattr__` finds them
    from topdown.research.bounded import (
        BoundaryInflatedDiscreteLaplace,
        BoundaryInflatedGeneralizedGaussian,
        BoundaryInflatedLaplace,
        NormalizedDiscreteLaplace,
        NormalizedLaplace,
        TruncatedDiscreteLaplace,
        TruncatedGeneralizedGaussian,
        TruncatedLaplace,
        adjacent_half_line_scale,
        calibrate,
        element_budgets,
        generalized_gaussian_delta,
        generalized_gaussian_scale,
        half_line_delta,
        half_line_scale,
        privacy_loss,
        uncorrected_scale,
        uniform_loss,
        uniform_scale,
        worst_log_ratio,
    )

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

if not TYPE_CHECKING:  # a type checker that saw it would let any name pass

    def __getattr__(name: str) -> Any:
        """The laws that research adds, loaded when they are used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        found = getattr(import_module(additions.MODULES["noise"]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
