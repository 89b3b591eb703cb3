"""The spine, and its shares of the same budget, with the smallest weighted error of units and areas: a search.

A spine is a way from the root to the leaves on which more and more is told apart: published levels, the upper ones
first, and kinds of areas, in some order. A level that is not worth a share costs nothing, so that of every order the
spine which tells one more apart at each level is the best, once the shares are the best: mean standard deviations are
convex in the precisions that the shares buy (1 / variance is concave), so that a local optimum of these is the global
one for Gaussian noise. Orders are searched from several starts, by moving one to another place; where there are few,
all are tried. Levels with next to no share are then left out, and the last level's groups are made smaller, by a cap,
or small ones joined, as long as that is better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, require_known
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, Tree
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
"""The smallest share that a level is given in the search."""
_LEFT_OUT, _ALLOWED = 2e-3, 1.002
"""Levels with a smaller share are left out, if that makes the whole no worse than by this."""
_FEW_ORDERS = 24
_CAPS: tuple[int | str | None, ...] = (None, SQRT, 64, 16, 4)
_LEASTS = (1, 2, 4, 8, 16)
"""What is tried as the size of the last level's groups."""
_BETTER = 1.0 - 1e-4
"""How much smaller an error is that is worth a move."""
_DIGITS = 4
"""Decimals of shares; more, where one is small."""
_TOTAL = "total"


class ComparedSpine(NamedTuple):
    """A ``spine`` with the ``shares`` of its levels (root and leaves too) and the mean standard deviation (``errors``)
    of the total by kind, of levels and areas; ``error``: their weighted sum. ``groups``: how many units the last level
    above the leaves has. ``words``: what it is."""

    words: str
    spine: Spine
    shares: dict[str, float]
    errors: dict[str, float]
    error: float
    groups: int


@dataclass(frozen=True, eq=False)
class SpineProblem:
    """What a spine is chosen for: a ``plan`` with its shares, for a ``geography`` with ``areas``; ``weights``: of the
    mean standard deviation of every published level and kind of areas, 0 where it does not matter."""

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
        """``weights``: where they are not 1, as of the lowest level, which has 0.

        Raises `ConfigError` for a weight of what there is not, or below 0, for weights of 0 alone, no areas, noise
        within bounds or of another law than Laplace's and Gaussian ones, a lowest level that is exact or has no share,
        `BudgetError` where plan, levels and schema disagree.
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
            if not 0.0 <= weight < float("inf"):
                raise ConfigError(f"the weight of {name} is {weight:g}; give 0 or more")
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
                f"give it a share, or a weight, such as --weight {lowest}=1"
            )
        return cls(plan, geography, schema, facts, usual)

    @cached_property
    def atoms(self) -> IntArray:
        """A number (leaves,) for what is known of each leaf."""
        return together([*self.facts.codes.values()])

    @cached_property
    def fixed(self) -> list[str]:
        """The published levels that a spine has as they are, since they, or levels below them, are published exactly;
        upper ones first."""
        exact = [level for level in self.facts.level_names if self._is_exact(level)]
        names = self.facts.level_names
        return names[: names.index(exact[-1]) + 1] if exact else []

    def _is_exact(self, level: str) -> bool:
        return any(self.plan.is_exact(level, query) for query in self.plan.queries(level))

    def parts_of(self, level: str) -> dict[str, float]:
        """Which part of a level's share each of its queries has: of a published level as the plan says; of others as
        of the published level that they are pieces of, or of the next one that is measured."""
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
        """``spine`` with the best shares, or with those of its levels that are in ``start``."""
        built = BuiltSpine.of(self, spine)
        shares = built.best() if start is None else np.array([start.get(level, 0.0) for level in built.levels])
        error, _, by_kind = built.error(np.maximum(shares, _LEAST * 1e-3))
        return ComparedSpine(
            words, spine, dict(zip(built.levels, shares.tolist(), strict=True)), by_kind, error, built.groups
        )

    def of_order(self, order: Sequence[str]) -> ComparedSpine:
        """The spine that tells one more of ``order`` apart at every level, with the best shares."""
        key = tuple(order)
        if key not in self._known:
            self._known[key] = self.candidate("found", spine_of_order(order, self.facts))
        return self._known[key]


def spine_of_order(order: Sequence[str], facts: Facts) -> Spine:
    """The spine whose every level tells one more of ``order`` apart; uncut."""
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
    """A spine's tree in which one leaf stands for all of a group of which the same is known, so many (``leaves``).

    ``budgets``: what the whole of a level's share buys of every query measured, which is ``of_level``. ``free``: of
    which levels the share is sought; ``given``: what the others have. ``asked``: the total of the units and areas of
    all ``kinds``, each a part of these, which touch ``entries``.
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
        """Of a spine for a problem."""
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
        """The weighted error at ``shares`` (levels,), its gradient, and the mean standard deviation of every kind."""
        precision, slope = precision_of(self.problem.plan, self.budgets * shares[self.of_level])
        errors = self.precisions.errors(precision)
        found = self.precisions.slopes(errors, self.asked, self.entries)
        # What exact answers determine is exact, and no rounding.
        deviation = np.sqrt(np.where(found.variance[:, 0] < errors.negligible, 0.0, found.variance[:, 0]))
        bend = found.slope[:, 0] * (slope * self.budgets) / (2.0 * np.maximum(deviation, 1e-12)[:, None])
        total, gradient, by_kind = 0.0, np.zeros(len(shares)), {}
        for kind, place in self.kinds.items():
            weight = self.problem.weights[kind]
            # A leaf of the tree stands for all of its group; an area for itself.
            times = self.leaves if kind == self.levels[-1] else None
            by_kind[kind] = float(np.average(deviation[place], weights=times))
            if weight:
                total += weight * by_kind[kind]
                gradient += weight * np.bincount(
                    self.of_level, np.average(bend[place], axis=0, weights=times), len(shares)
                )
        return total, gradient, by_kind

    def best(self) -> FloatArray:
        """The shares (levels,) of the smallest error; the leaves' is the plan's unless they have a weight."""
        from scipy.optimize import LinearConstraint, minimize

        free, left = np.flatnonzero(self.free), 1.0 - float(self.given.sum())
        start = np.full(len(free), left / len(free))

        def shares(x: FloatArray) -> FloatArray:
            found = self.given.copy()
            found[free] = x
            return found

        scale = self.error(shares(start))[0]

        def price(x: FloatArray) -> tuple[float, FloatArray]:
            total, gradient, _ = self.error(np.maximum(shares(x), _LEAST * 1e-3))
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
    """What a search found: ``plan`` for the ``spine`` of the candidate ``best``, and all ``candidates`` to compare, the
    published geography with the plan's own shares first, the best one last."""

    best: ComparedSpine
    plan: Plan
    candidates: list[ComparedSpine]


def _share_of(plan: Plan, level: str) -> float:
    """What all queries of a level have of the budget together."""
    return sum(float(plan.share(level, query)) for query in plan.queries(level))


def search(problem: SpineProblem) -> FoundSpine:
    """The best spine of a problem, and what it is compared with."""
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
    best = problem.of_order(min(_tried(problem), key=lambda order: problem.of_order(order).error))
    best = _other_sizes(problem, _fewer_levels(problem, best))
    whole = rounded(problem, best)
    judged = {level: _share_of(whole, level) for level in best.shares}
    best = problem.candidate("chosen", best.spine, judged)
    others = [
        problem.candidate(f"{first} first", spine_of_order([*problem.fixed, first, *rest], facts))
        for first, rest in _one_first(problem, kinds)
    ]
    return FoundSpine(best, whole, [*beside, *others, best])


def weighed_otherwise(problem: SpineProblem, best: ComparedSpine, factors: Sequence[float]) -> list[ComparedSpine]:
    """The spine of ``best`` with the best shares where all areas weigh so many times (``factors``) as much."""
    kinds, found = problem.facts.kinds, []
    for factor in factors:
        weights = {name: weight * (factor if name in kinds else 1.0) for name, weight in problem.weights.items()}
        found.append(replace(problem, weights=weights).candidate(f"areas x {factor:g}", best.spine))
    return found


def _one_first(problem: SpineProblem, kinds: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Every kind that matters, with all else after it."""
    for first in kinds:
        if problem.weights[first]:
            yield first, [name for name in _movable(problem) if name != first]


def _movable(problem: SpineProblem) -> list[str]:
    """What a spine may tell apart below what is fixed: what has a weight; upper levels before lower ones."""
    return [name for name in problem.facts.codes if problem.weights[name] and name not in problem.fixed]


def _tried(problem: SpineProblem) -> list[tuple[str, ...]]:
    """The orders that were tried: all where they are few, else from several starts all that are one move away, as long
    as that is better."""
    movable, fixed = _movable(problem), problem.fixed
    levels = [name for name in movable if name in problem.facts.level_names]
    kinds = [name for name in movable if name in problem.facts.kinds]
    n_orders = math.factorial(len(movable)) // math.factorial(len(levels))
    if n_orders <= _FEW_ORDERS:
        every = itertools.permutations(movable)
        return [(*fixed, *order) for order in every if [name for name in order if name in levels] == levels]
    heaviest = sorted(kinds, key=lambda kind: -problem.weights[kind])
    starts = [[*levels[:place], *heaviest, *levels[place:]] for place in range(len(levels) + 1)]
    tried: list[tuple[str, ...]] = []
    for start in sorted(starts, key=lambda order: problem.of_order((*fixed, *order)).error)[:2]:
        now, error = tuple(start), problem.of_order((*fixed, *start)).error
        tried.append((*fixed, *now))
        while True:
            near = {order: problem.of_order((*fixed, *order)).error for order in _moved(now, levels)}
            nearest = min(near, key=lambda order: near[order])
            if near[nearest] >= error * _BETTER:
                break
            now, error = nearest, near[nearest]
            tried.append((*fixed, *now))
    return tried


def _moved(order: tuple[str, ...], levels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The orders in which one stands elsewhere, and levels in theirs."""
    for place, name in enumerate(order):
        rest = order[:place] + order[place + 1 :]
        for other in range(len(order)):
            moved = (*rest[:other], name, *rest[other:])
            if other != place and [one for one in moved if one in levels] == list(levels):
                yield moved


def _fewer_levels(problem: SpineProblem, found: ComparedSpine) -> ComparedSpine:
    """``found`` without levels that are next to nothing of its budget, where that is no worse."""
    small = [level for level in found.spine.levels if found.shares[level] < _LEFT_OUT and level not in problem.fixed]
    if not small:
        return found
    kept = [level for level in found.spine.levels if level not in small]
    fewer = problem.candidate("found", Spine(kept, cap=found.spine.cap))
    return fewer if fewer.error <= _ALLOWED * found.error else found


def _other_sizes(problem: SpineProblem, found: ComparedSpine) -> ComparedSpine:
    """``found`` with smaller groups at its last level, or with small ones joined, as long as that is better."""
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
        best = min(near, key=lambda one: one.error)
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
