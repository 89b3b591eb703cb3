"""Non-negativity in passes: the answers to some queries of a family are made non-negative first, then the rest with
these fixed.

In a single pass x >= 0 over thousands of mostly empty cells raises their sum, since negative noise is cut off. A pass
requires less. Its cells are *classes*: sets of cells that the queries up to its own, and the conditions, do not
distinguish. Its program is the family's own on the histograms u_c = B x_c of these classes, with u_c >= 0 in place of
x_c >= 0:

    min over u of sum_c min { 1/2 x' P_c x - g_c' x : B x = u_c }    s.t.  sum_c u_c = B X,  u_c >= 0, the conditions,

which is 1/2 u' Q_c u - h_c' u with Q_c = (B P_c^-1 B')^-1 and h_c = Q_c B P_c^-1 g_c: the information of all
measurements on the classes. Every u_c >= 0 can be divided among the cells (in proportion to X), so that the next pass
can keep whatever a pass fixes. The last pass is the family's own program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topdown.errors import ConfigError, ProjectionError, require_known
from topdown.geography.tree import FloatArray, IntArray
from topdown.projection.conditions import Rows
from topdown.projection.histograms.precision_matrices import Gathered
from topdown.projection.histograms.prior import without_pull
from topdown.wording import shown
from topdown.workload import TOTAL, Query, Schema

if TYPE_CHECKING:
    from topdown.privacy.plan import Plan
    from topdown.projection.histograms.families import Family, Solved
    from topdown.projection.method import Method

Order = Sequence[str] | Mapping[str, Sequence[str]]
"""Queries by name: of every level, or by level."""

_REFINEMENTS = 3
"""Refinements by the residual: the inverse of an ill-conditioned matrix is right only in the first digits."""


class Classes(NamedTuple):
    """A family's program on classes of its cells.

    ``program``: of the classes; its ``cells`` are those of which each stands for its class. ``of_cell`` (cells,): the
    class of every cell of the family. The x that attains the minimum at u is ``base`` (children x cells) + u K, K
    (classes x cells) being, for some children each, in order, one of ``spread``, which siblings alike have together.
    """

    program: Family
    of_cell: IntArray
    base: FloatArray
    spread: list[tuple[slice, FloatArray]]

    def in_cells(self, u: FloatArray) -> FloatArray:
        """The x (children x cells) with B x = ``u`` (children x classes) that attains the program's minimum."""
        return np.asarray(self.base + np.concatenate([u[children] @ spread for children, spread in self.spread]))


def in_order(
    family: Family, order: Sequence[Query], solve: Callable[[Family], Solved], *, whole_total: bool = False
) -> tuple[list[tuple[Classes, Solved]], Family, Solved]:
    """The passes of a family's program with their solutions, the last pass's program, and its solution.

    ``whole_total``: for whole histograms, whether a root's total is rounded to the nearest whole number first: rounding
    its cells, most of which are below 1/2, would round the total down too often.
    """
    _, found = without_pull(
        family, lambda program, _: _passes(program, order, solve, whole_total), lambda found: found[-1].x
    )
    return found


def _passes(
    family: Family, order: Sequence[Query], solve: Callable[[Family], Solved], whole_total: bool
) -> tuple[list[tuple[Classes, Solved]], Family, Solved]:
    """As `in_order`, with the prior that ``family`` has."""
    passes = []
    for number, query in enumerate(order):
        classes = classes_of(family, order[: number + 1])
        if classes is None:
            break  # it is the last one
        solved = solve(classes.program)
        passes.append((classes, solved))
        family = family._replace(conditions=_with_answers(family, query, classes, solved.x, whole_total))
    return passes, family, solve(family)


def classes_of(family: Family, queries: Sequence[Query]) -> Classes | None:
    """The program on the classes of cells that ``queries`` and the conditions distinguish; None where the classes are
    the cells themselves, and where an only child leaves nothing to determine. Raises `ProjectionError`.
    """
    cells, conditions = family.cells, family.conditions
    if family.total is not None and len(conditions.allowed) == 1:
        return None
    first, of_cell = told_apart(
        [*(query.answers_of(cells) for query in queries), *conditions.rows, *conditions.allowed]
    )
    if len(first) == len(cells):
        return None
    members = (of_cell == np.arange(len(first))[:, None]).astype(np.float64)
    known, base, spread = _known_of_classes(family, members, first)
    pattern = np.arange(len(first) ** 2, dtype=np.int32).reshape(len(first), -1)
    total = None if family.total is None else members @ family.total
    allowed, rows, low, high = conditions
    within = Rows(np.ascontiguousarray(allowed[:, first]), np.ascontiguousarray(rows[:, first]), low, high)
    program = family._replace(cells=cells[first], known=known, pattern=pattern, total=total, conditions=within)
    return Classes(program, of_cell, base, spread)


def told_apart(keys: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Classes of cells with the same numbers in all ``keys`` (cells,): one cell of every class, and the class of every
    cell.
    """
    first, label = np.zeros(1, np.int64), np.zeros(len(keys[0]), np.int64)
    for key in keys:
        if (key != key[0]).any():
            _, first, label = np.unique(label * (int(key.max()) + 1) + key, return_index=True, return_inverse=True)
    return first, label


def _known_of_classes(
    family: Family, members: FloatArray, first: IntArray
) -> tuple[Gathered, FloatArray, list[tuple[slice, FloatArray]]]:
    """The precision and mean of classes with these ``members`` (classes x cells), ``first`` (classes,) one of each; and
    ``base`` and ``spread`` of `Classes`.

    What a class is shared out by is found among the differences of its cells from its first: x = E u + D d, of which
    only d is free.
    """
    from topdown.projection.histograms.family_kernel import invert

    (table, g), (n, cells) = family.known, members.shape
    rest = np.setdiff1d(np.arange(cells), first)
    one = first[np.argmax(members[:, rest], axis=0)]
    base, own, h, found = np.zeros_like(g), np.empty((len(g), n * n)), np.empty((len(g), n)), []
    begins = np.flatnonzero(np.concatenate([[True], (table[1:] != table[:-1]).any(axis=1)])).tolist()
    for begin, end in zip(begins, [*begins[1:], len(g)], strict=True):
        matrix, said, alone = table[begin][family.pattern], g[begin:end], base[begin:end]
        inverse = matrix[np.ix_(rest, rest)] - matrix[np.ix_(one, rest)] - matrix[np.ix_(rest, one)]
        inverse += matrix[np.ix_(one, one)]
        if not invert(inverse):
            raise ProjectionError("a family's program was not solved: what was measured does not determine it")
        spread = members / members.sum(axis=1, keepdims=True)
        for _ in range(_REFINEMENTS):
            for x, aim in ((spread, 0.0), (alone, said)):
                lacking = aim - x @ matrix
                step = (lacking[:, rest] - lacking[:, one]) @ inverse
                x[:, rest] += step
                x[:, first] -= step @ members[:, rest].T
        precision = spread @ matrix @ spread.T
        own[begin:end] = ((precision + precision.T) / 2).reshape(-1)
        h[begin:end] = (said - alone @ matrix) @ spread.T
        found.append((slice(begin, end), spread))
    return Gathered(own, h), base, found


def _with_answers(family: Family, query: Query, classes: Classes, u: FloatArray, whole_total: bool) -> Rows:
    """The family's conditions, with the answers to ``query`` fixed at their values in ``u`` (children x classes). The
    cells of an empty answer are closed. Conditions on sums of these answers hold already and are left out.
    """
    answers, first, place = np.unique(query.answers_of(family.cells), return_index=True, return_inverse=True)
    inside = place == np.arange(len(answers))[:, None]
    held = u @ (query.answers_of(classes.program.cells)[:, None] == answers)
    if whole_total and family.total is None and query.n_answers == 1:
        held = np.rint(held)
    allowed, rows, low, high = family.conditions
    empty = held <= 0
    other = (rows != rows[:, first][:, place]).any(axis=1)
    return Rows(
        allowed & ~empty[:, place],
        np.concatenate([rows[other], inside]),
        np.concatenate([low[:, other], np.where(empty, -np.inf, held)], axis=1),
        np.concatenate([high[:, other], np.where(empty, np.inf, held)], axis=1),
    )


def order_of_plan(
    plan: Plan, levels: Sequence[str], schema: Schema, method: Method, order: Order | None
) -> tuple[tuple[Query, ...], ...]:
    """`order_of` from what a plan measures."""
    asked = [{Query.parse(q, schema): plan.is_exact(level, q) for q in plan.queries(level)} for level in levels]
    return order_of(levels, asked, schema, method, order)


def order_of(
    levels: Sequence[str], asked: Sequence[Mapping[Query, bool]], schema: Schema, method: Method, order: Order | None
) -> tuple[tuple[Query, ...], ...]:
    """By level, root first, the queries that are made non-negative first in its families, one after the other.

    ``asked``: by level the queries that are measured there, and whether all answers are exact. ``order``: their names,
    of every level or by level. Where it is None: at the root the total, if it is measured there beside other queries,
    and no level's exact answers determine it. Raises `ConfigError` for an unknown level, a query that is not measured
    or that is named twice, and for a method that takes no order.
    """
    named = dict.fromkeys(query for level in asked for query in level)
    if order is None:
        total = Query.parse(TOTAL, schema)
        known = any(exact for level in asked for exact in level.values())
        first = (total,) if method.takes_order and total in asked[0] and len(named) > 1 and not known else ()
        return (first, *((),) * (len(levels) - 1))
    if isinstance(order, str):
        raise ConfigError(f"order = {shown(order)}: give a list of queries, such as [{shown(order)}]")
    by_level = order if isinstance(order, Mapping) else dict.fromkeys(levels, order)
    if any(by_level.values()) and not method.takes_order:
        raise ConfigError(
            f"order = {shown(order)}: method {method.name!r} ({method.words}) makes all queries non-negative at "
            "once; leave order out, or take 'top-down' or 'gls-top-down'"
        )
    for level in by_level:
        require_known(level, levels, "level of order")
    return tuple(_parsed(by_level.get(level, ()), named, schema) for level in levels)


def _parsed(order: Sequence[str], measured: Iterable[Query], schema: Schema) -> tuple[Query, ...]:
    found = tuple(Query.parse(name, schema) for name in order)
    for number, query in enumerate(found):
        require_known(query.name, [one.name for one in measured], "query of order, which is not measured:")
        if query in found[:number]:
            raise ConfigError(f"order names {shown(order[number])} twice; name it once")
    return found


def order_by_level(levels: Sequence[str], order: Sequence[Sequence[Query]]) -> dict[str, tuple[str, ...]]:
    """The names of the queries that are made non-negative first, by level, as `order_of` takes them; only levels that
    have some.
    """
    return {level: tuple(q.name for q in first) for level, first in zip(levels, order, strict=False) if first}
