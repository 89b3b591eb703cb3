"""Coefficients of variation and their classes."""

from __future__ import annotations

import numpy as np

from topdown.tables.count_reliability import reliability_of


def test_classes_end_at_12_and_40_percent() -> None:
    sd = np.array([[12.0, 12.01, 40.0], [40.01, 0.0, np.nan]])
    cv, classes = reliability_of(sd, np.full((2, 3), 100))
    np.testing.assert_array_equal(cv, [[0.12, 0.1201, 0.4], [0.4001, 0.0, np.nan]])
    assert classes.to_pylist() == ["high", "medium", "medium", "low", "high", None]


def test_a_count_of_0_has_no_coefficient_and_is_low_unless_it_is_exact() -> None:
    cv, classes = reliability_of(np.array([[2.0, 0.0, np.inf]]), np.array([[0, 0, 7]]))
    np.testing.assert_array_equal(cv, [[np.nan, 0.0, np.nan]])
    assert classes.to_pylist() == ["low", "high", "low"]
