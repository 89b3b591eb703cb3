"""How a privacy budget is divided: one exact share for every level and query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from topdown.errors import BudgetError, PlanError
from topdown.noise.exact_numbers import in_decimals
from topdown.privacy.budget_numbers import exact_number
from topdown.wording import figure, joined, shown
from topdown.workload import DETAILED, normal_name

Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Shares(Mapping[Key, Fraction]):
    """The exact share of the budget of every (level, query), in the order given.

    A mapping from (level, query) to ``Fraction``; ``shares["county"]`` is short for
    ``shares["county", "detailed"]``. A share of 0 means that the level is not measured.

    Args:
        items_: ((level, query), share) in the order given; build it with `parse` or `equal`.

    Examples:
        >>> shares = td.privacy.Shares.parse({"nation": "1/4", "state": {"total": "1/4", "sex": "1/2"}})
        >>> shares.of_level("state"), shares.queries("state")
        (Fraction(3, 4), ('total', 'sex'))
    """

    items_: tuple[tuple[Key, Fraction], ...]
    _by_level: dict[str, dict[str, Fraction]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found: dict[str, dict[str, Fraction]] = {}
        for (level, query), share in self.items_:
            found.setdefault(level, {})[query] = share
        object.__setattr__(self, "_by_level", found)

    def __getitem__(self, key: Key | str) -> Fraction:
        level, query = (key, DETAILED) if isinstance(key, str) else key
        try:
            return self._by_level[level][query]
        except KeyError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[Key]:
        return (key for key, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self.items_) == dict(other.items())

    def __hash__(self) -> int:
        return hash(frozenset(self.items_))

    def __repr__(self) -> str:
        inner = ", ".join(
            f"{level!r}: '{share}'" if query == DETAILED else f"{(level, query)!r}: '{share}'"
            for (level, query), share in self.items_
        )
        return "Shares({" + inner + "})"

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels named, each once, in the order given."""
        return tuple(self._by_level)

    def queries(self, level: str) -> tuple[str, ...]:
        """The queries of ``level``."""
        return tuple(self._by_level.get(level, ()))

    def of_level(self, level: str) -> Fraction:
        """The share of ``level``, the sum over its queries; 0 for a level that is not named."""
        return sum(self._by_level.get(level, {}).values(), Fraction(0))

    @classmethod
    def parse(cls, shares: object) -> Shares:
        """Reads ``shares``: {level: share}, {level: {query: share}} or {(level, query): share}.

        Shares are ints, floats, Decimals, Fractions or strings such as "1/3". Raises PlanError for a
        negative share, for something that is not a number, and for shares that do not add up to exactly 1.
        """
        if isinstance(shares, cls):
            return shares
        if not isinstance(shares, Mapping):
            raise PlanError(f"shares is {shown(shares)}; give a mapping from level to share")
        parsed: dict[Key, Fraction] = {}
        for (level, text), value in _entries(shares):
            query = normal_name(text)
            try:
                share = exact_number(value, f"the share of {_name(level, query)}")
            except BudgetError as error:
                raise PlanError(str(error)) from None
            if share < 0:
                raise PlanError(f"the share of {_name(level, query)} is {shown(value)}; a share is 0 or more")
            if (level, query) in parsed:
                raise PlanError(f"{_name(level, query)} has two shares; give one")
            parsed[level, query] = share
        _check_sum(parsed)
        return cls(tuple(parsed.items()))

    @classmethod
    def equal(cls, levels: tuple[str, ...]) -> Shares:
        """The same share for each of ``levels``."""
        return cls(tuple(((level, DETAILED), Fraction(1, len(levels))) for level in levels))


def _entries(shares: Mapping[Any, Any]) -> Iterator[tuple[Key, object]]:
    for name, value in shares.items():
        key = (name, DETAILED) if isinstance(name, str) else name
        if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(part, str) and part for part in key)):
            raise PlanError(f"shares has the key {shown(name)}; a key is the name of a level")
        if not isinstance(value, Mapping):
            yield key, value
            continue
        if not isinstance(name, str):
            raise PlanError(f"shares has {shown(value)} for {shown(name)}; give one number for a level and query")
        for query, part in value.items():
            if not (isinstance(query, str) and query):
                raise PlanError(
                    f"the shares of level {shown(name)} have the key {shown(query)}; a key is a query's name"
                )
            yield (name, query), part


def _name(level: str, query: str) -> str:
    return f"level {shown(level)}" if query == DETAILED else f"level {shown(level)}, query {shown(query)}"


def _check_sum(shares: Mapping[Key, Fraction]) -> None:
    total = sum(shares.values(), Fraction(0))
    if total == 1:
        return
    each = [f"{_name(*key)} {figure(in_decimals(share))}" for key, share in shares.items()]
    given = joined(each) or "no level at all"
    # A third as 0.3333333333333333, or 0.1 * 3, is off by a rounding error only: say which fraction was meant.
    rounded = {key: share.limit_denominator(1000) for key, share in shares.items()}
    meant = [
        f'"{rounded[key]}" for {_name(*key)}'
        for key, share in shares.items()
        if rounded[key] != share and abs(rounded[key] - share) < Fraction(1, 10**9)
    ]
    advice = f"write {joined(meant)}" if meant else 'write shares as exact fractions, such as "3/10"'
    raise PlanError(f"the shares add up to {figure(in_decimals(total))}, not to exactly 1 ({given}); {advice}")
