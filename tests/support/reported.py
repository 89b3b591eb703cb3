"""A small study, its results and its report, for the tests of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

import topdown as td
from topdown.studies.one_release import published_example
from topdown.studies.report.groupings import SIZE_CLASS, Grouping, by_size, group_means
from topdown.studies.report.results import StudyResults
from topdown.studies.report.summary import summarise

EVIL = '<b>x</b>&"</script><script>document.title="taken"</script>'
OBEYED = "=1+1 \x1b]0;taken\x07"
"""What spreadsheets and terminals would do something with."""
SIZES = {"A": 2, "B": 3, "C": 12}
METHODS = ["raw", "top-down/equality", "top-down", "gls", "gls-top-down", "gls-top-down/rounded"]
PLAN = td.Plan(epsilon="0.5", shares={"nation": "0.2", "state": "0.3", "county": "0.5"})


def nation() -> tuple[td.Geography, td.Counts, tuple[str, ...]]:
    rows = [
        {"nation": "US", "state": s, "county": f"{s}{k:02d}", "name": f"county {s}{k}", "x": 4 * k, "y": 50 + 9 * k}
        for s, n in SIZES.items()
        for k in range(n)
    ]
    rows[0]["name"], rows[1]["name"] = EVIL, OBEYED
    frame = pd.DataFrame(rows)
    geography = td.Geography.from_table(frame, ["nation", "state", "county"], name={"county": "name"})
    counts = td.Counts.from_table(frame, geography, geoid="county", cells=["x", "y"])
    labels = tuple("<i>coast</i>" if k % 3 else "inland" for k in range(len(rows)))
    return geography, counts, labels


def groupings(counts: td.Counts, labels: tuple[str, ...]) -> dict[str, Grouping]:
    leaves = counts.values[counts.geography.tree.leaves]
    return {SIZE_CLASS: by_size(leaves, counts.cells, [10, 100, 150]), "region": Grouping(labels)}


def studied(plan: td.Plan = PLAN, methods: list[str] = METHODS, replicates: int = 3000, **more: Any) -> dict[str, Any]:
    """A small study's table, results and summary."""
    _, counts, labels = nation()
    grouped = groupings(counts, labels)
    fund, cut = td.FundShare("x"), td.Threshold("x", 10.0)
    means = group_means(grouped, counts.cells, [fund, cut])
    shaded = more.pop("shaded_above", (0.2, 0.4))
    outlines, seed = more.pop("outlines", None), more.pop("seed", 3)
    example = None
    if more.get("coverage") is not None:
        bound = plan.for_levels(counts.geography.levels)
        example = published_example(counts, bound, "gls-top-down", seed, more["coverage"].confidence)
    table = td.simulate(counts, plan, methods, replicates, seed, rules=[fund, cut, *means], **more)
    results = StudyResults(
        table,
        plan.for_levels(counts.geography.levels),
        title=f"counts of {EVIL}",
        released="gls-top-down",
        groupings=grouped,
        funds=[fund.label],
        thresholds=[cut],
        outlines=outlines,
        seed=seed,
        wanted=replicates,
        published=example,
        shaded_above=shaded,
    )
    return {"table": table, "summary": summarise(results), "plan": plan, "results": results}


def outline_file(tmp_path: Path) -> Path:
    """A square per leaf, in a row, as GeoJSON with counterclockwise rings (RFC 7946)."""
    geography, _, _ = nation()
    first = geography.tree.leaves.start
    features = []
    for k, geoid in enumerate(geography.identifiers[first:].to_pylist()):
        ring = [[k, 0], [k + 1, 0], [k + 1, 1], [k, 1], [k, 0]]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": {"code": geoid, "k": k}, "geometry": geometry})
    path = tmp_path / "outlines.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path
