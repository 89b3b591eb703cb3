"""A family's program stated in cvxpy, for any solver: what the compiled active set is compared with."""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.optimize import lsq_linear

from topdown.geography.tree import FloatArray
from topdown.projection.families import Family, Solved
from topdown.projection.reference import run_solver

cp: Any = cvxpy  # ships no usable types

_EMPTY = 1e-4
"""Cells below this, in units of the noise, are taken for 0 in what a solver found."""

_NOTHING = 1e-12
"""Part of the largest eigenvalue or pivot below which one is rounding."""


def solve_by_cvxpy(family: Family, *, solver: str, options: dict[str, Any]) -> Solved:
    """The family's program, stated as least squares of what is known of every child; its multipliers are the solver's
    where there are conditions, and else those that the solution's free cells ask for.

    Raises `ProjectionError` when the solver is not installed, fails, or does not report an optimal solution.
    """
    (table, g), conditions = family.known, family.conditions
    count, cells = g.shape
    variable = cp.Variable((count, cells))
    terms = []
    for c in range(count):
        values, vectors = np.linalg.eigh(table[c][family.pattern])
        kept = values > _NOTHING * values[-1]
        root = np.sqrt(values[kept])
        # |R x - R^-T g|^2 / 2 with R'R = P is 1/2 x'Px - g'x and a constant.
        half = root[:, None] * vectors[:, kept].T
        terms.append(cp.sum_squares(half @ variable[c] - (vectors[:, kept].T @ g[c]) / root))
    constraints = [variable[np.nonzero(conditions.allowed)] >= 0]
    answers: Any = variable @ conditions.rows.T.astype(np.float64) if len(conditions.rows) else None
    exact = conditions.low == conditions.high
    for c, j in zip(*np.nonzero(np.isfinite(conditions.low) & ~exact), strict=True):
        constraints.append(answers[c, j] >= conditions.low[c, j])
    for c, j in zip(*np.nonzero(np.isfinite(conditions.high) & ~exact), strict=True):
        constraints.append(answers[c, j] <= conditions.high[c, j])
    equations, aims = _equations(family, exact)
    if len(equations):
        constraints.append(equations @ cp.vec(variable, order="C") == aims)
    found = run_solver(cp.sum(terms), constraints, variable, solver, options)
    x = np.where(conditions.allowed, np.maximum(found, 0.0), 0.0)
    if family.total is not None:  # a solver's sums are off by its tolerance
        sums = x.sum(axis=0)
        x *= np.divide(family.total, sums, out=np.ones_like(sums), where=sums > 0)
    return Solved(x, *_multipliers(family, x))


def _equations(family: Family, exact: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Sums, exact answers and closed cells as equations of all cells, those left out that follow from others.

    Interior point methods want them independent.
    """
    conditions, count = family.conditions, len(family.known.g)
    cells = len(family.cells)
    parts, aims = [np.zeros((0, count * cells))], [np.zeros(0)]
    if family.total is not None:
        parts.append(np.tile(np.eye(cells), count))
        aims.append(family.total)
    for c, j in zip(*np.nonzero(exact), strict=True):
        parts.append(np.kron(np.eye(count)[c], conditions.rows[j])[None])
        aims.append(conditions.low[c, j][None])
    closed = np.flatnonzero(~conditions.allowed)
    parts.append(np.eye(count * cells)[closed])
    aims.append(np.zeros(len(closed)))
    matrix, aim = np.concatenate(parts), np.concatenate(aims)
    if not len(matrix):
        return matrix, aim
    _, triangle, order = qr(matrix.T, mode="economic", pivoting=True)
    kept = np.sort(order[: int((np.abs(np.diag(triangle)) > _NOTHING * abs(triangle[0, 0])).sum())])
    return matrix[kept], aim[kept]


def _multipliers(family: Family, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The multipliers with which the equations of the cells that are not empty hold best."""
    (table, g), conditions = family.known, family.conditions
    count, cells = x.shape
    slope = np.stack([table[c][family.pattern] @ x[c] - g[c] for c in range(count)])
    unit = np.sqrt(table[:, np.diagonal(family.pattern)])
    answers, slack = x @ conditions.rows.T, _EMPTY / unit.max(axis=1, keepdims=True)
    at_least, at_most = answers < conditions.low + slack, answers > conditions.high - slack
    held = at_least | at_most
    free = (x * unit > _EMPTY) & conditions.allowed
    design, aims = [], []
    places = {(c, j): cells + k for k, (c, j) in enumerate(zip(*np.nonzero(held), strict=True))}
    for c, k in zip(*np.nonzero(free), strict=True):
        row = np.zeros(cells + len(places))
        row[k] = family.total is not None
        for j in np.flatnonzero(conditions.rows[:, k] & held[c]):
            row[places[c, j]] = 1.0
        design.append(row / unit[c, k])
        aims.append(slope[c, k] / unit[c, k])
    matrix, aim = np.array(design).reshape(-1, cells + len(places)), np.array(aims)
    if places:
        # Up where an answer is at its least, down where it is at its most.
        signs = [(-np.inf if at_most[place] else 0.0, np.inf if at_least[place] else 0.0) for place in places]
        lower, upper = (
            np.array([*[end] * cells, *ends])
            for end, ends in zip((-np.inf, np.inf), zip(*signs, strict=True), strict=True)
        )
        found = lsq_linear(matrix, aim, (lower, upper), method="bvls", tol=1e-14).x
    else:
        found = np.linalg.lstsq(matrix, aim, rcond=None)[0]
    rows = np.zeros(conditions.low.shape)
    for (c, j), place in places.items():
        rows[c, j] = found[place]
    # Where all children are next to nothing, what lets none of them grow.
    least = np.where(conditions.allowed, slope - rows @ conditions.rows, np.inf).min(axis=0)
    if family.total is None:
        return np.zeros(cells), rows  # what nothing asks for may be anything in ``found``
    return np.where(free.any(axis=0), found[:cells], least), rows
