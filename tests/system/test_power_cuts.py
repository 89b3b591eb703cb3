"""The power goes after any operation, and with it what was not synced: the same command then ends with one release from
one noise, for one charge, the very one that somebody may have seen before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.disturbed import FINAL, JOBS, Disturbed, secret_of
from support.faults import Disk, watched
from support.power import WAYS, Cut, Recorder, Way

CUT = ("run", "run with exports and microdata", "run in parts", "synthesize", "statistic", "export")
EVERY = {"run": 29, "run with exports and microdata": 83, "run in parts": 113, "statistic": 11}
"""By default the power goes after operation number so many and its multiples, and 5 of most commands."""


@pytest.fixture
def disturbed(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Disturbed:  # fmt: skip
    return Disturbed(JOBS[request.param], tmp_path, capsys, monkeypatch)


def cuts_of(disturbed: Disturbed) -> tuple[list[Cut], str]:
    """The states that the command goes through, and its secret."""
    place = disturbed.place()
    recorder = Recorder(place)
    with watched(Disk(place, seen=recorder)):
        code, said = disturbed.done(place)
    recorder.close()
    assert (code, said) == (0, "")
    disturbed.require_done(place)
    return recorder.cuts, secret_of(place)


def require_survived(disturbed: Disturbed, cut: Cut, way: Way, secret: str) -> None:
    place = disturbed.folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    cut.restore(place, way)
    try:
        code, said = disturbed.done(place)
        there = cut.has("exported") and "exists already; give another --output" in said
        assert code == 0 or there, said
        disturbed.require_done(place)
        if any(cut.has(name) for name in FINAL):  # somebody may have read it
            assert secret_of(place) == secret
    except AssertionError as wrong:
        raise AssertionError(f"{cut.operation}, {way}: {wrong}") from None


@pytest.mark.system
@pytest.mark.parametrize("disturbed", CUT, indirect=True)
def test_the_power_goes_at_some_moments(disturbed: Disturbed, request: pytest.FixtureRequest) -> None:
    every = EVERY.get(request.node.callspec.params["disturbed"], 5)
    cuts, secret = cuts_of(disturbed)
    for number, cut in enumerate(cuts[::every]):
        require_survived(disturbed, cut, WAYS[number % len(WAYS)], secret)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("disturbed", CUT, indirect=True)
def test_the_power_goes_at_any_moment(disturbed: Disturbed, way: Way) -> None:
    cuts, secret = cuts_of(disturbed)
    for cut in cuts:
        require_survived(disturbed, cut, way, secret)
