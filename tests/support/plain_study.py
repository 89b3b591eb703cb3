"""A study of a tree of three levels in plain numpy: own noise, own projections, own decisions; nothing of the package.

It is for tables of some hundred units, with geometric noise on every count. What it finds is compared with the numbers
that a study prints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

AT_ONCE = 2_000


@dataclass
class Mean:
    """A running mean of values per replicate, with its standard error."""

    count: int = 0
    first: Any = 0.0
    second: Any = 0.0

    def add(self, values: Any) -> None:
        """Take in values (replicates, ...)."""
        self.count += len(values)
        self.first = self.first + values.sum(axis=0)
        self.second = self.second + (values**2).sum(axis=0)

    @property
    def value(self) -> Any:
        return self.first / self.count

    @property
    def error(self) -> Any:
        return np.sqrt(np.maximum(self.second / self.count - self.value**2, 0.0) / (self.count - 1))


@dataclass
class PlainStudy:
    """``leaves`` (cells, leaves) in the order of ``families``, the numbers of leaves of every unit of the middle level;
    ``epsilons``: what each level spends, from the root.

    ``means``: by method and level "mean", "square" and "zeros" (cells,), by method "nodes" (cells, nodes), and what
    `follow` names. ``bins``: of whole errors by method and level how often each came, (cells, nodes, errors).
    """

    leaves: Any
    families: list[int]
    epsilons: list[float]
    means: dict[tuple[str, ...], Mean] = field(default_factory=dict)
    bins: dict[str, Any] = field(default_factory=dict)
    reach: int = 1_000

    def __post_init__(self) -> None:
        n, middles = self.leaves.shape[1], len(self.families)
        self.first = np.concatenate([[0], np.cumsum(self.families)])
        self.sums = np.zeros((1 + middles + n, n))  # nodes from leaves
        self.sums[0] = 1.0
        for k in range(middles):
            self.sums[1 + k, self.first[k] : self.first[k + 1]] = 1.0
        self.sums[1 + middles :] = np.eye(n)
        self.truth = self.leaves @ self.sums.T
        self.level = {"root": slice(0, 1), "middle": slice(1, 1 + middles), "leaf": slice(1 + middles, None)}
        self.alpha = np.exp(-np.repeat(self.epsilons, [1, middles, n]))
        self.variance = 2 * self.alpha / (1 - self.alpha) ** 2
        weight = 1 / self.variance
        normal = self.sums.T @ (weight[:, None] * self.sums)
        self.least_squares = self.sums @ np.linalg.solve(normal, self.sums.T * weight)

    def run(self, replicates: int, seed: int, follow: Callable[[PlainStudy, str, Any], None]) -> PlainStudy:
        """Draw and project; ``follow(self, method, estimates)`` sees (replicates, cells, nodes) of every method."""
        rng = np.random.default_rng(seed)
        for _ in range(replicates // AT_ONCE):
            size = (AT_ONCE, *self.truth.shape)
            noise = rng.geometric(1 - self.alpha, size) - rng.geometric(1 - self.alpha, size)
            y = self.truth + noise
            for method, x in self.estimates(y, rng).items():
                self._count(method, x)
                follow(self, method, x)
        return self

    def estimates(self, y: Any, rng: Any) -> dict[str, Any]:
        """Estimates (replicates, cells, nodes) by method from the measurements ``y``."""
        middles, v = len(self.families), self.variance
        found = {"raw": y, "gls": y @ self.least_squares.T}
        equal, clipped, upward = (np.empty_like(y, dtype=float) for _ in range(3))
        # The best estimate of every unit from what lies below it, and its variance.
        z, u = y.astype(float), v.copy()
        for k in range(middles):
            here = self._children(k)
            below, spread = y[..., here].sum(axis=-1), v[here].sum()
            z[..., 1 + k] = (y[..., 1 + k] / v[1 + k] + below / spread) / (1 / v[1 + k] + 1 / spread)
            u[1 + k] = 1 / (1 / v[1 + k] + 1 / spread)
        below, spread = z[..., 1 : 1 + middles].sum(axis=-1), u[1 : 1 + middles].sum()
        z[..., 0] = (y[..., 0] / v[0] + below / spread) / (1 / v[0] + 1 / spread)
        equal[..., 0], clipped[..., 0], upward[..., 0] = y[..., 0], np.maximum(y[..., 0], 0), np.maximum(z[..., 0], 0)
        for parent, here in [(0, slice(1, 1 + middles)), *((1 + k, self._children(k)) for k in range(middles))]:
            short = equal[..., parent] - y[..., here].sum(axis=-1)
            equal[..., here] = y[..., here] + short[..., None] / y[..., here].shape[-1]
            clipped[..., here] = on_simplex(y[..., here], clipped[..., parent], v[here])
            upward[..., here] = on_simplex(z[..., here], upward[..., parent], u[here])
        whole = np.empty_like(upward)
        whole[..., 0] = np.floor(upward[..., 0] + 0.5)
        for parent, here in [(0, slice(1, 1 + middles)), *((1 + k, self._children(k)) for k in range(middles))]:
            moved = on_simplex(upward[..., here], whole[..., parent], np.ones(upward[..., here].shape[-1]))
            whole[..., here] = largest_remainders(moved, whole[..., parent], rng)
        return found | {
            "top-down/equality": equal, "top-down": clipped, "gls-top-down": upward, "gls-top-down/rounded": whole
        }  # fmt: skip

    def mean(self, *key: str) -> Mean:
        return self.means.setdefault(key, Mean())

    def _children(self, k: int) -> slice:
        start = 1 + len(self.families)
        return slice(start + self.first[k], start + self.first[k + 1])

    def _count(self, method: str, x: Any) -> None:
        e = x - self.truth
        for level, nodes in self.level.items():
            part = e[..., nodes]
            self.mean(method, level, "mean").add(part.mean(axis=-1))
            self.mean(method, level, "square").add((part**2).mean(axis=-1))
            self.mean(method, level, "zeros").add((np.abs(x[..., nodes]) < 1e-6).mean(axis=-1))
        self.mean(method, "nodes").add(e)
        if method in ("raw", "gls-top-down/rounded"):
            cells, nodes = self.truth.shape
            place = np.arange(cells * nodes).reshape(cells, nodes) * (2 * self.reach + 1)
            row = np.clip(np.rint(e), -self.reach, self.reach).astype(np.int64) + self.reach
            counted = np.bincount((row + place).ravel(), minlength=cells * nodes * (2 * self.reach + 1))
            self.bins[method] = self.bins.get(method, 0) + counted.reshape(cells, nodes, -1)

    def wasserstein(self, method: str) -> Any:
        """(cells, nodes): the distance of whole errors from the law of the noise; a little too large, as that of "raw",
        which has none, is."""
        k = np.arange(-self.reach, self.reach + 1)
        a = self.alpha[:, None]
        below = np.where(k < 0, a ** (-k) / (1 + a), 1 - a ** (k + 1) / (1 + a))
        empirical = self.bins[method].cumsum(axis=-1) / self.bins[method].sum(axis=-1, keepdims=True)
        return np.abs(empirical - below).sum(axis=-1)


def on_simplex(z: Any, total: Any, u: Any) -> Any:
    """The x >= 0 (..., n) with sum ``total`` (...) that has the least sum of (x - z)^2 / u; by bisection."""
    low, high = ((z - total[..., None]) / u).min(axis=-1), (z / u).max(axis=-1)
    for _ in range(60):
        middle = (low + high) / 2
        enough = np.maximum(z - middle[..., None] * u, 0).sum(axis=-1) >= total
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    free = z - low[..., None] * u > 0
    count = np.maximum((free * u).sum(axis=-1), 1e-300)
    exact = ((free * z).sum(axis=-1) - total) / count
    return np.where(free, np.maximum(z - exact[..., None] * u, 0), 0.0) * (total > 0)[..., None]


def largest_remainders(x: Any, total: Any, rng: Any) -> Any:
    """Whole numbers near ``x`` (..., n) with sum ``total`` (...), equal remainders in a random order."""
    floors = np.floor(x + 1e-6)
    remainders = np.round((x - floors) * 2**20) + rng.random(x.shape)
    rank = (-remainders).argsort(axis=-1).argsort(axis=-1)
    return floors + (rank < (total - floors.sum(axis=-1))[..., None])
