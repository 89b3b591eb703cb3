"""Rules that a user writes: who is eligible, what is paid, or a figure, as expressions over counts and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.studies.decisions.expressions import Expression
from topdown.studies.decisions.rules import Level
from topdown.wording import listed, shown

_STEPS = 200
"""The most steps of the bisection for what every unit is paid: more than float64 can resolve."""


@dataclass(frozen=True, eq=False)
class Areas:
    """Areas: units that are sums of leaves but no nodes of the tree. ``names`` (areas,); ``code`` (leaves,): the area
    of every leaf, -1 for none.
    """

    names: tuple[str, ...]
    code: IntArray = field(repr=False)

    def sums(self, leaves: FloatArray) -> FloatArray:
        """The sums (..., areas) of ``leaves`` (..., leaves)."""
        inside = np.flatnonzero(self.code >= 0)
        order = inside[np.argsort(self.code[inside], kind="stable")]
        sizes = np.bincount(self.code[inside], minlength=len(self.names))
        if (sizes == 0).any():
            raise ConfigError(f"area {shown(self.names[int(np.argmin(sizes))])} has no unit; leave it out")
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        return np.asarray(np.add.reduceat(leaves[..., order], first, axis=-1))


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule of a law or a fund, for every unit of a level or every area.

    It has exactly one of these: ``eligible`` alone, ``amount`` (with or without ``eligible``), or ``figure``. All of
    them are expressions (`expressions.Expression`).

    A fund pays every eligible unit max(floor, min(ceiling, lambda amount)), where ``floor`` and ``ceiling`` are
    expressions or left out, and lambda is such that the whole fund is paid; a unit that is not eligible is paid
    nothing. Shares of the fund are reported. Where no eligible unit has an amount, and there is no floor or ceiling,
    they share the fund equally.

    A subclass may compute ``outcome`` in its own way. Raises `ConfigError` for none or two of the three, a floor or a
    ceiling without an amount, and expressions that are not understood.

    Args:
        name: under which the study reports it.
        eligible: who is eligible; alone it is a yes-or-no decision.
        amount: in proportion to which a fund is paid out, to those that are ``eligible`` where that is given too.
        figure: a number for every unit.
        level: whose units, the leaves where it is None; or ``areas``.
        areas: what the rule decides for, in the place of units of a level: sums of leaves.
        columns: exact and public numbers by name, (units,) or one for all, such as prices or what was paid before.
        sums: names for sums of cells.
        floor: the least that an eligible unit is paid from the fund.
        ceiling: the most that a unit is paid from the fund.

    Source: the rules of Pujol and others, "Fair Decision Making Using Privacy-Protected Data" (2020); hold harmless
    provisions as in Steed and others, "Policy Impacts of Statistical Uncertainty and Privacy" (2022).

    Examples:
        >>> rule = td.Rule("high unemployment", eligible="unemployed > 0.1 * (employed + unemployed)")
        >>> rule.label
        'high unemployment'
    """

    name: str
    eligible: str = ""
    amount: str = ""
    figure: str = ""
    level: Level | None = None
    areas: Areas | None = None
    columns: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    sums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    floor: str = ""
    ceiling: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a rule has no name; give it one, under which the study reports it")
        if bool(self.figure) == bool(self.eligible or self.amount):
            raise ConfigError(
                f"rule {shown(self.name)}: give eligible for a yes-or-no decision, amount for a fund, or figure for a "
                "number"
            )
        if (self.floor or self.ceiling) and not self.amount:
            raise ConfigError(f"rule {shown(self.name)}: floor and ceiling are of an amount; give amount too")
        if self.level is not None and self.areas is not None:
            raise ConfigError(f"rule {shown(self.name)} has a level and areas; give one of them")
        twice = sorted(set(self.columns) & set(self.sums))
        if twice:
            raise ConfigError(f"rule {shown(self.name)}: {listed(twice)} is a sum and a column; rename one of them")
        empty = next((name for name, parts in self.sums.items() if not parts), None)
        if empty is not None:
            raise ConfigError(f"rule {shown(self.name)}: sum {shown(empty)} is of nothing; give it cells")
        self._parsed  # noqa: B018 # what is not understood is said now

    @property
    def label(self) -> str:
        """Its name."""
        return self.name

    @property
    def kind(self) -> str:
        """ "fund", "figure" or "decision"."""
        return "fund" if self.amount else "figure" if self.figure else "decision"

    def nodes(self, tree: Tree) -> slice:
        """The nodes of its level in ``tree``; of areas the leaves, of which they are sums."""
        return tree.leaves if self.level is None else tree.level(self.level.number)

    def outcome(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> FloatArray:
        """(..., units): 1 or 0, the share of the fund, or the figure. What is no number, such as a quotient with a base
        of 0, counts as 0.

        Args:
            values: (..., cells, nodes) counts, true or estimated.
            cells: the names of the cells.
            tree: of the units.
        """
        known = self.known(values, cells, tree)
        if self.figure:
            return self._numbers("figure", known)
        units = next(iter(known.values())).shape
        chosen = np.broadcast_to(self._parsed["eligible"].of(known) > 0 if self.eligible else True, units)
        if not self.amount:
            return chosen.astype(np.float64)
        asked = np.maximum(np.where(chosen, self._numbers("amount", known), 0.0), 0.0)
        if not (self.floor or self.ceiling):
            return _shares(asked, chosen)
        low = np.where(chosen, self._numbers("floor", known), 0.0) if self.floor else np.zeros(units)
        high = self._numbers("ceiling", known, infinite=np.inf) if self.ceiling else np.full(units, np.inf)
        return _between(asked, low, high, self.total)

    @property
    def total(self) -> float:
        """What a fund with a floor or a ceiling pays out, in the currency of these: its column "total"."""
        if "total" not in self.columns:
            raise ConfigError(
                f"rule {shown(self.name)} has a floor or a ceiling; it needs a column 'total', what is paid out"
            )
        return float(np.asarray(self.columns["total"]).reshape(-1)[0])

    def known(self, values: FloatArray, cells: Sequence[str], tree: Tree) -> dict[str, FloatArray]:
        """The names that its expressions may use: cells, sums and columns, (..., units) each.

        Args:
            values: (..., cells, nodes) counts, true or estimated.
            cells: the names of the cells.
            tree: of the units.
        """
        units = values[..., self.nodes(tree)]
        if self.areas is not None:
            units = self.areas.sums(units)
        known = {cell: units[..., k, :] for k, cell in enumerate(cells)}
        for name, parts in self.sums.items():
            if name in known:
                raise ConfigError(
                    f"rule {shown(self.name)}: sum {shown(name)} is called as a cell is; give it another name"
                )
            unknown = [part for part in parts if part not in known]
            if unknown:
                raise ConfigError(
                    f"rule {shown(self.name)}: sum {shown(name)} names {shown(unknown[0])}; there are {listed(cells)}"
                )
            known[name] = np.sum([known[part] for part in parts], axis=0)
        columns = {name: np.asarray(column, dtype=np.float64) for name, column in self.columns.items()}
        n_units = units.shape[-1]
        for name, column in columns.items():
            if column.shape not in ((n_units,), (1,), ()):
                raise ConfigError(
                    f"rule {shown(self.name)}: column {shown(name)} has {column.size:,} numbers for {n_units:,} units; "
                    "give one for each, or one for all"
                )
        return known | columns

    def _numbers(self, name: str, known: Mapping[str, FloatArray], infinite: float = 0.0) -> FloatArray:
        """The values (..., units) of its expression ``name``, with 0 for NaN, and ``infinite`` where they are that."""
        return np.nan_to_num(self._parsed[name].of(known), nan=0.0, posinf=infinite, neginf=0.0)

    @cached_property
    def _parsed(self) -> dict[str, Expression]:
        texts = {name: getattr(self, name) for name in ("eligible", "amount", "figure", "floor", "ceiling")}
        return {name: Expression.parse(text) for name, text in texts.items() if text}


def _shares(asked: FloatArray, chosen: npt.NDArray[np.bool_]) -> FloatArray:
    """``asked`` (..., units) divided by their sum; where that is 0 equal shares of the ``chosen`` units, if there are
    any."""
    weights = np.where(asked.any(axis=-1, keepdims=True), asked, chosen)
    total = weights.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(weights, total, out=np.zeros_like(asked), where=total > 0))


def _between(asked: FloatArray, low: FloatArray, high: FloatArray, total: float) -> FloatArray:
    """Shares of ``total``: min(max(low, lambda asked), high), lambda by bisection so that they add up to 1.

    Where the floors alone are more than ``total`` they are cut in proportion; where the ceilings alone are less, what
    is left is not paid, and the shares add up to less than 1.
    """

    def paid(rate: FloatArray) -> FloatArray:
        return np.minimum(np.maximum(low, rate * asked), np.maximum(low, high))

    least = low.sum(axis=-1, keepdims=True)
    start = np.divide(
        total, asked.sum(axis=-1, keepdims=True), out=np.zeros_like(least), where=asked.any(axis=-1, keepdims=True)
    )
    below, above = np.zeros_like(least), np.maximum(start, 1e-300)
    for _ in range(_STEPS):  # a rate that pays all, where there is one
        short = (paid(above).sum(axis=-1, keepdims=True) < total) & (above < 1e290)
        if not short.any():
            break
        above = np.where(short, 2.0 * above, above)
    for _ in range(_STEPS):
        middle = (below + above) / 2.0
        enough = paid(middle).sum(axis=-1, keepdims=True) >= total
        below, above = np.where(enough, below, middle), np.where(enough, middle, above)
        if (above - below <= 1e-15 * above).all():
            break
    over = least > total
    return np.asarray(np.where(over, low / np.where(least > 0, least, 1.0), paid(above) / total))
