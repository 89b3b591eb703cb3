"""The tree of explicit pairs (child, parent), and of a networkx graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ROW, GeographyError
from topdown.geography.labels import as_strings, missing
from topdown.geography.table import Parts
from topdown.geography.tree import IntArray, Tree
from topdown.wording import listed, shown, unquoted


def from_edges(child: Any, parent: Any, levels: Sequence[str] | None, names: Any) -> Parts:
    below = as_strings(child, "child", allow_integers=True)
    above = as_strings(parent, "parent", allow_integers=True)
    if len(below) != len(above):
        raise GeographyError(f"{len(below)} children and {len(above)} parents; every child needs its parent")
    if missing(below).any():
        row = int(np.flatnonzero(missing(below))[0])
        raise GeographyError(f"{ROW}: the child is missing (its parent is {shown(above[row].as_py())})", row=row)
    rooted = np.asarray(pc.is_valid(above)) & ~np.asarray(pc.fill_null(pc.equal(above, ""), True))
    nodes = pc.unique(pa.concat_arrays([below, above.filter(pa.array(rooted))]))
    nodes = nodes.take(pc.array_sort_indices(nodes))
    if len(nodes) == 0:
        raise GeographyError("no edges; a geography needs at least a root")
    child_code = np.asarray(pc.index_in(below, value_set=nodes), dtype=np.int64)
    parent_code = np.full(len(below), -1, np.int64)
    parent_code[rooted] = np.asarray(pc.index_in(above.filter(pa.array(rooted)), value_set=nodes))
    _refuse_second_parents(child_code, parent_code, nodes)

    up = np.full(len(nodes), -1, np.int64)
    up[child_code] = parent_code
    root = _only_root(up, nodes)
    # Nodes are numbered in the order of identifiers, which a stable sort keeps among siblings.
    siblings = np.argsort(up, kind="stable")
    first_child = np.searchsorted(up[siblings], np.arange(len(nodes) + 1))
    frontier = np.array([root])
    order, sizes = [frontier], []
    while True:
        begin, end = first_child[frontier], first_child[frontier + 1]
        size = end - begin
        if not size.any():
            break
        if not size.all():
            _refuse_shallow_leaf(nodes, frontier[size == 0][0], len(order) - 1, levels)
        sizes.append(size)
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        frontier = siblings[np.repeat(begin, size) + within]
        order.append(frontier)
    ordered = np.concatenate(order)
    if len(ordered) != len(nodes):
        lost = np.setdiff1d(np.arange(len(nodes)), ordered)
        raise GeographyError(f"a cycle: {_cycle_from(int(lost[0]), up, nodes)}; no unit may lie in itself")
    titles = tuple(levels) if levels is not None else tuple(f"level {k}" for k in range(len(order)))
    if len(titles) != len(order):
        raise GeographyError(f"{len(titles)} level names {listed(titles)} for a tree of {len(order)} levels")
    identifiers = nodes.take(pa.array(ordered))
    return titles, Tree.from_family_sizes(sizes), identifiers, _edge_names(names, below, identifiers)


def _refuse_second_parents(child_code: IntArray, parent_code: IntArray, nodes: pa.Array) -> None:
    repeated = pd.Series(child_code).duplicated().to_numpy()
    if not repeated.any():
        return
    row = int(np.flatnonzero(repeated)[0])
    unit = int(child_code[row])
    parents = parent_code[child_code == unit]
    name = nodes[unit].as_py()
    if len(np.unique(parents)) == 1:
        raise GeographyError(
            f"duplicate GEOID {shown(name)}: it is listed {len(parents)} times as a child; list it once"
        )
    both = ["none" if p < 0 else shown(nodes[int(p)].as_py()) for p in pd.unique(parents)[:2]]
    raise GeographyError(f"{shown(name)} has two parents: {both[0]} and {both[1]}; keep one of them")


def _only_root(up: IntArray, nodes: pa.Array) -> int:
    roots = np.flatnonzero(up < 0)
    if len(roots) == 1:
        return int(roots[0])
    if len(roots) == 0:
        raise GeographyError(f"a cycle: {_cycle_from(0, up, nodes)}; no node is the root")
    childless = roots[~np.isin(roots, up)]
    if len(childless) and len(childless) < len(roots):
        raise GeographyError(
            f"{shown(nodes[int(childless[0])].as_py())} is an orphan: it has no parent and no children; connect it or "
            "leave it out"
        )
    raise GeographyError(
        f"more than one root: {listed(nodes[int(r)].as_py() for r in roots[:3])}"
        f"{' and others' if len(roots) > 3 else ''}; connect them under one unit"
    )


def _cycle_from(start: int, up: IntArray, nodes: pa.Array) -> str:
    seen: dict[int, int] = {}
    node = start
    while node not in seen:
        seen[node] = len(seen)
        node = int(up[node])
    cycle = [n for n in seen if seen[n] >= seen[node]]
    first = [shown(nodes[n].as_py()) for n in cycle[:3]] + (["..."] if len(cycle) > 3 else [])
    return " in ".join([*first, shown(nodes[node].as_py())])


def _refuse_shallow_leaf(nodes: pa.Array, leaf: int, depth: int, levels: Sequence[str] | None) -> None:
    level = levels[depth] if levels is not None and depth < len(levels) else f"level {depth}"
    raise GeographyError(
        f"{shown(nodes[int(leaf)].as_py())} ({unquoted(level)}) is a leaf above the leaf level: its siblings have "
        "children and it has none; continue it with a chain of single children down to the leaf level"
    )


def _edge_names(names: Any, below: pa.Array, identifiers: pa.Array) -> pa.Array | None:
    if names is None:
        return None
    if isinstance(names, Mapping):
        return pa.array([names.get(node) for node in identifiers.to_pylist()], pa.string())
    return as_strings(names, "names").take(pc.index_in(identifiers, value_set=below))


def from_networkx(graph: Any, levels: Sequence[str] | None) -> Parts:
    import networkx as nx

    if not graph.is_directed():
        raise GeographyError("an undirected graph; give a DiGraph with edges from parent to child")
    if len(graph) == 0:
        raise GeographyError("an empty graph; a geography needs at least a root")
    labels = {node: str(node) for node in graph}
    if len(set(labels.values())) != len(labels):
        twice = next(label for label in labels.values() if list(labels.values()).count(label) > 1)
        raise GeographyError(f"duplicate GEOID {shown(twice)}: two nodes of the graph have it as their name in letters")
    if not nx.is_directed_acyclic_graph(graph):
        ring = [labels[edge[0]] for edge in nx.find_cycle(graph)]
        raise GeographyError(f"a cycle: {' -> '.join(map(shown, [*ring[:3], ring[0]]))}; no unit may lie in itself")
    roots = [labels[node] for node in graph if graph.in_degree(node) == 0]
    edges = [(labels[c], labels[p]) for p, c in graph.edges]
    pairs = [(root, None) for root in roots] + edges
    if levels is None:
        levels = _networkx_levels(graph)
    known = {labels[node]: title for node, title in graph.nodes(data="name") if title is not None}
    return from_edges([c for c, _ in pairs], [p for _, p in pairs], levels, known or None)


def _networkx_levels(graph: Any) -> list[str] | None:
    """Level names from the nodes' attribute "level", where all nodes of one depth agree on one."""
    import networkx as nx

    roots = [node for node in graph if graph.in_degree(node) == 0]
    if len(roots) != 1 or any(title is None for _, title in graph.nodes(data="level")):
        return None
    by_depth: dict[int, set[str]] = {}
    for node, depth in nx.shortest_path_length(graph, roots[0]).items():
        by_depth.setdefault(depth, set()).add(str(graph.nodes[node]["level"]))
    if any(len(titles) > 1 for titles in by_depth.values()):
        return None
    return [by_depth[depth].pop() for depth in sorted(by_depth)]
