"""Families of many cells: the program of a root, or of the children of a large parent, without a matrix of the cells.

The same primal-dual active set as `topdown.projection.histograms.family_kernel`, its rows held by the method of
multipliers, in stages: first with wide tolerances, with which few rounds are needed, then with narrower ones. How a
child's equations on its free cells are solved differs too: its information is a diagonal D (answers in which one cell
counts) and few other answers and rows A with weights S, so that

    (D + A' S A)^-1 = D^-1 - D^-1 A' R (1 + R A D^-1 A' R)^-1 R A D^-1,   R = S^(1/2)      (Woodbury 1950),

and the sums' multipliers by conjugate gradients, in which no matrix of the parent's cells is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray
from topdown.projection.histograms.families import Solved, without_rounding

if TYPE_CHECKING:
    from topdown.linked.universe import BoolArray
    from topdown.projection.linked.linked_family import LinkedFamily

_SIGNS, _ROUNDING = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10), 2.0**-46
"""What counts as a wrong sign, in units of the noise, at every stage; and what rounding may be of the largest term."""

_WEIGHT, _MOST_WEIGHT, _HEAVIER = 1e2, 1e6, 10.0
"""What a held row adds along itself, in units of the child's largest information: at first, at most, and by which
factor it grows where what rows lack falls slowly."""

_SLOWLY = 0.2
"""Which part of what held rows lacked should be left, at most, when their multipliers have been moved once."""

_NEAR = 10.0
"""What held rows may lack, in units of what they may in the end of a stage, where the next one begins."""

_SURER = 4.0
"""As in `topdown.projection.histograms.family_kernel`: a multiplier's sign is surer than what its row may lack."""

_MOST_ROUNDS, _PATIENCE, _MOST_STEPS, _MOST_REFINEMENTS = 600, 3, 600, 6
_LEFT, _ENOUGH = 1e-2, 1e-1
"""As a part of what counts as a wrong sign: what may be left of the sums, of what they lacked, when conjugate gradients
end; and the change of a solution, in units of the noise, that is refined no further."""

_LEAST_LEFT, _LEAST_ENOUGH = 1e-13, 1e-12
"""The least of both."""

_SOME = 0.3
"""Which part of the cells and rows on the wrong side change sides where all of them make no progress."""


class _FreeEquations(NamedTuple):
    """A child's equations on its free cells ``index``: 1/D, R A of the rows that weigh (sparse, weights x free), and
    the inverse of 1 + R A D^-1 A' R."""

    index: Any
    spread: FloatArray
    weighed: Any
    inverse: FloatArray

    def apply(self, vector: FloatArray) -> FloatArray:
        """The inverse of the information times a vector, both of the free cells."""
        own = vector * self.spread
        if not self.weighed.shape[0]:
            return own
        return np.asarray(own - self.spread * (self.weighed.T @ (self.inverse @ (self.weighed @ own))))


class _WhileSolved:
    """A family while it is solved: which cells are free, which rows are held at which side, with which multipliers.

    It begins with all cells free, or from the signs and multipliers of a solution that is not near enough.
    """

    def __init__(self, family: LinkedFamily, begin: Solved | None) -> None:
        from scipy import sparse

        self.family, self.rows = family, family.rows.conditions()
        self.g, self.diagonal = family.measured.g(), family.measured.diagonal()
        measured, count = family.measured, len(self.g)
        self.d = np.tile(measured.prior, (count, 1))
        parts, weights = [], []
        for answer, precision in zip(measured.answers, measured.precision.T, strict=True):
            inside = np.flatnonzero(answer >= 0)
            _, place, size = np.unique(answer[inside], return_inverse=True, return_counts=True)
            alone = size[place] == 1
            self.d[:, inside[alone]] += precision[:, None]
            found, place = np.unique(place[~alone], return_inverse=True)
            shape = (len(found), len(answer))
            parts.append(sparse.csr_array((np.ones(len(place)), (place, inside[~alone])), shape=shape))
            weights.append(np.repeat(precision[:, None], len(found), axis=1))
        self.sums = sparse.vstack([*parts, sparse.csr_array(self.rows.rows)], format="csr")
        self.precision = np.concatenate([*weights, np.zeros((count, 0))], axis=1)
        if (self.d <= 0).any():
            raise ProjectionError("a family's program was not solved: what was measured does not determine it")
        self.strongest = np.sqrt(self.diagonal.max(axis=1))[:, None]  # the root of each child's largest information
        self.free = self.rows.allowed.copy()
        self.side = np.where(self.rows.low == self.rows.high, 2, 0)
        self.others = np.zeros(self.rows.low.shape)
        self.weigh(_WEIGHT)
        self.children: list[_FreeEquations] = [None] * count  # type: ignore[list-item]
        self.used = np.zeros((count, self.sums.shape[0]))
        self.x, self.multiplier = np.zeros_like(self.g), np.zeros(self.g.shape[1])
        self.stage = 0
        self.generator = np.random.default_rng(0)
        if begin is not None:
            self.free &= begin.x > 0
            self.side = np.where(self.side == 2, 2, -np.sign(begin.rows).astype(self.side.dtype))
            self.x, self.multiplier, self.others = begin.x, begin.sums.copy(), begin.rows.copy()
            self.stage = len(_SIGNS) - 1

    def weigh(self, weight: float) -> None:
        """Let every held row add so much along itself, in units of the child's largest information."""
        self.weight = weight * self.diagonal.max(axis=1)
        self.stale = np.ones(len(self.weight), np.bool_)

    @property
    def sign(self) -> float:
        """What counts as a wrong sign, in units of the noise."""
        return _SIGNS[self.stage]

    @property
    def last_stage(self) -> bool:
        """Whether tolerances become no narrower."""
        return self.stage == len(_SIGNS) - 1

    def push(self, x: FloatArray) -> FloatArray:
        """What every row adds to the equations (children x rows)."""
        held = self.side != 0
        bound = np.where(self.side > 0, self.rows.high, self.rows.low)
        missing = np.where(held, np.where(held, bound, 0.0) - x @ self.rows.rows.T, 0.0)
        return np.asarray(np.where(held, self.others + self.weight[:, None] * missing, 0.0))

    def slope(self, x: FloatArray, push: FloatArray) -> FloatArray:
        """P x - g - rows' push (children x cells)."""
        measured = self.sums[: self.precision.shape[1]]
        own = (measured.T @ (self.precision.T * (measured @ x.T))).T
        return np.asarray(self.d * x + own - self.g - push @ self.rows.rows)

    def refresh(self) -> None:
        """The equations of the children whose free cells or held rows have changed."""
        for c in np.flatnonzero(self.stale).tolist():
            index = np.flatnonzero(self.free[c])
            weights = np.concatenate([self.precision[c], np.where(self.side[c] != 0, self.weight[c], 0.0)])
            own = self.sums[:, index]
            used = np.flatnonzero((weights > 0) & (np.diff(own.indptr) > 0))
            weighed = own[used] * np.sqrt(weights[used])[:, None]
            weighed = weighed.tocsr()
            spread = 1.0 / self.d[c, index]
            gram = np.asarray(((weighed * spread) @ weighed.T).todense())
            gram[np.diag_indices(len(gram))] += 1.0
            self.children[c] = _FreeEquations(index, spread, weighed, np.linalg.inv(gram))
            there = np.diff(own.indptr) > 0
            with np.errstate(divide="ignore"):
                self.used[c] = np.where(there, 1.0 / weights, 0.0)
        self.stale[:] = False

    def solve(self) -> None:
        """``x`` and ``multiplier`` for the free cells and held rows, in the last stage refined until what is left is
        rounding."""
        total = self.family.total
        self.x = np.where(self.free, self.x, 0.0)
        unit, last = np.sqrt(self.diagonal), np.inf
        for _ in range(_MOST_REFINEMENTS):
            lacks = self.multiplier - self.slope(self.x, self.push(self.x))
            change = np.zeros_like(self.x)
            for c, child in enumerate(self.children):
                change[c, child.index] = child.apply(lacks[c, child.index])
            if total is not None:
                step = self._conjugate(total - (self.x + change).sum(axis=0))
                self.multiplier += step
                for child, own in zip(self.children, change, strict=True):
                    own[child.index] += child.apply(step[child.index])
            self.x += change
            worst = float((np.abs(change) * unit).max(initial=0.0))
            if worst < max(_ENOUGH * self.sign, _LEAST_ENOUGH) or worst > last / 4:
                break
            last = worst

    def _conjugate(self, left: FloatArray) -> FloatArray:
        """The multipliers' step by which the children's sums change by ``left`` (cells,).

        Preconditioned by what would be the inverse if all children had the same free cells: the information of the sum
        of several measured values, of which the variances add up.
        """
        scale, variance = np.zeros(len(left)), np.zeros(self.sums.shape[0])
        for child, used in zip(self.children, self.used, strict=True):
            scale[child.index] += child.spread
            variance += used
        able = scale > 0
        scale[~able] = 1.0
        left = np.where(able, left, 0.0)
        strength = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
        found = np.zeros_like(left)

        def nearly(vector: FloatArray) -> FloatArray:
            shared = self.sums.T @ (strength * (self.sums @ vector))
            return np.asarray(vector / scale + np.where(able, shared, 0.0))

        towards = nearly(left)
        step, size = towards.copy(), float(left @ towards)
        enough = max(_LEFT * self.sign, _LEAST_LEFT) ** 2 * size
        for _ in range(_MOST_STEPS):
            if size <= enough:
                break
            turned = np.zeros_like(left)
            for child in self.children:
                turned[child.index] += child.apply(step[child.index])
            length = size / float(step @ turned)
            found += length * step
            left = left - length * turned
            towards = nearly(left)
            size, last = float(left @ towards), size
            step = towards + size / last * step
        return found

    def change_minds(self, *, some: bool) -> int:
        """How many cells and rows are on the wrong side; they are moved to the other, all of them or ``some``."""
        rows, push = self.rows, self.push(self.x)
        lack = self.slope(self.x, push) - self.multiplier
        unit, sign = np.sqrt(self.diagonal), self.sign
        most = np.abs(self.x).max(axis=1, keepdims=True)
        # A cell shares the rounding of its siblings' sum.
        largest = most if self.family.total is None else np.maximum(most, self.family.total)
        terms = np.abs(self.g) + np.abs(self.multiplier) + self.diagonal * most
        negative = self.free & (self.x * unit < -sign - _ROUNDING * largest * unit)
        growing = rows.allowed & ~self.free & (lack < -sign * unit - _ROUNDING * terms)
        wrong: BoolArray = negative | growing
        answers = self.x @ rows.rows.T
        slack = self.slack()
        least = slack * self.weight[:, None] / _SURER + sign * self.strongest
        to = np.where(answers < rows.low - slack, -1, np.where(answers > rows.high + slack, 1, 0))
        to = np.where(self.side == -1, np.where(push < -least, 0, -1), to)
        to = np.where(self.side == 1, np.where(push > least, 0, 1), to)
        to = np.where(self.side == 2, 2, to)
        moved = to != self.side
        count = int(wrong.sum() + moved.sum())
        if some:
            wrong &= self.generator.random(wrong.shape) < _SOME
            moved &= self.generator.random(moved.shape) < _SOME
        self.free ^= wrong
        self.side = np.where(moved, to, self.side)
        self.others[moved] = 0.0
        self.stale |= wrong.any(axis=1) | moved.any(axis=1)
        return count

    def give_back(self) -> None:
        """Where no child has a cell left that the parent has, all have it again."""
        none = ~self.free.any(axis=0)
        if none.any():
            back = self.rows.allowed & none & ~self.free
            self.free |= back
            self.stale |= back.any(axis=1)

    def slack(self) -> FloatArray:
        """What rows may lack (children x rows): a little of the noise, and rounding of their sums, whose terms are
        large where they are 0."""
        terms = np.abs(self.x) @ np.abs(self.rows.rows).T
        return np.asarray(self.sign / self.strongest + _ROUNDING * terms)

    def missing(self) -> float:
        """What held rows lack at most, in units of what they may."""
        off = np.abs(self.push(self.x) - self.others) / self.weight[:, None] / self.slack()
        return float(np.where(self.side != 0, off, 0.0).max(initial=0.0))


def solve_large(family: LinkedFamily, begin: Solved | None = None) -> Solved:
    """The solution of a family's program, sought from one that is not near enough (``begin``), if there is one. Raises
    `ProjectionError` where it is not found."""
    state, weight = _WhileSolved(family, begin), _WEIGHT
    fewest, patience, lacked = np.iinfo(np.int64).max, _PATIENCE, np.inf
    for rounds in range(1, _MOST_ROUNDS + 1):
        state.refresh()
        state.solve()
        tired, last = patience == 0, state.last_stage
        wrong = state.change_minds(some=tired and last)
        if wrong == 0 or (tired and not last):
            lacks = state.missing()
            state.others = state.push(state.x)
            if last and lacks <= 1.0:
                return Solved(without_rounding(state.x, family.total), state.multiplier, state.others, rounds)
            if not last and (tired or lacks <= _NEAR):
                # On to narrower tolerances, even where these make no progress: most of what is left depends on them.
                state.stage += 1
                lacked = np.inf
            elif lacks > _SLOWLY * lacked and weight < _MOST_WEIGHT:
                weight *= _HEAVIER
                state.weigh(weight)
                lacked = np.inf
            else:
                lacked = lacks
            fewest, patience = np.iinfo(np.int64).max, _PATIENCE
        elif wrong < fewest:
            fewest, patience = wrong, _PATIENCE
        elif patience > 0:
            patience -= 1
        if family.total is not None:
            state.give_back()
    raise ProjectionError(f"a family's program was not solved in {_MOST_ROUNDS} rounds")
