"""The numbers from which the page of a release computes margins of sums in the browser, as `Regions` does in Python.

The error of a node is a share of its parent's error plus an independent rest (`projection.sum_errors`). Nodes of one
level with the same noise and the same number of siblings have the same numbers, and a page holds each of these once.
``sums.js`` computes from them what `Regions` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray
from topdown.geography.unit_sums import UnitSums, published_sums
from topdown.measurements.measurements import Measurements
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Laplace, Law
from topdown.noise.law import pitch_of
from topdown.uncertainty.interval import tail_share
from topdown.uncertainty.laws.answer_errors import AnswerErrors
from topdown.uncertainty.laws.answer_forms import answer_forms
from topdown.uncertainty.laws.answer_laws import copies_of
from topdown.uncertainty.laws.error_law import is_wide_gaussian, reach_of
from topdown.uncertainty.laws.known_noise import answer_noise, fourth_cumulant
from topdown.workload import TOTAL, Query

_DIGITS = 12
"""Significant digits of the numbers."""
_NOTHING = 1e-9
"""Entries of forms below this are rounding errors and are left out."""

DistinctRows = dict[str, Any]
"""``rows``: the distinct rows of numbers; ``of``: for every node which row it has."""


class PageErrors:
    """The errors of sums of the answers to queries from ``measurements``, as numbers for a page.

    Raises `ConfigError` as `answer_noise` does.
    """

    def __init__(self, measurements: Measurements) -> None:
        self._errors = AnswerErrors(answer_noise(measurements))
        self._units, self._published = published_sums(measurements.geography), measurements.published.tree
        self._schema, self._several = measurements.schema, bool(measurements.others)
        self._forms: dict[tuple[Query, int], int] = {}
        self._first: list[tuple[Query, int]] = []

    @property
    def n_levels(self) -> int:
        """For how many published levels, from the root down, there are margins."""
        return self._published.n_levels

    def form_of(self, query: Query, answer: int) -> dict[str, int]:
        """Which of the forms of `numbers` an answer has (``form``), and of how many ``copies`` it is the sum."""
        if not self._several:
            return {"form": 0, "copies": int(copies_of([(query, answer)], self._schema.possible_cells())[0])}
        place = int(self._errors.components.classes(query).place[answer])
        if (query, place) not in self._forms:
            self._forms[query, place] = len(self._first)
            self._first.append((query, answer))
        return {"form": self._forms[query, place], "copies": 1}

    def numbers(self, nodes: Sequence[IntArray]) -> dict[str, Any]:
        """Everything that ``sums.js`` reads: for the ``nodes`` of a page, by level, and for the forms that were asked
        for. On a spine, the nodes are published units, and the result has the spine's nodes whose sums they are.
        """
        told, spine = len(nodes), None
        if self._units is not None:
            nodes, spine = self._on_spine(self._units, np.concatenate(nodes))
        errors = self._errors
        noise, tree = errors.noise, errors.tree
        queries = list(noise.queries)
        upward = errors.moments
        blocks = []
        for number, (_, block) in enumerate(errors.components.blocks):
            known = errors.sums.spread(number)
            levels, families = [], []
            for level, here in enumerate(nodes):
                own = here - tree.level(level).start
                of_level = known.levels[level]
                rows = [of_level.finite[own], of_level.diffuse[own]]
                rows.append(known.gains[level - 1][own] if level else np.zeros_like(rows[0]))
                if upward is not None:
                    rows += [upward[0].own[here], upward[0].cumulant[here]]
                levels.append(_alike(rows))
                if level + 1 < tree.n_levels:
                    of_sum = known.sums[level]
                    rows = [of_sum.finite[own], of_sum.diffuse[own]]
                    families.append(_alike([*rows, upward[2][here]] if upward is not None else rows))
            blocks.append({"size": block.size, "levels": levels, "families": families})
        drawn = [
            {
                str(queries.index(query)): _plain(kind[here - tree.level(level).start])
                for query, kind in noise.kind[level].items()
            }
            for level, here in enumerate(nodes)
        ]
        below = [
            [
                {
                    "all": _plain(noise.below(lower)[here]),
                    "of": {str(queries.index(q)): _plain(noise.below(lower, q)[here]) for q in noise.kind[lower]},
                }
                for lower in range(level, tree.n_levels)
            ]
            for level, here in enumerate(nodes)
        ]
        counted = [_plain(tree.families(level).counted[here - tree.level(level).start])
                   for level, here in enumerate(nodes) if level + 1 < tree.n_levels]  # fmt: skip
        share = tail_share()
        return {
            "laws": [_law(law) for law in noise.laws],
            "negligible": errors.sums.negligible,
            "exact": upward is not None,
            "blocks": blocks,
            "drawn": drawn,
            "most": [{str(queries.index(query)): kind for query, kind in level.items()} for level in noise.most],
            "below": below,
            "children": counted,
            **self._all_forms(queries),
            "levels": tree.n_levels,
            "told": told,
            "spine": spine,
            "theta": float(share.theta[1]),
            "share": [round(float(one), _DIGITS) for one in share.below],
        }

    def _on_spine(self, units: UnitSums, every: IntArray) -> tuple[list[IntArray], dict[str, Any]]:
        """The nodes of the spine that some published units are sums of, with those above, by level; and how many each
        level has, the parent of each, and of every unit the nodes, by their place among them."""
        tree, there = self._errors.tree, np.zeros(self._errors.tree.n_nodes, bool)
        own = [*units.nodes_of(every)]
        there[np.concatenate(own)] = True
        for families in tree.families_up():
            there[families.parents] |= families.largest(there[families.children])
        chosen = np.flatnonzero(there)
        nodes = np.split(chosen, np.searchsorted(chosen, tree.level_offsets[1:-1]))
        parent = tree.parent[chosen]
        return nodes, {
            "sizes": [len(one) for one in nodes],
            "parent": np.where(parent < 0, -1, np.searchsorted(chosen, parent)).tolist(),
            "sums": [np.searchsorted(chosen, one).tolist() for one in own],
        }

    def _all_forms(self, queries: list[Query]) -> dict[str, Any]:
        """How the errors of every answer, and of the total, covary with each other and with the measurements: for each
        the number of one of the ``rows``, which hold the places and values of entries that are not 0.
        """
        rows: dict[tuple[float, ...], int] = {}

        def numbered(form: FloatArray) -> int:
            there = np.flatnonzero(np.abs(form) > _NOTHING)
            sparse = (one for place in there.tolist() for one in (place, float(f"{form[place]:.{_DIGITS}g}")))
            return rows.setdefault(tuple(sparse), len(rows))

        if not self._several:
            one = numbered(np.ones(1))
            measured = [{"number": [1], "own": [one], "total": [one]}]
            return {
                "forms": [{"own": one, "total": one, "both": one, "measured": measured}],
                "rows": [*rows],
                "width": 1,
            }
        components, total = self._errors.components, (Query.parse(TOTAL, self._schema), 0)
        found = []
        for asked in self._first:
            measured = []
            for query in queries:
                forms = answer_forms(components, [asked, total], query)
                own, of_total = ([numbered(row) for row in form] for form in forms.form)
                measured.append({"number": forms.number.tolist(), "own": own, "total": of_total})
            pairs = {"own": (asked, asked), "both": (asked, total), "total": (total, total)}
            of_pairs = {name: numbered(answer_forms(components, [a], *b).form[0, 0]) for name, (a, b) in pairs.items()}
            found.append({**of_pairs, "measured": measured})
        width = sum(block.size**2 for _, block in components.blocks)
        return {"forms": found, "rows": [list(row) for row in rows], "width": width}


def _law(law: Law) -> dict[str, Any]:
    """A law as the parameters from which its probabilities are computed."""
    found: dict[str, Any] = {
        "variance": float(law.variance),
        "cumulant": fourth_cumulant(law),
        "pitch": pitch_of(law),
        "wide": is_wide_gaussian(law),
        "reach": reach_of(law),
    }
    match law:
        case DiscreteLaplace():
            return {**found, "kind": "geometric", "scale": float(law.scale)}
        case DiscreteGaussian():
            return {**found, "kind": "discrete-gaussian", "sigma2": float(law.sigma2)}
        case Laplace():
            return {**found, "kind": "laplace", "scale": float(law.scale)}
    return {**found, "kind": "gaussian"}


def _alike(columns: Sequence[FloatArray]) -> DistinctRows:
    """The rows of ``columns`` (nodes, ...), each once."""
    # On a spine a level may have none: published units above it are sums of none of its nodes.
    table = np.concatenate([column.reshape(len(column), math.prod(column.shape[1:])) for column in columns], axis=1)
    rows, of = np.unique(table, axis=0, return_inverse=True)
    return {"rows": _numbers(rows), "of": _plain(of.reshape(-1))}


def _numbers(values: FloatArray) -> Any:
    """Numbers at `_DIGITS` digits, as lists."""
    if values.ndim > 1:
        return [_numbers(one) for one in values]
    return [float(f"{one:.{_DIGITS}g}") for one in values.tolist()]


def _plain(values: npt.NDArray[Any]) -> Any:
    """Whole numbers as a list, or alone where they are all the same."""
    first = values[:1].tolist()
    return first[0] if first and (values == first[0]).all() else values.tolist()
