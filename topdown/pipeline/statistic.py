"""A statistic's release: read, reserve, draw once, write. No value outlives it but the protected one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topdown.confidential.statistic import RECORD_BITS, measure_statistic
from topdown.errors import BudgetError, CountsError, DataError
from topdown.machine.files import file_digest, locked, make_folder, whole_file
from topdown.privacy.ledger import Ledger
from topdown.privacy.statistic_plan import StatisticPlan
from topdown.tables.readers import read_table
from topdown.wording import column_name, shown_path

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
    """What is written to ``directory``/statistic.json, drawn once: a second call returns what is there.

    ``plan_of``: the `StatisticPlan` of n records. The release's name in the ledger is its directory's path. The budget
    is reserved before the draw; a draw that was not written was seen by nobody, and is made again. Raises `DataError`
    for a table that does not read, or a file that another plan made, `BudgetError` where the ledger refuses.
    """
    values = _values(table, columns)
    plan = plan_of(len(values))
    make_folder(directory)
    with locked(directory / ".statistic.lock"):
        asked = _fingerprint(plan, columns)
        path, name = directory / FILE, str(directory.resolve())
        if path.exists():
            written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if written.get("asked") != asked:
                raise DataError(f"{shown_path(path)}: was made with other settings; give another --output directory")
        else:
            if ledger is not None and name in Ledger(ledger).reserve(dataset, name, [plan.event]).confirmed:
                raise BudgetError(
                    f"{shown_path(path)}: was drawn before and is not there; restore it, or give another --output "
                    "directory, "
                    "which spends its budget anew"
                )
            drawn = measure_statistic(values, plan, columns=columns)
            written = {**drawn.to_dict(), "asked": asked}
            with whole_file(path) as partial:
                partial.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
        if ledger is not None:
            Ledger(ledger).confirm(dataset, name, file_digest(path))
        return written


def _values(table: Path, columns: Sequence[str]) -> np.ndarray[Any, Any]:
    read = read_table(table, list(columns))
    values = np.empty((read.num_rows, len(columns)))
    for at, name in enumerate(columns):
        try:
            values[:, at] = read[name].to_pandas().astype(np.float64).to_numpy()
        except (TypeError, ValueError):
            raise CountsError(
                f"column {column_name(name)} holds what is no number; correct it or leave it out"
            ) from None
    missing = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if missing.size:
        raise CountsError(f"row {missing[0]} has no number in a column that is asked for; correct it or leave it out")
    return values


def _fingerprint(plan: StatisticPlan, columns: Sequence[str]) -> str:
    """SHA-256 of what decides the release."""
    settled = [plan.statistic, [[str(end) for end in pair] for pair in plan.bounds], plan.records, str(plan.epsilon)]
    settled += [plan.bounding, plan.bits, plan.unit, list(columns), RECORD_BITS]
    return hashlib.sha256(json.dumps(settled).encode()).hexdigest()
