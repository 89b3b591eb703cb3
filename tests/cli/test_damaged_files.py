"""Files that are damaged, or none, in every place where a command takes one: an error of ours in one line, at once."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command import topdown_command
from support.ends import must_end

TABLE = """nation,state,county,name,adults,children
US,01,01001,Autauga,10,1
US,01,01003,Baldwin,20,2
US,02,02001,Anchorage,0,4
"""
DISTRICTS = "unit,district\n01001,East\n01003,West\n02001,East\n"
RUN = """
[input]
path = "{table}"
cells = ["adults", "children"]
[geography]
levels = ["nation", "state", "county"]
{units}
[privacy]
epsilon = 1.0
[projection]
cross_check = false
"""
WHOLE = gzip.compress(TABLE.encode())


def loop(path: Path) -> None:
    path.symlink_to(path)


def parquet(of: Callable[[str], object]) -> Callable[[Path], None]:
    """Writes a table whose counties are values of another type."""

    def write(path: Path) -> None:
        frame = pd.DataFrame(
            [row.split(",") for row in TABLE.splitlines()[1:]], columns=TABLE.split("\n")[0].split(",")
        )
        table = pa.Table.from_pandas(frame)
        place = table.column_names.index("county")
        pq.write_table(table.set_column(place, "county", pa.array([of(one) for one in frame["county"]])), path)

    return write


def cut(path: Path) -> None:
    parquet(str)(path)
    path.write_bytes(path.read_bytes()[:-9])


KINDS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "latin-1": ("csv", lambda path: path.write_bytes(TABLE.replace("Baldwin", "Doña Ana").encode("latin-1"))),
    "UTF-16": ("csv", lambda path: path.write_bytes(TABLE.encode("utf-16"))),
    "UTF-16 without a mark": ("csv", lambda path: path.write_bytes(TABLE.encode("utf-16-le"))),
    "zero bytes": ("csv", lambda path: path.write_bytes(bytes(1000))),
    "empty": ("csv", lambda path: path.write_bytes(b"")),
    "a folder": ("csv", Path.mkdir),
    "a pipe": ("csv", os.mkfifo),
    "a pipe of redistricting data": ("pl", os.mkfifo),
    "a pipe of Parquet": ("parquet", os.mkfifo),
    "a link to a device": ("csv", lambda path: path.symlink_to("/dev/zero")),
    "a link to a device of redistricting data": ("pl", lambda path: path.symlink_to("/dev/zero")),
    "a loop of links": ("csv", loop),
    "nothing": ("csv", lambda path: None),
    "gzip cut off": ("csv.gz", lambda path: path.write_bytes(WHOLE[:-10])),
    "gzip cut in its head": ("csv.gz", lambda path: path.write_bytes(WHOLE[:5])),
    "gzip with another body": ("csv.gz", lambda path: path.write_bytes(WHOLE[:12] + b"\xff" * 20 + WHOLE[32:])),
    "gzip by name alone": ("csv.gz", lambda path: path.write_bytes(TABLE.encode())),
    "gzip of another encoding": ("csv.gz", lambda path: path.write_bytes(gzip.compress(b"\xff\xfe\x00" * 50))),
    "an empty gzip": ("csv.gz", lambda path: path.write_bytes(b"")),
    "Parquet cut off": ("parquet", cut),
    "Parquet of lists": ("parquet", parquet(lambda one: [one])),
    "Parquet of maps": ("parquet", parquet(lambda one: {"a": one})),
    "Parquet by name alone": ("parquet", lambda path: path.write_bytes(TABLE.encode())),
    "a workbook by name alone": ("xlsx", lambda path: path.write_bytes(TABLE.encode())),
}
PLACES: dict[str, Callable[[str], list[str]]] = {
    "init": lambda name: ["init", name, "-o", "first.toml"],
    "check": lambda name: ["check", settings(name)],
    "run": lambda name: ["run", settings(name), "-o", "out"],
    "run, units": lambda name: ["run", settings("table.csv", f'units = "{name}"'), "-o", "out"],
    "statistic": lambda name: [
        "statistic", name, "--column", "adults", "--bounds", "0:30", "--epsilon", "1", "--output", "out",
    ],
    "aggregate": lambda name: ["aggregate", "release", "--by", name, "-o", "out.csv"],
    "query": lambda name: ["query", "release", "--regions", name],
    "export": lambda name: ["export", "release", "--format", "geoparquet", "--geometry", name, "-o", "out"],
}  # fmt: skip


def settings(table: str, units: str = "") -> str:
    Path("run.toml").write_text(RUN.format(table=table, units=units))
    return "run.toml"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with whole tables and a release."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "table.csv").write_text(TABLE)
    (folder / "units.csv").write_text("".join(",".join(row.split(",")[:3]) + "\n" for row in TABLE.splitlines()))
    (folder / "districts.csv").write_text(DISTRICTS)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        assert topdown_command("run", settings("table.csv"), "-o", "made", "--quiet") == 0
        shutil.move("made/public", "release")
        shutil.rmtree("made")
    return folder


def said(arguments: list[str]) -> tuple[int, str, str]:
    """The exit code of a command, what it printed, and what it said on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with must_end(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return topdown_command(*arguments), out.getvalue(), err.getvalue()


@pytest.mark.parametrize("place", [place for place in PLACES if not place.startswith("export")])
def test_a_sound_file_is_taken(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    sound = {"aggregate": "districts.csv", "query": "districts.csv", "run, units": "units.csv"}
    code, _, err = said(PLACES[place](sound.get(place, "table.csv")))
    assert code == 0, err


@pytest.mark.system
@pytest.mark.parametrize(
    ("place", "kind"),
    # A statistic of another column does not read the counties; init reads other encodings, and says which.
    [
        (place, kind)
        for place in PLACES
        for kind in KINDS
        if (place != "statistic" or not kind.startswith("Parquet of"))
        and (place != "init" or kind not in ("latin-1", "UTF-16"))
    ],
)
def test_a_damaged_file_is_refused_in_one_line(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, place: str
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    suffix, make = KINDS[kind]
    name = f"damaged.{suffix}"
    make(Path(name))
    before = {*os.listdir(), "run.toml"}
    code, _, err = said(PLACES[place](name))
    assert code in (2, 3), err
    lines = [line for line in err.splitlines() if not re.match(r"(memory|rows|read|warning)", line)]
    assert len(lines) == 1, err
    assert re.match(r"error: .*(damaged|county)", lines[0])
    assert set(os.listdir()) <= before
