"""Formats numbers and counted things for readers."""

from __future__ import annotations

import math


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
    return _with_plus(value, number(value))


def within(value: float | None, standard_error: float | None) -> str:
    """``value`` with half of its 95 % interval, to the interval's second digit: "12.30 ± 0.42"; alone where it has no
    simulation error."""
    if value is None or value != value or not standard_error or standard_error != standard_error:
        return number(value)
    half = 1.96 * standard_error
    if half < 1e-6:  # the rounding error of an exact number
        return number(value if abs(value) > 1e-6 else 0.0)
    # The summary has 4 digits of every number.
    known = 3 - math.floor(math.log10(abs(value))) if value else 6
    digits = max(min(1 - math.floor(math.log10(half)), known, 6), 0)
    shown = f"{value:,.{digits}f}"
    if not shown.strip("-0."):  # no minus before what is shown as 0
        shown = shown.removeprefix("-")
    return f"{shown} ± {half:,.{digits}f}".replace("-", "−")


def signed_within(value: float | None, standard_error: float | None) -> str:
    """`within`, with a plus sign where ``value`` is positive."""
    return _with_plus(value, within(value, standard_error))


def _with_plus(value: float | None, text: str) -> str:
    """``text`` of ``value``, with a plus sign where that is positive, and not shown as 0."""
    shown_as_0 = not text.partition(" ")[0].strip("0.")
    return text if value is None or not value > 0 or shown_as_0 else f"+{text}"


def percent_within(share: float | None, standard_error: float | None) -> str:
    """``share`` of 1 in percent, with half of its 95 % interval."""
    if share is None or share != share or not standard_error or 0 < share < 1e-4:
        return percent(share)
    return f"{within(100.0 * share, 100.0 * standard_error)} %"


def distance(low: float | None, high: float | None) -> str:
    """The ends of the interval of a distance: "3.81 to 4.15"; "at most 0.12" where it may be 0."""
    if low is None or high is None:
        return number(None)
    return f"{number(low)} to {number(high)}" if low > 0 else f"at most {number(high)}"


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
    return f"1 {one}" if value == 1 else f"{value:,} {many_of(one)}"


def many_of(one: str) -> str:
    """The plural of what is called ``one``: "counties"."""
    if one.endswith("s"):  # "fips", or a plural
        return one
    return f"{one[:-1]}ies" if one.endswith("y") and one[-2:-1] not in "aeiou" else f"{one}s"


def shortened(text: str) -> str:
    """``text`` without its middle where it is longer than 60 characters; its beginning and its end are kept."""
    return text if len(text) <= 60 else f"{text[:39].rstrip()}…{text[-20:].lstrip()}"


def unbroken(text: str) -> str:
    """``text`` in which no line ends between a number and its percent sign or its interval."""
    return text.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")
