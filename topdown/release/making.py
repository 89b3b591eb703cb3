"""What makes a release: rounding an estimate of the cells, or whole histograms from measurements of any queries."""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError, require_known, require_type
from topdown.measurements.declared_constraints import Constraints
from topdown.measurements.measurements import Measurements
from topdown.noise import SecureSource, Source
from topdown.noise.randomness import require_source
from topdown.projection.check.certificate import require_certificate
from topdown.projection.conditions import Conditions
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.passes import Order
from topdown.projection.histograms.whole import Histograms, histograms_down, require_whole
from topdown.projection.limits import AnswerLimits, settled
from topdown.projection.method import method_named, nonnegative_methods
from topdown.projection.project import WEIGHTS
from topdown.projection.rounding_method import rounding_named
from topdown.release.whole_counts import Release, SparseCounts
from topdown.wording import shown


def round_counts(
    estimate: Estimate, *, method: str = "family", source: Source | None = None, executor: Executor | None = None
) -> Release:
    """The whole numbers nearest to ``estimate`` with which every family still adds up.

    Args:
        estimate: non-negative, as `project` gives it.
        method: "family", the root to the nearest whole number, then in every family argmin sum (r_c - x_c)^2 over whole
            r_c >= 0 with the parent's sum (exact, by largest remainders); "joint", argmin of the sum of (r_i - x_i)^2
            over all nodes at once, every node weighing the same.
        source: breaks ties; by default operating-system entropy.
        executor: threads that may work on it; the counts do not depend on them.

    Raises `ConfigError` for an unknown method, `ProjectionError` for an estimate that may be negative, or whose
    exact values are not whole.

    Examples:
        >>> release = td.round_counts(estimate, source=td.SeededSource(2))  # for a release leave the source out
        >>> release.values[:3]
        array([[198,  16],
               [163,  13],
               [ 35,   3]])
    """
    require_type(Estimate, estimate, "estimate")
    rounding = rounding_named(method).for_cells()
    if not estimate.nonnegative:
        raise ProjectionError(
            f"the estimate by {shown(estimate.method)} may be negative, and a release may not; project with "
            f"nonnegative=True (method {' or '.join(map(repr, nonnegative_methods()))})"
        )
    _require_whole(estimate)
    source = SecureSource() if source is None else source
    require_source(source)
    exact = estimate.exact.T if estimate.exact.any() else None
    values = rounding(np.ascontiguousarray(estimate.values.T), estimate.geography.tree, source, exact, executor)
    return Release.of_values(
        estimate.geography,
        estimate.cells,
        values.T,
        estimate.exact,
        method=estimate.method,
        fit_for_release=estimate.fit_for_release and source.fit_for_release,
        schema=estimate.attributes,
    )


def _require_whole(estimate: Estimate) -> None:
    for cell in range(len(estimate.cells)):
        exact = np.flatnonzero(estimate.exact[:, cell])
        values = estimate.values[exact, cell]
        wrong = np.flatnonzero(np.abs(values - np.rint(values)) > 1e-6)
        if len(wrong):
            node = int(exact[wrong[0]])
            raise ProjectionError(
                f"{estimate.geography.describe(node)}, cell {shown(estimate.cells[cell])}: its exact value "
                f"{values[wrong[0]]} is not whole, so no consistent whole numbers exist; correct it"
            )


def project_whole(
    measurements: Measurements,
    method: str = "gls-top-down",
    *,
    rounding: str = "nearest",
    weights: str = "variance",
    constraints: Constraints | AnswerLimits | None = None,
    source: Source | None = None,
    workers: int | None = None,
    upward: str | None = None,
    order: Order | None = None,
) -> Release:
    """Whole, non-negative, consistent histograms from the root down, from measurements of any queries.

    Every family is projected so that it adds up to its parent's whole histogram, and then rounded. The cells are
    rounded to their floor or ceiling, and so are every child's total and its answers to a chain of nested queries,
    which has every exact query.

    Args:
        measurements: the noisy answers.
        method: "gls-top-down" (uses the measurements at and below each node) or "top-down" (uses the measurements at
            the node alone).
        rounding: "nearest" (least sum of squares; ties by ``source``) or "unbiased" (random, with the mean of the
            fractional solution).
        weights: "variance" or "uniform", as of `project`.
        constraints: structural zeros, and bounds of queries' answers by node, kept exactly. Of bounds alone also the
            `AnswerLimits` that were read.
        source: operating-system entropy where it is left out.
        workers: threads, by default one per processor; the release does not depend on it.
        upward: "from LEVEL", where the upward pass of "gls-top-down" starts; by default the leaves. Measurements below
            that level then divide its counts among its units, and do not change them.
        order: the names of the queries that are made non-negative first, as `project` takes them.

    Raises `ConfigError` for an unknown name or a method that has no solver of families, `ProjectionError` naming the
    node where exact answers contradict each other or are not whole, or a certificate does not hold.

    Examples:
        >>> shares = {"nation": {"total": "1/4"}, "state": {"sex": "1/4"}, "county": {"detailed": "1/2"}}
        >>> people = td.Counts.from_records(persons, geography, geoid="county", schema=schema)
        >>> noisy = td.measure(people, td.Plan("discrete-gaussian", rho=1, shares=shares), source=td.SeededSource(1))
        >>> whole = td.project_whole(noisy, source=td.SeededSource(2))
        >>> whole.answers("state", "sex")
        array([[2, 2],
               [1, 0]])
    """
    chosen = method_named(method)
    rule = rounding_named(rounding)
    require_known(weights, WEIGHTS, "weights")
    source = SecureSource() if source is None else source
    require_source(source)
    measurements, limits = settled(measurements, constraints)
    require_whole(measurements)
    whole = histograms_down(measurements, chosen, weights, limits, upward, order, whole=(rule, source), workers=workers)
    return release_of(measurements, method, whole, source)


def release_of(measurements: Measurements, method: str, whole: Histograms, source: Source) -> Release:
    """A release of whole histograms that were made by ``method`` and rounded with the random bits of ``source``.

    Raises `ProjectionError` where their certificate does not hold.
    """
    histograms, certificate, _ = whole
    require_certificate(certificate, measurements.geography, method, "tree")
    return Release.of_entries(
        measurements.geography,
        measurements.schema,
        SparseCounts.of_nodes(histograms),
        method=method,
        fit_for_release=measurements.fit_for_release and source.fit_for_release,
        exact=lambda: exact_cells(measurements),
        certificate=certificate,
    )


def exact_cells(measurements: Measurements) -> npt.NDArray[np.bool_]:
    """Which cells (nodes x cells) are known exactly because of exact measurements."""
    geography = measurements.geography
    held = Conditions.of(geography.tree, [measurements.at(level) for level in geography.levels])
    return held.exact(measurements.schema)
