"""Binds the noise of a release to the counts themselves and to the queries asked of them, besides the digests of its
inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from topdown.confidential.counts import Counts
from topdown.geography.tree import runs
from topdown.machine.arrays import narrow
from topdown.noise.key import NoiseKey
from topdown.privacy.plan import Plan

FEW_CELLS = 32
"""Up to so many cells, the code covers all counts of a leaf; with more cells, it covers those that are not 0."""
LEAVES_AT_ONCE = 1 << 16


def code_of_counts(counts: Counts, plan: Plan, key: NoiseKey) -> str:
    """HMAC-SHA256 under ``key`` of ``counts`` and of all that decides which numbers are measured of them: the names of
    the levels, the tree, the schema and the plan.

    Two measurements under `NoiseKey.streams` of this code share noise only if every number to which they add it is the
    same. The code does not depend on how the counts are stored, on the order of the table's rows, or on where the tree
    is cut.
    """
    return key.code("counts", _decisive(counts, plan))


def _decisive(counts: Counts, plan: Plan) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
    levels, schema, tree = counts.geography.levels, counts.schema, counts.geography.tree
    asked = plan.for_levels(levels).for_schema(schema).to_dict()
    names = None if counts.cells == schema.cells() else list(counts.cells)  # which then follow from the schema
    yield [levels, names, schema.to_mappings(), asked], tree.level_offsets
    yield "children", tree.child_offsets
    few = len(counts.cells) <= FEW_CELLS
    # The counts of inner nodes are the sums of their leaves'.
    for nodes in runs(tree.leaves, LEAVES_AT_ONCE):
        if few:
            yield "counts", narrow(counts.table(nodes))
        else:
            sizes, cells, numbers = counts.entries(nodes)
            yield "sizes", narrow(sizes)
            yield "cells", narrow(cells)
            yield "counts", narrow(numbers)
