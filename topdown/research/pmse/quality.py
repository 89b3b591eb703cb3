"""pMSE: how well a classifier tells synthetic records from original ones.

Source: Snoke, Slavkovic, "pMSE Mechanism: Differentially Private Synthetic Data with Maximal Distributional
Similarity", Algorithm 1; the null values: Snoke, Raab, Nowok, Dibben, Slavkovic, "General and specific utility measures
for synthetic data".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import chdtr, ndtr

from topdown.errors import ConfigError, DataError, require_known
from topdown.research.pmse.classifiers import CART, Cells, Classifier, Fit, IntArray, KnownNull, Logistic
from topdown.research.pmse.columns import Columns, FloatArray, side_by_side

Null = Literal["auto", "independent", "fitted", "permutation"]

CLASSIFIERS: dict[str, Classifier] = {"cart": CART(), "logistic": Logistic(), "cells": Cells()}
"""Classifiers by name."""

RARE = 0.00135
"""The tail probability of three standard deviations of a normal law, from which on a value is not the null's."""


@dataclass(frozen=True)
class PMSE:
    """The propensity score mean squared error between original and synthetic records, with what is expected of it.

    It compares with original records and is as confidential as they are.

    Args:
        value: (1/N) sum (p_i - c)^2, c the synthetic share of the N records; in [0, c (1 - c)], at most 1/4.
        null: where the two next come from: "partition", "independent", "fitted" or "permutation"; None where no null
            was asked for.
        null_expectation: the mean for two samples of one law.
        null_deviation: the standard deviation for two samples of one law.
        null_standard_error: of the mean, 0 where it is a formula.
        n_original: the number of original records.
        n_synthetic: the number of synthetic records.
        parameters: the number of parameters of the classifier that was fitted.
        copies: the share of synthetic records that equal an original record in every column.
        has_continuous: whether the data has continuous columns.
        contributions: one row per part of the classifier's partition with ``part, records, synthetic,
            contribution``, the largest first; empty for a regression.

    Examples:
        >>> found = td.synthesis.pmse.pmse_of_counts([50, 30, 20], [45, 35, 20])
        >>> round(found.value, 5), found.n_original
        (0.00081, 100)
    """

    value: float
    null: str | None
    null_expectation: float
    null_deviation: float
    null_standard_error: float
    n_original: int
    n_synthetic: int
    parameters: int
    copies: float
    has_continuous: bool
    contributions: pd.DataFrame = field(repr=False, compare=False)

    @property
    def ratio(self) -> float:
        """``value`` in units of its null expectation: about 1 for synthetic data of the right law; NaN for 0/0."""
        return _quotient(self.value, self.null_expectation)

    @property
    def standardised(self) -> float:
        """``value`` minus its null expectation, in null standard deviations; NaN where these are 0."""
        return _quotient(self.value - self.null_expectation, self.null_deviation)

    @property
    def lower_tail(self) -> float:
        """The probability that two samples of one law have a pMSE of at most ``value``; NaN without a null.

        By the chi-square law where the null is a formula, by the normal law where it is a permutation's mean and
        standard deviation.
        """
        if self.null in ("partition", "independent", "fitted") and self.parameters > 1:
            return float(chdtr(self.parameters - 1, self.ratio * (self.parameters - 1)))
        return float(ndtr(self.standardised))

    @property
    def too_good(self) -> bool:
        """Whether the synthetic records are too near to the original ones to be private.

        That is: nearer than an independent sample of the same law would be but once in 741 times, or one in a hundred
        records with a continuous column is an exact copy.
        """
        return self.lower_tail < RARE or (self.has_continuous and self.copies >= 0.01)

    @property
    def verdict(self) -> str:
        """In words: "too good to be private", "told apart" (by chance once in 741 times), "not told apart"."""
        if self.too_good:
            return "too good to be private"
        return "told apart" if self.lower_tail > 1 - RARE else "not told apart"


def _quotient(value: float, by: float) -> float:
    if by > 0:
        return value / by
    return math.inf if value > 1e-15 else math.nan


def pmse(
    original: Any,
    synthetic: Any,
    classifier: Classifier | str = "cart",
    *,
    null: Null | None = "auto",
    permutations: int = 50,
    seed: int = 1,
) -> PMSE:
    """The mean squared deviation of a classifier's probabilities that records are synthetic (Algorithm 1).

    Args:
        original: a frame, an Arrow table, a mapping or an array; continuous and categorical columns.
        synthetic: the same columns.
        classifier: `CART`, `Logistic`, `Cells`, `OptimalTree`, or "cart", "logistic", "cells" with their defaults.
        null: "auto" takes the formula where there is one and permutes labels otherwise; "independent" and "fitted"
            are the two formulas for a regression (synthetic data drawn apart from the original, or from the model
            fitted to it); "permutation" refits on ``permutations`` shuffles of the labels; None leaves it out.
        permutations: how many shuffles of the labels there are.
        seed: of the shuffles.

    Raises `DataError` where the data sets cannot be compared, `ConfigError` for an unknown classifier or null.

    Examples:
        >>> original = np.arange(40.0).reshape(20, 2)
        >>> td.synthesis.pmse.pmse(original, original, null=None).value
        0.0
    """
    chosen = _classifier(classifier)
    columns = side_by_side(original, synthetic)
    fit = chosen.fit(columns, columns.labels)
    share = columns.synthetic_share
    source, expectation, deviation, error = _null(chosen, columns, fit, null, permutations, seed)
    return PMSE(
        value=_mean_square(fit.probability, share),
        null=source,
        null_expectation=expectation,
        null_deviation=deviation,
        null_standard_error=error,
        n_original=int((columns.labels == 0).sum()),
        n_synthetic=int((columns.labels == 1).sum()),
        parameters=fit.parameters,
        copies=_copies(columns),
        has_continuous=any(columns.continuous),
        contributions=_contributions(fit, columns.labels, share),
    )


def pmse_of_counts(original: npt.ArrayLike, synthetic: npt.ArrayLike, parts: Sequence[str] | None = None) -> PMSE:
    """The pMSE between the records that two tables of counts stand for, every cell being a part; no record is made.

    Cells that are empty in both tables do not count. The null is that of a fixed partition. Raises `DataError` for
    counts that are no such tables.

    Args:
        original: whole, non-negative counts, such as the true ones (leaves x cells).
        synthetic: counts of the same shape, such as the released ones.
        parts: names of the cells, row by row.

    Examples:
        >>> round(td.synthesis.pmse.pmse_of_counts([50, 30, 20], [45, 35, 20]).value, 5)
        0.00081
    """
    first, second = np.asarray(original), np.asarray(synthetic)
    if first.shape != second.shape or not all(np.issubdtype(one.dtype, np.integer) for one in (first, second)):
        raise DataError(
            f"counts of {first.dtype} {first.shape} and {second.dtype} {second.shape}; give whole ones alike"
        )
    first, second = first.ravel().astype(np.int64), second.ravel().astype(np.int64)
    if min(first.min(initial=0), second.min(initial=0)) < 0 or not first.sum() or not second.sum():
        raise DataError("counts must not be negative, and both tables need a record")
    rows = first + second
    kept = np.flatnonzero(rows)
    share = float(second.sum() / rows.sum())
    expectation = null_of_partition(len(kept) - 1, int(rows.sum()), share)
    part = rows[kept] * (second[kept] / rows[kept] - share) ** 2 / rows.sum()
    names = kept.astype(str) if parts is None else np.asarray(parts, dtype=object)[kept]
    table = pd.DataFrame({"part": names, "records": rows[kept], "synthetic": second[kept], "contribution": part})
    return PMSE(
        value=float(part.sum()),
        null="partition",
        null_expectation=expectation,
        null_deviation=expectation * math.sqrt(2 / (len(kept) - 1)) if len(kept) > 1 else 0.0,
        null_standard_error=0.0,
        n_original=int(first.sum()),
        n_synthetic=int(second.sum()),
        parameters=len(kept),
        copies=float(second[first > 0].sum() / second.sum()),
        has_continuous=False,
        contributions=table.sort_values("contribution", ascending=False, ignore_index=True),
    )


def mean_pmse(original: Any, synthetic_sets: Sequence[Any], classifier: Classifier | str = "cart") -> float:
    """The mean pMSE of several synthetic data sets, an estimate of its expectation.

    Args:
        original: as of `pmse`.
        synthetic_sets: the synthetic data sets.
        classifier: as of `pmse`.

    Examples:
        >>> original = np.arange(40.0).reshape(20, 2)
        >>> td.synthesis.pmse.mean_pmse(original, [original, original])
        0.0
    """
    if not len(synthetic_sets):
        raise ConfigError("no synthetic data sets; give at least one")
    chosen, values = _classifier(classifier), []
    for one in synthetic_sets:
        if isinstance(chosen, CART) and chosen.pruning == "class" and _are_numbers(original, one):
            values.append(chosen.pmse_of_arrays(original, one))
            continue
        columns = side_by_side(original, one)
        values.append(_mean_square(chosen.fit(columns, columns.labels).probability, columns.synthetic_share))
    return math.fsum(values) / len(values)


def _are_numbers(original: Any, synthetic: Any) -> bool:
    """Whether both are arrays of records with the same columns, all finite floats."""
    return all(
        isinstance(one, np.ndarray)
        and one.dtype == np.float64
        and one.ndim == 2
        and one.shape[1] == np.shape(original)[1]
        and len(one) > 0
        and bool(np.isfinite(one).all())
        for one in (original, synthetic)
    )


def _classifier(given: Classifier | str) -> Classifier:
    if not isinstance(given, str):
        if isinstance(given, type) or not hasattr(given, "fit") or not hasattr(given, "known_null"):
            raise ConfigError(f"classifier {given!r}: give one such as CART(depth=5), or {', '.join(CLASSIFIERS)}")
        return given
    if given not in CLASSIFIERS:
        raise ConfigError(
            f"classifier {given!r}: give {', '.join(map(repr, CLASSIFIERS))}, or one such as CART(depth=5)"
        )
    return CLASSIFIERS[given]


def _mean_square(probability: FloatArray, share: float) -> float:
    return float(np.mean((probability - share) ** 2))


# -- what is expected of two samples of one law ---------------------------------------------------------------------


def null_of_partition(splits: int, n_rows: int, synthetic_share: float = 0.5) -> float:
    """The mean pMSE of a fixed partition over all permutations of the labels, exactly.

    D c (1 - c) / (N - 1), D the number of splits, which is D / (4 (N - 1)) for two data sets of one size.

    Args:
        splits: the number of parts less 1.
        n_rows: N, of both data sets together.
        synthetic_share: c, the share of synthetic records.

    Examples:
        >>> round(td.synthesis.pmse.null_of_partition(splits=1, n_rows=200), 6)
        0.001256
    """
    return splits * synthetic_share * (1 - synthetic_share) / (n_rows - 1)


def null_of_logistic(
    k: int, n_rows: int, *, synthesis: Literal["independent", "fitted"] = "independent", synthetic_share: float = 0.5
) -> float:
    """The mean pMSE of a logistic regression for large N.

    "independent", two samples of one law: (k - 1) c (1 - c) / N, which is (k - 1)/(4 N) for one size. "fitted", the
    synthetic data drawn from the model fitted to the original: (k - 1) c (1 - c)^2 / N, which is (k - 1)/(8 N), the
    value that Snoke, Raab, Nowok, Dibben, Slavkovic publish.

    Args:
        k: the number of coefficients, the intercept among them.
        n_rows: N, of both data sets together.
        synthesis: "independent" or "fitted".
        synthetic_share: c, the share of synthetic records.

    Examples:
        >>> td.synthesis.pmse.null_of_logistic(3, n_rows=200)
        0.0025
    """
    if synthesis not in ("independent", "fitted"):
        raise ConfigError(f"synthesis {synthesis!r}: give 'independent' or 'fitted'")
    c = synthetic_share
    return (k - 1) * c * (1 - c) * (1 - c if synthesis == "fitted" else 1) / n_rows


def _null(
    classifier: Classifier, columns: Columns, fit: Fit, null: Null | None, permutations: int, seed: int
) -> tuple[str | None, float, float, float]:
    """(its source, mean, standard deviation, standard error of the mean)."""
    if null is None:
        return None, math.nan, math.nan, math.nan
    if null not in ("auto", "independent", "fitted", "permutation"):
        raise ConfigError(f"null {null!r}: give 'auto', 'independent', 'fitted', 'permutation' or None")
    known, share, freedom = classifier.known_null, columns.synthetic_share, fit.parameters - 1
    if null in ("independent", "fitted") and known != "regression":
        raise ConfigError(f"null {null!r} is known for logistic regression; give 'auto' or 'permutation'")
    if null != "permutation" and known is not None:
        require_known(known, get_args(KnownNull), "known_null of the classifier")
        if known == "partition":
            source, mean = "partition", null_of_partition(freedom, columns.n_rows, share)
        else:
            synthesis: Literal["independent", "fitted"] = "fitted" if null == "fitted" else "independent"
            source = synthesis
            mean = null_of_logistic(fit.parameters, columns.n_rows, synthesis=synthesis, synthetic_share=share)
        # pMSE is proportional to a chi-square of so many degrees of freedom.
        return source, mean, mean * math.sqrt(2 / freedom) if freedom else 0.0, 0.0
    if permutations < 2:
        raise ConfigError(f"permutations is {permutations}; give 2 or more")
    rng = np.random.default_rng(seed)
    values = [
        _mean_square(classifier.fit(columns, rng.permutation(columns.labels)).probability, share)
        for _ in range(permutations)
    ]
    deviation = float(np.std(values, ddof=1))
    return "permutation", math.fsum(values) / permutations, deviation, deviation / math.sqrt(permutations)


# -- where the records are told apart --------------------------------------------------------------------------------


def _contributions(fit: Fit, labels: IntArray, share: float) -> pd.DataFrame:
    if fit.leaf is None:
        return pd.DataFrame({"part": [], "records": [], "synthetic": [], "contribution": []})
    rows = np.bincount(fit.leaf)
    synthetic = np.bincount(fit.leaf, weights=labels)
    part = rows * (synthetic / rows - share) ** 2 / len(labels)
    frame = pd.DataFrame(
        {"part": fit.describe, "records": rows, "synthetic": synthetic.astype(np.int64), "contribution": part}
    )
    return frame.sort_values("contribution", ascending=False, ignore_index=True)


def _copies(columns: Columns) -> float:
    """The share of synthetic records that some original record equals in every column."""
    hashed = pd.util.hash_pandas_object(columns.frame, index=False).to_numpy()
    original = hashed[columns.labels == 0]
    return float(np.isin(hashed[columns.labels == 1], original).mean())
