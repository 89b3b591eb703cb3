"""Finite constraints of Croft, Sack, Shi by formulas written here: distances, Lemmas 8, 10, the cost of Theorem 3."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq

from support.examples import examples
from topdown.research.bounded import constraints as module
from topdown.research.bounded.constraints import Piece, feasible_pieces, uniform_scale
from topdown.research.bounded.normalized import NormalizedLaplace

spans_strategy = st.lists(st.floats(-6, 6), min_size=2, max_size=12, unique=True).filter(
    lambda ends: len(ends) % 2 == 0
)


def spans_of(ends: list[float]) -> list[Piece]:
    ends = sorted(ends)
    assume(min(np.diff(ends)) > 0.01)
    return list(zip(ends[::2], ends[1::2], strict=True))


def masses(s: float, b: float, spans: list[Piece]) -> tuple[float, float]:
    """L and R of Formulae 4 and 5: the plain Laplace masses of the constraints left and right of a location."""
    taken = [(low >= s, abs(math.exp(-abs(low - s) / b) - math.exp(-abs(high - s) / b)) / 2) for low, high in spans]
    return sum(m for right, m in taken if not right), sum(m for right, m in taken if right)


def bounds_on_the_scale(spans: list[Piece], unit: float) -> list[float]:
    """The 3n lower bounds of Theorem 2: Formula 35 from both ends of every gap, and Formula 37 across it."""

    def crossing(excess: Any) -> float:
        # Without a root in this range the bound is below anything that matters.
        return float(brentq(excess, 1e-3 * unit, 4 * unit, xtol=1e-14)) if excess(1e-3 * unit) < 0 else 0.0

    found = []
    for low, high in spans:

        def to_the_right(b: float, at: float = high) -> float:
            left, right = masses(at, b, spans)
            return b - unit * (1 - 2 * right) / (1 - left - right)

        def to_the_left(b: float, at: float = low) -> float:
            left, right = masses(at, b, spans)
            return b - unit * (1 - 2 * left) / (1 - left - right)

        def across(b: float, low: float = low, high: float = high) -> float:
            kept = [1 - sum(masses(at, b, spans)) for at in (low, high)]
            return (high - low) / unit - (high - low) / b - abs(math.log(kept[1] / kept[0]))

        found += [crossing(to_the_right), crossing(to_the_left), crossing(across)]
    return found


@given(ends=spans_strategy, b=st.floats(0.3, 4), parts=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)))
@examples(60)
def test_formulae_10_to_13_and_the_worst_output(ends: list[float], b: float, parts: tuple[float, float]) -> None:
    """A location moved within its span: what that does to L and R, and the loss, largest at the location itself."""
    spans = spans_of(ends)
    for low, high in feasible_pieces(spans):
        start, stop = max(low, -8.0), min(high, 8.0)
        if stop - start < 1e-6:  # a location so near to a span is in it by rounding
            continue
        s, other = (start + part * (stop - start) for part in sorted(parts))
        (left, right), moved = masses(s, b, spans), masses(other, b, spans)
        assert moved == pytest.approx((left * math.exp(-(other - s) / b), right * math.exp((other - s) / b)), abs=1e-12)
        laws = [NormalizedLaplace(at, b, spans) for at in (s, other)]
        assert laws[0].kept_mass == pytest.approx(1 - left - right, abs=1e-12)
        at = np.concatenate([np.linspace(max(one, -30), min(two, 30), 41) for one, two in feasible_pieces(spans)])
        loss = np.asarray(laws[0].logpdf(at)) - np.asarray(laws[1].logpdf(at))
        worst = (other - s) / b + math.log((1 - sum(moved)) / (1 - left - right))  # Formulae 16 to 21
        assert float(laws[0].logpdf(s)) - float(laws[1].logpdf(s)) == pytest.approx(worst, abs=1e-9)
        assert loss.max() <= worst + 1e-9


@given(ends=spans_strategy, unit=st.floats(0.2, 4))
@examples(60)
def test_lemma_10_every_bound_is_below_twice_the_textbook_scale(ends: list[float], unit: float) -> None:
    spans = spans_of(ends)
    found = bounds_on_the_scale(spans, unit)
    assert max(found) < 2 * unit or max(high - low for low, high in spans) > 30 * unit  # then 2 to rounding
    assert max(found) <= 2 * unit * (1 + 1e-12)
    assert max(found) > unit * (1 - 1e-9)
    assert uniform_scale(spans, 1.0, unit) == pytest.approx(max(found), rel=1e-9)  # Theorem 2


def test_lemma_10_the_range_of_the_scale() -> None:
    """Of 400 random sets, in units of sensitivity/epsilon: from little above 1 to nearly 2, as gaps widen."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(400):
        ends = np.cumsum(rng.exponential(10 ** rng.uniform(-1, 1.3), 2 * rng.integers(1, 6)) + 1e-3)
        found.append(max(bounds_on_the_scale(list(zip(ends[::2], ends[1::2], strict=True)), 1.0)))
    assert 1.0 < min(found) < 1.05
    assert 1.9999 < max(found) <= 2.0  # reached by rounding alone
    # One gap of width w, b (1 + exp(-w/b)) = 2: from 1 as it closes to 2 as it opens.
    for scale in (1.0001, 1.108, 1.5, 1.9999):
        width = -scale * math.log(2 / scale - 1)
        assert max(bounds_on_the_scale([(0.0, width)], 1.0)) == pytest.approx(scale, rel=1e-9)


@given(ends=spans_strategy, unit=st.floats(0.2, 4), wider=st.floats(1.0, 5.0))
@examples(60)
def test_lemma_8_a_larger_scale_keeps_the_guarantee_too(ends: list[float], unit: float, wider: float) -> None:
    """Pairs in one span of truncated space: ln(C(s')/C(s)) + |s - s'|/b <= |s - s'|/unit at b and at all above."""
    spans = spans_of(ends)
    b = uniform_scale(spans, 1.0, unit)
    for low, high in feasible_pieces(spans):
        start, stop = max(low, -20.0), min(high, 20.0)
        s = np.linspace(start, stop, 15)
        for scale in (b, b * wider):
            log_kept = np.array([math.log(1 - sum(masses(float(at), scale, spans))) for at in s])
            distance = np.abs(s[:, None] - s)
            assert ((log_kept[None] - log_kept[:, None]) + distance / scale <= distance / unit + 1e-9).all()


@given(ends=spans_strategy, scale=st.floats(0.3, 5), wider=st.floats(1.001, 5.0))
@examples(60)
def test_lemma_8_the_loss_never_rises_with_the_scale(ends: list[float], scale: float, wider: float) -> None:
    spans = spans_of(ends)
    for guarantee in ("metric", "adjacent"):
        small = module.uniform_loss(scale, spans, 1.0, guarantee=guarantee)
        assert module.uniform_loss(scale * wider, spans, 1.0, guarantee=guarantee) < small


@pytest.mark.parametrize("gaps", [1, 4, 16, 64])
def test_theorem_3_the_cost_of_the_scale(gaps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """n^2 (log2(2 sensitivity/epsilon) + d log2 10) terms for d decimal places: 51 checks of 2n bounds of n terms."""
    checks, terms = [], []
    loss, sums = module.uniform_loss, module.piece_masses

    def counted_loss(*given: Any, **named: Any) -> float:
        checks.append(1)
        return loss(*given, **named)

    def counted_sums(location: Any, *given: Any) -> Any:
        found = sums(location, *given)
        terms.append(found[0].size)
        return found

    monkeypatch.setattr(module, "uniform_loss", counted_loss)
    monkeypatch.setattr(module, "piece_masses", counted_sums)
    width = np.random.default_rng(gaps).uniform(0.05, 1.0, 2 * gaps).cumsum()
    scale = uniform_scale(list(zip(width[::2], width[1::2], strict=True)), 1.0, 1.0)
    assert 1 < scale < 2
    digits = 15
    assert len(checks) <= math.ceil(math.log2(2 * 10**digits))
    assert sum(terms) == len(checks) * 2 * gaps * (gaps + 1)
