"""The Laplace law around a location, cut to a feasible set with gaps and normalised.

Source: Croft, Sack, Shi, "Differential Privacy Via a Truncated and Normalized Laplace Mechanism". Its scales are in
:mod:`topdown.research.bounded.constraints` (one scale for all locations) and :mod:`topdown.research.bounded.half_line`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from topdown.errors import ConfigError
from topdown.noise.parameters import (
    FloatArray,
    FloatOrArray,
    as_given,
    broadcast_shape,
    probabilities,
    real_numbers,
    scales,
)
from topdown.noise.randomness import Source, uniform
from topdown.noise.sampling import Size
from topdown.research.bounded.constraints import Constraints, Piece, feasible_pieces, forbidden_spans, piece_masses
from topdown.research.bounded.laplace import TruncatedLaplace


@dataclass(frozen=True, slots=True, eq=False)
class NormalizedLaplace:
    """Density exp(-|x - location| / scale) / (2 scale C) on the feasible set, 0 elsewhere (Formula 6).

    The feasible set is what the constraints leave, and C the Laplace mass that it keeps. ``location`` and ``scale``
    broadcast, in units of the statistic; a scale per location is how :func:`topdown.noise.half_line_scale` is used.

    With scale sensitivity/epsilon this is NOT epsilon-differentially private (Formulae 22 to 24); take the scale from
    :func:`topdown.noise.uniform_scale` or, on an interval or half-line, :func:`topdown.noise.calibrate`.

    Args:
        location: in the feasible set, any shape.
        scale: above 0; one number, or one per location.
        constraints: forbidden open spans ``(low, high)``; an end None or infinite for a span that never ends.

    Raises ConfigError for a location inside a forbidden span, a scale that is not positive, and spans that leave
    nothing.

    Examples:
        >>> law = td.noise.NormalizedLaplace(location=12.0, scale=3.0, constraints=[(0.0, 10.0)])
        >>> float(law.pdf(5.0)), round(float(law.pdf(12.0)), 4)
        (0.0, 0.2215)
    """

    location: FloatOrArray = field(repr=False)
    scale: FloatOrArray
    constraints: Constraints = ()

    fit_for_release: ClassVar[bool] = False

    def __post_init__(self) -> None:
        location, scale = real_numbers("location", self.location, shown=False), scales(self.scale)
        try:
            location, scale = np.broadcast_arrays(location, scale)
        except ValueError:
            raise ConfigError(
                f"location and scale of shapes {location.shape}, {scale.shape} do not broadcast"
            ) from None
        pieces = feasible_pieces(self.constraints)
        feasible = np.any([(low <= location) & (location <= high) for low, high in pieces], axis=0)
        if not np.all(feasible):
            at = int(np.flatnonzero(~feasible)[0])
            raise ConfigError(
                f"location at position {at} is in a forbidden span: move it to the nearest feasible number"
            )
        for name, array in (("location", location), ("scale", scale)):
            array.flags.writeable = False
            object.__setattr__(self, name, as_given(array))
        object.__setattr__(self, "constraints", forbidden_spans(self.constraints))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The feasible set as closed intervals, from left to right."""
        return feasible_pieces(self.constraints)

    @property
    def kept_mass(self) -> FloatOrArray:
        """C, the mass of the plain Laplace law on the feasible set."""
        return as_given(0.5 * self._masses().sum(axis=0))

    @property
    def mean(self) -> FloatOrArray:
        """E X."""
        return as_given(np.asarray(self.location) + self.bias)

    @property
    def bias(self) -> FloatOrArray:
        """E X - location."""
        return as_given(self._mixture([law.bias for law in self._laws()]))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2."""
        return as_given(self._mixture([law.mse for law in self._laws()]))

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2, as the variance within the pieces and that between them."""
        laws = self._laws()
        bias = self._mixture([law.bias for law in laws])
        return as_given(self._mixture([law.variance + (law.bias - bias) ** 2 for law in laws]))

    def pdf(self, x: ArrayLike) -> FloatOrArray:
        """Density at ``x``, which broadcasts against the parameters."""
        return as_given(np.exp(self.logpdf(x)))

    def logpdf(self, x: ArrayLike) -> FloatOrArray:
        """Logarithm of the density at ``x``, -inf in a forbidden span; finite in far tails where the density is 0."""
        x = np.asarray(x, dtype=np.float64)
        s, b = np.asarray(self.location), np.asarray(self.scale)
        feasible = np.any([(low <= x) & (x <= high) for low, high in self.pieces], axis=0)
        log_density = -np.abs(x - s) / b - np.log(2.0 * np.asarray(self.kept_mass)) - np.log(b)
        return as_given(np.where(feasible, log_density, -np.inf))

    def cdf(self, x: ArrayLike) -> FloatOrArray:
        """P(X <= x)."""
        return as_given(self._mixture([law.cdf(x) for law in self._laws()]))

    def sf(self, x: ArrayLike) -> FloatOrArray:
        """P(X > x)."""
        return as_given(self._mixture([law.sf(x) for law in self._laws()]))

    def ppf(self, q: ArrayLike) -> FloatOrArray:
        """The quantile: the least feasible x with P(X <= x) >= q. Raises ConfigError for q outside of [0, 1]."""
        q = probabilities(q)
        masses = self._masses()
        ends = np.cumsum(masses, axis=0)
        wanted = q * ends[-1]
        quantile = np.empty(np.broadcast_shapes(wanted.shape, masses.shape[1:]))
        undecided = np.ones(quantile.shape, dtype=bool)
        for law, mass, end in zip(self._laws(), masses, ends, strict=True):
            here = undecided & (wanted <= end)
            # A piece whose mass underflowed is only ever asked for its left end, by q = 0.
            fraction = np.clip(1.0 - (end - wanted) / np.where(mass > 0.0, mass, 1.0), 0.0, 1.0)
            quantile = np.where(here, law.ppf(fraction), quantile)
            undecided &= ~here
        return as_given(quantile)

    def sample(self, size: Size | None, source: Source) -> FloatOrArray:
        """Draws by the inverse cdf, of shape ``size``, to which the parameters broadcast; None: one per location.

        For studies: floating-point draws leak in a release, so a source for releases is refused by ConfigError.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        return self.ppf(uniform(source, int(np.prod(shape))).reshape(shape))

    def _laws(self) -> list[TruncatedLaplace]:
        """On each piece the law is a truncated Laplace law, also where the location is in another piece."""
        return [TruncatedLaplace(self.location, self.scale, low, high) for low, high in self.pieces]

    def _masses(self) -> FloatArray:
        """Twice the Laplace mass of each piece, shape (pieces, ...)."""
        left, right = piece_masses(np.asarray(self.location), np.asarray(self.scale), self.pieces)
        return left + right

    def _mixture(self, values: list[FloatOrArray]) -> FloatArray:
        masses = self._masses()
        total = sum((mass * value for mass, value in zip(masses, values, strict=True)), np.zeros(()))
        mixed: FloatArray = np.asarray(total / masses.sum(axis=0))
        return mixed
