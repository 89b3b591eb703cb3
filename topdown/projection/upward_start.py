"""Where the upward pass of a projection starts: at the leaves, or at the level that ``upward`` names.

"from tract": every node down to the tracts is estimated from what was measured at and below it, down to the tracts;
below them every family is projected with its own answers alone. This is least squares of the tree down to the tracts,
and then family by family: the limit of whole-tree least squares in which the variances of each lower level become
infinitely large relative to those above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from topdown.errors import ConfigError, require_known
from topdown.projection.method import METHODS, Method
from topdown.wording import shown
from topdown.workload import Query, Schema

if TYPE_CHECKING:
    from topdown.privacy.plan import Plan

_FROM = "from "


def start_of(levels: Sequence[str], method: Method, upward: str | None = None) -> int:
    """The number of the level where the upward pass starts, whose nodes use only their own answers: by default that of
    the leaves; the root's, 0, for a method that has no upward pass.

    ``upward``: "from LEVEL". Raises `ConfigError` for a level that there is not or that leaves nothing to choose, and
    for a method that has no upward pass by families.
    """
    if upward is None:
        return len(levels) - 1 if method.upward else 0
    if not method.upward or method.families is None:
        able = " or ".join(repr(one.name) for one in METHODS.values() if one.upward and one.families is not None)
        raise ConfigError(
            f"upward = {shown(upward)}: method {method.name!r} ({method.words}) has no upward pass before it goes down "
            f"by families; take method {able}, or leave upward out"
        )
    return start_named(levels, upward)


def start_named(levels: Sequence[str], upward: str) -> int:
    """The number of the level that ``upward``, "from LEVEL", names. Raises `ConfigError` as `start_of` does."""
    asked = f"upward = {shown(upward)}"
    if not upward.startswith(_FROM):
        raise ConfigError(
            f'{asked} names no level; write "from" before it, such as "from {levels[-2]}", or leave it out'
        )
    level = upward.removeprefix(_FROM)
    require_known(level, levels, "level of upward")
    start = list(levels).index(level)
    if start == 0:
        raise ConfigError(f"{asked}: the upward pass would have no levels; take method 'top-down' instead")
    if start == len(levels) - 1:
        raise ConfigError(f"{asked}: {shown(level)} is the lowest level, which is the default; leave upward out")
    return start


def require_start(plan: Plan, levels: Sequence[str], schema: Schema, method: Method, upward: str | None) -> None:
    """Refuse a level at which the upward pass of what a ``plan`` measures cannot start. Raises `ConfigError` as
    `start_of` and `require_determined` do."""
    asked = [[Query.parse(name, schema) for name in plan.queries(level)] for level in levels]
    require_determined(levels, asked, start_of(levels, method, upward))


def require_determined(levels: Sequence[str], asked: Sequence[Iterable[Query]], start: int) -> None:
    """Refuse a start at a level whose measurements do not determine a query that levels below it measure, because the
    only information on it would not be used above. ``asked``: the queries by level. Raises `ConfigError`.
    """
    if start == 0:
        return  # a method without an upward pass: every level has its own answers
    own = list(asked[start])
    for level, queries in zip(levels[start + 1 :], asked[start + 1 :], strict=True):
        for query in queries:
            if not any(query.is_part_of(mine) for mine in own):
                raise ConfigError(
                    f"upward = {shown(_FROM + levels[start])}: level {shown(level)} measures {shown(query.name)}, "
                    f"which the queries of level {shown(levels[start])} do not determine, and measurements below it "
                    f"are not used above; give {shown(levels[start])} a share of {shown(query.name)}, or leave "
                    "upward out"
                )
