"""Study 1: a covariance matrix released element by element, variances first, covariances within what these allow.

The sources leave open the matrix, the bounds of the data and epsilon; here the variables have variances 1 and 4, values
within 4 and 8 of 0, and epsilon is 1 for the whole matrix. Each data set has exactly the matrix as its sample
covariance, so that all error is from the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import COLOURS, MECHANISMS, parser, print_table, save
from matplotlib.figure import Figure
from numpy.typing import NDArray

from topdown.noise import (
    BoundaryInflatedLaplace,
    SeededSource,
    Source,
    TruncatedLaplace,
    calibrate,
    privacy_loss,
    uncorrected_scale,
)
from topdown.privacy.sensitivity import covariance_sensitivity, largest_variance, variance_sensitivity
from topdown.research.covariances import nearest_covariance

FloatArray = NDArray[np.float64]

HALF_RANGES = (4.0, 8.0)
VARIANCES = (1.0, 4.0)
CORRELATIONS = (0.0, -0.5, 0.8)


@dataclass(frozen=True)
class Variable:
    """One variable: its values are in -half_range..half_range, and its sample variance is ``variance``."""

    half_range: float
    variance: float


def sanitise(
    statistic: FloatArray,
    sensitivity: float,
    lower: FloatArray,
    upper: FloatArray,
    epsilon: float,
    mechanism: str,
    source: Source,
) -> FloatArray:
    """A bounded release of each of ``statistic``; an interval of one point is released as it is."""
    lower, upper = np.broadcast_arrays(np.asarray(lower, float), np.asarray(upper, float))
    result = np.broadcast_to(lower, statistic.shape) + 0.0  # no negative zero
    open_ = np.flatnonzero(np.broadcast_to(upper > lower, statistic.shape))
    low, high = np.broadcast_to(lower, statistic.shape)[open_], np.broadcast_to(upper, statistic.shape)[open_]
    scale = np.full(open_.size, uncorrected_scale(epsilon, sensitivity))
    if mechanism == "boundary-inflated":
        result[open_] = BoundaryInflatedLaplace(statistic[open_], scale, low, high).sample(None, source)
        return result
    if mechanism == "truncated, true epsilon":
        scale = np.asarray(calibrate(epsilon, sensitivity, low, high))
    result[open_] = TruncatedLaplace(statistic[open_], scale, low, high).sample(None, source)
    return result


def release(
    n: int, variables: list[Variable], correlation: float, epsilon: float, mechanism: str, repeats: int, seed: int
) -> FloatArray:
    """``repeats`` sanitised covariance matrices of n records, shape (repeats, variables, variables).

    Every element gets an equal part of epsilon: variances on [0, the largest that n values can have], then every
    covariance on -sqrt(v_i* v_j*)..sqrt(v_i* v_j*) of the variances already released.
    """
    p = len(variables)
    each = epsilon / (p * (p + 1) // 2)
    source = SeededSource((seed, n, p, round(1000 * correlation), mechanism))
    result = np.empty((repeats, p, p))
    for i, one in enumerate(variables):
        reach = variance_sensitivity(n, -one.half_range, one.half_range)
        top = np.array(largest_variance(n, -one.half_range, one.half_range))
        result[:, i, i] = sanitise(np.full(repeats, one.variance), reach, np.zeros(()), top, each, mechanism, source)
    for i in range(p):
        for j in range(i):
            one, other = variables[i], variables[j]
            reach = covariance_sensitivity(n, (-one.half_range, one.half_range), (-other.half_range, other.half_range))
            most = np.sqrt(result[:, i, i] * result[:, j, j])
            truth = np.full(repeats, correlation * np.sqrt(one.variance * other.variance))
            result[:, i, j] = result[:, j, i] = sanitise(truth, reach, -most, most, each, mechanism, source)
    return result


def true_epsilon(n: int, epsilon: float, mechanism: str) -> float:
    """What the release of the 2 x 2 matrix truly costs, at most: the covariance's interval has no least privacy."""
    if mechanism != "truncated":
        return epsilon
    each = epsilon / 3
    total = float(privacy_loss(uncorrected_scale(each, 1.0), 1.0, 0.0, None))
    for half in HALF_RANGES:
        reach = variance_sensitivity(n, -half, half)
        total += float(privacy_loss(uncorrected_scale(each, reach), reach, 0.0, largest_variance(n, -half, half)))
    return total


def repaired(matrices: FloatArray) -> tuple[float, FloatArray]:
    """The share of matrices that are not positive semidefinite, and all of them with those repaired."""
    lowest = np.linalg.eigvalsh(matrices)[:, 0]
    indefinite = lowest < -1e-10 * np.abs(np.trace(matrices, axis1=1, axis2=2))
    result = matrices.copy()
    for k in np.flatnonzero(indefinite):
        result[k] = nearest_covariance(matrices[k])
    return float(indefinite.mean()), result


def main() -> None:
    options = parser(__doc__, 500, (50, 100, 200, 400, 800))
    options.add_argument("--epsilon", type=float, default=1.0, help="for the whole matrix")
    options.add_argument("--correlations", type=float, nargs="+", default=list(CORRELATIONS))
    options.add_argument("--dimension", type=int, default=4, help="of the larger matrix that may have to be repaired")
    arguments = options.parse_args()
    variables = [Variable(h, v) for h, v in zip(HALF_RANGES, VARIANCES, strict=True)]
    names = ("variance 1", "variance 2", "covariance")
    results: dict[tuple[float, str], list[FloatArray]] = {}
    rows = []
    for correlation in arguments.correlations:
        truth = np.array([*VARIANCES, correlation * np.sqrt(np.prod(VARIANCES))])
        for mechanism in MECHANISMS:
            for n in arguments.sizes:
                found = release(
                    n, variables, correlation, arguments.epsilon, mechanism, arguments.repeats, arguments.seed
                )
                elements = found[:, [0, 1, 1], [0, 1, 0]]
                results.setdefault((correlation, mechanism), []).append(elements)
                bias, spread = elements.mean(axis=0) - truth, elements.std(axis=0)
                low = (elements[:, :2] == 0).any(axis=1).mean()
                cost = true_epsilon(n, arguments.epsilon, mechanism)
                quartiles = np.percentile(elements, [25, 75], axis=0).T.ravel()
                rows.append((correlation, mechanism, n, cost, *bias, *spread, *quartiles, low))
    titles = ["correlation", "mechanism", "n", "true epsilon"]
    titles += [f"{what} of {name}" for what in ("bias", "sd") for name in names]
    titles += [f"{part} % of {name}" for name in names for part in (25, 75)]
    print_table((*titles, "a variance of 0"), rows)
    larger(arguments.dimension, arguments.sizes, arguments.epsilon, min(arguments.repeats, 100), arguments.seed)
    draw(results, arguments.sizes, arguments.figures)


def larger(dimension: int, sizes: list[int], epsilon: float, repeats: int, seed: int) -> None:
    """A larger matrix need not be positive semidefinite; how often it is not, and what repairing it does."""
    variables = [Variable(HALF_RANGES[0], VARIANCES[0])] * dimension
    truth = np.full((dimension, dimension), 0.5) + 0.5 * np.eye(dimension)
    rows = []
    for n in sizes:
        for mechanism in MECHANISMS:
            found = release(n, variables, 0.5, epsilon, mechanism, repeats, seed)
            share, mended = repaired(found)
            error = [float(np.sqrt(((m - truth) ** 2).sum(axis=(1, 2)).mean())) for m in (found, mended)]
            rows.append((n, mechanism, share, *error))
    print(f"\nA matrix of {dimension} variables, correlations 0.5:")
    print_table(("n", "mechanism", "not positive semidefinite", "error as released", "error repaired"), rows)


def draw(results: dict[tuple[float, str], list[FloatArray]], sizes: list[int], folder: Path) -> None:
    """Figure 1: means, 25 and 75 % quartiles (thick) and 2.5 and 97.5 % percentiles against n, and the original."""
    correlations = list(dict.fromkeys(correlation for correlation, _ in results))
    figure = Figure(figsize=(3.0 * len(correlations), 6.0))
    axes = figure.subplots(3, len(correlations), squeeze=False, sharex=True)
    for column, correlation in enumerate(correlations):
        truth = (*VARIANCES, correlation * np.sqrt(np.prod(VARIANCES)))
        for row, name in enumerate(("variance 1", "variance 2", "covariance")):
            axis = axes[row][column]
            for k, mechanism in enumerate(MECHANISMS):
                drawn = np.array([part[:, row] for part in results[correlation, mechanism]])
                shift = np.array(sizes) * 1.13 ** (k - 1)
                mean = drawn.mean(axis=1)
                low, first, third, high = np.percentile(drawn, [2.5, 25, 75, 97.5], axis=1)
                axis.vlines(shift, low, high, color=COLOURS[mechanism], linewidth=0.9)
                axis.vlines(shift, first, third, color=COLOURS[mechanism], linewidth=3.5, alpha=0.6, label=mechanism)
                axis.plot(shift, mean, "o", ms=2, color="black", label="mean" if mechanism == MECHANISMS[-1] else None)
            axis.axhline(truth[row], color="0.4", linewidth=0.8)
            axis.set(xscale="log", ylabel=name if column == 0 else None)
            if row == 0:
                axis.set_title(f"correlation {correlation:g}", fontsize=8)
            if row == 2:
                axis.set_xticks(sizes, [str(n) for n in sizes])
                axis.set_xticks([], minor=True)
                axis.set_xlabel("records")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 0.02))
    save(figure, folder, "liu_figure_1")


if __name__ == "__main__":
    main()
