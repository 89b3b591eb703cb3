"""Groups of the cells of a family: which there are, and where their cells stand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topdown.geography.tree import IntArray


class Groups(NamedTuple):
    """``names`` (groups,): in rising order. ``place`` (cells,): the place among them of each cell's group. ``order``
    (cells,): the cells group by group, and ``starts`` (groups,) where in it each group begins.
    """

    names: IntArray
    place: IntArray
    order: IntArray
    starts: IntArray


def grouped(labels: IntArray) -> Groups:
    """The groups of cells with the same of ``labels`` (cells,); `numpy.unique` and more, by one sorting."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    begins = np.ones(len(labels), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    place = np.empty(len(labels), np.int64)
    place[order] = np.cumsum(begins) - 1
    return Groups(ordered[starts], place, order, starts)
