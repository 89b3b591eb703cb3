"""Defines what a law of noise is: an object with draws, a variance and a distribution function."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from topdown.errors import ConfigError
from topdown.noise.randomness import Source

Size: TypeAlias = int | tuple[int, ...]


class Law(Protocol):
    """A law of noise, symmetric about 0, in counts.

    Examples:
        >>> def deviation(law: td.noise.Law) -> float:
        ...     return law.variance**0.5
        >>> round(deviation(td.noise.DiscreteGaussian(sigma=3)), 4)
        3.0
    """

    def sample(self, size: Size, source: Source) -> NDArray[Any]:
        """Independent draws.

        Args:
            size: the shape of the array of draws, or how many there are.
            source: where the random bits come from.
        """

    @property
    def variance(self) -> float:
        """The variance, in counts^2."""

    @property
    def std(self) -> float:
        """The standard deviation, in counts."""

    def cdf(self, x: ArrayLike) -> Any:
        """P(X <= x).

        Args:
            x: values, any shape.
        """

    def sf(self, x: ArrayLike) -> Any:
        """P(X > x).

        Args:
            x: values, any shape.
        """

    def __hash__(self) -> int: ...


@runtime_checkable
class LatticeLaw(Law, Protocol):
    """A law on the multiples of 2^-grid_bits.

    Examples:
        >>> def step(law: td.noise.LatticeLaw) -> float:
        ...     return 2.0**-law.grid_bits
        >>> step(td.noise.DiscreteLaplace(scale=10, grid_bits=2))
        0.25
    """

    grid_bits: int

    def sample(self, size: Size, source: Source, kind: DTypeLike | None = None) -> NDArray[Any]:
        """Independent exact draws.

        Args:
            size: the shape of the array of draws, or how many there are.
            source: where the random bits come from.
            kind: of an integer law, the integer type of the draws: `narrowest` or a wider one; by default int64.
        """

    @property
    def narrowest(self) -> np.dtype[Any]:
        """The narrowest numeric type that holds the draws."""

    @property
    def reach(self) -> float:
        """The magnitude that a draw exceeds with a probability below 2e-55."""

    def pmf(self, x: ArrayLike) -> Any:
        """P(X = x).

        Args:
            x: values, any shape.
        """


@runtime_checkable
class ContinuousLaw(Law, Protocol):
    """A law with a density.

    Examples:
        >>> def density_at_0(law: td.noise.ContinuousLaw) -> float:
        ...     return law.pdf(0.0)
        >>> density_at_0(td.noise.Laplace(scale=10))
        0.05
    """

    def pdf(self, x: ArrayLike) -> Any:
        """The density, per count.

        Args:
            x: values, any shape.
        """


_OF_LATTICES: dict[type, bool] = {}


def is_lattice_law(law: Law) -> TypeGuard[LatticeLaw]:
    """Whether ``law`` is a `LatticeLaw`.

    That it has all attributes is found once for every type: ``isinstance`` computes the value of each, every time.
    """
    kind = type(law)
    if kind not in _OF_LATTICES:
        _OF_LATTICES[kind] = isinstance(law, LatticeLaw)
    return _OF_LATTICES[kind]


def pitch_of(law: Law) -> float:
    """The distance between the values that draws of ``law`` can have, in counts; 0 for any value. Raises `ConfigError`
    for a law with neither ``grid_bits`` nor a density.
    """
    if is_lattice_law(law):
        return float(2.0**-law.grid_bits)
    if isinstance(law, ContinuousLaw):
        return 0.0
    raise ConfigError(f"{type(law).__name__} is neither a law on a lattice nor one with a density; it has no margins")
