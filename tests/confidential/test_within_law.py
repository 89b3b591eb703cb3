"""The check of measured values: refuses what no noise explains, of the whole tree and of a piece, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import topdown as td
from topdown.confidential import entries_kernel, measure_piece
from topdown.confidential.entries import Entries
from topdown.confidential.measure_piece import Place
from topdown.confidential.within_law import Counted, reach_of, require_within_law
from topdown.errors import InternalError
from topdown.noise.key import NoiseKey
from topdown.privacy.bounds import LevelBounds
from topdown.privacy.single_child_units import GIVEN, levels_taken

SCHEMA = td.Schema.from_mapping({"sex": ["f", "m"], "age": ["0", "1"]})
LEVELS = ("nation", "state", "block")
KEY = NoiseKey(bytes(32), "configuration", "input")
LAWS = [td.noise.DiscreteLaplace(Fraction(scale)) for scale in ("1/1000", "1/10", "1", "255", "256", "1000000")] + [
    td.noise.DiscreteGaussian(Fraction(sigma)) for sigma in ("1/100", "1/2", "20", "255", "256", "1000000")
]
GRIDS = [td.noise.DiscreteLaplace(Fraction(3, 2), grid_bits=10), td.noise.DiscreteGaussian(5, grid_bits=3)]


@pytest.mark.parametrize("law", LAWS + GRIDS, ids=str)
def test_the_reach_is_what_draws_pass_never(law: td.noise.LatticeLaw) -> None:
    step = 2.0**-law.grid_bits
    assert 2 * law.sf(law.reach) < 2e-55 <= 4 * law.sf(law.reach - step)
    if not law.grid_bits:
        assert law.reach <= np.iinfo(law.narrowest).max


@pytest.mark.parametrize("law", LAWS + GRIDS, ids=str)
@pytest.mark.parametrize("chunk", [3, 1 << 18])
def test_values_are_refused_from_where_noise_never_is(
    law: td.noise.LatticeLaw, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At counts of 0, and at others, of which one is given in two entries; at the first node and at the last."""
    monkeypatch.setattr("topdown.noise.key.DRAWS_PER_STREAM", chunk)
    kind = np.float64 if law.grid_bits else law.narrowest
    counted = Counted(np.array([0, 0, 2, 4]), np.array([0, 0, 1, 2]), np.array([20, 11, 7, 5]))
    exact = np.zeros((3, 5), np.int64)
    np.add.at(exact, (counted.answers, counted.rows), counted.counts)
    reach = reach_of(lambda _: law, np.zeros(5, np.int16))
    step = 2.0**-law.grid_bits
    for answer, row in ((0, 0), (1, 0), (1, 2), (2, 4), (0, 4), (2, 3)):
        for sign in (-1, 1):
            values = exact + np.zeros(exact.shape, kind)
            values[answer, row] += sign * law.reach
            require_within_law(values, counted, reach, "county", "total")
            values[answer, row] += sign * step
            with pytest.raises(InternalError, match="level 'county', query 'total': a measured value is further"):
                require_within_law(values, counted, reach, "county", "total")


def test_a_wrapped_value_is_refused_in_every_kind() -> None:
    for law in LAWS:
        kind = law.narrowest
        bits = 8 * kind.itemsize
        if bits == 64:
            continue
        for count in (1 << bits - 1, (1 << bits - 1) + 5, 1 << bits, (1 << bits) + 7):
            wrapped = np.array([[count, 3]]).astype(kind)
            counted = Counted(np.array([0, 1]), np.array([0, 0]), np.array([count, 3]))
            reach = reach_of(lambda _, law=law: law, np.zeros(2, np.int16))
            require_within_law(np.array([[count, 3]]), counted, reach, "a", "b")
            with pytest.raises(InternalError):
                require_within_law(wrapped, counted, reach, "a", "b")


def test_exact_and_unmeasured_values_are_what_they_are() -> None:
    reach = reach_of({0: None, GIVEN: None}.__getitem__, np.array([0, GIVEN, 0], np.int16))
    counted = Counted(np.array([0]), np.array([0]), np.array([1 << 40]))
    values = np.array([[1 << 40, 0, 0]])
    require_within_law(values, counted, reach, "county", "total")
    for row in range(3):
        for step in (-1, 1):
            other = values.copy()
            other[0, row] += step
            with pytest.raises(InternalError):
                require_within_law(other, counted, reach, "county", "total")


def test_what_is_wide_enough_for_the_noise_alone_hides_nothing() -> None:
    """Numbers of a kind that does not even reach as far as the noise does."""
    counted = Counted(np.array([0]), np.array([0]), np.array([200]))
    with pytest.raises(InternalError):
        require_within_law(np.array([[-56, 0]], np.int8), counted, np.array([140.0, 140.0]), "county", "total")
    require_within_law(np.array([[100, -128]], np.int8), counted, np.array([140.0, 140.0]), "county", "total")


BOUNDED = [
    LevelBounds("boundary-inflated", 40),
    LevelBounds("boundary-inflated"),
    LevelBounds("boundary-inflated", within=((None, -5), (3, 3), (60, 70), (400, None))),
    LevelBounds("truncated", 40),
    LevelBounds("truncated", within=((3, 3), (60, 70), (400, 410))),
    LevelBounds("normalized", within=((None, -30), (60, 70))),
]


@pytest.mark.parametrize("bounds", BOUNDED, ids=str)
@pytest.mark.parametrize("scale", ["1/10", "2", "50"])
def test_noise_within_bounds_is_no_fault_wherever_the_count_is(bounds: LevelBounds, scale: str) -> None:
    law = td.noise.DiscreteLaplace(Fraction(scale))
    exact = np.repeat(np.array([[0, 1, 3, 39, 40, 41, 65, 300, 5_000]]), 200, axis=0)
    rows = np.tile(np.arange(9), 200)
    order = np.argsort(rows, kind="stable")
    counted = Counted(rows[order], np.repeat(np.arange(200), 9)[order], exact.reshape(-1)[order])
    reach = reach_of(lambda _: law, np.zeros(9, np.int16))
    values = bounds.sample(exact, law, exact.shape, td.SeededSource(3))
    require_within_law(values, counted, reach, "county", "detailed", bounds)
    values[4, 2] += 3 * int(law.reach) + 1000
    with pytest.raises(InternalError):
        require_within_law(values, counted, reach, "county", "detailed", bounds)


def test_rounding_on_a_grid_is_no_fault() -> None:
    """Of a count of 2^52 float64 holds whole numbers alone, and the noise is of multiples of 2^-10."""
    law = td.noise.DiscreteLaplace(Fraction(1, 500), grid_bits=10)
    assert law.reach < 1 / 2
    count = (1 << 52) - 1
    values = np.array([[count + 0.5]])
    assert abs(values[0, 0] - count) == 0.5
    counted = Counted(np.array([0]), np.array([0]), np.array([count]))
    require_within_law(values, counted, reach_of(lambda _: law, np.zeros(1, np.int16)), "county", "total")


# -- what it would have caught ----------------------------------------------------------------------------------------


def wrapping(noise: Any, counted: Counted) -> Any:
    """Counts added in the noise's own kind of number."""
    found = noise.copy()
    np.add.at(found, (counted.answers, counted.rows), counted.counts.astype(noise.dtype))
    return found


def table(edge: int) -> tuple[td.Geography, Entries]:
    geoids = [f"{state:02}{block:02}" for state in range(2) for block in range(3)]
    geography = td.Geography.from_geoids(geoids, {"state": 2, "block": 4}, root_level="nation")
    counts = np.zeros((6, SCHEMA.n_cells), np.int64)
    counts[1] = [edge // 4, edge // 4, edge // 4, edge - 3 * (edge // 4)]
    counts[5, 2] = 9
    keys = np.flatnonzero(counts)
    return geography, Entries.of_leaves(geography.tree, SCHEMA.n_cells, keys, counts.reshape(-1)[keys])


def plans() -> Iterator[td.Plan]:
    shares = {"nation": 0, "state": {"total": "1/2"}, "block": {"sex": "1/4", "detailed": "1/4"}}
    for plan in (td.Plan("geometric", 20, shares=shares), td.Plan("discrete-gaussian", rho="20", shares=shares)):
        yield plan.for_levels(LEVELS).for_schema(SCHEMA)


def in_pieces(edge: int, plan: td.Plan) -> None:
    geography, held = table(edge)
    tree, taken = geography.tree, levels_taken(plan, geography)
    places = {k: Place(LEVELS[k], 0, taken[tree.level(k)]) for k in range(1, 3)}
    measure_piece.measure_piece(held, tree, SCHEMA, plan, KEY.streams("counts"), places, LEVELS)


def of_the_whole(edge: int, plan: td.Plan) -> None:
    geography, held = table(edge)
    td.measure(td.Counts(geography, SCHEMA.cells(), held, SCHEMA), plan, KEY)


@pytest.mark.parametrize("plan", list(plans()), ids=lambda plan: plan.mechanism)
@pytest.mark.parametrize("edge", [(1 << 15) + 100, 1 << 16, 1 << 20, (1 << 32) + 5])
@pytest.mark.parametrize("way", [in_pieces, of_the_whole])
def test_numbers_that_wrap_around_do_not_leave_by_the_door(
    way: Callable[[int, td.Plan], None], edge: int, plan: td.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    way(edge, plan)

    def narrow(self: Any, counts: Any, law: Any, size: Any, source: Any) -> Any:
        return (counts + law.sample(size, source)).astype(np.int16)

    monkeypatch.setattr(measure_piece, "_added", wrapping)
    monkeypatch.setattr(LevelBounds, "sample", narrow)
    with pytest.raises(InternalError, match="please report it"):
        way(edge, plan)


def test_sums_over_siblings_that_wrap_around_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    merged = entries_kernel.merged

    def wraps(*arguments: Any) -> None:
        merged(*arguments)
        arguments[-2][:] = arguments[-2].astype(np.int16)

    table(1 << 20)
    monkeypatch.setattr(entries_kernel, "merged", wraps)
    with pytest.raises(InternalError, match="the counts of a level do not add up"):
        table(1 << 20)
