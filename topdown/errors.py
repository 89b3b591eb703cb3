"""The exceptions of Topdown, in one small hierarchy.

Every message names the node, the level, the value and the remedy, as far as they apply. ``exit_code`` is what
the command line returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Self

from topdown.wording import LONGEST_MESSAGE, LONGEST_PIECE, escaped, listed, shown


class TopdownError(ValueError):
    """Base of every error that Topdown raises on purpose.

    A message is one line of printable characters, whatever it quotes, and fits on a screen.

    Args:
        message: what is wrong where, with the value and the remedy.

    Examples:
        >>> try:
        ...     td.Plan(epsilon=-1, shares={"nation": 1})
        ... except td.errors.TopdownError as error:
        ...     print(type(error).__name__, error.exit_code)
        BudgetError 5
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        text = escaped(message)
        super().__init__(text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}...")


class ConfigError(TopdownError):
    """The configuration, or an argument, is not valid.

    Examples:
        >>> td.project(measurements, "gsl")
        Traceback (most recent call last):
            ...
        topdown.errors.ConfigError: unknown method 'gsl': give 'top-down', 'gls', ...
    """

    exit_code = 2


def nearest(name: object, known: Iterable[str]) -> str:
    """ "; did you mean 'a'?", to end the list of known names, where one of them is near ``name``; else nothing.

    Args:
        name: the name that is not known.
        known: the names that are known.

    Examples:
        >>> td.errors.nearest("gsl", ["gls", "joint"])
        "; did you mean 'gls'?"
    """
    near = near_name(name, known)
    return "" if near is None else f"; did you mean {shown(near)}?"


def near_name(name: object, known: Iterable[str]) -> str | None:
    """Which of ``known`` is nearest to ``name``; None where none is near.

    Args:
        name: the name that is not known.
        known: the names that are known.

    Examples:
        >>> td.errors.near_name("gsl", ["gls", "joint"])
        'gls'
    """
    return next(iter(get_close_matches(str(name)[:LONGEST_PIECE].lower(), list(known), n=1, cutoff=0.5)), None)


def suggest(name: object, known: Iterable[str]) -> str:
    """ "known: 'a', 'b'; did you mean 'a'?", the second half only where a name is near.

    Args:
        name: the name that is not known.
        known: the names that are known.

    Examples:
        >>> td.errors.suggest("gsl", ["gls", "joint"])
        "known: 'gls', 'joint'; did you mean 'gls'?"
    """
    names = list(known)
    return f"known: {listed(names)}{nearest(name, names)}"


def disagreement(name: object, known: Iterable[str]) -> str:
    """As `suggest`, if the user wrote both ``name`` and the ``known`` names, and either may be wrong.

    Args:
        name: a name that one part of the input has.
        known: the names that another part of it has.

    Examples:
        >>> td.errors.disagreement("conty", ["state", "county"])
        "there are 'state', 'county'; write 'conty' and 'county' alike, if they are one"
    """
    names = list(known)
    near = near_name(name, names)
    both = "" if near is None else f"; write {shown(name)} and {shown(near)} alike, if they are one"
    return f"there are {listed(names)}{both}"


def require_type(kind: type, value: object, name: str) -> None:
    """Refuse a ``value`` of another type than ``kind``, as where two arguments change places. Raises `ConfigError`.

    Args:
        kind: the type that is taken.
        value: what was given.
        name: of the argument, for the message.

    Examples:
        >>> td.errors.require_type(int, "3", "count")
        Traceback (most recent call last):
            ...
        topdown.errors.ConfigError: count: give int, not str
    """
    if not isinstance(value, kind):
        raise ConfigError(f"{name}: give {kind.__name__}, not {type(value).__name__}")


def require_list(value: object, name: str) -> None:
    """Refuse a text in the place of a list of texts, of which every letter would be one. Raises `ConfigError`.

    Args:
        value: what was given.
        name: of the argument, for the message.

    Examples:
        >>> td.errors.require_list("county", "levels")
        Traceback (most recent call last):
            ...
        topdown.errors.ConfigError: levels: give a list, ['county'], and not the text 'county'
    """
    if isinstance(value, str):
        raise ConfigError(f"{name}: give a list, [{shown(value)}], and not the text {shown(value)}")


def require_probability(value: object, name: str) -> None:
    """Refuse a ``value`` that is no number between 0 and 1. Raises `ConfigError`.

    Args:
        value: what was given.
        name: of the argument, for the message.

    Examples:
        >>> td.errors.require_probability(0.9, "confidence")
        >>> td.errors.require_probability(95, "confidence")
        Traceback (most recent call last):
            ...
        topdown.errors.ConfigError: confidence is 95; give a number between 0 and 1, such as 0.9 for 90 %
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0.0 < value < 1.0:  # type: ignore[operator]
        raise ConfigError(f"{name} is {shown(value)}; give a number between 0 and 1, such as 0.9 for 90 %")


def require_known(name: object, known: Iterable[str], what: str) -> None:
    """Raises `ConfigError` with the known names, and the nearest, unless ``name`` is one of ``known``.

    Args:
        name: the name that is asked for.
        known: the names that are known.
        what: what the name is of, such as "method", for the message.

    Examples:
        >>> td.errors.require_known("gls", ["gls", "joint"], "method")
        >>> td.errors.require_known("gsl", ["gls", "joint"], "method")
        Traceback (most recent call last):
            ...
        topdown.errors.ConfigError: unknown method 'gsl': give 'gls', 'joint'; did you mean 'gls'?
    """
    names = list(known)
    if name not in names:
        raise ConfigError(f"unknown {what} {shown(name)}: give {listed(names, 300)}{nearest(name, names)}")


ROW = "\ue000"
"""The place of the row's name in the message of a `DataError`; this character does not occur in quoted text."""


class DataError(TopdownError):
    """The input table cannot be read as counts on a geography.

    Args:
        message: what is wrong, with `ROW` where the row's name belongs.
        row: the row that it is about, counted from 0 in the table that was given; it replaces `ROW` in the message.

    Examples:
        >>> td.read_ppmf("counties.geojson")
        Traceback (most recent call last):
            ...
        topdown.errors.DataError: counties.geojson: unknown kind of file: give ...
    """

    exit_code = 3

    def __init__(self, message: str = "", *, row: int | None = None) -> None:
        super().__init__(message if row is None else message.replace(ROW, f"row {row}"))
        self._template, self.row = message, row

    def of_row(self, row: int) -> Self:
        """The same error for ``row``, the row's number in the table from which the rows were chosen."""
        return type(self)(self._template, row=row)

    def at(self, place: str) -> Self:
        """The same error, with ``place`` as the name of its row, such as its line in a file."""
        return type(self)(self._template.replace(ROW, place))


class GeographyError(DataError):
    """The units do not form a tree with every leaf at the last level.

    Examples:
        >>> td.Geography.from_edges(["US", "01", "02"], ["", "US", "03"])
        Traceback (most recent call last):
            ...
        topdown.errors.GeographyError: more than one root: '03', 'US'; connect them under one unit
    """


class CountsError(DataError):
    """A value of the table is not a count, or the table and the geography disagree.

    Examples:
        >>> td.Counts.from_table(table.assign(employed=-1), geography, geoid="county", cells=["employed"])
        Traceback (most recent call last):
            ...
        topdown.errors.CountsError: county '01001', cell 'employed' (row 0): the value ...
    """


class ProjectionError(TopdownError):
    """A projection has no solution, or its certificate does not hold.

    Examples:
        >>> td.project_linear([1.0, 2.0], [[1.0, 1.0], [1.0, 1.0]], [3.0, 4.0])
        Traceback (most recent call last):
            ...
        topdown.errors.ProjectionError: the constraints A x = b contradict each other: ...
    """

    exit_code = 4


class BudgetError(TopdownError):
    """The privacy budget is not well defined, or would be exceeded.

    Examples:
        >>> td.privacy.PureAccountant([td.privacy.LaplaceEvent(level="nation", scale=1)], limit="1/2")
        Traceback (most recent call last):
            ...
        topdown.errors.BudgetError: the release would bring epsilon to 1, beyond the ...
    """

    exit_code = 5


class InternalError(TopdownError):
    """An internal error of Topdown, found before anything was published. The exit code is EX_SOFTWARE of sysexits.h.

    Examples:
        >>> td.errors.InternalError("a measured value is out of reach").exit_code
        70
    """

    exit_code = 70


class PlanError(BudgetError, ConfigError):
    """The description of the plan is not valid, such as an unknown name or shares that are not numbers. This is a
    mistake in the configuration, unlike a budget that is not well defined or would be exceeded: it ends with the
    configuration's exit code.

    Examples:
        >>> td.Plan(epsilon=1, shares={"nation": "2/3", "state": "2/3"})
        Traceback (most recent call last):
            ...
        topdown.errors.PlanError: the shares add up to 4/3, not to exactly 1 (level ...
    """

    exit_code = ConfigError.exit_code
