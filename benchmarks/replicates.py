"""How often what readers compute from replicates holds the truth: medians, shares and ranks, beside plain counts.

``python benchmarks/replicates.py TABLE [--epsilon 1] [--draws 100] [--replicates 50] [--json FILE]``

TABLE is one of ``TABLES``: counties of the United States by employment, of which the cells alone are measured in equal
shares by level; blocks of Rhode Island by voting age, origin and race ("persons"), and by voting age and race
("blocks"), of which four queries are measured at every level. Every draw measures anew and makes as many replicates as
``[output] replicates`` would; a statistic of the true counts is held where it is within the middle 90 % of the same
statistic of the replicates. If the truth were one more replicate, 45 of 51 would be, or .88, and more where many
replicates are alike.

Statistics of the lowest units: every count and every total, by size; of every parent the median over its units of one
group (the unemployed, or those of voting age); every unit's share of this group; its rank within its parent by the
group. After +- the standard error over draws.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from answer_coverage import CLASSES, EDGES, plan_of
from answer_coverage import TABLES as COUNTED
from record import RESULTS, machine

import topdown as td
from topdown.config import DerivationConfig
from topdown.config.derivation import Output
from topdown.noise import KeyedSource
from topdown.pipeline.derive import drawn_around
from topdown.release.whole_counts import Release

TABLES = {"counties": "unemployed", "persons": "18 and over", "blocks": "adult"}
"""By table the category of the group."""

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def counted(table: str) -> td.Counts:
    """A table's counts; of the counties the cells are no attribute's."""
    return COUNTED[table][0]()


def planned(table: str, levels: tuple[str, ...], epsilon: str) -> td.Plan:
    """What is measured of a table."""
    if table == "counties":
        return td.Plan(epsilon=epsilon, shares=dict.fromkeys(levels, f"1/{len(levels)}"))
    return plan_of(COUNTED[table][1], levels, f"epsilon={epsilon}")


def medians(values: IntArray, families: list[slice]) -> FloatArray:
    """Of every family the median of its units, (families, ...)."""
    return np.stack([np.median(values[one], axis=0) for one in families])


def ranks(values: IntArray, families: list[slice]) -> FloatArray:
    """Of every unit its rank in its family, 1 + how many have more; (units, ...)."""
    return np.concatenate([1.0 + (values[one][None] > values[one][:, None]).sum(axis=1) for one in families])


def held(truth: FloatArray, tables: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether statistics (n,) are within the middle 90 % of those of replicates (n x replicates)."""
    low, high = np.quantile(tables, [0.05, 0.95], axis=1, method="inverted_cdf")
    return (low <= truth) & (truth <= high)


def leaf_tables(made: list[Release], leaves: slice) -> IntArray:
    """The counts of the lowest units (units x cells x replicates)."""
    return np.stack([one.values_of(leaves) for one in made], axis=-1)


def main() -> None:
    """All statistics of all draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    counts = counted(arguments.table)
    geography, tree, leaves = counts.geography, counts.geography.tree, counts.geography.tree.leaves
    offsets = tree.child_offsets - leaves.start
    parents = tree.level(tree.n_levels - 2)
    families = [slice(int(offsets[k]), int(offsets[k + 1])) for k in range(parents.start, parents.stop)]
    group = np.array([TABLES[arguments.table] in name.split("_") for name in counts.schema.cells()])
    assert group.any(), counts.schema.cells()
    true = counts.values[leaves]
    plan = planned(arguments.table, tuple(geography.levels), arguments.epsilon)
    config = DerivationConfig(output=Output(replicates=arguments.replicates))
    statistics: dict[str, Callable[[IntArray], FloatArray]] = {
        f"medians of {geography.levels[-2]}": lambda x: medians(x[:, group].sum(axis=1), families),
        f"shares of {geography.levels[-1]}": lambda x: x[:, group].sum(axis=1) / np.maximum(x.sum(axis=1), 1),
        f"ranks in {geography.levels[-2]}": lambda x: ranks(x[:, group].sum(axis=1), families),
    }
    found: dict[str, list[float]] = {}
    for draw in range(arguments.draws):
        measurements = td.measure(counts, plan, source=td.SeededSource((2027, draw)))
        tables = leaf_tables(drawn_around(config, measurements, KeyedSource(draw.to_bytes(32, "little"))), leaves)
        for what, of in {"counts": lambda x: x, "totals": lambda x: x.sum(axis=1, keepdims=True)}.items():
            truth, drawn = of(true).reshape(-1), of(tables).reshape(-1, arguments.replicates)
            inside, size = held(truth.astype(float), drawn.astype(float)), np.digitize(truth, EDGES)
            for place, name in enumerate(CLASSES):
                if (size == place).any():
                    found.setdefault(f"{what}, {name}", []).append(float(inside[size == place].mean()))
        for name, of in statistics.items():
            found.setdefault(name, []).append(float(held(of(true), of(tables)).mean()))
        print(draw + 1, {name: round(float(np.mean(one)), 3) for name, one in found.items()}, flush=True)
    figures = {
        name: {
            "held": round(float(np.mean(one)), 3),
            "standard error": round(float(np.std(one, ddof=1) / len(one) ** 0.5), 4),
        }
        for name, one in sorted(found.items())
    }
    for name, one in figures.items():
        print(f"{name:30s} {one['held']:.3f} +- {one['standard error']:.4f}")
    path = arguments.json or RESULTS / f"replicates-{arguments.table}-{arguments.epsilon}.json"
    known = {name: getattr(arguments, name) for name in ("table", "epsilon", "draws", "replicates")}
    path.write_text(json.dumps({"benchmark": "replicates", "machine": machine(), **known, "figures": figures}) + "\n")


if __name__ == "__main__":
    main()
