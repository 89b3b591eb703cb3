"""Whatever happens to the files in internal/, no other numbers are published, and a run ends at once."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from topdown.config import load_config
from topdown.errors import DataError, TopdownError
from topdown.pipeline import run as pipeline
from topdown.privacy.ledger import Ledger

QUICK, LONG = 60, 1_200
PAGE = 512
SECONDS = 30.0
"""What a run of 311 nodes may take at most, on a machine that is busy with other things too."""

TOML = """
[input]
path = "table.parquet"
cells = ["adults", "children"]
[geography]
levels = ["nation", "state", "county"]
[privacy]
epsilon = 1.0
[projection]
cross_check = false
[ledger]
path = "ledger.db"
dataset = "census"
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release that was made, and of another of the same table."""
    folder = tmp_path_factory.mktemp("done")
    counties = [f"{state:02}{county:03}" for state in range(10) for county in range(30)]
    frame = pd.DataFrame({"nation": "US", "state": [c[:2] for c in counties], "county": counties})
    numbers = np.arange(len(frame))
    frame.assign(adults=numbers * 7, children=numbers % 5).to_parquet(folder / "table.parquet")
    (folder / "run.toml").write_text(TOML)
    Ledger(folder / "ledger.db").open_account("census", 10)
    for name in ("output", "other"):
        pipeline.run(load_config(folder / "run.toml"), folder / name, workers=1)
    return folder


def flip(data: bytearray) -> None:
    for _ in range(random.choice([1, 1, 1, 8])):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def insert(data: bytearray) -> None:
    place = random.randrange(len(data) + 1)
    data[place:place] = random.randbytes(random.choice([1, 8, 100]))


def swap(data: bytearray) -> None:
    size = random.randint(1, min(PAGE, len(data) // 2))
    a, b = random.randrange(len(data) - size + 1), random.randrange(len(data) - size + 1)
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def zero(data: bytearray) -> None:
    place = random.randrange(len(data)) // PAGE * PAGE
    data[place : place + PAGE] = bytes(len(data[place : place + PAGE]))


def truncate(data: bytearray) -> None:
    del data[random.randrange(len(data)) :]


def remove(data: bytearray) -> None:
    place = random.randrange(len(data))
    del data[place : place + random.choice([1, 8, 100])]


def overwrite(data: bytearray) -> None:
    place = random.randrange(len(data))
    data[place : place + PAGE] = random.randbytes(len(data[place : place + PAGE]))


DAMAGES: list[Callable[[bytearray], None]] = [flip, insert, swap, zero, truncate, remove, overwrite]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rerun(place: Path) -> str:
    """ "released", or the message of the refusal, of a run that has its noise and not its public files."""
    begin = time.monotonic()
    try:
        pipeline.run(load_config(place / "run.toml"), workers=1)
    except TopdownError as error:
        assert not (place / "output" / "public").exists()
        return f"{error.exit_code} {error}"
    finally:
        assert time.monotonic() - begin < SECONDS
    return "released"


@pytest.mark.system
@pytest.mark.parametrize("times", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])
def test_no_damage_is_published(done: Path, tmp_path: Path, times: int) -> None:
    names = sorted(path.name for path in (done / "output" / "internal").iterdir())
    assert names == ["draw.json", "key", "lock"]
    found = {name: {"released": 0, "refused": 0} for name in names}
    for repeat in range(times):
        place = tmp_path / str(repeat)
        shutil.copytree(done, place)
        shutil.rmtree(place / "output" / "public")
        # The record most of all; the file of the lock is empty, and it says nothing whatever it holds.
        name = random.choice([*names, *["draw.json"] * 5])
        path = place / "output" / "internal" / name
        before = path.read_bytes()
        data = bytearray(before or bytes(10))
        random.choice(DAMAGES)(data)
        path.write_bytes(data)
        said = rerun(place)
        found[name]["released" if said == "released" else "refused"] += 1
        if said == "released":
            assert content(place / "output" / "public") == content(done / "output" / "public")
            # Letters of the secret in capitals are the same secret.
            assert bytes(data).lower() == before.lower() or name == "lock", name
        else:
            assert said.startswith(f"{DataError.exit_code} "), said
            assert f"{path}: " in said
            assert "restore the folder from a copy" in said
        assert Ledger(place / "ledger.db").account("census").spent == 2
        shutil.rmtree(place)
    assert found["draw.json"]["refused"] > times // 3
    assert found["lock"]["refused"] == 0


@pytest.mark.parametrize("name", ["key", "draw.json"])
def test_a_file_of_another_release_is_refused(done: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(done, tmp_path / "place")
    place = tmp_path / "place"
    shutil.rmtree(place / "output" / "public")
    shutil.copy(place / "other" / "internal" / name, place / "output" / "internal" / name)
    assert "is damaged, or another release's" in rerun(place)


@pytest.mark.parametrize("name", ["key", "draw.json"])
@pytest.mark.parametrize("with_public", [False, True])
def test_a_file_that_is_gone_is_never_made_anew(done: Path, tmp_path: Path, name: str, with_public: bool) -> None:
    place = tmp_path / "place"
    shutil.copytree(done, place)
    (place / "output" / "internal" / name).unlink()
    before = content(place / "output" / "public")
    if not with_public:
        shutil.rmtree(place / "output" / "public")
        said = rerun(place)
        assert "secret is missing" in said if name == "key" else "drew its noise, and its record is not here" in said
    else:
        with pytest.raises(TopdownError, match=r"secret is missing|the record of the noise behind it is not in"):
            pipeline.run(load_config(place / "run.toml"), workers=1)
        assert content(place / "output" / "public") == before


@pytest.mark.parametrize("name", ["key", "draw.json"])
def test_something_else_under_the_name_of_a_file(done: Path, tmp_path: Path, name: str) -> None:
    place = tmp_path / "place"
    shutil.copytree(done, place)
    shutil.rmtree(place / "output" / "public")
    path = place / "output" / "internal" / name
    path.unlink()
    path.mkdir()
    assert rerun(place).startswith("3 ")
    path.rmdir()
    os.mkfifo(path)  # who opens one waits for somebody to write
    assert rerun(place).startswith("3 ")


# -- the public files ------------------------------------------------------------------------------------------------


def spoiled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda public: (public / "release.csv").unlink(), "release.csv is missing"),
        (
            lambda public: os.truncate(public / "release.parquet", 100),
            r"release.parquet has 100 bytes instead of [\d,]+",
        ),
        (
            lambda public: spoiled(public / "estimates.parquet"),
            r"estimates.parquet is not what was written .its SHA-256 is not the manifest's.",
        ),
        (lambda public: (public / "manifest.json").unlink(), "manifest.json: is missing"),
        (lambda public: (public / "manifest.json").write_text("{"), "manifest.json: is not what was written"),
        (lambda public: (public / "notes.txt").write_text("my notes"), "'notes.txt' is not of this release"),
    ],
)
def test_a_release_that_is_not_whole_is_not_called_complete(
    done: Path, tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    place = tmp_path / "place"
    shutil.copytree(done, place)
    public = place / "output" / "public"
    spoil(public)
    before = content(public)
    config = load_config(place / "run.toml")
    with pytest.raises(DataError, match=rf"{says}; move .*public away and run again: the same release") as refused:
        pipeline.run(config, workers=1)
    assert refused.value.exit_code == 3
    assert content(public) == before
    # As it says.
    public.rename(place / "away")
    assert pipeline.run(config, workers=1).already_there is False
    assert content(public) == content(done / "output" / "public")


def test_an_empty_public_folder_is_filled(done: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(done, place)
    shutil.rmtree(place / "output" / "public")
    (place / "output" / "public").mkdir()
    pipeline.run(load_config(place / "run.toml"), workers=1)
    assert content(place / "output" / "public") == content(done / "output" / "public")


def test_a_release_without_a_ledger_is_as_safe(done: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    shutil.copy(done / "table.parquet", place)
    (place / "run.toml").write_text(TOML.split("[ledger]")[0])
    config = load_config(place / "run.toml")
    public = pipeline.run(config, workers=1).public
    assert json.loads((public / "manifest.json").read_text())["ledger"] is None
    shutil.rmtree(public)
    record = public.parent / "internal" / "draw.json"
    data = bytearray(record.read_bytes())
    data[100] ^= 1
    record.write_bytes(data)
    with pytest.raises(DataError, match="not what was written"):
        pipeline.run(config, workers=1)
    assert not public.exists()
