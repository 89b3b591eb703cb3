"""Table 2 as a function: the scale for every class of constraints, and what guarantee it really has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topdown.noise import adjacent_half_line_scale, half_line_scale, uniform_scale
from topdown.research.bounded.constraints import Constraints, forbidden_spans


@dataclass(frozen=True)
class Scaling:
    """The paper's scale for one class of constraints, and the smallest constant one for adjacent pairs alone.

    ``pure``: whether the paper's scale is epsilon-differentially private. ``metric``: whether it keeps
    epsilon |s - s'|/sensitivity between any two locations.
    """

    constraints: str
    formula: str
    scale: float
    pure: bool
    metric: bool
    adjacent: float


def scaling(
    constraints: Constraints, epsilon: float, sensitivity: float = 1.0, *, location: float | None = None
) -> Scaling:
    """The scale of the normalised Laplace law on what ``constraints`` leave, by their class.

    One infinite constraint: the location-dependent scale of Formulae 32 and 33 at ``location`` (by default at the
    border), which is not pure. Finite constraints: the smallest uniform scale of Formulae 35 and 37. Any other set:
    2 sensitivity/epsilon (Formula 38, Corollary 1). Raises ConfigError as `uniform_scale` and `half_line_scale` do.
    """
    spans = forbidden_spans(constraints)
    infinite = [span for span in spans if math.isinf(span[0]) or math.isinf(span[1])]
    if not spans:
        plain = sensitivity / epsilon
        return Scaling("none", "sensitivity/epsilon", plain, True, True, plain)
    adjacent = uniform_scale(spans, epsilon, sensitivity, guarantee="adjacent")
    uniform = uniform_scale(spans, epsilon, sensitivity)
    if len(infinite) == len(spans) == 1:
        border = spans[0][1] if math.isinf(spans[0][0]) else spans[0][0]
        distance = abs((border if location is None else location) - border)
        scale = float(half_line_scale(distance, epsilon, sensitivity))
        return Scaling(
            "one infinite", "32, 33", scale, False, False, float(adjacent_half_line_scale(epsilon, sensitivity))
        )
    if not infinite:
        kind = "one finite" if len(spans) == 1 else "several finite"
        return Scaling(kind, "35, 37", uniform, True, True, adjacent)
    return Scaling("arbitrary", "38", uniform, True, True, adjacent)
