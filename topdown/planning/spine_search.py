"""Searches the spine, and its shares of the same budget, with the smallest weighted error of units and areas.

A spine refines a partition of the leaves step by step from the root: by published levels, upper ones first, and by
kinds of areas, in some order. A level without a share costs nothing. So for every order the best spine adds one of them
at each level, provided that the shares are optimal. The mean standard deviations are convex in the precisions that the
shares buy (1 / variance is concave), so that for Gaussian noise a local optimum of the shares is the global one. Orders
are searched from several starting points by moving one element; where there are few orders, all are tried. Then levels
with nearly no share are removed, and the groups of the last level are cut, or small ones joined, as long as the error
decreases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, require_known
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.machine.progress import Silent, Stages
from topdown.planning.budget import precision_of
from topdown.planning.spines import AND, PIECES, SQRT, Facts, Spine, facts_of, grown, together
from topdown.planning.sum_precision import SummedAnswers, SumPrecisions
from topdown.privacy.plan import Plan
from topdown.privacy.shares import Key, Shares
from topdown.projection.histograms.components import Components
from topdown.projection.sum_errors import Touched, Weighted, touched
from topdown.tables.assignments import Assignment
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema

_LEAST = 1e-5
"""The smallest share of a level in the search; one without a share counts as if it had this one."""
_LEFT_OUT, _ALLOWED = 2e-3, 1.002
"""A level with a smaller share is removed if the error grows by this factor at most."""
_MOST_WEIGHT = 1e9
_FEW_ORDERS, _MOST_ORDERS = 24, 500
"""So many orders are all tried; of more so many at most."""
_CAPS: tuple[int | str | None, ...] = (None, SQRT, 64, 16, 4)
_LEASTS = (1, 2, 4, 8, 16)
"""The sizes that are tried for the groups of the last level."""
_BETTER = 1.0 - 1e-4
"""The relative decrease of the error from which a move is made."""
_DIGITS = 4
"""The decimals of shares; small shares have more."""
_TOTAL = "total"
_ERROR = attrgetter("error")


class ComparedSpine(NamedTuple):
    """A ``spine`` with the ``shares`` of its levels (including the root and the leaves) and the mean standard deviation
    (``errors``) of the total for each level and kind of areas; ``error``: their weighted sum. ``groups``: the number of
    units of the last level above the leaves. ``words``: its description.
    """

    words: str
    spine: Spine
    shares: dict[str, float]
    errors: dict[str, float]
    error: float
    groups: int


@dataclass(frozen=True, eq=False)
class SpineProblem:
    """The problem for which a spine is chosen: a ``plan`` with its shares, for a ``geography`` with ``areas``;
    ``weights``: of the mean standard deviation of every published level and kind of areas, 0 for those that are
    ignored.
    """

    plan: Plan
    geography: Geography
    schema: Schema
    facts: Facts
    weights: dict[str, float]
    _known: dict[tuple[str, ...], ComparedSpine] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        plan: Plan,
        geography: Geography,
        schema: Schema | None,
        areas: Sequence[Assignment],
        weights: Mapping[str, float],
    ) -> SpineProblem:
        """The problem with some ``weights``; by default 1, and 0 for the lowest level.

        Raises `ConfigError` for a weight of an unknown level or kind, or out of range; for weights of 0 alone; no
        areas; noise within bounds, or neither Laplace nor Gaussian; a lowest level that is exact, has no share or all.
        Raises `BudgetError` where plan, levels and schema disagree.
        """
        if not areas:
            raise ConfigError("a spine is chosen for areas; give a table of units and their areas with --areas")
        if plan.bounds.any:
            raise ConfigError("the errors of noise within bounds depend on the counts; give a plan without bounds")
        plan.noise.is_normal()
        plan, facts = plan.for_levels(geography.levels), facts_of(geography, areas)
        schema = Schema.of_cells(["count"]) if schema is None else schema
        plan = plan.for_schema(schema)
        known = [geography.levels[0], *facts.codes, geography.levels[-1]]
        for name, weight in weights.items():
            require_known(name, known, "weight of level or areas")
            if weight != 0.0 and not 1.0 / _MOST_WEIGHT <= weight <= _MOST_WEIGHT:
                raise ConfigError(
                    f"the weight of {shown(name)} is {weight:g}; give 0, or a number from {1.0 / _MOST_WEIGHT:g} to "
                    f"{_MOST_WEIGHT:g}"
                )
        usual = {name: 0.0 if name == known[-1] else 1.0 for name in known} | dict(weights)
        if not any(usual.values()):
            raise ConfigError("every weight is 0; give one of a level or kind of areas that matters")
        lowest = known[-1]
        if any(plan.is_exact(lowest, query) for query in (DETAILED, _TOTAL)):
            raise ConfigError(
                f"level {shown(lowest)} is published exactly, and so are sums of its units; nothing is left to choose"
            )
        if not usual[lowest] and not any(plan.share(lowest, query) for query in plan.queries(lowest)):
            raise ConfigError(
                f"level {shown(lowest)} has no share, and nothing else tells what an area has of a unit that it cuts; "
                f"give it a share, or a weight, such as --weight {shown(f'{lowest}=1')}"
            )
        if not usual[lowest] and _share_of(plan, lowest) > 1.0 - _LEFT_OUT:
            raise ConfigError(
                f"level {shown(lowest)} has the share {_share_of(plan, lowest):.6g} and keeps it; nothing is left for "
                f"the levels of a spine: give it less, or a weight, such as --weight {shown(f'{lowest}=1')}"
            )
        return cls(plan, geography, schema, facts, usual)

    @cached_property
    def atoms(self) -> IntArray:
        """A number (leaves,) for each leaf; leaves with the same units and areas have the same number."""
        return together([*self.facts.codes.values()])

    @cached_property
    def fixed(self) -> list[str]:
        """The published levels that every spine keeps, since they, or levels below them, are published exactly; upper
        ones first.
        """
        exact = [level for level in self.facts.level_names if self._is_exact(level)]
        names = self.facts.level_names
        return names[: names.index(exact[-1]) + 1] if exact else []

    def _is_exact(self, level: str) -> bool:
        return any(self.plan.is_exact(level, query) for query in self.plan.queries(level))

    def parts_of(self, level: str) -> dict[str, float]:
        """How a level's share is divided among its queries: for a published level as in the plan; for other levels as
        for the published level that their units are parts of, or for the next one below that is measured.
        """
        names = [*self.geography.levels]
        lowest = max((names.index(part) for part in level.split(AND) if part in names), default=0)
        if level not in names:
            lowest = max(lowest, 1)
        for name in (*names[lowest:], *names[lowest::-1]):
            shares = {q: float(self.plan.share(name, q)) for q in self.plan.queries(name)}
            total = sum(shares.values())
            if total > 0:
                return {query: share / total for query, share in shares.items() if share > 0}
        return {DETAILED: 1.0}

    def candidate(self, words: str, spine: Spine, start: Mapping[str, float] | None = None) -> ComparedSpine:
        """``spine`` with optimal shares, or with optimal shares of its levels that are in ``start``."""
        built = BuiltSpine.of(self, spine)
        shares = built.best() if start is None else np.array([start.get(level, 0.0) for level in built.levels])
        error, _, by_kind = built.error(np.maximum(shares, _LEAST))
        return ComparedSpine(
            words, spine, dict(zip(built.levels, shares.tolist(), strict=True)), by_kind, error, built.groups
        )

    def of_order(self, order: Sequence[str]) -> ComparedSpine:
        """The spine that refines by one more element of ``order`` at every level, with optimal shares."""
        key = tuple(order)
        if key not in self._known:
            self._known[key] = self.candidate("found", spine_of_order(order, self.facts))
        return self._known[key]


def spine_of_order(order: Sequence[str], facts: Facts) -> Spine:
    """The spine that refines by one more element of ``order`` at every level; its groups are not cut."""
    levels, kinds, level = [], list[str](), facts.root
    for name in order:
        if name in facts.kinds:
            kinds.append(name)
        else:
            level = name
        areas = (
            [PIECES]
            if kinds and len(kinds) == len(facts.kinds) and len(kinds) > 1
            else sorted(kinds, key=facts.kinds.index)
        )
        levels.append(AND.join([*areas, level]))
    return Spine(levels, cap=None)


@dataclass(frozen=True, eq=False)
class BuiltSpine:
    """The tree of a spine, in which one leaf stands for a group of leaves with the same units and areas; ``leaves``:
    the sizes of the groups.

    ``budgets``: the budget that every measured query has per share of its level, whose number is in ``of_level``.
    ``free``: the levels whose share is optimised; ``given``: the shares of the others. ``asked``: the totals of the
    units and areas of all ``kinds``, each a part of these, with their nodes (``entries``).
    """

    problem: SpineProblem
    levels: tuple[str, ...]
    precisions: SumPrecisions
    budgets: FloatArray
    of_level: IntArray
    free: npt.NDArray[np.bool_]
    given: FloatArray
    asked: SummedAnswers
    kinds: dict[str, slice]
    groups: int
    entries: list[Touched]
    leaves: IntArray

    @classmethod
    def of(cls, problem: SpineProblem, spine: Spine) -> BuiltSpine:
        """The tree of a spine for a problem."""
        facts, plan, geography = problem.facts, problem.plan, problem.geography
        units = grown(spine.keys(facts), geography.n_leaves).units
        _, first, times = np.unique(
            units[-1] * (problem.atoms.max() + 1) + problem.atoms, return_index=True, return_counts=True
        )
        sizes = [
            np.bincount(upper[np.unique(lower, return_index=True)[1]]) for upper, lower in itertools.pairwise(units)
        ]
        tree = Tree.from_family_sizes([*sizes, np.bincount(units[-1][first])])
        number = np.concatenate([np.ones(tree.leaves.start, np.int64), times])
        tree = Tree(tree.level_offsets.copy(), tree.child_offsets.copy(), number)
        levels = (geography.levels[0], *spine.levels, geography.levels[-1])
        of, node, count, kinds, begin = [], [], [], {}, 0
        everything = {geography.levels[0]: np.zeros(geography.n_leaves, np.int64), **facts.codes}
        for kind, code in everything.items():
            inside = code[first] >= 0
            many = int(code.max()) + 1
            of.append(begin + code[first][inside])
            node.append(tree.leaves.start + np.flatnonzero(inside))
            count.append(times[inside])
            kinds[kind] = slice(begin, begin + many)
            begin += many
        if problem.weights[levels[-1]]:
            of.append(begin + np.arange(len(first)))
            node.append(np.arange(tree.leaves.start, tree.n_nodes))
            count.append(np.ones(len(first), np.int64))
            kinds[levels[-1]] = slice(begin, begin + len(first))
            begin += len(first)
        nodes = np.concatenate(node)
        sums = Weighted(np.concatenate(of), nodes, np.ones(len(nodes)), begin, np.concatenate(count))
        measured, budgets, of_level, exact = [], [], [], []
        for place, level in enumerate(levels):
            published = level in geography.levels
            asks = [Query.parse(q, problem.schema) for q in plan.queries(level)] if published else []
            exact += [(place, query) for query in asks if plan.is_exact(level, query.name)]
            if published and problem._is_exact(level) and not any(plan.share(level, q.name) for q in asks):
                continue
            for query, part in problem.parts_of(level).items():
                measured.append((place, Query.parse(query, problem.schema)))
                budgets.append(float(plan.total) * part)
                of_level.append(place)
        queries = tuple(dict.fromkeys(query for _, query in (*measured, *exact)))
        free = np.isin(np.arange(len(levels)), of_level)
        given = np.zeros(len(levels))
        if not problem.weights[levels[-1]]:
            free[-1] = False
            given[-1] = _share_of(plan, levels[-1])
        return cls(
            problem, levels,
            SumPrecisions(tree, Components(problem.schema, queries), tuple(measured), tuple(exact)),
            np.array(budgets), np.array(of_level), free, given,
            SummedAnswers(Query.parse(_TOTAL, problem.schema), sums), kinds,
            len(np.unique(units[-1])), touched(sums, tree), times,
        )  # fmt: skip

    def error(self, shares: FloatArray) -> tuple[float, FloatArray, dict[str, float]]:
        """The weighted error at ``shares`` (levels,), its gradient, and the mean standard deviation of each kind."""
        precision, slope = precision_of(self.problem.plan, self.budgets * shares[self.of_level])
        errors = self.precisions.errors(precision)
        found = self.precisions.slopes(errors, self.asked, self.entries)
        # What exact answers determine has error 0; rounding is removed.
        deviation = np.sqrt(np.where(found.variance[:, 0] < errors.negligible, 0.0, found.variance[:, 0]))
        bend = found.slope[:, 0] * (slope * self.budgets) / (2.0 * np.maximum(deviation, 1e-12)[:, None])
        total, gradient, by_kind = 0.0, np.zeros(len(shares)), {}
        for kind, place in self.kinds.items():
            weight = self.problem.weights[kind]
            # A leaf of this tree stands for its whole group; an area for itself.
            times = self.leaves if kind == self.levels[-1] else None
            by_kind[kind] = float(np.average(deviation[place], weights=times))
            if weight:
                total += weight * by_kind[kind]
                gradient += weight * np.bincount(
                    self.of_level, np.average(bend[place], axis=0, weights=times), len(shares)
                )
        return total, gradient, by_kind

    def best(self) -> FloatArray:
        """The shares (levels,) with the smallest error; the leaves keep the plan's share unless they have a weight, or
        no other level is measured.
        """
        from scipy.optimize import LinearConstraint, minimize

        free, left = np.flatnonzero(self.free), 1.0 - float(self.given.sum())
        if not len(free):
            return np.asarray(self.given / self.given.sum())
        start = np.full(len(free), left / len(free))

        def shares(x: FloatArray) -> FloatArray:
            found = self.given.copy()
            found[free] = x
            return found

        scale = self.error(shares(start))[0]

        def price(x: FloatArray) -> tuple[float, FloatArray]:
            total, gradient, _ = self.error(np.maximum(shares(x), _LEAST))
            return total / scale, gradient[free] / scale

        found = minimize(
            price, start, jac=True, method="SLSQP", bounds=[(_LEAST, left)] * len(free),
            constraints=[LinearConstraint(np.ones((1, len(free))), left, left)],
            options={"maxiter": 100, "ftol": 1e-5},
        )  # fmt: skip
        x = np.maximum(found.x, _LEAST)
        return shares(x * left / x.sum())


@dataclass(frozen=True, eq=False)
class FoundSpine:
    """The result of a search: ``plan`` for the ``spine`` of the candidate ``best``, and all ``candidates`` for
    comparison, the published geography with the plan's own shares first and the best one last.
    """

    best: ComparedSpine
    plan: Plan
    candidates: list[ComparedSpine]


def _share_of(plan: Plan, level: str) -> float:
    """The sum of the shares of all queries of a level."""
    return sum(float(plan.share(level, query)) for query in plan.queries(level))


def search(problem: SpineProblem, stages: Stages | None = None) -> FoundSpine:
    """The best spine of a problem, and the candidates that it is compared with. ``stages`` are told how many orders of
    those that come next were tried, and if there were too many.
    """
    facts, plan, geography = problem.facts, problem.plan, problem.geography
    levels, kinds = facts.level_names, facts.kinds
    own = {level: _share_of(plan, level) for level in geography.levels}
    beside = [
        problem.candidate("published, shares of the plan", Spine(levels, cap=None), own),
        problem.candidate("published, best shares", Spine(levels, cap=None)),
    ]
    told = [level for level in levels if problem.weights[level] or level in problem.fixed]
    if told:
        groups = [*told, f"{PIECES}{AND}{told[-1]}"]
        beside.append(problem.candidate("groups follow all areas, of limited size", Spine(groups, cap=SQRT)))
        beside.append(problem.candidate("groups follow all areas, of any size", Spine(groups, cap=None)))
    best = _best_order(problem, stages or Silent())
    best = _other_sizes(problem, _fewer_levels(problem, best))
    whole = rounded(problem, best)
    judged = {level: _share_of(whole, level) for level in best.shares}
    best = problem.candidate("chosen", best.spine, judged)
    others, movable = [], _movable(problem)
    for first in (kind for kind in kinds if problem.weights[kind]):
        order = [*problem.fixed, first, *(name for name in movable if name != first)]
        others.append(problem.candidate(f"{first} first", spine_of_order(order, facts)))
    return FoundSpine(best, whole, [*beside, *others, best])


def weighed_otherwise(problem: SpineProblem, best: ComparedSpine, factors: Sequence[float]) -> list[ComparedSpine]:
    """The spine of ``best`` with optimal shares, the weights of all areas multiplied by each of ``factors``."""
    kinds, found = problem.facts.kinds, []
    for factor in factors:
        weights = {name: weight * (factor if name in kinds else 1.0) for name, weight in problem.weights.items()}
        found.append(replace(problem, weights=weights).candidate(f"areas x {factor:g}", best.spine))
    return found


def _movable(problem: SpineProblem) -> list[str]:
    """The elements by which a spine may refine below the levels that it keeps: those with a weight; upper levels before
    lower ones.
    """
    return [name for name in problem.facts.codes if problem.weights[name] and name not in problem.fixed]


def _best_order(problem: SpineProblem, stages: Stages) -> ComparedSpine:
    """The best of all orders where they are few; otherwise of those that differ by one move, from two starting points,
    as long as the error decreases and not too many were tried.
    """
    movable, fixed = _movable(problem), problem.fixed
    levels = [name for name in movable if name in problem.facts.level_names]
    kinds = [name for name in movable if name in problem.facts.kinds]

    def tried(orders: Iterable[tuple[str, ...]]) -> list[ComparedSpine]:
        found, new = [], list(orders)
        for number, order in enumerate(new):
            known = len(problem._known)
            if known >= _MOST_ORDERS:
                break
            stages.count(known, min(known + len(new) - number, _MOST_ORDERS))
            found.append(problem.of_order((*fixed, *order)))
        stages.count(len(problem._known), len(problem._known))
        return found

    if math.factorial(len(movable)) // math.factorial(len(levels)) <= _FEW_ORDERS:
        return min(tried(_orders(levels, kinds)), key=_ERROR)
    heaviest = sorted(kinds, key=lambda kind: -problem.weights[kind])
    starts = [(*levels[:place], *heaviest, *levels[place:]) for place in range(len(levels) + 1)]
    firsts = sorted(zip(tried(starts), starts, strict=False), key=lambda pair: pair[0].error)[:2]
    ends = []
    for best, order in firsts:
        now, at = best, order
        while True:
            orders = list(_moved(at, levels))
            near = tried(orders)
            nearest = min(near, key=_ERROR, default=now)
            if nearest.error >= now.error * _BETTER:
                break
            now, at = nearest, orders[near.index(nearest)]
        ends.append(now)
    if len(problem._known) >= _MOST_ORDERS:
        stages.say(
            f"note      the search ended after {_MOST_ORDERS} orders; with fewer kinds of areas, or a --weight of 0 "
            "for those that matter less, it goes on to its own end"
        )
    return min(ends, key=_ERROR)


def _orders(levels: Sequence[str], kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All orders of ``kinds`` and ``levels`` in which levels keep their own."""
    if not levels and not kinds:
        yield ()
    if levels:
        yield from ((levels[0], *rest) for rest in _orders(levels[1:], kinds))
    for kind in kinds:
        yield from ((kind, *rest) for rest in _orders(levels, [other for other in kinds if other != kind]))


def _moved(order: tuple[str, ...], levels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The orders in which one element is moved; levels keep their order among each other."""
    for place, name in enumerate(order):
        rest = order[:place] + order[place + 1 :]
        for other in range(len(order)):
            moved = (*rest[:other], name, *rest[other:])
            if other != place and [one for one in moved if one in levels] == list(levels):
                yield moved


def _fewer_levels(problem: SpineProblem, found: ComparedSpine) -> ComparedSpine:
    """``found`` without levels that have nearly no share of the budget, where the error is not larger."""
    small = [level for level in found.spine.levels if found.shares[level] < _LEFT_OUT and level not in problem.fixed]
    if not small:
        return found
    kept = [level for level in found.spine.levels if level not in small]
    fewer = problem.candidate("found", Spine(kept, cap=found.spine.cap))
    return fewer if fewer.error <= _ALLOWED * found.error else found


def _other_sizes(problem: SpineProblem, found: ComparedSpine) -> ComparedSpine:
    """``found`` with smaller groups at its last level, or with small groups joined, as long as the error decreases."""
    if not found.spine.levels or found.spine.levels[-1] in problem.fixed:
        return found
    while True:
        now = found.spine
        sizes = dict.fromkeys([*((cap, now.least) for cap in _CAPS), *((now.cap, least) for least in _LEASTS)])
        near = [
            problem.candidate("found", Spine(now.levels, cap, least))
            for cap, least in sizes
            if (cap, least) != (now.cap, now.least)
        ]
        best = min(near, key=_ERROR)
        if best.error >= found.error * _BETTER:
            return found
        found = best


def rounded(problem: SpineProblem, found: ComparedSpine) -> Plan:
    """The plan of the same budget with the shares of ``found`` in decimals, and those of each level's queries in the
    proportions that the plan has."""
    plan, wanted = problem.plan, dict[Key, float]()
    for level, share in found.shares.items():
        for query, part in problem.parts_of(level).items():
            if share * part > 0 and not (level in problem.geography.levels and plan.is_exact(level, query)):
                wanted[level, query] = share * part
    total = sum(wanted.values())
    parts = 10 ** max(_DIGITS, 3 - math.floor(math.log10(min(wanted.values()) / total)))
    whole = {key: max(1, round(share / total * parts)) for key, share in wanted.items()}
    lowest = problem.geography.levels[-1]
    given = [key for key in whole if key[0] == lowest and not problem.weights[lowest]]
    largest = max(whole.keys() - given, key=lambda key: whole[key])
    whole[largest] += parts - sum(whole.values())
    shares = {key: Fraction(number, parts) for key, number in whole.items()}
    for level in found.shares:
        if level not in plan.invariants and not any(where == level for where, _ in shares):
            shares[level, DETAILED] = Fraction(0)
    ordered = {key: shares[key] for level in found.shares for key in shares if key[0] == level}
    return replace(plan, shares=Shares.parse(ordered))
