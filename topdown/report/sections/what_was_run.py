"""What was run: units, noise, replicates, the plan in words."""

from __future__ import annotations

import numpy as np

from topdown.machine.software import version_of
from topdown.report.results import StudyResults
from topdown.report.section import Section, Summary, fragment


def run_numbers(results: StudyResults) -> Summary:
    """``run``: sizes, seed, replicates and noise; ``privacy``: the plan in words."""
    table, plan, geography = results.table, results.plan, results.table.geography
    sizes = [geography.level_slice(level) for level in geography.levels]
    run = {
        "software": f"topdown {version_of()}",
        "nodes": geography.n_nodes,
        "level_sizes": {level: s.stop - s.start for level, s in zip(geography.levels, sizes, strict=True)},
        "replicates": table.replicates,
        "wanted": results.wanted,
        "seed": results.seed,
        "reference": table.reference,
        "mechanism": plan.mechanism,
        "noise_sd": {
            level: float(np.sqrt(table.noise_variance[s].mean()))
            for level, s in zip(geography.levels, sizes, strict=True)
        },
    }
    return {"run": run, "privacy": plan.describe(geography.levels)}


SECTION = Section(name="run", template=fragment("what_was_run"), numbers=run_numbers, link="What was run")
