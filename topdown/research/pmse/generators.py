"""Families of laws from which synthetic records are drawn: parameters with a prior, and a sampler.

Every family here has parameters in all of R^k with a normal prior, so that a random walk can move among them;
probabilities are the softmax of parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from topdown.errors import ConfigError
from topdown.noise import Source
from topdown.noise.randomness import read_exactly
from topdown.research.pmse.columns import FloatArray
from topdown.workload.schema import Schema


class Generator(Protocol):
    """A family of laws. None of its methods uses the original records.

    Examples:
        >>> def parameters(generator: td.synthesis.generators.Generator) -> int:
        ...     return generator.dimension
        >>> parameters(td.synthesis.generators.GaussianRegressions(columns=2))
        5
    """

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        ...

    def prior(self, source: Source) -> FloatArray:
        """One parameter vector from the prior, by the bits of ``source``."""
        ...

    def log_prior(self, parameters: FloatArray) -> float:
        """The log density of the prior at ``parameters``, up to a constant."""
        ...

    def sample(self, parameters: FloatArray, n: int, source: Source) -> Any:
        """``n`` synthetic records under ``parameters``, from ``source``: an array (n x columns) or a frame."""
        ...


def numpy_generator(source: Source) -> np.random.Generator:
    """A fast generator seeded with 256 bits of ``source``: for draws that do not depend on confidential records.

    Args:
        source: where the seed comes from.

    Examples:
        >>> rng = td.synthesis.generators.numpy_generator(td.SeededSource(1))
        >>> rng.integers(0, 10, 3).shape
        (3,)
    """
    return np.random.Generator(np.random.PCG64(int.from_bytes(read_exactly(source, 32), "little")))


def _normal_prior(dimension: int, mean: float, variance: float, source: Source) -> FloatArray:
    return numpy_generator(source).normal(mean, math.sqrt(variance), dimension)


def _log_normal_prior(parameters: FloatArray, mean: float, variance: float) -> float:
    return float(-((parameters - mean) ** 2).sum() / (2 * variance))


def _require_positive(variance: float) -> None:
    if not variance > 0:
        raise ConfigError(f"prior_variance is {variance}; give a number above 0")


@dataclass(frozen=True, slots=True)
class GaussianRegressions:
    """Continuous columns one after another, each normal with a mean linear in those before it.

    Column j (from 0) has j + 2 parameters: the intercept, the slopes on columns 0 to j - 1, the spread. The source
    writes N(2, 10) and does not say whether that is a variance or a deviation; its printed results are those of
    deviations (docs/pmse.md), and so are the defaults: the prior N(0, 10) has the variance 100. A spread that the prior
    or a random walk makes negative counts by its size. The prior of every parameter is normal.

    Args:
        columns: how many columns there are.
        spread: what the spread is, "variance" or "deviation".
        prior_mean: of every parameter.
        prior_variance: of every parameter, above 0.

    Source: Snoke, Slavkovic, "pMSE Mechanism", section 5: X1 ~ N(t1, t2), X2 ~ N(t3 + t4 X1, t5), t ~ N(0, 10).

    Examples:
        >>> generator = td.synthesis.generators.GaussianRegressions(columns=2)
        >>> generator.dimension
        5
    """

    columns: int = 2
    spread: Literal["variance", "deviation"] = "deviation"
    prior_mean: float = 0.0
    prior_variance: float = 100.0

    def __post_init__(self) -> None:
        _require_positive(self.prior_variance)
        if self.columns < 1 or self.spread not in ("variance", "deviation"):
            raise ConfigError(
                f"{self.columns} columns, spread {self.spread!r}: give 1 or more, 'variance' or 'deviation'"
            )

    @property
    def dimension(self) -> int:
        return self.columns * (self.columns + 3) // 2

    def prior(self, source: Source) -> FloatArray:
        return _normal_prior(self.dimension, self.prior_mean, self.prior_variance, source)

    def log_prior(self, parameters: FloatArray) -> float:
        return _log_normal_prior(parameters, self.prior_mean, self.prior_variance)

    def sample(self, parameters: FloatArray, n: int, source: Source) -> FloatArray:
        _require_length(parameters, self.dimension)
        normal = numpy_generator(source).standard_normal((n, self.columns))
        drawn = np.empty((n, self.columns))
        at = 0
        for j in range(self.columns):
            intercept, slopes, spread = parameters[at], parameters[at + 1 : at + 1 + j], abs(parameters[at + 1 + j])
            deviation = math.sqrt(spread) if self.spread == "variance" else spread
            drawn[:, j] = intercept + drawn[:, :j] @ slopes + deviation * normal[:, j]
            at += j + 2
        return drawn


@dataclass(frozen=True, slots=True)
class IndependentCategoricals:
    """The attributes of ``schema``, independent of each other: one parameter per category; probabilities are their
    softmax within each attribute.

    Args:
        schema: the attributes.
        prior_variance: of every parameter, above 0; the prior is normal with mean 0.

    Examples:
        >>> generator = td.synthesis.generators.IndependentCategoricals(schema)
        >>> generator.dimension
        5
    """

    schema: Schema
    prior_variance: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(self.prior_variance)

    @property
    def dimension(self) -> int:
        return sum(self.schema.shape)

    def prior(self, source: Source) -> FloatArray:
        return _normal_prior(self.dimension, 0.0, self.prior_variance, source)

    def log_prior(self, parameters: FloatArray) -> float:
        return _log_normal_prior(parameters, 0.0, self.prior_variance)

    def sample(self, parameters: FloatArray, n: int, source: Source) -> pd.DataFrame:
        _require_length(parameters, self.dimension)
        rng = numpy_generator(source)
        pieces = np.split(parameters, np.cumsum(self.schema.shape)[:-1])
        codes = [_choose(_softmax(one)[None], np.zeros(n, dtype=np.int64), rng) for one in pieces]
        return _frame(self.schema, codes)


@dataclass(frozen=True, slots=True)
class MarkovCategoricals:
    """The attributes of ``schema`` as a Markov chain in their order: each depends on the one before it.

    Parameters: one per category of the first attribute, then for every further one a row of categories for each
    category of the one before, softmaxed by row.

    Args:
        schema: the attributes, in the order of the chain.
        prior_variance: of every parameter, above 0; the prior is normal with mean 0.

    Examples:
        >>> generator = td.synthesis.generators.MarkovCategoricals(schema)
        >>> generator.dimension
        8
    """

    schema: Schema
    prior_variance: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(self.prior_variance)

    @property
    def dimension(self) -> int:
        return sum(rows * columns for rows, columns in self._blocks())

    def _blocks(self) -> list[tuple[int, int]]:
        return list(zip((1, *self.schema.shape), self.schema.shape, strict=False))

    def prior(self, source: Source) -> FloatArray:
        return _normal_prior(self.dimension, 0.0, self.prior_variance, source)

    def log_prior(self, parameters: FloatArray) -> float:
        return _log_normal_prior(parameters, 0.0, self.prior_variance)

    def sample(self, parameters: FloatArray, n: int, source: Source) -> pd.DataFrame:
        _require_length(parameters, self.dimension)
        rng = numpy_generator(source)
        codes, before, at = [], np.zeros(n, dtype=np.int64), 0
        for rows, columns in self._blocks():
            table = parameters[at : at + rows * columns].reshape(rows, columns)
            before = _choose(_softmax(table), before, rng)
            codes.append(before)
            at += rows * columns
        return _frame(self.schema, codes)


@dataclass(frozen=True, slots=True)
class LogLinear:
    """The cells of ``schema`` with log probabilities linear in main effects and interactions of pairs.

    The first category of every attribute is the baseline: an attribute of r categories has r - 1 parameters, a pair
    (r - 1)(s - 1).

    Args:
        schema: the attributes.
        interactions: whether pairs have parameters.
        prior_variance: of every parameter, above 0; the prior is normal with mean 0.

    Examples:
        >>> generator = td.synthesis.generators.LogLinear(schema)
        >>> generator.dimension
        5
    """

    schema: Schema
    interactions: bool = True
    prior_variance: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(self.prior_variance)

    @property
    def dimension(self) -> int:
        free = [k - 1 for k in self.schema.shape]
        return sum(free) + (sum(a * b for a, b in combinations(free, 2)) if self.interactions else 0)

    def prior(self, source: Source) -> FloatArray:
        return _normal_prior(self.dimension, 0.0, self.prior_variance, source)

    def log_prior(self, parameters: FloatArray) -> float:
        return _log_normal_prior(parameters, 0.0, self.prior_variance)

    def cell_probabilities(self, parameters: FloatArray) -> FloatArray:
        """The probability of every cell under ``parameters``, (cells,) in the schema's order, the last attribute
        changing fastest.
        """
        _require_length(parameters, self.dimension)
        codes = np.indices(self.schema.shape).reshape(len(self.schema.shape), -1)
        main = [
            (code[:, None] == np.arange(1, k)).astype(float) for code, k in zip(codes, self.schema.shape, strict=True)
        ]
        pieces = list(main)
        if self.interactions:
            pieces += [(a[:, :, None] * b[:, None, :]).reshape(len(a), -1) for a, b in combinations(main, 2)]
        return _softmax(np.concatenate(pieces, axis=1) @ parameters)

    def sample(self, parameters: FloatArray, n: int, source: Source) -> pd.DataFrame:
        cell = _choose(self.cell_probabilities(parameters)[None], np.zeros(n, dtype=np.int64), numpy_generator(source))
        return _frame(self.schema, list(np.unravel_index(cell, self.schema.shape)))


def _softmax(logits: FloatArray) -> FloatArray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    law: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return law


def _choose(law: FloatArray, row: Any, rng: np.random.Generator) -> Any:
    """For every element a category, drawn from the row of ``law`` that ``row`` gives."""
    ends = np.cumsum(law, axis=1)
    return np.minimum((rng.random(len(row))[:, None] >= ends[row]).sum(axis=1), law.shape[1] - 1)


def _frame(schema: Schema, codes: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(
        {a.name: np.array(a.categories, dtype=object)[code] for a, code in zip(schema.attributes, codes, strict=True)}
    )


def _require_length(parameters: FloatArray, dimension: int) -> None:
    if np.shape(parameters) != (dimension,):
        raise ConfigError(f"parameters of shape {np.shape(parameters)}; the family has {dimension} of them")
