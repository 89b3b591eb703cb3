"""Every operation on the disk fails in turn, alone and as on a full disk: one message, nothing torn, and the same
command makes in the end what it would have made, from one noise, for one charge."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from support.disturbed import JOBS, Disturbed, require_one_message, secret_of
from support.faults import Disk, watched

EVERY = {"run": 29, "run with exports and microdata": 111, "run in parts": 151, "statistic": 17}
"""By default operation number so many and its multiples fail, 7 of the other commands."""


@pytest.fixture
def disturbed(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Disturbed:
    return Disturbed(JOBS[request.param], tmp_path, capsys, monkeypatch)


def operations_of(disturbed: Disturbed) -> int:
    place = disturbed.place()
    with watched(Disk(place)) as disk:
        code, said = disturbed.done(place)
    assert (code, said) == (0, "")
    disturbed.require_done(place)
    return len(disk.done)


def require_noticed(disturbed: Disturbed, number: int, *, lasting: bool) -> None:
    """Operation ``number`` fails, the command says so, and when it is given again everything is as it should be."""
    place, error = disturbed.place(), errno.ENOSPC if lasting else errno.EIO
    disturbed.secrets = 0
    with watched(Disk(place, number, error, lasting=lasting)) as disk:
        code, said = disturbed.done(place)
    what = (number, disk.done[number - 1], code, said)
    if code == 0:  # nothing that anybody needs: a temporary file that was not there to be removed
        disturbed.require_done(place)
        return
    try:
        assert code in (2, 3, 5), what
        require_one_message(said)
        disturbed.require_whole_or_absent(place)
        before = secret_of(place)
        code, again = disturbed.done(place)
        assert code == 0 or (disturbed.job.or_says or "no error") in again, again
        assert before in ("", secret_of(place))
        disturbed.require_done(place)
    except AssertionError as wrong:
        raise AssertionError(f"{what}: {wrong}") from None


@pytest.mark.system
@pytest.mark.parametrize("disturbed", JOBS, indirect=True)
def test_some_operations_fail(disturbed: Disturbed, request: pytest.FixtureRequest) -> None:
    every = EVERY.get(request.node.callspec.params["disturbed"], 7)
    count = operations_of(disturbed)
    for number in range(every, count + 1, every):
        require_noticed(disturbed, number, lasting=number % (2 * every) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("disturbed", JOBS, indirect=True)
def test_every_operation_fails(disturbed: Disturbed, lasting: bool) -> None:
    for number in range(1, operations_of(disturbed) + 1):
        require_noticed(disturbed, number, lasting=lasting)
