"""Least squares on histograms stated in cvxpy, for any solver: what the components are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cvxpy
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import lsmr

from topdown.geography.tree import FloatArray, Tree
from topdown.measurements.measurements import Answers
from topdown.projection.method import HistogramProgram
from topdown.projection.reference import run_solver
from topdown.workload import Query, Schema

cp: Any = cvxpy  # ships no usable types


def solve_histograms(
    tree: Tree,
    schema: Schema,
    program: HistogramProgram,
    solver: str,
    options: dict[str, Any],
) -> FloatArray:
    """Histograms (nodes x cells) that solve ``program``, by cvxpy with ``solver``.

    Whole tree: one program in the leaves' histograms. Family by family: one per level, root first. Meant for small
    trees. Raises `ProjectionError` when the solver is not installed, fails, or does not report an optimal solution.
    """
    possible, measured = schema.possible_cells(), program.measured
    cells = sp.eye_array(schema.n_cells, format="csc")[:, possible]
    found = np.zeros((tree.n_nodes, schema.n_cells))
    if not program.by_family:
        stacked = [_level_matrix(tree.level(k), _below(tree, k), level, cells) for k, level in enumerate(measured)]
        design, values, variance = _stack(stacked, tree.n_leaves * len(possible))
        leaves = _least_squares(design, values, variance, None, None, solver, options)
        found[:, possible] = tree.aggregate(leaves.reshape(tree.n_leaves, -1).T).T
        return found
    x = np.zeros((tree.n_nodes, len(possible)))
    for index, level in enumerate(measured):
        nodes = tree.level(index)
        count = nodes.stop - nodes.start
        design, values, variance = _stack(
            [_level_matrix(nodes, sp.eye_array(count, format="csr"), level, cells)], count * len(possible)
        )
        sums = total = None
        if index:
            families = tree.families(index - 1)
            sums = sp.kron(_sums(families.sizes), sp.eye_array(len(possible)), format="csr")
            total = x[families.parents].reshape(-1)
        x[nodes] = _least_squares(design, values, variance, sums, total, solver, options).reshape(count, -1)
    found[:, possible] = x
    return found


def _sums(sizes: Any) -> Any:
    parents = np.repeat(np.arange(len(sizes)), sizes)
    return sp.csr_array((np.ones(len(parents)), (parents, np.arange(len(parents)))))


def _below(tree: Tree, index: int) -> Any:
    """Which leaves lie below the nodes of a level."""
    found = sp.eye_array(tree.n_leaves, format="csr")
    for families in tree.families_up():
        if families.parents.start < tree.level(index).start:
            break
        found = _sums(families.sizes) @ found
    return found


def _level_matrix(nodes: slice, below: Any, level: Mapping[Query, Answers], cells: Any) -> list[tuple[Any, Any, Any]]:
    found = []
    for query, (values, variance) in level.items():
        made = np.isfinite(variance)
        matrix = sp.kron(below.tocsr()[np.flatnonzero(made)], query.matrix() @ cells, format="csr")
        found.append((matrix, values[made].reshape(-1), np.repeat(variance[made], query.n_answers)))
    return found


def _stack(levels: list[list[tuple[Any, Any, Any]]], columns: int) -> tuple[Any, FloatArray, FloatArray]:
    parts = [part for level in levels for part in level]
    if not parts:
        return sp.csr_array((0, columns)), np.zeros(0), np.zeros(0)
    matrices, values, variances = zip(*parts, strict=True)
    return sp.vstack(matrices, format="csr"), np.concatenate(values), np.concatenate(variances)


def _least_squares(
    design: Any, values: FloatArray, variance: FloatArray, sums: Any, total: Any, solver: str, options: dict[str, Any]
) -> FloatArray:
    """argmin |(A x - y) / sqrt v|^2 with what is exact and the families' sums as constraints; of least norm."""
    exact = variance == 0
    fixed = [design[np.flatnonzero(exact)], *([] if sums is None else [sums])]
    aims = [values[exact], *([] if total is None else [total])]
    binding, aim = sp.vstack(fixed, format="csr"), np.concatenate(aims)
    weight = 1.0 / np.sqrt(variance[~exact])
    noisy = design[np.flatnonzero(~exact)]
    start = lsmr(sp.vstack([noisy, binding]), np.concatenate([values[~exact], aim]), atol=1e-10, btol=1e-10)[0]
    step = cp.Variable(design.shape[1])
    gap = cp.multiply(weight, noisy @ step - (values[~exact] - noisy @ start))
    constraints = [binding @ step == aim - binding @ start] if binding.shape[0] else []
    moved = run_solver(cp.sum_squares(gap), constraints, step, solver, options)
    # Of the minimisers the one of least norm: the same fitted answers and sums, nothing else.
    both = sp.vstack([noisy, binding], format="csr")
    found = lsmr(both, both @ (start + moved), atol=1e-14, btol=1e-14, conlim=0, maxiter=100_000)[0]
    return np.asarray(found)
