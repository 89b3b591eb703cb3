"""The motivating violation, loss against location at the textbook scale; and how a location-dependent scale fails."""

from __future__ import annotations

import numpy as np
from common import options, print_table, save
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import brentq

from topdown.noise import TruncatedLaplace, adjacent_half_line_scale, half_line_delta, half_line_scale, privacy_loss

FloatArray = NDArray[np.float64]


def pair_loss(location: FloatArray, scale: float, sensitivity: float) -> FloatArray:
    """The largest log ratio of the half-line law at ``location`` to the one a sensitivity further in.

    With one scale it is reached at the location itself (Formulae 22 to 24).
    """
    here = TruncatedLaplace(location, scale, 0.0, None)
    there = TruncatedLaplace(location + sensitivity, scale, 0.0, None)
    loss: FloatArray = np.asarray(here.logpdf(location)) - np.asarray(there.logpdf(location))
    return loss


def log_ratio(output: FloatArray, location: float, other: float, epsilon: float, sensitivity: float) -> FloatArray:
    """The log ratio at ``output`` of two laws with location-dependent scales, ``location`` to ``other``."""
    laws = [TruncatedLaplace(s, float(half_line_scale(s, epsilon, sensitivity)), 0.0, None) for s in (location, other)]
    ratio: FloatArray = np.asarray(laws[0].logpdf(output)) - np.asarray(laws[1].logpdf(output))
    return ratio


def first_failure(epsilon: float, sensitivity: float) -> float:
    """The output, in units of sensitivity/epsilon from the border, beyond which the metric guarantee breaks.

    The pair that breaks first is the border and a location right beside it.
    """
    unit = sensitivity / epsilon
    step = 1e-5 * unit

    def excess(z: float) -> float:
        return float(log_ratio(np.array(z * unit), 0.0, step, epsilon, sensitivity)) / step - 1.0 / unit

    return float(brentq(excess, 1.0, 60.0))


def main() -> None:
    arguments = options(__doc__, (0.1, 0.5, 1.0, 2.0, 4.0))
    d = arguments.sensitivity
    rows = []
    for epsilon in arguments.epsilons:
        textbook = d / epsilon
        constant = float(adjacent_half_line_scale(epsilon, d))
        at_border = float(pair_loss(np.zeros(1), textbook, d)[0])
        costs = (
            at_border,
            float(np.log(2 * np.exp(epsilon) - 1)),
            constant,
            float(privacy_loss(constant, d, 0.0, None)),
        )
        dependent = (float(half_line_scale(0.0, epsilon, d)), first_failure(epsilon, d), half_line_delta(epsilon))
        rows.append((epsilon, *costs, *dependent))
    titles = ("epsilon", "loss at the border, textbook scale", "ln(2 e^eps - 1)", "constant scale", "its loss")
    print_table((*titles, "Formula 32", "breaks at (in D/eps)", "delta that remains"), rows)

    figure = Figure(figsize=(9, 3.0))
    left, right = figure.subplots(1, 2)
    locations = np.linspace(0.0, 8.0, 200) * d
    for k, epsilon in enumerate(arguments.epsilons):
        if epsilon < 0.5 or epsilon > 2.0:
            continue
        left.plot(
            locations / d, pair_loss(locations, d / epsilon, d) / epsilon, color=f"C{k}", label=f"epsilon {epsilon:g}"
        )
        constant = float(adjacent_half_line_scale(epsilon, d))
        left.plot(locations / d, pair_loss(locations, constant, d) / epsilon, "--", color=f"C{k}")
        outputs = np.linspace(0.0, 25.0, 400) * d / epsilon
        worst = np.abs(log_ratio(outputs, 0.0, d, epsilon, d)) / epsilon
        right.plot(outputs * epsilon / d, worst, color=f"C{k}", label=f"epsilon {epsilon:g}")
    for axis in (left, right):
        axis.axhline(1.0, color="0.4", linewidth=0.8)
        axis.set_ylabel("loss / epsilon")
        axis.legend(fontsize=7)
    left.set(xlabel="location, in sensitivities from the border", title="one scale: textbook,\nand constant (dashed)")
    right.set(
        xlabel="output, in sensitivity/epsilon", title="location-dependent scale:\nborder against one sensitivity in"
    )
    save(figure, arguments.figures, "bounded_croft_violation")


if __name__ == "__main__":
    main()
