"""The two noise laws of the theory, and the arguments that all theorems share.

``"laplace"`` is the continuous Laplace law of scale b = Delta / epsilon, density exp(-|x| / b) / (2 b).
``"geometric"`` is the double geometric (discrete Laplace) law on the integers, mass (1 - a) / (1 + a) a^|k| with
a = exp(-1 / scale); its scale is 1 / epsilon for counts of sensitivity 1.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any, Literal, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from topdown.errors import ConfigError
from topdown.noise.parameters import LARGEST, SMALLEST
from topdown.wording import shown

NoiseLaw = Literal["laplace", "geometric"]
"""The name of a law: continuous Laplace, or double geometric on the integers."""
Scale = float | Fraction | SupportsFloat


def shaped(flat: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """``flat`` in ``shape``; a number where the shape is ()."""
    result: Any = flat.reshape(shape)[()]
    return result  # type: ignore[no-any-return]


def checked_law(law: str) -> NoiseLaw:
    """The law's name. Raises ConfigError with the two known names for another one."""
    match law:
        case "laplace":
            return "laplace"
        case "geometric":
            return "geometric"
    raise ConfigError(f'noise law {law!r} is not known; use law="laplace" or law="geometric"')


def checked_count(value: SupportsIndex | SupportsFloat, name: str) -> int:
    """``value`` as a whole number of at least 1; ConfigError otherwise."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        try:
            as_float = float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{name} {value!r} is not a number; give a whole number of at least 1") from None
        if not as_float.is_integer():
            raise ConfigError(f"{name} {value!r} is not whole; give a whole number of at least 1") from None
        number = int(as_float)
    if number < 1:
        raise ConfigError(f"{name} {number} is below 1; give a whole number of at least 1")
    return number


def checked_scale(scale: Scale, name: str = "scale") -> float:
    """``scale`` as a positive float whose square is one too; ConfigError otherwise."""
    try:
        value = float(scale)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} {scale!r} is not a number; give a positive number") from None
    except OverflowError:
        value = math.inf
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} {shown(scale)} is not positive and finite; a noise scale is sensitivity / epsilon")
    if not SMALLEST <= value <= LARGEST:
        raise ConfigError(f"{name} {value!r}: give a number between {SMALLEST:g} and {LARGEST:g}")
    return value


def geometric_ratio(scale: Scale) -> float:
    """a = exp(-1 / scale), the ratio of the double geometric law."""
    return math.exp(-1.0 / checked_scale(scale))


def noise_variance(scale: Scale, law: NoiseLaw) -> float:
    """Variance of one draw: 2 scale^2 (Laplace), 2 a / (1 - a)^2 (double geometric).

    Args:
        scale: sensitivity / epsilon, in counts.
        law: "laplace" or "geometric".

    Examples:
        >>> td.theory.noise_variance(10.0, "laplace"), round(td.theory.noise_variance(10.0, "geometric"), 2)
        (200.0, 199.83)
    """
    b = checked_scale(scale)
    if checked_law(law) == "laplace":
        return 2.0 * b * b
    return 2.0 * math.exp(-1.0 / b) / math.expm1(-1.0 / b) ** 2


def noise_mean_abs(scale: Scale, law: NoiseLaw) -> float:
    """Mean absolute value of one draw: scale (Laplace), 2 a / (1 - a^2) (double geometric).

    Args:
        scale: sensitivity / epsilon, in counts.
        law: "laplace" or "geometric".

    Examples:
        >>> td.theory.noise_mean_abs(10.0, "laplace"), round(td.theory.noise_mean_abs(10.0, "geometric"), 3)
        (10.0, 9.983)
    """
    b = checked_scale(scale)
    if checked_law(law) == "laplace":
        return b
    return -2.0 * math.exp(-1.0 / b) / math.expm1(-2.0 / b)
