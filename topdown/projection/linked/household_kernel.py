"""Swaps of households between children, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.machine.compiled import compiled

_MOST_SWEEPS = 20
_GAIN = 1e-9


@compiled
def swap(
    h: Any,
    x: Any,
    features: Any,
    weights: Any,
    off: Any,
    own: float,
    candidates: Any,
    answers: Any,
    said: Any,
    answered: float,
) -> int:
    """Swap a household i of a child a for one j of a child b, in place of ``h`` (children x cells), while that lowers

        sum_c sum_f weights_f off_cf^2  +  answered sum_c sum_r said_cr^2  +  own |h - x|^2,

    ``off`` (children x features) being by how much the sums of ``features`` (features x cells) are off, and ``said``
    (children x answers) by how much the answers to queries are: ``answers`` (queries x cells) has the answer in which a
    cell counts, -1 for none. Those that are looked at are the ``candidates`` (children x places) of every child, -1 for
    none. Gives the number of swaps.
    """
    children, places = candidates.shape
    count = len(weights)
    swaps = 0
    for _ in range(_MOST_SWEEPS):
        before = swaps
        for a in range(children):
            for b in range(children):
                if a == b:
                    continue
                for p in range(places):
                    i = candidates[a, p]
                    if i < 0 or h[a, i] == 0:
                        continue
                    best, best_j = -_GAIN, -1
                    for q in range(places):
                        j = candidates[b, q]
                        if j < 0 or j == i or h[b, j] == 0:
                            continue
                        # h[a, i] and h[b, j] fall by one, h[a, j] and h[b, i] rise by one.
                        change = (
                            own
                            * 2
                            * (
                                2
                                - (h[a, i] - x[a, i])
                                - (h[b, j] - x[b, j])
                                + (h[a, j] - x[a, j])
                                + (h[b, i] - x[b, i])
                            )
                        )
                        for f in range(count):
                            d = features[f, j] - features[f, i]
                            if d != 0:
                                change += weights[f] * 2 * d * (d + off[a, f] - off[b, f])
                        for query in answers:
                            gone, come = query[i], query[j]
                            if gone != come:
                                if gone >= 0:
                                    change += answered * 2 * (1 - said[a, gone] + said[b, gone])
                                if come >= 0:
                                    change += answered * 2 * (1 + said[a, come] - said[b, come])
                        if change < best:
                            best, best_j = change, j
                    if best_j >= 0:
                        h[a, i] -= 1
                        h[a, best_j] += 1
                        h[b, best_j] -= 1
                        h[b, i] += 1
                        for f in range(count):
                            d = features[f, best_j] - features[f, i]
                            off[a, f] += d
                            off[b, f] -= d
                        for query in answers:
                            if query[i] >= 0:
                                said[a, query[i]] -= 1
                                said[b, query[i]] += 1
                            if query[best_j] >= 0:
                                said[a, query[best_j]] += 1
                                said[b, query[best_j]] -= 1
                        swaps += 1
        if swaps == before:
            break
    return swaps


@compiled
def move_members(r: Any, x: Any, excess: Any) -> None:
    """Move members between children, in place of ``r`` (children x cells), from where there is an ``excess``
    (children,) to where there is a lack, so that |r - x|^2 grows least with every one; ``excess`` ends at 0."""
    children, cells = r.shape
    while True:
        best, best_a, best_b, best_k = np.inf, -1, -1, -1
        for a in range(children):
            if excess[a] <= 0:
                continue
            for k in range(cells):
                if r[a, k] == 0:
                    continue
                gone = 1 - 2 * (r[a, k] - x[a, k])
                for b in range(children):
                    if excess[b] < 0:
                        change = gone + 1 + 2 * (r[b, k] - x[b, k])
                        if change < best:
                            best, best_a, best_b, best_k = change, a, b, k
        if best_a < 0:
            return
        r[best_a, best_k] -= 1
        r[best_b, best_k] += 1
        excess[best_a] -= 1
        excess[best_b] += 1
