"""One bounded real-valued statistic, fit for release: a mean, a proportion, a variance or a covariance on a grid.

Values are clipped to public bounds and rounded to a public grid, all sums are of whole numbers, the statistic is an
exact fraction that is rounded to the grid of the release, and the noise is a whole number of steps of that grid, drawn
exactly within the statistic's own bounds. No floating-point number is used between the table and the release, so that
neither the sensitivity nor the noise has the gaps of floating-point numbers (Mironov 2012).

Its privacy loss is computed in `topdown.research.statistic.statistic_plan`.

Source: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints", Definition 2 and supplement D to H; Holohan, Antonatos, Braghin, Mac Aonghusa for the scale
within bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from topdown.errors import CountsError
from topdown.noise import SecureSource, Source
from topdown.noise.exact_numbers import ExactNumber, exact_fraction
from topdown.noise.key import NoiseKey
from topdown.privacy.accounting import Event
from topdown.research.bounded.discrete_laplace import BoundaryInflatedDiscreteLaplace, TruncatedDiscreteLaplace
from topdown.research.statistic.statistic_plan import RECORD_BITS, STATISTICS, StatisticPlan


@dataclass(frozen=True, slots=True)
class MeasuredStatistic:
    """A protected statistic.

    Args:
        statistic: "mean", "variance" or "covariance".
        columns: the names of the columns that it is of.
        value: the statistic with noise, an exact multiple of 2^-grid_bits.
        lower: the least that the value can be.
        upper: the most that the value can be.
        grid_bits: the value is a multiple of 2^-grid_bits.
        bounding: "boundary-inflated" or "truncated".
        scale: of the noise, in the units of the statistic.
        sensitivity: how far one record moves the statistic on the grid.
        epsilon: what it cost.
        records: n, public.
        event: the fact for an accountant or a ledger.
        fit_for_release: whether the random bits were.

    Examples:
        >>> mean_plan = td.StatisticPlan("mean", ((Fraction(0), Fraction(60)),), records=100, epsilon=Fraction(1))
        >>> found = td.measure_statistic(np.full(100, 35.0), mean_plan, td.SeededSource(1))
        >>> found.epsilon, found.fit_for_release
        (Fraction(1, 1), False)
    """

    statistic: str
    columns: tuple[str, ...]
    value: Fraction
    lower: Fraction
    upper: Fraction
    grid_bits: int
    bounding: str
    scale: Fraction
    sensitivity: Fraction
    epsilon: Fraction
    records: int
    event: Event
    fit_for_release: bool

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values: exact fractions as text, and the value as a float beside it."""
        exact = {
            name: str(getattr(self, name)) for name in ("value", "scale", "sensitivity", "epsilon", "lower", "upper")
        }
        return {
            "statistic": self.statistic,
            "columns": list(self.columns),
            **exact,
            "decimal": float(self.value),
            "grid_bits": self.grid_bits,
            "law": f"{self.bounding} double geometric on multiples of 2^-{self.grid_bits}",
            "records": self.records,
            "unit": self.event.unit,
            "neighbours": self.event.neighbours,
            "fit_for_release": self.fit_for_release,
        }


def measure_statistic(
    values: ArrayLike, plan: StatisticPlan, source: Source | NoiseKey | None = None, *, columns: Sequence[str] = ()
) -> MeasuredStatistic:
    """A statistic of records, protected according to a plan and drawn exactly within its bounds.

    Values beyond their bounds are clipped, infinite ones too. Raises `CountsError` for values that are not numbers, or
    whose number differs from the plan's records.

    Args:
        values: (n,) or (n, columns), confidential.
        plan: which statistic, within which bounds, for which budget.
        source: by default the operating system's entropy; what a seeded one draws is not fit for release; a key
            draws the same again of the same values, plan and names of ``columns``, and independently of any others.
        columns: the names of the columns, which the result states.

    Examples:
        >>> mean_plan = td.StatisticPlan("mean", ((Fraction(0), Fraction(60)),), records=100, epsilon=Fraction(1))
        >>> found = td.measure_statistic(np.full(100, 35.0), mean_plan, td.SeededSource(1))
        >>> round(float(found.value), 2)
        35.08
    """
    table = _numbers(values)
    if table is None:
        raise CountsError(
            "the values have one that is not a number, or records of different lengths; give numbers, as many for "
            "every record"
        )
    table = table.reshape(len(table), math.prod(table.shape[1:])) if table.ndim else table.reshape(1, 1)
    chosen = STATISTICS[plan.statistic]
    if table.shape != (plan.records, chosen.columns):
        raise CountsError(
            f"the values do not have {plan.records:,} records and {chosen.columns} columns, as the plan says; give "
            "as many"
        )
    missing = np.isnan(table).any(axis=1)
    if missing.any():
        raise CountsError(f"the value of record {int(np.argmax(missing))} is missing; give a number")
    whole = [_whole(table[:, at], *plan.bounds[at]) for at in range(chosen.columns)]
    unit = Fraction(1, 2**RECORD_BITS) ** chosen.degree
    exact = chosen.value(whole, plan.records) * unit
    first, last = plan.steps
    place = min(max(math.floor(exact * 2**plan.bits + Fraction(1, 2)), first), last)
    law = TruncatedDiscreteLaplace if plan.bounding == "truncated" else BoundaryInflatedDiscreteLaplace
    bits = SecureSource() if source is None else source
    if isinstance(bits, NoiseKey):
        bits = bits.streams(bits.code("values", [(plan.settled(columns), table)])).stream("statistic")
    drawn = int(law(place - first, plan.scale, 0, plan.width).sample((), bits)) + first
    step = Fraction(1, 2**plan.bits)
    return MeasuredStatistic(
        statistic=plan.statistic,
        columns=tuple(columns),
        value=drawn * step,
        lower=plan.range_[0],
        upper=plan.range_[1],
        grid_bits=plan.bits,
        bounding=plan.bounding,
        scale=plan.scale * step,
        sensitivity=plan.reach * step,
        epsilon=plan.epsilon,
        records=plan.records,
        event=plan.event,
        fit_for_release=bits.fit_for_release,
    )


def _numbers(values: ArrayLike) -> np.ndarray[Any, Any] | None:
    """``values`` as floats, None where one is no number: so that no error that shows it is kept with the refusal."""
    try:
        return None if np.iscomplexobj(values) else np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def _whole(column: np.ndarray[Any, Any], low: ExactNumber, high: ExactNumber) -> list[int]:
    """A column in units of 2^-20, rounded, and clipped to the whole units within its bounds."""
    unit = 2**RECORD_BITS
    first, last = math.ceil(exact_fraction(low) * unit), math.floor(exact_fraction(high) * unit)
    clipped = np.clip(column, float(low), float(high))
    return [min(max(round(Fraction(value) * unit), first), last) for value in clipped.tolist()]
