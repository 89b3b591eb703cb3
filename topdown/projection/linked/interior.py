"""A linked family's program by an interior-point solver, for the few in which an active set goes round in circles.

There more rows are held than there are cells to choose, so that their multipliers are not unique. A solver that comes
from inside finds which cells are above 0 and which rows are held; the cells then follow from linear equations, and its
multipliers, of which no sign is wrong, are moved to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray
from topdown.projection.histograms.families import Family, Solved, without_rounding

if TYPE_CHECKING:
    from topdown.projection.linked.linked_family import LinkedFamily

_TIGHT = 1e-11
"""The tolerances that the solver is asked for."""

_NOTHING, _CORRECTIONS = 1e-10, 20
"""A cell, or a multiplier of an empty one, is below 0 beyond this, in units of the noise; and how often such cells
change sides, where the solver was not sure of them.
"""

_REFINEMENTS = 3


def solve_inside(family: LinkedFamily) -> Solved:
    """The solution, whose multipliers are not yet fitted. Raises `ProjectionError` where the solver fails."""
    import clarabel

    program = family.dense()
    (children, cells), rows = program.conditions.allowed.shape, sp.csr_array(program.conditions.rows)
    information = _information(program)
    each = sp.kron(sp.eye_array(children), rows, format="csr")
    sums = sp.kron(np.ones((1, children)), sp.eye_array(cells), format="csr")
    low, high = program.conditions.low.reshape(-1), program.conditions.high.reshape(-1)
    closed = np.flatnonzero(~program.conditions.allowed.reshape(-1))
    equal, least, most = low == high, np.isfinite(low) & (low != high), np.isfinite(high) & (low != high)
    every, nothing = sp.eye_array(children * cells, format="csr"), np.zeros(children * cells)
    total = np.zeros(0) if family.total is None else family.total
    tied = sums if family.total is not None else sums[:0]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _TIGHT
    fixed = [tied, each[equal], every[closed]]
    above = [-each[least], each[most], -every]
    # In units of every cell's own noise: precisions of cells differ by many orders of magnitude.
    unit = 1 / np.sqrt(family.measured.diagonal()).reshape(-1)
    scale = sp.diags_array(unit)
    scaled, g = sp.csr_array(scale @ information @ scale), program.known.g.reshape(-1) * unit
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(sp.triu(scaled)),
        -g,
        sp.csc_matrix(sp.vstack([*(one @ scale for one in [*fixed, *above[:-1]]), -every])),
        np.concatenate([total, low[equal], np.zeros(len(closed)), -low[least], high[most], nothing]),
        [
            clarabel.ZeroConeT(sum(one.shape[0] for one in fixed)),
            clarabel.NonnegativeConeT(sum(one.shape[0] for one in above)),
        ],
        settings,
    )
    found = solver.solve()
    if str(found.status) not in ("Solved", "AlmostSolved"):
        raise ProjectionError(f"a family's program was not solved, from inside neither: {found.status}")
    ends = np.cumsum([one.shape[0] for one in [*fixed, *above]])
    dual = np.split(np.asarray(found.z), ends[:-1])
    multipliers = np.zeros(len(low))
    multipliers[equal], multipliers[least] = -dual[1], dual[3]
    multipliers[most] -= dual[4]
    z = np.asarray(found.x)
    # Of a cell and its multiplier, and of what a row lacks and its multiplier, in units of the noise, one is 0.
    free = z > dual[-1]
    free[closed] = False
    answers = each @ (unit * z)
    strongest = np.repeat(1 / unit.reshape(children, cells).min(axis=1), len(low) // children)
    bound = np.where(np.abs(answers - low) <= np.abs(high - answers), low, high)
    held = equal | (np.abs(answers - bound) * strongest < np.abs(multipliers) / strongest)
    conditions = sp.csr_array(sp.vstack([tied, each[held]]) @ scale, dtype=np.float64)
    bounds = np.concatenate([total, bound[held]])
    push = np.concatenate([-dual[0], multipliers[held]])
    for _ in range(_CORRECTIONS):
        z = np.where(free, z, 0.0)
        z[free], push = _exactly(
            scaled[free][:, free].toarray(), g[free], conditions[:, free].toarray(), bounds, z[free], push
        )
        wrong = np.where(free, z, scaled @ z - g - conditions.T @ push) < -_NOTHING
        wrong[closed] = False
        if not wrong.any():
            break
        free ^= wrong
    multipliers[:] = 0.0
    multipliers[held] = push[len(total) :]
    sums_of = push[:cells] if family.total is not None else np.zeros(cells)
    whole = without_rounding(np.maximum(unit * z, 0.0).reshape(children, cells), family.total)
    return Solved(whole, sums_of, multipliers.reshape(children, -1), int(found.iterations))


def _information(program: Family) -> sp.csr_array:
    table, pattern = program.known.table, program.pattern
    return sp.csr_array(sp.block_diag([own[pattern] for own in table], format="csr"))


def _exactly(
    information: FloatArray, g: FloatArray, rows: FloatArray, bounds: FloatArray, x: FloatArray, multipliers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The minimum of 1/2 x' P x - g'x where ``rows`` x are ``bounds``, of which some may follow from others, near
    ``x``, and the rows' multipliers near ``multipliers``."""
    n, size = len(x), np.sqrt(np.square(rows).sum(axis=1))
    size[size == 0] = 1.0
    rows, bounds = rows / size[:, None], bounds / size
    matrix = np.zeros((n + len(rows), n + len(rows)))
    matrix[:n, :n], matrix[:n, n:], matrix[n:, :n] = information, rows.T, rows
    inverse = np.linalg.pinv(matrix, rcond=1e-12, hermitian=True)
    push = -multipliers * size
    for _ in range(_REFINEMENTS):
        lacks = np.concatenate([g - information @ x - push @ rows, bounds - rows @ x])
        step = inverse @ lacks
        x, push = x + step[:n], push + step[n:]
    return x, -push / size
