"""Whole histograms from the root down, and the release that holds them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import topdown as td
from support.histograms import SCHEMA, RandomTree, random_tree
from topdown.errors import ConfigError, ProjectionError
from topdown.measurements.measurements import Answers
from topdown.release.whole_counts import SparseCounts
from topdown.workload import Query


@pytest.fixture(scope="module")
def case() -> RandomTree:
    return random_tree(np.random.default_rng(12), exact=False, orders=2)


@pytest.fixture(scope="module")
def release(case: RandomTree) -> td.Release:
    return td.project_whole(case.measurements(), source=td.SeededSource(1))


@pytest.mark.parametrize("rounding", ["nearest", "unbiased"])
@pytest.mark.parametrize("method", ["top-down", "gls-top-down"])
def test_random_trees_are_whole_and_add_up(method: str, rounding: str) -> None:
    for seed in range(25):
        case = random_tree(np.random.default_rng(seed), exact=seed % 2 == 1)
        release = td.project_whole(case.measurements(), method, rounding=rounding, source=td.SeededSource(seed))
        assert release.certificate.holds()
        values = np.stack([row for level in release.geography.levels for row in release.answers(level, "detailed")])
        for families in case.tree.families_down():
            assert (families.total_rows(values[families.children]) == values[families.parents]).all()
        for index, level in enumerate(case.measured):
            for query, (said, variance) in level.items():
                known = variance == 0
                assert (query.answers(values[case.tree.level(index)])[known] == said[known]).all()


def test_of_the_detailed_query_alone_it_is_near_the_fractional_estimate() -> None:
    case = random_tree(np.random.default_rng(5), exact=False, orders=1)
    detailed = Query.parse("detailed", SCHEMA)
    measured = []
    for index in range(case.tree.n_levels):
        nodes = case.tree.level(index)
        noise = np.random.default_rng(index).normal(size=(nodes.stop - nodes.start, SCHEMA.n_cells))
        measured.append({detailed: Answers(case.truth[nodes] + noise, np.ones(nodes.stop - nodes.start))})
    measurements = case._replace(measured=measured).measurements()
    estimate = td.project(measurements, "gls-top-down", nonnegative=True)
    release = td.project_whole(measurements, source=td.SeededSource(1))
    for level in measurements.geography.levels:
        nodes = measurements.geography.level_slice(level)
        difference = release.answers(level, "detailed") - estimate.values[nodes]
        assert np.abs(difference).max() < 1 + measurements.geography.tree.n_levels
        assert np.abs(difference.sum(axis=1)).max() < 1 + measurements.geography.tree.n_levels


def test_a_table_is_dense_and_adds_up(release: td.Release) -> None:
    levels = release.geography.levels
    table = release.table(levels[1], "g * b")
    assert list(table.columns) == ["geoid", "name", "G1_0", "G1_1", "G2_0", "G2_1"]
    assert len(table) == release.geography.tree.families(0).sizes[0] > 1
    root = release.table(levels[0], "g * b")
    assert table.iloc[:, 2:].sum().tolist() == root.iloc[0, 2:].tolist()
    assert release.table(levels[0], "total")["total"].item() == release.answers(levels[0], "detailed").sum()
    assert (release.answers(levels[2], "a").sum(axis=1) == release.answers(levels[2], "total")[:, 0]).all()


def test_rows_are_the_cells_that_have_records(release: td.Release) -> None:
    frame = release.to_frame()
    assert list(frame.columns) == ["geoid", "level", "a", "b", "c", "count"]
    assert (frame["count"] > 0).all()
    assert len(frame) == release.starts[-1]
    assert release.to_arrow().to_pandas().equals(frame)
    leaves = frame[frame["level"] == release.geography.levels[-1]]
    by = leaves.groupby("a", observed=True)["count"].sum()
    found = release.answers(release.geography.levels[0], "a")[0]
    for category, count in zip("pqrs", found, strict=True):
        assert by.get(category, 0) == count


def test_the_same_key_makes_the_same_release(case: RandomTree, release: td.Release) -> None:
    again = td.project_whole(case.measurements(), source=td.SeededSource(1))
    for mine, its in zip(again.entries(slice(0, None)), release.entries(slice(0, None)), strict=True):
        assert (mine == its).all()


def test_fitness_for_release_is_that_of_measurements_and_source(case: RandomTree) -> None:
    measurements = replace(case.measurements(), fit_for_release=True)
    assert td.project_whole(measurements).fit_for_release
    assert not td.project_whole(measurements, source=td.SeededSource(1)).fit_for_release
    assert not td.project_whole(case.measurements()).fit_for_release


def test_what_does_not_add_up_is_refused_by_name(release: td.Release) -> None:
    cells, counts = release.entries(slice(0, int(release.starts[-1])))
    wrong = counts.copy()
    wrong[-1] += 1
    says = r"level 1 'n\d+', cell '._._.': it has \d+, and its units of level 'level 2' add up to \d+"
    with pytest.raises(ProjectionError, match=says):
        replace(release, held=SparseCounts(release.starts, cells, wrong))
    wrong[-1] = 0
    with pytest.raises(ProjectionError, match=r"level 2 'n\d+', cell '._._.': 0 records"):
        replace(release, held=SparseCounts(release.starts, cells, wrong))


def test_names_and_exact_fractions_are_refused(case: RandomTree) -> None:
    measurements = case.measurements()
    with pytest.raises(ConfigError, match=r"unknown rounding 'nearst'.*did you mean 'nearest'"):
        td.project_whole(measurements, rounding="nearst")
    refused = r"'family' .* does not round histograms family by family; take 'nearest' or 'unbiased'"
    with pytest.raises(ConfigError, match=refused):
        td.project_whole(measurements, rounding="family")
    with pytest.raises(ConfigError, match=r"'joint' .* has no solver of several queries"):
        td.project_whole(measurements, "joint")
    total = Query.parse("total", SCHEMA)
    measured = [dict(level) for level in case.measured]
    measured[0][total] = Answers(np.array([[10.5]]), np.zeros(1))
    with pytest.raises(ProjectionError, match=r"its exact 'total' is not whole"):
        td.project_whole(case._replace(measured=measured).measurements())
