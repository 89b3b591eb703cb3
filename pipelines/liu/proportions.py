"""Study 2: four proportions, released by re-scaling, by all-but-one and by a universal histogram.

The source leaves open the proportions and the grids; here they are 0.05, 0.15, 0.3 and 0.5. The scale is its own,
1/(n epsilon) for proportions with a fixed public n. Bias, RMSE and coverage of 95 % intervals for the population's
proportions and for their sums by pairs (the supplement's Figures S1 and S2), of one release and of five, each for a
fifth of epsilon, that are combined; beside them the sample itself, which is not sanitised. The universal histogram also
by another grouping of the four cells, and with its noise unbounded until its layers are consistent.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable

import numpy as np
from common import COLOURS, MECHANISMS, parser, print_table, save
from matplotlib.figure import Figure
from numpy.typing import NDArray
from synthesis import combine, nonnegative_histogram, rescaled

from topdown.noise import (
    BoundaryInflatedLaplace,
    Laplace,
    SeededSource,
    Source,
    TruncatedLaplace,
    calibrate,
    privacy_loss,
    uncorrected_scale,
)

FloatArray = NDArray[np.float64]
Release = Callable[[FloatArray, float, float, str, Source], FloatArray]

PROPORTIONS = np.array([0.05, 0.15, 0.3, 0.5])


def bounded(values: FloatArray, sensitivity: float, epsilon: float, mechanism: str, source: Source) -> FloatArray:
    """``values`` with noise that keeps them in [0, 1]."""
    scale = float(uncorrected_scale(epsilon, sensitivity))
    if mechanism == "boundary-inflated":
        return np.asarray(BoundaryInflatedLaplace(values, scale, 0.0, 1.0).sample(None, source))
    if mechanism == "truncated, true epsilon":
        scale = float(calibrate(epsilon, sensitivity, 0.0, 1.0))
    return np.asarray(TruncatedLaplace(values, scale, 0.0, 1.0).sample(None, source))


def by_rescaling(p: FloatArray, sensitivity: float, epsilon: float, mechanism: str, source: Source) -> FloatArray:
    """All four sanitised, divided by their sum."""
    return rescaled(bounded(p, sensitivity, epsilon, mechanism, source))


def all_but_one(p: FloatArray, sensitivity: float, epsilon: float, mechanism: str, source: Source) -> FloatArray:
    """Three sanitised, the last one what is left of 1, at least 0."""
    three = bounded(p[..., :-1], sensitivity, epsilon, mechanism, source)
    rest = np.maximum(1.0 - three.sum(axis=-1, keepdims=True), 0.0)
    return np.concatenate([three, rest], axis=-1)


def by_histogram(p: FloatArray, sensitivity: float, epsilon: float, mechanism: str, source: Source) -> FloatArray:
    """Two layers of a binary tree sanitised, each for half of epsilon, made consistent."""
    pairs = p.reshape(*p.shape[:-1], 2, 2).sum(axis=-1)
    layers = [bounded(layer, sensitivity, epsilon / 2, mechanism, source) for layer in (pairs, p)]
    return nonnegative_histogram(layers)


SECOND = np.array([0, 2, 1, 3])
"""The cells in the order of the second grouping: the first pair are the first and the third."""


def by_second_grouping(p: FloatArray, sensitivity: float, epsilon: float, mechanism: str, source: Source) -> FloatArray:
    """The universal histogram of the cells in another order."""
    return by_histogram(p[..., SECOND], sensitivity, epsilon, mechanism, source)[..., np.argsort(SECOND)]


def bounded_at_the_end(p: FloatArray, sensitivity: float, epsilon: float, mechanism: str, source: Source) -> FloatArray:
    """The universal histogram with noise without bounds, made consistent, and only then bounded."""
    pairs = p.reshape(*p.shape[:-1], 2, 2).sum(axis=-1)
    law = Laplace(2 * sensitivity / epsilon)
    return nonnegative_histogram([layer + law.sample(layer.shape, source) for layer in (pairs, p)])


def not_sanitized(p: FloatArray, sensitivity: float, epsilon: float, mechanism: str, source: Source) -> FloatArray:
    """The sample's own proportions: what no protection would give."""
    return p


RELEASES: dict[str, Release] = {
    "re-scaling": by_rescaling,
    "all-but-one": all_but_one,
    "universal histogram": by_histogram,
    "second grouping": by_second_grouping,
    "bounded at the end": bounded_at_the_end,
    "not sanitised": not_sanitized,
}
UNBOUNDED = ("bounded at the end", "not sanitised")
"""Releases that draw no bounded noise: the mechanism makes no difference to them."""

PAIRS = np.array([[float(k in pair) for k in range(4)] for pair in itertools.combinations(range(4), 2)])
"""Sums of two cells, a row for each."""


def true_epsilon(n: int, epsilon: float, mechanism: str, release: str) -> float:
    """What one release truly costs: one record is in one of the cells of a layer."""
    if release == "not sanitised":
        return math.inf
    if mechanism != "truncated" or release in UNBOUNDED:
        return epsilon
    layers = 2 if release in ("universal histogram", "second grouping") else 1
    scale = uncorrected_scale(epsilon / layers, 1.0 / n)
    return layers * float(privacy_loss(scale, 1.0 / n, 0.0, 1.0))


def study(
    n: int,
    epsilon: float,
    release: str,
    mechanism: str,
    syntheses: int,
    repeats: int,
    seed: int,
    sums: FloatArray | None = None,
) -> dict[str, FloatArray]:
    """Bias, RMSE and coverage of every cell, or of the ``sums`` (sums x cells), over ``repeats`` samples of n
    records."""
    rng = np.random.default_rng([seed, n])
    samples = rng.multinomial(n, PROPORTIONS, size=repeats) / n
    source = SeededSource((seed, n, round(1000 * epsilon), release, mechanism, syntheses))
    many = np.repeat(samples[:, None, :], syntheses, axis=1)
    released = RELEASES[release](many, 1.0 / n, epsilon / syntheses, mechanism, source)
    truth = PROPORTIONS
    if sums is not None:
        released, truth = released @ sums.T, sums @ PROPORTIONS
    spread = released * (1.0 - released) / n
    if syntheses == 1:
        estimate = released[:, 0]
        reach = 1.96 * np.sqrt(np.maximum(spread[:, 0], 0.0))
        low, high = estimate - reach, estimate + reach
    else:
        combined = combine(np.moveaxis(released, 1, -1), np.moveaxis(np.maximum(spread, 0.0), 1, -1))
        estimate, low, high = combined.estimate, combined.low, combined.high
    error = estimate - truth
    return {
        "bias": error.mean(axis=0),
        "rmse": np.sqrt((error**2).mean(axis=0)),
        "coverage": ((low <= truth) & (high >= truth)).mean(axis=0),
    }


def _summary(found: dict[str, FloatArray]) -> tuple[float, ...]:
    bias, rmse, coverage = (found[name] for name in ("bias", "rmse", "coverage"))
    worst = (np.abs(bias).max(), np.sqrt((rmse**2).mean()), rmse[-1])
    return tuple(float(x) for x in (*worst, coverage.min(), coverage.mean(), coverage[-1]))


def main() -> None:
    options = parser(__doc__, 2000, (40, 100, 200, 500, 1000))
    options.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.5, 1.0])
    options.add_argument("--syntheses", type=int, default=5, help="m of the multiple synthesis")
    arguments = options.parse_args()
    for sums, what, name in ((None, "cells", "bounded_liu_proportions"), (PAIRS, "sums of pairs", "bounded_liu_pairs")):
        _redo(arguments, sums, what, name)


def _redo(arguments: argparse.Namespace, sums: FloatArray | None, what: str, figure_name: str) -> None:
    """The table and the figure of the cells, or of sums of them."""
    print(f"\n{what}")
    results: dict[tuple[str, int, float, str, int], dict[str, FloatArray]] = {}
    rows = []
    for release in RELEASES:
        for mechanism in _mechanisms(release):
            for epsilon in arguments.epsilons:
                for n in arguments.sizes:
                    for m in (1, arguments.syntheses):
                        found = study(n, epsilon, release, mechanism, m, arguments.repeats, arguments.seed, sums)
                        results[release, n, epsilon, mechanism, m] = found
                        cost = m * true_epsilon(n, epsilon / m, mechanism, release)
                        rows.append((release, mechanism, epsilon, n, m, cost, *_summary(found)))
    titles = ("release", "mechanism", "epsilon", "n", "m", "true epsilon", "largest |bias|", "RMSE", "RMSE of the last")
    print_table((*titles, "least coverage", "mean coverage", "of the last"), rows)
    figure = Figure(figsize=(13, 6.5))
    axes = figure.subplots(3, len(RELEASES), squeeze=False, sharex=True, sharey="row")
    epsilon = min(arguments.epsilons)
    for column, release in enumerate(RELEASES):
        for row, (name, title) in enumerate((("bias", "largest |bias|"), ("rmse", "RMSE"), ("coverage", "coverage"))):
            axis = axes[row][column]
            for mechanism in _mechanisms(release):
                for m, style in ((1, "-o"), (arguments.syntheses, "--s")):
                    values = [results[release, n, epsilon, mechanism, m][name] for n in arguments.sizes]
                    line = [np.abs(v).max() if name == "bias" else v.mean() for v in values]
                    label = f"{mechanism}, m = {m}"
                    axis.plot(arguments.sizes, line, style, color=COLOURS[mechanism], markersize=3, label=label)
            axis.set(xscale="log", yscale="linear" if name == "coverage" else "log")
            if column == 0:
                axis.set_ylabel(title)
            if row == 0:
                axis.set_title(f"{release}, epsilon {epsilon:g}", fontsize=8)
            if name == "coverage":
                axis.axhline(0.95, color="0.4", linewidth=0.8)
                axis.set_xlabel("records")
                axis.set_xticks(arguments.sizes, [str(n) for n in arguments.sizes])
                axis.set_xticks([], minor=True)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 0.02))
    save(figure, arguments.figures, figure_name)


def _mechanisms(release: str) -> tuple[str, ...]:
    return ("boundary-inflated",) if release in UNBOUNDED else MECHANISMS


if __name__ == "__main__":
    main()
