"""Certificates that an estimate solves its program: residuals computed from the program, whatever a solver reports.

Residuals are in counts, so that they can be read beside the noise, and are judged node by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import Families, FloatArray
from topdown.noise.exact_numbers import LARGEST_WHOLE

TOLERANCE = 1e-10
"""The largest residual of a solution, in standard deviations of the node's own noise, beyond rounding."""

SOLVER_TOLERANCE = 1e-5
"""The same for a solver's solution: a child at 0 whose multiplier is 0, too, is found to the square root of the
solver's own tolerance, which is 1e-12.
"""

FAMILY_TOLERANCE = 1e-8
"""The same for a non-negative family of histograms: its information matrix may have entries that differ by many orders
of magnitude."""


class Residuals(NamedTuple):
    """The residuals of some nodes of a table, in counts. A table may come in pieces, which are judged one after the
    other and need not be in memory at the same time.

    ``gap``: the distance of a node from the value that its own condition requires. ``rounding``: how much of that may
    be rounding of float64. ``deviation``: the node's own standard deviation in the same unit; 0 where there is none, as
    at an exact value. All (..., nodes), the first of which has the number ``first``. ``off``: by how much families'
    sums are off, and ``allowed``: by how much rounding may put them off; (..., families), of which the first parent has
    the number ``above``. ``smallest``, ``largest``: of the nodes' values, and of these without their signs.
    """

    gap: FloatArray
    rounding: FloatArray
    deviation: FloatArray
    off: FloatArray
    allowed: FloatArray
    smallest: float
    largest: float
    first: int = 0
    above: int = 0

    @classmethod
    def of(
        cls,
        x: FloatArray,
        first: int,
        lacking: tuple[FloatArray, FloatArray, FloatArray],
        *,
        nonnegative: bool,
        sums: tuple[FloatArray, FloatArray, int] | None = None,
    ) -> Residuals:
        """The residuals of nodes with the values ``x`` (..., nodes), from ``lacking`` (gap, rounding, deviation) and,
        for sums, the error, what rounding allows, and the first family. A negative value that must not be has its size
        as a gap.
        """
        gap, rounding, deviation = lacking
        off, allowed, above = sums or (np.zeros((*gap.shape[:-1], 0)), np.zeros((*gap.shape[:-1], 0)), 0)
        smallest = float(x.min())
        if nonnegative and not smallest >= 0:
            # A wrong sign beyond rounding is never small, so it is infinite in standard deviations.
            gap, deviation = np.maximum(gap, -x), np.where(-x > rounding, 0.0, deviation)
        largest = float(max(x.max(), -smallest))
        return cls(gap, rounding, deviation, off, allowed, smallest, largest, first, above)

    @property
    def worst(self) -> float:
        """The largest distance from what a node's condition requires, beyond rounding, in standard deviations."""
        return _beyond(self.gap, self.rounding, self.deviation, self.first)[0]

    @classmethod
    def together(cls, pieces: Sequence[Residuals]) -> Residuals:
        """The residuals of several consecutive pieces as one."""
        gap, rounding, deviation, off, allowed = (
            np.concatenate([getattr(one, name) for one in pieces], axis=-1) for name in cls._fields[:5]
        )
        smallest, largest = min(one.smallest for one in pieces), max(one.largest for one in pieces)
        return cls(gap, rounding, deviation, off, allowed, smallest, largest, pieces[0].first, pieces[0].above)


def off_sums(x: FloatArray, families: Families) -> FloatArray:
    """The difference between parents and their children's sums in the values ``x`` (..., nodes); (..., families)."""
    return np.abs(families.total(x[..., families.children]) - x[..., families.parents])


@dataclass(frozen=True)
class Certificate:
    """Residuals of an estimate.

    Args:
        consistency: largest |sum of a family's children - parent|.
        most_negative: the smallest value if it is below 0 and the estimate is to be non-negative, else 0.
        kkt: largest violation of the program's optimality (Karush, Kuhn, Tucker) conditions. All in counts.
        scale: the largest absolute value, with which the residuals may be compared.
        noise: the largest standard deviation, with which the residuals may be compared.
        deviations: the largest residual beyond what rounding of float64 accounts for, in standard deviations of the
            node's own noise; infinite where a sum, a sign or an exact value is off by more than rounding.
        worst_node: the node where the largest residual is.
        tolerance: how large ``deviations`` may be.

    Examples:
        >>> estimate.certificate.kkt < 1e-6, estimate.certificate.deviations <= estimate.certificate.tolerance
        (True, True)
    """

    consistency: float
    most_negative: float
    kkt: float
    scale: float
    noise: float
    deviations: float
    worst_node: int
    tolerance: float = TOLERANCE

    @property
    def worst(self) -> float:
        """The largest residual, in counts."""
        return max(self.consistency, -self.most_negative, self.kkt)

    def holds(self, tolerance: float | None = None) -> bool:
        """Whether every residual is, beyond rounding, at most ``tolerance`` of its node's own standard deviations.

        By default the certificate's own tolerance.
        """
        return self.deviations <= (self.tolerance if tolerance is None else tolerance)


def certify(
    residuals: Iterable[Residuals], variance: FloatArray, *, nonnegative: bool, tolerance: float = TOLERANCE
) -> Certificate:
    """The certificate of a table from its residuals, piece by piece; ``variance`` of what was measured."""
    kkt = consistency = largest = 0.0
    smallest, gaps, sums = np.inf, (0.0, 0), (0.0, 0)
    for one in residuals:
        kkt = float(np.maximum(kkt, one.gap.max(initial=0.0)))
        consistency = float(np.maximum(consistency, one.off.max(initial=0.0)))
        gaps = _worse(gaps, _beyond(one.gap, one.rounding, one.deviation, one.first))
        sums = _worse(sums, _beyond(one.off, one.allowed, None, one.above))
        smallest = float(np.minimum(smallest, one.smallest))
        largest = float(np.maximum(largest, one.largest))
    deviations, worst_node = max(gaps, sums)
    return Certificate(
        consistency=consistency,
        most_negative=min(smallest, 0.0) if nonnegative else 0.0,
        kkt=kkt,
        scale=largest,
        noise=float(np.sqrt(variance.max(initial=0.0, where=np.isfinite(variance)))),
        deviations=deviations,
        worst_node=worst_node,
        tolerance=tolerance,
    )


def worst_of(certificates: Sequence[Certificate]) -> Certificate:
    """One certificate for several tables on the same tree, such as one for each cell."""
    worst = max(certificates, key=lambda one: one.deviations)
    return replace(
        worst,
        consistency=max(one.consistency for one in certificates),
        most_negative=min(one.most_negative for one in certificates),
        kkt=max(one.kkt for one in certificates),
        scale=max(one.scale for one in certificates),
        noise=max(one.noise for one in certificates),
    )


def require_certificate(certificate: Certificate, geography: Geography, method: str, engine: str) -> None:
    """Raises `ProjectionError` naming the worst node where a certificate does not hold, or values exceed 2^53."""
    if not certificate.holds() or certificate.scale > LARGEST_WHOLE:
        raise ProjectionError(
            f"{method} by {engine}: the certificate does not hold at {geography.describe(certificate.worst_node)}: "
            f"sums off by {certificate.consistency:.3g}, most negative {certificate.most_negative:.3g}, optimality off "
            f"by {certificate.kkt:.3g}, {certificate.deviations:.3g} of the node's own standard deviations; "
            + ("take engine='tree', another solver or tighter options" if engine == "cvxpy" else "please report this")
        )


def _worse(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    """The larger number, with its node; the first of equal ones."""
    return other if other[0] > one[0] else one


def _beyond(
    residual: FloatArray, rounding: FloatArray, deviation: FloatArray | None = None, first: int = 0
) -> tuple[float, int]:
    """The largest residual beyond rounding, in standard deviations, and its node, counted from ``first``. Infinite
    where there is no standard deviation, or no number.
    """
    over = np.flatnonzero(~(residual <= rounding))
    if len(over) == 0:
        return 0.0, 0
    excess = residual.ravel()[over] - rounding.ravel()[over]
    scale = np.zeros(len(over)) if deviation is None else deviation.ravel()[over]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.isnan(excess), np.inf, excess / scale)
    worst = int(np.argmax(ratio))
    return float(ratio[worst]), first + int(over[worst]) % residual.shape[-1]
