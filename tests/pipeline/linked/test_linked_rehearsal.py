"""The rehearsal of two linked tables: what cannot be solved is refused before anything is drawn."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from support.linked import SMALL_LINKED, census, schools
from topdown.config import load_linked
from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray
from topdown.linked.dealing import NodeCells, dealt
from topdown.linked.record_faults import record_faults
from topdown.linked.universe import PublicFigures, Universe
from topdown.machine.progress import Silent
from topdown.pipeline.linked.linked_draw import check_linked_tables, draw_linked
from topdown.pipeline.linked.linked_rehearsal import invented
from topdown.projection.check import cvxpy_programs
from topdown.projection.histograms.families import Family
from topdown.projection.linked.linked_family import LinkedFamily
from topdown.projection.method import CvxpySolver


@pytest.mark.parametrize("universe", [census(races=2, ages=2), census(), schools()], ids=["small", "census", "schools"])
@pytest.mark.parametrize("known", [True, False])
def test_invented_households_keep_what_is_public(universe: Universe, known: bool) -> None:
    rng = np.random.default_rng(1)
    facilities = (rng.random((30, sum(one.counted for one in universe.facilities))) < 0.2).astype(np.int64)
    units = np.where(np.arange(30) % 3 == 0, 0, rng.integers(0, 5000, 30)) if known else None
    leaf, cells, counts = invented(universe, PublicFigures(units, facilities), np.random.default_rng(2))
    assert (counts > 0).all()
    assert universe.possible(cells).all()
    if units is not None:
        assert (np.bincount(leaf, counts * universe.is_unit(cells), 30) == units).all()
    for column, kind in enumerate(k for k, one in enumerate(universe.facilities) if one.counted):
        persons = np.bincount(leaf, counts * (universe.facility_of(cells) == kind), 30)
        assert (persons >= facilities[:, column]).all()
        assert not persons[facilities[:, column] == 0].any()
    nodes = []
    for node in range(30):
        own, place = np.unique(cells[leaf == node], return_inverse=True)
        nodes.append(NodeCells(own, np.bincount(place, counts[leaf == node], len(own)).astype(np.int64)))
    rows = dealt(universe, iter(enumerate(nodes)))
    assert len(rows.cell) > 30
    assert not any(fault.wrong.any() for fault in record_faults(universe, rows))


def test_what_cannot_be_solved_is_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsolved(family: LinkedFamily) -> None:
        raise ProjectionError("a family's program was not solved")

    monkeypatch.setattr(LinkedFamily, "solve", unsolved)
    config, drawn = load_linked(SMALL_LINKED), list[str]()
    monkeypatch.setattr("topdown.pipeline.linked.linked_draw.measure_narrow", lambda *_: drawn.append("noise"))
    with pytest.raises(ProjectionError, match="rehearsed on invented households, before anything was drawn"):
        check_linked_tables(config)
    with ExitStack() as held, pytest.raises(ProjectionError, match="before anything was drawn"):
        draw_linked(config, tmp_path / "out", held, Silent())
    assert not drawn
    assert [path.name for path in (tmp_path / "out" / "internal").iterdir()] == ["lock"]


def test_a_second_solution_that_differs_is_refused_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = cvxpy_programs.family_solution

    def moved(family: Family, solver: CvxpySolver) -> FloatArray:
        found = solution(family, solver)
        found[0] += 0.01
        return found

    monkeypatch.setattr(cvxpy_programs, "family_solution", moved)
    with pytest.raises(ProjectionError, match=r"drawn: non_negative: the tree engine and .* differ"):
        check_linked_tables(load_linked(SMALL_LINKED))
