"""Distance of the projected residual from the noise law against family size: simulated, floor and theory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from topdown.evaluation.errors_table import ErrorTable
from topdown.evaluation.wasserstein import wasserstein_to_noise
from topdown.privacy.plan import Plan

_LARGEST_LATTICE = 20_000
"""Lattice points (family size x scale) up to which the exact geometric distance is computed."""

_LARGEST_FAMILY = 2_000
"""Family size up to which the exact Laplace distance is computed, whose setting up takes the square of it."""


def wasserstein_curve(table: ErrorTable, plan: Plan) -> dict[str, Any]:
    """``theory``: [{family_size, distance}] for families of the leaves' level with a public total; ``law``: what it is,
    in words, empty where no closed form is known (``theory`` then is); ``lattice``: whether it is a law on the
    integers, beside which the residual, on multiples of 1/n, keeps about a quarter count's distance; ``floor``: the
    distance that a sample of this many replicates shows from its own law.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Figure 5.
    """
    geography = table.geography
    level, leaves = geography.levels[-1], geography.tree.leaves
    method = "raw" if "raw" in table.methods else table.methods[0]
    floors = table[method, "wasserstein_floor"][leaves]
    floor = float(np.nanmean(floors)) if np.isfinite(floors).any() else math.nan
    # Noise within bounds has another law at every count.
    if geography.tree.n_levels < 2 or plan.share(level) == 0 or plan.bounds.any:
        return {"theory": [], "law": "", "lattice": False, "floor": floor}
    largest = int(np.diff(geography.child_offsets[geography.level_offsets[-3] :]).max())
    sizes = sorted({n for n in (1, 2, 3, 4, 5, 7) if n <= largest} | _spaced(largest))
    distance, law = _distance(plan, level, table.reference)
    theory = []
    if distance is not None:
        found = [(n, distance(n)) for n in sizes]
        theory = [{"family_size": n, "distance": d} for n, d in found if d is not None]
    lattice = plan.mechanism == "geometric" and table.reference == "noise"
    return {"theory": theory, "law": law if theory else "", "lattice": lattice and bool(theory), "floor": floor}


def _spaced(largest: int) -> set[int]:
    return {int(n) for n in np.unique(np.rint(np.geomspace(1, largest, 16)))}


def _distance(plan: Plan, level: str, reference: str) -> tuple[Any, str]:
    """The distance as a function of family size, and its law in words; (None, "") where it is not known."""
    if plan.mechanism == "gaussian":
        sigma = math.sqrt(plan.sigma2(level))
        # N(0, s^2) against N(0, t^2): |s - t| E|N(0, 1)|.
        return lambda n: sigma * (1.0 - math.sqrt(1.0 - 1.0 / n)) * math.sqrt(2.0 / math.pi), "Gaussian noise"
    if not plan.is_pure:
        return None, ""
    scale = float(plan.scale(level))
    if plan.mechanism == "laplace":
        return lambda n: wasserstein_to_noise(n, scale) if n <= _LARGEST_FAMILY else None, "Laplace noise"
    against = "laplace" if reference == "continuous" else "noise"

    def geometric(n: int) -> float | None:
        if n * scale > _LARGEST_LATTICE:
            return None
        return wasserstein_to_noise(n, scale, law="geometric", reference=against)  # type: ignore[arg-type]

    return geometric, "double geometric noise"
