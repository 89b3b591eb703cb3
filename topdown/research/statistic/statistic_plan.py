"""The privacy loss and the noise of one bounded statistic, computed from public facts alone.

After rounding, two statistics that differ by D are at most ceil(D/step) steps of the grid apart; the release is
accounted for with this. The number of records n is public. Neighbours are tables of n records of which one has other
values ("substitute").

Source: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints", supplement D to H; Holohan, Antonatos, Braghin, Mac Aonghusa for the scale within bounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from topdown.errors import BudgetError, ConfigError, require_known
from topdown.noise.exact_numbers import exact_fraction
from topdown.privacy.accounting import LaplaceEvent, PureEvent
from topdown.research.bounded.discrete_laplace import LARGEST_SCALE
from topdown.research.statistic.grid_loss import calibrated_scale_on_grid
from topdown.wording import figure, shown

_FINE = 1024
"""By default the sensitivity is at least this many steps of the grid, so that rounding increases it by less than a
thousandth.
"""

RECORD_BITS = 20
"""Values are rounded to multiples of 2^-20 before anything is computed from them."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of n records: how it is computed from columns of whole numbers, its sensitivity to one record, its
    range.

    ``columns``: their number. ``degree``: the number of values whose product a term is. ``value``: the exact statistic
    of n whole numbers a column, in units of a term. ``sensitivity`` and ``bounds``: computed exactly from n and the
    bounds of the columns (`topdown.privacy.sensitivity` has the sources).
    """

    columns: int
    degree: int
    value: Callable[[Sequence[Sequence[int]], int], Fraction]
    sensitivity: Callable[[Fraction, int], Fraction]
    bounds: Callable[[Sequence[tuple[Fraction, Fraction]], int], tuple[Fraction, Fraction]]


def _second_moment(columns: Sequence[Sequence[int]], n: int) -> Fraction:
    """The covariance with divisor n - 1 of the first column and the last, which may be the same."""
    x, y = columns[0], columns[-1]
    return Fraction(n * sum(map(int.__mul__, x, y)) - sum(x) * sum(y), n * (n - 1))


def _largest_second_moment(bounds: Sequence[tuple[Fraction, Fraction]], n: int) -> Fraction:
    ranges = [high - low for low, high in bounds]
    return ranges[0] * ranges[-1] * (Fraction(n, 4 * (n - 1)) if n % 2 == 0 else Fraction(n + 1, 4 * n))


STATISTICS: Mapping[str, Statistic] = MappingProxyType(
    {
        "mean": Statistic(
            1,
            1,
            lambda columns, n: Fraction(sum(columns[0]), n),
            lambda spread, n: spread / n,
            lambda bounds, n: bounds[0],
        ),
        "variance": Statistic(
            1,
            2,
            _second_moment,
            lambda spread, n: spread / n,
            lambda bounds, n: (Fraction(0), _largest_second_moment(bounds, n)),
        ),
        "covariance": Statistic(
            2,
            2,
            _second_moment,
            lambda spread, n: spread / n,
            lambda bounds, n: (-_largest_second_moment(bounds, n), _largest_second_moment(bounds, n)),
        ),
    }
)
"""Every statistic by its name; a proportion is the mean of zeros and ones, with bounds 0 and 1."""

BOUNDING = ("boundary-inflated", "truncated")


@dataclass(frozen=True, slots=True)
class StatisticPlan:
    """The privacy loss and the noise of a statistic, computed from public facts alone.

    Args:
        statistic: "mean", "variance" or "covariance".
        bounds: (lower, upper) of every column.
        records: n.
        epsilon: the budget.
        bounding: "boundary-inflated" (clipped, at scale sensitivity/epsilon) or "truncated" (the smallest scale
            that keeps epsilon).
        grid_bits: the release is a multiple of 2^-grid_bits; None: so many that rounding adds less than a
            thousandth to the sensitivity.
        unit: what one record is: "person", "household".

    Raises ConfigError for invalid arguments, BudgetError for an epsilon that is not positive.

    Examples:
        >>> mean_plan = td.StatisticPlan("mean", ((Fraction(0), Fraction(60)),), records=100, epsilon=Fraction(1))
        >>> mean_plan.sensitivity, mean_plan.range_
        (Fraction(3, 5), (Fraction(0, 1), Fraction(60, 1)))
    """

    statistic: str
    bounds: tuple[tuple[Fraction, Fraction], ...]
    records: int
    epsilon: Fraction
    bounding: str = "boundary-inflated"
    grid_bits: int | None = None
    unit: str = "person"

    def __post_init__(self) -> None:
        require_known(self.statistic, STATISTICS, "statistic")
        require_known(self.bounding, BOUNDING, "bounding")
        bounds = tuple((exact_fraction(low), exact_fraction(high)) for low, high in self.bounds)
        wanted = STATISTICS[self.statistic].columns
        if len(bounds) != wanted:
            raise ConfigError(
                f"{self.statistic} has {len(bounds)} pairs of bounds; give {wanted}, one for every column"
            )
        for low, high in bounds:
            if not low < high:
                raise ConfigError(f"bounds [{figure(str(low))}, {figure(str(high))}]: give lower < upper")
            if (high - low) * 2**RECORD_BITS < _FINE:
                raise ConfigError(
                    f"bounds [{figure(str(low))}, {figure(str(high))}]: values are rounded to multiples of "
                    f"2^-{RECORD_BITS}; give them in a smaller unit, in which the bounds are "
                    f"{_FINE / 2**RECORD_BITS:.4f} or more apart"
                )
        if isinstance(self.records, bool) or self.records != int(self.records) or self.records < 2:
            raise ConfigError(f"{shown(self.records)} records; a statistic is released of two or more")
        epsilon = exact_fraction(self.epsilon)
        if epsilon <= 0:
            raise BudgetError(f"epsilon is {figure(str(self.epsilon))}; give a number above 0")
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "epsilon", epsilon)
        if not self.unit.strip():
            raise ConfigError('the unit has no name; say what a record describes, such as "person"')
        chosen = self.grid_bits is not None
        if not chosen:
            object.__setattr__(self, "grid_bits", self._fine_grid())
        low, high = self.range_
        if max(abs(low), abs(high)) * 2**self.bits > LARGEST_SCALE:
            remedy = "give values and bounds in a larger unit"
            if self.bits:
                remedy = "give fewer grid_bits" if chosen else "subtract a public number from all values and bounds"
            raise ConfigError(
                f"within these bounds the {self.statistic} can be beyond 2^52 steps of its grid, 2^-{self.bits}, which "
                f"is too fine; {remedy}"
            )
        if self.width < 1:
            raise ConfigError(
                f"no two multiples of 2^-{self.bits} lie within the statistic's range; give more grid_bits"
            )
        if self.scale > LARGEST_SCALE:
            raise BudgetError(
                f"at epsilon {figure(str(self.epsilon))} the noise has a scale of {float(self.scale):.3g} steps of the "
                "grid, beyond 2^52; give a larger epsilon"
            )

    @property
    def bits(self) -> int:
        """The number of bits of the grid."""
        return int(self.grid_bits or 0)

    @property
    def range_(self) -> tuple[Fraction, Fraction]:
        """The range of the statistic over all possible records."""
        return STATISTICS[self.statistic].bounds(self.bounds, self.records)

    @property
    def sensitivity(self) -> Fraction:
        """The largest change of the exact statistic when one record changes."""
        chosen = STATISTICS[self.statistic]
        factors = (self.bounds[0], self.bounds[-1])[: chosen.degree]
        spread = math.prod((high - low for low, high in factors), start=Fraction(1))
        return chosen.sensitivity(spread, self.records)

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last step of the grid within the statistic's range."""
        low, high = self.range_
        return math.ceil(low * 2**self.bits), math.floor(high * 2**self.bits)

    @property
    def width(self) -> int:
        """Steps from the first to the last."""
        first, last = self.steps
        return last - first

    @property
    def reach(self) -> int:
        """The largest change of the rounded statistic when one record changes, in steps of the grid."""
        return int(min(self.width, math.ceil(self.sensitivity * 2**self.bits)))

    @property
    def scale(self) -> Fraction:
        """The scale of the noise, in steps of the grid."""
        if self.bounding == "truncated":
            return calibrated_scale_on_grid(self.epsilon, self.reach, self.width)
        return self.reach / self.epsilon

    @property
    def untouched(self) -> float:
        """The probability that the noise is 0, where no bound is near."""
        return math.tanh(1 / (2 * max(float(self.scale), 1e-3)))

    def settled(self, columns: Sequence[str]) -> str:
        """Everything that decides a release of ``columns`` except for their values, as text."""
        return json.dumps([asdict(self), *columns], default=str)

    @property
    def event(self) -> LaplaceEvent | PureEvent:
        """The event for an accountant."""
        labels: dict[str, Any] = {
            "level": "records",
            "query": self.statistic,
            "unit": self.unit,
            "neighbours": "substitute",
        }
        labels["mechanism"] = f"{self.bounding} geometric"
        if self.bounding == "truncated":
            return PureEvent(epsilon=self.epsilon, **labels)
        return LaplaceEvent(scale=self.scale, sensitivity=Fraction(self.reach), **labels)

    def _fine_grid(self) -> int:
        bits = 0
        while self.sensitivity * 2**bits < _FINE:
            bits += 1
        return bits
