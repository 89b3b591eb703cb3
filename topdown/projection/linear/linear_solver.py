"""Solvers for any linear constraints: one linear system for (P), an active set for (P+).

Both work in e = (x - y)/s, s the standard deviations, with every constraint in units of its own size: B e = r. The
multipliers l then give e = B'l for (P), and e = max(B'l, -y/s) for (P+), and what is solved is B e = r for l.

For (P+) that is the gradient of a convex, piecewise quadratic function of l (the negative of the dual objective), which
is minimised by Newton steps, each with an exact line search over its breakpoints. The entries above 0 are the active
set; from the right set one step gives the solution. With a single constraint this is Michelot's threshold. Where the
function is unbounded below no x >= 0 meets the constraints, and the direction in which it falls without end proves it
(Farkas).

Constraints may depend on each other: systems are solved with a small multiple of the identity added, and refined by
their own residuals until these are rounding (the proximal method of multipliers; Rockafellar 1976).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray

_ADDED = 1e-11
"""Added to the diagonal of a system whose diagonal is 1; larger than rounding, and corrected by refinement."""

_FULL = 1e-3
"""A step whose length is this close to 1 is a full Newton step: the active set was right."""

_NOTHING = 1e-7
"""A direction of multipliers that changes the entries by less than this per unit has no effect."""

_MOST_REFINEMENTS = 60
_MOST_STEPS = 500
_ROUNDING = 8 * float(np.finfo(np.float64).eps)

Solver = Callable[[FloatArray], FloatArray]


class System(NamedTuple):
    """``rows`` e = ``lacking``, of which the right side is known to ``rounding``."""

    rows: Any
    lacking: FloatArray
    rounding: FloatArray


def is_sparse(matrix: Any) -> bool:
    """Whether a matrix is one of scipy's sparse ones."""
    return bool(sp.issparse(matrix))


def equality(system: System, solve: Solver) -> tuple[FloatArray, FloatArray]:
    """(e, l) with e = rows'l the shortest least-squares solution of the system.

    ``solve``: the solver of all entries, from `factor`, which serves every right side.
    """
    rows = system.rows
    multipliers = _refined(system, np.zeros(rows.shape[0]), np.full(rows.shape[1], -np.inf), solve)
    return rows.T @ multipliers, multipliers


def nonnegative(system: System, least: FloatArray, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(e, l) with e = max(rows'l, least) that meets the system; ``start``: multipliers to begin with.

    Raises `ProjectionError` where no e >= least meets it.
    """
    rows = system.rows
    multipliers = np.array(start)
    for _ in range(_MOST_STEPS):
        inner = rows.T @ multipliers
        free = inner > least
        over = _over(system, np.maximum(inner, least))
        if not over.any():
            break
        step = factor(rows, free)(-over)
        moves = rows.T @ step
        if np.linalg.norm(moves) <= _NOTHING * np.linalg.norm(step):
            break  # the remaining residual lies along undetermined multipliers
        length = _exact_step(inner, moves, least, -float(system.lacking @ step))
        multipliers = multipliers + length * step
        if length == 0.0 or (((rows.T @ multipliers > least) == free).all() and abs(length - 1) < _FULL):
            break
    else:
        raise ProjectionError(
            f"the active set did not converge within {_MOST_STEPS} steps; take engine='cvxpy', and please report this"
        )
    multipliers = _refined(system, multipliers, least, factor(rows, free))
    return np.maximum(rows.T @ multipliers, least), multipliers


def _exact_step(inner: FloatArray, moves: FloatArray, least: FloatArray, slope: float) -> float:
    """The length at which sum of moves * max(inner + length moves, least) + slope, which grows with it, is 0.

    Raises `ProjectionError` where it stays below 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (least - inner) / moves
    free = inner > least
    crosses = np.flatnonzero((moves != 0) & np.isfinite(least) & np.where(free, moves < 0, moves > 0))
    crosses = crosses[np.argsort(crossing[crosses], kind="stable")]
    at = np.maximum(crossing[crosses], 0.0)
    # Between two breakpoints the derivative is a + b length; b changes by moves^2 at each, up where an entry comes in.
    change = np.where(free[crosses], -1.0, 1.0) * moves[crosses] ** 2
    steep = float(moves[free] @ moves[free])
    value = float(np.where(free, inner, least)[moves != 0] @ moves[moves != 0]) + slope
    position = 0.0
    for breakpoint_, by in zip(at.tolist(), change.tolist(), strict=True):
        reached = value + steep * (breakpoint_ - position)
        if reached >= 0:
            break
        value, position, steep = reached, breakpoint_, steep + by
    if value >= 0:
        return position
    size = float(np.abs(moves) @ np.abs(np.where(np.isfinite(least), least, 0.0))) + abs(slope)
    if steep <= _ROUNDING * float(moves @ moves):
        if -value <= 1e-9 * size:
            return position  # flat to rounding: the direction is one of undetermined multipliers
        raise ProjectionError(
            "no x >= 0 meets the constraints A x = b: a combination of them requires a sum of entries with weights "
            ">= 0 to be below 0; correct b, or leave out nonnegative=True"
        )
    return position - value / steep


def _refined(system: System, multipliers: FloatArray, least: FloatArray, solve: Solver) -> FloatArray:
    """Multipliers for which the residual of rows e is only rounding."""
    rows = system.rows
    best, least_over = multipliers, np.inf
    for _ in range(_MOST_REFINEMENTS):
        over = rows @ np.maximum(rows.T @ multipliers, least) - system.lacking
        worst = float(np.abs(over).max(initial=0.0))
        if worst < least_over:
            best = multipliers
        if worst >= 0.9 * least_over or worst == 0.0:
            break
        least_over = worst
        multipliers = multipliers - solve(over)
    return best


def _over(system: System, e: FloatArray) -> FloatArray:
    """rows e - lacking, set to 0 where it is only rounding, which would cause steps of any length along undetermined
    multipliers.
    """
    over = np.asarray(system.rows @ e - system.lacking, dtype=np.float64)
    known = _ROUNDING * (abs(system.rows) @ np.abs(e) + np.abs(system.lacking)) + system.rounding
    over[np.abs(over) <= known] = 0.0
    return over


def factor(rows: Any, free: np.ndarray[Any, Any]) -> Solver:
    """The solver of (rows rows' over the free entries + a little) l = g."""
    chosen = rows[:, np.flatnonzero(free)]
    if is_sparse(rows):
        from scipy.sparse.linalg import splu

        gram = chosen @ chosen.T + _ADDED * sp.eye_array(rows.shape[0])
        # Symmetric and positive definite: no pivoting is needed.
        lower_upper = splu(
            sp.csc_array(gram), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
        return lambda g: np.asarray(lower_upper.solve(g), dtype=np.float64)
    from scipy.linalg import cho_factor, cho_solve

    lower = cho_factor(chosen @ chosen.T + _ADDED * np.eye(rows.shape[0]), lower=True)
    return lambda g: np.asarray(cho_solve(lower, g), dtype=np.float64)
