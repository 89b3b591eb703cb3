"""The projection methods as values: the solvers of each, how solutions are certified, their variance, their program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from topdown import additions
from topdown.errors import ConfigError, require_known
from topdown.geography.tree import FloatArray, Tree
from topdown.projection.cells.equality import (
    downward,
    downward_variance,
    family_gains,
    least_squares,
    least_squares_variance,
    measured_or_zero,
    open_leaves,
    upward,
    upward_gains,
)
from topdown.projection.cells.nonnegative import downward_nonnegative, project_tree
from topdown.projection.check.certificate import Residuals
from topdown.projection.check.histogram_certificate import histogram_optimality
from topdown.projection.check.optimality import family_optimality, tree_optimality
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.families import LEAST_SQUARES, FamilySolver
from topdown.projection.histograms.least_squares import Covariance, Measured, covariance, solve
from topdown.wording import shown
from topdown.workload import Query

if TYPE_CHECKING:
    from topdown.measurements.measurements import Measurements
    from topdown.privacy.plan import Plan


class Problem(NamedTuple):
    """The input of a projection of the cells alone: values and variances (cells x nodes; variances also (nodes,)) on a
    tree.

    ``lower``: lower bounds in place of 0, see `invariants.lower_bounds`; None where they are 0.
    """

    values: FloatArray
    variance: FloatArray
    tree: Tree
    nonnegative: bool
    lower: FloatArray | None

    def of_cells(self, cells: slice) -> Problem:
        """The problem of some cells alone."""
        return self._replace(
            values=self.values[cells],
            variance=self.variance[cells] if self.variance.ndim == 2 else self.variance,
            lower=None if self.lower is None else self.lower[cells],
        )


Given = TypeVar("Given")


class Program(NamedTuple, Generic[Given]):
    """The program of a method, in a form that any solver can solve: minimise the sum over nodes i and queries q of |A_q
    x_i - y_iq|^2 / v_iq where families add up; for a `Problem` of the cells alone, each cell by itself.

    ``given``: y and v, of the cells or of queries level by level. ``by_family``: from the root family by family, the
    parent's value held; else over the whole tree at once. ``open_leaves`` (cells x nodes), of the cells alone: the
    number of unmeasured leaves that leave a node undetermined, in proportion to which it takes its part; None where
    every part is 1.
    """

    given: Given
    by_family: bool
    open_leaves: FloatArray | None = None


class CvxpySolver(NamedTuple):
    """A solver of cvxpy, by its name, and its options; ``direct``: called without cvxpy, if it is one that can be."""

    name: str
    options: dict[str, Any]
    direct: bool = False


@dataclass(frozen=True)
class CellSolver:
    """How a method solves where the cells alone are measured: every cell is a problem of its own.

    ``solve``: the solution (cells x nodes) of a `Problem`. ``residuals``: how far a solution is from optimal, piece by
    piece, given the slack that a bound is met to. ``variance``: of the solution without x >= 0 with weights
    1 / variance, from the measurements' variances; None where there is no closed form. ``program``: the same program
    for any solver; None where it cannot be stated, and there is then no second solution.
    """

    solve: Callable[[Problem], FloatArray]
    residuals: Callable[[Problem, FloatArray, float], Iterable[Residuals]]
    variance: Callable[[FloatArray, Tree], FloatArray | None] | None
    program: Callable[[Problem], Program[Problem]] | None


@dataclass(frozen=True)
class HistogramSolver:
    """How a method solves for histograms of which several queries are measured, without x >= 0.

    ``solve``: the histograms (nodes x cells) from the answers, and the covariance of their errors, None where there is
    no closed form. The answers may have a leading axis of replicates, which the histograms then have too. Raises
    `Contradiction`. ``residuals``: how far histograms are from optimal, from the answers. ``covariance``: that of
    ``solve``, from the variances of the answers alone; None where there is none. ``program``: the same program for any
    solver; None where it cannot be stated.
    """

    solve: Callable[[Tree, Components, Measured], tuple[FloatArray, Covariance | None]]
    residuals: Callable[[FloatArray, Measured, Components, Tree], Residuals]
    covariance: Callable[[Tree, Components, Sequence[Mapping[Query, FloatArray]]], Covariance] | None
    program: Callable[[Measured], Program[Measured]] | None


_SHAPES = {
    "cells": "measurements of the cells alone",
    "histograms": "several queries without x >= 0",
    "families": "several queries, or answers within limits, with x >= 0",
}
"""The shapes of workload of a method's solvers, in words."""

BoolArray = npt.NDArray[np.bool_]
Taken = TypeVar("Taken")
Stated = TypeVar("Stated")


@dataclass(frozen=True)
class Method:
    """A projection method: a solver of every shape of workload that it takes, and None of those that it refuses.

    ``words``: what it solves. ``nonnegative``: whether it has x >= 0. ``upward``: whether measurements below a node are
    used for its estimate. ``from_root``: whether, of several queries, nothing but the root's own measurements, and
    exact answers, says what the root has. ``cells``: its solver where the cells alone are measured; ``histograms``: of
    several queries without x >= 0; ``families``: of several queries, or of answers within limits, with x >= 0.
    """

    name: str
    words: str
    nonnegative: bool
    upward: bool
    cells: CellSolver | None = None
    histograms: HistogramSolver | None = None
    families: FamilySolver | None = None
    from_root: bool = False

    @property
    def takes_order(self) -> bool:
        """Whether it can make some queries non-negative before others."""
        return self.families is not None and self.families.check_pass is not None

    def require_root(self, plan: Plan, levels: Sequence[str], *, several: bool) -> None:
        """Raise `ConfigError` where it would start from nothing: a ``plan`` of ``several`` queries that does not
        measure the root, of the first of ``levels``.
        """
        if self.from_root and several and not (plan.queries(levels[0]) or plan.invariants or plan.exact_queries):
            raise ConfigError(
                f"level {shown(levels[0])} has no share of the budget, and method {self.name!r} goes from the root "
                f"down: {self._remedy()}"
            )

    def require_root_measured(self, measurements: Measurements) -> None:
        """As `require_root`, for ``measurements`` of several queries that may be of no plan."""
        root, *below = map(measurements.at, measurements.geography.levels)
        measured = any(np.isfinite(variance[0]).all() for _, variance in root.values())
        exact = (variance == 0 for answers in below for _, variance in answers.values())
        if self.from_root and not measured and not any(one.all() for one in exact):
            raise ConfigError(
                f"{measurements.geography.describe(0)} is not measured, and method {self.name!r} goes from the root "
                f"down: {self._remedy()}"
            )

    def _remedy(self) -> str:
        able = [repr(one.name) for one in METHODS.values() if one.upward and one.nonnegative]
        return f"measure the root, or take {' or '.join(able)}, which use what is measured below"

    def for_cells(self) -> CellSolver:
        """``cells``. Raises `ConfigError` with the methods that have it where this one does not."""
        return self._taken(self.cells, "cells")

    def for_histograms(self) -> HistogramSolver:
        """``histograms``. Raises `ConfigError` as `for_cells` does."""
        return self._taken(self.histograms, "histograms")

    def for_families(self) -> FamilySolver:
        """``families``. Raises `ConfigError` as `for_cells` does."""
        return self._taken(self.families, "families")

    def require(self, *, several: bool, nonnegative: bool) -> None:
        """Refuse a shape of workload that this method has no solver of: of ``several`` queries or within limits, or of
        the cells alone. Raises `ConfigError`.
        """
        if not several:
            self.for_cells()
        elif nonnegative:
            self.for_families()
        else:
            self.for_histograms()

    def stated(self, program: Callable[[Given], Stated] | None, problem: Given) -> Stated:
        """A solver's ``program`` of a problem. Raises `ConfigError` where it has none."""
        if program is None:
            raise ConfigError(
                f"method {self.name!r} cannot be stated as a program for cvxpy; take engine='tree', and leave out the "
                "cross-check (projection.cross_check = false)"
            )
        return program(problem)

    def _taken(self, solver: Taken | None, shape: str) -> Taken:
        if solver is None:
            able = [repr(one.name) for one in METHODS.values() if getattr(one, shape) is not None]
            raise ConfigError(
                f"method {self.name!r} ({self.words}) has no solver of {_SHAPES[shape]}; take {' or '.join(able)}"
            )
        return solver


# -- family by family from the root -----------------------------------------------------------------------------------


def top_down(problem: Problem) -> FloatArray:
    """The root first, then family by family: min sum (x_c - y_c)^2 / v_c s.t. sum x_c = x_parent [, x >= 0].

    A root that is not measured is the sum of its children (`from_below`).

    Source: the programs (P) and (P+) of Zhu, Van Hentenryck, Fioretto, *Bias and Variance of Post-processing in
    Differential Privacy*, level by level.
    """
    values, variance, tree, nonnegative, lower = from_below(problem)
    if nonnegative:
        return downward_nonnegative(measured_or_zero(values, variance), variance, tree, lower)
    return downward(measured_or_zero(values, variance), family_gains(variance, tree), tree)


def from_below(problem: Problem) -> Problem:
    """``problem`` with the sums of what its children have, not below the bounds, in place of a root that is not
    measured, and so for every node below that is not measured either, nor any node above it. Of all solutions of its
    program, which leaves the root open, the one that changes the measurements below least.
    """
    values, variance, tree, nonnegative, lower = problem
    if np.isfinite(variance[..., 0]).all():
        return problem
    known = np.isfinite(variance)
    found = measured_or_zero(values, variance)
    if nonnegative:
        found = np.maximum(found, 0.0 if lower is None else lower)
    found = np.where(known, found, 0.0)
    for families in tree.parts_up():
        sums = families.total(found[..., families.children])
        found[..., families.parents] = np.where(known[..., families.parents], found[..., families.parents], sums)
    above = ~known
    for families in tree.parts_down():
        above[..., families.children] &= families.spread(above[..., families.parents])
    usual = np.max(variance, initial=0.0, where=known) or 1.0
    return problem._replace(values=np.where(above, found, values), variance=np.where(above, usual, variance))


def _top_down_residuals(problem: Problem, x: FloatArray, slack: float) -> Iterator[Residuals]:
    values, variance, tree, nonnegative, lower = from_below(problem)
    return family_optimality(x, values, variance, tree, lower, nonnegative=nonnegative, slack=slack)


def _top_down_variance(variance: FloatArray, tree: Tree) -> FloatArray | None:
    if np.isinf(variance[..., 0]).any():
        return None
    return downward_variance(variance, family_gains(variance, tree), tree)


def _top_down_program(problem: Problem) -> Program[Problem]:
    return _whole_tree_program(from_below(problem))._replace(by_family=True)


# -- the whole tree ---------------------------------------------------------------------------------------------------


def gls(problem: Problem) -> FloatArray:
    """Generalised least squares on the whole tree: min sum (x_i - y_i)^2 / v_i s.t. every family adds up."""
    return least_squares(problem.values, problem.variance, problem.tree)


def joint(problem: Problem) -> FloatArray:
    """min over the whole tree of sum (x_i - y_i)^2 / v_i s.t. every family adds up [, x >= 0]; without, `gls`."""
    return project_tree(problem.values, problem.variance, problem.tree) if problem.nonnegative else gls(problem)


def _whole_tree_residuals(problem: Problem, x: FloatArray, slack: float) -> Iterator[Residuals]:
    values, variance, tree, nonnegative, _ = problem
    return tree_optimality(x, values, variance, tree, nonnegative=nonnegative, slack=slack)


def _whole_tree_program(problem: Problem) -> Program[Problem]:
    values = measured_or_zero(problem.values, problem.variance)
    return Program(problem._replace(values=values), by_family=False)


# -- up the tree without, then down with x >= 0 ------------------------------------------------------------------------


def upward_pass(problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Every node's best estimate from what was measured at and below it, its variance (inf where undetermined), and the
    numbers of unmeasured leaves because of which it is undetermined.
    """
    values, variance, tree = problem.values, problem.variance, problem.tree
    gains = upward_gains(variance, tree)
    z = upward(measured_or_zero(values, variance), gains, tree)
    open_ends = open_leaves(variance, tree)
    return z, gains.variance if open_ends is None else np.where(open_ends > 0, np.inf, gains.variance), open_ends


def gls_top_down(problem: Problem) -> FloatArray:
    """The upward pass of `gls`, then `top_down` from its estimates and variances; without x >= 0 the same as `gls`."""
    if not problem.nonnegative:
        return gls(problem)
    z, u, open_ends = upward_pass(problem)
    return downward_nonnegative(z, u, problem.tree, problem.lower, open_ends)


def _gls_top_down_residuals(problem: Problem, x: FloatArray, slack: float) -> Iterator[Residuals]:
    if not problem.nonnegative:
        return _whole_tree_residuals(problem, x, slack)
    values, variance, tree, _, lower = problem
    z, u, _ = upward_pass(problem)
    found = family_optimality(x, z, u, tree, lower, nonnegative=True, slack=slack)
    # The upward pass is part of the program; exact values are those of the measurements.
    exact = variance == 0
    return found if not exact.any() else _with_exact(found, x, values, exact, tree)


def _with_exact(
    found: Iterator[Residuals], x: FloatArray, values: FloatArray, exact: BoolArray, tree: Tree
) -> Iterator[Residuals]:
    """The residuals ``found`` for the upward pass's estimates, and the difference of ``x`` from ``exact`` values."""
    inner, allowed = [], np.zeros((*x.shape[:-1], tree.n_families))
    for one in found:
        nodes = slice(one.first, one.first + one.gap.shape[-1])
        allowed[..., one.above : one.above + one.allowed.shape[-1]] = one.allowed
        away = np.where(exact[..., nodes], np.abs(x[..., nodes] - values[..., nodes]), 0.0)
        one = one._replace(gap=np.maximum(one.gap, away))
        if one.first >= tree.n_families:
            yield one
        else:
            inner.append((nodes, one))  # The sums of their own families are checked with the families' children.
    for nodes, one in inner:
        yield one._replace(rounding=one.rounding + np.where(exact[..., nodes], allowed[..., nodes], 0.0))


def _gls_top_down_program(problem: Problem) -> Program[Problem]:
    if not problem.nonnegative:
        return _whole_tree_program(problem)
    z, u, open_ends = upward_pass(problem)
    return Program(problem._replace(values=z, variance=u), True, open_ends)


# -- histograms of which several queries are measured ------------------------------------------------------------------


def _least_squares_of_histograms(*, upward: bool) -> HistogramSolver:
    def stated(measured: Measured) -> Program[Measured]:
        return Program(measured, by_family=not upward)

    return HistogramSolver(
        partial(solve, upward=upward),
        partial(histogram_optimality, upward=upward),
        partial(covariance, upward=upward),
        stated,
    )


_WHOLE_TREE = _least_squares_of_histograms(upward=True)


GLS = Method(
    "gls",
    "least squares on the whole tree: unbiased because it allows negative values",
    nonnegative=False,
    upward=True,
    cells=CellSolver(gls, _whole_tree_residuals, least_squares_variance, _whole_tree_program),
    histograms=_WHOLE_TREE,
)
"""The estimates that every release has beside those of its method."""

LINKED_METHODS = ("top-down", "gls-top-down")
"""The methods that two linked tables are solved by (`projection.linked`); others are refused."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "top-down",
            "family by family from the root",
            nonnegative=True,
            upward=False,
            cells=CellSolver(top_down, _top_down_residuals, _top_down_variance, _top_down_program),
            histograms=_least_squares_of_histograms(upward=False),
            families=LEAST_SQUARES,
            from_root=True,
        ),
        GLS,
        Method(
            "gls-top-down",
            "the upward pass of least squares, then family by family from the root",
            nonnegative=True,
            upward=True,
            cells=CellSolver(gls_top_down, _gls_top_down_residuals, least_squares_variance, _gls_top_down_program),
            histograms=_WHOLE_TREE,
            families=LEAST_SQUARES,
        ),
        Method(
            "joint",
            "the whole tree at once",
            nonnegative=True,
            upward=True,
            cells=CellSolver(joint, _whole_tree_residuals, least_squares_variance, _whole_tree_program),
            histograms=_WHOLE_TREE,
        ),
    )
}
"""Every projection method by its name."""

BUILT_IN = MappingProxyType(dict(METHODS))
"""The methods of topdown itself, without those that were added to `METHODS`."""


def method_named(name: str) -> Method:
    """The method called ``name``. Raises `ConfigError` with the nearest name for an unknown one."""
    require_known(name, _known_with(name), "method")
    return METHODS[name]


def nonnegative_methods(name: str | None = None) -> list[str]:
    """The names of the methods that have x >= 0, also of those that packages add where ``name`` is of none of topdown's
    own."""
    return [known for known, method in _known_with(name).items() if method.nonnegative]


def _known_with(name: str | None) -> Mapping[str, Method]:
    if name is not None and name not in METHODS:
        additions.load("methods")
    return METHODS
