"""A linked family's program by an interior-point solver, for the few in which an active set goes round in circles.

There more rows are held than there are cells to choose, so that their multipliers are not unique. A solver that comes
from inside finds which cells are above 0 and which rows are held; the cells then follow from linear equations, and its
multipliers, of which no sign is wrong, are moved to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray
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


class _Conditions(NamedTuple):
    """What bounds the cells of all children, one child after the other, in units of the noise of every cell.

    ``tied``: the sums over children and their values. ``rows``: each child's rows; their answers are between ``low``
    and ``high``. ``closed``: the cells that are 0.
    """

    tied: sp.csr_array
    total: FloatArray
    rows: sp.csr_array
    low: FloatArray
    high: FloatArray
    closed: IntArray


class _Inside(NamedTuple):
    """What an interior-point solver found: the cells, in units of their noise, and the multipliers of the sums, of the
    rows and of every cell's bound 0, with its number of iterations."""

    z: FloatArray
    sums: FloatArray
    rows: FloatArray
    cells: FloatArray
    iterations: int


def solve_inside(family: LinkedFamily) -> Solved:
    """The solution of the family's program. Raises `ProjectionError` where the solver fails."""
    program = family.dense()
    (children, cells), of_child = program.conditions.allowed.shape, sp.csr_array(program.conditions.rows)
    # In units of every cell's own noise: precisions of cells differ by many orders of magnitude.
    unit = 1 / np.sqrt(family.measured.diagonal()).reshape(-1)
    scale = sp.diags_array(unit)
    information, g = sp.csr_array(scale @ _information(program) @ scale), program.known.g.reshape(-1) * unit
    sums = sp.kron(np.ones((1, children)), sp.eye_array(cells), format="csr")
    total = np.zeros(0) if family.total is None else family.total
    conditions = _Conditions(
        sp.csr_array(sums[: len(total)] @ scale),
        total,
        sp.csr_array(sp.kron(sp.eye_array(children), of_child) @ scale),
        program.conditions.low.reshape(-1),
        program.conditions.high.reshape(-1),
        np.flatnonzero(~program.conditions.allowed.reshape(-1)),
    )
    inside = _from_inside(information, g, conditions)
    strongest = np.repeat(1 / unit.reshape(children, cells).min(axis=1), of_child.shape[0])
    z, sums_push, rows_push = _exact(information, g, conditions, inside, strongest)
    return Solved(
        without_rounding(np.maximum(unit * z, 0.0).reshape(children, cells), family.total),
        np.zeros(cells) if family.total is None else sums_push,
        rows_push.reshape(children, -1),
        inside.iterations,
    )


def _from_inside(information: sp.csr_array, g: FloatArray, conditions: _Conditions) -> _Inside:
    """The solution by Clarabel. Raises `ProjectionError` where it fails."""
    import clarabel

    low, high = conditions.low, conditions.high
    equal, least, most = low == high, np.isfinite(low) & (low != high), np.isfinite(high) & (low != high)
    every = sp.eye_array(len(g), format="csr")
    fixed = [conditions.tied, conditions.rows[equal], every[conditions.closed]]
    above = [-conditions.rows[least], conditions.rows[most], -every]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _TIGHT
    found = clarabel.DefaultSolver(
        sp.csc_matrix(sp.triu(information)),
        -g,
        sp.csc_matrix(sp.vstack([*fixed, *above])),
        np.concatenate(
            [conditions.total, low[equal], np.zeros(len(conditions.closed)), -low[least], high[most], np.zeros(len(g))]
        ),
        [
            clarabel.ZeroConeT(sum(one.shape[0] for one in fixed)),
            clarabel.NonnegativeConeT(sum(one.shape[0] for one in above)),
        ],
        settings,
    ).solve()
    if str(found.status) not in ("Solved", "AlmostSolved"):
        raise ProjectionError(f"a family's program was not solved, from inside neither: {found.status}")
    ends = np.cumsum([one.shape[0] for one in [*fixed, *above]])
    tied, equals, _, leasts, mosts, cells = np.split(np.asarray(found.z), ends[:-1])
    rows = np.zeros(len(low))
    rows[equal], rows[least] = -equals, leasts
    rows[most] -= mosts
    return _Inside(np.asarray(found.x), -tied, rows, cells, int(found.iterations))


def _exact(
    information: sp.csr_array, g: FloatArray, conditions: _Conditions, inside: _Inside, strongest: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The cells by linear equations, where those above 0 and the rows that are held are those ``inside``, with the
    multipliers of the sums and of the rows.

    Of a cell and its multiplier, and of what a row lacks and its multiplier, in units of the noise, one is 0.
    ``strongest``: of every row, the root of the largest precision of its child's cells.
    """
    z, low, high = inside.z, conditions.low, conditions.high
    free = z > inside.cells
    free[conditions.closed] = False
    answers = conditions.rows @ z
    bound = np.where(np.abs(answers - low) <= np.abs(high - answers), low, high)
    held = (low == high) | (np.abs(answers - bound) * strongest < np.abs(inside.rows) / strongest)
    matrix = sp.csr_array(sp.vstack([conditions.tied, conditions.rows[held]]), dtype=np.float64)
    bounds = np.concatenate([conditions.total, bound[held]])
    push = np.concatenate([inside.sums, inside.rows[held]])
    for _ in range(_CORRECTIONS):
        z = np.where(free, z, 0.0)
        z[free], push = _equations(
            information[free][:, free].toarray(), g[free], matrix[:, free].toarray(), bounds, z[free], push
        )
        wrong = np.where(free, z, information @ z - g - matrix.T @ push) < -_NOTHING
        wrong[conditions.closed] = False
        if not wrong.any():
            break
        free ^= wrong
    rows = np.zeros(len(low))
    rows[held] = push[len(conditions.total) :]
    return z, push[: len(conditions.total)], rows


def _information(program: Family) -> sp.csr_array:
    table, pattern = program.known.table, program.pattern
    return sp.csr_array(sp.block_diag([own[pattern] for own in table], format="csr"))


def _equations(
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
