"""Numbers and counted things as a reader expects them."""

from __future__ import annotations


def number(value: float | None) -> str:
    """``value`` for a reader: about 3 significant digits, thousands apart, a dash where there is none."""
    if value is None or value != value:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace("-", "−")
    if abs(value) < 0.001:
        return f"{value:.1e}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def signed(value: float | None) -> str:
    """``value`` as `number` gives it, with a plus sign where it is positive."""
    return ("+" if value is not None and value > 0 else "") + number(value)


def margin(standard_error: float | None) -> str:
    """Half of a 95 % interval."""
    return number(None if standard_error is None else 1.96 * standard_error)


def percent(share: float | None) -> str:
    """``share`` of 1 in percent, to a hundredth of one."""
    if share is not None and 0 < share < 1e-4:
        return "< 0.01 %"
    return "–" if share is None or share != share else f"{number(round(100.0 * share, 2))} %"


def count(value: int) -> str:
    """A whole number, thousands apart."""
    return f"{value:,}"


def many(value: int, one: str) -> str:
    """``value`` of what is called ``one`` in the singular: "1 county", "3,140 counties"."""
    if value == 1:
        return f"1 {one}"
    ending = "ies" if one.endswith("y") and one[-2:-1] not in "aeiou" else f"{one[-1:]}s"
    return f"{value:,} {one[:-1]}{ending}"
