"""Checks measured values before they are used: none may be further from its count than its noise can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import InternalError
from topdown.geography.tree import FloatArray, IntArray
from topdown.noise import Law
from topdown.noise.key import chunks
from topdown.noise.law import is_lattice_law
from topdown.privacy.bounds import NONE, LevelBounds
from topdown.privacy.single_child_units import LevelsArray, groups
from topdown.wording import shown

_UNBOUNDED = LevelBounds()


class Counted(NamedTuple):
    """The true answers to a query at some nodes, as entries of those that are not 0; several entries of one answer add
    up.

    ``rows``: the node of every entry, rising; ``answers`` and ``counts`` (entries,).
    """

    rows: IntArray
    answers: IntArray
    counts: IntArray


def reach_of(law: Callable[[int], Law | None], taken: LevelsArray) -> FloatArray:
    """The largest possible magnitude (nodes,) of the noise of nodes that took the shares of ``taken`` levels (nodes,),
    by their ``law``; 0 where nothing is drawn, inf for a law without `reach`.
    """
    found = np.zeros(len(taken))
    for kind, nodes in groups(taken, slice(0, len(taken))):
        own = law(kind)
        found[nodes] = 0.0 if own is None else own.reach if is_lattice_law(own) else np.inf
    return found


def require_within_law(
    values: npt.NDArray[Any],
    counted: Counted,
    reach: FloatArray,
    level: str,
    query: str,
    bounds: LevelBounds = _UNBOUNDED,
) -> None:
    """Refuse measured ``values`` (answers x nodes) if one is further from its count than its noise can be.

    The entries ``counted`` (none where a node is not measured) are added up again here, and compared as int64, whatever
    the type of the values. ``reach`` (nodes,): `reach_of` their noise. With ``bounds``, a value may be twice as far
    away, plus the distance of its count from the bounds. Raises `InternalError`.
    """
    exact = np.zeros(0, np.int64)
    for nodes in chunks(values.shape[1], len(values)):
        width, near = nodes.stop - nodes.start, reach[nodes]
        mine = np.ascontiguousarray(values[:, nodes])
        first, stop = np.searchsorted(counted.rows, (nodes.start, nodes.stop))
        at = counted.answers[first:stop] * width + (counted.rows[first:stop] - nodes.start)
        if len(exact) < mine.size:
            exact = np.zeros(mine.size, np.int64)
        np.add.at(exact, at, counted.counts[first:stop])
        # Most counts are 0: only the values that noise alone does not explain are checked one by one.
        most = _allowed(np.zeros(width, np.int64), near, bounds)
        if mine.dtype.kind == "i":
            largest = np.iinfo(mine.dtype).max
            narrow = most < largest
            most = np.where(narrow, np.where(narrow, most, 0).astype(mine.dtype), largest)
        suspect = [at]
        if mine.max() > most.min() or mine.min() < -most.min():
            suspect.append(np.flatnonzero((mine > most) | (mine < -most)))
        for places in suspect:
            measured, true = mine.reshape(-1).take(places), exact.take(places)
            allowed = _allowed(true, near.take(places % width), bounds)
            if measured.dtype.kind == "f":  # on a grid the sum of a large count and its noise is rounded
                allowed = allowed + np.spacing(np.abs(measured))
            if (np.abs(measured - true) > allowed).any():
                raise InternalError(
                    f"level {shown(level)}, query {shown(query)}: a measured value is further from its count than its "
                    "noise can be: an internal error of topdown; nothing was released, please report it"
                )
        exact[at] = 0


def _allowed(exact: IntArray, reach: FloatArray, bounds: LevelBounds) -> FloatArray:
    """How far measured values may be from the counts ``exact``."""
    if bounds.kind == NONE:
        return reach
    # Clipping moves a noisy count by its own distance from the bounds, at most that of the count and the noise. Noise
    # that is conditioned on the bounds begins at the count's distance, and goes on as noise does.
    outside = np.abs(bounds.nearest(exact) - exact)
    return np.asarray(2.0 * (reach + outside))
