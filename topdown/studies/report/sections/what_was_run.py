"""What was run: units, noise, replicates, the plan in words."""

from __future__ import annotations

import numpy as np

from topdown.machine.software import version_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment
from topdown.workload import TOTAL


def run_numbers(results: StudyResults) -> Summary:
    """``run``: sizes, seed, replicates and noise; ``privacy``: the plan in words. ``headline``: the cells that the
    findings sum up, ``counted``: what these are."""
    table, plan, geography = results.table, results.plan, results.table.geography
    sizes = [geography.level_slice(level) for level in geography.levels]
    run = {
        "software": f"topdown {version_of()}",
        "nodes": geography.n_nodes,
        "level_sizes": {level: s.stop - s.start for level, s in zip(geography.levels, sizes, strict=True)},
        "replicates": table.replicates,
        "wanted": results.wanted,
        "seed": results.seed,
        "draws": dict(table.draws),
        "reference": table.reference,
        "mechanism": plan.mechanism,
        "noise_sd": {
            level: float(np.sqrt(table.noise_variances[s][:, table.headline].mean()))
            for level, s in zip(geography.levels, sizes, strict=True)
        },
    }
    query = table.of_query[0] if table.follows_queries else ""
    counted = f"answer to “{query}”" if query and query != TOTAL else query or "count"
    headline = list(table.cells[table.headline])
    return {"run": run, "privacy": plan.describe(table.measured_levels), "counted": counted, "headline": headline}


SECTION = Section(name="run", template=fragment("what_was_run"), numbers=run_numbers, link="What was run")
