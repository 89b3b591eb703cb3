"""Other tools on the same problems in one run: seconds, ratio to ours, and whether the answer is one.

    pip install -e ".[benchmarks]"
    python benchmarks/peers.py                       # the whole-tree non-negative program at growing sizes
    python benchmarks/peers.py --patience 300        # how long a tool may take at one size

Every answer is certified by the optimality conditions of the program itself, in counts, so that a fast wrong answer is
seen as wrong. Each tool runs in a process of its own and is not asked again at a larger size once its patience is over.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from record import RESULTS, save
from synthetic import WIDTHS, nation

import topdown as td
from topdown.geography.tree import FloatArray, Tree
from topdown.projection.cells import equality, nonnegative
from topdown.projection.check import certificate, cvxpy_programs, optimality

Solver = Callable[[FloatArray, FloatArray, Tree], FloatArray]

COUNTIES = Path(__file__).parents[1] / "data" / "us_counties_labor_force_2009.parquet"
NOISE = 10.0


def ours(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    return nonnegative.project_tree(y[None], v, tree)[0]


def _standard_form(y: FloatArray, v: FloatArray, tree: Tree) -> tuple[sp.csc_matrix, FloatArray, sp.csc_matrix]:
    """min x'Px/2 + q'x subject to A x = 0 and x >= 0, as a user of a solver would state it."""
    return sp.csc_matrix(sp.diags(2.0 / v)), -2.0 * y / v, sp.csc_matrix(cvxpy_programs.consistency_matrix(tree))


def by_cvxpy(name: str) -> Solver:
    """The program as a user of cvxpy would write it, at the solver's defaults."""

    def solve(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
        import cvxpy as cp

        x = cp.Variable(tree.n_nodes, nonneg=True)
        weighted = cp.multiply(1.0 / np.sqrt(v), x - y)
        program = cp.Problem(cp.Minimize(cp.sum_squares(weighted)), [cvxpy_programs.consistency_matrix(tree) @ x == 0])
        program.solve(solver=name)
        return np.asarray(x.value)

    return solve


def by_osqp(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    import osqp

    p, q, a = _standard_form(y, v, tree)
    n, m = tree.n_nodes, tree.n_families
    solver = osqp.OSQP()
    bounds = np.concatenate([np.zeros(m), np.full(n, np.inf)])
    constraints = sp.vstack([a, sp.identity(n)], format="csc")
    solver.setup(p, q, constraints, np.concatenate([np.zeros(m), np.zeros(n)]), bounds, verbose=False)
    return np.asarray(solver.solve().x)


def by_piqp(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    import piqp

    p, q, a = _standard_form(y, v, tree)
    solver = piqp.SparseSolver()
    n = tree.n_nodes
    solver.setup(p, q, a, np.zeros(tree.n_families), None, None, None, np.zeros(n), np.full(n, np.inf))
    solver.solve()
    return np.asarray(solver.result.x)


def by_mintrace(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    """hierarchicalforecast, unit weights (its own weights are by the structure, or from a forecast's residuals)."""
    from hierarchicalforecast.methods import MinTraceSparse

    method = MinTraceSparse(method="ols", nonnegative=True)
    found = method.fit_predict(S=_summing(tree), y_hat=y[:, None])
    return np.asarray(found["mean"])[:, 0]


def _summing(tree: Tree) -> sp.csr_matrix:
    """S (nodes x leaves) with x = S x_leaves."""
    below = sp.identity(tree.n_leaves, format="csr")
    blocks = [below]
    for families in tree.families_up():
        n = len(families.starts)
        rows = np.repeat(np.arange(n), families.sizes)
        step = sp.csr_matrix((np.ones(len(rows)), (rows, np.arange(len(rows)))), (n, len(rows)))
        below = step @ below
        blocks.insert(0, below)
    return sp.vstack(blocks, format="csr")


TOOLS: dict[str, Solver] = {
    "topdown": ours,
    "cvxpy + OSQP": by_cvxpy("OSQP"),
    "cvxpy + Clarabel": by_cvxpy("CLARABEL"),
    "OSQP": by_osqp,
    "PIQP": by_piqp,
    "hierarchicalforecast MinTraceSparse": by_mintrace,
}


def problems() -> list[tuple[str, FloatArray, Tree]]:
    """Titles, true counts and trees: the US counties, and synthetic nations up to a million blocks."""
    table = pq.read_table(COUNTIES)
    geography = td.Geography.from_table(table, ["nation", "state", "county"])
    counts = td.Counts.from_table(table, geography, geoid="county", cells=["unemployed"])
    found = [("3,140 counties", counts.values[:, 0].astype(np.float64), geography.tree)]
    for blocks in (10_000, 75_000, 1_000_000):
        synthetic = nation(blocks)
        tree = td.Geography.from_geoids(synthetic["geoid"], WIDTHS).tree
        leaves = synthetic["population"].to_numpy().astype(np.float64)
        found.append((f"{blocks:,} blocks", tree.aggregate(leaves), tree))
    return found


def _work(pipe: multiprocessing.connection.Connection, tool: str, y: FloatArray, v: FloatArray, tree: Tree) -> None:
    try:
        TOOLS[tool](y, v, tree) if tree.n_nodes < 5_000 else None  # imports and compiles before the clock starts
        started = time.perf_counter()
        x = TOOLS[tool](y, v, tree)
        solved = x.shape == y.shape and bool(np.isfinite(x).all())
        pipe.send((time.perf_counter() - started, x) if solved else "no solution")
    except ImportError:
        pipe.send("not installed")
    except Exception as error:
        pipe.send(f"failed: {type(error).__name__}: {str(error)[:60]}")


def _attempt(tool: str, y: FloatArray, v: FloatArray, tree: Tree, patience: float) -> tuple[float, FloatArray] | str:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_work, args=(sender, tool, y, v, tree))
    process.start()
    found = receiver.recv() if receiver.poll(patience) else f"not done in {patience:.0f} s"
    process.kill()
    process.join()
    result: tuple[float, FloatArray] | str = found
    return result


def projections(patience: float) -> dict[str, float | str]:
    """The table of seconds, ratios and residuals; printed as it grows."""
    figures: dict[str, float | str] = {}
    given_up: set[str] = set()
    for title, truth, tree in problems():
        rng = np.random.default_rng(7)
        y = truth + np.rint(rng.laplace(size=tree.n_nodes) * NOISE)
        v = np.full(tree.n_nodes, 2.0 * NOISE**2)
        print(f"\n{title} ({tree.n_nodes:,} nodes), non-negative whole-tree least squares")
        heads = ("seconds", "x ours", "sums off", "least", "optimality", "off ours")
        print(f"  {'tool':38s}" + "".join(f"{head:>12s}" for head in heads))
        best, mine = 0.0, np.empty(0)
        for tool in TOOLS:
            found = "gave up before" if tool in given_up else _attempt(tool, y, v, tree, patience)
            if isinstance(found, str):
                given_up.add(tool)
                figures[f"{title}, {tool}"] = found
                print(f"  {tool:38s}  {found}")
                continue
            seconds, x = found
            if tool == "topdown":
                best, mine = seconds, x
            residual = optimality.tree_optimality(x[None], y[None], v, tree, nonnegative=True)
            judged = certificate.certify(residual, v, nonnegative=True)
            off = float(np.abs(x - mine).max())
            figures[f"{title}, {tool}, seconds"] = seconds
            figures[f"{title}, {tool}, worst residual"] = judged.worst
            print(
                f"  {tool:38s}{seconds:12.3f}{seconds / best:12.0f}{judged.consistency:12.1e}{x.min():12.1e}"
                f"{judged.kkt:12.1e}{off:12.1e}"
            )
    return figures


def binary_tree() -> dict[str, float | str]:
    """OpenDP's consistency postprocessor on a tree that it takes: complete, binary, equal variances, no x >= 0."""
    figures: dict[str, float | str] = {}
    try:
        import opendp.prelude as dp
    except ImportError:
        return {"OpenDP consistent binary tree": "not installed"}
    dp.enable_features("contrib")
    make_consistent = dp.t.make_consistent_b_ary_tree(branching_factor=2)
    print("\ncomplete binary trees, least squares without x >= 0 (OpenDP returns the leaves only)")
    for depth in (10, 16, 20):
        tree = Tree.from_family_sizes([np.full(2**k, 2) for k in range(depth)])
        y = np.random.default_rng(3).integers(0, 1_000, tree.n_nodes)
        values, unit = y.astype(np.float64), np.ones(tree.n_nodes)
        started = time.perf_counter()
        x = equality.least_squares(values, unit, tree)
        seconds = time.perf_counter() - started
        given = y.tolist()
        started = time.perf_counter()
        theirs = np.asarray(make_consistent(given))
        peer = time.perf_counter() - started
        off = float(np.abs(theirs - x[tree.leaves]).max())
        print(f"  {tree.n_nodes:10,d} nodes: ours {seconds:8.4f} s, OpenDP {peer:8.4f} s, off {off:.1e}")
        figures |= {f"{tree.n_nodes} nodes, ours": seconds, f"{tree.n_nodes} nodes, OpenDP": peer}
    return figures


def main() -> None:
    """Run everything and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds that a tool may take at one size")
    parser.add_argument("--json", type=Path, default=RESULTS / "peers.json")
    arguments = parser.parse_args()
    save("peers", projections(arguments.patience) | binary_tree(), arguments.json)


if __name__ == "__main__":
    main()
