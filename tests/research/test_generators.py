from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare, norm

from topdown.errors import ConfigError
from topdown.noise import SecureSource, SeededSource
from topdown.research.pmse.generators import (
    GaussianRegressions,
    Generator,
    IndependentCategoricals,
    LogLinear,
    MarkovCategoricals,
)
from topdown.workload.schema import Schema

SCHEMA = Schema.from_mapping({"a": ["p", "q"], "b": ["x", "y", "z"]})
FAMILIES: list[tuple[Generator, int]] = [
    (GaussianRegressions(2), 5),
    (GaussianRegressions(3), 9),
    (IndependentCategoricals(SCHEMA), 5),
    (MarkovCategoricals(SCHEMA), 2 + 6),
    (LogLinear(SCHEMA), 1 + 2 + 2),
    (LogLinear(SCHEMA, interactions=False), 3),
]
N = 20_000


@pytest.mark.parametrize(("family", "dimension"), FAMILIES)
def test_priors_have_the_family_s_dimension_and_the_density_they_say(family: Generator, dimension: int) -> None:
    assert family.dimension == dimension
    source = SeededSource(1)
    drawn = np.concatenate([family.prior(source) for _ in range(400)])
    variance = family.prior_variance  # type: ignore[attr-defined]
    assert np.var(drawn) == pytest.approx(variance, rel=0.2)
    a, b = np.full(dimension, 0.3), np.full(dimension, -1.2)
    ratio = (norm.logpdf(a, 0, variance**0.5) - norm.logpdf(b, 0, variance**0.5)).sum()
    assert family.log_prior(a) - family.log_prior(b) == pytest.approx(ratio)
    assert len(family.sample(family.prior(SecureSource()), 7, SecureSource())) == 7


@pytest.mark.parametrize(("family", "dimension"), FAMILIES)
def test_the_same_source_gives_the_same_records_and_another_does_not(family: Generator, dimension: int) -> None:
    one, again, other = (pd.DataFrame(family.sample(np.zeros(dimension) + 1, 50, SeededSource(k))) for k in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)


@pytest.mark.parametrize(("spread", "deviation"), [("variance", 3.0), ("deviation", 9.0)])
def test_gaussian_regressions_draw_the_regressions(spread: str, deviation: float) -> None:
    family = GaussianRegressions(2, spread=spread)  # type: ignore[arg-type]
    drawn = family.sample(np.array([2.0, 9.0, -2.5, 0.5, -9.0]), N, SeededSource(3))
    assert drawn[:, 0].mean() == pytest.approx(2, abs=6 * deviation / N**0.5)
    assert drawn[:, 0].std() == pytest.approx(deviation, rel=0.04)
    slope, intercept = np.polyfit(drawn[:, 0], drawn[:, 1], 1)
    assert slope == pytest.approx(0.5, abs=6 / N**0.5)
    assert intercept == pytest.approx(-2.5, abs=10 * deviation / N**0.5)
    residual = drawn[:, 1] - intercept - slope * drawn[:, 0]
    assert residual.std() == pytest.approx(deviation, rel=0.04)  # a negative spread counts by its size


def table(frame: pd.DataFrame) -> np.ndarray:
    return pd.crosstab(frame["a"], frame["b"]).reindex(index=["p", "q"], columns=["x", "y", "z"]).to_numpy()


def accept(law: np.ndarray, frame: pd.DataFrame) -> float:
    return float(chisquare(table(frame).ravel(), law.ravel() * len(frame)).pvalue)


def test_independent_categoricals_have_softmax_margins() -> None:
    parameters = np.log([0.3, 0.7, 0.2, 0.3, 0.5])
    frame = IndependentCategoricals(SCHEMA).sample(parameters + 4, N, SeededSource(4))
    law = np.outer([0.3, 0.7], [0.2, 0.3, 0.5])
    assert accept(law, frame) > 1e-9
    assert accept(np.outer([0.33, 0.67], [0.2, 0.3, 0.5]), frame) < 1e-9


def test_a_markov_chain_has_its_transitions() -> None:
    rows = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
    parameters = np.log(np.concatenate([[0.4, 0.6], rows.ravel()]))
    frame = MarkovCategoricals(SCHEMA).sample(parameters, N, SeededSource(5))
    law = np.array([0.4, 0.6])[:, None] * rows
    assert accept(law, frame) > 1e-9
    assert accept(np.array([0.4, 0.6])[:, None] * rows[::-1], frame) < 1e-9


def test_log_linear_probabilities_are_the_model_s() -> None:
    # Parameters: a = q; b = y, z; q and y, q and z.
    parameters = np.array([0.5, -0.4, 0.2, 0.9, -0.3])
    logits = np.array([[0, -0.4, 0.2], [0.5, 0.5 - 0.4 + 0.9, 0.5 + 0.2 - 0.3]])
    law = np.exp(logits) / np.exp(logits).sum()
    family = LogLinear(SCHEMA)
    np.testing.assert_allclose(family.cell_probabilities(parameters), law.ravel(), rtol=1e-12)
    frame = family.sample(parameters, N, SeededSource(6))
    assert accept(law, frame) > 1e-9
    without = np.exp(logits - [[0, 0, 0], [0, 0.9, -0.3]])
    assert accept(without / without.sum(), frame) < 1e-9
    plain = LogLinear(SCHEMA, interactions=False).cell_probabilities(parameters[:3])
    np.testing.assert_allclose(plain, (without / without.sum()).ravel(), rtol=1e-12)


def test_the_paper_s_second_numbers_are_deviations_in_the_laws_and_in_the_prior() -> None:
    family = GaussianRegressions(2)  # X1 ~ N(t1, t2), X2 ~ N(t3 + t4 X1, t5), t ~ N(0, 10)
    drawn = np.concatenate([family.prior(SeededSource((2, seed))) for seed in range(2000)])
    assert np.std(drawn) == pytest.approx(10.0, rel=0.03)
    records = family.sample(np.array([2.0, 10.0, -2.5, 0.5, 3.0]), N, SeededSource(1))
    assert np.std(records[:, 0]) == pytest.approx(10.0, rel=0.03)


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"parameters of shape \(4,\); the family has 5"):
        GaussianRegressions(2).sample(np.zeros(4), 3, SeededSource(1))
    with pytest.raises(ConfigError, match="prior_variance is 0"):
        LogLinear(SCHEMA, prior_variance=0)
    with pytest.raises(ConfigError, match="spread 'sd'"):
        GaussianRegressions(2, spread="sd")  # type: ignore[arg-type]
