"""What happens to a run of processes at moments that chance picks: kills of any process, interrupts, torn files.

Whatever it was, the same command ends with the bytes of an undisturbed run, one reservation, and nothing left behind.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.parted import FROM_TRACT, LEDGER, TOML, counts_of, made, place_of_the_same_noise
from topdown.privacy.ledger import Ledger

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from topdown.entry import main; main()", "run"]
ASKED = ["--part-size", "3", "--workers", "2", "-q"]
FILES = {"cut": 14, "up": 13, "top": 14, "down": 13, "public": 4}
"""The folders of steps, and how many files each gets."""


@pytest.fixture(scope="module", params=["from the leaves", "from the tracts"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release in "undisturbed"."""
    folder = tmp_path_factory.mktemp("accidents")
    config = made(folder, (TOML if request.param == "from the leaves" else FROM_TRACT) + LEDGER)
    subprocess.run([*COMMAND, config, *ASKED, "-o", folder / "undisturbed"], check=True)
    return folder


def _things_in(folder: Path) -> int:
    """How many files and folders there are below, 0 where the run has just moved it away."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def struck(rng: random.Random, command: list[str], parts: Path) -> str:
    """A run that an accident happens to when chance wants; what it was, and the exit code."""
    accident = rng.choice(["client killed", "worker killed", "all killed", "interrupted", "torn"])
    step = rng.choice(list(FILES))
    wanted, more = rng.randint(1, FILES[step]), rng.random() * 0.05
    run = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while run.poll() is None and _things_in(parts / step) < wanted:
        time.sleep(0.002)
    time.sleep(more)
    workers = psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []
    if run.poll() is None:
        if accident == "all killed":
            os.killpg(run.pid, signal.SIGKILL)
        elif accident == "interrupted":
            run.send_signal(signal.SIGINT)
        elif accident == "worker killed":
            rng.choice(workers).kill() if workers else None
        else:
            run.kill()
    code = run.wait(timeout=600)
    _, alive = psutil.wait_procs(workers, timeout=180)
    for process in alive:
        process.kill()
    assert not alive, accident  # a worker ends with who gave it work
    files = sorted(path for path in parts.rglob("*") if path.is_file()) if parts.exists() else []
    if accident == "torn" and files:
        path = rng.choice(files)
        path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size + 1)])
        accident = f"killed, {path.relative_to(parts)} torn"
    return f"{accident} at {wanted} of {step}: {code}"


@pytest.mark.parametrize("seed", [2301, 2302, 2303])
def test_accidents_change_nothing(folder: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    (tmp_path / "run.toml").write_text((folder / "run.toml").read_text())
    for name in ("table.parquet", "units.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    Ledger(tmp_path / "ledger.db").open_account("census", "1/2", currency="rho")
    there = place_of_the_same_noise(tmp_path, folder / "undisturbed", "struck")
    command = [*COMMAND, str(tmp_path / "run.toml"), *ASKED, "-o", str(there)]
    told = [struck(rng, command, there / "internal" / "parts") for _ in range(2)]
    assert all(told_of_worker.endswith(": 0") for told_of_worker in told if told_of_worker.startswith("worker"))
    subprocess.run(command, check=True)
    assert counts_of(there / "public") == counts_of(folder / "undisturbed" / "public"), told
    assert (there / "internal/draw.json").read_bytes() == (folder / "undisturbed/internal/draw.json").read_bytes()
    assert sorted(path.name for path in (there / "internal").iterdir()) == ["draw.json", "key", "lock"], told
    assert sorted(path.name for path in there.iterdir()) == ["internal", "public"], told
    account = Ledger(tmp_path / "ledger.db").account("census")
    assert (len(account.releases), len(account.confirmed), account.left) == (1, 1, 0), told
