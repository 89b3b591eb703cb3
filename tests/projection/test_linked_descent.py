"""Households and persons of trees: whole, certified, dealt; the same whoever works; what contradicts is refused."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest

from support.linked import census, schools
from support.linked_families import measured_tree, populated
from topdown.errors import ConfigError
from topdown.geography.tree import Tree
from topdown.linked.dealing import dealt
from topdown.linked.record_faults import record_faults
from topdown.linked.universe import LinkedQuery, PublicFigures
from topdown.measurements.measurements import Answers
from topdown.noise import KeyedSource
from topdown.projection.check.certificate import Residuals
from topdown.projection.check.cross_checks import cross_check_families, families_again
from topdown.projection.histograms.families import Solved, Sparse
from topdown.projection.invariants import Contradiction
from topdown.projection.linked.linked_descent import LinkedFamilies, LinkedProgram, LinkedSolution, linked_down
from topdown.projection.linked.linked_family import LinkedFamily
from topdown.projection.method import method_named

UNIVERSE = census(races=2, ages=2)
TIES = KeyedSource(bytes(32))


@pytest.fixture(scope="module", params=[0, 1])
def solved(request: pytest.FixtureRequest) -> tuple[LinkedProgram, LinkedSolution]:
    program = measured_tree(UNIVERSE, np.random.default_rng(request.param), rho=10.0 ** (-2 * request.param))
    return program, linked_down(program, TIES)


def test_every_family_has_its_certificate(solved: tuple[LinkedProgram, LinkedSolution]) -> None:
    _, solution = solved
    assert solution.certificate.holds()
    assert solution.programs.families > 1


def test_children_add_up_to_their_parents(solved: tuple[LinkedProgram, LinkedSolution]) -> None:
    program, solution = solved
    whole = np.zeros((program.tree.n_nodes, UNIVERSE.n_cells), np.int64)
    for node, (cells, counts) in enumerate(solution.nodes):
        whole[node, cells] = counts
    for index in range(program.tree.n_levels - 1):
        families = program.tree.families(index)
        assert (families.total_rows(whole[families.children]) == whole[families.parents]).all()
    units = whole[:, UNIVERSE.is_unit(np.arange(UNIVERSE.n_cells))].sum(axis=1)
    assert (units == program.figures.units).all()
    facility = UNIVERSE.facility_of(np.arange(UNIVERSE.n_cells))
    for kind in range(2):
        persons, there = whole[:, facility == kind].sum(axis=1), program.figures.facilities[:, kind]
        assert (persons >= there).all()
        assert not persons[there == 0].any()


def test_every_node_is_dealt(solved: tuple[LinkedProgram, LinkedSolution]) -> None:
    _, solution = solved
    rows = dealt(UNIVERSE, iter(enumerate(solution.nodes)))
    for fault in record_faults(UNIVERSE, rows):
        assert not fault.wrong.any(), fault.said


def test_nothing_depends_on_who_works(solved: tuple[LinkedProgram, LinkedSolution]) -> None:
    program, solution = solved
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for again in (linked_down(program, TIES, 1), linked_down(program, TIES, 2, pool)):
            assert again.certificate == solution.certificate
            for one, other in zip(solution.nodes, again.nodes, strict=True):
                assert np.array_equal(one.cells, other.cells)
                assert np.array_equal(one.counts, other.counts)


def test_families_are_solved_again_beneath_whole_parents(solved: tuple[LinkedProgram, LinkedSolution]) -> None:
    program, solution = solved
    histograms = [Sparse(cells, counts.astype(np.float64)) for cells, counts in solution.nodes]
    check = families_again(LinkedFamilies(program), method_named("top-down"), histograms, "CLARABEL", TIES)
    assert check.agrees
    assert check.nodes > 1


def test_what_is_compared_with_another_solver_is_what_the_release_was_made_of(
    solved: tuple[LinkedProgram, LinkedSolution], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, solution = solved
    histograms = [Sparse(cells, counts.astype(np.float64)) for cells, counts in solution.nodes]
    right = LinkedFamily.centred

    def off(family: LinkedFamily) -> tuple[LinkedFamily, tuple[Solved, Residuals]]:
        program, (found, residuals) = right(family)
        return program, (found._replace(x=found.x + 0.5), residuals)

    monkeypatch.setattr(LinkedFamily, "centred", off)
    check = cross_check_families(LinkedFamilies(program), method_named("top-down"), histograms, solver="CLARABEL")
    assert not check.agrees


def test_units_need_not_be_public() -> None:
    program = measured_tree(UNIVERSE, np.random.default_rng(5), rho=0.5)
    program = replace(program, figures=PublicFigures(None, program.figures.facilities))
    solution = linked_down(program, TIES)
    assert solution.certificate.holds()
    assert not any((cells == UNIVERSE.vacant).any() for cells, _ in solution.nodes)
    assert not any(f.wrong.any() for f in record_faults(UNIVERSE, dealt(UNIVERSE, iter(enumerate(solution.nodes)))))


def test_units_that_do_not_add_up_are_refused() -> None:
    program = measured_tree(UNIVERSE, np.random.default_rng(5), rho=0.5)
    assert program.figures.units is not None
    units = program.figures.units.copy()
    units[1] += 1
    with pytest.raises(Contradiction, match="units of its children do not add up"):
        replace(program, figures=replace(program.figures, units=units))


def test_facilities_below_0_are_refused() -> None:
    program = measured_tree(UNIVERSE, np.random.default_rng(5), rho=0.5)
    facilities = program.figures.facilities.copy()
    facilities[2, 1] = -1
    with pytest.raises(Contradiction, match="its facilities are below 0") as refused:
        replace(program, figures=replace(program.figures, facilities=facilities))
    assert refused.value.node == 2


def test_a_universe_that_cannot_be_listed_is_refused() -> None:
    program = measured_tree(UNIVERSE, np.random.default_rng(5), rho=0.5)
    with pytest.raises(ConfigError, match="at most 262,144"):
        replace(program, universe=census(races=63, ages=20))


def test_schools_and_their_pupils() -> None:
    universe, rng = schools(), np.random.default_rng(8)
    tree = Tree.from_family_sizes([np.array([4])])
    cells = np.arange(universe.n_cells)
    leaves, _ = populated(universe, np.array([3, 0, 5, 9]), rng, vacancy=0.0)
    here = np.zeros((5, universe.n_cells), np.int64)
    here[leaves.nodes + 1, leaves.cells] = leaves.counts
    here[0] = here[1:].sum(axis=0)
    measured = []
    for nodes in (slice(0, 1), slice(1, 5)):
        level = {}
        for text in ("schools: total", "schools: detailed", "pupils: grade", "pupils: detailed"):
            query = LinkedQuery.parse(text, universe)
            at, own = np.nonzero(here[nodes])
            true = query.sparse_answers(at, cells[own], here[nodes][at, own], nodes.stop - nodes.start)
            level[query] = Answers(true + np.rint(rng.normal(0, 2, true.shape)), np.full(len(true), 4.0))
        measured.append(level)
    program = LinkedProgram(universe, tree, measured, PublicFigures(None, np.zeros((5, 0), np.int64)))
    solution = linked_down(program, TIES)
    assert solution.certificate.holds()
    rows = dealt(universe, iter(enumerate(solution.nodes)))
    assert len(rows.cell)
    assert not any(fault.wrong.any() for fault in record_faults(universe, rows))
