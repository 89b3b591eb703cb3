"""The ledger: what is spent is spent once, and an edited ledger is found out."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import topdown as td
from support.command import topdown_command
from support.crash import give_up_rights
from support.places import REPOSITORY, RUN_TOML
from topdown.config import load_config
from topdown.errors import BudgetError, DataError
from topdown.machine import files
from topdown.measurements.journal import Journal
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.privacy import ExactEvent, GaussianEvent, LaplaceEvent, PureEvent, ZCDPAccountant, event_to_dict
from topdown.privacy import ledger_file as file_of_records
from topdown.privacy.ledger import Ledger

ONE = (LaplaceEvent(level="nation", scale=1),)
"""Events that cost epsilon 1."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.db")
    made.open_account("census", 3)
    return made


def tampered(ledger: Ledger, *statements: str, triggers: bool = False) -> None:
    """Run ``statements`` on the file as somebody would who wants to hide what was spent."""
    with closing(sqlite3.connect(ledger.path)) as connection:
        if not triggers:
            for name in ("records_are_not_changed", "records_are_not_deleted"):
                connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


# -- records of older versions ----------------------------------------------------------------------------------------

LEVELS = ["nation", "state", "county"]
OLDER = {
    ("census", "first"): td.Plan(epsilon=1),
    ("census", "bounded"): td.Plan(epsilon="1/2", bounds="truncated", calibration="uncorrected", invariants=["nation"]),
    ("survey", "gaussian"): td.Plan("discrete-gaussian", rho="1/10", unit="household", neighbours="substitute"),
}
"""What the releases in golden/ledger_before_versions.db reserved, in a ledger whose events had no version."""


@pytest.fixture
def older(tmp_path: Path) -> Ledger:
    path = tmp_path / "older.db"
    shutil.copy(REPOSITORY / "tests" / "golden" / "ledger_before_versions.db", path)
    return Ledger(path)


@pytest.mark.parametrize("release", OLDER)
def test_a_release_reserved_before_events_had_versions_goes_on(older: Ledger, release: tuple[str, str]) -> None:
    dataset, name = release
    spent = older.account(dataset).spent
    events = OLDER[release].events(LEVELS)
    assert "version" in event_to_dict(events[0])
    assert older.reserve(dataset, name, events).spent == spent
    with pytest.raises(BudgetError, match="reserved another budget"):
        older.reserve(dataset, name, events[:-1])
    assert older.confirm(dataset, name, "0" * 64) == older.confirm(dataset, name, "0" * 64)


def test_an_older_ledger_adds_up_and_takes_new_releases(older: Ledger) -> None:
    assert older.datasets() == ("census", "survey")
    assert older.account("survey").spent == Fraction(1, 10)
    account = older.account("census")
    assert account.confirmed == {"first"}
    # The uncorrected scale is charged its true loss.
    assert account.spent == 1 + Fraction(2044710726399, 2500000000000)
    after = older.reserve("census", "new", td.Plan(epsilon=1).events(LEVELS))
    assert after.spent == account.spent + 1
    assert older.verify("c7f673cf34bd97188ec583f148c0dad8ec3bb39a2c52fb3d87a6f4bb8bda6008")


def test_what_is_compared_is_what_was_charged(ledger: Ledger) -> None:
    ledger.reserve("census", "a", ONE)
    # The same charge, told with another field.
    again = ledger.reserve("census", "a", [LaplaceEvent(level="nation", scale=1, grid_bits=10, mechanism="laplace")])
    assert again.spent == 1
    for other in (
        [PureEvent(level="nation", mechanism="geometric", epsilon=Fraction(2))],
        [LaplaceEvent(level="state", scale=1)],
        [LaplaceEvent(level="nation", query="total", scale=1)],
        [LaplaceEvent(level="nation", scale=1, unit="household")],
        [*ONE, ExactEvent(level="state")],
        [GaussianEvent(level="nation", sigma2=Fraction(1))],
        [ExactEvent(level="nation")],
    ):
        with pytest.raises(BudgetError, match="reserved another budget"):
            ledger.reserve("census", "a", other)
    assert ledger.account("census").spent == 1


# -- what is spent --------------------------------------------------------------------------------------------------


def test_an_account_adds_up_exactly(ledger: Ledger) -> None:
    assert ledger.account("census").left == 3
    third = [LaplaceEvent(level=level, scale=3) for level in ("nation", "state")] + [ExactEvent(level="county")]
    after = ledger.reserve("census", "a", third)
    assert (after.spent, after.left, after.total) == (Fraction(2, 3), Fraction(7, 3), 3)
    assert after.cost(after.releases[0]) == Fraction(2, 3)
    ledger.reserve("census", "b", [LaplaceEvent(level="nation", scale=Fraction(3, 7))])
    # To the last fraction, and not beyond it.
    assert ledger.account("census").left == 0
    with pytest.raises(BudgetError, match=r"would bring epsilon of data set 'census' to .*beyond the total of 3; 0 is"):
        ledger.reserve("census", "c", [LaplaceEvent(level="nation", scale=10**12)])
    assert [record.release for record in ledger.account("census").releases] == ["a", "b"]


def test_a_release_reserves_but_once(ledger: Ledger) -> None:
    for _ in range(5):
        assert ledger.reserve("census", "a", ONE).spent == 1
    with pytest.raises(BudgetError, match="release a has reserved another budget before"):
        ledger.reserve("census", "a", [LaplaceEvent(level="nation", scale=2)])
    assert ledger.account("census").spent == 1
    assert ledger.account("census").confirmed == frozenset()


def test_a_confirmation_names_one_set_of_measurements(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="release a of data set 'census' has reserved nothing"):
        ledger.confirm("census", "a", "digest")
    ledger.reserve("census", "a", ONE)
    record = ledger.confirm("census", "a", "digest")
    assert ledger.confirm("census", "a", "digest") == record == ledger.verify(record)
    with pytest.raises(BudgetError, match="confirmed with other measurements"):
        ledger.confirm("census", "a", "another digest")
    assert ledger.account("census").confirmed == {"a"}


def test_data_sets_are_apart(ledger: Ledger) -> None:
    ledger.open_account("survey", "1/2", "rho", unit="household", neighbours="substitute")
    assert ledger.datasets() == ("census", "survey")
    ledger.reserve("census", "a", ONE)
    survey = ledger.account("survey")
    assert (survey.left, survey.unit, survey.neighbours) == (Fraction(1, 2), "household", "substitute")
    with pytest.raises(BudgetError, match=r"'censsus' has no account; .*did you mean 'census'\?.*topdown ledger init"):
        ledger.reserve("censsus", "a", ONE)


def test_an_account_in_rho_takes_pure_noise_at_half_its_square(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_account("census", "0.625", "rho")
    assert ledger.reserve("census", "a", ONE).spent == Fraction(1, 2)
    assert ledger.reserve("census", "b", [GaussianEvent(level="nation", sigma2=8)]).spent == Fraction(9, 16)
    assert ledger.reserve("census", "c", [PureEvent(level="x", mechanism="bounded", epsilon="1/4")]).left == Fraction(
        1, 32
    )
    spent = ledger.account("census").spent
    assert spent == ZCDPAccountant([*ONE, GaussianEvent(level="nation", sigma2=8)]).total + Fraction(1, 32)


def test_an_account_in_epsilon_refuses_gaussian_noise(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match=r"pure epsilon, which discrete-gaussian noise does not have; .*in rho"):
        ledger.reserve("census", "a", [*ONE, GaussianEvent(level="nation", sigma2=8)])
    assert ledger.account("census").spent == 0


@pytest.mark.parametrize("other", [{"unit": "household"}, {"neighbours": "substitute"}])
def test_budgets_of_other_things_do_not_add(ledger: Ledger, other: dict[str, str]) -> None:
    with pytest.raises(BudgetError, match=r"accounted for one person under 'add-remove'.*do not add"):
        ledger.reserve("census", "a", [LaplaceEvent(level="nation", scale=1, **other)])
    with pytest.raises(BudgetError, match="do not add"):
        ledger.reserve("census", "a", [*ONE, ExactEvent(level="state", **other)])
    assert ledger.account("census").releases == ()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"total": 0}, "total is 0; give a number above 0"),
        ({"total": "-1/2"}, "above 0"),
        ({"total": "inf"}, "finite"),
        ({"total": "1e4900"}, "total"),
        ({"total": 4, "currency": "delta"}, "unknown currency 'delta'"),
        ({"total": 4, "neighbours": "add"}, "unknown neighbours 'add'"),
        ({"total": 4, "unit": " "}, "unit is ' '"),
        ({"total": 4, "dataset": ""}, "dataset is ''"),
    ],
)
def test_an_account_that_cannot_be_meant_is_refused(tmp_path: Path, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(BudgetError, match=says):
        Ledger(tmp_path / "ledger.db").open_account(**{"dataset": "census", **arguments})
    assert list(tmp_path.iterdir()) == []


def test_a_total_stays_as_it_is_once_something_was_spent(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="has this account already; nothing was changed"):
        ledger.open_account("census", 3)
    ledger.reserve("census", "a", ONE, title="Counties 2020")
    with pytest.raises(BudgetError, match="which a release has used; its total stays as it is"):
        ledger.open_account("census", 100)
    assert ledger.account("census").total == 3
    assert ledger.account("census").releases[0].body["title"] == "Counties 2020"


def test_an_account_of_which_nothing_was_spent_is_corrected(ledger: Ledger) -> None:
    ledger.open_account("census", 2, "rho", unit="household")
    account = ledger.account("census")
    assert (account.total, account.currency, account.unit) == (2, "rho", "household")
    assert ledger.datasets() == ("census",)
    ledger.verify()


def test_what_would_be_refused_is_refused_before(ledger: Ledger) -> None:
    ledger.require_left("census", "a", ONE)
    assert ledger.account("census").releases == ()
    ledger.reserve("census", "a", ONE)
    ledger.require_left("census", "a", ONE)  # it is paid for
    for other in ("b", "c"):
        ledger.reserve("census", other, ONE)
    with pytest.raises(BudgetError, match="beyond the total of 3; 0 is left"):
        ledger.require_left("census", "d", ONE)
    with pytest.raises(BudgetError, match="has no account"):
        ledger.require_left("censsus", "b", ONE)


# -- at the same time -----------------------------------------------------------------------------------------------


def _reserve(path: Path, name: str, ready: Any, passed: Any) -> None:
    ready.wait()
    try:
        Ledger(path).reserve("census", name, ONE)
        Ledger(path).confirm("census", name, name)
    except BudgetError as error:
        passed.put((name, str(error)))
    else:
        passed.put((name, None))


def test_of_runs_at_the_same_time_no_more_pass_than_the_budget_allows(ledger: Ledger) -> None:
    context = multiprocessing.get_context("fork")
    for repeat in range(5):
        ready, passed = context.Barrier(6), context.Queue()
        path = ledger.path.with_name(f"{repeat}.db")
        Ledger(path).open_account("census", 3)
        workers = [context.Process(target=_reserve, args=(path, f"r{k}", ready, passed)) for k in range(6)]
        for worker in workers:
            worker.start()
        found = dict(passed.get(timeout=60) for _ in workers)
        for worker in workers:
            worker.join()
        refused = [error for error in found.values() if error is not None]
        assert len(refused) == 3
        assert all("beyond the total of 3; 0 is left" in error for error in refused)
        account = Ledger(path).account("census")
        assert account.spent == 3
        assert account.confirmed == {name for name, error in found.items() if error is None}
        Ledger(path).verify()


def test_two_names_of_one_ledger_do_not_spend_its_last_budget_twice(ledger: Ledger, tmp_path: Path) -> None:
    """Hard links: SQLite's log lies beside each name, and two processes would not see each other."""
    context = multiprocessing.get_context("fork")
    other = tmp_path / "elsewhere" / "books.db"
    other.parent.mkdir()
    ledger.reserve("census", "earlier", ONE)
    ledger.reserve("census", "earlier too", ONE)
    os.link(ledger.path, other)
    ready, passed = context.Barrier(2), context.Queue()
    workers = [
        context.Process(target=_reserve, args=(path, name, ready, passed))
        for name, path in (("a", ledger.path), ("b", other))
    ]
    for worker in workers:
        worker.start()
    found = dict(passed.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert all("has 2 names (hard links)" in str(error) for error in found.values()), found
    for call in (Ledger(other).verify, Ledger(other).datasets, lambda: ledger.open_account("other", 1)):
        with pytest.raises(BudgetError, match="remove all names but one"):
            call()
    other.unlink()
    assert ledger.account("census").left == 1


def test_symbolic_links_are_names_of_one_ledger(ledger: Ledger, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for repeat in range(5):
        path = tmp_path / f"{repeat}.db"
        Ledger(path).open_account("census", 3)
        names = [path]
        for k in range(3):
            names.append(tmp_path / f"folder {repeat} {k}" / "books.db")
            names[-1].parent.mkdir()
            names[-1].symlink_to(names[-2])
        ready, passed = context.Barrier(6), context.Queue()
        workers = [context.Process(target=_reserve, args=(names[k % 4], f"r{k}", ready, passed)) for k in range(6)]
        for worker in workers:
            worker.start()
        found = dict(passed.get(timeout=60) for _ in workers)
        for worker in workers:
            worker.join()
        assert sum(error is None for error in found.values()) == 3, found
        assert {Ledger(name).account("census").spent for name in names} == {3}
        assert all([left.name for left in name.parent.iterdir()] == ["books.db"] for name in names[1:])


def test_a_link_to_itself_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    for call in (Ledger(tmp_path / "loop.db").verify, lambda: Ledger(tmp_path / "loop.db").open_account("census", 1)):
        with pytest.raises(BudgetError, match=r"loop.db: "):
            call()


# -- an edited ledger -----------------------------------------------------------------------------------------------


@pytest.fixture
def used(ledger: Ledger) -> Ledger:
    for name in ("a", "b"):
        ledger.reserve("census", name, ONE)
        ledger.confirm("census", name, name)
    return ledger


BY = "sequence, dataset, kind, release, body, previous, hash"


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ('UPDATE records SET body = replace(body, \'"total":"3"\', \'"total":"9"\')', 1),
        ('UPDATE records SET body = replace(body, \'"scale":"1"\', \'"scale":"9"\') WHERE sequence = 4', 4),
        ("UPDATE records SET body = body || ' ' WHERE sequence = 2", 2),
        ("UPDATE records SET release = 'c' WHERE sequence = 3", 3),
        ("UPDATE records SET dataset = 'other' WHERE sequence = 4", 4),
        ("UPDATE records SET previous = '' WHERE sequence = 4", 4),
        ("UPDATE records SET hash = 'x' WHERE sequence = 5", 5),
        ("UPDATE records SET sequence = 9 WHERE sequence = 5", 5),
        ("UPDATE records SET body = x'00' WHERE sequence = 3", 3),
        ("DELETE FROM records WHERE sequence = 1", 1),
        ("DELETE FROM records WHERE sequence = 4", 4),
        (f"INSERT INTO records ({BY}) SELECT 6, dataset, kind, 'c', body, previous, 'y' FROM records LIMIT 1", 6),
        ("UPDATE records SET sequence = -sequence", 1),
    ],
)
def test_an_edit_is_found_and_nothing_more_is_spent(used: Ledger, statement: str, number: int) -> None:
    tampered(used, statement)
    calls: list[Callable[[], object]] = [
        used.verify,
        used.datasets,
        lambda: used.account("census"),
        lambda: used.reserve("census", "c", ONE),
        lambda: used.confirm("census", "b", "b"),
        lambda: used.open_account("other", 1),
    ]
    before = used.path.read_bytes()
    for call in calls:
        with pytest.raises(BudgetError, match=rf"ledger.db: (record {number} is not what was|the ledger cannot be us)"):
            call()
    assert used.path.read_bytes() == before


def test_two_records_that_change_places_are_found(used: Ledger) -> None:
    swap = [f"UPDATE records SET sequence = {new} WHERE sequence = {old}" for old, new in ((2, 9), (4, 2), (9, 4))]
    tampered(used, *swap)
    with pytest.raises(BudgetError, match="record 2 is not"):
        used.verify()


def test_a_record_with_a_right_hash_in_the_middle_is_found(used: Ledger) -> None:
    # A forger who knows how hashes are made, and mends one record only.
    text = '{"at":"2020-01-01T00:00:00+00:00","measurements":"a"}'
    with closing(sqlite3.connect(used.path)) as connection:
        previous = connection.execute("SELECT previous FROM records WHERE sequence = 3").fetchone()[0]
    mark = file_of_records._hash(previous, 3, "census", "confirm", "a", text)
    tampered(used, f"UPDATE records SET body = '{text}', hash = '{mark}' WHERE sequence = 3")
    with pytest.raises(BudgetError, match="record 4 is not"):
        used.verify()


@pytest.mark.parametrize("statement", ["UPDATE records SET body = '{}'", "DELETE FROM records"])
def test_the_file_refuses_changes_while_its_triggers_stand(used: Ledger, statement: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        tampered(used, statement, triggers=True)


def test_a_cut_off_end_is_found_by_the_hash_that_was_kept(used: Ledger) -> None:
    head = used.verify()
    first = used.account("census").releases[0].hash
    tampered(used, "DELETE FROM records WHERE sequence > 3")
    assert used.verify() != head
    assert used.verify(first)
    with pytest.raises(BudgetError, match=rf"the hash {head} is not in the ledger: records were cut off"):
        used.verify(head)


def test_a_ledger_without_records_is_not_sound(used: Ledger) -> None:
    tampered(used, "DELETE FROM records")
    with pytest.raises(BudgetError, match="holds no record: all were removed"):
        used.verify()


def test_a_forged_chain_of_nonsense_is_an_error_of_ours(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    with file_of_records.transaction(ledger.path, create=True) as chain:
        chain.append("census", "open", "", {"total": "x"})
    for call in (lambda: ledger.account("census"), lambda: ledger.reserve("census", "a", ONE)):
        with pytest.raises(BudgetError, match="the ledger cannot be used"):
            call()


# -- a ledger that cannot be used -----------------------------------------------------------------------------------


def test_a_record_of_a_kind_that_is_not_known_is_not_left_out(ledger: Ledger) -> None:
    """A newer Topdown may have written of what was spent in a way that this one does not know."""
    ledger.reserve("census", "a", ONE)
    text = json.dumps({"events": [event_to_dict(ONE[0])] * 2, "at": "2030"}, sort_keys=True, separators=(",", ":"))
    with closing(sqlite3.connect(ledger.path)) as connection:
        previous = connection.execute("SELECT hash FROM records ORDER BY sequence DESC").fetchone()[0]
        row = (3, "census", "correct", "b", text, previous)
        mark = file_of_records._hash(previous, 3, "census", "correct", "b", text)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, mark))
        connection.commit()
    for ask in (
        ledger.verify,
        ledger.datasets,
        lambda: ledger.account("census"),
        lambda: ledger.reserve("census", "c", ONE),
    ):
        with pytest.raises(BudgetError, match=r"record 3 is of a kind that is not known here, 'correct': .*update"):
            ask()


def test_events_that_are_not_known_reserve_nothing(ledger: Ledger) -> None:
    class Unheard:
        kind, level, query, unit, neighbours, epsilon = "laplace", "nation", "detailed", "person", "add-remove", 1

    event: Any = Unheard()
    with pytest.raises(BudgetError, match="is not a known event"):
        ledger.reserve("census", "a", [event])
    assert ledger.account("census").spent == 0


def test_a_ledger_that_is_not_there_is_not_made_on_the_way(tmp_path: Path) -> None:
    for path in (tmp_path / "none.db", tmp_path / "no" / "folder.db", tmp_path, tmp_path / ("x" * 300)):
        ledger = Ledger(path)
        for call in (ledger.verify, ledger.datasets, lambda ledger=ledger: ledger.reserve("census", "a", ONE)):
            with pytest.raises(BudgetError, match=r"there is no ledger; make one with 'topdown ledger init'|too long"):
                call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\x00" + bytes(2000)])
def test_a_file_that_is_no_ledger_is_named(tmp_path: Path, content: bytes) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.path.write_bytes(content)
    calls: list[Callable[[], object]] = [
        ledger.verify,
        lambda: ledger.reserve("census", "a", ONE),
        lambda: ledger.open_account("census", 1),
    ]
    for call in calls:
        with pytest.raises(BudgetError, match=r"ledger\.db: the ledger cannot be used: "):
            call()
    assert ledger.path.read_bytes() == content


def test_another_database_is_not_taken_for_a_ledger(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE records (a, b)")
    for call in (Ledger(tmp_path / "other.db").verify, lambda: Ledger(tmp_path / "other.db").open_account("c", 1)):
        with pytest.raises(BudgetError, match="the ledger cannot be used: no such column"):
            call()


def test_a_ledger_is_not_made_of_a_database_with_other_tables(tmp_path: Path) -> None:
    path = tmp_path / "map.gpkg"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE places (name TEXT)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(BudgetError, match=r"map\.gpkg: is a database with other tables; give the ledger a file of its"):
        Ledger(path).open_account("census", 3)
    assert path.read_bytes() == before


def test_an_account_is_not_opened_anew_where_all_records_were_removed(ledger: Ledger) -> None:
    tampered(ledger, "DELETE FROM records")
    with pytest.raises(BudgetError, match="holds no record: all were removed; restore it from a copy"):
        ledger.open_account("census", 3)


@pytest.mark.parametrize("body", ["{}", "[]", '{"currency": "bits"}'])
def test_a_record_whose_content_cannot_be_read_is_an_error_of_ours(ledger: Ledger, body: str) -> None:
    """Its hash is right: somebody wrote it who knows how."""
    with closing(sqlite3.connect(ledger.path)) as connection:
        row = list(connection.execute("SELECT * FROM records").fetchone())
    chained = json.dumps([row[5], *row[:4], body], separators=(",", ":")).encode()
    tampered(ledger, f"UPDATE records SET body = '{body}', hash = '{hashlib.sha256(chained).hexdigest()}'")
    for use in (lambda: ledger.require_left("census", "one", ONE), ledger.verify, lambda: ledger.account("census")):
        with pytest.raises(BudgetError, match=r"the ledger cannot be used: .*restore it from a copy"):
            use()


def test_a_ledger_cannot_be_made_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BudgetError, match=r"file/ledger.db: the ledger cannot be used"):
        Ledger(tmp_path / "file" / "ledger.db").open_account("census", 1)


def test_a_ledger_that_another_process_holds_is_named(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_of_records, "PATIENCE_SECONDS", 0.05)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BudgetError, match="another process holds the ledger; run again when it is done"):
            ledger.reserve("census", "a", ONE)
        assert ledger.account("census").spent == 0  # reading goes on
        other.execute("ROLLBACK")
    assert ledger.reserve("census", "a", ONE).spent == 1


def _without_rights(path: Path, results: Any) -> None:
    give_up_rights()
    ledger = Ledger(path)
    results.put(ledger.verify())
    try:
        ledger.reserve("census", "b", ONE)
    except BudgetError as error:
        results.put(str(error))


def test_a_ledger_that_may_only_be_read_is_shown_and_not_spent(ledger: Ledger) -> None:
    ledger.reserve("census", "a", ONE)
    ledger.path.chmod(0o444)
    ledger.path.parent.chmod(0o555)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    worker = context.Process(target=_without_rights, args=(ledger.path, results))
    worker.start()
    assert results.get(timeout=30) == ledger.verify()
    assert "the ledger cannot be used: attempt to write a readonly database" in results.get(timeout=30)
    worker.join()
    ledger.path.parent.chmod(0o755)
    assert ledger.account("census").spent == 1


def test_a_copy_of_the_file_alone_has_every_record(ledger: Ledger, tmp_path: Path) -> None:
    # Another connection stands open, so that closing ours does not empty the log.
    with closing(sqlite3.connect(ledger.path)) as other:
        other.execute("SELECT count(*) FROM records").fetchall()
        ledger.reserve("census", "a", ONE)
        shutil.copy(ledger.path, tmp_path / "copy.db")
    assert Ledger(tmp_path / "copy.db").verify() == ledger.verify()


def test_the_file_is_a_synced_write_ahead_log(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with file_of_records.transaction(ledger.path) as chain:
        assert chain._connection.execute("PRAGMA synchronous").fetchone() == (2,)


# -- in a run -------------------------------------------------------------------------------------------------------

DIGEST = hashlib.sha256(bytes(32)).hexdigest()
WITH_LEDGER = RUN_TOML + '\n[ledger]\npath = "ledger.db"\ndataset = "census"\n[projection]\ncross_check = false\n'


@pytest.fixture
def ledger_run(toy_run: Path, ledger: Ledger) -> Path:
    toy_run.write_text(WITH_LEDGER)
    return toy_run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_reserves_draws_and_confirms(ledger_run: Path, ledger: Ledger) -> None:
    config = load_config(ledger_run)
    public = pipeline.run(config).public
    account = ledger.account("census")
    assert account.spent == 1
    assert account.confirmed == {account.releases[0].release}
    levels = [event["level"] for event in account.releases[0].body["events"]]
    assert levels == ["nation", "state", "county"]
    entry = json.loads((public / "manifest.json").read_text())["ledger"]
    assert entry == {"dataset": "census", "release": account.releases[0].release, "record": ledger.verify()}
    assert pipeline.run(config).already_there
    assert ledger.account("census") == account


def test_a_run_beyond_the_total_is_refused_before_any_draw(
    ledger_run: Path, ledger: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(3):
        assert topdown_command("run", ledger_run, "-o", ledger_run.parent / f"out{k}") == 0
    with monkeypatch.context() as patch:
        patch.setattr(draw, "measure", None)
        assert topdown_command("run", ledger_run, "-o", ledger_run.parent / "out3") == 5
    assert "to 4, beyond the total of 3; 0 is left. Nothing was drawn" in capsys.readouterr().err
    assert not (ledger_run.parent / "out3" / "public").exists()
    assert not (ledger_run.parent / "out3" / "internal" / "draw.json").exists()
    assert ledger.account("census").spent == 3
    # What is released already is released, whatever is left.
    assert topdown_command("run", ledger_run, "-o", ledger_run.parent / "out0") == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("epsilon = 1.0", 'mechanism = "discrete-gaussian"\nrho = 0.1', "pure epsilon, which discrete-gaussian"),
        ("epsilon = 1.0", 'epsilon = 1.0\nunit = "household"', "do not add"),
        ("epsilon = 1.0", 'epsilon = 1.0\nneighbours = "substitute"', "do not add"),
        ('"census"', '"other"', "has no account"),
        ('"ledger.db"', '"gone.db"', "there is no ledger"),
        ('"ledger.db"', '"table.csv"', "cannot be used"),
    ],
)
def test_a_run_that_the_ledger_does_not_take_draws_nothing(
    ledger_run: Path, old: str, new: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_run.write_text(WITH_LEDGER.replace(old, new))
    monkeypatch.setattr(draw, "measure", None)
    assert topdown_command("run", ledger_run) == 5
    assert says in capsys.readouterr().err


def test_measurements_that_were_lost_are_not_drawn_again(
    ledger_run: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(ledger_run)
    public = pipeline.run(config).public
    shutil.rmtree(public)
    kept = public.parent / "internal" / "draw.json"
    away = kept.rename(kept.with_name("away"))
    with monkeypatch.context() as patch:
        patch.setattr(draw, "measure", None)
        with pytest.raises(BudgetError, match=r"drew its noise, and its record is not here; restore it"):
            pipeline.run(config)
    away.rename(kept)
    pipeline.run(config)
    assert ledger.account("census").spent == 1


@pytest.mark.parametrize("secret", ["", "0123", "g" * 128, "0" * 128, "0" * 64 + DIGEST + "0", "é" * 64], ids=range(6))
def test_a_damaged_secret_reserves_nothing(ledger_run: Path, ledger: Ledger, secret: str) -> None:
    internal = ledger_run.parent / "output" / "internal"
    internal.mkdir(parents=True)
    (internal / "key").write_text(secret)
    with pytest.raises(DataError, match=r"key: the release's secret is damaged; restore the folder"):
        pipeline.run(load_config(ledger_run))
    with pytest.raises(BudgetError, match="a release without a name cannot reserve"):
        ledger.reserve("census", "", ONE)
    assert ledger.account("census").releases == ()


@pytest.mark.parametrize("stopped_at", ["begin", "keep"])
def test_a_copied_reservation_makes_one_release(
    ledger_run: Path, ledger: Ledger, stopped_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(ledger_run)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, stopped_at, None)
        with pytest.raises(TypeError):
            pipeline.run(config)
    copy = ledger_run.parent / "copy"
    shutil.copytree(config.output_path, copy)
    public = pipeline.run(config).public
    if stopped_at == "begin":
        with pytest.raises(BudgetError, match="drew its noise"):
            pipeline.run(config, copy)
        assert not (copy / "public").exists()
    else:  # both know what the noise follows from, and it is the same
        copied = pipeline.run(config, copy).public
        assert [p.read_bytes() for p in sorted(copied.iterdir())] == [p.read_bytes() for p in sorted(public.iterdir())]
    assert ledger.account("census").spent == 1


def test_the_folders_of_a_new_ledger_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(files, "sync_folder", synced.add)
    Ledger(tmp_path / "books" / "census" / "ledger.db").open_account("census", 1)
    assert synced == {tmp_path, tmp_path / "books"}


def test_a_ledger_that_is_named_later_is_charged_all_the_same(toy_run: Path, ledger: Ledger) -> None:
    toy_run.write_text(RUN_TOML + "[projection]\ncross_check = false\n")
    pipeline.run(load_config(toy_run))
    toy_run.write_text(WITH_LEDGER)
    assert pipeline.run(load_config(toy_run)).already_there
    assert len(ledger.account("census").confirmed) == 1


def test_a_ledger_that_was_restored_from_an_older_copy_is_found_by_the_manifest(
    ledger_run: Path, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = (ledger_run.parent / name for name in ("older.db", "newer.db"))
    shutil.copy(ledger.path, older)
    assert topdown_command("run", ledger_run) == 0
    assert topdown_command("run", ledger_run, "-o", ledger_run.parent / "another") == 0
    shutil.copy(ledger.path, newer)
    shutil.copy(older, ledger.path)
    before = contents(ledger_run.parent / "output")
    assert topdown_command("run", ledger_run) == 5
    said = capsys.readouterr().err
    assert "does not hold the record" in said
    assert "older copy of it, which lacks what was spent since; restore the newest copy" in said
    # Nothing is written that would hide it.
    assert ledger.account("census").spent == 0
    assert contents(ledger_run.parent / "output") == before
    shutil.copy(newer, ledger.path)
    assert topdown_command("run", ledger_run) == 0
    assert ledger.account("census").spent == 2


# -- the command line -----------------------------------------------------------------------------------------------


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "books" / "ledger.db"
    assert topdown_command("ledger", "init", path, "--dataset", "census", "--total", "10/3") == 0
    assert topdown_command("ledger", "init", path, "--dataset", "[b]", "--total", "0.5", "--currency", "rho") == 0
    Ledger(path).reserve("census", "release one", ONE)
    Ledger(path).reserve("census", "release two", ONE)
    Ledger(path).confirm("census", "release one", "digest")
    capsys.readouterr()
    assert topdown_command("ledger", "show", path) == 0
    shown = capsys.readouterr().out
    assert "census: 2 of 10/3 epsilon is spent, 4/3 is left, for one person under add-remove" in shown
    assert "[b]: 0 of 0.5 rho is spent, 0.5 is left" in shown
    heading = next(line for line in shown.splitlines() if "reserved" in line and "title" in line)
    row = next(line for line in shown.splitlines() if "release one" in line)
    for name, value in (("state", "confirmed"), ("release", "release one")):
        assert heading.index(name) == row.index(value)
    rows = [line.split() for line in shown.splitlines() if "release " in line]
    assert [(row[2], row[6], row[8], row[10]) for row in rows if "T" in row[4]] == [
        ("one", "confirmed", "1", "1"),
        ("two", "reserved", "1", "2"),
    ]
    head = Ledger(path).verify()
    assert topdown_command("ledger", "verify", path) == 0
    assert head in capsys.readouterr().out
    assert topdown_command("ledger", "verify", path, "--head", head) == 0
    tampered(Ledger(path), "DELETE FROM records WHERE sequence = 5")
    assert topdown_command("ledger", "verify", path) == 0
    assert topdown_command("ledger", "verify", path, "--head", head) == 5
    assert topdown_command("ledger", "init", path, "--dataset", "census", "--total", "9") == 5
    assert topdown_command("ledger", "init", path, "--dataset", "x", "--total", "much") == 5
    assert topdown_command("ledger", "show", tmp_path / "none.db") == 5
    assert topdown_command("ledger", "init", path, "--dataset", "x") == 2
    assert "Traceback" not in capsys.readouterr().err
