"""Whole households and persons of families: they always exist, keep every row, and are dealt into households."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.linked import census
from support.linked_families import measured_family
from topdown.errors import ProjectionError
from topdown.linked.dealing import NodeCells, dealt
from topdown.linked.record_faults import record_faults
from topdown.noise import SeededSource
from topdown.projection.linked import whole_family as whole_family_module
from topdown.projection.linked.household_kernel import move_members, swap
from topdown.projection.linked.linked_family import LinkedFamily
from topdown.projection.linked.whole_family import _require, targets, whole_family

UNIVERSE = census(races=3, ages=3)


@pytest.mark.parametrize("seed", range(25))
def test_whole_families_keep_every_row_and_are_dealt(seed: int) -> None:
    rng = np.random.default_rng(seed)
    universe = census() if seed % 6 == 0 else UNIVERSE
    family = measured_family(
        universe,
        rng,
        children=int(rng.integers(1, 9)),
        mean=float(rng.choice([0.5, 4.0])),
        rho=10 ** rng.uniform(-3, 1),
    )
    solved, _ = family.solve()
    whole = whole_family(universe, family, solved.x, LinkedFamily.solve, SeededSource(seed))
    assert (whole.counts.sum(axis=0) == family.total).all()
    rows = dealt(universe, ((c, NodeCells(family.cells, own)) for c, own in enumerate(whole.counts)))
    for fault in record_faults(universe, rows):
        assert not fault.wrong.any(), fault.said


def test_a_root_is_whole_without_sums() -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(2), children=1, mean=9.0, rho=0.05)._replace(total=None)
    solved, _ = family.solve()
    whole = whole_family(UNIVERSE, family, solved.x, LinkedFamily.solve, SeededSource(2))
    rows = dealt(UNIVERSE, iter([(0, NodeCells(family.cells, whole.counts[0]))]))
    assert not any(fault.wrong.any() for fault in record_faults(UNIVERSE, rows))


@pytest.mark.parametrize("seed", range(20))
def test_targets_are_the_nearest_that_can_be_dealt(seed: int) -> None:
    """Two children, by brute force over all splits of the members."""
    rng, compositions = np.random.default_rng(seed), UNIVERSE.compositions
    able = np.flatnonzero(compositions.possible & (compositions.total_least <= 2))
    households = np.stack([np.bincount(rng.choice(able, 2), minlength=compositions.n_classes) for _ in range(2)])
    total = households.sum(axis=0) @ np.array(
        [next(iter(_held(compositions, kind))) if compositions.possible[kind] else (0,) * 4 for kind in range(42)]
    )
    near = np.clip(total / 2 + rng.normal(0, 0.7, (2, 4)), 0, None)
    found = targets(compositions, households, near, total)

    def cost(split: np.ndarray) -> float:
        return float(((split - near) ** 2).sum() + ((split.sum(axis=1) - near.sum(axis=1)) ** 2).sum())

    splits = [np.array([own, total - own]) for own in itertools.product(*(range(int(t) + 1) for t in total))]
    able_splits = [split for split in splits if compositions.fits(households, split).all()]
    assert (found.sum(axis=0) == total).all()
    assert compositions.fits(households, found).all()
    assert cost(found) <= min(map(cost, able_splits)) + 1e-9


def _held(compositions, kind):  # type: ignore[no-untyped-def]
    for n in itertools.product(*(range(m + 1) for m in compositions.most[kind])):
        inside = compositions.total_least[kind] <= sum(n) <= compositions.total_most[kind]
        if inside and (np.array(n) >= compositions.least[kind]).all():
            yield n


def test_swaps_lower_what_they_are_to_lower_and_keep_sums() -> None:
    rng = np.random.default_rng(0)
    h = rng.integers(0, 3, (5, 8))
    x = np.clip(h + rng.normal(0, 0.5, h.shape), 0, None)
    features, weights = rng.integers(0, 4, (3, 8)).astype(float), np.array([1.0, 0.3, 0.5])
    start, off = h.copy(), np.ascontiguousarray((h - x) @ features.T)
    # Two queries, of two answers and of three; three cells count in none of the second.
    answers = np.array([[0, 1, 0, 1, 0, 1, 0, 1], [2, 2, 3, 3, 4, -1, -1, -1]])
    inside = (answers[:, :, None] == np.arange(5)).any(axis=0).astype(float)
    said = (h - x) @ inside

    def value(now: np.ndarray) -> float:
        found = weights @ (((now - x) @ features.T) ** 2).sum(axis=0) + 0.3 * (((now - x) @ inside) ** 2).sum()
        return float(found + 0.15 * ((now - x) ** 2).sum())

    candidates = np.tile(np.arange(8), (5, 1))
    assert swap(h, x, features, weights, off, 0.15, candidates, answers, said, 0.3) > 0
    assert value(h) < value(start)
    assert (h >= 0).all()
    assert (h.sum(axis=0) == start.sum(axis=0)).all()
    assert (h.sum(axis=1) == start.sum(axis=1)).all()
    assert np.allclose(off, (h - x) @ features.T)
    assert np.allclose(said, (h - x) @ inside)
    again = candidates, answers, said, 0.3
    assert swap(h, x, features, weights, off, 0.15, *again) == 0


def test_whole_households_keep_the_answers_to_queries_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of every query of few answers: by a fifth nearer than where members and cells alone are kept."""

    def off() -> float:
        found = 0.0
        for seed in range(12):
            family = measured_family(UNIVERSE, np.random.default_rng(seed), children=6, mean=4.0)
            x = family.solve()[0].x
            counts = whole_family(UNIVERSE, family, x, LinkedFamily.solve, SeededSource(seed)).counts
            for answer in family.measured.answers:
                own = answer == np.unique(answer[answer >= 0])[:, None]
                unit = UNIVERSE.is_unit(family.cells)
                if own[:, unit].any() and len(own) < 20:
                    found += float(np.abs((counts - x)[:, unit] @ own[:, unit].T).sum())
        return found

    kept = off()
    monkeypatch.setattr(whole_family_module, "_ANSWERS", 0.0)
    assert kept < 0.8 * off()


def test_members_move_to_where_they_are_missing() -> None:
    r, x = np.array([[3, 1], [0, 0]]), np.array([[2.0, 1.0], [1.0, 0.0]])
    excess = np.array([1, -1])
    move_members(r, x, excess)
    assert r.tolist() == [[2, 1], [1, 0]]
    assert excess.tolist() == [0, 0]


@pytest.mark.parametrize(("child", "cell", "more"), [(0, 0, 1), (1, -1, -50)])
def test_counts_that_break_a_row_are_refused(child: int, cell: int, more: int) -> None:
    family = measured_family(UNIVERSE, np.random.default_rng(4), children=3, mean=4.0)
    solved, _ = family.solve()
    counts = whole_family(UNIVERSE, family, solved.x, LinkedFamily.solve, SeededSource(4)).counts
    _require(family, counts)
    counts[child, cell] += more
    with pytest.raises(ProjectionError, match="break their rows"):
        _require(family, counts)
