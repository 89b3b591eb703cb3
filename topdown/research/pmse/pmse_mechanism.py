"""The pMSE mechanism: parameters of a family drawn by how well its records mimic the original ones.

Source: Snoke, Slavkovic, "pMSE Mechanism: Differentially Private Synthetic Data with Maximal Distributional
Similarity", Algorithm 2. The draw here is from candidates that were chosen without looking at the data; the source's
random walk is in `chains`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from topdown.errors import BudgetError, ConfigError
from topdown.noise import ExactNumber, SecureSource, Source
from topdown.privacy.accounting import PureAccountant, PureEvent
from topdown.privacy.budget_numbers import exact_number
from topdown.research.pmse.classifiers import CART
from topdown.research.pmse.columns import FloatArray, as_frame
from topdown.research.pmse.generators import Generator
from topdown.research.pmse.quality import mean_pmse
from topdown.research.pmse.selection import draw_exponential, draw_permute_and_flip, exponential_probabilities
from topdown.research.pmse.trees import OptimalTree, optimal_tree_sensitivity, paper_sensitivity

GRID_BITS = 40
"""Qualities are whole numbers of 2^-40, so that the draw needs no floating-point number."""

NO_GUARANTEE = (
    "No pure guarantee: a greedily grown tree is not globally optimal, and some neighbouring data sets exceed the "
    "sensitivity that its quality is charged with (docs/pmse.md has the measured rates). This must not be released as "
    "differentially private."
)

_STUMP = OptimalTree(1)


@dataclass(frozen=True, slots=True)
class ExpectedPMSE:
    """The quality of parameters: the mean pMSE of synthetic data sets with as many records as the original.

    Args:
        classifier: `OptimalTree` (depth 1 or 2), for which a sensitivity is proven, or `CART`, for which none is.
        sets: how many synthetic data sets.
        bound: the sensitivity that is charged, "exact", 1/(2 (n + 1)), or "paper", 1/n.

    Examples:
        >>> quality = td.synthesis.mechanism.ExpectedPMSE(sets=2)
        >>> quality.pure, quality.sensitivity(99)
        (True, Fraction(1, 200))
    """

    classifier: OptimalTree | CART = _STUMP
    sets: int = 5
    bound: Literal["exact", "paper"] = "exact"

    def __post_init__(self) -> None:
        if not isinstance(self.classifier, OptimalTree | CART):
            raise ConfigError(f"classifier {self.classifier!r}: give OptimalTree(1), OptimalTree(2) or CART(...)")
        if self.sets < 1 or self.bound not in ("exact", "paper"):
            raise ConfigError(f"{self.sets} sets, bound {self.bound!r}: give 1 or more, 'exact' or 'paper'")

    @property
    def pure(self) -> bool:
        """Whether the sensitivity is proven, so that the mechanism has its epsilon."""
        return isinstance(self.classifier, OptimalTree)

    def sensitivity(self, n: int) -> Fraction:
        """How far one of ``n`` records, substituted, can move the quality; for `CART` a bound that does not hold."""
        return optimal_tree_sensitivity(n) if self.bound == "exact" else paper_sensitivity(n)

    def value(self, original: Any, synthetic_sets: tuple[Any, ...]) -> float:
        """The mean pMSE of ``synthetic_sets`` beside the ``original`` records; the smaller the better."""
        return mean_pmse(original, synthetic_sets, self.classifier)


@dataclass(frozen=True)
class Candidates:
    """Parameter vectors from the prior with their synthetic data sets; made without looking at the data.

    Args:
        parameters: (candidates x dimension).
        synthetic_sets: the data sets of every candidate.

    Examples:
        >>> generator = td.synthesis.generators.GaussianRegressions(columns=2)
        >>> mechanism = td.synthesis.mechanism.PMSEMechanism(generator, epsilon=1, candidates=20)
        >>> mechanism.propose(50, td.SeededSource(1)).parameters.shape
        (20, 5)
    """

    parameters: FloatArray = field(repr=False)
    synthetic_sets: tuple[tuple[Any, ...], ...] = field(repr=False)


@dataclass(frozen=True)
class Synthesis:
    """What the mechanism released.

    Args:
        parameters: the parameter vector of every release.
        data: one synthetic data set of every release.
        events: what it cost, for an accountant; empty where there is no guarantee.
        guarantee: the same in words.
        fit_for_release: whether the draw was exact, from operating-system entropy, and the guarantee holds.

    Examples:
        >>> generator = td.synthesis.generators.GaussianRegressions(columns=2)
        >>> mechanism = td.synthesis.mechanism.PMSEMechanism(generator, epsilon=1, candidates=20)
        >>> made = mechanism.release(np.arange(100.0).reshape(50, 2), source=td.SeededSource(1))
        >>> made.data[0].shape, made.fit_for_release
        ((50, 2), False)
    """

    parameters: tuple[FloatArray, ...]
    data: tuple[Any, ...] = field(repr=False)
    events: tuple[PureEvent, ...]
    guarantee: str
    fit_for_release: bool


@dataclass(frozen=True, slots=True)
class PMSEMechanism:
    """Algorithm 2, exactly: parameter vectors from the prior, of which one is drawn by its expected pMSE.

    With quality u_k (the mean pMSE, on a grid) and sensitivity D, candidate k has probability proportional to
    exp(-epsilon u_k / (2 D)); ``selection`` "permute-and-flip" replaces the exponential law by one that is never worse.
    The candidates and their synthetic data sets are drawn before the data is looked at, so that the guarantee is pure
    ``epsilon``, whatever their number; it needs no chain to have converged. Neighbours substitute one record, and the
    number of records is public. The data set that is published is drawn from the chosen parameters alone, which costs
    nothing more.

    Args:
        generator: the family of laws that synthetic data comes from.
        epsilon: the budget of one release.
        quality: how candidates are judged, with its sensitivity.
        candidates: how many parameter vectors are drawn from the prior.
        selection: "exponential" or "permute-and-flip".
        unit: what one record is, such as "person".

    Raises `BudgetError` for an epsilon that is not above 0, `ConfigError` for unknown options.

    Examples:
        >>> generator = td.synthesis.generators.GaussianRegressions(columns=2)
        >>> mechanism = td.synthesis.mechanism.PMSEMechanism(generator, epsilon=1, candidates=20)
        >>> made = mechanism.release(np.arange(100.0).reshape(50, 2), source=td.SeededSource(1))
        >>> made.events[0].epsilon
        Fraction(1, 1)
    """

    generator: Generator
    epsilon: ExactNumber
    quality: ExpectedPMSE = ExpectedPMSE()
    candidates: int = 1000
    selection: Literal["exponential", "permute-and-flip"] = "exponential"
    unit: str = "person"

    def __post_init__(self) -> None:
        if exact_number(self.epsilon, "epsilon") <= 0:
            raise BudgetError(f"epsilon is {self.epsilon}; give a number above 0")
        if self.candidates < 1:
            raise ConfigError(f"{self.candidates} candidates; give 1 or more")
        if self.selection not in ("exponential", "permute-and-flip"):
            raise ConfigError(f"selection {self.selection!r}: give 'exponential' or 'permute-and-flip'")

    def events(self, releases: int = 1) -> tuple[PureEvent, ...]:
        """What ``releases`` cost: each of them epsilon. Raises `BudgetError` where there is no guarantee."""
        if not self.quality.pure:
            raise BudgetError(f"{NO_GUARANTEE} Use OptimalTree(1) or OptimalTree(2)")
        event = PureEvent(
            level="microdata",
            query="parameters",
            mechanism=f"pMSE, {self.selection}",
            epsilon=exact_number(self.epsilon, "epsilon"),
            unit=self.unit,
            neighbours="substitute",
        )
        return (event,) * releases

    def propose(self, n: int, source: Source) -> Candidates:
        """Candidates for ``n`` original records, from the prior alone, by the bits of ``source``."""
        parameters = np.stack([self.generator.prior(source) for _ in range(self.candidates)])
        sets = tuple(
            tuple(self.generator.sample(one, n, source) for _ in range(self.quality.sets)) for one in parameters
        )
        return Candidates(parameters, sets)

    def exponents(self, original: Any, candidates: Candidates) -> list[Fraction]:
        """epsilon (u_k - min u) / (2 D) for every one of ``candidates``, given the ``original`` records, exactly;
        confidential.
        """
        frame = as_frame(original)
        values = [self.quality.value(frame, sets) for sets in candidates.synthetic_sets]
        steps = [round(value * 2**GRID_BITS) for value in values]
        # A quality is off by half a step of rounding and far less of floating point, its difference by 2 steps at most.
        sensitivity = self.quality.sensitivity(len(frame)) * 2**GRID_BITS + 2
        factor = exact_number(self.epsilon, "epsilon") / (2 * sensitivity)
        return [factor * (step - min(steps)) for step in steps]

    def probabilities(self, original: Any, candidates: Candidates) -> FloatArray:
        """The exponential law over ``candidates``, given the ``original`` records, in floating point; confidential, for
        tests and studies.
        """
        return exponential_probabilities(self.exponents(original, candidates))

    def release(
        self,
        original: Any,
        *,
        releases: int = 1,
        source: Source | None = None,
        accountant: PureAccountant | None = None,
    ) -> Synthesis:
        """``releases`` independent draws, each with a synthetic data set as large as the original one.

        They cost ``releases`` times epsilon. Raises `BudgetError` where that passes its limit, or where it is given and
        there is no guarantee.

        Args:
            original: the confidential records.
            releases: how many.
            source: where the random bits come from; by default the operating system's entropy.
            accountant: is charged before the first draw; by default none.
        """
        if releases < 1:
            raise ConfigError(f"releases is {releases}; give 1 or more")
        source = SecureSource() if source is None else source
        events = self.events(releases) if self.quality.pure or accountant is not None else ()
        if accountant is not None:
            accountant.compose(events)
        frame = as_frame(original)
        candidates = self.propose(len(frame), source)
        exponents = self.exponents(frame, candidates)
        draw = draw_exponential if self.selection == "exponential" else draw_permute_and_flip
        chosen = [candidates.parameters[draw(exponents, source)] for _ in range(releases)]
        return Synthesis(
            parameters=tuple(chosen),
            data=tuple(self.generator.sample(one, len(frame), source) for one in chosen),
            events=events,
            guarantee=self.describe(releases),
            fit_for_release=source.fit_for_release and self.quality.pure,
        )

    def describe(self, releases: int = 1) -> str:
        """What is guaranteed for this many ``releases``, in words."""
        if not self.quality.pure:
            return NO_GUARANTEE
        each = exact_number(self.epsilon, "epsilon")
        return (
            f"epsilon = {each * releases} in all, {each} for each of {releases} releases: pure differential privacy "
            f"for the substitution of one {self.unit}, the number of records being public, by the {self.selection} "
            f"mechanism over {self.candidates:,} candidates that were drawn without looking at the data."
        )
