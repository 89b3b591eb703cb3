"""The scripts that redo the studies of Liu and of Croft, Sack, Shi: their functions against reference values."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from support.places import GOLDEN, REPOSITORY
from topdown.errors import ConfigError
from topdown.noise import half_line_scale


def script(folder: str, name: str) -> Iterator[ModuleType]:
    """A script of pipelines/<folder>, imported beside the modules of its own folder."""
    pytest.importorskip("matplotlib")
    path = str(REPOSITORY / "pipelines" / folder)
    siblings = {"common", "scaling", "synthesis", name}
    hidden = {key: sys.modules.pop(key) for key in siblings if key in sys.modules}
    sys.path.insert(0, path)
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(path)
        for key in siblings:
            sys.modules.pop(key, None)
        sys.modules.update(hidden)


@pytest.fixture
def synthesis() -> Iterator[ModuleType]:
    yield from script("liu", "synthesis")


@pytest.fixture
def covariance() -> Iterator[ModuleType]:
    yield from script("liu", "covariance")


@pytest.fixture
def proportions() -> Iterator[ModuleType]:
    yield from script("liu", "proportions")


@pytest.fixture
def scaling() -> Iterator[ModuleType]:
    yield from script("croft", "scaling")


@pytest.fixture
def violation() -> Iterator[ModuleType]:
    yield from script("croft", "violation")


# -- Liu, study 2 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", GOLDEN["S0_universal_histogram"]["rows"])
def test_the_universal_histogram(synthesis: ModuleType, row: dict[str, Any]) -> None:
    upward, consistent = synthesis.universal_histogram([row["layer2"], row["leaves"]])
    assert upward[0] == pytest.approx(row["zbar_layer2"], rel=1e-12)
    assert consistent[0] == pytest.approx(row["hbar_layer2"], rel=1e-12)
    assert consistent[1] == pytest.approx(row["hbar_leaves"], rel=1e-12)
    if min(row["hbar_leaves"]) >= 0:
        leaves = synthesis.nonnegative_histogram([row["layer2"], row["leaves"]])
        assert leaves == pytest.approx(row["hbar_leaves"], rel=1e-12)


@pytest.mark.parametrize(("branching", "depth"), [(2, 3), (3, 2)])
def test_the_universal_histogram_is_least_squares(synthesis: ModuleType, branching: int, depth: int) -> None:
    rng = np.random.default_rng(4)
    layers = [rng.normal(size=(2, branching**k)) for k in range(1, depth + 1)]
    _, consistent = synthesis.universal_histogram(layers, root=1.0, branching=branching)
    size = branching**depth
    sums = [np.kron(np.eye(branching**k), np.ones(branching ** (depth - k))) for k in range(1, depth + 1)]
    design = np.concatenate(sums)
    # Least squares over leaves that add up to 1: the last leaf is what the others leave.
    free = np.concatenate([np.eye(size - 1), -np.ones((1, size - 1))])
    start = np.zeros(size)
    start[-1] = 1.0
    for k in range(2):
        noisy = np.concatenate([layer[k] for layer in layers])
        leaves = start + free @ np.linalg.lstsq(design @ free, noisy - design @ start, rcond=None)[0]
        assert consistent[-1][k] == pytest.approx(leaves, abs=1e-12)
        assert consistent[0][k] == pytest.approx(sums[0] @ leaves, abs=1e-12)


def test_a_nonnegative_histogram_adds_up_and_has_no_negative_leaf(synthesis: ModuleType) -> None:
    rng = np.random.default_rng(5)
    layers = [rng.normal(0.5, 0.7, (500, 2)), rng.normal(0.25, 0.7, (500, 4))]
    leaves = synthesis.nonnegative_histogram(layers)
    assert leaves.min() == 0.0
    assert leaves.sum(axis=-1) == pytest.approx(np.ones(500))


@pytest.mark.parametrize("row", GOLDEN["S0_multiple_synthesis"]["rows"])
def test_multiple_synthesis(synthesis: ModuleType, row: dict[str, Any]) -> None:
    found = synthesis.combine(row["q"], row["u"])
    for name, expected in (("estimate", "qbar"), ("within", "W"), ("between", "B"), ("total", "T"), ("degrees", "nu")):
        assert float(getattr(found, name)) == pytest.approx(row[expected], rel=1e-9)
    assert [float(found.low), float(found.high)] == pytest.approx(row["ci95"], rel=1e-9)


def test_syntheses_that_agree_take_the_normal_quantile(synthesis: ModuleType) -> None:
    found = synthesis.combine([0.5, 0.5, 0.5], [0.04, 0.04, 0.04])
    assert float(found.high) == pytest.approx(0.5 + 1.959963984540054 * 0.2)


def test_rescaling(synthesis: ModuleType) -> None:
    found = synthesis.rescaled([[0.2, 0.6, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert found[0] == pytest.approx([0.25, 0.75, 0.0, 0.0])
    assert found[1] == pytest.approx([0.25] * 4)


def test_combined_syntheses_cover_where_one_release_does_not(proportions: ModuleType) -> None:
    one, five = (proportions.study(200, 0.5, "re-scaling", "boundary-inflated", m, 2000, 3) for m in (1, 5))
    assert one["coverage"].mean() < 0.92 < five["coverage"].mean() < 0.96
    # Each of the five has a fifth of the budget, so that their mean is the noisier one.
    assert 1.1 < np.mean(five["rmse"] / one["rmse"]) < 1.4


def test_what_is_not_sanitized_covers_and_has_no_bias(proportions: ModuleType) -> None:
    for sums in (None, proportions.PAIRS):
        found = proportions.study(500, 0.1, "not sanitised", "boundary-inflated", 1, 2000, 2, sums)
        assert (np.abs(found["bias"]) < 6 * found["rmse"] / np.sqrt(2000)).all()
        assert ((found["coverage"] > 0.91) & (found["coverage"] < 0.98)).all()


def test_releases_of_proportions_add_up(proportions: ModuleType) -> None:
    for name in proportions.RELEASES:
        for mechanism in ("truncated", "truncated, true epsilon", "boundary-inflated"):
            found = proportions.study(100, 1.0, name, mechanism, 1, 50, 1)
            assert np.all(found["rmse"] < 0.5)
            assert found["bias"].sum() == pytest.approx(0.0, abs=0.05)
            assert proportions.true_epsilon(100, 1.0, mechanism, name) >= 1.0
            sums = proportions.study(100, 1.0, name, mechanism, 1, 50, 1, proportions.PAIRS)
            # The sum of a pair and that of the others are 1 together, so that they err alike.
            assert sums["bias"] == pytest.approx(-sums["bias"][::-1], abs=1e-12)
    assert proportions.true_epsilon(100, 1.0, "truncated", "re-scaling") == pytest.approx(1.48988012564475, rel=1e-10)


# -- Liu, study 1 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", GOLDEN["S0_variance_release_expected"]["rows"])
@pytest.mark.parametrize(("mechanism", "name"), [("truncated", "trunc"), ("boundary-inflated", "bit")])
def test_released_variances(covariance: ModuleType, row: dict[str, Any], mechanism: str, name: str) -> None:
    variables = [covariance.Variable(4.0, 1.0), covariance.Variable(8.0, 4.0)]
    found = covariance.release(row["n"], variables, 0.0, 1.0, mechanism, 40_000, 1)[:, 0, 0] - 1.0
    error = abs(found.mean() - row[f"{name}_bias"]) / (found.std() / 200)
    assert error < 5
    rmse = float(np.sqrt((found**2).mean()))
    assert rmse == pytest.approx(row[f"{name}_rmse"], rel=0.03)
    assert rmse != pytest.approx(1.1 * row[f"{name}_rmse"], rel=0.05)


def test_a_released_covariance_is_one_that_its_variances_allow(covariance: ModuleType) -> None:
    variables = [covariance.Variable(4.0, 1.0), covariance.Variable(8.0, 4.0)]
    for mechanism in ("truncated", "truncated, true epsilon", "boundary-inflated"):
        found = covariance.release(50, variables, 0.8, 1.0, mechanism, 2000, 2)
        assert np.linalg.eigvalsh(found).min() > -1e-9
        assert np.array_equal(found, np.swapaxes(found, 1, 2))
        assert (found[:, 0, 0] <= 16.3265306122449 + 1e-9).all()
        assert (found[:, 1, 1] <= 65.3061224489796 + 1e-9).all()
    assert covariance.true_epsilon(50, 1.0, "boundary-inflated") == 1.0
    assert 1.7 < covariance.true_epsilon(50, 1.0, "truncated") < 1.8


def test_a_larger_matrix_is_repaired(covariance: ModuleType) -> None:
    pytest.importorskip("statsmodels")
    variables = [covariance.Variable(4.0, 1.0)] * 4
    found = covariance.release(100, variables, 0.5, 1.0, "boundary-inflated", 30, 3)
    share, mended = covariance.repaired(found)
    assert 0 < share < 1
    assert np.linalg.eigvalsh(mended).min() > -1e-9
    assert np.diagonal(mended, axis1=1, axis2=2) == pytest.approx(np.diagonal(found, axis1=1, axis2=2))


# -- Croft, Sack, Shi -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", GOLDEN["S1_uniform_scale"]["rows"])
def test_the_scale_by_class_of_constraints(scaling: ModuleType, row: dict[str, Any]) -> None:
    found = scaling.scaling(row["constraints"], row["eps"], row["Delta"])
    assert found.scale == pytest.approx(row["b"], rel=1e-9)
    assert found.pure
    assert found.adjacent <= found.scale


def test_the_classes_of_constraints(scaling: ModuleType) -> None:
    none = scaling.scaling([], 0.5, 3.0)
    assert (none.constraints, none.scale) == ("none", 6.0)
    half = scaling.scaling([(None, 2.0)], 0.5, 3.0, location=4.0)
    assert half.constraints == "one infinite"
    assert half.scale == pytest.approx(float(half_line_scale(2.0, 0.5, 3.0)))
    assert not half.pure
    assert scaling.scaling([(7.0, None)], 1.0).scale == pytest.approx(1.5859541721782722)
    assert scaling.scaling([(0.0, 1.0)], 1.0).constraints == "one finite"
    assert scaling.scaling([(None, 0.0), (1.0, 2.0)], 1.0).scale == 2.0
    with pytest.raises(ConfigError):
        scaling.scaling([(None, None)], 1.0)


def test_the_violations(violation: ModuleType) -> None:
    block = GOLDEN["S1_half_line_violation"]
    found = violation.first_failure(0.5, 3.0)
    assert found == pytest.approx(block["z_star_times_eps_over_Delta"], rel=1e-4)
    for epsilon in (0.1, 1.0):
        loss = violation.pair_loss(np.array([0.0, 50.0 / epsilon]), 1.0 / epsilon, 1.0)
        assert loss == pytest.approx([np.log(2 * np.exp(epsilon) - 1), epsilon], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "figures"),
    [
        (["liu/covariance.py", "--repeats", "20", "--sizes", "50", "200"], {"liu_figure_1"}),
        (
            ["liu/proportions.py", "--repeats", "50", "--sizes", "40", "100", "--epsilons", "1"],
            {f"liu_figure_{name}" for name in ("2", "3", "4", "5", "s1", "s2")},
        ),
        (["paper/figure_1.py", "--replicates", "300", "--workers", "1"], {"figure_1"}),
        (["paper/figure_2.py"], {"figure_2"}),
        (["paper/figure_3.py", "--replicates", "1"], {"figure_3"}),
        (["paper/figure_4_residuals.py", "--replicates", "300", "--workers", "1"], {"figure_4_residuals"}),
        (["croft/figures_1_2.py"], {"croft_figure_1", "croft_figure_2"}),
        (["croft/scales.py", "--epsilons", "1"], {"bounded_croft_scales"}),
        (["croft/violation.py", "--epsilons", "1"], {"bounded_croft_violation"}),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_the_scripts_run(call: list[str], figures: set[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("statsmodels")
    program = [sys.executable, str(REPOSITORY / "pipelines" / call[0]), *call[1:], "--figures", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.png" for name in figures}
    assert len(done.stdout.splitlines()) > 2


# -- long studies -----------------------------------------------------------------------------------------------------


@pytest.fixture
def resumable() -> Iterator[ModuleType]:
    yield from script("paper", "resumable")


def test_a_study_that_was_stopped_goes_on(resumable: ModuleType, tmp_path: Path) -> None:
    made: list[int] = []

    def repeat(number: int) -> list[dict[str, Any]]:
        if number == 3 and 3 not in made:
            made.append(number)
            raise KeyboardInterrupt
        made.append(number)
        return [{"value": 10 * number + k} for k in range(2)]

    with pytest.raises(KeyboardInterrupt):
        resumable.repeats_of("study", 5, {"seed": 1}, repeat, tmp_path)
    found = resumable.repeats_of("study", 5, {"seed": 1}, repeat, tmp_path)
    assert found["value"].tolist() == [0, 1, 10, 11, 20, 21, 30, 31, 40, 41]
    assert made == [0, 1, 2, 3, 3, 4]
    assert resumable.repeats_of("study", 2, {"seed": 1}, repeat, tmp_path)["repeat"].tolist() == [0, 0, 1, 1]
    assert len(list(tmp_path.iterdir())) == 1
    resumable.repeats_of("study", 1, {"seed": 2}, repeat, tmp_path)  # other settings are another file
    assert len(list(tmp_path.iterdir())) == 2
