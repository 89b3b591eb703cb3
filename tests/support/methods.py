"""Projection methods of one's own: of the cells alone, and with a solver of histograms that is no other method's."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from topdown.projection.check.certificate import Residuals
from topdown.projection.histograms.families import Descent, Family, FamilySolver, Solved, residuals_of, solve_compiled
from topdown.projection.histograms.precision_matrices import Gathered
from topdown.projection.method import METHODS, HistogramSolver, Method

PROGRAMS = [
    ("top-down", True),
    ("top-down", False),
    ("gls", False),
    ("gls-top-down", True),
    ("gls-top-down", False),
    ("joint", True),
    ("joint", False),
]
"""Every program of the cells alone: the method's name, and whether it has x >= 0."""


def with_cells(method: Method, **changes: Any) -> Method:
    """``method`` with another solver of the cells alone, and nothing else changed."""
    return dataclasses.replace(method, cells=dataclasses.replace(method.for_cells(), **changes))


def of_cells_alone(like: str, name: str = "mine") -> Method:
    """The method ``like`` under another name, without its solvers of several queries."""
    return dataclasses.replace(METHODS[like], name=name, words=f"as {like}", histograms=None, families=None)


PULL = 0.5
"""With which precision `shrunken` pulls every child to an even share of its parent's cells."""


def _even(family: Family) -> np.ndarray:
    shape = family.known.g.shape
    return np.zeros(shape) if family.total is None else np.broadcast_to(family.total / shape[0], shape)


def pulled(family: Family) -> Family:
    """The program that `shrunken` solves."""
    table = family.known.table.copy()
    table[:, family.pattern[0, 0]] += PULL  # the diagonal's
    return family._replace(known=Gathered(table, family.known.g + PULL * _even(family)))


def _solve(family: Family) -> Solved:
    return solve_compiled(pulled(family))


def _check(descent: Descent, index: int, nodes: slice, family: Family, solved: Solved) -> Residuals:
    table, g = pulled(family).known
    matrix = table[:, family.pattern]
    slope, size = (np.einsum("ckl,cl->ck", matrix, solved.x) + sign * g for sign in (-1, 1))
    strength = table[:, np.diagonal(family.pattern)]
    residual = slope - solved.sums - solved.rows @ family.conditions.rows
    gap = np.abs(solved.x - np.maximum(solved.x - residual / strength, 0.0))
    gap = np.where(family.conditions.allowed, gap, 0.0)
    rounding, deviation = 2.0**-40 * (size + np.abs(solved.sums)) / strength, 1 / np.sqrt(strength)
    return residuals_of((gap, rounding, deviation), family, solved)


def shrunken(name: str = "shrunken") -> Method:
    """Family by family from the root, every child pulled towards an even share: a program that no other method has.

    Without x >= 0 it is least squares, of which it knows no covariance.
    """
    known = METHODS["top-down"].for_histograms()

    def solve(*problem: Any) -> Any:
        return known.solve(*problem)[0], None

    return dataclasses.replace(
        METHODS["top-down"],
        name=name,
        words="pulled to an even share",
        cells=None,
        histograms=HistogramSolver(solve, known.residuals, None, None),
        families=FamilySolver(_solve, _check, pulled),
    )
