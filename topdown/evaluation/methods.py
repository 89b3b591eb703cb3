"""The methods that a study compares: raw noise, and projections with and without non-negativity, rounded or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from topdown.errors import ConfigError, require_known
from topdown.noise import Source
from topdown.projection.problem import Problem
from topdown.projection.project import METHODS
from topdown.projection.rounding import round_top_down
from topdown.tree import FloatArray

RAW = "raw"

NAMES = (
    RAW,
    *(f"{name}{kind}" for name in METHODS if name != "gls" for kind in ("", "/equality", "/rounded")),
    "gls",
)
"""What a method may be called: "raw", "gls", and for each other projection "joint" (non-negative), "joint/equality"
(sums only) and "joint/rounded" (non-negative and whole)."""


@dataclass(frozen=True)
class Method:
    """One method of a study. ``projection``: a name of `project`, or "raw"."""

    projection: str
    nonnegative: bool
    rounded: bool

    @classmethod
    def parse(cls, label: str) -> Method:
        """The method that ``label`` names, see `NAMES`. Raises `ConfigError` with the nearest name for any other."""
        require_known(label, NAMES, "method")
        projection, _, kind = label.partition("/")
        return cls(projection, projection not in (RAW, "gls") and kind != "equality", kind == "rounded")

    @property
    def label(self) -> str:
        """The name by which `parse` finds it."""
        if self.projection in (RAW, "gls"):
            return self.projection
        return self.projection + ("/rounded" if self.rounded else "" if self.nonnegative else "/equality")

    def apply(self, problem: Problem, ties: Source) -> FloatArray:
        """The estimate from ``problem``'s values (..., cells, nodes); ``ties`` breaks ties of rounding."""
        if self.projection == RAW:
            return problem.values
        x = METHODS[self.projection](problem._replace(nonnegative=self.nonnegative))
        if not self.rounded:
            return x
        exact = np.broadcast_to(problem.variance == 0, x.shape).reshape(-1, x.shape[-1])
        lower = None if problem.lower is None else np.broadcast_to(problem.lower, x.shape).reshape(exact.shape)
        whole = round_top_down(
            x.reshape(exact.shape), problem.tree, ties, lower, exact if problem.lower is not None else None
        )
        return whole.reshape(x.shape).astype(np.float64)


def parse_methods(methods: Iterable[str | Method]) -> tuple[Method, ...]:
    """``methods`` as `Method` values, each once. Raises `ConfigError` for an unknown or repeated one, or for none."""
    if isinstance(methods, str):
        methods = [methods]
    parsed = tuple(m if isinstance(m, Method) else Method.parse(m) for m in methods)
    if not parsed or len(set(parsed)) != len(parsed):
        raise ConfigError(f"methods {[m.label for m in parsed]}: name at least one, and each of them once")
    return parsed
