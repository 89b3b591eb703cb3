"""Mechanisms as values: the law at a budget, its event, its currency, its words. Names are looked up only here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from topdown.errors import BudgetError, ConfigError, suggest
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Law
from topdown.privacy.accounting import Event, GaussianEvent, LaplaceEvent
from topdown.wording import shown

_ON_GRID = "in a release the exact discrete law on the grid 2^-{bits}"

EPSILON = "epsilon"
RHO = "rho"

_CURRENCIES, _PARAMETERS = (EPSILON, RHO), ("scale", "sigma2")


@dataclass(frozen=True, slots=True)
class Mechanism:
    """How noise is drawn for a budget, and what that costs.

    Args:
        name: the one that plans have.
        currency: of its budget, "epsilon" (pure) or "rho" (zero-concentrated).
        parameter: of its laws, "scale" (counts) or "sigma2" (counts^2).
        scaled: the exact parameter for a budget, from the (L1, squared L2) sensitivities of one level and query.
        exact: the law that a release draws, from the parameter and the bits of its grid (0: whole numbers).
        smooth: the continuous law of the same parameter, with which residuals may be compared.
        on_grid: whether a release draws on a grid 2^-k, and a study from ``smooth``; otherwise both draw whole numbers.
        bounded: whether counts may be drawn within bounds (`topdown.privacy.bounds`).
        event: the facts for an accountant: ``event(parameter, sensitivities, **labels)``.
        words: a description of the noise, with {bits} for the bits of its grid.

    Raises `BudgetError` for an unknown currency or parameter, whose charge is not known.
    """

    name: str
    currency: str
    parameter: str
    scaled: Callable[[Fraction, Fraction, Fraction], Fraction]
    exact: Callable[[Fraction, int], Law]
    smooth: Callable[[Fraction], Law]
    on_grid: bool
    bounded: bool
    event: Callable[..., Event]
    words: str

    def __post_init__(self) -> None:
        for what, known in (("currency", _CURRENCIES), ("parameter", _PARAMETERS)):
            if getattr(self, what) not in known:
                raise BudgetError(
                    f"mechanism {shown(self.name)} has the unknown {what} {shown(getattr(self, what))}; "
                    f"{suggest(getattr(self, what), known)}"
                )

    def is_normal(self) -> bool:
        """Whether its noise is Gaussian (True) or Laplace (False), discrete or not. Raises `ConfigError` where it is
        neither, since the law of its sums is not known.
        """
        law = self.exact(Fraction(1), 0)
        match law:
            case DiscreteGaussian() | Gaussian():
                return True
            case DiscreteLaplace() | Laplace():
                return False
        raise ConfigError(
            f"noise by mechanism {shown(self.name)} is neither Laplace nor Gaussian, so that the law of its "
            "sums is not known; ask for standard deviations"
        )

    def grid_bits(self, bits: int) -> int:
        """The bits of a release's grid where a plan has ``bits``: 0 (whole numbers) for the integer mechanisms."""
        return bits if self.on_grid else 0

    def law(self, parameter: Fraction, bits: int, *, continuous: bool) -> Law:
        """The law of the noise in a release, or with ``continuous`` in a study."""
        return self.smooth(parameter) if continuous and self.on_grid else self.exact(parameter, self.grid_bits(bits))


def _laplace_event(scale: Fraction, l1: Fraction, l2_squared: Fraction, **labels: Any) -> Event:
    return LaplaceEvent(scale=scale, sensitivity=l1, **labels)


def _gaussian_event(sigma2: Fraction, l1: Fraction, l2_squared: Fraction, **labels: Any) -> Event:
    return GaussianEvent(sigma2=sigma2, sensitivity_squared=l2_squared, **labels)


def _laplace(name: str, *, on_grid: bool, words: str) -> Mechanism:
    return Mechanism(
        name=name,
        currency=EPSILON,
        parameter="scale",
        scaled=lambda epsilon, l1, l2_squared: l1 / epsilon,
        exact=lambda scale, bits: DiscreteLaplace(scale, grid_bits=bits),
        smooth=lambda scale: Laplace(float(scale)),
        on_grid=on_grid,
        bounded=not on_grid,
        event=_laplace_event,
        words=words,
    )


def _gaussian(name: str, *, on_grid: bool, words: str) -> Mechanism:
    return Mechanism(
        name=name,
        currency=RHO,
        parameter="sigma2",
        scaled=lambda rho, l1, l2_squared: l2_squared / (2 * rho),
        exact=lambda sigma2, bits: DiscreteGaussian.from_variance(sigma2, grid_bits=bits),
        smooth=lambda sigma2: Gaussian(float(sigma2) ** 0.5),
        on_grid=on_grid,
        bounded=False,
        event=_gaussian_event,
        words=words,
    )


GEOMETRIC = _laplace(
    "geometric", on_grid=False, words="exact discrete Laplace (double-sided geometric) noise on whole numbers"
)

MECHANISMS: dict[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        GEOMETRIC,
        _laplace(
            "laplace",
            on_grid=True,
            words=f"Laplace noise, {_ON_GRID}",
        ),
        _gaussian("discrete-gaussian", on_grid=False, words="exact discrete Gaussian noise on whole numbers"),
        _gaussian(
            "gaussian",
            on_grid=True,
            words=f"Gaussian noise, {_ON_GRID}",
        ),
    )
}
"""Every mechanism by its name."""

BUILT_IN_MECHANISMS = MappingProxyType(dict(MECHANISMS))
"""The mechanisms of topdown itself, without those that were added to `MECHANISMS`."""
