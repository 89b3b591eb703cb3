"""Draws tables from the posterior of one cell's counts on a tree: sums going up, then parts given the sums going down,
both exact.

The prior: every leaf's count is an independent draw from one law. The weights of a node's possible counts, from the
prior and the measurements at and below it, are computed up the tree; then the root's count is drawn, and every family's
counts given its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from topdown.errors import ConfigError, ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.noise import ContinuousLaw, Law
from topdown.noise.law import is_lattice_law
from topdown.uncertainty.splits import Merged, Weights, merged, tilted, weights

_BENEATH_ROUNDING = 1e-9
_EXACT_BINS, _GROWTH = 10, 1.25


class Likelihood(NamedTuple):
    """The likelihood of every count given the measured value of a node, as ``weights``; None where it was not
    measured.
    """

    weights: Weights | None

    @classmethod
    def of(cls, value: float, variance: float, law: Law | None, reach: float) -> Likelihood:
        """``reach``: the largest noise of this ``law`` that is considered. An exact ``value`` leaves one count."""
        if np.isinf(variance):
            return cls(None)
        if variance == 0 or law is None:
            return cls(Weights(round(value), np.ones(1)))
        last = max(int(np.floor(value + reach)), 0)
        counts = np.arange(max(int(np.ceil(value - reach)), 0), last + 1, dtype=np.float64)
        mass = noise_at(law, value - counts)
        # Noise is nearly never so far below 0: only the count 0 is left.
        return cls(weights(int(counts[0]), mass) if mass.max() > 0 else Weights(0, np.ones(1)))


def noise_at(law: Law, x: FloatArray) -> FloatArray:
    """The weight of noise of ``x``."""
    if is_lattice_law(law):
        return np.asarray(law.pmf(x), dtype=np.float64)
    if isinstance(law, ContinuousLaw):
        return np.asarray(law.pdf(x), dtype=np.float64)
    raise ConfigError(
        f"{type(law).__name__} is neither a law on a lattice nor one with a density; its tables cannot be drawn"
    )


def bins(largest: int) -> IntArray:
    """The first counts of the bins, 0 first, and one beyond ``largest``: single counts up to 9, then bins that are each
    a quarter wider.
    """
    begins = list(range(_EXACT_BINS))
    while begins[-1] <= largest:
        begins.append(max(begins[-1] + 1, round(begins[-1] * _GROWTH)))
    return np.array(begins, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of one cell: the ``geography``, every node's ``likelihood``, the least-squares ``estimate``
    (nodes,), and the ``begins`` of the prior's bins, within which all counts have the same weight.
    """

    geography: Geography
    likelihood: tuple[Likelihood, ...]
    estimate: FloatArray
    begins: IntArray
    places: tuple[IntArray, ...]

    @classmethod
    def of(cls, geography: Geography, likelihood: list[Likelihood], estimate: FloatArray) -> Posterior:
        """Every leaf is measured or exact."""
        of_leaves = [one.weights for one in likelihood[geography.tree.leaves]]
        known = [one for one in of_leaves if one is not None]
        begins = bins(max(one.last for one in known))
        places = tuple(np.searchsorted(begins, np.arange(one.first, one.last + 1), side="right") - 1 for one in known)
        return cls(geography, tuple(likelihood), estimate, begins, places)

    def draw(self, prior: FloatArray, rng: np.random.Generator) -> IntArray:
        """A table (nodes,), given the weights of the bins of the ``prior`` (bins,).

        Raises `ProjectionError` where no table agrees with the measurements of a node and of those below it.
        """
        tree = self.geography.tree
        per_count = prior / np.diff(self.begins)
        known: list[Weights] = [Weights(0, np.ones(1))] * tree.n_nodes
        for place, (node, where) in enumerate(zip(range(tree.leaves.start, tree.n_nodes), self.places, strict=True)):
            one = self.likelihood[node].weights
            assert one is not None, place  # nosec B101 # narrows a type: `of` takes measured leaves
            known[node] = self._posterior(node, one.first, one.mass * per_count[where])
        families: list[Merged] = []
        for node in range(tree.n_families - 1, -1, -1):
            children = known[tree.children(node)]
            families.append(merged(children))
            known[node], families[-1] = self._above(node, children, families[-1])
        families.reverse()
        table = np.zeros(tree.n_nodes, np.int64)
        root = np.cumsum(known[0].mass)
        table[0] = known[0].first + int(np.searchsorted(root, rng.random() * root[-1], side="right"))
        uniforms = rng.random(tree.n_nodes)
        for node, family in enumerate(families):
            children_at = tree.children(node)
            table[children_at] = family.divided(int(table[node]), uniforms[children_at])
        return table

    def _above(self, node: int, children: list[Weights], family: Merged) -> tuple[Weights, Merged]:
        """The weights of an inner node, and the sums below it, exponentially tilted where the measurement is far from
        their mean.
        """
        own = self.likelihood[node].weights
        if own is None:
            return family.total, family
        mass = own.mass * family.total.between(own.first, own.last)
        if mass.max(initial=0.0) > _BENEATH_ROUNDING:
            return weights(own.first, mass), family
        moved, rate = tilted(children, float(np.clip(self.estimate[node], own.first, own.last)))
        family = merged(moved)
        mass = own.mass * family.total.between(own.first, own.last)
        exponent = -rate * np.arange(len(mass))
        return self._posterior(node, own.first, mass * np.exp(exponent - exponent.max())), family

    def _posterior(self, node: int, first: int, mass: FloatArray) -> Weights:
        if not mass.max(initial=0.0) > 0.0:
            raise ProjectionError(
                f"{self.geography.describe(node)}: no whole, non-negative counts agree with its measurement and with "
                "those below it; correct the exact values"
            )
        return weights(first, mass)
