"""Groups of units, and weighted means over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Groups:
    """``labels`` (groups,), in the order of their first appearance; ``code`` (units,): every unit's group among them.
    ``part`` (units,): its part of its group's weight, which add up to 1 in every group, or to 0 where it has none."""

    labels: tuple[str, ...]
    code: IntArray
    part: FloatArray

    @classmethod
    def of(
        cls, labels: Iterable[object], weights: Sequence[float] | FloatArray = (), units: int | None = None
    ) -> Groups:
        """From one label per unit, and one weight of 0 or more per unit (all alike where there are none).

        Raises `ConfigError` for another number of labels or weights than ``units``, or a weight that is negative or not
        finite.
        """
        given = [str(label) for label in labels]
        if units is not None and len(given) != units:
            raise ConfigError(f"{len(given)} group labels for {units} units; give every unit one")
        named = list(dict.fromkeys(given))
        position = {label: k for k, label in enumerate(named)}
        code = np.array([position[label] for label in given], dtype=np.int64)
        weight = np.asarray(weights, dtype=np.float64) if len(weights) else np.ones(len(given))
        if weight.shape != code.shape:
            raise ConfigError(f"{len(weight)} weights for {len(given)} units; give every unit one")
        if not (np.isfinite(weight) & (weight >= 0)).all():
            raise ConfigError(
                "the weights of a grouping are not all numbers of 0 or more; give every unit such a number"
            )
        total = np.bincount(code, weight, len(named))[code] if len(code) else weight
        return cls(tuple(named), code, np.divide(weight, total, out=np.zeros_like(weight), where=total > 0))

    @property
    def size(self) -> IntArray:
        """(groups,): how many units each has."""
        return np.bincount(self.code, minlength=len(self.labels))

    def mean(self, values: npt.ArrayLike) -> FloatArray:
        """The weighted means (..., groups) of ``values`` (..., units)."""
        weighted = np.asarray(values, dtype=np.float64)[..., self._order] * self.part[self._order]
        first = np.concatenate([[0], np.cumsum(self.size)[:-1]])
        return np.asarray(np.add.reduceat(weighted, first, axis=-1))

    @cached_property
    def _order(self) -> IntArray:
        """The units, group by group."""
        return np.argsort(self.code, kind="stable")

    def pooled(self, standard_errors: npt.ArrayLike) -> FloatArray:
        """The standard errors (groups,) of the means over units whose errors are uncorrelated."""
        squares = (self.part * np.asarray(standard_errors, dtype=np.float64)) ** 2
        return np.asarray(np.sqrt(np.bincount(self.code, squares, len(self.labels))))

    def of_each(self, values: FloatArray) -> FloatArray:
        """(groups,): the value of ``values`` (units,) at each group's first unit."""
        return np.asarray(values[np.unique(self.code, return_index=True)[1]])
