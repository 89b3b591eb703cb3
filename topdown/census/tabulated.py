"""Converts a release on the spine into one on states, counties, tracts, block groups and blocks by GEOID."""

from __future__ import annotations

from topdown.census.layouts.noisy_layout import tabulation_units
from topdown.census.layouts.redistricting_layout import WIDTHS
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.unit_sums import UnitSums
from topdown.release.whole_counts import Release, SparseCounts, sum_runs, summed
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
    geography, held = _by_geoid(lies_in), release.held
    place = geography.index_of(lies_in) - geography.tree.leaves.start
    units = UnitSums.of_leaves(geography, place, release.geography.tree)
    runs = [summed(held, units, release.schema.n_cells, run) for run in sum_runs(held, units)]
    entries = SparseCounts.one_after_another(runs)
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
