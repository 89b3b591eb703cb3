"""Covariances made possible again: against statsmodels, a grid search, and what has to stay."""

from __future__ import annotations

import numpy as np
import pytest

from topdown.errors import ConfigError
from topdown.research.covariances import nearest_covariance
from topdown.research.pmse.combining import combine


def test_three_correlations_beside_a_search() -> None:
    given = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    found = nearest_covariance(given)
    assert np.linalg.eigvalsh(found).min() > -1e-12
    assert np.diag(found) == pytest.approx(np.ones(3))
    # By symmetry the nearest has correlations r, r, -r; it can be for r <= 1/2.
    assert found[0, 1] == pytest.approx(0.5, abs=1e-5)
    assert found[0, 2] == pytest.approx(-0.5, abs=1e-5)


def test_beside_statsmodels() -> None:
    tools = pytest.importorskip("statsmodels.stats.correlation_tools")
    rng = np.random.default_rng(3)
    for _ in range(5):
        draws = rng.uniform(-1, 1, (5, 5))
        given = np.where(np.eye(5) > 0, 1.0, (draws + draws.T) / 2)
        theirs = tools.corr_nearest(given, threshold=1e-8, n_fact=50)
        ours = nearest_covariance(given)
        assert np.linalg.eigvalsh(ours).min() > -1e-12
        assert ((ours - given) ** 2).sum() <= ((theirs - given) ** 2).sum() + 1e-6


def test_variances_stay_and_what_is_possible_too() -> None:
    rng = np.random.default_rng(4)
    root = rng.normal(size=(4, 4))
    assert nearest_covariance(root @ root.T) == pytest.approx(root @ root.T)
    given = np.array([[4.0, 7.0, 1.0], [7.0, 9.0, 0.0], [1.0, 0.0, 0.0]])
    found = nearest_covariance(given)
    assert np.diag(found) == pytest.approx([4.0, 9.0, 0.0])
    assert found[0, 1] == pytest.approx(6.0)
    assert not found[2].any()


def test_what_is_no_covariance_is_refused() -> None:
    for wrong in ([1.0, 2.0], [[1.0, 2.0], [3.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]], [[np.nan]]):
        with pytest.raises(ConfigError):
            nearest_covariance(wrong)
    with pytest.raises(ConfigError, match="two or more"):
        combine([0.5], [0.1])
    for variances in ([0.1, -0.2], [0.1, np.nan], [0.1, np.inf]):
        with pytest.raises(ConfigError, match="not finite, or a variance is negative"):
            combine([0.5, 0.6], variances)
    for confidence in (0, 1, 95, np.nan, "0.9"):
        with pytest.raises(ConfigError, match="give a number between 0 and 1"):
            combine([0.5, 0.6], [0.1, 0.1], confidence=confidence)  # type: ignore[arg-type]
