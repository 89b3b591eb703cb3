"""How many members of every group a household has, and the conditions on sums of households and persons that follow.

Of a household cell t the numbers n of members by group that it can hold are

    Q_t = { n whole : least_tg <= n_g <= most_tg for every group g,  least_t <= sum_g n_g <= most_t },

an integral generalised polymatroid. The sum over several households of these sets is again one, and every whole point
of it is a sum of whole points of theirs (Frank, Tardos 1988, "Generalized polymatroids and submodular flows"). So h
households and N members by group can be dealt into households exactly when for every set A of groups

    sum_t h_t lo_t(A)  <=  sum_(g in A) N_g  <=  sum_t h_t up_t(A),
    lo_t(A) = max( sum_(g in A) least_tg,  least_t - sum_(g not in A) most_tg ),
    up_t(A) = min( sum_(g in A) most_tg,   most_t - sum_(g not in A) least_tg ).

These are the *rows*: additive over nodes, so that they hold of a parent where they hold of its children.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray
from topdown.neighbours import MOST_MEMBERS
from topdown.wording import shown
from topdown.workload import Schema
from topdown.workload.schema import Zero

MOST_GROUPS = 8
"""Groups of members at most: every set of them may be a row."""

_MOST_CLASSES = 1 << 16
_EXACT = 1e-7


@dataclass(frozen=True)
class MembersTotal:
    """How many members a household has, its householder left out, by an attribute of households.

    Args:
        attribute: its name, such as "size".
        least: by category the least number of members.
        most: by category the most, up to 1,000. An open category ("7 or more") needs a number too: how many a household
            may have is part of the universe, and a larger one is refused.
    """

    attribute: str
    least: tuple[int, ...]
    most: tuple[int, ...]

    def __post_init__(self) -> None:
        for category, (least, most) in enumerate(zip(self.least, self.most, strict=True)):
            if not 0 <= least <= most:
                raise ConfigError(
                    f"members by {shown(self.attribute)}, category {category + 1}: {least} to {most} members; give a "
                    "least number from 0 on and a most that is not below it"
                )
            if most > MOST_MEMBERS:
                raise ConfigError(
                    f"members by {shown(self.attribute)}, category {category + 1}: {shown(most)} members; give at most "
                    f"{MOST_MEMBERS:,}"
                )


@dataclass(frozen=True)
class MemberGroup:
    """A group of members of households, such as spouses.

    Args:
        name: what messages call it.
        persons: which cells of the persons' schema it has: those of any of these conditions, each of attributes or
            recodes with categories; () holds of all.
        per: for some households how many of the group each of them has: which households (attributes or recodes with
            categories; () all), the least number and the most, None being as many as there are members. The first that
            a household is in counts; one that is in none has no such member.
    """

    name: str
    persons: tuple[Zero, ...]
    per: tuple[tuple[Zero, int, int | None], ...]

    def __post_init__(self) -> None:
        for _, least, most in self.per:
            if least < 0 or (most is not None and most < least):
                raise ConfigError(f"members {shown(self.name)}: {least} to {most}; give a least number and a most")
            if max(least, most or 0) > MOST_MEMBERS:
                raise ConfigError(
                    f"members {shown(self.name)}: {shown(max(least, most or 0))}; give at most {MOST_MEMBERS:,}"
                )


@dataclass(frozen=True)
class MemberRows:
    """Conditions on households and members of every node: ``coefficients`` of cells times their counts are at least 0,
    and 0 where ``equal``.

    ``of_class`` (rows x classes): the coefficient of a household by its class. ``of_group`` (rows x groups): that of a
    member by its group. ``equal`` (rows,). Coefficients are whole numbers.
    """

    of_class: IntArray
    of_group: IntArray
    equal: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Compositions:
    """The compositions of the cells of ``households``, by *class*: the product of the attributes that tell them apart.

    Raises `ConfigError` for unknown names, more groups than `MOST_GROUPS`, and for a total that does not fit its
    attribute.
    """

    households: Schema
    groups: tuple[MemberGroup, ...]
    members_total: MembersTotal

    def __post_init__(self) -> None:
        attribute = self.households.attribute(self.members_total.attribute)
        if len(self.members_total.least) != len(attribute.categories):
            raise ConfigError(
                f"members by {shown(attribute.name)}: {len(self.members_total.least)} numbers for "
                f"{len(attribute.categories)} categories; give one for each"
            )
        if not 1 <= len(self.groups) <= MOST_GROUPS:
            raise ConfigError(f"{len(self.groups)} groups of members; give from 1 to {MOST_GROUPS}")
        if math.prod(self._shape) > _MOST_CLASSES:
            raise ConfigError(
                f"the groups of members tell {math.prod(self._shape):,} kinds of records apart, and at most "
                f"{_MOST_CLASSES:,} can be; name fewer attributes in them"
            )

    @cached_property
    def _places(self) -> list[int]:
        conditions = [condition for group in self.groups for condition, _, _ in group.per]
        told = set(self.households.named(conditions)) | {self.households.names.index(self.members_total.attribute)}
        return sorted(told)

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.households.shape[place] for place in self._places)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of households that tell classes apart."""
        return tuple(self.households.names[place] for place in self._places)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return math.prod(self._shape)

    def class_of(self, households: npt.ArrayLike) -> IntArray:
        """The class of cells of the households' schema."""
        places = np.unravel_index(np.asarray(households, np.int64), self.households.shape)
        return np.asarray(np.ravel_multi_index([places[k] for k in self._places], self._shape), np.int64)

    @cached_property
    def examples(self) -> IntArray:
        """Of every class a cell of the households' schema."""
        places = [np.zeros(self.n_classes, np.int64) for _ in self.households.shape]
        for place, own in zip(self._places, np.unravel_index(np.arange(self.n_classes), self._shape), strict=True):
            places[place] = np.asarray(own)
        return np.asarray(np.ravel_multi_index(places, self.households.shape), np.int64)

    @cached_property
    def total_least(self) -> IntArray:
        """The least number of members (classes,)."""
        return np.array(self.members_total.least)[self._total_codes]

    @cached_property
    def total_most(self) -> IntArray:
        """The most members (classes,)."""
        return np.array(self.members_total.most)[self._total_codes]

    @property
    def _total_codes(self) -> IntArray:
        place = self.households.names.index(self.members_total.attribute)
        return np.asarray(np.unravel_index(self.examples, self.households.shape)[place])

    @cached_property
    def _limits(self) -> tuple[IntArray, IntArray]:
        least = np.zeros((self.n_classes, len(self.groups)), np.int64)
        most = least.copy()
        for g, group in enumerate(self.groups):
            left = np.ones(self.n_classes, np.bool_)
            for condition, low, high in group.per:
                own = left & self.households.holds(self.examples, condition)
                least[own, g] = low
                most[own, g] = self.total_most[own] if high is None else np.minimum(high, self.total_most[own])
                left &= ~own
        return least, most

    @property
    def least(self) -> IntArray:
        """The least number of every group's members (classes x groups)."""
        return self._limits[0]

    @property
    def most(self) -> IntArray:
        """The most of every group's members (classes x groups)."""
        return self._limits[1]

    @cached_property
    def possible(self) -> npt.NDArray[np.bool_]:
        """Which classes (classes,) have any composition."""
        fits = (self.least <= self.most).all(axis=1)
        fits &= (self.least.sum(axis=1) <= self.total_most) & (self.most.sum(axis=1) >= self.total_least)
        return np.asarray(fits)

    def bounds(self, groups: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        """lo(A) and up(A), (classes,) each, of the set A of ``groups``, a bool for each."""
        inside = np.asarray(groups, np.bool_)
        least, most = self.least, self.most
        low = np.maximum(least[:, inside].sum(axis=1), self.total_least - most[:, ~inside].sum(axis=1))
        high = np.minimum(most[:, inside].sum(axis=1), self.total_most - least[:, ~inside].sum(axis=1))
        return low, high

    @cached_property
    def rows(self) -> MemberRows:
        """The rows of all sets of groups, without those that follow from others: small sets stay."""
        of_class, of_group, equal = list[IntArray](), list[IntArray](), list[bool]()
        n = len(self.groups)
        for size in range(1, n + 1):
            for some in itertools.combinations(range(n), size):
                inside = np.isin(np.arange(n), some)
                low, high = (np.where(self.possible, one, 0) for one in self.bounds(inside))
                member = inside.astype(np.int64)
                of_class.append(-low)
                of_group.append(member)
                equal.append(bool((low == high).all()))
                if not equal[-1]:
                    of_class.append(high)
                    of_group.append(-member)
                    equal.append(False)
        kept = _without_redundant(np.stack(of_class), np.stack(of_group), np.array(equal), self.possible)
        return MemberRows(np.stack(of_class)[kept], np.stack(of_group)[kept], np.array(equal)[kept])

    def fits(self, households: FloatArray | IntArray, members: FloatArray | IntArray) -> npt.NDArray[np.bool_]:
        """Whether ``members`` (..., groups) can be dealt into ``households`` (..., classes), whole numbers both."""
        rows = self.rows
        slack = households @ rows.of_class.T + members @ rows.of_group.T
        return np.asarray(((slack >= 0) & (~rows.equal | (slack == 0))).all(axis=-1))


def _without_redundant(
    of_class: IntArray, of_group: IntArray, equal: npt.NDArray[np.bool_], possible: npt.NDArray[np.bool_]
) -> IntArray:
    """The rows that do not follow from the others and from counts that are not negative, by linear programs.

    The last are looked at first: those of the largest sets.
    """
    from scipy.optimize import linprog

    distinct = np.unique(of_class[:, possible], axis=1)
    matrix = np.concatenate([distinct, of_group], axis=1).astype(np.float64)
    kept = np.ones(len(matrix), np.bool_)
    # A row that says that no member of a group is below 0 says nothing.
    kept[(matrix >= 0).all(axis=1) & ~equal] = False
    for row in np.flatnonzero(kept)[::-1].tolist():
        kept[row] = False
        signs = (1.0,) if not equal[row] else (1.0, -1.0)
        others, ties = matrix[kept & ~equal], matrix[kept & equal]
        for sign in signs:
            solved = linprog(
                sign * matrix[row],
                A_ub=-others if len(others) else None,
                b_ub=np.zeros(len(others)) if len(others) else None,
                A_eq=ties if len(ties) else None,
                b_eq=np.zeros(len(ties)) if len(ties) else None,
                bounds=(0.0, 1.0),
                method="highs",
            )
            if solved.status != 0 or float(solved.fun or 0.0) < -_EXACT:
                kept[row] = True
                break
    return np.flatnonzero(kept)
