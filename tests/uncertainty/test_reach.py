"""How many standard deviations an answer's error stays within, against errors that are drawn."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

import topdown as td
from support.several_queries import measured as several
from support.trees import geography
from topdown.geography.tree import Tree
from topdown.projection.cells.equality import least_squares, least_squares_variance
from topdown.uncertainty.laws.answer_laws import sum_of
from topdown.uncertainty.laws.error_law import Shape
from topdown.uncertainty.laws.known_noise import answer_noise
from topdown.uncertainty.margins import Reach

TREE = Tree.from_family_sizes([[2], [3, 5]])
SCHEMA = td.Schema.from_mapping({"sex": ["f", "m"], "age": ["young", "old", "oldest"]})
COLUMNS = [
    (td.Query.parse("detailed", SCHEMA), 0),
    (td.Query.parse("sex", SCHEMA), 1),
    (td.Query.parse("total", SCHEMA), 0),
]


def of_cells(mechanism: str, **budget: str) -> td.Measurements:
    """Measurements of the cells alone."""
    there = geography(TREE)
    counts = {"geoid": list(there.geoid[TREE.leaves]), **{cell: [7] * TREE.n_leaves for cell in SCHEMA.cells()}}
    whole = td.Counts.from_table(counts, there, geoid="geoid", cells=list(SCHEMA.cells()), schema=SCHEMA)
    plan = td.Plan(mechanism, shares={"level 0": "0.1", "level 1": "0.5", "level 2": "0.4"}, **budget)  # type: ignore[arg-type]
    return td.measure(whole, plan, source=td.SeededSource(4))


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_of_sums_of_cells_under_geometric_noise_what_is_beyond_is_as_often_as_stated(confidence: float) -> None:
    times = 40_000
    measurements = of_cells("geometric", epsilon="0.3")
    noise = answer_noise(measurements)
    kinds = np.concatenate([kind for level in noise.kind for kind in level.values()])
    source = td.SeededSource(9)
    drawn = np.stack([noise.laws[k].sample((times, 6), source) for k in kinds], axis=-1)
    sums = np.stack([drawn[:, 0], drawn[:, 3:].sum(axis=1), drawn.sum(axis=1)]).astype(np.float64)
    variance = measurements.node_variance
    errors = least_squares(sums, variance, TREE)  # (columns, times, nodes)
    sd = np.sqrt(least_squares_variance(variance, TREE) * np.array([1, 3, 6])[:, None])
    reach = Reach.of(measurements, confidence)
    bound = reach.multiples(slice(0, TREE.n_nodes), COLUMNS).T * sd
    missed = (np.abs(errors) > bound[:, None, :]).mean(axis=1)
    alpha = 1.0 - confidence
    tolerance = 0.001 + 5.5 * np.sqrt(alpha * confidence / times)
    assert np.abs(missed - alpha).max() < tolerance
    assert "for every unit and column" in reach.in_words
    # The power of it: the normal law's quantile is not that.
    normal = NormalDist().inv_cdf(1.0 - alpha / 2.0) * sd[:, None, :]
    assert np.abs((np.abs(errors) > normal).mean(axis=1) - alpha).max() > (tolerance if confidence > 0.95 else 0.0)


def test_a_sum_of_errors_of_one_shape_has_its_part_of_their_excess() -> None:
    assert sum_of(Shape((), 3.0), 4) == Shape((), 0.75)


def test_gaussian_noise_has_the_normal_laws_number() -> None:
    for measurements in (of_cells("discrete-gaussian", rho="0.1"), several(1)):
        reach = Reach.of(measurements, 0.95)
        asked = [(td.Query.parse("sex", measurements.schema), 0)]
        assert reach.multiples(slice(0, 2), asked) == pytest.approx(np.full((2, 1), 1.959964), abs=1e-4)
        assert reach.in_words.startswith("1.96 sd, by the normal law")


def test_where_several_queries_have_geometric_noise_it_is_by_the_law_of_the_error() -> None:
    """A sum of some geometric draws reaches further than a normal law, and less far than one draw of it (3.25 sd)."""
    reach = Reach.of(several(1, "geometric", epsilon="1"), 0.99)
    asked = [(td.Query.parse("sex", several(1).schema), 0)]
    assert 2.58 < float(reach.multiples(slice(0, 1), asked)[0, 0]) < 3.25
    assert "by the law of its error" in reach.in_words
