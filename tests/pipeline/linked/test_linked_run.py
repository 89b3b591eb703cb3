"""`topdown run` of two linked tables that are no census: schools and their pupils, by a TOML file alone."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.linked import rhode_island
from support.places import REPOSITORY, Command
from topdown.config import load_linked
from topdown.errors import BudgetError, TopdownError
from topdown.machine.engines import executor_of
from topdown.machine.progress import Silent
from topdown.microdata.linked_microdata import check_linked, read_linked
from topdown.pipeline.linked.linked_derive import solved_together
from topdown.pipeline.linked.linked_draw import draw_linked
from topdown.pipeline.linked.linked_run import run_linked
from topdown.privacy.ledger import Ledger
from topdown.release.linked_release import verify_linked

OF_A_CENSUS = re.compile(r"\b(households?|householders?|persons?|people|census|dwellings?)\b", re.IGNORECASE)
"""Words that neither errors nor results have about two tables that are no census."""

SCHOOLS_TOML = """
title = "Schools and their pupils"

[input]
households = "schools.csv"
persons = "pupils.csv"
household = "school"

[geography]
units = "towns.csv"
root = "land"
levels = ["region", "town"]
root_level = "country"

[schemas.schools]
kind = ["primary", "secondary"]
pupils = ["0", "1-4", "5-9", "10+"]

[schemas.pupils]
grade = ["low", "high"]
sex = ["female", "male"]

[link]
households = "schools"
persons = "pupils"

[[link.members]]
group = "low grades"
persons = "grade = low"
per = { "kind = primary" = "rest" }

[[link.members]]
group = "high grades"
persons = "grade = high"
per = "rest"

[link.members_total]
size = "pupils"
open = "10+"

[privacy]
rho = 4
units = ["person", { household = 40 }]
shares = { schools = "1/2", pupils = "1/2" }

[privacy.queries]
schools = ["total", "kind", "detailed"]
pupils = ["total", "grade", "detailed"]

[projection]
method = "top-down"

[output]
directory = "out"
tables = ["pupils: grade"]
linked_microdata = true
"""


FIRMS_TOML = """
[input]
households = "firms.csv"
persons = "owners.csv"
household = "firm"

[geography]
units = "towns.csv"
root = "land"
levels = ["town"]
root_level = "country"

[schemas.firms]
sector = ["a", "b"]
size = ["1", "2"]

[schemas.owners]
sector = ["a", "b"]
size = ["1", "2"]

[link]
households = "firms"
persons = "owners"

[[link.members]]
group = "of a"
persons = "sector = a"
per = { "sector = a" = 1 }

[[link.members]]
group = "of b"
persons = "sector = b"
per = { "sector = b" = 1 }

[link.members_total]
size = "size"

[privacy]
rho = 1
shares = { firms = "1/2", owners = "1/2" }

[projection]
method = "top-down"

[output]
directory = "out"
"""


@pytest.fixture
def schools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The TOML file, and beside it three towns, some schools and their pupils; the noise is the same every time."""
    monkeypatch.setattr("topdown.measurements.journal.secrets.token_bytes", lambda size: bytes(range(size)))
    rng = np.random.default_rng(7)
    towns = pd.DataFrame({"region": ["north", "north", "south"], "town": ["a", "b", "c"]})
    towns.to_csv(tmp_path / "towns.csv", index=False)
    rows, pupils = [], []
    for number in range(18):
        town = towns["town"][number % 3]
        region = towns["region"][number % 3]
        kind = ["primary", "secondary"][number % 2]
        size = int(rng.integers(0, 25))
        category = "0" if size == 0 else "1-4" if size < 5 else "5-9" if size < 10 else "10+"
        rows.append((f"s{number}", region, town, kind, category))
        for _ in range(size):
            grade = "high" if kind == "secondary" else rng.choice(["low", "high"])
            pupils.append((f"s{number}", region, town, grade, rng.choice(["female", "male"])))
    for name, table, columns in (("schools", rows, ("kind", "pupils")), ("pupils", pupils, ("grade", "sex"))):
        frame = pd.DataFrame(table, columns=["school", "region", "town", *columns])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    path = tmp_path / "run.toml"
    path.write_text(SCHOOLS_TOML)
    return path


def test_schools_and_pupils_by_a_file_alone(schools: Path, topdown: Command) -> None:
    done = topdown("run", schools)
    assert done.returncode == 0, done.stderr
    out = schools.parent / "out"
    found = verify_linked(out / "public")
    assert found.impossible == 0
    microdata = read_linked(out / "microdata")
    assert check_linked(microdata).impossible == 0
    for folder in ("public", "microdata"):
        assert topdown("verify", out / folder).returncode == 0
    homes = pq.read_table(out / "microdata" / "schools" / "part-00000.parquet").to_pandas()
    pupils = pq.read_table(out / "microdata" / "pupils" / "part-00000.parquet").to_pandas()
    sizes = pupils.groupby("household").size().reindex(homes["household"], fill_value=0).to_numpy()
    low = homes["pupils"].map({"0": 0, "1-4": 1, "5-9": 5, "10+": 10}).to_numpy()
    high = homes["pupils"].map({"0": 0, "1-4": 4, "5-9": 9, "10+": 40}).to_numpy()
    assert ((low <= sizes) & (sizes <= high)).all()
    of = pupils.set_index("household").join(homes.set_index("household")["kind"])
    assert not ((of["kind"] == "secondary") & (of["grade"] == "low")).any()
    assert len(pupils) == int(found.releases["pupils"].answers("country", "total")[0, 0])
    assert (out / "public" / "pupils" / "tables").is_dir()
    said = json.loads((out / "public" / "link.json").read_text())
    assert said["guarantee"]["largest_household"] == 40
    manifest = json.loads((out / "public" / "pupils" / "manifest.json").read_text())
    assert manifest["fit_for_release"] is True


def test_it_is_the_same_by_processes(schools: Path) -> None:
    run_linked(load_linked(schools), schools.parent / "here", Silent())
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        run_linked(load_linked(schools), schools.parent / "there", Silent(), executor=pool)
    require_same_files(schools.parent / "here", schools.parent / "there")


@pytest.mark.slow
def test_it_is_the_same_by_a_cluster(schools: Path, topdown: Command) -> None:
    distributed = pytest.importorskip("distributed")
    run_linked(load_linked(schools), schools.parent / "here", Silent())
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as made,
        executor_of("dask", made.scheduler_address) as executor,
    ):
        run_linked(load_linked(schools), schools.parent / "there", Silent(), executor=executor)
        asked = ["--engine", "dask", "--scheduler", made.scheduler_address, "--output", schools.parent / "by command"]
        assert topdown("run", schools, *asked).returncode == 0
    require_same_files(schools.parent / "here", schools.parent / "there")
    assert verify_linked(schools.parent / "by command" / "public").impossible == 0
    assert topdown("run", schools, "--part-size", "5").returncode == 2


def require_same_files(one: Path, other: Path) -> None:
    """The same names and bytes in public/ and microdata/."""
    for folder in ("public", "microdata"):
        names = sorted(path.relative_to(one) for path in (one / folder).rglob("*") if path.is_file())
        assert names == sorted(path.relative_to(other) for path in (other / folder).rglob("*") if path.is_file())
        assert names
        assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_firms_and_their_jobs(tmp_path: Path, topdown: Command) -> None:
    """The second file that comes with the project: every firm has its manager, and apprentices where it trains."""
    done = topdown("run", REPOSITORY / "pipelines" / "firms_and_jobs.toml", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    assert OF_A_CENSUS.findall(done.stdout) == []
    assert "One firm with at most 30 jobs: " in done.stdout
    for said in (path for path in (tmp_path / "public").rglob("*") if path.suffix in (".md", ".csv", ".jsonld")):
        assert OF_A_CENSUS.findall(said.read_text()) == [], said.name
    link = json.loads((tmp_path / "public" / "link.json").read_text())
    assert OF_A_CENSUS.findall("\n".join(link["statement"])) == []
    assert OF_A_CENSUS.findall("\n".join(one["differ"] for one in link["guarantee"]["neighbours"])) == []
    for table in ("firms", "jobs"):
        for name in ("manifest.json", "datapackage.json", "croissant.json"):
            text = (tmp_path / "public" / table / name).read_text()
            assert OF_A_CENSUS.findall(text) == [], (table, name)
    assert verify_linked(tmp_path / "public").impossible == 0
    firms, jobs = (
        pq.read_table(tmp_path / "microdata" / name / "part-00000.parquet").to_pandas() for name in ("firms", "jobs")
    )
    managers = jobs[jobs["position"] == "manager"].set_index("household")
    lived = firms[firms["sector"].notna()].set_index("household")
    assert sorted(managers.index) == sorted(lived.index)
    assert (managers["sex"].reindex(lived.index) == lived["msex"]).all()
    assert (managers["pay"].reindex(lived.index) == lived["mpay"]).all()
    trained = set(jobs.loc[jobs["position"] == "apprentice", "household"])
    assert trained == set(lived.index[lived["training"] == "yes"])
    sizes = jobs.groupby("household").size().reindex(lived.index)
    most = lived["size"].map({"1": 1, "2-4": 4, "5-9": 9, "10+": 30})
    assert ((lived["size"].map({"1": 1, "2-4": 2, "5-9": 5, "10+": 10}) <= sizes) & (sizes <= most)).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"firm": ""}, r"is in no firm and in no facility \(row 3 of jobs\); give the key of one firm"),
        ({"firm": "f9999"}, "row 3 of jobs: a key that is not in the table of firms"),
        ({"town": "Brightsea"}, r"is in one firm of another unit \(row 3 of jobs\)"),
        ({"position": "manager"}, "one firm has more than one manager"),
    ],
)
def test_what_is_wrong_with_firms_is_said_of_firms(change: dict[str, str], said: str, tmp_path: Path) -> None:
    data = tmp_path / "data" / "small" / "firms_and_jobs"
    shutil.copytree(REPOSITORY / "data" / "small" / "firms_and_jobs", data)
    jobs = pd.read_csv(data / "jobs.csv", dtype=str)
    assert jobs.loc[3, "position"] != "manager"
    assert jobs.loc[3, "town"] != "Brightsea"
    for column, value in change.items():
        jobs.loc[3, column] = value
    jobs.to_csv(data / "jobs.csv", index=False)
    file = tmp_path / "pipelines" / "firms_and_jobs.toml"
    file.parent.mkdir()
    shutil.copy(REPOSITORY / "pipelines" / "firms_and_jobs.toml", file)
    with pytest.raises(TopdownError, match=said) as refused:
        run_linked(load_linked(file))
    assert not OF_A_CENSUS.search(str(refused.value).replace(str(tmp_path), ""))


def test_equal_tables_have_independent_noise(tmp_path: Path) -> None:
    """Every firm has one owner, of the same sector: both tables are equal, number by number."""
    rows = [(f"f{number}", f"town {number % 40}", "ab"[number % 3 == 0], "1") for number in range(400)]
    frame = pd.DataFrame(rows, columns=["firm", "town", "sector", "size"])
    for name in ("firms", "owners"):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    frame[["town"]].drop_duplicates().to_csv(tmp_path / "towns.csv", index=False)
    (tmp_path / "run.toml").write_text(FIRMS_TOML)
    config = load_linked(tmp_path / "run.toml")
    with ExitStack() as held:
        drawn, _ = draw_linked(config, tmp_path / "out", held, Silent())
    firms, owners = (drawn.measurements[name].values.ravel() for name in ("firms", "owners"))
    # Both have the same counts and the same law: the noise of each differs in most of 160 numbers.
    assert (firms != owners).mean() > 0.5


def test_a_run_again_makes_nothing_new_and_lost_records_are_the_same(schools: Path, topdown: Command) -> None:
    assert topdown("run", schools).returncode == 0
    out = schools.parent / "out"
    first = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    again = topdown("run", schools)
    assert again.returncode == 0
    assert "holds this release already, complete; nothing was drawn or written" in again.stdout
    shutil.rmtree(out / "microdata")
    assert topdown("run", schools).returncode == 0
    assert {path: path.read_bytes() for path in out.rglob("*.parquet")} == first
    schools.write_text(f'{schools.read_text()}\n[catalogue]\npublisher = "Agency"\n')
    other = topdown("run", schools)
    assert other.returncode == 2
    assert "which was written with another catalogue.publisher; move it away and run again" in other.stderr


def test_a_complete_release_is_refused_by_an_older_copy_of_its_ledger(schools: Path, topdown: Command) -> None:
    """As one of a single table: what was spent since would be lost."""
    path = schools.parent / "ledger.db"
    Ledger(path).open_account("schools", 1000, "rho", unit="person", neighbours="substitute")
    older = path.read_bytes()
    schools.write_text(f'{schools.read_text()}\n[ledger]\npath = "ledger.db"\ndataset = "schools"\n')
    assert topdown("run", schools).returncode == 0
    path.write_bytes(older)
    again = topdown("run", schools)
    assert again.returncode == BudgetError.exit_code
    assert "does not hold the record" in again.stderr
    assert Ledger(path).account("schools").spent == 0


def test_the_release_does_not_depend_on_who_works(schools: Path) -> None:
    config = load_linked(schools)
    run_linked(config, workers=1)
    out = schools.parent / "out"
    first = {path.relative_to(out): path.read_bytes() for path in (out / "microdata").rglob("*.parquet")}
    for name in ("public", "microdata"):
        (out / name).rename(out / f"{name} before")
    run_linked(config, workers=2)
    assert {path.relative_to(out): path.read_bytes() for path in (out / "microdata").rglob("*.parquet")} == first
    assert td.verify_release(out / "public" / "pupils").files


def test_the_file_of_a_whole_state_is_the_census_universe() -> None:
    universe, large = load_linked(REPOSITORY / "pipelines" / "persons_and_households.toml").universe, rhode_island()
    assert universe.households.shape == large.households.shape
    assert universe.persons.shape == large.persons.shape
    assert universe.groups == large.groups
    assert universe.facilities == large.facilities
    assert (universe.compositions.total_most == large.compositions.total_most).all()


def test_a_method_that_does_not_solve_both(schools: Path, topdown: Command) -> None:
    schools.write_text(SCHOOLS_TOML.replace('"top-down"', '"joint"'))
    done = topdown("run", schools)
    assert done.returncode == 2
    assert "two linked tables are solved by 'top-down' or 'gls-top-down'" in " ".join(done.stderr.split())
    assert not (schools.parent / "out").exists()


def test_what_was_measured_below_is_used_above(schools: Path, topdown: Command) -> None:
    with ExitStack() as held:
        drawn, _ = draw_linked(load_linked(schools), schools.parent / "out", held, Silent())
    found = []
    for settings in ('"top-down"', '"gls-top-down"\nupward = "from region"', '"gls-top-down"'):
        schools.write_text(SCHOOLS_TOML.replace('"top-down"', settings))
        release = solved_together(load_linked(schools), drawn, Silent()).releases["pupils"]
        assert f"method = {settings}".startswith(f'method = "{release.method}"')
        found.append(release.to_frame())
    assert not any(one.equals(other) for one, other in combinations(found, 2))
    done = topdown("run", schools, "--output", schools.parent / "again")
    assert done.returncode == 0, done.stderr
    assert td.verify_release(schools.parent / "again" / "public" / "pupils").files


def test_commands_that_know_one_table_say_so(schools: Path, topdown: Command) -> None:
    done = topdown("synthesize", schools)
    assert done.returncode == 2
    assert "describes two linked tables (it has a section [link])" in done.stderr
