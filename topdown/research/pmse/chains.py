"""The pMSE mechanism by a random walk, as in its source: approximate, with diagnostics of the error.

Source: Snoke, Slavkovic, "pMSE Mechanism", Algorithm 2 and section 4; Vehtari, Gelman, Simpson, Carpenter, Buerkner,
"Rank-normalization, folding, and localization: an improved R-hat", for R-hat and the effective sample size; Andrieu,
Roberts, "The pseudo-marginal approach for efficient Monte Carlo computations", for densities that are estimated.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

from topdown.errors import ConfigError
from topdown.noise import ExactNumber, Source
from topdown.privacy.budget_numbers import exact_number
from topdown.research.pmse.columns import FloatArray, as_frame
from topdown.research.pmse.generators import Generator, numpy_generator
from topdown.research.pmse.pmse_mechanism import ExpectedPMSE

APPROXIMATE = (
    "Approximate: epsilon-differential privacy would hold for a draw from the chains' limit. A chain of finite length, "
    "with a quality that is estimated anew from synthetic data at every step, is not its limit, and convergence "
    "diagnostics prove nothing about privacy. Use PMSEMechanism for a guarantee."
)

PAPER_QUALITY = ExpectedPMSE(bound="paper")


@dataclass(frozen=True, eq=False)
class Chains:
    """Random walks: ``parameters`` (chains x steps x dimension), ``log_density`` (chains x steps), the share accepted.

    ``statement`` says that the results are approximate.
    """

    parameters: FloatArray = field(repr=False)
    log_density: FloatArray = field(repr=False)
    accepted: float
    statement: str = APPROXIMATE

    @property
    def rhat(self) -> FloatArray:
        """(dimension,): R-hat of every parameter; about 1 where the chains agree, NaN where none of them moved."""
        return _diagnostic("rhat", self.parameters)

    @property
    def effective_samples(self) -> FloatArray:
        """(dimension,): the effective sample size of the chains for the mean of every parameter."""
        return _diagnostic("ess", self.parameters)

    def draw(self, source: Source) -> FloatArray:
        """The last parameters of a randomly chosen chain."""
        chain = int(numpy_generator(source).integers(len(self.parameters)))
        return np.array(self.parameters[chain, -1])


def _diagnostic(name: str, parameters: FloatArray) -> FloatArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz

        diagnostics: Any = arviz
        found = getattr(diagnostics, name)(diagnostics.convert_to_dataset({"parameters": parameters}))
    return np.asarray(found["parameters"].to_numpy(), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Jumps:
    """Proposals that do not depend on where a chain is: a mixture of multivariate t laws.

    ``shares`` (components) add up to 1, ``means`` (components x dimension), ``scales`` (components x dimension x
    dimension): the laws' positive definite scale matrices, ``freedom`` their degrees of freedom. ``often``: the
    probability that a step of a chain is such a jump. A chain forgets its place wherever the mixture's density is not
    far below its limit's; it does not matter to the limit itself. Raises `ConfigError` for an invalid mixture.
    """

    shares: FloatArray
    means: FloatArray = field(repr=False)
    scales: FloatArray = field(repr=False)
    freedom: float = 5.0
    often: float = 0.75

    def __post_init__(self) -> None:
        shape = np.shape(self.means)
        if len(shape) != 2 or np.shape(self.shares) != shape[:1] or np.shape(self.scales) != (*shape, shape[1]):
            raise ConfigError(
                f"shares {np.shape(self.shares)}, means {shape}, scales {np.shape(self.scales)}; give a share, a mean "
                "and a scale matrix by component"
            )
        if not math.isclose(float(np.sum(self.shares)), 1.0) or float(np.min(self.shares)) <= 0:
            raise ConfigError(f"the shares are {list(map(float, self.shares))}; give shares above 0 that add up to 1")
        if not self.freedom > 0 or not 0 < self.often <= 1:
            raise ConfigError(f"freedom {self.freedom}, often {self.often}: give a number above 0 and a probability")

    @cached_property
    def _roots(self) -> FloatArray:
        try:
            roots: FloatArray = np.linalg.cholesky(self.scales).astype(np.float64, copy=False)
        except np.linalg.LinAlgError as error:
            raise ConfigError("a scale matrix of the jumps is not positive definite; give one that is") from error
        return roots

    @cached_property
    def _constants(self) -> FloatArray:
        """(components,): the log of share x the t law's greatest density."""
        k = self.means.shape[1]
        volume = np.log(np.diagonal(self._roots, axis1=1, axis2=2)).sum(axis=1)
        height = gammaln((self.freedom + k) / 2) - gammaln(self.freedom / 2) - k / 2 * math.log(self.freedom * math.pi)
        constants: FloatArray = np.log(self.shares) + height - volume
        return constants

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """(dimension,): one proposal."""
        one = int(rng.choice(len(self.shares), p=self.shares))
        normal = self._roots[one] @ rng.standard_normal(self.means.shape[1])
        found: FloatArray = self.means[one] + normal / math.sqrt(rng.chisquare(self.freedom) / self.freedom)
        return found

    def log_parts(self, parameters: FloatArray) -> FloatArray:
        """(components,): the logs of share x density of every component."""
        apart = np.linalg.solve(self._roots, (parameters - self.means)[:, :, None])[:, :, 0]
        power = (self.freedom + self.means.shape[1]) / 2
        parts: FloatArray = self._constants - power * np.log1p((apart**2).sum(axis=1) / self.freedom)
        return parts

    def log_density(self, parameters: FloatArray) -> float:
        """The log of the mixture's density."""
        return float(logsumexp(self.log_parts(parameters)))

    def adapted(self, log_density: Callable[[FloatArray], float], draws: int, rng: np.random.Generator) -> Jumps:
        """The same laws, half of their shares given to those from which the limit of ``log_density`` comes.

        Its masses are estimated from ``draws`` of these jumps, weighted by the ratio of the densities: before a chain
        begins, or it would not forget them (Cappe, Guillin, Marin, Robert, "Population Monte Carlo").
        """
        parts = np.empty((draws, len(self.shares)))
        ratios = np.empty(draws)
        for k in range(draws):
            point = self.draw(rng)
            parts[k] = self.log_parts(point)
            ratios[k] = log_density(point) - logsumexp(parts[k])
        if not np.isfinite(ratios.max()):
            return self
        weights = np.exp(ratios - ratios.max())
        masses = (weights / weights.sum()) @ np.exp(parts - logsumexp(parts, axis=1, keepdims=True))
        return replace(self, shares=(self.shares + masses) / 2)


def random_walk(
    log_density: Callable[[FloatArray], float],
    start: FloatArray,
    step: float | FloatArray,
    steps: int,
    rng: np.random.Generator,
    jumps: Jumps | None = None,
) -> tuple[FloatArray, FloatArray, int]:
    """Metropolis: propose a normal step of deviation ``step``, accept with min(1, density ratio).

    With ``jumps``, some of the proposals q come from them instead, and are accepted with min(1, ratio of density / q).
    Gives (parameters (steps x dimension), their log densities, how many proposals were accepted). The density of a
    point is evaluated once, when it is proposed.
    """
    here, value, accepted = np.array(start, dtype=np.float64), log_density(start), 0
    path, values = np.empty((steps, len(here))), np.empty(steps)
    for k in range(steps):
        correction = 0.0
        if jumps is not None and rng.random() < jumps.often:
            there = jumps.draw(rng)
            correction = jumps.log_density(here) - jumps.log_density(there)
        else:
            there = here + step * rng.standard_normal(len(here))
        new = log_density(there)
        if math.log(1.0 - rng.random()) < new - value + correction:
            here, value, accepted = there, new, accepted + 1
        path[k], values[k] = here, value
    return path, values, accepted


def estimated_log_density(
    generator: Generator, original: Any, epsilon: ExactNumber, *, source: Source, quality: ExpectedPMSE = PAPER_QUALITY
) -> Callable[[FloatArray], float]:
    """The log of prior x exp(-epsilon u / (2 D)) at parameters, up to a constant, u from new sets at every call."""
    n = len(as_frame(original))
    factor = float(exact_number(epsilon, "epsilon") / (2 * quality.sensitivity(n)))

    def log_density(parameters: FloatArray) -> float:
        sets = tuple(generator.sample(parameters, n, source) for _ in range(quality.sets))
        return generator.log_prior(parameters) - factor * quality.value(original, sets)

    return log_density


def metropolis(
    generator: Generator,
    original: Any,
    epsilon: ExactNumber,
    *,
    source: Source,
    quality: ExpectedPMSE = PAPER_QUALITY,
    chains: int = 4,
    steps: int = 1000,
    step: float | npt.ArrayLike = 0.5,
    starts: npt.ArrayLike | None = None,
    jumps: Jumps | None = None,
) -> Chains:
    """Chains whose limit is the exponential mechanism: density ~ prior x exp(-epsilon u / (2 D)), D = 1/n by default.

    The prior is the generator's (the source takes a flat one, N(0, 100000): the density is improper without any, as u
    is at most 1/4). ``starts`` (chains x dimension), by default draws from the prior. ``step``: of the random walk, one
    number or one per parameter. ``jumps``: proposals anywhere, beside the steps. The quality at a proposal is estimated
    from fresh synthetic data and kept as long as the chain stays: so the limit is prior x E exp(-epsilon U / (2 D)), U
    the mean of the ``quality``'s sets, exactly, and the more sets the nearer to the mechanism's. For studies: see
    `APPROXIMATE`.
    """
    if chains < 2 or steps < 4:
        raise ConfigError(f"{chains} chains of {steps} steps; give at least 2 of at least 4, or R-hat is not defined")
    log_density = estimated_log_density(generator, original, epsilon, source=source, quality=quality)
    rng = numpy_generator(source)
    if starts is None:
        begin = np.stack([generator.prior(source) for _ in range(chains)])
    else:
        begin = np.broadcast_to(np.asarray(starts, dtype=np.float64), (chains, generator.dimension))
    width = np.asarray(step, dtype=np.float64)
    walks = [random_walk(log_density, one, width, steps, rng, jumps) for one in begin]
    return Chains(
        parameters=np.stack([walk[0] for walk in walks]),
        log_density=np.stack([walk[1] for walk in walks]),
        accepted=sum(walk[2] for walk in walks) / (chains * steps),
    )
