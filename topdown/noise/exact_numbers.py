"""Exact parameters and enclosures: decimal input as fractions, and exp(-x) between two integers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from topdown.errors import ConfigError
from topdown.wording import shown

ExactNumber: TypeAlias = int | float | Fraction | Decimal | str
"""What `exact_fraction` reads: a number, or text such as "0.1", "1/3" and "1e-3"."""

LARGEST_WHOLE = 2**53
"""The largest value of counts, of their noisy values and of their bounds: up to here float64 represents every whole
number.
"""

# A larger decimal exponent would be expanded into an integer of as many digits.
_LARGEST_EXPONENT = 5000


def exact_fraction(value: ExactNumber) -> Fraction:
    """The exact number that ``value`` stands for.

    An int, Fraction or Decimal as it is; a float by its shortest decimal representation (0.1 is 1/10, not
    the nearest binary fraction); a string "1/3", "0.25" or "1e-3". numpy scalars count as int and float.

    Args:
        value: an int, a float, a Fraction, a Decimal or a string.

    Raises ConfigError for anything that is not a finite number, for a bool, and for a decimal exponent beyond
    5000.

    Examples:
        >>> td.noise.exact_fraction("0.1"), td.noise.exact_fraction("1/3")
        (Fraction(1, 10), Fraction(1, 3))
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return Fraction(int(value))
    if not isinstance(value, float | np.floating | Decimal | str):
        raise ConfigError(f'{shown(value)} is not a number: give an int, a float, a Fraction or a text such as "1/3"')
    # str() of a numpy float is the shortest decimal of its own width: float32(0.1) is 1/10 as well.
    text = str(value).strip()
    try:
        if not text.isascii():  # Python also reads digits of other scripts
            raise ValueError
        exponent = int(text.lower().partition("e")[2] or "0")
        if abs(exponent) > _LARGEST_EXPONENT:
            raise ConfigError(f"{shown(value)} has a decimal exponent beyond {_LARGEST_EXPONENT}: rescale it")
        return Fraction(text)
    except ZeroDivisionError:
        raise ConfigError(f"{shown(value)} divides by zero") from None
    except ConfigError:
        raise
    except ValueError:
        raise ConfigError(f'{shown(value)} is not a finite number: give one such as 0.1 or "1/3"') from None


def rounds_whole_numbers(values: object, array: np.ndarray[tuple[int, ...], np.dtype[Any]]) -> bool:
    """Whether ``array``, which numpy made of ``values``, has lost digits of a whole number beyond 2^53: of a sequence
    in which another number is a float.
    """
    if array.dtype.kind != "f" or isinstance(values, np.ndarray) or not (np.abs(array) >= LARGEST_WHOLE).any():
        return False
    given = np.array(values, dtype=object)
    return any(
        isinstance(one, int | np.integer) and int(one) != kept  # in Python's numbers, which are compared exactly
        for one, kept in zip(given.ravel().tolist(), array.ravel().tolist(), strict=True)
    )


def in_decimals(value: Fraction, longest: int | None = None) -> str:
    """The shortest faithful form of ``value``: 0.3 rather than 3/10, but 1/3 rather than a cut decimal, and a fraction
    where the decimal is longer than ``longest``."""
    decimal = format((Decimal(value.numerator) / Decimal(value.denominator)).normalize(), "f")
    too_long = longest is not None and len(decimal) > longest
    return str(value) if too_long or Fraction(decimal) != value else decimal


def enclose_exp(x: Fraction, precision: int) -> tuple[int, int]:
    """Integers (lower, upper) with lower <= 2^precision exp(-x) <= upper, for rational x >= 0.

    Every rounding is directed: e^y, y = x/2^s < 2^-8, is summed by its Taylor series (all terms are positive, and those
    left out add up to less than one unit), inverted, and squared s times. The enclosure is a few units wide for every
    x.
    """
    if x == 0:
        return 1 << precision, 1 << precision
    if x > precision:
        return 0, 1  # exp(-x) < 2^-x
    halvings = max(0, (x.numerator // x.denominator).bit_length() + 8)
    working = precision + halvings + 16
    one = 1 << working
    y_lower = (x.numerator << (working - halvings)) // x.denominator
    y_upper = y_lower + 1
    sum_lower = term_lower = sum_upper = term_upper = one
    i = 0
    while term_upper > 1:
        i += 1
        term_lower = (term_lower * y_lower >> working) // i
        term_upper = -((-term_upper * y_upper >> working) // i)
        sum_lower += term_lower
        sum_upper += term_upper
    # The terms left out: the next is less than y < 2^-8 times the last, which is at most 1 unit.
    sum_upper += 1
    lower = (one << working) // sum_upper
    upper = -((-one << working) // sum_lower)
    for _ in range(halvings):
        lower = lower * lower >> working
        upper = -(-upper * upper >> working)
    shift = working - precision
    return lower >> shift, -(-upper >> shift)
