"""`topdown statistic` draws once: its noise follows from a key, and the ledger knows what it was drawn of."""

from __future__ import annotations

import json
import shutil
import signal
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support.crash import Server, points_of, statistic_of
from support.places import Command
from topdown.errors import BudgetError, DataError, TopdownError
from topdown.machine.files import file_digest
from topdown.noise.key import NoiseKey
from topdown.privacy.accounting import event_from_dict
from topdown.privacy.ledger import Account, Ledger
from topdown.research.statistic import released_statistic as statistic
from topdown.research.statistic.measured_statistic import measure_statistic
from topdown.research.statistic.statistic_plan import StatisticPlan

RECORDS = 200


def place_of(folder: Path, total: int = 1) -> Path:
    """A folder with a table of people and a ledger."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    people = {name: rng.integers(0, 1000, RECORDS) for name in ("income", "age")}
    pd.DataFrame(people).to_csv(folder / "people.csv", index=False)
    Ledger(folder / "ledger.db").open_account("people", total, neighbours="substitute")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return place_of(tmp_path / "place")


def account(folder: Path) -> Account:
    return Ledger(folder / "ledger.db").account("people")


def taken_away(folder: Path) -> str | None:
    """What was released, which is then moved away."""
    path = folder / "out" / "statistic.json"
    if not path.exists():
        return None
    found = path.read_text()
    path.unlink()
    return found


@pytest.mark.system
def test_whoever_kills_it_and_takes_the_answer_gets_the_same_again(server: Server, tmp_path: Path) -> None:
    """Killed at every point, again and again, with what was written taken away: one answer, one charge."""
    whole = place_of(tmp_path / "whole")
    points = points_of(server, whole / "run.toml", statistic=["income"])
    assert {"after reserve", "after confirm", "after replace"} <= set(points)
    shutil.rmtree(whole)
    several = 0
    for point in range(1, len(points) + 1):
        folder = place_of(tmp_path / str(point))
        seen = []
        for _ in range(2):
            ended, said = server.run(folder / "run.toml", statistic=["income"], point=point)
            assert ended in (-signal.SIGKILL, 0), said  # what was done before is not done again, and has fewer points
            seen.append(taken_away(folder))
        statistic_of(folder, ["income"])
        seen.append(taken_away(folder))
        several += len([one for one in seen if one is not None]) > 1
        assert len({one for one in seen if one is not None}) == 1, points[point - 1]
        assert (len(account(folder).releases), account(folder).left) == (1, Fraction(1, 2)), points[point - 1]
    assert several  # the answer was there when the process was killed


def test_another_column_is_another_charge(folder: Path) -> None:
    """Whether the answer is there, was taken away, or was never written: nothing is drawn on the first reservation."""
    first = statistic_of(folder, ["income"])
    for _ in range(2):
        with pytest.raises(TopdownError, match=r"was drawn under another configuration.*another --output"):
            statistic_of(folder, ["age"])
        taken_away(folder)
    assert account(folder).left == Fraction(1, 2)
    again = statistic_of(folder, ["income"])
    assert again == first
    (folder / "out").rename(folder / "first")
    assert statistic_of(folder, ["age"])["columns"] == ["age"]
    assert account(folder).left == 0


def test_another_table_never_gets_the_old_answer(folder: Path) -> None:
    """Of as many records."""
    statistic_of(folder, ["income"])
    table = pd.read_csv(folder / "people.csv")
    table.loc[0, "income"] += 1
    table.to_csv(folder / "people.csv", index=False)
    for _ in range(2):
        with pytest.raises(DataError, match="was drawn for another input file"):
            statistic_of(folder, ["income"])
        taken_away(folder)
    assert len(account(folder).releases) == 1


@pytest.mark.parametrize("change", ["column", "columns", "table", "statistic"])
def test_what_was_reserved_counts_as_drawn(folder: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of the noise is not there yet, or was lost: under the reservation nothing else is drawn."""
    with monkeypatch.context() as patch:

        def stopped(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(statistic.Journal, "begin", stopped)
        with pytest.raises(KeyboardInterrupt):
            statistic_of(folder, ["income"])
    assert (len(account(folder).releases), len(account(folder).confirmed)) == (1, 0)
    columns = {"column": ["age"], "columns": ["income", "age"]}.get(change, ["income"])
    if change == "table":
        (folder / "people.csv").write_text((folder / "people.csv").read_text().replace("\n", "\r\n"))
    epsilon = "1/4" if change == "statistic" else "1/2"
    with pytest.raises(BudgetError, match=r"has reserved another budget before.*another --output"):
        statistic_of(folder, columns, epsilon)
    assert not (folder / "out" / "statistic.json").exists()
    assert len(account(folder).releases) == 1
    if change != "table":
        statistic_of(folder, ["income"])
        assert (len(account(folder).confirmed), account(folder).left) == (1, Fraction(1, 2))


def test_a_lost_record_of_a_confirmed_statistic_is_refused(folder: Path) -> None:
    statistic_of(folder, ["income"])
    (folder / "out" / "internal" / "draw.json").unlink()
    with pytest.raises(TopdownError, match="the record of the noise behind it is not in"):
        statistic_of(folder, ["income"])
    taken_away(folder)
    with pytest.raises(BudgetError, match=r"drew its noise, and its record is not here; restore it"):
        statistic_of(folder, ["income"])


def test_the_ledger_says_what_was_drawn_of(folder: Path) -> None:
    statistic_of(folder, ["income", "age"])
    (release,) = account(folder).releases
    (event,) = [event_from_dict(one) for one in release.body["events"]]
    assert (event.query, event.columns, event.unit) == ("covariance", ("income", "age"), "person")
    assert len(bytes.fromhex(event.input)) == 32
    # Under the secret: who knows all of the table but a record could try what the digest of each would be.
    digest = file_digest(folder / "people.csv")
    assert digest not in (folder / "ledger.db").read_bytes().decode("latin-1")
    assert event.input != digest
    (folder / "out").rename(folder / "first")
    statistic_of(folder, ["income", "age"])
    other = event_from_dict(account(folder).releases[1].body["events"][0])
    assert (other.columns, other.input == event.input) == (event.columns, False)


def test_an_answer_that_was_changed_is_noticed_and_made_again(folder: Path) -> None:
    path = folder / "out" / "statistic.json"
    statistic_of(folder, ["income"])
    first = path.read_text()
    for content in (first.replace('"records": 200', '"records": 201'), "{", "[]", "\udcff"):
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        with pytest.raises(DataError, match=r"statistic\.json: is not what was written; move it away"):
            statistic_of(folder, ["income"])
    path.unlink()
    statistic_of(folder, ["income"])
    assert path.read_text() == first


def test_a_ledger_that_lacks_the_statistic_is_refused(folder: Path) -> None:
    """An older copy was restored, which lacks what was spent since."""
    before = (folder / "ledger.db").read_bytes()
    statistic_of(folder, ["income"])
    written = json.loads((folder / "out" / "statistic.json").read_text())
    assert Ledger(folder / "ledger.db").verify(written["ledger"]["record"])
    (folder / "ledger.db").write_bytes(before)
    with pytest.raises(BudgetError, match=r"does not hold the record .* an older copy of it"):
        statistic_of(folder, ["income"])


def test_a_statistic_of_an_earlier_version_is_refused(folder: Path) -> None:
    """Whose noise nobody can draw again."""
    (folder / "out").mkdir()
    (folder / "out" / "statistic.json").write_text('{"asked": "00"}')
    with pytest.raises(TopdownError, match="the record of the noise behind it is not in"):
        statistic_of(folder, ["income"])
    assert not account(folder).releases


def test_its_secret_is_closed_to_others(folder: Path) -> None:
    statistic_of(folder, ["income"])
    internal = folder / "out" / "internal"
    assert stat.S_IMODE(internal.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in internal.iterdir()} == dict.fromkeys(
        ("draw.json", "key", "lock"), 0o600
    )
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["internal", "statistic.json"]


def test_other_values_get_independent_noise() -> None:
    """With the secret and every digest held fixed; and so does another plan, or another column by name."""
    values = np.random.default_rng(1).integers(0, 1000, RECORDS).astype(float)
    plan = StatisticPlan("mean", ((Fraction(0), Fraction(1000)),), RECORDS, Fraction(1, 2))
    other = StatisticPlan("mean", ((Fraction(0), Fraction(1000)),), RECORDS, Fraction(1, 2), unit="household")
    mean = Fraction(int(values.sum()), RECORDS)

    def noise(moved: int, secret: int, plan: StatisticPlan = plan, column: str = "income") -> float:
        table = values.copy()
        table[:2] += moved, -moved  # the mean is the same
        key = NoiseKey(secret.to_bytes(32, "little"), "configuration", "input")
        return float(measure_statistic(table, plan, key, columns=[column]).value - mean)

    found = np.array([[noise(0, k), noise(1, k), noise(0, k, other), noise(0, k, column="age")] for k in range(100)])
    assert [noise(0, k) for k in range(20)] == found[:20, 0].tolist()
    correlations = np.corrcoef(found.T)[np.triu_indices(4, 1)]
    assert (np.abs(correlations) < 6 / np.sqrt(len(found))).all()
    assert (np.diff(np.sort(found, axis=1)) > 0).all()


def test_a_table_that_changes_meanwhile_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = statistic._values

    def changing(table: Path, columns: Any) -> Any:
        found = read(table, columns)
        table.write_text(table.read_text() + "1,1\n")
        return found

    monkeypatch.setattr(statistic, "_values", changing)
    with pytest.raises(DataError, match="it changed while it was read"):
        statistic_of(folder, ["income"])
    assert not account(folder).releases
    assert not (folder / "out" / "statistic.json").exists()


def test_by_the_command_two_columns_are_two_charges(folder: Path, topdown: Command) -> None:
    options = ["--bounds", "0:1000", "--epsilon", "0.5", "--ledger", folder / "ledger.db", "--dataset", "people"]

    def asked(column: str, output: str) -> Any:
        return topdown("statistic", folder / "people.csv", "--column", column, *options, "--output", folder / output)

    assert asked("income", "out").returncode == 0
    assert asked("age", "out").returncode == 2
    assert account(folder).left == Fraction(1, 2)
    assert asked("age", "other").returncode == 0
    assert account(folder).left == 0
    assert asked("age", "third").returncode == 5


@pytest.mark.parametrize(
    ("changed", "code", "says"),
    [
        ({"--epsilon": "1e6"}, 5, "at epsilon 1000000 the noise is 0 with probability 100.0000%"),
        ({"--epsilon": "1e-20"}, 5, "steps of the grid, beyond 2^52; give a larger epsilon"),
        ({"--bounds": "0:0.000001"}, 2, "bounds [0, 1/1000000]: values are rounded to multiples of 2^-20"),
        ({"--bounds": "0:1e400"}, 2, "give values and bounds in a larger unit"),
        ({"--bounds": "1e14:100000000000001"}, 2, "subtract a public number from all values and bounds"),
        ({"--unit": " "}, 2, "the unit has no name"),
        ({"--ledger": None}, 2, "dataset 'people' is of a ledger, and none is given"),
        ({"--dataset": "nope"}, 5, "'nope'"),
        ({"table": "x\n1\n"}, 3, "people.csv: a statistic is released of two records or more"),
        ({"table": "x;y\n1;2\n3;4\n"}, 3, 'its columns seem to be separated by ";": separate them by commas'),
        ({"table": "x,y\n1,1\n,2\n3,3\n"}, 3, "people.csv: line 3 has no number in a column"),
        ({"table": "x,y\n1,1\ntwo,2\n3,3\n"}, 3, "people.csv: column 'x' has a value that is not a number"),
    ],
)
def test_what_can_be_refused_is_refused_before_anything_is_spent_or_written(
    tmp_path: Path, topdown: Command, changed: dict[str, str | None], code: int, says: str
) -> None:
    (tmp_path / "people.csv").write_text(changed.pop("table", None) or "x,y\n1,2\n5,6\n3,3\n")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("people", 10, neighbours="substitute")
    asked = {"--column": "x", "--bounds": "0:10", "--epsilon": "1", "--output": str(tmp_path / "out")}
    asked |= {"--ledger": str(ledger.path), "--dataset": "people"} | changed
    options = [f"{name}={value}" for name, value in asked.items() if value is not None]
    done = topdown("statistic", tmp_path / "people.csv", *options)
    assert (done.returncode, done.stderr[:6]) == (code, "error:")
    assert says in done.stderr
    assert not (tmp_path / "out").exists()
    assert ledger.account("people").spent == 0


def test_a_column_is_not_taken_twice(tmp_path: Path, topdown: Command) -> None:
    (tmp_path / "people.csv").write_text("x\n1\n5\n")
    twice = ["--column", "x", "--column", "x", "--bounds", "0:9", "--bounds", "0:9"]
    out = tmp_path / "out"
    done = topdown(
        "statistic", tmp_path / "people.csv", *twice, "--of", "covariance", "--epsilon", "1", "--output", out
    )
    assert done.returncode == 2
    assert "column 'x' is given twice; give each once" in done.stderr


def test_the_law_of_the_noise_is_stated_and_a_record_without_its_ledger_is_found(
    tmp_path: Path, topdown: Command
) -> None:
    place = place_of(tmp_path / "place")
    options = ["--column", "age", "--bounds", "0:1000", "--epsilon", "1", "--output", place / "out"]
    options += ["--ledger", place / "ledger.db", "--dataset", "people"]
    assert topdown("statistic", place / "people.csv", *options).returncode == 0
    path = place / "out" / "statistic.json"
    written = json.loads(path.read_text())
    assert written["law"] == f"boundary-inflated double geometric on multiples of 2^-{written['grid_bits']}"
    assert len(written["noise"]) == 32
    path.write_text(json.dumps(written | {"ledger": {}}))
    done = topdown("statistic", place / "people.csv", *options)
    assert done.returncode == 3
    assert "statistic.json: is not what was written; move it away and run again" in done.stderr
