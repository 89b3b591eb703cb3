"""The file of the ledger: an SQLite database of records that are only appended, in a chain of hashes."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from topdown.errors import BudgetError, TopdownError
from topdown.machine.files import make_folder
from topdown.wording import LONGEST_LIST, reason, shown, shown_path, unquoted

START = "0" * 64
"""In place of the hash of a record before the first."""

PATIENCE_SECONDS = 10.0
"""How long a run waits for another process that holds the ledger."""

RECORD_KINDS = ("open", "reserve", "confirm")
"""The kinds of records."""

_SCHEMA = (
    f"""
    CREATE TABLE IF NOT EXISTS records (
        sequence INTEGER PRIMARY KEY,
        dataset TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN {RECORD_KINDS!r}),
        release TEXT NOT NULL,
        body TEXT NOT NULL,
        previous TEXT NOT NULL,
        hash TEXT NOT NULL UNIQUE,
        UNIQUE (dataset, kind, release)
    )
    """,
    """
    CREATE TRIGGER IF NOT EXISTS records_are_not_changed BEFORE UPDATE ON records
        BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END
    """,
    """
    CREATE TRIGGER IF NOT EXISTS records_are_not_deleted BEFORE DELETE ON records
        BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END
    """,
)


@dataclass(frozen=True)
class LedgerRecord:
    """One record of the ledger. ``body``: facts as JSON-able values; ``hash``: of this record and the one before it."""

    sequence: int
    dataset: str
    kind: str
    release: str
    body: dict[str, Any]
    previous: str
    hash: str


@dataclass(frozen=True)
class Transaction:
    """The records of a ledger, to which only this process may append until the transaction ends."""

    records: tuple[LedgerRecord, ...]
    _connection: sqlite3.Connection

    def append(self, dataset: str, kind: str, release: str, body: dict[str, Any]) -> LedgerRecord:
        """Add a record with ``body`` and the time; returns it. At most one per transaction."""
        last = self.records[-1] if self.records else None
        sequence, previous = (1, START) if last is None else (last.sequence + 1, last.hash)
        body = body | {"at": datetime.now(UTC).isoformat(timespec="seconds")}
        text = _canonical(body)
        mark = _hash(previous, sequence, dataset, kind, release, text)
        row = (sequence, dataset, kind, release, text, previous, mark)
        self._connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        return LedgerRecord(sequence, dataset, kind, release, body, previous, mark)


def read_records(path: Path) -> tuple[LedgerRecord, ...]:
    """The records at ``path``, after checking their chain; read permission is enough.

    Raises `BudgetError` for a file that is no ledger, and naming the first record that was changed.
    """
    _require_file(path)
    readable = f"{_real(path).as_uri()}?mode=ro"
    with errors_in_words(path), closing(sqlite3.connect(readable, uri=True, timeout=PATIENCE_SECONDS)) as connection:
        _require_one_name(path)
        return _verified(connection, path)


@contextmanager
def transaction(path: Path, *, create: bool = False) -> Iterator[Transaction]:
    """Hold the write lock from the beginning; what was appended is synced when the block ends, dropped if it fails.

    ``create``: make the file where there is none. Raises `BudgetError` as `read_records` does, and while another
    process holds the ledger.
    """
    if not create:
        _require_file(path)
    with errors_in_words(path):
        if create:
            make_folder(path.parent)
        with closing(sqlite3.connect(_real(path), timeout=PATIENCE_SECONDS, isolation_level=None)) as connection:
            _require_one_name(path)
            if create:
                _require_own(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            if create:
                # In the same transaction as the first record, so that nobody sees a ledger without records.
                for statement in _SCHEMA:
                    connection.execute(statement)
            yield Transaction(_verified(connection, path), connection)
            connection.execute("COMMIT")
            # So that a copy of the file alone has every record; active readers may prevent it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def all_removed(path: Path) -> BudgetError:
    """The error of a ledger without records, which none has from the beginning on."""
    return BudgetError(f"{shown_path(path)}: the ledger holds no record: all were removed; restore it from a copy")


def _require_own(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse to make a ledger of a database that holds something else, or of a ledger whose records were removed."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if tables and "records" not in tables:
        raise BudgetError(f"{shown_path(path)}: is a database with other tables; give the ledger a file of its own")
    if tables and not connection.execute("SELECT count(sequence) FROM records").fetchone()[0]:
        raise all_removed(path)


def _require_file(path: Path) -> None:
    with errors_in_words(path):
        if not path.is_file():
            raise BudgetError(f"{shown_path(path)}: there is no ledger; make one with 'topdown ledger init'")


def _real(path: Path) -> Path:
    """The file that ``path`` leads to through symbolic links: SQLite keeps its log and its locks beside that file."""
    return Path(os.path.realpath(path))


def _require_one_name(path: Path) -> None:
    """Refuse a ledger with hard links: SQLite has another log for each name, so that runs under different names do not
    see each other's records.
    """
    names = path.stat().st_nlink
    if names > 1:
        raise BudgetError(
            f"{shown_path(path)}: the ledger's file has {names} names (hard links), and runs under different names do "
            "not see what the others spend; while no run is at work, remove all names but one"
        )


def _verified(connection: sqlite3.Connection, path: Path) -> tuple[LedgerRecord, ...]:
    """All records, after making sure that none was changed and each follows the one before."""
    rows = connection.execute(
        "SELECT sequence, dataset, kind, release, body, previous, hash FROM records ORDER BY sequence"
    ).fetchall()
    records: list[LedgerRecord] = []
    for number, (sequence, dataset, kind, release, text, previous, mark) in enumerate(rows, start=1):
        before = records[-1].hash if records else START
        # The text itself is hashed, so that two spellings of one body have different hashes.
        expected = _hash(before, sequence, dataset, kind, release, text)
        if (sequence, previous, mark) != (number, before, expected):
            raise BudgetError(
                f"{shown_path(path)}: record {number} is not what was written: the ledger was edited; restore it from "
                "a copy"
            )
        if kind not in RECORD_KINDS:
            raise BudgetError(
                f"{shown_path(path)}: record {number} is of a kind that is not known here, {shown(kind)}: a newer "
                "Topdown wrote it, and it may say what was spent; update Topdown"
            )
        records.append(LedgerRecord(sequence, dataset, kind, release, json.loads(text), previous, mark))
    return tuple(records)


@contextmanager
def errors_in_words(path: Path) -> Iterator[None]:
    """Turns any error of the file at ``path``, or of its content, into a `BudgetError`."""
    try:
        yield
    except TopdownError:
        raise
    except (sqlite3.Error, OSError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        if "locked" in str(error):
            raise BudgetError(
                f"{shown_path(path)}: another process holds the ledger; run again when it is done"
            ) from None
        raise BudgetError(
            f"{shown_path(path)}: the ledger cannot be used: {_said(error)}; correct its path or permissions, or "
            "restore it from a copy"
        ) from None


def _said(error: Exception) -> str:
    """SQLite's message, which is about the file; about its content only that it cannot be read."""
    if isinstance(error, sqlite3.Error):
        return unquoted(str(error), LONGEST_LIST)
    return reason(error, "a record cannot be read")


def _hash(previous: str, sequence: int, dataset: str, kind: str, release: str, text: str) -> str:
    return hashlib.sha256(_canonical([previous, sequence, dataset, kind, release, text]).encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
