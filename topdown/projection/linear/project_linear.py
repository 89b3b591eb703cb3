"""project_linear(): the values nearest to noisy ones that meet any linear constraints A x = b, and x >= 0 if required.

The programs (P) and (P+) of Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential
Privacy", in the paper's own setting. A tree is the special case in which A states that families add up; for trees
`topdown.project` is faster, and handles exact and unmeasured nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from topdown.errors import ConfigError, ProjectionError, require_known
from topdown.geography.tree import FloatArray
from topdown.projection.check.certificate import SOLVER_TOLERANCE, TOLERANCE, Certificate, worst_of
from topdown.projection.linear.linear_covariance import (
    checked_constraints,
    checked_variances,
    linear_projection_covariance,
)
from topdown.projection.linear.linear_solver import Solver, System, equality, factor, is_sparse
from topdown.projection.linear.linear_solver import nonnegative as active_set
from topdown.projection.method import CvxpySolver

LINEAR_ENGINES = ("active-set", "cvxpy")

_EPSILON = float(np.finfo(np.float64).eps)
_CONTRADICTION = 1e-9
"""A row contradicts the others where the nearest point misses it by this part of its noise, and by more than rounding.
"""
_LARGEST_DENSE = 20_000
"""A covariance with more rows than this is not formed (3 GiB)."""


@dataclass(frozen=True, eq=False)
class LinearEstimate:
    """The nearest values that meet A x = b, with a certificate.

    Args:
        values: of the shape of y.
        multipliers: l of the constraints, (rows,) or (rows, columns of y), for which x = y + variance * A'l, or the
            greater of that and 0.
        certificate: the residuals of the program, judged entry by entry from the program itself; its ``worst_node``
            is an entry.
        nonnegative: whether x >= 0 was asked for.
        engine: "active-set" or "cvxpy".

    Examples:
        >>> found = td.project_linear([10.0, 5.0, -2.0], [[1.0, 1.0, 1.0]], [15.0])
        >>> found.values.round(3), found.certificate.consistency < 1e-9
        (array([10.667,  5.667, -1.333]), True)
        >>> found.covariance.round(2)
        array([[ 0.67, -0.33, -0.33],
               [-0.33,  0.67, -0.33],
               [-0.33, -0.33,  0.67]])
    """

    values: FloatArray = field(repr=False)
    multipliers: FloatArray = field(repr=False)
    certificate: Certificate
    nonnegative: bool
    engine: str
    _constraints: Any = field(repr=False)
    _variance: FloatArray = field(repr=False)

    @cached_property
    def covariance(self) -> FloatArray | None:
        """Of the errors x - truth, (entries, entries): Sigma - Sigma A'(A Sigma A')^+ A Sigma, for independent noise of
        the given variances. None with x >= 0, where there is no closed form. Raises ConfigError beyond 20,000
        entries."""
        if self.nonnegative:
            return None
        if len(self._variance) > _LARGEST_DENSE:
            raise ConfigError(
                f"the covariance of {len(self._variance):,} entries does not fit; ask for fewer, or take "
                "topdown.project for "
                "a tree"
            )
        return linear_projection_covariance(self._constraints, self._variance)

    @property
    def variance(self) -> FloatArray | None:
        """The diagonal of the covariance, (entries,); None with x >= 0."""
        return None if self.covariance is None else np.diag(self.covariance).copy()


def project_linear(
    y: ArrayLike,
    A: Any,
    b: ArrayLike,
    *,
    variance: ArrayLike = 1.0,
    nonnegative: bool = False,
    engine: str = "active-set",
    solver: str = "OSQP",
    solver_options: dict[str, Any] | None = None,
) -> LinearEstimate:
    """argmin over x with A x = b [and x >= 0] of the sum of (x_i - y_i)^2 / variance_i.

    (P) is x = y - Sigma A'(A Sigma A')^+ (A y - b); its errors are linear in the noise, so that it is unbiased where
    the noise has mean 0, and have the ``covariance`` of the result. Neither holds with x >= 0.

    Args:
        y: (entries,), or (entries, k) for k tables under the same A.
        A: (rows, entries) an array or a scipy sparse matrix, whose rows may depend on each other.
        b: (rows,), or (rows, k).
        variance: one number or (entries,); 0 keeps an entry as it is.
        nonnegative: (P+) in place of (P).
        engine: "active-set" (one linear system, and for x >= 0 an active set; exact to rounding) or "cvxpy" (the same
            program given to ``solver``).
        solver: of engine "cvxpy", the name of any solver that cvxpy has installed.
        solver_options: of engine "cvxpy", by name, given to the solver.

    Raises `ConfigError` for what is no such program, `ProjectionError` where the constraints contradict each other or
    no x >= 0 meets them, naming the row, and where a certificate does not hold.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", programs (P),
    (P+).

    Examples:
        >>> found = td.project_linear([10.0, 5.0, -2.0], [[1.0, 1.0, 1.0]], [15.0], nonnegative=True)
        >>> found.values.round(3)
        array([10.,  5.,  0.])
    """
    require_known(engine, LINEAR_ENGINES, "engine")
    matrix: Any = sp.csr_array(A, dtype=np.float64) if is_sparse(A) else checked_constraints(A)
    near, total = _columns("y", y, matrix.shape[1]), _columns("b", b, matrix.shape[0])
    if total.shape[1] not in (1, near.shape[1]):
        raise ConfigError(f"b has {total.shape[1]} columns and y {near.shape[1]}; give one for each, or a single one")
    if is_sparse(matrix) and not np.isfinite(matrix.data).all():
        raise ConfigError("A holds a number that is not finite; correct it")
    noise = checked_variances(variance, matrix.shape[1])
    below = np.flatnonzero((noise == 0) & (near < 0).any(axis=1))
    if nonnegative and below.size:
        raise ProjectionError(
            f"entry {below[0]} is exact (variance 0) and below 0, which x >= 0 cannot be; correct it or give it a "
            "variance"
        )
    shared = _Constraints(matrix, noise)
    x, multipliers = np.empty(near.shape), np.empty((matrix.shape[0], near.shape[1]))
    certificates = []
    for column in range(near.shape[1]):
        one = _Program(shared, near[:, column], total[:, column % total.shape[1]], nonnegative)
        if engine == "cvxpy":
            x[:, column], multipliers[:, column] = one.by_cvxpy(CvxpySolver(solver, solver_options or {}))
        else:
            x[:, column], multipliers[:, column] = one.solved()
        certificates.append(one.certificate(x[:, column], multipliers[:, column], engine))
    certificate = worst_of(certificates)
    if not certificate.holds():
        raise ProjectionError(
            f"A x = b by {engine}: the certificate does not hold at entry {certificate.worst_node}: constraints off by "
            f"{certificate.consistency:.3g}, most negative {certificate.most_negative:.3g}, optimality off by "
            f"{certificate.kkt:.3g}; "
            + (
                "take another solver or tighter options"
                if engine == "cvxpy"
                else "take engine='cvxpy', and report this"
            )
        )
    flat = np.ndim(y) == 1
    return LinearEstimate(
        x[:, 0] if flat else x,
        multipliers[:, 0] if flat else multipliers,
        certificate,
        nonnegative,
        engine,
        matrix,
        noise,
    )


@dataclass(frozen=True, eq=False)
class _Constraints:
    """The constraints of tables with the same A and the same noise; ``rows`` are A's, in units of the noise."""

    matrix: Any
    noise: FloatArray

    @cached_property
    def size(self) -> FloatArray:
        """The standard deviation of every entry."""
        return np.sqrt(self.noise)

    @cached_property
    def magnitude(self) -> Any:
        return abs(self.matrix)

    @cached_property
    def norm(self) -> FloatArray:
        """The standard deviation of every row's noise; 1 where its entries are exact."""
        spread = np.sqrt(np.asarray((self.magnitude * self.magnitude) @ self.noise, dtype=np.float64))
        return np.where(spread > 0, spread, 1.0)

    @cached_property
    def rows(self) -> Any:
        if is_sparse(self.matrix):
            return sp.csc_array(sp.diags_array(1 / self.norm) @ self.matrix @ sp.diags_array(self.size))
        return self.matrix * self.size / self.norm[:, None]

    @cached_property
    def solve(self) -> Solver:
        return factor(self.rows, np.ones(len(self.noise), np.bool_))


@dataclass(frozen=True, eq=False)
class _Program:
    """One table's program, and the same in units of the noise: rows (x - y)/size = short."""

    shared: _Constraints
    y: FloatArray
    b: FloatArray
    nonnegative: bool

    @cached_property
    def short(self) -> FloatArray:
        return np.asarray((self.b - self.shared.matrix @ self.y) / self.shared.norm, dtype=np.float64)

    @cached_property
    def system(self) -> System:
        return System(self.shared.rows, self.short, self._off(self.y)[1] / 2 / self.shared.norm)

    @cached_property
    def least(self) -> FloatArray:
        """The least (x - y)/size with x >= 0; exact entries have no such bound."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.shared.noise > 0, -self.y / self.shared.size, -np.inf)

    def solved(self) -> tuple[FloatArray, FloatArray]:
        """x and the multipliers of A, to rounding. Raises `ProjectionError` for constraints that cannot be met."""
        e, multipliers = equality(self.system, self.shared.solve)
        self._require_consistent(self.y + self.shared.size * e)
        if not self.nonnegative:
            return self.y + self.shared.size * e, multipliers / self.shared.norm
        e, multipliers = active_set(self.system, self.least, multipliers)
        return np.where(e > self.least, self.y + self.shared.size * e, 0.0).clip(
            min=0.0
        ), multipliers / self.shared.norm

    def by_cvxpy(self, solver: CvxpySolver) -> tuple[FloatArray, FloatArray]:
        """The same by a solver of cvxpy, which also gives the multipliers."""
        from topdown.projection.check.cvxpy_programs import modelling, run_solver

        cp = modelling()

        e = cp.Variable(len(self.y))
        kept = np.flatnonzero(np.asarray((abs(self.shared.rows)).sum(axis=1)).ravel() > 0)
        constraints = [self.shared.rows[kept] @ e == self.short[kept]] if kept.size else []
        bounded = np.flatnonzero(np.isfinite(self.least)) if self.nonnegative else kept[:0]
        if bounded.size:
            constraints.append(e[bounded] >= self.least[bounded])
        # Half the sum of squares: the multipliers are then those of the active set.
        found = run_solver(cp.sum_squares(e) / 2, constraints, e, solver)
        multipliers = np.zeros(len(self.b))
        if kept.size:
            multipliers[kept] = -np.asarray(constraints[0].dual_value).ravel()
        x = self.y + self.shared.size * found
        return (np.maximum(x, 0.0) if self.nonnegative else x), multipliers / self.shared.norm

    def certificate(self, x: FloatArray, multipliers: FloatArray, engine: str) -> Certificate:
        """The residuals of x: of the constraints, the signs and each entry's own equation, beyond rounding."""
        target = self.y + self.shared.noise * (self.shared.matrix.T @ multipliers)
        added = np.abs(self.y) + self.shared.noise * (self.shared.magnitude.T @ np.abs(multipliers))
        gap = np.abs(x - (np.maximum(target, 0.0) if self.nonnegative else target))
        gap[self.shared.noise == 0] = np.abs(x - self.y)[self.shared.noise == 0]
        off, rounding = self._off(x)
        entry = _beyond(gap, 16 * _EPSILON * (np.abs(x) + added), self.shared.size)
        row = _beyond(off, rounding, self.shared.norm)
        least = float(x.min()) if self.nonnegative else 0.0
        worst = int(np.argmax(entry))
        if row.size and row.max() > entry[worst]:
            worst = _an_entry(self.shared.matrix, int(np.argmax(row)))
        return Certificate(
            consistency=float(off.max(initial=0.0)),
            most_negative=min(least, 0.0),
            kkt=float(gap.max()),
            scale=float(np.abs(x).max()),
            noise=float(self.shared.size.max()),
            deviations=np.inf if least < 0 else float(max(entry.max(), row.max(initial=0.0))),
            worst_node=worst,
            tolerance=SOLVER_TOLERANCE if engine == "cvxpy" else TOLERANCE,
        )

    def _off(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far every row is from b, and what rounding can do there (numpy adds in pairs)."""
        sums = self.shared.magnitude @ np.maximum(np.abs(x), np.abs(self.y)) + np.abs(self.b)
        rounding = (16 + np.log2(len(x) + 1)) * _EPSILON * sums
        return np.abs(self.shared.matrix @ x - self.b), np.asarray(rounding, dtype=np.float64)

    def _require_consistent(self, x: FloatArray) -> None:
        off, rounding = self._off(x)
        wrong = np.flatnonzero(off > np.maximum(_CONTRADICTION * self.shared.norm, 4 * rounding))
        if wrong.size:
            row = int(wrong[np.argmax((off / self.shared.norm)[wrong])])
            raise ProjectionError(
                f"the constraints A x = b contradict each other: the nearest point misses row {row} by "
                f"{off[row]:.3g}; correct b, or leave a row out"
            )


def _an_entry(constraints: Any, row: int) -> int:
    """An entry with a weight in the row; 0 for an empty row."""
    weights = np.asarray(constraints[[row]].toarray() if is_sparse(constraints) else constraints[row]).ravel()
    return int(np.argmax(np.abs(weights)))


def _beyond(residual: FloatArray, rounding: FloatArray, deviation: FloatArray) -> FloatArray:
    """Each residual beyond rounding, in standard deviations; infinite where there is no standard deviation."""
    excess = np.where(np.isnan(residual), np.inf, residual - rounding)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(excess <= 0, 0.0, excess / deviation)


def _columns(name: str, values: ArrayLike, rows: int) -> FloatArray:
    """``values`` as (rows, columns). Raises ConfigError where they are none."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} are not numbers; give an array of {rows} of them") from None
    if array.ndim not in (1, 2) or array.shape[0] != rows:
        raise ConfigError(f"{name} has shape {array.shape}; give {rows} numbers, or a column of {rows} for every table")
    wrong = np.flatnonzero(~np.isfinite(array).reshape(rows, -1).all(axis=1))
    if wrong.size:
        raise ConfigError(f"{name} is not finite at position {wrong[0]}; give numbers")
    return array[:, None] if array.ndim == 1 else array
