"""The pMSE mechanism by a random walk, as its source samples it: approximate, with diagnostics that say how far.

Source: Snoke, Slavkovic, "pMSE Mechanism", Algorithm 2 and section 4; Vehtari, Gelman, Simpson, Carpenter, Buerkner,
"Rank-normalization, folding, and localization: an improved R-hat", for R-hat and the effective sample size.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.noise import ExactNumber, Source
from topdown.pmse.columns import FloatArray, as_frame
from topdown.pmse.generators import Generator, numpy_generator
from topdown.pmse.mechanism import ExpectedPMSE
from topdown.privacy.numbers import exact_number

APPROXIMATE = (
    "Approximate: epsilon-differential privacy would hold for a draw from the chains' limit. A chain of finite length, "
    "with a quality that is estimated anew from synthetic data at every step, is not its limit, and convergence "
    "diagnostics prove nothing about privacy. Use PMSEMechanism for a guarantee."
)

PAPER_QUALITY = ExpectedPMSE(bound="paper")


@dataclass(frozen=True, eq=False)
class Chains:
    """Random walks: ``parameters`` (chains x steps x dimension), ``log_density`` (chains x steps), the share accepted.

    ``statement`` says that what comes from them is approximate.
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
        """(dimension,): how many independent draws the chains are worth for a parameter's mean."""
        return _diagnostic("ess", self.parameters)

    def draw(self, source: Source) -> FloatArray:
        """The last parameters of a chain that is chosen at random."""
        chain = int(numpy_generator(source).integers(len(self.parameters)))
        return np.array(self.parameters[chain, -1])


def _diagnostic(name: str, parameters: FloatArray) -> FloatArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz

        diagnostics: Any = arviz
        found = getattr(diagnostics, name)(diagnostics.convert_to_dataset({"parameters": parameters}))
    return np.asarray(found["parameters"].to_numpy(), dtype=np.float64)


def random_walk(
    log_density: Callable[[FloatArray], float],
    start: FloatArray,
    step: float | FloatArray,
    steps: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray, int]:
    """Metropolis: propose a normal step of deviation ``step``, accept with min(1, density ratio).

    Gives (parameters (steps x dimension), their log densities, how many proposals were accepted). The density of a
    point is evaluated once, when it is proposed.
    """
    here, value, accepted = np.array(start, dtype=np.float64), log_density(start), 0
    path, values = np.empty((steps, len(here))), np.empty(steps)
    for k in range(steps):
        there = here + step * rng.standard_normal(len(here))
        new = log_density(there)
        if math.log(1.0 - rng.random()) < new - value:
            here, value, accepted = there, new, accepted + 1
        path[k], values[k] = here, value
    return path, values, accepted


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
) -> Chains:
    """Chains whose limit is the exponential mechanism: density ~ prior x exp(-epsilon u / (2 D)), D = 1/n by default.

    The prior is the generator's (the source takes a flat one, N(0, 100000): the density is improper without any, as u
    is at most 1/4). ``starts`` (chains x dimension), by default draws from the prior. ``step``: of the random walk, one
    number or one per parameter. The quality at a proposal is estimated from fresh synthetic data and kept as long as
    the chain stays. For studies: see `APPROXIMATE`.
    """
    if chains < 2 or steps < 4:
        raise ConfigError(f"{chains} chains of {steps} steps; give at least 2 of at least 4, or R-hat is not defined")
    frame = as_frame(original)
    n = len(frame)
    factor = float(exact_number(epsilon, "epsilon") / (2 * quality.sensitivity(n)))

    def log_density(parameters: FloatArray) -> float:
        sets = tuple(generator.sample(parameters, n, source) for _ in range(quality.sets))
        return generator.log_prior(parameters) - factor * quality.value(frame, sets)

    rng = numpy_generator(source)
    if starts is None:
        begin = np.stack([generator.prior(source) for _ in range(chains)])
    else:
        begin = np.broadcast_to(np.asarray(starts, dtype=np.float64), (chains, generator.dimension))
    width = np.asarray(step, dtype=np.float64)
    walks = [random_walk(log_density, one, width, steps, rng) for one in begin]
    return Chains(
        parameters=np.stack([walk[0] for walk in walks]),
        log_density=np.stack([walk[1] for walk in walks]),
        accepted=sum(walk[2] for walk in walks) / (chains * steps),
    )
