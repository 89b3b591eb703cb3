"""The look-up in a table of thresholds, compiled, with the undecided places in the same pass, and their decision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topdown.machine.compiled import compiled


@compiled
def look_up(
    guide: NDArray[np.int16],
    top: NDArray[np.uint16],
    undecided_entry: int,
    short: NDArray[np.int16],
    undecided: NDArray[np.intp],
) -> int:
    """``short`` = ``guide[top]``; the places of ``undecided_entry`` in it first in ``undecided``, and how many."""
    count = 0
    for place in range(top.size):
        entry = guide[top[place]]
        short[place] = entry
        if entry == undecided_entry:
            undecided[count] = place
            count += 1
    return count


@compiled
def refine(
    thresholds: NDArray[np.uint64],
    first: int,
    least: NDArray[np.int16],
    words: NDArray[np.uint64],
    undecided: NDArray[np.intp],
    short: NDArray[np.int16],
    tied: NDArray[np.bool_],
) -> None:
    """``short`` at the ``undecided`` places by their ``words`` of 64 bits; ``tied``: which words are a threshold's.

    From the least draw of a word's first 16 bits on: there are hardly ever more than a few thresholds to pass.
    """
    for number in range(words.size):
        word = words[number]
        rank = least[word >> np.uint64(48)] - first
        while rank < thresholds.size and thresholds[rank] <= word:
            rank += 1
        short[undecided[number]] = first + rank
        tied[number] = rank > 0 and thresholds[rank - 1] == word
