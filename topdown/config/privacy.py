"""[privacy], [noise] and [ledger]: the budget, the noise that it buys, and where it is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, StrictInt, model_validator

from topdown.config.section import Exact, Section
from topdown.errors import BudgetError
from topdown.privacy.bounds import CALIBRATED, NONE
from topdown.privacy.plan import MEASURE, Plan
from topdown.privacy.presets import preset
from topdown.wording import listed, shown

_OF_PRESETS = ("mechanism", "epsilon", "rho", "delta", "shares", "neighbours", "unit", "grid_bits")


class Privacy(Section):
    """Mechanism and budget, as in `topdown.Plan`; numbers are taken as they are written, fractions as "1/3".

    ``preset``: a plan that was used, by name (`topdown.preset`), in place of mechanism, budget, shares, neighbours and
    unit. ``only_child``: "move-up" gives the share of a unit that is its parent's only child to the parent.
    ``accept_no_protection``: release also where the noise of a level is next to always 0, which is refused otherwise.
    """

    mechanism: str = "geometric"
    epsilon: Exact | None = None
    rho: Exact | None = None
    delta: Exact | None = None
    shares: dict[str, Exact | dict[str, Exact]] | None = None
    neighbours: str = "add-remove"
    invariants: list[str] | dict[str, list[str]] = Field(default_factory=list)
    unit: str = "person"
    grid_bits: StrictInt = 10
    accept_no_protection: bool = False
    preset: str | None = None
    only_child: str = MEASURE

    @model_validator(mode="after")
    def _one_plan(self) -> Privacy:
        if self.preset is not None:
            preset(self.preset)
            given = [name for name in _OF_PRESETS if getattr(self, name) != type(self).model_fields[name].default]
            if given:
                raise ValueError(
                    f"preset = {shown(self.preset)} has its own {listed(given)}; leave these out, or the preset"
                )
        return self

    def preset_plan(self, levels: Sequence[str]) -> Plan:
        """The preset's plan for ``levels``. Raises `ConfigError` for a level that it does not know."""
        invariants = self.invariants if isinstance(self.invariants, dict) else {}
        return preset(str(self.preset)).plan(levels, invariants=invariants, only_child=self.only_child)

    def plan(self) -> Plan:
        """The plan that this section describes. Raises `BudgetError` where it is not well defined."""
        return Plan(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """What `topdown.Plan` is given."""
        return self.model_dump(exclude={"accept_no_protection", "preset"})


class NoiseOptions(Section):
    """Whether counts are drawn within bounds: ``bounds`` for all levels or by level, ``upper`` bounds that are public.

    ``within``: by level the intervals [low, high] that are public, in the place of 0 to ``upper``; ``inf`` for no end.
    As in `topdown.Plan`: "none", "boundary-inflated", "truncated" or "normalized"; ``calibration`` = "uncorrected"
    takes the textbook scale for the last two, which costs more than the budget says and is charged so.
    """

    bounds: str | dict[str, str] = NONE
    upper: int | dict[str, int] | None = None
    within: dict[str, list[tuple[int | float, int | float]]] | None = None
    calibration: str = CALIBRATED


_ASPECTS = (
    ("mechanism", "epsilon", "rho", "delta"),
    ("shares", "invariants"),
    ("neighbours",),
    ("unit",),
    ("grid_bits",),
    ("only_child",),
)
_SOUND: dict[str, Any] = {"epsilon": 1}
"""A plan that is well defined, in whose stead one aspect after the other is tried."""


def budget_errors(privacy: Privacy, noise: NoiseOptions, levels: Sequence[str] | None) -> list[BudgetError]:
    """All that is wrong with a plan, aspect by aspect, where it is not well defined; ``levels``: those that there are.

    A plan by itself stops at the first.
    """
    settings = privacy.arguments()
    found: list[BudgetError] = []
    for aspect in _ASPECTS:
        chosen = {name: settings[name] for name in aspect}
        try:
            plan = Plan(**({} if "epsilon" in chosen else _SOUND), **chosen)
            if "shares" in chosen and levels is not None:
                plan.check_levels(levels)
        except BudgetError as error:
            found.append(error)
    if not found:
        try:
            Plan(**settings, **noise.model_dump())
        except BudgetError as error:
            found.append(error)
    return found


class LedgerOptions(Section):
    """The ledger in which the release's budget is reserved, and the name of the confidential data set in it."""

    path: str
    dataset: str
