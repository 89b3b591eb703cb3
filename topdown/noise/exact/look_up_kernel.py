"""Two compiled loops: the look-up in a table of thresholds, which also lists the places that it leaves undecided, and
the decision of these. Both run without the interpreter's lock, so that threads share the work.

They are written in LLVM's assembly language, since loading numba would take longer than the noise of a nation.
`thresholds` has the same in numpy.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topdown.machine.native import Native, native

_LOOPS = """
; short[place] = guide[top[place]] for all places; those where it is mark go to the front of undecided. Gives how many.
define i64 @look_up(ptr %guide, ptr %top, i64 %count, i16 %mark, ptr %short, ptr %undecided) {
before:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %after, label %draw
draw:
  %place = phi i64 [ 0, %before ], [ %next, %end ]
  %found = phi i64 [ 0, %before ], [ %all, %end ]
  %at_top = getelementptr i16, ptr %top, i64 %place
  %bits = load i16, ptr %at_top
  %index = zext i16 %bits to i64
  %at_guide = getelementptr i16, ptr %guide, i64 %index
  %entry = load i16, ptr %at_guide
  %at_short = getelementptr i16, ptr %short, i64 %place
  store i16 %entry, ptr %at_short
  %is_mark = icmp eq i16 %entry, %mark
  br i1 %is_mark, label %list, label %end
list:
  %at_list = getelementptr i16, ptr %undecided, i64 %found
  %short_place = trunc i64 %place to i16
  store i16 %short_place, ptr %at_list
  %one_more = add i64 %found, 1
  br label %end
end:
  %all = phi i64 [ %found, %draw ], [ %one_more, %list ]
  %next = add i64 %place, 1
  %again = icmp ult i64 %next, %count
  br i1 %again, label %draw, label %after
after:
  %result = phi i64 [ 0, %before ], [ %all, %end ]
  ret i64 %result
}

; For each of count words its rank, how many of the thresholds (of size) are up to it, counted from the least draw of
; its first 16 bits on: short[undecided[number]] = first + rank. tied[number]: whether the last of them is the word.
define void @refine(ptr %thresholds, i64 %size, i64 %first, ptr %least, ptr %words, i64 %count, ptr %undecided,
                    ptr %short, ptr %tied) {
before:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %after, label %draw
draw:
  %number = phi i64 [ 0, %before ], [ %next, %end ]
  %at_word = getelementptr i64, ptr %words, i64 %number
  %word = load i64, ptr %at_word
  %cell = lshr i64 %word, 48
  %at_least = getelementptr i16, ptr %least, i64 %cell
  %smallest = load i16, ptr %at_least
  %wide = sext i16 %smallest to i64
  %start = sub i64 %wide, %first
  br label %try
try:
  %rank = phi i64 [ %start, %draw ], [ %higher, %pass ]
  %is_left = icmp ult i64 %rank, %size
  br i1 %is_left, label %compare, label %write
compare:
  %at_threshold = getelementptr i64, ptr %thresholds, i64 %rank
  %threshold = load i64, ptr %at_threshold
  %is_passed = icmp ule i64 %threshold, %word
  br i1 %is_passed, label %pass, label %write
pass:
  %higher = add i64 %rank, 1
  br label %try
write:
  %at_place = getelementptr i64, ptr %undecided, i64 %number
  %place = load i64, ptr %at_place
  %drawn = add i64 %first, %rank
  %narrow = trunc i64 %drawn to i16
  %at_short = getelementptr i16, ptr %short, i64 %place
  store i16 %narrow, ptr %at_short
  %at_tied = getelementptr i8, ptr %tied, i64 %number
  store i8 0, ptr %at_tied
  %is_first = icmp eq i64 %rank, 0
  br i1 %is_first, label %end, label %look
look:
  %last = sub i64 %rank, 1
  %at_last = getelementptr i64, ptr %thresholds, i64 %last
  %last_passed = load i64, ptr %at_last
  %is_tied = icmp eq i64 %last_passed, %word
  %as_byte = zext i1 %is_tied to i8
  store i8 %as_byte, ptr %at_tied
  br label %end
end:
  %next = add i64 %number, 1
  %again = icmp ult i64 %next, %count
  br i1 %again, label %draw, label %after
after:
  ret void
}
"""

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_lock = threading.Lock()
_made: list[Kernel | None] = []


@dataclass(frozen=True, eq=False)
class Kernel:
    """Both loops, as functions of arrays."""

    _code: Native
    _look_up: Any
    _refine: Any

    @classmethod
    def of(cls, code: Native) -> Kernel:
        """The loops in compiled ``code``."""
        look_up = ctypes.CFUNCTYPE(_NUMBER, _POINTER, _POINTER, _NUMBER, ctypes.c_int16, _POINTER, _POINTER)
        refine = ctypes.CFUNCTYPE(
            None, _POINTER, _NUMBER, _NUMBER, _POINTER, _POINTER, _NUMBER, _POINTER, _POINTER, _POINTER
        )
        return cls(code, look_up(code.address("look_up")), refine(code.address("refine")))

    def look_up(
        self, guide: NDArray[np.int16], top: NDArray[np.uint16], mark: int, short: NDArray[np.int16]
    ) -> NDArray[np.intp]:
        """``short`` = ``guide[top]`` (65,536 at most), and the places where that is ``mark``."""
        fits = guide.size == 1 << 16 and short.size == top.size <= 1 << 16
        _require({np.int16: (guide, short), np.uint16: (top,)}, fits=fits)
        # A narrow type, since memory for all of them is allocated again for every chunk.
        undecided = np.empty(top.size, np.uint16)
        count = self._look_up(_at(guide), _at(top), top.size, mark, _at(short), _at(undecided))
        return undecided[:count].astype(np.intp)

    def refine(
        self,
        thresholds: NDArray[np.uint64],
        first: int,
        least: NDArray[np.int16],
        words: NDArray[np.uint64],
        undecided: NDArray[np.intp],
        short: NDArray[np.int16],
    ) -> NDArray[np.bool_]:
        """``short`` at the ``undecided`` places by their ``words`` of 64 bits; which words are a threshold."""
        tied = np.empty(words.size, np.bool_)
        fits = least.size == 1 << 16 and words.size == undecided.size
        fits = fits and (not undecided.size or (int(undecided.min()) >= 0 and int(undecided.max()) < short.size))
        _require({np.uint64: (thresholds, words), np.int16: (least, short), np.int64: (undecided,)}, fits=fits)
        read = [_at(array) for array in (least, words)]
        written = [_at(array) for array in (undecided, short, tied)]
        self._refine(_at(thresholds), thresholds.size, first, *read, words.size, *written)
        return tied


def kernel() -> Kernel | None:
    """The loops, compiled at the first call; None where they cannot be compiled."""
    with _lock:
        if not _made:
            code = native(_LOOPS)
            _made.append(None if code is None else Kernel.of(code))
        return _made[0]


def _at(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _require(kinds: dict[Any, tuple[NDArray[Any], ...]], *, fits: bool) -> None:
    """Check that the loops stay within the arrays, and that the arrays have the types that the loops read."""
    for kind, arrays in kinds.items():
        fits = fits and all(one.dtype == kind and one.flags.c_contiguous for one in arrays)
    if not fits:
        raise AssertionError("arrays of another kind, layout or size than the compiled loops are for")
