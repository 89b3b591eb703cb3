"""Exact draws from an integer law by looking 16 bits up in a table.

The draw is X = #{thresholds F(k) <= U} for a uniform real U in [0, 1) whose bits are fetched as they are
needed. The first 64 bits u of U decide X unless u equals some floor(2^64 F(k)); 16 of them decide it for all
but the few table entries that a threshold falls into. More bits are fetched until X is decided, with
thresholds to as many bits, so that the law drawn is F itself, far tails included, and no floating-point
number takes part. The time taken depends on
the draws, as undecided ones cost more: sampling is not constant-time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topdown.noise.exact.look_up_kernel import Kernel, kernel
from topdown.noise.exact.tails import Enclosures, Tails
from topdown.noise.randomness import CHUNK_BYTES, Source, uint16, uint64

DRAWS_PER_CHUNK = CHUNK_BYTES // 2
_UNDECIDED = np.iinfo(np.int16).min
COMPILED_FROM = 1_000_000
"""From so many numbers drawn by one process, in one draw or in many, the loops are compiled; for fewer, loading the
compiler takes longer than it saves. The numbers drawn are the same.
"""

_asked = 0
"""How many numbers this process was asked for so far."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A law to 64 bits: ``guide`` by the first 16, ``thresholds`` floor(2^64 F(k)) for k = ``first``, ....

    ``guide`` has 65,536 entries, int16, the lowest int16 where the 16 bits do not decide; there ``least`` has the draw
    whose further bits are all 0. The arrays are read-only.
    """

    tails: Tails
    first: int
    thresholds: NDArray[np.uint64]
    guide: NDArray[np.int16]
    least: NDArray[np.int16]


@lru_cache(maxsize=64)
def cut(tails: Tails, bits: int) -> tuple[int, tuple[int, ...]]:
    """(first, thresholds): floor(2^bits F(k)) for k = first, first + 1, ....

    An unbounded end is closed by the one threshold 0 or 2^bits - 1 that all further integers share. The floors
    are proved: a tail whose enclosure contains an integer is computed again at twice the precision. Tails are
    irrational, so this ends, and floor(2^bits (1 - q)) = 2^bits - 1 - floor(2^bits q).
    """
    precision = bits + 64
    while True:
        above = _floors(tails.above(precision), precision - bits)
        below = _floors(tails.below(precision), precision - bits)
        if above is not None and below is not None:
            break
        precision *= 2
    top = (1 << bits) - 1
    return -len(below), (*reversed(below), *(top - q for q in above))


def _floors(tail: Enclosures, shift: int) -> list[int] | None:
    """Proved floors of a decreasing tail, up to the first 0; None if rounding could move one of them."""
    floors = []
    for lower, upper in tail:
        q = lower >> shift
        # Strictly inside (q, q + 1), in units of 2^shift; a tail is positive even where its lower end is 0.
        if upper >> shift != q or (q and lower == q << shift):
            return None
        floors.append(q)
        if not q:
            break
    return floors


@lru_cache(maxsize=128)
def table(tails: Tails) -> Table:
    """The table of a law whose 64-bit thresholds lie within +-32,767."""
    first, cuts = cut(tails, 64)
    if first <= _UNDECIDED or first + len(cuts) > -_UNDECIDED:
        raise AssertionError(f"{tails} is too wide for entries of 16 bits")
    thresholds = np.array(cuts, dtype=np.uint64)
    starts = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    least = (first + np.searchsorted(thresholds, starts, side="right")).astype(np.int16)
    guide = least.copy()
    guide[thresholds >> np.uint64(48)] = _UNDECIDED
    for array in (thresholds, guide, least):
        array.flags.writeable = False
    return Table(tails, first, thresholds, guide, least)


def announce(count: int) -> None:
    """Count so many numbers that are about to be drawn."""
    global _asked
    _asked += count


def prepare(count: int) -> None:
    """Load now what drawing so many numbers will load, so that a measurement of memory includes it."""
    if _asked + count >= COMPILED_FROM:
        kernel()


def _kernel() -> Kernel | None:
    return kernel() if _asked >= COMPILED_FROM else None


def draw(law: Table, count: int, source: Source) -> NDArray[np.int64]:
    """``count`` independent draws, int64; meant for at most ``DRAWS_PER_CHUNK`` at a time."""
    drawn = np.empty(count, np.int64)
    draw_into(law, drawn, source)
    return drawn


def draw_into(law: Table, drawn: NDArray[Any], source: Source) -> None:
    """Fill ``drawn``, int16, int32 or int64, as `draw` does. Raises OverflowError for a draw that does not fit."""
    top = uint16(source, drawn.size)
    in_place = drawn.dtype == np.int16 and drawn.flags.c_contiguous
    short = drawn if in_place else np.empty(drawn.size, np.int16)
    undecided = _look_up(law.guide, top, short)
    tied: Iterable[tuple[int, int]] = ()
    if undecided.size:
        further = uint64(source, undecided.size) >> np.uint64(16)
        tied = _refine(law, (top[undecided].astype(np.uint64) << np.uint64(48)) | further, short, undecided)
    if short is not drawn:
        drawn[:] = short
    for place, word in tied:
        put(drawn, slice(place, place + 1), np.array([_decide(law.tails, word, source)]))


def put(drawn: NDArray[Any], places: slice, values: NDArray[np.int64]) -> None:
    """``drawn[places] = values``. Raises OverflowError for a value that its kind of integer does not hold."""
    if drawn.dtype != np.int64 and values.size:
        fits = np.iinfo(drawn.dtype)
        if values.min() < fits.min or values.max() > fits.max:
            raise OverflowError(f"a draw does not fit into {drawn.dtype}: draw int64")
    drawn[places] = values


def _look_up(guide: NDArray[np.int16], top: NDArray[np.uint16], short: NDArray[np.int16]) -> NDArray[np.intp]:
    """``short`` = ``guide[top]``, and the places of what is undecided."""
    compiled = _kernel()
    if compiled is not None:
        return compiled.look_up(guide, top, _UNDECIDED, short)
    guide.take(top, out=short, mode="clip")
    return np.flatnonzero(short == _UNDECIDED)


def decided(law: Table, words: NDArray[np.uint64], further: Callable[[int], Source]) -> NDArray[np.int16]:
    """The draw of every uniform number whose first 64 bits are one of ``words``.

    ``further``: the source of the later bits of the number at a place, which is asked for about one in 2^48 numbers.
    """
    drawn = np.empty(words.size, np.int16)
    for start in range(0, words.size, DRAWS_PER_CHUNK):
        own, short = words[start : start + DRAWS_PER_CHUNK], drawn[start : start + DRAWS_PER_CHUNK]
        undecided = _look_up(law.guide, (own >> np.uint64(48)).astype(np.uint16), short)
        for place, word in _refine(law, own[undecided], short, undecided) if undecided.size else ():
            put(short, slice(place, place + 1), np.array([_decide(law.tails, word, further(start + place))]))
    return drawn


def _refine(
    law: Table, words: NDArray[np.uint64], short: NDArray[np.int16], undecided: NDArray[np.intp]
) -> Iterable[tuple[int, int]]:
    """Decide the ``undecided`` draws of ``short`` by their ``words``, 64 bits each; returns the places and the words of
    those that are still undecided.
    """
    compiled = _kernel()
    if compiled is not None:
        tied = compiled.refine(law.thresholds, law.first, law.least, words, undecided, short)
        return zip(undecided[tied].tolist(), words[tied].tolist(), strict=True)
    rank = np.searchsorted(law.thresholds, words, side="right")
    short[undecided] = law.first + rank
    # For rank 0, index -1 compares the last threshold, which such a word does not reach.
    tied = law.thresholds[rank - 1] == words
    return zip(undecided[tied].tolist(), words[tied].tolist(), strict=True)


def _decide(tails: Tails, u: int, source: Source) -> int:
    """The draw of a uniform number whose first 64 bits, ``u``, equal a threshold's."""
    bits = 64
    while True:
        bits += 64
        u = u << 64 | int(uint64(source, 1)[0])
        first, cuts = cut(tails, bits)
        rank = bisect_right(cuts, u)
        if rank == 0 or cuts[rank - 1] != u:
            value = first + rank
            if not -(1 << 63) <= value < 1 << 63:
                raise OverflowError(f"a draw of {value} does not fit into 64 bits")
            return value
