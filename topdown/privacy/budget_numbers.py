"""The numbers of a budget, as exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, TypeAlias

from topdown.errors import BudgetError
from topdown.noise import ExactNumber, exact_fraction
from topdown.wording import figure, shown

Number: TypeAlias = ExactNumber

# About 330 digits, as many as the smallest float needs.
_MOST_BITS = 1100


def exact_number(value: Any, what: str) -> Fraction:
    """``value`` as an exact fraction; a float is taken by its shortest decimal (0.1 is 1/10).

    Raises BudgetError, naming ``what`` and the value, for anything that is not a finite number, and for one of so many
    digits that sums and products of such numbers could no longer be written out.
    """
    try:
        number = exact_fraction(value)
    except (ValueError, TypeError, ArithmeticError):
        comma = isinstance(value, str) and value.replace(",", "", 1).isdigit() and "," in value
        hint = "; decimals have a point: 1.5" if comma else ""
        raise BudgetError(f'{what} is {_shown(value)}; give a finite number or a fraction as "1/3"{hint}') from None
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _MOST_BITS:
        raise BudgetError(f"{what} is {_shown(value)}; give a number of at most 300 digits")
    return number


def positive_number(value: Any, what: str) -> Fraction:
    """`exact_number` of a ``value`` above 0. Raises BudgetError for any other."""
    number = exact_number(value, what)
    if number <= 0:
        raise BudgetError(f"{what} is {figure(value)}; give a number above 0")
    return number


def float_or_nan(value: Any) -> float:
    """``value`` as a float, nan where it is none or beyond the range of doubles."""
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return math.nan


def _shown(value: object) -> str:
    return "a whole number beyond 300 digits" if isinstance(value, int) and abs(value) >> _MOST_BITS else shown(value)
