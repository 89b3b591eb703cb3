"""[privacy], [noise] and [ledger]: the budget, the noise that it buys, and where it is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, StrictInt, model_validator

from topdown.config.toml_section import Exact, TomlSection
from topdown.errors import BudgetError
from topdown.privacy.bounds import CALIBRATED, NONE
from topdown.privacy.plan import MEASURE, Plan
from topdown.privacy.presets import preset
from topdown.wording import listed, shown

_OF_PRESETS = ("mechanism", "epsilon", "rho", "delta", "shares", "neighbours", "unit", "grid_bits")


class Privacy(TomlSection):
    """Mechanism and budget. Numbers are taken as they are written; fractions are written "1/3"."""

    mechanism: str = "geometric"
    """The noise: "geometric" or "laplace" for a budget epsilon, "discrete-gaussian" or "gaussian" for a budget rho."""
    epsilon: Exact | None = None
    """The budget of pure differential privacy, of the whole release. For a Gaussian mechanism, with delta: the total
    (epsilon, delta)."""
    rho: Exact | None = None
    """The budget of zero-concentrated differential privacy, of the whole release."""
    delta: Exact | None = None
    """The delta of the (epsilon, delta) statement of a Gaussian mechanism; 1e-10 where it is left out."""
    shares: dict[str, Exact | dict[str, Exact]] | None = None
    """The part of the budget of every level, or of every query of a level; they add up to 1. Equal parts where it is
    left out."""
    neighbours: str = "add-remove"
    """Which tables must look alike: those that differ by one unit more or less ("add-remove"), or by one unit that
    moves ("substitute")."""
    invariants: list[str] | dict[str, list[str]] = Field(default_factory=list)
    """Levels, or queries by level, that are published exactly. They are not protected."""
    unit: str = "person"
    """What is protected, in words: one of these changes every query by 1."""
    grid_bits: StrictInt = 10
    """The continuous mechanisms draw on a grid of 2^-grid_bits."""
    accept_no_protection: bool = False
    """Release also where the noise of a level is almost always 0, which is refused otherwise."""
    preset: str | None = None
    """A plan that was used, such as "pl94-2020-us", in place of mechanism, budget, shares, neighbours and unit."""
    only_child: str = MEASURE
    """"move-up" gives the share of a unit that is its parent's only child to the parent."""

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
        return preset(str(self.preset)).plan(levels, invariants=self.invariants, only_child=self.only_child)

    def plan(self) -> Plan:
        """The plan that this section describes. Raises `BudgetError` where it is not well defined."""
        return Plan(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """What `topdown.Plan` is given."""
        return self.model_dump(exclude={"accept_no_protection", "preset"})


class NoiseOptions(TomlSection):
    """Whether counts are drawn within bounds: a research method, see docs/bounded_noise.md."""

    bounds: str | dict[str, str] = NONE
    """"none", "boundary-inflated", "truncated" or "normalized", for all levels or by level."""
    upper: int | dict[str, int] | None = None
    """A public number that no count passes, for all levels or by level."""
    within: dict[str, list[tuple[int | float, int | float]]] | None = None
    """By level the public intervals [low, high] that counts lie in, in place of 0 to upper; inf for no end."""
    calibration: str = CALIBRATED
    """"uncorrected" takes the textbook's scale for truncated and normalized noise, which costs more than the budget
    says, and is charged so."""


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


class LedgerOptions(TomlSection):
    """The ledger in which the release's budget is reserved before the first draw."""

    path: str
    """The ledger's file; `topdown ledger init` makes one."""
    dataset: str
    """The name of the confidential data set in the ledger."""
