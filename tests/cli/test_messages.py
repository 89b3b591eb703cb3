"""Whatever a table looks like, no count that it holds reaches standard output or standard error."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command import topdown_command

QUICK, LONG = 200, 6_000
"""Mangled tables in the quick suite and in the long one."""

LEVELS = """
[input]
path = "TABLE"
cells = ["adults", "children"]
[geography]
levels = ["nation", "state", "county"]
names = "name"
[privacy]
epsilon = 1.0
[projection]
cross_check = false
"""
WIDTHS = LEVELS.replace('levels = ["nation", "state", "county"]', "widths = { state = 2, county = 5 }").replace(
    "[geography]", 'geoid = "county"\n[geography]'
)
HEADER = ["nation", "state", "county", "name", "adults", "children"]
PLACES = ["Autauga", "Baldwin", "Doña Ana", "Loving", "Kings", "Queens"]


def secrets(rng: random.Random) -> list[list[str]]:
    """Rows of a sound table whose counts are numbers of seven digits that stand nowhere else."""
    rows = []
    for k, place in enumerate(PLACES):
        state = f"{1 + 47 * (k % 2):02}"
        rows.append(["US", state, f"{state}{2 * k + 1:03}", place, *(str(rng.randrange(10**6, 10**7)) for _ in "ab")])
    return rows


def says(*arguments: object) -> tuple[int, str, str]:
    """The exit code of `topdown ARGUMENTS`, its standard output and its standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = topdown_command(*arguments)
    return code, out.getvalue(), err.getvalue()


def require_discreet(code: int, out: str, err: str, hidden: list[str]) -> None:
    """One message, printable and short, without any of the numbers that are ``hidden``, however they are written."""
    assert code in {0, 2, 3, 4, 5}, err
    assert all(c.isprintable() or c == "\n" for c in out + err), err
    assert err.count("\n") == (code != 0), err
    assert len(err) < 900, err
    said = unicodedata.normalize("NFKC", out + err)
    for text in (said, re.sub(r"[\s,.'_’]", "", said)):
        for number in hidden:
            assert number not in text, err


SPELLINGS: list[Callable[[str], str]] = [
    lambda n: f"{int(n):,}",
    lambda n: f'"{int(n):,}"',
    lambda n: f"{int(n):,}".replace(",", " "),
    lambda n: f"{int(n):,}".replace(",", "."),
    lambda n: f"{int(n):,}".replace(",", "'"),
    lambda n: f"{int(n):_}",
    lambda n: f"-{n}",
    lambda n: f"{n}.5",
    lambda n: f"{n[0]}.{n[1:]}e6",
    lambda n: f"{n} people",
    lambda n: f"n={n}",
    lambda n: f"€{n}",
    lambda n: f"'{n}",
    lambda n: f'"{n}',
    lambda n: f"x{n}",
    lambda n: f"{n}\x1b[31m",
    lambda n: f"{n}" * 40,
    lambda n: "".join(chr(0xFF10 + int(c)) for c in n),
    lambda n: f"\u202e{n}",
    lambda n: f" {n}\u00a0",
]


def mangled(rng: random.Random, rows: list[list[str]]) -> bytes:
    """The table as text, after one to three things that happen to tables."""
    table = [list(HEADER), *(list(row) for row in rows)]
    separator, end, encoding, finish = ",", "\n", "utf-8", []

    def row() -> list[str]:
        return rng.choice([r for r in table if r])

    for _ in range(rng.randint(1, 3)):
        match rng.randrange(16):
            case 0:
                table = table[1:] or table
            case 1:
                one, k = table[0], rng.randrange(len(table[0]))
                one[k] = f'"{one[k]}'
            case 2:
                one = row()
                k = rng.randrange(len(one))
                one[k] = f'"{one[k]}'
            case 3:
                separator = rng.choice([";", "\t", " ", "|", ", "])
            case 4:
                one = row()
                one[:] = [rng.choice([";", "\t", " ", "", ","]).join(one)]
            case 5:
                one = row()
                one.pop(rng.randrange(len(one)))
            case 6:  # shifted to the left, and as long as the others
                one = row()
                one.pop(rng.randrange(len(one)))
                one.append("")
            case 7:  # shifted to the right, and as long as the others
                one = row()
                one.insert(rng.randrange(len(one)), rng.choice(["", "x", "0"]))
                one.pop()
            case 8:
                names = table[0]
                names[:] = rng.sample(names, len(names))
            case 9:
                one = row()
                k = rng.randrange(len(one))
                one[k] = rng.choice(SPELLINGS)(one[k]) if one[k].isdigit() else f"{one[k]}\x1b]0;x\x07"
            case 10:
                encoding = rng.choice(["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
            case 11:
                end = rng.choice(["\r", "\r\n", "\n\n", " ", "", "\0", "\u2028", "\x85"])
            case 12:
                table = rng.sample(table, rng.randint(1, len(table)))
            case 13:
                spell = rng.choice(SPELLINGS)
                for one in table:
                    one[:] = [spell(x) if x.isdigit() and len(x) == 7 else x for x in one]
            case 14:
                table = [list(column) for column in zip(*(r + [""] * (9 - len(r)) for r in table), strict=True)]
            case _:
                finish.append(rng.choice(["cut", "byte", "twice", "quote", "json"]))
    text = json.dumps(table) if "json" in finish else end.join(separator.join(r) for r in table) + end
    data = bytearray(text.encode(encoding, errors="replace"))
    for step in finish:
        place = rng.randrange(max(1, len(data)))
        if step == "cut":
            del data[place:]
        elif step == "byte":
            data[place : place + 1] = rng.choice([b"\xff", b"\0", b"\x1b[2J", b'"', b"\n", b","])
        elif step == "quote":
            data[place:place] = b'"'
        elif step == "twice":
            data[:] = bytes(data) * 2
    return bytes(data)


@pytest.mark.system
@pytest.mark.parametrize("cases", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])
def test_no_count_of_a_mangled_table_is_said(tmp_path: Path, cases: int) -> None:
    codes = set()
    for seed in range(cases):
        rng = random.Random(seed)
        rows = secrets(rng)
        data = mangled(rng, rows)
        name = rng.choice(
            ["table.csv", "table.csv", "table.csv.gz", "table.parquet"] if seed % 20 == 0 else ["table.csv"]
        )
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        (tmp_path / "run.toml").write_text(rng.choice([LEVELS, WIDTHS]).replace("TABLE", name))
        output = tmp_path / f"out{seed}"
        # Eight rounds of one are worth more than two: a run reads as `check` does, and then goes on.
        command = ["run", tmp_path / "run.toml", "-o", output] if seed % 8 == 0 else ["check", tmp_path / "run.toml"]
        code, out, err = says(*command)
        codes.add(code)
        require_discreet(code, out, err, [number for row in rows for number in row[4:]])
    assert {0, 3} <= codes


COLUMNS: dict[str, Callable[[list[int]], pa.Array]] = {
    "text": lambda v: pa.array([f"{x} people" for x in v]),
    "thousands": lambda v: pa.array([f"{x:,}.5" for x in v]),
    "view": lambda v: pa.array([f"{x} people" for x in v]).cast(pa.string_view()),
    "bytes": lambda v: pa.array([str(x).encode() for x in v]),
    "no UTF-8": lambda v: pa.array([str(x).encode() + b"\xff" for x in v], pa.binary()).view(pa.string()),
    "negative": lambda v: pa.array([-x for x in v]),
    "fraction": lambda v: pa.array([x + 0.5 for x in v]),
    "float 32": lambda v: pa.array([x + 0.5 for x in v], pa.float32()),
    "decimal": lambda v: pa.array(v, pa.decimal128(30, 0)).cast(pa.decimal128(38, 3)),
    "decimal fraction": lambda v: pa.array([f"{x}.25" for x in v]).cast(pa.decimal128(38, 3)),
    "duration": lambda v: pa.array(v, pa.duration("s")),
    "time": lambda v: pa.array(v, pa.timestamp("s")),
    "list": lambda v: pa.array([[x] for x in v]),
    "struct": lambda v: pa.array([{f"{x}": x for x in v}] * len(v)),
    "map": lambda v: pa.array([[(str(x), x)] for x in v], pa.map_(pa.string(), pa.int64())),
    "dictionary": lambda v: pa.array([f"{x}?" for x in v]).dictionary_encode(),
    "dictionary of numbers": lambda v: pa.array([-x for x in v]).dictionary_encode(),
    "missing": lambda v: pa.array([None, *v[1:]]),
    "true": lambda v: pa.array([x > 0 for x in v]),
}


@pytest.mark.system
@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("place", ["adults", "county", "state", "name", "where"])
def test_no_count_of_a_column_of_another_type_is_said(tmp_path: Path, kind: str, place: str) -> None:
    rows = secrets(random.Random(1))
    numbers = [int(row[4]) for row in rows]
    columns = {title: pa.array([row[k] for row in rows]) for k, title in enumerate(HEADER)}
    columns["where"] = pa.array(["x"] * len(rows))
    columns[place] = COLUMNS[kind](numbers)
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    for config in (LEVELS, WIDTHS):
        text = config.replace("TABLE", "table.parquet").replace("[input]", '[input]\nwhere = { where = "x" }')
        (tmp_path / "run.toml").write_text(text)
        code, out, err = says("check", tmp_path / "run.toml")
        require_discreet(code, out, err, [str(n) for n in numbers])


@pytest.mark.parametrize("config", [LEVELS, WIDTHS], ids=["levels", "widths"])
@pytest.mark.parametrize("wanted", ["county", "adults"])
def test_a_header_that_swallowed_the_table_is_not_said(tmp_path: Path, config: str, wanted: str) -> None:
    """A quote in the header that is not closed makes one name of the rest of the file."""
    body = "".join(f"US,01,01{k:03},Autauga,{7_000_000 + k},{8_000_000 + k}\n" for k in range(3_000))
    header = ",".join(HEADER).replace(wanted, f'"{wanted}')
    (tmp_path / "table.csv").write_text(f"{header}\n{body}")
    (tmp_path / "run.toml").write_text(config.replace("TABLE", "table.csv"))
    code, out, err = says("check", tmp_path / "run.toml")
    require_discreet(code, out, err, [str(7_000_000 + k) for k in range(3_000)])
    assert code == 3
    assert "quote" in err


def test_the_first_row_of_a_table_without_a_header_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("US,01,01001,Autauga,1234567,8912345\nUS,01,01003,Baldwin,7654321,98\n")
    (tmp_path / "run.toml").write_text(LEVELS.replace("TABLE", "table.csv"))
    code, out, err = says("check", tmp_path / "run.toml")
    require_discreet(code, out, err, ["1234567", "8912345", "01001"])
    assert "it has 'US', 'Autauga', and 4 whose names do not look like names; is its first line a header" in err


@pytest.mark.parametrize("file", ["run.toml", "map.json", "ledger.db"])
def test_a_table_in_the_place_of_another_file_is_not_said(tmp_path: Path, file: str) -> None:
    rows = secrets(random.Random(2))
    (tmp_path / "table.csv").write_text("\n".join(",".join(row) for row in [HEADER, *rows]))
    extra = (
        '[study]\ngeometry = "map.json"\n' if file == "map.json" else '[ledger]\npath = "ledger.db"\ndataset = "x"\n'
    )
    (tmp_path / "run.toml").write_text(LEVELS.replace("TABLE", "table.csv") + extra)
    for number in (
        rows[0][4],
        f'{rows[0][4]} = "{rows[0][5]}"',
        ",".join(rows[0]),
        json.dumps(rows),
        f"[[[{rows[0][4]}",
    ):
        (tmp_path / file).write_text(number)
        command = "study" if file == "map.json" else "run"
        code, out, err = says(command, tmp_path / "run.toml", "-o", tmp_path / "out")
        assert code in {2, 3, 5}
        require_discreet(code, out, err, [x for row in rows for x in row[4:]])


def marked(err: str) -> int:
    """How many characters of the input are in a message, where all of the input is of one rare letter."""
    return err.count("ж")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('path = "TABLE"', 'path = "TABLE"\nwhere = { NAME = "NAME" }'),
        ('"adults"', '"NAME"'),
        ('"adults", "children"', "LIST"),
        ('["nation", "state", "county"]', '["NAME", "NAME2"]'),
        ('["nation", "state", "county"]', "LIST"),
        ('names = "name"', 'names = "NAME"'),
        ('names = "name"', "names = { NAME = 'NAME' }"),
        ('names = "name"', 'separator = "NAME"\nroot = "NAME"'),
        ("epsilon = 1.0", 'epsilon = "NAME"'),
        ("epsilon = 1.0", 'mechanism = "NAME"'),
        ("epsilon = 1.0", 'epsilon = 1\nneighbours = "NAME"'),
        ("epsilon = 1.0", 'epsilon = 1\nunit = "NAME"'),
        ("epsilon = 1.0", "epsilon = 1\ninvariants = LIST"),
        ("epsilon = 1.0", "epsilon = 1\nshares = MAP"),
        ("epsilon = 1.0", 'epsilon = 1\nshares = "NAME"'),
        ("epsilon = 1.0", "epsilon = 1\nNAME = LIST"),
        ("cross_check = false", 'solver = "NAME"'),
        ("cross_check = false", 'method = "NAME"\nweights = "NAME"\ncross_check = "NAME"\nx = "NAME"'),
        ("[projection]", "[noise]\nbounds = MAP\n[projection]"),
        ("[projection]", '[noise]\nbounds = "NAME"\nupper = MAP\n[projection]'),
        ("[projection]", "[NAME]\n[projection]"),
        ("[projection]", "[schema]\nNAME = LIST\n[projection]"),
        ("[projection]", '[ledger]\npath = "gone.db"\ndataset = "NAME"\n[projection]'),
        ("[projection]", "[study]\nmethods = LIST\n[projection]"),
        ("[projection]", "[study]\ngroups = LIST\n[projection]"),
        ("[projection]", '[study]\nfund = "NAME"\n[projection]'),
        ("[projection]", "[study]\nvariant = [{ name = 'NAME', bounds = 'NAME' }]\n[projection]"),
        ("[projection]", "[study]\nthresholds = [{ cell = 'NAME', cutoff = 1, among = LIST }]\n[projection]"),
    ],
)
@pytest.mark.parametrize("letter", ["ж", "ж\\u001b[31m\\n\\u202e"])
def test_no_message_holds_more_than_200_characters_of_its_input(
    tmp_path: Path, old: str, new: str, letter: str
) -> None:
    name = letter * 3_000
    many = ", ".join(f'"{k}{name}"' for k in range(20))
    change = new.replace("LIST", f"[{many}]").replace(
        "MAP", "{ " + ", ".join(f'"{k}{name}" = "{name}"' for k in range(20)) + " }"
    )
    change = re.sub(r"^(\[?)NAME", lambda found: f'{found[1]}"{name}"', change, flags=re.M).replace("NAME", name)
    change = change.replace("'", '"')
    assert old in LEVELS
    rows = secrets(random.Random(3))
    (tmp_path / "table.csv").write_text("\n".join(",".join(row) for row in [HEADER, *rows]))
    (tmp_path / "run.toml").write_text(LEVELS.replace(old, change).replace("TABLE", "table.csv"))
    command = "study" if "[study]" in new else "run"
    code, out, err = says(command, tmp_path / "run.toml", "-o", tmp_path / "out", "-q")
    require_discreet(code, out, err, [])
    assert code != 0 or "unit" in new or "root" in new
    assert marked(err) <= 200, err


@pytest.mark.system
def test_no_message_about_a_table_holds_more_than_200_characters_of_it(tmp_path: Path) -> None:
    name = "ж" * 5_000
    sound = [HEADER, *secrets(random.Random(4))]
    for row in (0, 1, 4):
        for column in range(len(HEADER)):
            for text in (name, f"{name}\x1b", f"1{name}"):
                table = [list(one) for one in sound]
                table[row][column] = text
                (tmp_path / "table.csv").write_text("\n".join(",".join(one) for one in table))
                for config in (LEVELS, WIDTHS):
                    (tmp_path / "run.toml").write_text(config.replace("TABLE", "table.csv"))
                    code, out, err = says("check", tmp_path / "run.toml")
                    require_discreet(code, out, err, [x for one in sound[1:] for x in one[4:]])
                    assert marked(err) <= 200, err
