"""`topdown run` of a schema with too many cells for tables of them, here of one that is called so."""

from __future__ import annotations

import json
import shutil
import weakref
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.command import topdown_command
from support.places import REPOSITORY
from topdown.analysis.page.page_numbers import PageNumbers
from topdown.confidential.measure_asked import AskedMeasurements
from topdown.config import load_config
from topdown.errors import DataError
from topdown.geography.tree import IntArray
from topdown.machine.engines import executor_of
from topdown.measurements.touched import TOUCHED, read_touched
from topdown.pipeline import draw, run
from topdown.privacy.ledger import Ledger
from topdown.projection.check import cross_checks
from topdown.release.manifest import SCHEMA_VERSION
from topdown.workload import Query, schema

LEVELS = ("state", "county", "block")
SHARES = '{ total = "1/12", "sex * adult" = "1/12", race = "1/12", detailed = "1/12" }'
TOML = f"""
title = "Few persons"

[input]
path = "persons.csv"
rows = "records"
geoid = "block"

[geography]
widths = {{ county = 5, block = 9 }}
root_level = "state"
units = "units.csv"

[schema]
sex = ["f", "m"]
age = {[str(k) for k in range(12)]}
race = {[str(k) for k in range(9)]}

[recodes.age.adult]
minor = {[str(k) for k in range(4)]}
adult = {[str(k) for k in range(4, 12)]}

[[zeros]]
age = ["0", "1"]
race = "8"

[privacy]
mechanism = "discrete-gaussian"
rho = 2
neighbours = "substitute"
unit = "person"

[privacy.shares]
state = {SHARES}
county = {SHARES}
block = {SHARES}

[ledger]
path = "ledger.db"
dataset = "persons"

[projection]
method = "top-down"

[output]
directory = "out"
margins = false
tables = ["sex * adult", "race"]
"""


@pytest.fixture(autouse=True)
def _too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MOST_CELLS", 200)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    blocks = [f"44{county:03}{block:04}" for county in range(3) for block in range(1 + 5 * county)]
    people = 700
    frame = pd.DataFrame(
        {
            "block": rng.choice(blocks[1:], people),
            "sex": rng.choice(["f", "m"], people),
            "age": np.minimum(2 + rng.geometric(0.2, people), 11),
            "race": np.minimum(rng.geometric(0.4, people) - 1, 8),
        }
    )
    frame.to_csv(tmp_path / "persons.csv", index=False)
    pd.DataFrame({"block": blocks}).to_csv(tmp_path / "units.csv", index=False)
    (tmp_path / "run.toml").write_text(TOML)
    of = ["--dataset", "persons", "--total", "3", "--currency", "rho", "--neighbours", "substitute"]
    assert topdown_command("ledger", "init", tmp_path / "ledger.db", *of) == 0
    return tmp_path / "run.toml"


def require_refused(written: Path, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one sentence, before anything is drawn."""
    capsys.readouterr()
    assert topdown_command("run", written) in (2, 3)
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1
    assert not (written.parent / "out" / "internal" / "draw.json").exists()


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_release_is_made_verified_and_read(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert topdown_command("check", written) == 0
    assert topdown_command("run", written) == 0
    public = written.parent / "out" / "public"
    assert topdown_command("verify", public) == 0
    found = td.read_release(public)
    assert found.release.fit_for_release
    assert found.measurements.keys == ()
    assert found.geography.levels == LEVELS
    detailed = found.release.answers("block", "detailed")
    assert (detailed >= 0).all()
    assert np.array_equal(found.release.answers("state", "detailed")[0], detailed.sum(axis=0))
    assert not detailed[:, found.release.schema.impossible_cells()].any()
    true = pd.read_csv(written.parent / "persons.csv", dtype=str)
    assert abs(detailed.sum() - len(true)) < 60
    race = pd.read_parquet(public / "tables" / "race.parquet").set_index("geoid")
    assert race.loc["44001", "3"] == found.release.answers("county", "race")[1, 3]
    assert not (public / "tables" / "race_estimates.parquet").exists()
    manifest = json.loads((public / "manifest.json").read_text())
    described = REPOSITORY / "docs" / "schemas" / f"manifest-{SCHEMA_VERSION}.json"
    jsonschema.validate(manifest, json.loads(described.read_text()))
    assert manifest["cells"] is None
    assert manifest["projections"]["non_negative"]["cross_check"]["scope"].endswith("children times cells")
    assert manifest["configuration"]["input"]["cells"] == []
    capsys.readouterr()
    assert topdown_command("query", public, "--sum", "44001", "--query", "race", "--cell", "3", "--format", "json") == 0
    answer = json.loads(capsys.readouterr().out)[0]
    assert answer["estimate"] == race.loc["44001", "3"]
    assert "measurements of 'county' were not kept" in answer["note"]
    assert topdown_command("page", public, "--output", written.parent / "page.html") == 0
    capsys.readouterr()
    page = (written.parent / "page.html").read_text()
    assert "were not kept" in page
    numbers = PageNumbers.of(found)
    assert numbers.errors is None
    assert "were not kept" in (numbers.reason or "")
    districts = written.parent / "districts.csv"
    districts.write_text("block,district\n" + "".join(f"{code},1\n" for code in race.index if len(code) == 9))
    assert topdown_command("aggregate", public, "--by", districts, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["value"] == detailed.sum()
    assert topdown_command("synthesize", written) == 3
    assert "too many cells for records" in capsys.readouterr().err


def test_it_is_the_same_with_all_answers_drawn_before_in_another_order(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever works: the release has the same bytes, and the whole touched set is kept, and says the same."""
    run.run(load_config(written), workers=2)
    first, second = written.parent / "out", written.parent / "again"
    shutil.copytree(first / "internal", second / "internal")

    class Everything(AskedMeasurements):
        def __init__(self, counts: td.Counts, *arguments: Any) -> None:
            super().__init__(counts, *arguments)
            self.held = {}
            tree = counts.geography.tree
            for index in reversed(range(tree.n_levels)):
                for query in reversed(list(self.queries(index))):
                    nodes = range(tree.level(index).stop - tree.level(index).start)
                    every = [
                        super(Everything, self).measured(index, query, slice(n, n + 1), np.arange(query.n_answers))
                        for n in reversed(nodes)
                    ]
                    self.held[index, query.name] = np.concatenate(every[::-1])

        def measured(self, index: int, query: Query, nodes: slice, answers: IntArray) -> IntArray:
            return np.asarray(self.held[index, query.name][nodes][:, answers])

    monkeypatch.setattr(draw, "AskedMeasurements", Everything)
    run.run(load_config(written), second, workers=1)
    assert files(first / "public") == files(second / "public")
    touched = list(read_touched(first / "internal" / TOUCHED, LEVELS))
    again = list(read_touched(second / "internal" / TOUCHED, LEVELS))
    assert len(touched) == len(again)
    for one, other in zip(touched, again, strict=True):
        assert one[:3] == other[:3]
        assert np.array_equal(one.answers, other.answers)
        assert np.array_equal(one.values, other.values)
    assert {one.level for one in touched} == {0, 1, 2}
    assert {one.query for one in touched} == {"total", "sex * adult", "race", "detailed"}
    # Every answer with records of the release at a node was touched there.
    release = td.read_release(first / "public").release
    for one in touched:
        if one.query == "detailed":
            start = release.geography.level_offsets[one.level]
            _, cells, _ = release.entries_of(slice(start + one.nodes.start, start + one.nodes.stop))
            assert np.isin(cells, one.answers).all()


def test_an_interrupted_run_goes_on_with_the_same_noise(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise DataError("no space")

    out = written.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr(run, "derive_on_supports", full)
        with pytest.raises(DataError, match="no space"):
            run.run(load_config(written))
    assert not (out / "public").exists()
    kept = list(read_touched(out / "internal" / TOUCHED, LEVELS))
    (out / "internal" / TOUCHED).unlink()
    run.run(load_config(written))
    again = list(read_touched(out / "internal" / TOUCHED, LEVELS))
    assert all(np.array_equal(one.values, other.values) for one, other in zip(kept, again, strict=True))
    assert run.run(load_config(written)).already_there
    known = Ledger(written.parent / "ledger.db").account("persons")
    assert len(known.confirmed) == 1
    assert td.read_release(out / "public").manifest["ledger"]["dataset"] == "persons"
    # Once the noise is drawn, another configuration is another release.
    written.write_text(written.read_text().replace("rho = 2", "rho = 1"))
    assert topdown_command("run", written) == 5


def test_no_count_is_alive_when_the_release_is_written(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[weakref.ref[object]] = []
    alive: list[object] = []
    made, read = run.derive_on_supports, draw.read_input
    # A solver that fails, and in whose place another is taken, keeps nothing alive either.
    monkeypatch.setattr(cross_checks, "_BOUNDED", {"OSQP": {"max_iter": 1}})

    def watched_read(*arguments: Any, **options: Any) -> Any:
        geography, counts = read(*arguments, **options)
        known.extend([weakref.ref(counts), weakref.ref(counts.held.cells)])
        return geography, counts

    def watched(*arguments: Any, **options: Any) -> None:
        alive.extend(found for found in (ref() for ref in known) if found is not None)
        made(*arguments, **options)

    monkeypatch.setattr(draw, "read_input", watched_read)
    monkeypatch.setattr(run, "derive_on_supports", watched)
    run.run(load_config(written))
    assert len(known) == 2
    assert alive == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("margins = false\n", "", "write output.margins = false"),
        ("margins = false", "margins = false\nestimates = true", "leave out output.estimates"),
        ("margins = false", "margins = false\nmicrodata = true", "leave out output.microdata"),
        ('"top-down"', '"top-down"\norder = ["total"]', "leave projection.order out"),
        ('"top-down"', '"gls-top-down"', "write projection.method = 'top-down'"),
        ('"top-down"', '"top-down"\nweights = "uniform"', "leave out projection.weights"),
        ("unit =", 'only_child = "move-up"\nunit =', "leave the rule for only children out"),
        ('"discrete-gaussian"', '"gaussian"', "take the mechanism 'geometric' or 'discrete-gaussian'"),
        ('block = { total = "1/12", "sex * adult" = "1/12", race = "1/12", detailed = "1/12" }',
         'block = { total = "1/3" }', "level 'block' does not measure 'detailed'"),
        ("rho = 2", 'rho = "1/100000000"', "too wide to be drawn by address"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused_before_anything_is_drawn(
    written: Path, old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = written.read_text()
    assert old in text
    written.write_text(text.replace(old, new))
    assert topdown_command("run", written) in (2, 5)
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1
    assert not (written.parent / "out" / "public").exists()
    assert not (written.parent / "out" / "internal" / "draw.json").exists()


@pytest.mark.parametrize("engine", ["processes", pytest.param("dask", marks=pytest.mark.slow)])
def test_it_is_the_same_by_other_workers(written: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setattr("topdown.measurements.journal.secrets.token_bytes", lambda size: bytes(range(size)))
    tied_to(written)
    begin, end = written.read_text().split("[ledger]")
    written.write_text(begin + "[projection]" + end.split("[projection]")[1])
    run.run(load_config(written))
    with ExitStack() as held:
        if engine == "processes":
            pool: Any = held.enter_context(ProcessPoolExecutor(2, get_context("spawn")))
        else:
            local = pytest.importorskip("distributed").LocalCluster
            cluster = held.enter_context(local(n_workers=2, dashboard_address=None, host="127.0.0.1"))
            pool = held.enter_context(executor_of("dask", cluster.scheduler_address))
        submitted = list[str]()

        class Watched:
            """The pool, which is asked for every family."""

            def submit(self, fn: Any, /, *arguments: Any) -> Any:
                submitted.append(fn.__name__)
                return pool.submit(fn, *arguments)

        run.run(load_config(written), written.parent / "other", executor=Watched())
    # The root, its children, and those of every county that has persons.
    assert submitted == ["_solved"] * (1 + 1 + 3)
    assert files(written.parent / "out" / "public") == files(written.parent / "other" / "public")


def test_parts_are_refused(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert topdown_command("run", written, "--part-size", "5") == 2
    assert "leave the part size out" in capsys.readouterr().err


def tied_to(written: Path) -> Path:
    """The public folder of a release of the persons by adult and race alone, to which ``written`` is then tied."""
    small = written.read_text().replace('method = "top-down"', 'method = "gls-top-down"')
    begin, end = small.index("sex = "), small.index("[privacy]\n")
    races = [str(k) for k in range(9)]
    small = small[:begin] + f'adult = ["minor", "adult"]\nrace = {races}\n\n' + small[end:]
    small = small.replace('"sex * adult"', "adult", 3).replace('"sex * adult", ', "").replace('"out"', '"before"')
    small = small.replace("persons.csv", "adults.csv").replace("margins = false", "margins = false\nestimates = false")
    people = pd.read_csv(written.parent / "persons.csv", dtype=str)
    people["adult"] = np.where(people["age"].astype(int) < 4, "minor", "adult")
    people[["block", "adult", "race"]].to_csv(written.parent / "adults.csv", index=False)
    (written.parent / "before.toml").write_text(
        small.split("[ledger]")[0] + "[projection]" + small.split("[projection]")[1]
    )
    assert topdown_command("run", written.parent / "before.toml") == 0
    written.write_text(written.read_text() + '\n[ties]\nrelease = "before/public"\n')
    return written.parent / "before" / "public"


def test_every_unit_keeps_the_counts_of_a_release_that_it_is_tied_to(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tied_to(written)
    assert topdown_command("run", written) == 0
    public = written.parent / "out" / "public"
    assert topdown_command("verify", public) == 0
    made, kept = td.read_release(public), td.read_release(before)
    for level in LEVELS:
        exact = kept.release.answers(level, "adult * race")
        assert np.array_equal(made.release.answers(level, "adult * race"), exact)
        assert exact.any()
    stated = made.manifest["limits"]
    assert "published before" in stated["statement"]
    assert stated["sha256"] == td.verify_release(before).sha256
    # Another release of the same query is another release here.
    assert topdown_command("run", written) == 0
    shutil.rmtree(before.parent)
    (written.parent / "before.toml").write_text((written.parent / "before.toml").read_text() + "csv = false\n")
    assert topdown_command("run", written.parent / "before.toml") == 0
    capsys.readouterr()
    assert topdown_command("run", written) == 2
    assert "another configuration" in capsys.readouterr().err


def test_ties_to_other_units_or_other_categories_are_refused(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tied_to(written)
    text = written.read_text()
    blocks = (written.parent / "units.csv").read_text()
    (written.parent / "more.csv").write_text(blocks + "440020099\n")
    cases = [
        (text.replace("units.csv", "more.csv"), "give a release of the same units"),
        (text.replace("minor = ", "young = "), "'adult' has other categories in"),
        (text.replace("[recodes.age.adult]", "[recodes.age.old]").replace("sex * adult", "sex * old"),
         "are not the schema's"),
        (text.replace("before/public", "nowhere/public"), "manifest.json: no such file"),
    ]  # fmt: skip
    for changed, said in cases:
        assert changed != text
        written.write_text(changed)
        require_refused(written, said, capsys)
    assert before.exists()
    own = (written.parent / "before.toml").read_text() + '\n[ties]\nrelease = "before/public"\n'
    (written.parent / "before.toml").write_text(own)
    assert topdown_command("run", written.parent / "before.toml") == 2
    assert "leave it out" in capsys.readouterr().err


def with_ages(written: Path, *everywhere: str) -> pd.DataFrame:
    """A table of the ages that there are in every block, with all ages in the first and these ``everywhere``; others
    are closed, by ``written``."""
    people = pd.read_csv(written.parent / "persons.csv", dtype=str)
    blocks = pd.read_csv(written.parent / "units.csv", dtype=str)["block"]
    there = [(blocks[0], str(age)) for age in range(12)] + [(block, age) for block in blocks for age in everywhere]
    there += people[["block", "age"]].itertuples(index=False, name=None)
    rows = pd.DataFrame(sorted(set(there)), columns=["geoid", "answer"]).assign(query="age", lower=0, upper="")
    rows.to_csv(written.parent / "ages.csv", index=False)
    written.write_text(written.read_text() + '\n[bounds]\npath = "ages.csv"\nclosed = ["age"]\n')
    return rows


@pytest.mark.parametrize("tied", [False, True])
def test_no_unit_has_records_where_its_limits_say_that_there_are_none(written: Path, tied: bool) -> None:
    before = tied_to(written) if tied else None
    # The release that they are tied to has adults and minors where there are none: an age of theirs is open.
    rows = with_ages(written, *(("3", "9") if tied else ()))
    assert topdown_command("check", written) == 0
    assert topdown_command("run", written) == 0
    public = written.parent / "out" / "public"
    assert topdown_command("verify", public) == 0
    made = td.read_release(public)
    blocks = made.geography.identifiers.to_pylist()[made.geography.level_slice("block")]
    opened = set(zip(rows["geoid"], rows["answer"], strict=True))
    ages = made.release.answers("block", "age")
    found = {(blocks[row], str(age)) for row, age in np.argwhere(ages).tolist()}
    assert found < opened
    assert np.array_equal(made.release.answers("state", "age")[0], ages.sum(axis=0))
    limits = pd.read_parquet(public / "limits.parquet")
    assert (limits["upper"] == 0).all()
    closed = set(zip(limits["geoid"], limits["answer"], strict=True))
    assert {(block, str(age)) for block in blocks for age in range(12)} - opened == closed
    stated = made.manifest["limits"]["statement"]
    assert "in which answers a unit has no records" in stated
    assert ("published before" in stated) == tied
    if before is not None:
        kept = td.read_release(before).release.answers("block", "adult * race")
        assert np.array_equal(made.release.answers("block", "adult * race"), kept)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("440020003,4,age,700,", "in a schema of so many cells a limit says only where there are no records"),
        ("440020003,f,sex,0,", "the limits are of 'age', 'sex', and in a schema of so many cells they are of one"),
        ("440019999,3,age,0,", "no unit '440019999'"),
    ],
)
def test_limits_that_are_not_kept_on_supports_are_refused(
    written: Path, row: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with_ages(written)
    path = written.parent / "ages.csv"
    path.write_text(path.read_text().replace(",".join([*row.split(",")[:3], "0", ""]) + "\n", "") + row + "\n")
    require_refused(written, said, capsys)


def test_ties_and_limits_that_contradict_each_other_are_refused(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = td.read_release(tied_to(written))
    rows = with_ages(written)
    blocks = before.geography.identifiers.to_pylist()[before.geography.level_slice("block")]
    minors = before.release.answers("block", "adult")[:, 0]
    block = blocks[int(np.flatnonzero(minors > 0)[-1])]
    young = (rows["geoid"] == block) & rows["answer"].isin(["0", "1", "2", "3"])
    people = pd.read_csv(written.parent / "persons.csv", dtype=str)
    people[(people["block"] != block) | (people["age"].astype(int) > 3)].to_csv(
        written.parent / "persons.csv", index=False
    )
    rows[~young].to_csv(written.parent / "ages.csv", index=False)
    capsys.readouterr()
    assert topdown_command("run", written) == 2
    told = capsys.readouterr().err
    assert "bounds: block " in told
    assert "and no answer to 'age' that is open there can have them" in told
    assert not (written.parent / "out" / "internal" / "draw.json").exists()


def test_records_where_there_should_be_none_are_refused(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_ages(written).iloc[:-1].to_csv(written.parent / "ages.csv", index=False)
    capsys.readouterr()
    assert topdown_command("run", written) == 3
    assert "above its upper limit 0; correct one of them" in capsys.readouterr().err
