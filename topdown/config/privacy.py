"""[privacy], [noise] and [ledger]: the budget, the noise, and the ledger in which the budget is reserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, Strict, StrictInt, model_validator

from topdown.config.toml_section import Exact, ExactOfSeveral, TomlSection
from topdown.errors import BudgetError
from topdown.privacy.bounds import CALIBRATED, NONE
from topdown.privacy.plan import MEASURE, Plan
from topdown.privacy.presets import preset
from topdown.wording import listed, shown

_OF_PRESETS = ("mechanism", "epsilon", "rho", "delta", "shares", "neighbours", "unit", "grid_bits")


class Privacy(TomlSection):
    """Mechanism and budget. Numbers are read exactly as written; a fraction is written as "1/3"."""

    mechanism: str = "geometric"
    """The noise: "geometric" or "laplace" for a budget epsilon, "discrete-gaussian" or "gaussian" for a budget rho."""
    epsilon: Exact | None = None
    """The epsilon of pure differential privacy, for the whole release. For a Gaussian mechanism, with delta: the total
    (epsilon, delta).
    """
    rho: Exact | None = None
    """The rho of zero-concentrated differential privacy, for the whole release."""
    delta: Exact | None = None
    """The delta of the (epsilon, delta) statement of a Gaussian mechanism; 1e-10 where it is left out."""
    shares: dict[str, ExactOfSeveral | dict[str, Exact]] | None = None
    """The part of the budget of every level, or of every query of a level; they add up to 1. Equal parts where it is
    left out."""
    neighbours: str = "add-remove"
    """Which tables are neighbours, between which privacy is defined: those that differ by one unit more or less
    ("add-remove"), or by the values of one unit ("substitute").
    """
    invariants: list[str] | dict[str, list[str]] = Field(default_factory=list)
    """Levels, or queries by level, that are published exactly, without protection."""
    unit: str = "person"
    """The unit of privacy, in words: one of these changes every query by 1."""
    grid_bits: StrictInt = 10
    """The continuous mechanisms draw on a grid of 2^-grid_bits."""
    accept_no_protection: bool = False
    """Release even if the noise of a level is almost always 0, which is refused otherwise."""
    preset: str | None = None
    """A plan that was used in practice, such as "pl94-2020-us", in place of mechanism, budget, shares, neighbours and
    unit.
    """
    only_child: str = MEASURE
    """"measure" measures a unit that is its parent's only child like any other; "move-up" gives its share to the
    parent.
    """

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
        """The plan that this section describes. Raises `BudgetError` if it is not well defined."""
        return Plan(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """The arguments of `topdown.Plan`."""
        return self.model_dump(exclude={"accept_no_protection", "preset"})


_Whole = Annotated[int, BeforeValidator(lambda one: int(one) if isinstance(one, float) and one.is_integer() else one)]
"""A whole number, which may be written as 1e6."""


class NoiseOptions(TomlSection):
    """Whether counts are drawn within bounds: a research method, see docs/bounded_noise.md."""

    bounds: str | dict[str, str] = NONE
    """"none", "boundary-inflated", "truncated" or "normalized", for all levels or by level."""
    upper: _Whole | dict[str, _Whole] | None = None
    """A public number that no count exceeds, for all levels or by level."""
    within: dict[str, list[Annotated[tuple[int | float, int | float], Strict(False)]]] | None = None
    """By level, the public intervals [low, high] in which the counts lie, in place of 0 to upper; inf for no limit."""
    calibration: str = CALIBRATED
    """"true-epsilon" chooses the scale of truncated and normalized noise so that the budget holds; "uncorrected" takes
    the textbook scale, whose privacy loss is larger than the budget, and accounts for that loss.
    """


_ASPECTS = (
    ("mechanism", "epsilon", "rho", "delta"),
    ("shares", "invariants"),
    ("neighbours",),
    ("unit",),
    ("grid_bits",),
    ("only_child",),
)
_SOUND: dict[str, Any] = {"epsilon": 1}
"""A well-defined plan, in which one aspect after the other is replaced."""


def budget_errors(privacy: Privacy, noise: NoiseOptions, levels: Sequence[str] | None) -> list[BudgetError]:
    """All errors of a plan that is not well defined, aspect by aspect; ``levels``: those of the geography. `Plan`
    itself reports only the first.
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
    """The ledger in which the release's budget is reserved before noise is drawn."""

    path: str
    """The ledger's file, which `topdown ledger init` makes."""
    dataset: str
    """The name of the confidential data set in the ledger."""
