"""Second solutions: what a release rests on is solved again by cvxpy, all of it or a sample, and may not differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from topdown.config import DerivationConfig
from topdown.errors import ProjectionError
from topdown.machine.progress import Stages
from topdown.measurements.measurements import Measurements
from topdown.noise import KeyedSource
from topdown.projection.crosscheck import CrossCheck, cross_check
from topdown.projection.estimate import Estimate
from topdown.projection.families import Descent, Sparse
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import Method

_PARTS_AGAIN = 4
"""In so many parts of a release families are solved again: what that takes does not depend on how many there are."""


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


def families_again(
    descent: Descent,
    method: Method,
    histograms: Sequence[Sparse],
    solver: str,
    ties: KeyedSource,
    piece: tuple[str, tuple[int, ...]] = ("", ()),
) -> CrossCheck:
    """A second solution by cvxpy of families beneath whole ``histograms``, root first, as `solved_again` of estimates.

    ``piece``: of which piece of the tree they are, in words, and the name of the stream that chooses there. Raises
    `ConfigError` for a method that cannot state its program, `ProjectionError` where they disagree.
    """
    from topdown.projection.family_crosscheck import cross_check_families

    called, name = piece
    rng = generator(ties.spawn("cross-check", "non_negative", *name))
    check = cross_check_families(descent, method, histograms[: descent.tree.n_families], solver=solver, rng=rng)
    check = replace(check, scope=f"{check.scope} of {called}" if called else check.scope)
    require_agreement({"non_negative": check})
    return check


def parts_again(n_parts: int, ties: KeyedSource) -> frozenset[int]:
    """The parts of a release in so many parts of which families are solved again: four, or all of fewer, chosen by a
    stream of its own under the key of ``ties``."""
    rng = generator(ties.spawn("cross-check", "parts"))
    return frozenset(rng.permutation(n_parts)[:_PARTS_AGAIN].tolist())


def require_agreement(checks: Mapping[str, CrossCheck]) -> None:
    """Refuse a second solution that is not the first. Raises `ProjectionError`."""
    for name, found in checks.items():
        if not found.agrees:
            raise ProjectionError(
                f"{name}: the tree engine and cvxpy with {found.solver} differ by {found.largest_difference:.3g} on "
                f"{found.scope}, more than {found.tolerance:.3g}; nothing was released. Try another projection.solver"
            )


def say_agreement(stages: Stages, checks: Mapping[str, CrossCheck]) -> None:
    """Say of every second solution how near it is."""
    for name, found in checks.items():
        stages.say(
            f"checked   {name.replace('_', '-')}: cvxpy agrees to {found.largest_difference:.1e} on {found.scope}"
        )


def generator(source: KeyedSource) -> np.random.Generator:
    """A stream of random numbers for what is looked at, from its key."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(source.read(32), "little")))
