"""The statements of a release on its margins of error: how they were made, and their coverage."""

from __future__ import annotations

from typing import Any

from topdown.uncertainty.interval import ALPHA, CAP_PART, SCALE, SPIKE, TAPER
from topdown.uncertainty.intervals import CAPPED_BELOW

OF_CELLS = "up to three largest terms exactly, the rest by variance and fourth cumulant"
OF_QUERIES = (
    "as many of its largest terms exactly as leave a smooth rest of little excess, the rest by variance and fourth "
    "cumulant; normal where neither steps nor excess are left"
)
"""How the law of the errors is computed where the cells alone were measured, and where several queries were."""


def describe_margins(
    confidence: float, reason: str | None = None, law: str = OF_CELLS, where: str = ""
) -> dict[str, Any]:
    """The manifest's entry: ``confidence``, a ``statement``, and the ``rule`` in steps; for a release without margins
    the ``reason``. ``law``: how the law of the errors is computed; ``where``: a sentence on which counts have margins,
    where not all do.
    """
    if reason is not None:
        return {"confidence": None, "statement": f"This release has no margins of error: {reason}.", "rule": []}
    return {"confidence": confidence, "statement": statement(confidence) + where, "rule": list(rule(confidence, law))}


def statement(confidence: float) -> str:
    """The coverage of the intervals, each by itself."""
    return (
        "For every unit and every cell or answer with an interval, and at every true count, the interval from lower "
        f"to upper covers the true count with probability {confidence:.6g} at least, up to the approximation of the "
        "law of the errors (miss rates within .001 of nominal). Each interval does so by itself, not all of them "
        "together. Among units that are selected because their numbers are small or large it may cover less often. Of "
        "the units whose lower is above 0, up to about "
        f"{100.0 * (1.0 - confidence):.6g} % have a true count of 0 (measured, not proven for units whose errors "
        "depend on each other). Margins of units must not be added up; topdown query gives those of sums, "
        "differences and shares."
    )


def rule(confidence: float, law: str = OF_CELLS) -> tuple[str, ...]:
    """How the intervals are made, step by step; ``law``: how the law of the errors is computed."""
    alpha = 1.0 - confidence
    return (
        "The estimate x by least squares over all levels, less the true count, is a fixed combination of the noise; "
        f"its law is computed: {law}. q(p): its upper p-quantile; sd: its standard deviation.",
        f"A truth t is kept where t - q(s a) <= x <= t + q((1 - s) a), a = {alpha:.6g}; s depends on t / sd alone: it "
        f"gives normal errors of deviation 1 the acceptance regions of least probability at a = {ALPHA:g}, under a "
        f"prior of {SPIKE:g} at 0 and a half-Cauchy law of scale {SCALE:g} sd else; from {TAPER[0]:g} to {TAPER[1]:g} "
        "sd it goes to 1/2.",
        f"Where the parent's sd is below {CAPPED_BELOW:g} of the unit's, upper is at most the parent's x + "
        f"q(a {CAP_PART:g}), and the step before has the other {1 - CAP_PART:g} of a; an exact parent costs nothing.",
        "lower is 0 unless a truth of 0 is rejected by the procedure of Benjamini and Hochberg at a, within level and "
        "cell.",
        "Both are rounded inwards to whole numbers, and widened to hold the released count.",
    )
