"""Every wrong setting, path, permission and column ends in one of our errors, and none in another exception."""

from __future__ import annotations

import copy
import datetime
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import RUN_TOML
from topdown.config import load_any, load_config, load_study
from topdown.errors import BudgetError, ConfigError, DataError, TopdownError
from topdown.machine.files import file_digest
from topdown.measurements.journal import Journal
from topdown.microdata.leaves import read_leaves
from topdown.microdata.written_records import synthesize
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.pipeline.study import study
from topdown.privacy.ledger import Ledger
from topdown.privacy.ledger_file import _canonical, _hash, transaction

# -- settings ---------------------------------------------------------------------------------------------------------

BASE: dict[str, Any] = {
    "title": "t",
    "input": {"path": "table.csv", "cells": ["adults", "children"], "geoid": "county", "where": {"nation": "US"}},
    "geography": {"levels": ["nation", "state", "county"], "names": {"county": "name"}, "units": "units.csv"},
    "privacy": {
        "mechanism": "geometric",
        "epsilon": 1.0,
        "shares": {"nation": 0.25, "state": 0.25, "county": 0.5},
        "neighbours": "add-remove",
        "invariants": [],
        "unit": "person",
        "grid_bits": 10,
    },
    "noise": {"bounds": {"county": "truncated"}, "upper": {"county": 100}, "calibration": "true-epsilon"},
    "projection": {"method": "gls-top-down", "weights": "variance", "cross_check": False, "solver": "OSQP"},
    "output": {"directory": "out", "csv": True, "microdata": True, "microdata_order": "sorted"},
    "schema": {"age": ["adults", "children"]},
    "ledger": {"path": "ledger.db", "dataset": "x"},
}
WIDTHS = {"widths": {"state": 2, "county": 5}, "root": "US", "root_level": "nation", "names": "name"}
STUDY: dict[str, Any] = {
    "replicates": 4,
    "seed": 1,
    "methods": ["raw", "gls"],
    "workers": 1,
    "reference": "noise",
    "groups": ["state"],
    "fund": "adults",
    "thresholds": [{"cell": "adults", "cutoff": 1.0, "among": ["adults", "children"]}],
    "geometry": "map.json",
    "variant": [{"name": "b", "bounds": "truncated", "methods": ["raw"]}],
    "size_classes": [1, 10],
}
WRONG: list[Any] = [
    0, -1, 1, 3, 2**53, 2**63 - 1, 10**30, 0.0, 1.5, -0.5, 1e-320, 1e300, float("inf"), float("-inf"), float("nan"),
    True, False, "", "x", " ", "1/0", "1/3", "0", "-1", "nan", "inf", "1e999999999", "1e-5000", "9" * 400, "\0", "a\nb",
    "\x1b[31m", "\u202e", "/", "..", ".", "/dev/null", "county", "adults", "nation", "name", "US", "cell", "geoid",
    "value", [], ["adults"], ["county"], ["x", "x"], [1], [[]], [""], [{}], {}, {"x": "y"}, {"county": "name"},
    {"county": 1}, {"county": {"detailed": 1}}, {"county": {}}, {"": ""}, {"nation": "1"}, datetime.date(2020, 1, 1),
    ["nation", "county"], {"state": 3, "county": 2}, {"county": 10**30}, {"county": 5}, {"adults": "10"},
]  # fmt: skip


def as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        return json.dumps(value).replace("\\u001b", "\\u001B")
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {as_toml(v)}" for k, v in value.items()) + "}"
    return repr(value)


def keys(section: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(section, dict):
        for key, value in section.items():
            yield (*above, key)
            yield from keys(value, (*above, key))


def changed(settings: dict[str, Any], key: tuple[str, ...], value: Any) -> str:
    settings = copy.deepcopy(settings)
    section = settings
    for part in key[:-1]:
        section = section[part]
    section[key[-1]] = value
    return "\n".join(f"{name} = {as_toml(section)}" for name, section in settings.items())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = "nation,state,county,name,adults,children\nUS,01,01001,A,10,1\nUS,01,01003,B,20,2\nUS,02,02001,C,0,4\n"
    (tmp_path / "table.csv").write_text(table)
    (tmp_path / "units.csv").write_text("\n".join(line.rsplit(",", 2)[0] for line in table.splitlines()))
    square = {"type": "Polygon", "coordinates": [[[0, 0], [0, 1], [1, 1], [0, 0]]]}
    features = [{"type": "Feature", "id": "01001", "geometry": square}]
    (tmp_path / "map.json").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    Ledger(tmp_path / "ledger.db").open_account("x", 10**6)
    return tmp_path


def require_message(error: TopdownError) -> None:
    said = str(error)
    assert said.isprintable()
    assert 0 < len(said) < 900
    assert error.exit_code in {2, 3, 4, 5}


@pytest.mark.system
@pytest.mark.parametrize("cases", [150, pytest.param(None, marks=pytest.mark.slow)], ids=["quick", "long"])
@pytest.mark.parametrize("kind", ["levels", "widths"])
def test_every_setting_with_wrong_values_is_refused_in_words(folder: Path, kind: str, cases: int | None) -> None:
    base = BASE if kind == "levels" else {**BASE, "geography": WIDTHS}
    every = [(key, value) for key in keys(base) for value in WRONG]
    chosen = every if cases is None else random.Random(kind).sample(every, cases)
    refused = 0
    for key, value in [((), None), *chosen]:
        (folder / "run.toml").write_text(changed(base, key or ("title",), value if key else "t"))
        try:
            draw.check(load_any(folder / "run.toml"))
        except TopdownError as error:
            require_message(error)
            refused += 1
            assert key, "the configuration that is changed below is sound"
    assert refused > len(chosen) / 2


@pytest.mark.system
def test_settings_of_a_study_with_wrong_values_are_refused_in_words(folder: Path) -> None:
    base = {**{k: v for k, v in BASE.items() if k not in {"ledger", "noise"}}, "study": STUDY}
    every = [(key, value) for key in keys(base) if key[0] == "study" for value in WRONG]
    for key, value in random.Random(1).sample(every, 100):
        (folder / "run.toml").write_text(changed(base, key, value))
        try:
            config = load_study(folder / "run.toml")
            # To simulate is what other tests do; here the settings that need the data are looked at.
            if config.study.replicates < 10 and key != ("study", "seed"):
                config = config.model_copy(
                    update={"study": config.study.model_copy(update={"workers": 1, "variant": []})}
                )
                study(config, folder / f"out{random.random()}", replicates=1)
        except TopdownError as error:
            require_message(error)


# -- columns ----------------------------------------------------------------------------------------------------------


class _Extension(pa.ExtensionType):
    def __init__(self, storage: Any) -> None:
        super().__init__(storage, "test.extension")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> _Extension:
        return cls(storage)


CODES, WHOLE = ["01001", "01003", "02001"], [10, 20, 30]
SAME = {
    "string view": lambda v: pa.array([str(x) for x in v], pa.string_view()),
    "large string": lambda v: pa.array([str(x) for x in v], pa.large_string()),
    "chunks": lambda v: pa.chunked_array([v[:1], v[1:]]),
    "chunks of views": lambda v: pa.chunked_array([pa.array([str(x)], pa.string_view()) for x in v]),
    "dictionary": lambda v: pa.array(v).dictionary_encode(),
    "dictionary of views": lambda v: pa.DictionaryArray.from_arrays([0, 1, 2], pa.array(map(str, v), pa.string_view())),
    "run ends": lambda v: pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(v)),
    "chunks of run ends": lambda v: pa.chunked_array(
        [pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(v))]
    ),
    "pandas category": lambda v: pd.Series(v).astype("category"),
    "pandas of Arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.array(v).type)),
}
OTHER: dict[str, Callable[[], Any]] = {
    "binary view": lambda: pa.array([b"1"] * 3, pa.binary_view()),
    "fixed binary": lambda: pa.array([b"12"] * 3, pa.binary(2)),
    "duration": lambda: pa.array(WHOLE, pa.duration("ns")),
    "dictionary of durations": lambda: pa.array(WHOLE, pa.duration("s")).dictionary_encode(),
    "time": lambda: pa.array(WHOLE, pa.time64("ns")),
    "date": lambda: pa.array(WHOLE, pa.date32()),
    "interval": lambda: pa.array([pa.MonthDayNano([1, 2, 3])] * 3),
    "negative scale": lambda: pa.array([Decimal(100)] * 3, pa.decimal128(5, -2)),
    "list": lambda: pa.array([[1], [2], [3]]),
    "list view": lambda: pa.array([[1], [2], [3]], pa.list_view(pa.int64())),
    "list of views": lambda: pa.array([["a"], ["b"], ["c"]], pa.list_(pa.string_view())),
    "struct": lambda: pa.array([{"a": 1}] * 3),
    "empty struct": lambda: pa.array([{}] * 3, pa.struct([])),
    "map": lambda: pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    "union": lambda: pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array(WHOLE), pa.array(CODES)]),
    "dictionary of lists": lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([[1], [2]])),
    "extension": lambda: pa.ExtensionArray.from_storage(_Extension(pa.int64()), pa.array(WHOLE)),
    "truth in bytes": lambda: pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 1], pa.int8())),
    "UUID": lambda: pa.array([b"0" * 16] * 3, pa.uuid()),
    "extension of lists": lambda: pa.ExtensionArray.from_storage(
        _Extension(pa.list_(pa.int64())), pa.array([[1], [2], [3]])
    ),
    "null": lambda: pa.nulls(3),
    "no chunk": lambda: pa.chunked_array([], pa.int64()),
    "not UTF-8": lambda: pa.array([b"\xff"] * 3).view(pa.string()),
    "not UTF-8, encoded": lambda: pa.array([b"\xff"] * 3).view(pa.string()).dictionary_encode(),
    "objects": lambda: pd.Series([object()] * 3),
    "lists in pandas": lambda: pd.Series([[1], [2], [3]]),
    "frames in pandas": lambda: pd.Series([pd.Series([1])] * 3, dtype=object),
    "sets in pandas": lambda: pd.Series([{1}] * 3),
    "periods": lambda: pd.Series(pd.period_range("2020", "2022", freq="Y")),
    "complex": lambda: pd.Series([1j] * 3),
    "5,000 digits": lambda: pd.Series([10**5000] * 3, dtype=object),
    "NaT": lambda: pd.Series([pd.NaT] * 3),
    "infinite decimals": lambda: pd.Series([Decimal("Infinity")] * 3),
    "two dimensions": lambda: np.ones((3, 2)),
    "records": lambda: np.zeros(3, dtype=[("a", int)]),
    "one number": lambda: 5,
    "nothing": lambda: None,
}


@pytest.mark.parametrize("kind", SAME)
def test_counts_and_identifiers_are_read_in_every_layout(kind: str) -> None:
    rows = {"nation": ["US"] * 3, "state": ["01", "01", "02"]}
    geography = td.Geography.from_table({**rows, "county": SAME[kind](CODES)}, ["nation", "state", "county"])
    assert geography.identifiers.to_pylist()[3:] == CODES
    table = {"county": SAME[kind](CODES), "n": SAME[kind](WHOLE)}
    counts = td.Counts.from_table(table, geography, geoid="county", cells=["n"])
    assert counts.values[3:, 0].tolist() == WHOLE


@pytest.mark.parametrize("kind", OTHER)
def test_columns_that_hold_something_else_are_refused_in_words(kind: str) -> None:
    rows = {"nation": ["US"] * 3, "state": ["01", "01", "02"], "county": CODES}
    geography = td.Geography.from_table(rows, ["nation", "state", "county"])
    for attempt in (
        lambda: td.Counts.from_table({**rows, "n": OTHER[kind]()}, geography, geoid="county", cells=["n"]),
        lambda: td.Counts.from_table({"n": WHOLE, "county": OTHER[kind]()}, geography, geoid="county", cells=["n"]),
        lambda: td.Geography.from_geoids(OTHER[kind](), {"state": 2, "county": 5}),
    ):
        with pytest.raises(DataError) as error:
            attempt()
        require_message(error.value)


@pytest.mark.parametrize(
    "kind", ["list", "struct", "map", "string view", "binary view", "duration", "list of views", "null"]
)
def test_rows_are_chosen_by_any_column_or_the_column_is_refused(folder: Path, kind: str) -> None:
    values = pa.array(["x"] * 3, pa.string_view()) if kind == "string view" else OTHER[kind]()
    frame = pd.read_csv(folder / "table.csv", dtype=str)
    table = pa.Table.from_pandas(frame).append_column("by", values)
    pq.write_table(table, folder / "table.parquet")
    text = RUN_TOML.replace("table.csv", "table.parquet").replace("[geography]", 'where = { by = "x" }\n[geography]')
    (folder / "run.toml").write_text(text)
    if kind == "string view":
        assert draw.check(load_config(folder / "run.toml")).counts.geography.n_leaves == 3
        return
    with pytest.raises(DataError, match=r"input\.where") as error:
        draw.check(load_config(folder / "run.toml"))
    require_message(error.value)


# -- files and folders ------------------------------------------------------------------------------------------------


def _denied(self: Path, *_: Any, **__: Any) -> Any:
    raise PermissionError(13, "Permission denied", str(self))


@pytest.fixture
def made(toy_run: Path) -> Path:
    """A release that is finished; its configuration."""
    pipeline.run(load_config(toy_run))
    return toy_run


def test_a_public_folder_that_cannot_be_looked_into(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = made.parent / "output" / "public"
    real = os.stat

    def closed(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(f"{public}/"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr("os.stat", closed)
    with pytest.raises(DataError, match=r"public: cannot be read as a release: Permission denied; correct the path"):
        pipeline.run(load_config(made))
    with pytest.raises(DataError, match=r"public: the release cannot be read: Permission denied"):
        read_leaves(public)


@pytest.mark.parametrize("name", ["manifest.json", "release.parquet"])
def test_files_of_a_release_that_cannot_be_opened(made: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    public = made.parent / "output" / "public"
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: (_denied if self.name == name else real)(self, *a, **k))
    with pytest.raises(DataError, match="the release cannot be read: Permission denied"):
        read_leaves(public)


@pytest.mark.parametrize("instead", ["a file", "a loop of links", "a folder with a file"])
def test_something_else_where_the_release_goes(made: Path, instead: str) -> None:
    public = made.parent / "output" / "public"
    shutil.rmtree(public)
    if instead == "a file":
        public.write_text("x")
    elif instead == "a loop of links":
        public.symlink_to("public")
    else:
        public.mkdir()
        (public / "mine.txt").write_text("x")
    with pytest.raises(
        DataError, match=r"cannot be (read as a release|written)|manifest\.json: is missing; move .* away"
    ) as error:
        pipeline.run(load_config(made))
    require_message(error.value)
    with pytest.raises(DataError):
        read_leaves(public)
    if instead == "a folder with a file":
        assert (public / "mine.txt").read_text() == "x"


def test_a_folder_of_the_manifests_name_is_no_release(made: Path) -> None:
    manifest = made.parent / "output" / "public" / "manifest.json"
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(DataError, match=r"manifest\.json: is missing; move .* away and run again"):
        pipeline.run(load_config(made))
    with pytest.raises(DataError, match="is missing, so the release is not complete"):
        read_leaves(manifest.parent)


@pytest.mark.parametrize("what", ["file", "loop", "null", "long", "deep"])
@pytest.mark.parametrize("job", ["run", "study", "synthesize"])
def test_an_output_that_cannot_be_a_folder(toy_run: Path, what: str, job: str) -> None:
    folder = toy_run.parent
    (folder / "file").write_text("x")
    (folder / "loop").symlink_to("loop")
    names = {"null": "a\0b", "long": "x" * 300, "deep": "x/" * 3000}
    output = folder / names.get(what, what)
    jobs = {
        "run": lambda: pipeline.run(load_config(toy_run), output),
        "synthesize": lambda: synthesize(output / "public", output / "microdata"),
        "study": lambda: study(load_study(toy_run), output),
    }
    if job == "study":
        toy_run.write_text(RUN_TOML + "[study]\nreplicates = 1\nworkers = 1\nmethods = ['raw']\n")
    with pytest.raises(TopdownError, match=r"cannot be|is missing|is not UTF-8|is no directory") as error:
        jobs[job]()
    require_message(error.value)
    assert not (folder / "output").exists()


@pytest.mark.parametrize("name", ["errors.parquet", "report.html", "records.parquet"])
def test_a_folder_in_the_place_of_a_study_file(toy_run: Path, name: str) -> None:
    toy_run.write_text(RUN_TOML + "[study]\nreplicates = 2\nworkers = 1\nmethods = ['raw', 'top-down']\n")
    (toy_run.parent / "output" / "internal" / name).mkdir(parents=True)
    with pytest.raises(DataError, match="internal: cannot be written: Is a directory"):
        study(load_study(toy_run))


@pytest.mark.parametrize("name", ["measurements.arrow", "release", "draw.json", "key", "lock"])
def test_a_folder_in_the_place_of_the_record_of_noise(toy_run: Path, name: str) -> None:
    (toy_run.parent / "output" / "internal" / name).mkdir(parents=True)
    Ledger(toy_run.parent / "ledger.db").open_account("x", 4)
    toy_run.write_text(RUN_TOML + '[ledger]\npath = "ledger.db"\ndataset = "x"\n')
    with pytest.raises(TopdownError) as error:
        pipeline.run(load_config(toy_run))
    require_message(error.value)


def test_a_record_of_noise_that_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, "a", "b")
    monkeypatch.setattr(Path, "exists", _denied)
    with pytest.raises(DataError, match=r"the record of the noise cannot be read: Permission denied"):
        journal.read()


def test_names_that_are_not_utf_8_are_refused_before_anything_is_drawn(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "measure", None)
    output = Path(os.fsdecode(os.fsencode(toy_run.parent) + b"/\xff"))
    for attempt in (
        lambda: pipeline.run(load_config(toy_run), output),
        lambda: synthesize(output / "public", output / "microdata"),
    ):
        with pytest.raises(ConfigError, match=r"\\udcff.*: the name is not UTF-8; rename the folder") as error:
            attempt()
        require_message(error.value)
    toy_run.write_text(RUN_TOML + "[study]\nreplicates = 1\n")
    with pytest.raises(ConfigError, match="the name is not UTF-8"):
        study(load_study(toy_run), output)
    output.mkdir()
    (output / "table.parquet").write_bytes(b"")
    (output / "run.toml").write_text(RUN_TOML.replace("table.csv", "table.parquet"))
    with pytest.raises(ConfigError, match="the name is not UTF-8"):
        draw.check(load_config(output / "run.toml"))


# -- a release whose manifest is another's ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: [],
        lambda facts: None,
        lambda facts: "x",
        lambda facts: {},
        lambda facts: {**facts, "levels": []},
        lambda facts: {**facts, "levels": [3]},
        lambda facts: {**facts, "levels": {"a": 1}},
        lambda facts: {**facts, "levels": [{"level": "county"}]},
        lambda facts: {**facts, "levels": [{"level": "county", "nodes": "3"}]},
        lambda facts: {**facts, "levels": [{"level": "county", "nodes": None}]},
        lambda facts: {**facts, "levels": [{"level": "county", "nodes": 3.5}]},
        lambda facts: {**facts, "levels": [{"level": "county", "nodes": 2}]},
        lambda facts: {**facts, "levels": [{"level": 3, "nodes": 3}]},
        lambda facts: {**facts, "levels": [{"level": "tract", "nodes": 3}]},
        lambda facts: {**facts, "cells": []},
        lambda facts: {**facts, "cells": 3},
        lambda facts: {**facts, "cells": [1, 2]},
        lambda facts: {**facts, "cells": [None, None]},
        lambda facts: {**facts, "cells": ["adults"]},
        lambda facts: {**facts, "cells": ["adults", "adults"]},
        lambda facts: {**facts, "cells": ["children", "adults"]},
        lambda facts: {**facts, "cells": [["adults"], ["children"]]},
        lambda facts: {**facts, "fit_for_release": None},
        lambda facts: {**facts, "files": []},
        lambda facts: {**facts, "files": {"release.parquet": []}},
        lambda facts: {**facts, "files": {"release.parquet": {"sha256": 3}}},
        lambda facts: {**facts, "files": {"release.parquet": {"sha256": None}}},
        lambda facts: {**facts, "files": {"release.parquet": {"sha256": "x" * 10**5}}},
    ],
)
def test_a_manifest_that_does_not_agree_is_refused(made: Path, change: Callable[[Any], Any]) -> None:
    public = made.parent / "output" / "public"
    facts = json.loads((public / "manifest.json").read_text())
    (public / "manifest.json").write_text(json.dumps(change(facts)))
    with pytest.raises(DataError) as error:
        read_leaves(public)
    require_message(error.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, "1" * 5000, "\ud800", "NaN"])
def test_a_manifest_that_is_no_json_is_refused(made: Path, text: str) -> None:
    public = made.parent / "output" / "public"
    (public / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DataError, match="is not a release's manifest"):
        read_leaves(public)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.drop_columns("value"),
        lambda t: t.drop_columns("geoid"),
        lambda t: t.set_column(4, "value", pa.array([float("nan")] * t.num_rows)),
        lambda t: t.set_column(4, "value", pa.array([1.5] * t.num_rows)),
        lambda t: t.set_column(4, "value", pa.array(["1"] * t.num_rows)),
        lambda t: t.set_column(4, "value", pa.nulls(t.num_rows, pa.int64())),
        lambda t: t.set_column(4, "value", pa.array([-1] * t.num_rows)),
        lambda t: t.set_column(0, "geoid", pa.array([[1]] * t.num_rows)),
        lambda t: t.set_column(0, "geoid", pa.nulls(t.num_rows, pa.string())),
        lambda t: t.set_column(0, "geoid", pa.array(["01001"] * t.num_rows)),
        lambda t: t.set_column(1, "level", pa.array([{"a": 1}] * t.num_rows)),
        lambda t: t.set_column(3, "cell", pa.array([b"\xff"] * t.num_rows)),
        lambda t: t.set_column(3, "cell", pa.array(["adults"] * t.num_rows)),
        lambda t: t.slice(0, 0),
        lambda t: t.slice(0, t.num_rows - 1),
    ],
)
def test_a_release_that_its_manifest_describes_and_that_is_none(made: Path, change: Callable[[Any], Any]) -> None:
    public = made.parent / "output" / "public"
    pq.write_table(change(pq.read_table(public / "release.parquet")), public / "release.parquet")
    facts = json.loads((public / "manifest.json").read_text())
    facts["files"]["release.parquet"]["sha256"] = file_digest(public / "release.parquet")
    (public / "manifest.json").write_text(json.dumps(facts))
    with pytest.raises(DataError) as error:
        read_leaves(public)
    require_message(error.value)


# -- the ledger -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "total", ["1/0", "nan", "inf", "-1", "0", "1e999999999", "9" * 5000, "9" * 400, "", "x", "0x10", None, [1]]
)
def test_totals_that_are_no_budget(tmp_path: Path, total: Any) -> None:
    with pytest.raises(BudgetError) as error:
        Ledger(tmp_path / "ledger.db").open_account("x", total)
    require_message(error.value)
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize(
    "body",
    [
        {"total": "1/0"},
        {"total": "nan"},
        {"total": "1e999999999"},
        {"total": "9" * 5000},
        {"total": None},
        {"total": [1]},
        {"total": "1"},
        {"total": "1", "currency": "gold", "unit": "person", "neighbours": "add-remove"},
        {"total": "1", "currency": ["epsilon"], "unit": "person", "neighbours": "add-remove"},
        [],
        "x",
        3,
        None,
        [[[[]]]],
    ],
)
def test_records_that_a_ledger_would_not_write(tmp_path: Path, body: Any) -> None:
    """The chain of hashes holds, since whoever wrote the record knew how."""
    path = tmp_path / "ledger.db"
    Ledger(path).open_account("sound", 1)
    with transaction(path) as ledger:
        last, text = ledger.records[-1], _canonical(body)
        mark = _hash(last.hash, 2, "x", "open", "", text)
        row = (2, "x", "open", "", text, last.hash, mark)
        ledger._connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    for attempt in (
        lambda: Ledger(path).account("x"),
        lambda: Ledger(path).reserve("x", "r", td.Plan(epsilon=1).events(["a"])),
    ):
        with pytest.raises(BudgetError) as error:
            attempt()
        require_message(error.value)


@pytest.mark.parametrize("events", [None, 3, [3], [{}], [{"kind": "laplace"}], [{"kind": ["laplace"]}], {"a": 1}, "x"])
def test_reservations_that_a_ledger_would_not_write(tmp_path: Path, events: Any) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).open_account("x", 1)
    with transaction(path) as ledger:
        ledger.append("x", "reserve", "r", {"events": events})
    with pytest.raises(BudgetError) as error:
        Ledger(path).account("x")
    require_message(error.value)
