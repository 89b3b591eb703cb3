"""Study 2: four proportions, released by re-scaling, by all-but-one and by a universal histogram.

``python pipelines/liu/proportions.py`` draws Figures 2 (re-scaling), 3 (re-scaling, five releases combined), 4
(all-but-one), 5 (universal histogram), and the supplement's S1 and S2 (sums of two cells by re-scaling and by the
universal histogram): bias, RMSE and coverage of 95 % intervals against n, a column for every proportion and a row for
every epsilon, beside the sample itself, which is not sanitised. It prints the same numbers, those of the universal
histogram by another grouping of the cells too, and with its noise unbounded until its layers are consistent.

The proportions and the grids of the paper are not at hand; here they are 0.05, 0.15, 0.3 and 0.5. The scale is its own,
1/(n epsilon) for proportions with a fixed public n; of five releases each has a fifth of epsilon.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Sequence

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
"""Sums of two cells, a row for each; the last three are 1 less the first three."""

CELLS = tuple(f"p{k} = {p:g}" for k, p in enumerate(PROPORTIONS, start=1))
SUMS = tuple(f"p1 + p{k} = {PROPORTIONS[0] + PROPORTIONS[k - 1]:g}" for k in (2, 3, 4))
MEASURES = {"bias": "bias", "rmse": "RMSE", "coverage": "coverage"}
Found = dict[tuple[str, str, float, int, int], dict[str, FloatArray]]
"""By release, mechanism, epsilon, n and m: of every measure a number for each cell, or sum."""


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


def main() -> None:
    options = parser(__doc__, 2000, (40, 100, 200, 500, 1000))
    options.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.5, 1.0])
    options.add_argument("--syntheses", type=int, default=5, help="m of the multiple synthesis")
    arguments = options.parse_args()
    several = arguments.syntheses
    cells, sums = _redo(arguments, None, CELLS), _redo(arguments, PAIRS[:3], SUMS)
    for name, found, columns, release, m in (
        ("liu_figure_2", cells, CELLS, "re-scaling", 1),
        ("liu_figure_3", cells, CELLS, "re-scaling", several),
        ("liu_figure_4", cells, CELLS, "all-but-one", 1),
        ("liu_figure_5", cells, CELLS, "universal histogram", 1),
        ("liu_figure_s1", sums, SUMS, "re-scaling", 1),
        ("liu_figure_s2", sums, SUMS, "universal histogram", 1),
    ):
        save(_draw(arguments, found, columns, release, m), arguments.figures, name)


def _redo(arguments: argparse.Namespace, sums: FloatArray | None, columns: Sequence[str]) -> Found:
    """Every setting of the cells, or of sums of them, printed as a table."""
    found: Found = {}
    rows = []
    for release in RELEASES:
        for mechanism in _mechanisms(release):
            for epsilon, n, m in itertools.product(arguments.epsilons, arguments.sizes, (1, arguments.syntheses)):
                one = study(n, epsilon, release, mechanism, m, arguments.repeats, arguments.seed, sums)
                found[release, mechanism, epsilon, n, m] = one
                cost = m * true_epsilon(n, epsilon / m, mechanism, release)
                rows.append((release, mechanism, epsilon, n, m, cost, *np.concatenate([one[k] for k in MEASURES])))
    print()
    titles = [f"{measure} {column.partition(' =')[0]}" for measure in MEASURES.values() for column in columns]
    print_table(("release", "mechanism", "epsilon", "n", "m", "true epsilon", *titles), rows)
    return found


def _draw(arguments: argparse.Namespace, found: Found, columns: Sequence[str], release: str, m: int) -> Figure:
    """Of one release: a row for every measure and epsilon, a column for every cell or sum, n from left to right."""
    grid = list(itertools.product(MEASURES.items(), arguments.epsilons))
    figure = Figure(figsize=(2.1 * len(columns), 1.15 * len(grid)))
    axes = figure.subplots(len(grid), len(columns), squeeze=False, sharex=True, sharey="row")
    lines = [(mechanism, release, COLOURS[mechanism], m) for mechanism in MECHANISMS]
    lines.append(("boundary-inflated", "not sanitised", "black", 1))
    for axis, column in zip(axes[0], columns, strict=True):
        axis.set_title(column, fontsize=8)
    for ((name, title), epsilon), row in zip(grid, axes, strict=True):
        for k, axis in enumerate(row):
            for mechanism, source, colour, releases in lines:
                values = [found[source, mechanism, epsilon, n, releases][name][k] for n in arguments.sizes]
                original = source == "not sanitised"
                axis.plot(
                    arguments.sizes, values, "--" if original else "-o", color=colour, ms=2, lw=0.9,
                    label="sample, not sanitised" if original else mechanism,
                )  # fmt: skip
            if name == "bias":
                axis.axhline(0.0, color="0.6", lw=0.6)
            if name == "coverage":
                axis.axhline(0.95, color="0.6", lw=0.6)
            axis.set_xscale("log")
            axis.set_xticks(arguments.sizes, [str(n) for n in arguments.sizes], fontsize=5.5)
            axis.set_xticks([], minor=True)
            axis.tick_params(axis="y", labelsize=6)
            if k == 0:
                axis.set_ylabel(f"{title}\nepsilon {epsilon:g}", fontsize=6.5)
    for axis in axes[-1]:
        axis.set_xlabel("records", fontsize=6.5)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 0.07))
    return figure


def _mechanisms(release: str) -> tuple[str, ...]:
    return ("boundary-inflated",) if release in UNBOUNDED else MECHANISMS


if __name__ == "__main__":
    main()
