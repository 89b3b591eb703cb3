"""The exact discrete laws: proved thresholds, bits chosen by hand, frequencies, float functions beside oracles."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from support.examples import examples
from support.places import GOLDEN, REPOSITORY
from topdown.errors import ConfigError
from topdown.machine import native
from topdown.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    SecureSource,
    SeededSource,
    exact_fraction,
)
from topdown.noise.exact import blocks, gaussian_sums, look_up_kernel, threshold_tables
from topdown.noise.exact.tails import DiscreteNormal, GeometricDigit, LaplaceBlocks, Tails
from topdown.noise.exact_numbers import enclose_exp

DIGITS = 60


class Scripted:
    """A source that hands out the bytes it was given, and then fails."""

    fit_for_release = False

    def __init__(self, *pieces: bytes) -> None:
        self.rest = b"".join(pieces)

    def read(self, nbytes: int) -> bytes:
        assert len(self.rest) >= nbytes, "the script is over"
        piece, self.rest = self.rest[:nbytes], self.rest[nbytes:]
        return piece


def uniform_bits(u: int, bits: int) -> Scripted:
    """The reads by which a table sees the uniform number u / 2^bits: 16 bits, then 48 in a word, then 64 by 64."""
    words = [u >> (bits - 16), (u >> (bits - 64) & ((1 << 48) - 1)) << 16]
    words += [u >> shift & ((1 << 64) - 1) for shift in range(bits - 128, -1, -64)]
    return Scripted(words[0].to_bytes(2, "little"), *(w.to_bytes(8, "little") for w in words[1:]))


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, Fraction(3)),
        (0.1, Fraction(1, 10)),
        ("1/3", Fraction(1, 3)),
        ("1e-3", Fraction(1, 1000)),
        (Decimal("0.25"), Fraction(1, 4)),
        (Fraction(2, 7), Fraction(2, 7)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int64(5), Fraction(5)),
        (1e300, Fraction(10) ** 300),
    ],
)
def test_exact_fraction(given: Any, expected: Fraction) -> None:
    assert exact_fraction(given) == expected
    assert type(exact_fraction(given)) is Fraction


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, "1/0", "x", "", "1e999999999", True, None, [1], 1j, Decimal("NaN")]
)
def test_exact_fraction_refuses(bad: Any) -> None:
    with pytest.raises(ConfigError):
        exact_fraction(bad)


@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian, DiscreteGaussian.from_variance])
@pytest.mark.parametrize("bad", [0, -1, "-1/3", math.nan, math.inf, -math.inf, 10**40, None])
def test_parameters_refused(law: Callable[..., Any], bad: Any) -> None:
    with pytest.raises(ConfigError):
        law(bad)


@pytest.mark.parametrize("bad", [-1, 41, 0.5, "2", None])
def test_grid_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="grid_bits"):
        DiscreteLaplace(1, grid_bits=bad)
    with pytest.raises(ConfigError, match="grid_bits"):
        DiscreteGaussian(1, grid_bits=bad)


def test_laws_are_values() -> None:
    assert DiscreteLaplace(0.1) == DiscreteLaplace("1/10") == DiscreteLaplace(scale=Decimal("0.1"))
    assert len({DiscreteGaussian(2), DiscreteGaussian.from_variance(4), DiscreteGaussian(2, grid_bits=1)}) == 2
    assert DiscreteGaussian(2).sigma == 2.0
    assert DiscreteLaplace(3).fit_for_release
    with pytest.raises(AttributeError):
        DiscreteLaplace(1).scale = Fraction(2)  # type: ignore[misc]


# --- thresholds ------------------------------------------------------------------------------------------------------


@given(st.fractions(min_value=0, max_value=200), st.integers(8, 300))
@settings(deadline=None)
def test_exp_enclosure(x: Fraction, precision: int) -> None:
    lower, upper = enclose_exp(x, precision)
    with mp.workdps(160):
        true = mp.ldexp(mp.exp(-mp.mpf(x.numerator) / x.denominator), precision)
        assert lower <= true <= upper
    assert upper - lower <= 3


def laplace_cdf(rate: Fraction, block_bits: int, k: int) -> Any:
    """P(floor(X / m) <= k) = P(X <= m k + m - 1), from the closed form of the discrete Laplace law."""
    a = mp.exp(-mp.mpf(rate.numerator) / rate.denominator)
    x = (k + 1) * 2**block_bits - 1
    return 1 - a ** (x + 1) / (1 + a) if x >= 0 else a ** (-x) / (1 + a)


def digit_cdf(rate: Fraction, bits: int, k: int) -> Any:
    r = mp.mpf(rate.numerator) / rate.denominator
    return mp.expm1(-r * (k + 1)) / mp.expm1(-r * 2**bits)


def normal_cdf(sigma2: Fraction, one_sided: bool) -> Callable[[int], Any]:
    s2 = mp.mpf(sigma2.numerator) / sigma2.denominator
    reach = int(mp.sqrt(s2) * 30) + 2
    weights = [mp.exp(-(mp.mpf(k) ** 2) / (2 * s2)) for k in range(0 if one_sided else -reach, reach + 1)]
    total = mp.fsum(weights)
    sums, running = [], mp.mpf(0)
    for w in weights:
        running += w
        sums.append(running / total)
    return lambda k: sums[k + (0 if one_sided else reach)]


LAWS: list[tuple[Tails, str]] = [
    *((LaplaceBlocks(1 / Fraction(s), 0), s) for s in ("1/7", "1/2", "1", "10", "39/4", "100")),
    (LaplaceBlocks(Fraction(3, 3 * 10**6 + 1), 13), "10^6 + 1/3"),
    (LaplaceBlocks(Fraction(1, 10**12), 33), "10^12"),
    (GeometricDigit(Fraction(1, 1000), 8), "digit"),
    (GeometricDigit(Fraction(10**19 + 1, 10**38 + 7), 5), "nearly uniform digit"),
    *((DiscreteNormal(Fraction(v)), v) for v in ("1/4", "1", "4", "100", "10/3")),
    (DiscreteNormal(Fraction(10**5, 7), one_sided=True), "one-sided"),
]


@pytest.mark.parametrize("tails", [law for law, _ in LAWS], ids=lambda law: f"{type(law).__name__}")
@pytest.mark.parametrize("bits", [64, 128])
def test_thresholds_are_the_floors(tails: Tails, bits: int) -> None:
    """Against the closed form, or the plain sum, at 160 digits: every threshold."""
    with mp.workdps(160):
        if isinstance(tails, LaplaceBlocks):
            cdf = lambda k: laplace_cdf(tails.rate, tails.block_bits, k)  # noqa: E731
        elif isinstance(tails, GeometricDigit):
            cdf = lambda k: digit_cdf(tails.rate, tails.bits, k)  # noqa: E731
        else:
            assert isinstance(tails, DiscreteNormal)
            cdf = normal_cdf(tails.sigma2, tails.one_sided)
        first, cuts = threshold_tables.cut(tails, bits)
        expected = tuple(int(mp.floor(mp.ldexp(cdf(first + i), bits))) for i in range(len(cuts)))
    assert cuts == expected
    if not isinstance(tails, GeometricDigit):
        assert cuts[-1] == (1 << bits) - 1
        assert cuts[0] == 0 or first == 0


def test_an_undecided_floor_is_computed_again() -> None:
    """A law whose tail lies 2^-200 above 1/4: at the first precision the floor cannot be told."""

    class Close:
        asked: list[int] = []  # noqa: RUF012

        def above(self, precision: int) -> Any:
            self.asked.append(precision)
            q = (1 << precision) // 4 + (1 << precision >> 200)
            return iter([(q - 1, q + 1)])

        def below(self, precision: int) -> Any:
            return iter(())

        def __hash__(self) -> int:
            return id(self)

    close = Close()
    assert threshold_tables.cut(close, 64) == (0, ((1 << 64) - 1 - (1 << 62),))
    assert close.asked == [128, 256]


@pytest.mark.parametrize("tails", [law for law, _ in LAWS], ids=lambda law: f"{type(law).__name__}")
def test_table_law_is_the_floor_differences(tails: Tails) -> None:
    """Of the 2^64 first words, exactly t(k) - t(k-1) - 1 are drawn as k at once, and one per threshold is a tie."""
    law = threshold_tables.table(tails)
    undecided = law.guide == np.iinfo(np.int16).min
    cuts = [int(t) for t in law.thresholds]
    decided: dict[int, int] = {}
    for k in law.guide[~undecided]:
        decided[int(k)] = decided.get(int(k), 0) + (1 << 48)
    for entry in np.flatnonzero(undecided):
        lower, upper = int(entry) << 48, (int(entry) + 1) << 48
        inside = sorted({t for t in cuts if lower <= t < upper})
        assert inside, "an entry without a threshold must be decided"
        edges = [lower - 1, *inside, upper]
        for a, b in itertools.pairwise(edges):
            if b - a > 1:
                k = law.first + bisect_right(cuts, a + 1)
                decided[k] = decided.get(k, 0) + b - a - 1
    ends = [-1, *cuts, 1 << 64]
    expected = {law.first + i: max(0, ends[i + 1] - ends[i] - 1) for i in range(len(cuts) + 1)}
    assert decided == {k: n for k, n in expected.items() if n}
    assert sum(decided.values()) + len(set(cuts)) == 1 << 64


def test_tables_are_read_only() -> None:
    law = threshold_tables.table(LaplaceBlocks(Fraction(1, 10), 0))
    with pytest.raises(ValueError, match="read-only"):
        law.guide[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        law.thresholds[0] = 1


# --- draws from bits chosen by hand ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tails", [LaplaceBlocks(Fraction(1, 10), 0), DiscreteNormal(Fraction(100))])
@pytest.mark.parametrize("k", [-30, -3, -1, 0, 2, 25])
def test_bits_on_either_side_of_a_threshold(tails: Tails, k: int) -> None:
    law = threshold_tables.table(tails)
    first, cuts = threshold_tables.cut(tails, 64)
    t = cuts[k - first]
    assert threshold_tables.draw(law, 1, uniform_bits(t - 1, 64))[0] == k
    assert threshold_tables.draw(law, 1, uniform_bits(t + 1, 64))[0] == k + 1
    # A tie of all 64 bits is decided by the next 64, and a tie of 128 by the next.
    first128, cuts128 = threshold_tables.cut(tails, 128)
    t128 = cuts128[k - first128]
    assert t128 >> 64 == t
    assert threshold_tables.draw(law, 1, uniform_bits(t128 - 1, 128))[0] == k
    assert threshold_tables.draw(law, 1, uniform_bits(t128 + 1, 128))[0] == k + 1
    first192, cuts192 = threshold_tables.cut(tails, 192)
    t192 = cuts192[k - first192]
    assert threshold_tables.draw(law, 1, uniform_bits(t192 - 1, 192))[0] == k
    assert threshold_tables.draw(law, 1, uniform_bits(t192 + 1, 192))[0] == k + 1


def test_tails_beyond_the_table() -> None:
    """128 zero bits are beyond every threshold of 64 or 128 bits; the draw then follows the law to 192."""
    u = 10**6
    source = uniform_bits(u, 192)
    drawn = DiscreteLaplace(10).sample(1, source)[0]
    # The least k with F(k) = a^-k / (1+a) above u / 2^192.
    assert drawn == math.floor(10 * (math.log(u) - 192 * math.log(2) + math.log1p(math.exp(-0.1)))) + 1
    assert source.rest == b""
    assert DiscreteLaplace(10).sample(1, uniform_bits((1 << 192) - 1 - u, 192))[0] == -drawn
    assert -160 < DiscreteGaussian(10).sample(1, uniform_bits(u, 192))[0] < -140
    assert DiscreteLaplace("1e-9").sample(1, uniform_bits(1, 128))[0] == 0


def test_every_first_word_agrees_with_the_thresholds() -> None:
    law = threshold_tables.table(LaplaceBlocks(Fraction(1, 50), 0))
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 16, 4000)
    low = rng.integers(0, 1 << 48, 4000)
    cuts = [int(t) for t in law.thresholds]
    for w, v in zip(words.tolist(), low.tolist(), strict=True):
        script = Scripted(w.to_bytes(2, "little"), (v << 16).to_bytes(8, "little"))
        assert threshold_tables.draw(law, 1, script)[0] == law.first + bisect_right(cuts, w << 48 | v)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As one that has drawn nothing yet."""
    monkeypatch.setattr(threshold_tables, "_asked", 0)
    return monkeypatch


@pytest.mark.parametrize("tails", [law for law, _ in LAWS], ids=lambda law: f"{type(law).__name__}")
def test_the_compiled_look_up_is_the_other_one(tails: Tails, process: pytest.MonkeyPatch) -> None:
    """Over all first words; and so are the draws of a source, to the bit."""
    law, words = threshold_tables.table(tails), np.arange(1 << 16, dtype=np.uint16)
    compiled, plain = np.empty(1 << 16, np.int16), np.empty(1 << 16, np.int16)
    undecided = threshold_tables._look_up(law.guide, words, plain)
    drawn = threshold_tables.draw(law, 60_000, SeededSource(1))
    process.setattr(threshold_tables, "_asked", threshold_tables.COMPILED_FROM)
    assert look_up_kernel.kernel() is not None
    assert np.array_equal(threshold_tables._look_up(law.guide, words, compiled), undecided)
    assert np.array_equal(compiled, plain)
    assert np.array_equal(threshold_tables.draw(law, 60_000, SeededSource(1)), drawn)


@pytest.mark.parametrize("tails", [law for law, _ in LAWS], ids=lambda law: f"{type(law).__name__}")
def test_the_compiled_decision_is_the_other_one(tails: Tails, process: pytest.MonkeyPatch) -> None:
    """At every threshold, just before and just after it, and at both ends of its entry, ties among them."""
    law = threshold_tables.table(tails)
    near = {int(t) + step for t in law.thresholds for step in (-1, 0, 1)}
    near |= {int(t) >> 48 << 48 for t in law.thresholds} | {
        (int(t) >> 48 << 48) + (1 << 48) - 1 for t in law.thresholds
    }
    words = sorted(u for u in near if 0 <= u < 1 << 64)
    found = []
    for asked in (0, threshold_tables.COMPILED_FROM):
        process.setattr(threshold_tables, "_asked", asked)
        short = np.zeros(len(words), np.int16)
        tied = list(threshold_tables._refine(law, np.array(words, np.uint64), short, np.arange(len(words))))
        found.append((short.tolist(), tied))
    assert found[0] == found[1]
    cuts, known = law.thresholds.tolist(), set(law.thresholds.tolist())
    assert found[0][0] == [law.first + bisect_right(cuts, u) for u in words]
    assert found[0][1] == [(k, u) for k, u in enumerate(words) if u in known]


SAMPLED = [
    DiscreteLaplace(1),
    DiscreteLaplace(100),
    DiscreteLaplace(10_000),
    DiscreteLaplace("3/2", grid_bits=5),
    DiscreteGaussian(1),
    DiscreteGaussian(100),
    DiscreteGaussian(10_000),
    DiscreteGaussian(2, grid_bits=7),
]


@pytest.mark.parametrize("law", SAMPLED, ids=repr)
def test_a_million_numbers_are_the_same_ones_compiled_or_not(
    law: DiscreteLaplace | DiscreteGaussian, process: pytest.MonkeyPatch
) -> None:
    """Whoever draws before, and however the million is cut; in every kind of integer that holds them."""
    kinds = [None, law.narrowest]
    calls: list[int] = []
    made = look_up_kernel.kernel()
    assert made is not None
    process.setattr(threshold_tables, "kernel", lambda: calls.append(0) or made)
    large = [law.sample(threshold_tables.COMPILED_FROM, SeededSource(3), kind) for kind in kinds]
    assert calls
    process.setattr(threshold_tables, "kernel", lambda: None)
    for kind, numbers in zip(kinds, large, strict=True):
        found = law.sample(threshold_tables.COMPILED_FROM, SeededSource(3), kind)
        assert found.dtype == numbers.dtype
        assert found.tobytes() == numbers.tobytes()


def test_what_is_compiled_is_chosen_by_how_much_is_drawn(process: pytest.MonkeyPatch) -> None:
    """In all, not by whether something else loaded a compiler."""
    asked: list[int] = []
    process.setattr(threshold_tables, "kernel", lambda: asked.append(0))
    law = DiscreteLaplace(3)
    for _ in range(9):
        law.sample(100_000, SeededSource(1))
    assert not asked
    law.sample((10, 10_000), SeededSource(1))
    assert asked


def test_few_numbers_load_no_compiler() -> None:
    said = """
import sys
from topdown.noise import DiscreteGaussian, DiscreteLaplace, SecureSource
DiscreteLaplace(3).sample(COUNT, SecureSource())
print(*(name in sys.modules for name in ("numba", "llvmlite")))
"""

    def loaded(count: int) -> str:
        command = [sys.executable, "-c", said.replace("COUNT", str(count))]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert loaded(500_000) == "False False\n"
    assert loaded(1_000_000) == "False True\n"


def test_where_no_code_can_be_made_the_numbers_are_the_same(process: pytest.MonkeyPatch) -> None:
    law = DiscreteGaussian(5)
    expected = law.sample(1000, SeededSource(1))
    process.setattr(threshold_tables, "_asked", threshold_tables.COMPILED_FROM)
    process.setattr(look_up_kernel, "_made", [])
    process.setattr(native, "available_memory", lambda: 1 << 28)
    assert look_up_kernel.kernel() is None
    assert np.array_equal(law.sample(1000, SeededSource(1)), expected)
    process.setattr(native, "available_memory", lambda: None)

    class Refused:
        def __init__(self, assembly: str) -> None:
            raise OSError("nobody may make code here")

    process.setattr(native, "Native", Refused)
    process.setattr(look_up_kernel, "_made", [])
    assert look_up_kernel.kernel() is None
    assert np.array_equal(law.sample(1000, SeededSource(1)), expected)


def test_arrays_that_the_loops_are_not_for_are_refused() -> None:
    """They would be read as what they are not, or beyond their ends."""
    law, made = threshold_tables.table(LAWS[0][0]), look_up_kernel.kernel()
    assert made is not None
    top, short = np.zeros(8, np.uint16), np.zeros(8, np.int16)
    wrong: list[tuple[Any, Any, Any]] = [
        (law.guide, top.astype(np.uint32), short),
        (law.guide, top, short.astype(np.int64)),
        (law.guide, top, short[:7]),
        (law.guide, top, np.zeros(16, np.int16)[::2]),
        (law.guide[:100], top, short),
    ]
    for guide, words, into in wrong:
        with pytest.raises(AssertionError, match="arrays of another kind"):
            made.look_up(guide, words, 0, into)
    u = np.zeros(2, np.uint64)
    for places in (np.array([0, 8]), np.array([-1, 0]), np.array([0]), np.array([0, 1], np.int32)):
        with pytest.raises(AssertionError, match="arrays of another kind"):
            made.refine(law.thresholds, law.first, law.least, u, places, short)


def test_a_draw_that_a_narrow_integer_does_not_hold_is_an_error() -> None:
    for kind, value in ((np.int16, 1 << 15), (np.int16, -(1 << 15) - 1), (np.int32, 1 << 31)):
        with pytest.raises(OverflowError, match=f"does not fit into {np.dtype(kind)}"):
            threshold_tables.put(np.zeros(2, kind), slice(0, 1), np.array([value]))
    # As where a tie is decided.
    drawn = np.zeros(1, np.int16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threshold_tables, "_decide", lambda *_: -40_000)
        with pytest.raises(OverflowError):
            threshold_tables.draw_into(
                threshold_tables.table(LaplaceBlocks(Fraction(1, 10), 0)), drawn, Scripted(bytes(300))
            )


def test_laplace_blocks_and_digits_compose_to_the_law() -> None:
    """Block times digits, as probabilities: the joint law is the discrete Laplace of the full scale."""
    scale = Fraction(3 * 10**5 + 1, 3)
    rate, bits = 1 / scale, blocks.block_bits(scale)
    assert bits == 10
    with mp.workdps(DIGITS):
        r = mp.mpf(rate.numerator) / rate.denominator
        a = mp.exp(-r)
        for x in (0, 1, 255, 256, 1023, 1024, 99_999, -1, -2, -256, -1024, -1025, -77_777):
            block = x >> bits
            place = (x if x >= 0 else ~x) & ((1 << bits) - 1)
            p = laplace_cdf(rate, bits, block) - laplace_cdf(rate, bits, block - 1)
            for low, width in ((0, 8), (8, 2)):
                d = place >> low & ((1 << width) - 1)
                p *= digit_cdf(rate * 2**low, width, d) - (digit_cdf(rate * 2**low, width, d - 1) if d else 0)
            assert mp.almosteq(p, (1 - a) / (1 + a) * a ** abs(x), rel_eps=mp.mpf(10) ** -40)


@given(
    block=st.integers(0, 400) | st.integers(0, 1 << 21),
    place_share=st.floats(0, 0.01) | st.floats(0, 1, exclude_max=True),
    bits=st.integers(1, 52),
    first=st.integers(0, (1 << 32) - 1),
    near=st.integers(-3, 3) | st.none(),
    block_sigma2=st.fractions(min_value=4096, max_value=16384, max_denominator=10**20),
)
@examples(600)
def test_rejection_coin(
    block: int, place_share: float, bits: int, first: int, near: int | None, block_sigma2: Fraction
) -> None:
    """The coin in 64-bit integers equals u < exp(-gamma) in 160 digits, also right at the edge."""
    place = int(place_share * (1 << bits))
    f = Fraction(place, 1 << bits)
    gamma = (2 * block * f + f * f) / (2 * block_sigma2)
    with mp.workdps(160):
        p = mp.exp(-mp.mpf(gamma.numerator) / gamma.denominator)
        if near is not None:
            first = min(max(int(mp.floor(p * 2**32)) + near, 0), (1 << 32) - 1)
        more = 0x8000_0000_0000_0001
        true = mp.mpf(first << 64 | more) / mp.mpf(2) ** 96 < p
    source = Scripted(first.to_bytes(4, "little"), more.to_bytes(8, "little"), bytes(64))
    keep = blocks._bernoulli_exp(np.array([block]), np.array([place]), bits, block_sigma2, source)
    assert bool(keep[0]) == true


def test_only_the_gaussian_proposes_as_the_privacy_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    model = (REPOSITORY / "docs" / "privacy_model.md").read_text(encoding="utf-8")
    assert re.search(rf"Scales above {blocks.LARGEST_TABLE_SCALE} draw a\s+block", model)
    assert "rejection samplers" not in model
    rounds, propose = [], blocks._propose
    monkeypatch.setattr(blocks, "_propose", lambda *given: (rounds.append(given), propose(*given))[1])
    for law, proposes in [
        (DiscreteLaplace(10_000), False),
        (DiscreteGaussian(blocks.LARGEST_TABLE_SCALE - 1), False),
        (DiscreteGaussian(10_000), True),
    ]:
        rounds.clear()
        law.sample(1000, SeededSource(1))
        assert bool(rounds) == proposes


def test_overflow_is_an_error() -> None:
    """A block number that only the far tail reaches: the draw is refused, not wrapped."""
    with pytest.raises(OverflowError):
        blocks._refuse_overflow(np.array([1 << 20]), 42)
    blocks._refuse_overflow(np.array([1 << 19]), 42)
    largest = DiscreteLaplace(1 << 55).sample(200_000, SeededSource(3))
    assert abs(largest.astype(float).std() / DiscreteLaplace(1 << 55).std - 1) < 0.02


# --- frequencies -----------------------------------------------------------------------------------------------------

Law = DiscreteLaplace | DiscreteGaussian


def chi_square_p(drawn: np.ndarray[Any, Any], law: Law, bins: int = 40) -> float:
    """p-value of the draws against ``law``: about equally likely intervals between quantiles."""
    edges = np.unique(np.asarray(law.ppf(np.arange(1, bins) / bins)))
    cdf = np.concatenate([[0.0], np.asarray(law.cdf(edges)), [1.0]])
    counts = np.bincount(np.searchsorted(edges, drawn), minlength=edges.size + 1)
    expected = np.diff(cdf) * drawn.size
    return float(stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue)


FAMILIES: list[tuple[str, Callable[..., Law], Any, int]] = [
    ("laplace, one table", DiscreteLaplace, Fraction(10), 0),
    ("laplace, small", DiscreteLaplace, Fraction(2, 3), 0),
    ("laplace, blocks", DiscreteLaplace, Fraction(5000, 3), 0),
    ("laplace, many digits", DiscreteLaplace, Fraction(10**12 + 1, 7), 0),
    ("laplace, 20-digit fraction", DiscreteLaplace, Fraction(10**20 + 39, 10**16 + 61), 0),
    ("laplace, grid", DiscreteLaplace, Fraction(10), 10),
    ("gaussian, one table", DiscreteGaussian, Fraction(10), 0),
    ("gaussian, small", DiscreteGaussian, Fraction(2, 3), 0),
    ("gaussian, blocks", DiscreteGaussian, Fraction(1000, 3), 0),
    ("gaussian, wide blocks", DiscreteGaussian, Fraction(10**9), 0),
    ("gaussian, widest words", DiscreteGaussian, Fraction(10**14), 0),
    ("gaussian, grid", DiscreteGaussian, Fraction(10), 10),
]


@pytest.mark.parametrize(("make", "scale", "grid"), [f[1:] for f in FAMILIES], ids=[f[0] for f in FAMILIES])
def test_frequencies_accept_the_truth_and_reject_ten_percent(
    make: Callable[..., Law], scale: Fraction, grid: int
) -> None:
    law = make(scale, grid_bits=grid)
    drawn = law.sample(200_000, SeededSource((11, str(scale), grid)))
    assert drawn.dtype == (np.float64 if grid else np.int64)
    assert chi_square_p(drawn, law) > 1e-9
    assert chi_square_p(drawn, make(scale * Fraction(11, 10), grid_bits=grid)) < 1e-20
    assert chi_square_p(drawn, make(scale * Fraction(9, 10), grid_bits=grid)) < 1e-20


@pytest.mark.parametrize("law", [DiscreteLaplace(1000), DiscreteGaussian(1000), DiscreteGaussian(10**5)])
def test_low_bits_follow_the_law_too(law: Law) -> None:
    """Inside a block: the law of x modulo 16 and of the sign, which wide intervals cannot see."""
    drawn = law.sample(400_000, SeededSource(5))
    low = np.bincount(drawn & 15, minlength=16)
    assert stats.chisquare(low).pvalue > 1e-9
    centre = np.arange(-8, 9)
    counts = np.array([(drawn == k).sum() for k in centre])
    expected = np.asarray(law.pmf(centre)) * drawn.size
    assert ((counts - expected) ** 2 / expected).sum() < stats.chi2.isf(1e-9, centre.size)
    negative, positive = int((drawn < 0).sum()), int((drawn > 0).sum())
    assert abs(negative - positive) < 6.5 * math.sqrt(drawn.size)


@pytest.mark.parametrize("law", [DiscreteLaplace(20), DiscreteLaplace(Fraction(1999, 3)), DiscreteGaussian(20)])
@pytest.mark.parametrize("largest", [1, 3])
def test_small_blocks_show_every_seam(law: Law, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks far wider than usual for their law, so that a wrong place, sign or rejection moves whole percents."""
    monkeypatch.setattr(blocks, "LARGEST_TABLE_SCALE", largest)
    drawn = law.sample(150_000, SeededSource((8, largest)))
    assert blocks.block_bits(Fraction(20)) == (5 if largest == 1 else 3)
    assert chi_square_p(drawn, law, bins=200) > 1e-9
    assert chi_square_p(drawn, type(law)(21 if law != DiscreteLaplace("1999/3") else 700), bins=200) < 1e-9


def test_grid_draws_are_exact_multiples() -> None:
    for law in (DiscreteLaplace("1/3", grid_bits=10), DiscreteGaussian(0.7, grid_bits=10)):
        drawn = law.sample(5000, SeededSource(2))
        assert np.array_equal(np.round(drawn * 1024), drawn * 1024)
        assert len(np.unique(drawn * 1024 % 16)) == 16


def test_shapes_sources_and_repeatability() -> None:
    law = DiscreteLaplace(10)
    assert law.sample((3, 4), SeededSource(1)).shape == (3, 4)
    assert law.sample(size=[2, 5], source=SeededSource(1)).shape == (2, 5)
    assert law.sample(0, SecureSource()).shape == (0,)
    assert law.sample((), SecureSource()).shape == ()
    assert law.sample(np.int64(7), SecureSource()).shape == (7,)
    assert np.array_equal(law.sample(200_000, SeededSource(4)), law.sample((400, 500), SeededSource(4)).ravel())
    assert not np.array_equal(law.sample(1000, SeededSource(4)), law.sample(1000, SeededSource(5)))
    for size in (-1, 1.5, "3", None):
        with pytest.raises(ConfigError, match="size"):
            law.sample(size, SecureSource())  # type: ignore[arg-type]
    for size in (2**62, (2**40, 2**40), (0, 2**62), (10**5000,)):
        with pytest.raises(ConfigError, match="more draws than an array can have"):
            law.sample(size, SecureSource())
    with pytest.raises(ConfigError, match="source"):
        law.sample(3, 7)  # type: ignore[arg-type]


def test_threads_share_the_tables() -> None:
    law = DiscreteGaussian(Fraction(777, 7))
    expected = [law.sample(70_000, SeededSource((9, i))) for i in range(4)]
    threshold_tables.table.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda i: law.sample(70_000, SeededSource((9, i))), range(4)))
    assert all(np.array_equal(a, b) for a, b in zip(expected, drawn, strict=True))


def test_opendp_agrees() -> None:
    """Two-sample: OpenDP's draws of the same law, and of one 20 % wider."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    space2 = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    for law, measurement in (
        (DiscreteLaplace(10), dp.m.make_laplace(*space, scale=10.0)),
        (DiscreteGaussian(10), dp.m.make_gaussian(*space2, scale=10.0)),
    ):
        theirs = np.array(measurement([0] * 40_000))
        assert chi_square_p(theirs, law) > 1e-9
        assert chi_square_p(theirs, type(law)(12)) < 1e-20


# --- the float functions ---------------------------------------------------------------------------------------------


def test_golden_discrete_laplace() -> None:
    block = GOLDEN["S4_discrete_laplace"]
    for row in block["rows"]:
        law = DiscreteLaplace(1 / exact_fraction(row["eps"]))
        got = [law.pmf(0), law.variance, law.mean_abs, law.sf(3), law.pmf(1) / law.pmf(0)]
        expected = [row["pmf0"], row["var"], row["mean_abs"], row["sf_gt_3"], row["a"]]
        assert got == pytest.approx(expected, rel=block["rel_tol"], abs=0)


def test_golden_discrete_gaussian() -> None:
    block = GOLDEN["S4_discrete_gaussian"]
    for row in block["rows"]:
        law = DiscreteGaussian.from_variance(row["sigma2"])
        assert [law.pmf(0), law.variance] == pytest.approx([row["pmf0"], row["variance"]], rel=block["rel_tol"], abs=0)


@pytest.mark.parametrize("scale", [0.05, 0.5, 1, 10, 1000])
def test_laplace_beside_scipy(scale: float) -> None:
    law, oracle = DiscreteLaplace(scale), stats.dlaplace(1 / scale)
    k = np.unique(np.round(np.linspace(-8 * scale - 3, 8 * scale + 3, 101)))
    assert law.pmf(k) == pytest.approx(oracle.pmf(k), rel=1e-11, abs=0)
    assert law.cdf(k) == pytest.approx(oracle.cdf(k), rel=1e-11, abs=0)
    assert law.sf(-k) == pytest.approx(oracle.cdf(k - 1), rel=1e-11, abs=0)
    assert law.variance == pytest.approx(oracle.var(), rel=1e-9)
    assert law.std == math.sqrt(law.variance)


@pytest.mark.parametrize("sigma2", ["1/100", "1/7", "0.49", "0.51", "1", "10/3", "400", "1000000", "1100000", "1e12"])
def test_gaussian_beside_sums_in_high_precision(sigma2: str) -> None:
    law = DiscreteGaussian.from_variance(sigma2)
    exact = exact_fraction(sigma2)
    sigma = math.sqrt(exact)
    with mp.workdps(30):
        s2 = mp.mpf(exact.numerator) / exact.denominator
        if sigma < 300:
            w = [mp.exp(-(mp.mpf(k) ** 2) / (2 * s2)) for k in range(int(25 * sigma) + 12)]
            total = 2 * mp.fsum(w) - 1
            variance = 2 * mp.fsum(k * k * x for k, x in enumerate(w)) / total
            mean_abs = 2 * mp.fsum(k * x for k, x in enumerate(w)) / total
            tail = lambda k: mp.fsum(w[k:]) / total  # noqa: E731
        else:
            # The integral over half-unit shifted cells, corrected by numerical differentiation: Poisson's formula in k.
            total, variance = mp.sqrt(2 * mp.pi * s2), s2
            f = lambda x: mp.exp(-(x**2) / (2 * s2))  # noqa: E731
            mean_abs = 2 * (s2 - mp.mpf(1) / 12 - 1 / (240 * s2)) / total
            tail = lambda k: mp.sumem(f, [k, mp.inf], tol=mp.mpf(10) ** -25) / total  # noqa: E731
        assert law.pmf(0) == pytest.approx(float(1 / total), rel=1e-13)
        assert law.variance == pytest.approx(float(variance), rel=1e-12, abs=0)
        assert law.mean_abs == pytest.approx(float(mean_abs), rel=1e-12, abs=0)
        for z in (0, 0.5, 2, 5, 9):
            k = int(z * sigma) + 1
            assert law.sf(k - 1) == pytest.approx(float(tail(k)), rel=1e-11, abs=0)
            assert law.cdf(-k) == law.sf(k - 1)
            assert law.cdf(k - 1) == pytest.approx(float(1 - tail(k)), rel=1e-13)


def test_gaussian_forms_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The summed tail and the asymptotic one at the sigma where one takes over from the other."""
    sigma2 = 1024.0**2
    k = np.array([1.0, 100.0, 3000.0, 20_000.0, 35_000.0])
    summed = gaussian_sums.tail(k, sigma2)
    monkeypatch.setattr(gaussian_sums, "_LARGEST_SUMMED_SIGMA", 1000.0)
    asymptotic = gaussian_sums.tail(k, sigma2)
    assert not np.array_equal(summed, asymptotic), "both took the same way"
    assert summed == pytest.approx(asymptotic, rel=1e-11, abs=0)


@pytest.mark.parametrize(
    "law",
    [
        DiscreteLaplace("1/7"),
        DiscreteLaplace(10),
        DiscreteLaplace(10**6 + Fraction(1, 3)),
        DiscreteLaplace(3, grid_bits=6),
        DiscreteGaussian("1/5"),
        DiscreteGaussian(10),
        DiscreteGaussian(10**7),
        DiscreteGaussian(3, grid_bits=6),
    ],
)
def test_quantile_inverts_the_cdf(law: Law) -> None:
    q = np.array([1e-300, 1e-12, 0.01, 0.3, 0.5, 0.7, 0.99, 1 - 1e-12])
    x = law.ppf(q)
    step = 2.0**-law.grid_bits
    assert np.all(law.cdf(x) >= q)
    assert np.all(law.cdf(x - step) < q)
    assert np.array_equal(law.ppf([0.0, 1.0]), [-np.inf, np.inf])
    assert np.isnan(law.ppf([-0.1, 1.1, np.nan])).all()
    assert law.ppf(0.5) == 0.0
    assert np.all(law.cdf(x) + law.sf(x) == pytest.approx(1.0))


@pytest.mark.parametrize("law", [DiscreteLaplace(2), DiscreteGaussian(2), DiscreteGaussian(5000)])
def test_arguments_off_the_lattice(law: Law) -> None:
    assert law.pmf(0.5) == 0.0
    assert law.cdf(0.5) == law.cdf(0)
    assert law.cdf(-0.5) == law.cdf(-1)
    assert law.sf(2.9) == law.sf(2)
    assert np.array_equal(law.cdf([-np.inf, np.inf, -1e308, 1e308]), [0, 1, 0, 1])
    assert np.array_equal(law.sf([-np.inf, np.inf]), [1, 0])
    assert np.array_equal(law.pmf([-np.inf, np.inf, 1e308]), [0, 0, 0])
    assert np.isnan([law.pmf(np.nan), law.cdf(np.nan), law.sf(np.nan)]).all()
    assert isinstance(law.pmf(0), float)
    assert law.pmf(np.zeros((2, 3), dtype=np.int64)).shape == (2, 3)
    assert law.mean == 0.0


def test_grid_law_is_the_scaled_integer_law() -> None:
    for fine, law in (
        (DiscreteLaplace(96), DiscreteLaplace(3, grid_bits=5)),
        (DiscreteGaussian(96), DiscreteGaussian(3, grid_bits=5)),
    ):
        assert law.variance == pytest.approx(fine.variance / 1024, rel=1e-15)
        assert law.mean_abs == pytest.approx(fine.mean_abs / 32, rel=1e-15)
        assert law.pmf(0.25) == fine.pmf(8)
        assert law.pmf(0.01) == 0.0
        assert law.cdf(0.25) == fine.cdf(8)
        assert law.ppf(0.9) == fine.ppf(0.9) / 32


def test_extreme_scales() -> None:
    for tiny in (
        DiscreteLaplace("1e-300"),
        DiscreteGaussian("1e-300"),
        DiscreteLaplace(5e-324),
        DiscreteLaplace("1/999"),
    ):
        assert (tiny.variance, tiny.mean_abs, tiny.pmf(0), tiny.pmf(1)) == (0.0, 0.0, 1.0, 0.0)
        assert not tiny.sample(100_000, SecureSource()).any()
        assert tiny.ppf(0.3) == 0.0
    assert DiscreteLaplace(1e9).variance == pytest.approx(2e18 - 1 / 6, rel=1e-15)
    assert DiscreteGaussian(1e9).variance == 1e18
    assert DiscreteLaplace("1/100").variance == pytest.approx(2 * math.exp(-100), rel=1e-13)
