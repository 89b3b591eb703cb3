"""Releases a statistic: reads, reserves the budget, draws once, writes. Only the protected value remains."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from topdown.errors import BudgetError, ConfigError, CountsError, DataError
from topdown.machine.files import whole_file
from topdown.measurements.journal import MEASUREMENTS, Journal
from topdown.pipeline.already_released import require_noise
from topdown.pipeline.charging import Charged, confirm, require_left, reserve
from topdown.privacy.ledger import Ledger
from topdown.privacy.strength import MOST_UNTOUCHED
from topdown.release.places import require_not_public
from topdown.research.statistic.measured_statistic import measure_statistic
from topdown.research.statistic.statistic_plan import RECORD_BITS, StatisticPlan
from topdown.tables.format import Format
from topdown.tables.parquet_folder import table_digest
from topdown.tables.readers import changed, read_table, require_file, row_named
from topdown.wording import FAILED, column_name, figure, reason, shown, shown_path

FILE = "statistic.json"


def release_statistic(
    table: Path,
    columns: Sequence[str],
    plan_of: Callable[[int], StatisticPlan],
    directory: Path,
    *,
    ledger: Path | None = None,
    dataset: str = "",
) -> dict[str, Any]:
    """Write ``directory``/statistic.json and return its content, drawn once: a second call draws, and returns, the
    same.

    ``plan_of``: the `StatisticPlan` of n records. The noise is derived from a secret in ``directory``/internal, the
    plan, the columns and the table, whose digest is kept there too. The budget is reserved before the draw, for these
    columns of this table, and confirmed before anything is written. Raises `DataError` for a table that cannot be read
    or differs from the one before, `ConfigError` for another plan or columns, `BudgetError` where the ledger refuses,
    and for noise that would mostly be 0.
    """
    require_not_public(directory, "a statistic's key is kept in internal/, beside it,")
    if dataset and ledger is None:
        raise ConfigError(f"dataset {shown(dataset)} is of a ledger, and none is given; give --ledger too")
    if len(set(columns)) < len(columns):
        raise ConfigError(f"column {column_name(columns[0])} is given twice; give each once")
    digest = _digest(table)
    values = _values(table, columns)
    if _digest(table) != digest:
        raise changed(table)
    if len(values) < 2:
        raise CountsError(f"{shown_path(table)}: a statistic is released of two records or more; give a longer table")
    plan, path = plan_of(len(values)), directory / FILE
    if plan.untouched > MOST_UNTOUCHED:
        raise BudgetError(
            f"at epsilon {figure(str(plan.epsilon))} the noise is 0 with probability {plan.untouched:.4%}, so that the "
            "exact statistic would be published; take a smaller epsilon"
        )
    # The name contains everything that decides the release, also how values are rounded.
    settled = f"{RECORD_BITS} {plan.settled(columns)}"
    journal = Journal(directory / "internal", hashlib.sha256(settled.encode()).hexdigest(), digest)
    charged = None if ledger is None else Charged(ledger, dataset)
    if not journal.has_secret():
        require_left(charged, journal, [plan.event])  # before anything is written
    with journal.locked():
        begun, there = journal.read(), _written(path)
        if there is not None:
            require_noise(path, there.get("noise"), journal, begun)
        if charged is not None and there is not None and "ledger" in there:
            if not isinstance(there["ledger"], dict) or "record" not in there["ledger"]:
                raise _changed(path)
            Ledger(charged.path).require_record(str(there["ledger"]["record"]), path)
        event = replace(plan.event, columns=tuple(columns), input=journal.input_code())
        reserve(charged, journal, [event], begun=begun is not None)
        begun = begun or journal.begin()
        drawn = measure_statistic(values, plan, begun.key, columns=columns)
        measured = begun.key.code(MEASUREMENTS, [(str(drawn.value), np.zeros(0))])
        journal.keep_code(begun, measured)
        entry = confirm(charged, journal, measured)
        written = {**drawn.to_dict(), "noise": journal.release_name()}
        if there is not None:
            if {name: value for name, value in there.items() if name != "ledger"} != written:
                raise _changed(path)
            return there
        written |= {} if entry is None else {"ledger": asdict(entry)}
        try:
            with whole_file(path) as partial:
                partial.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise DataError(
                f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; free the space and run again: the "
                "answer will be the same, and nothing more is spent"
            ) from None
        return written


def _digest(table: Path) -> str:
    try:
        return table_digest(require_file(table))
    except OSError as error:
        raise DataError(f"{shown_path(table)}: cannot be read: {reason(error)}; correct the path") from None


def _written(path: Path) -> dict[str, Any] | None:
    """What an earlier run wrote, None where there is nothing. Raises `DataError` where it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        raise _changed(path) from None
    if not isinstance(found, dict):
        raise _changed(path)
    return found


def _changed(path: Path) -> DataError:
    return DataError(
        f"{shown_path(path)}: is not what was written; move it away and run again: it is written again, with the same "
        "answer"
    )


def _values(table: Path, columns: Sequence[str]) -> np.ndarray[Any, Any]:
    read = read_table(table, list(columns), form=Format(has_settings=False))
    values = np.empty((read.num_rows, len(columns)))
    for at, name in enumerate(columns):
        try:
            values[:, at] = read[name].to_pandas().astype(np.float64).to_numpy()
        except (TypeError, ValueError):
            raise CountsError(
                f"{shown_path(table)}: column {column_name(name)} has a value that is not a number; correct it or "
                "leave it out"
            ) from None
    missing = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if missing.size:
        raise CountsError(
            f"{shown_path(table)}: {row_named(table, int(missing[0]))} has no number in a column that is asked for; "
            "correct it or leave it out"
        )
    return values
