"""The ledger: what has been spent of every confidential data set's budget, kept so that it cannot be spent twice.

One SQLite file holds records that are only ever appended, each with the hash of the one before it. A release reserves
its budget before the first draw and confirms it with the hash of its measurements; a reservation counts as spent. Two
releases that are made at the same time are put one after the other by SQLite's write lock, so that both cannot pass.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from topdown.errors import BudgetError
from topdown.privacy.accounting import Event, PureAccountant, ZCDPAccountant, event_from_dict, event_to_dict
from topdown.privacy.shares import Number, exact_number, suggest

ACCOUNTANTS = {"epsilon": PureAccountant, "rho": ZCDPAccountant}
"""What a data set's total may be counted in, and who adds it up."""

_START = "0" * 64
_PATIENCE_SECONDS = 10.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    sequence INTEGER PRIMARY KEY,
    dataset TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('open', 'reserve', 'confirm')),
    release TEXT NOT NULL,
    body TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    UNIQUE (dataset, kind, release)
);
CREATE TRIGGER IF NOT EXISTS records_are_not_changed BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER IF NOT EXISTS records_are_not_deleted BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


@dataclass(frozen=True)
class Record:
    """One line of the ledger. ``body``: facts as JSON-able values; ``hash``: of this line and the one before it."""

    sequence: int
    dataset: str
    kind: str
    release: str
    body: dict[str, Any]
    previous: str
    hash: str


@dataclass(frozen=True)
class Account:
    """A data set's budget: its ``currency`` ("epsilon" or "rho"), ``total`` and what its ``releases`` spent."""

    dataset: str
    currency: str
    total: Fraction
    spent: Fraction
    releases: tuple[Record, ...] = field(repr=False)
    confirmed: frozenset[str] = field(repr=False)

    @property
    def left(self) -> Fraction:
        """What may still be spent."""
        return self.total - self.spent


class Ledger:
    """The ledger in the SQLite file at ``path`` (write-ahead log, every commit synced)."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def open_account(
        self,
        dataset: str,
        total: Number,
        currency: str = "epsilon",
        *,
        unit: str = "person",
        neighbours: str = "add-remove",
    ) -> Account:
        """Begin to account for ``dataset``, of which at most ``total`` may be spent; makes the file where needed.

        Raises `BudgetError` for a data set that has an account, a total that is not above 0, an unknown currency.
        """
        allowed = exact_number(total, "total")
        if allowed <= 0:
            raise BudgetError(f"total is {total}; give a number above 0")
        if currency not in ACCOUNTANTS:
            raise BudgetError(f"unknown currency {currency!r}; {suggest(currency, list(ACCOUNTANTS))}")
        body = {"total": str(allowed), "currency": currency, "unit": unit, "neighbours": neighbours}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing(create=True) as connection:
            if any(record.dataset == dataset for record in _records(connection)):
                raise BudgetError(f"{self.path}: data set {dataset!r} has an account already; its total stays as it is")
            _append(connection, dataset, "open", "", body)
        return self.account(dataset)

    def reserve(self, dataset: str, release: str, events: Iterable[Event]) -> Account:
        """Set aside what ``events`` cost for the release called ``release``, before any of its noise is drawn.

        The same release reserves but once, however often it is started again. Raises `BudgetError` where the total
        would be passed, where the data set has no account or another unit or neighbours, or for a release that reserved
        something else before.
        """
        facts = [event_to_dict(event) for event in events]
        with self._writing() as connection:
            self._verified(connection)
            account = self._account(connection, dataset)
            earlier = next((record for record in account.releases if record.release == release), None)
            if earlier is not None:
                if earlier.body["events"] != facts:
                    raise BudgetError(f"{self.path}: release {release} has reserved another budget before")
                return account
            opened = next(r for r in _records(connection) if r.dataset == dataset and r.kind == "open").body
            for event in facts:
                if (event["unit"], event["neighbours"]) != (opened["unit"], opened["neighbours"]):
                    raise BudgetError(
                        f"{self.path}: data set {dataset!r} is accounted for one {opened['unit']} under "
                        f"{opened['neighbours']!r}, and the release protects one {event['unit']} under "
                        f"{event['neighbours']!r}; their budgets do not add"
                    )
            accountant = ACCOUNTANTS[account.currency](_events(account.releases))
            after = accountant.would_be([event_from_dict(event) for event in facts])
            if after > account.total:
                raise BudgetError(
                    f"{self.path}: the release would bring {account.currency} of data set {dataset!r} to {after}, beyond "
                    f"the total of {account.total}; {account.left} is left. Nothing was drawn: lower this release's "
                    "budget"
                )
            _append(connection, dataset, "reserve", release, {"events": facts, "after": str(after)})
        return self.account(dataset)

    def confirm(self, dataset: str, release: str, measurements: str) -> None:
        """Record that ``release`` drew its noise; ``measurements`` is the SHA-256 of what it measured.

        Raises `BudgetError` for a release without a reservation, or one that was confirmed with other measurements.
        """
        with self._writing() as connection:
            account = self._account(connection, dataset)
            if all(record.release != release for record in account.releases):
                raise BudgetError(f"{self.path}: release {release} of data set {dataset!r} has reserved nothing")
            for record in _records(connection):
                if (record.dataset, record.kind, record.release) == (dataset, "confirm", release):
                    if record.body["measurements"] != measurements:
                        raise BudgetError(f"{self.path}: release {release} was confirmed with other measurements")
                    return
            _append(connection, dataset, "confirm", release, {"measurements": measurements})

    def account(self, dataset: str) -> Account:
        """The account of ``dataset``. Raises `BudgetError` where it has none."""
        with self._reading() as connection:
            return self._account(connection, dataset)

    def datasets(self) -> tuple[str, ...]:
        """The data sets that have an account."""
        with self._reading() as connection:
            return tuple(record.dataset for record in _records(connection) if record.kind == "open")

    def verify(self, head: str | None = None) -> str:
        """Check the chain of hashes and return its last one; with ``head``, also that this hash is in the chain.

        Raises `BudgetError` naming the first record that was changed, removed or put in. Records cut off at the end
        leave a sound chain: keep the last hash elsewhere and give it as ``head``.
        """
        with self._reading() as connection:
            hashes = self._verified(connection)
        if head is not None and head not in hashes:
            raise BudgetError(f"{self.path}: the hash {head} is not in the ledger: records are missing")
        return hashes[-1] if hashes else _START

    def _verified(self, connection: sqlite3.Connection) -> list[str]:
        previous, hashes = _START, []
        for number, record in enumerate(_records(connection), start=1):
            expected = _hash(previous, record.sequence, record.dataset, record.kind, record.release, record.body)
            if record.sequence != number or record.previous != previous or record.hash != expected:
                raise BudgetError(
                    f"{self.path}: record {number} is not what was written: the ledger was edited; restore it from a "
                    "copy"
                )
            previous = record.hash
            hashes.append(previous)
        return hashes

    def _account(self, connection: sqlite3.Connection, dataset: str) -> Account:
        records = [record for record in _records(connection) if record.dataset == dataset]
        opened = next((record for record in records if record.kind == "open"), None)
        if opened is None:
            known = sorted({record.dataset for record in _records(connection)})
            raise BudgetError(
                f"{self.path}: data set {dataset!r} has no account; {suggest(dataset, known)}. Open one with 'topdown "
                "ledger init'"
            )
        releases = tuple(record for record in records if record.kind == "reserve")
        currency = opened.body["currency"]
        return Account(
            dataset=dataset,
            currency=currency,
            total=Fraction(opened.body["total"]),
            spent=ACCOUNTANTS[currency](_events(releases)).total,
            releases=releases,
            confirmed=frozenset(record.release for record in records if record.kind == "confirm"),
        )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise BudgetError(f"{self.path}: there is no ledger; make one with 'topdown ledger init'")
        connection = self._connect()
        try:
            yield connection
        except (sqlite3.Error, json.JSONDecodeError, KeyError) as error:
            raise self._in_words(error) from error
        finally:
            connection.close()

    @contextmanager
    def _writing(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the write lock from its beginning, and is synced when it ends."""
        if not create and not self.path.is_file():
            raise BudgetError(f"{self.path}: there is no ledger; make one with 'topdown ledger init'")
        connection = self._connect()
        try:
            if create:
                connection.executescript(_SCHEMA)
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except (sqlite3.Error, json.JSONDecodeError, KeyError) as error:
            raise self._in_words(error) from error
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self.path, timeout=_PATIENCE_SECONDS, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise self._in_words(error) from error
        return connection

    def _in_words(self, error: Exception) -> BudgetError:
        if "locked" in str(error):
            return BudgetError(f"{self.path}: another process holds the ledger; run again when it is done")
        return BudgetError(
            f"{self.path}: the ledger cannot be used: {error}; correct its path or restore it from a copy"
        )


def _events(releases: Iterable[Record]) -> list[Event]:
    return [event_from_dict(event) for record in releases for event in record.body["events"]]


def _records(connection: sqlite3.Connection) -> list[Record]:
    rows = connection.execute("SELECT * FROM records ORDER BY sequence").fetchall()
    return [
        Record(sequence, dataset, kind, release, json.loads(body), previous, mark)
        for sequence, dataset, kind, release, body, previous, mark in rows
    ]


def _append(connection: sqlite3.Connection, dataset: str, kind: str, release: str, body: dict[str, Any]) -> None:
    body = body | {"at": datetime.now(UTC).isoformat(timespec="seconds")}
    last = connection.execute("SELECT sequence, hash FROM records ORDER BY sequence DESC LIMIT 1").fetchone()
    sequence, previous = (last[0] + 1, last[1]) if last else (1, _START)
    mark = _hash(previous, sequence, dataset, kind, release, body)
    row = (sequence, dataset, kind, release, _canonical(body), previous, mark)
    connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _hash(previous: str, sequence: int, dataset: str, kind: str, release: str, body: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical([previous, sequence, dataset, kind, release, body]).encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
