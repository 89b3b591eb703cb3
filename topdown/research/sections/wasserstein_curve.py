"""The distance of the projected residual from the noise law by family size: simulated, its floor, and in theory."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.noise import DiscreteLaplace, Gaussian, Laplace
from topdown.pages.chart_style import GREY, INK, told
from topdown.privacy.plan import Plan
from topdown.research.theory.wasserstein import wasserstein_to_noise
from topdown.studies.errors_table import ErrorTable
from topdown.studies.methods import RAW
from topdown.studies.report.chart_parts import (
    LIGHTNESS,
    SHAPES,
    above,
    leaf_families,
    log,
    shown_methods,
    symlog,
    telling_apart,
)
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment
from topdown.workload import DETAILED

_LARGEST_LATTICE = 20_000
"""Lattice points (family size x scale) up to which the exact geometric distance is computed."""

_LARGEST_FAMILY = 2_000
"""The largest family size for which the exact Laplace distance is computed; its cost grows with the square of it."""


def wasserstein_numbers(results: StudyResults) -> Summary:
    """``wasserstein``: of `wasserstein_curve`."""
    return {"wasserstein": wasserstein_curve(results.table, results.plan)}


def wasserstein_curve(table: ErrorTable, plan: Plan) -> dict[str, Any]:
    """``theory``: [{family_size, distance}] for families of the leaves' level with a public total; ``law``: what it is,
    in words, empty where no closed form is known (``theory`` then is); ``lattice``: whether it is a law on the
    integers, beside which the residual, on multiples of 1/n, keeps about a quarter count's distance; ``floor``: the
    distance that a sample of this many replicates shows from its own law.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Figure 5.
    """
    geography = table.geography
    level, leaves = geography.levels[-1], geography.tree.leaves
    method = RAW if RAW in table.methods else table.methods[0]
    floors = table[method, "wasserstein_floor"][leaves]
    floor = float(np.nanmean(floors)) if np.isfinite(floors).any() else math.nan
    # Bounded noise has another law at every count; answers to queries have a law each, and so have units on a spine.
    if table.reference_sd is not None or table.follows_queries or DETAILED not in plan.queries(level):
        return {"theory": [], "law": "", "lattice": False, "floor": floor}
    if geography.tree.n_levels < 2 or plan.share(level) == 0 or plan.bounds.any:
        return {"theory": [], "law": "", "lattice": False, "floor": floor}
    largest = int(np.diff(geography.child_offsets[geography.level_offsets[-3] :]).max())
    sizes = sorted({n for n in (1, 2, 3, 4, 5, 7) if n <= largest} | _spaced(largest))
    distance, law = _distance(plan, level, table.reference)
    theory = []
    if distance is not None:
        found = [(n, distance(n)) for n in sizes]
        theory = [{"family_size": n, "distance": d} for n, d in found if d is not None]
    lattice = isinstance(plan.law(level), DiscreteLaplace) and table.reference == "noise"
    return {"theory": theory, "law": law if theory else "", "lattice": lattice and bool(theory), "floor": floor}


def _spaced(largest: int) -> set[int]:
    return {int(n) for n in np.unique(np.rint(np.geomspace(1, largest, 16)))}


def _distance(plan: Plan, level: str, reference: str) -> tuple[Any, str]:
    """The distance as a function of family size, and the name of its law; (None, "") where it is not known."""
    drawn = plan.law(level, continuous=True)
    if isinstance(drawn, Gaussian):
        # N(0, s^2) against N(0, t^2): |s - t| E|N(0, 1)|.
        sigma, mean = math.sqrt(drawn.variance), math.sqrt(2.0 / math.pi)
        return lambda n: sigma * (1.0 - math.sqrt(1.0 - 1.0 / n)) * mean, "Gaussian noise"
    if isinstance(drawn, Laplace):
        scale = float(drawn.scale)
        return lambda n: wasserstein_to_noise(n, scale) if n <= _LARGEST_FAMILY else None, "Laplace noise"
    if not isinstance(drawn, DiscreteLaplace):
        return None, ""
    scale = float(drawn.scale)
    against = "laplace" if reference == "continuous" else "noise"

    def geometric(n: int) -> float | None:
        if n * scale > _LARGEST_LATTICE:
            return None
        return wasserstein_to_noise(n, scale, law="geometric", reference=against)  # type: ignore[arg-type]

    return geometric, "double geometric noise"


def wasserstein_against_dimension(summary: Summary) -> alt.TopLevelMixin | None:
    """Distance of the leaves' residuals from the noise law against family size; floor and theory beside it."""
    rows = leaf_families(summary)
    curve = summary["wasserstein"]
    if rows.empty or rows["wasserstein_low"].isna().all():
        return None
    methods = list(
        dict.fromkeys([m for m in ("top-down/equality",) if m in summary["methods"]] + shown_methods(summary))
    )[:3]
    rows = (
        rows[rows["method"].isin(methods)]
        .groupby(["method", "geoid", "name", "family_size"], dropna=False, as_index=False)
        .agg(low=("wasserstein_low", "mean"), high=("wasserstein_high", "mean"))
    )
    rows["middle"] = (rows["low"] + rows["high"]) / 2.0
    x = alt.X("family_size:Q", title="family size n (log scale)", scale=log())
    color = alt.Color("method:N", title="method", scale=telling_apart(methods, LIGHTNESS), legend=above())
    y = alt.Y("low:Q", title="distance to the noise (counts, symlog scale)", scale=symlog())
    tooltip = told("name:N", "geoid:N", "family_size:Q", "method:N", "low:Q", "high:Q")
    layers: list[Any] = [
        alt.Chart(rows).mark_rule(strokeWidth=1.5).encode(x=x, y=y, y2="high:Q", color=color, tooltip=tooltip),
        alt.Chart(rows)
        .mark_point(filled=True, size=30)
        .encode(
            x=x,
            y=alt.Y("middle:Q", scale=symlog()),
            color=color,
            shape=alt.Shape("method:N", title="method", scale=telling_apart(methods, SHAPES)),
            tooltip=tooltip,
        ),
    ]
    if curve["theory"]:
        theory = pd.DataFrame([point for point in curve["theory"] if point["family_size"] > 1])
        layers.append(
            alt.Chart(theory)
            .mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1.2)
            .encode(x=x, y=alt.Y("distance:Q", scale=symlog()))
        )
    if curve["floor"] is not None:
        floor = pd.DataFrame([{"floor": curve["floor"], "what": "floor of a sample of this size"}])
        layers.append(alt.Chart(floor).mark_rule(color=GREY, strokeDash=[1, 2], strokeWidth=1.5).encode(y="floor:Q"))
        layers.append(
            alt.Chart(floor)
            .mark_text(align="right", dx=-4, dy=-6, fontSize=10, color="#5a5f68")
            .encode(y="floor:Q", x=alt.value("width"), text="what:N")
        )
    return alt.layer(*layers).properties(width=720, height=280)


SECTION = Section(
    name="wasserstein",
    template=fragment("wasserstein_curve", __package__),
    numbers=wasserstein_numbers,
    charts={
        "wasserstein": Chart("Distance to the noise against family size, with theory", wasserstein_against_dimension)
    },
    appendix=True,
    link="Distance",
)
