"""Whole households and persons of small families against the nearest that an integer program finds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from support.linked import census
from support.linked_families import measured_family
from topdown.geography.tree import FloatArray
from topdown.noise import KeyedSource
from topdown.projection.linked.linked_family import LinkedFamily
from topdown.projection.linked.whole_family import whole_family

UNIVERSE = census(races=2, ages=2)


def _answers(family: LinkedFamily) -> sp.csr_array:
    """All answers to the queries that meet the family's cells (answers x cells)."""
    parts = []
    for answer in family.measured.answers:
        inside = np.flatnonzero(answer >= 0)
        shape = (int(answer.max(initial=0)) + 1, len(answer))
        parts.append(sp.csr_array((np.ones(len(inside)), (answer[inside], inside)), shape=shape))
    found = sp.vstack(parts, format="csr")
    return found[np.diff(found.indptr) > 0]


def _least(family: LinkedFamily, x: FloatArray) -> float:
    """The least distance, summed over all answers, that whole counts can have from ``x``."""
    assert family.total is not None
    answers, (children, cells), rows = _answers(family), x.shape, family.rows
    of_all = sp.kron(sp.eye_array(children), answers)
    conditions = sp.kron(sp.eye_array(children), rows.coefficients)
    sums = sp.kron(np.ones((1, children)), sp.eye_array(cells))
    distances, aim = sp.eye_array(of_all.shape[0]), (answers @ x.T).T.reshape(-1)

    def alone(matrix: sp.sparray) -> sp.sparray:
        return sp.hstack([matrix, sp.csr_array((matrix.shape[0], len(aim)))])

    most = np.where(rows.allowed, family.total, 0.0).reshape(-1)
    found = milp(
        np.repeat([0.0, 1.0], [children * cells, len(aim)]),
        constraints=[
            LinearConstraint(sp.hstack([of_all, -distances]), -np.inf, aim),
            LinearConstraint(sp.hstack([of_all, distances]), aim, np.inf),
            LinearConstraint(alone(conditions), rows.low.reshape(-1), rows.high.reshape(-1)),
            LinearConstraint(alone(sums), family.total, family.total),
        ],
        integrality=np.repeat([1, 0], [children * cells, len(aim)]),
        bounds=Bounds(0.0, np.concatenate([most, np.full(len(aim), np.inf)])),
        options={"mip_rel_gap": 0.02},
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("seed", range(4))
def test_many_small_masses_do_not_add_up(seed: int) -> None:
    """They are made nothing before a family is made whole, and no child then has a unit, or a person in a facility,
    more or less than it must."""
    family = measured_family(UNIVERSE, np.random.default_rng(seed), children=30, mean=6.0)
    solved, _ = family.solve()
    # Nearly the solution, and with a little in the cells of another that keeps the same conditions.
    other, _ = family._replace(
        measured=family.measured._replace(said=[one[::-1] for one in family.measured.said])
    ).solve()
    x = solved.x + 1.5e-5 * (other.x - solved.x)
    counts = whole_family(UNIVERSE, family, x, LinkedFamily.solve, KeyedSource(bytes(32))).counts
    units = UNIVERSE.is_unit(family.cells)
    assert np.array_equal(counts[:, units].sum(axis=1), np.rint(x[:, units].sum(axis=1)))


def test_whole_counts_are_nearly_as_near_as_an_integer_programs() -> None:
    """Together within 1.2 times: a single family, of a few persons, may be further off."""
    ours = least = 0.0
    for seed in range(8):
        family = measured_family(UNIVERSE, np.random.default_rng(seed), children=3, mean=4.0)
        solved, _ = family.solve()
        counts = whole_family(UNIVERSE, family, solved.x, LinkedFamily.solve, KeyedSource(bytes(32))).counts
        own, nearest = float(np.abs(_answers(family) @ (counts - solved.x).T).sum()), _least(family, solved.x)
        assert own >= nearest * 0.98
        ours, least = ours + own, least + nearest
    assert ours <= 1.2 * least
