"""Global sensitivities: how far one record can move a statistic of n records with values in public bounds.

Neighbouring data sets, by name: ``"substitute"`` (one record changes its value; Liu's Definition 1) and
``"add-remove"`` (one record more or less; Definition 2). Under add-remove, ``n`` and the cell sizes are those of the
LARGER of the two data sets. A statistic that divides by n treats n as public; the docstring says so where the neighbour
has another n.

``form="exact"`` is the supremum; ``form="printed"`` is what the source prints where that differs (looser, or valid
under a condition that the docstring names). R = upper - lower throughout, in the units of the data.

Source: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with
Univariate Bounding Constraints", supplement D to H. All raise ConfigError for bounds out of order, too few records,
and unknown names.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Literal, get_args

from topdown.errors import ConfigError
from topdown.neighbours import COUNTS_MOVED, Neighbours
from topdown.privacy.budget_numbers import float_or_nan
from topdown.wording import shown

Form = Literal["exact", "printed"]
Bounds = tuple[float, float]
_MOST = 10**150


def count_sensitivity(*, neighbours: Neighbours = "add-remove") -> float:
    """How many records satisfy a condition: 1 under both definitions.

    Args:
        neighbours: "add-remove" or "substitute".

    Examples:
        >>> round(td.privacy.sensitivity.count_sensitivity(), 4)
        1.0
    """
    _name("neighbours", neighbours, get_args(Neighbours))
    return 1.0


def histogram_sensitivity(*, neighbours: Neighbours = "add-remove", norm: int = 1) -> float:
    """Counts of disjoint cells: 1 under add-remove; under substitute 2 in the L1 norm and sqrt 2 in the L2 norm.

    Args:
        neighbours: "add-remove" or "substitute".
        norm: 1 for L1, 2 for L2.

    Examples:
        >>> round(td.privacy.sensitivity.histogram_sensitivity(neighbours="substitute"), 4)
        2.0
    """
    _name("neighbours", neighbours, get_args(Neighbours))
    if norm not in (1, 2):
        raise ConfigError(f"norm {norm!r}: give 1 or 2")
    moved = float(COUNTS_MOVED[neighbours])
    return moved if norm == 1 else math.sqrt(moved)


def sum_sensitivity(lower: float, upper: float, *, neighbours: Neighbours = "add-remove") -> float:
    """Sum of values clipped to [lower, upper]: max(|lower|, |upper|) under add-remove, the range upper - lower under
    substitute.

    A sum clipped to [6, 10] has add-remove sensitivity 10, not 4: the whole value of the record is added or removed.
    Without a bound on one side or both (``math.inf``) one record moves the sum by any amount: the sensitivity is
    infinite, and no noise is enough.

    Args:
        lower: the least value; may be infinite.
        upper: the largest value; may be infinite.
        neighbours: "add-remove" or "substitute".

    Examples:
        >>> round(td.privacy.sensitivity.sum_sensitivity(-10, 60), 4)
        60.0
    """
    _name("neighbours", neighbours, get_args(Neighbours))
    low, high = float_or_nan(lower), float_or_nan(upper)
    if low < high and math.inf in (-low, high):
        return math.inf
    width = _width(lower, upper)
    return max(abs(low), abs(high)) if neighbours == "add-remove" else width


def mean_sensitivity(n: int, lower: float, upper: float, *, neighbours: Neighbours = "add-remove") -> float:
    """Mean of n values in [lower, upper]: R/n under both definitions, R the range upper - lower.

    Args:
        n: how many values there are; under add-remove the larger number, at least 2.
        lower: the least value.
        upper: the largest value.
        neighbours: "add-remove" or "substitute".

    Examples:
        >>> round(td.privacy.sensitivity.mean_sensitivity(100, 0, 60), 4)
        0.6
    """
    _name("neighbours", neighbours, get_args(Neighbours))
    return _width(lower, upper) / _size(n, 2 if neighbours == "add-remove" else 1)


def proportion_sensitivity(n: int, *, neighbours: Neighbours = "add-remove") -> float:
    """Proportion of n records that satisfy a condition: 1/n under both definitions.

    Args:
        n: how many records there are; under add-remove the larger number.
        neighbours: "add-remove" or "substitute".

    Examples:
        >>> round(td.privacy.sensitivity.proportion_sensitivity(100), 4)
        0.01
    """
    return mean_sensitivity(n, 0.0, 1.0, neighbours=neighbours)


def proportion_vector_sensitivity(n: int, *, neighbours: Neighbours = "add-remove", form: Form = "exact") -> float:
    """Vector of the proportions of all cells, L1 norm: 2/n under both definitions.

    The source prints 1/n under add-remove (``form="printed"``), which holds only for counts divided by a fixed public
    n; proportions whose denominator changes from n to n - 1 change by up to 2/n.

    Args:
        n: how many records there are; under add-remove the larger number.
        neighbours: "add-remove" or "substitute".
        form: "exact" or "printed".

    Examples:
        >>> round(td.privacy.sensitivity.proportion_vector_sensitivity(100), 4)
        0.02
    """
    _name("neighbours", neighbours, get_args(Neighbours))
    _name("form", form, get_args(Form))
    size = _size(n, 2 if neighbours == "add-remove" else 1)
    return (1.0 if (neighbours, form) == ("add-remove", "printed") else 2.0) / size


def variance_sensitivity(
    n: int, lower: float, upper: float, *, ddof: int = 1, neighbours: Neighbours = "add-remove"
) -> float:
    """Variance of n values in [lower, upper]: R^2/n with divisor n - 1 (``ddof=1``), R^2 (n - 1)/n^2 with divisor n, R
    the range upper - lower.

    The same under both definitions. Add-remove needs n >= 3 for ``ddof=1`` and n >= 2 for ``ddof=0``.

    Args:
        n: how many values there are; under add-remove the larger number.
        lower: the least value.
        upper: the largest value.
        ddof: 1 for the divisor n - 1, 0 for n.
        neighbours: "add-remove" or "substitute".

    Examples:
        >>> round(td.privacy.sensitivity.variance_sensitivity(100, 0, 60), 4)
        36.0
    """
    return covariance_sensitivity(n, (lower, upper), (lower, upper), ddof=ddof, neighbours=neighbours)


def covariance_sensitivity(
    n: int, x_bounds: Bounds, y_bounds: Bounds, *, ddof: int = 1, neighbours: Neighbours = "add-remove"
) -> float:
    """Covariance of n pairs within bounds: Rx Ry/n with divisor n - 1, Rx Ry (n - 1)/n^2 with divisor n; Rx, Ry are the
    ranges.

    The same under both definitions. Add-remove needs n >= 3 for ``ddof=1`` and n >= 2 for ``ddof=0``.

    Args:
        n: how many pairs there are; under add-remove the larger number.
        x_bounds: (lower, upper) of the first variable.
        y_bounds: (lower, upper) of the second variable.
        ddof: 1 for the divisor n - 1, 0 for n.
        neighbours: "add-remove" or "substitute".

    Examples:
        >>> round(td.privacy.sensitivity.covariance_sensitivity(100, (0, 60), (0, 1)), 4)
        0.6
    """
    _name("neighbours", neighbours, get_args(Neighbours))
    if ddof not in (0, 1):
        raise ConfigError(f"ddof {ddof!r}: give 0 (divisor n) or 1 (divisor n - 1)")
    size = _size(n, 1 + ddof + (neighbours == "add-remove"))
    product = _width(*x_bounds) * _width(*y_bounds)
    return product / size if ddof else product * (size - 1) / size**2


def pooled_variance_sensitivity(
    sizes: Sequence[int],
    lower: float,
    upper: float,
    *,
    neighbours: Neighbours = "add-remove",
    form: Form = "exact",
) -> float:
    """Pooled variance of K cells of sizes n_j (sum of squares within the cells, divisor n - K): R^2 (1 - 1/max
    n_j)/(n - K).

    The same under both definitions. ``form="printed"`` has the source's exception for add-remove when all n_j = 2,
    R^2 (n - 1)/(n (n - 2)): an over-estimate, as a cell left with one record has no squares. The number of
    cells is public; add-remove needs every n_j >= 2 and n - K >= 2.

    Args:
        sizes: n_j, the number of records of every cell.
        lower: the least value.
        upper: the largest value.
        neighbours: "add-remove" or "substitute".
        form: "exact" or "printed".

    Examples:
        >>> round(td.privacy.sensitivity.pooled_variance_sensitivity([40, 60], 0, 60), 4)
        36.1224
    """
    _name("neighbours", neighbours, get_args(Neighbours))
    _name("form", form, get_args(Form))
    cells, freedom = _cells(sizes, neighbours)
    width, n = _width(lower, upper), sum(cells)
    square = width * width
    if (neighbours, form) == ("add-remove", "printed") and max(cells) == 2:
        return square * (n - 1) / (n * (n - 2))
    return square * (1.0 - 1.0 / max(cells)) / freedom


def pooled_covariance_sensitivity(
    sizes: Sequence[int],
    x_bounds: Bounds,
    y_bounds: Bounds,
    *,
    neighbours: Neighbours = "add-remove",
    form: Form = "exact",
) -> float:
    """Pooled covariance of K cells of sizes n_j (divisor n - K).

    Substitute: Rx Ry (1 - 1/max n_j)/(n - K). Add-remove, where the other cells' products change their divisor too:

        Rx Ry/(n - K) max_j [1 - 1/n_j + sum over k != j of floor(n_k/2) ceil(n_k/2)/n_k / (n - K - 1)].

    ``form="printed"`` is the source's upper bound of it, Rx Ry/(n - K) [1 + n/(4 (n - K - 1)) - 1/sqrt(n - K - 1)].
    Add-remove needs every n_j >= 2 and n - K >= 2.

    Args:
        sizes: n_j, the number of records of every cell.
        x_bounds: (lower, upper) of the first variable.
        y_bounds: (lower, upper) of the second variable.
        neighbours: "add-remove" or "substitute".
        form: "exact" or "printed".

    Examples:
        >>> round(td.privacy.sensitivity.pooled_covariance_sensitivity([40, 60], (0, 60), (0, 1)), 4)
        0.6916
    """
    _name("neighbours", neighbours, get_args(Neighbours))
    _name("form", form, get_args(Form))
    cells, freedom = _cells(sizes, neighbours)
    product = _width(*x_bounds) * _width(*y_bounds)
    if neighbours == "substitute":
        return product * (1.0 - 1.0 / max(cells)) / freedom
    if form == "printed":
        return product / freedom * (1.0 + sum(cells) / (4.0 * (freedom - 1)) - 1.0 / math.sqrt(freedom - 1))
    halves = [(m // 2) * ((m + 1) // 2) / m for m in cells]
    total = math.fsum(halves)
    worst = max(1.0 - 1.0 / m + (total - half) / (freedom - 1) for m, half in zip(cells, halves, strict=True))
    return product / freedom * worst


def largest_variance(n: int, lower: float, upper: float, *, ddof: int = 1, form: Form = "exact") -> float:
    """The largest variance that n values in [lower, upper] can have: half of them at each end.

    R^2 n/(4 (n - 1)) for even n, R^2 (n + 1)/(4 n) for odd n with divisor n - 1; ``form="printed"`` uses the even
    form always, as the source does. The upper bound for a released variance.

    Args:
        n: how many values there are.
        lower: the least value.
        upper: the largest value.
        ddof: 1 for the divisor n - 1, 0 for n.
        form: "exact" or "printed".

    Examples:
        >>> round(td.privacy.sensitivity.largest_variance(100, 0, 60), 4)
        909.0909
    """
    _name("form", form, get_args(Form))
    if ddof not in (0, 1):
        raise ConfigError(f"ddof {ddof!r}: give 0 (divisor n) or 1 (divisor n - 1)")
    size = _size(n, 1 + ddof)
    width = _width(lower, upper)
    square = width * width
    halves = size / 4.0 if form == "printed" else (size // 2) * ((size + 1) // 2) / size
    return square * halves / (size - ddof)


def _width(lower: float, upper: float) -> float:
    low, high = float_or_nan(lower), float_or_nan(upper)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"bounds [{shown(lower)}, {shown(upper)}]: give finite numbers, lower < upper")
    return high - low


def _size(n: int, least: int) -> int:
    try:
        size = operator.index(n)
    except TypeError:
        raise ConfigError(f"n {n!r}: give a whole number of records") from None
    if size < least:
        raise ConfigError(f"n {shown(n)}: the statistic and its neighbours need {least} records or more")
    if size > _MOST:
        raise ConfigError(f"n {shown(n)}: give at most 1e150 records, whose square is in the range of doubles")
    return size


def _cells(sizes: Sequence[int], neighbours: str) -> tuple[list[int], int]:
    least = 2 if neighbours == "add-remove" else 1
    cells = [_size(m, least) for m in sizes]
    freedom = sum(cells) - len(cells)
    if not cells or freedom < least:
        raise ConfigError(f"sizes {list(sizes)!r}: records minus cells is {freedom}; it must be {least} or more")
    return cells, freedom


def _name(argument: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ConfigError(f"{argument} {given!r}: give one of {', '.join(map(repr, known))}")
