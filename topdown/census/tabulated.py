"""Converts a release on the spine into one on states, counties, tracts, block groups and blocks by GEOID."""

from __future__ import annotations

import numpy as np

from topdown.census.layouts.noisy_layout import tabulation_units
from topdown.census.layouts.redistricting_layout import WIDTHS
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.release.whole_counts import Release, SparseCounts
from topdown.wording import listed
from topdown.workload.redistricting import SPINE


def tabulated_release(release: Release) -> Release:
    """The same release with its blocks under the tabulation units that they lie in.

    Blocks keep their counts; every unit above is their sum. Levels are state, county, tract, block group and block,
    units are called by GEOIDs, so that `write_pl94` and others that know these take it. Raises `DataError` for a
    geography that does not end with the spine's blocks, and for blocks of several states.

    Args:
        release: made from noisy measurement files, on the spine that these describe.

    Examples:
        >>> noisy = td.read_noisy_measurements("nmf", state="44")
        >>> whole = td.project_whole(noisy.measurements, constraints=noisy.limits, source=td.SeededSource(1))
        >>> td.tabulated_release(whole).geography.levels
        ('state', 'county', 'tract', 'block group', 'block')
    """
    lies_in = list(tabulation_units(release.geography, SPINE[-1]).values())
    geography = _by_geoid(lies_in)
    tree, found = geography.tree, []
    blocks, cells, counts = release.entries_of(release.geography.tree.leaves)
    nodes = geography.index_of(lies_in)[blocks]
    for _ in range(tree.n_levels):
        # The entries of one level, each node and cell once, nodes and cells in rising order.
        key, place = np.unique(nodes * release.schema.n_cells + cells, return_inverse=True)
        nodes, cells = np.divmod(key, release.schema.n_cells)
        counts = np.bincount(place.reshape(-1), counts, len(key)).astype(np.int64)
        found.append((nodes, cells, counts))
        nodes = tree.parent[nodes]
    nodes, cells, counts = (np.concatenate([one[k] for one in found[::-1]]) for k in range(3))
    entries = SparseCounts(np.searchsorted(nodes, np.arange(geography.n_nodes + 1)), cells, counts)
    return Release.of_entries(
        geography, release.schema, entries, method=release.method, fit_for_release=release.fit_for_release
    )


def tabulated_geography(geography: Geography) -> Geography:
    """The geography of `tabulated_release`, of a release on the spine's ``geography``. Raises as that does."""
    return _by_geoid(list(tabulation_units(geography, SPINE[-1]).values()))


def _by_geoid(blocks: list[str]) -> Geography:
    states = sorted({geoid[: WIDTHS["state"]] for geoid in blocks})
    if len(states) > 1:
        raise DataError(f"the blocks are of the states {listed(states)}; give the release of one state")
    widths = {level: width for level, width in WIDTHS.items() if level != "state"}
    return Geography.from_geoids(blocks, widths, root=states[0], root_level="state")
