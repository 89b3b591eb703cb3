"""What a solver is given and what is made of its answer, so that the size of counts does not matter to it.

Numbers that it sees are differences, rounded once; its answer is moved onto the sums and bounds, which it meets to a
tolerance only.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from topdown.geography.tree import Families, FloatArray, Tree


def centred(y: FloatArray, known: npt.NDArray[np.bool_], totals: FloatArray, families: Families) -> FloatArray:
    """``y`` with an equal share, for each child that is not ``known``, of what its family has left: a place to start.

    No more than that, since the program holds no term of it.
    """
    unknown = families.total((~known).astype(np.int64))
    rest = np.maximum(totals - families.total(np.where(known, y, 0.0)), 0.0) / np.maximum(unknown, 1)
    return np.where(known, y, families.spread(rest))


def centred_tree(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    """The same for all unmeasured nodes; one whose children are known has their sum."""
    known, y = np.isfinite(v), np.array(y)
    for families in tree.families_up():
        c, p = families.children, families.parents
        filled = ~known[p] & (families.total((~known[c]).astype(np.int64)) == 0)
        y[p] = np.where(filled, families.total(y[c]), y[p])
        known[p] |= filled
    for families in tree.families_down():
        y[families.children] = centred(y[families.children], known[families.children], y[families.parents], families)
    return y


def lacking(sums: sp.csr_array, y: FloatArray, totals: FloatArray) -> FloatArray:
    """totals - sums y, rounded once: differences of large numbers, which the solver never sees."""
    terms = -sums.data * y[sums.indices]
    bounds = itertools.pairwise(sums.indptr.tolist())
    return np.array(
        [math.fsum([total, *terms[start:stop]]) for total, (start, stop) in zip(totals, bounds, strict=True)]
    )


def onto_sums(
    x: FloatArray, v: FloatArray, totals: FloatArray, lower: FloatArray | None, families: Families
) -> FloatArray:
    """``x`` (children,) within its bounds, what families lack shared out among those inside, as the noise would be."""
    x = x if lower is None else np.maximum(x, lower)
    inside = np.ones(len(x), np.bool_) if lower is None else x > lower
    # A family with all of its children at their bounds has next to nothing; any child may have it.
    inside |= families.spread(families.total((inside & (v > 0)).astype(np.int64)) == 0)
    unmeasured = inside & np.isinf(v)
    some = families.spread(families.total(unmeasured.astype(np.int64)) > 0)
    room = np.where(some, unmeasured, np.where(inside & np.isfinite(v), v, 0.0))
    whole = families.total(room)
    step = np.divide(totals - families.total(x), whole, out=np.zeros_like(whole), where=whole > 0)
    x = x + room * families.spread(step)
    return x if lower is None else np.maximum(x, lower)
