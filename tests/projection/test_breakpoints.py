"""The piecewise-linear method: against the clamp, against NNLS, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.breakpoints import project_tree_by_breakpoints
from support.examples import examples
from support.trees import Case, cases, nnls_tree, trees, wide_trees
from topdown.errors import ProjectionError
from topdown.geography.tree import Tree
from topdown.projection.cells.nonnegative import project_tree
from topdown.projection.invariants import settle


def test_by_hand() -> None:
    # Root 3 and leaves 5, -1: with the second at 0, the first is the mean of 5 and 3.
    x = project_tree_by_breakpoints(np.array([3.0, 5, -1]), np.ones(3), Tree.from_family_sizes([[2]]))
    np.testing.assert_allclose(x, [4, 4, 0])


@examples(150)
@given(cases(st.one_of(trees(), wide_trees()), unmeasured_leaves=False, wild=False))
def test_equals_the_clamp(case: Case) -> None:
    values, variance = settle(np.nan_to_num(case.values.T), case.variance.T, case.tree, nonnegative=True)
    x = project_tree_by_breakpoints(values, variance, case.tree)
    np.testing.assert_allclose(x, project_tree(values, variance, case.tree), atol=1e-8 * case.noise)


@examples(50)
@given(cases(trees(max_leaves=30), exact=False, unmeasured_leaves=False, max_cells=1, wild=False))
def test_equals_a_dense_quadratic_program(case: Case) -> None:
    values, variance = np.nan_to_num(case.values.T), case.variance.T
    x = project_tree_by_breakpoints(values, variance, case.tree)
    np.testing.assert_allclose(x[0], nnls_tree(values[0], variance[0], case.tree), atol=1e-6 * case.noise)


def test_an_unmeasured_leaf_is_refused() -> None:
    with pytest.raises(ProjectionError, match="measurement at every leaf"):
        project_tree_by_breakpoints(np.ones(3), np.array([1.0, np.inf, 1]), Tree.from_family_sizes([[2]]))
