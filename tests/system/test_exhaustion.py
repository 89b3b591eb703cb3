"""Small files that ask for much memory or time: refused before anything is allocated, with a code of ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from topdown.config import load_config
from topdown.machine.files import file_digest
from topdown.pipeline import run as pipeline

MEBIBYTES = 700
"""What a command that refuses its input may have taken at its largest: its libraries are some 300."""
SECONDS = 60
"""After which it is taken to have no end, however busy the machine is."""

TABLE = "county,age,n\n01001,a0,3\n01003,a1,4\n02001,a2,5\n"
TOML = """
[input]
path = "table.csv"
rows = "long"
geoid = "county"
count = "n"
[schema]
{schema}
[geography]
widths = {{ state = 2, county = 5 }}
[privacy]
mechanism = "discrete-gaussian"
rho = 1
[projection]
cross_check = false
"""
SMALL = 'age = ["a0", "a1", "a2"]'


def product(*sizes: int) -> str:
    """A schema of that many categories per attribute; the table has the first of them."""
    return "\n".join(
        f"{'age' if not k else f'other{k}'} = {json.dumps([f'a{i}' for i in range(size)])}"
        for k, size in enumerate(sizes)
    )


# The largest memory of this process alone: what its parent had when it was started does not count.
COMMAND = """
import atexit, re
def tell():
    with open("/proc/self/status") as status, open("largest", "w") as told:
        told.write(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1])
atexit.register(tell)
from topdown.entry import main
main()
"""


def ended(folder: Path, *arguments: str) -> tuple[int, float, str]:
    """The exit code of ``topdown ARGUMENTS``, its largest memory in MiB, and what it said on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    return done.returncode, int((folder / "largest").read_text()) / 1024, done.stderr


def require_refused(folder: Path, *arguments: str, says: str) -> None:
    code, mebibytes, said = ended(folder, *arguments)
    assert code in (2, 3), said
    assert re.search(says, said), said
    assert len(said.splitlines()) == 1
    assert len(said) < 2_000
    assert mebibytes < MEBIBYTES


@pytest.mark.parametrize(
    ("sizes", "command", "says"),
    [
        ((300, 300, 300), "check", "cells, and a release has at most 4,194,304; leave an attribute out"),
        ((120, 120, 120), "run", "a schema of 1,728,000 cells has too many for tables of them"),
        ((10,) * 7, "run", "cells, and a release has at most 4,194,304; leave an attribute out"),
    ],
    ids=str,
)
def test_schemas_of_more_cells_than_memory_holds(
    tmp_path: Path, sizes: tuple[int, ...], command: str, says: str
) -> None:
    names = ["age", *(f"other{k}" for k in range(1, len(sizes)))]
    rows = [f"{county},{','.join(['a0'] * len(names))},3" for county in ("01001", "01003", "02001")]
    (tmp_path / "table.csv").write_text("\n".join([",".join(["county", *names, "n"]), *rows, ""]))
    (tmp_path / "run.toml").write_text(TOML.format(schema=product(*sizes)))
    require_refused(tmp_path, command, "run.toml", says=says)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "table.csv").write_text(TABLE)
    (folder / "run.toml").write_text(TOML.format(schema=SMALL))
    return pipeline.run(load_config(folder / "run.toml"), folder / "out", workers=1).public


@pytest.fixture
def public(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "public"))


def change(public: Path, **fields: Any) -> None:
    path = public / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def many_cells(public: Path) -> None:
    names = [f"a{k}" for k in range(500)]
    change(public, schema={"attributes": dict.fromkeys(("age", "sex", "race"), names), "recodes": {}})


def much_unknown(public: Path) -> None:
    change(public, other="x" * (60 << 20))


def deep(public: Path) -> None:
    (public / "manifest.json").write_text("[" * 2_000_000)


def geography_of(columns: dict[str, Any]) -> Callable[[Path], None]:
    """Writes another table of units, as the manifest describes it."""

    def write(public: Path) -> None:
        path = public / "geography.parquet"
        pq.write_table(pa.table(columns), path, compression="zstd")
        files = json.loads((public / "manifest.json").read_text())["files"]
        files[path.name] = {"sha256": file_digest(path), "bytes": path.stat().st_size}
        change(public, files=files)

    return write


def many_units(public: Path) -> None:
    count = 2 * 10**7
    known = pq.read_table(public / "geography.parquet")
    geography_of({name: pa.repeat(known[name][0], count) for name in known.column_names})(public)


def long_names(public: Path) -> None:
    known = pq.read_table(public / "geography.parquet")
    at = known.column_names.index("name") if "name" in known.column_names else known.column_names.index("geoid")
    long = pa.array(["x" * (50 << 20)] * known.num_rows)
    table = known.set_column(at, known.column_names[at], long)
    geography_of({name: table[name] for name in table.column_names})(public)


@pytest.mark.system
@pytest.mark.parametrize("change", [many_cells, much_unknown, deep, many_units, long_names])
def test_releases_that_are_small_files_of_much(public: Path, change: Callable[[Path], None]) -> None:
    change(public)
    assert sum(path.stat().st_size for path in public.iterdir()) < 80 << 20
    (public.parent / "again.toml").write_text('[measurements]\npath = "public"\n')
    for arguments in (["verify", "public"], ["project", "again.toml"]):
        require_refused(public.parent, *arguments, says="error: ")
