"""Second solutions: what a release rests on is solved again by cvxpy, all of it or a sample, and may not differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from topdown.config import DerivationConfig
from topdown.errors import ProjectionError
from topdown.measurements.measurements import Measurements
from topdown.noise import KeyedSource
from topdown.projection.crosscheck import CrossCheck, cross_check
from topdown.projection.estimate import Estimate
from topdown.projection.families import Descent, Sparse
from topdown.projection.limits import AnswerLimits


def solved_again(
    config: DerivationConfig,
    measurements: Measurements,
    estimates: dict[str, Estimate],
    ties: KeyedSource,
    limits: AnswerLimits | None = None,
) -> dict[str, CrossCheck]:
    """A second solution of every program by cvxpy. Raises `ProjectionError` where they disagree.

    What is looked at in a large tree is drawn from streams of their own under the key of ``ties``, so that the same
    release, written again, is the same bytes, and the bits that break ties are no others than before.
    """
    if not config.projection.cross_check:
        return {}
    solved = {name: one for name, one in estimates.items() if one.nonnegative or not measurements.others}
    checks = {}
    for name, estimate in solved.items():
        rng = generator(ties.spawn("cross-check", name))
        if estimate.nonnegative and (measurements.others or limits is not None):
            # The certificate of least-squares histograms is computed from the queries, not as they were solved.
            from topdown.projection.family_crosscheck import cross_check_histograms

            checks[name] = cross_check_histograms(
                measurements, estimate, limits=limits, solver=config.projection.solver, rng=rng
            )
        else:
            checks[name] = cross_check(measurements, estimate, solver=config.projection.solver, rng=rng)
    require_agreement(checks)
    return checks


def families_again(descent: Descent, histograms: Sequence[Sparse], solver: str, ties: KeyedSource) -> CrossCheck:
    """A second solution by cvxpy of families beneath whole ``histograms``, root first, as `solved_again` of estimates.

    Raises `ProjectionError` where they disagree.
    """
    from topdown.projection.family_crosscheck import cross_check_families

    rng = generator(ties.spawn("cross-check", "non_negative"))
    check = cross_check_families(descent, histograms[: descent.tree.n_families], solver=solver, rng=rng)
    require_agreement({"non_negative": check})
    return check


def require_agreement(checks: Mapping[str, CrossCheck]) -> None:
    """Refuse a second solution that is not the first. Raises `ProjectionError`."""
    for name, found in checks.items():
        if not found.agrees:
            raise ProjectionError(
                f"{name}: the tree engine and cvxpy with {found.solver} differ by {found.largest_difference:.3g} on "
                f"{found.scope}, more than {found.tolerance:.3g}; nothing was released. Try another projection.solver"
            )


def generator(source: KeyedSource) -> np.random.Generator:
    """A stream of random numbers for what is looked at, from its key."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(source.read(32), "little")))
