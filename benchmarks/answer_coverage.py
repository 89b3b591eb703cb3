"""How often intervals of answers hold the true number where several queries were measured, on real tables of ``data/``.

``python benchmarks/answer_coverage.py TABLE [--budgets rho=1,epsilon=2 ...] [--draws N] [--json FILE]``

TABLE is one of ``TABLES``, or ``show``, which prints what all have so far: by kind (answers at every node; sums over 1,
3, 10 and 100 of the lowest units; differences and shares of such sums) and by size of the true count how often 90, 95
and 99 % intervals hold it. Behind every figure is its standard error over draws, since the intervals of one draw depend
on each other. The laws of errors depend on the plan alone, and so are computed once for all draws.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from filelock import FileLock
from record import RESULTS, machine

import topdown as td
from topdown.analysis.regions import AnswerSum, Regions
from topdown.analysis.sum_intervals import fieller, sum_margin
from topdown.machine.files import whole_file
from topdown.projection.histograms.linear_answers import linear_answers
from topdown.uncertainty.intervals import intervals
from topdown.uncertainty.laws.answer_laws import AnswerLaws
from topdown.uncertainty.laws.error_law import quantile
from topdown.workload import Query

DATA = Path(__file__).parents[1] / "data"
CONFIDENCES = (0.9, 0.95, 0.99)
BUDGETS = tuple(f"rho={rho}" for rho in ("1e-5", "1e-3", ".1", ".5", "1", "2.5", "5", "12", "50")) + tuple(
    f"epsilon={epsilon}" for epsilon in (".1", ".5", "1", "2", "4", "10", "20", "40")
)
EDGES = (1, 10, 100, 1_000)
CLASSES = ("0", "1-9", "10-99", "100-999", "1000+")
SIZES = (1, 3, 10, 100)
REGIONS, ANSWERS = 10, 5
"""Regions of a size, half of them neighbours, and answers to a query of which sums are taken."""
KEPT_EVERY = 50

Nodes = tuple[np.ndarray, np.ndarray]


def blocks() -> td.Counts:
    """103 blocks of Rhode Island by voting age and race: 16 cells, five levels."""
    frame = pd.read_csv(DATA / "small" / "ri_block_race_2010.csv", dtype={"GEOID": str})
    races = [name[4:] for name in frame if name.startswith("pop_")]
    minors = frame[[f"pop_{race}" for race in races]].to_numpy() - frame[[f"vap_{race}" for race in races]].to_numpy()
    values = np.concatenate([minors, frame[[f"vap_{race}" for race in races]].to_numpy()], axis=1)
    geography = td.Geography.from_geoids(
        frame["GEOID"].tolist(), {"county": 5, "tract": 11, "block group": 12, "block": 15}, root="44"
    )
    return _counts(frame["GEOID"], values, geography, {"age": ["minor", "adult"], "race": races})


def persons() -> td.Counts:
    """354 blocks of Rhode Island with persons by voting age, origin and main race: 12 cells, five levels."""
    frame = pd.read_csv(DATA / "small" / "ri_pl94_2018_persons.csv", dtype={"block": str})
    schema = {"votingage": None, "hispanic": None, "race": ["white", "black", "other"]}
    frame["race"] = frame["cenrace"].where(frame["cenrace"].isin(schema["race"][:2]), "other")  # type: ignore[index]
    known = {name: values or sorted(frame[name].unique()) for name, values in schema.items()}
    index = pd.MultiIndex.from_product(known.values(), names=list(known))
    wide = frame.pivot_table(index="block", columns=list(known), values="persons", aggfunc="sum", fill_value=0)
    wide = wide.reindex(columns=index, fill_value=0)
    geography = td.Geography.from_geoids(
        wide.index.tolist(), {"county": 5, "tract": 11, "block group": 12, "block": 15}, root="44"
    )
    return _counts(wide.index, wide.to_numpy(), geography, known)


def ages() -> td.Counts:
    """8 counties of two states by age and sex: 26 cells, three levels, large counts."""
    frame = pd.read_csv(DATA / "small" / "us_county_age_sex_2010.csv", dtype={"geoid": str})
    known = {"age": list(dict.fromkeys(frame["age"])), "sex": list(dict.fromkeys(frame["sex"]))}
    index = pd.MultiIndex.from_product(known.values(), names=list(known))
    wide = frame.pivot_table(index="geoid", columns=list(known), values="population", aggfunc="sum")
    geography = td.Geography.from_geoids(wide.index.tolist(), {"state": 2, "county": 5}, root="US")
    return _counts(wide.index, wide.reindex(columns=index).to_numpy(), geography, known)


def counties() -> td.Counts:
    """3,140 counties of the United States by employment: 2 cells; of so many nodes similar ones share laws."""
    frame = pd.read_parquet(DATA / "us_counties_labor_force_2009.parquet")
    geography = td.Geography.from_table(frame, ["nation", "state", "county"])
    names = ["employed", "unemployed"]
    return _counts(frame["county"], frame[names].to_numpy(), geography, {"employment": names})


def _counts(geoid: Any, values: np.ndarray, geography: td.Geography, known: dict[str, list[str]]) -> td.Counts:
    schema = td.Schema.from_mapping(known)
    frame = pd.DataFrame(values, columns=list(schema.cells()))
    frame.insert(0, "geoid", list(geoid))
    return td.Counts.from_table(frame, geography, geoid="geoid", cells=list(schema.cells()), schema=schema)


TABLES: dict[str, tuple[Callable[[], td.Counts], tuple[str, ...]]] = {
    "blocks": (blocks, ("total", "age", "race", "detailed")),
    "persons": (persons, ("total", "votingage", "hispanic * race", "detailed")),
    "ages": (ages, ("total", "sex", "age", "detailed")),
    "counties": (counties, ("total", "detailed")),
}


def plan_of(queries: tuple[str, ...], levels: tuple[str, ...], budget: str) -> td.Plan:
    """Every query at every level, in turn one part, three, two and four parts of the level's equal share."""
    name, amount = budget.split("=")
    parts = [dict(zip(queries, np.roll((1, 3, 2, 4), k)[: len(queries)], strict=True)) for k in range(len(levels))]
    shares = {
        level: {query: f"{part}/{sum(of_level.values()) * len(levels)}" for query, part in of_level.items()}
        for level, of_level in zip(levels, parts, strict=True)
    }
    mechanism = "discrete-gaussian" if name == "rho" else "geometric"
    return td.Plan(mechanism, shares=shares, **{name: str(float(amount)) if "e" in amount else amount})


class Sum(NamedTuple):
    """A sum of an answer over nodes: the truth, and what its interval (per confidence) is of its value and shape."""

    kind: str
    part: AnswerSum
    whole: AnswerSum | None
    truth: float
    bounds: Callable[[float, float, float], tuple[float, float]]


class Case:
    """One table under one plan: its laws, and the sums that are looked at."""

    def __init__(self, table: str, budget: str) -> None:
        """``budget``: as in ``BUDGETS``."""
        self.name = f"{table}, {budget}"
        make, names = TABLES[table]
        self.counts = make()
        self.geography = self.counts.geography
        self.plan = plan_of(names, tuple(self.geography.levels), budget)
        schema = self.counts.schema
        self.queries = tuple(dict.fromkeys(Query.parse(name, schema) for name in (*names, "total")))
        first = self.measured(0)
        known = AnswerLaws.of(first)
        self.columns = {q: known.of_columns([(q, k) for k in range(q.n_answers)]) for q in self.queries}
        self.truth = {q: q.answers(self.counts.values) for q in self.queries}
        self.sums = list(self._sums(Regions(first)))

    def measured(self, draw: int) -> td.Measurements:
        """One draw."""
        return td.measure(self.counts, self.plan, source=td.SeededSource((2027, self.name, draw)))

    def _sums(self, known: Regions) -> Iterator[Sum]:
        rng, leaves = np.random.default_rng(5), self.geography.tree.leaves
        n_leaves = leaves.stop - leaves.start
        nodes: dict[int, list[Nodes]] = {}
        for size in (size for size in SIZES if size <= n_leaves):
            for k in range(REGIONS):
                begin = int(rng.integers(n_leaves - size + 1))
                some = rng.choice(n_leaves, size, replace=False) if k % 2 else np.arange(begin, begin + size)
                nodes.setdefault(size, []).append((np.sort(some) + leaves.start, np.ones(size)))
        for query in self.queries:
            answers = rng.choice(query.n_answers, min(ANSWERS, query.n_answers), replace=False).tolist()
            for size, regions in nodes.items():
                kind = f"sums over {size}"
                yield from self._plain(known, kind, regions, query, answers, signed=False)
            both = [_minus(a, b) for a, b in zip(nodes[3], reversed(nodes[1]), strict=True)]
            yield from self._plain(known, "differences", both, query, answers, signed=True)
            for own, other in zip(nodes[1][:3], nodes[3][:3], strict=True):
                yield self._share(
                    known, AnswerSum(own, query, answers[0]), AnswerSum(_union(own, other), query, answers[0])
                )
            if query.n_answers > 1:
                total = next(q for q in self.queries if q.n_answers == 1)
                for region in (*nodes[1][:2], *nodes[3][:2]):
                    yield self._share(known, AnswerSum(region, query, answers[-1]), AnswerSum(region, total, 0))

    def _plain(
        self, known: Regions, kind: str, regions: list[Nodes], query: Query, answers: list[int], *, signed: bool
    ) -> Iterator[Sum]:
        found = known.answers(regions, query, answers)
        for answer in answers:
            for number, region in enumerate(regions):
                _, variance, shape = found[answer].row(number)

                def bounds(
                    value: float, _: float, alpha: float, variance: Any = variance, shape: Any = shape, w: Any = region
                ) -> tuple[float, float]:
                    return sum_margin(value, variance, shape, w[1], alpha, signed=signed)[2:4]

                part = AnswerSum(region, query, answer)
                yield Sum(kind, part, None, self._true(part), bounds)

    def _share(self, known: Regions, part: AnswerSum, whole: AnswerSum) -> Sum:
        ratio, shapes = known.share(part, whole)
        at = cache(lambda share: shapes(np.array([share]))[0])

        @cache
        def reach(share: float, alpha: float) -> float:
            return quantile(at(share), alpha / 2.0)

        def bounds(a: float, b: float, alpha: float) -> tuple[float, float]:
            return fieller(
                ratio._replace(part=a, whole=b), lambda shares: [reach(one, alpha) for one in shares.tolist()]
            )[2:4]

        of_whole = self._true(whole)
        truth = self._true(part) / of_whole if of_whole else float("nan")
        return Sum("shares", part, whole, truth, bounds)

    def _true(self, part: AnswerSum) -> float:
        return _of(part, self.truth)

    def draw(self, number: int) -> Iterator[tuple[str, float, np.ndarray, np.ndarray]]:
        """Of every kind and confidence the true counts, by whose size classes are formed, and which are held."""
        linear = linear_answers(self.measured(number), self.queries)
        x = {}
        everywhere = slice(0, self.geography.n_nodes)
        for query, columns in self.columns.items():
            answer = linear.answers_of(everywhere, query)
            x[query] = answer.values
            for confidence in CONFIDENCES:
                variance = columns.settled(np.asarray(answer.variance))
                low, high = intervals(answer.values, variance, columns, self.geography.tree, 1.0 - confidence)
                truth = self.truth[query]
                yield "answers", confidence, truth.reshape(-1), ((low <= truth) & (truth <= high)).reshape(-1)
        for confidence in CONFIDENCES:
            held: dict[str, list[tuple[float, bool]]] = {}
            for one in self.sums:
                if np.isnan(one.truth):
                    continue
                values = [_of(part, x) for part in (one.part, one.whole or one.part)]
                low, high = one.bounds(values[0], values[1], 1.0 - confidence)
                size = abs(one.truth) if one.whole is None else self._true(one.part)
                held.setdefault(one.kind, []).append((size, low - 1e-9 <= one.truth <= high + 1e-9))
            for kind, pairs in held.items():
                sizes, within = zip(*pairs, strict=True)
                yield kind, confidence, np.array(sizes), np.array(within)


def _of(part: AnswerSum, values: dict[Query, np.ndarray]) -> float:
    nodes, amounts = part.sum
    return float(amounts @ values[part.query][nodes, part.answer])


def _minus(a: Nodes, b: Nodes) -> Nodes:
    nodes = np.unique(np.concatenate([a[0], b[0]]))
    return nodes, np.isin(nodes, a[0]).astype(float) - np.isin(nodes, b[0])


def _union(a: Nodes, b: Nodes) -> Nodes:
    nodes = np.unique(np.concatenate([a[0], b[0]]))
    return nodes, np.ones(len(nodes))


def run(table: str, budget: str, draws: int, path: Path) -> None:
    """Go on with a case until so many draws are there. By kind and confidence, and class: how many intervals a draw
    has, how many of them hold, and the sum over draws of the square of that."""
    case = Case(table, budget)
    kept = json.loads(path.read_text())["figures"] if path.exists() else {}
    done: dict[str, Any] = kept.get(case.name, {"draws": 0, "sums": {}})
    started, begun = time.perf_counter(), done["draws"]
    for number in range(begun, draws):
        of_draw: dict[str, np.ndarray] = {}
        for kind, confidence, sizes, held in case.draw(number):
            code = np.searchsorted(EDGES, sizes, side="right")
            counted = np.stack([np.bincount(code, w, len(CLASSES)) for w in (None, held)])
            key = f"{kind}, {confidence:g}"
            of_draw[key] = of_draw.get(key, np.zeros_like(counted)) + counted
        for key, (units, held) in of_draw.items():
            before = np.array(done["sums"].get(key, np.zeros((3, len(CLASSES)))))
            done["sums"][key] = [units.tolist(), (before[1] + held).tolist(), (before[2] + held**2).tolist()]
        done["draws"] = number + 1
        if (number + 1) % KEPT_EVERY == 0 or number + 1 == draws:
            # Other cases may go on beside this one.
            with FileLock(path.with_name(f".{path.name}.lock")), whole_file(path) as partial:
                kept = json.loads(path.read_text())["figures"] if path.exists() else {}
                figures = kept | {case.name: done}
                text = json.dumps({"benchmark": "answer coverage", "machine": machine(), "figures": figures})
                partial.write_text(text + "\n")
    each = (time.perf_counter() - started) / max(1, done["draws"] - begun)
    print(f"{case.name}: {done['draws']} draws, {each:.2f} s each", flush=True)


def show(path: Path) -> None:
    """Every kind and size of true count: how often intervals hold, with the standard error; those that hold less often
    than stated by more than 2.5 standard errors with a mark."""
    for name, done in json.loads(path.read_text())["figures"].items():
        print(f"{name}, {done['draws']} draws")
        for key, sums in done["sums"].items():
            (units, held, squares), line = np.array(sums), []
            nominal = float(key.rsplit(",", 1)[1])
            for of_class, n, h, s in zip(CLASSES, units, held, squares, strict=True):
                if n > 0:
                    mean = h / done["draws"]
                    error = max(s / done["draws"] - mean**2, 0.0) ** 0.5 / n / done["draws"] ** 0.5
                    mark = " (low)" if mean / n < nominal - 2.5 * error - 1e-12 else ""
                    line.append(f"{of_class} {mean / n:.4f} +- {error:.4f}{mark}")
            print(f"  {key:22s} " + "  ".join(line))


def main() -> None:
    """One table, or what all have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*TABLES, "show"])
    parser.add_argument("--budgets", nargs="*", default=BUDGETS)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--json", type=Path, default=RESULTS / "answer-coverage.json")
    arguments = parser.parse_args()
    if arguments.table == "show":
        show(arguments.json)
        return
    for budget in arguments.budgets:
        run(arguments.table, budget, arguments.draws, arguments.json)


if __name__ == "__main__":
    main()
