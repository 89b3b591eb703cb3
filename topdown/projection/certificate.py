"""Whether an estimate solves its program: residuals computed from the program, not from a solver's word.

Residuals are in counts, so that they can be read beside the noise, and are judged node by node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, Tree
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.projection.optimality import PieceByPiece, Residuals

TOLERANCE = 1e-10
"""The largest residual of a solution, in standard deviations of the node's own noise, beyond rounding."""

SOLVER_TOLERANCE = 1e-5
"""The same for what a solver found: a child at 0 that nothing holds there is met to the square root of a solver's own
tolerance, which is 1e-12."""


@dataclass(frozen=True)
class Certificate:
    """Residuals of an estimate.

    ``consistency``: largest |sum of a family's children - parent|. ``most_negative``: the smallest value if it is below
    0 and the estimate is to be non-negative, else 0. ``kkt``: largest violation of the program's optimality (Karush,
    Kuhn, Tucker) conditions. All in counts. ``scale``: the largest absolute value and ``noise``: the largest standard
    deviation, beside which they may be read. ``deviations``: the largest residual beyond what rounding of float64
    accounts for, in standard deviations of the node's own noise; infinite where a sum, a sign or an exact value is off
    by more than rounding. ``worst_node``: where that is. ``tolerance``: how large it may be.
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
    x: FloatArray,
    residuals: Residuals | PieceByPiece,
    variance: FloatArray,
    tree: Tree,
    *,
    nonnegative: bool,
    tolerance: float = TOLERANCE,
) -> Certificate:
    """The certificate of ``x`` (..., nodes) from its residuals; ``variance`` of what was measured."""
    kkt, least, gaps, below = 0.0, np.inf, (0.0, 0), (0.0, 0)
    for nodes, gap, rounding, deviation in residuals.pieces:
        kkt = float(np.maximum(kkt, gap.max()))
        gaps = _worse(gaps, _beyond(gap, rounding, deviation, nodes.start))
        smallest = float(x[..., nodes].min())
        least = float(np.minimum(least, smallest))
        if nonnegative and not smallest >= 0:
            below = _worse(below, _beyond(-x[..., nodes], rounding, first=nodes.start))
    off = np.zeros(residuals.sums.shape)
    for families in tree.parts_down():
        off[..., families.parents] = np.abs(families.total(x[..., families.children]) - x[..., families.parents])
    deviations, worst_node = max(gaps, below, _beyond(off, residuals.sums))
    return Certificate(
        consistency=float(off.max(initial=0.0)),
        most_negative=min(least, 0.0) if nonnegative else 0.0,
        kkt=kkt,
        scale=float(max(x.max(), -least)),
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
    """Raises `ProjectionError` naming the worst node where a certificate does not hold, or values pass 2^53."""
    if not certificate.holds() or certificate.scale > LARGEST_WHOLE:
        raise ProjectionError(
            f"{method} by {engine}: the certificate does not hold at {geography.describe(certificate.worst_node)}: "
            f"sums off by {certificate.consistency:.3g}, most negative {certificate.most_negative:.3g}, optimality off "
            f"by {certificate.kkt:.3g}, {certificate.deviations:.3g} of the node's own standard deviations; "
            + ("take engine='tree', another solver or tighter options" if engine == "cvxpy" else "please report this")
        )


def _worse(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    """The larger number, with its node; of equals the first."""
    return other if other[0] > one[0] else one


def _beyond(
    residual: FloatArray, rounding: FloatArray, deviation: FloatArray | None = None, first: int = 0
) -> tuple[float, int]:
    """The largest part of a residual that rounding does not account for, in deviations, and at which node, counted from
    ``first``.

    Infinite where there is no deviation, or no number.
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
