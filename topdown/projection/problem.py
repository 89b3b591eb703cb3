"""What every projection is given."""

from __future__ import annotations

from typing import NamedTuple

from topdown.geography.tree import FloatArray, Tree


class Problem(NamedTuple):
    """What a projection is given: values and variances (cells x nodes; variances also (nodes,)) on a tree.

    ``lower``: lower bounds in place of 0, see `invariants.lower_bounds`; None where they are 0.
    """

    values: FloatArray
    variance: FloatArray
    tree: Tree
    nonnegative: bool
    lower: FloatArray | None


def cell_of(problem: Problem, cell: int) -> Problem:
    """The problem of one cell alone; its arrays are (nodes,)."""
    return problem._replace(
        values=problem.values[cell],
        variance=problem.variance[cell] if problem.variance.ndim == 2 else problem.variance,
        lower=None if problem.lower is None else problem.lower[cell],
    )
