"""The methods that a study compares: raw noise, and projections with and without non-negativity, rounded or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topdown.errors import ConfigError, require_known
from topdown.geography.tree import FloatArray, Tree
from topdown.noise import Source
from topdown.projection.cells.rounding import round_top_down
from topdown.projection.method import METHODS, Method, Problem, method_named

if TYPE_CHECKING:
    from topdown.privacy.plan import Plan

RAW = "raw"

_NODES_AT_ONCE = 1 << 16
"""Replicates of small trees are rounded together, up to so many nodes, which stay in the cache."""

_EQUALITY, _AT_ONCE, _ROUNDED = "/equality", "/at-once", "/rounded"


def names() -> list[str]:
    """The labels of methods: "raw", "gls", and for each projection with x >= 0 such as "joint" (non-negative) also
    "joint/equality" (sums only) and "joint/rounded" (non-negative and whole). For a projection that makes the total
    non-negative first, also "top-down/at-once" and "top-down/at-once/rounded", which make all queries non-negative at
    once.
    """
    found = [RAW]
    for name, method in METHODS.items():
        kinds = ["", _EQUALITY, _ROUNDED] if method.nonnegative else [""]
        found += [name + kind for kind in [*kinds, *([_AT_ONCE, _AT_ONCE + _ROUNDED] if method.takes_order else [])]]
    return found


@dataclass(frozen=True)
class StudiedMethod:
    """One method of a study. ``projection``: the name of one, or "raw" for the measurements themselves. ``at_once``:
    whether all queries are made non-negative at once, where the projection would by default take some first.
    """

    projection: str
    nonnegative: bool
    rounded: bool
    at_once: bool = False

    @classmethod
    def parse(cls, label: str) -> StudiedMethod:
        """The method that ``label`` names, see `names`. Raises `ConfigError` with the nearest name for any other."""
        require_known(label, names(), "method")
        projection = label.removesuffix(_EQUALITY).removesuffix(_ROUNDED).removesuffix(_AT_ONCE)
        nonnegative = projection != RAW and METHODS[projection].nonnegative and not label.endswith(_EQUALITY)
        return cls(projection, nonnegative, label.endswith(_ROUNDED), _AT_ONCE in label)

    @property
    def label(self) -> str:
        """The label that `parse` reads."""
        name = self.projection + (_AT_ONCE if self.at_once else "")
        if self.rounded:
            return name + _ROUNDED
        has_both = not self.is_raw and self.its_method.nonnegative
        return name + (_EQUALITY if has_both and not self.nonnegative else "")

    @property
    def its_method(self) -> Method:
        """The projection method."""
        return method_named(self.projection)

    def require(self, *, several: bool) -> None:
        """Refuse a projection that has no solver of ``several`` queries, or of the cells alone. Raises
        `ConfigError`."""
        if self.at_once and not several:
            raise ConfigError(
                f"method {self.label!r}: only the cells are measured, and they are made non-negative at once by "
                f"{StudiedMethod(self.projection, self.nonnegative, self.rounded).label!r}; name that"
            )
        if not self.is_raw:
            self.its_method.require(several=several, nonnegative=self.nonnegative)

    def require_root(self, plan: Plan, levels: Sequence[str], *, several: bool) -> None:
        """As `Method.require_root`."""
        if not self.is_raw:
            self.its_method.require_root(plan, levels, several=several)

    @property
    def is_raw(self) -> bool:
        """Whether this is the measurements themselves, without a projection."""
        return self.projection == RAW

    @property
    def sums_alone(self) -> bool:
        """Whether counts add up but may be negative."""
        return not self.is_raw and not self.nonnegative

    @property
    def upward(self) -> bool:
        """Whether measurements below a node are used for its estimate without x >= 0."""
        return not self.is_raw and self.its_method.upward

    def variance(self, noise: FloatArray, tree: Tree) -> FloatArray | None:
        """The variance (nodes,) of the estimate from measurements of the cells alone with variance ``noise``; None
        where there is no closed form.
        """
        if self.is_raw:
            return noise
        closed = self.its_method.for_cells().variance
        return None if self.nonnegative or closed is None else closed(noise, tree)

    def apply(self, problem: Problem, ties: Source) -> FloatArray:
        """The estimate from ``problem``'s values (..., cells, nodes); ``ties`` breaks ties of rounding."""
        if self.is_raw:
            return problem.values
        x = self.its_method.for_cells().solve(problem._replace(nonnegative=self.nonnegative))
        if not self.rounded:
            return x
        exact = np.broadcast_to(problem.variance == 0, x.shape).reshape(-1, x.shape[-1])
        lower = None if problem.lower is None else np.broadcast_to(problem.lower, x.shape).reshape(exact.shape)
        whole = round_top_down(
            x.reshape(exact.shape),
            problem.tree,
            ties,
            lower,
            exact if problem.lower is not None else None,
            at_once=max(1, _NODES_AT_ONCE // problem.tree.n_nodes),
        )
        return whole.reshape(x.shape).astype(np.float64)


def without_bounds(label: str, among: Sequence[str]) -> list[str]:
    """The methods ``among`` that may give negative counts: first the projection of ``label``, then those that use
    measurements below a node, then others, and the measurements themselves last.
    """
    parsed = {other: StudiedMethod.parse(other) for other in among if other != label}
    free = [other for other, method in parsed.items() if not method.nonnegative]
    own = StudiedMethod.parse(label).projection

    def rank(other: str) -> tuple[bool, bool, bool]:
        method = parsed[other]
        return method.projection != own, not method.upward, method.is_raw

    return sorted(free, key=rank)


def parse_methods(methods: Iterable[str | StudiedMethod]) -> tuple[StudiedMethod, ...]:
    """``methods`` as values, each once. Raises `ConfigError` for an unknown or repeated one, or for none."""
    if isinstance(methods, str):
        methods = [methods]
    parsed = tuple(m if isinstance(m, StudiedMethod) else StudiedMethod.parse(m) for m in methods)
    if not parsed or len(set(parsed)) != len(parsed):
        raise ConfigError(f"methods {[m.label for m in parsed]}: name at least one, and each only once")
    return parsed
